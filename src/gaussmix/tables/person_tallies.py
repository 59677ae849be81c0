r"""What a pass asks of persons: the twins of :mod:`gaussmix.tables.tallies`, where one person has several rows.

**Sensitive.** A person is taken in whole. Exact sums, as there:

- `PersonGram`: Σ r rᵀ in the declared metric; each person's squares add up to at most j·2⁴⁰, in integers.
- `PersonMapped`: Σ z̄ z̄ᵀ of rows mapped by a transform, each person's multiplied by one factor so that Σ‖z̄‖² ≤ clip;
  in integers, at most 2⁴⁰ after rounding.
- `PersonCounts`: persons by Σ‖z‖², for several transforms: a person is in one bin of each.

‖Σ r rᵀ‖_F ≤ Σ‖r‖² (docs/privacy.md), so these sums of squares bound what one person changes. They are sums of squares
of integers: below 2⁵³ exact in any order, and 2⁵³ or more in every order if the exact sum is. So a person gives the
same bits in every block, and in whatever order the rows come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.tables.encoder import EXACT_ROWS, squared_norms_of
from gaussmix.tables.exact_sums import ExactSums
from gaussmix.tables.tallies import Gram, NormCounts, Summable
from gaussmix.tables.transforms import ROW_UNIT, BinCounter, BinCounts, Bins, Transform, to_units
from gaussmix.tables.unit import Unit

__all__ = ["PersonCounts", "PersonGram", "PersonMapped", "PersonQuestion", "PersonTally", "shorten_together"]

BLOCK_ROWS = EXACT_ROWS

_SHRINK = 1 - 2.0**-32  # more than what rounding may add to a norm
_HUGE = 2.0**1000
_INEXACT = 2.0**53

A_co = TypeVar("A_co", bound=Summable, covariant=True)


class PersonTally(Protocol[A_co]):
    """One pass's share."""

    def add(self, rows: Floats, starts: Integers) -> None:
        """Take in whole persons: rows (n, m), which may be overwritten, and where each person's begin."""

    def answer(self) -> A_co:
        """About all persons taken in so far."""


class PersonQuestion(Protocol[A_co]):
    """What is asked of every person. Public."""

    def tally(self, m: int) -> PersonTally[A_co]:
        """For rows of m columns."""


# ---------------------------------------------------------------------------------------------------------------
# Norms of persons
def totals_of(rows: Floats, starts: Integers) -> Floats:
    """Σ‖r‖² of each person: exact for whole numbers below 2⁵³, at least 2⁵³ for others."""
    return np.asarray(np.add.reduceat(squared_norms_of(rows), starts))


def shorten_together(rows: Floats, starts: Integers, limit: float) -> None:
    """Multiply all rows of a person by one factor so that their squares add up to ``limit`` at most, in place.

    Rows are whole numbers and stay so; who is within the limit stays as it is. Rounding is towards zero, and the sum is
    checked afterwards, in integers. No person sees another.
    """
    with np.errstate(over="ignore"):
        totals = totals_of(rows, starts)
        long = ~(totals <= limit)
        if not long.any():
            return
        sizes = np.diff(np.append(starts, len(rows)))
        inside = np.repeat(long, sizes)
        part, sizes = rows[inside], sizes[long]
        starts = np.cumsum(sizes) - sizes
        part, totals = _brought_near(part, starts, sizes, totals[long])
        part *= np.repeat(math.sqrt(limit) * _SHRINK / np.sqrt(totals), sizes)[:, np.newaxis]
        np.trunc(part, out=part)
        if not (totals_of(part, starts) <= limit).all():
            raise RuntimeError("A person is longer than the bound: a fault of the library. Nothing was released.")
        rows[inside] = part


def _brought_near(part: Floats, starts: Integers, sizes: Integers, totals: Floats) -> tuple[Floats, Floats]:
    """Rows of persons whose sums are not exact, times powers of two that make them exact; and all sums."""
    far = ~(totals < _INEXACT)
    if not far.any():
        return part, totals
    part = np.clip(part, -_HUGE, _HUGE)
    _, exponents = np.frexp(np.maximum.reduceat(np.abs(part).max(axis=1), starts))
    room = 26 - np.ceil(np.log2(sizes * part.shape[1]) / 2).astype(np.int64)  # squares add up to at most 2**52
    steps = np.where(far, room - exponents, 0)
    part = np.trunc(np.ldexp(part, np.repeat(steps, sizes)[:, np.newaxis]))
    return part, totals_of(part, starts)


# ---------------------------------------------------------------------------------------------------------------
# Gram matrices
@dataclass(frozen=True)
class PersonGram:
    """Σ r rᵀ in units of 2⁻⁴⁰; one person's part has a Frobenius norm of at most j."""

    unit: Unit

    def tally(self, m: int) -> PersonTally[ExactSums]:
        """For rows of m columns."""
        return _GramTally(self.unit, m)


class _GramTally:
    def __init__(self, unit: Unit, m: int) -> None:
        self.limit = unit.rows * ROW_UNIT**2
        self.gram = Gram().tally(m)

    def add(self, rows: Floats, starts: Integers) -> None:
        shorten_together(rows, starts, self.limit)  # rows that were kept are short enough: nothing happens to them
        self.gram.add(rows)

    def answer(self) -> ExactSums:
        return self.gram.answer()


@dataclass(frozen=True)
class PersonMapped:
    """Σ z̄ z̄ᵀ in units of 2⁻⁴⁰·clip, all z = T r of a person times one factor so that Σ‖z̄‖² ≤ clip."""

    transform: Transform
    clip: float

    def tally(self, m: int) -> PersonTally[ExactSums]:
        """For rows of m columns."""
        return _MappedTally(self)


class _MappedTally:
    def __init__(self, question: PersonMapped) -> None:
        self.transform = question.transform
        self.factors = to_units(question.transform, question.clip)
        self.gram = Gram().tally(len(question.transform.integers))

    def add(self, rows: Floats, starts: Integers) -> None:
        z = self.transform.product(rows)
        np.multiply(z, self.factors, out=z)
        np.trunc(z, out=z)
        shorten_together(z, starts, ROW_UNIT**2)
        self.gram.add(z)

    def answer(self) -> ExactSums:
        return self.gram.answer()


# ---------------------------------------------------------------------------------------------------------------
# Histograms
@dataclass(frozen=True)
class PersonCounts:
    """How many persons have Σ‖z‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞), for every transform and its edges.

    A person whose rows are all mapped to zero is in no bin: the neighbour who is not there.
    """

    rows: NormCounts

    @classmethod
    def of(cls, transforms: Sequence[Transform], edges: Sequence[Floats]) -> PersonCounts:
        """One array of edges for every transform."""
        return cls(NormCounts.of(transforms, edges))

    def tally(self, m: int) -> PersonTally[BinCounts]:
        """For rows of m columns."""
        return _CountTally(self.rows)


class _CountTally:
    def __init__(self, question: NormCounts) -> None:
        self.transforms, self.persons = question.transforms, 0
        self.bins = [Bins.of(*pair) for pair in zip(question.transforms, question.edges, strict=True)]
        self.counters = [BinCounter(bins) for bins in self.bins]

    def add(self, rows: Floats, starts: Integers) -> None:
        transform, product = None, np.empty(0)
        for other, bins, counter in zip(self.transforms, self.bins, self.counters, strict=True):
            if transform is None or not transform.same_integers(other):
                transform, product = other, other.product(rows)
            with np.errstate(over="ignore"):
                totals = totals_of(np.trunc(product * bins.factors), starts)
            some = np.logical_or.reduceat(product.any(axis=1), starts)
            counter.add_squares(totals, int(np.count_nonzero(~some)))
        self.persons += len(starts)

    def answer(self) -> BinCounts:
        return BinCounts([counter.counts() for counter in self.counters], self.persons)
