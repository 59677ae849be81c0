r"""Ridge coefficients from a pooled release, with the penalty chosen by data fission.

Post-processing of releases. It is deterministic: its random numbers are seeded from the released matrices.

With G̃ the cleaned second moment and N the shape of its noise,

.. math:: \theta = \bigl(\tilde G_{xx} + \rho\,\lambda_0\,P + \operatorname{diag}(u)\bigr)^{-1} \tilde G_{xy}

P is N_xx for ρ ≤ 1; the part of ρ above 1 does not penalise the intercept, so ρ = ∞ gives the mean of the target. λ₀ is
s(√d + ½), which balances bias against noise, or less if every direction is significant. u_j is the
energy of one row in column j: directions in which the whole table has less would be sensitive to outliers, as in
ordinary least squares.

ρ is chosen by cross-validation. If M has noise E₀ and E is an independent draw from the same distribution, then M + aE
and M - E/a have uncorrelated errors, independent for Gaussian noise (Rasines and Young, arXiv:2104.08471, "data
fission"). Coefficients are fitted on the first copy and scored by θᵀM_vθ - 2θᵀm_v on the second, an unbiased estimate
of the loss up to a constant. Draws are antithetic, E and -E, so that few pairs add little noise to the score. All of
this is a function of M and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from gaussmix._types import Floats
from gaussmix.releases.preconditioning import Cleaned, Pool, clean

__all__ = ["GRID", "RidgeFit", "Shrinkage"]

GRID = (0.06, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, math.inf)
"""Candidate values of ρ."""

PAIRS = 8
"""Number of noise draws; each gives two fissions, with E and with -E."""

AMOUNT = 0.5
"""a: noise added to the fitted copy, in units of the release's noise; the validation copy gets 1/a."""

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """Coefficients of one target in encoded units, the chosen ρ and the residual sum of squares.

    ``residual`` is estimated on held-out copies, in the pool's units, so it has no optimism bias.
    """

    coef: Floats
    strength: float
    residual: float


class Shrinkage:
    """The solver for one pool: fissions are drawn and cleaned once and reused for all targets.

    Parameters
    ----------
    pool : Pool
    seed : int
        Seed of the fissions, derived from the drawn matrices and not from the pool, whose last digits depend on the
        processor.
    one_row : float or array (m,)
        Energy u of one row in each column, in the units of the pool.
    caution : float
        Number of standard errors by which a strength must beat the reference.
    reference : float
        The value of ρ used unless another is significantly better. At small budgets the held-out losses are too noisy
        to compare strengths, and a fixed strength of ½ beats most choices. 1 is for a single pass.
    """

    def __init__(
        self, pool: Pool, *, seed: int, one_row: float | Floats, caution: float = 1.0, reference: float = 0.5
    ) -> None:
        self._pool, self._caution = pool, caution
        self._one_row = np.broadcast_to(one_row, len(pool.current.matrix))
        self._reference = GRID.index(reference)
        self._N = pool.current.shape
        rng = np.random.default_rng(seed)
        self._own = clean(pool.current)
        self._fissions = []
        for _ in range(PAIRS):
            drawn = pool.noise(rng)
            for noise in (drawn, -drawn):
                copy = pool.current.matrix + AMOUNT * noise
                fitted = clean(pool.current, matrix=copy, scale=math.hypot(1.0, AMOUNT))
                self._fissions.append((fitted, pool.current.matrix - noise / AMOUNT))

    @property
    def cleaned(self) -> Floats:
        """The cleaned second moment."""
        return self._own.matrix

    def fit(self, features: Indices, response: Floats, *, intercept: int | None = None) -> RidgeFit:
        """Return the coefficients of a response on the columns ``features``.

        Parameters
        ----------
        features : array of int
            Columns, including the intercept's.
        response : array (m,)
            The response as a combination of columns, none of them a feature.
        intercept : int, optional
            Column of the intercept, which the part of ρ above 1 does not penalise.
        """
        x = np.asarray(features, dtype=np.intp)
        at = None if intercept is None else int(np.flatnonzero(x == intercept)[0])
        losses, whole = np.zeros(len(GRID)), 0.0
        for fitted, held_out in self._fissions:
            solutions = self._solve(fitted, x, response, at)
            losses += (
                np.sum(solutions * (held_out[np.ix_(x, x)] @ solutions), axis=0)
                - 2 * (held_out[x] @ response) @ solutions
            )
            whole += float(response @ held_out @ response)
        solutions = self._solve(self._own, x, response, at)
        losses = losses / len(self._fissions)
        best = int(np.argmin(losses + self._caution * self._deviation(solutions, x, response)))
        return RidgeFit(solutions[:, best], GRID[best], float(losses[best]) + whole / len(self._fissions))

    def _solve(self, copy: Cleaned, x: Indices, response: Floats, at: int | None) -> Floats:
        """Return the solutions for all strengths, one per column."""
        d = len(x)
        base = copy.scale * (math.sqrt(d) + 0.5)  # λ₀
        weakest = float(copy.values[0])
        if weakest > base:
            base = base**2 / weakest
        N = self._N[np.ix_(x, x)]
        free = N if at is None else N - np.outer(N[:, at], N[at]) / N[at, at]
        G = copy.matrix[np.ix_(x, x)] + np.diag(self._one_row[x])
        g = copy.matrix[x] @ response
        part, free_part = base * N, base * free
        solutions = np.empty((d, len(GRID)))
        for column, strength in enumerate(GRID):
            if math.isinf(strength):
                solutions[:, column] = 0.0
                if at is not None:
                    solutions[at, column] = g[at] / G[at, at]
                continue
            penalised = G + min(strength, 1.0) * part
            if strength > 1.0:
                penalised += (strength - 1.0) * free_part
            # The penalties bound the condition number. Fortran order avoids a copy.
            _, solutions[:, column], trouble = lapack.dposv(penalised.T, g, overwrite_a=True)
            if trouble:
                raise np.linalg.LinAlgError(
                    "A penalised second moment is not positive definite. This is a bug in gaussmix; please report it."
                )
        return solutions

    def _deviation(self, solutions: Floats, x: Indices, response: Floats) -> Floats:
        """Return the standard error of each held-out loss less the reference's: √2‖bbᵀ - b₀b₀ᵀ‖, b = Bᵀ(-θ, 1).

        It accounts for M's own noise with θ fixed; antithetic pairs of fissions add nothing to it.
        """
        a = np.tile(response[:, np.newaxis], len(GRID))
        a[x] -= solutions
        b = self._pool.current.factor.T @ a
        reference = b[:, self._reference]
        squares = np.sum(b**2, axis=0)
        norm2 = squares**2 + (reference @ reference) ** 2 - 2 * (b.T @ reference) ** 2
        return np.asarray(np.sqrt(2 * np.maximum(norm2, 0.0)))
