"""Dates and times as days since a declared date: each by itself, the same in every unit of time.

>>> days_since(pa.array([datetime.datetime(2020, 1, 2, 18)]), "2020-01-01").tolist()
[1.75]
"""

from __future__ import annotations

import datetime
from typing import cast

import numpy as np
import pyarrow as pa

from gaussmix._types import Floats, Integers
from gaussmix.errors import DeclarationError

__all__ = ["days_since", "holds_dates", "iso_date"]

_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_EPOCH = datetime.date(1970, 1, 1)


def iso_date(**named: object) -> datetime.date:
    """A date, or its text in ISO form; errors name the argument."""
    ((name, value),) = named.items()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise DeclarationError(
            f'{name} must be a date, such as "2020-01-31". It must be fixed before the data are seen.'
        ) from None


def holds_dates(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of dates or of times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def days_since(array: pa.Array, origin: str) -> Floats:
    """Days since midnight of the origin, NaN where a value is missing.

    Times with a zone are read in UTC, others as they stand. Whole days and the part of a day are exact integers, and
    the quotient of the part is rounded once: microseconds and nanoseconds of the same time give the same bits.
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
