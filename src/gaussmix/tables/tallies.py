r"""What a pass asks of a table, and one thread's share of the result, which is **sensitive**.

A query is public, small and the same for everybody who reads a part of the table. Its `aggregator` adds up encoded rows
(:mod:`gaussmix.tables.encoder`: integers of norm at most 2²⁰), and the results of parts are added. What is released
with noise: `Gram`, Σ r rᵀ in the declared metric; `MappedGram`, Σ z̄ z̄ᵀ of rows mapped by a transform and clipped;
`NormCounts`, histograms of ‖z‖² for several transforms.

**Contributions.** Where the privacy unit has several rows, an aggregator is given whole units, and where each begins
(``starts``). It clips the sum of squares of a unit, Σ‖r‖², in place of ‖r‖², and counts units in place of rows. Since
‖Σ r rᵀ‖_F ≤ Σ‖r‖² (docs/privacy.md), these sums bound what one unit changes.

**Exact.** Each row, or unit, gives the same bits in every block, order, thread and memory layout: products with a
transform are exact integers, scaling and rounding are elementwise, norms are exact sums of squares of integers
(:mod:`gaussmix.tables.transforms`), and sums of products are exact (:mod:`gaussmix.tables.exact_sums`). Compiled
functions (:mod:`gaussmix.tables.kernels`) and numpy compute the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.errors import ArgumentError
from gaussmix.tables import kernels
from gaussmix.tables.encoder import EXACT_ROWS, pieces, squared_norms_of
from gaussmix.tables.exact_sums import FLUSHES_PER_CARRY, ExactSums, carried, symmetric
from gaussmix.tables.transforms import ROW_UNIT, BinCounter, BinCounts, Bins, Transform, clip_norms, to_units

__all__ = ["Aggregator", "Gram", "MappedGram", "NormCounts", "Query", "Summable", "block_rows"]

_BLOCK_BYTES = 2**20  # smaller blocks cost more in calls than larger ones in cache misses
_LEAST_BLOCK_ROWS = 64


class Summable(Protocol):
    """The result of a query on a part of a table."""

    def __add__(self, other: Self, /) -> Self: ...


A_co = TypeVar("A_co", bound=Summable, covariant=True)

Take = Callable[[kernels.KernelInput], Integers]
"""Adds rows by compiled functions; returns the positions of those that are to be added otherwise."""


class Aggregator(Protocol[A_co]):
    """One thread's share of a query."""

    block_rows: int
    """Rows that are best added at a time."""

    @property
    def take(self) -> Take | None:
        """The compiled function for rows that are encoded on the way; None where none serves."""

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add any number of encoded rows, shape (n, m).

        With ``starts`` the rows are those of whole privacy units, each beginning at one of these positions; rows may be
        overwritten.
        """

    def result(self) -> A_co:
        """Return the sum over all rows that were added."""


class Query(Protocol[A_co]):
    """What is asked of every row, or of every privacy unit. Public."""

    def aggregator(self, m: int) -> Aggregator[A_co]:
        """For rows of m columns."""


# ---------------------------------------------------------------------------------------------------------------
# Gram matrices
@dataclass(frozen=True)
class Gram:
    """Σ r rᵀ in units of 2⁻⁴⁰.

    Attributes
    ----------
    max_contributions : int
        j: the squares of a privacy unit's rows are scaled to at most j·2⁴⁰, so that its part of the sum has a Frobenius
        norm of at most j. Single rows have squares of at most 2⁴⁰ and are added as they are.
    """

    max_contributions: int = 1

    def aggregator(self, m: int) -> Aggregator[ExactSums]:
        """For rows of m columns."""
        return GramAggregator(m, self.max_contributions)


class GramAggregator:
    """Sums in two integers, high · 2⁴⁰ + low, and those of at most 2¹² rows in floats."""

    block_rows = EXACT_ROWS

    def __init__(self, m: int, max_contributions: int = 1) -> None:
        self.m, self.n, self.flushes, self.pending_rows = m, 0, 0, 0
        self.limit = max_contributions * ROW_UNIT**2
        self.compiled = kernels.serves(m)
        width = kernels.padded(m) if self.compiled else m
        self.high, self.low = (np.zeros((width, width), dtype=np.int64) for _ in range(2))
        self.pending = kernels.zeros(width, width)
        self.scratch = kernels.Scratch(m)

    @property
    def take(self) -> Take | None:
        """Compiled functions: no whole row is left out."""
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add any number of encoded rows."""
        if starts is not None:
            clip_norms(rows, self.limit, starts)
        if self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                self._take(kernels.KernelInput.of_rows(rows[piece]))
        else:
            for piece in pieces(len(rows), EXACT_ROWS):
                self._multiply(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        refuse_longer(kernels.gram(rows, self.low_for(rows.n), self.pending, self.scratch))
        return self.counted(rows)

    def low_for(self, rows: int) -> Integers:
        """Low limbs to which the products of so many rows can be added: they stay below 2⁶³."""
        flushes = -(-rows // EXACT_ROWS)
        self.flushes += flushes
        if self.flushes > FLUSHES_PER_CARRY:
            self.high, self.low = carried(self.high, self.low)
            self.flushes = flushes
        return self.low

    def counted(self, rows: kernels.KernelInput) -> Integers:
        """Count the rows that were added; return the positions of those that were not."""
        left = rows.left_out()
        self.n += rows.n - len(left)
        return left

    def _multiply(self, rows: Floats) -> None:
        if self.pending_rows + len(rows) > EXACT_ROWS:
            self._flush()
        # Integers of at most 2²⁰ squared, at most 2¹² of them: below 2⁵³, where float64 adds without rounding.
        self.pending += rows.T @ rows
        self.pending_rows += len(rows)
        self.n += len(rows)

    def _flush(self) -> None:
        if not np.isfinite(self.pending).all():  # 4096 rows of norm at most 2²⁰ cannot do that
            raise RuntimeError("Encoded rows are not finite: a fault of the encoder. Nothing was released.")
        self.low_for(self.pending_rows)[...] += self.pending.astype(np.int64)
        self.pending.fill(0)
        self.pending_rows = 0

    def result(self) -> ExactSums:
        """Return the sum over all rows that were added."""
        self._flush()
        return symmetric(self.high[: self.m, : self.m], self.low[: self.m, : self.m], self.n)


def refuse_longer(squares: Floats) -> None:
    """Check that no row that was added is longer than 2²⁰: the sensitivity rests on it."""
    if not (squares <= ROW_UNIT**2).all():
        raise RuntimeError("A row is longer than its bound: a fault of the library. Nothing was released.")


@dataclass(frozen=True)
class MappedGram:
    """Σ z̄ z̄ᵀ in units of 2⁻⁴⁰·clip, z = T r clipped to ‖z̄‖² ≤ clip: the sensitivity is one, exactly.

    All rows of a privacy unit are multiplied by one factor, so that Σ‖z̄‖² ≤ clip over the unit.
    """

    transform: Transform
    clip: float

    def __post_init__(self) -> None:
        to_units(self.transform, self.clip)

    def aggregator(self, m: int) -> Aggregator[ExactSums]:
        """For rows of m columns."""
        _check_width(self.transform, m)
        return _MappedAggregator(self.transform, self.clip)


class _MappedAggregator:
    def __init__(self, transform: Transform, clip: float) -> None:
        k, m = transform.integers.shape
        self.compiled = kernels.serves(max(k, m))
        self.block_rows = EXACT_ROWS if self.compiled else block_rows(max(k, m))
        self.transform, self.factors, self.gram = transform, to_units(transform, clip), GramAggregator(k)
        if self.compiled:
            self.scratch, self.map = kernels.Scratch(m), kernels.Map(transform)
            self.padded_factors = self.map.factors(self.factors)

    @property
    def take(self) -> Take | None:
        """Compiled functions: rows that are not finite, or far beyond the clip, are left out."""
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:
            self._add(rows, starts)
        elif self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                far = self._take(kernels.KernelInput.of_rows(rows[piece]))
                if len(far):
                    self._add(rows[piece][far])
        else:
            for piece in pieces(len(rows), self.block_rows):
                self._add(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        gram, arrays = self.gram, (self.scratch, self.gram.scratch)
        low = gram.low_for(rows.n)
        refuse_longer(kernels.mapped(rows, self.map, self.padded_factors, low, gram.pending, *arrays))
        return gram.counted(rows)

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        z = self.transform.product(rows)  # exact
        np.multiply(z, self.factors, out=z)
        np.trunc(z, out=z)
        clip_norms(z, ROW_UNIT**2, starts)
        self.gram.add(z)

    def result(self) -> ExactSums:
        return self.gram.result()


# ---------------------------------------------------------------------------------------------------------------
# Histograms
@dataclass(frozen=True)
class NormCounts:
    """How many rows have ‖z‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞), for every transform and its edges.

    Of privacy units with several rows: how many units, by Σ‖z‖² over the unit.

    Transforms that differ by their scales alone share the product with their integers. A row, or a unit, that is mapped
    to zero is in no bin: it is the neighbour's, which is not there.
    """

    transforms: tuple[Transform, ...]
    edges: tuple[Floats, ...]

    @classmethod
    def of(cls, transforms: Sequence[Transform], edges: Sequence[Floats]) -> NormCounts:
        """One array of edges for every transform."""
        if not transforms or len(transforms) != len(edges):
            raise ArgumentError("counts needs at least one transform, and edges for each.")
        query = cls(tuple(transforms), tuple(edges))
        for transform, edge in zip(transforms, edges, strict=True):
            Bins.of(transform, edge)
        return query

    def aggregator(self, m: int) -> Aggregator[BinCounts]:
        """For rows of m columns."""
        for transform in self.transforms:
            _check_width(transform, m)
        return _CountAggregator(self)


class _CountAggregator:
    def __init__(self, query: NormCounts) -> None:
        first, *others = query.transforms
        k, m = first.integers.shape
        self.transforms, self.units = query.transforms, 0
        self.bins = [Bins.of(*pair) for pair in zip(query.transforms, query.edges, strict=True)]
        self.counters = [BinCounter(bins) for bins in self.bins]
        self.compiled = all(map(first.same_integers, others)) and kernels.serves(max(k, m))
        widest = max(m, *(len(transform.integers) for transform in query.transforms))
        self.block_rows = EXACT_ROWS if self.compiled else block_rows(widest)
        if self.compiled:
            self.scratch, self.products, self.map = kernels.Scratch(m), kernels.Scratch(k), kernels.Map(first)
            self.padded_factors = self.map.factors(*(bins.factors for bins in self.bins))

    @property
    def take(self) -> Take | None:
        """Compiled functions: no whole row is left out."""
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:
            self._add(rows, starts)
        elif self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                self._take(kernels.KernelInput.of_rows(rows[piece]))
        else:
            for piece in pieces(len(rows), self.block_rows):
                self._add(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        norms, zeros = kernels.norms(rows, self.map, self.padded_factors, self.scratch, self.products)
        left = rows.left_out()
        for counter, squares in zip(self.counters, norms, strict=True):
            counter.add(np.delete(squares, left) if len(left) else squares, zeros)
        self.units += rows.n - len(left)
        return left

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        transform, product = None, np.empty(0)
        for other, bins, counter in zip(self.transforms, self.bins, self.counters, strict=True):
            if transform is None or not transform.same_integers(other):
                transform, product = other, other.product(rows)  # exact
            with np.errstate(over="ignore"):
                totals = squared_norms_of(np.trunc(product * bins.factors), starts)
            counter.add(totals, 0 if totals.all() else _mapped_to_zero(product, starts))
        self.units += len(rows) if starts is None else len(starts)

    def result(self) -> BinCounts:
        return BinCounts([counter.counts() for counter in self.counters], self.units)


def _mapped_to_zero(product: Floats, starts: Integers | None) -> int:
    """How many rows, or units, are zero before they are rounded."""
    some = product.any(axis=1)
    return int(np.count_nonzero(~(some if starts is None else np.logical_or.reduceat(some, starts))))


def block_rows(columns: int) -> int:
    """Rows whose intermediate results stay in the cache; at most as many as can be added without rounding."""
    return min(max(_BLOCK_BYTES // (8 * columns), _LEAST_BLOCK_ROWS), EXACT_ROWS)


def _check_width(transform: Transform, m: int) -> None:
    if transform.integers.shape[1] != m:
        raise ArgumentError(f"The transform maps rows of {transform.integers.shape[1]} columns, the schema has {m}.")
