"""The `Table` interface, read options, checks of columns and batches, and error messages common to all tables.

A kind of table is a subclass of `Table`, found by `gaussmix.data.table.kind_of`. Only the requested columns
are read, one bounded batch after the other, so memory does not grow with the table. Errors name the file and the
column, never a value. Read options are declared by the caller, never inferred from the rows.

>>> CsvOptions(skip_initial_space=True).quoting_of(".csv")
True
>>> ReadOptions(expected_rows=5000).expected_rows
5000
"""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gaussmix._text import plain
from gaussmix._validation import positive_integer
from gaussmix.data.encode import is_text
from gaussmix.data.remote import RemoteFile
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError, GaussmixError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    r"""Options for reading CSV and TSV files.

    Parameters
    ----------
    delimiter : str, optional
        Character between fields, such as ``";"``. Default: a comma, in TSV files a tab.
    skip_initial_space : bool
        Leave out spaces after a delimiter and at the beginning of a line, as in ``a, b``. Without it ``" b"`` and
        ``"b"`` are different texts.
    na_values : tuple of str, optional
        Fields that mean a missing value, in columns of every type; the empty field always does. Default: ``NA``,
        ``NaN``, ``null`` and the like in columns of numbers and booleans, the empty field alone in columns of text.
    quoted_newlines : bool
        Allow line breaks within quotes. A stray quote can then swallow other rows up to the next one: without it,
        every such line is an error.
    quoting : bool, optional
        Whether ``"`` encloses fields. Default: in CSV files it does, in TSV files it is an ordinary character.
    """

    delimiter: str | None = None
    skip_initial_space: bool = False
    na_values: tuple[str, ...] | None = None
    quoted_newlines: bool = False
    quoting: bool | None = None

    def __post_init__(self) -> None:
        for name in ("skip_initial_space", "quoted_newlines"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if self.delimiter is not None and not _is_delimiter(self.delimiter):
            raise ArgumentError(
                f"delimiter must be one ASCII character other than a quote, a space or a line break, "
                f"got {self.delimiter!r}."
            )
        if self.quoting not in (None, True, False):
            raise ArgumentTypeError(f"quoting must be True, False or None, got {self.quoting!r}.")
        if self.na_values is not None:
            values = (self.na_values,) if isinstance(self.na_values, str) else tuple(self.na_values)
            if wrong := [type(value).__name__ for value in values if not isinstance(value, str)]:
                raise ArgumentTypeError(f"na_values must be strings, got {wrong[0]}.")
            object.__setattr__(self, "na_values", values)
        if self.quoted_newlines and self.skip_initial_space:
            raise ArgumentError(
                "skip_initial_space and quoted_newlines cannot be combined. Remove the spaces from the file."
            )
        if self.quoted_newlines and self.quoting is False:
            raise ArgumentError("quoted_newlines requires quoting. Omit quoting=False.")

    def quoting_of(self, suffix: str) -> bool:
        """Return whether quotes enclose fields in a file with this suffix."""
        if self.quoting is not None:
            return self.quoting
        return self.quoted_newlines or ".tsv" not in suffix


def _is_delimiter(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in '" \r\n\0'


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading a table.

    Parameters
    ----------
    csv : CsvOptions, optional
        How CSV files are written.
    expected_rows : int, optional
        Raise an error if the table has a different number of rows.
    progress : bool
        Show a progress bar on a terminal. It shows row counts, which are for the curator.
    row_by_row : bool
        Declare that each stored row affects at most one row of a query's result. By default a DuckDB or Spark plan that
        has other operators than scans, filters and projections is an error (in DuckDB also UNION ALL of different
        tables), and so is a `Query`, whose plan cannot be examined.
    sorted_by_unit : bool
        Declare that the rows of each privacy unit are adjacent, which is checked.
    persist : bool
        Store the declared columns of a Spark data frame on the disks of the executors in the first reading, until the
        release is finished or has failed. Spark encrypts them only with ``spark.io.encryption.enabled``.
    """

    csv: CsvOptions | None = None
    expected_rows: int | None = None
    progress: bool = False
    row_by_row: bool = False
    sorted_by_unit: bool = False
    persist: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.csv, CsvOptions | None):
            raise ArgumentTypeError(f"csv must be CsvOptions or None, got {type(self.csv).__name__}.")
        if self.expected_rows is not None:
            positive_integer(expected_rows=self.expected_rows)
        for name in ("progress", "row_by_row", "sorted_by_unit", "persist"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")


BATCH_ROWS = 2**16
"""Number of rows per batch: 11 MB for 22 columns, several blocks per thread. Wide rows have smaller batches."""

READAHEAD = 3
"""Number of batches decoded in the background."""

_BATCH_BYTES = 2**24
_VALUE_BYTES = 8  # of a number, or of a text's place in its dictionary

CHANGED = (
    "The table changed between two passes, so the release was stopped. Use a table that does not change during the "
    "release."
)
"""The message does not say what changed: that would reveal information about rows."""

Part = tuple[str, pa.RecordBatch]
"""A batch, and the name of its table in messages."""


@dataclass(frozen=True)
class Request:
    """A request to a table: columns, maximum number of rows per batch, and types of untyped columns."""

    columns: list[str]
    rows: int
    types: dict[str, pa.DataType]
    examine_plan: bool = False  # reject a query in which one stored row may change several rows of the result


AnyFile = Path | RemoteFile
"""A local file, or a file at a URL."""


class FileOrigin(NamedTuple):
    """A file that holds the rows of a table, or a query on one."""

    path: AnyFile
    query: str = ""


STANDARD_INPUT = "standard-input"
"""Name, without its suffix, of the copy of standard input, which is in another folder in every process."""


def _described(origin: Any) -> str:
    """Return a path and query, or the kind of an object."""
    if not isinstance(origin, FileOrigin):
        return type(origin).__name__
    path = origin.path.resolve()
    return f"{path.name if path.name.startswith(f'{STANDARD_INPUT}.') else path} {origin.query.strip()}".strip()


class Table:
    """A table of any kind, before it is read. **Sensitive**.

    A subclass yields its rows in `read` (or in `parts`, if it has several tables or files); where the defaults below do
    not hold it overrides them.

    Attributes
    ----------
    options : ReadOptions
    label : str
        Name of the table in messages.
    ordered : bool
        Whether a row is at the same position in every reading.
    computed : bool
        Whether rows come from a query, a lazy frame or a stream, and not from a table that is stored as such.
    reuses_buffers : bool
        Whether a batch may be overwritten when the next one is requested, as a generator or a reader may do. Such
        batches are used by one thread.
    single_use : str or None
        What can be read only once, as the subject of a message; None if the table can be read again.
    unit_column : str or None
        A column each value of which has one row by construction, so that its values are privacy units.
    within : str or None
        The privacy-unit column without which the table must not be released, because its rows are functions of several
        rows of a unit.
    paths : tuple of paths
        Files, folders and patterns that are read: an output must not be among them.
    readings, rows : int
        Number of complete readings, and of rows in the last one, **sensitive**: those that a sample or ``drop-row``
        leaves out are counted too.
    key : bytes or None
        32 secret bytes for `row_digests`; by default drawn for a table that an engine computes.
    digest : int
        Sum of `row_digests` over the last reading, **sensitive**; 0 without a key, where files are compared.
    """

    ordered: bool = True
    computed: bool = False
    reuses_buffers: bool = False
    single_use: str | None = None
    unit_column: str | None = None
    within: str | None = None
    paths: tuple[str | os.PathLike[str], ...] = ()

    def __init__(self, data: Any, options: ReadOptions) -> None:
        self._data, self.options = data, options
        self.label = f"the {type(data).__name__}"
        self.readings = self.rows = self.digest = 0
        self.key: bytes | None = None
        self._digests: dict[tuple[str, ...], int] = {}  # by the columns that were read
        self._files: list[tuple[Any, ...]] = []

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches with exactly the requested columns, of at most ``request.rows`` rows."""
        raise NotImplementedError

    def arrow_schema(self) -> pa.Schema:
        """Return names and types of the columns without reading rows; for CSV files, types of the first block.

        An error where that is impossible: tables of a list may differ, and an iterator may be readable only once.
        """
        raise DataTypeError(
            f"The columns of {self.label} cannot be determined without reading rows. Pass one table or a file."
        )

    @property
    def types_are_guessed(self) -> bool:
        """Whether `schema` examines rows to find types, as for CSV files."""
        return False

    @property
    def n_rows(self) -> int | None:
        """Number of rows if it is known without reading them; otherwise None. **Sensitive**."""
        return None

    @property
    def origins(self) -> tuple[Any, ...]:
        """Files and queries (`FileOrigin`) and objects that hold the rows: they identify a table read before."""
        return (self._data,)

    @property
    def described(self) -> list[str]:
        """Paths and queries, or kinds of objects: what may be stored of a table and is the same in another process."""
        return [_described(origin) for origin in self.origins]

    def identity(self, *, streamed: bool) -> tuple[Any, ...]:
        """Return the object that may occur only once in a table; ``streamed`` marks an item of an iterator."""
        return self.origins

    def parts(self, request: Request, seen: Seen) -> Iterator[Part]:
        """Yield batches with the name of their table or file."""
        return ((self.label, batch) for batch in self.read(request))

    def schema(self) -> pa.Schema:
        """Return `arrow_schema`. Duplicate column names are an error."""
        found = self.arrow_schema()
        check_columns(found.names, found.names, self.label)
        return found

    def batches(
        self,
        columns: Sequence[str],
        *,
        types: Mapping[str, pa.DataType] | None = None,
        batch_rows: int | None = None,
        examine_plan: bool = False,
        describe: str = "Reading",
    ) -> Generator[pa.RecordBatch]:
        """Yield the rows in bounded batches. Closing the generator closes files and queries.

        Parameters
        ----------
        columns : sequence of str
            Columns to read, in the order in which they come back. No other column is read.
        types : mapping of str to pyarrow.DataType, optional
            Types of columns that have none of their own (`Schema.text_types`): fields of CSV files, lists and other
            columns of Python objects. Each value is read by itself; nothing is guessed from the rows.
        batch_rows : int, optional
            Maximum number of rows of a batch. Default: `BATCH_ROWS`, or as many as 16 MiB hold where ``types`` declares
            long vectors or there are many columns.
        examine_plan : bool
            Reject a DuckDB query in which one stored row may change several rows of the result, unless
            ``options.row_by_row`` declares that none does, which is an error for stored tables.
        describe : str
            Description of the progress bar, where there is one.

        Raises
        ------
        ValueError, TypeError
            If a column is absent, occurs twice or changes its type, if a file is unreadable, if there are no rows or
            not the expected number. For the curator, as in `gaussmix.data.encode.encode_batch`.
        """
        names, declared = list(columns), dict(types or {})
        if not names or len(set(names)) < len(names):
            raise DataError("columns must contain at least one name and no duplicates.")
        if batch_rows is None:
            batch_rows = max(min(BATCH_ROWS, _BATCH_BYTES // row_bytes(names, declared)), 1)
        positive_integer(batch_rows=batch_rows)
        if examine_plan and self.options.row_by_row and not self.computed:
            raise ArgumentError("row_by_row has no effect on a stored table. Omit it.")
        if examine_plan and self.computed and self.single_use is None:
            self.draw_key()
        found = self._checked(Request(names, batch_rows, declared, examine_plan and not self.options.row_by_row))
        return with_progress(found, self.n_rows, description=describe) if self.options.progress else found

    def _checked(self, request: Request) -> Generator[pa.RecordBatch]:
        """Yield batches, checking the types of columns and the number of rows.

        A table that is not what it was in the first reading is an error: by its number of rows, by its files' sizes and
        times or, if an engine computes it, by its rows.

        Errors are chained to nothing, for the messages of other libraries may quote values.
        """
        if self.readings:
            self.check_again()
        files = [_state(origin.path) for origin in self.origins if isinstance(origin, FileOrigin)]
        seen, kinds = Seen(), dict[str, str]()
        last_schema: pa.Schema | None = None
        rows = digest = 0
        try:
            seen.add(self)
            for where, batch in self.parts(request, seen):
                if not batch.num_rows:
                    continue
                if last_schema is None or not batch.schema.equals(last_schema):
                    last_schema = batch.schema
                    for column in batch.schema:
                        kind = _kind_of(column.type)
                        before = kinds.setdefault(column.name, kind)
                        if before == "nothing":
                            kinds[column.name] = kind
                        elif kind not in (before, "nothing"):
                            raise DataTypeError(
                                f"Column {column.name!r} changes its type from {before} to {kind} in {where}. The "
                                "column must have the same type in all parts of the table. Cast it."
                            )
                rows += batch.num_rows
                batch = _plain(batch)
                if self.key is not None:
                    digest += int(row_digests(batch, self.key).sum())
                yield batch
        except GaussmixError as error:
            error.__cause__ = error.__context__ = None
            raise
        digest %= 2**64
        if self.readings and files != self._files:
            raise DataError(CHANGED)
        self.finish_reading(request.columns, rows, digest)
        self._files = files

    def draw_key(self) -> bytes:
        """Return the key of `row_digests`, drawn once."""
        if self.key is None:
            self.key = os.urandom(32)
        return self.key

    def finish_reading(self, columns: Sequence[str], rows: int, digest: int) -> None:
        """Check and note the number of rows of a reading and their digest. Other rows than before are an error."""
        expected = self.options.expected_rows
        if expected is not None and rows != expected:
            raise unexpected_rows(expected)
        if not rows:
            raise DataError("The table has no rows. Check the path, query or filter.")
        same = self._digests.setdefault(tuple(columns), digest) == digest
        if self.readings and (not same or rows != self.rows):
            raise DataError(CHANGED)
        self.rows, self.digest = rows, digest
        self.readings += 1

    def check_unit(self, column: str | None) -> None:
        """Reject another privacy unit than the one whose rows were combined (`within`)."""
        if self.within not in (None, column):
            raise ArgumentError(
                f"{self.label} has rows that are functions of several rows with the same {self.within}. Release it "
                f'with privacy_unit=gm.PrivacyUnit("{self.within}", ...).'
            )

    def check_again(self) -> None:
        """Raise an error if the table can be read only once."""
        if self.single_use is not None:
            raise ArgumentError(
                f"{self.single_use} can be read only once, but a release in several passes reads the table several "
                "times. Pass a list, a data frame or a file path, or set passes=1."
            )


def _state(file: AnyFile) -> tuple[Any, ...]:
    """Return what changes when a file is written again; nothing for a path that is no file."""
    if isinstance(file, RemoteFile):
        return file.state()
    if not file.is_file():
        return ()
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileFormat(ABC):
    """A format of files, registered in :data:`gaussmix.data.readers.FORMATS`."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]  # endings of file names, in lower case
    types_are_guessed: ClassVar[bool] = False  # whether `schema` examines rows to find types

    @abstractmethod
    def schema(self, file: AnyFile, csv: CsvOptions) -> pa.Schema:
        """Return names and types of the columns."""

    @abstractmethod
    def read(self, file: AnyFile, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches with exactly the requested columns, of at most ``request.rows`` rows."""

    def n_rows(self, file: AnyFile) -> int | None:
        """Return the number of rows if the file states it; otherwise None. **Sensitive**."""
        return None

    def suffix_of(self, file: AnyFile) -> str | None:
        """Return the suffix of a file name, including compression, if it belongs to this format; otherwise None."""
        return next((suffix for suffix in self.suffixes if file.name.lower().endswith(suffix)), None)


# ---------------------------------------------------------------------------------------------------------------
# Checks that hold for every kind
@dataclass
class Seen:
    """Files, queries and objects that were read. A row counted twice would have a weaker guarantee."""

    files: dict[Hashable, str] = field(default_factory=dict)
    listed: dict[int, Any] = field(default_factory=dict)
    streamed: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)

    def add(self, table: Table, *, streamed: bool = False) -> None:
        """Reject a file, a query or an object that was read before."""
        for origin in table.identity(streamed=streamed):
            if isinstance(origin, FileOrigin):
                path, query = origin.path, origin.query.strip().rstrip(";").rstrip()
                status = path.stat() if isinstance(path, Path) and path.exists() else None
                key = (path if status is None else (status.st_dev, status.st_ino), query)
                if key in self.files and query:
                    raise DataError(f"Duplicate query on {path}: rows would be double-counted. Pass it once.")
                if key in self.files:
                    raise DataError(
                        f"{path} is the same file as {self.files[key]}: rows would be double-counted. "
                        "Pass every file once, without links."
                    )
                self.files[key] = str(path)
            elif id(origin) in self.listed or id(origin) in self.streamed:
                raise DataError("Duplicate input table: rows would be double-counted. Pass every table once.")
            elif not streamed:
                self.listed[id(origin)] = origin  # its list holds it too
            else:
                with suppress(TypeError):  # dictionaries, lists and tuples have no weak references
                    self.streamed[id(origin)] = origin  # forgotten with the object: another may have its id then


def _kind_of(kind: pa.DataType) -> str:
    """Return the kind of a column, which must not change between parts: integers may become floats, but not text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return "nothing"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "vectors"
    return str(kind)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace extension types by their storage, and views of text or bytes, which few Arrow functions support."""
    arrays = []
    for array in batch.columns:
        array = array.storage if isinstance(array, pa.ExtensionArray) else array
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        elif pa.types.is_binary_view(array.type):
            array = array.cast(pa.large_binary())
        elif pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
        arrays.append(array)
    if all(array is before for array, before in zip(arrays, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def row_digests(batch: pa.RecordBatch, key: bytes) -> NDArray[np.uint64]:
    r"""Return a keyed hash of 64 bits for each row: :math:`\mathrm{mix}(\sum_j k_j w_j)` modulo 2⁶⁴.

    w_j is the value of column j as a word, k_j an odd multiplier from the key, and mix the bijection of SplitMix64
    (Steele, Lea and Flood, 2014). Sums over rows do not depend on their order. They detect engines that compute other
    rows in another pass, not an adversary, who does not see them.
    """
    total = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        seed = hashlib.blake2b(name.encode(), key=key, digest_size=8).digest()
        total += _words(column, key) * (np.frombuffer(seed, dtype=np.uint64)[0] | np.uint64(1))
    return _mixed(total)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(column: pa.Array, key: bytes) -> NDArray[np.uint64]:
    """Return the values of a column as words: bits of numbers, hashes of texts, sums over the entries of vectors."""
    kind = column.type
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        ends = np.cumsum(sizes)
        places = (np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)).astype(np.uint64)
        entries = _mixed(_words(pc.list_flatten(column), key) + places * np.uint64(0x9E3779B97F4A7C15))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(entries, dtype=np.uint64)])
        return np.asarray(sums[ends] - sums[ends - sizes])
    if isinstance(column, pa.DictionaryArray) or is_text(kind) or pa.types.is_binary(kind):
        column = column.dictionary_encode()  # does nothing where it is one
        values = [None if value is None else str(value).encode() for value in column.dictionary.to_pylist()]
        hashes = b"".join(hashlib.blake2b(value or b"", key=key, digest_size=8).digest() for value in values)
        found: NDArray[np.uint64] = np.append(np.frombuffer(hashes, dtype="<u8").astype(np.uint64), np.uint64(0))
        places = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.asarray(found[places])
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    try:
        words = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # NaN where missing
    except pa.ArrowException:  # no column of a schema: the encoder rejects it
        return np.zeros(len(column), dtype=np.uint64)
    bits: NDArray[np.uint64] = np.ascontiguousarray(words).view(np.uint64)
    return np.where(np.isnan(words), np.uint64(1), bits)


def row_bytes(columns: Collection[str], types: Mapping[str, pa.DataType]) -> int:
    """Return the size of a decoded row in bytes, from the declared columns and sizes of vectors."""
    found = [types[name] for name in columns if name in types and pa.types.is_fixed_size_list(types[name])]
    vectors = sum(int(kind.list_size) for kind in found)
    return _VALUE_BYTES * (vectors + len(columns) - len(found))


MOST_NAMES = 30
"""Maximum number of columns that a message lists."""


def check_columns(found: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Raise an error unless every requested column occurs exactly once."""
    for name in columns:
        count = list(found).count(name)
        if count > 1:
            raise duplicate_column(name, where)
        if not count:
            way = "Correct the name in the schema or privacy unit, or add the column."
            if any(other.strip() == name.strip() for other in found):
                way = (
                    "The table has a column whose name differs only in spaces: for CSV files declare "
                    "skip_initial_space."
                )
            elif any(other.casefold() == name.casefold() for other in found):
                way = "The table has a column whose name differs only in case: use the table's spelling."
            elif has_other_delimiter(found):
                way += f" {OTHER_DELIMITER}"
            elif any(other in columns for other in found):  # else the first line of a file may be a row, not names
                near = difflib.get_close_matches(name, found, n=1)
                meant = f"Did you mean {near[0]!r}? " if near else ""
                way = f"{meant}{way} The table has {_listed(found)}."
            raise DataError(f"Column {name!r} is not in {where}. {way}")


OTHER_DELIMITER = (
    "The table has only one column: if it is a CSV file, declare the character between its fields (delimiter, "
    "--delimiter)."
)


def has_other_delimiter(names: Sequence[str]) -> bool:
    """Return whether a single name looks like a header with another delimiter than the one that was declared."""
    return len(names) == 1 and any(mark in names[0] for mark in ";|\t")


def _listed(names: Sequence[str]) -> str:
    """Return the first names of columns, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(plain, names[:MOST_NAMES])) + more


# ---------------------------------------------------------------------------------------------------------------
# Errors
def duplicate_column(name: str, where: str) -> DataError:
    """Return the error for a name that two columns have."""
    return DataError(f"Column {name!r} occurs twice in {where}. Rename one of them.")


def unexpected_rows(expected: int) -> DataError:
    """Return the error for an unexpected number of rows."""
    return DataError(
        f"The table does not have expected_rows={expected} rows. Check the path, query or filter, or correct "
        "expected_rows."
    )


def unreadable(where: str) -> DataError:
    """Return the error for a damaged file."""
    return DataError(f"{where} cannot be read: it is truncated, corrupt or in another format. Write it again.")


def bad_name(where: str) -> DataError:
    """Return the error for a column name that is not text."""
    return DataError(f"{where} has a column name that is not valid UTF-8. Rename the column.")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Replace the errors of a reader, which may quote values."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except UnicodeDecodeError:
        raise bad_name(where) from None
    except (pa.ArrowException, OSError):
        raise unreadable(where) from None


def guarded(found: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Yield batches and replace the errors of their reader."""
    with readable(where):
        yield from found


def running(start: Callable[[], Iterable[Any]], where: str, *, keep: type[Exception] | None = None) -> Iterator[Any]:
    """Start an engine and yield its results; replace its errors, which may quote values, except those to ``keep``."""
    try:
        yield from start()
    except Exception as error:
        if keep is not None and isinstance(error, keep):
            raise
        raise DataError(f"{where} failed. Run it separately for the details.") from None


def valid(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Return the batch after checking its offsets, dictionary indices and texts, which Arrow does not check."""
    with readable(where):
        batch.validate(full=True)
    return batch


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into batches of at most ``rows`` rows."""
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


# ---------------------------------------------------------------------------------------------------------------
# Progress
def with_progress(
    found: Generator[pa.RecordBatch],
    total_rows: int | None = None,
    *,
    description: str = "Reading",
    console: Console | None = None,
) -> Generator[pa.RecordBatch]:
    """Yield batches, and show the number of rows and the remaining time on standard error.

    Shows nothing where standard error is not a terminal: the number of rows is sensitive and belongs in no log. Without
    ``total_rows`` no time left is shown.
    """
    with closing(found):
        # rich, which takes a log for a terminal where FORCE_COLOR is set, is loaded where something is shown.
        if not (sys.stderr.isatty() if console is None else console.is_terminal):
            yield from found
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        console = Console(stderr=True, force_terminal=True) if console is None else console
        shown: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description} {task.completed:,.0f} rows")]
        if total_rows is not None:
            shown += [BarColumn(), TimeRemainingColumn()]
        with Progress(*shown, console=console, transient=True) as progress:
            task = progress.add_task(description, total=total_rows)
            for batch in found:
                yield batch
                progress.advance(task, batch.num_rows)
