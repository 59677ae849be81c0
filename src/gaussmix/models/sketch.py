"""A Gaussian sketch of the encoded table, as its triangular factor: what the paper's mechanism releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.solvers import as_published, cleaned_ridge, least_squares
from gaussmix.tables.schema import Schema

__all__ = ["VARIANTS", "Sketch", "Variant", "rows_from_factor"]

Variant = Literal["exact", "paper"]
VARIANTS: tuple[Variant, ...] = ("exact", "paper")


@dataclass(frozen=True, eq=False)
class Sketch:
    """R with RᵀR = MᵀM, M = SA + σΞ the k × m sketch, in the units of encoded rows and on a public grid.

    Attributes
    ----------
    factor : array (m, m)
        R.
    size : int
        Rows k of M.
    noise_variance : float
        σ² of the noise in M: RᵀR / k estimates G + σ²I. 0 for a table without noise, whose k is 1.
    schema : Schema
        How rows were encoded: declared.
    void : str
        Why the release guarantees nothing; empty if it does.
    """

    factor: Floats
    size: int
    noise_variance: float
    schema: Schema
    void: str = ""

    @cached_property
    def noisy_second_moment(self) -> Floats:
        """RᵀR / k, an unbiased estimate of G + σ²I."""
        return np.asarray(self.factor.T @ self.factor / self.size)

    @cached_property
    def second_moment(self) -> Floats:
        """RᵀR / k - σ²I, an unbiased estimate of the Gram matrix; it need not be positive."""
        return np.asarray(self.noisy_second_moment - self.noise_variance * np.eye(len(self.factor)))

    @property
    def entry_noise(self) -> float:
        """Standard deviation σ²/√k of an off-diagonal entry of :attr:`second_moment` where the table is empty."""
        return self.noise_variance / math.sqrt(self.size)

    @property
    def noisy(self) -> NoisyMoment:
        """The second moment and the law of its noise, for inference."""
        W = self.noisy_second_moment
        if self.noise_variance == 0:
            return replace(NoisyMoment.exact(W), void=self.void)
        noise = self.noise_variance * np.eye(len(W))
        return replace(NoisyMoment.wishart(W, noise=noise, size=self.size), void=self.void)

    @property
    def predictive(self) -> NoisyMoment:
        """The same, for what predicts."""
        return self.noisy

    @property
    def column_noise(self) -> Floats:
        """:attr:`entry_noise` for every encoded column."""
        return np.full(len(self.factor), self.entry_noise)

    def rows(self, seed: int | np.random.Generator | None = None) -> Floats:
        """Sketch rows with the law of M given R, shape (k, m), for bootstraps and the like: post-processing."""
        return rows_from_factor(self.factor, self.size, np.random.default_rng(seed))

    def solve(self, features: Sequence[int], responses: Floats, variant: Variant) -> Floats:
        """θ of every response, a combination of encoded columns (m, q), on some of the encoded columns: (d, q)."""
        check.choice(VARIANTS, variant=variant)
        rows = np.asarray(features)
        block = np.ix_(rows, rows)
        if self.noise_variance == 0:
            return least_squares(self.noisy_second_moment[block], self.noisy_second_moment[rows] @ responses)
        if variant == "paper":
            return as_published(self.noisy_second_moment[block], self.noisy_second_moment[rows] @ responses)
        return cleaned_ridge(
            self.second_moment[block], self.second_moment[rows] @ responses, entry_noise=self.entry_noise
        )

    def residual(self, features: Sequence[int], response: Floats) -> float:
        r"""Sum of squares that :meth:`solve` leaves of a response, without the optimism of coefficients on own noise.

        θ = H M_xy moves with the noise of M: aᵀMa, a = (-θ, 1), is on average too small by 2 tr(HV), V = aᵀWa W_xx/k
        the covariance of the score, H ≈ (M_xx + rI)⁻¹, M_xx made positive, r = s(√d + ½).
        """
        rows = np.asarray(features)
        a = np.array(response)
        a[rows] -= self.solve(features, response[:, np.newaxis], "exact")[:, 0]
        found = float(a @ self.second_moment @ a)
        if self.noise_variance == 0:
            return found
        h = np.maximum(scipy.linalg.eigvalsh(self.second_moment[np.ix_(rows, rows)]), 0.0)
        freedom = float(np.sum((h + self.noise_variance) / (h + self.entry_noise * (math.sqrt(len(rows)) + 0.5))))
        return found + 2 * freedom * float(a @ self.noisy_second_moment @ a) / self.size


def rows_from_factor(R: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Sketch rows Q R, shape (k, m), given the factor R of a sketch of k rows: post-processing.

    Q has orthonormal columns and is uniform (Haar) among such matrices, so Q R has the law of the rows that
    R came from.
    """
    if check.sketch_rows(k=k) < len(R):
        raise ArgumentError(f"k must be the number of sketch rows behind R, at least {len(R)}, got {k!r}.")
    Q, T = scipy.linalg.qr(rng.standard_normal((k, len(R))), mode="economic", check_finite=False)
    signs = np.where(np.diagonal(T) < 0, -1.0, 1.0)  # without them Q is not uniform
    return np.asarray((Q * signs) @ R)
