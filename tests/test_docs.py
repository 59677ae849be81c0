"""Commands in the documentation run as they stand: every ``console`` block, in a folder with a table of patients."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import gaussmix
from gaussmix.cli import main

DOCS = Path(gaussmix.__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md") if "```console" in path.read_text(encoding="utf-8"))


def commands(page: str) -> list[tuple[str, int]]:
    """Every command of a page in its order, and the exit code that the page says it has."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    found = []
    for line in lines:
        if line.startswith("$ "):
            command, _, comment = line.removeprefix("$ ").partition("  # ")
            code = re.search(r"exit code (\d)", comment)
            found.append((command, int(code[1]) if code else 0))
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Patients in every format, and their schema."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 20_000
    age = rng.uniform(18, 90, n)
    cost = 5 + 0.2 * age + rng.normal(0, 2, n)
    table = pa.table({"age": age, "sex": rng.choice(["f", "m"], n), "cost": cost})
    pq.write_table(table, "patients.parquet")
    pa.csv.write_csv(table, "patients.csv")
    with pa.ipc.new_file("patients.arrow", table.schema) as writer:
        writer.write_table(table)
    with duckdb.connect("hospital.duckdb") as connection:
        connection.execute("CREATE TABLE patients AS FROM 'patients.parquet'")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_ends_as_it_says(page, folder):
    found = commands(page)
    if not any("propose" in command for command, _ in found):
        schema = {"age": [0, 110], "sex": ["f", "m"], "cost": [0, 50]}
        (folder / "patients.json").write_text(json.dumps(schema), encoding="utf-8")
    for command, code in found:
        if "sign" in command or "--key" in command or command.startswith("openssl"):
            pytest.importorskip("cryptography")
        if command.startswith("openssl") and shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        assert run(command) == code, command


def run(command: str) -> int:
    """A command of ours in this process; others as a shell has them."""
    first, pipe, last = command.partition(" | ")
    words = shlex.split(last if pipe else first)
    if words[0] != "gaussmix":
        return subprocess.run(words, capture_output=True, check=False).returncode
    given = Path(shlex.split(first)[1]).read_bytes() if pipe else None
    return CliRunner().invoke(main, words[1:], input=given).exit_code


def test_pages_with_commands_are_found():
    assert {"bounds.md", "ledger.md"} <= set(PAGES)
