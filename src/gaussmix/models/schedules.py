"""What the releases of a table in passes are: how the budget is shared among them, and how many numbers each has.

Public constants. The mechanism draws by them, and whoever reads a release checks its account against them.
"""

from __future__ import annotations

from fractions import Fraction

from gaussmix.accounting.lattice import LatticeAccount
from gaussmix.errors import ArgumentError
from gaussmix.models.passes import SCHEDULES, Schedule

__all__ = ["accounts_for", "rates_of", "releases_of", "schedule_of"]

COUNT_SHARE = Fraction(1, 200)
"""Part of μ² for the noisy count of rows, where there are several passes."""

SAMPLE_ROWS = 200
"""Rows of a sample in units of m^1.5/μ."""

LARGEST_RATE = 0.25
"""A sample that is a larger share than this saves too little: all rows are read."""

_LAST_DIGITS = 1 - Fraction(1, 10**9)  # parts of μ are rounded down


def schedule_of(passes: int) -> Schedule:
    """How the budget is shared among so many passes."""
    if passes not in SCHEDULES:
        raise ArgumentError(f"passes must be one of {', '.join(map(str, SCHEDULES))}, got {passes!r}.")
    return SCHEDULES[passes]


def releases_of(schedule: Schedule, m: int, *, persons: bool = False) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """Shares of μ² in the order of use, and how many numbers each release has, as an account counts them.

    The first of several is a count of rows; where the unit is a person, a count of persons and one of their rows.
    """
    shares, coordinates = schedule.shares(), schedule.coordinates(m)
    if len(shares) == 1:
        return shares, coordinates
    return (COUNT_SHARE, *(share * (1 - COUNT_SHARE) for share in shares)), (1 + persons, *coordinates)


def rates_of(account: LatticeAccount, rows: float, m: int) -> list[float]:
    """Share of the rows that each release but the count reads: the first and the last all, those between a sample.

    ``rows`` is noisy or imagined, all else public. Where the unit is a person, read persons for rows.
    """
    between = max(len(account.noise_mu) - 3, 0)
    rate = SAMPLE_ROWS * m**1.5 / (account.mu * max(rows, 1.0))
    return [1.0] + [rate if rate <= LARGEST_RATE else 1.0] * between + [1.0] * (between > 0)


def accounts_for(account: LatticeAccount, passes: int, m: int, *, persons: bool = False) -> bool:
    """Whether an account has every release of so many passes over m columns, each with its share and its numbers.

    The count and the histograms are not published, but what was asked of the rows was chosen by them: an account in
    which they cost next to nothing would claim too much.
    """
    shares, coordinates = releases_of(schedule_of(passes), m, persons=persons)
    squares = [Fraction(part) ** 2 for part in account.noise_mu]
    if len(squares) != len(shares):
        return False
    least = sum(squares) * _LAST_DIGITS
    return all(square >= share * least for square, share in zip(squares, shares, strict=True)) and all(
        counted >= count for counted, count in zip(account.coordinates, coordinates, strict=True)
    )
