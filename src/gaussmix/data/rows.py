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
    ExactSums,
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
from gaussmix.data.sampling import RowCache, Sample, SamplingKeys, cached_rows
from gaussmix.data.schema import Schema
from gaussmix.data.source import CsvOptions, ReadOptions
from gaussmix.data.table import open_table
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, DataError

REAPPEARS = (
    "The table was declared as sorted_by_unit, but the rows of a privacy unit are not adjacent. Sort the table by "
    "privacy unit, or omit sorted_by_unit; rows are then grouped in a temporary file."
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
        raise ArgumentError("Counts of privacy units require a privacy unit.")

    def close(self) -> None:  # noqa: B027 - most sources keep nothing
        """Discard data stored between passes."""

    def gram(self, *, cache: Sample | None = None, limit: float | None = None) -> ExactSums:
        """Return the exact Gram matrix in the declared metric, with contributions of a privacy unit scaled to j rows.

        With ``cache``, a sample of the release, a source that is read again for every pass may cache rows for later
        passes with the same sampling keys. ``limit`` is the largest rate of a sample that later passes need, computed
        from noisy counts. A source without a fixed order caches rows up to this rate, and none without it.
        """
        return self.aggregate(Gram() if self.unit is None else Gram(self.unit.max_contributions))

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
        self.table.check_unit(None)
        self.is_computed = self.table.computed
        self._cache: RowCache | None = None

    def gram(self, *, cache: Sample | None = None, limit: float | None = None) -> ExactSums:
        """Return the exact Gram matrix in the declared metric; with ``cache``, cache rows for later passes.

        A table with a fixed order caches as many rows as fit (:mod:`gaussmix.data.sampling`).
        """
        m, rows = self.schema.n_columns, None
        if cache is not None and self.table.single_use is None:
            if self.table.ordered:
                rows = RowCache(cache, m)
            elif limit is not None:
                rows = RowCache(cache.at(limit), m, keys=cache.fresh(self.table.readings))
        sums = self.read(Gram(), None, rows)
        self._cache = rows
        return sums

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate cached rows, or read the table."""
        cached = None if self._cache is None else self._cache.find(sample)
        if cached is not None:
            return aggregate_rows(cached, query, self.schema.n_columns)
        return self.read(query, sample, None, describe)

    def read(self, query: Query[A], sample: Sample | None, cache: RowCache | None, describe: str = "Reading") -> A:
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
        self.keep: UnitCache | None = None  # for the units of the next reading
        self._grouped: GroupedUnits | None = None
        self._counts: tuple[int, int] | None = None
        self._turn = threading.Lock()  # ids, starts and rows are read in turn from one file

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate whole privacy units."""
        aggregator, counts = query.aggregator(self.schema.n_columns), np.zeros(2, dtype=np.int64)
        with self._turn, closing(self._blocks(describe)) as blocks:
            for block in blocks:
                counts += len(block.starts), np.minimum(block.sizes, self.unit.max_contributions).sum()
                if self.keep is not None:
                    self.keep.add(block)
                _add_units(aggregator, block, sample)
            self._counts = int(counts[0]), int(counts[1])
        return aggregator.result()

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of units, and of their rows (at most j per unit), after a pass. **Sensitive**."""
        if self._counts is None:
            raise ArgumentError("Privacy units can be counted only after the first pass.")
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


def _add_units(aggregator: Query[Any], block: UnitBlock, sample: Sample | None) -> None:
    """Add the units of a block, or those in a sample."""
    chosen = block if sample is None else block.chosen(contributions.in_sample(block.ids, sample))
    for rows, starts in chosen.pieces(EXACT_ROWS):
        aggregator.add(rows, starts)


class UnitCache:
    """Privacy units of one reading that are in a sample, or none if they have too many rows. **Sensitive**.

    A unit has one sampling key in all readings, so that caching does not change a result.
    """

    def __init__(self, sample: Sample, m: int, blocks: list[UnitBlock] | None = None) -> None:
        self.sample, self._most = sample, cached_rows(m)
        self.blocks: list[UnitBlock] | None = []
        self._rows = 0
        for block in blocks or ():
            self._append(block)

    def add(self, block: UnitBlock) -> None:
        """Cache the units of a block that are in the sample."""
        if self.blocks is not None:
            self._append(block.chosen(contributions.in_sample(block.ids, self.sample)))

    def _append(self, block: UnitBlock) -> None:
        self._rows += len(block.rows)
        if self.blocks is None or self._rows > self._most:
            self.blocks = None
        else:
            self.blocks.append(block)

    def find(self, sample: Sample | None) -> list[UnitBlock] | None:
        """Return blocks that hold the units of a sample, or all units; None if they are not cached."""
        if sample is None:
            return self.blocks if self.sample.rate == 1.0 else None
        return self.blocks if sample.key == self.sample.key and sample.rate <= self.sample.rate else None


class ClusterRows(RowSource):
    """A Dask or Spark table. Each pass is one job: the query is sent to all workers, and their sums are added.

    Sampling keys belong to a partition and a position in it, and are fresh for every pass: an engine that computes a
    partition again may put its rows in another order. The first pass also returns the rows that samples of later
    passes need, if they fit into the cache, so that only passes over all rows are jobs.

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
        self._counts: tuple[int, int] | None = None
        self._cache: RowCache | UnitCache | None = None
        self._is_recoded = False

    def gram(self, *, cache: Sample | None = None, limit: float | None = None) -> ExactSums:
        """Return the exact Gram matrix in the declared metric; with ``cache`` and ``limit``, cache rows."""
        query, keep = Gram() if self.unit is None else Gram(self.unit.max_contributions), None
        if cache is not None and limit is not None:
            keep = cache.at(limit)
        return self._run(query, None, keep)

    def aggregate(self, query: Query[A], sample: Sample | None = None, describe: str = "Reading") -> A:
        """Aggregate cached rows, or every partition on its worker."""
        if isinstance(self._cache, RowCache) and (rows := self._cache.find(sample)) is not None:
            return aggregate_rows(rows, query, self.schema.n_columns)
        if isinstance(self._cache, UnitCache) and (units := self._cache.find(sample)) is not None:
            aggregator = query.aggregator(self.schema.n_columns)
            for block in units:
                _add_units(aggregator, block, sample)
            return aggregator.result()
        return self._run(query, sample)

    def _run(self, query: Query[A], sample: Sample | None, keep: Sample | None = None) -> A:
        """Aggregate every partition on its worker; with ``keep``, cache the rows of a sample."""
        table, schema, unit = self._table, self.schema, self.unit
        columns, by = list(schema.columns), None
        kept = keep
        if unit is not None:  # a unit is in a sample by its own id, wherever its rows are
            columns, by = [*columns, unit.column], unit.column
        else:
            sample, kept = (None if own is None else own.fresh(table.readings) for own in (sample, keep))
        build = functools.partial(
            _aggregate_part,
            schema=schema,
            query=query,
            sample=sample,
            keep=kept,
            key=table.draw_key(),
            unit=unit,
            unit_key=self._key,
        )
        empty = _Counted(query.aggregator(schema.n_columns).result(), 0, 0)
        found = table.sum_partitions(columns, build, empty, by=by)
        table.finish_reading(columns, found.rows, found.digest)
        self._counts = found.units, found.unit_rows
        if kept is not None and keep is not None:
            self._cache = self._cached(keep, kept, found.cached)
        result: A = found.result
        return result

    def _cached(self, keep: Sample, kept: Sample, blocks: list[Any] | None) -> RowCache | UnitCache | None:
        """Return a cache of the rows of all partitions."""
        if self.unit is None:
            cache = RowCache(keep, self.schema.n_columns, keys=kept)
            cache.blocks = blocks or []
            return cache
        units = None if blocks is None else UnitCache(keep, self.schema.n_columns, blocks)
        return None if units is None or units.blocks is None else units

    def unit_counts(self) -> tuple[int, int]:
        """Return the number of units, and of their rows (at most j per unit), after a pass. **Sensitive**."""
        if self.unit is None or self._counts is None:
            raise ArgumentError("Privacy units can be counted only after the first pass.")
        return self._counts

    def recoded(self, schema: Schema) -> RowSource:
        """Return the same table under another schema. It must not have changed."""
        found = ClusterRows(self._table, schema, self.unit, self._key)
        found._is_recoded = True
        return found

    def check_again(self) -> None:
        """Do nothing: an engine can always compute its table again."""

    def close(self) -> None:
        """Delete the rows that workers have stored. Copies under another schema share them and delete nothing."""
        if not self._is_recoded:
            self._table.close()


@dataclass(frozen=True, repr=False)
class _Counted(Summable):
    """A result, and the number and digest of all rows of the source, including those not in the sample.

    With a privacy unit also the numbers of units and of their rows that count. ``cached`` are blocks of a cache; None
    if a partition had too many rows.
    """

    result: Any
    rows: int
    digest: int
    units: int = 0
    unit_rows: int = 0
    cached: list[Any] | None = field(default_factory=list)

    def __add__(self, other: _Counted) -> _Counted:
        counts = self.units + other.units, self.unit_rows + other.unit_rows
        digest = (self.digest + other.digest) % 2**64
        cached = None if self.cached is None or other.cached is None else self.cached + other.cached
        return _Counted(self.result + other.result, self.rows + other.rows, digest, *counts, cached)


def _aggregate_part(
    part: Any,
    number: int,
    *,
    schema: Schema,
    query: Query[Any],
    sample: Sample | None,
    keep: Sample | None,
    key: bytes,
    unit: PrivacyUnit | None,
    unit_key: bytes | None,
) -> _Counted:
    """Aggregate one partition, on a worker. With a privacy unit it has all rows of its units."""
    m = schema.n_columns
    if unit is None or unit_key is None:
        rows = TableRows(part, schema)
        rows.table.key = key
        cache = None if keep is None else RowCache(keep, m, keys=keep.part(number))
        result = rows.read(query, None if sample is None else sample.part(number), cache)
        blocks = [] if cache is None else cache.blocks
        return _Counted(result, rows.table.rows, rows.table.digest, cached=blocks)
    with closing(UnitRows(part, schema, unit, key=unit_key)) as whole:
        whole.table.key = key
        whole.keep = None if keep is None else UnitCache(keep, m)
        result = whole.aggregate(query, sample)
        kept = [] if whole.keep is None else whole.keep.blocks
        return _Counted(result, whole.table.rows, whole.table.digest, *whole.unit_counts(), kept)


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
        return ArgumentError("Moments support only one pass. Set passes=1, or use the table instead of its moments.")

    def gram(self, *, cache: Sample | None = None, limit: float | None = None) -> ExactSums:
        """Return the Gram matrix of the moments."""
        return self._moments.sums()

    def check_again(self) -> None:
        """Raise an error: moments do not contain rows."""
        raise self._refusal()


SCHEMA_REQUIRED = (
    "schema is required: bounds of numbers and levels of categories, declared without looking at the data. "
    "`gaussmix schema FILE` writes a template."
)

ONLY_PER_UNIT = (
    'contribution_bounding="unique" is only for releases of tables made by per_unit. Use "sample" with '
    "max_contributions=1, which ensures one row for each unit."
)


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
        for name in ("row_by_row", "persist"):
            if getattr(options, name):
                raise ArgumentError(f"{name} has no effect on moments. Omit it.")
        if options.expected_rows is not None:
            data.expected_rows(options.expected_rows)
        return SummedRows(data)
    if schema is None:
        raise ArgumentError(SCHEMA_REQUIRED)
    declared = Schema.of(schema)
    if unit is not None:
        if unit.bounded is None:
            raise ArgumentError(ONLY_PER_UNIT)
        if new_key is None:
            raise ArgumentError("new_key, a function that returns a new sampling key, is required with a privacy unit.")
        table = open_table(data, options)
        table.check_unit(unit.column)
        if isinstance(table, ClusterTable):
            return ClusterRows(table, declared, unit, new_key())
        return UnitRows(table, declared, unit, key=new_key())
    table = open_table(data, options)
    return ClusterRows(table, declared) if isinstance(table, ClusterTable) else TableRows(table, declared)
