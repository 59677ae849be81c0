r"""Linear models and predictors of one column, from a private second moment: post-processing, which costs no privacy.

A model is fitted in encoded units, in which every column has its declared weight, and is reported in original units.
With entries (x - centre)/scale, y ≈ Σ θ_j x̃_j becomes

.. math:: y = c_y + s_y \sum_j \theta_j \frac{x_j - c_j}{s_j} .

Predictions of a model use its ``params``. Coefficients that are not identified count as 0, so that a level that was
left out has the prediction of the reference level. `Predictor` is another fit of the same columns: a ridge regression
that is tuned for prediction under the noise and has no intervals.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.data.columns import Categorical, Numeric, Vector
from gaussmix.data.contributions import unit_texts
from gaussmix.data.encode import BlockEncoder, complete_rows, encode_batch, one_column, present
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.table import open_table
from gaussmix.data.terms import Block
from gaussmix.data.transforms import Transform, squares_over_clip
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
    sub_schema,
)
from gaussmix.models.families import LINEAR, Family
from gaussmix.models.inference import Coefficients, critical_value
from gaussmix.models.rendering import NO_BETTER
from gaussmix.models.results import Asked, FittedModel, Frame, ResultTable, Summary
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.transcript import Transcript

__all__ = [
    "Prediction",
    "Predictor",
    "RegressionModel",
    "clipped",
    "decoded_values",
    "feature_indices",
    "features_of",
    "fit_predictor",
    "fit_regressions",
    "linear_values",
    "number_response",
    "row_weights",
]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted means, with the attribute names of statsmodels.

    Attributes
    ----------
    predicted_mean, se_mean : arrays (rows,)
        Means and standard errors, from the coefficients in ``params`` and their covariance.
    linear, se_linear : arrays (rows,)
        Linear predictors and their standard errors.
    inverse : callable
        The mean as a function of the linear predictor.
    exposure : array (rows,) or float
        Factor of the mean.
    """

    predicted_mean: Floats
    se_mean: Floats
    linear: Floats
    se_linear: Floats
    inverse: Callable[[Floats], Floats]
    exposure: Floats | float = 1.0

    @classmethod
    def of_link(
        cls,
        own: Coefficients,
        features: Floats,
        inverse: Callable[[Floats], Floats] = np.asarray,
        derivative: Callable[[Floats], Floats] = np.ones_like,
        exposure: Floats | float = 1.0,
    ) -> Prediction:
        """Return predictions for features in original units, shape (rows, d), in the order of the coefficients."""
        if not own.known[0]:  # every predicted mean includes the intercept
            unknown = np.full(len(features), np.nan)
            return cls(unknown, unknown, unknown, unknown, inverse, exposure)
        variance = np.sum((features @ np.nan_to_num(own.covariance)) * features, axis=1)
        eta, error = features @ np.nan_to_num(own.estimate), np.sqrt(np.maximum(variance, 0.0))
        return cls(exposure * inverse(eta), exposure * derivative(eta) * error, eta, error, inverse, exposure)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level 1 - alpha for the means, shape (rows, 2): those of the linear predictor, mapped."""
        half = critical_value(alpha) * self.se_linear
        ends = (self.exposure * self.inverse(self.linear + side * half) for side in (-1, 1))
        return np.column_stack(list(ends))

    def to_frame(self, frame: Frame | None = None, *, alpha: float = 0.05) -> Any:
        """Return a data frame with one row per prediction: mean, standard error and interval."""
        low, high = self.conf_int(alpha).T
        numbers = {"mean": self.predicted_mean, "mean_se": self.se_mean, "mean_ci_lower": low, "mean_ci_upper": high}
        columns = {name: tuple(map(float, values)) for name, values in numbers.items()}
        return ResultTable("predicted means", columns).to_frame(frame)


def features_of(schema: Schema, coding: Coding, data: Any) -> Floats:
    """Return the features of a model for the rows of a table, clamped, in original units, shape (rows, d).

    Features in original units are those of encoded rows times the inverse of the map of coefficients.
    """
    part = sub_schema(schema, {source for source in coding.sources if source is not None})
    own = [schema.names.index(name) for name in part.names]
    values = np.concatenate([np.empty((0, len(own))), *decoded_values(part, data)])
    rows = np.zeros((len(values), schema.n_columns))
    rows[:, own] = schema.units.encode(values, own)
    if schema.intercept:
        rows[:, list(schema.groups[INTERCEPT])] = schema.rounded_intercept
    return np.asarray(rows @ coding.rows.T @ np.linalg.inv(coding.units.matrix()))


def decoded_values(part: Schema, data: Any) -> Iterator[Floats]:
    """Yield blocks of rows of a table in original units, with values clamped to the bounds of ``part``."""
    plan = BlockEncoder.plain(part)
    with _rows_after_release(), closing(open_table(data).batches(list(part.columns), types=part.text_types)) as stream:
        for batch in stream:
            rows = encode_batch(batch, part, plan)
            if len(rows) < batch.num_rows:
                names = [name for name in part.columns if present(one_column(batch, name)) is not None]
                raise DataError(
                    f"Predictions are not available for rows with missing values in {', '.join(map(repr, names))}. "
                    "Drop these rows, or impute the values."
                )
            yield part.units.decode(rows)


_LATER = (
    ("Correct the name in the schema or privacy unit, or add the column", "Add the column to the table"),
    ("Declare missing=.* in the schema, or correct the table", "Drop the rows with such values, or fill them in"),
    ("Add the levels, or declare unknown=.* in the schema", "Drop the rows with such values, or correct them"),
)
"""Remedies in messages about rows that are to be released, and those about rows that are read afterwards."""


@contextmanager
def _rows_after_release() -> Iterator[None]:
    """Replace the remedies in errors about rows: the schema of a release that was drawn cannot be changed."""
    try:
        yield
    except DataError as error:
        words = str(error)
        for before, after in _LATER:
            words = re.sub(before, after, words)
        raise type(error)(words) from None


def row_weights(statistic: Transcript, data: Any) -> Floats:
    """Return the weights that the last pass gave to rows, in their order (:meth:`gaussmix.Release.weights`)."""
    schema, unit, request = statistic.schema, statistic.unit, statistic.passes[-1].request
    if request is None:  # the declared metric, in which the rows of a unit are scaled to the contribution bound
        transform, clip = Transform.nearest(np.eye(schema.n_columns)), 1.0 if unit is None else unit.max_contributions
    else:
        transform, clip = request.metric.transform, request.clip
    plan, names, types = BlockEncoder.of(schema), list(schema.columns), dict(schema.text_types)
    if unit is not None:
        names, types = [*names, unit.column], {**types, unit.column: pa.string()}
    squares: list[Floats] = []
    declared: list[Floats] = []  # weights of rows beyond a declared norm
    read: list[NDArray[np.bool_]] = []
    units: list[NDArray[Any]] = []
    with _rows_after_release(), closing(open_table(data).batches(names, types=types)) as stream:
        for batch in stream:
            keep = complete_rows(batch, schema)
            read.append(np.ones(batch.num_rows, dtype=bool) if keep is None else keep.to_numpy(zero_copy_only=False))
            rows = encode_batch(batch, schema, plan)
            declared.append(plan.finish(rows) ** 2)
            squares.append(squares_over_clip(rows, transform, clip))
            if unit is not None:
                units.append(np.asarray(unit_texts(unit.column, one_column(batch, unit.column)))[read[-1]])
    total, weights = np.concatenate(squares), np.zeros(sum(map(len, read)))
    if unit is not None:
        _, owner = np.unique(np.concatenate(units).astype(str), return_inverse=True)
        if unit.contribution_bounding == "sample" and (np.bincount(owner) > unit.max_contributions).any():
            raise ArgumentError(
                "Weights cannot be computed for a release that samples rows of privacy units, because the sample is "
                "secret. They are available for releases with contribution_bounding='scale'."
            )
        total = np.asarray(np.bincount(owner, weights=total)[owner], dtype=np.float64)
    weights[np.concatenate(read)] = np.concatenate(declared) / np.maximum(total, 1.0)
    return weights


@dataclass(frozen=True, repr=False)
class RegressionModel(FittedModel):
    """Least squares of one column on others, from a release, on the columns that the release identifies.

    Attributes
    ----------
    response : str
        The response column.
    columns : tuple of str
        Encoded columns of the predictors.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    columns: tuple[str, ...]
    statistic: Transcript = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return the regression as an inference problem."""
        schema = self.statistic.schema
        response = Response.of(schema, self.response)
        return Problem.of(self.statistic.noisy, schema, response, self.columns, collapse=collapse, reference=reference)

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        if not self.statistic.models:
            return super()._summarise(**options)
        from gaussmix.models.declared import sandwich_summary  # which imports this module

        return sandwich_summary(self, options)

    def prediction_interval(self, data: Any, alpha: float = 0.05) -> Floats:
        """Return intervals that contain the response of a new row with probability about 1 - alpha, shape (rows, 2).

        Errors are assumed to be normal, with the residual variance of the table. The error of the coefficients is
        neglected; in a useful model it is small compared with the residuals.
        """
        z = critical_value(alpha)
        if not self.statistic.schema.intercept:
            raise ArgumentError(
                "prediction_interval requires a release with an intercept, because it needs the noisy number of rows."
            )
        middle, half = self.predict(data), z * self._residual_std
        return np.column_stack([middle - half, middle + half])

    @property
    def _residual_std(self) -> float:
        """Standard deviation of the response around its predictions."""
        own = self._table
        fit = own._mean if own.noise_dominates else own._fit
        rows, _ = own._problem.noisy.quadratic(own._problem.one)
        return own._problem.scale * float(np.sqrt(max(fit.residual, 0.0) / max(rows, 1.0)))

    def get_prediction(self, data: Any, **summary: Unpack[Asked]) -> Prediction:
        """Return predicted means for the rows of a table with ``conf_int()``, with statsmodels' names.

        The options are those of ``summary``; intervals are for its estimand, the table or the population. For the
        response of a new row, which varies around its mean, see :meth:`prediction_interval`.
        """
        own = self.summary(**summary)
        if own._problem.coding is None or not own._problem.intercept:
            raise ArgumentError("get_prediction requires a release with an intercept. Use predict.")
        return Prediction.of_link(own._coefficients, features_of(self.statistic.schema, own._problem.coding, data))

    def predict(self, data: Any) -> Floats:
        """Return predictions for a table with the model's columns, clamped to the declared bounds of the response.

        They are computed from ``params``; coefficients that are not identified count as 0. If, at this budget, the
        model predicts no better than the mean of the response, the mean is returned with a warning. Values of the
        table are clamped as in the release.
        """
        own = self._table
        if own.noise_dominates:
            warnings.warn(f"{NO_BETTER} The mean is predicted.", UserWarning, stacklevel=2)
        fit = own._mean if own.noise_dominates else own._fit
        coef, intercept = encoded_coefficients(self.statistic.schema, own._problem, fit.theta)
        return clipped(
            self.statistic.schema, self.response, linear_values(self.statistic.schema, coef, intercept, data)
        )


def encoded_coefficients(schema: Schema, problem: Problem, theta: Floats) -> tuple[dict[str, float], float]:
    """Return coefficients by encoded column, and the intercept, in original units, from θ on a problem's features."""
    coding = problem.coding
    if coding is None:
        raise ArgumentError("Predictions require a model fitted from a release.")
    sources = {source for source in coding.sources if source is not None}
    columns = [i for i, own in enumerate(schema.encoded) if own.source is None or own.source in sources]
    vector = coding.rows.T @ theta
    return schema.units.coefficients(columns, vector[columns], centre=problem.centre, scale=problem.scale)


@dataclass(frozen=True, repr=False)
class Predictor:
    """A predictor of one column from others: a ridge regression tuned for prediction under the privacy noise.

    It predicts better than the models with intervals if the budget is small. Its coefficients are biased towards 0
    (:mod:`gaussmix.releases.shrinkage`).

    Attributes
    ----------
    response : str
        The response column.
    coef : dict of str to float
        Coefficients by encoded column, in original units: per unit of a number, for true against false, per level.
    intercept : float
        0 if the release has no intercept column.
    family : Family
        The mean is a function of the linear predictor for families other than linear ones.
    """

    response: str
    coef: dict[str, float]
    intercept: float
    schema: Schema = field(compare=False)
    family: Family = LINEAR

    def predict(self, data: Any) -> Floats:
        """Return predicted means for a table with the predictors, clamped to the declared bounds of the response."""
        eta = linear_values(self.schema, self.coef, self.intercept, data)
        return clipped(self.schema, self.response, eta if self.family.mean is None else self.family.mean.inverse(eta))

    def __repr__(self) -> str:
        return f"Predictor({self.response!r} from {len(self.coef)} encoded columns)"


def fit_predictor(statistic: Transcript, response: str, predictors: Sequence[str] | None) -> Predictor:
    """Return the ridge regression of a numeric or boolean column on other columns."""
    schema = statistic.schema
    own, features = number_response(schema, response), feature_indices(schema, [response], predictors)
    theta = statistic.solve(features, own.vector[:, np.newaxis])[:, 0]
    coef, intercept = schema.units.coefficients(features, theta, centre=own.centre, scale=own.scale)
    return Predictor(part_name(schema, response), coef, intercept, schema)


def fit_regressions(
    statistic: Transcript, responses: Sequence[str], predictors: Sequence[str] | None, certificate: Certificate | None
) -> dict[str, RegressionModel]:
    """Return the least-squares models of numeric or boolean columns on the same predictors."""
    schema = statistic.schema
    features = feature_indices(schema, responses, predictors)
    columns = tuple(schema.names[i] for i in features if schema.encoded[i].source is not None)
    names = {response: number_response(schema, response).name for response in responses}
    return {response: RegressionModel(name, columns, statistic, certificate) for response, name in names.items()}


def clipped(schema: Schema, response: str, values: Floats) -> Floats:
    """Clamp predictions to the declared bounds of the response; to [0, 1] for a boolean."""
    column = schema.parts[response]
    return np.clip(values, *((column.lower, column.upper) if isinstance(column, Numeric) else (0.0, 1.0)))


def number_response(schema: Schema, response: str) -> Response:
    """Return a numeric or boolean column as a response."""
    response = part_name(schema, response)
    column = schema.parts[response]
    if isinstance(column, Block) or is_marked(schema, response):
        raise ArgumentError(
            f"{response!r} cannot be a response: it is a product, a power or a spline, or has a missing-value "
            "indicator. Use a numeric column, its logarithm, or a boolean column."
        )
    if isinstance(column, Categorical):
        raise ArgumentError(
            f"response must be a numeric or boolean column, but {response!r} is categorical. Use logit or mnlogit."
        )
    if isinstance(column, Vector):
        raise ArgumentError(f"response must be a numeric or boolean column, but {response!r} is a vector.")
    return Response.of(schema, response)


def feature_indices(schema: Schema, responses: Sequence[str], predictors: Sequence[str] | None) -> list[int]:
    """Return the indices of the encoded columns of the predictors, the intercept last.

    By default all parts are predictors, except those derived from the columns of a response.
    """
    if isinstance(predictors, str):
        raise ArgumentTypeError(
            f"predictors must be a list of columns, got one string. Write predictors=[{predictors!r}]."
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
        twice = next(name for k, name in enumerate(predictors) if name in predictors[:k])
        raise ArgumentError(f"predictors must not contain duplicates, got {twice!r} twice.")
    chosen = needed_parts(schema, list(dict.fromkeys(chosen)))  # poly(age, 2) and age have one in common
    found = [index for name in chosen for index in schema.groups[name]] + list(schema.groups.get(INTERCEPT, ()))
    if not found:
        raise ArgumentError("At least one predictor is required. List columns in predictors=.")
    return found


def linear_values(schema: Schema, coef: dict[str, float], intercept: float, data: Any) -> Floats:
    """Return the intercept plus the sum of coefficients times clamped values, in original units."""
    part = sub_schema(schema, {column.source for column in schema.encoded if column.name in coef and column.source})
    gamma, intercept = schema.units.slopes(coef, intercept)
    slopes = np.array([gamma.get(name, 0.0) for name in part.names])  # the constant column is not in coef
    found = [intercept + values @ slopes for values in decoded_values(part, data)]
    return np.concatenate(found) if found else np.empty(0)
