"""Batches of a CSV or TSV file: types are declared, and no line can change how another is read.

Arrow's parser lets a quoted field run over the end of its line, whatever it is told, and takes a quote that is never
closed for one that ends with the file: a stray ``"`` then swallows the rows of others. So lines are counted, and quotes
examined, on the way from the file to the parser. A row made of several lines has two that are not blank, that of the
first quote and that of the last, so the parser has found fewer rows than there are lines; only in the last line of a
file can a quote stay open without that. Both checks are exact, and counting costs next to nothing.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gaussmix.errors import DataError, DataTypeError
from gaussmix.tables.base import FileFormat, Request, bad_name, check_columns, readable, sliced, unreadable
from gaussmix.tables.options import CsvOptions

__all__ = ["CheckedLines", "Csv", "LineError"]

_CSV_BLOCK = 4 * 2**20  # bytes
_COMPRESSION = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


class Csv(FileFormat):
    """CSV and TSV files."""

    name = "CSV"
    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2", ".csv.zst", ".tsv.zst")
    types_are_guessed = True

    def schema(self, file: Path, csv: CsvOptions) -> pa.Schema:
        """Return names of the columns, and types as the first block suggests them: for a template, never to read."""
        where = str(file)
        with readable(where):
            try:
                with _opened(file, csv, pa.csv.ConvertOptions(**_missing_words(csv))) as (reader, _):
                    found = reader.schema
                    found.names  # noqa: B018  # decodes the names
                    return found
            except LineError as error:
                raise _line_error(str(error), where) from None

    def read(self, file: Path, request: Request, csv: CsvOptions) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns, each read as its declared type."""
        where, columns = str(file), request.columns
        header: list[str] = []
        try:
            with _opened(file, csv, pa.csv.ConvertOptions()) as (reader, _):  # the header; nothing is converted
                header = reader.schema.names
            if not csv.quoting_of(self.suffix_of(file) or "") and any(f'"{name}"' in header for name in columns):
                raise DataError(
                    f"{where} has column names in quotes. Declare quoting=True if quotes enclose its fields."
                )
            check_columns(header, columns, where)
            convert = _conversion(request, csv, where)
            with _opened(file, csv, convert, blank_lines=len(header) == 1) as (reader, lines):
                rows = 1  # the header
                for batch in reader:
                    rows += batch.num_rows
                    yield from sliced(_empty_text_is_missing(batch), request.rows)
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
    """How Arrow reads the fields: every column as its declared type."""
    undeclared = [name for name in request.columns if name not in request.types]
    if undeclared:
        raise DataTypeError(
            f"Column {undeclared[0]!r} of {where} has no declared type, and a type that is guessed from the first rows "
            "would change how others are read. Declare it in types."
        )
    vectors = [name for name in request.columns if pa.types.is_fixed_size_list(request.types[name])]
    if vectors:
        raise DataTypeError(
            f"Column {vectors[0]!r} of {where} is declared as a vector, which a CSV file cannot hold. "
            "Declare its entries as columns of their own, or write a Parquet file."
        )
    types = {name: request.types[name] for name in request.columns}
    return pa.csv.ConvertOptions(include_columns=request.columns, column_types=types, **_missing_words(csv))


def _missing_words(options: CsvOptions) -> dict[str, Any]:
    """What declared words for missing values mean to Arrow."""
    missing = options.na_values
    return {} if missing is None else {"null_values": ["", *missing], "strings_can_be_null": True}


@contextmanager
def _opened(
    file: Path, options: CsvOptions, convert: Any, *, blank_lines: bool = False
) -> Iterator[tuple[Any, CheckedLines]]:
    """Arrow's reader, and the lines that it is given."""
    suffix = Csv().suffix_of(file) or ""
    delimiter, quoting = "\t" if ".tsv" in suffix else ",", options.quoting_of(suffix)
    lines = CheckedLines(
        pa.input_stream(str(file), compression=_COMPRESSION.get(suffix.rpartition(".")[2]), buffer_size=0),
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


def _empty_text_is_missing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An empty field is missing in a text column as in any other."""
    arrays = [
        pc.if_else(pc.equal(array, ""), None, array) if pa.types.is_string(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _line_error(words: str, where: str) -> DataError:
    return DataError(
        f"{where} has {words}. Correct the file; or declare quoted_newlines=True if fields may run over several lines, "
        "or quoting=False if quotes are ordinary characters."
    )


def _csv_error(words: str, header: Sequence[str], where: str) -> DataError:
    """Arrow's words quote the line: only what they are about is passed on."""
    found = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([\w\[\]]+)", words)
    if found and int(found[1]) < len(header):
        name = header[int(found[1])]
        kind = {"double": "a number", "bool": "true or false, 1 or 0"}.get(found[2], f"of the type {found[2]}")
        return DataError(
            f"Column {name!r} of {where} has a field that is not {kind}, as the schema says. "
            "Correct the file, or the column's declaration; declare fields that mean a missing value with na_values."
        )
    if re.search(r"Expected \d+ columns, got \d+", words):
        return DataError(
            f"{where} has lines with too many or too few fields. Every line must have the header's fields; "
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
    """A line that could change how others are read; its words end the sentence "the file has ..."."""


class CheckedLines(io.RawIOBase):
    r"""A binary stream that passes another one on, and knows its lines in the end.

    Parameters
    ----------
    stream : object with ``read(n)`` and ``close()``
    delimiter : bytes
        One byte.
    quoting, quoted_newlines, skip_initial_space : bool
        As in :class:`gaussmix.tables.options.CsvOptions`.

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
        """Arrow asks."""
        return True

    def close(self) -> None:
        """Close both streams, once Arrow's thread that reads ahead is not in the midst of it.

        It would go on with the file's number, which the next file that is opened gets, and take that one's bytes.
        """
        with self._reading:
            if not self.closed:
                self._stream.close()
            super().close()

    def read(self, size: int = -1) -> bytes:
        """The next bytes: ``size`` of them but for the end, where there are fewer or none."""
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
            self._look_at(piece)
        elif self._last:
            self._look_at_end()
        return piece

    def _whole(self, size: int) -> bytes:
        """So many bytes, however few a decompressor returns at a time."""
        found = [bytes(self._stream.read(size))]
        while found[-1] and (missing := size - sum(map(len, found))) > 0:
            found.append(bytes(self._stream.read(missing)))
        return b"".join(found) if len(found) > 1 else found[0]

    def _look_at(self, piece: bytes) -> None:
        self._count(piece)
        if self._quoting and self._quoted_newlines:
            self._follow_quotes(piece)
        if piece.strip(b"\r\n"):
            self._tail = [*self._tail[-1:], piece]
        self._last = piece[-1:]

    def _look_at_end(self) -> None:
        if self._last not in b"\r\n":
            self.count += 1
        self._last = b""
        if not self._quoting:
            return
        if self._inside if self._quoted_newlines else _ends_in_quotes(_last_line(self._tail), self._delimiter):
            raise LineError("a quote that is not closed")

    def _count(self, piece: bytes) -> None:
        r"""Count line ends as Arrow does: ``\n``, ``\r\n`` and ``\r``; blank is a line after an end."""
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
        """Every quote must begin a field, end one, or be one of two within: then none can be stray."""
        if self._quoting_error_at_start(piece):
            raise LineError("a quote in the middle of a field")
        data = np.frombuffer(piece, dtype=np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        opening, closing = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        around = np.zeros(256, dtype=bool)
        around[[_QUOTE, *self._delimiter, *b"\r\n"]] = True
        self._inside ^= bool(len(quotes) % 2)
        if not (
            around[data[opening[opening > 0] - 1]].all() and around[data[closing[closing < len(data) - 1] + 1]].all()
        ):
            raise LineError("a quote in the middle of a field")

    def _quoting_error_at_start(self, piece: bytes) -> bool:
        """What `_follow_quotes` cannot see within the piece: its first byte and the one before."""
        allowed = b'"\r\n' + self._delimiter
        opens = piece[:1] == b'"' and not self._inside
        closed = self._last == b'"' and not self._inside
        return (opens and self._last not in allowed) or (closed and piece[:1] not in allowed)

    def _without_spaces(self, piece: bytes, size: int) -> bytes:
        """Whole lines without the spaces before their fields; the rest waits for its end.

        What is passed on begins with a line, wherever the file was cut: all lines are stripped alike.
        """
        lines = self._partial + piece
        cut = len(lines) if self._ended else max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1
        lines, self._partial = lines[:cut], lines[cut:]
        if len(self._partial) >= size:
            raise LineError("a line that is too long")
        if b'"' in lines and self._quoting:
            start = rb"(^|[\r\n" + re.escape(self._delimiter) + rb"]) *(\"(?:[^\"\r\n]|\"\")*\")?"
            return re.sub(start, rb"\1\2", lines)
        for before in (self._delimiter, b"\n", b"\r"):
            while before + b" " in lines:
                lines = lines.replace(before + b" ", before)
        return lines.lstrip(b" ")


def _last_line(pieces: list[bytes]) -> bytes:
    text = b"".join(pieces).rstrip(b"\r\n")
    return text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]


def _ends_in_quotes(line: bytes, delimiter: bytes) -> bool:
    """Whether a quoted field of the line has no end: fields are told apart as Arrow does."""
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
