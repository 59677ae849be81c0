"""Bounds of an audit: true with the stated confidence, near the truth with many runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from audit.bounds import epsilon_shown, lower_bounds
from audit.running import attack
from gaussmix.accounting import gaussian_epsilon, gaussian_mu


def ratios(mu: float, runs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood ratios of a Gaussian mechanism, with the row and without it."""
    present, absent = rng.standard_normal((2, runs, 1))
    return mu * mu / 2 + mu * present, -mu * mu / 2 + mu * absent


def test_limits_are_those_of_clopper_and_pearson():
    (shown,) = epsilon_shown(np.array([40.0]), np.array([10.0]), 100, delta=0.01, failing=0.025)
    power = stats.binomtest(40, 100).proportion_ci(0.95).low
    alarm = stats.binomtest(10, 100).proportion_ci(0.95).high
    assert shown == pytest.approx(math.log((power - 0.01) / alarm))


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (0, 100), (100, 100), (1, 0)])
def test_nothing_is_shown_by_nothing(hits, alarms):
    (shown,) = epsilon_shown(np.array([hits]), np.array([alarms]), 100, delta=0.1, failing=0.025)
    assert shown == 0


def test_all_and_none_show_the_most():
    (shown,) = epsilon_shown(np.array([100]), np.array([0]), 100, delta=0.1, failing=0.025)
    assert shown == pytest.approx(math.log((0.025**0.01 - 0.1) / (1 - 0.025**0.01)))


def test_bounds_are_true_and_near():
    """A mechanism that uses all of (1, 0.01): of 100 audits at most 5 % are beyond the truth; 0.75 of it is shown."""
    mu, deltas = gaussian_mu(1.0, 0.01), [0.01, 0.1]
    truth = [gaussian_epsilon(delta, mu=mu) for delta in deltas]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        present, absent = ratios(mu, 20_000, rng)
        halves = (present[:10_000], absent[:10_000]), (present[10_000:], absent[10_000:])
        found.append(lower_bounds(*halves, deltas, confidence=0.95))
    shown = np.array(found)
    assert np.sum((shown > truth).any(axis=1)) <= 9  # 5 expected at most; P(≥ 10) is 0.03 even if all of that is used
    assert shown[:, 0].mean() > 0.75


def test_a_row_is_accused_of_being_absent_too():
    """A mechanism that is private one way only: a column that is never 1 without the row."""
    rng = np.random.default_rng(0)
    flips = (rng.random((4_000, 1)) < 0.3).astype(float)
    zeros = np.zeros((4_000, 1))
    assert lower_bounds((flips, zeros), (flips, zeros), [1e-3], confidence=0.95)[0] > 3
    assert lower_bounds((zeros, flips), (zeros, flips), [1e-3], confidence=0.95)[0] > 3


def test_few_runs_choose_the_first_score_and_a_threshold_in_the_middle():
    """Two columns that tell all of twelve runs that are learnt from; the second tells nothing of those that follow."""
    rng = np.random.default_rng(0)
    learnt = np.full((12, 2), 1.0), np.full((12, 2), -1.0)
    tested = [np.column_stack([column, rng.permutation(column)]) for column in np.array([[0.1], [-0.1]]) * np.ones(12)]
    tested[0][:, 1] = tested[1][:, 1]
    (shown,) = lower_bounds(learnt, tuple(tested), [0.2], confidence=0.95)
    assert shown == pytest.approx(epsilon_shown(np.array([12]), np.array([0]), 12, delta=0.2, failing=0.0125)[0])


def test_a_classifier_finds_what_no_column_shows():
    """Two coins that agree where the row is there."""
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, (4_000, 1))
    present, absent = np.column_stack([coins, coins]), rng.integers(0, 2, (4_000, 2))
    assert attack(present.astype(float), absent.astype(float), [1e-3], confidence=0.95)[0] > 0.5


def test_equal_laws_show_nothing():
    rng = np.random.default_rng(0)
    shown = [attack(*rng.standard_normal((2, 1_000, 3)), [1e-3], confidence=0.95)[0] for _ in range(5)]
    assert max(shown) < 0.2
