"""Sums over rows by compiled functions that encode, map, scale, shorten and multiply a few rows at a time.

What is done to a row stays in the first-level cache, where BLAS reads and writes blocks of rows between its products,
and zeros of a triangular transform cost nothing. `_kernels.c` serves processors with AVX2, and rows
of up to 512 columns. All numbers are those that :mod:`gaussmix.tables.tallies` computes without it, bit
for bit.

What it computes is **sensitive**. A row that is not finite, or whose squares add up to 2⁵³ or more, is left out and
marked (`Source.left`): the caller takes it in with numpy, or refuses it. Squared norms of rows as they were added go
back to Python, where they are held against their limits.

`_kernels.c` is built when the package is installed from its source and a C compiler is there (``hatch_build.py``). It
is a plain library with no Python in it: one build serves every version of Python, and the interpreter's lock is
released while it runs. Without it, with ``GAUSSMIX_PURE=1`` in the environment when this module is imported, or on a
processor without AVX2, numpy computes the same bits, more slowly.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from pathlib import Path

import numpy as np

from gaussmix._types import Floats, Integers, Rows
from gaussmix.tables.encoder import SHRINK
from gaussmix.tables.transforms import ROW_UNIT, Transform

__all__ = ["MOST_ROWS", "Map", "Room", "Source", "Totals", "gram", "lengths", "library", "mapped", "serves"]

_VERSION = 5  # as in the source
_PURE = os.environ.get("GAUSSMIX_PURE") == "1"

MOST_COLUMNS = 512
"""Beyond, sums leave the caches, and BLAS is as fast."""

MOST_ROWS = 2**14
"""Of one source: what is not done in compiled functions is then next to nothing."""

_LANES, _BLOCK = 8, 64  # as in the source
_Size, _Pointer, _Number = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_double


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they were not built, are of another version, or are switched off."""
    if _PURE:
        return None
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name("_kernels.so")))
        return found if found.gaussmix_kernels_version() == _VERSION else None
    except (OSError, AttributeError):
        return None


def by_rows(array: Rows) -> Floats:
    """As float64 with contiguous rows that are whole numbers of entries apart; a view where it can."""
    fits = array.dtype == np.float64 and array.strides[1] == 8 and not array.strides[0] % 8 and array.flags.aligned
    return array if fits else np.ascontiguousarray(array, dtype=np.float64)


def address(array: Rows) -> int:
    """Where the entries begin; ``array.ctypes`` is slow."""
    address: int = array.__array_interface__["data"][0]
    return address


class _Source(ctypes.Structure):
    _fields_ = (
        *((name, _Size) for name in ("n", "m", "d", "targets", "stride", "stride_Y")),
        *((name, _Pointer) for name in ("rows", "X", "Y", "chosen", "centre", "multiplier", "limits")),
        *((name, _Number) for name in ("constant", "longest", "shortened")),
        ("left", _Pointer),
    )


class _Map(ctypes.Structure):
    _fields_ = (("m", _Size), ("k", _Size), ("panels", _Pointer), ("ranges", _Pointer))


@functools.cache
def _functions() -> ctypes.CDLL | None:
    """The compiled functions, declared; None where there are none."""
    found = library()
    if found is None:
        return None
    sources, maps = ctypes.POINTER(_Source), ctypes.POINTER(_Map)
    for name, arguments, result in (
        ("gram", (sources, *[_Pointer] * 4), ctypes.c_int),
        ("mapped", (sources, maps, _Pointer, _Number, _Number, *[_Pointer] * 5), ctypes.c_int),
        ("lengths", (sources, maps, _Size, *[_Pointer] * 4), _Size),
    ):
        function = getattr(found, f"gaussmix_{name}")
        function.argtypes, function.restype = arguments, result
    return found


def serves(columns: int) -> bool:
    """Whether rows of so many columns are best taken in by compiled functions."""
    return columns <= MOST_COLUMNS and library() is not None and _functions() is not None


def padded(width: int) -> int:
    """Columns of rows and sums in memory."""
    return -(-width // _LANES) * _LANES


def zeros(*shape: int) -> Floats:
    """At the beginning of a cache line."""
    size = math.prod(shape)
    found = np.zeros(size + _LANES)
    start = -(address(found) // 8) % _LANES
    return found[start : start + size].reshape(shape)


class Room:
    """Where rows of one width are worked on; of one thread."""

    def __init__(self, width: int) -> None:
        self._rows = zeros(_BLOCK, padded(width))
        self.at = address(self._rows)


class Source:
    """At most 2¹⁴ rows that compiled functions take in: whole ones, or arrays that are encoded first.

    Attributes
    ----------
    n, m : int
        Rows and columns.
    """

    def __init__(self, m: int) -> None:
        self.n, self.m, self._left = 0, m, np.zeros(MOST_ROWS, dtype=np.uint8)
        self.structure = _Source(m=m, left=address(self._left))
        self._kept: tuple[Rows, ...] = ()  # whose addresses are in there
        self._at = (0, 0)

    @classmethod
    def of_rows(cls, rows: Floats) -> Source:
        """Whole rows, (n, m)."""
        found, rows = cls(rows.shape[1]), by_rows(rows)
        found.n = found.structure.n = len(rows)
        found.structure.rows, found.structure.stride, found._kept = address(rows), rows.strides[0] // 8, (rows,)
        return found

    @classmethod
    def of_arrays(
        cls, X: Rows, Y: Rows, constants: tuple[Floats, Floats, Floats, float], *, m: int, norm_limit: float | None
    ) -> Source | None:
        """Rows of arrays, which are encoded; none before `draw`. None for arrays of another layout.

        Parameters
        ----------
        X : array (·, d)
        Y : array (·, targets)
        constants : centre, multiplier and limits, arrays (d + targets,), and the constant before rounding
        m : int
            d + targets, or one more for the constant.
        norm_limit : float or None
            Features whose squares add up to more are shortened, and the rest of their rows with them.
        """
        if not (_plain(X) and _plain(Y)):
            return None
        found, (centre, multiplier, limits, constant) = cls(m), constants
        there = found.structure
        there.d, there.targets = X.shape[1], Y.shape[1]
        there.stride, there.stride_Y = X.strides[0] // 8, Y.strides[0] // 8
        there.centre, there.multiplier, there.limits = address(centre), address(multiplier), address(limits)
        there.constant = constant
        there.longest = math.inf if norm_limit is None else norm_limit
        there.shortened = 0.0 if norm_limit is None else math.sqrt(norm_limit) * SHRINK
        found._kept, found._at = (X, Y, centre, multiplier, limits), (address(X), address(Y))
        return found

    def draw(self, drawn: slice | Integers) -> None:
        """Turn to other rows of the arrays: a slice of step one, or positions."""
        there, (X, Y) = self.structure, self._at
        if isinstance(drawn, slice):
            there.X, there.Y = X + 8 * there.stride * drawn.start, Y + 8 * there.stride_Y * drawn.start
            there.chosen, self.n = None, drawn.stop - drawn.start
        else:
            self._chosen = np.ascontiguousarray(drawn, dtype=np.intp)
            there.X, there.Y, there.chosen, self.n = X, Y, address(self._chosen), len(drawn)
        there.n = self.n

    def left(self) -> Integers:
        """Positions among these rows of those that the last function left out."""
        return np.flatnonzero(self._left[: self.n])


def _plain(array: Rows) -> bool:
    """Whether rows are contiguous in memory, of float64."""
    in_row = array.shape[1] < 2 or array.strides[1] == 8
    return bool(array.dtype == np.float64 and in_row and not array.strides[0] % 8 and array.flags.aligned)


class Map:
    """The integers of a transform in the order in which they are multiplied; zeros at both ends are left out."""

    def __init__(self, transform: Transform) -> None:
        k, m = transform.integers.shape
        width = padded(k)
        columns = np.zeros((width, m))
        columns[:k] = transform.integers
        parts = columns.reshape(width // _LANES, _LANES, m)
        self._panels = np.ascontiguousarray(parts.transpose(0, 2, 1))
        self._ranges = np.array([_used(part) for part in parts], dtype=np.intp)
        self.k, self.structure = k, _Map(m=m, k=k, panels=address(self._panels), ranges=address(self._ranges))

    def factors(self, *factors: Floats) -> Floats:
        """Factors of the k columns, padded: one row for each."""
        found = np.zeros((len(factors), padded(self.k)))
        found[:, : self.k] = factors
        return found


def _used(part: Floats) -> tuple[int, int]:
    used = np.flatnonzero(part.any(axis=0))
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


# ---------------------------------------------------------------------------------------------------------------
# Functions
def _compiled() -> ctypes.CDLL:
    found = _functions()
    if found is None:
        raise RuntimeError("There are no compiled functions: ask `serves` first.")
    return found


class Totals:
    """Σ r rᵀ of rows of m columns, in integers; of one thread. What is below the diagonal is not to be used."""

    def __init__(self, m: int) -> None:
        self.numbers = np.zeros((padded(m), padded(m)), dtype=np.int64)
        self.sums = zeros(*self.numbers.shape)  # of a few rows, in floats

    def arrays(self) -> tuple[int, int]:
        """Where both begin."""
        return address(self.numbers), address(self.sums)


def gram(source: Source, totals: Totals, room: Room) -> Floats:
    """Add Σ r rᵀ; squared norms of all r."""
    squares = np.empty(source.n)
    _check(_compiled().gaussmix_gram(source.structure, *totals.arrays(), address(squares), room.at))
    return squares


def mapped(source: Source, by: Map, factors: Floats, totals: Totals, room: Room, products: Room) -> Floats:
    """Add Σ z̄ z̄ᵀ, z̄ = trunc(factors · T r), shortened to 2²⁰; squared norms of all z̄."""
    squares = np.empty(source.n)
    limits = ROW_UNIT**2, ROW_UNIT * SHRINK
    arrays = (*totals.arrays(), address(squares), room.at, products.at)
    _check(_compiled().gaussmix_mapped(source.structure, by.structure, address(factors), *limits, *arrays))
    return squares


def _check(exact: int) -> None:
    if not exact:  # 4096 rows of norm at most 1 cannot do that
        raise RuntimeError("Encoded rows are not finite: a fault of the encoder. Nothing was released.")


def lengths(source: Source, by: Map, factors: Floats, room: Room, products: Room) -> tuple[Floats, int]:
    """‖trunc(f · T r)‖² for several factors f, (kinds, n), and how many rows that are not left out have T r = 0."""
    squares = np.empty((len(factors), source.n))
    arrays = (address(factors), address(squares), room.at, products.at)
    zeros = _compiled().gaussmix_lengths(source.structure, by.structure, len(factors), *arrays)
    return squares, int(zeros)
