"""The demonstration: a table made by known coefficients, and a release that finds them again."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.report.demo import LINEAR_TRUTHS, LOGISTIC_TRUTH, ROWS, SCHEMA, make_patients, private_patients


@pytest.fixture(scope="module")
def table():
    return make_patients(20_000)


def test_the_table_is_within_its_declared_bounds_and_the_same_for_a_seed(table):
    assert table.column_names == list(SCHEMA)
    assert table.equals(make_patients(20_000))
    assert not table.equals(make_patients(20_000, seed=1))
    for name, declared in SCHEMA.items():
        if isinstance(declared, list):
            values = table[name].to_numpy()
            assert np.mean((values < declared[0]) | (values > declared[1])) < 1e-3, name
    assert set(table["region"].to_pylist()) == set(SCHEMA["region"]["levels"])
    assert make_patients(3).num_rows == 3
    assert ROWS == 100_000


@pytest.mark.parametrize("target", LINEAR_TRUTHS)
def test_the_truths_made_the_table(table, target):
    """Least squares without noise is within five standard errors of every stated coefficient."""
    truth = LINEAR_TRUTHS[target]
    on = list(dict.fromkeys(name.partition("=")[0] for name in truth if name != "(intercept)"))
    model = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).ols(target, predictors=on)
    summary = model.summary(estimand="population", n_rows=table.num_rows)
    assert set(summary.params) == set(truth)
    for name, value in truth.items():
        assert abs(summary.params[name] - value) < 5 * summary.bse[name], name


def test_the_logistic_truth_made_the_labels(table):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X = np.column_stack([table["age"].to_numpy(), table["smoker"].to_numpy().astype(float)])
    found = linear_model.LogisticRegression(C=1e8, max_iter=1000).fit(X, table["readmitted"].to_numpy())
    assert found.coef_[0] == pytest.approx([LOGISTIC_TRUTH["age"], LOGISTIC_TRUTH["smoker"]], rel=0.15)
    assert found.intercept_[0] == pytest.approx(LOGISTIC_TRUTH["(intercept)"], rel=0.1)


def test_one_release_is_private_and_finds_the_strong_coefficients(table):
    private = private_patients(table, epsilon=3.0, delta=1e-6)
    certificate = private.certificate
    assert certificate.is_private
    assert (certificate.epsilon, certificate.delta) == (3.0, 1e-6)
    assert certificate.schema == gm.Schema.of(SCHEMA)
    low, high = private.ols("cost").conf_int(1e-6)["smoker"]
    assert low < LINEAR_TRUTHS["cost"]["smoker"] < high
    assert private.logit("readmitted", predictors=["age", "smoker"]).coef["age"] > 0
