"""Exact sums over encoded rows: the only thing that is kept of a table.

**Sensitive**: what this module computes is as sensitive as the rows, and only `mechanism.py` reads it; estimators ask
it for nothing but whether it has the declared number of rows.

Encoded rows (:mod:`gaussmix.encoding`) have norm at most 1 and entries that are multiples of 2⁻²⁰. The Gram matrix
G = Σ r rᵀ is then an exact integer in units of 2⁻⁴⁰:

- In a block of 2¹² rows, ``sum |r_i r_j| <= 2**12``, that is 2⁵² units. Every partial sum of every order of summation,
  fused or not, is an integer below 2⁵³, which float64 represents: BLAS makes no rounding error.
- Blocks are added in two 64-bit integers, ``high * 2**40 + low`` with ``0 <= low < 2**40``: a unique form, good for
  2⁶² rows.

So block size, memory order, number of threads, order of merging and processor leave no trace in the bits, and removing
a row changes G by exactly r rᵀ.

>>> encoder = RowEncoder(2, data_norm=5.0, intercept=0.5, target_bounds=((-1.0, 1.0),), target_weights=(0.5,))
>>> X, y = np.array([[3.0, 4.0], [0.3, -0.4]]), np.array([0.5, -1.0])
>>> left, right = (accumulate([(X[i : i + 1], y[i : i + 1])], encoder) for i in range(2))
>>> left + right
Moments(4 columns, 2 parts, sensitive: no numbers shown)
>>> bool(np.all((left + right).gram() == accumulate([(X, y)], encoder).gram()))
True
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dsyrk
from threadpoolctl import ThreadpoolController

from gaussmix._files import write_whole
from gaussmix.encoding import (
    EXACT_ROWS,
    FRACTION_BITS,
    BlockEncoder,
    RowEncoder,
    checked_block,
    pieces,
    row_major,
)
from gaussmix.schema import Schema
from gaussmix.sources import batches, known_rows, with_progress

__all__ = ["Moments", "accumulate"]

_MAGIC = b"gaussmix moments\n"
_FORMAT = 1
_LIMB_BITS = 2 * FRACTION_BITS
_FLUSHES_PER_CARRY = 2**10  # 2**10 sums below 2**52 stay below 2**63

_Floats = NDArray[np.float64]
_Rows = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Exact Gram matrix of encoded rows. **Sensitive**: only `mechanism.py` reads it.

    Build with `accumulate` and merge with ``+``, which is associative and commutative bit for bit; its zero
    is `Moments.empty`. Parts are never subtracted.

    Attributes
    ----------
    encoder : RowEncoder
        How the rows were encoded (a `RowEncoder`, the fingerprint of a schema): equal in all parts of a
        merge.
    schema : Schema or None
        The columns that were encoded, for tables: equal in all parts of a merge.
    parts : frozenset of str
        Random ids of the builds that were merged; the same id is never merged twice.
    """

    _high: NDArray[np.int64]  # floor of G, shape (m, m)
    _low: NDArray[np.int64]  # the rest in units of 2**-40, from 0 to 2**40 - 1
    _n: int  # rows read; never shown
    encoder: RowEncoder
    parts: frozenset[str]
    schema: Schema | None = None

    @classmethod
    def empty(cls, encoder: RowEncoder, schema: Schema | None = None) -> Moments:
        """The moments of no rows."""
        zero = np.zeros((encoder.n_columns, encoder.n_columns), dtype=np.int64)
        return cls(zero, zero.copy(), 0, encoder, frozenset(), schema)

    @property
    def n_columns(self) -> int:
        """Columns m of the encoded rows."""
        return len(self._high)

    @property
    def row_norm(self) -> float:
        """C, by which encoded rows were divided."""
        return self.encoder.row_norm if self.schema is None else self.schema.norm

    def rows_between(self, least: int, most: int | None = None) -> bool:
        """Whether so many rows were read. **Sensitive**: for the curator's checks of what was declared."""
        return least <= self._n and (most is None or self._n <= most)

    def gram(self) -> _Floats:
        """G in float64, shape (m, m), C = 1. **Sensitive.** The exact value, rounded once."""
        return self._high.astype(np.float64) + np.ldexp(self._low.astype(np.float64), -_LIMB_BITS)

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        if self.encoder != other.encoder or self.schema != other.schema:
            raise ValueError(
                "Moments of differently encoded rows cannot be merged. "
                "Build every part with the same columns, bounds, weights and intercept."
            )
        if self.parts & other.parts:
            raise ValueError(
                "The same part would be merged twice. A row counted twice has half the protection that the "
                "release promises: merge each part once, and rebuild a part rather than reuse it."
            )
        high, low = _carried(self._high + other._high, self._low + other._low)
        return Moments(high, low, self._n + other._n, self.encoder, self.parts | other.parts, self.schema)

    # -- tables and files -------------------------------------------------------------------------------------------
    @classmethod
    def from_(cls, data: Any, schema: Schema | dict[str, Any] | str | Path, *, progress: bool = False) -> Moments:
        """Moments of a table: anything that :func:`gaussmix.sources.batches` reads, in one pass.

        Parameters
        ----------
        data : table, path, glob, query or iterable of batches
        schema : Schema, dict or path of a TOML or JSON file
        progress : bool
            Show a progress bar on a terminal. It shows row counts, which are for the curator.
        """
        declared = Schema.from_(schema)
        stream = batches(data, list(declared.columns), types=declared.text_types)
        if progress:
            stream = with_progress(stream, known_rows(data))
        return _accumulate_batches(stream, declared, threads=None if _stays_as_it_is(data) else 1)

    def to_bytes(self) -> bytes:
        """Everything, in a form that :meth:`from_bytes` reads: **sensitive**."""
        if self.schema is None:
            raise ValueError("Only moments of tables with a schema can be saved: build them with Moments.from_.")
        header = {
            "format": _FORMAT,
            "warning": "sensitive: as sensitive as the rows themselves",
            "schema": self.schema.to_dict(),
            "fingerprint": self.schema.fingerprint,
            "parts": sorted(self.parts),
            "n": self._n,
        }
        text = json.dumps(header).encode()
        upper = np.triu_indices(self.n_columns)
        body = np.stack([self._high[upper], self._low[upper]]).astype("<i8").tobytes()
        content = len(text).to_bytes(8, "little") + text + body
        return _MAGIC + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, content: bytes, *, name: str = "This") -> Moments:
        """What :meth:`to_bytes` wrote, checked."""
        damaged = ValueError(f"{name} is not a file of moments, or it is damaged: build it again.")
        if content[: len(_MAGIC)] != _MAGIC:
            raise damaged
        digest, content = content[len(_MAGIC) : len(_MAGIC) + 32], content[len(_MAGIC) + 32 :]
        if hashlib.sha256(content).digest() != digest:
            raise damaged
        try:
            return _unpacked(content, name)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, _NewerError):
                raise
            raise damaged from None

    def save(self, path: str | Path) -> None:
        """Write a file, whole or not at all, readable by its owner only and **as sensitive as the rows**."""
        write_whole(path, self.to_bytes(), mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Moments:
        """Read a file that :meth:`save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        return cls.from_bytes(path.read_bytes(), name=str(path))

    def __repr__(self) -> str:
        return f"Moments({self.n_columns} columns, {len(self.parts)} parts, sensitive: no numbers shown)"


def accumulate(
    blocks: Iterable[tuple[ArrayLike, ArrayLike | None]],
    encoder: RowEncoder,
    *,
    schema: Schema | None = None,
    threads: int | None = None,
) -> Moments:
    """Sum over blocks of rows, in one pass and O(m²) memory beyond a cache-sized buffer per thread.

    Parameters
    ----------
    blocks : iterable of (X, Y)
        ``X`` of shape (rows, n_features) and ``Y`` of shape (rows,) or (rows, n_targets), or None without
        targets. Any number of rows, any real dtype and memory order: none of these changes the result by a
        bit. A block may be overwritten once the next one is asked for.
    encoder : RowEncoder
    schema : Schema, optional
        What the encoder is made from, kept in the result.
    threads : int, optional
        Default: as many as BLAS would use.

    Raises
    ------
    ValueError
        If a value is NaN or infinite. For the curator: whoever sees whether it occurred learns about single
        rows.
    """
    with _Team(encoder, threads) as team:
        for X, Y in blocks:
            team.add(*checked_block(encoder, X, Y))
        return team.moments(encoder, schema)


class _NewerError(ValueError):
    pass


def _unpacked(content: bytes, name: str) -> Moments:
    """Moments from what follows the checksum. Everything that can be checked is; that the rows are real cannot."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if header["format"] > _FORMAT:
        raise _NewerError(f"{name} was written by a newer version of gaussmix: update gaussmix.")
    if not isinstance(header["schema"], dict):
        raise TypeError("the schema is no object")
    schema, n, parts = Schema.from_(header["schema"]), header["n"], header["parts"]
    m = schema.n_columns
    high, low = np.frombuffer(content[8 + length :], dtype="<i8").reshape(2, m * (m + 1) // 2).astype(np.int64)
    ids = isinstance(parts, list) and all(isinstance(p, str) and re.fullmatch("[0-9a-f]{32}", p) for p in parts)
    upper = np.triu_indices(m)
    full = np.zeros((2, m, m), dtype=np.int64)
    full[:, upper[0], upper[1]] = full[:, upper[1], upper[0]] = np.stack([high, low])
    found = Moments(full[0], full[1], n, schema.row_encoder, frozenset(parts), schema)
    gram = found.gram()
    most = n * (1 + 1e-12)  # sums are exact, their conversion to floats is not
    sums_fit = (
        np.trace(gram) <= most and np.all(np.abs(gram) <= most) and np.linalg.eigvalsh(gram)[0] >= -1e-9 * (n + 1)
    )
    if not (
        header["fingerprint"] == schema.fingerprint
        and isinstance(n, int)
        and n >= 0
        and ids
        and len(parts) == len(set(parts))
        and (parts or n == 0)
        and np.all((low >= 0) & (low < 2**_LIMB_BITS))
        and sums_fit
    ):
        raise ValueError("its parts do not fit each other")
    return found


def _stays_as_it_is(data: Any) -> bool:
    """Whether batches of a source may be read while others are still in use.

    A generator or a reader may write the next batch where the last one was: then one thread reads it.
    """
    if isinstance(data, str | os.PathLike):
        return True
    return not isinstance(data, Iterator | pa.RecordBatchReader | list | tuple) and hasattr(data, "__arrow_c_stream__")


def _accumulate_batches(stream: Iterator[Any], schema: Schema, *, threads: int | None) -> Moments:
    """Sum over the batches of a table, every thread encoding and adding up whole batches of its own."""
    encoder = schema.row_encoder
    with _Team(encoder, threads) as team:
        team.start()
        shared = _Shared(stream)

        def add_up(worker: _Worker) -> None:
            try:
                for block, _ in schema.blocks(shared, unit=encoder.units_per_one):
                    worker.add_in_place(block)
            except BaseException:
                shared.close()  # the others have no reason to go on
                raise

        if team.pool is None:
            add_up(team.workers[0])
        else:
            for done in [team.pool.submit(add_up, worker) for worker in team.workers]:
                done.result()
        return team.moments(encoder, schema)


class _Shared:
    """An iterator that several threads draw from."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items, self._lock, self._open = items, threading.Lock(), True

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if not self._open:
                raise StopIteration
            return next(self._items)

    def close(self) -> None:
        self._open = False


def _carried(high: NDArray[np.int64], low: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The unique form of ``high * 2**40 + low`` with 0 <= low < 2**40."""
    return high + (low >> _LIMB_BITS), low & (2**_LIMB_BITS - 1)


# ---------------------------------------------------------------------------------------------------------------
# Summing
class _Team:
    """Workers that share the blocks of one pass. Threads start with the first block that is worth it."""

    def __init__(self, encoder: RowEncoder, threads: int | None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads!r}.")
        self.plan = BlockEncoder(encoder)
        self.threads = threads
        self.workers = [_Worker(self.plan)]
        self.pool: ThreadPoolExecutor | None = None
        self.stack = ExitStack()

    def __enter__(self) -> _Team:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def add(self, X: _Rows, Y: _Rows) -> None:
        waiting: queue.SimpleQueue[slice | None] = queue.SimpleQueue()
        cuts = pieces(len(X), EXACT_ROWS)
        if len(cuts) >= 4 and self.pool is None:
            self.start()
        for piece in cuts + [None] * len(self.workers):
            waiting.put(piece)
        if self.pool is None or len(cuts) < 4:
            self.workers[0].drain(waiting, X, Y)
        else:
            for done in [self.pool.submit(worker.drain, waiting, X, Y) for worker in self.workers]:
                done.result()

    def moments(self, encoder: RowEncoder, schema: Schema | None) -> Moments:
        limbs = np.sum([worker.limbs() for worker in self.workers], axis=0)
        high, low = (np.triu(limb) + np.triu(limb, 1).T for limb in _carried(*limbs))
        n = sum(worker.rows for worker in self.workers)
        return Moments(high, low, n, encoder, frozenset([os.urandom(16).hex()]), schema)

    def start(self) -> None:
        """One worker per BLAS thread, and one BLAS thread per worker: encoding then runs in parallel too."""
        threads = _blas_threads() if self.threads is None else self.threads
        if threads == 1:
            return
        self.stack.enter_context(_blas().limit(limits=1, user_api="blas"))
        self.pool = self.stack.enter_context(ThreadPoolExecutor(threads))
        self.workers += [_Worker(self.plan) for _ in range(threads - 1)]
        for worker in self.workers:
            worker.alone = False


class _Worker:
    """One thread's sums: floats for up to EXACT_ROWS rows, then integers. Only the upper triangle counts."""

    def __init__(self, plan: BlockEncoder) -> None:
        d, m, rows = plan.d, plan.m, plan.block_rows
        self.plan = plan
        self.alone = True
        self.rows = 0
        self.features, self.others = np.empty(rows * d), np.empty((m - d, EXACT_ROWS))
        self.pending_rows = 0
        self.left, self.right = (
            np.zeros((d, d), order="F"),
            np.zeros((m, m - d), order="F"),
        )  # columns of the Gram matrix
        self.product = np.empty((d, d), order="F")
        self.flushes = 0
        self.high, self.low = (np.zeros((m, m), dtype=np.int64, order="F") for _ in range(2))

    def drain(self, waiting: queue.SimpleQueue[slice | None], X: _Rows, Y: _Rows) -> None:
        """Add the rows of one piece after the other until the queue says None."""
        with np.errstate(over="ignore", invalid="ignore"):  # huge values are clipped, NaN is an error
            while (piece := waiting.get()) is not None:
                self._add(X[piece], Y[piece])

    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        self._flush()
        return _carried(self.high, self.low)

    def add_in_place(self, block: _Floats) -> None:
        """Add any number of rows without targets that are in units of 2⁻²⁰ already; they are rounded where they are."""
        for piece in pieces(len(block), EXACT_ROWS):
            rows = block[piece]
            if self.pending_rows + len(rows) > EXACT_ROWS:
                self._flush()
            self.plan.round_in_place(rows)
            self.left += np.matmul(rows.T, rows, out=self.product)
            self.pending_rows += len(rows)
            self.rows += len(rows)

    def _add(self, X: _Rows, Y: _Rows) -> None:
        """Add up to EXACT_ROWS rows."""
        if self.pending_rows + len(X) > EXACT_ROWS:
            self._flush()
        others = self.others[:, : len(X)]
        self.plan.map_others(Y, others)
        for piece in pieces(len(X), self.plan.block_rows):
            self._add_block(X[piece], others[:, piece])
        self.pending_rows += len(X)
        self.rows += len(X)

    def _add_block(self, X: _Rows, others: _Floats) -> None:
        n, d = X.shape
        features = self.features[: n * d].reshape((n, d), order="C" if row_major(X) else "F")
        self.plan.encode(X, features, others)
        self._add_left(features)
        self.right[:d] += features.T @ others.T
        self.right[d:] += others @ others.T

    def _add_left(self, features: _Floats) -> None:
        """Add featuresᵀ features to ``left``; dsyrk is faster, but holds Python's lock: for one thread only."""
        if not self.alone:
            self.left += np.matmul(features.T, features, out=self.product)
        elif features.flags.c_contiguous:
            self.left = dsyrk(1.0, features.T, beta=1.0, c=self.left, overwrite_c=1)
        else:
            self.left = dsyrk(1.0, features, trans=1, beta=1.0, c=self.left, overwrite_c=1)

    def _flush(self) -> None:
        d = self.plan.d
        self.low[:d, :d] += self.left.astype(np.int64)
        self.low[:, d:] += self.right.astype(np.int64)
        self.left.fill(0)
        self.right.fill(0)
        self.pending_rows = 0
        self.flushes += 1
        if self.flushes % _FLUSHES_PER_CARRY == 0:
            self.high, self.low = _carried(self.high, self.low)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks up the loaded libraries: a few milliseconds, once


def _blas_threads() -> int:
    """Threads that BLAS would use now, under the limits that the user has set."""
    counts = [library["num_threads"] for library in _blas().info() if library["user_api"] == "blas"]
    return max(counts, default=1)
