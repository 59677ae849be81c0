"""The list of tests that coverage does not watch names tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_name_of_the_list_is_a_test():
    names = (TESTS / "uncovered.txt").read_text().split()
    assert names == sorted(set(names))
    for file in {name.partition("::")[0] for name in names}:
        tree = ast.parse((TESTS.parent / file).read_text(encoding="utf-8"))
        found = {f"{file}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {name for name in names if name.startswith(f"{file}::")} <= found


def test_tests_of_the_list_are_not_watched(request):
    listed = set((TESTS / "uncovered.txt").read_text().split())
    for item in request.session.items:
        assert (item.get_closest_marker("no_cover") is not None) == (item.nodeid.partition("[")[0] in listed)
