"""The tallies of :mod:`gaussmix.tables.tallies` by fused compiled functions: the same answers, in less time.

**Sensitive.** Rows come whole, or from arrays that are encoded on the way (:class:`gaussmix.tables.kernels.Source`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.tables import kernels
from gaussmix.tables.encoder import EXACT_ROWS, pieces
from gaussmix.tables.exact_sums import FLUSHES_PER_CARRY, ExactSums, carried, symmetric
from gaussmix.tables.transforms import ROW_UNIT, BinCounter, BinCounts, Bins, Transform, shorten, to_units

__all__ = ["FusedGram", "FusedLengths", "FusedMapped", "FusedTally"]


def _refuse_longer(squares: Floats) -> None:
    """The sensitivity rests on it: no row that was added is longer than 2²⁰."""
    if not (squares <= ROW_UNIT**2).all():
        raise RuntimeError("A row is longer than its bound: a fault of the library. Nothing was released.")


class FusedTally(ABC):
    """A tally that takes in arrays as well as whole rows."""

    @abstractmethod
    def take(self, source: kernels.Source) -> Integers:
        """Take in the rows of a source but for those whose positions are returned: they are to be added otherwise."""


class FusedGram(FusedTally):
    """Σ r rᵀ of rows of m columns."""

    def __init__(self, m: int) -> None:
        self.block_rows, self.room, self._m = EXACT_ROWS, kernels.Room(m), m
        self._totals = kernels.Totals(m)
        self._high, self._rows, self._flushes = np.zeros_like(self._totals.numbers), 0, 0

    def add(self, rows: Floats) -> None:
        """Take in any number of whole rows."""
        for piece in pieces(len(rows), kernels.MOST_ROWS):
            self.take(kernels.Source.of_rows(rows[piece]))

    def take(self, source: kernels.Source) -> Integers:
        """Of whole rows none are left out."""
        _refuse_longer(kernels.gram(source, self.totals_for(source.n), self.room))
        return self.counted(source)

    def totals_for(self, rows: int) -> kernels.Totals:
        """Sums to which the products of so many rows can be added: low limbs below 2⁶³."""
        flushes = -(-rows // EXACT_ROWS)
        self._flushes += flushes
        if self._flushes > FLUSHES_PER_CARRY:
            self._high, self._totals.numbers = carried(self._high, self._totals.numbers)
            self._flushes = flushes
        return self._totals

    def counted(self, source: kernels.Source) -> Integers:
        """Count the rows that were added; positions of those that were not."""
        left = source.left()
        self._rows += source.n - len(left)
        return left

    def answer(self) -> ExactSums:
        """About all rows taken in so far."""
        high, low = (limb[: self._m, : self._m] for limb in (self._high, self._totals.numbers))
        return symmetric(high, low, self._rows)


class FusedMapped(FusedTally):
    """Σ z̄ z̄ᵀ, z = T r shortened to ‖z̄‖² ≤ clip."""

    def __init__(self, transform: Transform, clip: float) -> None:
        k, m = transform.integers.shape
        self.block_rows, self._room, self._gram = EXACT_ROWS, kernels.Room(m), FusedGram(k)
        self._transform, self._units = transform, to_units(transform, clip)
        self._map = kernels.Map(transform)
        self._factors = self._map.factors(self._units)

    def add(self, rows: Floats) -> None:
        """Take in any number of whole rows."""
        for piece in pieces(len(rows), kernels.MOST_ROWS):
            block = rows[piece]
            far = self.take(kernels.Source.of_rows(block))
            if len(far):
                z = np.trunc(self._transform.product(block[far]) * self._units)
                shorten(z)
                self._gram.add(z)

    def take(self, source: kernels.Source) -> Integers:
        """But for rows that are not finite, or far beyond the clip."""
        totals = self._gram.totals_for(source.n)
        _refuse_longer(kernels.mapped(source, self._map, self._factors, totals, self._room, self._gram.room))
        return self._gram.counted(source)

    def answer(self) -> ExactSums:
        """About all rows taken in so far."""
        return self._gram.answer()


class FusedLengths(FusedTally):
    """Counts of rows by ‖z‖², for transforms that share their integers."""

    def __init__(self, transform: Transform, bins: Sequence[Bins]) -> None:
        k, m = transform.integers.shape
        self.block_rows, self._room, self._products, self._map = (
            EXACT_ROWS,
            kernels.Room(m),
            kernels.Room(k),
            kernels.Map(transform),
        )
        self._factors = self._map.factors(*(one.factors for one in bins))
        self._rows, self._counters = 0, [BinCounter(one) for one in bins]

    def add(self, rows: Floats) -> None:
        """Take in any number of whole rows."""
        for piece in pieces(len(rows), kernels.MOST_ROWS):
            self.take(kernels.Source.of_rows(rows[piece]))

    def take(self, source: kernels.Source) -> Integers:
        """Of whole rows none are left out."""
        lengths, zeros = kernels.lengths(source, self._map, self._factors, self._room, self._products)
        left = source.left()
        for counter, squares in zip(self._counters, lengths, strict=True):
            counter.add_squares(np.delete(squares, left) if len(left) else squares, zeros)
        self._rows += source.n - len(left)
        return left

    def answer(self) -> BinCounts:
        """About all rows taken in so far."""
        return BinCounts([counter.counts() for counter in self._counters], self._rows)
