"""Files written whole or not at all, with their room on the disk taken before it is needed; strict JSON and formats.

Nothing in this module sees data but the bytes that it writes.
"""

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

_NO_ROOM_CALL = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # the file system cannot set room aside
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_CHUNK = 2**20
_DATABASE = b"SQLite format 3\0"  # how a ledger begins
_PROMISES = frozenset(
    {".arrow", ".arrows", ".csv", ".db", ".ddb", ".duckdb", ".feather", ".ipc", ".parquet", ".pq", ".sqlite", ".tsv"}
    | {".bz2", ".gz", ".xz", ".zip", ".zst", ".html", ".json", ".md", ".svg", ".toml", ".txt", ".yaml", ".yml"}
    | {".dta", ".npy", ".npz", ".pdf", ".pkl", ".png", ".rds", ".sav", ".xls", ".xlsx", ".ledger", ".moments", ".sig"}
)
"""Suffixes that say what is in a file."""


@dataclass(frozen=True)
class Output:
    """A file that is yet to be written: made by `reserve`, ended by :meth:`commit` or :meth:`abandon`.

    Used as a context it is abandoned at the end, which does nothing once it is committed.

    Attributes
    ----------
    path : Path
        Where the file will be, symbolic links followed.
    force : bool
        Whether a file of that name is replaced.
    """

    path: Path
    force: bool
    _temporary: Path

    def commit(self, content: bytes, *, mode: int = 0o644) -> Path:
        """Write the file and return where it is.

        It is synchronised before it gets its name, and its folder afterwards: after a crash at any moment the old file
        or the whole new one is there. Without ``force``, a file that has appeared under the name in the meantime is
        left alone, and this one gets a name beside it: what is in it may have cost a budget.
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
        """Give the room back."""
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
    """Make sure that a file of ``size`` bytes can be written, by making it under another name in the same folder.

    Call it before a budget is charged: a full disk, a folder that cannot be written to or a name that is too long is
    found here. The other name is short and random, whatever the file's own is.

    Raises
    ------
    OutputError
        If it cannot be written, is no plain file, or is a ledger, which nothing replaces.
    OutputExistsError
        If it is there already and ``force`` is not given.
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
    """Write a file, or with ``force`` replace one: after a crash at any moment the old or the whole new one is there.

    A file that appears while this one is written is not replaced without ``force`` either: `OutputExistsError`.
    """
    output = reserve(path, len(content), force=force)
    if (written := output.commit(content, mode=mode)) != output.path:
        written.unlink()
        raise OutputExistsError(f"{os.fspath(path)} appeared meanwhile, and was left alone: save under another name.")


def refuse_inputs(out: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse an output that is one of the inputs, or would be found in a folder or by a pattern among them."""
    target = Path(out).resolve()
    for name in inputs:
        if _names(os.fspath(name), target):
            raise OutputError(f"{os.fspath(out)} would overwrite, or lie among, what is read: choose another name.")


def refuse_suffix(out: str | os.PathLike[str], *, own: tuple[str, ...], kind: str) -> None:
    """Refuse a name that promises another format than the one that is written; a name that promises none is as good.

    Call it before a budget is charged: readers go by names.
    """
    if Path(out).suffix.lower() in _PROMISES.difference(own):
        raise OutputError(f"{os.fspath(out)} would be {kind}: choose a name that ends in {own[0]}.")


def strict_json(text: str | bytes) -> Any:
    """Equivalent to `json.loads`, but raise ValueError if a key occurs twice in one object.

    `json.loads` keeps the last value, and other readers keep the first: a file would say different things to them.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def other_format(name: str | os.PathLike[str], found: int, reads: int) -> str:
    """Return the message about a file whose format number is not the one that this version reads."""
    return (
        f"{os.fspath(name)} has format {found}, and this version of gaussmix reads format {reads}: use the version of "
        "gaussmix that wrote it."
    )


# ---------------------------------------------------------------------------------------------------------------
def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _plain(path: str | os.PathLike[str], *, force: bool) -> Path:
    """The file behind a name: none yet, or a plain one."""
    named = os.fspath(path)
    no_file = OutputError(f"{named} cannot be written: it is no plain file. Choose another name.")
    try:
        if _leads_to_a_device(named):
            raise no_file
        target = Path(named).resolve()
        if not target.parent.is_dir():
            raise OutputFolderError(f"The folder {target.parent} does not exist: make it first.")
        found = target.stat()
    except OutputError:
        raise
    except FileNotFoundError:
        return target
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        raise OutputError(f"{named!r} cannot be written: {reason}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise no_file
    if not force:
        raise OutputExistsError(
            f"{named} exists already: choose another name, or replace it with force=True (--force)."
        )
    if _is_database(target):
        raise OutputError(f"{named} may be a ledger, without which a budget would be spent twice: choose another name.")
    return target


def _is_database(file: Path) -> bool:
    """Whether a file is one of SQLite's, as ledgers are; one that cannot be read is not known not to be."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return True


def _leads_to_a_device(named: str) -> bool:
    """Whether a name, or a link on its way, is in /dev or /proc: /dev/stdout may be a file that others write to."""
    for _ in range(40):  # as many links as the system follows
        named = os.path.abspath(named)
        if named.startswith(("/dev/", "/proc/")) and not named.startswith("/dev/shm/"):
            return True
        if not os.path.islink(named):
            return False
        named = os.path.join(os.path.dirname(named), os.readlink(named))
    return False


def _take_room(handle: int, size: int) -> None:
    """Allocate the blocks of a file, so that writing them later cannot fail for want of them."""
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
    """Rename without replacing: FileExistsError if the name is taken."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # no links here: take the name first
        source.replace(target)
    else:
        source.unlink()


def _synchronise(folder: Path) -> None:
    """Make names survive a crash too; a file system that synchronises no folders is left as it is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _names(source: str, target: Path) -> bool:
    """Whether a path, a folder or a pattern stands for a file, also for one that is not there yet."""
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
    """Whether a glob pattern, part by part, describes a path."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[i:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])
