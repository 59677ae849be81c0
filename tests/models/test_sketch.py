"""The sketch as its factor: second moments in the user's hands, and which solver they go to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.mechanism.sampling import factor, wishart_factor
from gaussmix.models.sketch import Sketch
from gaussmix.models.solvers import as_published, cleaned_ridge, least_squares

SCHEMA = gm.Schema.of({"a": [-1, 1], "b": [-1, 1], "c": [-1, 1]})
RNG = np.random.default_rng(0)
FACTOR = np.triu(RNG.standard_normal((4, 4)) + 6 * np.eye(4))
FALSE_ALARM = 1e-6


def sketch(noise=2.0, size=100):
    return Sketch(FACTOR, size, noise, SCHEMA)


def test_second_moments_are_those_of_the_factor():
    found = sketch()
    assert found.noisy_second_moment == pytest.approx(FACTOR.T @ FACTOR / 100)
    assert found.second_moment == pytest.approx(FACTOR.T @ FACTOR / 100 - 2 * np.eye(4))
    assert found.entry_noise == 2 / math.sqrt(100)


def test_an_empty_table_shows_the_entry_noise():
    """Off-diagonal entries of the second moment of no rows have standard deviation σ²/√k; 10 % would be seen."""
    wide = gm.Schema.of({f"x{i}": [-1, 1] for i in range(60)})
    moments = gm.Moments.empty(wide)
    found = gm.release(moments, epsilon=1.0, delta=1e-6, sketch_size=50_000, random_state=0)
    entries = found.second_moment[np.triu_indices(61, 1)] / found.sketch.entry_noise
    energy, n = float(entries @ entries), len(entries)
    assert FALSE_ALARM < stats.chi2.cdf(energy, n) < 1 - FALSE_ALARM
    assert stats.chi2.sf(1.1**2 * energy, n) < FALSE_ALARM
    assert stats.chi2.cdf(0.9**2 * energy, n) < FALSE_ALARM
    diagonal = np.diagonal(found.second_moment) / (math.sqrt(2) * found.sketch.entry_noise)
    assert FALSE_ALARM < stats.chi2.cdf(float(diagonal @ diagonal), 61) < 1 - FALSE_ALARM


def test_each_variant_has_its_solver():
    rows, response = [0, 1, 3], np.eye(4)[:, [2]]
    found, block = sketch(), np.ix_([0, 1, 3], [0, 1, 3])
    W, M = found.noisy_second_moment, found.second_moment
    assert found.solve(rows, response, "paper") == pytest.approx(as_published(W[block], W[rows] @ response))
    exact = cleaned_ridge(M[block], M[rows] @ response, entry_noise=found.entry_noise)
    assert found.solve(rows, response, "exact") == pytest.approx(exact)
    open_ = sketch(noise=0.0, size=1)
    plain = least_squares(open_.noisy_second_moment[block], open_.noisy_second_moment[rows] @ response)
    for variant in ("exact", "paper"):
        assert open_.solve(rows, response, variant) == pytest.approx(plain)


def test_several_responses_are_solved_at_once_and_combined_linearly():
    found, rows = sketch(), [0, 3]
    responses = np.column_stack([np.eye(4)[1], np.eye(4)[2], 2 * np.eye(4)[1] - np.eye(4)[2]])
    for variant in ("exact", "paper"):
        theta = found.solve(rows, responses, variant)
        assert theta.shape == (2, 3)
        assert theta[:, 2] == pytest.approx(2 * theta[:, 0] - theta[:, 1])
        assert theta[:, :1] == pytest.approx(found.solve(rows, responses[:, :1], variant))


def test_unknown_variant():
    with pytest.raises(gm.ArgumentError, match="variant must be one of 'exact', 'paper'"):
        sketch().solve([0], np.eye(4)[:, [2]], "cleaned")


def gram(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, (n, 2)), np.ones(n)])
    y = X @ [0.3, -0.2, 0.1] + rng.uniform(-0.4, 0.4, n)
    A = np.column_stack([X[:, :2], y, X[:, 2]])
    return A.T @ A


def test_what_is_left_is_as_the_formula_has_it():
    """aᵀMa + 2 tr(HV), H = (M₊ + rI)⁻¹ and V = aᵀWa (M₊ + σ²I)/k, by dense matrices; without noise aᵀGa."""
    found, rows, y = sketch(), [0, 1, 3], np.eye(4)[2]
    a = y.copy()
    a[rows] -= found.solve(rows, y[:, None], "exact")[:, 0]
    M, W, block = found.second_moment, found.noisy_second_moment, np.ix_(rows, rows)
    values, U = np.linalg.eigh(M[block])
    assert values[0] < 0
    positive = (U * np.maximum(values, 0.0)) @ U.T
    H = np.linalg.inv(positive + found.entry_noise * (math.sqrt(3) + 0.5) * np.eye(3))
    V = (a @ W @ a) * (positive + 2.0 * np.eye(3)) / 100
    assert found.residual(rows, y) == pytest.approx(a @ M @ a + 2 * np.trace(H @ V))
    open_ = sketch(noise=0.0, size=1)
    theta = open_.solve(rows, y[:, None], "exact")[:, 0]
    G = FACTOR.T @ FACTOR
    assert open_.residual(rows, y) == pytest.approx(G[2, 2] - G[2, rows] @ theta)


def test_what_is_left_has_little_optimism():
    """Mean over 600 sketches against what the coefficients leave of the table itself: a quarter of the optimism.

    What noise does to the residual of least squares, 0 on average, is taken out.
    """
    G, rows, y, rng = gram(), [0, 1, 3], np.eye(4)[2], np.random.default_rng(1)
    k, sigma2 = 2000, 1500.0
    L, corrected, plain, fixed = factor(G, sigma2), [], [], y.copy()
    fixed[rows] -= np.linalg.solve(G[np.ix_(rows, rows)], G[rows, 2])
    for _ in range(600):
        found = Sketch(wishart_factor(L, k, rng), k, sigma2, SCHEMA)
        a = y.copy()
        a[rows] -= found.solve(rows, y[:, None], "exact")[:, 0]
        truth = a @ G @ a + fixed @ (found.second_moment - G) @ fixed
        corrected.append(found.residual(rows, y) - truth)
        plain.append(a @ found.second_moment @ a - truth)
    assert np.mean(plain) < -10 * np.std(plain) / math.sqrt(len(plain))
    assert abs(np.mean(corrected)) < 0.25 * abs(np.mean(plain))
