"""Columns from their short forms, as a dictionary or a file declares them, and back.

>>> parse_column("age", [0, 100])
Numeric(lower=0.0, upper=100.0, weight=1.0, missing='error', origin=None)
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from gaussmix._files import strict_json
from gaussmix.errors import ArgumentTypeError, DeclarationError, GaussmixError
from gaussmix.tables.columns import GUESSED, NOT_FROM_DATA, Boolean, Categorical, Column, Numeric, Vector
from gaussmix.tables.dates import iso_date

__all__ = ["HOW_TO_DECLARE", "Date", "declared_values", "parse_column", "parse_columns", "read_declared"]

_KINDS: dict[str, type[Column]] = {
    "numeric": Numeric,
    "boolean": Boolean,
    "categorical": Categorical,
    "vector": Vector,
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "numeric": ("lower", "upper"),
    "categorical": ("levels",),
    "boolean": (),
    "vector": ("size",),
}
_DATE = ("lower", "upper")
HOW_TO_DECLARE = (
    'Declare a number by [lower, upper], categories by {"levels": [...]} or a list of labels, true and false by '
    '"boolean", numbers that belong together by {"size": 8, "norm": 1}; options go into a table such as '
    '{"lower": 0, "upper": 1, "missing": "drop-row"}.'
)


def Date(  # noqa: N802 - declared as the kinds of columns are
    lower: datetime.date | str,
    upper: datetime.date | str,
    *,
    origin: datetime.date | str | None = None,
    weight: float = 1.0,
    missing: Literal["error", "drop-row", "lower", "indicator"] = "error",
) -> Numeric:
    """A date or a time, read as the number of days since a declared date.

    Parameters
    ----------
    lower, upper : date or ISO text
        Declared bounds, the last one included up to its midnight. Times outside are clipped.
    origin : date or ISO text, optional
        What days are counted from; default: ``lower``.
    weight, missing
        As for `Numeric`.

    Examples
    --------
    >>> Date("2020-01-01", "2021-01-01").upper
    366.0
    """
    low, high = iso_date(lower=lower), iso_date(upper=upper)
    start = low if origin is None else iso_date(origin=origin)
    bounds = (float((day - start).days) for day in (low, high))
    return Numeric(*bounds, weight=weight, missing=missing, origin=start.isoformat())


def parse_column(name: str, declared: object) -> Column:
    """A column from its short form; errors name it."""
    try:
        return _parsed(declared)
    except GaussmixError as error:
        raise type(error)(f"Column {name!r}: {error}") from None


def parse_columns(declared: Mapping[str, object]) -> dict[str, Column]:
    """Columns from their short forms; everything that is wrong with any of them in one error."""
    found: dict[str, Column] = {}
    wrong: list[GaussmixError] = []
    for name, short in declared.items():
        try:
            found[name] = parse_column(name, short)
        except GaussmixError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        told = [str(error).replace(f" {NOT_FROM_DATA}", "").replace(f" {HOW_TO_DECLARE}", "") for error in wrong]
        lines = "\n".join(f"  {words}" for words in told)
        raise DeclarationError(
            f"{len(wrong)} columns cannot be used as they are declared:\n{lines}\n{HOW_TO_DECLARE} {NOT_FROM_DATA}"
        )
    return found


def declared_values(column: Column) -> dict[str, Any]:
    """What was declared, as plain values that `parse_column` reads."""
    kind = next(word for word, cls in _KINDS.items() if isinstance(column, cls))
    values = {field.name: getattr(column, field.name) for field in fields(column)}
    if values.get("origin", "") is None:
        del values["origin"]
    return {"type": kind} | {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _parsed(declared: object) -> Column:
    if isinstance(declared, Column):
        return declared
    if declared == "boolean":
        return Boolean()
    if isinstance(declared, list | tuple):
        return _from_list(declared)
    if not isinstance(declared, Mapping):
        raise ArgumentTypeError(f"a column cannot be declared by {type(declared).__name__}. {HOW_TO_DECLARE}")
    kind = declared.get("type", _kind_of(declared))
    if isinstance(kind, str):
        kind = kind.removesuffix(GUESSED)  # whoever filled in the rest has seen it
    if kind == "date":
        return _from_dates({key: value for key, value in declared.items() if key != "type"})
    if kind == "unsupported":
        raise DeclarationError("its type cannot be encoded. Cast it to a number or to text, or leave the column out.")
    if not isinstance(kind, str) or kind not in _KINDS:
        words = ", ".join(repr(word) for word in (*_KINDS, "date"))
        raise DeclarationError(f"type must be one of {words}, got {kind!r}. {HOW_TO_DECLARE}")
    allowed = [field.name for field in fields(_KINDS[kind])]
    unknown = [key for key in declared if key not in (*allowed, "type")]
    if unknown:
        raise DeclarationError(f"unknown key {unknown[0]!r} in a {kind} column; it may have {', '.join(allowed)}.")
    options = {key: value for key, value in declared.items() if key != "type"}
    return _KINDS[kind](**dict.fromkeys(_REQUIRED[kind]) | options)


def _from_dates(declared: Mapping[str, Any]) -> Column:
    unknown = [key for key in declared if key not in (*_DATE, "origin", "weight", "missing")]
    if unknown:
        raise DeclarationError(f"unknown key {unknown[0]!r} in a date column; it may have {', '.join(_DATE)}, origin.")
    options: dict[str, Any] = dict.fromkeys(_DATE) | dict(declared)
    return Date(**options)


def _kind_of(declared: Mapping[str, Any]) -> str:
    if "levels" in declared:
        return "categorical"
    return "vector" if "size" in declared else "numeric"


def _from_list(declared: list[Any] | tuple[Any, ...]) -> Column:
    """Two numbers are bounds; labels can only be levels."""
    if declared and all(isinstance(entry, str | bool) for entry in declared):
        return Categorical(tuple(declared))
    if len(declared) != 2:
        raise DeclarationError(
            f"a list must be [lower, upper] or levels that are all text, got {len(declared)} entries. {HOW_TO_DECLARE}"
        )
    return Numeric(*declared)


def read_declared(path: Path) -> Mapping[str, Any]:
    """The content of a TOML or JSON file."""
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise DeclarationError(f"A schema file must end in .toml or .json, got {str(path)!r}.")
    try:
        text = path.read_text(encoding="utf-8")
        declared = tomllib.loads(text) if suffix == ".toml" else strict_json(text)
    except RecursionError:
        raise DeclarationError(f"{path} is nested too deeply for a schema.") from None
    except ValueError as error:  # both formats' errors, wrong bytes, a key that occurs twice, thousands of digits
        raise DeclarationError(f"{path} is not a valid {suffix[1:].upper()} file: {error}") from None
    if not isinstance(declared, Mapping):
        raise ArgumentTypeError(f"{path} must hold one object that maps names to columns.")
    return declared
