"""The conda recipe declares the dependencies, entry points and Python versions of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(lines: list[str]) -> dict[str, str]:
    """Return version ranges by name, of lines such as ``numpy>=2.1,<3`` and ``numpy >=2.1,<3``."""
    found = {}
    for line in lines:
        name, versions = re.fullmatch(r"([\w-]+)\s*(\S*)", line).groups()
        found[name] = versions
    return found


def test_dependencies_are_the_same():
    declared = requirements(PROJECT["project"]["dependencies"])
    declared["python"] = PROJECT["project"]["requires-python"]
    assert requirements(RECIPE["requirements"]["run"]) == declared


def test_build_requirements_are_the_same():
    host = requirements(RECIPE["requirements"]["host"])
    assert requirements(PROJECT["build-system"]["requires"]).items() <= host.items()
    assert RECIPE["source"] == {"path": ".."}


def test_commands_license_and_summary_are_the_same():
    project = PROJECT["project"]
    scripts = [f"{name} = {function}" for name, function in project["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts
    about = RECIPE["about"]
    assert (about["license"], about["summary"]) == (project["license"], project["description"])
    assert [about["license_file"]] == project["license-files"]


def test_what_its_tests_need_is_there():
    (files,) = (test["files"]["source"] for test in RECIPE["tests"] if "files" in test)
    assert all((ROOT / name).exists() for name in files)
