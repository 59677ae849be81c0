"""Batches of DuckDB relations and queries; duckdb is imported when it is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaussmix.errors import DataError, MissingFileError, MissingPackageError
from gaussmix.tables.paths import is_path, suffix_of
from gaussmix.tables.reading import Part, Request, check_columns, late, running, sliced, valid

__all__ = ["DATABASES", "DuckDBQuery", "connect", "query_of", "query_parts", "relation_of", "relation_parts"]

DATABASES = (".duckdb", ".ddb", ".db")
"""How names of DuckDB files end."""


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
