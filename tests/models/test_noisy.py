"""Second moments with noise of known law: the covariance of scores, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from example_problems import FALSE_ALARM, gram
from example_tables import SCHEMA, patients
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

THETA = np.array([0.5, -1.0, 0.2])
G = gram([30.0, 10.0, 3.0], THETA, 5.0)


def in_a_metric(rng):
    B = np.random.default_rng(5).standard_normal((4, 4))
    return NoisyMoment(G + B @ goe(4, rng) @ B.T, shape=B @ B.T)


def expected(noisy):
    """Cov(g) by the formula."""
    a = np.append(-THETA, 1.0)
    c = (noisy.shape @ a)[:3]
    return noisy.shape[:3, :3] * (a @ noisy.shape @ a) + np.outer(c, c)


def test_scores_have_the_covariance_of_the_formula():
    rng, u, a = np.random.default_rng(0), np.array([0.3, -1.0, 0.7]), np.append(-THETA, 1.0)
    trials = 4000
    found = [in_a_metric(rng) for _ in range(trials)]
    z = np.array([u @ (noisy.moment @ a)[:3] for noisy in found])
    q = float(z @ z) / (u @ expected(found[0]) @ u)
    assert 2 * min(stats.chi2.sf(q, trials), stats.chi2.cdf(q, trials)) > FALSE_ALARM
    assert stats.chi2.sf(1.15**2 * q, trials) < FALSE_ALARM  # 15 % of a standard deviation would be seen
    c = (found[0].shape @ a)[:3]
    along = np.linalg.solve(found[0].shape[:3, :3], c)  # where the second term is largest
    z = np.array([along @ (noisy.moment @ a)[:3] for noisy in found])
    first = along @ (expected(found[0]) - np.outer(c, c)) @ along
    assert stats.chi2.sf(float(z @ z) / first, trials) < FALSE_ALARM  # without the second term


def test_sums_of_squares_have_their_deviation():
    rng, u = np.random.default_rng(1), np.array([0.3, -1.0, 0.7, 0.1])
    pairs = np.array([in_a_metric(rng).quadratic(u) for _ in range(4000)])
    z = (pairs[:, 0] - u @ G @ u) / pairs[:, 1].mean()
    q = float(z @ z)
    assert 2 * min(stats.chi2.sf(q, 4000), stats.chi2.cdf(q, 4000)) > FALSE_ALARM
    assert abs(z.mean()) < 6 / math.sqrt(4000)


def test_a_linear_map_of_the_columns_is_one_of_both_matrices():
    rng = np.random.default_rng(2)
    noisy, L = in_a_metric(rng), np.random.default_rng(3).standard_normal((2, 4))
    mapped = noisy.mapped(L)
    for name in ("moment", "shape"):
        assert getattr(mapped, name) == pytest.approx(L @ getattr(noisy, name) @ L.T)
    u = np.array([0.3, 2.0])
    assert mapped.quadratic(u) == pytest.approx(noisy.quadratic(u @ L))


def test_a_release_with_and_without_noise_has_one():
    table = patients(500)
    open_table = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).statistic.noisy
    assert not open_table.has_noise
    assert open_table.quadratic(np.ones(len(open_table.moment)))[1] == 0
    passes = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0).statistic
    assert passes.noisy.has_noise
    assert np.array_equal(passes.noisy.moment, passes.last.matrix)
    assert np.array_equal(passes.noisy.shape, passes.last.shape)
