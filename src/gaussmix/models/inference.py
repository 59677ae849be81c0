r"""Inference on regression coefficients from a release: post-processing, which costs no privacy.

M = G + E estimates the Gram matrix of features x and response y, with noise of shape N
(:mod:`gaussmix.releases.noisy`).

**Columns.** Least squares divides by M_xx, so a direction of the features whose signal is not above the noise makes all
coefficients useless. Of the directions u with

.. math:: M_{KK}\,u = h\,N_{KK}\,u ,

h/√2 is the signal in standard errors of its noise. While the smallest is below `SIGNAL`, the column with the largest
|u_j|√N_jj in its direction is left out, never the intercept (`identified_columns`). A level that is left out is counted
with the reference level. The coefficients are those of least squares on the columns kept, K. This estimand needs no
assumption about the other columns, because its score below has no noise from them.

**Distribution.** With a = (-θ, 1), θ = G_KK⁻¹ G_Ky, the score (Ma)_K = (Ea)_K has mean 0 and covariance V, so that
θ̂ = M_KK⁻¹ M_Ky is about normal with covariance C,

.. math:: V = N_{KK}\,(a^\top N a) + (Na)_K (Na)_K^\top ,\qquad C = (1 + B^2)\, M_{KK}^{-1} V M_{KK}^{-1} ,

evaluated at θ̂. Clipped rows have weights below 1 in M (``NoisyMoment.weighted``), and θ is that of weighted least
squares. B allows for the distance of the unweighted coefficients, in standard errors of the noise
(``NoisyMoment.clipping_bias``). √C_jj is then a root mean squared error: at a level of 95 % or above, ±z√C_jj covers
them at least as often as stated if they are no farther than B.

Estimands: ``"table"``, the coefficients θ of this table with these weights, whose only error is the noise; and
``"population"``, those of a linear model from which the n rows were drawn independently, with equal residual variances.
The latter adds s²M_KK to V, s² the residual sum of squares over n - |K|.

The one distribution N(θ̂, C) is behind standard errors, intervals, p-values, joint tests and predicted means
(`Coefficients`). Selection of columns by the same noise is not in it: measured coverage is in docs/inference.md.

**Residuals.** Fitted to M, least squares leaves aᵀMa, which is too small by tr(M_KK C) on average: the part of the
noise that is fitted. It is added for R² and s², and once more for the error of predictions with θ̂.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.releases.noisy import NoisyMoment

__all__ = [
    "RELATED",
    "SIGNAL",
    "Coefficients",
    "LeastSquares",
    "Residuals",
    "critical_value",
    "identified_columns",
    "least_squares",
    "on_columns",
    "p_values",
    "related_columns",
    "residuals",
    "score_covariance",
    "wald_statistic",
]

SIGNAL = 3.0
"""Standard errors by which every direction of the columns kept must stand above the noise."""

RELATED = 0.3
"""Assumed effect of a left-out column across its range, in ranges of the response, when coefficients are marked."""

_STRAIGHT = 1e-6  # curvatures below are rounding errors
_ROUNDING = 1e-10  # relative size of eigenvalues that are rounding errors: stands for the noise where there is none

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Least squares on the identified columns, in encoded units.

    Attributes
    ----------
    kept, left_out : tuple of int
        Columns, in order; left out, the first to go first.
    theta : array (d,)
        0 for columns left out.
    inverse : array (d, d)
        M_KK⁻¹, 0 for columns left out: θ moves with the noise E by ``inverse @ (E a)_x``.
    noise, sampling : array (d, d)
        Covariances of θ from the privacy noise and from sampling; 0 for columns left out.
    residual : float
        Estimated residual sum of squares of θ in the table; noise may make it negative.
    risk : float
        The same of θ̂: the sum of squared errors of predictions in the table.
    signal : float
        Signal-to-noise ratio of the weakest direction kept; infinite without noise.
    n_rows : float or None
        Sample size for the population; None for the table's own coefficients.
    """

    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    theta: Floats
    inverse: Floats
    noise: Floats
    sampling: Floats
    residual: float
    risk: float
    signal: float
    n_rows: float | None

    @property
    def a(self) -> Floats:
        """The residual of the response as a combination of features and response."""
        return np.append(-self.theta, 1.0)


def score_covariance(noisy: NoisyMoment, theta: Floats) -> Floats:
    """Return V = N_xx aᵀNa + (Na)_x(Na)_xᵀ, the covariance of the score due to the noise."""
    d, a = len(theta), np.append(-theta, 1.0)
    Na = noisy.shape @ a
    return np.asarray(noisy.shape[:d, :d] * float(a @ Na) + np.outer(Na[:d], Na[:d]))


def least_squares(
    noisy: NoisyMoment, *, intercept: bool, n_rows: float | None = None, needs: Flags | None = None
) -> LeastSquares:
    """Regress the last column of ``noisy`` on the identified columns among the others.

    ``intercept`` and ``needs`` are those of :func:`identified_columns`; ``n_rows`` is the sample size, for the
    population.
    """
    kept, left_out, signal = identified_columns(noisy, intercept=intercept, needs=needs)
    return on_columns(noisy, kept, left_out, signal, n_rows)


def on_columns(
    noisy: NoisyMoment, kept: list[int], left_out: list[int], signal: float = math.inf, n_rows: float | None = None
) -> LeastSquares:
    """Return least squares on given columns."""
    d = len(noisy.moment) - 1
    M, at = noisy.moment, np.ix_(kept, kept)
    inverse, theta = np.zeros((d, d)), np.zeros(d)
    if kept:
        inverse[at] = scipy.linalg.inv(M[at])
    inverse = (inverse + inverse.T) / 2
    theta = inverse @ M[:d, d]
    a = np.append(-theta, 1.0)
    noise = inverse @ score_covariance(noisy, theta) @ inverse
    fitted, plain = float(np.sum(M[:d, :d] * noise)), float(a @ M @ a)
    sampling = np.zeros((d, d))
    if n_rows is not None:
        sampling = max(plain + fitted, 0.0) / max(n_rows - len(kept), 1.0) * inverse
    noise = (1 + noisy.clipping_bias**2) * noise
    return LeastSquares(
        tuple(kept), tuple(left_out), theta, inverse, noise, sampling,
        residual=plain + fitted, risk=plain + 2 * fitted, signal=signal, n_rows=n_rows,
    )  # fmt: skip


def identified_columns(
    noisy: NoisyMoment, *, intercept: bool, needs: Flags | None = None
) -> tuple[list[int], list[int], float]:
    """Return the columns kept, those left out, and the signal-to-noise ratio of the weakest direction kept.

    ``intercept`` says whether the first column is the intercept, which is left out only if it alone is not identified.
    ``needs[i, j]`` says that column i, a power or product, has column j as a part: they are left out together. The last
    column of ``noisy`` is the response.
    """
    d = len(noisy.moment) - 1
    M, N = noisy.moment[:d, :d], noisy.shape[:d, :d]
    if not noisy.has_noise:
        N = np.diag(_ROUNDING * np.maximum(np.diagonal(M), 1e-300))
    scale = 1 / np.sqrt(np.diagonal(N))
    M, N = M * np.outer(scale, scale), N * np.outer(scale, scale) + 1e-13 * np.eye(d)
    kept, left_out, signal = list(range(d)), [], math.inf
    while kept:
        at = np.ix_(kept, kept)
        (h,), u = scipy.linalg.eigh(M[at], N[at], subset_by_index=(0, 0))
        signal = float(h) / math.sqrt(2)
        if signal >= SIGNAL:
            break
        part = np.abs(u[:, 0])
        if intercept and len(kept) > 1:
            part[0] = 0.0
        worst = kept[int(np.argmax(part))]
        gone = [worst] + ([i for i in kept if needs[i, worst] and i != worst] if needs is not None else [])
        left_out += gone
        kept = [i for i in kept if i not in gone]
    return kept, left_out, signal if noisy.has_noise else math.inf


def related_columns(noisy: NoisyMoment, fit: LeastSquares, column: int, reach: float) -> list[int]:
    """Return the kept columns whose coefficients also absorb the effect of a column that was left out.

    With δ the regression of the left-out column on those kept, a coefficient moves by δ_j times that of the column. It
    is marked if an effect of `RELATED` ranges of the response, ``RELATED * reach``, moves it by more than half of its
    standard error, and δ_j is more than two standard errors from 0.
    """
    d = len(fit.theta)
    own = noisy.mapped(np.eye(d + 1)[[*range(d), column]])
    delta = fit.inverse @ own.moment[:d, d]
    std_error = np.sqrt(np.maximum(np.diagonal(fit.inverse @ score_covariance(own, delta) @ fit.inverse), 0.0))
    coefficient_error = np.sqrt(np.maximum(np.diagonal(fit.noise + fit.sampling), 0.0))
    moved = (RELATED * reach * np.abs(delta) > coefficient_error / 2) & (np.abs(delta) > 2 * std_error)
    return [j for j in fit.kept if moved[j] and noisy.has_noise]


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A normal distribution of coefficients in original units; NaN where a coefficient is not identified.

    Attributes
    ----------
    estimate : array (d,)
    noise, sampling : array (d, d)
        Covariances from the privacy noise and from sampling.
    assumed : array (d, d) or None
        Covariance that stands for an assumed distribution of the predictors (:mod:`gaussmix.models.likelihood`); None
        where nothing is assumed.
    curvature : array (d,) or None
        κ of nonlinear models: (exp(κβ_j) - exp(κβ̂_j))/(κ exp(κβ̂_j)) is normal in place of β_j - β̂_j; None for linear
        ones, where κ = 0.
    """

    estimate: Floats
    noise: Floats
    sampling: Floats
    assumed: Floats | None = None
    curvature: Floats | None = None

    @classmethod
    def of(cls, fit: LeastSquares, to_user: Floats, offset: Floats) -> Coefficients:
        """Map least squares to the coefficients ``to_user @ theta + offset``."""
        own = cls(to_user @ fit.theta + offset, to_user @ fit.noise @ to_user.T, to_user @ fit.sampling @ to_user.T)
        return own.without(np.isin(np.arange(len(fit.theta)), fit.left_out))

    def without(self, unknown: Flags) -> Coefficients:
        """Return the same distribution with some coefficients not identified."""
        either = unknown[:, np.newaxis] | unknown
        return Coefficients(
            np.where(unknown, np.nan, self.estimate),
            np.where(either, np.nan, self.noise),
            np.where(either, np.nan, self.sampling),
            None if self.assumed is None else np.where(either, np.nan, self.assumed),
            self.curvature,
        )

    def scaled(self, units: Floats) -> Coefficients:
        """Return the distribution of the coefficients times positive numbers, shape (d,)."""
        both = np.outer(units, units)
        return Coefficients(
            units * self.estimate,
            both * self.noise,
            both * self.sampling,
            None if self.assumed is None else both * self.assumed,
            None if self.curvature is None else self.curvature / units,
        )

    @property
    def known(self) -> Flags:
        """Which coefficients are identified."""
        return ~np.isnan(self.estimate)

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the estimates from all sources."""
        return self.noise + self.sampling + (0.0 if self.assumed is None else self.assumed)

    @cached_property
    def std_errors(self) -> Floats:
        """Standard errors."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    def intervals(self, alpha: float) -> Floats:
        """Return both ends of the intervals of level 1 - alpha, shape (d, 2); β̂ + log(1 ± κzs)/κ if they are curved."""
        half = critical_value(alpha) * self.std_errors
        ends = np.column_stack([-half, half])
        if self.curvature is not None:
            kappa = np.where(np.abs(self.curvature) > _STRAIGHT, self.curvature, np.nan)[:, np.newaxis]
            with np.errstate(divide="ignore", invalid="ignore"):
                inside = np.maximum(1 + kappa * ends, 0.0)  # an end at 0 is infinitely far away
                ends = np.where(np.isnan(kappa), ends, np.log(inside) / kappa)
        return np.asarray(self.estimate[:, np.newaxis] + ends)

    @property
    def distances(self) -> Floats:
        """Distance of 0 from the estimates as the intervals measure it: within zs if and only if they contain 0."""
        if self.curvature is None:
            return self.estimate
        kappa = np.where(np.abs(self.curvature) > _STRAIGHT, self.curvature, np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(np.isnan(kappa), self.estimate, -np.expm1(-kappa * self.estimate) / kappa)

    def contrasts(self, R: Floats) -> tuple[Floats, Floats]:
        """Return R·β and its covariance; NaN where R has weight on a coefficient that is not identified."""
        unknown = (R[:, ~self.known] != 0).any(axis=1)
        value = R @ np.nan_to_num(self.estimate)
        covariance = R @ np.nan_to_num(self.covariance) @ R.T
        covariance[unknown], covariance[:, unknown] = np.nan, np.nan
        return np.where(unknown, np.nan, value), covariance


def critical_value(alpha: float) -> float:
    """Return half the length of a normal interval of level 1 - alpha, in standard errors."""
    return -float(special.ndtri(check.in_interval(0, 1, alpha=alpha) / 2))


def p_values(distance: Floats, std_error: Floats) -> Floats:
    """Return two-sided normal p-values: below α if and only if the interval of level 1 - α excludes 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where((distance == 0) & (std_error == 0), 0.0, np.abs(distance) / std_error)
    return np.asarray(2 * special.ndtr(-t))


def wald_statistic(distance: Floats, covariance: Floats) -> float:
    """Return dᵀC⁻¹d, chi-square with as many degrees of freedom as d has entries; NaN if d contains NaN."""
    if np.isnan(distance).any():
        return math.nan
    if not covariance.any():
        return math.inf if distance.any() else 0.0
    return float(distance @ scipy.linalg.pinvh(covariance) @ distance)


SEEN = 2.0
"""Standard errors above 0 that a variance must have for its correlations to be reported."""


@dataclass(frozen=True, eq=False)
class Residuals:
    r"""Second moments of the residuals of columns, after others are taken out, with the distribution of their noise.

    With g the columns that are taken out (the constant among them) and β_i = M_gg⁻¹M_gi, let u_i = e_i - Σ_g β_ig e_g.
    C_ij = u_iᵀMu_j estimates Σ (residual of i)(residual of j) and moves with the noise E by u_iᵀEu_j, to first order: C
    has noise of the same form, of shape Ũ = UᵀNU. To second order the fitted β make it too small on average by
    tr(M_gg⁻¹N_gg)Ũ_ij + (Nu_i)_gᵀM_gg⁻¹(Nu_j)_g, which is added.

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
        r"""Return correlations, within [-1, 1], and their standard errors; NaN where noise dominates a variance.

        They are C_ij/√(C_ii C_jj); with Ũ in units where C_ii = 1,

        .. math:: \mathrm{Var}(r_{ij}) = \tilde U_{ii}\tilde U_{jj} + \tilde U_{ij}^2
            - 2 r\tilde U_{ij}(\tilde U_{ii} + \tilde U_{jj})
            + \tfrac{r^2}{2}(\tilde U_{ii}^2 + \tilde U_{jj}^2 + 2\tilde U_{ij}^2) .
        """
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
    """Return the residuals of combinations ``rows`` (p, m) of columns, with combinations ``given`` (q, m) taken out."""
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
