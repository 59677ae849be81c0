"""The response that a page opens with, and what is embedded in it: functions of the release alone."""

from __future__ import annotations

import base64

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.report import page as report
from gaussmix.report.page_data import embedded_release, first_response, needs_of_part, possible_responses
from report_pages import embedded, words


def test_the_page_opens_with_the_response_that_is_named(private):
    pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")
    page = report.render(private, response="cost")
    assert embedded(page)["response"] == "cost"
    assert "has the response chosen by the publisher" in words(page)
    page = report.render(private)
    assert embedded(page)["response"] is None
    assert "chosen by the publisher" not in words(page)
    assert "Choose the response and the predictors" in words(page)


def test_a_response_that_cannot_be_modelled_is_refused(monkeypatch, private):
    with pytest.raises(
        gm.ArgumentError, match=r"'costs' is not in the release\. Did you mean 'cost'\? The release has age"
    ):
        report.render(private, response="costs")
    with pytest.raises(gm.ArgumentError, match="category with two levels, got 'region'"):
        report.render(private, response="region")
    monkeypatch.setattr(report, "MOST_COLUMNS", 5)  # also where no model is computed
    with pytest.raises(gm.ArgumentError, match="Did you mean 'cost'"):
        report.render(private, response="costs")


def test_possible_responses_are_numbers_then_booleans_then_two_levels():
    declared = {"a": ["x", "y", "z"], "b": ["x", "y"], "c": "boolean", "d": {"lower": 0, "upper": 1}}
    for last, wanted in ((4, ["d", "c", "b"]), (3, ["c", "b"]), (2, ["b"]), (1, [])):
        schema = gm.Schema.of(dict(list(declared.items())[:last]))
        assert possible_responses(schema) == wanted
        assert first_response(schema) == (wanted[0] if len(wanted) == 1 else None)
    holes = gm.Schema.of({"d": {"lower": 0, "upper": 1, "missing": "indicator"}, "e": [0, 1]})
    assert possible_responses(holes) == ["e"]
    assert possible_responses(gm.Schema.of({"e": [0, 1]}, intercept=0.0)) == []  # no predictor, no intercept


def test_predictors_of_the_first_model_require_its_response(private):
    with pytest.raises(gm.ArgumentError, match="predictors requires response"):
        report.render(private, predictors=["age"])


def test_rare_levels_are_left_out_of_the_first_model(visit, table):
    sex = np.where(np.arange(len(table)) < 4, "x", np.where(np.arange(len(table)) < 8, "y", table["sex"]))
    schema = {**SCHEMA, "sex": {"levels": ["f", "m", "x", "y"]}}
    release = gm.release(table.assign(sex=sex), schema=schema, epsilon=1.0, delta=1e-6, random_state=0)
    tab = visit(release, page=report.render(release, response="cost"))
    names = tab.locator("#coefficients tbody th").all_inner_texts()
    summary = release.ols("cost").summary()
    assert [name.removesuffix(" †") for name in names] == list(summary.params)
    assert set(summary.left_out) == {"sex=x", "sex=y"}
    assert all(f"{name}: {why}." in tab.locator("#left-out").inner_text() for name, why in summary.left_out.items())


def test_a_release_without_a_possible_response_has_no_models():
    pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")
    alone = gm.release({"b": ["x"] * 50}, schema={"b": ["x", "y", "z"]}, epsilon=5.0, delta=1e-6, random_state=0)
    page = report.render(alone)
    assert embedded(page)["response"] is None
    assert "can be the response of a model" in words(page)


def test_matrices_are_embedded_bit_for_bit(private):
    found = embedded_release(private)["noisy"]
    noisy = private.statistic.noisy
    for name, matrix in (("moment", noisy.moment), ("shape", noisy.shape)):
        lower = np.frombuffer(base64.b64decode(found[name]), dtype="<f8")
        assert np.array_equal(lower, matrix[np.tril_indices(found["size"])])


def test_terms_bring_what_they_need():
    schema = gm.Schema.of(
        {"age": {"lower": 0, "upper": 99, "missing": "indicator"}, "sex": ["f", "m"], "y": [0, 1]},
        terms=["poly(age, 3)", "age:sex"],
    )
    assert needs_of_part(schema, "age") == ["age=(missing)"]
    assert needs_of_part(schema, "age^3") == ["age", "age^2", "age=(missing)"]
    assert needs_of_part(schema, "age:sex") == ["age", "sex", "age=(missing)"]
    assert needs_of_part(schema, "sex") == []


def test_a_release_too_wide_for_a_page_is_not_embedded(monkeypatch, private):
    pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")
    monkeypatch.setattr(report, "MOST_COLUMNS", 5)
    page = report.render(private)
    assert embedded(page)["release"] is None
    assert "too many for a page" in words(page)
    assert 'id="response"' not in page


def test_rows_of_a_sample_are_those_of_a_summary(private):
    summary = private.ols("cost").summary(estimand="population")
    assert embedded_release(private)["sample_rows"] == pytest.approx(summary.n_rows, rel=1e-12)
    assert embedded_release(private, 20_000)["sample_rows"] == 20_000
    weak = gm.release(patients(20), schema=SCHEMA, epsilon=0.05, delta=1e-6, random_state=0)
    with pytest.raises(gm.ArgumentError, match="less than two standard errors"):
        weak.ols("cost").summary(estimand="population")
    assert embedded_release(weak)["sample_rows"] is None
    table = pd.DataFrame({"x": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500), "w": 1.0, "id": np.arange(500)})
    budget = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0}
    weighted = gm.release(table, schema=gm.Schema.of({"x": [0, 1], "y": [0, 1], "w": [0, 2]}, weight="w"), **budget)
    persons = gm.release(table, schema={"x": [0, 1], "y": [0, 1]}, privacy_unit=gm.PrivacyUnit("id", 2), **budget)
    assert embedded_release(weighted, 500)["sample_rows"] is None
    assert embedded_release(persons, 500)["sample_rows"] is None


def test_typed_rows_start_at_the_means(private):
    parts = {part["name"]: part for part in embedded_release(private)["parts"]}
    means = {row["term"]: row["estimate"] for row in private.describe().rows() if row["statistic"] == "mean"}
    for name in ("age", "bmi", "cost"):
        assert parts[name]["typical"] == float(f"{means[name]:.3g}")
    assert "typical" not in parts["sex"]
