"""Privacy parameters: the neighbouring relation, analyses, and limits of their values."""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gaussmix._types import Floats

__all__ = [
    "ANALYSES",
    "BOUND_HOLDS_FOR",
    "LARGEST_EPSILON",
    "NEIGHBOURS",
    "Analysis",
    "BoundHoldsFor",
    "Neighbours",
    "frames_to_the_caller",
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


def shaped(values: ArrayLike, shape: tuple[int, ...]) -> float | Floats:
    """Return a float for scalars and an array of the given shape otherwise."""
    array = np.asarray(values, float).reshape(shape)
    return float(array) if array.ndim == 0 else array


LARGEST_EPSILON = 20.0
"""Largest ε without a warning. At e^ε > 4.8·10⁸ a prior probability of 10⁻⁶ may become a posterior of 99.8 %."""


def frames_to_the_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package."""
    package, depth = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, depth = frame.f_back, depth + 1
    return depth
