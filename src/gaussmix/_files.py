"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: str | Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that after a crash at any moment the old file or the whole new one is there.

    A temporary file in the same folder is written, synchronised, given its mode and renamed; then the folder is
    synchronised, so that the name survives too. A symbolic link is written through; what is no plain file is refused.
    """
    named, path = path, Path(path).resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist: make it first.")
    if path.exists() and not path.is_file():
        raise OSError(f"{named} is no plain file: choose another name.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OSError(f"{named} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
