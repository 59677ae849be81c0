"""A privacy ledger: one budget for all releases of one set of rows.

The ledger is a privacy filter: releases may be chosen adaptively, and every certificate states the whole budget, not
the amount spent so far (:mod:`gaussmix.ledger.composition` has the proof).

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
gaussmix.errors.BudgetExceededError: The release exceeds the remaining budget: it needs mu=0.2118, but 0.2049...
>>> folder.cleanup()
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from gaussmix import _validation as check
from gaussmix.accounting.accounts import Account
from gaussmix.accounting.discrete import LatticeAccount, Share, account_within, exact_share, slack_delta
from gaussmix.accounting.numerics import round_up
from gaussmix.accounting.parameters import Neighbours
from gaussmix.accounting.thresholds import CountsAccount
from gaussmix.errors import ArgumentError, BudgetExceededError, LedgerError, NotPrivateError
from gaussmix.ledger.composition import (
    BudgetCap,
    Entry,
    RemainingBudget,
    account_holds,
    check_reservation,
    checked_budget,
    part_of,
    refusal,
    remaining_releases,
    reserve,
    room_left,
)
from gaussmix.ledger.store import (
    Place,
    Statements,
    append,
    contents,
    create,
    fingerprint,
    hashes,
    load,
    resolved,
    transaction,
)

__all__ = ["Ledger", "verify_claim"]

_DO_NOT_PUBLISH = "Do not publish the release."


def _cost(reserved: BudgetCap, account: LatticeAccount, failures: float = 0.0) -> dict[str, float]:
    """Return the cost of an account: its μ, and (1 + e^ε) times its discretisation error, from δ₀.

    ε is the ledger's. ``failures``, the probability that a threshold fails, is charged to δ₀ too.
    """
    if account.neighbours != reserved.neighbours:
        raise ArgumentError(
            f"neighbours of the release must be {reserved.neighbours!r}, as in the ledger, got {account.neighbours!r}."
        )
    slack = Fraction(slack_delta(reserved.epsilon, account.slack))
    return {"mu": account.mu, "delta_slack": round_up(slack + Fraction(check.nonnegative(failures=failures)))}


SPENT = 1e-6
"""A remaining μ below this is a rounding error of the shares of earlier releases."""


def _named(file: Path) -> str:
    """Return a path as text. Bytes that are not valid UTF-8 are escaped."""
    return str(file).encode("utf-8", "backslashreplace").decode()


def _exceeded(reasons: str, room: RemainingBudget, advice: str = "") -> BudgetExceededError:
    spent = " The budget is spent." if room.mu < SPENT else ""
    return BudgetExceededError(
        f"The release exceeds the remaining budget: {reasons}. Remaining budget: {room}. Nothing was recorded.{advice}"
        f"{spent} Further models can be fitted from existing releases at no cost."
    )


def verify_claim(
    reserved: BudgetCap, account: Account, *, ledger: str, claim: tuple[float, float, Neighbours, str]
) -> None:
    """Check that a certificate claims exactly the budget of the ledger that its release was charged to.

    The (ε, δ) of a ledger covers **all** of its releases together. The noise of one release alone would support a
    smaller ε, which does not hold for all of them. The certificate therefore contains the ledger's reservation, and the
    claim is recomputed from it.

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
        raise NotPrivateError(
            "The ledger budget stated in the certificate does not match the fingerprint of the ledger. "
            f"{_DO_NOT_PUBLISH}"
        )
    if claim != (reserved.epsilon, reserved.delta, reserved.neighbours, reserved.privacy_unit):
        raise NotPrivateError(
            f"The certificate and its ledger differ in budget, neighbours or privacy unit. {_DO_NOT_PUBLISH}"
        )
    if not account_holds(reserved):
        raise NotPrivateError(f"The ledger reserves more than its (epsilon, delta) budget. {_DO_NOT_PUBLISH}")
    try:
        if isinstance(account, LatticeAccount):
            cost = _cost(reserved, account)
        elif isinstance(account, CountsAccount):
            cost = _cost(reserved, account.lattice, account.threshold_delta)
        else:
            raise NotPrivateError(
                "The certificate names a ledger, but a ledger cannot record releases by this mechanism. "
                f"{_DO_NOT_PUBLISH}"
            )
    except ArgumentError as error:  # the account has other neighbours
        raise NotPrivateError(f"{error} {_DO_NOT_PUBLISH}") from None
    if reasons := refusal(room_left(reserved, []), **cost):
        raise NotPrivateError(f"The release exceeds the budget of its ledger: {reasons}. {_DO_NOT_PUBLISH}")


class Ledger:
    """A privacy budget for one set of rows, in a file or a database that processes share.

    The file is created if it does not exist; otherwise the arguments must equal those it was created with. :meth:`open`
    needs no arguments.

    Parameters
    ----------
    path : path
        File of the ledger, created with mode 0600. It must be on a local disk: SQLite's locks do not work on most
        network file systems. Or the address of a PostgreSQL database with the name of the ledger, such as
        ``"postgresql://user@host/database?ledger=patients"``. Deleting a ledger or restoring an old copy loses the
        record of spent budget.
    epsilon, delta : float
        Budget of all releases of these rows through this ledger.
    mu : float, optional
        Gaussian budget √Σμ², μ = sensitivity / noise under ``neighbours``. Default: the largest that (ε, δ) allows.
    delta_slack : float, optional
        Part δ₀ of ``delta`` reserved for discretisation and for thresholds that fail. Default: δ/1000.
    neighbours : {"add-remove", "replace-one"}
        The neighbouring relation.
    releases : int
        Planned number of releases. By default each takes an equal part of μ² and of δ₀.
    privacy_unit : str, optional
        The privacy-unit column (``gaussmix.release(..., privacy_unit=)``). Default: row-level privacy.

    Notes
    -----
    A ledger belongs to a **set of rows**, not to a file: tables that share rows share a ledger. Requests may depend on
    earlier releases but not on the rows. Entries are final, even if the release failed afterwards. Ledger objects hold
    no connection: they can be pickled, forked and used by threads.
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
        privacy_unit: str | None = None,
    ) -> None:
        asked = checked_budget(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            delta_slack=delta_slack,
            neighbours=neighbours,
            releases=releases,
            privacy_unit="" if privacy_unit is None else privacy_unit,
        )
        self._path = resolved(path)
        if not self._path.exists():
            create(self._path, reserve(asked))
        self._reserved = load(self._path)
        stored = asdict(self._reserved)
        if mu is None and math.isclose(stored["mu"], asked["mu"], rel_tol=1e-9):
            asked["mu"] = stored["mu"]  # last digits differ between machines
        differing = [
            f"{name} is {stored[name]!r}, not {value!r}" for name, value in asked.items() if stored[name] != value
        ]
        if differing:
            raise ArgumentError(
                f"{self._path} was created with other arguments: {'; '.join(differing)}. The budget of a ledger "
                "cannot be changed. To use this ledger, call Ledger.open(path)."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing ledger."""
        ledger = cls.__new__(cls)
        ledger._path = resolved(path)
        ledger._reserved = load(ledger._path)
        return ledger

    @property
    def path(self) -> Place:
        """Path of the ledger's file, or its database."""
        return self._path

    @property
    def reservation(self) -> BudgetCap:
        """The reservation made when the ledger was created."""
        return self._reserved

    def spend(
        self,
        *,
        mu: float = 0.0,
        delta_slack: float = 0.0,
        note: str = "",
        file: str | os.PathLike[str] | None = None,
        privacy_unit: str | None = None,
        release: str | None = None,
    ) -> Entry:
        """Record a release. Its noise may be drawn only after this method has returned.

        Parameters
        ----------
        mu : float
            √Σμ² over the parts of the release.
        delta_slack : float
            Part of δ₀ used, for discretisation and for thresholds that fail.
        note : str
            Text that identifies the release. It must not contain information about the rows.
        file : path, optional
            Path that the release will be written to, so that entries without a file can be found
            (:func:`gaussmix.report.verify.entry_state`).
        privacy_unit : str, optional
            The privacy unit that μ refers to; it must be the ledger's.
        release : str, optional
            Identifier of the release, 32 hexadecimal digits, if it is known already. Default: a random one. An
            identifier can be recorded once only.

        Raises
        ------
        BudgetExceededError
            If the release does not fit; the message states the remaining budget.
        LedgerError
            If the identifier is recorded already.
        """
        self.check_privacy_unit(privacy_unit)
        mu, delta_slack = check.nonnegative(mu=mu), check.nonnegative(delta_slack=delta_slack)
        check.text(note=note)
        named = "" if file is None else _named(Path(file).absolute())
        if not (mu or delta_slack):
            raise ArgumentError("mu or delta_slack must be positive, got 0 for both.")

        def record(connection: Statements) -> Entry:
            room, count, last = self._room(connection)
            if release is not None and any(entry.release == release for entry in contents(connection)[1]):
                raise LedgerError(f"The release {release} is already recorded in this ledger.")
            if reasons := refusal(room, mu=mu, delta_slack=delta_slack):
                raise _exceeded(reasons, room)
            own = uuid.uuid4().hex if release is None else release
            entry = Entry(count + 1, datetime.now(UTC), mu, delta_slack, note, own, named)
            append(connection, last, [entry])
            return entry

        return transaction(self._path, record, write=True)

    def spend_account(
        self,
        account: LatticeAccount,
        *,
        failures: float = 0.0,
        note: str = "",
        file: str | os.PathLike[str] | None = None,
        privacy_unit: str | None = None,
        release: str | None = None,
    ) -> Entry:
        """Record releases that will be drawn with an account's noise.

        The account's own ε and δ are not used. ``failures`` is the probability that a threshold fails; the other
        arguments are those of :meth:`spend`. Noise may be drawn only after this method has returned.
        """
        cost = _cost(self._reserved, account, failures)
        return self.spend(
            mu=cost["mu"],
            delta_slack=cost["delta_slack"],
            note=note,
            file=file,
            privacy_unit=privacy_unit,
            release=release,
        )

    def check_fits(self, *, mu: float = 0.0, delta_slack: float = 0.0) -> None:
        """Reject a release that does not fit now. Nothing is spent, and another process may spend the rest first."""
        room = self.remaining()
        if reasons := refusal(room, mu=mu, delta_slack=delta_slack):
            raise _exceeded(reasons, room)

    def check_privacy_unit(self, privacy_unit: str | None) -> None:
        """Reject a release with another privacy unit: for units with j rows, a row-level μ becomes jμ."""
        own, other = (
            f"the privacy unit {unit!r}" if unit else "row-level privacy"
            for unit in (self._reserved.privacy_unit, privacy_unit or "")
        )
        if own != other:
            raise ArgumentError(
                f"The ledger is for {own}, but the release is for {other}. Use a ledger with the privacy unit of the "
                "release."
            )

    def lattice_account(
        self,
        *,
        shares: Sequence[Share],
        coordinates: Sequence[int],
        share: Share | None = None,
        release: str | None = None,
    ) -> LatticeAccount:
        """Return the account of one release, possibly in passes. Nothing is spent: see :meth:`spend_account`.

        Its ``epsilon`` and ``delta`` are the ledger's: a certificate made from it states that **all** releases through
        the ledger together are (ε, δ)-differentially private. Do not add them up.

        Parameters
        ----------
        shares, coordinates
            As in :func:`gaussmix.accounting.discrete.lattice_account`; ``shares`` are shares of the release's μ².
        share : Fraction, float or str, optional
            Share of the ledger's μ² and δ₀ that the release takes. Default: 1/``releases``.
        release : str, optional
            Identifier of a release that may be recorded already: its account is the one it had before it was recorded.

        Raises
        ------
        BudgetExceededError
            If less than that remains; the message states the remaining budget.
        BudgetUnmetError
            If no discretisation error is small enough.
        """
        reserved, room, part = self._reserved, self.remaining(before=release), self._part(share)
        if not reserved.delta_slack:
            raise BudgetExceededError(
                "The ledger was created with delta_slack=0, but every release needs delta_slack > 0. Nothing was "
                "recorded."
            )
        mu, allowed = part_of(reserved, part)
        if reasons := refusal(room, mu=mu):
            left = (room.mu / reserved.mu) ** 2
            raise _exceeded(reasons, room, f" It needs {float(part):.4g} of the ledger's mu²; {left:.4g} remains.")
        return account_within(
            reserved.epsilon,
            reserved.delta,
            mu=mu,
            allowed=min(allowed, room.delta_slack),
            shares=shares,
            coordinates=coordinates,
            neighbours=reserved.neighbours,
        )

    def failures_left(self, account: LatticeAccount, *, share: Share | None = None) -> Fraction:
        """Return the part of the release's share of δ₀ that its discretisation leaves for thresholds."""
        _, allowed = part_of(self._reserved, self._part(share))
        spent = slack_delta(self._reserved.epsilon, account.slack)
        return Fraction(min(allowed, self.remaining().delta_slack)) - Fraction(spent)

    def _part(self, share: Share | None) -> Fraction:
        """Return the share of a release, by default that of one planned release."""
        part = Fraction(1, self._reserved.releases) if share is None else exact_share(share)
        if not 0 < part <= 1:
            raise ArgumentError(f"share must lie in (0, 1], got {share!r}.")
        return part

    def remaining(self, *, before: str | None = None) -> RemainingBudget:
        """Return the remaining budget, or what it was before the release with the identifier ``before`` was recorded.

        Another process may spend it first: only :meth:`spend` decides.
        """
        room = transaction(self._path, self._room)[0]
        entry = None if before is None else self.find(before)
        return room if entry is None else room_left(self._reserved, self.entries()[: entry.id - 1])

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return transaction(self._path, contents)[1]

    def find(self, release: str) -> Entry | None:
        """Return the entry of a release by its identifier; None if it is not recorded."""
        return next((entry for entry in self.entries() if entry.release == release), None)

    def recorded(
        self,
        account: LatticeAccount,
        release: str,
        *,
        failures: float = 0.0,
        file: str | os.PathLike[str] | None = None,
    ) -> Entry | None:
        """Return the entry of a release with an account by its identifier; None if it is not recorded.

        Raises
        ------
        LedgerError
            If it was recorded with another cost, or another file.
        """
        entry, cost = self.find(release), _cost(self._reserved, account, failures)
        if entry is not None and (entry.mu, entry.delta_slack) != (cost["mu"], cost["delta_slack"]):
            raise LedgerError(
                f"Entry {entry.id} of {self._path} records the release {release} with a different cost. "
                "Nothing was drawn."
            )
        own = "" if file is None else _named(Path(file).resolve())
        if entry is not None and own != (entry.file and _named(Path(entry.file).resolve())):
            raise LedgerError(
                f"Entry {entry.id} of {self._path} records the release {release} with a different output file. Repeat "
                "the call with the path of the first run. Nothing was drawn."
            )
        return entry

    def remaining_releases(self, entry: int) -> int:
        """Return how many more releases with the cost of the entry numbered ``entry`` fit."""
        reserved, entries, _ = transaction(self._path, contents)
        if not 1 <= entry <= len(entries):
            raise ArgumentError(
                f"entry must be the number of one of the {len(entries)} entries of the ledger, got {entry!r}."
            )
        return remaining_releases(reserved, entries, entries[entry - 1])

    @property
    def fingerprint(self) -> str:
        """Hash of the reservation. It names the ledger in certificates, independently of its path."""
        return fingerprint(self._reserved)

    @property
    def head(self) -> str:
        """Digest of the reservation and of all entries so far.

        Note it elsewhere to detect later that a file is a stale copy; the file alone cannot show this.
        """
        return transaction(self._path, contents)[2]

    def contains_digest(self, head: str) -> bool:
        """Return whether a digest noted earlier is in the ledger's hash chain. A stale copy does not contain it."""
        reserved, entries, _ = transaction(self._path, contents)
        return head in hashes(reserved, entries)

    def _room(self, connection: Statements) -> tuple[RemainingBudget, int, str]:
        """Return the remaining budget, the number of entries and the hash of the last."""
        reserved, entries, last = contents(connection)
        if reserved != self._reserved:
            raise LedgerError(
                f"{self._path} was replaced by another ledger after this process opened it. Restore the original "
                "ledger."
            )
        return room_left(reserved, entries), len(entries), last

    def __repr__(self) -> str:
        r = self._reserved
        unit = f", privacy_unit={r.privacy_unit!r}" if r.privacy_unit else ""
        return (
            f"Ledger({str(self._path)!r}, epsilon={r.epsilon!r}, delta={r.delta!r}, mu={r.mu!r}, "
            f"delta_slack={r.delta_slack!r}, neighbours={r.neighbours!r}, releases={r.releases}{unit})"
        )
