"""What estimators declare: a schema of a vector X and targets y, whose weights minimise the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.baselines import ObjectivePerturbation, Ridge
from gaussmix.data.encode import encode_arrays
from gaussmix.estimators.base import coefficients, target_names

BOTH = {"bounds_X": (-1, 1)}


def regression_schema(n_features, n_targets, *, weighting="balanced", **declared):
    model = {"balanced": gm.LinearRegression, "paper": Ridge}[weighting]
    return model(**declared).schema(n_features, n_targets)


def classification_schema(n_features, *, weighting="balanced", **declared):
    model = {"balanced": gm.LogisticRegression, "paper": ObjectivePerturbation}[weighting]
    return model(**declared).schema(n_features)


@pytest.mark.parametrize(("q", "d", "intercept"), [(1, 5, True), (3, 8, False)])
def test_weights_of_targets_minimise_the_noise(q, d, intercept):
    """The printed minimiser against a search over w of (C_X² + q w²)² (1/w² + 1/C_X²)."""
    schema = regression_schema(d, q, **BOTH, bounds_y=(-1, 1), fit_intercept=intercept, weighting="balanced")
    x2 = d + intercept
    grid = np.linspace(0.05, 3, 100_000) * math.sqrt(x2)
    best = grid[np.argmin((x2 + q * grid**2) ** 2 * (1 / grid**2 + 1 / x2))]
    assert [schema.columns[name].weight for name in target_names(q)] == pytest.approx([best] * q, rel=1e-3)


def test_a_label_weighs_what_a_target_does():
    label = classification_schema(5, **BOTH, fit_intercept=True).columns["y"]
    target = regression_schema(5, 1, **BOTH, bounds_y=(-1, 1), fit_intercept=True).columns["y"]
    assert isinstance(label, gm.Boolean)
    assert label.weight == target.weight


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "declared", [{"bounds_X": (-1, 3)}, {"data_norm": 4.0}, {"bounds_X": (-1, 3), "data_norm": 1.2}]
)
def test_order_of_the_encoded_row(declared, fit_intercept):
    columns = {"data_norm": None, "bounds_X": None} | declared
    schema = regression_schema(3, 2, **columns, bounds_y=(0, 10), fit_intercept=fit_intercept)
    intercept = ("(intercept)",) if fit_intercept else ()
    assert schema.names == ("X[0]", "X[1]", "X[2]", "y0", "y1", *intercept)
    assert classification_schema(1, **columns, fit_intercept=fit_intercept).names == ("X[0]", "y", *intercept)
    centre = schema.units.centres
    assert np.any(centre[:5]) == fit_intercept  # without an intercept nothing is centred: none comes in by centres


AS_PAIRS = [
    [(0, 1), (10, 20)],
    ((0, 1), (10, 20)),
    ([0, 1], [10, 20]),
    np.array([[0, 1], [10, 20]]),
    [(10, 20), (0, 1)],
]


@pytest.mark.parametrize("bounds", [*AS_PAIRS, [(0, 1)], [(0, 1), (1, 2), (2, 3)], np.array([[0, 1]] * 5)])
def test_bounds_that_could_be_pairs_by_column_are_refused(bounds):
    rest = {"data_norm": None, "fit_intercept": True}
    with pytest.raises(
        gm.errors.DeclarationError, match=r"bounds_X is ambiguous: .* one pair per column\. Pass arrays"
    ):
        regression_schema(len(bounds), 1, bounds_X=bounds, bounds_y=(0, 1), **rest)
    with pytest.raises(
        gm.errors.DeclarationError, match=r"bounds_X is ambiguous: .* one pair per column\. Pass arrays"
    ):
        classification_schema(len(bounds), bounds_X=bounds, **rest)
    with pytest.raises(
        gm.errors.DeclarationError, match=r"bounds_y is ambiguous: .* one pair per column\. Pass arrays"
    ):
        regression_schema(1, len(bounds), bounds_X=(0, 1), bounds_y=bounds, **rest)


@pytest.mark.parametrize(
    ("bounds", "columns", "lower", "upper"),
    [
        ((np.array([0, 1]), np.array([10, 20])), 2, (0, 1), (10, 20)),  # what the message asks for
        (((0, 0), (1, 2)), 2, (0, 0), (1, 2)),  # (0, 0) is no pair
        (([0, 1], [1, 2]), 2, (0, 1), (1, 2)),  # the same either way
        ((0, np.array([10, 20])), 2, (0, 0), (10, 20)),
        (((0, 1, 2), (3, 4, 5)), 3, (0, 1, 2), (3, 4, 5)),
        (np.array([0.0, 1.0]), 2, (0, 0), (1, 1)),
        ([(0,), (1,)], 1, (0,), (1,)),
    ],
)
def test_bounds_that_are_no_pairs_are_lower_and_upper(bounds, columns, lower, upper):
    features = classification_schema(columns, data_norm=None, bounds_X=bounds, fit_intercept=True).columns["X"]
    assert np.array_equal(np.broadcast_to(features.lower, columns), lower)
    assert np.array_equal(np.broadcast_to(features.upper, columns), upper)


@pytest.mark.parametrize("weighting", ["balanced", "paper"])
@pytest.mark.parametrize(
    "declared", [{"bounds_X": (-1, 1)}, {"data_norm": 2.0}, {"bounds_X": (-2, 9), "data_norm": 0.5}]
)
def test_no_encoded_row_is_longer_than_1(weighting, declared):
    rng = np.random.default_rng(0)
    columns = {"data_norm": None, "bounds_X": None} | declared
    schema = regression_schema(4, 2, **columns, bounds_y=([0, -5], [10, 5]), fit_intercept=True, weighting=weighting)
    middle = schema.units.centres[:4]
    X = middle + rng.standard_normal((500, 4)) * 10.0 ** rng.uniform(-3, 12, (500, 1))
    Y = rng.uniform(-20, 20, (500, 2))
    rows = encode_arrays(schema, X, Y)
    squares = [sum(int(entry) ** 2 for entry in row) for row in rows * 2.0**20]
    assert max(squares) <= 2**40
    assert max(squares) > 0.9 * 2**40


def test_targets_in_the_papers_units():
    """Targets enter in the units of the features: of their norm, or of the range that bounds are mapped to."""
    bounded = regression_schema(3, 1, **BOTH, bounds_y=(0, 10), fit_intercept=True, weighting="paper")
    assert bounded.columns["y"].weight == 1
    by_norm = {"data_norm": 4.0, "bounds_X": None}
    schema = regression_schema(3, 1, **by_norm, bounds_y=(0, 10), fit_intercept=True, weighting="paper")
    assert schema.columns["y"].weight == 5 / 4
    assert classification_schema(3, **by_norm, fit_intercept=True, weighting="paper").columns["y"].weight == 1 / 4


def test_user_units_undo_the_encoding():
    """Any θ predicts the same from encoded rows and, in the user's units, from the table."""
    rng = np.random.default_rng(0)
    bounds = ([-1, 0, 5], [1, 10, 6])
    schema = regression_schema(
        3, 2, data_norm=None, bounds_X=bounds, bounds_y=(-3, 8), fit_intercept=True, weighting="balanced"
    )
    X = rng.uniform(*bounds, (50, 3))
    theta = rng.standard_normal((4, 2))
    coef, intercept = coefficients(schema, theta)
    rows = encode_arrays(schema, X, np.zeros((50, 2)))
    features = [*schema.groups["X"], *schema.groups["(intercept)"]]
    centre, scale = (
        values[[*schema.groups["y0"], *schema.groups["y1"]]] for values in (schema.units.centres, schema.units.scales)
    )
    encoded_prediction = rows[:, features] @ theta * schema.row_norm * scale + centre
    assert X @ coef.T + intercept == pytest.approx(encoded_prediction, abs=1e-4)
