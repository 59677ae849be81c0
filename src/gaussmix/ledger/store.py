"""The place of a ledger: tables in a SQLite file or a PostgreSQL database, exact types and a hash chain.

Holds public parameters of releases; nothing in this module sees data. docs/ledger.md describes which kinds of damage
and tampering the file detects.

The type of every value is checked, because SQLite may return text where a bit was flipped. The hash of each entry
covers the hash of the previous one, and the first covers that of the reservation. The number and hash of the last entry
are stored in a row of their own, written in the same transaction. So any edited, reordered or missing entry is
detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gaussmix import _validation as check
from gaussmix._files import other_format
from gaussmix.accounting.parameters import NEIGHBOURS
from gaussmix.errors import BudgetExceededError, LedgerDamagedError, LedgerError, MissingFileError, OutputError
from gaussmix.ledger.composition import BudgetCap, Entry, account_holds, check_reservation, room_left
from gaussmix.ledger.postgres import SCHEMES, UNCERTAIN, Database

__all__ = [
    "APPLICATION_ID",
    "FORMAT",
    "STATEMENTS",
    "Place",
    "Statements",
    "append",
    "contents",
    "create",
    "fingerprint",
    "hashes",
    "load",
    "refuse_as_output",
    "resolved",
    "transaction",
]


FORMAT = 1
APPLICATION_ID = 0x676D4C67  # "gmLg", in the header of the file

TABLES = (
    f"""CREATE TABLE reservation (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 1),
    identity TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu > 0),
    delta_slack REAL NOT NULL CHECK (typeof(delta_slack) = 'real' AND delta_slack >= 0),
    neighbours TEXT NOT NULL CHECK (neighbours IN {NEIGHBOURS!r}),
    delta_reserved REAL NOT NULL CHECK (delta_slack <= delta_reserved AND delta_reserved <= delta),
    releases INTEGER NOT NULL CHECK (typeof(releases) = 'integer' AND releases > 0),
    privacy_unit TEXT NOT NULL
)""",
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu >= 0),
    delta_slack REAL NOT NULL CHECK (typeof(delta_slack) = 'real' AND delta_slack >= 0),
    note TEXT NOT NULL,
    release TEXT NOT NULL,
    file TEXT NOT NULL,
    hash TEXT NOT NULL
)""",
    """CREATE TABLE head (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 1),
    entries INTEGER NOT NULL CHECK (typeof(entries) = 'integer' AND entries >= 0),
    hash TEXT NOT NULL
)""",
)
STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    *TABLES,
    "CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END",
    "CREATE TRIGGER final BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END",
)

_POSTGRES_TYPES = {" INTEGER ": " BIGINT ", " REAL ": " DOUBLE PRECISION "}
_COLUMNS = "SELECT name FROM pragma_table_info('reservation') UNION ALL SELECT name FROM pragma_table_info('entries')"
_POSTGRES_COLUMNS = """SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema()
    AND table_name IN ('reservation', 'entries') ORDER BY table_name DESC, ordinal_position"""

_ENTRY_TYPES = (int, str, float, float, str, str, str)
_RESERVATION_COLUMNS = [field.name for field in fields(BudgetCap)]
_ENTRY_COLUMNS = [field.name for field in fields(Entry)]


class Statements(Protocol):
    """A connection: sqlite3's, or one that takes the same statements."""

    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """Run a statement with a question mark for each value."""


Place = Path | Database
"""Where a ledger is: the path of a file, or a database."""


# ---------------------------------------------------------------------------------------------------------------
# Reading
def contents(connection: Statements) -> tuple[BudgetCap, list[Entry], str]:
    """Return the reservation, all entries and the last hash; raise ValueError if the hash chain does not match."""
    found = connection.execute(_COLUMNS if isinstance(connection, sqlite3.Connection) else _POSTGRES_COLUMNS)
    if [name for (name,) in found] != ["only", *_RESERVATION_COLUMNS, *_ENTRY_COLUMNS, "hash"]:
        raise ValueError("the tables belong to another format")
    ((*values,),) = connection.execute(f"SELECT {', '.join(_RESERVATION_COLUMNS)} FROM reservation")
    reserved = BudgetCap(*values)
    check_reservation(reserved)
    entries: list[Entry] = []
    hashed = fingerprint(reserved)
    for *values, stored in connection.execute(f"SELECT {', '.join(_ENTRY_COLUMNS)}, hash FROM entries ORDER BY id"):
        entry = _entry(values)
        hashed = _hash_entry(hashed, entry)
        if stored != hashed or entry.id != len(entries) + 1:
            raise ValueError("an entry does not match its hash")
        entries.append(entry)
    ((*head,),) = connection.execute("SELECT entries, hash FROM head")
    if head != [len(entries), hashed]:
        raise ValueError("entries are missing")
    return reserved, entries, hashed


def _entry(values: list[Any]) -> Entry:
    if tuple(map(type, values)) != _ENTRY_TYPES:
        raise ValueError("a value has the wrong type")
    number, when, mu, failure, *texts = values
    entry = Entry(number, datetime.fromisoformat(when), mu, failure, *texts)
    if entry.time.isoformat() != when:
        raise ValueError("an entry has an invalid time")
    check.nonnegative(mu=mu)
    check.nonnegative(delta_slack=failure)
    return entry


# ---------------------------------------------------------------------------------------------------------------
# Hashes
def hashes(reserved: BudgetCap, entries: list[Entry]) -> list[str]:
    """Return the hash chain: the fingerprint of the reservation, then one digest per entry."""
    chain = [fingerprint(reserved)]
    for entry in entries:
        chain.append(_hash_entry(chain[-1], entry))
    return chain


def fingerprint(reserved: BudgetCap) -> str:
    """Return the hash of a reservation, which names its ledger."""
    return _hash("gaussmix ledger", *asdict(reserved).values())


def _hash_entry(before: str, entry: Entry) -> str:
    return _hash(
        before, *(value.isoformat() if isinstance(value, datetime) else value for value in vars(entry).values())
    )


def _hash(*values: Any) -> str:
    """Return the SHA-256 of plain values; Python writes every double so that it is read back exactly."""
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------
# Writing
def append(connection: Statements, last: str, entries: list[Entry]) -> None:
    """Append entries after the one with hash ``last`` and update the digest, in the caller's transaction."""
    for entry in entries:
        last = _hash_entry(last, entry)
        values = (entry.id, entry.time.isoformat(), *list(vars(entry).values())[2:], last)
        connection.execute(
            f"INSERT INTO entries ({', '.join(_ENTRY_COLUMNS)}, hash) VALUES (?{', ?' * (len(values) - 1)})", values
        )
        connection.execute("UPDATE head SET entries = ?, hash = ?", (entry.id, last))


T = TypeVar("T")

BUSY_SECONDS = 60.0  # how long to wait for other processes; a transaction takes milliseconds


# ---------------------------------------------------------------------------------------------------------------
# The file. Each operation opens and closes its own connection, because SQLite connections must not cross a fork. The
# file is opened through SQLite only: closing any other handle would drop the locks of the process.
def resolved(path: str | os.PathLike[str]) -> Place:
    """Return the absolute path, or the database, of a ledger that exists or will be created."""
    if isinstance(path, str) and path.partition("://")[0] in SCHEMES:
        return Database(path)
    found = Path(path).resolve()
    if not found.parent.is_dir():
        raise MissingFileError(f"The ledger's directory {found.parent} does not exist. Create it first.")
    if found.is_dir():
        raise LedgerError(f"{found} is a directory, not a ledger. Pass the path of a file.")
    return found


def refuse_as_output(out: str | os.PathLike[str], ledger: Place) -> None:
    """Reject an output path that is the ledger or one of SQLite's files next to it."""
    if isinstance(ledger, Path) and Path(out).resolve() in [
        ledger.with_name(ledger.name + ending) for ending in ("", "-wal", "-shm", "-journal")
    ]:
        raise OutputError(f"{os.fspath(out)} is the ledger or one of its files. Choose another output file.")


def create(path: Place, reserved: BudgetCap) -> None:
    """Create a ledger atomically: write it under another name, then link it. An existing ledger is left unchanged."""
    values = asdict(reserved)
    places = f'("only", {", ".join(values)}) VALUES (1{", ?" * len(values)})'
    rows: list[tuple[str, tuple[Any, ...]]] = [
        (f"INSERT INTO reservation {places}", tuple(values.values())),
        ('INSERT INTO head ("only", entries, hash) VALUES (1, 0, ?)', (fingerprint(reserved),)),
    ]
    if isinstance(path, Database):
        path.create(map(_in_postgres, TABLES), rows)
        return
    for suffix in ("-wal", "-journal"):  # SQLite would play the latter back into a new file of this name
        if path.with_name(path.name + suffix).exists() and not path.exists():
            raise LedgerError(
                f"{path} is missing, but {path.name}{suffix} exists and may contain recorded releases. Restore the "
                f"ledger; deleting {path.name}{suffix} would lose the record of spent budget."
            )
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)  # mode 0600
    os.close(handle)
    try:
        with _translated(path), _connection(Path(name)) as connection:
            for statement in STATEMENTS:  # no other process can see the file yet
                connection.execute(statement)
            for row in rows:
                connection.execute(*row)
        try:
            os.link(name, path)
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(
                f"{path.parent} does not support hard links ({error}). Put the ledger on a local disk."
            ) from error
        _sync_directory(path.parent)
    finally:
        for leftover in (name, f"{name}-journal"):
            Path(leftover).unlink(missing_ok=True)


def _in_postgres(statement: str) -> str:
    """Return a statement that creates a table, in PostgreSQL's types, which it enforces itself."""
    for own, other in _POSTGRES_TYPES.items():
        statement = statement.replace(own, other)
    return re.sub(r"typeof\(\w+\) = '\w+' AND ", "", statement)


def _sync_directory(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows cannot open directories
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(path: Place) -> BudgetCap:
    """Verify the whole ledger and return its reservation."""
    if not path.exists():
        raise MissingFileError(
            f"The ledger {path} does not exist. Create it with Ledger(path, epsilon=..., delta=..., ...)."
        )

    def check_all(connection: Statements) -> BudgetCap:
        if isinstance(path, Path):
            _check_format(connection, path)
            findings = [finding for (finding,) in connection.execute("PRAGMA integrity_check")]
            if findings != ["ok"]:
                raise ValueError("SQLite reports damage")
        reserved, entries, _ = contents(connection)
        room_left(reserved, entries)
        return reserved

    reserved = transaction(path, check_all)
    if not account_holds(reserved):
        raise LedgerDamagedError(_damaged(path))
    if isinstance(path, Path):
        with _translated(path):
            _check_locks(path)
    return reserved


def _check_format(connection: Statements, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is not a gaussmix ledger. Pass the path of a ledger.")
    if version != FORMAT:
        raise LedgerError(
            f"{other_format(path, version, FORMAT)} Do not create a new ledger for the same rows: "
            "it would spend the budget twice."
        )


_locking: set[int] = set()  # file systems whose locks were tested by this process
_CONTENDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], uri=True, timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    sys.exit(0)
print("locked twice")
"""


def _check_locks(path: Path) -> None:
    """Reject a file system whose locks do nothing, as in some network folders: two processes would spend one budget.

    While this process holds SQLite's lock another one tries to get it, once for each file system. Locks between several
    computers cannot be tested. A ledger that may only be read is not tested.
    """
    device = path.stat().st_dev
    if device in _locking or not (sys.executable and os.access(path, os.W_OK)):
        return
    with _connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            command = [sys.executable, "-I", "-S", "-c", _CONTENDER, _address(path)]
            other = subprocess.run(command, capture_output=True, text=True, timeout=BUSY_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):  # no other process can be started
            return
        finally:
            connection.execute("ROLLBACK")
    if "locked twice" in other.stdout:
        raise LedgerError(
            f"File locks do not work in {path.parent}, as in some network folders: two processes could spend the same "
            "budget. Put the ledger on a local disk."
        )
    _locking.add(device)


def _address(path: Path) -> str:
    return f"{path.as_uri()}?mode=rw{_OPTIONS}"


_OPTIONS = ""  # further options of SQLite's address, for tests


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that never creates a file, waits for other processes, and commits durably."""
    uri = _address(path)
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        # Sync the directory too: a power failure must not undo an entry.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only
        yield connection


def transaction(path: Place, work: Callable[[Statements], T], *, write: bool = False) -> T:
    """Run ``work`` in one transaction, rolled back if it raises. One that will ``write`` waits for other writers.

    SQLite waits for other writers, but not always while another process finishes or a crash is being recovered from;
    then the whole transaction is retried. Nothing has been recorded when SQLite reports that it is busy.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    with _translated(path):
        if isinstance(path, Database):
            return path.transaction(work, write=write)
        while True:
            try:
                with _connection(path) as connection:
                    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    result = work(connection)
                    connection.execute("COMMIT")
                    return result
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.005)


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextlib.contextmanager
def _translated(path: Place) -> Iterator[None]:
    """Translate SQLite's errors into messages that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
            raise MissingFileError(f"The ledger {path} no longer exists. Nothing was recorded.") from error
        if code == sqlite3.SQLITE_NOTADB:
            raise LedgerError(f"{path} is not a gaussmix ledger. Pass the path of a ledger.") from error
        if code in _BUSY:
            raise LedgerError(
                f"{path} was locked by another process for {BUSY_SECONDS:g} seconds. Nothing was recorded. Try again."
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise LedgerError(f"{path} and its directory must be writable ({error}). Nothing was recorded.") from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise LedgerError(f"{path} could not be written ({error}). {UNCERTAIN}") from error
        raise LedgerDamagedError(_damaged(path)) from error
    except (BudgetExceededError, LedgerError):
        raise
    except (ValueError, TypeError, OverflowError) as error:  # invalid values, or entries that exceed the reservation
        raise LedgerDamagedError(_damaged(path)) from error


def _damaged(path: Place) -> str:
    return (
        f"{path} is damaged. Restore it from a copy that contains every release. If there is none, treat the budget "
        "as spent; a new ledger for the same rows would spend it twice."
    )
