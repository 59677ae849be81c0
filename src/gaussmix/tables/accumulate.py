"""Exact, sensitive sums of products over encoded rows, in parallel and in bounded memory.

Encoded rows (:mod:`gaussmix.tables.encoder`) have norm at most 1 and entries that are multiples of 2⁻²⁰. The Gram
matrix G = Σ r rᵀ is then an exact integer in units of 2⁻⁴⁰:

- In a block of 2¹² rows, ``sum |r_i r_j| <= 2**12``, that is 2⁵² units. Every partial sum of every order of summation,
  fused or not, is an integer below 2⁵³, which float64 represents: BLAS makes no rounding error.
- Blocks are added in two 64-bit integers, ``high * 2**40 + low`` with ``0 <= low < 2**40``: a unique form, good for
  2⁶² rows.

So block size, memory order, number of threads, order of merging and processor leave no trace in the bits, and removing
a row changes G by exactly r rᵀ.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy.linalg.blas import dsyrk

from gaussmix._types import Floats, Integers, Rows
from gaussmix.errors import ArgumentError
from gaussmix.tables.arrow import encoded_blocks
from gaussmix.tables.blas import blas_threads, one_blas_thread
from gaussmix.tables.encoder import EXACT_ROWS, ArrayEncoder, BlockEncoder, checked_arrays, pieces, row_major
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = ["LIMB_BITS", "ExactSums", "carried", "sum_arrays", "sum_batches"]

LIMB_BITS = 2 * FRACTION_BITS
_FLUSHES_PER_CARRY = 2**10  # 2**10 sums below 2**52 stay below 2**63
_WORTH_THREADS = 4  # pieces of EXACT_ROWS rows
_ALL = (slice(None), slice(None))


@dataclass(frozen=True, repr=False)
class ExactSums:
    """**Sensitive**: G as ``high + low · 2⁻⁴⁰``, 0 ≤ low < 2⁴⁰, and the number of rows."""

    high: Integers
    low: Integers
    n: int


def carried(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """The unique form of ``high * 2**40 + low`` with 0 <= low < 2**40."""
    return high + (low >> LIMB_BITS), low & (2**LIMB_BITS - 1)


def sum_arrays(
    blocks: Iterable[tuple[ArrayLike, ArrayLike | None]], schema: Schema, *, threads: int | None = None
) -> ExactSums:
    """Sum over blocks (X, Y) of rows, for a schema of one vector and numbers (`encoder.ArrayEncoder`)."""
    plan = ArrayEncoder(schema)
    with _Team(lambda: _ArrayWorker(plan), threads) as team:
        for X, Y in blocks:
            _share_out(team, *checked_arrays(schema, X, Y))
        return team.sums()


def _share_out(team: _Team[_ArrayWorker], X: Rows, Y: Rows) -> None:
    """Let the workers draw pieces of one block until there are none; threads start once it is worth it."""
    waiting: queue.SimpleQueue[slice | None] = queue.SimpleQueue()
    cuts = pieces(len(X), EXACT_ROWS)
    workers = team.workers if len(cuts) >= _WORTH_THREADS and team.start() else team.workers[:1]
    for piece in cuts + [None] * len(workers):
        waiting.put(piece)
    team.run(lambda worker: worker.drain(waiting, X, Y), workers)


def sum_batches(stream: Iterator[pa.RecordBatch], schema: Schema, *, threads: int | None = None) -> ExactSums:
    """Sum over the batches of a table, every thread encoding and adding up whole batches of its own."""
    plan = BlockEncoder.of(schema)
    shared = _Shared(stream)

    def add_up(worker: _BlockWorker) -> None:
        try:
            for block in encoded_blocks(shared, schema, plan):
                worker.add(block)
        except BaseException:
            shared.close()  # the others have no reason to go on
            raise

    with _Team(lambda: _BlockWorker(plan, schema.n_columns), threads) as team:
        team.start()
        team.run(add_up, team.workers)
        return team.sums()


class _Shared:
    """An iterator that several threads draw from."""

    def __init__(self, items: Iterator[pa.RecordBatch]) -> None:
        self._items, self._lock, self._open = items, threading.Lock(), True

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if not self._open:
                raise StopIteration
            return next(self._items)

    def close(self) -> None:
        self._open = False


class _Limbs:
    """One thread's sums as integers, and how many rows it has in floats that were not added to them yet."""

    def __init__(self, m: int) -> None:
        self.high, self.low = (np.zeros((m, m), dtype=np.int64, order="F") for _ in range(2))
        self.rows, self.pending_rows, self.flushes = 0, 0, 0

    def fits(self, rows: int) -> bool:
        """Whether so many rows more can be held in floats without rounding."""
        return self.pending_rows + rows <= EXACT_ROWS

    def count(self, rows: int) -> None:
        self.pending_rows += rows
        self.rows += rows

    def take(self, *parts: tuple[Floats, tuple[slice, slice]]) -> None:
        """Add the floats, each at its place, and set them to zero."""
        for floats, place in parts:
            if not np.isfinite(floats).all():  # 4096 rows of norm at most 1 cannot do that
                raise RuntimeError("Encoded rows are not finite: a fault of the encoder. Nothing was released.")
            self.low[place] += floats.astype(np.int64)
            floats.fill(0)
        self.pending_rows = 0
        self.flushes += 1
        if self.flushes % _FLUSHES_PER_CARRY == 0:
            self.high, self.low = carried(self.high, self.low)


class _Worker(Protocol):
    """One thread's share of a pass. Only the upper triangle of what it sums counts."""

    alone: bool
    limbs: _Limbs

    def flush(self) -> None:
        """Move what is pending in floats to the integers."""


class _BlockWorker:
    """Adds up blocks of whole rows, which are finished where they are."""

    def __init__(self, plan: BlockEncoder, m: int) -> None:
        self.plan, self.limbs, self.alone = plan, _Limbs(m), True
        self.pending, self.product = (np.zeros((m, m), order="F") for _ in range(2))

    def add(self, block: Floats) -> None:
        """Add any number of rows that are clipped and scaled but not yet rounded."""
        for piece in pieces(len(block), EXACT_ROWS):
            rows = block[piece]
            if not self.limbs.fits(len(rows)):
                self.flush()
            self.plan.finish(rows)
            self.pending += np.matmul(rows.T, rows, out=self.product)
            self.limbs.count(len(rows))

    def flush(self) -> None:
        self.limbs.take((self.pending, _ALL))


class _ArrayWorker:
    """Encodes and adds up pieces of arrays, one cache-sized block after the other."""

    def __init__(self, plan: ArrayEncoder) -> None:
        d, m = plan.d, plan.m
        self.plan, self.limbs, self.alone = plan, _Limbs(m), True
        self.features, self.others = np.empty(plan.block_rows * d), np.empty((m - d, EXACT_ROWS))
        self.left, self.product = np.zeros((d, d), order="F"), np.empty((d, d), order="F")
        self.right = np.zeros((m, m - d), order="F")

    def drain(self, waiting: queue.SimpleQueue[slice | None], X: Rows, Y: Rows) -> None:
        """Add the rows of one piece after the other until the queue says None."""
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, NaN is an error
            while (piece := waiting.get()) is not None:
                self._add(X[piece], Y[piece])

    def _add(self, X: Rows, Y: Rows) -> None:
        """Add up to EXACT_ROWS rows."""
        if not self.limbs.fits(len(X)):
            self.flush()
        others = self.others[:, : len(X)]
        self.plan.map_others(Y, others)
        for piece in pieces(len(X), self.plan.block_rows):
            self._add_block(X[piece], others[:, piece])
        self.limbs.count(len(X))

    def _add_block(self, X: Rows, others: Floats) -> None:
        n, d = X.shape
        features = self.features[: n * d].reshape((n, d), order="C" if row_major(X) else "F")
        self.plan.encode(X, features, others)
        self._add_left(features)
        self.right[:d] += features.T @ others.T
        self.right[d:] += others @ others.T

    def _add_left(self, features: Floats) -> None:
        """Add featuresᵀ features to ``left``; dsyrk is faster, but holds Python's lock: for one thread only."""
        if not self.alone:
            self.left += np.matmul(features.T, features, out=self.product)
        elif features.flags.c_contiguous:
            self.left = dsyrk(1.0, features.T, beta=1.0, c=self.left, overwrite_c=1)
        else:
            self.left = dsyrk(1.0, features, trans=1, beta=1.0, c=self.left, overwrite_c=1)

    def flush(self) -> None:
        d = self.plan.d
        self.limbs.take((self.left, (slice(d), slice(d))), (self.right, (slice(None), slice(d, None))))


W = TypeVar("W", bound=_Worker)


class _Team(Generic[W]):
    """Workers that share one pass over a table. Threads start when it is worth it."""

    def __init__(self, make: Callable[[], W], threads: int | None) -> None:
        if threads is not None and threads < 1:
            raise ArgumentError(f"threads must be at least 1, got {threads!r}.")
        self.make, self.threads = make, threads
        self.workers = [make()]
        self.pool: ThreadPoolExecutor | None = None
        self.stack = ExitStack()

    def __enter__(self) -> _Team[W]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def start(self) -> bool:
        """One worker per BLAS thread, and one BLAS thread per worker: encoding then runs in parallel too.

        Returns whether there are several.
        """
        threads = 1 if self.pool is not None else blas_threads() if self.threads is None else self.threads
        if threads > 1:
            self.stack.enter_context(one_blas_thread())
            self.pool = self.stack.enter_context(ThreadPoolExecutor(threads))
            self.workers += [self.make() for _ in range(threads - 1)]
            for worker in self.workers:
                worker.alone = False
        return self.pool is not None

    def run(self, work: Callable[[W], None], workers: list[W]) -> None:
        """Let the workers do their parts, and wait for all of them."""
        if self.pool is None or len(workers) == 1:
            work(workers[0])
        else:
            for done in [self.pool.submit(work, worker) for worker in workers]:
                done.result()

    def sums(self) -> ExactSums:
        for worker in self.workers:
            worker.flush()
        parts = [carried(worker.limbs.high, worker.limbs.low) for worker in self.workers]
        high, low = (np.triu(limb) + np.triu(limb, 1).T for limb in carried(*np.sum(parts, axis=0)))
        return ExactSums(high, low, sum(worker.limbs.rows for worker in self.workers))
