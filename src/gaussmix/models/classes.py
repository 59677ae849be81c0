"""Models of classes, from a private second moment: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
from scipy import special

from gaussmix._types import Floats, Rows
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import Label, Merge, Reference, part_name
from gaussmix.models.fits import feature_indices, linear_values
from gaussmix.models.newton import likelihood_coefficients
from gaussmix.models.odds import OddsRatios
from gaussmix.models.problem import Problem
from gaussmix.models.responses import discriminant_of, two_classes
from gaussmix.models.results import Asked, FittedModel
from gaussmix.models.transcript import Transcript

__all__ = ["ClassificationModel", "fit_classification"]


@dataclass(frozen=True, repr=False)
class ClassificationModel(FittedModel):
    """Log odds of a column with two values, linear in others, fitted from a release.

    Coefficients of :meth:`summary` are those of the discriminant. Where features are normal within classes, with one
    covariance, they are the coefficients of logistic regression; docs/inference.md has how far they are from it on real
    tables.

    Attributes
    ----------
    target : str
        The column that is explained.
    classes : tuple
        Its two values, or ``"all others"`` and one level; coefficients are for the second.
    coef, intercept
        As in :class:`gaussmix.models.fits.RegressionModel`, for the log odds.
    likelihood : bool
        Whether the coefficients are those of private steps on the likelihood (:mod:`gaussmix.models.newton`). Intervals
        and odds ratios are the discriminant's all the same.
    level : object or None
        The level that is held against all others, if one is.
    certificate : Certificate or None
        What was spent on the release.
    """

    target: str
    classes: tuple[Label, Label]
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    likelihood: bool = False
    level: object = None
    certificate: Certificate | None = field(default=None, compare=False)

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> OddsRatios:
        """Exp of the discriminant coefficients by name, with intervals of level 1 - alpha.

        Options as in :meth:`summary`, which says what they are intervals of.
        """
        return OddsRatios.of(self.summary(**options), alpha)

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> Problem:
        """The regression of the response ±1 as an inference problem, 0/1 in the user's units."""
        schema = self.statistic.schema
        response, _ = two_classes(schema, self.target, self.level)
        return Problem.of(self.statistic.noisy, schema, response, self.coef, merge=merge, reference=reference)

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
    statistic: Transcript, target: str, on: Sequence[str] | None, level: object = None
) -> ClassificationModel:
    """Log odds of a column with two values, or of one level, on other columns, from least squares on a response ±1."""
    schema = statistic.schema
    target = part_name(schema, target)
    response, classes = two_classes(schema, target, level)
    features = feature_indices(schema, [target], on)
    if statistic.steps_serve(target, features):
        sign = 1 if classes[1] else -1  # steps are on the log odds of true
        coef, intercept = schema.units.coefficients(features, sign * likelihood_coefficients(statistic)[features])
        return ClassificationModel(target, classes, coef, intercept, statistic, likelihood=True, level=level)
    theta = statistic.solve(features, response.vector[:, np.newaxis])[:, 0]
    coef, intercept = schema.units.coefficients(features, theta, scale=response.scale)
    own = discriminant_of(statistic, response, features, theta)
    coef = {name: own.factor * value for name, value in coef.items()}
    intercept = own.factor * intercept + own.intercept(response.centre)
    return ClassificationModel(target, classes, coef, intercept, statistic, level=level)
