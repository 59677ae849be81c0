"""Sums: exact integers, blind to how the rows arrive, by arrays and by tables; BLAS's threads are restored."""

from __future__ import annotations

import itertools
import math
import threading
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from array_tables import SCHEMAS, Y, arrays, integers, same_bits
from declared_schemas import vector_array
from encoded_rows import exact_gram
from gaussmix.data import gram
from gaussmix.data.columns import Vector
from gaussmix.data.encode import EXACT_ROWS, encode_arrays
from gaussmix.data.gram import Gram, blas_threads, one_blas_thread
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema

every_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())


def as_table(schema, X, Y):
    """The same rows as a table with a column of vectors."""
    names = [name for name in schema.columns if name != "X"]
    return pa.table({"X": vector_array(X), **dict(zip(names, np.asarray(Y, float).reshape(len(X), -1).T, strict=True))})


# -- exact -------------------------------------------------------------------------------------------------------
@every_schema
def test_gram_is_exact(schema):
    X, Y = arrays(schema, 1000)
    sums = Moments.of_arrays([(X, Y)], schema)
    exact = exact_gram(encode_arrays(schema, X, Y))
    assert np.array_equal(integers(sums), exact)
    rounded = np.vectorize(lambda v: float(Fraction(v, 2**40)))(exact)  # float() of a fraction rounds once
    assert np.array_equal(sums.gram(), rounded)


@every_schema
def test_removing_a_row_changes_the_gram_by_its_square_exactly(schema):
    X, Y = arrays(schema, 500)
    rows = encode_arrays(schema, X, Y)
    for build in (
        lambda X, Y: Moments.of_arrays([(X, Y)], schema),
        lambda X, Y: Moments.of(as_table(schema, X, Y), schema),
    ):
        whole = integers(build(X, Y))
        for i in (0, 17, 499):
            rest = build(np.delete(X, i, axis=0), np.delete(Y, i, axis=0))
            assert np.array_equal(whole - integers(rest), exact_gram(rows[i : i + 1]))


def test_longest_rows_fill_a_block_without_rounding():
    schema = Schema({"X": Vector(1, norm=1.0)}, intercept=0)
    X = np.ones((EXACT_ROWS, 1))
    X[1::2] = 1 - 2.0**-20
    expected = EXACT_ROWS // 2 * (2**40 + (2**20 - 1) ** 2)
    assert integers(Moments.of_arrays([(X, None)], schema))[0, 0] == expected
    assert integers(Moments.of(as_table(schema, X, np.empty((len(X), 0))), schema))[0, 0] == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_carry_far_beyond_64_bits(monkeypatch, threads):
    monkeypatch.setattr(gram, "FLUSHES_PER_CARRY", 2)
    schema = Schema({"X": Vector(2, norm=1.0)}, intercept=0)
    X = np.tile([[0.6, -0.8]], (9 * EXACT_ROWS, 1))
    part = Moments.of_arrays([(X, None)], schema, threads=threads)
    assert np.array_equal(integers(part), exact_gram(encode_arrays(schema, X[:1])) * len(X))
    assert same_bits(part, Moments.of(as_table(schema, X, np.empty((len(X), 0))), schema))
    total = part
    for _ in range(30):  # 2**45 rows
        total = total + Moments(total.sums(), schema, frozenset())
    assert np.array_equal(integers(total), integers(part) * 2**30)
    assert total.gram() == pytest.approx(part.gram() * 2**30, rel=1e-15)


# -- blind to how rows arrive ------------------------------------------------------------------------------------
@pytest.mark.slow
@every_schema
@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 3),
)
def test_blocks_threads_and_merge_order_leave_no_trace(schema, cuts, threads, seed):
    X, Y = arrays(schema, 9000, seed=seed)
    whole = Moments.of_arrays([(X, Y)], schema, threads=1)
    edges = [0, *sorted(cuts), 9000]
    blocks = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(edges)]
    assert same_bits(whole, Moments.of_arrays(blocks, schema, threads=threads))
    parts = [Moments.of_arrays([block], schema) for block in blocks]
    order = np.random.default_rng(seed).permutation(len(parts))
    assert same_bits(whole, sum((parts[i] for i in order), Moments.empty(schema)))


@pytest.mark.slow
@every_schema
@settings(max_examples=15)
@given(
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    threads=st.sampled_from([1, 2, 3]),
    size=st.sampled_from([1.0, 1e16, 1e200, 1e305]),
    seed=st.integers(0, 3),
)
def test_arrays_and_tables_give_the_same_bits(schema, cuts, threads, size, seed):
    """A column of vectors is the array, however far rows are beyond the norm and however they are cut."""
    X, Y = arrays(schema, 9000, seed=seed)
    X[::11] *= size
    by_arrays = Moments.of_arrays([(X, Y)], schema, threads=threads)
    table = as_table(schema, X, Y)
    assert same_bits(by_arrays, Moments.of(table, schema))
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise([0, *sorted(cuts), 9000])]
    assert same_bits(by_arrays, Moments.of(parts, schema))
    batches = (batch for part in parts for batch in part.to_batches(max_chunksize=1000))
    sums = gram.aggregate_batches(batches, schema, Gram(), threads=threads)
    assert np.array_equal(sums.high, by_arrays.sums().high)
    assert np.array_equal(sums.low, by_arrays.sums().low)
    assert sums.n == 9000


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 70])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("bounded", [True, False])
def test_dtype_and_memory_order_leave_no_trace(d, threads, bounded):
    rng = np.random.default_rng(d)
    n = 5 * EXACT_ROWS + 17
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = rng.standard_normal(n).astype(np.float32)
    X[::50] *= 30
    X[::500] *= 1e30
    declared = {"lower": -2.0, "upper": 1.7} if bounded else {}
    vector = Vector(d, norm=(0.6 if bounded else 1.1) * math.sqrt(d), **declared)
    schema = Schema({"X": vector, "y": Y}, intercept=0)
    reference = Moments.of_arrays([(X.astype(np.float64), y.astype(np.float64))], schema, threads=1)
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
        assert same_bits(reference, Moments.of_arrays([(version, y)], schema, threads=threads)), name
        assert same_bits(reference, Moments.of({"X": version, "y": y}, schema)), name


@pytest.mark.parametrize("size", [1e200, 1e308])
@pytest.mark.parametrize("norm", [1e-80, 1.0, 1e80])
@pytest.mark.parametrize("d", [1, 5, 300])
def test_rows_far_beyond_the_norm_have_the_same_bits_by_both_doors(size, norm, d):
    rng = np.random.default_rng(d)
    X = rng.uniform(-1, 1, (200, d))
    X[::3] *= size
    y = rng.uniform(-2, 3, 200)
    schema = Schema({"X": Vector(d, norm=norm), "y": Y})
    reference = Moments.of_arrays([(X, y)], schema, threads=1)
    for order in "CF":
        version = np.array(X, order=order)
        for threads in (1, 2):
            assert same_bits(reference, Moments.of_arrays([(version, y)], schema, threads=threads))
        assert same_bits(reference, Moments.of({"X": version, "y": y}, schema))
    if d < 100:
        assert np.array_equal(integers(reference), exact_gram(encode_arrays(schema, X, y)))


def test_the_size_of_a_block_leaves_no_trace(monkeypatch):
    schema = SCHEMAS["bounds, norm"]
    X, Y = arrays(schema, 5000)
    reference = Moments.of_arrays([(X, Y)], schema)
    for size in (1, 100, 3000):
        monkeypatch.setattr(gram, "_ARRAY_BYTES", size)
        monkeypatch.setattr(gram, "_COLUMN_BYTES", size)
        monkeypatch.setattr(gram, "_LEAST_BATCH_ROWS", 7)
        assert same_bits(reference, Moments.of_arrays([(X, Y)], schema))
        assert same_bits(reference, Moments.of(as_table(schema, X, Y), schema))


def test_integers_and_booleans_are_numbers():
    schema = Schema({"X": Vector(2, lower=0, upper=(5.0, 1.0))}, intercept=0)
    X = np.array([[1, 0], [5, 1], [3, 1]])
    reference = Moments.of_arrays([(X.astype(float), None)], schema)
    for version in (X, X.astype(np.uint8)):
        assert same_bits(reference, Moments.of_arrays([(version, None)], schema))
        assert same_bits(reference, Moments.of({"X": version}, schema))
    truths = Schema({"X": Vector(2, lower=0, upper=1)}, intercept=0)
    assert same_bits(
        Moments.of_arrays([(X > 2, None)], truths), Moments.of_arrays([((X > 2).astype(float), None)], truths)
    )


def test_empty_tables_and_an_iterator_that_reuses_its_buffer():
    schema = SCHEMAS["bounds"]
    empty = Moments.of_arrays([], schema)
    assert same_bits(empty, Moments.empty(schema))
    assert same_bits(empty, Moments.of_arrays([(np.empty((0, 3)), np.empty(0))], schema))
    X, Y = arrays(schema, 30_000)

    def reused():
        buffer = np.empty((10_000, 3))
        for start in range(0, 30_000, 10_000):
            buffer[:] = X[start : start + 10_000]
            yield buffer, Y[start : start + 10_000]
            buffer[:] = np.nan

    assert same_bits(Moments.of_arrays([(X, Y)], schema), Moments.of_arrays(reused(), schema, threads=3))


# -- bad rows ----------------------------------------------------------------------------------------------------
@every_schema
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("threads", [1, 2])
def test_nan_and_infinity_are_errors_that_tell_nothing(schema, bad, order, threads):
    X, Y = arrays(schema, 4 * EXACT_ROWS)
    X[8191, 1] = bad
    with pytest.raises(ValueError, match="X contains NaN or infinite values") as error:
        Moments.of_arrays([(np.asarray(X, order=order), Y)], schema, threads=threads)
    assert not any(character.isdigit() for character in str(error.value))
    with pytest.raises(ValueError, match="Column 'X' has missing, NaN or infinite values") as error:
        Moments.of(as_table(schema, X, Y), schema)
    assert not any(character.isdigit() for character in str(error.value))
    X, Y = arrays(schema, 10)
    if Y.shape[1]:
        Y[3, -1] = bad
        with pytest.raises(ValueError, match="y contains NaN or infinite values"):
            Moments.of_arrays([(X, Y)], schema)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_checked(threads):
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Moments.of_arrays([arrays(SCHEMAS["norm"], 5)], SCHEMAS["norm"], threads=threads)


def test_an_error_in_one_thread_stops_the_pass():
    schema = Schema({"X": Vector(2, norm=1.0)})

    def parts():
        for i in range(1000):
            assert i < 100, "the others went on"
            yield pa.record_batch({"X": vector_array([[0.0, math.nan if i == 3 else 0.0]])})

    with pytest.raises(ValueError, match="Column 'X' has missing"):
        gram.aggregate_batches(parts(), schema, Gram(), threads=3)


def current():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def test_overlapping_limits():
    """The first to come is the first to go: what it found is restored by the last one, and only by it."""
    with threadpool_limits(4, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert (current(), blas_threads()) == (1, 4)
        first.__exit__(None, None, None)
        assert current() == 1
        second.__exit__(None, None, None)
        assert current() == 4


def test_overlapping_builds():
    """A build that ends while another is going on leaves BLAS with one thread; the last one restores its threads."""
    schema, batch, found = Schema.of({"a": [0, 1]}), pa.record_batch({"a": [0.5]}), []

    def batches():
        yield batch
        gram.aggregate_batches([batch], schema, Gram(), threads=2)
        found.append((current(), blas_threads()))

    with threadpool_limits(4, user_api="blas"):
        gram.aggregate_batches(batches(), schema, Gram(), threads=2)
        assert found == [(1, 4)]
        assert current() == 4


def test_eight_builds_at_once(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i in range(8):
        pq.write_table(pa.table({"a": np.random.default_rng(i).random(30_000)}), tmp_path / f"{i}.parquet")
    with threadpool_limits(4, user_api="blas"):
        for _ in range(5):
            start = threading.Barrier(8)

            def build(i, start=start):
                start.wait()
                Moments.of(tmp_path / f"{i}.parquet", {"a": [0, 1]})

            threads = [threading.Thread(target=build, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert current() == 4


def test_a_build_that_fails_restores_too():
    with threadpool_limits(4, user_api="blas"):
        try:
            with one_blas_thread():
                raise KeyError
        except KeyError:
            pass
        assert current() == 4
