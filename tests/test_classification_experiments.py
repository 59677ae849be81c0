"""The experiments with classes: every method has a finite loss, and the calibrations are what they say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from experiments import classification, glm_study, log_loss


def test_every_method_on_one_split_of_a_small_table(monkeypatch):
    monkeypatch.setattr(classification, "DRAWS", 1)
    found = pd.DataFrame(classification.trial("breast", 0, 10.0))
    assert found["loss"].between(0, 5).all()
    means = classification.summarise(found)
    assert means.columns.str.contains("2023").sum() == 1
    row = means.iloc[0]
    assert row["logistic regression, not private"] < row["objective perturbation, 2012"] < row["constant"]


def test_every_method_has_a_log_loss(monkeypatch):
    whole = log_loss.load("nass_cds")
    monkeypatch.setattr(log_loss, "load", lambda name: dataclasses.replace(whole, frame=whole.frame[:4000]))
    found = pd.DataFrame(log_loss.trial("nass_cds", 3.0, 0, 2))
    assert found["loss"].between(0, 1).all()
    means = log_loss.summarise(found)
    (row,) = means.to_dict("records")
    assert row["draws"] == 2
    assert set(log_loss.OURS) | set(log_loss.RIVALS) | {"maximum likelihood"} <= set(row)
    both = found[found["method"].str.contains("2023")].groupby("method")["loss"].mean()
    assert row["objective perturbation, 2023"] == both.min()
    best = min(row[name] for name in log_loss.RIVALS)
    assert row["predictor, behind"] == pytest.approx(row["predictor"] - best)


def test_arrays_of_predictors_have_the_declared_norm():
    case = log_loss.load("hotel")
    X = log_loss.encode(case, case.frame)
    assert np.abs(X).max() <= 1
    assert np.sum(X**2, axis=1).max() <= len(case.predictors)


def test_levels_with_many_events_are_counted_by_events():
    """Of ohlsson, levels with at least 60 claims: three zones and four classes of vehicles."""
    case = glm_study.load("ohlsson")
    table = pd.DataFrame(
        {"table": "ohlsson", "epsilon": 1.0, "term": [*(f"zon={k}" for k in range(2, 8)), "mcklass=3", "agarald"],
         "identified": [1.0, 1.0, 0.5, 0.1, 0.1, 0.1, 1.0, 1.0], "held": [0.9, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]}
    )  # fmt: skip
    claims = case.frame.groupby("zon")["antskad"].sum()
    assert (claims[["2", "3", "4"]] >= 60).all()
    assert (claims[["5", "6", "7"]] < 60).all()
    (row,) = glm_study.frequent_levels(table).to_dict("records")
    assert (row["levels"], row["identified"]) == (4, 3.5 / 4)
    assert row["held"] == pytest.approx((0.9 + 1.0 + 0.5 + 1.0) / 3.5)


def test_maximum_likelihood_is_that_of_the_coded_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=4000), "b": rng.choice(["u", "v", "w"], 4000), "c": rng.random(4000) < 0.5}
    )
    y = rng.random(4000) < 1 / (1 + np.exp(-table["a"] - (table["b"] == "w")))
    X = glm_study.design(table, ["(intercept)", "a", "b=v", "b=w", "c"])
    plain = LogisticRegression(C=1e9, tol=1e-9, max_iter=1000).fit(X[:, 1:], y)
    found, _ = glm_study.maximum_likelihood(X, y.to_numpy(float), "logit")
    assert found[1:] == pytest.approx(plain.coef_[0], abs=1e-4)
