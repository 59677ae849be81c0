"""Privacy accounts of the baselines, and the union of all accounts that a certificate can contain.

An account holds public parameters of a mechanism and recomputes the guarantee that they give.
:class:`~gaussmix.accounting.discrete.LatticeAccount` is the account of a release, the Gaussian mechanism on Gram
matrices; those of the published methods that serve as baselines are defined here.

>>> AdaSSPAccount(noise=7.4, ridge=0.0, rho=0.05, analysis="exact").holds(1.0, 1e-6, "add-remove")
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from scipy import special

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.gaussian import gaussian_delta_up, gaussian_mu
from gaussmix.accounting.mixing import delta as mixing_delta
from gaussmix.accounting.numerics import root_up
from gaussmix.accounting.parameters import Neighbours
from gaussmix.accounting.thresholds import CountsAccount

__all__ = [
    "Account",
    "AdaSSPAccount",
    "BinAggAccount",
    "NonPrivate",
    "ObjectivePerturbationAccount",
    "SheffetAccount",
    "binning_epsilon",
]

GRADIENT_NORM = 1e-8
"""Tolerance on the gradient norm in units of C_X. The proof of objective perturbation is for the exact minimum."""

ObjectivePerturbationAnalysis = Literal["Kifer, Smith and Thakurta 2012", "Redberg, Koskela and Wang 2023"]

_LAST_DIGITS = 1 + 1e-12  # tolerates rounding differences between processors; smaller than the rounding of every δ


@dataclass(frozen=True)
class NonPrivate:
    """Account of a release without noise: ε = ∞."""

    mechanism: ClassVar[str] = "none"
    mechanism_words: ClassVar[str] = "None: the exact Gram matrix"

    analysis: Literal["none"] = "none"

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether the claimed ε is infinite."""
        return math.isinf(epsilon)


@dataclass(frozen=True)
class AdaSSPAccount:
    """Account of AdaSSP: three Gaussian releases with noise s times their sensitivity, hence μ = √3/s.

    Attributes
    ----------
    noise : float
        s.
    ridge, rho : float
        Ridge penalty in encoded units and its failure probability. They do not affect the guarantee.
    analysis : {"exact", "printed"}
        Whether s comes from the exact Gaussian curve or from the published constants.
    """

    mechanism: ClassVar[str] = "AdaSSP"
    mechanism_words: ClassVar[str] = "Noisy sufficient statistics (AdaSSP)"

    noise: float
    ridge: float
    rho: float
    analysis: Literal["exact", "printed"]

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether the parameters give (ε, δ) under the relation."""
        s = check.positive(finite=True, noise=self.noise)
        mu = root_up(3 / Fraction(s) ** 2)
        return neighbours == "add-remove" and gaussian_delta_up(epsilon, mu) <= delta


@dataclass(frozen=True)
class SheffetAccount:
    """Account of Sheffet's algorithm: ε/4 and δ/2 for the test of λ_min, ε/2 and δ/2 for a sketch of leverage 1/γ."""

    mechanism: ClassVar[str] = "Sheffet's tested sketch"
    mechanism_words: ClassVar[str] = "Sheffet's tested Gaussian sketch"

    sketch_size: int
    gamma: float
    margin: float
    laplace_scale: float
    analysis: Literal["sheffet", "renyi"]

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether the parameters give (ε, δ) under the relation."""
        k, gamma = check.sketch_rows(sketch_size=self.sketch_size), check.real(gamma=self.gamma)
        return bool(
            neighbours == "add-remove"
            and mixing_delta(epsilon / 2, sketch_size=k, gamma=gamma, bound_holds_for="larger") <= delta / 2
            and check.real(laplace_scale=self.laplace_scale) >= 4 / epsilon
            and check.real(margin=self.margin) >= self.laplace_scale * math.log(1 / delta) / _LAST_DIGITS
        )


@dataclass(frozen=True)
class ObjectivePerturbationAccount:
    """Account of objective perturbation for features of norm at most ``x_norm``.

    Attributes
    ----------
    noise, penalty, gradient_norm : float
        Standard deviation of the random term, ridge penalty, largest norm of the gradient at the minimum.
    analysis : str
        The calibration; both are in :mod:`gaussmix.baselines.objective_perturbation`.
    """

    mechanism: ClassVar[str] = "objective perturbation"
    mechanism_words: ClassVar[str] = "Objective perturbation"

    noise: float
    x_norm: float
    penalty: float
    gradient_norm: float
    analysis: ObjectivePerturbationAnalysis = "Kifer, Smith and Thakurta 2012"

    @classmethod
    def calibrated(
        cls, epsilon: float, delta: float, *, x_norm: float, penalty_share: float | None
    ) -> ObjectivePerturbationAccount:
        """Return the account with the least noise: of 2012, or of 2023 with a share of ε for the penalty."""
        tolerance = GRADIENT_NORM * x_norm
        if math.isinf(epsilon):
            return cls(0.0, x_norm, 1e-6, tolerance)
        if penalty_share is None:
            noise = x_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
            return cls(noise, x_norm, x_norm**2 / (2 * epsilon), tolerance)
        penalty = x_norm**2 / (4 * math.expm1(penalty_share * epsilon)) * _LAST_DIGITS
        rest = (1 - penalty_share) * epsilon
        mu = min(gaussian_mu(rest, delta / 2), math.sqrt(2 * rest)) / _LAST_DIGITS
        return cls(x_norm / mu, x_norm, penalty, tolerance, "Redberg, Koskela and Wang 2023")

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether the parameters give (ε, δ) under the relation."""
        x_norm, noise = check.positive(finite=True, x_norm=self.x_norm), check.real(noise=self.noise)
        penalty = check.real(penalty=self.penalty)
        if neighbours != "add-remove" or not (
            0 <= check.real(gradient_norm=self.gradient_norm) <= GRADIENT_NORM * x_norm * _LAST_DIGITS
        ):
            return False
        if self.analysis == "Kifer, Smith and Thakurta 2012":
            least = x_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
            return noise >= least and penalty >= x_norm**2 / (2 * epsilon)
        if noise <= 0 or penalty <= 0:
            return False
        mu, rest = x_norm / noise, epsilon - math.log1p(x_norm**2 / (4 * penalty))
        return rest >= mu**2 / 2 and 2 * gaussian_delta_up(rest, mu) <= delta


def binning_epsilon(mu: float) -> float:
    """Return ε of BinAgg's bins within a total budget of μ-Gaussian DP: ε-DP implies μ/√28-Gaussian DP.

    ε = log(Φ(m/2)/Φ(-m/2)), m = μ/√28, rounded down; at most 3.75 (:mod:`gaussmix.baselines.binagg`).

    >>> round(binning_epsilon(1.0), 4)
    0.1508
    """
    half = check.positive(finite=True, mu=mu) / math.sqrt(28) / 2
    return min(float(special.log_ndtr(half) - special.log_ndtr(-half)) / _LAST_DIGITS, 3.75)


@dataclass(frozen=True)
class BinAggAccount:
    """Account of BinAgg: bins and three kinds of sums, whose μ are in the ratio 1 : 3 : 3 : 3 and compose to ``mu``."""

    mechanism: ClassVar[str] = "BinAgg"
    mechanism_words: ClassVar[str] = "Noisy sums over private bins (BinAgg)"

    mu: float
    laplace_scale: float
    analysis: Literal["Gaussian DP"] = "Gaussian DP"

    @property
    def mu_of_each_sum(self) -> float:
        """μ of counts, of sums of features and of sums of responses."""
        return 3 * self.mu / math.sqrt(28) / _LAST_DIGITS

    def holds(self, epsilon: float, delta: float, neighbours: Neighbours) -> bool:
        """Return whether the parameters give (ε, δ) under the relation."""
        mu = check.positive(finite=True, mu=self.mu)
        return (
            neighbours == "add-remove"
            and gaussian_delta_up(epsilon, mu) <= delta
            and check.real(laplace_scale=self.laplace_scale) >= 3 / binning_epsilon(mu) / _LAST_DIGITS
        )


Account = (
    LatticeAccount
    | CountsAccount
    | NonPrivate
    | AdaSSPAccount
    | BinAggAccount
    | SheffetAccount
    | ObjectivePerturbationAccount
)
