"""Tables in files: which files a path, a folder or a pattern means, and readers of Parquet and Arrow IPC.

A folder that cannot be read is an error, never left out. Files are read in sorted order. Of a Parquet file only names,
types and numbers of rows are taken from the footer. Its statistics are not looked at: pyarrow ends the process where
they are damaged or encrypted. Memory follows the batches and not the row groups.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from gaussmix.errors import ArgumentError, DataError, GaussmixError, MissingFileError
from gaussmix.tables.base import (
    READAHEAD,
    FileFormat,
    FileOrigin,
    Part,
    Request,
    Seen,
    Table,
    check_columns,
    readable,
    row_bytes,
    sliced,
    unreadable,
    valid,
)
from gaussmix.tables.csv_files import Csv
from gaussmix.tables.options import CsvOptions, ReadOptions

__all__ = ["FORMATS", "PARQUET", "PLAIN_SUFFIXES", "FileTable", "files_of", "format_of"]

PARQUET = (".parquet", ".pq")
"""Endings of names of Parquet files."""

_SMALL_ROW_GROUP = 64 * 2**20  # bytes when decoded
_SMALL_FILE = 64 * 2**20  # bytes: below, compressed columns are read whole
_PARQUET_BUFFER = 2**18  # bytes of a column that are read at a time


class FileTable(Table):
    """The files that a path, a folder or a pattern means."""

    description = "a path of files"

    def __init__(self, data: str | os.PathLike[str], options: ReadOptions) -> None:
        super().__init__(data, options)
        self.label, self.paths = str(os.fspath(data)), (data,)

    @classmethod
    def of(cls, data: Any, options: ReadOptions) -> Table | None:
        """Recognise a path."""
        return cls(data, options) if isinstance(data, str | os.PathLike) else None

    @property
    def files(self) -> list[Path]:
        """The files as they are now, sorted."""
        return files_of(self._data)

    def parts(self, request: Request, seen: Seen) -> Iterator[Part]:
        """Yield the batches of all files with the name of each."""
        return ((str(file), batch) for file in self.files for batch in format_of(file).read(file, request, self.csv))

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the first file."""
        first = self.files[0]
        return format_of(first).schema(first, self.csv)

    @property
    def types_are_guessed(self) -> bool:
        """Whether one of the files has no types."""
        return any(format_of(file).types_are_guessed for file in self.files)

    @property
    def n_rows(self) -> int | None:
        """Number of rows if all files state it. **Sensitive**."""
        try:
            found = [format_of(file).n_rows(file) for file in self.files]
        except (pa.ArrowException, OSError, GaussmixError):
            return None  # the error comes, in our words, when the rows are read
        known = [rows for rows in found if rows is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def origins(self) -> tuple[Any, ...]:
        """The files as they are now."""
        return tuple(map(FileOrigin, self.files))


# ---------------------------------------------------------------------------------------------------------------
# Parquet
class Parquet(FileFormat):
    """Parquet files."""

    name = "Parquet"
    suffixes = PARQUET

    def schema(self, file: Path, csv: CsvOptions) -> pa.Schema:
        """Return names and types of the columns."""
        with readable(str(file)):
            found = pa.parquet.read_schema(file)
            found.names  # noqa: B018  # decodes the names
            return found

    def read(self, file: Path, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns."""
        where = str(file)
        schema = self.schema(file, csv)
        check_columns(schema.names, request.columns, where)
        try:
            yield from _ahead(_decoded(file, request.columns, request, schema))
        except (pa.ArrowException, OSError):
            raise _damaged(file, request, where, schema) from None

    def n_rows(self, file: Path) -> int | None:
        """Return the number of rows. **Sensitive**."""
        return int(pa.parquet.read_metadata(file).num_rows)


def _decoded(file: Path, columns: list[str], request: Request, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Small row groups are decoded whole, which is faster; large ones page by page, so that memory stays flat."""
    # A dataset's scanner is no faster, and holds up to 1 GiB where rows are used more slowly than they are read.
    # Through a buffer a page that claims to have 2 GB, in a damaged file, is given them before it is read.
    buffer = _PARQUET_BUFFER if file.stat().st_size > _SMALL_FILE else 0
    row, rows = row_bytes(columns, request.types), request.rows
    texts = [name for name in columns if _is_text(schema.field(name).type)]  # a long text is in memory once
    with pa.parquet.ParquetFile(
        file,
        pre_buffer=False,
        buffer_size=buffer,
        page_checksum_verification=True,
        read_dictionary=texts,
    ) as opened:
        for index in range(opened.num_row_groups):
            if _decoded_bytes(opened.metadata.row_group(index), row) <= _SMALL_ROW_GROUP:
                found = opened.read_row_group(index, columns=columns).to_batches(max_chunksize=rows)
            else:
                found = opened.iter_batches(rows, row_groups=[index], columns=columns)
            for batch in found:
                batch.validate(full=True)
                yield batch.select(columns)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _decoded_bytes(row_group: Any, row: int) -> int:
    """At least what the row group's columns take when decoded: a few bytes of a file may mean many equal values."""
    return int(max(row_group.total_byte_size, row_group.num_rows * row))


def _ahead(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the next batches in the background while one is used.

    What was abandoned may be collected in any thread, this one's own included: none is waited for.
    """
    pool = ThreadPoolExecutor(1)
    try:
        coming = deque(pool.submit(next, found, None) for _ in range(READAHEAD))
        while (batch := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, found, None))
            yield batch
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _damaged(file: Path, request: Request, where: str, schema: pa.Schema) -> DataError:
    """Find the column that cannot be decoded, for the message."""
    for name in request.columns:
        try:
            for _ in _decoded(file, [name], request, schema):
                pass
        except (pa.ArrowException, OSError):
            return DataError(f"Column {name!r} of {where} cannot be read: the file is corrupt. Write it again.")
    return unreadable(where)


# ---------------------------------------------------------------------------------------------------------------
# Arrow IPC
_MAGIC = b"ARROW1"  # of the file format


class ArrowIpc(FileFormat):
    """Arrow IPC files, of the file format (Feather 2) or of the stream format: the first bytes tell which."""

    name = "Arrow"
    suffixes = (".arrow", ".arrows", ".feather", ".ipc")

    def schema(self, file: Path, csv: CsvOptions) -> pa.Schema:
        """Return names and types of the columns."""
        with readable(str(file)), _opened(file, None) as reader:
            return reader.schema

    def read(self, file: Path, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns. The file is read batch by batch, as it was written."""
        where = str(file)
        names = self.schema(file, csv).names
        check_columns(names, request.columns, where)
        wanted = [names.index(name) for name in request.columns]
        with readable(where), _opened(file, wanted) as reader:
            for batch in _all(reader):
                yield from sliced(valid(batch.select(request.columns), where), request.rows)


@contextmanager
def _opened(file: Path, wanted: list[int] | None) -> Iterator[Any]:
    """A reader of some columns; None: of all."""
    options = pa.ipc.IpcReadOptions(included_fields=[] if wanted is None else sorted(wanted), use_threads=False)
    with pa.OSFile(str(file), "rb") as handle:
        whole = handle.read(len(_MAGIC)) == _MAGIC
        handle.seek(0)
        with (pa.ipc.open_file if whole else pa.ipc.open_stream)(handle, options=options) as reader:
            yield reader


def _all(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return (reader.get_batch(index) for index in range(reader.num_record_batches))
    return iter(reader)


# ---------------------------------------------------------------------------------------------------------------
# Formats and names
FORMATS: tuple[FileFormat, ...] = (Parquet(), ArrowIpc(), Csv())
"""The formats of files that are read, told apart by the file's name."""

PLAIN_SUFFIXES = tuple(suffix for known in FORMATS for suffix in known.suffixes if suffix.count(".") == 1)
"""Endings of names of files that are not compressed."""


def format_of(file: Path) -> FileFormat:
    """Return the format of a file, by its name; raise an error if it has none, is empty, or is not a regular file."""
    found = _named_format(file)
    if found is None:
        raise ArgumentError(f"{file} must end in one of {', '.join(PLAIN_SUFFIXES)} (CSV also compressed).")
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ArgumentError(f"{file} is no plain file. Write its content to one.")
    if not status.st_size:
        raise DataError(f"{file} is empty. Write it again, or leave it out.")
    return found


def _named_format(file: Path) -> FileFormat | None:
    return next((known for known in FORMATS if known.suffix_of(file) is not None), None)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files that a path, a directory or a pattern means, sorted."""
    whole = Path(os.fspath(path))
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        found = sorted(file for file in _below(whole) if _named_format(file) is not None)
        if not found:
            *names, last = [known.name for known in FORMATS]
            raise MissingFileError(f"The directory {str(path)!r} holds no {', '.join(names)} or {last} file.")
        return found
    if glob.has_magic(str(path)):
        found = sorted({file for file in _matching(whole) if not _is_folder(file)})
        if not found:
            raise MissingFileError(f"No file matches {str(path)!r}.")
        return found
    if os.path.lexists(whole):
        raise MissingFileError(f"{whole} is neither a file nor a folder (or a link to nothing). Name a file.")
    raise MissingFileError(f"There is no file {str(path)!r}.")


def _below(folder: Path) -> Iterator[Path]:
    """Files of a folder and its subfolders but for hidden ones, whose names begin with a dot or an underscore."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise DataError(f"The folder {here} is reached twice, by a link: its rows would be counted twice.")
        seen.add((status.st_dev, status.st_ino))
        for path in _entries(here):
            if path.name[0] not in "._":
                if _is_folder(path):
                    waiting.append(path)
                else:
                    yield path


def _matching(pattern: Path) -> Iterator[Path]:
    """What a pattern means; `glob.glob` would leave out what it may not look into."""
    found = [Path(pattern.anchor)] if pattern.anchor else [Path()]
    parts = pattern.parts[bool(pattern.anchor) :]
    for part in (*parts, "*") if parts[-1] == "**" else parts:
        if part == "**":
            found = [path for folder in found for path in _folders(folder)]
        elif glob.has_magic(part):
            found = [path for folder in found if _is_folder(folder) for path in _entries(folder) if _fits(path, part)]
        else:
            found = [folder / part for folder in found if os.path.lexists(folder / part)]
    yield from found


def _folders(folder: Path) -> Iterator[Path]:
    """The folder and all folders below; links are not followed, as in a shell."""
    if _is_folder(folder):
        yield folder
        for path in _entries(folder):
            if not path.name.startswith(".") and not path.is_symlink() and _is_folder(path):
                yield from _folders(path)


def _fits(path: Path, pattern: str) -> bool:
    name = path.name
    return fnmatch.fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted; an error if it cannot be read."""
    with os.scandir(folder) as found:
        return sorted(folder / entry.name for entry in found)


def _is_folder(path: Path) -> bool:
    """Unlike `Path.is_dir`, an error where it cannot be known; a link to nothing is no folder."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False
