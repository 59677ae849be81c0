"""Drawn rows: a fixed sequence, the released second moments, the shapes of counted cells, terms of drawn values."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from scipy.stats import qmc

import gaussmix as gm
from gaussmix.data.terms import legendre
from gaussmix.models.predictor_distribution import (
    PredictorDistribution,
    cell_quantiles,
    directions,
    least_squares_of,
    lower_root,
    sobol_points,
    two_valued,
)

SCHEMA = {
    "age": [0, 100],
    "wage": {"lower": 1, "upper": 1000},
    "sex": {"levels": ["f", "m"]},
    "job": {"levels": ["none", "unpaid", "paid"]},
    "sick": "boolean",
}


def table(n=40_000, seed=0):
    rng = np.random.default_rng(seed)
    job = rng.choice(["none", "unpaid", "paid"], n, p=[0.2, 0.1, 0.7])
    sex = np.where(rng.random(n) < np.where(job == "unpaid", 0.2, 0.5), "m", "f")
    age = np.clip(rng.gamma(9, 5, n) + 5 * (job == "paid"), 0, 100)
    wage = np.clip(np.exp(3 + 0.02 * age + 0.4 * (sex == "m") + 0.7 * rng.normal(size=n)), 1, 1000)
    sick = rng.random(n) < 1 / (1 + np.exp(4 - 0.05 * age))
    return pd.DataFrame({"age": age, "wage": wage, "sex": sex, "job": job, "sick": sick})


@pytest.fixture(scope="module")
def release():
    return gm.release(table(), schema=SCHEMA, epsilon=20.0, delta=1e-6, random_state=0)


def rows_of(release, sources, **options):
    response = np.zeros((0, release.schema.n_columns))
    return PredictorDistribution(release.statistic, tuple(sources), response, **options).rows


def test_points_are_those_of_scipy_with_a_shift():
    plain = np.rint(qmc.Sobol(5, scramble=False).random(64) * 64).astype(int)
    own, shifts = directions(5, 64)
    assert np.array_equal(np.rint(sobol_points(5, 64) * 64 - 0.5).astype(int), plain ^ shifts)
    assert own.shape == (6, 5)
    for column in sobol_points(7, 256).T:
        assert sorted(column) == pytest.approx((np.arange(256) + 0.5) / 256)


def test_fewer_points_have_the_leading_bits_of_many():
    """The page keeps one set of direction numbers for both."""
    (many, shifts), (few, fewer) = directions(9, 16_384), directions(9, 4096)
    assert np.array_equal(many[:12] >> 2, few)
    assert np.array_equal(shifts >> 2, fewer)


@pytest.mark.parametrize("numbers_first", [False, True])
def test_drawn_rows_have_the_released_second_moments(release, numbers_first):
    sources = ["age", "wage", "sex", "job"]
    R = rows_of(release, sources, numbers_first=numbers_first)
    own = [i for name in (*sources, "(intercept)") for i in release.schema.groups[name]]
    M = release.statistic.predictive.moment
    n = release.schema.units.one @ M @ release.schema.units.one
    wanted, found = (M / n)[np.ix_(own, own)], (R.T @ R / len(R))[np.ix_(own, own)]
    unit = 1 / np.sqrt(np.diagonal(wanted))
    # Linear probabilities of levels given numbers are cut to [0, 1]: their moments are met less well.
    assert np.abs((found - wanted) * np.outer(unit, unit)).max() < (0.05 if numbers_first else 0.02)


def test_shapes_are_those_of_the_cells(release):
    """A skewed column has its own quantiles, where a normal one with the same moments is far off."""
    coded = release.topcode(table())["wage"]
    (index,) = release.schema.groups["wage"]
    points = [0.01, 0.1, 0.5, 0.9, 0.99]
    drawn, normal = (
        np.quantile(
            release.schema.units.decode(rows_of(release, ["wage", "sex"], shaped=shaped), slice(None))[:, index], points
        )
        for shaped in (True, False)
    )
    truth = np.quantile(coded, points)
    assert drawn == pytest.approx(truth, rel=0.08)
    assert abs(normal[0] - truth[0]) > 10


def test_a_release_gives_the_same_rows_again(release):
    again = gm.Release.from_bytes(release.to_bytes())
    assert np.array_equal(rows_of(release, ["age", "job"]), rows_of(again, ["age", "job"]))


def test_terms_are_functions_of_the_values_drawn():
    schema = gm.Schema.of(SCHEMA, terms=["poly(age, 2)", "log(wage)", "age:sex", "spline(age, 4)"])
    release = gm.release(table(5000), schema=schema, epsilon=10.0, delta=1e-6, random_state=0)
    R = rows_of(release, ["age", "age^2", "sex", "age:sex", "spline(age, 4)"])
    at = {name: release.schema.groups[name] for name in ("age", "age^2", "sex", "age:sex", "spline(age, 4)")}
    (age,), (square,) = at["age"], at["age^2"]
    column = release.schema.columns["age"]
    t = np.clip(
        (release.schema.units.decode(R)[:, age] - (column.upper + column.lower) / 2)
        / ((column.upper - column.lower) / 2),
        -1,
        1,
    )
    assert R[:, square] * release.schema.units.scales[square] == pytest.approx(legendre(2, t), abs=1e-12)
    (product,) = at["age:sex"]
    male = release.schema.units.decode(R)[:, at["sex"][1]]
    assert R[:, product] * release.schema.units.scales[product] == pytest.approx(t * male, abs=1e-12)
    sums = (R[:, list(at["spline(age, 4)"])] * release.schema.units.scales[list(at["spline(age, 4)"])]).sum(axis=1)
    assert np.all((sums >= 0) & (sums <= 1))


def test_missing_numbers_are_zero_where_their_indicator_is_set():
    rows = table(8000)
    rows.loc[::5, "age"] = np.nan
    schema = {**SCHEMA, "age": {"lower": 0, "upper": 100, "missing": "indicator"}}
    release = gm.release(rows, schema=schema, epsilon=10.0, delta=1e-6, random_state=0)
    for numbers_first in (False, True):
        R = rows_of(release, ["age", "age=(missing)", "sex"], numbers_first=numbers_first)
        (age,), (mark,) = release.schema.groups["age"], release.schema.groups["age=(missing)"]
        missing = R[:, mark] > 0
        assert missing.mean() == pytest.approx(0.2, abs=0.02)
        assert np.all(R[missing, age] == 0)
        assert np.all(R[~missing, age] != 0)


def test_least_squares_of_noisy_moments_damps_directions_within_the_noise():
    """In the metric of the noise, where it is 1, a direction with the signal h is divided by h + d/h."""
    rng = np.random.default_rng(0)
    A, h = rng.normal(size=(4, 4)), np.array([0.5, 2.0, 30.0, 1000.0])
    N = A @ A.T
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    M = A @ Q @ np.diag(h) @ Q.T @ A.T
    g = rng.normal(size=(4, 2))
    G, noise = np.zeros((6, 6)), np.zeros((6, 6))
    G[:4, :4], G[:4, 4:], G[4:, :4], noise[:4, :4] = M, g, g.T, N
    back = np.linalg.inv(A).T @ Q
    expected = back @ np.diag(h / (h**2 + 4)) @ back.T @ g
    assert least_squares_of(G, noise, range(4), [4, 5]) == pytest.approx(expected, rel=1e-6)
    exact = least_squares_of(G, np.zeros_like(G), range(4), [4, 5])
    assert exact == pytest.approx(scipy.linalg.solve(M, g), rel=1e-6)


def test_a_root_of_a_noisy_covariance():
    S = np.array([[2.0, 0.6], [0.6, 1.0]])
    L = lower_root(S, np.full(2, 1e-9))
    assert pytest.approx(S) == L @ L.T
    indefinite = lower_root(np.array([[1.0, 2.0], [2.0, 1.0]]), np.full(2, 1e-6))
    assert np.all(np.isfinite(indefinite))
    assert indefinite[1, 1] == pytest.approx(1e-3)


def test_quantiles_of_cells():
    edges = np.array([0.0, 0.3, 0.6, 1.0, 2.0, 3.0])
    whole = cell_quantiles(edges, np.array([500.0, 2.0, -3.0, 300.0, 200.0]), np.full(5, 1.0))
    assert whole.whole
    assert sorted(set(whole((np.arange(1000) + 0.5) / 1000))) == [0.0, 1.0, 2.0, 3.0]
    real = cell_quantiles(edges, np.array([100.0, 90.0, 110.0, 300.0, 200.0]), np.full(5, 1.0))
    assert not real.whole
    assert real(np.array([100 / 800, 0.5])) == pytest.approx([0.3, 1 + 100 / 300])


def test_without_marginals_shapes_are_beta():
    release = gm.release(table(5000), schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    (index,) = release.schema.groups["wage"]
    drawn = release.schema.units.decode(rows_of(release, ["wage"], shaped=True))[:, index]
    assert drawn.min() >= 1 - 1e-9
    assert (drawn.mean(), drawn.std()) == pytest.approx(
        (table(5000)["wage"].mean(), table(5000)["wage"].std()), rel=0.02
    )


# ---------------------------------------------------------------------------------------------------------------
# Booleans among the entries of a vector
def vectors(epsilon, n=20_000):
    """Return a release of a vector and its rows: a rare 0/1 entry, a group of two levels, ±1, and two numbers."""
    rng = np.random.default_rng(0)
    level = rng.choice(3, n, p=[0.2, 0.2, 0.6])
    X = np.column_stack(
        [
            rng.random(n) < 0.03,
            level == 0,
            level == 1,
            np.where(rng.random(n) < 0.4, 1, -1),
            rng.uniform(-1, 1, n),
            np.clip(rng.normal(0.3, 0.2, n), -1, 1),
        ]
    ).astype(float)
    schema = gm.Schema({"X": gm.Vector(6, lower=-1, upper=1), "y": gm.Boolean()})
    rows = {"X": X, "y": rng.random(n) < 0.5}
    return gm.release(rows, schema=schema, epsilon=epsilon, delta=1e-6, random_state=0), X


def test_entries_with_two_values_are_found_where_noise_permits():
    for epsilon in (3.0, 30.0):
        assert two_valued(vectors(epsilon)[0].statistic, ["X"]) == {
            0: (0.0, 1.0), 1: (0.0, 1.0), 2: (0.0, 1.0), 3: (-1.0, 1.0)
        }  # fmt: skip
    assert two_valued(vectors(0.1, 300)[0].statistic, ["X"]) == {}


def test_entries_with_two_values_are_drawn_as_booleans():
    release, X = vectors(30.0)
    rows = rows_of(release, ["X"], booleans=True)
    found = release.schema.units.decode(rows[:, :6], range(6))
    for place in range(4):
        assert set(np.unique(found[:, place])) == set(np.unique(X[:, place]))
    assert np.mean(found[:, 1] * found[:, 2]) < 1e-3  # levels of one group
    assert found[:, :4].mean(axis=0) == pytest.approx(X[:, :4].mean(axis=0), abs=0.01)
    assert len(np.unique(rows_of(release, ["X"])[:, 0])) > 1000  # summaries draw numbers


def test_entries_near_a_bound_have_its_shape():
    """A count that is mostly 0: normal rows would be below 0 half of the time and never large."""
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.geometric(0.5, 20_000) - 1, 40) * (rng.random(20_000) < 0.1)
    X = np.column_stack([counts / 20 - 1.0, rng.random(20_000) < 0.3])
    schema = gm.Schema({"X": gm.Vector(2, lower=-1, upper=1), "y": gm.Boolean()})
    rows = {"X": X, "y": rng.random(20_000) < 0.5}
    release = gm.release(rows, schema=schema, epsilon=math.inf, delta=1e-6)
    found = release.schema.units.decode(rows_of(release, ["X"], booleans=True)[:, :2], range(2))[:, 0]
    assert found.min() >= -1
    assert found.mean() == pytest.approx(X[:, 0].mean(), abs=0.005)
    assert found.std() == pytest.approx(X[:, 0].std(), rel=0.2)
    normal = release.schema.units.decode(rows_of(release, ["X"], shaped=False)[:, :2], range(2))[:, 0]
    assert np.mean(normal < -1) > 0.2
