r"""Rows, means, standard deviations and shares of levels, each with its interval: entries of the released matrix.

All are for the table as it was read, values clipped to their bounds; releases in passes also shorten a few rows that
are far out (docs/passes.md). In the user's units (:mod:`gaussmix.data.units`), with 1 the constant:

- a mean is M_1j/M_11: Fieller's interval for a ratio of normal numbers of known covariance;
- a standard deviation is that of (M_jj - M_1j²/M_11)/M_11, C in :mod:`gaussmix.models.inference`: a ratio again;
- shares of levels are counts over their sum, counts by generalised least squares (:mod:`gaussmix.models.descriptive`),
  in the latest pass that has rows of all levels whole (:mod:`gaussmix.models.descriptive`);
- rows: :mod:`gaussmix.models.descriptive`; not where the unit is a person.

Other intervals come from the last pass, whose law is exact given those before it; a ratio does not change with the
factor that brings its clip weights to mean one.

Correlations of all columns with each other, plain or with others held fixed, from a release.

Counts of two categories against each other, from a release: a cross-table with its noise, shares, and a test.

Counts n_ab solve the block of the two columns by generalised least squares (:mod:`gaussmix.models.descriptive`): the
product entry of two levels, both margins, and what is known to be 0 are used together, and margins are the sums of the
cells. Intervals are normal, with the known covariance. Where the release was made in passes, shares come from the
latest pass that has rows of all levels whole (:mod:`gaussmix.models.descriptive`) and the number of rows from
:mod:`gaussmix.models.descriptive`, so that Var(n s) = n²Var(s) + s²Var(n); the first pass has counts of its own.

Independence, of the population behind the rows: h_ab = n_ab - n_a·n_·b/n has mean 0 and covariance

.. math:: J V J^\top + n\,(\mathrm{diag}\,p - pp^\top) \otimes (\mathrm{diag}\,q - qq^\top),

noise (V the counts' covariance, J the derivative of h) and sampling; with the last row and column left out,
hᵀ(covariance)⁻¹h is chi-square with (A - 1)(B - 1) degrees of freedom. Without noise it is Pearson's statistic.

Means of a number within the levels of a category, and whether they differ: analysis of variance from a release.

For every level a the block of the category and of x holds n_a and S_a = Σ_a x, solved together with Σ x² by generalised
least squares (:mod:`gaussmix.models.descriptive`). A mean is S_a/n_a, with Fieller's interval: where a level's count is
not told from 0, the interval does not end.

Analysis of variance, of the population behind the rows: with m = S/n and h_a = S_a - m n_a, the sum of squares between
groups is Σ h_a²/n_a, and what is left of Σ x² - S²/n within. Under equal means h has mean 0 and covariance

.. math:: J V J^\top + s^2\,(\mathrm{diag}\,n_a - n_a n_b/n), \qquad s^2 = \text{within}/(n - A),

V that of (n_a, S_a), J the derivative of h; hᵀ(covariance)⁻¹h/(A - 1), the last level left out, is compared with F of
A - 1 and n - A degrees of freedom. Without noise it is the usual F.

Second moments whose structure is known: counts of levels, sums within groups, by generalised least squares.

A row that has level a of one category and level b of another is u_ab = (1, 1_a, 1_b): its block of the Gram matrix is
Σ n_ab u_ab u_abᵀ, linear in few counts, while the noisy block has many entries. For G = Σ_k β_k D_k, seen with noise of
shape N (:mod:`gaussmix.releases.noisy`), normal likelihood gives

.. math:: \hat\beta = K^{-1} r,\quad K_{kl} = \tfrac12\mathrm{tr}(D_k N^{-1} D_l N^{-1}),\quad
    r_k = \tfrac12\mathrm{tr}(D_k N^{-1} M N^{-1}),\quad \mathrm{Cov}(\hat\beta) = K^{-1} .

β̂ is unbiased whatever the weights are; with the distribution as stated no unbiased linear estimate has less variance.
Post-processing: functions of a release alone.

>>> noisy = NoisyMoment(np.array([[10.0, 4.2], [4.2, 3.9]]), np.eye(2))
>>> counts = fit_structure(noisy, level_designs(np.array([[1.0, 0.0], [1.0, 1.0]])))
>>> counts.values.round(3).tolist()
[5.9, 4.1]

How many rows a table has, as a release shows it.

A release in passes shows it twice, with independent noise: in the intercept's entry of the first pass, and in the
totals of its histograms, whose mean goes with the last pass. The first has the standard deviation C²/(μ₁w₀²). Each of J
histograms has B bins a metric with noise √2/μ_q for two metrics, so that its mean total has √B/μ_q, all J of them
√(B/J)/μ_q; where they read a sample at rate π, that over π, and n(1 - π)/π for the sample itself, which is the same for
all. The two are averaged by inverse variance. Later passes do not show it: their clip weights are brought to mean one.
Nor do releases whose unit is a person: nobody counts for more than so many rows, whatever the number that they have.

Which pass counts levels whole: rare ones lie far out in a learned metric, and their rows are shortened there.

In a pass z = T r, A = TᵀT, every row of a level is long, whatever its other entries: with u·r = 1 in these rows,

.. math:: \|z\|^2 = r^\top A\, r \ge \frac{(u \cdot r)^2}{u^\top A^{-1} u} = \frac{1}{u^\top A^{-1} u}

(Cauchy and Schwarz). The rest of a row adds about the mean of ‖z‖². Where both together are more than the clip, rows of
the level are shortened, a level of few rows to almost nothing: its share in that pass is not the table's, and neither
are those of the other levels of its column. Levels are therefore counted in the latest pass in which rows of all of
them are whole; in the declared metric, that of the first pass, all rows are. The rule reads what was asked, no row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.linalg
from scipy import stats

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.columns import Boolean, Categorical, Numeric
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding, column_of, is_marked
from gaussmix.models.inference import residuals
from gaussmix.models.rendering import void_mark
from gaussmix.models.results import Frame, ResultTable, as_frame, columns_of
from gaussmix.releases.counts import Fitted, fit_structure, kinds_of, level_designs
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import BINS, PassRequest, budgets_of
from gaussmix.releases.transcript import Transcript

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = [
    "AS_CLIPPED",
    "NOISY",
    "Anova",
    "ChiSquare",
    "Correlations",
    "Crosstab",
    "RowCount",
    "anova",
    "cell_counts",
    "chosen_columns",
    "correlations",
    "counted_early",
    "counted_early_words",
    "counted_in",
    "crosstab",
    "describe",
    "group_designs",
    "group_means",
    "group_sums",
    "independence",
    "level_counts",
    "mean_and_deviation",
    "moment_of_pass",
    "notes_of",
    "pass_that_counts",
    "ratio_interval",
    "row_count",
    "scaled_to",
    "shares_of",
    "whole_in",
]


def group_designs(u: Floats) -> Floats:
    """Designs of (n_a, Σ_a x) for kinds of rows u, shape (kinds, p), x after them; and, last, of Σ x²."""
    kinds, p = u.shape
    found = np.zeros((2 * kinds + 1, p + 1, p + 1))
    found[:kinds, :p, :p] = level_designs(u)
    found[kinds : 2 * kinds, :p, p] = found[kinds : 2 * kinds, p, :p] = u
    found[-1, p, p] = 1.0
    return found


def ratio_interval(
    over: Floats, under: Floats, var_over: Floats, var_under: Floats, both: Floats, z: float
) -> tuple[Floats, Floats]:
    r"""Values ψ with (a - ψb)² ≤ z²(v_a - 2ψ c + ψ² v_b), for a and b normal: Fieller's interval.

    Exact for a/b where variances are known. Where b is not told from 0 it does not end.
    """
    A = under**2 - z**2 * var_under
    B = over * under - z**2 * both
    C = over**2 - z**2 * var_over
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(B**2 - A * C, 0.0))
        low, high = (B - root) / A, (B + root) / A
    bounded = A > 0
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


@dataclass(frozen=True)
class RowCount:
    """A noisy number of rows.

    Attributes
    ----------
    rows, std_error : float
    apart : bool
        Whether its noise is independent of that of the moments that intervals come from.
    """

    rows: float
    std_error: float
    apart: bool


def row_count(release: Release) -> RowCount:
    """Return the noisy number of rows with its standard error."""
    schema, statistic = release.schema, release.statistic
    if release.certificate.privacy_unit is not None:
        raise ArgumentError(
            "This release bounds contributions per privacy unit and does not show the number of rows. Shares, means "
            "and correlations do not need it."
        )
    if not schema.intercept:
        raise ArgumentError("This release has no intercept column: it does not show how many rows there are.")
    (index,) = schema.groups[INTERCEPT]
    unit = schema.units.one
    if not isinstance(statistic, Transcript) or len(statistic.passes) == 1:
        return RowCount(*statistic.noisy.quadratic(unit), apart=False)
    first, last = statistic.passes[0], statistic.passes[-1]
    account = release.certificate.account
    if last.request is None or not isinstance(account, LatticeAccount):
        raise ArgumentError("The passes of this release do not show how many rows there are.")
    in_row = (schema.row_norm * unit[index]) ** 2
    entry, noise = float(first.matrix[index, index]) * in_row / first.rate, in_row / (first.mu * first.rate)
    counted, rate = last.request.rows, last.counted_rate
    marginals = statistic.marginals is not None
    mus = budgets_of(account, len(statistic.steps), marginals=marginals).passes[
        2::2
    ]  # a count, the first pass, then a histogram and a pass in turn
    variance = sum(BINS / (mu * rate) ** 2 for mu in mus) / len(mus) ** 2 + counted * (1 - rate) / rate
    weight = noise**2 / (noise**2 + variance)
    return RowCount(weight * counted + (1 - weight) * entry, math.sqrt(1 / (1 / variance + 1 / noise**2)), apart=True)


def pass_that_counts(statistic: Transcript, names: Sequence[str]) -> int:
    """Number of the latest pass in which rows of every level of some columns are whole; 0 is the first."""
    return max(frozenset.intersection(*(whole_in(statistic, name) for name in names)))  # the first is in all of them


def counted_early(statistic: Transcript, names: Sequence[str]) -> bool:
    """Whether that is not the last pass."""
    return pass_that_counts(statistic, names) < len(statistic.passes) - 1


def counted_in(statistic: Transcript, names: Sequence[str]) -> NoisyMoment:
    """The moment in which levels of some columns are counted: of the latest pass that has their rows whole."""
    return moment_of_pass(statistic, pass_that_counts(statistic, names))


def moment_of_pass(transcript: Transcript, number: int) -> NoisyMoment:
    """A pass and the law of its noise, exact given all before it; 0 is the first."""
    if number == len(transcript.passes) - 1:
        return transcript.noisy
    own = transcript.pool.members[number].times(transcript.schema.row_norm**2)
    return NoisyMoment(own.matrix, own.shape, independent=transcript.unit is None)


def whole_in(transcript: Transcript, name: str) -> frozenset[int]:
    """Numbers of the passes in which rows of every level of a column are whole."""
    levels = _indicators(transcript.schema, name) * transcript.schema.row_norm
    return frozenset(
        number
        for number, output in enumerate(transcript.passes)
        if output.request is None
        or output.request.metric.declared
        or _lengths(output.request, levels).max() <= output.request.clip
    )


def _indicators(schema: Schema, name: str) -> Floats:
    """Combinations of encoded columns that are 1 in rows of a level and 0 in others, shape (levels, m)."""
    _, kinds = kinds_of(schema, name)
    units = unweighted_units(schema)
    levels = units.rows(schema.groups[name])
    nothing = units.one - levels.sum(axis=0)
    return np.array([kind @ levels if kind.any() else nothing for kind in kinds])


def _lengths(request: PassRequest, levels: Floats) -> Floats:
    """About ‖z‖² of a row of each level."""
    seen = np.linalg.solve(request.metric.transform.matrix.T, levels.T)  # T⁻ᵀu, whose square is uᵀA⁻¹u
    return np.asarray(1 / np.sum(seen**2, axis=0) + request.metric.mean)


Row = tuple[str, str, float, float, float, float]
NOTE = "Statistics are for the data with values clamped to their bounds; intervals account for privacy noise."
AS_CLIPPED = (
    "Means, standard deviations and correlations are for the clipped rows: for skewed columns they can differ from "
    "those of the unclipped table by more than their intervals show."
)
PERSONS = "Contributions per privacy unit are bounded: rows of a unit with many rows have less weight."


def describe(release: Release, columns: Sequence[str] | None = None, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.describe`."""
    z = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))
    schema, noisy = release.schema, release.statistic.noisy
    rows: list[Row] = []
    if release.certificate.privacy_unit is None:
        counted = row_count(release)
        half = z * counted.std_error
        rows.append(
            ("(rows)", "count", counted.rows, counted.std_error, max(counted.rows - half, 0.0), counted.rows + half)
        )
    chosen = chosen_columns(schema, columns)
    for name in chosen:
        column = schema.columns[name]
        if isinstance(column, Categorical | Boolean):
            rows += _share_rows(counted_in(release.statistic, [name]), schema, name, z)
        else:
            for index in schema.groups[name]:
                rows += mean_and_deviation(noisy, schema, index, z)
    names = ("term", "statistic", "estimate", "std.error", "conf.low", "conf.high")
    notes = notes_of(release, [[name] for name in chosen if isinstance(schema.columns[name], Categorical | Boolean)])
    return ResultTable(f"{len(chosen)} columns, {100 * (1 - alpha):g} % intervals", columns_of(names, rows), notes)


def notes_of(release: Release, counted: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """What a table is about, and which of the columns that were counted together come from an earlier pass."""
    notes = [NOTE if release.certificate.privacy_unit is None else f"{NOTE} {PERSONS}"]
    clipping_loss = release.statistic.noisy.clipping_loss
    notes += [f"Norm clipping in the final pass removed {clipping_loss}. {AS_CLIPPED}"] * (clipping_loss is not None)
    early = [name for names in counted for name in names if counted_early(release.statistic, names)]
    notes += [counted_early_words(early)] * bool(early)
    void = release.certificate.void_words
    return (void, *notes) if void else tuple(notes)


def counted_early_words(names: Sequence[str]) -> str:
    """That levels of some columns are counted in an earlier pass."""
    return (
        f"Levels of {', '.join(dict.fromkeys(names))} are counted in an earlier pass, with more noise: the final "
        "pass clips rows of the rarest levels."
    )


def chosen_columns(schema: Schema, columns: Sequence[str] | None) -> list[str]:
    """Columns of the release by name; all of them unless said."""
    if isinstance(columns, str):
        raise ArgumentError(f"columns must be a list of columns, got {columns!r}: write columns=[{columns!r}].")
    plain = [name for name in schema.columns if name in schema.groups and not is_marked(schema, name)]
    chosen = plain if columns is None else list(columns)
    for name in chosen:
        column_of(schema, name)
        if name not in plain:
            raise ArgumentError(f"Column {name!r} is in terms only, or is 0 where it is missing.")
    if len(set(chosen)) < len(chosen):
        raise ArgumentError("columns names a column twice.")
    return chosen


def mean_and_deviation(noisy: NoisyMoment, schema: Schema, index: int, z: float) -> list[Row]:
    """Mean and standard deviation of one encoded column, with standard errors and intervals."""
    units = unweighted_units(schema)
    constant, x = units.one, units.rows([index])[0]
    own, name = noisy.mapped(np.vstack([constant, x])), schema.names[index]
    M, Q = own.moment, own.shape
    covariance = np.array(
        [[Q[0, 0] * Q[1, 1] + Q[0, 1] ** 2, 2 * Q[0, 0] * Q[0, 1]], [2 * Q[0, 0] * Q[0, 1], 2 * Q[0, 0] ** 2]]
    )
    mean = _ratio_row(name, "mean", M[0, 1], M[0, 0], covariance, z)
    left = residuals(noisy, x[np.newaxis], constant[np.newaxis])
    u = left.vectors[0]
    with_rows = float(u @ noisy.shape @ constant)
    covariance = 2 * np.array([[left.shape[0, 0] ** 2, with_rows**2], [with_rows**2, Q[0, 0] ** 2]])
    rows = max(float(M[0, 0]), 2.0)
    _, _, square, error, low, high = _ratio_row(name, "std", float(left.moment[0, 0]), M[0, 0], covariance, z)
    stretch = rows / (rows - 1)
    value, low, high = (math.sqrt(max(stretch * number, 0.0)) for number in (square, low, high))
    return [mean, (name, "std", value, stretch * error / (2 * value) if value else math.nan, low, high)]


def _ratio_row(name: str, statistic: str, over: float, under: float, covariance: Floats, z: float) -> Row:
    value = float(over / under) if under > 0 else math.nan
    gradient = np.array([1.0, -value])
    error = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0)) / abs(float(under))
    low, high = ratio_interval(
        np.asarray(over), np.asarray(under), covariance[0, 0], covariance[1, 1], covariance[0, 1], z
    )
    return name, statistic, value, error, float(low), float(high)


def level_counts(noisy: NoisyMoment, schema: Schema, name: str) -> tuple[tuple[str, ...], Fitted]:
    """Levels of a category, or false and true, with their counts in the units of the matrix."""
    labels, kinds = kinds_of(schema, name)
    units = unweighted_units(schema)
    own = noisy.mapped(np.vstack([units.one, units.rows(schema.groups[name])]))
    u = np.column_stack([np.ones(len(kinds)), kinds])
    return labels, fit_structure(own, level_designs(u))


def shares_of(counts: Fitted) -> Fitted:
    """Counts over their sum, to first order."""
    total = float(counts.values.sum())
    if not total > 0:
        nothing = np.full(len(counts.values), math.nan)
        return Fitted(nothing, np.full(counts.covariance.shape, math.nan))
    shares = counts.values / total
    J = (np.eye(len(shares)) - shares[:, np.newaxis]) / total
    return Fitted(shares, J @ counts.covariance @ J.T)


def _share_rows(noisy: NoisyMoment, schema: Schema, name: str, z: float) -> list[Row]:
    """Shares of levels; of true alone for a boolean."""
    labels, counts = level_counts(noisy, schema, name)
    V, n = counts.covariance, len(labels)
    rows = []
    for place in range(1 if isinstance(schema.columns[name], Boolean) else 0, n):
        pick = np.vstack([np.eye(n)[place], np.ones(n)])
        over, under = pick @ counts.values
        _, _, value, error, low, high = _ratio_row("", "", over, under, pick @ V @ pick.T, z)
        rows.append((f"{name}={labels[place]}", "share", value, error, max(low, 0.0), min(high, 1.0)))
    return rows


@dataclass(frozen=True, eq=False)
class Correlations:
    """A matrix of correlations.

    Attributes
    ----------
    names : tuple of str
        Of the encoded columns: levels are 0/1 columns of their own.
    values, std_errors : arrays (p, p)
        Correlations, and standard deviations of their noise; NaN where a column's variance drowns in it.
    given : tuple of str
        Columns that are held fixed.
    """

    names: tuple[str, ...]
    values: Floats
    std_errors: Floats
    given: tuple[str, ...] = ()
    _about: tuple[str, ...] = field(default=(), repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals, shape (p, p, 2), within [-1, 1] (:mod:`gaussmix.models.inference`)."""
        half = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2)) * self.std_errors
        return np.clip(np.stack([self.values - half, self.values + half], axis=-1), -1.0, 1.0)

    def to_frame(self, frame: Frame | None = None) -> Any:
        """The matrix, names first."""
        columns = {name: self.values[:, place] for place, name in enumerate(self.names)}
        return as_frame(pa.table({"term": list(self.names), **columns}), frame)

    def pairs(self, alpha: float = 0.05) -> ResultTable:
        """One row a pair, with its interval."""
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
        """The matrix to two digits."""
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
        raise ArgumentError(f"Column {both[0]!r} cannot be held fixed and be correlated with others.")
    if not chosen:
        raise ArgumentError("There is nothing left to correlate: hold fewer columns fixed.")
    indices = [index for name in chosen for index in schema.groups[name]]
    held = Coding.of(schema, fixed).rows if fixed else unweighted_units(schema).one[np.newaxis]
    found = residuals(release.statistic.noisy, unweighted_units(schema).rows(indices), held)
    names = tuple(schema.names[i] for i in indices)
    return Correlations(names, *found.correlations(), given=tuple(fixed), _about=notes_of(release))


NOISY = "Counts are noisy estimates: those of few rows can be negative, and rounded cells may not add up to margins."


@dataclass(frozen=True)
class ChiSquare:
    """A test of independence that knows the noise.

    Attributes
    ----------
    statistic, p_value : float
        NaN where the counts drown in noise.
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
            return f"Independence in the population: {freedom}, not identified at this budget."
        return (
            f"Independence in the population: chi-square {self.statistic:.4g}, {freedom}, p = {self.p_value:.3g}; "
            f"{100 * self.privacy_share:.0f} % of the variance is privacy noise."
        )


@dataclass(frozen=True, eq=False)
class Crosstab:
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
        """Intervals of the counts, shape (A, B, 2), not below 0."""
        z = _quantile(alpha)
        ends = np.stack([self.estimates - z * self.std_errors, self.estimates + z * self.std_errors], axis=-1)
        return np.asarray(np.maximum(ends, 0.0))

    def shares(self, within: str = "all", alpha: float = 0.05) -> tuple[Floats, Floats]:
        """Shares of all rows, within each row or within each column, (A, B); and Fieller's intervals, (A, B, 2).

        Parameters
        ----------
        within : {"all", "row", "column"}
        alpha : float
        """
        check.choice(("all", "row", "column"), within=within)
        z, (a, b) = _quantile(alpha), self.estimates.shape
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
        """One row a cell: levels, noisy count with its interval, shares of row and column."""
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

    def to_frame(self, frame: Frame | None = None) -> Any:
        """One row a cell."""
        return self.table().to_frame(frame)

    def cells(self, alpha: float = 0.05) -> list[list[str]]:
        """Counts as text, ± half their intervals, and margins, rounded to integers; the first row is the head."""
        z = _quantile(alpha)
        cells = [
            [f"{n:z,.0f} ± {z * s:,.0f}" for n, s in zip(counts, std_errors, strict=True)] + [f"{counts.sum():z,.0f}"]
            for counts, std_errors in zip(self.estimates, self.std_errors, strict=True)
        ]
        margins = [f"{total:z,.0f}" for total in (*self.estimates.sum(axis=0), self.estimates.sum())]
        rows = [[name, *row] for name, row in zip((*self.rows, "all"), [*cells, margins], strict=True)]
        return [[self.names[0], *self.columns, "all"], *rows]

    def as_text(self) -> str:
        """The cells under the names of both columns, for a terminal."""
        head, *rows = self.cells()
        title = f"{self.names[0]} by {self.names[1]}"
        return ResultTable(title, columns_of(head, rows), self._notes()).as_text()

    def _notes(self) -> tuple[str, ...]:
        return (*self._about, NOISY, str(self.independence))

    def _repr_html_(self) -> str:
        return self.table().as_html()

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        void = void_mark(*self._about)
        return f"Crosstab({void}{self.names[0]!r} by {self.names[1]!r}, {len(self.rows)} x {len(self.columns)})"


def crosstab(release: Release, rows: str, columns: str) -> Crosstab:
    """The table of :meth:`gaussmix.Release.crosstab`."""
    schema, names = release.schema, [rows, columns]
    counted, apart = row_count(release), pass_that_counts(release.statistic, names) > 0
    labels, raw = cell_counts(counted_in(release.statistic, names), schema, rows, columns)
    fitted = scaled_to(raw, replace(counted, apart=counted.apart and apart))
    shape = (len(labels[0]), len(labels[1]))
    return Crosstab(
        (rows, columns),
        *labels,
        estimates=fitted.values.reshape(shape),
        std_errors=fitted.std_errors.reshape(shape),
        independence=independence(raw, shape),
        _fitted=fitted,
        _about=notes_of(release, [names]),
    )


def cell_counts(
    noisy: NoisyMoment, schema: Schema, rows: str, columns: str
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], Fitted]:
    """Levels of two columns and the counts of all pairs, row by row, in the units of the matrix."""
    if rows == columns:
        raise ArgumentError("A cross-table needs two columns, not one twice.")
    (one, u), (two, v) = kinds_of(schema, rows), kinds_of(schema, columns)
    units = unweighted_units(schema)
    own = noisy.mapped(np.vstack([units.one, units.rows((*schema.groups[rows], *schema.groups[columns]))]))
    pairs = np.array([(1.0, *a, *b) for a in u for b in v])
    return (one, two), fit_structure(own, level_designs(pairs))


def scaled_to(counts: Fitted, rows: RowCount) -> Fitted:
    """Counts whose sum is the number of rows, where that is known apart from them."""
    if not rows.apart:
        return counts
    shares = shares_of(counts)
    s = shares.values
    return Fitted(rows.rows * s, rows.rows**2 * shares.covariance + rows.std_error**2 * np.outer(s, s))


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


def _quantile(alpha: float) -> float:
    return float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))


def group_sums(noisy: NoisyMoment, schema: Schema, response: str, by: str) -> tuple[tuple[str, ...], Fitted]:
    """Levels, and (n_a, S_a, Σ x²) in the units of the matrix; x is measured from its declared centre."""
    column = column_of(schema, response)
    if not isinstance(column, Numeric | Boolean):
        raise ArgumentError(f"Column {response!r} has no mean: name a numeric or a boolean column.")
    if response == by:
        raise ArgumentError(f"Column {response!r} cannot be grouped by itself.")
    labels, kinds = kinds_of(schema, by)
    (index,) = schema.groups[response]
    units = unweighted_units(schema)
    own = noisy.mapped(np.vstack([units.one, units.rows(schema.groups[by]), units.deviations([index])]))
    return labels, fit_structure(own, group_designs(np.column_stack([np.ones(len(kinds)), kinds])))


def group_means(release: Release, response: str, by: str, *, alpha: float = 0.05) -> ResultTable:
    """The table of :meth:`gaussmix.Release.means`."""
    z = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2))
    schema = release.schema
    labels, sums = group_sums(release.statistic.noisy, schema, response, by)
    (index,) = schema.groups[response]
    centre, k, V = float(schema.units.centres[index]), len(labels), sums.covariance
    n, S = sums.values[:k], sums.values[k : 2 * k]
    var_n, var_s, both = (np.diagonal(block) for block in (V[:k, :k], V[k : 2 * k, k : 2 * k], V[:k, k : 2 * k]))
    low, high = ratio_interval(S, n, var_s, var_n, both, z)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(np.isfinite(low), S / n, np.nan)
        errors = np.sqrt(np.maximum(var_s - 2 * means * both + means**2 * var_n, 0.0)) / np.abs(n)
    found = [
        (label, *(float(number) for number in numbers))
        for label, *numbers in zip(labels, means + centre, errors, low + centre, high + centre, strict=True)
    ]
    names = (by, "mean", "std.error", "conf.low", "conf.high")
    words = (
        ()
        if np.isfinite(low).all()
        else ("Unbounded interval: the level's count is not significantly different from zero.",)
    )
    return ResultTable(f"mean of {response} by {by}", columns_of(names, found), (*notes_of(release), *words))


@dataclass(frozen=True)
class Anova:
    """An analysis of variance of one number by one category.

    Attributes
    ----------
    response, by : str
    between, within : float
        Sums of squares, noise taken out of neither.
    degrees : tuple of float
        A - 1, and n - A with the noisy number of rows.
    statistic, p_value : float
        F with the noise in its denominator; NaN where levels drown in noise.
    eta_squared : float
        between/(between + within).
    privacy_share : float
        Share of the covariance of group means that is privacy noise; the rest is sampling.
    void : str
        Why the release guarantees nothing; empty if it does.
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
    void: str = ""

    def table(self) -> ResultTable:
        """In the usual form."""
        first, second = self.degrees
        rows = [
            (self.by, self.between, float(first), self.between / first, self.statistic, self.p_value),
            ("residual", self.within, second, self.within / second, math.nan, math.nan),
        ]
        names = ("term", "sum.sq", "df", "mean.sq", "statistic", "p.value")
        note = (
            "F compares group means with sampling error and privacy noise together; "
            f"{100 * self.privacy_share:.0f} % of that variance is privacy noise."
        )
        return ResultTable(
            f"{self.response} by {self.by}", columns_of(names, rows), tuple(filter(None, (self.void, note)))
        )

    def to_frame(self, frame: Frame | None = None) -> Any:
        """In the usual form, as a data frame."""
        return self.table().to_frame(frame)

    def _repr_html_(self) -> str:
        return self.table().as_html()

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        what = f"{void_mark(self.void)}{self.response!r} by {self.by!r}"
        return f"Anova({what}, F = {self.statistic:.4g}, p = {self.p_value:.4g})"


def anova(release: Release, response: str, by: str) -> Anova:
    """The analysis of :meth:`gaussmix.Release.anova`."""
    noisy = release.statistic.noisy
    noisy.check_independent("An analysis of variance", instead="means(), whose intervals are of the table")
    labels, sums = group_sums(noisy, release.schema, response, by)
    return replace(analysis(sums, len(labels), response, by), void=release.certificate.void_words)


def analysis(sums: Fitted, k: int, response: str, by: str) -> Anova:
    """From the sums of k groups."""
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
