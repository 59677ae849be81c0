r"""The account of Gaussian releases whose noise is a discrete Gaussian on the integers.

Pure functions of public parameters: nothing in this module sees data.

A release adds a discrete Gaussian, P(z) ∝ exp(-z²/2σ²), to each of some integers. Had it added a *rounded* Gaussian,
it would be post-processing of the Gaussian mechanism, hence exactly μ-Gaussian-DP with μ² = Σ(sensitivity/σ)². The two
laws are within total variation 0.021/σ² of each other a coordinate (σ ≥ 0.74), so a whole transcript of releases,
chosen one after the other, is

.. math:: \delta(\varepsilon) = \delta_\text{Gauss}(\varepsilon; \mu) + (1 + e^\varepsilon) \sum 0.021/\sigma_c^2

the sum over all coordinates of all releases. docs/lattice.md has the proof. σ is 2^bits/μ with 2^bits lattice units for
a sensitivity of one, so the slack is made as small as one likes by a finer lattice.

>>> account = lattice_account(1.0, 1e-9, shares=("0.4", "0.6"), coordinates=(20**2, 20**2))
>>> account.bits, account.slack < 1e-9 / 1000, round(account.mu, 9)
(40, True, 0.181969295)
>>> account.holds(1.0, 1e-9, "zero-out"), round(account.hit_rate(0.05), 4)
(True, 0.0717)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from scipy import special

from gaussmix import _validation as check
from gaussmix.accounting.arguments import RELATIONS, ROUNDING, Relation
from gaussmix.accounting.gaussian import gaussian_delta_up, gaussian_mu
from gaussmix.accounting.lattice_noise import (
    LARGEST_SIGMA,
    LEAST_SIGMA,
    NATURAL_BITS,
    Share,
    amplification,
    diagonal_sigma,
    exact_slack,
    gaussian_slack,
    lattice_delta,
    off_diagonal_sigma,
    slack_delta,
    split_mu,
    total_variation,
)
from gaussmix.accounting.rounding import root_down, round_up
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError, NotPrivateError

__all__ = [
    "LARGEST_SIGMA",
    "LEAST_SIGMA",
    "NATURAL_BITS",
    "LatticeAccount",
    "account_within",
    "diagonal_sigma",
    "gaussian_slack",
    "lattice_account",
    "lattice_delta",
    "off_diagonal_sigma",
    "slack_delta",
    "split_mu",
    "total_variation",
]

SLACK_SHARE = Fraction(1, 1000)
"""The part of δ that is kept for the slack: a lattice that needs more is refined."""

_LEAST_BITS, _MOST_BITS = 2, 100


@dataclass(frozen=True)
class LatticeAccount:
    r"""What a sequence of releases may use, fixed before the first of them.

    Raises
    ------
    NotPrivateError
        If the parts exceed μ, the slack is less than they imply, or δ(ε) is more than ``delta``: also from
        ``dataclasses.replace``.

    Attributes
    ----------
    epsilon, delta : float
        The budget. In the account of a release through a ledger it is that of all of the ledger's releases together.
    relation : {"zero-out", "replace-one"}
    mu : float
        Gaussian-DP budget under the relation: δ_Gauss(ε; μ) + (1 + e^ε)·slack ≤ δ.
    noise_mu : tuple of float
        For every release, sensitivity of *one row added or removed* over noise: σ = 2^bits/noise_mu. Under
        ``"replace-one"`` a release changes by at most √2 times that, so these are √2 smaller than their parts of μ.
    bits : int
        2^bits lattice units are one squared row norm (and one count).
    slack : float
        η, total variation to rounded Gaussians over all releases: to be multiplied by 1 + e^ε.
    coordinates : tuple of int
        Of every release, as :func:`lattice_account` counts them.
    """

    epsilon: float
    delta: float
    relation: Relation
    mu: float
    noise_mu: tuple[float, ...]
    bits: int
    slack: float
    coordinates: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, value in self._plain().items():
            object.__setattr__(self, name, value)
        self.verify()

    def verify(self) -> None:
        r"""Compute the claim anew: Σμ_p² ≤ μ² (twice that for replace-one), Σ0.021 J_p μ_p²/4^bits ≤ η, and δ(ε) ≤ δ.

        Raises
        ------
        NotPrivateError
            If more is claimed than is true, or a σ is one for which the bound on the slack is not proved.
        """
        self._plain()
        squares = sum((Fraction(part) ** 2 for part in self.noise_mu), Fraction(0))
        if (2 if self.relation == "replace-one" else 1) * squares > Fraction(self.mu) ** 2:
            raise NotPrivateError(f"The releases use more than mu={self.mu!r}: their noise is too small for it.")
        if _unfit(self.noise_mu, self.bits) or Fraction(self.slack) < _slacks(
            self.noise_mu, self.bits, self.coordinates
        ):
            raise NotPrivateError(f"A lattice of bits={self.bits} has more than slack={self.slack!r} with this noise.")
        if not self.gives(self.epsilon, self.delta):
            raise NotPrivateError(
                f"mu={self.mu!r} with slack={self.slack!r} does not give what this account claims, "
                f"epsilon={self.epsilon!r} and delta={self.delta!r}."
            )

    def holds(self, epsilon: float, delta: float, relation: Relation) -> bool:
        """Whether a claim is the budget that this account is for.

        No other claim holds: through a ledger (ε, δ) covers releases that this account does not describe, so a smaller
        ε that its own noise supports may be false.
        """
        self.verify()
        return (epsilon, delta, relation) == (self.epsilon, self.delta, self.relation)

    def gives(self, epsilon: float, delta: float) -> bool:
        """Whether δ(ε) ≤ δ for the releases of this account alone, under its relation."""
        within = Fraction(delta) - amplification(epsilon) * Fraction(self.slack)
        return Fraction(gaussian_delta_up(epsilon, self.mu)) <= within

    def _plain(self) -> dict[str, Any]:
        """The values as floats, integers and tuples, whatever numbers and lists (of JSON) they came as."""
        bits = check.positive_integer(bits=self.bits)
        if not _LEAST_BITS <= bits <= _MOST_BITS:
            raise ArgumentError(f"bits must be from {_LEAST_BITS} to {_MOST_BITS}, got {bits}.")
        parts, counts = _values(noise_mu=self.noise_mu), _values(coordinates=self.coordinates)
        if not parts or len(parts) != len(counts):
            raise ArgumentError("noise_mu and coordinates must have one entry for each release.")
        return {
            "epsilon": check.positive(finite=True, epsilon=self.epsilon),
            "delta": check.in_interval(0, 1, delta=self.delta),
            "relation": check.choice(RELATIONS, relation=self.relation),
            "mu": check.positive(finite=True, mu=self.mu),
            "noise_mu": tuple(check.positive(finite=True, noise_mu=part) for part in parts),
            "bits": bits,
            "slack": check.nonnegative(slack=self.slack),
            "coordinates": tuple(check.positive_integer(coordinates=count) for count in counts),
        }

    def hit_rate(self, false_alarms: float = 0.05) -> float:
        r"""How often the best attacker is right about a row that is there, rounded up.

        Of all tests of "the row is in the table" on everything released, which accuse wrongly with probability at most
        α = ``false_alarms``, none finds the row with a probability above

        .. math:: \Phi\bigl(\mu + \Phi^{-1}(\alpha + \eta)\bigr) + \eta ,

        the power curve of μ-Gaussian-DP (Dong, Roth and Su, arXiv:1905.02383), with the slack η on both sides since
        each of the two laws is that far from one with rounded Gaussians. For the releases of this account alone, with
        unlimited knowledge of all other rows.
        """
        alpha = check.in_interval(0, 1, false_alarms=false_alarms) + self.slack
        if alpha >= 1:
            return 1.0
        power = float(special.ndtr(self.mu + special.ndtri(alpha)))
        return min((power + self.slack) * (1 + ROUNDING), 1.0)

    @property
    def analysis(self) -> Literal["exact"]:
        """What the claim rests on: the exact curve of the Gaussian mechanism, and a proved slack."""
        return "exact"

    @property
    def spent_delta(self) -> float:
        """δ(ε) of the releases of this account, at most ``delta``."""
        return lattice_delta(self.epsilon, mu=self.mu, total_slack=self.slack)

    @property
    def row_bits(self) -> int:
        """Rows are rounded to units of 2**-row_bits: 20, or fewer where the lattice had to be coarsened.

        A Gram matrix may not be rounded itself, for the sensitivity of a rounded sum is not that of the sum.
        """
        return min(NATURAL_BITS, self.bits) // 2

    @property
    def refinement(self) -> int:
        """Multiply the exact Gram matrix, in units of 2**(-2 row_bits), by 2**refinement to have it on the lattice."""
        return self.bits - 2 * self.row_bits


def _values(**named: Any) -> tuple[Any, ...]:
    ((name, values),) = named.items()
    if not isinstance(values, list | tuple):
        raise ArgumentTypeError(f"{name} must be a tuple or a list, got {type(values).__name__}.")
    return tuple(values)


def _slacks(parts: Sequence[float], bits: int, counts: Sequence[int]) -> Fraction:
    return sum((exact_slack(part, bits, count) for part, count in zip(parts, counts, strict=True)), Fraction(0))


def _unfit(parts: Sequence[float], bits: int) -> Literal["", "too coarse", "too fine"]:
    """Whether some σ = 2^bits/μ_p reaches 2⁵⁷, or some 2^bits/(√2 μ_p) is below 0.74."""
    if Fraction(2) ** bits > Fraction(math.nextafter(LARGEST_SIGMA, 0.0)) * Fraction(min(parts)):
        return "too fine"
    return "" if off_diagonal_sigma(max(parts), bits) >= LEAST_SIGMA else "too coarse"


def lattice_account(
    epsilon: float,
    delta: float,
    *,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    relation: Relation = "zero-out",
) -> LatticeAccount:
    r"""Budget → μ, its parts, and the lattice.

    μ is that of (ε, 0.999 δ) by the exact Gaussian curve, rounded down; the slack may take the δ/1000 that is left.

    Parameters
    ----------
    epsilon, delta : float
    shares : sequence of Fraction, float or str
        Each release's share of μ².
    coordinates : sequence of int
        m² for a symmetric matrix of order m, J for J counts; an upper bound will do.
    relation : {"zero-out", "replace-one"}
        Under ``"replace-one"``, ‖rrᵀ - r′r′ᵀ‖ ≤ √2 and two bins change by one: √2 times the noise.

    Raises
    ------
    BudgetUnmetError
        If no lattice serves: the smallest σ would call for a finer one and the largest for a coarser.
    """
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    allowed = SLACK_SHARE * Fraction(delta)
    mu = gaussian_mu(epsilon, math.nextafter(float(Fraction(delta) - allowed), 0.0))
    return account_within(
        epsilon, delta, mu=mu, allowed=allowed, shares=shares, coordinates=coordinates, relation=relation
    )


def account_within(
    epsilon: float,
    delta: float,
    *,
    mu: float,
    allowed: Fraction | float,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    relation: Relation,
) -> LatticeAccount:
    """The account of releases that have a μ and a part of δ for their slack, both within the budget.

    The lattice is the natural one of 40 bits if its slack (1 + e^ε)η fits into what is allowed and no σ reaches 2⁵⁷.
    Otherwise it is refined (larger slack than allowed) or coarsened by two bits at a time, one of the rows' bits (σ
    too large: budgets so small that rows need not be known to 2⁻²⁰).
    """
    check.choice(RELATIONS, relation=relation)
    if not shares or len(shares) != len(coordinates):
        raise ArgumentError("shares and coordinates must have one entry for each release.")
    counts = [check.positive_integer(coordinates=count) for count in coordinates]
    parts = split_mu(root_down(Fraction(mu) ** 2 / 2) if relation == "replace-one" else mu, shares)

    def unfit(bits: int) -> Literal["", "too coarse", "too fine"]:
        within = slack_delta(epsilon, round_up(_slacks(parts, bits, counts))) <= allowed
        return _unfit(parts, bits) or ("" if within else "too coarse")

    bits = NATURAL_BITS
    while bits > _LEAST_BITS and unfit(bits) == "too fine":
        bits -= 2
    while bits < _MOST_BITS and unfit(bits) == "too coarse":
        bits += 1
    if unfit(bits):
        raise BudgetUnmetError(
            f"No lattice serves epsilon={epsilon!r}, delta={delta!r} with these releases: its discreteness may cost "
            f"{float(allowed):.3g} of delta, and the noise must stay below 2**57 steps. Ask for a smaller epsilon or a "
            "larger delta."
        )
    slack = round_up(_slacks(parts, bits, counts))
    return LatticeAccount(epsilon, delta, relation, mu, parts, bits, slack, tuple(counts))
