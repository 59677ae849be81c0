"""Intervals of discriminant coefficients: they cover, and they are about what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.classification import DISCRIMINANT, OddsRatios, scale_of
from gaussmix.models.design import Problem
from gaussmix.models.results import summarise
from gaussmix.releases.noisy import NoisyMoment

ON = ["cost", "age", "region"]


@pytest.fixture(scope="module")
def release():
    return gm.release(patients(20_000), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)


def gram(n: int, beta: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Of (1, x, y = ±1): normal classes, one covariance, Fisher's discriminant β."""
    rng = np.random.default_rng(seed)
    second = rng.random(n) < share
    X = rng.normal(size=(n, len(beta))) + np.outer(second, beta)
    rows = np.column_stack([np.ones(n), X, 2.0 * second - 1])
    return rows.T @ rows


def problem_of(G: np.ndarray, noise: float, rng: np.random.Generator) -> Problem:
    d = len(G) - 1
    E = rng.normal(size=G.shape)
    noisy = NoisyMoment(G + noise * (E + E.T) / math.sqrt(2), shape=noise * np.eye(d + 1))
    offset = np.zeros(d)
    offset[0] = 0.5
    names = ("(intercept)", *(f"x{i}" for i in range(1, d)))
    units, n = 0.5 * np.eye(d), float(noisy.moment[0, 0])
    return Problem(noisy, names, units, offset, {}, np.ones(d), math.nan, n, "y", scale=0.5, family=DISCRIMINANT)


def fisher(G: np.ndarray) -> np.ndarray:
    """Slopes from class means and the covariance within classes."""
    n, sums, both = G[0, 0], G[0, 1:-1], G[1:-1, -1]
    n1 = (n + G[0, -1]) / 2
    mean1, mean0 = (sums + both) / (2 * n1), (sums - both) / (2 * (n - n1))
    within = G[1:-1, 1:-1] - n1 * np.outer(mean1, mean1) - (n - n1) * np.outer(mean0, mean0)
    beta = n * np.linalg.solve(within, mean1 - mean0)
    return np.append(math.log(n1 / (n - n1)) - (mean0 + mean1) @ beta / 2, beta)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "noise"), [(0.5, 40.0), (0.1, 40.0), (0.3, 150.0)])
def test_table_intervals_cover_fishers_discriminant(share, noise):
    """v is a random number too: intervals of a large coefficient that left its noise out would cover far less."""
    rng = np.random.default_rng(1)
    G = gram(5000, np.array([1.5, 0.3, 0.0]), share)
    truth, hits = fisher(G), np.zeros(4)
    releases = 100
    for _ in range(releases):
        problem = problem_of(G, noise, rng)
        summary = summarise(problem)
        ends = np.array(list(summary.conf_int(0.1).values()))
        hits += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert np.all(hits / releases > 0.9 - 3.5 * math.sqrt(0.09 / releases)), hits / releases
    assert hits[1] < releases, hits / releases


@pytest.mark.slow
def test_the_noise_of_the_scale_is_as_stated():
    rng = np.random.default_rng(2)
    G = gram(5000, np.array([1.0, -0.5]), 0.3)
    theta = np.linalg.solve(G[:-1, :-1], G[:-1, -1])
    vs, bs, stated, together = [], [], [], []
    for _ in range(400):
        problem = problem_of(G, 60.0, rng)
        summary = summarise(problem)
        tests = summary._score
        vs.append(tests.scale.v)
        bs.append(tests.b.estimate)
        stated.append(tests.scale.noise[0, 0])
        together.append(tests.scale.with_b[:, 0])
    a = np.append(-theta, 1.0)
    assert np.mean(vs) == pytest.approx(a @ G @ a / (4 * 5000), rel=0.01)
    assert np.var(vs) == pytest.approx(np.mean(stated), rel=0.25)
    correlation = [np.corrcoef(b, vs)[0, 1] for b in np.array(bs).T]
    expected = np.mean(together, axis=0) / np.std(bs, axis=0) / np.std(vs)
    assert correlation == pytest.approx(expected, abs=0.15)


@pytest.mark.slow
def test_population_intervals_cover_the_model_that_rows_came_from():
    rng = np.random.default_rng(3)
    beta, hits, releases = np.array([1.0, 0.2]), np.zeros(2), 80
    for seed in range(releases):
        problem = problem_of(gram(2000, beta, 0.3, seed), 10.0, rng)
        ends = np.array(list(summarise(problem, estimand="population").conf_int(0.1).values()))[1:]
        hits += (ends[:, 0] <= beta) & (beta <= ends[:, 1])
    assert np.all(hits / releases > 0.84), hits / releases


@pytest.mark.slow
def test_p_values_agree_with_intervals(release):
    summary = release.logit("smoker", predictors=ON).summary()
    for level in (0.3, 0.05, 1e-3):
        for name, (low, high) in summary.conf_int(level).items():
            assert (summary.pvalues[name] < level) == (not low <= 0 <= high)
            if math.isfinite(low) and level == 0.05:
                assert [summary.test(name, end) for end in (low, high)] == pytest.approx([level, level], rel=1e-4)
    linear = release.ols("smoker", predictors=ON).summary()
    assert summary.pvalues["cost"] == linear.pvalues["cost"]
    assert summary.f_test("region") == pytest.approx(linear.f_test("region"))


def test_odds_ratios_are_exponentials_with_their_names(release):
    model = release.logit("smoker", predictors=ON)
    collapse, reference = {"region": {"rest": ["south", "west"]}}, {"region": "north"}
    for options in ({}, {"collapse": collapse, "reference": reference}, {"estimand": "population"}):
        summary, ratios = model.summary(**options), model.odds_ratios(0.1, **options)
        assert list(ratios.estimates) == [name for name in summary.params if name != "(intercept)"]
        for name, (low, high) in ratios.intervals.items():
            assert ratios.estimates[name] == pytest.approx(math.exp(summary.params[name]))
            assert (low, high) == pytest.approx(tuple(map(math.exp, summary.conf_int(0.1)[name])))
            assert f"{ratios.estimates[name]:.4g}" in str(ratios)
    text = str(model.odds_ratios())
    assert "smoker = True: odds ratios" in text
    assert "discriminant coefficients of this table" in text
    assert "normal within classes" in text
    assert set(model.odds_ratios().as_plain()["cost"]) == {"odds_ratio", "interval"}


def test_what_is_not_identified_has_no_odds_ratio():
    problem = problem_of(gram(200, np.array([1.0]), 0.5), 500.0, np.random.default_rng(0))
    ratios = OddsRatios.of(summarise(problem))
    assert ratios.intervals["x1"] == (0.0, math.inf)
    assert "not identified" in str(ratios)
    assert ratios.as_plain()["x1"] is None


def test_without_noise_scale_has_no_errors():
    G = gram(500, np.array([1.0]), 0.4)
    theta = np.linalg.solve(G[:-1, :-1], G[:-1, -1])
    scale = scale_of(NoisyMoment(G, np.zeros_like(G)), theta, np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    a = np.append(-theta, 1.0)
    assert scale.v == pytest.approx(a @ G @ a / 2000)
    assert not scale.noise.any()
    assert not scale.sampling.any()
