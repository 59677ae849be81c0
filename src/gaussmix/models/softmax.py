r"""Several classes from second moments: softmax scores by the linear discriminant with one covariance.

Let ŷ_k(x) be least squares of the indicator of class k, π the shares and R the residual covariance of the indicators.
The covariance of x within classes is W = T - DΠ⁻¹Dᵀ, T the total one, D that of x with the indicators, Π = diag(π), so
that with B = T⁻¹D and Q = (R + ππᵀ)⁻¹

.. math:: W^{-1}(\mu_k - \mu) = B Q e_k ,\qquad (\mu_j - \mu)^\top W^{-1}(\mu_k - \mu) = Q_{jk} - [j = k]/\pi_k ,

and the scores of the discriminant are, up to a number that all classes share,

.. math:: s_k(x) = (Q\,\hat y(x))_k + h_k ,\qquad h_k = \log\pi_k + \frac1{2\pi_k} - \frac{Q_{kk}}2 .

The log odds of k against r are least squares of one combination of indicators, c = Q(e_k - e_r): divided by its size
c̄ = c v with v = 1/(cᵀRc) they are b/v, v the residual variance of c̄ᵀy, as for two classes
(:mod:`gaussmix.models.discriminant`). Intervals take c̄ as known, and have the noise of b and v.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.models.discriminant import estimate_discriminant
from gaussmix.models.transcript import Transcript

__all__ = ["Softmax", "estimate_softmax"]

_MOST_EXPLAINED = 1 - 1e-9


@dataclass(frozen=True, eq=False)
class Softmax:
    """What turns least squares of indicators into scores of classes.

    Attributes
    ----------
    shares : array (K,)
        π.
    residual : array (K, K)
        R, of rank K - 1: indicators add up to one.
    """

    shares: Floats
    residual: Floats

    @property
    def scaling(self) -> Floats:
        """Q = (R + ππᵀ)⁻¹."""
        whole = self.residual + np.outer(self.shares, self.shares)
        return np.asarray(scipy.linalg.solve(whole, np.eye(len(whole)), assume_a="pos"))

    @property
    def offsets(self) -> Floats:
        """What scores are moved by, h."""
        return np.asarray(np.log(self.shares) + 1 / (2 * self.shares) - np.diagonal(self.scaling) / 2)

    def contrast(self, k: int, r: int) -> Floats:
        """Which combination of indicators has the log odds of k against r, but for a constant: c = Q(e_k - e_r)."""
        return np.asarray(self.scaling[:, k] - self.scaling[:, r])


def estimate_softmax(
    statistic: Transcript, constant: Floats, indicators: Floats, features: list[int], coefficients: Floats
) -> Softmax:
    """π and R from a release, noise taken out, shrunk where it dominates.

    Shares and what is explained of every indicator are estimated as for two classes, each against all others. The
    explained covariance, of the coefficients that predict, has its canonical R² cut to [0, 1), and is multiplied by one
    number, at most 1, so that it explains no more than that of all indicators together: noise alone may make it
    negative, and never large.

    Parameters
    ----------
    statistic : Transcript
    constant : array (m,)
        The combination of encoded columns that is 1 in every row.
    indicators : array (m, K)
    features : list of int
    coefficients : array (d, K)
        Of every indicator on the features.
    """
    left = indicators.copy()
    left[features] -= coefficients
    own = [
        estimate_discriminant(
            statistic.predictive,
            constant,
            2 * indicators[:, k] - constant,
            2 * left[:, k],
            residual=4 * statistic.residual(features, indicators[:, k]),
        )
        for k in range(indicators.shape[1])
    ]
    shares = np.array([one.share for one in own])
    shares = shares / shares.sum()
    moment = statistic.predictive.moment
    rows = max(float(constant @ moment @ constant), 1.0)
    whole = np.diag(shares) - np.outer(shares, shares)
    explained = whole - left.T @ moment @ left / rows
    sizes = np.diagonal(whole)
    asked = float(sizes @ np.array([one.explained for one in own]))
    values, U = scipy.linalg.eigh(whole)
    values, U = values[1:], U[:, 1:]  # the first is 0: indicators add up to one
    roots = np.sqrt(np.maximum(values, 1e-300))
    F = (U / roots).T @ (explained + explained.T) @ (U / roots) / 2
    f, V = scipy.linalg.eigh(F)
    f, frame = np.maximum(f, 0.0), U * roots @ V
    found = float(f @ np.sum(frame**2, axis=0))
    f = f * min(asked / found, 1.0) if found > 0 else f
    return Softmax(shares, np.asarray((frame * (1 - np.minimum(f, _MOST_EXPLAINED))) @ frame.T))
