"""The score test: it covers where Wald fails, its ends are where the test turns, and it says where nothing helps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from example_problems import binomial_in, draw, gram
from gaussmix.models.summary import summarise


@pytest.mark.parametrize(("d", "strength", "theta", "k"), [(1, 0.05, 5.0, 60), (3, 0.1, 5.0, 350), (6, 0.3, 20.0, 350)])
def test_score_intervals_cover_where_wald_fails(d, strength, theta, k):
    """A weak direction with a large coefficient along it."""
    rng = np.random.default_rng(d)
    truth = np.concatenate([[theta], np.full(d - 1, 0.5)])
    G = gram(np.concatenate([[strength], np.full(d - 1, 5.0)]), truth)
    trials, hits, wald = 800, 0, 0
    for _ in range(trials):
        summary = summarise(draw(G, 1.0, k, rng))
        hits += bool(summary._score.p(np.array([theta]), [0])[0] >= 0.05)
        wald += abs(summary.params["x0"] - theta) <= 1.96 * summary.bse["x0"]
    assert binomial_in(hits, trials, 0.92, 0.97)
    if d == 1:
        assert wald / trials < 0.7


def test_interval_ends_are_where_the_test_turns():
    summary = summarise(draw(gram([30.0, 10.0], np.array([0.5, -1.0])), 1.0, 400, np.random.default_rng(0)))
    for alpha in (0.05, 0.3):
        for name, ends in summary.conf_int(alpha).items():
            assert ends[0] < summary.params[name] < ends[1]
            for end in ends:
                assert summary.test(name, end) == pytest.approx(alpha, rel=1e-6)
    for wide, narrow in zip(summary.conf_int(0.01).values(), summary.conf_int(0.3).values(), strict=True):
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_strong_directions_give_wald_intervals():
    p = draw(gram([3000.0, 1000.0], np.array([0.5, -1.0]), 100.0), 1.0, 10_000, np.random.default_rng(0))
    summary = summarise(p)
    for name, interval in summary.conf_int().items():
        half = 1.96 * summary.bse[name]
        assert interval == pytest.approx((summary.params[name] - half, summary.params[name] + half), rel=1e-2)
    assert summary.strength > 12


def test_an_unbounded_set_is_said_and_not_numbered():
    summary = summarise(draw(gram([0.01, 50.0], np.array([1.0, 1.0])), 1.0, 100, np.random.default_rng(0)))
    assert not np.isfinite(summary.conf_int()["x0"]).any()
    assert summary.strength < 3


def test_no_effect_is_rejected_as_often_as_said():
    rng = np.random.default_rng(0)
    G = gram([20.0, 30.0, 8.0], np.array([0.0, 1.0, -1.0]))
    trials = 1500
    rejected = sum(summarise(draw(G, 1.0, 500, rng)).pvalues["x0"] < 0.05 for _ in range(trials))
    assert binomial_in(rejected, trials, 0.04, 0.06)


def test_no_joint_effect_is_rejected_as_often_as_said():
    """Two coefficients at once against two degrees of freedom; one degree, or three, would be seen."""
    rng = np.random.default_rng(1)
    G = gram([20.0, 30.0, 8.0], np.array([0.0, 0.0, -1.0]))
    trials, found = 1500, []
    for _ in range(trials):
        summary = summarise(draw(G, 1.0, 500, rng))
        found.append(summary.f_test(["x0", "x1"]))
    rejected = sum(p < 0.05 for p in found)
    assert binomial_in(rejected, trials, 0.04, 0.06)
    for wrong in (1, 3):
        other = sum(stats.chi2.sf(stats.chi2.isf(p, 2), wrong) < 0.05 for p in found)
        assert not binomial_in(other, trials, 0.04, 0.06)
