r"""A privacy ledger: one budget for all releases of one set of rows, whoever chooses them and when.

It holds public parameters of releases; nothing in this module sees data.

>>> import pathlib, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> ledger = Ledger(pathlib.Path(folder.name) / "patients.ledger", epsilon=1.0, delta=1e-6, sketch_rows=500, mu=0.1)
>>> plan = ledger.calibration(250)
>>> ledger.spend_calibration(plan, note="costs by region").sketch_size  # recorded: now the noise may be drawn
250
>>> ledger.remaining().sketch_rows
250
>>> ledger.spend(sketch_size=251, gamma=plan.gamma)
Traceback (most recent call last):
    ...
gaussmix.errors.BudgetExceededError: The release does not fit: it asks for 251 sketch rows, 250 are left. ...
>>> folder.cleanup()

What is reserved. Composing "what was spent so far" is not private when later releases are chosen after seeing earlier
ones: δ is exceeded up to 1.6 times (docs/ledger.md). A ledger therefore fixes at its creation K sketch rows at leverage
at most t* = 1/(1 + γ*) and a Gaussian budget μ, with γ* the least that keeps the two together within (ε, δ), and allows

.. math:: t_i \le t^*, \qquad \sum_i k_i \le K, \qquad \sum_i \mu_i^2 \le \mu^2 .

Why any adaptive sequence within it is private. Take K independent draws of N(0, 1) against N(0, 1 - t*), and a
Brownian path on [0, μ²] with drift 1 against drift 0: one fixed pair of laws, whose curve is ``accounting.delta``. A
release of k_i rows at leverage t_i ≤ t* is made from k_i unread draws, since √(1 - s) x + N(0, s) turns leverage t*
into t*(1 - s); a Gaussian release is made from the increment over an unread stretch of length μ_i². Which release comes
next is chosen from what was read. So everything that is ever released is post-processing of the one pair.

Releases with a private scale bound add the probability that the bound fails, from a part of δ reserved for it.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from scipy import stats

from gaussmix import _validation as check
from gaussmix.accounting.arguments import ROUNDING, Relation
from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.rounding import round_down, round_up
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetExceededError, LedgerError
from gaussmix.ledger.reservation import (
    Entry,
    Reservation,
    Room,
    checked_budget,
    refusal,
    reserved_gamma,
    room_left,
)
from gaussmix.ledger.store import append, contents, create, load, resolved, transaction

__all__ = ["Ledger"]


class Ledger:
    """A budget for one set of rows, in a file that processes share.

    Creates the file if there is none; otherwise the arguments must be those it was created with
    (:meth:`open` asks for none).

    Parameters
    ----------
    path : path
        File of the ledger, on a local disk: SQLite's locks do not work on most network file systems. Created with
        mode 0600. Deleting it, copying it or restoring an old copy forgets what was spent.
    epsilon, delta : float
        Budget of all releases of these rows together, through this ledger.
    sketch_rows : int
        K: how many sketch rows there can ever be.
    mu : float
        Room for Gaussian releases: √Σμ², μ = sensitivity / noise under ``relation``.
    failure_delta : float
        Part of ``delta``, for private scale bounds that fail.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation.

    Notes
    -----
    A ledger is for a **set of rows**, not for a file: tables that share rows share a ledger. What is requested may
    depend on earlier releases in any way, and on the rows in none. An entry is never taken back, also if the release
    it was made for failed. Objects hold no connection: they may be pickled, forked and used by threads.

    ``relation="replace-one"`` with ``mu`` > 0 takes up to a minute to create.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        sketch_rows: int,
        mu: float = 0.0,
        failure_delta: float = 0.0,
        relation: Relation = "zero-out",
    ) -> None:
        asked = checked_budget(epsilon, delta, sketch_rows, mu, failure_delta, relation)
        self._path = resolved(path)
        if not self._path.exists():
            create(self._path, _reserve(**asked))
        self._reserved = load(self._path)
        stored = asdict(self._reserved)
        differing = [
            f"{name} is {stored[name]!r}, not {value!r}" for name, value in asked.items() if stored[name] != value
        ]
        if differing:
            raise ArgumentError(
                f"{self._path} was created with other arguments: {'; '.join(differing)}. What a ledger reserves is "
                "fixed when it is created; use Ledger.open(path) to go on with it."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Go on with a ledger that exists, whatever it reserved."""
        ledger = cls.__new__(cls)
        ledger._path = resolved(path)
        ledger._reserved = load(ledger._path)
        return ledger

    @property
    def path(self) -> Path:
        """Where the ledger is."""
        return self._path

    @property
    def reservation(self) -> Reservation:
        """What was set aside at creation."""
        return self._reserved

    def spend(
        self,
        *,
        sketch_size: int = 0,
        gamma: float | None = None,
        mu: float = 0.0,
        failure_delta: float = 0.0,
        note: str = "",
        file: str | os.PathLike[str] | None = None,
    ) -> Entry:
        """Record a release. Only once this has returned may its noise be drawn.

        Parameters
        ----------
        sketch_size : int
            Sketch rows.
        gamma : float or None
            The sketch's leverage is at most 1/(1 + γ); needed with a sketch.
        mu : float
            √Σμ² of the release's Gaussian parts.
        failure_delta : float
            Probability that a private scale bound fails.
        note : str
            Words to recognise the release by. Nothing about the rows belongs here.
        file : path, optional
            Where the release will be written, so that an entry whose release was lost can be told
            (:func:`gaussmix.reporting.outcomes.outcomes`).

        Raises
        ------
        BudgetExceededError
            If it does not fit; the message has the room that is left.
        """
        if isinstance(sketch_size, bool) or sketch_size != 0:
            check.sketch_rows(sketch_size=sketch_size)
        rows = int(sketch_size)
        if (gamma is None) != (rows == 0):
            raise ArgumentError(
                f"gamma goes with a sketch: give both or neither, got sketch_size={sketch_size!r}, gamma={gamma!r}."
            )
        least = None if gamma is None else check.positive(finite=True, gamma=gamma)
        mu, failure_delta = check.nonnegative(mu=mu), check.nonnegative(failure_delta=failure_delta)
        if not isinstance(note, str):
            raise ArgumentTypeError(f"note must be a string, got {type(note).__name__}.")
        if note != _storable(note):
            raise ArgumentError("note must be text that can be written as UTF-8: take out what is not.")
        named = "" if file is None else _storable(str(Path(file).absolute()))
        if not (rows or mu or failure_delta):
            raise ArgumentError("A release spends something: give sketch_size and gamma, or mu, or failure_delta.")

        def record(connection: sqlite3.Connection) -> Entry:
            room, count, last = self._room(connection)
            reasons = refusal(room, sketch_size=rows, gamma=least, mu=mu, failure_delta=failure_delta)
            if reasons:
                raise BudgetExceededError(
                    f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded."
                )
            now, release = datetime.now(UTC), uuid.uuid4().hex
            entry = Entry(count + 1, now, rows, least, mu, failure_delta, note, release, named)
            append(connection, last, [entry])
            return entry

        return transaction(self._path, record, begin="BEGIN IMMEDIATE")

    def spend_calibration(
        self, calibration: Calibration, *, note: str = "", file: str | os.PathLike[str] | None = None
    ) -> Entry:
        r"""Record a release that is to be drawn with a calibration's γ, η and τ.

        Its own ε and δ do not matter: the ledger has its own account. With ``scale="private"`` the release of the
        eigenvalue is Gaussian, μ = (1 + 2e)/η; the sketch's leverage is at most 1/γ = 1/(1 + (γ - 1)) unless z > τ,
        which has probability Φ(-τ). Theorem 1's calibrations have a large τ; the joint account's have τ near 0,
        where failure is accounted for in another way that does not add up over releases, and will not fit.
        """
        calibration.verify()
        relation = self._reserved.relation
        if calibration.relation != relation:
            raise ArgumentError(
                f"This ledger is for relation={relation!r}, the calibration for {calibration.relation!r}."
            )
        if calibration.eta is None or calibration.tau is None:
            return self.spend(sketch_size=calibration.sketch_size, gamma=calibration.gamma, note=note, file=file)
        fails = float(stats.norm.sf(calibration.tau))
        return self.spend(
            sketch_size=calibration.sketch_size,
            gamma=round_down(Fraction(calibration.gamma) - 1),
            mu=round_up((1 + 2 * Fraction(calibration.eigenvalue_error)) / Fraction(calibration.eta)),
            failure_delta=fails * (1 + ROUNDING),
            note=note,
            file=file,
        )

    def calibration(self, sketch_size: int) -> Calibration:
        """Parameters of a sketch at the ledger's γ*, the least noise it allows. Spends nothing: see spend_calibration.

        Its ``epsilon`` and ``delta`` are the ledger's. A certificate made from it says that **all** releases through
        the ledger, this one and every other, are together (ε, δ)-differentially private: do not add them up.
        """
        reserved = self._reserved
        k = check.sketch_rows(sketch_size=sketch_size)
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

    def remaining(self) -> Room:
        """What is left now. Another process may take it before you do: only :meth:`spend` decides."""
        return transaction(self._path, self._room)[0]

    def entries(self) -> list[Entry]:
        """Everything recorded, oldest first."""
        return transaction(self._path, contents)[1]

    @property
    def head(self) -> str:
        """Hash of the reservation and of every entry so far.

        Kept elsewhere, it shows later whether this file is an older copy of itself, which the file alone cannot show.
        """
        return transaction(self._path, contents)[2]

    def _room(self, connection: sqlite3.Connection) -> tuple[Room, int, str]:
        """What is left, the number of entries and the hash of the last."""
        reserved, entries, last = contents(connection)
        if reserved != self._reserved:
            raise LedgerError(f"{self._path} has been replaced by another ledger since it was opened.")
        return room_left(reserved, entries), len(entries), last

    def __repr__(self) -> str:
        r = self._reserved
        return (
            f"Ledger({str(self._path)!r}, epsilon={r.epsilon!r}, delta={r.delta!r}, sketch_rows={r.sketch_rows}, "
            f"mu={r.mu!r}, failure_delta={r.failure_delta!r}, relation={r.relation!r})"
        )


def _storable(text: str) -> str:
    """Text with the bytes of a file's name that are no UTF-8 spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _reserve(
    *, epsilon: float, delta: float, sketch_rows: int, mu: float, failure_delta: float, relation: Relation
) -> Reservation:
    """The account of a new ledger."""
    within = round_down(Fraction(delta) - Fraction(failure_delta))
    gamma, spent = reserved_gamma(epsilon, within, sketch_rows=sketch_rows, mu=mu, relation=relation)
    total = round_up(Fraction(spent) + Fraction(failure_delta))
    return Reservation(
        uuid.uuid4().hex, epsilon, delta, sketch_rows, mu, failure_delta, relation, gamma=gamma, delta_reserved=total
    )
