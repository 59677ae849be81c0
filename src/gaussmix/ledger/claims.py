"""Verify that a certificate claims exactly the budget of the ledger that its release was charged to.

Holds public parameters of releases; nothing in this module sees data.

The (ε, δ) of a ledger covers **all** of its releases together. The noise of one release alone would support a smaller
ε, which does not hold for all releases together. The certificate therefore carries the ledger's reservation, and the
claim is recomputed from it.
"""

from __future__ import annotations

from typing import Any

from gaussmix.accounting.accounts import Account
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import Neighbours
from gaussmix.accounting.thresholds import CountsAccount
from gaussmix.errors import ArgumentError, NotPrivateError
from gaussmix.ledger.composition import BudgetCap, account_holds, check_reservation, refusal, room_left
from gaussmix.ledger.ledger import lattice_cost
from gaussmix.ledger.store import fingerprint

__all__ = ["verify_claim"]


def verify_claim(
    reserved: BudgetCap, account: Account, *, ledger: str, claim: tuple[float, float, Neighbours, str]
) -> None:
    """Check a claim against the ledger that a release was recorded in.

    Parameters
    ----------
    reserved : BudgetCap
        The ledger's reservation, as the certificate states it.
    account : Account
        Account of this release.
    ledger : str
        Fingerprint of the ledger.
    claim : tuple
        ε, δ, the neighbouring relation, and the privacy-unit column or an empty string.

    Raises
    ------
    NotPrivateError
        If the reservation does not match the fingerprint, if the claim is not the ledger's, if μ and δ₀ do not give
        (ε, δ), or if this release alone exceeds the whole reservation.
    """
    check_reservation(reserved)
    if fingerprint(reserved) != ledger:
        raise NotPrivateError("The certificate's reservation does not match the fingerprint of its ledger.")
    if claim != (reserved.epsilon, reserved.delta, reserved.neighbours, reserved.privacy_unit):
        raise NotPrivateError("The certificate and its ledger differ in budget, neighbours or privacy unit.")
    if not account_holds(reserved):
        raise NotPrivateError("The ledger's reservation exceeds its (epsilon, delta) budget.")
    reasons = refusal(room_left(reserved, []), **_cost(reserved, account))
    if reasons:
        raise NotPrivateError(f"The release exceeds its ledger's reservation: {reasons}.")


def _cost(reserved: BudgetCap, account: Account) -> dict[str, Any]:
    try:
        if isinstance(account, LatticeAccount):
            return lattice_cost(reserved, account)
        if isinstance(account, CountsAccount):
            return lattice_cost(reserved, account.lattice, failures=account.threshold_delta)
    except ArgumentError as error:  # the account has other neighbours
        raise NotPrivateError(str(error)) from None
    raise NotPrivateError("The certificate names a ledger, but its mechanism cannot be recorded in one.")
