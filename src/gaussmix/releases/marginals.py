"""Released marginals of a table: noisy counts on public cells, sums and sums of squares of numbers, and thresholds.

**Private**: everything here is a function of noisy counts and sums and of declared quantities.

The noise of a cell count has standard deviation √(K + T)·j/μ, that of sums and sums of squares √(2L + 1)·j/μ in units
of the largest entry. :mod:`gaussmix.data.marginals` proves the sensitivities.

**Thresholds** for top-coding numeric columns are found from noisy one-way counts (`thresholds_of`). The rule is a
fence, not an extreme quantile. The 99.5 % point of some ten thousand rows lies below the noise of the
counts; the median and the 90 % point do not. The upper threshold is median + 3·(90 % point - median), and the lower one
likewise. A normal column is coded only beyond 3.8 standard deviations (next to no row); lognormal and exponential
columns lose about 1 % of their rows.

Columns with a point mass, such as many zeros, have no useful median. Their centre is the mass, which is never coded,
and the fence is computed from the remaining rows.

>>> from gaussmix.data.marginals import grid
>>> rng = np.random.default_rng(0)
>>> edges, sigma = grid(0.0, 100_000.0), 60.0
>>> incomes = np.exp(8 + 0.7 * rng.standard_normal(30_000))
>>> counts = np.histogram(incomes, edges)[0] + sigma * rng.standard_normal(len(edges) - 1)
>>> thresholds_of(counts, edges, noise=sigma, rows=30_000.0)
(0.0, 15700.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.numerics import root_down
from gaussmix.accounting.parameters import Neighbours
from gaussmix.data.columns import Numeric
from gaussmix.data.marginals import CellLayout, MarginalQuery, cells_of
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.errors import ArgumentError
from gaussmix.releases.noisy import NORMAL_95, Fitted, fieller

__all__ = ["MarginalPlan", "Marginals", "thresholds_of", "without_empty_ends"]


@dataclass(frozen=True)
class MarginalPlan:
    """The marginals to be released and their noise. Public.

    Attributes
    ----------
    declared : Schema
        The declared schema of the release.
    tables : tuple of (str, str)
        Declared two-way tables.
    max_contributions : int
        Contribution bound j of a privacy unit; 1 for rows.
    neighbours : {"add-remove", "replace-one"}
    """

    declared: Schema
    tables: tuple[tuple[str, str], ...] = ()
    max_contributions: int = 1
    neighbours: Neighbours = "add-remove"

    @cached_property
    def schema(self) -> Schema:
        """The base schema, whose columns are counted and summed: equal weights, without terms and row weights."""
        return Schema({name: replace(column, weight=1.0) for name, column in self.declared.columns.items()})

    @cached_property
    def cells(self) -> CellLayout:
        """The public cells."""
        return cells_of(self.schema, weight=self.declared.weight, tables=self.tables)

    @property
    def query(self) -> MarginalQuery:
        """The query on the rows."""
        return MarginalQuery(self.schema, self.cells, self.declared.weight, self.max_contributions)

    @property
    def coordinates(self) -> tuple[int, int]:
        """Number of counts, and of sums with sums of squares, for the account.

        The slack of discretisation is proportional to coordinates over σ². Sums have noise for the square
        (2L + 1)ω² ≤ (2L + 1)/(K + 1), where the account assumes 1: K + 1 coordinates with its σ have at least the slack
        of 2L + 1 with theirs.
        """
        return self.cells.total, max(2 * len(self.cells.numbers), len(self.schema.columns)) + 1

    def noise_mu(self, mu: tuple[float, float]) -> tuple[float, float]:
        """Return j over the standard deviation of a count and of a sum, from their parts of μ, rounded down.

        μ is for a release of sensitivity 1 (√2 for replace-one). Counts have √(K + T) times that, sums with squares
        √(2L + 1)·ω times that, ω in units of the row norm, for both neighbouring relations.
        """
        square = (2 * len(self.cells.numbers) + 1) * Fraction(self.schema.in_units(1.0), 2**FRACTION_BITS) ** 2
        counts, sums = (Fraction(part) ** 2 for part in mu)
        return root_down(counts / len(self.cells.sizes)), root_down(sums / square)


@dataclass(frozen=True, eq=False)
class Marginals:
    """Noisy counts, sums and sums of squares of the declared columns.

    Attributes
    ----------
    plan : MarginalPlan
    counts : array (cells,)
        Rows of every cell, each times its weight over the largest weight and, for privacy units, times min(1, j/p).
    sums : array (L + 1,)
        Of encoded entries of the L numbers and, last, of the intercept, over the row norm C of the base schema.
    squares : array (L,)
        Of the entries of numbers, each divided by the largest entry.
    mu : (float, float)
        Parts of the account's μ.
    """

    plan: MarginalPlan
    counts: Floats
    sums: Floats
    squares: Floats
    mu: tuple[float, float]

    def check(self) -> None:
        """Reject numbers that do not match the declared columns."""
        cells, numbers = self.plan.cells.total, len(self.plan.cells.numbers)
        if (self.counts.shape, self.sums.shape, self.squares.shape) != ((cells,), (numbers + 1,), (numbers,)):
            raise ArgumentError("The marginals do not match the declared columns.")
        if not all(np.isfinite(values).all() for values in (self.counts, self.sums, self.squares)):
            raise ArgumentError("The marginals must be finite numbers.")
        for part in self.mu:
            check.positive(finite=True, mu=part)

    @property
    def std_errors(self) -> tuple[float, float]:
        """Standard deviation of the noise of a count, in rows, and of a sum, in units of the row norm."""
        counts, sums = self.plan.noise_mu(self.mu)
        return self.plan.max_contributions / counts, self.plan.max_contributions / sums

    @cached_property
    def by_column(self) -> dict[str | tuple[str, str], Floats]:
        """Counts by column, and by declared table."""
        return self.plan.cells.split(self.counts)

    @property
    def rows(self) -> tuple[float, float]:
        """Noisy number of rows (sum of weights over the largest), and its standard error."""
        entry = self.plan.schema.rounded_intercept / self.plan.schema.row_norm
        return float(self.sums[-1]) / entry, self.std_errors[1] / entry

    @cached_property
    def total(self) -> tuple[float, float]:
        """n̂, by inverse variance from all columns and the intercept's sum, and its variance.

        :mod:`gaussmix.releases.counts` has the formulas.
        """
        rows, error = self.rows
        columns = self.plan.cells.columns
        values = np.array([rows, *(self.by_column[cells.column].sum() for cells in columns)])
        variances = np.array([error**2, *(cells.size * self.std_errors[0] ** 2 for cells in columns)])
        variance = float(1 / np.sum(1 / variances))
        return variance * float(np.sum(values / variances)), variance

    def cells(self, name: str) -> Fitted:
        """Return the cells of a column, which add up to the number of rows."""
        counts, (rows, variance) = self.by_column[name], self.total
        J, noise = len(counts), self.std_errors[0] ** 2
        return Fitted(
            counts + (rows - counts.sum()) / J,
            noise * np.eye(J) + np.full((J, J), variance / J**2 - noise / J),
        )

    @cached_property
    def noise_p_value(self) -> float:
        """P-value of the hypothesis that counts and sums have at least their stated noise.

        The cells of a column add up to the number of rows, which the sum of the intercept shows too. The K differences
        are noise alone, with a known covariance, so that their weighted square is chi-square with K degrees of freedom.
        It is too small in a file from which the noise was removed.
        """
        (of_count, _), (rows, of_rows) = self.std_errors, self.rows
        columns = self.plan.cells.columns
        differences = np.array([self.by_column[cells.column].sum() - rows for cells in columns])
        covariance = np.diag([cells.size * of_count**2 for cells in columns]) + of_rows**2
        return float(special.chdtr(len(columns), differences @ np.linalg.solve(covariance, differences)))

    def share_beyond(
        self, column: str, threshold: float, *, above: bool, z: float = NORMAL_95
    ) -> tuple[float, float, float, float]:
        """Return the share of known values above (or below) a threshold, its standard error and its interval.

        The share is interpolated within the threshold's cell; the interval holds for any distribution within it.
        """
        layout = next(cells for cells in self.plan.cells.columns if cells.column == column)
        if layout.edges is None:
            raise ArgumentError(f"Column {column!r} is not numeric and has no thresholds.")
        low, high, cells = layout.edges[:-1], layout.edges[1:], self.cells(column)
        inside = np.clip((threshold - low) / (high - low), 0.0, 1.0)
        certain, possible = (low > threshold, high > threshold) if above else (high <= threshold, low < threshold)
        known = np.arange(len(cells.values)) < len(low)
        found = []
        for own in (1 - inside if above else inside, certain, possible):
            part = np.zeros(len(known))
            part[known] = own
            pair = cells.mapped(np.vstack([part, known]))
            # No share is negative: a negative count must not make the interval shorter.
            found.append(fieller(Fitted(np.maximum(pair.values, 0.0), pair.covariance), z))
        (value, error, _, _), (_, _, least, _), (_, _, _, most) = found
        least, most = (min(max(end, 0.0), 1.0) for end in (least, most))
        return min(max(value, least), most), error, least, most

    def thresholds(self) -> dict[str, tuple[float, float]]:
        """Return the thresholds of the numbers that are top-coded."""
        noise, rows = self.std_errors[0], self.rows[0]
        found = {}
        for cells in self.plan.cells.columns:
            column = self.plan.declared.columns[cells.column]
            if cells.edges is not None and isinstance(column, Numeric):
                counts = self.by_column[cells.column][: len(cells.edges) - 1]
                ends = thresholds_of(counts, cells.edges, noise=noise, rows=rows)
                if ends != (column.lower, column.upper):
                    found[cells.column] = ends
        return found


# ---------------------------------------------------------------------------------------------------------------
# Thresholds for top-coding
TAIL_SHARE = 0.2
"""The quantile of a side of the centre has this share of the side's rows beyond it: the 10 and 90 % points."""

FENCE = 3.0
"""Distance of the threshold from the centre, in units of the distance of that quantile."""

RARE_SHARE, RARE_FENCE = 0.5, 6.6
"""The same two numbers for rows off a point mass that are too few for `TAIL_SHARE`."""

RESOLVED = 3.0
"""Number of standard deviations of a count by which the rows beyond the quantile must exceed zero."""

LARGEST_SHARE = 0.02
"""Largest share of the rows that one threshold may code: as estimated, plus one standard deviation of a count."""

LEAST_GAIN = 1.5
"""A threshold is used if the declared bound is at least this many times as far from the centre."""

LEAST_ROWS = 30.0
"""Number of standard deviations of a count below which a table has too few rows for any threshold."""

EMPTY_PENALTY = 2.0
"""Cells at the ends of the range are taken as empty unless their squared z-scores exceed this on average."""


def thresholds_of(counts: Floats, edges: Floats, *, noise: float, rows: float) -> tuple[float, float]:
    """Return the lower and the upper threshold of a column; a declared bound where a tail is not coded.

    Parameters
    ----------
    counts : array (J,)
        Noisy number of rows in each cell. Missing values are in no cell.
    edges : array (J + 1,)
        Edges of the cells (:func:`gaussmix.data.marginals.grid`); the first and the last are the declared bounds.
    noise : float
        Standard deviation of the noise of a count.
    rows : float
        Noisy number of rows.
    """
    lower, upper = float(edges[0]), float(edges[-1])
    if rows < LEAST_ROWS * noise:
        return lower, upper
    counts = without_empty_ends(np.asarray(counts, dtype=np.float64), noise)
    # The lower side is the upper side of the mirrored column.
    high = _upper_threshold(counts, edges, noise, rows)
    low = -_upper_threshold(counts[::-1], -edges[::-1], noise, rows)
    if low >= high:
        return lower, upper
    # Rounded outward to multiples of the largest power of ten below a twentieth of the coded range, which print as
    # written: 0.3, not 0.30000000000000004.
    exponent = math.floor(math.log10((high - low) / 20))
    ends = []
    for outward, value in ((math.floor, low), (math.ceil, high)):
        scaled = value * 10.0**-exponent
        exact = math.isclose(scaled, round(scaled), rel_tol=1e-12, abs_tol=1e-9)
        ends.append(float(f"{round(scaled) if exact else outward(scaled)}e{exponent}"))
    return max(ends[0], lower), min(ends[1], upper)


def _upper_threshold(counts: Floats, edges: Floats, noise: float, rows: float) -> float:
    """Return the upper threshold, not rounded; the upper bound where the upper tail is not coded."""
    bound = float(edges[-1])
    mode = int(np.argmax(counts))
    mass = bool(counts[mode] > rows / 2)  # a point mass, or a bulk that the grid does not resolve
    if mass:
        centre, first = _place_of_mass(edges, mode), mode + 1
        tail, outer = counts[first:], edges[first:]
        empty_below = not counts[:mode].any()
        # With nothing on the other side, rows off the mass are known from two counts instead of many.
        size = rows - counts[mode] if empty_below else float(tail.sum())
    else:
        centre = _point_with_rows_beyond(counts, edges, float(counts.sum()) / 2)  # the median
        first = min(max(int(np.searchsorted(edges, centre, "right")) - 1, 0), len(counts) - 1)
        tail, outer = counts[first:].copy(), edges[first:].copy()
        tail[0] *= (edges[first + 1] - centre) / (edges[first + 1] - edges[first])
        outer[0] = centre
        size = float(tail.sum())
    share, fence = TAIL_SHARE, FENCE
    if mass and share * size < RESOLVED * noise:
        share, fence = RARE_SHARE, RARE_FENCE
    if not len(tail) or share * size < RESOLVED * noise or tail.sum() < 0.7 * size:
        return bound  # the noise hides this tail
    # One standard deviation fewer rows: noise rather moves the threshold outward.
    quantile = _point_with_rows_beyond(tail, outer, max(share * size - noise, share * size / 4))
    # The fewer rows a side has, the nearer its threshold: rows there have the same leverage.
    threshold = centre + fence * min(1.0, math.sqrt(2 * size / rows)) * (quantile - centre)
    if mass:
        threshold = max(threshold, _point_with_rows_beyond(tail, outer, size / 2))
    threshold = _with_few_rows_beyond(tail, outer, threshold, max(LARGEST_SHARE * rows - noise, 0.0))
    return threshold if bound - centre >= LEAST_GAIN * (threshold - centre) else bound


def without_empty_ends(counts: Floats, noise: float) -> Floats:
    """Set cells at the ends to 0 where counts do not stand out from the noise.

    The first and the last cell kept are those that maximise the sum of (count/noise)² - `EMPTY_PENALTY`.
    """
    gain = (counts / noise) ** 2 - EMPTY_PENALTY
    last = int(np.argmax(np.cumsum(gain)))
    first = len(counts) - 1 - int(np.argmax(np.cumsum(gain[::-1])))
    kept = counts.copy()
    if first <= last:
        kept[:first] = 0.0
        kept[last + 1 :] = 0.0
    return kept


def _place_of_mass(edges: Floats, cell: int) -> float:
    """Return the likely value of a point mass in a cell: 0, a declared bound, or the middle."""
    low, high = float(edges[cell]), float(edges[cell + 1])
    if low <= 0 <= high:
        return 0.0
    if cell == 0:
        return low
    return high if cell == len(edges) - 2 else (low + high) / 2


def _point_with_rows_beyond(counts: Floats, edges: Floats, rows: float) -> float:
    """Return the point beyond which ``rows`` rows lie; within a cell the tail falls exponentially."""
    sums = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
    # Decreasing: the mean of the largest decreasing minorant and the smallest decreasing majorant.
    beyond = (np.minimum.accumulate(sums) + np.maximum.accumulate(sums[::-1])[::-1]) / 2
    i = int(np.argmax(beyond <= rows))
    if i == 0:
        return float(edges[0])
    before, after = beyond[i - 1], beyond[i]
    # Counts fall within the cell: a straight line would place the point too far out.
    part = math.log(before / rows) / math.log(before / after) if after > 0 else (before - rows) / (before - after)
    return float(edges[i - 1] + (edges[i] - edges[i - 1]) * part)


def _with_few_rows_beyond(counts: Floats, edges: Floats, threshold: float, most: float) -> float:
    """Move a threshold outward to the next edges until at most ``most`` rows are estimated beyond it."""
    while threshold < edges[-1]:
        i = int(np.searchsorted(edges, threshold, "right")) - 1
        inside = counts[i] * (edges[i + 1] - threshold) / (edges[i + 1] - edges[i]) if i >= 0 else 0.0
        if inside + counts[i + 1 :].sum() <= most:
            break
        threshold = float(edges[i + 1])
    return threshold
