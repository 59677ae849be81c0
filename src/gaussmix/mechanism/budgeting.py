"""From a budget, or a ledger that holds one, to the noise of a release: declared quantities only.

Nothing here reads a row or spends anything.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Literal

from gaussmix import _validation as check
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.accounting.lattice import LARGEST_SIGMA, LatticeAccount, diagonal_sigma, lattice_account
from gaussmix.accounting.least_noise import calibrate
from gaussmix.errors import ArgumentError, BudgetExceededError, BudgetUnmetError
from gaussmix.ledger import Ledger
from gaussmix.ledger.reservation import refusal
from gaussmix.mechanism.drawing import Noise
from gaussmix.mechanism.mixing import check_sketch_size, largest_table
from gaussmix.models.schedules import AUTOMATIC_PASSES, releases_of, schedule_of
from gaussmix.models.sketch import Variant
from gaussmix.tables.contributions import Unit
from gaussmix.tables.schema import FRACTION_BITS, Schema

__all__ = ["Passes", "from_budget", "from_ledger", "papers_sketch_size", "refuse_alone", "sketch_size_of"]

Passes = int | Literal["auto"]

LARGE_SKETCH = 10**6
"""Most rows of a sketch that takes them from a ledger of sketch rows, where nobody says how many."""

Accounts = tuple[Noise | None, LatticeAccount | None]
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
    k: int | None,
    passes: Passes,
    relation: Relation,
    variant: Variant,
    schema: Schema,
    n_rows: int | None,
    steps: int = 0,
    unit: Unit | None = None,
) -> Accounts:
    """The least noise for a budget; none for an infinite ε."""
    if epsilon is None or delta is None:
        raise ArgumentError("Give epsilon and delta, or a ledger that holds the budget.")
    if check.positive(epsilon=epsilon) == math.inf:
        return None, None
    if k is None:

        def account(number: int) -> LatticeAccount:
            shares, coordinates = releases_of(
                schedule_of(number), schema.n_columns, steps=steps, persons=unit is not None
            )
            return lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, relation=relation)

        return _in_passes(passes, account, unit)
    if variant == "exact":
        return calibrate(epsilon, delta, sketch_size=k, relation=relation), None
    error = eigenvalue_error_bound(schema.n_columns, n_max=largest_table(n_rows))
    found = calibrate(
        epsilon, delta, sketch_size=k, relation=relation, scale="private", analysis="paper", eigenvalue_error=error
    )
    return found, None


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
    k: int | None,
    passes: Passes,
    schema: Schema,
    epsilon: float | None,
    delta: float | None,
    relation: Relation | None,
    variant: Variant,
    share: float | str | None,
    steps: int = 0,
    unit: Unit | None = None,
) -> Accounts:
    """The ledger's noise, where there is room left; only its being charged decides."""
    if variant == "paper":
        raise ArgumentError("A ledger needs variant='exact': its noise is fixed when it is opened.")
    if not (epsilon is None and delta is None):
        raise ArgumentError("The ledger holds the budget: leave epsilon and delta out.")
    if relation not in (None, ledger.reservation.relation):
        raise ArgumentError(
            f"The ledger is for relation={ledger.reservation.relation!r}, got {relation!r}: leave relation out."
        )
    ledger.check_unit(None if unit is None else unit.column)
    if k is None:

        def account(number: int) -> LatticeAccount:
            shares, coordinates = releases_of(
                schedule_of(number), schema.n_columns, steps=steps, persons=unit is not None
            )
            return ledger.lattice_account(shares=shares, coordinates=coordinates, share=share)

        return _in_passes(passes, account, unit)
    if share is not None:
        raise ArgumentError(
            "share is for releases in the limit: a sketch takes as many of the ledger's rows as it has."
        )
    calibration, room = ledger.calibration(k), ledger.remaining()
    reasons = refusal(room, sketch_size=k, gamma=calibration.gamma)
    if reasons:
        raise BudgetExceededError(
            f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded. "
            "Ask for a smaller sketch_size, or use a release that was made: it serves any number of models."
        )
    return calibration, None


def papers_sketch_size(features: int, columns: int) -> int:
    """2.5 max(d, log 10¹⁰) as in the paper's experiments, but not less than the number of columns."""
    return max(math.ceil(2.5 * max(features, math.log(1e10))), columns)


def sketch_size_of(sketch_size: int | None, variant: Variant, schema: Schema, ledger: Ledger | None) -> int | None:
    """The declared size; None, the limit, unless the paper's variant or a ledger of sketch rows asks for one."""
    m = schema.n_columns
    if sketch_size is not None:
        return check_sketch_size(check.positive_integer(sketch_size=sketch_size), m)
    if variant == "paper":
        return papers_sketch_size(m - (len(schema.columns) - 1), m)
    if ledger is not None and ledger.reservation.sketch_rows and not ledger.reservation.mu:
        return max(min(LARGE_SKETCH, ledger.remaining().sketch_rows), m)
    return None
