r"""Scale of the discrete Gaussian noise for a part of μ, and its distance from rounded Gaussian noise.

The proofs are in docs/lattice.md.

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
"""The total variation distance between discrete and rounded Gaussian is at most this over σ² (docs/lattice.md)."""

LEAST_SIGMA = 0.74
"""Smallest σ, in lattice units, for which that bound holds."""

LARGEST_SIGMA = 2.0**57
"""The sampler saturates at 64 bits: 2⁶³ is 64 standard deviations at this σ, exceeded with probability e⁻²⁰⁴⁸."""

NATURAL_BITS = 40
"""Rows in units of 2⁻²⁰ have Gram matrices in units of 2⁻⁴⁰."""

LARGEST_EPSILON = 700
"""Largest ε on the lattice: e^ε must be finite in double precision."""


# ---------------------------------------------------------------------------------------------------------------
# Parts of μ and their noise
def split_mu(mu: float, shares: Sequence[Share]) -> tuple[float, ...]:
    r"""Return parts μ_p, each the largest float with μ_p² ≤ share·μ², so that Σμ_p² ≤ μ² holds exactly.

    Parameters
    ----------
    mu : float
    shares : sequence of Fraction, float or str
        Positive shares of μ² with a sum of at most 1. A string such as ``"0.07"`` is read as that decimal number; a
        float is used with its exact binary value.

    Examples
    --------
    >>> parts = split_mu(1.0, ["0.36", "0.64"])
    >>> parts, sum(Fraction(part) ** 2 for part in parts) <= 1
    ((0.6, 0.7999999999999999), True)
    """
    total = Fraction(check.positive(finite=True, mu=mu)) ** 2
    exact = [exact_share(share) for share in shares]
    if any(share <= 0 for share in exact) or sum(exact) > 1:
        raise ArgumentError(
            "shares must be positive with a sum of at most 1. Pass strings or Fractions to avoid rounding."
        )
    return tuple(root_down(share * total) for share in exact)


def exact_share(share: Share) -> Fraction:
    """Return a share as an exact fraction."""
    if isinstance(share, bool) or not isinstance(share, str | Rational | float):
        raise ArgumentTypeError(f"a share must be a string, a Fraction or a number, got {type(share).__name__}.")
    try:
        return Fraction(share)
    except (ValueError, ArithmeticError):
        raise ArgumentError(f"a share must be a number such as '0.07' or '1/3', got {share!r}.") from None


def diagonal_sigma(mu: float, bits: int, *, rows: int = 1) -> float:
    """Return σ = rows·2^bits/μ in lattice units, rounded up, for counts and for the diagonal of a matrix.

    ``rows`` is the contribution bound of a privacy unit, in squared row norms or in counts.
    """
    return round_up(
        check.positive_integer(rows=rows) * Fraction(2) ** bits / Fraction(check.positive(finite=True, mu=mu))
    )


def off_diagonal_sigma(mu: float, bits: int, *, rows: int = 1) -> float:
    """Return σ = rows·2^bits/(√2 μ) in lattice units, rounded up, for off-diagonal entries of a symmetric matrix.

    (r_i², √2 r_i r_j)_{i<j} has norm ‖r‖², so an off-diagonal entry needs √2 times less noise than a diagonal one.
    """
    most = check.positive_integer(rows=rows)
    return root_up(most**2 * Fraction(4) ** bits / (2 * Fraction(check.positive(finite=True, mu=mu)) ** 2))


# ---------------------------------------------------------------------------------------------------------------
# The slack
def total_variation(sigma: float) -> float:
    """Return the bound 0.021/σ² on the distance between discrete and rounded Gaussian, rounded up.

    Raises
    ------
    ValueError
        For σ < 0.74, where the bound fails.
    """
    sigma = check.positive(finite=True, sigma=sigma)
    if sigma < LEAST_SIGMA:
        raise ArgumentError(f"sigma must be at least {LEAST_SIGMA} lattice units, got {sigma!r}. Refine the lattice.")
    return round_up(TOTAL_VARIATION / Fraction(sigma) ** 2)


def gaussian_slack(mu: float, *, bits: int, coordinates: int) -> float:
    r"""Return the total variation η between one release and the rounded Gaussian mechanism, rounded up.

    A symmetric matrix of order m has m coordinates with σ = 2^bits/μ and m(m - 1)/2 with σ = 2^bits/(√2 μ):

    .. math:: \eta = 0.021\,\frac{\mu^2}{4^\text{bits}} \Bigl(m + 2\,\frac{m(m-1)}2\Bigr)
              = 0.021\,\frac{m^2 \mu^2}{4^\text{bits}}

    so it counts as ``coordinates=m**2``; a vector of J counts as ``coordinates=J``.
    """
    coordinates, bits = check.positive_integer(coordinates=coordinates), check.positive_integer(bits=bits)
    return round_up(exact_slack(check.positive(finite=True, mu=mu), bits, coordinates))


@functools.lru_cache(maxsize=1024, typed=True)
def exact_slack(mu: float, bits: int, coordinates: int) -> Fraction:
    """Return :func:`gaussian_slack` without rounding. Cached, since accounts need the same values repeatedly."""
    return TOTAL_VARIATION * coordinates * Fraction(mu) ** 2 / Fraction(4) ** bits


def lattice_delta(epsilon: float, *, mu: float, total_slack: float) -> float:
    r"""Return δ of a sequence of releases, :math:`\delta_\text{Gauss} + (1 + e^\varepsilon)\eta`, rounded up.

    Parameters
    ----------
    epsilon : float
    mu : float
        √Σμ_p² over all releases, with sensitivities under the neighbouring relation.
    total_slack : float
        η = Σ_p η_p of :func:`gaussian_slack`.
    """
    epsilon = check.nonnegative(epsilon=epsilon)
    raised = amplification(epsilon) * Fraction(check.nonnegative(total_slack=total_slack))
    return round_up(min(Fraction(gaussian_delta_up(epsilon, mu)) + raised, Fraction(1)))


def slack_delta(epsilon: float, slack: float) -> float:
    """Return the contribution (1 + e^ε)·slack to δ, rounded up."""
    return round_up(amplification(epsilon) * Fraction(check.nonnegative(slack=slack)))


def amplification(epsilon: float) -> Fraction:
    """Return 1 + e^ε, rounded up."""
    if epsilon > LARGEST_EPSILON:
        raise BudgetUnmetError(
            f"epsilon must be at most {LARGEST_EPSILON}, got {epsilon!r}. A larger epsilon gives no protection."
        )
    return 1 + exp_up(epsilon)
