"""Covariances after others are taken out: by hand without noise, and their noise by a slow computation."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from gaussmix.models.inference import Residuals, residuals
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

RNG = np.random.default_rng(0)
A = np.column_stack([np.ones(300), RNG.standard_normal((300, 3)) @ np.array([[1, 0.5, 0.2], [0, 1, 0.6], [0, 0, 1]])])
G = A.T @ A
UNIT = np.eye(4)
B = np.linalg.cholesky(np.array([[4.0, 1, 0, 0], [1, 3, 1, 0], [0, 1, 5, 2], [0, 0, 2, 6]]))


def test_without_noise_they_are_residuals():
    found = residuals(NoisyMoment(G, np.zeros_like(G)), UNIT[[1, 3]], UNIT[[0, 2]])
    fixed = A[:, [0, 2]]
    left = A[:, [1, 3]] - fixed @ np.linalg.lstsq(fixed, A[:, [1, 3]], rcond=None)[0]
    assert_allclose(found.moment, left.T @ left, rtol=1e-10)
    assert_allclose(found.correlations()[0], np.corrcoef(left.T), rtol=1e-10)
    assert not found.correlations()[1].any()


def test_variances_of_correlations_are_those_of_the_delta_method():
    C, U, step = np.array([[4.0, 1.5], [1.5, 2.0]]), np.array([[0.3, 0.1], [0.1, 0.2]]), 1e-6
    entries = [(0, 0), (0, 1), (1, 1)]
    V = np.array([[U[i, k] * U[j, q] + U[i, q] * U[j, k] for k, q in entries] for i, j in entries])
    gradient = []
    for i, j in entries:
        moved = C.copy()
        moved[i, j] += step
        moved[j, i] = moved[i, j]
        gradient.append((moved[0, 1] / np.sqrt(moved[0, 0] * moved[1, 1]) - 1.5 / np.sqrt(8)) / step)
    expected = np.sqrt(np.array(gradient) @ V @ np.array(gradient))
    assert_allclose(Residuals(C, U, np.eye(2)).correlations()[1][0, 1], expected, rtol=1e-4)


def test_what_fitted_coefficients_take_away_is_given_back():
    """What is left of C after its first-order move has the mean of what is added, with the sign turned."""
    true = residuals(NoisyMoment(G, np.zeros_like(G)), UNIT[[1, 3]], UNIT[[0, 2]])
    rng, lost, added = np.random.default_rng(1), [], []
    for _ in range(1500):
        E = B @ goe(4, rng) @ B.T
        plain = residuals(NoisyMoment(G + E, np.zeros_like(G + E)), UNIT[[1, 3]], UNIT[[0, 2]]).moment
        lost.append(plain - true.moment - true.vectors @ E @ true.vectors.T)
        given = residuals(NoisyMoment(G + E, shape=B @ B.T), UNIT[[1, 3]], UNIT[[0, 2]]).moment
        added.append(given - plain)
    error = np.std(lost, axis=0) / np.sqrt(1500)
    assert np.all(
        np.abs(np.mean(lost, axis=0) + np.mean(added, axis=0)) < 4 * error + 0.02 * np.abs(np.mean(added, axis=0))
    )
    assert np.all(
        np.abs(np.diagonal(np.mean(added, axis=0))) > 12 * np.diagonal(error)
    )  # a part left out would be seen


def test_what_drowns_in_noise_has_no_correlation():
    r, deviation = Residuals(np.diag([1.0, 50.0]), np.eye(2), np.eye(2)).correlations()
    assert np.isnan(r[0]).all()
    assert np.isnan(deviation[0, 1])
    assert r[1, 1] == 1
