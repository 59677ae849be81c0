"""A warning where the same rows are released again without a ledger, in one process.

Tables are recognised by the resolved paths of their files, or as the same objects; their content is never compared.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gaussmix.accounting.budgets import frames_to_the_caller
from gaussmix.errors import GaussmixError
from gaussmix.tables.cluster import is_clustered
from gaussmix.tables.duckdb_tables import query_of
from gaussmix.tables.files import files_of, is_path
from gaussmix.tables.memory import is_named_array

__all__ = ["remember", "warn_if_released_before"]

ADD_UP = (
    "These rows were released before in this process, and the privacy budgets of several releases of the same rows add "
    'up. Keep a ledger, which accounts for all of them: ledger = gm.Ledger("rows.ledger", epsilon=..., delta=..., '
    "releases=...), then release(..., ledger=ledger)."
)


@dataclass(frozen=True)
class _Place:
    """A file, by its resolved path, or a query on it."""

    path: str
    query: str = ""


_places: set[_Place] = set()
_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def warn_if_released_before(data: Any) -> None:
    """Give one :class:`UserWarning` if a table, or one of several, was released before."""
    if any(_is_known(part) for part in _parts(data)):
        warnings.warn(ADD_UP, UserWarning, stacklevel=frames_to_the_caller())


def remember(data: Any) -> None:
    """Note that a table was released, by weak references: nothing is kept alive."""
    for part in _parts(data):
        if isinstance(part, _Place):
            _places.add(part)
            continue
        with contextlib.suppress(TypeError):  # a list of values could only be recognised if it were kept alive
            _objects[id(part)] = part


def _is_known(part: Any) -> bool:
    if isinstance(part, _Place):
        return part in _places
    return part is not None and _objects.get(id(part)) is part


def _parts(data: Any) -> Iterator[Any]:
    """Files and queries as places; objects that hold rows as they are."""
    if (query := query_of(data)) is not None:
        yield _Place(os.path.realpath(query.path), query.sql.strip())
    elif is_path(data):
        try:
            yield from (_Place(os.path.realpath(file)) for file in files_of(data))
        except (GaussmixError, OSError):  # its words come when the rows are read
            return
    elif is_named_array(data) or (isinstance(data, tuple) and is_clustered(data)):
        yield data[0]
    elif isinstance(data, Mapping):
        yield from data.values()
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _parts(item)
    elif data is not None:
        yield data
