"""Columns as plain values, between our schemas and those of others. Nothing here sees data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaussmix.errors import DeclarationError

__all__ = ["Declaration", "bounds_in", "categorical", "number_in", "numeric"]


@dataclass(frozen=True)
class Declaration:
    """What a schema file says, of whatever kind it is.

    Attributes
    ----------
    columns : dict of str to dict
        As in our files; None where a bound or the levels are not known.
    rest : dict
        Intercept and ``max_row_norm``, where they were declared.
    unit : str or None
        Column that names persons.
    rows_per_unit : int or None
        Rows that a person may have.
    losses : tuple of str
        What was read and cannot be said.
    """

    columns: dict[str, dict[str, Any]]
    rest: dict[str, Any] = field(default_factory=dict)
    unit: str | None = None
    rows_per_unit: int | None = None
    losses: tuple[str, ...] = ()

    def unit_words(self) -> tuple[str, ...]:
        """The unit of privacy, where a file has no place for it."""
        if self.unit is None:
            return ()
        most = "" if self.rows_per_unit is None else f", at most {self.rows_per_unit} rows each"
        return (f"the unit of privacy, {self.unit!r}{most}, is no part of this schema: it belongs to the release",)

    def unsaid(self) -> tuple[str, ...]:
        """What is declared here and has no words in formats of others."""
        found = [f"{key} = {value!r}" for key, value in self.rest.items() if value not in (None, 1.0)]
        for name, column in self.columns.items():
            if column.get("weight", 1.0) != 1.0:
                found.append(f"the weight of {name!r}")
            if column.get("missing", "error") != "error":
                found.append(f"missing={column['missing']!r} of {name!r}")
            if column.get("unknown") == "zero":
                found.append(f"unknown='zero' of {name!r}")
        return tuple(found)


def numeric(lower: Any, upper: Any) -> dict[str, Any]:
    """A number, its bounds perhaps open."""
    return {"type": "numeric", "lower": lower, "upper": upper}


def categorical(levels: Any, *, exhaustive: bool = True) -> dict[str, Any]:
    """A category, its levels perhaps open; where others may occur, one level for all of them."""
    found: dict[str, Any] = {"type": "categorical", "levels": None if levels is None else list(levels)}
    return found if exhaustive and levels is not None else {**found, "unknown": "other"}


def number_in(column: Mapping[str, Any], key: str, name: str) -> float | None:
    """A bound that a file has, or None."""
    value = column.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise DeclarationError(f"Column {name!r}: {key} must be a number, got {type(value).__name__}.")
    return None if value is None else float(value)


def bounds_in(column: Mapping[str, Any]) -> tuple[Any, Any]:
    """Lower and upper of a number in the long form; a vector has no place in formats of single values."""
    return column.get("lower"), column.get("upper")
