"""The experiments with classes: every method has a finite loss, and the calibrations are what they say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from experiments import classification, glm_study
from gaussmix.accounting.gaussian import gaussian_delta


def test_every_method_on_one_split_of_a_small_table(monkeypatch):
    monkeypatch.setattr(classification, "DRAWS", 1)
    found = pd.DataFrame(classification.trial("breast", 0, 10.0))
    assert found["loss"].between(0, 5).all()
    means = classification.summarise(found)
    assert means.columns.str.contains("2023").sum() == 1
    row = means.iloc[0]
    assert row["logistic regression, not private"] < row["objective perturbation, 2012"] < row["constant"]


def test_the_calibration_of_2023_is_the_stated_one(monkeypatch):
    """δ = 2·HS(ε̃; L/σ) is met, and log(1 + L²/(4λ)) = qε."""
    asked = {}

    def record(rows, y, noise, penalty, *, tolerance):
        asked.update(noise=noise, penalty=penalty)
        return np.zeros(rows.shape[1])

    monkeypatch.setattr(classification, "minimise", record)
    X, L = np.zeros((5, 3)), 2.0
    classification.redberg(X, np.ones(5, dtype=bool), 1.0, 1e-6, 0.3, np.random.default_rng(0))
    sigma = asked["noise"][0] / np.random.default_rng(0).standard_normal(4)[0]
    assert 2 * gaussian_delta(0.7, mu=L / sigma) == pytest.approx(1e-6, rel=1e-3)
    assert math.log(1 + L**2 / (4 * asked["penalty"])) == pytest.approx(0.3)


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
