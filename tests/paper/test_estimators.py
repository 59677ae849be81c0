"""LinearMixing and LogisticMixing of the paper behind scikit-learn's interface."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import gaussmix as gm
from gaussmix import paper
from gaussmix.paper.estimators import paper_sketch_size

# scikit-learn's tables have norms up to about 30 and targets up to about 200.
LINEAR = [
    paper.LinearMixing(data_norm=30.0, bounds_y=(-200, 200), random_state=0),
    paper.LinearMixing(data_norm=30.0, bounds_y=(-200, 200), fit_intercept=True, random_state=0),
]
LOGISTIC = [
    paper.LogisticMixing(data_norm=30.0, random_state=0),
    paper.LogisticMixing(data_norm=30.0, fit_intercept=True, sketch_size=60, random_state=0),
]
EXACT = [clone(model).set_params(analysis="exact") for model in (LINEAR[0], LOGISTIC[0])]
MODELS = [*LINEAR, *LOGISTIC]


def name_of(model) -> str:
    return f"{type(model).__name__}-{model.analysis}-{model.fit_intercept}"


# No expected failures. The models carry scikit-learn's tag "poor_score", because its checks ask for accuracy on tables
# of 200 rows, where noise exceeds the signal.
@pytest.mark.slow
@parametrize_with_checks(MODELS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n: int = 400, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, d))
    return X, X @ np.linspace(1.0, 0.3, d) + rng.uniform(-0.1, 0.1, n)


def fitted(model, X, y):
    return clone(model).fit(X, y > 0 if isinstance(model, paper.LogisticMixing) else y)


@pytest.mark.parametrize("model", [*MODELS, *EXACT], ids=name_of)
def test_the_budget_is_that_of_the_certificate_and_nothing_else_is_learned(model):
    X, y = data()
    found = fitted(model.set_params(epsilon=0.7, delta=1e-5), X, y)
    certificate = found.certificate_
    assert certificate is found.sketch_.certificate
    assert certificate.budget == (0.7, 1e-5)
    assert (certificate.algorithm, certificate.analysis) == ("ModifiedGaussMix", model.analysis)
    assert certificate.epsilon(1e-5) <= 0.7 * (1 + 1e-9)
    assert str(certificate).startswith("NO GUARANTEE")
    C_Y = 200.0 if isinstance(model, paper.LinearMixing) else 1.0
    constant = 15.0 if model.fit_intercept else 0.0
    assert certificate.row_norm == math.sqrt(900 + C_Y**2 + constant**2)
    names = {"n_features_in_", "sketch_", "coef_", "intercept_"}
    assert {name for name in vars(found) if name.endswith("_")} - {"classes_"} == names
    theta = found.sketch_.lstsq("y")
    scale = paper.logistic_surrogate(6.0).scale if isinstance(model, paper.LogisticMixing) else 1.0
    assert np.ravel(found.coef_) == pytest.approx(scale * theta[:3])
    assert np.ravel(found.intercept_) == pytest.approx(scale * theta[3] * 15.0 if model.fit_intercept else 0.0)
    secure = fitted(model.set_params(random_state=None), X, y).certificate_
    assert secure.is_private
    model.set_params(random_state=0)


def test_sketch_sizes_are_the_papers():
    assert [paper_sketch_size(d) for d in (1, 23, 24, 100)] == [58, 58, 60, 250]
    X, y = data(d=30)
    model = paper.LinearMixing(data_norm=3.0, bounds_y=(-2, 2), random_state=0)
    assert model.fit(X, y).sketch_.k == 75
    assert clone(model).set_params(fit_intercept=True).fit(X, y).sketch_.k == 78
    assert clone(model).set_params(sketch_size=30).fit(X, y).sketch_.k == 30
    with pytest.raises(gm.ArgumentError, match="sketch_size must be at least the number of predictors, 30"):
        clone(model).set_params(sketch_size=29).fit(X, y)


@pytest.mark.parametrize("intercept", [False, True])
def test_large_budgets_find_the_coefficients(intercept):
    X, y = data(200_000)
    y = y + 0.2 * intercept
    model = paper.LinearMixing(
        epsilon=10.0, data_norm=1.0, bounds_y=(-2, 2), fit_intercept=intercept, sketch_size=5_000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert model.coef_ == pytest.approx([1.0, 0.65, 0.3], abs=0.05)
    assert model.intercept_ == pytest.approx(0.2 * intercept, abs=0.02)
    assert model.score(X, y) > 0.9
    labels = np.where(y > 0.2 * intercept, "yes", "no")
    classifier = paper.LogisticMixing(epsilon=10.0, data_norm=1.0, fit_intercept=intercept, sketch_size=5_000).fit(
        X, labels
    )
    assert classifier.score(X, labels) > 0.9
    assert classifier.predict_proba(X[:5]).sum(axis=1) == pytest.approx(1.0)
    assert set(classifier.predict(X)) == {"no", "yes"}


def test_targets_are_clamped_and_rows_are_clipped():
    X, y = data(5_000)
    y[0], X[1] = 1e9, 1e9
    model = paper.LinearMixing(data_norm=1.0, bounds_y=(-0.5, 2.0), random_state=0)
    clamped = X.copy()
    C = math.sqrt(1 + 4)
    clamped[1] *= C / np.linalg.norm(np.append(X[1], np.clip(y[1], -0.5, 2.0)))
    targets = np.clip(y, -0.5, 2.0)
    targets[1] *= C / np.linalg.norm(np.append(X[1], targets[1]))
    assert model.fit(X, y).coef_ == pytest.approx(clone(model).fit(clamped, targets).coef_, rel=1e-4)


def test_a_seed_repeats_and_a_generator_goes_on():
    X, y = data()
    model = paper.LinearMixing(data_norm=1.0, bounds_y=(-2, 2), random_state=3)
    assert np.array_equal(model.fit(X, y).coef_, clone(model).fit(X, y).coef_)
    model.set_params(random_state=np.random.default_rng(3))
    first, second = model.fit(X, y).coef_.copy(), model.fit(X, y).coef_
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_frames_keep_their_names(frame):
    X, y = data()
    model = paper.LinearMixing(data_norm=1.0, bounds_y=(-2, 2), random_state=0)
    table = frame({name: X[:, j] for j, name in enumerate(("y", "(intercept)", "c"))})
    found = clone(model).fit(table, y)
    assert list(found.feature_names_in_) == ["y", "(intercept)", "c"]
    assert np.array_equal(found.coef_, clone(model).fit(X, y).coef_)
    assert found.sketch_.columns == ("X[0]", "X[1]", "X[2]", "y")


def test_pickles_and_cross_validation():
    X, y = data(2_000)
    model = paper.LinearMixing(data_norm=1.0, bounds_y=(-2, 2), random_state=0)
    assert cross_val_score(model, X, y, cv=3).shape == (3,)
    found = model.fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(found)).predict(X), found.predict(X))


# ---------------------------------------------------------------------------------------------------------------
# Labels
def test_labels_that_are_taken_from_the_table_are_a_condition():
    X, y = data()
    model = paper.LogisticMixing(data_norm=1.0, random_state=0)
    taken = clone(model).fit(X, y > 0)
    assert any("labels were taken from the table" in condition for condition in taken.certificate_.conditions)
    declared = clone(model).set_params(classes=(False, True)).fit(X, y > 0)
    assert declared.certificate_.conditions == ()
    assert np.array_equal(taken.coef_, declared.coef_)
    large, target = data(100_000)
    pair = [
        clone(model).set_params(classes=classes, epsilon=10.0, sketch_size=2_000).fit(large, target > 0)
        for classes in ((False, True), (True, False))
    ]
    assert pair[0].coef_ == pytest.approx(-pair[1].coef_, rel=0.2)
    assert np.mean(pair[0].predict(large) == pair[1].predict(large)) > 0.95
    one_class = clone(model).set_params(classes=("no", "yes")).fit(X, ["no"] * len(X))
    assert list(one_class.classes_) == ["no", "yes"]
    for wrong in (("a",), ("a", "a"), ("a", "b", "c")):
        with pytest.raises(gm.DeclarationError, match="two different labels"):
            clone(model).set_params(classes=wrong).fit(X, y > 0)
    with pytest.raises(gm.DataError, match="not in the declared classes"):
        clone(model).set_params(classes=(0, 2)).fit(X, (y > 0).astype(int))


# ---------------------------------------------------------------------------------------------------------------
# Wrong arguments and data
class Unread:
    """A table that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError(f"the table was asked for {name}")

    def __array__(self, *_, **__):
        raise AssertionError("the table was read")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must"),
        ({"epsilon": math.inf}, "epsilon must"),
        ({"delta": 0.0}, "delta must"),
        ({"delta": 1.0}, "delta must"),
        ({"data_norm": None}, "data_norm is required"),
        ({"data_norm": 0.0}, "data_norm must"),
        ({"analysis": "renyi"}, "analysis must"),
        ({"sketch_size": 0}, "sketch_size must"),
        ({"n_max": 0}, "n_max must"),
        ({"random_state": "x"}, "random_state must"),
    ],
)
@pytest.mark.parametrize("model", [LINEAR[0], LOGISTIC[0]], ids=name_of)
def test_parameters_are_checked_before_data_is_read(model, change, words):
    with pytest.raises(gm.GaussmixError, match=words):
        clone(model).set_params(**change).fit(Unread(), Unread())


@pytest.mark.parametrize("bounds", [None, (1.0, 1.0), (2.0, 1.0), (0.0, math.inf), 3.0, ("a", "b"), (1, 2, 3)])
def test_bounds_of_y_are_checked_before_data_is_read(bounds):
    with pytest.raises(gm.DeclarationError, match="bounds_y"):
        clone(LINEAR[0]).set_params(bounds_y=bounds).fit(Unread(), Unread())


@pytest.mark.parametrize("radius", [0.0, -1.0, math.inf, 1e-5])
def test_the_radius_is_checked_before_data_is_read(radius):
    with pytest.raises(gm.ArgumentError, match="radius"):
        clone(LOGISTIC[0]).set_params(surrogate_radius=radius).fit(Unread(), Unread())


@pytest.mark.parametrize("model", [LINEAR[0], LOGISTIC[0]], ids=name_of)
def test_messages_quote_no_value(model):
    X, y = data()
    secret = X.astype(object)
    secret[3, 1] = "alice-hiv+"
    labels = np.where(y > 0, "alice", "bob").astype(object)
    labels[0] = "carol"
    tables = [(secret, y), (np.full_like(X, np.nan), y), (X[:-1], y), (X, labels), (X, None), (X[0], y), (X, X)]
    for table, targets in tables:
        with pytest.raises(gm.GaussmixError) as caught:
            clone(model).fit(table, targets)
        assert not any(word in str(caught.value) for word in ("alice", "hiv", "bob", "carol"))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    found = fitted(model, X, y)
    with pytest.raises(gm.DataError, match="expecting 3 features"):
        found.predict(X[:, :2])
    with pytest.raises(gm.GaussmixError) as caught:
        found.score(secret, y)
    assert "alice" not in str(caught.value)


def test_more_rows_than_declared_are_refused():
    X, y = data()
    model = paper.LinearMixing(data_norm=1.0, bounds_y=(-2, 2), n_max=399)
    with pytest.raises(gm.DataError, match="more than n_max=399"):
        model.fit(X, y)
    assert not hasattr(model, "sketch_")
    assert "at most 400" in str(model.set_params(n_max=400).fit(X, y).certificate_)


def test_weak_budgets_warn_once_and_at_the_callers_line():
    X, y = data()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        clone(LINEAR[0]).set_params(delta=0.1).fit(X, y)
    (warning,) = (one for one in said if issubclass(one.category, gm.BudgetWarning))
    assert warning.filename == __file__
