"""Every row is counted once: a file that is named twice, or a table that comes twice, is refused.

A row that is counted twice is protected half as well. Files are known by device and inode, whatever they are called;
tables in memory by identity, as long as someone still holds them, and those that are named one by one also by where
their columns lie, if all are Arrow's or numbers. Tables that overlap in part are not recognised. A generator may fill
the same arrays anew for every batch, if it puts them into a new dictionary or pair.

>>> import numpy as np
>>> seen, rows = Seen(), np.zeros((3, 1))
>>> seen.table((rows, ["a"]), ["a"])
>>> seen.table((rows, ["a"]), ["a"])
Traceback (most recent call last):
    ...
gaussmix.errors.DataError: A table comes twice: its rows would be counted twice. Name every table once.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gaussmix.errors import DataError

__all__ = ["Seen"]


@dataclass
class Seen:
    """Files and tables of one pass."""

    _files: dict[tuple[int, int], str] = field(default_factory=dict)
    _queries: set[tuple[Hashable, str]] = field(default_factory=set)
    _tables: dict[Hashable, list[weakref.ref[Any]]] = field(default_factory=dict)
    _held: dict[Hashable, list[Any]] = field(default_factory=dict)

    def file(self, file: Path) -> None:
        """Refuse a file that was read before, under whatever name."""
        identity = _identity(file)
        if identity in self._files:
            raise DataError(
                f"{file} is the same file as {self._files[identity]}: its rows would be counted twice. "
                "Name every file once, and no links."
            )
        self._files[identity] = str(file)

    def query(self, path: str, sql: str) -> None:
        """Refuse the same query on the same file, under whatever name."""
        key = (_identity(Path(path)) if Path(path).exists() else path, sql.strip().rstrip(";").rstrip())
        if key in self._queries:
            raise DataError(f"A query on {path} comes twice: its rows would be counted twice. Name every query once.")
        self._queries.add(key)

    def table(self, data: Any, columns: Sequence[str], *, streamed: bool = False) -> None:
        """Refuse a table in memory that was read before: the same object, or the same columns in a new wrapper.

        With ``streamed``, for what a generator yields, a new wrapper is a new table if its columns can be filled anew.
        """
        owners = list(_columns(data, columns))
        if streamed and any(_refillable(owner) for owner in owners):
            owners = [data]
        key: Hashable = tuple(_place(owner) for owner in owners)
        if not streamed and (places := _places(data, columns)):
            key, owners = places, [data]
        known = self._tables.get(key)
        if key in self._held or (known is not None and all(reference() is not None for reference in known)):
            raise DataError("A table comes twice: its rows would be counted twice. Name every table once.")
        self._forget()
        try:
            self._tables[key] = [weakref.ref(_owner(owner)) for owner in owners]
        except TypeError:  # lists and tuples: held here, so that no other gets the same id
            self._held[key] = owners

    def _forget(self) -> None:
        """Let go of what nobody else holds, for it cannot come again: memory stays flat over a long stream."""
        gone = [key for key, owners in self._held.items() if _least_references(owners) <= _OURS]
        for key in gone:
            del self._held[key]
        if len(self._tables) > 1000:
            self._tables = {key: refs for key, refs in self._tables.items() if all(ref() is not None for ref in refs)}


def _identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def _least_references(owners: list[Any]) -> int:
    return min(sys.getrefcount(owner) for owner in owners)


_OURS = _least_references([[]])  # of an object that nobody but the list holds


def _columns(data: Any, columns: Sequence[str]) -> Iterator[Any]:
    """What holds the rows: the values of a dictionary, the array of a pair, or the object itself."""
    if isinstance(data, Mapping):
        yield from (data[name] for name in columns if name in data)
    elif isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray):
        yield data[0]
    else:
        yield data


def _refillable(column: Any) -> bool:
    return isinstance(column, list) or (isinstance(column, np.ndarray) and column.flags.writeable)


def _owner(data: Any) -> Any:
    """The array whose memory a view shows."""
    while isinstance(data, np.ndarray) and isinstance(data.base, np.ndarray):
        data = data.base
    return data


def _place(data: Any) -> Hashable:
    """Two arrays at the same place in memory are the same rows, whatever objects they are."""
    if isinstance(data, np.ndarray):
        return (id(_owner(data)), data.__array_interface__["data"][0], data.shape, data.strides)
    return _address(data) or id(data)


def _places(table: Any, columns: Sequence[str]) -> tuple[Hashable, ...]:
    """Where the columns of an Arrow table or a data frame lie, if all of them tell."""
    found = nw.to_native(table, pass_through=True)
    if isinstance(found, pa.Table | pa.RecordBatch):
        names = found.schema.names
    elif type(found).__name__ == "DataFrame" and _library(found) in ("pandas", "polars"):
        names = list(found.columns)
    else:
        return ()
    if any(names.count(name) != 1 for name in columns):
        return ()
    places = tuple(_address(found[name]) for name in columns)
    return places if all(places) else ()


def _address(column: Any) -> tuple[Hashable, ...]:
    """Where a column of Arrow's, or one of numbers of pandas or polars, lies; nothing where that cannot be told."""
    found = nw.to_native(column, pass_through=True)
    if type(found).__name__ == "Series" and _library(found) == "pandas":
        if not isinstance(found.dtype, np.dtype) or found.dtype.kind not in "biuf" or not len(found):
            return ()
        values = found.to_numpy()  # no copy
        return (values.__array_interface__["data"][0], values.shape, values.strides)
    if type(found).__name__ == "Series" and _library(found) == "polars":
        if not found.dtype.is_numeric() or found.n_chunks() > 1:
            return ()
        found = found.to_arrow()  # no copy
    if not isinstance(found, pa.Array | pa.ChunkedArray) or not len(found):  # no rows may lie anywhere
        return ()
    chunks = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
    places = [tuple(buffer.address for buffer in chunk.buffers() if buffer is not None) for chunk in chunks]
    if not all(places):  # of nulls alone, which need no memory
        return ()
    return tuple((place, chunk.offset, len(chunk)) for place, chunk in zip(places, chunks, strict=True))


def _library(thing: Any) -> str:
    return type(thing).__module__.partition(".")[0]
