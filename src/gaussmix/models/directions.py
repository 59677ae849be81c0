"""Which combination of features stands least above the noise, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix.models.problem import Problem
from gaussmix.tables.schema import INTERCEPT

__all__ = ["WeakestDirection", "weakest_direction"]

_SHARES = 0.5  # of the largest part, from which on another column is named too
_MOST = 3  # columns that are named


@dataclass(frozen=True)
class WeakestDirection:
    """The combination of features that stands least above the noise.

    Attributes
    ----------
    names : tuple of str
        Columns or levels that make it up, the largest part first.
    strength : float
        Standard deviations by which it stands above the noise.
    rows, deviation : float or None
        Rows of the level, as the release shows them, and the standard deviation of their noise, where it is one level.
    """

    names: tuple[str, ...]
    strength: float
    rows: float | None = None
    deviation: float | None = None

    def __str__(self) -> str:
        words = " with ".join(self.names)
        if self.rows is not None and self.deviation is not None:
            rows = max(self.rows, 0.0)
            if self.deviation < 1:  # a metric in which such rows are far out, and were shortened, tells parts of a row
                return f"{words}, about {_to_a_digit(rows)} ± {_to_a_digit(self.deviation)} rows, as shortened"
            return f"{words}, about {rows:.0f} ± {self.deviation:.0f} rows"
        return words


def _to_a_digit(rows: float) -> str:
    """Parts of a row to one digit that counts, never as a power of ten; whole rows as they are."""
    if rows >= 1:
        return f"{rows:.0f}"
    return np.format_float_positional(rows, precision=1, fractional=False, trim="-")


def weakest_direction(problem: Problem) -> WeakestDirection:
    """The direction of least uᵀMu/uᵀQu, by its parts across declared ranges.

    A category is measured from one level and the intercept. The same function of a row is written with all of its
    levels, their middle value moved to the intercept: a rare level is then one large part, whether or not it is the one
    that is left out.
    """
    u = problem.directions[1][:, 0]
    parts = {name: value / reach for name, value, reach in zip(problem.names, u, problem.reach, strict=True)}
    for source, left_out in problem.references.items():
        own = [problem.names[i] for i in problem.groups.get(source, ())]
        middle = float(np.median([0.0, *(parts[name] for name in own)]))
        parts = {name: value - middle if name in own else value for name, value in parts.items()}
        parts[left_out] = -middle
    parts.pop(INTERCEPT, None)
    if not parts:
        return WeakestDirection((INTERCEPT,), problem.strength)
    order = sorted(parts, key=lambda name: -abs(parts[name]))
    largest = abs(parts[order[0]])
    names = tuple(name for name in order[:_MOST] if abs(parts[name]) >= _SHARES * largest)
    rows, deviation = problem.counts.get(names[0], (None, None)) if len(names) == 1 else (None, None)
    return WeakestDirection(names, problem.strength, rows, deviation)
