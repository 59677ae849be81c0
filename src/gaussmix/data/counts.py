"""Counts of single columns on public grids and by key. **Sensitive**: only the mechanism reads them.

A row counts once in every column, or not at all where its value is missing, NaN or infinite, independently of other
rows. With a privacy unit, one row of each unit is counted, chosen at random. Grids are made of powers of two and do not
depend on the data. The coarse grid covers both signs and zero: bins [2^(e-1), 2^e) for e from -998 to 1000, one bin on
each side of zero for smaller and outermost bins for larger magnitudes. A fine grid has bins of equal width, a power of
two, between two edges of the coarse one.

>>> coarse_interval(int(coarse_bins(np.array([100.0]))[0])), coarse_interval(int(coarse_bins(np.array([0.0]))[0]))
((64.0, 128.0), (0.0, 0.0))
>>> FineGrid.between(64.0, 2048.0)
FineGrid(start=64.0, step=16.0, bins=124)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Categorical, Numeric
from gaussmix.data.contributions import one_row_each
from gaussmix.data.encode import codes_of, numbers_of, one_column, whole_numbers
from gaussmix.data.schema import PartialSchema
from gaussmix.data.source import Table

_EXPONENTS = 1000
_MAGNITUDES = 2 * _EXPONENTS  # exponents -999 to 1000
COARSE_BINS = 2 * _MAGNITUDES + 1
"""Number of bins of the coarse grid, with zero in the middle."""

FINE_BINS = 129
"""Maximum number of bins of a fine grid."""


def coarse_bins(values: Floats) -> Integers:
    """Return the bin of every value; values must be finite."""
    _, exponents = np.frexp(values)
    magnitude = np.clip(exponents.astype(np.int64), 1 - _EXPONENTS, _EXPONENTS) + _EXPONENTS
    return np.asarray(_MAGNITUDES + np.sign(values).astype(np.int64) * magnitude)


def coarse_interval(index: int) -> tuple[float, float]:
    """Return the lower and upper edge of a bin."""
    magnitude = abs(index - _MAGNITUDES)
    if magnitude == 0:
        return 0.0, 0.0
    exponent = magnitude - _EXPONENTS
    near = 0.0 if magnitude == 1 else math.ldexp(1.0, exponent - 1)
    far = math.ldexp(1.0, exponent)
    return (near, far) if index > _MAGNITUDES else (-far, -near)


@dataclass(frozen=True)
class FineGrid:
    """Bins of equal width from ``start``. Values outside fall into the first or last bin."""

    start: float
    step: float
    bins: int

    @classmethod
    def between(cls, lower: float, upper: float) -> FineGrid:
        """Return 64 to 129 bins that cover two bounds; ``start`` is a multiple of the width."""
        _, exponent = math.frexp(upper - lower)
        step = math.ldexp(1.0, exponent - 7)
        first, last = math.floor(lower / step), math.ceil(upper / step)
        return cls(first * step, step, last - first)

    def bins_of(self, values: Floats) -> Integers:
        """Return the bin of every value; values must be finite."""
        with np.errstate(over="ignore"):
            places = np.floor((values - self.start) / self.step)
        return np.asarray(np.clip(places, 0, self.bins - 1).astype(np.int64))

    def edge(self, index: int) -> float:
        """Return the lower edge of a bin, or the upper edge of the grid for the index after the last."""
        return self.start + index * self.step


_ANY_NUMBER = Numeric(-1.0, 1.0)  # for error messages: bounds do not affect how a number is read
_NEVER = ("(missing)", "(other)")  # reserved names of encoded columns


@dataclass(frozen=True, repr=False)
class ColumnCounts:
    """Counts of rows by coarse bin and by key, for every column. **Sensitive**."""

    bins: dict[str, Integers]
    keys: dict[str, Counter[Any]]


@dataclass(frozen=True)
class OneRowEach:
    """One row of each privacy unit, chosen anew in each reading with a key of its own."""

    column: str
    new_key: Callable[[], bytes]


def _read(
    table: Table, names: list[str], types: Mapping[str, pa.DataType], unit: OneRowEach | None, describe: str
) -> Generator[pa.RecordBatch]:
    """Yield the rows that count."""
    columns = names if unit is None else [*names, unit.column]
    texts = dict(types) if unit is None else {**types, unit.column: pa.string()}
    with closing(table.batches(columns, types=texts, examine_plan=True, describe=describe)) as stream:
        yield from stream if unit is None else one_row_each(stream, unit.column, unit.new_key())


def count_columns(table: Table, columns: PartialSchema, unit: OneRowEach | None = None) -> ColumnCounts:
    """Read the table once and count all columns."""
    bins = {name: np.zeros(COARSE_BINS, dtype=np.int64) for name in columns.numbers}
    keys: dict[str, Counter[Any]] = {name: Counter() for name in columns.keys}
    with closing(_read(table, list(columns.names), columns.text_types, unit, "Counting")) as stream:
        for batch in stream:
            for name in columns.numbers:
                bins[name] += np.bincount(coarse_bins(_finite(batch, name)), minlength=COARSE_BINS)
            for name, kind in columns.key_types.items():
                keys[name].update(_keys(batch, name, kind))
    return ColumnCounts(bins, keys)


def count_finely(
    table: Table, columns: PartialSchema, grids: Mapping[str, FineGrid], unit: OneRowEach | None = None
) -> dict[str, Integers]:
    """Read some numeric columns again and count rows on grids chosen from released counts."""
    found = {name: np.zeros(grid.bins, dtype=np.int64) for name, grid in grids.items()}
    types = {name: columns.text_types[name] for name in grids}
    with closing(_read(table, list(grids), types, unit, "Counting again")) as stream:
        for batch in stream:
            for name, grid in grids.items():
                found[name] += np.bincount(grid.bins_of(_finite(batch, name)), minlength=grid.bins)
    return found


def _finite(batch: pa.RecordBatch, name: str) -> Floats:
    values = np.asarray(numbers_of(name, _ANY_NUMBER, one_column(batch, name)), dtype=np.float64)
    return values[np.isfinite(values)]


def _keys(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> dict[Any, int]:
    """Count the rows of one batch by key. Reserved column names are not keys."""
    array = one_column(batch, name)
    codes_of(name, Categorical((1,) if pa.types.is_integer(kind) else ("a",)), array)  # rejects other types
    if (whole := whole_numbers(array)) is not None:
        array = whole
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_uint64(array.type):  # values that do not fit are not keys
        array = pc.if_else(pc.less(array, pa.scalar(2**63, pa.uint64())), array, None)
    counted = pc.value_counts(array.drop_null())
    pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    return {key: count for key, count in pairs if key not in _NEVER}
