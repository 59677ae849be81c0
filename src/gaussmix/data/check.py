"""Show the effect of a schema on a table, for the curator only, before any budget is spent.

The output is not private, and nothing is written: shares of clamped, unknown, missing and dropped values, and likely
mistakes. A level that is read as *other* because of a space costs as much budget as a valid one.

>>> table = {"age": [20.0, 30.0, 400.0], "sex": ["f", " m", "f"]}
>>> found = check_table(table, {"age": [0, 100], "sex": {"levels": ["f", "m"], "unknown": "other"}})
>>> found.rows, round(found.columns["age"].clipped, 2), round(found.columns["sex"].spaced, 2)
(3, 0.33, 0.33)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.contributions import PrivacyUnit, unit_ids
from gaussmix.data.encode import codes_of, entries_of, numbers_of, one_column, present, without_negative
from gaussmix.data.schema import Schema
from gaussmix.data.source import ReadOptions
from gaussmix.data.table import open_table

_NO_KEY = bytes(16)  # unit ids are hashed as for a release and discarded


@dataclass(frozen=True)
class ColumnCheck:
    """Shares of the rows, from 0 to 1. **Sensitive**.

    Attributes
    ----------
    clipped : float
        Numbers outside the bounds.
    unknown : float
        Values that are not among the levels; for a Boolean, numbers other than 0 and 1.
    missing : float
        Missing, NaN or infinite.
    dropped : float
        Rows dropped by this column's ``missing="drop-row"``.
    spaced : float
        Values that match a level after removing surrounding spaces.
    constant : bool
        Whether all rows have the same encoded value.
    refused : bool
        Whether a release would fail because of this column.
    """

    clipped: float
    unknown: float
    missing: float
    dropped: float
    spaced: float
    constant: bool
    refused: bool = False


@dataclass(frozen=True)
class TableCheck:
    """The result of `check_table`. **Sensitive**.

    Attributes
    ----------
    rows : int
        Rows read.
    dropped : float
        Share of them that is left out.
    columns : mapping of str to ColumnCheck
    alike : mapping of str to tuple of str
        Declared levels that differ from another one only by the spaces around them, by column.
    """

    rows: int
    dropped: float
    columns: Mapping[str, ColumnCheck]
    alike: Mapping[str, tuple[str, ...]]

    def remarks(self) -> list[str]:
        """Return likely mistakes, one sentence each."""
        found = [
            f"{name}: levels {', '.join(map(repr, levels))} differ only by spaces"
            for name, levels in self.alike.items()
        ]
        for name, column in self.columns.items():
            if column.constant and column.unknown < 1:
                found.append(f"{name}: constant, so it carries no information")
            if column.spaced:
                found.append(
                    f"{name}: {column.spaced:.2%} of the values are levels with spaces around them; "
                    "for CSV files declare skip_initial_space"
                )
            if column.clipped > 0.05:
                found.append(f"{name}: {column.clipped:.2%} of the values are clamped to the bounds")
            if column.unknown > 0.05:
                found.append(f"{name}: {column.unknown:.2%} of the values are not among the declared levels")
            if column.refused:
                what = "unknown" if column.unknown else "missing"
                found.append(
                    f"{name}: a release would fail because of {what} values; declare a rule for them in the schema"
                )
        return found


def check_table(
    data: Any,
    schema: Schema | dict[str, Any] | str | Path,
    *,
    reading: ReadOptions | None = None,
    privacy_unit: PrivacyUnit | None = None,
) -> TableCheck:
    """Read a table as a release would, and count the effects of the schema. Costs no privacy and stores nothing.

    Missing values and unknown levels are counted even where the schema makes them an error. Missing values in the
    privacy-unit column are an error, as in a release. Rows per unit are not counted, because ``max_contributions`` must
    not be chosen from the data.

    Parameters
    ----------
    data, schema, reading, privacy_unit
        As for :meth:`gaussmix.data.moments.Moments.of`.
    """
    declared = Schema.of(schema)
    columns, types = list(declared.columns), declared.text_types
    if privacy_unit is not None:
        check.instance(PrivacyUnit, privacy_unit=privacy_unit).check_schema(declared)
        columns, types = [*columns, privacy_unit.column], {**types, privacy_unit.column: pa.string()}
    stream = open_table(data, reading).batches(columns, types=types)
    counts = {name: _Counts() for name in declared.columns}
    rows = dropped = 0
    with closing(stream):
        for batch in stream:
            rows += batch.num_rows
            if privacy_unit is not None:
                unit_ids(privacy_unit.column, one_column(batch, privacy_unit.column), _NO_KEY)
            drop = np.zeros(batch.num_rows, dtype=bool)
            for name, column in declared.columns.items():
                array = one_column(batch, name)
                if name == declared.weight:
                    array = without_negative(name, column, array)
                missing = _count(counts[name], name, column, array)
                if column.missing == "drop-row":
                    drop |= missing
            dropped += int(np.count_nonzero(drop))
    shares = {name: counts[name].shares(column, rows) for name, column in declared.columns.items()}
    return TableCheck(rows, dropped / rows, shares, _alike(declared))


@dataclass
class _Counts:
    clipped: int = 0
    unknown: int = 0
    missing: int = 0
    spaced: int = 0
    seen: set[Any] = field(default_factory=set)  # up to two encoded values: with one, the column is constant

    def shares(self, column: Column, rows: int) -> ColumnCheck:
        dropped = self.missing if column.missing == "drop-row" else 0
        strange = self.unknown > 0 and getattr(column, "unknown", "error") == "error"
        return ColumnCheck(
            self.clipped / rows,
            self.unknown / rows,
            self.missing / rows,
            dropped / rows,
            self.spaced / rows,
            len(self.seen) < 2,
            strange or (self.missing > 0 and column.missing == "error"),
        )


def _count(counts: _Counts, name: str, column: Column, array: pa.Array) -> NDArray[np.bool_]:
    """Add one batch of one column; return which of its rows are missing."""
    if isinstance(column, Categorical):
        return _count_levels(counts, name, column, array)
    if isinstance(column, Vector):
        return _count_vectors(counts, name, column, array)
    values = np.asarray(numbers_of(name, column, array), dtype=np.float64)
    missing = ~np.isfinite(values)
    there = values[~missing]
    if isinstance(column, Numeric):
        counts.clipped += int(np.count_nonzero((there < column.lower) | (there > column.upper)))
        there = np.clip(there, column.lower, column.upper)
    else:
        counts.unknown += int(np.count_nonzero((there != 0) & (there != 1)))
    _remember(counts, there)
    if column.missing == "lower" and missing.any():
        counts.seen.add(0.0 if isinstance(column, Boolean) else column.lower)
    counts.missing += int(np.count_nonzero(missing))
    return missing


def _count_levels(counts: _Counts, name: str, column: Categorical, array: pa.Array) -> NDArray[np.bool_]:
    codes, absent = codes_of(name, column, array)
    missing = np.zeros(len(codes), dtype=bool) if absent is None else np.asarray(absent)
    strange = (codes < 0) & ~missing
    counts.missing += int(np.count_nonzero(missing))
    counts.unknown += int(np.count_nonzero(strange))
    if strange.any() and isinstance(column.levels[0], str):
        values = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        bare = pa.array(sorted({str(level).strip() for level in column.levels}), type=values.type)
        near = pc.is_in(pc.utf8_trim_whitespace(values.filter(pa.array(strange))), value_set=bare)
        counts.spaced += int(pc.sum(near).as_py() or 0)
    _remember(counts, codes[~missing])
    if column.missing == "level" and missing.any():
        counts.seen.add(float(len(column.levels)))
    return missing


def _count_vectors(counts: _Counts, name: str, column: Vector, array: pa.Array) -> NDArray[np.bool_]:
    """Count a vector as clipped if an entry exceeds its bounds or the vector its norm."""
    kept = present(array)
    there = np.ones(len(array), dtype=bool) if kept is None else kept.to_numpy(zero_copy_only=False)
    entries = np.asarray(entries_of(name, column, array.filter(pa.array(there))), dtype=np.float64)
    centre, half_range = np.array(column.intervals).T
    with np.errstate(over="ignore"):
        mapped = (entries - centre) / half_range
    beyond = (np.abs(mapped) > 1).any(axis=1) if column.bounded else np.zeros(len(mapped), dtype=bool)
    mapped = np.clip(mapped, -1, 1) if column.bounded else mapped
    norm = float(column.squared_norm) / column.weight**2
    with np.errstate(over="ignore"):  # huge entries
        beyond |= np.einsum("ij,ij->i", mapped, mapped) > norm * (1 + 1e-12)
    counts.clipped += int(np.count_nonzero(beyond))
    if len(mapped) and len(counts.seen) < 2:
        others = mapped[(mapped != mapped[0]).any(axis=1)]
        counts.seen |= {tuple(row) for row in (*mapped[:1].tolist(), *others[:1].tolist())}
    counts.missing += int(np.count_nonzero(~there))
    return ~there


def _remember(counts: _Counts, values: NDArray[Any]) -> None:
    if len(values) and len(counts.seen) < 2:
        counts.seen |= {float(values.min()), float(values.max())}


def _alike(schema: Schema) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, column in schema.columns.items():
        if isinstance(column, Categorical) and isinstance(column.levels[0], str):
            bare = [str(level).strip() for level in column.levels]
            levels = tuple(str(level) for level in column.levels if bare.count(str(level).strip()) > 1)
            if levels:
                found[name] = levels
    return found
