"""Descriptive tables of a release: the table's own numbers without noise to speak of, intervals that cover."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.schema import Schema
from gaussmix.models.descriptive import (
    analysis,
    group_sums,
    independence,
)
from gaussmix.models.inference import residuals
from gaussmix.releases.counts import fit_structure, structure
from gaussmix.releases.noisy import Fitted, NoisyMoment
from gaussmix.releases.preconditioning import goe

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
    numbers = TABLE[["age", "bmi", "cost"]]
    for name in ("age", "bmi", "cost"):
        close(found[name, "mean"]["estimate"], TABLE[name].mean())
        std = found[name, "std"]
        assert abs(std["estimate"] - TABLE[name].std()) < 4 * std["std.error"] < 0.02 * TABLE[name].std()
    close(found["smoker=true", "share"]["estimate"], TABLE["smoker"].mean())
    for level, share in TABLE["region"].value_counts(normalize=True).items():
        close(found[f"region={level}", "share"]["estimate"], share)
        close(found[f"region={level}", "count"]["estimate"], 20_000 * share)
    for (_, statistic), row in found.items():
        assert row["conf.low"] <= row["estimate"] <= row["conf.high"]
        if (
            statistic not in ("q25", "median", "q75") and "share " not in statistic
        ):  # whose intervals end at public edges
            assert row["conf.high"] - row["conf.low"] < 0.02 * row["estimate"]
    if len(exact.statistic.passes) > 1:
        for name, q in itertools.product(numbers, (0.25, 0.5, 0.75)):
            row = found[name, {0.25: "q25", 0.5: "median", 0.75: "q75"}[q]]
            assert row["conf.low"] <= numbers[name].quantile(q) <= row["conf.high"]
            assert_allclose(row["estimate"], numbers[name].quantile(q), rtol=0.02)


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


def test_group_means_and_intervals_lie_within_the_bounds_of_the_response():
    rng, n = np.random.default_rng(1), 3000
    table = {"x": rng.uniform(0, 1, n) ** 3, "g": np.where(rng.random(n) < 0.005, "rare", "common")}
    for seed in range(5):
        private = gm.release(
            table, {"x": [0, 1], "g": ["common", "rare", "none"]}, epsilon=0.5, delta=1e-6, random_state=seed
        )
        found = private.means("x", by="g")
        upper = private.schema.parts["x"].upper  # of the coded column
        for row in found.rows():
            assert 0 <= row["conf.low"] <= row["conf.high"] <= upper <= 1, row
            assert np.isnan(row["mean"]) or row["conf.low"] <= row["mean"] <= row["conf.high"], row
        assert any("whole range of the response" in note for note in found.notes)


def test_terms_are_referred_to_the_moments():
    private = gm.release(TABLE, {"age": [18, 95]}, formula="age ~ log(age)", epsilon=1, delta=1e-6)
    for table in (private.corr, private.describe):
        with pytest.raises(gm.errors.ArgumentError, match=r"'log\(age\)' is a term.*Release\.moments"):
            table(["log(age)"])
    assert "log(age)" in private.moments().names


def test_cells_sums_and_correlations_move_as_they_say():
    """Noise of known law on the table's own matrix: intervals cover, for one pass in a random metric."""
    schema, rng = Schema.of({"x": [0, 10], "a": ["p", "q"], "b": ["r", "s", "t"]}), np.random.default_rng(0)
    n = 5000
    x, a, b = rng.uniform(2, 7, n), rng.random(n) < 0.2, rng.choice(3, n, p=[0.6, 0.3, 0.1])
    x = x + 1.5 * a
    columns = np.column_stack([x, ~a, a, b == 0, b == 1, b == 2, np.ones(n)]).astype(float)
    centres, scales = schema.units.centres, schema.units.scales
    encoded = (columns - centres) / scales
    B = np.diag(rng.uniform(2, 6, 7)) @ np.linalg.qr(rng.standard_normal((7, 7)))[0]
    held = {"cells": [], "means": [], "corr": [], "level": []}
    cells = np.array([np.sum((a == i) & (b == j)) for i in (False, True) for j in range(3)])
    G = encoded.T @ encoded
    for _ in range(250):
        M = NoisyMoment(G + B @ goe(7, rng) @ B.T, shape=B @ B.T)
        found = fit_structure(*structure(M, schema, ["a", "b"]))
        held["cells"].append(np.mean(np.abs(found.values - cells) <= 1.959964 * found.std_errors))
        sums = group_sums(M, schema, "x", "a")[1]
        exact = np.array([np.sum(~a), np.sum(a), np.sum(x[~a] - 5), np.sum(x[a] - 5), np.sum((x - 5) ** 2)])
        held["means"].append(np.mean(np.abs(sums.values - exact) <= 1.959964 * sums.std_errors))
        r, deviation = residuals(M, schema.units.rows([0, 2]), schema.units.one[np.newaxis]).correlations()
        held["corr"].append(abs(r[0, 1] - np.corrcoef(x, a)[0, 1]) <= 1.959964 * deviation[0, 1])
        held["level"].append(found.values.sum() - n)
    assert 0.90 <= np.mean(held["corr"]) <= 0.995  # 3.6 standard errors of 250 releases
    for name in ("cells", "means"):
        assert 0.91 <= np.mean(held[name]) <= 0.98, name


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
    assert table.to_frame("polars").shape == table.to_frame("pandas").shape == (10, 6)
    assert table.to_frame("arrow").num_rows == len(table) == 10
    assert table.as_csv().splitlines()[0] == "term,statistic,estimate,std.error,conf.low,conf.high"
    assert table.as_latex().splitlines()[1] == r"\begin{tabular}{lrrrrr}"
    assert "<caption>" in table._repr_html_()
    assert table.as_plain()["rows"][0]["term"] == "(rows)"
    assert repr(table) == (
        "ResultTable(no privacy guarantee, '2 columns, 95 % intervals', 10 rows: "
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
    shares = {row["term"]: row["estimate"] for row in release.describe().rows() if row["statistic"] == "share"}
    assert_allclose([shares["a=p"], shares["a=q"], shares["a=(none of these)"]], [0.7, 0.2, 0.1], atol=1e-3)


def test_what_cannot_be_asked(noisy):
    for ask, words in (
        (lambda: noisy.crosstab("sex", "sex"), "must be different columns, got 'sex' for both"),
        (lambda: noisy.crosstab("sex", "age"), "require a categorical or boolean column, got 'age'"),
        (lambda: noisy.means("sex", by="region"), "Means require"),
        (lambda: noisy.means("cost", by="cost"), "must be different columns"),
        (lambda: noisy.describe("age"), r"Write columns=\['age'\]"),
        (lambda: noisy.describe(["age", "age"]), "columns must not contain duplicates"),
        (lambda: noisy.describe(["nobody"]), "not in the release"),
        (lambda: noisy.corr(["age"], given=["age"]), "both columns and given"),
        (lambda: noisy.describe(["age"]).to_frame("excel"), "frame"),
    ):
        with pytest.raises(gm.GaussmixError, match=words):
            ask()
    bare = Schema({"age": Schema.of({"age": [0, 100]}).columns["age"]}, intercept=0.0)
    words = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    with pytest.raises(gm.ArgumentError, match="with an intercept"):
        gm.release(TABLE[["age"]], schema=bare, passes=1, **words).describe()
    several = gm.release(TABLE[["age"]], schema=bare, **words).describe()  # marginals count rows by themselves
    assert several.columns["estimate"][0] == pytest.approx(20_000, rel=0.02)
