"""Warnings about budgets that are allowed but give a weak guarantee.

>>> weak_points(1.0, 1e-6)
()
>>> weak_points(1.0, 0.1)
('delta=0.1 is also met by publishing one row in 10 unprotected. Choose delta below 1 / number of rows.',)
"""

from __future__ import annotations

import sys
import warnings

from gaussmix.errors import BudgetWarning

__all__ = ["LARGEST_DELTA", "LARGEST_EPSILON", "LEAST_DELTA", "frames_to_the_caller", "warn_if_weak", "weak_points"]

LARGEST_EPSILON = 20.0
"""Largest ε without a warning. At e^ε > 4.8·10⁸ a prior probability of 10⁻⁶ may become a posterior of 99.8 %."""

LARGEST_DELTA = 1e-2
"""Smallest δ with a warning: publishing each row with probability 1 % meets this δ with ε = 0."""

LEAST_DELTA = 1e-40
"""Smallest δ without a warning: the samplers' normal draws end at about 13 standard deviations (SECURITY.md)."""


def weak_points(epsilon: float, delta: float) -> tuple[str, ...]:
    """Return warnings about a budget. An infinite ε is reported by the certificate instead."""
    found = []
    if LARGEST_EPSILON < epsilon < float("inf"):
        found.append(
            f"epsilon={epsilon:g} gives no meaningful worst-case guarantee: odds may change by a factor of "
            f"e^{epsilon:g}. Values up to about 1 are strong, values up to about 10 moderate."
        )
    if delta >= LARGEST_DELTA:
        found.append(
            f"delta={delta:g} is also met by publishing one row in {round(1 / delta)} unprotected. "
            "Choose delta below 1 / number of rows."
        )
    elif 0 < delta < LEAST_DELTA:
        found.append(
            f"delta={delta:g} is smaller than the samplers resolve. The guarantee holds for {LEAST_DELTA:g} at best."
        )
    return tuple(found)


def warn_if_weak(epsilon: float, delta: float) -> None:
    """Issue one :class:`gaussmix.errors.BudgetWarning` with all `weak_points` of a budget, if there are any."""
    found = weak_points(epsilon, delta)
    if found:
        warnings.warn(" ".join(found), BudgetWarning, stacklevel=frames_to_the_caller())


def frames_to_the_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package."""
    package, depth = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth
