"""What commands read: Arrow files, DuckDB databases by SQL, standard input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from gaussmix.cli import main
from gaussmix.data.moments import Moments
from gaussmix.errors import DataError

SCHEMA = {"x": [0, 1], "g": ["a", "b"]}
RNG = np.random.default_rng(0)
TABLE = pa.table({"other": RNG.random(500), "g": RNG.choice(["a", "b"], 500), "x": RNG.random(500)})


def run(*arguments, code=0, input=None):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return tmp_path


def gram(data):
    return Moments.of(data, SCHEMA).gram()


@pytest.mark.parametrize("kind", ["file", "stream", "dictionary", "feather"])
def test_arrow_files_give_the_same_bits(folder, kind):
    table = TABLE if kind != "dictionary" else TABLE.set_column(1, "g", TABLE["g"].dictionary_encode())
    path = folder / ("t.arrows" if kind == "stream" else "t.feather" if kind == "feather" else "t.arrow")
    if kind == "feather":
        pa.feather.write_feather(table, path)
    else:
        with (pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file)(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    assert (gram(path) == gram(TABLE)).all()
    assert list(json.loads(run("schema", path).stdout)["columns"]) == ["other", "g", "x"]


def test_a_damaged_arrow_file_is_said_to_be_one(folder):
    with pa.ipc.new_file("t.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE)
    whole = Path("t.arrow").read_bytes()
    for content in (whole[: len(whole) // 2], b"ARROW1" + whole[100:], b"no table"):
        Path("t.arrow").write_bytes(content)
        with pytest.raises(DataError, match="cannot be read"):
            gram("t.arrow")
    with pa.ipc.new_file("u.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE)
    with pytest.raises(DataError, match="Column 'z' is not in"):
        Moments.of("u.arrow", {"z": [0, 1]})


def test_a_query_on_a_database(folder):
    with duckdb.connect("h.duckdb") as connection:
        connection.register("t", TABLE)
        connection.execute("CREATE TABLE people AS SELECT * FROM t")
    before = Path("h.duckdb").read_bytes()
    budget = ("-s", "s.json", "-e", 1, "-d", "1e-6", "-o", "r.parquet", "--force")
    run("release", "h.duckdb", "--query", "SELECT * FROM people WHERE x > 0.1", *budget)
    assert list(json.loads(run("schema", "h.duckdb", "--query", "FROM people").stdout)["columns"]) == [
        "other",
        "g",
        "x",
    ]
    run("check", "h.duckdb", "--query", "FROM people", "-s", "s.json", "--expected-rows", 500)
    run("moments", "h.duckdb", "--query", "FROM people", "-s", "s.json", "-o", "p.moments")
    assert (Moments.load("p.moments").gram() == gram(TABLE)).all()
    assert "Give --query to select rows" in run("release", "h.duckdb", *budget, code=2).stderr
    assert (
        "exactly one source" in run("release", "h.duckdb", "b.duckdb", "--query", "FROM people", *budget, code=2).stderr
    )
    assert "is not valid" in run("release", "h.duckdb", "--query", "FROM nobody", *budget, code=3).stderr
    run("release", "h.duckdb", "--query", "DROP TABLE people", *budget, code=3)
    assert (
        "no CSV file is read"
        in run("release", "h.duckdb", "--query", "FROM people", "--na-value", "-9", *budget, code=2).stderr
    )
    assert Path("h.duckdb").read_bytes() == before  # it was opened read-only


def as_csv():
    buffer = io.BytesIO()
    pa.csv.write_csv(TABLE, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_standard_input_is_read_as_often_as_there_are_passes(folder, kind, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    if kind == "csv":
        content, options = as_csv(), ()
    else:
        buffer = io.BytesIO()
        if kind == "parquet":
            pq.write_table(TABLE, buffer)
        else:
            with pa.ipc.new_stream(buffer, TABLE.schema) as writer:
                writer.write_table(TABLE)
        content, options = buffer.getvalue(), ("--format", kind)
    run("moments", "-", *options, "-s", "s.json", "-o", "m.moments", input=content)
    assert (Moments.load("m.moments").gram() == gram(TABLE)).all()
    result = run(
        "release", "-", *options, "-s", "s.json", "-e", 1, "-d", "1e-6", "-o", "r.parquet", "--json", input=content
    )
    assert len(json.loads(result.stdout)["account"]["noise_mu"]) == 10  # four passes and marginals
    spooled = [path for path in folder.iterdir() if path.name.startswith("gaussmix-")]
    assert spooled == []  # nothing of it stays


def test_standard_input_is_asked_for_as_it_is(folder):
    out = ("-s", "s.json", "-e", 1, "-d", "1e-6", "-o", "r.parquet")
    assert "is empty" in run("release", "-", *out, input=b"", code=3).stderr
    assert 'Give "-" once' in run("release", "-", "-", *out, input=b"", code=2).stderr
    assert "--format applies to standard input" in run("release", "t.csv", "--format", "csv", *out, code=2).stderr
    assert "--query requires exactly one source" in run("release", "-", "--query", "FROM x", *out, code=2).stderr


def test_check_counts_single_rows(folder):
    x = np.linspace(0, 1, 30_000)
    x[7] = np.nan
    pq.write_table(pa.table({"x": x, "g": np.repeat(["a", "b", "c"], [14_000, 13_000, 3_000])}), "t.parquet")
    (folder / "s.json").write_text(json.dumps({"x": {"lower": 0, "upper": 1, "missing": "drop-row"}, "g": ["a", "b"]}))
    said = run("check", "t.parquet", "-s", "s.json").stdout
    assert "30,000 rows, 1 (<0.01 %) dropped" in said
    assert "3,000 (10.00 %)" in said
    pq.write_table(TABLE, "t.parquet")
    (folder / "s.json").write_text(json.dumps(SCHEMA))
    assert "500 rows, none dropped" in run("check", "t.parquet", "-s", "s.json").stdout
