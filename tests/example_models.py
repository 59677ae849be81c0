"""All estimators and baselines with declared bounds, and a table with known coefficients to fit them to."""

from __future__ import annotations

import numpy as np

import gaussmix as gm
from gaussmix import baselines

BOUNDS = {"bounds_X": (-10, 10), "bounds_y": (-200, 200)}
LINEAR = [
    gm.LinearRegression(**BOUNDS, random_state=0),
    gm.PoissonRegressor(bounds_X=(-10, 10), bounds_y=(0, 200), random_state=0),
    baselines.AdaSSP(**BOUNDS, random_state=0),
    baselines.AdaSSP(**BOUNDS, analysis="printed", random_state=0),
    baselines.BinAgg(**BOUNDS, random_state=0),
    baselines.SheffetMixing(**BOUNDS, random_state=0),
    baselines.SheffetMixing(**BOUNDS, analysis="renyi", random_state=0),
    baselines.Ridge(**BOUNDS),
    baselines.Constant(),
]
LOGISTIC = [
    gm.LogisticRegression(bounds_X=(-10, 10), random_state=0),
    baselines.ObjectivePerturbation(bounds_X=(-10, 10), random_state=0),
]
PRIVATE = [model for model in LINEAR if hasattr(model, "epsilon")] + LOGISTIC
FEATURE_BOUNDS = ([-1, 0, 5, -3], [1, 10, 6, 3])


def model_name(model) -> str:
    extra = [str(getattr(model, a)) for a in ("analysis",) if hasattr(model, a)]
    return "-".join([type(model).__name__, *extra])


def linear_table(n=20_000, d=4, seed=0):
    """Features within FEATURE_BOUNDS, a target with small errors, and its coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([-1, 0, 5, -3], [1, 10, 6, 3], (n, 4))[:, :d]
    coef = np.array([2.0, -0.3, 1.0, 0.5])[:d]
    return X, X @ coef + 4 + rng.uniform(-0.5, 0.5, n), coef
