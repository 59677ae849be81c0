"""What would do nothing is refused with its cure, by the command and by the library, before anything is spent."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RELEASE = "-e 1 -d 1e-6 -o new.parquet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("files")
    patients(300).to_csv(found / "a.csv", index=False)
    (found / "s.json").write_text(json.dumps(SCHEMA))
    gm.Moments.of(patients(300), SCHEMA).save(found / "a.moments")
    gm.release(patients(300), schema=SCHEMA, epsilon=5, delta=1e-6, passes=1, out=found / "r.parquet")
    gm.Ledger(found / "a.ledger", **BUDGET)
    return found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("moments a.csv -s s.json --sorted-by-unit -o new.moments", "sorted_by_unit requires a privacy unit"),
        (f"release a.csv -s s.json --sorted-by-unit {RELEASE}", "sorted_by_unit requires a table and a privacy unit"),
        (f"release a.moments --sorted-by-unit {RELEASE}", "sorted_by_unit requires a table and a privacy unit"),
        (
            f"release a.moments a.csv -s s.json --sorted-by-unit {RELEASE}",
            "sorted_by_unit requires a table and a privacy unit",
        ),
        ("release a.moments --keep-tails --ledger a.ledger -o new.parquet", "leave keep_tails out, or pass a table"),
        (f"release a.csv -s s.json --keep-tails --passes 1 {RELEASE}", "leave keep_tails out, or ask for more"),
        (f"release a.moments --passes 2 {RELEASE}", "one pass only. Set passes=1"),
        (f"release a.moments --no-quoting {RELEASE}", "no CSV file is read"),
        (f"release a.csv -s s.json --share 0.5 {RELEASE}", "share is a share of a ledger's budget: name the ledger"),
        (f"release a.csv -s s.json --note x {RELEASE}", "--note requires --ledger"),
        ("report r.parquet --label new.svg --response cost", "--response requires --out"),
        ("report r.parquet --label new.svg --alpha 0.05", "--alpha requires --out"),
        ("report r.parquet --registry new.yaml --rows 9", "--rows requires --out"),
        ("report r.parquet --registry new.yaml --title x", "--title requires --out"),
        ("report r.parquet --registry new.yaml --description x", "--description requires --out"),
        ("report r.parquet --registry new.yaml --json", "--json requires --out"),
    ],
)
def test_the_command_refuses_what_would_do_nothing(folder, monkeypatch, line, said):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, line.split())
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not list(folder.glob("new*"))
    assert not gm.Ledger.open(folder / "a.ledger").entries()


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ("moments", {"keep_tails": True}, "leave keep_tails out, or pass a table"),
        ("batches", {"keep_tails": True}, "leave keep_tails out, or pass a table"),
        ("moments", {"sorted_by_unit": True}, "sorted_by_unit requires"),
        ("moments", {"csv": gm.CsvOptions(quoting=False)}, "csv has no effect on moments"),
        ("moments", {"schema": {"age": [0, 120]}}, "leave the schema out"),
        ("table", {"sorted_by_unit": True}, "sorted_by_unit requires"),
        ("table", {"note": "first", "ledger": None, **BUDGET}, "note is kept in a ledger: name the ledger"),
        ("table", {"share": 0.5, "ledger": None, **BUDGET}, "share is a share of a ledger's budget"),
        ("table", {"force": True}, "force replaces a file, but none is written"),
    ],
)
def test_the_library_refuses_what_would_do_nothing(folder, data, options, said):
    def unread():
        raise AssertionError("the rows were read")
        yield

    found = {"table": unread(), "batches": unread(), "moments": gm.Moments.load(folder / "a.moments")}[data]
    declared = {} if data == "moments" else {"schema": SCHEMA}
    with pytest.raises(gm.ArgumentError, match=said):
        gm.release(found, **{"ledger": folder / "a.ledger", **declared, **options})
    assert not gm.Ledger.open(folder / "a.ledger").entries()


def test_sums_and_proposals_refuse_it_too():
    with pytest.raises(gm.ArgumentError, match="sorted_by_unit requires"):
        gm.Moments.of(iter(()), SCHEMA, options=gm.ReadOptions(sorted_by_unit=True))
    for lone, said in (({"note": "x"}, "note is kept"), ({"force": True}, "none is written"), ({"share": 1}, "share")):
        with pytest.raises(gm.ArgumentError, match=said):
            gm.propose(iter(()), {"age": "number"}, **BUDGET, **lone)
