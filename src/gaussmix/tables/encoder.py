"""How rows are clipped, scaled and rounded: declared, public, and the same for every row.

A row of the encoded table is r = (x, w₀, w·y) / C with C² = C_X² + w₀² + Σw², so that ‖r‖ ≤ 1. Every entry is rounded
towards zero to a multiple of 2⁻²⁰, which makes sums of products exact (:mod:`gaussmix.moments`). Each row is encoded
by itself: no row sees another one.

>>> encoder = RowEncoder(2, data_norm=5.0, intercept=0.5, target_bounds=((-1.0, 1.0),), target_weights=(0.5,))
>>> encoder.n_columns, round(encoder.row_norm, 3)
(4, 1.225)

Notation follows docs/notation.md.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["BlockEncoder", "RowEncoder", "checked_block", "pieces", "row_major"]

FRACTION_BITS = 20
"""Entries of a row are multiples of 2**-FRACTION_BITS (C = 1)."""

EXACT_ROWS = 2**12
"""Rows whose Gram matrix float64 holds without rounding: 2**12 * 2**40 < 2**53."""

_UNIT = 2.0**FRACTION_BITS
_BLOCK_BYTES = 3 * 2**18  # features of a block: they stay in the second-level cache
_TILED_FEATURES = 64  # below, broadcasting a row costs more than reading a tile of it
_LARGEST_SCALE = 2.0**300  # public scales lie in [2**-300, 2**300]: no product of two of them overflows
_HUGE = 2.0**300  # a feature this many times beyond data_norm is clipped before its square overflows
_SHRINK = 1 - 2.0**-32  # covers the rounding of a norm over up to 2**19 columns

_Floats = NDArray[np.float64]
_Rows = NDArray[Any]


@dataclass(frozen=True)
class RowEncoder:
    """How rows are clipped and scaled: declared, public, hashable, and independent of the data.

    Parameters
    ----------
    n_features : int
        Columns of ``X``.
    feature_bounds : tuple of (lower, upper) pairs, one per feature, optional
        Each feature is clipped and mapped to [-1, 1].
    data_norm : float, optional
        Bound C_X of the features' Euclidean norm, after that map if there is one. With bounds its default
        is what they imply, sqrt(n_features). Without bounds it is required, and features are divided by it.
        The whole of a longer row, intercept and targets included, is multiplied by C_X / norm, so linear
        relations survive.
    intercept : float
        Value w₀ of the constant column; 0 for none.
    target_bounds : tuple of (lower, upper) pairs, one per target
        Targets are clipped and mapped to [-1, 1].
    target_weights : tuple of float
        Each target is multiplied by its weight w.
    """

    n_features: int
    feature_bounds: tuple[tuple[float, float], ...] | None = None
    data_norm: float | None = None
    intercept: float = 0.0
    target_bounds: tuple[tuple[float, float], ...] = ()
    target_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {self.n_features!r}.")
        if self.feature_bounds is None and self.data_norm is None:
            raise ValueError(
                "Declare bounds_X or data_norm. They must be fixed before the data are seen: "
                "a bound taken from the data is not private."
            )
        if self.feature_bounds is not None:
            _check_bounds("bounds_X", self.feature_bounds, count=self.n_features)
        _check_bounds("bounds_y", self.target_bounds, count=len(self.target_weights))
        if self.data_norm is not None:
            _check_scale("data_norm", self.data_norm)
        if self.intercept != 0:
            _check_scale("intercept", self.intercept)
        for weight in self.target_weights:
            _check_scale("target_weights", weight)

    def declared(self) -> dict[str, Any]:
        """What was declared, as plain values."""
        return asdict(self)

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.target_weights)

    @property
    def n_columns(self) -> int:
        """Columns m of an encoded row: features, intercept (if any), targets."""
        return self.n_features + (self.intercept != 0) + self.n_targets

    @property
    def x_norm(self) -> float:
        """C_X: bound of the norm of the mapped features."""
        if self.feature_bounds is None:
            return 1.0
        implied = math.sqrt(self.n_features)
        return implied if self.data_norm is None else min(self.data_norm, implied)

    @property
    def row_norm(self) -> float:
        """C = sqrt(C_X² + w₀² + Σw²), by which encoded rows are divided."""
        return math.sqrt(self._squared_row_norm)

    @property
    def feature_map(self) -> tuple[_Floats, _Floats]:
        """Centre and scale per feature: x is encoded as ``(x - centre) / scale / row_norm``."""
        if self.feature_bounds is None:
            assert self.data_norm is not None
            return np.zeros(self.n_features), np.full(self.n_features, self.data_norm)
        return _affine(self.feature_bounds)

    @property
    def target_map(self) -> tuple[_Floats, _Floats]:
        """Centre and scale per target, weight included: y becomes ``(y - centre) / scale / row_norm``."""
        centre, half_range = _affine(self.target_bounds)
        return centre, half_range / np.array(self.target_weights, dtype=float)

    @property
    def units_per_one(self) -> float:
        """What 1 is in units of 2⁻²⁰ of the bound, for features bounded by ``data_norm`` alone."""
        assert self.data_norm is not None
        return _UNIT / self.row_norm / self.data_norm

    @property
    def encoded_intercept(self) -> float:
        """Value of the constant column in an encoded row: w₀ / C rounded down to a multiple of 2⁻²⁰."""
        return self._in_units(self.intercept) / _UNIT

    def encode(self, X: ArrayLike, Y: ArrayLike | None = None) -> _Floats:
        """Encoded rows, ‖r‖ ≤ 1, shape (n, n_columns). **Sensitive.** For tests and explicit sketches."""
        X, Y = checked_block(self, X, Y)
        plan = BlockEncoder(self)
        rows = np.empty((len(X), self.n_columns))
        features, others = rows[:, : plan.d], rows[:, plan.d :].T
        with np.errstate(over="ignore", invalid="ignore"):
            plan.map_others(Y, others)
            for piece in pieces(len(X), plan.block_rows):
                plan.encode(X[piece], features[piece], others[:, piece])
        return rows / _UNIT

    @cached_property
    def _squared_row_norm(self) -> Fraction:
        """C², exactly."""
        return sum((Fraction(w) ** 2 for w in (self.x_norm, self.intercept, *self.target_weights)), Fraction(0))

    def _in_units(self, value: float) -> int:
        """Floor of value / C in units of 2⁻²⁰, exactly."""
        return math.isqrt(self._squared_units(value))

    def _squared_units(self, value: float) -> int:
        """Floor of (value / C)² in units of 2⁻⁴⁰, exactly."""
        return int(Fraction(value) ** 2 * 2 ** (2 * FRACTION_BITS) / self._squared_row_norm)


def _affine(bounds: tuple[tuple[float, float], ...]) -> tuple[_Floats, _Floats]:
    lower, upper = np.array(bounds, dtype=float).reshape(-1, 2).T
    return lower / 2 + upper / 2, upper / 2 - lower / 2


def _check_bounds(name: str, bounds: tuple[tuple[float, float], ...], *, count: int) -> None:
    if len(bounds) != count:
        raise ValueError(f"{name} must have one (lower, upper) pair per column: {count} expected, got {len(bounds)}.")
    for lower, upper in bounds:
        half_range = upper / 2 - lower / 2
        if not (1 / _LARGEST_SCALE <= half_range <= _LARGEST_SCALE):  # false for NaN
            raise ValueError(
                f"{name} must be finite with lower < upper, got ({lower!r}, {upper!r}). "
                "A constant column carries no information: leave it out."
            )


def _check_scale(name: str, value: float) -> None:
    if not (1 / _LARGEST_SCALE <= value <= _LARGEST_SCALE):
        raise ValueError(
            f"{name} must be a finite number > 0 (between 2**-300 and 2**300), got {value!r}. "
            "It must be fixed before the data are seen: a value taken from the data is not private."
        )


def checked_block(encoder: RowEncoder, X: ArrayLike, Y: ArrayLike | None) -> tuple[_Rows, _Rows]:
    """Both arrays in two dimensions, of a real dtype and the declared widths; arrays are not copied."""
    X = np.asarray(X)
    Y = np.empty((len(X), 0)) if Y is None else np.asarray(Y)
    if Y.ndim == 1:
        Y = Y[:, np.newaxis]
    for name, array, columns in (("X", X, encoder.n_features), ("y", Y, encoder.n_targets)):
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}. Encode other columns first.")
        if array.ndim != 2 or array.shape[1] != columns:
            raise ValueError(f"{name} must have {columns} column(s), one per declared bound.")
    if len(X) != len(Y):
        raise ValueError("X and y must have the same number of rows.")
    return X, Y


def pieces(n: int, rows: int) -> list[slice]:
    """Cut n rows into slices of at most ``rows``."""
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


class BlockEncoder:
    """The constants of a `RowEncoder` in units of 2⁻²⁰, and the arithmetic of a block.

    A block is written as whole numbers into two contiguous arrays: ``features``, shape (rows, d), and
    ``others`` (intercept, targets), shape (m - d, rows).

    Why no row is longer than 1: the limits are floors of exact rationals, so features with ``x·x <=
    norm_limit`` (a sum of integers below 2⁵³, hence exact and the same in any order), the intercept and the
    clipped targets have squares that add up to at most 2⁴⁰. Longer rows are shortened by slightly more than
    needed and rounded towards zero.
    """

    def __init__(self, encoder: RowEncoder) -> None:
        d, m = encoder.n_features, encoder.n_columns
        self.d, self.m, self.n_targets = d, m, encoder.n_targets
        self.block_rows = min(EXACT_ROWS, max(_BLOCK_BYTES // (8 * d), 2 * m))
        units_per_one = _UNIT / encoder.row_norm

        centre, scale = encoder.feature_map
        self.centre, self.multiplier = centre[np.newaxis], units_per_one / scale[np.newaxis]
        self.bounded = encoder.feature_bounds is not None
        if self.bounded and d < _TILED_FEATURES:
            self.tiles = tuple(np.tile(row, (self.block_rows, 1)) for row in (self.centre, self.multiplier))
        self.huge = _HUGE * scale[0]
        self.column_limit = float(encoder._in_units(1.0))
        self.norm_limit = float(encoder._squared_units(encoder.x_norm))
        self.norms_needed = not self.bounded or d * self.column_limit**2 > self.norm_limit

        self.intercept = float(encoder._in_units(encoder.intercept))
        target_centre, target_scale = encoder.target_map
        self.target_centre = target_centre[:, np.newaxis]
        self.target_multiplier = units_per_one / target_scale[:, np.newaxis]
        self.target_limit = np.array([[float(encoder._in_units(w))] for w in encoder.target_weights])

    def encode(self, X: _Rows, features: _Floats, others: _Floats) -> None:
        """Write up to ``block_rows`` rows into ``features``; finish what `map_others` wrote to ``others``."""
        self._map_features(X, features)
        np.trunc(features, out=features)
        if self.norms_needed:
            squares = _squared_norms(features)
            if not (squares <= self.norm_limit).all():  # also with NaN
                self._shorten(X, features, others, squares)
        np.trunc(others, out=others)

    def round_in_place(self, features: _Floats) -> None:
        """What `encode` does after mapping, for features that are in units of 2⁻²⁰ already and finite."""
        np.trunc(features, out=features)
        squares = _squared_norms(features)
        if not (squares <= self.norm_limit).all():
            self._shorten(features, features, np.empty((0, len(features))), squares)

    def map_others(self, Y: _Rows, out: _Floats) -> None:
        """Write the intercept and the clipped, scaled targets into ``out``, not yet rounded."""
        out[: len(out) - self.n_targets] = self.intercept
        if self.n_targets:
            _check_finite(Y, "y")
            targets = out[-self.n_targets :]
            np.subtract(Y.T, self.target_centre, out=targets, dtype=np.float64)
            np.multiply(targets, self.target_multiplier, out=targets)
            np.clip(targets, -self.target_limit, self.target_limit, out=targets)

    def _map_features(self, X: _Rows, out: _Floats) -> None:
        """Clip and scale, without rounding. What is not bounded by column may come out NaN or infinite."""
        if not self.bounded:
            np.multiply(X, self.multiplier[0, 0], out=out, dtype=np.float64)
            return
        centre, multiplier = self.centre, self.multiplier
        if self.d < _TILED_FEATURES and row_major(X):
            centre, multiplier = (tile[: len(X)] for tile in self.tiles)
        np.subtract(X, centre, out=out, dtype=np.float64)
        if not np.isfinite(out).all():  # in cache now; a difference may also overflow, and is clipped below
            _check_finite(X, "X")
        np.multiply(out, multiplier, out=out)
        np.clip(out, -self.column_limit, self.column_limit, out=out)

    def _shorten(self, X: _Rows, features: _Floats, others: _Floats, squares: _Floats) -> None:
        """Multiply each row with too long features as a whole by C_X / norm. No row sees another one.

        The norm is that of the rounded features: exact, where a float sum would depend on its order. It
        differs by 2⁻²⁰√d at most, which changes the weight of the row and not its direction.
        """
        weights = np.ones(len(X))
        far = np.flatnonzero(~(squares < 2.0**53))  # norms that are rounded, infinite or NaN
        if len(far):
            features[far], weights[far] = self._bring_near(X[far])
            squares[far] = _squared_norms(features[far])
        long = squares > self.norm_limit
        long[far] = True
        shrink = np.ones(len(X))
        shrink[long] = math.sqrt(self.norm_limit) * _SHRINK / np.sqrt(squares[long])
        features *= shrink[:, np.newaxis]
        np.trunc(features, out=features)
        others *= weights * shrink

    def _bring_near(self, X: _Rows) -> tuple[_Floats, _Floats]:
        """Mapped, rounded features times powers of two that make their norms exact; and these powers."""
        X = X.astype(np.float64)
        _check_finite(X, "X")
        if not self.bounded:
            np.clip(X, -self.huge, self.huge, out=X)
        self._map_features(X, X)
        _, exponents = np.frexp(np.abs(X).max(axis=1))
        steps = 26 - math.ceil(math.log2(self.d) / 2) - exponents  # d squares add up to at most 2**52
        return np.trunc(np.ldexp(X, steps[:, np.newaxis])), np.ldexp(1.0, steps)


def row_major(array: _Rows) -> bool:
    """Whether neighbours in memory are neighbours in a row."""
    return abs(array.strides[0]) >= abs(array.strides[1])


def _squared_norms(rows: _Floats) -> _Floats:
    """Exact for whole numbers whose squares sum to less than 2**53; at least 2**53 or NaN for others."""
    return np.asarray(np.vecdot(rows, rows) if row_major(rows) else np.einsum("ij,ij->i", rows, rows))


def _check_finite(array: _Rows, name: str) -> None:
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} contains NaN or infinite values. Drop these rows, or replace the values by a rule fixed "
            "before the data are seen (a declared bound, not the mean of the data)."
        )
