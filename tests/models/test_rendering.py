"""Summaries as text, HTML, LaTeX and plain values: one table, four forms."""

from __future__ import annotations

import html
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from example_problems import draw, gram, problem
from example_tables import SCHEMA, patients
from gaussmix.models.rendering import NOT_IDENTIFIED, SKEWED, as_plain, coefficient_rows, in_latex, p_value, to_error
from gaussmix.models.results import ResultTable, summarise, tidy_table
from gaussmix.releases.noisy import NoisyMoment


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
    assert "Response: cost. Intervals for: this table" in text
    assert "region=west" in text
    assert "100 %" in text
    assert "</p><table><caption>Response: cost. Intervals for: this table</caption>" in summary.as_html()
    latex = summary.as_latex()
    assert latex.splitlines()[2] == r"\begin{tabular}{lrrrrrr}"  # after the guarantee and the weights of rows
    assert r"100 \%" in latex


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_every_form_has_the_same_numbers(summary, alpha):
    text, page, latex = summary.as_text(alpha), summary.as_html(alpha), summary.as_latex(alpha)
    for name, row in zip(summary.params, coefficient_rows(summary, alpha)[1:], strict=True):
        low, high = summary.conf_int(alpha)[name]
        error = summary.bse[name]
        assert row[:3] == [name, to_error(summary.params[name], error), to_error(error, error)]
        assert row[4:6] == [to_error(low, error), to_error(high, error)]
        assert next(line for line in text.splitlines() if line.startswith(name)).split() == " ".join(row).split()
        assert "<tr>" + "".join(f"<td>{cell.replace('<', '&lt;')}</td>" for cell in row) + "</tr>" in page
        assert " & ".join(cell.replace("%", r"\%").replace("<", r"\textless{}") for cell in row) in latex
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
    lost = json.loads(json.dumps(as_plain(unidentified), allow_nan=False))
    assert lost["coefficients"]["x0"] == dict.fromkeys(("coef", "std_err", "p", "interval")) | {"stands_for": []}
    assert lost["left_out"] == unidentified.left_out


def test_what_is_not_identified_is_said_and_not_numbered(unidentified):
    line = next(line for line in str(unidentified).splitlines() if line.startswith("x0"))
    assert NOT_IDENTIFIED in line
    assert NOT_IDENTIFIED in unidentified.as_html()
    assert NOT_IDENTIFIED in unidentified.as_latex()
    (_, row, _) = coefficient_rows(unidentified, 0.05)
    assert row == ["x0", "", "", "", NOT_IDENTIFIED, "", ""]
    text = str(unidentified)
    assert "The model contains only the identified columns, with 1 column left out at this budget." in text
    assert "Left out: x0, too little signal." in text
    assert "To identify more coefficients, use fewer predictors" in text
    assert math.isnan(unidentified.params["x0"])
    assert math.isnan(unidentified.bse["x0"])
    assert math.isnan(unidentified.pvalues["x0"])
    assert np.isnan(unidentified.conf_int()["x0"]).all()
    rows = {row["term"]: row for row in tidy_table(unidentified).rows()}
    assert all(math.isnan(value) for name, value in rows["x0"].items() if name != "term")
    assert tidy_table(unidentified).as_csv().splitlines()[1] == "x0,,,,,,,"
    assert unidentified.t_test("x0 - x1 = 0").pvalue == pytest.approx([math.nan], nan_ok=True)
    assert math.isnan(unidentified.f_test(["x0", "x1"]).pvalue)


def test_rare_levels_and_related_columns_are_listed():
    """x0 repeats most of x1, which has too little signal of its own; x2 is a rare level."""
    A = np.array([[1.0, 1.0, 0.0], [1.0, 1.05, 0.0], [0.0, 0.0, 0.2]])
    G_xx = 4000 * A @ A.T
    theta = np.array([0.4, 0.2, 0.1])
    y = G_xx @ theta
    G = np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + 30.0]])]])
    noisy = NoisyMoment(G, shape=np.diag([40.0, 40.0, 40.0, 1.0]))
    summary = summarise(problem(noisy, counts={"x2": (160.4, 56.6)}))
    assert summary.left_out == {
        "x2": "total row weight about 160 (SE 57): counted with the reference level",
        "x0": "too little signal after adjusting for x1",
    }
    assert summary.stands_for == {"x1": ("x0",)}
    text = str(summary)
    assert next(line for line in text.splitlines() if line.startswith("x1")).startswith("x1 †")
    assert "† x1 also absorbs the effect of x0, left out." in text
    assert "Left out: x2, total row weight about 160 (SE 57): counted with the reference level." in text
    assert as_plain(summary)["coefficients"]["x1"]["stands_for"] == ["x0"]


def test_what_is_printed_first(release):
    weak = gm.release(patients(400), schema=SCHEMA, epsilon=0.3, delta=1e-6, random_state=0)
    lines = str(weak.ols("cost").summary()).splitlines()
    assert lines[0].startswith("No privacy guarantee")
    removed = weak.statistic.clipping_loss
    words = f"high-leverage rows weighted below 1 (Release.weights; removed: {removed})."
    assert lines[1] == f"Estimated on the table with {words}"
    assert lines[2] == "Only the intercept is identified at this budget: all other columns were left out."
    assert lines[3] == "Response: cost. Intervals for: this table"
    assert str(release.ols("cost").summary()).splitlines()[2] == "Response: cost. Intervals for: this table"


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (12.34567, 0.0246, "12.346"),
        (12.34567, 0.0996, "12.346"),
        (12345.6, 123.0, "12350"),
        (-0.001, 3.0, "0.0"),
        (1.2345e-7, 2.1e-8, "1.23e-07"),
        (1.0, 0.0, "1"),
        (math.nan, math.nan, ""),
    ],
)
def test_digits_follow_the_standard_error(value, error, text):
    assert to_error(value, error) == text


def test_small_p_values_look_alike_in_every_table():
    table = ResultTable("t", {"term": ("x", "y"), "p.value": (5.3e-258, 0.0354), "conf.low": (1.0, math.nan)})
    assert [row[1] for row in table.cells()] == ["<1e-4", "0.0354"]
    assert "&lt;1e-4" in table.as_html()
    assert r"\textless{}1e-4" in table.as_latex()
    assert "5.3e-258" in table.as_csv()
    assert table.as_plain()["rows"][0]["p.value"] == table.to_frame("arrow").to_pylist()[0]["p.value"] == 5.3e-258


def test_titles_name_the_response_and_the_estimand(release):
    model = release.ols("cost", predictors=["age"])
    title = "Response: cost. Intervals for: the population"
    assert title in str(model.summary(estimand="population"))
    classes = release.mnlogit("region", ["age"]).summary()["west"]
    assert "Response: region=west against north. Intervals for: this table" in str(classes)


def test_ends_of_intervals_never_look_alike():
    table = ResultTable("t", {"term": ("x",), "ratio": (1.00002,), "conf.low": (1.00001,), "conf.high": (1.00003,)})
    assert table.as_text().splitlines()[4].split() == ["x", "1.0000200", "1.0000100", "1.0000300"]


def test_rows_of_a_population_are_named(release):
    model = release.ols("cost", predictors=["age"])
    assert "estimated from the release" in str(model.summary(estimand="population"))
    declared = str(model.summary(estimand="population", n_rows=20_000))
    assert "Sampling error is computed for 20,000 rows, assuming equal residual variances." in declared
    assert "Sampling error" not in str(model.summary())


def test_intervals_for_the_table_say_that_they_have_no_sampling_error(release):
    words = ' They do not include sampling error (estimand="population" adds it).'
    linear, logit = release.ols("cost", predictors=["age"]), release.logit("smoker", predictors=["age"])
    for model in (linear, logit):
        line = next(line for line in str(model.summary()).splitlines() if line.startswith("Intervals are for"))
        assert line.endswith(words + SKEWED * (model is logit))
        assert "not include sampling error" not in str(model.summary(estimand="population"))
    weighted = gm.release(
        {"x": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500), "w": np.ones(500)},
        schema=gm.Schema.of({"x": [0, 1], "y": [0, 1], "w": [0, 1]}, weight="w"),
        epsilon=5.0,
        delta=1e-6,
        random_state=0,
    )
    lines = str(weighted.ols("y").summary()).splitlines()
    assert next(line for line in lines if line.startswith("Intervals")).endswith("do not include sampling error.")


def test_only_tables_with_the_column_of_the_distribution_mention_it(release):
    model = release.logit("smoker", predictors=["cost", "age"])
    assert 'The column "distribution" is the standard error' in str(model.summary())
    assert 'The column "distribution"' in html.unescape(model.summary().as_html())
    for table in (model.odds_ratios(), gm.compare([model]), gm.compare([model], exponentiate=True)):
        assert "a distribution of the predictors with the second moments of the release." in str(table)
        assert 'column "distribution"' not in str(table)


def test_the_allowance_for_weights_is_stated_plainly(release):
    own = release.ols("cost").summary()
    noisy = replace(own._problem.noisy, clipping_bias=0.5, near_unweighted=False)
    summary = replace(own, _problem=replace(own._problem, noisy=noisy))
    words = (
        "Standard errors are increased by 12 % to allow for the difference between the weighted and the unweighted "
        "fit; the actual difference may be larger."
    )
    assert words in str(summary)


def test_names_are_escaped():
    rows = {"<b>&_": np.linspace(0, 1, 500), "y": np.linspace(0, 1, 500)[::-1]}
    release = gm.release(rows, schema={"<b>&_": [0, 1], "y": [0, 1]}, epsilon=5.0, delta=1e-6, random_state=0)
    summary = release.ols("y").summary()
    assert "&lt;b&gt;&amp;_" in summary.as_html()
    assert "<b>" not in summary.as_html()
    assert r"\textless{}b\textgreater{}\&\_" in summary.as_latex()


def test_latex_prints_every_character_as_it_is():
    rows = [["a^2", "<1e-4"], ["{x}", "~"], ["\\", "50 %"]]
    latex = in_latex(["", "p"], rows, ["x^2 < 1"])
    assert r"a\textasciicircum{}2 & \textless{}1e-4 \\" in latex
    assert r"\{x\} & \textasciitilde{} \\" in latex
    assert r"\textbackslash{} & 50 \% \\" in latex


def test_only_curved_models_say_that_intervals_are_not_symmetric(release):
    words = "allow for curvature, as p-values do"
    assert words in release.logit("sex").summary().as_text()
    assert words not in release.ols("cost").summary().as_text()


def test_classification_says_what_its_intervals_are_for(release):
    summary = release.logit("smoker", predictors=["cost", "age"]).summary()
    low, high = summary.conf_int()["cost"]
    assert 0 < low < high
    assert "Response: smoker=true. Intervals for: this table" in str(summary)
    assert "Intervals are for the maximum-likelihood logistic coefficients of this table" in str(summary)
    assert "a distribution of the predictors with the second moments of the release" in str(summary)
    assert any(line.endswith("privacy noise  distribution") for line in str(summary).splitlines())
    assert "R²" not in str(summary)


@pytest.mark.parametrize(
    ("p", "text"), [(0.5, "0.5"), (0.01234, "0.0123"), (9.9e-5, "<1e-4"), (0.0, "<1e-4"), (math.nan, "")]
)
def test_p_values(p, text):
    assert p_value(p) == text


def test_notebooks_show_release_certificate_and_models_as_html(release):
    model = release.ols("cost", predictors=["age"])
    assert model._repr_html_() == model.summary()._repr_html_() == model.summary().as_html()
    page = release._repr_html_()
    assert page.startswith("<p>No privacy guarantee")
    assert "<td>region</td><td>categorical</td><td>north, south, west</td>" in page
    assert page.endswith(release.certificate._repr_html_())
    assert "neighbours: add-remove" in page


def test_names_in_the_html_of_a_release_are_escaped():
    evil = "<script>alert(1)</script>"
    table = {evil: np.linspace(0, 1, 2000), "g": np.resize([evil, "b"], 2000)}
    found = gm.release(table, {evil: [0, 1], "g": [evil, "b"]}, epsilon=3.0, delta=1e-6, random_state=0)
    assert "<script" not in found._repr_html_()
    assert found._repr_html_().count("&lt;script&gt;") >= 2
