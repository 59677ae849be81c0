"""Sampling of rows for a pass, by a pseudorandom sampling key per position, and a cache of rows.

A pass that needs few rows may read a Bernoulli sample of them. The sampling key of a row is a pseudo-random function of
its position in the source (ChaCha20 under a secret key), so that batches, threads and the kind of source do not matter,
and readings with the same secret key choose the same rows.

**Privacy.** Take a table D and the same table without the row x. Sampling keys are functions of the secret key and of
positions, never of values. Let every row have *one* position in all readings that share a secret key. Over the random
secret key, rows are chosen independently and at the same rate. Without x, the rows after it move up by one position and
have other sampling keys, but the keys of distinct positions are independent, so the joint distribution of the choice
among the rows other than x is the same in both tables. Couple the two choices: the chosen rows are then equal except
for x. Given the choice, each pass is the mechanism on two tables that differ in at most one row, and the divergence
between two mixtures with the same weights is at most the largest divergence between their components. So sampling costs
no privacy. No account claims amplification by sampling.

The same holds for samples of several rates under one secret key: a row is in all samples whose threshold exceeds its
sampling key, so the choice of a row is a function of its own key.

The argument requires a secret key drawn for one release, a public rate, and one position per row in all readings with
the same secret key. A source without a fixed order uses fresh sampling keys for every reading (`Sample.fresh`);
otherwise a key shared by two rows in two readings would make the distribution of the other rows depend on x. With
ChaCha20 instead of true randomness, the argument holds computationally.

**The cache.** One reading caches as many rows as fit, those with the smallest sampling keys, for later passes. A sample
whose threshold is at most the largest cached key then needs no further reading, and neither does a table that fits into
the cache. The size of the cache affects how often a table is read, not the result.

A source without a fixed order uses fresh sampling keys for every reading, so whether rows are cached decides whether
passes share a sample. There the limit of cached sampling keys is fixed in advance, from noisy counts: a limit that
depended on the exact number of rows would be another choice for a table with one row less.

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
from numpy.typing import NDArray
from randomgen import ChaCha

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.data.encode import EXACT_ROWS, pieces
from gaussmix.errors import ArgumentError

SamplingKeys = NDArray[np.uint16]

KEY_RANGE = 2**16
"""Upper limit of sampling keys, which are half a word of ChaCha."""

CACHE_BYTES = 2**26
"""Maximum size of the cache of encoded rows."""

_ALIGNED = 32  # sampling keys of one block of ChaCha
_CHUNK = 2**20


@dataclass(frozen=True)
class Sample:
    """A Bernoulli sample of rows.

    Attributes
    ----------
    rate : float
        Public rate between 0 and 1, rounded to a positive multiple of 2⁻¹⁶.
    key : bytes
        Secret key of 32 bytes, which determines the positions that are read.
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
        """Return a sample with the same keys at another rate. Samples of smaller rates are subsets of larger ones."""
        return Sample(rate, self.key)

    def part(self, number: int) -> Sample:
        """Return the sampling keys of one partition of a table, whose positions begin at 0."""
        return self._derived(b"part %d" % number)

    def fresh(self, reading: int) -> Sample:
        """Return sampling keys that are used in one reading only."""
        return self._derived(b"reading %d" % reading)

    def _derived(self, purpose: bytes) -> Sample:
        return Sample(self.rate, hashlib.blake2b(purpose, key=self.key, digest_size=32).digest())

    @property
    def threshold(self) -> int:
        """The rate in units of 2⁻¹⁶: rows with smaller sampling keys are in the sample."""
        return round(self.rate * KEY_RANGE)

    def chosen(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether each position from ``start`` to ``stop`` - 1 is in the sample."""
        return np.asarray(self.sampling_keys(start, stop) < self.threshold)

    def sampling_keys(self, start: int, stop: int) -> SamplingKeys:
        """Return a number below 2¹⁶ for each position from ``start`` to ``stop`` - 1. As **secret** as the key."""
        first = start - start % _ALIGNED
        words = -(-(stop - first) // 2)
        stream = ChaCha(key=int.from_bytes(self.key, "little"), counter=first // 2, rounds=20)  # it counts in words
        drawn = np.random.Generator(stream).integers(0, 2**32, size=words, dtype=np.uint32)
        return np.asarray(drawn.astype("<u4", copy=False).view("<u2")[start - first : stop - first])

    def positions(self, n: int) -> Integers:
        """Return the sampled positions among the first n, in order. **Sensitive**, like the sampling keys."""
        found = [start + np.flatnonzero(self.chosen(start, min(start + _CHUNK, n))) for start in range(0, n, _CHUNK)]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])


# ---------------------------------------------------------------------------------------------------------------
# Cache
CachedBlock = tuple[SamplingKeys, NDArray[np.float32]]
"""Sampling keys, and encoded rows: whole numbers of at most 2²⁰, which float32 represents."""


class RowCache:
    """Rows of one reading with sampling keys below a limit. **Sensitive**.

    Parameters
    ----------
    sample : Sample
        A sample of the release, whose secret key later samples have. Its rate is the limit of cached keys if
        ``keys`` are given; otherwise it is not used, and the limit is lowered until the rows fit.
    m : int
        Number of columns.
    keys : Sample, optional
        Sampling keys of this reading only, for sources without a fixed order.
    """

    def __init__(self, sample: Sample, m: int, *, keys: Sample | None = None) -> None:
        self.sample, self.keys = sample, sample if keys is None else keys
        self._most = cached_rows(m) if keys is None else None
        self._limit = KEY_RANGE if keys is None else sample.threshold
        self._rows, self._lock = 0, threading.Lock()
        self.blocks: list[CachedBlock] = []

    def add(self, keys: SamplingKeys, rows: Floats) -> None:
        """Cache the encoded rows whose keys are small enough. Thread-safe."""
        for piece in pieces(len(rows), EXACT_ROWS):
            chosen = np.flatnonzero(keys[piece] < self._limit)
            if not len(chosen):
                continue
            cached = keys[piece][chosen], np.array(rows[piece][chosen], order="C", dtype=np.float32)
            with self._lock:
                self.blocks.append(cached)
                self._rows += len(chosen)
                while self._most is not None and self._rows > self._most:
                    self._limit //= 2
                    self.blocks = _below(self._limit, self.blocks)
                    self._rows = sum(len(block) for _, block in self.blocks)

    def find(self, sample: Sample | None) -> list[NDArray[np.float32]] | None:
        """Return blocks with the rows of a sample, or with all rows; None if they are not cached."""
        if sample is None:
            return [rows for _, rows in self.blocks] if self._limit == KEY_RANGE else None
        if sample.key != self.sample.key or sample.threshold > self._limit:
            return None
        return [rows for _, rows in _below(sample.threshold, self.blocks)]


def cached_rows(m: int) -> int:
    """Return how many rows of m columns fit into the cache."""
    return CACHE_BYTES // (4 * m)


def _below(limit: int, blocks: list[CachedBlock]) -> list[CachedBlock]:
    found = [(keys, rows, keys < limit) for keys, rows in blocks]
    return [(keys[below], rows[below]) for keys, rows, below in found if below.any()]
