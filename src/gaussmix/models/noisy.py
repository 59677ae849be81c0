r"""A second moment with noise of known law, in one form for every kind of release: post-processing.

For a = (-θ, 1) and g = (Ma)_x, M an unbiased estimate of the Gram matrix G with (Ga)_x = 0,

.. math:: \mathrm{Cov}(g) = \alpha\,\bigl[\,Q_{xx}\,(a^\top Q a) + (Na)_x (Na)_x^\top\,\bigr]

with

- a finite sketch, RᵀR/k = W ~ Wishart(k, G + N)/k, N = σ²I: M = W - N, Q = W, α = 1/k;
- the limit, and passes, M = G + B·GOE·Bᵀ (GOE: variance 1 off the diagonal, 2 on it): Q = N = BBᵀ, α = 1;
- no noise: α = 0.

The form survives linear maps of the columns: each of M, Q, N becomes L · Lᵀ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError

__all__ = ["NoisyMoment", "Shortened"]


@dataclass(frozen=True)
class Shortened:
    """What was lost in the pass that intervals come from. A row z longer than the clip has the weight clip/‖z‖².

    Attributes
    ----------
    weight, deviation : float
        1 less the mean weight of a row, and the standard deviation of its noise, which may make it negative. NaN
        where no intercept's entry shows the weights.
    expected : float
        The same as the last histogram has it: less noise, but blind to rows too few for its bins.

    >>> str(Shortened(weight=0.0042, deviation=0.0016, expected=0.0031))
    'about 0.42 ± 0.16 % of the weight of all rows (by its histogram 0.31 %)'
    >>> str(Shortened(weight=-0.001, deviation=0.0016, expected=0.0031))
    'about 0 ± 0.16 % of the weight of all rows (by its histogram 0.31 %)'
    """

    weight: float
    deviation: float
    expected: float

    def __str__(self) -> str:
        expected = f"{100 * self.expected:.2g} %"
        if math.isnan(self.weight):
            return f"about {expected} of the weight of all rows"
        shown = f"{100 * max(self.weight, 0.0):.2g} ± {100 * self.deviation:.2g} %"
        return f"about {shown} of the weight of all rows (by its histogram {expected})"


@dataclass(frozen=True, eq=False)
class NoisyMoment:
    """A second moment and the law of its noise.

    Attributes
    ----------
    moment : array (m, m)
        M, an unbiased estimate of the Gram matrix; it need not be positive.
    spread : array (m, m)
        Q: entries of M have covariance α (Q_ik Q_jl + Q_il Q_jk).
    shape : array (m, m)
        N, the part of the spread that is there for an empty table too.
    alpha : float
        α; 0 without noise.
    degrees : float
        Rows k behind an estimated spread; infinite where the spread is known.
    shortened : Shortened or None
        What the rows behind the moment lost, where some were shortened.
    independent : bool
        Whether rows can be taken to be drawn independently: not where one person has several.
    void : str
        Why the release that it is from guarantees nothing; empty if it does. It is printed first with every result.
    """

    moment: Floats
    spread: Floats
    shape: Floats
    alpha: float
    degrees: float = math.inf
    shortened: Shortened | None = None
    independent: bool = True
    void: str = ""

    @classmethod
    def wishart(cls, W: Floats, *, noise: Floats, size: int) -> NoisyMoment:
        """From W ~ Wishart(k, G + N)/k."""
        return cls(W - noise, W, noise, 1 / size, float(size))

    @classmethod
    def gaussian(
        cls, moment: Floats, *, shape: Floats, shortened: Shortened | None = None, independent: bool = True
    ) -> NoisyMoment:
        """From G + B·GOE·Bᵀ with BBᵀ = ``shape``."""
        return cls(moment, shape, shape, 1.0, shortened=shortened, independent=independent)

    @classmethod
    def exact(cls, moment: Floats) -> NoisyMoment:
        """A second moment without noise."""
        nothing = np.zeros_like(moment)
        return cls(moment, nothing, nothing, 0.0)

    def mapped(self, L: Floats) -> NoisyMoment:
        """Of the columns L r in place of r, shape (p, m)."""
        moment, spread, shape = (_symmetric(L @ matrix @ L.T) for matrix in (self.moment, self.spread, self.shape))
        return replace(self, moment=moment, spread=spread, shape=shape)

    def check_independent(self, what: str, *, instead: str) -> None:
        """Refuse what takes rows to be drawn independently, where one person has several."""
        if not self.independent:
            raise ArgumentError(
                f"{what} takes rows to be drawn independently, and in this release one person has several: "
                f"use {instead}."
            )

    def quadratic(self, u: Floats) -> tuple[float, float]:
        """uᵀMu, which estimates Σ (u·r)², and its standard deviation √(2α)·uᵀQu."""
        return float(u @ self.moment @ u), math.sqrt(2 * self.alpha) * float(u @ self.spread @ u)


def _symmetric(matrix: Floats) -> Floats:
    return np.asarray((matrix + matrix.T) / 2)
