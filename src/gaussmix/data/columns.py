"""Column types with their declared, public bounds or levels.

Each type defines the entries of its encoded row, their names and the maximum of their squared norm (``squared_norm``,
in units of the row). The norm of a row is a sum over its columns and does not depend on the data.

>>> Numeric(0, 10).squared_norm, Categorical(("a", "b"), weight=2.0).squared_norm, Vector(3, norm=7.0).squared_norm
(Fraction(1, 1), Fraction(4, 1), Fraction(1, 1))

Dates and times are read as days since a declared date, independently of the unit of time.

>>> days_since(pa.array([datetime.datetime(2020, 1, 2, 18)]), "2020-01-01").tolist()
[1.75]
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from gaussmix._types import Floats, Integers
from gaussmix._validation import choice, numbers, positive, positive_integer, real, text
from gaussmix.errors import ArgumentTypeError, DeclarationError

_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_EPOCH = datetime.date(1970, 1, 1)


def iso_date(**named: object) -> datetime.date:
    """Return a date from a date or ISO text; errors name the argument."""
    ((name, value),) = named.items()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        raise DeclarationError(
            f'{name} must be a date, such as "2020-01-31", got {shown}. Choose it without looking at the data.'
        ) from None


def holds_dates(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds dates or times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def days_since(array: pa.Array, origin: str) -> Floats:
    """Return days since midnight of the origin, NaN where a value is missing.

    Times with a zone are converted to UTC, others are used unchanged. Whole days and fractions are exact integers and
    rounded once, so microseconds and nanoseconds of the same time give the same bits.
    """
    if pa.types.is_date32(array.type):
        array, per_day = array.cast(pa.int32()).cast(pa.int64()), 1
    elif pa.types.is_date64(array.type):
        array, per_day = array.cast(pa.int64()), _PER_DAY["ms"]
    else:
        per_day = _PER_DAY[array.type.unit]
        array = array.cast(pa.int64())
    absent = array.is_null().to_numpy(zero_copy_only=False)
    ticks = cast(Integers, array.fill_null(0).to_numpy(zero_copy_only=False))
    days, part = np.divmod(ticks, per_day)
    start = (datetime.date.fromisoformat(origin) - _EPOCH).days
    found = (days - start) + part / per_day
    found[absent] = np.nan
    return np.asarray(found)


set_field = object.__setattr__
"""Set a field of a frozen dataclass, which puts its own fields into one form."""

GUESSED = "?"
"""Suffix of a type that was guessed from rows."""

LARGEST_WEIGHT = 2.0**100  # weights in [2**-100, 2**100] and half ranges in [2**-300, 2**300]: no scale overflows
LARGEST_HALF_RANGE = 2.0**300
NOT_FROM_DATA = "Declare values without looking at the data: a value computed from the data is not private."


@dataclass(frozen=True)
class Numeric:
    """A number, clamped to [lower, upper] and mapped to weight · [-1, 1].

    Parameters
    ----------
    lower, upper : float
        Declared bounds. Values outside are clamped.
    weight : float
        Share of the row's norm: a larger weight makes a column more accurate and the others less.
    missing : {"error", "drop-row", "lower", "indicator"}
        Rule for missing, NaN and infinite values: raise, drop the row, use ``lower``, or encode the value and its
        terms as 0 and add an indicator column ``age=(missing)``.
    origin : str, optional
        Read dates or times as days since this date, ``"2020-01-31"``. `gaussmix.Date` takes bounds as dates.
    """

    lower: float
    upper: float
    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "lower", "indicator"] = "error"
    origin: str | None = None

    def __post_init__(self) -> None:
        absent = [name for name in ("lower", "upper") if getattr(self, name) is None]
        if absent:
            verb = "is not declared. Fill in a bound." if len(absent) == 1 else "are not declared. Fill in both bounds."
            raise DeclarationError(f"{' and '.join(absent)} {verb} {NOT_FROM_DATA}")
        if isinstance(self.lower, str) or isinstance(self.upper, str):
            raise ArgumentTypeError(
                f"bounds must be numbers, without quotes, got lower={self.lower!r} and upper={self.upper!r}."
            )
        for name in ("lower", "upper"):
            set_field(self, name, real(**{name: getattr(self, name)}) + 0.0)  # + 0.0: no negative zero
        _check_range(self.lower, self.upper)
        set_field(self, "weight", checked_weight(self.weight))
        choice(("error", "drop-row", "lower", "indicator"), missing=self.missing)
        if self.origin is not None:
            set_field(self, "origin", iso_date(origin=self.origin).isoformat())

    @property
    def squared_norm(self) -> Fraction:
        """Largest square of the entry."""
        return Fraction(self.weight) ** 2

    @property
    def interval(self) -> tuple[float, float]:
        """Centre and half range."""
        return self.lower / 2 + self.upper / 2, self.upper / 2 - self.lower / 2


@dataclass(frozen=True)
class Boolean:
    """True or false, encoded as weight and -weight: equivalent to ``Numeric(0, 1)`` with false as 0 and true as 1.

    Parameters
    ----------
    weight : float
        As for `Numeric`.
    missing : {"error", "drop-row", "lower"}
        ``"lower"`` reads a missing value as false. For a separate level declare
        ``Categorical([False, True], missing="level")``.
    """

    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "lower"] = "error"

    def __post_init__(self) -> None:
        set_field(self, "weight", checked_weight(self.weight))
        choice(("error", "drop-row", "lower"), missing=self.missing)

    @property
    def squared_norm(self) -> Fraction:
        """Largest square of the entry."""
        return Fraction(self.weight) ** 2

    @property
    def interval(self) -> tuple[float, float]:
        """Centre and half range of 0 and 1."""
        return 0.5, 0.5


@dataclass(frozen=True)
class Categorical:
    """One of the declared levels: ``weight`` in the encoded column of that level, 0 in the others.

    Parameters
    ----------
    levels : sequence of str, of int or of bool
        All of one type, which must be the column's: ``"1"`` is not ``1``. Floating-point columns are accepted for
        integers: 1.0 is the level 1, and 1.5 is not a level.
    weight : float
        As for `Numeric`.
    missing : {"error", "drop-row", "level"}
        ``"level"`` adds an encoded column for missing values.
    unknown : {"error", "zero", "other"}
        Rule for values that are not levels: raise, encode zeros, or add one encoded column for all of them.
    """

    levels: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    _: KW_ONLY
    weight: float = 1.0
    missing: Literal["error", "drop-row", "level"] = "error"
    unknown: Literal["error", "zero", "other"] = "error"

    def __post_init__(self) -> None:
        set_field(self, "levels", _levels(self.levels))
        set_field(self, "weight", checked_weight(self.weight))
        choice(("error", "drop-row", "level"), missing=self.missing)
        choice(("error", "zero", "other"), unknown=self.unknown)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns: the levels, then ``(missing)`` and ``(other)`` where they are declared."""
        words = tuple(str(level).lower() if isinstance(level, bool) else str(level) for level in self.levels)
        return words + ("(missing)",) * (self.missing == "level") + ("(other)",) * (self.unknown == "other")

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the levels."""
        return {str: pa.string(), int: pa.int64(), bool: pa.bool_()}[type(self.levels[0])]

    @property
    def squared_norm(self) -> Fraction:
        """Largest sum of the squares of the entries: one of them is the weight, the others are 0."""
        return Fraction(self.weight) ** 2


@dataclass(frozen=True)
class Vector:
    r"""A vector of numbers with bounds on its entries, on its norm, or both: features, an embedding, a histogram.

    With ``lower`` and ``upper`` every entry is clamped and mapped to weight · [-1, 1], and ``norm`` bounds the
    Euclidean norm of the mapped entries (default and effective maximum: √size). With ``norm`` alone entries are divided
    by it, so that their norm is at most weight. A row whose vector exceeds the norm is scaled **as a whole** by
    norm / length, including other columns and the intercept, which preserves linear relations.

    Parameters
    ----------
    size : int
        Number of entries.
    lower, upper : float or sequence of float, optional
        Declared bounds of the entries, scalar or one per entry.
    norm : float, optional
        Declared bound of the Euclidean norm.
    weight : float
        As for `Numeric`.
    missing : {"error", "drop-row"}
        Rule for a vector with missing, NaN or infinite entries.
    """

    size: int
    _: KW_ONLY
    lower: float | tuple[float, ...] | None = None
    upper: float | tuple[float, ...] | None = None
    norm: float | None = None
    weight: float = 1.0
    missing: Literal["error", "drop-row"] = "error"

    def __post_init__(self) -> None:
        set_field(self, "size", positive_integer(size=self.size))
        if (self.lower is None) != (self.upper is None):
            raise DeclarationError(f"lower and upper must be declared together. {NOT_FROM_DATA}")
        if self.lower is None and self.norm is None:
            raise DeclarationError(f"lower and upper, or norm, must be declared. {NOT_FROM_DATA}")
        if self.lower is not None:
            lower, upper = (_one_each(self.size, **{name: getattr(self, name)}) for name in ("lower", "upper"))
            for pair in zip(lower, upper, strict=True):
                _check_range(*pair)
            set_field(self, "lower", lower[0] if len(set(lower)) == 1 else lower)  # canonical form
            set_field(self, "upper", upper[0] if len(set(upper)) == 1 else upper)
        if self.norm is not None:
            norm = positive(finite=True, norm=self.norm)
            if not (1 / LARGEST_HALF_RANGE <= norm <= LARGEST_HALF_RANGE):
                raise DeclarationError(f"norm must lie between 2**-300 and 2**300, got {norm!r}. {NOT_FROM_DATA}")
            set_field(self, "norm", norm)
        set_field(self, "weight", checked_weight(self.weight))
        choice(("error", "drop-row"), missing=self.missing)

    @property
    def bounded(self) -> bool:
        """Whether the entries have bounds of their own."""
        return self.lower is not None

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """Centre and half range of every entry; without bounds, 0 and ``norm``."""
        if self.lower is None or self.upper is None:
            return ((0.0, self.norm or 1.0),) * self.size
        lower, upper = _one_each(self.size, lower=self.lower), _one_each(self.size, upper=self.upper)
        return tuple((low / 2 + high / 2, high / 2 - low / 2) for low, high in zip(lower, upper, strict=True))

    @property
    def squared_norm(self) -> Fraction:
        """Largest sum of the squares of the entries."""
        square = Fraction(1) if not self.bounded else Fraction(self.size)
        if self.bounded and self.norm is not None:
            square = min(square, Fraction(self.norm) ** 2)
        return square * Fraction(self.weight) ** 2


Column = Numeric | Boolean | Categorical | Vector


def _check_range(lower: float, upper: float) -> None:
    half_range = upper / 2 - lower / 2
    if -math.inf < half_range < 0:
        raise DeclarationError(f"lower must be less than upper, got lower={lower!r} and upper={upper!r}. Swap them.")
    if not (1 / LARGEST_HALF_RANGE <= half_range <= LARGEST_HALF_RANGE):
        raise DeclarationError(
            f"lower and upper must be finite with lower < upper, got {lower!r} and {upper!r}. Omit constant columns."
        )


def _one_each(size: int, **named: Any) -> tuple[float, ...]:
    """Return one bound per entry, from a scalar or a sequence."""
    ((name, bound),) = named.items()
    values = numbers(**named)
    if values.ndim > 1 or (values.ndim == 1 and len(values) != size):
        raise DeclarationError(f"{name} must be one number or one per entry ({size}), got shape {np.shape(bound)}.")
    return tuple((np.broadcast_to(values, size) + 0.0).tolist())


def checked_weight(weight: object) -> float:
    """Validate a column's share of the row's norm."""
    number = positive(finite=True, weight=weight)
    if not (1 / LARGEST_WEIGHT <= number <= LARGEST_WEIGHT):
        raise DeclarationError(f"weight must lie between 2**-100 and 2**100, got {number!r}.")
    return number


def _levels(levels: object) -> tuple[Any, ...]:
    if levels is None:
        raise DeclarationError(
            "levels must be declared: list every level that may occur, without looking at the data. Levels computed "
            "from the data are not private."
        )
    if isinstance(levels, str | bytes | Mapping) or not isinstance(levels, Iterable):
        raise ArgumentTypeError(
            f"levels must be a list of strings, of integers or of booleans, got {type(levels).__name__}."
        )
    found = tuple(level.item() if isinstance(level, np.generic) else level for level in levels)
    if not found:
        raise DeclarationError("levels must not be empty. List every level that may occur.")
    found = tuple(int(level) if isinstance(level, float) and level.is_integer() else level for level in found)
    types = {type(level) for level in found}
    if len(types) > 1 or not types <= {str, int, bool}:
        names = ", ".join(sorted(kind.__name__ for kind in types))
        raise ArgumentTypeError(
            f"levels must be all strings, all integers or all booleans, got {names}. "
            "For fractional values declare a numeric column, or round to integers."
        )
    if len(set(found)) < len(found):
        twice = next(level for level in found if found.count(level) > 1)
        raise DeclarationError(f"levels must not contain duplicates, got {twice!r} twice.")
    if types == {int} and not all(-(2**63) <= level < 2**63 for level in found):
        raise DeclarationError("levels that are integers must fit into 64 bits. Use strings for longer codes.")
    if types == {str}:
        for level in found:
            text(levels=level)
    return found
