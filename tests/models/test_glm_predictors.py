"""Predictors of classes at small budgets: the posterior mode, and the share of a class that is released."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special

import gaussmix as gm
from gaussmix.models.families import LOGIT, POISSON
from gaussmix.models.glm import class_response, released_share
from gaussmix.models.likelihood import Rows, solve_posterior


def problem(family, seed):
    """Drawn rows with levels of one category and a number, a moment with noise, and its covariance."""
    rng = np.random.default_rng(seed)
    levels = np.eye(4)[rng.choice(4, 2000, p=[0.7, 0.2, 0.08, 0.02])]
    X = np.column_stack([np.ones(2000), levels, rng.normal(0, 0.5, 2000)])
    theta = np.array([-2.0, 0.3, -0.4, 0.5, 0.0, 0.8])
    A = rng.normal(0, 1, (6, 6))
    noise = 0.02**2 * (A @ A.T / 6 + 0.2 * np.eye(6))
    wanted = family.mean.inverse(X @ theta) @ X / 2000 + rng.multivariate_normal(np.zeros(6), noise)
    prior = np.array([np.inf, 2.0, 2.0, 2.0, 2.0, 2.0])
    return Rows(X, np.full(2000, 1 / 2000)), wanted, noise, prior


@pytest.mark.parametrize("family", [LOGIT, POISSON], ids=lambda family: family.name)
@pytest.mark.parametrize("seed", range(4))
def test_the_mode_is_that_of_a_general_minimiser(family, seed):
    rows, wanted, noise, prior = problem(family, seed)
    P = np.linalg.inv(noise)

    def objective(theta):
        left = wanted - rows.weights * family.mean.inverse(rows.X @ theta) @ rows.X
        return float(left @ P @ left + np.sum((theta / prior) ** 2)) / 2

    start = np.array([-2.0, *np.zeros(5)])
    found = solve_posterior(rows, wanted, family.mean, noise=noise, prior=prior, start=start)
    assert found.converged
    slow = optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-7})
    assert objective(found.theta[0]) <= slow.fun + 1e-6
    assert found.theta[0] == pytest.approx(slow.x, abs=2e-3)


def test_moments_of_no_distribution_have_finite_coefficients():
    """A level with fewer than no events, by chance: the prior bounds what is said about it."""
    rows, wanted, noise, prior = problem(LOGIT, 0)
    wanted = wanted.copy()
    wanted[3:5] = -0.01  # two levels
    wanted[2] = wanted[0] - wanted[1] + 0.02
    start = np.array([-2.0, *np.zeros(5)])
    left = wanted - rows.weights * special.expit(rows.X @ start) @ rows.X
    bound = left @ np.linalg.solve(noise, left)
    found = solve_posterior(rows, wanted, LOGIT.mean, noise=noise, prior=prior, start=start)
    assert found.converged
    assert np.sum((found.theta[0] / prior) ** 2) <= bound
    assert np.abs(found.theta[0]).max() < 6


def rare_class(seed=0, n=20_000):
    """A class of 3 % whose rows are far out, so that clipping takes more from it."""
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.03
    X = rng.normal(0, 0.1, (n, 8)) + rare[:, np.newaxis] * rng.normal(0, 1.2, (n, 8))
    frame = pd.DataFrame(np.clip(X, -3, 3), columns=[f"x{i}" for i in range(8)])
    frame["rare"] = rare
    frame["kind"] = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    return frame, {f"x{i}": [-3, 3] for i in range(8)} | {"rare": "boolean", "kind": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def releases():
    frame, schema = rare_class()
    return [gm.release(frame, schema=schema, epsilon=1.0, delta=1e-6, random_state=seed) for seed in range(6)]


def test_the_share_of_a_class_does_not_have_the_bias_of_clipping(releases):
    frame, _ = rare_class()
    truth, found, passes = frame["rare"].mean(), [], []
    for release in releases:
        statistic = release.statistic
        own = class_response(statistic.schema, "rare", None, LOGIT)[0]
        found.append(released_share(statistic, own))
        one = statistic.schema.units.one
        y = own.centre * one + own.scale * own.vector
        moment = statistic.predictive.moment
        passes.append((one @ moment @ y) / (one @ moment @ one))
    assert np.mean(passes) < 0.8 * truth  # else nothing is tested
    assert np.mean(found) == pytest.approx(truth, rel=0.12)


def test_shares_of_the_levels_add_up(releases):
    statistic = releases[0].statistic
    both = [released_share(statistic, class_response(statistic.schema, "rare", level, LOGIT)[0]) for level in (0, 1)]
    assert sum(both) == pytest.approx(1, abs=1e-6)
    assert both[1] < 0.2
    shares = [released_share(statistic, class_response(statistic.schema, "kind", level, LOGIT)[0]) for level in "abc"]
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_predictions_average_to_the_share(releases):
    """Clipping would make predicted probabilities of a rare class too small."""
    frame, _ = rare_class()
    means = [release.predictor("rare", family="logit").predict(frame).mean() for release in releases]
    assert np.mean(means) == pytest.approx(frame["rare"].mean(), rel=0.15)
