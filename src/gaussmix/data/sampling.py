"""Sampling of rows for a pass, by a pseudorandom sampling key per position, and a cache of rows.

A pass that needs few rows may read a Bernoulli sample of them. The sampling key of a row is a pseudo-random function of
its position in the source (ChaCha20 under a secret key), so that batches, threads and the kind of source do not matter,
and readings with the same secret key choose the same rows.

**Privacy.** Take a table D and the same table without the row x. Sampling keys are functions of the
secret key and of positions alone, never of values. Let every row have *one* position in all readings that share a
secret key. Then, over that key, rows are chosen independently and at the same rate: that rows behind x move up by one
position changes which sampling key is theirs, but distinct positions have independent ones, so the joint distribution
of what is chosen from the rows other than x is the same in both tables. Couple the two: the chosen rows are equal but
for x, which is there or not. Given that, each pass is the mechanism on two tables that differ in one row at most, and
the divergence between two mixtures with the same weights is at most the largest of their parts. So sampling costs
no privacy. No account claims amplification by sampling.

The same holds for samples of several rates under one secret key: a row has one sampling key, and is in all samples
whose threshold is above it, so that what is chosen from a row is a function of one key of its own.

The argument needs a secret key drawn for one release, a public rate, and one position per row in all readings with the
same secret key. A source without a fixed order uses fresh sampling keys for every reading (`Sample.fresh`); otherwise a
key shared by two rows in two readings would make the distribution of the rest depend on x. With ChaCha20 instead of
true randomness all of this holds computationally.

**The cache.** The rows with the smallest sampling keys are cached in one reading for later passes, as many as fit. A
sample whose threshold is at most the largest cached key then needs no further reading, and neither does a table that
fits whole. The size of the cache affects how often a table is read, not the result.

>>> sample = Sample.seeded(0.25, 1)
>>> whole = sample.chosen(0, 1000)
>>> bool((sample.chosen(700, 1000) == whole[700:]).all()), sample
(True, Sample(rate=0.25))
"""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from randomgen import ChaCha

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.data.encode import EXACT_ROWS, complete_rows, pieces
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError

SamplingKeys = NDArray[np.uint16]

KEY_RANGE = 2**16
"""Sampling keys are below this: half a word of ChaCha."""

CACHE_BYTES = 2**26
"""Of encoded rows that are cached beside the table."""

_ALIGNED = 32  # sampling keys of one block of ChaCha
_CHUNK = 2**20


@dataclass(frozen=True)
class Sample:
    """A Bernoulli sample of rows.

    Attributes
    ----------
    rate : float
        Public. Between 0 and 1; rounded to a multiple of 2⁻¹⁶, not to 0.
    key : bytes
        32 bytes, secret: the key determines which positions are read.
    """

    rate: float
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 < check.real(rate=self.rate) <= 1:
            raise ArgumentError(f"rate must lie in (0, 1], got {self.rate!r}.")
        if not isinstance(self.key, bytes) or len(self.key) != 32:
            raise ArgumentError("key must be 32 bytes. Use Sample.secure(rate).")
        object.__setattr__(self, "rate", max(round(self.rate * KEY_RANGE), 1) / KEY_RANGE)

    @classmethod
    def secure(cls, rate: float) -> Sample:
        """Return a sample with a new key from the operating system."""
        return cls(rate, os.urandom(32))

    @classmethod
    def seeded(cls, rate: float, seed: int) -> Sample:
        """Return a reproducible sample, for tests only: the seed determines the sampling keys."""
        return cls(rate, hashlib.sha256(b"seeded %d" % seed).digest())

    def at(self, rate: float) -> Sample:
        """The same sampling keys at another rate: the sample of a smaller rate is a part of that of a larger one."""
        return Sample(rate, self.key)

    def part(self, number: int) -> Sample:
        """The sampling keys of one partition of a table, whose positions begin at 0 again."""
        return self._derived(b"part %d" % number)

    def fresh(self, reading: int) -> Sample:
        """Sampling keys of one reading, which it shares with no other reading."""
        return self._derived(b"reading %d" % reading)

    def _derived(self, purpose: bytes) -> Sample:
        return Sample(self.rate, hashlib.blake2b(purpose, key=self.key, digest_size=32).digest())

    @property
    def threshold(self) -> int:
        """Rows whose sampling key is below this are in the sample: the rate in units of 2⁻¹⁶."""
        return round(self.rate * KEY_RANGE)

    def chosen(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether each of the positions from ``start`` on, before ``stop``, is in the sample."""
        return np.asarray(self.sampling_keys(start, stop) < self.threshold)

    def sampling_keys(self, start: int, stop: int) -> SamplingKeys:
        """A number below 2¹⁶ for each of the positions from ``start`` on, before ``stop``; as **secret** as the key."""
        first = start - start % _ALIGNED
        words = -(-(stop - first) // 2)
        stream = ChaCha(key=int.from_bytes(self.key, "little"), counter=first // 2, rounds=20)  # it counts in words
        drawn = np.random.Generator(stream).integers(0, 2**32, size=words, dtype=np.uint32)
        return np.asarray(drawn.astype("<u4", copy=False).view("<u2")[start - first : stop - first])

    def positions(self, n: int) -> Integers:
        """Those among the first n positions, in order. **Sensitive**, as the sampling keys are."""
        found = [start + np.flatnonzero(self.chosen(start, min(start + _CHUNK, n))) for start in range(0, n, _CHUNK)]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])


# ---------------------------------------------------------------------------------------------------------------
# Cache
class RowCache:
    """**Sensitive**: rows of one reading whose sampling keys are below a limit, which falls when there are too many.

    Sampling keys are those of a sample of the release; its rate is not used.
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
            if not len(chosen):
                continue
            cached = keys[piece][chosen], np.array(rows[piece][chosen], order="C")
            with self._lock:
                self._blocks.append(cached)
                self._rows += len(chosen)
                while self._rows > self._most:
                    self._limit //= 2
                    self._blocks = _below(self._limit, self._blocks)
                    self._rows = sum(len(block) for _, block in self._blocks)

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
