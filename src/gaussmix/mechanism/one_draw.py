"""What every prepared mechanism refuses: rows that it was not prepared for, and a second draw.

>>> once = OneDraw()
>>> once.take()
>>> once.take()
Traceback (most recent call last):
    ...
gaussmix.errors.ArgumentError: A release was drawn from this preparation: prepare another one, which has its own cost.
"""

from __future__ import annotations

import threading

from gaussmix.data.contributions import Unit
from gaussmix.data.rows import RowSource
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DeclarationError

__all__ = ["OneDraw", "check_rows"]


class OneDraw:
    """The one draw that a preparation serves, whichever thread comes first."""

    def __init__(self) -> None:
        self._unused = threading.Lock()

    def take(self) -> None:
        """Refuse a second draw: it would be a second release."""
        if not self._unused.acquire(blocking=False):
            raise ArgumentError(
                "A release was drawn from this preparation: prepare another one, which has its own cost."
            )


def check_rows(rows: RowSource, schema: Schema, unit: Unit | None = None) -> None:
    """Refuse rows of another schema or unit, before they are read."""
    if rows.schema != schema:
        raise DeclarationError(
            "These rows are encoded by another schema than the release was prepared for: leave the schema out, "
            "or build them again with it."
        )
    if rows.unit != unit:
        raise DeclarationError(
            "These rows are bounded for another unit of privacy than the release was prepared for: leave the unit "
            "out, or build them again with it."
        )
