"""A model of rates, from a private second moment: post-processing, which costs no privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.columns import Numeric
from gaussmix.data.schema import Schema
from gaussmix.data.terms import Block
from gaussmix.errors import ArgumentError
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import Coding, Merge, Reference, is_marked, part_name
from gaussmix.models.families import Registration
from gaussmix.models.fits import feature_indices, linear_values
from gaussmix.models.problem import Problem, Response, sources_of
from gaussmix.models.rates import RATES, Design, rate_scale
from gaussmix.models.results import Asked, FittedModel, ResultTable, ratio_table
from gaussmix.models.transcript import Transcript

__all__ = ["REGISTRATION", "RateModel", "fit_rates"]


@dataclass(frozen=True, repr=False)
class RateModel(FittedModel):
    """The logarithm of a number's mean, linear in other columns, fitted from a release by moments.

    Coefficients are those of Poisson regression where numbers are normal within levels; docs/results.md has how far
    they are from it on real tables. ``"table"`` is the only estimand of :meth:`summary`.

    Attributes
    ----------
    target : str
        The column that is explained: a count, or another number from 0 up.
    coef : dict of str to float
        As in :class:`gaussmix.models.fits.RegressionModel`, for the logarithm of the mean; levels of a category are
        measured from its first.
    intercept : float
    certificate : Certificate or None
        What was spent on the release.
    """

    target: str
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    def rate_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Factors by which features multiply the mean: term, rate.ratio, conf.low, conf.high, p.value.

        Exp of :meth:`summary`, whose options it takes: per unit of a number, for true against false, for a level
        against the one that its category is measured from. A p-value is below α exactly where the interval of level
        1 - α leaves 1 out. Where a coefficient is not identified its ratio is NaN, its interval (0, inf).
        """
        return ratio_table(self.summary(**options), alpha)

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> Problem:
        """Least squares of the target as an inference problem."""
        statistic, response = self.statistic, _count(self.statistic.schema, self.target)
        return Problem.of(
            statistic.noisy, statistic.schema, response, list(self.coef), merge=merge, reference=reference
        )

    def predict(self, data: Any) -> Floats:
        """Means for a table with the model's columns, clipped to the target's declared bounds.

        Values are clipped as when the release was made.
        """
        schema = self.statistic.schema
        target = schema.columns[self.target]
        with np.errstate(over="ignore"):
            found = np.exp(linear_values(schema, self.coef, self.intercept, data))
        return np.clip(found, *((target.lower, target.upper) if isinstance(target, Numeric) else (0.0, np.inf)))


def fit_rates(statistic: Transcript, target: str, on: Sequence[str] | None) -> RateModel:
    """The logarithm of a number's mean on other columns, from least squares and means of levels.

    Coefficients that predict are made from those of :meth:`Release.regress`; a level whose mean is not told from 0 has
    the first-order value, b/ȳ.
    """
    schema = statistic.schema
    target = part_name(schema, target)
    response = _count(schema, target)
    features = feature_indices(schema, [target], on)
    _check_features(schema, features)
    theta = statistic.solve(features, response.vector[:, np.newaxis])[:, 0]
    slopes, constant = schema.units.coefficients(features, theta, centre=response.centre, scale=response.scale)
    coding = Coding.of(schema, sources_of(schema, list(slopes)))
    b = np.array([slopes[column.name] for column in coding.columns[1:]])
    for source, (name, _) in coding.references.items():
        b[[index - 1 for index in coding.groups[source]]] -= slopes[name]
        constant += slopes[name]
    noisy = statistic.predictive.mapped(np.vstack([coding.rows, response.vector]))
    scale = rate_scale(noisy, Design.of(coding, response.centre, response.scale), np.append(constant, b), target=target)
    intercept, *found = ((np.append(constant, b) + np.where(scale.unknown, 0.0, scale.added)) / scale.v).tolist()
    return RateModel(target, dict(zip(coding.names[1:], found, strict=True)), intercept, statistic)


def _count(schema: Schema, target: str) -> Response:
    """A number from 0 up as a response."""
    column = schema.columns.get(target)
    if not schema.intercept:
        raise ArgumentError("rates need a release with an intercept column, which means are measured by.")
    if not isinstance(column, Numeric) or is_marked(schema, target):
        raise ArgumentError(
            f"rates explain a count, or another number from 0 up, that is never missing: {target!r} is not declared as "
            "one. Use classify for true and false and for levels, regress for other numbers."
        )
    if column.lower < 0:
        raise ArgumentError(
            f"rates explain numbers from 0 up: {target!r} is declared from {column.lower:g}. Use regress, or declare "
            "its lower bound as 0 in another release if it cannot be below."
        )
    return Response.of(schema, target, RATES)


def _check_features(schema: Schema, features: list[int]) -> None:
    """Refuse terms: least squares has a square, or a product, wherever the logarithm of the mean is a straight line."""
    sources = dict.fromkeys(schema.encoded[index].source for index in features)
    refused = [name for name in sources if name and (isinstance(schema.parts[name], Block) or is_marked(schema, name))]
    if refused:
        raise ArgumentError(
            f"rates are for columns, and {', '.join(map(repr, refused))} {'is' if len(refused) == 1 else 'are'} made "
            "of powers, products or splines, or may be missing: their coefficients would be those of the exponential's "
            "own curve. Name other columns in on=."
        )


REGISTRATION = Registration(
    RATES,
    fit_rates,
    help="""Rate ratios of the column TARGET of a release, a count or another number from 0 up, by moments.

    Near Poisson regression where numbers are normal within levels; intervals are for the table.
    """,
)
