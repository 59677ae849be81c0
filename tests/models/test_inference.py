"""Wald inference on the columns that a release identifies: the rule, the covariance, one distribution behind all."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gaussmix as gm
from example_problems import binomial_in, draw, draw_in_metric, gram, problem
from example_tables import SCHEMA, patients
from gaussmix.models.hypotheses import JointTest
from gaussmix.models.inference import SIGNAL, identified_columns, least_squares, on_columns, score_covariance
from gaussmix.models.results import summarise
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

METRIC = np.linalg.qr(np.random.default_rng(7).standard_normal((6, 6)))[0] * np.geomspace(0.5, 1.5, 6)


def strong_gram():
    """Five correlated columns, all of them strong, and a response."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((8, 5)) * 30
    theta = np.array([0.5, -0.3, 0.2, 1.0, -1.0])
    G_xx = A.T @ A
    y = G_xx @ theta
    return np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + 500.0]])]]), theta


# -- the covariance --------------------------------------------------------------------------------------------------
def whitened(draws, factor=1.0):
    """Mean of zᵀz/d over releases, z the errors of θ̂ divided by a root of the stated covariance times ``factor``."""
    G, theta = strong_gram()
    rng, found = np.random.default_rng(1), []
    for _ in range(draws):
        fit = least_squares(NoisyMoment(G + METRIC @ goe(6, rng) @ METRIC.T, METRIC @ METRIC.T), intercept=False)
        assert len(fit.kept) == 5
        root = np.linalg.cholesky(factor * fit.noise)
        found.append(np.linalg.solve(root, fit.theta - theta))
    return np.array(found)


def test_the_covariance_is_that_of_simulated_releases():
    """Means of squares of 5 × 4,000 whitened errors are 1 ± 0.01: 5.5 standard errors are a false alarm of 4e-8.

    A covariance that is 10 % off is 10 standard errors away.
    """
    z, bound = whitened(4000), 5.5 * math.sqrt(2 / 20_000)
    assert abs(np.mean(z**2) - 1) < bound
    assert np.abs(z.T @ z / len(z) - np.eye(5)).max() < 6 * math.sqrt(2 / len(z))
    for factor in (0.9, 1.1):
        assert abs(np.mean(whitened(4000, factor) ** 2) - 1) > bound


def test_it_is_the_formula_of_the_docstring():
    G, _ = strong_gram()
    noisy = NoisyMoment(G + METRIC @ goe(6, np.random.default_rng(2)) @ METRIC.T, METRIC @ METRIC.T)
    fit, M, N = least_squares(noisy, intercept=False), noisy.moment, noisy.shape
    theta = np.linalg.solve(M[:5, :5], M[:5, 5])
    a = np.append(-theta, 1.0)
    V = N[:5, :5] * (a @ N @ a) + np.outer((N @ a)[:5], (N @ a)[:5])
    inverse = np.linalg.inv(M[:5, :5])
    assert fit.theta == pytest.approx(theta)
    assert fit.noise == pytest.approx(inverse @ V @ inverse)
    assert score_covariance(noisy, theta) == pytest.approx(V)
    sampled = least_squares(noisy, intercept=False, n_rows=900.0)
    residual = a @ M @ a + np.sum(M[:5, :5] * fit.noise)
    assert sampled.sampling == pytest.approx(residual / (900 - 5) * inverse)
    assert (sampled.residual, sampled.risk) == pytest.approx((residual, 2 * residual - a @ M @ a))


def test_a_bound_on_the_clipping_bias_makes_the_standard_error_a_root_mean_square():
    G, _ = strong_gram()
    noisy = NoisyMoment(G, METRIC @ METRIC.T)
    for bias in (0.0, 0.5, 3.0):
        biased = replace(noisy, clipping_bias=bias)
        assert least_squares(biased, intercept=False).noise == pytest.approx(
            (1 + bias**2) * least_squares(noisy, intercept=False).noise
        )
        assert biased.mapped(np.eye(6)).clipping_bias == bias


def test_the_residual_has_no_bias_from_fitting():
    """Mean over releases against the table's own: aᵀMa alone would be ten standard errors too small."""
    G, theta = strong_gram()
    rng, plain, found = np.random.default_rng(3), [], []
    for _ in range(3000):
        noisy = NoisyMoment(G + METRIC @ goe(6, rng) @ METRIC.T, METRIC @ METRIC.T)
        fit = least_squares(noisy, intercept=False)
        found.append(fit.residual - float(np.append(-theta, 1.0) @ noisy.moment @ np.append(-theta, 1.0)))
        plain.append(fit.risk - fit.residual)
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found)) < 5 * error
    assert np.mean(plain) > 10 * error


# -- the columns -----------------------------------------------------------------------------------------------------
def test_columns_without_signal_are_left_out():
    signals = np.array([50.0, 3.2, 2.8, 10.0]) * math.sqrt(2)
    noisy = NoisyMoment(gram(signals, np.ones(4)), np.eye(5))
    assert identified_columns(noisy, intercept=False) == ([0, 1, 3], [2], pytest.approx(3.2))
    scaled = noisy.mapped(np.diag([1e3, 1e-4, 7.0, 1e6, 1.0]))
    assert identified_columns(scaled, intercept=False)[:2] == ([0, 1, 3], [2])


def test_of_a_collinear_pair_one_is_left_out_and_never_the_intercept():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 400)
    for first in (np.ones(400), x):
        A = np.column_stack([first, x, first + 0.01 * rng.uniform(-1, 1, 400), rng.uniform(-1, 1, 400)])
        noisy = NoisyMoment(A.T @ A, 3.0 * np.eye(4))
        kept, left_out, signal = identified_columns(noisy, intercept=True)
        assert 0 in kept
        assert left_out
        assert signal >= SIGNAL


def test_an_intercept_alone_without_signal_is_not_identified():
    noisy = NoisyMoment(np.array([[3.0, 1.0], [1.0, 2.0]]), np.eye(2))
    assert identified_columns(noisy, intercept=True)[:2] == ([], [0])
    summary = summarise(problem(noisy, names=("(intercept)",)))
    assert math.isnan(summary.params["(intercept)"])
    assert "No coefficient is identified at this budget." in str(summary).splitlines()[0]


def test_a_term_is_left_out_with_a_part_of_it():
    """Coefficients of powers in original units are sums of those of Legendre polynomials."""
    noisy = NoisyMoment(gram([900.0, 2.0, 900.0], np.ones(3)), np.eye(4))
    needs = np.eye(3, dtype=bool)
    needs[2, 1] = True  # the square needs the number
    assert identified_columns(noisy, intercept=True, needs=needs)[:2] == ([0], [1, 2])
    assert identified_columns(noisy, intercept=True)[:2] == ([0, 2], [1])


def test_without_noise_only_what_is_collinear_is_left_out():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0, 1, (2, 500))
    table = {"x": x, "z": z, "both": (x + z) / 2, "y": x - z / 2 + 0.5}
    release = gm.release(table, schema={name: [0, 2] for name in table}, epsilon=math.inf, delta=1e-6)
    summary = release.ols("y").summary()
    lost = [name for name, value in summary.params.items() if math.isnan(value)]
    assert len(lost) == 1
    assert list(summary.left_out) == lost
    assert release.ols("y").predict(table) == pytest.approx(table["y"], abs=1e-4)
    assert list(release.ols("y", ["x", "z"]).params.values()) == pytest.approx([0.5, 1.0, -0.5], abs=1e-4)
    assert release.ols("y", ["x", "z"]).pvalues["x"] == 0


def test_coefficients_are_those_of_the_columns_kept():
    """The estimand: least squares without the column left out, in the same table; nothing is assumed about it."""
    rng, n = np.random.default_rng(1), 400
    A = np.column_stack([np.ones(n), rng.uniform(-1, 1, n), (np.arange(n) < 4) * 1.0])
    y = A @ np.array([0.2, 0.5, 5.0]) + 0.1 * rng.standard_normal(n)
    rows = np.column_stack([A, y])
    truth = np.linalg.lstsq(A[:, :2], y, rcond=None)[0]
    hits, trials = np.zeros(2, dtype=int), 400
    for _ in range(trials):
        own = problem(
            NoisyMoment(rows.T @ rows + 4.0 * goe(4, rng), 4.0 * np.eye(4)), names=("(intercept)", "x", "rare")
        )
        summary = summarise(own)
        if not math.isnan(summary.params["rare"]):
            continue
        ends = np.array(list(summary.conf_int().values()))[:2]
        hits += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert all(binomial_in(int(count), trials, 0.93, 0.97) for count in hits)


# -- one distribution ------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 5),
    noise=st.sampled_from([0.1, 1.0, 5.0]),
    rows=st.sampled_from([None, 300]),
    alpha=st.floats(1e-6, 0.99),
)
def test_p_values_standard_errors_and_intervals_agree(seed, d, noise, rows, alpha):
    rng = np.random.default_rng(seed)
    G = gram(rng.exponential(10.0, d) ** 2, rng.uniform(-1, 1, d), 5.0)
    own = draw(G, noise, rng, to_user=np.diag(rng.uniform(0.1, 10, d)), offset=rng.normal(0, 1, d))
    options = {} if rows is None else {"estimand": "population", "n_rows": rows}
    summary = summarise(own, **options)
    z = -math.sqrt(2) * _erfcinv(alpha)
    for i, (name, (low, high)) in enumerate(summary.conf_int(alpha).items()):
        value, error = summary.params[name], summary.bse[name]
        if math.isnan(value):
            assert math.isnan(error)
            assert math.isnan(summary.pvalues[name])
            assert math.isnan(low)
            assert math.isnan(high)
            assert name in summary.left_out
            continue
        assert (high - low) / 2 == pytest.approx(abs(z) * error, rel=1e-9)
        assert (high + low) / 2 == pytest.approx(value, abs=1e-9 * max(abs(value), error))
        if min(abs(low), abs(high)) > 1e-9 * (high - low):  # not a tie, to rounding
            assert (summary.pvalues[name] < alpha) == (not low <= 0 <= high)
        test = summary.t_test(f"{name} = 0")
        assert (test.effect[0], test.sd[0], test.pvalue[0]) == (value, error, summary.pvalues[name])
        assert test.conf_int(alpha)[0] == pytest.approx((low, high))
        assert summary.wald_test(name).pvalue == pytest.approx(summary.pvalues[name], abs=1e-12)
        assert summary.tvalues[name] == pytest.approx(value / error)
        assert math.sqrt(summary.cov_params()[name][name]) == pytest.approx(error)
        assert summary.t_test(np.eye(d)[i]).pvalue == summary.t_test(name).pvalue


def _erfcinv(alpha):
    from scipy.special import erfcinv

    return float(erfcinv(alpha))


@pytest.mark.slow
def test_no_effect_is_rejected_as_often_as_said():
    rng = np.random.default_rng(0)
    G, trials = gram([40.0, 60.0, 30.0], np.array([0.0, 1.0, -1.0])), 1500
    rejected = sum(summarise(draw(G, 1.0, rng)).pvalues["x0"] < 0.05 for _ in range(trials))
    assert binomial_in(rejected, trials, 0.03, 0.06)


@pytest.mark.slow
def test_no_joint_effect_is_rejected_as_often_as_said():
    """Two coefficients at once against two degrees of freedom; one degree, or three, would be seen."""
    from scipy import stats

    rng, trials = np.random.default_rng(1), 2500
    G = gram([60.0, 90.0, 30.0], np.array([0.0, 0.0, -1.0]))
    found = [summarise(draw(G, 0.3, rng)).f_test(["x0", "x1"]) for _ in range(trials)]
    assert binomial_in(sum(test.pvalue < 0.05 for test in found), trials, 0.04, 0.06)
    for wrong in (1, 3):
        other = sum(stats.chi2.sf(2 * test.statistic, wrong) < 0.05 for test in found)
        assert not binomial_in(other, trials, 0.04, 0.06)


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_populations_are_covered_with_declared_or_noisy_rows(declared):
    """Tables drawn again with every release; the row count from the intercept's own noisy entry."""
    rng, trials, n = np.random.default_rng(4), 300, 400
    truth, hits, table_hits = np.array([0.2, 0.5, -0.3]), 0, 0
    for _ in range(trials):
        X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
        A = np.column_stack([X, X @ truth + rng.normal(0, 0.7, n)])
        p = draw_in_metric(A.T @ A, 0.8 * np.eye(4), rng, nobs=0.0, nobs_se=0.9)
        p = replace(p, nobs=float(p.noisy.moment[0, 0]))
        low, high = summarise(p, estimand="population", n_rows=n if declared else None).conf_int()["x1"]
        hits += bool(low <= truth[1] <= high)
        low, high = summarise(p).conf_int()["x1"]
        table_hits += bool(low <= truth[1] <= high)
    assert binomial_in(hits, trials, 0.94, 0.96)
    assert table_hits / trials < 0.7  # the table's own intervals have no sampling error


# -- predictions -----------------------------------------------------------------------------------------------------
def test_predictions_count_what_is_left_out_as_the_reference_level():
    rows = patients(6000)
    islands = np.where(np.arange(len(rows)) < 3, "island", rows["region"])
    schema = {**SCHEMA, "region": {"levels": ["north", "south", "west", "island"]}}
    release = gm.release(rows.assign(region=islands), schema=schema, epsilon=2.0, delta=1e-6, random_state=0)
    model = release.ols("cost")
    assert "counted with the reference level" in model.summary().left_out["region=island"]
    first = rows.iloc[[10]].assign(region="island")
    other = first.assign(region="north")
    assert model.predict(first) == pytest.approx(model.predict(other))
    params = {name: 0.0 if math.isnan(value) else value for name, value in model.params.items()}
    expected = params["(intercept)"] + sum(
        params[name] * float(first[name].iloc[0]) for name in ("age", "bmi", "smoker")
    )
    expected += params.get(f"sex={first['sex'].iloc[0]}", 0.0)
    assert model.predict(first) == pytest.approx([expected])
    assert model.get_prediction(first).predicted_mean == pytest.approx([expected])


def test_a_model_that_does_not_beat_the_mean_predicts_it_and_says_so():
    """Columns that are identified but have nothing to do with the response, whose noise is large."""
    rng, n = np.random.default_rng(0), 3000
    table = {f"x{i}": rng.uniform(-1, 1, n) for i in range(12)} | {"y": rng.uniform(-1, 1, n)}
    schema = {**{name: [-1, 1] for name in table}, "y": [-40, 40]}
    worse = 0
    for seed in range(5):
        model = gm.release(table, schema=schema, epsilon=1.0, delta=1e-6, passes=1, random_state=seed).ols("y")
        if not model.summary().noise_dominates:
            continue
        worse += 1
        assert (
            str(model.summary())
            .splitlines()[1]
            .startswith("At this budget, this model predicts no better than the mean")
        )
        with pytest.warns(UserWarning, match="predicts no better than the mean of the response"):
            found = model.predict(table)
        assert np.ptp(found) == pytest.approx(0.0, abs=1e-9)
        assert len(model.get_prediction(table).predicted_mean) == n
    assert worse >= 4
    good = gm.release(patients(3000), schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0).ols("cost")
    with warnings.catch_warnings(action="error"):
        assert np.ptp(good.predict(patients(100))) > 1


def test_a_nearly_perfect_model_beats_the_mean():
    """Noise makes the residual sum of squares negative in half of the releases: R² is 1, and sigma is not known."""
    rng, unknown = np.random.default_rng(0), 0
    for _ in range(40):
        summary = summarise(draw(gram([900.0, 600.0], np.array([0.5, 0.3]), 0.1), 2.0, rng, nobs=1000.0))
        assert not summary.noise_dominates
        unknown += math.isnan(summary.sigma)
        assert math.isnan(summary.sigma) == (summary.rsquared == 1)
        assert ("privacy noise dominates" in str(summary)) == math.isnan(summary.sigma)
    assert 5 < unknown < 35


def test_the_risk_decides_as_the_true_errors_of_predictions():
    """Where the estimated risk says so by a margin, predictions of θ̂ do beat the mean in the table, and the reverse."""
    rng, right, told = np.random.default_rng(5), 0, 0
    for trial in range(200):
        n, strength = 400, 0.8 * (trial % 2)
        A = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 6))])
        rows = np.column_stack([A, strength * A[:, 1] + rng.uniform(-1, 1, n)])
        G, noise = rows.T @ rows, 20.0
        noisy = NoisyMoment(G + noise * goe(8, rng), noise * np.eye(8))
        fit, mean = least_squares(noisy, intercept=True), on_columns(noisy, [0], [])
        truly = fit.a @ G @ fit.a - mean.a @ G @ mean.a
        if abs(fit.risk - mean.risk) > 10:
            told += 1
            right += (fit.risk > mean.risk) == (truly > 0)
    assert told > 60
    assert right > 0.8 * told


def test_coefficients_per_standard_deviation_are_those_of_standardised_columns():
    rng = np.random.default_rng(3)
    n = 40_000
    x, z = rng.normal(50, 12, n).clip(0, 100), rng.random(n) < 0.4
    table = {"x": x, "z": z, "y": (0.2 * x + 3 * z + rng.normal(0, 2, n)).clip(-10, 40)}
    private = gm.release(
        table, {"x": [0, 100], "z": "boolean", "y": [-10, 40]}, epsilon=3.0, delta=1e-6, random_state=0, topcode=None
    )
    one = private.ols("y").summary()
    own = one.per({"x": "sd"})
    (name,) = [name for name in own.params if name.startswith("x (per SD of ")]
    factor = own.params[name] / one.params["x"]
    assert factor == pytest.approx(x.std(), rel=0.02)
    assert own.bse[name] == pytest.approx(factor * one.bse["x"])
    assert own.t_test(f"{name} = 0").pvalue[0] == pytest.approx(own.pvalues[name])
    assert name in str(own)
    assert [*one.per({"x": 1000}).params] == ["(intercept)", "x (per 1,000)", "z"]
    for wrong in ({"z": 2}, {"(intercept)": 2}, {"nobody": 2}):
        with pytest.raises(gm.errors.ArgumentError, match="per must name coefficients of numeric columns"):
            one.per(wrong)
    with pytest.raises(gm.errors.ArgumentError, match="per must be a number > 0"):
        one.per({"x": -1})


def test_p_values_of_joint_tests_have_the_form_of_summaries():
    for p, words in ((0.0, "p < 1e-4"), (0.0123, "p = 0.0123"), (math.nan, "p = nan")):
        test = JointTest(("a = 0", "b = 0"), 4.25, 2, p)
        assert str(test) == f"a = 0, b = 0: statistic 4.25, 2 degrees of freedom, {words}"
