"""Tables read by privacy unit: whole units, their contributions bounded, as often as a release reads them.

**Sensitive**: only the mechanism sees what is aggregated. The column of the unit is read as text
(:mod:`gaussmix.tables.keyed`), hashed with a secret key, and forgotten.

The rows of a unit must stand together. In a table that is declared to be sorted they do: every pass reads it again, and
a unit that reappears is an error. Any other table is read once, and its encoded rows are grouped by partitions
(:mod:`gaussmix.tables.partitions`), which later passes read. Both give the same bits, in whatever order rows come.

>>> from gaussmix.tables.tallies import Gram
>>> table = {"who": np.array([1, 2, 1]), "a": np.array([0.5, 1.0, 0.0])}
>>> units = UnitReader(table, Schema.of({"a": [0, 1]}), Unit("who", rows=2), key=bytes(32))
>>> units.aggregate(Gram(2)).n, units.counts(), units.close()
(3, (2, 3), None)
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError, DataError
from gaussmix.tables.arrays import one_column
from gaussmix.tables.arrow import complete_rows, encode_batch
from gaussmix.tables.asking import Source
from gaussmix.tables.csv_options import CsvOptions
from gaussmix.tables.encoder import EXACT_ROWS, BlockEncoder, pieces
from gaussmix.tables.keyed import Words, siphash, unit_ids
from gaussmix.tables.memory import is_clustered
from gaussmix.tables.partitions import GroupedUnits, Partitions, UnitBlock, truncated
from gaussmix.tables.sample import Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Query, Summable
from gaussmix.tables.unit import Unit

__all__ = ["REAPPEARS", "UnitReader"]

REAPPEARS = (
    "The table was declared to be sorted by its unit, and rows of one person do not stand together in it. Sort it, or "
    "leave the declaration out: rows are then brought together in a temporary file."
)
"""Neither the unit nor its place is named."""

_ENCODED_BYTES = 2**25

A = TypeVar("A", bound=Summable)
Encoded = tuple[Words, Floats]


class UnitReader:
    """The privacy units of anything that :func:`gaussmix.tables.sources.batches` reads. To be closed.

    Parameters
    ----------
    data, schema, unit, csv, expect_rows, progress, row_by_row
        As in :func:`gaussmix.release`.
    key : bytes
        32 bytes, secret and drawn for one release.
    is_sorted : bool
        The rows of a unit stand together.

    Attributes
    ----------
    is_computed : bool
        Whether rows come from a query, a lazy frame or a stream.
    """

    def __init__(
        self,
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
    ) -> None:
        if is_clustered(data):
            raise ArgumentError(
                "The rows of a person are brought together on one machine: write the Dask or Spark table to Parquet "
                "files and pass their folder."
            )
        self._source = Source(data, csv=csv, expect_rows=expect_rows, progress=progress, row_by_row=row_by_row)
        self.is_computed = self._source.is_computed
        self._schema, self._unit, self._key, self._is_sorted = schema, unit, key, is_sorted
        self._grouped: GroupedUnits | None = None
        self._counts: tuple[int, int] | None = None
        self._turn = threading.Lock()  # one file is behind it, and ids, starts and rows are read one after the other

    def aggregate(self, query: Query[A], sample: Sample | None = None, *, describe: str = "Reading") -> A:
        """Read all units, or a sample of them."""
        aggregator, counts = query.aggregator(self._schema.n_columns), np.zeros(2, dtype=np.int64)
        with self._turn, closing(self._blocks(describe)) as blocks:
            for block in blocks:
                counts += len(block.starts), np.minimum(block.sizes, self._unit.rows).sum()
                chosen = block if sample is None else block.chosen(_in_sample(block.ids, sample))
                for rows, starts in chosen.pieces(EXACT_ROWS):
                    aggregator.add(rows, starts)
            self._counts = int(counts[0]), int(counts[1])
        return aggregator.result()

    def counts(self) -> tuple[int, int]:
        """Return the number of units, and of their rows, at most j of each counted, after a pass. **Sensitive**."""
        if self._counts is None:
            raise ArgumentError("Units are counted in the first pass.")
        return self._counts

    def check_again(self) -> None:
        """Refuse a sorted table that can be read only once; groups can always be read again."""
        if self._is_sorted:
            self._source.check_again()

    def close(self) -> None:
        """Remove the stored groups."""
        if self._grouped is not None:
            self._grouped.close()

    def _blocks(self, describe: str) -> Generator[UnitBlock]:
        """Yield whole units, no more rows of each than are read."""
        if self._is_sorted:
            yield from self._in_order(describe)
            return
        if self._grouped is None:
            self._grouped = self._brought_together(describe)
        yield from self._grouped.blocks()

    def _in_order(self, describe: str) -> Iterator[UnitBlock]:
        """Read the table again. Units are noted as they end: 16 bytes each."""
        ended: list[Words] = []
        for block in _whole_units(self._encoded(describe)):
            ended.append(block.ids)
            yield truncated(block, self._unit, self._key)
        ids = np.concatenate(ended) if ended else np.empty((0, 2), dtype=np.uint64)
        ids = ids[np.lexsort((ids[:, 1], ids[:, 0]))]
        if (ids[1:] == ids[:-1]).all(axis=1).any():
            raise DataError(REAPPEARS)

    def _brought_together(self, describe: str) -> GroupedUnits:
        """Read the table once; later passes read what is stored here."""
        m = self._schema.n_columns
        partitions, grouped = Partitions(m), GroupedUnits(m)
        try:
            with closing(self._encoded(describe)) as stream:
                for ids, rows in stream:
                    partitions.add(ids, rows)
            for block in partitions.blocks():
                grouped.add(truncated(block, self._unit, self._key))
        except BaseException:
            grouped.close()
            raise
        finally:
            partitions.close()
        return grouped

    def _encoded(self, describe: str) -> Generator[Encoded]:
        """Yield ids of units and encoded rows, a bounded number at a time."""
        schema, column = self._schema, self._unit.column
        plan, rows = BlockEncoder.of(schema), max(_ENCODED_BYTES // (8 * schema.n_columns), 1)
        columns, types = [*schema.columns, column], {**schema.text_types, column: pa.string()}
        with self._source.reading(columns, types, describe=describe) as stream:
            for batch in stream:
                ids = unit_ids(column, one_column(batch, column), self._key)  # missing: an error, dropped or not
                keep = complete_rows(batch, schema)
                if keep is not None:
                    batch, ids = batch.filter(keep), ids[keep.to_numpy(zero_copy_only=False)]
                for piece in pieces(batch.num_rows, rows):
                    block = encode_batch(batch.slice(piece.start, piece.stop - piece.start), schema, plan)
                    plan.finish(block)
                    yield ids[piece], block


def _in_sample(ids: Words, sample: Sample) -> NDArray[np.bool_]:
    """Return which units are in a sample, by their ids alone: independent of which others are there.

    Under one secret key a unit has one sampling key for samples of all rates, and is in those whose threshold is above.
    """
    return np.asarray(siphash(ids, sample.key[:16]) >> np.uint64(48) < sample.threshold)


def _whole_units(stream: Generator[Encoded]) -> Iterator[UnitBlock]:
    """Yield blocks of whole units; the last unit of a piece waits for the next one, where there may be more rows."""
    waiting: list[tuple[Words, NDArray[np.int32]]] = []
    with closing(stream):
        for ids, rows in stream:
            whole = rows.astype(np.int32)
            last = len(ids) - int(np.argmax(np.append((ids[::-1] != ids[-1]).any(axis=1), True)))
            if last or (waiting and (waiting[-1][0][-1] != ids[0]).any()):
                parts = [*waiting, (ids[:last], whole[:last])]
                yield UnitBlock.of(*(np.concatenate(part) for part in zip(*parts, strict=True)))
                waiting = []
            waiting.append((ids[last:], whole[last:]))
    if waiting:
        yield UnitBlock.of(*(np.concatenate(part) for part in zip(*waiting, strict=True)))
