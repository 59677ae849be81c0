"""Every statement in docs/theorems.md names a function of the library and a test that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import gaussmix

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "theorems.md"
ROWS = re.findall(r"^\| (.+) \| .+ \| `([\w.]+)` \| `([\w./]+\.py)::(\w+)` \|$", PAGE.read_text("utf-8"), re.M)


def named(path: str) -> object:
    """What a dotted name below the library stands for."""
    words = path.split(".")
    found: object = gaussmix
    for i, word in enumerate(words):
        try:
            found = getattr(found, word)
        except AttributeError:
            found = importlib.import_module(".".join(["gaussmix", *words[: i + 1]]))
    return found


@pytest.mark.parametrize(("statement", "function", "file", "test"), ROWS)
def test_a_statement_has_its_function_and_its_test(statement, function, file, test):
    assert callable(named(function)), statement
    text = (TESTS / file).read_text("utf-8")
    assert re.search(rf"^def {test}\(", text, re.M), f"{file} has no {test}"


def test_no_row_of_the_page_is_overlooked():
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    headings = [line for line in lines if line.startswith("| statement")]
    assert len(ROWS) == len(lines) - len(headings) > 40
