"""Estimators that protect persons: the same release as of a table with a unit."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from gaussmix import LinearRegression, LogisticRegression
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.ledger import Ledger

N = 3_000
BOUNDS = {"bounds_X": (-1, 1), "random_state": 0, "max_contributions": 3}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (N, 2))
    return X, X @ [0.5, -0.2] + rng.uniform(-0.1, 0.1, N), rng.integers(0, 500, N)


def test_unknown_arguments_are_refused():
    for estimator in (LinearRegression, LogisticRegression):
        assert "max_contributions" in estimator().get_params()
        assert next(iter(inspect.signature(estimator).parameters)) == "epsilon"
        with pytest.raises(TypeError, match="unexpected keyword argument 'fish'"):
            estimator(fish=4)


@pytest.mark.parametrize("passes", [1, 4])
def test_the_release_is_that_of_a_table_with_a_unit(table, passes):
    X, y, who = table
    model = LinearRegression(bounds_y=(-1, 1), passes=passes, epsilon=3.0, **BOUNDS).fit(X, y, groups=who)
    whole = gm.release(
        {"X": X, "y": y, "groups": who},
        schema=model.schema(2),
        epsilon=3.0,
        delta=1e-6,
        passes=passes,
        privacy_unit=gm.PrivacyUnit("groups", 3),
        random_state=0,
    )
    assert len(whole.statistic.passes) == len(model.release_.statistic.passes) == passes
    for mine, theirs in zip(model.release_.statistic.passes, whole.statistic.passes, strict=True):
        np.testing.assert_array_equal(mine.matrix, theirs.matrix)
    assert str(model.privacy_.privacy_unit) == "all rows with the same groups (contributions scaled to at most 3 rows)"


@pytest.mark.parametrize(
    "kind",
    [np.asarray, pd.Series, lambda who: [f"p{i}" for i in who], lambda who: np.array([f"p{i}" for i in who], object)],
)
def test_groups_of_any_kind_and_order(table, kind):
    X, y, who = table
    order = np.random.default_rng(2).permutation(N)
    fits = [
        LinearRegression(bounds_y=(-1, 1), passes=1, **BOUNDS).fit(X[at], y[at], groups=kind(who[at]))
        for at in (np.arange(N), order)
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_labels_and_several_targets(table):
    X, y, who = table
    model = LogisticRegression(epsilon=10.0, classes=("a", "b"), **BOUNDS).fit(X, np.where(y > 0, "b", "a"), groups=who)
    assert model.coef_[0, 0] > 0 > model.coef_[0, 1]
    several = LinearRegression(bounds_y=(-1, 1), epsilon=10.0, **BOUNDS).fit(X, np.column_stack([y, -y]), groups=who)
    assert several.coef_.shape == (2, 2)
    assert several.privacy_.privacy_unit is not None


def test_one_goes_with_the_other(table, tmp_path):
    X, y, who = table
    with pytest.raises(DeclarationError, match="max_contributions must be declared"):
        LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(X, y, groups=who)
    with pytest.raises(ArgumentError, match="requires groups in fit"):
        LinearRegression(bounds_y=(-1, 1), **BOUNDS).fit(X, y)
    with pytest.raises(DataError, match="as many values"):
        LinearRegression(bounds_y=(-1, 1), **BOUNDS).fit(X, y, groups=who[1:])
    with pytest.raises(DataError, match="missing"):
        LinearRegression(bounds_y=(-1, 1), **BOUNDS).fit(X, y, groups=np.append(np.nan, who[1:]))
    ledger = Ledger(tmp_path / "rows.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(ArgumentError):
        LinearRegression(bounds_y=(-1, 1), ledger=ledger, **BOUNDS).fit(X, y, groups=who)
    assert not ledger.entries()


def test_a_ledger_of_groups(table, tmp_path):
    X, y, who = table
    ledger = Ledger(tmp_path / "groups.ledger", epsilon=1.0, delta=1e-6, privacy_unit="groups")
    LinearRegression(bounds_y=(-1, 1), ledger=ledger, **BOUNDS).fit(X, y, groups=who)
    assert len(ledger.entries()) == 1
