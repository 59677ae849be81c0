"""Checks of arguments, with one wording for each check.

Each check takes the value as a keyword argument, and the keyword is the name used in the message:

>>> positive(gamma=-1.0)
Traceback (most recent call last):
    ...
gaussmix.errors.ArgumentError: gamma must be a number > 0, got -1.0.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "SKETCH_SIZE_MAX",
    "broadcastable",
    "choice",
    "in_interval",
    "nonnegative",
    "numbers",
    "positive",
    "positive_integer",
    "real",
    "sketch_rows",
    "text",
]

R = TypeVar("R")

SKETCH_SIZE_MAX = 2**40
"""Maximum number of rows of a sketch.

For larger k doubles are too sparse near a χ²_k: some outputs would be possible for one table and not for its neighbour.
"""

_SHOWN = 60  # maximum number of characters of a value quoted in a message


def _shown(value: Any) -> str:
    """Return the repr of a value, truncated; Python refuses to print integers of thousands of digits."""
    try:
        words = repr(value)
    except ValueError:
        return f"an integer of {value.bit_length()} bits"
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "…"


def real(**named: Any) -> float:
    """Return a real number; reject NaN, accept infinities."""
    ((name, value),) = named.items()
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{name} must be a real number, got {_shown(value)} of type {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:  # an integer or a fraction of hundreds of digits
        raise ArgumentError(f"{name} must be smaller than 1.8e308 in absolute value, got {_shown(value)}.") from None
    if math.isnan(number):
        raise ArgumentError(f"{name} must be a real number, got nan.")
    return number


def positive(*, finite: bool = False, **named: Any) -> float:
    """Return a number > 0; with ``finite``, reject infinity."""
    ((name, value),) = named.items()
    number = real(**named)
    if not number > 0 or (finite and math.isinf(number)):
        rule = "a finite number > 0" if finite else "a number > 0"
        raise ArgumentError(f"{name} must be {rule}, got {_shown(value)}.")
    return number


def nonnegative(**named: Any) -> float:
    """Return a finite number ≥ 0."""
    ((name, value),) = named.items()
    number = real(**named)
    if number < 0 or math.isinf(number):
        raise ArgumentError(f"{name} must be a finite number ≥ 0, got {_shown(value)}.")
    return number


def in_interval(low: float, high: float, *, closed: bool = False, **named: Any) -> float:
    """Return a number in the open interval (low, high), or in [low, high] if ``closed``."""
    ((name, value),) = named.items()
    number = real(**named)
    inside = low <= number <= high if closed else low < number < high
    if not inside:
        brackets = "[]" if closed else "()"
        raise ArgumentError(f"{name} must lie in {brackets[0]}{low:g}, {high:g}{brackets[1]}, got {_shown(value)}.")
    return number


def positive_integer(**named: Any) -> int:
    """Return an integer ≥ 1."""
    ((name, value),) = named.items()
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{name} must be an integer ≥ 1, got {_shown(value)} of type {type(value).__name__}.")
    number = int(value)
    if not 1 <= number < 2**63:
        rule = "an integer ≥ 1" if number < 1 else "less than 2**63"
        raise ArgumentError(f"{name} must be {rule}, got {_shown(value)}.")
    return number


def sketch_rows(**named: Any) -> int:
    """Return a number of sketch rows, an integer from 1 to :data:`SKETCH_SIZE_MAX`."""
    ((name, value),) = named.items()
    rows = positive_integer(**named)
    if rows > SKETCH_SIZE_MAX:
        raise ArgumentError(
            f"{name} must be at most 2**40, got {_shown(value)}. Floating-point random numbers are too coarse for the "
            "guarantee to hold with a larger sketch."
        )
    return rows


def choice(options: Collection[str], **named: Any) -> str:
    """Return one of a set of strings."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or value not in options:
        words = ", ".join(repr(option) for option in options)
        raise ArgumentError(f"{name} must be one of {words}, got {_shown(value)}.")
    return value


def instance(kind: type[R], **named: Any) -> R:
    """Return an instance of a class."""
    ((name, value),) = named.items()
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}.")
    return value


def text(**named: Any) -> str:
    """Return a string that can be encoded as UTF-8."""
    ((name, value),) = named.items()
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be a string, got {type(value).__name__}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{name} must be valid Unicode text (UTF-8).") from None
    return value


def numbers(*, whole: bool = False, **named: Any) -> Floats:
    """Return a scalar or array of real numbers (integers if ``whole``) as a float array; reject NaN."""
    ((name, value),) = named.items()
    array = np.asarray(value)
    kinds = "iu" if whole else "iuf"
    if array.dtype.kind not in kinds and array.size:
        wanted = "an integer or an array of integers" if whole else "a real number or an array of them"
        raise ArgumentTypeError(f"{name} must be {wanted}, got {type(value).__name__} of dtype {array.dtype}.")
    array = array.astype(float)
    if np.isnan(array).any():
        raise ArgumentError(f"{name} must not contain nan.")
    return array


def broadcastable(**named: Floats) -> list[Floats]:
    """Return the arrays broadcast to a common shape."""
    try:
        return list(np.broadcast_arrays(*named.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in named.items())
        raise ArgumentError(f"Arguments must be scalars or arrays of the same shape, got shapes {shapes}.") from None
