"""AdaSSP's draws: laws with power, the grid, the account."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from gaussmix import Moments, Numeric, Schema, Vector
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.accounting.gaussian import gaussian_delta_up
from gaussmix.baselines.adassp import PreparedAdaSSP, _noisy_eigenvalue
from gaussmix.data.rows import SummedRows
from gaussmix.mechanism.noise import public_grid
from gaussmix.mechanism.release import OneDraw

FALSE_ALARM = 1e-6  # chance that a correct mechanism fails one comparison
SCHEMA = Schema({"X": Vector(2, norm=2.0), "y": Numeric(-1, 1, weight=0.5)}, intercept=0.0)
X_NORM, Y_NORM = SCHEMA.norm_of(["X"]) / SCHEMA.row_norm, SCHEMA.norm_of(["y"]) / SCHEMA.row_norm


def two_sided(value: float, law) -> float:
    return 2 * min(law.cdf(value), law.sf(value))


def moments_of_a_table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return Moments.of_arrays([(X, X @ [0.5, -0.2] + rng.uniform(-0.1, 0.1, n))], SCHEMA)


def prepared(analysis="exact", *, epsilon=1.0, delta=1e-6, seed=0):
    rng = np.random.default_rng(seed)
    return PreparedAdaSSP.of(SCHEMA, epsilon=epsilon, delta=delta, rho=0.05, analysis=analysis, n_rows=None, rng=rng)


@pytest.mark.slow
@pytest.mark.parametrize(("analysis", "factor"), [("printed", 1.0), ("exact", 0.5)])
def test_blocks_have_their_noise_and_half_the_variance_off_the_diagonal(analysis, factor):
    moments, plan, draws = moments_of_a_table(), prepared(analysis), 4000
    gram = moments.gram()
    blocks = [dataclasses.replace(plan, _once=OneDraw()).draw(SummedRows(moments)) for _ in range(draws)]
    variance = (plan.noise * X_NORM**2) ** 2
    noise = np.array([block.XX for block in blocks]) - gram[:2, :2]
    for entry, expected in (((0, 0), variance), ((1, 1), variance), ((0, 1), variance * factor)):
        energy = np.sum(noise[:, entry[0], entry[1]] ** 2) / expected
        assert two_sided(energy, stats.chi2(draws)) > FALSE_ALARM
        assert two_sided(energy * 1.21, stats.chi2(draws)) < FALSE_ALARM  # 10 % in the scale would be seen
    target_noise = np.array([block.XY for block in blocks]) - gram[:2, 2:]
    energy = np.sum(target_noise**2) / (plan.noise * X_NORM * Y_NORM) ** 2
    assert two_sided(energy, stats.chi2(2 * draws)) > FALSE_ALARM
    assert two_sided(energy * 1.21, stats.chi2(2 * draws)) < FALSE_ALARM


def test_blocks_lie_on_the_public_grid():
    plan = prepared()
    block = plan.draw(SummedRows(moments_of_a_table()))
    assert np.all(block.XX / public_grid(plan.noise * X_NORM**2) % 1 == 0)
    assert np.all(block.XY / public_grid(plan.noise * X_NORM * Y_NORM) % 1 == 0)
    assert np.array_equal(block.XX, block.XX.T)


def test_the_noisy_eigenvalue_is_charged_for_the_solver():
    gram = moments_of_a_table().gram()[:2, :2]
    rng = np.random.default_rng(0)
    draws = np.array([_noisy_eigenvalue(gram, 3, 0.4, 5.0, 2**40, rng) for _ in range(3000)])
    std = 5.0 * (0.4 + 2 * eigenvalue_error_bound(3))
    energy = np.sum((draws - draws.mean()) ** 2) / std**2
    assert two_sided(energy, stats.chi2(2999)) > FALSE_ALARM
    assert two_sided(energy * 1.21, stats.chi2(2999)) < FALSE_ALARM


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("analysis", ["exact", "printed"])
def test_the_three_releases_together_are_within_the_budget(analysis, epsilon):
    plan = prepared(analysis, epsilon=epsilon)
    assert gaussian_delta_up(epsilon, math.sqrt(3) / plan.noise) <= 1e-6 * (1 + 1e-14)  # of the quotient
