r"""The analytic Gaussian mechanism (Balle and Wang, arXiv:1805.06530v2).

.. math:: \delta(\varepsilon; \mu) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)

:func:`gaussian_delta` and :func:`gaussian_epsilon` evaluate the curve in double precision and round up by more than
their error. Noise scales, ledgers and certificates need values that are identical on every processor:
:func:`gaussian_mu` and :func:`gaussian_delta_up` evaluate the curve with `mpmath`, which computes with integers.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.divergence import gaussian_hockey_stick
from gaussmix.accounting.numerics import above, log_excess, precise, round_up, smallest_or_infinity
from gaussmix.accounting.parameters import EPSILON_MAX, GAMMA_MAX, ROUNDING, shaped
from gaussmix.errors import ArgumentError, BudgetUnmetError

__all__ = ["gaussian_delta", "gaussian_delta_up", "gaussian_epsilon", "gaussian_mu"]

_MU_BITS = 48  # significant bits of a calibrated μ: the relative loss is below 4e-15
_CONVERGED = 1e-20  # relative size of the last step of Newton's method


@overload
def gaussian_delta(epsilon: float, *, mu: float) -> float: ...


@overload
def gaussian_delta(epsilon: ArrayLike, *, mu: ArrayLike) -> float | Floats: ...


def gaussian_delta(epsilon: ArrayLike, *, mu: ArrayLike) -> float | Floats:
    """Return δ(ε) of Gaussian releases with √Σ(sensitivity/noise)² = mu, rounded up; broadcasts."""
    eps, mus = check.broadcastable(epsilon=check.numbers(epsilon=epsilon), mu=check.numbers(mu=mu))
    wrong = mus[(mus < 0) | np.isinf(mus)]
    if wrong.size:
        raise ArgumentError(f"mu must be a finite number ≥ 0, got {float(wrong[0])!r}.")
    exact = gaussian_hockey_stick(np.clip(eps, -EPSILON_MAX, EPSILON_MAX), mus)
    return shaped(np.where(np.isposinf(eps), 0.0, np.minimum(exact * (1 + ROUNDING), 1.0)), eps.shape)


def gaussian_epsilon(delta: float, *, mu: float) -> float:
    """Return the smallest ε ≥ 0 of Gaussian releases at δ, rounded up.

    >>> round(gaussian_epsilon(1e-6, mu=0.3), 4)
    1.2917
    """
    delta, mu = check.in_interval(0, 1, closed=True, delta=delta), check.real(mu=mu)
    if mu == 0 or delta == 1:
        return 0.0
    if delta == 0:
        return np.inf
    return smallest_or_infinity(lambda e: log_excess(gaussian_delta(e, mu=mu), delta))


@functools.lru_cache(maxsize=1024)
def gaussian_delta_up(epsilon: float, mu: float) -> float:
    """Return the smallest double that is at least δ(ε; μ), the same on every processor.

    >>> gaussian_delta_up(1.0, 0.25) <= gaussian_delta(1.0, mu=0.25)
    True
    """
    with precise() as mp:
        return round_up(above(_delta(mp, mp.mpf(epsilon), mp.mpf(mu))))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ = sensitivity / noise with 48 significant bits that is (ε, δ)-differentially private.

    The result is identical on every processor.

    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    return _largest_mu(check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta))


@functools.lru_cache(maxsize=1024)
def _largest_mu(epsilon: float, delta: float) -> float:
    with precise() as mp:
        eps, allowed = mp.mpf(epsilon), mp.mpf(delta)
        root = mp.sqrt(2 * mp.log(1 / allowed))
        # Start from the μ of zero-concentrated privacy, μ²/2 + μ√(2 log(1/δ)) = ε, which is private. Newton's method on
        # log δ, whose derivative is φ(ε/μ - μ/2)/δ, increases it to the root.
        mu, step = mp.sqrt(root**2 + 2 * eps) - root, mp.inf
        while abs(step) > mu * _CONVERGED:
            spent = _delta(mp, eps, mu)
            step = mp.log(spent / allowed) * spent / mp.npdf(eps / mu - mu / 2)
            mu -= step
        if mu * GAMMA_MAX < 1:
            raise BudgetUnmetError(
                f"epsilon={epsilon!r} and delta={delta!r} cannot be met with noise up to {GAMMA_MAX:g} times the "
                "sensitivity. Increase epsilon or delta."
            )
        exponent = mp.frexp(mu)[1] - _MU_BITS
        steps = int(mp.floor(mp.ldexp(mu, -exponent)))

        def private(steps: int) -> bool:
            return above(_delta(mp, eps, mp.ldexp(steps, exponent))) <= Fraction(delta)

        # Whatever Newton's method found, the result is the largest private multiple of 2^exponent.
        while not private(steps):
            steps -= 1
        while private(steps + 1):
            steps += 1
        return float(mp.ldexp(steps, exponent))


def _delta(mp: Any, epsilon: Any, mu: Any) -> Any:
    """Evaluate the curve with `mpmath`. Cancellation loses a factor of about ε/μ² < 10²⁵ of the precision."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
