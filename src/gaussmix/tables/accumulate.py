"""Passes over the rows of a table: encoded, asked and added up, in parallel and in bounded memory.

**Sensitive.** Encoded rows (:mod:`gaussmix.tables.encoder`) have norm at most 1 and entries that are multiples of 2⁻²⁰;
sums of their products are exact (:mod:`gaussmix.tables.exact_sums`), and so is whatever else is asked of them
(:mod:`gaussmix.tables.tallies`). So block size, memory order, number of threads, order of merging and processor leave
no trace in the bits, and removing a row changes the Gram matrix by exactly r rᵀ.
"""

from __future__ import annotations

import functools
import operator
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from gaussmix._types import Floats, Integers, Rows
from gaussmix.errors import ArgumentError
from gaussmix.tables.arrow import encoded_blocks
from gaussmix.tables.blas import blas_threads, one_blas_thread
from gaussmix.tables.encoder import EXACT_ROWS, ArrayEncoder, BlockEncoder, checked_arrays, pieces, row_major
from gaussmix.tables.exact_sums import LIMB_BITS, ExactSums, carried
from gaussmix.tables.fused_tallies import FusedTally
from gaussmix.tables.kept import Coins, Keeper, KeptRows
from gaussmix.tables.kernels import MOST_ROWS, Source
from gaussmix.tables.sample import Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Gram, Question, Summable, Tally

__all__ = ["LIMB_BITS", "ExactSums", "ask_arrays", "ask_batches", "ask_rows", "carried", "sum_arrays"]

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
    return ask_arrays((checked_arrays(schema, X, Y) for X, Y in blocks), schema, Gram(), threads=threads)


def ask_arrays(
    blocks: Iterable[tuple[Rows, Rows]],
    schema: Schema,
    question: Question[A],
    *,
    chosen: Integers | None = None,
    plan: ArrayEncoder | None = None,
    threads: int | None = None,
) -> A:
    """Answer about blocks of rows as `encoder.checked_arrays` returns them, or about chosen positions in each block.

    ``plan`` is the schema's encoder, where several questions share it.
    """
    plan = ArrayEncoder(schema) if plan is None else plan
    with _Team(lambda: _ArrayWorker(plan, question.tally(plan.m)), threads) as team:
        for X, Y in blocks:
            _share_out(team, X, Y, chosen)
        return _total(worker.answer() for worker in team.workers)


def ask_rows(kept: KeptRows, question: Question[A], m: int, *, threads: int | None = None) -> A:
    """Answer about whole rows that were kept."""
    waiting: queue.SimpleQueue[Floats | None] = queue.SimpleQueue()
    with _Team(lambda: _RowWorker(question.tally(m)), threads) as team:
        several = len(kept.blocks) >= _WORTH_THREADS and team.start()
        for block in [*kept.blocks, *[None] * len(team.workers)]:
            waiting.put(block)
        team.run(lambda worker: worker.drain(waiting), team.workers if several else team.workers[:1])
        return _total(worker.answer() for worker in team.workers)


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
def ask_batches(
    stream: Iterator[pa.RecordBatch],
    schema: Schema,
    question: Question[A],
    *,
    sample: Sample | None = None,
    keeper: Keeper | None = None,
    threads: int | None = None,
) -> A:
    """Answer about the batches of a table, or about a sample of their rows, by position in the stream.

    A ``keeper`` is shown every row.
    """
    plan = BlockEncoder.of(schema)
    shared = _Shared(stream)

    def work(worker: _BlockWorker[A]) -> None:
        try:
            drawn = _Drawn(shared, sample, keeper)
            for block in encoded_blocks(drawn, schema, plan):
                worker.add(block)
                drawn.show(block)
        except BaseException:
            shared.close()  # the others have no reason to go on
            raise

    with _Team(lambda: _BlockWorker(plan, question.tally(schema.n_columns)), threads) as team:
        team.start()
        team.run(work, team.workers)
        return _total(worker.answer() for worker in team.workers)


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
    """The batches that one thread draws, those of a sample or all; a keeper is shown whole rows with their coins."""

    def __init__(self, shared: _Shared, sample: Sample | None, keeper: Keeper | None) -> None:
        self._shared, self._sample, self._keeper = shared, sample, keeper
        self._coins: Coins = np.empty(0, dtype=np.uint16)  # of the rows of the last batch that were not shown yet

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for start, batch in self._shared:
            if self._keeper is not None:
                complete, self._coins = self._keeper.coins_of(start, batch)
                yield complete
            elif self._sample is None:
                yield batch
            else:
                chosen = np.flatnonzero(self._sample.chosen(start, start + batch.num_rows))
                if len(chosen):
                    yield batch.take(pa.array(chosen))

    def show(self, rows: Floats) -> None:
        """The next rows of the last batch, encoded."""
        if self._keeper is not None:
            self._keeper.keep(self._coins[: len(rows)], rows)
            self._coins = self._coins[len(rows) :]


def _total(answers: Iterable[A]) -> A:
    """The order of adding does not matter."""
    return functools.reduce(operator.add, answers)


# ---------------------------------------------------------------------------------------------------------------
# Workers
_Piece = slice | Integers


class _BlockWorker(Generic[A]):
    """Takes in blocks of whole rows, which are finished where they are."""

    def __init__(self, plan: BlockEncoder, tally: Tally[A]) -> None:
        self.plan, self.tally = plan, tally
        self.answer = tally.answer

    def add(self, block: Floats) -> None:
        """Take in any number of rows that are clipped and scaled but not yet rounded."""
        for piece in pieces(len(block), self.tally.block_rows):
            rows = block[piece]
            self.plan.finish(rows)
            self.tally.add(rows)


class _RowWorker(Generic[A]):
    """Takes in whole rows."""

    def __init__(self, tally: Tally[A]) -> None:
        self.tally = tally
        self.answer = tally.answer

    def drain(self, waiting: queue.SimpleQueue[Floats | None]) -> None:
        """Take in one block after the other until the queue says None."""
        while (rows := waiting.get()) is not None:
            self.tally.add(rows)


class _ArrayWorker(Generic[A]):
    """Encodes pieces of arrays, one cache-sized block of whole rows after the other, and takes them in."""

    def __init__(self, plan: ArrayEncoder, tally: Tally[A]) -> None:
        self.plan, self.tally = plan, tally
        self.answer = tally.answer
        self.block_rows = min(plan.block_rows, tally.block_rows)
        self.rows = np.empty(self.block_rows * plan.m)

    def piece_rows(self, n: int) -> int:
        """Of a table of n rows that workers share: more where it costs neither cache nor balance."""
        most = MOST_ROWS if isinstance(self.tally, FusedTally) else EXACT_ROWS
        return min(max(n // _PIECES, EXACT_ROWS), most)

    def drain(self, waiting: queue.SimpleQueue[_Piece | None], X: Rows, Y: Rows) -> None:
        """Take in the rows of one piece after the other until the queue says None."""
        fused = self.tally if isinstance(self.tally, FusedTally) else None
        constants = (*self.plan.constants, self.plan.intercept)
        source = Source.of_arrays(X, Y, constants, m=self.plan.m, norm_limit=self.plan.norm_limit)
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, NaN is an error
            while (drawn := waiting.get()) is not None:
                if fused is None or source is None:
                    self._add_drawn(X[drawn], Y[drawn])
                    continue
                source.draw(drawn)
                left = fused.take(source)
                if len(left):
                    self._add_drawn(X[drawn][left], Y[drawn][left])

    def _add_drawn(self, X: Rows, Y: Rows) -> None:
        for piece in pieces(len(X), self.block_rows):
            self._add(X[piece], Y[piece])

    def _add(self, X: Rows, Y: Rows) -> None:
        n, m = len(X), self.plan.m
        rows = self.rows[: n * m].reshape((n, m), order="C" if row_major(X) else "F")
        self.plan.encode_whole(X, Y, rows)
        self.tally.add(rows)


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
