"""Models of classes, from a private second moment: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from gaussmix._types import Floats, Rows
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import Merge, Reference
from gaussmix.models.fits import column_of, feature_indices, linear_values, unit_vector, user_units
from gaussmix.models.problem import Problem, Response, regression_problem
from gaussmix.models.sketch import Variant
from gaussmix.models.solvers import response_scale
from gaussmix.models.summarised import Summarised
from gaussmix.models.summary import LARGEST, Estimand, Summary, summarise
from gaussmix.models.transcript import Statistic
from gaussmix.tables.columns import Boolean, Categorical
from gaussmix.tables.schema import Schema

__all__ = ["ClassificationModel", "fit_classification"]


@dataclass(frozen=True)
class ClassificationModel(Summarised):
    """A logistic model of a column with two values, fitted from a release through the quadratic surrogate.

    Attributes
    ----------
    target : str
        The column that is explained.
    classes : tuple
        Its two values; coefficients are for the second.
    coef, intercept, variant
        As in :class:`gaussmix.models.fits.RegressionModel`, for the log odds.
    surrogate_radius : float
        Largest margin that the surrogate is made for.
    """

    target: str
    classes: tuple[Any, Any]
    coef: dict[str, float]
    intercept: float
    variant: Variant
    surrogate_radius: float
    statistic: Statistic = field(repr=False, compare=False)

    def summary(
        self,
        *,
        estimand: Estimand = "table",
        n_rows: int | None = None,
        largest: float = LARGEST,
        merge: Merge | None = None,
        reference: Reference | None = None,
    ) -> Summary:
        """Intervals for the coefficients of the quadratic surrogate, not of the logistic likelihood.

        The surrogate's coefficients are what least squares with response ±1 gives, times a constant; they share signs
        and ratios with the logistic ones where margins are small. Parameters as in
        :meth:`gaussmix.models.fits.RegressionModel.summary`.
        """
        own = self.problem(merge=merge, reference=reference)
        return summarise(own, estimand=estimand, n_rows=n_rows, largest=largest)

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> Problem:
        """The regression of the response ±1 as an inference problem."""
        schema = self.statistic.schema
        response, _ = _classes(schema, self.target, self.surrogate_radius)
        return regression_problem(self.statistic.noisy, schema, response, self.coef, merge=merge, reference=reference)

    def decision_function(self, data: Any) -> Floats:
        """Log odds of the second class."""
        return linear_values(self.statistic.schema, self.coef, self.intercept, data)

    def predict_proba(self, data: Any) -> Floats:
        """Probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(data))
        return np.column_stack([1 - second, second])

    def predict(self, data: Any) -> Rows:
        """The likelier class."""
        return np.asarray(np.array(self.classes)[(self.decision_function(data) > 0).astype(int)])


def fit_classification(
    statistic: Statistic, target: str, on: Sequence[str] | None, variant: Variant, radius: float
) -> ClassificationModel:
    """Logistic regression of a column with two values on other columns, response ±1."""
    schema = statistic.schema
    response, classes = _classes(schema, target, radius)
    features = feature_indices(schema, [target], on)
    theta = statistic.solve(features, response.vector[:, np.newaxis], variant)[:, 0]
    coef, intercept = user_units(schema, features, theta * response.scale)
    return ClassificationModel(target, classes, coef, intercept, variant, radius, statistic)


def _classes(schema: Schema, target: str, radius: float) -> tuple[Response, tuple[Any, Any]]:
    """A column with two values as the response -1 and 1 of the surrogate; and the two values."""
    column, indices = column_of(schema, target), schema.groups[target]
    if isinstance(column, Boolean):
        classes: tuple[Any, Any] = (False, True)
        vector = unit_vector(schema, {indices[0]: 1 / column.weight})
    elif isinstance(column, Categorical) and len(indices) == 2:
        labels = column.levels if len(column.levels) == 2 else column.labels
        classes = (labels[0], labels[1])
        vector = unit_vector(schema, {indices[0]: -1 / column.weight, indices[1]: 1 / column.weight})
    else:
        raise ArgumentError(f"Column {target!r} must be a boolean or have two levels to be classified.")
    return Response(f"{target} = {classes[1]}", vector, 0.0, response_scale(radius), surrogate=True), classes
