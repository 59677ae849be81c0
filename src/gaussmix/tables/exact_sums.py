"""Sums of products of whole rows, which no order of summation changes; sensitive.

Rows are integers of norm at most 2²⁰. In a block of 2¹² rows, ``sum |r_i r_j| <= 2**52``: every partial sum of every
order, fused or not, is an integer below 2⁵³, which float64 represents, so BLAS makes no rounding error. Blocks are
added in two 64-bit integers, ``high * 2**40 + low`` with ``0 <= low < 2**40``: a unique form, good for 2⁶² rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix._types import Integers
from gaussmix.tables.schema import FRACTION_BITS

__all__ = ["FLUSHES_PER_CARRY", "LIMB_BITS", "ExactSums", "carried", "symmetric"]

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
