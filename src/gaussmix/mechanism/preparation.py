"""The one order in which a release is made: all that is declared first, then rows, then the record, then the noise.

`prepare` settles schema, account, generator, ledger and output; nothing is read and nothing is spent. What it returns
has one method, ``draw``: it reads the rows once, charges the ledger, draws (reading again where there are several
passes) and writes the file.
"""

from __future__ import annotations

import functools
import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gaussmix._files import Output, reserve
from gaussmix._signals import interruptions_wait
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import Relation, frames_to_the_caller, warn_if_weak
from gaussmix.data.contributions import Unit
from gaussmix.data.moments import Moments
from gaussmix.data.rows import RowSource, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.data.source import ReadOptions
from gaussmix.errors import ArgumentError, BudgetUnmetError, GaussmixError, OutputError
from gaussmix.ledger import Entry, Ledger
from gaussmix.ledger.store import refuse_as_output
from gaussmix.mechanism.budgeting import Passes, from_budget, from_ledger, refuse_alone
from gaussmix.mechanism.drawing import draw, named_in, open_release
from gaussmix.mechanism.one_draw import OneDraw, check_rows
from gaussmix.mechanism.repeats import remember, warn_if_released_before
from gaussmix.mechanism.sampling import describe, generator
from gaussmix.models.release import Release
from gaussmix.releases.certificate import ROW_BY_ROW, SECURE, Condition
from gaussmix.releases.file import check_name
from gaussmix.releases.preconditioning import Likelihood, label_of

__all__ = ["Prepared", "prepare"]


_BYTES_PER_NUMBER = 9  # a double and Parquet's own, generously
_BYTES_PER_COLUMN = 512  # in the footer, and in the JSON of each pass
_SPARE_BYTES = 2**16  # for the rest of the certificate


@dataclass(frozen=True)
class Prepared:
    """One release for which all is ready but the rows. As a context it gives back the output's room at its end.

    Attributes
    ----------
    account : LatticeAccount or None
        The noise; None for an infinite ε.
    single : LatticeAccount or None
        The noise of one pass with the same budget, for tables that can be read only once, where the caller left the
        number of passes open.
    likelihood : Likelihood or None
        Steps that the account has, on the likelihood of one column.
    keep_tails : bool
        Whether the last of several passes shortens as few rows as it can.
    """

    schema: Schema
    account: LatticeAccount | None
    single: LatticeAccount | None
    made_by: str
    n_rows: int | None
    conditions: tuple[Condition, ...]
    ledger: Ledger | None
    note: str
    output: Output | None
    rng: np.random.Generator
    likelihood: Likelihood | None = None
    unit: Unit | None = None
    keep_tails: bool = False
    _once: OneDraw = field(default_factory=OneDraw, init=False, repr=False, compare=False)

    def rows(self, data: Any, options: ReadOptions | None = None) -> RowSource:
        """Return the rows of a table, or privacy units and theirs, as this release reads them; to be closed."""
        return rows_of(data, self.schema, options, unit=self.unit, new_key=functools.partial(self.rng.bytes, 32))

    def draw(self, rows: RowSource, *, data: Any = None, progress: bool = False) -> Release:
        """Read the rows, charge the ledger, draw, and write the file. A second draw would be a second release.

        ``data`` is where the rows come from, for a warning if they were released before.
        """
        check_rows(rows, self.schema, self.unit)
        protects = self.account is not None and describe(self.rng) == SECURE
        if protects and self.ledger is None:
            warn_if_released_before(data)
        account = self._account_for(rows)
        several = account is not None and len(account.noise_mu) > 1
        coins = Sample(1.0, self.rng.bytes(32)) if several else None
        moments = rows.moments(cache=coins)
        self._once.take()
        if protects:
            remember(data)
        if account is None:
            return self._written(open_release(moments, made_by=self.made_by))
        if several:
            # Takes its time: whoever interrupts it loses what is spent.
            private = self._drawn(rows, moments, account, progress, coins)
            with interruptions_wait():
                return self._written(private)
        with interruptions_wait():
            return self._written(self._drawn(rows, moments, account, progress))

    def _drawn(
        self, rows: RowSource, moments: Moments, account: LatticeAccount, progress: bool, coins: Sample | None = None
    ) -> Release:
        """Recorded first, then drawn: a crash loses budget, not privacy."""
        entry = None if self.ledger is None else self._recorded(self.ledger, account)
        private = draw(
            rows,
            moments,
            account,
            self.rng,
            made_by=self.made_by,
            n_rows=self.n_rows,
            conditions=(*self.conditions, *[ROW_BY_ROW] * rows.is_computed),
            likelihood=self.likelihood,
            keep_tails=self.keep_tails,
            coins=coins,
            progress=progress,
        )
        if self.ledger is None or entry is None:
            return private
        return replace(private, certificate=named_in(private.certificate, self.ledger, entry))

    def _recorded(self, ledger: Ledger, account: LatticeAccount) -> Entry:
        """Charge the ledger."""
        file = None if self.output is None else self.output.path
        unit = None if self.unit is None else self.unit.column
        return ledger.spend_account(account, note=self.note, file=file, unit=unit)

    def _account_for(self, rows: RowSource) -> LatticeAccount | None:
        """The account, or that of one pass where the table cannot be read again and nobody asked for several."""
        if self.account is None or len(self.account.noise_mu) == 1:
            return self.account
        try:
            rows.check_again()
        except GaussmixError:
            if self.single is None or self.likelihood is not None:
                raise
            if self.keep_tails:
                raise ArgumentError(
                    "This table can be read only once, and one pass shortens no row: leave keep_tails out, or pass a "
                    "table that can be read again."
                ) from None
            return self.single
        return self.account

    def _written(self, private: Release) -> Release:
        if self.output is not None:
            found = self.output.commit(private.to_bytes(), mode=private.file_mode)
            if found != self.output.path:
                warnings.warn(
                    f"{self.output.path} appeared while rows were read, and was left alone: the release is in {found}.",
                    UserWarning,
                    stacklevel=frames_to_the_caller(),
                )
        return private

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        if self.output is not None:
            self.output.abandon()


def prepare(
    schema: Schema,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    passes: Passes = "auto",
    keep_tails: bool = False,
    relation: Relation | None = None,
    ledger: Ledger | str | Path | None = None,
    share: float | str | None = None,
    note: str = "",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    n_rows: int | None = None,
    random_state: int | np.random.Generator | None = None,
    made_by: str = "release",
    conditions: Sequence[Condition] = (),
    likelihood: Likelihood | None = None,
    unit: Unit | None = None,
) -> Prepared:
    """Everything about a release that can be settled before a row is read.

    Parameters
    ----------
    schema : Schema
        Declared columns.
    epsilon, delta, passes, keep_tails, relation, ledger, share, note, out, force, random_state
        As in :func:`gaussmix.release`.
    n_rows : int, optional
        The number of rows, if it is public.
    made_by : str
        Who asks, for the certificate.
    conditions : sequence of Condition
        What the guarantee rests on besides.
    likelihood : Likelihood, optional
        Steps on the likelihood of one boolean column, after the passes and within the same budget.
    unit : Unit, optional
        One person; default: one row.
    """
    ledger = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    refuse_alone(ledger=ledger, share=share, note=note, out=out, force=force)
    if keep_tails and passes == 1:
        raise ArgumentError("One pass shortens no row: leave keep_tails out, or ask for more passes.")
    steps = 0 if likelihood is None else likelihood.steps
    if likelihood is not None:
        label_of(schema, likelihood.target)
        if "replace-one" in (relation, None if ledger is None else ledger.reservation.relation):
            raise ArgumentError(
                'Steps on a likelihood are for relation="zero-out": of two rows, one in place of the other, gradients '
                "may be opposite, and the account has no room for that."
            )
    if unit is not None:
        _refuse_for_persons(epsilon, likelihood)
    rng = generator(random_state)
    if ledger is not None:
        accounts = from_ledger(ledger, passes, schema, epsilon, delta, relation, share, steps, unit)
    else:
        accounts = from_budget(epsilon, delta, passes, relation or "zero-out", schema, steps, unit)
    account, single = accounts
    if keep_tails and account is not None and len(account.noise_mu) == 1:
        raise BudgetUnmetError("The budget has room for one pass, which shortens no row: leave keep_tails out.")
    if account is not None:
        warn_if_weak(account.epsilon, account.delta)
    output = None if out is None else _reserved(out, schema, account, ledger, likelihood, force=force)
    return Prepared(
        schema,
        account,
        single,
        made_by,
        n_rows,
        tuple(conditions),
        ledger,
        note,
        output,
        rng,
        likelihood,
        unit,
        keep_tails,
    )


def _refuse_for_persons(epsilon: float | None, likelihood: Likelihood | None) -> None:
    """What protects rows alone, where the unit is a person."""
    if epsilon == math.inf:
        raise ArgumentError("An infinite epsilon protects nobody: leave the unit out.")
    if likelihood is not None:
        raise ArgumentError(
            "Steps on a likelihood are for rows: the gradients of one person's rows add up, and the account has no "
            "room for that. Leave the unit out, or steps."
        )


def _reserved(
    out: str | os.PathLike[str],
    schema: Schema,
    account: LatticeAccount | None,
    ledger: Ledger | None,
    likelihood: Likelihood | None,
    *,
    force: bool,
) -> Output:
    """Preallocate the file of a release, whose size does not depend on the rows."""
    if ledger is not None:
        refuse_as_output(out, ledger.path)
    try:
        check_name(out)
        return reserve(out, _most_bytes(schema, account, likelihood), force=force)
    except OutputError as error:
        raise type(error)(f"{error} Nothing was spent.") from None


def _most_bytes(schema: Schema, account: LatticeAccount | None, likelihood: Likelihood | None) -> int:
    """Bound the size of a release's file by the number of its blocks of m × m numbers and of its column names."""
    m, steps = schema.n_columns, 0 if likelihood is None else likelihood.steps
    passes = 1 if account is None else len(account.noise_mu) // 2 + 1 - steps
    blocks = 2 * passes + 1 + steps  # G, N, a matrix for each pass, a transform for each but the first
    names = len(json.dumps(schema.to_dict())) + 4 * sum(len(name) for name in schema.names)
    return _BYTES_PER_NUMBER * blocks * m * m + _BYTES_PER_COLUMN * m * (passes + steps) + 4 * names + _SPARE_BYTES
