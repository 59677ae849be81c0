"""Schemas of one vector and numbers, as estimators declare them, with rows as arrays; and sums to the last bit."""

from __future__ import annotations

import numpy as np

from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema

Y = Numeric(-2.0, 3.0, weight=0.5)
BOUNDS = ((-1.0, 1.0), (0.0, 10.0), (-300.0, 5.0))
LOWER, UPPER = zip(*BOUNDS, strict=True)
SCHEMAS = {
    "norm": Schema({"X": Vector(3, norm=2.5), "y": Y}, intercept=0),
    "norm, intercept": Schema({"X": Vector(3, norm=2.5), "y": Y}, intercept=0.7),
    "norm, no target": Schema({"X": Vector(3, norm=0.3)}, intercept=0),
    "norm, weight": Schema({"X": Vector(3, norm=2.5, weight=3.0), "y": Y}),
    "bounds": Schema({"X": Vector(3, lower=LOWER, upper=UPPER), "y": Y}),
    "bounds, norm": Schema({"X": Vector(3, lower=LOWER, upper=UPPER, norm=1.1), "y": Y}),
    "bounds, norm, weight": Schema({"X": Vector(3, lower=LOWER, upper=UPPER, norm=1.1, weight=0.2), "y": Y}),
    "bounds, tiny norm": Schema({"X": Vector(3, lower=LOWER, upper=UPPER, norm=1e-6)}, intercept=0),
    "two targets": Schema(
        {
            "X": Vector(3, lower=LOWER, upper=UPPER, norm=1.0),
            "y0": Numeric(-1.0, 1.0, weight=0.25),
            "y1": Numeric(0.0, 5.0, weight=2.0),
        },
        intercept=0,
    ),
}


def targets(schema: Schema) -> int:
    return len(schema.columns) - 1


def arrays(schema: Schema, n: int, *, seed: int = 0, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows within the norm, about it and far beyond."""
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, schema.columns["X"].size)) * rng.choice([0.01, 1.0, 100.0], (n, 1))
    return X, rng.uniform(-4, 4, (n, targets(schema)))


def integers(sums: Moments) -> np.ndarray:
    """The Gram matrix in units of 2**-40, in Python's integers."""
    return sums.sums().high.astype(object) * 2**40 + sums.sums().low.astype(object)


def same_bits(a: Moments, b: Moments) -> bool:
    return (
        np.array_equal(a.sums().high, b.sums().high)
        and np.array_equal(a.sums().low, b.sums().low)
        and a.sums().n == b.sums().n
    )
