"""The privacy label: what the certificate says, no number where nothing is guaranteed, and no name that is markup."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gaussmix as gm
from example_tables import SCHEMA
from gaussmix.cli import main
from gaussmix.report.label import as_svg, label_of
from gaussmix.report.statement import fields_of
from report_pages import EVIL

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_label_says_unit_budget_attack_and_conditions(private):
    label = label_of(private)
    lines = dict(label.lines)
    assert label.numbers == (("ε", "1"), ("δ", "3.3e-07"))
    assert lines["Privacy unit"] == "one row"
    assert lines["Neighbours"] == "add-remove: one row added or removed"
    assert lines["Covers"] == "this release"
    assert float(lines["μ (Gaussian DP)"]) == pytest.approx(private.certificate.account.mu, rel=0.01)
    assert float(lines["μ (Gaussian DP)"]) >= private.certificate.account.mu  # rounded up
    share = math.ceil(1000 * private.certificate.account.attack_power()) / 10
    assert lines["Attack power"] == f"at most {share:g} % at 5 % false positives"
    assert lines["Release"] == private.certificate.release
    stated = {field.name: field.value for field in fields_of(private, None, valid=True, file_sha256="ab")}
    assert (stated["Release"], stated["Content"], stated["File"]) == (lines["Release"], private.fingerprint, "ab")
    assert label.conditions[0].startswith("No condition voids")
    drawn = " ".join(texts(as_svg(private)))
    assert all(value in drawn for value in ("Privacy label", "3.3e-07", "one row", "Gaussian mechanism"))


def test_a_label_of_a_ledger_names_what_it_covers(table, tmp_path):
    ledger = gm.Ledger(tmp_path / "p.ledger", epsilon=1.0, delta=1e-6, releases=2)
    label = label_of(gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger)))
    lines = dict(label.lines)
    assert lines["Covers"] == "all releases of one ledger"
    assert lines["μ (Gaussian DP)"].endswith(", this release alone")
    assert any("ledger" in condition for condition in label.conditions)


@pytest.mark.parametrize("which", ["evil", "unprotected"])
def test_a_void_label_has_no_numbers(which, request):
    label = label_of(request.getfixturevalue(which))
    assert label.void
    assert label.numbers == ()
    assert not {"μ (Gaussian DP)", "Attack power", "Covers"} & set(dict(label.lines))
    assert label.conditions
    assert "ε " not in " ".join(texts(as_svg(request.getfixturevalue(which))))


def test_persons_with_a_hostile_name():
    rows = pd.DataFrame({"x": np.linspace(0, 1, 300), EVIL: np.arange(300) // 3})
    release = gm.release(rows, schema={"x": [0, 1]}, epsilon=1.0, delta=1e-6, privacy_unit=gm.PrivacyUnit(EVIL, 3))
    svg = as_svg(release)
    assert {element.tag for element in ET.fromstring(svg).iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "desc", "rect", "text")
    }
    assert dict(label_of(release).lines)["Privacy unit"].startswith("all rows with the same ")
    assert "onerror" in "".join(texts(svg))  # as text
    assert all(len(text) <= 60 for text in texts(svg))


def test_command_writes_the_label(private, tmp_path):
    private.save(tmp_path / "r.parquet")
    arguments = ["report", str(tmp_path / "r.parquet"), "--label", str(tmp_path / "label.svg")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert (tmp_path / "label.svg").read_text(encoding="utf-8") == as_svg(private)
    assert CliRunner().invoke(main, arguments).exit_code != 0  # it is there already
    assert CliRunner().invoke(main, [*arguments, "--force"]).exit_code == 0
