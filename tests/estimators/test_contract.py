"""One contract for all estimators and baselines, and what each promises beyond it."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import gaussmix as gm
from gaussmix import baselines
from gaussmix.estimators import declare_encoder, in_user_units
from gaussmix.moments import accumulate

BOUNDS = {"bounds_X": (-10, 10), "bounds_y": (-200, 200)}
LINEAR = [
    gm.LinearMixing(**BOUNDS, random_state=0),
    gm.LinearMixing(**BOUNDS, variant="paper", random_state=0),
    baselines.AdaSSP(**BOUNDS, random_state=0),
    baselines.AdaSSP(**BOUNDS, accounting="printed", random_state=0),
    baselines.SheffetMixing(**BOUNDS, random_state=0),
    baselines.SheffetMixing(**BOUNDS, analysis="renyi", random_state=0),
    baselines.Ridge(**BOUNDS),
    baselines.Constant(),
]
LOGISTIC = [
    gm.LogisticMixing(bounds_X=(-10, 10), random_state=0),
    gm.LogisticMixing(bounds_X=(-10, 10), variant="paper", random_state=0),
    baselines.ObjectivePerturbation(bounds_X=(-10, 10), random_state=0),
]
PRIVATE = [model for model in LINEAR if hasattr(model, "epsilon")] + LOGISTIC


def name(model) -> str:
    extra = [str(getattr(model, a)) for a in ("variant", "accounting", "analysis") if hasattr(model, a)]
    return "-".join([type(model).__name__, *extra])


# No expected failures: each model passes every check. Private ones carry scikit-learn's tag "poor_score", because its
# checks ask for accuracy on tables of 200 rows, where noise exceeds the signal.
@parametrize_with_checks(LINEAR + LOGISTIC)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def linear_table(n=20_000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform([-1, 0, 5, -3], [1, 10, 6, 3], (n, 4))[:, :d]
    coef = np.array([2.0, -0.3, 1.0, 0.5])[:d]
    return X, X @ coef + 4 + rng.uniform(-0.5, 0.5, n), coef


FEATURE_BOUNDS = ([-1, 0, 5, -3], [1, 10, 6, 3])


@pytest.mark.parametrize("model", PRIVATE, ids=name)
def test_infinite_epsilon_is_the_non_private_answer_in_the_users_units(model):
    X, y, _ = linear_table(4000)
    if model in LOGISTIC:
        labels = np.where(y > np.median(y), "yes", "no")
        found = clone(model).set_params(epsilon=math.inf, bounds_X=FEATURE_BOUNDS).fit(X, labels)
        assert found.score(X, labels) > 0.93
        assert not found.privacy_.is_private
        return
    found = clone(model).set_params(epsilon=math.inf, bounds_X=FEATURE_BOUNDS, bounds_y=(-20, 20)).fit(X, y)
    exact = LinearRegression().fit(X, y)
    assert found.coef_ == pytest.approx(exact.coef_, rel=1e-3)
    assert found.intercept_ == pytest.approx(exact.intercept_, rel=1e-3)
    assert not found.privacy_.is_private
    assert "infinite" in str(found.privacy_)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounded", ["bounds", "norm", "both"])
def test_coefficients_come_back_in_the_users_units(fit_intercept, bounded):
    X, y, _ = linear_table(4000)
    declared = {
        "bounds": {"bounds_X": FEATURE_BOUNDS},
        "norm": {"data_norm": 13.0},
        "both": {"bounds_X": FEATURE_BOUNDS, "data_norm": 2.5},
    }[bounded]
    found = gm.LinearMixing(epsilon=math.inf, bounds_y=(-20, 20), fit_intercept=fit_intercept, **declared).fit(X, y)
    exact = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert found.coef_ == pytest.approx(exact.coef_, rel=2e-3)
    assert found.intercept_ == pytest.approx(exact.intercept_, rel=2e-3, abs=1e-12)
    if not fit_intercept:
        assert found.intercept_ == 0


def test_long_rows_are_shortened_as_a_whole_so_that_linear_relations_survive():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) * rng.uniform(0.1, 10, (4000, 1))
    y = X @ [1.0, -2.0, 0.5]
    found = gm.LinearMixing(epsilon=math.inf, data_norm=1.0, bounds_y=(-1000, 1000), fit_intercept=False).fit(X, y)
    assert found.coef_ == pytest.approx([1.0, -2.0, 0.5], rel=1e-2)


def test_private_fit_is_accurate_on_a_large_table():
    X, y, coef = linear_table(200_000)
    model = gm.LinearMixing(epsilon=1.0, delta=1e-6, bounds_X=FEATURE_BOUNDS, bounds_y=(-5, 15), random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95 * LinearRegression().fit(X, y).score(X, y)
    assert model.coef_ == pytest.approx(coef, rel=0.15)


def test_several_targets_at_once():
    X, y, _ = linear_table(50_000)
    Y = np.column_stack([y, -y / 2])
    model = gm.LinearMixing(epsilon=5.0, bounds_X=FEATURE_BOUNDS, bounds_y=([-5, -8], [15, 3]), random_state=0).fit(
        X, Y
    )
    assert model.coef_.shape == (2, 4)
    assert model.intercept_.shape == (2,)
    assert model.predict(X).shape == Y.shape
    assert model.coef_[0] == pytest.approx(-2 * model.coef_[1], abs=0.3)


def test_weights_of_targets_minimise_the_noise():
    """The printed minimiser against a search over w of (C_X² + q w²)² (1/w² + 1/C_X²)."""
    for q, d, intercept in [(1, 5, True), (3, 8, False)]:
        encoder = declare_encoder(
            d, q, data_norm=None, bounds_X=(-1, 1), bounds_y=(-1, 1), fit_intercept=intercept, weight="balanced"
        )
        x2 = d + intercept
        grid = np.linspace(0.05, 3, 100_000) * math.sqrt(x2)
        best = grid[np.argmin((x2 + q * grid**2) ** 2 * (1 / grid**2 + 1 / x2))]
        assert encoder.target_weights[0] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("labels", [("a", "b"), (0, 1), (-1, 1), (True, False), ("no", "yes")], ids=str)
def test_logistic_takes_any_two_labels(labels):
    X, y, _ = linear_table(50_000)
    target = np.where(y > np.median(y), labels[1], labels[0])
    model = gm.LogisticMixing(epsilon=3.0, bounds_X=FEATURE_BOUNDS, random_state=0).fit(X, target)
    assert model.score(X, target) > 0.9
    probabilities = model.predict_proba(X[:100])
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert "taken to be public" in str(model.privacy_)
    declared = gm.LogisticMixing(epsilon=3.0, bounds_X=FEATURE_BOUNDS, classes=sorted(labels), random_state=0)
    assert declared.fit(X, target).coef_ == pytest.approx(model.coef_)
    assert "taken to be public" not in str(declared.privacy_)


def test_surrogate_has_the_scale_of_the_logistic_model():
    """Monomial coefficients: probabilities are those of the logistic fit, not of θ three times too small."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40_000, 3))
    labels = rng.random(40_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))
    surrogate = gm.LogisticMixing(epsilon=math.inf, bounds_X=(-1, 1)).fit(X, labels)
    logistic = LogisticRegression(C=1e6).fit(X, labels)
    ratio = surrogate.coef_ / logistic.coef_
    assert np.all((ratio > 0.9) & (ratio < 1.6))  # its curvature is below the logistic one near 0


def test_objective_perturbation_has_its_noise():
    """On rows that are all zero the minimum is -b/Δ: coefficients are the noise itself, and 10 % less would show."""
    d, epsilon, delta, data_norm = 1000, 2.0, 1e-6, 1.0
    model = baselines.ObjectivePerturbation(
        epsilon=epsilon, delta=delta, data_norm=data_norm, fit_intercept=False, random_state=0
    ).fit(np.zeros((4, d)), [0, 1, 0, 1])
    sigma = data_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    energy = np.sum((model.coef_ * data_norm**2 / (2 * epsilon) / sigma) ** 2)
    assert 1e-6 < stats.chi2.cdf(energy, d) < 1 - 1e-6
    assert stats.chi2.cdf(0.9**2 * energy, d) < 1e-4


def test_adassp_has_no_less_noise_than_its_budget_asks_for():
    X, y, _ = linear_table(200)
    noise = baselines.AdaSSP(**BOUNDS, random_state=0).fit(X, y).privacy_.parameters["noise"]
    assert gm.accounting.gaussian_delta(1.0, mu=math.sqrt(3) / noise) <= 1e-6
    assert gm.accounting.gaussian_delta(1.0, mu=math.sqrt(3) / (0.99 * noise)) > 1e-6


def test_objective_perturbation_solves_its_objective():
    X, y, _ = linear_table(3000)
    labels = y > np.median(y)
    exact = LogisticRegression(C=1e8, max_iter=2000, tol=1e-10).fit(X, labels)
    found = baselines.ObjectivePerturbation(epsilon=math.inf, bounds_X=FEATURE_BOUNDS).fit(X, labels)
    assert found.coef_ == pytest.approx(exact.coef_, rel=1e-2)
    private = baselines.ObjectivePerturbation(epsilon=10.0, bounds_X=FEATURE_BOUNDS, random_state=0).fit(X, labels)
    assert private.privacy_.parameters["penalty"] == pytest.approx(5 / (2 * 10.0))  # C_X² = 4 features + intercept
    assert private.score(X, labels) > 0.8


@pytest.mark.parametrize("model", PRIVATE, ids=name)
def test_certificate_says_what_was_asked_for_and_where_the_noise_came_from(model):
    X, y, _ = linear_table(200)
    y = y > 5 if model in LOGISTIC else y
    seeded = clone(model).set_params(epsilon=0.7, delta=1e-5).fit(X, y).privacy_
    assert (seeded.epsilon, seeded.delta, seeded.relation) == (0.7, 1e-5, "zero-out")
    assert seeded.generator == "seeded (not private)"
    assert not seeded.is_private
    secure = clone(model).set_params(random_state=None).fit(X, y).privacy_
    assert secure.generator == "chacha20-os"
    assert secure.is_private
    assert secure.version == gm.__version__
    if hasattr(model, "n_rows"):
        declared = clone(model).set_params(n_rows=200, epsilon=50.0).fit(X, y).privacy_
        assert any("number of rows was declared" in words for words in declared.conditions)


@pytest.mark.parametrize("model", PRIVATE, ids=name)
def test_private_methods_stay_private_at_large_epsilon(model):
    """Where a published formula fails, its noise is raised: the sketch's own share of the budget holds exactly."""
    X, y, _ = linear_table(200)
    y = y > 5 if model in LOGISTIC else y
    parameters = clone(model).set_params(epsilon=500.0).fit(X, y).privacy_.parameters
    if isinstance(model, baselines.SheffetMixing):
        k, gamma = parameters["sketch_size"], parameters["gamma"]
        assert gm.accounting.delta(250.0, sketch_size=k, gamma=gamma, scale="larger") <= 0.5e-6
    if isinstance(model, baselines.AdaSSP):
        assert gm.accounting.gaussian_delta(500.0, mu=math.sqrt(3) / parameters["noise"]) <= 1e-6


@pytest.mark.parametrize("model", PRIVATE, ids=name)
def test_a_seed_repeats_and_the_secure_generator_does_not(model):
    X, y, _ = linear_table(200)
    y = y > 5 if model in LOGISTIC else y
    first, second = (clone(model).fit(X, y).coef_ for _ in range(2))
    assert np.array_equal(first, second)
    fresh = [clone(model).set_params(random_state=None).fit(X, y).coef_ for _ in range(2)]
    assert not np.array_equal(*fresh)


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


@pytest.mark.parametrize("model", PRIVATE, ids=name)
def test_no_attribute_tells_the_number_of_rows(model):
    n = 7919
    X, y, _ = linear_table(n)
    y = y > 5 if model in LOGISTIC else y
    assert not {n - 1, n, n + 1} & whole_numbers(clone(model).fit(X, y))
    assert n in whole_numbers(clone(model).set_params(n_rows=n)) if hasattr(model, "n_rows") else True


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_data_frames_keep_their_names(frame):
    module = pytest.importorskip(frame)
    X, y, _ = linear_table(500)
    table = module.DataFrame({name: X[:, i] for i, name in enumerate("abcd")})
    model = gm.LinearMixing(**BOUNDS, random_state=0).fit(table, y)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.coef_, gm.LinearMixing(**BOUNDS, random_state=0).fit(X, y).coef_)


def test_pipelines_clone_pickle_and_cross_validation():
    X, y, _ = linear_table(5000)
    model = make_pipeline(FunctionTransformer(), gm.LinearMixing(**BOUNDS, random_state=0))
    assert cross_val_score(model, X, y, cv=3).shape == (3,)
    fitted = gm.LinearMixing(**BOUNDS, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    assert clone(fitted).get_params() == fitted.get_params()


def test_a_hopeless_budget_warns_from_public_quantities():
    X, y, _ = linear_table(50)
    with pytest.warns(UserWarning, match="n_rows=50 is too small for 4 features at epsilon=0.1"):
        gm.LinearMixing(epsilon=0.1, n_rows=50, **BOUNDS, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm.LinearMixing(epsilon=1.0, n_rows=20_000, **BOUNDS, random_state=0).fit(*linear_table()[:2])
        gm.LinearMixing(epsilon=0.1, **BOUNDS, random_state=0).fit(X, y)  # nothing declared, nothing known


GOOD = {"bounds_X": (-10, 10), "bounds_y": (-20, 20)}
BAD = [
    ({"bounds_y": None}, "bounds_y=.* must be declared"),
    ({"bounds_X": None}, "Declare bounds_X or data_norm"),
    ({"bounds_X": (1, -1)}, "lower < upper"),
    ({"bounds_X": (-1, math.inf)}, "finite with lower < upper"),
    ({"bounds_X": (math.nan, 1)}, "bounds_X must be a pair"),
    ({"bounds_X": 3}, "bounds_X must be a pair"),
    ({"bounds_X": ([0, 0], [1, 1])}, "one per column"),
    ({"bounds_X": (1, 1), "fit_intercept": False}, "lower < upper"),
    ({"data_norm": -1.0}, "data_norm must be a finite number > 0"),
    ({"epsilon": 0}, "epsilon must be"),
    ({"epsilon": -1.0}, "epsilon must be"),
    ({"delta": 0.0}, "delta must lie"),
    ({"delta": 1.0}, "delta must lie"),
    ({"sketch_size": 3}, "sketch_size must be at least the number of encoded columns, 6"),
    ({"sketch_size": "large"}, "sketch_size must be one of 'auto'"),
    ({"variant": "best"}, "variant must be one of"),
    ({"random_state": "seed"}, "random_state must be None"),
    ({"n_rows": 17}, "n_rows is declared as public"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_declarations_say_what_to_do(arguments, words):
    X, y, _ = linear_table(100)
    with pytest.raises(ValueError, match=words):
        gm.LinearMixing(**{**GOOD, "epsilon": 9.0, **arguments}).fit(X, y)


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_missing_values_are_an_error_without_a_number_in_it(where, value):
    X, y, _ = linear_table(100)
    (X if where == "X" else y)[17 if where == "y" else (17, 2)] = value
    with pytest.raises(ValueError, match=r"NaN|infin") as caught:
        gm.LinearMixing(**GOOD).fit(X, y)
    assert "17" not in str(caught.value)


def test_many_targets_raise_the_automatic_sketch_size():
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-1, 1, (200, 3)), rng.uniform(-1, 1, (200, 100))
    for model in (gm.LinearMixing(variant="paper", bounds_X=(-1, 1), bounds_y=(-1, 1), epsilon=50.0, random_state=0),
                  baselines.SheffetMixing(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0)):  # fmt: skip
        assert model.fit(X, Y).coef_.shape == (100, 3)


def test_too_few_rows_and_unknown_labels():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="fewer rows than features"):
        gm.LinearMixing(**GOOD).fit(rng.uniform(size=(3, 5)), rng.uniform(size=3))
    with pytest.raises(ValueError, match="not in the declared classes"):
        gm.LogisticMixing(bounds_X=(0, 1), classes=(0, 1)).fit(rng.uniform(size=(9, 2)), [0, 1, 2] * 3)
    for classes in ((1, 1), [[0, 1], [2, 3]], (0, 1, 2)):
        with pytest.raises(ValueError, match="two different labels"):
            gm.LogisticMixing(bounds_X=(0, 1), classes=classes).fit(rng.uniform(size=(9, 2)), [0, 1, 1] * 3)
    with pytest.raises(ValueError, match="epsilon must be at least 1e-05"):
        baselines.ObjectivePerturbation(bounds_X=(0, 1), epsilon=1e-8).fit(rng.uniform(size=(9, 2)), [0, 1, 1] * 3)


def test_user_units_undo_the_encoding():
    """Any θ predicts the same from encoded rows and, in the user's units, from the table."""
    rng = np.random.default_rng(0)
    encoder = declare_encoder(
        3, 2, data_norm=None, bounds_X=([-1, 0, 5], [1, 10, 6]), bounds_y=(-3, 8), fit_intercept=True, weight="balanced"
    )
    X = rng.uniform([-1, 0, 5], [1, 10, 6], (50, 3))
    theta = rng.standard_normal((4, 2))
    coef, intercept = in_user_units(theta, encoder)
    rows = encoder.encode(X, np.zeros((50, 2)))
    centre, scale = encoder.target_map
    encoded_prediction = rows[:, :4] @ theta * encoder.row_norm * scale + centre
    assert X @ coef.T + intercept == pytest.approx(encoded_prediction, abs=1e-4)


# ---------------------------------------------------------------------------------------------------------------
# Moments that are there already
@pytest.mark.parametrize(
    "model",
    [
        gm.LinearMixing(data_norm=1.0, bounds_y=(-1, 1), random_state=3),
        gm.LinearMixing(data_norm=1.0, bounds_y=(-1, 1), random_state=3, variant="paper", n_rows=900),
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
    summed = clone(model).fit_moments(accumulate([(X, y)], model.encoder(3)))
    assert np.array_equal(table.coef_, summed.coef_)
    assert table.intercept_ == summed.intercept_
    assert np.array_equal(table.predict(X), summed.predict(X))


def test_moments_of_other_rows_are_refused():
    X, y = np.zeros((50_000, 2)), np.zeros(50_000)
    wide = gm.LinearMixing(data_norm=2.0, bounds_y=(-1, 1))
    moments = accumulate([(X, y)], wide.encoder(2))
    with pytest.raises(ValueError, match="under other bounds"):
        gm.LinearMixing(data_norm=1.0, bounds_y=(-1, 1)).fit_moments(moments)
    with pytest.raises(ValueError, match="another number of rows"):
        wide.set_params(n_rows=50_001).fit_moments(moments)
    few = gm.LinearMixing(data_norm=2.0, bounds_y=(-1, 1))
    with pytest.raises(ValueError, match="fewer rows than features"):
        few.fit_moments(accumulate([(X[:1], y[:1])], few.encoder(2)))
    assert not hasattr(few, "n_features_in_")
    table = gm.Moments.from_({"a": [0.1, 0.2], "b": [0.3, 0.4]}, {"a": [0, 1], "b": [0, 1]})
    for model in (few, gm.LinearMixing(data_norm=1.0, bounds_y=(-1, 1), variant="paper"), baselines.AdaSSP()):
        with pytest.raises(ValueError, match="of a whole table"):
            model.fit_moments(table)


def test_moments_leave_no_names_of_an_earlier_table():
    import pandas as pd

    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (50_000, 2)), rng.uniform(-1, 1, 50_000)
    model = gm.LinearMixing(bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(
        pd.DataFrame(X, columns=["a", "b"]), y
    )
    model.fit_moments(accumulate([(X, y)], model.encoder(2)))
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(X[:3]).shape == (3,)
