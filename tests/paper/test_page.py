"""docs/paper.md shows what its code prints."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

import gaussmix

PAGE = Path(gaussmix.__file__).parents[2] / "docs" / "paper.md"
NUMBER = r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?"


def test_outputs_are_those_of_the_code():
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    printed = shown = 0
    for i, (kind, block) in enumerate(blocks):
        if kind == "text":
            continue
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(block, f"{PAGE}, block {i + 1}", "exec"), names)
        expected = blocks[i + 1][1] if i + 1 < len(blocks) and blocks[i + 1][0] == "text" else ""
        assert_same(expected, out.getvalue())
        printed, shown = printed + bool(out.getvalue()), shown + bool(expected)
    assert printed == shown == sum(kind == "text" for kind, _ in blocks) >= 10


def assert_same(expected: str, found: str) -> None:
    """The same words, and numbers that differ in the last digit shown at most: draws go through BLAS."""
    words = [re.split(NUMBER, re.sub(r"\s+", " ", text.strip())) for text in (expected, found)]
    assert [word.strip() for word in words[0]] == [word.strip() for word in words[1]], found
    numbers = [[float(number) for number in re.findall(NUMBER, text)] for text in (expected, found)]
    np.testing.assert_allclose(*numbers, rtol=2e-3, atol=0.011)
