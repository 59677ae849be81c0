"""Intervals, tests and tables: exact where they can be, covering where they cannot, honest where nothing helps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.inference import NOT_IDENTIFIED, Problem, summarise
from gaussmix.sampling import factor, wishart_factor
from tables import SCHEMA, patients

FALSE_ALARM = 1e-6


def problem(W, sigma2, k, **changes):
    d = len(W) - 1
    values = {
        "W_xx": W[:d, :d],
        "w_xy": W[:d, d],
        "w_yy": float(W[d, d]),
        "response_noise": sigma2,
        "noise_variance": sigma2,
        "sketch_size": k,
        "names": tuple(f"x{i}" for i in range(d)),
        "to_user": np.eye(d),
        "offset": np.zeros(d),
        "groups": {},
        "total": 1.0,
        "response_name": "y",
    }
    return Problem(**{**values, **changes})


def gram(strengths, theta, residual=1.0):
    G_xx = np.diag(strengths)
    y = G_xx @ theta
    return np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + residual]])]])


def draw(G, sigma2, k, rng):
    R = wishart_factor(factor(G, sigma2), k, rng)
    return problem(R.T @ R / k, sigma2, k)


@pytest.fixture(scope="module")
def table():
    return patients(20_000)


@pytest.fixture(scope="module")
def ols(table):
    statsmodels = pytest.importorskip("statsmodels.api")
    import pandas as pd

    X = pd.get_dummies(table[["age", "bmi", "sex", "region", "smoker"]], drop_first=True).astype(float)
    X = X[["age", "bmi", "sex_m", "region_south", "region_west", "smoker"]]
    return statsmodels.OLS(table["cost"], statsmodels.add_constant(X)).fit()


def test_without_noise_it_is_statsmodels_ols(table, ols):
    release = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    summary = release.regress("cost").summary(target="population", n=len(table))
    assert summary.names == ("(intercept)", "age", "bmi", "sex=m", "region=south", "region=west", "smoker")
    assert summary.params == pytest.approx(ols.params.to_numpy(), rel=1e-4)
    assert summary.bse == pytest.approx(ols.bse.to_numpy(), rel=1e-4)
    assert summary.tvalues == pytest.approx(ols.tvalues.to_numpy(), rel=1e-2, abs=1e-2)
    assert summary.pvalues == pytest.approx(ols.pvalues.to_numpy(), abs=1e-3)
    assert summary.conf_int() == pytest.approx(ols.conf_int().to_numpy(), rel=2e-2, abs=1e-3)
    assert summary.r_squared == pytest.approx(ols.rsquared, abs=1e-4)
    assert summary.f_test("region") == pytest.approx(
        float(ols.f_test("region_south = region_west = 0").pvalue), abs=2e-3
    )
    exact = release.regress("cost").summary()
    assert np.all(exact.bse == 0)
    assert exact.conf_int() == pytest.approx(np.column_stack([exact.params] * 2))


def test_estimators_have_the_same_summary(table):
    X, y = table[["age", "bmi"]], table["cost"]
    declared = {"bounds_X": ([0, 10], [100, 50]), "bounds_y": (0, 20), "n_rows": len(table)}
    statsmodels = pytest.importorskip("statsmodels.api")
    ols = statsmodels.OLS(y, statsmodels.add_constant(X)).fit()
    plain = gm.LinearMixing(epsilon=math.inf, **declared).fit(X, y).summary(target="population")
    assert plain.params == pytest.approx(ols.params.to_numpy(), rel=1e-3)
    assert plain.bse == pytest.approx(ols.bse.to_numpy(), rel=1e-4)
    private = gm.LinearMixing(epsilon=1.0, random_state=0, **declared).fit(X, y)
    for target in ("ridge", "table", "population"):
        assert private.summary(target=target).names == ("(intercept)", "age", "bmi")
    low, high = private.summary().conf_int(1e-4)[1]
    assert low < ols.params["age"] < high
    with pytest.raises(ValueError, match="needs n="):
        gm.LinearMixing(epsilon=1.0, random_state=0, bounds_X=(0, 100), bounds_y=(0, 20)).fit(X, y).summary(
            target="population"
        )


def binomial_in(hits, trials, low, high):
    """Whether a coverage within [low, high] is compatible with so many hits."""
    return (
        stats.binomtest(hits, trials, low, alternative="less").pvalue > FALSE_ALARM
        and stats.binomtest(hits, trials, high, alternative="greater").pvalue > FALSE_ALARM
    )


@pytest.mark.parametrize("k", [20, 2000])
def test_ridge_intervals_are_exact(k):
    rng = np.random.default_rng(k)
    theta, sigma2, trials = np.array([0.5, -1.0, 0.2]), 2.0, 1500
    G = gram([5.0, 1.0, 0.1], theta)
    ridge = np.linalg.solve(G[:3, :3] + sigma2 * np.eye(3), G[:3, 3])
    hits = 0
    for _ in range(trials):
        low, high = summarise(draw(G, sigma2, k, rng), target="ridge").conf_int().T
        hits += bool(low[0] <= ridge[0] <= high[0])
    assert binomial_in(hits, trials, 0.95, 0.95)
    assert not binomial_in(int(0.90 * trials), trials, 0.95, 0.95)  # 90 % would be seen


@pytest.mark.parametrize(("d", "strength", "theta", "k"), [(1, 0.05, 5.0, 60), (3, 0.1, 5.0, 350), (6, 0.3, 20.0, 350)])
def test_score_intervals_cover_where_wald_fails(d, strength, theta, k):
    """A weak direction with a large coefficient along it."""
    rng = np.random.default_rng(d)
    truth = np.concatenate([[theta], np.full(d - 1, 0.5)])
    G = gram(np.concatenate([[strength], np.full(d - 1, 5.0)]), truth)
    trials, hits, wald = 800, 0, 0
    for _ in range(trials):
        summary = summarise(draw(G, 1.0, k, rng), target="table", pvalues=False)
        hits += summary._score.profile({0: theta})[0] <= stats.chi2.isf(0.05, 1)
        wald += abs(summary.params[0] - theta) <= 1.96 * summary.bse[0]
    assert binomial_in(hits, trials, 0.92, 0.97)
    if d == 1:
        assert wald / trials < 0.7


def test_interval_ends_are_where_the_test_turns():
    p = draw(gram([30.0, 10.0], np.array([0.5, -1.0])), 1.0, 400, np.random.default_rng(0))
    summary = summarise(p)
    for alpha in (0.05, 0.3):
        for i, ends in enumerate(summary.conf_int(alpha)):
            assert ends[0] < summary.params[i] < ends[1]
            for end in ends:
                value = summary._score.profile({i: end})[0]
                assert stats.chi2.sf(value, 1) == pytest.approx(alpha, rel=1e-3)
    wide, narrow = summary.conf_int(0.01), summary.conf_int(0.3)
    assert np.all((wide[:, 0] < narrow[:, 0]) & (narrow[:, 1] < wide[:, 1]))


def test_strong_directions_give_wald_intervals():
    p = draw(gram([3000.0, 1000.0], np.array([0.5, -1.0]), 100.0), 1.0, 10_000, np.random.default_rng(0))
    summary = summarise(p)
    half = 1.96 * summary.bse
    assert summary.conf_int() == pytest.approx(
        np.column_stack([summary.params - half, summary.params + half]), rel=1e-2
    )
    assert summary.strength > 12


def test_profile_is_the_least_over_the_others():
    """Against a dense search over the other coefficient."""
    p = draw(gram([2.0, 0.5], np.array([0.5, -1.0])), 1.0, 200, np.random.default_rng(3))
    score = summarise(p, pvalues=False)._score
    grid = np.sinh(np.linspace(-12, 12, 8001))  # fine near 0, and far out
    for b in (-1.0, 0.3, 2.0):
        brute = min(score.value(np.array([b, other]))[0] for other in grid)
        assert score.profile({0: b})[0] == pytest.approx(brute, rel=1e-3, abs=1e-3)


def test_an_unbounded_set_is_said_and_not_numbered():
    p = draw(gram([0.01, 50.0], np.array([1.0, 1.0])), 1.0, 100, np.random.default_rng(0))
    summary = summarise(p)
    assert not np.isfinite(summary.conf_int()[0]).any()
    line = next(line for line in str(summary).splitlines() if line.startswith("x0"))
    assert NOT_IDENTIFIED in line
    assert NOT_IDENTIFIED in summary.as_html()
    assert summary.strength < 3


def test_no_effect_is_rejected_as_often_as_said():
    rng = np.random.default_rng(0)
    G = gram([20.0, 30.0, 8.0], np.array([0.0, 1.0, -1.0]))
    trials = 1500
    rejected = sum(summarise(draw(G, 1.0, 500, rng)).pvalues[0] < 0.05 for _ in range(trials))
    assert binomial_in(rejected, trials, 0.04, 0.06)


@pytest.mark.parametrize("epsilon", [math.inf, 3.0])
def test_prediction_intervals_hold_new_rows(table, epsilon):
    release = gm.release(table, schema=SCHEMA, epsilon=epsilon, delta=1e-6, random_state=0)
    fresh = patients(5000, seed=1)
    low, high = release.regress("cost").prediction_interval(fresh, 0.1).T
    inside = np.mean((low <= fresh["cost"]) & (fresh["cost"] <= high))
    assert inside > 0.85  # residuals are uniform here, not normal
    if epsilon == math.inf:
        assert inside < 0.97
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=3.0, delta=1e-6).regress("cost")
    with pytest.raises(ValueError, match="needs a release with an intercept"):
        bare.prediction_interval(fresh)


def test_tables_in_three_formats(table):
    release = gm.release(table, schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)
    summary = release.regress("cost", on=["age", "region"]).summary()
    text = str(summary)
    assert "cost: table" in text
    assert "region=west" in text
    assert "100 %" in text
    assert summary.as_html().startswith("<table><caption>cost: table</caption>")
    latex = summary.as_latex()
    assert latex.startswith(r"\begin{tabular}{lrrrrrr}")
    assert r"100 \%" in latex
    assert summary.cov_params() == pytest.approx(summary.cov_params().T)
    assert np.sqrt(np.diagonal(summary.cov_params())) == pytest.approx(summary.bse)


def test_classification_says_what_its_intervals_are_for(table):
    release = gm.release(table, schema=SCHEMA, epsilon=5.0, delta=1e-6, random_state=0)
    summary = release.classify("smoker", on=["cost", "age"]).summary()
    low, high = summary.conf_int()[summary.names.index("cost")]
    assert 0 < low < high
    assert "smoker = True" in str(summary)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s, p: summarise(p, target="truth"), "target must be one of"),
        (lambda s, p: summarise(p, target="population"), "needs n="),
        (lambda s, p: s.conf_int(1.5), "alpha must lie in"),
        (lambda s, p: s.f_test("weight"), "is no coefficient of this model"),
    ],
)
def test_bad_questions(call, words):
    p = draw(gram([30.0, 10.0], np.array([0.5, -1.0])), 1.0, 400, np.random.default_rng(0))
    with pytest.raises(ValueError, match=words):
        call(summarise(p), p)
