"""Inference problems with a known truth: strengths of directions, coefficients, noise."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from gaussmix.mechanism.sampling import factor, wishart_factor
from gaussmix.models.problem import Problem

FALSE_ALARM = 1e-6


def problem(W, sigma2, k, **changes):
    d = len(W) - 1
    values = {
        "W_xx": W[:d, :d],
        "w_xy": W[:d, d],
        "w_yy": float(W[d, d]),
        "response_noise": sigma2,
        "noise_variance": sigma2,
        "sketch_size": k,
        "names": tuple(f"x{i}" for i in range(d)),
        "to_user": np.eye(d),
        "offset": np.zeros(d),
        "groups": {},
        "total": 1.0,
        "nobs": math.nan,
        "response_name": "y",
    }
    return Problem(**{**values, **changes})


def gram(strengths, theta, residual=1.0):
    G_xx = np.diag(strengths)
    y = G_xx @ theta
    return np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + residual]])]])


def draw(G, sigma2, k, rng, **changes):
    R = wishart_factor(factor(G, sigma2), k, rng)
    return problem(R.T @ R / k, sigma2, k, **changes)


def binomial_in(hits, trials, low, high):
    """Whether a coverage within [low, high] is compatible with so many hits."""
    return (
        stats.binomtest(hits, trials, low, alternative="less").pvalue > FALSE_ALARM
        and stats.binomtest(hits, trials, high, alternative="greater").pvalue > FALSE_ALARM
    )
