"""Exports hold the moments of a release, say what they ignore, and contain nothing that a stranger wrote as code."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.cli import main
from gaussmix.models.export import FORMATS, exported, legal_names
from gaussmix.models.rendering import estimated_on

SCRIPTS = {"stata": "//", "sas": "/\\*", "lavaan": "#"}


@pytest.fixture(scope="module")
def private():
    table = patients(20_000)
    table["cost"] += np.random.default_rng(0).pareto(3, len(table))
    return gm.release(table, schema=SCHEMA | {"cost": [0, 1000]}, epsilon=1.0, delta=1e-6, random_state=0)


def read_sas(text: str) -> tuple[list[str], float, np.ndarray, np.ndarray]:
    """Names, n, means and covariances as list input reads them: word by word, over the ends of lines."""
    names = re.search(r"input _TYPE_ \$ _NAME_ \$\n(.*?)\n  ;", text, re.DOTALL)[1].split()
    words = text.split("datalines;\n")[1].split(";")[0].split()
    rows = np.array(words).reshape(-1, len(names) + 2)
    assert rows[:, 0].tolist() == ["MEAN", "N", *["COV"] * len(names)]
    assert rows[:, 1].tolist() == [".", ".", *names]
    values = rows[:, 2:].astype(float)
    return names, values[1, 0], values[0], values[2:]


def read_stata(text: str) -> tuple[list[str], float, np.ndarray, np.ndarray]:
    commands = [line for line in text.replace(" ///\n", " ").splitlines() if not line.startswith("//")]
    assert commands[0] == "clear"
    (names, count, means, matrix) = (
        re.fullmatch(f"ssd {verb} (.*)", line)[1]
        for verb, line in zip(("init", "set observations", "set means", "set covariances"), commands[1:], strict=True)
    )
    lower = [[float(word) for word in row.split()] for row in matrix.split("\\")]
    assert [len(row) for row in lower] == list(range(1, len(names.split()) + 1))
    full = np.zeros((len(lower), len(lower)))
    for i, row in enumerate(lower):
        full[i, : i + 1] = full[: i + 1, i] = row
    return names.split(), float(count), np.array(means.split(), dtype=float), full


def read_csv(text: str) -> tuple[list[str], float, np.ndarray, np.ndarray]:
    rows = list(csv.reader(io.StringIO(text)))
    of = {key: np.array([row[2:] for row in rows if row[0] == key]) for key in ("n", "mean", "covariance")}
    return rows[0][2:], float(of["n"][0, 0]), of["mean"].astype(float)[0], of["covariance"].astype(float)


@pytest.mark.parametrize(("to", "read"), [("sas", read_sas), ("stata", read_stata), ("csv", read_csv)])
def test_a_file_holds_number_of_rows_means_and_covariances(private, to, read):
    moments = private.moments()
    names, n, means, covariance = read(exported(private, to))
    assert names == list(moments.names) if to == "csv" else names == legal_names(moments.names)
    assert n == (moments.n_rows if to == "csv" else round(moments.n_rows))
    assert_allclose(means, moments.means, rtol=1e-12)
    assert_allclose(covariance, moments.covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("to", ["csv", *SCRIPTS])
def test_the_first_lines_say_what_the_file_is(private, to):
    assert private.thresholds
    lines = exported(private, to).splitlines()[to == "csv" :]
    words = [line.strip("/*# ").removeprefix("note,").strip('"') for line in lines[:4]]
    assert words[0].startswith("No privacy guarantee")
    assert "ignore the privacy noise" in words[1]
    assert words[3] == estimated_on(private.statistic.noisy)


@pytest.mark.parametrize("to", list(FORMATS))
def test_the_command_writes_every_format(private, to, tmp_path):
    private.save(tmp_path / "p.parquet")
    out = tmp_path / f"e{FORMATS[to].suffix}"
    run = CliRunner().invoke(main, ["export", str(tmp_path / "p.parquet"), str(out), "--to", to])
    assert run.exit_code == 0, run.output
    assert out.read_text(encoding="utf-8") == exported(private, to)
    assert out.stat().st_mode & 0o777 == private.file_mode
    wrong = CliRunner().invoke(main, ["export", str(tmp_path / "p.parquet"), str(tmp_path / "e.html"), "--to", to])
    assert wrong.exit_code == 2
    assert FORMATS[to].suffix in wrong.output


@pytest.mark.parametrize("to", ["sas", "stata", "csv"])
def test_covariances_are_positive_definite_even_where_noise_dominates(to):
    noisy = gm.release(patients(300), schema=SCHEMA, epsilon=0.3, delta=1e-6, passes=1, random_state=0)
    assert np.linalg.eigvalsh(noisy.moments().covariance)[0] < 0
    text = exported(noisy, to)
    *_, covariance = {"sas": read_sas, "stata": read_stata, "csv": read_csv}[to](text)
    np.linalg.cholesky(covariance)
    assert "nearest positive definite" in text


EVIL = [
    "*/ x '; shell rm; %let a=1; &b",
    "a\n!ls\nb",
    "`=1' $S_ADO",
    '"); system("ls") #',
    "///",
    "\u202e\u2028{",
    "if",
]


@pytest.mark.parametrize("to", list(SCRIPTS))
def test_names_of_strangers_are_no_code(to):
    """Every line is a comment of harmless characters, or made of legal names, numbers and our own words."""
    rng = np.random.default_rng(0)
    table = {name: rng.pareto(2, 4000).clip(0, 900) for name in EVIL[:5]} | {"g": rng.choice(EVIL, 4000)}
    schema = {name: [0, 1000] for name in EVIL[:5]} | {"g": {"levels": EVIL}}
    release = gm.release(table, schema, epsilon=3.0, delta=1e-6, random_state=0)
    assert release.thresholds  # names are in the first lines too
    text = exported(release, to)
    comment = rf"{SCRIPTS[to]} [\w .,;:%()=<>+-]*( \*/)?" if to == "sas" else rf"{SCRIPTS[to]} [\w .,;:%()=<>+-]*"
    own = {"sas": r"[\w .;()$=-]*", "stata": r"[\w .\\-]*(?: ///)?", "lavaan": r'[\w .,()"<=-]*'}[to]
    for line in text.split("\n"):
        last = line.startswith("# lavaan::")
        assert last or re.fullmatch(comment, line) or re.fullmatch(own, line), line
    for word in ("rm", "system", "let", "S_ADO", "ls"):
        assert not any(re.search(rf"\b{word}\b", line) for line in text.split("\n") if not re.match(SCRIPTS[to], line))


def test_legal_names_are_short_and_distinct():
    names = legal_names(["a" * 50, "a" * 50 + "b", "A" * 32, "", "ü", "x=1", "x 1", "str12", "_n", "(missing)", "9"])
    assert len({name.lower() for name in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,31}", name) for name in names)
    assert names[5:8] == ["x_1", "x_1_2", "str12_"]
