"""A model of rates, from a private second moment: post-processing, which costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.certificate import Certificate
from gaussmix.models.coding import Coding, Merge, Reference, is_marked, part_name
from gaussmix.models.fits import feature_indices, linear_values
from gaussmix.models.problem import Problem, Response, sources_of
from gaussmix.models.rates import Design, rate_scale, rate_summary
from gaussmix.models.rendering import notes
from gaussmix.models.results import LARGEST, Estimand, ResultTable, Summary, Tidied
from gaussmix.models.transcript import Statistic
from gaussmix.tables.columns import Numeric
from gaussmix.tables.parts import Block
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["RateModel", "fit_rates"]


@dataclass(frozen=True, repr=False)
class RateModel(Tidied):
    """The logarithm of a number's mean, linear in other columns, fitted from a release by moments.

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
    statistic: Statistic = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    @property
    def _unit(self) -> float:
        return _count(self.statistic.schema, self.target).scale

    def summary(
        self,
        *,
        estimand: Estimand = "table",
        n_rows: int | None = None,
        largest: float = LARGEST,
        merge: Merge | None = None,
        reference: Reference | None = None,
    ) -> Summary:
        """Coefficients on the scale of logarithms of means, of the table (:mod:`gaussmix.models.rates`).

        They are those of Poisson regression where numbers are normal within levels; docs/results.md has how far they
        are from it on real tables. Parameters as in :meth:`gaussmix.models.fits.RegressionModel.summary`, but
        ``"table"`` is the only estimand.
        """
        if estimand != "table" or n_rows is not None:
            raise ArgumentError(
                "Intervals of rates are for the table alone: the sampling error of counts, whose variance moves with "
                'their mean, is no second moment. Leave n_rows out and use estimand="table".'
            )
        problem, design = self.problem(merge=merge, reference=reference)
        return rate_summary(problem, design, largest=largest)

    def rate_ratios(
        self,
        alpha: float = 0.05,
        *,
        largest: float = LARGEST,
        merge: Merge | None = None,
        reference: Reference | None = None,
    ) -> ResultTable:
        """Factors by which features multiply the mean: term, rate.ratio, conf.low, conf.high, p.value.

        Exp of :meth:`summary`, whose options it takes: per unit of a number, for true against false, for a level
        against the one that its category is measured from. A p-value is below α exactly where the interval of level
        1 - α leaves 1 out. Where a coefficient is not identified its ratio is NaN, its interval (0, inf).
        """
        own = self.summary(largest=largest, merge=merge, reference=reference)
        ends = {name: ends for name, ends in own.conf_int(alpha).items() if name != INTERCEPT}
        known = {name: bool(np.isfinite(pair).all()) for name, pair in ends.items()}
        with np.errstate(over="ignore"):
            columns: dict[str, tuple[Any, ...]] = {
                "term": tuple(ends),
                "rate.ratio": tuple(float(np.exp(own.params[name])) if known[name] else math.nan for name in ends),
                "conf.low": tuple(float(np.exp(low)) for low, _ in ends.values()),
                "conf.high": tuple(float(np.exp(high)) for _, high in ends.values()),
                "p.value": tuple(own.pvalues[name] for name in ends),
            }
        words = notes(own, unidentified=not all(known.values()))
        return ResultTable(f"{self.target}: rate ratios, {100 * (1 - alpha):g} % intervals", columns, tuple(words))

    def problem(self, *, merge: Merge | None = None, reference: Reference | None = None) -> tuple[Problem, Design]:
        """Least squares of the target as an inference problem, and the levels among its features."""
        return _problem_of(self.statistic, self.target, list(self.coef), merge=merge, reference=reference)

    def predict(self, data: Any) -> Floats:
        """Means for a table with the model's columns, clipped to the target's declared bounds.

        Values are clipped as when the release was made.
        """
        schema = self.statistic.schema
        target = schema.columns[self.target]
        with np.errstate(over="ignore"):
            found = np.exp(linear_values(schema, self.coef, self.intercept, data))
        return np.clip(found, *((target.lower, target.upper) if isinstance(target, Numeric) else (0.0, np.inf)))


def fit_rates(statistic: Statistic, target: str, on: Sequence[str] | None) -> RateModel:
    """The logarithm of a number's mean on other columns, from least squares and means of levels.

    Coefficients that predict are made from those of :meth:`Release.regress`; a level whose mean is not told from 0 has
    the first-order value, b/ȳ.
    """
    schema = statistic.schema
    target = part_name(schema, target)
    response = _count(schema, target)
    features = feature_indices(schema, [target], on)
    _check_features(schema, features)
    theta = statistic.solve(features, response.vector[:, np.newaxis], "exact")[:, 0]
    slopes, constant = schema.units.coefficients(features, theta, centre=response.centre, scale=response.scale)
    coding = Coding.of(schema, sources_of(schema, list(slopes)))
    b = np.array([slopes[column.name] for column in coding.columns[1:]])
    for source, (name, _) in coding.references.items():
        b[[index - 1 for index in coding.groups[source]]] -= slopes[name]
        constant += slopes[name]
    noisy = statistic.predictive.mapped(np.vstack([coding.rows, response.vector]))
    scale = rate_scale(noisy, Design.of(coding, response), np.append(constant, b), target=target)
    intercept, *found = ((np.append(constant, b) + np.where(scale.unknown, 0.0, scale.added)) / scale.v).tolist()
    return RateModel(target, dict(zip(coding.names[1:], found, strict=True)), intercept, statistic)


def _problem_of(
    statistic: Statistic, target: str, names: list[str], *, merge: Merge | None, reference: Reference | None
) -> tuple[Problem, Design]:
    schema = statistic.schema
    response = _count(schema, target)
    coding = Coding.of(schema, sources_of(schema, names), merge=merge, reference=reference)
    problem = Problem.of(statistic.noisy, schema, response, names, merge=merge, reference=reference)
    return problem, Design.of(coding, response)


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
    return Response.of(schema, target)


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
