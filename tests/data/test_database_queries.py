"""`gaussmix.Query`: SQLite through its own driver and ADBC, PostgreSQL through ADBC."""

from __future__ import annotations

import sqlite3

import numpy as np
import pyarrow as pa
import pytest

import gaussmix as gm
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError
from postgres_server import postgres, programs

SCHEMA = {"age": [0, 100], "smoker": "boolean", "region": ["north", "south"]}
SQL = "select region, age, smoker, name from people where age > 20"
ROWS = [
    (float(age), int(age % 3 == 0), ["north", "south"][age % 2], "secret") for age in (np.arange(6_000) % 100).tolist()
]
DECLARED = gm.ReadOptions(row_by_row=True)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("sqlite") / "people.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table people (age real, smoker integer, region text, name text)")
        connection.executemany("insert into people values (?, ?, ?, ?)", ROWS)
    return path


@pytest.fixture(scope="module")
def server():
    if programs() is None:
        pytest.skip("install postgresql")
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with postgres() as address:
        table = pa.table(list(map(pa.array, zip(*ROWS, strict=True))), names=["age", "smoker", "region", "name"])
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("people", table, mode="create")
            connection.commit()
        yield address


def wanted():
    kept = [row for row in ROWS if row[0] > 20]
    columns = dict(
        zip(["age", "smoker", "region"], map(list, zip(*[row[:3] for row in kept], strict=True)), strict=True)
    )
    return gm.Moments.of(columns, SCHEMA)


def test_sqlite_by_its_own_driver_and_by_adbc(database):
    adbc = pytest.importorskip("adbc_driver_sqlite.dbapi")
    for connect in (lambda: sqlite3.connect(database), lambda: adbc.connect(str(database))):
        found = gm.Moments.of(gm.Query(connect, SQL), SCHEMA, reading=DECLARED)
        assert np.array_equal(found.gram(), wanted().gram())


def test_postgresql_by_adbc(server):
    from adbc_driver_postgresql import dbapi

    query = gm.Query(lambda: dbapi.connect(server), SQL)
    assert np.array_equal(gm.Moments.of(query, SCHEMA, reading=DECLARED).gram(), wanted().gram())
    release = gm.release(query, SCHEMA, epsilon=1.0, delta=1e-6, reading=DECLARED)
    assert any("result of a query" in condition.text for condition in release.certificate.conditions)


def test_the_row_by_row_condition_must_be_declared(database):
    with pytest.raises(ArgumentError, match="Declare with row_by_row=True"):
        gm.release(gm.Query(lambda: sqlite3.connect(database), SQL), SCHEMA, epsilon=1.0, delta=1e-6)


def test_the_query_runs_again_in_every_pass_and_must_return_the_same_rows(database, tmp_path):
    opened = []

    def connect():
        opened.append(sqlite3.connect(database))
        return opened[-1]

    gm.release(gm.Query(connect, SQL), SCHEMA, epsilon=1.0, delta=1e-6, reading=DECLARED)
    assert len(opened) >= 2
    with pytest.raises(sqlite3.ProgrammingError):  # every connection was closed
        opened[0].execute("select 1")
    random = gm.Query(connect, "select abs(random() % 100) as age, smoker, region from people")
    with pytest.raises(DataError, match="The table changed between two passes"):
        gm.release(random, SCHEMA, epsilon=1.0, delta=1e-6, reading=DECLARED)


def test_errors_of_the_database_quote_no_value(database):
    connect = lambda: sqlite3.connect(database)  # noqa: E731
    for sql, match in (
        ("select secret_column from people", r"the query failed\. Run it separately"),
        ("select age, region from people", "Column 'smoker' is not in the query"),
    ):
        with pytest.raises(DataError, match=match) as caught:
            gm.Moments.of(gm.Query(connect, sql), SCHEMA, reading=DECLARED)
        assert "secret" not in repr((caught.value, caught.value.__cause__, caught.value.__context__))
    with pytest.raises(DataTypeError, match="'age' of the query holds Python objects that are not numbers") as caught:
        list(
            open_table(gm.Query(connect, "select name as age from people"), DECLARED).batches(
                ["age"], types={"age": pa.float64()}
            )
        )
    assert "secret" not in str(caught.value)


def test_the_same_query_twice_is_refused(database):
    def connect():
        return sqlite3.connect(database)

    with pytest.raises(DataError, match="double-counted"):
        gm.Moments.of([gm.Query(connect, SQL), gm.Query(connect, f"{SQL};")], SCHEMA, reading=DECLARED)


@pytest.mark.parametrize("arguments", [("people.db", SQL), (lambda: None, 1)])
def test_wrong_arguments(arguments):
    with pytest.raises(ArgumentTypeError, match="Query requires a function that opens a connection and the text"):
        gm.Query(*arguments)
