"""Rates from releases: tables, refusals, predictions."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from gaussmix.models.rates import PoissonModel

SCHEMA = {
    "calls": [0, 60],
    "age": [-4, 4],
    "hours": [0, 10],
    "urban": "boolean",
    "plan": ["basic", "plus", "gold", "rare"],
}


def calls(n: int = 20_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    plan = rng.choice(["basic", "plus", "gold", "rare"], n, p=[0.5, 0.3, 0.1995, 0.0005])
    table = pd.DataFrame({"age": rng.normal(size=n), "hours": rng.normal(5, 1, n), "urban": rng.random(n) < 0.4})
    table["plan"] = plan
    moved = np.select([plan == "plus", plan == "gold"], [0.4, -0.5], 0.0)
    mean = np.exp(0.8 + 0.3 * table.age + 0.5 * table.urban + moved)
    return table.assign(calls=rng.poisson(mean * rng.gamma(2, 0.5, n)))


@pytest.fixture(scope="module")
def private() -> gm.Release:
    return gm.release(calls(), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def model(private) -> PoissonModel:
    return private.poisson("calls")


def test_ratios_are_exponentials_of_the_summary(model):
    collapse, reference = {"plan": {"other": ["gold", "rare"]}}, {"plan": "plus"}
    for options in ({}, {"collapse": collapse, "reference": reference}):
        own, table = model.summary(**options), model.rate_ratios(0.1, **options)
        rows = {row["term"]: row for row in table.rows()}
        assert list(rows) == [name for name in own.params if name != "(intercept)"]
        for name, row in rows.items():
            low, high = own.conf_int(0.1)[name]
            expected = [math.exp(value) for value in (own.params[name], low, high)] + [own.pvalues[name]]
            found = [row[key] for key in ("rate.ratio", "conf.low", "conf.high", "p.value")]
            assert found == pytest.approx(expected, nan_ok=True)
    assert "plan=other" in rows
    text = str(model.rate_ratios())
    assert "calls: rate ratios, 95 % intervals" in text
    assert "Poisson regression if numeric predictors are normal within levels" in text
    assert "passes=1 avoids clipping" in text


def test_p_values_are_below_a_level_where_the_interval_excludes_one(model):
    own = model.summary(collapse={"plan": {"gold": ["gold", "rare"]}})
    for level in (0.3, 0.05, 1e-3):
        for name, (low, high) in own.conf_int(level).items():
            assert (own.pvalues[name] < level) == (not low <= 0 <= high)
    assert own.f_test("plan").pvalue < 1e-6
    assert own.f_test("urban").pvalue == pytest.approx(own.pvalues["urban"], abs=1e-15)
    assert model.params["age"] == pytest.approx(0.3, abs=0.05)
    assert model.params["urban"] == pytest.approx(0.5, abs=0.08)


def test_a_level_whose_mean_drowns_in_noise_is_not_identified(model):
    (row,) = [row for row in model.rate_ratios().rows() if row["term"] == "plan=rare"]
    assert all(math.isnan(value) for name, value in row.items() if name != "term")
    assert "Left out: plan=rare, " in str(model.rate_ratios())
    assert math.isfinite(model.summary().conf_int()["plan=gold"][0])
    tested = model.summary().f_test("plan")  # of the levels that are identified
    assert "plan=rare = 0" not in tested.hypotheses
    assert tested.pvalue < 1e-6


def test_predictions_are_means(model):
    table = calls(5000, seed=1)
    found = model.predict(table)
    assert found.mean() == pytest.approx(table.calls.mean(), rel=0.05)
    for name, chosen in table.groupby("plan"):
        if name != "rare":
            assert found[chosen.index].mean() == pytest.approx(chosen.calls.mean(), rel=0.08)
    assert model.predict(table.assign(age=4.0)).max() <= 60
    assert np.all(found > 0)


def test_without_noise_prediction_and_summary_are_one():
    exact = gm.release(calls(3000), schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    model = exact.poisson("calls ~ age + urban + plan")
    params = model.summary().params
    assert {name: params[name] for name in model.coef} == pytest.approx(model.coef, rel=1e-4, abs=1e-6)
    assert params["(intercept)"] == pytest.approx(model.intercept, rel=1e-4)


def test_weights_and_frames():
    table = calls(4000).assign(w=1.0)
    twice = pd.concat([table, table[table.urban]])
    weighted = gm.release(
        table.assign(w=np.where(table.urban, 2.0, 1.0)),
        schema=SCHEMA | {"w": [0, 2]},
        weight="w",
        epsilon=math.inf,
        delta=1e-6,
    ).poisson("calls", predictors=["age", "urban"])
    doubled = gm.release(twice, schema=SCHEMA, epsilon=math.inf, delta=1e-6).poisson(
        "calls", predictors=["age", "urban"]
    )
    assert weighted.params == pytest.approx(doubled.params, rel=1e-4)
    private = gm.release(table, schema=SCHEMA, epsilon=5.0, delta=1e-6, random_state=0)
    frame = private.poisson("calls", predictors=["age"]).tidy("pandas")
    assert frame["term"].tolist() == ["(intercept)", "age"]
    assert np.isnan(private.poisson("calls", predictors=["age"]).glance("pandas")["r.squared"][0])


@pytest.mark.parametrize(
    ("target", "on", "words"),
    [
        ("age", None, "'age' is declared from -4. Use ols"),
        ("urban", None, "'urban' is not declared as one. Use logit"),
        ("plan", None, "'plan' is not declared as one. Use logit"),
        ("calls", ["calls"], "cannot also be a predictor"),
    ],
)
def test_targets_that_have_no_rate_are_refused(private, target, on, words):
    with pytest.raises(gm.errors.ArgumentError, match=words.replace(".", r"\.")):
        private.poisson(target, on)


def test_other_refusals_say_what_to_do(model):
    with pytest.raises(ValueError, match=r'for the table only.*use estimand="table"'):
        model.summary(estimand="population")
    few = gm.release(calls(50), schema=SCHEMA, epsilon=0.1, delta=1e-6, random_state=0)
    with pytest.raises(ValueError, match="mean of 'calls', whose estimate is less than 5 standard errors"):
        few.poisson("calls", predictors=["age"])
    terms = gm.release(calls(500), schema=SCHEMA, formula="calls ~ poly(age, 2) + urban", epsilon=5.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"no powers, products or splines.*leave 'age\^2' out"):
        terms.poisson("calls")
    bare = gm.release(calls(500), schema=gm.Schema.of(SCHEMA, intercept=0.0), epsilon=5.0, delta=1e-6)
    with pytest.raises(ValueError, match="poisson needs a release with an intercept column"):
        bare.poisson("calls")
