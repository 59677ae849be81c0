"""What the releases of a table in passes and steps are: their shares of the budget, and how many numbers each has.

Public constants. The mechanism draws by them, and whoever reads a release checks its account against them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.errors import ArgumentError
from gaussmix.models.passes import POWERS
from gaussmix.models.tails import BINS

__all__ = [
    "AUTOMATIC_PASSES",
    "SCHEDULES",
    "STEPS",
    "Schedule",
    "accounts_for",
    "budgets_of",
    "rates_of",
    "releases_of",
    "schedule_of",
]

AUTOMATIC_PASSES = 4
"""Where nobody says how many."""

COUNT_SHARE = Fraction(1, 200)
"""Part of μ² for the noisy count of rows, or of persons and their rows, where there are several passes."""

SAMPLE_ROWS = 200
"""Rows of a sample in units of m^1.5/μ, for the Gram matrix of a pass."""

HISTOGRAM_ROWS = 20_000
"""Rows of a histogram in units of 1/μ: two metrics with 2 % of μ² then have noise of 1/2,000 of them a bin."""

LEAST_ROWS = 100_000
"""No sample is smaller: reading so many takes no time, and tails are made of few of them."""

LARGEST_RATE = 0.5
"""A sample that is a larger share than this saves too little: all rows are read."""

STEPS_SHARE = Fraction(2, 5)
"""Part of μ² for them all; the passes before them have the rest."""

STEPS = {
    3: ("0.2", "0.3", "0.5"),
    4: ("0.15", "0.2", "0.25", "0.4"),
    6: ("0.1", "0.12", "0.14", "0.16", "0.2", "0.28"),
}
"""How they share it, by their number: the last steps have the least left to find."""

WEIGHT_SHARE = Fraction(3, 100)
"""Part of a step for the sum of p(1 - p)."""

_LAST_DIGITS = 1 - Fraction(1, 10**9)  # parts of μ are rounded down


@dataclass(frozen=True)
class Schedule:
    """Shares of μ²: one for every pass, one for the histogram before every pass but the first.

    >>> Schedule().shares()[0], sum(Schedule().shares()) <= 1
    (Fraction(47, 1000), True)
    """

    passes: tuple[str, ...] = ("0.05", "0.10", "0.20", "0.65")
    histogram: str = "0.02"

    def shares(self) -> tuple[Fraction, ...]:
        """In the order of use: pass, then histogram and pass in turn; they add up to 1."""
        q = Fraction(self.histogram)
        rest = 1 - q * (len(self.passes) - 1)
        weights = [Fraction(share) for share in self.passes]
        first, *later = [rest * weight / sum(weights) for weight in weights]
        return (first, *(share for weight in later for share in (q, weight)))

    def coordinates(self, m: int) -> tuple[int, ...]:
        """Of each release, as :func:`gaussmix.accounting.discrete.lattice_account` counts them."""
        return (m * m, *(count for _ in self.passes[1:] for count in (len(POWERS) * BINS, m * m)))


SCHEDULES = {
    1: Schedule(("1",)),
    2: Schedule(("0.25", "0.75")),
    3: Schedule(("0.10", "0.25", "0.65")),
    4: Schedule(),
}
"""By the number of passes."""


def schedule_of(passes: int) -> Schedule:
    """How the budget is shared among so many passes."""
    if passes not in SCHEDULES:
        raise ArgumentError(f"passes must be one of {', '.join(map(str, SCHEDULES))}, got {passes!r}.")
    return SCHEDULES[passes]


def releases_of(
    schedule: Schedule, m: int, *, steps: int = 0, persons: bool = False
) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """Shares of μ² in the order of use, and how many numbers each release has, as an account counts them.

    The first of several passes is preceded by a count of rows; where the unit is a person, by one of persons and one of
    their rows. With ``steps`` on a likelihood each of them is a gradient, one number for every column but the target's,
    and a weight.
    """
    shares, coordinates = schedule.shares(), schedule.coordinates(m)
    if len(shares) > 1:
        shares = (COUNT_SHARE, *(share * (1 - COUNT_SHARE) for share in shares))
        coordinates = (1 + persons, *coordinates)
    if not steps:
        return shares, coordinates
    if steps not in STEPS:
        raise ArgumentError(f"steps must be one of 0, {', '.join(map(str, STEPS))}, got {steps!r}.")
    of_step = (1 - WEIGHT_SHARE, WEIGHT_SHARE)
    parts = [STEPS_SHARE * Fraction(weight) * part for weight in STEPS[steps] for part in of_step]
    return (*(share * (1 - STEPS_SHARE) for share in shares), *parts), (*coordinates, *(m - 1, 1) * steps)


def budgets_of(account: LatticeAccount, steps: int) -> tuple[tuple[float, ...], tuple[tuple[float, float], ...]]:
    """An account's parts of μ: those of the passes, and (gradient, weight) of every step."""
    first = len(account.noise_mu) - 2 * steps
    return account.noise_mu[:first], tuple(
        zip(account.noise_mu[first::2], account.noise_mu[first + 1 :: 2], strict=True)
    )


def rates_of(account: LatticeAccount, rows: float, m: int, *, steps: int = 0) -> list[float]:
    """Share of the rows that each release of a pass reads: the first and the last pass all, the others a sample.

    A histogram only chooses metric and clip, and reads no more rows than it needs for that; passes between the first
    and the last read as many or more, so that no table is read for histograms alone. ``rows`` is noisy or imagined,
    all else public. Where the unit is a person, read persons for rows.
    """
    passes = len(account.noise_mu) // 2 - steps
    if not passes:
        return [1.0]
    mu = account.mu * math.sqrt(1 - STEPS_SHARE) if steps else account.mu
    early, histogram = (
        _rate(needed, mu, rows) for needed in (max(SAMPLE_ROWS * m**1.5, HISTOGRAM_ROWS), HISTOGRAM_ROWS)
    )
    return [1.0, *[histogram, early] * (passes - 2), histogram, 1.0]


def _rate(needed: float, mu: float, rows: float) -> float:
    """Of a sample that has ``needed``/μ rows, or `LEAST_ROWS`; 1 where that is not worth it."""
    rate = max(needed / mu, LEAST_ROWS) / max(rows, 1.0)
    return rate if rate <= LARGEST_RATE else 1.0


def accounts_for(account: LatticeAccount, passes: int, m: int, *, steps: int = 0, persons: bool = False) -> bool:
    """Whether an account has every release of so many passes over m columns, each with its share and its numbers.

    The count and the histograms are not published, but what was asked of the rows was chosen by them: an account in
    which they cost next to nothing would claim too much. Gradients of two rows may be opposite: where one row is
    replaced by another their sum moves by twice the clip, which no account here has; nor has one room for the
    gradients of all rows of a person.
    """
    # Shares are compared with ours, and not with each other, on purpose. Nothing in a file shows the noise of a count
    # or a histogram: an account in which their parts are next to 0 has squares that add up to its own, smaller μ², and
    # all published passes are as it says. Only the shares that releases were drawn with can refuse it. A change
    # of the shares is a change of the file format (docs/formats.md).
    if steps and (persons or account.relation != "zero-out"):
        return False
    shares, coordinates = releases_of(schedule_of(passes), m, steps=steps, persons=persons)
    squares = [Fraction(part) ** 2 for part in account.noise_mu]
    if len(squares) != len(shares):
        return False
    least = sum(squares) * _LAST_DIGITS
    return all(square >= share * least for square, share in zip(squares, shares, strict=True)) and all(
        counted >= count for counted, count in zip(account.coordinates, coordinates, strict=True)
    )
