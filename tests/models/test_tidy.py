"""Models as tables, and their predicted means, against statsmodels where noise is negligible."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose

import gaussmix as gm
from example_tables import SCHEMA, patients

TABLE = patients(20_000)
ON = ["age", "smoker", "region"]


@pytest.fixture(scope="module")
def release():
    return gm.release(TABLE, schema=SCHEMA, epsilon=20, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def reference():
    return smf.ols("cost ~ age + smoker + region", TABLE).fit()


def test_tidy_and_glance_are_those_of_least_squares(release, reference):
    model = release.ols("cost", ON)
    found = model.tidy("pandas", estimand="population").set_index("term")
    assert list(found.columns) == [
        "estimate",
        "std.error",
        "statistic",
        "p.value",
        "conf.low",
        "conf.high",
        "privacy.share",
    ]
    names = {"age": "age", "smoker": "smoker[T.True]", "region=south": "region[T.south]"}
    for own, theirs in names.items():
        assert_allclose(found.loc[own, "estimate"], reference.params[theirs], rtol=0.02, atol=0.02)
        assert_allclose(found.loc[own, "std.error"], reference.bse[theirs], rtol=0.05)
    assert ((found["privacy.share"] > 0) & (found["privacy.share"] < 0.2)).all()
    assert (found["conf.low"] < found["estimate"]).all()
    table = model.tidy("arrow")
    assert_allclose(table["privacy.share"].to_numpy(), 1.0)
    assert model.to_frame("polars").shape == (5, 8)
    glance = model.glance("arrow").to_pylist()[0]
    assert_allclose(glance["nobs"], 20_000, rtol=0.01)
    assert_allclose(glance["r.squared"], reference.rsquared, atol=0.005)
    assert_allclose(glance["sigma"], np.sqrt(reference.scale), rtol=0.01)
    assert (glance["df"], glance["epsilon"], glance["delta"]) == (4, 20, 1e-6)
    assert glance["mu"] == release.certificate.account.mu


def test_models_in_every_shape(release):
    model = release.ols("cost", ON)
    assert repr(model) == "RegressionModel(no privacy guarantee, 'cost' on 5 encoded columns)"
    assert model.as_csv().startswith("term,estimate,std.error,statistic,p.value,conf.low,conf.high,privacy.share\n")
    assert model.as_latex().splitlines()[2].startswith(r"\begin{tabular}")
    assert "<caption>Response: cost. Intervals for: this table</caption>" in model._repr_html_()
    classes = release.logit("smoker", ["age", "cost"])
    assert repr(classes) == "GeneralizedLinearModel(no privacy guarantee, 'smoker' on 2 encoded columns)"
    assert classes.tidy("arrow").num_rows == 3
    assert np.isnan(classes.glance("arrow").to_pylist()[0]["sigma"])


def test_what_is_not_identified_has_no_numbers():
    weak = gm.release(TABLE[:300], schema=SCHEMA, epsilon=0.1, delta=1e-6, random_state=0)
    table = weak.ols("cost").tidy("arrow").to_pylist()
    lost = [row for row in table if not np.isfinite(row["conf.low"])]
    assert lost
    assert all(np.isnan(row["estimate"]) for row in lost)


def test_predicted_means_are_those_of_least_squares(release, reference):
    model, rows = release.ols("cost", ON), TABLE[:6]
    found = model.get_prediction(rows, estimand="population")
    expected = reference.get_prediction(rows)
    assert_allclose(found.predicted_mean, expected.predicted_mean, rtol=0.01)
    assert_allclose(found.se_mean, expected.se_mean, rtol=0.1)
    assert_allclose(found.conf_int(), expected.conf_int(), rtol=0.01)
    own = model.get_prediction(rows)
    assert_allclose(own.predicted_mean, [sum_of(model.params, row) for _, row in rows.iterrows()], rtol=1e-6)
    assert own.to_frame("arrow").column_names == ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    ends = model.get_prediction(rows).conf_int(0.5)
    assert ((ends[:, 0] < own.predicted_mean) & (own.predicted_mean < ends[:, 1])).all()


def sum_of(params, row):
    regions = sum(params[f"region={level}"] * (row["region"] == level) for level in ("south", "west"))
    return params["(intercept)"] + params["age"] * row["age"] + params["smoker"] * row["smoker"] + regions


def test_intervals_of_predicted_means_cover():
    held = []
    rows = TABLE[:3]
    truth = smf.ols("cost ~ age + smoker + region", TABLE).fit().predict(rows).to_numpy()
    for seed in range(8):
        noisy = gm.release(TABLE, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=seed)
        low, high = noisy.ols("cost", ON).get_prediction(rows).conf_int().T
        held.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(held) > 0.7  # three dependent intervals a release: 0.95 less three standard errors of 8


def test_predictions_with_merged_levels_and_another_reference(release):
    """The mean at a row is the coefficients times its features, a merged level's among them."""
    rows = patients(40, seed=3)
    model, collapse = release.ols("cost", ["age", "region", "smoker"]), {"region": {"elsewhere": ["south", "west"]}}
    for options in (
        {"collapse": collapse},
        {"reference": {"region": "west"}},
        {"collapse": collapse, "reference": {"region": "elsewhere"}},
    ):
        params = model.summary(**options).params
        levels = np.array(rows["region"])
        if "collapse" in options:
            levels = np.where(np.isin(levels, ["south", "west"]), "elsewhere", levels)
        expected = params["(intercept)"] + params["age"] * rows["age"] + params["smoker"] * rows["smoker"]
        expected = expected + [params.get(f"region={level}", 0.0) for level in levels]
        found = model.get_prediction(rows, **options)
        assert found.predicted_mean == pytest.approx(expected.to_numpy(), rel=1e-9)
        low, high = found.conf_int().T
        assert np.all((low < found.predicted_mean) & (found.predicted_mean < high))


def test_the_response_has_its_name_in_statsmodels(release, reference):
    """It is a heading in the tables of maketables, which take models with params, bse and pvalues."""
    private = gm.release(TABLE[:500], schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1).ols("cost", ["age"])
    assert private.endog_names == reference.model.endog_names == "cost"
    assert release.ols("cost", ON).endog_names == "no privacy guarantee, cost"  # a seed
