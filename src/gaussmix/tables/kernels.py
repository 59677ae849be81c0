"""What is done to every entry of a row in one pass over it, by compiled functions: the same bits as numpy's.

`_kernels.c` is built when the package is installed from its source and a C compiler is there (``hatch_build.py``).
Without it, or with ``GAUSSMIX_PURE=1`` in the environment when this module is imported, every function here returns
None, and the caller computes the same with numpy, more slowly. It is a plain library with no Python in it: one build
serves every version of Python, and the interpreter's lock is released while it runs.

What it computes is **sensitive**. It decides nothing: squared norms go back to Python, where they are held against
their limits.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

import numpy as np

from gaussmix._types import Floats, Rows

__all__ = ["address", "by_rows", "encode", "library", "norms", "scale"]

_VERSION = 4  # as in the source
_PURE = os.environ.get("GAUSSMIX_PURE") == "1"
_Size, _Pointer = ctypes.c_ssize_t, ctypes.c_void_p


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they were not built, or from another version, or with ``GAUSSMIX_PURE=1``."""
    if _PURE:
        return None
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name("_kernels.so")))
        if found.gaussmix_kernels_version() != _VERSION:
            return None
    except (OSError, AttributeError):
        return None
    arrays = (_Pointer, _Size, _Pointer, _Size, _Pointer, _Pointer, _Pointer)
    found.gaussmix_encode.argtypes = [_Size, _Size, _Size, _Size, *arrays, ctypes.c_double, _Pointer, _Pointer]
    for function in (found.gaussmix_scale, found.gaussmix_norms):
        function.argtypes, function.restype = [_Size, _Size, _Pointer, _Pointer, _Pointer], None
    return found


def encode(
    X: Rows, Y: Rows, centre: Floats, multiplier: Floats, limits: Floats, constant: float, *, rows: Floats
) -> Floats | None:
    """Write whole rows, trunc(clip((x - centre)·multiplier, ±limits)) and the constant; squared norms of the features.

    Parameters
    ----------
    X : array (n, d)
    Y : array (n, targets)
    centre, multiplier, limits : arrays (d + targets,)
    constant : float
        A whole number, for a last column if ``rows`` have one more.
    rows : array (n, m), in C order
        Where to write.

    Returns
    -------
    array (n,) or None
        None: ``rows`` are not to be used. There is no compiled library, or a value is not finite.
    """
    compiled = library()
    if compiled is None:
        return None
    X, Y, squares = by_rows(X), by_rows(Y), np.empty(len(X))
    sizes = (*X.shape, Y.shape[1], rows.shape[1])
    arrays = (
        address(X),
        X.strides[0] // 8,
        address(Y),
        Y.strides[0] // 8,
        address(centre),
        address(multiplier),
        address(limits),
    )
    finite = compiled.gaussmix_encode(*sizes, *arrays, constant, address(rows), address(squares))
    return squares if finite else None


def scale(products: Floats, factors: Floats) -> Floats | None:
    """Products (n, k), in C order, times factors (k,) and rounded towards zero, in place; squared norms of the rows."""
    compiled = library()
    if compiled is None:
        return None
    squares = np.empty(len(products))
    compiled.gaussmix_scale(*products.shape, address(products), address(factors), address(squares))
    return squares


def norms(products: Floats, factors: Floats) -> Floats | None:
    """The squared norms that `scale` returns; the products stay as they are."""
    compiled = library()
    if compiled is None:
        return None
    squares = np.empty(len(products))
    compiled.gaussmix_norms(*products.shape, address(products), address(factors), address(squares))
    return squares


def by_rows(array: Rows) -> Floats:
    """As float64 with contiguous rows that are whole numbers of entries apart; a view where it can."""
    fits = array.dtype == np.float64 and array.strides[1] == 8 and not array.strides[0] % 8 and array.flags.aligned
    return array if fits else np.ascontiguousarray(array, dtype=np.float64)


def address(array: Rows) -> int:
    """Where the entries begin; ``array.ctypes`` is slow."""
    address: int = array.__array_interface__["data"][0]
    return address
