"""Batches of a Parquet file, in memory that follows the batches and not the row groups.

Only names, types and numbers of rows are taken from the file's footer. Its statistics are not looked at: pyarrow ends
the process where they are damaged or encrypted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from gaussmix.errors import DataError
from gaussmix.tables.reading import READAHEAD, Request, check_columns, readable, row_bytes, unreadable

__all__ = ["parquet_batches", "parquet_schema"]

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
