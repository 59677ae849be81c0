"""Inference problems with a known truth: strengths of directions, coefficients, noise."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from gaussmix.models.design import Problem
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

FALSE_ALARM = 1e-6


def problem(noisy, **changes):
    """Features first, response last, in encoded units, which are also those of the coefficients."""
    d = len(noisy.moment) - 1
    values = {
        "noisy": noisy,
        "names": tuple(f"x{i}" for i in range(d)),
        "to_user": np.eye(d),
        "offset": np.zeros(d),
        "groups": {},
        "reach": np.ones(d),
        "nobs": math.nan,
        "response_name": "y",
    }
    return Problem(**{**values, **changes})


def gram(strengths, theta, residual=1.0):
    G_xx = np.diag(strengths)
    y = G_xx @ theta
    return np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + residual]])]])


def draw(G, scale, rng, **changes):
    """From a release with isotropic noise, of standard deviation ``scale`` off the diagonal."""
    return draw_in_metric(G, math.sqrt(scale) * np.eye(len(G)), rng, **changes)


def draw_in_metric(G, B, rng, **changes):
    """From a release with noise B·GOE·Bᵀ."""
    return problem(NoisyMoment(G + B @ goe(len(G), rng) @ B.T, shape=B @ B.T), **changes)


def binomial_in(hits, trials, low, high):
    """Whether a coverage within [low, high] is compatible with so many hits."""
    return (
        stats.binomtest(hits, trials, low, alternative="less").pvalue > FALSE_ALARM
        and stats.binomtest(hits, trials, high, alternative="greater").pvalue > FALSE_ALARM
    )
