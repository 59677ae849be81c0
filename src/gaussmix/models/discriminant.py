r"""Fisher's discriminant of two classes from a release: post-processing, which costs no privacy.

Let b₀ + xb be least squares of an indicator, π₁ its mean, π₀ = 1 - π₁, v its residual variance and R² = 1 - v/(π₀π₁).
The total covariance of x is the one within classes plus π₀π₁ΔΔᵀ, Δ = μ₁ - μ₀, so that S⁻¹Δ, S the covariance within
classes, is b times a number:

.. math:: \beta = \frac{b}{\pi_0\pi_1(1 - R^2)} = \frac b v ,\qquad
    \beta_0 = \log\frac{\pi_1}{\pi_0} - \frac{(\mu_0 + \mu_1)^\top\beta}{2}
            = \frac{b_0 - 1/2}{v} + h(\pi_1),\quad
    h(\pi) = \log\frac{\pi}{1 - \pi} + \frac{1 - 2\pi}{2\pi(1 - \pi)} .

It is the solution of the equation of :mod:`gaussmix.models.likelihood` where x is normal within classes with one
covariance, as estimators take a vector of numbers to be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from gaussmix._types import Floats
from gaussmix.models.design import Response
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "Discriminant",
    "class_forms",
    "discriminant_of",
    "estimate_discriminant",
    "quadratic_covariance",
    "shift",
]

_LEAST_LEFT = 1e-9  # share of the variance that is never explained: a table that is separated has no finite odds


@dataclass(frozen=True)
class Discriminant:
    """What turns least squares on a 0/1 response into log odds.

    Attributes
    ----------
    share : float
        π₁, of the second class.
    explained : float
        R² of the coefficients that are turned.
    centred : bool
        Whether there is an intercept; without one classes are taken to lie opposite to each other, equally frequent.
    """

    share: float
    explained: float
    centred: bool = True

    @property
    def factor(self) -> float:
        """1/v, v = π₀π₁(1 - R²)."""
        return 1 / (self.share * (1 - self.share) * (1 - self.explained))

    def intercept(self, b0: float) -> float:
        """β₀ from the intercept of the 0/1 response."""
        return (b0 - 0.5) * self.factor + shift(self.share) if self.centred else 0.0


def shift(share: float) -> float:
    """h(π) = log(π/(1 - π)) + (1 - 2π)/(2π(1 - π))."""
    return math.log(share / (1 - share)) + (1 - 2 * share) / (2 * share * (1 - share))


def quadratic_covariance(noisy: NoisyMoment, U: Floats) -> Floats:
    """Covariance of uᵀMu over the columns u of U: 2(uᵀNu')²."""
    return np.asarray(2 * (U.T @ noisy.shape @ U) ** 2)


def class_forms(intercept: Floats | None, response: Floats) -> Floats:
    """Combinations of columns, one a column, whose squares add up to rows: of the classes, or without an intercept all.

    With y = ±1 the rows of the classes are Σ((1 - y)/2)² and Σ((1 + y)/2)².
    """
    if intercept is None:
        return response[:, np.newaxis]
    return np.column_stack([(intercept - response) / 2, (intercept + response) / 2])


def estimate_discriminant(
    noisy: NoisyMoment, intercept: Floats | None, response: Floats, a: Floats, *, residual: float
) -> Discriminant:
    """π₁ and R² from a release, noise taken out, shrunk where it dominates.

    With s the standard deviation that noise gives a number, π₁ is replaced by its mean under a normal law of deviation
    s that is cut to (0, 1): noise alone makes classes equally frequent. R², cut likewise, is also multiplied by
    R⁴/(R⁴ + s²): noise alone explains nothing.

    Parameters
    ----------
    noisy : NoisyMoment
    intercept : array (m,) or None
        The combination of columns that is 1 in every row.
    response : array (m,)
        The one that is -1 and 1.
    a : array (m,)
        The residual of the response: Σ(a·r)² has the noise of ``residual``.
    residual : float
        What is known of it: aᵀMa, but for the optimism of coefficients that were fitted to the noise of M.
    """
    forms = np.column_stack([class_forms(intercept, response), a])
    values = np.sum(forms * (noisy.moment @ forms), axis=0)
    covariance = quadratic_covariance(noisy, forms)
    n, share = max(float(values[:-1].sum()), 1.0), 0.5
    to_share = np.zeros(len(values))
    if intercept is not None:
        to_share = np.array([-values[1], values[0], 0.0]) / n**2
        share = _within_unit(float(values[1]) / n, _std_error(covariance, to_share), least=0.5 / n)
    whole = share * (1 - share)
    left = residual / (4 * n * whole)
    to_left = np.append(np.full(len(values) - 1, -left / n), 1 / (4 * n * whole))
    to_left -= left * (1 - 2 * share) / whole * to_share  # d log(π₀π₁) = (1 - 2π₁) dπ₁/(π₀π₁)
    return Discriminant(share, _explained(1 - left, _std_error(covariance, to_left)), intercept is not None)


def _explained(plain: float, std_error: float) -> float:
    """R² within [0, 1), shrunk towards 0 by its noise."""
    within = 1 - _within_unit(1 - plain, std_error, least=_LEAST_LEFT, most=1.0)
    return within**3 / (within**2 + std_error**2) if within else 0.0


def _within_unit(value: float, std_error: float, *, least: float, most: float | None = None) -> float:
    """Mean of N(value, std_error²) cut to (0, 1); the value itself without noise, between ``least`` and 1 less it."""
    most = 1 - least if most is None else most
    if std_error <= 1e-12:
        return min(max(value, least), most)
    low, high = -value / std_error, (1 - value) / std_error
    # The ratio of a difference of densities to one of tails: logarithms, for values far outside.
    if low > 0:
        mass = special.log_ndtr(-low) + np.log1p(-np.exp(special.log_ndtr(-high) - special.log_ndtr(-low)))
    else:
        mass = special.log_ndtr(high) + np.log1p(-np.exp(special.log_ndtr(low) - special.log_ndtr(high)))
    densities = np.exp(-(low**2) / 2 - mass) - np.exp(-(high**2) / 2 - mass)
    mean = value + std_error * float(densities) / math.sqrt(2 * math.pi)
    return min(max(mean, least), most)


def _std_error(covariance: Floats, gradient: Floats) -> float:
    return math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))


def discriminant_of(statistic: Transcript, response: Response, features: list[int], theta: Floats) -> Discriminant:
    """Class shares and R² of coefficients that predict."""
    schema, a = statistic.schema, response.vector.copy()
    a[features] -= theta
    constant = schema.units.one if schema.intercept else None
    left = statistic.residual(features, response.vector)
    return estimate_discriminant(statistic.predictive, constant, response.vector, a, residual=left)
