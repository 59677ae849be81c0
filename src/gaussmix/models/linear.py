r"""Models of one column on others, from a private second moment: post-processing, which costs no privacy.

A model is fitted in encoded units, where every column has its declared weight, and reported in the user's. With entries
(x - centre)/scale, y ≈ Σ θ_j x̃_j becomes

.. math:: y = c_y + s_y \sum_j \theta_j \frac{x_j - c_j}{s_j} .

Means that a model predicts for given rows, with intervals from a release alone.

The mean at features x is the intercept of the same regression with its columns measured from x: one functional
ψ = (1, x)ᵀβ of the coefficients, tested as any coefficient is (:mod:`gaussmix.models.inference`). Nothing is divided by
a noisy number, and intervals have the coverage of the coefficients' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Categorical, Numeric, Vector
from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.table import open_table
from gaussmix.data.terms import Block
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError
from gaussmix.models.design import (
    Coding,
    Collapse,
    Problem,
    Reference,
    Response,
    is_marked,
    needed_parts,
    part_name,
    parts_without,
    sources_of,
    sub_schema,
)
from gaussmix.models.inference import Score, weights_of
from gaussmix.models.results import Asked, FittedModel, Frame, ResultTable, Summary
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.transcript import Transcript

__all__ = [
    "Prediction",
    "RegressionModel",
    "clipped",
    "decoded_values",
    "feature_indices",
    "features_of",
    "fit_regressions",
    "linear_values",
    "number_response",
    "predicted",
]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted means under the names that statsmodels gives them.

    Attributes
    ----------
    predicted_mean, se_mean : arrays (rows,)
        From the coefficients in ``params``, without the ridge that makes ``predict`` shrink; Wald standard errors.
    """

    predicted_mean: Floats
    se_mean: Floats
    _tests: tuple[Score, ...] = field(repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals of level 1 - alpha for the means, shape (rows, 2); infinite where one is not identified."""
        alpha = check.in_interval(0, 1, alpha=alpha)
        if self._tests:
            return np.array([test.intervals(alpha)[0] for test in self._tests])
        half = float(stats.norm.isf(alpha / 2)) * self.se_mean
        return np.column_stack([self.predicted_mean - half, self.predicted_mean + half])

    def to_frame(self, frame: Frame | None = None, *, alpha: float = 0.05) -> Any:
        """One row a prediction: mean, standard error and both ends of the interval."""
        low, high = self.conf_int(alpha).T
        numbers = {"mean": self.predicted_mean, "mean_se": self.se_mean, "mean_ci_lower": low, "mean_ci_upper": high}
        columns = {name: tuple(map(float, values)) for name, values in numbers.items()}
        return ResultTable("predicted means", columns).to_frame(frame)


def predicted(summary: Summary, features: Floats) -> Prediction:
    """Predictions at rows of features in the user's units, shape (rows, d), in the order of ``summary.params``."""
    found = np.asarray(features @ np.array(list(summary.params.values())))
    error = np.sqrt(np.maximum(np.sum((features @ summary._covariance) * features, axis=1), 0.0))
    score, names = summary._score, list(summary.params)
    if not isinstance(score, Score):
        return Prediction(found, error, ())
    if names[0] != INTERCEPT:
        raise ArgumentError("Intervals of predicted means need a release with an intercept column.")
    tests = tuple(_at(score, row) for row in features)
    return Prediction(np.array([test.estimate[0] for test in tests]), error, tests)


def _at(score: Score, row: Floats) -> Score:
    """The tests with the mean at a row in the place of the intercept."""
    functionals, offset = score.functionals.copy(), score.offset.copy()
    functionals[0], offset[0] = row @ score.functionals, row @ score.offset
    weights = weights_of(score.pilot, score.noisy.moment[:-1, :-1], functionals)
    return replace(score, functionals=functionals, offset=offset, weights=weights)


def features_of(schema: Schema, coding: Coding, data: Any) -> Floats:
    """Rows of a table as the features of a model in the user's units, clipped as in the release: shape (rows, d)."""
    if schema.terms or any(is_marked(schema, name) for name in schema.columns):
        raise ArgumentError("Intervals of predicted means are for schemas without terms and missing-indicators.")
    part = Schema({name: column for name, column in schema.columns.items() if name in coding.sources}, intercept=0.0)
    values = np.concatenate([np.empty((0, len(part.names))), *decoded_values(part, data)])
    place = {name: index for index, name in enumerate(part.names)}
    members = [
        [place[schema.names[i]] for i in np.flatnonzero(row)] if source else []
        for source, row in zip(coding.sources, coding.rows, strict=True)
    ]
    return np.column_stack([values[:, own].sum(axis=1) if own else np.ones(len(values)) for own in members])


def decoded_values(part: Schema, data: Any) -> Iterator[Floats]:
    """Yield the rows of a table block by block in the user's units, values clipped as in a release of ``part``."""
    plan = BlockEncoder.plain(part)
    with closing(open_table(data).batches(list(part.columns), types=part.text_types)) as stream:
        for batch in stream:
            rows = encode_batch(batch, part, plan)
            if len(rows) < batch.num_rows:
                raise DataError(
                    "Rows with missing values cannot be predicted: drop them from the table, or fill them in."
                )
            yield part.units.decode(rows)


@dataclass(frozen=True, repr=False)
class RegressionModel(FittedModel):
    """A linear model fitted from a release.

    Attributes
    ----------
    response : str
        The response column.
    coef : dict of str to float
        Per encoded column, in the user's units, as it predicts best: per unit of a number, for true against false, for
        a level. For estimates with intervals see ``params``.
    intercept : float
        0 if the release has no intercept column.
    certificate : Certificate or None
        What was spent on the release.
    """

    response: str
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """The regression as an inference problem."""
        schema = self.statistic.schema
        response = number_response(schema, self.response)
        return Problem.of(self.statistic.noisy, schema, response, self.coef, collapse=collapse, reference=reference)

    def prediction_interval(self, data: Any, alpha: float = 0.05) -> Floats:
        """Intervals, shape (rows, 2), that hold the response of a new row with probability about 1 - alpha.

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
        response, noisy = number_response(schema, self.response), self.statistic.noisy
        fitted = schema.units.combination(self.coef, self.intercept, about=response.centre)
        residual, _ = noisy.quadratic(response.vector - fitted / response.scale)
        rows, _ = noisy.quadratic(schema.units.one)
        residual_sd = response.scale * float(np.sqrt(max(residual, 0.0) / max(rows, 1.0)))
        middle = self.predict(data)
        half = float(stats.norm.isf(alpha / 2)) * residual_sd
        return np.column_stack([middle - half, middle + half])

    def get_prediction(self, data: Any, **summary: Unpack[Asked]) -> Prediction:
        """Means that ``params`` predict for the rows of a table, with ``conf_int()``, under statsmodels' names.

        For the estimand of ``summary``, whose options it takes: the table's own regression, or the population's. New
        rows scatter about these means: :meth:`prediction_interval`.
        """
        schema, own = self.statistic.schema, self.summary(**summary)
        collapse, reference = summary.get("collapse"), summary.get("reference")
        coding = Coding.of(schema, sources_of(schema, self.coef), collapse=collapse, reference=reference)
        return predicted(own, features_of(schema, coding, data))

    def predict(self, data: Any) -> Floats:
        """Predictions for a table with the model's columns, clipped to the response's declared bounds.

        Values are clipped as when the release was made.
        """
        schema = self.statistic.schema
        return clipped(schema, self.response, linear_values(schema, self.coef, self.intercept, data))


def fit_regressions(
    statistic: Transcript, responses: Sequence[str], predictors: Sequence[str] | None
) -> dict[str, RegressionModel]:
    """Least squares of numbers, or of true and false as 1 and 0, on the same other columns."""
    schema = statistic.schema
    coded = [number_response(schema, response) for response in responses]
    features = feature_indices(schema, responses, predictors)
    thetas = statistic.solve(features, np.column_stack([own.vector for own in coded]))
    models = {}
    for response, own, theta in zip(responses, coded, thetas.T, strict=True):
        coef, intercept = schema.units.coefficients(features, theta, centre=own.centre, scale=own.scale)
        models[response] = RegressionModel(part_name(schema, response), coef, intercept, statistic)
    return models


def clipped(schema: Schema, response: str, values: Floats) -> Floats:
    """Predictions of a number, or of true and false as 1 and 0, within the declared bounds."""
    column = schema.parts[response]
    return np.clip(values, *((column.lower, column.upper) if isinstance(column, Numeric) else (0.0, 1.0)))


def number_response(schema: Schema, response: str) -> Response:
    """A numeric or boolean column as a response."""
    response = part_name(schema, response)
    column = schema.parts[response]
    if isinstance(column, Block) or is_marked(schema, response):
        raise ArgumentError(
            f"{response!r} cannot be a response: it is a term of several columns or a power, or 0 stands for its "
            "missing values. Use a numeric column, its logarithm, or a boolean column."
        )
    if isinstance(column, Categorical):
        raise ArgumentError(f"Column {response!r} is categorical: use logit or mnlogit.")
    if isinstance(column, Vector):
        raise ArgumentError(f"Column {response!r} is a vector: a response must be one number.")
    return Response.of(schema, response)


def feature_indices(schema: Schema, responses: Sequence[str], predictors: Sequence[str] | None) -> list[int]:
    """Indices of the encoded columns of the features, the intercept last.

    By default all parts are predictors, except those that are made of a response's columns.
    """
    if isinstance(predictors, str):
        raise ArgumentTypeError(
            f"predictors must be a list of columns, got {predictors!r}: write predictors=[{predictors!r}]."
        )
    responses = [part_name(schema, response) for response in responses]
    chosen = (
        parts_without(schema, responses)
        if predictors is None
        else [part for text in predictors for part in schema.resolve(text)]
    )
    for name in chosen:
        if name in responses:
            raise ArgumentError(f"Column {name!r} is the response and cannot also be a predictor.")
    if predictors is not None and len(set(predictors)) < len(predictors):
        raise ArgumentError("predictors names a column twice.")
    chosen = needed_parts(schema, list(dict.fromkeys(chosen)))  # poly(age, 2) and age share one
    found = [index for name in chosen for index in schema.groups[name]] + list(schema.groups.get(INTERCEPT, ()))
    if not found:
        raise ArgumentError("No predictors are left: name columns in predictors=.")
    return found


def linear_values(schema: Schema, coef: dict[str, float], intercept: float, data: Any) -> Floats:
    """Intercept plus the sum of coefficients times clipped values in the user's units."""
    part = sub_schema(schema, {column.source for column in schema.encoded if column.name in coef and column.source})
    gamma, intercept = schema.units.slopes(coef, intercept)
    slopes = np.array([gamma.get(name, 0.0) for name in part.names])  # the constant column is not in coef
    found = [intercept + values @ slopes for values in decoded_values(part, data)]
    return np.concatenate(found) if found else np.empty(0)
