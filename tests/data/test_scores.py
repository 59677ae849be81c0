"""Scores of declared models: the same bits wherever a row stands, and no row or unit counts for more than the clip."""

from __future__ import annotations

import hashlib
import pickle

import mpmath
import numpy as np
import pytest
from scipy import special

from gaussmix.data.scores import ScoreNorms, ScoreSums, identity, score_map
from gaussmix.data.terms import exponential, normal_probability
from gaussmix.data.transforms import ROW_UNIT, Transform
from gaussmix.errors import ArgumentError
from gaussmix.models.families import LOGISTIC_MEAN, POISSON, PROBIT

M, CONSTANT, ENTRY = 7, 6, float(2**18)
MEANS = {
    "logit": LOGISTIC_MEAN.by_row,
    "poisson": POISSON.mean.by_row,
    "probit": PROBIT.mean.by_row,
    "ols": identity,
}


def whole_rows(n=700, seed=0):
    """Rows of norm at most 2²⁰ with a constant column, some with weights below 1, and one row of zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, M))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.choice([1.1, 1.5, 1e4], (n, 1))
    rows *= 0.9
    rows[:, CONSTANT] = ENTRY / ROW_UNIT
    rows *= np.sqrt(rng.choice([1.0, 1.0, 0.3, 1e-5], (n, 1)))
    rows = np.trunc(rows * ROW_UNIT)
    rows[0] = 0
    return rows


def question(mean="logit", clip=4.0, steep=3.0, seed=1, exposure=False):
    rng = np.random.default_rng(seed)
    metric = rng.standard_normal((4, M)) * rng.uniform(0.5, 20, (4, 1))
    linear = rng.standard_normal((2 + exposure, M))
    linear[0] *= steep
    linear[1:, :] = 0
    linear[1, 4], linear[1, 5] = 2.0, 0.0
    if exposure:
        linear[2, 5] = 1.5
    maps = score_map(
        Transform.nearest(metric),
        Transform.nearest(linear + 1e-30),
        mean=MEANS[mean],
        constant=CONSTANT,
        entry=ENTRY,
        response=0.5,
        exposure=1.0,
    )
    return ScoreSums(maps, clip)


def answered(asked, rows, starts=None):
    aggregator = asked.aggregator(M)
    aggregator.add(rows.copy(), starts)
    return aggregator.result()


@pytest.mark.parametrize(("function", "exact"), [(exponential, "exp"), (normal_probability, "ncdf")])
def test_means_are_functions_of_one_number(function, exact):
    x = np.concatenate([np.linspace(-45, 45, 2001), np.random.default_rng(0).normal(0, 3, 1000), [0.0, -0.0]])
    found, end = function(x), 40.0 if exact == "exp" else 7.0710678
    with mpmath.workdps(30):
        true = np.array([float(getattr(mpmath, exact)(min(max(value, -end), end))) for value in x.tolist()])
    error = found / true - 1 if exact == "exp" else found - true
    assert np.max(np.abs(error)) < 1e-14
    for start in (0, 1, 3, 7):  # lanes and remainders of vectorised loops
        for step in (1, 2, -1):
            assert np.array_equal(function(x[start::step]), found[start::step])
    assert np.array_equal([function(np.array([value]))[0] for value in x], found)


@pytest.mark.parametrize("mean", MEANS)
def test_a_row_has_the_same_score_wherever_it_stands(mean):
    rows, aggregator = whole_rows(), question(mean, exposure=mean == "poisson").aggregator(M)
    scores = aggregator.of_rows(rows)
    order = np.random.default_rng(2).permutation(len(rows))
    for chosen, layout in ((order, "C"), (order, "F"), (order[:5], "C"), (order[3:260], "F")):
        assert np.array_equal(aggregator.of_rows(np.asarray(rows[chosen], order=layout)), scores[chosen])
    for place in range(40):
        assert np.array_equal(aggregator.of_rows(rows[place : place + 1])[0], scores[place])


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("clip", [1e-6, 0.5, 1e6])
@pytest.mark.parametrize("steep", [1e-3, 3.0, 1e6])
def test_no_row_counts_for_more_than_the_clip(mean, clip, steep):
    scores = question(mean, clip, steep).aggregator(M).of_rows(whole_rows())
    assert all(sum(int(entry) ** 2 for entry in row) <= 2**40 for row in scores)
    assert all(entry == int(entry) for entry in scores.ravel())
    assert not scores[0].any()
    if clip == 1e-6:  # the bound is met
        assert max(sum(int(entry) ** 2 for entry in row) for row in scores) > 2**40 * 0.9999


@pytest.mark.parametrize("clip", [1e-6, 0.5, 1e6])
def test_no_unit_counts_for_more_than_the_clip(clip):
    """Units of one to 300 equal or opposite rows: their sums are clipped as one row is."""
    rows = np.vstack([np.repeat(whole_rows(12), 300, axis=0), whole_rows(300)])
    starts = np.concatenate([np.arange(0, 3600, 300), 3600 + np.arange(0, 300, 3)])
    aggregator = question("poisson", clip).aggregator(M)
    scores = aggregator.of_rows(rows, starts)
    assert scores.shape == (len(starts), 4)
    assert all(sum(int(entry) ** 2 for entry in unit) <= 2**40 for unit in scores)
    assert not scores[0].any()  # of 300 rows of zeros
    alone = [aggregator.of_rows(rows[a:b], np.array([0]))[0] for a, b in zip(starts, [*starts[1:], 3900], strict=True)]
    assert np.array_equal(scores, alone)
    turned = np.vstack([rows[a:b][::-1] for a, b in zip(starts, [*starts[1:], 3900], strict=True)])
    assert np.array_equal(aggregator.of_rows(turned, starts), scores)


@pytest.mark.parametrize("mean", MEANS)
def test_sums_are_those_of_the_likelihood(mean):
    """Against dense algebra with scipy's functions: Σ ω x(y - μ), and Σ s sᵀ, of rows within the clip."""
    asked, rows = question(mean, clip=1e4, steep=2.0, exposure=mean == "poisson"), whole_rows(3000)
    r, t = rows / ROW_UNIT, rows[:, CONSTANT] / ENTRY
    used = t > 0.1
    rows, r, t = rows[used], r[used], t[used]
    E = asked.scores.transform.matrix
    eta, y = r @ E[4] / t, r @ E[5] / t + 0.5
    mu = {"logit": special.expit, "poisson": np.exp, "probit": special.ndtr, "ols": np.asarray}[mean](eta)
    if mean == "poisson":
        mu = mu * np.maximum(r @ E[6] / t + 1.0, 0.0)
    s = r @ E[:4].T * (t * (y - mu))[:, np.newaxis]
    assert np.sum(s**2, axis=1).max() < 1e4
    found = answered(asked, rows)
    assert found.total / 2**20 * 100 == pytest.approx(s.sum(axis=0), abs=len(rows) * 100 * 2**-19)
    squares = (found.squares.high + found.squares.low / 2.0**40) * 1e4
    assert squares == pytest.approx(s.T @ s, rel=1e-3, abs=1.0)


def test_histograms_count_rows_or_units_once():
    rows, maps = whole_rows(2000), question(clip=1.0).scores
    edges = 0.01 * 2.0 ** np.arange(12)
    asked = ScoreNorms(maps, edges)
    counts = answered(asked, rows).counts[0]
    size = np.sum((question(clip=1e4).aggregator(M).of_rows(rows) / 2**20) ** 2, axis=1) * 1e4
    expected = np.histogram(size, [0, *edges, np.inf])[0]
    assert counts[-1] > 50
    assert np.abs(counts[1:] - expected[1:]).max() <= 3  # rounding at edges
    assert counts.sum() <= len(rows) - 1  # the row of zeros is in no bin
    starts = np.arange(0, 2000, 4)
    assert answered(asked, rows, starts).counts[0].sum() <= len(starts)
    for place in range(0, 30):
        assert answered(asked, rows[place : place + 1]).counts[0].sum() <= 1


def test_parts_add_up_and_can_be_sent():
    asked, rows = question("poisson"), whole_rows(9000)
    whole = answered(asked, rows)
    sent = pickle.loads(pickle.dumps(asked))
    parts = answered(sent, rows[:123]) + answered(sent, rows[123:])
    assert np.array_equal(whole.total, parts.total)
    assert np.array_equal(whole.squares.low, parts.squares.low)
    assert np.array_equal(whole.squares.high, parts.squares.high)
    assert "total=" not in repr(whole)


def test_what_is_refused():
    asked = question()
    with pytest.raises(ArgumentError, match="matrix of a declared model must have"):
        asked.aggregator(M + 1)
    with pytest.raises(ArgumentError, match="clip must be positive"):
        ScoreSums(asked.scores, 0.0).aggregator(M)
    with pytest.raises(ArgumentError, match="strictly increasing"):
        ScoreNorms(asked.scores, np.array([2.0, 1.0])).aggregator(M)


FROZEN = {
    "logit": "8af464c59e852f72",
    "poisson": "b5b5f77486f47111",
    "probit": "07a924d2f56d7ba1",
    "ols": "08f33fb4405e4f87",
}


@pytest.mark.parametrize("mean", FROZEN)
def test_bits_of_scores_do_not_depend_on_the_processor(mean):
    """Sums over rows and units of whole numbers made by integer arithmetic; run by tests/processors.py too."""
    i, j = np.arange(5000)[:, np.newaxis], np.arange(M)
    rows = ((i * (7919 + 104729 * j) + 31 * j) % 700_001 - 350_000).astype(float)
    rows[:, CONSTANT] = ENTRY
    whole = ((np.arange(4)[:, np.newaxis] * 7 + j * 5 + 3) % 11 - 5.0) * 2.0**26
    linear = (((np.arange(3)[:, np.newaxis] + 2) * (j + 1)) % 7 - 3.0) * 2.0**27
    maps = score_map(
        Transform(whole, np.full(4, 2.0**-44)),
        Transform(linear[: 2 + (mean == "poisson")], np.full(2 + (mean == "poisson"), 1.3 * 2.0**-47)),
        mean=MEANS[mean],
        constant=CONSTANT,
        entry=ENTRY,
        response=0.5,
        exposure=1.0,
    )
    digest = hashlib.sha256()
    for starts in (None, np.arange(0, 5000, 5)):
        aggregator = ScoreSums(maps, 40.0).aggregator(M)
        aggregator.add(rows.copy(), starts)
        found = aggregator.result()
        assert found.total.any()
        for array in (found.total, found.squares.high, found.squares.low):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    assert digest.hexdigest()[:16] == FROZEN[mean]
