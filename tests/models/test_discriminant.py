"""The discriminant from second moments: Fisher's, and what noise does to its scale."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

import gaussmix as gm
from gaussmix.models.classification import Discriminant, estimate_discriminant, quadratic_covariance, shift
from gaussmix.releases.noisy import NoisyMoment

SCHEMA = {"a": [-8, 8], "b": [0, 20], "c": {"levels": ["u", "v", "w"]}, "y": "boolean", "z": {"levels": ["no", "yes"]}}
FEATURES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 4000
    a, b, c = rng.normal(0, 2, n), rng.gamma(2, 2, n).clip(0, 20), rng.choice(["u", "v", "w"], n, p=[0.6, 0.3, 0.1])
    y = rng.random(n) < 1 / (1 + np.exp(2 - 0.7 * a - 0.1 * b - (c == "w")))
    return pd.DataFrame({"a": a, "b": b, "c": c, "y": y, "z": np.where(y, "yes", "no")})


def design(table: pd.DataFrame) -> pd.DataFrame:
    return pd.get_dummies(table[FEATURES], columns=["c"]).drop(columns="c_u").astype(float)


@pytest.mark.parametrize("target", ["y", "z"])
def test_without_noise_it_is_fishers_discriminant(table, target):
    """Class means and the covariance within classes, from the rows: the same slopes and intercept."""
    model = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).logit(target, predictors=FEATURES)
    X, second = design(table), table["y"].to_numpy()
    fisher = LinearDiscriminantAnalysis(solver="lsqr").fit(X, second)
    expected = dict(zip(["(intercept)", "a", "b", "c=v", "c=w"], [*fisher.intercept_, *fisher.coef_[0]], strict=True))
    assert model.params == pytest.approx(expected, rel=1e-4)
    assert model.predict_proba(table) == pytest.approx(fisher.predict_proba(X), abs=1e-4)
    assert model.classes == ((False, True) if target == "y" else ("no", "yes"))


def test_it_is_near_logistic_regression(table):
    release = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    second = table["y"].to_numpy()

    def loss(probabilities):
        return -np.mean(np.log(probabilities[np.arange(len(second)), second.astype(int)]))

    logistic = loss(LogisticRegression(C=1e6, max_iter=1000).fit(design(table), second).predict_proba(design(table)))
    exact = loss(release.logit("y", predictors=FEATURES).predict_proba(table))
    assert logistic < exact < logistic + 0.01


def test_formulas_by_hand():
    own = Discriminant(share=0.2, explained=0.5)
    assert own.factor == pytest.approx(1 / (0.2 * 0.8 * 0.5))
    by_means = math.log(0.2 / 0.8) + own.factor * (0.3 - 0.2 - (0.8 - 0.2) * 0.5 / 2)
    assert own.intercept(0.3) == pytest.approx(by_means)
    assert shift(0.5) == 0
    assert Discriminant(0.5, 0.1, centred=False).intercept(0.3) == 0


def test_without_an_intercept_classes_lie_opposite_to_each_other():
    """x ~ N(±m, S), equally frequent: log odds 2 x S⁻¹ m."""
    rng = np.random.default_rng(1)
    m, y = np.array([0.5, -0.3]), rng.choice([-1, 1], 200_000)
    X = y[:, None] * m + rng.normal(size=(200_000, 2))
    declared = {"epsilon": math.inf, "bounds_X": (-8, 8), "fit_intercept": False}
    model = gm.LogisticRegression(**declared).fit(X, y)
    assert model.coef_[0] == pytest.approx(2 * m, abs=0.02)
    assert model.intercept_ == [0]


def forms() -> tuple[np.ndarray, np.ndarray]:
    return np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])


def gram(n: float, share: float, r: float) -> np.ndarray:
    """Of (x, 1, y = ±1), x with mean 0 and variance 1, correlation r with y."""
    mean, deviation = 2 * share - 1, 2 * math.sqrt(share * (1 - share))
    return n * np.array([[1.0, 0.0, r * deviation], [0.0, 1.0, mean], [r * deviation, mean, 1.0]])


def test_covariance_of_quadratic_forms_is_that_of_the_noise():
    rng = np.random.default_rng(0)
    B, U = rng.normal(size=(3, 3)), rng.normal(size=(3, 2))
    found = []
    for _ in range(40_000):
        E = rng.normal(size=(3, 3))
        E = B @ ((E + E.T) / math.sqrt(2)) @ B.T
        found.append(np.sum(U * (E @ U), axis=0))
    expected = quadratic_covariance(NoisyMoment(np.zeros((3, 3)), shape=B @ B.T), U)
    assert np.cov(np.array(found).T) == pytest.approx(expected, rel=0.05, abs=0.02 * expected.max())


@pytest.mark.parametrize(("share", "r"), [(0.3, 0.4), (0.5, 0.1), (0.02, 0.2)])
def test_share_and_explained_are_exact_without_noise_and_harmless_with_too_much(share, r):
    intercept, response = forms()
    G = gram(1000.0, share, r)
    theta = np.linalg.solve(G[:2, :2], G[:2, 2])
    a = np.append(-theta, 1.0)
    own = estimate_discriminant(NoisyMoment(G, np.zeros_like(G)), intercept, response, a, residual=float(a @ G @ a))
    assert (own.share, own.explained) == pytest.approx((share, r**2))
    drowned = NoisyMoment(G, shape=1e6 * np.eye(3))
    lost = estimate_discriminant(drowned, intercept, response, a, residual=float(a @ G @ a))
    assert lost.share == pytest.approx(0.5, abs=0.01)
    assert lost.explained < 0.01
    assert lost.factor == pytest.approx(4, rel=0.05)
    for residual in (-5000.0, 0.0, 1e9):  # whatever noise makes of it, the factor is finite and positive
        some = estimate_discriminant(NoisyMoment(G, shape=30.0 * np.eye(3)), intercept, response, a, residual=residual)
        assert 0 < some.share < 1
        assert 0 <= some.explained < 1
        assert 3.9 < some.factor < 1e4


def test_noisy_scale_is_near_that_of_the_table(table):
    """The factor of a private fit against the residual variance that its coefficients leave on the rows."""
    for seed in range(3):
        release = gm.release(table, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=seed)
        log_odds, linear = release.logit("y", predictors=FEATURES), release.predictor("y", FEATURES)
        factor = log_odds.coef["a"] / linear.coef["a"]
        fitted = linear.intercept + linear.coef["a"] * table["a"] + linear.coef["b"] * table["b"]
        fitted += table["c"].map({level: linear.coef[f"c={level}"] for level in "uvw"})
        left = np.mean((table["y"] - fitted) ** 2)
        assert factor == pytest.approx(1 / left, rel=0.15)
