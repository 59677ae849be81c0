"""The README runs as it stands, in a folder where the demonstration has been run; versions are the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

import gaussmix
import release_check
from gaussmix.cli import main
from gaussmix.report.demo import make_patients

README = (Path(gaussmix.__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    pq.write_table(make_patients(), tmp_path / "demo" / "patients.parquet")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "smoker" in printed
    assert "ModifiedGaussMix: (1, 1e-06)-differentially private" in printed
    assert gaussmix.load("patients.release.parquet").certificate.epsilon == 1.0


def test_what_it_names_is_there():
    root = Path(gaussmix.__file__).parents[2]
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make (\w[\w-]*)", README)) - {"are"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (root / path).exists(), path


def test_every_command_is_listed():
    (listed,) = re.findall(r"`gaussmix ([\w\s-]+(?:\|[\w\s-]+)+)` on the command line", README)
    assert {name.strip() for name in listed.split("|")} == set(main.list_commands(click.Context(main)))


def test_the_version_is_the_same_everywhere():
    root = Path(gaussmix.__file__).parents[2]
    assert f"\nversion: {gaussmix.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\S+)\)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == gaussmix.__version__ or newest[2] == "unreleased"


VERSIONS = {
    "src/gaussmix/_version.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2026-11-16)\n\n## 1.1.0 (2026-01-02)\n",
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-11-16\n",
}


@pytest.mark.parametrize(
    ("file", "was", "becomes", "words"),
    [
        ("src/gaussmix/_version.py", "1.2.0", "1.3.0", "version 1.3.0 in the source, 1.2.0 in CHANGELOG.md"),
        ("CHANGELOG.md", "## 1.2.0", "## 1.1.9", "1.1.9 in CHANGELOG.md, 1.2.0 in CITATION.cff"),
        ("CHANGELOG.md", "1.2.0 (2026-11-16)", "Unreleased", "no version with a date, but 'Unreleased'"),
        ("CHANGELOG.md", " (2026-11-16)", "", "no version with a date, but '1.2.0'"),
        ("CHANGELOG.md", "2026-11-16", "2026-11-31", "2026-11-31 in CHANGELOG.md is no date"),
        ("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0", "1.1.0 in CITATION.cff"),
        ("CITATION.cff", "2026-11-16", "2026-11-15", "on 2026-11-15 in CITATION.cff"),
        ("CITATION.cff", "date-released: ", "", "CITATION.cff has nothing like"),
    ],
)
def test_a_release_has_one_version_and_one_day(file, was, becomes, words, tmp_path):
    (tmp_path / "src" / "gaussmix").mkdir(parents=True)
    for name, text in VERSIONS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert release_check.agreed_version(tmp_path) == "1.2.0"
    assert was in VERSIONS[file]
    (tmp_path / file).write_text(VERSIONS[file].replace(was, becomes), encoding="utf-8")
    with pytest.raises(SystemExit, match=re.escape(words)):
        release_check.agreed_version(tmp_path)


def test_packages_say_their_version():
    about = (
        b"Metadata-Version: 2.4\nVersion: 1.2.0\nClassifier: Typing :: Typed\nProject-URL: Paper, https://arxiv.org\n"
    )
    release_check.check_metadata("a.whl", about, "1.2.0")
    with pytest.raises(SystemExit, match=r"a\.whl is of version 1\.2\.0, and not of 1\.3\.0"):
        release_check.check_metadata("a.whl", about, "1.3.0")
    with pytest.raises(SystemExit, match="does not say that it is typed"):
        release_check.check_metadata("a.whl", about.replace(b"Typed", b"None"), "1.2.0")
