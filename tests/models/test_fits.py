"""Models of a release: least squares in the user's units, labelled by column, one fit from the release alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import gaussmix as gm
from example_tables import SCHEMA, patients

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def private(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def open_table(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def design(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    parts = []
    for name in columns:
        spec = SCHEMA[name]
        if isinstance(spec, dict):
            parts += [(table[name] == level).astype(float).rename(f"{name}={level}") for level in spec["levels"][1:]]
        else:
            parts.append(table[name].astype(float))
    return pd.concat(parts, axis=1)


@pytest.mark.parametrize(
    ("target", "on"), [("cost", ["age", "bmi", "smoker"]), ("age", ["cost"]), ("smoker", ["cost", "bmi"])]
)
def test_without_noise_every_model_is_least_squares_in_the_users_units(open_table, table, target, on):
    model = open_table.ols(target, predictors=on)
    exact = LinearRegression().fit(design(table, on), table[target].astype(float))
    ridge = open_table.predictor(target, on)
    for own in (model.params, {"(intercept)": ridge.intercept, **ridge.coef}):
        assert [own[name] for name in on] == pytest.approx(list(exact.coef_), rel=1e-3)
        assert own["(intercept)"] == pytest.approx(exact.intercept_, rel=1e-3, abs=1e-4)
    lower, upper = {"cost": (0, 20), "age": (0, 100), "smoker": (0, 1)}[target]
    expected = np.clip(exact.predict(design(table, on)), lower, upper)
    assert model.predict(table) == pytest.approx(expected, abs=1e-3)


def test_levels_differ_by_what_dummies_would_show(open_table, table):
    model = open_table.predictor("cost")
    others = ["age", "bmi", "sex", "region", "smoker"]
    exact = LinearRegression().fit(design(table, others), table["cost"])
    dummies = dict(zip(design(table, others).columns, exact.coef_, strict=True))
    assert model.coef["sex=m"] - model.coef["sex=f"] == pytest.approx(dummies["sex=m"], abs=1e-3)
    assert model.coef["region=west"] - model.coef["region=north"] == pytest.approx(dummies["region=west"], abs=1e-3)
    assert model.predict(table) == pytest.approx(exact.predict(design(table, others)), abs=1e-3)


def test_one_private_release_serves_many_models(private):
    full, ridge = private.ols("cost"), private.predictor("cost")
    for own in (full.params, ridge.coef):
        assert own["age"] == pytest.approx(0.05, abs=0.01)
        assert own["smoker"] == pytest.approx(3, abs=0.4)
        assert own["sex=m"] - own.get("sex=f", 0.0) == pytest.approx(0.5, abs=0.4)
    several = private.ols(["cost", "bmi"], predictors=["age", "smoker"])
    assert set(several) == {"cost", "bmi"}
    alone = private.ols("cost", predictors=["age", "smoker"])
    assert several["cost"].params == alone.params
    assert set(private.ols(["cost", "bmi"])["cost"].params) == set(full.params) - {"bmi"}


def test_classification_of_booleans_and_of_two_levels(open_table, private, table):
    logistic = LogisticRegression(C=1e6, max_iter=1000).fit(design(table, ["cost", "age"]), table["smoker"])
    for release, slack in ((open_table, 0.01), (private, 0.05)):
        model = release.logit("smoker", predictors=["cost", "age"])
        accuracy = np.mean((model.predict(table) > 0.5) == table["smoker"])
        assert accuracy > logistic.score(design(table, ["cost", "age"]), table["smoker"]) - slack - 0.02
    probabilities = model.predict(table)
    assert probabilities.shape == (len(table),)
    assert np.all((probabilities > 0) & (probabilities < 1))
    sex = open_table.logit("sex", predictors=["cost", "age", "bmi", "smoker"])
    assert sex.classes == ("f", "m")
    assert sex.params["cost"] > 0


# ------------------------------------------------------------------------------------------------- statsmodels' names
MODELS = {
    "regression": lambda release: release.ols("cost", predictors=["age", "region", "smoker"]),
    "several": lambda release: release.ols(["cost", "bmi"], predictors=["age"])["bmi"],
    "classification": lambda release: release.logit("smoker", predictors=["cost", "age"]),
    "two levels": lambda release: release.logit("sex", predictors=["cost", "region"]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_names_of_statsmodels_are_labelled_and_those_of_the_summary(private, kind):
    model = MODELS[kind](private)
    summary = model.summary()
    for name in ("params", "bse", "pvalues", "rsquared", "nobs"):
        assert getattr(model, name) == getattr(summary, name)
    assert model.conf_int() == summary.conf_int()
    assert model.conf_int(0.3) == summary.conf_int(0.3) != model.conf_int()
    names = list(summary.params)
    assert names[0] == "(intercept)"
    for labelled in (model.params, model.bse, model.pvalues, model.conf_int()):
        assert list(labelled) == names
    assert all(type(value) is float for value in (*model.params.values(), *model.bse.values(), model.nobs))
    assert 0 <= model.rsquared <= 1


def test_a_predictor_is_another_fit(open_table, private):
    """Without noise both are least squares; with noise the predictor is a ridge, and params are not."""
    model, ridge = (fit("cost", ["age", "bmi"]) for fit in (open_table.ols, open_table.predictor))
    assert model.params == pytest.approx({"(intercept)": ridge.intercept, **ridge.coef})
    assert private.ols("cost", ["age", "bmi"]).params["age"] != private.predictor("cost ~ age + bmi").coef["age"]
    assert repr(ridge) == "Predictor('cost' from 2 encoded columns)"
    with pytest.raises(gm.ArgumentError, match="'sex' is categorical"):
        private.predictor("sex")


def test_nobs_is_the_noisy_count(private, table):
    nobs = private.ols("cost").nobs
    assert nobs == private.ols("age").nobs  # of the release, not of the model
    assert nobs == pytest.approx(len(table), rel=0.2)
    assert nobs != round(nobs)


# -------------------------------------------------------------------------------------------------------- predictions
@pytest.mark.parametrize("frame", [lambda t: t, lambda t: t.to_dict("list"), lambda t: [t.head(7), t.iloc[7:]]])
def test_predictions_from_any_table(private, table, frame):
    rows = table.head(50)
    model, ridge = private.ols("cost"), private.predictor("cost")
    for own, coef in ((model, model.params), (ridge, {"(intercept)": ridge.intercept, **ridge.coef})):
        expected = coef["(intercept)"] + sum(coef[name] * rows[name].astype(float) for name in ("age", "bmi", "smoker"))
        for name in ("sex", "region"):
            expected = expected + np.array([coef.get(f"{name}={level}", 0.0) for level in rows[name]])
        assert own.predict(frame(rows)) == pytest.approx(expected.to_numpy())


def test_predictions_are_clipped_as_the_release_was(private):
    model = private.ols("cost", predictors=["age"])
    inside = model.predict({"age": [0.0, 100.0]})
    assert model.predict({"age": [-1e9, 1e9]}) == pytest.approx(inside)


def test_a_row_bound_does_not_shorten_what_is_predicted(table):
    """Rows of a release may be shortened as a whole; a prediction is of the row itself."""
    declared = {"columns": {"age": [0, 100], "cost": [0, 20]}, "max_row_norm": 1.1}
    model = gm.release(table, schema=declared, epsilon=math.inf, delta=1e-6).ols("cost")
    assert model.predict({"age": [0.0, 50.0]}) == pytest.approx(
        [model.params["(intercept)"], model.params["(intercept)"] + 50 * model.params["age"]]
    )


@pytest.mark.parametrize("epsilon", [math.inf, 3.0])
def test_prediction_intervals_hold_new_rows(table, epsilon):
    release = gm.release(table, schema=SCHEMA, epsilon=epsilon, delta=1e-6, random_state=0)
    fresh = patients(5000, seed=1)
    low, high = release.ols("cost").prediction_interval(fresh, 0.1).T
    inside = np.mean((low <= fresh["cost"]) & (fresh["cost"] <= high))
    assert inside > 0.85  # residuals are uniform here, not normal
    if epsilon == math.inf:
        assert inside < 0.97
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=3.0, delta=1e-6).ols("cost")
    with pytest.raises(ValueError, match="requires a release with an intercept"):
        bare.prediction_interval(fresh)
    with pytest.raises(ValueError, match="alpha must lie in"):
        release.ols("cost").prediction_interval(fresh, 1.5)


def test_prediction_intervals_lie_about_the_prediction(private, table):
    model, rows = private.ols("cost"), table.head(20)
    intervals = model.prediction_interval(rows, 0.1)
    assert intervals.shape == (20, 2)
    assert intervals.mean(axis=1) == pytest.approx(model.predict(rows))
    wide = model.prediction_interval(rows, 0.01)
    assert np.all((wide[:, 0] < intervals[:, 0]) & (intervals[:, 1] < wide[:, 1]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda r: r.ols("weight"),
            r"'weight' is not in the release\. The release has age.*; columns that were not released need",
        ),
        (lambda r: r.ols("cost", predictors=["weight"]), "'weight' is not in the release"),
        (lambda r: r.ols("cost", predictors=["cost"]), "cannot also be a predictor"),
        (lambda r: r.ols("cost", predictors=["age", "age"]), "must not contain duplicates"),
        (lambda r: r.ols("sex"), "'sex' is categorical"),
        (lambda r: r.logit("age"), "boolean or categorical column"),
        (lambda r: r.ols(["cost", "sex"]), "'sex' is categorical"),
        (lambda r: r.ols(["cost", "age"], predictors=["age"]), "cannot also be a predictor"),
        (lambda r: r.ols("cost").predict({"age": [1.0]}), "'bmi'"),
        (lambda r: r.pca(["weight"]), "'weight' is not in the release"),
    ],
)
def test_bad_questions(private, call, words):
    with pytest.raises(ValueError, match=words):
        call(private)


def test_a_vector_is_no_target():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (500, 3))
    release = gm.LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(X, X[:, 0]).release_
    with pytest.raises(gm.ArgumentError, match="must be a numeric or boolean column, but 'X' is a vector"):
        release.ols("X")
    with pytest.raises(gm.ArgumentError, match="must be a boolean or categorical column for logit, got 'X'"):
        release.logit("X")


def test_incomplete_rows_are_not_predicted(table):
    schema = {**SCHEMA, "age": {"lower": 0, "upper": 100, "missing": "drop-row"}}
    model = gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0).ols("cost", predictors=["age"])
    with pytest.raises(ValueError, match="rows with missing values in 'age'"):
        model.predict({"age": [50.0, math.nan]})


def test_a_string_is_no_list(private):
    with pytest.raises(TypeError, match=r"Write predictors=\['age'\]"):
        private.ols("cost", predictors="age")


@pytest.mark.parametrize(
    ("change", "words", "remedy"),
    [
        (lambda frame: frame.drop(columns="age"), "Column 'age' is not in the DataFrame", "Add the column"),
        (lambda frame: frame.assign(age=math.nan), "Column 'age' has missing", "Drop the rows with such values"),
        (lambda frame: frame.assign(region=None), "Column 'region' has missing", "Drop the rows with such values"),
        (lambda frame: frame.assign(region="east"), "not among its declared levels", "Drop the rows with such values"),
    ],
)
def test_remedies_for_rows_after_the_release_do_not_change_the_schema(private, table, change, words, remedy):
    frame = change(table.head(5))
    for call in (private.ols("cost").predict, private.predictor("cost").predict, private.weights):
        with pytest.raises(gm.DataError, match=words) as error:
            call(frame)
        assert remedy in str(error.value)
        assert "schema" not in str(error.value)
