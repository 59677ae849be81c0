r"""Transforms of rows to another metric, with exact norms and clipping.

A transform is public; the rows it is applied to are **sensitive**. Each row is mapped independently, and the result is
the same, bit for bit, in every block, order, thread and memory layout:

- A transform is a matrix of integers whose rows have norm at most 2³², and a scale for each of its rows. Encoded rows
  are integers of norm at most 2²⁰, so every partial sum of T r, of any subset in any order, is an integer of at most
  2⁵² (Cauchy-Schwarz): BLAS makes no rounding error. All further operations are elementwise, and float64 arithmetic on
  single numbers is the same everywhere; scales, clips and edges are within 2^±500, so that no value overflows or is
  denormal.
- Norms are sums of squares of integers. Below 2⁵³ such a sum is exact in any order. If the exact sum is 2⁵³ or more,
  so is the computed sum in any order: partial sums below 2⁵³ are exact, and rounding never takes a larger one below
  2⁵³, which is a float. So whether a norm is known exactly, and its value, depend on the row alone.
- Clipped rows are integers in units of 2⁻²⁰ of the root of the clip. Their squared norm is checked after rounding, in
  integers, to be at most 2⁴⁰, independently of the floats before. The sensitivity of their Gram matrix is exact.

A transform is computed from releases (:mod:`gaussmix.releases.preconditioning`) by ``eigh``, which differs between
machines, so it is computed once and sent to all workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gaussmix._types import Floats, Integers
from gaussmix.data.encode import clip_vectors, squared_norms_of
from gaussmix.errors import ArgumentError

ROW_UNIT = 2.0**20
"""Encoded rows are integers of norm at most this."""

TRANSFORM_UNIT = 2.0**32
LEAST, LARGEST = 2.0**-500, 2.0**500
"""Limits of scales, clips and edges."""

_COLUMN_BLOCKS = 4


@dataclass(frozen=True, eq=False)
class Transform:
    """The map z = scales · (integers @ r) of integer rows r. Public: it is computed from releases.

    Transforms are equal if all their numbers are.

    Attributes
    ----------
    integers : array (k, m) of float64 whole numbers
        Rows of norm at most 2³². Read-only.
    scales : array (k,)
        Positive, between 2⁻⁵⁰⁰ and 2⁵⁰⁰.
    """

    integers: Floats
    scales: Floats

    def __post_init__(self) -> None:
        for name in ("integers", "scales"):
            array = getattr(self, name)
            if not (isinstance(array, np.ndarray) and array.dtype == np.float64 and not array.flags.writeable):
                array = np.array(array, dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        T = self.integers
        if T.ndim != 2 or not T.size or self.scales.shape != (len(T),):
            raise ArgumentError("integers must be a matrix and scales must have one number per row.")
        if not (np.isfinite(T).all() and (np.trunc(T) == T).all() and (np.abs(T) <= TRANSFORM_UNIT).all()):
            raise ArgumentError("integers must be whole numbers of at most 2**32.")
        close = np.einsum("ij,ij->i", T, T) > TRANSFORM_UNIT**2 * (1 - 1e-9)  # others are within it, rounding included
        if any(sum(int(entry) ** 2 for entry in row) > int(TRANSFORM_UNIT) ** 2 for row in T[close]):
            raise ArgumentError("rows of integers must have a norm of at most 2**32, so that products are exact.")
        if not ((self.scales > LEAST) & (self.scales < LARGEST)).all():
            raise ArgumentError("scales must be positive and finite, between 2**-500 and 2**500.")

    @classmethod
    def nearest(cls, matrix: Floats) -> Transform:
        """Return the transform nearest to a real matrix that acts on rows of norm at most 1.

        Every row of the matrix is rounded at its own scale, so that its relative error is about 2⁻³² for any norms of
        the rows.
        """
        lengths = np.sqrt(np.sum(matrix**2, axis=1))
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise ArgumentError("matrix must have finite, nonzero rows.")
        room = TRANSFORM_UNIT - 2 * math.sqrt(matrix.shape[1])  # rounding lengthens a row by at most √m / 2
        integers = np.rint(matrix / lengths[:, np.newaxis] * room)
        return cls(integers, lengths / (room * ROW_UNIT))

    def triangular(self) -> Transform:
        """Return the triangular factor R of T = QR, with ‖R r‖ = ‖T r‖ up to rounding and half as many numbers.

        Isotropic noise has the same distribution in both metrics. It is drawn for the rounded R.
        """
        R: Floats = np.asarray(np.linalg.qr(self.matrix, mode="r"))
        return Transform.nearest(R * np.where(np.diagonal(R) < 0, -1.0, 1.0)[:, np.newaxis])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transform):
            return NotImplemented
        return self.same_integers(other) and np.array_equal(self.scales, other.scales)

    def __hash__(self) -> int:
        return hash((self.integers.shape, self.scales.tobytes()))

    def same_integers(self, other: Transform) -> bool:
        """Return whether both transforms have the same integers, and hence the same products."""
        return self.integers is other.integers or np.array_equal(self.integers, other.integers)

    @property
    def matrix(self) -> Floats:
        """The matrix of the transform, rounding included, for rows of norm at most 1."""
        return np.asarray(self.integers * (self.scales * ROW_UNIT)[:, np.newaxis])

    @cached_property
    def largest_squared_norm(self) -> float:
        """Bound on ‖z‖² over all rows within the declared bounds, with a margin for rounding."""
        return float(np.linalg.norm(self.matrix, 2) ** 2) * (1 + 1e-6)

    @cached_property
    def _blocks(self) -> list[tuple[slice, slice, Floats]]:
        """Blocks of the transposed integers that are not zero: about half of a triangular matrix."""
        k = len(self.integers)
        width = -(-k // _COLUMN_BLOCKS)
        found = []
        for to in (slice(start, min(start + width, k)) for start in range(0, k, width)):
            used = np.flatnonzero(self.integers[to].any(axis=0))
            of = slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, 1)
            found.append((of, to, np.ascontiguousarray(self.integers[to, of].T)))
        if all(of == slice(0, self.integers.shape[1]) for of, _, _ in found):
            return [(slice(None), slice(None), np.ascontiguousarray(self.integers.T))]
        return found

    def product(self, rows: Floats, *, out: Floats | None = None) -> Floats:
        """Return ``rows @ integers.T``, exactly, for integer rows (n, m) of norm at most 2²⁰."""
        out = np.empty((len(rows), len(self.integers))) if out is None else out
        for of, to, part in self._blocks:
            np.matmul(rows[:, of], part, out=out[:, to])
        return out


# ---------------------------------------------------------------------------------------------------------------
# Clipping
def to_units(transform: Transform, clip: float) -> Floats:
    """Return the factors of products for which rows with ‖z‖² = clip have norm 2²⁰."""
    if not LEAST < clip < LARGEST:  # also NaN
        raise ArgumentError(f"clip must be positive and finite, between 2**-500 and 2**500, got {clip!r}.")
    return np.asarray(transform.scales * (ROW_UNIT / math.sqrt(clip)))


def clip_norms(rows: Floats, limit: float, starts: Integers | None = None) -> None:
    """Scale rows of whole numbers, in place, so that the squares of each row add up to at most ``limit``.

    With ``starts``, the index of the first row of each privacy unit, the limit applies to the squares of each unit.
    Rows within the limit are unchanged. A row, or a unit, is multiplied by one factor, which keeps linear relations:
    clipping is equivalent to weighting.
    """
    with np.errstate(over="ignore"):
        totals = squared_norms_of(rows, starts)
        long = ~(totals <= limit)
        if not long.any():
            return
        inside, firsts = long, None
        if starts is not None:
            sizes = np.diff(np.append(starts, len(rows)))
            inside, firsts = np.repeat(long, sizes), np.cumsum(sizes[long]) - sizes[long]
        part = rows[inside]
        clip_vectors(part, totals[long], limit, firsts)
        rows[inside] = part


def squares_over_clip(rows: Floats, transform: Transform, clip: float) -> Floats:
    """Return ‖z‖²/clip of integer rows, rounded as before clipping: a row beyond 1 gets the weight 1 over it."""
    with np.errstate(over="ignore"):
        return squared_norms_of(np.trunc(transform.product(rows) * to_units(transform, clip))) / ROW_UNIT**2
