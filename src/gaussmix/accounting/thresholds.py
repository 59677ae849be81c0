r"""The account of noisy counts by column: bins of a public grid, and keys that nobody has declared.

Pure functions of public parameters: nothing in this module sees data.

A row is in one bin, or has one key, of every column. Bins of a *public* grid all get noise, empty ones too: a Gaussian
release of sensitivity one a column. Keys that nobody has declared can get noise only where they occur, so that a key's
being there at all would tell of its row; it is released only if its noisy count reaches a threshold T.

What the threshold costs. Take two tables A and A′, the second with one row more. Keys that both have, and all bins, get
the same noise in both: a Gaussian release of sensitivity at most one a column. A key of the row that A has not occurs
once in A′, and shows there with the probability p = P(1 + Z ≥ T), in A never. Let M(A), M(A′) be the outputs and M°
that of A′ with its new keys left out, whether they pass or not. M(A) and M° are Gaussian releases, and their curve is
δ_G(ε), slack included, in both directions. A row has at most one new key a column, whose noise is independent of all
other noise. So, with p the sum over columns:

- M(A′) is M° but for an event of probability at most p: P(M(A′) ∈ E) ≤ e^ε P(M(A) ∈ E) + δ_G + p.
- An output without new keys is at least 1 - p times as probable under M(A′) as under M°, and M(A) has no other
  outputs: (M(A) - e^ε M(A′))₊ ≤ (M(A) - e^ε (1 - p) M°)₊ ≤ (1 - p) (M(A) - e^ε M°)₊ + p M(A), whose integral is at most
  δ_G + p.

Hence δ(ε) ≤ δ_G(ε) + Σp. Both lines hold on every path of releases that are chosen one after the other, if Σp is
bounded on every path: a ledger adds p to what it has for failures. Where one row replaces another there may be a new
key a column on either side: twice as much.

p itself. Counts are integers in units of 2^-bits, noise is a discrete Gaussian: with m = T·2^bits - 2^bits ≥ 1,

.. math:: P(Z \ge m) = \frac{\sum_{z \ge m} e^{-z^2/2\sigma^2}}{\sum_z e^{-z^2/2\sigma^2}}
          \le \frac{\int_{m-1}^\infty e^{-z^2/2\sigma^2}\,dz}{\sqrt{2\pi\sigma^2}}
          = \bar\Phi\Bigl(\frac{m-1}\sigma\Bigr),

since each term above is at most the integral over the unit before it, and the sum below is, by Poisson's formula,
√(2πσ²) Σ exp(-2π²σ²k²) ≥ √(2πσ²).

How many coordinates the slack counts. Those that differ between the two tables: the others have one law. For keys that
is one a column, or two where a row replaces another, however many keys there are.

>>> account = counts_account(1.0, 1e-6, grids=(4001, 4001), keys=2)
>>> round(account.threshold_in_rows, 1), account.holds(1.0, 1e-6, "zero-out"), account.holds(1.0, 0.99e-6, "zero-out")
(45.4, True, False)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.lattice import LatticeAccount, diagonal_sigma, lattice_account
from gaussmix.accounting.lattice_noise import Share
from gaussmix.accounting.rounding import normal_tail_up, round_down, round_up
from gaussmix.errors import ArgumentError, BudgetUnmetError, NotPrivateError

__all__ = ["THRESHOLD_SHARE", "CountsAccount", "counts_account", "key_failure", "releases_of_counts", "with_threshold"]

THRESHOLD_SHARE = Fraction(1, 5)
"""Part of δ for thresholds, where there are keys: noise and threshold together are least near it."""

_KEY_COORDINATES = 2  # that differ between neighbours, at most
_STEPS_PER_SIGMA = 2**30
_MOST_SIGMAS = 64  # whose tail is below 10⁻⁸⁰⁰


def releases_of_counts(grids: Sequence[int], keys: int, refined: Sequence[int]) -> tuple[list[Share], list[int]]:
    """Shares of μ² and coordinates: every grid, every column of keys, then the refined grids of the first.

    Columns have equal shares; a grid and its refinement halve theirs.
    """
    columns = len(grids) + keys
    if not columns or len(refined) not in (0, len(grids)):
        raise ArgumentError("Counts need at least one column, and refined grids for each grid or for none.")
    whole, first = Fraction(1, columns), Fraction(1, columns * (2 if refined else 1))
    shares = [first] * len(grids) + [whole] * keys + [first] * len(refined)
    return list(shares), [*grids, *([_KEY_COORDINATES] * keys), *refined]


def key_failure(threshold: int, *, sigma: float, bits: int) -> float:
    """Φ̄((m - 1)/σ), m = threshold - 2^bits, rounded up: how often a key that occurs once shows."""
    excess = threshold - 2**bits - 1
    if excess < 0:
        return 1.0
    return min(round_up(normal_tail_up(Fraction(excess) / Fraction(sigma))), 1.0)


@dataclass(frozen=True)
class CountsAccount:
    """Noisy counts by column, those of undeclared keys above a threshold.

    Raises
    ------
    NotPrivateError
        If the threshold is too low for what is claimed, or the noise is.

    Attributes
    ----------
    lattice : LatticeAccount
        The noise of every release, in the order of `releases_of_counts`.
    keyed : tuple of int
        Which of the releases are of keys.
    threshold : int
        Noisy counts of keys below it are not released; in units of 2**-bits of a row.
    threshold_delta : float
        Σp, part of δ.
    epsilon, delta : float
        The budget, threshold included. Through a ledger, that of all of its releases together.
    """

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
        """Compute the claim anew: Σp over the columns of keys, and δ(ε) with it."""
        self.lattice.verify()
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        check.nonnegative(threshold_delta=self.threshold_delta)
        if len(set(self.keyed)) < len(self.keyed) or any(
            type(i) is not int or not 0 <= i < len(self.lattice.noise_mu) for i in self.keyed
        ):
            raise ArgumentError("keyed must name releases of the account, each once.")
        if self.keyed and (type(self.threshold) is not int or self.threshold < 1):
            raise ArgumentError("threshold must be an integer ≥ 1 where there are keys.")
        if Fraction(self.threshold_delta) < self._failures() or not self._gives():
            raise NotPrivateError(
                f"threshold={self.threshold} with this noise does not give what this account claims, "
                f"epsilon={self.epsilon!r} and delta={self.delta!r}."
            )

    def holds(self, epsilon: float, delta: float, relation: Relation) -> bool:
        """Whether a claim is the budget that this account is for (as :meth:`LatticeAccount.holds`)."""
        self.verify()
        return (epsilon, delta, relation) == (self.epsilon, self.delta, self.relation)

    def _gives(self) -> bool:
        left = Fraction(self.delta) - Fraction(self.threshold_delta)
        return left > 0 and self.lattice.gives(self.epsilon, round_down(left))

    def _failures(self) -> Fraction:
        return _failures(self.lattice, self.keyed, self.threshold)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self.lattice.relation

    @property
    def mu(self) -> float:
        """Gaussian-DP budget of the noise, without what thresholds add to δ."""
        return self.lattice.mu

    @property
    def analysis(self) -> Literal["exact"]:
        """What the claim rests on: the exact curve of the Gaussian mechanism, a proved slack, and the proof above."""
        return "exact"

    @property
    def threshold_in_rows(self) -> float:
        """The threshold as a number of rows."""
        return math.ldexp(self.threshold, -self.lattice.bits)


def _failures(lattice: LatticeAccount, keyed: Sequence[int], threshold: int) -> Fraction:
    """Σp: one new key a column, on either side where one row replaces another."""
    sides = 2 if lattice.relation == "replace-one" else 1
    each = [
        key_failure(threshold, sigma=diagonal_sigma(lattice.noise_mu[i], lattice.bits), bits=lattice.bits)
        for i in keyed
    ]
    return sides * sum((Fraction(p) for p in each), Fraction(0))


def with_threshold(
    lattice: LatticeAccount, keyed: Sequence[int], *, allowed: Fraction | float, epsilon: float, delta: float
) -> CountsAccount:
    """Return the account with the least threshold whose Σp is allowed, beside a lattice; the claim is (ε, δ).

    Thresholds are searched for in steps of 2⁻³⁰ σ above one row. The least step is a mathematical function of the
    arguments, so the threshold is the same on every processor.
    """
    if not keyed:
        return CountsAccount(lattice, (), 0, 0.0, epsilon, delta)
    allowed = Fraction(allowed)
    if allowed <= 0:
        raise BudgetUnmetError("No part of delta is left for the threshold of keys: ask for a larger share.")
    sigma = Fraction(max(diagonal_sigma(lattice.noise_mu[i], lattice.bits) for i in keyed))

    def threshold(steps: int) -> int:
        return (1 << lattice.bits) + 1 + math.ceil(sigma * Fraction(steps, _STEPS_PER_SIGMA))

    def enough(steps: int) -> bool:
        return _failures(lattice, keyed, threshold(steps)) <= allowed

    low, high = -1, _MOST_SIGMAS * _STEPS_PER_SIGMA  # not enough, enough
    if not enough(high):
        raise BudgetUnmetError(f"No threshold keeps keys within {float(allowed):.3g} of delta: ask for a larger delta.")
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
    relation: Relation = "zero-out",
) -> CountsAccount:
    """Budget → noise and threshold.

    Parameters
    ----------
    epsilon, delta : float
    grids, refined : sequence of int
        Bins of every grid, and of its refinement where there is one.
    keys : int
        Columns of keys.
    relation : {"zero-out", "replace-one"}
    """
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    shares, coordinates = releases_of_counts(grids, keys, refined)
    allowed = THRESHOLD_SHARE * Fraction(delta) if keys else Fraction(0)
    within = round_down(Fraction(delta) - allowed)
    lattice = lattice_account(epsilon, within, shares=shares, coordinates=coordinates, relation=relation)
    keyed = tuple(range(len(grids), len(grids) + keys))
    return with_threshold(lattice, keyed, allowed=allowed, epsilon=epsilon, delta=delta)
