"""Directed rounding and searches that end on the private side."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import optimize

from gaussmix.accounting.parameters import EPSILON_MAX
from gaussmix.errors import BudgetUnmetError

__all__ = [
    "above",
    "exp_up",
    "log_excess",
    "normal_tail_up",
    "precise",
    "root_down",
    "root_up",
    "round_down",
    "round_up",
    "smallest_or_infinity",
    "smallest_safe",
]


_BITS = 1100  # fractional bits: finer than any double
_LEAST_BITS = 10_000  # numbers below 2^-10000 are rounded up to it
_DIGITS = 70  # precision of mpmath
_ERROR = Fraction(1, 10**30)  # generous bound on its relative error: differences lose at most 25 digits
_LOCK = threading.RLock()  # mpmath functions change the precision of their context while they run


@contextlib.contextmanager
def precise() -> Iterator[Any]:
    """Yield an `mpmath` context with 70 digits, to one thread at a time."""
    import mpmath  # imported late: it takes 0.2 s, and only calibrations and accounts need it

    with _LOCK:
        context = mpmath.MPContext()
        context.dps = _DIGITS
        yield context


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


def smallest_safe(
    excess: Callable[[float], float],
    low: float,
    high: float,
    *,
    limit: float,
    log: bool = False,
    rtol: float = 1e-13,
) -> float:
    """Return the smallest argument at which a decreasing function is ≤ 0, rounded up to a value that was checked.

    Raises
    ------
    BudgetUnmetError
        If there is none up to ``limit``.
    """
    if excess(low) <= 0:
        return low
    while excess(high) > 0:
        if high >= limit:
            raise BudgetUnmetError(
                f"The budget cannot be met: the search reached its limit, {limit:g}. Increase epsilon or delta."
            )
        low, high = high, min(high * 4, limit)
    to, back = (np.log, np.exp) if log else (float, float)

    ends = {to(low): low, to(high): high}  # exp(log(x)) may differ from x

    def inside(x: float) -> float:
        return ends.get(x, min(max(float(back(x)), low), high))

    root = inside(optimize.brentq(lambda x: excess(inside(x)), to(low), to(high), xtol=1e-18, rtol=rtol, maxiter=1000))
    step = max(rtol * abs(root), 1e-18)
    while excess(root) > 0:
        root, step = min(root + step, high), 2 * step
    return root


def log_excess(spent: float, allowed: float) -> float:
    """Return log(spent / allowed), finite, and positive if and only if spent > allowed."""
    ratio = float(np.log(max(spent, 1e-320)) - np.log(max(allowed, 1e-320)))
    return max(ratio, 1e-300) if spent > allowed else min(ratio, 0.0)


def smallest_or_infinity(excess: Callable[[float], float]) -> float:
    """Return the smallest safe ε, or ∞ if it is above :data:`~gaussmix.accounting.parameters.EPSILON_MAX`."""
    try:
        return smallest_safe(excess, 0.0, 1.0, limit=EPSILON_MAX)
    except BudgetUnmetError:
        return np.inf
