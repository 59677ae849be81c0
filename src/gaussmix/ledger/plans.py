"""What one release through a ledger may be: its noise, from what is reserved and what is left. Nothing is spent here.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LatticeAccount, Share, account_within, exact_share, slack_delta
from gaussmix.accounting.numerics import round_up
from gaussmix.errors import ArgumentError, BudgetExceededError
from gaussmix.ledger.reservation import part_of, refusal
from gaussmix.ledger.values import Reservation, Room

__all__ = ["exceeded", "failures_plan", "lattice_cost", "lattice_plan", "same_unit"]


def lattice_plan(
    reserved: Reservation, room: Room, *, shares: Sequence[Share], coordinates: Sequence[int], share: Share | None
) -> LatticeAccount:
    """The account of a release that takes a share of the ledger's μ² and δ₀; by default one of the planned releases."""
    part = _part(reserved, share)
    if not reserved.failure_delta:
        raise BudgetExceededError(
            "A release needs failure_delta, and the ledger was created without it. Nothing was recorded."
        )
    mu, allowed = part_of(reserved, part)
    reasons = refusal(room, mu=mu)
    if reasons:
        left = (room.mu / reserved.mu) ** 2
        raise exceeded(reasons, room, f" That is a share of {float(part):.4g} of mu²; {left:.4g} is left.")
    return account_within(
        reserved.epsilon,
        reserved.delta,
        mu=mu,
        allowed=min(allowed, room.failure_delta),
        shares=shares,
        coordinates=coordinates,
        relation=reserved.relation,
    )


def failures_plan(reserved: Reservation, room: Room, account: LatticeAccount, share: Share | None) -> Fraction:
    """What the slack of such a release leaves of its share of δ₀: for thresholds."""
    _, allowed = part_of(reserved, _part(reserved, share))
    return Fraction(min(allowed, room.failure_delta)) - Fraction(slack_delta(reserved.epsilon, account.slack))


def _part(reserved: Reservation, share: Share | None) -> Fraction:
    """The share of a release, by default that of one of the planned ones."""
    part = Fraction(1, reserved.releases) if share is None else exact_share(share)
    if not 0 < part <= 1:
        raise ArgumentError(f"share must be more than 0 and at most 1, got {share!r}.")
    return part


def lattice_cost(reserved: Reservation, account: LatticeAccount, *, failures: float = 0.0) -> dict[str, Any]:
    """Return what releases with an account's noise spend: its μ, and (1 + e^ε)·slack of δ₀.

    ε is the ledger's. ``failures``, the probability that a threshold fails, comes from δ₀ too.
    """
    account.verify()
    if account.relation != reserved.relation:
        raise ArgumentError(f"This ledger is for relation={reserved.relation!r}, the account for {account.relation!r}.")
    slack = Fraction(slack_delta(reserved.epsilon, account.slack))
    return {"mu": account.mu, "failure_delta": round_up(slack + Fraction(check.nonnegative(failures=failures)))}


def exceeded(reasons: str, room: Room, advice: str = "") -> BudgetExceededError:
    """The error of a release that does not fit."""
    return BudgetExceededError(
        f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded.{advice}"
    )


def same_unit(reserved: Reservation, unit: str | None) -> None:
    """Refuse another unit of privacy than the ledger's."""
    if reserved.unit != (unit or ""):
        raise ArgumentError(
            f"This ledger is for {_unit_words(reserved.unit)}, the release for {_unit_words(unit or '')}: one budget "
            "cannot cover both, since a person may have many rows. Use a ledger of the release's unit."
        )


def _unit_words(unit: str) -> str:
    return f"persons (unit={unit!r})" if unit else "rows (no unit)"
