"""Rates by moments: exact where they say so, with intervals that cover the table's own values."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from gaussmix.models.design import Problem
from gaussmix.models.families import Scale, on_scale
from gaussmix.models.inference import Coefficients, LeastSquares, least_squares
from gaussmix.models.rates import Design, Errors, form_covariance, poisson_scale
from gaussmix.releases.noisy import NoisyMoment

NAMES = ("(intercept)", "x1", "x2", "d", "L=1", "L=2")
BETA = np.array([0.5, 0.5, -0.3, 0.5, 0.5, -0.5])


def design() -> Design:
    """Of the columns of `rows`: two numbers, true or false, a category with three levels."""
    features = np.eye(6, 7)
    baselines = np.array([features[0] - features[3], features[0] - features[4] - features[5]])
    return Design(features, np.eye(7)[6], baselines, np.array([-1, -1, -1, 0, 1, 1]))


def rows(n: int, seed: int = 0) -> np.ndarray:
    """Columns 1, x, d, L = 1, L = 2, y: numbers normal within levels, counts with more than Poisson's variance."""
    rng = np.random.default_rng(seed)
    level, d = rng.integers(0, 3, n), rng.random(n) < 0.3
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n)
    x += np.outer(level == 2, [0.7, 0]) + np.outer(d, [0, -0.5])
    X = np.column_stack([np.ones(n), x, d, level == 1, level == 2])
    return np.column_stack([X, rng.poisson(np.exp(X @ BETA) * rng.gamma(2, 0.5, n))])


def brute_force(table: np.ndarray) -> np.ndarray:
    """The module's formula from rows: least squares, means of groups, residuals of the numbers."""
    X, y = table[:, :-1], table[:, -1]
    b, mean = np.linalg.lstsq(X, y, rcond=None)[0], y.mean()
    d, one, two = (table[:, i] == 1 for i in (3, 4, 5))

    def c(chosen: np.ndarray) -> float:
        ratio = y[chosen].mean() / mean
        return math.log(ratio) - ratio + 1

    none = ~one & ~two
    moved = np.array([0, 0, 0, c(d) - c(~d), c(one) - c(none), c(two) - c(none)])
    levels, x = X[:, [0, 3, 4, 5]], X[:, 1:3]
    left = (x - levels @ np.linalg.lstsq(levels, x, rcond=None)[0]) @ b[1:3]
    moved[0] = math.log(mean) - 1 + c(~d) + c(none) - np.mean(left**2) / mean**2 / 2
    return b / mean + moved


def problem_of(G: np.ndarray, noise: float, rng: np.random.Generator) -> Problem:
    E = rng.normal(size=G.shape)
    noisy = NoisyMoment(G + noise * (E + E.T) / math.sqrt(2), shape=noise * np.eye(7))
    M = noisy.moment
    return Problem(noisy, NAMES, np.eye(6), np.zeros(6), {}, np.full(6, 50.0), float(M[0, 0]), "y")


def fitted(problem: Problem) -> tuple[LeastSquares, Scale]:
    fit = least_squares(problem.noisy, intercept=True)
    scale = poisson_scale(problem.noisy, design(), fit.theta, Errors.of(problem, fit), response=problem.response_name)
    return fit, scale


def rates(problem: Problem) -> Coefficients:
    fit, scale = fitted(problem)
    return on_scale(Coefficients.of(fit, problem.to_user, problem.offset), scale, 0.0)


def test_one_category_and_normal_numbers_are_exact():
    """At the moments of the law itself, at 40 digits: no rows, no sampling."""
    mpmath.mp.dps = 40
    shares = [mpmath.mpf(s) for s in ("0.5", "0.3", "0.2")]
    means = [mpmath.matrix(m) for m in ([0, 0], ["0.4", "-0.2"], ["-0.9", "0.5"])]
    S = mpmath.matrix([["1.3", "0.4"], ["0.4", "0.6"]])
    beta, levels, b0 = mpmath.matrix(["0.7", "-0.4"]), [mpmath.mpf(v) for v in ("0", "0.8", "-0.6")], mpmath.mpf("0.2")
    half = (beta.T * S * beta)[0] / 2
    ys = [mpmath.exp(b0 + levels[k] + (means[k].T * beta)[0] + half) for k in range(3)]
    G = mpmath.zeros(6)  # of 1, x, L = 1, L = 2, y; the square of y plays no part
    for k in range(3):
        x = [*means[k]]
        row = mpmath.matrix([1, *x, int(k == 1), int(k == 2), ys[k]])
        G += shares[k] * row * row.T
        G[1:3, 1:3] += shares[k] * S
        with_y = shares[k] * ys[k] * (S * beta)
        for i in range(2):
            G[1 + i, 5] += with_y[i]
            G[5, 1 + i] += with_y[i]
    b = np.array([float(v) for v in mpmath.lu_solve(G[:5, :5], G[:5, 5])])
    features = np.eye(5, 6)
    own = Design(features, np.eye(6)[5], (features[0] - features[3] - features[4])[None], np.array([-1, -1, -1, 0, 0]))
    moment = np.array(G.tolist(), dtype=float)
    moment[5, 5] += 100
    scale = poisson_scale(NoisyMoment(moment, np.zeros_like(moment)), own, b, response="y")
    assert (b + scale.added) / scale.v == pytest.approx([0.2, 0.7, -0.4, 0.8, -0.6], rel=1e-12)


def test_without_noise_it_is_the_formula_on_rows_and_near_the_model():
    table = rows(200_000)
    G = table.T @ table
    b = np.linalg.solve(G[:-1, :-1], G[:-1, -1])
    scale = poisson_scale(NoisyMoment(G, np.zeros_like(G)), design(), b, response="y")
    found = (b + scale.added) / scale.v
    assert found == pytest.approx(brute_force(table), rel=1e-9)
    assert found == pytest.approx(BETA, abs=0.03)
    assert not scale.noise.any()
    assert b[3] / scale.v > BETA[3] + 0.06  # what c is there for


def test_forms_of_the_noise_have_the_covariance_that_is_stated():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(4, 4))
    noisy = NoisyMoment(np.eye(4), shape=B @ B.T)
    U, T = rng.normal(size=(2, 3, 4))
    E = rng.normal(size=(40_000, 4, 4))
    E = B @ ((E + E.transpose(0, 2, 1)) / math.sqrt(2)) @ B.T
    values = np.einsum("ki,nij,kj->nk", U, E, T)
    stated = form_covariance(noisy, (U, T), (U, T))
    unit = np.sqrt(np.diagonal(stated))
    assert np.cov(values.T) / np.outer(unit, unit) == pytest.approx(stated / np.outer(unit, unit), abs=0.03)


@pytest.mark.slow
def test_means_move_with_noise_as_stated():
    """Covariances of ȳ, of e and of both with b, against 4,000 draws; a tenth less noise would be seen."""
    rng = np.random.default_rng(2)
    table = rows(5000)
    G = table.T @ table
    (fit, own), drawn = fitted(problem_of(G, 1e-3, rng)), []
    exact = np.linalg.solve(G[:-1, :-1], G[:-1, -1])
    for _ in range(4000):
        M = problem_of(G, 1e-3, rng).noisy.moment
        b = np.linalg.solve(M[:-1, :-1], M[:-1, -1])
        scale = poisson_scale(NoisyMoment(M, np.zeros_like(M)), design(), b, response="y")
        drawn.append([*(b - exact), scale.v, *scale.added])
    found = np.cov(np.array(drawn).T)
    stated = np.block([[fit.noise, own.with_b], [own.with_b.T, own.noise]])
    seen = [*range(6), 6, 7, 10, 11, 12]  # e of numbers is 0
    unit = np.sqrt(np.diagonal(found))[seen]
    ratio = np.diagonal(stated)[seen] / unit**2
    assert ratio == pytest.approx(np.ones(len(seen)), abs=0.1)
    assert not np.allclose(0.81 * ratio, 1, atol=0.1)
    correlations = [matrix[np.ix_(seen, seen)] / np.outer(unit, unit) for matrix in (found, stated)]
    assert correlations[0] == pytest.approx(correlations[1], abs=0.1)


def hits(noise: float, releases: int, less: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(1)
    table = rows(5000)
    G, truth, found = table.T @ table, brute_force(table), np.zeros(6)
    for _ in range(releases):
        problem = problem_of(G, noise, rng)
        law = problem.noisy
        noisy = NoisyMoment(law.moment, shape=less * law.shape)
        low, high = rates(Problem(**{**vars(problem), "noisy": noisy})).intervals(0.1).T
        found += (low <= truth) & (truth <= high)
    return found / releases


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "releases"), [(20.0, 250), (40.0, 150)])
def test_intervals_cover_the_tables_own_values(noise, releases):
    found = hits(noise, releases)
    assert np.all(found > 0.9 - 3.5 * math.sqrt(0.09 / releases)), found
    assert found.mean() > 0.9, found
    assert found.mean() < 0.95, found


@pytest.mark.slow
def test_coverage_sees_a_tenth_too_little_noise():
    assert hits(20.0, 250, less=0.9).mean() < 0.9


def test_nothing_is_identified_where_the_mean_is_less_than_three_errors_from_0():
    table = rows(5000)
    problem = problem_of(table.T @ table, 60.0, np.random.default_rng(4))
    fit, scale = fitted(problem)
    b = Coefficients.of(fit, problem.to_user, problem.offset)
    for signal, known in ((3.1, True), (2.9, False), (-1.0, False)):
        weak = replace(scale, v=signal * math.sqrt(scale.noise[0, 0]))
        assert on_scale(b, weak, 0.0).known.tolist() == [known] * 6


@pytest.mark.parametrize(("least", "unknown"), [(5.2, []), (4.8, ["(intercept)", "L=1", "L=2"])])
def test_means_less_than_five_deviations_from_nothing_are_not_used(least, unknown):
    """Noise at which the least of all rows and totals of levels is as many standard deviations from 0."""
    table = rows(5000)
    # So that the level which the others are measured from is the smallest.
    table = table[(table[:, 4] + table[:, 5] == 1) | (np.arange(5000) % 8 == 0)]
    G, own = table.T @ table, design()
    one, y = own.features[0], own.response
    groups = [*own.features[3:], *own.baselines]
    signals = [(g @ G @ t) / math.sqrt((g @ g) * (t @ t) + (g @ t) ** 2) for g in groups for t in (one, y)]
    noisy = NoisyMoment(G, shape=min(signals) / least * np.eye(7))
    b = np.linalg.solve(G[:-1, :-1], G[:-1, -1])
    scale = poisson_scale(noisy, own, b, response="y")
    assert [name for name, value in zip(NAMES, scale.added, strict=True) if math.isnan(value)] == unknown
