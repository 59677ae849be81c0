"""The algorithms of arXiv:2505.24603v2 as its text has them, with the corrections of docs/paper.md and nothing else.

Written from the LaTeX for tests, which compare distributions. Nothing here imports gaussmix. Units are the paper's:
‖x‖ ≤ C_X, \\|y\\| ≤ C_Y, C² = C_X² + C_Y². ``noise`` multiplies every standard deviation σ, to plant an error.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize


def gauss_mix(A, k, sigma, rng, noise=1.0):
    """Equation GaussMix: S A + σ ξ."""
    n, m = A.shape
    return rng.standard_normal((k, n)) @ A + noise * sigma * rng.standard_normal((k, m))


def modified_gauss_mix(A, C, k, gamma, tau, eta, rng, noise=1.0):
    """Algorithm 1: the sketch, and the variance σ² of its noise."""
    if gamma <= tau:
        sigma2 = gamma * C**2
    else:
        smallest = np.linalg.eigvalsh(A.T @ A)[0] / C**2
        private = max(smallest - eta * (tau - rng.standard_normal()), 0.0)
        sigma2 = max(gamma - private, 0.0) * C**2
    return gauss_mix(A, k, np.sqrt(sigma2), rng, noise), sigma2


def theorem1(eta, gamma, k, delta):
    """Equation eps_tot_final, its minimum over α by a fine grid and a bounded search."""

    def at(alpha):
        phi = k * alpha / (2 * (alpha - 1)) * np.log(1 - 1 / gamma) - k / (2 * (alpha - 1)) * np.log(1 - alpha / gamma)
        return phi + (np.log(3 / delta) + (alpha - 1) * np.log(1 - 1 / alpha) - np.log(alpha)) / (alpha - 1)

    alphas = 1 + (gamma - 1) * np.geomspace(1e-4, 0.999, 2000)
    best = int(np.argmin(at(alphas)))
    found = optimize.minimize_scalar(at, bounds=alphas[[max(best - 1, 0), min(best + 1, 1999)]], method="bounded")
    return np.sqrt(2 * np.log(3.75 / delta)) / eta + found.fun


def linear_mixing_gamma(epsilon, delta, k):
    """Line 1 of Algorithm 2."""
    return optimize.brentq(lambda gamma: theorem1(gamma / np.sqrt(k), gamma, k, delta) - epsilon, 2.5001, 1e6)


def linear_mixing(X, y, C_X, C_Y, k, gamma, tau, eta, rng, noise=1.0):
    """Algorithm 2, lines 2 and 3."""
    M, _ = modified_gauss_mix(np.column_stack([X, y]), np.hypot(C_X, C_Y), k, gamma, tau, eta, rng, noise)
    X_, Y_ = M[:, :-1], M[:, -1]
    return np.linalg.inv(X_.T @ X_) @ X_.T @ Y_


def adassp(X, y, C_X, C_Y, epsilon, delta, rho, rng, noise=1.0, scale=None, off_diagonal=1.0):
    """AdaSSP as the appendix prints it; ``scale`` and ``off_diagonal`` are those of a joint account."""
    d, L = X.shape[1], np.log(6 / delta)
    s = np.sqrt(L) / (epsilon / 3) if scale is None else scale
    smallest = np.linalg.eigvalsh(X.T @ X)[0]
    private = max(smallest + noise * s * C_X**2 * rng.standard_normal() - s * np.sqrt(L) * C_X**2, 0.0)
    ridge = max(0.0, s * np.sqrt(d * np.log(2 * d**2 / rho)) * C_X**2 - private)
    xi = np.triu(rng.standard_normal((d, d)))
    xi = np.diag(np.diagonal(xi)) + off_diagonal * (np.triu(xi, 1) + np.triu(xi, 1).T)
    XX = X.T @ X + noise * s * C_X**2 * xi
    Xy = X.T @ y + noise * s * C_X * C_Y * rng.standard_normal(d)
    return np.linalg.inv(XX + ridge * np.eye(d)) @ Xy


def sheffet_gamma(epsilon, delta, k):
    """γ of Sheffet's algorithm as printed, in units of C²."""
    return 4 / epsilon * (np.sqrt(2 * k * np.log(8 / delta)) + 2 * np.log(8 / delta))


def sheffet_renyi_gamma(epsilon, delta, k):
    """γ of Sheffet's algorithm with Lemma 1 and Proposition 1; half of δ is the test's."""

    def proved(gamma):
        def at(alpha):
            phi = alpha * np.log(1 - 1 / gamma) - np.log(1 - alpha / gamma)
            return k / (2 * (alpha - 1)) * phi + np.log(1 - 1 / alpha) - np.log(alpha * delta / 2) / (alpha - 1)

        alphas = 1 + (gamma - 1) * np.geomspace(1e-4, 0.999, 2000)
        best = int(np.argmin(at(alphas)))
        return optimize.minimize_scalar(
            at, bounds=alphas[[max(best - 1, 0), min(best + 1, 1999)]], method="bounded"
        ).fun

    return optimize.brentq(lambda gamma: proved(gamma) - epsilon / 2, 1.01, 1e6)


def sheffet(X, y, C_X, C_Y, k, gamma, epsilon, delta, rng, noise=1.0):
    """Sheffet's algorithm: θ, and whether the sketch had noise."""
    A, C = np.column_stack([X, y]), np.hypot(C_X, C_Y)
    smallest = np.linalg.eigvalsh(A.T @ A)[0] / C**2
    noisy = not smallest > gamma + rng.laplace(scale=4 / epsilon) + 4 * np.log(1 / delta) / epsilon
    M = gauss_mix(A, k, np.sqrt(gamma) * C if noisy else 0.0, rng, noise)
    X_, Y_ = M[:, :-1], M[:, -1]
    return np.linalg.inv(X_.T @ X_) @ X_.T @ Y_, noisy


def objective_perturbation(X, y, C_X, epsilon, delta, rng, noise=1.0):
    """Objective perturbation with the sign that makes the loss one, y in {-1, 1}."""
    sigma = np.sqrt(4 * epsilon + 8 * np.log(2 / delta)) / epsilon * C_X
    b, Delta, A = noise * sigma * rng.standard_normal(X.shape[1]), C_X**2 / (2 * epsilon), y[:, np.newaxis] * X

    def objective(theta):
        value = np.logaddexp(0, -A @ theta).sum() + b @ theta + Delta / 2 * theta @ theta
        return value, b + Delta * theta - A.T @ (1 / (1 + np.exp(A @ theta)))

    return optimize.minimize(objective, np.zeros(X.shape[1]), jac=True, method="BFGS").x


def surrogate_scale(Q):
    """-b₁/(2b₂) of the parabola through the three Chebyshev nodes of [-Q, Q]."""
    nodes = Q * np.cos(np.pi * np.array([1, 3, 5]) / 6)
    _, b1, b2 = np.linalg.solve(np.vander(nodes, increasing=True), -np.log(1 + np.exp(-nodes)))
    return -b1 / (2 * b2)


def augmented_excess(X, y, theta, sigma2):
    """(L(θ) + σ²‖θ‖² + σ²) / (the same at the ridge solution) - 1."""

    def risk(t):
        return np.sum((y - X @ t) ** 2) + sigma2 * (t @ t) + sigma2

    ridge = np.linalg.solve(X.T @ X + sigma2 * np.eye(X.shape[1]), X.T @ y)
    return risk(theta) / risk(ridge) - 1
