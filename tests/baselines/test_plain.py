"""Ridge and Constant: what there is to lose, and what there is to gain."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from example_models import BOUNDS, linear_table
from gaussmix import baselines


def test_ridge_is_the_closed_form_on_encoded_rows():
    X, y, _ = linear_table(500)
    model = baselines.Ridge(**BOUNDS, ridge=3.0).fit(X, y)
    A = np.column_stack([X / 10, np.ones(500)])  # encoded units: bounds ±10 and ±200
    theta = np.linalg.solve(A.T @ A + 3.0 * np.eye(5), A.T @ (y / 200))
    assert model.coef_ == pytest.approx(theta[:4] * 200 / 10, rel=1e-3, abs=1e-3)
    assert model.intercept_ == pytest.approx(theta[4] * 200, rel=1e-3, abs=1e-3)
    assert not model.privacy_.is_private
    with pytest.raises(gm.ArgumentError, match="ridge must be a finite number > 0"):
        baselines.Ridge(**BOUNDS, ridge=-1.0).fit(X, y)


def test_constant_looks_at_nothing():
    X, y, _ = linear_table(50)
    assert np.all(baselines.Constant(value=3.0).fit(X, y).predict(X) == 3.0)
    assert baselines.Constant().fit(X, np.column_stack([y, y])).predict(X).shape == (50, 2)
