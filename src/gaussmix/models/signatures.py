"""Ed25519 signatures of release files: raw signatures of a file's bytes, in a file beside it.

**Private**: everything here is about release files. Any tool can check such a signature::

    openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in FILE -sigfile FILE.sig

A signature can be taken away with its file: whoever asks for one by naming a key takes its absence as a failure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaussmix._files import write_whole
from gaussmix.errors import ArgumentError, DamagedError, MissingFileError, MissingPackageError

__all__ = ["SUFFIX", "check_signature", "sign"]

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
