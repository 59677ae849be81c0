"""Private logistic regression for two classes, with scikit-learn's interface."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Rows
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.data.arrays import read_classes
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DeclarationError
from gaussmix.estimators.base import (
    FEATURES,
    LABEL,
    LinearClassifier,
    Released,
    Weighting,
    default_summary,
    glm_summary,
    moments_shape,
    summed_rows,
)
from gaussmix.mechanism.release import Prepared
from gaussmix.models.families import LOGIT
from gaussmix.models.glm import fit_glm_predictor
from gaussmix.models.newton_steps import WORTH_STEPS
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, ResultTable, Summary, ratio_table
from gaussmix.releases.preconditioning import STEPS, Likelihood

__all__ = ["LogisticRegression", "Steps"]

Steps = int | Literal["auto"]

AUTOMATIC_STEPS = 4
LARGE_EPSILON = 1.0  # if the number of rows is not public, "auto" takes steps above this ε


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Named, LinearClassifier, Released):
    """Private logistic regression for two classes, from noisy second moments of the table.

    The coefficients solve the likelihood equation (:mod:`gaussmix.models.likelihood`) for features that are normal
    within classes with one covariance, a linear discriminant; with ``steps`` they are those of private Newton steps on
    the likelihood. For categories, booleans and skewed numbers use :meth:`gaussmix.Release.logit`, whose distribution
    of the predictors has their shapes.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, fit_intercept, passes, n_rows, max_contributions, ledger, random_state
        As in :class:`LinearRegression`.
    classes : (first, second), optional
        The two labels. By default they are taken from y, and the certificate states that they are assumed to be public.
    steps : int or "auto"
        Number of private Newton steps on the likelihood, starting at the discriminant: 0 (default), 3, 4 or 6. They use
        two fifths of μ² (:mod:`gaussmix.models.newton_steps`). ``"auto"`` takes 4 steps if n μ/d ≥ 20, or without
        ``n_rows`` if ε > 1, and none with a ledger. Intervals and odds ratios do not use them.

    Attributes
    ----------
    classes_ : array (2,)
        The labels.
    coef_ : array (1, features)
        In the units of the table.
    intercept_ : array (1,)
        0 without an intercept.
    release_, privacy_
        As in :class:`LinearRegression`; the label is the boolean column ``y``, true for the second class.
    """

    steps: Steps = 0

    _weighting: ClassVar[Weighting] = "balanced"

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> LogisticRegression:
        """Fit to X (rows, features) and y (rows,).

        Parameters
        ----------
        X : array (rows, features)
        y : array (rows,)
            Two labels of any type.
        groups : array (rows,), optional
            As in :meth:`LinearRegression.fit`; cannot be combined with ``steps``.
        """
        prepared = self._prepare(self._schema_of(X, y), groups)
        rows, second, classes = read_classes(self, X, y, self.classes, finite=False)
        return self._fit_release(self._draw(prepared, X, rows, second, groups), classes)

    def fit_moments(self, moments: Moments) -> LogisticRegression:
        """Fit to sums over the rows of a table, computed once for many fits. Each fit spends its own budget.

        Parameters
        ----------
        moments : Moments
            Of rows encoded by :meth:`schema`, true for the second class. ``classes`` must be declared, since moments
            contain no labels.
        """
        if self.classes is None:
            raise DeclarationError("classes=(first, second) is required: moments contain no labels.")
        schema = self.schema(moments_shape(moments)[0])
        prepared = self._prepare(schema)
        rows = summed_rows(self, moments, schema)
        return self._fit_release(prepared.draw(rows), np.asarray(self.classes))

    def _fit_release(self, release: Release, classes: Rows) -> LogisticRegression:
        """Fit from a private release alone."""
        self.release_, self.privacy_, self.classes_ = release, release.certificate, classes
        model = fit_glm_predictor(release.statistic, LOGIT, LABEL, [FEATURES])
        self.coef_, self.intercept_ = np.array([list(model.coef.values())]), np.array([model.intercept])
        return self

    def _prepare(self, schema: Schema, groups: ArrayLike | None = None) -> Prepared:
        steps = self._number_of_steps(schema.n_columns - 1)
        likelihood = Likelihood(LABEL, steps) if steps else None
        return self._prepare_release(schema, groups, conditions=self._conditions, likelihood=likelihood)

    def _number_of_steps(self, columns: int) -> int:
        """Return the number of steps for d = ``columns`` features, intercept included, from declared quantities."""
        if self.steps != "auto":
            if isinstance(self.steps, bool) or self.steps not in (0, *STEPS):
                options = ", ".join(map(str, STEPS))
                raise ArgumentError(f'steps must be "auto", 0 or one of {options}, got {self.steps!r}.')
            return int(self.steps)
        if self.ledger is not None or math.isinf(check.positive(epsilon=self.epsilon)):
            return 0
        worth = self.epsilon > LARGE_EPSILON
        if self.n_rows is not None:
            n = check.positive_integer(n_rows=self.n_rows)
            worth = n * gaussian_mu(self.epsilon, self.delta) / columns >= WORTH_STEPS
        return AUTOMATIC_STEPS if worth else 0

    def summary(self, *, estimand: Estimand = "table") -> Summary:
        """Return intervals for the coefficients of logistic regression, computed from the release.

        Its coefficients are estimated without the ridge penalty of ``coef_``, which improves predictions.

        Parameters
        ----------
        estimand : {"table", "population"}
        """
        check_is_fitted(self)
        return glm_summary(self, LOGIT, estimand, self.n_rows)

    @property
    def _table(self) -> Summary:
        return default_summary(self)

    def odds_ratios(self, alpha: float = 0.05, *, estimand: Estimand = "table") -> ResultTable:
        """Return odds ratios with intervals of level 1 - alpha, computed from the release."""
        return ratio_table(self.summary(estimand=estimand), alpha)
