"""Exact sums over the rows of a table: queries, their aggregators, and passes in parallel and in bounded memory.

**Sensitive.** A query is public, small and the same for all parts of the table. Its `aggregator` adds encoded rows
(:mod:`gaussmix.data.encode`: integers of norm at most 2²⁰), and the results of parts are added. The queries released
with noise are `Gram`, Σ r rᵀ in the declared metric; `MappedGram`, Σ z̄ z̄ᵀ of rows mapped by a transform and clipped;
and `NormCounts`, histograms of ‖z‖² for several transforms.

**Contributions.** With a privacy unit, an aggregator receives whole units and the position where each begins
(``starts``). It clips the sum of squares of a unit, Σ‖r‖², instead of ‖r‖², and counts units instead of rows. Since
‖Σ r rᵀ‖_F ≤ Σ‖r‖² (docs/privacy.md), this bounds the sensitivity to one unit.

**Exact.** In a block of 2¹² rows, ``sum |r_i r_j| <= 2**52``: every partial sum of every order, fused or not, is an
integer below 2⁵³, which float64 represents, so BLAS makes no rounding error. Blocks are added in two 64-bit integers,
``high * 2**40 + low`` with ``0 <= low < 2**40``: a unique form, good for 2⁶² rows. Products with a transform are exact
integers, scaling and rounding are elementwise, and norms are exact sums of squares of integers
(:mod:`gaussmix.data.transforms`). So the bits do not depend on block size, memory order, number of threads, order of
merging or processor; compiled functions (:mod:`gaussmix.data.kernels`) and numpy compute the same ones, and removing a
row changes the Gram matrix by exactly r rᵀ.

**Gradients** of a logistic likelihood are clipped per row (`ClippedGradient`). With margin s = y·(θ·r), y = ±1 the sign
of a row's label, and q = 1/(1 + eˢ), the probability of the other class, a row has the gradient y q z in the metric z =
T r and the weight q(1 - q) in the Hessian. Every row comes out the same, bit for bit, wherever it stands
(:mod:`gaussmix.data.transforms`):

- T r and θ·r are one exact product of integers; θ is the last row of the transform.
- eˢ is a fixed polynomial and a power of two, computed by single additions, multiplications and divisions of float64,
  which IEEE 754 fixes. A library's exponential may differ by its place in an array: vectorised loops and their
  remainders are different code.
- Gradients are rounded to whole numbers, 2⁻²⁰ of the clip, and no longer than that after rounding, in integers; weights
  are whole numbers of at most 2²⁰ units of ¼.

A row without a label, such as a row of zeros, adds nothing.
"""

from __future__ import annotations

import functools
import math
import operator
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

from gaussmix._types import Floats, Integers, Rows
from gaussmix.data import kernels
from gaussmix.data.encode import (
    EXACT_ROWS,
    ArrayEncoder,
    BlockEncoder,
    checked_arrays,
    encoded_blocks,
    pieces,
    row_major,
    squared_norms_of,
)
from gaussmix.data.sampling import RowCache, Sample, SamplingKeys
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.transforms import ROW_UNIT, BinCounter, BinCounts, Bins, Transform, clip_norms, to_units
from gaussmix.errors import ArgumentError

LIMB_BITS = 2 * FRACTION_BITS
FLUSHES_PER_CARRY = 2**10
"""Sums of at most 2**52 that can be added to a low limb: they stay below 2**63."""

_BLOCK_BYTES = 2**20  # smaller blocks cost more in calls than larger ones in cache misses
_LEAST_BLOCK_ROWS = 64
_WORTH_THREADS = 4  # pieces of EXACT_ROWS rows
_PIECES = 64  # that are enough for any number of threads


# ---------------------------------------------------------------------------------------------------------------
# Exact integers
@dataclass(frozen=True, repr=False)
class ExactSums:
    """**Sensitive**: G as ``high + low · 2⁻⁴⁰``, 0 ≤ low < 2⁴⁰, and the number of rows."""

    high: Integers
    low: Integers
    n: int

    def __add__(self, other: ExactSums) -> ExactSums:
        high, low = carried(self.high + other.high, self.low + other.low)
        return ExactSums(high, low, self.n + other.n)


def carried(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """The unique form of ``high * 2**40 + low`` with 0 <= low < 2**40."""
    return high + (low >> LIMB_BITS), low & (2**LIMB_BITS - 1)


def symmetric(high: Integers, low: Integers, n: int) -> ExactSums:
    """Sums of n rows whose upper triangle is known."""
    high, low = (np.triu(limb) + np.triu(limb, 1).T for limb in carried(high, low))
    return ExactSums(high, low, n)


# ---------------------------------------------------------------------------------------------------------------
# Queries
class Summable(Protocol):
    """The result of a query on a part of a table."""

    def __add__(self, other: Self, /) -> Self: ...


A = TypeVar("A", bound=Summable)
A_co = TypeVar("A_co", bound=Summable, covariant=True)
Q = TypeVar("Q")

Take = Callable[[kernels.KernelInput], Integers]
"""Adds rows by compiled functions; returns the positions of those that are to be added otherwise."""


class Aggregator(Protocol[A_co]):
    """One thread's share of a query."""

    block_rows: int
    """Rows that are best added at a time."""

    @property
    def take(self) -> Take | None:
        """The compiled function for rows that are encoded on the way; None where none serves."""

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add any number of encoded rows, shape (n, m).

        With ``starts`` the rows are those of whole privacy units, each beginning at one of these positions; rows may be
        overwritten.
        """

    def result(self) -> A_co:
        """Return the sum over all rows that were added."""


class Query(Protocol[A_co]):
    """What is asked of every row, or of every privacy unit. Public."""

    def aggregator(self, m: int) -> Aggregator[A_co]:
        """For rows of m columns."""


# ---------------------------------------------------------------------------------------------------------------
# Gram matrices
@dataclass(frozen=True)
class Gram:
    """Σ r rᵀ in units of 2⁻⁴⁰.

    Attributes
    ----------
    max_contributions : int
        j: the squares of a privacy unit's rows are scaled to at most j·2⁴⁰, so that its part of the sum has a Frobenius
        norm of at most j. Single rows have squares of at most 2⁴⁰ and are added as they are.
    """

    max_contributions: int = 1

    def aggregator(self, m: int) -> Aggregator[ExactSums]:
        """For rows of m columns."""
        return GramAggregator(m, self.max_contributions)


class GramAggregator:
    """Sums in two integers, high · 2⁴⁰ + low, and those of at most 2¹² rows in floats."""

    block_rows = EXACT_ROWS

    def __init__(self, m: int, max_contributions: int = 1) -> None:
        self.m, self.n, self.flushes, self.pending_rows = m, 0, 0, 0
        self.limit = max_contributions * ROW_UNIT**2
        self.compiled = kernels.serves(m)
        width = kernels.padded(m) if self.compiled else m
        self.high, self.low = (np.zeros((width, width), dtype=np.int64) for _ in range(2))
        self.pending = kernels.zeros(width, width)
        self.scratch = kernels.Scratch(m)

    @property
    def take(self) -> Take | None:
        """Compiled functions: no whole row is left out."""
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add any number of encoded rows."""
        if starts is not None:
            clip_norms(rows, self.limit, starts)
        if self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                self._take(kernels.KernelInput.of_rows(rows[piece]))
        else:
            for piece in pieces(len(rows), EXACT_ROWS):
                self._multiply(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        refuse_longer(kernels.gram(rows, self.low_for(rows.n), self.pending, self.scratch))
        return self.counted(rows)

    def low_for(self, rows: int) -> Integers:
        """Low limbs to which the products of so many rows can be added: they stay below 2⁶³."""
        flushes = -(-rows // EXACT_ROWS)
        self.flushes += flushes
        if self.flushes > FLUSHES_PER_CARRY:
            self.high, self.low = carried(self.high, self.low)
            self.flushes = flushes
        return self.low

    def counted(self, rows: kernels.KernelInput) -> Integers:
        """Count the rows that were added; return the positions of those that were not."""
        left = rows.left_out()
        self.n += rows.n - len(left)
        return left

    def _multiply(self, rows: Floats) -> None:
        if self.pending_rows + len(rows) > EXACT_ROWS:
            self._flush()
        # Integers of at most 2²⁰ squared, at most 2¹² of them: below 2⁵³, where float64 adds without rounding.
        self.pending += rows.T @ rows
        self.pending_rows += len(rows)
        self.n += len(rows)

    def _flush(self) -> None:
        if not np.isfinite(self.pending).all():  # 4096 rows of norm at most 2²⁰ cannot do that
            raise RuntimeError("Encoded rows are not finite. This is a bug in gaussmix; nothing was released.")
        self.low_for(self.pending_rows)[...] += self.pending.astype(np.int64)
        self.pending.fill(0)
        self.pending_rows = 0

    def result(self) -> ExactSums:
        """Return the sum over all rows that were added."""
        self._flush()
        return symmetric(self.high[: self.m, : self.m], self.low[: self.m, : self.m], self.n)


def refuse_longer(squares: Floats) -> None:
    """Check that no row that was added is longer than 2²⁰: the sensitivity rests on it."""
    if not (squares <= ROW_UNIT**2).all():
        raise RuntimeError("An encoded row exceeds its norm bound. This is a bug in gaussmix; nothing was released.")


@dataclass(frozen=True)
class MappedGram:
    """Σ z̄ z̄ᵀ in units of 2⁻⁴⁰·clip, z = T r clipped to ‖z̄‖² ≤ clip: the sensitivity is one, exactly.

    All rows of a privacy unit are multiplied by one factor, so that Σ‖z̄‖² ≤ clip over the unit.
    """

    transform: Transform
    clip: float

    def __post_init__(self) -> None:
        to_units(self.transform, self.clip)

    def aggregator(self, m: int) -> Aggregator[ExactSums]:
        """For rows of m columns."""
        _check_width(self.transform, m)
        return _MappedAggregator(self.transform, self.clip)


class _MappedAggregator:
    def __init__(self, transform: Transform, clip: float) -> None:
        k, m = transform.integers.shape
        self.compiled = kernels.serves(max(k, m))
        self.block_rows = EXACT_ROWS if self.compiled else block_rows(max(k, m))
        self.transform, self.factors, self.gram = transform, to_units(transform, clip), GramAggregator(k)
        self.z = _Buffer()
        if self.compiled:
            self.scratch, self.map = kernels.Scratch(m), kernels.Map(transform)
            self.padded_factors = self.map.factors(self.factors)

    @property
    def take(self) -> Take | None:
        """Compiled functions: rows that are not finite, or far beyond the clip, are left out."""
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:
            self._add(rows, starts)
        elif self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                far = self._take(kernels.KernelInput.of_rows(rows[piece]))
                if len(far):
                    self._add(rows[piece][far])
        else:
            for piece in pieces(len(rows), self.block_rows):
                self._add(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        gram, arrays = self.gram, (self.scratch, self.gram.scratch)
        low = gram.low_for(rows.n)
        refuse_longer(kernels.mapped(rows, self.map, self.padded_factors, low, gram.pending, *arrays))
        return gram.counted(rows)

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        z = self.transform.product(rows, out=self.z.array(len(rows), len(self.factors)))  # exact
        np.multiply(z, self.factors, out=z)
        np.trunc(z, out=z)
        clip_norms(z, ROW_UNIT**2, starts)
        self.gram.add(z)

    def result(self) -> ExactSums:
        return self.gram.result()


# ---------------------------------------------------------------------------------------------------------------
# Histograms
@dataclass(frozen=True)
class NormCounts:
    """How many rows have ‖z‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞), for every transform and its edges.

    Of privacy units with several rows: how many units, by Σ‖z‖² over the unit.

    Transforms that differ only in their scales share the product with their integers. A row or unit that is mapped to
    zero is in no bin, so that it does not differ from an absent one.
    """

    transforms: tuple[Transform, ...]
    edges: tuple[Floats, ...]

    @classmethod
    def of(cls, transforms: Sequence[Transform], edges: Sequence[Floats]) -> NormCounts:
        """One array of edges for every transform."""
        if not transforms or len(transforms) != len(edges):
            raise ArgumentError("counts requires at least one transform, and edges for each.")
        query = cls(tuple(transforms), tuple(edges))
        for transform, edge in zip(transforms, edges, strict=True):
            Bins.of(transform, edge)
        return query

    def aggregator(self, m: int) -> Aggregator[BinCounts]:
        """For rows of m columns."""
        for transform in self.transforms:
            _check_width(transform, m)
        return _CountAggregator(self)


class _CountAggregator:
    def __init__(self, query: NormCounts) -> None:
        first, *others = query.transforms
        k, m = first.integers.shape
        self.transforms, self.units = query.transforms, 0
        self.bins = [Bins.of(*pair) for pair in zip(query.transforms, query.edges, strict=True)]
        self.counters = [BinCounter(bins) for bins in self.bins]
        self.product, self.scaled = _Buffer(), _Buffer()
        self.compiled = all(map(first.same_integers, others)) and kernels.serves(max(k, m))
        widest = max(m, *(len(transform.integers) for transform in query.transforms))
        self.block_rows = EXACT_ROWS if self.compiled else block_rows(widest)
        if self.compiled:
            self.scratch, self.products, self.map = kernels.Scratch(m), kernels.Scratch(k), kernels.Map(first)
            self.padded_factors = self.map.factors(*(bins.factors for bins in self.bins))

    @property
    def take(self) -> Take | None:
        return self._take if self.compiled else None

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:
            self._add(rows, starts)
        elif self.compiled:
            for piece in pieces(len(rows), kernels.MOST_ROWS):
                self._take(kernels.KernelInput.of_rows(rows[piece]))
        else:
            for piece in pieces(len(rows), self.block_rows):
                self._add(rows[piece])

    def _take(self, rows: kernels.KernelInput) -> Integers:
        norms, zeros = kernels.norms(rows, self.map, self.padded_factors, self.scratch, self.products)
        left = rows.left_out()
        for counter, squares in zip(self.counters, norms, strict=True):
            counter.add(np.delete(squares, left) if len(left) else squares, zeros)
        self.units += rows.n - len(left)
        return left

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        transform, product = None, np.empty(0)
        for other, bins, counter in zip(self.transforms, self.bins, self.counters, strict=True):
            shape = len(rows), len(other.integers)
            if transform is None or not transform.same_integers(other):
                transform, product = other, other.product(rows, out=self.product.array(*shape))  # exact
            scaled = np.multiply(product, bins.factors, out=self.scaled.array(*shape))
            np.trunc(scaled, out=scaled)
            with np.errstate(over="ignore"):
                totals = squared_norms_of(scaled, starts)
            counter.add(totals, 0 if totals.all() else _mapped_to_zero(product, starts))
        self.units += len(rows) if starts is None else len(starts)

    def result(self) -> BinCounts:
        return BinCounts([counter.counts() for counter in self.counters], self.units)


def _mapped_to_zero(product: Floats, starts: Integers | None) -> int:
    """Return how many rows or units are zero before rounding."""
    some = product.any(axis=1)
    return int(np.count_nonzero(~(some if starts is None else np.logical_or.reduceat(some, starts))))


class _Buffer:
    """Memory that serves one block after the other: fresh memory would cost more than the arithmetic."""

    def __init__(self) -> None:
        self.entries = np.empty(0)

    def array(self, n: int, k: int) -> Floats:
        """Return an array (n, k) of any content, to be used before the next one is asked for."""
        if self.entries.size < n * k:
            self.entries = np.empty(n * k)
        return self.entries[: n * k].reshape(n, k)


def block_rows(columns: int) -> int:
    """Rows whose intermediate results stay in the cache; at most as many as can be added without rounding."""
    return min(max(_BLOCK_BYTES // (8 * columns), _LEAST_BLOCK_ROWS), EXACT_ROWS)


def _check_width(transform: Transform, m: int) -> None:
    if transform.integers.shape[1] != m:
        raise ArgumentError(
            f"The transform must have {m} columns, as the schema has, got {transform.integers.shape[1]}."
        )


# ---------------------------------------------------------------------------------------------------------------
# Passes
def sum_arrays(
    blocks: Iterable[tuple[ArrayLike, ArrayLike | None]], schema: Schema, *, threads: int | None = None
) -> ExactSums:
    """Sum r rᵀ over blocks (X, Y) of rows, for a schema of one vector and numbers (`encoder.ArrayEncoder`)."""
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
    with _Team(query, plan.m, threads) as team:
        for X, Y in blocks:
            n = len(X) if chosen is None else len(chosen)
            most = EXACT_ROWS if team.aggregators[0].take is None else kernels.MOST_ROWS
            cuts: list[_Piece] = [*pieces(n, min(max(n // _PIECES, EXACT_ROWS), most))]
            if chosen is not None:
                cuts = [chosen[piece] for piece in cuts]
            work = functools.partial(_add_arrays, waiting=_queue_of(cuts), X=X, Y=Y, plan=plan)
            team.run(work, several=n > (_WORTH_THREADS - 1) * EXACT_ROWS)
        return team.result()


def aggregate_rows(blocks: Sequence[Floats], query: Query[A], m: int, *, threads: int | None = None) -> A:
    """Aggregate blocks of encoded rows."""
    waiting = _queue_of(blocks)

    def work(aggregator: Aggregator[A]) -> None:
        for rows in _drained(waiting):
            aggregator.add(rows)

    with _Team(query, m, threads) as team:
        team.run(work, several=len(blocks) >= _WORTH_THREADS)
        return team.result()


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

    def work(aggregator: Aggregator[A]) -> None:
        try:
            selected = _Selected(shared, sample, cache)
            for block in encoded_blocks(selected, schema, plan):
                for piece in pieces(len(block), aggregator.block_rows):
                    plan.finish(block[piece])
                    aggregator.add(block[piece])
                selected.offer(block)
        except BaseException:
            shared.close()  # the other threads have no reason to go on
            raise

    with _Team(query, schema.n_columns, threads) as team:
        team.run(work, several=True)
        return team.result()


_Piece = slice | Integers


def _add_arrays(
    aggregator: Aggregator[A], *, waiting: queue.SimpleQueue[_Piece], X: Rows, Y: Rows, plan: ArrayEncoder
) -> None:
    """Encode and add one piece of the arrays after the other until none is waiting."""
    take, rows = aggregator.take, None
    if take is not None:
        constants = (*plan.constants, plan.intercept)
        rows = kernels.KernelInput.of_arrays(X, Y, constants, m=plan.m, norm_limit=plan.norm_limit)
    with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, NaN is an error
        for piece in _drained(waiting):
            if take is None or rows is None:
                _encode_and_add(aggregator, X[piece], Y[piece], plan)
                continue
            rows.select(piece)
            left = take(rows)
            if len(left):
                _encode_and_add(aggregator, X[piece][left], Y[piece][left], plan)


def _encode_and_add(aggregator: Aggregator[A], X: Rows, Y: Rows, plan: ArrayEncoder) -> None:
    """Encode and add rows of arrays by numpy, one cache-sized block after the other."""
    order: Literal["C", "F"] = "C" if row_major(X) else "F"
    for piece in pieces(len(X), min(plan.block_rows, aggregator.block_rows)):
        rows = np.empty((piece.stop - piece.start, plan.m), order=order)
        plan.encode_whole(X[piece], Y[piece], rows)
        aggregator.add(rows)


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


class _Selected:
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


# ---------------------------------------------------------------------------------------------------------------
# Threads
def _queue_of(items: Iterable[Q]) -> queue.SimpleQueue[Q]:
    waiting: queue.SimpleQueue[Q] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    return waiting


def _drained(waiting: queue.SimpleQueue[Q]) -> Iterator[Q]:
    """Yield what is waiting, in any number of threads, until nothing is."""
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


class _Team(Generic[A]):
    """One aggregator for each thread that shares a pass over a table. Threads start when it is worth it."""

    def __init__(self, query: Query[A], m: int, threads: int | None) -> None:
        if threads is not None and threads < 1:
            raise ArgumentError(f"threads must be at least 1, got {threads!r}.")
        self.query, self.m, self.threads = query, m, threads
        self.aggregators = [query.aggregator(m)]
        self.pool: ThreadPoolExecutor | None = None
        self.stack = ExitStack()

    def __enter__(self) -> _Team[A]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def start(self) -> None:
        """Start one thread per BLAS thread, with one BLAS thread each: encoding then runs in parallel too."""
        threads = 1 if self.pool is not None else blas_threads() if self.threads is None else self.threads
        if threads > 1:
            self.stack.enter_context(one_blas_thread())
            self.pool = self.stack.enter_context(ThreadPoolExecutor(threads))
            self.aggregators += [self.query.aggregator(self.m) for _ in range(threads - 1)]

    def run(self, work: Callable[[Aggregator[A]], None], *, several: bool) -> None:
        """Let one aggregator, or several, do their parts, and wait for all of them."""
        if several:
            self.start()
        if not several or self.pool is None:
            work(self.aggregators[0])
            return
        for done in [self.pool.submit(work, aggregator) for aggregator in self.aggregators]:
            done.result()

    def result(self) -> A:
        """Add the results of all aggregators: exact, so that the order does not matter."""
        return functools.reduce(operator.add, (aggregator.result() for aggregator in self.aggregators))


# ---------------------------------------------------------------------------------------------------------------
# BLAS with one thread, for as long as anyone in the process needs it
# The limit applies to the process: the first user to finish must not lift it for others, and the last must restore the
# setting found by the first.
_lock = threading.Lock()
_users = 0
_limit: Any = None  # of threadpoolctl, while there are users
_threads_before = 1


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks up the loaded libraries: a few milliseconds, once


def _current_threads() -> int:
    counts = [library["num_threads"] for library in _controller().info() if library["user_api"] == "blas"]
    return max(counts, default=1)


def blas_threads() -> int:
    """Return the number of threads BLAS would use under the user's limits, ignoring ours."""
    with _lock:
        return _threads_before if _users else _current_threads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the last user restores the setting found by the first."""
    global _users, _limit, _threads_before
    with _lock:
        if not _users:
            _threads_before = _current_threads()
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()


_FARTHEST = 40.0  # e⁻⁴⁰ is less than the unit of any weight or gradient that is not clipped
_LOG2 = math.log(2.0)
_COEFFICIENTS = tuple(1 / math.factorial(k) for k in range(14))  # |x| ≤ log(2)/2: the next term is below 2⁻⁵⁷


def exponential(x: Floats) -> Floats:
    """Return eˣ, x clamped to ±40, with relative error 10⁻¹⁴ and the same bits for the same x in any array."""
    x = np.clip(x, -_FARTHEST, _FARTHEST)
    whole = np.rint(x / _LOG2)
    rest = x - whole * _LOG2
    value = np.full_like(rest, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        value = value * rest
        value = value + coefficient
    return np.ldexp(value, whole.astype(np.int32))


@dataclass(frozen=True, repr=False)
class GradientSums:
    """**Sensitive**: Σ of gradients in units of 2⁻²⁰ of the clip, and of weights in units of 2⁻²⁰ of ¼."""

    gradient: Integers
    weight: int

    def __add__(self, other: GradientSums) -> GradientSums:
        return GradientSums(self.gradient + other.gradient, self.weight + other.weight)


@dataclass(frozen=True)
class ClippedGradient:
    """Σ ū over rows, u = y q z clipped to ‖ū‖² ≤ clip, and Σ q(1 - q): sensitivities are the clip's root and ¼.

    Attributes
    ----------
    transform : Transform
        z, and in its last row θ, of rows of norm at most 1. Neither reads the label.
    label : int
        Column whose sign is the class.
    clip : float
        Squared norm of the longest gradient.
    """

    transform: Transform
    label: int
    clip: float

    def __post_init__(self) -> None:
        to_units(self.transform, self.clip)
        k, m = self.transform.integers.shape
        if k < 2 or not 0 <= self.label < m or self.transform.integers[:, self.label].any():
            raise ArgumentError("A gradient requires a metric and coefficients, and neither may use the label.")

    def aggregator(self, m: int) -> Aggregator[GradientSums]:
        """For rows of m columns."""
        if self.transform.integers.shape[1] != m:
            raise ArgumentError(
                f"The transform must have {m} columns, as the schema has, got {self.transform.integers.shape[1]}."
            )
        return _GradientAggregator(self)


class _GradientAggregator:
    take = None

    def __init__(self, query: ClippedGradient) -> None:
        self.transform, self.label = query.transform, query.label
        k, m = self.transform.integers.shape
        self.block_rows = block_rows(max(k, m))
        self.factors = to_units(self.transform, query.clip)[:-1]
        self.gradient, self.weight = np.zeros(k - 1, dtype=np.int64), 0

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:  # the gradients of one unit's rows may add up to any number of clips
            raise ArgumentError("Gradients require row-level privacy.")
        for piece in pieces(len(rows), self.block_rows):
            gradients, weights = self.of_rows(rows[piece])
            # Whole numbers of at most 2²⁰, in blocks of at most 2¹² rows: no order of summation rounds them.
            self.gradient += gradients.sum(axis=0).astype(np.int64)
            self.weight += int(weights.sum())

    def of_rows(self, rows: Floats) -> tuple[Floats, Floats]:
        """What every row adds: (n, k) and (n,), whole numbers."""
        signs = np.sign(rows[:, self.label])
        products = self.transform.product(rows)
        other = 1 / (1 + exponential(signs * (products[:, -1] * self.transform.scales[-1])))
        gradients = products[:, :-1] * self.factors * (signs * other)[:, np.newaxis]
        np.trunc(gradients, out=gradients)
        clip_norms(gradients, ROW_UNIT**2)
        weights = np.minimum(np.trunc(4 * other * (1 - other) * np.abs(signs) * ROW_UNIT), ROW_UNIT)
        return gradients, weights

    def result(self) -> GradientSums:
        return GradientSums(self.gradient.copy(), self.weight)
