r"""Simulated releases of simulated tables, and the accuracy of models from them.

This module never sees data and does not protect any: noise is floating-point and from known seeds. N rows are simulated
for a table of n rows; sums and counts are multiplied by n/N before noise is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.models.passes import absorb, plan_histogram, plan_pass
from gaussmix.models.pooling import NoisyGram, goe
from gaussmix.models.transcript import PassOutput, Transcript, start
from gaussmix.reporting.imagined import Imagined, least_squares
from gaussmix.tables.columns import Categorical
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["Trial"]

_INTERVAL = 1.96  # standard errors on either side of a 95 % interval


@dataclass(frozen=True, eq=False)
class Trial:
    """A simulated table of n rows, represented by N of them with weights.

    Attributes
    ----------
    table : Imagined
        Simulated rows on which models are evaluated. The first n of them, or all, are the table.
    rows : array (N, m)
    weight : float
        n/N.
    gram : array (m, m)
        Gram matrix of all n rows.
    """

    schema: Schema
    table: Imagined
    rows: Floats
    weight: float
    gram: Floats

    @classmethod
    def of(cls, schema: Schema, table: Imagined, n: int) -> Trial:
        """Return a table of n rows, represented by the first n simulated rows or by all of them."""
        rows = table.rows[:n]
        weight = n / len(rows)
        return cls(schema, table, rows, weight, weight * (rows.T @ rows))

    @property
    def least_squares_r2(self) -> float:
        """R² of least squares without privacy, on new rows."""
        return self.table.explained(least_squares(self.gram, self.table.features, self.table.target))

    def r2_of(self, drawn: Transcript) -> float:
        """Return R² of a model from the release, on new rows."""
        response = np.zeros((len(self.gram), 1))
        response[self.table.target] = 1.0
        return self.table.explained(drawn.solve(self.table.features, response)[:, 0])

    def draw(self, mu: Sequence[float], rng: np.random.Generator) -> Transcript:
        """Simulate all passes. ``mu`` is for the first pass, then for a histogram and a pass alternately."""
        m = len(self.gram)
        outputs = [PassOutput(self.gram + goe(m, rng) / (math.sqrt(2) * mu[0]), mu[0])]
        state = start(self.schema, outputs[0].matrix, mu)
        while not state.done:
            asked, counts = plan_histogram(state), []
            for metric, edges in zip(asked.metrics, asked.edges, strict=True):
                _, squares = self._mapped(metric.transform.matrix)
                found = self.weight * np.bincount(np.searchsorted(edges, squares), minlength=len(edges) + 1)
                counts.append(found + rng.normal(scale=asked.noise, size=len(found)))
            request = plan_pass(state, asked, tuple(counts))
            z, squares = self._mapped(request.metric.transform.matrix)
            z /= np.sqrt(np.maximum(squares, request.clip))[:, np.newaxis]  # z̄ in units of the clip's root
            matrix = self.weight * (z.T @ z) + goe(m, rng) / (math.sqrt(2) * request.mu)
            outputs.append(PassOutput(matrix, request.mu, request))
            state = absorb(state, request, matrix)
        return Transcript(tuple(outputs), self.schema)

    def _mapped(self, transform: Floats) -> tuple[Floats, Floats]:
        """Return the transformed rows and their squared norms."""
        z = self.rows @ transform.T
        return z, np.einsum("ij,ij->i", z, z)

    def errors(self, noise: NoisyGram) -> tuple[float, float]:
        r"""Return medians over coefficients of the standard error over the sampling error, and of interval half widths.

        A Gram matrix with noise E = B·GOE·Bᵀ, N = BBᵀ, gives θ̂ - θ ≈ G⁻¹(E a)_x with a = (-θ, 1), and

        .. math:: \mathrm{Cov}\,(E a) = (a^\top N a)\,N + N a a^\top N .

        Directions with a signal below the spectral edge 2√d of the noise are not identified. Coefficients with more
        than half of their variance in such directions have infinite errors. Reference levels, empty levels and clipping
        bias are not included.
        """
        y, at = self.table.target, self.schema.groups.get(INTERCEPT, ())
        columns = self.schema.parts.items()
        first = {self.schema.groups[name][0] for name, column in columns if isinstance(column, Categorical)}
        x = [i for i in self.table.features if not (at and i in first) and self.gram[i, i] > 0]
        n = self.weight * len(self.rows)
        if len(x) <= len(at) or n <= len(x):
            return math.inf, math.inf
        R = scipy.linalg.qr(noise.factor[x].T, mode="r")[0][: len(x)]  # RᵀR = N_xx
        seen = scipy.linalg.solve_triangular(R, self.gram[np.ix_(x, x)], trans="T")
        values, U = scipy.linalg.eigh(scipy.linalg.solve_triangular(R, seen.T, trans="T"))
        directions = scipy.linalg.solve_triangular(R, U)  # G⁻¹ = Σ v vᵀ/value
        parts = directions**2 / np.maximum(values, 1e-12 * values[-1])
        hidden = parts @ (values <= 2 * math.sqrt(len(x))) > parts.sum(axis=1) / 2
        bread = (directions / np.maximum(values, 1e-12 * values[-1])) @ directions.T
        a = np.zeros(len(self.gram))
        a[x], a[y] = -bread @ self.gram[x, y], 1.0
        sampling = np.diagonal(bread) * max(float(a @ self.gram @ a), 0.0) / (n - len(x))
        N, Na = noise.shape[np.ix_(x, x)], noise.shape @ a
        privacy = np.diagonal(bread @ ((a @ Na) * N + np.outer(Na[x], Na[x])) @ bread)
        privacy = np.where(hidden, math.inf, privacy)
        shown = np.array([i not in at for i in x])
        ratio = np.sqrt(1 + privacy / np.maximum(sampling, 1e-300))
        half = _INTERVAL * np.sqrt(privacy + sampling) * self._reach(x) / self._reach([y])
        return float(np.median(ratio[shown])), float(np.median(half[shown]))

    def _reach(self, columns: list[int]) -> Floats:
        """Return the range of an entry in row units: twice its weight, or its weight for a level."""
        found = []
        for index in columns:
            encoded = self.schema.encoded[index]
            weight = 1.0 if encoded.source is None else self.schema.parts[encoded.source].weight
            found.append(weight if encoded.kind in ("level", "basis") else 2 * weight)
        return np.array(found)
