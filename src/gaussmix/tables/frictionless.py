"""Frictionless table schemas: ``minimum``, ``maximum`` and ``enum`` are bounds and levels. Nothing here sees data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaussmix.errors import DeclarationError
from gaussmix.tables.declaration import Declaration, bounds_in, categorical, number_in, numeric

__all__ = ["as_frictionless", "from_frictionless"]


def from_frictionless(content: Mapping[str, Any]) -> Declaration:
    """A table schema, or the one of a data package with one table."""
    fields = _fields(content)
    columns: dict[str, dict[str, Any]] = {}
    losses = []
    for entry in fields:
        name, limits = _named(entry), entry.get("constraints") or {}
        kind, levels = entry.get("type", "string"), limits.get("enum")
        if kind in ("integer", "number", "year") and (levels is None or kind == "number"):
            if levels is not None:
                losses.append(f"enum of the number {name!r}")
            columns[name] = numeric(number_in(limits, "minimum", name), number_in(limits, "maximum", name))
        elif kind in ("string", "integer", "year"):
            columns[name] = categorical(levels)
        elif kind == "boolean":
            columns[name] = {"type": "boolean"}
        else:
            columns[name] = {"type": "unsupported"}
            losses.append(f"the type {kind!r} of {name!r}, which cannot be encoded")
        losses += [f"{key} of {name!r}" for key in ("pattern", "unique", "exclusiveMinimum") if limits.get(key)]
    return Declaration(columns, losses=tuple(losses))


def _fields(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "resources" in content:
        tables = [item for item in content["resources"] if isinstance(item, Mapping) and item.get("schema")]
        if len(tables) != 1 or not isinstance(tables[0]["schema"], Mapping):
            raise DeclarationError("The data package must have one table with its schema in the same file.")
        content = tables[0]["schema"]
    fields = content.get("fields")
    if not isinstance(fields, list) or not all(isinstance(entry, Mapping) for entry in fields):
        raise DeclarationError("A Frictionless table schema must have a list of fields.")
    return fields


def _named(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise DeclarationError("Every field of a Frictionless table schema must have a name.")
    return name


def as_frictionless(declared: Declaration) -> dict[str, Any]:
    """A table schema."""
    return {"fields": [_field(name, column) for name, column in declared.columns.items()]}


def _field(name: str, column: Mapping[str, Any]) -> dict[str, Any]:
    kind, levels = column["type"], column.get("levels")
    limits: dict[str, Any] = {}
    if kind == "numeric":
        lower, upper = bounds_in(column)
        limits = {key: value for key, value in (("minimum", lower), ("maximum", upper)) if value is not None}
        found = {"name": name, "type": "number"}
    elif kind == "boolean":
        found = {"name": name, "type": "boolean"}
    elif kind == "categorical":
        first = None if levels is None else type(levels[0])
        found = {"name": name, "type": {int: "integer", bool: "boolean"}.get(first or str, "string")}
        if levels is not None and first is not bool and column.get("unknown", "error") == "error":
            limits = {"enum": list(levels)}
        elif levels is not None and first is not bool:
            raise DeclarationError(
                f"Column {name!r}: an enum allows no other value, and its levels do. Write CSVW-EO instead."
            )
    else:
        raise DeclarationError(f"Column {name!r}: a {kind} column has no place in a Frictionless table schema.")
    return {**found, "constraints": limits} if limits else found
