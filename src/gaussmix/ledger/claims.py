"""What the certificate of a release through a ledger may claim: the ledger's own budget, computed from its reservation.

Public parameters of releases; nothing in this module sees data.

A certificate of a ledger speaks for **all** of its releases. The noise of one release cannot prove such a claim, and
supports a smaller ε that is false of all releases together. So the certificate carries the reservation, from which the
claim is computed by the ledger's own arithmetic.
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
        What the ledger set aside, as the certificate states it.
    account : Account
        The noise of this release.
    ledger : str
        Fingerprint that names the ledger.
    claim : tuple
        ε, δ, the neighbouring relation, and the column that names a person, or an empty string.

    Raises
    ------
    NotPrivateError
        If the reservation is not the one that the fingerprint names, if the claim is not the ledger's, if μ and δ₀ do
        not give (ε, δ), or if this release alone uses more than all releases may.
    """
    check_reservation(reserved)
    if fingerprint(reserved) != ledger:
        raise NotPrivateError("The certificate does not have the reservation that the ledger's fingerprint names.")
    if claim != (reserved.epsilon, reserved.delta, reserved.neighbours, reserved.unit):
        raise NotPrivateError("The certificate claims another budget, relation or unit than its ledger has.")
    if not account_holds(reserved):
        raise NotPrivateError("The ledger reserves more than its budget allows.")
    reasons = refusal(room_left(reserved, []), **_cost(reserved, account))
    if reasons:
        raise NotPrivateError(f"The release uses more than its ledger reserves: {reasons}.")


def _cost(reserved: BudgetCap, account: Account) -> dict[str, Any]:
    try:
        if isinstance(account, LatticeAccount):
            return lattice_cost(reserved, account)
        if isinstance(account, CountsAccount):
            return lattice_cost(reserved, account.lattice, failures=account.threshold_delta)
    except ArgumentError as error:  # another relation
        raise NotPrivateError(str(error)) from None
    raise NotPrivateError("The certificate is about a mechanism that no ledger records.")
