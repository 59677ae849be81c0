"""What every reader of a table shares: the request, checks of columns and batches, and the words of errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from gaussmix.errors import DataError, GaussmixError
from gaussmix.tables.options import CsvOptions

__all__ = [
    "READAHEAD",
    "Part",
    "Request",
    "another_number",
    "bad_name",
    "check_columns",
    "guarded",
    "kind_of",
    "late",
    "readable",
    "row_bytes",
    "running",
    "sliced",
    "twice",
    "unreadable",
    "valid",
    "without_values",
]

READAHEAD = 3  # batches that are decoded in the background
_VALUE_BYTES = 8  # of a number, or of a text's place in its dictionary


@dataclass(frozen=True)
class Request:
    """What is asked of a table."""

    columns: list[str]
    rows: int
    types: dict[str, pa.DataType]
    csv: CsvOptions = field(default_factory=CsvOptions)
    row_by_row: bool = True  # False: refuse a query in which one stored row may change several rows of the result


def row_bytes(columns: Collection[str], types: Mapping[str, pa.DataType]) -> int:
    """Bytes of a decoded row, by what is declared: a vector has as many numbers as its size says."""
    found = [types[name] for name in columns if name in types and pa.types.is_fixed_size_list(types[name])]
    vectors = sum(int(kind.list_size) for kind in found)
    return _VALUE_BYTES * (vectors + len(columns) - len(found))


Part = tuple[str, pa.RecordBatch]  # where it is from, for messages


def kind_of(kind: pa.DataType) -> str:
    """What may not change between the parts of a table: integers may become floats, numbers not text."""
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


def check_columns(found: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Every column asked for must be there, once."""
    for name in columns:
        count = list(found).count(name)
        if count > 1:
            raise twice(name, where)
        if not count:
            way = "Correct the name where it is declared, in the schema or as the unit, or add the column."
            if any(other.strip() == name.strip() for other in found):
                way = "A name that differs by spaces alone is: for CSV files declare skip_initial_space."
            elif any(other.casefold() == name.casefold() for other in found):
                way = "A name that differs by capitals alone is: declare it as the table has it."
            elif len(found) == 1:
                way += " There is one column only: CSV files need commas as delimiters, TSV files tabs."
            raise DataError(f"Column {name!r} is not in {where}. {way}")


def twice(name: str, where: str) -> DataError:
    """The error for a name that two columns have."""
    return DataError(f"Column {name!r} occurs twice in {where}. Rename one of them.")


def another_number(expect_rows: int | None) -> str:
    """The words for another number of rows than the curator expects."""
    return (
        f"The table has another number of rows than expect_rows={expect_rows}. Check the path, the query or the "
        "filter that made it, or correct the number."
    )


def unreadable(where: str) -> DataError:
    """The error for a damaged file."""
    return DataError(f"{where} cannot be read: it is truncated, corrupt or of another format. Write it again.")


def bad_name(where: str) -> DataError:
    """The error for a name that is no text."""
    return DataError(f"{where} has a column name that is not valid UTF-8. Rename the column.")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Errors of a reader in our words: the reader's own may quote values."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except UnicodeDecodeError:
        raise bad_name(where) from None
    except (pa.ArrowException, OSError):
        raise unreadable(where) from None


def guarded(found: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Pass batches on, with errors in our words."""
    with readable(where):
        yield from found


def without_values(parts: Iterator[Part]) -> Iterator[Part]:
    """Pass parts on; an error in our words is chained to nothing, for the reader's own words may quote values."""
    try:
        yield from parts
    except GaussmixError as error:
        error.__cause__ = error.__context__ = None
        raise


def valid(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """The batch, if its offsets, dictionary indices and texts are sound: Arrow's functions trust them blindly."""
    with readable(where):
        batch.validate(full=True)
    return batch


def running(found: Iterable[Any], where: str) -> Iterator[Any]:
    """What an engine computes; its errors may quote values."""
    try:
        yield from found
    except Exception:
        raise DataError(f"{where} failed while it ran. Run it on its own for the details.") from None


def late(reader: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Start an engine only when its errors are caught."""
    yield from reader()


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into batches of at most so many rows."""
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
