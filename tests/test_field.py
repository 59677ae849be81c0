"""The comparison with other methods: its gradient descent is right, and its report takes the best setting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import field


def test_gradient_descent_without_noise_is_least_squares():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, (500, 2)), np.ones(500)])
    y = X @ [0.3, -0.2, 0.1] + rng.normal(0, 0.01, 500)
    theta = field.gradient_descent(X, y, 1e12, rng, steps=2_000, clip=1e3, rate=2.0)
    assert theta == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], abs=1e-6)


def test_the_noise_is_that_of_gaussian_dp():
    """One step from 0 on rows of zeros is noise alone: clip/μ a coordinate, √steps more in each of several."""
    X, y = np.zeros((10, 10_000)), np.zeros(10)
    for steps in (1, 4):
        theta = field.gradient_descent(X, y, 0.5, np.random.default_rng(0), steps=steps, clip=3.0, rate=1.0)
        own = theta * np.sqrt(10_000) * 10 / steps  # the noises of all steps add up: √steps of them, √steps large
        assert np.std(own) == pytest.approx(3.0 / 0.5, rel=0.03)


def test_no_row_moves_a_gradient_by_more_than_the_clip():
    X, y = np.full((1, 3), 50.0), np.array([100.0])
    rng = np.random.default_rng(0)
    theta = field.gradient_descent(X, y, 1e12, rng, steps=1, clip=0.3, rate=1.0)
    assert np.linalg.norm(theta * np.sqrt(3)) == pytest.approx(0.3)


def test_the_report_has_the_best_setting_of_each_budget():
    methods = ["least squares", "passes", "LinearMixing", "AdaSSP", "DP-GD 10 1.0 0.5", "DP-GD 40 1.0 0.5"]
    methods += ["diffprivlib", "mean"]
    rows = [
        {"table": "t", "split": 0, "draw": 0, "method": name, "epsilon": 1.0, "r2": 0.1 * i}
        for i, name in enumerate(methods)
    ]
    last = field.report(pd.DataFrame(rows)).splitlines()[-1]
    assert last == "| t | 1 | 0.000 | 0.100 | 0.200 | 0.300 | 0.500 | 0.600 | 0.700 |"
