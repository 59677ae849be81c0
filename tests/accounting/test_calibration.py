"""Calibration meets its budget from below, with the noise that was promised."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussmix import accounting, paper
from gaussmix.accounting.calibration import calibrate
from gaussmix.accounting.private_scale import private_scale_delta
from gaussmix.errors import NotPrivateError
from gaussmix.mechanism.noise import secure_generator

budgets = {"epsilon": st.floats(0.02, 30), "log_delta": st.floats(-25, -1), "k": st.integers(1, 5000)}


@pytest.mark.slow
@settings(max_examples=60)
@given(**budgets)
def test_noise_alone_meets_the_budget_and_no_less_would(epsilon, log_delta, k):
    delta = math.exp(log_delta)
    found = calibrate(epsilon, delta, sketch_size=k)
    assert accounting.delta(epsilon, sketch_size=k, gamma=found.gamma) <= delta
    assert accounting.epsilon(delta, sketch_size=k, gamma=found.gamma) <= epsilon
    assert found.epsilon_spent <= epsilon
    assert found.delta_spent <= delta
    if found.gamma > 1e-5:
        assert accounting.delta(epsilon, sketch_size=k, gamma=found.gamma * (1 - 1e-6)) > delta


@pytest.mark.slow
@settings(max_examples=60)
@given(**budgets)
def test_renyi_and_paper_meet_the_budget(epsilon, log_delta, k):
    delta = math.exp(log_delta)
    renyi = calibrate(epsilon, delta, sketch_size=k, analysis="renyi")
    assert accounting.epsilon(delta, sketch_size=k, gamma=renyi.gamma, analysis="renyi") <= epsilon
    assert accounting.delta(epsilon, sketch_size=k, gamma=renyi.gamma, bound_holds_for="larger") <= delta
    paper = calibrate(epsilon, delta, sketch_size=k, scale="private", analysis="paper")
    assert paper.eta == paper.gamma / math.sqrt(k)
    assert paper.tau == math.sqrt(2 * math.log(3 / delta))
    assert paper.gamma > 2.5
    assert accounting.theorem1_epsilon(delta, sketch_size=k, gamma=paper.gamma, eta=paper.eta) <= epsilon
    # the sharper account agrees that Theorem 1, as corrected, is private
    assert private_scale_delta(epsilon, sketch_size=k, gamma=paper.gamma, eta=paper.eta, tau=paper.tau) <= delta


@pytest.mark.slow
@settings(max_examples=12)
@given(**budgets)
def test_private_scale_meets_the_budget(epsilon, log_delta, k):
    delta = math.exp(log_delta)
    found = calibrate(epsilon, delta, sketch_size=k, scale="private")
    spent = private_scale_delta(epsilon, sketch_size=k, gamma=found.gamma, eta=found.eta, tau=found.tau)
    assert spent <= delta
    assert found.delta_spent <= delta
    assert sum(part for _, part in found.delta_split) == pytest.approx(found.delta_spent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "epsilon", "reach"),  # least γ + ητ on a coarse grid at δ = 1e-6
    [(57, 0.3, 163.0), (57, 1.0, 55.1), (57, 5.0, 13.8), (250, 0.3, 246.7), (250, 1.0, 82.6), (1280, 1.0, 145.4)],
)
def test_private_scale_is_as_good_as_a_grid_search(k, epsilon, reach):
    found = calibrate(epsilon, 1e-6, sketch_size=k, scale="private")
    assert found.gamma + found.eta * found.tau <= reach * 1.001


def test_published_noise_levels():
    k, budget = 250, (1.0, 1e-6)
    none = calibrate(*budget, sketch_size=k)
    assert none.gamma == pytest.approx(52.83, abs=0.005)
    assert calibrate(*budget, sketch_size=k, analysis="renyi").gamma == pytest.approx(58.58, abs=0.005)
    paper = calibrate(*budget, sketch_size=k, scale="private", analysis="paper")
    assert paper.gamma == pytest.approx(144.95, abs=0.005)
    assert paper.gamma + paper.eta * paper.tau == pytest.approx(195.0, abs=0.05)
    replaced = calibrate(*budget, sketch_size=k, neighbours="replace-one")
    assert 1.27 <= replaced.gamma / none.gamma <= 1.29
    assert replaced.neighbours == "replace-one"


def test_calibration_is_frozen_and_carries_its_relation():
    found = calibrate(1.0, 1e-6, sketch_size=10)
    assert (found.neighbours, found.scale, found.eta, found.tau) == ("add-remove", "none", None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.gamma = 1.0


# ---------------------------------------------------------------------------------------------------------------
# Claims
WAYS = [
    {},
    {"analysis": "renyi"},
    {"neighbours": "replace-one"},
    {"scale": "private"},
    {"scale": "private", "analysis": "paper", "eigenvalue_error": 0.01},
]


@pytest.mark.parametrize("way", WAYS)
def test_no_calibration_claims_less_than_is_true(way):
    true = calibrate(1.0, 1e-6, sketch_size=250, **way)
    dataclasses.replace(true)
    dataclasses.replace(true, epsilon=1.1)  # a weaker claim is true
    dataclasses.replace(true, gamma=true.gamma * 4, eta=None if true.eta is None else true.eta * 4)
    changes = [
        {"gamma": 5.0},
        {"gamma": true.gamma * 0.5},
        {"sketch_size": 2000},
        {"epsilon": 0.7, "epsilon_spent": 0.7},
        {"delta": 1e-8, "delta_spent": 1e-8},
        {"epsilon_spent": 0.5},
        {"epsilon_spent": 1.5},
        {"delta_spent": 2e-6},
        {"delta_split": (("sketch", 1e-9),)},
    ]
    if true.analysis != "renyi":  # whose claims leave room
        changes.append({"gamma": true.gamma * (1 - 1e-4)})
    if true.neighbours == "add-remove" and true.scale == "none":
        changes.append({"neighbours": "replace-one"})
    if true.scale == "private":
        changes += [{"eta": true.eta * 0.1}, {"eigenvalue_error": 5.0}]
    if true.analysis == "paper":
        changes.append({"tau": 1.0})
    for change in changes:
        with pytest.raises(NotPrivateError, match=r"does not give the claimed epsilon.*calibrate\(delta="):
            dataclasses.replace(true, **change)


def test_a_false_calibration_from_elsewhere_draws_nothing():
    """Unpickled ones do not pass through the constructor."""
    wrong = pickle.loads(pickle.dumps(calibrate(1.0, 1e-6, sketch_size=250, scale="private", eigenvalue_error=0.01)))
    object.__setattr__(wrong, "gamma", 5.0)
    with pytest.raises(NotPrivateError):
        paper.modified_gauss_mix(np.zeros((1, 2)), 1.0, calibration=wrong, rng=secure_generator())


@pytest.mark.parametrize(
    "change",
    [
        {"gamma": math.nan},
        {"gamma": math.inf},
        {"gamma": "5"},
        {"epsilon": math.inf},
        {"delta": 0.0},
        {"sketch_size": 2**41},
        {"scale": "private"},
        {"eta": 1.0},
        {"analysis": "paper"},
        {"neighbours": "friends"},
    ],
)
def test_a_calibration_has_sound_arguments(change):
    with pytest.raises((ValueError, TypeError)):
        dataclasses.replace(calibrate(1.0, 1e-6, sketch_size=250), **change)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "gamma"), [(250, 30.0), (10**6, 3000.0), (5, 1.5)])
@pytest.mark.parametrize("way", WAYS[:3])
def test_chosen_noise_is_told_its_cost(k, gamma, way):
    by_delta = calibrate(delta=1e-6, sketch_size=k, gamma=gamma, **way)
    assert by_delta.epsilon == accounting.epsilon(1e-6, sketch_size=k, gamma=gamma, **way)
    assert (by_delta.gamma, by_delta.delta) == (gamma, 1e-6)
    by_epsilon = calibrate(2.0, sketch_size=k, gamma=gamma, **way)
    assert by_epsilon.delta == accounting.delta(2.0, sketch_size=k, gamma=gamma, **way)
    assert by_epsilon.epsilon == 2.0


def test_chosen_noise_at_the_ends():
    assert calibrate(delta=1e-6, sketch_size=1, gamma=1e12).epsilon == 1e-12
    assert calibrate(50.0, sketch_size=1, gamma=1e9).delta == 1e-300
    with pytest.raises(ValueError, match="gives no guarantee"):
        calibrate(1.0, sketch_size=10, gamma=1e-300)
    for arguments in ({}, {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(ValueError, match="exactly one of epsilon and delta must be given"):
            calibrate(**arguments, sketch_size=10, gamma=5.0)
    with pytest.raises(ValueError, match="Pass either epsilon and delta, or gamma and one of epsilon and delta"):
        calibrate(1.0, sketch_size=10)
    with pytest.raises(ValueError, match="scale must be one of 'none'"):
        calibrate(1.0, sketch_size=10, gamma=5.0, scale="private")


def test_a_budget_that_cannot_be_met_says_what_can():
    with pytest.raises(ValueError, match=r"the smallest epsilon is 1\.85e-09; .* the largest sketch_size is 6595"):
        calibrate(1e-10, 1e-12, sketch_size=10**6)
    with pytest.raises(ValueError, match="no sketch_size meets"):
        calibrate(1e-14, 1e-30, sketch_size=3)
    with pytest.raises(ValueError, match=r"the smallest epsilon is 5\.5e-12; no sketch_size meets"):
        calibrate(1e-12, 1e-6, sketch_size=1, scale="private", analysis="paper")
    with pytest.raises(ValueError, match="delta must be at least 1e-140"):
        calibrate(0.1, 1e-200, sketch_size=10, scale="private")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be a finite number > 0, got 0.0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be a finite number > 0, got inf"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be a real number, got nan"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number, got '1' of type str"),
        ({"epsilon": [1.0]}, TypeError, "epsilon must be a real number"),
        ({"delta": 0.0}, ValueError, r"delta must lie in \(0, 1\), got 0.0"),
        ({"delta": 1.0}, ValueError, r"delta must lie in \(0, 1\), got 1.0"),
        ({"sketch_size": 0}, ValueError, "sketch_size must be an integer ≥ 1, got 0"),
        ({"sketch_size": 2.0}, TypeError, "sketch_size must be an integer ≥ 1, got 2.0 of type float"),
        ({"sketch_size": 2**40 + 1}, ValueError, r"sketch_size must be at most 2\*\*40, got 1099511627777"),
        ({"scale": "public"}, ValueError, "scale must be one of 'none', 'private'"),
        ({"analysis": "tcdp"}, ValueError, "analysis must be one of 'exact', 'renyi', 'paper'"),
        ({"analysis": "paper"}, ValueError, "'paper' requires scale='private'"),
        ({"neighbours": "replace-one", "scale": "private"}, ValueError, "requires scale='none'"),
    ],
)
def test_bad_input(arguments, error, words):
    good = {"epsilon": 1.0, "delta": 1e-6, "sketch_size": 10}
    with pytest.raises(error, match=words):
        calibrate(**{**good, **arguments})
