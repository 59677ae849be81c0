"""A privacy ledger: one budget for all releases of one set of rows, whoever chooses them and when.

It holds public parameters of releases; nothing in this module sees data.

>>> import pathlib, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> ledger = Ledger(pathlib.Path(folder.name) / "patients.ledger", epsilon=1.0, delta=1e-6, releases=4)
>>> plan = ledger.lattice_account(shares=["1"], coordinates=[20**2])  # a quarter of μ²: half of μ
>>> ledger.spend_account(plan, note="costs by region").mu == plan.mu  # recorded: now the noise may be drawn
True
>>> ledger.remaining().releases_left
3
>>> ledger.lattice_account(shares=["1"], coordinates=[20**2], share="4/5")
Traceback (most recent call last):
    ...
gaussmix.errors.BudgetExceededError: The release does not fit: it asks for mu=0.2117..., 0.2049... is left. ...
>>> folder.cleanup()

What was spent so far is not what is claimed: every certificate states the whole budget, which no adaptive choice of
releases exceeds (:mod:`gaussmix.ledger.composition` has the proof).

What one release through a ledger may be: its noise, from what is reserved and what is left. Nothing is spent here.

Public parameters of releases; nothing in this module sees data.
"""

from __future__ import annotations

import math
import os
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LatticeAccount, Share, account_within, exact_share, slack_delta
from gaussmix.accounting.numerics import round_up
from gaussmix.accounting.parameters import Neighbours
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetExceededError, LedgerError
from gaussmix.ledger.composition import (
    BudgetCap,
    Entry,
    RemainingBudget,
    checked_budget,
    part_of,
    refusal,
    remaining_releases,
    reserve,
    room_left,
)
from gaussmix.ledger.store import append, contents, create, fingerprint, hashes, load, resolved, transaction

__all__ = ["Ledger", "exceeded", "failures_plan", "lattice_cost", "lattice_plan", "same_unit"]


def lattice_plan(
    reserved: BudgetCap,
    room: RemainingBudget,
    *,
    shares: Sequence[Share],
    coordinates: Sequence[int],
    share: Share | None,
) -> LatticeAccount:
    """The account of a release that takes a share of the ledger's μ² and δ₀; by default one of the planned releases."""
    part = _part(reserved, share)
    if not reserved.delta_slack:
        raise BudgetExceededError(
            "A release needs delta_slack, and the ledger was created without it. Nothing was recorded."
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
        allowed=min(allowed, room.delta_slack),
        shares=shares,
        coordinates=coordinates,
        neighbours=reserved.neighbours,
    )


def failures_plan(reserved: BudgetCap, room: RemainingBudget, account: LatticeAccount, share: Share | None) -> Fraction:
    """What the slack of such a release leaves of its share of δ₀: for thresholds."""
    _, allowed = part_of(reserved, _part(reserved, share))
    return Fraction(min(allowed, room.delta_slack)) - Fraction(slack_delta(reserved.epsilon, account.slack))


def _part(reserved: BudgetCap, share: Share | None) -> Fraction:
    """The share of a release, by default that of one of the planned ones."""
    part = Fraction(1, reserved.releases) if share is None else exact_share(share)
    if not 0 < part <= 1:
        raise ArgumentError(f"share must be more than 0 and at most 1, got {share!r}.")
    return part


def lattice_cost(reserved: BudgetCap, account: LatticeAccount, *, failures: float = 0.0) -> dict[str, Any]:
    """Return what releases with an account's noise spend: its μ, and (1 + e^ε)·slack of δ₀.

    ε is the ledger's. ``failures``, the probability that a threshold fails, comes from δ₀ too.
    """
    if account.neighbours != reserved.neighbours:
        raise ArgumentError(
            f"This ledger is for neighbours={reserved.neighbours!r}, the account for {account.neighbours!r}."
        )
    slack = Fraction(slack_delta(reserved.epsilon, account.slack))
    return {"mu": account.mu, "delta_slack": round_up(slack + Fraction(check.nonnegative(failures=failures)))}


def exceeded(reasons: str, room: RemainingBudget, advice: str = "") -> BudgetExceededError:
    """The error of a release that does not fit."""
    return BudgetExceededError(
        f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded.{advice}"
    )


def same_unit(reserved: BudgetCap, unit: str | None) -> None:
    """Refuse another unit of privacy than the ledger's."""
    if reserved.unit != (unit or ""):
        raise ArgumentError(
            f"This ledger is for {_unit_words(reserved.unit)}, the release for {_unit_words(unit or '')}: one budget "
            "cannot cover both, since a person may have many rows. Use a ledger of the release's unit."
        )


def _unit_words(unit: str) -> str:
    return f"persons (unit={unit!r})" if unit else "rows (no unit)"


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
    mu : float, optional
        Budget of the releases: √Σμ², μ = sensitivity / noise under ``neighbours``. Default: the largest that the budget
        allows.
    delta_slack : float, optional
        Part δ₀ of ``delta``, for slacks of lattices and thresholds that fail. Default: a thousandth of it.
    neighbours : {"add-remove", "replace-one"}
        The neighbouring relation.
    releases : int
        How many releases are planned, each to take an equal part of μ² and of δ₀ unless it is told otherwise.
    unit : str, optional
        The column that names a person, where the budget is for all rows of one (``release(privacy_unit=)``).
        Default: it is for one row. A ledger has one unit.

    Notes
    -----
    A ledger is for a **set of rows**, not for a file: tables that share rows share a ledger. What is requested may
    depend on earlier releases in any way, and on the rows in none. An entry is never taken back, also if the release
    it was made for failed. Objects hold no connection: they may be pickled, forked and used by threads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        mu: float | None = None,
        delta_slack: float | None = None,
        neighbours: Neighbours = "add-remove",
        releases: int = 1,
        unit: str | None = None,
    ) -> None:
        asked = checked_budget(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            delta_slack=delta_slack,
            neighbours=neighbours,
            releases=releases,
            unit="" if unit is None else unit,
        )
        self._path = resolved(path)
        if not self._path.exists():
            create(self._path, reserve(asked))
        self._reserved = load(self._path)
        stored = asdict(self._reserved)
        if mu is None and math.isclose(stored["mu"], asked["mu"], rel_tol=1e-9):
            asked["mu"] = stored["mu"]  # another machine's last digits
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
    def reservation(self) -> BudgetCap:
        """What was set aside at creation."""
        return self._reserved

    def spend(
        self,
        *,
        mu: float = 0.0,
        delta_slack: float = 0.0,
        note: str = "",
        file: str | os.PathLike[str] | None = None,
        unit: str | None = None,
    ) -> Entry:
        """Record a release. Only once this has returned may its noise be drawn.

        Parameters
        ----------
        mu : float
            √Σμ² of the release's parts.
        delta_slack : float
            What the release takes of δ₀: the slack of its lattices, and the probability that a threshold fails.
        note : str
            Words to recognise the release by. Nothing about the rows belongs here.
        file : path, optional
            Where the release will be written, so that an entry whose release was lost can be told
            (:func:`gaussmix.report.verify.outcomes`).
        unit : str, optional
            The unit that μ is for: the ledger's, or it is refused.

        Raises
        ------
        BudgetExceededError
            If it does not fit; the message has the room that is left.
        """
        self.check_unit(unit)
        mu, delta_slack = check.nonnegative(mu=mu), check.nonnegative(delta_slack=delta_slack)
        if not isinstance(note, str):
            raise ArgumentTypeError(f"note must be a string, got {type(note).__name__}.")
        if note != _storable(note):
            raise ArgumentError("note must be text that can be written as UTF-8: take out what is not.")
        named = "" if file is None else _storable(str(Path(file).absolute()))
        if not (mu or delta_slack):
            raise ArgumentError("A release spends something: give mu or delta_slack.")

        def record(connection: sqlite3.Connection) -> Entry:
            room, count, last = self._room(connection)
            reasons = refusal(room, mu=mu, delta_slack=delta_slack)
            if reasons:
                raise exceeded(reasons, room)
            now, release = datetime.now(UTC), uuid.uuid4().hex
            entry = Entry(count + 1, now, mu, delta_slack, note, release, named)
            append(connection, last, [entry])
            return entry

        return transaction(self._path, record, begin="BEGIN IMMEDIATE")

    def spend_account(
        self,
        account: LatticeAccount,
        *,
        failures: float = 0.0,
        note: str = "",
        file: str | os.PathLike[str] | None = None,
        unit: str | None = None,
    ) -> Entry:
        """Record releases that are to be drawn with an account's noise (`lattice_cost`).

        The account's own ε and δ do not matter. Only once this has returned may noise be drawn.
        """
        cost = lattice_cost(self._reserved, account, failures=failures)
        return self.spend(**cost, note=note, file=file, unit=unit)

    def check_unit(self, unit: str | None) -> None:
        """Refuse a release for another unit than the ledger's: for persons with j rows, a row's μ is jμ."""
        same_unit(self._reserved, unit)

    def lattice_account(
        self, *, shares: Sequence[Share], coordinates: Sequence[int], share: Share | None = None
    ) -> LatticeAccount:
        """The account of one release on the lattice, perhaps in passes. Spends nothing: see :meth:`spend_account`.

        Its ``epsilon`` and ``delta`` are the ledger's. A certificate made from it says that **all** releases through
        the ledger, this one and every other, are together (ε, δ)-differentially private: do not add them up.

        Parameters
        ----------
        shares, coordinates
            Of the release's passes, as in :func:`gaussmix.accounting.discrete.lattice_account`; ``shares`` are of the
            release's μ².
        share : Fraction, float or str, optional
            How much the release takes of the ledger's μ² and δ₀. Default: one of the planned releases, that is
            1/``releases``, never what happens to be left.

        Raises
        ------
        BudgetExceededError
            If less than that is left; the message says how much is.
        BudgetUnmetError
            If no lattice has so little slack.
        """
        return lattice_plan(self._reserved, self.remaining(), shares=shares, coordinates=coordinates, share=share)

    def failures_left(self, account: LatticeAccount, *, share: Share | None = None) -> Fraction:
        """What such a release's slack leaves of its share of δ₀, for thresholds. Spends nothing."""
        return failures_plan(self._reserved, self.remaining(), account, share)

    def remaining(self) -> RemainingBudget:
        """What is left now. Another process may take it before you do: only :meth:`spend` decides."""
        return transaction(self._path, self._room)[0]

    def entries(self) -> list[Entry]:
        """Everything recorded, oldest first."""
        return transaction(self._path, contents)[1]

    def remaining_releases(self, entry: int) -> int:
        """How many more releases of the cost of an entry, by its number, fit into what is left now."""
        reserved, entries, _ = transaction(self._path, contents)
        if not 1 <= entry <= len(entries):
            raise ArgumentError(f"The ledger has no entry {entry!r}.")
        return remaining_releases(reserved, entries, entries[entry - 1])

    @property
    def fingerprint(self) -> str:
        """Hash of the reservation: names the ledger in certificates, wherever its file is moved."""
        return fingerprint(self._reserved)

    @property
    def head(self) -> str:
        """Hash of the reservation and of every entry so far.

        Kept elsewhere, it shows later whether this file is an older copy of itself, which the file alone cannot show.
        """
        return transaction(self._path, contents)[2]

    def contains_digest(self, head: str) -> bool:
        """Whether the ledger has, or had before its last entries, a head that was noted. An older copy has not."""
        reserved, entries, _ = transaction(self._path, contents)
        return head in hashes(reserved, entries)

    def _room(self, connection: sqlite3.Connection) -> tuple[RemainingBudget, int, str]:
        """What is left, the number of entries and the hash of the last."""
        reserved, entries, last = contents(connection)
        if reserved != self._reserved:
            raise LedgerError(f"{self._path} has been replaced by another ledger since it was opened.")
        return room_left(reserved, entries), len(entries), last

    def __repr__(self) -> str:
        r = self._reserved
        unit = f", unit={r.unit!r}" if r.unit else ""
        return (
            f"Ledger({str(self._path)!r}, epsilon={r.epsilon!r}, delta={r.delta!r}, mu={r.mu!r}, "
            f"delta_slack={r.delta_slack!r}, neighbours={r.neighbours!r}, releases={r.releases}{unit})"
        )


def _storable(text: str) -> str:
    """Text with the bytes of a file's name that are no UTF-8 spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
