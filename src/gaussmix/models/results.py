"""Results of every fitted model: summaries with intervals, statsmodels' names, broom's tables, data frames."""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa
from scipy import special

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix.data.schema import INTERCEPT
from gaussmix.errors import ArgumentError, MissingPackageError
from gaussmix.models.design import ENOUGH, Collapse, Label, Problem, Reference
from gaussmix.models.families import Family
from gaussmix.models.hypotheses import ContrastTest, Hypotheses, JointTest, linear_hypotheses
from gaussmix.models.inference import (
    Coefficients,
    LeastSquares,
    least_squares,
    on_columns,
    p_values,
    related_columns,
    wald_statistic,
)
from gaussmix.models.rendering import (
    coefficient_rows,
    first_lines,
    guarantee_of,
    heading,
    in_columns,
    in_csv,
    in_html,
    in_latex,
    notes,
    p_value,
    to_error,
    void_mark,
    with_commas,
)
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import ClippingLoss

__all__ = [
    "ESTIMANDS",
    "FRAMES",
    "Asked",
    "CovType",
    "Estimand",
    "Fitted",
    "FittedClasses",
    "FittedModel",
    "Frame",
    "LabelledSquare",
    "Named",
    "ResultTable",
    "Summary",
    "as_frame",
    "columns_of",
    "covariance_type",
    "glance_table",
    "labelled",
    "left_out_columns",
    "ratio_table",
    "sample_size",
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
    """A table of results with a title and notes.

    Attributes
    ----------
    title : str
    columns : dict of str to tuple
        Columns of equal length; an unknown number is NaN.
    notes : tuple of str
        Notes about the estimand, assumptions and columns that are not identified.
    """

    title: str
    columns: Mapping[str, tuple[Any, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Return a data frame of pandas, polars or Arrow. Default: the first that is installed."""
        return as_frame(pa.table({name: list(values) for name, values in self.columns.items()}), frame)

    def as_csv(self) -> str:
        """Return CSV with numbers in full precision and without notes. Text that looks like a formula is quoted."""
        rows = zip(*self.columns.values(), strict=True)
        return in_csv([self.columns, *(["" if _unknown(value) else value for value in row] for row in rows)])

    def as_plain(self) -> dict[str, Any]:
        """Return plain values for JSON; numbers that are not finite become None."""
        rows = [
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in self.rows()
        ]
        return {**guarantee_of(self.notes), "title": self.title, "rows": rows, "notes": list(self.notes)}

    def as_text(self) -> str:
        """Return the table as text for a terminal."""
        return in_columns(self.title, [list(self.columns), *self.cells()], self.notes)

    def as_latex(self) -> str:
        """Return a LaTeX tabular."""
        return in_latex(list(self.columns), self.cells(), self.notes)

    def as_html(self) -> str:
        """Return an HTML table with notes."""
        return in_html(self.title, self.columns, self.cells(), self.notes)

    _repr_html_ = as_html

    def cells(self) -> list[list[str]]:
        """Format cells with four digits, or with enough digits that the ends of an interval differ in two."""
        found = []
        for row in self.rows():
            width = row.get("conf.high", math.nan) - row.get("conf.low", math.nan)
            error = width / 4 if 0 < width < 0.01 * abs(row["conf.high"]) else math.nan
            cells = []
            for name, value in row.items():
                measured = error > 0 and isinstance(value, float) and not _unknown(value) and name not in _NOT_MEASURED
                text = with_commas(to_error(value, error)) if measured else _cell(value)
                cells.append(p_value(value) if name == "p.value" else text)
            found.append(cells)
        return found

    __str__ = as_text

    def __repr__(self) -> str:
        return plain(
            f"ResultTable({void_mark(*self.notes)}{self.title!r}, {len(self)} rows: {', '.join(self.columns)})"
        )


class LabelledSquare(dict[str, dict[str, float]]):
    """A square matrix by the names of its rows and columns, as a dictionary of dictionaries."""

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Return a data frame of pandas, polars or Arrow whose first column has the names of the rows."""
        columns = {name: [row[name] for row in self.values()] for name in self}
        return as_frame(pa.table({"term": list(self), **columns}), frame)


def as_frame(table: pa.Table, frame: Frame | None = None) -> Any:
    """Convert an Arrow table to a data frame. Default: pandas if installed, then polars, then Arrow."""
    installed: list[Frame] = [name for name in FRAMES[:2] if importlib.util.find_spec(name)]
    chosen: Frame = frame or [*installed, FRAMES[2]][0]
    check.choice(FRAMES, frame=chosen)
    if chosen == "arrow":
        return table
    if not importlib.util.find_spec(chosen):
        raise MissingPackageError(f"frame={chosen!r} requires the package {chosen}. Install it, or use frame='arrow'.")
    if chosen == "pandas":
        return table.to_pandas()
    polars: Any = importlib.import_module("polars")
    return polars.from_arrow(table)


_NOT_MEASURED = (
    "std.error",
    "statistic",
    "p.value",
    "privacy.share",
    "distribution.error",
)  # columns not in the units of the estimate


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _cell(value: object) -> str:
    if _unknown(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """Return columns from rows."""
    return {name: tuple(row[place] for row in rows) for place, name in enumerate(names)}


# ---------------------------------------------------------------------------------------------------------------
# Summaries
Estimand = Literal["table", "population"]
ESTIMANDS: tuple[Estimand, ...] = ("table", "population")

CovType = Literal["nonrobust", "robust", "cluster"]
COV_TYPES: tuple[CovType, ...] = ("nonrobust", "robust", "cluster")

_NAMED = 3  # columns named in the reason why another was left out


class Asked(TypedDict, total=False):
    """Options of ``summary``, as passed on by other methods of a model."""

    estimand: Estimand
    n_rows: int | None
    collapse: Collapse | None
    reference: Reference | None
    cov_type: CovType | None


@dataclass(frozen=True)
class Summary:
    """The summary of one regression. Dictionaries have the names of the coefficients as keys, in order.

    Standard errors, p-values, intervals, tests and predicted means are computed from one normal distribution
    (:class:`~gaussmix.models.inference.Coefficients`): a p-value is below α if and only if the interval of level
    1 - α excludes 0. A coefficient that is not identified at this budget is NaN everywhere.

    Attributes
    ----------
    estimand : {"table", "population"}
        Whether intervals are for the coefficients of the table or of the population.
    response_name : str
    params, bse, pvalues : dict of str to float
        In original units.
    noise_share : dict of str to float
        Share of each squared standard error that is due to privacy noise; the rest is sampling error.
    distribution_se : dict of str to float
        Part of each standard error that stands for an assumed distribution of the predictors; empty for linear models.
    left_out : dict of str to str
        Columns that are not identified, with the reason. Levels among them are counted with the reference level.
    stands_for : dict of str to tuple of str
        Coefficients that also absorb the effect of columns left out, with these columns.
    n_rows : float or None
        Sample size for the population; None for the table's own coefficients.
    signal_to_noise : float
        Signal of the least-identified direction of the columns kept, in standard errors of the noise.
    rsquared : float
        Within [0, 1].
    sigma : float
        Residual standard error; NaN if it is not defined or noise makes its square negative.
    noise_dominates : bool
        Whether predictions do not beat the mean of the response at this budget. R² is then not informative.
    nobs, nobs_se : float
        Noisy number of rows in the table, and its standard error; NaN without an intercept. With ``weighted``, the sum
        of the weights.
    weighted : bool
        Whether rows are weighted. The coefficients are then those of the weighted table.
    references : tuple of str
        Reference levels of the categories.
    clipping_loss : ClippingLoss or None
        Row weight removed by norm clipping; results are for the table with clipped rows.
    void : str
        Reason why the release has no guarantee, printed first; empty if it has one.
    family : Family
        Meaning of the coefficients, and how they are computed from least squares.
    declared : str
        What the release has for this model because it was declared, printed first; empty if it was not.
    cov_type : {"nonrobust", "robust", "cluster"}
        How the sampling error is computed, for the population.
    """

    estimand: Estimand
    response_name: str
    params: dict[str, float]
    bse: dict[str, float]
    pvalues: dict[str, float]
    noise_share: dict[str, float]
    distribution_se: dict[str, float]
    left_out: dict[str, str]
    stands_for: dict[str, tuple[str, ...]]
    n_rows: float | None
    signal_to_noise: float
    rsquared: float
    sigma: float
    noise_dominates: bool
    nobs: float
    nobs_se: float
    weighted: bool
    references: tuple[str, ...]
    clipping_loss: ClippingLoss | None
    void: str
    family: Family
    declared: str
    cov_type: CovType
    _problem: Problem = field(repr=False)
    _fit: LeastSquares = field(repr=False)
    _mean: LeastSquares = field(repr=False)
    _coefficients: Coefficients = field(repr=False)

    @classmethod
    def of(
        cls,
        problem: Problem,
        fit: LeastSquares,
        own: Coefficients,
        *,
        estimand: Estimand,
        family: Family | None = None,
        left_out: dict[str, str] | None = None,
        stands_for: dict[str, tuple[str, ...]] | None = None,
        declared: str = "",
        cov_type: CovType = "nonrobust",
        noise_dominates: bool | None = None,
    ) -> Summary:
        """Return a summary from the distribution of coefficients and the least-squares fit.

        ``noise_dominates`` is whether the model beats the mean; by default whether the least-squares fit does.
        """
        names, n = problem.names, problem.nobs
        mean = on_columns(problem.noisy, [0] if problem.intercept and problem.noisy.moment[0, 0] > 0 else [], [])
        rsquared = min(max(1 - fit.residual / mean.residual, 0.0), 1.0) if mean.residual > 0 else 0.0
        dominated = not (fit.kept and mean.residual > 0 and fit.risk <= (1 + 1e-9) * mean.risk)
        if noise_dominates is not None:
            dominated = noise_dominates
        degrees, sigma = n - len(fit.kept), math.nan
        least = 0.0 if problem.noisy.has_noise else -1e-9 * mean.residual  # rounding alone may make it negative
        if not dominated and degrees > 0 and not problem.weighted and fit.residual >= least:
            sigma = problem.scale * math.sqrt(max(fit.residual, 0.0) / degrees)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.diagonal(own.noise) / np.diagonal(own.covariance)
        return cls(
            estimand=estimand,
            response_name=problem.response_name,
            params=labelled(names, own.estimate),
            bse=labelled(names, own.std_errors),
            pvalues=labelled(names, p_values(own.distances, own.std_errors)),
            noise_share=labelled(names, share),
            distribution_se={} if own.assumed is None else labelled(names, np.sqrt(np.diagonal(own.assumed))),
            left_out=left_out or {},
            stands_for=stands_for or {},
            n_rows=fit.n_rows,
            signal_to_noise=fit.signal,
            rsquared=rsquared,
            sigma=sigma,
            noise_dominates=dominated,
            nobs=n,
            nobs_se=problem.nobs_se,
            weighted=problem.weighted,
            references=() if problem.coding is None else tuple(name for name, _ in problem.coding.references.values()),
            clipping_loss=problem.noisy.clipping_loss,
            void=problem.noisy.void,
            family=family or problem.family,
            declared=declared,
            cov_type=cov_type,
            _problem=problem,
            _fit=fit,
            _mean=mean,
            _coefficients=own,
        )

    @property
    def coded(self) -> Mapping[str, str]:
        """Top-coded columns of the model, with a description of their thresholds."""
        return self._problem.noisy.coded

    @property
    def row_weights(self) -> str:
        """How norm clipping and contribution bounds weight rows, in words; empty if every row has weight 1."""
        return self._problem.noisy.weighted

    @property
    def tvalues(self) -> dict[str, float]:
        """Coefficients divided by their standard errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            own = self._coefficients
            return labelled(self._problem.names, own.estimate / own.std_errors)

    @property
    def scale(self) -> float:
        """Residual variance, with the name of statsmodels; NaN if it is not defined."""
        return self.sigma**2

    @property
    def rsquared_adj(self) -> float:
        """R² adjusted for the number of coefficients."""
        degrees = self.nobs - len(self._fit.kept)
        whole = self.nobs - 1 if self._problem.intercept else self.nobs
        return 1 - (1 - self.rsquared) * whole / degrees if degrees > 0 else math.nan

    @property
    def aic(self) -> float | None:
        """Akaike's information criterion of a linear model with normal errors; None if it is not defined."""
        n, k = self.nobs, len(self._fit.kept)
        if not self.family.is_linear or self.weighted or not self.sigma > 0:
            return None
        return n * (math.log(2 * math.pi * self.scale * (n - k) / n) + 1) + 2 * k

    def cov_params(self) -> LabelledSquare:
        """Return the covariance matrix of the coefficients in original units; NaN for those not identified."""
        rows = zip(self.params, self._coefficients.covariance, strict=True)
        return LabelledSquare({name: labelled(list(self.params), row) for name, row in rows})

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Return intervals of level 1 - alpha; NaN if a coefficient is not identified."""
        ends = self._coefficients.intervals(alpha)
        return {name: (low, high) for name, (low, high) in zip(self.params, ends.tolist(), strict=True)}

    def per(self, units: Mapping[str, float | Literal["sd"]]) -> Summary:
        """Return the summary with some coefficients per several units, or per standard deviation, of their columns.

        ``per({"distance": 1000, "age": "sd"})`` multiplies estimates, standard errors and interval ends of ``distance``
        by 1,000 and those of ``age`` by its standard deviation, which the name of the coefficient states. It is
        estimated from the release, and its own noise is not part of the intervals.

        Parameters
        ----------
        units : mapping of str to float or "sd"
            Positive numbers by name of the coefficient, of columns that are numbers.
        """
        factors, renamed = np.ones(len(self.params)), dict(zip(self.params, self.params, strict=True))
        for name, asked in units.items():
            index = self._number(name)
            factor = self._std(index) if asked == "sd" else check.positive(per=asked)
            factors[index] = factor
            renamed[name] = f"{name} (per SD of {factor:.4g})" if asked == "sd" else f"{name} (per {factor:,g})"
        own, names = self._coefficients.scaled(factors), tuple(renamed.values())
        shares = self.noise_share.values()
        return replace(
            self,
            params=labelled(names, own.estimate),
            bse=labelled(names, own.std_errors),
            noise_share=dict(zip(names, shares, strict=True)),
            pvalues=dict(zip(names, self.pvalues.values(), strict=True)),
            distribution_se={} if own.assumed is None else labelled(names, np.sqrt(np.diagonal(own.assumed))),
            left_out={renamed[name]: reason for name, reason in self.left_out.items()},
            stands_for={renamed[name]: columns for name, columns in self.stands_for.items()},
            _problem=replace(self._problem, names=names),
            _coefficients=own,
        )

    def _number(self, name: str) -> int:
        """Return the index of the coefficient of a number; reject other names."""
        coding = self._problem.coding
        numbers = [
            own
            for i, own in enumerate(self.params)
            if coding is not None and coding.sources[i] is not None and coding.columns[i].kind in ("numeric", "entry")
        ]
        if name not in numbers:
            raise ArgumentError(
                f"per must name coefficients of numeric columns, got {name!r}. The coefficients of numeric columns are "
                f"{', '.join(numbers) or 'none'}."
            )
        return list(self.params).index(name)

    def _std(self, index: int) -> float:
        """Return the standard deviation of a feature in original units, from the noisy moments."""
        problem = self._problem
        M, one, unit = problem.noisy.moment, problem.one, np.eye(len(problem.names) + 1)[index]
        rows = float(one @ M @ one)
        variance = float(unit @ M @ unit) / rows - (float(one @ M @ unit) / rows) ** 2 if rows > 0 else math.nan
        if not (problem.intercept and variance > 0):
            raise ArgumentError(
                f"The standard deviation of {problem.names[index]!r} is not identified at this budget. Give a number."
            )
        return float(abs(problem.scale / problem.to_user[index, index])) * math.sqrt(variance)

    def t_test(self, hypotheses: Hypotheses) -> ContrastTest:
        """Test linear hypotheses one at a time, as in statsmodels.

        Parameters
        ----------
        hypotheses : str, list of str or array (hypotheses, d)
            ``"age = 0"``, ``"age - bmi = 0, sex=m = 1"``, the name of a coefficient or column (all its coefficients
            are 0), or a matrix R for R·β = 0.
        """
        R, q, words = self._hypotheses(hypotheses)
        effect, covariance = self._coefficients.contrasts(R)
        std_error = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = (effect - q) / std_error
        return ContrastTest(words, effect, std_error, statistic, p_values(effect - q, std_error), self.void)

    def wald_test(self, hypotheses: Hypotheses) -> JointTest:
        """Test linear hypotheses jointly: a chi-square test. Hypotheses as in :meth:`t_test`."""
        R, q, words = self._hypotheses(hypotheses)
        effect, covariance = self._coefficients.contrasts(R)
        statistic = wald_statistic(effect - q, covariance)
        return JointTest(words, statistic, len(words), float(special.chdtrc(len(words), statistic)), self.void)

    def f_test(self, hypotheses: Hypotheses) -> JointTest:
        """Test linear hypotheses jointly: :meth:`wald_test` with the statistic divided by its degrees of freedom."""
        own = self.wald_test(hypotheses)
        return JointTest(own.hypotheses, own.statistic / own.df, own.df, own.pvalue, self.void)

    def _hypotheses(self, given: Hypotheses) -> tuple[Floats, Floats, tuple[str, ...]]:
        """Parse hypotheses. Those on a column omit levels that are counted with the reference level."""
        known = self._coefficients.known
        groups = {name: [i for i in own if known[i]] or own for name, own in self._problem.groups.items()}
        return linear_hypotheses(given, self._problem.names, groups)

    def as_text(self, alpha: float = 0.05) -> str:
        """Return the table as text."""
        return in_columns(heading(self), coefficient_rows(self, alpha), notes(self, errors=True))

    def as_html(self, alpha: float = 0.05) -> str:
        """Return the table as HTML."""
        head, *rows = coefficient_rows(self, alpha)
        return in_html(heading(self), head, rows, notes(self, errors=True))

    def as_latex(self, alpha: float = 0.05) -> str:
        """Return the table as a LaTeX tabular."""
        head, *rows = coefficient_rows(self, alpha)
        return in_latex(head, rows, first_lines(self))

    __str__ = as_text
    _repr_html_ = as_html

    def __repr__(self) -> str:
        void, size = void_mark(self.void), f"{len(self.params)} coefficients"
        return f"Summary({void}{self.response_name!r}, {self.estimand}, {size})"


def summarise(problem: Problem, *, estimand: Estimand = "table", n_rows: int | None = None) -> Summary:
    """Return the summary of one linear regression.

    Parameters
    ----------
    problem : Problem
    estimand : {"table", "population"}
    n_rows : int, optional
        Rows of the table, declared public, for ``"population"``. Default: the noisy count of the release.
    """
    rows = sample_size(problem, estimand, n_rows)
    fit = least_squares(problem.noisy, intercept=problem.intercept, n_rows=rows, needs=problem.to_user.T != 0)
    own = Coefficients.of(fit, problem.to_user, problem.offset)
    left_out, stands_for = left_out_columns(problem, fit)
    return Summary.of(problem, fit, own, estimand=estimand, left_out=left_out, stands_for=stands_for)


def left_out_columns(problem: Problem, fit: LeastSquares) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the columns left out with reasons, and the coefficients that also absorb the effect of some of them."""
    names, left_out = problem.names, dict[str, str]()
    marks: dict[str, list[str]] = {}
    for column in fit.left_out:
        related = related_columns(problem.noisy, fit, column, float(problem.reach[column]))
        beside = [names[j] for j in related if names[j] != INTERCEPT]
        left_out[names[column]] = _reason(problem, names[column], beside)
        for name in beside:
            marks.setdefault(name, []).append(names[column])
    return left_out, {name: tuple(columns) for name, columns in marks.items()}


def _reason(problem: Problem, name: str, beside: Sequence[str]) -> str:
    """Return why a column was left out."""
    count, std_error = problem.counts.get(name, (math.inf, 0.0))
    if count < ENOUGH * std_error:
        rows = f"total row weight about {_rows_text(max(count, 0.0))} (SE {_rows_text(std_error)})"
        return f"{rows}: counted with the reference level"
    return "too little signal" + (f" after adjusting for {', '.join(beside[:_NAMED])}" if beside else "")


def _rows_text(rows: float) -> str:
    """Format a sum of row weights, which may be fractional because clipped rows have weights below 1."""
    return f"{rows:.0f}" if rows >= 10 else f"{rows:.1f}"


def covariance_type(options: Asked, *, declared: bool = False, unit: bool = False) -> CovType:
    """Return how the sampling error is computed: for declared models by the sandwich, unless another type is asked."""
    asked = options.get("cov_type")
    own: CovType = "cluster" if unit else "robust"
    if asked is None:
        return own if declared else "nonrobust"
    check.choice(COV_TYPES, cov_type=asked)
    if options["estimand"] == "table":
        raise ArgumentError(
            'cov_type requires estimand="population": the table\'s own coefficients have no sampling error.'
        )
    if asked == "nonrobust":
        return asked
    if not declared:
        raise ArgumentError(
            f"cov_type={asked!r} requires a model that was declared in gaussmix.release(..., models=[...]), has no "
            "other collapsed or reference levels, and is identified at this budget."
        )
    if asked != own:
        reason = "a privacy unit may have several rows" if unit else "the release has no privacy unit"
        raise ArgumentError(f"cov_type must be {own!r} for this release, because {reason}.")
    return asked


def sample_size(
    problem: Problem, estimand: Estimand, n_rows: int | None, cov_type: CovType = "nonrobust"
) -> float | None:
    """Return the sample size for the population, declared or noisy; None for the table's own coefficients.

    Without a sandwich covariance rows must be independent and have no weights.
    """
    check.choice(ESTIMANDS, estimand=estimand)
    if estimand == "table":
        return None
    if cov_type != "nonrobust" and n_rows is None and not math.isnan(problem.nobs):
        return max(problem.nobs, 1.0)
    if problem.weighted and cov_type == "nonrobust":
        raise ArgumentError(
            'estimand="population" is not available for weighted rows, because the release does not contain the sum of '
            'squared weights. Use estimand="table", or declare the model before the release (models=).'
        )
    if cov_type == "nonrobust":
        problem.noisy.check_independent(
            'estimand="population"', instead='estimand="table", or declare the model before the release (models=)'
        )
    if n_rows is not None:
        return float(check.positive_integer(n_rows=n_rows))
    if math.isnan(problem.nobs):
        raise ArgumentError(
            'n_rows, a public number of rows, is required with estimand="population", because this release has no '
            "intercept and hence no noisy count."
        )
    if problem.nobs < 2 * problem.nobs_se:
        raise ArgumentError(
            'n_rows, a public number of rows, is required with estimand="population", because the noisy count of this '
            "release is less than two standard errors above 0."
        )
    return problem.nobs


def labelled(names: Sequence[str], values: Floats) -> dict[str, float]:
    """Return values by name."""
    return dict(zip(names, values.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------------
# Fitted models
S = TypeVar("S")


class Named(ABC):
    """Results for the default estimand, with the attribute names of statsmodels."""

    @property
    @abstractmethod
    def _table(self) -> Summary:
        """The summary from which results are taken."""

    @property
    def params(self) -> dict[str, float]:
        """Estimates by name; NaN if a coefficient is not identified."""
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
        """Return intervals of level 1 - alpha by name."""
        return self._table.conf_int(alpha)

    @property
    def rsquared(self) -> float:
        """R², within [0, 1]."""
        return self._table.rsquared

    @property
    def nobs(self) -> float:
        """Noisy number of rows in the table; the sum of the weights if rows are weighted."""
        return self._table.nobs

    @property
    def rsquared_adj(self) -> float:
        """R² adjusted for the number of coefficients."""
        return self._table.rsquared_adj

    @property
    def scale(self) -> float:
        """Residual variance; NaN if it is not defined."""
        return self._table.scale

    @property
    def aic(self) -> float | None:
        """Akaike's information criterion; None if it is not defined."""
        return self._table.aic

    def cov_params(self) -> LabelledSquare:
        """Return the covariance matrix of the coefficients."""
        return self._table.cov_params()

    def t_test(self, hypotheses: Hypotheses) -> ContrastTest:
        """Test linear hypotheses one at a time (:meth:`~gaussmix.models.results.Summary.t_test`)."""
        return self._table.t_test(hypotheses)

    def f_test(self, hypotheses: Hypotheses) -> JointTest:
        """Test linear hypotheses jointly (:meth:`~gaussmix.models.results.Summary.f_test`)."""
        return self._table.f_test(hypotheses)

    def wald_test(self, hypotheses: Hypotheses) -> JointTest:
        """Test linear hypotheses jointly (:meth:`~gaussmix.models.results.Summary.wald_test`)."""
        return self._table.wald_test(hypotheses)


class Fitted(ABC, Generic[S]):
    """A model fitted from a release. It is immutable, so that its summary is computed once."""

    response: str
    columns: tuple[str, ...]
    certificate: Certificate | None

    def summary(
        self,
        *,
        estimand: Estimand = "table",
        n_rows: int | None = None,
        collapse: Collapse | None = None,
        reference: Reference | None = None,
        cov_type: CovType | None = None,
    ) -> S:
        """Return coefficients with standard errors, p-values and intervals (:mod:`gaussmix.models.inference`).

        A model of several classes returns a dictionary by class.

        Parameters
        ----------
        estimand : {"table", "population"}
            Whether intervals are for the coefficients of the table, or of the population from which its rows were
            drawn. Some families support only ``"table"``.
        n_rows : int, optional
            The number of rows, declared public, for ``"population"``. Default: the noisy count of the release.
        collapse, reference : mapping, optional
            Levels to combine, ``{"job": {"other": ["none", "unpaid"]}}``, and reference levels of categories,
            ``{"race": "White"}``. The default reference is the first level, or the largest level if the noisy count of
            the first is below a quarter of it. For a model of several classes, ``reference`` may also give the class
            with which the others are compared.
        cov_type : {"nonrobust", "robust", "cluster"}, optional
            How the sampling error is computed for ``"population"``. Models that were declared before the release have
            sandwich covariances, ``"robust"`` (HC1) or, with a privacy unit, ``"cluster"``, which are then the default.
        """
        return self._summarise(
            estimand=estimand, n_rows=n_rows, collapse=collapse, reference=reference, cov_type=cov_type
        )

    @abstractmethod
    def _summarise(self, **options: Unpack[Asked]) -> S:
        """Compute the summary from all options."""

    @cached_property
    def _fitted(self) -> S:
        return self.summary()

    @abstractmethod
    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Unpack[Asked]) -> Any:
        """Return a data frame with one row per coefficient."""

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Equivalent to :meth:`tidy`."""
        return self.tidy(frame)


class FittedModel(Fitted[Summary], Named):
    """A model with one coefficient per feature."""

    @abstractmethod
    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return the regression as an inference problem."""

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        covariance_type(options)
        own = self.problem(collapse=options["collapse"], reference=options["reference"])
        return summarise(own, estimand=options["estimand"], n_rows=options["n_rows"])

    @property
    def _table(self) -> Summary:
        return self._fitted

    def tidy(
        self,
        frame: Frame | None = None,
        *,
        alpha: float = 0.05,
        exponentiate: bool = False,
        **summary: Unpack[Asked],
    ) -> Any:
        """Return one row per coefficient, as in broom.

        The columns are term, estimate, std.error, statistic, p.value, conf.low, conf.high and privacy.share; for
        generalised linear models also distribution.error.

        Parameters
        ----------
        frame : {"pandas", "polars", "arrow"}, optional
            Default: the first of them that is installed.
        alpha : float
            Intervals have level 1 - alpha.
        exponentiate : bool
            Whether estimates and interval ends are exp(β), odds or rate ratios. Other columns do not change.
        **summary
            As in ``summary``: ``estimand="population"``, ``n_rows``, ``collapse``, ``reference``.
        """
        return tidy_table(self.summary(**summary), alpha, exponentiate=exponentiate).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Unpack[Asked]) -> Any:
        """Return one row with nobs, r.squared, sigma, df, epsilon, delta and mu; unknown values are missing."""
        return glance_table(self.summary(**summary), self.certificate).to_frame(frame)

    def plot(self, ax: Any = None, *, alpha: float = 0.05, exponentiate: bool = False) -> Any:
        """Draw the coefficients with intervals of level 1 - alpha, and return the axes. Requires matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
        alpha : float
        exponentiate : bool
            Whether odds or rate ratios are drawn, on a log axis.
        """
        from gaussmix.models.comparison import plot_coefficients

        return plot_coefficients(self._table, ax, alpha=alpha, exponentiate=exponentiate)

    @property
    def endog_names(self) -> str:
        """Name of the response, as in statsmodels. maketables prints it above the coefficients."""
        return f"{_void(self.certificate)}{self.response}"

    def as_csv(self, alpha: float = 0.05) -> str:
        """Return :meth:`tidy` as CSV with full precision."""
        return tidy_table(self._table, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """Return the summary as a LaTeX tabular."""
        return self._table.as_latex(alpha)

    def _repr_html_(self) -> str:
        return self._table.as_html()

    def __repr__(self) -> str:
        void, columns = _void(self.certificate), f"{len(self.columns)} encoded columns"
        return f"{type(self).__name__}({void}{self.response!r} on {columns})"


class FittedClasses(Fitted[dict[Label, Summary]]):
    """A model with coefficients for every class except the reference class. Results are dictionaries by class."""

    classes: tuple[Label, ...]

    @property
    def params(self) -> dict[Label, dict[str, float]]:
        """Estimates by class and name; NaN if a coefficient is not identified."""
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
        """Return intervals of level 1 - alpha by class and name."""
        return {name: own.conf_int(alpha) for name, own in self._fitted.items()}

    @property
    def rsquared(self) -> dict[Label, float]:
        """R² by class, of the least-squares fit for its coefficients, within [0, 1]."""
        return {name: own.rsquared for name, own in self._fitted.items()}

    @property
    def nobs(self) -> float:
        """Noisy number of rows in the table, of all classes."""
        return next(iter(self._fitted.values())).nobs

    def tidy(self, frame: Frame | None = None, *, alpha: float = 0.05, **summary: Unpack[Asked]) -> Any:
        """Return one row per class and coefficient: y.level, then the columns of ``tidy`` of other models."""
        return tidy_by_class(self.response, self.summary(**summary), alpha).to_frame(frame)

    def glance(self, frame: Frame | None = None, **summary: Unpack[Asked]) -> Any:
        """Return one row, as for other models; df counts the coefficients of all classes without intercepts."""
        own = list(self.summary(**summary).values())
        found = glance_table(own[0], self.certificate)
        columns = {**found.columns, "df": (len(own) * found.columns["df"][0],)}
        return ResultTable(self.response, columns).to_frame(frame)

    def as_csv(self, alpha: float = 0.05) -> str:
        """Return :meth:`tidy` as CSV with full precision."""
        return tidy_by_class(self.response, self._fitted, alpha).as_csv()

    def as_latex(self, alpha: float = 0.05) -> str:
        """Return the summaries as one LaTeX tabular per class."""
        return "\n\n".join(own.as_latex(alpha) for own in self._fitted.values())

    def _repr_html_(self) -> str:
        return "".join(own.as_html() for own in self._fitted.values())

    def __repr__(self) -> str:
        void, columns = _void(self.certificate), f"{len(self.columns)} encoded columns"
        return f"{type(self).__name__}({void}{self.response!r} on {columns}, {len(self.classes)} classes)"


def _void(certificate: Certificate | None) -> str:
    """Return the start of a repr without a privacy guarantee; empty if there is a guarantee."""
    return "" if certificate is None else void_mark(certificate.void_words)


def tidy_table(summary: Summary, alpha: float = 0.05, *, exponentiate: bool = False) -> ResultTable:
    """Return one row per coefficient; NaN if it is not identified."""
    ends = summary.conf_int(alpha)
    if exponentiate:
        _check_ratio(summary)
    columns = {
        "term": tuple(ends),
        "estimate": _scaled(summary.params.values(), exponentiate),
        "std.error": tuple(summary.bse.values()),
        "statistic": tuple(summary.tvalues.values()),
        "p.value": tuple(summary.pvalues.values()),
        "conf.low": _scaled((low for low, _ in ends.values()), exponentiate),
        "conf.high": _scaled((high for _, high in ends.values()), exponentiate),
        "privacy.share": tuple(summary.noise_share.values()),
        **({"distribution.error": tuple(summary.distribution_se.values())} if summary.distribution_se else {}),
    }
    return ResultTable(heading(summary), columns, tuple(notes(summary)))


def _scaled(values: Iterable[float], exponentiate: bool) -> tuple[float, ...]:
    with np.errstate(over="ignore"):
        return tuple(float(np.exp(value)) if exponentiate else value for value in values)


def tidy_by_class(response: str, summaries: Mapping[Label, Summary], alpha: float = 0.05) -> ResultTable:
    """Return the coefficients of all classes in one table."""
    tables = {name: tidy_table(own, alpha) for name, own in summaries.items()}
    levels = tuple(name for name, own in tables.items() for _ in range(len(own)))
    names = next(iter(tables.values())).columns
    columns = {key: tuple(value for own in tables.values() for value in own.columns[key]) for key in names}
    words = dict.fromkeys(note for own in tables.values() for note in own.notes)
    return ResultTable(response, {"y.level": levels, **columns}, tuple(words))


def ratio_table(summary: Summary, alpha: float = 0.05) -> ResultTable:
    """Return exp(β) of all features with intervals and p-values, for a family whose ratios have a name.

    Ratios of coefficients that are not identified are NaN.
    """
    ratio = _check_ratio(summary)
    ends = {name: pair for name, pair in summary.conf_int(alpha).items() if name != INTERCEPT}
    columns: dict[str, tuple[Any, ...]] = {
        "term": tuple(ends),
        ratio.replace(" ", "."): _scaled((summary.params[name] for name in ends), exponentiate=True),
        "conf.low": _scaled((low for low, _ in ends.values()), exponentiate=True),
        "conf.high": _scaled((high for _, high in ends.values()), exponentiate=True),
        "p.value": tuple(summary.pvalues[name] for name in ends),
    }
    title = f"{summary.response_name}: {ratio}s, {100 * (1 - alpha):g} % intervals"
    return ResultTable(title, columns, tuple(notes(summary)))


def _check_ratio(summary: Summary) -> str:
    """Return what exp(β) is called; reject families where it has no meaning."""
    if not summary.family.ratio:
        raise ArgumentError(
            f"Ratios exp(β) are not defined for the family {summary.family.name!r}. Use tidy or summary."
        )
    return summary.family.ratio


def glance_table(summary: Summary, certificate: Certificate | None) -> ResultTable:
    """Return one row about the whole model. sigma is the residual standard error."""
    shown = summary.family.has_rsquared and not summary.noise_dominates
    account = None if certificate is None else certificate.guarantee
    columns: dict[str, tuple[Any, ...]] = {
        "nobs": (summary.nobs,),
        "r.squared": (summary.rsquared if shown else math.nan,),
        "sigma": (summary.sigma if shown else math.nan,),
        "df": (len(summary.params) - (INTERCEPT in summary.params),),
        "epsilon": (math.nan if certificate is None else certificate.epsilon,),
        "delta": (math.nan if certificate is None else certificate.delta,),
        "mu": (float(getattr(account, "mu", math.nan)),),
    }
    return ResultTable(summary.response_name, columns)
