"""The paper's four methods on one training table whose Gram matrix is added up once.

Least squares on a sketch of k rows needs the Gram matrix G alone, so that 250 trials at six ε cost little more than 250
Gram matrices. Parameters come from the library's own calibrations, and the coefficients have the distribution of
:class:`gaussmix.paper.LinearMixing` and of :class:`gaussmix.baselines.SheffetMixing` (``tests/test_experiments.py``
compares them). Rows have norm at most 1, targets are at most 1 in size, and there is no intercept.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg

from experiments import Floats
from gaussmix import Moments, Schema, baselines, calibrate, paper
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.baselines.sheffet import PreparedSheffet
from gaussmix.paper.estimators import paper_sketch_size

DECLARED: dict[str, Any] = {"data_norm": 1.0, "bounds_y": (-1, 1), "fit_intercept": False}
C2 = 2.0  # C² = C_X² + C_Y²
PROBABILITY = 0.95  # of the bound of Theorem 3


class Fit(NamedTuple):
    """Coefficients, and for LinearMixing what Theorem 3 with exact constants says about their training risk.

    ``expected`` is the mean of the risk over the sketch, given σ. ``limit`` is the bound that holds with probability
    0.95, compared with least squares as in the theorem; ``best_limit`` is compared with the θ for which it is smallest.
    """

    theta: Floats
    expected: float = math.nan
    limit: float = math.nan
    best_limit: float = math.nan


class PaperTable:
    """Rows of X and targets y, read once. **Sensitive**, like everything that experiments compute from rows."""

    def __init__(self, X: Floats, y: Floats) -> None:
        A = np.column_stack([X, y])
        self.n, self.d = X.shape
        self.gram = A.T @ A
        self.k = paper_sketch_size(self.d)
        self.error = eigenvalue_error_bound(self.d + 1, n_max=self.n)
        # λ_min/C² as the library uses it: less a bound on its numerical error.
        self.lambda_min = max(float(scipy.linalg.eigvalsh(self.gram)[0]) / C2 - self.error, 0.0)
        self.values, self.vectors = scipy.linalg.eigh(self.gram[:-1, :-1])
        self.schema = _schema(self.d)
        self.moments = Moments.of_arrays([(X, y)], self.schema)

    def risk(self, theta: Floats) -> float:
        """Mean squared residual of the training rows."""
        residual = np.append(-theta, 1.0)
        return float(residual @ self.gram @ residual / self.n)

    @functools.cached_property
    def least_squares(self) -> Floats:
        """θ*, of least norm where the columns are dependent."""
        kept = self.values > 1e-12 * self.values[-1]
        V = self.vectors[:, kept]
        return np.asarray(V @ (V.T @ self.gram[:-1, -1] / self.values[kept]))

    def linear_mixing(self, epsilon: float, delta: float, rng: np.random.Generator) -> Fit:
        """Algorithm 2, with the mean of its training risk and the bound of Theorem 3."""
        found = calibrate(
            epsilon, delta, sketch_size=self.k, scale="private", analysis="paper", eigenvalue_error=self.error
        )
        eta, tau = found.eta or 0.0, found.tau or 0.0
        v = self.lambda_min - eta * (tau - rng.standard_normal()) if found.gamma > tau else 0.0
        sigma2 = C2 * max(found.gamma - max(v, 0.0), 0.0)
        L = self._factor(sigma2)
        bound = paper.excess_risk_bound(
            self.k,
            self.d,
            probability=PROBABILITY,
            gamma=found.gamma,
            x_norm=1.0,
            y_abs=1.0,
            theta_norm=float(np.linalg.norm(self.least_squares)),
        )
        limit = bound.factor * self.risk(self.least_squares) + bound.additive / self.n
        # The least L(θ) + γC²(1 + ‖θ‖²) is the squared last entry of the factor with the largest noise.
        largest = L if sigma2 == C2 * found.gamma else self._factor(C2 * found.gamma)
        best_limit = bound.factor * float(largest[-1, -1]) ** 2 / self.n
        return Fit(solve_sketch(L, self.k, rng), self._expected_risk(L, sigma2), limit, best_limit)

    def sheffet(
        self, epsilon: float, delta: float, rng: np.random.Generator, *, analysis: Literal["sheffet", "renyi"]
    ) -> Fit:
        """Sheffet's algorithm, as printed or with Lemma 1."""
        account = PreparedSheffet.of(
            self.schema,
            epsilon=epsilon,
            delta=delta,
            sketch_size=max(self.k, self.d + 1),
            analysis=analysis,
            n_rows=self.n,
            rng=rng,
        ).account
        charged = 1 + 2 * self.error
        threshold = account.gamma + rng.laplace(scale=account.laplace_scale * charged) + account.margin * charged
        sigma2 = 0.0 if self.lambda_min > threshold else C2 * account.gamma
        return Fit(solve_sketch(self._factor(sigma2), account.sketch_size, rng))

    def adassp(
        self, epsilon: float, delta: float, rng: np.random.Generator, *, analysis: Literal["printed", "exact"]
    ) -> Fit:
        """AdaSSP, as printed or with one joint account."""
        model = baselines.AdaSSP(
            epsilon=epsilon, delta=delta, analysis=analysis, n_rows=self.n, random_state=rng, **DECLARED
        )
        return Fit(model.fit_moments(self.moments).coef_)

    def ridge(self) -> Fit:
        """The paper's estimate without privacy."""
        return Fit(baselines.Ridge(**DECLARED).fit_moments(self.moments).coef_)

    def _factor(self, sigma2: float) -> Floats:
        """Return lower triangular L with LLᵀ = G + σ²I; σ is 0 only where λ_min is large."""
        return np.asarray(scipy.linalg.cholesky(self.gram + sigma2 * np.eye(self.d + 1), lower=True))

    def _expected_risk(self, L: Floats, sigma2: float) -> float:
        """Mean of the training risk given σ: θ - θ*(σ²) has mean 0 and covariance L̄(θ*)/(k - d - 1)·(XᵀX + σ²I)⁻¹."""
        ridge = scipy.linalg.solve_triangular(L[:-1, :-1], L[-1, :-1], lower=True, trans="T")
        values = np.maximum(self.values, 0.0)
        spread = L[-1, -1] ** 2 / (self.k - self.d - 1) * np.sum(values / (values + sigma2))
        return self.risk(ridge) + float(spread / self.n)


def solve_sketch(L: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw θ, least squares of the last column on the others in a sketch M with MᵀM ~ Wishart(k, LLᵀ).

    Bartlett: MᵀM = LB(LB)ᵀ, B lower triangular with B_ii² ~ χ²(k - i) and standard normals below the diagonal. With
    blocks L₁₁, l₂₁, l₂₂ and B₁₁, b₂₁ of L and B, θ = L₁₁⁻ᵀ(l₂₁ + l₂₂ B₁₁⁻ᵀ b₂₁): two triangular systems.
    """
    d = len(L) - 1
    B = np.tril(rng.standard_normal((d, d)), -1)
    np.fill_diagonal(B, np.sqrt(rng.chisquare(k - np.arange(d))))
    b = rng.standard_normal(d)
    inner = L[-1, :-1] + L[-1, -1] * scipy.linalg.solve_triangular(B, b, lower=True, trans="T", check_finite=False)
    return np.asarray(scipy.linalg.solve_triangular(L[:-1, :-1], inner, lower=True, trans="T", check_finite=False))


def _schema(d: int) -> Schema:
    return baselines.AdaSSP(**DECLARED).schema(d)
