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

import hashlib
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix.data import engines
from gaussmix.data.encode import is_text
from gaussmix.data.engines import (
    DaskTable,
    DatabaseTable,
    DuckDBQuery,
    QueryTable,
    RelationTable,
    SparkTable,
    is_database,
)
from gaussmix.data.gram import Query, Summable, aggregate_batches
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
from gaussmix.data.readers import FileTable
from gaussmix.data.sampling import RowCache, Sample
from gaussmix.data.schema import Schema
from gaussmix.data.source import FileOrigin, Part, ReadOptions, Request, Seen, Table
from gaussmix.errors import ArgumentError, DataError, DataTypeError, GaussmixError

CHANGED = "The table changed between two passes. The release was stopped. Use a table that does not change."
"""The message does not say what changed: that would reveal information about rows."""

A = TypeVar("A", bound=Summable)


def open_table(data: Any, options: ReadOptions | None = None) -> Table:
    """Return the table that ``data`` is or refers to. No row is read.

    Parameters
    ----------
    data : table
        A 2-D NumPy array with its column names ``(array, names)``, a structured array, a dictionary of arrays;
        pandas, polars (eager or lazy) and whatever else narwhals knows; a pyarrow Table, RecordBatch,
        RecordBatchReader, Dataset, or any object with ``__arrow_c_stream__``; a path of a Parquet, Arrow IPC or CSV
        file, a directory or a glob; a ``deltalake.DeltaTable``, a pyiceberg table or scan; a `gaussmix.Query`
        on a database; a DuckDB relation, `DuckDBQuery` or (path, SQL); a Dask collection or a Spark data frame; a list
        or an iterable of any of these. A `Table` is returned as it is.
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
    return kind(native, options or ReadOptions())


_KINDS = (
    "a path of files, a Delta Lake or Iceberg table, a Query, a DuckDB relation or a DuckDBQuery, a Dask or Spark "
    "table, a NumPy array with names, a dictionary of arrays, an Arrow table, dataset or reader, a pandas or polars "
    "data frame, a list or an iterable of these"
)


def kind_of(data: Any) -> type[Table] | None:
    """Return the class of table for ``data``; None if it is not a supported table."""
    if isinstance(data, str | os.PathLike):
        return FileTable
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


def origins_of(data: Any) -> tuple[Any, ...]:
    """Return the files, queries and objects that hold the rows; ``data`` itself if it is not a readable table."""
    with suppress(GaussmixError, OSError):  # the error comes when the rows are read
        return open_table(data).origins
    return (data,)


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

    @property
    def n_rows(self) -> int | None:
        """Number of rows of all tables, if known. **Sensitive**."""
        known = [rows for table in self._tables if (rows := table.n_rows) is not None]
        return sum(known) if len(known) == len(self._tables) else None

    @property
    def origins(self) -> tuple[Any, ...]:
        """The origins of all tables."""
        return tuple(origin for table in self._tables for origin in table.origins)

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
            seen.add(table, streamed=True)
            yield from table.parts(request, seen)


# ---------------------------------------------------------------------------------------------------------------
# Several readings
class TableReader:
    """A table that can be read several times and must be the same each time. **Sensitive**.

    Parameters
    ----------
    data : table
        As for `open_table`.
    options : ReadOptions, optional
    key : bytes, optional
        32 secret bytes for `row_digests`. Default: from the operating system, if an engine computes the table.

    Attributes
    ----------
    table : Table
    rows : int
        Rows of the last reading, **sensitive**: those that a sample or ``drop-row`` leaves out are counted too.
    digest : int
        Sum of `row_digests` over the last reading, **sensitive**; 0 without a key, where files are compared.
    """

    def __init__(self, data: Any, options: ReadOptions | None = None, *, key: bytes | None = None) -> None:
        self.table = open_table(data, options)
        if self.table.options.row_by_row and not self.table.computed:
            raise ArgumentError("row_by_row has no effect on a stored table. Omit it.")
        self.rows = self.digest = 0
        if key is None and self.table.computed and self.table.single_use is None:
            key = os.urandom(32)
        self._key = key
        self._readings = 0
        self._files: list[tuple[int, int, int, int]] = []

    def aggregate(
        self,
        query: Query[A],
        schema: Schema,
        *,
        sample: Sample | None = None,
        cache: RowCache | None = None,
        describe: str = "Reading",
    ) -> A:
        """Read the table, or a sample of its rows, and aggregate it. A ``cache`` keeps rows for later."""
        if sample is not None and not self.table.ordered:
            sample = sample.fresh(self._readings)
        threads = 1 if self.table.reuses_buffers else None
        with closing(self.batches(list(schema.columns), schema.text_types, describe=describe)) as stream:
            return aggregate_batches(stream, schema, query, sample=sample, cache=cache, threads=threads)

    def batches(
        self, columns: list[str], types: Mapping[str, pa.DataType], *, describe: str = "Reading"
    ) -> Generator[pa.RecordBatch]:
        """Yield some columns of all rows. The caller must close the generator: an error would keep a query open.

        A table that is not what it was in the first reading is an error: by its number of rows, by its files' sizes and
        times or, if an engine computes it, by its rows.
        """
        if self._readings:
            self.check_again()
        paths = [origin.path for origin in self.table.origins if isinstance(origin, FileOrigin)]
        states = [os.stat(path) for path in paths if path.is_file()]
        files = [(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states]
        rows = digest = 0
        with closing(self.table.batches(columns, types=types, examine_plan=True, describe=describe)) as found:
            for batch in found:
                rows += batch.num_rows
                if self._key is not None:
                    digest += int(row_digests(batch, self._key).sum())
                yield batch
        digest %= 2**64
        if self._readings and (rows, digest, files) != (self.rows, self.digest, self._files):
            raise DataError(CHANGED)
        self.rows, self.digest, self._files = rows, digest, files
        self._readings += 1

    def check_again(self) -> None:
        """Raise an error if the table can be read only once."""
        if self.table.single_use is not None:
            raise ArgumentError(
                f"{self.table.single_use} can be read only once, but a release in passes reads its table several "
                "times. Pass a list, a data frame or a file path, or set passes=1."
            )


def row_digests(batch: pa.RecordBatch, key: bytes) -> NDArray[np.uint64]:
    r"""Return a keyed hash of 64 bits for each row: :math:`\mathrm{mix}(\sum_j k_j w_j)` modulo 2⁶⁴.

    w_j is the value of column j as a word, k_j an odd multiplier from the key, and mix the bijection of SplitMix64
    (Steele, Lea and Flood, 2014). Sums over rows do not depend on their order. They detect engines that compute other
    rows in another pass, not an adversary, who does not see them.
    """
    total = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        seed = hashlib.blake2b(name.encode(), key=key, digest_size=8).digest()
        total += _words(column, key) * (np.frombuffer(seed, dtype=np.uint64)[0] | np.uint64(1))
    return _mixed(total)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(column: pa.Array, key: bytes) -> NDArray[np.uint64]:
    """Return the values of a column as words: bits of numbers, hashes of texts, sums over the entries of vectors."""
    kind = column.type
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        ends = np.cumsum(sizes)
        places = (np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)).astype(np.uint64)
        entries = _mixed(_words(pc.list_flatten(column), key) + places * np.uint64(0x9E3779B97F4A7C15))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(entries, dtype=np.uint64)])
        return np.asarray(sums[ends] - sums[ends - sizes])
    if isinstance(column, pa.DictionaryArray) or is_text(kind) or pa.types.is_binary(kind):
        column = column.dictionary_encode()  # does nothing where it is one
        values = [None if value is None else str(value).encode() for value in column.dictionary.to_pylist()]
        hashes = b"".join(hashlib.blake2b(value or b"", key=key, digest_size=8).digest() for value in values)
        found: NDArray[np.uint64] = np.append(np.frombuffer(hashes, dtype="<u8").astype(np.uint64), np.uint64(0))
        places = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.asarray(found[places])
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    try:
        words = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # NaN where missing
    except pa.ArrowException:  # no column of a schema: the encoder rejects it
        return np.zeros(len(column), dtype=np.uint64)
    bits: NDArray[np.uint64] = np.ascontiguousarray(words).view(np.uint64)
    return np.where(np.isnan(words), np.uint64(1), bits)
