"""What one release through a ledger may be: its noise, from what is reserved and what is left. Nothing is spent here.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from gaussmix import _validation as check
from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.lattice import LatticeAccount, account_within
from gaussmix.accounting.lattice_noise import Share, exact_share
from gaussmix.accounting.rounding import round_up
from gaussmix.errors import ArgumentError, BudgetExceededError
from gaussmix.ledger.reservation import part_of, refusal
from gaussmix.ledger.values import Reservation, Room

__all__ = ["exceeded", "lattice_plan", "same_unit", "sketch_plan"]


def lattice_plan(
    reserved: Reservation, room: Room, *, shares: Sequence[Share], coordinates: Sequence[int], share: Share | None
) -> LatticeAccount:
    """The account of a release that takes a share of the ledger's μ² and δ₀; by default one of the planned releases."""
    part = Fraction(1, reserved.releases) if share is None else exact_share(share)
    if not 0 < part <= 1:
        raise ArgumentError(f"share must be more than 0 and at most 1, got {share!r}.")
    if not (reserved.mu and reserved.failure_delta):
        raise BudgetExceededError(
            "A release on the lattice needs mu and failure_delta, and the ledger was created without one of them. "
            "Nothing was recorded."
        )
    mu, allowed = part_of(reserved, part)
    reasons = refusal(room, sketch_size=0, gamma=None, mu=mu, failure_delta=0.0)
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


def sketch_plan(reserved: Reservation, sketch_size: int) -> Calibration:
    """Parameters of a sketch at γ*."""
    k = check.sketch_rows(sketch_size=sketch_size)
    if reserved.gamma is None:
        raise BudgetExceededError(
            f"sketch_size={k} does not fit: the ledger was created without sketch_rows. Release without a sketch."
        )
    if k > reserved.sketch_rows:
        raise BudgetExceededError(
            f"sketch_size={k} exceeds the {reserved.sketch_rows} sketch rows of the whole ledger."
        )
    within = round_up(Fraction(reserved.delta_reserved) - Fraction(reserved.failure_delta))
    return Calibration(
        epsilon=reserved.epsilon,
        delta=reserved.delta,
        sketch_size=k,
        gamma=reserved.gamma,
        scale="none",
        analysis="exact",
        relation=reserved.relation,
        eta=None,
        tau=None,
        eigenvalue_error=0.0,
        epsilon_spent=reserved.epsilon,
        delta_spent=reserved.delta_reserved,
        delta_split=(("all releases of the ledger", within), ("eigenvalue exceeded", reserved.failure_delta)),
    )


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
