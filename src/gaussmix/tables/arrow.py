"""Columns of an Arrow table into a block of the encoded row. The result is **sensitive**.

Each row is read by itself: no row changes how another one is read. Errors name the column, never a value; they are for
the curator, since whoever sees whether one occurred learns about single rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix._types import Floats, Rows
from gaussmix.errors import DataError, DataTypeError
from gaussmix.tables.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.tables.dates import days_since, holds_dates
from gaussmix.tables.encoder import BlockEncoder
from gaussmix.tables.schema import Schema
from gaussmix.tables.term_values import Numbers, TermValues

__all__ = [
    "check_indices",
    "codes_of",
    "complete_rows",
    "encode_batch",
    "encoded_blocks",
    "entries_of",
    "kept",
    "listed",
    "numbers_of",
    "one_column",
    "present",
    "without_negative",
    "without_views",
]

_BLOCK_BYTES = 2**25
_LEAST_BLOCK_ROWS = 2**10
_RULES = '"drop-row", "lower" or, for numbers, "indicator"'


def encoded_blocks(batches: Iterable[pa.RecordBatch], schema: Schema, plan: BlockEncoder) -> Iterator[Floats]:
    """Encode one batch after the other. A block is overwritten by the next one.

    One buffer serves all batches: fresh memory for each would cost more than the arithmetic. Its size is
    bounded, however many levels there are.
    """
    rows = max(_BLOCK_BYTES // (8 * schema.n_columns), _LEAST_BLOCK_ROWS)
    buffer = np.empty((0, schema.n_columns), order="F")
    for batch in batches:
        if len(buffer) < min(rows, batch.num_rows):
            buffer = np.empty((min(rows, batch.num_rows), schema.n_columns), order="F")
        for start in range(0, batch.num_rows, rows):
            yield encode_batch(batch.slice(start, rows), schema, plan, out=buffer)


def encode_batch(
    batch: pa.RecordBatch | pa.Table, schema: Schema, plan: BlockEncoder, *, out: Floats | None = None
) -> Floats:
    """Clamp and scale rows, not yet clipped in norm or rounded.

    Parameters
    ----------
    batch : pyarrow.RecordBatch or pyarrow.Table
        With the schema's columns, in any order; others are not looked at.
    schema, plan
        The columns, and the units to write them in.
    out : array of shape (at least rows, n_columns), optional
        Where to write, best in Fortran order; a part of it is returned.

    Returns
    -------
    array of float64, shape (rows kept, n_columns)
        Rows that ``missing="drop-row"`` leaves out are not in it: their number is sensitive.

    Raises
    ------
    DataError
        If a column is absent or of another type, or holds missing values or unknown levels without a rule for them.
    """
    arrays = _columns_of(batch, schema, list(schema.columns))
    keep = kept(schema.columns, arrays)
    if keep is not None:
        arrays = {name: array.filter(keep) for name, array in arrays.items()}
    rows = len(next(iter(arrays.values())))
    if out is None:
        out = np.empty((rows, schema.n_columns), order="F")
    block = out[:rows]
    with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, others are found below
        terms = _term_values(schema, arrays)
        for name, part in schema.parts.items():
            indices = schema.groups[name]
            place = slice(indices[0], indices[-1] + 1)
            if part is schema.columns.get(name):
                _write(block[:, place], name, schema.columns[name], arrays[name], plan, place)
            else:
                terms.write(block[:, place], name, part, plan.multiplier[place], plan.limits[place])
    if schema.intercept:
        block[:, -1] = plan.intercept
    if schema.weight is not None:
        plan.clip(block)
        np.multiply(block, _roots_of_weights(schema, arrays)[:, np.newaxis], out=block)
    return block


def _term_values(schema: Schema, arrays: Mapping[str, pa.Array]) -> TermValues:
    """Values of terms, from columns that are read when they are asked for."""
    columns = schema.columns

    def levels(name: str) -> Floats:
        column = cast(Categorical, columns[name])
        out = np.empty((len(arrays[name]), len(column.labels)), order="F")
        _write_levels(out, name, column, arrays[name], 1.0)
        return out

    return TermValues(columns, lambda name: _clipped(name, cast(Numeric, columns[name]), arrays[name]), levels)


def _clipped(name: str, column: Numeric | Boolean, array: pa.Array) -> Numbers:
    """A number within its bounds, in the user's units; the lower one where it is missing, and where it is."""
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
    """Weights as numbers; one below 0 is none, and counts as missing."""
    values = np.array(numbers_of(name, cast(Numeric, column), array), dtype=np.float64)
    values[values < 0] = np.nan
    return pa.array(values)


def complete_rows(batch: pa.RecordBatch, schema: Schema) -> pa.Array | None:
    """Which rows ``missing="drop-row"`` keeps; None for all."""
    columns = {name: column for name, column in schema.columns.items() if column.missing == "drop-row"}
    return kept(columns, _columns_of(batch, schema, list(columns)))


def _columns_of(batch: pa.RecordBatch | pa.Table, schema: Schema, names: Sequence[str]) -> dict[str, pa.Array]:
    """Some columns, each as one array; of weights, those that are none are missing."""
    arrays = {name: one_column(batch, name) for name in names}
    for name, array in arrays.items():
        check_indices(name, array)
    weight = schema.weight
    if weight is not None and weight in arrays:
        arrays[weight] = without_negative(weight, schema.columns[weight], arrays[weight])
    return arrays


def _roots_of_weights(schema: Schema, arrays: Mapping[str, pa.Array]) -> Floats:
    """√(w/w_max) of every row: at most 1, and rounded correctly by itself."""
    name = str(schema.weight)
    column = cast(Numeric, schema.columns[name])
    if column.missing == "error" and not np.isfinite(arrays[name].to_numpy(zero_copy_only=False)).all():
        raise DataError(
            f"Column {name!r} has weights that are negative, missing, NaN or infinite. "
            f"Declare missing={_RULES} for it in the schema, or repair the table."
        )
    return np.sqrt(_clipped(name, column, arrays[name]).values / column.upper)


def _write(out: Floats, name: str, column: Column, array: pa.Array, plan: BlockEncoder, place: slice) -> None:
    """Clip and scale one column into its place in the row."""
    centre, multiplier, limits = plan.centre[place], plan.multiplier[place], plan.limits[place]
    if isinstance(column, Categorical):
        _write_levels(out, name, column, array, float(limits[0]))
    elif isinstance(column, Vector):
        _write_vector(out, name, column, array, centre, multiplier, limits)
    else:
        _write_numbers(out[:, 0], name, column, array, float(centre[0]), float(multiplier[0]), float(limits[0]))


def _write_numbers(
    out: Floats, name: str, column: Numeric | Boolean, array: pa.Array, centre: float, multiplier: float, limit: float
) -> None:
    values = numbers_of(name, column, array)
    np.subtract(values, centre, out=out, dtype=np.float64)
    # A sum is finite only if every term is: one pass, and nothing is written. It may overflow, hence the second look.
    absent = None
    if not math.isfinite(np.add.reduce(out)):
        absent = ~np.isfinite(values)
        if column.missing == "error" and absent.any():
            raise _missing(name, _RULES)
    if isinstance(column, Boolean) and not pa.types.is_boolean(array.type):
        _check_zero_one(name, values, absent)
    np.multiply(out, multiplier, out=out)
    np.clip(out, -limit, limit, out=out)
    if absent is not None:
        out[absent] = 0.0 if column.missing == "indicator" else -limit


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
    """Entries of every row, shape (rows, size); NaN where one is missing."""
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
        raise DataError(f"Column {name!r} has vectors that do not have {column.size} entries, the declared size.")
    return numbers_of(name, column, pc.list_flatten(array)).reshape(-1, column.size)


def _check_zero_one(name: str, values: Rows, absent: NDArray[np.bool_] | None) -> None:
    """Numbers for true and false must be 1 and 0: with codes such as 1 and 2 the column would be constant."""
    fits = (values == 0) | (values == 1)
    if not (fits if absent is None else fits | absent).all():
        raise DataError(
            f"Column {name!r} is declared as boolean, but holds numbers other than 0 and 1. "
            "Declare it as categorical with its levels, or as a number with bounds."
        )


def numbers_of(name: str, column: Numeric | Boolean | Vector, array: pa.Array) -> Rows:
    """As a NumPy array, NaN where a value is missing; without a copy where that is possible."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if isinstance(column, Numeric) and column.origin is not None:
        return _days_of(name, column.origin, array)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        # By way of text, which is rounded correctly: Arrow's own cast depends on the scale, and where the scale was
        # inferred from a batch one row would change another's last digit.
        array = array.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        what = "true and false (or 1 and 0)" if isinstance(column, Boolean) else "numbers"
        raise DataTypeError(f"Column {name!r} must hold {what}, but its type is {kind}. {_cure(kind)}")
    return cast(Rows, array.to_numpy(zero_copy_only=False))


def _days_of(name: str, origin: str, array: pa.Array) -> Rows:
    if pa.types.is_null(array.type):
        array = array.cast(pa.date32())
    if not holds_dates(array.type):
        raise DataTypeError(
            f"Column {name!r} must hold dates or times, but its type is {array.type}. Cast it, or declare no origin."
        )
    return days_since(array, origin)


def _cure(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "Declare it as a date, with an origin that days are counted from."
    if _textual(kind):
        return "Cast it to a number, or declare it as categorical with its levels."
    return "Cast it to a number, or leave the column out of the schema."


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _missing(name: str, rules: str) -> DataError:
    return DataError(
        f"Column {name!r} has missing, NaN or infinite values. "
        f"Declare missing={rules} for it in the schema, or repair the table."
    )


def _write_levels(out: Floats, name: str, column: Categorical, array: pa.Array, entry: float) -> None:
    """One entry w in each row, at the value's level; none for an unknown value with ``unknown="zero"``."""
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
            f"Column {name!r} has values that are not among its levels. "
            'Add the levels, or declare unknown="other" or unknown="zero" for it in the schema.'
        )
    if column.unknown == "other":
        codes[strange] = other_at
    for level in range(out.shape[1]):
        np.copyto(out[:, level], codes == level)
    if entry != 1:
        np.multiply(out, entry, out=out)


def codes_of(name: str, column: Categorical, array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
    """Index of every row's level, -1 where there is none; and which rows are missing (None: no row).

    The code of a missing row means nothing.
    """
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    coded = pa.types.is_dictionary(array.type)
    values = array.dictionary if coded else array
    _check_level_type(name, column, values.type)
    if pa.types.is_null(values.type):
        values = values.cast(column.arrow_type)
    elif pa.types.is_uint64(values.type):  # what does not fit is no level; a cast would stop and quote it
        values = pc.if_else(pc.less(values, pa.scalar(2**63, pa.uint64())), values, None).cast(pa.int64())
    found = pc.index_in(values, value_set=pa.array(column.levels, type=column.arrow_type))
    codes = np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int32)
    if coded:  # only the dictionary is looked up; a missing row gets any code here, and its own later
        indices = pc.fill_null(array.indices, 0) if array.null_count else array.indices
        codes = np.append(codes, np.int32(-1))[indices.to_numpy(zero_copy_only=False)]
    absent = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return codes, absent


def _check_level_type(name: str, column: Categorical, kind: pa.DataType) -> None:
    """Levels are compared with values of their own type only: "1" is not 1, and 1 is not true."""
    checks = {str: _textual, int: pa.types.is_integer, bool: pa.types.is_boolean}
    wanted = type(column.levels[0])
    if checks[wanted](kind) or pa.types.is_null(kind):
        return
    words = {str: "strings", int: "integers", bool: "booleans"}
    raise DataTypeError(
        f"Column {name!r} has the type {kind}, but its levels are {words[wanted]}. "
        f"Cast the column to {words[wanted]}, or declare the levels in the column's type."
    )


def one_column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """A column as one plain array; dictionaries stay."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        what = "is not in the table" if not indices else "is in the table twice"
        raise DataError(f"Column {name!r} {what}. The table must have every column of the schema once.")
    array = batch.column(indices[0])
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of no or of too long chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return _without_views(array)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with text and bytes in the form that Arrow's functions know; the same batch where it has no views."""
    columns = batch.columns
    arrays = [_without_views(array) for array in columns]
    if all(array is before for array, before in zip(arrays, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _without_views(array: pa.Array) -> pa.Array:
    """Text in the form that Arrow's functions know: few of them know views."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array


def check_indices(name: str, array: pa.Array) -> None:
    """Indices beyond the dictionary would read foreign memory."""
    if not pa.types.is_dictionary(array.type):
        return
    try:
        array.validate(full=True)
    except pa.ArrowException:
        raise DataError(f"Column {name!r} has indices beyond its dictionary: the table is corrupt.") from None


def kept(columns: Mapping[str, Column], arrays: Mapping[str, pa.Array]) -> pa.Array | None:
    """Which rows ``missing="drop-row"`` keeps; None for all."""
    keep = None
    for name, column in columns.items():
        if column.missing != "drop-row":
            continue
        here = present(arrays[name])
        if here is not None:
            keep = here if keep is None else pc.and_(keep, here)
    return keep


def present(array: pa.Array) -> pa.Array | None:
    """Where a value is neither missing nor NaN nor infinite, and all entries of a vector are; None for everywhere."""
    if listed(array.type):
        return _present_vectors(array)
    if pa.types.is_dictionary(array.type) and (array.dictionary.null_count or _floating(array.type.value_type)):
        array = array.dictionary_decode()
    if _floating(array.type):
        finite = pc.fill_null(pc.is_finite(array.cast(pa.float64())), False)
        return None if pc.all(finite).as_py() is not False else finite
    return pc.is_valid(array) if array.null_count else None


def _present_vectors(array: pa.Array) -> pa.Array | None:
    """Where a vector is there, and each of its entries."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    entries = present(pc.list_flatten(array))
    complete = array.is_valid().to_numpy(zero_copy_only=False)
    if entries is not None:
        owners = np.repeat(np.arange(len(array)), lengths)
        complete[owners[~entries.to_numpy(zero_copy_only=False)]] = False
    return None if complete.all() else pa.array(complete)


def _floating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def listed(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))
