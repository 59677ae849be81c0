"""Summaries: exact where they can be, equal to statsmodels without noise, labelled, within their ranges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from example_problems import draw, gram, problem
from example_tables import SCHEMA, patients
from gaussmix.models.results import summarise
from gaussmix.releases.noisy import NoisyMoment


@pytest.fixture(scope="module")
def table():
    return patients(20_000)


@pytest.fixture(scope="module")
def open_table(table):
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


@pytest.fixture(scope="module")
def ols(table):
    statsmodels = pytest.importorskip("statsmodels.api")
    import pandas as pd

    X = pd.get_dummies(table[["age", "bmi", "sex", "region", "smoker"]], drop_first=True).astype(float)
    X = X[["age", "bmi", "sex_m", "region_south", "region_west", "smoker"]]
    return statsmodels.OLS(table["cost"], statsmodels.add_constant(X)).fit()


def values(labelled):
    return np.array(list(labelled.values()))


@pytest.mark.slow
def test_without_noise_it_is_statsmodels_ols(open_table, table, ols):
    summary = open_table.ols("cost").summary(estimand="population", n_rows=len(table))
    names = ["(intercept)", "age", "bmi", "sex=m", "region=south", "region=west", "smoker"]
    for labelled in (summary.params, summary.bse, summary.pvalues, summary.noise_share, summary.conf_int()):
        assert list(labelled) == names
    assert values(summary.params) == pytest.approx(ols.params.to_numpy(), rel=1e-4)
    assert values(summary.bse) == pytest.approx(ols.bse.to_numpy(), rel=1e-4)
    assert values(summary.tvalues) == pytest.approx(ols.tvalues.to_numpy(), rel=1e-2, abs=1e-2)
    assert values(summary.pvalues) == pytest.approx(ols.pvalues.to_numpy(), abs=1e-3)
    assert values(summary.conf_int()) == pytest.approx(ols.conf_int().to_numpy(), rel=2e-2, abs=1e-3)
    assert summary.rsquared == pytest.approx(ols.rsquared, abs=1e-4)
    assert summary.nobs == pytest.approx(ols.nobs, rel=1e-6)
    theirs = ols.f_test("region_south = region_west = 0")
    assert summary.f_test("region").pvalue == pytest.approx(float(theirs.pvalue), abs=2e-3)
    assert summary.f_test("region").statistic == pytest.approx(float(theirs.statistic), rel=1e-2)
    both, own = ols.t_test("age - bmi = 0"), summary.t_test("age - bmi = 0")
    assert [own.effect[0], own.sd[0]] == pytest.approx([both.effect[0], both.sd[0, 0]], rel=1e-3)
    assert own.conf_int()[0] == pytest.approx(both.conf_int()[0], rel=1e-3)
    assert (summary.rsquared_adj, summary.scale) == pytest.approx((ols.rsquared_adj, ols.scale), rel=1e-4)
    assert summary.aic == pytest.approx(ols.aic, rel=1e-4)
    assert summary.cov_params()["age"]["bmi"] == pytest.approx(ols.cov_params().loc["age", "bmi"], rel=1e-3)
    exact = open_table.ols("cost").summary()
    assert np.all(values(exact.bse) == 0)
    assert values(exact.conf_int()) == pytest.approx(np.column_stack([values(exact.params)] * 2))


def test_estimators_have_the_same_summary(table):
    X, y = table[["age", "bmi"]], table["cost"]
    declared = {"bounds_X": ([0, 10], [100, 50]), "bounds_y": (0, 20), "n_rows": len(table)}
    statsmodels = pytest.importorskip("statsmodels.api")
    ols = statsmodels.OLS(y, statsmodels.add_constant(X)).fit()
    plain = gm.LinearRegression(epsilon=math.inf, **declared).fit(X, y).summary(estimand="population")
    assert values(plain.params) == pytest.approx(ols.params.to_numpy(), rel=1e-3)
    assert values(plain.bse) == pytest.approx(ols.bse.to_numpy(), rel=1e-4)
    private = gm.LinearRegression(epsilon=1.0, random_state=0, **declared).fit(X, y)
    for estimand in ("table", "population"):
        assert list(private.summary(estimand=estimand).params) == ["(intercept)", "age", "bmi"]
    low, high = private.summary().conf_int(1e-4)["age"]
    assert low < ols.params["age"] < high
    undeclared = gm.LinearRegression(epsilon=1.0, random_state=0, **{**declared, "n_rows": None}).fit(X, y)
    shown, given = (model.summary(estimand="population").bse for model in (undeclared, private))
    assert values(shown) == pytest.approx(values(given), rel=0.02)  # the release's own noisy count will do


def test_covariance_and_standard_errors_agree(table):
    release = gm.release(table, schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)
    summary = release.ols("cost", predictors=["age", "region"]).summary()
    covariance = summary.cov_params()
    assert list(covariance) == list(summary.params)
    for name, row in covariance.items():
        assert list(row) == list(summary.params)
        assert row == pytest.approx({other: covariance[other][name] for other in row})
        assert np.sqrt(row[name]) == pytest.approx(summary.bse[name])
    assert values(summary.noise_share) == pytest.approx(1.0)  # of a table, noise is all there is
    population = release.ols("cost", predictors=["age", "region"]).summary(estimand="population", n_rows=len(table))
    share = values(population.noise_share)
    assert np.all((share > 0) & (share < 1))
    noise, both = (np.array([own.cov_params()[name][name] for name in own.params]) for own in (summary, population))
    assert share == pytest.approx(noise / both)
    frame = summary.cov_params().to_frame("arrow")
    assert frame.column_names == ["term", *summary.params]
    assert frame["age"].to_pylist() == [row["age"] for row in covariance.values()]


@pytest.mark.parametrize("column", ["age", "smoker", "region", "sex"])
def test_f_test_takes_columns_and_coefficients(table, column):
    summary = gm.release(table, schema=SCHEMA, epsilon=5.0, delta=1e-6, random_state=0).ols("cost").summary()
    own = [name for name in summary.params if name.partition("=")[0] == column]
    assert summary.f_test(column) == summary.f_test(own) == summary.f_test([column])
    wald = summary.wald_test(column)
    assert (wald.df, wald.statistic / wald.df) == (len(own), pytest.approx(summary.f_test(column).statistic))
    assert wald.hypotheses == tuple(f"{name} = 0" for name in own)
    if len(own) == 1:
        assert wald.pvalue == pytest.approx(summary.pvalues[own[0]], abs=1e-12)


# R² within [0, 1] --------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_rsquared_is_within_0_and_1_however_much_noise(table, seed):
    weak = gm.release(table.head(300), schema=SCHEMA, epsilon=0.05, delta=1e-6, random_state=seed)
    for target in ("cost", "age", "smoker"):
        summary = weak.ols(target, predictors=["bmi"]).summary()
        assert 0 <= summary.rsquared <= 1
        fit, mean = summary._fit, summary._mean
        assert summary.noise_dominates >= (mean.residual <= 0 or fit.residual > mean.residual)
        if summary.noise_dominates:
            assert "privacy noise dominates" in str(summary)


@pytest.mark.slow
def test_some_weak_releases_beat_the_mean_and_some_do_not(table):
    found = {
        gm.release(table.head(300), schema=SCHEMA, epsilon=0.3, delta=1e-6, random_state=seed)
        .ols("cost", predictors=["bmi"])
        .summary()
        .noise_dominates
        for seed in range(20)
    }
    assert found == {True, False}


@pytest.mark.parametrize("seed", range(30))
def test_without_noise_rounding_does_not_dominate(seed):
    """A column that repeats another one, or turns it round: R² is 1, and rounding may leave it above."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, 50).astype(float)
    table = {"x": x, "y": x if seed % 2 else 1 - x, "z": rng.uniform(0, 1, 50)}
    release = gm.release(table, schema={name: [0, 1] for name in "xyz"}, epsilon=math.inf, delta=1e-6)
    for on in (["x"], ["x", "z"]):
        summary = release.ols("y", predictors=on).summary()
        assert summary.rsquared == pytest.approx(1.0, abs=1e-9)
        assert not summary.noise_dominates


def test_a_response_without_variance_has_no_rsquared():
    noisy = NoisyMoment(gram([30.0], np.array([0.5]), -20.0), shape=np.eye(2))
    summary = summarise(problem(noisy))
    assert (summary.rsquared, summary.noise_dominates) == (0.0, True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s, p: summarise(p, estimand="truth"), "estimand must be one of"),
        (lambda s, p: summarise(p, estimand="population"), "n_rows, .* is required with .*no intercept"),
        (
            lambda s, p: summarise(replace(p, nobs=50.0, nobs_se=30.0), estimand="population"),
            "n_rows, .* is required with .*less than two standard errors",
        ),
        (lambda s, p: summarise(p, estimand="population", n_rows=0), "n_rows must be an integer ≥ 1"),
        (lambda s, p: s.conf_int(1.5), "alpha must lie in"),
        (lambda s, p: s.f_test("weight"), r"'weight' is not a valid hypothesis\. .* The coefficients are x0, x1"),
        (lambda s, p: s.t_test("x0 = weight"), "is not a valid hypothesis"),
        (lambda s, p: s.t_test("x0 ="), "is not a valid hypothesis"),
        (lambda s, p: s.t_test(np.eye(3)), "must be finite with 2 columns"),
    ],
)
def test_bad_questions(call, words):
    p = draw(gram([30.0, 10.0], np.array([0.5, -1.0])), 0.5, np.random.default_rng(0))
    with pytest.raises(ValueError, match=words):
        call(summarise(p), p)
