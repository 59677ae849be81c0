"""Moments in original units are those of the table, and draws have the noise of the release."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.errors import ArgumentError
from gaussmix.models.moments import features, positive_definite, second_moments

ENCODED = 1e-5  # encoded entries are rounded to multiples of about 1e-6
DRAWS = 4000
CLOSE = 4.5 / math.sqrt(2 * DRAWS)  # relative standard error of a standard deviation: 1/√(2n); 7e-6 false alarms each


@pytest.fixture(scope="module")
def private():
    return gm.release(patients(20_000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


def design(table: pd.DataFrame, names) -> np.ndarray:
    """The columns of the moments, computed from rows."""
    columns = []
    for name in names:
        source, _, level = name.partition("=")
        columns.append((table[source] == level if level else table[source]).to_numpy(float))
    return np.column_stack(columns)


def test_moments_without_noise_are_those_of_the_rows():
    table = patients(3000)
    exact = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6, passes=1)
    found = exact.moments(reference={"region": "west"})
    rows = design(table, found.names)
    assert found.names == ("age", "bmi", "sex=m", "region=north", "region=south", "smoker", "cost")
    assert found.references == ("sex=f", "region=west")
    assert_allclose(found.n_rows, 3000, rtol=ENCODED)
    assert_allclose(found.means, rows.mean(axis=0), rtol=ENCODED)
    unit = 1 / rows.std(axis=0)
    assert_allclose(found.covariance * np.outer(unit, unit), np.corrcoef(rows.T) * 3000 / 2999, atol=ENCODED)
    whole = np.column_stack([np.ones(3000), rows])
    assert_allclose(found.gram, whole.T @ whole, rtol=ENCODED, atol=1e-9)
    frame = found.to_frame("pandas").set_index("term")
    assert frame.loc["age", "cost"] == found.covariance[0, -1]


def test_terms_are_powers_and_products_and_weights_count():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.uniform(20, 80, 2000), "sex": rng.choice(["f", "m"], 2000)})
    table["w"] = rng.uniform(0.5, 3, 2000)
    schema = gm.Schema(
        {"age": [20, 80], "sex": ["f", "m"], "w": [0, 4]}, terms={"age^2": 1.0, "age:sex": 1.0}, weight="w"
    )
    exact = gm.release(table, schema=schema, epsilon=math.inf, delta=1e-6, passes=1)
    found = exact.moments()
    male = (table["sex"] == "m").to_numpy(float)
    own = {"age": table["age"], "sex=m": male, "age^2": table["age"] ** 2, "age:sex=m": table["age"] * male}
    rows = np.column_stack([own[name] for name in found.names])
    assert_allclose(found.n_rows, table["w"].sum(), rtol=ENCODED)
    assert_allclose(found.means, np.average(rows, axis=0, weights=table["w"]), rtol=ENCODED)
    centred = rows - np.average(rows, axis=0, weights=table["w"])
    expected = (centred.T * table["w"].to_numpy()) @ centred / (table["w"].sum() - 1)
    assert_allclose(found.covariance, expected, rtol=10 * ENCODED)


def test_a_release_without_intercept_has_no_means():
    table = pd.DataFrame({"x": np.linspace(-1, 1, 3000), "y": np.linspace(-1, 1, 3000)})
    private = gm.release(table, gm.Schema({"x": [-1, 1], "y": [-1, 1]}, intercept=0.0), epsilon=1.0, delta=1e-6)
    with pytest.raises(ArgumentError, match="intercept"):
        private.moments()
    with pytest.raises(ArgumentError, match="intercept"):
        private.draws(3)


def coefficients(found) -> np.ndarray:
    """Least squares of cost on all other columns, the intercept first, from moments."""
    x, y = np.arange(len(found.names) - 1), len(found.names) - 1
    slopes = np.linalg.solve(found.covariance[np.ix_(x, x)], found.covariance[x, y])
    return np.append(found.means[y] - slopes @ found.means[x], slopes)


def spread(private) -> np.ndarray:
    """Standard deviations of coefficients over draws, relative to the standard errors of the model."""
    over = np.array([coefficients(own) for own in private.draws(DRAWS, random_state=1)])
    return over.std(axis=0) / np.array(list(private.ols("cost").bse.values()))


def test_coefficients_over_draws_have_the_standard_errors_of_the_model(private):
    model = private.ols("cost")
    assert not model.summary().left_out
    assert private.statistic.clipping_bias > 0
    assert_allclose(coefficients(private.moments()), list(model.params.values()), rtol=1e-9)
    assert_allclose(spread(private), 1, atol=CLOSE)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_noise_that_is_ten_percent_off_is_found(private, monkeypatch, factor):
    normal = np.random.Generator.standard_normal

    class Scaled(np.random.Generator):
        def standard_normal(self, *size):
            return factor * normal(self, *size)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Scaled(np.random.PCG64(seed)))
    assert (np.abs(spread(private) - 1) > CLOSE).all()


def test_draws_repeat_with_a_seed_and_differ_without(private):
    first, again = (private.draws(2, random_state=3) for _ in range(2))
    assert [own.n_rows for own in first] == [own.n_rows for own in again]
    assert len({own.n_rows for own in (*first, *private.draws(2))}) == 4


def test_the_nearest_positive_definite_covariance():
    """In the metric of the noise: eigenvalues of the whitened matrix are raised to one standard error."""
    private = gm.release(patients(300), schema=SCHEMA, epsilon=0.3, delta=1e-6, passes=1, random_state=0)
    own, coding = features(private.statistic.noisy, private.schema)
    raised, number = positive_definite(own)
    before, after = (second_moments(one, private.schema, coding) for one in (own, raised))
    assert number > 0
    assert np.linalg.eigvalsh(before.covariance)[0] < 0 < np.linalg.eigvalsh(after.covariance)[0]
    assert_allclose(after.means, before.means)
    M = own.moment
    rows = np.column_stack([-M[1:, 0] / M[0, 0], np.eye(len(M) - 1)])
    root = np.real(scipy.linalg.sqrtm(rows @ own.shape @ rows.T))
    white = np.linalg.solve(root, np.linalg.solve(root, rows @ M @ rows.T).T)
    h, V = np.linalg.eigh(white)
    assert (h < math.sqrt(2)).sum() == number
    nearest = root @ (V * np.maximum(h, math.sqrt(2))) @ V.T @ root
    assert_allclose(rows @ raised.moment @ rows.T, nearest, atol=1e-8 * np.abs(nearest).max())


def test_a_covariance_above_its_noise_is_not_changed(private):
    own, _ = features(private.statistic.noisy, private.schema)
    same, number = positive_definite(own)
    assert number == 0
    np.testing.assert_array_equal(same.moment, own.moment)
