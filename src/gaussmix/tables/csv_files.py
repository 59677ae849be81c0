"""Batches of a CSV or TSV file: types are declared, and no line can change how another is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gaussmix.errors import DataError, DataTypeError
from gaussmix.tables.csv_lines import CheckedLines, LineError
from gaussmix.tables.csv_options import CsvOptions
from gaussmix.tables.paths import suffix_of
from gaussmix.tables.reading import Request, bad_name, check_columns, readable, sliced, unreadable

__all__ = ["csv_batches", "csv_schema"]

_CSV_BLOCK = 4 * 2**20  # bytes
_COMPRESSION = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


def csv_schema(file: Path, options: CsvOptions) -> pa.Schema:
    """Names of the columns, and types as the first block suggests them: for a template, never for reading."""
    where = str(file)
    with readable(where):
        try:
            with _opened(file, options, pa.csv.ConvertOptions(**_missing_words(options))) as (reader, _):
                found = reader.schema
                found.names  # noqa: B018  # decodes the names
                return found
        except LineError as error:
            raise _line_error(str(error), where) from None


def csv_batches(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Batches of the columns asked for, each read as its declared type."""
    where, columns = str(file), request.columns
    header: list[str] = []
    try:
        with _opened(file, request.csv, pa.csv.ConvertOptions()) as (reader, _):  # the header; nothing is converted
            header = reader.schema.names
        if not request.csv.quoting_of(suffix_of(file)) and any(f'"{name}"' in header for name in columns):
            raise DataError(f"{where} has column names in quotes. Declare quoting=True if quotes enclose its fields.")
        check_columns(header, columns, where)
        convert = _conversion(request, where)
        with _opened(file, request.csv, convert, blank_lines=len(header) == 1) as (reader, lines):
            rows = 1  # the header
            for batch in reader:
                rows += batch.num_rows
                yield from sliced(_empty_text_is_missing(batch), request.rows)
        wanted = lines.count if len(header) == 1 else lines.count - lines.blank
        if rows != wanted and not request.csv.quoted_newlines:
            raise LineError("a field with a line break within quotes, or a stray quote")
    except UnicodeDecodeError:
        raise bad_name(where) from None
    except LineError as error:
        raise _line_error(str(error), where) from None
    except (pa.ArrowException, OSError) as error:
        raise _csv_error(str(error), header, where) from None


def _conversion(request: Request, where: str) -> Any:
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
    return pa.csv.ConvertOptions(include_columns=request.columns, column_types=types, **_missing_words(request.csv))


def _missing_words(options: CsvOptions) -> dict[str, Any]:
    """What declared words for missing values mean to Arrow."""
    missing = options.na_values
    return {} if missing is None else {"null_values": ["", *missing], "strings_can_be_null": True}


@contextmanager
def _opened(
    file: Path, options: CsvOptions, convert: Any, *, blank_lines: bool = False
) -> Iterator[tuple[Any, CheckedLines]]:
    """Arrow's reader, and the lines that it is given."""
    suffix = suffix_of(file)
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
