r"""The account of noisy counts by column: bins of a public grid, and undeclared keys above a threshold.

Every row has one bin, or one key, in every column. All bins of a *public* grid receive noise, including empty ones:
this is a Gaussian release of sensitivity one per column. Undeclared keys receive noise only where they occur, so the
presence of a key could reveal its row. A key is therefore released only if its noisy count reaches a threshold T.

**Cost of the threshold.** Let A and A′ be tables such that A′ has one additional row. Keys present in both tables, and
all bins, are a Gaussian release of sensitivity at most one per column. A key of the additional row that is not in A
occurs once in A′ and is released with probability p = P(1 + Z ≥ T); from A it is never released. Let M(A) and M(A′) be
the outputs, and let M° be the output of A′ without its new keys. M(A) and M° are Gaussian releases with the curve
δ_G(ε), slack included, in both directions. A row has at most one new key per column, whose noise is independent of all
other noise. With p now the sum over columns:

- M(A′) equals M° except for an event of probability at most p: P(M(A′) ∈ E) ≤ e^ε P(M(A) ∈ E) + δ_G + p.
- An output without new keys is at least 1 - p times as probable under M(A′) as under M°, and M(A) has no other
  outputs: (M(A) - e^ε M(A′))₊ ≤ (M(A) - e^ε (1 - p) M°)₊ ≤ (1 - p) (M(A) - e^ε M°)₊ + p M(A), whose integral is at most
  δ_G + p.

Hence δ(ε) ≤ δ_G(ε) + Σp. Both inequalities hold for adaptive sequences of releases if Σp is bounded on every path; a
ledger adds p to its failure probability. Under replace-one there may be a new key per column in either table, which
doubles Σp.

**Bound on p.** Counts are integers in units of 2^-bits and the noise is a discrete Gaussian. With
m = T·2^bits - 2^bits ≥ 1,

.. math:: P(Z \ge m) = \frac{\sum_{z \ge m} e^{-z^2/2\sigma^2}}{\sum_z e^{-z^2/2\sigma^2}}
          \le \frac{\int_{m-1}^\infty e^{-z^2/2\sigma^2}\,dz}{\sqrt{2\pi\sigma^2}}
          = \bar\Phi\Bigl(\frac{m-1}\sigma\Bigr),

since each term of the numerator is at most the integral over the unit interval before it, and the denominator is, by
Poisson summation, √(2πσ²) Σ exp(-2π²σ²k²) ≥ √(2πσ²).

**Coordinates of the slack.** Only coordinates that differ between the two tables count, since the others have the same
distribution. For keys this is one per column, or two under replace-one, for any number of keys.

>>> account = counts_account(1.0, 1e-6, grids=(4001, 4001), keys=2)
>>> budgets = (1.0, 1e-6), (1.0, 0.99e-6)
>>> round(account.threshold_in_rows, 1), *(account.holds(*budget, "add-remove") for budget in budgets)
(45.4, True, False)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LatticeAccount, Share, diagonal_sigma, lattice_account
from gaussmix.accounting.numerics import normal_tail_up, round_down, round_up
from gaussmix.accounting.parameters import Neighbours
from gaussmix.errors import ArgumentError, BudgetUnmetError, NotPrivateError

__all__ = ["THRESHOLD_SHARE", "CountsAccount", "counts_account", "key_failure", "releases_of_counts", "with_threshold"]

THRESHOLD_SHARE = Fraction(1, 5)
"""Share of δ for thresholds if there are keys; noise and threshold together are approximately minimal at this value."""

_KEY_COORDINATES = 2  # maximum number of coordinates that differ between neighbours
_STEPS_PER_SIGMA = 2**30
_MOST_SIGMAS = 64  # the tail beyond is below 10⁻⁸⁰⁰


def releases_of_counts(grids: Sequence[int], keys: int, refined: Sequence[int]) -> tuple[list[Share], list[int]]:
    """Return the shares of μ² and the coordinates of all grids, all columns of keys, and all refined grids.

    Columns have equal shares, which a grid and its refinement divide equally.
    """
    columns = len(grids) + keys
    if not columns or len(refined) not in (0, len(grids)):
        raise ArgumentError("At least one column is required, and refined must be empty or have one entry per grid.")
    whole, first = Fraction(1, columns), Fraction(1, columns * (2 if refined else 1))
    shares = [first] * len(grids) + [whole] * keys + [first] * len(refined)
    return list(shares), [*grids, *([_KEY_COORDINATES] * keys), *refined]


def key_failure(threshold: int, *, sigma: float, bits: int) -> float:
    """Return Φ̄((m - 1)/σ), m = threshold - 2^bits, rounded up: a bound on P(a key with count 1 is released)."""
    excess = threshold - 2**bits - 1
    if excess < 0:
        return 1.0
    return min(round_up(normal_tail_up(Fraction(excess) / Fraction(sigma))), 1.0)


@dataclass(frozen=True)
class CountsAccount:
    """Account of noisy counts by column, with a threshold for undeclared keys.

    Raises
    ------
    NotPrivateError
        If the threshold or the noise is too small for the claim.

    Attributes
    ----------
    lattice : LatticeAccount
        Noise of every release, in the order of `releases_of_counts`.
    keyed : tuple of int
        Indices of the releases of keys.
    threshold : int
        Smallest noisy count at which a key is released, in units of 2**-bits of a row.
    threshold_delta : float
        Σp, part of δ.
    epsilon, delta : float
        The budget, threshold included. With a ledger, the budget of all of its releases together.
    """

    mechanism: ClassVar[str] = "noisy counts by column"
    mechanism_words: ClassVar[str] = "Noisy counts by column"

    lattice: LatticeAccount
    keyed: tuple[int, ...]
    threshold: int
    threshold_delta: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if isinstance(self.lattice, Mapping):  # from a file
            object.__setattr__(self, "lattice", LatticeAccount(**self.lattice))
        object.__setattr__(self, "keyed", tuple(self.keyed))
        self.verify()

    def verify(self) -> None:
        """Recompute Σp over the columns of keys and δ(ε), and raise `NotPrivateError` if the claim does not hold."""
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        check.nonnegative(threshold_delta=self.threshold_delta)
        if len(set(self.keyed)) < len(self.keyed) or any(
            type(i) is not int or not 0 <= i < len(self.lattice.noise_mu) for i in self.keyed
        ):
            raise ArgumentError(f"keyed must contain distinct indices of the account's releases, got {self.keyed!r}.")
        if self.keyed and (type(self.threshold) is not int or self.threshold < 1):
            raise ArgumentError(f"threshold must be an integer ≥ 1 if keyed is not empty, got {self.threshold!r}.")
        left = Fraction(self.delta) - Fraction(self.threshold_delta)
        within = Fraction(self.threshold_delta) >= _failures(self.lattice, self.keyed, self.threshold)
        if not within or left <= 0 or not self.lattice.gives(self.epsilon, round_down(left)):
            raise NotPrivateError(
                f"threshold={self.threshold} with this noise does not give the claimed epsilon={self.epsilon!r} and "
                f"delta={self.delta!r}."
            )

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether a claim equals the budget of this account (as :meth:`LatticeAccount.holds`)."""
        return (epsilon, delta, neighbours) == (self.epsilon, self.delta, self.neighbours)

    @property
    def neighbours(self) -> Neighbours:
        """The neighbouring relation."""
        return self.lattice.neighbours

    @property
    def mu(self) -> float:
        """Gaussian-DP budget of the noise, without the contribution of thresholds to δ."""
        return self.lattice.mu

    @property
    def analysis(self) -> Literal["exact"]:
        """The analysis: the exact curve of the Gaussian mechanism, a proved bound on the slack, and the proof above."""
        return "exact"

    @property
    def threshold_in_rows(self) -> float:
        """The threshold as a number of rows."""
        return math.ldexp(self.threshold, -self.lattice.bits)


def _failures(lattice: LatticeAccount, keyed: Sequence[int], threshold: int) -> Fraction:
    """Return Σp: one new key per column, or two under replace-one."""
    sides = 2 if lattice.neighbours == "replace-one" else 1
    each = [
        key_failure(threshold, sigma=diagonal_sigma(lattice.noise_mu[i], lattice.bits), bits=lattice.bits)
        for i in keyed
    ]
    return sides * sum((Fraction(p) for p in each), Fraction(0))


def with_threshold(
    lattice: LatticeAccount, keyed: Sequence[int], *, allowed: Fraction | float, epsilon: float, delta: float
) -> CountsAccount:
    """Return the account of a lattice with the smallest threshold whose Σp is at most ``allowed``.

    Thresholds are searched in steps of 2⁻³⁰ σ above one row, so the result is the same on every processor.
    """
    if not keyed:
        return CountsAccount(lattice, (), 0, 0.0, epsilon, delta)
    allowed = Fraction(allowed)
    if allowed <= 0:
        raise BudgetUnmetError("No part of delta remains for finding undeclared levels. Increase share.")
    sigma = Fraction(max(diagonal_sigma(lattice.noise_mu[i], lattice.bits) for i in keyed))

    def threshold(steps: int) -> int:
        return (1 << lattice.bits) + 1 + math.ceil(sigma * Fraction(steps, _STEPS_PER_SIGMA))

    def enough(steps: int) -> bool:
        return _failures(lattice, keyed, threshold(steps)) <= allowed

    low, high = -1, _MOST_SIGMAS * _STEPS_PER_SIGMA  # not enough, enough
    if not enough(high):
        raise BudgetUnmetError(
            f"delta is too small to find undeclared levels: only {float(allowed):.3g} of it is available for this. "
            "Increase delta."
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    steps = high
    failures = round_up(_failures(lattice, keyed, threshold(steps)))
    return CountsAccount(lattice, tuple(keyed), threshold(steps), failures, epsilon, delta)


def counts_account(
    epsilon: float,
    delta: float,
    *,
    grids: Sequence[int] = (),
    keys: int = 0,
    refined: Sequence[int] = (),
    neighbours: Neighbours = "add-remove",
) -> CountsAccount:
    """Return the account whose noise and threshold meet a budget.

    Parameters
    ----------
    epsilon, delta : float
    grids, refined : sequence of int
        Number of bins of every grid, and of its refinement if there is one.
    keys : int
        Number of columns of keys.
    neighbours : {"add-remove", "replace-one"}
    """
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    shares, coordinates = releases_of_counts(grids, keys, refined)
    allowed = THRESHOLD_SHARE * Fraction(delta) if keys else Fraction(0)
    within = round_down(Fraction(delta) - allowed)
    lattice = lattice_account(epsilon, within, shares=shares, coordinates=coordinates, neighbours=neighbours)
    keyed = tuple(range(len(grids), len(grids) + keys))
    return with_threshold(lattice, keyed, allowed=allowed, epsilon=epsilon, delta=delta)
