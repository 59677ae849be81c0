"""A reader at work on the page: choices by keyboard and pointer, what is shown, what is saved."""

from __future__ import annotations

import csv
import io
import itertools
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import gaussmix as gm
from gaussmix._text import plain
from gaussmix.models.rendering import NOT_IDENTIFIED, notes, to_error
from gaussmix.report.label import as_svg
from gaussmix.report.page import render
from report_pages import EVIL

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")


@pytest.fixture
def tab(visit, private, page):
    return visit(private, page=page)


def names(tab):
    return [name.removesuffix(" †") for name in tab.locator("#coefficients tbody th").all_inner_texts()]


def shown(summary):
    return [to_error(value, summary.bse[name]) for name, value in summary.params.items()]


def intervals(summary, alpha=0.05):
    return [
        " to ".join(to_error(end, summary.bse[name]) for end in ends) for name, ends in summary.conf_int(alpha).items()
    ]


def column(tab, place, table="#coefficients"):
    return tab.locator(f"{table} tbody tr td:nth-child({place})").all_inner_texts()


def saved(tab, button):
    with tab.expect_download() as waiting:
        tab.locator(button).click()
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        return list(csv.reader(io.StringIO(file.read())))


def test_the_page_opens_with_the_response_that_is_named(tab, private):
    summary = private.ols("cost").summary()
    assert tab.locator("#response").input_value() == "cost"
    assert names(tab) == list(summary.params)
    assert column(tab, 2) == shown(summary)
    assert column(tab, 3) == intervals(summary)
    assert f"R² is about {summary.rsquared:.3f}" in tab.locator("#model-words").inner_text()
    assert tab.locator("#model-words").get_attribute("aria-live") == "polite"
    assert tab.locator("#drop-unidentified").is_hidden()
    assert tab.locator("#forest circle.estimate").count() == 6  # all but the intercept


def test_target_columns_and_level_are_chosen_by_keyboard(tab, private):
    tab.get_by_label("Response").focus()
    tab.keyboard.press("Home")
    assert "age on bmi, sex, region, smoker, cost" in tab.locator("#coefficients caption").inner_text()
    box = tab.locator("#predictors").get_by_label("region")
    box.focus()
    tab.keyboard.press("Space")
    assert not box.is_checked()
    assert box.evaluate("(box) => box === document.activeElement")  # the focus stays where it was
    assert names(tab) == ["(intercept)", "bmi", "sex=m", "smoker", "cost"]
    expected = private.ols("age", ["bmi", "sex", "smoker", "cost"]).summary()
    assert column(tab, 2) == shown(expected)
    tab.get_by_label("at level").select_option("0.01")
    assert column(tab, 3) == intervals(expected, 0.01)
    tab.get_by_role("button", name="None").click()
    assert names(tab) == ["(intercept)"]
    tab.get_by_role("button", name="All").click()
    assert len(names(tab)) == 7


def test_levels_are_merged_and_measured_from_another(tab, private):
    block = tab.locator('details[data-name="region"]')
    block.locator("summary").click()
    for level in ("south", "west"):
        block.get_by_label(level, exact=True).fill("elsewhere")
        tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.tagName") != "BODY"  # the focus went on
    assert "region=elsewhere" in names(tab)
    block.get_by_label("Reference level").select_option("elsewhere")
    assert "region=north" in names(tab)
    collapse, reference = {"region": {"elsewhere": ["south", "west"]}}, {"region": "elsewhere"}
    expected = private.ols("cost").summary(collapse=collapse, reference=reference)
    assert column(tab, 2) == shown(expected)
    said = tab.locator("#python").text_content()
    assert str(eval(said, {"release": private})) == str(expected)  # the same in Python
    assert block.evaluate("(block) => block.open")


def test_odds_ratios_and_populations(tab, private):
    tab.get_by_label("Response").select_option("sex")
    assert tab.locator("#scale").input_value() == "logit"
    tab.get_by_label("Response").select_option("smoker")
    tab.locator("#scale").select_option("logit")
    tab.get_by_label("Intervals are for").select_option("population")
    ratios = private.logit("smoker").odds_ratios(estimand="population")
    widths = {row["term"]: (row["conf.high"] - row["conf.low"]) / 4 for row in ratios.rows()}
    expected = [
        ">1000000"  # a draw of the release in which a level has few rows
        if row["odds.ratio"] > 1e6
        else to_error(row["odds.ratio"], width)
        if math.isfinite(width := widths[row["term"]])
        else f"{row['odds.ratio']:.4g}"
        for row in ratios.rows()
    ]
    assert column(tab, 2)[1:] == expected
    assert "Probability that smoker=true" in tab.locator("#prediction").inner_text()
    rows = saved(tab, "#save-coefficients")
    assert rows[0][-3:] == ["odds.ratio", "odds.ratio.low", "odds.ratio.high"]
    np.testing.assert_allclose([float(row[-3]) for row in rows[2:]], ratios.columns["odds.ratio"], rtol=1e-6)


def test_ratios_are_drawn_on_a_log_axis(tab, private):
    """Equal factors are equally far apart, 1 is the marked line, and an estimate lies at its logarithm."""
    tab.get_by_label("Response").select_option("cost")
    tab.locator("#scale").select_option("poisson")
    texts = tab.locator("#forest text.tick").all_text_contents()
    places = [float(tick.get_attribute("x")) for tick in tab.locator("#forest text.tick").all()]
    assert "1" in texts
    zero = float(tab.locator("#forest line.zero").get_attribute("x1"))
    assert zero == pytest.approx(places[texts.index("1")])
    logs = np.log([float(text) for text in texts])
    slope = (places[-1] - places[0]) / (logs[-1] - logs[0])
    assert (np.array(places) - zero) / slope == pytest.approx(logs, abs=0.006)  # ticks are printed with three digits
    smoker = private.poisson("cost").params["smoker"]
    names = [name for name in private.poisson("cost").params if name != "(intercept)"]
    centres = [float(circle.get_attribute("cx")) for circle in tab.locator("#forest circle").all()]
    assert centres[names.index("smoker")] == pytest.approx(zero + slope * smoker, rel=0.01)
    assert "rate ratio, log scale" in tab.locator("#forest").text_content()


def test_the_figure_shows_the_numbers_of_the_table(tab, private):
    """Per unit, and not across the declared range: ticks give the scale of the figure."""
    texts = [float(text) for text in tab.locator("#forest text.tick").all_text_contents()]
    places = [float(tick.get_attribute("x")) for tick in tab.locator("#forest text.tick").all()]
    slope = (places[-1] - places[0]) / (texts[-1] - texts[0])
    expected = [value for name, value in private.ols("cost").params.items() if name != "(intercept)"]
    centres = [float(circle.get_attribute("cx")) for circle in tab.locator("#forest circle").all()]
    assert centres == pytest.approx([places[0] + slope * (value - texts[0]) for value in expected], abs=0.01)
    assert "per unit or versus the reference, units of the response" in tab.locator("#forest").text_content()


def test_the_page_opens_with_the_predictors_that_are_named(visit, private):
    tab = visit(private, page=render(private, response="cost", predictors=["sex", "age"]))
    summary = private.ols("cost", ["age", "sex"]).summary()
    assert names(tab) == list(summary.params)
    assert column(tab, 2) == shown(summary)
    checked = [box.input_value() for box in tab.locator("#predictors input").all() if box.is_checked()]
    assert checked == ["age", "sex"]
    assert "and the predictors chosen by the publisher" in tab.locator("main").inner_text()
    with pytest.raises(gm.errors.ArgumentError, match="predictors must not contain the response 'cost'"):
        render(private, response="cost", predictors=["cost", "age"])


def test_the_allowance_for_clipping_is_stated_as_in_summaries(visit):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    copy = x + 0.05 * rng.standard_normal(20_000)
    y = x + 0.5 * rng.standard_normal(20_000)
    copy[:30] += 4 * rng.choice([-1, 1], 30)  # few rows tell nearly equal columns apart: norm clipping
    schema = {"x": [-10, 10], "copy": [-10, 10], "y": [-10, 10]}
    release = gm.release({"x": x, "copy": copy, "y": y}, schema, epsilon=3.0, delta=1e-6, random_state=0)
    (words,) = (note for note in notes(release.ols("y").summary()) if note.startswith("Standard errors are increased"))
    tab = visit(release, page=render(release, response="y"))
    assert words in tab.locator("#model-words").inner_text()


def test_near_separation_is_said_and_ticks_do_not_overlap(visit):
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0, 1, (2, 20_000))
    table = {"caught": x > 0.5, "x": x, "z": z, "same": x > 0.5}
    schema = {"caught": "boolean", "x": [0, 1], "z": [0, 1], "same": "boolean"}
    release = gm.release(table, schema=schema, epsilon=8.0, delta=1e-6, random_state=0)
    tab = visit(release, page=render(release, response="caught"), viewport={"width": 420, "height": 900})
    words = tab.locator("#model-words").inner_text()
    assert "The predictors nearly separate the response; remove " in words
    assert "same" in words.split("remove ")[1].split(".")[0]
    assert "z" not in words.split("remove ")[1].split(".")[0]
    assert not any("e+" in text for place in (1, 2) for text in column(tab, place + 1))
    boxes = [tick.bounding_box() for tick in tab.locator("#forest text.tick").all()]
    assert len(boxes) >= 2
    assert all(one["x"] + one["width"] < two["x"] for one, two in itertools.pairwise(boxes))
    tab.locator("#no-predictors").click()
    tab.locator("#predictors input[value=z]").check()
    assert "separate" not in tab.locator("#model-words").inner_text()


def test_a_row_is_typed_in(tab):
    before = tab.locator("#prediction").inner_text()
    tab.locator("#typed").get_by_label("age").fill("80")
    tab.locator("#typed").get_by_label("smoker").select_option("true")
    after = tab.locator("#prediction").inner_text()
    assert after != before
    assert after.startswith("Mean of cost: ")
    tab.locator("#predictors").get_by_label("sex").uncheck()
    assert tab.locator("#typed").get_by_label("age").input_value() == "80"  # what was typed stays
    tab.keyboard.press("Enter")  # sends nothing, goes nowhere
    tab.locator("#typed").get_by_label("bmi").fill("")
    assert tab.locator("#prediction").inner_text() == "Enter all numbers."


def test_dates_and_unknown_levels_are_typed_in(visit):
    rng, n = np.random.default_rng(0), 5000
    rows = {"born": rng.uniform(0, 365, n), "job": rng.choice(["a", "b", "c"], n), "y": rng.uniform(0, 1, n)}
    rows["born"] = np.datetime64("2000-01-01") + rows["born"].astype(int)
    schema = {
        "born": gm.Date("2000-01-01", "2000-12-31"),
        "job": {"levels": ["a", "b"], "unknown": "zero"},
        "y": [0, 1],
    }
    release = gm.release(rows, schema=schema, epsilon=5.0, delta=1e-6, random_state=0, passes=1)
    tab = visit(release, page=render(release, response="y"))
    tab.locator("#typed").get_by_label("born").fill("2000-03-01")
    tab.locator("#typed").get_by_label("job").select_option("(none of these)")
    row = {"born": [np.datetime64("2000-03-01")], "job": ["elsewhere"]}
    expected = release.ols("y").get_prediction(row)
    (low, high), error = expected.conf_int()[0], expected.se_mean[0]
    assert tab.locator("#prediction").inner_text() == (
        f"Mean of y: {to_error(expected.predicted_mean[0], error)}, "
        f"95 % interval {to_error(low, error)} to {to_error(high, error)}."
    )
    tab.get_by_label("Response").select_option("born")
    assert "days since 2000-01-01" in tab.locator("#prediction").inner_text()


def test_files_hold_all_digits(tab, private):
    tidy = private.ols("cost").tidy("pandas")
    head, *rows = saved(tab, "#save-coefficients")
    assert head == list(tidy.columns)
    assert [row[0] for row in rows] == tidy["term"].tolist()
    np.testing.assert_allclose(np.array([row[1:] for row in rows], float), tidy.iloc[:, 1:].to_numpy(float), rtol=1e-9)


def test_what_is_not_identified_is_said_and_left_out(visit, table):
    weak = gm.release(
        table.assign(rare=np.where(np.arange(len(table)) < 3, "yes", "no")),
        schema={"age": [0, 100], "rare": ["no", "yes"], "cost": [0, 20]},
        epsilon=0.3,
        delta=1e-6,
        random_state=1,
        passes=1,
    )
    tab = visit(weak)
    tab.get_by_label("Response").select_option("cost")
    tab.get_by_role("button", name="All").click()
    cells = dict(zip(names(tab), column(tab, 3), strict=True))
    assert cells["rare=yes"] == NOT_IDENTIFIED
    reason = weak.ols("cost").summary().left_out["rare=yes"]
    assert f"rare=yes: {reason}." in tab.locator("#left-out").inner_text()
    assert saved(tab, "#save-coefficients")[-1][1:3] == ["", ""]
    tab.get_by_role("button", name="Remove unidentified predictors").click()
    assert names(tab) == ["(intercept)", "age"]
    assert tab.locator("#drop-unidentified").is_hidden()


def test_the_reader_chooses_a_response_that_the_publisher_did_not_name(visit, private):
    tab = visit(private)
    assert tab.locator("#response option:checked").inner_text() == "(choose a response)"
    assert tab.locator("#model-results").is_hidden()
    assert tab.locator("#prediction-box").is_hidden()
    assert tab.locator("#model-error").inner_text() == ""
    assert tab.locator("#predictors input").count() == 0
    tab.get_by_role("button", name="All").click()  # changes nothing yet
    tab.get_by_label("Response").select_option("cost")
    summary = private.ols("cost").summary()
    assert names(tab) == list(summary.params)
    assert column(tab, 2) == shown(summary)
    assert tab.locator("#prediction-box").is_visible()


def test_a_model_that_cannot_be_computed_says_why(visit):
    rng = np.random.default_rng(0)
    rows = {"a": rng.uniform(0, 1, 2000), "b": rng.uniform(0, 1, 2000)}
    schema = {"columns": {"a": [0, 1], "b": [0, 1]}, "intercept": 0.0}
    release = gm.release(rows, schema=schema, epsilon=2.0, delta=1e-6, random_state=0, passes=1)
    tab = visit(release, page=render(release, response="a"))
    assert names(tab) == ["b"]
    assert tab.locator("#no-prediction").is_visible()  # no intercept
    tab.get_by_role("button", name="None").click()
    assert tab.locator("#model-error").inner_text() == "Choose at least one predictor: this release has no intercept."
    assert tab.locator("#model-results").is_hidden()
    assert tab.locator("#prediction-box").is_hidden()
    tab.get_by_role("button", name="All").click()
    assert tab.locator("#model-results").is_visible()
    assert tab.locator("#model-error").inner_text() == ""


HOSTILE = ["__proto__", "constructor", EVIL, '=cmd(), "quoted"\n\u202eright to left']


def test_any_name_is_only_a_name(visit):
    rng = np.random.default_rng(0)
    rows = {name: rng.choice(HOSTILE, 2000) for name in HOSTILE} | {"y": rng.uniform(0, 1, 2000)}
    schema = {name: {"levels": HOSTILE} for name in HOSTILE} | {"y": [0, 1]}
    release = gm.release(rows, schema=schema, epsilon=20.0, delta=1e-6, random_state=0, passes=1)
    tab = visit(release, page=render(release, title=EVIL, description=EVIL))
    assert tab.locator("img").count() == 0
    assert tab.locator("h1").inner_text() == tab.evaluate("(text) => text", plain(EVIL))
    tab.get_by_role("button", name="All").click()
    expected = [plain(name, lines=True) for name in release.ols("y").summary().params]
    predictors = [plain(name, lines=True) for name in HOSTILE]
    found = tab.evaluate(
        "(asked) => gaussmix.regress(asked).coefficients.map((row) => row.name)",
        {"response": "y", "predictors": predictors},
    )
    assert found == expected
    tab.locator("#levels details").first.locator("summary").click()
    tab.locator("#reference-0").select_option("constructor")
    assert "__proto__=constructor" not in tab.locator("#coefficients tbody th").all_inner_texts()
    files = saved(tab, "#save-coefficients")
    assert all(len(row) == 8 for row in files)
    assert any(row[0].startswith("'=cmd()") for row in files)
    assert tab.locator("#cross-6 tbody th").all_text_contents()[-2] == plain(HOSTILE[-1], lines=True)


def test_every_control_has_a_name_of_its_own(tab):
    tab.locator("#levels summary").first.click()
    named = tab.evaluate(
        """() => Array.from(document.querySelectorAll("main button, main select, main input"), (control) => [
            control.closest("details, fieldset, section").id || control.closest("details")?.ariaLabel || "",
            control.ariaLabel || control.labels?.[0]?.textContent || control.textContent])"""
    )
    assert all(name.strip() for _, name in named)
    assert len({tuple(pair) for pair in named}) == len(named)
    assert tab.evaluate("new Set(Array.from(document.querySelectorAll('[id]'), (one) => one.id)).size") == tab.evaluate(
        "document.querySelectorAll('[id]').length"
    )


def test_the_page_saves_the_label(visit, private, page):
    tab = visit(private, page=page, color_scheme="dark")
    with tab.expect_download() as waiting:
        tab.get_by_role("button", name="Save the label as SVG").click()
    with open(waiting.value.path(), encoding="utf-8") as file:
        assert "".join(ET.fromstring(file.read()).itertext()) == "".join(ET.fromstring(as_svg(private)).itertext())
    heading = tab.locator("svg.label text").first
    assert heading.evaluate("(text) => getComputedStyle(text).fill") == "rgb(27, 29, 33)"  # on white in the dark too
