"""The account of a sketch is that of `gaussmix.accounting`, and a slow computation with mpmath agrees."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

import naive_paper as naive
import reference
from gaussmix import ArgumentError, NotPrivateError, accounting, calibrate, paper
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.accounting.parameters import NEIGHBOURS

EMPTY = np.zeros((1, 3))
MIXINGS = [(3.0, 2.0, 1), (7.3, 1.0, 250), (40.0, 4.0, 57)]  # σ, C, k


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "C", "k"), MIXINGS)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_gauss_mix_has_the_exact_curve_of_its_gamma(sigma, C, k, neighbours):
    sketch = paper.gauss_mix(EMPTY, k, sigma, row_norm=C, neighbours=neighbours, rng=0)
    account = {"sketch_size": k, "gamma": (sigma / C) ** 2, "neighbours": neighbours}
    assert sketch.certificate.gamma == pytest.approx(account["gamma"], rel=1e-15)
    for epsilon in (-0.3, 0.0, 0.5, 2.0):
        found = sketch.delta(epsilon)
        assert found == pytest.approx(accounting.delta(epsilon, **account), rel=1e-12)
        if neighbours == "add-remove":
            exact = float(reference.delta(epsilon, k, account["gamma"], "none"))
            assert exact <= found <= exact * (1 + 1e-9)
    for delta in (1e-12, 1e-6, 0.01):
        epsilon = sketch.epsilon(delta)
        assert epsilon == pytest.approx(accounting.epsilon(delta, **account), rel=1e-12)
        assert sketch.delta(epsilon) <= delta


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "C", "k"), MIXINGS[1:])
def test_replace_one_by_mpmath(sigma, C, k):
    sketch = paper.gauss_mix(EMPTY, k, sigma, row_norm=C, neighbours="replace-one", rng=0)
    exact = float(reference.replace_one_delta(0.8, k, (sigma / C) ** 2))
    assert exact * (1 - 1e-9) <= sketch.delta(0.8) <= exact * (1 + 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_scale_bound_is_accounted_for_by_lemma_1(neighbours):
    """Leverage 1/γ: the bound holds for the table that is sketched, not for every neighbour of it."""
    C, sigma, k = 2.0, 3.0, 57

    def sketch(bound: float, sigma: float = sigma) -> paper.Sketch:
        return paper.gauss_mix(
            EMPTY, k, sigma, row_norm=C, scale_bound=bound, neighbours=neighbours, method="gram", rng=0
        )

    promised = sketch(100.0)
    assert promised.certificate.gamma == (9 + 100) / 4
    account = {"sketch_size": k, "gamma": 109 / 4, "bound_holds_for": "larger", "neighbours": neighbours}
    assert promised.delta(1.0) == pytest.approx(accounting.delta(1.0, **account), rel=1e-12)
    assert promised.epsilon(1e-6) == pytest.approx(accounting.epsilon(1e-6, **account), rel=1e-12)
    if neighbours == "add-remove":
        assert promised.delta(1.0) == pytest.approx(float(reference.delta(1.0, k, 109 / 4, "larger")), rel=1e-9)
    alone = sketch(0.0)
    for useless in (1.0, 4.0):  # at most C²: the differing row itself may add as much
        assert sketch(useless).epsilon(1e-6) == alone.epsilon(1e-6)
    assert sketch(4.5).epsilon(1e-6) < alone.epsilon(1e-6) * 1.001
    assert promised.epsilon(1e-6) < alone.epsilon(1e-6) / 2
    assert sketch(100.0, 0.0).epsilon(1e-6) == pytest.approx(
        accounting.epsilon(1e-6, **account | {"gamma": 25.0}), rel=1e-12
    )
    assert "software cannot verify" in str(promised.certificate)
    assert alone.certificate.conditions == ()


# ---------------------------------------------------------------------------------------------------------------
# Algorithm 1
def modified(k, gamma, tau, eta, **options):
    return paper.modified_gauss_mix(EMPTY, 2.0, k, gamma, tau, eta, rng=0, **options).certificate


@pytest.mark.slow
@pytest.mark.parametrize(("k", "gamma", "tau", "eta"), [(57, 40.0, 0.0, 6.0), (5, 8.0, 1.5, 2.0)])
def test_the_joint_account(k, gamma, tau, eta):
    certificate = modified(k, gamma, tau, eta)
    error = eigenvalue_error_bound(3)
    assert certificate.eigenvalue_error == error
    parameters = {"sketch_size": k, "gamma": gamma, "eta": eta, "tau": tau, "sensitivity": 1 + 2 * error}
    for epsilon in (0.0, 1.0, 3.0):
        assert certificate.delta(epsilon) == accounting.private_scale_delta(epsilon, **parameters)
    found = certificate.epsilon(1e-5)
    assert certificate.delta(found) <= 1e-5 < certificate.delta(found * (1 - 1e-6))
    exact = modified(k, gamma, tau, eta, n_max=1)  # hardly any numerical error to charge
    assert exact.delta(2.0) == pytest.approx(float(joint_delta(2.0, k, gamma, tau, eta)), rel=1e-6)
    assert modified(k, gamma, tau, eta, n_max=1).delta(2.0) < certificate.delta(2.0)


def joint_delta(epsilon, k, gamma, tau, eta):
    """DESIGN's formulas for both directions, by quadrature over z at 20 digits."""
    with mp.workdps(20):
        g, h, t = mp.mpf(gamma), mp.mpf(eta), mp.mpf(tau)

        def curve(e, leverage, direction):
            return mp.mpf(1) if leverage >= 1 else reference.delta_one_direction(e, k, leverage, direction)

        def expected(integrand, low):
            cuts = [low + mp.mpf(i) / 2 for i in range(21)] if low > -9 else [mp.mpf(i) / 2 for i in range(-18, 19)]
            return mp.quad(lambda z: mp.npdf(z) * integrand(z), cuts, maxdegree=4)

        def left(z):
            return epsilon - 1 / (2 * h**2) - z / h

        def later(z, one):  # the leverage after v exceeded λ_min by η(z - τ)
            room = one + g - h * (z - t)
            return 1 / room if room > 0 else mp.mpf(2)

        remove = expected(lambda z: curve(left(z), 1 / g, "remove"), -mp.inf)
        remove += expected(lambda z: curve(left(z), later(z, 0), "remove"), t)
        add = expected(lambda z: curve(left(z), 1 / (1 + g), "add"), -mp.inf)
        add += expected(lambda z: curve(epsilon - max(0, 1 / (2 * h**2) - z / h), later(z, 1), "add"), t)
        return max(remove, add)


@pytest.mark.parametrize(("k", "gamma"), [(57, 70.0), (250, 145.0)])
def test_theorem_1(k, gamma):
    delta, eta = 1e-6, gamma / math.sqrt(k)
    tau = math.sqrt(2 * math.log(3 / delta))
    certificate = modified(k, gamma, tau, eta, analysis="paper", n_max=1)
    assert certificate.epsilon(delta) == pytest.approx(naive.theorem1(eta, gamma, k, delta), rel=1e-6)
    with mp.workdps(30):
        exact = mp.sqrt(2 * mp.log(mp.mpf("3.75") / delta)) / eta + reference.renyi_epsilon(delta / 3, k, gamma)
    assert certificate.epsilon(delta) == pytest.approx(float(exact), rel=1e-9)
    charged = modified(k, gamma, tau, eta, analysis="paper")
    smaller = eta / (1 + 2 * eigenvalue_error_bound(3))
    assert charged.epsilon(delta) == accounting.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=smaller)
    assert charged.epsilon(1e-3) == accounting.theorem1_epsilon(1e-3, sketch_size=k, gamma=gamma, eta=smaller)
    assert charged.epsilon(delta / 2) == math.inf  # τ is too small for it
    for epsilon in (charged.epsilon(delta), charged.epsilon(1e-3), 30.0):
        found = charged.delta(epsilon)
        assert charged.epsilon(found) <= epsilon
        assert found >= delta * (1 - 1e-9)
    assert charged.delta(-1.0) == 1.0
    joint = modified(k, gamma, tau, eta)
    assert joint.epsilon(delta) < certificate.epsilon(delta)  # the joint account of the same release is the better one


def test_the_first_branch_is_noise_alone():
    certificate = modified(57, 3.0, 4.0, 1.0)
    assert certificate.v is None
    assert certificate.sigma == 2.0 * math.sqrt(3.0)
    assert certificate.delta(2.0) == accounting.delta(2.0, sketch_size=57, gamma=3.0)
    assert certificate.epsilon(1e-3) == accounting.epsilon(1e-3, sketch_size=57, gamma=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("analysis", ["exact", "paper"])
def test_what_is_calibrated_can_be_drawn(analysis):
    error = eigenvalue_error_bound(3)
    found = calibrate(1.0, 1e-6, sketch_size=60, scale="private", analysis=analysis, eigenvalue_error=error)
    certificate = paper.modified_gauss_mix(EMPTY, 2.0, calibration=found, rng=0).certificate
    assert certificate.budget == (1.0, 1e-6)
    assert certificate.analysis == analysis
    assert (certificate.gamma, certificate.eta, certificate.tau) == (found.gamma, found.eta, found.tau)
    assert certificate.epsilon(1e-6) <= 1.0 + 1e-9
    assert certificate.delta(1.0) <= 1e-6 * (1 + 1e-9)
    with pytest.raises(NotPrivateError, match="too small"):
        replace(certificate, budget=(0.99, 1e-6))
    with pytest.raises(NotPrivateError, match="inconsistent"):
        replace(certificate, sigma=certificate.sigma * 0.99)
    small = calibrate(1.0, 1e-6, sketch_size=60, scale="private", analysis=analysis)
    with pytest.raises(ArgumentError, match="eigenvalue_error of the calibration must be at least"):
        paper.modified_gauss_mix(EMPTY, 2.0, calibration=small, rng=0)


# ---------------------------------------------------------------------------------------------------------------
def test_rows_of_stacked_sketches_add_up():
    sketches = [paper.gauss_mix(EMPTY, k, 14.0, row_norm=2.0, rng=k) for k in (10, 3, 20)]
    together = paper.stack(sketches)
    assert (together.k, together.certificate.sketches) == (33, 3)
    for epsilon in (0.1, 1.0):
        assert together.delta(epsilon) == accounting.delta(epsilon, sketch_size=33, gamma=49.0)
        assert together.delta(epsilon) == pytest.approx(float(reference.delta(epsilon, 33, 49.0, "none")), rel=1e-9)
    assert paper.stack([together, paper.gauss_mix(EMPTY, 7, 14.0, row_norm=2.0, rng=7)]).certificate.sketches == 4
    assert "fixed before the first" in together.certificate.conditions[0]


def test_a_seed_is_said_first_and_a_secure_generator_is_named():
    seeded = str(paper.gauss_mix(EMPTY, 5, 3.0, row_norm=1.0, rng=0).certificate)
    assert seeded.startswith("NO GUARANTEE: the noise came from a seed")
    secure = paper.gauss_mix(EMPTY, 5, 3.0, row_norm=1.0).certificate
    assert secure.is_private
    assert str(secure).startswith("GaussMix: ε = ")
    assert "ChaCha20" in str(secure)
    mixed = paper.stack(
        [paper.gauss_mix(EMPTY, 5, 3.0, row_norm=1.0), paper.gauss_mix(EMPTY, 5, 3.0, row_norm=1.0, rng=1)]
    )
    assert not mixed.certificate.is_private
    text = str(modified(57, 40.0, 0.5, 6.0, n_max=1000))
    for letter in ("k = 57", "γ = 40", "η = 6", "τ = 0.5", "v = ", "σ = ", "C = 2", "at most 1000", "joint account"):
        assert letter in text
    assert "Theorem 1" in str(modified(57, 40.0, 5.5, 6.0, analysis="paper"))


def test_certificates_that_contradict_themselves_are_refused():
    certificate = modified(57, 40.0, 0.5, 6.0)
    for change in (
        {"gamma": 39.0},
        {"v": certificate.v + 1e6},
        {"eta": None},
        {"v": None, "sigma": 2 * math.sqrt(40)},
        {"neighbours": "replace-one"},
        {"scale_bound": 1.0},
        {"n_max": None},
        {"sketches": 2},
        {"algorithm": "GaussMix"},
    ):
        with pytest.raises(NotPrivateError):
            replace(certificate, **change)
    for change in ({"generator": "dice"}, {"k": 0}, {"k": 2.0}, {"gamma": math.nan}, {"tau": -1.0}, {"v": math.inf}):
        with pytest.raises((ArgumentError, TypeError)):
            replace(certificate, **change)
    plain = paper.gauss_mix(EMPTY, 5, 3.0, row_norm=1.0).certificate
    for change in ({"sigma": 2.9}, {"scale_bound": 1.0}, {"budget": (1.0, 1e-6)}, {"analysis": "paper"}):
        with pytest.raises(NotPrivateError):
            replace(plain, **change)
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ArgumentError, match="delta"):
            plain.epsilon(wrong)
    assert plain.epsilon(1.0) == 0.0
    assert plain.epsilon(0.0) == math.inf
    assert replace(plain, neighbours="replace-one").epsilon(1e-200) == math.inf
