r"""Counts of rows and sums of columns as a release shows them: the one place that counts rows. **Private**.

**With marginals** (:mod:`gaussmix.releases.marginals`) everything is of the declared table. The number of rows n is
measured by the intercept's sum and by the cells of every column, whose total has the variance J s² for J cells with
noise of variance s². Its estimate n̂ is their mean by inverse variance, and the cells c of a column become

.. math:: \hat c = c + 1\,(\hat n - 1^\top c)/J, \qquad
    \mathrm{Cov}(\hat c) = s^2(I - 11^\top/J) + \mathrm{Var}(\hat n)\,11^\top/J^2 .

That is generalised least squares for all columns, which share nothing but n. Weights depend on noise alone, never on
estimates, so that estimates are unbiased. Rows beyond a point are summed from both ends at once.

**Without marginals** counts come from the first pass, which clips nothing. A row that has level a of one category and
level b of another is u_ab = (1, 1_a, 1_b): its block of the Gram matrix is Σ n_ab u_ab u_abᵀ, linear in few counts,
while the noisy block has many entries. For G = Σ_k β_k D_k with noise of shape N (:mod:`gaussmix.releases.noisy`),

.. math:: \hat\beta = K^{-1} r,\quad K_{kl} = \tfrac12\mathrm{tr}(D_k N^{-1} D_l N^{-1}),\quad
    r_k = \tfrac12\mathrm{tr}(D_k N^{-1} M N^{-1}),\quad \mathrm{Cov}(\hat\beta) = K^{-1} .

β̂ is unbiased whatever the weights are; with the distribution as stated no unbiased linear estimate has less variance.

Counts are sums of weights where rows have weights, and rows times min(1, j/p) for a privacy unit with p rows and the
contribution bound j.

>>> noisy = NoisyMoment(np.array([[10.0, 4.2], [4.2, 3.9]]), np.eye(2))
>>> counts = fit_structure(noisy, level_designs(np.array([[1.0, 0.0], [1.0, 1.0]])))
>>> counts.values.round(3).tolist()
[5.9, 4.1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical
from gaussmix.data.marginals import NONE_OF_THESE
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.terms import missing_name
from gaussmix.errors import ArgumentError
from gaussmix.releases.marginals import Marginals
from gaussmix.releases.noisy import Fitted, NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "RowCounts",
    "first_pass",
    "fit_structure",
    "kinds_of",
    "large_delta",
    "level_counts",
    "level_designs",
    "structure",
    "with_margins",
]

_FLOOR = 1e-11
"""Directions of the noise that are smaller, relative to the largest, count as this large: only weights change."""


def level_counts(statistic: Transcript, source: str) -> dict[str, tuple[float, float]]:
    """Return the noisy number of rows of every level of a category, or of false and true, with its standard error."""
    labels, _ = kinds_of(statistic.schema, source)
    found = RowCounts(statistic).of(source)
    return dict(zip(labels, zip(found.values.tolist(), found.std_errors.tolist(), strict=True), strict=True))


def large_delta(statistic: Transcript, delta: float) -> str:
    """Return a sentence if δ is above 1/n, with n the noisy number of rows or privacy units; empty otherwise.

    Publishing one row in 1/δ without protection satisfies δ, so that δ should be well below 1/n. Sums of row weights,
    and releases without an intercept and marginals, do not show n.
    """
    if statistic.schema.weight is not None or not (statistic.schema.intercept or statistic.marginals):
        return ""
    most = 1 if statistic.unit is None else statistic.unit.max_contributions
    n = RowCounts(statistic).rows[0] / most  # a unit counts as at most j rows
    if not delta * n > 1:
        return ""
    those = f"about {n:,.0f} rows" if statistic.unit is None else f"at least about {n:,.0f} privacy units"
    return (
        f"delta={delta:g} is larger than 1/n for the {those} of this release: publishing one in {round(1 / delta):,} "
        "without any protection would also satisfy it. Choose a delta well below 1/n."
    )


@dataclass(frozen=True, eq=False)
class RowCounts:
    """Counts and sums of all columns of a release."""

    statistic: Transcript

    @property
    def rows(self) -> tuple[float, float]:
        """Noisy number of rows (sum of weights) and its standard error."""
        if self._columns is None:
            value, error = first_pass(self.statistic).quadratic(self.statistic.schema.units.one)
        else:
            value, error = self._columns.rows, self._columns.variance**0.5
        return self._weight * value, self._weight * error

    def edges(self, name: str) -> Floats:
        """Return the edges of the public cells of a number, in original units; an error without marginals."""
        found = None if self._columns is None else self._columns.layout[name].edges
        if found is None:
            raise ArgumentError(
                f"The release has no histogram of {name!r}. Quantiles and histograms require a release in several "
                "passes, a schema without vectors, and a numeric column."
            )
        return found

    def of(self, name: str) -> Fitted:
        """Return counts of the levels of a category, of false and true, or of the cells of a number.

        Missing values of a number are the last cell, where they have an indicator.
        """
        if self._columns is not None and name in self._columns.layout:
            found = self._columns.cells(name)
        else:
            own, designs = structure(first_pass(self.statistic), self.statistic.schema, [name])
            found = fit_structure(own, designs)
        return found.mapped(self._weight * np.eye(len(found.values)))

    def sums(self, name: str, entry: int = 0) -> Fitted:
        """Return the number of known values of a number or of an entry of a vector, Σ(x - centre), Σ(x - centre)²."""
        if self._columns is not None:
            found = self._columns.sums(name)
        else:
            own = first_pass(self.statistic).mapped(self._known_and_deviation(name, entry))
            found = _entries(own, [(0, 0), (0, 1), (1, 1)])
        return found.mapped(self._weight * np.eye(3))

    def totals(self, names: Sequence[str]) -> Fitted:
        """Return Σx of numeric or boolean columns over their known values, in original units."""
        if self._columns is not None:
            found = self._columns.totals(names)
        else:
            units, groups = self.statistic.schema.units, self.statistic.schema.groups
            rows = []
            for name in names:
                known, deviation = self._known_and_deviation(name)
                rows += [known, deviation + units.centres[groups[name][0]] * known]
            own = first_pass(self.statistic).mapped(np.array(rows))
            found = _entries(own, [(2 * i, 2 * i + 1) for i in range(len(names))])
        return found.mapped(self._weight * np.eye(len(names)))

    @property
    def _weight(self) -> float:
        return self.statistic.schema.weight_bound

    @cached_property
    def _columns(self) -> _FromMarginals | None:
        return None if self.statistic.marginals is None else _FromMarginals(self.statistic.marginals)

    def _known_and_deviation(self, name: str, entry: int = 0) -> Floats:
        """Return combinations of encoded columns: 1 where a value is known, and x - centre, which is 0 elsewhere."""
        schema, mark = self.statistic.schema, missing_name(name)
        known = schema.units.one
        if mark in schema.groups:
            known = known - schema.units.deviations(schema.groups[mark])[0]
        return np.vstack([known, schema.units.deviations([schema.groups[name][entry]])])


class _FromMarginals:
    """Generalised least squares on all marginals (see the module's docstring), before weights."""

    def __init__(self, marginals: Marginals) -> None:
        self.schema, self.counts = marginals.plan.schema, marginals.by_column
        self.layout = {cells.column: cells for cells in marginals.plan.cells.columns}
        self.places = {name: place for place, name in enumerate(marginals.plan.cells.numbers)}
        self.of_count, of_sum = marginals.std_errors
        # Sums over entries of encoded rows, and of their squares, which are released over the largest entry.
        largest = self.schema.in_units(1.0) * 2.0**-FRACTION_BITS
        self.entry_sums = marginals.sums * self.schema.row_norm
        self.entry_squares = marginals.squares * self.schema.row_norm**2 * largest
        self.of_sum = of_sum * self.schema.row_norm
        self.rows, self.variance = marginals.total
        self.cells = marginals.cells

    def sums(self, name: str) -> Fitted:
        """Return the number of known values, Σ(x - centre) and Σ(x - centre)²."""
        cells = self.cells(name)
        if name not in self.places:  # a boolean: x - centre is -1/2 or 1/2
            return cells.mapped(np.array([[1.0, 1.0], [-0.5, 0.5], [0.25, 0.25]]))
        at, known = self.places[name], slice(0, self._known(name))
        scale = float(self.schema.units.scales[self.schema.groups[name][0]])
        values = [cells.values[known].sum(), self.entry_sums[at] * scale, self.entry_squares[at] * scale**2]
        variances = [cells.covariance[known, known].sum(), (self.of_sum * scale) ** 2, (self.of_sum * scale**2) ** 2]
        return Fitted(np.array(values), np.diag(variances))

    def totals(self, names: Sequence[str]) -> Fitted:
        """Return Σx: of the columns' errors only that in the number of rows is common."""
        values, variances, common = [], [], []
        for name in names:
            centre = float(self.schema.units.centres[self.schema.groups[name][0]])
            own = self.sums(name).mapped(np.array([[centre, 1.0, 0.0]]))
            values.append(own.values[0])
            variances.append(own.covariance[0, 0])
            common.append(centre * self._known(name) / self.layout[name].size if name in self.places else 0.5)
        covariance = np.outer(common, common) * self.variance
        np.fill_diagonal(covariance, variances)
        return Fitted(np.array(values), covariance)

    def _known(self, name: str) -> int:
        """Return the number of cells that hold known values."""
        return self.layout[name].size - (self.layout[name].missing is not None)


# ---------------------------------------------------------------------------------------------------------------
# From second moments
def first_pass(statistic: Transcript) -> NoisyMoment:
    """Return the first pass and the distribution of its noise: no row is clipped in it.

    The last pass, which clips rows of large norm, where the first one read a sample of the rows.
    """
    if len(statistic.passes) == 1 or statistic.passes[0].rate < 1:
        return statistic.noisy
    own = statistic.pool.members[0].times(statistic.schema.row_norm**2)
    return NoisyMoment(own.matrix, own.shape, independent=statistic.independent_rows)


def kinds_of(schema: Schema, name: str) -> tuple[tuple[str, ...], Floats]:
    """Levels of a category, or false and true; and what each is in original units, shape (levels, entries)."""
    column = schema.columns[name] if name in schema.columns else schema.parts[schema.resolve(name)[0]]
    if isinstance(column, Boolean):
        return ("false", "true"), np.array([[0.0], [1.0]])
    if not isinstance(column, Categorical):
        raise ArgumentError(f"Groups, shares and cross-tables require a categorical or boolean column, got {name!r}.")
    entries = len(column.labels)
    if column.unknown == "zero":
        return (*column.labels, NONE_OF_THESE), np.vstack([np.eye(entries), np.zeros(entries)])
    return column.labels, np.eye(entries)


def structure(noisy: NoisyMoment, schema: Schema, names: Sequence[str]) -> tuple[NoisyMoment, Floats]:
    """Return the block of the constant and of some categories, and the designs of all combinations of their levels."""
    kinds = [kinds_of(schema, name)[1] for name in names]
    columns = [index for name in names for index in schema.groups[schema.resolve(name)[0]]]
    own = noisy.mapped(np.vstack([schema.units.one, schema.units.rows(columns)]))
    u = np.ones((1, 1))
    for levels in kinds:
        u = np.hstack([np.repeat(u, len(levels), axis=0), np.tile(levels, (len(u), 1))])
    return own, level_designs(u)


def fit_structure(noisy: NoisyMoment, designs: Floats) -> Fitted:
    """β̂ and its covariance from designs D, shape (number of parameters, p, p), symmetric."""
    P = _inverse(noisy.shape if noisy.has_noise else np.diag(np.maximum(np.diagonal(noisy.moment), 1e-300)))
    seen = (P @ designs @ P).reshape(len(designs), -1)
    K = seen @ designs.reshape(len(designs), -1).T / 2
    r = seen @ noisy.moment.ravel() / 2
    unit = 1 / np.sqrt(np.maximum(np.diagonal(K), 1e-300))
    scaled = K * np.outer(unit, unit)
    back = unit[:, np.newaxis] * scipy.linalg.pinvh((scaled + scaled.T) / 2) * unit
    return Fitted(np.asarray(back @ r), np.asarray(back) if noisy.has_noise else np.zeros_like(back))


def level_designs(u: Floats) -> Floats:
    """D = u uᵀ for every kind of row u, shape (kinds, p)."""
    return np.asarray(u[:, :, np.newaxis] * u[:, np.newaxis])


def with_margins(cells: Fitted, rows: Fitted, columns: Fitted) -> Fitted:
    """Return the cells of a table moved to margins that are estimated independently and share the number of rows.

    With M the sums over rows and over columns, V the covariance of the cells c and m the margins, cells are
    c + B(m - M c), B = V Mᵀ(M V Mᵀ)⁻¹, with covariance V - B M V + B Cov(m) Bᵀ.
    """
    a, b = len(rows.values), len(columns.values)
    M = np.vstack([np.repeat(np.eye(a), b, axis=1), np.tile(np.eye(b), a)])
    margins, V = np.concatenate([rows.values, columns.values]), cells.covariance
    between = np.outer(rows.covariance.sum(axis=1), columns.covariance.sum(axis=1)) / rows.covariance.sum()
    of_margins = np.block([[rows.covariance, between], [between.T, columns.covariance]])
    S = M @ V @ M.T
    B = V @ M.T @ scipy.linalg.pinvh((S + S.T) / 2)  # both margins add up to the same number of rows
    return Fitted(cells.values + B @ (margins - M @ cells.values), V - B @ M @ V + B @ of_margins @ B.T)


def _entries(noisy: NoisyMoment, places: Sequence[tuple[int, int]]) -> Fitted:
    """Return entries of a second moment with their covariance N_ik N_jl + N_il N_jk."""
    i, j = np.array(places).T
    N = noisy.shape
    covariance = N[np.ix_(i, i)] * N[np.ix_(j, j)] + N[np.ix_(i, j)] * N[np.ix_(j, i)]
    return Fitted(noisy.moment[i, j], covariance)


def _inverse(Q: Floats) -> Floats:
    """Q⁻¹, directions below `_FLOOR` raised to it."""
    unit = 1 / np.sqrt(np.maximum(np.diagonal(Q), 1e-300))
    values, vectors = scipy.linalg.eigh(Q * np.outer(unit, unit))
    half = unit[:, np.newaxis] * vectors / np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    return np.asarray(half @ half.T)
