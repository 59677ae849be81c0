r"""The guarantee of a sketch: its public parameters, and (ε, δ) computed from them.

Nothing here sees rows. A certificate is verified whenever it is built or read from a file: inconsistent parameters, or
a budget that they do not meet, are rejected.

>>> certificate = Certificate("GaussMix", k=250, gamma=lemma_gamma(7.27, 1.0, 0.0), sigma=7.27, row_norm=1.0)
>>> round(certificate.epsilon(1e-6), 2)
1.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix._version import __version__
from gaussmix.accounting.calibration import LEAST_COMPOSED_DELTA, scale_delta
from gaussmix.accounting.numerics import log_excess, smallest_or_infinity, smallest_safe
from gaussmix.accounting.parameters import GAMMA_MAX, NEIGHBOURS, ROUNDING, BoundHoldsFor, Neighbours
from gaussmix.errors import ArgumentError, BudgetUnmetError, NotPrivateError
from gaussmix.mechanism.noise import SEEDED
from gaussmix.releases.certificate import SECURE

__all__ = [
    "NORMS",
    "N_MAX",
    "SECURE",
    "Analysis",
    "Certificate",
    "Neighbours",
    "lemma_gamma",
    "noise_scale",
]

Analysis = Literal["exact", "paper"]
Algorithm = Literal["GaussMix", "ModifiedGaussMix"]

N_MAX = 2**40
"""Default bound on the number of rows, larger than any table."""

NORMS = (1e-100, 1e100)
"""Range of C in which squares and grids do not overflow."""

_ALGORITHMS = ("GaussMix", "ModifiedGaussMix")
_DIFFERENCE = {"add-remove": "one row added or removed", "replace-one": "one row replaced by another"}
_SHOWN_DELTA = 1e-6
_NO_GUARANTEE = (
    "NO GUARANTEE: the noise came from a seed or a generator supplied by the caller. Anyone who knows it can remove "
    "the noise."
)


class _Leverage(TypedDict):
    gamma: float
    bound_holds_for: BoundHoldsFor


def lemma_gamma(sigma: float, row_norm: float, scale_bound: float) -> float:
    """Return γ of Lemma 1; infinite if the squares overflow."""
    return (sigma / row_norm) * (sigma / row_norm) + scale_bound / row_norm / row_norm


def noise_scale(row_norm: float, gamma: float, v: float | None) -> float:
    """Return σ = C √max(γ - max(v, 0), 0) of Algorithm 1; without v, C √γ."""
    return row_norm * math.sqrt(max(gamma - max(v or 0.0, 0.0), 0.0))


@dataclass(frozen=True)
class Certificate:
    """Public parameters of one release and the guarantee that they give, in the notation of arXiv:2505.24603v2.

    Raises
    ------
    NotPrivateError
        If the parameters are inconsistent, or do not give the claimed budget.

    Attributes
    ----------
    algorithm : {"GaussMix", "ModifiedGaussMix"}
        ModifiedGaussMix is Algorithm 1.
    k : int
        Number of sketch rows.
    gamma : float
        γ = (σ² + λ̄_min)/C² of GaussMix; the target for (σ² + λ_min)/C² of Algorithm 1.
    sigma : float
        σ, the standard deviation of the noise in a sketch row, in the units of the table.
    row_norm : float
        C, the declared bound on the norm of a row.
    scale_bound : float
        λ̄_min, a public lower bound on λ_min(AᵀA), guaranteed by the caller; 0 for none.
    eta, tau : float or None
        η and τ of Algorithm 1: noise and margin of the private λ_min, in units of C².
    v : float or None
        The released λ_min/C² - η(τ - z), rounded down to a public grid; None if γ ≤ τ, and for GaussMix.
    eigenvalue_error : float
        Public bound on the numerical error of λ_min/C², which is charged to its sensitivity.
    n_max : int or None
        Public bound on the number of rows, from which the error bound follows.
    neighbours : {"add-remove", "replace-one"}
        How neighbouring tables differ.
    analysis : {"exact", "paper"}
        The exact curve, or for Algorithm 1 the joint account; or Theorem 1.
    generator : str
        Source of the noise.
    sketches : int
        Number of stacked sketches; k is the total number of their rows.
    budget : (float, float) or None
        (ε, δ) for which the noise was calibrated; None if the noise was chosen directly.
    assumptions : tuple of str
        Further information that the caller assumes to be public.
    version : str
        Version of the library.
    """

    algorithm: Algorithm
    k: int
    gamma: float
    sigma: float
    row_norm: float
    scale_bound: float = 0.0
    eta: float | None = None
    tau: float | None = None
    v: float | None = None
    eigenvalue_error: float = 0.0
    n_max: int | None = None
    neighbours: Neighbours = "add-remove"
    analysis: Analysis = "exact"
    generator: str = SECURE
    sketches: int = 1
    budget: tuple[float, float] | None = None
    assumptions: tuple[str, ...] = ()
    version: str = __version__

    def __post_init__(self) -> None:
        self._check_fields()
        if self.algorithm == "GaussMix":
            expected = lemma_gamma(self.sigma, self.row_norm, self.scale_bound), self.sigma
            consistent = (self.eta, self.tau, self.v, self.budget) == (None,) * 4 and self.analysis == "exact"
            consistent &= self.sigma > 0 or self.gamma > 1
        else:
            expected = self.gamma, noise_scale(self.row_norm, self.gamma, self.v)
            consistent = self.eta is not None and self.tau is not None and (self.v is None) == (self.gamma <= self.tau)
            consistent &= self.scale_bound == 0 and self.sketches == 1 and self.neighbours == "add-remove"
            consistent &= self.gamma > (5 / 2 if self.analysis == "paper" else 1) and self.n_max is not None
        if not consistent or (self.gamma, self.sigma) != expected:
            raise NotPrivateError("The parameters of the certificate are inconsistent.")
        if self.budget is not None and not self._meets(*self.budget):
            raise NotPrivateError(
                f"The certificate claims epsilon={self.budget[0]!r} and delta={self.budget[1]!r}, but its noise is too "
                "small for this budget."
            )

    @property
    def is_private(self) -> bool:
        """Whether the noise came from the secure generator."""
        return self.generator == SECURE

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions of the guarantee besides the noise."""
        found = list(self.assumptions)
        if self.scale_bound > 0:
            found.append(
                f"The smallest eigenvalue of AᵀA, with rows clipped to row_norm and rounded, is at least "
                f"{self.scale_bound:g} for every table that could have been sketched. The caller asserts this, and "
                "software cannot verify it; if it is false, there is no guarantee."
            )
        if self.n_max is not None and self.n_max < N_MAX:
            found.append(f"The number of rows is at most {self.n_max}, which was declared before the rows were read.")
        if self.sketches > 1:
            found.append(
                f"The {self.sketches} sketches are independent, and their numbers of rows were fixed before the first "
                "was drawn."
            )
        return tuple(found)

    def delta(self, epsilon: float) -> float:
        """Return the smallest δ at which the release is (ε, δ)-differentially private, rounded up."""
        epsilon = check.real(epsilon=epsilon)
        if self.analysis == "paper":
            return self._theorem1_delta(epsilon)
        if self.v is not None:
            return scale_delta(epsilon, self.k, self.gamma, self._eta, self._tau, 1 + 2 * self.eigenvalue_error)
        return accounting.delta(epsilon, sketch_size=self.k, neighbours=self.neighbours, **self._leverage)

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at which the release is (ε, δ)-differentially private, rounded up; ∞ if there is none.

        Theorem 1 does not apply to δ below 3 exp(-τ²/2): ε is ∞ there.
        """
        delta = check.in_interval(0, 1, closed=True, delta=delta)
        if delta in (0, 1):
            return 0.0 if delta == 1 else math.inf
        if self.analysis == "paper":
            return self._theorem1_epsilon(delta)
        if (self.v is not None or self.neighbours == "replace-one") and delta < LEAST_COMPOSED_DELTA:
            return math.inf
        if self.v is not None:
            return smallest_or_infinity(lambda epsilon: log_excess(self.delta(epsilon), delta))
        return accounting.epsilon(delta, sketch_size=self.k, neighbours=self.neighbours, **self._leverage)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Certificate:
        """Read the output of ``dataclasses.asdict``. The keys must match exactly."""
        if set(stored) != {field.name for field in fields(cls)}:
            raise ArgumentError("the keys of its certificate do not match the format")
        budget, assumptions = stored["budget"], stored["assumptions"]
        if not isinstance(assumptions, list) or not (budget is None or (isinstance(budget, list) and len(budget) == 2)):
            raise ArgumentError("a value of its certificate has the wrong type")
        return cls(
            **stored | {"budget": None if budget is None else (budget[0], budget[1]), "assumptions": tuple(assumptions)}
        )

    def __str__(self) -> str:
        if self.budget is not None:
            guarantee = f"({self.budget[0]:g}, {self.budget[1]:g})-differentially private"
        else:
            delta = max(_SHOWN_DELTA, self._least_delta)
            guarantee = f"ε = {self.epsilon(delta):.4g} at δ = {delta:.4g}; any other δ: epsilon(delta)"
        letters = {"k": self.k, "γ": self.gamma, "η": self.eta, "τ": self.tau, "v": self.v, "σ": self.sigma}
        letters |= {"C": self.row_norm, "λ̄_min": self.scale_bound or None}
        shown = ", ".join(f"{name} = {value:.6g}" for name, value in letters.items() if value is not None)
        joint = "joint account of private λ_min and sketch" if self.v is not None else "exact privacy curve"
        drew = "ChaCha20, keyed by the operating system" if self.is_private else self.generator
        return "\n".join(
            [
                *([] if self.is_private else [_NO_GUARANTEE]),
                f"{self.algorithm}: {guarantee}",
                f"  neighbours: {self.neighbours} ({_DIFFERENCE[self.neighbours]})",
                f"  parameters: {shown}",
                f"  analysis: {joint if self.analysis == 'exact' else 'Theorem 1 of arXiv:2505.24603v2, corrected'}",
                f"  noise: {drew}",
                *(f"  condition: {condition}" for condition in self.conditions),
            ]
        )

    # ------------------------------------------------------------------------------------------------------------------
    @property
    def _eta(self) -> float:
        return self.eta or math.nan

    @property
    def _tau(self) -> float:
        return math.nan if self.tau is None else self.tau

    @property
    def _leverage(self) -> _Leverage:
        """γ and ``bound_holds_for`` of the account that gives the smaller leverage.

        Noise alone gives the leverage 1/(1 + σ²/C²). Lemma 1 requires a scale bound only for the larger table and
        gives 1/γ, which is smaller if the bound exceeds C², the largest contribution of one row.
        """
        if self.scale_bound / self.row_norm / self.row_norm > 1:
            return {"gamma": self.gamma, "bound_holds_for": "larger"}
        alone = lemma_gamma(self.sigma, self.row_norm, 0.0) if self.algorithm == "GaussMix" else self.gamma
        return {"gamma": alone, "bound_holds_for": "both"}

    def _meets(self, epsilon: float, delta: float) -> bool:
        slack = 1 + ROUNDING / 2  # processors differ in the last digits; accounts are rounded up by more
        if self.analysis == "paper":
            return self.epsilon(delta) <= epsilon * slack
        return self.delta(epsilon) <= delta * slack

    @property
    def _least_delta(self) -> float:
        """The smallest δ that the analysis covers: τ ≥ √(2 log(3/δ)) in Theorem 1."""
        return max(3 * math.exp(-self._tau * self._tau / 2) * (1 + 1e-12), 1e-300) if self.analysis == "paper" else 0.0

    def _theorem1_epsilon(self, delta: float) -> float:
        if self._tau < math.sqrt(2 * math.log(3 / delta)) * (1 - 1e-15):
            return math.inf
        eta = self._eta / (1 + 2 * self.eigenvalue_error)
        return accounting.theorem1_epsilon(delta, sketch_size=self.k, gamma=self.gamma, eta=eta)

    def _theorem1_delta(self, epsilon: float) -> float:
        least, most = self._least_delta, 1 - 1e-9
        if least >= most:
            return 1.0
        try:
            return smallest_safe(
                lambda delta: self._theorem1_epsilon(delta) - epsilon,
                least,
                min(4 * least, most),
                limit=most,
                log=True,
                rtol=1e-10,
            )
        except BudgetUnmetError:
            return 1.0

    def _check_fields(self) -> None:
        """Reject values of the wrong type or out of range."""
        check.choice(_ALGORITHMS, algorithm=self.algorithm)
        check.choice(NEIGHBOURS, neighbours=self.neighbours)
        check.choice(("exact", "paper"), analysis=self.analysis)
        check.choice((SECURE, SEEDED), generator=self.generator)
        check.sketch_rows(k=self.k)
        check.positive_integer(sketches=self.sketches)
        check.in_interval(0, GAMMA_MAX, closed=True, gamma=check.positive(gamma=self.gamma))
        check.in_interval(*NORMS, closed=True, row_norm=self.row_norm)
        check.nonnegative(sigma=self.sigma)
        check.nonnegative(scale_bound=self.scale_bound)
        check.nonnegative(eigenvalue_error=self.eigenvalue_error)
        if self.eta is not None:
            check.positive(finite=True, eta=self.eta)
        if self.tau is not None:
            check.nonnegative(tau=self.tau)
        if self.v is not None and math.isinf(check.real(v=self.v)):
            raise ArgumentError(f"v must be finite, got {self.v!r}.")
        if self.n_max is not None:
            check.positive_integer(n_max=self.n_max)
        if self.budget is not None:
            check.positive(finite=True, epsilon=self.budget[0])
            check.in_interval(0, 1, delta=self.budget[1])
        for words in (*self.assumptions, self.version):
            check.text(assumptions=words)
