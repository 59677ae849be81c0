"""Rows that are kept from one reading of a table for later passes, in bounded memory; **sensitive**.

Every row has a coin (:mod:`gaussmix.tables.sample`), and the rows with the smallest coins are kept, as many as fit. A
sample of a rate below the largest kept coin is then there without reading the table again, and so are all rows of a
table that fits whole. What fits decides how often a table is read, never what is computed from it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.tables.arrow import complete_rows
from gaussmix.tables.encoder import EXACT_ROWS, pieces
from gaussmix.tables.sample import SIDES, Sample
from gaussmix.tables.schema import Schema

__all__ = ["KEPT_BYTES", "Coins", "Keeper", "KeptRows"]

KEPT_BYTES = 2**26
"""Of encoded rows that are kept beside the table."""

Coins = NDArray[np.uint16]


@dataclass(frozen=True, repr=False)
class KeptRows:
    """**Sensitive**: blocks of whole rows, in any order."""

    blocks: list[Floats]


class Keeper:
    """The rows of one reading whose coins are below a limit, which falls when there are too many.

    Parameters
    ----------
    coins : Sample
        Of the release for which rows are kept; its rate is not looked at.
    schema : Schema
    """

    def __init__(self, coins: Sample, schema: Schema) -> None:
        self._coins, self._schema = coins, schema
        self._most = KEPT_BYTES // (8 * schema.n_columns)
        self._limit, self._rows, self._lock = SIDES, 0, threading.Lock()
        self._blocks: list[tuple[Coins, Floats]] = []

    def coins_of(self, start: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Coins]:
        """The rows of a batch that are not dropped, and their coins; the batch's first row is at position ``start``."""
        coins = self._coins.coins(start, start + batch.num_rows)
        complete = complete_rows(batch, self._schema)
        if complete is None:
            return batch, coins
        return batch.filter(complete), coins[complete.to_numpy(zero_copy_only=False)]

    def keep(self, coins: Coins, rows: Floats) -> None:
        """Keep what is to be kept of whole rows; from any thread."""
        for piece in pieces(len(rows), EXACT_ROWS):
            chosen = np.flatnonzero(coins[piece] < self._limit)
            if len(chosen):
                self._add(coins[piece][chosen], np.array(rows[piece][chosen], order="C"))

    def _add(self, coins: Coins, rows: Floats) -> None:
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


def _below(limit: int, blocks: list[tuple[Coins, Floats]]) -> list[tuple[Coins, Floats]]:
    found = [(coins, rows, coins < limit) for coins, rows in blocks]
    return [(coins[below], rows[below]) for coins, rows, below in found if below.any()]
