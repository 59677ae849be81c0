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

__all__ = ["NORMAL_95", "ClippingLoss", "Fitted", "NoisyMoment", "fieller", "ratio_interval", "share_words"]


NORMAL_95 = 1.959963984540054
"""Half the length of a 95 % interval, in standard errors."""

WIDEST_SHARE = 0.25
"""A share is not known at this budget if its interval is longer than this."""


def share_words(low: float, high: float, *, of: str) -> str:
    """Return the 95 % interval of a share, in words.

    >>> share_words(0.0, 0.0488, of="rows"), share_words(0.0, 0.7, of="rows")
    ('0 to 4.9 % of the rows, 95 % interval', 'a share of the rows not known at this budget')
    """
    if not high - low <= WIDEST_SHARE:
        return f"a share of the {of} not known at this budget"
    # Rounded outward, so that a share above 0 is never printed as at most 0.
    unit = 100.0 if high >= 0.1 else 1000.0 if high >= 0.001 else 10000.0
    ends = [f"{100 * outward(end * unit) / unit:.2g}" for outward, end in ((math.floor, low), (math.ceil, high))]
    return f"{' to '.join(ends)} % of the {of}, 95 % interval"


@dataclass(frozen=True)
class ClippingLoss:
    """Row weight removed by norm clipping in the final pass. A row z with ‖z‖² > clip has the weight clip/‖z‖².

    Attributes
    ----------
    weight, std_error : float
        1 minus the mean weight of a row, and its standard error; noise can make the estimate negative. NaN without an
        intercept column.
    low, high : float
        Its 95 % interval within [0, 1].
    expected : float
        The same, estimated from the last histogram: less noise, but it misses rows too few to fill a bin. Printed only
        where there is no other estimate.

    >>> str(ClippingLoss(weight=0.0042, std_error=0.0016, low=0.00106, high=0.00734, expected=0.0031))
    '0.1 to 0.8 % of the row weight, 95 % interval'
    >>> str(ClippingLoss(weight=0.9, std_error=0.3, low=0.0, high=1.0, expected=0.0031))
    'a share of the row weight not known at this budget'
    """

    weight: float
    std_error: float
    low: float
    high: float
    expected: float

    def __str__(self) -> str:
        if math.isnan(self.weight):
            return f"an estimated {100 * self.expected:.2g} % of the row weight, standard error not known"
        return share_words(self.low, self.high, of="row weight")


@dataclass(frozen=True, eq=False)
class Fitted:
    """Estimates with normal errors of known covariance.

    Attributes
    ----------
    values : array (p,)
    covariance : array (p, p)
    """

    values: Floats
    covariance: Floats

    def mapped(self, A: Floats) -> Fitted:
        """Of A β in place of β."""
        return Fitted(np.asarray(A @ self.values), np.asarray(A @ self.covariance @ A.T))

    @property
    def std_errors(self) -> Floats:
        """Standard errors."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))


def ratio_interval(
    over: Floats, under: Floats, var_over: Floats, var_under: Floats, both: Floats, z: float
) -> tuple[Floats, Floats]:
    r"""Values ψ with (a - ψb)² ≤ z²(v_a - 2ψ c + ψ² v_b), for a and b normal: Fieller's interval.

    Exact for a/b where variances are known. Where b is not told from 0 it does not end.
    """
    A = under**2 - z**2 * var_under
    B = over * under - z**2 * both
    C = over**2 - z**2 * var_over
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(B**2 - A * C, 0.0))
        low, high = (B - root) / A, (B + root) / A
    bounded = A > 0
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


def fieller(fitted: Fitted, z: float) -> tuple[float, float, float, float]:
    """Return the ratio of the first to the second of two estimates, its standard error and Fieller's interval."""
    (over, under), V = fitted.values, fitted.covariance
    low, high = ratio_interval(over, under, V[0, 0], V[1, 1], V[0, 1], z)
    if not np.isfinite(low):
        return math.nan, math.nan, -math.inf, math.inf
    value = float(over / under)
    gradient = np.array([1.0, -value])
    error = math.sqrt(max(float(gradient @ V @ gradient), 0.0)) / abs(float(under))
    return value, error, float(low), float(high)


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
        moment, shape = L @ self.moment @ L.T, L @ self.shape @ L.T
        return replace(self, moment=(moment + moment.T) / 2, shape=(shape + shape.T) / 2)

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
