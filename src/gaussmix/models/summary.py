"""Coefficients with standard errors, tests and intervals, in the manner of statsmodels, from a release alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models import rendering
from gaussmix.models.coding import Merge, Reference
from gaussmix.models.directions import WeakestDirection, weakest_direction
from gaussmix.models.problem import Problem
from gaussmix.models.score import score_of
from gaussmix.models.shortening import Shortened

__all__ = ["ESTIMANDS", "LARGEST", "Asked", "Estimand", "Summary", "Tests", "labelled", "share_explained", "summarise"]

Estimand = Literal["table", "population"]
ESTIMANDS: tuple[Estimand, ...] = ("table", "population")

LARGEST = 5.0
"""No column is assumed to move the target by more than so many times its declared range (docs/inference.md)."""

_RELIES = 0.05  # share of an interval that the assumption may make up before the interval is marked


class Asked(TypedDict, total=False):
    """Options of a model's ``summary``, where another of its methods hands them on."""

    estimand: Estimand
    n_rows: int | None
    largest: float
    merge: Merge | None
    reference: Reference | None


class Tests(Protocol):
    """Tests of all coefficients in the user's units: :class:`~gaussmix.models.score.Score`, or made from one."""

    def intervals(self, level: float | Floats) -> Floats:
        """Ends of the accepted values at 1 - level, or a level each, shape (d, 2)."""

    def p_of_hull(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values that are below a level exactly where the interval of that level leaves the value out."""

    def joint(self, index: Sequence[int], values: Floats) -> float:
        """p-value of values of several coefficients at once."""


@dataclass(frozen=True)
class Summary:
    """The summary of one regression. What is labelled has the coefficients' names as keys, in order.

    Attributes
    ----------
    estimand : {"table", "population"}
        Which coefficients the intervals are for.
    response_name : str
        What is explained.
    params, bse, pvalues : dict of str to float
        In the user's units. ``bse`` is a Wald standard error; p-values and intervals come from the score test and need
        not agree with it where directions are weak. A p-value is below α exactly where the interval of level 1 - α
        leaves 0 out.
    relies : dict of str to bool
        Whether more than 5 % of a 95 % interval is there because other coefficients are bounded by assumption only.
    largest : float
        That assumption: across its declared range no column moves the target by more than so many times the target's.
    n_rows : float or None
        Rows that a population was sampled by; None for the other estimands.
    noise_share : dict of str to float
        Share of each squared standard error that is privacy noise; the rest is sampling.
    strength : float
        Standard deviations by which the weakest direction stands above the noise; Wald is fair above 12.
    rsquared : float
        Within [0, 1]: noise can take the plain value out of it.
    noise_dominates : bool
        Whether it did, or the response's variance drowned in noise: then ``rsquared`` says nothing.
    nobs, nobs_deviation : float
        Rows in the table, as the release shows them, and the standard deviation of their noise. NaN without an
        intercept column. With ``weighted``, the sum of the rows' weights.
    weakest : WeakestDirection or None
        The combination of features that stands least above the noise; None without noise.
    discriminant : bool
        Whether coefficients are on the scale of log odds.
    rates : bool
        Whether they are on the scale of logarithms of means.
    instruments : tuple of str
        Of two-stage least squares, what is endogenous and which tests the intervals come from; empty for other models.
    """

    estimand: Estimand
    response_name: str
    params: dict[str, float]
    bse: dict[str, float]
    pvalues: dict[str, float]
    noise_share: dict[str, float]
    relies: dict[str, bool]
    largest: float
    n_rows: float | None
    strength: float
    rsquared: float
    noise_dominates: bool
    nobs: float
    nobs_deviation: float
    weakest: WeakestDirection | None
    _problem: Problem = field(repr=False)
    _score: Tests | None = field(repr=False)
    _covariance: Floats = field(repr=False)
    discriminant: bool = False
    rates: bool = False
    instruments: tuple[str, ...] = ()

    @property
    def shortened(self) -> Shortened | None:
        """What rows far out in the release's metric lost: the table is the one with these rows shortened."""
        return self._problem.noisy.shortened

    @property
    def void(self) -> str:
        """Why the release guarantees nothing, which is printed first; empty if it does."""
        return self._problem.noisy.void

    @property
    def proposed(self) -> dict[str, dict[str, list[str]]]:
        """Merges of rare levels that the noisy counts propose: what ``merge=`` takes."""
        return self._problem.proposed

    @property
    def weighted(self) -> bool:
        """Whether rows have weights: coefficients are those of the weighted table."""
        return self._problem.weighted

    @property
    def tvalues(self) -> dict[str, float]:
        """Coefficients over standard errors."""
        return {name: value / self.bse[name] if self.bse[name] else math.inf for name, value in self.params.items()}

    def cov_params(self) -> dict[str, dict[str, float]]:
        """Covariance of the coefficients in the user's units (Wald), by both names."""
        return {name: labelled(list(self.params), row) for name, row in zip(self.params, self._covariance, strict=True)}

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Intervals of level 1 - alpha; infinite ends where a coefficient is not identified."""
        alpha = check.in_interval(0, 1, alpha=alpha)
        if self._score is None:  # no noise
            return {name: (value, value) for name, value in self.params.items()}
        return {
            name: (low, high)
            for name, (low, high) in zip(self.params, self._score.intervals(alpha).tolist(), strict=True)
        }

    def test(self, name: str, value: float) -> float:
        """p-value of the hypothesis that one coefficient has a value: below α where the interval leaves it out."""
        index = self._indices([name])[0]
        if self._score is None:
            return math.nan if self.params[name] == value else 0.0
        return float(self._score.p_of_hull(np.array([value]), [index])[0])

    def f_test(self, names: str | Sequence[str]) -> float:
        """p-value of the hypothesis that all named coefficients (or all levels of a column) are 0."""
        indices = list(dict.fromkeys(self._indices([names] if isinstance(names, str) else names)))
        if self._score is None:
            return 0.0 if np.array(list(self.params.values()))[indices].any() else math.nan
        return self._score.joint(indices, np.zeros(len(indices)))

    def _indices(self, names: Sequence[str]) -> list[int]:
        """Indices of coefficients, or of all coefficients of a column."""
        found: list[int] = []
        order = list(self.params)
        for name in names:
            if name in self._problem.groups:
                found += self._problem.groups[name]
            elif name in self.params:
                found.append(order.index(name))
            else:
                raise ArgumentError(f"{name!r} is no coefficient of this model; it has {', '.join(order)}.")
        return found

    def as_text(self, alpha: float = 0.05) -> str:
        """The table as text."""
        return rendering.as_text(self, alpha)

    def as_html(self, alpha: float = 0.05) -> str:
        """The table as HTML."""
        return rendering.as_html(self, alpha)

    def as_latex(self, alpha: float = 0.05) -> str:
        """The table as a LaTeX tabular."""
        return rendering.as_latex(self, alpha)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        void = rendering.void_mark(self.void)
        return f"Summary({void}{self.response_name!r}, {self.estimand}, {len(self.params)} coefficients)"


def summarise(
    problem: Problem, *, estimand: Estimand = "table", n_rows: int | None = None, largest: float = LARGEST
) -> Summary:
    """The summary of one regression.

    Parameters
    ----------
    problem : Problem
    estimand : {"table", "population"}
    n_rows : int, optional
        Rows of the table, declared public, for ``"population"``; what the release shows of them, unless given.
    largest : float
        The assumption that keeps one weak direction from hiding all coefficients: across its declared range no column
        moves the target by more than so many times the target's declared range.
    """
    check.choice(ESTIMANDS, estimand=estimand)
    largest = check.positive(finite=True, largest=largest)
    rows = _rows_of_sample(problem, n_rows) if estimand == "population" else None
    noisy, d = problem.noisy, len(problem.names)
    score, relies, p = None, np.zeros(d, dtype=bool), np.full(d, np.nan)
    if not noisy.has_noise and rows is None:
        theta = scipy.linalg.pinvh(problem.moment) @ problem.cross  # the solution of least norm
        params = problem.to_user @ theta + problem.offset
        noise = sampling = np.zeros((d, d))
    else:
        score = score_of(problem, rows, largest)
        params, p, relies = score.estimate, score.p_of_hull(np.zeros(d)), score.reliance(0.05) > _RELIES
        noise, sampling = score.covariance()
        theta = problem.bounds(largest) * score.pilot.theta
    covariance = noise + sampling
    variance = np.maximum(np.diagonal(covariance), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.diagonal(noise) / variance
    explained, dominates = share_explained(problem, theta)
    return Summary(
        estimand=estimand,
        response_name=problem.response_name,
        params=labelled(problem.names, params),
        bse=labelled(problem.names, np.sqrt(variance)),
        pvalues=labelled(problem.names, p),
        noise_share=labelled(problem.names, share),
        relies=dict(zip(problem.names, relies.tolist(), strict=True)),
        largest=largest,
        n_rows=rows,
        strength=problem.strength,
        rsquared=explained,
        noise_dominates=dominates,
        nobs=problem.nobs,
        nobs_deviation=problem.nobs_deviation,
        weakest=weakest_direction(problem) if noisy.has_noise else None,
        _problem=problem,
        _score=score,
        _covariance=covariance,
    )


def _rows_of_sample(problem: Problem, n_rows: int | None) -> float:
    """How many rows the population was sampled by: as declared, or as the release shows them."""
    if problem.weighted:
        raise ArgumentError(
            'estimand="population" needs the sum of squared weights, which this release does not hold: rows have '
            'weights. estimand="table" is about the weighted table.'
        )
    problem.noisy.check_independent('estimand="population"', instead='estimand="table"')
    if n_rows is not None:
        return float(check.positive_integer(n_rows=n_rows))
    if math.isnan(problem.nobs):
        raise ArgumentError(
            'estimand="population" needs n_rows=, the number of rows, which must be public: this release has no '
            "intercept column to show it."
        )
    if problem.nobs < 2 * problem.nobs_deviation:
        raise ArgumentError(
            'estimand="population" needs n_rows=, the number of rows, which must be public: '
            "this release shows it less than two standard deviations from 0."
        )
    return problem.nobs


def share_explained(problem: Problem, theta: Floats) -> tuple[float, bool]:
    """R² within [0, 1], and whether noise took it out of there: then it says nothing."""
    if not problem.total > 0:
        return 0.0, True
    plain = 1 - problem.residual(theta) / problem.total
    within = min(max(plain, 0.0), 1.0)
    return within, not abs(plain - within) <= 1e-9  # rounding alone may leave [0, 1]


def labelled(names: Sequence[str], values: Floats) -> dict[str, float]:
    """Values by name."""
    return dict(zip(names, values.tolist(), strict=True))
