"""Reference predictors: a declared constant, and a ridge regression that is not private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.data.arrays import read_features, read_targets, without_values
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.estimators.base import FEATURES, Draw, LinearRegressor
from gaussmix.estimators.linear import least_squares
from gaussmix.mechanism.release import nonprivate_release
from gaussmix.models.linear import feature_indices
from gaussmix.releases.certificate import Certificate

__all__ = ["Constant", "Ridge", "without_noise"]


def without_noise(made_by: str) -> Draw:
    """Return least squares on the exact Gram matrix, for an infinite ε. **Not private**, and certified as such."""

    def draw(rows: RowSource) -> tuple[Floats, Certificate]:
        release = nonprivate_release(rows.gram(), rows.schema, made_by=made_by)
        return least_squares(release), release.certificate

    return draw


@dataclass(kw_only=True, eq=False, repr=False)
class Constant(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Predict one declared number for every row: private at no cost.

    Parameters
    ----------
    value : float
        The predicted number.
    """

    value: float = 0.0

    def fit(self, X: ArrayLike, y: ArrayLike) -> Constant:
        """Learn the shapes of X and y, and nothing else."""
        _, targets = read_targets(self, X, y, several=True)
        self.shape_ = () if targets.ndim == 1 else (targets.shape[1],)
        return self

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predictions, as scikit-learn does. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def predict(self, X: ArrayLike) -> Rows:
        """Return the declared number, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        return np.full((len(read_features(self, X)), *self.shape_), check.real(value=self.value))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # by design
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(LinearRegressor):
    """Ridge regression, θ = (XᵀX + ridge·I)⁻¹ Xᵀy, which is **not private**.

    Parameters
    ----------
    data_norm, bounds_X, bounds_y, fit_intercept
        As in :class:`gaussmix.LinearRegression`.
    ridge : float
        In the units of encoded rows; the paper's experiments use 1e-6.
    """

    ridge: float = 1e-6

    def _prepare(self, schema: Schema) -> Draw:
        check.positive(finite=True, ridge=self.ridge)
        targets = [name for name in schema.columns if name != FEATURES]
        x, y = feature_indices(schema, targets, None), [schema.groups[name][0] for name in targets]

        def draw(rows: RowSource) -> tuple[Floats, Certificate]:
            release = nonprivate_release(rows.gram(), rows.schema, made_by="Ridge")
            M = release.second_moment
            theta = scipy.linalg.solve(M[np.ix_(x, x)] + self.ridge * np.eye(len(x)), M[np.ix_(x, y)], assume_a="sym")
            return np.asarray(theta), release.certificate

        return draw
