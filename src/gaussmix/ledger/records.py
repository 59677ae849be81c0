"""What stands in the file of a ledger: tables, types and the chain of hashes, in this format and in earlier ones.

Holds public parameters of releases; nothing in this module sees data.

Every value is of exactly one type: SQLite gives back text where a flipped bit has made it text. The hash of an entry
covers the one before it, the first that of the reservation; number and hash of the last stand in a row of their own,
written with the entry. So no edit, no reordering and no missing entry, last ones included, goes unseen.

Format 4 has the unit of privacy. Format 3 is the same without it, and the same hashes, for ledgers whose unit is one
row; it has ledgers without sketch rows, and the number of planned releases. Format 2 is the same without these, with
the same hashes. Format 1 had no hashes, and kept its last entries in a file of their own (-wal) until SQLite tidied up:
a damaged one lost them.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from gaussmix import _validation as check
from gaussmix.accounting.arguments import RELATIONS
from gaussmix.ledger.reservation import check_reservation
from gaussmix.ledger.values import Entry, Reservation

__all__ = ["APPLICATION_ID", "FORMAT", "STATEMENTS", "append", "contents", "fingerprint", "hashes", "write"]

FORMAT = 4
APPLICATION_ID = 0x676D4C67  # "gmLg", in the header of the file

STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    f"""CREATE TABLE reservation (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon > 0),
    delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
    sketch_rows INTEGER NOT NULL CHECK (typeof(sketch_rows) = 'integer' AND sketch_rows >= 0),
    mu REAL NOT NULL CHECK (typeof(mu) = 'real' AND mu >= 0),
    failure_delta REAL NOT NULL CHECK (typeof(failure_delta) = 'real' AND failure_delta >= 0),
    relation TEXT NOT NULL CHECK (relation IN {RELATIONS!r}),
    gamma REAL CHECK (typeof(gamma) = CASE WHEN sketch_rows > 0 THEN 'real' ELSE 'null' END),
    delta_reserved REAL NOT NULL CHECK (failure_delta <= delta_reserved AND delta_reserved <= delta),
    releases INTEGER NOT NULL CHECK (typeof(releases) = 'integer' AND releases > 0),
    unit TEXT NOT NULL
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

_NONE = type(None)
_ENTRY_TYPES = (int, str, int, (float, _NONE), float, float, str, str, str)
_RESERVATION_COLUMNS = [field.name for field in fields(Reservation)]
_ENTRY_COLUMNS = [field.name for field in fields(Entry)]


# ---------------------------------------------------------------------------------------------------------------
# Reading
def contents(connection: sqlite3.Connection, version: int = FORMAT) -> tuple[Reservation, list[Entry], str]:
    """What is reserved, every entry, and the hash of the last; ValueError if they are not what was written."""
    _check_columns(connection, version)
    reserved = _reservation(connection, version)
    if version == 1:
        return reserved, _entries_of_format_1(connection), ""
    entries: list[Entry] = []
    hashed = _hash_reservation(reserved)
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


def _columns(version: int) -> tuple[list[str], list[str]]:
    """Of the two tables, as a format has them."""
    later = max(4 - max(version, 2), 0)  # format 2 had one planned release, format 3 one unit
    reservation = _RESERVATION_COLUMNS[: len(_RESERVATION_COLUMNS) - later]
    return reservation, _ENTRY_COLUMNS if version >= 2 else _ENTRY_COLUMNS[:7]


def _check_columns(connection: sqlite3.Connection, version: int) -> None:
    """A file that names another format than its own would be read with less care."""
    reservation, entries = _columns(version)
    found = connection.execute(
        "SELECT name FROM pragma_table_info('reservation') UNION ALL SELECT name FROM pragma_table_info('entries')"
    )
    if [name for (name,) in found] != ["only", *reservation, *entries, *(["hash"] if version >= 2 else [])]:
        raise ValueError("the tables are those of another format")


def _reservation(connection: sqlite3.Connection, version: int) -> Reservation:
    columns, _ = _columns(version)
    ((*values,),) = connection.execute(f"SELECT {', '.join(columns)} FROM reservation")
    reserved = Reservation(*values)
    check_reservation(reserved)
    if version < 3 and reserved.gamma is None:
        raise ValueError("gamma goes with sketch rows")
    return reserved


def _entry(values: list[Any]) -> Entry:
    _check_types(values, _ENTRY_TYPES)
    number, when, rows, gamma, mu, failure, *texts = values
    entry = Entry(number, datetime.fromisoformat(when), rows, gamma, mu, failure, *texts)
    if rows < 0 or (gamma is None) != (rows == 0) or entry.time.isoformat() != when:
        raise ValueError("an entry does not make sense")
    check.nonnegative(mu=mu)
    check.nonnegative(failure_delta=failure)
    return entry


def _entries_of_format_1(connection: sqlite3.Connection) -> list[Entry]:
    columns = ", ".join(_columns(1)[1])
    rows = connection.execute(f"SELECT {columns} FROM entries ORDER BY id")
    entries = [_entry([*values, "", ""]) for values in rows]
    if [entry.id for entry in entries] != list(range(1, len(entries) + 1)):
        raise ValueError("entries are missing")
    return entries


def _check_types(values: list[Any], kinds: tuple[Any, ...]) -> None:
    for value, kind in zip(values, kinds, strict=True):
        if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise ValueError("a value has the wrong type")


# ---------------------------------------------------------------------------------------------------------------
# Hashes
def hashes(reserved: Reservation, entries: list[Entry]) -> list[str]:
    """That of the reservation, and every head that the ledger has had since."""
    chain = [_hash_reservation(reserved)]
    for entry in entries:
        chain.append(_hash_entry(chain[-1], entry))
    return chain


def _hash_reservation(reserved: Reservation) -> str:
    values = list(asdict(reserved).values())
    if not reserved.unit:
        values = values[:-1] if reserved.releases > 1 else values[:-2]  # as in formats 3 and 2
    return _hash("gaussmix ledger", *values)


def _hash_entry(before: str, entry: Entry) -> str:
    return _hash(
        before, *(value.isoformat() if isinstance(value, datetime) else value for value in vars(entry).values())
    )


def _hash(*values: Any) -> str:
    """SHA-256 of plain values; Python writes every double so that it is read back exactly."""
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()


def fingerprint(reserved: Reservation) -> str:
    """Return the hash of a reservation, which names its ledger."""
    return _hash_reservation(reserved)


# ---------------------------------------------------------------------------------------------------------------
# Writing
def write(connection: sqlite3.Connection, reserved: Reservation, entries: list[Entry]) -> None:
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
            f"INSERT INTO entries ({', '.join(_ENTRY_COLUMNS)}, hash) VALUES (?{', ?' * (len(values) - 1)})", values
        )
        connection.execute("UPDATE head SET entries = ?, hash = ?", (entry.id, last))
