"""Every fitted model has the names of statsmodels, labelled by column, and they are those of its summary."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients

ROWS = 4000
COLUMNS = ["(intercept)", "age", "smoker"]
RELEASED = {
    "ols": lambda private: private.ols("cost", ["age", "smoker"]),
    "instruments": lambda private: private.iv("cost", ["age", "smoker"], instruments=["age", "smoker"]),
    "logit": lambda private: private.logit("sick", ["age", "smoker"]),
    "several": lambda private: private.mnlogit("region", ["age", "smoker"]),
    "poisson": lambda private: private.poisson("cost", ["age", "smoker"]),
}
ESTIMATORS = {"LinearRegression": gm.LinearRegression, "LogisticRegression": gm.LogisticRegression}


@cache
def table():
    rows = patients(ROWS)
    return rows.assign(sick=rows["cost"] > 7)


@cache
def fitted(name):
    rows = table()
    if name in ESTIMATORS:
        declared = {"bounds_X": ([0, 0], [100, 1]), "epsilon": 5.0, "random_state": 0}
        X, linear = rows[["age", "smoker"]].astype(float), name == "LinearRegression"
        declared |= {"bounds_y": (0, 20)} if linear else {"classes": (False, True)}
        return ESTIMATORS[name](**declared).fit(X, rows["cost"] if linear else rows["sick"])
    return RELEASED[name](released(5.0))


@cache
def released(epsilon):
    schema = SCHEMA | {"sick": "boolean"}
    return gm.release(table(), schema=schema, epsilon=epsilon, delta=1e-6, random_state=0)


def by_class(value, several):
    """What every class has, of a model of several; of another, all that it has."""
    return value if several else {None: value}


@pytest.mark.parametrize("name", [*RELEASED, *ESTIMATORS])
def test_every_model_has_the_names_of_statsmodels(name):
    model, several = fitted(name), name == "several"
    summaries = by_class(model.summary(), several)
    if several:
        assert list(summaries) == list(model.params) == list(model.classes[1:])
    for key, own in summaries.items():
        for attribute in ("params", "bse", "pvalues"):
            found = by_class(getattr(model, attribute), several)[key]
            assert list(found) == COLUMNS
            assert found == getattr(own, attribute)
            assert all(math.isfinite(value) for value in found.values())
        for alpha in (0.05, 0.3):
            found = by_class(model.conf_int(alpha), several)[key]
            assert list(found) == COLUMNS
            assert found == own.conf_int(alpha)
        assert by_class(model.rsquared, several)[key] == own.rsquared
        assert list(own.cov_params()) == COLUMNS
        assert model.nobs == own.nobs
    assert model.nobs == pytest.approx(ROWS, rel=0.1)


@pytest.mark.parametrize("name", RELEASED)
def test_every_model_of_a_release_is_a_table_and_has_its_certificate(name):
    model, several = fitted(name), name == "several"
    assert model.certificate.epsilon == 5.0
    rows = model.tidy("arrow", alpha=0.2).to_pylist()
    summaries = by_class(model.summary(), several)
    assert [row["term"] for row in rows] == COLUMNS * len(summaries)
    levels = [row["y.level"] if several else None for row in rows]
    assert levels == [key for key in summaries for _ in COLUMNS]
    for level, row in zip(levels, rows, strict=True):
        own = summaries[level]
        assert row["estimate"] == own.params[row["term"]]
        assert (row["conf.low"], row["conf.high"]) == own.conf_int(0.2)[row["term"]]
    assert model.to_frame("arrow").num_rows == len(rows)
    (glance,) = model.glance("arrow").to_pylist()
    assert (glance["nobs"], glance["df"], glance["epsilon"]) == (model.nobs, 2 * len(summaries), 5.0)
    assert model.as_csv().count("\n") == len(rows) + 1
    assert model.as_latex().count(r"\begin{tabular}") == model._repr_html_().count("<table>") == len(summaries)
    assert repr(model).startswith(
        f"{type(model).__name__}(no privacy guarantee, {model.response!r} on 2 encoded columns"
    )
    assert len(model.predict(table()[:7])) == 7


def test_an_estimator_that_is_fitted_again_has_other_numbers():
    model = gm.LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), epsilon=5.0, random_state=0)
    assert not hasattr(model, "params")
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    first = model.fit(X, X[:, 0] / 2).params["x0"]
    assert model.fit(X, -X[:, 0] / 2).params["x0"] == pytest.approx(-first, abs=0.2)
    with pytest.raises(gm.ArgumentError, match="several targets"):
        _ = model.fit(X, np.hstack([X, X]) / 2).params
    assert not any(hasattr(model, name) for name in ("params", "bse", "pvalues", "rsquared", "nobs"))
    assert dir(model)  # scikit-learn asks for all of them, here and below
    assert model._repr_html_()


def test_two_stage_least_squares_without_endogenous_columns_is_least_squares():
    """Also in R², in the number of rows and in predictions."""
    rows, private = table(), released(math.inf)
    plain, on = private.ols("cost", ["age", "region"]), ["age", "region"]
    staged = private.iv("cost", on, instruments=on)
    assert staged.params == pytest.approx(plain.params, rel=1e-8)
    assert staged.rsquared == pytest.approx(plain.rsquared, rel=1e-8)
    assert staged.nobs == pytest.approx(plain.nobs)
    assert staged.predict(rows[:50]) == pytest.approx(plain.predict(rows[:50]), rel=1e-6)
    single = private.iv("cost", ["age"], instruments=["smoker"])
    assert single.conf_int()["age"] == (single.params["age"], single.params["age"])  # nothing is in doubt
