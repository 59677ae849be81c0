"""Moments: exact, mergeable, blind to how the rows arrive; no row longer than 1."""

import copy
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gaussmix import moments
from gaussmix.encoding import EXACT_ROWS, RowEncoder
from gaussmix.moments import Moments, accumulate

PROPERTY = settings(derandomize=True, deadline=None, max_examples=60)
TARGET = {"target_bounds": ((-2.0, 3.0),), "target_weights": (0.5,)}
BOUNDS = ((-1.0, 1.0), (0.0, 10.0), (-300.0, 5.0))
ENCODERS = {
    "norm": RowEncoder(3, data_norm=2.5, **TARGET),
    "norm, intercept": RowEncoder(3, data_norm=2.5, intercept=0.7, **TARGET),
    "norm, no target": RowEncoder(3, data_norm=0.3),
    "bounds": RowEncoder(3, feature_bounds=BOUNDS, intercept=1.0, **TARGET),
    "bounds, norm": RowEncoder(3, feature_bounds=BOUNDS, data_norm=1.1, intercept=1.0, **TARGET),
    "bounds, tiny norm": RowEncoder(3, feature_bounds=BOUNDS, data_norm=1e-6),
    "two targets": RowEncoder(
        3,
        feature_bounds=BOUNDS,
        data_norm=1.0,
        target_bounds=((-1.0, 1.0), (0.0, 5.0)),
        target_weights=(0.25, 2.0),
    ),
}
every_encoder = pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS.keys())


def table(encoder, n, *, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, encoder.n_features)) * rng.choice([0.01, 1.0, 100.0], (n, 1))
    return X, rng.uniform(-4, 4, (n, encoder.n_targets))


def integers(m):
    """The Gram matrix in units of 2**-40, in Python's integers."""
    return m._high.astype(object) * 2**40 + m._low.astype(object)


def same_bits(a, b):
    return np.array_equal(a._high, b._high) and np.array_equal(a._low, b._low) and a._n == b._n


def exact_gram(rows):
    """Of encoded rows, in Python's integers."""
    whole = np.vectorize(int, otypes=[object])(rows * 2**20)
    return whole.T @ whole


def mapped_exactly(encoder, x, y):
    """Encoded row before rounding, by its definition in rationals (roots to 60 digits); was it too long?"""
    squared_c = Fraction(encoder.x_norm) ** 2 + sum(
        Fraction(w) ** 2 for w in (encoder.intercept, *encoder.target_weights)
    )
    if encoder.feature_bounds is None:
        features = [Fraction(v) / Fraction(encoder.data_norm) for v in x]
    else:
        features = [to_unit(v, *bounds) for v, bounds in zip(x, encoder.feature_bounds, strict=True)]
    targets = [
        Fraction(w) * to_unit(v, *bounds)
        for v, bounds, w in zip(y, encoder.target_bounds, encoder.target_weights, strict=True)
    ]
    row = features + [Fraction(encoder.intercept)] * (encoder.intercept != 0) + targets
    norm = root(sum(v**2 for v in features))
    long = norm > Fraction(encoder.x_norm)
    factor = Fraction(encoder.x_norm) / norm if long else 1
    return [v * factor / root(squared_c) for v in row], long


def to_unit(value, lower, upper):
    lower, upper = Fraction(lower), Fraction(upper)
    return max(Fraction(-1), min(Fraction(1), (2 * Fraction(value) - lower - upper) / (upper - lower)))


def root(value):
    return Fraction(math.isqrt(int(Fraction(value) * 10**120)), 10**60)


# Encoding


@every_encoder
def test_encoding_is_its_definition_up_to_the_rounding(encoder):
    X, Y = table(encoder, 200)
    encoded = encoder.encode(X, Y)
    for row, x, y in zip(encoded, X, Y, strict=True):
        exact_row, long = mapped_exactly(encoder, x, y)
        for got, exact in zip(row, exact_row, strict=True):
            error = abs(Fraction(got) - exact) * 2**20
            if long:  # rounded twice, and by the norm of the rounded features
                assert error < 2 + math.sqrt(encoder.n_features)
            else:  # towards zero
                assert abs(Fraction(got)) <= abs(exact) * (1 + Fraction(1, 2**50))
                assert error < 1 + Fraction(1, 2**20)


@every_encoder
@PROPERTY
@given(data=st.data())
def test_no_row_is_longer_than_one(encoder, data):
    reals = st.floats(allow_nan=False, allow_infinity=False, width=64)
    X = data.draw(hnp.arrays(np.float64, (5, 3), elements=reals))
    Y = data.draw(hnp.arrays(np.float64, (5, encoder.n_targets), elements=reals))
    rows = encoder.encode(X, Y)
    assert np.array_equal(rows * 2**20, np.trunc(rows * 2**20))
    assert all(value <= 2**40 for value in np.diagonal(exact_gram(rows.T)))
    features = exact_gram(rows[:, :3].T)
    squared = Fraction(encoder.x_norm) ** 2 / encoder._squared_row_norm * 2**40
    assert all(value <= squared for value in np.diagonal(features))


@pytest.mark.parametrize("d", [1, 2, 3, 7, 100, 5000])
@pytest.mark.parametrize("ulps", [-1, 0, 1, 4])
@pytest.mark.parametrize("norm", [1.0, 0.1, 3.0, 1e-80, 1e80])
def test_rows_at_the_bound_are_not_longer_than_one(d, ulps, norm):
    rng = np.random.default_rng(d)
    encoder = RowEncoder(d, data_norm=norm, **TARGET)
    X = rng.standard_normal((20, d))
    X[0, 1:] = 0  # along one axis
    X *= norm * (1 + ulps * 2.0**-52) / np.linalg.norm(X, axis=1)[:, np.newaxis]
    rows = encoder.encode(X, np.full(20, 3.0))
    assert max(np.diagonal(exact_gram(rows.T))) <= 2**40
    assert np.linalg.norm(rows, axis=1).min() > 1 - 1e-4


def test_corners_of_the_bounds_reach_the_declared_norm_and_no_further():
    encoder = ENCODERS["bounds"]
    corners = np.array(list(itertools.product(*BOUNDS, (-2.0, 3.0))))
    rows = encoder.encode(corners[:, :3], corners[:, 3])
    squares = np.diagonal(exact_gram(rows.T))
    assert max(squares) <= 2**40
    assert min(squares) > (1 - 1e-5) * 2**40
    assert encoder.row_norm == pytest.approx(math.sqrt(3 + 1 + 0.25), rel=1e-15)


@pytest.mark.parametrize("size", [1e3, 1e16, 1e155, 1e300, 1.7e308])
def test_long_rows_keep_their_linear_relation(size):
    encoder = RowEncoder(2, data_norm=1.0, intercept=0.5)
    row = encoder.encode(np.array([[0.6 * size, 0.8 * size]]))[0] * encoder.row_norm
    if size < 1e90:
        assert row[:2] == pytest.approx([0.6, 0.8], abs=1e-5)
    assert row[2] == pytest.approx(0.5 / size, abs=1e-5)
    assert np.linalg.norm(row[:2]) <= 1


def test_a_row_is_encoded_alike_among_any_others():
    for encoder in ENCODERS.values():
        X, Y = table(encoder, 300)
        X[::7] *= 1e200
        alone = np.vstack([encoder.encode(X[i : i + 1], Y[i : i + 1]) for i in range(len(X))])
        assert np.array_equal(encoder.encode(X, Y), alone)


def test_maps_give_back_the_users_units():
    encoder = ENCODERS["bounds"]
    X, y = np.array([[0.5, 2.0, -100.0]]), np.array([1.0])
    row = encoder.encode(X, y)[0]
    centre, scale = encoder.feature_map
    assert centre + scale * encoder.row_norm * row[:3] == pytest.approx(X[0], rel=1e-4)
    centre, scale = encoder.target_map
    assert centre + scale * encoder.row_norm * row[4:] == pytest.approx(y, rel=1e-4)
    assert row[3] == encoder.encoded_intercept == pytest.approx(1 / encoder.row_norm, abs=2**-20)


# Sums


@every_encoder
def test_gram_is_exact(encoder):
    X, Y = table(encoder, 1000)
    sums = accumulate([(X, Y)], encoder)
    exact = exact_gram(encoder.encode(X, Y))
    assert np.array_equal(integers(sums), exact)
    rounded = np.vectorize(lambda v: float(Fraction(v, 2**40)))(exact)  # float() of a fraction rounds once
    assert np.array_equal(sums.gram(), rounded)


@every_encoder
def test_removing_a_row_changes_the_gram_by_its_square_exactly(encoder):
    X, Y = table(encoder, 500)
    whole = accumulate([(X, Y)], encoder)
    rows = encoder.encode(X, Y)
    for i in (0, 17, 499):
        rest = accumulate([(np.delete(X, i, axis=0), np.delete(Y, i, axis=0))], encoder)
        assert np.array_equal(integers(whole) - integers(rest), exact_gram(rows[i : i + 1]))


@every_encoder
@PROPERTY
@given(
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 3),
)
def test_blocks_threads_and_merge_order_leave_no_trace(encoder, cuts, threads, seed):
    X, Y = table(encoder, 9000, seed=seed)
    whole = accumulate([(X, Y)], encoder, threads=1)
    edges = [0, *sorted(cuts), 9000]
    blocks = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(edges)]
    assert same_bits(whole, accumulate(blocks, encoder, threads=threads))
    parts = [accumulate([block], encoder) for block in blocks]
    order = np.random.default_rng(seed).permutation(len(parts))
    assert same_bits(whole, sum((parts[i] for i in order), Moments.empty(encoder)))


@pytest.mark.parametrize("d", [3, 70])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("bounded", [True, False])
def test_dtype_and_memory_order_leave_no_trace(d, threads, bounded):
    rng = np.random.default_rng(d)
    n = 5 * EXACT_ROWS + 17
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = rng.standard_normal(n).astype(np.float32)
    X[::50] *= 30
    declared = {"feature_bounds": ((-2.0, 1.7),) * d} if bounded else {}
    encoder = RowEncoder(d, data_norm=1.1 * math.sqrt(d) if not bounded else 0.6 * math.sqrt(d), **declared, **TARGET)
    reference = accumulate([(X.astype(np.float64), y.astype(np.float64))], encoder, threads=1)
    wide = np.zeros((2 * n, 3 * d))
    wide[::2, ::3] = X
    versions = {
        "float32": X,
        "F order": np.asfortranarray(X.astype(np.float64)),
        "F order, float32": np.asfortranarray(X),
        "strided": wide[::2, ::3],
        "reversed": X[:, ::-1].copy()[:, ::-1],
        "big endian": X.astype(">f8"),
        "long double": X.astype(np.longdouble),
    }
    for name, version in versions.items():
        assert same_bits(reference, accumulate([(version, y)], encoder, threads=threads)), name


def test_integers_and_booleans_are_numbers():
    encoder = RowEncoder(2, feature_bounds=((0.0, 5.0), (0.0, 1.0)))
    X = np.array([[1, 0], [5, 1], [3, 1]])
    reference = accumulate([(X.astype(float), None)], encoder)
    assert same_bits(reference, accumulate([(X, None)], encoder))
    assert same_bits(reference, accumulate([(X.astype(np.uint8), None)], encoder))


def test_longest_rows_fill_a_block_without_rounding():
    encoder = RowEncoder(1, data_norm=1.0)
    X = np.ones((EXACT_ROWS, 1))
    X[1::2] = 1 - 2.0**-20
    assert integers(accumulate([(X, None)], encoder))[0, 0] == EXACT_ROWS // 2 * (2**40 + (2**20 - 1) ** 2)


def test_sums_carry_far_beyond_64_bits(monkeypatch):
    monkeypatch.setattr(moments, "_FLUSHES_PER_CARRY", 2)
    encoder = RowEncoder(2, data_norm=1.0)
    X = np.tile([[0.6, -0.8]], (9 * EXACT_ROWS, 1))
    part = accumulate([(X, None)], encoder)
    assert np.array_equal(integers(part), exact_gram(encoder.encode(X[:1])) * len(X))
    total = part
    for _ in range(30):  # 2**45 rows
        total = total + Moments(total._high, total._low, total._n, encoder, frozenset())
    assert np.array_equal(integers(total), integers(part) * 2**30)
    assert total.gram() == pytest.approx(part.gram() * 2**30, rel=1e-15)


def test_empty_tables_and_an_iterator_that_reuses_its_buffer():
    encoder = ENCODERS["bounds"]
    empty = accumulate([], encoder)
    assert same_bits(empty, Moments.empty(encoder))
    assert same_bits(empty, accumulate([(np.empty((0, 3)), np.empty(0))], encoder))
    X, Y = table(encoder, 30_000)

    def reused():
        buffer = np.empty((10_000, 3))
        for start in range(0, 30_000, 10_000):
            buffer[:] = X[start : start + 10_000]
            yield buffer, Y[start : start + 10_000]
            buffer[:] = np.nan

    assert same_bits(accumulate([(X, Y)], encoder), accumulate(reused(), encoder, threads=3))


# A value that is handed around


def test_a_part_is_merged_once():
    encoder = ENCODERS["norm"]
    a, b = (accumulate([table(encoder, 10, seed=seed)], encoder) for seed in range(2))
    assert a.parts != b.parts
    assert {len(bytes.fromhex(part)) for part in (a + b).parts} == {16}
    for again in (a, b, a + b, pickle.loads(pickle.dumps(a)), copy.deepcopy(b)):
        with pytest.raises(ValueError, match="half the protection"):
            (a + b) + again


def test_other_encodings_are_not_merged():
    X, Y = table(ENCODERS["norm"], 10)
    a = accumulate([(X, Y)], ENCODERS["norm"])
    with pytest.raises(ValueError, match="differently encoded"):
        a + accumulate([(X, Y)], RowEncoder(3, data_norm=2.6, **TARGET))
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError):
        a - a


def test_repr_shows_no_numbers_and_pickle_keeps_the_bits():
    encoder = ENCODERS["bounds"]
    sums = accumulate([table(encoder, 12_345)], encoder)
    assert repr(sums) == str(sums) == "Moments(5 columns, 1 parts, sensitive: no numbers shown)"
    back = pickle.loads(pickle.dumps(sums))
    assert same_bits(sums, back)
    assert back.encoder == encoder
    assert back.parts == sums.parts


# Bad input


@every_encoder
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("threads", [1, 2])
def test_nan_and_infinity_are_errors_that_tell_nothing(encoder, bad, order, threads):
    X, Y = table(encoder, 4 * EXACT_ROWS)
    X[8191, 1] = bad
    with pytest.raises(ValueError, match="X contains NaN or infinite values") as error:
        accumulate([(np.asarray(X, order=order), Y)], encoder, threads=threads)
    assert not any(character.isdigit() for character in str(error.value))
    X, Y = table(encoder, 10)
    if encoder.n_targets:
        Y[3, -1] = bad
        with pytest.raises(ValueError, match="y contains NaN or infinite values"):
            accumulate([(X, Y)], encoder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Declare bounds_X or data_norm"),
        ({"data_norm": 0.0}, "data_norm must be a finite number > 0"),
        ({"data_norm": math.inf}, "data_norm must be a finite number > 0"),
        ({"data_norm": math.nan}, "data_norm must be a finite number > 0"),
        ({"data_norm": 1.0, "intercept": -1.0}, "intercept must be a finite number > 0"),
        ({"feature_bounds": ((0.0, 1.0),)}, "one .* pair per column: 2 expected, got 1"),
        ({"feature_bounds": ((0.0, 1.0), (1.0, 0.0))}, "finite with lower < upper"),
        ({"feature_bounds": ((0.0, 1.0), (1.0, 1.0))}, "finite with lower < upper"),
        ({"feature_bounds": ((0.0, 1.0), (0.0, math.inf))}, "finite with lower < upper"),
        ({"data_norm": 1.0, "target_bounds": ((0.0, 1.0),)}, "bounds_y must have one"),
        (
            {"data_norm": 1.0, "target_bounds": ((0.0, 1.0),), "target_weights": (0.0,)},
            "target_weights must be",
        ),
    ],
)
def test_declarations_are_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        RowEncoder(2, **arguments)


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.zeros((3, 2)), np.zeros(3), "X must have 3 column"),
        (np.zeros(3), np.zeros(3), "X must have 3 column"),
        (np.zeros((3, 3)), np.zeros((3, 2)), "y must have 1 column"),
        (np.zeros((3, 3)), None, "y must have 1 column"),
        (np.zeros((3, 3)), np.zeros(4), "same number of rows"),
        (np.zeros((3, 3), dtype=object), np.zeros(3), "X must hold real numbers, got dtype object"),
        (np.zeros((3, 3)), np.array(["a"] * 3), "y must hold real numbers"),
        (np.zeros((3, 3), dtype=complex), np.zeros(3), "X must hold real numbers"),
    ],
)
def test_blocks_are_checked(X, y, words):
    with pytest.raises(ValueError, match=words):
        accumulate([(X, y)], ENCODERS["norm"])
