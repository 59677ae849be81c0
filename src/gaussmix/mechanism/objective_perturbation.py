"""Objective perturbation: the minimum of a logistic likelihood with a random linear term.

The loss is a sum over rows and not over moments, so that rows are read here, encoded like any others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.accounting.accounts import GRADIENT_NORM, ObjectivePerturbationAccount
from gaussmix.data.encode import encode_arrays
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DataError
from gaussmix.mechanism.drawing import certify
from gaussmix.mechanism.grid import public_grid, to_grid
from gaussmix.mechanism.one_draw import OneDraw
from gaussmix.releases.certificate import Certificate, Condition

__all__ = ["PreparedObjectivePerturbation", "minimise"]

MAX_STEPS = 200
LEAST_EPSILON = 1e-5


@dataclass(frozen=True)
class PreparedObjectivePerturbation:
    """Objective perturbation (Kifer, Smith and Thakurta 2012) for which all is ready but the rows.

    With ``epsilon=inf`` the penalty is 1e-6 and there is no noise.
    """

    schema: Schema
    epsilon: float
    delta: float
    account: ObjectivePerturbationAccount
    conditions: Sequence[Condition]
    rng: np.random.Generator
    _once: OneDraw = field(default_factory=OneDraw, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        conditions: Sequence[Condition],
        rng: np.random.Generator,
    ) -> PreparedObjectivePerturbation:
        """From declared quantities, checked."""
        epsilon, delta = check.positive(epsilon=epsilon), check.in_interval(0, 1, delta=delta)
        if epsilon < LEAST_EPSILON:
            raise ArgumentError(
                f"epsilon must be at least {LEAST_EPSILON:g} for objective perturbation, got {epsilon!r}: below, "
                "rounding keeps the minimum from being reached."
            )
        (X, _) = schema.columns
        x_norm = schema.norm_of([X], intercept=True)
        noise, penalty = 0.0, 1e-6
        if not math.isinf(epsilon):
            noise = x_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
            penalty = x_norm**2 / (2 * epsilon)
        account = ObjectivePerturbationAccount(noise, x_norm, penalty, GRADIENT_NORM * x_norm)
        return cls(schema, epsilon, delta, account, conditions, rng)

    def draw(self, X: Rows, second: Rows) -> tuple[Floats, Certificate]:
        """θ on the features and the intercept, in encoded units and on the grid; ``second`` says which rows are it."""
        schema, account = self.schema, self.account
        encoded = encode_arrays(schema, X, second.astype(float)) * schema.row_norm
        self._once.take()
        d = X.shape[1]
        features = np.delete(encoded, d, axis=1)  # shorter rows count for less, label included
        b = np.asarray(account.noise * self.rng.standard_normal(features.shape[1]))
        signs = np.where(second, 1.0, -1.0)
        theta = minimise(features, signs, b, account.penalty, tolerance=account.gradient_norm)
        if not math.isinf(self.epsilon):
            theta = to_grid(theta, public_grid(1 / account.x_norm))
        certificate = certify(
            schema,
            account,
            self.rng,
            made_by="ObjectivePerturbation",
            budget=(self.epsilon, self.delta),
            relation="zero-out",
            conditions=self.conditions,
        )
        return theta, certificate


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
    raise DataError(
        "The minimum was not reached to the stated gradient norm; the proof does not apply, and nothing is released. "
        "The noise is drawn, and its budget spent. LogisticRegression needs no minimum."
    )
