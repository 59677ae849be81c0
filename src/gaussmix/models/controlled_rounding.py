"""Rounding of a two-way table so that rows and columns still add up.

>>> rounded(np.array([[0.5, 0.5], [0.5, 0.5]])).sum(axis=0).tolist()
[1, 1]

Every cell, every margin and the total become one of the two integers next to them (controlled rounding; Cox 1987). With
a row and a column that complete all sums to integers, the cells that are not yet integers lie on a cycle of alternating
rows and columns; moving them up and down in turn along it leaves all sums as they are and makes one of them an integer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gaussmix._types import Floats, Integers

__all__ = ["rounded"]

Mask = NDArray[np.bool_]

_WHOLE = 1e-9
"""A number that is nearer to an integer counts as one."""


def rounded(cells: Floats) -> Integers:
    """The table in integers: cells, margins and total are the floor or the ceiling of what they were."""
    table = np.zeros((cells.shape[0] + 1, cells.shape[1] + 1))
    table[:-1, :-1] = cells
    table[:-1, -1] = _completion(cells.sum(axis=1))
    table[-1, :-1] = _completion(cells.sum(axis=0))
    table[-1, -1] = _completion(table[-1, :-1].sum())
    part = _snapped(table - np.floor(table))
    whole = np.floor(table)
    while (cycle := _cycle((part > 0) & (part < 1))) is not None:
        up, down = tuple(np.array(cycle[::2]).T), tuple(np.array(cycle[1::2]).T)
        forward, backward = min(np.min(1 - part[up]), np.min(part[down])), min(np.min(part[up]), np.min(1 - part[down]))
        step = forward if forward <= backward else -backward  # the shorter move
        part[up] += step
        part[down] -= step
        part = _snapped(part)
    return np.asarray(whole + part, dtype=np.int64)[:-1, :-1]


def _completion(sums: Floats) -> Floats:
    """What is missing to the next integer."""
    return np.asarray(np.ceil(sums - _WHOLE) - sums)


def _snapped(part: Floats) -> Floats:
    return np.asarray(np.where(np.abs(part - np.round(part)) < _WHOLE, np.round(part), part))


def _cycle(fractions: Mask) -> list[tuple[int, int]] | None:
    """Cells of a closed walk along rows and columns in turn; None where no cell is a fraction.

    Sums are integers, so that a row or column with one fraction has another: the walk ends at a line it has seen.
    """
    if not fractions.any():
        return None
    cell = tuple(int(place) for place in np.argwhere(fractions)[0])
    lines, cells, axis = [(0, cell[0])], [(cell[0], cell[1])], 0
    while True:
        axis = 1 - axis
        line = (axis, cells[-1][axis])
        if line in lines:
            return cells[lines.index(line) :]
        lines.append(line)
        along = np.flatnonzero(fractions[:, line[1]] if axis else fractions[line[1]])
        other = int(along[along != cells[-1][1 - axis]][0])
        cells.append((other, line[1]) if axis else (line[1], other))
