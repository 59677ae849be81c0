r"""Least squares from noisy sums: an emulation of the method that dp-statsmodels publishes, with its intervals.

**An emulation, not the package** (MaxGhenis/dp-statsmodels, later called dp-econometrics; its regression read at commit
5f223c0, its noise at 23fd90d, its sensitivities at e014eed: stored copies, which need not be the newest).
For columns X with a constant, all within one pair of bounds, and a response within its own, it releases

    A = XᵀX + (N + Nᵀ)/2,  b = Xᵀy + e,  c = yᵀy + f,

N, e and f independent normal of standard deviations σ_xx, σ_xy, σ_yy: the sensitivity of each sum times
√(2 log(1.25/δ_i))/ε_i, where ε is split 0.4, 0.4, 0.2 and δ into thirds. Sensitivities are kB² for XᵀX in Frobenius
norm (k columns with the constant, B the largest magnitude), √k·B·B_y and B_y². If A has an eigenvalue ≤ 0, the least
one's magnitude and 10⁻⁶ are added to its diagonal. Then θ = A⁻¹b, s² = max((c - θᵀb)/(n - k), 10⁻¹⁰) with n the true
number of rows, and

    Var θ_i = s² (A⁻¹)_ii + σ_xy² (A⁻²)_ii + σ_xx² ‖θ‖² (A⁻²)_ii,  at least 10⁻¹⁰,

with Student's t of n - k degrees of freedom. Intervals so have sampling error and noise to first order, as if
coefficients were divided by a known matrix; N is taken as if all of its entries were independent.

``published=True`` is that. Otherwise, for the sake of a fair comparison, the noise has the exact account that all other
methods here have: the same proportions, μ_i = (2/3, 2/3, 1/3) μ, whose squares sum to μ², and the bound of a row's
squared norm in place of kB², so that the levels of one category count once. Rows are encoded: entries at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.stats

from experiments import Floats
from gaussmix.accounting import gaussian_mu

SHARES = np.array([0.4, 0.4, 0.2])  # of ε, for XᵀX, Xᵀy and yᵀy
LEAST = 1e-10  # of a variance
ADDED = 1e-6  # to the diagonal, with the magnitude of an eigenvalue that is not positive


@dataclass(frozen=True)
class Noise:
    """Standard deviations of an entry of XᵀX's noise before it is made symmetric, of Xᵀy's, and of yᵀy's."""

    xx: float
    xy: float
    yy: float

    @classmethod
    def of(cls, epsilon: float, delta: float, *, squared_norm: float, columns: int, published: bool) -> Noise:
        """Responses are at most 1; rows have at most this squared norm, or entries of at most 1 in so many columns."""
        if published:
            square = float(columns)
            scales = math.sqrt(2 * math.log(1.25 * 3 / delta)) / (SHARES * epsilon)
        else:
            square = squared_norm
            scales = np.linalg.norm(SHARES) / (SHARES * gaussian_mu(epsilon, delta))
        return cls(*(scales * [square, math.sqrt(square), 1.0]).tolist())


@dataclass(frozen=True)
class Fit:
    """Coefficients of encoded columns and their standard errors."""

    coef: Floats
    errors: Floats
    freedom: int
    raised: bool  # whether the diagonal of A had to be raised

    def intervals(self, level: float = 0.95) -> Floats:
        """Lower and upper ends, shape (columns, 2)."""
        half = scipy.stats.t.ppf((1 + level) / 2, self.freedom) * self.errors
        return np.column_stack([self.coef - half, self.coef + half])


def noisy_sums(gram: Floats, noise: Noise, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
    """A, b and c of exact sums over (x, y), the response last."""
    k = len(gram) - 1
    N = noise.xx * rng.standard_normal((k, k))
    b = gram[:k, k] + noise.xy * rng.standard_normal(k)
    return gram[:k, :k] + (N + N.T) / 2, b, float(gram[k, k] + noise.yy * rng.standard_normal())


def fit(gram: Floats, n: int, noise: Noise, rng: np.random.Generator) -> Fit:
    """Coefficients and standard errors from noisy sums."""
    A, b, c = noisy_sums(gram, noise, rng)
    least = float(scipy.linalg.eigvalsh(A, subset_by_index=[0, 0])[0])
    if least <= 0:
        A = A + (ADDED - least) * np.eye(len(A))
    inverse = scipy.linalg.solve(A, np.eye(len(A)), assume_a="sym")
    coef = inverse @ b
    s2 = max((c - coef @ b) / (n - len(b)), LEAST)
    squares = np.sum(inverse**2, axis=1)
    variances = s2 * np.diagonal(inverse) + (noise.xy**2 + noise.xx**2 * (coef @ coef)) * squares
    return Fit(coef, np.sqrt(np.maximum(variances, LEAST)), n - len(b), least <= 0)
