r"""Models of one column on others, from a private second moment: post-processing, which costs no privacy.

A model is fitted in encoded units, where every column has its declared weight, and reported in the user's. With entries
(x - centre)/scale, y ≈ Σ θ_j x̃_j becomes

.. math:: y = c_y + s_y \sum_j \theta_j \frac{x_j - c_j}{s_j} .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from gaussmix import _validation as check
from gaussmix.inference import Problem, Summary, Target, summarise
from gaussmix.schema import INTERCEPT, Boolean, Categorical, Schema
from gaussmix.solvers import as_published, cleaned_ridge, least_squares
from gaussmix.sources import batches
from gaussmix.surrogates import response_scale

__all__ = ["ClassificationModel", "RegressionModel", "SecondMoment", "fit_classification", "fit_regression"]

Floats = NDArray[np.float64]
Method = Literal["cleaned", "published"]


@dataclass(frozen=True)
class SecondMoment:
    """What models are fitted from: RᵀR/k of a sketch, and its public parameters."""

    noisy: Floats
    noise_variance: float
    sketch_size: int
    schema: Schema

    def solve(self, features: Sequence[int], response: Floats, method: Method) -> Floats:
        """θ of the response, a combination of encoded columns, on some of the encoded columns."""
        check.choice(("cleaned", "published"), method=method)
        rows = np.asarray(features)
        if self.noise_variance == 0:
            return least_squares(self.noisy[np.ix_(rows, rows)], (self.noisy[rows] @ response)[:, None])[:, 0]
        if method == "published":
            return as_published(self.noisy[np.ix_(rows, rows)], (self.noisy[rows] @ response)[:, None])[:, 0]
        M = self.noisy - self.noise_variance * np.eye(len(self.noisy))
        s = self.noise_variance / float(np.sqrt(self.sketch_size))
        return cleaned_ridge(M[np.ix_(rows, rows)], (M[rows] @ response)[:, None], entry_noise=s)[:, 0]


@dataclass(frozen=True)
class RegressionModel:
    """A linear model fitted from a release.

    Attributes
    ----------
    target : str
        The column that is explained.
    coef : dict of str to float
        Per encoded column, in the user's units: per unit of a number, for true against false, for a level.
    intercept : float
        0 if the release has no intercept column.
    method : {"cleaned", "published"}
        How coefficients came from the release.
    """

    target: str
    coef: dict[str, float]
    intercept: float
    method: Method
    schema: Schema
    _moment: SecondMoment = field(repr=False, compare=False)

    def summary(self, *, target: Target = "table", n: int | None = None) -> Summary:
        """Coefficients with standard errors, p-values and intervals (:mod:`gaussmix.inference`).

        They are those of ``target``, estimated without the ridge that makes :attr:`coef` predict well, and levels of a
        category are measured from its first one.

        Parameters
        ----------
        target : {"ridge", "table", "population"}
        n : int, optional
            The number of rows, declared public; needed for ``"population"``.
        """
        (index,) = self.schema.groups[self.target]
        column = self.schema.encoded[index]
        response = _unit(len(self.schema.names), {index: 1.0})
        problem = _problem(self, response, column.centre, column.scale, self.target)
        return summarise(problem, target=target, n=n)

    def prediction_interval(self, data: Any, alpha: float = 0.05) -> Floats:
        """Intervals, shape (rows, 2), that hold the target of a new row with probability about 1 - alpha.

        Errors are taken to be normal, with the residual variance that the release shows; the number of rows in it is
        the release's own noisy one, from its intercept column. The coefficients' own uncertainty, small beside the
        residuals wherever a model is worth using, is left out.
        """
        alpha = check.in_interval(0, 1, alpha=alpha)
        if not self.schema.intercept:
            raise ValueError("prediction_interval needs a release with an intercept column, which holds the row count.")
        (index,) = self.schema.groups[self.target]
        column = self.schema.encoded[index]
        problem = _problem(self, _unit(len(self.schema.names), {index: 1.0}), column.centre, column.scale, self.target)
        theta = problem.to_theta(np.array([_in_reference_coding(self, name) for name in problem.names]))
        rows = max((problem.W_xx[0, 0] - problem.noise_variance) / self.schema.intercept**2, 1.0)
        deviation = column.scale * float(np.sqrt(max(problem.residual(theta), 0.0) / rows))
        middle = self.predict(data)
        half = float(stats.norm.isf(alpha / 2)) * deviation
        return np.column_stack([middle - half, middle + half])

    def predict(self, data: Any) -> Floats:
        """Predictions for a table with the model's columns; values are clipped as when the release was made."""
        return _linear(self, data)


@dataclass(frozen=True)
class ClassificationModel:
    """A logistic model of a column with two values, fitted from a release through the quadratic surrogate.

    Attributes
    ----------
    target : str
        The column that is explained.
    classes : tuple
        Its two values; coefficients are for the second.
    coef, intercept, method
        As in :class:`RegressionModel`, for the log odds.
    """

    target: str
    classes: tuple[Any, Any]
    coef: dict[str, float]
    intercept: float
    method: Method
    schema: Schema
    surrogate_radius: float
    _response: Floats = field(repr=False, compare=False)
    _moment: SecondMoment = field(repr=False, compare=False)

    def summary(self, *, target: Target = "table", n: int | None = None) -> Summary:
        """Intervals for the coefficients of the quadratic surrogate, not of the logistic likelihood.

        The surrogate's coefficients are what least squares with response ±1 gives, times a constant; they share signs
        and ratios with the logistic ones where margins are small. Parameters as in :meth:`RegressionModel.summary`.
        """
        name = f"{self.target} = {self.classes[1]}"
        problem = _problem(self, self._response, 0.0, response_scale(self.surrogate_radius), name)
        return summarise(replace(problem, surrogate=True), target=target, n=n)

    def decision_function(self, data: Any) -> Floats:
        """Log odds of the second class."""
        return _linear(self, data)

    def predict_proba(self, data: Any) -> Floats:
        """Probability of the second class."""
        return np.asarray(special.expit(self.decision_function(data)))

    def predict(self, data: Any) -> NDArray[Any]:
        """The likelier class."""
        return np.asarray(np.array(self.classes)[(self.decision_function(data) > 0).astype(int)])


def fit_regression(moment: SecondMoment, target: str, on: Sequence[str] | None, method: Method) -> RegressionModel:
    """Least squares of a number, or of true and false as 1 and 0, on other columns."""
    schema = moment.schema
    if isinstance(_column(schema, target), Categorical):
        raise ValueError(f"Column {target!r} is categorical: use classify, or regress on a number.")
    (index,) = schema.groups[target]
    features = _features(schema, target, on)
    theta = moment.solve(features, _unit(len(schema.names), {index: 1.0}), method)
    centre, scale = schema.decode_map()
    coef, intercept = _user_units(schema, features, theta * scale[index])
    return RegressionModel(target, coef, intercept + float(centre[index]), method, schema, moment)


def fit_classification(
    moment: SecondMoment, target: str, on: Sequence[str] | None, method: Method, radius: float
) -> ClassificationModel:
    """Logistic regression of a column with two values on other columns, response ±1."""
    schema = moment.schema
    column, indices = _column(schema, target), schema.groups[target]
    if isinstance(column, Boolean):
        classes: tuple[Any, Any] = (False, True)
        response = _unit(len(schema.names), {indices[0]: 1 / column.weight})
    elif isinstance(column, Categorical) and len(indices) == 2:
        labels = column.levels if len(column.levels) == 2 else column.labels
        classes = (labels[0], labels[1])
        response = _unit(len(schema.names), {indices[0]: -1 / column.weight, indices[1]: 1 / column.weight})
    else:
        raise ValueError(f"Column {target!r} must be a boolean or have two levels to be classified.")
    features = _features(schema, target, on)
    theta = response_scale(radius) * moment.solve(features, response, method)
    coef, intercept = _user_units(schema, features, theta)
    return ClassificationModel(target, classes, coef, intercept, method, schema, radius, response, moment)


def _in_reference_coding(model: RegressionModel, name: str) -> float:
    """A coefficient measured from the first level of its category, and the intercept with these levels in it."""
    schema = model.schema
    first = {
        source: schema.names[indices[0]]
        for source, indices in schema.groups.items()
        if len(indices) > 1 and schema.names[indices[0]] in model.coef
    }
    if name == INTERCEPT:
        return model.intercept + sum(model.coef[level] for level in first.values())
    source = next(column.source for column in schema.encoded if column.name == name)
    base = model.coef[first[source]] if source in first else 0.0
    return model.coef[name] - base


def _problem(
    model: RegressionModel | ClassificationModel, response: Floats, centre: float, scale: float, name: str
) -> Problem:
    """The regression behind a model as an inference problem: first levels left out, the intercept first."""
    schema, moment = model.schema, model._moment
    kept = [i for i, column in enumerate(schema.encoded) if column.name in model.coef]
    if schema.intercept:
        first = {schema.groups[source][0] for source in schema.columns if len(schema.groups[source]) > 1}
        kept = [schema.groups[INTERCEPT][0], *(i for i in kept if i not in first)]
    W, rows = moment.noisy, np.array(kept)
    own = [schema.encoded[i] for i in kept]
    to_user = np.diag([scale / column.scale for column in own])
    offset = np.zeros(len(kept))
    noise = moment.noise_variance
    y_noise = noise * float(response @ response)
    total = float(response @ W @ response) - y_noise
    if schema.intercept:
        to_user[0, 1:] = [-scale * column.centre / column.scale for column in own[1:]]
        offset[0] = centre
        total -= float(W[kept[0]] @ response) ** 2 / max(W[kept[0], kept[0]] - noise, 1e-300)
    groups = {
        source: tuple(j for j, column in enumerate(own) if column.source == source)
        for source in schema.columns
        if sum(column.source == source for column in own) > 1
    }
    return Problem(
        W_xx=W[np.ix_(rows, rows)],
        w_xy=W[rows] @ response,
        w_yy=float(response @ W @ response),
        response_noise=y_noise,
        noise_variance=noise,
        sketch_size=moment.sketch_size if noise else 0,
        names=tuple(column.name for column in own),
        to_user=to_user,
        offset=offset,
        groups=groups,
        total=total,
        response_name=name,
    )


def _column(schema: Schema, name: str) -> Any:
    if name not in schema.columns:
        raise ValueError(f"Column {name!r} is not in the release; it has {', '.join(schema.columns)}.")
    return schema.columns[name]


def _features(schema: Schema, target: str, on: Sequence[str] | None) -> list[int]:
    """Indices of the encoded columns of the features, the intercept last."""
    if isinstance(on, str):
        raise TypeError(f"on must be a list of columns, got {on!r}: write on=[{on!r}].")
    chosen = [name for name in schema.columns if name != target] if on is None else list(on)
    for name in chosen:
        _column(schema, name)
    if target in chosen:
        raise ValueError(f"Column {target!r} cannot explain itself: leave it out of on=.")
    if len(set(chosen)) < len(chosen):
        raise ValueError("on names a column twice.")
    found = [index for name in chosen for index in schema.groups[name]] + list(schema.groups.get(INTERCEPT, ()))
    if not found:
        raise ValueError("There is nothing to explain the target with: name columns in on=.")
    return found


def _unit(length: int, entries: dict[int, float]) -> Floats:
    vector = np.zeros(length)
    for index, value in entries.items():
        vector[index] = value
    return vector


def _user_units(schema: Schema, features: list[int], theta: Floats) -> tuple[dict[str, float], float]:
    coef, intercept = {}, 0.0
    for index, value in zip(features, theta, strict=True):
        column = schema.encoded[index]
        slope = float(value) / column.scale
        if column.kind == "intercept":
            intercept += slope
        else:
            coef[column.name] = slope
            intercept -= slope * column.centre
    return coef, intercept


def _linear(model: RegressionModel | ClassificationModel, data: Any) -> Floats:
    """Intercept plus the sum of coefficients times clipped values in the user's units."""
    sources = {column.source: None for column in model.schema.encoded if column.name in model.coef}
    part = Schema({name: model.schema.columns[name] for name in sources if name is not None}, intercept=0.0)
    centre, scale = part.decode_map()
    slopes = np.array([model.coef[name] for name in part.names])
    stream = batches(data, list(part.columns), types=part.text_types)
    found = []
    for batch in stream:
        rows = part.encode(batch)
        if len(rows) < batch.num_rows:
            raise ValueError("Rows with missing values cannot be predicted: drop them from the table, or fill them in.")
        found.append(model.intercept + (rows * scale + centre) @ slopes)
    return np.concatenate(found) if found else np.empty(0)
