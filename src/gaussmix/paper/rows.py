r"""Read a table, clip its rows and add up their Gram matrix. **Sensitive**: everything here sees rows.

A row of norm at most C is held as integers: each entry divided by C, times 2²⁰, rounded towards zero. In a block of
2¹² such rows every partial sum of products is an integer below 2⁵³, so BLAS adds them without rounding; sums of blocks
are added in integers. The Gram matrix therefore does not depend on blocks, threads or processor, and removing a row
changes it by exactly :math:`r r^\top`.

>>> table = Table.open([[3.0, 4.0], [0.3, 0.4]], columns=("x", "y"))
>>> table.gram(1.0).round(3).tolist()
[[0.45, 0.6], [0.6, 0.8]]

Errors about rows quote no value, and nothing is chained to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.data.arrays import without_values
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError

__all__ = ["UNIT", "Table", "clip_rows", "column_names"]

UNIT = 2.0**20
"""Units of a row of norm C."""

_EXACT_ROWS = 2**12  # rows whose products float64 adds without rounding: 2¹² · 2⁴⁰ < 2⁵³
_LIMB_BITS = 40
_SHRINK = 1 - 2.0**-32  # covers the rounding of a square root and a product

_NOT_NUMERIC = (
    "A must be a numeric table: an array, a data frame, or blocks of rows of either, all with the same columns."
)
_NOT_FINITE = (
    "A contains NaN or infinite values. Drop these rows, or replace the values by a rule chosen before looking at "
    "the data (a declared bound, not the mean of the data)."
)


@dataclass(frozen=True, repr=False)
class Table:
    """**Sensitive**: a table of numbers that is read in blocks of rows.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    blocks : iterable
        Arrays or data frames.
    once : bool
        Whether the blocks can be read only once.
    """

    names: tuple[str, ...]
    blocks: Iterable[Any]
    once: bool

    @classmethod
    def open(cls, A: Any, columns: Sequence[str] | None = None) -> Table:
        """Determine the kind of table and its column names, without reading values.

        Parameters
        ----------
        A : array, data frame or iterable of them
            A two-dimensional array, an eager data frame that narwhals reads (pandas, polars, Arrow), or an iterable of
            either, one block of rows each.
        columns : sequence of str, optional
            Names of the columns of arrays, or the columns of data frames to read, in this order.
        """
        names = None if columns is None else column_names(columns)
        if without_values(_is_one_table, A, message=_NOT_NUMERIC):
            return cls(_names_of(A, names), (A,), once=False)
        if not isinstance(A, Iterable):
            raise ArgumentTypeError(_NOT_NUMERIC)
        once = isinstance(A, Iterator)
        blocks = without_values(iter, A, message=_NOT_NUMERIC)
        first = without_values(lambda: next(blocks, None), message=_NOT_NUMERIC)
        if first is None:
            raise ArgumentError("A must contain at least one block of rows, of shape (0, columns) for an empty table.")
        return cls(_names_of(first, names), chain((first,), blocks) if once else A, once)

    def rows(self, row_norm: float, *, most: int = _EXACT_ROWS) -> Iterator[Floats]:
        """Read the clipped rows as integers in units of C·2⁻²⁰, at most ``most`` at a time."""
        for block in self.blocks:
            array = without_values(_matrix, block, self.names, message=_NOT_NUMERIC)
            for start in range(0, len(array), most):
                yield clip_rows(array[start : start + most], row_norm)

    def gram(self, row_norm: float, *, n_max: int | None = None) -> Floats:
        """Add up the Gram matrix of the clipped rows, in units of C²; reject more than ``n_max`` rows."""
        m, n = len(self.names), 0
        high, low = np.zeros((m, m), dtype=np.int64), np.zeros((m, m), dtype=np.int64)
        for rows in self.rows(row_norm):
            n += len(rows)
            low += (rows.T @ rows).astype(np.int64)
            high += low >> _LIMB_BITS
            low &= 2**_LIMB_BITS - 1
            if n_max is not None and n > n_max:
                raise DataError(f"A has more than n_max={n_max} rows. Declare a larger public bound n_max.")
        return np.asarray(high + low * 2.0**-_LIMB_BITS)


def clip_rows(block: Floats, row_norm: float) -> Floats:
    """Return rows as integers in units of C·2⁻²⁰, with rows of norm above C scaled back as a whole.

    Each row is clipped independently. Squares are added as integers, which is exact in any order. A row with an entry
    above C has a norm above C; dividing by the largest entry first prevents overflow.
    """
    largest = np.abs(block).max(axis=1, initial=0.0)
    with np.errstate(under="ignore"):
        whole = np.trunc(block / np.maximum(largest, row_norm)[:, np.newaxis] * UNIT)
    entries = whole.astype(np.int64)
    squares = np.einsum("ij,ij->i", entries, entries)
    long = (largest > row_norm) | (squares > int(UNIT) ** 2)
    if long.any():
        factors = UNIT * _SHRINK / np.sqrt(squares[long])
        whole[long] = np.trunc(whole[long] * factors[:, np.newaxis])
    return np.asarray(whole)


def column_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Validate column names: at least one, without duplicates."""
    if isinstance(columns, str):
        raise ArgumentTypeError(f"columns must be a list of columns, got one string. Write columns=[{columns!r}].")
    names = tuple(check.text(columns=name) for name in columns)
    if not names or len(set(names)) < len(names):
        raise ArgumentError("columns must contain at least one name and no duplicates.")
    return names


# ----------------------------------------------------------------------------------------------------------------------
def _frame(block: Any) -> nw.DataFrame[Any] | None:
    found = nw.from_native(block, eager_only=True, pass_through=True)
    return found if isinstance(found, nw.DataFrame) else None


def _is_one_table(A: Any) -> bool:
    """Return whether ``A`` is one table, not blocks of one: a list is a table if its elements are rows."""
    if scipy.sparse.issparse(A):
        raise DataTypeError("A must be dense, got a sparse matrix. Use its toarray() method.")
    if isinstance(A, list | tuple):
        return not A or (_frame(A[0]) is None and np.ndim(A[0]) < 2)
    return isinstance(A, np.ndarray) or _frame(A) is not None or hasattr(A, "__array__")


def _names_of(block: Any, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the declared names, those of a data frame, or x0, x1 and so on."""
    frame = without_values(_frame, block, message=_NOT_NUMERIC)
    if frame is not None:
        return column_names([str(name) for name in frame.columns]) if names is None else names
    shape = without_values(np.shape, block, message=_NOT_NUMERIC)
    if len(shape) != 2 or shape[1] < 1:
        found = f"{len(shape)} dimension(s)" if len(shape) != 2 else "0 columns"
        raise DataError(f"A must have the shape (rows, columns) with at least one column, got {found}.")
    if names is not None and len(names) != shape[1]:
        raise ArgumentError(f"columns must be {shape[1]} names, one per column, got {len(names)}.")
    return tuple(f"x{j}" for j in range(shape[1])) if names is None else names


def _matrix(block: Any, names: tuple[str, ...]) -> Floats:
    """Return a block as finite doubles of shape (rows, columns)."""
    frame, array = _frame(block), block
    if frame is not None:
        if not set(names) <= set(frame.columns):
            raise DataError(
                "Every data frame in A must contain the same columns (those in columns, if columns is given)."
            )
        array = frame.select(*names).to_numpy()
    found: Rows = np.asarray(array)
    if found.dtype.kind not in "biuf" or found.ndim != 2 or found.shape[1] != len(names):
        raise DataTypeError(_NOT_NUMERIC)
    with np.errstate(over="ignore"):  # a long double beyond the doubles becomes infinite
        doubles = np.ascontiguousarray(found, dtype=np.float64)
    if not np.isfinite(doubles).all():
        raise DataError(_NOT_FINITE)
    return doubles
