"""``gaussmix audit``: its exit code, its numbers, and the confidence of several audits together."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from audit import Audit, Point
from gaussmix.cli import audits, main
from gaussmix.cli.exits import NOT_PRIVATE

FEW = ["--runs", "20", "--processes", "1"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["audit", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_claims_that_hold(tmp_path):
    (found,) = json.loads(run("sketch", *FEW, "--json", "--plot", str(tmp_path / "audit.png")))
    assert (found["subject"], found["runs"], found["confidence"], found["holds"]) == ("sketch", 20, 0.95, True)
    assert [point["delta"] for point in found["points"]] == [0.001, 0.1, 0.03, 0.01]
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_several_subjects_share_what_may_fail():
    """Each of five audits fails with at most a hundredth: all of them together with a twentieth."""
    few = [*FEW, "--delta", "0.2"]
    found = json.loads(run(*["sketch"] * 5, *few, "--json"))
    assert [one["confidence"] for one in found] == pytest.approx([0.99] * 5)
    assert run("sketch", *few).count("confidence") == 1
    assert run("sketch", "sketch", *few).endswith("All 2 together: 95% confidence.\n")
    assert "97.5% confidence" in run("sketch", "sketch", *few)


def test_a_confidence_beyond_one_is_refused():
    refused = CliRunner().invoke(main, ["audit", "sketch", "--confidence", "2"])
    assert refused.exit_code == 2
    assert refused.stderr == "Error: confidence must lie in (0, 1), got 2.0.\n"


def test_a_broken_claim_has_an_exit_code(monkeypatch):
    def broken(subject, **options):
        shown = 1.2 if subject == "release" else 0.4
        points = (Point(1e-3, 1.0, shown),)
        return Audit(subject, "", "", 1.0, 1e-3, options["runs"], options["confidence"], points)

    monkeypatch.setattr(audits, "run", broken)
    assert NOT_PRIVATE == 5
    text = run("sketch", "release", *FEW, code=5)
    assert "sketch: holds." in text
    assert "release: BROKEN. ε ≥ 1.200 of 1.000" in text
    assert not json.loads(run("release", *FEW, "--json", code=5))[0]["holds"]
    run("sketch", *FEW)
