"""One row for each privacy unit, declared features of all rows with the same id; and deviations from means of units.

>>> rows = [("a", 1, 10.0), ("b", 4, 70.0), ("a", 2, 20.0), ("a", 3, 90.0)]
>>> visits = pa.table(list(map(pa.array, zip(*rows, strict=True))), names=["patient", "day", "cost"])
>>> features = {"visits": count(), "cost": mean("cost", bounds=(0, 60)), "last": last("cost", by="day")}
>>> patients = per_unit(visits, unit="patient", **features)
>>> patients.to_arrow().sort_by("patient").to_pylist()
[{'patient': 'a', 'visits': 3, 'cost': 30.0, 'last': 90.0}, {'patient': 'b', 'visits': 1, 'cost': 60.0, 'last': 70.0}]

**Privacy.** A feature of a unit is a function of the rows of that unit alone, and every unit has exactly one row. So
the features of two tables that differ by one unit, whatever the number of its rows, differ by one row: row-level
privacy of the features is unit-level privacy of the rows. No contribution is bounded, and the rows of the features are
independent if the units are, as intervals for a population assume. The same holds for a join with a table that has one
row for each unit.

Sums are exact integers, so that no other unit and no order of the rows changes a feature. Features are computed once,
by DuckDB, in bounded memory, with temporary files that only their owner can read; the result is deleted with the table.
Spark and Dask data frames are aggregated on their workers, which need DuckDB.
"""

from __future__ import annotations

import ast
import builtins
import functools
import math
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussmix import _validation as check
from gaussmix._files import refuse_suffix, reserve
from gaussmix.data.contributions import unit_texts
from gaussmix.data.encode import decimal_floats, is_text
from gaussmix.data.engines import DaskTable, SparkTable
from gaussmix.data.readers import PARQUET, FileTable
from gaussmix.data.source import ReadOptions, Table
from gaussmix.data.table import open_table
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataError,
    DataTypeError,
    GaussmixError,
    MissingPackageError,
)

__all__ = [
    "Feature",
    "WithinTable",
    "all",
    "any",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "parse_feature",
    "per_unit",
    "sum",
    "within",
]

Kind = Literal["all", "any", "count", "first", "last", "max", "mean", "min", "sum"]

_MEMORY = "512MB"  # of DuckDB, which writes to a temporary directory what is beyond


# ---------------------------------------------------------------------------------------------------------------
# Features
@dataclass(frozen=True)
class Feature:
    """A feature of a privacy unit. Missing values of a column are left out; a unit without values has none.

    Attributes
    ----------
    kind : str
        The name of the function that makes it, such as `mean`.
    column : str or None
        The column, None for `count`.
    by : str or None
        For `first` and `last`: the column that orders the rows of a unit. Among rows with equal values in it, the one
        with the smallest (first) or largest (last) value counts.
    bounds : (float, float) or None
        For `mean` and `sum`: values are clamped to these bounds and rounded to 2⁻⁵⁰ of the larger one. Their sum is
        then an exact integer, whatever the order of the rows.
    """

    kind: Kind
    column: str | None = None
    by: str | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("column", "by"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ArgumentTypeError(f"{name} must be the name of a column, got {type(value).__name__}.")
        if self.bounds is not None:
            try:
                lower, upper = map(float, self.bounds)
            except (TypeError, ValueError):
                raise ArgumentTypeError(
                    f"bounds must be a pair of numbers (lower, upper), got {self.bounds!r}."
                ) from None
            if not lower < upper:
                raise ArgumentError(f"bounds must be (lower, upper) with lower < upper, got {self.bounds!r}.")
            if not _SMALLEST <= builtins.max(abs(lower), abs(upper)) <= 1 / _SMALLEST:
                raise ArgumentError(f"bounds must be finite, and one of them at least 1e-270, got {self.bounds!r}.")
            object.__setattr__(self, "bounds", (lower, upper))

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return [name for name in (self.column, self.by) if name is not None]

    def sql(self, names: Mapping[str, str]) -> str:
        """Return the aggregate of DuckDB, with the ``names`` of columns there. No order of the rows changes it."""
        if self.column is None:
            return "count(*)"
        value = names[self.column]
        if self.by is not None:
            order, pick = names[self.by], "max" if self.kind == "last" else "min"
            known = f"{value} IS NOT NULL AND {order} IS NOT NULL"
            return f"({pick}(struct_pack(place := {order}, found := {value})) FILTER ({known})).found"
        if self.bounds is not None:
            units, step = _units(value, self.bounds)
            share = f" / count({value})" if self.kind == "mean" else ""
            # FILTER, because DuckDB's least and greatest leave missing values out and return the bound.
            return f"(sum({units}) FILTER ({value} IS NOT NULL))::DOUBLE * {step!r}{share}"
        if self.kind in ("all", "any"):
            return f"{'bool_and' if self.kind == 'all' else 'bool_or'}({value}::BOOLEAN)"
        return f"{self.kind}({value})"

    def text_type(self, name: str) -> pa.DataType:
        """Return the type in which a column is read from files without types, such as CSV."""
        if name == self.by:
            return pa.timestamp("us")  # numbers would be sorted as text: they need a typed file
        return pa.bool_() if self.kind in ("all", "any") else pa.float64()


_SMALLEST = 1e-270  # largest bound of sums: the step of their exact arithmetic is a normal number


def _units(value: str, bounds: tuple[float, float]) -> tuple[str, float]:
    """Return an expression that clamps a value and rounds it to whole steps, whose sums are exact, and the step."""
    lower, upper = bounds
    step = math.ldexp(1.0, math.frexp(builtins.max(abs(lower), abs(upper)))[1] - 50)
    return f"round(least(greatest({value}::DOUBLE, {lower!r}), {upper!r}) / {step!r})::HUGEINT", step


def count() -> Feature:
    """Return the number of rows of the unit."""
    return Feature("count")


def mean(column: str, *, bounds: tuple[float, float]) -> Feature:
    """Return the mean of a column over the rows of the unit, after clamping values to ``bounds``."""
    return Feature("mean", column, bounds=bounds)


def sum(column: str, *, bounds: tuple[float, float]) -> Feature:
    """Return the sum of a column over the rows of the unit, after clamping values to ``bounds``."""
    return Feature("sum", column, bounds=bounds)


def min(column: str) -> Feature:
    """Return the smallest value of a column."""
    return Feature("min", column)


def max(column: str) -> Feature:
    """Return the largest value of a column."""
    return Feature("max", column)


def any(column: str) -> Feature:
    """Return whether a boolean column is true in any row of the unit."""
    return Feature("any", column)


def all(column: str) -> Feature:
    """Return whether a boolean column is true in all rows of the unit."""
    return Feature("all", column)


def first(column: str, *, by: str) -> Feature:
    """Return the value of a column in the first row of the unit, in the order of the column ``by``."""
    return Feature("first", column, by=by)


def last(column: str, *, by: str) -> Feature:
    """Return the value of a column in the last row of the unit, in the order of the column ``by``."""
    return Feature("last", column, by=by)


_MAKERS: dict[str, Callable[..., Feature]] = {"all": all, "any": any, "count": count, "first": first, "last": last}
_MAKERS |= {"max": max, "mean": mean, "min": min, "sum": sum}


def parse_feature(text: str) -> tuple[str, Feature]:
    """Return the name and the feature that a text declares, such as ``age=last(age, by=date)``.

    >>> parse_feature("bp=mean(pressure, bounds=(60, 220))")
    ('bp', Feature(kind='mean', column='pressure', by=None, bounds=(60.0, 220.0)))
    """
    try:
        name, call = text.split("=", 1)
        parsed = ast.parse(call.strip(), mode="eval").body
        if not (name.strip().isidentifier() and isinstance(parsed, ast.Call) and isinstance(parsed.func, ast.Name)):
            raise SyntaxError
        words = [_argument(argument) for argument in parsed.args]
        named = {str(keyword.arg): _argument(keyword.value) for keyword in parsed.keywords}
        return name.strip(), _MAKERS[parsed.func.id](*words, **named)
    except (ArgumentError, ArgumentTypeError):
        raise
    except (KeyError, SyntaxError, TypeError, ValueError):
        raise ArgumentError(
            f"A feature must be written as name=function(column), got {text!r}. Functions: {', '.join(_MAKERS)}; for "
            "example visits=count(), age=last(age, by=date), bp=mean(pressure, bounds=(60, 220))."
        ) from None


def _argument(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


# ---------------------------------------------------------------------------------------------------------------
# Tables
def per_unit(
    data: Any,
    *,
    unit: str,
    join: Any = None,
    reading: ReadOptions | None = None,
    **features: Feature,
) -> Any:
    """Return a table with one row for each privacy unit, for :func:`gaussmix.release`.

    A release of its rows protects whole units, and its certificate says so. A ledger must have this privacy unit; it
    then covers features and releases of ``data`` with the same unit together.

    Parameters
    ----------
    data : table
        The rows, several for each unit, in any order.
    unit : str
        The privacy-unit column. The result has it too, as text.
    join : table, optional
        A table with one row per unit, such as a table of persons if the rows are visits. All of its columns are
        in the result, and its units are the units of the result; `count` is 0 for units without rows in ``data``.
    reading : ReadOptions, optional
        How the tables are read.
    **features : Feature
        Features by name: `count`, `mean`, `sum`, `min`, `max`, `any`, `all`, `first`, `last`.

    Returns
    -------
    table
        A `UnitTable`; for a Spark or Dask data frame, a data frame of the same engine, computed once.
    """
    if not features:
        raise ArgumentError("At least one feature is required, such as visits=gm.count().")
    for name, feature in features.items():
        check.instance(Feature, **{name: feature})
        if name == unit:
            raise ArgumentError(f"A feature cannot have the name of the privacy unit, {unit!r}.")
    options = ReadOptions() if reading is None else check.instance(ReadOptions, reading=reading)
    table = open_table(data, options)
    table.check_unit(unit)
    if isinstance(table, SparkTable | DaskTable):
        if join is not None:
            raise ArgumentError(
                "join is not supported for Spark and Dask tables. Join the tables in Spark or Dask first."
            )
        return table.by_unit(unit, _columns(features), functools.partial(_features, unit=unit, features=features))
    joined = None if join is None else open_table(join, options)
    computed = table.computed or (joined is not None and joined.computed)
    if joined is not None:
        joined.check_unit(unit)
    try:
        # row_by_row is about queries: with one, the other table may be stored.
        found = _read(table, unit, features, examine_plan=table.computed or not computed)
        rows = _features(found, unit=unit, features=features, join=joined)
        return UnitTable(rows, unit, computed=computed)
    except GaussmixError as error:
        error.__cause__ = error.__context__ = None  # the errors of DuckDB quote values
        raise


class _ComputedTable(FileTable):
    """A table that DuckDB computed, in a temporary Parquet file. **Sensitive**."""

    def __init__(self, rows: pa.RecordBatchReader, *, computed: bool) -> None:
        handle, name = tempfile.mkstemp(prefix="gaussmix-", suffix=".parquet")  # mode 0600
        self._removed = weakref.finalize(self, _remove, handle, name)
        with pq.ParquetWriter(name, rows.schema) as writer:
            for batch in rows:
                writer.write_batch(batch)
        super().__init__(name, ReadOptions())
        self.computed = computed

    @property
    def described(self) -> list[str]:
        """The kind of table: its file has a random name."""
        return [type(self).__name__]

    def to_arrow(self) -> pa.Table:
        """Return all rows. **Sensitive**."""
        return pq.read_table(self._data)


class UnitTable(_ComputedTable):
    """A table with one row for each unit. **Sensitive**."""

    def __init__(self, rows: pa.RecordBatchReader, unit: str, *, computed: bool) -> None:
        super().__init__(rows, computed=computed)
        self.label, self.unit_column = "the table of features", unit

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write a Parquet file that only its owner can read, **as sensitive as the rows**."""
        refuse_suffix(path, own=PARQUET, kind="a Parquet file")
        with reserve(path, os.stat(self._data).st_size, force=force) as output:
            return output.commit(Path(self._data).read_bytes(), mode=0o600)


class WithinTable(_ComputedTable):
    """Rows as deviations from the means of their unit. **Sensitive**.

    Attributes
    ----------
    bounds : dict
        Bounds of the deviations, which follow from the declared bounds: a schema for :func:`gaussmix.release`.
    """

    def __init__(
        self, rows: pa.RecordBatchReader, unit: str, bounds: dict[str, tuple[float, float]], *, computed: bool
    ) -> None:
        super().__init__(rows, computed=computed)
        self.label, self.within, self.bounds = "the table of deviations", unit, bounds


def _remove(handle: int, name: str) -> None:
    os.close(handle)
    Path(name).unlink(missing_ok=True)


def within(
    data: Any, *, unit: str, columns: Mapping[str, tuple[float, float]], reading: ReadOptions | None = None
) -> WithinTable:
    r"""Return the rows as deviations from the means of their unit, for regressions with fixed effects of units.

    Least squares on the deviations is least squares with an indicator for every unit (Frisch, Waugh and Lovell):
    :math:`\ddot x_{it} = x_{it} - \bar x_i`, with values clamped to their bounds first. Units with one row have
    deviations of 0 and add nothing to the slopes.

    **Privacy.** The deviations of a unit are functions of the rows of that unit alone. Contributions are bounded after
    them, so that a unit, whatever the number of its rows, changes the sums of a release by no more than those of any
    other table with this privacy unit. One row changes all deviations of its unit: a release requires this unit, and
    row-level privacy is refused.

    Parameters
    ----------
    data : table
        The rows, several for each unit, in any order; not on Spark or Dask.
    unit : str
        The privacy-unit column.
    columns : mapping of str to (float, float)
        Response and predictors, numbers or booleans, with bounds to which values are clamped. Rows with a missing value
        in one of them are left out.
    reading : ReadOptions, optional
        How the table is read.

    Returns
    -------
    WithinTable
        Its ``bounds``, from -(upper - lower) to upper - lower, are a schema.

    Examples
    --------
    >>> rows = {"firm": ["a", "a", "b", "b"], "year": [1, 3, 2, 2], "sales": [10.0, 30.0, 5.0, 9.0]}
    >>> found = within(rows, unit="firm", columns={"year": (0, 5), "sales": (0, 50)})
    >>> found.bounds
    {'year': (-5.0, 5.0), 'sales': (-50.0, 50.0)}
    >>> sorted(zip(*found.to_arrow().select(["year", "sales"]).to_pydict().values()))
    [(-1.0, -10.0), (0.0, -2.0), (0.0, 2.0), (1.0, 10.0)]
    """
    if not columns or unit in columns:
        raise ArgumentError(
            f"columns must not be empty and must not contain the privacy unit {unit!r}, got {list(columns)}."
        )
    declared = {name: Feature("mean", name, bounds=pair).bounds for name, pair in columns.items()}
    bounds = {name: pair for name, pair in declared.items() if pair is not None}
    if len(bounds) < len(columns):
        name = next(name for name in columns if name not in bounds)
        raise ArgumentTypeError(f"columns must map each column to its bounds (lower, upper), got None for {name!r}.")
    options = ReadOptions() if reading is None else check.instance(ReadOptions, reading=reading)
    table = open_table(data, options)
    table.check_unit(unit)
    if isinstance(table, SparkTable | DaskTable):
        raise ArgumentError("within is not supported for Spark and Dask tables. Write the rows to Parquet files first.")

    def query(_: Any, names: Mapping[str, str], failed: list[GaussmixError]) -> tuple[str, list[str]]:
        units = {name: _units(names[name], pair) for name, pair in bounds.items()}
        known = " AND ".join(f"{names[name]} IS NOT NULL" for name in bounds)
        # p·x - Σx is an exact integer, so that no order of the rows changes a deviation.
        deviations = ", ".join(
            f"(count(*) OVER own * {whole} - sum({whole}) OVER own)::DOUBLE * {step!r} / count(*) OVER own AS "
            f"{names[name]}"
            for name, (whole, step) in units.items()
        )
        sql = f"SELECT unit, {deviations} FROM gaussmix_rows WHERE {known} WINDOW own AS (PARTITION BY unit)"
        return sql, [unit, *bounds]

    types = {**dict.fromkeys(bounds, pa.float64()), unit: pa.string()}
    try:
        with closing(table.batches([unit, *bounds], types=types, examine_plan=True)) as found:
            width = {name: (lower - upper, upper - lower) for name, (lower, upper) in bounds.items()}
            return WithinTable(_computed(found, unit, list(bounds), query), unit, width, computed=table.computed)
    except GaussmixError as error:
        error.__cause__ = error.__context__ = None  # the errors of DuckDB quote values
        raise


def _columns(features: Mapping[str, Feature]) -> list[str]:
    return list(dict.fromkeys(name for feature in features.values() for name in feature.columns))


def _read(table: Table, unit: str, features: Mapping[str, Feature], *, examine_plan: bool) -> Iterator[pa.RecordBatch]:
    """Yield the columns that features need, the unit as text."""
    types = {name: feature.text_type(name) for feature in features.values() for name in feature.columns}
    columns = [unit, *(name for name in _columns(features) if name != unit)]
    with closing(table.batches(columns, types={**types, unit: pa.string()}, examine_plan=examine_plan)) as found:
        yield from found


def _features(
    batches: Iterable[pa.RecordBatch], *, unit: str, features: Mapping[str, Feature], join: Table | None = None
) -> pa.RecordBatchReader:
    """Return one row for each unit, from rows in any order."""

    def query(connection: Any, names: Mapping[str, str], failed: list[GaussmixError]) -> tuple[str, list[str]]:
        chosen = [f"{own.sql(names)} AS f{place}" for place, own in enumerate(features.values())]
        found = f"SELECT unit, {', '.join(chosen)} FROM gaussmix_rows GROUP BY unit"
        return (found, [unit, *features]) if join is None else _joined(connection, found, unit, features, join, failed)

    return _computed(batches, unit, [name for name in _columns(features) if name != unit], query)


def _computed(
    batches: Iterable[pa.RecordBatch],
    unit: str,
    columns: Sequence[str],
    query: Callable[[Any, Mapping[str, str], list[GaussmixError]], tuple[str, list[str]]],
) -> pa.RecordBatchReader:
    """Return the result of a query on ``gaussmix_rows``, in bounded memory.

    ``query`` gets the connection and the names of the columns there, and returns SQL and the names of the result.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingPackageError('per_unit and within require duckdb: pip install "gaussmix[duckdb]".') from None
    failed: list[GaussmixError] = []
    # DuckDB ignores case in names, and spills to files that others may read: it gets names and a folder of our own.
    names = {name: f"c{place}" for place, name in enumerate(columns)} | {unit: "unit"}
    folder = tempfile.TemporaryDirectory(prefix="gaussmix-")  # mode 0700
    config: dict[str, Any] = {"memory_limit": _MEMORY, "threads": "1", "temp_directory": folder.name}
    connection = duckdb.connect(":memory:", config=config)

    def rows(reader: pa.RecordBatchReader, shown: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            with _replaced(failed):
                yield from (batch.rename_columns(shown) for batch in reader)
        finally:
            connection.close()
            folder.cleanup()

    try:
        with _replaced(failed):
            connection.register("gaussmix_rows", _reader(batches, unit, names, failed))
            sql, shown = query(connection, names, failed)
            reader = connection.sql(sql).to_arrow_reader(2**16)
    except BaseException:
        connection.close()
        folder.cleanup()
        raise
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, shown, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, rows(reader, shown))


def _joined(
    connection: Any, query: str, unit: str, features: Mapping[str, Feature], join: Table, failed: list[GaussmixError]
) -> tuple[str, list[str]]:
    """Return the query that joins features to a table with one row for each unit, and the names of its columns."""
    own = [name for name in join.schema().names if name != unit]
    if taken := sorted({*features} & {*own}):
        raise ArgumentError(
            f"Features and columns of join must have different names, but both have {', '.join(taken)}."
        )
    names = {name: f"j{place}" for place, name in enumerate(own)} | {unit: "unit"}
    rows = join.batches([unit, *own], examine_plan=join.computed)
    connection.register("gaussmix_units", _reader(rows, unit, names, failed))
    connection.execute("CREATE TEMP TABLE units AS FROM gaussmix_units")
    if connection.execute("SELECT 1 FROM units GROUP BY unit HAVING count(*) > 1 LIMIT 1").fetchone():
        raise DataError(f"join has several rows with the same {unit}, but must have one row for each unit.")
    found = [
        f"coalesce(f{place}, 0) AS f{place}" if feature.kind == "count" else f"f{place}"
        for place, feature in enumerate(features.values())
    ]
    chosen = ", ".join(["units.unit", *(names[name] for name in own), *found])
    return f"SELECT {chosen} FROM units LEFT JOIN ({query}) AS found USING (unit)", [unit, *own, *features]


@contextmanager
def _replaced(failed: list[GaussmixError]) -> Iterator[None]:
    """Replace errors of DuckDB, which may quote values, by those of the table that it read."""
    try:
        yield
    except GaussmixError:
        raise
    except Exception:
        raise failed[0] if failed else DataError("Features cannot be computed: a column has another type.") from None


def _reader(
    batches: Iterable[pa.RecordBatch], unit: str, names: Mapping[str, str], failed: list[GaussmixError]
) -> pa.RecordBatchReader:
    """Return the batches as one stream with other names, the unit as text, numbers as floats and NaN as missing.

    Arrow does not compare the types of batches with those of their stream, and DuckDB would read the bytes of one type
    as values of another, beyond the end of a column: they are compared here.
    """

    def cleaned(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == unit:
                columns["unit"] = unit_texts(unit, column)
                continue
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if pa.types.is_null(column.type):  # the type of a column without values in one file
                column = column.cast(pa.float64() if schema is None else schema.field(names[name]).type)
            elif pa.types.is_decimal(column.type):
                column = decimal_floats(column)
            elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
                column = column.cast(pa.float64())
                column = pc.if_else(pc.is_nan(column), None, column)
            columns[names[name]] = column.cast(pa.large_string()) if is_text(column.type) else column
        found = pa.RecordBatch.from_pydict(columns)
        for name, own, other in zip(batch.schema.names, found.schema, schema or found.schema, strict=True):
            if own != other:
                raise DataTypeError(f"Column {name!r} must have the same type in all parts of the table. Cast it.")
        return found

    def found() -> Iterator[pa.RecordBatch]:
        schema = None
        try:
            for batch in batches:
                yield (own := cleaned(batch, schema))
                schema = own.schema
        except GaussmixError as error:
            failed.append(error)
            raise

    stream = found()
    head = next(stream)
    return pa.RecordBatchReader.from_batches(head.schema, chain([head], stream))
