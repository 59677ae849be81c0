"""Every statement in docs/theorems.md names a function and a test that exist, and no result of the paper is missing."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "theorems.md"
TEXT = PAGE.read_text("utf-8")
ROW = re.compile(r"^\| (.+) \| .+ \| `([\w.]+)` \| `([\w./]+\.py)::(\w+)` \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT)
NUMBERED = {
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


def test_no_row_of_the_page_is_overlooked():
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    headings = [line for line in lines if line.startswith("| statement")]
    assert len(headings) == 3
    assert len(ROWS) == len(lines) - len(headings) > 90


def test_no_result_of_the_paper_is_missing():
    """Numbered statements, algorithms and figures of the paper, each in at least one row."""
    _, _, paper = TEXT.partition("## Results of the paper")
    table, _, _ = paper.partition("## Privacy")
    statements = " ".join(statement for statement, *_ in ROW.findall(table))
    for kind, count in NUMBERED.items():
        for number in range(1, count + 1):
            assert f"{kind} {number}" in statements, f"{kind} {number}"
    assert "Figures 2 and 4" in statements
    assert "Figures 3 and 5" in statements
