"""One wording for every check of an argument.

Each check takes its value as a keyword, and the keyword names the argument in the message:

>>> positive(gamma=-1.0)
Traceback (most recent call last):
    ...
ValueError: gamma must be a number > 0, got -1.0.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["broadcastable", "choice", "in_interval", "nonnegative", "numbers", "positive", "positive_integer", "real"]


def _named(named: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = named.items()
    return name, value


def real(**named: Any) -> float:
    """A real number, not NaN; infinities pass."""
    name, value = _named(named)
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {value!r} of type {type(value).__name__}.")
    if math.isnan(value):
        raise ValueError(f"{name} must be a real number, got nan.")
    return float(value)


def positive(*, finite: bool = False, **named: Any) -> float:
    """A number > 0; with ``finite``, not infinity either."""
    name, value = _named(named)
    number = real(**named)
    if not number > 0 or (finite and math.isinf(number)):
        rule = "a finite number > 0" if finite else "a number > 0"
        raise ValueError(f"{name} must be {rule}, got {value!r}.")
    return number


def nonnegative(**named: Any) -> float:
    """A finite number ≥ 0."""
    name, value = _named(named)
    number = real(**named)
    if number < 0 or math.isinf(number):
        raise ValueError(f"{name} must be a finite number ≥ 0, got {value!r}.")
    return number


def in_interval(low: float, high: float, *, closed: bool = False, **named: Any) -> float:
    """A number strictly between two bounds, or, if ``closed``, on them."""
    name, value = _named(named)
    number = real(**named)
    inside = low <= number <= high if closed else low < number < high
    if not inside:
        brackets = "[]" if closed else "()"
        raise ValueError(f"{name} must lie in {brackets[0]}{low:g}, {high:g}{brackets[1]}, got {value!r}.")
    return number


def positive_integer(**named: Any) -> int:
    """A whole number ≥ 1."""
    name, value = _named(named)
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer ≥ 1, got {value!r} of type {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"{name} must be an integer ≥ 1, got {value!r}.")
    return int(value)


def choice(options: Collection[str], **named: Any) -> str:
    """One of a few words."""
    name, value = _named(named)
    if not isinstance(value, str) or value not in options:
        words = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {words}, got {value!r}.")
    return value


def numbers(*, whole: bool = False, **named: Any) -> NDArray[np.float64]:
    """A scalar or array of real numbers without NaN (``whole``: of integers) as a float array."""
    name, value = _named(named)
    array = np.asarray(value)
    kinds = "iu" if whole else "iuf"
    if array.dtype.kind not in kinds and array.size:
        wanted = "an integer or an array of integers" if whole else "a real number or an array of them"
        raise TypeError(f"{name} must be {wanted}, got {type(value).__name__} of dtype {array.dtype}.")
    array = array.astype(float)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not contain nan.")
    return array


def broadcastable(**named: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Arrays of one common shape."""
    try:
        return list(np.broadcast_arrays(*named.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in named.items())
        raise ValueError(f"Arguments must be scalars or arrays of one shape, got shapes {shapes}.") from None
