"""``gaussmix sites``: studies, keys, plans, and releases by exchanging files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.mechanism.sites import Study

SCHEMA = {"age": [18, 95], "cost": [0, 20]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    rng = np.random.default_rng(0)
    for site in (1, 2):
        age = rng.uniform(18, 95, 500)
        pd.DataFrame({"age": age, "cost": 0.1 * age + rng.uniform(0, 5, 500)}).to_csv(f"rows{site}.csv", index=False)
    return tmp_path


def gaussmix(*arguments, code=0):
    found = CliRunner().invoke(main, ["sites", *map(str, arguments)])
    assert found.exit_code == code, found.output
    return found


NEW = ["new", "--name", "Hospitals", "-s", "schema.json", "-e", 1, "-d", 1e-6, "-o", "study.toml"]
SITES = ["--site", "North=127.0.0.1:7001", "--site", "South=127.0.0.1:7002"]
THREE = [*SITES, "--site", "West=127.0.0.1:7003"]


def test_a_study_is_written_and_planned(folder):
    written = gaussmix(*NEW, *THREE, "-t", 1, "--privacy-unit", "id", "--max-contributions", 3, "--passes", 2)
    study = Study.read("study.toml")
    assert study.hash in written.output
    assert "noise 1.22 times" in written.output
    assert (study.passes, study.privacy_unit) == (2, gm.PrivacyUnit("id", 3))
    printed = gaussmix("plan", "study.toml").output
    assert "against any one site: (1, 1e-06), μ = 0.2367 (charged to each ledger)" in printed
    assert "against outsiders: (0.804, 1e-06)" in printed
    values = json.loads(gaussmix("plan", "study.toml", "--json").stdout)
    assert values["noise_ratio"] == pytest.approx(1.5**0.5)
    assert values["study"] == study.hash
    gaussmix(*NEW, *THREE, "-t", 1, code=2)  # the file exists


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*NEW, *THREE, "-t", 2], "colluding must be 1"),
        ([*NEW, *SITES, "--site", "South=1.1.1.1:1", "-t", 1], "different name"),
        ([*NEW, *SITES, "--site", "West", "-t", 1], "NAME=HOST:PORT"),
        ([*NEW, *SITES, "--site", "West=nowhere", "-t", 1], "host:port"),
        ([*NEW, *THREE, "-t", 1, "--table", "age"], "two columns"),
        ([*NEW, *THREE, "-t", 1, "--sites-per-unit", 4], "sites_per_unit"),
        ([*NEW[:-1], "study.json", *THREE, "-t", 1], "wrong suffix"),
        ([*NEW[:5], "-e", 1e-9, "-d", 1e-6, "-o", "study.toml", *THREE, "-t", 1], "epsilon"),
    ],
)
def test_wrong_studies_are_refused(folder, arguments, words):
    assert words in gaussmix(*arguments, code=2).output
    assert not (folder / "study.toml").exists()


def test_keys_are_made_once(folder):
    gaussmix(*NEW, *THREE, "-t", 1)
    assert "Send this file to all other sites" in gaussmix("keys", "study.toml", "--site", 2).output
    assert (folder / "study.keys" / "site2.key").stat().st_mode & 0o777 == 0o600
    gaussmix("keys", "study.toml", "--site", 2, code=2)
    gaussmix("keys", "study.toml", "--site", 4, code=2)
    gm.Ledger("l.ledger", epsilon=2.0, delta=1e-5)
    run = ["run", "study.toml", "--site", 2, "rows1.csv", "--ledger", "l.ledger", "-o", "joint.parquet"]
    assert "certificate of site 1" in gaussmix(*run, code=2).output
    assert not gm.Ledger.open("l.ledger").entries()


def test_a_trusted_curator_exchanges_files(folder):
    gaussmix(*NEW, *SITES, "-t", 0, "--passes", 2)
    assert "the noise of one pooled table" in gaussmix("plan", "study.toml").output
    gm.Ledger("l.ledger", epsilon=2.0, delta=1e-5)
    for number in range(1, 20):
        found = CliRunner().invoke(main, ["sites", "collect", "study.toml", "exchange", "-o", "joint.parquet"])
        if found.exit_code == 0:
            break
        assert found.exit_code == 6
        request = f"exchange/request-{number:02}.json"
        assert f"Missing in exchange: request-{number:02}.site1.sums" in found.output
        gaussmix("answer", "study.toml", request, "--site", 1, "rows1.csv", "--ledger", "l.ledger")
        gaussmix("answer", "study.toml", request, "--site", 2, "rows2.csv")
    assert number == 5
    assert gm.load("joint.parquet").certificate.epsilon == 1.0
    assert len(gm.Ledger.open("l.ledger").entries()) == 1


@pytest.mark.slow
def test_the_demonstration(folder):
    printed = gaussmix("demo", "--out", "demo").output
    assert "the same file at every site: yes" in printed
    assert "least squares on pooled" in printed
    gaussmix("demo", "--out", "demo", code=2)
