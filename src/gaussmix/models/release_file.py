"""The file of a release: one small Parquet file that any tool can open.

Its m rows are those of the sketch's factor and its columns the encoded columns: ordinary least squares on it, in any
tool, gives the coefficients as published, in encoded units. Everything else is JSON under the key ``gaussmix`` of the
file's metadata. Format 2 has typed accounts and conditions; format 1 is still read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gaussmix._types import Floats
from gaussmix.accounting.accounts import Unprotected
from gaussmix.accounting.calibration import Calibration
from gaussmix.errors import DamagedError, NotPrivateError
from gaussmix.models.certificate import Certificate
from gaussmix.models.sketch import Sketch
from gaussmix.tables.schema import stored_schema

__all__ = ["as_bytes", "fingerprint", "read", "release_id"]

FORMAT = 2
METADATA_KEY = b"gaussmix"
COLUMNS_MAX = 2**14
FOOTER_MAX = 2**26


def as_bytes(sketch: Sketch, certificate: Certificate) -> bytes:
    """What the file holds."""
    content = _content(sketch, certificate)
    metadata = content | {"sha256": _digest(content, sketch.factor)}
    columns = [pa.array(column) for column in sketch.factor.T]
    table = pa.Table.from_arrays(columns, names=list(sketch.schema.names)).replace_schema_metadata(
        {METADATA_KEY: json.dumps(metadata, ensure_ascii=False).encode()}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def fingerprint(sketch: Sketch, certificate: Certificate) -> str:
    """SHA-256 of the release, as stored in its file."""
    return _digest(_content(sketch, certificate), sketch.factor)


def _content(sketch: Sketch, certificate: Certificate) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "sketch_size": sketch.size,
        "noise_variance": sketch.noise_variance,
        "certificate": certificate.to_dict(),
    }


def _digest(content: dict[str, Any], factor: Floats) -> str:
    """Finds damage and edits by hand; it is no signature."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode() + np.ascontiguousarray(factor).tobytes()).hexdigest()


def read(path: str | Path) -> tuple[Sketch, Certificate]:
    """Read a file and check its checksum, and its parts against each other.

    Counts in the file's footer are checked before anything is unpacked: memory stays within a few times that of the
    factor.

    Raises
    ------
    DamagedError
        If the file is not a release, is damaged or edited, or is of a newer format.
    NotPrivateError
        If its certificate, computed anew, claims more privacy than its account gives.
    """
    path = Path(path)
    stored, names, factor = _contents(path)
    if not isinstance(stored, dict) or type(stored.get("format")) is not int or stored["format"] < 1:
        raise DamagedError(f"{path} is not a release of gaussmix, or it is damaged. Ask for the file again.")
    if stored["format"] > FORMAT:
        raise DamagedError(
            f"{path} has format {stored['format']}, and this version of gaussmix reads up to {FORMAT}: update gaussmix."
        )
    try:
        return _checked(stored, names, factor)
    except NotPrivateError as error:
        raise NotPrivateError(f"{path} was edited or is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{path} was edited or is damaged: {error}. Ask for the file again.") from None


def release_id(path: str | Path) -> str:
    """The random name of the release in a file, from its footer alone; empty in files that have none."""
    with _parquet(Path(path)) as file:
        stored = _metadata_of(file)
    certificate = stored.get("certificate") if isinstance(stored, dict) else None
    found = certificate.get("release", "") if isinstance(certificate, dict) else ""
    return found if isinstance(found, str) else ""


def _checked(stored: dict[str, Any], names: tuple[str, ...], factor: Floats) -> tuple[Sketch, Certificate]:
    """The parts of a release, from the parts of its file."""
    if stored.pop("sha256") != _digest(stored, factor):
        raise ValueError("its checksum does not fit")
    if not isinstance(stored["certificate"], dict):
        raise TypeError("its certificate is no object")
    certificate = Certificate.from_dict(stored["certificate"])
    variance = stored["noise_variance"]
    if (
        names != certificate.schema.names
        or (stored["format"] == 1 and stored_schema(stored["schema"]) != certificate.schema)
        or not isinstance(certificate.account, Calibration | Unprotected)
        or type(stored["sketch_size"]) is not int
        or not isinstance(variance, int | float)
    ):
        raise ValueError("its parts do not fit each other")
    return Sketch(factor, stored["sketch_size"], float(variance), certificate.schema), certificate


def _contents(path: Path) -> tuple[Any, tuple[str, ...], Floats]:
    """Metadata, names and numbers of a file whose counts are those of a release."""
    with _parquet(path) as file:
        stored = _metadata_of(file)
        table = file.read(use_threads=False)
        factor = np.column_stack([column.to_numpy() for column in table.columns])
        return stored, tuple(table.column_names), factor


def _metadata_of(file: pq.ParquetFile) -> Any:
    return json.loads((file.schema_arrow.metadata or {})[METADATA_KEY])


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file of as many doubles as columns, none of them read yet.

    Only the counts of the file and of its row groups are looked at: other parts of the metadata of a damaged or
    encrypted file end the process, in some versions of pyarrow.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with path.open("rb") as handle:
            _check_footer_length(handle)
            file = pq.ParquetFile(handle, pre_buffer=False)
            counts = file.metadata
            m = counts.num_columns
            groups = [counts.row_group(i).num_rows for i in range(min(counts.num_row_groups, 2))]
            if not 1 <= m <= COLUMNS_MAX or counts.num_rows != m or groups != [m]:
                raise ValueError("its counts are not those of a release")
            if len(file.schema_arrow) != m or any(kind != pa.float64() for kind in file.schema_arrow.types):
                raise ValueError("its columns are not those of a release")
            yield file
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError):
        raise DamagedError(f"{path} is not a release of gaussmix, or it is damaged. Ask for the file again.") from None


def _check_footer_length(handle: BinaryIO) -> None:
    """A footer of tens of megabytes is no release's; it would be taken into memory before its counts are seen."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(size - 8, 0))
    if int.from_bytes(handle.read(4), "little") > FOOTER_MAX:
        raise ValueError("its footer is too long")
    handle.seek(0)
