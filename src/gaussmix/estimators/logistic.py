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
from gaussmix.errors import DeclarationError
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
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, ResultTable, Summary, ratio_table
from gaussmix.releases.declared import MODEL_SHARE, DeclaredModel

__all__ = ["LogisticRegression"]

WORTH_STEPS = 20.0
"""n μ/d below which the budget is better spent on the release alone."""

LARGE_EPSILON = 1.0
"""If the number of rows is not public, ``model_share="auto"`` takes steps above this ε."""


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Named, LinearClassifier, Released):
    """Private logistic regression for two classes, from noisy second moments of the table.

    The coefficients solve the likelihood equation (:mod:`gaussmix.models.likelihood`). Features that have two values,
    0 and 1 or their declared bounds, are recognised in the release and drawn as booleans
    (:func:`gaussmix.models.predictor_distribution.two_valued`); the others are normal given these, or have a
    Beta distribution if their mean is within a standard deviation of a bound. Without such a
    feature, and for more than 127 features, all are normal within classes with one covariance, a linear discriminant.
    With ``model_share`` the coefficients are those of private Newton steps on the likelihood, as for models that are
    declared in :func:`gaussmix.release`. For skewed numbers use :meth:`gaussmix.Release.predictor`, whose distribution
    of the predictors has their shapes. :meth:`summary` takes all features as normal.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, fit_intercept, passes, n_rows, max_contributions, ledger, random_state
        As in :class:`LinearRegression`.
    classes : (first, second), optional
        The two labels. By default they are taken from y, and the certificate states that they are assumed to be public.
    model_share : float or "auto"
        Share of μ² for two private Newton steps on the likelihood (:mod:`gaussmix.models.declared`); 0 (default) for
        none. They require an intercept. ``"auto"`` is the default share of :func:`gaussmix.release` if n μ/d ≥ 20, or
        without ``n_rows`` if ε > 1, and 0 with a ledger.

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

    model_share: float | Literal["auto"] = 0.0

    _weighting: ClassVar[Weighting] = "balanced"

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> LogisticRegression:
        """Fit to X (rows, features) and y (rows,).

        Parameters
        ----------
        X : array (rows, features)
        y : array (rows,)
            Two labels of any type.
        groups : array (rows,), optional
            As in :meth:`LinearRegression.fit`.
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
        share = self._share(schema.n_columns - 1)
        models = [DeclaredModel(f"{LABEL} ~ {FEATURES}", "logit")] if share else []
        return self._prepare_release(
            schema, groups, conditions=self._conditions, models=models, model_share=share or MODEL_SHARE
        )

    def _share(self, columns: int) -> float:
        """Return the share of μ² for steps, for d = ``columns`` features, intercept included, from declared quantities.

        0 is no steps.
        """
        if self.model_share != "auto":
            return check.in_interval(0, 1, closed=True, model_share=self.model_share)
        if self.ledger is not None or math.isinf(check.positive(epsilon=self.epsilon)) or not self.fit_intercept:
            return 0.0
        worth = self.epsilon > LARGE_EPSILON
        if self.n_rows is not None:
            n = check.positive_integer(n_rows=self.n_rows)
            worth = n * gaussian_mu(self.epsilon, self.delta) / columns >= WORTH_STEPS
        return MODEL_SHARE if worth else 0.0

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
