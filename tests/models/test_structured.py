"""Counts and sums from structured second moments: against plain least squares, and by their law."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gaussmix.models.descriptive import group_designs
from gaussmix.releases.counts import fit_structure, level_designs
from gaussmix.releases.noisy import NoisyMoment, ratio_interval
from gaussmix.releases.preconditioning import goe

KINDS = np.array([(1.0, *a, *b) for a in np.eye(2) for b in np.eye(3)])
COUNTS = np.array([300.0, 120.0, 80.0, 200.0, 5.0, 0.0])


def shape(p, seed=0):
    B = np.random.default_rng(seed).standard_normal((p, p))
    return B @ B.T + np.eye(p)


def slow(M, N, designs):
    """Weighted least squares on all entries of the upper triangle, with their covariance written out."""
    rows, columns = np.triu_indices(len(M))
    V = np.array(
        [
            [N[i, k] * N[j, q] + N[i, q] * N[j, k] for k, q in zip(rows, columns, strict=True)]
            for i, j in zip(rows, columns, strict=True)
        ]
    )
    X, y = designs[:, rows, columns].T, M[rows, columns]
    K = X.T @ np.linalg.solve(V, X)
    return np.linalg.solve(K, X.T @ np.linalg.solve(V, y)), np.linalg.inv(K)


def test_it_is_weighted_least_squares_on_all_entries():
    N, designs = shape(6), level_designs(KINDS)
    M = np.tensordot(COUNTS, designs, 1) + goe(6, np.random.default_rng(1))
    found = fit_structure(NoisyMoment(M, shape=N), designs)
    values, covariance = slow(M, N, designs)
    assert_allclose(found.values, values, rtol=1e-7, atol=1e-6)
    assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-9)


def test_sums_within_groups_are_weighted_least_squares_too():
    designs = group_designs(np.column_stack([np.ones(3), np.eye(3)]))
    beta = np.concatenate([COUNTS[:3], 2.5 * COUNTS[:3] + 3, [20_000.0]])
    M = np.tensordot(beta, designs, 1) + goe(5, np.random.default_rng(1))
    found = fit_structure(NoisyMoment(M, shape=shape(5)), designs)
    values, covariance = slow(M, shape(5), designs)
    assert_allclose(found.values, values, rtol=1e-7, atol=1e-6)
    assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-8)


def test_without_noise_it_is_exact():
    M = np.tensordot(COUNTS, level_designs(KINDS), 1)
    found = fit_structure(NoisyMoment(M, np.zeros_like(M)), level_designs(KINDS))
    assert_allclose(found.values, COUNTS, atol=1e-6)
    assert not found.covariance.any()


def test_noise_with_next_to_nothing_in_one_direction_does_no_harm():
    """A release in passes knows almost exactly that the levels of a category add up to 1."""
    rest = np.eye(6) - np.outer(r := np.array([1.0, -1, -1, 0, 0, 0]) / np.sqrt(3), r)
    N = rest + 1e-14 * np.outer(r, r)
    M = np.tensordot(COUNTS, level_designs(KINDS), 1)
    found = fit_structure(NoisyMoment(M, shape=N), level_designs(KINDS))
    assert_allclose(found.values, COUNTS, atol=1e-4)


@pytest.mark.parametrize("mean", [0.3, -4.0])
def test_ratio_intervals_hold_the_ratio_as_often_as_they_say(mean):
    rng, under = np.random.default_rng(0), 5.0
    S = np.array([[1.0, 0.3], [0.3, 0.5]])
    draws = rng.multivariate_normal([mean * under, under], S, 4000)
    low, high = ratio_interval(draws[:, 0], draws[:, 1], S[0, 0], S[1, 1], S[0, 1], 1.959964)
    assert abs(np.mean((low <= mean) & (mean <= high)) - 0.95) < 0.0125  # 3.6 standard errors


def test_a_ratio_to_what_may_be_nothing_has_no_ends():
    low, high = ratio_interval(np.array([1.0]), np.array([0.5]), np.array([1.0]), np.array([1.0]), np.array([0.0]), 2.0)
    assert (low, high) == (-np.inf, np.inf)
