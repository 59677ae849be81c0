"""Batches of rows from anything that holds a table: arrays, data frames, Arrow, Parquet, CSV, DuckDB.

Only the columns asked for are read, one bounded batch after the other, so memory does not grow with the table. Files
are read in sorted order. Errors name the file and the column, never a value.

>>> import numpy as np
>>> [batch.num_rows for batch in batches((np.zeros((5, 2)), ["a", "b"]), ["b"], batch_rows=3)]
[3, 2]

pandas, polars, duckdb and Arrow's datasets are not imported here: their tables are recognised when they come.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gaussmix._validation import positive_integer
from gaussmix.errors import DataError, DataTypeError
from gaussmix.tables.arrow import without_views
from gaussmix.tables.csv_files import csv_batches, csv_schema
from gaussmix.tables.duckdb_tables import DuckDBQuery, connect, query_of, query_parts, relation_of, relation_parts
from gaussmix.tables.files import (
    PARQUET,
    arrow_batches,
    arrow_schema,
    files_of,
    format_of,
    is_path,
    parquet_batches,
    parquet_schema,
    suffix_of,
)
from gaussmix.tables.memory import (
    array_batches,
    as_narwhals,
    frame_batches,
    is_dataset,
    is_named_array,
    lazy_batches,
    named_arrays,
    peeked_type,
    reader_batches,
)
from gaussmix.tables.options import CsvOptions
from gaussmix.tables.reading import (
    READAHEAD,
    Part,
    Request,
    another_number,
    check_columns,
    guarded,
    kind_of,
    readable,
    row_bytes,
    twice,
    valid,
    without_values,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

__all__ = ["BATCH_ROWS", "CsvOptions", "DuckDBQuery", "batches", "known_rows", "source_schema", "with_progress"]

BATCH_ROWS = 2**16
"""Rows of a batch: 11 MB for 22 columns, several blocks for every thread. Fewer where rows are wide."""

_BATCH_BYTES = 2**24
_PEEK_ROWS = 1000  # rows of a data frame in memory from which Arrow tells the types of Python objects
_KINDS_OF_DATA = (
    "a NumPy array with names, a dictionary of arrays, a pandas or polars data frame, "
    "an Arrow table, dataset or reader, an iterable of these, a path of Parquet, Arrow or CSV files, "
    "a DuckDB relation or a DuckDBQuery"
)


def batches(
    data: Any,
    columns: Sequence[str],
    *,
    batch_rows: int | None = None,
    types: Mapping[str, pa.DataType] | None = None,
    csv: CsvOptions | None = None,
    expect_rows: int | None = None,
    row_by_row: bool = True,
) -> Generator[pa.RecordBatch]:
    """Yield the rows of a table in bounded batches. To close it closes files and queries that are not read to the end.

    Parameters
    ----------
    data : table
        A 2-D NumPy array with its column names ``(array, names)``, a structured array, a dictionary of arrays;
        pandas, polars (eager or lazy) and whatever else narwhals knows; a pyarrow Table, RecordBatch,
        RecordBatchReader, Dataset, or any object with ``__arrow_c_stream__``; an iterable of any of these; a path
        of a Parquet, Arrow IPC or CSV file, a directory or a glob; a DuckDB relation, `DuckDBQuery` or (path, SQL).
    columns : sequence of str
        Columns to read, in the order in which they come back. No other column is read.
    batch_rows : int, optional
        Most rows of a batch. Default: `BATCH_ROWS`, or as many as 16 MiB hold where ``types`` declares long vectors
        or there are many columns.
    types : mapping of str to pyarrow.DataType, optional
        Types of columns that have none of their own (`Schema.text_types`): fields of CSV files, lists and other
        columns of Python objects. Each value is read by itself; nothing is guessed from the rows.
    csv : CsvOptions, optional
        How CSV files are written.
    expect_rows : int, optional
        Another number of rows is an error, after the last one.
    row_by_row : bool
        False refuses a DuckDB query in which one stored row may change several rows of the result.

    Yields
    ------
    pyarrow.RecordBatch

    Raises
    ------
    ValueError, TypeError
        If a column is absent, occurs twice or changes its type, if a file is unreadable, if there are no rows. For
        the curator, as in `gaussmix.tables.arrow.encode_batch`.
    """
    names = list(columns)
    if not names or len(set(names)) < len(names):
        raise DataError("columns must name at least one column, and each column once.")
    declared = dict(types or {})
    if batch_rows is None:
        batch_rows = max(min(BATCH_ROWS, _BATCH_BYTES // row_bytes(names, declared)), 1)
    positive_integer(batch_rows=batch_rows)
    if expect_rows is not None:
        positive_integer(expect_rows=expect_rows)
    request = Request(names, batch_rows, declared, csv or CsvOptions(), row_by_row)
    return _checked(_parts(data, request, _Seen()), expect_rows)


def source_schema(data: Any, *, csv: CsvOptions | None = None) -> pa.Schema:
    """Names and Arrow types of the columns, without reading rows (CSV: the first block, for the types).

    Parameters
    ----------
    data : table
        As for `batches`, except iterables, which can be read only once.
    csv : CsvOptions, optional
        How CSV files are written.
    """
    found = _schema_of(data, csv or CsvOptions())
    repeated = [name for name in found.names if found.names.count(name) > 1]
    if repeated:
        raise twice(repeated[0], _label(data))
    return found


def types_are_guessed(data: Any) -> bool:
    """Whether `source_schema` looks at rows to tell the types of files: CSV has none."""
    if isinstance(data, list | tuple):
        return any(map(types_are_guessed, data))
    return is_path(data) and any(format_of(file) == "csv" for file in files_of(data))


def known_rows(data: Any) -> int | None:
    """Rows where they are known without reading them, for a progress bar. **Sensitive**; None: not known."""
    try:
        if is_path(data):
            files = files_of(data)
            if all(suffix_of(file) in PARQUET for file in files):
                return sum(int(pa.parquet.read_metadata(file).num_rows) for file in files)
        elif isinstance(data, pa.Table | pa.RecordBatch):
            return int(data.num_rows)
        elif is_named_array(data):
            return len(data[0])
        elif isinstance(data, np.ndarray):
            return len(data)
        elif isinstance(frame := as_narwhals(data), nw.DataFrame):
            return int(frame.shape[0])
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return None  # the error comes, with its words, when the rows are read
    return None


# ---------------------------------------------------------------------------------------------------------------
# Which source it is


def _parts(data: Any, request: Request, seen: _Seen, *, streamed: bool = False) -> Iterator[Part]:
    """Batches with exactly the columns asked for, of any length up to ``request.rows``."""
    if is_path(data):
        return chain.from_iterable(_file_parts(file, request, seen) for file in files_of(data))
    if (query := query_of(data)) is not None:
        seen.query(str(query.path), query.sql)
        return query_parts(query, request)
    seen.table(data, streamed=streamed)
    if (relation := relation_of(data)) is not None:
        return relation_parts(relation, request, where=_label(data))
    return ((_label(data), batch) for batch in _memory_batches(data, request, seen, streamed=streamed))


def _memory_batches(data: Any, request: Request, seen: _Seen, *, streamed: bool) -> Iterator[pa.RecordBatch]:
    where, columns, rows = _label(data), request.columns, request.rows
    if (arrays := named_arrays(data)) is not None:
        return array_batches(arrays, request)
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        check_columns(table.schema.names, columns, where)
        return (valid(batch, where) for batch in table.select(columns).to_batches(max_chunksize=rows))
    if is_dataset(data):
        check_columns(data.schema.names, columns, where)
        for file in _whole_files(data):
            seen.file(file)
        scanner = data.scanner(columns=columns, batch_size=rows, batch_readahead=READAHEAD, fragment_readahead=1)
        return (valid(batch, where) for batch in guarded(scanner.to_batches(), where))
    if isinstance(data, pa.RecordBatchReader):
        return reader_batches(data, request, where)
    frame = as_narwhals(data)
    if isinstance(frame, nw.DataFrame):
        return frame_batches(frame, request, where)
    if isinstance(frame, nw.LazyFrame):
        return lazy_batches(frame, request, where)
    if hasattr(data, "__arrow_c_stream__"):
        return reader_batches(pa.RecordBatchReader.from_stream(data), request, where)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping | np.ndarray):
        streamed |= not isinstance(data, list | tuple)
        return chain.from_iterable(
            (batch for _, batch in _parts(item, request, seen, streamed=streamed)) for item in data
        )
    raise DataTypeError(f"data must be {_KINDS_OF_DATA}; got {type(data).__name__}.")


def _schema_of(data: Any, csv: CsvOptions) -> pa.Schema:
    where = _label(data)
    if is_path(data):
        return _file_schema(files_of(data)[0], csv)
    if (query := query_of(data)) is not None:
        with connect(query) as connection, readable(str(query.path)):
            return connection.sql(query.sql).limit(0).to_arrow_table().schema
    if (relation := relation_of(data)) is not None:
        return relation.limit(0).to_arrow_table().schema
    if (arrays := named_arrays(data)) is not None:
        return pa.schema([(name, peeked_type(array[:_PEEK_ROWS], name, where)) for name, array in arrays.items()])
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or is_dataset(data):
        return data.schema
    frame = as_narwhals(data)
    if isinstance(frame, nw.DataFrame):
        return _frame_schema(frame.head(_PEEK_ROWS), where)
    if isinstance(frame, nw.LazyFrame):
        return _frame_schema(frame.head(0).collect(), where)
    if hasattr(data, "__arrow_c_schema__"):
        return pa.schema(data)
    raise DataTypeError(
        f"The columns of {type(data).__name__} cannot be known without reading rows. Pass one of its tables, or a file."
    )


def _frame_schema(frame: Any, where: str) -> pa.Schema:
    return pa.schema([(name, peeked_type(frame[name], name, where)) for name in frame.columns])


def _label(data: Any) -> str:
    """What messages call the source."""
    if is_path(data):
        return str(os.fspath(data))
    query = query_of(data)
    return str(query.path) if query is not None else f"the {type(data).__name__}"


def _file_schema(file: Path, csv: CsvOptions) -> pa.Schema:
    kind = format_of(file)
    if kind == "csv":
        return csv_schema(file, csv)
    return parquet_schema(file) if kind == "parquet" else arrow_schema(file)


def _whole_files(dataset: Any) -> list[Path]:
    """Local files of which a dataset has all rows: none where it is filtered, for another filter has other rows."""
    if getattr(dataset, "_scan_options", None):
        return []
    return [Path(name) for name in getattr(dataset, "files", ()) if Path(name).exists()]


def _file_parts(file: Path, request: Request, seen: _Seen) -> Iterator[Part]:
    seen.file(file)
    readers = {"parquet": parquet_batches, "arrow": arrow_batches, "csv": csv_batches}
    return ((str(file), batch) for batch in readers[format_of(file)](file, request))


# ---------------------------------------------------------------------------------------------------------------
# Checks that hold for every source
@dataclass
class _Seen:
    """Files, queries and objects that were read. A row that is counted twice is protected half as well."""

    files: dict[tuple[int, int], str] = field(default_factory=dict)
    queries: set[tuple[Hashable, str]] = field(default_factory=set)
    listed: dict[int, Any] = field(default_factory=dict)
    streamed: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)

    def file(self, file: Path) -> None:
        """Reject a file that was read before, whatever its name."""
        identity = _identity(file)
        if identity in self.files:
            raise DataError(
                f"{file} is the same file as {self.files[identity]}: its rows would be counted twice. "
                "Name every file once, and no links."
            )
        self.files[identity] = str(file)

    def query(self, path: str, sql: str) -> None:
        """Reject the same query on the same file."""
        key = (_identity(Path(path)) if Path(path).exists() else path, sql.strip().rstrip(";").rstrip())
        if key in self.queries:
            raise DataError(f"A query on {path} comes twice: its rows would be counted twice. Name every query once.")
        self.queries.add(key)

    def table(self, data: Any, *, streamed: bool) -> None:
        """Reject an object that was read before; in a list, also the array of another (array, names) pair.

        A generator may fill one array again for each pair that it yields.
        """
        if not streamed and is_named_array(data):
            data = data[0]
        if id(data) in self.listed or id(data) in self.streamed:
            raise DataError("A table comes twice: its rows would be counted twice. Name every table once.")
        if not streamed:
            self.listed[id(data)] = data  # its list holds it too
            return
        with suppress(TypeError):  # dictionaries, lists and tuples have no weak references
            self.streamed[id(data)] = data  # forgotten with the object: its id may become that of another one


def _identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def _checked(parts: Iterator[Part], expect_rows: int | None) -> Generator[pa.RecordBatch]:
    """Pass the batches on; a column may not change its kind on the way, and there must be a row, or as many as said."""
    kinds: dict[str, str] = {}
    last_schema: pa.Schema | None = None
    rows = 0
    for where, batch in without_values(parts):
        if not batch.num_rows:
            continue
        if last_schema is None or not batch.schema.equals(last_schema):
            last_schema = batch.schema
            for field in batch.schema:
                kind = kind_of(field.type)
                before = kinds.setdefault(field.name, kind)
                if before == "nothing":
                    kinds[field.name] = kind
                elif kind not in (before, "nothing"):
                    raise DataTypeError(
                        f"Column {field.name!r} changes its type from {before} to {kind} in {where}. "
                        "Give it one type in all parts of the table."
                    )
        rows += batch.num_rows
        yield without_views(batch)
    if expect_rows is not None and rows != expect_rows:
        raise DataError(another_number(expect_rows))
    if not rows:
        raise DataError("The table has no rows. Check the path, the query or the filter that made it.")


# ---------------------------------------------------------------------------------------------------------------
# Progress
def with_progress(
    found: Iterable[pa.RecordBatch],
    total_rows: int | None = None,
    *,
    description: str = "Reading",
    console: Console | None = None,
) -> Generator[pa.RecordBatch]:
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
    # rich, which takes a log for a terminal where FORCE_COLOR is set, is loaded where something is shown.
    if not (sys.stderr.isatty() if console is None else console.is_terminal):
        yield from found
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, force_terminal=True) if console is None else console
    shown: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), _speed()]
    if total_rows is not None:
        shown[2:2] = [BarColumn()]
        shown.append(TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(description, total=total_rows)
        for batch in found:
            yield batch
            progress.advance(task, batch.num_rows)


def _speed() -> ProgressColumn:
    """A column of rows, and of rows a second."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            per_second = "" if speed is None else f", {speed:,.0f} rows/s"
            return Text(f"{task.completed:,.0f} rows{per_second}")

    return Speed()
