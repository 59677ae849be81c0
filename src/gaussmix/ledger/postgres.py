"""A ledger in a PostgreSQL database, for teams whose computers share no disk.

The tables and the hash chain are those of a ledger file (:mod:`gaussmix.ledger.store`), in a schema of the database
with the name of the ledger. A transaction that spends holds a lock on the ledger until it is committed, and a commit
returns only when the server has written it to disk. If the connection is lost during a commit, the entry may be
recorded or not, and nothing is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from gaussmix.errors import ArgumentError, LedgerError, MissingPackageError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["Database"]

SCHEMES = ("postgres", "postgresql")
LOCK_SECONDS = 60
UNCERTAIN = (
    "If a release was under way, an entry may have been recorded: publish nothing until you have checked with "
    "'gaussmix ledger show'."
)

T = TypeVar("T")


@dataclass(frozen=True)
class Database:
    """The place of a ledger in a database: ``postgresql://user@host/database?ledger=name``.

    Passwords belong in a password file or service file of PostgreSQL, not in the address.
    """

    address: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self.name):
            raise ArgumentError(
                "The address of a ledger in a database must end in ?ledger=NAME, where NAME consists of "
                "lower-case letters, digits and underscores."
            )

    @property
    def name(self) -> str:
        """Name of the ledger."""
        return dict(parse_qsl(urlsplit(self.address).query)).get("ledger", "")

    def __str__(self) -> str:
        """Return the address without a password."""
        parts = urlsplit(self.address)
        user, at, host = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}?ledger={self.name}"

    def exists(self) -> bool:
        """Return whether the ledger was created."""
        with self._connected() as connection:
            found = connection.execute("SELECT to_regclass(%s)", (f"{self.name}.head",)).fetchone()
            return found is not None and found[0] is not None

    def create(self, statements: Iterable[str], rows: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """Create the tables and insert the first rows in one transaction. An existing ledger is left unchanged."""
        with self._connected() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"gaussmix ledger {self.name}",))
            if self.exists():
                return
            connection.execute(f'CREATE SCHEMA "{self.name}"'.encode())
            self._begin(connection)
            for statement in statements:
                connection.execute(statement.encode())
            for statement, values in rows:
                connection.execute(statement.replace("?", "%s").encode(), values)
            connection.execute(_FINAL.encode())

    def transaction(self, work: Callable[[Any], T], *, write: bool) -> T:
        """Run ``work`` in one transaction, rolled back if it raises."""
        from psycopg import IsolationLevel

        with self._connected() as connection:
            # A writer must see what the writer before it has committed; a reader sees one moment.
            connection.isolation_level = IsolationLevel.READ_COMMITTED if write else IsolationLevel.REPEATABLE_READ
            self._begin(connection)
            if write:
                connection.execute("LOCK TABLE head IN EXCLUSIVE MODE")
            return work(_Statements(connection))

    def _begin(self, connection: Connection[Any]) -> None:
        connection.execute(f'SET LOCAL search_path TO "{self.name}"'.encode())
        connection.execute(f"SET LOCAL lock_timeout TO '{LOCK_SECONDS}s'".encode())
        connection.execute("SET LOCAL synchronous_commit TO on")
        connection.execute("SET LOCAL extra_float_digits TO 1")  # numbers are read back exactly

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """Open a connection, whose transaction is committed at the end. Connections must not cross a fork."""
        try:
            import psycopg
        except ImportError:
            raise MissingPackageError(
                'A ledger in a database requires psycopg: pip install "gaussmix[postgres]".'
            ) from None
        parts = urlsplit(self.address)
        query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key != "ledger"])
        try:
            with psycopg.connect(urlunsplit(parts._replace(query=query)), connect_timeout=LOCK_SECONDS) as connection:
                yield connection
        except psycopg.errors.LockNotAvailable:
            raise LedgerError(
                f"{self} was locked by another process for {LOCK_SECONDS} seconds. Nothing was recorded. Try again."
            ) from None
        except psycopg.OperationalError as error:
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            raise LedgerError(f"The connection to {self} failed or was lost ({reason}). {UNCERTAIN}") from None
        except psycopg.Error as error:
            raise LedgerError(f"{self} cannot be used: {type(error).__name__}. {UNCERTAIN}") from None


_FINAL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'entries are final'; END $$;
CREATE TRIGGER final BEFORE UPDATE OR DELETE OR TRUNCATE ON entries FOR EACH STATEMENT EXECUTE FUNCTION refuse()
"""


class _Statements:
    """A connection that takes statements as SQLite does, with a question mark for each value."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(statement.replace("?", "%s").encode(), values)
