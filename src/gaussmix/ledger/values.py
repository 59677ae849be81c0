"""What a ledger reserves, what it has recorded and what is left: plain values.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gaussmix.accounting.parameters import Relation

__all__ = ["Entry", "Reservation", "Room"]


@dataclass(frozen=True)
class Reservation:
    """What a ledger sets aside when it is created; it never changes.

    Attributes
    ----------
    identity : str
        Random name of the ledger, the same wherever the file is moved.
    epsilon, delta : float
        The budget of all releases together.
    mu : float
        Gaussian budget: Σμ² of all releases is at most its square.
    failure_delta : float
        δ₀, part of δ for slacks of lattices and thresholds that fail.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation.
    delta_reserved : float
        δ at ε of everything reserved, ``failure_delta`` included, rounded up: at most ``delta``.
    releases : int
        Into how many equal parts, of μ² and of δ₀, its owner plans to divide it.
    unit : str
        The column that names a person, whose rows are protected together; empty: the unit of privacy is one row.
    """

    identity: str
    epsilon: float
    delta: float
    mu: float
    failure_delta: float
    relation: Relation
    delta_reserved: float
    releases: int = 1
    unit: str = ""


@dataclass(frozen=True)
class Room:
    """What is left: any release within it fits. Numbers are rounded so that spending all of one is allowed.

    Attributes
    ----------
    mu : float
        The largest μ of one more release.
    failure_delta : float
        The most that one more release may take of δ₀.
    releases_left : int
        How many more lattice releases fit if each takes one of the planned equal parts.
    """

    mu: float
    failure_delta: float
    releases_left: int = 0

    def __str__(self) -> str:
        more = "release" if self.releases_left == 1 else "releases"
        left = f"{self.releases_left} more {more} of the planned size"
        return f"mu ≤ {self.mu!r}, failure_delta ≤ {self.failure_delta!r}: {left}"


@dataclass(frozen=True)
class Entry:
    """One release, as it was recorded before its noise was drawn.

    Attributes
    ----------
    id : int
        Number in the ledger, from 1.
    time : datetime
        When it was recorded, UTC.
    mu : float
        √Σμ² of the release's parts.
    failure_delta : float
        What it takes of δ₀: (1 + e^ε)·slack of its lattices, and the probability that a threshold fails.
    note : str
        The caller's words.
    release : str
        Random name of the release, made with the entry; the release's certificate has it too.
    file : str
        Where the release was to be written; empty if nobody said.
    """

    id: int
    time: datetime
    mu: float
    failure_delta: float
    note: str
    release: str = ""
    file: str = ""
