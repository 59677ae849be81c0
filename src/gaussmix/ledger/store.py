"""The file of a ledger: SQLite, with every value typed, every entry chained to the one before, and nothing on trust.

Holds public parameters of releases; nothing in this module sees data. docs/ledger.md says what the file withstands.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from gaussmix import _validation as check
from gaussmix.accounting.arguments import RELATIONS
from gaussmix.errors import BudgetExceededError, LedgerDamagedError, LedgerError
from gaussmix.ledger.reservation import ASKED, Entry, Reservation, account_holds, checked_budget, room_left

__all__ = [
    "FORMAT",
    "append",
    "contents",
    "create",
    "load",
    "resolved",
    "transaction",
]

T = TypeVar("T")

FORMAT = 2
APPLICATION_ID = 0x676D4C67  # "gmLg", in the header of the file
BUSY_SECONDS = 60.0  # how long to wait for other processes; a transaction takes milliseconds

_STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    f"""CREATE TABLE reservation (
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
)""",
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    sketch_size INTEGER NOT NULL CHECK (typeof(sketch_size) = 'integer' AND sketch_size >= 0),
    gamma REAL CHECK (typeof(gamma) = CASE WHEN sketch_size > 0 THEN 'real' ELSE 'null' END),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu >= 0),
    failure_delta REAL NOT NULL CHECK (typeof(failure_delta) = 'real' AND failure_delta >= 0),
    note TEXT NOT NULL,
    release TEXT NOT NULL,
    file TEXT NOT NULL,
    hash TEXT NOT NULL
)""",
    """CREATE TABLE head (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    entries INTEGER NOT NULL CHECK (typeof(entries) = 'integer' AND entries >= 0),
    hash TEXT NOT NULL
)""",
    "CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END",
    "CREATE TRIGGER final BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END",
)


# ---------------------------------------------------------------------------------------------------------------
# The file. Each operation has a connection of its own, closed at its end: SQLite's must not be carried across a fork.
# The file is opened through SQLite only, since closing any other handle would drop the locks of the process.
def resolved(path: str | os.PathLike[str]) -> Path:
    """Where a ledger is or will be."""
    found = Path(path).resolve()
    if not found.parent.is_dir():
        raise FileNotFoundError(f"There is no directory {found.parent} for the ledger; create it first.")
    if found.is_dir():
        raise LedgerError(f"{found} is a directory, not a ledger.")
    return found


def create(path: Path, reserved: Reservation) -> None:
    """Write a ledger whole or not at all: made under another name, then linked. If someone was first, theirs stays."""
    for suffix in ("-wal", "-journal"):  # SQLite would play the latter back into a new file of this name
        if path.with_name(path.name + suffix).exists() and not path.exists():
            raise LedgerError(
                f"{path} is missing but {path.name}{suffix}, which may hold what was spent, is there: restore the "
                "ledger. Deleting it forgets a budget that is spent."
            )
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)  # mode 0600
    os.close(handle)
    try:
        with _translated(path), _connection(Path(name)) as connection:
            for statement in _STATEMENTS:  # nobody sees the file yet
                connection.execute(statement)
            _write(connection, reserved, [])
        try:
            os.link(name, path)
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(f"{path.parent} has no hard links ({error}): put the ledger on a local disk.") from error
        _sync_directory(path.parent)
    finally:
        for leftover in (name, f"{name}-journal"):
            Path(leftover).unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows opens no directories
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(path: Path) -> Reservation:
    """Check the whole file and read what it reserves."""
    if not path.exists():
        raise FileNotFoundError(f"There is no ledger {path}; create it with Ledger(path, epsilon=..., delta=..., ...).")

    def check_all(connection: sqlite3.Connection) -> tuple[int, Reservation]:
        version = _format(connection, path)
        findings = [finding for (finding,) in connection.execute("PRAGMA integrity_check")]
        if findings != ["ok"]:
            raise ValueError("SQLite finds damage")
        reserved, entries, _ = contents(connection) if version == FORMAT else _former_contents(connection)
        room_left(reserved, entries)
        return version, reserved

    version, reserved = transaction(path, check_all)
    if not account_holds(reserved):
        raise LedgerDamagedError(_damaged(path))
    if version != FORMAT:
        _upgrade(path)
    return reserved


def _format(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is not a gaussmix ledger.")
    if version > FORMAT:
        raise LedgerError(
            f"{path} is a ledger of format {version}, this version of gaussmix reads {FORMAT}: upgrade gaussmix."
        )
    if version < 1:
        raise LedgerDamagedError(_damaged(path))
    return int(version)


# Contents. Every value is of exactly one type: SQLite gives back text where a flipped bit has made it text. The hash
# of an entry covers the one before it, the first that of the reservation; number and hash of the last stand in a row of
# their own, written with the entry. So no edit, no reordering and no missing entry, last ones included, goes unseen.
_RESERVATION_TYPES = (str, float, float, int, float, float, str, float, float)
_ENTRY_TYPES = (int, str, int, (float, type(None)), float, float, str, str, str)
_ENTRY_COLUMNS = ", ".join(field.name for field in fields(Entry))


def contents(connection: sqlite3.Connection) -> tuple[Reservation, list[Entry], str]:
    """What is reserved, every entry, and the hash of the last; ValueError if they are not what was written."""
    reserved = _reservation(connection)
    hashed = _hash_reservation(reserved)
    entries: list[Entry] = []
    for *values, stored in connection.execute(f"SELECT {_ENTRY_COLUMNS}, hash FROM entries ORDER BY id"):
        entry = _entry(values)
        hashed = _hash_entry(hashed, entry)
        if stored != hashed or entry.id != len(entries) + 1:
            raise ValueError("an entry is not the one that was recorded")
        entries.append(entry)
    ((*head,),) = connection.execute("SELECT entries, hash FROM head")
    if head != [len(entries), hashed]:
        raise ValueError("entries are missing")
    return reserved, entries, hashed


def _reservation(connection: sqlite3.Connection) -> Reservation:
    columns = ", ".join(field.name for field in fields(Reservation))
    ((*values,),) = connection.execute(f"SELECT {columns} FROM reservation")
    if tuple(map(type, values)) != _RESERVATION_TYPES:
        raise ValueError("a value has the wrong type")
    reserved = Reservation(*values)
    checked_budget(**{name: getattr(reserved, name) for name in ASKED})
    check.positive(finite=True, gamma=reserved.gamma)
    return reserved


def _entry(values: list[Any]) -> Entry:
    for value, kind in zip(values, _ENTRY_TYPES, strict=True):
        if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise ValueError("a value has the wrong type")
    number, when, rows, gamma, mu, failure, *texts = values
    entry = Entry(number, datetime.fromisoformat(when), rows, gamma, mu, failure, *texts)
    if rows < 0 or (gamma is None) != (rows == 0) or entry.time.isoformat() != when:
        raise ValueError("an entry does not make sense")
    check.nonnegative(mu=mu)
    check.nonnegative(failure_delta=failure)
    return entry


def _hash_reservation(reserved: Reservation) -> str:
    return _hash("gaussmix ledger", *asdict(reserved).values())


def _hash_entry(before: str, entry: Entry) -> str:
    return _hash(
        before, *(value.isoformat() if isinstance(value, datetime) else value for value in vars(entry).values())
    )


def _hash(*values: Any) -> str:
    """SHA-256 of plain values; Python writes every double so that it is read back exactly."""
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()


def _write(connection: sqlite3.Connection, reserved: Reservation, entries: list[Entry]) -> None:
    """A new ledger, or an older one in this format, into empty tables."""
    values = asdict(reserved)
    connection.execute(
        f"INSERT INTO reservation (only, {', '.join(values)}) VALUES (1{', ?' * len(values)})", tuple(values.values())
    )
    start = _hash_reservation(reserved)
    connection.execute("INSERT INTO head (only, entries, hash) VALUES (1, 0, ?)", (start,))
    append(connection, start, entries)


def append(connection: sqlite3.Connection, last: str, entries: list[Entry]) -> None:
    """Entries after the one whose hash is ``last``, and the new head, in the caller's transaction."""
    for entry in entries:
        last = _hash_entry(last, entry)
        values = (entry.id, entry.time.isoformat(), *list(vars(entry).values())[2:], last)
        connection.execute(
            f"INSERT INTO entries ({_ENTRY_COLUMNS}, hash) VALUES (?{', ?' * (len(values) - 1)})", values
        )
        connection.execute("UPDATE head SET entries = ?, hash = ?", (entry.id, last))


# ---------------------------------------------------------------------------------------------------------------
# Format 1 had no hashes, and kept its last entries in a file of their own (-wal) until SQLite tidied up: a damaged one
# lost them. It is read with the same care, its account is computed anew, and it is rewritten in one transaction.
def _former_contents(connection: sqlite3.Connection) -> tuple[Reservation, list[Entry], str]:
    columns = ", ".join(field.name for field in fields(Entry)[:7])
    rows = connection.execute(f"SELECT {columns} FROM entries ORDER BY id")
    entries = [_entry([*values, "", ""]) for values in rows]
    if [entry.id for entry in entries] != list(range(1, len(entries) + 1)):
        raise ValueError("entries are missing")
    return _reservation(connection), entries, ""


def _upgrade(path: Path) -> None:
    """Rewrite a ledger of format 1. Processes of older versions that still have it open fail to record in it."""

    def rewrite(connection: sqlite3.Connection) -> None:
        if _format(connection, path) == FORMAT:  # somebody was first
            return
        reserved, entries, _ = _former_contents(connection)
        room_left(reserved, entries)
        for statement in ("DROP TRIGGER kept", "DROP TRIGGER final", "DROP TABLE entries", "DROP TABLE reservation"):
            connection.execute(statement)
        for statement in _STATEMENTS:
            connection.execute(statement)
        _write(connection, reserved, entries)

    with _translated(path), _connection(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # waits until nobody else has it open
    transaction(path, rewrite, begin="BEGIN IMMEDIATE")


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that never creates a file, waits for others, and is on the disk when it says so."""
    uri = f"{path.as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")  # the folder too, or a power cut could undo what was recorded
        connection.execute("PRAGMA fullfsync = ON")  # macOS only
        yield connection


def transaction(path: Path, work: Callable[[sqlite3.Connection], T], *, begin: str = "BEGIN") -> T:
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
        raise LedgerDamagedError(_damaged(path)) from error
    except (BudgetExceededError, LedgerError):
        raise
    except (ValueError, TypeError, OverflowError) as error:  # other values than were written, or more than reserved
        raise LedgerDamagedError(_damaged(path)) from error


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged. Restore it from a copy that has every release; if there is none, take its budget as "
        "spent. A new ledger for the same rows would spend it twice."
    )
