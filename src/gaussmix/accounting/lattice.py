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
>>> account.bits, account.slack < 1e-9 / 1000, account.mu
(40, True, 0.18196929489734506)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.arguments import RELATIONS, Relation
from gaussmix.accounting.gaussian import gaussian_delta, gaussian_mu
from gaussmix.errors import ArgumentError, BudgetUnmetError

__all__ = [
    "LARGEST_SIGMA",
    "LEAST_SIGMA",
    "NATURAL_BITS",
    "LatticeAccount",
    "diagonal_sigma",
    "gaussian_slack",
    "lattice_account",
    "lattice_delta",
    "off_diagonal_sigma",
    "split_mu",
    "total_variation",
]

Share = Fraction | float | str

TOTAL_VARIATION = Fraction(21, 1000)
"""Total variation between discrete and rounded Gaussian is at most this over σ² (docs/lattice.md)."""

LEAST_SIGMA = 0.74
"""Below it, in lattice units, that bound fails."""

LARGEST_SIGMA = 2.0**57
"""The sampler saturates at 64 bits; 2⁶³ is 64 standard deviations away at this σ, an event of chance e⁻²⁰⁴⁸."""

NATURAL_BITS = 40
"""Rows in units of 2⁻²⁰ have Gram matrices in units of 2⁻⁴⁰."""

SLACK_SHARE = Fraction(1, 1000)
"""The part of δ that is kept for the slack: a lattice that needs more is refined."""

_MOST_BITS = 100


# ---------------------------------------------------------------------------------------------------------------
# Exact roundings
def _root_down(square: Fraction) -> float:
    """The largest float whose square is at most ``square``."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    while Fraction(above := math.nextafter(root, math.inf)) ** 2 <= square:
        root = above
    return root


def _root_up(square: Fraction) -> float:
    """The smallest float whose square is at least ``square``."""
    root = _root_down(square)
    return root if Fraction(root) ** 2 == square else math.nextafter(root, math.inf)


def _float_up(value: Fraction) -> float:
    """The smallest float that is at least ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def split_mu(mu: float, shares: Sequence[Share]) -> tuple[float, ...]:
    r"""Parts μ_p, each the largest float with μ_p² ≤ share·μ², so that Σμ_p² ≤ μ² holds exactly.

    Parameters
    ----------
    mu : float
        What is divided.
    shares : sequence of Fraction, float or str
        Shares of μ², positive, together at most 1. A string such as ``"0.07"`` means that decimal number; a float means
        the binary number it is.

    Examples
    --------
    >>> parts = split_mu(1.0, ["0.36", "0.64"])
    >>> parts, sum(Fraction(part) ** 2 for part in parts) <= 1
    ((0.6, 0.7999999999999999), True)
    """
    total = Fraction(check.positive(finite=True, mu=mu)) ** 2
    exact = [Fraction(share) for share in shares]
    if any(share <= 0 for share in exact) or sum(exact) > 1:
        raise ArgumentError("shares must be positive and add up to at most 1: give them as strings or Fractions.")
    return tuple(_root_down(share * total) for share in exact)


def diagonal_sigma(mu: float, bits: int) -> float:
    """σ = 2^bits/μ in lattice units, rounded up: for counts, and for the diagonal of a matrix."""
    return _float_up(Fraction(2) ** bits / Fraction(check.positive(finite=True, mu=mu)))


def off_diagonal_sigma(mu: float, bits: int) -> float:
    """σ = 2^bits/(√2 μ) in lattice units, rounded up: for entries above the diagonal of a symmetric matrix.

    (r_i², √2 r_i r_j)_{i<j} has norm ‖r‖², so that an entry above the diagonal may have √2 times less noise than one on
    it.
    """
    return _root_up(Fraction(4) ** bits / (2 * Fraction(check.positive(finite=True, mu=mu)) ** 2))


# ---------------------------------------------------------------------------------------------------------------
# The slack
def total_variation(sigma: float) -> float:
    """Bound 0.021/σ² of the distance between discrete and rounded Gaussian, rounded up.

    Raises
    ------
    ValueError
        For σ < 0.74, where the bound fails.
    """
    sigma = check.positive(finite=True, sigma=sigma)
    if sigma < LEAST_SIGMA:
        raise ArgumentError(f"sigma must be at least {LEAST_SIGMA} lattice units, got {sigma!r}: refine the lattice.")
    return _float_up(TOTAL_VARIATION / Fraction(sigma) ** 2)


def gaussian_slack(mu: float, *, bits: int, coordinates: int) -> float:
    r"""Total variation η of one release to the rounded Gaussian mechanism, rounded up.

    A symmetric matrix of order m has m coordinates with σ = 2^bits/μ and m(m - 1)/2 with σ = 2^bits/(√2 μ):

    .. math:: \eta = 0.021\,\frac{\mu^2}{4^\text{bits}} \Bigl(m + 2\,\frac{m(m-1)}2\Bigr)
              = 0.021\,\frac{m^2 \mu^2}{4^\text{bits}}

    so it counts as ``coordinates=m**2``; a vector of J counts as ``coordinates=J``.
    """
    coordinates = check.positive_integer(coordinates=coordinates)
    return _float_up(_slack(check.positive(finite=True, mu=mu), bits, coordinates))


def _slack(mu: float, bits: int, coordinates: int) -> Fraction:
    return TOTAL_VARIATION * coordinates * Fraction(mu) ** 2 / Fraction(4) ** bits


def lattice_delta(epsilon: float, *, mu: float, total_slack: float) -> float:
    r"""δ of a transcript of lattice releases, rounded up: :math:`\delta_\text{Gauss} + (1 + e^\varepsilon)\eta`.

    Parameters
    ----------
    epsilon : float
    mu : float
        √Σμ_p² over all releases, sensitivities under the neighbouring relation.
    total_slack : float
        η = Σ_p η_p of :func:`gaussian_slack`.
    """
    epsilon = check.nonnegative(epsilon=epsilon)
    raised = _amplification(epsilon) * Fraction(check.nonnegative(total_slack=total_slack))
    return min(_float_up(Fraction(gaussian_delta(epsilon, mu=mu)) + raised), 1.0)


def _amplification(epsilon: float) -> Fraction:
    """1 + e^ε, rounded up: the library's exponential is good to one unit in the last place."""
    if epsilon > 700:
        raise BudgetUnmetError(
            f"epsilon must be at most 700 on the lattice, got {epsilon!r}: nothing is protected there."
        )
    return 1 + Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))


# ---------------------------------------------------------------------------------------------------------------
# The whole account
@dataclass(frozen=True)
class LatticeAccount:
    r"""What a sequence of releases may use, fixed before the first of them.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
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
    """

    epsilon: float
    delta: float
    relation: Relation
    mu: float
    noise_mu: tuple[float, ...]
    bits: int
    slack: float

    @property
    def spent_delta(self) -> float:
        """δ(ε) of the whole transcript, at most ``delta``."""
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


def lattice_account(
    epsilon: float,
    delta: float,
    *,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    relation: Relation = "zero-out",
) -> LatticeAccount:
    r"""Budget → μ, its parts, and the lattice.

    μ is that of (ε, 0.999 δ) by the exact Gaussian curve, rounded down; the lattice is the natural one of 40 bits if
    its slack (1 + e^ε)η fits into the δ/1000 that is left and no σ reaches 2⁵⁷. Otherwise it is refined (larger slack
    than allowed) or coarsened by two bits at a time, one of the rows' bits (σ too large: budgets so small that rows
    need not be known to 2⁻²⁰).

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
    check.choice(RELATIONS, relation=relation)
    if len(shares) != len(coordinates):
        raise ArgumentError("shares and coordinates must have one entry for each release.")
    counts = [check.positive_integer(coordinates=count) for count in coordinates]
    allowed = SLACK_SHARE * Fraction(delta)
    mu = gaussian_mu(epsilon, math.nextafter(float(Fraction(delta) - allowed), 0.0))
    single = _root_down(Fraction(mu) ** 2 / 2) if relation == "replace-one" else mu
    parts = split_mu(single, shares)

    def slack(bits: int) -> Fraction:
        return sum((_slack(part, bits, count) for part, count in zip(parts, counts, strict=True)), Fraction(0))

    def fits(bits: int) -> Literal["yes", "too coarse", "too fine"]:
        if diagonal_sigma(min(parts), bits) >= LARGEST_SIGMA:
            return "too fine"
        small = off_diagonal_sigma(max(parts), bits) >= LEAST_SIGMA
        return "yes" if small and _amplification(epsilon) * slack(bits) <= allowed else "too coarse"

    bits = NATURAL_BITS
    while bits > 2 and fits(bits) == "too fine":
        bits -= 2
    while bits < _MOST_BITS and fits(bits) == "too coarse":
        bits += 1
    if fits(bits) != "yes":
        raise BudgetUnmetError(
            f"No lattice serves epsilon={epsilon!r}, delta={delta!r} with these releases: its discreteness may cost a "
            "thousandth of delta, and the noise must stay below 2**57 steps. Ask for a smaller epsilon or a larger "
            "delta."
        )
    return LatticeAccount(epsilon, delta, relation, mu, parts, bits, _float_up(slack(bits)))
