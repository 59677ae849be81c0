"""The Gaussian mechanism, exactly: the limit of large sketches, and what eigenvalues are released by."""

from __future__ import annotations

import functools
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.arguments import EPSILON_MAX, GAMMA_MAX, ROUNDING, shaped
from gaussmix.accounting.divergence import gaussian_hockey_stick
from gaussmix.accounting.search import log_excess, smallest_or_infinity, smallest_safe
from gaussmix.errors import ArgumentError, BudgetUnmetError

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu"]


@overload
def gaussian_delta(epsilon: float, *, mu: float) -> float: ...


@overload
def gaussian_delta(epsilon: ArrayLike, *, mu: ArrayLike) -> float | Floats: ...


def gaussian_delta(epsilon: ArrayLike, *, mu: ArrayLike) -> float | Floats:
    """Exact δ of Gaussian releases with √Σ(sensitivity/noise)² = mu, rounded up (Balle and Wang 2018)."""
    eps, mus = check.broadcastable(epsilon=check.numbers(epsilon=epsilon), mu=check.numbers(mu=mu))
    if np.any(mus < 0) or np.any(np.isinf(mus)):
        raise ArgumentError("mu must be a finite number ≥ 0.")
    exact = gaussian_hockey_stick(np.clip(eps, -EPSILON_MAX, EPSILON_MAX), mus)
    return shaped(np.where(np.isposinf(eps), 0.0, np.minimum(exact * (1 + ROUNDING), 1.0)), eps.shape)


def gaussian_epsilon(delta: float, *, mu: float) -> float:
    """Smallest ε ≥ 0 of Gaussian releases at δ, rounded up.

    >>> round(gaussian_epsilon(1e-6, mu=0.3), 4)
    1.2917
    """
    delta, mu = check.in_interval(0, 1, closed=True, delta=delta), check.real(mu=mu)
    if mu == 0 or delta == 1:
        return 0.0
    if delta == 0:
        return np.inf
    return smallest_or_infinity(lambda e: log_excess(gaussian_delta(e, mu=mu), delta))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ = sensitivity / noise that is (ε, δ)-differentially private, rounded down.

    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    return _largest_mu(check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta))


@functools.lru_cache(maxsize=1024)
def _largest_mu(epsilon: float, delta: float) -> float:
    """Remembered: one budget is asked for by many fits."""
    try:
        noise = smallest_safe(
            lambda s: log_excess(gaussian_delta(epsilon, mu=1 / s), delta), 1e-9, 1.0, limit=GAMMA_MAX, log=True
        )
    except BudgetUnmetError:
        raise BudgetUnmetError(
            f"No noise up to {GAMMA_MAX:g} times the sensitivity meets epsilon={epsilon!r}, delta={delta!r}; "
            "ask for a larger epsilon or delta."
        ) from None
    return 1 / noise
