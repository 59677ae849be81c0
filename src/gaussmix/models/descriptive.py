r"""Descriptive statistics of a release, each with its interval.

**Of the declared table**, values clamped to their bounds and nothing else changed: `describe`, `quantiles`,
`histogram`, `total`, `ratio` and `crosstab`. They are functions of counts and sums with normal errors of known
covariance (:mod:`gaussmix.releases.counts`).

- Means and shares are ratios, with Fieller's interval. About the declared centre c, mean = c + Σ(x - c)/N.
- A variance is Σ(x - c)²/N - (mean - c)², with the interval of the delta method; a standard deviation is its root, and
  NaN where the variance is not significantly positive.
- A quantile lies in cell k of a number's public cells if the rows below the cell's lower edge are at most qN, and those
  below its upper edge at least qN. A cell is rejected if one of both is rejected by a test of level α/2. The interval
  is the union of the cells that are not, and so holds however rows lie within cells.

**Of the rows that models read**, numbers coded to thresholds and rows of large norm clipped: `group_means`, `anova` and
`correlations`, from the last pass.

Independence, of the population behind the rows: h_ab = n_ab - n_a·n_·b/n has mean 0 and covariance

.. math:: J V J^\top + n\,(\mathrm{diag}\,p - pp^\top) \otimes (\mathrm{diag}\,q - qq^\top),

noise (V the covariance of the counts, J the derivative of h) and sampling; with the last row and column left out,
hᵀ(covariance)⁻¹h is chi-square with (A - 1)(B - 1) degrees of freedom. Without noise it is Pearson's statistic.

Analysis of variance, of the population behind the rows: for every level a, n_a and S_a = Σ_a x are solved together with
Σ x² by generalised least squares. With m = S/n and h_a = S_a - m n_a, the sum of squares between groups is Σ h_a²/n_a,
and what is left of Σ x² - S²/n within. Under equal means h has mean 0 and covariance

.. math:: J V J^\top + s^2\,(\mathrm{diag}\,n_a - n_a n_b/n), \qquad s^2 = \text{within}/(n - A),

V that of (n_a, S_a), J the derivative of h; hᵀ(covariance)⁻¹h/(A - 1), the last level left out, is compared with F of
A - 1 and n - A degrees of freedom. Without noise it is the usual F.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.linalg
from scipy import stats

from gaussmix import _validation as check
from gaussmix._text import plain, six_digits
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import Schema
from gaussmix.data.units import half_span
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding, column_of, is_marked
from gaussmix.models.inference import critical_value, residuals
from gaussmix.models.rendering import new_axes, void_mark
from gaussmix.models.results import Frame, ResultTable, as_frame, columns_of
from gaussmix.releases.counts import (
    RowCounts,
    first_pass,
    fit_structure,
    kinds_of,
    level_designs,
    structure,
    with_margins,
)
from gaussmix.releases.noisy import Fitted, NoisyMoment, fieller, ratio_interval

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = [
    "NOISY",
    "Anova",
    "ChiSquare",
    "Correlations",
    "Crosstab",
    "Histogram",
    "analysis",
    "anova",
    "chosen_columns",
    "correlations",
    "crosstab",
    "describe",
    "group_designs",
    "group_means",
    "group_sums",
    "histogram",
    "independence",
    "quantiles",
    "ratio",
    "total",
]

Row = tuple[str, str, float, float, float, float]
"""Term, statistic, estimate, standard error, and the ends of the interval."""

NAMES = ("term", "statistic", "estimate", "std.error", "conf.low", "conf.high")

OF_TABLE = (
    "Statistics describe the declared table, with values clamped to their bounds; intervals account for privacy noise."
)
CODED = (
    "Statistics describe the table with numbers coded to their thresholds ({}); intervals account for privacy noise."
)
OF_MODELS = (
    "Statistics describe the table that models are fitted to, not the declared table: {}. Intervals account for "
    "privacy noise."
)
INTERPOLATED = "Quantiles are interpolated within histogram cells; their intervals end at edges of cells."
BOUNDED = "Contributions are bounded: rows of a privacy unit with more rows than max_contributions have less weight."
WEIGHTED = "Rows are weighted: counts and totals are sums of weights, and other statistics are weighted."


def notes_of(release: Release, *, of_models: bool = False) -> tuple[str, ...]:
    """Return what a table is about; why there is no guarantee comes first."""
    statistic = release.statistic
    thresholds = ", ".join(
        f"{name} to [{six_digits(low)}, {six_digits(high)}]" for name, (low, high) in release.thresholds.items()
    )
    noisy = statistic.noisy if of_models else first_pass(statistic)
    changes = [f"numbers are coded to thresholds ({thresholds})"] * bool(thresholds)
    if noisy.clipping_loss is not None:
        changes.append(f"norm clipping in the final pass (Release.weights) removed {noisy.clipping_loss}")
    first = OF_TABLE
    if changes and (of_models or statistic.marginals is None):
        first = OF_MODELS.format("; ".join(changes)) if len(changes) > 1 or not thresholds else CODED.format(thresholds)
    notes = [release.certificate.void_words, first]
    notes += [BOUNDED] * (release.certificate.bounded_unit is not None) + [WEIGHTED] * (
        release.schema.weight is not None
    )
    return tuple(filter(None, notes))


def chosen_columns(schema: Schema, columns: Sequence[str] | None, *, known: Sequence[str] | None = None) -> list[str]:
    """Return columns of the release by name; default: all of ``known``, which are those without missing values."""
    if isinstance(columns, str):
        raise ArgumentError(f"columns must be a list of columns, got one string. Write columns=[{columns!r}].")
    if known is None:
        known = [name for name in schema.columns if name in schema.groups and not is_marked(schema, name)]
    chosen = list(known) if columns is None else list(columns)
    for name in chosen:
        if name not in known:
            column_of(schema, name)
            if name not in schema.columns:
                raise ArgumentError(
                    f"{name!r} is a term. Tables and correlations are of declared columns; Release.moments has the "
                    "means and covariances of terms."
                )
            raise ArgumentError(
                f"Column {name!r} is not available: it is used only in terms, is the weight, or has a missing-value "
                "indicator. Omit it from columns."
            )
    if len(set(chosen)) < len(chosen):
        twice = next(name for k, name in enumerate(chosen) if name in chosen[:k])
        raise ArgumentError(f"columns must not contain duplicates, got {twice!r} twice.")
    return chosen


def _described(release: Release) -> list[str]:
    """Return the columns that can be described: all that have marginals, or columns of the encoded row."""
    marginals, schema = release.statistic.marginals, release.schema
    if marginals is not None:
        return [cells.column for cells in marginals.plan.cells.columns]
    return [name for name in schema.columns if name in schema.groups]


# ---------------------------------------------------------------------------------------------------------------
# Columns one by one
def describe(release: Release, columns: Sequence[str] | None = None, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.describe`."""
    z, counts, schema = critical_value(alpha), RowCounts(release.statistic), release.certificate.schema
    chosen = chosen_columns(schema, columns, known=_described(release))
    value, error = counts.rows
    what = "(rows)" if schema.weight is None else "(weights)"
    rows: list[Row] = [(what, "count", *_count(value, error, z))]
    for name in chosen:
        column = schema.columns[name]
        if isinstance(column, Categorical | Boolean):
            labels, _ = kinds_of(schema, name)
            rows += _level_rows(name, labels, counts.of(name), z)[2 * isinstance(column, Boolean) :]
        elif isinstance(column, Vector):
            for entry, index in enumerate(release.schema.groups[name]):
                rows += _moment_rows(release, counts, name, release.schema.names[index], z, entry)
        else:
            rows += _number_rows(release, counts, name, z)
    found = columns_of(NAMES, rows)
    hidden = any(row[1] == "std" and math.isnan(row[2]) for row in rows)
    words = [INTERPOLATED] * any(row[1] == "median" for row in rows)
    words += ["A standard deviation is not shown where the variance is not significantly positive."] * hidden
    title = f"{len(chosen)} columns, {100 * (1 - alpha):g} % intervals"
    return ResultTable(title, found, (*notes_of(release), *words))


def _level_rows(name: str, labels: Sequence[str], counts: Fitted, z: float) -> list[Row]:
    """Return share and count of every level."""
    found: list[Row] = []
    total = np.ones(len(labels))
    for label, one, count, error in zip(labels, np.eye(len(labels)), counts.values, counts.std_errors, strict=True):
        term = f"{name}={label}"
        found.append((term, "share", *_share(counts, one, total, z)))
        found.append((term, "count", *_count(count, error, z)))
    return found


def _count(value: float, error: float, z: float) -> tuple[float, float, float, float]:
    """Return a count, at least 0, its standard error and its interval.

    The interval is that of the clamped count: longer than that of a negative one, which may hold 0 alone.
    """
    value, error = max(float(value), 0.0), float(error)
    return value, error, max(value - z * error, 0.0), value + z * error


def _share(counts: Fitted, part: Floats, whole: Floats, z: float) -> tuple[float, float, float, float]:
    """Return a share within [0, 1], its standard error and its interval, which is that of a count of at least 0."""
    pair = counts.mapped(np.vstack([part, whole]))
    value, error, low, high = fieller(Fitted(np.maximum(pair.values, 0.0), pair.covariance), z)
    value, low, high = (min(max(number, 0.0), 1.0) for number in (value, low, high))
    return value, error, low, high


def _number_rows(release: Release, counts: RowCounts, name: str, z: float) -> list[Row]:
    """Return mean, standard deviation, quartiles, missing values and coded values of a number."""
    rows = _moment_rows(release, counts, name, name, z)
    marginals = release.statistic.marginals
    if marginals is None:
        return rows
    edges, found = counts.edges(name), counts.of(name)
    for q, word in ((0.25, "q25"), (0.5, "median"), (0.75, "q75")):
        value, low, high = _quantile(edges, found, q, z)
        rows.append((name, word, value, math.nan, low, high))
    if len(found.values) == len(edges):  # the last cell holds missing values
        rows += _level_rows(name, ["(known)"] * (len(edges) - 1) + ["(missing)"], found, z)[-2:]
    if name in release.thresholds:
        for side, threshold in zip(("low", "high"), release.thresholds[name], strict=True):
            if threshold not in (edges[0], edges[-1]):
                share = marginals.share_beyond(name, threshold, above=side == "high", z=z)
                rows.append((name, f"share {'above' if side == 'high' else 'below'} {six_digits(threshold)}", *share))
    return rows


def _moment_rows(release: Release, counts: RowCounts, name: str, term: str, z: float, entry: int = 0) -> list[Row]:
    """Return mean and standard deviation of a number."""
    sums = counts.sums(name, entry)
    marginals = release.statistic.marginals
    schema = release.schema if marginals is None else marginals.plan.schema
    index = schema.groups[name][entry]
    centre = float(schema.units.centres[index])
    half = half_span(schema, schema.encoded[index]) * float(schema.units.scales[index])
    n, _, second = sums.values
    mean, error, low, high = fieller(sums.mapped(np.eye(3)[[1, 0]]), z)
    shown, low, high = (min(max(number, -half), half) + centre for number in (mean, low, high))
    rows: list[Row] = [(term, "mean", shown, error, low, high)]
    # Var = Σ(x - c)²/N - (mean - c)², less the noise in the square; n/(n - 1) where rows count one each.
    variance = second / n - mean**2 + error**2
    gradient = np.array([(mean**2 * 2 - second / n) / n, -2 * mean / n, 1 / n])
    half_length = z * math.sqrt(max(float(gradient @ sums.covariance @ gradient), 0.0))
    stretch = (
        1.0
        if release.schema.weight is not None or release.certificate.bounded_unit is not None
        else n / max(n - 1, 1.0)
    )
    least, most = (math.sqrt(stretch * min(max(variance + s * half_length, 0.0), half**2)) for s in (-1, 1))
    if math.isnan(mean) or not least > 0:  # not significantly positive
        return [*rows, (term, "std", math.nan, math.nan, 0.0, half if math.isnan(mean) else most)]
    value = math.sqrt(stretch * variance)
    return [*rows, (term, "std", value, stretch * half_length / (2 * z * value), least, most)]


def _quantile(edges: Floats, cells: Fitted, q: float, z: float) -> tuple[float, float, float]:
    """Return a quantile by interpolation, and its interval, whose ends are edges."""
    last = len(edges) - 1  # cells after it hold missing values
    known = np.arange(len(cells.values)) < last
    below = np.tri(last + 1, len(cells.values), -1) * known
    excess = cells.mapped(below - q * known)  # rows below every edge, less qN
    margin = z * excess.std_errors
    kept = np.flatnonzero((excess.values <= margin)[:-1] & (excess.values >= -margin)[1:])
    increasing = (np.maximum.accumulate(excess.values) + np.minimum.accumulate(excess.values[::-1])[::-1]) / 2
    value = float(np.interp(0.0, increasing, edges))
    if not len(kept):
        kept = np.array([min(max(int(np.searchsorted(edges, value)) - 1, 0), last - 1)])
    low, high = float(edges[kept[0]]), float(edges[kept[-1] + 1])
    return min(max(value, low), high), low, high


def _numbers(release: Release, columns: Sequence[str] | None) -> list[str]:
    """Return numeric columns by name; all of them unless said."""
    declared = release.certificate.schema.columns
    chosen = chosen_columns(release.certificate.schema, columns, known=_described(release))
    numbers = [name for name in chosen if isinstance(declared[name], Numeric)]
    if columns is not None and len(numbers) < len(chosen):
        raise ArgumentError(
            f"Quantiles and histograms require numeric columns, got {sorted(set(chosen) - set(numbers))}."
        )
    return numbers


def quantiles(
    release: Release, columns: Sequence[str] | None, q: Sequence[float], *, alpha: float = 0.05
) -> ResultTable:
    """The table of :meth:`gaussmix.Release.quantiles`."""
    z, counts, rows = critical_value(alpha), RowCounts(release.statistic), []
    asked = [check.in_interval(0, 1, q=value) for value in ([q] if isinstance(q, float) else q)]
    for name in _numbers(release, columns):
        edges, found = counts.edges(name), counts.of(name)
        rows += [(name, value, *_quantile(edges, found, value, z)) for value in asked]
    notes = ("Intervals end at edges of public histogram cells and hold for any distribution of rows within cells.",)
    title = f"quantiles, {100 * (1 - alpha):g} % intervals"
    table = columns_of(("term", "q", "estimate", "conf.low", "conf.high"), rows)
    return ResultTable(title, table, (*notes_of(release), *notes))


class _Tabular(ABC):
    """A result that is shown as a table."""

    @abstractmethod
    def table(self) -> ResultTable:
        """Return the result as a table."""

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Return :meth:`table` as a data frame."""
        return self.table().to_frame(frame)

    def _repr_html_(self) -> str:
        return self.table().as_html()

    def __str__(self) -> str:
        return str(self.table())


@dataclass(frozen=True, eq=False)
class Histogram(_Tabular):
    """Noisy counts of a numeric column in public bins.

    Attributes
    ----------
    column : str
    edges : array (bins + 1,)
        In original units; a bin contains its lower edge.
    counts, std_errors : array (bins,)
        Noisy counts, which can be negative, and their standard errors.
    """

    column: str
    edges: Floats
    counts: Floats
    std_errors: Floats
    _about: tuple[str, ...] = field(default=(), repr=False)

    def table(self, alpha: float = 0.05) -> ResultTable:
        """Return one row per bin, with the interval of its count."""
        z = critical_value(alpha)
        rows = [
            (float(low), float(high), *_count(n, s, z))
            for low, high, n, s in zip(self.edges[:-1], self.edges[1:], self.counts, self.std_errors, strict=True)
        ]
        names = ("from", "to", "estimate", "std.error", "conf.low", "conf.high")
        return ResultTable(f"histogram of {self.column}", columns_of(names, rows), self._about)

    def plot(self, ax: Any = None) -> Any:
        """Draw counts over widths, with bars of one standard error, and return the axes. Requires matplotlib."""
        ax = new_axes() if ax is None else ax
        width = np.diff(self.edges)
        ax.bar(self.edges[:-1], self.counts / width, width, yerr=self.std_errors / width, align="edge", alpha=0.7)
        ax.set(xlabel=self.column, ylabel="rows per unit")
        return ax

    def __repr__(self) -> str:
        return plain(f"Histogram({void_mark(*self._about)}{self.column!r}, {len(self.counts)} bins)")


def histogram(release: Release, column: str, bins: int | None = None) -> Histogram:
    """The histogram of :meth:`gaussmix.Release.histogram`."""
    (name,) = _numbers(release, [column])
    counts = RowCounts(release.statistic)
    cells, found = counts.edges(name), counts.of(name)
    edges = cells
    if bins is None:  # by noise alone: a bin of average count should stand out from it
        rows, noise = counts.rows[0], float(np.median(found.std_errors))
        bins = max((size for size in (4, 8, 16, 32) if rows / size >= 4 * noise), default=2)
    if bins:
        wanted = np.linspace(edges[0], edges[-1], check.positive_integer(bins=bins) + 1)
        edges = edges[np.unique(np.argmin(np.abs(edges[:, np.newaxis] - wanted), axis=0))]
    place = np.searchsorted(edges, cells[:-1], side="right") - 1
    merged = found.mapped((place == np.arange(len(edges) - 1)[:, np.newaxis]) @ np.eye(len(place), len(found.values)))
    return Histogram(name, edges, merged.values, merged.std_errors, notes_of(release))


def total(release: Release, column: str, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.total`."""
    z = critical_value(alpha)
    found = RowCounts(release.statistic).totals(_summed(release, [column]))
    value, error = float(found.values[0]), float(found.std_errors[0])
    row = (column, "total", value, error, value - z * error, value + z * error)
    return ResultTable(f"total of {column}", columns_of(NAMES, [row]), notes_of(release))


def ratio(release: Release, numerator: str, denominator: str, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.ratio`."""
    found = RowCounts(release.statistic).totals(_summed(release, [numerator, denominator]))
    row = (f"{numerator}/{denominator}", "ratio", *fieller(found, critical_value(alpha)))
    return ResultTable(f"total of {numerator} over total of {denominator}", columns_of(NAMES, [row]), notes_of(release))


def _summed(release: Release, columns: Sequence[str]) -> list[str]:
    declared = release.certificate.schema
    chosen = chosen_columns(declared, columns, known=_described(release))
    for name in chosen:
        if not isinstance(declared.columns[name], Numeric | Boolean):
            raise ArgumentError(f"Totals and ratios require a numeric or boolean column, got {name!r}.")
    return chosen


# ---------------------------------------------------------------------------------------------------------------
# Correlations
@dataclass(frozen=True, eq=False)
class Correlations:
    """A matrix of correlations.

    Attributes
    ----------
    names : tuple of str
        Of the encoded columns: levels are 0/1 columns of their own.
    values, std_errors : arrays (p, p)
        Correlations, and standard deviations of their noise; NaN where noise dominates the variance of a column.
    given : tuple of str
        Columns that are held fixed.
    """

    names: tuple[str, ...]
    values: Floats
    std_errors: Floats
    given: tuple[str, ...] = ()
    _about: tuple[str, ...] = field(default=(), repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals, shape (p, p, 2), within [-1, 1] (:mod:`gaussmix.models.inference`)."""
        half = critical_value(alpha) * self.std_errors
        return np.clip(np.stack([self.values - half, self.values + half], axis=-1), -1.0, 1.0)

    def to_frame(self, frame: Frame | None = None) -> Any:
        """Return the matrix as a data frame whose first column has the names."""
        columns = {name: self.values[:, place] for place, name in enumerate(self.names)}
        return as_frame(pa.table({"term": list(self.names), **columns}), frame)

    def pairs(self, alpha: float = 0.05) -> ResultTable:
        """Return one row per pair of columns, with the interval of its correlation."""
        ends = self.conf_int(alpha)
        rows = [
            (one, two, float(self.values[i, j]), float(self.std_errors[i, j]), *ends[i, j].tolist())
            for i, one in enumerate(self.names)
            for j, two in enumerate(self.names)
            if i < j
        ]
        names = ("term", "with", "estimate", "std.error", "conf.low", "conf.high")
        return ResultTable(self._title, columns_of(names, rows), self._about)

    @property
    def _title(self) -> str:
        return "correlations" + (f" given {', '.join(self.given)}" if self.given else "")

    def as_text(self) -> str:
        """Return the matrix as text, rounded to two digits."""
        cells = [[f"{value:.2f}" if np.isfinite(value) else "" for value in row] for row in self.values]
        rows = [[name, *row] for name, row in zip(self.names, cells, strict=True)]
        return str(ResultTable(self._title, columns_of(("", *self.names), rows), self._about))

    def _repr_html_(self) -> str:
        return self.pairs().as_html()

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        given = f", given {', '.join(self.given)}" if self.given else ""
        return plain(f"Correlations({void_mark(*self._about)}{len(self.names)} columns{given})")


def correlations(release: Release, columns: Sequence[str] | None, given: Sequence[str]) -> Correlations:
    """The matrix of :meth:`gaussmix.Release.corr`."""
    schema = release.schema
    fixed = chosen_columns(schema, given)
    chosen = [name for name in chosen_columns(schema, columns) if columns is not None or name not in fixed]
    if both := [name for name in chosen if name in fixed]:
        raise ArgumentError(f"Column {both[0]!r} cannot be in both columns and given. Omit it from one of them.")
    if not chosen:
        raise ArgumentError("No columns are left to correlate. List fewer columns in given.")
    indices = [index for name in chosen for index in schema.groups[name]]
    held = Coding.of(schema, fixed).rows if fixed else schema.units.one[np.newaxis]
    found = residuals(release.statistic.noisy, schema.units.rows(indices), held)
    names = tuple(schema.names[i] for i in indices)
    return Correlations(names, *found.correlations(), given=tuple(fixed), _about=notes_of(release, of_models=True))


# ---------------------------------------------------------------------------------------------------------------
# Cross-tables
NOISY = "Counts are noisy estimates: those of few rows can be negative, and rounded cells may not add up to margins."


@dataclass(frozen=True)
class ChiSquare:
    """A test of independence that accounts for the noise.

    Attributes
    ----------
    statistic, p_value : float
        NaN where counts are not significantly positive, rows have weights, or a privacy unit may have several.
    degrees : int
    privacy_share : float
        Share of the covariance that is privacy noise, averaged over directions; the rest is sampling.
    """

    statistic: float
    p_value: float
    degrees: int
    privacy_share: float

    def __str__(self) -> str:
        freedom = f"{self.degrees} degree{'s' * (self.degrees != 1)} of freedom"
        if math.isnan(self.p_value):
            words = "not tested: counts are not significantly positive, or rows are not independent or have weights."
            return f"Independence in the population: {freedom}, {words}"
        return (
            f"Independence in the population: chi-square {self.statistic:.4g}, {freedom}, p = {self.p_value:.3g}; "
            f"{100 * self.privacy_share:.0f} % of the variance of the counts is due to privacy noise."
        )


@dataclass(frozen=True, eq=False)
class Crosstab(_Tabular):
    """A cross-table of two columns.

    Attributes
    ----------
    names : tuple of str
        The two columns: rows, then columns.
    rows, columns : tuple of str
        Their levels.
    estimates, std_errors : arrays (A, B)
        Noisy counts and the standard deviations of their noise. Counts of few rows can be negative.
    independence : ChiSquare
    """

    names: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    estimates: Floats
    std_errors: Floats
    independence: ChiSquare
    _fitted: Fitted = field(repr=False)
    _about: tuple[str, ...] = field(repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of the counts, shape (A, B, 2). Their ends can be negative, like the counts."""
        z = critical_value(alpha)
        return np.stack([self.estimates - z * self.std_errors, self.estimates + z * self.std_errors], axis=-1)

    def shares(self, within: str = "all", alpha: float = 0.05) -> tuple[Floats, Floats]:
        """Return shares of all rows, of each row or of each column, (A, B); and Fieller's intervals, (A, B, 2).

        Parameters
        ----------
        within : {"all", "row", "column"}
        alpha : float
        """
        check.choice(("all", "row", "column"), within=within)
        z, (a, b) = critical_value(alpha), self.estimates.shape
        cell = np.arange(a * b)
        same = {"all": 0 * cell, "row": cell // b, "column": cell % b}[within]
        under = (same[:, np.newaxis] == same[np.newaxis]).astype(float)
        n, V = self._fitted.values, self._fitted.covariance
        total, with_total = under @ n, np.diagonal(under @ V)
        var_total = np.sum((under @ V) * under, axis=1)
        low, high = ratio_interval(n, total, np.diagonal(V), var_total, with_total, z)
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = np.clip(np.where(total > 0, n / total, np.nan), 0.0, 1.0)
        ends = np.clip(np.stack([low, high], axis=-1), 0.0, 1.0)
        return middle.reshape(a, b), ends.reshape(a, b, 2)

    def table(self, alpha: float = 0.05) -> ResultTable:
        """Return one row per cell: levels, noisy count with its interval, shares of row and column."""
        ends, by_row, by_column = self.conf_int(alpha), self.shares("row", alpha)[0], self.shares("column", alpha)[0]
        found = [
            (
                row,
                column,
                *(float(values[i, j]) for values in (self.estimates, self.std_errors)),
                *ends[i, j].tolist(),
                float(by_row[i, j]),
                float(by_column[i, j]),
            )
            for i, row in enumerate(self.rows)
            for j, column in enumerate(self.columns)
        ]
        names = (*self.names, "estimate", "std.error", "conf.low", "conf.high", "row.share", "column.share")
        return ResultTable(" by ".join(self.names), columns_of(names, found), self._notes())

    def cells(self, alpha: float = 0.05) -> list[list[str]]:
        """Counts as text, ± half their intervals, and margins, rounded to integers; the first row is the head."""
        z = critical_value(alpha)
        cells = [
            [f"{n:z,.0f} ± {z * s:,.0f}" for n, s in zip(counts, std_errors, strict=True)] + [f"{counts.sum():z,.0f}"]
            for counts, std_errors in zip(self.estimates, self.std_errors, strict=True)
        ]
        margins = [f"{total:z,.0f}" for total in (*self.estimates.sum(axis=0), self.estimates.sum())]
        rows = [[name, *row] for name, row in zip((*self.rows, "all"), [*cells, margins], strict=True)]
        return [[self.names[0], *self.columns, "all"], *rows]

    def as_text(self) -> str:
        """Return the cells as text for a terminal, under the names of both columns."""
        head, *rows = self.cells()
        title = f"{self.names[0]} by {self.names[1]}"
        return ResultTable(title, columns_of(head, rows), self._notes()).as_text()

    def _notes(self) -> tuple[str, ...]:
        return (*self._about, NOISY, str(self.independence))

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        void = void_mark(*self._about)
        return f"Crosstab({void}{self.names[0]!r} by {self.names[1]!r}, {len(self.rows)} x {len(self.columns)})"


def crosstab(release: Release, rows: str, columns: str) -> Crosstab:
    """The table of :meth:`gaussmix.Release.crosstab`."""
    if rows == columns:
        raise ArgumentError(f"rows and columns must be different columns, got {rows!r} for both.")
    statistic, schema = release.statistic, release.certificate.schema
    one, two = (kinds_of(schema, name)[0] for name in (rows, columns))
    shape = (len(one), len(two))
    fitted, notes = _cells(release, rows, columns)
    if statistic.marginals is not None:
        counts = RowCounts(statistic)
        fitted = with_margins(fitted, counts.of(rows), counts.of(columns))
    test = independence(fitted, shape)
    if schema.weight is not None or not statistic.independent_rows:  # rows are not independent draws of equal weight
        test = replace(test, statistic=math.nan, p_value=math.nan, privacy_share=math.nan)
    return Crosstab(
        (rows, columns),
        one,
        two,
        estimates=fitted.values.reshape(shape),
        std_errors=fitted.std_errors.reshape(shape),
        independence=test,
        _fitted=fitted,
        _about=(*notes_of(release), *notes),
    )


def _cells(release: Release, rows: str, columns: str) -> tuple[Fitted, tuple[str, ...]]:
    """Return the counts of all pairs of levels, row by row: of a declared table, or from the Gram matrix."""
    statistic, weight = release.statistic, release.schema.weight_bound
    for pair in release.tables:
        if set(pair) == {rows, columns} and statistic.marginals is not None:
            own = statistic.marginals.by_column[pair]
            cells = (own if pair == (rows, columns) else own.T).ravel()
            variance = (weight * statistic.marginals.std_errors[0]) ** 2
            return Fitted(weight * cells, variance * np.eye(len(cells))), ()
    noisy, notes = first_pass(statistic), []
    found = fit_structure(*structure(noisy, release.schema, [rows, columns]))
    if statistic.marginals is not None:
        notes.append(f"A release with tables=[({rows!r}, {columns!r})] counts the cells directly, with less noise.")
        if noisy.clipping_loss is not None:
            notes.append(
                f"Cells are computed from the last pass, in which norm clipping removed {noisy.clipping_loss}."
            )
    return found.mapped(weight * np.eye(len(found.values))), tuple(notes)


def independence(counts: Fitted, shape: tuple[int, int]) -> ChiSquare:
    """The test of independence, with the noise of the counts in it."""
    a, b = shape
    n, V = counts.values.reshape(shape), counts.covariance
    degrees, total = (a - 1) * (b - 1), float(n.sum())
    p, q = n.sum(axis=1) / total, n.sum(axis=0) / total
    if degrees == 0 or not total > 0 or min(p.min(), q.min()) <= 0:
        return ChiSquare(math.nan, math.nan, degrees, math.nan)
    cells = np.arange(a * b)
    in_row = (cells[:, np.newaxis] // b == cells // b) * q[cells % b][:, np.newaxis]
    in_column = (cells[:, np.newaxis] % b == cells % b) * p[cells // b][:, np.newaxis]
    J = np.eye(a * b) - in_row - in_column + np.outer(p, q).ravel()[:, np.newaxis]
    h = (n - total * np.outer(p, q)).ravel()
    kept = cells.reshape(shape)[:-1, :-1].ravel()
    noise = (J @ V @ J.T)[np.ix_(kept, kept)]
    sampling = total * np.kron(np.diag(p) - np.outer(p, p), np.diag(q) - np.outer(q, q))[np.ix_(kept, kept)]
    found = scipy.linalg.solve(noise + sampling, np.column_stack([h[kept], noise]), assume_a="pos")
    statistic = float(h[kept] @ found[:, 0])
    return ChiSquare(
        statistic, float(stats.chi2.sf(statistic, degrees)), degrees, float(np.trace(found[:, 1:])) / degrees
    )


# ---------------------------------------------------------------------------------------------------------------
# Groups
def group_designs(u: Floats) -> Floats:
    """Designs of (n_a, Σ_a x) for kinds of rows u, shape (kinds, p), x after them; and, last, of Σ x²."""
    kinds, p = u.shape
    found = np.zeros((2 * kinds + 1, p + 1, p + 1))
    found[:kinds, :p, :p] = level_designs(u)
    found[kinds : 2 * kinds, :p, p] = found[kinds : 2 * kinds, p, :p] = u
    found[-1, p, p] = 1.0
    return found


def group_sums(noisy: NoisyMoment, schema: Schema, response: str, by: str) -> tuple[tuple[str, ...], Fitted]:
    """Levels, and (n_a, S_a, Σ x²) in the units of the matrix; x is measured from its declared centre."""
    column = column_of(schema, response)
    if not isinstance(column, Numeric | Boolean):
        raise ArgumentError(f"Means require a numeric or boolean response, got {response!r}.")
    if response == by:
        raise ArgumentError(f"response and by must be different columns, got {response!r} for both.")
    labels, kinds = kinds_of(schema, by)
    units = schema.units
    own = noisy.mapped(np.vstack([units.one, units.rows(schema.groups[by]), units.deviations(schema.groups[response])]))
    return labels, fit_structure(own, group_designs(np.column_stack([np.ones(len(kinds)), kinds])))


NO_ROWS = "An interval is the whole range of the response if a level's count is not significantly different from zero."


def group_means(release: Release, response: str, by: str, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.means`."""
    z, schema = critical_value(alpha), release.schema
    labels, sums = group_sums(release.statistic.noisy, schema, response, by)
    centre, k = float(schema.units.centres[schema.groups[response][0]]), len(labels)
    column = column_of(schema, response)
    bounds = (column.lower, column.upper) if isinstance(column, Numeric) else (0.0, 1.0)
    found, unbounded = list[tuple[Any, ...]](), False
    for place, label in enumerate(labels):
        mean, error, *ends = fieller(sums.mapped(np.eye(2 * k + 1)[[k + place, place]]), z)
        unbounded |= math.isinf(ends[1])
        mean, low, high = np.clip([mean + centre, *(end + centre for end in ends)], *bounds).tolist()
        found.append((label, mean, error, low, high))
    names = (by, "mean", "std.error", "conf.low", "conf.high")
    words = (NO_ROWS,) * unbounded
    notes = (*notes_of(release, of_models=True), *words)
    return ResultTable(f"mean of {response} by {by}", columns_of(names, found), notes)


@dataclass(frozen=True)
class Anova(_Tabular):
    """An analysis of variance of one number by one category.

    Attributes
    ----------
    response, by : str
    between, within : float
        Sums of squares, noise taken out of neither.
    degrees : tuple of float
        A - 1, and n - A with the noisy number of rows.
    statistic, p_value : float
        F with the noise in its denominator; NaN where counts or variances are not significantly positive, or rows have
        weights.
    eta_squared : float
        between/(between + within).
    privacy_share : float
        Share of the covariance of group means that is privacy noise; the rest is sampling.
    """

    response: str
    by: str
    between: float
    within: float
    degrees: tuple[int, float]
    statistic: float
    p_value: float
    eta_squared: float
    privacy_share: float
    _about: tuple[str, ...] = ()

    def table(self) -> ResultTable:
        """Return the analysis of variance as a table, in the usual form."""
        first, second = self.degrees
        rows = [
            (self.by, self.between, float(first), self.between / first, self.statistic, self.p_value),
            ("residual", self.within, second, self.within / second, math.nan, math.nan),
        ]
        names = ("term", "sum.sq", "df", "mean.sq", "statistic", "p.value")
        note = (
            f"The F test accounts for sampling error and privacy noise; {100 * self.privacy_share:.0f} % of the "
            "variance of the group means is due to privacy noise."
        )
        if math.isnan(self.privacy_share):
            note = "No F test is available: rows have weights, or counts or variances are not significantly positive."
        return ResultTable(f"{self.response} by {self.by}", columns_of(names, rows), (*self._about, note))

    def __repr__(self) -> str:
        what = f"{void_mark(*self._about)}{self.response!r} by {self.by!r}"
        return f"Anova({what}, F = {self.statistic:.4g}, p = {self.p_value:.4g})"


def anova(release: Release, response: str, by: str) -> Anova:
    """The analysis of :meth:`gaussmix.Release.anova`."""
    noisy, weight = release.statistic.noisy, release.schema.weight_bound
    noisy.check_independent("An analysis of variance", instead="means(), whose intervals are for this table")
    labels, sums = group_sums(noisy, release.schema, response, by)
    found = analysis(sums.mapped(weight * np.eye(len(sums.values))), len(labels), response, by)
    if release.schema.weight is not None:  # weights say nothing about the sampling error
        found = replace(found, statistic=math.nan, p_value=math.nan, privacy_share=math.nan)
    return replace(found, _about=notes_of(release, of_models=True))


def analysis(sums: Fitted, k: int, response: str, by: str) -> Anova:
    """Return the analysis of variance from the sums of k groups."""
    n, S, square = sums.values[:k], sums.values[k : 2 * k], float(sums.values[-1])
    rows = float(n.sum())
    freedom = (k - 1, rows - k)
    if k < 2 or n.min() <= 0 or rows <= k:
        return Anova(response, by, *(math.nan,) * 2, freedom, *(math.nan,) * 4)
    m = float(S.sum()) / rows
    h = S - m * n
    between = float(np.sum(h**2 / n))
    within = square - float(S.sum()) ** 2 / rows - between
    if within <= 0:
        return Anova(response, by, between, within, freedom, *(math.nan,) * 4)
    mean_move = np.concatenate([np.full(k, -m), np.ones(k)]) / rows
    J = np.hstack([-m * np.eye(k), np.eye(k)]) - np.outer(n, mean_move)
    kept = slice(0, k - 1)
    noise = (J @ sums.covariance[: 2 * k, : 2 * k] @ J.T)[kept, kept]
    sampling = within / freedom[1] * (np.diag(n) - np.outer(n, n) / rows)[kept, kept]
    found: Floats = scipy.linalg.solve(noise + sampling, np.column_stack([h[kept], noise]), assume_a="pos")
    statistic = float(h[kept] @ found[:, 0]) / freedom[0]
    return Anova(
        response,
        by,
        between,
        within,
        freedom,
        statistic,
        float(stats.f.sf(statistic, *freedom)),
        between / (between + within),
        float(np.trace(found[:, 1:])) / freedom[0],
    )
