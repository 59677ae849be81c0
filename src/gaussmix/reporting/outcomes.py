"""Reconciliation of ledger entries with release files.

**Private**: reads ledgers and the footers of release files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gaussmix.errors import DamagedError
from gaussmix.ledger import Entry, Ledger
from gaussmix.models.release_file import release_id

__all__ = ["Outcome", "outcomes"]

State = Literal["there", "missing", "other", "unnamed"]

WORDS: dict[State, str] = {
    "there": "file present",
    "missing": "file missing: the release was lost or its file was moved; the budget is spent",
    "other": "file does not contain this release; the budget is spent",
    "unnamed": "no file recorded",
}


@dataclass(frozen=True)
class Outcome:
    """A ledger entry and the state of its release file.

    Attributes
    ----------
    entry : Entry
    state : {"there", "missing", "other", "unnamed"}
        The recorded file contains this release; it does not exist; it contains something else; no file was recorded.
    """

    entry: Entry
    state: State

    @property
    def words(self) -> str:
        """Description of the state."""
        return WORDS[self.state]


def outcomes(ledger: Ledger) -> list[Outcome]:
    """Return every entry of a ledger, oldest first, with the state of its release file."""
    return [Outcome(entry, _state(entry)) for entry in ledger.entries()]


def _state(entry: Entry) -> State:
    if not entry.file:
        return "unnamed"
    path = Path(entry.file)
    if not path.exists():
        return "missing"
    try:
        return "there" if release_id(path) == entry.release else "other"
    except (DamagedError, OSError):
        return "other"
