"""Rooms import one way only, and what sees releases never sees sums over rows (the twin of docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gaussmix
from gaussmix import errors

ROOMS = [
    "accounting",
    "ledger",
    "tables",
    "models",
    "mechanism",
    "estimators",
    "baselines",
    "reporting",
    "audit",
    "cli",
]
FOUNDATION = ["errors", "_types", "_version", "_signals", "_files", "_validation"]
SENSITIVE = {
    "tables.keyed",
    "tables.moments",
    "tables.partitions",
    "tables.person_tallies",
    "tables.persons",
    "tables.accumulate",
    "tables.asking",
    "tables.cluster",
    "tables.checking",
    "tables.gradients",
    "tables.counting",
    "tables.rows",
    "tables.tallies",
    "mechanism",
}
"""What holds rows, their sums or counts, and what draws from them."""

POST_PROCESSING = {"sketch.py", "pooling.py"}
"""Random numbers that are drawn given a release: sketch rows, and copies of a release with more noise."""

PACKAGE = Path(gaussmix.__file__).parent


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in it, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("gaussmix.") for name in found if name and name.startswith("gaussmix.")}


def rooms_of(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names} & {*ROOMS, *FOUNDATION}


def files_of(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def test_every_module_is_in_a_room():
    assert {path.stem for path in PACKAGE.glob("*.py")} == {*FOUNDATION, "__init__", "__main__"}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_rooms_before_it(room):
    allowed = {*FOUNDATION, *ROOMS[: ROOMS.index(room) + 1]}
    for path in files_of(room):
        assert rooms_of(imported(path)) <= allowed, path


def test_the_foundation_imports_no_room():
    for name in FOUNDATION:
        assert rooms_of(imported(PACKAGE / f"{name}.py")) <= set(FOUNDATION)


@pytest.mark.parametrize("room", ["models", "reporting"])
def test_what_sees_releases_never_sees_sums_over_rows(room):
    """The demonstration and the plan are made from made-up tables and public numbers: they may ask for a release."""
    asks_for_releases = {"demo.py", "planning.py"} if room == "reporting" else set()
    for path in files_of(room):
        if path.name not in asks_for_releases:
            names = imported(path)
            assert not {name for name in names for closed in SENSITIVE if f"{name}.".startswith(f"{closed}.")}, path


def test_nothing_that_leaves_is_drawn_outside_the_mechanism():
    for room in ROOMS:
        for path in files_of(room):
            text = path.read_text(encoding="utf-8")
            if room != "mechanism" and path.name != "demo.py":
                assert "standard_normal" not in text or path.name in POST_PROCESSING, path
                assert ".laplace(" not in text, path


def test_documented_rooms_are_these_rooms():
    text = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    documented = [line.split("`")[1].rstrip("/") for line in text.splitlines() if line.startswith("| `")]
    assert documented == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_longer_than_a_reader_can_hold(room):
    for path in files_of(room):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path


def test_no_production_assert():
    for path in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert not any(isinstance(node, ast.Assert) for node in nodes), path


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, gaussmix; sys.exit(any(name in sys.modules for name in ('numpy', 'pyarrow', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_can_be_had():
    assert sorted(dir(gaussmix)) == sorted(gaussmix.__all__)
    for name in gaussmix.__all__:
        assert getattr(gaussmix, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gaussmix.nonsense


def test_every_error_is_public():
    named = {
        name for name, found in vars(errors).items() if isinstance(found, type) and found.__module__ == errors.__name__
    }
    assert named == set(errors.__all__)
    assert named <= set(gaussmix.__all__)


def test_releasing_loads_nothing_that_only_some_tables_need():
    heavy = "('polars', 'duckdb', 'dask', 'pyarrow.dataset', 'opendp.extras', 'statsmodels', 'matplotlib', 'jinja2')"
    code = f"import sys, gaussmix as gm; gm.release, gm.LinearMixing; print([m for m in {heavy} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
