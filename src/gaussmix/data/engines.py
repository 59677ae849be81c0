"""Tables that an engine computes: queries on DuckDB and other databases, Dask collections and Spark data frames.

The packages of the engines are imported when they are needed.

**Clusters.** Only sums leave the workers of Dask and Spark, bit for bit the same as on one machine. A task that is lost
and run again counts once: all partitions are computed in one job with one result per partition. No noise is drawn on a
worker.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import glob
import io
import json
import math
import operator
import os
import pickle
import re
import time
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from gaussmix.accounting.parameters import frames_to_the_caller
from gaussmix.data.gram import Summable
from gaussmix.data.memory import ArrayTable, FrameTable, LazyTable, column_of, not_one_name_per_column
from gaussmix.data.readers import ahead
from gaussmix.data.source import (
    FileOrigin,
    ReadOptions,
    Request,
    Table,
    check_columns,
    readable,
    running,
    sliced,
    valid,
)
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataError,
    GaussmixError,
    MissingFileError,
    MissingPackageError,
)

_DATABASES = (".duckdb", ".ddb", ".db")
_ROW_BY_ROW = {"CTE", "CTE_SCAN", "DUMMY_SCAN", "EXPRESSION_GET", "FILTER", "ORDER_BY", "PROJECTION", "UNION"}
_SCANS = {"ARROW_SCAN", "MYSQL_SCAN", "PANDAS_SCAN", "PARQUET_SCAN", "POSTGRES_SCAN", "PYTHON_ARROW_SCAN", "SEQ_SCAN"}
_SCANS |= {"DELTA_SCAN", "ICEBERG_SCAN", "SQLITE_SCAN", "READ_CSV", "READ_CSV_AUTO", "READ_JSON", "READ_JSON_AUTO"}
_SCANS |= {"READ_NDJSON", "READ_NDJSON_AUTO", "READ_PARQUET"}
_SPARK_SCANS = {"HiveTableRelation", "LocalRelation", "Range", "Relation", "RelationV2"}
_SPARK_ROW_BY_ROW = {"Filter", "Project", *_SPARK_SCANS}
_SPARK_ROW_BY_ROW |= {
    "RelationV2",
    "HiveTableRelation",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
}
_SPARK_ROW_BY_ROW |= {"ResolvedHint", "Sort", "SubqueryAlias", "View"}
_SPARK_UNFIXED = {"GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail", "Sample", "Deduplicate"}
_SPARK_VOLATILE: tuple[str, ...] = (
    "rand",
    "randn",
    "random",
    "randstr",
    "uniform",
    "uuid",
    "shuffle",
    "monotonically_increasing_id",
)
_SPARK_VOLATILE += ("spark_partition_id", "input_file_name", "input_file_block_start", "first", "last", "any_value")
_PARTITIONS = 200  # of a shuffle whose number is not set
_POSITIONS = ("rowid", "file_row_number", "file_index")  # columns that say where a row is stored

A = TypeVar("A", bound=Summable)


# ---------------------------------------------------------------------------------------------------------------
# DuckDB
@dataclass(frozen=True)
class DuckDBQuery:
    """A SQL query on a DuckDB file, which is opened read-only. ``("file.duckdb", "SELECT ...")`` means the same."""

    path: str | os.PathLike[str]
    sql: str


def is_database(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is named like a DuckDB file."""
    return Path(path).suffix.lower() in _DATABASES


class QueryTable(Table):
    """The result of a `DuckDBQuery`, or of (path, SQL)."""

    ordered, computed = False, True

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self._query = data if isinstance(data, DuckDBQuery) else DuckDBQuery(*data)
        self.label, self.paths = str(self._query.path), (self._query.path,)

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of the result."""
        with _connect(self._query) as connection:
            neighbours = connection.sql(self._query.sql)
            if neighbours is None:
                raise DataError(f"The query on {self.label} must be a SELECT that returns a table.")
            yield from _relation_batches(neighbours, request, self.label)

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the result."""
        with _connect(self._query) as connection, readable(self.label):
            return connection.sql(self._query.sql).limit(0).to_arrow_table().schema

    @property
    def origins(self) -> tuple[Any, ...]:
        """The query."""
        return (FileOrigin(Path(self._query.path), self._query.sql),)


class RelationTable(Table):
    """A DuckDB relation."""

    ordered, computed = False, True

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of the relation."""
        return _relation_batches(self._data, request, self.label)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns."""
        return self._data.limit(0).to_arrow_table().schema


@contextmanager
def _connect(query: DuckDBQuery) -> Iterator[Any]:
    """Open the file read-only. Errors of DuckDB, which may quote values, are replaced."""
    try:
        import duckdb
    except ImportError:
        raise MissingPackageError('DuckDB queries require duckdb: pip install "gaussmix[duckdb]".') from None
    if not Path(query.path).is_file():
        raise MissingFileError(f"The file {str(query.path)!r} does not exist.")
    try:
        connection = duckdb.connect(os.fspath(query.path), read_only=True)
    except duckdb.Error:
        raise DataError(f"{query.path} cannot be opened as a DuckDB file: it is corrupt or in use.") from None
    try:
        yield connection
    except (duckdb.ParserException, duckdb.CatalogException) as error:
        raise DataError(f"The query on {query.path} is not valid: {error}") from None
    except duckdb.BinderException:  # its message suggests column names, which a pivot takes from rows
        raise DataError(
            f"The query on {query.path} is not valid: it uses an unknown column or function, or a wrong type. "
            "Run it in DuckDB for the details."
        ) from None
    except duckdb.Error:
        raise DataError(f"The query on {query.path} failed. Run it in DuckDB for the details.") from None
    finally:
        connection.close()


def _relation_batches(neighbours: Any, request: Request, where: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of a relation. Only the requested columns are read."""
    if request.examine_plan and (found := mixing_operator(neighbours)) is not None:
        raise ArgumentError(
            f"The query plan of {where} contains {found}, so one stored row may change several rows of the result. "
            "Use only scans, filters, projections and UNION ALL of different tables; or store the result as a table "
            "or a file, if its rows are the privacy unit; or declare with row_by_row=True that each stored row "
            "affects at most one row of the result."
        )
    check_columns(neighbours.columns, request.columns, where)
    for name in request.columns:
        if sum(other.lower() == name.lower() for other in neighbours.columns) > 1:
            raise DataError(
                f"The name of column {name!r} of {where} differs from that of another column only in case, and DuckDB "
                "could read either. Rename one of them."
            )
    wanted = neighbours.project(", ".join('"' + name.replace('"', '""') + '"' for name in request.columns))
    for batch in running(lambda: wanted.to_arrow_reader(request.rows), where):
        yield from sliced(valid(batch.rename_columns(request.columns), where), request.rows)


def mixing_operator(neighbours: Any) -> str | None:
    """Return the first operator of a relation by which one stored row may change several rows of the result.

    The plan before optimisation is examined, because the optimiser replaces aggregates by stored statistics and window
    functions by row numbers. Every operator that is not known to work row by row is returned, and so is a second scan
    of the same table. Volatile functions, row numbers and lists of files in which one occurs twice are looked for in
    the text of the query, not in the views and macros that it uses.
    """
    view = "gaussmix_rows"
    try:
        ((before,),) = neighbours.query(view, "SELECT current_setting('explain_output')").fetchall()
        neighbours.query(view, "SET SESSION explain_output = 'all'")
        try:
            plans = dict(neighbours.query(view, f"EXPLAIN (FORMAT JSON) FROM {view}").fetchall())
        finally:
            neighbours.query(view, f"SET SESSION explain_output = '{before}'")
        volatile = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        functions = [re.escape(name) for (name,) in neighbours.query(view, volatile).fetchall()]
        text, waiting = neighbours.sql_query(), json.loads(plans["logical_plan"])
    except Exception:  # of DuckDB's, whose messages may quote values; or no plan, in versions before 2.0
        return "operators that DuckDB does not show"
    text = re.sub(r"\bfile_row_number := false\b", "", text)  # as read_parquet() writes it
    named = re.search(rf"\b({'|'.join(_POSITIONS)})\b|\b({'|'.join(functions)})\"?\s*\(", text, re.IGNORECASE)
    if named is not None:
        return (named[1] or f"{named[2]}()").lower()
    if _lists_a_file_twice(text):
        return "a file that is listed twice"
    scanned = set()
    while waiting:
        node = waiting.pop()
        name, about = node["name"].strip(), node.get("extra_info", {})
        if name not in _ROW_BY_ROW | _SCANS:
            return str(name)
        if name in _SCANS | {"CTE_SCAN"}:
            table = about.get("Table") or about.get("CTE Index")
            if table in scanned:
                return "a second scan of the same table" if table else "scans of several files or objects"
            scanned.add(table)
        waiting += node["children"]
    return None


def _lists_a_file_twice(text: str) -> bool:
    """Return whether a list of files in a query, such as read_parquet(['a.parquet', 'a*.parquet']), has one twice."""
    for listed in re.findall(r"\b(?:read_\w+|\w+_scan)\s*\(\s*\[((?:\s*'(?:[^']|'')*'\s*,?)*)", text, re.IGNORECASE):
        names = [name.replace("''", "'") for name in re.findall(r"'((?:[^']|'')*)'", listed)]
        found = [os.path.realpath(file) for name in names for file in (glob.glob(name, recursive=True) or [name])]
        if len(set(found)) < len(found):
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------
# Databases
@dataclass(frozen=True)
class Query:
    """A SQL query on a database or warehouse, run again in every pass.

    gaussmix cannot examine the plan of a database, so that ``gm.ReadOptions(row_by_row=True)`` must declare that each
    stored row affects at most one row of the result. The rows of two passes are compared by a keyed hash.

    Parameters
    ----------
    connect : callable
        Opens a connection of an ADBC driver, whose results are read in Arrow batches, or of any other DB-API driver,
        whose values are converted one by one to the declared types.
    sql : str
        A SELECT statement. All of its columns are transferred.

    Examples
    --------
    >>> import sqlite3, tempfile, pathlib
    >>> import gaussmix as gm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "clinic.db"
    >>> with sqlite3.connect(path) as connection:
    ...     _ = connection.execute("create table stays (age real, cost real)")
    ...     _ = connection.executemany("insert into stays values (?, ?)", [(a % 90, a % 7) for a in range(5000)])
    >>> stays = gm.Query(lambda: sqlite3.connect(path), "select age, cost from stays where age >= 18")
    >>> options = gm.ReadOptions(row_by_row=True)
    >>> schema = {"age": [18, 90], "cost": [0, 7]}
    >>> gm.release(stays, schema, epsilon=1.0, delta=1e-6, reading=options).certificate.epsilon
    1.0
    """

    connect: Callable[[], Any]
    sql: str

    def __post_init__(self) -> None:
        if not callable(self.connect) or not isinstance(self.sql, str):
            raise ArgumentTypeError(
                "Query requires a function that opens a connection and the text of an SQL query, got "
                f"{type(self.connect).__name__} and {type(self.sql).__name__}."
            )


class DatabaseTable(Table):
    """The result of a `Query`."""

    ordered, computed = False, True

    def __init__(self, data: Query, options: ReadOptions) -> None:
        super().__init__(data, options)
        self.label = "the query"

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of the result."""
        if request.examine_plan:
            raise ArgumentError(
                "gaussmix cannot examine the query plan of a database. Declare with row_by_row=True that each stored "
                "row affects at most one row of the result, as in scans, filters and projections."
            )
        for batch in running(lambda: ahead(self._found(request)), self.label, keep=GaussmixError):
            yield from sliced(valid(batch, self.label), request.rows)

    def _found(self, request: Request) -> Generator[pa.RecordBatch]:
        """Run the query and yield the requested columns."""
        with closing(self._data.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._data.sql)
            if hasattr(cursor, "fetch_record_batch"):  # of ADBC
                reader = cursor.fetch_record_batch()
                check_columns(reader.schema.names, request.columns, self.label)
                yield from (batch.select(request.columns) for batch in reader)
                return
            names = [description[0] for description in cursor.description]
            check_columns(names, request.columns, self.label)
            places = [names.index(name) for name in request.columns]
            while rows := cursor.fetchmany(request.rows):
                columns = [
                    column_of([row[place] for row in rows], request.types.get(name), name=name, where=self.label)
                    for name, place in zip(request.columns, places, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=request.columns)

    @property
    def origins(self) -> tuple[Any, ...]:
        """The query: the same text through the same function is the same table."""
        return (FileOrigin(Path(f"connection {id(self._data.connect):x}"), self._data.sql),)

    @property
    def described(self) -> list[str]:
        """The text of the query: another process has another function that opens the connection."""
        return [f"{type(self._data).__name__} {self._data.sql.strip()}"]


# ---------------------------------------------------------------------------------------------------------------
# Clusters
class ClusterTable(Table):
    """A partitioned table on a cluster. `read` collects its rows locally; `sum_partitions` does not."""

    ordered, computed = False, True

    @abstractmethod
    def sum_partitions(
        self, columns: list[str], build: Callable[[Any, int], A], empty: A, *, by: str | None = None
    ) -> A:
        """Return Σ build(partition, its number), in one job.

        ``build`` is sent to the workers with all that it holds; ``empty`` takes its place for empty partitions. With
        ``by`` rows with the same value in that column are in one partition.
        """

    @abstractmethod
    def by_unit(self, unit: str, columns: list[str], build: Callable[[Any], pa.RecordBatchReader]) -> Any:
        """Return a frame of the engine: ``build`` of partitions in which the rows of each unit are together.

        It is computed once. ``build`` gets an iterator of batches and returns one.
        """

    def refuse_persist(self) -> None:
        """Raise an error where storing rows has no effect."""
        if self.options.persist:
            raise ArgumentError("persist has an effect only on releases and moments. Omit it.")

    def close(self) -> None:
        """Delete the rows that workers have stored."""


def _computed(run: Callable[[], Any], where: str) -> Any:
    """Return the result of an engine. Its own errors may quote values and are replaced; those of gaussmix are kept."""
    try:
        return run()
    except MemoryError:
        raise
    except GaussmixError as error:
        found: Exception = error
    except Exception as error:
        text = str(error)
        cause = next((cause for pattern, cause in _CAUSES.items() if re.search(pattern, text)), None)
        found = DataError(f"{where} failed" + (f": {cause}" if cause else ". Run it separately for the details."))
    found.__cause__ = found.__context__ = None
    raise found from None


_CAUSES = {
    r"No module named '(gaussmix|pyarrow|numpy|opendp|narwhals)": (
        "a worker lacks gaussmix or a package that it needs. Install gaussmix in the environment of the workers, in "
        "the version of this process."
    ),
    r"spark\.driver\.maxResultSize": (
        "the sums of all partitions exceed spark.driver.maxResultSize. Increase it, or use fewer partitions."
    ),
    r"PYTHON_VERSION_MISMATCH|different version .* than that in driver|Cannot run program \"python": (
        "workers and driver run different versions of Python. Set PYSPARK_PYTHON to the same version on all of them."
    ),
    r"OutOfMemoryError|Java heap space|KilledWorker": (
        "a worker ran out of memory or was killed. Use more partitions, or workers with more memory."
    ),
}
"""Causes of failed jobs, recognised by words of the engine's message, which may quote values and is not shown."""


class DaskTable(ClusterTable):
    """A Dask data frame, or (Dask array, names)."""

    @property
    def _has_arrays(self) -> bool:
        return isinstance(self._data, tuple)

    def sum_partitions(
        self, columns: list[str], build: Callable[[Any, int], A], empty: A, *, by: str | None = None
    ) -> A:
        """Return the sum over partitions, computed by a tree of tasks."""
        from dask.delayed import delayed

        parts = self._partitions(columns) if by is None else list(self._shuffled(by, columns).to_delayed())
        of_part = delayed(functools.partial(_build, build=build, empty=empty), pure=False)
        add = delayed(operator.add, pure=False)
        sums = [of_part(part, number) for number, part in enumerate(parts)]
        while len(sums) > 1:  # a tree: no worker holds more than a few sums
            pairs = (sums[i : i + 2] for i in range(0, len(sums), 2))
            sums = [add(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        if not sums:
            return empty
        total: A = _computed(sums[0].compute, "The Dask collection")
        return total

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all partitions, computed by one job.

        Put together they would get one type, which Arrow would guess from all rows.
        """
        from dask.base import compute

        kind = ArrayTable if self._has_arrays else FrameTable
        parts = self._partitions(request.columns)
        for part in running(lambda: compute(*parts), self.label):
            yield from kind(part, self.options).read(request)

    def by_unit(self, unit: str, columns: list[str], build: Callable[[Any], pa.RecordBatchReader]) -> Any:
        """Return a data frame, after a shuffle by unit."""
        run, shuffled = functools.partial(_frame_build, build=build), self._shuffled(unit, columns)
        found = shuffled.map_partitions(run, meta=run(shuffled._meta))
        return _computed(found.persist, "The Dask collection")

    def _shuffled(self, unit: str, columns: list[str]) -> Any:
        """Return some columns of the data frame, with the rows of each unit in one partition."""
        if self._has_arrays:
            raise ArgumentError("A privacy unit requires a table with column names and types. Pass a Dask data frame.")
        names = list(dict.fromkeys([unit, *columns]))
        check_columns(list(self._data.columns), names, "the table")
        frame = self._data[names]
        if frame[unit].dtype.kind != "f":
            return frame.shuffle(on=unit)
        key = "gaussmix shuffle key"  # -0.0 and 0.0 are one unit
        return frame.assign(**{key: frame[unit] + 0.0}).shuffle(on=key)[names]

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns, without reading rows."""
        if self._has_arrays:
            array, names = self._data
            return pa.schema([(name, pa.from_numpy_dtype(array.dtype)) for name in names])
        return LazyTable(self._data, self.options).arrow_schema()

    def _partitions(self, columns: list[str]) -> list[Any]:
        """Return delayed partitions: frames, or (array, names)."""
        if not self._has_arrays:
            check_columns(list(self._data.columns), columns, "the table")
            return list(self._data[columns].to_delayed())
        array, names = self._data
        if array.ndim != 2:
            raise not_one_name_per_column(array, list(names))
        check_columns(list(names), columns, "the table")
        return [(block, list(names)) for block in array.rechunk({1: -1}).to_delayed()[:, 0]]

    @property
    def origins(self) -> tuple[Any, ...]:
        """The collection."""
        return (self._data[0] if self._has_arrays else self._data,)


def _frame_build(part: Any, *, build: Callable[[Any], pa.RecordBatchReader]) -> Any:
    """Return ``build`` of one partition as a pandas frame."""
    rows = pa.Table.from_pandas(part, preserve_index=False)
    return build(iter(rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)])).read_all().to_pandas()


def _build(part: Any, number: int, *, build: Callable[[Any, int], A], empty: A) -> A:
    """Return the sum of one partition."""
    rows = part[0] if isinstance(part, tuple) else part
    return build(part, number) if len(rows) else empty


_RESULT = pa.schema([("part", pa.int32()), ("sums", pa.binary())])
_GROUPS = 4  # more partitions than its square are added in groups on the workers


_features: weakref.WeakSet[Any] = weakref.WeakSet()  # data frames with one row for each unit, made here


class SparkTable(ClusterTable):
    """A Spark data frame."""

    def __init__(self, data: Any, options: ReadOptions) -> None:
        super().__init__(data, options)
        self._plan = _spark_plan(data)  # here, because other threads have no session whose settings apply
        self._stored: dict[tuple[str, ...], Any] = {}  # by the columns, and the unit by which they were shuffled

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield all rows, collected locally."""
        self.refuse_persist()
        self._examine()
        return LazyTable(self._data, self.options).read(request)

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns, without reading rows."""
        return LazyTable(self._data, self.options).arrow_schema()

    def by_unit(self, unit: str, columns: list[str], build: Callable[[Any], pa.RecordBatchReader]) -> Any:
        """Return a data frame, after a shuffle by unit, with a local checkpoint."""
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        names = list(dict.fromkeys([unit, *columns]))
        check_columns(list(self._data.columns), names, "the table")
        self.refuse_persist()
        self._examine()
        wanted = _shuffled(self._data.select(*map(_spark_name, names)), unit)
        empty = pa.RecordBatch.from_pylist([], to_arrow_schema(wanted.schema))
        schema = from_arrow_schema(build(iter([empty])).schema)
        found = wanted.mapInArrow(functools.partial(_spark_rows, build=build), schema)
        table = _computed(found.localCheckpoint, "The Spark data frame")
        _features.add(table)
        return table

    def _examine(self) -> None:
        """Reject a plan whose rows are not fixed, or in which one stored row may change several rows of the result."""
        nodes, volatile = self._plan
        unfixed = next((name for name in nodes if name in _SPARK_UNFIXED), volatile)
        if unfixed is not None:
            raise ArgumentError(
                f"The query plan of the Spark data frame contains {unfixed}, so Spark may return different rows each "
                "time it reads the table or retries a task. Write the rows to a table and pass that table. Caching is "
                "not enough."
            )
        found = next((name for name in nodes if name not in _SPARK_ROW_BY_ROW), None)
        if found is not None and not self.options.row_by_row and not any(self._data is own for own in _features):
            raise ArgumentError(
                f"The query plan of the Spark data frame contains {found}, so one stored row may change several rows "
                "of the result. Use only scans, filters and projections; or write the rows to a table and pass that "
                "table, if its rows are the privacy unit; or declare with row_by_row=True that each stored row "
                "affects at most one row of the result."
            )

    def sum_partitions(
        self, columns: list[str], build: Callable[[Any, int], A], empty: A, *, by: str | None = None
    ) -> A:
        """Return the sum over partitions by one job.

        A task counts once however often it was run. A job for every partition (``toLocalIterator``) would recompute
        lost partitions, which may then hold rows of another one if the order of the table is not fixed. Sums carry the
        numbers of their partitions, each of which must be there once; with Spark Connect, which does not report how
        many partitions there are, a missing last one is not found. Where there are many, a second stage adds groups of
        them on the workers, so that few results reach the driver. A shuffle by unit puts a row into a partition by its
        own value, whenever it is repeated.
        """
        data = self._data
        check_columns(list(data.columns), columns, "the table")
        self._examine()
        run = functools.partial(_spark_build, build=build, empty=empty, unpack=self.options.persist)

        def collected() -> tuple[list[Any], int | None]:
            sums = self._wanted(columns, by).mapInArrow(run, "part int, sums binary")
            if type(sums).__module__.startswith("pyspark.sql.connect"):
                together = sums.repartition(_GROUPS, sums["part"] % _GROUPS).mapInArrow(_added_rows, sums.schema)
                return [row["sums"] for row in together.collect()], None
            rdd = sums.rdd  # one plan, carried out once
            number = rdd.getNumPartitions()
            if number <= _GROUPS**2:
                return [row["sums"] for row in rdd.collect()], number
            groups = math.isqrt(number)
            return rdd.map(_pair).partitionBy(groups, int).mapPartitions(_added_pairs).collect(), number

        results, expected = _computed(collected, "The Spark data frame")
        found = [pickle.loads(bytes(packed)) for packed in results]
        for sums in found:
            if isinstance(sums, GaussmixError):
                raise sums
        parts = sorted(part for sums in found for part in sums.parts)
        if parts != list(range(len(parts) if expected is None else expected)):
            raise DataError("Spark returned a partition twice or not at all, so nothing was released. Try again.")
        return functools.reduce(operator.add, (sums.total for sums in found), empty)

    def _wanted(self, columns: list[str], by: str | None) -> Any:
        """Return some columns, shuffled by unit if there is one; with ``persist`` as a column of stored batches.

        Spark converts rows between its format and Arrow's at every reading. A stored batch is one value to Spark.
        """
        found = self._stored.get((*columns, by or ""))
        if found is None:
            found = self._data.select(*map(_spark_name, columns))
            if by is not None:
                found = _shuffled(found, by)
            if self.options.persist:
                from pyspark import StorageLevel

                # Spark stores equal plans once: the release that ended first would delete the rows of another one.
                packed = functools.partial(_packed, owner=f"{time.time_ns()} {id(self)}")
                found = found.mapInArrow(packed, "rows binary").persist(StorageLevel.DISK_ONLY)
                self._stored[*columns, by or ""] = found
        return found

    def close(self) -> None:
        """Delete the rows that executors have stored. A failure is a warning, so that it does not lose a release."""
        while self._stored:
            _, stored = self._stored.popitem()
            try:
                stored.unpersist(blocking=True)
            except Exception:  # of Spark's, whose messages may quote values
                warnings.warn(
                    "Spark could not delete the rows stored for persist=True. They are deleted when the Spark "
                    "application ends.",
                    UserWarning,
                    stacklevel=frames_to_the_caller(),
                )


def _packed(batches: Iterator[pa.RecordBatch], owner: str) -> Iterator[pa.RecordBatch]:
    """Yield each batch as one value. ``owner`` distinguishes the plan from those of other releases."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `_packed` made."""
    return chain.from_iterable(pa.ipc.open_stream(rows.as_buffer()) for batch in batches for rows in batch["rows"])


@dataclass(frozen=True)
class _Parts:
    """The sum over some partitions, and their numbers. **Sensitive**."""

    parts: tuple[int, ...]
    total: Any

    def __add__(self, other: _Parts) -> _Parts:
        return _Parts(self.parts + other.parts, self.total + other.total)


def _added(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the sum of the sums of several partitions, or one of their errors; nothing for no partition."""
    total: _Parts | GaussmixError | None = None
    for found in map(pickle.loads, packed):
        if total is None or isinstance(found, GaussmixError):
            total = found
        elif isinstance(total, _Parts):
            total = total + found
    if total is not None:
        yield pickle.dumps(total)


def _pair(row: Any) -> tuple[int, bytes]:
    return row["part"], bytes(row["sums"])


def _added_pairs(pairs: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    return _added(packed for _, packed in pairs)


def _added_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for total in _added(packed.as_py() for batch in batches for packed in batch["sums"]):
        yield pa.RecordBatch.from_pydict({"part": [0], "sums": [total]}, schema=_RESULT)


def _spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _shuffled(data: Any, unit: str) -> Any:
    """Return a data frame in which the rows of each unit are in one partition, whatever Spark optimises."""
    from pyspark.sql import functions

    key = functions.col(_spark_name(unit))
    if dict(data.dtypes)[unit] in ("float", "double"):  # -0.0 and 0.0 are one unit
        key = key.cast("bigint")
    number = data.sparkSession.conf.get("spark.sql.shuffle.partitions")
    return data.repartition(int(number) if number.isdigit() else _PARTITIONS, key)


def _spark_rows(
    batches: Iterator[pa.RecordBatch], *, build: Callable[[Any], pa.RecordBatchReader]
) -> Iterator[pa.RecordBatch]:
    """Yield ``build`` of one partition."""
    first = next(batches, None)
    if first is not None:
        yield from build(chain([first], batches))


def _spark_plan(data: Any) -> tuple[list[str], str | None]:
    """Return the operators of a data frame before optimisation, and a function whose value is not fixed by its row.

    The optimiser hides what was cached. What else may combine rows is appended to the operators: subqueries, functions
    in Python, which may see several rows, and a path that is read twice.
    """
    limits = ("spark.sql.debug.maxToStringFields", "spark.sql.maxMetadataStringLength")
    text, conf = io.StringIO(), data.sparkSession.conf
    try:
        before = {name: conf.get(name) for name in limits}
        for name in limits:
            conf.set(name, str(2**31 - 1))
        try:
            with contextlib.redirect_stdout(text):
                data.explain(extended=True)
        finally:
            for name, value in before.items():
                conf.set(name, value)
        _, shown = text.getvalue().split("== Analyzed Logical Plan ==\n")
        plan, physical = shown.split("\n== Optimized Logical Plan ==\n")
        if "more fields" in plan:
            raise ValueError
    except Exception:  # of Spark's, whose messages may quote values
        return ["operators that Spark does not show"], None
    _, *lines = plan.split("\n")  # the first one lists the columns
    nodes = [match[1] for line in lines if (match := re.match(r"[ :+-]*([A-Za-z][A-Za-z0-9]*)", line))]
    functions = re.search(rf"\b({'|'.join(_SPARK_VOLATILE)})\(", "\n".join(lines), re.IGNORECASE)
    if sum(name in _SPARK_SCANS for name in nodes) > 1:
        nodes.append("a subquery or a second scan")
    if re.search(r"\)#\d+", plan):
        nodes.append("a function in Python")
    for found in re.findall(r"Location: \w+\(\d+ paths\)\[([^\]]*)\]", physical):
        paths = found.split(", ")
        if len(set(paths)) < len(paths):
            nodes.append("the same path twice")
    return nodes, None if functions is None else f"{functions[1].lower()}()"


def _spark_build(
    batches: Iterator[pa.RecordBatch], *, build: Callable[[Any, int], A], empty: A, unpack: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of one partition with its number, also if it is empty, so that a missing one is detected.

    An error of gaussmix is returned in the place of the sums: Spark would pass it on in the text of a traceback.
    """
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    number = context.partitionId()
    rows = (batch for batch in (_unpacked(batches) if unpack else batches) if batch.num_rows)
    first = next(rows, None)
    sums: _Parts | GaussmixError
    try:
        sums = _Parts((number,), empty if first is None else build(chain([first], rows), number))
    except GaussmixError as error:
        sums = error
        collections.deque(batches, maxlen=0)  # Spark expects its rows to be read
    packed = {"part": [number], "sums": [pickle.dumps(sums)]}
    yield pa.RecordBatch.from_pydict(packed, schema=_RESULT)
