"""Exact sums over the rows of a table: queries, their aggregators, and passes in parallel and in bounded memory.

**Sensitive.** A query is public, small and the same for all parts of the table. Its `aggregator`, a copy with sums,
adds encoded rows (:mod:`gaussmix.data.encode`: integers of norm at most 2²⁰), and the results of parts are added. The
queries released with noise are `Gram`, Σ r rᵀ in the declared metric; `MappedGram`, Σ z̄ z̄ᵀ of rows mapped by a
transform and clipped; `NormCounts`, histograms of ‖z‖² for several transforms; and those of
:mod:`gaussmix.data.scores`. A new query is a subclass of `Query`; tables of every kind, privacy units and clusters then
support it.

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
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from threadpoolctl import ThreadpoolController

from gaussmix._types import Floats, Integers, Rows
from gaussmix.data import kernels
from gaussmix.data.encode import (
    EXACT_ROWS,
    BlockEncoder,
    complete_rows,
    encode_batch,
    pieces,
    squared_norms_of,
)
from gaussmix.data.sampling import RowCache, Sample, SamplingKeys
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.transforms import LARGEST, LEAST, ROW_UNIT, Transform, clip_norms, to_units
from gaussmix.errors import ArgumentError

LIMB_BITS = 2 * FRACTION_BITS
FLUSHES_PER_CARRY = 2**10
"""Sums of at most 2**52 that can be added to a low limb: they stay below 2**63."""

_ARRAY_BYTES = 3 * 2**18  # of a block of arrays that is encoded: it stays in the second-level cache
_BLOCK_BYTES = 2**20  # smaller blocks cost more in calls than larger ones in cache misses
_LEAST_BLOCK_ROWS = 64
_COLUMN_BYTES = 2**25  # of encoded rows of a batch
_LEAST_BATCH_ROWS = 2**10
_NORM_UNIT = 2.0**26  # root of the last edge of a histogram: squares up to it, and well beyond, add up exactly
_NORMS = 2**14  # that are compared with the limits of bins at a time
_WORTH_THREADS = 4  # pieces of EXACT_ROWS rows
_PIECES = 64  # that are enough for any number of threads


# ---------------------------------------------------------------------------------------------------------------
# Queries
class Summable(Protocol):
    """The result of a query on a part of a table."""

    def __add__(self, other: Self, /) -> Self: ...


A = TypeVar("A", bound=Summable)
A_co = TypeVar("A_co", bound=Summable, covariant=True)


class Query(ABC, Generic[A_co]):
    """A query on all rows or privacy units. Its fields are public; the sums of an `aggregator` are **sensitive**.

    Attributes
    ----------
    block_rows : int
        Rows that are best added at a time by numpy: their intermediate results stay in the cache.
    compiled : bool
        Whether a compiled function, `take`, adds rows.
    """

    block_rows: int = EXACT_ROWS
    compiled: bool = False

    def aggregator(self, m: int) -> Self:
        """Return a copy that adds rows of m columns: one thread's share of the query."""
        own = copy.copy(self)
        own._start(m)
        return own

    @abstractmethod
    def _start(self, m: int) -> None:
        """Set the sums over rows of m columns to zero."""

    def set_up(self, m: int, *transforms: Transform, compiled: bool = False) -> None:
        """Choose how rows of m columns are added, and check that transforms fit them."""
        for transform in transforms:
            if transform.integers.shape[1] != m:
                raise ArgumentError(
                    f"The preconditioning transform must have {m} columns, one per encoded column of the schema, got "
                    f"{transform.integers.shape[1]}."
                )
        columns = max(m, *(len(transform.integers) for transform in transforms), 1)
        self.compiled = compiled and kernels.serves(columns)
        in_cache = min(max(_BLOCK_BYTES // (8 * columns), _LEAST_BLOCK_ROWS), EXACT_ROWS)
        self.block_rows = EXACT_ROWS if self.compiled else in_cache

    def add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add any number of encoded rows, shape (n, m).

        With ``starts`` the rows are those of whole privacy units, each beginning at one of these positions; rows may be
        overwritten.
        """
        if starts is not None:
            self._add(rows, starts)
            return
        for piece in pieces(len(rows), kernels.MOST_ROWS if self.compiled else self.block_rows):
            part = rows[piece]
            if self.compiled:
                part = part[self.take(kernels.KernelInput.of_rows(part))]
            if len(part):
                self._add(part)

    def take(self, rows: kernels.KernelInput) -> Integers:
        """Add rows by a compiled function; return the positions of those that numpy is to add."""
        raise NotImplementedError

    @abstractmethod
    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        """Add at most ``block_rows`` rows, or whole privacy units, by numpy."""

    @abstractmethod
    def result(self) -> A_co:
        """Return the sum over all rows that were added."""


# ---------------------------------------------------------------------------------------------------------------
# Gram matrices
@dataclass(frozen=True, repr=False)
class ExactSums:
    """The sum G as ``high + low · 2⁻⁴⁰``, 0 ≤ low < 2⁴⁰, and the number of rows. **Sensitive**."""

    high: Integers
    low: Integers
    n: int

    def floats(self) -> Floats:
        """Return G in float64, shape (m, m), for C = 1: the exact value, rounded once. **Sensitive**."""
        return self.high.astype(np.float64) + np.ldexp(self.low.astype(np.float64), -LIMB_BITS)

    def __add__(self, other: ExactSums) -> ExactSums:
        high, low = carried(self.high + other.high, self.low + other.low)
        return ExactSums(high, low, self.n + other.n)


def carried(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """Return the unique form of ``high * 2**40 + low`` with 0 <= low < 2**40."""
    return high + (low >> LIMB_BITS), low & (2**LIMB_BITS - 1)


@dataclass(eq=False)
class Gram(Query[ExactSums]):
    """Σ r rᵀ in units of 2⁻⁴⁰: two integers, high · 2⁴⁰ + low, to which sums of at most 2¹² rows in floats are added.

    Attributes
    ----------
    max_contributions : int
        j: the squares of a privacy unit's rows are scaled to at most j·2⁴⁰, so that its part of the sum has a Frobenius
        norm of at most j. Single rows have squares of at most 2⁴⁰ and are added as they are.
    """

    max_contributions: int = 1

    def _start(self, m: int) -> None:
        self.set_up(m, compiled=True)
        self.block_rows = EXACT_ROWS
        self.m, self.n, self.flushes, self.pending_rows = m, 0, 0, 0
        self.limit = self.max_contributions * ROW_UNIT**2
        width = kernels.padded(m) if self.compiled else m
        self.high, self.low = (np.zeros((width, width), dtype=np.int64) for _ in range(2))
        self.pending = kernels.zeros(width, width)

    def take(self, rows: kernels.KernelInput, by: kernels.Map | None = None) -> Integers:
        """Add rows, or rows mapped ``by`` a transform, by a compiled function.

        No encoded row is left out; of mapped rows those that are not finite, or far beyond the clip.
        """
        left = kernels.gram(rows, self.low_for(rows.n), self.pending, by)
        self.n += rows.n - len(left)
        return left

    def low_for(self, rows: int) -> Integers:
        """Return low limbs to which the products of this number of rows can be added without exceeding 2⁶³."""
        flushes = -(-rows // EXACT_ROWS)
        self.flushes += flushes
        if self.flushes > FLUSHES_PER_CARRY:
            self.high, self.low = carried(self.high, self.low)
            self.flushes = flushes
        return self.low

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        if starts is not None:
            clip_norms(rows, self.limit, starts)
            self.add(rows)
            return
        if self.compiled:  # left out although encoded
            raise kernels.not_finite()
        if self.pending_rows + len(rows) > EXACT_ROWS:
            self._flush()
        # Integers of at most 2²⁰ squared, at most 2¹² of them: below 2⁵³, where float64 adds without rounding.
        self.pending += rows.T @ rows
        self.pending_rows += len(rows)
        self.n += len(rows)

    def _flush(self) -> None:
        if not np.isfinite(self.pending).all():  # 4096 rows of norm at most 2²⁰ cannot do that
            raise kernels.not_finite()
        self.low_for(self.pending_rows)[...] += self.pending.astype(np.int64)
        self.pending.fill(0)
        self.pending_rows = 0

    def result(self) -> ExactSums:
        """Return the sums over all rows that were added; only the upper triangle was computed."""
        self._flush()
        limbs = carried(self.high[: self.m, : self.m], self.low[: self.m, : self.m])
        high, low = (np.triu(limb) + np.triu(limb, 1).T for limb in limbs)
        return ExactSums(high, low, self.n)


@dataclass(eq=False)
class MappedGram(Query[ExactSums]):
    """Σ z̄ z̄ᵀ in units of 2⁻⁴⁰·clip, z = T r clipped to ‖z̄‖² ≤ clip: the sensitivity is one, exactly.

    All rows of a privacy unit are multiplied by one factor, so that Σ‖z̄‖² ≤ clip over the unit.
    """

    transform: Transform
    clip: float

    def _start(self, m: int) -> None:
        self.set_up(m, self.transform, compiled=True)
        self.factors = to_units(self.transform, self.clip)
        self.gram, self.z = Gram().aggregator(len(self.factors)), _Buffer()
        if self.compiled:
            self.map = kernels.Map(self.transform, self.factors)

    def take(self, rows: kernels.KernelInput) -> Integers:
        """Add rows by a compiled function."""
        return self.gram.take(rows, self.map)

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        z = self.transform.product(rows, out=self.z.array(len(rows), len(self.factors)))  # exact
        np.multiply(z, self.factors, out=z)
        np.trunc(z, out=z)
        clip_norms(z, ROW_UNIT**2, starts)
        self.gram.add(z)

    def result(self) -> ExactSums:
        """Return the sums over all rows that were added."""
        return self.gram.result()


# ---------------------------------------------------------------------------------------------------------------
# Histograms
@dataclass(frozen=True, repr=False)
class BinCounts:
    """Counts of rows by ‖z‖² for every transform, and the number of rows. **Sensitive**."""

    counts: list[Integers]
    n: int

    def __add__(self, other: BinCounts) -> BinCounts:
        return BinCounts([a + b for a, b in zip(self.counts, other.counts, strict=True)], self.n + other.n)


@dataclass(eq=False)
class NormCounts(Query[BinCounts]):
    """Counts of rows with ‖z‖² in (0, e₁], (e₁, e₂], …, (e_J, ∞), for every transform and its edges.

    With a privacy unit: how many units, by Σ‖z‖² over the unit. A row or unit that is mapped to zero is in no bin, so
    that it does not differ from an absent one; one that is only rounded to zero is in the first bin. Transforms that
    differ only in their scales share the product with their integers.

    Norms are whole numbers: the root of the last edge is 2²⁶ units, and entries are truncated to units. Squares of rows
    up to the last edge add up to 2⁵² about; what is 2⁵³ or more is in the last bin, wherever the row stands. A bin's
    limit is accurate to about 2⁻²⁶·√(k·last edge) in ‖z‖.
    """

    transforms: Sequence[Transform]
    edges: Sequence[Floats]

    def _start(self, m: int) -> None:
        if not self.transforms or len(self.transforms) != len(self.edges):
            raise ArgumentError("transforms must not be empty, and edges must have one entry for each transform.")
        first, *others = self.transforms
        self.set_up(m, *self.transforms, compiled=all(map(first.same_integers, others)))
        self.factors, self.limits = [], []
        for transform, edges in zip(self.transforms, self.edges, strict=True):
            if not (edges.ndim == 1 and len(edges) and ((edges > LEAST) & (edges < LARGEST)).all()):
                raise ArgumentError("edges must be a nonempty array of positive, finite numbers.")
            if not (np.diff(edges) > 0).all():
                raise ArgumentError("edges must be strictly increasing.")
            self.factors.append(np.asarray(transform.scales * (_NORM_UNIT / math.sqrt(edges[-1]))))
            self.limits.append(edges / edges[-1] * _NORM_UNIT**2)
        self.units, self.filled, kinds = 0, 0, len(self.limits)
        self.squares, self.within = np.empty((kinds, _NORMS)), np.empty(_NORMS, dtype=np.bool_)
        self.zeros = np.zeros(kinds, dtype=np.int64)
        self.cumulated = [np.zeros(len(limits) + 1, dtype=np.int64) for limits in self.limits]
        self.product, self.scaled = _Buffer(), _Buffer()
        if self.compiled:
            self.map = kernels.Map(first, *self.factors)

    def take(self, rows: kernels.KernelInput) -> Integers:
        """Count rows by a compiled function; those that are not finite are left out."""
        norms, zeros, left = kernels.norms(rows, self.map)
        self._count(np.delete(norms, left, axis=1) if len(left) else norms, np.array(zeros))
        return left

    def _add(self, rows: Floats, starts: Integers | None = None) -> None:
        transform, product = None, np.empty(0)
        squares, zeros = [], []
        for other, factors in zip(self.transforms, self.factors, strict=True):
            shape = len(rows), len(other.integers)
            if transform is None or not transform.same_integers(other):
                transform, product = other, other.product(rows, out=self.product.array(*shape))  # exact
            scaled = np.multiply(product, factors, out=self.scaled.array(*shape))
            np.trunc(scaled, out=scaled)
            with np.errstate(over="ignore"):
                totals = squared_norms_of(scaled, starts)
            squares.append(totals)
            nothing = 0
            if not totals.all():  # rows or units that are zero before rounding
                some = product.any(axis=1)
                nothing = int(np.count_nonzero(~(some if starts is None else np.logical_or.reduceat(some, starts))))
            zeros.append(nothing)
        self._count(np.array(squares), np.array(zeros))

    def _count(self, squares: Floats, zeros: Integers) -> None:
        """Count at most 2¹⁴ squared norms of each kind; ``zeros`` of them are of rows mapped to exactly zero."""
        n = squares.shape[1]
        if self.filled + n > _NORMS:
            self._flush()
        self.squares[:, self.filled : self.filled + n] = squares
        self.filled += n
        self.units += n
        self.zeros += zeros

    def _flush(self) -> None:
        within = self.within[: self.filled]
        for squares, limits, cumulated in zip(self.squares, self.limits, self.cumulated, strict=True):
            for j, limit in enumerate(limits):  # many norms at a time
                cumulated[j] += np.count_nonzero(np.less_equal(squares[: self.filled], limit, out=within))
            cumulated[-1] += self.filled
        self.filled = 0

    def result(self) -> BinCounts:
        """Return the counts of all bins."""
        self._flush()
        counts = [np.diff(cumulated, prepend=0) for cumulated in self.cumulated]
        for own, zeros in zip(counts, self.zeros, strict=True):
            own[0] -= zeros
        return BinCounts(counts, self.units)


class _Buffer:
    """Memory reused by successive blocks: allocation would cost more than the arithmetic."""

    entries = np.empty(0)

    def array(self, n: int, k: int) -> Floats:
        """Return an uninitialised array (n, k), valid until the next call."""
        if self.entries.size < n * k:
            self.entries = np.empty(n * k)
        return self.entries[: n * k].reshape(n, k)


# ---------------------------------------------------------------------------------------------------------------
# Passes
def aggregate_arrays(
    blocks: Iterable[tuple[Rows, Rows]],
    schema: Schema,
    query: Query[A],
    *,
    chosen: Integers | None = None,
    threads: int | None = None,
) -> A:
    """Aggregate blocks (X, Y) of rows as `encode.checked_arrays` returns them, or chosen positions in each block."""
    plan = BlockEncoder.of(schema)

    def steps() -> Iterator[_Step]:
        for X, Y in blocks:
            n = len(X) if chosen is None else len(chosen)
            cuts: list[slice | Integers] = [*pieces(n, min(max(n // _PIECES, EXACT_ROWS), kernels.MOST_ROWS))]
            if chosen is not None:
                cuts = [chosen[cut] for cut in cuts]
            yield cuts, functools.partial(_add_arrays, X=X, Y=Y, plan=plan), n > (_WORTH_THREADS - 1) * EXACT_ROWS

    return _in_threads(query, schema.n_columns, steps(), threads)


def _add_arrays(
    aggregator: Query[Any], cuts: Iterable[slice | Integers], *, X: Rows, Y: Rows, plan: BlockEncoder
) -> None:
    """Encode and add pieces of the arrays, by a compiled function if available, otherwise by numpy."""
    m = len(plan.centre)
    rows = kernels.KernelInput.of_arrays(X, Y, plan) if aggregator.compiled else None
    in_cache = min(max(_ARRAY_BYTES // (8 * m), 2 * m), aggregator.block_rows)
    for cut in cuts:
        left: slice | Integers = slice(None)
        if rows is not None:
            rows.select(cut)
            left = aggregator.take(rows)
            if not len(left):
                continue
        rest_X, rest_Y = X[cut][left], Y[cut][left]
        for piece in pieces(len(rest_X), in_cache):
            aggregator.add(plan.encode_arrays(rest_X[piece], rest_Y[piece]))


def aggregate_rows(blocks: Sequence[Rows], query: Query[A], m: int, *, threads: int | None = None) -> A:
    """Aggregate blocks of encoded rows, of either precision."""

    def work(aggregator: Query[A], blocks: Iterable[Rows]) -> None:
        for rows in blocks:
            aggregator.add(rows.astype(np.float64, copy=False))

    return _in_threads(query, m, [(blocks, work, len(blocks) >= _WORTH_THREADS)], threads)


def aggregate_batches(
    stream: Iterable[pa.RecordBatch],
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
    plan, m = BlockEncoder.of(schema), schema.n_columns
    most = max(_COLUMN_BYTES // (8 * m), _LEAST_BATCH_ROWS)  # however many levels there are

    def work(aggregator: Query[A], batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        # One buffer serves all batches: fresh memory for each would cost more than the arithmetic.
        buffer = np.empty((0, m), order="F")
        for start, batch in batches:
            keys: SamplingKeys = np.empty(0, dtype=np.uint16)
            if cache is not None:
                keys = cache.keys.sampling_keys(start, start + batch.num_rows)
                if (complete := complete_rows(batch, schema)) is not None:
                    batch, keys = batch.filter(complete), keys[complete.to_numpy(zero_copy_only=False)]
            elif sample is not None:
                batch = batch.take(pa.array(np.flatnonzero(sample.chosen(start, start + batch.num_rows))))
            if len(buffer) < min(most, batch.num_rows):
                buffer = np.empty((min(most, batch.num_rows), m), order="F")
            for cut in pieces(batch.num_rows, most):
                block = encode_batch(batch.slice(cut.start, most), schema, plan, out=buffer)
                for piece in pieces(len(block), aggregator.block_rows):
                    plan.finish(block[piece])
                    aggregator.add(block[piece])
                if cache is not None:
                    cache.add(keys[cut], block)

    return _in_threads(query, m, [(_with_positions(stream), work, True)], threads)


def _with_positions(stream: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield every batch and the position of its first row."""
    position = 0
    for batch in stream:
        yield position, batch
        position += batch.num_rows


# ---------------------------------------------------------------------------------------------------------------
# Threads
def _shared(items: Iterator[Any], lock: threading.Lock, stop: threading.Event) -> Iterator[Any]:
    """Yield one thread's share of the items, none of which is None, until ``stop`` is set."""
    while not stop.is_set():
        with lock:
            item = next(items, None)
        if item is None:
            return
        yield item


_Step = tuple[Iterable[Any], Callable[[Query[Any], Iterable[Any]], None], bool]
"""What is to be added, how a thread adds its share to an aggregator, and whether several threads are worthwhile."""


def _in_threads(query: Query[A], m: int, steps: Iterable[_Step], threads: int | None) -> A:
    """Carry out steps in several threads and add the results, which is exact in any order.

    As many threads as BLAS would use, with one BLAS thread each, start when they are worth it: encoding then runs in
    parallel too.
    """
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads must be at least 1, got {threads!r}.")
    aggregators, pool = [query.aggregator(m)], None
    with ExitStack() as stack:
        for items, work, several in steps:
            if several and pool is None and (count := threads or blas_threads()) > 1:
                stack.enter_context(one_blas_thread())
                pool = stack.enter_context(ThreadPoolExecutor(count))
                aggregators += [query.aggregator(m) for _ in range(count - 1)]
            if several and pool is not None:
                shared = iter(items), threading.Lock(), threading.Event()
                parts = [pool.submit(work, aggregator, _shared(*shared)) for aggregator in aggregators]
                try:
                    wait(parts, return_when=FIRST_EXCEPTION)
                finally:  # after an error the other threads have no reason to go on
                    shared[2].set()
                for part in parts:
                    part.result()
            else:
                work(aggregators[0], items)
    return functools.reduce(operator.add, (aggregator.result() for aggregator in aggregators))


# BLAS has one thread for as long as anyone in the process needs it. The limit applies to the process: the first user to
# finish must not lift it for others, and the last must restore the setting found by the first.
_lock = threading.RLock()
_users = 0
_limit: Any = None  # of threadpoolctl, while there are users
_threads_before = 1


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks up the loaded libraries: a few milliseconds, once


def blas_threads() -> int:
    """Return the number of threads BLAS would use under the user's limits, ignoring ours."""
    with _lock:
        if _users:
            return _threads_before
        counts = [library["num_threads"] for library in _controller().info() if library["user_api"] == "blas"]
        return max(counts, default=1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the last exit restores the setting found by the first entry."""
    global _users, _limit, _threads_before
    with _lock:
        if not _users:
            _threads_before = blas_threads()
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()
