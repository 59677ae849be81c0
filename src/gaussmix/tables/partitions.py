"""Rows grouped by privacy unit, in bounded memory: a hash of the unit says which partition a row goes to.

**Sensitive**: encoded rows and keyed ids of units. Few of them stay in memory; more go to a temporary file that has no
name, mode 0600, and is gone with the process, however that ends. A partition is read whole: 1/256 of the table, and at
least all rows of one unit.

A row is stored as whole numbers of 32 bits (:mod:`gaussmix.tables.encoder`: at most 2²⁰), and comes back as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussmix._types import Floats, Integers
from gaussmix.errors import OutputError
from gaussmix.tables.keyed import Words, derive_key, siphash
from gaussmix.tables.unit import Unit

__all__ = ["GroupedUnits", "Partitions", "UnitBlock", "truncated"]

PARTITIONS = 2**8
MEMORY = 2**25
"""Bytes that wait in memory before they are written."""

_NO_ROOM = (
    "There is no room for the temporary file that brings the rows of each person together. Nothing was spent: free "
    "some, name a folder with room for the encoded table in TMPDIR, or sort the table by the unit and declare it."
)


@dataclass(frozen=True, repr=False)
class UnitBlock:
    """**Sensitive**: whole privacy units.

    Attributes
    ----------
    ids : array (units, 2)
        Keyed hashes.
    starts : array (units,)
        Where the rows of each unit begin.
    rows : array (n, m)
        Whole numbers.
    """

    ids: Words
    starts: Integers
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Words, rows: NDArray[np.int32]) -> UnitBlock:
        """From rows whose units stand together; ``ids`` has one id for each row."""
        new = np.any(ids[1:] != ids[:-1], axis=1)
        starts = np.flatnonzero(np.append(len(ids) > 0, new))
        return cls(ids[starts], starts, rows)

    @property
    def sizes(self) -> Integers:
        """Rows of each unit."""
        return np.diff(np.append(self.starts, len(self.rows)))

    def chosen(self, units: NDArray[np.bool_]) -> UnitBlock:
        """Some of the units."""
        sizes = self.sizes[units]
        starts = np.cumsum(sizes) - sizes
        return UnitBlock(self.ids[units], starts, self.rows[np.repeat(units, self.sizes)])

    def pieces(self, rows: int) -> Iterator[tuple[Floats, Integers]]:
        """Whole units with at most ``rows`` rows together, or one with more; rows in floats, and their starts."""
        stops = self.starts + self.sizes
        first = 0
        while first < len(stops):
            begin = self.starts[first]
            last = max(int(np.searchsorted(stops, begin + rows, side="right")), first + 1)
            part = self.rows[begin : stops[last - 1]].astype(np.float64)
            yield part, self.starts[first:last] - begin
            first = last


def truncated(block: UnitBlock, unit: Unit, key: bytes) -> UnitBlock:
    """Return at most j rows of each unit, if that is how contributions are bounded, by a hash of unit, row and copy.

    Equal rows of one unit are told apart by a copy number, 0, 1, …; which of them has which makes no difference. So the
    choice is a function of the key and of the unit's rows, in whatever order they come, and of no other row. It is not
    by content alone, which would choose the same kind of row of every unit.
    """
    sizes = block.sizes
    if unit.bound != "keep" or not len(sizes) or sizes.max() <= unit.rows:
        return block
    owner = np.repeat(np.arange(len(sizes)), sizes)
    content = siphash(np.column_stack([block.ids[owner], _packed(block.rows)]), derive_key(key, b"row"))
    copy = _copies(owner, content)
    order = siphash(np.column_stack([content, copy]), derive_key(key, b"copy"))
    ranked = np.lexsort((order, owner))
    rank = np.arange(len(owner)) - np.repeat(block.starts, sizes)
    first = ranked[rank < unit.rows]
    left = np.minimum(sizes, unit.rows)
    return UnitBlock(block.ids, np.cumsum(left) - left, block.rows[first])


def _packed(rows: NDArray[np.int32]) -> Words:
    """Return rows of 32-bit numbers as 64-bit words."""
    padded = np.zeros((len(rows), rows.shape[1] + rows.shape[1] % 2), dtype="<i4")
    padded[:, : rows.shape[1]] = rows
    return padded.view("<u8").astype(np.uint64)


def _copies(owner: Integers, content: Words) -> Words:
    """Return how many equal rows of the same unit come before each."""
    ranked = np.lexsort((content, owner))
    new = np.append(True, (owner[ranked][1:] != owner[ranked][:-1]) | (content[ranked][1:] != content[ranked][:-1]))
    begins = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    copies = np.empty(len(owner), dtype=np.uint64)
    copies[ranked] = (np.arange(len(new)) - begins).astype(np.uint64)
    return copies


# ---------------------------------------------------------------------------------------------------------------
# Files without names
class _Spool:
    """Arrays of bytes one after the other: in memory up to a limit, then in a file without a name."""

    def __init__(self) -> None:
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 - closed by close
        self._end = 0

    def append(self, array: NDArray[Any]) -> int:
        """Write an array; returns where it is."""
        at, content = self._end, np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
        try:
            self._file.seek(at)
            self._file.write(content)
        except OSError:
            raise OutputError(_NO_ROOM) from None
        self._end += content.nbytes
        return at

    def read(self, at: int, out: NDArray[Any]) -> None:
        """Fill an array with what was written from there on."""
        content = out.view(np.uint8).reshape(-1).data
        self._file.seek(at)
        if self._file.readinto(content) != content.nbytes:
            raise OutputError("The temporary file that holds rows was cut off while it was used. Run it again.")

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        self.close()


class Partitions:
    """Rows in any order go in; whole units come out, one partition after the other. Closed, it keeps nothing."""

    def __init__(self, m: int) -> None:
        self._kind = np.dtype([("id", np.uint64, (2,)), ("row", np.int32, (m,))])
        self._waiting: list[NDArray[Any]] = []
        self._bytes = 0
        self._chunks: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self._spool = _Spool()

    def add(self, ids: Words, rows: Floats) -> None:
        """Add rows of whole numbers, and the ids of their units."""
        records = np.empty(len(rows), dtype=self._kind)
        records["id"], records["row"] = ids, rows
        self._waiting.append(records)
        self._bytes += records.nbytes
        if self._bytes > MEMORY:
            self._write()

    def _write(self) -> None:
        """Write the waiting rows, those of each partition together."""
        records = np.concatenate(self._waiting)
        self._waiting, self._bytes = [], 0
        partition = (records["id"][:, 0] >> np.uint64(56)).astype(np.int64)
        order = np.argsort(partition, kind="stable")
        stops = np.cumsum(np.bincount(partition, minlength=PARTITIONS))
        at = self._spool.append(records[order])
        for number, (start, stop) in enumerate(zip(np.append(0, stops[:-1]), stops, strict=True)):
            if stop > start:
                place = at + int(start) * self._kind.itemsize
                self._chunks[number].append((place, int(stop - start)))

    def blocks(self) -> Iterator[UnitBlock]:
        """All units, each once, in an order that the key alone decides."""
        if not any(self._chunks):
            yield from _by_unit(self._waiting)
            return
        if self._waiting:
            self._write()
        for chunks in self._chunks:
            records = np.empty(sum(count for _, count in chunks), dtype=self._kind)
            done = 0
            for at, count in chunks:
                self._spool.read(at, records[done : done + count])
                done += count
            yield from _by_unit([records])

    def close(self) -> None:
        """Forget everything."""
        self._waiting = []
        self._spool.close()


def _by_unit(parts: list[NDArray[Any]]) -> Iterator[UnitBlock]:
    if not sum(len(part) for part in parts):
        return
    ids = np.concatenate([part["id"] for part in parts])
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    rows = np.concatenate([part["row"] for part in parts])
    yield UnitBlock.of(ids[order], rows[order])


class GroupedUnits:
    """Blocks of whole units, stored to be read once for every pass."""

    def __init__(self, m: int) -> None:
        self._m, self._spool = m, _Spool()
        self._places: list[tuple[int, int, int]] = []

    def add(self, block: UnitBlock) -> None:
        """Store a block."""
        at = self._spool.append(block.ids)
        self._spool.append(block.starts.astype(np.int64))
        self._spool.append(block.rows)
        self._places.append((at, len(block.ids), len(block.rows)))

    def blocks(self) -> Iterator[UnitBlock]:
        """All blocks, in the order in which they came."""
        for at, units, rows in self._places:
            block = UnitBlock(
                np.empty((units, 2), dtype=np.uint64),
                np.empty(units, dtype=np.int64),
                np.empty((rows, self._m), dtype=np.int32),
            )
            for array in (block.ids, block.starts, block.rows):
                self._spool.read(at, array)
                at += array.nbytes
            yield block

    def close(self) -> None:
        """Forget everything."""
        self._spool.close()
