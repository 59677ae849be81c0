"""A regression as an inference problem: its blocks, its units, its reference levels."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients


@pytest.fixture(scope="module")
def table():
    return patients(5000)


@pytest.fixture(scope="module")
def private(table):
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, passes=1, random_state=0)


def test_blocks_are_those_of_the_release(private):
    problem = private.ols("cost", predictors=["age", "region"]).problem()
    names = list(private.schema.names)
    kept = [names.index(name) for name in problem.names]
    y = names.index("cost")
    assert problem.names == ("(intercept)", "age", "region=south", "region=west")
    assert problem.noisy.moment == pytest.approx(private.second_moment[np.ix_([*kept, y], [*kept, y])])
    assert problem.noisy.shape == pytest.approx(private.statistic.column_noise[0] * np.eye(5))
    assert problem.groups == {"age": (1,), "region": (2, 3)}


def test_number_of_rows_is_the_noisy_one_of_the_intercept(table, private):
    schema = private.schema
    problem = private.ols("cost").problem()
    noise = private.statistic.column_noise[-1] * math.sqrt(2) * schema.encoded[-1].scale ** 2
    assert problem.nobs == pytest.approx(len(table), abs=6 * noise)
    assert problem.nobs_se == pytest.approx(noise)
    assert problem.nobs != len(table)
    open_table = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).ols("cost").problem()
    assert open_table.nobs == pytest.approx(len(table), rel=1e-6)
    assert (open_table.noisy.has_noise, open_table.nobs_se) == (False, 0.0)
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=3.0, delta=1e-6, random_state=0)
    assert math.isnan(bare.ols("cost").problem().nobs)
    assert math.isnan(bare.ols("cost").nobs)


@pytest.mark.parametrize("intercept", [1.0, 0.5, 0.0])
def test_coefficients_are_in_original_units_whatever_the_weights(table, intercept):
    declared = {"columns": {**SCHEMA, "age": {"lower": 0, "upper": 100, "weight": 3.0}}, "intercept": intercept}
    release = gm.release(table, schema=declared, epsilon=math.inf, delta=1e-6)
    X = table[["age", "bmi"]].astype(float).to_numpy()
    X = np.column_stack([np.ones(len(X)), X]) if intercept else X - [50, 30]  # through the middle of all bounds
    exact = np.linalg.lstsq(X, table["cost"] - (0 if intercept else 10), rcond=None)[0]
    model = release.ols("cost", ["age", "bmi"])
    assert list(model.params.values()) == pytest.approx(exact, rel=1e-3)
    assert model.predict(table) == pytest.approx(np.clip(X @ exact + (0 if intercept else 10), 0, 20), rel=1e-3)


def test_residual_is_the_tables_own(table):
    """Without noise: the residual sum of squares of the target in encoded units, half the range being 1."""
    summary = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).ols("cost", predictors=["age"]).summary()
    A = np.column_stack([np.ones(len(table)), table["age"]])
    _, residual, *_ = np.linalg.lstsq(A, table["cost"], rcond=None)
    assert summary._fit.residual == pytest.approx(residual[0] / 10**2, rel=1e-4)
    centred = table["cost"] - table["cost"].mean()
    assert summary._mean.residual == pytest.approx(float(centred @ centred) / 10**2, rel=1e-4)


def test_a_level_as_a_response_has_the_noise_of_its_own_column(private):
    sigma2 = private.statistic.column_noise[0]
    for response in ("sex", "smoker"):
        assert private.logit(response, predictors=["age"]).problem().noisy.shape[-1, -1] == pytest.approx(sigma2)


def test_coefficients_have_the_order_of_the_predictors():
    """As in statsmodels, whatever the order of the schema; a product may come before its category."""
    rng = np.random.default_rng(0)
    data = {name: rng.uniform(0, 1, 2000) for name in ("a", "b", "y")} | {"g": rng.choice(["u", "v", "w"], 2000)}
    schema = gm.Schema.of({"a": [0, 1], "b": [0, 1], "g": ["u", "v", "w"], "y": [0, 1]}, terms=["b:g"])
    release = gm.release(data, schema, epsilon=30.0, delta=1e-6, random_state=0)
    assert list(release.ols("y ~ b + a").params) == ["(intercept)", "b", "a"]
    assert list(release.ols("y", predictors=["g", "a"]).params) == ["(intercept)", "g=v", "g=w", "a"]
    found, plain = (release.ols("y", predictors=order) for order in (["b:g", "g", "b"], ["b", "g", "b:g"]))
    assert list(found.params) == ["(intercept)", "b:g=v", "b:g=w", "g=v", "g=w", "b"]
    for name, value in plain.params.items():
        assert found.params[name] == pytest.approx(value, rel=1e-8)
        assert found.bse[name] == pytest.approx(plain.bse[name], rel=1e-8)
    logit = release.logit("g", level="u", predictors=["b", "a"])
    assert list(logit.params) == ["(intercept)", "b", "a"]
    other = release.logit("g", level="u", predictors=["a", "b"])
    assert logit.params["a"] == pytest.approx(other.params["a"], rel=1e-6)
