"""One table for the tests of releases: numbers, categories, a boolean, and known coefficients."""

from __future__ import annotations

import numpy as np
import pandas as pd

SCHEMA = {
    "age": [0, 100],
    "bmi": [10, 50],
    "sex": {"levels": ["f", "m"]},
    "region": {"levels": ["north", "south", "west"]},
    "smoker": "boolean",
    "cost": [0, 20],
}


def patients(n: int = 20_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "bmi": np.clip(rng.normal(27, 5, n), 10, 50),
            "sex": rng.choice(["f", "m"], n),
            "region": rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2]),
            "smoker": rng.random(n) < 0.3,
            "name": "never read",
        }
    )
    table["cost"] = (
        1 + 0.05 * table["age"] + 0.1 * table["bmi"] + 3 * table["smoker"] + 0.5 * (table["sex"] == "m")
    ) + rng.uniform(-1, 1, n)
    return table
