"""Batches of DuckDB relations and queries; duckdb is imported when it is needed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaussmix.errors import ArgumentError, DataError, MissingFileError, MissingPackageError
from gaussmix.tables.files import is_path, suffix_of
from gaussmix.tables.reading import Part, Request, check_columns, late, running, sliced, valid

__all__ = [
    "DATABASES",
    "DuckDBQuery",
    "connect",
    "mixing_operator",
    "query_of",
    "query_parts",
    "relation_of",
    "relation_parts",
]

DATABASES = (".duckdb", ".ddb", ".db")
"""How names of DuckDB files end."""

_ROW_BY_ROW = {"CTE", "CTE_SCAN", "DUMMY_SCAN", "EXPRESSION_GET", "FILTER", "ORDER_BY", "PROJECTION", "UNION"}
_SCANS = {"ARROW_SCAN", "MYSQL_SCAN", "PANDAS_SCAN", "PARQUET_SCAN", "POSTGRES_SCAN", "PYTHON_ARROW_SCAN", "SEQ_SCAN"}
_SCANS |= {"DELTA_SCAN", "ICEBERG_SCAN", "SQLITE_SCAN", "READ_CSV", "READ_CSV_AUTO", "READ_JSON", "READ_JSON_AUTO"}
_SCANS |= {"READ_NDJSON", "READ_NDJSON_AUTO", "READ_PARQUET"}
_POSITIONS = ("rowid", "file_row_number", "file_index")  # columns that say where a row is stored


@dataclass(frozen=True)
class DuckDBQuery:
    """A SQL query on a DuckDB file, which is opened read-only. ``("file.duckdb", "SELECT ...")`` means the same."""

    path: str | os.PathLike[str]
    sql: str


def query_of(data: Any) -> DuckDBQuery | None:
    """A query, or a pair that means one."""
    if isinstance(data, DuckDBQuery):
        return data
    if isinstance(data, tuple) and len(data) == 2 and is_path(data[0]) and isinstance(data[1], str):
        path, sql = data
        if suffix_of(path) in DATABASES or re.match(r"\s*(select|from|with)\b", sql, re.IGNORECASE):
            return DuckDBQuery(path, sql)
    return None


def relation_of(data: Any) -> Any | None:
    """A DuckDB relation, or None."""
    kind = type(data)
    return data if kind.__name__ == "DuckDBPyRelation" and "duckdb" in kind.__module__ else None


@contextmanager
def connect(query: DuckDBQuery) -> Iterator[Any]:
    """Open the file read-only; errors in our words."""
    try:
        import duckdb
    except ImportError:
        raise MissingPackageError('A DuckDB query needs duckdb: pip install "gaussmix[duckdb]".') from None
    if not Path(query.path).is_file():
        raise MissingFileError(f"There is no file {str(query.path)!r}.")
    try:
        connection = duckdb.connect(os.fspath(query.path), read_only=True)
    except duckdb.Error:
        raise DataError(f"{query.path} cannot be opened as a DuckDB file: it is corrupt or in use.") from None
    try:
        yield connection
    except (duckdb.ParserException, duckdb.CatalogException) as error:
        raise DataError(f"The query on {query.path} is not valid: {error}") from None
    except duckdb.BinderException:  # proposes names of columns, which a pivot makes of rows
        raise DataError(
            f"The query on {query.path} is not valid: a column or a function in it is not known, or does not fit. "
            "Run it in DuckDB for the details."
        ) from None
    except duckdb.Error:
        raise DataError(f"The query on {query.path} failed while it ran. Run it in DuckDB for the details.") from None
    finally:
        connection.close()


def query_parts(query: DuckDBQuery, request: Request) -> Iterator[Part]:
    """Batches of a query's result."""
    with connect(query) as connection:
        relation = connection.sql(query.sql)
        if relation is None:
            raise DataError(f"The query on {query.path} returns no table. It must be a SELECT.")
        yield from relation_parts(relation, request, where=str(query.path))


def relation_parts(relation: Any, request: Request, *, where: str) -> Iterator[Part]:
    """Batches of a relation; the engine sees which columns are wanted."""
    if not request.row_by_row and (operator := mixing_operator(relation)) is not None:
        raise ArgumentError(
            f"The plan of {where} contains {operator}, by which one stored row may change several rows of the result. "
            "Use only scans, filters, projections and UNION ALL of different tables; or store the result as a table "
            "or a file, if its rows are the privacy unit; or declare with row_by_row=True that each stored row affects "
            "at most one row of the result."
        )
    check_columns(relation.columns, request.columns, where)
    for name in request.columns:
        if sum(other.lower() == name.lower() for other in relation.columns) > 1:
            raise DataError(
                f"Column {name!r} of {where} differs from another one by case alone, and DuckDB would read either. "
                "Rename one of them."
            )
    wanted = relation.project(", ".join('"' + name.replace('"', '""') + '"' for name in request.columns))
    for batch in running(late(lambda: wanted.to_arrow_reader(request.rows)), where):
        whole = valid(batch.rename_columns(request.columns), where)
        yield from ((where, piece) for piece in sliced(whole, request.rows))


def mixing_operator(relation: Any) -> str | None:
    """Return the first operator of a relation by which one stored row may change several rows of the result.

    The plan before optimisation is examined, because the optimiser replaces aggregates by stored statistics and window
    functions by row numbers. Every operator that is not known to work row by row is returned, and so is a second scan
    of the same table. Volatile functions and row numbers are looked for in the text of the query, not in the views and
    macros that it uses.
    """
    view = "gaussmix_rows"
    try:
        ((before,),) = relation.query(view, "SELECT current_setting('explain_output')").fetchall()
        relation.query(view, "SET SESSION explain_output = 'all'")
        try:
            plans = dict(relation.query(view, f"EXPLAIN (FORMAT JSON) FROM {view}").fetchall())
        finally:
            relation.query(view, f"SET SESSION explain_output = '{before}'")
        volatile = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        functions = [re.escape(name) for (name,) in relation.query(view, volatile).fetchall()]
        text, waiting = relation.sql_query(), json.loads(plans["logical_plan"])
    except Exception:  # of DuckDB's, whose messages may quote values; or no plan, in versions before 2.0
        return "operators that DuckDB does not show"
    named = re.search(rf"\b({'|'.join(_POSITIONS)})\b|\b({'|'.join(functions)})\"?\s*\(", text, re.IGNORECASE)
    if named is not None:
        return (named[1] or f"{named[2]}()").lower()
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
