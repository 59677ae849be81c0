"""The public grid on which everything that leaves the mechanism lies.

An unrounded double tells which products could have produced it, and between one in 40 and one in 7 of them are
impossible under the neighbouring table. Rounding is post-processing and removes that attack; the guarantee stays one
for real arithmetic (SECURITY.md).
"""

from __future__ import annotations

import math

import numpy as np

from gaussmix._types import Floats

__all__ = ["down_to_grid", "public_grid", "to_grid"]

GRID_BITS = 20


def public_grid(scale: float) -> float:
    """The power of two about a millionth of a public noise scale: 2^(⌈log₂ scale⌉ - 20)."""
    return 2.0 ** (math.ceil(math.log2(scale)) - GRID_BITS)


def to_grid(values: Floats, grid: float) -> Floats:
    """The nearest points of the grid."""
    return np.asarray(np.round(values / grid) * grid + 0.0)  # + 0.0: no negative zero


def down_to_grid(value: float, grid: float) -> float:
    """The next point of the grid below."""
    return math.floor(value / grid) * grid
