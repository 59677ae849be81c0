"""Rooms import one way only, and what sees releases never sees sums over rows (the twin of docs/development.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gaussmix
from gaussmix import errors

ROOMS = [
    "accounting",
    "ledger",
    "data",
    "releases",
    "models",
    "mechanism",
    "paper",
    "estimators",
    "baselines",
    "report",
    "cli",
]
FOUNDATION = ["errors", "_text", "_types", "_version", "_files", "_validation"]
PUBLIC_DATA = {
    "data.columns",
    "data.schema",
    "data.terms",
    "data.transforms",
    "data.units",
}
"""What is declared about rows: all of `data` that rooms of releases may import. The rest holds rows or their sums."""

PUBLIC_NAMES = {
    "data.contributions": {"ONE_ROW", "PrivacyUnit"},
    "data.counts": {"COARSE_BINS", "FINE_BINS", "FineGrid", "coarse_bins", "coarse_interval"},
    "data.marginals": {
        "NONE_OF_THESE",
        "CellLayout",
        "MarginalQuery",
        "cells_of",
        "grid",
        "has_marginals",
    },
    "data.readers": {"PARQUET"},
}
"""What is declared about rows in a module that also reads them, by name."""

READERS = {
    "models/linear.py": {"data.contributions", "data.encode", "data.table"},  # rows of whoever predicts or compares
    "report/plan.py": {"data.encode"},  # encodes made-up tables
}
"""What reads rows beside the mechanism, none of them those of a release."""

DRAWS = re.compile(
    r"(standard_|log)?normal|random|uniform|integers|laplace|chisquare|discrete_gaussian|default_rng|urandom|token_bytes"
)
"""Functions that draw, by their names."""

DRAWING = {
    "releases/preconditioning.py": "post-processing: copies of a release with more noise",
    "releases/shrinkage.py": "post-processing: a simulation of the noise, seeded by the release",
    "paper/sketch.py": "post-processing: sketch rows from a released factor",
    "models/moments.py": "post-processing: a simulation of the noise of a release",
    "models/synthetic.py": "post-processing: synthetic rows",
    "models/predictor_distribution.py": "post-processing: a fixed sequence of points",
    "report/demo.py": "made-up rows",
    "report/plan.py": "made-up rows",
    "data/moments.py": "names of parts, and the key that tells persons apart",
    "data/sampling.py": "secret keys of samples; no privacy is claimed for them",
    "data/source.py": "keys of the hash by which rows are compared between passes",
}
"""Where something is drawn outside of the mechanism, and why that is no noise of a release."""

NOISE = {
    "baselines/adassp.py",
    "baselines/binagg.py",
    "baselines/objective_perturbation.py",
    "paper/mixing.py",
    "baselines/sheffet.py",
}
"""Where noise is drawn outside of the package `mechanism`: the paper's algorithms and the baselines have both ends."""

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


def called(path: Path) -> set[str]:
    """Names of the functions and methods that a file calls."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return {found.attr if isinstance(found, ast.Attribute) else getattr(found, "id", "") for found in calls}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


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


@pytest.mark.parametrize("room", ["releases", "models", "report"])
def test_what_sees_releases_never_sees_rows(room):
    for path in files_of(room):
        read: dict[str, set[str]] = {}
        for name in imported(path):
            room, _, rest = name.partition(".")
            if room in ("data", "mechanism") and rest:
                module, _, own = rest.partition(".")
                read.setdefault(f"{room}.{module}", set()).update({own} - {""})
        declared = {name for name, names in read.items() if names and names <= PUBLIC_NAMES.get(name, set())}
        closed = read.keys() - PUBLIC_DATA - declared
        assert closed == READERS.get(name_of(path), set()), path


def test_nothing_that_leaves_is_drawn_outside_the_mechanism():
    drawing = {
        name_of(path)
        for room in ROOMS
        if room != "mechanism"
        for path in files_of(room)
        if any(DRAWS.fullmatch(name) for name in called(path))
    }
    assert drawing == {*DRAWING, *NOISE}


def test_documented_rooms_are_these_rooms():
    text = (PACKAGE.parents[1] / "docs" / "development.md").read_text(encoding="utf-8")
    documented = [line.split("`")[1].rstrip("/") for line in text.splitlines() if re.match(r"\| `\w+/`", line)]
    assert documented == ROOMS


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
    heavy = (
        "rich",
        "polars",
        "duckdb",
        "dask",
        "pyarrow.dataset",
        "opendp.extras",
        "statsmodels",
        "matplotlib",
        "jinja2",
    )
    code = (
        f"import sys, gaussmix as gm; gm.release, gm.LinearRegression; print([m for m in {heavy} if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
