"""Private Poisson regression with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussmix._types import Floats
from gaussmix.data.arrays import read_features, read_targets, shape_of
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DeclarationError
from gaussmix.estimators.base import (
    FEATURES,
    LABEL,
    Draw,
    LinearRegressor,
    Released,
    Weighting,
    default_summary,
    glm_summary,
)
from gaussmix.models.families import POISSON
from gaussmix.models.glm import fit_glm_predictor
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, ResultTable, Summary, ratio_table
from gaussmix.releases.certificate import Certificate

__all__ = ["PoissonRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegressor(Named, LinearRegressor, Released):
    """Private Poisson regression of a count on numbers, from noisy second moments of the table.

    The logarithm of the mean is linear in the features, of which those with two values are drawn as booleans and the
    others are taken to be normal, as in :class:`LogisticRegression`. For skewed numbers use
    :meth:`gaussmix.Release.poisson`, whose distribution of the predictors has their shapes.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, passes, n_rows, max_contributions, ledger, random_state
        As in :class:`LinearRegression`.
    bounds_y : (lower, upper)
        Targets are clamped to these bounds; the lower one must be 0 or above.
    fit_intercept : bool
        Must be true: the mean of a count is not determined without an intercept.

    Attributes
    ----------
    coef_ : array (features,)
        In the units of the table.
    intercept_ : float
    release_, privacy_
        As in :class:`LinearRegression`.
    """

    _weighting: ClassVar[Weighting] = "balanced"

    def schema(self, n_features: int, n_targets: int = 1) -> Schema:
        """Return how rows are encoded under the declared bounds: a vector ``X`` and the target ``y``."""
        if not self.fit_intercept:
            raise DeclarationError(f"fit_intercept must be True for Poisson regression, got {self.fit_intercept!r}.")
        if n_targets != 1:
            raise ArgumentError(f"Poisson regression has one target, got {n_targets}.")
        found = super().schema(n_features, n_targets)
        if np.min(np.asarray((self.bounds_y or (0, 0))[0], dtype=np.float64)) < 0:
            raise DeclarationError(
                f"The lower bound of bounds_y must be 0 or above, got {self.bounds_y!r}. Declare a lower bound of 0 if "
                "no value is below it, or use LinearRegression."
            )
        return found

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> PoissonRegressor:
        """Fit to X (rows, features) and y (rows,).

        Parameters
        ----------
        X, y : array
        groups : array (rows,), optional
            As in :meth:`LinearRegression.fit`.
        """
        n_features, shape = shape_of(X, y)
        schema = self.schema(n_features, *shape)
        prepared = self._prepare_release(schema, groups)
        rows, targets = read_targets(self, X, y, several=False, finite=False)  # NaN is found where rows are encoded
        return self._fit_release(self._draw(prepared, X, rows, targets, groups))

    def _prepare(self, schema: Schema) -> Draw:
        prepared = self._prepare_release(schema)

        def draw(rows: RowSource) -> tuple[Floats, Certificate]:
            self._fit_release(prepared.draw(rows))
            return np.empty((0, 1)), self.privacy_

        return draw

    def _fit_theta(self, schema: Schema, theta: Floats, shape: tuple[int, ...]) -> PoissonRegressor:
        return self  # the coefficients were set from the release

    def _fit_release(self, release: Release) -> PoissonRegressor:
        """Fit from a private release alone."""
        self.release_, self.privacy_ = release, release.certificate
        model = fit_glm_predictor(release.statistic, POISSON, LABEL, [FEATURES])
        self.coef_, self.intercept_ = np.array(list(model.coef.values())), model.intercept
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return predicted means, shape (rows,), clamped to ``bounds_y``."""
        check_is_fitted(self)
        with np.errstate(over="ignore"):
            means = np.exp(read_features(self, X) @ self.coef_ + self.intercept_)
        return np.clip(means, *self.bounds_y) if self.bounds_y is not None else means

    def summary(self, *, estimand: Estimand = "table") -> Summary:
        """Return intervals for the coefficients of Poisson regression, computed from the release.

        Parameters
        ----------
        estimand : {"table", "population"}
        """
        check_is_fitted(self)
        return glm_summary(self, POISSON, estimand, self.n_rows)

    @property
    def _table(self) -> Summary:
        return default_summary(self)

    def rate_ratios(self, alpha: float = 0.05, *, estimand: Estimand = "table") -> ResultTable:
        """Return rate ratios with intervals of level 1 - alpha, computed from the release."""
        return ratio_table(self.summary(estimand=estimand), alpha)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = True
        return tags
