"""The discriminant from second moments: Fisher's, and what noise does to its scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import gaussmix as gm
from gaussmix.models.discriminant import Discriminant, estimate_discriminant, quadratic_covariance, shift
from gaussmix.releases.noisy import NoisyMoment


def test_a_classifier_of_numbers_is_fishers_discriminant():
    """Class means and the covariance within classes, from the rows: the same slopes and intercept."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(0, 1, (20_000, 2)) @ [[1.0, 0.4], [0.0, 0.8]], rng.random(20_000) < 0.3
    X = X + np.outer(y, [0.6, -0.5])
    model = gm.LogisticRegression(epsilon=math.inf, bounds_X=(-8, 8)).fit(X, y)
    fisher = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    assert model.coef_[0] == pytest.approx(fisher.coef_[0], rel=1e-3)
    assert model.intercept_ == pytest.approx(fisher.intercept_, rel=1e-3)


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
