"""The file of a release: one Parquet file that any tool can open.

Its columns are the encoded columns and one more, ``block``, which says what a row belongs to. Blocks of m rows each:

``G``, ``N``
    The estimate of the Gram matrix of encoded rows, and the shape of its noise: entry (i, j) has the variance
    N_ii N_jj + N_ij². What most readers want.
``M1``, ``T2``, ``M2``, …
    The outputs of the passes in units of their clips, and the integer transforms of all but the first
    (:mod:`gaussmix.releases.transcript`). G and N are computed from them, stored for other tools, and compared when the
    file is read.
``S1``, ``S2``, …
    The integer transforms of steps on a likelihood, the coefficients at which each was asked in the last row
    (:mod:`gaussmix.releases.preconditioning`), where there are any.

Everything else is JSON under the key ``gaussmix`` of the file's metadata. Its SHA-256, the fingerprint of the release,
covers the JSON and all blocks but G and N, whose last digits depend on the processor that computed them.

The numbers of a release as named square blocks and plain parameters, and back: what its file is made of.

Ed25519 signatures of release files: raw signatures of a file's bytes, in a file beside it.

**Private**: everything here is about release files. Any tool can check such a signature::

    openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in FILE -sigfile FILE.sig

A signature can be taken away with its file: whoever asks for one by naming a key takes its absence as a failure.
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

from gaussmix._files import other_format, refuse_suffix, strict_json, write_whole
from gaussmix._types import Floats
from gaussmix.data.readers import PARQUET
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError, DamagedError, MissingFileError, MissingPackageError, NotPrivateError
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.preconditioning import Metric, PassRequest, StepOutput, StepRequest
from gaussmix.releases.transcript import PassOutput, Transcript

__all__ = [
    "DERIVED",
    "SUFFIX",
    "Blocks",
    "as_bytes",
    "block_column",
    "check_name",
    "check_signature",
    "derived_blocks",
    "drawn_blocks",
    "fingerprint",
    "parameters_of",
    "read",
    "read_bytes",
    "release_id",
    "sign",
    "statistic_of",
]


Blocks = dict[str, Floats]
"""Square matrices by name, in the order of the file."""

DERIVED = ("G", "N")
"""Blocks that are computed from the others, outside of the file's checksum."""

_SAME = 1e-3  # of the noise: another machine's solvers differ in the last digits


def derived_blocks(statistic: Transcript) -> Blocks:
    """Return what is computed from the passes and stored for other tools: its last digits depend on the processor."""
    pooled = statistic.pooled
    return dict(zip(DERIVED, (pooled.matrix, pooled.shape), strict=True))


def drawn_blocks(statistic: Transcript) -> Blocks:
    """Return the matrices that were drawn, and what was asked of the rows: what a release is."""
    blocks = {}
    for number, output in enumerate(statistic.passes, 1):
        if output.request is not None:
            blocks[f"T{number}"] = output.request.metric.transform.integers
        blocks[f"M{number}"] = output.matrix
    return blocks | {f"S{number}": step.request.transform.integers for number, step in enumerate(statistic.steps, 1)}


def parameters_of(statistic: Transcript) -> dict[str, Any]:
    """Everything else, in plain values for JSON."""
    return {
        "passes": [_plain_pass(output) for output in statistic.passes],
        "steps": [_plain_step(step) for step in statistic.steps],
    }


def _plain_pass(output: PassOutput) -> dict[str, Any]:
    plain: dict[str, Any] = {"mu": output.mu, "rate": output.rate}
    request = output.request
    if request is not None:
        metric = request.metric
        plain |= {
            "counted_rate": output.counted_rate,
            "scales": metric.transform.scales.tolist(),
            **{name: getattr(metric, name) for name in _METRIC},
            **{name: getattr(request, name) for name in _REQUEST},
        }
    return plain


def _plain_step(step: StepOutput) -> dict[str, Any]:
    return {
        "target": step.request.target,
        "scales": step.request.transform.scales.tolist(),
        "clip": step.request.clip,
        "gradient": step.gradient.tolist(),
        **{name: getattr(step, name) for name in _STEP},
    }


_STEP = ("weight", "mu", "weight_mu")
_METRIC = ("power", "mean", "cost")
_REQUEST = ("clip", "rows", "kept_weight", "lost")


def statistic_of(stored: dict[str, Any], blocks: Blocks, certificate: Certificate) -> Transcript:
    """The numbers of a release from what its file holds, checked against each other; ValueError if they do not fit."""
    outputs = [_read_pass(number, plain, blocks) for number, plain in enumerate(stored["passes"], 1)]
    steps = [_read_step(number, plain, blocks) for number, plain in enumerate(stored["steps"], 1)]
    transcript = Transcript(tuple(outputs), certificate.schema, tuple(steps), certificate.unit)
    transcript.check()
    _check_derived(transcript, blocks)
    _check_keys(stored, transcript)
    return transcript


def _read_pass(number: int, plain: dict[str, Any], blocks: Blocks) -> PassOutput:
    mu, rate = (_number(plain[name]) for name in ("mu", "rate"))
    if number == 1:
        return PassOutput(blocks["M1"], mu, None, rate)
    transform = Transform(blocks[f"T{number}"], _numbers(plain["scales"]))
    metric = Metric(transform=transform, **{name: _number(plain[name]) for name in _METRIC})
    request = PassRequest(metric=metric, mu=mu * rate, **{name: _number(plain[name]) for name in _REQUEST})
    return PassOutput(blocks[f"M{number}"], mu, request, rate, _number(plain["counted_rate"]))


def _read_step(number: int, plain: dict[str, Any], blocks: Blocks) -> StepOutput:
    transform = Transform(blocks[f"S{number}"], _numbers(plain["scales"]))
    if not isinstance(plain["target"], str):
        raise TypeError("a target of the file is no name")
    request = StepRequest(plain["target"], transform, _number(plain["clip"]))
    return StepOutput(request, _numbers(plain["gradient"]), **{name: _number(plain[name]) for name in _STEP})


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values])


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("a number of the file is no number")
    return float(value)


def _check_keys(stored: dict[str, Any], statistic: Transcript) -> None:
    """Refuse keys that are not written for these numbers, in the file and in each of its passes and steps."""
    written = {"format": 0, "certificate": 0, **parameters_of(statistic)}
    if set(stored) != set(written):
        raise ValueError("its keys are not those of a release")
    for name in ("passes", "steps"):
        if [set(plain) for plain in stored[name]] != [set(plain) for plain in written[name]]:
            raise ValueError(f"the keys of its {name} are not those of a release")


def _check_derived(transcript: Transcript, blocks: Blocks) -> None:
    """Refuse a file whose G and N are not what its passes give, but for last digits."""
    derived = derived_blocks(transcript)
    if list(blocks) != [*derived, *drawn_blocks(transcript)]:
        raise ValueError("its blocks are not those of its passes")
    scale = np.sqrt(np.diagonal(derived["N"]))
    for name, found in derived.items():
        if not (np.abs(blocks[name] - found) <= _SAME * np.outer(scale, scale)).all():
            raise ValueError(f"{name} is not what its passes give")


FORMAT = 1
METADATA_KEY = b"gaussmix"
BLOCK = "block"
COLUMNS_MAX = 2**14
BLOCKS_MAX = 64
FOOTER_MAX = 2**26
_PARQUET = b"PAR1"  # how a Parquet file begins


def as_bytes(statistic: Transcript, certificate: Certificate) -> bytes:
    """What the file holds."""
    blocks, content = derived_blocks(statistic) | drawn_blocks(statistic), _content(statistic, certificate)
    metadata = content | {"sha256": _digest(content, blocks)}
    names = statistic.schema.names
    rows = np.concatenate(list(blocks.values()))
    labels = [name for name, block in blocks.items() for _ in block]
    columns = [pa.array(labels).dictionary_encode(), *(pa.array(column) for column in rows.T)]
    table = pa.Table.from_arrays(columns, names=[block_column(names), *names]).replace_schema_metadata(
        {METADATA_KEY: json.dumps(metadata, ensure_ascii=False).encode()}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name that promises another format."""
    refuse_suffix(path, own=PARQUET, kind="a Parquet file, as every release is")


def fingerprint(statistic: Transcript, certificate: Certificate) -> str:
    """SHA-256 of the release, as stored in its file."""
    return _digest(_content(statistic, certificate), drawn_blocks(statistic))


def _content(statistic: Transcript, certificate: Certificate) -> dict[str, Any]:
    return {"format": FORMAT, **parameters_of(statistic), "certificate": certificate.to_dict()}


def block_column(names: tuple[str, ...]) -> str:
    """``block``, or the first of ``block'``, ``block''``, … that no encoded column has for a name."""
    name = BLOCK
    while name in names:
        name += "'"
    return name


def _digest(content: dict[str, Any], blocks: Blocks) -> str:
    """Hash what was drawn and declared, never what is computed from it: the same digest on every processor.

    It finds damage and careless edits. It is not a signature.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    for name, block in blocks.items():
        if name not in DERIVED:
            digest.update(np.ascontiguousarray(block, dtype="<f8").tobytes())
    return digest.hexdigest()


def read_bytes(path: str | Path, *, signed: bool = False) -> bytes:
    """Return the bytes of a file, read once: a signature, the checksum and the numbers are those of the same bytes.

    A file that is no release, a large table for example, is refused before it is read as a whole; but not with
    ``signed``, where the signature is to be checked before anything is parsed.
    """
    path = Path(path)
    with _opened(path) as handle:
        if not signed:
            with _parquet(handle, path):
                handle.seek(0)
        return handle.read()


def read(content: bytes, path: str | Path) -> tuple[Transcript, Certificate]:
    """Read the bytes of a file and check its checksum, and its parts against each other.

    Counts in the file's footer are checked before anything is unpacked: memory stays within a few times that of
    the numbers. ``path`` is for messages.

    Raises
    ------
    DamagedError
        If the file is not a release, is damaged or edited, or has another format.
    NotPrivateError
        If its certificate, computed anew, claims more privacy than its account gives.
    """
    path = Path(path)
    stored, names, blocks = _contents(content, path)
    if not isinstance(stored, dict) or type(stored.get("format")) is not int:
        raise _damaged(path)
    if stored["format"] != FORMAT:
        raise DamagedError(other_format(path, stored["format"], FORMAT))
    try:
        return _checked(stored, names, blocks)
    except NotPrivateError as error:
        raise NotPrivateError(f"{path} was edited or is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{path} was edited or is damaged: {error}. Ask for the file again.") from None


def release_id(path: str | Path) -> str:
    """The random name of the release in a file, from its footer alone; empty if the file names none."""
    with _opened(Path(path)) as handle, _parquet(handle, Path(path)) as file:
        stored = _metadata_of(file)
    certificate = stored.get("certificate") if isinstance(stored, dict) else None
    found = certificate.get("release", "") if isinstance(certificate, dict) else ""
    return found if isinstance(found, str) else ""


def _checked(stored: dict[str, Any], names: tuple[str, ...], blocks: Blocks) -> tuple[Transcript, Certificate]:
    """The parts of a release, from the parts of its file."""
    if stored.pop("sha256") != _digest(stored, blocks):
        raise ValueError("its checksum does not fit")
    if not isinstance(stored["certificate"], dict):
        raise TypeError("its certificate is no object")
    certificate = Certificate.from_dict(stored["certificate"])
    if names != certificate.schema.names:
        raise ValueError("its parts do not fit each other")
    return statistic_of(stored, blocks, certificate), certificate


def _contents(content: bytes, path: Path) -> tuple[Any, tuple[str, ...], Blocks]:
    """Metadata, names and numbers of a file whose counts are those of a release."""
    with _parquet(io.BytesIO(content), path) as file:
        stored = _metadata_of(file)
        table = file.read(use_threads=False)
        names, labels = tuple(table.column_names[1:]), table.column(0).to_pylist()
        rows = np.column_stack([column.to_numpy() for column in table.columns[1:]])
        return stored, names, _split(labels, rows)


def _split(labels: list[str], rows: Floats) -> Blocks:
    """Blocks by name, of as many rows as columns each and one after the other."""
    m = rows.shape[1]
    starts = range(0, len(labels), m)
    blocks = {str(labels[start]): rows[start : start + m] for start in starts}
    if len(blocks) < len(starts) or [name for name in blocks for _ in range(m)] != labels:
        raise ValueError("its blocks are not those of a release")
    return blocks


def _metadata_of(file: pq.ParquetFile) -> Any:
    return strict_json(file.schema_arrow.metadata[METADATA_KEY])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with path.open("rb") as handle:
            yield handle
    except OSError:
        raise _damaged(path) from None


@contextlib.contextmanager
def _parquet(handle: BinaryIO, path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file of square blocks of doubles, none of them read yet.

    Only the counts of the file and of its row groups are looked at: other parts of the metadata of a damaged or
    encrypted file end the process, in some versions of pyarrow.
    """
    try:
        if not _PARQUET.startswith(handle.read(len(_PARQUET))):
            raise _not_a_release(path)
        _check_footer_length(handle)
        file = pq.ParquetFile(handle, pre_buffer=False)
        if METADATA_KEY not in (file.schema_arrow.metadata or {}):
            raise _not_a_release(path)
        _check_counts(file)
        yield file
    except DamagedError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError):
        raise _damaged(path) from None


def _not_a_release(path: Path) -> DamagedError:
    """No Parquet file, or a whole one that nobody here has written: most often the table itself."""
    return DamagedError(
        f"{path} is not a release of gaussmix. Make one from a table first: `gaussmix release TABLE --schema FILE "
        "--epsilon E --delta D -o NAME.release.parquet`."
    )


def _damaged(path: Path) -> DamagedError:
    """What cannot be told from a release that was cut short."""
    return DamagedError(f"{path} is not a release of gaussmix, or it is damaged. Ask for the file again.")


def _check_counts(file: pq.ParquetFile) -> None:
    """Columns, rows and types, before anything is unpacked."""
    counts, kinds = file.metadata, file.schema_arrow.types
    if not kinds or kinds[0] not in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        raise ValueError("its columns are not those of a release")
    m = counts.num_columns - 1
    groups = [counts.row_group(i).num_rows for i in range(min(counts.num_row_groups, 2))]
    if not 1 <= m <= COLUMNS_MAX or groups != [counts.num_rows] or counts.num_rows % m:
        raise ValueError("its counts are not those of a release")
    if not 1 <= counts.num_rows // m <= BLOCKS_MAX:
        raise ValueError("its counts are not those of a release")
    if len(kinds) != counts.num_columns or any(kind != pa.float64() for kind in kinds[1:]):
        raise ValueError("its columns are not those of a release")


def _check_footer_length(handle: BinaryIO) -> None:
    """A footer of tens of megabytes is no release's; it would be taken into memory before its counts are seen."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(size - 8, 0))
    if int.from_bytes(handle.read(4), "little") > FOOTER_MAX:
        raise ValueError("its footer is too long")
    handle.seek(0)


SUFFIX = ".sig"
"""What a signature's name has behind that of its file."""


def sign(content: bytes, path: str | Path, key: str | Path, *, force: bool = False) -> Path:
    """Write the signature of a file beside it, and return where it is.

    Parameters
    ----------
    content : bytes
        What is signed: the file's bytes, as they were read and checked.
    path : path
        The file.
    key : path
        Ed25519 private key, PEM, not encrypted: ``openssl genpkey -algorithm ed25519 -out private.pem``.
    force : bool
        Whether a signature that is there is replaced.
    """
    private = _key(key, private=True)
    target = _beside(path)
    write_whole(target, private.sign(content), force=force)
    return target


def check_signature(content: bytes, path: str | Path, key: str | Path | bytes) -> None:
    """Refuse the bytes of a file if the signature beside it is missing, by another key, or of other bytes.

    Parameters
    ----------
    content : bytes
        What was read from the file: it is not read again.
    path : path
        The file.
    key : path or bytes
        Ed25519 public key in PEM, or the path of its file.

    Raises
    ------
    DamagedError
        If it is not signed as it should be.
    """
    public = _key(key, private=False)
    from cryptography.exceptions import InvalidSignature

    signature = _beside(path)
    if not signature.is_file():
        raise DamagedError(f"{path} is not signed: there is no {signature}.")
    try:
        public.verify(signature.read_bytes(), content)
    except InvalidSignature:
        raise DamagedError(f"{path} is not what was signed, or by another key.") from None


def _beside(path: str | Path) -> Path:
    file = Path(path)
    return file.with_name(file.name + SUFFIX)


def _key(key: str | Path | bytes, *, private: bool) -> Any:
    """An Ed25519 key; no message quotes what the file holds."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise MissingPackageError('Signatures need cryptography: pip install "gaussmix[sign]".') from None
    name, what = "key" if isinstance(key, bytes) else str(key), "private" if private else "public"
    if not isinstance(key, bytes):
        if not Path(key).is_file():
            raise MissingFileError(f"There is no file {key}.")
        key = Path(key).read_bytes()
    try:
        found: Any = load_pem_private_key(key, None) if private else load_pem_public_key(key)
    except (ValueError, TypeError):
        raise ArgumentError(f"{name} is not a {what} key in PEM, or is encrypted.") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ArgumentError(f"{name} must be an Ed25519 {what} key: openssl genpkey -algorithm ed25519.")
    return found
