"""Open a table of any kind: the one place that decides what kind of thing ``data`` is.

>>> import numpy as np
>>> table = open_table((np.zeros((5, 2)), ["a", "b"]))
>>> [batch.num_rows for batch in table.batches(["b"], batch_rows=3)]
[3, 2]

A new kind of table is a subclass of :class:`gaussmix.data.source.Table` and a line in `kind_of`; a new format of files
is a :class:`gaussmix.data.source.FileFormat` and an entry of :data:`gaussmix.data.readers.FORMATS`. pandas, polars,
duckdb, dask, pyspark and Arrow's datasets are not imported here; their tables are recognised if they are loaded.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gaussmix.data import engines
from gaussmix.data.engines import (
    DaskTable,
    DatabaseTable,
    DuckDBQuery,
    QueryTable,
    RelationTable,
    SparkTable,
    is_database,
)
from gaussmix.data.memory import (
    ArrayTable,
    ArrowTable,
    DatasetTable,
    DeltaLakeTable,
    FrameTable,
    IcebergTable,
    LazyTable,
    StreamTable,
    as_narwhals,
)
from gaussmix.data.readers import FileTable, UrlTable, is_url
from gaussmix.data.source import Part, ReadOptions, Request, Seen, Table
from gaussmix.errors import ArgumentError, DataTypeError


def open_table(data: Any, options: ReadOptions | None = None) -> Table:
    """Return the table that ``data`` is or refers to. No row is read.

    Parameters
    ----------
    data : table
        A 2-D NumPy array with its column names ``(array, names)``, a structured array, a dictionary of arrays;
        pandas, polars (eager or lazy) and whatever else narwhals knows; a pyarrow Table, RecordBatch,
        RecordBatchReader, Dataset, or any object with ``__arrow_c_stream__``; a path or URL (``s3://``) of a Parquet,
        Arrow IPC or CSV file, a directory or a glob; a ``deltalake.DeltaTable``, a pyiceberg table or scan; a
        `gaussmix.Query` on a database; a DuckDB relation, `DuckDBQuery` or (path, SQL); a Dask collection or a Spark
        data frame; a list or an iterable of any of these. A `Table` is returned as it is.
    options : ReadOptions, optional
        How it is read.

    Raises
    ------
    TypeError
        If it is of no known kind.
    """
    if isinstance(data, Table):
        return data
    native = nw.to_native(data, pass_through=True)
    kind = kind_of(native)
    if kind is None:
        raise DataTypeError(f"data must be {_KINDS}; got {type(data).__name__}.")
    if options is not None and options.persist and kind is not SparkTable:
        raise ArgumentError(f"persist requires a Spark data frame, got {type(data).__name__}. Omit it.")
    return kind(native, options or ReadOptions())


_KINDS = (
    "a path of files, a Delta Lake or Iceberg table, a Query, a DuckDB relation or a DuckDBQuery, a Dask or Spark "
    "table, a NumPy array with names, a dictionary of arrays, an Arrow table, dataset or reader, a pandas or polars "
    "data frame, a list or an iterable of these"
)


def kind_of(data: Any) -> type[Table] | None:
    """Return the class of table for ``data``; None if it is not a supported table."""
    if isinstance(data, str | os.PathLike):
        return UrlTable if is_url(os.fspath(data)) else FileTable
    pair = data if isinstance(data, tuple) and len(data) == 2 else None
    if pair is not None and isinstance(pair[0], str | os.PathLike) and isinstance(pair[1], str):
        is_sql = re.match(r"\s*(select|from|with)\b", pair[1], re.IGNORECASE) is not None
        return QueryTable if is_sql or is_database(pair[0]) else TableList
    if isinstance(data, DuckDBQuery):
        return QueryTable
    if isinstance(data, engines.Query):
        return DatabaseTable
    kind = type(data)
    package = kind.__module__.split(".")[0]
    if kind.__name__ == "DuckDBPyRelation" and "duckdb" in kind.__module__:
        return RelationTable
    if package in ("dask", "dask_expr") and hasattr(data, "to_delayed") and hasattr(data, "columns"):
        return DaskTable
    if package == "pyspark" and hasattr(data, "mapInArrow"):
        return SparkTable
    if pair is not None and type(pair[0]).__module__.split(".")[0] == "dask":
        return DaskTable
    if isinstance(data, np.ndarray | Mapping) or (pair is not None and isinstance(pair[0], np.ndarray)):
        return ArrayTable
    if isinstance(data, pa.Table | pa.RecordBatch):
        return ArrowTable
    datasets = sys.modules.get("pyarrow.dataset")  # whoever has a dataset has loaded it
    if datasets is not None and isinstance(data, datasets.Dataset):
        return DatasetTable
    if kind.__name__ == "DeltaTable" and package == "deltalake":
        return DeltaLakeTable
    if package == "pyiceberg" and (hasattr(data, "scan") or hasattr(data, "row_filter")):
        return IcebergTable
    frame = as_narwhals(data)
    if isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return FrameTable if isinstance(frame, nw.DataFrame) else LazyTable
    if hasattr(data, "__arrow_c_stream__"):
        return StreamTable
    if isinstance(data, list | tuple):
        return TableList
    return TableIterator if isinstance(data, Iterable) and not isinstance(data, bytes) else None


# ---------------------------------------------------------------------------------------------------------------
# Several tables
class TableList(Table):
    """A list or tuple of tables, read one after the other."""

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self._tables = [open_table(item, options) for item in data]
        self.ordered = all(table.ordered for table in self._tables)
        self.computed = any(table.computed for table in self._tables)
        self.reuses_buffers = any(table.reuses_buffers for table in self._tables)
        self.single_use = next((table.single_use for table in self._tables if table.single_use is not None), None)
        self.paths = tuple(path for table in self._tables for path in table.paths)

    def parts(self, request: Request, seen: Seen) -> Iterator[Part]:
        """Yield the parts of all tables."""
        for table in self._tables:
            seen.add(table)
            yield from table.parts(request, seen)

    def check_unit(self, column: str | None) -> None:
        """Reject another privacy unit than that of a table of deviations."""
        for table in self._tables:
            table.check_unit(column)

    @property
    def n_rows(self) -> int | None:
        """Number of rows of all tables, if known. **Sensitive**."""
        known = [rows for table in self._tables if (rows := table.n_rows) is not None]
        return sum(known) if len(known) == len(self._tables) else None

    @property
    def origins(self) -> tuple[Any, ...]:
        """The origins of all tables."""
        return tuple(origin for table in self._tables for origin in table.origins)

    @property
    def described(self) -> list[str]:
        """The descriptions of all tables."""
        return [text for table in self._tables for text in table.described]

    def identity(self, *, streamed: bool) -> tuple[Any, ...]:
        """Return None: the tables are identified one by one."""
        return ()


class TableIterator(Table):
    """An iterable of tables. It can be read again if it returns a new iterator each time."""

    ordered, computed, reuses_buffers = False, True, True

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self.single_use = f"The {type(data).__name__}" if isinstance(data, Iterator) else None

    def parts(self, request: Request, seen: Seen) -> Iterator[Part]:
        """Yield the parts of each table in turn."""
        for item in self._data:
            table = open_table(item, self.options)
            try:
                table.check_unit(None)
            except ArgumentError:
                raise ArgumentError(
                    "A table of deviations cannot be an item of an iterable. Pass it by itself."
                ) from None
            seen.add(table, streamed=True)
            yield from table.parts(request, seen)
