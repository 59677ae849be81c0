"""Public grids of numbers, made of powers of two, and the bin of a value in them. Nothing here depends on data.

The coarse grid covers both signs and zero: bins [2^(e-1), 2^e) for e from -998 to 1000, beside zero one bin for all
that is smaller, and the outermost for all that is larger. That is more than 10^-300 to 10^300. A fine grid has bins of
one width, a power of two, between two bounds of the coarse one.

>>> coarse_interval(int(coarse_bins(np.array([100.0]))[0])), coarse_interval(int(coarse_bins(np.array([0.0]))[0]))
((64.0, 128.0), (0.0, 0.0))
>>> FineGrid.between(64.0, 2048.0)
FineGrid(start=64.0, step=16.0, bins=124)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers

__all__ = ["COARSE_BINS", "FINE_BINS", "FineGrid", "coarse_bins", "coarse_interval"]

_EXPONENTS = 1000
_MAGNITUDES = 2 * _EXPONENTS  # exponents -999 to 1000
COARSE_BINS = 2 * _MAGNITUDES + 1
"""Bins of the coarse grid: zero in the middle."""

FINE_BINS = 129
"""Most bins of a fine grid."""


def coarse_bins(values: Floats) -> Integers:
    """Bin of every value, which must be finite."""
    _, exponents = np.frexp(values)
    magnitude = np.clip(exponents.astype(np.int64), 1 - _EXPONENTS, _EXPONENTS) + _EXPONENTS
    return np.asarray(_MAGNITUDES + np.sign(values).astype(np.int64) * magnitude)


def coarse_interval(index: int) -> tuple[float, float]:
    """Lower and upper end of a bin."""
    magnitude = abs(index - _MAGNITUDES)
    if magnitude == 0:
        return 0.0, 0.0
    exponent = magnitude - _EXPONENTS
    near = 0.0 if magnitude == 1 else math.ldexp(1.0, exponent - 1)
    far = math.ldexp(1.0, exponent)
    return (near, far) if index > _MAGNITUDES else (-far, -near)


@dataclass(frozen=True)
class FineGrid:
    """Bins of one width from ``start`` on. A value beyond either end is in the bin at that end."""

    start: float
    step: float
    bins: int

    @classmethod
    def between(cls, lower: float, upper: float) -> FineGrid:
        """64 to 129 bins that cover two bounds; ``start`` is a multiple of the width."""
        _, exponent = math.frexp(upper - lower)
        step = math.ldexp(1.0, exponent - 7)
        first, last = math.floor(lower / step), math.ceil(upper / step)
        return cls(first * step, step, last - first)

    def bins_of(self, values: Floats) -> Integers:
        """Bin of every value, which must be finite."""
        with np.errstate(over="ignore"):
            places = np.floor((values - self.start) / self.step)
        return np.asarray(np.clip(places, 0, self.bins - 1).astype(np.int64))

    def edge(self, index: int) -> float:
        """Lower end of a bin; of the bin after the last, the upper end of the grid."""
        return self.start + index * self.step
