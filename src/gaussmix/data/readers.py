"""Readers of CSV, Parquet and Arrow IPC files, and the files that a path, directory or glob stands for.

A directory that cannot be read is an error. Files are read in sorted order. Only names, types and row counts are taken
from the footer of a Parquet file, because damaged or encrypted statistics crash pyarrow. Memory depends on the size of
batches, not of row groups.

The columns of CSV and TSV files have declared types, and no line can change how another is read. Arrow's parser lets a
quoted field continue over line ends, and closes an open quote at the end of the file, so a stray ``"`` could absorb
other rows. Lines are therefore counted and quotes examined between file and parser. A row that spans several lines has
at least two that are not blank, so the parser returns fewer rows than there are lines; only in the last line can a
quote stay open unnoticed, and that line is checked. Both checks are exact.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from gaussmix.data.remote import RemoteFile, filesystem_of, remote_files, without_password
from gaussmix.data.source import (
    READAHEAD,
    AnyFile,
    CsvOptions,
    FileFormat,
    FileOrigin,
    Part,
    ReadOptions,
    Request,
    Seen,
    Table,
    bad_name,
    check_columns,
    readable,
    row_bytes,
    sliced,
    unreadable,
    valid,
)
from gaussmix.errors import ArgumentError, DataError, DataTypeError, GaussmixError, MissingFileError

T = TypeVar("T")
_CSV_BLOCK = 4 * 2**20  # bytes
_COMPRESSION = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


class Csv(FileFormat):
    """CSV and TSV files."""

    name = "CSV"
    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2", ".csv.zst", ".tsv.zst")
    types_are_guessed = True

    def schema(self, file: AnyFile, csv: CsvOptions) -> pa.Schema:
        """Return names of the columns, and types inferred from the first block, for templates only."""
        where = str(file)
        with readable(where):
            try:
                with _opened_csv(file, csv, pa.csv.ConvertOptions(**_missing_words(csv))) as (reader, _):
                    found = reader.schema
                    found.names  # noqa: B018  # decodes the names
                    return found
            except LineError as error:
                raise _line_error(str(error), where) from None

    def read(self, file: AnyFile, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns, each read as its declared type."""
        where, columns = str(file), request.columns
        header: list[str] = []
        try:
            with _opened_csv(file, csv, pa.csv.ConvertOptions()) as (reader, _):  # the header; nothing is converted
                header = reader.schema.names
            if not csv.quoting_of(self.suffix_of(file) or "") and any(f'"{name}"' in header for name in columns):
                raise DataError(f"{where} has column names in quotes. Declare quoting=True if its fields are quoted.")
            check_columns(header, columns, where)
            convert = _conversion(request, csv, where)
            with _opened_csv(file, csv, convert, blank_lines=len(header) == 1) as (reader, lines):
                rows = 1  # the header
                for batch in reader:
                    rows += batch.num_rows
                    arrays = [  # an empty field is missing in a text column as in any other
                        pc.if_else(pc.equal(array, ""), None, array) if pa.types.is_string(array.type) else array
                        for array in batch.columns
                    ]
                    yield from sliced(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), request.rows)
            wanted = lines.count if len(header) == 1 else lines.count - lines.blank
            if rows != wanted and not csv.quoted_newlines:
                raise LineError("a field with a line break within quotes, or a stray quote")
        except UnicodeDecodeError:
            raise bad_name(where) from None
        except LineError as error:
            raise _line_error(str(error), where) from None
        except (pa.ArrowException, OSError) as error:
            raise _csv_error(str(error), header, where) from None


def _conversion(request: Request, csv: CsvOptions, where: str) -> Any:
    """Return Arrow's conversion options, with the declared type of every column."""
    for name in request.columns:
        if name not in request.types:
            raise DataTypeError(f"Column {name!r} of {where} has no declared type. Declare it in types.")
        if pa.types.is_fixed_size_list(request.types[name]):
            raise DataTypeError(
                f"Column {name!r} of {where} is declared as a vector, which a CSV file cannot hold. "
                "Declare its entries as separate columns, or write a Parquet file."
            )
    types = {name: request.types[name] for name in request.columns}
    plain = pa.csv.ConvertOptions()
    return pa.csv.ConvertOptions(
        include_columns=request.columns,
        column_types=types,
        true_values=[*plain.true_values, "1.0"],  # pandas writes booleans with missing values as floats
        false_values=[*plain.false_values, "0.0"],
        **_missing_words(csv),
    )


def _missing_words(options: CsvOptions) -> dict[str, Any]:
    """Return Arrow's options for declared missing-value codes."""
    missing = options.na_values
    return {} if missing is None else {"null_values": ["", *missing], "strings_can_be_null": True}


@contextmanager
def _opened_csv(
    file: AnyFile, options: CsvOptions, convert: Any, *, blank_lines: bool = False
) -> Iterator[tuple[Any, CheckedLines]]:
    """Yield Arrow's reader and its checked input."""
    suffix = Csv().suffix_of(file) or ""
    delimiter, quoting = options.delimiter or ("\t" if ".tsv" in suffix else ","), options.quoting_of(suffix)
    lines = CheckedLines(
        pa.input_stream(
            file.open() if isinstance(file, RemoteFile) else str(file),
            compression=_COMPRESSION.get(suffix.rpartition(".")[2]),
            buffer_size=0,
        ),
        delimiter.encode(),
        quoting=quoting,
        quoted_newlines=options.quoted_newlines,
        skip_initial_space=options.skip_initial_space,
    )
    with lines:
        reader = pa.csv.open_csv(
            pa.PythonFile(lines, mode="r"),
            read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoting else False,
                newlines_in_values=options.quoted_newlines,
                ignore_empty_lines=not blank_lines,
            ),
            convert_options=convert,
        )
        with reader:
            yield reader, lines


def _line_error(words: str, where: str) -> DataError:
    return DataError(
        f"{where} has {words}. Correct the file; or declare quoted_newlines=True if fields may contain line breaks, "
        "or quoting=False if quotes are ordinary characters."
    )


def _csv_error(words: str, header: Sequence[str], where: str) -> DataError:
    """Return an error without the values that Arrow's message quotes."""
    found = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([\w\[\]]+)", words)
    if found and int(found[1]) < len(header):
        name = header[int(found[1])]
        if found[2] == "bool":
            return DataError(
                f"Column {name!r} of {where} must hold true and false, or 1 and 0. Correct the file, or declare its "
                'values as levels, such as ["no", "yes"]; codes for missing values as na_values (--na-value).'
            )
        if "string" in found[2]:  # the only text that is not a string
            return DataError(f"Column {name!r} of {where} is not in the encoding UTF-8. Convert the file.")
        kind = {"double": "numbers (with decimal points)"}.get(found[2], f"values of the type {found[2]}")
        return DataError(
            f"Column {name!r} of {where} must hold {kind}, as the schema declares. "
            "Correct the file or the schema; declare codes for missing values (na_values, --na-value)."
        )
    if re.search(r"Expected \d+ columns, got \d+", words):
        return DataError(
            f"{where} has lines with too many or too few fields. Every line must have as many fields as the header; "
            "look for a stray quote or a delimiter within a field."
        )
    if "out of sync" in words:
        return _line_error("a field with a line break within quotes, or a stray quote", where)
    if "straddl" in words:
        return _line_error(f"a line of more than {_CSV_BLOCK // 2**20} MB, or a stray quote", where)
    return unreadable(where)


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE = ord('"')


class LineError(ValueError):
    """A line that could change how others are read; its message completes "the file has ..."."""


class CheckedLines(io.RawIOBase):
    r"""A binary stream that passes on another stream, counts its lines and checks its quotes.

    Parameters
    ----------
    stream : object with ``read(n)`` and ``close()``
    delimiter : bytes
        One byte.
    quoting, quoted_newlines, skip_initial_space : bool
        As in :class:`gaussmix.data.source.CsvOptions`.

    Examples
    --------
    >>> lines = CheckedLines(io.BytesIO(b"a,b\n\n1,2"), b",", quoting=True)
    >>> lines.read(100), lines.read(100)
    (b'a,b\n\n1,2', b'')
    >>> lines.count, lines.blank
    (3, 1)
    """

    def __init__(
        self,
        stream: Any,
        delimiter: bytes,
        *,
        quoting: bool,
        quoted_newlines: bool = False,
        skip_initial_space: bool = False,
    ) -> None:
        self._stream, self._delimiter = stream, delimiter
        self._quoting, self._quoted_newlines, self._skip = quoting, quoted_newlines, skip_initial_space
        self.count = self.blank = 0  # lines, and how many of them have nothing in them
        self._last = b""  # byte of what was passed on; none yet
        self._tail: list[bytes] = []  # two pieces, with the last line that is not blank
        self._partial = b""  # beginning of a line whose spaces are not yet removed
        self._inside = False  # a quoted field goes on after what was passed on (quoted_newlines)
        self._ended = False
        self._reading = threading.Lock()

    def readable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def close(self) -> None:
        """Close both streams after Arrow's read-ahead thread has finished its read.

        Otherwise that thread could continue with a reused file descriptor and read bytes of another file.
        """
        with self._reading:
            if not self.closed:
                self._stream.close()
            super().close()

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes; fewer or none at the end."""
        with self._reading:
            return b"" if self.closed else self._next(size)

    def _next(self, size: int) -> bytes:
        piece = b""
        while not piece and not self._ended:
            piece = self._whole(size - len(self._partial))
            self._ended = not piece
            if self._skip:
                piece = self._without_spaces(piece, size)
            if not self._last:
                piece = piece.removeprefix(_BYTE_ORDER_MARK)
        if piece:
            self._count(piece)
            if self._quoting and self._quoted_newlines:
                self._follow_quotes(piece)
            if piece.strip(b"\r\n"):
                self._tail = [*self._tail[-1:], piece]
            self._last = piece[-1:]
        elif self._last:  # the end of the file
            self.count += self._last not in b"\r\n"
            self._last = b""
            text = b"".join(self._tail).rstrip(b"\r\n")
            line = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
            is_open = self._inside if self._quoted_newlines else _ends_in_quotes(line, self._delimiter)
            if self._quoting and is_open:
                raise LineError("a quote that is not closed")
        return piece

    def _whole(self, size: int) -> bytes:
        """Read this number of bytes, also from a decompressor that returns fewer at a time."""
        found = [bytes(self._stream.read(size))]
        while found[-1] and (missing := size - sum(map(len, found))) > 0:
            found.append(bytes(self._stream.read(missing)))
        return b"".join(found) if len(found) > 1 else found[0]

    def _count(self, piece: bytes) -> None:
        r"""Count line ends as Arrow does: ``\n``, ``\r\n`` and ``\r``. A line end after a line end is a blank line."""
        data = np.frombuffer(piece, dtype=np.uint8)
        feed = data == ord("\n")
        self.count += int(np.count_nonzero(feed))
        self.blank += int(np.count_nonzero(feed[1:] & feed[:-1]))
        if b"\r" in piece:
            back = data == ord("\r")
            self.count += int(np.count_nonzero(back) - np.count_nonzero(feed[1:] & back[:-1]))
            self.blank += int(np.count_nonzero(back[1:] & (feed | back)[:-1]))
        first, before = piece[:1], self._last or b"\n"
        if first + before == b"\n\r":
            self.count -= 1  # the other half of the last line end
        elif first in b"\r\n" and before in b"\r\n":
            self.blank += 1

    def _follow_quotes(self, piece: bytes) -> None:
        """Check that every quote begins a field, ends a field, or is doubled within a field."""
        allowed = b'"\r\n' + self._delimiter
        opens = piece[:1] == b'"' and not self._inside
        closed = self._last == b'"' and not self._inside
        # What cannot be seen within the piece: its first byte and the one before.
        at_start = (opens and self._last not in allowed) or (closed and piece[:1] not in allowed)
        data = np.frombuffer(piece, dtype=np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        opening, closing = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        around = np.zeros(256, dtype=bool)
        around[[_QUOTE, *self._delimiter, *b"\r\n"]] = True
        self._inside ^= bool(len(quotes) % 2)
        before, after = data[opening[opening > 0] - 1], data[closing[closing < len(data) - 1] + 1]
        if at_start or not (around[before].all() and around[after].all()):
            raise LineError("a quote in the middle of a field")

    def _without_spaces(self, piece: bytes, size: int) -> bytes:
        """Remove the spaces before the fields of complete lines; keep an incomplete line for the next call.

        What is passed on begins with a line, wherever the file was cut: all lines are stripped alike.
        """
        lines = self._partial + piece
        cut = len(lines) if self._ended else max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1
        lines, self._partial = lines[:cut], lines[cut:]
        if len(self._partial) >= size:
            raise LineError(f"a line of {size:,} bytes or more")
        if b'"' in lines and self._quoting:
            start = rb"(^|[\r\n" + re.escape(self._delimiter) + rb"]) *(\"(?:[^\"\r\n]|\"\")*\")?"
            return re.sub(start, rb"\1\2", lines)
        for before in (self._delimiter, b"\n", b"\r"):
            while before + b" " in lines:
                lines = lines.replace(before + b" ", before)
        return lines.lstrip(b" ")


def _ends_in_quotes(line: bytes, delimiter: bytes) -> bool:
    """Return whether a quoted field of the line is not closed, with fields separated as Arrow does."""
    start = 0
    while 0 <= start < len(line):
        if line[start] == _QUOTE:
            end = line.find(b'"', start + 1)
            while end >= 0 and line[end + 1 : end + 2] == b'"':
                end = line.find(b'"', end + 2)
            if end < 0:
                return True
            start = end
        found = line.find(delimiter, start)
        start = found + 1 if found >= 0 else -1
    return False


PARQUET = (".parquet", ".pq")
"""Suffixes of Parquet files."""

_SMALL_ROW_GROUP = 64 * 2**20  # bytes when decoded
_SMALL_FILE = 64 * 2**20  # bytes: below, compressed columns are read whole
_PARQUET_BUFFER = 2**18  # bytes of a column that are read at a time


class FileTable(Table):
    """The files of a path, directory or glob pattern."""

    def __init__(self, data: str | os.PathLike[str], options: ReadOptions) -> None:
        if isinstance(data, str) and url_scheme(data) in _LOCAL:
            data = local_path(data)
        super().__init__(data, options)
        self.label, self.paths, self.csv = str(os.fspath(data)), (data,), options.csv or CsvOptions()

    def files(self) -> Sequence[AnyFile]:
        """Return the files, sorted."""
        return files_of(self._data)

    def parts(self, request: Request, seen: Seen) -> Iterator[Part]:
        """Yield the batches of all files with the name of each. One thread decodes them, across files."""
        files = self.files()
        return ahead((str(file), batch) for file in files for batch in format_of(file).read(file, request, self.csv))

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the first file."""
        first = self.files()[0]
        return format_of(first).schema(first, self.csv)

    @property
    def types_are_guessed(self) -> bool:
        """Whether one of the files is untyped."""
        return any(format_of(file).types_are_guessed for file in self.files())

    @property
    def n_rows(self) -> int | None:
        """Number of rows if all files state it. **Sensitive**."""
        try:
            found = [format_of(file).n_rows(file) for file in self.files()]
        except (pa.ArrowException, OSError, GaussmixError):
            return None  # the error comes, in our words, when the rows are read
        known = [rows for rows in found if rows is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def origins(self) -> tuple[Any, ...]:
        """The files with their current state."""
        return tuple(map(FileOrigin, self.files()))


class UrlTable(FileTable):
    """The files of a URL, such as that of a directory or a glob pattern in an object store."""

    def __init__(self, data: str, options: ReadOptions) -> None:
        super().__init__(data, options)
        self.label, self.paths = without_password(data), ()
        self._opened: tuple[Any, str, str] | None = None

    def files(self) -> Sequence[AnyFile]:
        """Return the files, sorted."""
        if self._opened is None:
            self._opened = filesystem_of(self._data)
        return remote_files(self._data, self._opened, _SUFFIXES, _LAKEHOUSES)


# ---------------------------------------------------------------------------------------------------------------
# Parquet
class Parquet(FileFormat):
    """Parquet files."""

    name = "Parquet"
    suffixes = PARQUET

    def schema(self, file: AnyFile, csv: CsvOptions) -> pa.Schema:
        """Return names and types of the columns."""
        with readable(str(file)), _source(file) as source:
            found = pa.parquet.read_schema(source)
            found.names  # noqa: B018  # decodes the names
            return found

    def read(self, file: AnyFile, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns."""
        where = str(file)
        with readable(where), _source(file) as source:
            metadata = pa.parquet.read_metadata(source)
            schema = metadata.schema.to_arrow_schema()
            schema.names  # noqa: B018  # decodes the names
        check_columns(schema.names, request.columns, where)
        try:
            yield from _decoded(file, request.columns, request, schema, metadata)
        except (pa.ArrowException, OSError):
            raise _damaged(file, request, where, schema, metadata) from None

    def n_rows(self, file: AnyFile) -> int | None:
        """Return the number of rows. **Sensitive**."""
        with _source(file) as source:
            return int(pa.parquet.read_metadata(source).num_rows)


@contextmanager
def _source(file: AnyFile) -> Iterator[Any]:
    """Yield what Arrow opens: a path, or an open remote file, which is closed afterwards."""
    if isinstance(file, RemoteFile):
        with file.open() as opened:
            yield opened
    else:
        yield file


def _size(file: AnyFile) -> int:
    return file.size if isinstance(file, RemoteFile) else file.stat().st_size


def _decoded(
    file: AnyFile, columns: list[str], request: Request, schema: pa.Schema, metadata: Any
) -> Iterator[pa.RecordBatch]:
    """Decode small row groups whole, which is faster, and large ones page by page, which bounds memory."""
    # A dataset's scanner is no faster, and holds up to 1 GiB where rows are used more slowly than they are read.
    # Through a buffer a page that claims to have 2 GB, in a damaged file, is given them before it is read.
    buffer = _PARQUET_BUFFER if _size(file) > _SMALL_FILE else 0
    row, rows = row_bytes(columns, request.types), request.rows
    texts = [name for name in columns if schema.field(name).type in (pa.string(), pa.large_string(), pa.binary())]
    with (
        _source(file) as source,
        pa.parquet.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=False,
            buffer_size=buffer,
            page_checksum_verification=True,
            read_dictionary=texts,  # a long text is in memory once
        ) as opened,
    ):
        for index in range(opened.num_row_groups):
            group = opened.metadata.row_group(index)
            # At least what its columns take when decoded: a few bytes of a file may mean many equal values.
            if max(group.total_byte_size, group.num_rows * row) <= _SMALL_ROW_GROUP:
                found = opened.read_row_group(index, columns=columns).to_batches(max_chunksize=rows)
            else:
                found = opened.iter_batches(rows, row_groups=[index], columns=columns)
            for batch in found:
                batch.validate(full=True)
                yield batch.select(columns)


def ahead(found: Generator[T]) -> Generator[T]:
    """Yield batches, decoding the next ones in the background, in one thread: drivers of databases may require that.

    What was abandoned may be collected in any thread, this one's own included, and while that thread holds the locks
    under which pools take tasks: none is waited for, and no task is submitted. The thread closes ``found`` when it
    ends.
    """
    pool = ThreadPoolExecutor(1, initializer=_ClosedAtEnd, initargs=(found,))
    coming: deque[Future[T | None]] = deque()
    try:
        coming.extend(pool.submit(next, found, None) for _ in range(READAHEAD))
        while (batch := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, found, None))
            yield batch
    finally:
        for future in coming:
            future.cancel()
        pool.shutdown(wait=False)


_of_thread = threading.local()  # whose values Python deletes in their thread when it ends


class _ClosedAtEnd:
    """A generator that is closed when the thread ends in which this object was made."""

    def __init__(self, found: Generator[Any]) -> None:
        self._found = found
        _of_thread.closing = self

    def __del__(self) -> None:
        with suppress(Exception):
            self._found.close()


def _damaged(file: AnyFile, request: Request, where: str, schema: pa.Schema, metadata: Any) -> DataError:
    """Find the column that cannot be decoded, for the message."""
    for name in request.columns:
        try:
            for _ in _decoded(file, [name], request, schema, metadata):
                pass
        except (pa.ArrowException, OSError):
            return DataError(f"Column {name!r} of {where} cannot be read: the file is corrupt. Write it again.")
    return unreadable(where)


# ---------------------------------------------------------------------------------------------------------------
# Arrow IPC
_MAGIC = b"ARROW1"  # of the file format


class ArrowIpc(FileFormat):
    """Arrow IPC files in the file format (Feather 2) or the stream format, distinguished by their first bytes."""

    name = "Arrow"
    suffixes = (".arrow", ".arrows", ".feather", ".ipc")

    def schema(self, file: AnyFile, csv: CsvOptions) -> pa.Schema:
        """Return names and types of the columns."""
        with readable(str(file)), _opened(file, None) as reader:
            return reader.schema

    def read(self, file: AnyFile, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns. The file is read batch by batch, as it was written."""
        where = str(file)
        names = self.schema(file, csv).names
        check_columns(names, request.columns, where)
        wanted = [names.index(name) for name in request.columns]
        with readable(where), _opened(file, wanted) as reader:
            batches = reader
            if isinstance(reader, pa.RecordBatchFileReader):
                batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
            for batch in batches:
                yield from sliced(valid(batch.select(request.columns), where), request.rows)


@contextmanager
def _opened(file: AnyFile, wanted: list[int] | None) -> Iterator[Any]:
    """Yield a reader of some columns; None for all."""
    options = pa.ipc.IpcReadOptions(included_fields=[] if wanted is None else sorted(wanted), use_threads=False)
    with file.open() if isinstance(file, RemoteFile) else pa.OSFile(str(file), "rb") as handle:
        whole = handle.read(len(_MAGIC)) == _MAGIC
        handle.seek(0)
        with (pa.ipc.open_file if whole else pa.ipc.open_stream)(handle, options=options) as reader:
            yield reader


# ---------------------------------------------------------------------------------------------------------------
# Formats and names
FORMATS: tuple[FileFormat, ...] = (Parquet(), ArrowIpc(), Csv())
"""Supported file formats, distinguished by the suffix."""

PLAIN_SUFFIXES = tuple(suffix for known in FORMATS for suffix in known.suffixes if suffix.count(".") == 1)
"""Suffixes of uncompressed files."""


def format_of(file: AnyFile) -> FileFormat:
    """Return the format of a file by its suffix. Reject unknown suffixes, empty files and special files."""
    found = _named_format(file)
    if found is None:
        raise ArgumentError(f"{file} must end in one of {', '.join(PLAIN_SUFFIXES)} (CSV files may be compressed).")
    if not isinstance(file, RemoteFile) and not stat.S_ISREG(file.stat().st_mode):
        raise ArgumentError(f"{file} must be a regular file.")
    if not _size(file):
        raise DataError(f"{file} is empty. Write it again or omit it.")
    return found


_SUFFIXES = tuple(suffix for known in FORMATS for suffix in known.suffixes)


def _named_format(file: AnyFile) -> FileFormat | None:
    return next((known for known in FORMATS if known.suffix_of(file) is not None), None)


_LOCAL = ("file", "local")


def url_scheme(name: str) -> str:
    """Return the scheme of a URL in lower case, empty for a path."""
    found = re.match(r"([a-z][a-z0-9+.-]+)://", name, re.IGNORECASE)
    return found[1].lower() if found else ""


def is_url(name: str) -> bool:
    """Return whether a name is a URL of a file that is not a local path."""
    return url_scheme(name) not in ("", *_LOCAL)


def local_path(location: str) -> Path:
    """Return a path that names a location; that of a local file or directory if it is one."""
    found = urlsplit(location)
    if url_scheme(location) in _LOCAL and found.netloc not in ("", "localhost"):
        raise ArgumentError(
            f"The URL of a local file must have an absolute path, such as {found.scheme}:///data/x.csv."
        )
    return Path(unquote(found.path)) if found.scheme in ("", *_LOCAL) else Path(location)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path, directory or glob pattern, sorted."""
    whole = Path(os.fspath(path))
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        found = sorted(file for file in _below(whole) if _named_format(file) is not None)
        refuse_lakehouse([whole, *found])
        if not found:
            *names, last = [known.name for known in FORMATS]
            raise MissingFileError(f"The directory {str(path)!r} contains no {', '.join(names)} or {last} file.")
        return found
    if glob.has_magic(str(path)):
        found = sorted({file for file in _matching(whole) if not _is_folder(file)})
        if not found:
            raise MissingFileError(f"No file matches {str(path)!r}.")
        refuse_lakehouse(found)
        return found
    if os.path.lexists(whole):
        raise MissingFileError(
            f"{whole} is neither a file nor a directory. If it is a link, its target may be missing."
        )
    raise MissingFileError(f"The file {str(path)!r} does not exist.")


_LAKEHOUSES = {
    "_delta_log": ("a Delta Lake table", "Pass deltalake.DeltaTable(...) or a Spark data frame."),
    "metadata/*.metadata.json": ("an Iceberg table", "Pass the table of a pyiceberg catalog or a Spark data frame."),
    ".hoodie": ("a Hudi table", "Pass a Spark data frame."),
    "_hudi": ("a Hudi table", "Pass a Spark data frame."),
}
"""What marks the directory of a table that keeps earlier versions of its rows beside the current ones."""


def refuse_lakehouse(paths: Sequence[Path]) -> None:
    """Reject paths in or below the directory of a table with versions: superseded rows would be counted too."""
    # Names are resolved once for each directory: tables may have thousands of files.
    parents = {path.parent: path.parent.resolve() for path in paths}
    found = {path.resolve() if path.is_symlink() else parents[path.parent] / path.name for path in paths}
    above = {path.parent for path in found}
    folders = above.union(*(folder.parents for folder in above), (path for path in found if path.is_dir()))
    for folder in sorted(folders):
        for mark, (kind, remedy) in _LAKEHOUSES.items():
            if next(folder.glob(mark), None) is not None:
                raise ArgumentError(
                    f"{folder} is {kind}. The folder also contains superseded and deleted rows, which must not be "
                    f"counted. {remedy}"
                )


def _below(folder: Path) -> Iterator[Path]:
    """Return the files of a directory and its subdirectories, except names that begin with a dot or an underscore."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise DataError(
                f"The directory {here} is reached twice through a link; rows would be double-counted. Remove the link."
            )
        seen.add((status.st_dev, status.st_ino))
        for path in _entries(here):
            if path.name[0] not in "._":
                if _is_folder(path):
                    waiting.append(path)
                else:
                    yield path


def _matching(pattern: Path) -> Iterator[Path]:
    """Return the paths that match a pattern. Unlike `glob.glob`, raise an error for unreadable directories."""
    found = [Path(pattern.anchor)] if pattern.anchor else [Path()]
    parts = pattern.parts[bool(pattern.anchor) :]
    for part in (*parts, "*") if parts[-1] == "**" else parts:
        if part == "**":
            found = [path for folder in found for path in _folders(folder)]
        elif glob.has_magic(part):
            paths = [path for folder in found if _is_folder(folder) for path in _entries(folder)]
            shown = (path for path in paths if part.startswith(".") or not path.name.startswith("."))
            found = [path for path in shown if fnmatch.fnmatchcase(path.name, part)]
        else:
            found = [folder / part for folder in found if os.path.lexists(folder / part)]
    yield from found


def _folders(folder: Path) -> Iterator[Path]:
    """Return a directory and all directories below it, without following links."""
    if _is_folder(folder):
        yield folder
        for path in _entries(folder):
            if not path.name.startswith(".") and not path.is_symlink() and _is_folder(path):
                yield from _folders(path)


def _entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a directory; raise an error if it cannot be read."""
    with os.scandir(folder) as found:
        return sorted(folder / entry.name for entry in found)


def _is_folder(path: Path) -> bool:
    """Equivalent to `Path.is_dir`, but raise an error if the answer cannot be determined."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False
