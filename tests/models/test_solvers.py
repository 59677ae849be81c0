"""Coefficients from second moments."""

from __future__ import annotations

import numpy as np
import pytest

from gaussmix.models.solvers import as_published, cleaned_ridge, least_squares, logistic_quadratic, response_scale


def second_moment(d=6, n=5000, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d + 1)) @ np.diag(np.linspace(0.2, 1, d + 1))
    return A.T @ A


def goe(d, s, rng):
    Z = rng.standard_normal((d, d)) * s
    return (Z + Z.T) / np.sqrt(2)


def test_published_solution_is_least_squares_on_the_sketch():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((50, 7))
    W = M.T @ M
    exact = np.linalg.lstsq(M[:, :5], M[:, 5:], rcond=None)[0]
    assert as_published(W[:5, :5], W[:5, 5:]) == pytest.approx(exact)


def test_least_squares_of_a_singular_matrix_has_least_norm():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 4))
    A = np.column_stack([A, A[:, 0] + A[:, 1]])
    y = A @ rng.standard_normal((5, 1))
    assert least_squares(A.T @ A, A.T @ y) == pytest.approx(np.linalg.lstsq(A, y, rcond=None)[0])


def test_without_noise_the_cleaned_ridge_is_least_squares():
    G = second_moment()
    exact = np.linalg.solve(G[:6, :6], G[:6, 6:])
    assert cleaned_ridge(G[:6, :6], G[:6, 6:], entry_noise=1e-9) == pytest.approx(exact, rel=1e-9)


def test_cleaned_ridge_is_finite_and_small_where_there_is_only_noise():
    rng = np.random.default_rng(0)
    for d in (1, 2, 20):
        for _ in range(20):
            M = goe(d + 1, 3.0, rng)
            theta = cleaned_ridge(M[:d, :d], M[:d, d:], entry_noise=3.0)
            assert np.all(np.isfinite(theta))
            assert np.linalg.norm(theta) < 10


def test_cleaned_ridge_commutes_with_rotations():
    G = second_moment() + 40 * goe(7, 1.0, np.random.default_rng(1))
    Q = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))[0]
    plain = cleaned_ridge(G[:6, :6], G[:6, 6:], entry_noise=40.0)
    rotated = cleaned_ridge(Q @ G[:6, :6] @ Q.T, Q @ G[:6, 6:], entry_noise=40.0)
    assert rotated == pytest.approx(Q @ plain)


def test_cleaned_ridge_beats_the_plain_ridge_of_the_same_size_on_low_rank_tables():
    """Excess risk, averaged over draws of the noise."""
    rng = np.random.default_rng(0)
    d, s = 60, 30.0
    U = np.linalg.qr(rng.standard_normal((d, 4)))[0]
    G_xx = U @ np.diag([3000.0, 2000.0, 1500.0, 1000.0]) @ U.T
    theta = U @ rng.standard_normal(4)
    G = np.block([[G_xx, (G_xx @ theta)[:, None]], [(G_xx @ theta)[None], np.array([[5000.0]])]])

    def excess(estimate):
        return float((estimate[:, 0] - theta) @ G_xx @ (estimate[:, 0] - theta))

    ours, ridge = [], []
    for _ in range(30):
        M = G + goe(d + 1, s, rng)
        ours.append(excess(cleaned_ridge(M[:d, :d], M[:d, d:], entry_noise=s)))
        ridge.append(excess(np.linalg.solve(M[:d, :d] + 2 * s * np.sqrt(d) * np.eye(d), M[:d, d:])))
    assert np.mean(ours) < 0.8 * np.mean(ridge)


def test_surrogate_is_the_parabola_through_the_chebyshev_nodes():
    for radius in (1.0, 6.0):
        b0, b1, b2 = logistic_quadratic(radius)
        for node in radius * np.cos(np.pi * np.array([1, 3, 5]) / 6):
            assert b0 + b1 * node + b2 * node**2 == pytest.approx(-np.log1p(np.exp(-node)), abs=1e-12)
        assert b1 == pytest.approx(0.5)
        assert b2 < 0
    grid = np.linspace(-6, 6, 1001)
    b0, b1, b2 = logistic_quadratic(6.0)
    assert np.abs(b0 + b1 * grid + b2 * grid**2 + np.log1p(np.exp(-grid))).max() < 0.25
    assert response_scale(6.0) == pytest.approx(3.533, abs=5e-4)


def test_least_squares_with_the_scaled_response_maximises_the_surrogate():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (500, 3)), rng.choice([-1.0, 1.0], 500)
    _, b1, b2 = logistic_quadratic(6.0)
    theta = response_scale(6.0) * least_squares(X.T @ X, X.T @ y[:, None])[:, 0]
    margin = y * (X @ theta)
    gradient = (X * y[:, None]).T @ (b1 + 2 * b2 * margin)  # of a concave function: b2 < 0
    assert gradient == pytest.approx(np.zeros(3), abs=1e-9)
