"""Summaries as text, HTML, LaTeX and plain values: one table, four forms."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import gaussmix as gm
from example_problems import draw, draw_in_metric, gram
from example_tables import SCHEMA, patients
from gaussmix.models.rendering import NOT_IDENTIFIED, as_plain, coefficient_rows, p_value
from gaussmix.models.results import summarise


@pytest.fixture(scope="module")
def release():
    return gm.release(patients(20_000), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def summary(release):
    return release.ols("cost", predictors=["age", "region"]).summary()


@pytest.fixture(scope="module")
def unidentified():
    return summarise(draw(gram([0.01, 50.0], np.array([1.0, 1.0])), 0.1, np.random.default_rng(0)))


def test_tables_in_three_formats(summary):
    text = str(summary)
    assert "cost: table" in text
    assert "region=west" in text
    assert "100 %" in text
    assert "</p><table><caption>cost: table</caption>" in summary.as_html()
    latex = summary.as_latex()
    assert latex.splitlines()[1] == r"\begin{tabular}{lrrrrrr}"
    assert r"100 \%" in latex


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_every_form_has_the_same_numbers(summary, alpha):
    text, page, latex = summary.as_text(alpha), summary.as_html(alpha), summary.as_latex(alpha)
    for name, row in zip(summary.params, coefficient_rows(summary, alpha), strict=True):
        low, high = summary.conf_int(alpha)[name]
        assert row[:3] == [name, f"{summary.params[name]:.4g}", f"{summary.bse[name]:.3g}"]
        assert row[4:6] == [f"{low:.4g}", f"{high:.4g}"]
        assert next(line for line in text.splitlines() if line.startswith(name)).split() == " ".join(row).split()
        assert "<tr>" + "".join(f"<td>{cell.replace('<', '&lt;')}</td>" for cell in row) + "</tr>" in page
        assert " & ".join(cell.replace("%", r"\%") for cell in row) in latex
    assert f"[{alpha / 2:g}" in text


def test_plain_values_are_json(summary, unidentified):
    plain = json.loads(json.dumps(as_plain(summary, 0.1), allow_nan=False))
    assert (plain["estimand"], plain["rsquared"]) == ("table", summary.rsquared)
    assert list(plain["coefficients"]) == list(summary.params)
    age = plain["coefficients"]["age"]
    assert age["coef"] == summary.params["age"]
    assert age["std_err"] == summary.bse["age"]
    assert age["p"] == summary.pvalues["age"]
    assert tuple(age["interval"]) == summary.conf_int(0.1)["age"]
    assert as_plain(unidentified)["coefficients"]["x0"]["interval"] is None


def test_what_is_not_identified_is_said_and_not_numbered(unidentified):
    line = next(line for line in str(unidentified).splitlines() if line.startswith("x0"))
    assert NOT_IDENTIFIED in line
    assert NOT_IDENTIFIED in unidentified.as_html()
    assert NOT_IDENTIFIED in unidentified.as_latex()
    (row, _) = coefficient_rows(unidentified, 0.05)
    assert row[1:3] == ["", ""]
    assert "Not identified: use fewer predictors" in str(unidentified)


def test_what_relies_on_the_assumption_is_marked():
    G = gram([60.0, 0.5], np.array([0.5, 0.3]))
    weak = draw_in_metric(G, np.eye(3), np.random.default_rng(0), reach=np.ones(2), counts={"x1": (-3.0, 1.4)})
    summary = summarise(weak, max_effect=1.5)
    assert summary.bound_dependent["x0"]
    row = next(line for line in str(summary).splitlines() if line.startswith("x0"))
    assert row.endswith("100 % *")
    assert r"100 \% *" in summary.as_latex()
    assert "more than 1.5 times the response's declared range across its own declared range (max_effect=1.5)" in str(
        summary
    )
    assert "Least-identified contrast: x1, about 0 rows, SE 1 (signal-to-noise " in str(summary)
    plain = as_plain(summary)
    assert plain["coefficients"]["x0"]["bound_dependent"]
    assert (plain["max_effect"], plain["least_identified"]) == (1.5, "x1, about 0 rows, SE 1")
    strong = summarise(draw_in_metric(gram([900.0, 600.0], np.array([0.5, 0.3])), np.eye(3), np.random.default_rng(0)))
    assert "*" not in str(strong)
    assert "max_effect" not in str(strong)


def test_rows_of_a_population_are_named(release):
    model = release.ols("cost", predictors=["age"])
    assert "estimated from the release" in str(model.summary(estimand="population"))
    assert "Sampling error is computed for 20,000 rows." in str(model.summary(estimand="population", n_rows=20_000))
    assert "Sampling error" not in str(model.summary())


def test_names_are_escaped():
    rows = {"<b>&_": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500)[::-1]}
    release = gm.release(rows, schema={"<b>&_": [0, 1], "y": [0, 1]}, epsilon=5.0, delta=1e-6, random_state=0)
    summary = release.ols("y").summary()
    assert "&lt;b&gt;&amp;_" in summary.as_html()
    assert "<b>" not in summary.as_html()
    assert r"<b>\&\_" in summary.as_latex()


def test_classification_says_what_its_intervals_are_for(release):
    summary = release.logit("smoker", predictors=["cost", "age"]).summary()
    low, high = summary.conf_int()["cost"]
    assert 0 < low < high
    assert "smoker = True" in str(summary)
    assert "discriminant coefficients of this table, on the scale of log odds" in str(summary)
    assert "differ from maximum likelihood by more than these intervals show" in str(summary)
    assert "R²" not in str(summary)


@pytest.mark.parametrize(
    ("p", "text"), [(0.5, "0.5"), (0.01234, "0.0123"), (9.9e-5, "<1e-4"), (0.0, "<1e-4"), (math.nan, "")]
)
def test_p_values(p, text):
    assert p_value(p) == text
