"""The tail of ‖z‖² as a noisy histogram shows it: what clipping at each edge would lose. Post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from gaussmix._types import Floats

__all__ = ["BINS", "Tail", "bin_edges", "read_tail"]

RESOLVED = 3.0
"""Standard errors by which a tail count must exceed zero to be more than noise."""

LEAST_SLOPE = 2.0
"""Tail counts that noise hides are assumed to fall at least like this power of ‖z‖²."""

_EXPONENTS = np.concatenate([np.arange(-2, 2.6, 0.5), np.arange(3.0, 13.0)])

BINS = len(_EXPONENTS) + 1
"""Counts of one histogram."""


def bin_edges(mean: float) -> Floats:
    """Edges of the bins of ‖z‖²: from a quarter of the mean on by factors of √2, from 8 times on by 2, to 4,096."""
    return np.asarray(mean * 2.0**_EXPONENTS)


@dataclass(frozen=True, eq=False)
class Tail:
    """What a noisy histogram says of the tail of ‖z‖².

    Attributes
    ----------
    edges : array (J,)
        Candidates for the clip, the last one the public maximum or the last edge.
    beyond : array (J,)
        Estimated number of rows beyond each, decreasing.
    lost : array (J,)
        Estimated share of Σ‖z‖² that clipping there takes away.
    surely_lost : array (J,)
        The same from counts less `RESOLVED` standard errors: what is lost even if nothing is assumed.
    kept_weight : array (J,)
        Estimated mean weight min(1, clip/‖z‖²) of a row.
    """

    edges: Floats
    beyond: Floats
    lost: Floats
    surely_lost: Floats
    kept_weight: Floats


def read_tail(counts: Floats, edges: Floats, *, noise: float, rows: float, largest: float) -> Tail:
    """Monotone tail counts; where noise hides them, a power law.

    The count beyond an edge is a sum of noisy counts. It is made monotone and not negative. Where it is below
    `RESOLVED` standard errors, rows are *assumed*: they continue the last slope seen, at least `LEAST_SLOPE`, and never
    more than what was counted or one standard error. (A few rows that noise alone puts at a thousand times the mean
    would be most of the mass.) Bins beyond ``largest``, where no row can be, are left out.
    """
    inside = edges < largest * 0.999
    grid = np.append(edges[inside], largest)
    cut = counts[: len(grid)]
    beyond = np.append(np.cumsum(cut[::-1])[::-1][1:], 0.0)
    beyond = np.maximum(optimize.isotonic_regression(beyond, increasing=False).x, 0.0)
    errors = noise * np.sqrt(np.maximum(np.arange(len(grid) - 1, -1, -1), 1))
    beyond = np.minimum(beyond, rows)
    sure = np.maximum.accumulate(np.maximum(beyond - RESOLVED * errors, 0.0)[::-1])[::-1]  # errors fall with the edge
    for j in range(1, len(grid)):
        if beyond[j] < RESOLVED * errors[j]:
            slope = LEAST_SLOPE if j < 2 else _slope(beyond[j - 2 : j], grid[j - 2 : j])
            continued = beyond[j - 1] * (grid[j - 1] / grid[j]) ** slope
            beyond[j] = min(continued, max(beyond[j], errors[j]))
    beyond = np.minimum.accumulate(beyond)
    beyond[-1] = 0.0
    lost, surely_lost = (_lost(counts_beyond, grid, rows) for counts_beyond in (beyond, sure))
    inner = np.maximum(-np.diff(np.append(rows, beyond)), 0.0)
    middle = np.append(grid[0] * 0.7, np.sqrt(grid[:-1] * grid[1:]))
    kept = np.minimum(1.0, grid[:, np.newaxis] / middle[np.newaxis]) @ inner / max(inner.sum(), 1.0)
    return Tail(grid, beyond, lost, surely_lost, np.minimum(kept, 1.0))  # a product and a sum round differently


def _lost(beyond: Floats, grid: Floats, rows: float) -> Floats:
    """Share of Σ‖z‖² beyond each edge: ∫ of the tail count from there on."""
    mass = np.append(np.cumsum(_integrals(beyond, grid)[::-1])[::-1], 0.0)
    total = grid[0] * (rows + beyond[0]) / 2 + mass[0]
    return np.asarray(np.minimum(mass / max(total, 1e-9), 1.0))


def _integrals(beyond: Floats, grid: Floats) -> Floats:
    """∫ of the tail count from each edge to the next, a power law between them, a straight line down to zero."""
    ratio = grid[1:] / grid[:-1]
    line = (beyond[:-1] + beyond[1:]) / 2 * np.diff(grid)
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = np.log(beyond[:-1] / beyond[1:]) / np.log(ratio) - 1
        curve = beyond[:-1] * grid[:-1] * -np.expm1(-steep * np.log(ratio)) / steep
    return np.asarray(np.where((beyond[1:] > 0) & (np.abs(steep) > 1e-6), curve, line))


def _slope(beyond: Floats, grid: Floats) -> float:
    steep = math.log(max(beyond[0], 1e-9) / max(beyond[1], 1e-9)) / math.log(grid[1] / grid[0])
    return min(max(steep, LEAST_SLOPE), 12.0)
