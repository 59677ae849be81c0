"""Weights of the tests: they solve what they say, and what other coefficients can do is bounded by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from example_problems import gram
from gaussmix.models.inference import (
    _information,
    critical_value,
    pilot,
    sampling_covariance,
    score_covariance,
    slopes_and_biases,
    weights_of,
)
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

THETA = np.array([0.5, -0.4, 0.2, 0.3])


@pytest.fixture
def noisy():
    rng = np.random.default_rng(0)
    B = rng.standard_normal((5, 5)) * 0.4 + np.eye(5)
    return NoisyMoment(gram([60.0, 30.0, 3.0, 1.0], THETA, 5.0) + B @ goe(5, rng) @ B.T, shape=B @ B.T)


@pytest.fixture
def functionals():
    T = np.diag([2.0, 0.5, 1.0, 3.0])
    T[0, 1:] = [-1.0, 0.3, 0.2]
    return T


@pytest.mark.parametrize("level", [1e-6, 0.01, 0.05, 0.32, 0.5])
def test_critical_values_are_quantiles_of_a_folded_normal(level):
    t = np.concatenate([[0.0, 1e-9], np.geomspace(1e-3, 1e5, 40)])
    found = critical_value(t, level)
    for bias, c in zip(t[t < 30], found, strict=False):
        wanted = optimize.brentq(
            lambda c, bias=bias: stats.norm.sf(c - bias) + stats.norm.sf(c + bias) - level, 0, bias + 10, xtol=1e-12
        )
        assert c == pytest.approx(wanted, rel=1e-8)
    assert found[-1] == pytest.approx(t[-1] + stats.norm.isf(level))


def test_critical_values_are_convex_in_the_bias():
    """So that accepted values are one interval."""
    for level in (0.001, 0.05, 0.3):
        assert np.all(np.diff(critical_value(np.linspace(0, 8, 400), level), 2) > -1e-9)


def test_the_pilot_is_the_law_with_the_bounds_as_its_prior(noisy):
    found = pilot(noisy, None)
    M, Q, inverse = noisy.moment[:4], noisy.shape[:4], np.linalg.inv(found.V)
    J = M.T @ inverse @ M - Q.T @ inverse @ Q - np.trace(inverse @ Q[:, :4]) * noisy.shape
    values, vectors = np.linalg.eigh(J[:4, :4])
    assert values[0] < 0  # a direction without signal
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    assert found.covariance == pytest.approx(np.linalg.inv(positive + 3 * np.eye(4)), rel=1e-6)
    assert found.theta == pytest.approx(found.covariance @ J[:4, 4], rel=1e-6)
    again = score_covariance(noisy, found.theta, found.covariance)
    assert np.abs(again - found.V).max() < 0.1 * np.abs(again).max()  # rounds have settled


def test_information_is_not_made_of_noise():
    """J and j are those of the table on average, V held."""
    rng, V = np.random.default_rng(3), np.diag([1.0, 2.0, 3.0, 4.0]) + 0.3
    G, H = gram([6.0, 3.0, 1.0, 0.0], THETA, 5.0), np.linalg.cholesky(np.linalg.inv(V)).T
    trials = 20_000
    total = np.zeros((4, 5))
    for _ in range(trials):
        J, j = _information(NoisyMoment(G + goe(5, rng), shape=np.eye(5)), H)
        total += np.column_stack([J, j]) / trials
    wanted = G[:4, :4] @ np.linalg.solve(V, G[:4])
    assert total == pytest.approx(wanted, abs=0.25)
    assert wanted[3, 3] == 0
    assert np.trace(np.linalg.inv(V)) > 1  # what noise alone would add to it


@pytest.mark.parametrize("kappa", [1.0, 64.0, math.inf])
def test_weights_minimise_noise_and_what_others_can_do(noisy, functionals, kappa):
    found = pilot(noisy, None)
    M = noisy.moment[:4, :4]
    for column, row in zip(found.weights(kappa, functionals).T, functionals, strict=True):
        if math.isinf(kappa):
            wanted = np.linalg.solve(M, row)
        else:
            wanted = np.linalg.solve(found.V + kappa * M @ M, kappa * M @ row)
        assert column == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_bias_is_the_most_that_others_can_do(noisy, functionals):
    """Over all corners of the bounds, with the tested combination held."""
    M = noisy.moment[:4, :4]
    w = pilot(noisy, None).weights(4.0, functionals)
    slope, bias = slopes_and_biases(w, M, functionals)
    for i in range(4):
        most = 0.0
        for corner in itertools.product((-1.0, 1.0), repeat=3):
            theta = np.insert(np.array(corner), i, 0.0)
            theta[i] = (0.7 - functionals[i] @ theta) / functionals[i, i]  # ψ = 0.7
            most = max(most, abs(w[:, i] @ M @ theta - slope[i] * 0.7))
        assert bias[i] == pytest.approx(most)


def test_each_coefficient_takes_the_shortest_promise(noisy, functionals):
    found, M = pilot(noisy, None), noisy.moment[:4, :4]
    chosen = weights_of(found, M, functionals)

    def half_length(w, i):
        slope, bias = slopes_and_biases(w, M, functionals)
        deviation = math.sqrt(w[:, i] @ found.V @ w[:, i])
        return float(critical_value(bias[i] / deviation, 0.05)) * deviation / abs(slope[i])

    for i in range(4):
        lengths = [half_length(found.weights(kappa, functionals), i) for kappa in (1.0, 16.0, 256.0, 1e12)]
        assert half_length(chosen.columns, i) <= 1.03 * min(lengths)
    assert not chosen.exact.all()  # the weak directions are not for the strong coefficients to carry


def test_covariance_of_the_score_is_averaged_over_the_law(noisy):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((4, 4)) * 0.3
    mean, P = THETA, A @ A.T
    draws = rng.multivariate_normal(mean, P, size=20_000)
    total = sum(score_covariance(noisy, theta) for theta in draws) / len(draws)
    wanted = score_covariance(noisy, mean, P)
    assert total == pytest.approx(wanted, abs=0.03 * np.abs(wanted).max())
    assert total != pytest.approx(score_covariance(noisy, mean), abs=0.03 * np.abs(wanted).max())


def test_what_is_left_when_one_is_given(noisy, functionals):
    """Against dense algebra: (I - rℓᵀ)P(I - ℓrᵀ)."""
    found = pilot(noisy, None)
    known = found.conditional(noisy, functionals)
    Q, a = noisy.shape[:4, :4], np.append(-found.theta, 1.0)
    vectors = np.random.default_rng(2).standard_normal((4, 4))
    for i, row in enumerate(functionals):
        P = found.basis @ np.diag(known.values[:, i]) @ found.basis.T
        r = known.moves[:, i]
        assert row @ r == pytest.approx(1.0)
        keep = np.eye(4) - np.outer(r, row)
        rest = keep @ P @ keep.T
        assert known.left(found.basis, vectors)[i] == pytest.approx(vectors[:, i] @ rest @ vectors[:, i])
        assert known.omega[i] == pytest.approx(a @ noisy.shape @ a + np.trace(Q @ rest))
        assert np.linalg.eigvalsh(found.covariance - P).min() > -1e-9  # given more, less is left


def test_sampling_adds_the_residual_variance_times_the_second_moment():
    G = gram([50.0, 20.0], np.array([0.5, -0.4]), 7.0)
    exact = NoisyMoment(G, np.zeros_like(G))
    assert sampling_covariance(exact, np.array([0.5, -0.4]), 102) == pytest.approx(0.07 * G[:2, :2], rel=1e-5)
    assert not sampling_covariance(exact, np.array([0.5, -0.4]), None).any()
    noisy = NoisyMoment(G - 30 * np.diag([0, 1.0, 0]), shape=np.eye(3))  # noise made a direction negative
    assert np.linalg.eigvalsh(sampling_covariance(noisy, np.zeros(2), 102)).min() >= -1e-12
