"""Atomic writing of files with disk space allocated in advance, strict JSON, and checks of file names and formats."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import json
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from gaussmix.errors import OutputError, OutputExistsError, OutputFolderError

__all__ = ["Output", "other_format", "refuse_inputs", "refuse_suffix", "reserve", "strict_json", "write_whole"]

_NO_ROOM_CALL = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # the file system cannot allocate in advance
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_CHUNK = 2**20
_DATABASE = b"SQLite format 3\0"  # the first bytes of a ledger
_PROMISES = frozenset(
    {".arrow", ".arrows", ".csv", ".db", ".ddb", ".duckdb", ".feather", ".ipc", ".parquet", ".pq", ".sqlite", ".tsv"}
    | {".bz2", ".gz", ".xz", ".zip", ".zst", ".html", ".json", ".md", ".svg", ".toml", ".txt", ".yaml", ".yml"}
    | {".dta", ".npy", ".npz", ".pdf", ".pkl", ".png", ".rds", ".sav", ".xls", ".xlsx", ".ledger", ".moments", ".sig"}
)
"""Suffixes that imply a file format."""


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
            written = self._placed()
            _synchronise(self.path.parent)
        except OSError as error:
            raise OutputError(f"{self.path} could not be written: {error.strerror or error}.") from None
        finally:
            self.abandon()
        return written

    def abandon(self) -> None:
        """Delete the temporary file."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _placed(self) -> Path:
        if self.force:
            self._temporary.replace(self.path)
            return self.path
        try:
            _rename_new(self._temporary, self.path)
        except FileExistsError:
            beside = self.path.with_name(f"gaussmix-{secrets.token_hex(8)}{self.path.suffix[:16]}")
            _rename_new(self._temporary, beside)
            return beside
        return self.path

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()


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
    target = _plain(path, force=force)
    temporary = target.with_name(f".gaussmix-{secrets.token_hex(8)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _take_room(handle, size)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
    except OSError as error:
        raise OutputError(f"{os.fspath(path)} cannot be written: {error.strerror or error}.") from None
    return Output(target, force, temporary)


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
    for name in inputs:
        if _names(os.fspath(name), target):
            raise OutputError(
                f"{os.fspath(out)} would overwrite an input or lie among the inputs. Choose another name."
            )


def refuse_suffix(out: str | os.PathLike[str], *, own: tuple[str, ...], kind: str) -> None:
    """Reject an output whose suffix implies another format; accept suffixes that imply none.

    Call this before a budget is charged.
    """
    if Path(out).suffix.lower() in _PROMISES.difference(own):
        raise OutputError(f"{os.fspath(out)} would be {kind}. Choose a name that ends in {own[0]}.")


def strict_json(text: str | bytes) -> Any:
    """Equivalent to `json.loads`, but raise ValueError if a key occurs twice in one object.

    `json.loads` keeps the last value and other parsers keep the first, so they would read different content.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def other_format(name: str | os.PathLike[str], found: int, reads: int) -> str:
    """Return the error message for a file of another format version."""
    return (
        f"{os.fspath(name)} has format {found}, and this version of gaussmix reads format {reads}. Use the version of "
        "gaussmix that wrote it."
    )


# ---------------------------------------------------------------------------------------------------------------
def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _plain(path: str | os.PathLike[str], *, force: bool) -> Path:
    """Resolve a path to a regular file or to a file that does not exist yet."""
    named = os.fspath(path)
    no_file = OutputError(f"{named} cannot be written: it is not a regular file. Choose another name.")
    try:
        if _leads_to_a_device(named):
            raise no_file
        target = Path(named).resolve()
        if not target.parent.is_dir():
            raise OutputFolderError(f"The folder {target.parent} does not exist. Create it first.")
        found = target.stat()
    except OutputError:
        raise
    except FileNotFoundError:
        return target
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or "it is not a valid file name"
        raise OutputError(f"{named!r} cannot be written: {reason}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise no_file
    if not force:
        raise OutputExistsError(
            f"{named} exists already. Choose another name, or replace it with force=True (--force)."
        )
    if _is_database(target):
        raise OutputError(
            f"{named} may be a ledger, which is never replaced because its record of spent budget would be lost. "
            "Choose another name."
        )
    return target


def _is_database(file: Path) -> bool:
    """Return whether a file is a SQLite database, as ledgers are, or cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return True


def _leads_to_a_device(named: str) -> bool:
    """Return whether a path, or a link that it follows, is in /dev or /proc (/dev/stdout may be a regular file)."""
    for _ in range(40):  # the system's own limit on links
        named = os.path.abspath(named)
        if named.startswith(("/dev/", "/proc/")) and not named.startswith("/dev/shm/"):
            return True
        if not os.path.islink(named):
            return False
        named = os.path.join(os.path.dirname(named), os.readlink(named))
    return False


def _take_room(handle: int, size: int) -> None:
    """Allocate the blocks of a file, so that writing them later cannot fail on a full disk."""
    if size == 0:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:
            if error.errno not in _NO_ROOM_CALL:
                raise
        else:
            return
    for start in range(0, size, _CHUNK):
        os.write(handle, bytes(min(_CHUNK, size - start)))
    os.fsync(handle)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a file; raise FileExistsError if the target exists."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # no hard links: claim the name first
        source.replace(target)
    else:
        source.unlink()


def _synchronise(folder: Path) -> None:
    """Synchronise a folder, so that renames survive a crash; ignore file systems that do not support it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _names(source: str, target: Path) -> bool:
    """Return whether a path, folder or pattern includes a file, which need not exist yet."""
    found = Path(source).resolve()
    if found == target or (found.is_dir() and found in target.parents):
        return True
    if not glob.has_magic(source):
        return _same_file(found, target)
    parts = Path(os.path.abspath(source)).parts
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    pattern = (*Path(*parts[:fixed]).resolve().parts, *parts[fixed:])
    if _matches(pattern, target.parts):
        return True
    return any(_same_file(Path(match), target) for match in glob.iglob(source, recursive=True))


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return whether a glob pattern matches a path, both split into parts."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[i:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])
