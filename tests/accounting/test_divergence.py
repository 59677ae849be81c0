"""Reference tests of the numerics: mpmath at 60 digits over the whole range that the library promises."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import reference
from gaussmix.accounting.divergence import (
    ChiSquareLoss,
    gaussian_hockey_stick,
    hockey_stick,
    hockey_stick_composed,
    log1p_deficit,
)

SKETCH_SIZES = [1, 2, 5, 57, 150, 1280, 10**4, 10**6]
GAMMAS = [1.001, 1.1, 2.5, 10.0, 100.0, 1e4, 1e6, 1e8]
TARGETS = [0.5, 1e-2, 1e-6, 1e-12, 1e-30]


def larger_of_both(epsilon: float, k: int, odds: float) -> float:
    return max(
        float(hockey_stick(epsilon, ChiSquareLoss.removal(k, odds=odds))),
        float(hockey_stick(epsilon, ChiSquareLoss.addition(k, odds=odds))),
    )


def epsilon_with_delta(target: float, k: int, odds: float) -> float:
    """An ε, negative where it has to be, whose δ is about the target."""

    def excess(epsilon: float) -> float:
        return np.log(max(larger_of_both(epsilon, k, odds), 1e-300) / target)

    high = 1e-9
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, -2.0, high, xtol=1e-300, rtol=1e-10))


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["none", "larger"])
@pytest.mark.parametrize("k", SKETCH_SIZES)
def test_delta_has_a_relative_error_below_1e_9(k, scale):
    for gamma in GAMMAS:
        odds = 1 / gamma if scale == "none" else 1 / (gamma - 1)
        for target in TARGETS:
            epsilon = epsilon_with_delta(target, k, odds)
            value, exact = larger_of_both(epsilon, k, odds), reference.delta(epsilon, k, gamma, scale)
            assert abs(mp.mpf(value) / exact - 1) < 1e-9, (gamma, target, epsilon)


@pytest.mark.parametrize("k", [1, 2, 5, 57, 150, 1280])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_each_direction_is_right_at_negative_epsilon(k, direction):
    make = ChiSquareLoss.removal if direction == "remove" else ChiSquareLoss.addition
    for gamma in [1.1, 10.0, 1e4]:
        for epsilon in [-3.0, -0.5, -1e-3]:
            with mp.workdps(reference.DIGITS):
                exact = reference.delta_one_direction(epsilon, k, reference.leverage(gamma, "none"), direction)
            assert float(hockey_stick(epsilon, make(k, odds=1 / gamma))) == pytest.approx(float(exact), rel=1e-12)


def test_limits_are_answered():
    remove, add = ChiSquareLoss.removal(5, odds=0.5), ChiSquareLoss.addition(5, odds=0.5)
    assert float(hockey_stick(-50.0, remove)) == 1.0  # every loss is above ε: 1 - e^ε
    most = 5 / 2 * np.log(1.5)  # the largest loss of an addition
    assert float(hockey_stick(most + 1e-9, add)) == 0.0
    assert float(hockey_stick(1e6, remove)) == 0.0


def test_arrays_give_what_scalars_give():
    epsilons = np.linspace(-2, 3, 5000)  # more than one block
    loss = ChiSquareLoss.removal(57, odds=0.05)
    together = hockey_stick(epsilons, loss)
    assert together[[0, 1234, 4999]] == pytest.approx([float(hockey_stick(epsilons[i], loss)) for i in (0, 1234, 4999)])
    assert np.all(np.diff(together) <= 0)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    k=st.integers(1, 10**6),
    log_odds=st.floats(-18, 7),
    epsilon=st.floats(-5, 50),
    factor=st.floats(1.001, 10),
)
def test_delta_rises_with_the_leverage_and_falls_with_epsilon(k, log_odds, epsilon, factor):
    odds = np.exp(log_odds)
    for make in (ChiSquareLoss.removal, ChiSquareLoss.addition):
        here = float(hockey_stick(epsilon, make(k, odds=odds)))
        assert 0 <= here <= 1
        assert float(hockey_stick(epsilon, make(k, odds=odds * factor))) >= here * (1 - 1e-9)
        assert float(hockey_stick(epsilon + 0.1, make(k, odds=odds))) <= here * (1 + 1e-9)
    assert float(hockey_stick(abs(epsilon), ChiSquareLoss.removal(k, odds=odds))) >= (1 - 1e-9) * float(
        hockey_stick(abs(epsilon), ChiSquareLoss.addition(k, odds=odds))
    )


@pytest.mark.parametrize("x", [-0.999, -0.5, -0.1, -0.09999, -1e-3, -1e-8, 1e-12, 1e-5, 0.0999, 0.1, 1.0, 1e6])
def test_log1p_deficit(x):
    with mp.workdps(60):
        exact = mp.mpf(x) - mp.log(1 + mp.mpf(x))
    assert abs(mp.mpf(float(log1p_deficit(x))) / exact - 1) < 1e-14


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.01, 0.3, 0.499, 0.501, 1.0, 3.0, 10.0, 50.0])
def test_gaussian_curve_against_60_digits(mu):
    for z in [-1e3, -40, -37.5, -36.5, -35.5, -20, -5, -1, -0.1, 0, 0.1, 1, 5, 10, 20, 30]:
        epsilon = float(mu * z + mu * mu / 2)
        with mp.workdps(60):
            exact = reference.gaussian_delta(mp.mpf(epsilon), mp.mpf(mu))
        assert float(gaussian_hockey_stick(epsilon, mu)) == pytest.approx(float(exact), rel=1e-11)


COMPOSITIONS = [
    (1, 5.0, 0.5, 1.0),
    (1, 1e4, 0.5, 1.0),  # the Gaussian decides
    (1, 2.0, 0.01, 0.1),  # the sketch decides
    (2, 1e6, 1e-6, 1e-5),
    (5, 2.0, 3.0, 10.0),
    (57, 20.0, 0.2, 1.0),
    (57, 20.0, 0.2, -0.5),
    (250, 60.0, 0.3, 2.0),
    (1000, 30.0, 0.01, 5.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("k", "gamma", "mu", "epsilon"), COMPOSITIONS)
def test_sketch_beside_gaussian_is_within_its_stated_error(k, gamma, mu, epsilon, direction):
    make = ChiSquareLoss.removal if direction == "remove" else ChiSquareLoss.addition
    found = hockey_stick_composed(epsilon, (make(k, odds=1 / gamma),), mu=mu)
    exact = float(reference.composed_delta(epsilon, k, gamma, mu, direction))
    assert abs(float(found.value) - exact) <= float(found.error)
    assert float(found.error) <= 1e-8 * exact + 1e-100


@pytest.mark.slow
@pytest.mark.parametrize(("k", "gamma", "epsilon"), [(1, 5.0, 1.0), (1, 5.0, -0.05), (3, 4.0, -0.2), (57, 20.0, 1.0)])
def test_replacing_a_row_is_within_its_stated_error(k, gamma, epsilon):
    losses = ChiSquareLoss.addition(k, odds=1 / gamma), ChiSquareLoss.removal(k, odds=1 / gamma)
    exact = float(reference.replace_one_delta(epsilon, k, gamma))
    for order in (losses, losses[::-1]):
        found = hockey_stick_composed(epsilon, order)
        assert abs(float(found.value) - exact) <= float(found.error)
        assert float(found.error) <= 1e-8 * exact


def test_composing_with_almost_nothing_changes_almost_nothing():
    loss = ChiSquareLoss.removal(57, odds=0.05)
    alone = float(hockey_stick(0.8, loss))
    assert float(hockey_stick_composed(0.8, (loss,), mu=1e-9).value) == pytest.approx(alone, rel=1e-6)
    nothing = ChiSquareLoss.addition(57, odds=1e-12)
    assert float(hockey_stick_composed(0.8, (nothing, loss)).value) == pytest.approx(alone, rel=1e-6)
