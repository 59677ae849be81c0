"""A synthetic table of patients with known coefficients, and a private regression of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussmix.estimators import LinearMixing

__all__ = ["Patients", "make_patients", "private_cost_model"]

FEATURES = ("age", "bmi", "smoker", "income")
LOWER, UPPER = (18.0, 15.0, 0.0, 0.0), (95.0, 45.0, 1.0, 200.0)
COST_BOUNDS = (0.0, 30.0)
TRUE_COEFFICIENTS = (0.08, 0.15, 4.0, -0.01)
TRUE_INTERCEPT = 1.5


@dataclass(frozen=True)
class Patients:
    """Features (age, body mass index, smoker, income in thousands) and yearly cost in thousands."""

    features: NDArray[np.float64]
    cost: NDArray[np.float64]


def make_patients(n: int = 100_000, seed: int = 0) -> Patients:
    """A table with skewed and binary features whose cost is linear in them, but for bounded noise."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(52, 18, n), LOWER[0], UPPER[0])
    bmi = np.clip(rng.gamma(25, 1.05, n), LOWER[1], UPPER[1])
    smoker = (rng.random(n) < 0.2).astype(float)
    income = np.clip(rng.lognormal(3.6, 0.6, n), LOWER[3], UPPER[3])
    features = np.column_stack([age, bmi, smoker, income])
    cost = TRUE_INTERCEPT + features @ TRUE_COEFFICIENTS + rng.triangular(-4, -1, 5, n)
    return Patients(features, cost)


def private_cost_model(patients: Patients, *, epsilon: float, delta: float) -> LinearMixing:
    """Cost on everything else, with bounds that were declared beforehand."""
    model = LinearMixing(epsilon=epsilon, delta=delta, bounds_X=(LOWER, UPPER), bounds_y=COST_BOUNDS)
    return model.fit(patients.features, patients.cost)
