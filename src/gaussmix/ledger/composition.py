r"""What a ledger can reserve, why it covers whatever is chosen within it, and what is left: exact arithmetic.

Public parameters of releases; nothing in this module sees data. Floats are rational numbers, added up as such.

What is reserved. A ledger fixes at its creation a Gaussian budget μ, the largest with δ_Gauss(ε; μ) ≤ δ - δ₀, and δ₀,
``delta_slack``, for what does not behave like a Gaussian release. It allows every release with

.. math:: \sum_i \mu_i^2 \le \mu^2, \qquad (1 + e^\varepsilon) \sum_i \eta_i \le \delta_0 ,

μ_i = sensitivity/noise, η_i the slack of its lattice: each μ_i and η_i, the number of releases and everything else
about them may be chosen in the light of all earlier outputs.

Why any such sequence is private. First with rounded Gaussian noise. Take a Brownian path on [0, μ²] whose drift is 1
for one table and 0 for its neighbour. Somebody who holds the path, not knowing which it is, can act out the whole
history. To release i belongs the stretch of length μ_i² that begins at t_i = Σ_{j<i} μ_j²; both ends are known from
what was acted out before, and it ends by μ². The path beyond t_i is independent of the path up to t_i, so that given
the history the increment over the stretch, divided by μ_i, is N(μ_i, 1) or N(0, 1). The history has led to a question
to which the two tables' answers are d ≤ μ_i apart, in units of the noise. d/μ_i times that number plus N(0, 1 -
d²/μ_i²) is N(d, 1) or N(0, 1): the answer with its noise, along the line through the two answers; across it the law is
the same for both. So the transcript is post-processing of the path. Of the path only the end, N(μ², μ²) or N(0, μ²),
tells the drifts apart: the transcript is μ-Gaussian-DP, exactly, and asking once with all of μ is the worst that can be
done. This is the fully adaptive composition of Smith and Thakurta (arXiv:2210.17520). Rounding is post-processing.

Now with discrete noise. Draw the transcripts with either noise, T and T*, side by side, equal for as long as they can
be. While they are equal, the two laws of release i are η_i apart in total variation, and it parts them with
probability η_i at most. So they ever part with probability at most E Σ η_i ≤ η = δ₀/(1 + e^ε), for each of the tables A
and A′, and

.. math:: P(T_A \in E) \le P(T^*_A \in E) + \eta \le e^\varepsilon P(T^*_{A'} \in E) + \delta - \delta_0 + \eta
          \le e^\varepsilon P(T_{A'} \in E) + \delta .

What is claimed is the cap, never what happens to have been spent so far.

Thresholds add the probability that they fail, from δ₀.

A ledger takes no finite sketches (:mod:`gaussmix.paper`): no μ dominates them, and composing "what was spent so far" is
not private for sketches that are chosen adaptively.

What a ledger reserves, what it has recorded and what is left: plain values.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.gaussian import gaussian_delta_up, gaussian_mu
from gaussmix.accounting.numerics import root_down, round_down, round_up
from gaussmix.accounting.parameters import NEIGHBOURS, Neighbours
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError

__all__ = [
    "BudgetCap",
    "Entry",
    "RemainingBudget",
    "account_holds",
    "check_reservation",
    "checked_budget",
    "part_of",
    "refusal",
    "remaining_releases",
    "reserve",
    "room_left",
]


@dataclass(frozen=True)
class BudgetCap:
    """What a ledger sets aside when it is created; it never changes.

    Attributes
    ----------
    identity : str
        Random name of the ledger, the same wherever the file is moved.
    epsilon, delta : float
        The budget of all releases together.
    mu : float
        Gaussian budget: Σμ² of all releases is at most its square.
    delta_slack : float
        δ₀, part of δ for slacks of lattices and thresholds that fail.
    neighbours : {"add-remove", "replace-one"}
        The neighbouring relation.
    delta_reserved : float
        δ at ε of everything reserved, ``delta_slack`` included, rounded up: at most ``delta``.
    releases : int
        Into how many equal parts, of μ² and of δ₀, its owner plans to divide it.
    unit : str
        The column that names a person, whose rows are protected together; empty: the unit of privacy is one row.
    """

    identity: str
    epsilon: float
    delta: float
    mu: float
    delta_slack: float
    neighbours: Neighbours
    delta_reserved: float
    releases: int = 1
    unit: str = ""


@dataclass(frozen=True)
class RemainingBudget:
    """What is left: any release within it fits. Numbers are rounded so that spending all of one is allowed.

    Attributes
    ----------
    mu : float
        The largest μ of one more release.
    delta_slack : float
        The most that one more release may take of δ₀.
    releases_left : int
        How many more lattice releases fit if each takes one of the planned equal parts.
    """

    mu: float
    delta_slack: float
    releases_left: int = 0

    def __str__(self) -> str:
        more = "release" if self.releases_left == 1 else "releases"
        left = f"{self.releases_left} more {more} of the planned size"
        return f"mu ≤ {self.mu!r}, delta_slack ≤ {self.delta_slack!r}: {left}"


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
    delta_slack : float
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
    delta_slack: float
    note: str
    release: str = ""
    file: str = ""


FAILURE_SHARE = Fraction(1, 1000)
"""δ₀/δ of a ledger: it costs 0.005 % of μ, and is a thousand times what usual lattices need."""

_ASKED = ("epsilon", "delta", "mu", "delta_slack", "neighbours", "releases", "unit")

_TYPES: dict[str, type] = {
    "identity": str,
    "epsilon": float,
    "delta": float,
    "mu": float,
    "delta_slack": float,
    "neighbours": str,
    "delta_reserved": float,
    "releases": int,
    "unit": str,
}


# ---------------------------------------------------------------------------------------------------------------
# What is reserved
def checked_budget(
    *,
    epsilon: float,
    delta: float,
    mu: float | None,
    delta_slack: float | None,
    neighbours: Neighbours,
    releases: int,
    unit: str,
) -> dict[str, Any]:
    """The arguments of a ledger, what was left out filled in, if they make sense together.

    By default δ₀ is δ/1000 and μ the largest with δ_Gauss(ε; μ) ≤ δ - δ₀.
    """
    check.choice(NEIGHBOURS, neighbours=neighbours)
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    if delta_slack is None:
        delta_slack = round_down(FAILURE_SHARE * Fraction(delta))
    failure = check.nonnegative(delta_slack=delta_slack)
    if failure >= delta:
        raise ArgumentError(f"delta_slack is a part of delta={delta!r} and must be less, got {failure!r}.")
    if mu is None:
        mu = gaussian_mu(epsilon, _within(delta, failure))
    return {
        "epsilon": epsilon,
        "delta": delta,
        "mu": check.positive(finite=True, mu=mu),
        "delta_slack": failure,
        "neighbours": neighbours,
        "releases": check.positive_integer(releases=releases),
        "unit": check.text(unit=unit),
    }


def reserve(budget: dict[str, Any]) -> BudgetCap:
    """The account of a new ledger."""
    epsilon, mu, failure = budget["epsilon"], budget["mu"], budget["delta_slack"]
    within = _within(budget["delta"], failure)
    spent = gaussian_delta_up(epsilon, mu)
    if spent > within:
        raise BudgetUnmetError(
            f"mu={mu!r} is more than epsilon={epsilon!r} and delta={budget['delta']!r} (what delta_slack leaves of "
            f"it) allow: at most {gaussian_mu(epsilon, within)!r}. Leave mu out for that."
        )
    total = round_up(Fraction(spent) + Fraction(failure))
    return BudgetCap(identity=uuid.uuid4().hex, **budget, delta_reserved=total)


def _within(delta: float, delta_slack: float) -> float:
    """What δ₀ leaves of δ, rounded down."""
    return round_down(Fraction(delta) - Fraction(delta_slack))


def check_reservation(reserved: BudgetCap) -> None:
    """Refuse values that no ledger holds: of another type, or that make no sense together.

    Types are exact, since the hash of a reservation covers how its values are written.
    """
    values = asdict(reserved)
    for name, kind in _TYPES.items():
        if type(values[name]) is not kind:
            raise ArgumentTypeError(f"{name} of a reservation has the wrong type: {type(values[name]).__name__}.")
    checked_budget(**{name: values[name] for name in _ASKED})
    check.nonnegative(delta_reserved=reserved.delta_reserved)


def account_holds(reserved: BudgetCap) -> bool:
    """Whether δ_Gauss(ε; μ) + δ₀, computed anew, is within what the ledger says it takes of δ."""
    within = Fraction(reserved.delta_reserved) - Fraction(reserved.delta_slack)
    if within <= 0 or not reserved.delta_reserved <= reserved.delta < 1:
        return False
    return Fraction(gaussian_delta_up(reserved.epsilon, reserved.mu)) <= within


# ---------------------------------------------------------------------------------------------------------------
# What is left
def part_of(reserved: BudgetCap, share: Fraction) -> tuple[float, float]:
    """μ and δ₀ of a release that takes a share of μ² and of δ₀, rounded down: n parts of 1/n always fit."""
    return root_down(share * Fraction(reserved.mu) ** 2), round_down(share * Fraction(reserved.delta_slack))


def room_left(reserved: BudgetCap, entries: Iterable[Entry]) -> RemainingBudget:
    """What a reservation has left after some entries, rounded down.

    Raises
    ------
    ValueError
        If the entries exceed the reservation.
    """
    mu2, failure = _left(reserved, list(entries))
    if mu2 < 0 or failure < 0:
        raise ValueError("more is recorded than was reserved")
    mu_part, failure_part = part_of(reserved, Fraction(1, reserved.releases))
    more = min(mu2 // Fraction(mu_part) ** 2, failure // Fraction(failure_part)) if mu_part and failure_part else 0
    return RemainingBudget(root_down(mu2), round_down(failure), releases_left=int(more))


def _left(reserved: BudgetCap, entries: Sequence[Entry]) -> tuple[Fraction, Fraction]:
    """μ² and δ₀ that are left, exactly."""
    mu2 = Fraction(reserved.mu) ** 2 - sum((Fraction(entry.mu) ** 2 for entry in entries), Fraction())
    failure = Fraction(reserved.delta_slack) - sum((Fraction(entry.delta_slack) for entry in entries), Fraction())
    return mu2, failure


def remaining_releases(reserved: BudgetCap, entries: Iterable[Entry], entry: Entry) -> int:
    """How many more releases of the cost of an entry fit after all of the entries, exactly."""
    mu2, failure = _left(reserved, list(entries))
    costs = [(mu2, Fraction(entry.mu) ** 2), (failure, Fraction(entry.delta_slack))]
    return int(min(left // cost for left, cost in costs if cost))


def refusal(room: RemainingBudget, *, mu: float, delta_slack: float = 0.0) -> str:
    """Why a release does not fit into a room, or an empty string if it does."""
    reasons = []
    if mu > room.mu:
        reasons.append(f"it asks for mu={mu!r}, {room.mu!r} is left")
    if delta_slack > room.delta_slack:
        reasons.append(f"it asks for delta_slack={delta_slack!r}, {room.delta_slack!r} is left")
    return "; ".join(reasons)
