r"""Objective perturbation for logistic regression (Kifer, Smith and Thakurta 2012).

With features of norm at most C_X, b ~ N(0, σ²I), σ = C_X √(8 log(2/δ) + 4ε)/ε, and Δ = 2(C_X²/4)/ε, twice the largest
curvature of the loss over ε,

.. math:: \theta = \arg\min_\theta \sum_i \log(1 + e^{-y_i x_i\theta}) + b^\top\theta + \tfrac\Delta2\|\theta\|^2

is (ε, δ)-differentially private. (arXiv:2505.24603v2 prints the loss with the opposite sign.) The proof is about the
exact minimum: Newton's method goes on until the gradient's norm is at most :data:`GRADIENT_NORM` times C_X, and fails
otherwise.

The loss is a sum over rows and not over moments, so this baseline reads encoded rows itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy import special

from gaussmix import _validation as check
from gaussmix.estimators import LABELS_PUBLIC, LogOdds, declare_encoder, in_user_units, read_classes
from gaussmix.mechanism import certify, public_grid
from gaussmix.sampling import SECURE, generator

__all__ = ["ObjectivePerturbation"]

Floats = NDArray[np.float64]

GRADIENT_NORM = 1e-8
MAX_STEPS = 200
LEAST_EPSILON = 1e-5


class ObjectivePerturbation(LogOdds):
    """Private logistic regression by a random linear term in the objective.

    Parameters
    ----------
    epsilon, delta, data_norm, bounds_X, classes, fit_intercept, random_state
        As in :class:`gaussmix.LogisticMixing`. With ``epsilon=float("inf")`` the penalty is 1e-6 and there is no noise.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        data_norm: float | None = None,
        bounds_X: Any = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds_X = bounds_X
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> ObjectivePerturbation:
        """Fit to X (rows, features) and y (rows,) with two labels."""
        rows, signs, self.classes_ = read_classes(self, X, y, self.classes)
        encoder = declare_encoder(
            rows.shape[1],
            1,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=(-1.0, 1.0),
            fit_intercept=self.fit_intercept,
            weight="paper",
        )
        epsilon = check.positive(epsilon=self.epsilon)
        if epsilon < LEAST_EPSILON:
            raise ValueError(
                f"epsilon must be at least {LEAST_EPSILON:g} for objective perturbation, got {epsilon!r}: below, "
                "rounding keeps the minimum from being reached."
            )
        delta = check.in_interval(0, 1, delta=self.delta)
        features = encoder.encode(rows, signs)[:, :-1] * encoder.row_norm  # shorter rows count for less, label included
        x_norm = math.sqrt(encoder.x_norm**2 + encoder.intercept**2)
        if math.isinf(epsilon):
            source, penalty = SECURE, 1e-6
            noise: Floats = np.zeros(features.shape[1])
        else:
            rng, source = generator(self.random_state)
            sigma = x_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
            noise = np.asarray(sigma * rng.standard_normal(features.shape[1]))
            penalty = x_norm**2 / (2 * epsilon)
        theta = minimise(features, signs, noise, penalty, tolerance=GRADIENT_NORM * x_norm)
        if not math.isinf(epsilon):
            grid = public_grid(1 / x_norm)
            theta = np.round(theta / grid) * grid
        # in_user_units expects θ for an encoded target; the log odds have no unit to undo.
        scale = encoder.target_map[1]
        coef, intercept = in_user_units(theta[:, None] / scale, encoder)
        self.coef_, self.intercept_ = coef, intercept
        self.privacy_ = certify(
            encoder,
            mechanism="ObjectivePerturbation",
            epsilon=epsilon,
            delta=delta,
            relation="zero-out",
            analysis="Kifer, Smith and Thakurta 2012",
            generator=source,
            parameters={"penalty": penalty, "gradient_norm": GRADIENT_NORM * x_norm},
            conditions=() if self.classes is not None else (LABELS_PUBLIC,),
        )
        return self


def minimise(X: Floats, y: Floats, b: Floats, penalty: float, *, tolerance: float) -> Floats:
    """Minimum of Σ log(1 + exp(-y xθ)) + bᵀθ + penalty/2 ‖θ‖² by damped Newton steps."""
    theta = np.zeros(X.shape[1])
    A = y[:, None] * X

    def objective(theta: Floats) -> float:
        return float(np.logaddexp(0, -A @ theta).sum() + b @ theta + penalty / 2 * theta @ theta)

    value = objective(theta)
    for _ in range(MAX_STEPS):
        p = special.expit(-A @ theta)
        gradient = b + penalty * theta - A.T @ p
        if np.linalg.norm(gradient) <= tolerance:
            return theta
        hessian = (X.T * (p * (1 - p))) @ X + penalty * np.eye(len(theta))
        direction = scipy.linalg.solve(hessian, gradient, assume_a="pos")
        step, rounding = 1.0, 1e-12 * (1 + abs(value))  # near the minimum the objective no longer shows progress
        while (new := objective(theta - step * direction)) > value + rounding and step > 1e-12:
            step /= 2
        theta, value = theta - step * direction, new
    raise RuntimeError(
        "The minimum was not reached to the stated gradient norm; the proof does not apply, and nothing is released."
    )
