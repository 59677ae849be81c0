"""Names of columns, levels and files that spreadsheets and terminals would act on."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main

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
    run("synthetic", formulas, 50, "-o", tmp_path / "s.csv")
    model = release.regress(FORMULA)
    texts = [run(*command, "--csv") for command in (["describe", formulas], ["corr", formulas])]
    texts += [run("crosstab", formulas, "g", "h", "--csv"), model.as_csv(), release.means("-y", "g").as_csv()]
    texts += [(tmp_path / "e.csv").read_text(), (tmp_path / "s.csv").read_text(), release.classify("g").as_csv()]
    for text in texts:
        rows = list(csv.reader(io.StringIO(text)))
        quoted = [cell for row in rows for cell in row if cell.startswith("'")]
        assert quoted, text
        for cell in (cell for row in rows for cell in row):
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
                float(cell)  # a number stays a number


def test_numbers_of_csv_files_are_the_same_numbers(formulas, tmp_path):
    release = gm.load(formulas)
    run("export", formulas, tmp_path / "e.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "e.csv").read_text())))
    m = release.schema.n_columns
    assert [[float(cell) for cell in row[1:]] for row in rows[1 : m + 1]] == release.second_moment.tolist()
    found = release.describe()
    cells = [row["estimate"] for row in csv.DictReader(io.StringIO(found.as_csv()))]
    assert [float(cell) for cell in cells] == list(found.columns["estimate"])
    assert min(map(float, cells)) < 0
