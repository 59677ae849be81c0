"""The score test: it covers where Wald fails, weak columns do not hide the rest, p-values and intervals agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from example_problems import binomial_in, draw, draw_in_metric, gram
from gaussmix.models.inference import score_covariance, score_of
from gaussmix.models.results import summarise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "strength", "theta", "noise"), [(1, 0.05, 5.0, 0.13), (3, 0.1, 5.0, 0.05), (6, 0.3, 20.0, 0.05)]
)
def test_score_intervals_cover_where_wald_fails(d, strength, theta, noise):
    """A weak direction with a large coefficient along it."""
    rng = np.random.default_rng(d)
    truth = np.concatenate([[theta], np.full(d - 1, 0.5)])
    G = gram(np.concatenate([[strength], np.full(d - 1, 5.0)]), truth)
    trials, hits, wald = 800, 0, 0
    for _ in range(trials):
        summary = summarise(draw(G, noise, rng))
        hits += bool(summary._score.p(np.array([theta]), [0])[0] >= 0.05)
        wald += abs(summary.params["x0"] - theta) <= 1.96 * summary.bse["x0"]
    assert binomial_in(hits, trials, 0.92, 0.97)
    if d == 1:
        assert wald / trials < 0.7


def test_interval_ends_are_where_the_test_turns():
    summary = summarise(draw(gram([30.0, 10.0], np.array([0.5, -1.0])), 0.5, np.random.default_rng(0)))
    for alpha in (0.05, 0.3):
        for name, ends in summary.conf_int(alpha).items():
            assert ends[0] < summary.params[name] < ends[1]
            for end in ends:
                assert summary.test(name, end) == pytest.approx(alpha, rel=1e-6)
    for wide, narrow in zip(summary.conf_int(0.01).values(), summary.conf_int(0.3).values(), strict=True):
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_strong_directions_give_wald_intervals():
    p = draw(gram([3000.0, 1000.0], np.array([0.5, -1.0]), 100.0), 10.0, np.random.default_rng(0))
    summary = summarise(p)
    for name, interval in summary.conf_int().items():
        half = 1.96 * summary.bse[name]
        assert interval == pytest.approx((summary.params[name] - half, summary.params[name] + half), rel=1e-2)
    assert summary.signal_to_noise > 12


def test_an_unbounded_set_is_said_and_not_numbered():
    summary = summarise(draw(gram([0.01, 50.0], np.array([1.0, 1.0])), 0.1, np.random.default_rng(0)))
    assert not np.isfinite(summary.conf_int()["x0"]).any()
    assert summary.signal_to_noise < 3


@pytest.mark.slow
def test_no_effect_is_rejected_as_often_as_said():
    rng = np.random.default_rng(0)
    G = gram([20.0, 30.0, 8.0], np.array([0.0, 1.0, -1.0]))
    trials = 1500
    rejected = sum(summarise(draw(G, 1.0, rng)).pvalues["x0"] < 0.05 for _ in range(trials))
    assert binomial_in(rejected, trials, 0.04, 0.06)


@pytest.mark.slow
def test_no_joint_effect_is_rejected_as_often_as_said():
    """Two coefficients at once against two degrees of freedom; one degree, or three, would be seen."""
    rng = np.random.default_rng(1)
    G = gram([20.0, 30.0, 8.0], np.array([0.0, 0.0, -1.0]))
    trials, found = 2500, []
    for _ in range(trials):
        summary = summarise(draw(G, 0.3, rng))
        found.append(summary.f_test(["x0", "x1"]))
    rejected = sum(p < 0.05 for p in found)
    assert binomial_in(rejected, trials, 0.04, 0.06)
    for wrong in (1, 3):
        other = sum(stats.chi2.sf(stats.chi2.isf(p, 2), wrong) < 0.05 for p in found)
        assert not binomial_in(other, trials, 0.04, 0.06)


METRIC = np.linalg.qr(np.random.default_rng(7).standard_normal((6, 6)))[0] * np.geomspace(0.5, 1.5, 6)
STRENGTHS = np.sqrt([60.0, 50.0, 40.0, 2.0, 0.0])
CORRELATED = (0.3 + 0.7 * np.eye(5)) * np.outer(STRENGTHS, STRENGTHS)


def two_weak(theta):
    """Three strong columns, one of two standard deviations of noise, one without a row."""
    y = CORRELATED @ theta
    return np.block([[CORRELATED, y[:, None]], [y[None], np.array([[theta @ y + 30.0]])]])


@pytest.mark.slow
@pytest.mark.parametrize("B", [np.eye(6), METRIC], ids=["isotropic", "metric"])
@pytest.mark.parametrize("at", [0.5, 1.0])
def test_weak_columns_do_not_hide_the_rest(B, at):
    """Their coefficients at the bound: strong ones keep finite intervals that cover, weak ones are said to be weak."""
    theta = np.array([0.5, -0.3, 0.2, at, -at])
    rng, trials = np.random.default_rng(int(10 * at)), 250
    hits, ends = np.zeros(5, dtype=int), np.zeros(5, dtype=int)
    for _ in range(trials):
        summary = summarise(draw_in_metric(two_weak(theta), B, rng, reach=np.ones(5)), max_effect=1.0)
        intervals = np.array(list(summary.conf_int().values()))
        hits += (intervals[:, 0] <= theta) & (theta <= intervals[:, 1])
        ends += np.isfinite(intervals).all(axis=1)
    assert all(binomial_in(int(count), trials, 0.95, 1.0) for count in hits)
    assert np.all(ends[:3] == trials)
    assert np.all(ends[3:] < 0.6 * trials)


def test_without_the_bound_they_do_hide_the_rest():
    """Proof of power: hardly a bound, hardly a finite interval of use."""
    theta = np.array([0.5, -0.3, 0.2, 1.0, -1.0])
    problem = draw_in_metric(two_weak(theta), np.eye(6), np.random.default_rng(0), reach=np.ones(5))
    lengths = [np.ptp(summarise(problem, max_effect=bound).conf_int()["x0"]) for bound in (0.5, 1.0, 1e3)]
    assert lengths[0] < lengths[1] < 1 < 50 < lengths[2]
    assert all(summarise(problem, max_effect=1.0).bound_dependent.values())


def test_standard_errors_do_not_take_the_estimate_of_what_is_not_identified():
    """By dense algebra; at the estimates of all, cut to the bounds, they would be larger in most releases."""
    truth, rng, larger = np.array([0.5, -0.3, 0.2, 0.1, 0.1]), np.random.default_rng(5), 0
    for _ in range(30):
        score = score_of(draw_in_metric(two_weak(truth), METRIC, rng, reach=np.ones(5)), None, 5.0)
        ends = np.isfinite(score.intervals(0.05)).all(axis=1)
        w, found = score.weights.columns / score.slope, score.covariance()[0]
        estimates = score.estimate / 5
        theta = np.clip(np.where(ends, estimates, score.pilot.theta), -1, 1)
        assert found == pytest.approx(w.T @ score_covariance(score.noisy, theta) @ w)
        other = w.T @ score_covariance(score.noisy, np.clip(estimates, -1, 1)) @ w
        larger += bool(other[0, 0] > 1.2 * found[0, 0])
    assert larger >= 3


def test_the_variance_is_that_of_the_hypothesis():
    """The quadratic in ψ against the covariance of the score, averaged over the law of the rest, by dense algebra."""
    G, rng = gram([60.0, 30.0, 3.0], np.array([0.5, -0.4, 0.2])), np.random.default_rng(1)
    functionals = np.array([[2.0, -1.0, 0.3], [0.0, 0.5, 0.0], [0.0, 0.0, 3.0]])
    options = {"to_user": functionals, "offset": np.array([1.0, 0.0, 0.0]), "reach": np.array([1.0, 2.0, 0.5])}
    score = score_of(draw_in_metric(G, METRIC[:4, :4], rng, **options), 5000.0, 1.0)
    theta, w, known = score.pilot.theta, score.weights.columns, score.known
    for i, row in enumerate(score.functionals):
        P = score.pilot.basis @ np.diag(known.values[:, i]) @ score.pilot.basis.T
        keep = np.eye(3) - np.outer(known.moves[:, i], row)
        for t in (-2.0, 0.0, 0.7):
            V = score_covariance(score.noisy, theta + known.moves[:, i] * t, keep @ P @ keep.T)
            wanted = w[:, i] @ (V + score.pilot.sampling) @ w[:, i]
            constant, linear, square = (part[i] for part in score.variance)
            assert constant + linear * t + square * t**2 == pytest.approx(wanted)


@pytest.mark.slow
def test_p_values_are_below_a_level_exactly_where_intervals_leave_the_value_out():
    """Thousands of coefficients of releases from hopeless to strong, every level."""
    rng, compared, unbounded, excluded = np.random.default_rng(0), 0, 0, 0
    for trial in range(800):
        d = int(rng.integers(1, 5))
        G = gram(rng.exponential(10.0, d) ** 2 / 10, rng.uniform(-1, 1, d), 5.0)
        options = {"reach": rng.choice([0.5, 1.0, 10.0], d)}
        summary = summarise(draw(G, 1.0 if trial % 2 else 0.1, rng, **options))
        for alpha in (0.3, 0.05, 10 ** rng.uniform(-6, 0)):
            for name, (low, high) in summary.conf_int(alpha).items():
                compared += 1
                unbounded += not np.isfinite(low)
                if np.isfinite(low) and min(abs(low), abs(high)) < 1e-9 * (high - low):
                    continue  # a tie, to rounding
                outside = not low <= 0 <= high
                excluded += outside
                assert (summary.pvalues[name] < alpha) == outside
                value = rng.normal(0, 2)
                assert (summary.test(name, value) < alpha) == (not low <= value <= high)
    assert compared > 5000
    assert unbounded > 500
    assert excluded > 500


@pytest.mark.slow
def test_accepted_values_are_one_interval():
    """No piece of the set lies beyond the ends, on a grid far out."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        p = draw_in_metric(gram([20.0, 6.0, 3.0], np.array([0.5, -1.0, 1.0])), np.eye(4), rng, reach=np.ones(3))
        score = score_of(p, None, 1.0)
        for level in (0.05, 0.4):
            for i, (low, high) in enumerate(score.intervals(level)):
                if np.isfinite(low):
                    out = np.geomspace(1e-6, 1e6, 200) * (high - low)
                    assert np.all(score.p(np.concatenate([low - out, high + out]), [i] * 400) < level)


@pytest.mark.slow
def test_joint_tests_hold_where_others_are_weak():
    """At the bound, and conservative: rejected at most as often as said."""
    theta = np.array([0.0, 0.0, 0.2, 1.0, -1.0])
    rng, trials = np.random.default_rng(3), 250
    found = [
        summarise(draw_in_metric(two_weak(theta), METRIC, rng, reach=np.ones(5)), max_effect=1.0).f_test(["x0", "x1"])
        for _ in range(trials)
    ]
    assert binomial_in(sum(p >= 0.05 for p in found), trials, 0.95, 1.0)
    strong = two_weak(np.array([2.0, -2.0, 0.2, 1.0, -1.0]))
    assert (
        summarise(draw_in_metric(strong, METRIC, rng, reach=np.full(5, 2.0)), max_effect=1.0).f_test(["x0", "x1"])
        < 1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_populations_are_covered_with_declared_or_noisy_rows(declared):
    """Tables drawn again with every release; the row count from the intercept's own noisy entry."""
    rng, trials, n = np.random.default_rng(4), 300, 400
    truth, hits, table_hits = np.array([0.2, 0.5, -0.3]), 0, 0
    B = 0.8 * np.eye(4)
    for _ in range(trials):
        X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
        y = X @ truth + rng.normal(0, 0.7, n)
        A = np.column_stack([X, y])
        p = draw_in_metric(A.T @ A, B, rng, reach=np.ones(3), nobs=0.0, nobs_se=0.9)
        p = replace(p, nobs=float(p.noisy.moment[0, 0]))
        summary = summarise(p, estimand="population", n_rows=n if declared else None)
        low, high = summary.conf_int()["x1"]
        hits += bool(low <= truth[1] <= high)
        low, high = summarise(p).conf_int()["x1"]
        table_hits += bool(low <= truth[1] <= high)
    assert binomial_in(hits, trials, 0.94, 0.96)
    assert table_hits / trials < 0.7  # the table's own intervals know nothing of sampling
