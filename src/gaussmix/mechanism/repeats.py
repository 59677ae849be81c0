"""A warning where the same rows are released again without a ledger, in one process.

Tables are recognised by the resolved paths of their files, or as the same objects; their content is never compared.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from gaussmix.accounting.parameters import frames_to_the_caller
from gaussmix.data.source import FileOrigin
from gaussmix.data.table import origins_of

__all__ = ["remember", "warn_if_released_before"]

ADD_UP = (
    "These rows were released before in this process, and the privacy budgets of several releases of the same rows add "
    'up. Keep a ledger, which accounts for all of them: ledger = gm.Ledger("rows.ledger", epsilon=..., delta=..., '
    "releases=...), then release(..., ledger=ledger)."
)


_places: set[FileOrigin] = set()
_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def warn_if_released_before(data: Any) -> None:
    """Give one :class:`UserWarning` if a table, or one of several, was released before."""
    if any(_is_known(part) for part in _parts(data)):
        warnings.warn(ADD_UP, UserWarning, stacklevel=frames_to_the_caller())


def remember(data: Any) -> None:
    """Note that a table was released, by weak references: nothing is kept alive."""
    for part in _parts(data):
        if isinstance(part, FileOrigin):
            _places.add(part)
            continue
        with contextlib.suppress(TypeError):  # a list of values could only be recognised if it were kept alive
            _objects[id(part)] = part


def _is_known(part: Any) -> bool:
    if isinstance(part, FileOrigin):
        return part in _places
    return part is not None and _objects.get(id(part)) is part


def _parts(data: Any) -> Iterator[Any]:
    """Yield files and queries by resolved path; objects that hold rows as they are."""
    for origin in origins_of(data):
        if isinstance(origin, FileOrigin):
            yield FileOrigin(origin.path.resolve(), origin.query.strip())
        elif origin is not None:
            yield origin
