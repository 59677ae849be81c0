"""Rows that are kept from one reading of a table for later passes, in bounded memory; **sensitive**.

Every row has a coin (:mod:`gaussmix.tables.sample`), and the rows with the smallest coins are kept, as many as fit. A
sample of a rate below the largest kept coin is then there without reading the table again, and so are all rows of a
table that fits whole. What fits decides how often a table is read, never what is computed from it.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.tables.arrow import complete_rows, encode_batch
from gaussmix.tables.encoder import EXACT_ROWS, BlockEncoder, pieces
from gaussmix.tables.sample import SIDES, Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import KeptRows

__all__ = ["KEPT_BYTES", "Keeper"]

KEPT_BYTES = 2**26
"""Of encoded rows that are kept beside the table."""

_Coins = NDArray[np.uint16]


class Keeper:
    """The rows of one reading whose coins are below a limit, which falls when there are too many.

    Parameters
    ----------
    coins : Sample
        Of the release for which rows are kept; its rate is not looked at.
    schema : Schema
    """

    def __init__(self, coins: Sample, schema: Schema) -> None:
        self._coins, self._schema, self._plan = coins, schema, BlockEncoder.of(schema)
        self._most = KEPT_BYTES // (8 * schema.n_columns)
        self._limit, self._rows, self._lock = SIDES, 0, threading.Lock()
        self._blocks: list[tuple[_Coins, Floats]] = []

    def offer(self, start: int, batch: pa.RecordBatch) -> None:
        """Keep what is to be kept of a batch whose first row is at position ``start``; from any thread."""
        coins = self._coins.coins(start, start + batch.num_rows)
        chosen = np.flatnonzero(coins < self._limit)
        if not len(chosen):
            return
        if len(chosen) < batch.num_rows:
            batch, coins = batch.take(pa.array(chosen)), coins[chosen]
        complete = complete_rows(batch, self._schema)
        if complete is not None:
            batch, coins = batch.filter(complete), coins[complete.to_numpy(zero_copy_only=False)]
        for piece in pieces(batch.num_rows, EXACT_ROWS):
            rows = encode_batch(batch.slice(piece.start, piece.stop - piece.start), self._schema, self._plan)
            self._plan.finish(rows)
            self._keep(coins[piece], np.ascontiguousarray(rows))

    def _keep(self, coins: _Coins, rows: Floats) -> None:
        with self._lock:
            self._blocks.append((coins, rows))
            self._rows += len(rows)
            while self._rows > self._most:
                self._limit //= 2
                self._blocks = _below(self._limit, self._blocks)
                self._rows = sum(len(kept) for _, kept in self._blocks)

    def find(self, sample: Sample | None) -> KeptRows | None:
        """The rows of a sample, or all rows; None where they were not kept."""
        if sample is None:
            return KeptRows([rows for _, rows in self._blocks]) if self._limit == SIDES else None
        if sample.key != self._coins.key or sample.sides > self._limit:
            return None
        return KeptRows([rows for _, rows in _below(sample.sides, self._blocks)])


def _below(limit: int, blocks: list[tuple[_Coins, Floats]]) -> list[tuple[_Coins, Floats]]:
    found = [(coins, rows, coins < limit) for coins, rows in blocks]
    return [(coins[below], rows[below]) for coins, rows, below in found if below.any()]
