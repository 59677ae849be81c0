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
gaussmix.ledger.BudgetExceeded: The release does not fit: it asks for 251 sketch rows, 250 are left. ...
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

import contextlib
import functools
import math
import os
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from scipy import stats

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix.accounting import GAMMA_MAX, RELATIONS, Relation, log_excess, smallest_safe
from gaussmix.calibration import Calibration

__all__ = ["BudgetExceeded", "Entry", "Ledger", "LedgerError", "Reservation", "Room"]

T = TypeVar("T")

FORMAT = 1
APPLICATION_ID = 0x676D4C67  # "gmLg", in the header of the file
BUSY_SECONDS = 60.0  # how long to wait for other processes; a transaction takes milliseconds

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE reservation (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
    sketch_rows INTEGER NOT NULL CHECK (typeof(sketch_rows) = 'integer' AND sketch_rows > 0),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu >= 0),
    failure_delta REAL NOT NULL CHECK (typeof(failure_delta) = 'real' AND failure_delta >= 0),
    relation TEXT NOT NULL CHECK (relation IN {RELATIONS!r}),
    gamma REAL NOT NULL CHECK (typeof(gamma) = 'real' AND gamma > 0),
    delta_reserved REAL NOT NULL CHECK (failure_delta <= delta_reserved AND delta_reserved <= delta)
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    sketch_size INTEGER NOT NULL CHECK (typeof(sketch_size) = 'integer' AND sketch_size >= 0),
    gamma REAL CHECK (typeof(gamma) = CASE WHEN sketch_size > 0 THEN 'real' ELSE 'null' END),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu >= 0),
    failure_delta REAL NOT NULL CHECK (typeof(failure_delta) = 'real' AND failure_delta >= 0),
    note TEXT NOT NULL
);
CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
CREATE TRIGGER final BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
"""


class BudgetExceeded(ValueError):  # noqa: N818 - says what happened, as TimeoutExpired does
    """A release does not fit into what is left. Nothing was recorded, and nothing may be released."""


class LedgerError(RuntimeError):
    """The file cannot be used as a ledger. Nothing may be released on its account."""


# ---------------------------------------------------------------------------------------------------------------
# Values
@dataclass(frozen=True)
class Reservation:
    """What a ledger sets aside when it is created; it never changes.

    Attributes
    ----------
    identity : str
        Random name of the ledger, the same wherever the file is moved.
    epsilon, delta : float
        The budget of all releases together.
    sketch_rows : int
        K, sketch rows of all releases together.
    mu : float
        Gaussian budget: Σμ² of all Gaussian releases is at most its square.
    failure_delta : float
        Part of δ for the event that a private scale bound fails.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation.
    gamma : float
        γ*, the least γ of any sketch: leverage at most 1/(1 + γ*).
    delta_reserved : float
        δ at ε of everything reserved, ``failure_delta`` included, rounded up: at most ``delta``.
    """

    identity: str
    epsilon: float
    delta: float
    sketch_rows: int
    mu: float
    failure_delta: float
    relation: Relation
    gamma: float
    delta_reserved: float


@dataclass(frozen=True)
class Room:
    """What is left: any release within it fits. Numbers are rounded so that spending all of one is allowed.

    Attributes
    ----------
    sketch_rows : int
        Sketch rows left.
    gamma : float
        The least γ they may have; it never changes.
    mu : float
        The largest μ of one more Gaussian release.
    failure_delta : float
        The largest failure probability of one more private scale bound.
    """

    sketch_rows: int
    gamma: float
    mu: float
    failure_delta: float

    def __str__(self) -> str:
        return (
            f"{self.sketch_rows} sketch rows at gamma ≥ {self.gamma!r}, mu ≤ {self.mu!r}, "
            f"failure_delta ≤ {self.failure_delta!r}"
        )


@dataclass(frozen=True)
class Entry:
    """One release, as it was recorded before its noise was drawn.

    Attributes
    ----------
    id : int
        Number in the ledger, from 1.
    time : datetime
        When it was recorded, UTC.
    sketch_size : int
        Sketch rows; 0 for a release without a sketch.
    gamma : float or None
        The sketch's leverage as 1/(1 + γ); None without one.
    mu : float
        √Σμ² of the release's Gaussian parts.
    failure_delta : float
        Probability that its private scale bound fails.
    note : str
        The caller's words.
    """

    id: int
    time: datetime
    sketch_size: int
    gamma: float | None
    mu: float
    failure_delta: float
    note: str


# ---------------------------------------------------------------------------------------------------------------
# Arithmetic, exact: floats are rational numbers, and sums of their squares are compared as such
def least_gamma(
    epsilon: float, delta: float, *, sketch_rows: int, mu: float, relation: Relation
) -> tuple[float, float]:
    """Least γ > 0 at which K sketch rows beside Gaussian releases of total μ meet (ε, δ), and the δ they spend.

    Rounded up: the γ returned was itself checked.
    """

    @functools.cache
    def spent(gamma: float, mu: float = mu) -> float:
        return float(accounting.delta(epsilon, sketch_size=sketch_rows, gamma=gamma, mu=mu, relation=relation))

    low, high = 1e-6, 2.0
    try:
        if mu > 0:  # sketches alone need less: a start near the answer, since the integrals with mu are slow
            low = smallest_safe(lambda g: log_excess(spent(g, 0.0), delta), low, high, limit=GAMMA_MAX, log=True)
            high = 1.2 * low
        gamma = smallest_safe(lambda g: log_excess(spent(g), delta), low, high, limit=GAMMA_MAX, log=True, rtol=1e-10)
    except ValueError:
        raise ValueError(
            f"No noise with gamma up to {GAMMA_MAX:g} lets sketch_rows={sketch_rows} and mu={mu!r} share "
            f"epsilon={epsilon!r} and delta={delta!r} (what failure_delta leaves of it). Without any sketch mu could "
            f"be {accounting.gaussian_mu(epsilon, delta):.4g}: ask for less mu, fewer sketch_rows or a larger budget."
        ) from None
    return gamma, spent(gamma)


def room_left(reserved: Reservation, entries: Iterable[Entry]) -> Room:
    """What a reservation has left after some entries, rounded down.

    Raises
    ------
    ValueError
        If the entries exceed the reservation.
    """
    entries = list(entries)
    rows = reserved.sketch_rows - sum(entry.sketch_size for entry in entries)
    mu2 = Fraction(reserved.mu) ** 2 - sum((Fraction(entry.mu) ** 2 for entry in entries), Fraction())
    failure = Fraction(reserved.failure_delta) - sum((Fraction(entry.failure_delta) for entry in entries), Fraction())
    if rows < 0 or mu2 < 0 or failure < 0 or any(e.gamma is not None and e.gamma < reserved.gamma for e in entries):
        raise ValueError("more is recorded than was reserved")
    return Room(sketch_rows=rows, gamma=reserved.gamma, mu=_root_down(mu2), failure_delta=_down(failure))


def refusal(room: Room, *, sketch_size: int, gamma: float | None, mu: float, failure_delta: float) -> str:
    """Why a release does not fit into a room, or an empty string if it does."""
    reasons = []
    if sketch_size > room.sketch_rows:
        reasons.append(f"it asks for {sketch_size} sketch rows, {room.sketch_rows} are left")
    if gamma is not None and gamma < room.gamma:
        reasons.append(f"its sketch has gamma={gamma!r}, the least is {room.gamma!r}")
    if mu > room.mu:
        reasons.append(f"it asks for mu={mu!r}, {room.mu!r} is left")
    if failure_delta > room.failure_delta:
        reasons.append(f"its scale bound fails with probability {failure_delta!r}, {room.failure_delta!r} is left")
    return "; ".join(reasons)


def _down(x: Fraction) -> float:
    """The largest double that is at most x."""
    nearest = float(x)
    return nearest if nearest <= x else math.nextafter(nearest, -math.inf)


def _up(x: Fraction) -> float:
    """The smallest double that is at least x."""
    return -_down(-x)


def _root_down(x: Fraction) -> float:
    """The largest double whose square is at most x ≥ 0."""
    units = 1100  # of bits behind the point: finer than any double
    return _down(Fraction(math.isqrt((x.numerator << 2 * units) // x.denominator), 1 << units))


# ---------------------------------------------------------------------------------------------------------------
# The ledger
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
        asked = _checked_budget(epsilon, delta, sketch_rows, mu, failure_delta, relation)
        self._path = _resolved(path)
        if not self._path.exists():
            _create(self._path, _reserve(**asked))
        self._reserved = _load(self._path)
        stored = asdict(self._reserved)
        differing = [
            f"{name} is {stored[name]!r}, not {value!r}" for name, value in asked.items() if stored[name] != value
        ]
        if differing:
            raise ValueError(
                f"{self._path} was created with other arguments: {'; '.join(differing)}. What a ledger reserves is "
                "fixed when it is created; use Ledger.open(path) to go on with it."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Go on with a ledger that exists, whatever it reserved."""
        ledger = cls.__new__(cls)
        ledger._path = _resolved(path)
        ledger._reserved = _load(ledger._path)
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

        Raises
        ------
        BudgetExceeded
            If it does not fit; the message has the room that is left.
        """
        if isinstance(sketch_size, bool) or sketch_size != 0:
            check.positive_integer(sketch_size=sketch_size)
        rows = int(sketch_size)
        if (gamma is None) != (rows == 0):
            raise ValueError(
                f"gamma goes with a sketch: give both or neither, got sketch_size={sketch_size!r}, gamma={gamma!r}."
            )
        least = None if gamma is None else check.positive(finite=True, gamma=gamma)
        mu, failure_delta = check.nonnegative(mu=mu), check.nonnegative(failure_delta=failure_delta)
        if not isinstance(note, str):
            raise TypeError(f"note must be a string, got {type(note).__name__}.")
        if not (rows or mu or failure_delta):
            raise ValueError("A release spends something: give sketch_size and gamma, or mu, or failure_delta.")

        def record(connection: sqlite3.Connection) -> Entry:
            room = self._room(connection)
            reasons = refusal(room, sketch_size=rows, gamma=least, mu=mu, failure_delta=failure_delta)
            if reasons:
                raise BudgetExceeded(
                    f"The release does not fit: {reasons}. Left in the ledger: {room}. Nothing was recorded."
                )
            now = datetime.now(UTC)
            cursor = connection.execute(
                "INSERT INTO entries (time, sketch_size, gamma, mu, failure_delta, note) VALUES (?, ?, ?, ?, ?, ?)",
                (now.isoformat(), rows, least, mu, failure_delta, note),
            )
            assert cursor.lastrowid is not None
            return Entry(cursor.lastrowid, now, rows, least, mu, failure_delta, note)

        return _transaction(self._path, record, begin="BEGIN IMMEDIATE")

    def spend_calibration(self, calibration: Calibration, *, note: str = "") -> Entry:
        r"""Record a release that is to be drawn with a calibration's γ, η and τ.

        Its own ε and δ do not matter: the ledger has its own account. With ``scale="private"`` the release of the
        eigenvalue is Gaussian, μ = (1 + 2e)/η; the sketch's leverage is at most 1/γ = 1/(1 + (γ - 1)) unless z > τ,
        which has probability Φ(-τ). Theorem 1's calibrations have a large τ; the joint account's have τ near 0,
        where failure is accounted for in another way that does not add up over releases, and will not fit.
        """
        relation = self._reserved.relation
        if calibration.relation != relation:
            raise ValueError(f"This ledger is for relation={relation!r}, the calibration for {calibration.relation!r}.")
        if calibration.eta is None or calibration.tau is None:
            return self.spend(sketch_size=calibration.sketch_size, gamma=calibration.gamma, note=note)
        fails = float(stats.norm.sf(calibration.tau))
        return self.spend(
            sketch_size=calibration.sketch_size,
            gamma=_down(Fraction(calibration.gamma) - 1),
            mu=_up((1 + 2 * Fraction(calibration.eigenvalue_error)) / Fraction(calibration.eta)),
            failure_delta=fails * (1 + accounting.ROUNDING),
            note=note,
        )

    def calibration(self, sketch_size: int) -> Calibration:
        """Parameters of a sketch at the ledger's γ*, the least noise it allows. Spends nothing: see spend_calibration.

        Its ``epsilon`` and ``delta`` are the ledger's. A certificate made from it says that **all** releases through
        the ledger, this one and every other, are together (ε, δ)-differentially private: do not add them up.
        """
        reserved = self._reserved
        k = check.positive_integer(sketch_size=sketch_size)
        if k > reserved.sketch_rows:
            raise BudgetExceeded(f"sketch_size={k} exceeds the {reserved.sketch_rows} sketch rows of the whole ledger.")
        within = _up(Fraction(reserved.delta_reserved) - Fraction(reserved.failure_delta))
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
        return _transaction(self._path, self._room)

    def entries(self) -> list[Entry]:
        """Everything recorded, oldest first."""
        return _transaction(self._path, _entries)

    def _room(self, connection: sqlite3.Connection) -> Room:
        if _reservation(connection) != self._reserved:
            raise LedgerError(f"{self._path} has been replaced by another ledger since it was opened.")
        return room_left(self._reserved, _entries(connection))

    def __repr__(self) -> str:
        r = self._reserved
        return (
            f"Ledger({str(self._path)!r}, epsilon={r.epsilon!r}, delta={r.delta!r}, sketch_rows={r.sketch_rows}, "
            f"mu={r.mu!r}, failure_delta={r.failure_delta!r}, relation={r.relation!r})"
        )


def _checked_budget(
    epsilon: float, delta: float, sketch_rows: int, mu: float, failure_delta: float, relation: Relation
) -> dict[str, Any]:
    check.choice(RELATIONS, relation=relation)
    budget = {
        "epsilon": check.positive(finite=True, epsilon=epsilon),
        "delta": check.in_interval(0, 1, delta=delta),
        "sketch_rows": check.positive_integer(sketch_rows=sketch_rows),
        "mu": check.nonnegative(mu=mu),
        "failure_delta": check.nonnegative(failure_delta=failure_delta),
        "relation": relation,
    }
    if failure_delta >= delta:
        raise ValueError(f"failure_delta is a part of delta={delta!r} and must be less, got {failure_delta!r}.")
    return budget


def _reserve(
    *, epsilon: float, delta: float, sketch_rows: int, mu: float, failure_delta: float, relation: Relation
) -> Reservation:
    """The account of a new ledger."""
    within = _down(Fraction(delta) - Fraction(failure_delta))
    gamma, spent = least_gamma(epsilon, within, sketch_rows=sketch_rows, mu=mu, relation=relation)
    total = _up(Fraction(spent) + Fraction(failure_delta))
    return Reservation(
        uuid.uuid4().hex, epsilon, delta, sketch_rows, mu, failure_delta, relation, gamma=gamma, delta_reserved=total
    )


# ---------------------------------------------------------------------------------------------------------------
# The file. Each operation has a connection of its own, closed at its end: SQLite's must not be carried across a fork.
# The file is opened through SQLite only, since closing any other handle would drop the locks of the process.
def _resolved(path: str | os.PathLike[str]) -> Path:
    resolved = Path(path).resolve()
    if not resolved.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {resolved.parent} for the ledger; create it first.")
    if resolved.is_dir():
        raise LedgerError(f"{resolved} is a directory, not a ledger.")
    return resolved


def _create(path: Path, reserved: Reservation) -> None:
    """Write a ledger whole or not at all: made under another name, then linked. If someone was first, theirs stays."""
    if path.with_name(path.name + "-wal").exists() and not path.exists():
        raise LedgerError(
            f"{path} is missing but {path.name}-wal, which may hold what was spent, is there: restore the ledger. "
            "Deleting it forgets a budget that is spent."
        )
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)  # mode 0600
    os.close(handle)
    try:
        with _translated(path), _connection(Path(name)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise LedgerError(f"{path.parent} does not support SQLite's WAL mode: put the ledger on a local disk.")
            connection.executescript(_SCHEMA)  # nobody sees the file yet
            values = asdict(reserved)
            connection.execute(
                f"INSERT INTO reservation (only, {', '.join(values)}) VALUES (1{', ?' * len(values)})",
                tuple(values.values()),
            )
        try:
            os.link(name, path)
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(f"{path.parent} has no hard links ({error}): put the ledger on a local disk.") from error
        _sync_directory(path.parent)
    finally:
        for leftover in (name, f"{name}-wal", f"{name}-shm"):
            Path(leftover).unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows opens no directories
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _load(path: Path) -> Reservation:
    """Check the whole file and read what it reserves."""
    if not path.exists():
        raise FileNotFoundError(f"There is no ledger {path}; create it with Ledger(path, epsilon=..., delta=..., ...).")

    def check_all(connection: sqlite3.Connection) -> Reservation:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise LedgerError(f"{path} is not a gaussmix ledger.")
        if version > FORMAT:
            raise LedgerError(
                f"{path} is a ledger of format {version}, this version of gaussmix reads {FORMAT}: upgrade gaussmix."
            )
        findings = [finding for (finding,) in connection.execute("PRAGMA integrity_check")]
        if version < 1 or findings != ["ok"]:
            raise LedgerError(_damaged(path))
        reserved = _reservation(connection)
        room_left(reserved, _entries(connection))
        return reserved

    return _transaction(path, check_all)


def _reservation(connection: sqlite3.Connection) -> Reservation:
    columns = ", ".join(field.name for field in fields(Reservation))
    ((*values,),) = connection.execute(f"SELECT {columns} FROM reservation")
    return Reservation(*values)


def _entries(connection: sqlite3.Connection) -> list[Entry]:
    columns = ", ".join(field.name for field in fields(Entry))
    rows = connection.execute(f"SELECT {columns} FROM entries ORDER BY id")
    return [Entry(number, datetime.fromisoformat(when), *rest) for number, when, *rest in rows]


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that never creates a file, waits for others, and is on the disk when it says so."""
    uri = f"{path.as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only
        yield connection


def _transaction(path: Path, work: Callable[[sqlite3.Connection], T], *, begin: str = "BEGIN") -> T:
    """``work`` in one transaction, undone if it raises.

    SQLite waits for other writers by itself, but not always while the last of them tidies up or a crash is being
    recovered from: then the whole is tried again. Nothing was recorded when SQLite says that it is busy.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    with _translated(path):
        while True:
            try:
                with _connection(path) as connection:
                    connection.execute(begin)
                    result = work(connection)
                    connection.execute("COMMIT")
                    return result
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.005)


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's errors in words that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
            raise FileNotFoundError(f"The ledger {path} is gone. Nothing was recorded.") from error
        if code == sqlite3.SQLITE_NOTADB:
            raise LedgerError(f"{path} is not a gaussmix ledger.") from error
        if code in _BUSY:
            raise LedgerError(
                f"{path} was held by another process for {BUSY_SECONDS:g} seconds. Nothing was recorded."
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise LedgerError(f"{path} and its directory must be writable ({error}). Nothing was recorded.") from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise LedgerError(f"{path} could not be written ({error}). Do not draw the release.") from error
        raise LedgerError(_damaged(path)) from error
    except (BudgetExceeded, LedgerError):
        raise
    except ValueError as error:  # unreadable values, or more recorded than reserved
        raise LedgerError(_damaged(path)) from error


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged. Restore it from a copy that has every release; if there is none, take its budget as "
        "spent. A new ledger for the same rows would spend it twice."
    )
