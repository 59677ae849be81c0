"""The budget from a shell: proposals and releases through one ledger, and a night after the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from gaussmix import Ledger, Schema, _files, load
from gaussmix.cli import main


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of patients, its schema, and the folder as the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 20_000
    age = rng.uniform(18, 90, n)
    table = {"age": age, "sex": rng.choice(["f", "m"], n), "cost": 5 + 0.2 * age + rng.normal(0, 2, n)}
    pq.write_table(pa.table(table), "patients.parquet")
    (tmp_path / "patients.json").write_text(
        json.dumps({"age": [0, 110], "sex": ["f", "m"], "cost": [0, 50]}), encoding="utf-8"
    )
    return tmp_path


def test_a_template_becomes_a_schema_without_anybody_looking(folder):
    run("schema", "patients.parquet", "-o", "open.json")
    run("ledger", "create", "p.ledger", "-e", 1, "-d", "1e-6", "--releases", 4)
    result = run(
        "bounds", "patients.parquet", "-s", "open.json", "--ledger", "p.ledger", "--share", "0.1", "-o", "s.json"
    )
    assert "(1, 1e-06)-differentially private: noisy counts by column, made by propose_bounds" in result.stdout
    assert "; budget for 9 more releases of this size remains" in result.stderr
    schema = Schema.of("s.json")
    assert schema.columns["sex"].levels == ("f", "m")
    assert schema.columns["age"].lower <= 20
    assert schema.columns["age"].upper >= 85
    result = run(
        "release", "patients.parquet", "-s", "s.json", "--ledger", "p.ledger", "--share", "9/10", "-o", "r.parquet"
    )
    assert "budget for no more releases of this size remains" in result.stderr
    assert load("r.parquet").certificate.entry == 2
    out = run("bounds", "patients.parquet", "-s", "open.json", "--ledger", "p.ledger", "-o", "t.json", code=4)
    assert "exceeds the remaining budget" in out.stderr
    assert not (folder / "t.json").exists()


def test_propose_without_a_ledger_and_as_json(folder):
    (folder / "open.toml").write_text('[columns]\nage = "number"\nsex = "category"\n', encoding="utf-8")
    found = json.loads(
        run("bounds", "patients.parquet", "-s", "open.toml", "-e", 1, "-d", "1e-6", "-o", "s.json", "--json").stdout
    )
    assert found["left_out"] == []
    assert found["certificate"]["account"]["mechanism"] == "noisy counts by column"
    assert list(Schema.of("s.json").columns) == ["age", "sex"]
    for words, options in [
        ("exists already", ()),
        ("share requires a ledger", ("--share", "0.1", "--force")),
        ("tail must lie in", ("--tail", 2, "--force")),
        ("most_levels must be", ("--most-levels", 0, "--force")),
        ("note requires a ledger", ("--note", "x", "--force")),
    ]:
        arguments = ("bounds", "patients.parquet", "-s", "open.toml", "-e", 1, "-d", "1e-6", "-o", "s.json", *options)
        assert words in run(*arguments, code=2).stderr


def test_a_data_engineer_releases_every_night_until_the_budget_is_gone(folder):
    """Create, release with a share, show, verify; exit code 4 when nothing is left."""
    run("ledger", "create", "nightly.ledger", "--epsilon", 1, "--delta", "1e-6", "--releases", 3)
    heads = []
    for night, left in enumerate(["2 more releases", "1 more release", "no more releases"], 1):
        out = f"night-{night}.parquet"
        result = run(
            "release", "patients.parquet", "-s", "patients.json", "--ledger", "nightly.ledger", "--share", "1/3",
            "--note", f"night {night}", "--passes", 1, "-o", out, "--json",
        )  # fmt: skip
        certificate = json.loads(result.stdout)
        assert result.stderr.rstrip().endswith(f"budget for {left} of this size remains")
        assert certificate["entry"] == night
        assert certificate["ledger"] == Ledger.open("nightly.ledger").fingerprint
        run("verify", out)
        run("ledger", "verify", "nightly.ledger", *(("--head", heads[-1]) if heads else ()))
        heads.append(json.loads(run("ledger", "show", "nightly.ledger", "--json").stdout)["head"])
    refused = run(
        "release", "patients.parquet", "-s", "patients.json", "--ledger", "nightly.ledger", "--passes", 1,
        "-o", "no.parquet", code=4,
    )  # fmt: skip
    assert "exceeds the remaining budget" in refused.stderr
    assert not (folder / "no.parquet").exists()
    shown = run("ledger", "show", "nightly.ledger").stdout
    assert shown.count("file present") == 3
    assert "0 more releases of the planned size" in shown
    run("ledger", "export", "nightly.ledger", "-o", "record.json")
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert [entry["note"] for entry in record["entries"]] == ["night 1", "night 2", "night 3"]


def test_a_certificate_without_a_ledger_names_none(folder):
    run(
        "release",
        "patients.parquet",
        "-s",
        "patients.json",
        "-e",
        1,
        "-d",
        "1e-6",
        "--passes",
        1,
        "-o",
        "alone.parquet",
    )
    alone = load("alone.parquet").certificate
    assert (alone.ledger, alone.entry) == ("", 0)
    assert (alone.to_dict()["ledger"], alone.to_dict()["entry"]) == ("", 0)
    assert "ledger:" not in str(alone)


@pytest.mark.parametrize("command", ["release", "bounds"])
def test_the_file_that_was_written_is_named(folder, monkeypatch, command):
    """Another process creates the output after it was reserved."""
    own = _files._rename_new

    def racing(source, target):
        if target.name in ("r.parquet", "s.json"):
            target.write_bytes(b"theirs")
        own(source, target)

    monkeypatch.setattr(_files, "_rename_new", racing)
    (folder / "open.json").write_text('{"age": "number"}', encoding="utf-8")
    schema, out = {"release": ("patients.json", "r.parquet"), "bounds": ("open.json", "s.json")}[command]
    shown = run(command, "patients.parquet", "-s", schema, "-e", 1, "-d", "1e-6", "-o", out).stderr
    (named,) = re.findall(r"wrote (\S+)", shown)
    assert Path(named).name.startswith("gaussmix-")
    assert Path(named).stat().st_size > 100
    assert Path(out).read_bytes() == b"theirs"
