"""Encode rows as integers: clamp, scale, clip and round each row independently.

A row of the encoded table is divided by its bound C, so that its norm is at most 1, and every entry is rounded towards
zero to a multiple of 2⁻²⁰, which makes sums of products exact (:mod:`gaussmix.data.gram`). Here entries are counted in
units of 2⁻²⁰. Notation follows docs/glossary.md.

No row has a norm above 1: the limits are floors of exact rationals. Entries within ``limits``, vectors whose squares
add up to at most their ``limit`` (a sum of integers below 2⁵³, hence exact in any order) and the intercept have squares
that add up to at most 2⁴⁰. Longer vectors, and rows beyond a declared ``max_row_norm``, are scaled as whole rows,
slightly more than needed, and rounded towards zero.

>>> schema = Schema.of({"X": {"size": 2, "norm": 5.0}, "y": [-1, 1]})
>>> (encode_arrays(schema, np.array([[3.0, 4.0]]), np.array([0.5])) * schema.row_norm).round(3).tolist()
[[0.6, 0.8, 0.5, 1.0]]

Encoded rows are **sensitive**, and no row changes how another one is read. Errors name the column, never a value; they
are for the curator only, because the occurrence of an error depends on single rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from gaussmix._types import Floats, Integers, Rows
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector, days_since, holds_dates
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.terms import Block, Numbers, TermValues
from gaussmix.errors import ArgumentError, DataError, DataTypeError

EXACT_ROWS = 2**12
"""Maximum number of rows whose Gram matrix is exact in float64: 2**12 * 2**40 < 2**53."""

_UNIT = 2.0**FRACTION_BITS
_SHORT_ROW = 64
"""Number of entries below which broadcasting a row costs more than reading a tile of it."""
_HUGE = 2.0**1000  # an entry that is mapped beyond is clipped before anything overflows


SHRINK = 1 - 2.0**-32
"""Extra factor for rows that are clipped: it covers the rounding of a norm over up to 2**19 columns."""


@dataclass(frozen=True)
class _NormBound:
    """A bound ``limit`` on the sum of squares of some entries, in units of 2⁻⁴⁰."""

    start: int
    stop: int
    limit: float


@dataclass(frozen=True)
class BlockEncoder:
    """The constants of a schema: an entry is ``clip((x - centre) · multiplier, ±limit)``, rounded towards zero.

    Attributes
    ----------
    centre, multiplier, limits : arrays (m,)
        Values by encoded column. A limit is infinite if only a norm is declared. The entry of a level is its limit.
    intercept : float
        Entry of the constant column.
    norm_bounds : tuple
        Bounds to be checked after rounding: of vectors whose limits do not imply their norm, and of the row.
    """

    centre: Floats
    multiplier: Floats
    limits: Floats
    intercept: float
    norm_bounds: tuple[_NormBound, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> BlockEncoder:
        """Return the encoder in units of 2⁻²⁰ of the row's bound."""
        units = schema.units
        limits = _limits(schema, lambda weight: float(schema.in_units(weight)))
        intercept = float(schema.in_units(schema.intercept))
        return cls(units.centres, _UNIT / schema.row_norm / units.scales, limits, intercept, _norm_bounds(schema))

    @classmethod
    def plain(cls, schema: Schema) -> BlockEncoder:
        """Return the encoder in units of the weights, without norm clipping or rounding, for predictions."""
        return cls(schema.units.centres, 1 / schema.units.scales, _limits(schema, float), schema.intercept)

    def encode_arrays(self, X: Rows, Y: Rows) -> Floats:
        """Return encoded rows of arrays, as `checked_arrays` returns them, in the best memory order."""
        d, targets = X.shape[1], Y.shape[1]
        width = 1 if row_major(X) and d < _SHORT_ROW else d  # columns of X at a time
        out = np.empty((len(X), len(self.centre)), order="C" if row_major(X) and width > 1 else "F")
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped
            for name, array, first, most in (("X", X, 0, width), ("y", Y, d, 1)):
                for own in pieces(array.shape[1], most):
                    to, values = slice(first + own.start, first + own.stop), array[:, own]
                    entries, limit = out[:, to], float(self.limits[to.start])  # the same for all entries of X
                    if not _subtracted(entries, values, self.centre[to]) and not np.isfinite(values).all():
                        raise DataError(
                            f"{name} contains NaN or infinite values. Drop these rows, or replace the values by a rule "
                            "that does not depend on the data (a declared bound, not the mean)."
                        )
                    np.multiply(entries, self.multiplier[to], out=entries)
                    if math.isfinite(limit):  # otherwise only a norm is declared
                        np.clip(entries, -limit, limit, out=entries)
            out[:, d + targets :] = self.intercept
            self.finish(out)
        return out

    def finish(self, block: Floats) -> Floats:
        """Clip the norms of clamped and scaled rows, shape (n, m), and round them, in place; return their factors."""
        factors = self.clip(block)
        np.trunc(block, out=block)
        return factors

    def clip(self, block: Floats) -> Floats:
        """Clip the norms of rows in place, and return their factors. Only the checked parts are rounded."""
        total = np.ones(len(block))
        with np.errstate(over="ignore"):  # squares of huge entries: a warning would depend on a row
            for bound in self.norm_bounds:
                part = block[:, bound.start : bound.stop]
                np.trunc(part, out=part)
                squares = squared_norms_of(part)
                if not (squares <= bound.limit).all():
                    factors = clip_vectors(part, squares, bound.limit)
                    block[:, : bound.start] *= factors[:, np.newaxis]
                    block[:, bound.stop :] *= factors[:, np.newaxis]
                    total *= factors
        return total


def _norm_bounds(schema: Schema) -> tuple[_NormBound, ...]:
    """Return the bounds of vectors, then that of the row, all at most 2⁴⁰.

    A vector with a bound above that of the row is checked only with the row. The norm of a row of plain columns follows
    from the bounds of its entries. With derived parts it is checked as well, so that the bound does not depend on
    properties of products and indicators.

    Squares that could exceed 2⁵³ would be rounded, and the check would depend on other rows of the block.
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
    """Return the largest entry of every encoded column; infinite where only a norm is declared."""
    limits = np.full(schema.n_columns, math.inf)
    for name, column in schema.parts.items():
        if not isinstance(column, Vector) or column.bounded:
            limits[list(schema.groups[name])] = entry(column.weight)
    return limits


def clip_vectors(part: Floats, totals: Floats, limit: float, starts: Integers | None = None) -> Floats:
    """Scale rows, in place, so that the squares of each row add up to at most ``limit``; return the factors.

    With ``starts`` the squares of each privacy unit do: one factor for all of its rows. Rows and units are independent
    of each other.

    ``part``, shape (n, d), is whole numbers, or infinite where a finite value was mapped beyond the range of floats.
    The norm is that of the rounded entries: exact, where a float sum would depend on its order. It is short of the true
    one by less than √d, so the factor is at most 1 + √d/√limit times √limit over the true norm (1 + d 2⁻²⁴ times, where
    squares add up to 2⁵³ or more), and at least 1 - 2⁻³¹ times. Rounding towards zero turns the row by as little;
    entries beyond 2¹⁰⁰⁰ are clipped to it, which may turn it by more. ``totals`` are `squared_norms_of` the part.
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
        raise RuntimeError("An encoded row exceeds its norm bound. This is a bug in gaussmix; nothing was released.")
    return powers * shrink


def checked_arrays(schema: Schema, X: ArrayLike, Y: ArrayLike | None) -> tuple[Rows, Rows]:
    """Return both arrays in two dimensions, with a real dtype and the declared widths, without copying.

    The schema must have one vector X and then numbers y.
    """
    vector, *others = schema.columns.values()
    plain = schema.parts.keys() == schema.columns.keys()  # neither terms nor weights nor columns of missing values
    if (
        not isinstance(vector, Vector)
        or not plain
        or not all(isinstance(column, Numeric | Boolean) for column in others)
    ):
        raise ArgumentError(
            "Arrays (X, Y) require a schema of one Vector followed by numeric columns. Pass a table instead."
        )
    if schema.max_row_norm is not None:
        raise ArgumentError("Arrays (X, Y) do not support max_row_norm. Give the Vector a norm, or pass a table.")
    X = np.asarray(X)
    Y = np.empty((len(X), 0)) if Y is None else np.asarray(Y)
    if Y.ndim == 1:
        Y = Y[:, np.newaxis]
    for name, array, columns in (("X", X, vector.size), ("y", Y, len(others))):
        if array.dtype.kind not in "biuf":
            raise DataError(
                f"{name} must hold real numbers, got dtype {array.dtype}. Convert other columns to numbers first."
            )
        if array.ndim != 2 or array.shape[1] != columns:
            found = f"{array.ndim} dimension(s)" if array.ndim != 2 else f"{array.shape[1]} column(s)"
            raise DataError(
                f"{name} must be two-dimensional with {columns} column(s), as the schema declares, got {found}."
            )
    if len(X) != len(Y):
        raise DataError("X and y must have the same number of rows.")
    return X, Y


def encode_arrays(schema: Schema, X: ArrayLike, Y: ArrayLike | None = None) -> Floats:
    """Return encoded rows, ‖r‖ ≤ 1, shape (n, m). **Sensitive.** For tests, explicit sketches and likelihoods."""
    X, Y = checked_arrays(schema, X, Y)
    return BlockEncoder.of(schema).encode_arrays(X, Y) / _UNIT


def pieces(n: int, rows: int) -> list[slice]:
    """Divide n rows into slices of at most ``rows``."""
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def row_major(array: Rows) -> bool:
    """Return whether the array is stored row by row."""
    return abs(array.strides[0]) >= abs(array.strides[1])


def squared_norms_of(rows: Floats, starts: Integers | None = None) -> Floats:
    """Return the squared norm of each row, or of all rows of each privacy unit.

    For whole numbers the sum is exact where it is less than 2⁵³. Where it is not, any order of summation gives at least
    2⁵³, or NaN: partial sums below 2⁵³ are exact, and rounding never takes a larger one back below (2⁵³ is a float).
    """
    by_row_major = row_major(rows) and rows.shape[1] >= _SHORT_ROW
    squares = np.vecdot(rows, rows) if by_row_major else np.einsum("ij,ij->i", rows, rows)
    return np.asarray(squares if starts is None else np.add.reduceat(squares, starts))


_RULES = '"drop-row", "lower" or, for numbers, "indicator"'


def encode_batch(
    batch: pa.RecordBatch | pa.Table, schema: Schema, plan: BlockEncoder, *, out: Floats | None = None
) -> Floats:
    """Return rows of shape (n, n_columns), clamped and scaled, not yet clipped in norm or rounded.

    Columns may be in any order; others than the schema's are not looked at. Rows that ``missing="drop-row"`` leaves out
    are not in the result: their number is sensitive. It is written to ``out``, best in Fortran order, and a part of it.
    A column that is absent or of another type, or holds missing values or unknown levels without a rule for them, is an
    error.
    """
    keep = complete_rows(batch, schema)
    arrays = _columns_of(batch if keep is None else batch.filter(keep), schema, list(schema.columns))
    rows = len(next(iter(arrays.values())))
    if out is None:
        out = np.empty((rows, schema.n_columns), order="F")
    block = out[:rows]

    def numbers(name: str) -> Numbers:
        return _clipped(name, cast(Numeric, schema.columns[name]), arrays[name])

    def levels(name: str) -> Floats:
        column = cast(Categorical, schema.columns[name])
        found = np.empty((rows, len(column.labels)), order="F")
        _write_levels(found, name, column, arrays[name], 1.0)
        return found

    terms = TermValues(schema.columns, numbers, levels)
    with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, others are found below
        for name, part in schema.parts.items():
            place = slice(schema.groups[name][0], schema.groups[name][-1] + 1)
            out = block[:, place]
            centre, multiplier, limits = plan.centre[place], plan.multiplier[place], plan.limits[place]
            column = schema.columns.get(name)
            if column is None or part is not column:
                terms.write(out, name, part, multiplier, limits)
            elif isinstance(column, Categorical):
                _write_levels(out, name, column, arrays[name], float(limits[0]))
            elif isinstance(column, Vector):
                _write_vector(out, name, column, arrays[name], centre, multiplier, limits)
            else:
                _write_numbers(out[:, 0], name, column, arrays[name], centre[0], multiplier[0], limits[0])
    if schema.intercept:
        block[:, -1] = plan.intercept
    if schema.weight is not None:
        plan.clip(block)
        np.multiply(block, _roots_of_weights(schema, arrays)[:, np.newaxis], out=block)
    return block


def _clipped(name: str, column: Numeric | Boolean, array: pa.Array) -> Numbers:
    """Return a column clamped to its bounds in original units, missing values as the lower bound, and their mask."""
    found = numbers_of(name, column, array)
    absent = ~np.isfinite(found)
    if column.missing == "error" and absent.any():
        raise _missing(name, _RULES)
    if isinstance(column, Boolean) and not pa.types.is_boolean(array.type):
        _check_zero_one(name, found, absent)
    lower, upper = (column.lower, column.upper) if isinstance(column, Numeric) else (0.0, 1.0)
    values = np.clip(np.where(absent, lower, found.astype(np.float64)), lower, upper)
    return Numbers(values, absent if column.missing == "indicator" else None)


def without_negative(name: str, column: Column, array: pa.Array) -> pa.Array:
    """Return weights as numbers, with negative ones as missing."""
    values = np.array(numbers_of(name, cast(Numeric, column), array), dtype=np.float64)
    values[values < 0] = np.nan
    return pa.array(values)


def complete_rows(batch: pa.RecordBatch, schema: Schema) -> pa.Array | None:
    """Return which rows ``missing="drop-row"`` keeps; None for all."""
    keep = None
    names = [name for name, column in schema.columns.items() if column.missing == "drop-row"]
    for array in _columns_of(batch, schema, names).values():
        if (here := present(array)) is not None:
            keep = here if keep is None else pc.and_(keep, here)
    return keep


def _columns_of(batch: pa.RecordBatch | pa.Table, schema: Schema, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return some columns, each as one array; invalid weights are missing."""
    arrays = {name: one_column(batch, name) for name in names}
    for name, array in arrays.items():
        if pa.types.is_dictionary(array.type):
            try:
                array.validate(full=True)  # indices out of range would read foreign memory
            except pa.ArrowException:
                raise DataError(
                    f"Column {name!r} has dictionary indices beyond the end of its dictionary: the table is corrupt. "
                    "Write it again."
                ) from None
    weight = schema.weight
    if weight is not None and weight in arrays:
        arrays[weight] = without_negative(weight, schema.columns[weight], arrays[weight])
    return arrays


def _roots_of_weights(schema: Schema, arrays: Mapping[str, pa.Array]) -> Floats:
    """Return √(w/w_max) of every row: at most 1, correctly rounded."""
    name = str(schema.weight)
    column = cast(Numeric, schema.columns[name])
    if column.missing == "error" and not np.isfinite(arrays[name].to_numpy(zero_copy_only=False)).all():
        raise DataError(
            f"Weight column {name!r} has negative, missing, NaN or infinite values. "
            f"Declare missing={_RULES} for it in the schema, or correct the table."
        )
    return np.sqrt(_clipped(name, column, arrays[name]).values / column.upper)


def _write_numbers(
    out: Floats, name: str, column: Numeric | Boolean, array: pa.Array, centre: float, multiplier: float, limit: float
) -> None:
    values = numbers_of(name, column, array)
    absent = None
    if not _subtracted(out, values, centre):
        absent = ~np.isfinite(values)
        if column.missing == "error" and absent.any():
            raise _missing(name, _RULES)
    if isinstance(column, Boolean) and not pa.types.is_boolean(array.type):
        _check_zero_one(name, values, absent)
    np.multiply(out, multiplier, out=out)
    np.clip(out, -limit, limit, out=out)
    if absent is not None:
        out[absent] = 0.0 if column.missing == "indicator" else -limit


def _subtracted(out: Floats, values: Rows, centre: float | Floats) -> bool:
    """Write values about their centre; return whether they are surely finite.

    A sum is finite only if every term is: one pass, and nothing else is written. It may overflow, hence a second look.
    """
    np.subtract(values, centre, out=out, dtype=np.float64)
    return math.isfinite(np.add.reduce(out, axis=None))


def _write_vector(
    out: Floats, name: str, column: Vector, array: pa.Array, centre: Floats, multiplier: Floats, limits: Floats
) -> None:
    entries = entries_of(name, column, array)
    np.subtract(entries, centre, out=out, dtype=np.float64)
    if not np.isfinite(out).all() and not np.isfinite(entries).all():
        raise _missing(name, '"drop-row"')
    np.multiply(out, multiplier, out=out)
    if column.bounded:
        np.clip(out, -limits, limits, out=out)


def entries_of(name: str, column: Vector, array: pa.Array) -> Rows:
    """Return the entries of every row, shape (rows, size); NaN where one is missing."""
    if pa.types.is_null(array.type):  # a part of the table in which all rows are missing
        array = pa.nulls(len(array), pa.list_(pa.float64(), column.size))
    if not listed(array.type):
        raise DataTypeError(
            f"Column {name!r} must hold vectors of {column.size} numbers, but its type is {array.type}. "
            "Pass a two-dimensional array, or an Arrow column of lists of one size."
        )
    if array.null_count:
        raise _missing(name, '"drop-row"')
    if not pc.all(pc.equal(pc.list_value_length(array), column.size)).as_py() and len(array):
        raise DataError(f"Column {name!r} must hold vectors of the declared size {column.size}.")
    return numbers_of(name, column, pc.list_flatten(array)).reshape(-1, column.size)


def _check_zero_one(name: str, values: Rows, absent: NDArray[np.bool_] | None) -> None:
    """Reject numbers other than 0 and 1 in a boolean column: codes such as 1 and 2 would make it constant."""
    fits = (values == 0) | (values == 1)
    if not (fits if absent is None else fits | absent).all():
        raise DataError(
            f"Column {name!r} is declared as boolean, but holds numbers other than 0 and 1. "
            "Declare it as categorical with its levels, or as a number with bounds."
        )


def numbers_of(name: str, column: Numeric | Boolean | Vector, array: pa.Array) -> Rows:
    """Return a NumPy array, NaN where a value is missing, without a copy if possible."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if isinstance(column, Numeric) and column.origin is not None:
        if pa.types.is_null(kind):
            array = array.cast(pa.date32())
        if not holds_dates(array.type):
            raise DataTypeError(
                f"Column {name!r} must hold dates or times, but its type is {kind}. Cast it, or omit the origin."
            )
        return days_since(array, column.origin)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        array = decimal_floats(array)
    elif pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        what = "true and false (or 1 and 0)" if isinstance(column, Boolean) else "numbers"
        cure = "Cast it to a number, or omit the column from the schema."
        if pa.types.is_temporal(kind):
            cure = "Declare it as a date with an origin."
        elif is_text(kind):
            kind, cure = "text", "Convert it to numbers, or declare it as categorical with its levels."
        raise DataTypeError(f"Column {name!r} must hold {what}, but its type is {kind}. {cure}")
    return cast(Rows, array.to_numpy(zero_copy_only=False))


def decimal_floats(array: pa.Array) -> pa.Array:
    """Return decimal numbers as floats, through text, which rounds correctly.

    Arrow's cast depends on the scale: if it was inferred from a batch, one row would change the last digit of another.
    """
    return array.cast(pa.string()).cast(pa.float64())


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _missing(name: str, rules: str) -> DataError:
    return DataError(
        f"Column {name!r} has missing, NaN or infinite values. "
        f"Declare missing={rules} for it in the schema, or correct the table."
    )


def _write_levels(out: Floats, name: str, column: Categorical, array: pa.Array, entry: float) -> None:
    """Write one entry per row at the value's level; none for an unknown value with ``unknown="zero"``."""
    codes, absent = codes_of(name, column, array)
    missing_at = len(column.levels)
    other_at = missing_at + (column.missing == "level")
    strange = codes < 0
    if absent is not None:
        if column.missing == "error":
            raise _missing(name, '"drop-row" or "level"')
        codes[absent] = missing_at
        strange &= ~absent
    if column.unknown == "error" and strange.any():
        raise DataError(
            f"Column {name!r} has values that are not among its declared levels. "
            'Add the levels, or declare unknown="other" or unknown="zero" for it in the schema.'
        )
    if column.unknown == "other":
        codes[strange] = other_at
    for level in range(out.shape[1]):
        np.copyto(out[:, level], codes == level)
    if entry != 1:
        np.multiply(out, entry, out=out)


def codes_of(name: str, column: Categorical, array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
    """Return the level index of every row, -1 for none, and which rows are missing (None for none).

    The code of a missing row is arbitrary.
    """
    level = type(column.levels[0])
    if level is int and (found := whole_numbers(array)) is not None:
        here = present(array)
        codes, _ = codes_of(name, column, found)
        return codes, None if here is None else ~here.to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    coded = pa.types.is_dictionary(array.type)
    values = array.dictionary if coded else array
    # The column must have the type of its levels: "1" is not 1, and 1 is not true.
    fits, words = {
        str: (is_text, "strings"),
        int: (pa.types.is_integer, "integers"),
        bool: (pa.types.is_boolean, "booleans"),
    }[level]
    if not (fits(values.type) or pa.types.is_null(values.type)):
        raise DataTypeError(
            f"Column {name!r} has the type {values.type}, but its levels are {words}. "
            f"Cast the column to {words}, or declare the levels in the column's type."
        )
    if pa.types.is_null(values.type):
        values = values.cast(column.arrow_type)
    elif pa.types.is_uint64(values.type):  # values that do not fit are not levels; a failing cast would quote one
        values = pc.if_else(pc.less(values, pa.scalar(2**63, pa.uint64())), values, None).cast(pa.int64())
    found = pc.index_in(values, value_set=pa.array(column.levels, type=column.arrow_type))
    codes = np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int32)
    if coded:  # only the dictionary is looked up; a missing row gets any code here, and its own later
        indices = pc.fill_null(array.indices, 0) if array.null_count else array.indices
        codes = np.append(codes, np.int32(-1))[indices.to_numpy(zero_copy_only=False)]
    absent = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return codes, absent


def whole_numbers(array: pa.Array) -> pa.Array | None:
    """Return floating-point numbers as integers, null if not whole or beyond 64 bits; None for other types."""
    if pa.types.is_dictionary(array.type):
        if not pa.types.is_floating(array.type.value_type):
            return None
        array = array.dictionary_decode()
    elif not pa.types.is_floating(array.type):
        return None
    values = array.cast(pa.float64())
    fits = pc.and_(
        pc.equal(pc.floor(values), values), pc.and_(pc.greater_equal(values, -(2.0**63)), pc.less(values, 2.0**63))
    )
    return pc.if_else(fits, values, None).cast(pa.int64())


def one_column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column as one array; dictionaries are kept."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        what = "is not in the table" if not indices else "occurs twice in the table"
        raise DataError(f"Column {name!r} {what}. The table must have every column of the schema exactly once.")
    array = batch.column(indices[0])
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of no or of too long chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    return array


def present(array: pa.Array) -> pa.Array | None:
    """Return where a value, or every entry of a vector, is not missing, NaN or infinite; None for everywhere."""
    if listed(array.type):
        complete = array.is_valid().to_numpy(zero_copy_only=False)
        entries = present(pc.list_flatten(array))
        if entries is not None:
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
            owners = np.repeat(np.arange(len(array)), lengths)
            complete[owners[~entries.to_numpy(zero_copy_only=False)]] = False
        return None if complete.all() else pa.array(complete)
    floating = pa.types.is_floating
    if pa.types.is_dictionary(array.type) and (array.dictionary.null_count or floating(array.type.value_type)):
        array = array.dictionary_decode()
    if floating(array.type):
        finite = pc.fill_null(pc.is_finite(array.cast(pa.float64())), False)
        return None if pc.all(finite).as_py() is not False else finite
    return pc.is_valid(array) if array.null_count else None


def listed(kind: pa.DataType) -> bool:
    """Return whether a type is a list type."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))
