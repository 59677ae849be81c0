"""docs/paper.md and docs/distributed.md show what their code prints; functions and tests that they name exist."""

from __future__ import annotations

import importlib
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaussmix

DOCS = Path(gaussmix.__file__).parents[2] / "docs"
PAGE = DOCS / "paper.md"
TESTS = Path(__file__).parents[1]
HEADING = "| result | in a few words | callable | test |"
NUMBER = r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?"


@pytest.mark.parametrize(("page", "outputs"), [("paper.md", 13), ("distributed.md", 3)])
def test_outputs_are_those_of_the_code(page, outputs):
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    printed = shown = 0
    for i, (kind, block) in enumerate(blocks):
        if kind == "text":
            continue
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(block, f"{page}, block {i + 1}", "exec"), names)
        expected = blocks[i + 1][1] if i + 1 < len(blocks) and blocks[i + 1][0] == "text" else ""
        assert_same(expected, out.getvalue())
        printed, shown = printed + bool(out.getvalue()), shown + bool(expected)
    assert printed == shown == sum(kind == "text" for kind, _ in blocks) == outputs


def table_lines() -> list[str]:
    """Lines of the table of every result."""
    _, _, table = PAGE.read_text("utf-8").partition(HEADING)
    return [line for line in table.splitlines() if line.startswith("| ")]


def cells(line: str) -> tuple[str, str, str]:
    """Callable, file and test that a line names."""
    found = re.fullmatch(r"\| .+ \| .+ \| `([\w.]+)` \| `([\w./]+\.py)::(\w+)` \|", line)
    assert found, line
    return found[1], found[2], found[3]


def resolved(path: str) -> object:
    """What a dotted name stands for, below the library or in the experiments."""
    words = path.split(".") if path.startswith("experiments.") else ["gaussmix", *path.split(".")]
    found: object = importlib.import_module(words[0])
    for i, word in enumerate(words[1:], 1):
        try:
            found = getattr(found, word)
        except AttributeError:
            found = importlib.import_module(".".join(words[: i + 1]))
    return found


@pytest.mark.parametrize("line", table_lines(), ids=lambda line: line.split("|")[1].strip())
def test_every_result_has_its_function_and_its_test(line):
    function, file, test = cells(line)
    assert callable(resolved(function))
    assert re.search(rf"^def {test}\(", (TESTS / file).read_text("utf-8"), re.MULTILINE), f"{file} has no {test}"


def test_no_result_of_the_paper_is_missing():
    """Numbered statements, algorithms and figures of the paper, each in at least one line."""
    first = " ".join(line.split("|")[1] for line in table_lines())
    numbered = {
        "Definition": 3,
        "Lemma": 2,
        "Proposition": 2,
        "Corollary": 2,
        "Theorem": 3,
        "Algorithm": 2,
        "Figure": 1,
    }
    for kind, count in numbered.items():
        for number in range(1, count + 1):
            assert f"{kind} {number}" in first, f"{kind} {number}"
    assert "Figures 2 and 4" in first
    assert "Figures 3 and 5" in first
    assert len(table_lines()) > 40


def assert_same(expected: str, found: str) -> None:
    """The same words, and numbers that differ in the last digit shown at most: draws go through BLAS."""
    words = [re.split(NUMBER, re.sub(r"\s+", " ", text.strip())) for text in (expected, found)]
    assert [word.strip() for word in words[0]] == [word.strip() for word in words[1]], found
    numbers = [[float(number) for number in re.findall(NUMBER, text)] for text in (expected, found)]
    np.testing.assert_allclose(*numbers, rtol=2e-3, atol=0.011)
