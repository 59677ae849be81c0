"""A table that is asked one question after the other: each is one reading of it, from its first row to its last.

**Sensitive**: answers are sums over rows.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import pyarrow as pa

from gaussmix.errors import ArgumentError, DataError
from gaussmix.tables.duckdb_tables import query_of, relation_of
from gaussmix.tables.files import files_of, is_path
from gaussmix.tables.gram import Query, Summable, aggregate_batches
from gaussmix.tables.memory import as_narwhals, is_dataset, is_named_array
from gaussmix.tables.options import CsvOptions
from gaussmix.tables.sampling import RowCache, Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.sources import batches, known_rows, with_progress

__all__ = ["CHANGED", "ONCE", "Source"]

CHANGED = "The table changed while it was read, between two passes. Nothing more was drawn: read a table that stays."
"""No number, and not what changed: whoever sees more learns about rows."""

ONCE = (
    "can be read only once, and a release in passes reads its table several times. Pass a list, a data frame or the "
    "path of a file; or passes=1."
)

A = TypeVar("A", bound=Summable)


class Source:
    """Anything that :func:`gaussmix.tables.sources.batches` reads, and what its readings must have in common.

    Parameters
    ----------
    data : table, path, glob, query or iterable of batches
    csv : CsvOptions, optional
        How CSV files are written.
    expect_rows : int, optional
        Another number of rows is an error, in the first reading.
    progress : bool
        Show a progress bar on a terminal. It shows row counts, which are for the curator.
    row_by_row : bool
        Declares of a query that each stored row affects at most one row of its result. Otherwise DuckDB's plan is
        looked at in every reading, and may be refused.
    """

    def __init__(
        self,
        data: Any,
        *,
        csv: CsvOptions | None = None,
        expect_rows: int | None = None,
        progress: bool = False,
        row_by_row: bool = False,
    ) -> None:
        self._data, self._csv, self._expect_rows, self._progress = data, csv, expect_rows, progress
        self._row_by_row = row_by_row
        if row_by_row and not self.is_computed:
            raise ArgumentError("row_by_row is about queries, and this table is stored: leave it out.")
        self._readings, self._rows = 0, 0
        self._files: list[tuple[object, ...]] | None = None

    def aggregate(
        self,
        query: Query[A],
        schema: Schema,
        *,
        sample: Sample | None = None,
        cache: RowCache | None = None,
        describe: str = "Reading",
    ) -> A:
        """Read the table, or a sample of its rows, and aggregate it. A ``cache`` keeps rows for later.

        A table that is not what it was in the first reading, by its number of rows or by its files' sizes and times,
        is an error.
        """
        if sample is not None and not self.keeps_order:
            sample = sample.fresh(self._readings)
        threads = None if _stays_as_it_is(self._data) else 1
        with self.reading(list(schema.columns), schema.text_types, describe=describe) as stream:
            return aggregate_batches(stream, schema, query, sample=sample, cache=cache, threads=threads)

    @contextmanager
    def reading(
        self, columns: list[str], types: Mapping[str, pa.DataType], *, describe: str = "Reading"
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """One reading of some columns, to be read to its end; what it must have in common with others is checked."""
        data = self._data
        if self._readings:
            self.check_again()
        files = _files_in(data)
        expected = None if self._readings else self._expect_rows
        found = batches(data, columns, types=types, csv=self._csv, expect_rows=expected, row_by_row=self._row_by_row)
        counted = _Counted(found)
        stream: Generator[pa.RecordBatch] = iter(counted)
        if self._progress:
            stream = with_progress(stream, known_rows(data), description=describe)
        with (
            closing(found),
            closing(stream),
        ):  # an error keeps its frames, and with them a query that is not read to the end
            yield stream
        if self._readings and (counted.rows, files) != (self._rows, self._files):
            raise DataError(CHANGED)
        self._rows, self._files = counted.rows, files
        self._readings += 1

    @property
    def is_computed(self) -> bool:
        """Whether rows come from a query, a lazy frame or a stream, and not from a table that is stored as such."""
        return not _is_stored(self._data)

    @property
    def keeps_order(self) -> bool:
        """Whether a row is at the same position in every reading."""
        return _keeps_order(self._data)

    @property
    def rows(self) -> int:
        """Rows of the source, **sensitive**: those that a sample or ``drop-row`` leaves out are counted too."""
        return self._rows

    def count(self) -> int | None:
        """Rows where they are known without reading them. **Sensitive**; None: not known."""
        return known_rows(self._data)

    def check_again(self) -> None:
        """Refuse what can be read only once."""
        once = _read_once(self._data)
        if once is not None:
            raise ArgumentError(f"{once} {ONCE}")


class _Counted:
    """Batches, and how many rows have come."""

    def __init__(self, found: Iterable[pa.RecordBatch]) -> None:
        self._found, self.rows = found, 0

    def __iter__(self) -> Generator[pa.RecordBatch]:
        for batch in self._found:
            self.rows += batch.num_rows
            yield batch


def _listed(data: Any) -> list[Any] | None:
    """The tables of a list of them."""
    if isinstance(data, list) or (isinstance(data, tuple) and not is_named_array(data) and query_of(data) is None):
        return list(data)
    return None


def _read_once(data: Any) -> str | None:
    """What in a source comes only once; None if nothing does.

    An iterable that makes a new iterator each time is taken at its word. What is only known to export a stream may
    be a reader, so it is not.
    """
    if (items := _listed(data)) is not None:
        return next((once for once in map(_read_once, items) if once is not None), None)
    if isinstance(data, Iterator | pa.RecordBatchReader):
        return f"The {type(data).__name__}"
    known = is_path(data) or isinstance(data, pa.Table | pa.RecordBatch | np.ndarray) or is_dataset(data)
    if known or relation_of(data) is not None or isinstance(as_narwhals(data), nw.DataFrame | nw.LazyFrame):
        return None
    return f"The {type(data).__name__}" if hasattr(data, "__arrow_c_stream__") else None


def _keeps_order(data: Any) -> bool:
    """Whether a row is at the same position in every reading."""
    if (items := _listed(data)) is not None:
        return all(map(_keeps_order, items))
    if is_path(data) or isinstance(data, pa.Table | pa.RecordBatch | np.ndarray | dict) or is_named_array(data):
        return True
    return isinstance(as_narwhals(data), nw.DataFrame)


def _is_stored(data: Any) -> bool:
    """Whether the rows of a source are there before it is read."""
    if (items := _listed(data)) is not None:
        return all(map(_is_stored, items))
    return is_dataset(data) or _keeps_order(data)


def _files_in(data: Any) -> list[tuple[object, ...]] | None:
    """What tells a file that was written to between two readings."""
    if (items := _listed(data)) is not None:
        return [status for item in items for status in _files_in(item) or []]
    query = query_of(data)
    if query is None and not is_path(data):
        return None
    status = [os.stat(file) for file in files_of(data if query is None else query.path)]
    return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in status]


def _stays_as_it_is(data: Any) -> bool:
    """Whether batches of a source may be read while others are still in use.

    A generator or a reader may write the next batch where the last one was: then one thread reads it.
    """
    if isinstance(data, str | os.PathLike):
        return True
    return not isinstance(data, Iterator | pa.RecordBatchReader | list | tuple) and hasattr(data, "__arrow_c_stream__")
