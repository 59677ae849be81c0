"""PoissonRegressor: the scale of Poisson regression, intervals, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import gaussmix as gm


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(0, 0.5, (40_000, 3)).clip(-2, 2)
    return X, rng.poisson(np.exp(0.3 + X @ [0.8, -0.4, 0.0])).clip(0, 30).astype(float)


def test_it_is_near_poisson_regression_and_has_rate_ratios(table):
    X, y = table
    exact = gm.PoissonRegressor(epsilon=math.inf, bounds_X=(-2, 2), bounds_y=(0, 30)).fit(X, y)
    plain = PoissonRegressor(alpha=0, tol=1e-8).fit(X, y)
    assert exact.coef_ == pytest.approx(plain.coef_, abs=0.02)
    assert exact.intercept_ == pytest.approx(plain.intercept_, abs=0.02)
    private = gm.PoissonRegressor(epsilon=1.0, bounds_X=(-2, 2), bounds_y=(0, 30), random_state=0).fit(X, y)
    for row, value in zip(private.rate_ratios(0.001).rows(), plain.coef_, strict=True):
        assert row["conf.low"] < math.exp(value) < row["conf.high"]
    assert private.params["x0"] == private.summary().params["x0"]
    assert private.score(X, y) > 0.5 * plain.score(X, y) / 2
    assert private.predict(X).max() <= 30


def test_moments_give_the_fit_of_their_rows(table):
    X, y = table[0][:900], table[1][:900]
    declared = {"epsilon": 5.0, "bounds_X": (-2, 2), "bounds_y": (0, 30), "passes": 1, "random_state": 3}
    fitted = gm.PoissonRegressor(**declared).fit(X, y)
    sums = gm.Moments.of_arrays([(X, y)], gm.PoissonRegressor(**declared).schema(3))
    summed = gm.PoissonRegressor(**declared).fit_moments(sums)
    assert np.array_equal(summed.coef_, fitted.coef_)
    assert summed.intercept_ == fitted.intercept_


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bounds_y": (-1, 5)}, "must be 0 or above"),
        ({"fit_intercept": False}, "fit_intercept must be True"),
        ({"bounds_y": None}, "bounds_y=.* is required"),
    ],
)
def test_declarations_are_checked(options, words):
    model = gm.PoissonRegressor(**{"bounds_X": (-1, 1), "bounds_y": (0, 5)} | options)
    with pytest.raises(gm.DeclarationError, match=words):
        model.fit(np.zeros((20, 2)), np.ones(20))


def test_several_targets_are_refused():
    with pytest.raises(gm.ArgumentError, match="one target, got 2"):
        gm.PoissonRegressor(bounds_X=(-1, 1), bounds_y=(0, 5)).fit(np.zeros((20, 2)), np.ones((20, 2)))
