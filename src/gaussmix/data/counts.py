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

import functools
import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Categorical, Numeric
from gaussmix.data.contributions import one_row_each
from gaussmix.data.encode import codes_of, numbers_of, one_column, whole_numbers
from gaussmix.data.engines import ClusterTable
from gaussmix.data.schema import PartialSchema
from gaussmix.data.source import Table
from gaussmix.data.table import open_table

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
    """Counts of rows by bin and by key, for every column. **Sensitive**.

    ``rows`` and ``digest`` are those of the table that was read (`Table`).
    """

    bins: dict[str, Integers]
    keys: dict[str, Counter[Any]]
    rows: int = 0
    digest: int = 0

    def __add__(self, other: ColumnCounts) -> ColumnCounts:
        return ColumnCounts(
            {name: bins + other.bins[name] for name, bins in self.bins.items()},
            {name: keys + other.keys[name] for name, keys in self.keys.items()},
            self.rows + other.rows,
            (self.digest + other.digest) % 2**64,
        )


@dataclass(frozen=True)
class OneRowEach:
    """One row of each privacy unit, chosen anew in each reading with a key of its own."""

    column: str
    new_key: Callable[[], bytes]


@dataclass(frozen=True)
class _Counting:
    """What is counted in one reading: numbers by bin (without a grid by coarse bin), categories by key."""

    names: list[str]
    types: dict[str, pa.DataType]
    grids: dict[str, FineGrid | None]
    key_types: dict[str, pa.DataType]
    unit: str | None  # of which one row each is counted, chosen with this key:
    key: bytes
    describe: str

    @property
    def columns(self) -> list[str]:
        """The columns to be read."""
        return self.names if self.unit is None else [*self.names, self.unit]

    def empty(self) -> ColumnCounts:
        """Return the counts of no rows."""
        sizes = {name: COARSE_BINS if grid is None else grid.bins for name, grid in self.grids.items()}
        bins = {name: np.zeros(size, dtype=np.int64) for name, size in sizes.items()}
        return ColumnCounts(bins, {name: Counter() for name in self.key_types})

    def of(self, table: Table) -> ColumnCounts:
        """Read a table once."""
        found = self.empty()
        with closing(self._rows(table)) as stream:
            for batch in stream:
                for name, grid in self.grids.items():
                    values = _finite(batch, name)
                    bins = coarse_bins(values) if grid is None else grid.bins_of(values)
                    found.bins[name] += np.bincount(bins, minlength=len(found.bins[name]))
                for name, kind in self.key_types.items():
                    found.keys[name].update(_keys(batch, name, kind))
        return replace(found, rows=table.rows, digest=table.digest)

    def _rows(self, table: Table) -> Generator[pa.RecordBatch]:
        """Yield the rows that count."""
        types = self.types if self.unit is None else {**self.types, self.unit: pa.string()}
        read = table.batches(self.columns, types=types, examine_plan=True, describe=self.describe)
        with closing(read) as stream:
            yield from stream if self.unit is None else one_row_each(stream, self.unit, self.key)


def count_columns(table: Table, columns: PartialSchema, unit: OneRowEach | None = None) -> ColumnCounts:
    """Read the table once and count all columns."""
    grids: dict[str, FineGrid | None] = dict.fromkeys(columns.numbers)
    return _counted(table, list(columns.names), columns.text_types, grids, columns.key_types, unit, "Counting")


def count_finely(
    table: Table, columns: PartialSchema, grids: Mapping[str, FineGrid], unit: OneRowEach | None = None
) -> dict[str, Integers]:
    """Read some numeric columns again and count rows on grids chosen from released counts."""
    types = {name: columns.text_types[name] for name in grids}
    return _counted(table, list(grids), types, grids, {}, unit, "Counting again").bins


def _counted(
    table: Table,
    names: list[str],
    types: Mapping[str, pa.DataType],
    grids: Mapping[str, FineGrid | None],
    key_types: Mapping[str, pa.DataType],
    unit: OneRowEach | None,
    describe: str,
) -> ColumnCounts:
    """Read the table once. Partitions of a Dask or Spark table are counted on the workers."""
    chosen, key = (None, b"") if unit is None else (unit.column, unit.new_key())
    counting = _Counting(names, dict(types), dict(grids), dict(key_types), chosen, key, describe)
    if not isinstance(table, ClusterTable):
        return counting.of(table)
    table.refuse_persist()
    build = functools.partial(_count_part, counting=counting, key=table.draw_key())
    found = table.sum_partitions(counting.columns, build, counting.empty(), by=chosen)
    table.finish_reading(counting.columns, found.rows, found.digest)
    return found


def _count_part(part: Any, number: int, *, counting: _Counting, key: bytes) -> ColumnCounts:
    """Count one partition, on a worker. With a privacy unit it has all rows of its units."""
    table = open_table(part)
    table.key = key
    return counting.of(table)


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
