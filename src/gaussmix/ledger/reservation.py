"""What a ledger reserves, what it has recorded and what is left: values and exact arithmetic.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.arguments import GAMMA_MAX, RELATIONS, Relation
from gaussmix.accounting.claims import holds, mixing_delta
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.accounting.least_noise import least_gamma
from gaussmix.accounting.rounding import root_down, round_down
from gaussmix.errors import ArgumentError, BudgetUnmetError

__all__ = [
    "ASKED",
    "Entry",
    "Reservation",
    "Room",
    "account_holds",
    "checked_budget",
    "refusal",
    "reserved_gamma",
    "room_left",
]


# ---------------------------------------------------------------------------------------------------------------
# Values
@dataclass(frozen=True)
class Reservation:
    """What a ledger sets aside when it is created; it never changes.

    Attributes
    ----------
    identity : str
        Random name of the ledger, the same wherever the file is moved.
    epsilon, delta : float
        The budget of all releases together.
    sketch_rows : int
        K, sketch rows of all releases together.
    mu : float
        Gaussian budget: Σμ² of all Gaussian releases is at most its square.
    failure_delta : float
        Part of δ for the event that a private scale bound fails.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation.
    gamma : float
        γ*, the least γ of any sketch: leverage at most 1/(1 + γ*).
    delta_reserved : float
        δ at ε of everything reserved, ``failure_delta`` included, rounded up: at most ``delta``.
    """

    identity: str
    epsilon: float
    delta: float
    sketch_rows: int
    mu: float
    failure_delta: float
    relation: Relation
    gamma: float
    delta_reserved: float


@dataclass(frozen=True)
class Room:
    """What is left: any release within it fits. Numbers are rounded so that spending all of one is allowed.

    Attributes
    ----------
    sketch_rows : int
        Sketch rows left.
    gamma : float
        The least γ they may have; it never changes.
    mu : float
        The largest μ of one more Gaussian release.
    failure_delta : float
        The largest failure probability of one more private scale bound.
    """

    sketch_rows: int
    gamma: float
    mu: float
    failure_delta: float

    def __str__(self) -> str:
        return (
            f"{self.sketch_rows} sketch rows at gamma ≥ {self.gamma!r}, mu ≤ {self.mu!r}, "
            f"failure_delta ≤ {self.failure_delta!r}"
        )


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
        Probability that its private scale bound fails.
    note : str
        The caller's words.
    release : str
        Random name of the release, made with the entry; the release's certificate has it too. Empty in entries that
        were made before ledgers had it.
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


# ---------------------------------------------------------------------------------------------------------------
# Arithmetic, exact: floats are rational numbers, and sums of their squares are compared as such
def reserved_gamma(
    epsilon: float, delta: float, *, sketch_rows: int, mu: float, relation: Relation
) -> tuple[float, float]:
    """Least γ > 0 at which K sketch rows beside Gaussian releases of total μ meet (ε, δ), and the δ they spend."""
    try:
        gamma = least_gamma(epsilon, delta, sketch_size=sketch_rows, relation=relation, mu=mu)
    except BudgetUnmetError:
        raise BudgetUnmetError(
            f"No noise with gamma up to {GAMMA_MAX:g} lets sketch_rows={sketch_rows} and mu={mu!r} share "
            f"epsilon={epsilon!r} and delta={delta!r} (what failure_delta leaves of it). Without any sketch mu could "
            f"be {gaussian_mu(epsilon, delta):.4g}: ask for less mu, fewer sketch_rows or a larger budget."
        ) from None
    return gamma, mixing_delta(epsilon, sketch_rows, gamma, relation, mu)


def room_left(reserved: Reservation, entries: Iterable[Entry]) -> Room:
    """What a reservation has left after some entries, rounded down.

    Raises
    ------
    ValueError
        If the entries exceed the reservation.
    """
    entries = list(entries)
    rows = reserved.sketch_rows - sum(entry.sketch_size for entry in entries)
    mu2 = Fraction(reserved.mu) ** 2 - sum((Fraction(entry.mu) ** 2 for entry in entries), Fraction())
    failure = Fraction(reserved.failure_delta) - sum((Fraction(entry.failure_delta) for entry in entries), Fraction())
    if rows < 0 or mu2 < 0 or failure < 0 or any(e.gamma is not None and e.gamma < reserved.gamma for e in entries):
        raise ValueError("more is recorded than was reserved")
    return Room(sketch_rows=rows, gamma=reserved.gamma, mu=root_down(mu2), failure_delta=round_down(failure))


def refusal(room: Room, *, sketch_size: int, gamma: float | None, mu: float, failure_delta: float) -> str:
    """Why a release does not fit into a room, or an empty string if it does."""
    reasons = []
    if sketch_size > room.sketch_rows:
        reasons.append(f"it asks for {sketch_size} sketch rows, {room.sketch_rows} are left")
    if gamma is not None and gamma < room.gamma:
        reasons.append(f"its sketch has gamma={gamma!r}, the least is {room.gamma!r}")
    if mu > room.mu:
        reasons.append(f"it asks for mu={mu!r}, {room.mu!r} is left")
    if failure_delta > room.failure_delta:
        reasons.append(f"its scale bound fails with probability {failure_delta!r}, {room.failure_delta!r} is left")
    return "; ".join(reasons)


ASKED = ("epsilon", "delta", "sketch_rows", "mu", "failure_delta", "relation")


def checked_budget(
    epsilon: float, delta: float, sketch_rows: int, mu: float, failure_delta: float, relation: Relation
) -> dict[str, Any]:
    """The arguments of a ledger, if they make sense together."""
    check.choice(RELATIONS, relation=relation)
    budget = {
        "epsilon": check.positive(finite=True, epsilon=epsilon),
        "delta": check.in_interval(0, 1, delta=delta),
        "sketch_rows": check.sketch_rows(sketch_rows=sketch_rows),
        "mu": check.nonnegative(mu=mu),
        "failure_delta": check.nonnegative(failure_delta=failure_delta),
        "relation": relation,
    }
    if failure_delta >= delta:
        raise ArgumentError(f"failure_delta is a part of delta={delta!r} and must be less, got {failure_delta!r}.")
    return budget


def account_holds(reserved: Reservation) -> bool:
    """Whether K rows at γ* beside μ are within what the ledger says they take of δ, computed anew."""
    within = Fraction(reserved.delta_reserved) - Fraction(reserved.failure_delta)
    return (
        within > 0
        and reserved.delta_reserved <= reserved.delta < 1
        and holds(
            reserved.epsilon,
            float(within),
            sketch_size=check.sketch_rows(sketch_rows=reserved.sketch_rows),
            gamma=reserved.gamma,
            relation=reserved.relation,
            mu=reserved.mu,
        )
    )
