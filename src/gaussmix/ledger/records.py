"""What stands in the file of a ledger: tables, types and the chain of hashes.

Holds public parameters of releases; nothing in this module sees data.

Every value is of exactly one type: SQLite gives back text where a flipped bit has made it text. The hash of an entry
covers the one before it, the first that of the reservation; number and hash of the last stand in a row of their own,
written with the entry. So no edit, no reordering and no missing entry, last ones included, goes unseen.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.parameters import RELATIONS
from gaussmix.ledger.reservation import check_reservation
from gaussmix.ledger.values import Entry, Reservation

__all__ = ["APPLICATION_ID", "FORMAT", "STATEMENTS", "append", "contents", "fingerprint", "hashes", "write"]

FORMAT = 1
APPLICATION_ID = 0x676D4C67  # "gmLg", in the header of the file

STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    f"""CREATE TABLE reservation (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu > 0),
    failure_delta REAL NOT NULL CHECK (typeof(failure_delta) = 'real' AND failure_delta >= 0),
    relation TEXT NOT NULL CHECK (relation IN {RELATIONS!r}),
    delta_reserved REAL NOT NULL CHECK (failure_delta <= delta_reserved AND delta_reserved <= delta),
    releases INTEGER NOT NULL CHECK (typeof(releases) = 'integer' AND releases > 0),
    unit TEXT NOT NULL
)""",
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
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

_ENTRY_TYPES = (int, str, float, float, str, str, str)
_RESERVATION_COLUMNS = [field.name for field in fields(Reservation)]
_ENTRY_COLUMNS = [field.name for field in fields(Entry)]


# ---------------------------------------------------------------------------------------------------------------
# Reading
def contents(connection: sqlite3.Connection) -> tuple[Reservation, list[Entry], str]:
    """What is reserved, every entry, and the hash of the last; ValueError if they are not what was written."""
    _check_columns(connection)
    reserved = _reservation(connection)
    entries: list[Entry] = []
    hashed = fingerprint(reserved)
    for *values, stored in connection.execute(f"SELECT {', '.join(_ENTRY_COLUMNS)}, hash FROM entries ORDER BY id"):
        entry = _entry(values)
        hashed = _hash_entry(hashed, entry)
        if stored != hashed or entry.id != len(entries) + 1:
            raise ValueError("an entry is not the one that was recorded")
        entries.append(entry)
    ((*head,),) = connection.execute("SELECT entries, hash FROM head")
    if head != [len(entries), hashed]:
        raise ValueError("entries are missing")
    return reserved, entries, hashed


def _check_columns(connection: sqlite3.Connection) -> None:
    """Refuse a file whose tables have other columns than those of its format."""
    found = connection.execute(
        "SELECT name FROM pragma_table_info('reservation') UNION ALL SELECT name FROM pragma_table_info('entries')"
    )
    if [name for (name,) in found] != ["only", *_RESERVATION_COLUMNS, *_ENTRY_COLUMNS, "hash"]:
        raise ValueError("the tables are those of another format")


def _reservation(connection: sqlite3.Connection) -> Reservation:
    ((*values,),) = connection.execute(f"SELECT {', '.join(_RESERVATION_COLUMNS)} FROM reservation")
    reserved = Reservation(*values)
    check_reservation(reserved)
    return reserved


def _entry(values: list[Any]) -> Entry:
    if tuple(map(type, values)) != _ENTRY_TYPES:
        raise ValueError("a value has the wrong type")
    number, when, mu, failure, *texts = values
    entry = Entry(number, datetime.fromisoformat(when), mu, failure, *texts)
    if entry.time.isoformat() != when:
        raise ValueError("an entry does not make sense")
    check.nonnegative(mu=mu)
    check.nonnegative(failure_delta=failure)
    return entry


# ---------------------------------------------------------------------------------------------------------------
# Hashes
def hashes(reserved: Reservation, entries: list[Entry]) -> list[str]:
    """That of the reservation, and every head that the ledger has had since."""
    chain = [fingerprint(reserved)]
    for entry in entries:
        chain.append(_hash_entry(chain[-1], entry))
    return chain


def fingerprint(reserved: Reservation) -> str:
    """Return the hash of a reservation, which names its ledger."""
    return _hash("gaussmix ledger", *asdict(reserved).values())


def _hash_entry(before: str, entry: Entry) -> str:
    return _hash(
        before, *(value.isoformat() if isinstance(value, datetime) else value for value in vars(entry).values())
    )


def _hash(*values: Any) -> str:
    """SHA-256 of plain values; Python writes every double so that it is read back exactly."""
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------
# Writing
def write(connection: sqlite3.Connection, reserved: Reservation) -> None:
    """Write a new ledger into empty tables."""
    values = asdict(reserved)
    connection.execute(
        f"INSERT INTO reservation (only, {', '.join(values)}) VALUES (1{', ?' * len(values)})", tuple(values.values())
    )
    connection.execute("INSERT INTO head (only, entries, hash) VALUES (1, 0, ?)", (fingerprint(reserved),))


def append(connection: sqlite3.Connection, last: str, entries: list[Entry]) -> None:
    """Entries after the one whose hash is ``last``, and the new head, in the caller's transaction."""
    for entry in entries:
        last = _hash_entry(last, entry)
        values = (entry.id, entry.time.isoformat(), *list(vars(entry).values())[2:], last)
        connection.execute(
            f"INSERT INTO entries ({', '.join(_ENTRY_COLUMNS)}, hash) VALUES (?{', ?' * (len(values) - 1)})", values
        )
        connection.execute("UPDATE head SET entries = ?, hash = ?", (entry.id, last))
