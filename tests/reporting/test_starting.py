"""The model that a page begins with, and what is embedded in it: functions of the release alone."""

from __future__ import annotations

import base64
import math

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.reporting import page as report
from gaussmix.reporting.embedding import embedded_release, needs_of_part
from gaussmix.reporting.starting import StartingModel, starting_model
from report_pages import embedded, words


def identified(release, start):
    summary = release.regress(start.target, list(start.on)).summary(merge=start.merge)
    return all(math.isfinite(low) for low, _ in summary.conf_int().values())


def test_the_last_of_the_well_explained_columns_is_taken(private):
    start = starting_model(private)
    assert start.target == "cost"
    assert start.on == ("age", "bmi", "sex", "region", "smoker")
    assert start.merge == {}
    assert starting_model(private, target="age").target == "age"
    with pytest.raises(gm.ArgumentError, match="not in the release"):
        starting_model(private, target="weight")


def test_what_is_not_identified_is_left_out_or_merged():
    """A level of three rows and a column that hardly varies: the model of all columns is not identified."""
    table = patients(20_000)
    region = table["region"].to_numpy().copy()
    region[:3] = "east"
    table["region"] = region
    rng = np.random.default_rng(1)
    table["flat"] = rng.uniform(0, 1, len(table))
    declared = {**SCHEMA, "region": {"levels": ["north", "south", "west", "east"]}, "flat": [0, 1000]}
    release = gm.release(table, schema=declared, epsilon=0.3, delta=1e-6, random_state=3, passes=1)
    whole = release.regress("cost").summary()
    assert not all(math.isfinite(low) for low, _ in whole.conf_int().values())
    start = starting_model(release, target="cost")
    assert identified(release, start)
    assert "flat" not in start.on
    assert {"age", "smoker"} <= set(start.on)
    assert "east" in start.merge["region"]["other"]


def test_where_nothing_is_identified_the_page_begins_all_the_same():
    release = gm.release(patients(50), schema=SCHEMA, epsilon=0.01, delta=1e-6, random_state=0)
    assert starting_model(release) is not None
    assert embedded(report.render(release))["start"]["target"] in SCHEMA


def test_categories_alone_begin_with_odds():
    rng = np.random.default_rng(0)
    rows = {"a": rng.choice(["x", "y", "z"], 500), "b": rng.choice(["x", "y"], 500)}
    schema = {"a": ["x", "y", "z"], "b": ["x", "y"]}
    release = gm.release(rows, schema=schema, epsilon=5.0, delta=1e-6, random_state=0, passes=1)
    assert starting_model(release) == StartingModel("b", ("a",), {})
    alone = gm.release({"b": rows["b"]}, schema={"b": ["x", "y"]}, epsilon=5.0, delta=1e-6, random_state=0, passes=1)
    assert starting_model(alone) is None
    assert "can be explained by others" in words(report.render(alone))


def test_matrices_are_embedded_bit_for_bit(private):
    found = embedded_release(private)["noisy"]
    noisy = private.statistic.noisy
    for name, matrix in (("moment", noisy.moment), ("shape", noisy.shape)):
        lower = np.frombuffer(base64.b64decode(found[name]), dtype="<f8")
        assert np.array_equal(lower, matrix[np.tril_indices(found["size"])])
    assert found["spread"] is None  # the shape again


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
    assert "too many for a page to compute with" in words(page)
    assert 'id="target"' not in page


def test_what_a_release_does_not_show_is_said():
    table = pd.DataFrame({"x": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500), "w": 1.0, "id": np.arange(500)})
    budget = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0}
    weighted = gm.release(table, schema=gm.Schema.of({"x": [0, 1], "y": [0, 1], "w": [0, 2]}, weight="w"), **budget)
    assert "weighted" in embedded_release(weighted)["no_tables"]
    persons = gm.release(table, schema={"x": [0, 1], "y": [0, 1]}, unit="id", rows_per_unit=1, **budget)
    assert "by person" in embedded_release(persons)["no_counts"]
    assert embedded_release(persons)["no_tables"] is None
    assert "by person" in words(report.render(persons))


def test_shortened_rows_are_said_beside_tables(private, page):
    shown = words(page)
    assert f"are shortened, by {private.statistic.shortened}." in shown
    once = gm.release(patients(500), schema=SCHEMA, epsilon=5.0, delta=1e-6, random_state=0, passes=1)
    assert "are shortened" not in words(report.render(once))
