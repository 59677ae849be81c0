"""What the paper's published code computes, its mistakes included. **Not private**: for comparison only.

The formulas are those of commit 746a96b of the authors' repository, written afresh. Where they depart from the paper
and from privacy:

- the noise on λ_min has the square root of the standard deviation that is accounted for, and is charged half;
- AdaSSP's λ̃ has a division where a minus was meant, which leaves λ_min - z/(√L (ε/3)²), and is drawn once for all
  trials;
- Sheffet's γ has log(8/δ) for 2 log(8/δ) and no C², and the variant with the paper's analysis tests against γ, not γC².

Sketches are drawn through their Gram matrix, which has the same law, or explicitly with the code's own random stream
(:meth:`PublishedCode.replayed_trial`), which gives its numbers again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy import optimize

from experiments import Floats
from gaussmix.accounting import rdp
from gaussmix.paper.mixing import covariance_factor, draw_factor

RHO = 1e-10


class PublishedCode:
    """All four methods on one table at one budget; rows of X have norm at most 1 and so does y.

    The code for logistic regression passes its own k, and takes λ_min with labels 0 and 1 (``eigenvalue_y``) of a
    table that it sketches with labels -1 and 1.
    """

    def __init__(
        self,
        X: Floats,
        y: Floats,
        *,
        epsilon: float,
        delta: float,
        sketch_size: int | None = None,
        eigenvalue_y: Floats | None = None,
    ) -> None:
        self.A = np.column_stack([X, y])
        self.gram = self.A.T @ self.A
        self.d = X.shape[1]
        self.k = sketch_size or max(int(2.5 * self.d), int(2.5 * math.log(1e10)))
        self.epsilon, self.delta = epsilon, delta
        B = self.A if eigenvalue_y is None else np.column_stack([X, eigenvalue_y])
        self.lambda_min = max(float(np.linalg.eigvalsh(B.T @ B)[0]), 0.0)
        self.lambda_min_x = max(float(np.linalg.eigvalsh(self.gram[: self.d, : self.d])[0]), 0.0)

    # -- noise variances, as functions of what the code draws for them --------------------------------------------
    def mixing_variance(self, rng: np.random.Generator | np.random.RandomState) -> float:
        """LinearMixing's, given its own λ̃."""
        sigma2 = linear_mixing_variance(self.epsilon, self.delta, self.k)
        tau = math.sqrt(2 * math.log(3 / self.delta))
        if sigma2 <= tau:
            return sigma2
        lower = self.lambda_min - math.sqrt(sigma2 / math.sqrt(self.k)) * (tau - rng.standard_normal())
        return max(0.0, sigma2 - max(0.0, lower))

    def sheffet_variance(self, rng: np.random.Generator | np.random.RandomState) -> float:
        """Sheffet's, 0 if its test passes."""
        log_term = math.log(8 / self.delta)
        sigma2 = 4 / self.epsilon * (math.sqrt(2 * self.k * log_term) + log_term)
        return 0.0 if self._passes(sigma2, rng) else sigma2

    def sheffet_renyi_variance(self, rng: np.random.Generator | np.random.RandomState) -> float:
        """The same with the paper's analysis, tested against half of it."""
        sigma2 = sheffet_renyi_variance(self.epsilon, self.delta, self.k)
        return 0.0 if self._passes(sigma2 / 2, rng) else sigma2

    def _passes(self, threshold: float, rng: np.random.Generator | np.random.RandomState) -> bool:
        margin = rng.laplace(scale=4 / self.epsilon) + 4 * math.log(1 / self.delta) / self.epsilon
        return self.lambda_min > threshold + margin

    def adassp_eigenvalue(self, rng: np.random.Generator | np.random.RandomState) -> float:
        """AdaSSP's λ̃, which the code draws once for all trials."""
        noise = rng.standard_normal() / (math.sqrt(math.log(6 / self.delta)) * (self.epsilon / 3) ** 2)
        return max(0.0, self.lambda_min_x - noise)

    # -- coefficients --------------------------------------------------------------------------------------------
    def adassp(self, rng: np.random.Generator | np.random.RandomState, eigenvalue: float) -> Floats:
        """AdaSSP as coded."""
        d, scale = self.d, math.sqrt(math.log(6 / self.delta)) / (self.epsilon / 3)
        penalty = max(0.0, scale * math.sqrt(d * math.log(2 * d**2 / RHO)) - eigenvalue)
        noise = np.triu(rng.standard_normal((d, d)))
        noise = noise + np.triu(noise, 1).T
        XX = self.gram[:d, :d] + scale * noise + penalty * np.eye(d)
        XY = self.gram[:d, d] + scale * rng.standard_normal(d)
        return np.asarray(scipy.linalg.solve(XX, XY, assume_a="sym"))

    def sketch_and_solve(self, sigma2: float, rng: np.random.Generator) -> Floats:
        """Least squares on a sketch with noise of variance σ², drawn through its Gram matrix."""
        R = draw_factor(covariance_factor(self.gram, sigma2), self.k, rng)
        return np.asarray(scipy.linalg.solve_triangular(R[: self.d, : self.d], R[: self.d, self.d]))

    def one_trial(self, rng: np.random.Generator, adassp_eigenvalue: float) -> dict[str, Floats]:
        """Coefficients of all four methods."""
        return {
            "LinearMixing": self.sketch_and_solve(self.mixing_variance(rng), rng),
            "AdaSSP": self.adassp(rng, adassp_eigenvalue),
            "Sheffet": self.sketch_and_solve(self.sheffet_variance(rng), rng),
            "Sheffet, Rényi": self.sketch_and_solve(self.sheffet_renyi_variance(rng), rng),
        }

    def replayed_trial(self, rng: np.random.RandomState, adassp_eigenvalue: float) -> dict[str, Floats]:
        """The same by explicit sketches, with the code's own draws in its own order."""
        n, m = self.A.shape

        def sketch() -> tuple[Floats, Floats]:
            S, noise, noise_y = (rng.standard_normal(shape) for shape in ((self.k, n), (self.k, m - 1), (self.k, 1)))
            return S @ self.A, np.hstack([noise, noise_y])

        def solve(rows: Floats) -> Floats:
            X, y = rows[:, :-1], rows[:, -1]
            return np.asarray(np.linalg.solve(X.T @ X, X.T @ y))

        (signal, noise), (shared_signal, shared_noise) = sketch(), sketch()
        mixing = solve(signal + math.sqrt(self.mixing_variance(rng)) * noise)
        sheffet, renyi = (
            solve(shared_signal + math.sqrt(variance(rng)) * shared_noise)
            for variance in (self.sheffet_variance, self.sheffet_renyi_variance)
        )
        return {
            "LinearMixing": mixing,
            "AdaSSP": self.adassp(rng, adassp_eigenvalue),
            "Sheffet": sheffet,
            "Sheffet, Rényi": renyi,
        }


@functools.lru_cache
def linear_mixing_variance(epsilon: float, delta: float, k: int) -> float:
    """Noise variance 2γ of the code's LinearMixing: λ_min's release is charged half of Theorem 1's term."""
    return 2 * _least_gamma(
        k, delta / 3, lambda gamma: math.sqrt(2 * math.log(3.75 / delta) * k) / (2 * gamma), epsilon
    )


@functools.lru_cache
def sheffet_renyi_variance(epsilon: float, delta: float, k: int) -> float:
    """Noise variance 2γ of the code's Sheffet variant: half of ε and all of δ for the sketch."""
    return 2 * _least_gamma(k, delta, lambda gamma: 0.0, epsilon / 2)


def _least_gamma(k: int, delta: float, extra: Callable[[float], float], epsilon: float) -> float:
    """γ at which Lemma 1 with Proposition 1, and what else is charged, meet ε."""

    def excess(gamma: float) -> float:
        def converted(log_excess_order: float) -> float:
            alpha = 1 + math.exp(log_excess_order)
            conversion = (math.log(1 / delta) - math.log(alpha)) / (alpha - 1) + math.log1p(-1 / alpha)
            return float(rdp(alpha, sketch_size=k, gamma=gamma)) + conversion

        top = math.log(gamma - 1)
        best = optimize.minimize_scalar(converted, bounds=(top - 25, top - 1e-9), method="bounded")
        return float(best.fun) + extra(gamma) - epsilon

    return float(optimize.brentq(excess, 1 + 1e-6, 1e7, xtol=1e-9))
