"""Tests of independence and of equal means under their hypotheses: uniform p-values, with noise and sampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gaussmix.models.descriptive import analysis, group_designs, independence
from gaussmix.releases.counts import fit_structure, level_designs
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

DRAWS = 500
FALSE_ALARM = 1e-3
PAIRS = level_designs(np.array([(1.0, *a, *b) for a in np.eye(2) for b in np.eye(3)]))
ONE = group_designs(np.column_stack([np.ones(3), np.eye(3)]))


def shape(p, scale):
    B = np.random.default_rng(p).standard_normal((p, p)) / np.sqrt(p) + np.eye(p)
    return np.sqrt(scale) * B


def noisy(G, B, rng):
    return NoisyMoment(G + B @ goe(len(G), rng) @ B.T, shape=B @ B.T)


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_independence_has_uniform_p_values(scale):
    rng, B = np.random.default_rng(0), shape(6, scale)
    chances = np.outer([0.3, 0.7], [0.5, 0.3, 0.2]).ravel()
    found = []
    for _ in range(DRAWS):
        counts = rng.multinomial(6000, chances).astype(float)
        fitted = fit_structure(noisy(np.tensordot(counts, PAIRS, 1), B, rng), PAIRS)
        found.append(independence(fitted, (2, 3)))
    assert stats.kstest([test.p_value for test in found], "uniform").pvalue > FALSE_ALARM
    halved = stats.chi2.sf([0.7 * test.statistic for test in found], 2)
    assert stats.kstest(halved, "uniform").pvalue < FALSE_ALARM  # it would see a covariance that is a third off
    assert 0 < found[0].privacy_share < 1


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_equal_means_have_uniform_p_values(scale):
    rng, B = np.random.default_rng(0), shape(5, scale)
    found = []
    for _ in range(DRAWS):
        n = rng.multinomial(6000, [0.5, 0.3, 0.2]).astype(float)
        S = 1.5 * n + rng.normal(0, 2.0, 3) * np.sqrt(n)
        square = float(np.sum(S**2 / n) + 4.0 * rng.chisquare(5997))
        G = np.tensordot(np.concatenate([n, S, [square]]), ONE, 1)
        found.append(analysis(fit_structure(noisy(G, B, rng), ONE), 3, "x", "a"))
    assert stats.kstest([test.p_value for test in found], "uniform").pvalue > FALSE_ALARM
    halved = stats.f.sf([0.7 * test.statistic for test in found], *found[0].degrees)
    assert stats.kstest(halved, "uniform").pvalue < FALSE_ALARM
    assert 0 < found[0].privacy_share < 1
