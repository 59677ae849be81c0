"""Root searches whose result is itself checked, so that rounding is always towards privacy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize

from gaussmix.accounting.arguments import EPSILON_MAX, GAMMA_MAX
from gaussmix.errors import BudgetUnmetError

__all__ = ["least_safe_gamma", "log_excess", "smallest_or_infinity", "smallest_safe", "unmet_budget"]


def smallest_safe(
    excess: Callable[[float], float],
    low: float,
    high: float,
    *,
    limit: float,
    log: bool = False,
    rtol: float = 1e-13,
) -> float:
    """Return the smallest argument at which a decreasing function is ≤ 0, rounded up to a value that was checked.

    Raises
    ------
    BudgetUnmetError
        If there is none up to ``limit``.
    """
    if excess(low) <= 0:
        return low
    while excess(high) > 0:
        if high >= limit:
            raise BudgetUnmetError(f"no value up to {limit:g} is private")
        low, high = high, min(high * 4, limit)
    to, back = (np.log, np.exp) if log else (float, float)

    ends = {to(low): low, to(high): high}  # exp(log(x)) may differ from x

    def inside(x: float) -> float:
        return ends.get(x, min(max(float(back(x)), low), high))

    root = inside(optimize.brentq(lambda x: excess(inside(x)), to(low), to(high), xtol=1e-18, rtol=rtol, maxiter=1000))
    step = max(rtol * abs(root), 1e-18)
    while excess(root) > 0:
        root, step = min(root + step, high), 2 * step
    return root


def log_excess(spent: float, allowed: float) -> float:
    """Return log(spent / allowed), finite, and positive if and only if spent > allowed."""
    ratio = float(np.log(max(spent, 1e-320)) - np.log(max(allowed, 1e-320)))
    return max(ratio, 1e-300) if spent > allowed else min(ratio, 0.0)


def smallest_or_infinity(excess: Callable[[float], float]) -> float:
    """Return the smallest safe ε, or ∞ if it is above :data:`~gaussmix.accounting.arguments.EPSILON_MAX`."""
    try:
        return smallest_safe(excess, 0.0, 1.0, limit=EPSILON_MAX)
    except BudgetUnmetError:
        return np.inf


def least_safe_gamma(
    excess: Callable[[float], float],
    low: float,
    high: float,
    unmet: Callable[[], str],
    *,
    rtol: float = 1e-13,
) -> float:
    """Return the smallest safe γ ≥ ``low``; if there is none, raise an error with the message of ``unmet``."""
    try:
        return float(smallest_safe(excess, low, high, limit=GAMMA_MAX, log=True, rtol=rtol))
    except BudgetUnmetError:
        raise BudgetUnmetError(unmet()) from None


def unmet_budget(epsilon: float, delta: float, k: int, reached: Callable[[int], float]) -> str:
    """Return the message for a budget that cannot be met; ``reached(k)`` is ε with k rows at the largest γ."""
    message = (
        f"No noise with gamma up to {GAMMA_MAX:g} meets epsilon={epsilon!r}, delta={delta!r} with sketch_size={k}. "
        f"With this delta and sketch_size the smallest epsilon is {reached(k):.3g}; "
    )
    if reached(1) > epsilon:
        return message + "no sketch_size meets this epsilon and delta."
    low, high = 1, k
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) <= epsilon else (low, middle)
    return message + f"with this epsilon and delta the largest sketch_size is {low}."
