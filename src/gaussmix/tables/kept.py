"""A cache of encoded rows from one reading of a table for later passes, in bounded memory; **sensitive**.

Every row has a sampling key (:mod:`gaussmix.tables.sample`), and the rows with the smallest keys are cached, as many as
fit. A sample whose threshold is not above the largest cached key is then there without reading the table again, and so
are all rows of a table that fits whole. What fits decides how often a table is read, never what is computed from it.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from gaussmix._types import Floats
from gaussmix.tables.arrow import complete_rows
from gaussmix.tables.encoder import EXACT_ROWS, pieces
from gaussmix.tables.sample import KEY_RANGE, Sample, SamplingKeys
from gaussmix.tables.schema import Schema

__all__ = ["CACHE_BYTES", "RowCache"]

CACHE_BYTES = 2**26
"""Of encoded rows that are cached beside the table."""


class RowCache:
    """The rows of one reading whose sampling keys are below a limit, which falls when there are too many.

    Parameters
    ----------
    sample : Sample
        Of the release for which rows are cached; its rate is not used.
    schema : Schema
    """

    def __init__(self, sample: Sample, schema: Schema) -> None:
        self._sample, self._schema = sample, schema
        self._most = CACHE_BYTES // (8 * schema.n_columns)
        self._limit, self._rows, self._lock = KEY_RANGE, 0, threading.Lock()
        self._blocks: list[tuple[SamplingKeys, Floats]] = []

    def keys_of(self, start: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, SamplingKeys]:
        """The rows of a batch that are not dropped, and their keys; the batch's first row is at position ``start``."""
        keys = self._sample.sampling_keys(start, start + batch.num_rows)
        complete = complete_rows(batch, self._schema)
        if complete is None:
            return batch, keys
        return batch.filter(complete), keys[complete.to_numpy(zero_copy_only=False)]

    def add(self, keys: SamplingKeys, rows: Floats) -> None:
        """Cache those of the encoded rows whose keys are small enough; from any thread."""
        for piece in pieces(len(rows), EXACT_ROWS):
            chosen = np.flatnonzero(keys[piece] < self._limit)
            if len(chosen):
                self._add(keys[piece][chosen], np.array(rows[piece][chosen], order="C"))

    def _add(self, keys: SamplingKeys, rows: Floats) -> None:
        with self._lock:
            self._blocks.append((keys, rows))
            self._rows += len(rows)
            while self._rows > self._most:
                self._limit //= 2
                self._blocks = _below(self._limit, self._blocks)
                self._rows = sum(len(cached) for _, cached in self._blocks)

    def find(self, sample: Sample | None) -> list[Floats] | None:
        """Blocks with the rows of a sample, or with all rows; None where they were not cached."""
        if sample is None:
            return [rows for _, rows in self._blocks] if self._limit == KEY_RANGE else None
        if sample.key != self._sample.key or sample.threshold > self._limit:
            return None
        return [rows for _, rows in _below(sample.threshold, self._blocks)]


def _below(limit: int, blocks: list[tuple[SamplingKeys, Floats]]) -> list[tuple[SamplingKeys, Floats]]:
    found = [(keys, rows, keys < limit) for keys, rows in blocks]
    return [(keys[below], rows[below]) for keys, rows, below in found if below.any()]
