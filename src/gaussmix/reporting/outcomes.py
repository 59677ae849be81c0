"""Which entries of a ledger have a release file: what was spent for nothing, by name.

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
    "there": "its file is there",
    "missing": "has no file: its release was lost, or the file was moved; the budget is spent",
    "other": "has no file: another release, or none, is where its file should be; the budget is spent",
    "unnamed": "no file was named when it was recorded",
}


@dataclass(frozen=True)
class Outcome:
    """An entry and what became of its release.

    Attributes
    ----------
    entry : Entry
    state : {"there", "missing", "other", "unnamed"}
        The named file holds this release; there is no such file; it holds something else; no file was named.
    """

    entry: Entry
    state: State

    @property
    def words(self) -> str:
        """The state in words."""
        return WORDS[self.state]


def outcomes(ledger: Ledger) -> list[Outcome]:
    """Every entry of a ledger, oldest first, with what became of its release."""
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
