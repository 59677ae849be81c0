r"""Weights of the scores that test one coefficient each, under a declared bound of all coefficients.

Coefficients are in units of their bounds, so that |θ_j| ≤ 1 for all j is the assumption. Of the score
g = M_xy - M_xx θ, with covariance V, a test of ψ = ℓᵀθ uses one combination wᵀg. Write V⁻¹ = HᵀH, HM_xx = U s Rᵀ (a
singular value decomposition) and

.. math:: w_\kappa = H^\top U\,\mathrm{diag}\Bigl(\frac{s}{s^2 + 1/\kappa}\Bigr) R^\top \ell ,

which minimises wᵀVw + κ|M_xx w - ℓ|²: noise against the worst that other coefficients can do. For κ = ∞ it is M⁻¹ℓ,
and the others do nothing. Directions without signal make that useless for *every* coefficient; a finite κ leaves them
out, and what the other coefficients can then do is bounded (:mod:`gaussmix.models.score`). Each coefficient takes the κ
that promises the shortest interval (Armstrong and Kolesár, Econometrica 86, 2018, for a known design), and ∞ where that
is hardly longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix._types import Floats
from gaussmix.models.noisy import NoisyMoment

__all__ = ["Pilot", "Weights", "critical_value", "pilot", "sampling_covariance", "weights_of"]

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
    deviation = np.sqrt(np.sum(columns * (V @ columns), axis=0))
    slope, bias = slopes_and_biases(columns, moment, functionals)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.zeros(len(slope)) if exact else bias / deviation
        lengths = critical_value(ratio, _LEVEL) * deviation / np.abs(slope)
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
