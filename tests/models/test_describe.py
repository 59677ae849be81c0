"""Descriptive tables of a release: the table's own numbers without noise to speak of, intervals that cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix import accounting
from gaussmix.data.schema import Schema
from gaussmix.models.descriptive import (
    analysis,
    cell_counts,
    describe,
    group_sums,
    independence,
    mean_and_deviation,
    row_count,
)
from gaussmix.models.inference import residuals
from gaussmix.releases import preconditioning
from gaussmix.releases.counts import Fitted
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import BINS, goe

TABLE = patients(20_000)


@pytest.fixture(scope="module", params=[4, 1])
def exact(request):
    """Releases with next to no noise."""
    return gm.release(TABLE, schema=SCHEMA, epsilon=20, delta=1e-6, passes=request.param, random_state=0)


@pytest.fixture(scope="module")
def noisy():
    return gm.release(TABLE, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)


def close(found, expected):
    assert_allclose(found, expected, rtol=2e-3)


def test_describe_is_that_of_the_table(exact):
    found = {(row["term"], row["statistic"]): row for row in exact.describe().rows()}
    assert next(iter(found)) == ("(rows)", "count")
    close(found["(rows)", "count"]["estimate"], 20_000)
    for name in ("age", "bmi", "cost"):
        close(found[name, "mean"]["estimate"], TABLE[name].mean())
        close(found[name, "std"]["estimate"], TABLE[name].std())
    close(found["smoker=true", "share"]["estimate"], TABLE["smoker"].mean())
    for level, share in TABLE["region"].value_counts(normalize=True).items():
        close(found[f"region={level}", "share"]["estimate"], share)
    for row in found.values():
        assert row["conf.low"] <= row["estimate"] <= row["conf.high"]
        assert row["conf.high"] - row["conf.low"] < 0.01 * row["estimate"]


def test_correlations_are_those_of_the_table(exact):
    found = exact.corr(["age", "bmi", "cost"])
    assert_allclose(found.values, TABLE[["age", "bmi", "cost"]].corr(), atol=2e-3)
    assert_allclose(np.diagonal(found.values), 1.0)
    partial = exact.corr(["age", "cost"], given=["smoker", "region"])
    features = pd.get_dummies(TABLE[["smoker", "region"]], columns=["region"]).to_numpy(float)
    left = TABLE[["age", "cost"]] - features @ np.linalg.lstsq(features, TABLE[["age", "cost"]], rcond=None)[0]
    assert_allclose(partial.values[0, 1], left.corr().iloc[0, 1], atol=2e-3)
    assert exact.corr().to_frame("pandas").shape == (9, 10)


def test_crosstab_is_that_of_the_table(exact):
    found = exact.crosstab("sex", "region")
    expected = pd.crosstab(TABLE["sex"], TABLE["region"])
    assert found.rows == ("f", "m")
    assert_allclose(found.estimates, expected, atol=20)
    shares, ends = found.shares("row")
    assert_allclose(shares, expected.div(expected.sum(axis=1), axis=0), atol=2e-3)
    assert (ends[..., 0] <= shares).all()
    assert (shares <= ends[..., 1]).all()
    assert_allclose(found.shares("column")[0].sum(axis=0), 1.0)
    pearson = stats.chi2_contingency(expected, correction=False)
    assert_allclose(found.independence.statistic, pearson.statistic, rtol=0.1, atol=0.3)
    assert found.independence.degrees == pearson.dof


def test_printed_cross_tables_hold_noisy_counts_rounded(exact):
    found = replace(exact.crosstab("sex", "smoker"), estimates=np.array([[-3.4, 1200.6], [-0.2, 7.0]]))
    (below, above), (near, few) = [line.split()[1::3][:2] for line in found.as_text().splitlines()[5:7]]
    assert (below, above, near, few) == ("-3", "1,201", "0", "7")
    assert [row["estimate"] for row in found.table().rows()] == [-3.4, 1200.6, -0.2, 7.0]


def test_without_noise_the_tests_are_pearsons_and_fishers():
    n = np.array([[30.0, 50, 20], [60, 20, 40]])
    found = independence(Fitted(n.ravel(), np.zeros((6, 6))), (2, 3))
    pearson = stats.chi2_contingency(n, correction=False)
    assert_allclose([found.statistic, found.p_value], [pearson.statistic, pearson.pvalue], rtol=1e-10)
    assert found.privacy_share == 0
    groups = [TABLE.loc[TABLE["region"] == level, "cost"].to_numpy() for level in ("north", "south", "west")]
    sums = [*map(len, groups), *(group.sum() for group in groups), (TABLE["cost"] ** 2).sum()]
    analysed = analysis(Fitted(np.array(sums, float), np.zeros((7, 7))), 3, "cost", "region")
    fisher = anova_oneway(groups, use_var="equal")
    assert_allclose([analysed.statistic, analysed.p_value], [fisher.statistic, fisher.pvalue], rtol=1e-8)
    assert analysed.degrees == (2, 19_997)


def test_group_means_and_anova_are_those_of_the_table(exact):
    found = {row["region"]: row for row in exact.means("cost", by="region").rows()}
    for level, mean in TABLE.groupby("region")["cost"].mean().items():
        close(found[level]["mean"], mean)
        assert found[level]["conf.low"] <= found[level]["mean"] <= found[level]["conf.high"]
    by_smoker = exact.means("cost", by="smoker").rows()
    close([row["mean"] for row in by_smoker], TABLE.groupby("smoker")["cost"].mean())
    found = exact.anova("cost", by="smoker")
    groups = [TABLE.loc[TABLE["smoker"] == value, "cost"] for value in (False, True)]
    assert_allclose(found.statistic, anova_oneway(groups, use_var="equal").statistic, rtol=0.02)
    assert found.table().columns["term"] == ("smoker", "residual")


def test_means_and_deviations_move_as_they_say():
    """Noise of known law on the table's own matrix: intervals cover, for one pass in a random metric."""
    schema, rng = Schema.of({"x": [0, 10], "a": ["p", "q"], "b": ["r", "s", "t"]}), np.random.default_rng(0)
    n = 5000
    x, a, b = rng.uniform(2, 7, n), rng.random(n) < 0.2, rng.choice(3, n, p=[0.6, 0.3, 0.1])
    x = x + 1.5 * a
    columns = np.column_stack([x, ~a, a, b == 0, b == 1, b == 2, np.ones(n)]).astype(float)
    centres, scales = schema.units.centres, schema.units.scales
    encoded = (columns - centres) / scales
    B = np.diag(rng.uniform(2, 6, 7)) @ np.linalg.qr(rng.standard_normal((7, 7)))[0]
    held = {"mean": [], "std": [], "cells": [], "means": [], "corr": [], "level": []}
    cells = np.array([np.sum((a == i) & (b == j)) for i in (False, True) for j in range(3)])
    G = encoded.T @ encoded
    for _ in range(250):
        M = NoisyMoment(G + B @ goe(7, rng) @ B.T, shape=B @ B.T)
        mean, std = mean_and_deviation(M, schema, 0, 1.959964)
        held["mean"].append(mean[4] <= x.mean() <= mean[5])
        held["std"].append(std[4] <= x.std(ddof=1) <= std[5])
        found = cell_counts(M, schema, "a", "b")[1]
        held["cells"].append(np.mean(np.abs(found.values - cells) <= 1.959964 * found.std_errors))
        sums = group_sums(M, schema, "x", "a")[1]
        exact = np.array([np.sum(~a), np.sum(a), np.sum(x[~a] - 5), np.sum(x[a] - 5), np.sum((x - 5) ** 2)])
        held["means"].append(np.mean(np.abs(sums.values - exact) <= 1.959964 * sums.std_errors))
        r, deviation = residuals(M, schema.units.rows([0, 2]), schema.units.one[np.newaxis]).correlations()
        held["corr"].append(abs(r[0, 1] - np.corrcoef(x, a)[0, 1]) <= 1.959964 * deviation[0, 1])
        held["level"].append(found.values.sum() - n)
    for name in ("mean", "std", "corr"):
        assert 0.90 <= np.mean(held[name]) <= 0.995, name  # 3.6 standard errors of 250 releases
    for name in ("cells", "means"):
        assert 0.91 <= np.mean(held[name]) <= 0.98, name


def counted(n, seed):
    private = gm.release(TABLE[["age"]][:n], schema={"age": [0, 100]}, epsilon=2.0, delta=1e-6, random_state=seed)
    return private, row_count(private)


@pytest.mark.parametrize("n", [500, 20_000])  # many rows are sampled in the passes between
def test_both_counts_of_rows_have_their_noise(n, monkeypatch):
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    monkeypatch.setattr(preconditioning, "HISTOGRAM_ROWS", 600)
    private, found = counted(n, 0)
    first = private.statistic.pool.members[0].times(private.schema.row_norm**2)
    of_entry = np.sqrt(2) * first.shape[-1, -1] * private.schema.encoded[-1].scale ** 2
    rate = private.statistic.passes[-1].counted_rate
    assert (rate < 1) == (n == 20_000)
    assert private.statistic.passes[-1].rate == 1
    mus, rng = private.certificate.account.noise_mu[2:8:2], np.random.default_rng(0)
    noise = [rng.normal(0, np.sqrt(2) / mu, (4000, 2, BINS)).sum(axis=2).mean(axis=1) for mu in mus]
    of_totals = np.hypot(np.std(np.mean(noise, axis=0)) / rate, np.sqrt(n * (1 - rate) / rate))
    assert found.std_error < of_entry
    assert_allclose((found.std_error**-2 - of_entry**-2) ** -0.5, of_totals, rtol=0.08)
    assert found.apart


def test_the_number_of_rows_has_the_noise_it_says():
    found = [(own.rows - 500) / own.std_error for _, own in (counted(500, seed) for seed in range(20))]
    assert 0.52 < np.std(found) < 1.55  # chi-square with 20 degrees of freedom, 0.1 % on either side
    assert abs(np.mean(found)) < 0.75


def test_histograms_of_a_sample_of_their_own_count_with_its_noise(monkeypatch, tmp_path):
    """Passes that read all rows, histograms a fifth of them: their total has the sample's noise; files know it."""
    monkeypatch.setattr(preconditioning, "LARGEST_RATE", 0.25)
    monkeypatch.setattr(preconditioning, "SAMPLE_ROWS", 10**9)
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    z = []
    for seed in range(60):
        monkeypatch.setattr(preconditioning, "HISTOGRAM_ROWS", 0.2 * 4000 * accounting.gaussian_mu(20.0, 1e-6))
        private = gm.release(
            TABLE[["age"]][:4000], schema={"age": [0, 1000]}, epsilon=20.0, delta=1e-6, random_state=seed
        )
        found = row_count(private)
        z.append((private.statistic.passes[-1].request.rows - 4000) / np.sqrt(4000 * 0.8 / 0.2))
    assert {output.rate for output in private.statistic.passes} == {1.0}
    assert private.statistic.passes[-1].counted_rate == pytest.approx(0.2, rel=0.05)
    assert 0.75 < np.std(z) < 1.32  # with the noise of the counts it is 1.03
    shortened = private.statistic.clipping_loss
    assert shortened.std_error > np.sqrt(4000 * 0.8 / 0.2) / 4000 * 0.8
    private.save(tmp_path / "r.parquet")
    assert row_count(gm.load(tmp_path / "r.parquet")) == found


def test_steps_do_not_count_rows():
    """Their parts of μ stand behind those of the passes."""
    X, y = np.linspace(-1, 1, 400)[:, np.newaxis], np.arange(400) % 2
    model = gm.LogisticRegression(
        epsilon=4.0, delta=1e-6, bounds_X=(-1, 1), classes=(0, 1), steps=3, random_state=0
    ).fit(X, y)
    private = model.release_
    passes_alone = [BINS / mu**2 for mu in private.certificate.account.noise_mu[2:8:2]]
    assert len(private.certificate.account.noise_mu) == 14
    of_totals = np.sqrt(sum(passes_alone)) / 3
    assert row_count(private).std_error < of_totals
    first = private.statistic.passes[0]
    (index,) = private.schema.groups["(intercept)"]
    of_entry = (private.schema.row_norm * private.schema.encoded[index].scale) ** 2 / first.mu
    assert row_count(private).std_error == pytest.approx((of_totals**-2 + of_entry**-2) ** -0.5)


def test_tables_in_every_shape(noisy):
    table = noisy.describe(["age", "sex"])
    assert list(table.to_frame("pandas").columns) == [
        "term",
        "statistic",
        "estimate",
        "std.error",
        "conf.low",
        "conf.high",
    ]
    assert table.to_frame("polars").shape == table.to_frame("pandas").shape == (5, 6)
    assert table.to_frame("arrow").num_rows == len(table) == 5
    assert table.as_csv().splitlines()[0] == "term,statistic,estimate,std.error,conf.low,conf.high"
    assert table.as_latex().splitlines()[1] == r"\begin{tabular}{lrrrrr}"
    assert "<caption>" in table._repr_html_()
    assert table.as_plain()["rows"][0]["term"] == "(rows)"
    assert repr(table) == (
        "ResultTable(no privacy guarantee, '2 columns, 95 % intervals', 5 rows: "
        "term, statistic, estimate, std.error, conf.low, conf.high)"
    )
    assert "Independence in the population" in str(noisy.crosstab("sex", "smoker"))
    assert noisy.crosstab("sex", "smoker").to_frame("arrow").num_rows == 4
    assert "given sex" in repr(noisy.corr(given=["sex"]))
    assert len(noisy.corr(["age", "bmi"]).pairs()) == 1
    assert "region" in str(noisy.anova("cost", by="region"))
    for thing in (noisy.corr(["age", "bmi"]), noisy.crosstab("sex", "smoker"), noisy.anova("cost", by="region")):
        assert "<table>" in thing._repr_html_()


def test_hidden_levels_have_a_count():
    frame = pd.DataFrame({"a": ["p"] * 7000 + ["q"] * 2000 + ["elsewhere"] * 1000})
    schema = {"a": {"levels": ["p", "q"], "unknown": "zero"}}
    release = gm.release(frame, schema=schema, epsilon=20, delta=1e-6, random_state=0)
    shares = {row["term"]: row["estimate"] for row in release.describe().rows()}
    assert_allclose([shares["a=p"], shares["a=q"], shares["a=(none of these)"]], [0.7, 0.2, 0.1], atol=1e-3)


def test_what_cannot_be_asked(noisy):
    for ask, words in (
        (lambda: noisy.crosstab("sex", "sex"), "two columns"),
        (lambda: noisy.crosstab("sex", "age"), "no levels to count"),
        (lambda: noisy.means("sex", by="region"), "has no mean"),
        (lambda: noisy.means("cost", by="cost"), "by itself"),
        (lambda: noisy.describe("age"), r"write columns=\['age'\]"),
        (lambda: noisy.describe(["age", "age"]), "twice"),
        (lambda: noisy.describe(["nobody"]), "not in the release"),
        (lambda: noisy.corr(["age"], given=["age"]), "held fixed"),
        (lambda: noisy.describe(["age"]).to_frame("excel"), "frame"),
    ):
        with pytest.raises(gm.GaussmixError, match=words):
            ask()
    bare = Schema({"age": Schema.of({"age": [0, 100]}).columns["age"]}, intercept=0.0)
    release = gm.release(TABLE[["age"]], schema=bare, epsilon=1.0, delta=1e-6, random_state=0)
    with pytest.raises(gm.ArgumentError, match="no intercept"):
        describe(release)


def test_standard_errors_are_those_of_the_delta_method():
    schema, rng = Schema.of({"x": [0, 10]}), np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(-0.2, 0.9, 400), np.ones(400)])
    G, N, step = rows.T @ rows, np.array([[2.0, 1.2], [1.2, 9.0]]), 1e-5
    entries = [(0, 0), (0, 1), (1, 1)]
    V = np.array([[N[i, k] * N[j, q] + N[i, q] * N[j, k] for k, q in entries] for i, j in entries])

    def both(M):  # mean and variance of 5 + 5 r
        mean = M[0, 1] / M[1, 1]
        return np.array([5 + 5 * mean, 25 * (M[0, 0] / M[1, 1] - mean**2)])

    gradient = []
    for i, j in entries:
        moved = G.copy()
        moved[i, j] += step
        moved[j, i] = moved[i, j]
        gradient.append((both(moved) - both(G)) / step)
    expected = np.sqrt(np.diagonal(np.array(gradient).T @ V @ np.array(gradient)))
    mean, std = mean_and_deviation(NoisyMoment(G, shape=N), schema, 0, 1.96)
    assert_allclose(mean[3], expected[0], rtol=1e-3)
    assert_allclose(2 * std[2] * std[3], expected[1], rtol=0.02)  # the fitted mean's bias is given back: second order
