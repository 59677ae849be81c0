"""The one order in which a release is made: all that is declared first, then rows, then the record, then the noise.

`prepare` settles schema, calibration, generator, ledger and output; nothing is read and nothing is spent. What it
returns has one method, ``draw``: it charges the ledger, draws and writes the file.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from gaussmix import _validation as check
from gaussmix._files import Output, reserve
from gaussmix._signals import interruptions_wait
from gaussmix.accounting.arguments import Relation
from gaussmix.accounting.budgets import warn_if_weak
from gaussmix.accounting.calibration import Calibration, eigenvalue_error_bound
from gaussmix.accounting.least_noise import calibrate
from gaussmix.errors import ArgumentError, BudgetExceededError, DeclarationError, OutputError
from gaussmix.ledger import Ledger
from gaussmix.ledger.reservation import refusal
from gaussmix.mechanism.mixing import check_sketch_size, draw_release, largest_table, open_release
from gaussmix.mechanism.rehearsal import rehearse
from gaussmix.mechanism.sampling import generator
from gaussmix.models.certificate import Condition
from gaussmix.models.release import Release
from gaussmix.models.sketch import VARIANTS, Variant
from gaussmix.tables.moments import Moments
from gaussmix.tables.schema import Schema

__all__ = ["LARGE_SKETCH", "Prepared", "automatic_sketch_size", "papers_sketch_size", "prepare"]

LEDGER_BUDGET = Condition(False, "the budget is the ledger's, and covers all of its releases together.")

LARGE_SKETCH = 10**6
"""Rows of the default sketch. Noise per entry, γ/√k, is within 0.2 % of its limit; the cost does not depend on k."""

_SPARE_BYTES = 2**16  # words in a certificate differ in length


@dataclass(frozen=True)
class Prepared:
    """One release for which all is ready but the rows. As a context it gives back the output's room at its end."""

    schema: Schema
    calibration: Calibration | None
    made_by: str
    n_rows: int | None
    conditions: tuple[Condition, ...]
    ledger: Ledger | None
    note: str
    output: Output | None
    rng: np.random.Generator
    _unused: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def draw(self, moments: Moments) -> Release:
        """Charge the ledger, draw, and write the file. A second time it is refused: that would be a second release."""
        if moments.schema != self.schema:
            raise DeclarationError(
                "These moments are of another schema than the release was prepared for: leave the schema out, "
                "or build the moments again with it."
            )
        if not self._unused.acquire(blocking=False):
            raise ArgumentError(
                "A release was drawn from this preparation: prepare another one, which has its own cost."
            )
        if self.calibration is None:
            return self._written(open_release(moments, made_by=self.made_by))
        if self.ledger is None:
            return self._written(self._drawn(moments, self.calibration, None))
        with interruptions_wait():
            rehearse(self.calibration, self.schema)
            file = None if self.output is None else self.output.path
            # Recorded first: a crash loses budget, not privacy.
            entry = self.ledger.spend_calibration(self.calibration, note=self.note, file=file)
            return self._written(self._drawn(moments, self.calibration, entry.release))

    def _drawn(self, moments: Moments, calibration: Calibration, release: str | None) -> Release:
        return draw_release(
            moments,
            calibration,
            self.rng,
            made_by=self.made_by,
            n_rows=self.n_rows,
            conditions=self.conditions,
            release=release,
        )

    def _written(self, private: Release) -> Release:
        if self.output is not None:
            found = self.output.commit(private.to_bytes(), mode=private.file_mode)
            if found != self.output.path:
                warnings.warn(
                    f"{self.output.path} appeared while rows were read, and was left alone: the release is in {found}.",
                    UserWarning,
                    stacklevel=4,
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
    sketch_size: int | Literal["auto"] = "auto",
    variant: Variant = "exact",
    relation: Relation | None = None,
    ledger: Ledger | str | Path | None = None,
    note: str = "",
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    n_rows: int | None = None,
    random_state: int | np.random.Generator | None = None,
    made_by: str = "release",
    conditions: Sequence[Condition] = (),
) -> Prepared:
    """Everything about a release that can be settled before a row is read.

    Parameters
    ----------
    schema : Schema
        Declared columns.
    epsilon, delta, sketch_size, relation, ledger, note, out, force, random_state
        As in :func:`gaussmix.release`.
    variant : {"exact", "paper"}
        ``"paper"``: Algorithm 1 of arXiv:2505.24603v2 with Theorem 1, corrected.
    n_rows : int, optional
        The number of rows, if it is public.
    made_by : str
        Who asks, for the certificate.
    conditions : sequence of Condition
        What the guarantee rests on besides.
    """
    check.choice(VARIANTS, variant=variant)
    check.text(note=note)
    ledger = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    k = _sketch_size(sketch_size, variant, schema, ledger)
    rng = generator(random_state)
    if ledger is not None:
        calibration: Calibration | None = _from_ledger(ledger, k, epsilon, delta, relation, variant)
        conditions = (*conditions, LEDGER_BUDGET)
    else:
        calibration = _from_budget(epsilon, delta, k, relation or "zero-out", variant, schema, n_rows)
    if calibration is not None:
        warn_if_weak(calibration.epsilon, calibration.delta)
    output = None if out is None else _reserved(out, schema, calibration, ledger, force=force)
    return Prepared(schema, calibration, made_by, n_rows, tuple(conditions), ledger, note, output, rng)


def _from_budget(
    epsilon: float | None,
    delta: float | None,
    k: int,
    relation: Relation,
    variant: Variant,
    schema: Schema,
    n_rows: int | None,
) -> Calibration | None:
    """The least noise for a budget; none for an infinite ε."""
    if epsilon is None or delta is None:
        raise ArgumentError("Give epsilon and delta, or a ledger that holds the budget.")
    if check.positive(epsilon=epsilon) == math.inf:
        return None
    if variant == "exact":
        return calibrate(epsilon, delta, sketch_size=k, relation=relation)
    error = eigenvalue_error_bound(schema.n_columns, n_max=largest_table(n_rows))
    return calibrate(
        epsilon, delta, sketch_size=k, relation=relation, scale="private", analysis="paper", eigenvalue_error=error
    )


def _from_ledger(
    ledger: Ledger, k: int, epsilon: float | None, delta: float | None, relation: Relation | None, variant: Variant
) -> Calibration:
    """The ledger's noise, where there is room left; only its being charged decides."""
    if variant == "paper":
        raise ArgumentError("A ledger needs variant='exact': its noise is fixed when it is opened.")
    if not (epsilon is None and delta is None):
        raise ArgumentError("The ledger holds the budget: leave epsilon and delta out.")
    if relation not in (None, ledger.reservation.relation):
        raise ArgumentError(
            f"The ledger is for relation={ledger.reservation.relation!r}, got {relation!r}: leave relation out."
        )
    calibration, room = ledger.calibration(k), ledger.remaining()
    reasons = refusal(room, sketch_size=k, gamma=calibration.gamma, mu=0.0, failure_delta=0.0)
    if reasons:
        raise BudgetExceededError(
            f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded. "
            "Ask for a smaller sketch_size, or use a release that was made: it serves any number of models."
        )
    return calibration


def automatic_sketch_size(columns: int) -> int:
    """Rows of the default sketch of a table with so many encoded columns."""
    return max(LARGE_SKETCH, 500 * columns)


def papers_sketch_size(features: int, columns: int) -> int:
    """2.5 max(d, log 10¹⁰) as in the paper's experiments, but not less than the number of columns."""
    return max(math.ceil(2.5 * max(features, math.log(1e10))), columns)


def _sketch_size(sketch_size: int | Literal["auto"], variant: Variant, schema: Schema, ledger: Ledger | None) -> int:
    """The declared size, or a rule in the number of columns."""
    m = schema.n_columns
    if not isinstance(sketch_size, str):
        return check_sketch_size(check.positive_integer(sketch_size=sketch_size), m)
    check.choice(("auto",), sketch_size=sketch_size)
    if variant == "paper":
        return papers_sketch_size(m - (len(schema.columns) - 1), m)
    k = automatic_sketch_size(m)
    return k if ledger is None else max(min(k, ledger.remaining().sketch_rows), m)


def _reserved(
    out: str | os.PathLike[str],
    schema: Schema,
    calibration: Calibration | None,
    ledger: Ledger | None,
    *,
    force: bool,
) -> Output:
    """Room for the file of a release, whose size does not depend on the rows."""
    if ledger is not None:
        own = [ledger.path.with_name(ledger.path.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
        if Path(out).resolve() in own:
            raise OutputError(f"{os.fspath(out)} is a file of the ledger's: choose another name.")
    size = len(rehearse(calibration, schema).to_bytes())
    if calibration is None:  # the rehearsal's zeros take no room in a file, the table's numbers do
        size += 8 * schema.n_columns**2
    try:
        return reserve(out, size + _SPARE_BYTES, force=force)
    except OutputError as error:
        raise type(error)(f"{error} Nothing was spent.") from None
