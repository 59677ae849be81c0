r"""From a private second moment to coefficients: post-processing, which costs no privacy.

The solvers take estimates of the blocks G_xx, G_xy and return θ with y ≈ xθ in encoded units. Logistic regression goes
through a quadratic in place of its loss: with y ∈ {-1, 1} and s = y·xθ,
:math:`-\log(1 + e^{-s}) \approx b_0 + b_1 s + b_2 s^2` on [-Q, Q], b₂ < 0. Summed over rows, the maximum over θ is the
least-squares solution with response :math:`-b_1/(2 b_2)\, y` (section 4.2 of arXiv:2505.24603v2; the loss there lacks a
minus sign for a minimisation).

>>> round(response_scale(6.0), 3)
3.533
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.linalg
from numpy.polynomial import Chebyshev, Polynomial
from scipy import optimize

from gaussmix import _validation as check
from gaussmix._types import Floats

__all__ = ["as_published", "cleaned_ridge", "least_squares", "logistic_quadratic", "response_scale"]


def as_published(W_xx: Floats, W_xy: Floats) -> Floats:
    """Least squares on the sketch, θ = W_xx⁻¹ W_xy (Algorithm 2 of arXiv:2505.24603v2): a ridge with penalty σ²."""
    try:
        return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(W_xx), W_xy))
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(W_xx)
    floor = values[-1] * len(values) * np.finfo(float).eps  # a sketch has full rank but for rounding
    return np.asarray(vectors @ ((vectors.T @ W_xy) / np.maximum(values, floor)[:, None]))


def least_squares(G_xx: Floats, G_xy: Floats) -> Floats:
    """The solution of least norm of G_xx θ = G_xy, for second moments without noise."""
    return np.asarray(scipy.linalg.pinvh(G_xx) @ G_xy)


def cleaned_ridge(M_xx: Floats, M_xy: Floats, *, entry_noise: float) -> Floats:
    r"""Ridge on a second moment whose noise has been taken out of its eigenvalues.

    For a sketch of many rows, :math:`M = R^\top R/k - \sigma^2 I` is G plus symmetric Gaussian noise with
    off-diagonal standard deviation s = σ²/√k. With M_xx = U diag(h) Uᵀ,

    .. math:: \xi_i = h_i - 2 s^2 \sum_j \frac{h_i - h_j}{(h_i - h_j)^2 + s^2}

    estimates :math:`u_i^\top G u_i`: noise pushes eigenvalues apart, and this is the rotation-invariant estimator for
    additive Gaussian noise (Bun, Allez, Bouchaud and Potters, arXiv:1502.06736) with a kernel of width s. They are made
    monotone and not negative, and

    .. math:: \theta = U\,\mathrm{diag}\bigl(1/(\xi_i + \lambda)\bigr)\,U^\top M_{xy},\quad
        \lambda = r \text{ if } \xi_{\min} \le r \text{, else } r^2/\xi_{\min},\quad r = s(\sqrt d + 1/2).

    A direction of strength ξ loses λ/ξ to the penalty and gains d s²/(ξλ) from what leaks into the eigenvectors of
    noise; the two balance at λ = s√d whatever ξ is. Where every direction stands out, the penalty that is left is that
    of the noise in M_xy. The 1/2 is an allowance for few columns, chosen by simulation (docs/accuracy.md).

    Parameters
    ----------
    M_xx, M_xy : arrays (d, d), (d, targets)
        Blocks of the second moment, noise floor subtracted.
    entry_noise : float
        s.
    """
    s, d = entry_noise, len(M_xx)
    h, U = scipy.linalg.eigh(M_xx)
    gap = h[:, None] - h[None, :]
    xi = h - 2 * s**2 * np.sum(gap / (gap**2 + s**2), axis=1)
    xi = np.maximum(optimize.isotonic_regression(xi).x, 0.0)
    r = s * (np.sqrt(d) + 0.5)
    penalty = r if xi[0] <= r else r**2 / xi[0]
    return np.asarray(U @ ((U.T @ M_xy) / (xi + penalty)[:, None]))


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
