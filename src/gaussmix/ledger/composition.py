r"""Exact arithmetic of a privacy ledger: what it reserves, why that covers adaptive releases, and what remains.

Floats are treated as rational numbers and summed exactly.

Reservation. A new ledger fixes a Gaussian budget μ, the largest with δ_Gauss(ε; μ) ≤ δ - δ₀, and δ₀, ``delta_slack``,
for discretisation and for thresholds that fail. It accepts releases as long as

.. math:: \sum_i \mu_i^2 \le \mu^2, \qquad (1 + e^\varepsilon) \sum_i \eta_i \le \delta_0 ,

where μ_i = sensitivity/noise and η_i is the total-variation distance between the discrete and the rounded Gaussian
noise of release i. Each μ_i and η_i, the number of releases and everything else may depend on all earlier outputs: the
ledger is a privacy filter.

Proof for rounded Gaussian noise. Take a Brownian path on [0, μ²] with drift 1 for one table and 0 for its neighbour. A
simulator that holds the path, without knowing the drift, can generate the whole transcript. Release i uses the
increment over the interval of length μ_i² that starts at t_i = Σ_{j<i} μ_j²; both ends are known from the earlier
outputs, and the interval ends by μ². The path after t_i is independent of the path before it, so given the history the
increment divided by μ_i is N(μ_i, 1) or N(0, 1). The exact answers of the two tables to the query are at distance
d ≤ μ_i in units of the noise. d/μ_i times the scaled increment plus N(0, 1 - d²/μ_i²) is N(d, 1) or N(0, 1): the noisy
answer along the line through the two exact answers; orthogonal to it the distribution is the same for both tables. So
the transcript is post-processing of the path. The endpoint, N(μ², μ²) or N(0, μ²), is sufficient for the drift, hence
the transcript is exactly μ-Gaussian-DP, and one query with all of μ is the worst case. This is the fully adaptive
composition of Smith and Thakurta (arXiv:2210.17520). Rounding is post-processing.

Proof for discrete noise. Couple the transcripts T (discrete noise) and T* (rounded Gaussian noise) maximally, release
by release. While they agree, release i separates them with probability at most η_i. So they ever differ with
probability at most E Σ η_i ≤ η = δ₀/(1 + e^ε), for each of the tables A and A′, and

.. math:: P(T_A \in E) \le P(T^*_A \in E) + \eta \le e^\varepsilon P(T^*_{A'} \in E) + \delta - \delta_0 + \eta
          \le e^\varepsilon P(T_{A'} \in E) + \delta .

The probability that a threshold fails is charged to δ₀ as well. The guarantee is always the whole reservation, not the
amount spent so far.

Finite sketches (:mod:`gaussmix.paper`) cannot be recorded: no μ dominates them, and composing the amount spent so far
is not private for adaptively chosen sketches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
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
    """The reservation of a ledger, fixed when it is created.

    Attributes
    ----------
    identity : str
        Random name of the ledger, independent of its path.
    epsilon, delta : float
        The budget of all releases together.
    mu : float
        Gaussian budget: Σμ² over all releases is at most its square.
    delta_slack : float
        δ₀, the part of δ reserved for discretisation and for thresholds that fail.
    neighbours : {"add-remove", "replace-one"}
        The neighbouring relation.
    delta_reserved : float
        δ at ε of the whole reservation, ``delta_slack`` included, rounded up: at most ``delta``.
    releases : int
        Planned number of releases, each taking an equal part of μ² and of δ₀.
    privacy_unit : str
        The privacy-unit column; empty for row-level privacy.
    """

    identity: str
    epsilon: float
    delta: float
    mu: float
    delta_slack: float
    neighbours: Neighbours
    delta_reserved: float
    releases: int = 1
    privacy_unit: str = ""


@dataclass(frozen=True)
class RemainingBudget:
    """The remaining budget of a ledger. Numbers are rounded down, so that all of each can be spent.

    Attributes
    ----------
    mu : float
        The largest μ of one more release.
    delta_slack : float
        The largest part of δ₀ that one more release may use.
    releases_left : int
        Number of further releases of the planned size that fit.
    """

    mu: float
    delta_slack: float
    releases_left: int = 0

    def __str__(self) -> str:
        more = "release" if self.releases_left == 1 else "releases"
        left = f"{self.releases_left} more {more} of the planned size"
        return f"mu ≤ {_four(self.mu)}, delta_slack ≤ {_four(self.delta_slack)}: {left}"


def _four(value: float, rounding: str = ROUND_FLOOR) -> str:
    """Format a number with four significant digits, by default rounded down, so that it can be spent."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.4g}"


@dataclass(frozen=True)
class Entry:
    """One release, as recorded before its noise was drawn.

    Attributes
    ----------
    id : int
        Number in the ledger, from 1.
    time : datetime
        Time of the recording, UTC.
    mu : float
        √Σμ² over the parts of the release.
    delta_slack : float
        Part of δ₀ used: (1 + e^ε) times the discretisation error, plus the probability that a threshold fails.
    note : str
        Text supplied by the caller.
    release : str
        Random identifier of the release, also in its certificate.
    file : str
        Path that the release was to be written to; empty if unknown.
    """

    id: int
    time: datetime
    mu: float
    delta_slack: float
    note: str
    release: str = ""
    file: str = ""


FAILURE_SHARE = Fraction(1, 1000)
"""Default δ₀/δ of a ledger: it costs 0.005 % of μ, and is a thousand times what discretisation typically needs."""

_TYPES: dict[str, type] = {
    "identity": str,
    "epsilon": float,
    "delta": float,
    "mu": float,
    "delta_slack": float,
    "neighbours": str,
    "delta_reserved": float,
    "releases": int,
    "privacy_unit": str,
}


# ---------------------------------------------------------------------------------------------------------------
# Reservation
def checked_budget(
    *,
    epsilon: float,
    delta: float,
    mu: float | None,
    delta_slack: float | None,
    neighbours: Neighbours,
    releases: int,
    privacy_unit: str,
) -> dict[str, Any]:
    """Validate the arguments of a ledger and fill in defaults.

    By default δ₀ is δ/1000 and μ the largest with δ_Gauss(ε; μ) ≤ δ - δ₀.
    """
    check.choice(NEIGHBOURS, neighbours=neighbours)
    epsilon, delta = check.positive(finite=True, epsilon=epsilon), check.in_interval(0, 1, delta=delta)
    if delta_slack is None:
        delta_slack = round_down(FAILURE_SHARE * Fraction(delta))
    failure = check.nonnegative(delta_slack=delta_slack)
    if failure >= delta:
        raise ArgumentError(f"delta_slack must be less than delta={delta!r}, got {failure!r}.")
    if mu is None:
        mu = gaussian_mu(epsilon, _within(delta, failure))
    return {
        "epsilon": epsilon,
        "delta": delta,
        "mu": check.positive(finite=True, mu=mu),
        "delta_slack": failure,
        "neighbours": neighbours,
        "releases": check.positive_integer(releases=releases),
        "privacy_unit": check.text(privacy_unit=privacy_unit),
    }


def reserve(budget: dict[str, Any]) -> BudgetCap:
    """Return the reservation of a new ledger."""
    epsilon, mu, failure = budget["epsilon"], budget["mu"], budget["delta_slack"]
    within = _within(budget["delta"], failure)
    spent = gaussian_delta_up(epsilon, mu)
    if spent > within:
        raise BudgetUnmetError(
            f"mu must be at most {gaussian_mu(epsilon, within)!r}, the largest value that epsilon={epsilon!r} and "
            f"delta={budget['delta']!r} allow after delta_slack is subtracted from delta, got {mu!r}. Omit mu to use "
            "the maximum."
        )
    total = round_up(Fraction(spent) + Fraction(failure))
    return BudgetCap(identity=uuid.uuid4().hex, **budget, delta_reserved=total)


def _within(delta: float, delta_slack: float) -> float:
    """Return δ - δ₀, rounded down."""
    return round_down(Fraction(delta) - Fraction(delta_slack))


def check_reservation(reserved: BudgetCap) -> None:
    """Reject a reservation with values of the wrong type or inconsistent values.

    Types must match exactly, because the hash of a reservation depends on how its values are written.
    """
    values = asdict(reserved)
    for name, kind in _TYPES.items():
        if type(values[name]) is not kind:
            raise ArgumentTypeError(
                f"{name} of a ledger's budget must be of type {kind.__name__}, got {type(values[name]).__name__}."
            )
    checked_budget(**{name: values[name] for name in _TYPES if name not in ("identity", "delta_reserved")})
    check.nonnegative(delta_reserved=reserved.delta_reserved)


def account_holds(reserved: BudgetCap) -> bool:
    """Return whether δ_Gauss(ε; μ) + δ₀, recomputed, is at most the δ that the ledger states."""
    within = Fraction(reserved.delta_reserved) - Fraction(reserved.delta_slack)
    if within <= 0 or not reserved.delta_reserved <= reserved.delta < 1:
        return False
    return Fraction(gaussian_delta_up(reserved.epsilon, reserved.mu)) <= within


# ---------------------------------------------------------------------------------------------------------------
# Remaining budget
def part_of(reserved: BudgetCap, share: Fraction) -> tuple[float, float]:
    """Return μ and δ₀ of a release that takes a share of μ² and of δ₀, rounded down: n parts of 1/n always fit."""
    return root_down(share * Fraction(reserved.mu) ** 2), round_down(share * Fraction(reserved.delta_slack))


def room_left(reserved: BudgetCap, entries: Iterable[Entry]) -> RemainingBudget:
    """Return the remaining budget after the given entries, rounded down; ValueError if they exceed the reservation."""
    mu2, failure = _left(reserved, list(entries))
    if mu2 < 0 or failure < 0:
        raise ValueError("the recorded releases exceed the budget")
    mu_part, failure_part = part_of(reserved, Fraction(1, reserved.releases))
    more = min(mu2 // Fraction(mu_part) ** 2, failure // Fraction(failure_part)) if mu_part and failure_part else 0
    return RemainingBudget(root_down(mu2), round_down(failure), releases_left=int(more))


def _left(reserved: BudgetCap, entries: Sequence[Entry]) -> tuple[Fraction, Fraction]:
    """Return the remaining μ² and δ₀, exactly."""
    mu2 = Fraction(reserved.mu) ** 2 - sum((Fraction(entry.mu) ** 2 for entry in entries), Fraction())
    failure = Fraction(reserved.delta_slack) - sum((Fraction(entry.delta_slack) for entry in entries), Fraction())
    return mu2, failure


def remaining_releases(reserved: BudgetCap, entries: Iterable[Entry], entry: Entry) -> int:
    """Return how many more releases with the cost of ``entry`` fit after ``entries``, exactly."""
    mu2, failure = _left(reserved, list(entries))
    costs = [(mu2, Fraction(entry.mu) ** 2), (failure, Fraction(entry.delta_slack))]
    return int(min(left // cost for left, cost in costs if cost))


def refusal(room: RemainingBudget, *, mu: float, delta_slack: float = 0.0) -> str:
    """Return why a release does not fit into the remaining budget, or an empty string if it does."""
    reasons = []
    if mu > room.mu:
        reasons.append(f"it needs mu={_four(mu, ROUND_CEILING)}, but {_four(room.mu)} remains")
    if delta_slack > room.delta_slack:
        needed = _four(delta_slack, ROUND_CEILING)
        reasons.append(f"it needs delta_slack={needed}, but {_four(room.delta_slack)} remains")
    return "; ".join(reasons)
