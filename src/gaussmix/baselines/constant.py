"""The predictor that looks at nothing: every table of results has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["Constant"]


class Constant(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Predicts one declared number, whatever the table says: private at no cost.

    Parameters
    ----------
    value : float
        What is predicted.
    """

    def __init__(self, *, value: float = 0.0) -> None:
        self.value = value

    def fit(self, X: ArrayLike, y: ArrayLike) -> Constant:
        """Learn the shapes of X and y, and nothing else."""
        _, targets = validate_data(self, X, y, multi_output=True, y_numeric=True)
        self.shape_ = () if targets.ndim == 1 else (targets.shape[1],)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The declared number, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, reset=False)
        return np.full((len(rows), *self.shape_), float(self.value))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # by design
        return tags
