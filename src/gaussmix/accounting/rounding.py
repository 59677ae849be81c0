"""Exact arithmetic with directed rounding, identical on every processor.

The last digits of a floating-point result depend on the BLAS, the SIMD instructions and the C library. Noise scales,
ledger entries and the verification of certificates must not depend on them, so these are computed with fractions, or
with `mpmath`, which uses Python's integers.

>>> from fractions import Fraction
>>> root_down(Fraction(1, 2)), root_up(Fraction(1, 2))
(0.7071067811865475, 0.7071067811865476)
>>> exp_up(1.0) > Fraction(2718281828, 10**9)
True
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

__all__ = ["above", "exp_up", "normal_tail_up", "precise", "root_down", "root_up", "round_down", "round_up"]

_BITS = 1100  # fractional bits: finer than any double
_LEAST_BITS = 10_000  # numbers below 2^-10000 are rounded up to it
_DIGITS = 70  # precision of mpmath
_ERROR = Fraction(1, 10**30)  # generous bound on its relative error: differences lose at most 25 digits
_LOCK = threading.RLock()  # mpmath functions change the precision of their context while they run


@contextlib.contextmanager
def precise() -> Iterator[Any]:
    """Yield an `mpmath` context with 70 digits, to one thread at a time."""
    with _LOCK:
        context = _context()
        context.dps = _DIGITS
        yield context


@functools.cache
def _context() -> Any:
    import mpmath  # imported late: it takes 0.2 s, and only calibrations and accounts need it

    return mpmath.MPContext()


def above(x: Any) -> Fraction:
    """Return a fraction that is at least the exact value of a result x ≥ 0 of `mpmath`."""
    mantissa, exponent = map(int, x.man_exp)
    if mantissa.bit_length() + exponent < -_LEAST_BITS:  # e^(-10¹⁰) would have 10¹⁰ digits
        return Fraction(1, 2**_LEAST_BITS)
    return Fraction(mantissa) * Fraction(2) ** exponent * (1 + _ERROR)


@functools.lru_cache(maxsize=1024)
def exp_up(x: float) -> Fraction:
    """Return a fraction just above e^x."""
    with precise() as mp:
        return above(mp.exp(mp.mpf(x)))


@functools.lru_cache(maxsize=1024)
def normal_tail_up(x: Fraction) -> Fraction:
    """Return a fraction just above P(Z ≥ x) of a standard normal Z."""
    with precise() as mp:
        return above(mp.erfc(mp.mpf(x.numerator) / x.denominator / mp.sqrt(2)) / 2)


def round_down(x: Fraction) -> float:
    """Return the largest double that is at most x."""
    nearest = float(x)
    return nearest if nearest <= x else math.nextafter(nearest, -math.inf)


def round_up(x: Fraction) -> float:
    """Return the smallest double that is at least x."""
    return -round_down(-x)


def root_down(square: Fraction) -> float:
    """Return the largest double whose square is at most ``square``."""
    units = (square.numerator << 2 * _BITS) // square.denominator
    return round_down(Fraction(math.isqrt(units), 1 << _BITS))


def root_up(square: Fraction) -> float:
    """Return the smallest double whose square is at least ``square``."""
    root = root_down(square)
    return root if Fraction(root) ** 2 == square else math.nextafter(root, math.inf)
