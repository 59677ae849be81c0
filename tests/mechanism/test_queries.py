"""Queries as tables: which ones are refused before anything is spent, and what certificates say of the others."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.engines import DuckDBQuery, mixing_operator
from gaussmix.data.moments import Moments
from gaussmix.errors import ArgumentError
from gaussmix.releases.certificate import ROW_BY_ROW

SCHEMA = {"x": [-1, 1]}
BUDGET = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "passes": 1}
REFUSED = {
    "SELECT x - avg(x) OVER () AS x FROM t": "WINDOW",
    "SELECT x FROM (SELECT x, row_number() OVER () AS n FROM t) WHERE n < 9": "WINDOW",
    "SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) = 1": "WINDOW",
    "SELECT x FROM t ORDER BY id LIMIT 1000": "LIMIT",
    "SELECT x FROM t OFFSET 5": "LIMIT",
    "SELECT x FROM t LIMIT 10%": "LIMIT",
    "SELECT avg(x) AS x FROM t GROUP BY g": "AGGREGATE",
    "SELECT count(*) / 2000 AS x FROM t": "AGGREGATE",  # the optimiser takes it from statistics
    "SELECT x FROM t WHERE x > (SELECT avg(x) FROM t)": "CROSS_PRODUCT",
    "SELECT x / (SELECT max(x) FROM t) AS x FROM t": "CROSS_PRODUCT",
    "SELECT x FROM t WHERE id IN (SELECT id FROM u)": "COMPARISON_JOIN",
    "SELECT x FROM t AS a WHERE EXISTS (SELECT 1 FROM u WHERE u.id = a.id)": "DEPENDENT_JOIN",
    "SELECT t.x FROM t JOIN u USING (id)": "COMPARISON_JOIN",
    "SELECT t.x FROM t, u": "CROSS_PRODUCT",
    "SELECT DISTINCT x FROM t": "DISTINCT",
    "SELECT x FROM t UNION SELECT x FROM u": "DISTINCT",
    "SELECT x FROM t EXCEPT SELECT x FROM u": "DISTINCT",
    "SELECT x FROM t USING SAMPLE 10": "SAMPLE",
    "SELECT x FROM t TABLESAMPLE 10%": "SAMPLE",
    "SELECT unnest([x, x]) AS x FROM t": "UNNEST",
    "SELECT x FROM t UNION ALL SELECT x FROM t": "a second scan of the same table",
    "SELECT x FROM t UNION ALL SELECT x FROM filtered": "a second scan of the same table",
    "WITH c AS (FROM t) SELECT x FROM c UNION ALL SELECT x FROM c": "a second scan of the same table",
    "SELECT rowid / 2000 AS x FROM t": "rowid",
    "SELECT random() AS x FROM t": r"random\(\)",
    "SELECT i / 10 AS x FROM range(10) r(i)": "RANGE",
    "FROM totals": "AGGREGATE",  # a view
}
PASSED = (
    "FROM t",
    "SELECT 2 * x AS x FROM t WHERE g IN ('a', 'b') AND x > 0.1",
    "SELECT x FROM t ORDER BY x",
    "SELECT x FROM filtered",
    "SELECT x FROM t UNION ALL SELECT x FROM u",
    "WITH c AS (FROM t WHERE id > 3) SELECT CASE WHEN x > 0 THEN x ELSE 0 END AS x FROM c",
)


def fill(connection):
    connection.execute("CREATE TABLE t AS SELECT i AS id, (i % 7) / 7.0 AS x, 'a' AS g FROM range(2000) r(i)")
    connection.execute("CREATE TABLE u AS FROM t")
    connection.execute("CREATE VIEW filtered AS SELECT x FROM t WHERE id > 5")
    connection.execute("CREATE VIEW totals AS SELECT sum(x) / 2000 AS x FROM t GROUP BY id % 3")


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as opened:
        fill(opened)
        yield opened


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "h.duckdb"
    with duckdb.connect(str(path)) as opened:
        fill(opened)
    return path


@pytest.mark.parametrize("sql", REFUSED)
def test_queries_that_mix_rows_are_refused(connection, sql):
    with pytest.raises(ArgumentError, match=rf"contains {REFUSED[sql]}, so one stored row .* row_by_row=True"):
        gm.release(connection.sql(sql), **BUDGET)
    assert connection.execute("SELECT current_setting('explain_output')").fetchall() == [("PHYSICAL_ONLY",)]


@pytest.mark.parametrize("sql", PASSED)
def test_queries_that_work_row_by_row_are_released_under_a_condition(connection, sql):
    assert mixing_operator(connection.sql(sql)) is None
    assert gm.release(connection.sql(sql), **BUDGET).certificate.conditions == (ROW_BY_ROW,)


def test_relations_are_examined_like_queries(connection, tmp_path):
    t, u = connection.table("t"), connection.table("u")
    assert mixing_operator(t.filter("x > 0.1").project("x")) is None
    assert mixing_operator(t.union(u)) is None
    assert mixing_operator(connection.sql("FROM t WHERE x > ?", params=[0.1])) is None
    assert mixing_operator(t.limit(3)) == "LIMIT"
    assert mixing_operator(t.union(t)) == "a second scan of the same table"
    connection.execute(f"COPY t TO '{tmp_path / 'a.parquet'}'")
    connection.execute(f"COPY t TO '{tmp_path / 'a.csv'}'")
    for file in ("a.parquet", "a.csv"):
        assert mixing_operator(connection.sql(f"FROM '{tmp_path / file}'")) is None
    both = connection.sql(f"FROM '{tmp_path / 'a.parquet'}' UNION ALL FROM '{tmp_path / 'a.parquet'}'")
    assert mixing_operator(both) == "scans of several files or objects"
    frame = pl.DataFrame({"x": [0.0]})
    assert mixing_operator(duckdb.sql("SELECT x FROM frame")) is None
    assert frame.height == 1


def test_a_refused_query_costs_no_budget(database, tmp_path):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6)
    query = DuckDBQuery(database, "SELECT x - avg(x) OVER () AS x FROM t")
    out = tmp_path / "r.parquet"
    for data in (query, (str(database), query.sql), [query]):
        with pytest.raises(ArgumentError, match="WINDOW"):
            gm.release(data, schema=SCHEMA, budget=gm.Budget(ledger=ledger), out=out)
    with pytest.raises(ArgumentError, match="WINDOW"):
        gm.propose_bounds(query, {"x": "number"}, budget=gm.Budget(ledger=ledger))
    with pytest.raises(ArgumentError, match="WINDOW"):
        Moments.of(query, SCHEMA)
    assert ledger.entries() == []
    assert not out.exists()


def test_what_is_declared_to_work_row_by_row_is_not_examined(database):
    query = DuckDBQuery(database, "SELECT t.x, u.id FROM t JOIN u USING (id)")
    private = gm.release(query, reading=gm.ReadOptions(row_by_row=True), **BUDGET)
    assert private.certificate.conditions == (ROW_BY_ROW,)
    assert "affects at most one row" in str(private.certificate)
    persons = gm.release(query, reading=gm.ReadOptions(row_by_row=True), privacy_unit=gm.PrivacyUnit("id", 1), **BUDGET)
    assert ROW_BY_ROW in persons.certificate.conditions
    with pytest.raises(ArgumentError, match="row_by_row has no effect"):
        gm.release({"x": np.zeros(9)}, reading=gm.ReadOptions(row_by_row=True), **BUDGET)
    with pytest.raises(ArgumentError, match="row_by_row has no effect"):
        gm.release(Moments.of({"x": np.zeros(9)}, SCHEMA), reading=gm.ReadOptions(row_by_row=True), **BUDGET)


def test_certificates_of_lazy_tables_state_the_condition(tmp_path):
    table = pa.table({"x": np.linspace(0, 1, 500)})
    lazy = pl.from_arrow(table).lazy()
    streams = (lazy, pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), iter([table]), [table, lazy])
    dask = pytest.importorskip("dask.dataframe")
    streams += (dask.from_pandas(table.to_pandas(), npartitions=2),)
    for data in streams:
        assert gm.release(data, **BUDGET).certificate.conditions == (ROW_BY_ROW,)
    for data in (table, pl.from_arrow(table), [table], {"x": table["x"]}):
        assert gm.release(data, **BUDGET).certificate.conditions == ()
    found = gm.propose_bounds(lazy, {"x": "number"}, epsilon=1.0, delta=1e-6)
    assert found.certificate.conditions == (ROW_BY_ROW,)
    (Moments.of(lazy, SCHEMA) + Moments.of(table, SCHEMA)).save(tmp_path / "a.moments")
    sums = Moments.load(tmp_path / "a.moments")
    assert sums.is_computed
    assert not Moments.of(table, SCHEMA).is_computed
    assert gm.release(sums, schema=SCHEMA, epsilon=1.0, delta=1e-6).certificate.conditions == (ROW_BY_ROW,)


def test_the_command_refuses_a_query_and_has_an_option(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(json.dumps({"columns": SCHEMA}))
    Path("open.json").write_text(json.dumps({"columns": {"x": "number"}}))
    mixing = ("h.duckdb", "--query", "SELECT x FROM t ORDER BY id LIMIT 1000")
    budget = ("-e", "1", "-d", "1e-6")
    for command in (
        ["release", *mixing, "-s", "s.json", *budget, "-o", "r.parquet"],
        ["moments", *mixing, "-s", "s.json", "-o", "a.moments"],
        ["bounds", *mixing, "-s", "open.json", *budget, "-o", "found.json"],
    ):
        failed = CliRunner().invoke(main, command)
        assert failed.exit_code == 2
        assert "contains LIMIT" in failed.stderr
        assert "with row_by_row=True that" in failed.stderr
        done = CliRunner().invoke(main, [*command, "--row-by-row"])
        assert done.exit_code == 0, done.stderr
    assert gm.load("r.parquet").certificate.conditions == (ROW_BY_ROW,)
    stored = CliRunner().invoke(main, ["release", "a.moments", *budget, "-o", "b.parquet", "--row-by-row"])
    assert stored.exit_code == 2
    assert "row_by_row has no effect" in stored.stderr


def test_a_file_listed_twice_is_refused(tmp_path, monkeypatch):
    """DuckDB reads it twice, and every row would be counted twice."""
    monkeypatch.chdir(tmp_path)
    connection = duckdb.connect()
    for name in ("a's", "b"):
        connection.sql("SELECT range / 100 AS x FROM range(100)").write_parquet(f"{name}.parquet")
    twice = [
        connection.read_parquet(["b.parquet", "b.parquet"]),
        connection.read_parquet(["a's.parquet", str(tmp_path / "a's.parquet")]),
        connection.sql("SELECT x FROM read_parquet(['*.parquet', 'b.parquet'])"),
    ]
    for relation in twice:
        assert mixing_operator(relation) == "a file that is listed twice"
        with pytest.raises(gm.ArgumentError, match="a file that is listed twice"):
            gm.release(relation, {"x": [0, 1]}, epsilon=1.0, delta=1e-6)
    assert mixing_operator(connection.read_parquet(["a's.parquet", "b.parquet"])) is None
    assert mixing_operator(connection.sql("FROM '*.parquet'")) is None
