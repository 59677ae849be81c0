"""Budgets that are allowed and mean less than their numbers may suggest. Nothing in this module sees data.

>>> weak_points(1.0, 1e-6)
()
>>> weak_points(1.0, 0.1)
('delta=0.1 allows about one row in 10 to be published outright: choose less than one over the number of rows.',)
"""

from __future__ import annotations

import sys
import warnings

from gaussmix.errors import BudgetWarning

__all__ = ["LARGEST_DELTA", "LARGEST_EPSILON", "LEAST_DELTA", "frames_to_the_caller", "warn_if_weak", "weak_points"]

LARGEST_EPSILON = 20.0
"""Above it, e^ε > 4.8·10⁸: an adversary who gives an event a chance of one in a million may end up 99.8 % sure."""

LARGEST_DELTA = 1e-2
"""From it on, a mechanism that publishes every hundredth row as it is would meet the budget: the same δ, with ε = 0."""

LEAST_DELTA = 1e-40
"""Below it, δ is less than the samplers resolve: a normal draw ends at about 13 standard deviations (SECURITY.md)."""


def weak_points(epsilon: float, delta: float) -> tuple[str, ...]:
    """What is weak about a budget, in words; an infinite ε has words of its own in the certificate."""
    found = []
    if LARGEST_EPSILON < epsilon < float("inf"):
        found.append(
            f"epsilon={epsilon:g} protects nobody in the worst case: odds may change by a factor of e^{epsilon:g}. "
            "Values up to about 1 protect well, up to 10 somewhat."
        )
    if delta >= LARGEST_DELTA:
        found.append(
            f"delta={delta:g} allows about one row in {round(1 / delta)} to be published outright: "
            "choose less than one over the number of rows."
        )
    elif 0 < delta < LEAST_DELTA:
        found.append(
            f"delta={delta:g} is below what random numbers on a computer resolve: take it as {LEAST_DELTA:g}, at best."
        )
    return tuple(found)


def warn_if_weak(epsilon: float, delta: float) -> None:
    """One :class:`gaussmix.errors.BudgetWarning` for all that is weak about a budget, before it is spent."""
    found = weak_points(epsilon, delta)
    if found:
        warnings.warn(" ".join(found), BudgetWarning, stacklevel=frames_to_the_caller())


def frames_to_the_caller() -> int:
    """As ``stacklevel`` counts: up to the first frame outside of this package, whichever door was taken."""
    package, depth = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth
