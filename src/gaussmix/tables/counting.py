"""Counts of single columns: rows by bin of a public grid, and by key. **Sensitive**: only the mechanism reads them.

A row counts once in every column, or not at all where its value is missing, NaN or infinite. What a row counts for
depends on that row and on what is declared, on no other row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussmix._types import Floats, Integers
from gaussmix.tables.arrow import codes_of, numbers_of, one_column
from gaussmix.tables.columns import Categorical, Numeric
from gaussmix.tables.dyadic import COARSE_BINS, FineGrid, coarse_bins
from gaussmix.tables.table import TableReader
from gaussmix.tables.undeclared import Undeclared

__all__ = ["ColumnCounts", "count_columns", "count_finely"]

_ANY_NUMBER = Numeric(-1.0, 1.0)  # for the words of errors: bounds play no part in how a number is read
_NEVER = ("(missing)", "(other)")  # names of encoded columns of their own


@dataclass(frozen=True, repr=False)
class ColumnCounts:
    """**Sensitive**: rows by bin of the coarse grid, and by key, of every column."""

    bins: dict[str, Integers]
    keys: dict[str, Counter[Any]]


def count_columns(reader: TableReader, columns: Undeclared) -> ColumnCounts:
    """Read the table once."""
    bins = {name: np.zeros(COARSE_BINS, dtype=np.int64) for name in columns.numbers}
    keys: dict[str, Counter[Any]] = {name: Counter() for name in columns.keys}
    with reader.reading(columns.names, columns.text_types, describe="Counting") as stream:
        for batch in stream:
            for name in columns.numbers:
                bins[name] += np.bincount(coarse_bins(_finite(batch, name)), minlength=COARSE_BINS)
            for name, kind in columns.key_types.items():
                keys[name].update(_keys(batch, name, kind))
    return ColumnCounts(bins, keys)


def count_finely(reader: TableReader, columns: Undeclared, grids: Mapping[str, FineGrid]) -> dict[str, Integers]:
    """Read some of the numbers once more: rows by bin of grids that were chosen from released counts."""
    found = {name: np.zeros(grid.bins, dtype=np.int64) for name, grid in grids.items()}
    types = {name: columns.text_types[name] for name in grids}
    with reader.reading(list(grids), types, describe="Counting again") as stream:
        for batch in stream:
            for name, grid in grids.items():
                found[name] += np.bincount(grid.bins_of(_finite(batch, name)), minlength=grid.bins)
    return found


def _finite(batch: pa.RecordBatch, name: str) -> Floats:
    values = np.asarray(numbers_of(name, _ANY_NUMBER, one_column(batch, name)), dtype=np.float64)
    return values[np.isfinite(values)]


def _keys(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> dict[Any, int]:
    """Rows by key, of one batch. Words that encoded columns of their own are called by are no keys."""
    array = one_column(batch, name)
    codes_of(name, Categorical((1,) if pa.types.is_integer(kind) else ("a",)), array)  # refuses other types
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_uint64(array.type):  # what does not fit is no key
        array = pc.if_else(pc.less(array, pa.scalar(2**63, pa.uint64())), array, None)
    counted = pc.value_counts(array.drop_null())
    pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    return {key: count for key, count in pairs if key not in _NEVER}
