"""What a table may hold: declared columns with their bounds, and the encoded row they make.

A schema is public and written before the data are seen. Each row is encoded by itself: no row sees another one.

>>> schema = Schema.of({"age": [0, 100], "sex": ["female", "male"], "smoker": "boolean"})
>>> schema.names
('age', 'sex=female', 'sex=male', 'smoker', '(intercept)')
>>> schema.row_norm
2.0

A numeric column is clipped to its bounds and mapped to w·[-1, 1]; a Boolean is the numeric column with bounds (0, 1);
a categorical column has one entry w for its level and zeros elsewhere; a vector has one entry for each of its numbers;
terms that are derived from columns follow; the intercept w₀ comes last. A row's squared norm is therefore at most
C² = Σ (squared norms of columns and terms) + w₀² (``row_norm``), whatever the data are.

Notation follows docs/notation.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa

from gaussmix._validation import positive, real
from gaussmix.errors import ArgumentTypeError, DeclarationError
from gaussmix.tables.columns import (
    LARGEST_WEIGHT,
    NOT_FROM_DATA,
    Boolean,
    Categorical,
    Column,
    Numeric,
    Vector,
    check_text,
)
from gaussmix.tables.declaring import HOW_TO_DECLARE, declared_values, parse_columns, read_declared
from gaussmix.tables.parts import EncodedColumn, Part, encoded_of
from gaussmix.tables.releasing import check_weight, parts_of, read_terms, resolved
from gaussmix.tables.units import Units, raw_map

__all__ = ["FRACTION_BITS", "INTERCEPT", "EncodedColumn", "Schema", "stored_schema"]

INTERCEPT = "(intercept)"
"""Name of the constant column."""

FRACTION_BITS = 20
"""Entries of an encoded row are multiples of 2**-FRACTION_BITS of the row's bound."""


@dataclass(frozen=True, eq=False)
class Schema:
    """Columns of a table with their bounds or levels: public, immutable, hashable.

    Parameters
    ----------
    columns : mapping of str to column
        `Numeric`, `Categorical`, `Boolean` or `Vector`, or their short forms (see `of`). The order is that of the
        encoded row. Columns of the table that are not named here are never read.
    intercept : float
        Value w₀ of the constant column; 0 for none.
    max_row_norm : float, optional
        Bound of the whole encoded row's norm; a longer row is multiplied as a whole. Default: what the columns
        imply, which no row exceeds.
    terms : mapping of str to float, or sequence of str
        What is derived from the columns (:mod:`gaussmix.tables.terms`), with weights ``{"poly(age, 2)": 0.5}`` or, for
        weights of 1, ``["poly(age, 2)", "age:sex"]``. A term that is not declared here cannot be had from the release.
    only_in_terms : sequence of str
        Columns that are read for the terms' sake alone, and are not in the release themselves.
    weight : str, optional
        A numeric column, declared from 0 to the largest weight w_max, whose value w multiplies the row by √(w/w_max):
        sums over rows become weighted sums over w_max. It is not in the release itself.
    """

    columns: Mapping[str, Column]
    intercept: float = 1.0
    max_row_norm: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    only_in_terms: Sequence[str] = ()
    weight: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise ArgumentTypeError(
                f"columns must map names to columns, got {type(self.columns).__name__}. {HOW_TO_DECLARE}"
            )
        if not self.columns:
            raise DeclarationError("columns must not be empty: declare at least one column.")
        for name in self.columns:
            _check_name(name)
        _set(self, "columns", MappingProxyType(parse_columns(self.columns)))
        intercept = real(intercept=self.intercept) + 0.0
        if intercept != 0 and not (1 / LARGEST_WEIGHT <= intercept <= LARGEST_WEIGHT):
            raise DeclarationError(f"intercept must be 0 or a finite number > 0, got {intercept!r}. {NOT_FROM_DATA}")
        _set(self, "intercept", intercept)
        if self.max_row_norm is not None:
            bound = positive(finite=True, max_row_norm=self.max_row_norm)
            if not (1 / LARGEST_WEIGHT <= bound <= LARGEST_WEIGHT):
                raise DeclarationError(
                    f"max_row_norm must lie between 2**-100 and 2**100, got {bound!r}. {NOT_FROM_DATA}"
                )
            _set(self, "max_row_norm", bound)
        check_weight(self.weight, self.columns)
        _set(self, "terms", MappingProxyType(read_terms(self.terms, self.columns)))
        _set(self, "only_in_terms", tuple(dict.fromkeys(self.only_in_terms)))
        if self.terms and not self.intercept:
            raise DeclarationError("terms need an intercept, which their raw units are measured by: declare one.")
        self._refuse_what_rounds_to_nothing()
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DeclarationError(f"Two encoded columns would be called {twice!r}. Rename a column or a level.")

    def _refuse_what_rounds_to_nothing(self) -> None:
        """A column whose bound is no unit of a row would be all zeros, and a vector with it would erase its rows."""
        squares = {name: part.squared_norm for name, part in self.parts.items()}
        small = [name for name, square in squares.items() if square and not self.squared_in_units(square)]
        if self.intercept and not self.in_units(self.intercept):
            raise DeclarationError(
                f"intercept must be at least a 2**-{FRACTION_BITS} of a row's bound, which is {self.row_norm!r}: "
                "declare a larger one, or none, or columns of a smaller weight."
            )
        if small:
            raise DeclarationError(
                f"Column {small[0]!r}: its weight (and norm) must be at least a 2**-{FRACTION_BITS} of a row's bound, "
                f"which is {self.row_norm!r}: declare a larger one, or leave the column out."
            )

    @classmethod
    def of(cls, source: Schema | Mapping[str, Any] | str | os.PathLike[str], **more: Any) -> Schema:
        """Build from a dictionary, or from a TOML or JSON file with the same content.

        Parameters
        ----------
        source : mapping, path or Schema
            ``{"columns": {...}, "intercept": 1.0, "terms": ["log(wage)"]}``, or the columns alone. A column is
            ``[lower, upper]``, ``{"lower": 0, "upper": 9, "weight": 2, "missing": "drop-row"}``, ``["a", "b"]``,
            ``{"levels": ["a", "b"], "unknown": "other"}``, ``"boolean"``, ``{"size": 8, "norm": 1.0}``.
        more
            Other parts of a schema, in place of those of the source: ``terms=["log(wage)"]``, ``weight="wght"``.

        Examples
        --------
        >>> Schema.of({"columns": {"age": [0, 100]}, "intercept": 0.5}).row_norm
        1.118033988749895
        """
        if isinstance(source, Schema):
            return replace(source, **more) if more else source
        declared = source if isinstance(source, Mapping) else read_declared(Path(source))
        parts = [part.name for part in fields(cls)]
        if "columns" not in declared:
            return cls(cast(Mapping[str, Column], declared), **more)
        unknown = [key for key in declared if key not in parts]
        if unknown:
            raise DeclarationError(f"Unknown key {unknown[0]!r} in a schema; it may have {', '.join(parts)}.")
        return cls(**{**declared, **more})

    def to_dict(self) -> dict[str, Any]:
        """What was declared, as plain values: ``Schema.of(schema.to_dict()) == schema``."""
        columns = {name: declared_values(column) for name, column in self.columns.items()}
        found = {"columns": columns, "intercept": self.intercept, "max_row_norm": self.max_row_norm}
        more = {"terms": dict(self.terms), "only_in_terms": list(self.only_in_terms), "weight": self.weight}
        return found | {key: value for key, value in more.items() if value}  # as before terms where there are none

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON; equal for equal schemas only. The order of the columns counts."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()

    @cached_property
    def _canonical(self) -> str:
        declared = self.to_dict()
        for key in declared.keys() & {"columns", "terms"}:
            declared[key] = [[name, value] for name, value in declared[key].items()]
        return json.dumps(declared, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[dict[str, Any]]]:
        return Schema.of, (self.to_dict(),)

    # -- the encoded row -----------------------------------------------------------------------------------------
    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """What the release holds, in the order of the encoded row: columns, then terms, then where numbers are missing.

        Columns of the table that are no part, since only terms or weights use them, are in ``columns`` alone.
        """
        return MappingProxyType(parts_of(self.columns, self.terms, self.only_in_terms, self.weight))

    def resolve(self, text: str) -> tuple[str, ...]:
        """Parts of the release that a column or a term stands for; what is not there is an error that says so."""
        return resolved(text, self.parts, self.columns)

    @cached_property
    def encoded(self) -> tuple[EncodedColumn, ...]:
        """Columns of the encoded row, in order."""
        found = [column for name, part in self.parts.items() for column in encoded_of(name, part, self.columns)]
        if self.intercept:
            found.append(EncodedColumn(INTERCEPT, None, "intercept", 0.0, 1 / self.rounded_intercept))
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        found = [entry.name for name, part in self.parts.items() for entry in encoded_of(name, part, self.columns)]
        return (*found, INTERCEPT) if self.intercept else tuple(found)

    @property
    def n_columns(self) -> int:
        """Columns m of the encoded row."""
        return len(self.names)

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the encoded columns of every part (and of ``"(intercept)"``)."""
        found: dict[str, tuple[int, ...]] = {}
        for index, column in enumerate(self.encoded):
            source = INTERCEPT if column.source is None else column.source
            found[source] = (*found.get(source, ()), index)
        return MappingProxyType(found)

    @cached_property
    def units(self) -> Units:
        """Centres and scales of the encoded columns, and the map of terms: the way to and from original units."""
        return Units.of(self.encoded, raw_map(self.encoded, self.parts, self.columns))

    @property
    def weight_bound(self) -> float:
        """The largest weight w_max; 1 where rows have none."""
        column = None if self.weight is None else self.columns[self.weight]
        return column.upper if isinstance(column, Numeric) else 1.0

    @cached_property
    def row_norm(self) -> float:
        """C: no encoded row is longer. Rounded up from the exact root; or ``max_row_norm`` if that is smaller."""
        implied = self.norm_of(self.parts, intercept=True)
        return implied if self.max_row_norm is None else min(implied, self.max_row_norm)

    def norm_of(self, parts: Collection[str], *, intercept: bool = False) -> float:
        """Bound of the norm that some parts (and the intercept) contribute to a row, rounded up."""
        square = sum((self.parts[name].squared_norm for name in parts), Fraction(0))
        square += Fraction(self.intercept) ** 2 if intercept else 0
        root = math.sqrt(square)
        while Fraction(root) ** 2 < square:
            root = math.nextafter(root, math.inf)
        return root

    def in_units(self, value: float) -> int:
        """Floor of value / C in units of 2⁻²⁰, exactly."""
        return math.isqrt(self.squared_in_units(Fraction(value) ** 2))

    def squared_in_units(self, square: Fraction) -> int:
        """Floor of square / C² in units of 2⁻⁴⁰, exactly."""
        return int(square * 2 ** (2 * FRACTION_BITS) / Fraction(self.row_norm) ** 2)

    @property
    def rounded_intercept(self) -> float:
        """What w₀ is in an encoded row, where it is rounded down like every entry."""
        return self.in_units(self.intercept) * 2.0**-FRACTION_BITS * self.row_norm

    @cached_property
    def text_types(self) -> Mapping[str, pa.DataType]:
        """How to read the columns from text (CSV): nothing is guessed from the data."""
        return MappingProxyType({name: _text_type(name, column) for name, column in self.columns.items()})


def stored_schema(stored: object) -> Schema:
    """Return the schema in a file of this library. Unlike `Schema.of`, it never opens a path that the file names."""
    if not isinstance(stored, Mapping):
        raise ArgumentTypeError("a stored schema must be an object.")
    return Schema.of(dict(stored))


def _set(instance: object, name: str, value: object) -> None:
    object.__setattr__(instance, name, value)  # a frozen dataclass puts its own fields into one form


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f"A column's name must be a string, not empty, got {name!r}.")
    check_text("A column's name", name)
    if name == INTERCEPT:
        raise DeclarationError(f"A column cannot be called {INTERCEPT!r}, the name of the constant column: rename it.")


def _text_type(name: str, column: Column) -> pa.DataType:
    if isinstance(column, Categorical):
        return column.arrow_type
    if isinstance(column, Vector):
        return pa.list_(pa.float64(), column.size)  # a CSV file has none, and says so
    if isinstance(column, Numeric) and column.origin is not None:
        return pa.timestamp("us")
    return pa.bool_() if isinstance(column, Boolean) else pa.float64()
