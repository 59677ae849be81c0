"""One contract for all estimators and baselines."""

from __future__ import annotations

import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import gaussmix as gm
from example_models import BOUNDS, FEATURE_BOUNDS, LINEAR, LOGISTIC, PRIVATE, linear_table, model_name
from gaussmix import baselines
from gaussmix.accounting.gaussian import gaussian_delta_up
from gaussmix.accounting.numerics import root_up


def test_every_estimator_and_baseline_is_held_to_it():
    held = {type(model).__name__ for model in LINEAR + LOGISTIC}
    assert held == {"LinearRegression", "LogisticRegression", "PoissonRegressor", *baselines.__all__}


# No expected failures: each model passes every check. Private ones carry scikit-learn's tag "poor_score", because its
# checks ask for accuracy on tables of 200 rows, where noise exceeds the signal.
@pytest.mark.slow
@parametrize_with_checks(LINEAR + LOGISTIC)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def targets_for(model, y):
    return y > 5 if model in LOGISTIC else y


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_infinite_epsilon_is_the_non_private_answer_in_the_users_units(model):
    X, y, _ = linear_table(4000)
    if model in LOGISTIC:
        labels = np.where(y > np.median(y), "yes", "no")
        found = clone(model).set_params(epsilon=math.inf, bounds_X=FEATURE_BOUNDS).fit(X, labels)
        assert found.score(X, labels) > 0.93
        assert not found.privacy_.is_private
        return
    if isinstance(model, gm.PoissonRegressor):
        found = clone(model).set_params(epsilon=math.inf, bounds_X=FEATURE_BOUNDS, bounds_y=(0, 30)).fit(X, y)
        assert found.score(X, y) > 0.9
        assert not found.privacy_.is_private
        return
    found = clone(model).set_params(epsilon=math.inf, bounds_X=FEATURE_BOUNDS, bounds_y=(-20, 20)).fit(X, y)
    exact = LinearRegression().fit(X, y)
    assert found.coef_ == pytest.approx(exact.coef_, rel=1e-3)
    assert found.intercept_ == pytest.approx(exact.intercept_, rel=1e-3)
    assert not found.privacy_.is_private
    assert "infinite" in str(found.privacy_)


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_parameters_stay_as_they_were_and_the_budget_is_not_exceeded(model):
    X, y, _ = linear_table(300)
    y = targets_for(model, y)
    model = clone(model).set_params(epsilon=0.7, delta=1e-5)
    before = repr(model.get_params())
    certificate = model.fit(X, y).privacy_
    assert repr(model.get_params()) == before
    assert certificate.epsilon <= 0.7
    assert certificate.delta <= 1e-5
    certificate.verify()


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_certificate_says_what_was_asked_for_and_where_the_noise_came_from(model):
    X, y, _ = linear_table(200)
    y = targets_for(model, y)
    seeded = clone(model).set_params(epsilon=0.7, delta=1e-5).fit(X, y).privacy_
    assert (seeded.epsilon, seeded.delta, seeded.neighbours) == (0.7, 1e-5, "add-remove")
    assert seeded.made_by == type(model).__name__
    assert seeded.generator == "seeded (not private)"
    assert not seeded.is_private
    secure = clone(model).set_params(random_state=None).fit(X, y).privacy_
    assert secure.generator == "chacha20-os"
    assert secure.is_private
    assert secure.version == gm.__version__
    if hasattr(model, "n_rows"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gm.BudgetWarning)
            declared = clone(model).set_params(n_rows=200, epsilon=50.0).fit(X, y).privacy_
        assert any("number of rows was declared" in condition.text for condition in declared.conditions)


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_private_methods_stay_private_at_large_epsilon(model):
    """Where a published formula fails, its noise is raised: the sketch's own share of the budget holds exactly."""
    X, y, _ = linear_table(200)
    y = targets_for(model, y)
    if on_the_lattice(model):  # e^ε times the lattice's slack
        with pytest.raises(gm.BudgetUnmetError, match="epsilon=500 is too large"):
            clone(model).set_params(epsilon=500.0).fit(X, y)
        return
    with pytest.warns(gm.BudgetWarning, match="epsilon=500 gives no meaningful"):
        account = clone(model).set_params(epsilon=500.0).fit(X, y).privacy_.account
    if isinstance(model, baselines.SheffetMixing):
        spent = gm.accounting.delta(
            250.0, sketch_size=account.sketch_size, gamma=account.gamma, bound_holds_for="larger"
        )
        assert spent <= 0.5e-6
    if isinstance(model, baselines.AdaSSP):
        assert gaussian_delta_up(500.0, root_up(3 / Fraction(account.noise) ** 2)) <= 1e-6


WEAK = [
    ({"epsilon": 1.0, "delta": 0.1}, "publishing one row in 10"),
    ({"epsilon": 30.0, "delta": 1e-6}, "no meaningful worst-case guarantee"),
    ({"epsilon": 1.0, "delta": 1e-50}, "smaller than the noise samplers can guarantee"),
]


def on_the_lattice(model) -> bool:
    return isinstance(model, gm.LinearRegression | gm.LogisticRegression | gm.PoissonRegressor)


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
@pytest.mark.parametrize(("budget", "words"), WEAK)
def test_weak_budgets_warn_once_and_at_the_callers_line(model, budget, words):
    X, y, _ = linear_table(200)
    y = targets_for(model, y)
    if on_the_lattice(model) and budget["delta"] < 1e-40:  # no lattice is fine enough
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        clone(model).set_params(**budget).fit(X, y)
    found = [warning for warning in said if issubclass(warning.category, gm.BudgetWarning)]
    assert len(found) == 1
    assert words in str(found[0].message)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(X, y)


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_a_seed_repeats_and_the_secure_generator_does_not(model):
    X, y, _ = linear_table(200)
    y = targets_for(model, y)
    first, second = (clone(model).fit(X, y) for _ in range(2))
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.intercept_, second.intercept_)
    fresh = [clone(model).set_params(random_state=None).fit(X, y) for _ in range(2)]
    assert not np.array_equal(*([*model.coef_.ravel(), *np.ravel(model.intercept_)] for model in fresh))


def whole_numbers(value) -> set[int]:
    """Every integer, or float that is one, anywhere in a fitted model's state."""
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist() if value.dtype.kind in "iuf" else []
    if isinstance(value, dict):
        return whole_numbers(list(value.items()))
    if isinstance(value, list | tuple | set):
        return set().union(*(whole_numbers(v) for v in value))
    if isinstance(value, int | float):
        return {int(value)} if math.isfinite(value) and value == int(value) else set()
    return whole_numbers(vars(value)) if hasattr(value, "__dict__") else set()


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_no_attribute_tells_the_number_of_rows(model):
    n = 7919
    X, y, _ = linear_table(n)
    assert not {n - 1, n, n + 1} & whole_numbers(clone(model).fit(X, targets_for(model, y)))
    assert n in whole_numbers(clone(model).set_params(n_rows=n)) if hasattr(model, "n_rows") else True


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_data_frames_keep_their_names(frame):
    module = pytest.importorskip(frame)
    X, y, _ = linear_table(500)
    table = module.DataFrame({name: X[:, i] for i, name in enumerate("abcd")})
    model = gm.LinearRegression(**BOUNDS, random_state=0).fit(table, y)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.coef_, gm.LinearRegression(**BOUNDS, random_state=0).fit(X, y).coef_)


def test_pipelines_clone_pickle_and_cross_validation():
    X, y, _ = linear_table(5000)
    model = make_pipeline(FunctionTransformer(), gm.LinearRegression(**BOUNDS, random_state=0))
    assert cross_val_score(model, X, y, cv=3).shape == (3,)
    fitted = gm.LinearRegression(**BOUNDS, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    assert clone(fitted).get_params() == fitted.get_params()


# ---------------------------------------------------------------------------------------------------------------
# Moments that are there already
@pytest.mark.parametrize(
    "model",
    [
        gm.LinearRegression(data_norm=1.0, bounds_y=(-1, 1), random_state=3, passes=1),
        baselines.AdaSSP(data_norm=1.0, bounds_y=(-1, 1), random_state=3, n_rows=900),
        baselines.SheffetMixing(data_norm=1.0, bounds_y=(-1, 1), random_state=3),
        baselines.Ridge(data_norm=1.0, bounds_y=(-1, 1)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_to_moments_is_the_fit_to_the_table(model):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (900, 3)), rng.uniform(-1, 1, 900)
    table = clone(model).fit(X, y)
    summed = clone(model).fit_moments(gm.Moments.of_arrays([(X, y)], model.schema(3)))
    assert np.array_equal(table.coef_, summed.coef_)
    assert table.intercept_ == summed.intercept_
    assert np.array_equal(table.predict(X), summed.predict(X))


def test_a_fit_to_moments_of_several_targets_is_the_fit_to_the_table():
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-0.5, 0.5, (900, 3)), rng.uniform(-1, 1, (900, 2))
    model = gm.LinearRegression(data_norm=1.0, bounds_y=(-1, 1), random_state=3, passes=1)
    summed = clone(model).fit_moments(
        gm.Moments.of_arrays([(X[:400], Y[:400]), (X[400:], Y[400:])], model.schema(3, 2))
    )
    table = clone(model).fit(X, Y)
    assert summed.coef_.shape == (2, 3)
    assert np.array_equal(table.coef_, summed.coef_)
    assert np.array_equal(table.intercept_, summed.intercept_)


def test_moments_of_other_rows_are_refused():
    X, y = np.zeros((50_000, 2)), np.zeros(50_000)
    wide = gm.LinearRegression(data_norm=2.0, bounds_y=(-1, 1))
    moments = gm.Moments.of_arrays([(X, y)], wide.schema(2))
    with pytest.raises(ValueError, match="built with different bounds"):
        gm.LinearRegression(data_norm=1.0, bounds_y=(-1, 1)).fit_moments(moments)
    with pytest.raises(ValueError, match="n_rows does not match the number of rows"):
        wide.set_params(n_rows=50_001).fit_moments(moments)
    few = gm.LinearRegression(data_norm=2.0, bounds_y=(-1, 1))
    with pytest.raises(ValueError, match="fewer rows than features"):
        few.fit_moments(gm.Moments.of_arrays([(X[:1], y[:1])], few.schema(2)))
    assert not hasattr(few, "n_features_in_")
    table = gm.Moments.of({"a": [0.1, 0.2], "b": [0.3, 0.4]}, {"a": [0, 1], "b": [0, 1]})
    for model in (few, baselines.AdaSSP()):
        with pytest.raises(ValueError, match="got moments of a table"):
            model.fit_moments(table)


def test_moments_of_labels_are_no_moments_of_numbers():
    classifier = gm.LogisticRegression(bounds_X=(-1, 1))
    moments = gm.Moments.of_arrays([(np.zeros((9, 2)), np.ones(9))], classifier.schema(2))
    with pytest.raises(ValueError, match="built with different bounds"):
        gm.LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1)).fit_moments(moments)


def test_moments_leave_no_names_of_an_earlier_table():
    import pandas as pd

    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (50_000, 2)), rng.uniform(-1, 1, 50_000)
    model = gm.LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(
        pd.DataFrame(X, columns=["a", "b"]), y
    )
    model.fit_moments(gm.Moments.of_arrays([(X, y)], model.schema(2)))
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(X[:3]).shape == (3,)
