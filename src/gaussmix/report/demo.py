"""A synthetic hospital table, used by ``gaussmix demo``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["PREDICTORS", "ROWS", "SCHEMA", "make_patients"]

ROWS = 100_000
"""Number of rows, public in this demonstration."""

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

PREDICTORS = {
    "cost": ["age", "bmi", "smoker", "region", "income"],
    "pressure": ["age", "bmi", "smoker"],
    "readmitted": ["age", "smoker"],
}
"""Predictors of the models shown, by response."""


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
