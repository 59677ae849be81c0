r"""Covariances of columns after others are taken out, with the law of their noise.

With g the columns that are taken out (the constant among them) and β_i = M_gg⁻¹M_gi, let u_i = e_i - Σ_g β_ig e_g. Then
C_ij = u_iᵀMu_j estimates Σ (residual of i)(residual of j), and moves with the noise E by u_iᵀEu_j, to first order. So C
has noise of the same form, with spread Ũ = UᵀQU. To second order the fitted β make it too small on average by
α[tr(M_gg⁻¹Q_gg)Ũ_ij + (Qu_i)_gᵀM_gg⁻¹(Qu_j)_g], which is added.

Correlations are C_ij/√(C_ii C_jj); with Ũ in units where C_ii = 1,

.. math:: \mathrm{Var}(r_{ij}) = \alpha\Bigl[\tilde U_{ii}\tilde U_{jj} + \tilde U_{ij}^2
    - 2 r\tilde U_{ij}(\tilde U_{ii} + \tilde U_{jj})
    + \tfrac{r^2}{2}(\tilde U_{ii}^2 + \tilde U_{jj}^2 + 2\tilde U_{ij}^2)\Bigr] .

Plain functions of a noisy moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.models.noisy import NoisyMoment

__all__ = ["Residuals", "residuals"]

SEEN = 2.0
"""Standard deviations from 0 that a variance must have for a correlation to be told."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """Sums of squares and products about others.

    Attributes
    ----------
    moment : array (p, p)
        C.
    shape : array (p, p)
        Ũ: entries of C have covariance Ũ_ik Ũ_jl + Ũ_il Ũ_jk, about.
    vectors : array (p, m)
        u, one a row.
    """

    moment: Floats
    shape: Floats
    vectors: Floats

    def correlations(self) -> tuple[Floats, Floats]:
        """Correlations, within [-1, 1], and their standard deviations; NaN where a variance drowns in noise."""
        C, U = self.moment, self.shape
        variance = np.diagonal(C)
        seen = variance > SEEN * np.sqrt(2) * np.diagonal(U)
        unit = np.where(seen, 1 / np.sqrt(np.where(seen, variance, 1.0)), np.nan)
        r, S = C * np.outer(unit, unit), U * np.outer(unit, unit)
        own = np.diagonal(S)
        rows, columns = own[:, np.newaxis], own[np.newaxis]
        found = rows * columns + S**2 - 2 * r * S * (rows + columns) + r**2 / 2 * (rows**2 + columns**2 + 2 * S**2)
        deviation = np.sqrt(np.maximum(found, 0.0))
        r = np.clip(r, -1.0, 1.0)
        known = np.flatnonzero(seen)
        r[known, known], deviation[known, known] = 1.0, 0.0
        return r, deviation


def residuals(noisy: NoisyMoment, rows: Floats, given: Floats) -> Residuals:
    """C of combinations ``rows`` (p, m) of the columns of ``noisy``, combinations ``given`` (q, m) taken out."""
    own = noisy.mapped(np.vstack([rows, given]))
    p = len(rows)
    M_gg = own.moment[p:, p:]
    beta = scipy.linalg.lstsq(M_gg, own.moment[p:, :p])[0]
    U = np.vstack([np.eye(p), -beta])
    shape = U.T @ own.shape @ U
    moment = U.T @ own.moment @ U
    if noisy.has_noise:
        seen = (own.shape @ U)[p:]
        trace = float(np.trace(scipy.linalg.lstsq(M_gg, own.shape[p:, p:])[0]))
        moment = moment + (trace * shape + seen.T @ scipy.linalg.lstsq(M_gg, seen)[0])
    vectors = rows - beta.T @ given
    return Residuals((moment + moment.T) / 2, (shape + shape.T) / 2, vectors)
