"""A synthetic hospital table with known coefficients, used by ``gaussmix demo``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gaussmix.mechanism.release import release
from gaussmix.models.release import Release

__all__ = ["LINEAR_TRUTHS", "LOGISTIC_TRUTH", "ROWS", "SCHEMA", "make_patients", "private_patients"]

ROWS = 100_000
"""Number of rows, public in this demonstration, so that intervals can be for the population."""

REGIONS = ("north", "south", "west")
SCHEMA = {
    "age": [18, 95],
    "bmi": [15, 45],
    "smoker": "boolean",
    "region": {"levels": list(REGIONS)},
    "income": [0, 200],
    "pressure": [80, 200],
    "cost": [0, 30],
    "readmitted": "boolean",
}
"""Bounds and levels, declared without looking at the rows."""

LINEAR_TRUTHS = {
    "cost": {
        "(intercept)": 1.5,
        "age": 0.08,
        "bmi": 0.15,
        "smoker": 4.0,
        "region=south": 0.0,
        "region=west": 1.0,
        "income": -0.01,
    },
    "pressure": {"(intercept)": 70.0, "age": 0.45, "bmi": 1.1, "smoker": 6.0},
}
"""True coefficients of the linear models, by response."""

LOGISTIC_TRUTH = {"(intercept)": -4.0, "age": 0.04, "smoker": 1.0}
"""True coefficients of the logistic model of readmission."""


def make_patients(n: int = ROWS, seed: int = 0) -> pa.Table:
    """Return a synthetic table with two linear responses and one logistic response."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(52, 18, n), 18, 95)
    bmi = np.clip(rng.gamma(25, 1.05, n), 15, 45)
    smoker = rng.random(n) < 0.2
    region = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    income = np.clip(rng.lognormal(3.6, 0.6, n), 0, 200)
    cost = 1.5 + 0.08 * age + 0.15 * bmi + 4 * smoker + (region == 2) - 0.01 * income + rng.triangular(-4, -1, 5, n)
    pressure = 70 + 0.45 * age + 1.1 * bmi + 6 * smoker + rng.normal(0, 8, n)
    readmitted = rng.random(n) < 1 / (1 + np.exp(4 - 0.04 * age - smoker))
    return pa.table(
        {
            "age": age,
            "bmi": bmi,
            "smoker": smoker,
            "region": np.array(REGIONS)[region],
            "income": income,
            "pressure": pressure,
            "cost": cost,
            "readmitted": readmitted,
        }
    )


def private_patients(table: pa.Table, *, epsilon: float, delta: float) -> Release:
    """Return a private release of all columns."""
    return release(table, schema=SCHEMA, epsilon=epsilon, delta=delta)
