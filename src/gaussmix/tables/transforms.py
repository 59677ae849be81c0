r"""Rows in another metric: integer transforms, exact norms, clipping, and histograms of norms.

**Sensitive**: everything here touches rows. Each row is mapped by itself, and comes out the same, bit for bit, in every
block, order, thread and memory layout:

- A transform is a matrix of integers whose rows have norm at most 2³², and a scale for each of its rows. Encoded rows
  are integers of norm at most 2²⁰, so every partial sum of T r, of any subset in any order, is an integer of at most
  2⁵² (Cauchy and Schwarz): BLAS makes no rounding error. What follows is elementwise, and float64 arithmetic on single
  numbers is the same everywhere.
- Norms are sums of squares of integers below 2⁵³: exact, hence the same in any order.
- Clipped rows are integers in units of 2⁻²⁰ of the clip. Their norm is checked after rounding, in integers: at most
  2⁴⁰ squared, whatever the floats before it did. The sensitivity of their Gram matrix is exact.

A transform is computed from releases (:mod:`gaussmix.models.passes`) by ``eigh``, which differs between machines:
compute it once and send it to everybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.errors import ArgumentError

__all__ = ["ROW_UNIT", "Transform", "clipped_rows", "histogram", "squared_norms"]


ROW_UNIT = 2.0**20
"""Encoded rows are integers of norm at most this."""

TRANSFORM_UNIT = 2.0**32
_LARGEST = 2.0**500
_SHRINK = 1 - 2.0**-32


@dataclass(frozen=True, eq=False)
class Transform:
    """z = scales · (integers @ r) for integer rows r. Public: it is computed from releases.

    Attributes
    ----------
    integers : array (k, m) of float64 whole numbers
        Rows of norm at most 2³².
    scales : array (k,)
        Positive.
    """

    integers: Floats
    scales: Floats

    def __post_init__(self) -> None:
        T = self.integers
        if not (np.isfinite(T).all() and (np.trunc(T) == T).all() and (np.abs(T) <= TRANSFORM_UNIT).all()):
            raise ArgumentError("integers must be whole numbers of at most 2**32.")
        exact = [sum(int(entry) ** 2 for entry in row) for row in T]
        if max(exact, default=0) > int(TRANSFORM_UNIT) ** 2:
            raise ArgumentError("rows of integers must have norm at most 2**32, or products would be rounded.")
        if not (np.isfinite(self.scales).all() and (self.scales > 0).all() and (self.scales < _LARGEST).all()):
            raise ArgumentError("scales must be positive and finite.")

    @classmethod
    def nearest(cls, matrix: Floats) -> Transform:
        """The transform nearest to a real matrix that acts on rows of norm at most 1.

        Every row of the matrix is rounded at its own scale, so that its relative error is about 2⁻³², however
        different the rows' lengths are.
        """
        lengths = np.sqrt(np.sum(matrix**2, axis=1))
        room = TRANSFORM_UNIT - 2 * math.sqrt(matrix.shape[1])  # rounding lengthens a row by at most √m / 2
        integers = np.rint(matrix / lengths[:, np.newaxis] * room)
        return cls(integers, lengths / (room * ROW_UNIT))

    @property
    def matrix(self) -> Floats:
        """What the transform does to rows of norm at most 1, rounding included."""
        return np.asarray(self.integers * (self.scales * ROW_UNIT)[:, np.newaxis])

    @property
    def largest_squared_norm(self) -> float:
        """Bound of ‖z‖² over all rows that the declared bounds allow, with room for rounding."""
        return float(np.linalg.norm(self.matrix, 2) ** 2) * (1 + 1e-6)

    def apply(self, rows: Floats) -> Floats:
        """Z for integer rows (n, m): an exact product, then one multiplication an entry."""
        return np.asarray((rows @ self.integers.T) * self.scales)


def _near(z: Floats) -> tuple[Floats, Floats]:
    """Integer rows y with z ≈ y·2^e and squares that add up to less than 2⁵³; and e, one a row."""
    _, exponents = np.frexp(np.abs(z).max(axis=1, initial=0.0))
    steps = 26 - math.ceil(math.log2(max(z.shape[1], 1)) / 2) - exponents
    return np.trunc(np.ldexp(z, steps[:, np.newaxis])), -steps


def squared_norms(z: Floats) -> Floats:
    """‖z‖² of every row, to about seven digits, and exactly the same wherever the row stands.

    The row is truncated to integers at its own power of two; their squares are summed without rounding.
    """
    y, exponents = _near(z)
    return np.asarray(np.ldexp(np.einsum("ij,ij->i", y, y), 2 * exponents))


def clipped_rows(z: Floats, clip: float) -> Floats:
    """Rows shortened to ‖z‖² ≤ clip, as integers in units of 2⁻²⁰·√clip: norm at most 2²⁰, checked after rounding.

    A longer row is multiplied as a whole, which keeps linear relations: clipping is weighting.
    """
    shrink = np.minimum(np.sqrt(clip / np.maximum(squared_norms(z), clip * 2.0**-60)), 1.0)
    rows = np.trunc(z * (shrink * (ROW_UNIT / math.sqrt(clip)))[:, np.newaxis])
    squares = np.einsum("ij,ij->i", rows, rows)  # integers below 2⁵³: norms are near 2²⁰ or below
    long = squares > ROW_UNIT**2
    if long.any():
        rows[long] = np.trunc(rows[long] * (ROW_UNIT * _SHRINK / np.sqrt(squares[long]))[:, np.newaxis])
    return np.asarray(rows)


def histogram(z: Floats, edges: Floats) -> Integers:
    """How many rows have ‖z‖² in (0, edges[0]], (edges[0], edges[1]], …, (edges[-1], ∞): len(edges) + 1 counts.

    A row that is zero is in no bin: it is the neighbour's row that is not there.
    """
    norms = squared_norms(z)
    return np.bincount(np.searchsorted(edges, norms[norms > 0], side="left"), minlength=len(edges) + 1).astype(np.int64)
