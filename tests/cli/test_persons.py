"""``--privacy-unit``: what the commands say of a release that protects persons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.contributions import PrivacyUnit

UNIT = ["--privacy-unit", "who", "--max-contributions", "12"]
WORDS = "all rows with the same who (contributions scaled to at most 12 rows)"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.arange(400) // 4, "a": rng.uniform(0, 1, 400), "y": rng.uniform(0, 1, 400)})
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps({"a": [0, 1], "y": [0, 1]}))
    return tmp_path


def run(folder, *words):
    found = CliRunner().invoke(main, [str(word).replace("@", f"{folder}/") for word in words])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_release_of_persons(folder):
    budget = ["-s", "@schema.json", "-e", "1", "-d", "1e-6"]
    for name, extra in (("any", []), ("sorted", ["--sorted-by-unit"])):
        assert WORDS in run(folder, "release", "@table.csv", *budget, *UNIT, *extra, "-o", f"@{name}.parquet")
        assert gm.load(folder / f"{name}.parquet").certificate.privacy_unit == PrivacyUnit("who", 12)
    assert "one row" in run(folder, "release", "@table.csv", *budget, "-o", "@rows.parquet")


def test_a_check_finds_what_a_release_would_refuse(folder):
    question = ["check", "@table.csv", "-s", "@schema.json"]
    assert run(folder, *question, *UNIT) == run(folder, *question)
    for column in ("person", "a"):
        words = [
            word.replace("@", f"{folder}/")
            for word in (*question, "--privacy-unit", column, "--max-contributions", "12")
        ]
        found = CliRunner().invoke(main, words)
        assert found.exit_code == (3 if column == "person" else 2)
        assert f"Error: Column {column!r} is " in found.output


def test_moments_and_ledgers_of_persons(folder):
    run(folder, "moments", "@table.csv", "-s", "@schema.json", *UNIT, "-o", "@site.moments")
    made = run(folder, "ledger", "create", "@persons.ledger", "-e", "1", "-d", "1e-6", "--privacy-unit", "who")
    assert "all rows with the same who" in made
    assert WORDS in run(folder, "release", "@site.moments", "--ledger", "@persons.ledger", "-o", "@joint.parquet")


def test_a_plan_for_persons(folder):
    question = ["plan", "@schema.json", "-e", "1", "-d", "1e-6", "--json"]
    rows, persons = (json.loads(run(folder, *question, *extra)) for extra in ([], UNIT))
    assert rows["privacy_unit"] == "one row"
    assert persons["privacy_unit"] == WORDS
    assert persons["rows_needed"] == pytest.approx(12 * rows["rows_needed"], rel=0.25)


def test_persons_of_formulas_weights_queries_and_standard_input(folder):
    """How a table is read has nothing to do with whose rows they are."""
    (folder / "weighted.json").write_text(json.dumps({"a": [0, 1], "y": [0, 1], "who": [0, 100]}))
    budget = ["-e", "1", "-d", "1e-6", *UNIT]
    made = ["--formula", "y ~ poly(a, 2)", "--weight", "y2"]
    frame = pd.read_csv(folder / "table.csv").assign(y2=lambda own: 3 * own["y"])
    (folder / "terms.json").write_text(json.dumps({"a": [0, 1], "y": [0, 1], "y2": [0, 3]}))
    words = ["release", "-", "-s", f"{folder}/terms.json", *made, *budget, "-o", f"{folder}/terms.parquet"]
    found = CliRunner().invoke(main, words, input=frame.to_csv(index=False))
    assert found.exit_code == 0, found.output
    private = gm.load(folder / "terms.parquet")
    assert private.certificate.privacy_unit == PrivacyUnit("who", 12)
    assert (private.schema.weight, list(private.schema.terms)) == ("y2", ["a^2"])

    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(folder / "site.duckdb")) as connection:
        connection.register("frame", frame)
        connection.execute("CREATE TABLE visits AS SELECT * FROM frame")
    asked = ["release", "@site.duckdb", "--query", "FROM visits WHERE a < 0.9"]
    assert WORDS in run(folder, *asked, "-s", "@schema.json", *budget, "-o", "@queried.parquet")

    words = ["release", f"{folder}/table.csv", "-s", f"{folder}/weighted.json", "--weight", "who", *budget]
    refused = CliRunner().invoke(main, [*words, "-o", f"{folder}/refused.parquet"])
    assert refused.exit_code != 0
    assert not (folder / "refused.parquet").exists()


def test_bounds_for_units(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"who": np.arange(6000) // 3, "x": np.linspace(0, 50, 6000)}), "visits.parquet")
    Path("open.json").write_text('{"x": "number"}', encoding="utf-8")
    arguments = ["bounds", "visits.parquet", "-s", "open.json", "-e", "1", "-d", "1e-6", "--privacy-unit", "who"]
    result = CliRunner().invoke(main, [*arguments, "-o", "s.json"])
    assert result.exit_code == 0, result.output
    assert "all rows with the same who (one row sampled)" in result.output
    assert gm.Schema.of("s.json").columns["x"].upper < 128
