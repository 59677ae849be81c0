"""Second moments with noise of known law: the covariance of scores, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from example_problems import FALSE_ALARM, gram
from example_tables import SCHEMA, patients
from gaussmix.mechanism.sampling import factor, wishart_factor
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.pooling import goe

THETA = np.array([0.5, -1.0, 0.2])
G = gram([30.0, 10.0, 3.0], THETA, 5.0)


def sketched(rng, k=3000, sigma2=2.0):
    R = wishart_factor(factor(G, sigma2), k, rng)
    return NoisyMoment.wishart(R.T @ R / k, noise=sigma2 * np.eye(4), size=k)


def in_a_metric(rng):
    B = np.random.default_rng(5).standard_normal((4, 4))
    return NoisyMoment.gaussian(G + B @ goe(4, rng) @ B.T, shape=B @ B.T)


def expected(noisy):
    """Cov(g) with the true spread in place of a sketch's own."""
    a = np.append(-THETA, 1.0)
    Q = G + noisy.shape if math.isfinite(noisy.degrees) else noisy.shape
    c = (noisy.shape @ a)[:3]
    return noisy.alpha * (Q[:3, :3] * (a @ Q @ a) + np.outer(c, c))


@pytest.mark.parametrize("draw", [sketched, in_a_metric])
def test_scores_have_the_covariance_of_the_formula(draw):
    rng, u, a = np.random.default_rng(0), np.array([0.3, -1.0, 0.7]), np.append(-THETA, 1.0)
    trials = 4000
    found = [draw(rng) for _ in range(trials)]
    z = np.array([u @ (noisy.moment @ a)[:3] for noisy in found])
    q = float(z @ z) / (u @ expected(found[0]) @ u)
    assert 2 * min(stats.chi2.sf(q, trials), stats.chi2.cdf(q, trials)) > FALSE_ALARM
    assert stats.chi2.sf(1.15**2 * q, trials) < FALSE_ALARM  # 15 % of a standard deviation would be seen
    c = (found[0].shape @ a)[:3]
    along = np.linalg.solve(found[0].shape[:3, :3], c)  # where the second term is largest
    z = np.array([along @ (noisy.moment @ a)[:3] for noisy in found])
    first = along @ (expected(found[0]) - found[0].alpha * np.outer(c, c)) @ along
    if draw is in_a_metric:
        assert stats.chi2.sf(float(z @ z) / first, trials) < FALSE_ALARM  # without the second term


@pytest.mark.parametrize("draw", [sketched, in_a_metric])
def test_sums_of_squares_have_their_deviation(draw):
    rng, u = np.random.default_rng(1), np.array([0.3, -1.0, 0.7, 0.1])
    pairs = np.array([draw(rng).quadratic(u) for _ in range(4000)])
    z = (pairs[:, 0] - u @ G @ u) / pairs[:, 1].mean()
    q = float(z @ z)
    assert 2 * min(stats.chi2.sf(q, 4000), stats.chi2.cdf(q, 4000)) > FALSE_ALARM
    assert abs(z.mean()) < 6 / math.sqrt(4000)


def test_a_linear_map_of_the_columns_is_one_of_all_three_matrices():
    rng = np.random.default_rng(2)
    noisy, L = sketched(rng), np.random.default_rng(3).standard_normal((2, 4))
    mapped = noisy.mapped(L)
    for name in ("moment", "spread", "shape"):
        assert getattr(mapped, name) == pytest.approx(L @ getattr(noisy, name) @ L.T)
    assert (mapped.alpha, mapped.degrees) == (noisy.alpha, noisy.degrees)
    u = np.array([0.3, 2.0])
    assert mapped.quadratic(u) == pytest.approx(noisy.quadratic(u @ L))


def test_every_kind_of_release_has_one():
    table = patients(500)
    sketch = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0, sketch_size=500).sketch
    noisy = sketch.noisy
    assert noisy.moment == pytest.approx(sketch.second_moment)
    assert (noisy.alpha, noisy.degrees) == (1 / 500, 500)
    open_table = gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).sketch.noisy
    assert open_table.alpha == 0
    assert open_table.quadratic(np.ones(len(open_table.moment)))[1] == 0
    passes = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0).statistic
    pooled = passes.noisy
    assert np.array_equal(pooled.moment, passes.last.matrix)
    assert np.array_equal(pooled.spread, passes.last.shape)
    assert (pooled.alpha, pooled.degrees) == (1.0, math.inf)
