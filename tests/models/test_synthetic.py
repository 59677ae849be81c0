"""Synthetic rows: within bounds and levels, with the release's second moments and its regressions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.schema import Schema

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


def test_second_moments_are_the_releases(release, rows):
    found = {(row["term"], row["statistic"]): row["estimate"] for row in release.describe().rows()}
    for name in ("age", "bmi", "cost"):
        assert_allclose(rows[name].mean(), found[name, "mean"], rtol=0.01)
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
    assert "Second moments only" in mark["right"]
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
    assert len(release.describe()) == 1 + 2 * 2 + 3 + 3
    rows = release.synthetic(500, seed=0)
    assert set(rows["code"].to_pylist()) == {1, 2, None}
    assert set(rows["word"].to_pylist()) == {"a", "b", "(other)"}
    v = np.array(rows["v"].to_pylist())
    assert ((v >= 0) & (v <= 1)).all()
    assert (np.linalg.norm(2 * v - 1, axis=1) <= 1.2 + 1e-9).all()
    exact = gm.release(TABLE, schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    assert exact.synthetic(5, seed=0).num_rows == 5
    assert len(exact.describe()) == 13


def test_a_row_count_is_needed():
    bare = Schema(Schema.of({"age": [0, 100]}).columns, intercept=0.0)
    release = gm.release(TABLE[["age"]], schema=bare, epsilon=1.0, delta=1e-6, random_state=0)
    with pytest.raises(gm.ArgumentError, match="intercept"):
        release.synthetic(5)
