r"""Functions of single numbers that terms are made of, by operations that every IEEE machine rounds alike.

Only +, -, ×, ÷, comparisons and exact operations on exponents are used, one element at a time and never fused. NumPy's
own logarithm may take another path for the last elements of an array, for strided arrays or for another processor; here
a number gives the same bits wherever it stands, and on every machine.

>>> x = np.linspace(-1, 1, 5)
>>> legendre(2, x).tolist()
[1.0, -0.125, -0.5, -0.125, 1.0]
>>> float(logarithm(np.array([8.0]))[0]) / 3 == 0.6931471805599453
True
"""

from __future__ import annotations

import math

import numpy as np

from gaussmix._types import Floats

__all__ = ["hour_of_day", "legendre", "logarithm", "splines", "to_unit"]

_LN2_HIGH = 0.693147180369123816490  # 32 bits: times an exponent it is exact
_LN2_LOW = 1.90821492927058770002e-10
_ODD = tuple(1 / (2 * k + 1) for k in range(11, 0, -1))  # of the series of artanh, the last term first
_SPLINE_DEGREE = 3
_WITHIN = 1 - 2.0**-40  # more than rounding can add to the squares of splines


def to_unit(x: Floats, centre: float, half_range: float) -> Floats:
    """(x - centre) / half range, clipped to [-1, 1]."""
    return np.clip((x - centre) / half_range, -1.0, 1.0)


def logarithm(x: Floats) -> Floats:
    r"""Natural logarithm of positive, finite numbers, within two units of the last place.

    With x = m 2ᵉ, m in [√½, √2) and f = (m - 1)/(m + 1),

    .. math:: \log x = e \log 2 + 2 f \sum_{k \ge 0} \frac{f^{2k}}{2k + 1} , \qquad |f| < 0.172 ;

    the terms from k = 12 on are below 2⁻⁶⁴ of the sum.
    """
    m, e = np.frexp(x)
    low = m < math.sqrt(0.5)
    m, e = np.where(low, 2 * m, m), np.where(low, e - 1, e).astype(np.float64)
    f = (m - 1) / (m + 1)
    s = f * f
    series = np.zeros_like(s)
    for coefficient in _ODD:
        series = (series + coefficient) * s
    return np.asarray(e * _LN2_HIGH + (2 * f + (2 * f * series + e * _LN2_LOW)))


def legendre(degree: int, z: Floats) -> Floats:
    """P_degree at z in [-1, 1], within [-1, 1]: orthogonal to all lower degrees on the interval.

    (j + 1) P_{j+1} = (2j + 1) z P_j - j P_{j-1}.
    """
    before, now = np.ones_like(z), z
    for j in range(1, degree):
        before, now = now, ((2 * j + 1) * z * now - j * before) / (j + 1)
    return np.clip(now, -1.0, 1.0)


def splines(size: int, z: Floats) -> Floats:
    """Cubic B-splines at z in [-1, 1], shape (n, size), but for the first: their squares add up to less than 1.

    Knots cut the interval into ``size - 2`` equal parts. The functions are not negative and add up to 1 with the one
    that is left out, which the intercept stands for.
    """
    parts, p = size - _SPLINE_DEGREE + 1, _SPLINE_DEGREE
    inner = [-1 + 2 * i / parts for i in range(parts + 1)]
    knots = [-1.0] * p + inner + [1.0] * p
    last = np.minimum((z + 1) * (parts / 2), parts - 1)
    cell = np.maximum(np.floor(last), 0.0)  # 0 to parts - 1; 1 belongs to the last one
    basis = [(cell == i - p).astype(np.float64) for i in range(len(knots) - 1)]
    for degree in range(1, p + 1):
        basis = [
            _ramp(z, knots[i], knots[i + degree]) * basis[i]
            + _ramp(-z, -knots[i + degree + 1], -knots[i + 1]) * basis[i + 1]
            for i in range(len(basis) - 1)
        ]
    return np.asarray(np.clip(np.stack(basis[1:], axis=1), 0.0, 1.0) * _WITHIN)


def _ramp(z: Floats, start: float, end: float) -> Floats:
    """From 0 at the start to 1 at the end; 0 where there is no way between."""
    return np.asarray((z - start) / (end - start)) if end > start else np.zeros_like(z)


def hour_of_day(days: Floats) -> Floats:
    """Hours since midnight, from 0 to 24, of a time in days."""
    return np.asarray((days - np.floor(days)) * 24)
