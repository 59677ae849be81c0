"""LinearRegression: units, accuracy, several targets, warnings and words."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import gaussmix as gm
from example_models import BOUNDS, FEATURE_BOUNDS, linear_table
from gaussmix import baselines


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounded", ["bounds", "norm", "both"])
def test_coefficients_come_back_in_the_users_units(fit_intercept, bounded):
    X, y, _ = linear_table(4000)
    declared = {
        "bounds": {"bounds_X": FEATURE_BOUNDS},
        "norm": {"data_norm": 13.0},
        "both": {"bounds_X": FEATURE_BOUNDS, "data_norm": 2.5},
    }[bounded]
    found = gm.LinearRegression(epsilon=math.inf, bounds_y=(-20, 20), fit_intercept=fit_intercept, **declared).fit(X, y)
    exact = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert found.coef_ == pytest.approx(exact.coef_, rel=2e-3)
    assert found.intercept_ == pytest.approx(exact.intercept_, rel=2e-3, abs=1e-12)
    if not fit_intercept:
        assert found.intercept_ == 0


def test_long_rows_are_shortened_as_a_whole_so_that_linear_relations_survive():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) * rng.uniform(0.1, 10, (4000, 1))
    y = X @ [1.0, -2.0, 0.5]
    found = gm.LinearRegression(epsilon=math.inf, data_norm=1.0, bounds_y=(-1000, 1000), fit_intercept=False).fit(X, y)
    assert found.coef_ == pytest.approx([1.0, -2.0, 0.5], rel=1e-2)


def test_private_fit_is_accurate_on_a_large_table():
    X, y, coef = linear_table(200_000)
    model = gm.LinearRegression(epsilon=1.0, delta=1e-6, bounds_X=FEATURE_BOUNDS, bounds_y=(-5, 15), random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95 * LinearRegression().fit(X, y).score(X, y)
    assert model.coef_ == pytest.approx(coef, rel=0.15)


def test_several_targets_at_once():
    X, y, _ = linear_table(50_000)
    Y = np.column_stack([y, -y / 2])
    model = gm.LinearRegression(epsilon=5.0, bounds_X=FEATURE_BOUNDS, bounds_y=([-5, -8], [15, 3]), random_state=0).fit(
        X, Y
    )
    assert model.coef_.shape == (2, 4)
    assert model.intercept_.shape == (2,)
    assert model.predict(X).shape == Y.shape
    assert model.coef_[0] == pytest.approx(-2 * model.coef_[1], abs=0.3)


def test_many_targets_raise_the_automatic_sketch_size():
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-1, 1, (200, 3)), rng.uniform(-1, 1, (200, 100))
    model = baselines.SheffetMixing(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0)
    assert model.fit(X, Y).coef_.shape == (100, 3)


def test_a_hopeless_budget_warns_from_public_quantities():
    X, y, _ = linear_table(50)
    with pytest.warns(UserWarning, match="n_rows=50 is too small for 4 features at epsilon=0.1"):
        gm.LinearRegression(epsilon=0.1, n_rows=50, **BOUNDS, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm.LinearRegression(epsilon=1.0, n_rows=20_000, **BOUNDS, random_state=0).fit(*linear_table()[:2])
        gm.LinearRegression(epsilon=0.1, **BOUNDS, random_state=0).fit(X, y)  # nothing declared, nothing known


GOOD = {"bounds_X": (-10, 10), "bounds_y": (-20, 20)}
BAD = [
    ({"bounds_y": None}, "bounds_y=.* is required"),
    ({"bounds_X": None}, "bounds_X or data_norm is required"),
    ({"bounds_X": (1, -1)}, "lower < upper"),
    ({"bounds_X": (-1, math.inf)}, "finite with lower < upper"),
    ({"bounds_X": (math.nan, 1)}, "bounds_X must be a pair"),
    ({"bounds_X": 3}, "bounds_X must be a pair"),
    ({"bounds_X": ([0, 0], [1, 1])}, "one per column"),
    ({"bounds_X": (1, 1), "fit_intercept": False}, "lower < upper"),
    ({"data_norm": -1.0}, "data_norm must be a finite number > 0"),
    ({"epsilon": 0}, "epsilon must be"),
    ({"epsilon": -1.0}, "epsilon must be"),
    ({"delta": 0.0}, "delta must lie"),
    ({"delta": 1.0}, "delta must lie"),
    ({"random_state": "seed"}, "random_state must be None"),
    ({"n_rows": 17}, "n_rows does not match the number of rows"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_declarations_say_what_to_do(arguments, words):
    X, y, _ = linear_table(100)
    with pytest.raises(ValueError, match=words) as caught:
        gm.LinearRegression(**{**GOOD, "epsilon": 9.0, **arguments}).fit(X, y)
    assert isinstance(caught.value, gm.GaussmixError)


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_missing_values_are_an_error_without_a_number_in_it(where, value):
    X, y, _ = linear_table(100)
    (X if where == "X" else y)[17 if where == "y" else (17, 2)] = value
    with pytest.raises(ValueError, match=r"NaN|infin") as caught:
        gm.LinearRegression(**GOOD).fit(X, y)
    assert "17" not in str(caught.value)


def test_too_few_rows():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="fewer rows than features"):
        gm.LinearRegression(**GOOD).fit(rng.uniform(size=(3, 5)), rng.uniform(size=3))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_columns_far_smaller_than_a_joint_norm_allows_are_not_shrunk_away(fit_intercept):
    """A hundredth of it: in each of these columns 20,000 rows hold less energy than one row may have."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, (20_000, 10)) / 100, rng.uniform(-0.9, 0.9, 20_000)])
    y = X @ np.append(10 * np.ones(10), 0.1)
    model = gm.LinearRegression(
        epsilon=30.0, delta=1e-3, data_norm=1.0, bounds_y=(-1, 1), fit_intercept=fit_intercept, random_state=1
    )
    assert model.fit(X, y).score(X, y) > 0.95
