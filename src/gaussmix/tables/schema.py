"""What a table may hold: declared columns, bounds and levels, and how a row becomes numbers.

A schema is public and written before the data are seen. Each row is encoded by itself: no row sees another one.

>>> schema = Schema.from_({"age": [0, 100], "sex": {"levels": ["female", "male"]}, "smoker": "boolean"})
>>> schema.names
('age', 'sex=female', 'sex=male', 'smoker', '(intercept)')
>>> schema.encode(pa.RecordBatch.from_pydict({"age": [75], "sex": ["male"], "smoker": [False]})).tolist()
[[0.5, 0.0, 1.0, -1.0, 1.0]]
>>> schema.norm
2.0

A numeric column is clipped to its bounds and mapped to w·[-1, 1]; a Boolean is the numeric column with bounds (0, 1);
a categorical column has one entry w for its level and zeros elsewhere; the intercept w₀ comes last. A row's squared
norm is therefore at most C² = Σ w² over the columns + w₀² (``norm``), whatever the data are.

Notation follows docs/notation.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix._validation import choice, positive, real
from gaussmix.encoding import RowEncoder

__all__ = ["Boolean", "Categorical", "Column", "EncodedColumn", "Numeric", "Schema", "describe_columns"]

INTERCEPT = "(intercept)"
"""Name of the constant column."""

_LARGEST_WEIGHT = 2.0**100  # weights in [2**-100, 2**100] and half ranges in [2**-300, 2**300]: no scale overflows
_LARGEST_HALF_RANGE = 2.0**300
_BLOCK_BYTES = 2**25
_LEAST_BLOCK_ROWS = 2**10
_NOT_FROM_DATA = "It must be fixed before the data are seen: a value taken from the data is not private."

_Floats = NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------------------
# Columns
@dataclass(frozen=True)
class Numeric:
    """A number, clipped to [lower, upper] and mapped to weight · [-1, 1].

    Parameters
    ----------
    lower, upper : float
        Declared bounds. Values outside are clipped, never an error.
    weight : float
        Share of the row's norm: a column with a larger weight is released more exactly, at the others' cost.
    missing : {"error", "drop-row", "lower"}
        What to do where the value is missing, NaN or infinite: stop, leave the row out, or read it as ``lower``.
    """

    lower: float
    upper: float
    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "lower"] = "error"

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if bound is None:
                raise ValueError(f"{name} is not declared. Fill in a bound. {_NOT_FROM_DATA}")
            _set(self, name, real(**{name: bound}) + 0.0)  # + 0.0: no negative zero, equal schemas are the same text
        half_range = self.upper / 2 - self.lower / 2
        if not (1 / _LARGEST_HALF_RANGE <= half_range <= _LARGEST_HALF_RANGE):
            raise ValueError(
                f"lower and upper must be finite with lower < upper, got {self.lower!r} and {self.upper!r}. "
                "A constant column carries no information: leave it out."
            )
        _set(self, "weight", _weight(self.weight))
        choice(("error", "drop-row", "lower"), missing=self.missing)


@dataclass(frozen=True)
class Boolean:
    """True or false, encoded as weight and -weight: exactly ``Numeric(0, 1)`` with false as 0 and true as 1.

    Both values have the square weight², and a coefficient is the difference between true and false.

    Parameters
    ----------
    weight : float
        As for `Numeric`.
    missing : {"error", "drop-row", "lower"}
        ``"lower"`` reads a missing value as false. For a level of its own declare
        ``Categorical([False, True], missing="level")``.
    """

    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "lower"] = "error"

    def __post_init__(self) -> None:
        _set(self, "weight", _weight(self.weight))
        choice(("error", "drop-row", "lower"), missing=self.missing)


@dataclass(frozen=True)
class Categorical:
    """One of the declared levels: ``weight`` in the encoded column of that level, 0 in the others.

    Parameters
    ----------
    levels : sequence of str, of int or of bool
        All of one type, which must be the column's: ``"1"`` is not ``1``.
    weight : float
        As for `Numeric`.
    missing : {"error", "drop-row", "level"}
        ``"level"`` adds an encoded column for missing values.
    unknown : {"error", "zero", "other"}
        What to do with a value that is not a level: stop, encode zeros, or add an encoded column for all of them.
    """

    levels: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "level"] = "error"
    unknown: Literal["error", "zero", "other"] = "error"

    def __post_init__(self) -> None:
        _set(self, "levels", _levels(self.levels))
        _set(self, "weight", _weight(self.weight))
        choice(("error", "drop-row", "level"), missing=self.missing)
        choice(("error", "zero", "other"), unknown=self.unknown)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the encoded columns: the levels, then ``(missing)`` and ``(other)`` where they are declared."""
        words = tuple(str(level).lower() if isinstance(level, bool) else str(level) for level in self.levels)
        return words + ("(missing)",) * (self.missing == "level") + ("(other)",) * (self.unknown == "other")

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the levels."""
        return {str: pa.string(), int: pa.int64(), bool: pa.bool_()}[type(self.levels[0])]


Column = Numeric | Boolean | Categorical
_KINDS: dict[str, type[Column]] = {"numeric": Numeric, "boolean": Boolean, "categorical": Categorical}
_HOW_TO_DECLARE = (
    'Declare a number by [lower, upper], categories by {"levels": [...]}, true and false by "boolean"; '
    'options go into a table such as {"lower": 0, "upper": 1, "missing": "drop-row"}.'
)


def _set(instance: object, name: str, value: object) -> None:
    object.__setattr__(instance, name, value)  # a frozen dataclass puts its own fields into one form


def _weight(weight: object) -> float:
    number = positive(finite=True, weight=weight)
    if not (1 / _LARGEST_WEIGHT <= number <= _LARGEST_WEIGHT):
        raise ValueError(f"weight must lie between 2**-100 and 2**100, got {number!r}.")
    return number


def _levels(levels: object) -> tuple[Any, ...]:
    if levels is None:
        raise ValueError(f"levels are not declared. Fill in the list of levels. {_NOT_FROM_DATA}")
    if isinstance(levels, str | bytes | Mapping) or not isinstance(levels, Iterable):
        raise TypeError(f"levels must be a list of strings, of integers or of booleans, got {type(levels).__name__}.")
    found = tuple(level.item() if isinstance(level, np.generic) else level for level in levels)
    if not found:
        raise ValueError("levels must not be empty: name every level that may occur.")
    types = {type(level) for level in found}
    if len(types) > 1 or not types <= {str, int, bool}:
        names = ", ".join(sorted(kind.__name__ for kind in types))
        raise TypeError(
            f"levels must be all strings, all integers or all booleans, got {names}. "
            "Fractions are no levels: declare a numeric column, or round to integers."
        )
    if len(set(found)) < len(found):
        raise ValueError("levels must differ from each other: a level is named twice.")
    if types == {int} and not all(-(2**63) <= level < 2**63 for level in found):
        raise ValueError("levels that are integers must fit into 64 bits. Use strings for longer codes.")
    if types == {str}:
        for level in found:
            _check_text("levels", level)
    return found


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode text (UTF-8).") from None


def _column(name: str, declared: object) -> Column:
    """A column from its short form; errors name it."""
    try:
        return _parsed(declared)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Column {name!r}: {error}") from None


def _parsed(declared: object) -> Column:
    if isinstance(declared, Column):
        return declared
    if declared == "boolean":
        return Boolean()
    if isinstance(declared, list | tuple):
        if len(declared) != 2:
            raise ValueError(f"a list must be [lower, upper], got {len(declared)} entries. {_HOW_TO_DECLARE}")
        return Numeric(*declared)
    if not isinstance(declared, Mapping):
        raise TypeError(f"a column cannot be declared by {type(declared).__name__}. {_HOW_TO_DECLARE}")
    kind = declared.get("type", "categorical" if "levels" in declared else "numeric")
    if kind == "unsupported":
        raise ValueError("its type cannot be encoded. Cast it to a number or to text, or leave the column out.")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"type must be one of 'numeric', 'categorical', 'boolean', got {kind!r}. {_HOW_TO_DECLARE}")
    allowed = [field.name for field in fields(_KINDS[kind])]
    unknown = [key for key in declared if key not in (*allowed, "type")]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in a {kind} column; it may have {', '.join(allowed)}.")
    options = {key: value for key, value in declared.items() if key != "type"}
    required: dict[str, tuple[str, ...]] = {"numeric": ("lower", "upper"), "categorical": ("levels",), "boolean": ()}
    return _KINDS[kind](**dict.fromkeys(required[kind]) | options)


# ---------------------------------------------------------------------------------------------------------------
# The schema
@dataclass(frozen=True)
class EncodedColumn:
    """One column of the encoded row.

    Attributes
    ----------
    name : str
        ``"age"``, ``"sex=female"``, ``"(intercept)"``.
    source : str or None
        Column of the table; None for the intercept.
    kind : {"numeric", "boolean", "level", "intercept"}
    centre, scale : float
        The entry is ``(x - centre) / scale`` with x in the user's units: the clipped number, 0 or 1 for a level or
        a Boolean, 1 for the intercept.
    """

    name: str
    source: str | None
    kind: Literal["numeric", "boolean", "level", "intercept"]
    centre: float
    scale: float


@dataclass(frozen=True, eq=False)
class Schema:
    """Columns of a table with their bounds or levels: public, immutable, hashable.

    Parameters
    ----------
    columns : mapping of str to column
        `Numeric`, `Categorical` or `Boolean`, or their short forms (see `from_`). The order is that of the
        encoded row. Columns of the table that are not named here are never read.
    intercept : float
        Value w₀ of the constant column; 0 for none.
    row_norm : float, optional
        Bound of the whole encoded row's norm; a longer row is multiplied as a whole. Default: what the columns
        imply, which no row exceeds.
    """

    columns: Mapping[str, Column]
    intercept: float = 1.0
    row_norm: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise TypeError(f"columns must map names to columns, got {type(self.columns).__name__}. {_HOW_TO_DECLARE}")
        if not self.columns:
            raise ValueError("columns must not be empty: declare at least one column.")
        for name in self.columns:
            if not isinstance(name, str) or not name:
                raise TypeError(f"A column's name must be a string, not empty, got {name!r}.")
            _check_text("A column's name", name)
            if name == INTERCEPT:
                raise ValueError(
                    f"A column cannot be called {INTERCEPT!r}, the name of the constant column: rename it."
                )
        columns = {name: _column(name, declared) for name, declared in self.columns.items()}
        _set(self, "columns", MappingProxyType(columns))
        intercept = real(intercept=self.intercept) + 0.0
        if intercept != 0 and not (1 / _LARGEST_WEIGHT <= intercept <= _LARGEST_WEIGHT):
            raise ValueError(f"intercept must be 0 or a finite number > 0, got {intercept!r}. {_NOT_FROM_DATA}")
        _set(self, "intercept", intercept)
        if self.row_norm is not None:
            row_norm = positive(finite=True, row_norm=self.row_norm)
            if not (1 / _LARGEST_WEIGHT <= row_norm <= _LARGEST_WEIGHT):
                raise ValueError(f"row_norm must lie between 2**-100 and 2**100, got {row_norm!r}. {_NOT_FROM_DATA}")
            _set(self, "row_norm", row_norm)
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"Two encoded columns would be called {twice!r}. Rename a column or a level.")

    @classmethod
    def from_(cls, source: Schema | Mapping[str, Any] | str | os.PathLike[str]) -> Schema:
        """Build from a dictionary, or from a TOML or JSON file with the same content.

        Parameters
        ----------
        source : mapping, path or Schema
            ``{"columns": {...}, "intercept": 1.0, "row_norm": 2.0}``, or the columns alone. A column is
            ``[lower, upper]``, ``{"lower": 0, "upper": 9, "weight": 2, "missing": "drop-row"}``,
            ``{"levels": ["a", "b"], "unknown": "other"}``, ``"boolean"`` or ``{"type": "boolean", ...}``.

        Examples
        --------
        >>> Schema.from_({"columns": {"age": [0, 100]}, "intercept": 0.5}).norm
        1.118033988749895
        """
        if isinstance(source, Schema):
            return source
        declared = source if isinstance(source, Mapping) else _read(Path(source))
        parts = [field.name for field in fields(cls)]
        if "columns" not in declared:
            return cls(cast(Mapping[str, Column], declared))
        unknown = [key for key in declared if key not in parts]
        if unknown:
            raise ValueError(f"Unknown key {unknown[0]!r} in a schema; it may have {', '.join(parts)}.")
        return cls(**declared)

    def to_dict(self) -> dict[str, Any]:
        """What was declared, as plain values: ``Schema.from_(schema.to_dict()) == schema``."""
        columns = {}
        for name, column in self.columns.items():
            kind = next(word for word, cls in _KINDS.items() if isinstance(column, cls))
            values = {field.name: getattr(column, field.name) for field in fields(column)}
            columns[name] = {"type": kind} | {
                key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
            }
        return {"columns": columns, "intercept": self.intercept, "row_norm": self.row_norm}

    def to_json(self) -> str:
        """As text that `from_` reads back exactly."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON; equal for equal schemas only. The order of the columns counts."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()

    @cached_property
    def _canonical(self) -> str:
        declared = self.to_dict()
        declared["columns"] = [[name, column] for name, column in declared["columns"].items()]
        return json.dumps(declared, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[dict[str, Any]]]:
        return Schema.from_, (self.to_dict(),)

    # -- the encoded row -----------------------------------------------------------------------------------------
    @cached_property
    def encoded(self) -> tuple[EncodedColumn, ...]:
        """Columns of the encoded row, in order."""
        found: list[EncodedColumn] = []
        for name, column in self.columns.items():
            if isinstance(column, Categorical):
                found += [
                    EncodedColumn(f"{name}={label}", name, "level", 0.0, 1 / column.weight) for label in column.labels
                ]
            else:
                centre, half_range = _interval(column)
                kind: Literal["numeric", "boolean"] = "numeric" if isinstance(column, Numeric) else "boolean"
                found.append(EncodedColumn(name, name, kind, centre, half_range / column.weight))
        if self.intercept:
            found.append(EncodedColumn(INTERCEPT, None, "intercept", 0.0, 1 / self.intercept))
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the encoded columns."""
        return tuple(column.name for column in self.encoded)

    @property
    def n_columns(self) -> int:
        """Columns m of the encoded row."""
        return len(self.encoded)

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the encoded columns of every column of the table (and of ``"(intercept)"``)."""
        found: dict[str, tuple[int, ...]] = {}
        for index, column in enumerate(self.encoded):
            source = INTERCEPT if column.source is None else column.source
            found[source] = (*found.get(source, ()), index)
        return MappingProxyType(found)

    def decode_map(self) -> tuple[_Floats, _Floats]:
        """Centre and scale of every encoded column: an entry is ``(x - centre) / scale``.

        So Σ θⱼ·entryⱼ is Σ (θⱼ/scaleⱼ)·xⱼ - Σ θⱼ·centreⱼ/scaleⱼ in the user's units.
        """
        return np.array([c.centre for c in self.encoded]), np.array([c.scale for c in self.encoded])

    @cached_property
    def norm(self) -> float:
        """C: no encoded row is longer. Rounded up from the exact root of Σ w² + w₀²; or ``row_norm`` if smaller."""
        weights = [column.weight for column in self.columns.values()] + [self.intercept]
        square = sum((Fraction(w) ** 2 for w in weights), Fraction(0))
        implied = math.sqrt(square)
        while Fraction(implied) ** 2 < square:
            implied = math.nextafter(implied, math.inf)
        return implied if self.row_norm is None else min(implied, self.row_norm)

    @property
    def row_encoder(self) -> RowEncoder:
        """What `moments.accumulate` needs for the rows that `encode` returns: it shortens, divides by C and rounds."""
        return RowEncoder(self.n_columns, data_norm=self.norm)

    @cached_property
    def text_types(self) -> Mapping[str, pa.DataType]:
        """How to read the columns from text (CSV): nothing is guessed from the data."""
        return MappingProxyType(
            {
                name: column.arrow_type
                if isinstance(column, Categorical)
                else pa.bool_()
                if isinstance(column, Boolean)
                else pa.float64()
                for name, column in self.columns.items()
            }
        )

    def encode(self, batch: pa.RecordBatch | pa.Table, *, out: _Floats | None = None, unit: float = 1.0) -> _Floats:
        """Clip and encode rows. The result is **sensitive**.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or pyarrow.Table
            With the schema's columns, in any order; others are not looked at.
        out : array of shape (at least rows, n_columns), optional
            Where to write, best in Fortran order; a part of it is returned.
        unit : float
            What 1 is written as.

        Returns
        -------
        array of float64, shape (rows kept, n_columns)
            Column-major, not yet shortened to ``row_norm``, not divided by C. Rows that ``missing="drop-row"``
            leaves out are not in it: their number is sensitive.

        Raises
        ------
        ValueError, TypeError
            If a column is absent or of another type, or holds missing values or unknown levels without a rule for
            them. For the curator: whoever sees whether it occurred learns about single rows.
        """
        arrays = {name: _one_column(batch, name) for name in self.columns}
        keep = _kept(self.columns, arrays)
        if keep is not None:
            arrays = {name: array.filter(keep) for name, array in arrays.items()}
        rows = len(next(iter(arrays.values())))
        if out is None:
            out = np.empty((rows, self.n_columns), order="F")
        block = out[:rows]
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, others are found below
            for name, column in self.columns.items():
                indices = self.groups[name]
                part = block[:, indices[0] : indices[-1] + 1]
                if isinstance(column, Categorical):
                    _write_levels(part, name, column, arrays[name], unit)
                else:
                    _write_numbers(part[:, 0], name, column, arrays[name], unit)
        if self.intercept:
            block[:, -1] = self.intercept * unit
        return block

    def blocks(
        self, batches: Iterable[pa.RecordBatch | pa.Table], *, unit: float = 1.0
    ) -> Iterator[tuple[_Floats, None]]:
        """Encode one batch after the other, for `moments.accumulate`. A block is overwritten by the next one.

        One buffer serves all batches: fresh memory for each would cost more than the arithmetic. Its size is
        bounded, however many levels there are.
        """
        rows = max(_BLOCK_BYTES // (8 * self.n_columns), _LEAST_BLOCK_ROWS)
        buffer = np.empty((0, self.n_columns), order="F")
        for batch in batches:
            if len(buffer) < min(rows, batch.num_rows):
                buffer = np.empty((min(rows, batch.num_rows), self.n_columns), order="F")
            for start in range(0, batch.num_rows, rows):
                yield self.encode(batch.slice(start, rows), out=buffer, unit=unit), None


def _interval(column: Numeric | Boolean) -> tuple[float, float]:
    """Centre and half range."""
    if isinstance(column, Boolean):
        return 0.5, 0.5
    return column.lower / 2 + column.upper / 2, column.upper / 2 - column.lower / 2


def _read(path: Path) -> Mapping[str, Any]:
    """The content of a TOML or JSON file."""
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise ValueError(f"A schema file must end in .toml or .json, got {str(path)!r}.")
    try:
        text = path.read_text(encoding="utf-8")
        declared = tomllib.loads(text) if suffix == ".toml" else json.loads(text, object_pairs_hook=_distinct)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError, _TwiceError) as error:
        raise ValueError(f"{path} is not a valid {suffix[1:].upper()} file: {error}") from None
    if not isinstance(declared, Mapping):
        raise TypeError(f"{path} must hold one object that maps names to columns.")
    return declared


class _TwiceError(ValueError):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys differ; a repeated key would silently replace a bound."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError("a key occurs twice in one object")
    return found


# ---------------------------------------------------------------------------------------------------------------
# Encoding one column
def _one_column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """A column as one plain array; dictionaries stay."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        what = "is not in the table" if not indices else "is in the table twice"
        raise ValueError(f"Column {name!r} {what}. The table must have every column of the schema once.")
    array = batch.column(indices[0])
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of no or of too long chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _kept(columns: Mapping[str, Column], arrays: Mapping[str, pa.Array]) -> pa.Array | None:
    """Which rows ``missing="drop-row"`` keeps; None for all."""
    keep = None
    for name, column in columns.items():
        if column.missing != "drop-row":
            continue
        present = _present(arrays[name])
        if present is not None:
            keep = present if keep is None else pc.and_(keep, present)
    return keep


def _present(array: pa.Array) -> pa.Array | None:
    """Where a value is neither missing nor NaN nor infinite; None for everywhere."""
    if pa.types.is_dictionary(array.type) and (array.dictionary.null_count or _floating(array.type.value_type)):
        array = array.dictionary_decode()
    if _floating(array.type):
        present = pc.fill_null(pc.is_finite(array.cast(pa.float64())), False)
        return None if pc.all(present).as_py() is not False else present
    return pc.is_valid(array) if array.null_count else None


def _floating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def _write_numbers(out: _Floats, name: str, column: Numeric | Boolean, array: pa.Array, unit: float) -> None:
    """Clip and map one column."""
    values = _numbers(name, column, array)
    w = column.weight * unit
    centre, half_range = _interval(column)
    np.subtract(values, centre, out=out, dtype=np.float64)
    # A sum is finite only if every term is: one pass, and nothing is written. It may overflow, hence the second look.
    absent = None
    if not math.isfinite(np.add.reduce(out)):
        absent = ~np.isfinite(values)
        if column.missing == "error" and absent.any():
            raise _missing(name, '"drop-row" or "lower"')
    if isinstance(column, Boolean) and not pa.types.is_boolean(array.type):
        _check_zero_one(name, values, absent)
    np.multiply(out, w / half_range, out=out)
    np.clip(out, -w, w, out=out)
    if absent is not None:
        out[absent] = -w


def _check_zero_one(name: str, values: NDArray[Any], absent: NDArray[np.bool_] | None) -> None:
    """Numbers for true and false must be 1 and 0: with codes such as 1 and 2 the column would be constant."""
    fits = (values == 0) | (values == 1)
    if not (fits if absent is None else fits | absent).all():
        raise ValueError(
            f"Column {name!r} is declared as boolean, but holds numbers other than 0 and 1. "
            "Declare it as categorical with its levels, or as a number with bounds."
        )


def _numbers(name: str, column: Numeric | Boolean, array: pa.Array) -> NDArray[Any]:
    """As a NumPy array, NaN where a value is missing; without a copy where that is possible."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        # By way of text, which is rounded correctly: Arrow's own cast depends on the scale, and where the scale was
        # inferred from a batch one row would change another's last digit.
        array = array.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        what = "numbers" if isinstance(column, Numeric) else "true and false (or 1 and 0)"
        raise TypeError(f"Column {name!r} must hold {what}, but its type is {kind}. {_cure(kind)}")
    return cast(NDArray[Any], array.to_numpy(zero_copy_only=False))


def _cure(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "Replace times by numbers first, such as days since a fixed date."
    if _textual(kind):
        return "Cast it to a number, or declare it as categorical with its levels."
    return "Cast it to a number, or leave the column out of the schema."


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _missing(name: str, rules: str) -> ValueError:
    return ValueError(
        f"Column {name!r} has missing, NaN or infinite values. "
        f"Declare missing={rules} for it in the schema, or repair the table."
    )


def _write_levels(out: _Floats, name: str, column: Categorical, array: pa.Array, unit: float) -> None:
    """One entry w in each row, at the value's level; none for an unknown value with ``unknown="zero"``."""
    codes, absent = _codes(name, column, array)
    missing_at = len(column.levels)
    other_at = missing_at + (column.missing == "level")
    strange = codes < 0
    if absent is not None:
        if column.missing == "error":
            raise _missing(name, '"drop-row" or "level"')
        codes[absent] = missing_at
        strange &= ~absent
    if column.unknown == "error" and strange.any():
        raise ValueError(
            f"Column {name!r} has values that are not among its levels. "
            'Add the levels, or declare unknown="other" or unknown="zero" for it in the schema.'
        )
    if column.unknown == "other":
        codes[strange] = other_at
    for level in range(out.shape[1]):
        np.copyto(out[:, level], codes == level)
    if column.weight * unit != 1:
        np.multiply(out, column.weight * unit, out=out)


def _codes(name: str, column: Categorical, array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None]:
    """Index of every row's level, -1 where there is none; and which rows are missing (None: no row).

    The code of a missing row means nothing.
    """
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    coded = pa.types.is_dictionary(array.type)
    values = array.dictionary if coded else array
    _check_level_type(name, column, values.type)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())  # index_in does not know views
    elif pa.types.is_null(values.type):
        values = values.cast(column.arrow_type)
    elif pa.types.is_uint64(values.type):  # what does not fit is no level; a cast would stop and quote it
        values = pc.if_else(pc.less(values, pa.scalar(2**63, pa.uint64())), values, None).cast(pa.int64())
    found = pc.index_in(values, value_set=pa.array(column.levels, type=column.arrow_type))
    codes = np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int32)
    if coded:  # only the dictionary is looked up; a missing row gets any code here, and its own later
        indices = pc.fill_null(array.indices, 0) if array.null_count else array.indices
        codes = np.append(codes, np.int32(-1))[indices.to_numpy(zero_copy_only=False)]
    absent = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return codes, absent


def _check_level_type(name: str, column: Categorical, kind: pa.DataType) -> None:
    """Levels are compared with values of their own type only: "1" is not 1, and 1 is not true."""
    checks = {str: _textual, int: pa.types.is_integer, bool: pa.types.is_boolean}
    wanted = type(column.levels[0])
    if checks[wanted](kind) or pa.types.is_null(kind):
        return
    words = {str: "strings", int: "integers", bool: "booleans"}
    raise TypeError(
        f"Column {name!r} has the type {kind}, but its levels are {words[wanted]}. "
        f"Cast the column to {words[wanted]}, or declare the levels in the column's type."
    )


# ---------------------------------------------------------------------------------------------------------------
# A template
def describe_columns(source: pa.Schema) -> dict[str, Any]:
    """Template of a schema: names and types only, with None where a bound or the levels must be filled in.

    `Schema.from_` refuses it until that is done.

    Parameters
    ----------
    source : pyarrow.Schema
        Such as `sources.source_schema` returns.

    Examples
    --------
    >>> describe_columns(pa.schema({"age": pa.int64(), "sex": pa.string()}))["columns"]
    {'age': {'type': 'numeric', 'lower': None, 'upper': None}, 'sex': {'type': 'categorical', 'levels': None}}
    """
    return {"columns": {field.name: _template(field.type) for field in source}, "intercept": 1.0}


def _template(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return {"type": "numeric", "lower": None, "upper": None}
    if _textual(kind):
        return {"type": "categorical", "levels": None}
    return {"type": "unsupported", "arrow_type": str(kind)}
