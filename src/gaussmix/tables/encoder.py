"""How rows become whole numbers: clamped, scaled, clipped and rounded, each by itself.

A row of the encoded table is divided by its bound C, so that its norm is at most 1, and every entry is rounded towards
zero to a multiple of 2⁻²⁰, which makes sums of products exact (:mod:`gaussmix.tables.gram`). In here entries are
counted in units of 2⁻²⁰.

Why no row is longer than 1: the limits are floors of exact rationals. Entries within ``limits``, vectors whose squares
add up to at most their ``limit`` (a sum of integers below 2⁵³, hence exact and the same in any order) and the intercept
have squares that add up to at most 2⁴⁰. Longer vectors, and rows beyond a declared ``max_row_norm``, are clipped by
slightly more than needed, the whole row at a time, and rounded towards zero.

>>> schema = Schema.of({"X": {"size": 2, "norm": 5.0}, "y": [-1, 1]})
>>> (encode_arrays(schema, np.array([[3.0, 4.0]]), np.array([0.5])) * schema.row_norm).round(3).tolist()
[[0.6, 0.8, 0.5, 1.0]]

Notation follows docs/notation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gaussmix._types import Floats, Integers, Rows
from gaussmix.errors import ArgumentError, DataError
from gaussmix.tables.columns import Boolean, Numeric, Vector
from gaussmix.tables.parts import Block
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = [
    "EXACT_ROWS",
    "SHRINK",
    "ArrayEncoder",
    "BlockEncoder",
    "checked_arrays",
    "clip_vectors",
    "encode_arrays",
    "pieces",
    "row_major",
    "squared_norms_of",
]

EXACT_ROWS = 2**12
"""Rows whose Gram matrix float64 holds without rounding: 2**12 * 2**40 < 2**53."""

_UNIT = 2.0**FRACTION_BITS
_BLOCK_BYTES = 3 * 2**18  # features of a block: they stay in the second-level cache
_SHORT_ROW = 64
"""Entries below which broadcasting a row costs more than reading a tile of it."""
_HUGE = 2.0**1000  # an entry that is mapped beyond is clipped before anything overflows


SHRINK = 1 - 2.0**-32
"""Extra factor for rows that are clipped: it covers the rounding of a norm over up to 2**19 columns."""


@dataclass(frozen=True)
class _NormBound:
    """Entries whose squares may add up to ``limit`` at most, in units of 2⁻⁴⁰."""

    start: int
    stop: int
    limit: float


@dataclass(frozen=True)
class BlockEncoder:
    """The constants of a schema: an entry is ``clip((x - centre) · multiplier, ±limit)``, rounded towards zero.

    Attributes
    ----------
    centre, multiplier, limits : arrays (m,)
        Per encoded column; a limit is infinite where only a norm is declared. A level's entry is its limit.
    intercept : float
        Entry of the constant column.
    norm_bounds : tuple
        What has to be checked after rounding: vectors whose entries' limits do not imply their norm, and the row.
    """

    centre: Floats
    multiplier: Floats
    limits: Floats
    intercept: float
    norm_bounds: tuple[_NormBound, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> BlockEncoder:
        """In units of 2⁻²⁰ of the row's bound."""
        units = schema.units
        limits = _limits(schema, lambda weight: float(schema.in_units(weight)))
        intercept = float(schema.in_units(schema.intercept))
        return cls(units.centres, _UNIT / schema.row_norm / units.scales, limits, intercept, _norm_bounds(schema))

    @classmethod
    def plain(cls, schema: Schema) -> BlockEncoder:
        """In the units of the weights, neither clipped in norm nor rounded: what predictions are made of."""
        return cls(schema.units.centres, 1 / schema.units.scales, _limits(schema, float), schema.intercept)

    def finish(self, block: Floats) -> None:
        """Clip the norms of rows and round them, shape (n, m), whose entries are clamped and scaled, in place."""
        self.clip(block)
        np.trunc(block, out=block)

    def clip(self, block: Floats) -> None:
        """Clip rows to their norms, in place; what is checked is rounded, the rest is not."""
        with np.errstate(over="ignore"):  # squares of huge entries: no warning may tell of a row
            for bound in self.norm_bounds:
                part = block[:, bound.start : bound.stop]
                np.trunc(part, out=part)
                squares = squared_norms_of(part)
                if not (squares <= bound.limit).all():
                    factors = clip_vectors(part, squares, bound.limit)[:, np.newaxis]
                    block[:, : bound.start] *= factors
                    block[:, bound.stop :] *= factors


def _norm_bounds(schema: Schema) -> tuple[_NormBound, ...]:
    """Vectors first, then the row. None is above 2⁴⁰: a vector that may be longer than a row is left to its bound.

    A row of columns is no longer than its entries' bounds allow. With derived parts its norm is checked all the same:
    it holds by construction, and not by what is proved of products and indicators.

    Squares that could exceed 2⁵³ would be rounded, and whether one is too long would depend on the rows beside it.
    """
    most = 2 ** (2 * FRACTION_BITS)
    short = schema.max_row_norm is not None and schema.row_norm == schema.max_row_norm
    bounds = []
    for name, column in schema.parts.items():
        if isinstance(column, Vector):
            limit = schema.squared_in_units(column.squared_norm)
            implied = column.bounded and column.size * schema.in_units(column.weight) ** 2 <= limit
            if not (implied or (short and limit >= most)):
                bounds.append(_NormBound(schema.groups[name][0], schema.groups[name][-1] + 1, float(limit)))
    checked = short or any(isinstance(part, Block) for part in schema.parts.values())
    return (*bounds, _NormBound(0, schema.n_columns, float(most))) if checked else tuple(bounds)


def _limits(schema: Schema, entry: Callable[[float], float]) -> Floats:
    """The largest entry of every encoded column; infinite where only a norm is declared."""
    limits = np.full(schema.n_columns, math.inf)
    for name, column in schema.parts.items():
        if not isinstance(column, Vector) or column.bounded:
            limits[list(schema.groups[name])] = entry(column.weight)
    return limits


class ArrayEncoder:
    """The cache-blocked path for arrays: a schema of one vector X, then numbers y, then the intercept.

    A block is written as whole numbers into two contiguous arrays: ``features``, shape (rows, d), and ``others``
    (targets, intercept), shape (m - d, rows). The bits are those of :class:`BlockEncoder`.
    """

    def __init__(self, schema: Schema) -> None:
        plan, d = BlockEncoder.of(schema), vector_and_numbers(schema)
        self.d, self.m = d, schema.n_columns
        self.n_targets = self.m - d - bool(schema.intercept)
        self.block_rows = min(EXACT_ROWS, max(_BLOCK_BYTES // (8 * d), 2 * self.m))
        self.centre, self.multiplier = plan.centre[np.newaxis, :d], plan.multiplier[np.newaxis, :d]
        self.limit = float(plan.limits[0])
        self.bounded = math.isfinite(self.limit)
        if self.bounded and d < _SHORT_ROW:
            self.tiles = tuple(_tiled(row, self.block_rows) for row in (self.centre, self.multiplier))
        self.norm_limit = plan.norm_bounds[0].limit if plan.norm_bounds else None
        targets = slice(d, d + self.n_targets)
        self.target_centre, self.target_multiplier, self.target_limit = (
            values[targets, np.newaxis] for values in (plan.centre, plan.multiplier, plan.limits)
        )
        self.intercept = plan.intercept
        entries = slice(0, d + self.n_targets)
        centre, multiplier, limits = (values[entries].copy() for values in (plan.centre, plan.multiplier, plan.limits))
        if not self.bounded:
            centre[:d], multiplier[:d] = 0.0, multiplier[0]
        self.constants = centre, multiplier, limits

    def encode_whole(self, X: Rows, Y: Rows, rows: Floats) -> None:
        """Write up to ``block_rows`` whole rows, best in the order of X."""
        others = np.empty((self.m - self.d, len(X)))
        order: Literal["C", "F"] = "C" if row_major(X) else "F"
        scratch = np.empty((len(X), self.d), order=order) if self.d < _SHORT_ROW else None
        self.map_others(Y, others)
        self.encode(X, rows[:, : self.d], others, scratch=scratch)
        for j, values in enumerate(others):  # a strided column at a time: faster than short pieces of rows
            rows[:, self.d + j] = values

    def encode(self, X: Rows, features: Floats, others: Floats, *, scratch: Floats | None = None) -> None:
        """Write up to ``block_rows`` rows into ``features``; finish what `map_others` wrote to ``others``.

        With ``scratch``, contiguous, ``features`` may be a part of wider rows: it is written to once only.
        """
        mapped = features if scratch is None else scratch
        self._map_features(X, mapped)
        np.trunc(mapped, out=features)
        if self.norm_limit is not None:
            squares = squared_norms_of(features)
            if not (squares <= self.norm_limit).all():  # also with NaN
                _check_finite(X, "X")
                others *= clip_vectors(features, squares, self.norm_limit)
        np.trunc(others, out=others)

    def map_others(self, Y: Rows, out: Floats) -> None:
        """Write the clipped, scaled targets and the intercept into ``out``, not yet rounded."""
        out[self.n_targets :] = self.intercept
        if self.n_targets:
            _check_finite(Y, "y")
            targets = out[: self.n_targets]
            np.subtract(Y.T, self.target_centre, out=targets, dtype=np.float64)
            np.multiply(targets, self.target_multiplier, out=targets)
            np.clip(targets, -self.target_limit, self.target_limit, out=targets)

    def _map_features(self, X: Rows, out: Floats) -> None:
        """Clip and scale, without rounding. What is not bounded by entry may come out NaN or infinite."""
        if not self.bounded:
            np.multiply(X, self.multiplier[0, 0], out=out, dtype=np.float64)
            return
        centre, multiplier = self.centre, self.multiplier
        if self.d < _SHORT_ROW and row_major(X):
            centre, multiplier = (tile[: len(X)] for tile in self.tiles)
        np.subtract(X, centre, out=out, dtype=np.float64)
        # A sum is finite only if every term is. It may overflow, as a difference may: hence the second look.
        if not math.isfinite(np.add.reduce(out, axis=None)):
            _check_finite(X, "X")
        np.multiply(out, multiplier, out=out)
        np.clip(out, -self.limit, self.limit, out=out)


def clip_vectors(part: Floats, totals: Floats, limit: float, starts: Integers | None = None) -> Floats:
    """Scale rows, in place, so that the squares of each row add up to at most ``limit``; return the factors.

    With ``starts`` the squares of each privacy unit do: one factor for all of its rows. Rows and units are independent
    of each other.

    ``part``, shape (n, d), is whole numbers, or infinite where a finite value was mapped beyond the range of floats.
    The norm is that of the rounded entries: exact, where a float sum would depend on its order. It is short of the true
    one by less than √d, so the factor is at most 1 + √d/√limit times √limit over the true norm (1 + d 2⁻²⁴ times, where
    squares add up to 2⁵³ or more), and at least 1 - 2⁻³¹ times. Rounding towards zero turns the row by as little;
    entries beyond 2¹⁰⁰⁰ are clipped to it, which may turn it by more.

    Parameters
    ----------
    part : array (n, d)
    totals : array (n,) or (units,)
        `squared_norms_of` the part.
    limit : float
    starts : array (units,), optional
        Where the rows of each unit begin.
    """
    sizes = np.ones(len(totals), dtype=np.int64) if starts is None else np.diff(np.append(starts, len(part)))
    powers = np.ones(len(totals))
    far = ~(totals < 2.0**53)  # totals that are rounded or infinite, and known only to be that large
    if far.any():
        # Times powers of two, which round nothing but what truncation cuts off, squares add up to at most 2**52.
        np.clip(part, -_HUGE, _HUGE, out=part)
        largest = np.abs(part).max(axis=1)
        _, exponents = np.frexp(largest if starts is None else np.maximum.reduceat(largest, starts))
        room = 26 - np.ceil(np.log2(sizes * part.shape[1]) / 2).astype(np.int64)
        steps = np.where(far, room - exponents, 0)
        np.ldexp(part, np.repeat(steps, sizes)[:, np.newaxis], out=part)
        np.trunc(part, out=part)
        totals, powers = squared_norms_of(part, starts), np.ldexp(1.0, steps)
    long = far | (totals > limit)
    shrink = np.ones(len(totals))
    np.divide(math.sqrt(limit) * SHRINK, np.sqrt(totals), out=shrink, where=long)
    part *= np.repeat(shrink, sizes)[:, np.newaxis]
    np.trunc(part, out=part)
    # The sensitivity rests on this check, in exact integers, and not on the floats before it.
    if not (squared_norms_of(part, starts) <= limit).all():
        raise RuntimeError("A row is longer than its bound: a fault of the library. Nothing was released.")
    return powers * shrink


def vector_and_numbers(schema: Schema) -> int:
    """Entries d of the vector of a schema of one vector X and numbers y, whose rows come as arrays."""
    X, *others = schema.columns.values()
    plain = schema.parts.keys() == schema.columns.keys()  # neither terms nor weights nor columns of missing values
    if not isinstance(X, Vector) or not plain or not all(isinstance(column, Numeric | Boolean) for column in others):
        raise ArgumentError(
            "Rows come as arrays (X, Y) for a schema of one Vector and then numbers only: pass a table."
        )
    if schema.max_row_norm is not None:
        raise ArgumentError("Rows come as arrays (X, Y) without max_row_norm: give the Vector a norm, or pass a table.")
    return X.size


def checked_arrays(schema: Schema, X: ArrayLike, Y: ArrayLike | None) -> tuple[Rows, Rows]:
    """Both arrays in two dimensions, of a real dtype and the declared widths; arrays are not copied."""
    d = vector_and_numbers(schema)
    X = np.asarray(X)
    Y = np.empty((len(X), 0)) if Y is None else np.asarray(Y)
    if Y.ndim == 1:
        Y = Y[:, np.newaxis]
    for name, array, columns in (("X", X, d), ("y", Y, len(schema.columns) - 1)):
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name} must hold real numbers, got dtype {array.dtype}. Encode other columns first.")
        if array.ndim != 2 or array.shape[1] != columns:
            raise DataError(f"{name} must have {columns} column(s), one per declared bound.")
    if len(X) != len(Y):
        raise DataError("X and y must have the same number of rows.")
    return X, Y


def encode_arrays(schema: Schema, X: ArrayLike, Y: ArrayLike | None = None) -> Floats:
    """Encoded rows, ‖r‖ ≤ 1, shape (n, m). **Sensitive.** For tests, explicit sketches and likelihoods."""
    X, Y = checked_arrays(schema, X, Y)
    plan = ArrayEncoder(schema)
    rows = np.empty((len(X), plan.m))
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces(len(X), plan.block_rows):
            plan.encode_whole(X[piece], Y[piece], rows[piece])
    return rows / _UNIT


def _tiled(row: Floats, n: int) -> Floats:
    """The same row n times; a long one takes no memory, for broadcasting it costs nothing."""
    row = row.reshape(1, -1)
    return np.tile(row, (n, 1)) if row.shape[1] < _SHORT_ROW else np.broadcast_to(row, (n, row.shape[1]))


def pieces(n: int, rows: int) -> list[slice]:
    """Cut n rows into slices of at most ``rows``."""
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def row_major(array: Rows) -> bool:
    """Whether neighbours in memory are neighbours in a row."""
    return abs(array.strides[0]) >= abs(array.strides[1])


def squared_norms_of(rows: Floats, starts: Integers | None = None) -> Floats:
    """Return the squared norm of each row, or of all rows of each privacy unit.

    For whole numbers the sum is exact where it is less than 2⁵³. Where it is not, any order of summation gives at least
    2⁵³, or NaN: partial sums below 2⁵³ are exact, and rounding never takes a larger one back below (2⁵³ is a float).
    """
    by_row_major = row_major(rows) and rows.shape[1] >= _SHORT_ROW
    squares = np.vecdot(rows, rows) if by_row_major else np.einsum("ij,ij->i", rows, rows)
    return np.asarray(squares if starts is None else np.add.reduceat(squares, starts))


def _check_finite(array: Rows, name: str) -> None:
    if not np.isfinite(array).all():
        raise DataError(
            f"{name} contains NaN or infinite values. Drop these rows, or replace the values by a rule fixed "
            "before the data are seen (a declared bound, not the mean of the data)."
        )
