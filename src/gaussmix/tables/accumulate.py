"""Passes over the rows of a table: encoded and aggregated, in parallel and in bounded memory.

**Sensitive.** Encoded rows (:mod:`gaussmix.tables.encoder`) have norm at most 1 and entries that are multiples of 2⁻²⁰;
what is aggregated of them is exact (:mod:`gaussmix.tables.tallies`). So block size, memory order, number of threads,
order of merging and processor leave no trace in the bits, and removing a row changes the Gram matrix by exactly r rᵀ.
"""

from __future__ import annotations

import functools
import operator
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from gaussmix._types import Floats, Integers, Rows
from gaussmix.errors import ArgumentError
from gaussmix.tables.arrow import encoded_blocks
from gaussmix.tables.blas import blas_threads, one_blas_thread
from gaussmix.tables.encoder import EXACT_ROWS, ArrayEncoder, BlockEncoder, checked_arrays, pieces, row_major
from gaussmix.tables.exact_sums import LIMB_BITS, ExactSums, carried
from gaussmix.tables.kept import RowCache
from gaussmix.tables.kernels import MOST_ROWS, KernelInput
from gaussmix.tables.sample import Sample, SamplingKeys
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Aggregator, Gram, Query, Summable

__all__ = ["LIMB_BITS", "ExactSums", "aggregate_arrays", "aggregate_batches", "aggregate_rows", "carried", "sum_arrays"]

_WORTH_THREADS = 4  # pieces of EXACT_ROWS rows
_PIECES = 64  # that are enough for any number of threads

A = TypeVar("A", bound=Summable)
W = TypeVar("W")


# ---------------------------------------------------------------------------------------------------------------
# Arrays
def sum_arrays(
    blocks: Iterable[tuple[ArrayLike, ArrayLike | None]], schema: Schema, *, threads: int | None = None
) -> ExactSums:
    """Sum over blocks (X, Y) of rows, for a schema of one vector and numbers (`encoder.ArrayEncoder`)."""
    return aggregate_arrays((checked_arrays(schema, X, Y) for X, Y in blocks), schema, Gram(), threads=threads)


def aggregate_arrays(
    blocks: Iterable[tuple[Rows, Rows]],
    schema: Schema,
    query: Query[A],
    *,
    chosen: Integers | None = None,
    plan: ArrayEncoder | None = None,
    threads: int | None = None,
) -> A:
    """Aggregate blocks of rows as `encoder.checked_arrays` returns them, or chosen positions in each block.

    ``plan`` is the schema's encoder, where several queries share it.
    """
    plan = ArrayEncoder(schema) if plan is None else plan
    with _Team(lambda: _ArrayWorker(plan, query.aggregator(plan.m)), threads) as team:
        for X, Y in blocks:
            _share_out(team, X, Y, chosen)
        return _total(team.workers)


def aggregate_rows(blocks: Sequence[Floats], query: Query[A], m: int, *, threads: int | None = None) -> A:
    """Aggregate blocks of encoded rows."""
    waiting: queue.SimpleQueue[Floats | None] = queue.SimpleQueue()
    with _Team(lambda: _RowWorker(query.aggregator(m)), threads) as team:
        several = len(blocks) >= _WORTH_THREADS and team.start()
        for block in [*blocks, *[None] * len(team.workers)]:
            waiting.put(block)
        team.run(lambda worker: worker.drain(waiting), team.workers if several else team.workers[:1])
        return _total(team.workers)


def _share_out(team: _Team[_ArrayWorker[A]], X: Rows, Y: Rows, chosen: Integers | None) -> None:
    """Let the workers draw pieces of one block until there are none; threads start once it is worth it."""
    waiting: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
    n = len(X) if chosen is None else len(chosen)
    cuts: list[_Piece] = [*pieces(n, team.workers[0].piece_rows(n))]
    if chosen is not None:
        cuts = [chosen[piece] for piece in cuts]
    several = n > (_WORTH_THREADS - 1) * EXACT_ROWS
    workers = team.workers if several and team.start() else team.workers[:1]
    for piece in [*cuts, *[None] * len(workers)]:
        waiting.put(piece)
    team.run(lambda worker: worker.drain(waiting, X, Y), workers)


# ---------------------------------------------------------------------------------------------------------------
# Batches
def aggregate_batches(
    stream: Iterator[pa.RecordBatch],
    schema: Schema,
    query: Query[A],
    *,
    sample: Sample | None = None,
    cache: RowCache | None = None,
    threads: int | None = None,
) -> A:
    """Aggregate the batches of a table, or a sample of their rows, by position in the stream.

    A ``cache`` is offered every row.
    """
    plan = BlockEncoder.of(schema)
    shared = _Shared(stream)

    def work(worker: _BlockWorker[A]) -> None:
        try:
            drawn = _Drawn(shared, sample, cache)
            for block in encoded_blocks(drawn, schema, plan):
                worker.add(block)
                drawn.offer(block)
        except BaseException:
            shared.close()  # the others have no reason to go on
            raise

    with _Team(lambda: _BlockWorker(plan, query.aggregator(schema.n_columns)), threads) as team:
        team.start()
        team.run(work, team.workers)
        return _total(team.workers)


class _Shared:
    """An iterator that several threads draw from: batches, and the position of their first row."""

    def __init__(self, items: Iterator[pa.RecordBatch]) -> None:
        self._items, self._lock, self._open, self._position = items, threading.Lock(), True, 0

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> tuple[int, pa.RecordBatch]:
        with self._lock:
            if not self._open:
                raise StopIteration
            batch, start = next(self._items), self._position
            self._position += batch.num_rows
            return start, batch

    def close(self) -> None:
        self._open = False


class _Drawn:
    """The batches that one thread draws, those of a sample or all; a cache is offered encoded rows with their keys."""

    def __init__(self, shared: _Shared, sample: Sample | None, cache: RowCache | None) -> None:
        self._shared, self._sample, self._cache = shared, sample, cache
        self._keys: SamplingKeys = np.empty(0, dtype=np.uint16)  # of rows of the last batch that are not encoded yet

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for start, batch in self._shared:
            if self._cache is not None:
                complete, self._keys = self._cache.keys_of(start, batch)
                yield complete
            elif self._sample is None:
                yield batch
            else:
                chosen = np.flatnonzero(self._sample.chosen(start, start + batch.num_rows))
                if len(chosen):
                    yield batch.take(pa.array(chosen))

    def offer(self, rows: Floats) -> None:
        """Offer the next rows of the last batch, encoded, to the cache."""
        if self._cache is not None:
            self._cache.add(self._keys[: len(rows)], rows)
            self._keys = self._keys[len(rows) :]


def _total(workers: Iterable[_Worker[A]]) -> A:
    """Add the results of all workers; the order does not matter."""
    return functools.reduce(operator.add, (worker.aggregator.result() for worker in workers))


# ---------------------------------------------------------------------------------------------------------------
# Workers
_Piece = slice | Integers


class _Worker(Protocol[A]):
    """One thread, and its share of the result."""

    aggregator: Aggregator[A]


class _BlockWorker(Generic[A]):
    """Aggregates blocks of encoded rows, which are rounded where they are."""

    def __init__(self, plan: BlockEncoder, aggregator: Aggregator[A]) -> None:
        self.plan, self.aggregator = plan, aggregator

    def add(self, block: Floats) -> None:
        """Add any number of rows that are clipped and scaled but not yet rounded."""
        for piece in pieces(len(block), self.aggregator.block_rows):
            rows = block[piece]
            self.plan.finish(rows)
            self.aggregator.add(rows)


class _RowWorker(Generic[A]):
    """Aggregates encoded rows."""

    def __init__(self, aggregator: Aggregator[A]) -> None:
        self.aggregator = aggregator

    def drain(self, waiting: queue.SimpleQueue[Floats | None]) -> None:
        """Add one block after the other until the queue says None."""
        while (rows := waiting.get()) is not None:
            self.aggregator.add(rows)


class _ArrayWorker(Generic[A]):
    """Encodes pieces of arrays and aggregates them: on the way, or one cache-sized block after the other."""

    def __init__(self, plan: ArrayEncoder, aggregator: Aggregator[A]) -> None:
        self.plan, self.aggregator = plan, aggregator
        self.block_rows = min(plan.block_rows, aggregator.block_rows)
        self.rows = np.empty(self.block_rows * plan.m)

    def piece_rows(self, n: int) -> int:
        """Of a table of n rows that workers share: more where it costs neither cache nor balance."""
        most = EXACT_ROWS if self.aggregator.take is None else MOST_ROWS
        return min(max(n // _PIECES, EXACT_ROWS), most)

    def drain(self, waiting: queue.SimpleQueue[_Piece | None], X: Rows, Y: Rows) -> None:
        """Add the rows of one piece after the other until the queue says None."""
        take, plan = self.aggregator.take, self.plan
        constants = (*plan.constants, plan.intercept)
        whole = KernelInput.of_arrays(X, Y, constants, m=plan.m, norm_limit=plan.norm_limit)
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, NaN is an error
            while (piece := waiting.get()) is not None:
                if take is None or whole is None:
                    self._encode_and_add(X[piece], Y[piece])
                    continue
                whole.select(piece)
                left = take(whole)
                if len(left):
                    self._encode_and_add(X[piece][left], Y[piece][left])

    def _encode_and_add(self, X: Rows, Y: Rows) -> None:
        for piece in pieces(len(X), self.block_rows):
            part, m = X[piece], self.plan.m
            rows = self.rows[: len(part) * m].reshape((len(part), m), order="C" if row_major(X) else "F")
            self.plan.encode_whole(part, Y[piece], rows)
            self.aggregator.add(rows)


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
        return self.pool is not None

    def run(self, work: Callable[[W], None], workers: list[W]) -> None:
        """Let the workers do their parts, and wait for all of them."""
        if self.pool is None or len(workers) == 1:
            work(workers[0])
        else:
            for done in [self.pool.submit(work, worker) for worker in workers]:
                done.result()
