"""Contribution bounding: the privacy unit, ids of units, and rows brought together by unit.

A privacy unit, declared and public, is one row, or all rows with the same value in a column. Only the name of the
column and the contribution bound are shown, never a value.

>>> print(PrivacyUnit("patient_id", 12))
all rows with the same patient_id (contributions scaled to at most 12 rows)
>>> print(PrivacyUnit("patient_id", 12, "sample"))
all rows with the same patient_id (at most 12 rows sampled)

Everything else here is **sensitive**. The privacy-unit column is read as text, hashed with a secret key, and discarded;
a holder of the key could identify units by trying values. The id of a unit is 128 bits, two hashes under two keys, so
that two of U units share an id with a probability of at most U²/2¹²⁹: 10⁻²⁵ for ten million. The hash is SipHash-2-4
(Aumasson and Bernstein, 2012), a pseudo-random function for short inputs, vectorised over arrays.

>>> key = bytes(range(16))
>>> message = np.frombuffer(bytes(range(8)), dtype="<u8").reshape(1, 1)
>>> hex(siphash(message, key)[0])  # a test vector from the paper
'0x93f5f5799a932462'

Aggregators need the rows of a unit to be adjacent, and scale them to their bound (:mod:`gaussmix.data.gram`). A table
declared as sorted is read again in every pass, and a unit that reappears is an error. Any other table is read once, and
its encoded rows are partitioned by a hash of the unit for later passes (:class:`gaussmix.data.rows.UnitRows`).
Partitions beyond a memory limit go to an unnamed temporary file, mode 0600, which disappears with the process. A
partition is read whole: 1/256 of the table, and at least all rows of one unit. Rows are stored exactly, as 32-bit
integers (:mod:`gaussmix.data.encode`: at most 2²⁰). Both ways give the same bits for any order of the rows.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.data.encode import is_text
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError, DeclarationError, OutputError

ContributionBounding = Literal["sample", "scale", "unique"]
BOUNDS: tuple[ContributionBounding, ...] = ("scale", "sample")
"""How contributions can be bounded where a unit may have several rows."""

UNIQUE: ContributionBounding = "unique"

ONE_ROW = "one row"
"""The default privacy unit."""

MOST_ROWS = 2**12
"""Largest number of rows of norm 2²⁰ whose squares float64 sums exactly in any order."""


@dataclass(frozen=True)
class PrivacyUnit:
    """All rows with the same value in a column, such as those of one person.

    Attributes
    ----------
    column : str
        Name of the column. It is read but never released.
    max_contributions : int
        The contribution bound j, from 1 to 4,096: a unit changes the Gram matrix by at most jC².
    contribution_bounding : {"scale", "sample"}
        How contributions are bounded. ``"scale"``: all rows of a unit are multiplied by one factor, so that their
        squared norms add up to at most jC². ``"sample"``: at most j rows of a unit are read, chosen by a keyed hash.
        Releases of tables made by :func:`gaussmix.per_unit` have ``"unique"``: the table has one row for each unit.
    """

    column: str
    max_contributions: int
    contribution_bounding: ContributionBounding = "scale"

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ArgumentTypeError(f"unit must be the name of a column, got {type(self.column).__name__}.")
        check.text(unit=self.column)
        rows = check.positive_integer(max_contributions=self.max_contributions)
        # A small NumPy integer would overflow when squared.
        object.__setattr__(self, "max_contributions", rows)
        if rows > MOST_ROWS:
            raise ArgumentError(f"max_contributions must be from 1 to {MOST_ROWS:,}, got {self.max_contributions!r}.")
        check.choice((*BOUNDS, UNIQUE), contribution_bounding=self.contribution_bounding)
        if self.contribution_bounding == UNIQUE and rows != 1:
            raise ArgumentError(f'max_contributions must be 1 for contribution_bounding="unique", got {rows}.')

    @property
    def bounded(self) -> PrivacyUnit | None:
        """The unit whose rows are brought together and bounded; None if each unit has one row by construction."""
        return None if self.contribution_bounding == UNIQUE else self

    @property
    def one_row_each(self) -> bool:
        """Whether at most one row of each unit is read, so that the rows are independent if the units are."""
        return self.max_contributions == 1 and self.contribution_bounding != "scale"

    def check_schema(self, schema: Schema) -> None:
        """Reject a schema that releases the privacy-unit column or uses it as a weight."""
        if self.column in schema.columns or self.column == INTERCEPT:
            raise DeclarationError(
                f"Column {self.column!r} is the privacy unit and cannot be released or used as a weight. Remove it "
                "from the schema."
            )

    @classmethod
    def of(cls, stored: object) -> PrivacyUnit:
        """Read the output of :meth:`to_dict`."""
        if not isinstance(stored, Mapping):
            raise ArgumentTypeError("A stored privacy unit must be a JSON object.")
        return cls(**stored)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        most = self.max_contributions
        counted = f"at most {most} rows sampled" if most > 1 else "one row sampled"
        if self.contribution_bounding == "scale":
            counted = f"contributions scaled to at most {self.max_contributions} rows"
        if self.contribution_bounding == UNIQUE:
            counted = "one row each"
        return f"all rows with the same {self.column} ({counted})"


# ---------------------------------------------------------------------------------------------------------------
# Keyed hashes
Words = NDArray[np.uint64]

_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_BLOCK = 2**14  # values at a time: their lanes stay in the cache
_EXACT = 2.0**53


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """Return 16 bytes for one purpose, from a key."""
    return hashlib.blake2b(purpose, key=key, digest_size=16).digest()


def siphash(words: Words, key: bytes) -> Words:
    """Return the SipHash-2-4 of each row of 64-bit words, shape (n, k), as n words."""
    halves = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    out = np.empty(len(words), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK):
        part = words[start : start + _BLOCK]
        v = [np.full(len(part), halves[i % 2] ^ np.uint64(constant)) for i, constant in enumerate(_START)]
        length = np.full(len(part), (8 * words.shape[1] % 256) << 56, dtype=np.uint64)
        for word in (*part.T, length):
            v[3] ^= word
            _rounds(v, 2)
            v[0] ^= word
        v[2] ^= np.uint64(0xFF)
        _rounds(v, 4)
        out[start : start + _BLOCK] = v[0] ^ v[1] ^ v[2] ^ v[3]
    return out


def _rounds(v: list[Words], count: int) -> None:
    """Run rounds of SipHash in place. Additions are modulo 2⁶⁴."""
    for _ in range(count):
        for a, b, turn, half in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            v[a] += v[b]
            v[b] = (v[b] << np.uint64(turn)) | (v[b] >> np.uint64(64 - turn))
            v[b] ^= v[a]
            if half:
                v[a] = (v[a] << np.uint64(32)) | (v[a] >> np.uint64(32))


# ---------------------------------------------------------------------------------------------------------------
# Ids of units
def unit_ids(name: str, array: pa.Array, key: bytes) -> Words:
    """Return 128 bits for every value of the unit's column, shape (n, 2). Equal texts have equal ids."""
    texts = unit_texts(name, array)
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    found = np.empty((len(texts), 2), dtype=np.uint64)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        # Texts of one length, and their length, as 64-bit words.
        padded = np.zeros((len(at), -(-length // 8) * 8), dtype=np.uint8)
        padded[:, :length] = data[offsets[at][:, np.newaxis] + np.arange(length)]
        words = np.column_stack([padded.view("<u8").astype(np.uint64), np.full(len(at), length, dtype=np.uint64)])
        for half in range(2):
            found[at, half] = siphash(words, derive_key(key, b"person %d" % half))
    return found


def unit_texts(name: str, array: pa.Array) -> pa.LargeStringArray:
    """Return the values of the privacy-unit column as text: 17, 17.0 and "17" are one unit, "017" is another.

    Raises
    ------
    DataError
        If a value is missing, or is neither text nor a whole number. The message quotes no value.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if array.null_count or pa.types.is_null(kind):
        raise _missing(name)
    if pa.types.is_floating(kind):
        values: Floats = np.asarray(array.cast(pa.float64()))
        if np.isnan(values).any():
            raise _missing(name)
        if not ((np.trunc(values) == values) & (np.abs(values) < _EXACT)).all():
            raise DataError(
                f"Privacy-unit column {name!r} must hold text or integers, but has fractional numbers. Cast it to text."
            )
        array = pa.array(values.astype(np.int64))
    elif pa.types.is_decimal(kind) and kind.scale == 0:
        array = pc.cast(array, pa.string())
    elif not (pa.types.is_integer(kind) or is_text(kind)):
        raise DataTypeError(
            f"Privacy-unit column {name!r} must hold text or integers, but its type is {kind}. Cast it."
        )
    texts = pc.cast(array, pa.large_string())
    if pc.any(pc.equal(pc.binary_length(texts), 0)).as_py():
        raise _missing(name)
    return texts


def _missing(name: str) -> DataError:
    return DataError(
        f"Privacy-unit column {name!r} has missing values. Drop these rows, or give each of them its own unit by a "
        "rule that depends on that row alone."
    )


# ---------------------------------------------------------------------------------------------------------------
# Groups
PARTITIONS = 2**8
MEMORY = 2**25
"""Number of bytes held in memory before they are written."""

_NO_ROOM = (
    "There is not enough disk space for the temporary file that groups rows by privacy unit. "
    "Free space, set TMPDIR to a larger directory, or sort the table by unit and declare sorted_by_unit."
)


@dataclass(frozen=True, repr=False)
class UnitBlock:
    """A block of whole privacy units. **Sensitive**."""

    ids: Words  # keyed hashes, (units, 2)
    starts: Integers  # where the rows of each unit begin, (units,)
    rows: NDArray[np.int32]  # whole numbers, (n, m)

    @classmethod
    def of(cls, ids: Words, rows: NDArray[np.int32]) -> UnitBlock:
        """Build a block from rows grouped by unit; ``ids`` has one id per row."""
        new = np.any(ids[1:] != ids[:-1], axis=1)
        starts = np.flatnonzero(np.append(len(ids) > 0, new))
        return cls(ids[starts], starts, rows)

    @property
    def sizes(self) -> Integers:
        """Number of rows of each unit."""
        return np.diff(np.append(self.starts, len(self.rows)))

    def chosen(self, units: NDArray[np.bool_]) -> UnitBlock:
        """Return some of the units."""
        sizes = self.sizes[units]
        starts = np.cumsum(sizes) - sizes
        return UnitBlock(self.ids[units], starts, self.rows[np.repeat(units, self.sizes)])

    def pieces(self, rows: int) -> Iterator[tuple[Floats, Integers]]:
        """Yield whole units, as float rows and starts, of at most ``rows`` rows together, or one larger unit."""
        stops = self.starts + self.sizes
        first = 0
        while first < len(stops):
            begin = self.starts[first]
            last = max(int(np.searchsorted(stops, begin + rows, side="right")), first + 1)
            part = self.rows[begin : stops[last - 1]].astype(np.float64)
            yield part, self.starts[first:last] - begin
            first = last


def truncated(block: UnitBlock, unit: PrivacyUnit, key: bytes) -> UnitBlock:
    """Return at most j rows of each unit if contributions are bounded by sampling, by a hash of unit, row and copy.

    Equal rows of one unit are distinguished by a copy number 0, 1, …. The choice is a function of the key and of the
    unit's rows only, in any order. It is not by content alone, which would select the same kind of row in every unit.
    """
    sizes = block.sizes
    if unit.contribution_bounding != "sample" or not len(sizes) or sizes.max() <= unit.max_contributions:
        return block
    owner, m = np.repeat(np.arange(len(sizes)), sizes), block.rows.shape[1]
    padded = np.zeros((len(block.rows), m + m % 2), dtype="<i4")  # to whole 64-bit words
    padded[:, :m] = block.rows
    words = padded.view("<u8").astype(np.uint64)
    content = siphash(np.column_stack([block.ids[owner], words]), derive_key(key, b"row"))
    copy = _copies(owner, content)
    order = siphash(np.column_stack([content, copy]), derive_key(key, b"copy"))
    ranked = np.lexsort((order, owner))
    rank = np.arange(len(owner)) - np.repeat(block.starts, sizes)
    first = ranked[rank < unit.max_contributions]
    left = np.minimum(sizes, unit.max_contributions)
    return UnitBlock(block.ids, np.cumsum(left) - left, block.rows[first])


def _copies(owner: Integers, content: Words) -> Words:
    """Return the number of equal rows of the same unit before each row."""
    ranked = np.lexsort((content, owner))
    new = np.append(True, (owner[ranked][1:] != owner[ranked][:-1]) | (content[ranked][1:] != content[ranked][:-1]))
    begins = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    copies = np.empty(len(owner), dtype=np.uint64)
    copies[ranked] = (np.arange(len(new)) - begins).astype(np.uint64)
    return copies


_RESERVOIR = 2**18  # rows beyond which those that are not chosen are discarded


def one_row_each(batches: Iterable[pa.RecordBatch], column: str, key: bytes) -> Iterator[pa.RecordBatch]:
    """Yield one row of each unit, chosen uniformly, in batches without the unit's column.

    The row with the smallest keyed hash of unit and position is kept. With a new key for every reading, the choice in
    a unit is uniform and independent of all other units, whatever the order of the rows: two tables that differ by a
    unit give tables with the same distribution, but for the row of that unit. Memory is that of the rows kept. Rows
    keep the types of their batch: a common type would change how rows of one file are read because of another one.
    """
    kept: list[tuple[Words, pa.RecordBatch]] = []  # id and priority of each row, and the rows
    held = smallest = seen = 0

    def reduced() -> list[tuple[Words, pa.RecordBatch]]:
        marks = np.concatenate([marks for marks, _ in kept])
        order = np.lexsort(marks.T[::-1])
        chosen = np.zeros(len(marks), dtype=np.bool_)
        chosen[order[np.append(True, (marks[order][1:, :2] != marks[order][:-1, :2]).any(axis=1))]] = True
        found: dict[pa.Schema, tuple[list[Words], list[pa.RecordBatch]]] = {}  # by the types of columns
        for (own, rows), part in zip(
            kept, np.split(chosen, np.cumsum([len(own) for own, _ in kept])[:-1]), strict=True
        ):
            if part.any():
                same_marks, same_rows = found.setdefault(rows.schema, ([], []))
                same_marks.append(own[part])
                same_rows.append(rows.filter(pa.array(part)))
        return [(np.concatenate(own), _one_batch(rows)) for own, rows in found.values()]

    for batch in batches:
        ids = unit_ids(column, batch.column(column), key)
        places = np.arange(seen, seen + len(ids), dtype=np.uint64)
        priority = siphash(np.column_stack([ids, places]), derive_key(key, b"one row"))
        rows = batch.drop_columns([column])
        decoded = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in rows.columns]
        kept.append((np.column_stack([ids, priority]), pa.RecordBatch.from_arrays(decoded, names=rows.schema.names)))
        held, seen = held + len(ids), seen + len(ids)
        if held > smallest + _RESERVOIR:
            kept = reduced()
            held = smallest = sum(len(own) for own, _ in kept)
    if kept:
        yield from (rows for _, rows in reduced())


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (found,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


# ---------------------------------------------------------------------------------------------------------------
# Files without names
class _Spool:
    """A sequence of byte arrays, in memory up to a limit, then in an unnamed file."""

    def __init__(self) -> None:
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 - closed by close
        self._end = 0

    def append(self, array: NDArray[Any]) -> int:
        """Write an array and return its position."""
        at, content = self._end, np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
        try:
            self._file.seek(at)
            self._file.write(content)
        except OSError:
            raise OutputError(_NO_ROOM) from None
        self._end += content.nbytes
        return at

    def read(self, at: int, out: NDArray[Any]) -> None:
        """Fill an array from a position."""
        content = out.view(np.uint8).reshape(-1).data
        self._file.seek(at)
        if self._file.readinto(content) != content.nbytes:
            raise OutputError(
                "The temporary file of rows grouped by privacy unit was truncated during use. Run the release again."
            )

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        self.close()


class Partitions:
    """Group rows that arrive in any order into whole units, one partition at a time."""

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
        """Write the pending rows, grouped by partition."""
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
        """Yield all units, each once, in an order determined by the key."""
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
        """Discard all data."""
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
        """Yield all blocks in their original order."""
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
        """Discard all data."""
        self._spool.close()


def in_sample(ids: Words, sample: Sample) -> NDArray[np.bool_]:
    """Return which units are in a sample, by their ids, independently of other units.

    Under one secret key a unit has one sampling key for samples of all rates, and is in those whose threshold is above.
    """
    return np.asarray(siphash(ids, sample.key[:16]) >> np.uint64(48) < sample.threshold)


def whole_units(stream: Generator[tuple[Words, Floats]]) -> Iterator[UnitBlock]:
    """Yield blocks of whole units. The last unit of a piece is held back, because the next may contain more rows."""
    waiting: list[tuple[Words, NDArray[np.int32]]] = []
    with closing(stream):
        for ids, rows in stream:
            whole = rows.astype(np.int32)
            last = len(ids) - int(np.argmax(np.append((ids[::-1] != ids[-1]).any(axis=1), True)))
            if last or (waiting and (waiting[-1][0][-1] != ids[0]).any()):
                parts = [*waiting, (ids[:last], whole[:last])]
                yield UnitBlock.of(*(np.concatenate(part) for part in zip(*parts, strict=True)))
                waiting = []
            waiting.append((ids[last:], whole[last:]))
    if waiting:
        yield UnitBlock.of(*(np.concatenate(part) for part in zip(*waiting, strict=True)))
