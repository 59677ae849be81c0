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

HISTOGRAM_ROWS = 20_000
"""Rows of a histogram in units of 1/μ: two metrics with 2 % of μ² then have noise of 1/2,000 of them a bin."""

LARGEST_RATE = 0.5
"""A sample that is a larger share than this saves too little: all rows are read."""

_LAST_DIGITS = 1 - Fraction(1, 10**9)  # parts of μ are rounded down


def schedule_of(passes: int) -> Schedule:
    """How the budget is shared among so many passes."""
    if passes not in SCHEDULES:
        raise ArgumentError(f"passes must be one of {', '.join(map(str, SCHEDULES))}, got {passes!r}.")
    return SCHEDULES[passes]


def releases_of(schedule: Schedule, m: int) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """Shares of μ² in the order of use, and how many numbers each release has, as an account counts them."""
    shares, coordinates = schedule.shares(), schedule.coordinates(m)
    if len(shares) == 1:
        return shares, coordinates
    return (COUNT_SHARE, *(share * (1 - COUNT_SHARE) for share in shares)), (1, *coordinates)


def rates_of(account: LatticeAccount, rows: float, m: int) -> list[float]:
    """Share of the rows that each release but the count reads: the first and the last pass all, the others a sample.

    A histogram only chooses metric and clip, and reads no more rows than it needs for that, nor more than the passes
    between the first and the last. ``rows`` is noisy or imagined, all else public.
    """
    passes = len(account.noise_mu) // 2
    if not passes:
        return [1.0]
    early = _rate(SAMPLE_ROWS * m**1.5, account, rows)
    histogram = min(early, _rate(HISTOGRAM_ROWS, account, rows))
    return [1.0, *[histogram, early] * (passes - 2), histogram, 1.0]


def _rate(needed: float, account: LatticeAccount, rows: float) -> float:
    """Of a sample that has ``needed``/μ rows; 1 where that is not worth it."""
    rate = needed / (account.mu * max(rows, 1.0))
    return rate if rate <= LARGEST_RATE else 1.0


def accounts_for(account: LatticeAccount, passes: int, m: int) -> bool:
    """Whether an account has every release of so many passes over m columns, each with its share and its numbers.

    The count and the histograms are not published, but what was asked of the rows was chosen by them: an account in
    which they cost next to nothing would claim too much.
    """
    shares, coordinates = releases_of(schedule_of(passes), m)
    squares = [Fraction(part) ** 2 for part in account.noise_mu]
    if len(squares) != len(shares):
        return False
    least = sum(squares) * _LAST_DIGITS
    return all(square >= share * least for square, share in zip(squares, shares, strict=True)) and all(
        counted >= count for counted, count in zip(account.coordinates, coordinates, strict=True)
    )
