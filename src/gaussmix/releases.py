"""What leaves the mechanism: the factor of a sketch, and a certificate of what was spent on it.

**Private**: everything here is a function of a release and of declared quantities. Estimators, intervals and reports
compute from it alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussmix.encoding import RowEncoder
from gaussmix.sampling import generator, rows_from_factor

__all__ = ["Certificate", "Release"]

Floats = NDArray[np.float64]

ADVICE = {
    "zero-out": "one row set to zero, added or removed",
    "replace-one": "one row replaced by another",
}


@dataclass(frozen=True)
class Certificate:
    """What a release guarantees, and what the guarantee rests on. Holds declared and public numbers only.

    Attributes
    ----------
    mechanism : str
        Name of the algorithm.
    epsilon, delta : float
        The guarantee.
    relation : str
        Neighbouring relation; the unit of privacy is one row.
    analysis : str
        What the guarantee was computed with.
    row_norm : float
        Declared bound C on the norm of an encoded row.
    bounds : dict
        The declared bounds behind it.
    generator : str
        Where the noise came from.
    conditions : tuple of str
        What would void the guarantee, or does: a known seed, an infinite ε, a promise of the caller's.
    parameters : dict
        Public parameters of the mechanism: sketch size, γ, noise variance and the like.
    version : str
        Version of the library.
    """

    mechanism: str
    epsilon: float
    delta: float
    relation: str
    analysis: str
    row_norm: float
    bounds: dict[str, Any]
    generator: str
    conditions: tuple[str, ...]
    parameters: dict[str, Any]
    version: str = field(default="")

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds with nothing further to assume about seeds."""
        return not any(condition.startswith("void:") for condition in self.conditions)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}: ({self.epsilon:g}, {self.delta:g})-differentially private",
            f"  neighbours: {self.relation} ({ADVICE[self.relation]})",
            f"  analysis: {self.analysis}; rows bounded by {self.row_norm:.6g}; generator: {self.generator}",
        ]
        return "\n".join(lines + [f"  {condition}" for condition in self.conditions])


@dataclass(frozen=True, eq=False)
class Release:
    """A Gaussian sketch of the encoded table, as its triangular factor.

    Attributes
    ----------
    factor : array (m, m)
        R with RᵀR = MᵀM, M the k × m sketch, in the units of encoded rows and on a public grid.
    sketch_size : int
        Rows k of M.
    noise_variance : float
        σ² of the noise in M: RᵀR / k estimates G + σ²I.
    encoder : RowEncoder
        How rows were encoded: declared.
    certificate : Certificate
        What was spent.
    """

    factor: Floats
    sketch_size: int
    noise_variance: float
    encoder: RowEncoder
    certificate: Certificate

    @property
    def noisy_second_moment(self) -> Floats:
        """RᵀR / k, an unbiased estimate of G + σ²I."""
        return np.asarray(self.factor.T @ self.factor / self.sketch_size)

    @property
    def second_moment(self) -> Floats:
        """RᵀR / k - σ²I, an unbiased estimate of the Gram matrix; it need not be positive."""
        return np.asarray(self.noisy_second_moment - self.noise_variance * np.eye(len(self.factor)))

    @property
    def entry_noise(self) -> float:
        """Standard deviation σ²/√k of an off-diagonal entry of :attr:`second_moment` where the table is empty."""
        return self.noise_variance / float(np.sqrt(self.sketch_size))

    def rows(self, random_state: int | np.random.Generator | None = None) -> Floats:
        """Sketch rows with the law of M given R, shape (k, m): post-processing, for bootstraps and the like."""
        return rows_from_factor(self.factor, self.sketch_size, generator(random_state)[0])

    def on_condition(self, condition: str) -> Release:
        """The same release, its certificate with one condition more."""
        conditions = (*self.certificate.conditions, f"condition: {condition}")
        return replace(self, certificate=replace(self.certificate, conditions=conditions))

    def __repr__(self) -> str:
        m, k = len(self.factor), self.sketch_size
        return f"Release({m} columns, sketch_size={k}, epsilon={self.certificate.epsilon:g})"
