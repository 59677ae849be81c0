r"""Second moments whose structure is known: counts of levels, sums within groups, by generalised least squares.

A row that has level a of one category and level b of another is u_ab = (1, 1_a, 1_b): its block of the Gram matrix is
Σ n_ab u_ab u_abᵀ, linear in few counts, while the noisy block has many entries. For G = Σ_k β_k D_k, seen with noise of
spread Q and size α (:mod:`gaussmix.models.noisy`), normal likelihood gives

.. math:: \hat\beta = K^{-1} r,\quad K_{kl} = \tfrac12\mathrm{tr}(D_k Q^{-1} D_l Q^{-1}),\quad
    r_k = \tfrac12\mathrm{tr}(D_k Q^{-1} M Q^{-1}),\quad \mathrm{Cov}(\hat\beta) = \alpha K^{-1} .

β̂ is unbiased whatever the weights are; with the law as stated no unbiased linear estimate has less variance.
Post-processing: functions of a release alone.

>>> noisy = NoisyMoment.gaussian(np.array([[10.0, 4.2], [4.2, 3.9]]), shape=np.eye(2))
>>> counts = fit_structure(noisy, level_designs(np.array([[1.0, 0.0], [1.0, 1.0]])))
>>> counts.values.round(3).tolist()
[5.9, 4.1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.models.noisy import NoisyMoment

__all__ = ["Fitted", "fit_structure", "group_designs", "level_designs", "ratio_interval"]

_FLOOR = 1e-11
"""Directions of the noise that are smaller, relative to the largest, count as this large: only weights change."""


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
    def deviations(self) -> Floats:
        """Standard deviations."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))


def fit_structure(noisy: NoisyMoment, designs: Floats) -> Fitted:
    """β̂ and its covariance from designs D, shape (number of parameters, p, p), symmetric."""
    P = _inverse(noisy.shape if noisy.has_noise else np.diag(np.maximum(np.diagonal(noisy.moment), 1e-300)))
    seen = (P @ designs @ P).reshape(len(designs), -1)
    K = seen @ designs.reshape(len(designs), -1).T / 2
    r = seen @ noisy.moment.ravel() / 2
    unit = 1 / np.sqrt(np.maximum(np.diagonal(K), 1e-300))
    scaled = K * np.outer(unit, unit)
    back = unit[:, np.newaxis] * scipy.linalg.pinvh((scaled + scaled.T) / 2) * unit
    return Fitted(np.asarray(back @ r), np.asarray(back) if noisy.has_noise else np.zeros_like(back))


def level_designs(u: Floats) -> Floats:
    """D = u uᵀ for every kind of row u, shape (kinds, p)."""
    return np.asarray(u[:, :, np.newaxis] * u[:, np.newaxis])


def group_designs(u: Floats) -> Floats:
    """Designs of (n_a, Σ_a x) for kinds of rows u, shape (kinds, p), x after them; and, last, of Σ x²."""
    kinds, p = u.shape
    found = np.zeros((2 * kinds + 1, p + 1, p + 1))
    found[:kinds, :p, :p] = level_designs(u)
    found[kinds : 2 * kinds, :p, p] = found[kinds : 2 * kinds, p, :p] = u
    found[-1, p, p] = 1.0
    return found


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


def _inverse(Q: Floats) -> Floats:
    """Q⁻¹, directions below `_FLOOR` raised to it."""
    unit = 1 / np.sqrt(np.maximum(np.diagonal(Q), 1e-300))
    values, vectors = scipy.linalg.eigh(Q * np.outer(unit, unit))
    half = unit[:, np.newaxis] * vectors / np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    return np.asarray(half @ half.T)
