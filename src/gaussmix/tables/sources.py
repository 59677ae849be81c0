"""Batches of rows from anything that holds a table: arrays, data frames, Arrow, Parquet, CSV, DuckDB.

Only the columns asked for are read, one bounded batch after the other, so memory does not grow with the table. Files
are read in sorted order. Errors name the file and the column, never a value.

>>> import numpy as np
>>> [batch.num_rows for batch in batches((np.zeros((5, 2)), ["a", "b"]), ["b"], batch_rows=3)]
[3, 2]

pandas, polars and duckdb are not imported here: their tables are recognised when they come.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gaussmix._validation import positive_integer

__all__ = ["BATCH_ROWS", "DuckDBQuery", "batches", "known_rows", "source_schema", "with_progress"]

BATCH_ROWS = 2**16
"""Rows of a batch: 11 MB for 22 columns, several blocks for every thread."""

_READAHEAD = 3  # batches that are decoded in the background
_SMALL_ROW_GROUP = 64 * 2**20  # bytes
_PARQUET_BUFFER = 2**18  # bytes of a column that are read at a time
_CSV_BLOCK = 4 * 2**20  # bytes
_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2", ".csv.zst", ".tsv.zst")
_PEEK_ROWS = 1000  # rows of a data frame in memory from which Arrow tells the types of Python objects
_KINDS_OF_DATA = (
    "a NumPy array with names, a dictionary of arrays, a pandas or polars data frame, "
    "an Arrow table, dataset or reader, an iterable of these, a path of Parquet or CSV files, "
    "a DuckDB relation or a DuckDBQuery"
)


@dataclass(frozen=True)
class DuckDBQuery:
    """A SQL query on a DuckDB file, which is opened read-only. ``("file.duckdb", "SELECT ...")`` means the same."""

    path: str | os.PathLike[str]
    sql: str


def batches(
    data: Any,
    columns: Sequence[str],
    *,
    batch_rows: int = BATCH_ROWS,
    types: Mapping[str, pa.DataType] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in bounded batches.

    Parameters
    ----------
    data : table
        A 2-D NumPy array with its column names ``(array, names)``, a structured array, a dictionary of arrays;
        pandas, polars (eager or lazy) and whatever else narwhals knows; a pyarrow Table, RecordBatch,
        RecordBatchReader, Dataset, or any object with ``__arrow_c_stream__``; an iterable of any of these; a path
        of a Parquet or CSV file, a directory or a glob; a DuckDB relation, `DuckDBQuery` or (path, SQL).
    columns : sequence of str
        Columns to read, in the order in which they come back. No other column is read.
    batch_rows : int
        Most rows of a batch.
    types : mapping of str to pyarrow.DataType, optional
        Types of columns in CSV files (`Schema.text_types`). Without it they are guessed from the first
        block of the file.

    Yields
    ------
    pyarrow.RecordBatch

    Raises
    ------
    ValueError, TypeError
        If a column is absent, occurs twice or changes its type, if a file is unreadable, if there are no rows. For
        the curator, as in `Schema.encode`.
    """
    names = list(columns)
    if not names or len(set(names)) < len(names):
        raise ValueError("columns must name at least one column, and each column once.")
    positive_integer(batch_rows=batch_rows)
    request = _Request(names, batch_rows, dict(types or {}))
    return _checked(_parts(data, request), request)


def source_schema(data: Any) -> pa.Schema:
    """Names and Arrow types of the columns, without reading rows (CSV: the first block, for the types).

    Parameters
    ----------
    data : table
        As for `batches`, except iterables, which can be read only once.
    """
    found = _schema_of(data)
    twice = [name for name in found.names if found.names.count(name) > 1]
    if twice:
        raise _twice(twice[0], _label(data))
    return found


def known_rows(data: Any) -> int | None:
    """Rows where they are known without reading them, for a progress bar. **Sensitive**; None: not known."""
    try:
        if _is_path(data):
            files = _files(data)
            if all(_suffix(file) in _PARQUET for file in files):
                return sum(int(pa.parquet.read_metadata(file).num_rows) for file in files)
        elif isinstance(data, pa.Table | pa.RecordBatch):
            return int(data.num_rows)
        elif _is_named_array(data):
            return len(data[0])
        elif isinstance(data, np.ndarray):
            return len(data)
        elif isinstance(frame := _narwhals(data), nw.DataFrame):
            return int(frame.shape[0])
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return None  # the error comes, with its words, when the rows are read
    return None


# ---------------------------------------------------------------------------------------------------------------
# Which source it is
@dataclass(frozen=True)
class _Request:
    columns: list[str]
    rows: int
    types: dict[str, pa.DataType]
    seen: dict[tuple[int, int], str] = field(default_factory=dict)  # files by device and inode
    opened: list[str] = field(default_factory=list)


_Part = tuple[str, pa.RecordBatch]  # where it is from, for messages


def _parts(data: Any, request: _Request) -> Iterator[_Part]:
    """Batches with exactly the columns asked for, of any length up to ``request.rows``."""
    if _is_path(data):
        return chain.from_iterable(_file_parts(file, request) for file in _files(data))
    if (query := _query(data)) is not None:
        return _query_parts(query, request)
    if (relation := _relation(data)) is not None:
        return _relation_parts(relation, request, where=_label(data))
    return ((_label(data), batch) for batch in _memory_batches(data, request))


def _memory_batches(data: Any, request: _Request) -> Iterator[pa.RecordBatch]:
    where, columns, rows = _label(data), request.columns, request.rows
    if (arrays := _named_arrays(data)) is not None:
        return _array_batches(arrays, request)
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        _check_columns(table.schema.names, columns, where)
        return iter(table.select(columns).to_batches(max_chunksize=rows))
    if isinstance(data, pa.dataset.Dataset):
        _check_columns(data.schema.names, columns, where)
        scanner = data.scanner(columns=columns, batch_size=rows, batch_readahead=_READAHEAD, fragment_readahead=1)
        return _guarded(scanner.to_batches(), where)
    if isinstance(data, pa.RecordBatchReader):
        return _reader_batches(data, request, where)
    frame = _narwhals(data)
    if isinstance(frame, nw.DataFrame):
        return _frame_batches(frame, request, where)
    if isinstance(frame, nw.LazyFrame):
        return _lazy_batches(frame, request, where)
    if hasattr(data, "__arrow_c_stream__"):
        return _reader_batches(pa.RecordBatchReader.from_stream(data), request, where)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping | np.ndarray):
        if isinstance(data, list | tuple) and len({id(item) for item in data}) < len(data):
            raise ValueError("A table is in the list twice: its rows would be counted twice. Name every table once.")
        return chain.from_iterable((batch for _, batch in _parts(item, request)) for item in data)
    raise TypeError(f"data must be {_KINDS_OF_DATA}; got {type(data).__name__}.")


def _schema_of(data: Any) -> pa.Schema:
    where = _label(data)
    if _is_path(data):
        return _file_schema(_files(data)[0])
    if (query := _query(data)) is not None:
        with _connection(query) as connection, _readable(str(query.path)):
            return connection.sql(query.sql).limit(0).to_arrow_table().schema
    if (relation := _relation(data)) is not None:
        return relation.limit(0).to_arrow_table().schema
    if (arrays := _named_arrays(data)) is not None:
        return pa.schema([(name, _arrow(array[:_PEEK_ROWS], name, where).type) for name, array in arrays.items()])
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader | pa.dataset.Dataset):
        return data.schema
    frame = _narwhals(data)
    if isinstance(frame, nw.DataFrame):
        return _arrow_table(frame.head(_PEEK_ROWS), frame.columns, where).schema
    if isinstance(frame, nw.LazyFrame):
        return _arrow_table(frame.head(0).collect(), frame.collect_schema().names(), where).schema
    if hasattr(data, "__arrow_c_schema__"):
        return pa.schema(data)
    raise TypeError(
        f"The columns of {type(data).__name__} cannot be known without reading rows. Pass one of its tables, or a file."
    )


def _label(data: Any) -> str:
    """What messages call the source."""
    if _is_path(data):
        return str(os.fspath(data))
    query = _query(data)
    return str(query.path) if query is not None else f"the {type(data).__name__}"


def _is_path(data: Any) -> bool:
    return isinstance(data, str | os.PathLike)


def _query(data: Any) -> DuckDBQuery | None:
    if isinstance(data, DuckDBQuery):
        return data
    if isinstance(data, tuple) and len(data) == 2 and _is_path(data[0]) and isinstance(data[1], str):
        path, sql = data
        if _suffix(path) in (".duckdb", ".ddb", ".db") or re.match(r"\s*(select|from|with)\b", sql, re.IGNORECASE):
            return DuckDBQuery(path, sql)
    return None


def _relation(data: Any) -> Any | None:
    kind = type(data)
    return data if kind.__name__ == "DuckDBPyRelation" and "duckdb" in kind.__module__ else None


def _narwhals(data: Any) -> Any:
    """As a narwhals frame, or the object itself."""
    try:
        return nw.from_native(data, pass_through=True)
    except ValueError:  # pandas allows a name twice, narwhals does not
        if hasattr(data, "columns") and len(set(data.columns)) < len(data.columns):
            raise _twice(next(c for c in data.columns if list(data.columns).count(c) > 1), _label(data)) from None
        raise


def _is_named_array(data: Any) -> bool:
    return isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray)


def _named_arrays(data: Any) -> dict[str, Any] | None:
    """Columns by name where the source is made of arrays."""
    if _is_named_array(data):
        array, names = data[0], list(data[1])
        if array.ndim != 2 or array.shape[1] != len(names):
            raise ValueError("(array, names) must be a 2-D array and one name per column of it.")
        if len(set(names)) < len(names):
            raise _twice(next(name for name in names if names.count(name) > 1), "the array")
        return {name: array[:, j] for j, name in enumerate(names)}
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise TypeError("A NumPy array has no column names. Pass (array, names), or a dictionary of arrays.")
        return {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        arrays = {name: _one_dimensional(name, values) for name, values in data.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise ValueError("The arrays of a dictionary must have one length.")
        return arrays
    return None


def _one_dimensional(name: object, values: Any) -> Any:
    array = values if isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray | list) else np.asarray(values)
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise ValueError(f"Column {name!r} of a dictionary must be a one-dimensional array.")
    return array


# ---------------------------------------------------------------------------------------------------------------
# Checks that hold for every source
def _checked(parts: Iterator[_Part], request: _Request) -> Iterator[pa.RecordBatch]:
    """Pass the batches on; a column may not change its kind on the way, and there must be a row."""
    kinds: dict[str, str] = {}
    last_schema: pa.Schema | None = None
    any_row = False
    for where, batch in parts:
        if not batch.num_rows:
            continue
        if last_schema is None or not batch.schema.equals(last_schema):
            last_schema = batch.schema
            for field in batch.schema:
                kind = _kind(field.type)
                before = kinds.setdefault(field.name, kind)
                if before == "nothing":
                    kinds[field.name] = kind
                elif kind not in (before, "nothing"):
                    raise TypeError(
                        f"Column {field.name!r} changes its type from {before} to {kind} in {where}. "
                        "Give it one type in all parts of the table."
                    )
        any_row = True
        yield batch
    if not any_row:
        raise ValueError("The table has no rows. Check the path, the query or the filter that made it.")


def _kind(kind: pa.DataType) -> str:
    """What may not change between the parts of a table: integers may become floats, numbers not text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return "nothing"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return str(kind)


def _check_columns(found: Sequence[str], columns: Sequence[str], where: str) -> None:
    for name in columns:
        count = list(found).count(name)
        if count > 1:
            raise _twice(name, where)
        if not count:
            raise ValueError(f"Column {name!r} is not in {where}. Correct the name in the schema, or add the column.")


def _twice(name: str, where: str) -> ValueError:
    return ValueError(f"Column {name!r} occurs twice in {where}. Rename one of them.")


def _unreadable(where: str) -> ValueError:
    return ValueError(f"{where} cannot be read: it is truncated, corrupt or of another format. Write it again.")


def _bad_name(where: str) -> ValueError:
    return ValueError(f"{where} has a column name that is not valid UTF-8. Rename the column.")


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Errors of a reader in our words: the reader's own may quote values."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except UnicodeDecodeError:
        raise _bad_name(where) from None
    except (pa.ArrowException, OSError):
        raise _unreadable(where) from None


def _guarded(found: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    with _readable(where):
        yield from found


def _running(found: Iterable[Any], where: str) -> Iterator[Any]:
    """What an engine computes; its errors may quote values."""
    try:
        yield from found
    except Exception:
        raise ValueError(f"{where} failed while it ran. Run it on its own for the details.") from None


def _late(reader: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Start an engine only when its errors are caught."""
    yield from reader()


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


# ---------------------------------------------------------------------------------------------------------------
# In memory
def _array_batches(arrays: Mapping[str, Any], request: _Request) -> Iterator[pa.RecordBatch]:
    where = "the arrays"
    _check_columns(list(arrays), request.columns, where)
    n = len(arrays[request.columns[0]])
    for start in range(0, n, request.rows):
        piece = slice(start, start + request.rows)
        found = [_arrow(arrays[name][piece], name, where) for name in request.columns]
        yield pa.RecordBatch.from_arrays(found, names=request.columns)


def _arrow(values: Any, name: str, where: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], type=values.type)
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise TypeError(f"Column {name!r} of {where} mixes types. Give it one type.") from None


def _frame_batches(frame: Any, request: _Request, where: str) -> Iterator[pa.RecordBatch]:
    """An eager data frame, converted slice by slice: Arrow copies of columns would double the memory."""
    _check_columns(frame.columns, request.columns, where)
    for start in range(0, len(frame), request.rows):
        piece = frame[start : start + request.rows].select(request.columns)
        yield from _arrow_table(piece, request.columns, where).combine_chunks().to_batches(max_chunksize=request.rows)


def _arrow_table(frame: Any, columns: Sequence[str], where: str) -> pa.Table:
    try:
        return frame.to_arrow().select(list(columns))  # without a pandas index
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for name in columns:
            try:
                frame.select([name]).to_arrow()
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise TypeError(f"Column {name!r} of {where} mixes types. Give it one type.") from None
        raise TypeError(f"{where} cannot be read as a table. Give every column one type.") from None


def _lazy_batches(frame: Any, request: _Request, where: str) -> Iterator[pa.RecordBatch]:
    """A lazy frame; the engine sees which columns are wanted."""
    _check_columns(frame.collect_schema().names(), request.columns, where)
    wanted = frame.select(request.columns)
    native = nw.to_native(wanted)
    if (relation := _relation(native)) is not None:
        return (batch for _, batch in _relation_parts(relation, request, where=where))
    if frame.implementation.is_polars() and hasattr(native, "collect_batches"):
        pieces = (nw.from_native(piece) for piece in _running(native.collect_batches(chunk_size=request.rows), where))
        return chain.from_iterable(_frame_batches(piece, request, where) for piece in pieces)
    if hasattr(native, "__arrow_c_stream__"):
        return _reader_batches(pa.RecordBatchReader.from_stream(native), request, where)
    return _frame_batches(wanted.collect("pyarrow"), request, where)


def _reader_batches(reader: pa.RecordBatchReader, request: _Request, where: str) -> Iterator[pa.RecordBatch]:
    _check_columns(reader.schema.names, request.columns, where)
    for batch in _guarded(reader, where):
        yield from _sliced(batch.select(request.columns), request.rows)


# ---------------------------------------------------------------------------------------------------------------
# Files
def _suffix(path: Any) -> str:
    name = Path(os.fspath(path)).name.lower()
    return next((suffix for suffix in (*_PARQUET, *_CSV) if name.endswith(suffix)), Path(name).suffix)


def _files(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a directory or a pattern means, sorted."""
    whole = Path(os.fspath(path))
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        inside = (Path(folder) / name for folder, _, names in os.walk(whole) for name in names)
        found = [file for file in inside if not any(p[0] in "._" for p in file.relative_to(whole).parts)]
        found = sorted(file for file in found if _suffix(file) in (*_PARQUET, *_CSV))
        if not found:
            raise ValueError(f"The directory {str(path)!r} holds no Parquet or CSV file.")
        return found
    if glob.has_magic(str(path)):
        found = sorted({Path(file) for file in glob.glob(str(path), recursive=True) if Path(file).is_file()})
        if not found:
            raise ValueError(f"No file matches {str(path)!r}.")
        return found
    raise FileNotFoundError(f"There is no file {str(path)!r}.")


def _is_parquet(file: Path) -> bool:
    suffix = _suffix(file)
    if suffix not in (*_PARQUET, *_CSV):
        raise ValueError(f"{file} must end in one of {', '.join((*_PARQUET, *_CSV[:2]))} (CSV also compressed).")
    if not file.stat().st_size:
        raise ValueError(f"{file} is empty. Write it again, or leave it out.")
    return suffix in _PARQUET


def _file_schema(file: Path) -> pa.Schema:
    where = str(file)
    with _readable(where):
        if _is_parquet(file):
            found = pa.parquet.read_schema(file)
        else:
            with _open_csv(file, pa.csv.ConvertOptions()) as reader:
                found = reader.schema
        found.names  # noqa: B018  # decodes the names
        return found


def _file_parts(file: Path, request: _Request) -> Iterator[_Part]:
    _check_new(file, request)
    found = _parquet_batches(file, request) if _is_parquet(file) else _csv_batches(file, request)
    return ((str(file), batch) for batch in found)


def _check_new(file: Path, request: _Request) -> None:
    """Refuse a file that was read before, under whatever name: its rows would be protected half as well."""
    status = file.stat()
    before = request.seen.setdefault((status.st_dev, status.st_ino), str(file))
    if before != str(file) or request.opened.count(str(file)):
        raise ValueError(
            f"{file} is the same file as {before}: its rows would be counted twice. Name every file once, and no links."
        )
    request.opened.append(str(file))


def _parquet_batches(file: Path, request: _Request) -> Iterator[pa.RecordBatch]:
    where = str(file)
    _check_columns(_file_schema(file).names, request.columns, where)
    try:
        yield from _ahead(_decoded(file, request.columns, request.rows))
    except (pa.ArrowException, OSError):
        raise _damaged(file, request, where) from None


def _decoded(file: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Small row groups are decoded whole, which is faster; large ones page by page, so that memory stays flat."""
    # A dataset's scanner is no faster, and holds up to 1 GiB where rows are used more slowly than they are read.
    with pa.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=_PARQUET_BUFFER, page_checksum_verification=True
    ) as opened:
        for index in range(opened.num_row_groups):
            if _decoded_bytes(opened.metadata.row_group(index), columns) <= _SMALL_ROW_GROUP:
                found = opened.read_row_group(index, columns=columns).to_batches(max_chunksize=rows)
            else:
                found = opened.iter_batches(rows, row_groups=[index], columns=columns)
            yield from (batch.select(columns) for batch in found)


def _decoded_bytes(row_group: Any, columns: list[str]) -> int:
    chunks = (row_group.column(j) for j in range(row_group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)


def _ahead(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the next batches in the background while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, found, None) for _ in range(_READAHEAD))
        while (batch := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, found, None))
            yield batch


def _damaged(file: Path, request: _Request, where: str) -> ValueError:
    """Find the column that cannot be decoded, for the message."""
    for name in request.columns:
        try:
            for _ in _decoded(file, [name], request.rows):
                pass
        except (pa.ArrowException, OSError):
            return ValueError(f"Column {name!r} of {where} cannot be read: the file is corrupt. Write it again.")
    return _unreadable(where)


def _open_csv(file: Path, convert: pa.csv.ConvertOptions) -> Any:
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK),
        parse_options=pa.csv.ParseOptions(delimiter="\t" if ".tsv" in _suffix(file) else ",", newlines_in_values=True),
        convert_options=convert,
    )


def _csv_batches(file: Path, request: _Request) -> Iterator[pa.RecordBatch]:
    where, columns = str(file), request.columns
    header: list[str] = []
    try:
        with _open_csv(file, pa.csv.ConvertOptions()) as reader:  # the header; nothing is converted for us
            header = reader.schema.names
        _check_columns(header, columns, where)
        types = {name: kind for name, kind in request.types.items() if name in columns}
        convert = pa.csv.ConvertOptions(include_columns=columns, column_types=types)
        with _open_csv(file, convert) as reader:
            for batch in reader:
                yield from _sliced(_empty_text_is_missing(batch), request.rows)
    except UnicodeDecodeError:
        raise _bad_name(where) from None
    except (pa.ArrowException, OSError) as error:
        raise _csv_error(str(error), header, where) from None


def _empty_text_is_missing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An empty field is missing in a text column as in any other."""
    arrays = [
        pc.if_else(pc.equal(array, ""), None, array) if pa.types.is_string(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _csv_error(words: str, header: Sequence[str], where: str) -> ValueError:
    """Arrow's words quote the line: only what they are about is passed on."""
    found = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([\w\[\]]+)", words)
    if found and int(found[1]) < len(header):
        name = header[int(found[1])]
        return ValueError(
            f"Column {name!r} of {where} has a field that is not of the type {found[2]}, as its other fields or the "
            "schema say. Correct the file, or the column's declaration."
        )
    if re.search(r"Expected \d+ columns, got \d+", words):
        return ValueError(
            f"{where} has lines with too many or too few fields. Every line must have the header's fields."
        )
    return _unreadable(where)


# ---------------------------------------------------------------------------------------------------------------
# DuckDB
@contextmanager
def _connection(query: DuckDBQuery) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise ImportError('A DuckDB query needs duckdb: pip install "gaussmix[duckdb]".') from None
    if not Path(query.path).is_file():
        raise FileNotFoundError(f"There is no file {str(query.path)!r}.")
    try:
        connection = duckdb.connect(os.fspath(query.path), read_only=True)
    except duckdb.Error:
        raise ValueError(f"{query.path} cannot be opened as a DuckDB file: it is corrupt or in use.") from None
    try:
        yield connection
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise ValueError(f"The query on {query.path} is not valid: {error}") from None
    except duckdb.Error:
        raise ValueError(f"The query on {query.path} failed while it ran. Run it in DuckDB for the details.") from None
    finally:
        connection.close()


def _query_parts(query: DuckDBQuery, request: _Request) -> Iterator[_Part]:
    with _connection(query) as connection:
        relation = connection.sql(query.sql)
        if relation is None:
            raise ValueError(f"The query on {query.path} returns no table. It must be a SELECT.")
        yield from _relation_parts(relation, request, where=str(query.path))


def _relation_parts(relation: Any, request: _Request, *, where: str) -> Iterator[_Part]:
    _check_columns(relation.columns, request.columns, where)
    wanted = relation.project(", ".join('"' + name.replace('"', '""') + '"' for name in request.columns))
    for batch in _running(_late(lambda: wanted.to_arrow_reader(request.rows)), where):
        yield from ((where, piece) for piece in _sliced(batch.rename_columns(request.columns), request.rows))


# ---------------------------------------------------------------------------------------------------------------
# Progress
class _Speed(ProgressColumn):
    """Rows, and rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        per_second = "" if speed is None else f", {speed:,.0f} rows/s"
        return Text(f"{task.completed:,.0f} rows{per_second}")


def with_progress(
    found: Iterable[pa.RecordBatch],
    total_rows: int | None = None,
    *,
    description: str = "Reading",
    console: Console | None = None,
) -> Iterator[pa.RecordBatch]:
    """Pass batches on and show rows, rows a second and the time left on standard error.

    Shows nothing where standard error is not a terminal: the number of rows is sensitive and belongs in no log.

    Parameters
    ----------
    found : iterable of pyarrow.RecordBatch
    total_rows : int, optional
        Such as `known_rows` returns; without it no time left is shown.
    description : str
    console : rich.console.Console, optional
        Default: one on standard error.
    """
    if console is None:  # rich takes a log for a terminal where FORCE_COLOR is set
        console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    if not console.is_terminal:
        yield from found
        return
    shown: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), _Speed()]
    if total_rows is not None:
        shown[2:2] = [BarColumn()]
        shown.append(TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(description, total=total_rows)
        for batch in found:
            yield batch
            progress.advance(task, batch.num_rows)
