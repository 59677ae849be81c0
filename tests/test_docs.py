"""Pages of the documentation run as they stand.

Every ``console`` block runs, in a folder with the tables that the pages name. Pages that show output
(`doc_pages.SHOWN`) run as a whole, and what they show is what their code prints.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
from doc_pages import DOCS, SHOWN, blocks, commands, printed, run_command

PAGES = [
    path.name
    for path in sorted(DOCS.glob("*.md"))
    if path.name not in SHOWN and any(kind == "console" for kind, _ in blocks(path.name))
]
PATIENTS = {"age": [0, 110], "sex": ["f", "m"], "smoker": "boolean", "cost": [0, 50]}
NUMBER = r"-?\d[\d,]*(?:\.\d*)?(?:e[-+]?\d+)?"


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
    if not any(" bounds " in command for command, _ in found):
        (folder / "patients.json").write_text(json.dumps(PATIENTS), encoding="utf-8")
    if page == "reviewers.md":
        gm.release("patients.parquet", PATIENTS, epsilon=1.0, delta=1e-6, out="visits.release.parquet")
    for command, code in found:
        if "sign" in command or "--key" in command or command.startswith("openssl"):
            pytest.importorskip("cryptography")
            if shutil.which("openssl") is None:
                pytest.skip("openssl is not installed")
        assert run_command(command)[0] == code, command


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN)
def test_a_page_shows_what_its_code_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared = 0
    for kind, block, output in printed(page):
        if kind == "text":
            assert same_output(block, output), f"{page} should show\n{output}"
            compared += 1
    assert compared > 1
    if page == "tutorial.md":  # ends in a file that a reader can open
        assert Path("visits.html").read_bytes().lower().startswith(b"<!doctype html>")


def same_output(shown: str, found: str) -> bool:
    """Return whether two texts have the same words, and numbers within 3 % or a unit of the second decimal."""
    texts = [re.sub(r"\s+", " ", text.strip()) for text in (shown, found)]
    words = [[word.strip() for word in re.split(NUMBER, text)] for text in texts]
    if words[0] != words[1]:
        return False
    ours, theirs = (np.array([float(n.replace(",", "")) for n in re.findall(NUMBER, text)]) for text in texts)
    return bool(np.allclose(ours, theirs, rtol=0.03, atol=0.011))


def test_outputs_are_compared():
    """An output that is out of date is found."""
    shown = [block for kind, block in blocks("tutorial.md") if kind == "text"]
    assert len(shown) == 3
    summary = shown[0]
    assert same_output(summary, summary.replace("  ", " "))
    assert not same_output(summary, summary.replace("(intercept)", "intercept"))
    coefficient = re.search(r"\(intercept\) +(\d\.\d+)", summary)
    assert coefficient is not None
    assert not same_output(summary, summary.replace(coefficient[1], f"{1.1 * float(coefficient[1]):.3f}"))


def test_pages_with_commands_are_found():
    assert {"ledger.md", "schema.md", "release.md", "reviewers.md"} <= set(PAGES)
