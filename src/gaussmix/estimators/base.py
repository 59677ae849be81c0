"""What the linear baselines share: attributes from coefficients, and prediction."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from gaussmix.encoding import RowEncoder
from gaussmix.estimators import (
    declare_encoder,
    features_and_targets,
    forget_names,
    in_user_units,
    read_table,
    summed_up,
    table_moments,
)
from gaussmix.moments import Moments
from gaussmix.releases import Certificate

__all__ = ["LinearBaseline"]

Floats = NDArray[np.float64]


class LinearBaseline(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC):
    """A linear model of bounded rows; how θ is found is the method's own."""

    data_norm: Any
    bounds_X: Any
    bounds_y: Any
    fit_intercept: bool

    n_rows: int | None = None

    @abstractmethod
    def _theta(self, read: Callable[[], Moments], encoder: RowEncoder) -> tuple[Floats, Certificate]:
        """Coefficients in encoded units, and what was spent on them; ``read`` sums the table once all is checked."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit to X (rows, features) and y (rows,) or (rows, targets)."""
        rows, targets = read_table(self, X, y)
        encoder = self.encoder(rows.shape[1], 1 if targets.ndim == 1 else targets.shape[1])
        read = functools.partial(table_moments, rows, targets, encoder, n_rows=self.n_rows)
        return self._fit(read, encoder, single=targets.ndim == 1)

    def fit_moments(self, moments: Moments) -> Any:
        """Fit to a table that is summed up already, with :meth:`encoder`: one pass over the rows, many fits.

        Each fit spends its own budget.
        """
        encoder = self.encoder(*features_and_targets(moments))
        read = functools.partial(summed_up, moments, encoder, n_rows=self.n_rows)
        self._fit(read, encoder, single=encoder.n_targets == 1)
        forget_names(self, encoder.n_features)
        return self

    def encoder(self, n_features: int, n_targets: int = 1) -> RowEncoder:
        """How rows are encoded under the declared bounds."""
        return declare_encoder(
            n_features,
            n_targets,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=self.bounds_y,
            fit_intercept=self.fit_intercept,
            weight="paper",
        )

    def _fit(self, read: Callable[[], Moments], encoder: RowEncoder, *, single: bool) -> Any:
        theta, self.privacy_ = self._theta(read, encoder)
        coef, intercept = in_user_units(theta, encoder)
        self.coef_ = coef[0] if single else coef
        self.intercept_ = float(intercept[0]) if single else intercept
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
