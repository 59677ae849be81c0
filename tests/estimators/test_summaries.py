"""Summaries of estimators: those of their releases, with the features' names and the same assumption."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm


@pytest.fixture(scope="module")
def weak():
    """The second feature hardly moves: what it may do is an assumption."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, 3000), 0.003 * rng.standard_normal(3000)])
    return X, np.clip(0.3 * X[:, 0] + 0.2 * rng.standard_normal(3000), -1, 1)


def length(summary, name):
    low, high = summary.conf_int()[name]
    return high - low


def test_the_assumption_of_a_linear_summary_can_be_said(weak):
    X, y = weak
    model = gm.LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1), passes=1, random_state=0).fit(X, y)
    narrow, wide = model.summary(max_effect=0.2), model.summary(max_effect=200.0)
    assert (narrow.max_effect, wide.max_effect, model.summary().max_effect) == (0.2, 200.0, 5.0)
    assert length(narrow, "x0") < length(wide, "x0")
    own = model.release_.ols("y", predictors=["X"]).summary(max_effect=0.2)
    assert list(narrow.conf_int().values()) == list(own.conf_int().values())


def test_the_assumption_of_odds_ratios_can_be_said(weak):
    X, y = weak
    model = gm.LogisticRegression(epsilon=1.0, bounds_X=(-1, 1), classes=(False, True), passes=1, random_state=0)
    model.fit(X, y > 0)
    assert model.summary(max_effect=0.2).max_effect == 0.2
    assert length(model.summary(max_effect=0.2), "x0") < length(model.summary(max_effect=200.0), "x0")
    ends = model.odds_ratios(max_effect=0.2).intervals["x0"]
    assert np.log(ends) == pytest.approx(model.summary(max_effect=0.2).conf_int()["x0"])
