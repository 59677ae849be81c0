"""Schemas: declared columns with their bounds, the encoded row, templates, partial schemas and formulas.

A schema is public and declared without looking at the data. Columns have short forms in dictionaries and files.

>>> schema = Schema.of({"age": [0, 100], "sex": ["female", "male"], "smoker": "boolean"})
>>> schema.columns["age"]
Numeric(lower=0.0, upper=100.0, weight=1.0, missing='error', origin=None)
>>> schema.names, schema.row_norm
(('age', 'sex=female', 'sex=male', 'smoker', '(intercept)'), 2.0)

A numeric column is clamped to its bounds and mapped to w·[-1, 1]; a Boolean is the numeric column with bounds (0, 1);
a categorical column has one entry w for its level and zeros elsewhere; a vector has one entry for each of its numbers;
terms that are derived from columns follow (:mod:`gaussmix.data.terms`); the intercept w₀ comes last. A row's squared
norm is therefore at most C² = Σ (squared norms of columns and terms) + w₀² (``row_norm``), whatever the data are.
Notation follows docs/glossary.md.

A partial schema declares types and leaves bounds or levels open, to be estimated privately. Values are read by their
declared type alone: a number as a double, a category as text, codes as 64-bit integers. A template of a file (`gaussmix
schema FILE`) is a partial schema if the file has types; types guessed from rows, as in CSV files, are marked with a
question mark and rejected, as in a schema.

>>> cost = {"lower": 0, "upper": None}
>>> found = PartialSchema.of({"age": "number", "sex": "category", "smoker": "boolean", "cost": cost})
>>> list(found.numbers), list(found.keys), list(found.declared)
(['age', 'cost'], ['sex'], ['smoker'])

Formulas name the response and the predictors in the syntax of R and patsy. They are parsed by formulaic, never
evaluated.

>>> read_formula("log(wage) ~ poly(experience, 2) + ethnicity*smsa")
Formula(response='log(wage)', predictors=('poly(experience, 2)', 'ethnicity', 'smsa', 'ethnicity:smsa'))
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import itertools
import json
import keyword
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import pyarrow as pa

from gaussmix._files import strict_json
from gaussmix._validation import positive, real, text
from gaussmix.data.columns import (
    GUESSED,
    LARGEST_WEIGHT,
    NOT_FROM_DATA,
    Boolean,
    Categorical,
    Column,
    Numeric,
    Vector,
    holds_dates,
    iso_date,
    set_field,
)
from gaussmix.data.terms import (
    Base,
    EncodedColumn,
    Part,
    bases_of,
    encoded_of,
    name_of,
    needs_of,
    parse_terms,
    parts_of,
    read_terms,
    resolved,
)
from gaussmix.data.units import Units, raw_map
from gaussmix.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeclarationError,
    GaussmixError,
    MissingFileError,
    MissingPackageError,
)

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
    'Declare a numeric column by [lower, upper], a categorical one by {"levels": [...]} or a list of labels, a boolean '
    'one by "boolean", a vector by {"size": 8, "norm": 1}; give options in a mapping such as '
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
        Declared bounds, the last one included up to its midnight. Times outside are clamped.
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


def parse_columns(declared: Mapping[str, object]) -> dict[str, Column]:
    """Return columns from their short forms; report all errors in one message."""
    found: dict[str, Column] = {}
    wrong: list[GaussmixError] = []
    for name, short in declared.items():
        try:
            found[name] = parse_column(short)
        except GaussmixError as error:
            wrong.append(type(error)(f"Column {name!r}: {error}"))
    if len(wrong) == 1:
        raise wrong[0] from None
    if wrong:
        told = [str(error).replace(f" {NOT_FROM_DATA}", "").replace(f" {HOW_TO_DECLARE}", "") for error in wrong]
        lines = "\n".join(f"  {words}" for words in told)
        raise DeclarationError(
            f"{len(wrong)} columns are not declared correctly:\n{lines}\n{HOW_TO_DECLARE} {NOT_FROM_DATA}"
        )
    return found


_NUMBER_IN_QUOTES = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def parse_column(declared: object) -> Column:
    """Return a column from its short form."""
    if isinstance(declared, Column):
        return declared
    if isinstance(declared, str):
        return _named_kind(declared)
    if isinstance(declared, list | tuple):  # two numbers are bounds; labels can only be levels
        if len(declared) == 2 and all(
            isinstance(entry, str) and _NUMBER_IN_QUOTES.fullmatch(entry) for entry in declared
        ):
            raise DeclarationError(
                "bounds must be numbers, without quotes. If these are the levels of a text column, declare "
                f"{json.dumps({'levels': list(declared)})}."
            )
        if declared and all(isinstance(entry, str | bool) for entry in declared):
            return Categorical(tuple(declared))
        if len(declared) != 2:
            raise DeclarationError(
                f"a list must be two numbers [lower, upper] or levels that are all text, got {len(declared)} entries. "
                f'Declare integer levels as {{"levels": [1, 2, 3]}}. {HOW_TO_DECLARE}'
            )
        return Numeric(*declared)
    if not isinstance(declared, Mapping):
        raise ArgumentTypeError(
            f"a column cannot be declared by an object of type {type(declared).__name__}. {HOW_TO_DECLARE}"
        )
    kind = declared.get("type", _implied_kind(declared))
    _confirmed(kind)
    options = {key: value for key, value in declared.items() if key != "type"}
    if kind == "date":
        _known_only(options, [*_DATE, "origin", "weight", "missing"], "date column")
        return Date(**cast(dict[str, Any], dict.fromkeys(_DATE) | options))
    if kind == "unsupported":
        raise DeclarationError("its type is not supported. Cast it to a number or to text, or omit the column.")
    if not isinstance(kind, str) or kind not in _KINDS:
        words = ", ".join(repr(word) for word in (*_KINDS, "date"))
        raise DeclarationError(f"type must be one of {words}, got {kind!r}. {HOW_TO_DECLARE}")
    _known_only(options, [field.name for field in fields(_KINDS[kind])], f"{kind} column")
    return _KINDS[kind](**dict.fromkeys(_REQUIRED[kind]) | options)


_WORDS = {
    "numeric": ("number", "integer", "int", "float", "double", "count"),
    "categorical": ("category", "string", "str", "text", "factor", "enum"),
    "boolean": ("bool", "logical"),
    "date": ("datetime", "timestamp", "time"),
    "vector": ("array", "list"),
}
_MORE = {
    "numeric": "a number needs bounds: [lower, upper], such as [0, 100]; gaussmix bounds estimates them privately",
    "categorical": 'a category needs its levels: ["north", "south"]; gaussmix bounds finds them privately',
    "boolean": 'a column of true and false is declared by "boolean"',
    "date": 'a date needs bounds: {"type": "date", "lower": "2020-01-01", "upper": "2024-12-31"}',
    "vector": 'a vector needs its size and a bound on its norm: {"size": 8, "norm": 1}',
}


def _confirmed(kind: object) -> None:
    """Reject a type that was guessed from rows: no row may decide what is published about a column."""
    if isinstance(kind, str) and kind.endswith(GUESSED):
        raise DeclarationError(
            f"its type {kind!r} was guessed from the rows. Confirm it by removing the question mark, or declare "
            "another type."
        )


def _named_kind(declared: str) -> Column:
    """Return a boolean column from its name; the names of other types need more, which the error says."""
    _confirmed(declared)
    if declared == "boolean":
        return Boolean()
    kinds = {other: kind for kind, others in _WORDS.items() for other in (kind, *others)}
    near = difflib.get_close_matches(declared.lower(), kinds, n=1)
    if not near:
        raise DeclarationError(f"{declared!r} does not declare a column. {HOW_TO_DECLARE}")
    raise DeclarationError(f"{declared!r} does not declare a column: {_MORE[kinds[near[0]]]}. {NOT_FROM_DATA}")


def _implied_kind(declared: Mapping[str, Any]) -> str:
    return "categorical" if "levels" in declared else "vector" if "size" in declared else "numeric"


def read_declared(source: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the content of a TOML or JSON file."""
    if not isinstance(source, str | os.PathLike):
        raise ArgumentTypeError(
            "schema must be a Schema, a mapping of column names to declarations, or the path of a JSON or TOML file, "
            f"got {type(source).__name__}."
        )
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise DeclarationError(f"A schema file must end in .toml or .json, got {str(path)!r}.")
    try:
        text = path.read_text(encoding="utf-8")
        declared = tomllib.loads(text) if suffix == ".toml" else strict_json(text)
    except FileNotFoundError:
        raise MissingFileError(f"The file {path} does not exist.") from None
    except RecursionError:
        raise DeclarationError(f"{path} is not a valid schema: it is nested too deeply.") from None
    except ValueError as error:  # both formats' errors, wrong bytes, a key that occurs twice, thousands of digits
        raise DeclarationError(f"{path} is not a valid {suffix[1:].upper()} file: {error}") from None
    if not isinstance(declared, Mapping):
        raise ArgumentTypeError(f"{path} must contain one object that maps column names to declarations.")
    return declared


def _refuse_misspelt_columns(declared: Mapping[str, Any]) -> None:
    """Reject a misspelt key ``"columns"``, which would be declared as a column: its value declares columns."""
    options = {option.name for kind in _KINDS.values() for option in fields(kind)} | {"type"}
    for key, value in declared.items():
        near = isinstance(key, str) and difflib.get_close_matches(key.lower(), ["columns"])
        if near and isinstance(value, Mapping) and value and not options & set(value):
            raise DeclarationError(
                f'Unknown key {key!r} in a schema: the key is "columns", as in {{"columns": {{"age": [0, 100]}}}}.'
            )


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
        Bound on the norm of an encoded row; a row with a larger norm is scaled down as a whole. Default: the bound that
        the columns imply, which no row exceeds.
    terms : mapping of str to float, or sequence of str
        Terms derived from the columns (:mod:`gaussmix.data.terms`), with weights ``{"poly(age, 2)": 0.5}`` or, for
        weights of 1, ``["poly(age, 2)", "age:sex"]``. A term that is not declared here is not available in models.
    only_in_terms : sequence of str
        Columns that are read only for terms and are not themselves released.
    weight : str, optional
        A numeric column, declared from 0 to the largest weight w_max, whose value w multiplies the row by √(w/w_max):
        sums over rows become weighted sums divided by w_max. It is not itself released.

    Attributes
    ----------
    parts : mapping of str to part
        Parts of the release in the order of the encoded row: columns, then terms, then missing-value indicators.
        Columns that are used only in terms or as weights are not parts; they are in ``columns`` only.
    row_norm : float
        Bound C on the norm of encoded rows: the exact root, rounded up, or ``max_row_norm`` if that is smaller.
    encoded : tuple of EncodedColumn
        Columns of the encoded row, in order.
    names : tuple of str
        Names of the encoded columns.
    n_columns : int
        Number m of encoded columns.
    groups : mapping of str to tuple of int
        Indices of the encoded columns of every part (and of ``"(intercept)"``).
    """

    columns: Mapping[str, Column]
    intercept: float = 1.0
    max_row_norm: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    only_in_terms: Sequence[str] = ()
    weight: str | None = None
    parts: Mapping[str, Part] = field(init=False, repr=False)
    row_norm: float = field(init=False, repr=False)
    encoded: tuple[EncodedColumn, ...] = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)
    n_columns: int = field(init=False, repr=False)
    groups: Mapping[str, tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise ArgumentTypeError(
                f"columns must be a mapping of names to column declarations, got {type(self.columns).__name__}. "
                f"{HOW_TO_DECLARE}"
            )
        if not self.columns:
            raise DeclarationError("columns must not be empty. Declare at least one column.")
        for name in self.columns:
            if not isinstance(name, str) or not name:
                raise ArgumentTypeError(f"A column name must be a nonempty string, got {name!r}.")
            text(**{"A column's name": name})
            if name == INTERCEPT:
                raise DeclarationError(
                    f"The column name {INTERCEPT!r} is reserved for the intercept. Rename the column."
                )
        set_field(self, "columns", MappingProxyType(parse_columns(self.columns)))
        intercept = real(intercept=self.intercept) + 0.0
        if intercept != 0 and not (1 / LARGEST_WEIGHT <= intercept <= LARGEST_WEIGHT):
            raise DeclarationError(
                f"intercept must be 0 or lie between 2**-100 and 2**100, got {intercept!r}. {NOT_FROM_DATA}"
            )
        set_field(self, "intercept", intercept)
        if self.max_row_norm is not None:
            bound = positive(finite=True, max_row_norm=self.max_row_norm)
            if not (1 / LARGEST_WEIGHT <= bound <= LARGEST_WEIGHT):
                raise DeclarationError(
                    f"max_row_norm must lie between 2**-100 and 2**100, got {bound!r}. {NOT_FROM_DATA}"
                )
            set_field(self, "max_row_norm", bound)
        column = None if self.weight is None else self.columns.get(self.weight)
        if self.weight is not None and (
            not isinstance(column, Numeric) or column.lower != 0 or column.missing == "indicator" or column.origin
        ):
            raise DeclarationError(
                f"weight: {self.weight!r} must be a numeric column with bounds [0, largest weight] and without "
                f'missing="indicator". {NOT_FROM_DATA}'
            )
        set_field(self, "terms", MappingProxyType(read_terms(self.terms, self.columns)))
        set_field(self, "only_in_terms", tuple(dict.fromkeys(self.only_in_terms)))
        if self.terms and not self.intercept:
            raise DeclarationError("terms require an intercept. Declare a positive intercept.")
        parts = parts_of(self.columns, self.terms, self.only_in_terms, self.weight)
        set_field(self, "parts", MappingProxyType(parts))
        implied = self.norm_of(self.parts, intercept=True)
        set_field(self, "row_norm", implied if self.max_row_norm is None else min(implied, self.max_row_norm))
        # A column whose bound is no unit of a row would be all zeros, and a vector with it would erase its rows.
        if self.intercept and not self.in_units(self.intercept):
            raise DeclarationError(
                f"intercept must be at least 2**-{FRACTION_BITS} times the row norm bound {self.row_norm!r}. Declare "
                "a larger intercept, intercept=0, or smaller column weights."
            )
        for name, part in parts.items():
            if part.squared_norm and not self.squared_in_units(part.squared_norm):
                raise DeclarationError(
                    f"Column {name!r}: its weight, and for a vector also its norm, must be at least "
                    f"2**-{FRACTION_BITS} times the row norm bound {self.row_norm!r}. Declare a larger value, or omit "
                    "the column."
                )
        encoded = {name: encoded_of(name, part, self.columns) for name, part in parts.items()}
        if self.intercept:
            encoded[INTERCEPT] = [EncodedColumn(INTERCEPT, None, "intercept", 0.0, 1 / self.rounded_intercept)]
        places = iter(range(sum(map(len, encoded.values()))))
        groups = {name: tuple(itertools.islice(places, len(own))) for name, own in encoded.items()}
        set_field(self, "groups", MappingProxyType(groups))
        set_field(self, "encoded", tuple(itertools.chain.from_iterable(encoded.values())))
        set_field(self, "names", tuple(column.name for column in self.encoded))
        set_field(self, "n_columns", len(self.names))
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DeclarationError(
                f"Two columns of the release would have the name {twice!r}. Rename a column or a level."
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
        declared = source if isinstance(source, Mapping) else read_declared(source)
        parts = [part.name for part in fields(cls) if part.init]
        if "columns" not in declared:
            _refuse_misspelt_columns(declared)
            return cls(cast(Mapping[str, Column], declared), **more)
        unknown = [key for key in declared if key not in parts]
        if unknown:
            raise DeclarationError(f"Unknown key {unknown[0]!r} in a schema; allowed keys are {', '.join(parts)}.")
        return cls(**{**declared, **more})

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values: ``Schema.of(schema.to_dict()) == schema``."""
        columns: dict[str, dict[str, Any]] = {}
        for name, column in self.columns.items():
            kind = next(word for word, cls in _KINDS.items() if isinstance(column, cls))
            values = {field.name: getattr(column, field.name) for field in fields(column)}
            columns[name] = {"type": kind} | {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in values.items()
                if key != "origin" or value is not None
            }
        found = {"columns": columns, "intercept": self.intercept, "max_row_norm": self.max_row_norm}
        more = {"terms": dict(self.terms), "only_in_terms": list(self.only_in_terms), "weight": self.weight}
        return found | {key: value for key, value in more.items() if value}  # as before terms where there are none

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, which depends on the order of the columns."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()

    @cached_property
    def _canonical(self) -> str:
        declared = self.to_dict()
        for key in declared.keys() & {"columns", "terms"}:
            declared[key] = [[name, value] for name, value in declared[key].items()]
        return json.dumps(declared, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self is other or self._canonical == other._canonical

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[dict[str, Any]]]:
        return Schema.of, (self.to_dict(),)

    # -- the encoded row -----------------------------------------------------------------------------------------
    def resolve(self, text: str) -> tuple[str, ...]:
        """Return the parts of the release that a column or a term stands for; raise an error if there are none."""
        return resolved(text, self.parts, self.columns)

    @cached_property
    def units(self) -> Units:
        """Centres and scales of the encoded columns and the map of terms, for conversion to and from original units."""
        return Units.of(self.encoded, raw_map(self.encoded, self.parts, self.columns))

    @property
    def weight_bound(self) -> float:
        """The largest weight w_max; 1 without row weights."""
        column = None if self.weight is None else self.columns[self.weight]
        return column.upper if isinstance(column, Numeric) else 1.0

    @property
    def scales_rows(self) -> bool:
        """Whether rows can exceed a declared norm, of a vector or of the row, and are then scaled as a whole."""
        vectors = [part for part in self.parts.values() if isinstance(part, Vector) and part.norm is not None]
        beyond = any(not part.bounded or (part.norm or 0) ** 2 < part.size for part in vectors)
        return beyond or self.row_norm < self.norm_of(self.parts, intercept=True)

    def norm_of(self, parts: Collection[str], *, intercept: bool = False) -> float:
        """Return a bound on the norm of some parts (and the intercept) of a row, rounded up."""
        square = sum((self.parts[name].squared_norm for name in parts), Fraction(0))
        square += Fraction(self.intercept) ** 2 if intercept else 0
        root = math.sqrt(square)
        while Fraction(root) ** 2 < square:
            root = math.nextafter(root, math.inf)
        return root

    def coded(self, thresholds: Mapping[str, tuple[float, float]]) -> Schema:
        """Return the schema in which numbers are coded to thresholds within their bounds; terms use coded values."""
        columns = dict(self.columns)
        for name, (lower, upper) in thresholds.items():
            column = columns.get(name)
            if not isinstance(column, Numeric) or name == self.weight:
                raise DeclarationError(
                    f"topcode: {name!r} must be a numeric column of the schema that is not a weight."
                )
            if not column.lower <= lower < upper <= column.upper:
                raise DeclarationError(
                    f"topcode: the thresholds of {name!r} must lie within its bounds [{column.lower:g}, "
                    f"{column.upper:g}], with the lower one first, got {lower!r} and {upper!r}."
                )
            columns[name] = replace(column, lower=lower, upper=upper)
        return replace(self, columns=columns) if thresholds else self

    def thresholds_within(self, declared: Schema) -> dict[str, tuple[float, float]]:
        """Return the bounds of the numbers that are narrower than declared: the inverse of `coded`."""
        found = {}
        for name, column in self.columns.items():
            whole = declared.columns[name]
            if isinstance(column, Numeric) and column != whole:
                found[name] = (column.lower, column.upper)
        return found

    def in_units(self, value: float) -> int:
        """Return the floor of value / C in units of 2⁻²⁰, exactly."""
        return math.isqrt(self.squared_in_units(Fraction(value) ** 2))

    def squared_in_units(self, square: Fraction) -> int:
        """Return the floor of square / C² in units of 2⁻⁴⁰, exactly."""
        return int(square * 2 ** (2 * FRACTION_BITS) / Fraction(self.row_norm) ** 2)

    @property
    def rounded_intercept(self) -> float:
        """Value of w₀ in an encoded row, rounded down like every entry."""
        return self.in_units(self.intercept) * 2.0**-FRACTION_BITS * self.row_norm

    @cached_property
    def text_types(self) -> Mapping[str, pa.DataType]:
        """Types for reading the columns from text (CSV), so that no type is inferred from the data."""
        types: dict[str, pa.DataType] = {}
        for name, column in self.columns.items():
            if isinstance(column, Categorical):
                # Integers that doubles hold exactly are read as doubles, since pandas writes codes with missing values
                # as 1.0.
                codes = column.arrow_type == pa.int64() and all(abs(int(level)) < 2**53 for level in column.levels)
                types[name] = pa.float64() if codes else column.arrow_type
            elif isinstance(column, Vector):
                types[name] = pa.list_(pa.float64(), column.size)  # a CSV file has none, and says so
            elif isinstance(column, Numeric) and column.origin is not None:
                types[name] = pa.timestamp("us")
            else:
                types[name] = pa.bool_() if isinstance(column, Boolean) else pa.float64()
        return MappingProxyType(types)


def stored_schema(stored: object) -> Schema:
    """Return the schema in a file of this library. Unlike `Schema.of`, never open a path named in the file."""
    if not isinstance(stored, Mapping):
        raise ArgumentTypeError("A stored schema must be a JSON object.")
    return Schema.of(dict(stored))


def describe_columns(source: pa.Schema, *, guessed: bool = False) -> dict[str, Any]:
    """Return a schema template: names and types, with None for bounds and levels to be filled in.

    `Schema.of` refuses it until that is done.

    Types that were guessed from rows, as of CSV files, have a question mark and are refused until it is removed, since
    no row may decide what is published about a column.

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


HOW_TO_LEAVE_OPEN = (
    'To have bounds or levels estimated, declare a column by "number", "category" (text) or "codes" (integer levels), '
    'or by {"lower": null, "upper": null} or {"levels": null} with options such as "missing".'
)
_NUMBER, _CATEGORY, _CODES = ("number", "numeric"), ("category", "categorical"), ("codes",)
_KEY_TYPES = {_CATEGORY[0]: pa.string(), _CODES[0]: pa.int64()}


@dataclass(frozen=True)
class PartialSchema:
    """Columns whose bounds or levels are open, and fully declared ones."""

    numbers: Mapping[str, dict[str, Any]]  # without bounds, or with one: what was declared about each
    keys: Mapping[str, dict[str, Any]]  # categories without levels, and what was declared about each
    key_types: Mapping[str, pa.DataType]  # of every category: text or integers
    declared: Mapping[str, Column]  # columns for which nothing is to be found: they are not read
    order: tuple[str, ...]  # all names as they were declared
    rest: Mapping[str, Any]  # intercept and ``max_row_norm``, where they were declared

    @classmethod
    def of(cls, source: PartialSchema | Mapping[str, Any] | str | os.PathLike[str]) -> PartialSchema:
        """Build from a dictionary, or from a TOML or JSON file, as `Schema.of`, with open bounds and levels."""
        if isinstance(source, PartialSchema):
            return source
        if isinstance(source, Schema):
            raise DeclarationError(
                "All columns of this schema are fully declared: there are no bounds or levels to estimate."
            )
        declared = source if isinstance(source, Mapping) else read_declared(source)
        rest: dict[str, Any] = {}
        if "columns" in declared:
            rest = {key: value for key, value in declared.items() if key != "columns"}
            declared = declared["columns"]
        elif isinstance(declared, Mapping):
            _refuse_misspelt_columns(declared)
        if not isinstance(declared, Mapping) or not declared:
            raise ArgumentTypeError(f"columns must map names to declarations. {HOW_TO_LEAVE_OPEN}")
        numbers: dict[str, dict[str, Any]] = {}
        keys: dict[str, dict[str, Any]] = {}
        types: dict[str, pa.DataType] = {}
        known: dict[str, Column] = {}
        for name, short in declared.items():
            kind, options = _open_kind(short)
            try:
                _confirmed(short.get("type") if isinstance(short, Mapping) else short)
                if kind is None:
                    known[name] = parse_column(short)
                elif kind == _NUMBER[0]:
                    numbers[name] = _open_options(kind, options)
                else:
                    keys[name], types[name] = _open_options(kind, options), _KEY_TYPES[kind]
            except GaussmixError as error:
                raise type(error)(f"Column {name!r}: {error}") from None
        if not numbers and not keys:
            raise DeclarationError(
                f"All columns are fully declared: there are no bounds or levels to estimate. {HOW_TO_LEAVE_OPEN}"
            )
        frozen = MappingProxyType
        found = cls(frozen(numbers), frozen(keys), frozen(types), frozen(known), tuple(declared), rest)
        found.taken  # noqa: B018 - names, weights and the bound of a row are as a schema may have them
        return found

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read."""
        return [*self.numbers, *self.keys]

    @property
    def text_types(self) -> dict[str, pa.DataType]:
        """Types for reading the columns of an untyped table."""
        return {**dict.fromkeys(self.numbers, pa.float64()), **self.key_types}

    @property
    def taken(self) -> frozenset[str]:
        """Names of encoded columns that do not depend on the levels found."""
        bounds = dict.fromkeys(self.numbers, (-1.0, 1.0))
        levels = {name: (0,) if kind == pa.int64() else ("\0",) for name, kind in self.key_types.items()}
        placeholders = {f"{name}={level}" for name, (level,) in levels.items()}
        return frozenset(self.schema(bounds, levels).names) - placeholders

    def schema(self, bounds: Mapping[str, tuple[float, float]], levels: Mapping[str, tuple[Any, ...]]) -> Schema:
        """Return the schema with the bounds and levels found; other open columns are left out."""
        found: dict[str, Column] = dict(self.declared)
        for name, (lower, upper) in bounds.items():
            found[name] = Numeric(**{**self.numbers[name], "lower": lower, "upper": upper})
        for name, chosen in levels.items():
            found[name] = Categorical(**{**self.keys[name], "levels": chosen})
        return Schema({name: found[name] for name in self.order if name in found}, **self.rest)


def _open_kind(short: object) -> tuple[str | None, dict[str, Any]]:
    """Return the kind of an open column (None if it is fully declared), and its other options."""
    words = {word: kinds[0] for kinds in (_NUMBER, _CATEGORY, _CODES) for word in kinds}
    if isinstance(short, str):
        return words.get(short), {}
    if not isinstance(short, Mapping):
        return None, {}
    options = {key: value for key, value in short.items() if key != "type"}
    kind = words.get(str(short.get("type", _implied_kind(options))))
    if kind == _NUMBER[0] and None not in (options.get("lower"), options.get("upper")):
        return None, options
    if kind in (_CATEGORY[0], _CODES[0]) and options.get("levels") is not None:
        return None, options
    return kind, options


def _open_options(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check and return the options of a column with open bounds or levels."""
    column, word = (Numeric, "number") if kind == _NUMBER[0] else (Categorical, "category")
    _known_only(options, [field.name for field in fields(column)], word)
    found = {key: value for key, value in options.items() if value is not None}
    others = {key: value for key, value in found.items() if key not in ("lower", "upper", "levels")}
    if column is Numeric:
        Numeric(-1.0, 1.0, **others)
        return found | {key: real(**{key: found[key]}) for key in ("lower", "upper") if key in found}
    if found.get("unknown") == "error":  # nobody has declared the levels that may occur
        raise DeclarationError(
            'unknown must be "other" or "zero" for a column whose levels are estimated: rare levels are not found, '
            "and an error would reveal that they occur."
        )
    Categorical((1,) if kind == _CODES[0] else ("a",), **others)
    return {"unknown": "other"} | found


def _known_only(options: Mapping[str, Any], allowed: list[str], kind: str) -> None:
    unknown = [key for key in options if key not in allowed]
    if unknown:
        raise DeclarationError(f"unknown key {unknown[0]!r} in a {kind}; allowed keys are {', '.join(allowed)}.")


@dataclass(frozen=True)
class Formula:
    """A response and its predictors; None for all other columns."""

    response: str
    predictors: tuple[str, ...] | None


def read_formula(text: str) -> Formula:
    """Parse a formula.

    Parameters
    ----------
    text : str
        ``"response ~ a + b:c"``: one response, and terms joined by ``+``, ``:`` and ``*``; ``"response ~ ."`` uses all
        other columns.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"formula must be a string, got {type(text).__name__}.")
    left, tilde, right = text.partition("~")
    if not tilde or "~" in right:
        raise ArgumentError(f"formula must have the form 'response ~ a + b', got {text!r}.")
    response = _terms(left, text)
    if len(response) != 1:
        raise ArgumentError(f"formula must have one response, got {text!r}.")
    if right.strip() == ".":
        return Formula(response[0], None)
    predictors = _terms(right, text)
    if not predictors:
        raise ArgumentError(f"formula must have at least one predictor, got {text!r}.")
    return Formula(response[0], predictors)


_QUOTED_OR_CALL = re.compile(r"`[^`]*`|\w+\([^()]*\)")
_POWER_OF_ONE = re.compile(r"\w\s*(\^|\*\*)")  # (a + b)^2 is a product of sums


def _terms(side: str, whole: str) -> tuple[str, ...]:
    """Return the terms of one side as text, without the intercept, which is required."""
    names = [name.strip() for name in side.split("+")]
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        return tuple(Base(name).text for name in dict.fromkeys(names))  # releases of declared models need no formulaic
    if _POWER_OF_ONE.search(_QUOTED_OR_CALL.sub("x", side)):
        raise ArgumentError(
            f"formula must not contain powers of a column with ^ or **, got {whole!r}: in formulas of R and patsy they "
            "stand for the column itself. Write poly(age, 2)."
        )
    try:
        from formulaic.errors import FormulaParsingError
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise MissingPackageError(
            'Formulas require formulaic: pip install "gaussmix[formulas]". Or give the predictors in '
            "predictors= and declare the terms in the schema."
        ) from None
    try:
        found: Any = DefaultFormulaParser().get_terms(side)
    except (FormulaParsingError, SyntaxError, ValueError, TypeError, RecursionError):
        found = None
    terms = list(found) if isinstance(found, Iterable) and not hasattr(found, "lhs") else [found]
    if not all(hasattr(term, "factors") for term in terms):
        raise ArgumentError(f"formula cannot be parsed: {whole!r}. Join columns and terms with +, : and *.")
    texts = [":".join(_text(factor) for factor in term.factors) for term in terms]
    if "1" not in texts:
        raise ArgumentError(f"formula must not remove the intercept, got {whole!r}.")
    return tuple(text for text in texts if text != "1")


def _text(factor: Any) -> str:
    """Return a factor as text, with names quoted as in terms."""
    return Base(factor.expr).text if factor.eval_method.name == "LOOKUP" else str(factor.expr)


def declared_schema(
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str],
    *,
    formula: str | None = None,
    weight: str | None = None,
) -> Schema:
    """Return a schema with its weight column, restricted to the columns and terms of a formula.

    Columns that are used only inside terms are read but not released themselves.
    """
    declared = Schema.of(schema) if weight is None else Schema.of(schema, weight=weight)
    if formula is None:
        return declared
    read = read_formula(formula)
    if read.predictors is None:
        raise DeclarationError(
            f"formula must list its predictors, got {formula!r}: they define the columns of the release."
        )
    texts = (read.response, *read.predictors)
    terms = [term for text in texts for term in parse_terms(text, declared.columns)]
    released = {name_of(need) for term in terms for need in needs_of(term) if isinstance(need, Base)}
    used = {name for term in terms for name in bases_of(term)}
    absent = [name for name in used if name not in declared.columns]
    if absent:
        raise DeclarationError(
            f"formula: column {min(absent)!r} is not declared. Declare it in the schema with its bounds or levels."
        )
    columns = {name: column for name, column in declared.columns.items() if name in used or name == declared.weight}
    own = {name_of(need): 1.0 for term in terms for need in needs_of(term) if not isinstance(need, Base)}
    terms_of = {name: declared.terms.get(name, one) for name, one in own.items()}
    hidden = tuple(name for name in columns if name not in released and name != declared.weight)
    return replace(declared, columns=columns, terms=terms_of, only_in_terms=hidden)


def response_and_predictors(response: str, predictors: Sequence[str] | None) -> tuple[str, Sequence[str] | None]:
    """Return the response and the predictors of a model, parsed from a formula if one is given."""
    if not isinstance(response, str) or "~" not in response:
        return response, predictors
    if predictors is not None:
        raise ArgumentError(
            "predictors cannot be combined with a formula, which lists the predictors. Omit predictors."
        )
    formula = read_formula(response)
    return formula.response, formula.predictors
