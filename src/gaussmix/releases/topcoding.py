"""Thresholds for top-coding numeric columns, found from noisy one-way counts.

Post-processing: every function here reads declared bounds and noisy counts, never rows.

The rule is a fence, not an extreme quantile. The 99.5 % point of some ten thousand rows lies below the noise of the
counts; the median and the 90 % point do not. The upper threshold is median + 3·(90 % point - median), and the lower one
likewise. A normal column is coded only beyond 3.8 standard deviations (next to no row); lognormal and exponential
columns lose about 1 % of their rows.

Columns with a point mass, such as many zeros, have no useful median. Their centre is the mass, which is never coded,
and the fence is computed from the remaining rows.

>>> from gaussmix.data.marginals import grid
>>> rng = np.random.default_rng(0)
>>> edges, sigma = grid(0.0, 100_000.0), 60.0
>>> incomes = np.exp(8 + 0.7 * rng.standard_normal(30_000))
>>> counts = np.histogram(incomes, edges)[0] + sigma * rng.standard_normal(len(edges) - 1)
>>> thresholds_of(counts, edges, noise=sigma, rows=30_000.0)
(0.0, 15700.0)
"""

from __future__ import annotations

import math

import numpy as np

from gaussmix._types import Floats

__all__ = ["thresholds_of", "without_empty_ends"]

TAIL_SHARE = 0.2
"""The quantile of a side of the centre has this share of the side's rows beyond it: the 10 and 90 % points."""

FENCE = 3.0
"""Distance of the threshold from the centre, in units of the distance of that quantile."""

RARE_SHARE, RARE_FENCE = 0.5, 6.6
"""The same two numbers for rows off a point mass that are too few for `TAIL_SHARE`."""

RESOLVED = 3.0
"""Number of standard deviations of a count by which the rows beyond the quantile must exceed zero."""

LARGEST_SHARE = 0.02
"""Largest share of the rows that one threshold may code: as estimated, plus one standard deviation of a count."""

LEAST_GAIN = 1.5
"""A threshold is used if the declared bound is at least this many times as far from the centre."""

LEAST_ROWS = 30.0
"""Number of standard deviations of a count below which a table has too few rows for any threshold."""

EMPTY_PENALTY = 2.0
"""Cells at the ends of the range are taken as empty unless their squared z-scores exceed this on average."""


def thresholds_of(counts: Floats, edges: Floats, *, noise: float, rows: float) -> tuple[float, float]:
    """Return the lower and the upper threshold of a column; a declared bound where a tail is not coded.

    Parameters
    ----------
    counts : array (J,)
        Noisy number of rows in each cell. Missing values are in no cell.
    edges : array (J + 1,)
        Edges of the cells (:func:`gaussmix.data.marginals.grid`); the first and the last are the declared bounds.
    noise : float
        Standard deviation of the noise of a count.
    rows : float
        Noisy number of rows.
    """
    lower, upper = float(edges[0]), float(edges[-1])
    if rows < LEAST_ROWS * noise:
        return lower, upper
    counts = without_empty_ends(np.asarray(counts, dtype=np.float64), noise)
    # The lower side is the upper side of the mirrored column.
    high = _upper_threshold(counts, edges, noise, rows)
    low = -_upper_threshold(counts[::-1], -edges[::-1], noise, rows)
    return _rounded(low, high, lower, upper) if low < high else (lower, upper)


def _upper_threshold(counts: Floats, edges: Floats, noise: float, rows: float) -> float:
    """Return the upper threshold, not rounded; the upper bound where the upper tail is not coded."""
    bound = float(edges[-1])
    mode = int(np.argmax(counts))
    mass = bool(counts[mode] > rows / 2)  # a point mass, or a bulk that the grid does not resolve
    if mass:
        centre, first = _place_of_mass(edges, mode), mode + 1
        tail, outer = counts[first:], edges[first:]
        empty_below = not counts[:mode].any()
        # With nothing on the other side, rows off the mass are known from two counts instead of many.
        size = rows - counts[mode] if empty_below else float(tail.sum())
    else:
        centre = _point_with_rows_beyond(counts, edges, float(counts.sum()) / 2)  # the median
        first = min(max(int(np.searchsorted(edges, centre, "right")) - 1, 0), len(counts) - 1)
        tail, outer = counts[first:].copy(), edges[first:].copy()
        tail[0] *= (edges[first + 1] - centre) / (edges[first + 1] - edges[first])
        outer[0] = centre
        size = float(tail.sum())
    share, fence = TAIL_SHARE, FENCE
    if mass and share * size < RESOLVED * noise:
        share, fence = RARE_SHARE, RARE_FENCE
    if not len(tail) or share * size < RESOLVED * noise or tail.sum() < 0.7 * size:
        return bound  # the noise hides this tail
    # One standard deviation fewer rows: noise rather moves the threshold outward.
    quantile = _point_with_rows_beyond(tail, outer, max(share * size - noise, share * size / 4))
    # The fewer rows a side has, the nearer its threshold: rows there have the same leverage.
    threshold = centre + fence * min(1.0, math.sqrt(2 * size / rows)) * (quantile - centre)
    if mass:
        threshold = max(threshold, _point_with_rows_beyond(tail, outer, size / 2))
    threshold = _with_few_rows_beyond(tail, outer, threshold, max(LARGEST_SHARE * rows - noise, 0.0))
    return threshold if bound - centre >= LEAST_GAIN * (threshold - centre) else bound


def without_empty_ends(counts: Floats, noise: float) -> Floats:
    """Set cells at the ends to 0 where counts do not stand out from the noise.

    The first and the last cell kept are those that maximise the sum of (count/noise)² - `EMPTY_PENALTY`.
    """
    gain = (counts / noise) ** 2 - EMPTY_PENALTY
    last = int(np.argmax(np.cumsum(gain)))
    first = len(counts) - 1 - int(np.argmax(np.cumsum(gain[::-1])))
    kept = counts.copy()
    if first <= last:
        kept[:first] = 0.0
        kept[last + 1 :] = 0.0
    return kept


def _place_of_mass(edges: Floats, cell: int) -> float:
    """Return the likely value of a point mass in a cell: 0, a declared bound, or the middle."""
    low, high = float(edges[cell]), float(edges[cell + 1])
    if low <= 0 <= high:
        return 0.0
    if cell == 0:
        return low
    return high if cell == len(edges) - 2 else (low + high) / 2


def _point_with_rows_beyond(counts: Floats, edges: Floats, rows: float) -> float:
    """Return the point beyond which ``rows`` rows lie; within a cell the tail falls exponentially."""
    sums = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
    # Decreasing: the mean of the largest decreasing minorant and the smallest decreasing majorant.
    beyond = (np.minimum.accumulate(sums) + np.maximum.accumulate(sums[::-1])[::-1]) / 2
    i = int(np.argmax(beyond <= rows))
    if i == 0:
        return float(edges[0])
    before, after = beyond[i - 1], beyond[i]
    # Counts fall within the cell: a straight line would place the point too far out.
    part = math.log(before / rows) / math.log(before / after) if after > 0 else (before - rows) / (before - after)
    return float(edges[i - 1] + (edges[i] - edges[i - 1]) * part)


def _with_few_rows_beyond(counts: Floats, edges: Floats, threshold: float, most: float) -> float:
    """Move a threshold outward to the next edges until at most ``most`` rows are estimated beyond it."""
    while threshold < edges[-1]:
        i = int(np.searchsorted(edges, threshold, "right")) - 1
        inside = counts[i] * (edges[i + 1] - threshold) / (edges[i + 1] - edges[i]) if i >= 0 else 0.0
        if inside + counts[i + 1 :].sum() <= most:
            break
        threshold = float(edges[i + 1])
    return threshold


def _rounded(low: float, high: float, lower: float, upper: float) -> tuple[float, float]:
    """Round thresholds outward by at most a twentieth of the coded range, within the declared bounds.

    The unit is the largest power of ten below a twentieth of the range. Multiples of it print as written: 0.3, not
    0.30000000000000004.
    """
    exponent = math.floor(math.log10((high - low) / 20))
    ends = []
    for outward, value in ((math.floor, low), (math.ceil, high)):
        scaled = value * 10.0**-exponent
        exact = math.isclose(scaled, round(scaled), rel_tol=1e-12, abs_tol=1e-9)
        ends.append(float(f"{round(scaled) if exact else outward(scaled)}e{exponent}"))
    return max(ends[0], lower), min(ends[1], upper)
