r"""The score test of regression coefficients from a release: post-processing, which costs no privacy.

Symbols: M estimates G with noise of spread Q, shape N and size α (:mod:`gaussmix.models.noisy`); x are features, y
the response.

Estimands:

``"table"``
    θ = G_xx⁻¹ G_xy, the least-squares coefficients of this table: errors in variables with a known law. Under θ the
    score g = M_xy - M_xx θ has mean 0 and covariance V(θ) = N_xx aᵀNa + (Na)_x(Na)_xᵀ, a = (-θ, 1). One coefficient
    ψ = ℓᵀθ is tested by one combination of scores,

    .. math:: w^\top M_{xy} - m\psi = w^\top g + \sum_j c_j\theta_j ,\qquad |\theta_j| \le 1 \text{ in units of bounds,}

    which is normal with variance wᵀVw about a mean of at most b = Σ|c_j|. ψ is rejected at level α if the left side
    exceeds the quantile of |N(b, wᵀVw)|. V is that of the *hypothesis*: with ψ given, averaged over what is known of
    the other coefficients, a quadratic in ψ. That is Fieller's and Anderson and Rubin's idea: nothing is divided by a
    noisy slope m, and intervals hold where signal is weak. Weights and bounds: :mod:`gaussmix.models.weights`.
``"population"``
    The coefficients of a linear model that the n rows were drawn from: s²M_xx is added to V, s² the residual variance.

The accepted values are one interval, or do not end: c(b/v)·v is convex in v and increases, v(ψ) = √(wᵀVw) is convex, so
|wᵀM_xy - mψ| - c(b/v)·v is concave on either side of its root. It ends where p(ψ) falls below the level as ψ → ∞.
p-values are those of the hull, min(sup_{φ≤ψ} p(φ), sup_{φ≥ψ} p(φ)) = max(p(ψ), p(∞)): below the level exactly where the
interval leaves ψ out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy import optimize, special, stats

from gaussmix._types import Floats
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.problem import Problem
from gaussmix.models.weights import (
    Conditional,
    Pilot,
    Weights,
    critical_value,
    pilot,
    sampling_covariance,
    score_covariance,
    slopes_and_biases,
    weights_of,
)

__all__ = ["Score", "score_of"]

_IDENTIFIED = 0.05  # level at which the interval of a coefficient must end for standard errors to take its estimate


@dataclass(frozen=True, eq=False)
class Score:
    """Tests of all coefficients of a problem. Arrays have one entry a coefficient; values are in the user's units.

    Attributes
    ----------
    noisy : NoisyMoment
        Of features and response, coefficients in units of their bounds.
    functionals, offset : arrays (d, d), (d,)
        Coefficients in the user's units are ``functionals @ theta + offset``.
    pilot : Pilot
    weights : Weights
    n_rows : float or None
        Rows that a population was sampled by.
    """

    noisy: NoisyMoment
    functionals: Floats
    offset: Floats
    pilot: Pilot
    weights: Weights
    n_rows: float | None

    @cached_property
    def level(self) -> Floats:
        """Scores at ψ = 0: wᵀM_xy."""
        return np.asarray(self.weights.columns.T @ self.noisy.moment[:-1, -1])

    @cached_property
    def _slope_and_bias(self) -> tuple[Floats, Floats]:
        slope, bias = slopes_and_biases(self.weights.columns, self.noisy.moment[:-1, :-1], self.functionals)
        return slope, np.where(self.weights.exact, 0.0, bias)

    @property
    def slope(self) -> Floats:
        """How fast the scores fall with ψ: m."""
        return self._slope_and_bias[0]

    @property
    def bias(self) -> Floats:
        """The most that the other coefficients can do."""
        return self._slope_and_bias[1]

    @cached_property
    def estimate(self) -> Floats:
        """Roots of the scores."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.level / self.slope + self.offset)

    @cached_property
    def known(self) -> Conditional:
        """What is known of the other coefficients, given one."""
        return self.pilot.conditional(self.noisy, self.functionals)

    @cached_property
    def variance(self) -> tuple[Floats, Floats, Floats]:
        """Coefficients of wᵀVw in powers of ψ - ψ̂, ψ̂ the pilot's."""
        noisy, w, known = self.noisy, self.weights.columns, self.known
        d, a, r = len(self.functionals), np.append(-self.pilot.theta, 1.0), known.moves
        N = noisy.shape[:d, :d]
        Nw = N @ w
        stretch = np.sum(w * Nw, axis=0)
        along, turn = w.T @ (noisy.shape @ a)[:d], np.sum(Nw * r, axis=0)
        left = known.left(self.pilot.basis, Nw)
        constant = stretch * known.omega + along**2 + left
        linear = -2 * (stretch * (r.T @ (noisy.shape @ a)[:d]) + along * turn)
        square = stretch * np.sum(r * (N @ r), axis=0) + turn**2
        return constant + np.sum(w * (self.pilot.sampling @ w), axis=0), linear, square

    def p(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values of the test itself, of values of all coefficients or of those in ``index``."""
        psi = np.asarray(values, dtype=np.float64) - self.offset[index]
        constant, linear, square = (part[index] for part in self.variance)
        t = psi - (self.functionals @ self.pilot.theta)[index]
        deviation = np.sqrt(np.maximum(constant + t * (linear + t * square), 1e-300))
        distance = np.abs(self.level[index] - psi * self.slope[index]) / deviation
        bias = self.bias[index] / deviation
        return np.asarray(np.minimum(special.ndtr(bias - distance) + special.ndtr(-bias - distance), 1.0))

    @cached_property
    def p_at_infinity(self) -> Floats:
        """Limits of the p-values far out: at a level below it an interval does not end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 2 * special.ndtr(-np.abs(self.slope) / np.sqrt(self.variance[2]))
        return np.where(np.isnan(found), 1.0, found)

    def p_of_hull(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values that are below a level exactly where the interval of that level leaves the value out."""
        return np.maximum(self.p(values, index), self.p_at_infinity[index])

    def intervals(self, level: float | Floats) -> Floats:
        """Ends of the accepted values at 1 - level, or a level each, shape (d, 2); infinite where they do not end."""
        ends = np.column_stack([np.full(len(self.slope), -np.inf), np.full(len(self.slope), np.inf)])
        bounded = np.flatnonzero(self.p_at_infinity < level).tolist()
        if not bounded:
            return ends
        level = np.broadcast_to(level, len(self.slope))[bounded]
        constant, middle = self.variance[0][bounded], self.estimate[bounded]
        unit = (np.sqrt(constant) + self.bias[bounded]) / np.abs(self.slope[bounded])
        for column, side in enumerate((-1.0, 1.0)):
            low, high = np.zeros(len(bounded)), np.full(len(bounded), 4.0)
            while (inside := self.p(middle + side * high * unit, bounded) >= level).any() and high.max() < 1e60:
                low, high = np.where(inside, high, low), np.where(inside, 2 * high, high)
            for _ in range(60):
                half = (low + high) / 2
                inside = self.p(middle + side * half * unit, bounded) >= level
                low, high = np.where(inside, half, low), np.where(inside, high, half)
            ends[bounded, column] = middle + side * low * unit
        return ends

    def joint(self, index: Sequence[int], values: Floats) -> float:
        """p-value of values of several coefficients at once.

        At the true coefficients the scores, other coefficients taken out, have normal law: the least weighted square
        over others within their bounds is at most chi-square with as many degrees of freedom as there are values.
        """
        own, d = list(index), len(self.functionals)
        if len(own) == 1:
            return float(self.p_of_hull(values, own)[0])
        rest = [j for j in range(d) if j not in own]
        T, P, w = self.functionals[own], self.pilot.covariance, self.weights.columns[:, own]
        psi = values - self.offset[own]
        turn = scipy.linalg.solve(T @ P @ T.T, T @ P, assume_a="pos").T
        mean = self.pilot.theta + turn @ (psi - T @ self.pilot.theta)
        V = score_covariance(self.noisy, mean, P - turn @ T @ P)
        V = w.T @ (V + self.pilot.sampling) @ w
        e = w.T @ self.noisy.moment[:-1, :-1]
        by_own = scipy.linalg.solve(T[:, own].T, e[:, own].T).T
        score = self.level[own] - by_own @ psi
        lower = scipy.linalg.cholesky(V, lower=True)
        z = scipy.linalg.solve_triangular(lower, score, lower=True)
        if rest and not self.weights.exact[own].all():
            others = scipy.linalg.solve_triangular(lower, e[:, rest] - by_own @ T[:, rest], lower=True)
            z = z - others @ optimize.lsq_linear(others, z, bounds=(-1, 1)).x
        return float(stats.chi2.sf(float(z @ z), len(own)))

    def covariance(self) -> tuple[Floats, Floats]:
        """Covariances of the estimates in the user's units at the estimates: from the noise, and from sampling.

        A coefficient that is not identified counts with the mean of what is known of it: its estimate, far out, would
        give the errors of that value to all others. Not more than standard errors.
        """
        unknown = self.p_at_infinity >= _IDENTIFIED
        unknown = ((self.functionals != 0) & unknown).any(axis=1)  # the intercept, where it is made of such ones
        theta = scipy.linalg.solve(self.functionals, self.estimate - self.offset)
        theta = np.clip(np.where(unknown | ~np.isfinite(theta), self.pilot.theta, theta), -1.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            w = self.weights.columns / self.slope
        noise = w.T @ score_covariance(self.noisy, theta) @ w
        return noise, w.T @ sampling_covariance(self.noisy, theta, self.n_rows) @ w

    def reliance(self, level: float) -> Floats:
        """Share of the intervals' half-lengths that is there for the bounds of other coefficients."""
        w, V = self.weights.columns, score_covariance(self.noisy, self.pilot.theta) + self.pilot.sampling
        plain, deviation = np.sqrt(np.sum(w * (V @ w), axis=0)), np.sqrt(self.variance[0])
        half = critical_value(self.bias / deviation, level) * deviation
        return np.asarray(np.maximum(1 - critical_value(np.zeros(1), level) * plain / half, 0.0))


def score_of(problem: Problem, n_rows: float | None, largest: float) -> Score:
    """The tests of a problem, with no coefficient beyond ``problem.bounds(largest)``."""
    bounds = problem.bounds(largest)
    noisy = problem.noisy.mapped(np.diag([*bounds, 1.0]))
    functionals = problem.to_user * bounds
    found = pilot(noisy, n_rows)
    return Score(
        noisy, functionals, problem.offset, found, weights_of(found, noisy.moment[:-1, :-1], functionals), n_rows
    )
