"""A template of a schema, from names and types of columns alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gaussmix.tables.columns import GUESSED
from gaussmix.tables.dates import holds_dates

__all__ = ["describe_columns"]


def describe_columns(source: pa.Schema, *, guessed: bool = False) -> dict[str, Any]:
    """Template of a schema: names and types only, with None where a bound or the levels must be filled in.

    `Schema.of` refuses it until that is done.

    Parameters
    ----------
    source : pyarrow.Schema
        Such as `sources.source_schema` returns.
    guessed : bool
        The types were guessed from rows, as of CSV files: they have a question mark, and a proposal refuses them,
        since no row may decide what is published about a column.

    Examples
    --------
    >>> describe_columns(pa.schema({"age": pa.int64(), "sex": pa.string()}))["columns"]
    {'age': {'type': 'numeric', 'lower': None, 'upper': None}, 'sex': {'type': 'categorical', 'levels': None}}
    """
    columns = {field.name: _template(field.type) for field in source}
    if guessed:
        columns = {name: entry | {"type": f"{entry['type']}{GUESSED}"} for name, entry in columns.items()}
    return {"columns": columns, "intercept": 1.0}


def _template(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if _numeric(kind):
        return {"type": "numeric", "lower": None, "upper": None}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return {"type": "categorical", "levels": None}
    if holds_dates(kind):
        return {"type": "date", "lower": None, "upper": None}
    if pa.types.is_fixed_size_list(kind) and _numeric(kind.value_type):
        return {"type": "vector", "size": kind.list_size, "norm": None}
    return {"type": "unsupported", "arrow_type": str(kind)}


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
