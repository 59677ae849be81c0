r"""A second moment with noise of known distribution: post-processing.

M = G + B·GOE·Bᵀ (GOE: variance 1 off the diagonal, 2 on it) is an unbiased estimate of the Gram matrix G, and N = BBᵀ
is the shape of its noise, 0 without noise. For a = (-θ, 1) with (Ga)_x = 0 and g = (Ma)_x,

.. math:: \mathrm{Cov}(g) = N_{xx}\,(a^\top N a) + (Na)_x (Na)_x^\top .

A linear map L of the columns takes M to LMLᵀ and N to LNLᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError

__all__ = ["ClippingLoss", "NoisyMoment"]


@dataclass(frozen=True)
class ClippingLoss:
    """Row weight removed by norm clipping in the final pass. A row z with ‖z‖² > clip has the weight clip/‖z‖².

    Attributes
    ----------
    weight, std_error : float
        1 minus the mean weight of a row, and its standard error; noise can make the estimate negative. NaN without an
        intercept column.
    expected : float
        The same, estimated from the last histogram: less noise, but it misses rows too few to fill a bin.

    >>> str(ClippingLoss(weight=0.0042, std_error=0.0016, expected=0.0031))
    'an estimated 0.42 % (SE 0.16 %) of total row weight (histogram estimate 0.31 %)'
    >>> str(ClippingLoss(weight=-0.001, std_error=0.0016, expected=0.0031))
    'an estimated 0 % (SE 0.16 %) of total row weight (histogram estimate 0.31 %)'
    """

    weight: float
    std_error: float
    expected: float

    def __str__(self) -> str:
        expected = f"{100 * self.expected:.2g} %"
        if math.isnan(self.weight):
            return f"an estimated {expected} of total row weight"
        shown = f"{100 * max(self.weight, 0.0):.2g} % (SE {100 * self.std_error:.2g} %)"
        return f"an estimated {shown} of total row weight (histogram estimate {expected})"


@dataclass(frozen=True, eq=False)
class NoisyMoment:
    """A second moment and the distribution of its noise.

    Attributes
    ----------
    moment : array (m, m)
        M, an unbiased estimate of the Gram matrix, not necessarily positive semidefinite.
    shape : array (m, m)
        N: entries of M have covariance N_ik N_jl + N_il N_jk. 0 without noise.
    clipping_loss : ClippingLoss or None
        Row weight removed by norm clipping; None where no row can be clipped.
    independent : bool
        Whether rows can be treated as independent draws: not if a privacy unit may have several.
    void : str
        Why the release has no privacy guarantee; empty if it has one. Printed first with every result.
    clipping_bias : float
        B, allowance for the distance of the unweighted coefficients, in standard errors of the privacy noise.
    coded : mapping of str to str
        Columns that are top-coded, with their thresholds in words.
    weighted : str
        How norm clipping and contribution bounds weight rows, in words; empty where every row has weight 1.
    near_unweighted : bool
        Whether the unweighted coefficients are estimated to be within the allowance, with all heavy tails top-coded.
    """

    moment: Floats
    shape: Floats
    clipping_loss: ClippingLoss | None = None
    independent: bool = True
    void: str = ""
    clipping_bias: float = 0.0
    coded: Mapping[str, str] = field(default_factory=dict)
    weighted: str = ""
    near_unweighted: bool = True

    @property
    def has_noise(self) -> bool:
        """Whether the noise is not zero."""
        return bool(self.shape.any())

    def mapped(self, L: Floats) -> NoisyMoment:
        """Return the moment of the columns L r, L of shape (p, m)."""
        moment, shape = (_symmetric(L @ matrix @ L.T) for matrix in (self.moment, self.shape))
        return replace(self, moment=moment, shape=shape)

    def check_independent(self, what: str, *, instead: str) -> None:
        """Reject methods that assume independent rows if a privacy unit may have several."""
        if not self.independent:
            raise ArgumentError(
                f"{what} assumes independent rows, but in this release a privacy unit may have several rows. "
                f"Use {instead}."
            )

    def quadratic(self, u: Floats) -> tuple[float, float]:
        """Return uᵀMu, which estimates Σ (u·r)², and its standard error √2·uᵀNu."""
        return float(u @ self.moment @ u), math.sqrt(2) * float(u @ self.shape @ u)


def _symmetric(matrix: Floats) -> Floats:
    return np.asarray((matrix + matrix.T) / 2)
