"""Summaries of estimators: those of their releases, with the features' names."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import gaussmix as gm


@pytest.fixture(scope="module")
def weak():
    """The second feature hardly moves: it is not identified, and does not hide the first."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, 3000), 0.003 * rng.standard_normal(3000)])
    return X, np.clip(0.3 * X[:, 0] + 0.2 * rng.standard_normal(3000), -1, 1)


def test_a_weak_feature_is_left_out_by_its_name(weak):
    X, y = weak
    model = gm.LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1), passes=1, random_state=0).fit(X, y)
    summary = model.summary()
    assert list(summary.left_out) == ["x1"]
    assert summary.pvalues["x0"] < 1e-6
    own = model.release_.ols("y", predictors=["X"]).summary()
    np.testing.assert_array_equal(list(summary.conf_int().values()), list(own.conf_int().values()))
    assert model.t_test("x0 = 0.3").pvalue[0] > 1e-4
    assert model.coef_.shape == (2,)  # the estimator's own coefficients are those of the ridge


def test_odds_ratios_are_those_of_the_summary(weak):
    X, y = weak
    model = gm.LogisticRegression(epsilon=1.0, bounds_X=(-1, 1), classes=(False, True), passes=1, random_state=0)
    model.fit(X, y > 0)
    first, second = model.odds_ratios().rows()
    assert np.log([first["conf.low"], first["conf.high"]]) == pytest.approx(model.summary().conf_int()["x0"])
    assert np.isnan(second["odds.ratio"])


@pytest.mark.parametrize("kind", [gm.LinearRegression, gm.LogisticRegression, gm.PoissonRegressor])
def test_the_summary_is_computed_when_it_is_read_once_for_each_fit(weak, kind, monkeypatch):
    X, y = weak
    computed = []
    own = kind.summary
    monkeypatch.setattr(kind, "summary", lambda self, **options: computed.append(self) or own(self, **options))
    bounds = {"classes": (False, True)} if kind is gm.LogisticRegression else {"bounds_y": (-1, 1)}
    if kind is gm.PoissonRegressor:
        y, bounds = np.round(5 * (y + 1)), {"bounds_y": (0, 10)}
    model = kind(epsilon=1.0, bounds_X=(-1, 1), passes=1, random_state=0, **bounds)
    y = y > 0 if kind is gm.LogisticRegression else y
    shown = model.fit(X, y)._repr_mimebundle_()  # what a notebook calls
    assert kind.__name__ in shown["text/html"]
    assert {"coef_", "params", "bse", "summary", "fit"} <= set(dir(model))
    assert len(computed) == 0
    first = model.params
    inspect.getmembers(model)
    assert len(computed) == 1
    assert model.fit(X[::2], y[::2]).params != first
    assert len(computed) == 2
