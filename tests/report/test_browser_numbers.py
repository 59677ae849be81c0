"""Numbers that the page computes in a browser are those of the library: to nine digits, of drawn rows to six."""

from __future__ import annotations

import math
from importlib import resources

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from scipy import special, stats

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.linear import Prediction
from gaussmix.report.page import render
from gaussmix.report.page_data import embedded_release

pytest.importorskip("jinja2", reason="the extra gaussmix[plots] is not installed")

DIGITS = 1e-9
DRAWN_DIGITS = 1e-6  # of generalised linear models, whose rows are drawn and whose equation is solved by iteration
OTHERS = ["age", "bmi", "sex", "region", "smoker"]
MERGED = {"region": {"elsewhere": ["south", "west"]}}


def same(found, expected, unit=0.0, digits=DIGITS):
    """Equal to some digits of the number, or of its standard error where that is larger."""
    found, expected = (np.array(values, dtype=float) for values in (found, expected))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    known = np.isfinite(expected)
    np.testing.assert_array_equal(found[~known], expected[~known])
    found, expected, unit = found[known], expected[known], np.broadcast_to(unit, expected.shape)[known]
    assert np.all(np.abs(found - expected) <= digits * np.maximum(np.abs(expected), unit)), (found, expected)


def same_p(found, expected, digits=DIGITS):
    """A p-value of t standard errors has as many digits less as t² has."""
    found, expected = np.array(found, dtype=float), np.array(expected)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    found, expected = found[~np.isnan(expected)], expected[~np.isnan(expected)]
    with np.errstate(divide="ignore"):
        allowed = digits * expected * (1 + 2 * np.abs(np.log(np.maximum(expected, 1e-300))))
    assert np.all(np.abs(found - expected) <= allowed + 1e-300), (found, expected)


def named(release, collapse):
    """What levels are called after merging, by category, as the page takes them."""
    found = {}
    for name, groups in collapse.items():
        new = {label: group for group, members in groups.items() for label in members}
        found[name] = [new.get(label, label) for label in release.schema.columns[name].labels]
    return found


def asked_of(release, asked):
    """A question in the words of the page."""
    collapse, population = asked.get("collapse", {}), asked.get("estimand") == "population"
    rows = asked.get("rows", embedded_release(release)["sample_rows"]) if population else None
    same = {key: asked[key] for key in ("response", "predictors", "reference", "scale", "alpha") if key in asked}
    return {**same, "levels": named(release, collapse), "rows": rows}


def regress(tab, release, asked):
    return tab.evaluate(
        """(asked) => {
            const { coefficients, summary } = gaussmix.regress(asked);
            return { rows: coefficients, rsquared: summary.rsquared, dominated: summary.dominated };
        }""",
        asked_of(release, asked),
    )


def compare(tab, release, asked):
    """One model in both, all numbers of its summary."""
    found = regress(tab, release, asked)
    scale = asked.get("scale", "linear")
    fit, digits = (release.ols, DIGITS) if scale == "linear" else (getattr(release, scale), DRAWN_DIGITS)
    # The page has a list of boxes: its coefficients have the order of the schema.
    given = asked["predictors"]
    model = fit(asked["response"], given and sorted(given, key=list(release.schema.parts).index))
    options = {key: asked[key] for key in ("collapse", "reference", "estimand") if key in asked}
    options |= {"n_rows": asked["rows"]} if "rows" in asked else {}
    summary, alpha = model.summary(**options), asked.get("alpha", 0.05)
    ends = list(summary.conf_int(alpha).values())

    def column(name):
        return [row[name] for row in found["rows"]]

    assert column("name") == list(summary.params)
    errors = np.array(list(summary.bse.values()))
    same(column("estimate"), list(summary.params.values()), errors, digits)
    same(column("error"), errors, digits=digits)
    same(column("low"), [low for low, _ in ends], errors, digits)
    same(column("high"), [high for _, high in ends], errors, digits)
    same([found["rsquared"]], [summary.rsquared], 1.0)
    assert found["dominated"] == summary.noise_dominates
    assert {row["name"]: tuple(row["standsFor"]) for row in found["rows"] if row["standsFor"]} == summary.stands_for
    assert [row["name"] for row in found["rows"] if not row["identified"]] == [
        name for name in summary.params if name in summary.left_out
    ]
    assert {row["name"]: row["reason"] for row in found["rows"] if row["reason"]} == summary.left_out
    same_p(column("p"), list(summary.pvalues.values()), digits)
    same(column("share"), list(summary.noise_share.values()), 1.0, digits)
    if scale != "linear":
        same(column("assumed"), list(summary.distribution_se.values()), errors, digits)
        ratios, name = (model.odds_ratios, "odds.ratio") if scale == "logit" else (model.rate_ratios, "rate.ratio")
        for row, own in zip(found["rows"][1:], ratios(alpha, **options).rows(), strict=True):
            expected = [own[key] for key in (name, "conf.low", "conf.high")]
            same([row["ratio"][key] for key in ("ratio", "low", "high")], expected, digits=10 * digits)
    return summary


# ---------------------------------------------------------------------------------------------------------------
# Models
ASKED = {
    "numbers and levels": {"response": "cost", "predictors": OTHERS},
    "merged": {
        "response": "cost",
        "predictors": OTHERS,
        "collapse": MERGED,
        "reference": {"region": "elsewhere", "sex": "m"},
    },
    "population": {"response": "age", "predictors": ["cost", "region"], "estimand": "population", "alpha": 0.01},
    "declared rows": {"response": "cost", "predictors": ["age", "smoker"], "estimand": "population", "rows": 20_000},
    "true and false": {"response": "smoker", "predictors": ["age", "bmi"]},
    "odds": {"response": "smoker", "predictors": ["age", "bmi", "sex", "region", "cost"], "scale": "logit"},
    "rates": {"response": "cost", "predictors": OTHERS, "scale": "poisson"},
    "rates of a population": {
        "response": "cost",
        "predictors": ["age", "region"],
        "scale": "poisson",
        "reference": {"region": "west"},
        "estimand": "population",
    },
    "levels alone": {"response": "smoker", "predictors": ["sex", "region"], "scale": "logit"},
    "odds of a level": {
        "response": "sex",
        "predictors": ["age", "cost", "region"],
        "scale": "logit",
        "collapse": MERGED,
        "estimand": "population",
    },
}
OF_ALL = ("numbers and levels", "declared rows", "odds")


@pytest.mark.parametrize(
    ("which", "name"),
    [("private", name) for name in ASKED] + [("weak", name) for name in OF_ALL],
)
def test_models_are_those_of_the_library(tabs, which, name):
    compare(*tabs(which), ASKED[name])


def test_columns_left_out_and_marks_are_those_of_the_library(tabs):
    """A rare level, the first level of a category rare, and two columns that are nearly the same."""
    tab, release = tabs("rare")
    for options in ({}, {"estimand": "population"}, {"collapse": {"job": {"z": ["a", "d"]}}}):
        summary = compare(tab, release, {"response": "y", "predictors": ["x", "twin", "z", "job"], **options})
        assert len(summary.left_out) < len(summary.params) - 2
        assert summary.stands_for
        if "collapse" not in options:
            assert "counted with the reference level" in summary.left_out["job=a"]
        assert not {"job=b"} & set(summary.params)  # by its rows the reference level, not the first one
    compare(tab, release, {"response": "flag", "predictors": ["x", "twin", "job"], "scale": "logit"})


def test_terms_weights_and_holes(tabs):
    tab, release = tabs("terms")
    on = ["experience", "experience^2", "sex", "experience:sex", "job"]
    compare(tab, release, {"response": "log(wage)", "predictors": on})
    compare(
        tab,
        release,
        {"response": "log(wage)", "predictors": on, "collapse": {"job": {"z": ["c", "d"]}}, "reference": {"job": "b"}},
    )
    compare(tab, release, {"response": "born", "predictors": ["log(wage)", "job"]})
    compare(
        tab, release, {"response": "sex", "predictors": ["experience", "experience^2", "log(wage)"], "scale": "logit"}
    )
    found = regress(tab, release, {"response": "log(wage)", "predictors": ["experience:sex"]})  # brings what it needs
    needed = {"experience", "sex=m", "experience:sex=m", "experience=(missing)", "(intercept)"}
    assert {row["name"] for row in found["rows"]} == needed
    refused = tab.evaluate(
        "(asked) => { try { gaussmix.regress(asked); } catch (error) { return error.message; } }",
        {"response": "born", "predictors": ["experience:sex"], "reference": {"sex": "m"}},
    )
    assert "require its first level" in refused


@pytest.mark.parametrize("which", ["private", "weak"])
def test_predictions_are_those_of_the_library(tabs, which):
    tab, release = tabs(which)
    row = {"age": 30, "bmi": 99, "sex": "f", "region": "south", "smoker": True}  # bmi beyond its bounds
    said = "([asked, row]) => gaussmix.predict(gaussmix.regress(asked), row)"
    found = tab.evaluate(said, [{"response": "cost", "predictors": OTHERS}, row])
    expected = release.ols("cost").get_prediction(pd.DataFrame([row]))
    same([found["mean"], found["error"]], [expected.predicted_mean[0], expected.se_mean[0]])
    same(found["interval"], expected.conf_int()[0])
    merged = release.ols("cost").summary(collapse=MERGED)
    levels = named(release, MERGED)
    found = tab.evaluate(said, [{"response": "cost", "predictors": OTHERS, "levels": levels}, row])
    values = {"(intercept)": 1, "age": 30, "bmi": 50, "region=elsewhere": 1, "smoker": 1}
    features = np.array([[values.get(name, 0.0) for name in merged.params]])
    expected = Prediction.of_link(merged._coefficients, features)
    same([found["mean"], *found["interval"]], [expected.predicted_mean[0], *expected.conf_int()[0]])
    asked, typed = {"response": "smoker", "predictors": ["age", "cost"], "scale": "logit"}, {"age": 40, "cost": 9}
    found = tab.evaluate(said, [asked, typed])
    expected = release.logit("smoker", ["age", "cost"]).get_prediction(pd.DataFrame([typed]))
    same([found["mean"], found["error"]], [expected.predicted_mean[0], expected.se_mean[0]], digits=DRAWN_DIGITS)
    same(found["interval"], expected.conf_int()[0], digits=DRAWN_DIGITS)


def test_models_that_noise_dominates_are_those_of_the_library(browser):
    """A release in which one response has no mean above 0, one model does not beat the mean, and others do."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({f"x{i}": rng.uniform(-1, 1, 3000) for i in range(8)})
    rows["b"] = rng.random(3000) < special.expit(rows["x0"] - 1.5)
    rows["rare"] = rng.random(3000) < 0.001
    rows["c"] = np.minimum(rng.poisson(np.exp(0.3 * rows["x0"])), 20).astype(float)
    schema = {**{f"x{i}": [-3, 3] for i in range(8)}, "b": "boolean", "rare": "boolean", "c": [0, 20]}
    found, hidden, tab = set(), 0, browser.new_page()
    for seed in range(2):
        release = gm.release(rows, schema=schema, epsilon=0.3, delta=1e-6, random_state=seed)
        tab.set_content(render(release))
        for response, scale in (("b", "logit"), ("rare", "logit"), ("c", "poisson")):
            asked = {"response": response, "predictors": ["x0", "x1"], "scale": scale}
            summary = compare(tab, release, asked)
            found.add(summary.noise_dominates)
            hidden += math.isnan(summary.params["(intercept)"])
    tab.close()
    assert True in found
    assert hidden


# ---------------------------------------------------------------------------------------------------------------
# Size and time
def test_thirty_columns_are_small_and_quick(visit, wide):
    page = render(wide, response="x29")
    assert len(page.encode()) <= 400_000
    tab = visit(None, page=page)
    asked = {"response": "x29", "predictors": [f"x{i}" for i in range(29)]}
    assert len(compare(tab, wide, asked).params) == 30
    times = tab.evaluate(
        """(asked) => Array.from({ length: 7 }, () => {
            const start = performance.now();
            gaussmix.regress(asked);
            return performance.now() - start;
        })""",
        asked,
    )
    assert min(times) <= 200  # milliseconds; other processes only add to them


# ---------------------------------------------------------------------------------------------------------------
# Parts
def in_scripts(browser, names, body):
    """A value from parts of the page's script alone."""
    folder = resources.files("gaussmix.report").joinpath("templates", "scripts")
    text = "".join(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in names)
    tab = browser.new_page()
    try:
        return tab.evaluate(f"(() => {{ {text}\n{body} }})()")
    finally:
        tab.close()


def test_tails_and_critical_values(browser):
    z = [*np.linspace(-38, 8, 300).tolist(), -1e-9, 0.0, 2.828427124746, 2.8284271247462]
    levels = [1e-12, 0.001, 0.05, 0.6, 0.999]
    body = f"return [{z}.map(cdf), {levels}.map((level) => critical(level))];"
    tails, quantiles = in_scripts(browser, ["normal"], body)
    np.testing.assert_allclose(tails, special.ndtr(z), rtol=1e-12, atol=1e-310)
    np.testing.assert_allclose(quantiles, stats.norm.isf(np.array(levels) / 2), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", ["spread", "graded", "equal", "opposite", "singular"])
def test_factorisations(browser, kind):
    rng = np.random.default_rng(5)
    d = 12
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = {
        "spread": rng.standard_normal(d),
        "graded": 10.0 ** -np.arange(d),
        "equal": np.repeat([1.0, 2.0, 3.0], 4),
        "opposite": np.repeat([-2.0, -1.0, 1.0, 2.0], 3),
        "singular": np.append(np.zeros(3), rng.uniform(1, 2, d - 3)),
    }[kind]
    A = basis * values @ basis.T
    A = (A + A.T) / 2
    B = np.eye(d) + 0.1 * rng.standard_normal((d, d))
    N = B @ B.T
    body = f"""const read = (rows) => rows.map((row) => Float64Array.from(row));
        const A = read({A.tolist()}), N = read({N.tolist()}), found = weakest(A, N), alone = weakest(A, identity({d}));
        const nine = map(identity({d}), (value) => 9 * value), plain = (M) => M.map((row) => Array.from(row));
        return [[found.value, alone.value], Array.from(found.vector), plain(solve(add(A, nine), A))];"""
    (least, alone), u, solved = map(np.array, in_scripts(browser, ["algebra"], body))
    exact = {"rtol": 0, "atol": 1e-12}
    np.testing.assert_allclose(alone, values.min(), **exact)
    np.testing.assert_allclose(least, scipy.linalg.eigh(A, N, eigvals_only=True)[0], **exact)
    np.testing.assert_allclose(A @ u, least * (N @ u), rtol=0, atol=1e-9)
    assert u @ N @ u == pytest.approx(1)
    np.testing.assert_allclose(solved, np.linalg.solve(A + 9 * np.eye(d), A), **exact)


# ---------------------------------------------------------------------------------------------------------------
# Releases
@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        0.3 * rng.standard_normal((20_000, 30)) @ rng.standard_normal((30, 30)), columns=[f"x{i}" for i in range(30)]
    )
    return gm.release(
        table, schema={name: [-5, 5] for name in table}, epsilon=2.0, delta=1e-6, random_state=0, passes=1
    )


@pytest.fixture(scope="module")
def terms():
    rng, n = np.random.default_rng(0), 20_000
    table = pd.DataFrame(
        {
            "wage": rng.uniform(60, 9000, n),
            "experience": np.where(rng.random(n) < 0.1, math.nan, rng.uniform(0, 60, n)),
            "sex": rng.choice(["f", "m"], n),
            "born": rng.uniform(0, 20_000, n),
            "job": rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05]),
            "w": rng.uniform(0, 3, n),
        }
    )
    schema = gm.Schema.of(
        {
            "wage": [50, 20_000],
            "experience": {"lower": -4, "upper": 63, "missing": "indicator"},
            "sex": ["f", "m"],
            "born": [0, 21_915],
            "job": {"levels": list("abcd"), "unknown": "other"},
            "w": [0, 3],
        },
        terms=["log(wage)", "poly(experience, 2)", "experience:sex", "spline(born, 4)"],
        only_in_terms=["wage"],
        weight="w",
    )
    return gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0)


def rare():
    rng, n = np.random.default_rng(0), 6000
    x, z = rng.uniform(0, 1, (2, n))
    job = rng.choice(list("abcd"), n, p=[0.005, 0.7, 0.29, 0.005])
    y = 0.5 * x + 0.2 * z + 0.1 * (job == "c") + rng.uniform(0, 0.1, n)
    table = pd.DataFrame({"x": x, "twin": (x + 0.01 * rng.standard_normal(n)).clip(0, 1), "z": z, "job": job, "y": y})
    table["flag"] = table.y + rng.normal(0, 0.3, n) > 0.4
    schema = {"x": [0, 1], "twin": [0, 1], "z": [0, 1], "job": list("abcd"), "y": [0, 1], "flag": "boolean"}
    return gm.release(table, schema=schema, epsilon=2.0, delta=1e-6, random_state=0, passes=1)


@pytest.fixture(scope="module")
def tabs(browser, private, table, terms):
    """A page of each release, opened once: what is computed leaves it as it was."""
    budget = {"schema": SCHEMA, "delta": 1e-6, "random_state": 0}
    releases = {
        "private": private,
        "terms": terms,
        "weak": gm.release(patients(3000), epsilon=0.05, **budget),
        "rare": rare(),
    }
    opened = {}

    def tab(which):
        if which not in opened:
            opened[which] = browser.new_page()
            opened[which].set_content(render(releases[which]))
        return opened[which], releases[which]

    return tab
