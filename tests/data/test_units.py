"""Encoded and original units against a slow independent computation: least squares on both sets of columns."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gaussmix as gm
from encoded_rows import plain_rows
from gaussmix.data.units import half_range, half_span
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding

COLUMNS = {
    "age": {"lower": 10, "upper": 90, "weight": 0.5},
    "wage": [50, 5000],
    "sex": ["f", "m", "x"],
    "smoker": "boolean",
    "y": {"lower": -30, "upper": 70, "weight": 2.0},
}
TERMS = ["log(wage)", "poly(age, 3)", "age:sex", "poly(age, 2):smoker"]


def people(n=400, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(10, 90, n),
            "wage": np.exp(rng.uniform(4, 8.5, n)),
            "sex": rng.choice(["f", "m", "x"], n),
            "smoker": rng.random(n) < 0.4,
        }
    )
    return table.assign(y=0.2 * table.age + 3 * table.smoker + (table.sex == "m") + rng.normal(size=n))


def original(table):
    """Columns in original units by name, each written out from the table."""
    age, male, other = table.age.to_numpy(), (table.sex == "m").to_numpy(float), (table.sex == "x").to_numpy(float)
    smoker = table.smoker.to_numpy(float)
    return {
        "age": age,
        "wage": table.wage.to_numpy(),
        "sex=f": 1 - male - other,
        "sex=m": male,
        "sex=x": other,
        "smoker": smoker,
        "y": table.y.to_numpy(),
        "log(wage)": np.log(table.wage.to_numpy()),
        "age^2": age**2,
        "age^3": age**3,
        "age:sex=m": age * male,
        "age:sex=x": age * other,
        "age:smoker": age * smoker,
        "age^2:smoker": age**2 * smoker,
    }


def encoded(schema, table):
    """Encoded rows before rounding, but for the intercept, which is the same number in every row."""
    rows = plain_rows(schema, pa.Table.from_pandas(table, preserve_index=False))
    rows[:, -1] = schema.rounded_intercept
    return rows


def least_squares(columns, y):
    """Least squares with an intercept by numpy, of columns scaled to a norm of one; coefficients, intercept first."""
    X = np.column_stack([np.ones(len(y)), *columns])
    scale = np.linalg.norm(X, axis=0)
    return np.linalg.lstsq(X / scale, y, rcond=None)[0] / scale


@pytest.fixture(params=[1.0, 0.25], ids=["intercept 1", "intercept 1/4"])
def plain(request):
    return gm.Schema.of(COLUMNS, intercept=request.param)


@pytest.fixture
def terms():
    return gm.Schema.of(COLUMNS, terms=TERMS)


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.mark.parametrize("names", [["age", "wage", "smoker"], ["age", "sex=m", "sex=x", "smoker"]])
def test_coefficients_are_those_of_a_fit_on_the_original_columns(plain, table, names):
    rows, columns = encoded(plain, table), original(table)
    features = [*(plain.names.index(name) for name in names), plain.names.index("(intercept)")]
    (y,) = plain.groups["y"]
    theta = np.linalg.lstsq(rows[:, features], rows[:, y], rcond=None)[0]
    centre, scale = plain.units.centres[y], plain.units.scales[y]
    coef, intercept = plain.units.coefficients(features, theta, centre=centre, scale=scale)
    assert list(coef) == names
    expected = least_squares([columns[name] for name in names], columns["y"])
    np.testing.assert_allclose([intercept, *coef.values()], expected, rtol=1e-8)


def test_coefficients_of_terms_are_those_of_powers_and_products(terms, table):
    rows, columns = encoded(terms, table), original(table)
    names = [name for name in terms.names if name not in ("y", "wage", "sex=f", "(intercept)")]
    features = [*(terms.names.index(name) for name in names), terms.names.index("(intercept)")]
    theta = np.linalg.lstsq(rows[:, features], columns["y"], rcond=None)[0]
    coef, intercept = terms.units.coefficients(features, theta)
    expected = least_squares([columns[name] for name in names], columns["y"])
    np.testing.assert_allclose([intercept, *coef.values()], expected, rtol=1e-5)


@pytest.mark.parametrize("collapse", [None, {"sex": {"rest": ["m", "x"]}}])
def test_the_matrix_of_a_coding_maps_coefficients_of_features(terms, table, collapse):
    rows, columns = encoded(terms, table), original(table)
    coding = Coding.of(terms, ["age", "sex", "smoker", "age^2", "age:sex"], collapse=collapse)
    theta = np.linalg.lstsq(rows @ coding.rows.T, columns["y"], rcond=None)[0]
    if collapse:
        columns |= {f"{p}sex=rest": columns[f"{p}sex=m"] + columns[f"{p}sex=x"] for p in ("", "age:")}
    expected = least_squares([columns[name] for name in coding.names[1:]], columns["y"])
    np.testing.assert_allclose(coding.units.matrix() @ theta, expected, rtol=1e-6)
    np.testing.assert_allclose(coding.units.matrix(3.0), 3 * coding.units.matrix(), rtol=1e-12)


def test_combinations_are_the_original_columns(plain, table):
    rows, columns, units = encoded(plain, table), original(table), plain.units
    own = [plain.names.index(name) for name in ("age", "sex=x", "smoker", "y")]
    wanted = np.column_stack([columns[plain.names[i]] for i in own])
    np.testing.assert_allclose(rows @ units.one, 1, rtol=1e-12)
    np.testing.assert_allclose(rows @ units.rows(own).T, wanted, atol=1e-10)
    centres = np.array([50, 0, 0.5, 20])
    np.testing.assert_allclose(rows @ units.deviations(own).T, wanted - centres, atol=1e-10)
    np.testing.assert_allclose(units.decode(rows[:, own], own), wanted, atol=1e-10)
    np.testing.assert_allclose(units.encode(wanted, own), rows[:, own], atol=1e-10)


def test_a_coefficient_is_its_own_multiple_unless_higher_terms_contain_its_column(terms):
    units = Coding.of(terms, ["age", "sex", "smoker", "age^2"]).units
    at = units.names.index
    assert units.alone(at("age")) is None
    assert units.alone(at("smoker")) == 1
    assert units.alone(at("age^2")) == pytest.approx(2 * 40**2 / 3)
    assert units.matrix()[at("age^2"), at("age^2")] == pytest.approx(1 / units.alone(at("age^2")))  # of weight 1
    assert Coding.of(gm.Schema.of(COLUMNS), ["age"]).units.alone(1) == 1


def test_half_ranges_are_those_of_all_corners(plain):
    """The largest and the smallest value of a combination over all corners of the declared ranges."""
    rng = np.random.default_rng(1)
    corners = pd.DataFrame(
        itertools.product([10, 90], [50, 5000], ["f", "m", "x"], [False, True], [-30, 70]), columns=list(COLUMNS)
    )
    rows = encoded(plain, corners)
    for vector in rng.normal(size=(20, plain.n_columns)):
        assert half_range(plain, vector) == pytest.approx(np.ptp(rows @ vector) / 2, rel=1e-9)
    for index, column in enumerate(plain.encoded):
        spread = np.ptp(rows[:, index]) / 2 if column.source else rows[0, index]
        assert half_span(plain, column) == pytest.approx(spread, rel=1e-9)


def test_counts_need_an_intercept():
    with pytest.raises(ArgumentError, match="require a release with an intercept"):
        gm.Schema.of(COLUMNS, intercept=0.0).units.one  # noqa: B018
