"""gaussmix verify and gaussmix ledger show: what is true, what is left, what has no file."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main
from gaussmix.releases.counts import RowCounts, large_delta
from gaussmix.report.statement import fields_of
from gaussmix.report.verify import entry_state
from release_files import forged


@pytest.fixture(scope="module")
def table():
    return patients(2000)


def save(tmp_path, table, **options):
    path = tmp_path / "r.parquet"
    gm.release(table, schema=SCHEMA, delta=1e-6, passes=1, **options).save(path)
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_true_certificate(tmp_path, table):
    path = save(tmp_path, table, epsilon=1.0)
    result = run("verify", path)
    assert result.exit_code == 0
    assert result.stdout == f"{path} is (1, 1e-06)-differentially private, as certified.\n"
    found = json.loads(run("verify", path, "--json").stdout)
    assert found["computed_delta"] == gm.load(path).certificate.account.spent_delta <= found["delta"]
    assert (found["state"], found["private"], len(found["release"])) == ("true", True, 32)


@pytest.mark.parametrize("passes", [1, 4])
def test_a_delta_above_one_over_the_noisy_number_of_rows_is_pointed_out(tmp_path, table, passes):
    path, options = tmp_path / "r.parquet", {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-3, "passes": passes}
    with pytest.warns(gm.BudgetWarning, match="is larger than 1/n") as warned:
        private = gm.release(table, **options, out=path)
    rows = f"{RowCounts(private.statistic).rows[0]:,.0f}"
    words = f"delta=0.001 is larger than 1/n for the about {rows} rows of this release"
    assert sum(words in str(own.message) for own in warned) == 1
    assert words in run("verify", path).stdout
    assert any(words in field.note for field in fields_of(private, None, valid=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", gm.BudgetWarning)  # the budget is spent: the release must not be lost
        gm.release(table, **options)
        for delta in (1e-4, 1e-6):
            assert large_delta(private.statistic, delta) == ""


def test_privacy_units_are_at_least_rows_over_the_contribution_bound(table):
    unit, visits = gm.PrivacyUnit("id", max_contributions=4), {**table, "id": np.arange(2000) // 4}
    private = gm.release(visits, SCHEMA, epsilon=1.0, delta=1e-6, privacy_unit=unit, random_state=0)
    n = RowCounts(private.statistic).rows[0] / 4
    assert f"at least about {n:,.0f} privacy units" in large_delta(private.statistic, 3e-3)
    assert large_delta(private.statistic, 1e-3) == ""


@pytest.mark.parametrize(
    ("options", "change", "state", "words"),
    [
        ({"epsilon": 1.0, "random_state": 0}, None, "void", "has no privacy guarantee: the noise came from a seed"),
        ({"epsilon": math.inf}, None, "void", "is not private: it contains sums over the rows without noise"),
        ({"epsilon": 1.0}, lambda m: m["certificate"].update(epsilon=0.9), "false", "overstates its privacy guarantee"),
        (
            {"epsilon": 1.0},
            lambda m: m["certificate"]["account"].update(mu=1.0),
            "false",
            "overstates its privacy guarantee",
        ),
        ({"epsilon": 1.0}, lambda m: m.update(format=0), "damaged", "has format 0"),
    ],
)
def test_everything_else_is_exit_code_5(tmp_path, table, options, change, state, words):
    path = save(tmp_path, table, **options)
    if change is not None:
        forged(path, change)
    result = run("verify", path)
    assert result.exit_code == 5
    assert result.stdout.count("\n") == 1
    assert words in result.stdout
    result = run("verify", path, "--json")
    assert result.exit_code == 5
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert (found["state"], found["private"]) == (state, False)


def test_files_that_are_no_releases(tmp_path):
    path = tmp_path / "x"
    path.write_text("age,cost\n1,2\n")
    assert run("verify", path).exit_code == 5
    assert run("verify", tmp_path / "nowhere").exit_code == 2


# ---------------------------------------------------------------------------------------------------------------
# Ledgers
def test_the_entry_without_a_file_is_named(tmp_path, table):
    ledger = gm.Ledger(tmp_path / "rows.ledger", epsilon=1.0, delta=1e-6, releases=5)
    kept, lost, other = (tmp_path / name for name in ("kept.parquet", "lost.parquet", "other.parquet"))
    for path in (kept, lost, other):
        gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger, note=path.stem), passes=1, out=path)
    lost.unlink()  # as if the process had been killed between the record and the file
    other.write_bytes(kept.read_bytes())
    ledger.spend(mu=0.01)
    assert [entry_state(entry) for entry in ledger.entries()] == ["present", "missing", "other", "unnamed"]
    assert gm.load(kept).certificate.release == ledger.entries()[0].release
    result = run("ledger", "show", ledger.path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "entry 2" in lines[2]
    assert f"{lost}: file missing" in lines[2]
    assert f"{kept}: file present" in lines[1]
    assert "file does not contain this release" in lines[3]
    assert lines[5].endswith("1 more release of the planned size")
    assert lines[6] == f"digest: {ledger.head}"
    found = json.loads(run("ledger", "show", ledger.path, "--json").stdout)
    assert [entry["state"] for entry in found["entries"]] == ["present", "missing", "other", "unnamed"]
    assert found["left"]["releases_left"] == 1
    assert found["reserved"]["epsilon"] == 1.0


def test_the_command_names_its_file_in_the_ledger(tmp_path, table):
    ledger = gm.Ledger(tmp_path / "rows.ledger", epsilon=1.0, delta=1e-6)
    table.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    out = tmp_path / "r.parquet"
    arguments = ["--schema", tmp_path / "s.json", "--ledger", ledger.path, "-o", out]
    assert run("release", tmp_path / "t.parquet", *arguments).exit_code == 0
    (entry,) = ledger.entries()
    assert (entry_state(entry), entry.file) == ("present", str(out))
    out.unlink()
    assert "file missing" in run("ledger", "show", ledger.path).stdout


def test_a_damaged_ledger_is_exit_code_5(tmp_path):
    path = tmp_path / "rows.ledger"
    gm.Ledger(path, epsilon=1.0, delta=1e-6)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    result = run("ledger", "show", path)
    assert result.exit_code == 5
    assert "is damaged" in result.stderr
