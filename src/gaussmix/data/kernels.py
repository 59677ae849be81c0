"""Compiled functions that encode, map, scale, clip and sum a few rows at a time.

A row stays in the first-level cache from its encoding to its product, and the zeros of a triangular transform are
skipped. The results are bit for bit those of :mod:`gaussmix.data.gram` with numpy.

`_kernels.c` is built when the package is installed from source with a C compiler (``hatch_build.py``). It does not use
Python: one build serves every version of Python, and the interpreter lock is released while it runs. Without it, with
``GAUSSMIX_PURE=1`` in the environment at import, or on a processor without AVX2, numpy computes everything.

Results are **sensitive**. A row that is not finite, or whose squares add up to 2⁵³ or more, is skipped and marked
(`KernelInput.left_out`): the caller adds it with numpy or rejects it. The squared norms of added rows are returned to
Python and compared with their limits.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from gaussmix._types import Floats, Integers, Rows
from gaussmix.data.encode import SHRINK, BlockEncoder
from gaussmix.data.transforms import ROW_UNIT, Transform

_VERSION = 5  # as in the source
_PURE = os.environ.get("GAUSSMIX_PURE") == "1"

MOST_COLUMNS = 512
"""Maximum number of columns: wider sums do not fit into the caches, and BLAS is as fast."""

MOST_ROWS = 2**14
"""Number of rows of one input, so that the overhead of Python is small."""

_LANES, _BLOCK = 8, 64  # as in the source
_Size, _Pointer, _Number = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_double


class _Source(ctypes.Structure):
    _fields_ = (
        *((name, _Size) for name in ("n", "m", "d", "targets", "stride", "stride_Y")),
        *((name, _Pointer) for name in ("rows", "X", "Y", "chosen", "centre", "multiplier", "limits")),
        *((name, _Number) for name in ("constant", "norm_limit", "clipped_norm")),
        ("left", _Pointer),
    )


class _Map(ctypes.Structure):
    _fields_ = (("m", _Size), ("k", _Size), ("panels", _Pointer), ("ranges", _Pointer))


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled functions; None if not built, of another version, or switched off."""
    if _PURE:
        return None
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name("_kernels.so")))
        if found.gaussmix_kernels_version() != _VERSION:  # 0 where the processor lacks what they need
            return None
    except (OSError, AttributeError):
        return None
    sources, maps = ctypes.POINTER(_Source), ctypes.POINTER(_Map)
    for name, arguments, result in (
        ("gram", (sources, *[_Pointer] * 4), ctypes.c_int),
        ("mapped", (sources, maps, _Pointer, _Number, _Number, *[_Pointer] * 5), ctypes.c_int),
        ("norms", (sources, maps, _Size, *[_Pointer] * 4), _Size),
    ):
        function = getattr(found, f"gaussmix_{name}")
        function.argtypes, function.restype = arguments, result
    return found


def serves(columns: int) -> bool:
    """Return whether rows with this number of columns should be added by compiled functions."""
    return columns <= MOST_COLUMNS and library() is not None


# ---------------------------------------------------------------------------------------------------------------
# Memory
def padded(width: int) -> int:
    """Return the number of columns of rows and sums in memory."""
    return -(-width // _LANES) * _LANES


def zeros(*shape: int) -> Floats:
    """Allocate zeros aligned to a cache line."""
    size = math.prod(shape)
    found = np.zeros(size + _LANES)
    start = -(_address(found) // 8) % _LANES
    return found[start : start + size].reshape(shape)


def _address(array: Rows) -> int:
    """Return the address of the first entry; ``array.ctypes`` is slow."""
    address: int = array.__array_interface__["data"][0]
    return address


class KernelInput:
    """At most 2¹⁴ rows for compiled functions: encoded ones, or arrays that are encoded on the way.

    Attributes
    ----------
    n, m : int
        Rows and columns.
    left : array of uint8
        1 for rows that the last function left out.
    """

    def __init__(self, m: int) -> None:
        self.n, self.m, self.left = 0, m, np.zeros(MOST_ROWS, dtype=np.uint8)
        self.structure = _Source(m=m, left=_address(self.left))
        self._referenced: tuple[Rows, ...] = ()  # arrays whose addresses are in the structure
        self._addresses = (0, 0)

    @classmethod
    def of_rows(cls, rows: Floats) -> KernelInput:
        """Wrap encoded rows, (n, m)."""
        found = cls(rows.shape[1])
        if not _by_rows(rows):
            rows = np.ascontiguousarray(rows)
        found.n = found.structure.n = len(rows)
        found.structure.rows, found.structure.stride = _address(rows), rows.strides[0] // 8
        found._referenced = (rows,)
        return found

    @classmethod
    def of_arrays(cls, X: Rows, Y: Rows, plan: BlockEncoder) -> KernelInput | None:
        """Wrap rows of arrays (·, d) and (·, targets), which are encoded; none before `select`.

        None for arrays of another memory layout. At most one norm is bounded, that of X.
        """
        if not (_by_rows(X) and _by_rows(Y)):
            return None
        found = cls(len(plan.centre))
        there = found.structure
        there.d, there.targets = X.shape[1], Y.shape[1]
        there.stride, there.stride_Y = X.strides[0] // 8, Y.strides[0] // 8
        constants = (plan.centre, plan.multiplier, plan.limits)
        there.centre, there.multiplier, there.limits = map(_address, constants)
        there.constant = plan.intercept
        limit = plan.norm_bounds[0].limit if plan.norm_bounds else None
        there.norm_limit = math.inf if limit is None else limit
        there.clipped_norm = 0.0 if limit is None else math.sqrt(limit) * SHRINK
        found._referenced, found._addresses = (X, Y, *constants), (_address(X), _address(Y))
        return found

    def select(self, selected: slice | Integers) -> None:
        """Select other rows of the arrays: a slice of step one, or positions."""
        there, (X, Y) = self.structure, self._addresses
        if isinstance(selected, slice):
            there.X, there.Y = X + 8 * there.stride * selected.start, Y + 8 * there.stride_Y * selected.start
            there.chosen, self.n = None, selected.stop - selected.start
        else:
            self._selected = np.ascontiguousarray(selected, dtype=np.intp)
            there.X, there.Y, there.chosen, self.n = X, Y, _address(self._selected), len(selected)
        there.n = self.n


def _by_rows(array: Rows) -> bool:
    """Return whether rows are contiguous float64 arrays, a whole number of entries apart."""
    in_row = array.shape[1] < 2 or array.strides[1] == 8
    return bool(array.dtype == np.float64 and in_row and not array.strides[0] % 8 and array.flags.aligned)


class Map:
    """The integers of a transform in the order in which they are multiplied; zeros at both ends are left out.

    ``factors`` are what the k products are times: one padded row for each of several factors.
    """

    def __init__(self, transform: Transform, *factors: Floats) -> None:
        k, m = transform.integers.shape
        width = padded(k)
        columns = np.zeros((width, m))
        columns[:k] = transform.integers
        parts = columns.reshape(width // _LANES, _LANES, m)
        used = [np.flatnonzero(part.any(axis=0)) for part in parts]
        self._panels = np.ascontiguousarray(parts.transpose(0, 2, 1))
        self._ranges = np.array([(at[0], at[-1] + 1) if len(at) else (0, 0) for at in used], dtype=np.intp)
        self.structure = _Map(m=m, k=k, panels=_address(self._panels), ranges=_address(self._ranges))
        self.factors = np.zeros((len(factors), width))
        self.factors[:, :k] = factors


# ---------------------------------------------------------------------------------------------------------------
# Functions
def gram(rows: KernelInput, low: Integers, pending: Floats, by: Map | None = None) -> Integers:
    """Add Σ r rᵀ, or Σ z̄ z̄ᵀ with z̄ = trunc(factors · T r) clipped to norm 2²⁰, to ``low``; return rows left out.

    ``low`` has as many padded rows and columns as there are columns of r, or of z̄; its entries below the diagonal are
    not to be used. ``pending``, of the same shape, is zero before and after. Sums are checked to be exact and norms to
    be at most 2²⁰, as the sensitivity requires.
    """
    compiled, squares = cast(Any, library()), np.empty(rows.n)
    arrays = [low, pending, squares, zeros(_BLOCK, padded(rows.m))]  # the last for a few rows
    if by is None:
        done = compiled.gaussmix_gram(rows.structure, *map(_address, arrays))
    else:
        arrays.append(zeros(_BLOCK, by.factors.shape[1]))  # for their products
        arguments = (by.structure, _address(by.factors), ROW_UNIT**2, ROW_UNIT * SHRINK)
        done = compiled.gaussmix_mapped(rows.structure, *arguments, *map(_address, arrays))
    if not done:
        raise not_finite()  # 4096 rows of norm at most 2²⁰ cannot do that
    if not (squares <= ROW_UNIT**2).all():
        raise RuntimeError("An encoded row exceeds its norm bound. This is a bug in gaussmix; nothing was released.")
    return np.flatnonzero(rows.left[: rows.n])


def not_finite() -> RuntimeError:
    """Return the error for encoded rows that no encoder returns."""
    return RuntimeError("Encoded rows are not finite. This is a bug in gaussmix; nothing was released.")


def norms(rows: KernelInput, by: Map) -> tuple[Floats, int, Integers]:
    """Return ‖trunc(f · T r)‖² for several factors f, (kinds, n), how many have T r = 0, and the rows left out."""
    squares = np.empty((len(by.factors), rows.n))
    few, products = zeros(_BLOCK, padded(rows.m)), zeros(_BLOCK, by.factors.shape[1])
    function, arrays = cast(Any, library()).gaussmix_norms, (by.factors, squares, few, products)
    none = int(function(rows.structure, by.structure, len(by.factors), *map(_address, arrays)))
    return squares, none, np.flatnonzero(rows.left[: rows.n])
