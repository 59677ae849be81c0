"""Every ``python`` block of the guides runs, with the tables and names that its page takes for granted.

Pages that show what their code prints are in ``test_docs.py``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
from doc_pages import SHOWN
from gaussmix.report.demo import SCHEMA, make_patients

ROOT = Path(gm.__file__).parents[2]
PAGES = [f"docs/{name}.md" for name in ("index", "schema", "release", "units", "ledger", "engines", "tools")]
PAGES += [f"docs/{name}.md" for name in ("glm", "reviewers")]
BUDGET: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def wages(n: int = 5_000) -> pd.DataFrame:
    """Made up, with the columns of CPS 1988."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "education": rng.integers(6, 19, n),
            "experience": rng.integers(-2, 45, n),
            "ethnicity": rng.choice(["cauc", "afam"], n, p=[0.8, 0.2]),
            "smsa": rng.choice(["no", "yes"], n),
            "region": rng.choice(["midwest", "northeast", "south", "west"], n),
        }
    )
    table["log_wage"] = 4.5 + 0.08 * table.education + 0.01 * table.experience + rng.normal(0, 0.4, n)
    table["wage"] = np.exp(table.log_wage)
    return table


VISITS = {
    "visits": [0, 40],
    "pays": [0, 100],
    "deductible": "boolean",
    "health": ["excellent", "good", "fair or poor"],
}


def visits(n: int = 5_000) -> pd.DataFrame:
    """Made up, with columns of the tutorial's table."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"pays": rng.uniform(0, 100, n), "deductible": rng.random(n) < 0.3})
    table["health"] = rng.choice(VISITS["health"], n)
    return table.assign(visits=rng.poisson(np.exp(1 - 0.005 * table.pays + 0.3 * (table.health == "good"))))


@pytest.fixture(scope="module")
def patients() -> gm.Release:
    return gm.release(make_patients(20_000), schema=SCHEMA, **BUDGET)


@pytest.fixture
def folder(tmp_path, monkeypatch, patients):
    """Files that the pages name."""
    monkeypatch.chdir(tmp_path)
    table = make_patients(5_000)
    pq.write_table(table, "patients.parquet")
    Path("demo").mkdir()
    pq.write_table(table, "demo/patients.parquet")
    Path("patients").mkdir()
    people = table.append_column("sex", [np.resize(["f", "m"], 5_000).tolist()])
    people = people.append_column("ward", [np.resize([1, 2, 3], 5_000).tolist()])
    pq.write_table(people, "patients/1.parquet")
    Path("patients.json").write_text(json.dumps(SCHEMA))
    wages().to_csv("cps1988.csv", index=False)
    return tmp_path


def granted(page: str, patients: gm.Release) -> dict[str, Any]:
    """Names, and files of one page alone."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    names: dict[str, Any] = {"gm": gm, "np": np, "pd": pd, "private": patients, "X": X, "y": X.sum(axis=1) + 5}
    names |= {"z": (X[:, 0] > 0).astype(int), "rows": make_patients(10)}
    if page.endswith("release.md"):
        pa.csv.write_csv(make_patients(5_000), "patients.csv")
    if page.endswith("units.md"):
        names |= {"visits": visits().assign(patient_id=np.arange(5_000) // 5), "schema": VISITS}
    if page.endswith("reviewers.md"):
        patients.save("visits.release.parquet")
    if page.endswith(("glm.md", "tools.md")):
        patients.save("patients.release.parquet")
    return names


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::gaussmix.BudgetWarning")
def test_python_of_a_page_runs(page, folder, patients):
    names = granted(page, patients)
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)


def test_schemas_of_pages_are_read():
    found = [
        block
        for path in sorted((ROOT / "docs").glob("*.md"))
        for block in re.findall(r"^```json\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    ]
    assert len(found) == 2
    for block in found:
        columns = json.loads(block)["columns"]
        assert set(gm.Schema.of(json.loads(block)).columns) == set(columns)


def test_no_page_with_python_is_left_out():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").glob("*.md")
        if "```python" in path.read_text("utf-8")
    }
    assert found - {f"docs/{page}" for page in SHOWN} == set(PAGES)
