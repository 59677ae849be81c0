r"""Utility of Algorithm 2 and its logistic version, with exact constants. Nothing here sees data.

Let θ be least squares on a Gaussian sketch of (X, y) with noise σ, d the number of predictors and
:math:`\bar L(\theta) = \|y - X\theta\|^2 + \sigma^2\|\theta\|^2 + \sigma^2`, which the ridge solution θ*(σ²) minimises.
For k ≥ d

.. math:: \bar L(\theta) / \bar L(\theta^*(\sigma^2)) - 1 \;\sim\; \tfrac{d}{k-d+1}\,F(d, k - d + 1).

*Proof.* θ is least squares on (S, Ξ)(D, b), where D stacks X, σI and 0, and b stacks y, 0 and σ. For the residual
r = b - Dθ*(σ²), Dᵀr = 0, so (S, Ξ)r is independent of (S, Ξ)D. With D = QT, Q orthonormal, the left side is ‖N⁺g‖² for
a k × d matrix N and a vector g of independent standard normals. It equals hᵀ(NᵀN)⁻¹h, where h = (NᵀN)^(-1/2) Nᵀg is
N(0, I_d) and independent of NᵀN: the ratio of independent χ²_d and χ²_(k-d+1). ∎

The distribution does not involve σ, so it holds for the random σ of Algorithm 1 as well. It is Theorem 3 of
arXiv:2505.24603v2 with its unknown constants replaced.

>>> bound = excess_risk_bound(150, 10, probability=0.95, gamma=60.0, x_norm=1.0, y_abs=1.0, theta_norm=0.5)
>>> round(bound.factor, 3), round(bound.additive)
(1.135, 170)
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy import stats

from gaussmix import _validation as check
from gaussmix.errors import ArgumentError

__all__ = ["RiskBound", "Surrogate", "excess_risk_bound", "excess_risk_distribution", "logistic_surrogate"]


class RiskBound(NamedTuple):
    """The bound L(θ) ≤ ``factor``·L(θ*) + ``additive`` on the sum of squared residuals L."""

    factor: float
    additive: float


def excess_risk_distribution(k: int, d: int) -> Any:
    """Return the distribution of L̄(θ)/L̄(θ*(σ²)) - 1 for a sketch of k rows and d predictors.

    Returns
    -------
    scipy.stats.rv_frozen
        d/(k - d + 1)·F(d, k - d + 1); its mean is d/(k - d - 1) for k ≥ d + 2.

    Examples
    --------
    >>> float(round(excess_risk_distribution(150, 6).mean(), 4))
    0.042
    """
    k, d = check.sketch_rows(k=k), check.positive_integer(d=d)
    if k < d:
        raise ArgumentError(
            f"k must be at least d, got k={k} and d={d}. Least squares needs at least one sketch row per predictor."
        )
    return stats.f(d, k - d + 1, scale=d / (k - d + 1))


def excess_risk_bound(
    k: int, d: int, *, probability: float, gamma: float, x_norm: float, y_abs: float, theta_norm: float
) -> RiskBound:
    r"""Bound the risk of Algorithm 2 on the rows it was fitted to (Theorem 3 of arXiv:2505.24603v2, exact constants).

    With at least the given probability, which is that of the noise,

    .. math:: L(\theta) \le (1 + q)\bigl(L(\theta^*) + \gamma (C_X^2 + C_Y^2)(1 + \|\theta^*\|^2)\bigr)

    where q is the quantile of :func:`excess_risk_distribution` and L the sum of squared residuals of the rows as
    clipped. The noise is at most γC²; a table with a large λ_min has less.

    Parameters
    ----------
    k, d : int
        Sketch rows, and predictors, an intercept among them.
    probability : float
        In (0, 1): 1 - ϱ.
    gamma : float
        γ of the sketch.
    x_norm, y_abs : float
        C_X and C_Y, the declared bounds; with an intercept column of value c, C_X² includes c².
    theta_norm : float
        ‖θ*‖ of the least-squares solution, or a bound on it.
    """
    probability = check.in_interval(0, 1, probability=probability)
    gamma = check.positive(finite=True, gamma=gamma)
    x_norm, y_abs = check.positive(finite=True, x_norm=x_norm), check.positive(finite=True, y_abs=y_abs)
    theta_norm = check.nonnegative(theta_norm=theta_norm)
    factor = 1 + float(excess_risk_distribution(k, d).ppf(probability))
    return RiskBound(factor, factor * gamma * (x_norm**2 + y_abs**2) * (1 + theta_norm**2))


class Surrogate(NamedTuple):
    """Coefficients of a parabola that approximates the logistic log-likelihood, and its largest error."""

    b0: float
    b1: float
    b2: float
    error: float

    @property
    def scale(self) -> float:
        """The factor -b₁/(2b₂) by which the solution for y ∈ {-1, 1} is multiplied."""
        return -self.b1 / (2 * self.b2)


@functools.lru_cache(maxsize=64)
def logistic_surrogate(radius: float) -> Surrogate:
    r"""Return b₀ + b₁s + b₂s² ≈ -log(1 + e⁻ˢ) through the Chebyshev nodes of [-radius, radius].

    With s = y·xθ the maximum over θ of the summed parabola is least squares with response -b₁/(2b₂)·y (section 4.2 of
    arXiv:2505.24603v2, whose loss lacks a minus sign). ``error`` is the q of its Corollary 2, the largest distance on
    the interval. The corollary as printed has the factor (1 + χ)² on the wrong side; what holds, if no margin of θ̂ or
    of the best θ exceeds the radius, is

    .. math:: \ell(\hat\theta) - \ell(\theta^*) \le 2q + \tfrac{|b_2|}{n}
        \bigl(F(\hat\theta) - \min_\theta F(\theta)\bigr),\quad F(\theta) = \|-\tfrac{b_1}{2b_2} y - X\theta\|^2

    for the mean logistic loss ℓ.

    Examples
    --------
    >>> surrogate = logistic_surrogate(6.0)
    >>> round(surrogate.scale, 3), round(surrogate.error, 3)
    (3.533, 0.238)
    """
    radius = check.in_interval(1e-3, 1e6, closed=True, radius=radius)  # below, the parabola is a line but for rounding

    def log_likelihood(s: Any) -> Any:
        return -np.logaddexp(0.0, -s)

    series = Chebyshev.interpolate(log_likelihood, 2, domain=[-radius, radius])
    parabola = series.convert(kind=Polynomial)  # in powers of s, not in Chebyshev polynomials of s/radius
    b0, b1, b2 = (float(b) for b in parabola.coef)
    s = np.linspace(-radius, radius, 20_001)
    return Surrogate(b0, b1, b2, float(np.abs(log_likelihood(s) - parabola(s)).max()))
