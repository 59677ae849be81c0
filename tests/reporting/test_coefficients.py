"""Coefficients on the page: those of the summary, or none."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA
from gaussmix.models.rendering import NOT_IDENTIFIED
from gaussmix.reporting import page as report
from report_pages import embedded

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")


def test_models_are_those_of_the_summary(private, page):
    data = embedded(page)
    assert [model["target"] for model in data["models"]] == ["age", "bmi", "smoker", "cost"]
    summary = private.regress("cost").summary()
    rows = data["models"][-1]["rows"]
    assert [row["name"] for row in rows] == list(summary.params)
    np.testing.assert_allclose([row["estimate"] for row in rows], list(summary.params.values()))
    np.testing.assert_allclose([[row["low"], row["high"]] for row in rows], list(summary.conf_int().values()))
    age = next(row for row in rows if row["name"] == "age")
    assert age["span"] == 100
    assert age["interval_text"] == f"{age['low']:.4g} to {age['high']:.4g}"


def test_alpha_sets_the_level(private, page):
    other = report.render(private, alpha=0.2, targets=["cost"])
    assert "80 % interval" in other
    (model,) = embedded(other)["models"]
    wide = embedded(page)["models"][-1]["rows"]
    assert all(a["low"] > b["low"] and a["high"] < b["high"] for a, b in zip(model["rows"], wide, strict=True))


def test_what_is_not_identified_has_no_number(table):
    weak = gm.release(table, schema=SCHEMA, epsilon=0.002, delta=1e-6, random_state=1)
    (model,) = embedded(report.render(weak, targets=["cost"]))["models"]
    unknown = [row for row in model["rows"] if row["low"] is None]
    assert unknown
    for row in unknown:
        assert row["estimate"] is None
        assert (row["estimate_text"], row["interval_text"], row["range_text"]) == ("", NOT_IDENTIFIED, "")
    assert "R²" not in model["words"]


def test_signals_are_the_diagonal_of_the_second_moment(private, page):
    data = embedded(page)
    np.testing.assert_allclose([row["signal"] for row in data["signals"]], np.diagonal(private.second_moment))
    np.testing.assert_allclose([row["noise"] for row in data["signals"]], private.statistic.column_noise)
