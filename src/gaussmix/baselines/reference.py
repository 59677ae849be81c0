"""Predictors without privacy: a constant and a ridge on the table itself."""

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
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.estimators.base import FEATURES, Bounds, LinearRegressor, checked, without_values
from gaussmix.mechanism.release import nonprivate_release
from gaussmix.models.linear import feature_indices
from gaussmix.models.release import Release
from gaussmix.releases.certificate import Certificate

__all__ = ["Constant", "Ridge", "Unnoised", "blocks_of", "least_squares_of"]


@dataclass(frozen=True)
class Unnoised:
    """A release without noise, certified as protecting nothing."""

    made_by: str

    def draw(self, rows: RowSource) -> Release:
        """The Gram matrix itself."""
        return nonprivate_release(rows.moments(), made_by=self.made_by)


def blocks_of(release: Release) -> tuple[Floats, Floats]:
    """XᵀX and XᵀY in encoded units, the intercept among the features."""
    schema = release.schema
    targets = [name for name in schema.columns if name != FEATURES]
    features = np.array(feature_indices(schema, targets, None))
    responses = np.array([schema.groups[name][0] for name in targets])
    M = release.second_moment
    return M[np.ix_(features, features)], M[np.ix_(features, responses)]


def least_squares_of(release: Release) -> Floats:
    """θ of all targets by least squares."""
    schema = release.schema
    targets = [name for name in schema.columns if name != FEATURES]
    responses = np.eye(schema.n_columns)[:, [schema.groups[name][0] for name in targets]]
    return release.statistic.solve(feature_indices(schema, targets, None), responses)


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


class Ridge(LinearRegressor[Release]):
    """Ridge regression, θ = (XᵀX + ridge·I)⁻¹ Xᵀy, which is **not private**.

    Parameters
    ----------
    data_norm, bounds_X, bounds_y, fit_intercept
        As in :class:`gaussmix.LinearRegression`.
    ridge : float
        In the units of encoded rows; the paper's experiments use 1e-6.
    """

    def __init__(
        self,
        *,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        bounds_y: Bounds | None = None,
        fit_intercept: bool = True,
        ridge: float = 1e-6,
    ) -> None:
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.bounds_y = bounds_y
        self.fit_intercept = fit_intercept
        self.ridge = ridge

    def _prepare(self, schema: Schema) -> Unnoised:
        check.positive(finite=True, ridge=self.ridge)
        return Unnoised("Ridge")

    def _solve(self, drawn: Release, schema: Schema) -> tuple[Floats, Certificate]:
        XX, XY = blocks_of(drawn)
        theta = scipy.linalg.solve(XX + self.ridge * np.eye(len(XX)), XY, assume_a="sym")
        return np.asarray(theta), drawn.certificate
