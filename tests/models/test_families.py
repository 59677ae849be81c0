"""A family is a value: summaries, tables and words follow from it, without a branch anywhere else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.errors import ArgumentError
from gaussmix.models import FAMILIES
from gaussmix.models.families import LINEAR, Family, Scale, registration
from gaussmix.models.results import Fitted, glance_table, ratio_table, summarise, tidy_table


def halves(problem, fit):
    """β = b/2, without errors."""
    d = len(fit.theta)
    return Scale(2.0, np.zeros(d), np.zeros((1 + d, 1 + d)), np.zeros((1 + d, 1 + d)), np.zeros((d, 1 + d)))


TOY = Family(
    name="toy",
    link="log",
    intervals_are_for={"table": "half of the least-squares coefficients"},
    refusal="The toy family is for tables alone.",
    notes=("Halves are for tests.",),
    clipping_note="Clipping halves them again.",
    remedy="take another family.",
    ratio="toy ratio",
    scale=halves,
)


@pytest.fixture(scope="module", params=[math.inf, 3.0], ids=["no noise", "noise"])
def problem(request):
    release = gm.release(patients(3000), schema=SCHEMA, epsilon=request.param, delta=1e-6, random_state=0)
    return release.ols("cost", ["age", "smoker", "sex"]).problem()


def test_coefficients_and_intervals_are_on_the_scale_of_the_family(problem):
    own, toy = summarise(problem), summarise(replace(problem, family=TOY))
    assert (own.family, toy.family) == (LINEAR, TOY)
    for name, value in own.params.items():
        assert toy.params[name] == pytest.approx(value / 2)
        assert toy.conf_int()[name] == pytest.approx(np.array(own.conf_int()[name]) / 2, rel=1e-6)
        assert toy.bse[name] == pytest.approx(own.bse[name] / 2)
        assert toy.pvalues[name] == pytest.approx(own.pvalues[name])


def test_words_and_tables_follow_the_family(problem):
    own, toy = summarise(problem), summarise(replace(problem, family=TOY))
    for text in (str(toy), toy.as_html(), str(tidy_table(toy))):
        weights = ", with these row weights" * bool(toy.row_weights)
        assert f"Intervals are for half of the least-squares coefficients{weights}." in text
        assert "Halves are for tests." in text
        assert ("Clipping halves them again." in text) == (toy.clipping_loss is not None)
        assert "R² =" not in text
    assert "R² =" in str(own)
    (row,) = glance_table(toy, None).rows()
    assert math.isnan(row["r.squared"])
    assert math.isnan(row["sigma"])
    (row,) = glance_table(own, None).rows()
    assert math.isfinite(row["r.squared"])
    assert math.isfinite(row["sigma"])


def test_ratios_are_exponentials_under_the_name_of_the_family(problem):
    toy = summarise(replace(problem, family=TOY))
    found = ratio_table(toy)
    assert found.title == "cost: toy ratios, 95 % intervals"
    assert list(found.columns) == ["term", "toy.ratio", "conf.low", "conf.high", "p.value"]
    for row in found.rows():
        assert row["toy.ratio"] == pytest.approx(math.exp(toy.params[row["term"]]))
    with pytest.raises(ArgumentError, match="not defined for the family 'linear'"):
        ratio_table(summarise(problem))


def test_estimands_that_a_family_does_not_have_are_refused(problem):
    for options in ({"estimand": "population"}, {"n_rows": 3000}):
        with pytest.raises(ArgumentError, match="for tables alone"):
            summarise(replace(problem, family=TOY), **options)


def test_all_models_share_one_summary():
    release = gm.release(patients(3000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    models = [
        release.ols("cost"),
        release.logit("smoker"),
        release.mnlogit("region"),
        release.poisson("cost", ["age"]),
        release.iv("cost", ["age", "smoker"], instruments=["age", "smoker"]),
    ]
    assert all(type(model).summary is Fitted.summary for model in models)
    with pytest.raises(ArgumentError, match="must name predictors of the model, got 'sex'"):
        models[-1].summary(reference={"sex": "m"})


def test_registered_families_are_fitted_by_name():
    release = gm.release(patients(3000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    assert release.fit("poisson", "cost", ["age"]) == release.poisson("cost", ["age"])
    assert release.fit("poisson", "cost ~ age").certificate is release.certificate
    with pytest.raises(ArgumentError, match="family must be one of 'poisson'"):
        release.fit("cubist", "cost")


@pytest.mark.parametrize("name", FAMILIES)
def test_registered_families_say_what_they_are(name):
    own = registration(name)
    assert own.family.name == name
    assert own.family.intervals_are_for
    assert own.help
