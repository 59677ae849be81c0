"""LogisticRegression: any two labels, the scale of the logistic model, declared classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import gaussmix as gm
from example_models import FEATURE_BOUNDS, linear_table


@pytest.mark.parametrize("labels", [("a", "b"), (0, 1), (-1, 1), (True, False), ("no", "yes")], ids=str)
def test_any_two_labels(labels):
    X, y, _ = linear_table(50_000)
    target = np.where(y > np.median(y), labels[1], labels[0])
    model = gm.LogisticRegression(epsilon=3.0, bounds_X=FEATURE_BOUNDS, random_state=0).fit(X, target)
    assert model.score(X, target) > 0.9
    probabilities = model.predict_proba(X[:100])
    assert probabilities.shape == (100, 2)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert "assumed to be public" in str(model.privacy_)
    declared = gm.LogisticRegression(epsilon=3.0, bounds_X=FEATURE_BOUNDS, classes=sorted(labels), random_state=0)
    assert declared.fit(X, target).coef_ == pytest.approx(model.coef_)
    assert "assumed to be public" not in str(declared.privacy_)


def test_it_is_near_the_logistic_model_and_has_odds_ratios():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40_000, 3))
    labels = rng.random(40_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))
    exact = gm.LogisticRegression(epsilon=math.inf, bounds_X=(-1, 1)).fit(X, labels)
    logistic = LogisticRegression(C=1e6).fit(X, labels)
    assert exact.coef_ == pytest.approx(logistic.coef_, rel=0.1)
    private = gm.LogisticRegression(epsilon=1.0, bounds_X=(-1, 1), random_state=0).fit(X, labels)
    for row, value in zip(private.odds_ratios(0.01).rows(), exact.coef_[0], strict=True):
        assert row["conf.low"] < math.exp(value) < row["conf.high"]
        assert row["odds.ratio"] == pytest.approx(math.exp(private.summary().params[row["term"]]))


def test_it_predicts_a_rare_outcome_from_0_and_1():
    """A linear discriminant assigns far too many events to rare levels: its log-loss is above that of the share."""
    rng = np.random.default_rng(0)
    n = 40_000
    level = rng.choice(5, n, p=[0.5, 0.3, 0.1, 0.07, 0.03])
    X = np.column_stack([level[:, None] == np.arange(1, 5), rng.random((n, 3)) < [0.05, 0.5, 0.9]]).astype(float)
    X = np.column_stack([X, np.clip(rng.normal(0, 0.4, n), -1, 1)])
    p = 1 / (1 + np.exp(-(-6.0 + X @ [1.0, 2.0, 3.0, 4.0, 1.5, 0.5, -0.5, 0.5])))
    y = rng.random(n) < p
    declared = {"epsilon": 1.0, "bounds_X": (-1, 1), "data_norm": math.sqrt(5), "classes": (False, True)}
    model = gm.LogisticRegression(**declared, random_state=0).fit(X, y)
    exact = LogisticRegression(C=1e6).fit(X, y)

    def loss(probability):
        return -np.mean(p * np.log(probability) + (1 - p) * np.log(1 - probability))

    best, share = loss(exact.predict_proba(X)[:, 1]), loss(np.full(n, y.mean()))
    assert loss(model.predict_proba(X)[:, 1]) - best < 0.3 * (share - best)


def test_numbers_alone_have_the_coefficients_of_the_discriminant():
    """Without an entry of two values, and with very many entries, features are normal."""
    rng = np.random.default_rng(0)
    for columns, values in ((3, rng.uniform(-1, 1, (2_000, 3))), (130, np.sign(rng.normal(size=(2_000, 130))))):
        y = rng.random(2_000) < 0.5
        model = gm.LogisticRegression(epsilon=math.inf, bounds_X=(-1, 1), classes=(False, True)).fit(values, y)
        slopes = np.linalg.lstsq(np.column_stack([values, np.ones(2_000)]), y.astype(float))[0][:columns]
        assert model.coef_[0] / slopes == pytest.approx(np.full(columns, model.coef_[0][0] / slopes[0]), rel=1e-3)


def test_labels_that_were_not_declared():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="not in the declared classes"):
        gm.LogisticRegression(bounds_X=(0, 1), classes=(0, 1)).fit(rng.uniform(size=(9, 2)), [0, 1, 2] * 3)
    for classes in ((1, 1), [[0, 1], [2, 3]], (0, 1, 2)):
        with pytest.raises(ValueError, match="two different labels"):
            gm.LogisticRegression(bounds_X=(0, 1), classes=classes).fit(rng.uniform(size=(9, 2)), [0, 1, 1] * 3)
    with pytest.raises(ValueError, match="got one class only"):
        gm.LogisticRegression(bounds_X=(0, 1)).fit(rng.uniform(size=(9, 2)), [1] * 9)


def test_moments_give_the_fit_of_their_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 2))
    y = np.where(X[:, 0] + rng.normal(0, 0.3, 500) > 0, "yes", "no")
    declared = {"epsilon": 5.0, "bounds_X": (-1, 1), "classes": ("no", "yes"), "passes": 1, "random_state": 3}
    fitted = gm.LogisticRegression(**declared).fit(X, y)
    sums = gm.Moments.of_arrays([(X, y == "yes")], gm.LogisticRegression(**declared).schema(2))
    summed = gm.LogisticRegression(**declared).fit_moments(sums)
    assert np.array_equal(summed.coef_, fitted.coef_)
    assert summed.predict(X[:5]).tolist() == fitted.predict(X[:5]).tolist()
    with pytest.raises(ValueError, match="classes"):
        gm.LogisticRegression(bounds_X=(-1, 1)).fit_moments(sums)
    with pytest.raises(ValueError, match="different bounds"):
        gm.LogisticRegression(bounds_X=(-2, 2), classes=("no", "yes")).fit_moments(sums)


def test_steps_are_nearer_to_the_likelihood_than_the_release():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, 40_000), rng.random((40_000, 2)) < 0.2])
    labels = rng.random(40_000) < 1 / (1 + np.exp(2 - X @ [2.0, 2.5, -1.0]))
    logistic = LogisticRegression(C=1e6).fit(X, labels)
    declared = {"epsilon": 3.0, "bounds_X": (-1, 1), "classes": (False, True), "random_state": 0, "n_rows": 40_000}
    models = {share: gm.LogisticRegression(**declared, model_share=share).fit(X, labels) for share in (0, 0.3, "auto")}
    far = {share: np.abs(model.coef_ - logistic.coef_).max() for share, model in models.items()}
    assert far[0.3] < 0.2 * far[0]
    assert np.array_equal(models["auto"].coef_, models[0.3].coef_)
    assert models[0.3].privacy_.epsilon == 3.0
    assert models[0.3].odds_ratios().columns["term"] == models[0].odds_ratios().columns["term"]
    assert str(models[0.3].summary()).startswith("No privacy guarantee")
    assert "Declared model: two private Newton steps" in str(models[0.3].summary()).splitlines()[1]
    assert models[0.3].summary(estimand="population").cov_type == "robust"


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        ({"epsilon": 1.0, "n_rows": 40_000}, 0.3),
        ({"epsilon": 1.0, "n_rows": 400}, 0),
        ({"epsilon": 1.0}, 0),
        ({"epsilon": 2.0}, 0.3),
        ({"epsilon": math.inf}, 0),
    ],
)
def test_steps_are_taken_where_they_are_worth_it(budget, share):
    model = gm.LogisticRegression(**budget, bounds_X=(-1, 1), classes=(0, 1), model_share="auto")
    found = model._prepare(model.schema(5)).models
    assert (0 if found is None else found.share) == share


@pytest.mark.parametrize("share", [1, -4, "many", 4.5])
def test_other_shares_are_refused(share):
    with pytest.raises((gm.ArgumentError, gm.ArgumentTypeError), match="model_share must"):
        gm.LogisticRegression(bounds_X=(-1, 1), model_share=share).fit(np.zeros((20, 2)), np.arange(20) % 2)
