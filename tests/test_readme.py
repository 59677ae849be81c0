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


def test_version_and_day_are_the_same_everywhere():
    assert release_check.agreed_version(Path(gaussmix.__file__).parents[2]) == gaussmix.__version__


def migration_table() -> list[tuple[str, str]]:
    """Return old and new names of the newest version in the changelog."""
    changelog = (Path(gaussmix.__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| 0\.2\.0 \| 0\.3\.0 \|\n\|---\|---\|\n((?:\|.*\n)+)", changelog, re.MULTILINE)
    return [(old, new) for old, new in re.findall(r"^\| (.+) \| (.*)\|$", table, re.MULTILINE) if new]


def public_names(text: str) -> list[str]:
    """Return what a cell of the migration table names: ``gm.release``, ``Ledger.spend``, ``gaussmix ols``."""
    return re.findall(r"[`=]((?:gm|accounting|Release|Ledger|Schema|Certificate|Moments)\.\w+|gaussmix [a-z]+)", text)


def is_there(name: str) -> bool:
    """Whether a public name or command exists."""
    if name.startswith("gaussmix "):
        return name.split()[1] in main.list_commands(click.Context(main))
    owner, _, member = name.partition(".")
    found = gaussmix if owner == "gm" else getattr(gaussmix, owner)
    return hasattr(found, member) or member in getattr(found, "__dataclass_fields__", {})


def test_the_migration_table_names_what_is_there():
    named = {name for _, new in migration_table() for name in public_names(new)}
    assert {"gm.PrivacyUnit", "Release.ols", "gaussmix ols", "Ledger.contains_digest"} <= named
    assert [name for name in sorted(named) if not is_there(name)] == []


def test_the_migration_table_does_not_call_removed_what_is_there():
    kept = {"gaussmix schema", "gaussmix plan", "gaussmix report", "gaussmix demo", "Moments.of"}  # options changed
    gone = {name for old, _ in migration_table() for name in public_names(old)} - kept
    assert {"gm.propose", "Release.regress", "gaussmix regress", "Ledger.has_had"} <= gone
    assert [name for name in sorted(gone) if is_there(name)] == []


VERSIONS = {
    "src/gaussmix/_version.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2026-11-16)\n\n## 1.1.0 (2026-01-02)\n",
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-11-16\n",
    "r/DESCRIPTION": "Package: gaussmix\nVersion: 1.2.0\n",
    "recipe/recipe.yaml": 'schema_version: 1\n\ncontext:\n  version: "1.2.0"\n',
}


@pytest.mark.parametrize(
    ("file", "was", "becomes", "words"),
    [
        ("src/gaussmix/_version.py", "1.2.0", "1.3.0", "version 1.3.0 in the source, 1.2.0 in CHANGELOG.md"),
        ("CHANGELOG.md", "## 1.2.0", "## 1.1.9", "1.1.9 in CHANGELOG.md, 1.2.0 in CITATION.cff"),
        ("CHANGELOG.md", "1.2.0 (2026-11-16)", "Unreleased", "no version with a date, but 'Unreleased'"),
        ("CHANGELOG.md", " (2026-11-16)", "", "no version with a date, but '1.2.0'"),
        ("CHANGELOG.md", "2026-11-16", "2026-11-31", "2026-11-31 in CHANGELOG.md is not a date"),
        ("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0", "1.1.0 in CITATION.cff"),
        ("r/DESCRIPTION", "1.2.0", "1.1.0", "1.1.0 in r/DESCRIPTION"),
        ("recipe/recipe.yaml", "1.2.0", "1.1.0", "1.1.0 in recipe/recipe.yaml"),
        ("CITATION.cff", "2026-11-16", "2026-11-15", "on 2026-11-15 in CITATION.cff"),
        ("CITATION.cff", "date-released: ", "", "CITATION.cff has nothing like"),
    ],
)
def test_a_release_has_one_version_and_one_day(file, was, becomes, words, tmp_path):
    for name, text in VERSIONS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
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


def test_packages_contain_no_path_of_the_machine(tmp_path):
    checkout = tmp_path / "checkout"
    release_check.check_paths("a.whl", {"gaussmix/a.py": b"text"}, checkout)
    for path in (release_check.ROOT, tmp_path):
        with pytest.raises(SystemExit, match=r"gaussmix/a\.so in a\.whl contains the path"):
            release_check.check_paths("a.whl", {"gaussmix/a.so": f"\0{path}/x.c\0".encode()}, checkout)


def test_files_of_packages_are_compared_with_those_that_are_committed():
    release_check.same("a.whl", {"a", "b"}, {"b", "a"})
    with pytest.raises(SystemExit, match=r"a\.whl lacks \['c'\] and also has \['b'\]"):
        release_check.same("a.whl", {"a", "b"}, {"a", "c"})
