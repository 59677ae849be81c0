"""Families are values: their functions belong together, and names, words and tables follow from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.errors import ArgumentError
from gaussmix.models import FAMILIES, rendering
from gaussmix.models.families import family_of
from gaussmix.models.results import Fitted, glance_table, ratio_table

ETA = st.floats(-8, 8)


@pytest.fixture(scope="module")
def release():
    return gm.release(patients(3000), schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.mark.parametrize("name", FAMILIES)
@given(eta=ETA)
def test_functions_of_a_mean_belong_together(name, eta):
    """Derivatives are those of finite differences, the area's is the mean, and the link is its inverse."""
    mean, x, h = family_of(name).mean, np.array([eta]), 1e-4
    difference = (mean.inverse(x + h) - mean.inverse(x - h)) / (2 * h)
    assert mean.derivative(x) == pytest.approx(difference, rel=1e-5, abs=1e-9)
    assert mean.second(x) == pytest.approx(
        (mean.derivative(x + h) - mean.derivative(x - h)) / (2 * h), rel=1e-5, abs=1e-8
    )
    assert mean.inverse(x) == pytest.approx((mean.area(x + h) - mean.area(x - h)) / (2 * h), rel=1e-5, abs=1e-9)
    if abs(eta) < 5:
        assert mean.link(mean.inverse(x)) == pytest.approx(x, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
@given(eta=ETA)
def test_canonical_families_have_the_variance_of_their_derivative(name, eta):
    mean, x = family_of(name).mean, np.array([eta])
    assert mean.is_canonical == (name != "probit")
    if mean.is_canonical:
        assert mean.variance(mean.inverse(x)) == pytest.approx(mean.derivative(x), rel=1e-9, abs=1e-300)


@given(count=st.integers(0, 200))
def test_the_saturated_poisson_likelihood_is_the_largest(count):
    mean, y = family_of("poisson").mean, np.array([float(count)])
    for eta in np.log(np.maximum(count, 0.01) * np.array([0.5, 0.9, 1.1, 2.0])):
        assert count * eta - mean.area(np.array([eta])) <= mean.saturated(y) + 1e-9
    if count:
        assert mean.saturated(y) == pytest.approx(count * math.log(count) - special.expm1(math.log(count)) - 1)


def test_words_and_tables_follow_the_family(release):
    logit, poisson, probit = (
        release.fit(name, response, ["age", "region"])
        for name, response in (("logit", "smoker"), ("poisson", "cost"), ("probit", "smoker"))
    )
    for model in (logit, poisson, probit):
        assert model.family.intervals_are_for["table"] in str(model.summary())
        assert "R² =" not in str(model.summary())
        (row,) = glance_table(model.summary(), None).rows()
        assert math.isnan(row["r.squared"])
    assert list(logit.odds_ratios().columns)[:2] == ["term", "odds.ratio"]
    assert list(poisson.rate_ratios().columns)[:2] == ["term", "rate.ratio"]
    assert poisson.rate_ratios().title == "cost: rate ratios, 95 % intervals"
    assert "not its likelihood equation" in str(probit.summary())
    for call in (logit.rate_ratios, poisson.odds_ratios, probit.odds_ratios):
        with pytest.raises(ArgumentError, match="has no"):
            call()
    with pytest.raises(ArgumentError, match="not defined for the family 'linear'"):
        ratio_table(release.ols("cost").summary())
    for row in logit.odds_ratios().rows():
        assert row["odds.ratio"] == pytest.approx(math.exp(logit.params[row["term"]]))


def test_exponentials_are_those_of_the_coefficients(release):
    model = release.logit("smoker", ["age", "region"])
    plain, ratios = model.tidy("arrow").to_pylist(), model.tidy("arrow", exponentiate=True).to_pylist()
    for one, other in zip(plain, ratios, strict=True):
        for key in ("estimate", "conf.low", "conf.high"):
            assert other[key] == pytest.approx(math.exp(one[key]))
        assert {key: one[key] for key in ("std.error", "p.value", "distribution.error")} == {
            key: other[key] for key in ("std.error", "p.value", "distribution.error")
        }
    with pytest.raises(ArgumentError, match="not defined"):
        release.ols("cost").tidy(exponentiate=True)


def test_all_models_share_one_summary(release):
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


def test_families_are_fitted_by_name(release):
    assert release.fit("poisson", "cost", ["age"]) == release.poisson("cost", ["age"])
    assert release.fit("poisson", "cost ~ age").certificate is release.certificate
    with pytest.raises(ArgumentError, match="family must be one of 'logit', 'probit', 'poisson'"):
        release.fit("cubist", "cost")
    for name in FAMILIES:
        assert family_of(name).name == name
        assert family_of(name).help


def test_infinite_ends_are_printed():
    assert rendering.to_error(-math.inf, 0.1) == "-∞"
    assert rendering.to_error(math.inf, 0.1) == "∞"
