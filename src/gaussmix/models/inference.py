r"""The score test of regression coefficients from a release: post-processing, which costs no privacy.

Symbols: M estimates G with noise of spread Q, shape N and size α (:mod:`gaussmix.releases.noisy`); x are features, y
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
    noisy slope m, and intervals hold where signal is weak. Weights and bounds: :mod:`gaussmix.models.inference`.
``"population"``
    The coefficients of a linear model that the n rows were drawn from: s²M_xx is added to V, s² the residual variance.

The accepted values are one interval, or do not end: c(b/v)·v is convex in v and increases, v(ψ) = √(wᵀVw) is convex, so
|wᵀM_xy - mψ| - c(b/v)·v is concave on either side of its root. It ends where p(ψ) falls below the level as ψ → ∞.
p-values are those of the hull, min(sup_{φ≤ψ} p(φ), sup_{φ≥ψ} p(φ)) = max(p(ψ), p(∞)): below the level exactly where the
interval leaves ψ out.

Weights of the scores that test one coefficient each, under a declared bound of all coefficients.

Coefficients are in units of their bounds, so that |θ_j| ≤ 1 for all j is the assumption. Of the score
g = M_xy - M_xx θ, with covariance V, a test of ψ = ℓᵀθ uses one combination wᵀg. Write V⁻¹ = HᵀH, HM_xx = U s Rᵀ (a
singular value decomposition) and

.. math:: w_\kappa = H^\top U\,\mathrm{diag}\Bigl(\frac{s}{s^2 + 1/\kappa}\Bigr) R^\top \ell ,

which minimises wᵀVw + κ|M_xx w - ℓ|²: noise against the worst that other coefficients can do. For κ = ∞ it is M⁻¹ℓ,
and the others do nothing. Directions without signal make that useless for *every* coefficient; a finite κ leaves them
out, and what the other coefficients can then do is bounded. Each coefficient takes the κ
that promises the shortest interval (Armstrong and Kolesár, Econometrica 86, 2018, for a known design), and ∞ where that
is hardly longer.

Covariances of columns after others are taken out, with the law of their noise.

With g the columns that are taken out (the constant among them) and β_i = M_gg⁻¹M_gi, let u_i = e_i - Σ_g β_ig e_g. Then
C_ij = u_iᵀMu_j estimates Σ (residual of i)(residual of j), and moves with the noise E by u_iᵀEu_j, to first order. So C
has noise of the same form, with spread Ũ = UᵀQU. To second order the fitted β make it too small on average by
α[tr(M_gg⁻¹Q_gg)Ũ_ij + (Qu_i)_gᵀM_gg⁻¹(Qu_j)_g], which is added.

Correlations are C_ij/√(C_ii C_jj); with Ũ in units where C_ii = 1,

.. math:: \mathrm{Var}(r_{ij}) = \alpha\Bigl[\tilde U_{ii}\tilde U_{jj} + \tilde U_{ij}^2
    - 2 r\tilde U_{ij}(\tilde U_{ii} + \tilde U_{jj})
    + \tfrac{r^2}{2}(\tilde U_{ii}^2 + \tilde U_{jj}^2 + 2\tilde U_{ij}^2)\Bigr] .

Plain functions of a noisy moment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy import optimize, special, stats

from gaussmix._types import Floats
from gaussmix.models.design import Problem
from gaussmix.releases.noisy import NoisyMoment

__all__ = [
    "Pilot",
    "Residuals",
    "Score",
    "Weights",
    "critical_value",
    "pilot",
    "residuals",
    "sampling_covariance",
    "score_of",
    "weights_of",
]


_KAPPAS = (1.0, 4.0, 16.0, 64.0, 256.0, 4096.0, 65536.0)
_HARDLY_LONGER = 1.02
_LEVEL = 0.05  # of the interval whose length chooses κ: fixed, so that intervals of all levels share their weights
_PRIOR = 3.0  # precision of a uniform law within the bounds, [-1, 1]
_STRONG = 10.0  # signal, in standard deviations of a coefficient's bound, from which on coefficients follow others
_ROUNDS = 3  # of weighing with the covariance that the weights imply
_ROUNDING = 1e-13  # relative size of eigenvalues of float64 matrices that are rounding errors


@dataclass(frozen=True, eq=False)
class Conditional:
    """Laws of all coefficients given one functional ψ each: (d,) or, a column each, (d, ·).

    As ψ moves, the mean moves with it along directions of strong signal: within its bounds no coefficient without
    signal can follow ψ far out. With t = ψ - ψ̂, e = θ - θ̂ of covariance P, and moves r, ℓᵀr = 1, the rest e - r t has
    covariance (I - rℓᵀ)P(I - ℓrᵀ). With ψ given, its own uncertainty no longer widens the noise: V falls with the mean
    of aᵀQa, and the precision of the rest grows by as much; found by going round.

    Attributes
    ----------
    moves : array (d, ·)
        r.
    along, own : arrays (d, ·), (·,)
        Pℓ and ℓᵀPℓ.
    values : array (d, ·)
        Eigenvalues of P, in the basis of the pilot.
    omega : array (·,)
        Mean of aᵀQa at ψ = ψ̂.
    """

    moves: Floats
    along: Floats
    own: Floats
    values: Floats
    omega: Floats

    def left(self, basis: Floats, vectors: Floats) -> Floats:
        """Variances of vᵀ(e - r t), one vector (a column) for each ψ."""
        turn = np.sum(vectors * self.moves, axis=0)
        whole = np.sum((basis.T @ vectors) ** 2 * self.values, axis=0)
        found = whole - 2 * turn * np.sum(vectors * self.along, axis=0) + turn**2 * self.own
        return np.asarray(np.maximum(found, 0.0))


@dataclass(frozen=True, eq=False)
class Pilot:
    """What is known about all coefficients at once: a normal law, whose prior has the variance 1/3 of the bounds.

    Attributes
    ----------
    theta, covariance : arrays (d,), (d, d)
        Mean and covariance: (J + 3I)⁻¹j and (J + 3I)⁻¹ with J, j estimates of GV⁻¹G and GV⁻¹G_xy, J made positive. A
        direction without signal keeps the prior's variance.
    V : array (d, d)
        Covariance of the score, averaged over that law, and ``sampling``.
    sampling : array (d, d)
        Its part from sampling rows; 0 for the table's own coefficients.
    basis, signal : arrays (d, d), (d,)
        Eigenvectors of J and roots of its eigenvalues: what is known of a direction, in units of its bound.
    """

    theta: Floats
    covariance: Floats
    V: Floats
    sampling: Floats
    basis: Floats
    signal: Floats
    _H: Floats
    _U: Floats
    _s: Floats
    _Rt: Floats

    def conditional(self, noisy: NoisyMoment, functionals: Floats) -> Conditional:
        """The law given one functional (a row each) at a time."""
        d, R, a = len(self.theta), self.basis, np.append(-self.theta, 1.0)
        Q = R.T @ noisy.shape[:d, :d] @ R
        at_mean, X = float(a @ noisy.shape @ a), R.T @ functionals.T
        whole = at_mean + float(np.sum(noisy.shape[:d, :d] * self.covariance))
        omega = np.full(X.shape[1], whole)
        constant = float(np.sum((self._H @ self.sampling) * self._H)) / d  # share of V that is not noise
        strong = self.signal**2 / (self.signal**2 + _STRONG**2) + 1e-4
        for _ in range(_ROUNDS):
            fall = constant + (1 - constant) * np.minimum(omega / whole, 1.0) if noisy.has_noise else 1.0
            values = 1 / (self.signal[:, np.newaxis] ** 2 / fall + _PRIOR)
            moves = values * strong[:, np.newaxis] * X
            moves = moves / np.sum(X * moves, axis=0)
            along, own = values * X, np.sum(X * values * X, axis=0)  # covariance with ψ, variance of ψ
            Qm = Q @ moves
            omega = (
                at_mean + np.diagonal(Q) @ values - 2 * np.sum(Qm * along, axis=0) + own * np.sum(Qm * moves, axis=0)
            )
        return Conditional(R @ moves, R @ along, own, values, omega)

    def weights(self, kappa: float, functionals: Floats) -> Floats:
        """w_κ of every functional (rows), as columns."""
        s = np.maximum(self._s, _ROUNDING * self._s[0])
        filtered = 1 / s if math.isinf(kappa) else s / (s**2 + 1 / kappa)
        return np.asarray(self._H.T @ (self._U * filtered) @ (self._Rt @ functionals.T))


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of d tests, as columns, and which of them leave no other coefficient in."""

    columns: Floats
    exact: Floats


def sampling_covariance(noisy: NoisyMoment, theta: Floats, n_rows: float | None) -> Floats:
    """s²M_xx: what drawing n rows adds to the covariance of the score; s² the residual variance, noise taken out.

    Directions of M_xx that noise turned negative count nothing.
    """
    d = len(theta)
    if n_rows is None:
        return np.zeros((d, d))
    a = np.append(-theta, 1.0)
    least = 0.0 if noisy.has_noise else 1e-12 * float(noisy.moment[d, d])
    variance = max(float(a @ noisy.moment @ a), least, 0.0) / max(n_rows - d, 1)
    M = noisy.moment[:d, :d]
    scale = np.sqrt(np.maximum(np.diagonal(noisy.shape if noisy.has_noise else noisy.moment)[:d], 1e-300))
    values, vectors = scipy.linalg.eigh(M / np.outer(scale, scale))
    floor = 0.0 if noisy.has_noise else 1e-6 * max(float(values[-1]), 1e-300)
    half = (scale[:, np.newaxis] * vectors) * np.sqrt(np.maximum(values, floor))
    return np.asarray(variance * half @ half.T)


def score_covariance(noisy: NoisyMoment, theta: Floats, covariance: Floats | None = None) -> Floats:
    """N_xx aᵀNa + (Na)_x(Na)_xᵀ, averaged over a distribution of θ with a mean and a covariance; None is 0."""
    d, a = len(theta), np.append(-theta, 1.0)
    N = noisy.shape[:d, :d]
    omega, c = float(a @ noisy.shape @ a), (noisy.shape @ a)[:d]
    V = np.outer(c, c)
    if covariance is not None:
        omega += float(np.sum(N * covariance))
        V += N @ covariance @ N
    return np.asarray(omega * N + V)


def pilot(noisy: NoisyMoment, n_rows: float | None) -> Pilot:
    """The law of all coefficients, in units of their bounds, with the covariance that it implies."""
    d = len(noisy.moment) - 1
    theta, covariance = np.zeros(d), np.zeros((d, d))
    for _ in range(_ROUNDS):  # from below: wide bounds must not drown what the release shows
        sampling = sampling_covariance(noisy, theta, n_rows)
        V = score_covariance(noisy, theta, covariance) + sampling
        H = _whitening(V)
        information, cross = _information(noisy, H)
        values, basis = scipy.linalg.eigh(information)
        signal = np.sqrt(np.maximum(values, 0.0))
        covariance = np.asarray((basis / (signal**2 + _PRIOR)) @ basis.T)
        theta = covariance @ cross
    return Pilot(theta, covariance, V, sampling, basis, signal, H, *scipy.linalg.svd(H @ noisy.moment[:d, :d]))


def _information(noisy: NoisyMoment, H: Floats) -> tuple[Floats, Floats]:
    """MV⁻¹M_xx and MV⁻¹M_xy, V⁻¹ = HᵀH, less what noise in M adds to them: NV⁻¹N + tr(V⁻¹N_xx)N."""
    d = len(H)
    HM, HQ = H @ noisy.moment[:d], H @ noisy.shape[:d]
    trace = float(np.sum((HQ[:, :d]) * H))
    found = HM[:, :d].T @ HM - (HQ[:, :d].T @ HQ + trace * noisy.shape[:d])
    return found[:, :d], found[:, d]


def weights_of(found: Pilot, moment: Floats, functionals: Floats) -> Weights:
    """Weights of the tests of ψ_i = ℓ_iᵀθ, each with the κ that promises the shortest interval."""
    columns = found.weights(math.inf, functionals)
    shortest = _half_lengths(columns, found.V, moment, functionals, exact=True) / _HARDLY_LONGER
    exact = np.ones(len(functionals), dtype=bool)
    for kappa in _KAPPAS:
        others = found.weights(kappa, functionals)
        lengths = _half_lengths(others, found.V, moment, functionals)
        better = lengths < shortest
        columns[:, better], shortest[better] = others[:, better], lengths[better]
        exact &= ~better
    return Weights(columns, exact)


def _half_lengths(columns: Floats, V: Floats, moment: Floats, functionals: Floats, *, exact: bool = False) -> Floats:
    std_error = np.sqrt(np.sum(columns * (V @ columns), axis=0))
    slope, bias = slopes_and_biases(columns, moment, functionals)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.zeros(len(slope)) if exact else bias / std_error
        lengths = critical_value(ratio, _LEVEL) * std_error / np.abs(slope)
    return np.where(np.isfinite(lengths), lengths, np.inf)


def slopes_and_biases(columns: Floats, moment: Floats, functionals: Floats) -> tuple[Floats, Floats]:
    r"""How wᵀM_xx θ depends on ψ = ℓᵀθ, and the most that it can move by the other coefficients.

    With the coefficient i of the same number as the functional written as (ψ - Σ_{j≠i} ℓ_jθ_j)/ℓ_i,

    .. math:: w^\top M_{xx}\theta = m\psi + \sum_{j \ne i} (e_j - m\ell_j)\theta_j, \quad
        e = M_{xx}w,\ m = e_i/\ell_i ,

    and |θ_j| ≤ 1.
    """
    e = columns.T @ moment
    slope = np.diagonal(e) / np.diagonal(functionals)
    rest = np.abs(e - slope[:, np.newaxis] * functionals)
    np.fill_diagonal(rest, 0.0)
    return np.asarray(slope), np.asarray(rest.sum(axis=1))


def critical_value(bias: Floats, level: float) -> Floats:
    """The c with P(|Z + bias| > c) = level ≤ 1/2 for a standard normal Z."""
    bias = np.asarray(bias, dtype=np.float64)
    c = np.maximum(-special.ndtri(level / 2), bias - special.ndtri(level))  # below the root: Newton's steps stay there
    for _ in range(8):
        near, far = c - bias, c + bias
        density = (np.exp(-(near**2) / 2) + np.exp(-(far**2) / 2)) / math.sqrt(2 * math.pi)
        c = c + (special.ndtr(-near) + special.ndtr(-far) - level) / density
    return np.asarray(c)


def _whitening(V: Floats) -> Floats:
    """H with HVHᵀ = I; directions of V that rounding lost are raised to the smallest that it could not lose."""
    scale = np.sqrt(np.maximum(np.diagonal(V), 1e-300))
    values, vectors = scipy.linalg.eigh(V / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(np.maximum(values, _ROUNDING * values[-1]))).T / scale)


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
        std_error = np.sqrt(np.maximum(constant + t * (linear + t * square), 1e-300))
        distance = np.abs(self.level[index] - psi * self.slope[index]) / std_error
        bias = self.bias[index] / std_error
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
        plain, std_error = np.sqrt(np.sum(w * (V @ w), axis=0)), np.sqrt(self.variance[0])
        half = critical_value(self.bias / std_error, level) * std_error
        return np.asarray(np.maximum(1 - critical_value(np.zeros(1), level) * plain / half, 0.0))


def score_of(problem: Problem, n_rows: float | None, max_effect: float) -> Score:
    """The tests of a problem, with no coefficient beyond ``problem.bounds(max_effect)``."""
    bounds = problem.bounds(max_effect)
    noisy = problem.noisy.mapped(np.diag([*bounds, 1.0]))
    functionals = problem.to_user * bounds
    found = pilot(noisy, n_rows)
    return Score(
        noisy, functionals, problem.offset, found, weights_of(found, noisy.moment[:-1, :-1], functionals), n_rows
    )


SEEN = 2.0
"""Standard deviations from 0 that a variance must have for a correlation to be told."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """Sums of squares and products about others.

    Attributes
    ----------
    moment : array (p, p)
        C.
    shape : array (p, p)
        Ũ: entries of C have covariance Ũ_ik Ũ_jl + Ũ_il Ũ_jk, about.
    vectors : array (p, m)
        u, one a row.
    """

    moment: Floats
    shape: Floats
    vectors: Floats

    def correlations(self) -> tuple[Floats, Floats]:
        """Correlations, within [-1, 1], and their standard deviations; NaN where a variance drowns in noise."""
        C, U = self.moment, self.shape
        variance = np.diagonal(C)
        seen = variance > SEEN * np.sqrt(2) * np.diagonal(U)
        unit = np.where(seen, 1 / np.sqrt(np.where(seen, variance, 1.0)), np.nan)
        r, S = C * np.outer(unit, unit), U * np.outer(unit, unit)
        own = np.diagonal(S)
        rows, columns = own[:, np.newaxis], own[np.newaxis]
        found = rows * columns + S**2 - 2 * r * S * (rows + columns) + r**2 / 2 * (rows**2 + columns**2 + 2 * S**2)
        std_error = np.sqrt(np.maximum(found, 0.0))
        r = np.clip(r, -1.0, 1.0)
        known = np.flatnonzero(seen)
        r[known, known], std_error[known, known] = 1.0, 0.0
        return r, std_error


def residuals(noisy: NoisyMoment, rows: Floats, given: Floats) -> Residuals:
    """C of combinations ``rows`` (p, m) of the columns of ``noisy``, combinations ``given`` (q, m) taken out."""
    own = noisy.mapped(np.vstack([rows, given]))
    p = len(rows)
    M_gg = own.moment[p:, p:]
    beta = scipy.linalg.lstsq(M_gg, own.moment[p:, :p])[0]
    U = np.vstack([np.eye(p), -beta])
    shape = U.T @ own.shape @ U
    moment = U.T @ own.moment @ U
    if noisy.has_noise:
        seen = (own.shape @ U)[p:]
        trace = float(np.trace(scipy.linalg.lstsq(M_gg, own.shape[p:, p:])[0]))
        moment = moment + (trace * shape + seen.T @ scipy.linalg.lstsq(M_gg, seen)[0])
    vectors = rows - beta.T @ given
    return Residuals((moment + moment.T) / 2, (shape + shape.T) / 2, vectors)
