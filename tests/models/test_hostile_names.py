"""Names of columns, levels and files that spreadsheets and terminals would act on."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.report.page import render

FORMULA, LEVELS = '=HYPERLINK("x")', ["@sum", "-2+3", "-3", "\tcmd", "+1", "ok"]


@pytest.fixture(scope="module")
def formulas(tmp_path_factory):
    """A release of columns and levels that look like formulas."""
    rng = np.random.default_rng(0)
    table = {FORMULA: rng.uniform(-1, 1, 3000), "-y": rng.uniform(-9, -1, 3000)}
    table |= {"g": rng.choice(LEVELS, 3000), "h": rng.choice(["=1", "b"], 3000)}
    schema = {FORMULA: [-1, 1], "-y": [-9, -1], "g": {"levels": LEVELS}, "h": {"levels": ["=1", "b"]}}
    file = tmp_path_factory.mktemp("formulas") / "r.parquet"
    gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, out=file)
    return file


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_no_cell_of_a_csv_file_is_a_formula(formulas, tmp_path):
    release = gm.load(formulas)
    run("export", formulas, tmp_path / "e.csv")
    run("export", formulas, tmp_path / "r.csv", "--to", "r")
    run("synthetic", formulas, 50, "-o", tmp_path / "s.csv")
    model = release.ols(FORMULA)
    texts = [run(*command, "--csv") for command in (["describe", formulas], ["corr", formulas])]
    texts += [run("crosstab", formulas, "g", "h", "--csv"), model.as_csv(), release.means("-y", "g").as_csv()]
    texts += [(tmp_path / name).read_text() for name in ("e.csv", "r.csv", "s.csv")] + [release.mnlogit("g").as_csv()]
    for text in texts:
        rows = list(csv.reader(io.StringIO(text)))
        quoted = [cell for row in rows for cell in row if cell.startswith("'")]
        assert quoted, text
        for cell in (cell for row in rows for cell in row):
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
                float(cell)  # a number stays a number


def test_numbers_of_csv_files_are_the_same_numbers(formulas, tmp_path):
    release = gm.load(formulas)
    run("export", formulas, tmp_path / "r.csv", "--to", "r")
    rows = list(csv.reader(io.StringIO((tmp_path / "r.csv").read_text())))
    matrix = [[float(cell) for cell in row[1:]] for row in rows if row[0] == "M"]
    assert matrix == release.statistic.noisy.moment.tolist()
    found = release.describe()
    cells = [row["estimate"] for row in csv.DictReader(io.StringIO(found.as_csv()))]
    assert [float(cell) for cell in cells] == list(found.columns["estimate"])
    assert min(map(float, cells)) < 0


# ---------------------------------------------------------------------------------------------------------------
# Control characters
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
NUMBER, CATEGORY, BOOLEAN, WHO = "a\x1b[31m", "g\u202eb\n", "s\x9b2J", "w\x07\x7f"
RED, GREEN = "r\u2066d", "g\x1b]0;x\x07\u2028"
HOSTILE = {NUMBER: [0, 1], CATEGORY: {"levels": [RED, GREEN]}, BOOLEAN: "boolean"}
FILE, NOTE = "t\x1b[2J\u202e.csv", "n\x1b[2J\x85"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A table, a schema, a ledger and a release, all with names of control characters, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    levels, flags = rng.choice([RED, GREEN], 2000), rng.random(2000) < 0.5
    frame = pd.DataFrame({NUMBER: rng.random(2000), CATEGORY: levels, BOOLEAN: flags, WHO: np.arange(2000)})
    frame.to_parquet("t.parquet")
    Path("s.json").write_text(json.dumps({"columns": HOSTILE}))
    Path(FILE).write_text("a\n1\n")
    run("ledger", "create", "l.ledger", "-e", 3, "-d", 1e-6)
    run("release", "t.parquet", "-s", "s.json", "--ledger", "l.ledger", "--note", NOTE, "-o", "r\x1b[2J.parquet")
    return gm.load("r\x1b[2J.parquet")


def assert_plain(*texts):
    for text in texts:
        assert text
        assert not CONTROL.search(text), text


def test_text_of_results_has_no_control_characters(hostile):
    regression, classes = hostile.ols(NUMBER), hostile.logit(BOOLEAN)
    tables = [hostile.describe(), hostile.corr([NUMBER, BOOLEAN], given=[CATEGORY]), hostile.means(NUMBER, CATEGORY)]
    tables += [hostile.crosstab(CATEGORY, BOOLEAN), regression.summary(), classes.odds_ratios(), hostile.certificate]
    for found in [*tables, hostile, regression, classes]:
        assert_plain(str(found), repr(found))
        if hasattr(found, "as_html"):
            assert_plain(found.as_html())
        if hasattr(found, "as_latex"):
            assert_plain(found.as_latex())
    assert r"a\x1b[31m" in str(regression.summary())
    person = {"privacy_unit": gm.PrivacyUnit(WHO, 1), "epsilon": 3.0, "delta": 1e-6, "passes": 1}
    certificate = str(gm.release("t.parquet", schema=HOSTILE, **person).certificate)
    assert_plain(certificate)
    assert r"w\x07\x7f" in certificate
    assert_plain(render(hostile, title="t\x1b\u202e"))
    with pytest.raises(ValueError, match="not a valid hypothesis") as failed:
        regression.summary().t_test("b = 0")
    assert_plain(str(failed.value))
    with pytest.raises(ValueError, match="is not in") as failed:
        gm.release(FILE, schema={NUMBER: [0, 1]}, epsilon=1.0, delta=1e-6)
    assert_plain(str(failed.value))
    assert "t\\x1b[2J" in str(failed.value)


def test_commands_print_no_control_characters(hostile):
    file = "r\x1b[2J.parquet"
    for command, *options in (
        (["schema", "t.parquet"],),
        (["check", "t.parquet", "-s", "s.json"], "--json"),
        (["describe", file], "--json", "--csv"),
        (["corr", file], "--json", "--csv"),
        (["crosstab", file, CATEGORY, BOOLEAN], "--json", "--csv"),
        (["ols", file, NUMBER], "--json"),
        (["logit", file, BOOLEAN, "--odds"], "--json"),
        (["verify", file], "--json"),
        (["ledger", "show", "l.ledger"], "--json"),
        (["ledger", "export", "l.ledger"],),
        (["plan", "s.json", "-n", 500, "-e", 1, "-d", 1e-6], "--json"),
        (["report", file, "-o", "p\x1b.html", "--force"], "--json"),
    ):
        for option in ([], *([option] for option in options)):
            result = CliRunner().invoke(main, [str(item) for item in (*command, *option)])
            assert result.exit_code == 0, result.output
            assert_plain(result.output)
    found = json.loads(run("describe", file, "--json"))
    assert NUMBER in {row["term"] for row in found["rows"]}  # JSON's own escapes: names as they are
    for command in (["release", FILE, "-s", "s.json", "-e", "1", "-d", "1e-6", "-o", "x.parquet"], ["verify", FILE]):
        failed = CliRunner().invoke(main, command)
        assert failed.exit_code in (3, 5)
        assert_plain(failed.output)
