"""Clipped gradients: the same bits wherever a row stands, and no row counts for more than the clip."""

from __future__ import annotations

import pickle

import mpmath
import numpy as np
import pytest
from scipy import special

from gaussmix.data.gram import ClippedGradient, exponential
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import ROW_UNIT, Transform
from gaussmix.errors import ArgumentError

M, LABEL = 6, 4


def whole_rows(n=700, seed=0):
    """Rows of norm at most 2²⁰, labels of both signs, one row of zeros and one without a label."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, M))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.choice([1.0, 1.5, 1e4], (n, 1))
    rows = np.trunc(rows * ROW_UNIT)
    rows[0] = 0
    rows[1, LABEL] = 0
    return rows


def question(clip=4.0, steep=30.0, seed=1):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((M, M)) * np.append(rng.uniform(0.5, 20, M - 1), steep)[:, np.newaxis]
    matrix[:, LABEL] = 0
    return ClippedGradient(Transform.nearest(matrix), LABEL, clip)


def answered(asked, rows):
    aggregator = asked.aggregator(M)
    aggregator.add(rows)
    return aggregator.result()


def test_the_exponential_is_one_function_of_its_argument():
    x = np.concatenate([np.linspace(-45, 45, 2001), np.random.default_rng(0).normal(0, 3, 1000), [0.0, -0.0]])
    found = exponential(x)
    with mpmath.workdps(30):
        exact = np.array([float(mpmath.exp(min(max(value, -40.0), 40.0))) for value in x.tolist()])
    assert np.max(np.abs(found / exact - 1)) < 1e-14
    for start in (0, 1, 3, 7):  # lanes and remainders of vectorised loops
        for step in (1, 2, -1):
            assert np.array_equal(exponential(x[start::step]), found[start::step])
    assert np.array_equal([exponential(np.array([value]))[0] for value in x], found)


def test_a_row_adds_the_same_wherever_it_stands():
    rows, aggregator = whole_rows(), question().aggregator(M)
    gradients, weights = aggregator.of_rows(rows)
    order = np.random.default_rng(2).permutation(len(rows))
    for chosen, layout in ((order, "C"), (order, "F"), (order[:5], "C"), (order[3:260], "F")):
        found = aggregator.of_rows(np.asarray(rows[chosen], order=layout))
        assert np.array_equal(found[0], gradients[chosen])
        assert np.array_equal(found[1], weights[chosen])
    for place in range(40):
        found = aggregator.of_rows(rows[place : place + 1])
        assert np.array_equal(found[0][0], gradients[place])
        assert found[1][0] == weights[place]


@pytest.mark.parametrize("clip", [1e-6, 0.5, 4.0, 1e6])
@pytest.mark.parametrize("steep", [1e-3, 30.0, 1e6])
def test_no_row_counts_for_more_than_the_clip(clip, steep):
    gradients, weights = question(clip, steep).aggregator(M).of_rows(whole_rows())
    assert all(sum(int(entry) ** 2 for entry in row) <= 2**40 for row in gradients)
    assert all(entry == int(entry) for entry in gradients.ravel())
    assert all(0 <= weight <= 2**20 and weight == int(weight) for weight in weights)
    assert not gradients[:2].any()
    assert not weights[:2].any()
    if clip == 1e-6 and steep == 30.0:  # the bound is met
        assert max(sum(int(entry) ** 2 for entry in row) for row in gradients) > 2**40 * 0.9999
    if steep == 1e-3:
        assert weights.max() > 2**20 * 0.9999


def test_sums_are_those_of_the_likelihood():
    """Against dense algebra: Σ (y - p) z, rows longer than the clip shortened to it, and Σ p(1 - p)."""
    asked, rows = question(clip=9.0, steep=5.0), whole_rows()
    E, r = asked.transform.matrix, rows / ROW_UNIT
    z, margin, y = r @ E[:-1].T, r @ E[-1], np.sign(rows[:, LABEL])
    p = special.expit(margin)
    u = ((y > 0) - p)[:, np.newaxis] * z * np.abs(y)[:, np.newaxis]
    lengths = np.linalg.norm(u, axis=1)
    assert 0.02 < np.mean(lengths > 3) < 0.8
    u *= np.minimum(1, 3 / np.maximum(lengths, 1e-300))[:, np.newaxis]
    found = answered(asked, rows)
    assert found.gradient / 2**20 * 3 == pytest.approx(u.sum(axis=0), abs=len(rows) * 3 * 2**-19)
    assert found.weight / 2**20 / 4 == pytest.approx((p * (1 - p) * np.abs(y)).sum(), abs=len(rows) * 2**-21)


def test_parts_add_up_and_can_be_sent():
    asked, rows = question(), whole_rows(9000)
    whole = answered(asked, rows)
    sent = pickle.loads(pickle.dumps(asked))
    parts = answered(sent, rows[:123]) + answered(sent, rows[123:])
    assert np.array_equal(whole.gradient, parts.gradient)
    assert whole.weight == parts.weight
    assert "gradient=" not in repr(whole)


def test_every_source_answers_alike():
    rng = np.random.default_rng(3)
    schema = Schema.of({"X": {"size": 3, "lower": -1, "upper": 1}, "y": "boolean"})
    X, y = rng.uniform(-1.2, 1.2, (5000, 3)), rng.random(5000) < 0.3
    matrix = rng.standard_normal((5, schema.n_columns))
    matrix[:, schema.groups["y"][0]] = 0
    asked = (Transform.nearest(matrix), schema.groups["y"][0], 0.05)
    found = [rows_of(data, schema).gradient(*asked) for data in ({"X": X, "y": y}, {"X": X[::-1], "y": y[::-1]})]
    assert np.array_equal(found[0].gradient, found[1].gradient)
    assert found[0].weight == found[1].weight > 0


def test_what_is_refused():
    matrix = np.eye(3)
    with pytest.raises(ArgumentError, match="neither of which may use the label"):
        ClippedGradient(Transform.nearest(matrix), 1, 1.0).aggregator(3)
    matrix[:, 1] = 0
    matrix[1, 0] = 1
    with pytest.raises(ArgumentError, match="clip must be positive"):
        ClippedGradient(Transform.nearest(matrix), 1, 0.0).aggregator(3)
    with pytest.raises(ArgumentError, match="must have 4 columns, as the schema has, got 3"):
        ClippedGradient(Transform.nearest(matrix), 1, 1.0).aggregator(4)
    with pytest.raises(ArgumentError, match="Gradients require row-level privacy"):
        question().aggregator(M).add(whole_rows(), np.array([0, 10]))
