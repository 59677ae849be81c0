"""What a ledger reserves, what it has recorded and what is left: plain values.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gaussmix.accounting.arguments import Relation

__all__ = ["Entry", "Reservation", "Room"]


@dataclass(frozen=True)
class Reservation:
    """What a ledger sets aside when it is created; it never changes.

    Of two kinds: a Gaussian budget μ alone, or sketch rows and what there is of μ beside them.

    Attributes
    ----------
    identity : str
        Random name of the ledger, the same wherever the file is moved.
    epsilon, delta : float
        The budget of all releases together.
    sketch_rows : int
        K, sketch rows of all releases together; 0 if the ledger is of the first kind.
    mu : float
        Gaussian budget: Σμ² of all Gaussian releases is at most its square.
    failure_delta : float
        δ₀, part of δ for slacks of lattices, thresholds, and private scale bounds that fail.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation.
    gamma : float or None
        γ*, the least γ of any sketch: leverage at most 1/(1 + γ*). None without sketch rows.
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
    sketch_rows: int
    mu: float
    failure_delta: float
    relation: Relation
    gamma: float | None
    delta_reserved: float
    releases: int = 1
    unit: str = ""


@dataclass(frozen=True)
class Room:
    """What is left: any release within it fits. Numbers are rounded so that spending all of one is allowed.

    Attributes
    ----------
    sketch_rows : int
        Sketch rows left.
    gamma : float or None
        The least γ they may have; it never changes. None where no sketch rows were reserved.
    mu : float
        The largest μ of one more Gaussian release.
    failure_delta : float
        The most that one more release may take of δ₀.
    releases_left : int
        How many more lattice releases fit if each takes one of the planned equal parts.
    """

    sketch_rows: int
    gamma: float | None
    mu: float
    failure_delta: float
    releases_left: int = 0

    def __str__(self) -> str:
        gaussian = f"mu ≤ {self.mu!r}, failure_delta ≤ {self.failure_delta!r}"
        if self.gamma is None:
            more = "release" if self.releases_left == 1 else "releases"
            return f"{gaussian}: {self.releases_left} more {more} of the planned size"
        return f"{self.sketch_rows} sketch rows at gamma ≥ {self.gamma!r}, {gaussian}"


@dataclass(frozen=True)
class Entry:
    """One release, as it was recorded before its noise was drawn.

    Attributes
    ----------
    id : int
        Number in the ledger, from 1.
    time : datetime
        When it was recorded, UTC.
    sketch_size : int
        Sketch rows; 0 for a release without a sketch.
    gamma : float or None
        The sketch's leverage as 1/(1 + γ); None without one.
    mu : float
        √Σμ² of the release's Gaussian parts.
    failure_delta : float
        What it takes of δ₀: (1 + e^ε)·slack on a lattice, or the probability that a bound of its fails.
    note : str
        The caller's words.
    release : str
        Random name of the release, made with the entry; the release's certificate has it too.
    file : str
        Where the release was to be written; empty if nobody said.
    """

    id: int
    time: datetime
    sketch_size: int
    gamma: float | None
    mu: float
    failure_delta: float
    note: str
    release: str = ""
    file: str = ""
