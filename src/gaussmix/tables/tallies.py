r"""What a pass asks of a table, and one thread's share of the answer, which is sensitive.

A question is public, small and the same for everybody who reads a part of the table; its `tally` takes in whole rows
(:mod:`gaussmix.tables.encoder`: integers of norm at most 2²⁰), and answers of parts are added. What is released with
noise: `Gram`, Σ r rᵀ in the declared metric; `MappedGram`, Σ z̄ z̄ᵀ of rows mapped by a transform and shortened;
`NormCounts`, histograms of ‖z‖² for several transforms.

Each row is taken in by itself, and gives the same bits in every block, order, thread and memory layout: products with
a transform are exact integers, scaling and rounding are elementwise, norms are exact sums of squares of integers
(:mod:`gaussmix.tables.transforms`), and sums of products are exact (:mod:`gaussmix.tables.exact_sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.tables import kernels
from gaussmix.tables.encoder import EXACT_ROWS, pieces, squared_norms_of, tiled
from gaussmix.tables.exact_sums import ExactSums, Limbs
from gaussmix.tables.fused_tallies import FusedGram, FusedLengths, FusedMapped
from gaussmix.tables.transforms import BinCounter, BinCounts, Bins, Transform, shorten, to_units

__all__ = ["Gram", "MappedGram", "NormCounts", "Question", "Tally"]

_BLOCK_BYTES = 2**20  # smaller blocks cost more in calls than larger ones in cache misses
_LEAST_BLOCK_ROWS = 64
_ALL = (slice(None), slice(None))


class Summable(Protocol):
    """An answer about a part of a table."""

    def __add__(self, other: Self, /) -> Self: ...


A_co = TypeVar("A_co", bound=Summable, covariant=True)


class Tally(Protocol[A_co]):
    """One thread's share of a pass."""

    block_rows: int

    def add(self, rows: Floats) -> None:
        """Take in any number of whole rows, shape (n, m)."""

    def answer(self) -> A_co:
        """About all rows taken in so far."""


class Question(Protocol[A_co]):
    """What is asked of every row. Public."""

    def tally(self, m: int) -> Tally[A_co]:
        """For rows of m columns."""


# ---------------------------------------------------------------------------------------------------------------
# Gram matrices
@dataclass(frozen=True)
class Gram:
    """Σ r rᵀ in units of 2⁻⁴⁰."""

    def tally(self, m: int) -> Tally[ExactSums]:
        """For rows of m columns."""
        return FusedGram(m) if kernels.serves(m) else _GramTally(m)


class _GramTally:
    def __init__(self, m: int) -> None:
        self.block_rows = EXACT_ROWS
        self.limbs = Limbs(m)
        self.pending, self.product = (np.zeros((m, m), order="F") for _ in range(2))

    def add(self, rows: Floats) -> None:
        for piece in pieces(len(rows), self.block_rows):
            self.add_block(rows[piece])

    def add_block(self, rows: Floats) -> None:
        """Add up to ``block_rows`` rows."""
        if not self.limbs.fits(len(rows)):
            self.limbs.take((self.pending, _ALL))
        self.pending += np.matmul(rows.T, rows, out=self.product)
        self.limbs.count(len(rows))

    def answer(self) -> ExactSums:
        self.limbs.take((self.pending, _ALL))
        return self.limbs.sums()


@dataclass(frozen=True)
class MappedGram:
    """Σ z̄ z̄ᵀ in units of 2⁻⁴⁰·clip, z = T r shortened to ‖z̄‖² ≤ clip: the sensitivity is one, exactly."""

    transform: Transform
    clip: float

    def __post_init__(self) -> None:
        to_units(self.transform, self.clip)

    def tally(self, m: int) -> Tally[ExactSums]:
        """For rows of m columns."""
        widest = max(_checked_width(self.transform, m), len(self.transform.integers))
        return FusedMapped(self.transform, self.clip) if kernels.serves(widest) else _MappedTally(self, m)


class _MappedTally:
    def __init__(self, question: MappedGram, m: int) -> None:
        k = len(question.transform.integers)
        self.block_rows = _block_rows(max(m, k))
        self.gram = _GramTally(k)
        self.product = question.transform.product
        self.z = np.empty((self.block_rows, k))
        self.factors = tiled(to_units(question.transform, question.clip), self.block_rows)

    def add(self, rows: Floats) -> None:
        for piece in pieces(len(rows), self.block_rows):
            block = rows[piece]
            z = self.product(block, out=self.z[: len(block)])
            np.multiply(z, self.factors[: len(z)], out=z)
            np.trunc(z, out=z)
            shorten(z)
            self.gram.add_block(z)

    def answer(self) -> ExactSums:
        return self.gram.answer()


# ---------------------------------------------------------------------------------------------------------------
# Histograms
@dataclass(frozen=True)
class NormCounts:
    """How many rows have ‖z‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞), for every transform and its edges.

    Transforms that differ by their scales alone share the product with their integers. A row that is mapped to zero is
    in no bin: it is the neighbour's row that is not there.
    """

    transforms: tuple[Transform, ...]
    edges: tuple[Floats, ...]

    @classmethod
    def of(cls, transforms: Sequence[Transform], edges: Sequence[Floats]) -> NormCounts:
        """One array of edges for every transform."""
        if not transforms or len(transforms) != len(edges):
            raise ArgumentError("counts needs at least one transform, and edges for each.")
        question = cls(tuple(transforms), tuple(edges))
        for transform, edge in zip(transforms, edges, strict=True):
            Bins.of(transform, edge)
        return question

    def tally(self, m: int) -> Tally[BinCounts]:
        """For rows of m columns."""
        first, *others = self.transforms
        widest = max(_checked_width(first, m), len(first.integers))
        if all(map(first.same_integers, others)) and kernels.serves(widest):
            return FusedLengths(first, [Bins.of(*pair) for pair in zip(self.transforms, self.edges, strict=True)])
        return _CountTally(self, m)


class _CountTally:
    def __init__(self, question: NormCounts, m: int) -> None:
        widest = max([m, *(_checked_width(transform, m) for transform in question.transforms)])
        self.block_rows, self.rows = _block_rows(widest), 0
        self.groups: list[tuple[Transform, list[int]]] = []
        for j, transform in enumerate(question.transforms):
            same = next((found for first, found in self.groups if first.same_integers(transform)), None)
            if same is None:
                self.groups.append((transform, [j]))
            else:
                same.append(j)
        bins = [Bins.of(*pair) for pair in zip(question.transforms, question.edges, strict=True)]
        self.factors = [tiled(one.factors, self.block_rows) for one in bins]
        self.counters = [BinCounter(one) for one in bins]
        largest = max(len(transform.integers) for transform in question.transforms)
        self.products, self.scratch = (np.empty(self.block_rows * largest) for _ in range(2))

    def add(self, rows: Floats) -> None:
        for piece in pieces(len(rows), self.block_rows):
            block = rows[piece]
            n = len(block)
            for transform, members in self.groups:
                k = len(transform.integers)
                product, scratch = (part[: n * k].reshape(n, k) for part in (self.products, self.scratch))
                transform.product(block, out=product)
                for j in members:
                    np.multiply(product, self.factors[j][:n], out=scratch)
                    np.trunc(scratch, out=scratch)
                    with np.errstate(over="ignore"):
                        self.counters[j].add(product, squared_norms_of(scratch))
            self.rows += n

    def answer(self) -> BinCounts:
        return BinCounts([counter.counts() for counter in self.counters], self.rows)


def _block_rows(columns: int) -> int:
    """At most as many as can be summed up without rounding."""
    return min(max(_BLOCK_BYTES // (8 * columns), _LEAST_BLOCK_ROWS), EXACT_ROWS)


def _checked_width(transform: Transform, m: int) -> int:
    if transform.integers.shape[1] != m:
        raise ArgumentError(f"The transform maps rows of {transform.integers.shape[1]} columns, the schema has {m}.")
    return m
