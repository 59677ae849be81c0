"""Private log odds from second moments, behind scikit-learn's interface.

How many private steps on the likelihood a classifier takes: a rule in declared quantities.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Rows
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.data.moments import Moments
from gaussmix.data.rows import SummedRows
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DeclarationError
from gaussmix.estimators.base import (
    FEATURES,
    LABELS_PUBLIC,
    Bounds,
    LinearClassifier,
    Weighting,
    check_moments,
    features_and_targets,
    forget_names,
    named,
    read_classes,
    target_names,
)
from gaussmix.estimators.fitting import check_groups, grouped_rows, prepare_estimator, table_of
from gaussmix.ledger import Ledger
from gaussmix.mechanism.release import Passes, Prepared
from gaussmix.models.classification import WORTH_STEPS, ClassificationModel, fit_classification
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, ResultTable, Summary, ratio_table, summarise
from gaussmix.releases.preconditioning import STEPS, Likelihood

__all__ = ["LogisticRegression", "Steps", "number_of_steps"]


Steps = int | Literal["auto"]

AUTOMATIC_STEPS = 4

LARGE_EPSILON = 1.0
"""Where the number of rows is not public, steps are taken above it."""


def number_of_steps(
    steps: Steps, *, columns: int, epsilon: float, delta: float, n_rows: int | None, alone: bool
) -> int:
    """None, or as many as are asked for; ``"auto"``: 4 where they are worth their budget.

    They are from x = nμ/d = 20 on, d the features and the intercept. Without a public number of rows they are taken for
    ε > 1; never of a ledger, where ``alone`` is false, or without noise.
    """
    if steps != "auto":
        if isinstance(steps, bool) or steps not in (0, *STEPS):
            raise ArgumentError(f'steps must be "auto", 0 or one of {", ".join(map(str, STEPS))}, got {steps!r}.')
        return int(steps)
    if not alone or math.isinf(check.positive(epsilon=epsilon)):
        return 0
    worth = epsilon > LARGE_EPSILON
    if n_rows is not None:
        worth = check.positive_integer(n_rows=n_rows) * gaussian_mu(epsilon, delta) / columns >= WORTH_STEPS
    return AUTOMATIC_STEPS if worth else 0


class LogisticRegression(Named, LinearClassifier):
    """Private log odds of two classes: the linear discriminant, from noisy second moments, or steps on the likelihood.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, fit_intercept, passes, n_rows, max_contributions, ledger, random_state
        As in :class:`LinearRegression`.
    classes : (first, second), optional
        The two labels. Without them they are taken from y, and the certificate says that they are taken to be public.
    steps : int or "auto"
        Private Newton steps on the likelihood itself, from the discriminant on: 3, 4 or 6 of them have two fifths of μ²
        (:mod:`gaussmix.models.classification`). 0, the default: the discriminant. ``"auto"``: 4 if they pay,
        from n μ/d = 20 on if ``n_rows`` is declared, else for ε > 1. Intervals and odds ratios are the discriminant's.

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

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Bounds | None = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        passes: Passes = "auto",
        steps: Steps = 0,
        n_rows: int | None = None,
        max_contributions: int | None = None,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.passes = passes
        self.steps = steps
        self.n_rows = n_rows
        self.max_contributions = max_contributions
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> LogisticRegression:
        """Release noisy second moments of (X, label) and fit from them.

        Parameters
        ----------
        X : array (rows, features)
        y : array (rows,)
            Two labels of any type.
        groups : array (rows,), optional
            As in :meth:`LinearRegression.fit`; not with ``steps``.
        """
        check_groups(groups, self.max_contributions)
        prepared = self._prepare(self._schema_of(X, y))
        rows, second, classes = read_classes(self, X, y, self.classes)
        with grouped_rows(rows, second, groups, prepared, n_rows=self.n_rows) as source:
            return self._fit_release(prepared.draw(source, data=table_of(X)), classes)

    def fit_moments(self, moments: Moments) -> LogisticRegression:
        """Fit to a table that is summed up already: one pass over the rows, many fits. Each spends its own budget.

        Parameters
        ----------
        moments : Moments
            Of rows encoded by :meth:`schema`, true for the second class. ``classes`` must be declared: moments hold no
            labels.
        """
        if self.classes is None:
            raise DeclarationError("classes=(first, second) must be declared: moments hold no labels.")
        n_features, _ = features_and_targets(moments.schema)
        schema = self.schema(n_features)
        prepared = self._prepare(schema)
        check_moments(moments, schema, n_features, n_rows=self.n_rows)
        forget_names(self, n_features)
        return self._fit_release(prepared.draw(SummedRows(moments)), np.asarray(self.classes))

    def _fit_release(self, release: Release, classes: Rows) -> LogisticRegression:
        """Fit from a private release alone."""
        self.release_, self.privacy_, self.classes_ = release, release.certificate, classes
        model = self._model()
        self.coef_, self.intercept_ = np.array([list(model.coef.values())]), np.array([model.intercept])
        return self

    def _weighting(self) -> Weighting:
        return "balanced"

    def _prepare(self, schema: Schema) -> Prepared:
        (label,) = target_names(1)
        steps = number_of_steps(
            self.steps,
            columns=schema.n_columns - 1,
            epsilon=self.epsilon,
            delta=self.delta,
            n_rows=self.n_rows,
            alone=self.ledger is None,
        )
        return prepare_estimator(
            self,
            schema,
            conditions=() if self.classes is not None else (LABELS_PUBLIC,),
            likelihood=Likelihood(label, steps) if steps else None,
        )

    def _model(self) -> ClassificationModel:
        """The model of the label that the release gives."""
        (label,) = target_names(1)
        return fit_classification(self.release_.statistic, label, [FEATURES])

    def summary(self, *, estimand: Estimand = "table") -> Summary:
        """Intervals for the coefficients of the discriminant, from the release alone.

        Parameters
        ----------
        estimand : {"table", "population"}
        """
        check_is_fitted(self)
        model, rows = self._model(), self.n_rows if estimand == "population" else None
        return summarise(named(self, model.problem()), estimand=estimand, n_rows=rows)

    @property
    def _table(self) -> Summary:
        """Computed anew whenever it is asked for: an estimator may be fitted again."""
        return self.summary()

    def odds_ratios(self, alpha: float = 0.05, *, estimand: Estimand = "table") -> ResultTable:
        """Exp of the discriminant's coefficients with intervals of level 1 - alpha, from the release alone.

        They are the odds ratios of logistic regression where features are normal within classes.
        """
        return ratio_table(self.summary(estimand=estimand), alpha)
