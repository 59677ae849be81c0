"""What the noise of a sketch was chosen for, and what it spends: a value that computes anew what it claims."""

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
    """Parameters of the mechanism that meet a budget, and what they spend of it.

    Raises
    ------
    NotPrivateError
        If the parameters do not meet the budget, by the exact account: also from ``dataclasses.replace``.

    Attributes
    ----------
    epsilon, delta : float
        The budget asked for.
    sketch_size : int
        Rows k of the sketch.
    gamma : float
        Target for (σ² + λ)/C²: with no scale bound σ² = γC².
    scale : {"none", "private"}
        Whether the noise is lowered by a private bound on the smallest eigenvalue.
    analysis : {"exact", "renyi", "paper"}
        What the calibration rests on.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation that the budget is for.
    eta, tau : float or None
        Noise scale and safety margin of the private λ_min/C²; None without one.
    eigenvalue_error : float
        Public bound, in units of C², on the numerical error of λ_min, charged to its sensitivity.
    epsilon_spent, delta_spent : float
        ε at the budget's δ, and δ at the budget's ε, by the same analysis, rounded up.
    delta_split : tuple of (str, float)
        What δ is spent on, by name.
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
        """Compute anew what is claimed: (ε, δ spent) and (ε spent, δ), neither beyond the budget.

        Raises
        ------
        NotPrivateError
            If more is claimed than is true.
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
                f"gamma={self.gamma!r} with sketch_size={self.sketch_size} does not give what this calibration claims, "
                f"epsilon={self.epsilon!r} and delta={self.delta!r}: the noise is too small for it. To choose gamma "
                "yourself and be told what it costs, use calibrate(delta=..., sketch_size=..., gamma=...)."
            )

    def _gives(self, epsilon: float, delta: float) -> bool:
        """Whether the parameters give (ε, δ), by the exact account or by Theorem 1."""
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
            raise ArgumentError("eta and tau go with scale='private': give both or neither.")
        if private:
            check.positive(finite=True, eta=self.eta)
            check.nonnegative(tau=self.tau)
        if (self.scale, self.analysis) in (("none", "paper"), ("private", "renyi")):
            raise ArgumentError(f"analysis={self.analysis!r} is not offered with scale={self.scale!r}.")


def eigenvalue_error_bound(columns: int, *, n_max: int = 2**40) -> float:
    """Bound e on the error of a symmetric solver's λ_min of a Gram matrix of up to ``n_max`` rows, in units of C².

    Ten times columns · u · n_max, u = 2⁻⁵³: the norm of the matrix is at most n_max C², and backward stable solvers err
    by a small multiple of u times it.
    """
    return 10 * check.positive_integer(columns=columns) * 2.0**-53 * check.positive_integer(n_max=n_max)
