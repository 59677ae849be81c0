"""Tables that can be read several times, as a release in passes requires.

**Sensitive**: every result is an exact sum over rows, or over privacy units; only the mechanism reads it. The bits of a
sum do not depend on the order of rows (:mod:`gaussmix.data.gram`), so that sources of every kind give the same results.

>>> import numpy as np
>>> rows = rows_of({"a": np.linspace(0, 1, 50)}, {"a": [0, 1]})
>>> transform = Transform.nearest(np.eye(2))
>>> [counts.tolist() for counts in rows.counts([transform], [np.array([0.75, 2.0])])]
[[34, 16, 0]]
>>> rows.mapped(transform, clip=1.0).n
50
"""

from __future__ import annotations

import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from gaussmix._types import Floats, Integers
from gaussmix.data import contributions
from gaussmix.data.contributions import GroupedUnits, PrivacyUnit, UnitBlock, Words
from gaussmix.data.encode import (
    EXACT_ROWS,
    BlockEncoder,
    checked_arrays,
    complete_rows,
    encode_batch,
    one_column,
    pieces,
)
from gaussmix.data.engines import ClusterTable
from gaussmix.data.gram import (
    ClippedGradient,
    ExactSums,
    GradientSums,
    Gram,
    MappedGram,
    NormCounts,
    Query,
    Summable,
    aggregate_arrays,
    aggregate_batches,
    aggregate_rows,
)
from gaussmix.data.moments import Moments
from gaussmix.data.sampling import RowCache, Sample, SamplingKeys
from gaussmix.data.schema import Schema
from gaussmix.data.source import CHANGED, CsvOptions, ReadOptions, unexpected_rows
from gaussmix.data.table import open_table
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, DataError

REAPPEARS = (
    "The table was declared sorted_by_unit, but the rows of a privacy unit are not adjacent. Sort it, or omit the "
    "declaration; rows are then grouped in a temporary file."
)
"""The message reveals neither the unit nor its position."""

_ENCODED_BYTES = 2**25

A = TypeVar("A", bound=Summable)


class RowSource(ABC):
    """A table that is read in passes. **Sensitive**.

    Every method except `check_again` reads the whole table once, or a sample of its rows. ``describe`` is the text of
    the progress bar, if there is one. An invalid value is detected by the passes that read its row; with samples, this
    may be the last pass only.
    """

    schema: Schema
    unit: PrivacyUnit | None = None
    is_computed: bool = False  # rows come from a query, a lazy frame or a stream

    @abstractmethod
    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Read the whole table, or a sample of its rows, and return the result of any query of `gaussmix.data.gram`."""

    @abstractmethod
    def recoded(self, schema: Schema) -> RowSource:
        """Return the same rows under another schema, such as one with narrower bounds. The caller must close it."""

    @abstractmethod
    def check_again(self) -> None:
        """Raise an error if the table can be read only once."""

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of privacy units, and of their rows (at most j per unit), after a pass. **Sensitive**."""
        raise ArgumentError("Unit counts require a privacy unit.")

    def close(self) -> None:  # noqa: B027 - most sources keep nothing
        """Discard data stored between passes."""

    def moments(
        self, sample: Sample | None = None, *, cache: Sample | None = None, describe: str = "Reading"
    ) -> Moments:
        """Return the exact Gram matrix in the declared metric, with contributions of a privacy unit scaled to j rows.

        With ``cache``, a sample of the release, a source that is read again for every pass may cache rows for later
        passes with the same sampling keys.
        """
        query = Gram() if self.unit is None else Gram(self.unit.max_contributions)
        sums = self.aggregate(query, sample, describe)
        return Moments.built(sums, self.schema, self.unit, is_computed=self.is_computed)

    def mapped(
        self, transform: Transform, clip: float, sample: Sample | None = None, *, describe: str = "Reading"
    ) -> ExactSums:
        """Return Σ z̄ z̄ᵀ/clip in units of 2⁻⁴⁰, with z = T r clipped to ‖z̄‖² ≤ clip, per row or privacy unit."""
        return self.aggregate(MappedGram(transform, clip), sample, describe)

    def counts(
        self,
        transforms: Sequence[Transform],
        edges: Sequence[Floats],
        sample: Sample | None = None,
        *,
        describe: str = "Reading",
    ) -> list[Integers]:
        """Count rows, or privacy units, with ‖z‖² in (0, e₁], …, (e_J, ∞), for every transform and its edges."""
        return self.aggregate(NormCounts(transforms, edges), sample, describe).counts

    def gradient(self, transform: Transform, label: int, clip: float, *, describe: str = "Reading") -> GradientSums:
        """Return sums of clipped gradients and weights of a logistic likelihood (:mod:`gaussmix.data.gram`)."""
        return self.aggregate(ClippedGradient(transform, label, clip), None, describe)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schema.n_columns} columns, sensitive: no numbers shown)"


class ArrayRows(RowSource):
    """Rows that come as arrays, for a schema of one vector X and then numbers y: the fastest.

    X has shape (n, size), Y (n,) or (n, numbers). By default there are as many threads as BLAS would use.
    """

    def __init__(self, X: ArrayLike, Y: ArrayLike | None, schema: Schema, *, threads: int | None = None) -> None:
        self.schema = schema
        self._X, self._Y = checked_arrays(schema, X, Y)
        self._threads = threads
        self._keys: tuple[bytes, SamplingKeys, dict[int, Integers]] | None = None

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Encode and aggregate the arrays."""
        chosen = None if sample is None else self._chosen(sample)
        blocks = [(self._X, self._Y)]
        return aggregate_arrays(blocks, self.schema, query, chosen=chosen, threads=self._threads)

    def _chosen(self, sample: Sample) -> Integers:
        """Return the positions of a sample. The sampling keys of one release are computed once."""
        known = self._keys  # another thread may draw another release from the same rows
        if known is None or known[0] != sample.key:
            self._keys = known = (sample.key, sample.sampling_keys(0, len(self._X)), {})
        _, keys, found = known
        if sample.threshold not in found:
            found[sample.threshold] = np.flatnonzero(keys < sample.threshold)
        return found[sample.threshold]

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same arrays under another schema."""
        return ArrayRows(self._X, self._Y, schema, threads=self._threads)

    def check_again(self) -> None:
        """Do nothing: arrays can always be read again."""


class TableRows(RowSource):
    """Anything that :func:`gaussmix.data.table.open_table` opens, in bounded memory.

    Every pass reads it again, but for rows that were cached (:mod:`gaussmix.data.sampling`).
    """

    def __init__(self, data: Any, schema: Schema, options: ReadOptions | None = None) -> None:
        self.schema, self.table = schema, open_table(data, options)
        self.is_computed = self.table.computed
        self._cache: RowCache | None = None

    def moments(
        self, sample: Sample | None = None, *, cache: Sample | None = None, describe: str = "Reading"
    ) -> Moments:
        """Return the exact Gram matrix in the declared metric; with ``cache``, cache rows for later passes.

        Not of a source that does not promise its order: there each reading has sampling keys of its own, and whether
        rows were cached, which depends on their number, would decide whether passes share them.
        """
        ordered = cache is not None and sample is None and self.table.ordered
        rows = RowCache(cache, self.schema.n_columns) if cache is not None and ordered else None
        sums = self._read(Gram(), sample, rows, describe)
        self._cache = rows
        return Moments.built(sums, self.schema, is_computed=self.is_computed)

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate cached rows, or read the table."""
        cached = None if self._cache is None else self._cache.find(sample)
        if cached is not None:
            return aggregate_rows(cached, query, self.schema.n_columns)
        return self._read(query, sample, None, describe)

    def _read(self, query: Query[A], sample: Sample | None, cache: RowCache | None, describe: str) -> A:
        """Read the table, or a sample of its rows. A ``cache`` keeps rows for later."""
        table, schema = self.table, self.schema
        if sample is not None and not table.ordered:
            sample = sample.fresh(table.readings)
        threads = 1 if table.reuses_buffers else None
        with closing(
            table.batches(list(schema.columns), types=schema.text_types, examine_plan=True, describe=describe)
        ) as stream:
            return aggregate_batches(stream, schema, query, sample=sample, cache=cache, threads=threads)

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same table under another schema. It must not have changed."""
        return TableRows(self.table, schema)

    def check_again(self) -> None:
        """Raise an error for an iterator or a reader, which can be read only once."""
        self.table.check_again()


class UnitRows(RowSource):
    """A table whose privacy unit has several rows: results are sums over units with bounded contributions.

    A table declared as sorted is read again in every pass; any other is read once, and its units are stored until
    `close` (:mod:`gaussmix.data.contributions`). ``key`` is 32 bytes, secret and drawn for one release.
    """

    def __init__(
        self, data: Any, schema: Schema, unit: PrivacyUnit, options: ReadOptions | None = None, *, key: bytes
    ) -> None:
        self.schema, self._key = schema, key
        self.unit: PrivacyUnit = unit
        self.table = open_table(data, options)
        self.is_computed = self.table.computed
        self._is_sorted = self.table.options.sorted_by_unit
        self._grouped: GroupedUnits | None = None
        self._counts: tuple[int, int] | None = None
        self._turn = threading.Lock()  # ids, starts and rows are read in turn from one file

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate whole privacy units."""
        aggregator, counts = query.aggregator(self.schema.n_columns), np.zeros(2, dtype=np.int64)
        with self._turn, closing(self._blocks(describe)) as blocks:
            for block in blocks:
                counts += len(block.starts), np.minimum(block.sizes, self.unit.max_contributions).sum()
                chosen = block if sample is None else block.chosen(contributions.in_sample(block.ids, sample))
                for rows, starts in chosen.pieces(EXACT_ROWS):
                    aggregator.add(rows, starts)
            self._counts = int(counts[0]), int(counts[1])
        return aggregator.result()

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of units, and of their rows (at most j per unit), after a pass. **Sensitive**."""
        if self._counts is None:
            raise ArgumentError("Units must be counted after the first pass.")
        return self._counts

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same table under another schema, to be grouped by unit again: encoded rows are stored."""
        return UnitRows(self.table, schema, self.unit, key=self._key)

    def check_again(self) -> None:
        """Raise an error if the table can be read only once."""
        self.table.check_again()

    def close(self) -> None:
        """Discard the rows stored for later passes."""
        if self._grouped is not None:
            self._grouped.close()

    def _blocks(self, describe: str) -> Generator[UnitBlock]:
        """Yield whole units with bounded contributions."""
        if not self._is_sorted:
            if self._grouped is None:
                self._grouped = self._brought_together(describe)
            yield from self._grouped.blocks()
            return
        ended = [np.empty((0, 2), dtype=np.uint64)]  # units are noted as they end: 16 bytes each
        for block in contributions.whole_units(self._encoded(describe)):
            ended.append(block.ids)
            yield contributions.truncated(block, self.unit, self._key)
        ids = np.concatenate(ended)
        ids = ids[np.lexsort((ids[:, 1], ids[:, 0]))]
        if (ids[1:] == ids[:-1]).all(axis=1).any():
            raise DataError(REAPPEARS)

    def _brought_together(self, describe: str) -> GroupedUnits:
        """Read the table once and store its rows, grouped by unit, for later passes."""
        m = self.schema.n_columns
        partitions, grouped = contributions.Partitions(m), GroupedUnits(m)
        try:
            with closing(self._encoded(describe)) as stream:
                for ids, rows in stream:
                    partitions.add(ids, rows)
            for block in partitions.blocks():
                grouped.add(contributions.truncated(block, self.unit, self._key))
        except BaseException:
            grouped.close()
            raise
        finally:
            partitions.close()
        return grouped

    def _encoded(self, describe: str) -> Generator[tuple[Words, Floats]]:
        """Yield ids of units and encoded rows, a bounded number at a time."""
        schema, column = self.schema, self.unit.column
        plan, rows = BlockEncoder.of(schema), max(_ENCODED_BYTES // (8 * schema.n_columns), 1)
        columns, types = [*schema.columns, column], {**schema.text_types, column: pa.string()}
        with closing(self.table.batches(columns, types=types, examine_plan=True, describe=describe)) as stream:
            for batch in stream:
                ids = contributions.unit_ids(
                    column, one_column(batch, column), self._key
                )  # an error even in a row that is dropped
                keep = complete_rows(batch, schema)
                if keep is not None:
                    batch, ids = batch.filter(keep), ids[keep.to_numpy(zero_copy_only=False)]
                for piece in pieces(batch.num_rows, rows):
                    block = encode_batch(batch.slice(piece.start, piece.stop - piece.start), schema, plan)
                    plan.finish(block)
                    yield ids[piece], block


@dataclass
class _Readings:
    """Number of readings of a table, its rows and their digest, shared by all schemas under which it is read."""

    number: int = 0
    rows: int = 0
    digest: int = 0
    key: bytes = field(default_factory=lambda: os.urandom(32))


class ClusterRows(RowSource):
    """A Dask or Spark table. Each pass is one job: the query is sent to all workers, and only sums leave them.

    Sampling keys belong to a partition and a position in it, and are fresh for every pass: an engine that
    computes a partition again may put its rows in another order. Persist the table, or every pass recomputes it.

    With a privacy unit the engine brings the rows of each unit together, by a shuffle in every pass, and workers bound
    their contributions as `UnitRows` does, with the same key: the result has the same bits.
    """

    is_computed = True

    def __init__(
        self, table: ClusterTable, schema: Schema, unit: PrivacyUnit | None = None, key: bytes | None = None
    ) -> None:
        if table.options.sorted_by_unit:
            raise ArgumentError("sorted_by_unit has no effect on Dask and Spark tables. Omit it.")
        self.schema, self.unit, self._table, self._key = schema, unit, table, key
        self._readings = _Readings()
        self._counts: tuple[int, int] | None = None

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate every partition on its worker."""
        known, schema, unit = self._readings, self.schema, self.unit
        columns, by = list(schema.columns), None
        if unit is not None:  # a unit is in a sample by its own id, wherever its rows are
            columns, by = [*columns, unit.column], unit.column
        elif sample is not None:
            sample = sample.fresh(known.number)
        build = functools.partial(
            _aggregate_part, schema=schema, query=query, sample=sample, key=known.key, unit=unit, unit_key=self._key
        )
        empty = _Counted(query.aggregator(schema.n_columns).result(), 0, 0)
        found = self._table.sum_partitions(columns, build, empty, by=by)
        if known.number and (found.rows, found.digest) != (known.rows, known.digest):
            raise DataError(CHANGED)
        expected = self._table.options.expected_rows
        if expected is not None and found.rows != expected:
            raise unexpected_rows(expected)
        if not found.rows:
            raise DataError("The table has no rows. Check the query or filter.")
        known.number, known.rows, known.digest = known.number + 1, found.rows, found.digest
        self._counts = found.units, found.unit_rows
        result: A = found.result
        return result

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of units, and of their rows (at most j per unit), after a pass. **Sensitive**."""
        if self.unit is None or self._counts is None:
            raise ArgumentError("Units must be counted after the first pass.")
        return self._counts

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same table under another schema. It must not have changed."""
        found = ClusterRows(self._table, schema, self.unit, self._key)
        found._readings = self._readings
        return found

    def check_again(self) -> None:
        """Do nothing: an engine can always compute its table again."""


@dataclass(frozen=True, repr=False)
class _Counted(Summable):
    """A result, and the number and digest of all rows of the source, including those not in the sample.

    With a privacy unit also the numbers of units and of their rows that count.
    """

    result: Any
    rows: int
    digest: int
    units: int = 0
    unit_rows: int = 0

    def __add__(self, other: _Counted) -> _Counted:
        counts = self.units + other.units, self.unit_rows + other.unit_rows
        digest = (self.digest + other.digest) % 2**64
        return _Counted(self.result + other.result, self.rows + other.rows, digest, *counts)


def _aggregate_part(
    part: Any,
    number: int,
    *,
    schema: Schema,
    query: Query[Any],
    sample: Sample | None,
    key: bytes,
    unit: PrivacyUnit | None,
    unit_key: bytes | None,
) -> _Counted:
    """Aggregate one partition, on a worker. With a privacy unit it has all rows of its units."""
    if unit is None or unit_key is None:
        rows = TableRows(part, schema)
        rows.table.key = key
        result = rows.aggregate(query, None if sample is None else sample.part(number))
        return _Counted(result, rows.table.rows, rows.table.digest)
    with closing(UnitRows(part, schema, unit, key=unit_key)) as whole:
        whole.table.key = key
        result = whole.aggregate(query, sample)
        return _Counted(result, whole.table.rows, whole.table.digest, *whole.unit_counts())


class SummedRows(RowSource):
    """Existing moments without their rows: one pass only."""

    def __init__(self, moments: Moments) -> None:
        self.schema, self.unit, self.is_computed = moments.schema, moments.unit, moments.is_computed
        self._moments = moments

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Raise an error: moments do not contain rows."""
        raise self._refusal()

    def recoded(self, schema: Schema) -> RowSource:
        """Raise an error: moments do not contain rows."""
        raise self._refusal()

    def _refusal(self) -> ArgumentError:
        return ArgumentError("Moments allow one pass only. Set passes=1, or pass the table.")

    def moments(
        self, sample: Sample | None = None, *, cache: Sample | None = None, describe: str = "Reading"
    ) -> Moments:
        """Return the moments; samples are not available."""
        if sample is not None:
            raise self._refusal()
        return self._moments

    def check_again(self) -> None:
        """Raise an error: moments do not contain rows."""
        raise self._refusal()


def rows_of(
    data: Any,
    schema: Schema | dict[str, Any] | str | Path | None = None,
    options: ReadOptions | None = None,
    *,
    unit: PrivacyUnit | None = None,
    new_key: Callable[[], bytes] | None = None,
) -> RowSource:
    """Return the rows of a table, or existing moments as rows. The caller must close the result.

    Parameters
    ----------
    data : table, Moments or RowSource
        A table is anything that :func:`gaussmix.data.table.open_table` opens.
    schema : Schema, dict or path of a TOML or JSON file
        Not needed with moments.
    options : ReadOptions, optional
        How the table is read.
    unit : PrivacyUnit, optional
        The privacy unit; default: one row.
    new_key : function
        Returns 32 secret bytes, by which the ids of units are hashed. Needed with a unit.
    """
    options = ReadOptions() if options is None else options
    if isinstance(data, RowSource):
        return data
    if options.sorted_by_unit and (unit is None or isinstance(data, Moments)):
        raise ArgumentError(
            "sorted_by_unit requires a table and a privacy unit. Declare the unit or omit sorted_by_unit."
        )
    if isinstance(data, Moments):
        if options.csv not in (None, CsvOptions()):
            raise ArgumentError("csv has no effect on moments. Omit it.")
        if options.row_by_row:
            raise ArgumentError("row_by_row has no effect on moments. Omit it.")
        if options.expected_rows is not None:
            data.expected_rows(options.expected_rows)
        return SummedRows(data)
    if schema is None:
        raise ArgumentError("schema is required for a table.")
    declared = Schema.of(schema)
    if unit is not None:
        if new_key is None:
            raise ArgumentError("new_key is required with a privacy unit.")
        table = open_table(data, options)
        if isinstance(table, ClusterTable):
            return ClusterRows(table, declared, unit, new_key())
        return UnitRows(table, declared, unit, key=new_key())
    table = open_table(data, options)
    return ClusterRows(table, declared) if isinstance(table, ClusterTable) else TableRows(table, declared)
