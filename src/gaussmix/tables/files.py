"""Tables in files: which files a path, a folder or a pattern means, and readers of Parquet and Arrow IPC.

A folder that cannot be read is an error, never left out. Of a Parquet file only names, types and numbers of rows are
taken from the footer. Its statistics are not looked at: pyarrow ends the process where they are damaged or encrypted.
Memory follows the batches and not the row groups.
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
from typing import Any, Literal

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from gaussmix.errors import ArgumentError, DataError, MissingFileError
from gaussmix.tables.reading import READAHEAD, Request, check_columns, readable, row_bytes, sliced, unreadable, valid

__all__ = [
    "ARROW",
    "CSV",
    "PARQUET",
    "arrow_batches",
    "arrow_schema",
    "files_of",
    "format_of",
    "is_path",
    "parquet_batches",
    "parquet_schema",
    "suffix_of",
]

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2", ".csv.zst", ".tsv.zst")


def is_path(data: Any) -> bool:
    """Whether the source is named by a path."""
    return isinstance(data, str | os.PathLike)


def suffix_of(path: Any) -> str:
    """How a file's name ends, compression included."""
    name = Path(os.fspath(path)).name.lower()
    return next((suffix for suffix in (*PARQUET, *CSV) if name.endswith(suffix)), Path(name).suffix)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a directory or a pattern means, sorted."""
    whole = Path(os.fspath(path))
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        found = sorted(file for file in _below(whole) if suffix_of(file) in (*PARQUET, *ARROW, *CSV))
        if not found:
            raise MissingFileError(f"The directory {str(path)!r} holds no Parquet, Arrow or CSV file.")
        return found
    if glob.has_magic(str(path)):
        found = sorted({file for file in _matching(whole) if not _is_folder(file)})
        if not found:
            raise MissingFileError(f"No file matches {str(path)!r}.")
        return found
    if os.path.lexists(whole):
        raise MissingFileError(f"{whole} is neither a file nor a folder (or a link to nothing). Name a file.")
    raise MissingFileError(f"There is no file {str(path)!r}.")


def format_of(file: Path) -> Literal["parquet", "arrow", "csv"]:
    """What a file is, by its name; an error if it is none of these, empty, or no plain file."""
    suffix = suffix_of(file)
    if suffix not in (*PARQUET, *ARROW, *CSV):
        known = ", ".join((*PARQUET, *ARROW, *CSV[:2]))
        raise ArgumentError(f"{file} must end in one of {known} (CSV also compressed).")
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ArgumentError(f"{file} is no plain file. Write its content to one.")
    if not status.st_size:
        raise DataError(f"{file} is empty. Write it again, or leave it out.")
    if suffix in PARQUET:
        return "parquet"
    return "arrow" if suffix in ARROW else "csv"


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


_SMALL_ROW_GROUP = 64 * 2**20  # bytes when decoded
_SMALL_FILE = 64 * 2**20  # bytes: below, compressed columns are read whole
_PARQUET_BUFFER = 2**18  # bytes of a column that are read at a time


def parquet_schema(file: Path) -> pa.Schema:
    """Names and types of the columns."""
    with readable(str(file)):
        found = pa.parquet.read_schema(file)
        found.names  # noqa: B018  # decodes the names
        return found


def parquet_batches(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Batches of the columns asked for."""
    where = str(file)
    schema = parquet_schema(file)
    check_columns(schema.names, request.columns, where)
    try:
        yield from _ahead(_decoded(file, request.columns, request, schema))
    except (pa.ArrowException, OSError):
        raise _damaged(file, request, where, schema) from None


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


_MAGIC = b"ARROW1"  # of the file format


def arrow_schema(file: Path) -> pa.Schema:
    """Names and types of the columns."""
    with readable(str(file)), _opened(file, None) as reader:
        return reader.schema


def arrow_batches(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Batches of the columns asked for. The file is read batch by batch, as it was written."""
    where = str(file)
    names = arrow_schema(file).names
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
