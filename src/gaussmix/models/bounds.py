"""Proposed schemas: bounds and levels computed from noisy counts.

**Private**: everything here is post-processing of released counts and public numbers, and costs no privacy.

**Coarse grid.** Nearly all bins are empty, and all have noise. A bin is significant if its noisy count exceeds zσ,
where z is chosen such that an empty bin of any column is significant with probability at most 10⁻⁶: a single one,
which may lie at 10⁹⁰, would widen the bounds to it. Other bins are treated as empty. The bounds are the narrowest with
at most a share τ of the significant counts beyond either bound.

**Fine grid.** There are few bins, and most are not empty. From either end, the largest number i of bins is removed
whose noisy sum is at most τ·n̂ + σ√i, which is consistent with a share τ of the rows. So at most about τn + 3σ√i rows
are clamped at an end, and empty bins at the ends are removed.

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
from pathlib import Path
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
        The schema for a release, which needs a budget of its own.
    certificate : Certificate
        The guarantee of the proposal. The privacy losses of proposal and release add up; a ledger can cover both.
    left_out : tuple of str
        Columns without significant counts: each bin of a number, or level of a category, has too few rows.
    path : Path or None
        The file that ``propose_bounds(out=)`` wrote.
    """

    schema: Schema
    certificate: Certificate
    left_out: tuple[str, ...] = ()
    path: Path | None = None

    def to_bytes(self) -> bytes:
        """Return the schema as a JSON file, which `Schema.of` and ``--schema`` read."""
        return (json.dumps(self.schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def __str__(self) -> str:
        names = plain(", ".join(self.left_out))
        left = f"\n  left out, because no count exceeded the noise threshold: {names}" if names else ""
        return f"{self.certificate}{left}"


TAIL = 0.001
"""Share of the rows that may lie beyond either bound."""

_FALSE_ALARM = 1e-6  # probability that any empty bin of the coarse grids is significant
_ERRORS = 1.0  # standard errors up to which a sum of fine bins is attributed to noise


def coarse_bounds(counts: Floats, *, noise: float, columns: int, tail: float = TAIL) -> tuple[float, float] | None:
    """Return bounds on the coarse grid; None if no bin, or only that of zero, is significant.

    Parameters
    ----------
    counts : array (COARSE_BINS,)
        Counts with Gaussian noise of standard deviation ``noise``.
    columns : int
        Number of columns whose grids were released together.
    tail : float
        The share τ.
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
    """Return bounds on a fine grid, rounded outward to its edges, with at least one bin between them."""
    allowed = tail * max(float(counts.sum()), 0.0)
    lower = _cut(counts, allowed, noise)
    upper = len(counts) - _cut(counts[::-1], allowed, noise)
    if lower >= upper:  # nothing is significant: keep the whole grid
        lower, upper = 0, len(counts)
    return grid.edge(lower), grid.edge(upper)


def _cut(counts: Floats, allowed: float, noise: float) -> int:
    """Return the largest number of bins at the start whose sum is small enough to be removed."""
    places = np.arange(1, len(counts) + 1)
    small = np.cumsum(counts) <= allowed + _ERRORS * noise * np.sqrt(places)
    return int(np.max(places[small], initial=0))


def usable(bounds: tuple[float, float], declared: Mapping[str, Any]) -> tuple[float, float] | None:
    """Replace bounds by declared ones, within the range that a schema supports; return None for an empty range."""
    largest = LARGEST_HALF_RANGE / 2
    lower = declared.get("lower", max(bounds[0], -largest))
    upper = declared.get("upper", min(bounds[1], largest))
    half = upper / 2 - lower / 2
    return (lower, upper) if 1 / LARGEST_HALF_RANGE <= half <= LARGEST_HALF_RANGE and math.isfinite(half) else None


def distinct_levels(
    name: str, counts: Mapping[Any, float], *, taken: Iterable[str], most: int
) -> tuple[tuple[Any, ...], set[str]]:
    """Return the ``most`` levels with the largest noisy counts, sorted, and the names of their encoded columns.

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
