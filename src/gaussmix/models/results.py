"""Results of every fitted model: summaries with intervals, statsmodels' names, broom's tables, data frames."""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix.data.schema import INTERCEPT
from gaussmix.errors import ArgumentError, MissingPackageError
from gaussmix.models import rendering
from gaussmix.models.design import Collapse, Label, Problem, Reference
from gaussmix.models.families import Family, on_scale, without_noise
from gaussmix.models.inference import Score, score_of
from gaussmix.models.rendering import guarantee_of, in_columns, in_csv, in_html, in_latex, notes, void_mark
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import ClippingLoss

__all__ = [
    "ESTIMANDS",
    "FRAMES",
    "MAX_EFFECT",
    "Asked",
    "Estimand",
    "Fitted",
    "FittedClasses",
    "FittedModel",
    "Frame",
    "LeastIdentified",
    "Named",
    "ResultTable",
    "Summary",
    "Tests",
    "as_frame",
    "columns_of",
    "glance_table",
    "labelled",
    "least_identified_contrast",
    "ratio_table",
    "share_explained",
    "summarise",
    "tidy_by_class",
    "tidy_table",
]

# ---------------------------------------------------------------------------------------------------------------
# Tables
Frame = Literal["pandas", "polars", "arrow"]
FRAMES: tuple[Frame, ...] = ("pandas", "polars", "arrow")


@dataclass(frozen=True)
class ResultTable:
    """Columns of text and of numbers, with a title and what to know about them.

    Attributes
    ----------
    title : str
    columns : dict of str to tuple
        Of equal lengths; a number that is not known is NaN.
    notes : tuple of str
        What the numbers are, and are not.
    """

    title: str
    columns: Mapping[str, tuple[Any, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def to_frame(self, frame: Frame | None = None) -> Any:
        """A data frame: of pandas, polars or Arrow; default: the first of them that is installed."""
        return as_frame(pa.table({name: list(values) for name, values in self.columns.items()}), frame)

    def as_csv(self) -> str:
        """Numbers in all their digits; the notes are left out. Text that looks like a formula is quoted."""
        rows = zip(*self.columns.values(), strict=True)
        return in_csv([self.columns, *(["" if _unknown(value) else value for value in row] for row in rows)])

    def as_plain(self) -> dict[str, Any]:
        """Plain values, for JSON: what is not finite is None."""
        rows = [
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in self.rows()
        ]
        return {**guarantee_of(self.notes), "title": self.title, "rows": rows, "notes": list(self.notes)}

    def as_text(self) -> str:
        """For a terminal."""
        return in_columns(self.title, [list(self.columns), *self._cells()], self.notes)

    def as_latex(self) -> str:
        """A LaTeX tabular."""
        return in_latex(list(self.columns), self._cells(), self.notes)

    def as_html(self) -> str:
        """A table for a page, with its notes."""
        return in_html(self.title, self.columns, self._cells(), self.notes)

    def _repr_html_(self) -> str:
        return self.as_html()

    def _cells(self) -> list[list[str]]:
        return [[_cell(value) for value in row] for row in zip(*self.columns.values(), strict=True)]

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return plain(
            f"ResultTable({void_mark(*self.notes)}{self.title!r}, {len(self)} rows: {', '.join(self.columns)})"
        )


def as_frame(table: pa.Table, frame: Frame | None = None) -> Any:
    """An Arrow table as a frame of another library; default: pandas, else polars, else as it is."""
    installed: list[Frame] = [name for name in FRAMES[:2] if importlib.util.find_spec(name)]
    chosen: Frame = frame or [*installed, FRAMES[2]][0]
    check.choice(FRAMES, frame=chosen)
    if chosen == "arrow":
        return table
    if not importlib.util.find_spec(chosen):
        raise MissingPackageError(f"frame={chosen!r} needs the package {chosen}: install it, or use frame='arrow'.")
    if chosen == "pandas":
        return table.to_pandas()
    polars: Any = importlib.import_module("polars")
    return polars.from_arrow(table)


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _cell(value: object) -> str:
    if _unknown(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """Columns from rows."""
    return {name: tuple(row[place] for row in rows) for place, name in enumerate(names)}


# ---------------------------------------------------------------------------------------------------------------
# The least-identified contrast
_SHARES = 0.5  # of the largest part, from which on another column is named too
_MOST = 3  # columns that are named


@dataclass(frozen=True)
class LeastIdentified:
    """The contrast of features with the lowest signal-to-noise ratio.

    Attributes
    ----------
    names : tuple of str
        Columns or levels that make it up, the largest first.
    signal_to_noise : float
    rows, std_error : float or None
        Noisy count of the level and its standard error, where the contrast is one level.
    """

    names: tuple[str, ...]
    signal_to_noise: float
    rows: float | None = None
    std_error: float | None = None

    def __str__(self) -> str:
        words = " with ".join(self.names)
        if self.rows is not None and self.std_error is not None:
            rows = max(self.rows, 0.0)
            if self.std_error < 1:  # clipped rows count as parts of a row
                return f"{words}, about {_to_a_digit(rows)} rows after clipping, SE {_to_a_digit(self.std_error)}"
            return f"{words}, about {rows:.0f} rows, SE {self.std_error:.0f}"
        return words


def _to_a_digit(rows: float) -> str:
    """Parts of a row to one digit that counts, never as a power of ten; whole rows as they are."""
    if rows >= 1:
        return f"{rows:.0f}"
    return np.format_float_positional(rows, precision=1, fractional=False, trim="-")


def least_identified_contrast(problem: Problem) -> LeastIdentified:
    """Return the direction of least uᵀMu/uᵀQu, described by its parts across declared ranges.

    A category is measured from one level and the intercept. The same function of a row is written with all of its
    levels, their middle value moved to the intercept: a rare level is then one large part, whether or not it is the one
    that is left out.
    """
    u = problem.directions[1][:, 0]
    parts = {name: value / reach for name, value, reach in zip(problem.names, u, problem.reach, strict=True)}
    for source, left_out in problem.references.items():
        own = [problem.names[i] for i in problem.groups.get(source, ())]
        middle = float(np.median([0.0, *(parts[name] for name in own)]))
        parts = {name: value - middle if name in own else value for name, value in parts.items()}
        parts[left_out] = -middle
    parts.pop(INTERCEPT, None)
    if not parts:
        return LeastIdentified((INTERCEPT,), problem.signal_to_noise)
    order = sorted(parts, key=lambda name: -abs(parts[name]))
    largest = abs(parts[order[0]])
    names = tuple(name for name in order[:_MOST] if abs(parts[name]) >= _SHARES * largest)
    rows, std_error = problem.counts.get(names[0], (None, None)) if len(names) == 1 else (None, None)
    return LeastIdentified(names, problem.signal_to_noise, rows, std_error)


# ---------------------------------------------------------------------------------------------------------------
# Summaries
Estimand = Literal["table", "population"]
ESTIMANDS: tuple[Estimand, ...] = ("table", "population")

MAX_EFFECT = 5.0
"""Assumed bound of effects across declared ranges, in declared ranges of the response (docs/inference.md)."""

_BOUND_DEPENDENT = 0.05  # share of an interval that the assumption may make up before the interval is marked


class Asked(TypedDict, total=False):
    """Options of a model's ``summary``, where another of its methods hands them on."""

    estimand: Estimand
    n_rows: int | None
    max_effect: float
    collapse: Collapse | None
    reference: Reference | None


class Tests(Protocol):
    """Tests of all coefficients in the user's units: :class:`~gaussmix.models.inference.Score`, or made from one."""

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
        The response.
    params, bse, pvalues : dict of str to float
        In the user's units. ``bse`` is a Wald standard error; for ``"table"`` and ``"population"`` p-values and
        intervals come from the score test and need not agree with it where directions are weak. A p-value is below α
        exactly where the interval of level 1 - α leaves 0 out.
    bound_dependent : dict of str to bool
        Whether more than 5 % of a 95 % interval is due to the assumed bound of other coefficients.
    max_effect : float
        Assumed bound: across its declared range no predictor changes the response by more than this many times the
        declared range of the response.
    n_rows : float or None
        Rows that a population was sampled by; None for the other estimands.
    noise_share : dict of str to float
        Share of each squared standard error that is privacy noise; the rest is sampling.
    signal_to_noise : float
        Signal-to-noise ratio of the least-identified contrast; Wald standard errors are reliable above 12.
    rsquared : float
        Within [0, 1]: noise can take the plain value out of it.
    noise_dominates : bool
        Whether it did, or noise dominates the response's variance: then ``rsquared`` is not informative.
    nobs, nobs_se : float
        Noisy number of rows in the table, and its standard error. NaN without an
        intercept column. With ``weighted``, the sum of the rows' weights.
    least_identified : LeastIdentified or None
        The least-identified contrast; None without noise.
    family : Family
        What the coefficients are, and how they come from least squares.
    """

    estimand: Estimand
    response_name: str
    params: dict[str, float]
    bse: dict[str, float]
    pvalues: dict[str, float]
    noise_share: dict[str, float]
    bound_dependent: dict[str, bool]
    max_effect: float
    n_rows: float | None
    signal_to_noise: float
    rsquared: float
    noise_dominates: bool
    nobs: float
    nobs_se: float
    least_identified: LeastIdentified | None
    family: Family
    _problem: Problem = field(repr=False)
    _score: Tests | None = field(repr=False)
    _covariance: Floats = field(repr=False)

    @property
    def clipping_loss(self) -> ClippingLoss | None:
        """Row weight removed by norm clipping; results are for the table with clipped rows."""
        return self._problem.noisy.clipping_loss

    @property
    def void(self) -> str:
        """Why the release guarantees nothing, which is printed first; empty if it does."""
        return self._problem.noisy.void

    @property
    def suggested_collapses(self) -> dict[str, dict[str, list[str]]]:
        """Sparse levels to collapse, suggested from noisy counts, in the form that ``collapse=`` takes."""
        return self._problem.suggested_collapses

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
    problem: Problem, *, estimand: Estimand = "table", n_rows: int | None = None, max_effect: float = MAX_EFFECT
) -> Summary:
    """Return the summary of one regression, with the coefficients of its family.

    Parameters
    ----------
    problem : Problem
    estimand : {"table", "population"}
    n_rows : int, optional
        Rows of the table, declared public, for ``"population"``; what the release shows of them, unless given.
    max_effect : float
        Assumed: across its declared range no predictor changes the response by more than this many times the declared
        range of the response. It keeps one weak direction from hiding all coefficients.
    """
    check.choice(ESTIMANDS, estimand=estimand)
    max_effect, family = check.positive(finite=True, max_effect=max_effect), problem.family
    allowed = family.intervals_are_for
    if estimand not in allowed or (n_rows is not None and "population" not in allowed):
        raise ArgumentError(family.refusal)
    own = _least_squares_summary(problem, estimand, n_rows, max_effect)
    if family.scale is None:
        return own
    score = own._score if isinstance(own._score, Score) else None  # None without noise
    scale = family.scale(problem, np.array(list(own.params.values())), score, max_effect)
    return without_noise(own, scale) if score is None else on_scale(own, score, scale)


def _least_squares_summary(problem: Problem, estimand: Estimand, n_rows: int | None, max_effect: float) -> Summary:
    rows = _rows_of_sample(problem, n_rows) if estimand == "population" else None
    noisy, d = problem.noisy, len(problem.names)
    score, bound_dependent, p = None, np.zeros(d, dtype=bool), np.full(d, np.nan)
    if not noisy.has_noise and rows is None:
        theta = scipy.linalg.pinvh(problem.moment) @ problem.cross  # the solution of least norm
        params = problem.to_user @ theta + problem.offset
        noise = sampling = np.zeros((d, d))
    else:
        score = score_of(problem, rows, max_effect)
        params, p = score.estimate, score.p_of_hull(np.zeros(d))
        bound_dependent = score.reliance(0.05) > _BOUND_DEPENDENT
        noise, sampling = score.covariance()
        theta = problem.bounds(max_effect) * score.pilot.theta
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
        bound_dependent=dict(zip(problem.names, bound_dependent.tolist(), strict=True)),
        max_effect=max_effect,
        n_rows=rows,
        signal_to_noise=problem.signal_to_noise,
        rsquared=explained,
        noise_dominates=dominates,
        nobs=problem.nobs,
        nobs_se=problem.nobs_se,
        least_identified=least_identified_contrast(problem) if noisy.has_noise else None,
        family=problem.family,
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
    if problem.nobs < 2 * problem.nobs_se:
        raise ArgumentError(
            'estimand="population" needs n_rows=, the number of rows, which must be public: '
            "the noisy count of this release is less than two standard errors above 0."
        )
    return problem.nobs


def share_explained(problem: Problem, theta: Floats) -> tuple[float, bool]:
    """Return R² within [0, 1], and whether noise had moved it outside: then it is not informative."""
    if not problem.total > 0:
        return 0.0, True
    plain = 1 - problem.residual(theta) / problem.total
    within = min(max(plain, 0.0), 1.0)
    return within, not abs(plain - within) <= 1e-9  # rounding alone may leave [0, 1]


def labelled(names: Sequence[str], values: Floats) -> dict[str, float]:
    """Values by name."""
    return dict(zip(names, values.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------------
# Fitted models
S = TypeVar("S")


class Named(ABC):
    """What is known of coefficients under the names that statsmodels gives it, for the default estimand."""

    @property
    @abstractmethod
    def _table(self) -> Summary:
        """The summary behind them."""

    @property
    def params(self) -> dict[str, float]:
        """Estimates by name, without the ridge that makes ``coef`` predict well."""
        return self._table.params

    @property
    def bse(self) -> dict[str, float]:
        """Standard errors by name."""
        return self._table.bse

    @property
    def pvalues(self) -> dict[str, float]:
        """p-values by name."""
        return self._table.pvalues

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Intervals of level 1 - alpha by name."""
        return self._table.conf_int(alpha)

    @property
    def rsquared(self) -> float:
        """R², within [0, 1]."""
        return self._table.rsquared

    @property
    def nobs(self) -> float:
        """Rows in the table, as the release shows them: noisy. Where rows have weights, the sum of these."""
        return self._table.nobs


class Fitted(ABC, Generic[S]):
    """A model that was fitted from a release; it does not change, so that its summary is computed once."""

    response: str
    certificate: Certificate | None

    def summary(
        self,
        *,
        estimand: Estimand = "table",
        n_rows: int | None = None,
        max_effect: float = MAX_EFFECT,
        collapse: Collapse | None = None,
        reference: Reference | None = None,
    ) -> S:
        """Coefficients with standard errors, p-values and intervals (:mod:`gaussmix.models.inference`).

        They are those of the ``estimand``, estimated without the ridge that makes ``coef`` predict well. Of a model of
        several classes: a dictionary by class.

        Parameters
        ----------
        estimand : {"table", "population"}
            Those that the model's family has.
        n_rows : int, optional
            The number of rows, declared public, for ``"population"``; default: what the release shows of it.
        max_effect : float
            Assumed: across its declared range no predictor changes the response by more than this many times the
            declared range of the response.
        collapse, reference : mapping, optional
            Levels to take as one, ``{"job": {"other": ["none", "unpaid"]}}``, and levels that the others of a category
            are measured from, ``{"race": "White"}``, instead of its first one. Of a model of several classes
            ``reference`` may name the class that the others are compared with, too.
        """
        return self._summarise(
            estimand=estimand, n_rows=n_rows, max_effect=max_effect, collapse=collapse, reference=reference
        )

    @abstractmethod
    def _summarise(self, **options: Unpack[Asked]) -> S:
        """Compute the summary; all options are given."""

    @cached_property
    def _fitted(self) -> S:
        return self.summary()

    @abstractmethod
    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Unpack[Asked]) -> Any:
        """One row a coefficient."""

    def to_frame(self, frame: Frame | None = None) -> Any:
        """The same as :meth:`tidy`."""
        return self.tidy(frame)


class FittedModel(Fitted[Summary], Named):
    """A model with one coefficient a feature."""

    coef: dict[str, float]
    intercept: float

    @abstractmethod
    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """The regression as an inference problem."""

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        own = self.problem(collapse=options["collapse"], reference=options["reference"])
        return summarise(own, estimand=options["estimand"], n_rows=options["n_rows"], max_effect=options["max_effect"])

    @property
    def _table(self) -> Summary:
        return self._fitted

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Unpack[Asked]) -> Any:
        """One row a coefficient: term, estimate, std.error, statistic, p.value, conf.low, conf.high, privacy.share.

        Parameters
        ----------
        frame : {"pandas", "polars", "arrow"}, optional
            Default: the first of them that is installed.
        alpha : float
            Intervals have level 1 - alpha. They come from the score test, and so does p.value: where directions are
            weak they need not agree with estimate and std.error.
        **summary
            As in ``summary``: ``estimand="population"``, ``n_rows``, ``collapse``, ``reference``.
        """
        return tidy_table(self.summary(**summary), alpha).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Unpack[Asked]) -> Any:
        """One row: nobs, r.squared, sigma, df, epsilon, delta, mu; what is not known is missing."""
        return glance_table(self.summary(**summary), self.certificate).to_frame(frame)

    def as_csv(self, alpha: float = 0.05) -> str:
        """:meth:`tidy` as CSV, in all digits."""
        return tidy_table(self._table, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """The summary as a LaTeX tabular."""
        return self._table.as_latex(alpha)

    def _repr_html_(self) -> str:
        return self._table.as_html()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_void(self.certificate)}{self.response!r} on {len(self.coef)} encoded columns)"


class FittedClasses(Fitted[dict[Label, Summary]]):
    """A model with coefficients for every class but one: dictionaries by class, of what one class has."""

    coef: dict[Label, dict[str, float]]

    @property
    def params(self) -> dict[Label, dict[str, float]]:
        """Estimates by class and name, without the ridge that makes ``coef`` predict well."""
        return {name: own.params for name, own in self._fitted.items()}

    @property
    def bse(self) -> dict[Label, dict[str, float]]:
        """Standard errors by class and name."""
        return {name: own.bse for name, own in self._fitted.items()}

    @property
    def pvalues(self) -> dict[Label, dict[str, float]]:
        """p-values by class and name."""
        return {name: own.pvalues for name, own in self._fitted.items()}

    def conf_int(self, alpha: float = 0.05) -> dict[Label, dict[str, tuple[float, float]]]:
        """Intervals of level 1 - alpha by class and name."""
        return {name: own.conf_int(alpha) for name, own in self._fitted.items()}

    @property
    def rsquared(self) -> dict[Label, float]:
        """R² by class, of the least squares behind its coefficients, within [0, 1]."""
        return {name: own.rsquared for name, own in self._fitted.items()}

    @property
    def nobs(self) -> float:
        """Rows in the table, of all classes, as the release shows them: noisy."""
        return next(iter(self._fitted.values())).nobs

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Unpack[Asked]) -> Any:
        """One row a class and coefficient: y.level, then the columns of ``tidy`` of other models."""
        return tidy_by_class(self.response, self.summary(**summary), alpha).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Unpack[Asked]) -> Any:
        """One row, as of other models; df counts the coefficients of all classes but intercepts."""
        own = list(self.summary(**summary).values())
        found = glance_table(own[0], self.certificate)
        columns = {**found.columns, "df": (len(own) * found.columns["df"][0],)}
        return ResultTable(self.response, columns).to_frame(frame)

    def as_csv(self, alpha: float = 0.05) -> str:
        """:meth:`tidy` as CSV, in all digits."""
        return tidy_by_class(self.response, self._fitted, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """The summaries as LaTeX tabulars, one below the other."""
        return "\n\n".join(own.as_latex(alpha) for own in self._fitted.values())

    def _repr_html_(self) -> str:
        return "".join(own.as_html() for own in self._fitted.values())

    def __repr__(self) -> str:
        features, void = len(next(iter(self.coef.values()))), _void(self.certificate)
        classes = f"{len(self.coef) + 1} classes"
        return f"{type(self).__name__}({void}{self.response!r} on {features} encoded columns, {classes})"


def _void(certificate: Certificate | None) -> str:
    """Why nothing is guaranteed, before what a representation says; empty if something is."""
    return "" if certificate is None else void_mark(certificate.void_words)


def tidy_table(summary: Summary, alpha: float = 0.05) -> ResultTable:
    """Coefficients with what is known of them; where an interval does not end, nothing is: NaN."""
    ends = summary.conf_int(check.in_interval(0, 1, alpha=alpha))
    known = {name: math.isfinite(low) and math.isfinite(high) for name, (low, high) in ends.items()}
    statistic = summary.tvalues

    def column(values: dict[str, float]) -> tuple[float, ...]:
        return tuple(float(values[name]) if known[name] else math.nan for name in ends)

    columns = {
        "term": tuple(ends),
        "estimate": column(summary.params),
        "std.error": column(summary.bse),
        "statistic": column(statistic),
        "p.value": tuple(float(summary.pvalues[name]) for name in ends),
        "conf.low": tuple(float(low) for low, _ in ends.values()),
        "conf.high": tuple(float(high) for _, high in ends.values()),
        "privacy.share": column(summary.noise_share),
    }
    words = notes(summary, unidentified=not all(known.values()))
    return ResultTable(f"{summary.response_name}: {summary.estimand}", columns, tuple(words))


def tidy_by_class(response: str, summaries: Mapping[Label, Summary], alpha: float = 0.05) -> ResultTable:
    """Coefficients of all classes, one class below the other."""
    tables = {name: tidy_table(own, alpha) for name, own in summaries.items()}
    levels = tuple(name for name, own in tables.items() for _ in range(len(own)))
    names = next(iter(tables.values())).columns
    columns = {key: tuple(value for own in tables.values() for value in own.columns[key]) for key in names}
    words = dict.fromkeys(note for own in tables.values() for note in own.notes)
    return ResultTable(response, {"y.level": levels, **columns}, tuple(words))


def ratio_table(summary: Summary, alpha: float = 0.05) -> ResultTable:
    """Return exp(β) of all features with intervals and p-values, for a family whose ratios have a name.

    Where a coefficient is not identified its ratio is NaN, its interval (0, inf).
    """
    ratio = summary.family.ratio
    if not ratio:
        raise ArgumentError(f"exp(β) of the family {summary.family.name!r} has no meaning: use tidy or summary.")
    ends = {name: ends for name, ends in summary.conf_int(alpha).items() if name != INTERCEPT}
    known = {name: bool(np.isfinite(pair).all()) for name, pair in ends.items()}
    with np.errstate(over="ignore"):
        columns: dict[str, tuple[Any, ...]] = {
            "term": tuple(ends),
            ratio.replace(" ", "."): tuple(
                float(np.exp(summary.params[name])) if known[name] else math.nan for name in ends
            ),
            "conf.low": tuple(float(np.exp(low)) for low, _ in ends.values()),
            "conf.high": tuple(float(np.exp(high)) for _, high in ends.values()),
            "p.value": tuple(summary.pvalues[name] for name in ends),
        }
    words = notes(summary, unidentified=not all(known.values()))
    title = f"{summary.response_name}: {ratio}s, {100 * (1 - alpha):g} % intervals"
    return ResultTable(title, columns, tuple(words))


def glance_table(summary: Summary, certificate: Certificate | None) -> ResultTable:
    """The model as a whole. sigma is the residual standard deviation, of n - d degrees of freedom, n noisy."""
    d, nobs = len(summary.params), summary.nobs
    problem, family = summary._problem, summary.family
    sigma = math.nan
    if family.has_sigma and not summary.noise_dominates and nobs > d:
        sigma = problem.scale * math.sqrt(problem.total * (1 - summary.rsquared) / (nobs - d))
    account = None if certificate is None else certificate.account
    columns: dict[str, tuple[Any, ...]] = {
        "nobs": (nobs,),
        "r.squared": (summary.rsquared if family.has_rsquared and not summary.noise_dominates else math.nan,),
        "sigma": (sigma,),
        "df": (d - ("(intercept)" in summary.params),),
        "epsilon": (math.nan if certificate is None else certificate.epsilon,),
        "delta": (math.nan if certificate is None else certificate.delta,),
        "mu": (float(getattr(account, "mu", math.nan)),),
    }
    return ResultTable(summary.response_name, columns)
