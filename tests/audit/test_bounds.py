"""Lower bounds on ε: true with the stated confidence, near the truth with many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from audit.bounds import epsilon_bound, holdout_bounds, lower_bounds
from gaussmix.accounting import gaussian_epsilon, gaussian_mu


def ratios(mu: float, runs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood ratios of a Gaussian mechanism, with the row present and absent."""
    present, absent = rng.standard_normal((2, runs, 1))
    return mu * mu / 2 + mu * present, -mu * mu / 2 + mu * absent


def test_limits_are_those_of_clopper_and_pearson():
    (bound,) = epsilon_bound(np.array([40.0]), np.array([10.0]), 100, delta=0.01, failure=0.025)
    power = stats.binomtest(40, 100).proportion_ci(0.95).low
    alarm = stats.binomtest(10, 100).proportion_ci(0.95).high
    assert bound == pytest.approx(math.log((power - 0.01) / alarm))


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (0, 100), (100, 100), (1, 0)])
def test_useless_tests_have_the_bound_zero(hits, alarms):
    (bound,) = epsilon_bound(np.array([hits]), np.array([alarms]), 100, delta=0.1, failure=0.025)
    assert bound == 0


def test_a_perfect_test_has_the_largest_bound():
    (bound,) = epsilon_bound(np.array([100]), np.array([0]), 100, delta=0.1, failure=0.025)
    assert bound == pytest.approx(math.log((0.025**0.01 - 0.1) / (1 - 0.025**0.01)))


@pytest.mark.slow
def test_bounds_are_valid_and_tight():
    """For a mechanism that spends all of (1, 0.01), bounds exceed the truth in 5 % of audits at most and reach 0.75."""
    mu, deltas = gaussian_mu(1.0, 0.01), [0.01, 0.1]
    truth = [gaussian_epsilon(delta, mu=mu) for delta in deltas]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        present, absent = ratios(mu, 20_000, rng)
        halves = (present[:10_000], absent[:10_000]), (present[10_000:], absent[10_000:])
        found.append(holdout_bounds(*halves, deltas, confidence=0.95))
    bounds = np.array(found)
    assert np.sum((bounds > truth).any(axis=1)) <= 9  # 5 expected at most; P(≥ 10) is 0.03 even if all of that is used
    assert bounds[:, 0].mean() > 0.75


def test_both_directions_are_tested():
    """A mechanism that is private in one direction only: the score is 0 whenever the row is absent."""
    rng = np.random.default_rng(0)
    flips = (rng.random((4_000, 1)) < 0.3).astype(float)
    zeros = np.zeros((4_000, 1))
    assert holdout_bounds((flips, zeros), (flips, zeros), [1e-3], confidence=0.95)[0] > 3
    assert holdout_bounds((zeros, flips), (zeros, flips), [1e-3], confidence=0.95)[0] > 3


def test_few_runs_select_the_first_score_and_a_threshold_in_the_middle():
    """Both scores separate the runs of the selection; the second is useless in the evaluation."""
    rng = np.random.default_rng(0)
    selection = np.full((12, 2), 1.0), np.full((12, 2), -1.0)
    evaluation = [
        np.column_stack([column, rng.permutation(column)]) for column in np.array([[0.1], [-0.1]]) * np.ones(12)
    ]
    evaluation[0][:, 1] = evaluation[1][:, 1]
    (bound,) = holdout_bounds(selection, tuple(evaluation), [0.2], confidence=0.95)
    assert bound == pytest.approx(epsilon_bound(np.array([12]), np.array([0]), 12, delta=0.2, failure=0.0125)[0])


def test_a_classifier_uses_scores_jointly():
    """Two random bits that agree if the row is present: each alone shows nothing."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (4_000, 1))
    present, absent = np.column_stack([bits, bits]), rng.integers(0, 2, (4_000, 2))
    assert lower_bounds(present.astype(float), absent.astype(float), [1e-3], confidence=0.95)[0] > 0.5


def test_equal_distributions_have_small_bounds():
    rng = np.random.default_rng(0)
    bounds = [lower_bounds(*rng.standard_normal((2, 1_000, 3)), [1e-3], confidence=0.95)[0] for _ in range(5)]
    assert max(bounds) < 0.2
