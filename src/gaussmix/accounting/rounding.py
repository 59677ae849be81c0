"""Doubles next to exact numbers: every rounding of an account goes to a known side.

>>> from fractions import Fraction
>>> root_down(Fraction(1, 2)), root_up(Fraction(1, 2))
(0.7071067811865475, 0.7071067811865476)
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["root_down", "root_up", "round_down", "round_up"]

_BITS = 1100  # behind the point: finer than any double


def round_down(x: Fraction) -> float:
    """The largest double that is at most x."""
    nearest = float(x)
    return nearest if nearest <= x else math.nextafter(nearest, -math.inf)


def round_up(x: Fraction) -> float:
    """The smallest double that is at least x."""
    return -round_down(-x)


def root_down(square: Fraction) -> float:
    """The largest double whose square is at most a number ≥ 0."""
    units = (square.numerator << 2 * _BITS) // square.denominator
    return round_down(Fraction(math.isqrt(units), 1 << _BITS))


def root_up(square: Fraction) -> float:
    """The smallest double whose square is at least a number ≥ 0."""
    root = root_down(square)
    return root if Fraction(root) ** 2 == square else math.nextafter(root, math.inf)
