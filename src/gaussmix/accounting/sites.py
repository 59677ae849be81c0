r"""The noise of several sites that trust no curator: shares of the noise, and two guarantees.

k sites each add their own discrete Gaussian noise to their exact sums, and only the total is opened. The noise of the
total has standard deviation σ in each coordinate; every site draws a share of variance σ²/k. Whoever knows the noise of
t sites, because they collude or did not draw it, sees the total with the noise of the other k - t: variance
σ²(k - t)/k. So a release that is μ-Gaussian-DP for outsiders is μ√(k/(k - t))-Gaussian-DP against any t sites together,
and for a given guarantee against them the noise is √(k/(k - t)) times that of a trusted curator.

A person with rows at s sites changes the total by at most s times what one site bounds.

**Sums of discrete Gaussians** are not discrete Gaussians, but nearly. For two of parameters σ and τ, with
s² = σ²τ²/(σ² + τ²) and c = σ²/(σ² + τ²),

.. math:: \sum_x e^{-x^2/2\sigma^2 - (z-x)^2/2\tau^2} = e^{-z^2/2(\sigma^2+\tau^2)} \sum_x e^{-(x-cz)^2/2s^2} ,

and by Poisson summation the last sum F(cz) is s√(2π)(1 + 2Σ_{j≥1} exp(-2π²s²j²) cos 2πjcz), hence within
s√(2π)(1 ± η) for η = 2Σ_{j≥1} exp(-2π²s²j²). The probabilities of the convolution add up to 1, so their ratio at z to
those of the discrete Gaussian of variance σ² + τ² is F(cz) over a weighted mean of F(cz′), z′ ∈ ℤ, and lies between
(1 - η)/(1 + η) and its inverse. For s ≥ 1/2, q = exp(-2π²s²) < 0.0072, η ≤ 2q/(1 - q³) and
log((1 + η)/(1 - η)) ≤ 2η/(1 - η²) < 5q. So the ratio is within exp(±5e^(-2π²s²)). Adding h equal shares one by one,

.. math:: |\log \text{ratio}| \le b_h = 5 \sum_{j=1}^{h-1} e^{-2\pi^2 \sigma_i^2 j/(j+1)}

(:func:`log_ratio_bound`). The total variation distance is at most (e^(b_h) - 1)/2 ≤ b_h, for b_h ≤ 1, and
is added to the slack of the account (:mod:`gaussmix.accounting.discrete`) for every coordinate.

>>> three = Sites(3, colluding=1)
>>> round(three.price, 3), three.share(300.0)
(1.225, 173.20508075688775)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gaussmix import _validation as check
from gaussmix.accounting.discrete import (
    SLACK_SHARE,
    LatticeAccount,
    Share,
    account_within,
    amplification,
    off_diagonal_sigma,
    total_slack,
)
from gaussmix.accounting.gaussian import gaussian_delta_up, gaussian_epsilon, gaussian_mu
from gaussmix.accounting.numerics import exp_up, root_down, root_up, round_down, round_up
from gaussmix.accounting.parameters import Neighbours
from gaussmix.errors import ArgumentError, NotPrivateError

__all__ = ["MOST_SITES", "Sites", "joint_account", "log_ratio_bound"]

MOST_SITES = 50

_SMALLER = 2**12
"""σ of every coordinate is at least that of an off-diagonal entry over this.

Sums in marginals have the smallest noise, 1/√(K + 1) times that of the account for K columns, K < 2¹⁴."""


def log_ratio_bound(sigma: float, number: int) -> Fraction:
    """Return b_h for h = ``number`` discrete Gaussians of parameter ``sigma`` ≥ 3/4, rounded up.

    >>> float(log_ratio_bound(1.0, 2)) < 2.6e-4
    True
    """
    if check.positive(sigma=sigma) < 0.75:
        raise ArgumentError(f"sigma must be at least 0.75, got {sigma!r}.")
    # 19.739 < 2π²: the exponent is rounded towards zero.
    exponents = (-19.739 * sigma**2 * (1 - 1e-12) * j / (j + 1) for j in range(1, number))
    return 5 * sum((exp_up(exponent) for exponent in exponents), Fraction(0))


@dataclass(frozen=True)
class Sites:
    """Several sites with one joint release. Public.

    Parameters
    ----------
    number : int
        k, the number of sites.
    colluding : int
        t: at most this many sites pool what they see, or do not draw their noise. From 1 to ⌊(k - 1)/2⌋, since more
        could reconstruct every input from the shares of secret sharing. Two sites can have no secrets from each other,
        so that each adds the whole noise: t = 1.
    sites_per_unit : int
        s: a privacy unit has rows at no more than this many sites.
    study : str
        SHA-256 of the agreement between the sites; empty in a plan.
    """

    number: int
    colluding: int
    sites_per_unit: int = 1
    study: str = ""

    def __post_init__(self) -> None:
        k = check.positive_integer(number=self.number)
        if not 2 <= k <= MOST_SITES:
            raise ArgumentError(f"The number of sites must be from 2 to {MOST_SITES}, got {k}.")
        most = max((k - 1) // 2, 1)
        if type(self.colluding) is not int or not 1 <= self.colluding <= most:
            allowed = "1" if most == 1 else f"from 1 to {most}"
            reason = (
                "Each of two sites can reconstruct the other's sums, so each adds the full noise."
                if k == 2
                else (
                    "At least 1, because each site knows its own noise; less than half, because half of the sites "
                    "could reconstruct the sums of the others."
                )
            )
            raise ArgumentError(f"colluding must be {allowed} with {k} sites, got {self.colluding!r}. {reason}")
        if not 1 <= check.positive_integer(sites_per_unit=self.sites_per_unit) <= k:
            raise ArgumentError(f"sites_per_unit must be from 1 to {k}, got {self.sites_per_unit!r}.")
        if not isinstance(self.study, str) or not re.fullmatch(r"(?:[0-9a-f]{64})?", self.study):
            raise ArgumentError(f"study must be 64 hexadecimal digits or empty, got {self.study!r}.")

    @property
    def price(self) -> float:
        """Standard deviation of the noise over that of a trusted curator with the same guarantee: s√(k/(k - t))."""
        return self.sites_per_unit * math.sqrt(self.number / (self.number - self.colluding))

    @property
    def _squared_price(self) -> Fraction:
        return Fraction(self.sites_per_unit**2 * self.number, self.number - self.colluding)

    def share(self, sigma: float) -> float:
        """Return the σ that each site draws, rounded up: variance σ²/k of a total σ²."""
        return root_up(Fraction(sigma) ** 2 / self.number)

    def slack(self, account: LatticeAccount) -> Fraction:
        """Return η against t sites: that of discrete noise of k - t shares, and of their sum."""
        discrete = total_slack(account.noise_mu, account.bits, account.coordinates)
        sums = sum(
            (
                count * log_ratio_bound(self.share(off_diagonal_sigma(mu, account.bits) / _SMALLER), self.number)
                for mu, count in zip(account.noise_mu, account.coordinates, strict=True)
            ),
            Fraction(0),
        )
        return discrete * Fraction(self.number, self.number - self.colluding) + sums

    def mu(self, account: LatticeAccount) -> float:
        """Return μ against any t sites together, rounded up; ``account`` is that of the total noise."""
        return root_up(self._squared_price * Fraction(account.mu) ** 2)

    def outsider_mu(self, account: LatticeAccount) -> float:
        """Return μ against those who see the release only, rounded up."""
        return round_up(self.sites_per_unit * Fraction(account.mu))

    def outsider_epsilon(self, account: LatticeAccount) -> float:
        """Return ε at the account's δ against those who see the release only, rounded up."""
        within = Fraction(account.delta) - amplification(account.epsilon) * Fraction(account.slack)
        return min(gaussian_epsilon(round_down(within), mu=self.outsider_mu(account)), account.epsilon)

    def delta(self, account: LatticeAccount) -> float:
        """Return δ at the account's ε against any t sites together, rounded up."""
        raised = amplification(account.epsilon) * Fraction(account.slack)
        return round_up(min(Fraction(gaussian_delta_up(account.epsilon, self.mu(account))) + raised, Fraction(1)))

    def verify(self, account: LatticeAccount) -> None:
        """Check that (ε, δ) of the account holds against any t sites together.

        Raises
        ------
        NotPrivateError
            If the noise of k - t sites, or the slack, is too small.
        """
        if self.delta(account) > account.delta:
            raise NotPrivateError(
                f"The noise of {self.number - self.colluding} of {self.number} sites does not give the claimed "
                f"epsilon={account.epsilon!r} and delta={account.delta!r}."
            )
        try:
            needed = self.slack(account)
        except ArgumentError as error:
            raise NotPrivateError(f"The noise of a site is too small: {error}") from None
        if needed > Fraction(account.slack):
            raise NotPrivateError(f"slack={account.slack!r} is too small for the total noise of several sites.")


def joint_account(
    epsilon: float,
    delta: float,
    sites: Sites,
    *,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    neighbours: Neighbours = "add-remove",
) -> LatticeAccount:
    """Return the account of the total noise of a joint release that is (ε, δ)-private against any t sites together.

    Equivalent to :func:`gaussmix.accounting.discrete.lattice_account` with μ divided by s√(k/(k - t)). The parameters
    are the same.

    >>> three = Sites(3, colluding=1)
    >>> account = joint_account(1.0, 1e-6, three, shares=["1"], coordinates=[20**2])
    >>> round(three.mu(account), 4), round(three.outsider_epsilon(account), 3)
    (0.2367, 0.804)
    """
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    allowed = SLACK_SHARE * Fraction(delta)
    mu = gaussian_mu(epsilon, math.nextafter(float(Fraction(delta) - allowed), 0.0))
    total = root_down(Fraction(mu) ** 2 / sites._squared_price)
    if root_up(sites._squared_price * Fraction(total) ** 2) > mu:  # rounding up must not exceed the budget
        total = math.nextafter(total, 0.0)
    # The slack against t sites is k/(k - t) ≤ 2 times that of the total noise, and sums add hardly anything.
    account = account_within(
        epsilon, delta, mu=total, allowed=allowed / 4, shares=shares, coordinates=coordinates, neighbours=neighbours
    )
    found = replace(account, slack=round_up(sites.slack(account)))
    sites.verify(found)
    return found
