"""Columns of Python objects: each value is read by itself, by a rule that its declared type alone chooses.

A list, an array of objects or an object column has no type of its own. A library that guesses one looks at all of its
values, so that one row changes how the others are read: a single ``1`` among half-precision floats makes Arrow read
all of them as integers. Nothing is guessed here.

>>> column_of([np.float16(0.5), 1, None, Decimal("0.25")], pa.float64(), name="x", where="the list").to_pylist()
[0.5, 1.0, None, 0.25]
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa

from gaussmix.errors import DataTypeError

__all__ = ["column_of"]

_ABSENT = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy, which need not be imported
_LARGEST = sys.float_info.max


def column_of(values: Sequence[Any], kind: pa.DataType | None, *, name: str, where: str) -> pa.Array:
    """The values as an Arrow array of the declared type; a value that does not fit is an error, wherever it stands.

    Parameters
    ----------
    values : sequence of object
    kind : pyarrow.DataType or None
        float64, int64, bool, string or timestamp; None is an error.
    name, where : str
        Of the column and of its table, for messages.
    """
    if kind is None:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, whose type cannot be guessed without one row changing "
            "how others are read. Declare it in types, or convert the column to an array with a type."
        )
    if kind not in _RULES:
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects, which cannot be read as {kind}. "
            "Convert the column to an array with a type."
        )
    words, plain, rule = _RULES[kind]
    try:
        if not set(map(type, values)) <= plain:  # those of ``plain`` come back from the rule as they are
            with np.errstate(over="ignore"):
                values = [None if _is_absent(value) else rule(value) for value in values]
        return pa.array(values, type=kind, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataTypeError(
            f"Column {name!r} of {where} holds Python objects that are not {words}. "
            "Convert them first, or declare the column as what it holds."
        ) from None


def _is_absent(value: Any) -> bool:
    """None, NaN of any type, pandas' NA and NaT, NumPy's masked and NaT."""
    if value is None or type(value).__name__ in _ABSENT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(value != value)


def _number(value: Any) -> float:
    """The nearest float64. What is finite stays finite: it is clipped later, and not missing."""
    if isinstance(value, bool | np.bool_ | float | np.floating):
        return float(value)
    if not isinstance(value, Integral | Fraction | Decimal):
        raise TypeError
    if isinstance(value, Decimal) and not value.is_finite():
        return float(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if cast(Any, value) > 0 else -math.inf
    return min(max(number, -_LARGEST), _LARGEST)


def _truth(value: Any) -> bool | None:
    """True and false, or the numbers 1 and 0; infinite is missing, as in a column of floats."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = _number(value)
    if math.isinf(number):
        return None
    if number not in (0.0, 1.0) or number != value:
        raise ValueError
    return number == 1.0


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)


def _instant(value: Any) -> datetime.datetime:
    """A date or a time; with a zone, in UTC. Finer parts than microseconds are left out."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.datetime):
        plain = datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, value.second)
        plain = plain.replace(microsecond=value.microsecond, tzinfo=value.tzinfo, fold=value.fold)
        return plain if plain.tzinfo is None else plain.astimezone(datetime.UTC).replace(tzinfo=None)
    if not isinstance(value, datetime.date):
        raise TypeError
    return datetime.datetime(value.year, value.month, value.day)


_RULES: dict[pa.DataType, tuple[str, set[type], Callable[[Any], Any]]] = {
    pa.float64(): ("numbers", {float, NoneType}, _number),
    pa.bool_(): ("true and false (or 1 and 0)", {bool, NoneType}, _truth),
    pa.int64(): ("integers of 64 bits", {int, NoneType}, _integer),
    pa.string(): ("text", {str, NoneType}, _text),
    pa.timestamp("us"): ("dates or times", {NoneType}, _instant),
}
