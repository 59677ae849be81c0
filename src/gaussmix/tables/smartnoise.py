"""SmartNoise's metadata of a table: ``lower``, ``upper``, ``max_ids``, ``private_id``. Nothing here sees data.

It has no levels of its own; the key ``categories``, which others put there, is read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaussmix.errors import DeclarationError
from gaussmix.tables.declaration import Declaration, bounds_in, categorical, number_in, numeric

__all__ = ["as_smartnoise", "from_smartnoise"]

_LEVELS_OF_NESTING = ("database", "schema", "table")
_UNSAID = ("rows", "sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns", "use_dpsu")


def from_smartnoise(content: Mapping[str, Any]) -> Declaration:
    """The metadata of the one table in it."""
    table: Mapping[str, Any] = content
    for level in _LEVELS_OF_NESTING:
        inner = [value for value in table.values() if isinstance(value, Mapping)]
        if len(inner) != 1:
            raise DeclarationError(f"SmartNoise metadata must have one {level}, found {len(inner)}.")
        table = inner[0]
    columns: dict[str, dict[str, Any]] = {}
    losses = [f"{key} of the table" for key in _UNSAID if key in table]
    unit = None
    for name, column in table.items():
        if not isinstance(column, Mapping):
            continue
        if column.get("private_id") is True:
            if unit is not None:
                raise DeclarationError("SmartNoise metadata must have one column with private_id, found two.")
            unit = str(name)
            continue
        columns[str(name)] = _column(str(name), column, losses)
    if table.get("row_privacy") is True:
        unit = None
    most = table.get("max_ids") if unit is not None else None
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise DeclarationError("max_ids must be an integer ≥ 1.")
    return Declaration(columns, unit=unit, rows_per_unit=most, losses=tuple(losses))


def _column(name: str, column: Mapping[str, Any], losses: list[str]) -> dict[str, Any]:
    kind, levels = column.get("type"), column.get("categories")
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "string" or (kind == "int" and levels is not None):
        return categorical(levels)
    if kind in ("int", "float"):
        return numeric(number_in(column, "lower", name), number_in(column, "upper", name))
    losses.append(f"the type {kind!r} of {name!r}, which cannot be encoded")
    return {"type": "unsupported"}


def as_smartnoise(declared: Declaration) -> dict[str, Any]:
    """The metadata of one table, called Table in the schema Schema."""
    table: dict[str, Any] = {"row_privacy": declared.unit is None}
    if declared.unit is not None:
        table["max_ids"] = declared.rows_per_unit or 1
        table[declared.unit] = {"type": "string", "private_id": True}
    for name, column in declared.columns.items():
        if name in table:
            raise DeclarationError(f"Column {name!r} has the name of a property of SmartNoise metadata: rename it.")
        table[name] = _written(name, column)
    return {"": {"Schema": {"Table": table}}}


def _written(name: str, column: Mapping[str, Any]) -> dict[str, Any]:
    kind, levels = column["type"], column.get("levels")
    if kind == "numeric":
        lower, upper = bounds_in(column)
        return {"type": "float", **{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None}}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind != "categorical":
        raise DeclarationError(f"Column {name!r}: a {kind} column has no place in SmartNoise metadata.")
    if levels is None:
        return {"type": "string"}
    datatype = {int: "int", bool: "boolean"}.get(type(levels[0]), "string")
    return {"type": datatype, "cardinality": len(levels), "categories": list(levels)}
