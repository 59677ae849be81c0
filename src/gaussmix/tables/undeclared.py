"""Columns whose kind is declared and whose bounds or levels are not: what a proposal starts from.

>>> cost = {"lower": 0, "upper": None}
>>> found = Undeclared.of({"age": "number", "sex": "category", "smoker": "boolean", "cost": cost})
>>> list(found.numbers), list(found.keys), list(found.declared)
(['age', 'cost'], ['sex'], ['smoker'])

How a value is read depends on its row and on the declared kind alone: a number as a double, a category as text, codes
as integers of 64 bits. A template (`gaussmix schema FILE`) of a file that has types of its own is such a declaration as
it stands; types that were guessed from rows, as of CSV files, have a question mark, and are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from gaussmix._validation import real
from gaussmix.errors import ArgumentTypeError, DeclarationError, GaussmixError
from gaussmix.tables.columns import GUESSED, Categorical, Column, Numeric
from gaussmix.tables.declaring import parse_column, read_declared
from gaussmix.tables.schema import Schema

__all__ = ["HOW_TO_LEAVE_OPEN", "Undeclared"]

HOW_TO_LEAVE_OPEN = (
    'Leave a column open by "number", "category" (text) or "codes" (integers that are levels), or by '
    '{"lower": null, "upper": null} and {"levels": null} with options such as "missing".'
)
_NUMBER, _CATEGORY, _CODES = ("number", "numeric"), ("category", "categorical"), ("codes",)
_KEY_TYPES = {_CATEGORY[0]: pa.string(), _CODES[0]: pa.int64()}


@dataclass(frozen=True)
class Undeclared:
    """Columns by what is to be found for them.

    Attributes
    ----------
    numbers : mapping of str to dict
        Numbers without bounds, or with one of them: what was declared about each.
    keys : mapping of str to dict
        Categories without levels, and what was declared about each.
    key_types : mapping of str to pyarrow.DataType
        Of every category: text or integers.
    declared : mapping of str to Column
        Columns for which nothing is to be found: they are not read.
    order : tuple of str
        All names as they were declared.
    rest : mapping
        Intercept and ``max_row_norm``, where they were declared.
    """

    numbers: Mapping[str, dict[str, Any]]
    keys: Mapping[str, dict[str, Any]]
    key_types: Mapping[str, pa.DataType]
    declared: Mapping[str, Column]
    order: tuple[str, ...]
    rest: Mapping[str, Any]

    @classmethod
    def of(cls, source: Undeclared | Mapping[str, Any] | str | os.PathLike[str]) -> Undeclared:
        """From a dictionary, or from a TOML or JSON file: as for `Schema.of`, with bounds and levels left open."""
        if isinstance(source, Undeclared):
            return source
        if isinstance(source, Schema):
            raise DeclarationError("All columns of this schema are declared: there is nothing to propose.")
        declared = source if isinstance(source, Mapping) else read_declared(Path(source))
        rest: dict[str, Any] = {}
        if "columns" in declared:
            rest = {key: value for key, value in declared.items() if key != "columns"}
            declared = declared["columns"]
        if not isinstance(declared, Mapping) or not declared:
            raise ArgumentTypeError(f"columns must map names to what is known of them. {HOW_TO_LEAVE_OPEN}")
        return cls._sorted(declared, rest)

    @classmethod
    def _sorted(cls, columns: Mapping[str, Any], rest: dict[str, Any]) -> Undeclared:
        numbers: dict[str, dict[str, Any]] = {}
        keys: dict[str, dict[str, Any]] = {}
        types: dict[str, pa.DataType] = {}
        known: dict[str, Column] = {}
        for name, short in columns.items():
            kind, options = _open_kind(short)
            if isinstance(short, Mapping) and str(short.get("type", "")).endswith(GUESSED):
                raise DeclarationError(
                    f"Column {name!r}: its type was guessed from rows, and no row may decide what is proposed. "
                    f"Say what it is without the question mark. {HOW_TO_LEAVE_OPEN}"
                )
            try:
                if kind == _NUMBER[0]:
                    numbers[name] = _number_options(options)
                elif kind is not None:
                    keys[name], types[name] = _key_options(options, integers=kind in _CODES), _KEY_TYPES[kind]
                else:
                    known[name] = parse_column(name, short)
            except GaussmixError as error:
                raise type(error)(f"Column {name!r}: {error}" if kind is not None else str(error)) from None
        if not numbers and not keys:
            raise DeclarationError(f"All columns are declared: there is nothing to propose. {HOW_TO_LEAVE_OPEN}")
        frozen = MappingProxyType
        found = cls(frozen(numbers), frozen(keys), frozen(types), frozen(known), tuple(columns), rest)
        found.taken  # noqa: B018 - names, weights and the bound of a row are as a schema may have them
        return found

    @property
    def names(self) -> list[str]:
        """Columns that are read."""
        return [*self.numbers, *self.keys]

    @property
    def text_types(self) -> dict[str, pa.DataType]:
        """How the columns are read where a table has no types of its own."""
        return {**dict.fromkeys(self.numbers, pa.float64()), **self.key_types}

    @property
    def taken(self) -> frozenset[str]:
        """Names of encoded columns, whatever levels are found."""
        bounds = dict.fromkeys(self.numbers, (-1.0, 1.0))
        levels = {name: (0,) if kind == pa.int64() else ("\0",) for name, kind in self.key_types.items()}
        placeholders = {f"{name}={level}" for name, (level,) in levels.items()}
        return frozenset(self.schema(bounds, levels).names) - placeholders

    def schema(self, bounds: Mapping[str, tuple[float, float]], levels: Mapping[str, tuple[Any, ...]]) -> Schema:
        """The schema with what was found; columns for which nothing was found are left out."""
        found: dict[str, Column] = dict(self.declared)
        for name, (lower, upper) in bounds.items():
            found[name] = Numeric(**{**self.numbers[name], "lower": lower, "upper": upper})
        for name, chosen in levels.items():
            found[name] = Categorical(**{**self.keys[name], "levels": chosen})
        return Schema({name: found[name] for name in self.order if name in found}, **self.rest)


def _open_kind(short: object) -> tuple[str | None, dict[str, Any]]:
    """What is to be found for a column (None: nothing), and what else was declared about it."""
    words = {word: kinds[0] for kinds in (_NUMBER, _CATEGORY, _CODES) for word in kinds}
    if isinstance(short, str):
        return words.get(short), {}
    if not isinstance(short, Mapping):
        return None, {}
    options = {key: value for key, value in short.items() if key != "type"}
    implied = "categorical" if "levels" in options else "vector" if "size" in options else "numeric"
    kind = words.get(str(short.get("type", implied)).removesuffix(GUESSED))
    if kind == _NUMBER[0] and None not in (options.get("lower"), options.get("upper")):
        return None, options
    if kind in (_CATEGORY[0], _CODES[0]) and options.get("levels") is not None:
        return None, options
    return kind, options


def _number_options(options: dict[str, Any]) -> dict[str, Any]:
    allowed = [field.name for field in fields(Numeric)]
    _known_only(options, allowed, "number")
    found = {key: value for key, value in options.items() if value is not None}
    for name in ("lower", "upper"):
        if name in found:
            found[name] = real(**{name: found[name]})
    Numeric(-1.0, 1.0, **_others(found))
    return found


def _key_options(options: dict[str, Any], *, integers: bool) -> dict[str, Any]:
    """A category that is left open has levels that nobody has declared: they must not be an error."""
    _known_only(options, [field.name for field in fields(Categorical)], "category")
    found = {"unknown": "other"} | {key: value for key, value in options.items() if value is not None}
    if found["unknown"] == "error":
        raise DeclarationError(
            'unknown must be "other" or "zero" where levels are proposed: rare ones are never found, and an error '
            "would tell that they are there."
        )
    Categorical((1,) if integers else ("a",), **_others(found))
    return found


def _others(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in ("lower", "upper", "levels")}


def _known_only(options: Mapping[str, Any], allowed: list[str], kind: str) -> None:
    unknown = [key for key in options if key not in allowed]
    if unknown:
        raise DeclarationError(f"unknown key {unknown[0]!r} in a {kind}; it may have {', '.join(allowed)}.")
