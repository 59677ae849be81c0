"""Encoded rows: their definition up to the rounding, none longer than 1, each by itself, the same by both doors."""

import itertools
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from array_tables import BOUNDS, SCHEMAS, Y, arrays, targets
from declared_schemas import KINDS, corner_rows, schemas, vector_array
from encoded_rows import exact_gram, plain_rows, squared_lengths, summed_rows
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.encode import BlockEncoder, clip_vectors, encode_arrays, squared_norms_of
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema

PROPERTY = settings(max_examples=80)
every_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())


def test_every_kind_of_column_is_drawn():
    assert set(KINDS) == set(get_args(Column))


def mapped_exactly(schema, x, y):
    """Encoded row before rounding, by its definition in rationals (roots to 60 digits); was it too long?"""
    vector, *numbers = schema.columns.values()
    weight = Fraction(vector.weight)
    limit = 1 if not vector.bounded else vector.size
    if vector.bounded and vector.norm is not None:
        limit = min(limit, Fraction(vector.norm) ** 2)
    squares = [weight**2 * limit, *(Fraction(w) ** 2 for w in (schema.intercept, *(c.weight for c in numbers)))]
    if vector.bounded:
        bounds = zip(*(np.broadcast_to(b, vector.size) for b in (vector.lower, vector.upper)), strict=True)
        features = [to_unit(v, *pair) for v, pair in zip(x, bounds, strict=True)]
    else:
        features = [Fraction(v) / Fraction(vector.norm) for v in x]
    others = [Fraction(c.weight) * to_unit(v, c.lower, c.upper) for v, c in zip(y, numbers, strict=True)]
    row = [weight * v for v in features] + others + [Fraction(schema.intercept)] * (schema.intercept != 0)
    norm = root(sum(v**2 for v in features))
    long = norm > root(limit)
    factor = root(limit) / norm if long else 1
    return [v * factor / root(sum(squares)) for v in row], long


def to_unit(value, lower, upper):
    lower, upper = Fraction(lower), Fraction(upper)
    return max(Fraction(-1), min(Fraction(1), (2 * Fraction(value) - lower - upper) / (upper - lower)))


def root(value):
    return Fraction(math.isqrt(int(Fraction(value) * 10**120)), 10**60)


# -- the definition ----------------------------------------------------------------------------------------------
@every_schema
def test_encoding_is_its_definition_up_to_the_rounding(schema):
    X, Y = arrays(schema, 200)
    d = X.shape[1]
    for row, x, y in zip(encode_arrays(schema, X, Y), X, Y, strict=True):
        exact_row, long = mapped_exactly(schema, x, y)
        for got, exact in zip(row, exact_row, strict=True):
            error = abs(Fraction(got) - exact) * 2**20
            if long:  # rounded twice, and by the norm of the rounded features, which the weight makes small or large
                assert error < 2 + math.sqrt(d) / min(1, schema.columns["X"].weight)
            else:  # towards zero
                assert abs(Fraction(got)) <= abs(exact) * (1 + Fraction(1, 2**50))
                assert error < 1 + Fraction(1, 2**20)


@pytest.mark.parametrize("size", [1e3, 1e16, 1e155, 1e300, 1.7e308])
def test_long_rows_keep_their_linear_relation(size):
    schema = Schema({"X": Vector(2, norm=1.0)}, intercept=0.5)
    row = encode_arrays(schema, np.array([[0.6 * size, 0.8 * size]]))[0] * schema.row_norm
    if size < 1e290:
        assert row[:2] == pytest.approx([0.6, 0.8], abs=1e-5)
    assert row[2] == pytest.approx(0.5 / size, abs=1e-5)
    assert 0.99 < np.linalg.norm(row[:2]) <= 1


def test_a_vector_beyond_its_norm_shrinks_the_whole_row():
    """Wherever the vector stands among columns of all kinds, and for two of them one after the other."""
    kinds = {"n": Numeric(-1, 1), "b": Boolean(), "c": Categorical(["u", "v"]), "w": Vector(1, lower=-1, upper=1)}
    columns = {**kinds, "v": Vector(2, norm=5.0, weight=2.0), "z": Numeric(-1, 1)}
    values = {"n": [0.5], "b": [True], "c": ["u"], "w": vector_array([[0.5]]), "z": [-1.0]}
    for order in (list(columns), list(columns)[::-1], ["v", *kinds, "z"]):
        schema = Schema({name: columns[name] for name in order}, intercept=1)
        short, long = (
            summed_rows(schema, pa.table({**values, "v": vector_array([entries])}))[0] * schema.row_norm
            for entries in ([1.5, 2.0], [15.0, 20.0])
        )
        vector = list(schema.groups["v"])
        rest = [i for i in range(schema.n_columns) if i not in vector]
        np.testing.assert_allclose(short[vector], [0.6, 0.8], atol=2e-5)
        np.testing.assert_allclose(long[vector], [1.2, 1.6], atol=2e-5)  # 2 * (3, 4) / 5
        np.testing.assert_allclose(long[rest], short[rest] / 5, atol=2e-5)  # 25 / 5
    two = Schema({"v": Vector(2, norm=1.0), "w": Vector(2, norm=1.0), "z": Numeric(-1, 1)}, intercept=0)
    table = pa.table({"v": vector_array([[2.0, 0.0]]), "w": vector_array([[0.0, 8.0]]), "z": [1.0]})
    row = summed_rows(two, table)[0] * two.row_norm
    np.testing.assert_allclose(row, [0.25, 0, 0, 1, 0.125], atol=2e-5)


def test_maps_give_back_the_users_units():
    schema = SCHEMAS["bounds"]
    values = [0.5, 2.0, -100.0, 1.0]
    row = encode_arrays(schema, np.array([values[:3]]), np.array(values[3:]))[0] * schema.row_norm
    centre, scale = schema.units.centres, schema.units.scales
    assert centre + scale * row == pytest.approx([*values, 1.0], rel=1e-4)
    assert row[4] == schema.rounded_intercept == pytest.approx(1, abs=2**-20 * schema.row_norm)


@every_schema
def test_plain_rows_are_neither_clipped_nor_rounded(schema):
    """What predictions are made of: the map to encoded units alone, clipped where entries have bounds."""
    X, Y = arrays(schema, 50)
    names = [name for name in schema.columns if name != "X"]
    table = pa.table({"X": vector_array(X), **dict(zip(names, Y.T, strict=True))})
    centre, scale = schema.units.centres, schema.units.scales
    values = np.column_stack([X, Y] + [np.ones(50)] * bool(schema.intercept))
    expected = (values - centre) / scale
    if schema.intercept:
        expected[:, -1] = schema.intercept
    weights = [schema.columns[c.source].weight if c.source else schema.intercept for c in schema.encoded]
    clipped = np.clip(expected, -np.array(weights), weights)
    clipped = clipped if schema.columns["X"].bounded else np.hstack([expected[:, :3], clipped[:, 3:]])
    np.testing.assert_allclose(plain_rows(schema, table), clipped, rtol=1e-12, atol=1e-15)


# -- no row is longer than 1 -------------------------------------------------------------------------------------
@PROPERTY
@given(schemas)
def test_no_row_that_is_summed_is_longer_than_one(schema):
    assert max(squared_lengths(summed_rows(schema, corner_rows(schema)))) <= 2**40


@pytest.mark.slow
@settings(max_examples=120)
@given(schemas)
def test_the_longest_row_over_the_corners_is_the_bound(schema):
    """In integers it never exceeds 1, and rounding each of m entries costs less than √m units of 2⁻²⁰."""
    schema = Schema(schema.columns, intercept=schema.intercept)  # a smaller max_row_norm is its own test
    longest = max(squared_lengths(summed_rows(schema, corner_rows(schema))))
    assert longest <= 2**40
    assert math.sqrt(longest) >= 2**20 * (1 - 1e-6) - 2 * math.sqrt(schema.n_columns) - 2


@pytest.mark.slow
@settings(max_examples=120)
@given(schemas)
def test_a_bound_of_the_row_is_reached_by_all_that_are_longer(schema):
    """A row that is longer than ``max_row_norm`` is as long as that when it is summed up."""
    implied = Schema(schema.columns, intercept=schema.intercept)
    bounded = Schema(schema.columns, intercept=schema.intercept, max_row_norm=implied.row_norm * 0.5)
    rows = corner_rows(schema)
    before, after = squared_lengths(summed_rows(implied, rows)), squared_lengths(summed_rows(bounded, rows))
    reached = [b for a, b in zip(before, after, strict=True) if math.sqrt(a) > 0.51 * 2**20]
    assert max(after) <= 2**40
    assert math.sqrt(min(reached)) >= 2**20 * (1 - 1e-6) - 4 * math.sqrt(schema.n_columns) - 4


@pytest.mark.slow
@every_schema
@PROPERTY
@given(data=st.data())
def test_no_row_of_arrays_is_longer_than_one(schema, data):
    reals = st.floats(allow_nan=False, allow_infinity=False, width=64)
    X = data.draw(hnp.arrays(np.float64, (5, 3), elements=reals))
    Y = data.draw(hnp.arrays(np.float64, (5, targets(schema)), elements=reals))
    rows = encode_arrays(schema, X, Y)
    assert np.array_equal(rows * 2**20, np.trunc(rows * 2**20))
    assert max(squared_lengths(rows)) <= 2**40
    squared = schema.columns["X"].squared_norm / Fraction(schema.row_norm) ** 2 * 2**40
    assert max(squared_lengths(rows[:, :3])) <= squared


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 7, 100, 5000])
@pytest.mark.parametrize("ulps", [-1, 0, 1, 4])
@pytest.mark.parametrize("norm", [1.0, 0.1, 3.0, 1e-80, 1e80])
def test_rows_at_the_bound_are_not_longer_than_one(d, ulps, norm):
    rng = np.random.default_rng(d)
    schema = Schema({"X": Vector(d, norm=norm), "y": Y}, intercept=0)
    X = rng.standard_normal((20, d))
    X[0, 1:] = 0  # along one axis
    X *= norm * (1 + ulps * 2.0**-52) / np.linalg.norm(X, axis=1)[:, np.newaxis]
    rows = encode_arrays(schema, X, np.full(20, 3.0))
    assert max(squared_lengths(rows)) <= 2**40
    assert np.linalg.norm(rows, axis=1).min() > 1 - 1e-4


def test_corners_of_the_bounds_reach_the_declared_norm_and_no_further():
    schema = SCHEMAS["bounds"]
    corners = np.array(list(itertools.product(*BOUNDS, (-2.0, 3.0))))
    squares = squared_lengths(encode_arrays(schema, corners[:, :3], corners[:, 3]))
    assert max(squares) <= 2**40
    assert min(squares) > (1 - 1e-5) * 2**40
    assert schema.row_norm == pytest.approx(math.sqrt(3 + 1 + 0.25), rel=1e-15)


# -- each row by itself, by both doors ---------------------------------------------------------------------------
@every_schema
def test_a_row_of_arrays_is_encoded_alike_among_any_others(schema):
    X, Y = arrays(schema, 300)
    X[::7] *= 1e200
    alone = np.vstack([encode_arrays(schema, X[i : i + 1], Y[i : i + 1]) for i in range(len(X))])
    assert np.array_equal(encode_arrays(schema, X, Y), alone)


@pytest.mark.slow
@settings(max_examples=120)
@given(schemas, st.integers(0, 2**32 - 1))
def test_a_row_of_a_table_is_encoded_alike_among_any_others(schema, seed):
    rows = corner_rows(schema)
    chosen = np.random.default_rng(seed).choice(rows.num_rows, min(rows.num_rows, 12), replace=False)
    rows = rows.take(pa.array(chosen))
    alone = np.vstack([summed_rows(schema, rows.slice(i, 1)) for i in range(rows.num_rows)])
    assert np.array_equal(summed_rows(schema, rows), alone)


@pytest.mark.parametrize("max_row_norm", [1.0, 2.0**-8, 2.0**-13, 2.0**-60])
def test_a_vector_far_beyond_the_bound_of_the_row_is_encoded_alike_among_any_others(max_row_norm):
    """Squares of such a vector may be more than floats hold exactly: only the bound of the row is looked at then."""
    schema = Schema({"v": Vector(3, norm=1.0), "z": Numeric(-1, 1)}, max_row_norm=max_row_norm)
    rng = np.random.default_rng(0)
    entries = np.vstack([rng.uniform(-0.5, 0.5, (200, 3)), 100 * rng.standard_normal((20, 3))])
    rows = pa.table({"v": vector_array(entries), "z": rng.uniform(-1, 1, 220)})
    alone = np.vstack([summed_rows(schema, rows.slice(i, 1)) for i in range(220)])
    assert np.array_equal(summed_rows(schema, rows), alone)
    assert max(squared_lengths(alone)) <= 2**40


@every_schema
@pytest.mark.parametrize("size", [1.0, 1e16, 1e200, 1e305])
def test_arrays_and_tables_have_the_same_rows(schema, size):
    X, Y = arrays(schema, 300)
    X[::5] *= size
    names = [name for name in schema.columns if name != "X"]
    table = pa.table({"X": vector_array(X), **dict(zip(names, Y.T, strict=True))})
    assert np.array_equal(encode_arrays(schema, X, Y), summed_rows(schema, table))


def test_finish_is_idempotent():
    """Rows that are whole and short enough are left alone."""
    schema = SCHEMAS["bounds, norm"]
    X, Y = arrays(schema, 100)
    rows = encode_arrays(schema, X, Y) * 2**20
    again = rows.copy()
    BlockEncoder.of(schema).finish(again)
    assert np.array_equal(rows, again)


def test_gram_of_one_row_is_its_square():
    schema = SCHEMAS["two targets"]
    X, Y = arrays(schema, 1)
    row = encode_arrays(schema, X, Y)
    assert np.array_equal(exact_gram(row), np.outer(*[[int(v) for v in row[0] * 2**20]] * 2))


# -- what arrays may be ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Schema({"a": [0, 1]}), "one Vector followed by numeric columns"),
        (Schema({"X": Vector(2, norm=1), "c": {"levels": ["a"]}}), "one Vector followed by numeric columns"),
        (Schema({"X": Vector(2, norm=1), "w": Vector(2, norm=1)}), "one Vector followed by numeric columns"),
        (Schema({"y": [0, 1], "X": Vector(2, norm=1)}), "one Vector followed by numeric columns"),
        (Schema({"X": Vector(2, norm=1)}, max_row_norm=0.5), "do not support max_row_norm"),
    ],
)
def test_arrays_are_for_one_vector_and_numbers(schema, words):
    with pytest.raises(ValueError, match=words):
        encode_arrays(schema, np.zeros((1, 2)), np.zeros(1))


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.zeros((3, 2)), np.zeros(3), "X must be two-dimensional with 3 column"),
        (np.zeros(3), np.zeros(3), "X must be two-dimensional with 3 column"),
        (np.zeros((3, 3)), np.zeros((3, 2)), "y must be two-dimensional with 1 column"),
        (np.zeros((3, 3)), None, "y must be two-dimensional with 1 column"),
        (np.zeros((3, 3)), np.zeros(4), "same number of rows"),
        (np.zeros((3, 3), dtype=object), np.zeros(3), "X must hold real numbers, got dtype object"),
        (np.zeros((3, 3)), np.array(["a"] * 3), "y must hold real numbers"),
        (np.zeros((3, 3), dtype=complex), np.zeros(3), "X must hold real numbers"),
    ],
)
def test_arrays_are_checked(X, y, words):
    with pytest.raises(ValueError, match=words):
        encode_arrays(SCHEMAS["norm"], X, y)


@pytest.mark.parametrize(
    "columns",
    [
        {"A": {"size": 2, "norm": 1.0, "weight": 1e-7}, "B": {"size": 2, "norm": 1.0}},
        {"A": {"size": 2, "lower": -1, "upper": 1, "norm": 1e-7}, "B": {"size": 2, "norm": 1.0}},
        {"a": {"lower": 0, "upper": 1, "weight": 1e-9}, "b": [0, 1]},
    ],
)
def test_a_column_that_rounds_to_nothing_is_refused(columns):
    """A vector of no units shortened its rows by a factor of zero, and zero times a huge entry erased a block."""
    with pytest.raises(ValueError, match=r"must be at least 2\*\*-20 times the row norm"):
        Schema.of(columns)


@pytest.mark.filterwarnings("error")
def test_huge_entries_of_a_vector_make_no_warning():
    table = {"X": np.array([[1e200, 0.0], [0.1, 0.2]]), "y": np.array([0.1, 0.2])}
    Moments.of(table, {"X": {"size": 2, "norm": 1.0}, "y": [0, 1]})


@pytest.mark.parametrize("d", [1, 7, 300])
@pytest.mark.parametrize("size", [2.0**21, 2.0**25, 2.0**60, 2.0**400])
def test_clipped_rows_have_the_weight_that_is_documented(d, size):
    """Against the norm of the entries before they are rounded, by exact arithmetic."""
    rng, limit = np.random.default_rng(d), 2.0**38
    rows = rng.uniform(-size, size, (20, d))
    rows[:, 0] = size
    part = np.trunc(rows)
    squares = squared_norms_of(part)
    near = bool((squares < 2.0**53).all())
    factors = clip_vectors(part, squares, limit)
    most = math.sqrt(d) / math.sqrt(limit) if near else d * 2.0**-24
    for row, factor, short in zip(rows.tolist(), factors.tolist(), part.tolist(), strict=True):
        square = Fraction(factor) ** 2 * sum(Fraction(x) ** 2 for x in row) / Fraction(limit)
        assert (1 - 2.0**-31) ** 2 <= square <= (1 + most) ** 2
        assert sum(Fraction(x) ** 2 for x in short) <= limit
