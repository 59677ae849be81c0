r"""Conversion between encoded and original units: the one place that knows centres, scales and the maps of terms.

An encoded entry is (x - centre)/scale. Here x is the clamped number, 0 or 1 for a level or a Boolean, 1 for the
intercept, and a polynomial within [-1, 1] for a term. Three kinds of things are converted.

Values: x = scale·entry + centre (`Units.decode`, `Units.encode`).

Functionals: a combination u of encoded columns, u·row, is 1 in every row (`Units.one`), an original column
(`Units.rows`), that column about its centre (`Units.deviations`), or a linear prediction (`Units.combination`).
Noisy second moments of original columns are those of the mapped rows.

Coefficients: y = Σ θ_j entry_j is γ₀ + Σ γ_j x_j with γ_j = θ_j/scale_j and γ₀ = -Σ γ_j centre_j. Terms are reported as
powers and products, A x + b, of which the release holds Legendre polynomials. From γ₀ + γᵀx = β₀ + βᵀ(A x + b),

.. math:: \beta = A^{-\top}\gamma , \qquad \beta_0 = \gamma_0 - b^\top\beta .

All maps of coefficients are linear, so intervals are mapped by the same matrix (`Units.matrix`). A is restricted to the
features of a model, which must contain the lower-order terms of each of its terms. Without terms A = I and b = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric
from gaussmix.data.terms import Block, EncodedColumn, Part, entries_of
from gaussmix.errors import ArgumentError

if TYPE_CHECKING:
    from gaussmix.data.schema import Schema


@dataclass(frozen=True, eq=False)
class Units:
    """Centres and scales of some columns: of an encoded row, or of the features and the response of a regression.

    Attributes
    ----------
    names : tuple of str
    centres, scales : array (m,)
        An encoded entry is ``(x - centre) / scale``.
    constant : int or None
        Index of the intercept, whose centre is 0.
    raw : (array (m, m), array (m,)) or None
        A and b: the columns in original units are ``A @ x + b``; None where they are x itself.
    """

    names: tuple[str, ...]
    centres: Floats
    scales: Floats
    constant: int | None
    raw: tuple[Floats, Floats] | None = None

    @classmethod
    def of(
        cls, encoded: Sequence[EncodedColumn], raw: tuple[Floats, Floats] | None = None, names: Sequence[str] = ()
    ) -> Units:
        """Return the units of encoded columns, or of features that are called ``names``, one encoded column each."""
        constant = next((i for i, column in enumerate(encoded) if column.kind == "intercept"), None)
        centres, scales = np.array([c.centre for c in encoded]), np.array([c.scale for c in encoded])
        return cls(tuple(names or (c.name for c in encoded)), centres, scales, constant, raw)

    # -- values ----------------------------------------------------------------------------------------------------
    def decode(self, entries: Floats, columns: Sequence[int] | slice = slice(None)) -> Floats:
        """Return x of encoded entries, whose last axis runs over ``columns``."""
        return np.asarray(entries * self.scales[columns] + self.centres[columns])

    def encode(self, values: Floats, columns: Sequence[int] | slice = slice(None)) -> Floats:
        """Return the entries of x: the inverse of `decode`."""
        return np.asarray((values - self.centres[columns]) / self.scales[columns])

    # -- functionals: combinations of encoded columns -------------------------------------------------------------
    @property
    def one(self) -> Floats:
        """The combination that is 1 in every row, shape (m,)."""
        if self.constant is None:
            raise ArgumentError("Means and counts require a release with an intercept.")
        found = np.zeros(len(self.scales))
        found[self.constant] = self.scales[self.constant]
        return found

    def deviations(self, columns: Sequence[int]) -> Floats:
        """Return the combinations that are x - centre of some columns, shape (number, m)."""
        own = list(columns)
        found = np.zeros((len(own), len(self.scales)))
        found[np.arange(len(own)), own] = self.scales[own]
        return found

    def rows(self, columns: Sequence[int]) -> Floats:
        """Return the combinations that are x of some columns, shape (number, m)."""
        return np.outer(self.centres[list(columns)], self.one) + self.deviations(columns)

    # -- coefficients ----------------------------------------------------------------------------------------------
    def coefficients(
        self, features: Sequence[int], theta: Floats, *, centre: float = 0.0, scale: float = 1.0
    ) -> tuple[dict[str, float], float]:
        """Return coefficients by name and the intercept in original units, from θ on some encoded columns.

        ``centre`` and ``scale`` are those of the response.
        """
        own, slopes, intercept = [], [], 0.0
        for index, value in zip(features, (theta * scale).tolist(), strict=True):
            slope = value / float(self.scales[index])
            if index == self.constant:
                intercept += slope
            else:
                own.append(index)
                slopes.append(slope)
                intercept -= slope * float(self.centres[index])
        beta = np.array(slopes)
        if self.raw is not None:
            A, b = self._restricted(own)
            beta = scipy.linalg.solve(A.T, beta)
            intercept -= float(b @ beta)
        return dict(zip((self.names[index] for index in own), beta.tolist(), strict=True)), intercept + centre

    def slopes(self, coef: Mapping[str, float], intercept: float) -> tuple[dict[str, float], float]:
        """Return γ by name and γ₀ from coefficients β by name and β₀ in original units."""
        if self.raw is None:
            return dict(coef), intercept
        A, b = self._restricted([self.names.index(name) for name in coef])
        beta = np.array(list(coef.values()))
        return dict(zip(coef, (A.T @ beta).tolist(), strict=True)), intercept + float(b @ beta)

    def matrix(self, scale: float = 1.0) -> Floats:
        """Return the map of θ to coefficients in original units, shape (m, m).

        The intercept comes first, where there is one; ``scale`` is that of the response, whose centre is not added.
        """
        found = np.diag(scale / self.scales)
        if self.constant is None:
            return found
        found[0, 1:] = -scale * self.centres[1:] / self.scales[1:]
        back = np.eye(len(self.scales))  # (γ₀, γ) to (β₀, β)
        if self.raw is not None:
            A, b = self.raw
            inverse = np.linalg.inv(A[1:, 1:].T)
            back[1:, 1:], back[0, 1:] = inverse, -b[1:] @ inverse
        return back @ found

    def alone(self, column: int) -> float | None:
        """Return γ/β of a column whose β is a multiple of its own γ; None if higher-order terms contain the column."""
        if self.raw is None:
            return 1.0
        A, _ = self.raw
        others = np.delete(A[:, column], column)
        return None if others.any() else float(A[column, column])

    def _restricted(self, columns: Sequence[int]) -> tuple[Floats, Floats]:
        A, b = self.raw if self.raw is not None else (np.eye(len(self.scales)), np.zeros(len(self.scales)))
        own = list(columns)
        return A[np.ix_(own, own)], b[own]


def raw_map(
    encoded: Sequence[EncodedColumn], parts: Mapping[str, Part], columns: Mapping[str, Column]
) -> tuple[Floats, Floats] | None:
    """Return A (m, m) and b (m,): encoded columns in original units are A x + b. None where no part is a term.

    Row i is the identity's but for terms. A column of the table or a logarithm is x = c + h t, so that entries t become
    (x - c)/h.
    """
    terms = [part.term for part in parts.values() if isinstance(part, Block) and part.term is not None]
    if not terms:
        return None
    m = len(encoded)
    at = {column.key: i for i, column in enumerate(encoded) if column.key}
    A, b = np.eye(m), np.zeros(m)
    for term in terms:
        for entry in entries_of(term, columns):
            i = at[entry.key]
            A[i] = 0.0
            for key, value in entry.raw.items():
                if not key:
                    b[i] += value
                    continue
                k = at[key]
                column = encoded[k]
                own = parts[column.source or ""]
                half = column.scale * own.weight if isinstance(own, Numeric | Boolean) else 1.0
                A[i, k] += value / half
                b[i] -= value * column.centre / half
    return A, b


def half_span(schema: Schema, column: EncodedColumn) -> float:
    """Return half of the declared range of an encoded column in encoded units; the value of the intercept."""
    if column.source is None:
        return 1 / column.scale
    weight = schema.parts[column.source].weight
    return weight / 2 if column.kind in ("level", "basis") else weight


def half_range(schema: Schema, vector: Floats) -> float:
    """Return half of the range of a combination of encoded columns within the declared bounds.

    The intercept does not move it. One level of a category at a time is 1, so that only its largest difference counts.
    """
    found = 0.0
    for source, indices in schema.groups.items():
        own = [i for i in indices if i != schema.units.constant]
        if not vector[own].any():
            continue
        if isinstance(schema.parts[source], Categorical):
            found += float(np.ptp(vector[own] / schema.units.scales[own])) / 2
        else:
            found += float(sum(abs(vector[i]) * half_span(schema, schema.encoded[i]) for i in own))
    return found
