"""From a budget, or a ledger that holds one, to the noise of a release: declared quantities only.

Nothing here reads a row or spends anything.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LARGEST_SIGMA, LatticeAccount, diagonal_sigma, lattice_account
from gaussmix.accounting.parameters import Relation
from gaussmix.data.contributions import Unit
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.errors import ArgumentError, BudgetUnmetError
from gaussmix.ledger import Ledger
from gaussmix.releases.preconditioning import AUTOMATIC_PASSES, releases_of, schedule_of

__all__ = ["Passes", "from_budget", "from_ledger", "refuse_alone"]

Passes = int | Literal["auto"]

Accounts = tuple[LatticeAccount | None, LatticeAccount | None]
"""The noise of a release; and that of one pass, where the number of passes was left open."""


def refuse_alone(
    *,
    ledger: Ledger | None,
    share: float | str | None,
    note: str,
    out: str | os.PathLike[str] | None,
    force: bool,
) -> None:
    """What would do nothing without a ledger, or without a file to be written, is a mistake."""
    if share is not None and ledger is None:
        raise ArgumentError("share is a share of a ledger's budget: name the ledger, or leave it out.")
    if check.text(note=note) and ledger is None:
        raise ArgumentError("note is kept in a ledger: name the ledger, or leave it out.")
    if force and out is None:
        raise ArgumentError("force replaces a file, but none is written: name it with out, or leave force out.")


def from_budget(
    epsilon: float | None,
    delta: float | None,
    passes: Passes,
    relation: Relation,
    schema: Schema,
    steps: int = 0,
    unit: Unit | None = None,
) -> Accounts:
    """The least noise for a budget; none for an infinite ε."""
    if epsilon is None or delta is None:
        raise ArgumentError("Give epsilon and delta, or a ledger that holds the budget.")
    if check.positive(epsilon=epsilon) == math.inf:
        return None, None

    def account(number: int) -> LatticeAccount:
        shares, coordinates = releases_of(schedule_of(number), schema.n_columns, steps=steps, persons=unit is not None)
        return lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, relation=relation)

    return _in_passes(passes, account, unit)


def _in_passes(passes: Passes, account: Callable[[int], LatticeAccount], unit: Unit | None) -> Accounts:
    """The account of so many passes; left open, also that of one."""
    if passes != "auto":
        return _fine_enough(account(check.positive_integer(passes=passes)), unit), None
    single = _fine_enough(account(1), unit)
    try:
        return _fine_enough(account(AUTOMATIC_PASSES), unit), single
    except BudgetUnmetError:  # the smallest parts of a very small or very large budget fit no lattice
        return single, single


def _fine_enough(account: LatticeAccount, unit: Unit | None) -> LatticeAccount:
    """Refuse a budget so small that rows would have to be rounded further: nothing could be told from the noise.

    Persons who count as j rows have j times the noise in the first pass, and √2 j times in the count of rows.
    """
    if account.row_bits < FRACTION_BITS:
        raise BudgetUnmetError(
            f"epsilon={account.epsilon!r} is too small for a release: no table could be told from the noise. Ask for "
            "a larger budget, or for fewer passes."
        )
    least = min(account.noise_mu[:2])
    if unit is not None and diagonal_sigma(least, account.bits, rows=2 * unit.rows) >= LARGEST_SIGMA:
        raise BudgetUnmetError(
            f"epsilon={account.epsilon!r} is too small for persons who count as {unit.rows} rows: the noise would "
            "leave the lattice. Ask for fewer rows_per_unit, for a larger budget or for fewer passes."
        )
    return account


def from_ledger(
    ledger: Ledger,
    passes: Passes,
    schema: Schema,
    epsilon: float | None,
    delta: float | None,
    relation: Relation | None,
    share: float | str | None,
    steps: int = 0,
    unit: Unit | None = None,
) -> Accounts:
    """The ledger's noise, where there is room left; only its being charged decides."""
    if not (epsilon is None and delta is None):
        raise ArgumentError("The ledger holds the budget: leave epsilon and delta out.")
    if relation not in (None, ledger.reservation.relation):
        raise ArgumentError(
            f"The ledger is for relation={ledger.reservation.relation!r}, got {relation!r}: leave relation out."
        )
    ledger.check_unit(None if unit is None else unit.column)

    def account(number: int) -> LatticeAccount:
        shares, coordinates = releases_of(schedule_of(number), schema.n_columns, steps=steps, persons=unit is not None)
        return ledger.lattice_account(shares=shares, coordinates=coordinates, share=share)

    return _in_passes(passes, account, unit)
