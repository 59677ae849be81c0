"""Synthetic rows: within bounds and levels, with the release's marginals, its correlations and its regressions."""

from __future__ import annotations

import itertools
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.schema import Schema
from gaussmix.models.synthetic import _warn_if_far

TABLE = patients(20_000)


@pytest.fixture(scope="module")
def release():
    return gm.release(TABLE, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def rows(release):
    return release.synthetic(60_000, seed=1, frame="pandas")


def test_rows_are_within_bounds_and_levels(release, rows):
    assert list(rows.columns) == list(SCHEMA)
    assert rows["age"].between(0, 100).all()
    assert rows["bmi"].between(10, 50).all()
    assert set(rows["region"]) <= {"north", "south", "west"}
    assert rows["smoker"].dtype == bool
    gm.release(rows, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)  # the schema takes them as they are


def test_single_columns_and_correlations_are_the_releases(release, rows):
    found = {(row["term"], row["statistic"]): row["estimate"] for row in release.describe().rows()}
    for name, (q, word) in itertools.product(("age", "bmi", "cost"), ((0.25, "q25"), (0.5, "median"), (0.75, "q75"))):
        assert_allclose(rows[name].quantile(q), found[name, word], rtol=0.02)
    for name in ("age", "bmi", "cost"):
        # cells have more noise than sums: means differ by up to 0.04 standard deviations
        assert abs(rows[name].mean() - found[name, "mean"]) < 0.04 * rows[name].std()
        assert_allclose(rows[name].std(), found[name, "std"], rtol=0.03)
    assert_allclose(rows["region"].value_counts(normalize=True)["west"], found["region=west", "share"], atol=0.01)
    numbers = ["age", "bmi", "cost"]
    assert_allclose(rows[numbers].corr(), release.corr(numbers).values, atol=0.03)


def test_regressions_on_them_are_the_releases(release, rows):
    expected = release.ols("cost", ["age", "bmi", "smoker", "sex"]).params
    found = smf.ols("cost ~ age + bmi + smoker + sex", rows).fit().params
    assert_allclose(found["age"], expected["age"], rtol=0.03)
    assert_allclose(found["bmi"], expected["bmi"], rtol=0.05)
    assert_allclose(found["smoker[T.True]"], expected["smoker"], rtol=0.03)
    assert_allclose(found["sex[T.m]"], expected["sex=m"], atol=0.05)


def test_they_are_marked_and_repeat(release):
    table = release.synthetic(10, seed=3)
    mark = json.loads(table.schema.metadata[b"gaussmix.synthetic"])
    assert "distributions of single columns" in mark["right"]
    assert "three or more columns" in mark["not right"]
    assert mark["release"] == release.fingerprint
    assert table.equals(release.synthetic(10, seed=3))
    assert not table.equals(release.synthetic(10, seed=4))
    assert "gaussmix.synthetic" in release.synthetic(10, frame="pandas").attrs
    assert release.synthetic(10, frame="polars").shape == (10, 6)


def test_other_kinds_of_columns():
    rng = np.random.default_rng(0)
    data = {
        "v": list(rng.uniform(0, 1, (4000, 2)).astype(float)),
        "code": [[1, 2, None][i] for i in rng.integers(0, 3, 4000)],
        "word": [["a", "b", "elsewhere"][i] for i in rng.integers(0, 3, 4000)],
    }
    import pyarrow as pa

    table = pa.table({"v": pa.array([list(v) for v in data["v"]]), "code": data["code"], "word": data["word"]})
    schema = {
        "v": {"size": 2, "lower": 0, "upper": 1, "norm": 1.2},
        "code": {"levels": [1, 2], "missing": "level"},
        "word": {"levels": ["a", "b"], "unknown": "other"},
    }
    release = gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    assert len(release.describe()) == 1 + 2 * 2 + 2 * 3 + 2 * 3
    rows = release.synthetic(500, seed=0)
    assert set(rows["code"].to_pylist()) == {1, 2, None}
    assert set(rows["word"].to_pylist()) == {"a", "b", "(other)"}
    v = np.array(rows["v"].to_pylist())
    assert ((v >= 0) & (v <= 1)).all()
    assert (np.linalg.norm(2 * v - 1, axis=1) <= 1.2 + 1e-9).all()
    exact = gm.release(TABLE, schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    assert exact.synthetic(5, seed=0).num_rows == 5
    assert len(exact.describe()) == 1 + 3 * 2 + 2 * (2 + 3 + 1)


def test_a_row_count_is_needed():
    bare = Schema(Schema.of({"age": [0, 100]}).columns, intercept=0.0)
    release = gm.release(TABLE[["age"]], schema=bare, epsilon=1.0, delta=1e-6, random_state=0)
    with pytest.raises(gm.ArgumentError, match="intercept"):
        release.synthetic(5)


def skewed(n=20_000):
    rng = np.random.default_rng(5)
    ill = rng.random(n) < 0.2
    size = rng.normal(size=n)
    return pd.DataFrame(
        {
            "wage": np.exp(6 + 0.5 * size + 0.4 * rng.normal(size=n)),
            "visits": rng.poisson(np.exp(-0.5 + 0.8 * ill + 0.5 * size)).astype(float),
            "score": 50 + 10 * size + rng.normal(0, 8, n),
            "ill": ill,
        }
    )


def test_skewed_columns_and_counts_stay_plausible():
    """Marginals to a few percent, whole numbers, correlations of coded values, and least squares on coded rows."""
    table = skewed()
    schema = {"wage": [0, 10_000], "visits": [0, 60], "score": [0, 100], "ill": "boolean"}
    private = gm.release(table, schema=schema, epsilon=2.0, delta=1e-6, random_state=0)
    rows = private.synthetic(20_000, seed=0, frame="pandas")
    assert (rows["visits"] == rows["visits"].round()).all()
    assert not (rows["score"] == rows["score"].round()).any()
    assert_allclose((rows["visits"] == 0).mean(), (table["visits"] == 0).mean(), atol=0.03)
    for name in ("wage", "score"):
        assert_allclose(rows[name].quantile([0.1, 0.5, 0.9]), table[name].quantile([0.1, 0.5, 0.9]), rtol=0.1)
    coded, wanted = private.topcode(rows), private.topcode(table)
    assert_allclose(coded.corr(), wanted.corr(), atol=0.05)
    formula = "wage ~ visits + score + ill"
    found, expected = (smf.ols(formula, frame).fit() for frame in (coded, wanted))
    assert_allclose(found.params[1:], expected.params[1:], rtol=0.25)


def test_weights_and_terms_are_left_out():
    table = skewed(6000)
    table["w"] = np.where(table["ill"], 3.0, 1.0)
    schema = Schema.of({"score": [0, 100], "ill": "boolean", "w": [0, 4]}, weight="w", terms=["poly(score, 2)"])
    private = gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)
    rows = private.synthetic(20_000, seed=0, frame="pandas")
    assert list(rows.columns) == ["score", "ill"]
    assert_allclose(rows["ill"].mean(), np.average(table["ill"], weights=table["w"]), atol=0.02)
    marked = gm.release(
        table, schema={"score": {"lower": 0, "upper": 100, "missing": "indicator"}}, epsilon=3.0, delta=1e-6
    )
    with pytest.raises(gm.ArgumentError, match="missing-value indicators"):
        marked.synthetic(5)


def test_regressions_that_are_far_are_warned_of():
    wanted = np.array([[1.0, 0.6, 0.1], [0.6, 1.0, 0.0], [0.1, 0.0, 1.0]])
    reached = wanted.copy()
    reached[0, 1] = reached[1, 0] = 0.2
    with pytest.warns(UserWarning, match="Regressions of x, y fitted to synthetic rows differ"):
        _warn_if_far(wanted, reached, ["x", "y", "z"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_if_far(wanted, wanted, ["x", "y", "z"])
