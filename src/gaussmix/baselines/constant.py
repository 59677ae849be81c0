"""The predictor that looks at nothing: every table of results has it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Rows
from gaussmix.estimators.base import checked, without_values

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
        _, targets = checked(self, X, y, multi_output=True, y_numeric=True)
        self.shape_ = () if targets.ndim == 1 else (targets.shape[1],)
        return self

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of the predictions, as scikit-learn has it. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def predict(self, X: ArrayLike) -> Rows:
        """The declared number, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        rows: Rows = checked(self, X, reset=False)
        return np.full((len(rows), *self.shape_), check.real(value=self.value))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # by design
        return tags
