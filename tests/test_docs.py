"""Pages of the documentation run as they stand, in a folder with a table of patients.

Every ``console`` block of every page runs; so does every ``python`` block of the tutorial and of the pages for readers,
in the order of the page and in one namespace. What the page shows of a command whose output has no chance in it is
what the command prints.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import audit.__main__
import gaussmix
from gaussmix.cli import main

DOCS = Path(gaussmix.__file__).parents[2] / "docs"
TEXTS = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}
WORKED = [page for page in TEXTS if page == "tutorial.md" or page.startswith("readers/")]
PAGES = [page for page, text in TEXTS.items() if "```console" in text and page not in WORKED]
# The file that each page ends in, and how it begins.
ENDS = {
    "tutorial.md": ("visits.html", b"<!doctype html>"),
    "readers/statistician.md": ("hours.csv", b"term,"),
    "readers/economist.md": ("wages.tex", rb"\begin{tabular}"),
    "readers/hospital.md": ("readmission.html", b"<!doctype html>"),
    "readers/engineer.md": ("ledger.json", b"{"),
    "readers/reviewer.md": ("record.yaml", b"url_slug"),
    "readers/researcher.md": ("analyses.png", b"\x89PNG"),
}
PATIENTS = {"age": [0, 110], "sex": ["f", "m"], "smoker": "boolean", "cost": [0, 50]}
# Commands that print the same each time, a release because its numbers go into a file.
CERTAIN = ("gaussmix plan ", "gaussmix release ", "gaussmix verify ")


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and content of what a page would have run, and of what it shows."""
    return re.findall(r"^```(console|python|text)\n(.*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, int]]:
    """Every command of a block, and the exit code that the page says it has."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            command, _, comment = line.removeprefix("$ ").partition("  # ")
            code = re.search(r"exit code (\d)", comment)
            found.append((command, int(code[1]) if code else 0))
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Patients in every format, in parts, with several rows each, and wages."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 20_000
    age = rng.uniform(18, 90, n)
    cost = 5 + 0.2 * age + rng.normal(0, 2, n)
    table = pa.table({"age": age, "sex": rng.choice(["f", "m"], n), "smoker": age % 3 < 1, "cost": cost})
    pq.write_table(table, "patients.parquet")
    pa.csv.write_csv(table, "patients.csv")
    with pa.ipc.new_file("patients.arrow", table.schema) as writer:
        writer.write_table(table)
    with duckdb.connect("hospital.duckdb") as connection:
        connection.execute("CREATE TABLE patients AS FROM 'patients.parquet'")
    for start, part in enumerate(("north-1", "north-2", "south")):
        pq.write_table(table.slice(6_000 * start, 6_000), f"{part}.parquet")
    pq.write_table(table.append_column("patient_id", [np.arange(n) // 4]), "visits.parquet")
    Path("visits.json").write_text(json.dumps(PATIENTS), encoding="utf-8")
    wages = pa.table({"wage": np.exp(6 + age / 90), "experience": age - 20, "education": age // 5})
    pa.csv.write_csv(wages, "cps1988.csv")
    Path("cps.json").write_text('{"wage": [50, 20000], "experience": [-4, 63], "education": [0, 18]}')
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_ends_as_it_says(page, folder):
    found = [command for kind, block in blocks(page) if kind == "console" for command in commands(block)]
    if not any("bounds" in command for command, _ in found):
        (folder / "patients.json").write_text(json.dumps(PATIENTS), encoding="utf-8")
    for command, code in found:
        assert run(command)[0] == code, command


@pytest.mark.slow
@pytest.mark.parametrize("page", WORKED)
def test_a_worked_page_runs_from_beginning_to_end(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    command, printed = "", ""
    for kind, block in blocks(page):
        if kind == "python":
            exec(compile(block, page, "exec"), names)
        elif kind == "console":
            for command, code in commands(block):
                found, printed = run(command)
                assert found == code, command
        elif command.startswith(CERTAIN):
            # A plan is a simulation of three draws: other last digits lead it to other choices.
            rtol = 0.25 if command.startswith("gaussmix plan ") else 0.03
            assert same_words(block, printed, rtol), f"{page} shows another output of {command}:\n{printed}"
    if page in ENDS:
        file, beginning = ENDS[page]
        assert (tmp_path / file).read_bytes().lower().startswith(beginning.lower())
        assert f"`{file}`" in TEXTS[page]


def run(command: str) -> tuple[int, str]:
    """Exit code and output: of a command of ours in this process, of others as a shell has them."""
    if "sign" in command or "--key" in command or command.startswith("openssl"):
        pytest.importorskip("cryptography")
    if command.startswith("openssl") and shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    first, pipe, last = command.partition(" | ")
    words = shlex.split(last if pipe else first)
    if words[:3] == ["python", "-m", "audit"]:
        done = CliRunner().invoke(audit.__main__.main, words[3:])
        return done.exit_code, done.stdout
    if words[0] != "gaussmix":
        done = subprocess.run(words, capture_output=True, check=False, text=True)
        return done.returncode, done.stdout
    given = Path(shlex.split(first)[1]).read_bytes() if pipe else None
    done = CliRunner().invoke(main, words[1:], input=given)
    return done.exit_code, done.stdout


def same_words(shown: str, printed: str, rtol: float = 0.03) -> bool:
    """Whether two texts have the same words, and numbers within ``rtol`` of each other."""
    found = [
        re.split(r"(\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?)", re.sub(r"\s+", " ", text.strip())) for text in (shown, printed)
    ]
    if len(found[0]) != len(found[1]) or found[0][::2] != found[1][::2]:
        return False
    ours, theirs = (np.array([float(word.replace(",", "")) for word in words[1::2]]) for words in found)
    return bool(np.allclose(ours, theirs, rtol=rtol, atol=0))


def test_outputs_are_compared():
    """The tutorial shows three that have no chance in them, and one that was out of date would be seen."""
    shown = [block for kind, block in blocks("tutorial.md") if kind == "text"]
    assert [block.split()[0] for block in shown] == ["20,000", "Gaussian", "Estimated", "forged.release.parquet"]
    plan = shown[0]
    assert same_words(plan, plan.replace("  ", " "))
    assert same_words(plan, plan.replace("0.18", "0.15"), 0.25)
    assert not same_words(plan, plan.replace("0.18", "0.27"), 0.25)
    assert not same_words(plan, plan.replace("3,600", "2,300"))
    assert not same_words(plan, plan.replace("6.8e-05", "7.7e-05"))
    assert not same_words(plan, plan.replace("Privacy unit: one row.", ""))


def test_pages_with_commands_are_found():
    assert {"bounds.md", "ledger.md"} <= set(PAGES)
    assert set(ENDS) == {page for page in WORKED if page != "readers/index.md"}
