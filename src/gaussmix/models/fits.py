r"""Models of one column on others, from a private second moment: post-processing, which costs no privacy.

A model is fitted in encoded units, where every column has its declared weight, and reported in the user's. With entries
(x - centre)/scale, y ≈ Σ θ_j x̃_j becomes

.. math:: y = c_y + s_y \sum_j \theta_j \frac{x_j - c_j}{s_j} .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Categorical, Numeric, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.terms import Block
from gaussmix.errors import ArgumentError, ArgumentTypeError
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import (
    Coding,
    Merge,
    Reference,
    is_marked,
    needed_parts,
    part_name,
    parts_without,
    sub_schema,
)
from gaussmix.models.prediction import Prediction, decoded_values, features_of, predicted
from gaussmix.models.problem import Problem, Response, sources_of
from gaussmix.models.results import Asked, FittedModel
from gaussmix.models.transcript import Transcript

__all__ = [
    "RegressionModel",
    "clipped",
    "feature_indices",
    "fit_regressions",
    "linear_values",
    "number_response",
]


@dataclass(frozen=True, repr=False)
class RegressionModel(FittedModel):
    """A linear model fitted from a release.

    Attributes
    ----------
    target : str
        The column that is explained.
    coef : dict of str to float
        Per encoded column, in the user's units, as it predicts best: per unit of a number, for true against false, for
        a level. For estimates with intervals see ``params``.
    intercept : float
        0 if the release has no intercept column.
    certificate : Certificate or None
        What was spent on the release.
    """

    target: str
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> Problem:
        """The regression as an inference problem."""
        schema = self.statistic.schema
        response = number_response(schema, self.target)
        return Problem.of(self.statistic.noisy, schema, response, self.coef, merge=merge, reference=reference)

    def prediction_interval(self, data: Any, alpha: float = 0.05) -> Floats:
        """Intervals, shape (rows, 2), that hold the target of a new row with probability about 1 - alpha.

        Errors are taken to be normal, with the residual variance that the release shows; the number of rows in it is
        the release's own noisy one, from its intercept column. The coefficients' own uncertainty, small beside the
        residuals wherever a model is worth using, is left out.
        """
        alpha = check.in_interval(0, 1, alpha=alpha)
        schema = self.statistic.schema
        if not schema.intercept:
            raise ArgumentError(
                "prediction_interval needs a release with an intercept column, which holds the row count."
            )
        response, noisy = number_response(schema, self.target), self.statistic.noisy
        fitted = schema.units.combination(self.coef, self.intercept, about=response.centre)
        residual, _ = noisy.quadratic(response.vector - fitted / response.scale)
        rows, _ = noisy.quadratic(schema.units.one)
        deviation = response.scale * float(np.sqrt(max(residual, 0.0) / max(rows, 1.0)))
        middle = self.predict(data)
        half = float(stats.norm.isf(alpha / 2)) * deviation
        return np.column_stack([middle - half, middle + half])

    def get_prediction(self, data: Any, **summary: Unpack[Asked]) -> Prediction:
        """Means that ``params`` predict for the rows of a table, with ``conf_int()``, under statsmodels' names.

        For the estimand of ``summary``, whose options it takes: the table's own regression, or the population's. New
        rows scatter about these means: :meth:`prediction_interval`.
        """
        schema, own = self.statistic.schema, self.summary(**summary)
        merge, reference = summary.get("merge"), summary.get("reference")
        coding = Coding.of(schema, sources_of(schema, self.coef), merge=merge, reference=reference)
        return predicted(own, features_of(schema, coding, data))

    def predict(self, data: Any) -> Floats:
        """Predictions for a table with the model's columns, clipped to the target's declared bounds.

        Values are clipped as when the release was made.
        """
        schema = self.statistic.schema
        return clipped(schema, self.target, linear_values(schema, self.coef, self.intercept, data))


def fit_regressions(
    statistic: Transcript, targets: Sequence[str], on: Sequence[str] | None
) -> dict[str, RegressionModel]:
    """Least squares of numbers, or of true and false as 1 and 0, on the same other columns."""
    schema = statistic.schema
    responses = [number_response(schema, target) for target in targets]
    features = feature_indices(schema, targets, on)
    thetas = statistic.solve(features, np.column_stack([response.vector for response in responses]))
    models = {}
    for target, response, theta in zip(targets, responses, thetas.T, strict=True):
        coef, intercept = schema.units.coefficients(features, theta, centre=response.centre, scale=response.scale)
        models[target] = RegressionModel(part_name(schema, target), coef, intercept, statistic)
    return models


def clipped(schema: Schema, target: str, values: Floats) -> Floats:
    """Predictions of a number, or of true and false as 1 and 0, within the declared bounds."""
    column = schema.parts[target]
    return np.clip(values, *((column.lower, column.upper) if isinstance(column, Numeric) else (0.0, 1.0)))


def number_response(schema: Schema, target: str) -> Response:
    """A numeric or boolean column as a response."""
    target = part_name(schema, target)
    column = schema.parts[target]
    if isinstance(column, Block) or is_marked(schema, target):
        raise ArgumentError(
            f"{target!r} cannot be explained: it is a term of several numbers or a power, or is 0 where it is missing. "
            "Explain a number, its logarithm, or a Boolean."
        )
    if isinstance(column, Categorical):
        raise ArgumentError(f"Column {target!r} is categorical: use classify, or explain a number.")
    if isinstance(column, Vector):
        raise ArgumentError(f"Column {target!r} is a vector: regress on a number.")
    return Response.of(schema, target)


def feature_indices(schema: Schema, targets: Sequence[str], on: Sequence[str] | None) -> list[int]:
    """Indices of the encoded columns of the features, the intercept last.

    By default all parts explain, but for those that are made of a target's columns.
    """
    if isinstance(on, str):
        raise ArgumentTypeError(f"on must be a list of columns, got {on!r}: write on=[{on!r}].")
    targets = [part_name(schema, target) for target in targets]
    chosen = parts_without(schema, targets) if on is None else [part for text in on for part in schema.resolve(text)]
    for name in chosen:
        if name in targets:
            raise ArgumentError(f"Column {name!r} cannot explain itself: leave it out of on=.")
    if on is not None and len(set(on)) < len(on):
        raise ArgumentError("on names a column twice.")
    chosen = needed_parts(schema, list(dict.fromkeys(chosen)))  # poly(age, 2) and age share one
    found = [index for name in chosen for index in schema.groups[name]] + list(schema.groups.get(INTERCEPT, ()))
    if not found:
        raise ArgumentError("There is nothing to explain the target with: name columns in on=.")
    return found


def linear_values(schema: Schema, coef: dict[str, float], intercept: float, data: Any) -> Floats:
    """Intercept plus the sum of coefficients times clipped values in the user's units."""
    part = sub_schema(schema, {column.source for column in schema.encoded if column.name in coef and column.source})
    gamma, intercept = schema.units.slopes(coef, intercept)
    slopes = np.array([gamma.get(name, 0.0) for name in part.names])  # the constant column is not in coef
    found = [intercept + values @ slopes for values in decoded_values(part, data)]
    return np.concatenate(found) if found else np.empty(0)
