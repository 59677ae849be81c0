"""Tables from a release on the command line."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from example_tables import SCHEMA, patients
from gaussmix import load, release
from gaussmix.cli import main


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    out = tmp_path_factory.mktemp("release") / "r.parquet"
    release(patients(4000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, out=out)
    return str(out)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def printed(*arguments: str) -> str:
    """Standard output alone."""
    return CliRunner().invoke(main, arguments).stdout


def test_tables_are_those_of_the_library(file):
    private = load(file)
    assert str(private.describe()) in run("describe", file)
    assert json.loads(run("describe", file, "--columns", "age", "--json")) == private.describe(["age"]).as_plain()
    assert printed("describe", file, "--alpha", "0.1", "--csv") == private.describe(alpha=0.1).as_csv()
    assert str(private.corr()) in run("corr", file)
    rows = json.loads(run("corr", file, "--columns", "age", "--columns", "cost", "--given", "sex", "--json"))["rows"]
    assert rows == private.corr(["age", "cost"], given=["sex"]).pairs().as_plain()["rows"]
    assert str(private.crosstab("sex", "region")) in run("crosstab", file, "sex", "region")
    cells = list(csv.DictReader(io.StringIO(printed("crosstab", file, "sex", "region", "--csv"))))
    estimates = private.crosstab("sex", "region").estimates
    assert [float(cell["estimate"]) for cell in cells] == estimates.ravel().tolist()


def test_synthetic_rows_are_written_and_marked(file, tmp_path):
    out = tmp_path / "rows.parquet"
    assert "second moments only" in run("synthetic", file, "50", "-o", str(out), "--seed", "1")
    assert b"gaussmix.synthetic" in pq.read_schema(out).metadata
    assert "--force" in run("synthetic", file, "50", "-o", str(out), code=2)
    run("synthetic", file, "5", "-o", str(tmp_path / "rows.csv"))
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 6
    assert ".csv or .parquet" in run("synthetic", file, "5", "-o", str(tmp_path / "rows.txt"), code=2)


def test_an_export_has_the_matrices_and_the_units(file, tmp_path):
    out, private = tmp_path / "r.csv", load(file)
    run("export", file, str(out))
    rows = list(csv.reader(io.StringIO(out.read_text())))
    m = private.schema.n_columns
    assert rows[0] == ["block", *private.schema.names]
    assert [row[0] for row in rows[1:]] == ["G"] * m + ["N"] * m + ["units"] * 2
    assert [float(x) for x in rows[1][1:]] == private.second_moment[0].tolist()
    assert [float(x) for x in rows[-1][1:]] == private.schema.units.scales.tolist()


def test_what_makes_no_sense_is_refused(file):
    assert "mutually exclusive" in run("describe", file, "--json", "--csv", code=2)
    assert "no levels to count" in run("crosstab", file, "sex", "age", code=2)
