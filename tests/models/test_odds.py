"""Intervals of discriminant coefficients: they cover, and they are about what they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.models.classification import DISCRIMINANT, discriminant_scale
from gaussmix.models.design import Problem
from gaussmix.models.inference import least_squares
from gaussmix.models.results import ratio_table, summarise
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
    return Problem(noisy, names, units, offset, {}, np.ones(d), n, "y", scale=0.5, family=DISCRIMINANT)


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
        fit = least_squares(problem.noisy, intercept=True)
        scale = discriminant_scale(problem, fit)
        vs.append(scale.v)
        bs.append(problem.to_user @ fit.theta)
        stated.append(scale.noise[0, 0])
        together.append(scale.with_b[:, 0])
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


def test_p_values_agree_with_intervals(release):
    summary = release.logit("smoker", predictors=ON).summary()
    for level in (0.3, 0.05, 1e-3):
        for name, (low, high) in summary.conf_int(level).items():
            assert (summary.pvalues[name] < level) == (not low <= 0 <= high)
            for end in (low, high):
                assert summary.t_test(f"{name} = {end!r}").pvalue == pytest.approx([level], rel=1e-6)


def test_odds_ratios_are_exponentials_with_their_names(release):
    model = release.logit("smoker", predictors=ON)
    collapse, reference = {"region": {"rest": ["south", "west"]}}, {"region": "north"}
    for options in ({}, {"collapse": collapse, "reference": reference}, {"estimand": "population"}):
        summary, ratios = model.summary(**options), model.odds_ratios(0.1, **options)
        assert list(ratios.columns) == ["term", "odds.ratio", "conf.low", "conf.high", "p.value"]
        assert list(ratios.columns["term"]) == [name for name in summary.params if name != "(intercept)"]
        for row in ratios.rows():
            ends = summary.conf_int(0.1)[row["term"]]
            assert row["odds.ratio"] == pytest.approx(math.exp(summary.params[row["term"]]))
            assert (row["conf.low"], row["conf.high"]) == pytest.approx(tuple(map(math.exp, ends)))
    text = str(model.odds_ratios())
    assert "smoker = True: odds ratios" in text
    assert "discriminant coefficients of this table" in text
    assert "normal within classes" in text


def test_what_is_not_identified_has_no_odds_ratio():
    problem = problem_of(gram(200, np.array([1.0]), 0.5), 500.0, np.random.default_rng(0))
    (row,) = ratio_table(summarise(problem)).rows()
    assert all(math.isnan(value) for name, value in row.items() if name != "term")
    assert ratio_table(summarise(problem)).as_plain()["rows"][0]["odds.ratio"] is None
    assert "identified at this budget" in str(ratio_table(summarise(problem)))


def test_a_residual_variance_without_signal_leaves_nothing_identified():
    """All columns are identified, and nearly all of the response is explained: v drowns in its noise."""
    G = np.diag([900.0, 900.0, 850.0])
    G[1, 2] = G[2, 1] = 870.0
    problem = problem_of(G, 30.0, np.random.default_rng(0))
    summary = summarise(problem)
    assert all(math.isnan(value) for value in summary.params.values())
    assert summary.left_out["x1"] == DISCRIMINANT.unidentified


def test_without_noise_scale_has_no_errors():
    G = gram(500, np.array([1.0]), 0.4)
    problem = replace(problem_of(G, 0.0, np.random.default_rng(0)), noisy=NoisyMoment(G, np.zeros_like(G)))
    fit = least_squares(problem.noisy, intercept=True)
    scale = discriminant_scale(problem, fit)
    assert scale.v == pytest.approx(fit.a @ G @ fit.a / 2000)
    assert not scale.noise.any()
    assert not scale.sampling.any()
