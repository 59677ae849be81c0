r"""A quadratic in place of the logistic loss, so that least squares solves it.

With y ∈ {-1, 1} and s = y·xθ, :math:`-\log(1 + e^{-s}) \approx b_0 + b_1 s + b_2 s^2` on [-Q, Q], b₂ < 0. Summed over
rows, the maximum over θ is the least-squares solution with response :math:`-b_1/(2 b_2)\, y` (section 4.2 of
arXiv:2505.24603v2; the loss there lacks a minus sign for a minimisation).

>>> round(response_scale(6.0), 3)
3.533
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from gaussmix import _validation as check

__all__ = ["logistic_quadratic", "response_scale"]


@functools.lru_cache(maxsize=64)
def logistic_quadratic(radius: float) -> tuple[float, float, float]:
    """Coefficients b₀, b₁, b₂ in powers of s of the parabola through the Chebyshev nodes of [-radius, radius].

    As a Chebyshev series its coefficients belong to polynomials of s/radius; taking those for the coefficients of
    powers makes θ three times too small at radius 6.
    """
    radius = check.positive(finite=True, radius=radius)
    series = Chebyshev.interpolate(lambda s: -np.logaddexp(0.0, -s), 2, domain=[-radius, radius])
    b0, b1, b2 = series.convert(kind=Polynomial).coef
    return float(b0), float(b1), float(b2)


def response_scale(radius: float) -> float:
    """-b₁/(2 b₂): what the solution with response y ∈ {-1, 1} is multiplied by."""
    _, b1, b2 = logistic_quadratic(radius)
    return -b1 / (2 * b2)
