"""The file of a release, one Parquet file, and its Ed25519 signature.

**Private**: everything here concerns released numbers.

The columns of the file are the encoded columns and ``block``, which names the matrix that a row belongs to. Each block
has m rows:

``G``, ``N``
    The estimate of the Gram matrix of encoded rows, and the shape of its noise: entry (i, j) has variance
    N_ii N_jj + N_ij². Most readers need only these.
``M1``, ``T2``, ``M2``, …
    The outputs of the passes in units of their clips, and the integer transforms of all but the first
    (:mod:`gaussmix.releases.transcript`). G and N are computed from them, stored for other tools, and compared when the
    file is read.
``S1``, ``W1``, ``S2``, …
    For each declared model the integer metric of its scores and the Gram matrix of its clipped scores, padded with
    zeros (:mod:`gaussmix.releases.declared`). Its other outputs are in the JSON, under ``steps``.

Everything else is JSON under the key ``gaussmix`` of the file's metadata: parameters of passes, marginals, the
thresholds at which numbers are top-coded, and the certificate, whose schema is the declared one. The fingerprint of the
release is the SHA-256 of the JSON and of all blocks but G and N, whose last digits depend on the processor.

A signature is a raw Ed25519 signature of the file's bytes, in a second file next to it. It can be checked with::

    openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in FILE -sigfile FILE.sig

A signature can be removed together with its file, so if a key is given, a missing signature is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
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
from gaussmix.releases.declared import DeclaredModel, ModelOutput
from gaussmix.releases.marginals import MarginalPlan, Marginals
from gaussmix.releases.preconditioning import Metric, PassRequest
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
"""Blocks computed from the others, not covered by the checksum."""

_SAME = 1e-3  # in units of the noise: solvers differ in the last digits between machines


def derived_blocks(statistic: Transcript) -> Blocks:
    """Return the blocks computed from the passes; their last digits depend on the processor."""
    pooled = statistic.pooled
    return dict(zip(DERIVED, (pooled.matrix, pooled.shape), strict=True))


def drawn_blocks(statistic: Transcript) -> Blocks:
    """Return the noisy matrices and the transforms they were computed with."""
    blocks = {}
    for number, output in enumerate(statistic.passes, 1):
        if output.request is not None:
            blocks[f"T{number}"] = output.request.metric.transform.integers
        blocks[f"M{number}"] = output.matrix
    for number, declared in enumerate(statistic.models, 1):
        for name, matrix in (("S", declared.metric.integers), ("W", declared.squares)):
            blocks[f"{name}{number}"] = _padded(matrix, statistic.schema.n_columns)
    return blocks


def _padded(matrix: Floats, m: int) -> Floats:
    """Return a matrix of m rows and columns with zeros after the given ones."""
    found = np.zeros((m, m))
    found[: matrix.shape[0], : matrix.shape[1]] = matrix
    return found


def parameters_of(statistic: Transcript) -> dict[str, Any]:
    """Return all other parameters as plain values for JSON."""
    return {
        "passes": [_plain_pass(output) for output in statistic.passes],
        "steps": [_plain_model(declared) for declared in statistic.models],
        "marginals": None if statistic.marginals is None else _plain_marginals(statistic.marginals),
    }


def _plain_marginals(marginals: Marginals) -> dict[str, Any]:
    arrays = {name: getattr(marginals, name).tolist() for name in _MARGINALS}
    return {"mu": list(marginals.mu), "tables": [list(pair) for pair in marginals.plan.tables], **arrays}


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


def _plain_model(declared: ModelOutput) -> dict[str, Any]:
    linear = [{name: getattr(own, name).tolist() for name in ("integers", "scales")} for own in declared.linear]
    return {
        "model": asdict(declared.model),
        "scales": declared.metric.scales.tolist(),
        "linear": linear,
        "totals": [total.tolist() for total in declared.totals],
        "mu": list(declared.mu),
        "vector_mu": list(declared.vector_mu),
        **{name: getattr(declared, name) for name in _MODEL},
    }


_MODEL = ("clip", "excess", "lost")
_MARGINALS = ("counts", "sums", "squares")
_METRIC = ("power", "mean", "cost")
_REQUEST = ("clip", "rows", "kept_weight", "lost")


def statistic_of(stored: dict[str, Any], blocks: Blocks, certificate: Certificate) -> Transcript:
    """Return the transcript stored in a file; raise ValueError if its parts are inconsistent."""
    outputs = [_read_pass(number, plain, blocks) for number, plain in enumerate(stored["passes"], 1)]
    models = [_read_model(number, plain, blocks) for number, plain in enumerate(stored["steps"], 1)]
    thresholds = {name: (_number(lower), _number(upper)) for name, (lower, upper) in stored["thresholds"].items()}
    schema = certificate.schema.coded(thresholds)
    marginals = None if stored["marginals"] is None else _read_marginals(stored["marginals"], certificate)
    transcript = Transcript(
        tuple(outputs),
        schema,
        tuple(models),
        certificate.bounded_unit,
        marginals=marginals,
        model_share=_number(stored.get("model_share", 0.0)),
    )
    transcript.check()
    with np.errstate(all="ignore"):  # forged scales overflow, and NaN fails the comparison
        _check_derived(transcript, blocks)
    _check_keys(stored, transcript, certificate)
    return transcript


def _read_marginals(plain: dict[str, Any], certificate: Certificate) -> Marginals:
    if set(plain) != {"mu", "tables", *_MARGINALS}:
        raise ValueError("the keys of its marginals do not match the release format")
    most = 1 if certificate.privacy_unit is None else certificate.privacy_unit.max_contributions
    tables = tuple((rows, columns) for rows, columns in plain["tables"])
    plan = MarginalPlan(certificate.schema, tables, most, certificate.neighbours)
    counts, sums = (_number(part) for part in plain["mu"])
    return Marginals(plan, **{name: _numbers(plain[name]) for name in _MARGINALS}, mu=(counts, sums))


def _read_pass(number: int, plain: dict[str, Any], blocks: Blocks) -> PassOutput:
    mu, rate = (_number(plain[name]) for name in ("mu", "rate"))
    if number == 1:
        return PassOutput(blocks["M1"], mu, None, rate)
    transform = Transform(blocks[f"T{number}"], _numbers(plain["scales"]))
    metric = Metric(transform=transform, **{name: _number(plain[name]) for name in _METRIC})
    request = PassRequest(metric=metric, mu=mu * rate, **{name: _number(plain[name]) for name in _REQUEST})
    return PassOutput(blocks[f"M{number}"], mu, request, rate, _number(plain["counted_rate"]))


def _read_model(number: int, plain: dict[str, Any], blocks: Blocks) -> ModelOutput:
    scales = _numbers(plain["scales"])
    d = len(scales)
    linear = [
        Transform(np.array([_numbers(row) for row in own["integers"]]), _numbers(own["scales"]))
        for own in plain["linear"]
    ]
    return ModelOutput(
        model=DeclaredModel(**plain["model"]),
        metric=Transform(blocks[f"S{number}"][:d], scales),
        linear=tuple(linear),
        totals=tuple(_numbers(total) for total in plain["totals"]),
        squares=blocks[f"W{number}"][:d, :d],
        mu=tuple(_number(part) for part in plain["mu"]),
        vector_mu=tuple(_number(part) for part in plain["vector_mu"]),
        **{name: _number(plain[name]) for name in _MODEL},
    )


def _numbers(values: Any) -> Floats:
    return np.array([_number(value) for value in values])


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("a numeric field has the wrong type")
    return float(value)


def _check_keys(stored: dict[str, Any], statistic: Transcript, certificate: Certificate) -> None:
    """Reject missing or unknown keys in the metadata and in each pass and step."""
    written = _content(statistic, certificate)
    if set(stored) != set(written):
        raise ValueError("its keys do not match the release format")
    for name in ("passes", "steps"):
        if [set(plain) for plain in stored[name]] != [set(plain) for plain in written[name]]:
            raise ValueError(f"the keys of its {name} do not match the release format")


def _check_derived(transcript: Transcript, blocks: Blocks) -> None:
    """Reject a file whose G and N differ from those computed from its passes by more than rounding."""
    derived = derived_blocks(transcript)
    if list(blocks) != [*derived, *drawn_blocks(transcript)]:
        raise ValueError("its blocks do not match the passes")
    scale = np.sqrt(np.diagonal(derived["N"]))
    for name, found in derived.items():
        if not (np.abs(blocks[name] - found) <= _SAME * np.outer(scale, scale)).all():
            raise ValueError(f"block {name} does not match the passes")


FORMAT = 1
METADATA_KEY = b"gaussmix"
BLOCK = "block"
COLUMNS_MAX = 2**14
BLOCKS_MAX = 64
FOOTER_MAX = 2**26
_PARQUET = b"PAR1"  # first bytes of a Parquet file


def as_bytes(statistic: Transcript, certificate: Certificate) -> bytes:
    """Return the bytes of the file."""
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
    """Reject a file name with the suffix of another format."""
    refuse_suffix(path, own=PARQUET, kind="a Parquet file (the format of releases)")


def fingerprint(statistic: Transcript, certificate: Certificate) -> str:
    """Return the SHA-256 of the release, as stored in its file."""
    return _digest(_content(statistic, certificate), drawn_blocks(statistic))


def _content(statistic: Transcript, certificate: Certificate) -> dict[str, Any]:
    thresholds = {name: list(ends) for name, ends in statistic.schema.thresholds_within(certificate.schema).items()}
    parameters = {**parameters_of(statistic), "thresholds": thresholds}
    if statistic.models:
        parameters["model_share"] = statistic.model_share
    return {"format": FORMAT, **parameters, "certificate": certificate.to_dict()}


def block_column(names: tuple[str, ...]) -> str:
    """Return ``block``, or the first of ``block'``, ``block''``, … that is not an encoded column."""
    name = BLOCK
    while name in names:
        name += "'"
    return name


def _digest(content: dict[str, Any], blocks: Blocks) -> str:
    """Hash drawn and declared values only, so that the digest is the same on every processor.

    It detects damage and careless edits. It is not a signature.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    for name, block in blocks.items():
        if name not in DERIVED:
            digest.update(np.ascontiguousarray(block, dtype="<f8").tobytes())
    return digest.hexdigest()


def read_bytes(path: str | Path, *, signed: bool = False) -> bytes:
    """Read a file once, so that signature, checksum and numbers refer to the same bytes.

    A file that is not a release is rejected before it is read whole, except with ``signed``, where the signature must
    be checked before anything is parsed.
    """
    path = Path(path)
    with _opened(path) as handle:
        if not signed:
            with _parquet(handle, path):
                handle.seek(0)
        return handle.read()


def read(content: bytes, path: str | Path) -> tuple[Transcript, Certificate]:
    """Read a release from bytes and verify its checksum and consistency.

    Counts in the footer are checked before anything is decompressed, which bounds the memory used. ``path`` is for
    messages.

    Raises
    ------
    DamagedError
        If the file is not a release, is damaged or edited, or has another format.
    NotPrivateError
        If its certificate claims more privacy than its account gives.
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
        words = str(error).rstrip(".")
        raise DamagedError(f"{path} was edited or is damaged: {words}. Obtain the file again.") from None


def release_id(path: str | Path) -> str:
    """Return the random identifier of the release in a file, from the footer alone; empty if there is none."""
    with _opened(Path(path)) as handle, _parquet(handle, Path(path)) as file:
        stored = _metadata_of(file)
    certificate = stored.get("certificate") if isinstance(stored, dict) else None
    found = certificate.get("release", "") if isinstance(certificate, dict) else ""
    return found if isinstance(found, str) else ""


PARTIAL_MAGIC = b"gaussmix partial release\n"
"""First line of the file of an unfinished release (:mod:`gaussmix.mechanism.journal`)."""


def partial_path(out: str | os.PathLike[str]) -> Path:
    """Return the file of an unfinished release: x.parquet.partial for x.parquet."""
    resolved = Path(out).resolve()
    return resolved.with_name(f"{resolved.name}.partial")


def unfinished_id(path: Path) -> str | None:
    """Return the identifier of the unfinished release in a file; None if there is none."""
    try:
        magic, _, header, *_ = path.read_bytes().split(b"\n", 3)
        return str(strict_json(header)["release"]) if magic + b"\n" == PARTIAL_MAGIC else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _checked(stored: dict[str, Any], names: tuple[str, ...], blocks: Blocks) -> tuple[Transcript, Certificate]:
    """Build the parts of a release from the parts of its file."""
    if stored.pop("sha256") != _digest(stored, blocks):
        raise ValueError("its checksum does not match")
    if not isinstance(stored["certificate"], dict):
        raise TypeError("its certificate must be a JSON object")
    certificate = Certificate.from_dict(stored["certificate"])
    if names != certificate.schema.names:
        raise ValueError("its columns do not match the schema")
    return statistic_of(stored, blocks, certificate), certificate


def _contents(content: bytes, path: Path) -> tuple[Any, tuple[str, ...], Blocks]:
    """Return metadata, names and numbers of a file."""
    with _parquet(io.BytesIO(content), path) as file:
        stored = _metadata_of(file)
        table = file.read(use_threads=False)
        names, labels = tuple(table.column_names[1:]), table.column(0).to_pylist()
        rows = np.column_stack([column.to_numpy() for column in table.columns[1:]])
        return stored, names, _split(labels, rows)


def _split(labels: list[str], rows: Floats) -> Blocks:
    """Split rows into consecutive square blocks by name."""
    m = rows.shape[1]
    starts = range(0, len(labels), m)
    blocks = {str(labels[start]): rows[start : start + m] for start in starts}
    if len(blocks) < len(starts) or [name for name in blocks for _ in range(m)] != labels:
        raise ValueError("its blocks do not match the release format")
    return blocks


def _metadata_of(file: pq.ParquetFile) -> Any:
    return strict_json(file.schema_arrow.metadata[METADATA_KEY])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if not path.is_file():
        raise MissingFileError(f"The file {path} does not exist.")
    try:
        with path.open("rb") as handle:
            yield handle
    except OSError:
        raise _damaged(path) from None


@contextlib.contextmanager
def _parquet(handle: BinaryIO, path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of square blocks of doubles without reading them.

    Only the counts of the file and of its row groups are read: other metadata of a damaged or encrypted file can crash
    some versions of pyarrow.
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
    """Return the error for a file that is not a release, most often the table itself."""
    return DamagedError(
        f"{path} is not a gaussmix release. Make one from a table first: `gaussmix release TABLE --schema FILE "
        "--epsilon E --delta D -o NAME.release.parquet`."
    )


def _damaged(path: Path) -> DamagedError:
    """Return the error for a file that may be a truncated release."""
    return DamagedError(f"{path} is not a gaussmix release, or it is damaged. Obtain the file again.")


def _check_counts(file: pq.ParquetFile) -> None:
    """Check columns, rows and types before anything is decompressed."""
    counts, kinds = file.metadata, file.schema_arrow.types
    if not kinds or kinds[0] not in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        raise ValueError("its columns do not match the release format")
    m = counts.num_columns - 1
    groups = [counts.row_group(i).num_rows for i in range(min(counts.num_row_groups, 2))]
    if not 1 <= m <= COLUMNS_MAX or groups != [counts.num_rows] or counts.num_rows % m:
        raise ValueError("its row counts do not match the release format")
    if not 1 <= counts.num_rows // m <= BLOCKS_MAX:
        raise ValueError("its row counts do not match the release format")
    if len(kinds) != counts.num_columns or any(kind != pa.float64() for kind in kinds[1:]):
        raise ValueError("its columns do not match the release format")


def _check_footer_length(handle: BinaryIO) -> None:
    """Reject a footer of tens of megabytes, which would be loaded before its counts can be checked."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(size - 8, 0))
    if int.from_bytes(handle.read(4), "little") > FOOTER_MAX:
        raise ValueError("its footer is too long")
    handle.seek(0)


SUFFIX = ".sig"
"""Suffix of a signature file, appended to the name of the signed file."""


def sign(content: bytes, path: str | Path, key: str | Path, *, force: bool = False) -> Path:
    """Write the signature of a file next to it, and return its path.

    Parameters
    ----------
    content : bytes
        The bytes of the file, as read and verified.
    path : path
        The file.
    key : path
        Ed25519 private key, PEM, not encrypted: ``openssl genpkey -algorithm ed25519 -out private.pem``.
    force : bool
        Whether to replace an existing signature.
    """
    private = _key(key, private=True)
    target = _beside(path)
    write_whole(target, private.sign(content), force=force)
    return target


def check_signature(content: bytes, path: str | Path, key: str | Path | bytes) -> None:
    """Reject a file whose signature is missing, made with another key, or does not match its bytes.

    Parameters
    ----------
    content : bytes
        The bytes of the file; it is not read again.
    path : path
        The file.
    key : path or bytes
        Ed25519 public key in PEM, or the path of its file.

    Raises
    ------
    DamagedError
        If there is no valid signature.
    """
    public = _key(key, private=False)
    from cryptography.exceptions import InvalidSignature

    signature = _beside(path)
    if not signature.is_file():
        raise DamagedError(f"{path} is not signed: {signature} does not exist. Obtain it from the publisher.")
    try:
        public.verify(signature.read_bytes(), content)
    except InvalidSignature:
        raise DamagedError(
            f"{path} does not match its signature, or was signed with another key. Obtain the file and the key again."
        ) from None


def _beside(path: str | Path) -> Path:
    file = Path(path)
    return file.with_name(file.name + SUFFIX)


def _key(key: str | Path | bytes, *, private: bool) -> Any:
    """Load an Ed25519 key. Messages never quote the content of the file."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise MissingPackageError(
            'Signatures require the Python package cryptography: pip install "gaussmix[sign]".'
        ) from None
    name, what = "key" if isinstance(key, bytes) else str(key), "private" if private else "public"
    if not isinstance(key, bytes):
        if not Path(key).is_file():
            raise MissingFileError(f"The file {key} does not exist.")
        key = Path(key).read_bytes()
    try:
        found: Any = load_pem_private_key(key, None) if private else load_pem_public_key(key)
    except (ValueError, TypeError):
        raise ArgumentError(f"{name} must be an unencrypted {what} key in PEM format.") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ArgumentError(f"{name} must be an Ed25519 {what} key: openssl genpkey -algorithm ed25519.")
    return found
