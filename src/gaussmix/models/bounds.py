"""What a proposal is: a schema whose bounds and levels were found privately, and what they cost.

Bounds and levels from noisy counts: post-processing, which costs no privacy.

**Private**: everything here is a function of released counts and of public numbers.

On the coarse grid nearly all bins are empty and all have noise. A bin counts if its noisy count is more than zσ above
zero, z such that no empty bin of any column does so but with a chance of one in a hundred; the others are taken as
empty. The bounds are then the narrowest for which no more than a share τ of what counts lies beyond either.

A fine grid has few bins and most of them are not empty. Its bounds are moved inward from either end over the most bins,
i of them, whose noisy sum is at most τ·n̂ + σ√i: what lies beyond cannot be told from the share τ. So about τn + 3σ√i
rows are clipped at an end at most, and an empty end is cut off.

>>> from gaussmix.data.counts import coarse_bins
>>> counts = np.zeros(COARSE_BINS)
>>> counts[coarse_bins(np.array([20.0, 40.0, 90.0]))] = [500.0, 600.0, 400.0]
>>> coarse_bounds(counts, noise=10.0, columns=1)
(16.0, 128.0)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix.data.columns import LARGEST_HALF_RANGE
from gaussmix.data.counts import COARSE_BINS, FineGrid, coarse_interval
from gaussmix.data.schema import Schema
from gaussmix.releases.certificate import Certificate

__all__ = ["TAIL", "Proposal", "coarse_bounds", "distinct_levels", "fine_bounds", "usable"]


@dataclass(frozen=True)
class Proposal:
    """A schema with proposed bounds and levels, and its certificate. **Private**: both may be published.

    Attributes
    ----------
    schema : Schema
        Ready to be used in a release, which costs a budget of its own.
    certificate : Certificate
        What the proposal guarantees. Proposal and release together cost what a ledger says, or the sum of both.
    left_out : tuple of str
        Columns for which nothing stood out from the noise: a number whose bins, or a category whose levels, have too
        few rows each.
    """

    schema: Schema
    certificate: Certificate
    left_out: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The schema as a JSON file, which `Schema.of` and ``--schema`` read."""
        return (json.dumps(self.schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def __str__(self) -> str:
        names = plain(", ".join(self.left_out))
        left = f"\n  left out, for nothing stood out from the noise: {names}" if names else ""
        return f"{self.certificate}{left}"


TAIL = 0.001
"""Share of the rows that may lie beyond either bound."""

_FALSE_ALARM = 0.01  # chance that any empty bin of the coarse grids counts
_ERRORS = 1.0  # standard errors of a sum of fine bins that are taken for noise


def coarse_bounds(counts: Floats, *, noise: float, columns: int, tail: float = TAIL) -> tuple[float, float] | None:
    """Bounds on the coarse grid; None where no bin counts, or zero alone.

    Parameters
    ----------
    counts : array (COARSE_BINS,)
        With Gaussian noise of standard deviation ``noise``.
    columns : int
        Columns whose grids were released together.
    tail : float
        τ.
    """
    z = -float(special.ndtri(_FALSE_ALARM / (COARSE_BINS * columns)))
    there = np.where(counts > z * noise, counts, 0.0)
    if not there.any():
        return None
    allowed = tail * there.sum()
    first = int(np.argmax(np.cumsum(there) > allowed))
    last = len(there) - 1 - int(np.argmax(np.cumsum(there[::-1]) > allowed))
    lower, upper = coarse_interval(first)[0], coarse_interval(last)[1]
    return (lower, upper) if lower < upper else None


def fine_bounds(counts: Floats, grid: FineGrid, *, noise: float, tail: float = TAIL) -> tuple[float, float]:
    """Bounds on a fine grid, rounded outward to its edges: at least one bin."""
    allowed = tail * max(float(counts.sum()), 0.0)
    lower = _cut(counts, allowed, noise)
    upper = len(counts) - _cut(counts[::-1], allowed, noise)
    if lower >= upper:  # nothing stands out: the grid as it is
        lower, upper = 0, len(counts)
    return grid.edge(lower), grid.edge(upper)


def _cut(counts: Floats, allowed: float, noise: float) -> int:
    """How many bins from the first on can be left out: the most whose sum is small enough."""
    places = np.arange(1, len(counts) + 1)
    small = np.cumsum(counts) <= allowed + _ERRORS * noise * np.sqrt(places)
    return int(np.max(places[small], initial=0))


def usable(bounds: tuple[float, float], declared: Mapping[str, Any]) -> tuple[float, float] | None:
    """Bounds with what was declared in their place, as a schema can have them; None if nothing is left."""
    largest = LARGEST_HALF_RANGE / 2
    lower = declared.get("lower", max(bounds[0], -largest))
    upper = declared.get("upper", min(bounds[1], largest))
    half = upper / 2 - lower / 2
    return (lower, upper) if 1 / LARGEST_HALF_RANGE <= half <= LARGEST_HALF_RANGE and math.isfinite(half) else None


def distinct_levels(
    name: str, counts: Mapping[Any, float], *, taken: Iterable[str], most: int
) -> tuple[tuple[Any, ...], set[str]]:
    """The ``most`` levels with the largest noisy counts, sorted, and the names of their encoded columns.

    A level whose encoded column would have the name of another one is left out.
    """
    chosen: list[Any] = []
    names = set(taken)
    for level in sorted(counts, key=lambda level: (-counts[level], level)):
        encoded = f"{name}={level}"
        if encoded not in names and len(chosen) < most:
            chosen.append(level)
            names.add(encoded)
    return tuple(sorted(chosen)), names
