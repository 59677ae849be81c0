"""What the linear baselines share: attributes from coefficients, and prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussmix.encoding import RowEncoder
from gaussmix.estimators import declare_encoder, in_user_units, read_table
from gaussmix.releases import Certificate

__all__ = ["LinearBaseline"]

Floats = NDArray[np.float64]


class LinearBaseline(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC):
    """A linear model of bounded rows; how θ is found is the method's own."""

    data_norm: Any
    bounds_X: Any
    bounds_y: Any
    fit_intercept: bool

    @abstractmethod
    def _theta(self, X: NDArray[Any], y: NDArray[Any], encoder: RowEncoder) -> tuple[Floats, Certificate]:
        """Coefficients in encoded units, and what was spent on them."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit to X (rows, features) and y (rows,) or (rows, targets)."""
        rows, targets = read_table(self, X, y)
        encoder = declare_encoder(
            rows.shape[1],
            1 if targets.ndim == 1 else targets.shape[1],
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=self.bounds_y,
            fit_intercept=self.fit_intercept,
            weight="paper",
        )
        theta, self.privacy_ = self._theta(rows, targets, encoder)
        coef, intercept = in_user_units(theta, encoder)
        self.coef_ = coef[0] if targets.ndim == 1 else coef
        self.intercept_ = float(intercept[0]) if targets.ndim == 1 else intercept
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Predicted targets, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        rows: Floats = validate_data(self, X, reset=False)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = hasattr(self, "epsilon")  # noise exceeds the signal of very small tables
        return tags
