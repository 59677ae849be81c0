"""Theorem 3 with exact constants, and the surrogate of the logistic loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

import naive_paper as naive
from gaussmix import ArgumentError, paper

DRAWS = 2_000
ALARM = 1e-3  # the chance that one of the nine settings of a correct library fails
SIZES = [(40, 6), (150, 6), (12, 3)]


def table(d: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    X = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return X, np.clip(X @ np.linspace(-1, 1, d) + rng.uniform(-0.3, 0.3, n), -1, 1)


def fixed_noise(X, y, k, rng):
    sketch = paper.gauss_mix(np.column_stack([X, y]), k, 4.0, row_norm=math.sqrt(2), rng=rng)
    return sketch.lstsq(sketch.columns[-1]), sketch.sigma**2


def private_noise(X, y, k, rng):
    """λ_min/C² is about 9 to 20: σ² is random, and 0 now and then."""
    A = np.column_stack([X, y])
    sketch = paper.modified_gauss_mix(A, math.sqrt(2), k, 12.0, 0.0, 6.0, n_max=1000, rng=rng)
    return sketch.lstsq(sketch.columns[-1]), sketch.sigma**2


def algorithm_2(X, y, k, rng):
    model = paper.LinearMixing(
        epsilon=5.0, data_norm=1.0, bounds_y=(-1, 1), sketch_size=k, n_max=1000, random_state=rng
    ).fit(X, y)
    return model.coef_, model.sketch_.sigma**2


@pytest.mark.slow
@pytest.mark.parametrize(("k", "d"), SIZES)
@pytest.mark.parametrize("release", [fixed_noise, private_noise, algorithm_2])
def test_excess_risk_has_its_distribution(release, k, d, record_property):
    (X, y), rng = table(d), np.random.default_rng([k, d, len(release.__name__)])
    drawn = [release(X, y, k, rng) for _ in range(DRAWS)]
    excess = np.array([naive.augmented_excess(X, y, theta, sigma2) for theta, sigma2 in drawn])
    pvalue = stats.kstest(excess, paper.excess_risk_distribution(k, d).cdf).pvalue
    wrong = stats.kstest(excess, paper.excess_risk_distribution(k, d + 1).cdf).pvalue
    record_property(f"{release.__name__}, k = {k}, d = {d}", f"right {pvalue:.3g}, wrong {wrong:.3g}")
    assert pvalue >= ALARM
    assert wrong < 1e-6  # one degree of freedom more would be seen
    if release is private_noise:
        assert np.std([sigma2 for _, sigma2 in drawn]) > 1
    if release is algorithm_2:
        assert_bound_holds(X, y, k, [theta for theta, _ in drawn], release, rng)


def assert_bound_holds(X, y, k, thetas, release, rng):
    """The bound has no unknown constants: it holds at least as often as it says."""
    model = paper.LinearMixing(
        epsilon=5.0, data_norm=1.0, bounds_y=(-1, 1), sketch_size=k, n_max=1000, random_state=rng
    )
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    bound = paper.excess_risk_bound(
        k,
        X.shape[1],
        probability=0.9,
        gamma=model.fit(X, y).certificate_.gamma,
        x_norm=1.0,
        y_abs=1.0,
        theta_norm=float(np.linalg.norm(best)),
    )
    limit = bound.factor * np.sum((y - X @ best) ** 2) + bound.additive
    held = np.mean([np.sum((y - X @ theta) ** 2) <= limit for theta in thetas])
    assert stats.binom.cdf(held * DRAWS, DRAWS, 0.9) > ALARM


def test_the_bound_is_attained_without_signal():
    """L(θ*) = 0, θ* = 0 and an empty table: only the subtracted σ²(1 + ‖θ‖²) separates the bound from equality."""
    k, d, sigma, rng = 30, 4, 3.0, np.random.default_rng(0)
    A = np.zeros((1, d + 1))
    bound = paper.excess_risk_bound(k, d, probability=0.9, gamma=sigma**2 / 2, x_norm=1.0, y_abs=1.0, theta_norm=0.0)
    assert bound.additive == pytest.approx(bound.factor * sigma**2)
    thetas = [paper.gauss_mix(A, k, sigma, row_norm=math.sqrt(2), rng=rng).lstsq("x4") for _ in range(DRAWS)]
    held = np.mean([sigma**2 * (1 + theta @ theta) <= bound.additive for theta in thetas])
    assert abs(held - 0.9) < 4 * math.sqrt(0.9 * 0.1 / DRAWS)


def test_the_bound_follows_its_arguments():
    common = {"probability": 0.95, "gamma": 60.0, "x_norm": 1.0, "y_abs": 2.0, "theta_norm": 0.5}
    bound = paper.excess_risk_bound(150, 10, **common)
    quantile = 10 / 141 * stats.f(10, 141).ppf(0.95)
    assert bound == pytest.approx((1 + quantile, (1 + quantile) * 60 * 5 * 1.25), rel=1e-12)
    assert paper.excess_risk_distribution(150, 10).mean() == pytest.approx(10 / 139, rel=1e-12)
    assert paper.excess_risk_bound(150, 10, **common | {"probability": 0.99}).factor > bound.factor
    for wrong in ({"probability": 1.0}, {"gamma": 0.0}, {"x_norm": -1.0}, {"theta_norm": math.inf}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            paper.excess_risk_bound(150, 10, **common | wrong)
    with pytest.raises(ArgumentError, match="k must be at least d"):
        paper.excess_risk_distribution(5, 6)


# ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("radius", [0.5, 2.0, 6.0, 12.0])
def test_surrogate_is_the_parabola_through_the_chebyshev_nodes(radius):
    found = paper.logistic_surrogate(radius)
    nodes = radius * np.cos(np.pi * np.array([1, 3, 5]) / 6)
    parabola = found.b0 + found.b1 * nodes + found.b2 * nodes**2
    assert parabola == pytest.approx(-np.log1p(np.exp(-nodes)), rel=1e-9)
    assert found.scale == pytest.approx(naive.surrogate_scale(radius), rel=1e-9)
    s = np.random.default_rng(0).uniform(-radius, radius, 10_000)
    distance = np.abs(found.b0 + found.b1 * s + found.b2 * s**2 + np.log1p(np.exp(-s)))
    assert 0.99 * found.error < distance.max() <= found.error * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_corollary_2_corrected(seed):
    """ℓ(θ̂) - ℓ(θ*) ≤ 2q + |b₂|/n (F(θ̂) - min F) for every θ̂ whose margins stay within the radius."""
    rng = np.random.default_rng(seed)
    n, d, radius = 200, 3, 6.0
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5])), 1.0, -1.0)
    surrogate = paper.logistic_surrogate(radius)
    response = surrogate.scale * y

    def loss(theta):
        return np.mean(np.logaddexp(0, -y * (X @ theta)))

    def F(theta):  # noqa: N802
        return np.sum((response - X @ theta) ** 2)

    least = F(np.linalg.lstsq(X, response, rcond=None)[0])
    best = optimize.minimize(loss, np.zeros(d)).x
    assert np.abs(X @ best).max() <= radius
    for _ in range(50):
        theta = rng.uniform(-1, 1, d) * radius / np.sqrt(d) / 2
        assert np.abs(X @ theta).max() <= radius
        excess = abs(surrogate.b2) / n * (F(theta) - least)
        assert loss(theta) - loss(best) <= 2 * surrogate.error + excess
