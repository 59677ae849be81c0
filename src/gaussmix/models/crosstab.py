r"""Counts of two categories against each other, from a release: a cross-table with its noise, shares, and a test.

Counts n_ab solve the block of the two columns by generalised least squares (:mod:`gaussmix.models.structured`): the
product entry of two levels, both margins, and what is known to be 0 are used together, and margins are the sums of the
cells. Intervals are normal, with the known covariance. Where the release was made in passes, shares come from the
latest pass that has rows of all levels whole (:mod:`gaussmix.models.whole_rows`) and the number of rows from
:mod:`gaussmix.models.row_counts`, so that Var(n s) = n²Var(s) + s²Var(n); the first pass has counts of its own.

Independence, of the population behind the rows: h_ab = n_ab - n_a·n_·b/n has mean 0 and covariance

.. math:: J V J^\top + n\,(\mathrm{diag}\,p - pp^\top) \otimes (\mathrm{diag}\,q - qq^\top),

noise (V the counts' covariance, J the derivative of h) and sampling; with the last row and column left out,
hᵀ(covariance)⁻¹h is chi-square with (A - 1)(B - 1) degrees of freedom. Without noise it is Pearson's statistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.schema import Schema
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import kinds_of
from gaussmix.models.describe import notes_of, shares_of
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.rendering import void_mark
from gaussmix.models.results import Frame, ResultTable, columns_of
from gaussmix.models.row_counts import RowCount, row_count
from gaussmix.models.structured import Fitted, fit_structure, level_designs, ratio_interval
from gaussmix.models.whole_rows import counted_in, pass_that_counts

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["NOISY", "ChiSquare", "Crosstab", "cell_counts", "crosstab", "independence", "scaled_to"]

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
    estimates, deviations : arrays (A, B)
        Noisy counts and the standard deviations of their noise. Counts of few rows can be negative.
    independence : ChiSquare
    """

    names: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    estimates: Floats
    deviations: Floats
    independence: ChiSquare
    _fitted: Fitted = field(repr=False)
    _about: tuple[str, ...] = field(repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals of the counts, shape (A, B, 2), not below 0."""
        z = _quantile(alpha)
        ends = np.stack([self.estimates - z * self.deviations, self.estimates + z * self.deviations], axis=-1)
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
                *(float(values[i, j]) for values in (self.estimates, self.deviations)),
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
            [f"{n:z,.0f} ± {z * s:,.0f}" for n, s in zip(counts, deviations, strict=True)] + [f"{counts.sum():z,.0f}"]
            for counts, deviations in zip(self.estimates, self.deviations, strict=True)
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
        deviations=fitted.deviations.reshape(shape),
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
    return Fitted(rows.rows * s, rows.rows**2 * shares.covariance + rows.deviation**2 * np.outer(s, s))


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
