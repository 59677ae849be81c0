"""Integer transforms: the same bits wherever a row stands, and norms that cannot exceed the clip."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gaussmix.data.gram import NormCounts
from gaussmix.data.transforms import (
    ROW_UNIT,
    Transform,
    clip_norms,
    to_units,
)


def clipped_rows(transform: Transform, rows: np.ndarray, clip: float) -> np.ndarray:
    """Mapped rows as `MappedGram` sums them up."""
    z = np.trunc(transform.product(rows) * to_units(transform, clip))
    clip_norms(z, ROW_UNIT**2)
    return z


def counted(transform: Transform, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    aggregator = NormCounts([transform], [edges]).aggregator(rows.shape[1])
    aggregator.add(rows)
    return aggregator.result().counts[0]


def encoded_rows(n: int, m: int, seed: int) -> np.ndarray:
    """Integer rows of norm of at most 2²⁰, some as long as they may be, one of zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, m)) * rng.uniform(0.001, 1, m)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.choice([1.0, 3.0, 1e4], (n, 1))
    rows[0] = 0
    return np.trunc(rows * ROW_UNIT * (1 - 1e-9))


def ill_conditioned(m: int, seed: int, spread: float = 1e5) -> Transform:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((m, m)))[0]
    return Transform.nearest(Q * np.geomspace(1, spread, m)[:, None])


@pytest.mark.parametrize("m", [1, 2, 7, 130])
def test_products_are_exact_integers(m):
    transform, rows = ill_conditioned(m, 0), encoded_rows(6, m, 1)
    product = rows @ transform.integers.T
    for i, row in enumerate(rows):
        for j, direction in enumerate(transform.integers):
            assert int(product[i, j]) == sum(int(a) * int(b) for a, b in zip(row, direction, strict=True))
    assert np.abs(product).max() <= 2.0**52


def test_a_row_has_the_same_bits_in_every_block_and_layout():
    transform, rows = ill_conditioned(33, 2), encoded_rows(2_000, 33, 3)
    whole, clipped = transform.product(rows) * transform.scales, clipped_rows(transform, rows, 50.0)
    order = np.random.default_rng(0).permutation(len(rows))
    columns = np.asfortranarray(rows[order])
    assert (transform.product(columns) * transform.scales == whole[order]).all()
    assert (clipped_rows(transform, columns, 50.0) == clipped[order]).all()
    for i in (0, 1, 77):
        alone = rows[i : i + 1]
        assert ((transform.product(alone) * transform.scales)[0] == whole[i]).all()
        assert (clipped_rows(transform, alone, 50.0)[0] == clipped[i]).all()


def test_transform_is_near_and_states_what_it_does():
    wanted = np.linalg.qr(np.random.default_rng(1).standard_normal((40, 40)))[0] * np.geomspace(1e-6, 1e6, 40)[:, None]
    transform = Transform.nearest(wanted)
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    assert np.abs((transform.matrix - wanted) / lengths).max() < 2.0**-31
    rows = encoded_rows(50, 40, 5)
    stated = (rows / ROW_UNIT) @ transform.matrix.T
    assert np.allclose(transform.product(rows) * transform.scales / lengths.T, stated / lengths.T, atol=1e-14)
    assert (
        np.linalg.norm(transform.product(rows) * transform.scales, axis=1) ** 2 <= transform.largest_squared_norm
    ).all()


@pytest.mark.parametrize("clip", [1e-9, 0.3, 50.0, 1e7])
@pytest.mark.parametrize("m", [1, 3, 64, 200])
def test_clipped_norms_never_exceed_the_bound_in_exact_integers(m, clip):
    rows = clipped_rows(ill_conditioned(m, m), encoded_rows(300, m, 9), clip)
    assert (np.trunc(rows) == rows).all()
    for row in rows:
        assert sum(int(entry) ** 2 for entry in row) <= 2**40


@pytest.mark.parametrize("m", [1, 2, 13, 40])
def test_a_triangular_transform_keeps_lengths_with_half_the_numbers(m):
    transform, rows = ill_conditioned(m, m), encoded_rows(200, m, m)
    same = transform.triangular()
    assert (np.tril(same.integers, -1) == 0).all()
    assert (np.diagonal(same.integers) > 0).all()
    lengths, expected = (np.linalg.norm(one.product(rows) * one.scales, axis=1) for one in (same, transform))
    assert np.allclose(lengths, expected, rtol=1e-6)
    shape, wanted = (np.linalg.inv(one.matrix.T @ one.matrix) for one in (same, transform))
    assert np.allclose(shape, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_rows_at_the_bound_are_not_wasted():
    rows = np.array([[0.003, 0.004], [0.3, 0.4], [0.0003, 0.0004], [0.0, 0.0]]) * ROW_UNIT
    transform = Transform.nearest(1000 * np.eye(2))
    clipped = clipped_rows(transform, np.trunc(rows), 25.0) / ROW_UNIT
    assert np.allclose(clipped, [[0.6, 0.8], [0.6, 0.8], [0.06, 0.08], [0, 0]], atol=1e-3)


def test_histogram_counts_rows_once_and_zero_rows_never():
    rows = np.array([[0.1, 0.0], [0.2, 0.0], [0.0, 0.0], [1.0, 0.0], [0.05, 0.0]])
    transform = Transform.nearest(9.99 * np.eye(2))
    assert counted(transform, np.trunc(rows * ROW_UNIT), np.array([1.0, 4.0, 9.0])).tolist() == [2, 1, 0, 1]
    assert counted(transform, np.zeros((4, 2)), np.array([1.0])).tolist() == [0, 0]


def test_one_row_moves_one_bin_by_one():
    transform, rows = ill_conditioned(9, 4), encoded_rows(500, 9, 6)
    edges = np.geomspace(1e-3, 1e9, 20)
    with_row, without = (counted(transform, part, edges) for part in (rows, rows[:-1]))
    assert sorted(with_row - without) == [0] * 20 + [1]


def test_transforms_are_equal_where_all_numbers_are():
    transform = ill_conditioned(7, 3)
    again = Transform(transform.integers.copy(), transform.scales.copy())
    assert again == transform
    assert hash(again) == hash(transform)
    assert again != ill_conditioned(7, 4)
    assert again != Transform(transform.integers, transform.scales * np.full(7, 2.0))
    assert transform != "another thing"
    assert pickle.loads(pickle.dumps(transform)) == transform


def test_transforms_cannot_be_changed_after_they_were_checked():
    integers, scales = np.array([[1.0, 2.0]]), np.ones(1)
    transform = Transform(integers, scales)
    integers[0, 0] = 2.0**40
    assert transform.integers.tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="read-only"):
        transform.integers[0, 0] = 3.0


def test_transforms_that_differ_in_scales_share_their_integers():
    transform = ill_conditioned(7, 3)
    other = Transform(transform.integers, transform.scales * np.geomspace(1, 1e-3, 7))
    assert other.integers is transform.integers
    assert other.same_integers(Transform(other.integers.copy(), other.scales.copy()))
    assert np.allclose(other.matrix, transform.matrix * np.geomspace(1, 1e-3, 7)[:, None], rtol=1e-15)


@pytest.mark.parametrize("kind", ["triangular", "lower", "block", "a row of zeros", "wide", "tall"])
def test_products_leave_out_zeros_and_nothing_else(kind):
    rng = np.random.default_rng(0)
    m, k = (9, 4) if kind == "wide" else (4, 9) if kind == "tall" else (21, 21)
    integers = np.rint(rng.standard_normal((k, m)) * 2.0**26)
    if kind == "triangular":
        integers = np.triu(integers)
    elif kind == "lower":
        integers = np.tril(integers)
    elif kind == "block":
        integers[:6, 5:] = 0
    elif kind == "a row of zeros":
        integers[:8] = 0
    transform, rows = Transform(integers, np.ones(k)), encoded_rows(40, m, 2)
    exact = rows.astype(np.int64).astype(object) @ integers.astype(np.int64).astype(object).T
    for layout in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2]):
        assert (transform.product(layout).astype(np.int64) == exact).all()


@pytest.mark.parametrize("size", [1e-130, 1e-20, 1e20, 1e130])
def test_extreme_scales_neither_overflow_nor_lose_rows(size):
    transform = Transform(ill_conditioned(5, 1).integers, np.geomspace(1, 1e3, 5) * size)
    rows = encoded_rows(200, 5, 1)
    z = np.trunc(transform.product(rows) * to_units(transform, 1.0))
    clip_norms(z, ROW_UNIT**2)
    assert np.isfinite(z).all()
    assert all(sum(int(v) ** 2 for v in row) <= 2**40 for row in z)
    counts = counted(transform, rows, np.array([1.0, 2.0]))
    assert counts.tolist() == ([199, 0, 0] if size < 1 else [0, 0, 199])  # the row of zeros is in none


def test_transforms_that_would_round_are_refused():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="whole numbers"):
            Transform(np.array([[1.0, bad]]), np.ones(1))
        with pytest.raises(ValueError, match="scales"):
            Transform(np.array([[1.0]]), np.array([bad]))
        with pytest.raises(ValueError, match="finite, nonzero rows"):
            Transform.nearest(np.array([[1.0, bad]]))
    with pytest.raises(ValueError, match="nonzero rows"):
        Transform.nearest(np.array([[1.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="one number per row"):
        Transform(np.eye(2), np.ones(3))
    with pytest.raises(ValueError, match="scales"):
        Transform(np.eye(1), np.array([5e-324]))
    limit = np.array([[2.0**32 - 1, math.isqrt(2**64 - (2**32 - 1) ** 2)]])  # the longest that fits
    Transform(limit, np.ones(1))
    with pytest.raises(ValueError, match="norm of at most"):
        Transform(limit + np.array([[0, 1]]), np.ones(1))
    with pytest.raises(ValueError, match="norm of at most"):
        Transform(np.full((1, 2), 2.0**32), np.ones(1))
    with pytest.raises(ValueError, match="whole numbers"):
        Transform(np.array([[0.5]]), np.ones(1))
    with pytest.raises(ValueError, match="scales"):
        Transform(np.array([[1.0]]), np.array([math.inf]))
