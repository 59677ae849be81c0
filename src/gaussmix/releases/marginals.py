"""Released marginals of a table: noisy counts on public cells, sums and sums of squares of numbers.

**Private**: everything here is a function of noisy counts and sums and of declared quantities.

The noise of a cell count has standard deviation √(K + T)·j/μ, that of sums and sums of squares √(2L + 1)·j/μ in units
of the largest entry. :mod:`gaussmix.data.marginals` proves the sensitivities.
"""

from __future__ import annotations

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
from gaussmix.releases.topcoding import thresholds_of

__all__ = ["MarginalPlan", "Marginals"]


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
