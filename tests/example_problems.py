"""Inference problems with a known truth: strengths of directions, coefficients, noise."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from gaussmix.mechanism.sampling import factor, wishart_factor
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.pooling import goe
from gaussmix.models.problem import Problem

FALSE_ALARM = 1e-6


def problem(noisy, **changes):
    """Features first, response last, in encoded units; no coefficient is bounded, unless ``reach`` is changed."""
    d = len(noisy.moment) - 1
    values = {
        "noisy": noisy,
        "names": tuple(f"x{i}" for i in range(d)),
        "to_user": np.eye(d),
        "offset": np.zeros(d),
        "groups": {},
        "reach": np.full(d, 1e6),
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
    """From a finite sketch."""
    R = wishart_factor(factor(G, sigma2), k, rng)
    return problem(NoisyMoment.wishart(R.T @ R / k, noise=sigma2 * np.eye(len(G)), size=k), **changes)


def draw_gaussian(G, B, rng, **changes):
    """From a release with noise B·GOE·Bᵀ."""
    return problem(NoisyMoment.gaussian(G + B @ goe(len(G), rng) @ B.T, shape=B @ B.T), **changes)


def binomial_in(hits, trials, low, high):
    """Whether a coverage within [low, high] is compatible with so many hits."""
    return (
        stats.binomtest(hits, trials, low, alternative="less").pvalue > FALSE_ALARM
        and stats.binomtest(hits, trials, high, alternative="greater").pvalue > FALSE_ALARM
    )
