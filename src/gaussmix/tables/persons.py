"""Rows of a table by person: what a release whose unit is a person asks of it, one pass after the other.

**Sensitive**: answers are exact sums over persons; only the mechanism reads them. The column of the unit is read as
text (:mod:`gaussmix.tables.keyed`), hashed with a secret key, and forgotten.

Rows of a person must stand together. Of a table that is declared to be sorted they do: every pass reads it again, and a
person who reappears is an error. Any other table is read once, and its encoded rows are brought together by partitions
(:mod:`gaussmix.tables.partitions`), which later passes read. Both give the same bits, in whatever order rows come.

>>> table = {"who": np.array([1, 2, 1]), "a": np.array([0.5, 1.0, 0.0])}
>>> rows = persons_of(table, Schema.of({"a": [0, 1]}), Unit("who", rows=2), key=bytes(32))
>>> rows.moments(), rows.unit_counts(), rows.close()
(Moments(2 columns, 1 parts, sensitive: no numbers shown), (2, 3), None)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError, DataError
from gaussmix.tables.arrays import one_column
from gaussmix.tables.arrow import complete_rows, encode_batch
from gaussmix.tables.asking import Source
from gaussmix.tables.cluster import is_clustered
from gaussmix.tables.csv_options import CsvOptions
from gaussmix.tables.encoder import EXACT_ROWS, BlockEncoder, pieces
from gaussmix.tables.keyed import Words, names_of, siphash
from gaussmix.tables.partitions import Block, Grouped, Partitions, kept
from gaussmix.tables.rows import RowSource
from gaussmix.tables.sample import Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Query, Summable
from gaussmix.tables.unit import Unit

__all__ = ["REAPPEARS", "PersonRows", "persons_of"]

REAPPEARS = (
    "The table was declared to be sorted by its unit, and rows of one person do not stand together in it. Sort it, or "
    "leave the declaration out: rows are then brought together in a temporary file."
)
"""Nobody is named, and no place."""

_ENCODED_BYTES = 2**25

A = TypeVar("A", bound=Summable)
Encoded = tuple[Words, Floats]


class _Feed(Protocol):
    """Where whole persons come from, once for every pass."""

    def each(self, visit: Callable[[Block], None], describe: str) -> None: ...

    def close(self) -> None: ...


class PersonRows(RowSource):
    """A table whose unit of privacy is a person.

    Parameters
    ----------
    schema, unit
        Declared.
    feed
        Whole persons.
    is_computed
        Whether their rows come from a query, a lazy frame or a stream.
    """

    unit: Unit

    def __init__(self, schema: Schema, unit: Unit, feed: _Feed, *, is_computed: bool = False) -> None:
        self.schema, self.unit, self._feed, self.is_computed = schema, unit, feed, is_computed
        self._counted: tuple[int, int] | None = None
        self._turn = threading.Lock()  # one file is behind it, and names, starts and rows are read one after the other

    def unit_counts(self) -> tuple[int, int]:
        """Privacy units, and their rows, at most j of each counted, after a pass. **Sensitive**."""
        if self._counted is None:
            raise ArgumentError("Units are counted in the first pass.")
        return self._counted

    def count(self) -> int | None:
        """Not known before a pass."""
        return None

    def check_again(self) -> None:
        """Refuse a sorted table that can be read only once; partitions can always be read again."""
        if isinstance(self._feed, _Sorted):
            self._feed.check_again()

    def close(self) -> None:
        """Remove what was brought together."""
        self._feed.close()

    def _aggregate(self, query: Query[A], sample: Sample | None, describe: str) -> A:
        aggregator, counted = query.aggregator(self.schema.n_columns), np.zeros(2, dtype=np.int64)

        def visit(block: Block) -> None:
            counted[:] += len(block.starts), np.minimum(block.sizes, self.unit.rows).sum()
            chosen = block if sample is None else block.chosen(_chosen(block.names, sample))
            for rows, starts in chosen.pieces(EXACT_ROWS):
                aggregator.add(rows, starts)

        with self._turn:
            self._feed.each(visit, describe)
            self._counted = int(counted[0]), int(counted[1])
        return aggregator.result()


def persons_of(
    data: Any,
    schema: Schema,
    unit: Unit,
    *,
    key: bytes,
    is_sorted: bool = False,
    csv: CsvOptions | None = None,
    expect_rows: int | None = None,
    progress: bool = False,
    row_by_row: bool = False,
) -> PersonRows:
    """Persons of anything that :func:`gaussmix.tables.sources.batches` reads.

    Parameters
    ----------
    data, schema, unit, csv, expect_rows, progress, row_by_row
        As in :func:`gaussmix.release`.
    key : bytes
        32 bytes, secret and drawn for one release.
    is_sorted : bool
        Rows of a person stand together.
    """
    if is_clustered(data):
        raise ArgumentError(
            "The rows of a person are brought together on one machine: write the Dask or Spark table to Parquet files "
            "and pass their folder."
        )
    source = Source(data, csv=csv, expect_rows=expect_rows, progress=progress, row_by_row=row_by_row)

    def read(take: Callable[[Iterator[Encoded]], None], describe: str) -> None:
        columns, types = [*schema.columns, unit.column], {**schema.text_types, unit.column: pa.string()}
        with source.reading(columns, types, describe=describe) as stream:
            take(_encoded(stream, schema, unit, key))

    feed: _Feed = _Partitioned(read, schema, unit, key)
    if is_sorted:
        feed = _Sorted(read, source.check_again, unit, key)
    return PersonRows(schema, unit, feed, is_computed=source.is_computed)


def _chosen(names: Words, sample: Sample) -> NDArray[np.bool_]:
    """Which privacy units are in a sample, by their names alone: independent of who else is there.

    Under one secret key a unit has one sampling key for samples of all rates, and is in those whose threshold is above.
    """
    return np.asarray(siphash(names, sample.key[:16]) >> np.uint64(48) < sample.threshold)


# ---------------------------------------------------------------------------------------------------------------
# Encoded rows
def _encoded(stream: Iterator[pa.RecordBatch], schema: Schema, unit: Unit, key: bytes) -> Iterator[Encoded]:
    """Names of persons and whole rows, a bounded number at a time."""
    plan, rows = BlockEncoder.of(schema), max(_ENCODED_BYTES // (8 * schema.n_columns), 1)
    for batch in stream:
        names = names_of(unit.column, one_column(batch, unit.column), key)  # a missing one is an error, dropped or not
        keep = complete_rows(batch, schema)
        if keep is not None:
            batch, names = batch.filter(keep), names[keep.to_numpy(zero_copy_only=False)]
        for piece in pieces(batch.num_rows, rows):
            block = encode_batch(batch.slice(piece.start, piece.stop - piece.start), schema, plan)
            plan.finish(block)
            yield names[piece], block


# ---------------------------------------------------------------------------------------------------------------
# Whole persons
Read = Callable[[Callable[[Iterator[Encoded]], None], str], None]


class _Partitioned:
    """The table is read once, at the first pass; later passes read what was brought together."""

    def __init__(self, read: Read, schema: Schema, unit: Unit, key: bytes) -> None:
        self._read, self._m, self._unit, self._key = read, schema.n_columns, unit, key
        self._grouped: Grouped | None = None

    def each(self, visit: Callable[[Block], None], describe: str) -> None:
        if self._grouped is None:
            self._grouped = self._brought_together(describe)
        for block in self._grouped.blocks():
            visit(block)

    def _brought_together(self, describe: str) -> Grouped:
        partitions, grouped = Partitions(self._m), Grouped(self._m)

        def take(stream: Iterator[Encoded]) -> None:
            for names, rows in stream:
                partitions.add(names, rows)

        try:
            self._read(take, describe)
            for block in partitions.blocks():
                grouped.add(kept(block, self._unit, self._key))
        except BaseException:
            grouped.close()
            raise
        finally:
            partitions.close()
        return grouped

    def close(self) -> None:
        if self._grouped is not None:
            self._grouped.close()


class _Sorted:
    """Every pass reads the table again. Persons are noted as they end: 16 bytes each."""

    def __init__(self, read: Read, check_again: Callable[[], None], unit: Unit, key: bytes) -> None:
        self._read, self.check_again, self._unit, self._key = read, check_again, unit, key

    def each(self, visit: Callable[[Block], None], describe: str) -> None:
        ended: list[Words] = []

        def take(stream: Iterator[Encoded]) -> None:
            for block in _whole_persons(stream):
                ended.append(block.names)
                visit(kept(block, self._unit, self._key))

        self._read(take, describe)
        names = np.concatenate(ended) if ended else np.empty((0, 2), dtype=np.uint64)
        names = names[np.lexsort((names[:, 1], names[:, 0]))]
        if (names[1:] == names[:-1]).all(axis=1).any():
            raise DataError(REAPPEARS)

    def close(self) -> None:
        """Nothing was kept."""


def _whole_persons(stream: Iterator[Encoded]) -> Iterator[Block]:
    """Blocks of persons; the last person of a piece waits for the next one, where there may be more rows."""
    waiting: list[tuple[Words, NDArray[np.int32]]] = []
    for names, rows in stream:
        whole = rows.astype(np.int32)
        last = len(names) - int(np.argmax(np.append((names[::-1] != names[-1]).any(axis=1), True)))
        if last or (waiting and (waiting[-1][0][-1] != names[0]).any()):
            parts = [*waiting, (names[:last], whole[:last])]
            yield Block.of(*(np.concatenate(part) for part in zip(*parts, strict=True)))
            waiting = []
        waiting.append((names[last:], whole[last:]))
    if waiting:
        yield Block.of(*(np.concatenate(part) for part in zip(*waiting, strict=True)))
