"""A run of benchmarks is recorded with its machine, and a ratio that has become worse is shown."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import compare, passes, peers, plots, readings, record, run, summaries


def recorded(path: Path, **ratios: float) -> Path:
    record.append(path, "speed", [(case, record.RATIO, value) for case, value in ratios.items()])
    record.append(path, "speed", [(case, "ms", 100 * value) for case, value in ratios.items()])
    return path


def compare_main(monkeypatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    return ended.value.code


def test_a_line_has_machine_commit_and_date(tmp_path):
    (line, _) = csv.DictReader(recorded(tmp_path / "run.csv", fit=2.0).read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", line["date"])
    assert line["commit"]
    assert line["cpu"]
    assert int(line["cores"]) >= 1
    assert (line["benchmark"], line["case"], line["measure"], line["value"]) == ("speed", "fit", "ratio", "2")


def test_only_ratios_that_are_worse_by_more_than_15_per_cent_are_red(tmp_path):
    then = compare.ratios(recorded(tmp_path / "then.csv", a=1.0, b=2.0, c=3.0, gone=1.0))
    now = compare.ratios(recorded(tmp_path / "now.csv", a=1.16, b=2.29, c=1.0, new=9.0))
    found = {comparison.key[1]: comparison for comparison in compare.compared(then, now)}
    assert {name for name, comparison in found.items() if comparison.is_worse} == {"a"}
    assert next(iter(found)) == "a"
    assert (found["gone"].now, found["new"].then) == (None, None)
    styles = [row.style for row in compare.shown(list(found.values())).rows]
    assert styles.count("red") == 1
    assert styles[0] == "red"


def test_the_exit_code_says_whether_something_is_worse(tmp_path, monkeypatch, capsys):
    then, better, worse = (recorded(tmp_path / f"{x}.csv", fit=x) for x in (2.0, 1.9, 2.4))
    assert compare_main(monkeypatch, better, "--reference", then) == 0
    assert compare_main(monkeypatch, worse, "--reference", then) == 1
    assert "1 of 1 ratios are worse by more than 15%" in capsys.readouterr().out
    assert "--accept makes" in str(compare_main(monkeypatch, worse, "--reference", tmp_path / "none.csv"))


def test_the_newest_run_is_compared_and_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "RUNS", tmp_path)
    assert "make bench" in str(compare_main(monkeypatch))
    for name in ("2026-01-02T000000Z", "2026-01-10T000000Z", "2026-01-09T000000Z"):
        recorded(tmp_path / f"{name}.csv", fit=1.0)
    assert compare.newest() == tmp_path / "2026-01-10T000000Z.csv"
    monkeypatch.setattr(sys, "argv", ["compare", "--accept", "--reference", str(tmp_path / "reference")])
    compare.main()
    assert compare.ratios(tmp_path / "reference") == {("speed", "fit", "ratio"): 1.0}


@pytest.mark.slow
def test_benchmarks_of_passes_and_summaries_measure_ratios(tmp_path, monkeypatch):
    out = tmp_path / "run.csv"
    monkeypatch.setattr(passes, "SIZES", ((2_000, 3),))
    monkeypatch.setattr(summaries, "COLUMNS", (4,))
    monkeypatch.setattr(peers, "SIZES", ((2_000, 3),))
    monkeypatch.setattr(readings, "SIZES", ((2_000, 3),))
    monkeypatch.setattr(peers, "by_diffprivlib", lambda X, y: 7.0)
    monkeypatch.setattr(peers, "PYTHON", tmp_path)
    for module in (passes, readings, summaries, peers):
        monkeypatch.setattr(module, "REPEATS", 1)
        monkeypatch.setattr(sys, "argv", ["benchmark", "--csv", str(out)])
        module.main()
    found = compare.ratios(out)
    assert {benchmark for benchmark, *_ in found} == {"passes", "readings", "summaries", "peers"}
    assert len(found) == 4 + 8 + 7 + 5
    assert all(value > 0 for value in found.values())


def test_a_run_has_a_file_of_its_own(tmp_path, monkeypatch):
    out, asked = tmp_path / "run.csv", []
    monkeypatch.setattr(run.subprocess, "run", lambda words, check: asked.append(words[2:]))
    monkeypatch.setattr(sys, "argv", ["run", "--small", "--out", str(out)])
    run.main()
    assert [words[0] for words in asked] == [f"benchmarks.{name}" for name in run.WHOLE]
    assert all(words[-2:] == ["--csv", str(out)] for words in asked)
    out.touch()
    with pytest.raises(SystemExit):  # a run is never added to
        run.main()


def test_every_benchmark_is_a_module():
    files = {path.stem for path in Path(run.__file__).parent.glob("*.py")}
    apart = {"engines", "walk"}  # with commands of their own
    assert set(run.WHOLE) == files - {"__init__", "compare", "peers_diffprivlib", "plots", "record", "run"} - apart
    assert set(run.SMALL) <= set(run.WHOLE)


def test_a_run_is_drawn(tmp_path):
    lines = [(f"{n} × {d}, {passes} passes", 4.0) for n, d in (("1,000", 20), ("200,000", 5)) for passes in (1, 4)]
    run_file = tmp_path / "run.csv"
    record.append(run_file, "passes", [(case, "cpu ms", 2 * value) for case, value in lines])
    record.append(run_file, "passes", [(case, "ratio to AᵀA", value) for case, value in lines])
    record.append(run_file, "tables", [(f"{task}, 1,000 rows", "s", 1.0) for task in ("duckdb", "in passes")])
    record.append(run_file, "peers", [(f"{fit}, 1,000 × 10", "ratio to AᵀA", 3.0) for fit in ("a, b", "c")])
    table = pd.read_csv(run_file)
    rows = plots.measured(table, "passes", "cpu ms", r"(?P<rows>[\d,]+) × (?P<columns>\d+), (?P<passes>\d) passes")
    assert rows["rows"].tolist() == ["1,000", "1,000", "200,000", "200,000"]
    assert rows["value"].tolist() == [8.0] * 4
    plots.draw(table, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
