"""``python -m audit``: exit code, output, and joint confidence of several audits."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import audit.__main__ as command
from audit import SUBJECTS, Audit, Point
from audit.subjects import EXPENSIVE

FEW = ["--runs", "20", "--processes", "1"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_claims_that_hold(tmp_path):
    (found,) = json.loads(run("sketch", *FEW, "--json", "--plot", str(tmp_path / "audit.png")))
    assert (found["subject"], found["runs"], found["confidence"], found["holds"]) == ("sketch", 20, 0.95, True)
    assert [point["delta"] for point in found["points"]] == [0.001, 0.1, 0.03, 0.01]
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_several_subjects_share_the_failure_probability():
    """Each of five audits fails with probability 1 % at most, all of them jointly with 5 %."""
    few = [*FEW, "--delta", "0.2"]
    found = json.loads(run(*["sketch"] * 5, *few, "--json"))
    assert [one["confidence"] for one in found] == pytest.approx([0.99] * 5)
    assert run("sketch", *few).count("confidence") == 1
    assert run("sketch", "sketch", *few).endswith("All 2 jointly: 95% confidence.\n")
    assert "97.5% confidence" in run("sketch", "sketch", *few)


def test_a_confidence_beyond_one_is_refused():
    refused = CliRunner().invoke(command.main, ["sketch", "--confidence", "2"])
    assert refused.exit_code == 2
    assert "'--confidence': 2.0 is not in the range 0<x<1" in refused.stderr


def test_fast_or_expensive_subjects_are_selected_without_names(monkeypatch):
    attacked = []

    def record(subject, **options):
        attacked.append(subject)
        return Audit(subject, "", 1.0, 1e-3, 20, options["confidence"], (Point(1e-3, 1.0, 0.5),))

    monkeypatch.setattr(command, "run", record)
    run()
    assert {"release", "proposed-levels"} <= set(attacked)
    assert not EXPENSIVE.keys() & set(attacked)
    run("--expensive")
    assert sorted(attacked) == sorted(SUBJECTS)
    assert "name no SUBJECT" in CliRunner().invoke(command.main, ["sketch", "--expensive"]).stderr


def test_a_violated_claim_has_an_exit_code(monkeypatch):
    def broken(subject, **options):
        shown = 1.2 if subject == "release" else 0.4
        points = (Point(1e-3, 1.0, shown),)
        return Audit(subject, "", 1.0, 1e-3, options["runs"], options["confidence"], points)

    monkeypatch.setattr(command, "run", broken)
    text = run("sketch", "release", *FEW, code=5)
    assert "sketch: claim holds, ε ≥ 0.400 of 1.000" in text
    assert "release: claim VIOLATED, ε ≥ 1.200 of 1.000" in text
    assert not json.loads(run("release", *FEW, "--json", code=5))[0]["holds"]
    run("sketch", *FEW)
