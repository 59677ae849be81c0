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
from gaussmix.models.discriminant import Discriminant, estimate_discriminant
from gaussmix.models.fits import column_of, feature_indices, linear_values, part_name, unit_vector, user_units
from gaussmix.models.odds import OddsRatios, discriminant_summary
from gaussmix.models.problem import Problem, Response, regression_problem
from gaussmix.models.sketch import Variant
from gaussmix.models.solvers import response_scale
from gaussmix.models.summarised import Summarised
from gaussmix.models.summary import LARGEST, Estimand, Summary, summarise
from gaussmix.models.transcript import Statistic
from gaussmix.tables.columns import Boolean, Categorical
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["RADIUS", "ClassificationModel", "fit_classification"]

RADIUS = 6.0
"""Margins that the quadratic surrogate is made for, unless said."""


@dataclass(frozen=True)
class ClassificationModel(Summarised):
    """Log odds of a column with two values, linear in others, fitted from a release.

    Attributes
    ----------
    target : str
        The column that is explained.
    classes : tuple
        Its two values; coefficients are for the second.
    coef, intercept
        As in :class:`gaussmix.models.fits.RegressionModel`, for the log odds.
    variant : {"exact", "paper"}
        The discriminant (:mod:`gaussmix.models.discriminant`), or the quadratic surrogate of the logistic loss.
    surrogate_radius : float or None
        Largest margin that the surrogate is made for; None for the discriminant.
    """

    target: str
    classes: tuple[Any, Any]
    coef: dict[str, float]
    intercept: float
    variant: Variant
    surrogate_radius: float | None
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
        """Intervals for discriminant coefficients, on the scale of log odds, of the table or of its population.

        Where features are normal within classes, with one covariance, they are the coefficients of logistic regression;
        docs/inference.md has how far they are from it on real tables. With ``variant="paper"`` they are those of the
        surrogate: what least squares with response ±1 gives, times a constant. Parameters as in
        :meth:`gaussmix.models.fits.RegressionModel.summary`; ``"ridge"`` is for the surrogate alone.
        """
        own = self.problem(merge=merge, reference=reference)
        return self.summary_of(own, estimand=estimand, n_rows=n_rows, largest=largest)

    def summary_of(
        self, problem: Problem, *, estimand: Estimand = "table", n_rows: int | None = None, largest: float = LARGEST
    ) -> Summary:
        """The summary of the model's problem, whatever its columns are called."""
        if self.surrogate_radius is not None:
            return summarise(problem, estimand=estimand, n_rows=n_rows, largest=largest)
        return discriminant_summary(problem, estimand=estimand, n_rows=n_rows, largest=largest)

    def odds_ratios(
        self,
        alpha: float = 0.05,
        *,
        estimand: Estimand = "table",
        n_rows: int | None = None,
        largest: float = LARGEST,
        merge: Merge | None = None,
        reference: Reference | None = None,
    ) -> OddsRatios:
        """Exp of the discriminant coefficients by name, with intervals of level 1 - alpha.

        Parameters as in :meth:`summary`, which says what they are intervals of. The surrogate has no odds ratios.
        """
        if self.surrogate_radius is not None:
            raise ArgumentError('The surrogate has no odds ratios: use variant="exact".')
        own = self.summary(estimand=estimand, n_rows=n_rows, largest=largest, merge=merge, reference=reference)
        return OddsRatios.of(own, alpha)

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> Problem:
        """The regression of the response ±1 as an inference problem: 0/1 or, of the surrogate, log odds."""
        schema = self.statistic.schema
        response, _ = _two_classes(schema, self.target, self.surrogate_radius)
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
    statistic: Statistic, target: str, on: Sequence[str] | None, variant: Variant, radius: float | None = None
) -> ClassificationModel:
    """Log odds of a column with two values on other columns, from least squares on a response ±1."""
    if variant == "paper":
        radius = RADIUS if radius is None else radius
    elif radius is not None:
        raise ArgumentError('surrogate_radius belongs to variant="paper": leave it out.')
    schema = statistic.schema
    target = part_name(schema, target)
    response, classes = _two_classes(schema, target, radius)
    features = feature_indices(schema, [target], on)
    theta = statistic.solve(features, response.vector[:, np.newaxis], variant)[:, 0]
    coef, intercept = user_units(schema, features, theta * response.scale)
    if radius is None:
        own = _discriminant(statistic, response, features, theta)
        coef = {name: own.factor * value for name, value in coef.items()}
        intercept = own.factor * intercept + own.intercept(response.centre)
    return ClassificationModel(target, classes, coef, intercept, variant, radius, statistic)


def _discriminant(statistic: Statistic, response: Response, features: list[int], theta: Floats) -> Discriminant:
    """Class shares and R² of coefficients that predict."""
    schema, a = statistic.schema, response.vector.copy()
    a[features] -= theta
    constant = None
    if schema.intercept:
        (index,) = schema.groups[INTERCEPT]
        constant = unit_vector(schema, {index: schema.encoded[index].scale})
    left = statistic.residual(features, response.vector)
    return estimate_discriminant(statistic.predictive, constant, response.vector, a, residual=left)


def _two_classes(schema: Schema, target: str, radius: float | None) -> tuple[Response, tuple[Any, Any]]:
    """A column with two values as the response -1 and 1; and the two values."""
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
    name = f"{target} = {classes[1]}"
    if radius is None:
        return Response(name, vector, 0.5, 0.5), classes
    return Response(name, vector, 0.0, response_scale(radius), surrogate=True), classes
