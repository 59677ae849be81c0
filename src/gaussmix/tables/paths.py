"""Which files a path, a folder or a pattern means. What cannot be looked into is an error, never left out."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from gaussmix.errors import ArgumentError, DataError, MissingFileError

__all__ = ["ARROW", "CSV", "PARQUET", "files_of", "format_of", "is_path", "suffix_of"]

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2", ".csv.zst", ".tsv.zst")


def is_path(data: Any) -> bool:
    """Whether the source is named by a path."""
    return isinstance(data, str | os.PathLike)


def suffix_of(path: Any) -> str:
    """How a file's name ends, compression included."""
    name = Path(os.fspath(path)).name.lower()
    return next((suffix for suffix in (*PARQUET, *CSV) if name.endswith(suffix)), Path(name).suffix)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a directory or a pattern means, sorted."""
    whole = Path(os.fspath(path))
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        found = sorted(file for file in _below(whole) if suffix_of(file) in (*PARQUET, *ARROW, *CSV))
        if not found:
            raise MissingFileError(f"The directory {str(path)!r} holds no Parquet, Arrow or CSV file.")
        return found
    if glob.has_magic(str(path)):
        found = sorted({file for file in _matching(whole) if not _is_folder(file)})
        if not found:
            raise MissingFileError(f"No file matches {str(path)!r}.")
        return found
    if os.path.lexists(whole):
        raise MissingFileError(f"{whole} is neither a file nor a folder (or a link to nothing). Name a file.")
    raise MissingFileError(f"There is no file {str(path)!r}.")


def format_of(file: Path) -> Literal["parquet", "arrow", "csv"]:
    """What a file is, by its name; an error if it is none of these, empty, or no plain file."""
    suffix = suffix_of(file)
    if suffix not in (*PARQUET, *ARROW, *CSV):
        known = ", ".join((*PARQUET, *ARROW, *CSV[:2]))
        raise ArgumentError(f"{file} must end in one of {known} (CSV also compressed).")
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ArgumentError(f"{file} is no plain file. Write its content to one.")
    if not status.st_size:
        raise DataError(f"{file} is empty. Write it again, or leave it out.")
    if suffix in PARQUET:
        return "parquet"
    return "arrow" if suffix in ARROW else "csv"


def _below(folder: Path) -> Iterator[Path]:
    """Files of a folder and its subfolders but for hidden ones, whose names begin with a dot or an underscore."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise DataError(f"The folder {here} is reached twice, by a link: its rows would be counted twice.")
        seen.add((status.st_dev, status.st_ino))
        for path in _entries(here):
            if path.name[0] not in "._":
                if _is_folder(path):
                    waiting.append(path)
                else:
                    yield path


def _matching(pattern: Path) -> Iterator[Path]:
    """What a pattern means; `glob.glob` would leave out what it may not look into."""
    found = [Path(pattern.anchor)] if pattern.anchor else [Path()]
    parts = pattern.parts[bool(pattern.anchor) :]
    for part in (*parts, "*") if parts[-1] == "**" else parts:
        if part == "**":
            found = [path for folder in found for path in _folders(folder)]
        elif glob.has_magic(part):
            found = [path for folder in found if _is_folder(folder) for path in _entries(folder) if _fits(path, part)]
        else:
            found = [folder / part for folder in found if os.path.lexists(folder / part)]
    yield from found


def _folders(folder: Path) -> Iterator[Path]:
    """The folder and all folders below; links are not followed, as in a shell."""
    if _is_folder(folder):
        yield folder
        for path in _entries(folder):
            if not path.name.startswith(".") and not path.is_symlink() and _is_folder(path):
                yield from _folders(path)


def _fits(path: Path, pattern: str) -> bool:
    name = path.name
    return fnmatch.fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted; an error if it cannot be read."""
    with os.scandir(folder) as found:
        return sorted(folder / entry.name for entry in found)


def _is_folder(path: Path) -> bool:
    """Unlike `Path.is_dir`, an error where it cannot be known; a link to nothing is no folder."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False
