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
            "--sorted-by-unit requires a table and --privacy-unit",
        ),
        (f"release a.csv -s s.json --table sex --passes 1 {RELEASE}", "--table must name two columns"),
        (f"release a.moments --passes 2 {RELEASE}", "only one pass. Set passes=1"),
        (f"release a.moments --no-quoting {RELEASE}", "no CSV file is read"),
        (f"release a.moments --delimiter ; {RELEASE}", "no CSV file is read"),
        (f"release a.csv -s s.json --max-contributions 3 {RELEASE}", "require --privacy-unit"),
        (f"release a.csv -s s.json --privacy-unit who {RELEASE}", "--privacy-unit requires --max-contributions"),
        ("describe r.parquet --csv --latex", "mutually exclusive"),
        ("report r.parquet -o new.html --response age --response cost", "--response was given more than once"),
        ("plan -p 3 -e 1 -e 2 -d 1e-6", "--epsilon was given more than once. Give it once. Try 'main plan --help'."),
        ("schema a.csv --quoting --no-quoting", "--quoting was given more than once"),
        ("ledger create new.ledger -e 1 -d 1e-6 -d 1e-7", "--delta was given more than once"),
        (f"release a.csv -s s.json --share 0.5 {RELEASE}", "share requires a ledger"),
        (f"release a.csv -s s.json --note x {RELEASE}", "note requires a ledger"),
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
        ("moments", {"reading": gm.ReadOptions(sorted_by_unit=True)}, "sorted_by_unit requires"),
        ("moments", {"reading": gm.ReadOptions(csv=gm.CsvOptions(quoting=False))}, "csv has no effect on moments"),
        ("moments", {"reading": gm.ReadOptions(persist=True)}, "persist has no effect on moments"),
        ("table", {"reading": gm.ReadOptions(persist=True)}, "persist requires a Spark data frame, got generator"),
        ("moments", {"schema": {"age": [0, 120]}}, "Omit schema, or rebuild the moments"),
        ("table", {"reading": gm.ReadOptions(sorted_by_unit=True)}, "sorted_by_unit requires"),
        ("table", {"force": True}, "force requires out"),
    ],
)
def test_the_library_refuses_what_would_do_nothing(folder, data, options, said):
    def unread():
        raise AssertionError("the rows were read")
        yield

    found = {"table": unread(), "batches": unread(), "moments": gm.Moments.load(folder / "a.moments")}[data]
    declared = {} if data == "moments" else {"schema": SCHEMA}
    with pytest.raises(gm.ArgumentError, match=said):
        gm.release(found, **{"budget": gm.Budget(ledger=folder / "a.ledger"), **declared, **options})
    assert not gm.Ledger.open(folder / "a.ledger").entries()


def test_sums_and_proposals_refuse_it_too():
    with pytest.raises(gm.ArgumentError, match="sorted_by_unit requires"):
        gm.Moments.of(iter(()), SCHEMA, reading=gm.ReadOptions(sorted_by_unit=True))
    with pytest.raises(gm.ArgumentError, match="force requires out"):
        gm.propose_bounds(iter(()), {"age": "number"}, **BUDGET, force=True)


def test_a_budget_refuses_what_contradicts_itself(folder):
    ledger = folder / "a.ledger"
    for given, said in (
        ({}, "A budget is required"),
        ({"epsilon": 1.0}, "delta is missing"),
        ({**BUDGET, "note": "x"}, "note requires a ledger"),
        ({**BUDGET, "share": 0.5}, "share requires a ledger"),
        ({**BUDGET, "epsilon": 0.0}, "epsilon must be"),
        ({**BUDGET, "delta": 1.0}, "delta must lie"),
        ({**BUDGET, "neighbours": "swap"}, "neighbours must be one of"),
        ({**BUDGET, "ledger": ledger}, "epsilon and delta cannot be combined with a ledger"),
        ({"ledger": ledger, "neighbours": "replace-one"}, "neighbours must be 'add-remove', as in the ledger"),
    ):
        with pytest.raises(gm.ArgumentError, match=said):
            gm.Budget(**given)
    with pytest.raises(gm.ArgumentTypeError, match="ledger must be a Ledger or a path"):
        gm.Budget(ledger=3)
    assert gm.Budget(ledger=str(ledger)).ledger.path == gm.Ledger.open(ledger).path
