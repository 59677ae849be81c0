"""The account of Gaussian mixing with a finite sketch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.arguments import RELATIONS, Relation
from gaussmix.accounting.claims import holds
from gaussmix.errors import ArgumentError, NotPrivateError

__all__ = ["Calibration", "CalibrationAnalysis", "ScaleBound", "eigenvalue_error_bound"]

ScaleBound = Literal["none", "private"]
CalibrationAnalysis = Literal["exact", "renyi", "paper"]


@dataclass(frozen=True)
class Calibration:
    """Parameters of Gaussian mixing that meet a budget.

    Raises
    ------
    NotPrivateError
        If the parameters do not meet the budget by the exact account.

    Attributes
    ----------
    epsilon, delta : float
        Requested budget.
    sketch_size : int
        Number of rows k of the sketch.
    gamma : float
        Target for (σ² + λ)/C²; without a scale bound σ² = γC².
    scale : {"none", "private"}
        Whether a private lower bound on the smallest eigenvalue reduces the noise.
    analysis : {"exact", "renyi", "paper"}
        Analysis used for the calibration.
    relation : {"zero-out", "replace-one"}
        Neighbouring relation.
    eta, tau : float or None
        Noise scale and safety margin of the private λ_min/C²; None with ``scale="none"``.
    eigenvalue_error : float
        Public bound on the numerical error of λ_min in units of C², included in its sensitivity.
    epsilon_spent, delta_spent : float
        ε at the budget's δ, and δ at the budget's ε, by the same analysis, rounded up.
    delta_split : tuple of (str, float)
        Parts of δ by name.
    """

    epsilon: float
    delta: float
    sketch_size: int
    gamma: float
    scale: ScaleBound
    analysis: CalibrationAnalysis
    relation: Relation
    eta: float | None
    tau: float | None
    eigenvalue_error: float
    epsilon_spent: float
    delta_spent: float
    delta_split: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        self.verify()

    def verify(self) -> None:
        """Recompute the claims (ε, δ spent) and (ε spent, δ), and check that neither exceeds the budget.

        Raises
        ------
        NotPrivateError
            If a claim does not hold.
        """
        self._check_arguments()
        parts = math.fsum(part for _, part in self.delta_split)
        if (
            self.epsilon_spent > self.epsilon
            or self.delta_spent > self.delta
            or not math.isclose(parts, self.delta_spent, rel_tol=1e-9)
            or not self._gives(self.epsilon, self.delta_spent)
            or not self._gives(self.epsilon_spent, self.delta)
        ):
            raise NotPrivateError(
                f"gamma={self.gamma!r} with sketch_size={self.sketch_size} does not give the claimed "
                f"epsilon={self.epsilon!r} and delta={self.delta!r}: the noise is too small. To compute the epsilon of "
                "a chosen gamma, use calibrate(delta=..., sketch_size=..., gamma=...)."
            )

    def _gives(self, epsilon: float, delta: float) -> bool:
        """Return whether the parameters give (ε, δ) by the exact account, or by Theorem 1 for "paper"."""
        return holds(
            epsilon,
            delta,
            sketch_size=self.sketch_size,
            gamma=self.gamma,
            relation=self.relation,
            eta=self.eta,
            tau=self.tau,
            eigenvalue_error=self.eigenvalue_error,
            theorem1=self.analysis == "paper",
        )

    def _check_arguments(self) -> None:
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        check.sketch_rows(sketch_size=self.sketch_size)
        check.positive(finite=True, gamma=self.gamma)
        check.choice(("none", "private"), scale=self.scale)
        check.choice(("exact", "renyi", "paper"), analysis=self.analysis)
        check.choice(RELATIONS, relation=self.relation)
        check.nonnegative(epsilon_spent=self.epsilon_spent)
        check.nonnegative(delta_spent=self.delta_spent)
        check.nonnegative(eigenvalue_error=self.eigenvalue_error)
        for _, part in self.delta_split:
            check.nonnegative(delta_split=part)
        private = self.scale == "private"
        if (self.eta is None) == private or (self.tau is None) == private:
            raise ArgumentError("eta and tau must both be given with scale='private', and must be None otherwise.")
        if private:
            check.positive(finite=True, eta=self.eta)
            check.nonnegative(tau=self.tau)
        if (self.scale, self.analysis) in (("none", "paper"), ("private", "renyi")):
            raise ArgumentError(f"analysis={self.analysis!r} is not available with scale={self.scale!r}.")


def eigenvalue_error_bound(columns: int, *, n_max: int = 2**40) -> float:
    """Return a bound e on the numerical error of λ_min of a Gram matrix of up to ``n_max`` rows, in units of C².

    It is 10 · columns · u · n_max with u = 2⁻⁵³: the norm of the matrix is at most n_max C², and the error of a
    backward stable solver is a small multiple of u times the norm.
    """
    return 10 * check.positive_integer(columns=columns) * 2.0**-53 * check.positive_integer(n_max=n_max)
