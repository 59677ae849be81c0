"""Several models in one table, and plots of coefficients."""

from __future__ import annotations

import math

import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.comparison import cell

BUDGET = {"epsilon": 3.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def release():
    return gm.release(patients(4000), schema=SCHEMA, **BUDGET)


@pytest.fixture(scope="module")
def models(release):
    return [release.ols("cost", ["age", "smoker"]), release.logit("smoker", ["age", "region"])]


def test_every_model_has_a_column_and_every_coefficient_a_row(models):
    found = gm.compare(models)
    assert list(found.columns) == ["term", "(1) cost", "(2) smoker=true"]
    assert found.columns["term"] == (
        "age", "smoker", "region=south", "region=west", "(intercept)", "family", "rows", "R²"
    )  # fmt: skip
    ols, logit = models
    rows = {row["term"]: row for row in found.rows()}
    assert rows["age"]["(1) cost"] == cell(ols.params["age"], ols.bse["age"])
    assert rows["smoker"]["(2) smoker=true"] == ""
    assert rows["family"]["(2) smoker=true"] == "logit"
    assert rows["R²"]["(1) cost"] == f"{ols.rsquared:.3f}"
    assert rows["R²"]["(2) smoker=true"] == f"{logit.prsquared:.3f}"


def test_ratios_have_intervals_and_other_models_keep_their_coefficients(models):
    found = gm.compare(models, names=["linear", "odds"], exponentiate=True)
    rows = {row["term"]: row for row in found.rows()}
    ratio = models[1].odds_ratios().rows()[0]
    expected = f"{ratio['odds.ratio']:.4g} [{ratio['conf.low']:.4g}, {ratio['conf.high']:.4g}]"
    assert rows["age"]["odds"] == expected
    assert rows["age"]["linear"] == cell(models[0].params["age"], models[0].bse["age"])


def test_text_latex_and_html_have_the_notes(models):
    found = gm.compare(models)
    words = "(2) smoker=true: Intervals are for the maximum-likelihood logistic coefficients of this table"
    assert words in found.as_text()
    assert words in found.as_html()
    latex = found.as_latex()
    assert "maximum-likelihood logistic coefficients" in latex
    assert latex.index(r"\footnotesize") > latex.index("family &")
    assert latex.splitlines()[-1] == r"\end{tabular}"
    assert found.as_csv().startswith("term,")
    assert found.to_frame("arrow").num_rows == len(found)


def test_a_void_guarantee_comes_first(models):
    seeded = gm.release(patients(4000), schema=SCHEMA, **BUDGET, random_state=0)
    found = gm.compare([models[0], seeded.ols("cost", ["age"])], names=["a", "b"])
    assert found.as_text().startswith("No privacy guarantee")
    assert found.as_latex().startswith("% No privacy guarantee")
    assert found.as_text().count("No privacy guarantee") <= 2


def test_bad_comparisons(models, release):
    for bad in ([], ["cost"], [release.mnlogit("region", ["age"])]):
        with pytest.raises(gm.ArgumentTypeError, match="list of fitted models"):
            gm.compare(bad)
    with pytest.raises(gm.ArgumentError, match="2 different entries"):
        gm.compare(models, names=["a", "a"])


def test_plots_show_estimates_and_intervals(models):
    pytest.importorskip("matplotlib").use("Agg")
    for model, exponentiate in ((models[0], False), (models[1], False), (models[1], True)):
        ax = model.plot(exponentiate=exponentiate, alpha=0.1)
        terms = [name for name in model.params if name != "(intercept)"]
        assert [label.get_text() for label in ax.get_yticklabels()] == terms
        shown = ax.lines[0].get_xdata()
        expected = [math.exp(model.params[name]) if exponentiate else model.params[name] for name in terms]
        assert list(shown) == pytest.approx(expected)
        assert ax.get_xscale() == ("log" if exponentiate else "linear")
        assert "90 % intervals" in ax.get_xlabel()
    with pytest.raises(gm.ArgumentError, match="not defined for the family 'linear'"):
        models[0].plot(exponentiate=True)
