"""Sums of products of whole rows, which no order of summation changes; sensitive.

Rows are integers of norm at most 2²⁰. In a block of 2¹² rows, ``sum |r_i r_j| <= 2**52``: every partial sum of every
order, fused or not, is an integer below 2⁵³, which float64 represents, so BLAS makes no rounding error. Blocks are
added in two 64-bit integers, ``high * 2**40 + low`` with ``0 <= low < 2**40``: a unique form, good for 2⁶² rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.tables.encoder import EXACT_ROWS
from gaussmix.tables.schema import FRACTION_BITS

__all__ = ["FLUSHES_PER_CARRY", "LIMB_BITS", "ExactSums", "Limbs", "carried", "symmetric"]

LIMB_BITS = 2 * FRACTION_BITS
FLUSHES_PER_CARRY = 2**10
"""Sums of at most 2**52 that can be added to a low limb: they stay below 2**63."""


@dataclass(frozen=True, repr=False)
class ExactSums:
    """**Sensitive**: G as ``high + low · 2⁻⁴⁰``, 0 ≤ low < 2⁴⁰, and the number of rows."""

    high: Integers
    low: Integers
    n: int

    def __add__(self, other: ExactSums) -> ExactSums:
        high, low = carried(self.high + other.high, self.low + other.low)
        return ExactSums(high, low, self.n + other.n)


def carried(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """The unique form of ``high * 2**40 + low`` with 0 <= low < 2**40."""
    return high + (low >> LIMB_BITS), low & (2**LIMB_BITS - 1)


def symmetric(high: Integers, low: Integers, n: int) -> ExactSums:
    """Sums of n rows whose upper triangle is known."""
    high, low = (np.triu(limb) + np.triu(limb, 1).T for limb in carried(high, low))
    return ExactSums(high, low, n)


class Limbs:
    """One thread's sums as integers, and how many rows it has in floats that were not added to them yet."""

    def __init__(self, m: int) -> None:
        self.high, self.low = (np.zeros((m, m), dtype=np.int64, order="F") for _ in range(2))
        self.rows, self.pending_rows, self.flushes = 0, 0, 0

    def fits(self, rows: int) -> bool:
        """Whether so many rows more can be held in floats without rounding."""
        return self.pending_rows + rows <= EXACT_ROWS

    def count(self, rows: int) -> None:
        """So many rows more are in floats."""
        self.pending_rows += rows
        self.rows += rows

    def take(self, *parts: tuple[Floats, tuple[slice, slice]]) -> None:
        """Add the floats, each at its place, and set them to zero."""
        for floats, place in parts:
            if not np.isfinite(floats).all():  # 4096 rows of norm at most 1 cannot do that
                raise RuntimeError("Encoded rows are not finite: a fault of the encoder. Nothing was released.")
            self.low[place] += floats.astype(np.int64)
            floats.fill(0)
        self.pending_rows = 0
        self.flushes += 1
        if self.flushes % FLUSHES_PER_CARRY == 0:
            self.high, self.low = carried(self.high, self.low)

    def sums(self) -> ExactSums:
        """Everything taken so far; the upper triangle counts."""
        return symmetric(self.high, self.low, self.rows)
