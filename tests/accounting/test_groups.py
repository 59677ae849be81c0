"""A person with j rows: what docs/privacy.md proves, and why it does not claim more."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from gaussmix import accounting
from gaussmix.accounting.divergence import ChiSquareLoss, hockey_stick, hockey_stick_composed

CASES = [(1, 0.3), (1, 2.0), (5, 1.0), (5, 4.0), (50, 10.0)]
EPSILONS = np.array([0.1, 0.5, 1.0, 2.0, 4.0])


def delta_of(k, odds):
    """δ at EPSILONS of one or two leverages t = u/(1 + u), the larger direction."""
    curves = []
    for make in (ChiSquareLoss.removal, ChiSquareLoss.addition):
        losses = tuple(make(k, odds=u) for u in odds if u > 0)
        if len(losses) == 1:
            curves.append(hockey_stick(EPSILONS, losses[0]))
        else:
            curves.append(hockey_stick_composed(EPSILONS, losses).value)
    return np.max(curves, axis=0)


def renyi(order, u):
    """Rényi divergences of one coordinate of odds u, removal and addition, from the laws themselves."""
    a, s = order, 1 / (1 + u)  # N(0, 1) against N(0, s)

    def divergence(p, q):
        mixed = a * q + (1 - a) * p
        return 0.5 * np.log(q / p) + np.log(q / mixed) / (2 * (a - 1)) if mixed > 0 else np.inf

    return divergence(1.0, s), divergence(s, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_odds_of_j_rows_add_up_to_at_most_j_over_gamma(seed):
    rng = np.random.default_rng(seed)
    j, m, gamma = rng.integers(1, 6), 4, rng.uniform(0.2, 20)
    others, rows = rng.standard_normal((rng.integers(0, 9), m)), rng.standard_normal((j, m))
    rows /= np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
    without = others.T @ others + gamma * np.eye(m)
    odds = scipy.linalg.eigvalsh(without + rows.T @ rows, without) - 1
    odds = np.sort(odds)[::-1]
    assert odds.min() > -1e-12
    assert odds.sum() <= j / gamma * (1 + 1e-12)
    assert np.all(odds <= j / gamma / np.arange(1, m + 1) * (1 + 1e-12) + 1e-12)  # the i-th is at most j/(iγ)


def test_equal_rows_and_orthogonal_rows_are_the_two_ends():
    gamma, j = 3.0, 4
    noise = gamma * np.eye(j)
    for rows, odds in ((np.eye(j)[[0] * j], [j / gamma] + [0] * (j - 1)), (np.eye(j), [1 / gamma] * j)):
        found = scipy.linalg.eigvalsh(noise + rows.T @ rows, noise)[::-1] - 1
        assert found == pytest.approx(odds, abs=1e-12)


@pytest.mark.parametrize("seed", range(50))
def test_renyi_divergence_is_largest_for_equal_rows(seed):
    """Σ φ(u_i) ≤ φ(Σ u_i), removal above addition: the proof, at random points; and it is accounting.rdp."""
    rng = np.random.default_rng(seed)
    total = rng.uniform(0.01, 5)
    parts = rng.dirichlet(np.full(4, 0.5)) * total
    order = 1 + rng.uniform(0.05, 0.95) / total  # finite at the total
    removal = [renyi(order, u)[0] for u in parts]
    addition = [renyi(order, u)[1] for u in parts]
    assert all(r >= a - 1e-12 for r, a in zip(removal, addition, strict=True))
    assert sum(removal) <= renyi(order, total)[0] * (1 + 1e-9)
    as_accounted = accounting.rdp(order, sketch_size=7, gamma=1 + 1 / total)
    assert as_accounted == pytest.approx(7 * renyi(order, total)[0], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "gamma"), CASES)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.35, 0.5])
def test_two_rows_stay_below_what_is_proved(k, gamma, share):
    """However two rows lie to each other: below Rényi at 1 + γ/j, and below leverages j/(j + iγ) side by side."""
    total = 2 / gamma
    true = delta_of(k, [total * (1 - share), total * share])
    proved = accounting.delta(EPSILONS, sketch_size=k, gamma=1 + gamma / 2, analysis="renyi")
    assert np.all(true <= proved)
    assert np.all(true <= delta_of(k, [total, total / 2]) * (1 + 1e-9))


def test_the_exact_curve_of_equal_rows_is_not_a_bound():
    """Why the exact curve at j/(j + γ) is claimed for equal rows alone: orthogonal ones exceed it at large δ."""
    equal, orthogonal = delta_of(1, [2 / 0.3]), delta_of(1, [1 / 0.3, 1 / 0.3])
    assert orthogonal[0] > equal[0] * 1.01
    assert orthogonal[0] > 0.3
    assert np.all(orthogonal[3:] < equal[3:])
