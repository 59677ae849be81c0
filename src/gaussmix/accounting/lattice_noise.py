r"""Noise on the integers: how large it is for a part of μ, and how far its law is from a rounded Gaussian.

Pure functions of public parameters: nothing in this module sees data. docs/lattice.md has the proofs.

>>> diagonal_sigma(0.25, bits=40) == 2.0**42, total_variation(2.0**42) < 1e-26
(True, True)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from numbers import Rational

from gaussmix import _validation as check
from gaussmix.accounting.gaussian import gaussian_delta_up
from gaussmix.accounting.rounding import exp_up, root_down, root_up, round_up
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError

__all__ = [
    "LARGEST_EPSILON",
    "LARGEST_SIGMA",
    "LEAST_SIGMA",
    "NATURAL_BITS",
    "Share",
    "amplification",
    "diagonal_sigma",
    "exact_share",
    "exact_slack",
    "gaussian_slack",
    "lattice_delta",
    "off_diagonal_sigma",
    "slack_delta",
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

LARGEST_EPSILON = 700
"""e^ε is a double."""


# ---------------------------------------------------------------------------------------------------------------
# Parts of μ and the noise they are
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
    exact = [exact_share(share) for share in shares]
    if any(share <= 0 for share in exact) or sum(exact) > 1:
        raise ArgumentError("shares must be positive and add up to at most 1: give them as strings or Fractions.")
    return tuple(root_down(share * total) for share in exact)


def exact_share(share: Share) -> Fraction:
    """A share as the number that it is written as."""
    if isinstance(share, bool) or not isinstance(share, str | Rational | float):
        raise ArgumentTypeError(f"a share must be a string, a Fraction or a number, got {type(share).__name__}.")
    try:
        return Fraction(share)
    except (ValueError, ArithmeticError):
        raise ArgumentError(f"a share must be a number such as '0.07' or '1/3', got {share!r}.") from None


def diagonal_sigma(mu: float, bits: int, *, rows: int = 1) -> float:
    """σ = rows·2^bits/μ in lattice units, rounded up: for counts, and for the diagonal of a matrix.

    ``rows`` is what one person changes at most, in squared row norms or in counts.
    """
    return round_up(
        check.positive_integer(rows=rows) * Fraction(2) ** bits / Fraction(check.positive(finite=True, mu=mu))
    )


def off_diagonal_sigma(mu: float, bits: int, *, rows: int = 1) -> float:
    """σ = rows·2^bits/(√2 μ) in lattice units, rounded up: for entries above the diagonal of a symmetric matrix.

    (r_i², √2 r_i r_j)_{i<j} has norm ‖r‖², so that an entry above the diagonal may have √2 times less noise than one on
    it.
    """
    most = check.positive_integer(rows=rows)
    return root_up(most**2 * Fraction(4) ** bits / (2 * Fraction(check.positive(finite=True, mu=mu)) ** 2))


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
    return round_up(TOTAL_VARIATION / Fraction(sigma) ** 2)


def gaussian_slack(mu: float, *, bits: int, coordinates: int) -> float:
    r"""Total variation η of one release to the rounded Gaussian mechanism, rounded up.

    A symmetric matrix of order m has m coordinates with σ = 2^bits/μ and m(m - 1)/2 with σ = 2^bits/(√2 μ):

    .. math:: \eta = 0.021\,\frac{\mu^2}{4^\text{bits}} \Bigl(m + 2\,\frac{m(m-1)}2\Bigr)
              = 0.021\,\frac{m^2 \mu^2}{4^\text{bits}}

    so it counts as ``coordinates=m**2``; a vector of J counts as ``coordinates=J``.
    """
    coordinates, bits = check.positive_integer(coordinates=coordinates), check.positive_integer(bits=bits)
    return round_up(exact_slack(check.positive(finite=True, mu=mu), bits, coordinates))


@functools.lru_cache(maxsize=1024, typed=True)
def exact_slack(mu: float, bits: int, coordinates: int) -> Fraction:
    """:func:`gaussian_slack`, not rounded. Remembered: accounts ask for the same ones again and again."""
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
    raised = amplification(epsilon) * Fraction(check.nonnegative(total_slack=total_slack))
    return round_up(min(Fraction(gaussian_delta_up(epsilon, mu)) + raised, Fraction(1)))


def slack_delta(epsilon: float, slack: float) -> float:
    """(1 + e^ε)·slack, rounded up: what a slack takes of δ."""
    return round_up(amplification(epsilon) * Fraction(check.nonnegative(slack=slack)))


def amplification(epsilon: float) -> Fraction:
    """Return 1 + e^ε, rounded up."""
    if epsilon > LARGEST_EPSILON:
        raise BudgetUnmetError(
            f"epsilon must be at most {LARGEST_EPSILON} on the lattice, got {epsilon!r}: nothing is protected there."
        )
    return 1 + exp_up(epsilon)
