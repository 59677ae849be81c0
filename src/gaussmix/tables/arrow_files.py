"""Batches of Arrow IPC files, of the file format (Feather 2) or of the stream format: what they begin with tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from gaussmix.tables.reading import Request, check_columns, readable, sliced, valid

__all__ = ["arrow_batches", "arrow_schema"]

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
