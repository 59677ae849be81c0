r"""The account of Gaussian releases whose noise is a discrete Gaussian on the integers.

A release adds a discrete Gaussian, P(z) ∝ exp(-z²/2σ²), to integers. With *rounded* Gaussian noise it would be
post-processing of the Gaussian mechanism, hence exactly μ-Gaussian-DP with μ² = Σ(sensitivity/σ)². The two
distributions are within total variation 0.021/σ² of each other per coordinate (σ ≥ 0.74), so an adaptive sequence of
releases has

.. math:: \delta(\varepsilon) = \delta_\text{Gauss}(\varepsilon; \mu) + (1 + e^\varepsilon) \sum 0.021/\sigma_c^2

where the sum is over all coordinates of all releases (docs/privacy.md, section 8). With 2^bits lattice units for a
sensitivity of one, σ is 2^bits/μ: a finer lattice makes the slack, the total variation in the last term, smaller.

**The constant 0.021.** Let f be the density of N(0, σ²), P(k) the integral of f over (k - ½, k + ½) and Q(k) = f(k)/Z
with Z = Σ f(k) = 1 + 2Σ_{j≥1} exp(-2π²σ²j²) by Poisson summation. Claim: ½Σ|P - Q| ≤ 0.021/σ² for σ ≥ 0.74.

*σ ≥ 20.* By Taylor expansion P(k) = f(k) + f″(k)/24 + R with |R| at most the maximum of |f⁗| over the cell divided by
1920. Let A_j be the integral of the absolute j-th derivative of the standard normal density. A sum of g over the
integers differs from its integral by at most half the variation of g, and a sum of maxima over cells is at most
∫|g| + ∫|g′|. Hence

.. math:: \sigma^2 \mathrm{TV} \le \frac{A_2}{48} + \frac{A_3}{96\sigma}
          + \frac{A_4/\sigma^2 + A_5/\sigma^3}{3840} + \frac{\sigma^2 (Z - 1)}{2} ,

which with A₂ = 4φ(1) = 0.96788 and A₃ = 1.5100 is 0.02096 at σ = 20 and less beyond.

*0.74 ≤ σ ≤ 20.* σ²TV is computed on a grid, and a bound on its derivative covers the values in between. Since
∂f/∂σ = σf″, the first-order terms cancel as before, and

.. math:: |d\mathrm{TV}/d\sigma| \le \frac{A_4/\sigma^3 + A_5/(2\sigma^4)}{48}
          + \frac{A_6/\sigma^5 + A_7/\sigma^6}{3840}
          + \frac12\Bigl[(Z - 1)\Bigl(\frac{A_2}\sigma + \frac{A_3}{2\sigma^2}\Bigr) + Z\,|dZ/d\sigma|\Bigr] .

``tests/accounting/test_lattice.py`` covers the range in steps too short to cross 0.021. The largest values are 0.02099
at σ = 0.74 and 0.0207 at 1.5; at 0.735 the bound fails.

>>> account = lattice_account(1.0, 1e-9, shares=("0.4", "0.6"), coordinates=(20**2, 20**2))
>>> account.bits, account.slack < 1e-9 / 1000, round(account.mu, 9)
(40, True, 0.181969295)
>>> account.holds(1.0, 1e-9, "add-remove"), round(account.attack_power(0.05), 4)
(True, 0.0717)
>>> diagonal_sigma(0.25, bits=40) == 2.0**42
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import ClassVar, Literal

from scipy import special

from gaussmix import _validation as check
from gaussmix.accounting.gaussian import gaussian_delta_up, gaussian_mu
from gaussmix.accounting.numerics import exp_up, root_down, root_up, round_up
from gaussmix.accounting.parameters import LARGEST_EPSILON as WARNED_EPSILON
from gaussmix.accounting.parameters import NEIGHBOURS, ROUNDING, Neighbours
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError, NotPrivateError

__all__ = [
    "LARGEST_EPSILON",
    "LARGEST_SIGMA",
    "LEAST_SIGMA",
    "NATURAL_BITS",
    "TOTAL_VARIATION",
    "LatticeAccount",
    "Share",
    "account_within",
    "amplification",
    "diagonal_sigma",
    "exact_share",
    "lattice_account",
    "lattice_delta",
    "off_diagonal_sigma",
    "slack_delta",
    "split_mu",
    "total_slack",
]


Share = Fraction | float | str

TOTAL_VARIATION = Fraction(21, 1000)
"""The total variation distance between discrete and rounded Gaussian is at most this over σ² (proof above)."""

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
            f"shares must be positive and sum to at most 1, got {shares!r}. "
            "Pass strings or Fractions to avoid rounding."
        )
    return tuple(root_down(share * total) for share in exact)


def exact_share(share: Share) -> Fraction:
    """Return a share as an exact fraction."""
    if isinstance(share, bool) or not isinstance(share, str | Rational | float):
        raise ArgumentTypeError(f"A share must be a string, a Fraction or a number, got {type(share).__name__}.")
    try:
        return Fraction(share)
    except (ValueError, ArithmeticError):
        raise ArgumentError(f"A share must be a number such as '0.07' or '1/3', got {share!r}.") from None


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
def total_slack(noise_mu: Sequence[float], bits: int, coordinates: Sequence[int]) -> Fraction:
    r"""Return a bound η on the total variation between releases and the rounded Gaussian mechanism.

    A symmetric matrix of order m has m coordinates with σ = 2^bits/μ and m(m - 1)/2 with σ = 2^bits/(√2 μ):

    .. math:: \eta = 0.021\,\frac{\mu^2}{4^\text{bits}} \Bigl(m + 2\,\frac{m(m-1)}2\Bigr)
              = 0.021\,\frac{m^2 \mu^2}{4^\text{bits}}

    so it counts as m² coordinates; a vector of J counts has J coordinates.
    """
    squares = (count * Fraction(mu) ** 2 for mu, count in zip(noise_mu, coordinates, strict=True))
    return TOTAL_VARIATION * sum(squares, Fraction(0)) / Fraction(4) ** bits


def lattice_delta(epsilon: float, *, mu: float, slack: float) -> float:
    r"""Return δ of a sequence of releases, :math:`\delta_\text{Gauss} + (1 + e^\varepsilon)\eta`, rounded up.

    Parameters
    ----------
    epsilon : float
    mu : float
        √Σμ_p² over all releases, with sensitivities under the neighbouring relation.
    slack : float
        η of :func:`total_slack`.
    """
    epsilon = check.nonnegative(epsilon=epsilon)
    raised = amplification(epsilon) * Fraction(check.nonnegative(slack=slack))
    return round_up(min(Fraction(gaussian_delta_up(epsilon, mu)) + raised, Fraction(1)))


def slack_delta(epsilon: float, slack: float) -> float:
    """Return the contribution (1 + e^ε)·slack to δ, rounded up."""
    return round_up(amplification(epsilon) * Fraction(check.nonnegative(slack=slack)))


def amplification(epsilon: float) -> Fraction:
    """Return 1 + e^ε, rounded up."""
    if epsilon > LARGEST_EPSILON:
        raise BudgetUnmetError(_no_lattice(epsilon, 0.0))
    return 1 + exp_up(epsilon)


def _no_lattice(epsilon: float, allowed: float) -> str:
    """Return the error message for a budget whose noise no lattice represents precisely enough."""
    if epsilon > WARNED_EPSILON:
        return (
            f"epsilon={epsilon:g} is too large: values above {WARNED_EPSILON:g} give almost no protection. Choose a "
            "smaller epsilon."
        )
    return (
        f"The part of delta reserved for discretisation, {allowed:.3g}, is too small for the noise at "
        f"epsilon={epsilon:g}. Increase delta."
    )


SLACK_SHARE = Fraction(1, 1000)
"""Share of δ reserved for discretisation; a lattice that needs more is refined."""

_LEAST_BITS, _MOST_BITS = 2, 100


@dataclass(frozen=True)
class LatticeAccount:
    r"""Account of a sequence of Gaussian releases with discrete noise, fixed before the first of them.

    Raises
    ------
    NotPrivateError
        If the parts exceed μ, the slack is too small, or δ(ε) exceeds ``delta``.

    Attributes
    ----------
    epsilon, delta : float
        The budget. For a release through a ledger, the budget of all releases of the ledger together.
    neighbours : {"add-remove", "replace-one"}
    mu : float
        Gaussian-DP budget under the relation: δ_Gauss(ε; μ) + (1 + e^ε)·slack ≤ δ.
    noise_mu : tuple of float
        For every release, sensitivity to *adding or removing one row* over noise: σ = 2^bits/noise_mu. Under
        ``"replace-one"`` a release changes by at most √2 times that, so these are √2 smaller than their parts of μ.
    bits : int
        2^bits lattice units are one squared row norm, or one count.
    slack : float
        η, total variation distance to rounded Gaussians over all releases. It contributes (1 + e^ε)η to δ.
    coordinates : tuple of int
        Coordinates of every release, counted as in :func:`lattice_account`.
    """

    mechanism: ClassVar[str] = "Gaussian mechanism on the Gram matrix (discrete Gaussian)"
    mechanism_words: ClassVar[str] = (
        "Gaussian mechanism on the Gram matrix: symmetric discrete Gaussian noise, exact integer arithmetic"
    )

    epsilon: float
    delta: float
    neighbours: Neighbours
    mu: float
    noise_mu: tuple[float, ...]
    bits: int
    slack: float
    coordinates: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("noise_mu", "coordinates"):
            if not isinstance(getattr(self, name), list | tuple):
                raise ArgumentTypeError(f"{name} must be a tuple or a list, got {type(getattr(self, name)).__name__}.")
        if not self.noise_mu or len(self.noise_mu) != len(self.coordinates):
            raise ArgumentError(
                "noise_mu and coordinates must have one entry for each release, got "
                f"{len(self.noise_mu)} and {len(self.coordinates)}."
            )
        plain = {  # floats, integers and tuples, also if the values come from JSON or NumPy
            "epsilon": check.positive(finite=True, epsilon=self.epsilon),
            "delta": check.in_interval(0, 1, delta=self.delta),
            "neighbours": check.choice(NEIGHBOURS, neighbours=self.neighbours),
            "mu": check.positive(finite=True, mu=self.mu),
            "noise_mu": tuple(check.positive(finite=True, noise_mu=part) for part in self.noise_mu),
            "bits": check.positive_integer(bits=self.bits),
            "slack": check.nonnegative(slack=self.slack),
            "coordinates": tuple(check.positive_integer(coordinates=count) for count in self.coordinates),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if not _LEAST_BITS <= self.bits <= _MOST_BITS:
            raise ArgumentError(f"bits must be from {_LEAST_BITS} to {_MOST_BITS}, got {self.bits}.")
        self.verify()

    def verify(self) -> None:
        r"""Check that Σμ_p² ≤ μ² (2Σμ_p² for replace-one), Σ0.021 J_p μ_p²/4^bits ≤ η, and δ(ε) ≤ δ.

        Raises
        ------
        NotPrivateError
            If the claim does not hold, or the bound on the slack is not proved for some σ.
        """
        squares = sum((Fraction(part) ** 2 for part in self.noise_mu), Fraction(0))
        if (2 if self.neighbours == "replace-one" else 1) * squares > Fraction(self.mu) ** 2:
            raise NotPrivateError(f"The noise of the releases is too small for mu={self.mu!r}.")
        if _unfit(self.noise_mu, self.bits, self.coordinates, Fraction(self.slack)):
            raise NotPrivateError(
                f"slack={self.slack!r} is too small: with this noise, discretisation with bits={self.bits} costs more."
            )
        if not self.gives(self.epsilon, self.delta):
            raise NotPrivateError(
                f"mu={self.mu!r} with slack={self.slack!r} does not give the claimed epsilon={self.epsilon!r} and "
                f"delta={self.delta!r}."
            )

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether a claim equals the budget of this account.

        A smaller ε is not accepted even if the noise supports it: with a ledger, (ε, δ) covers other releases too.
        The account itself was verified when it was made.
        """
        return (epsilon, delta, neighbours) == (self.epsilon, self.delta, self.neighbours)

    def gives(self, epsilon: float, delta: float) -> bool:
        """Return whether δ(ε) ≤ δ for the releases of this account alone."""
        within = Fraction(delta) - amplification(epsilon) * Fraction(self.slack)
        return Fraction(gaussian_delta_up(epsilon, self.mu)) <= within

    def attack_power(self, false_positive_rate: float = 0.05) -> float:
        r"""Return an upper bound on the power of a membership-inference attack at a false-positive rate.

        An attack that knows all other rows and tests whether a row is in the table, with false-positive rate at most
        α = ``false_positive_rate``, has a true-positive rate of at most

        .. math:: \Phi\bigl(\mu + \Phi^{-1}(\alpha + \eta)\bigr) + \eta .

        This is the power curve of μ-Gaussian-DP (Dong, Roth and Su, arXiv:1905.02383). The slack η enters twice because
        each of the two output distributions is within η of one with rounded Gaussian noise. The bound is for the
        releases of this account alone.
        """
        alpha = check.in_interval(0, 1, false_positive_rate=false_positive_rate) + self.slack
        if alpha >= 1:
            return 1.0
        power = float(special.ndtr(self.mu + special.ndtri(alpha)))
        return min((power + self.slack) * (1 + ROUNDING), 1.0)

    @property
    def analysis(self) -> Literal["exact"]:
        """The analysis: the exact curve of the Gaussian mechanism with a proved bound on the slack."""
        return "exact"

    @property
    def spent_delta(self) -> float:
        """δ(ε) of the releases of this account, at most ``delta``."""
        return lattice_delta(self.epsilon, mu=self.mu, slack=self.slack)

    @property
    def row_bits(self) -> int:
        """Rows are rounded to multiples of 2**-row_bits: 20, or less where the lattice had to be coarsened.

        The Gram matrix itself is not rounded, since the sensitivity of a rounded sum is not that of the sum.
        """
        return min(NATURAL_BITS, self.bits) // 2

    @property
    def refinement(self) -> int:
        """The exact Gram matrix, in units of 2**(-2 row_bits), times 2**refinement is on the lattice."""
        return self.bits - 2 * self.row_bits


def _unfit(
    noise_mu: Sequence[float], bits: int, coordinates: Sequence[int], allowed: Fraction
) -> Literal["", "too coarse", "too fine"]:
    """Return why a lattice does not serve; an empty string if it does.

    It is too fine if some σ = 2^bits/μ_p reaches 2⁵⁷. It is too coarse if some 2^bits/(√2 μ_p) is below 0.74, or if the
    slack, rounded up, exceeds ``allowed``.
    """
    if Fraction(2) ** bits > Fraction(math.nextafter(LARGEST_SIGMA, 0.0)) * Fraction(min(noise_mu)):
        return "too fine"
    within = round_up(total_slack(noise_mu, bits, coordinates)) <= allowed
    return "" if within and off_diagonal_sigma(max(noise_mu), bits) >= LEAST_SIGMA else "too coarse"


def lattice_account(
    epsilon: float,
    delta: float,
    *,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    neighbours: Neighbours = "add-remove",
) -> LatticeAccount:
    r"""Return the account of releases that meet a budget: μ, its parts, and the lattice.

    μ is that of (ε, 0.999 δ) by the exact Gaussian curve, rounded down; δ/1000 is reserved for discretisation.

    Parameters
    ----------
    epsilon, delta : float
    shares : sequence of Fraction, float or str
        Share of μ² of each release.
    coordinates : sequence of int
        m² for a symmetric matrix of order m, J for J counts, or an upper bound.
    neighbours : {"add-remove", "replace-one"}
        Under ``"replace-one"``, ‖rrᵀ - r′r′ᵀ‖ ≤ √2 and two bins change by one: √2 times the noise.

    Raises
    ------
    BudgetUnmetError
        If no lattice works: the smallest σ needs a finer one and the largest σ a coarser one.
    """
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    allowed = SLACK_SHARE * Fraction(delta)
    mu = gaussian_mu(epsilon, math.nextafter(float(Fraction(delta) - allowed), 0.0))
    return account_within(
        epsilon, delta, mu=mu, allowed=allowed, shares=shares, coordinates=coordinates, neighbours=neighbours
    )


def account_within(
    epsilon: float,
    delta: float,
    *,
    mu: float,
    allowed: Fraction | float,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    neighbours: Neighbours,
) -> LatticeAccount:
    """Return the account of releases with a given μ and a given part of δ for the slack, both within the budget.

    The lattice has 40 bits if (1 + e^ε)η is at most ``allowed`` and no σ reaches 2⁵⁷. It is refined if the slack is too
    large, and coarsened by two bits at a time, one bit of the rows, if σ is too large.
    """
    check.choice(NEIGHBOURS, neighbours=neighbours)
    if not shares or len(shares) != len(coordinates):
        raise ArgumentError(
            f"shares and coordinates must have one entry for each release, got {len(shares)} and {len(coordinates)}."
        )
    counts = [check.positive_integer(coordinates=count) for count in coordinates]
    parts = split_mu(root_down(Fraction(mu) ** 2 / 2) if neighbours == "replace-one" else mu, shares)

    most = Fraction(allowed) / amplification(epsilon)
    bits = NATURAL_BITS
    while bits > _LEAST_BITS and _unfit(parts, bits, counts, most) == "too fine":
        bits -= 2
    while bits < _MOST_BITS and _unfit(parts, bits, counts, most) == "too coarse":
        bits += 1
    if _unfit(parts, bits, counts, most):
        raise BudgetUnmetError(_no_lattice(epsilon, float(allowed)))
    slack = round_up(total_slack(parts, bits, counts))
    return LatticeAccount(epsilon, delta, neighbours, mu, parts, bits, slack, tuple(counts))
