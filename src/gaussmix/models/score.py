r"""The score test of regression coefficients from a sketch: post-processing, which costs no privacy.

Symbols: W = RᵀR/k estimates G + σ²I; W_xx, w_xy, w_yy are its blocks for features x and response y (a column, or a
combination c of columns, whose noise has variance σ²|c|²), M = W_xx - σ²I, ω(θ) = w_yy - 2θᵀw_xy + θᵀW_xxθ.

Three estimands:

``"ridge"``
    θ = (G_xx + σ²I)⁻¹ G_xy of this table. Rows of the sketch are independent normal, so that ordinary least squares on
    them has exact Student-t intervals with k - d degrees of freedom.
``"table"``
    θ = G_xx⁻¹ G_xy, the least-squares coefficients of this table: errors in variables with known variance. Under θ the
    score g = w_xy - Mθ has mean 0 and covariance V/k, V = W_xx ω + σ⁴θθᵀ (a Wishart's), and

    .. math:: T(\theta) = k\, g^\top V^{-1} g

    is nearly chi-square with d degrees of freedom: M is never inverted, and intervals hold where directions are weak.
    One coefficient: the least T over the others against one degree of freedom (Anderson and Rubin's idea). The set may
    be unbounded; then the coefficient is not identified at this budget.
``"population"``
    The coefficients of a linear model that the n rows were drawn from: s² M/n is added to the covariance of g, with s²
    the residual variance. n must be declared public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy import optimize

from gaussmix._types import Floats
from gaussmix.models.problem import Problem

__all__ = ["Score", "invert", "score_of", "wald_covariance"]

_FAR = 1e4  # standard errors from the estimate at which a set that still goes on is taken to be unbounded


@dataclass(frozen=True)
class Score:
    """T(θ) and its gradient in coordinates φ with θ = start + scale φ, where T is about |φ|² near its root."""

    problem: Problem
    n_rows: int | None
    start: Floats
    scale: Floats

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """T(θ) and its gradient in θ."""
        p, sigma2 = self.problem, self.problem.noise_variance
        g = p.w_xy - p.debiased @ theta
        residual_of_sketch = p.w_xy - p.W_xx @ theta
        omega = max(p.omega(theta), 1e-300)
        V = W_term = np.zeros_like(p.W_xx)
        if p.sketch_size:
            V = (p.W_xx * omega + sigma2**2 * np.outer(theta, theta)) / p.sketch_size
            W_term = p.W_xx / p.sketch_size
        if self.n_rows is not None:
            s2 = max(p.residual(theta), 1e-12 * omega) / max(self.n_rows - len(theta), 1)
            V = V + s2 * p.positive
            W_term = W_term + p.positive / max(self.n_rows - len(theta), 1)
        u = scipy.linalg.solve(V, g, assume_a="pos")
        gradient = -2 * p.debiased @ u + 2 * float(u @ W_term @ u) * residual_of_sketch
        if self.n_rows is not None:
            gradient = gradient + 2 * sigma2 * float(u @ p.positive @ u) / max(self.n_rows - len(theta), 1) * theta
        if p.sketch_size:
            gradient = gradient - 2 * sigma2**2 / p.sketch_size * float(u @ theta) * u
        return float(g @ u), gradient

    def profile(self, fixed: dict[int, float], warm: Floats | None = None) -> tuple[float, Floats]:
        """Least T with some combinations of coefficients held: θ_user[i] = b for each i: b."""
        p = self.problem
        rows = p.to_user[list(fixed)]
        target = np.array([b - p.offset[i] for i, b in fixed.items()])
        # θ = particular + free directions that leave the fixed ones alone, in coordinates scaled by the covariance.
        A = rows @ self.scale
        particular = self.start if warm is None else warm
        shift, *_ = np.linalg.lstsq(A, target - rows @ particular, rcond=None)
        particular = particular + self.scale @ shift
        free = scipy.linalg.null_space(A)
        if free.shape[1] == 0:
            return self.value(particular)[0], particular
        directions = self.scale @ free

        def objective(phi: Floats) -> tuple[float, Floats]:
            value, gradient = self.value(particular + directions @ phi)
            return value, directions.T @ gradient

        found = optimize.minimize(
            objective, np.zeros(free.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-4, "maxiter": 200}
        )
        return float(min(found.fun, objective(np.zeros(free.shape[1]))[0])), particular + directions @ found.x


def wald_covariance(problem: Problem, theta: Floats, n_rows: int | None) -> tuple[Floats, Floats]:
    """Covariances of the errors-in-variables estimate: from the noise, and from sampling."""
    d, k, sigma2 = len(theta), problem.sketch_size, problem.noise_variance
    inverse = scipy.linalg.pinvh(problem.debiased)
    noise = np.zeros((d, d))
    if k:
        V = problem.W_xx * problem.omega(theta) + sigma2**2 * np.outer(theta, theta)
        noise = inverse @ V @ inverse / max(k - d, 1)
    sampling = np.zeros((d, d))
    if n_rows is not None:
        s2 = max(problem.residual(theta), 0.0) / max(n_rows - d, 1)
        sampling = s2 * scipy.linalg.pinvh(problem.positive)
    return noise, sampling


def score_of(problem: Problem, theta: Floats, covariance: Floats, n_rows: int | None) -> Score:
    """The score test around an estimate, scaled by its covariance."""
    values, vectors = scipy.linalg.eigh(covariance)
    floor = 1e-12 * max(float(np.abs(values).max()), 1e-300)  # no zero direction: the search must be able to move
    return Score(problem, n_rows, theta, np.asarray(vectors * np.sqrt(np.maximum(np.abs(values), floor))))


def invert(score: Score, index: int, estimate: float, bse: float, critical: float) -> tuple[float, float]:
    """Ends of {b : least T with the coefficient at b ≤ critical}; infinite where the set does not end."""
    if not (math.isfinite(bse) and math.isfinite(estimate)):
        return -math.inf, math.inf
    if bse == 0:
        return estimate, estimate
    ends = []
    for side in (-1.0, 1.0):

        def excess(step: float, side: float = side) -> float:
            return score.profile({index: estimate + side * step * bse})[0] - critical

        step = math.sqrt(critical)
        low, high = 0.0, step
        while excess(high) <= 0:
            low, high = high, 2 * high
            if high > _FAR:
                return -math.inf, math.inf
        # A set may go on beyond a gap: then it is unbounded all the same.
        if excess(_FAR) <= 0:
            return -math.inf, math.inf
        ends.append(estimate + side * bse * optimize.brentq(excess, low, high, xtol=1e-4, rtol=1e-6))
    return ends[0], ends[1]
