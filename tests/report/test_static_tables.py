"""Tables that are written into the page: the numbers of the library, and what is left out is said."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from gaussmix.report import page as report
from gaussmix.report import page_data as tables
from gaussmix.report.page_data import static_tables
from report_pages import words


@pytest.fixture(scope="module")
def found(private):
    return static_tables(private, "cost", alpha=0.1)


def within_the_interval(text, value, low, high):
    """Whether a number is rounded by at most 5 % of the width of its interval."""
    return abs(float(text.replace(",", "")) - value) <= 0.05 * (high - low)


def test_the_description_has_the_numbers_of_the_library(private, found):
    expected = private.describe(alpha=0.1).columns
    assert [row[:2] for row in found.description.rows] == list(
        zip(expected["term"], expected["statistic"], strict=True)
    )
    assert found.description.head[-1] == "90 % interval"
    numbers = (expected[name] for name in ("estimate", "conf.low", "conf.high"))
    for row, estimate, low, high in zip(found.description.rows, *numbers, strict=True):
        if row[1] == "count":
            assert (row[2], row[4]) == (f"{estimate:,.0f}", f"{low:,.0f} to {high:,.0f}")
            continue
        for text, value in zip((row[2], *row[4].split(" to ")), (estimate, low, high), strict=True):
            assert within_the_interval(text, value, low, high), row
    assert any("describe the declared table" in note for note in found.description.notes)


def test_the_ends_of_a_short_interval_differ():
    years = {"year": np.random.default_rng(0).integers(1950, 2000, 20_000)}
    private = gm.release(years, {"year": [1890, 2010]}, epsilon=1, delta=1e-6, random_state=0)
    rows = {row[1]: row for row in static_tables(private, None, alpha=0.05).description.rows}
    low, high = rows["mean"][4].split(" to ")
    assert 0 < float(high) - float(low) < 2
    assert rows["count"][2].startswith(("19,", "20,"))
    [rows_in_text] = [line for line in private.describe().as_text().splitlines() if line.startswith("(rows)")]
    assert rows["count"][2] in rows_in_text.split()


def test_means_are_of_the_response_within_levels(private, found):
    expected = private.means("cost", "region", alpha=0.1).columns
    shown = {row[0]: row[1:] for row in found.means.rows}
    for label, mean, low, high in zip(*(expected[k] for k in ("region", "mean", "conf.low", "conf.high")), strict=True):
        ends = shown[f"region={label}"][2].split(" to ")
        for text, value in zip((shown[f"region={label}"][0], *ends), (mean, low, high), strict=True):
            assert within_the_interval(text, value, low, high), label
    assert set(shown) == {"sex=f", "sex=m", "smoker=false", "smoker=true", *(f"region={r}" for r in expected["region"])}
    assert static_tables(private, "sex", alpha=0.05).means is None  # a category has no mean
    assert static_tables(private, None, alpha=0.05).means is None


def test_correlations_are_a_lower_triangle_with_shades(private, found):
    expected = private.corr()
    assert found.correlations.names == expected.names
    for i, row in enumerate(found.correlations.rows):
        assert len(row) == i + 1
        for j, (text, shade) in enumerate(row):
            assert text == f"{expected.values[i, j]:z.2f}"
            assert shade.split() == [
                "below" if expected.values[i, j] < 0 else "above",
                f"shade-{round(9 * abs(expected.values[i, j]))}",
            ]


def test_cross_tables_are_those_of_the_library(private, found):
    for (one, two), table in zip(itertools.combinations(["sex", "region", "smoker"], 2), found.crosstabs, strict=True):
        expected = private.crosstab(one, two)
        head, *rows = expected.cells(0.1)
        assert table.head == tuple(head)
        assert table.rows == tuple(map(tuple, rows))
        assert table.notes == (str(expected.independence),)
    assert not any("are shown for the first" in note for note in found.notes)


def test_more_pairs_than_a_page_shows_are_said():
    names = [f"c{i}" for i in range(6)]
    rng = np.random.default_rng(0)
    rows = {name: rng.choice(["a", "b"], 2000) for name in names} | {"wide": rng.choice(300, 2000).astype(str)}
    schema = {name: ["a", "b"] for name in names} | {"wide": {"levels": [str(i) for i in range(300)]}}
    release = gm.release(rows, schema=schema, epsilon=5.0, delta=1e-6, random_state=0, passes=1)
    found = static_tables(release, None, alpha=0.05)
    pairs = list(itertools.combinations(names, 2))
    assert [table.caption.split(":")[0] for table in found.crosstabs] == [f"{a} by {b}" for a, b in pairs[:12]]
    said = " ".join(found.notes)
    assert "the first 12 of 15 pairs" in said
    assert "more than 100 levels or entries are omitted: wide" in said
    assert not any("wide" in row[0] for row in found.description.rows)


def test_many_columns_have_no_correlations(monkeypatch, private):
    monkeypatch.setattr(tables, "MOST_CORRELATED", 5)
    found = static_tables(private, None, alpha=0.05)
    assert found.correlations is None
    assert any("gaussmix corr" in note for note in found.notes)


def test_weighted_tables_and_privacy_units_are_said():
    table = pd.DataFrame({"x": np.linspace(0, 1, 500), "w": 1.0, "id": np.arange(500), "s": ["f", "m"] * 250})
    table["t"] = table["s"]
    budget = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0}
    declared = {"x": [0, 1], "s": ["f", "m"], "t": ["f", "m"]}
    weighted = gm.release(table, schema=gm.Schema.of({**declared, "w": [0, 2]}, weight="w"), **budget)
    found = static_tables(weighted, None, alpha=0.05)
    assert any("Rows are weighted: counts" in note for note in found.description.notes)
    persons = gm.release(table, schema=declared, privacy_unit=gm.PrivacyUnit("id", 1), **budget)
    found = static_tables(persons, None, alpha=0.05)
    assert len(found.crosstabs) == 1
    assert any("Contributions are bounded" in note for note in found.description.notes)
    pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")
    assert "Rows are weighted: counts" in words(report.render(weighted))
    assert "Contributions are bounded" in words(report.render(persons))


def test_tables_are_shown_without_scripts(visit, private, page):
    tab = visit(private, page=page, java_script_enabled=False)
    assert tab.locator("#description tbody tr").count() == len(private.describe())
    assert tab.locator("#cross-3").is_visible()
    row = tab.locator("#correlations tbody tr").last
    assert [float(text) for text in row.locator("td").all_inner_texts()] == [
        float(f"{r:.2f}") for r in private.corr().values[-1]
    ]
    assert row.locator("td").first.evaluate("(cell) => getComputedStyle(cell).backgroundColor") != "rgba(0, 0, 0, 0)"
    heads = tab.locator("#correlations thead th").all_text_contents()
    assert heads[1:] == [f"{place} {name}" for place, name in enumerate(private.corr().names, 1)]
    assert re.fullmatch(r"[\d,]+ ± [\d,]+", tab.locator("#cross-1 td").first.inner_text())
