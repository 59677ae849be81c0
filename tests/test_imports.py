"""Modules import one way only: each from those above it in this list (the twin of docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gaussmix

ORDER = [
    "_validation",
    "_version",
    "_files",
    "divergence",
    "accounting",
    "private_scale",
    "calibration",
    "ledger",
    "encoding",
    "schema",
    "sources",
    "moments",
    "cluster",
    "sampling",
    "solvers",
    "surrogates",
    "inference",
    "models",
    "releases",
    "mechanism",
    "curation",
    "planning",
    "estimators",
    "baselines",
    "demo",
    "plots",
    "report",
    "cli",
]
PACKAGE = Path(gaussmix.__file__).parent


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name and name.startswith("gaussmix.")} & set(ORDER)


def test_the_list_is_complete():
    modules = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
    assert modules - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("module", ORDER)
def test_imports_point_upwards(module):
    allowed = set(ORDER[: ORDER.index(module)])
    paths = [PACKAGE / f"{module}.py"] if module != "baselines" else sorted((PACKAGE / module).glob("*.py"))
    if module == "baselines":  # a package: its files import each other
        allowed.add(module)
    for path in paths:
        assert imported(path) <= allowed


def test_documented_order_is_this_order():
    text = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    documented = [line.split("`")[1].removesuffix(".py") for line in text.splitlines() if line.startswith("| `")]
    assert documented == ORDER
