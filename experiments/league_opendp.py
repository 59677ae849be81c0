"""OpenDP's linear regression, a private Theil-Sen line: it has one predictor only (:mod:`experiments.league`)."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
from opendp.extras.sklearn.linear_model import LinearRegression

from experiments import Floats

FEATURES = ("contrib", "honest-but-curious", "idealized-numerics")  # of OpenDP, which its regression asks for


def theil_sen_line(x: Floats, y: Floats, epsilon: float, candidates: int) -> tuple[float, float]:
    """Return slope and intercept for entries in [-1, 1], with the least noise that is ε-private by OpenDP's own map."""
    private = LinearRegression(
        dp.max_divergence(),
        x_bounds=[(-1.0, 1.0)],
        y_bounds=(-1.0, 1.0),
        scale=2 / epsilon * (1 + 1e-9),  # two medians, each of them (1/scale)-private; its map rounds up
        candidates_count=candidates,
    ).measurement
    if not private.check(1, epsilon):
        raise ValueError("This scale is not enough for epsilon: OpenDP's own map says so.")
    slope, intercept = private(np.stack([x, y], axis=1))
    return float(slope), float(intercept)
