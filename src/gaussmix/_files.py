"""Atomic writing of files with disk space allocated in advance, strict JSON, and checks of file names and formats."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import glob
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from gaussmix.errors import OutputError, OutputExistsError, OutputFolderError

__all__ = [
    "Output",
    "matches",
    "other_format",
    "refuse_inputs",
    "refuse_suffix",
    "reserve",
    "strict_json",
    "write_whole",
]

_DATABASE = b"SQLite format 3\0"  # the first bytes of a ledger
_KNOWN_SUFFIXES = frozenset(
    {".arrow", ".arrows", ".csv", ".db", ".ddb", ".duckdb", ".feather", ".ipc", ".parquet", ".pq", ".sqlite", ".tsv"}
    | {".bz2", ".gz", ".xz", ".zip", ".zst", ".html", ".json", ".md", ".svg", ".toml", ".txt", ".yaml", ".yml"}
    | {".dta", ".npy", ".npz", ".pdf", ".pkl", ".png", ".rds", ".sav", ".xls", ".xlsx", ".ledger", ".moments", ".sig"}
)


@dataclass(frozen=True)
class Output:
    """A file to be written, created by `reserve` and ended by :meth:`commit` or :meth:`abandon`.

    As a context manager it calls :meth:`abandon` on exit, which has no effect after :meth:`commit`.

    Attributes
    ----------
    path : Path
        Path of the file, with symbolic links resolved.
    force : bool
        Whether to replace an existing file.
    """

    path: Path
    force: bool
    _temporary: Path
    _locked: list[int] = field(default_factory=list, repr=False)  # the open temporary file: it marks it as in use

    @property
    def locked(self) -> Path:
        """The temporary file, which this process has locked if the file system has locks."""
        return self._temporary

    def commit(self, content: bytes, *, mode: int = 0o644) -> Path:
        """Write the file and return its path.

        The file is synchronised before it is renamed, and the folder afterwards: after a crash either the old file or
        the complete new file exists. Without ``force``, a file created at the path in the meantime is not replaced.
        The content may have cost a privacy budget, so it is then written under another name in the same folder.
        """
        try:
            with open(self._temporary, "r+b" if self._temporary.exists() else "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            written = self.path
            if self.force:
                self._temporary.replace(written)
            else:
                try:
                    _rename_new(self._temporary, written)
                except FileExistsError:
                    written = self.path.with_name(f"gaussmix-{secrets.token_hex(8)}{self.path.suffix[:16]}")
                    _rename_new(self._temporary, written)
            _synchronise(self.path.parent)
        except OSError as error:
            raise OutputError(f"{self.path} could not be written: {error.strerror or error}.") from None
        finally:
            self.abandon()
        return written

    def begin(self, content: bytes) -> BinaryIO:
        """Write the first bytes of the file, give it its name and return it open, for more to be written.

        The rest of the allocated space stays allocated and holds zeros. An existing file is not replaced.
        """
        try:
            file = open(self._temporary, "r+b")  # noqa: SIM115 - returned open
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                _rename_new(self._temporary, self.path)
                _synchronise(self.path.parent)
            except BaseException:
                file.close()
                raise
        except OSError as error:
            raise OutputError(f"{self.path} could not be written: {error.strerror or error}.") from None
        finally:
            self.abandon()
        return file

    def abandon(self) -> None:
        """Delete the temporary file."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)
        while self._locked:
            os.close(self._locked.pop())

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()


def _synchronise(folder: Path) -> None:
    """Wait until the names of files in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # some file systems do not support it
        os.fsync(handle)
    os.close(handle)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a file; raise FileExistsError if the target exists."""
    try:
        os.link(source, target)
        source.unlink()
    except FileExistsError:
        raise
    except OSError:  # no hard links here: claim the name first
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        source.replace(target)


def reserve(path: str | os.PathLike[str], size: int, *, force: bool = False) -> Output:
    """Allocate a temporary file of ``size`` bytes in the folder of ``path``.

    Call this before a budget is charged, so that a full disk, a read-only folder or an invalid name is found first.

    Raises
    ------
    OutputError
        If the file cannot be written, is not a regular file, or is a ledger, which is never replaced.
    OutputExistsError
        If the file exists and ``force`` is false.
    """
    target = _checked(os.fspath(path), force=force)
    _remove_leftovers(target.parent)
    output = Output(target, force, target.with_name(f".gaussmix-{secrets.token_hex(8)}.tmp"))
    try:
        handle = os.open(output._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        output._locked.append(handle)
        with contextlib.suppress(OSError):  # some file systems do not support it
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _allocate(handle, size)
    except BaseException as error:
        output.abandon()
        if isinstance(error, OSError):
            raise OutputError(f"{os.fspath(path)} cannot be written: {error.strerror or error}.") from None
        raise
    return output


def _remove_leftovers(folder: Path) -> None:
    """Delete temporary files of processes that were killed. Those of living processes are locked."""
    for path in folder.glob(".gaussmix-*.tmp"):
        with contextlib.suppress(OSError):  # in use, or another user's
            handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def _checked(named: str, *, force: bool) -> Path:
    """Resolve a path to a regular file, or to a file that does not exist yet."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", named, re.IGNORECASE):  # a path has lost one of the slashes
        raise OutputError(
            f"{named.partition('?')[0]} cannot be written: outputs must be local files. "
            "Write a local file and copy it afterwards."
        )
    no_file = OutputError(f"{named} cannot be written: it is not a regular file. Choose another name.")
    if os.path.abspath(named).startswith(("/dev/std", "/dev/fd/", "/proc/")):  # may lead to a regular file
        raise no_file
    try:
        target = Path(named).resolve()
        if not target.parent.is_dir():
            raise OutputFolderError(f"The folder {target.parent} does not exist. Create it first.")
        mode = target.stat().st_mode
    except OutputError:
        raise
    except FileNotFoundError:
        return target
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or "it is not a valid file name"
        raise OutputError(f"{named!r} cannot be written: {reason}.") from None
    if not stat.S_ISREG(mode):
        raise no_file
    if not force:
        raise OutputExistsError(
            f"{named} exists already. Choose another name, or replace it with force=True (--force)."
        )
    if _may_be_ledger(target):
        raise OutputError(
            f"{named} may be a ledger. Ledgers are never overwritten, because the record of spent budget would be "
            "lost. Choose another name."
        )
    return target


def _may_be_ledger(file: Path) -> bool:
    """Return whether a file is a SQLite database, as ledgers are, or cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return True


def _allocate(handle: int, size: int) -> None:
    """Allocate the blocks of a file, so that writing them later cannot fail on a full disk."""
    try:
        if size:
            os.posix_fallocate(handle, 0, size)
    except (AttributeError, OSError):  # not supported here: write zeros, which fails where there is no room
        with open(handle, "wb", closefd=False) as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(handle)


def write_whole(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o644, force: bool = False) -> None:
    """Write a file atomically. Without ``force``, raise `OutputExistsError` if it exists or is created meanwhile."""
    output = reserve(path, len(content), force=force)
    if (written := output.commit(content, mode=mode)) != output.path:
        written.unlink()
        raise OutputExistsError(
            f"{os.fspath(path)} was created by another process and was not replaced. Choose another name."
        )


def refuse_inputs(out: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Reject an output that is one of the inputs, lies in an input folder or matches an input pattern."""
    target = Path(out).resolve()
    if any(_includes(os.fspath(name), target) for name in inputs):
        raise OutputError(f"{os.fspath(out)} is one of the inputs or lies in an input directory. Choose another name.")


def _includes(source: str, target: Path) -> bool:
    """Return whether a path, folder or pattern includes a file, which need not exist yet."""
    found = Path(source).resolve()
    if found == target or (found.is_dir() and found in target.parents):
        return True
    if not glob.has_magic(source):
        return False
    parts = Path(os.path.abspath(source)).parts
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return matches((*Path(*parts[:fixed]).resolve().parts, *parts[fixed:]), target.parts)


def matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return whether a glob pattern matches a path, both split into parts."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(matches(pattern[1:], parts[i:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and matches(pattern[1:], parts[1:])


def refuse_suffix(out: str | os.PathLike[str], *, own: tuple[str, ...], kind: str) -> None:
    """Reject an output whose suffix implies another format. Call this before a budget is charged."""
    if Path(out).suffix.lower() in _KNOWN_SUFFIXES.difference(own):
        raise OutputError(f"{os.fspath(out)} has the wrong suffix for {kind}. Choose a name that ends in {own[0]}.")


def strict_json(text: str | bytes) -> Any:
    """Equivalent to `json.loads`, but raise ValueError if a key occurs twice in one object.

    `json.loads` keeps the last value and other parsers keep the first, so they would read different content.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice in one object")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=distinct)


def other_format(name: str | os.PathLike[str], found: int, reads: int) -> str:
    """Return the error message for a file of another format version."""
    return (
        f"{os.fspath(name)} has format {found}, and this version of gaussmix reads format {reads}. Use the version of "
        "gaussmix that wrote it."
    )
