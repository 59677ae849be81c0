"""Tables behind objects: arrays, data frames, Arrow tables and readers, Delta Lake and Iceberg tables, lazy frames.

A list, an array of objects or an object column has no type. A library that infers one looks at all values, so one row
changes how the others are read: a single ``1`` among half-precision floats makes Arrow read all of them as integers.
Nothing is inferred here: each value is converted by the rule of the declared type.

>>> column_of([np.float16(0.5), 1, None, Decimal("0.25")], pa.float64(), name="x", where="the list").to_pylist()
[0.5, 1.0, None, 0.25]

pandas, polars, deltalake, pyiceberg and Arrow's datasets are not imported here.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Any, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from gaussmix.data.readers import local_path, refuse_lakehouse
from gaussmix.data.source import (
    READAHEAD,
    FileOrigin,
    ReadOptions,
    Request,
    Table,
    check_columns,
    duplicate_column,
    guarded,
    readable,
    running,
    sliced,
    valid,
)
from gaussmix.errors import ArgumentError, DataError, DataTypeError

_PEEK_ROWS = 1000  # rows from which Arrow tells the types of Python objects, for a template


# ---------------------------------------------------------------------------------------------------------------
# Arrays
class ArrayTable(Table):
    """(2-D array, names), a structured array, or a dictionary of arrays, lists and series."""

    def columns(self) -> dict[str, Any]:
        """Return the columns by name."""
        data = self._data
        if isinstance(data, Mapping):
            arrays = {name: _as_column(name, values) for name, values in data.items()}
            if len({len(array) for array in arrays.values()}) > 1:
                raise DataError("The arrays of a dictionary must have the same length.")
            return arrays
        if isinstance(data, np.ndarray):
            if data.dtype.names is None:
                raise DataTypeError(
                    "A NumPy array must come with column names. Pass (array, names) or a dictionary of arrays."
                )
            return {name: data[name] for name in data.dtype.names}
        array, names = data[0], list(data[1])
        if array.ndim != 2 or array.shape[1] != len(names):
            raise not_one_name_per_column(array, names)
        check_columns(names, names, "the array")
        return {name: array[:, j] for j, name in enumerate(names)}

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield slices of the columns."""
        where, arrays = "the arrays", self.columns()
        check_columns(list(arrays), request.columns, where)
        n = len(arrays[request.columns[0]])
        for start in range(0, n, request.rows):
            piece = slice(start, start + request.rows)
            found = [_column(arrays[name][piece], request.types.get(name), name, where) for name in request.columns]
            yield pa.RecordBatch.from_arrays(found, names=request.columns)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns. Types of Python objects are inferred by Arrow."""
        found = self.columns().items()
        return pa.schema([(name, _peeked_type(array[:_PEEK_ROWS], name, self.label)) for name, array in found])

    @property
    def n_rows(self) -> int | None:
        """Length of the first column that has a length. **Sensitive**."""
        return next((len(values) for values in self.origins if hasattr(values, "__len__")), None)

    @property
    def origins(self) -> tuple[Any, ...]:
        """The arrays."""
        data = self._data
        return tuple(data.values()) if isinstance(data, Mapping) else (data[0] if isinstance(data, tuple) else data,)

    def identity(self, *, streamed: bool) -> tuple[Any, ...]:
        """Return the dictionary, since two may share columns, or the array itself.

        A generator may fill one array again for each pair (array, names) that it yields: then it is the pair.
        """
        return self.origins if isinstance(self._data, tuple) and not streamed else (self._data,)


def not_one_name_per_column(array: Any, names: Sequence[object]) -> DataError:
    """Return the error for an array whose columns do not match its names."""
    found = f"{array.shape[1]} columns" if array.ndim == 2 else f"{array.ndim} dimension(s)"
    return DataError(
        "In (array, names), array must be two-dimensional, with one name per column, "
        f"got {found} and {len(names)} name(s)."
    )


def _as_column(name: object, values: Any) -> Any:
    """Return a typed column, or a list of objects, for which NumPy would infer a common type."""
    if isinstance(values, pa.Array | pa.ChunkedArray | list):
        return values
    series = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return series
    has_buffer = hasattr(values, "__array__")
    with suppress(TypeError, ValueError):  # NumPy's dates have no buffer
        memoryview(values).release()
        has_buffer = not isinstance(values, bytes | bytearray)
    if has_buffer:
        values = np.asanyarray(values)  # a masked array keeps its mask
    elif isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    if not isinstance(values, np.ndarray) or values.ndim not in (1, 2):
        found = f"{values.ndim} dimensions" if isinstance(values, np.ndarray) else type(values).__name__
        raise DataError(
            f"Column {name!r} of a dictionary must be a one-dimensional array, or two-dimensional for vectors, "
            f"got {found}."
        )
    return values


# ---------------------------------------------------------------------------------------------------------------
# Arrow
class ArrowTable(Table):
    """A pyarrow Table or RecordBatch."""

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield slices of the table."""
        data = self._data
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        check_columns(table.schema.names, request.columns, self.label)
        chunks = table.select(request.columns).to_batches(max_chunksize=request.rows)
        return (valid(batch, self.label) for batch in chunks)

    def arrow_schema(self) -> pa.Schema:
        """Return its schema."""
        return self._data.schema

    @property
    def n_rows(self) -> int | None:
        """Number of rows. **Sensitive**."""
        return int(self._data.num_rows)


class DatasetTable(Table):
    """An Arrow dataset, whose rows have no fixed order."""

    ordered = False

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self.paths = tuple(name for name in getattr(data, "files", ()) if Path(name).exists())
        refuse_lakehouse([Path(path) for path in self.paths])

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of a scanner."""
        where = self.label
        check_columns(self._data.schema.names, request.columns, where)
        scanner = self._data.scanner(
            columns=request.columns, batch_size=request.rows, batch_readahead=READAHEAD, fragment_readahead=1
        )
        return (valid(batch, where) for batch in guarded(scanner.to_batches(), where))

    def arrow_schema(self) -> pa.Schema:
        """Return its schema."""
        return self._data.schema

    @property
    def origins(self) -> tuple[Any, ...]:
        """The local files, if the dataset contains all of their rows; otherwise the dataset."""
        if getattr(self._data, "_scan_options", None) or not self.paths:
            return (self._data,)
        return tuple(FileOrigin(Path(name)) for name in self.paths)


class DeltaLakeTable(DatasetTable):
    """A ``deltalake.DeltaTable``, read in the version that it has when it is opened."""

    def __init__(self, data: Any, options: ReadOptions) -> None:
        try:
            dataset = data.to_pyarrow_dataset()
        except Exception:  # tables with deletion vectors or mapped columns; its message may quote partition values
            raise DataError(
                "This version of deltalake cannot read the Delta Lake table. Pass a Spark data frame, or write its "
                "current rows to Parquet files."
            ) from None
        Table.__init__(self, dataset, options)
        self.label, self._folder = "the Delta Lake table", local_path(data.table_uri)
        self.paths = (self._folder,)

    @property
    def origins(self) -> tuple[Any, ...]:
        """The directory: any two versions share rows."""
        return (FileOrigin(self._folder),)


class IcebergTable(Table):
    """A pyiceberg ``Table`` or ``DataScan``, read in the snapshot that is current when it is opened."""

    ordered = False

    def __init__(self, data: Any, options: ReadOptions) -> None:
        scan = data if hasattr(data, "row_filter") else data.scan()
        if scan.limit is not None:
            raise ArgumentError(
                "A scan with a limit may return different rows each time it is read. Write its rows to a file, or "
                "remove the limit."
            )
        snapshot = scan.snapshot()
        super().__init__(scan if snapshot is None else scan.update(snapshot_id=snapshot.snapshot_id), options)
        self.label, self._folder = "the Iceberg table", local_path(scan.table_metadata.location)
        self.paths = (self._folder,)

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of the scan."""
        names = [field.name for field in self._data.projection().fields]
        check_columns(names, request.columns, self.label)
        found = running(self._data.select(*request.columns).to_arrow_batch_reader, self.label)
        for batch in found:
            yield from sliced(valid(batch.select(request.columns), self.label), request.rows)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns."""
        return self._data.projection().as_arrow()

    @property
    def origins(self) -> tuple[Any, ...]:
        """The directory: any two snapshots share rows."""
        return (FileOrigin(self._folder),)


class StreamTable(Table):
    """A RecordBatchReader, or an object with ``__arrow_c_stream__``, which may be readable only once."""

    ordered, computed = False, True

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self.reuses_buffers = isinstance(data, pa.RecordBatchReader)
        self.single_use = f"The {type(data).__name__}"

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the stream."""
        data = self._data
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        return _reader_batches(reader, request, self.label)

    def arrow_schema(self) -> pa.Schema:
        """Return the schema, if it is known before the stream is started."""
        if isinstance(self._data, pa.RecordBatchReader):
            return self._data.schema
        if hasattr(self._data, "__arrow_c_schema__"):
            return pa.schema(self._data)
        return super().arrow_schema()


def _reader_batches(reader: pa.RecordBatchReader, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    """Yield validated batches: Arrow's protocols do not guarantee valid buffers."""
    check_columns(reader.schema.names, request.columns, where)
    for batch in guarded(reader, where):
        yield from sliced(valid(batch.select(request.columns), where), request.rows)


# ---------------------------------------------------------------------------------------------------------------
# Data frames
class FrameTable(Table):
    """An eager data frame of any library that narwhals supports, such as pandas and polars."""

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield slices, each converted separately so that the table is not copied as a whole."""
        return _frame_batches(as_narwhals(self._data), request, self.label)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns. Types of Python objects are inferred by Arrow."""
        return _frame_schema(as_narwhals(self._data).head(_PEEK_ROWS), self.label)

    @property
    def n_rows(self) -> int | None:
        """Number of rows. **Sensitive**."""
        return int(as_narwhals(self._data).shape[0])


class LazyTable(Table):
    """A lazy frame of any library that narwhals supports. Only the requested columns are computed."""

    ordered, computed = False, True

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the result of the engine, in batches if it supports them."""
        where, frame = self.label, as_narwhals(self._data)
        check_columns(frame.collect_schema().names(), request.columns, where)
        wanted = frame.select(request.columns)
        native = nw.to_native(wanted)
        if frame.implementation.is_polars() and hasattr(native, "collect_batches"):
            found = running(lambda: native.collect_batches(chunk_size=request.rows), where)
            return chain.from_iterable(_frame_batches(nw.from_native(piece), request, where) for piece in found)
        if hasattr(native, "__arrow_c_stream__"):
            return _reader_batches(pa.RecordBatchReader.from_stream(native), request, where)
        return _frame_batches(wanted.collect("pyarrow"), request, where)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns, without computing rows."""
        return _frame_schema(as_narwhals(self._data).head(0).collect(), self.label)


def as_narwhals(data: Any) -> Any:
    """Return a narwhals frame, or the object itself."""
    try:
        return nw.from_native(data, pass_through=True)
    except ValueError:  # pandas allows a name twice, narwhals does not
        if hasattr(data, "columns") and len(set(data.columns)) < len(data.columns):
            raise duplicate_column(
                next(c for c in data.columns if list(data.columns).count(c) > 1), f"the {type(data).__name__}"
            ) from None
        raise


def _frame_schema(frame: Any, where: str) -> pa.Schema:
    return pa.schema([(name, _peeked_type(frame[name], name, where)) for name in frame.columns])


def _frame_batches(frame: Any, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    check_columns(frame.columns, request.columns, where)
    for start in range(0, len(frame), request.rows):
        piece = frame[start : start + request.rows]
        columns = [_column(piece[name], request.types.get(name), name, where) for name in request.columns]
        yield from sliced(pa.RecordBatch.from_arrays(columns, names=request.columns), request.rows)


# ---------------------------------------------------------------------------------------------------------------
# Columns
def _column(values: Any, kind: pa.DataType | None, name: str, where: str) -> pa.Array:
    """Return one column in its own type; a column of Python objects in the declared type."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        with readable(where):
            values.validate(full=True)
            if isinstance(values, pa.ChunkedArray):
                values = values.unify_dictionaries().combine_chunks()
            return values
    if isinstance(values, nw.Series):
        if not _holds_objects(values):
            return _column(_converted(values.to_arrow, name, where), kind, name, where)
        values = list(_converted(values.to_list, name, where))
    elif isinstance(values, np.ndarray):
        if values.dtype.kind != "O":
            return _typed(values, name, where)
        values = list(values)
    return column_of(values, kind, name=name, where=where)


def _typed(values: np.ndarray[Any, Any], name: str, where: str) -> pa.Array:
    """Return an array in its own type, in which no value depends on another."""
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
    """Return whether a column holds Python objects, for which Arrow would infer a common type."""
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


def _converted(convert: Callable[[], Any], name: str, where: str) -> Any:
    """Convert by another library, and replace its errors, which quote values."""
    try:
        return convert()
    except Exception:
        raise _no_column(name, where) from None


def _peeked_type(values: Any, name: str, where: str) -> pa.DataType:
    """Return the type of a column for a template; for Python objects, the type that Arrow infers."""
    if isinstance(values, nw.Series) and not _holds_objects(values):
        return _converted(values.to_arrow, name, where).type
    if isinstance(values, nw.Series):
        values = list(_converted(values.to_list, name, where))
    if not isinstance(values, list) and not (isinstance(values, np.ndarray) and values.dtype.kind == "O"):
        return _column(values, None, name, where).type
    try:
        return pa.array(list(values), from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataTypeError(
            f"Column {name!r} of {where} contains values of different types. Convert them to one type."
        ) from None


# ---------------------------------------------------------------------------------------------------------------
# Columns of Python objects
_ABSENT = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy, which need not be imported
_LARGEST = sys.float_info.max


def column_of(values: Sequence[Any], kind: pa.DataType | None, *, name: str, where: str) -> pa.Array:
    """Return values as an Arrow array of the declared type: float64, int64, bool, string or timestamp.

    A value that does not fit is an error, wherever it stands; so is no declared type.
    """
    if kind is None:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, which have no common type. Declare it in types, or "
            "convert the column to a typed array."
        )
    if kind not in _RULES:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, which cannot be read as {kind}. "
            "Convert the column to a typed array."
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
            "Convert them first, or correct the declared type."
        ) from None


def _is_absent(value: Any) -> bool:
    """Return whether a value is None, NaN of any type, NA, NaT or masked."""
    if value is None or type(value).__name__ in _ABSENT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(value != value)


def _number(value: Any) -> float:
    """Return the nearest float64. Finite values stay finite, so that they are clamped later and not missing."""
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
    """Return true or false, also from 1 and 0. Infinite values are missing, as in a column of floats."""
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
    """Return a date or time in UTC, truncated to microseconds."""
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
