"""``gaussmix ledger``: create, show, verify, export, and how they end."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner

from gaussmix import Ledger
from gaussmix.cli import main

RELEASE = {"shares": ["1"], "coordinates": [400]}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["ledger", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


@pytest.fixture
def spent(path):
    """A ledger of four planned releases, one of them made."""
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, releases=4)
    ledger.spend_account(ledger.lattice_account(**RELEASE), note="costs by région", file="gone.parquet")
    return ledger


def test_create_makes_what_python_makes(path, tmp_path):
    text = run("create", path, "--epsilon", 1, "--delta", "1e-6", "--releases", 4).stdout
    made = Ledger(path, epsilon=1.0, delta=1e-6, releases=4)  # the same arguments: it opens
    assert f"{path}: (1, 1e-06) for all releases together, add-remove; Gaussian-DP budget μ = 0.236" in text
    assert "4 releases planned" in text
    assert text.splitlines()[1] == f"remaining budget: {made.remaining()}"
    assert "4 more releases of the planned size" in text
    options = ("-e", 1, "-d", "1e-6", "--mu", 0.05, "--delta-slack", "1e-9", "--neighbours", "add-remove")
    joint = json.loads(run("create", tmp_path / "k.ledger", *options, "--json").stdout)
    assert joint["reserved"]["mu"] == 0.05
    assert joint["head"] == Ledger.open(tmp_path / "k.ledger").head


def test_create_never_replaces_and_refuses_what_cannot_be(path, tmp_path):
    run("create", path, "-e", 1, "-d", "1e-6")
    before = path.read_bytes()
    assert "a ledger cannot be replaced" in run("create", path, "-e", 1, "-d", "1e-6", code=2).stderr
    assert path.read_bytes() == before
    other = tmp_path / "other.ledger"
    for options, words in [
        (["-e", 0, "-d", "1e-6"], "epsilon must be a finite number > 0"),
        (["-e", 1, "-d", 2], "delta must lie in (0, 1)"),
        (["-e", 1, "-d", "1e-6", "--releases", 0], "releases must be an integer ≥ 1"),
        (["-e", 1, "-d", "1e-6", "--mu", 3], "at epsilon=1.0 and delta=1e-06"),
        (["-e", 1], "Missing option"),
    ]:
        assert words in run("create", other, *options, code=2).stderr
    assert not other.exists()
    assert (
        "does not exist. Create it first" in run("create", tmp_path / "no" / "x", "-e", 1, "-d", "1e-6", code=2).stderr
    )


def test_show_says_what_is_left_and_how_many_more_fit(path, spent):
    lines = run("show", path).stdout.splitlines()
    assert lines[0].startswith(
        f"{path}: (1, 1e-06) for all releases together, add-remove; Gaussian-DP budget μ = 0.236"
    )
    assert lines[0].endswith("δ reserved for discretisation 1e-09, 4 releases planned")
    assert "entry 1" in lines[1]
    assert "μ = 0.118" in lines[1]
    assert "(costs by région)" in lines[1]
    assert "file missing" in lines[1]
    assert lines[2] == f"remaining budget: {spent.remaining()}"
    assert lines[2].endswith(": 3 more releases of the planned size")
    assert lines[3] == f"digest: {spent.head}"
    found = json.loads(run("show", path, "--json").stdout)
    assert found["left"]["releases_left"] == 3
    assert found["reserved"]["releases"] == 4
    assert found["entries"][0]["state"] == "missing"


def test_verify_computes_anew_and_knows_older_copies(path, spent):
    text = run("verify", path).stdout
    assert f"{path}: valid." in text
    assert "(1, 1e-06)-differentially private (add-remove)" in text
    noted, copy = spent.head, path.read_bytes()
    spent.spend(mu=0.01)
    newer = spent.head
    for head in (noted, newer, newer.upper()):
        run("verify", path, "--head", head)
    found = json.loads(run("verify", path, "--json").stdout)
    assert (found["true"], found["entries"], found["head"]) == (True, 2, newer)
    path.write_bytes(copy)
    run("verify", path)
    assert "does not contain this digest" in run("verify", path, "--head", newer, code=5).stderr
    path.write_bytes(copy[: len(copy) // 2])
    for command in ("verify", "show", "export"):
        assert "is damaged" in run(command, path, code=5).stderr
    run("verify", path.with_name("none"), code=2)


def test_export_is_everything_that_was_recorded(path, spent, tmp_path):
    found = json.loads(run("export", path).stdout)
    assert found["reserved"]["mu"] == spent.reservation.mu
    assert found["head"] == spent.head
    (entry,) = found["entries"]
    assert entry["mu"] == spent.entries()[0].mu
    assert entry["time"] == spent.entries()[0].time.isoformat()
    assert entry["note"] == "costs by région"
    out = tmp_path / "record.json"
    result = run("export", path, "-o", out)
    assert result.stdout == ""
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert run("export", path, "-o", out, code=2).stdout == ""
    run("export", path, "-o", out, "--force")
    before = path.read_bytes()
    for name in (path, path.with_name(f"{path.name}-journal")):
        run("export", path, "-o", name, "--force", code=2)
    assert path.read_bytes() == before
