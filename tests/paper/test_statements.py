"""Remarks and short forms of arXiv:2505.24603v2, each where it holds and, where it fails elsewhere, that too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from gaussmix import accounting, calibrate, paper


def gaussian_renyi(alpha, first, second):
    """Lemma 2 (Gil et al.) for centred normal distributions, by determinants."""
    mixed = first + alpha * (second - first)
    logs = [np.linalg.slogdet(matrix)[1] for matrix in (mixed, first, second)]
    return -(logs[0] - (1 - alpha) * logs[1] - alpha * logs[2]) / (2 * (alpha - 1))


@pytest.mark.parametrize("seed", range(5))
def test_lemma_1_is_the_divergence_of_full_covariances(seed):
    """A row along the weakest direction attains φ at γ = λ_min/‖x‖²; any other row stays below it."""
    rng = np.random.default_rng(seed)
    A, k, alpha = rng.standard_normal((30, 4)), 7, 2.5
    covariance = A.T @ A
    values, vectors = np.linalg.eigh(covariance)
    weakest, other = 0.3 * math.sqrt(values[0]) * vectors[:, 0], 0.3 * math.sqrt(values[0]) * vectors[:, 2]
    phi = accounting.rdp(alpha, sketch_size=k, gamma=1 / 0.09)
    found = [k * gaussian_renyi(alpha, covariance, covariance - np.outer(x, x)) for x in (weakest, other)]
    assert found[0] == pytest.approx(phi, rel=1e-8)
    assert found[1] < phi
    reverse = k * gaussian_renyi(alpha, covariance - np.outer(weakest, weakest), covariance)
    assert reverse < phi


def test_corollary_1_bounds_the_renyi_curve():
    """φ(α) ≤ kα/(2γ²) for 1 < α ≤ 2γ/5, and not for all α < γ."""
    for gamma in (2.51, 4.0, 30.0, 1e4):
        alphas = np.linspace(1 + 1e-6, 2 * gamma / 5, 200)
        assert (accounting.rdp(alphas, sketch_size=10, gamma=gamma) <= 10 * alphas / (2 * gamma**2)).all()
        alpha = 0.999 * gamma
        assert accounting.rdp(alpha, sketch_size=10, gamma=gamma) > 10 * alpha / (2 * gamma**2)


@pytest.mark.parametrize("delta", [1e-4, 1e-8])
def test_the_short_form_holds_for_many_sketch_rows_only(delta):
    def short(k, gamma):
        return k / (2 * gamma**2) + math.sqrt(2 * k * math.log(1 / delta)) / gamma

    many, few, gamma = math.ceil(14 * math.log(1 / delta)), math.ceil(0.1 * 12.5 * math.log(1 / delta)), 100.0
    assert accounting.epsilon(
        delta, sketch_size=many, gamma=gamma, bound_holds_for="larger", analysis="tcdp"
    ) == pytest.approx(short(many, gamma), rel=1e-6)
    assert short(few, 3.0) < accounting.epsilon(
        delta, sketch_size=few, gamma=3.0, bound_holds_for="larger", analysis="renyi"
    )


@pytest.mark.parametrize("delta", [1e-4, 1e-8])
@pytest.mark.parametrize("gamma", [60.0, 300.0, 3000.0])
def test_the_short_form_of_theorem_1_holds_for_many_sketch_rows(delta, gamma):
    k = math.ceil(14 * math.log(3 / delta))
    epsilon = accounting.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=gamma / math.sqrt(k))
    assert epsilon <= k / (2 * gamma**2) + 2 * math.sqrt(2 * k * math.log(4 / delta)) / gamma


@pytest.mark.parametrize("k", [100, 1000, 10_000])
def test_gauss_mix_needs_less_than_the_gaussian_mechanism_above_a_noise(k):
    """Without a scale bound: at the paper's σ = √k·C in any case, and from near √(k/2)·C on where k is large."""
    delta = 1e-6

    def excess(sigma):
        gaussian = accounting.gaussian_epsilon(delta, mu=1 / sigma)
        return accounting.epsilon(delta, sketch_size=k, gamma=sigma**2) - gaussian

    assert excess(math.sqrt(k)) < 0
    crossing = optimize.brentq(excess, 0.4 * math.sqrt(k), math.sqrt(k))
    assert 0.99 * math.sqrt(k / 2) < crossing < math.sqrt(k)
    assert (crossing / math.sqrt(k / 2) < 1.05) == (k > 1000)
    assert excess(0.9 * crossing) > 0


def test_no_scale_bound_exceeds_its_share_of_the_rows():
    """λ_min(AᵀA) ≤ nC²/d, attained by rows along the axes."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (60, 3))
    A *= np.minimum(1, 1 / np.linalg.norm(A, axis=1))[:, np.newaxis]
    assert np.linalg.eigvalsh(A.T @ A)[0] <= 60 / 3
    axes = np.tile(np.eye(3), (20, 1))
    assert np.linalg.eigvalsh(axes.T @ axes)[0] == pytest.approx(60 / 3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-8])
def test_gamma_of_algorithm_2_has_the_order_that_theorem_3_uses(epsilon, delta):
    """γ ≤ 3√(2k log(3.75/δ))/ε where its proof applies, and γ grows like √k/ε."""
    k = math.ceil(14 * math.log(3 / delta))
    gammas = [
        calibrate(epsilon, delta, sketch_size=rows, scale="private", analysis="paper").gamma for rows in (k, 4 * k)
    ]
    assert gammas[0] <= 3 * math.sqrt(2 * k * math.log(3.75 / delta)) / epsilon
    assert gammas[1] / gammas[0] == pytest.approx(2, rel=0.1)


def test_theorem_3_gives_the_rate_of_adassp():
    """With k proportional to d the additive term grows like √d/ε, as that of AdaSSP without a large λ_min."""
    delta, epsilon = 1e-6, 1.0

    def additive(d, epsilon):
        gamma = calibrate(epsilon, delta, sketch_size=20 * d, scale="private", analysis="paper").gamma
        common = {"probability": 0.95, "x_norm": 1.0, "y_abs": 1.0, "theta_norm": 10.0}
        return paper.excess_risk_bound(20 * d, d, gamma=gamma, **common).additive

    assert additive(400, epsilon) / additive(100, epsilon) == pytest.approx(2, rel=0.1)
    assert additive(100, epsilon / 4) / additive(100, epsilon) == pytest.approx(4, rel=0.1)


def test_two_columns_are_sketched_together_or_side_by_side():
    """M(X₁, X₂) = (SX₁ + σξ₁, SX₂ + σξ₂): 𝒦 of a part of the columns is that part of MᵀM."""
    A = np.random.default_rng(0).uniform(-0.4, 0.4, (50, 4))
    sketch = paper.gauss_mix(A, 30, 3.0, row_norm=1.0, method="explicit", rng=0)
    X1, X2 = sketch.rows[:, :2], sketch.rows[:, 2:]
    assert sketch.inner(["x0", "x1"], ["x2", "x3"]) == pytest.approx(X1.T @ X2 / 30, rel=1e-9)
