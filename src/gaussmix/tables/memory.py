"""Tables in memory: arrays, data frames, Arrow tables and readers.

A list, an array of objects or an object column has no type of its own. A library that guesses one looks at all of its
values, so that one row changes how the others are read: a single ``1`` among half-precision floats makes Arrow read
all of them as integers. Nothing is guessed here: each value is read by a rule that its declared type alone chooses.

>>> column_of([np.float16(0.5), 1, None, Decimal("0.25")], pa.float64(), name="x", where="the list").to_pylist()
[0.5, 1.0, None, 0.25]
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from numbers import Integral
from types import NoneType
from typing import Any, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from gaussmix.errors import DataError, DataTypeError
from gaussmix.tables.duckdb_tables import relation_of, relation_parts
from gaussmix.tables.reading import Request, check_columns, guarded, late, readable, running, sliced, twice, valid

__all__ = [
    "array_batches",
    "as_narwhals",
    "column_of",
    "frame_batches",
    "is_clustered",
    "is_dask_array",
    "is_dataset",
    "is_named_array",
    "is_spark",
    "lazy_batches",
    "named_arrays",
    "peeked_type",
    "reader_batches",
]


def as_narwhals(data: Any) -> Any:
    """As a narwhals frame, or the object itself."""
    try:
        return nw.from_native(data, pass_through=True)
    except ValueError:  # pandas allows a name twice, narwhals does not
        if hasattr(data, "columns") and len(set(data.columns)) < len(data.columns):
            raise twice(
                next(c for c in data.columns if list(data.columns).count(c) > 1), f"the {type(data).__name__}"
            ) from None
        raise


def is_clustered(data: Any) -> bool:
    """Whether the table is a Dask collection or a Spark data frame; imports neither."""
    dask = _package(data) in ("dask", "dask_expr") and hasattr(data, "to_delayed") and hasattr(data, "columns")
    return dask or is_dask_array(data) or is_spark(data)


def is_dask_array(data: Any) -> bool:
    """Whether the table is a Dask array with names."""
    return isinstance(data, tuple) and len(data) == 2 and _package(data[0]) == "dask"


def is_spark(data: Any) -> bool:
    """Whether the table is a Spark data frame."""
    return _package(data) == "pyspark" and hasattr(data, "mapInArrow")


def _package(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def is_dataset(data: Any) -> bool:
    """Whether it is a dataset of Arrow's. Its module loads pandas; who has a dataset has loaded it."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


def is_named_array(data: Any) -> bool:
    """Whether the source is an array with names."""
    return isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray)


def named_arrays(data: Any) -> dict[str, Any] | None:
    """Columns by name where the source is made of arrays."""
    if is_named_array(data):
        array, names = data[0], list(data[1])
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError("(array, names) must be a 2-D array and one name per column of it.")
        if len(set(names)) < len(names):
            raise twice(next(name for name in names if names.count(name) > 1), "the array")
        return {name: array[:, j] for j, name in enumerate(names)}
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise DataTypeError("A NumPy array has no column names. Pass (array, names), or a dictionary of arrays.")
        return {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        arrays = {name: _as_column(name, values) for name, values in data.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise DataError("The arrays of a dictionary must have one length.")
        return arrays
    return None


def _as_column(name: object, values: Any) -> Any:
    """A column with a type of its own, or a list of objects; NumPy would find one type for all that a list holds."""
    if isinstance(values, pa.Array | pa.ChunkedArray | list):
        return values
    series = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return series
    if hasattr(values, "__array__") or _has_buffer(values):
        values = np.asanyarray(values)  # a masked array keeps its mask
    elif isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    if not isinstance(values, np.ndarray) or values.ndim not in (1, 2):
        raise DataError(
            f"Column {name!r} of a dictionary must be a one-dimensional array, or two-dimensional for vectors."
        )
    return values


def _has_buffer(values: Any) -> bool:
    try:
        memoryview(values).release()
    except TypeError:
        return False
    return not isinstance(values, bytes | bytearray)


def array_batches(arrays: Mapping[str, Any], request: Request) -> Iterator[pa.RecordBatch]:
    """Columns cut into batches."""
    where = "the arrays"
    check_columns(list(arrays), request.columns, where)
    n = len(arrays[request.columns[0]])
    for start in range(0, n, request.rows):
        piece = slice(start, start + request.rows)
        found = [_column(arrays[name][piece], request.types.get(name), name, where) for name in request.columns]
        yield pa.RecordBatch.from_arrays(found, names=request.columns)


def _column(values: Any, kind: pa.DataType | None, name: str, where: str) -> pa.Array:
    """One column in its own type; objects, which have none, in the declared one."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        with readable(where):
            values.validate(full=True)
            if isinstance(values, pa.ChunkedArray):
                values = values.unify_dictionaries().combine_chunks()
            return values
    if isinstance(values, nw.Series):
        if not _holds_objects(values):
            return _column(_series_to_arrow(values, name, where), kind, name, where)
        values = _listed(values, name, where)
    elif isinstance(values, np.ndarray):
        if values.dtype.kind != "O":
            return _typed(values, name, where)
        values = list(values)
    return column_of(values, kind, name=name, where=where)


def _typed(values: np.ndarray[Any, Any], name: str, where: str) -> pa.Array:
    """An array with a type, in which no value depends on another."""
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            values = values.astype(np.float64)  # each to the nearest
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(_typed(values.reshape(-1), name, where), values.shape[1])
    try:
        return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))
    except (pa.ArrowException, TypeError, ValueError):
        raise _no_column(name, where) from None


def _no_column(name: str, where: str) -> DataTypeError:
    return DataTypeError(f"Column {name!r} of {where} cannot be read. Convert it to numbers, booleans or text.")


def _holds_objects(series: Any) -> bool:
    """Whether values of a column are Python objects: Arrow would guess one type for all of them."""
    if series.dtype == nw.Object:
        return True
    if not series.implementation.is_pandas_like():
        return False
    native = series.to_native()
    categories = getattr(native.dtype, "categories", None)
    values = native if categories is None else categories
    if isinstance(values.dtype, np.dtype):
        return values.dtype.kind == "O" or (values.dtype.kind == "f" and values.dtype.itemsize > 8)
    zoned = getattr(values.dtype, "tz", None) is not None  # times with a zone, which Arrow has too
    return not (zoned or hasattr(values.array, "__arrow_array__"))


def _listed(series: Any, name: str, where: str) -> list[Any]:
    """Values one by one; errors of others quote them."""
    try:
        return list(series.to_list())
    except Exception:
        raise _no_column(name, where) from None


def frame_batches(frame: Any, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    """An eager data frame, converted slice by slice: Arrow copies of columns would double the memory."""
    check_columns(frame.columns, request.columns, where)
    for start in range(0, len(frame), request.rows):
        piece = frame[start : start + request.rows]
        columns = [_column(piece[name], request.types.get(name), name, where) for name in request.columns]
        yield from sliced(pa.RecordBatch.from_arrays(columns, names=request.columns), request.rows)


def _series_to_arrow(series: Any, name: str, where: str) -> Any:
    try:
        return series.to_arrow()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _no_column(name, where) from None


def peeked_type(values: Any, name: str, where: str) -> pa.DataType:
    """Type of a column, for a template; of objects what Arrow would guess, which nothing is ever read as."""
    if isinstance(values, nw.Series) and not _holds_objects(values):
        return _series_to_arrow(values, name, where).type
    if isinstance(values, nw.Series):
        values = _listed(values, name, where)
    if not isinstance(values, list) and not (isinstance(values, np.ndarray) and values.dtype.kind == "O"):
        return _column(values, None, name, where).type
    try:
        return pa.array(list(values), from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataTypeError(f"Column {name!r} of {where} mixes types. Give it one type.") from None


def lazy_batches(frame: Any, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    """A lazy frame; the engine sees which columns are wanted."""
    check_columns(frame.collect_schema().names(), request.columns, where)
    if (relation := relation_of(nw.to_native(frame))) is not None:
        return (batch for _, batch in relation_parts(relation, request, where=where))
    wanted = frame.select(request.columns)
    native = nw.to_native(wanted)
    if frame.implementation.is_polars() and hasattr(native, "collect_batches"):
        pieces = (nw.from_native(piece) for piece in running(native.collect_batches(chunk_size=request.rows), where))
        return chain.from_iterable(frame_batches(piece, request, where) for piece in pieces)
    if hasattr(native, "__arrow_c_stream__"):
        return reader_batches(pa.RecordBatchReader.from_stream(native), request, where)
    if frame.implementation.is_dask():
        found = (nw.from_native(part) for part in running(late(lambda: _partitions(native)), where))
        return chain.from_iterable(frame_batches(part, request, where) for part in found)
    return frame_batches(wanted.collect("pyarrow"), request, where)


def _partitions(collection: Any) -> tuple[Any, ...]:
    """Partitions of a Dask frame, by one job; put together they would get one type, in Arrow guessed from all rows."""
    from dask.base import compute

    found: tuple[Any, ...] = compute(*collection.to_delayed())
    return found


def reader_batches(reader: pa.RecordBatchReader, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    """Batches as they come; Arrow's protocols and files vouch for nothing, so each is validated."""
    check_columns(reader.schema.names, request.columns, where)
    for batch in guarded(reader, where):
        yield from sliced(valid(batch.select(request.columns), where), request.rows)


_ABSENT = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy, which need not be imported
_LARGEST = sys.float_info.max


def column_of(values: Sequence[Any], kind: pa.DataType | None, *, name: str, where: str) -> pa.Array:
    """The values as an Arrow array of the declared type; a value that does not fit is an error, wherever it stands.

    Parameters
    ----------
    values : sequence of object
    kind : pyarrow.DataType or None
        float64, int64, bool, string or timestamp; None is an error.
    name, where : str
        Of the column and of its table, for messages.
    """
    if kind is None:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, whose type cannot be guessed without one row changing "
            "how others are read. Declare it in types, or convert the column to an array with a type."
        )
    if kind not in _RULES:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, which cannot be read as {kind}. "
            "Convert the column to an array with a type."
        )
    words, plain, rule = _RULES[kind]
    try:
        if not set(map(type, values)) <= plain:  # those of ``plain`` come back from the rule as they are
            with np.errstate(over="ignore"):
                values = [None if _is_absent(value) else rule(value) for value in values]
        return pa.array(values, type=kind, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects that are not {words}. "
            "Convert them first, or declare the column as what it holds."
        ) from None


def _is_absent(value: Any) -> bool:
    """None, NaN of any type, pandas' NA and NaT, NumPy's masked and NaT."""
    if value is None or type(value).__name__ in _ABSENT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(value != value)


def _number(value: Any) -> float:
    """The nearest float64. What is finite stays finite: it is clipped later, and not missing."""
    if isinstance(value, bool | np.bool_ | float | np.floating):
        return float(value)
    if not isinstance(value, Integral | Fraction | Decimal):
        raise TypeError
    if isinstance(value, Decimal) and not value.is_finite():
        return float(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if cast(Any, value) > 0 else -math.inf
    return min(max(number, -_LARGEST), _LARGEST)


def _truth(value: Any) -> bool | None:
    """True and false, or the numbers 1 and 0; infinite is missing, as in a column of floats."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = _number(value)
    if math.isinf(number):
        return None
    if number not in (0.0, 1.0) or number != value:
        raise ValueError
    return number == 1.0


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)


def _instant(value: Any) -> datetime.datetime:
    """A date or a time; with a zone, in UTC. Finer parts than microseconds are left out."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.datetime):
        plain = datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, value.second)
        plain = plain.replace(microsecond=value.microsecond, tzinfo=value.tzinfo, fold=value.fold)
        return plain if plain.tzinfo is None else plain.astimezone(datetime.UTC).replace(tzinfo=None)
    if not isinstance(value, datetime.date):
        raise TypeError
    return datetime.datetime(value.year, value.month, value.day)


_RULES: dict[pa.DataType, tuple[str, set[type], Callable[[Any], Any]]] = {
    pa.float64(): ("numbers", {float, NoneType}, _number),
    pa.bool_(): ("true and false (or 1 and 0)", {bool, NoneType}, _truth),
    pa.int64(): ("integers of 64 bits", {int, NoneType}, _integer),
    pa.string(): ("text", {str, NoneType}, _text),
    pa.timestamp("us"): ("dates or times", {NoneType}, _instant),
}
