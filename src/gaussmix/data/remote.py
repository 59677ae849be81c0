"""Files at URLs, such as ``s3://bucket/visits/*.parquet``, read through Arrow's file systems or fsspec's.

Arrow opens ``s3``, ``gs``, ``abfs`` and ``hdfs`` itself, with the credentials that the environment has; fsspec opens
every other scheme for which a package is installed. A file is identified by its kind of file system and its path: one
named twice is an error, also by different URLs of one kind. Copies, other names of a host, and other ways to a store,
such as ``webhdfs`` beside ``hdfs``, are not recognised. Bytes are read again in every pass, and the size and version of
each file are compared.
"""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from gaussmix._files import matches
from gaussmix.errors import ArgumentError, DataError, GaussmixError, MissingFileError, MissingPackageError

__all__ = ["RemoteFile", "filesystem_of", "remote_files", "without_password"]


def without_password(url: str) -> str:
    """Return a URL for messages, without what may be a password or a key: all before an ``@``, and parameters.

    >>> without_password("s3://key:se/cr@t@bucket/a.parquet?token=1#2"), without_password("s3://key:se?cret@bucket")
    ('s3://bucket/a.parquet', 's3://...')
    """
    scheme, _, rest = url.partition("://")
    path, *parameters = re.split("[?#]", rest, maxsplit=1)
    # An @ behind a ? or # may end a password or be part of a parameter.
    return f"{scheme}://" + ("..." if "@" in "".join(parameters) else path.rpartition("@")[2])


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL. Two are equal if they have the same path in the same kind of file system, whatever their URLs.

    Attributes
    ----------
    kind : str
        Kind of file system.
    path : str
        The path within it, in normal form.
    place : str
        The path as the file system spells it.
    url : str
        The URL in messages.
    """

    kind: str
    path: str
    place: str = field(compare=False)
    url: str = field(compare=False)
    filesystem: Any = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part of the path, whose suffix is the format."""
        return posixpath.basename(self.path)

    def resolve(self) -> RemoteFile:
        """Return the file itself: its path is in normal form."""
        return self

    @property
    def size(self) -> int:
        """Number of bytes."""
        return int(self.state()[0])

    def state(self) -> tuple[Any, ...]:
        """Return size and version, which are compared between passes."""
        with _reached(self.url):
            info = self.filesystem.get_file_info(self.place)
            if not info.is_file:
                raise MissingFileError(f"The file {self.url!r} does not exist.")
            other = getattr(getattr(self.filesystem, "handler", None), "fs", None)
            return info.size or 0, info.mtime_ns, None if other is None else other.checksum(self.place)

    def open(self) -> pa.NativeFile:
        """Open it for reading at any position."""
        with _reached(self.url):
            return self.filesystem.open_input_file(self.place)

    def __str__(self) -> str:
        return self.url


@contextmanager
def _reached(url: str) -> Iterator[None]:
    """Replace errors of file systems, which may quote credentials."""
    try:
        yield
    except GaussmixError:
        raise
    except ImportError as error:
        raise MissingPackageError(f"{url} requires a package that is not installed: {error}") from None
    except Exception:
        raise DataError(f"{url} cannot be read. Check the address, the connection and the credentials.") from None


def filesystem_of(url: str) -> tuple[Any, str, str]:
    """Return the file system of a URL, its kind, and the path or pattern within it."""
    from pyarrow import fs

    where = without_password(url)
    if "::" in url:  # one file has many such addresses
        raise ArgumentError(f"{where} consists of several URLs. Pass the address of the file itself, without '::'.")
    bare, _, parameters = url.partition("?")
    base = bare[: _magic(bare)].rpartition("/")[0] if glob.has_magic(bare) else bare
    fixed = f"{base}?{parameters}" if parameters else base
    with _reached(where):
        try:
            found, path = fs.FileSystem.from_uri(fixed)
            kind = found.type_name
        except pa.ArrowInvalid as error:
            if "Unrecognized filesystem type" not in str(error):
                raise ArgumentError(f"{where} is not a valid URL, or has an unknown parameter. Correct it.") from None
            try:
                import fsspec.implementations.local
            except ImportError:
                raise MissingPackageError(f'{where} requires fsspec: pip install "gaussmix[urls]".') from None
            try:
                other, path = fsspec.core.url_to_fs(fixed)
            except ValueError:
                raise ArgumentError(
                    f"{where} has an unknown scheme. Use s3, gs, abfs, or one that fsspec knows."
                ) from None
            if isinstance(other, fsspec.implementations.local.LocalFileSystem):
                raise ArgumentError(f"{where} is the URL of a local file. Pass its path.") from None
            found = fs.PyFileSystem(fs.FSSpecHandler(other))
            kind = other.protocol if isinstance(other.protocol, str) else other.protocol[0]
    return found, kind, path if base == bare else path.rstrip("/") + bare[len(base) :]


def _magic(text: str) -> int:
    """Return the position of the first character of a pattern, or the length of the text."""
    return next((place for place, character in enumerate(text) if glob.has_magic(character)), len(text))


def remote_files(
    url: str, opened: tuple[Any, str, str], known: tuple[str, ...], marks: dict[str, tuple[str, str]]
) -> list[RemoteFile]:
    """Return the files of a URL, a directory or a pattern, sorted; ``opened`` is its `filesystem_of`.

    ``known`` are the suffixes of formats, by which files of directories are chosen. ``marks`` are the names that only
    directories of tables with versions have, such as ``_delta_log``: they are refused with what they are and a remedy.
    """
    from pyarrow import fs

    where = without_password(url)
    filesystem, kind, path = opened

    def file_at(place: str) -> RemoteFile:
        bare = re.sub("^https?://", "", place.partition("?")[0])
        shown = where if place == path else without_password(f"{where.partition('://')[0]}://{bare.lstrip('/')}")
        return RemoteFile(kind, posixpath.normpath(re.sub("/+", "/", bare)).lstrip("/"), place, shown, filesystem)

    with _reached(where):
        pattern = glob.has_magic(path)
        base = path[: _magic(path)].rpartition("/")[0] if pattern else path.rstrip("/")
        own = filesystem.get_file_info(base)
        if own.is_file:
            found, entries = [base], []
        elif own.type == fs.FileType.NotFound:
            raise MissingFileError(f"The file {where!r} does not exist.")
        else:
            entries = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
            below = [info.path for info in entries if info.is_file]
            parts = tuple(path.strip("/").split("/"))
            if pattern:
                found = [place for place in below if matches(parts, tuple(place.strip("/").split("/")))]
            else:
                inside = [(place, place[len(base) :].strip("/").split("/")) for place in below]
                shown = [place for place, names in inside if not any(name.startswith((".", "_")) for name in names)]
                found = [place for place in shown if place.lower().endswith(known)]
        if not found:
            raise MissingFileError(f"No file of a supported format was found at {where!r}.")
        folders = {folder for place in found for folder in map(str, Path(place).parents)} | {base}
        listed = {info.path.strip("/") for info in entries}
        for folder in sorted(folders - {".", "/"}):
            for mark, (what, remedy) in marks.items():
                if _has(filesystem, folder, mark, listed):
                    raise ArgumentError(
                        f"{where} is in {what}. Its files also hold superseded and deleted rows, which must not be "
                        f"counted. {remedy}"
                    )
    return [file_at(place) for place in sorted(found)]


def _has(filesystem: Any, folder: str, mark: str, listed: set[str]) -> bool:
    """Return whether a directory has an entry: the name of one, or a directory and the pattern of a name in it."""
    from pyarrow import fs

    inside, _, name = mark.rpartition("/")
    if not inside:
        place = posixpath.join(folder, mark)
        return (
            place.strip("/") in listed
            or any(path.startswith(place.strip("/") + "/") for path in listed)
            or filesystem.get_file_info(place).type != fs.FileType.NotFound
        )
    selector = fs.FileSelector(posixpath.join(folder, inside), allow_not_found=True)
    return any(matches((name,), (info.base_name,)) for info in filesystem.get_file_info(selector))
