"""The compiled library, where there is one.

`_fused.c` is built when the package is installed from its source and a C compiler is there (``hatch_build.py``). It is
a plain library with no Python in it: one build serves every version of Python, and the interpreter's lock is released
while it runs. Without it, with ``GAUSSMIX_PURE=1`` in the environment when this module is imported, or on a processor
without AVX2, numpy computes the same bits, more slowly.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

import numpy as np

from gaussmix._types import Floats, Rows

__all__ = ["address", "by_rows", "library"]

_VERSION = 5  # as in the source
_PURE = os.environ.get("GAUSSMIX_PURE") == "1"


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
