"""Lower bounds on the length of private intervals for unweighted least squares, against refitted models."""

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from experiments.few_rows import largest_additions, largest_changes, rows_indistinguishable


def coefficients(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.lstsq(X, y, rcond=None)[0])


@pytest.mark.parametrize("mu", [0.08, 0.24, 0.7])
def test_an_interval_contains_both_coefficients_at_least_every_second_time(mu: float) -> None:
    rows = rows_indistinguishable(mu)
    contains_both = norm.cdf(norm.ppf(0.95) - np.array([rows, rows + 1]) * mu) - 0.05
    assert contains_both[0] >= 0.5 > contains_both[1]


def test_changes_are_those_of_models_without_the_rows() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(12), rng.exponential(size=12)])
    y = X[:, 1] + rng.standard_normal(12)
    whole, found = coefficients(X, y), largest_changes(X, y, 2)
    for j in (1, 2):
        sets = itertools.chain.from_iterable(itertools.combinations(range(12), i) for i in range(1, j + 1))
        moved = [abs(coefficients(np.delete(X, out, 0), np.delete(y, out)) - whole) for out in map(list, sets)]
        largest = np.max(moved, axis=0)
        assert (found[j - 1] <= largest * (1 + 1e-9)).all()  # the sets tried are among all sets
        if j == 1:
            np.testing.assert_allclose(found[0], largest)


def test_additions_are_those_of_models_with_the_rows() -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(30), rng.exponential(size=30)])
    y = (rng.random(30) < 0.3).astype(float)
    values, responses = np.linspace(0, 8, 9), np.array([0.0, 1.0])
    choices = [([1], values[:, np.newaxis]), ([0], responses[:, np.newaxis])]
    found = largest_additions(X, y, choices, 3, 0)
    moved = []
    for x, response in itertools.product(values, responses):
        added = np.vstack([X, np.tile([1.0, x], (3, 1))]), np.concatenate([y, np.full(3, response)])
        moved.append(abs(coefficients(*added) - coefficients(X, y)))
    np.testing.assert_allclose(found, np.max(moved, axis=0))
