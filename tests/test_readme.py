"""The example of the README runs as it stands, in a folder where the demonstration has been run."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pyarrow.parquet as pq

import gaussmix
from gaussmix.cli import main
from gaussmix.reporting.demo import make_patients

README = (Path(gaussmix.__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    pq.write_table(make_patients(), tmp_path / "demo" / "patients.parquet")
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    assert "smoker" in capsys.readouterr().out
    assert gaussmix.load("patients.release.parquet").certificate.epsilon == 1.0


def test_what_it_names_is_there():
    root = Path(gaussmix.__file__).parents[2]
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make (\w[\w-]*)", README)) - {"are"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (root / path).exists(), path


def test_every_command_is_listed():
    (listed,) = re.findall(r"`gaussmix ([\w\s]+(?:\|[\w\s]+)+)` on the command line", README)
    assert {name.strip() for name in listed.split("|")} == set(main.list_commands(click.Context(main)))


def test_the_version_is_the_same_everywhere():
    root = Path(gaussmix.__file__).parents[2]
    assert f"\nversion: {gaussmix.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] in (gaussmix.__version__, "Unreleased")
