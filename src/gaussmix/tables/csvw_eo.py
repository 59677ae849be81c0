"""CSVW-EO metadata of a table: ``lowerBound``, ``upperBound``, ``keyValues``, ``privacyUnit``, ``maxContributions``.

Nothing here sees data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaussmix.errors import DeclarationError
from gaussmix.tables.declaration import Declaration, bounds_in, categorical, number_in, numeric

__all__ = ["as_csvw_eo", "from_csvw_eo"]

_INTEGERS = ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedInt")
_NUMBERS = (*_INTEGERS, "number", "decimal", "double", "float")
_PREFIX = "csvw-eo:"
_UNSAID = ("maxLength", "publicLength", "additionalInformation")


def from_csvw_eo(content: Mapping[str, Any]) -> Declaration:
    """The metadata of one table."""
    table = _bare(content)
    schema = table.get("tableSchema")
    listed = schema.get("columns") if isinstance(schema, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(column, Mapping) for column in listed):
        raise DeclarationError("CSVW-EO metadata must have tableSchema with a list of columns.")
    columns: dict[str, dict[str, Any]] = {}
    losses = [f"{key} of the table" for key in _UNSAID if table.get(key)]
    unit = table.get("privacyUnit")
    for column in map(_bare, listed):
        name = column.get("name")
        if not isinstance(name, str):
            raise DeclarationError("Every column of CSVW-EO metadata must have a name.")
        if column.get("privacyId") is True:
            unit = name if unit is None else unit
        if name != unit:
            columns[name] = _column(name, column, losses)
    most = table.get("maxContributions")
    if unit is not None and not isinstance(unit, str):
        raise DeclarationError("privacyUnit must be the name of a column.")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise DeclarationError("maxContributions must be an integer ≥ 1.")
    return Declaration(columns, unit=unit, rows_per_unit=most, losses=tuple(losses))


def _column(name: str, column: Mapping[str, Any], losses: list[str]) -> dict[str, Any]:
    kind = column.get("datatype", "string")
    limits = dict(column)
    if isinstance(kind, Mapping):  # CSVW's own form: a base with its limits
        limits = {"lowerBound": kind.get("minimum"), "upperBound": kind.get("maximum")} | limits
        kind = kind.get("base", "string")
    keys = column.get("keyValues", column.get("publicKeys"))
    losses += [f"{key} of {name!r}" for key in ("partitions", "dependsOn", "maxGroupsPerUnit") if column.get(key)]
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "string" or (kind in _INTEGERS and keys is not None):
        return categorical(keys, exhaustive=bool(column.get("exhaustiveKeys", False)))
    if kind in _NUMBERS:
        return numeric(number_in(limits, "lowerBound", name), number_in(limits, "upperBound", name))
    losses.append(f"the type {kind!r} of {name!r}, which cannot be encoded")
    return {"type": "unsupported"}


def _bare(content: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).removeprefix(_PREFIX): value for key, value in content.items()}


def as_csvw_eo(declared: Declaration) -> dict[str, Any]:
    """The metadata of one table."""
    columns = [_written(name, column) for name, column in declared.columns.items()]
    unit: dict[str, Any] = {}
    if declared.unit is not None:
        unit["privacyUnit"] = declared.unit
        columns.insert(0, {"@type": "csvw:Column", "name": declared.unit, "datatype": "string", "privacyId": True})
    if declared.rows_per_unit is not None:
        unit["maxContributions"] = declared.rows_per_unit
    return {"@type": "csvw:Table", **unit, "tableSchema": {"columns": columns}}


def _written(name: str, column: Mapping[str, Any]) -> dict[str, Any]:
    kind, levels = column["type"], column.get("levels")
    found: dict[str, Any] = {"@type": "csvw:Column", "name": name}
    if kind == "numeric":
        lower, upper = bounds_in(column)
        bounds = {key: value for key, value in (("lowerBound", lower), ("upperBound", upper)) if value is not None}
        return {**found, "datatype": "double", **bounds}
    if kind == "boolean":
        return {**found, "datatype": "boolean"}
    if kind != "categorical":
        raise DeclarationError(f"Column {name!r}: a {kind} column has no place in CSVW-EO metadata.")
    if levels is None:
        return {**found, "datatype": "string"}
    datatype = {int: "integer", bool: "boolean"}.get(type(levels[0]), "string")
    exhaustive = column.get("unknown", "error") == "error"
    return {**found, "datatype": datatype, "keyValues": list(levels), "exhaustiveKeys": exhaustive}
