"""Runs pages of the documentation: their ``python`` and ``console`` blocks, in order and in one namespace.

    python tests/doc_pages.py tutorial.md paper.md    # write what the code prints into the pages

A ``text`` block shows what the block before it prints. Releases of the tutorial have no seed on the page; here each
gets one, so that what the page shows can be compared. The line that says so is left out.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner

import audit.__main__
import gaussmix
from gaussmix.cli import main

DOCS = Path(gaussmix.__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = ("tutorial.md", "linear.md", "descriptive.md", "paper.md")  # pages that show what their code prints
TUTORIAL_RELEASE = "visits.release.parquet"
WITHOUT_GUARANTEE = "No privacy guarantee"


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and content of the blocks of a page."""
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def commands(block: str) -> list[tuple[str, int]]:
    """Every command of a block, with the exit code that the page states."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            command, _, comment = line.removeprefix("$ ").partition("  # ")
            code = re.search(r"exit code (\d)", comment)
            found.append((command, int(code[1]) if code else 0))
    return found


def run_command(command: str) -> tuple[int, str]:
    """Return exit code and output: of our commands in this process, of others in a shell."""
    first, pipe, last = command.partition(" | ")
    words = shlex.split(last if pipe else first)
    if words[:3] == ["python", "-m", "audit"]:
        done = CliRunner().invoke(audit.__main__.main, words[3:])
        return done.exit_code, done.stdout
    if words[0] != "gaussmix":
        other = subprocess.run(words, capture_output=True, check=False, text=True)
        return other.returncode, other.stdout
    given = Path(shlex.split(first)[1]).read_bytes() if pipe else None
    done = CliRunner().invoke(main, words[1:], input=given)
    return done.exit_code, done.stdout


def write_tutorial_release() -> None:
    """Write the first release of the tutorial, with a seed."""
    names: dict[str, Any] = {}
    for _, block in blocks("tutorial.md")[:2]:
        exec(compile(block, "tutorial.md", "exec"), names)
    gaussmix.release(names["table"], names["schema"], epsilon=1.0, delta=1e-6, random_state=1).save(TUTORIAL_RELEASE)


def printed(page: str) -> Iterator[tuple[str, str, str]]:
    """Run a page in the current folder: for each block its language, its content, and what was printed before it."""
    names: dict[str, Any] = {}
    output = ""
    seeds, release = itertools.count(1), gaussmix.release

    def seeded(*args: Any, **options: Any) -> Any:
        return release(*args, **{**options, "random_state": next(seeds)})

    if any(f'"{TUTORIAL_RELEASE}"' in block for kind, block in blocks(page) if kind == "python"):
        write_tutorial_release()
    with mock.patch.object(gaussmix, "release", seeded if page == "tutorial.md" else release):
        for number, (kind, block) in enumerate(blocks(page), 1):
            yield kind, block, output
            if kind == "python":
                out = io.StringIO()
                with redirect_stdout(out):
                    exec(compile(block, f"{page}, block {number}", "exec"), names)
                output = out.getvalue()
            elif kind == "console":
                for command, code in commands(block):
                    found, output = run_command(command)
                    if found != code:
                        raise AssertionError(f"{page}: exit code {found} of {command}\n{output}")
            else:
                output = ""
            lines = output.splitlines(keepends=True)
            output = "".join(line for line in lines if not line.startswith(WITHOUT_GUARANTEE))


def rewrite(page: str) -> None:
    """Write what the code prints into the ``text`` blocks of a page."""
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        found = list(printed(page))
        os.chdir(here)
    outputs = iter(output for kind, _, output in found if kind == "text")

    def fill(match: re.Match[str]) -> str:
        if match[1] != "text":
            return match[0]
        lines = (line.rstrip() for line in next(outputs).rstrip().splitlines())
        return "```text\n" + "\n".join(lines) + "\n```"

    path = DOCS / page
    path.write_text(BLOCK.sub(fill, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(name)
