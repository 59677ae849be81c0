"""Every statement of the theory pages names a function and a test that exist, and no result of the paper is missing."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
HEADING = "## Statements, functions and tests\n"
TABLES = {
    page: (DOCS / page).read_text("utf-8").partition(HEADING)[2] for page in ("paper.md", "privacy.md", "inference.md")
}
ROW = re.compile(r"^\| (.+) \| `([\w.]+)` \| `([\w./]+\.py)::(\w+)` \|$", re.MULTILINE)
ROWS = [row for table in TABLES.values() for row in ROW.findall(table)]
NUMBERED = {
    "Equation": 2,
    "Definition": 3,
    "Lemma": 2,
    "Proposition": 2,
    "Corollary": 2,
    "Theorem": 3,
    "Algorithm": 2,
    "Figure": 1,
}


def named(path: str) -> object:
    """Return what a dotted name stands for, below the library or in the experiments."""
    words = path.split(".") if path.startswith("experiments.") else ["gaussmix", *path.split(".")]
    found: object = importlib.import_module(words[0])
    for i, word in enumerate(words[1:], 1):
        try:
            found = getattr(found, word)
        except AttributeError:
            found = importlib.import_module(".".join(words[: i + 1]))
    return found


@pytest.mark.parametrize(("statement", "function", "file", "test"), ROWS)
def test_a_statement_has_its_function_and_its_test(statement, function, file, test):
    assert callable(named(function)), statement
    text = (TESTS / file).read_text("utf-8")
    assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{file} has no {test}"


@pytest.mark.parametrize("page", TABLES)
def test_no_row_of_a_page_is_overlooked(page):
    heading, *lines = [line for line in TABLES[page].splitlines() if line.startswith("| ")]
    assert heading.startswith("| statement")
    assert len(ROW.findall(TABLES[page])) == len(lines) > 10


def test_no_result_of_the_paper_is_missing():
    """Numbered statements, algorithms and figures of the paper, each in at least one row."""
    statements = " ".join(statement for statement, *_ in ROW.findall(TABLES["paper.md"]))
    for kind, count in NUMBERED.items():
        for number in range(1, count + 1):
            assert f"{kind} {number}" in statements, f"{kind} {number}"
    assert "Figures 2 and 4" in statements
    assert "Figures 3 and 5" in statements
