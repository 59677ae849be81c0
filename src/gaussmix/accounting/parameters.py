"""Privacy parameters: the neighbouring relation, checks of epsilon and delta, warnings about weak budgets."""

from __future__ import annotations

import sys
import warnings
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError, BudgetWarning

__all__ = [
    "ANALYSES",
    "BOUND_HOLDS_FOR",
    "LARGEST_DELTA",
    "LARGEST_EPSILON",
    "LEAST_DELTA",
    "NEIGHBOURS",
    "Analysis",
    "BoundHoldsFor",
    "Neighbours",
    "frames_to_the_caller",
    "warn_if_weak",
]


BoundHoldsFor = Literal["both", "larger"]
Neighbours = Literal["add-remove", "replace-one"]
Analysis = Literal["exact", "renyi", "tcdp", "sheffet"]

BOUND_HOLDS_FOR: tuple[BoundHoldsFor, ...] = ("both", "larger")
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace-one")
ANALYSES: tuple[Analysis, ...] = ("exact", "renyi", "tcdp", "sheffet")

ROUNDING = 1e-10
"""Relative margin added to every exact δ; measured errors are below 1e-11 (tests/accounting/test_divergence.py)."""

EPSILON_MAX = 1e9
"""Larger values of ε are reported as ∞."""

GAMMA_MAX = 1e12
"""Upper end of searches for γ."""


def check_model(bound_holds_for: BoundHoldsFor, neighbours: Neighbours, mu: float, analysis: str) -> None:
    check.choice(BOUND_HOLDS_FOR, bound_holds_for=bound_holds_for)
    check.choice(NEIGHBOURS, neighbours=neighbours)
    if check.real(mu=mu) < 0 or np.isinf(mu):
        raise ArgumentError(f"mu must be a finite number ≥ 0, got {mu!r}.")
    if analysis != "exact" and (neighbours != "add-remove" or mu != 0):
        raise ArgumentError(
            f"analysis={analysis!r} requires neighbours='add-remove' and mu=0, got {neighbours!r} and mu={mu!r}. "
            "Use analysis='exact'."
        )


def sketch_sizes(sketch_size: ArrayLike) -> Floats:
    k = check.numbers(whole=True, sketch_size=sketch_size)
    if np.any(k < 1):
        raise ArgumentError(f"sketch_size must be an integer ≥ 1, got {int(np.min(k))}.")
    if np.any(k > check.SKETCH_SIZE_MAX):
        raise ArgumentError(
            f"sketch_size must be at most 2**40, got {int(np.max(k))}. Floating-point random numbers are too coarse "
            "for the guarantee to hold with a larger sketch."
        )
    return k


def gammas(gamma: ArrayLike, bound_holds_for: BoundHoldsFor, analysis: str) -> Floats:
    g = check.numbers(gamma=gamma)
    if analysis in ("renyi", "tcdp", "sheffet") or bound_holds_for == "larger":
        if np.any(g <= 1):
            raise ArgumentError(
                "gamma must be > 1 with bound_holds_for='larger' or an analysis other than 'exact', "
                f"got {float(np.min(g))!r}: the leverage is then 1/gamma."
            )
    elif np.any(g <= 0):
        raise ArgumentError(f"gamma must be a number > 0, got {float(np.min(g))!r}.")
    return g


def shaped(values: ArrayLike, shape: tuple[int, ...]) -> float | Floats:
    """Return a float for scalars and an array of the given shape otherwise."""
    array = np.asarray(values, float).reshape(shape)
    return float(array) if array.ndim == 0 else array


LARGEST_EPSILON = 20.0
"""Largest ε without a warning. At e^ε > 4.8·10⁸ a prior probability of 10⁻⁶ may become a posterior of 99.8 %."""

LARGEST_DELTA = 1e-2
"""Smallest δ with a warning: publishing each row with probability 1 % meets this δ with ε = 0."""

LEAST_DELTA = 1e-40
"""Smallest δ without a warning: the samplers' normal draws end at about 13 standard deviations (SECURITY.md)."""


def warn_if_weak(epsilon: float, delta: float) -> None:
    """Issue one :class:`gaussmix.errors.BudgetWarning` if a budget is weak. An infinite ε voids the certificate."""
    found = []
    if LARGEST_EPSILON < epsilon < float("inf"):
        found.append(
            f"epsilon={epsilon:g} gives no meaningful worst-case guarantee: the odds of any outcome may change by a "
            f"factor of e^{epsilon:g}. Values up to about 1 are strong, values up to about 10 moderate."
        )
    if delta >= LARGEST_DELTA:
        found.append(
            f"delta={delta:g} is large: publishing one row in {round(1 / delta)} without any protection would also "
            "satisfy it. Choose delta below 1 / (number of rows)."
        )
    elif 0 < delta < LEAST_DELTA:
        found.append(
            f"delta={delta:g} is smaller than the noise samplers can guarantee. The guarantee holds for a delta of "
            f"{LEAST_DELTA:g}."
        )
    if found:
        warnings.warn(" ".join(found), BudgetWarning, stacklevel=frames_to_the_caller())


def frames_to_the_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package."""
    package, depth = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth
