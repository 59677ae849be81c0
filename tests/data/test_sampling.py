"""Sampling keys belong to positions, are independent and secret; cached rows give the results of reading again."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from randomgen import ChaCha
from scipy import stats

from gaussmix.data import sampling
from gaussmix.data.gram import Gram, aggregate_batches
from gaussmix.data.rows import TableRows
from gaussmix.data.sampling import RowCache, Sample
from gaussmix.data.schema import Schema
from gaussmix.data.table import TableIterator
from gaussmix.data.transforms import Transform

FALSE_ALARM = 1e-6


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 5000), max_size=8), seed=st.integers(0, 5), rate=st.sampled_from([0.01, 0.3, 0.9]))
def test_sampling_keys_belong_to_positions(cuts, seed, rate):
    sample = Sample.seeded(rate, seed)
    edges = [0, *sorted(cuts), 5000]
    parts = [sample.chosen(a, b) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), sample.chosen(0, 5000))
    assert np.array_equal(sample.positions(5000), np.flatnonzero(sample.chosen(0, 5000)))


def test_sampling_keys_are_the_words_of_the_cipher_at_their_counter():
    """Key p is half a word: the low half of word p // 2 for even p."""
    sample = Sample.seeded(0.25, 3)
    raw = ChaCha(key=int.from_bytes(sample.key, "little"), rounds=20).random_raw(500)
    halves = [(int(word) >> shift) & 0xFFFF for word in raw for shift in (0, 16, 32, 48)]
    assert sample.chosen(0, 2000).tolist() == [half < 2**14 for half in halves]


@pytest.mark.parametrize("rate", [2.0**-16, 0.01, 0.5, 1.0])
def test_rate(rate):
    chosen = sum(int(Sample.seeded(rate, seed).chosen(0, 200_000).sum()) for seed in range(5))
    assert stats.binomtest(chosen, 1_000_000, Sample.seeded(rate, 0).rate).pvalue > FALSE_ALARM
    if rate == 0.5:  # a rate that is off by a hundredth would be seen
        assert stats.binomtest(chosen, 1_000_000, 0.51).pvalue < FALSE_ALARM


def test_neighbouring_positions_and_secret_keys_are_independent():
    base = Sample.seeded(0.5, 0)
    others = [base.part(0), base.part(1), base.fresh(0), base.fresh(1), Sample.seeded(0.5, 1)]
    chosen = [sample.chosen(0, 200_000).astype(int) for sample in (base, *others)]
    pairs = [(chosen[0][:-1], chosen[0][1:]), *((a, b) for i, a in enumerate(chosen) for b in chosen[:i])]
    for a, b in pairs:
        agree = int((a == b).sum())
        assert stats.binomtest(agree, len(a), 0.5).pvalue > FALSE_ALARM


def test_the_key_is_secret_and_new():
    first, second = Sample.secure(0.5), Sample.secure(0.5)
    assert first.key != second.key
    assert repr(first) == "Sample(rate=0.5)"
    assert pickle.loads(pickle.dumps(first)) == first
    assert first != second


def test_bad_samples_are_refused():
    for rate in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="rate must"):
            Sample.seeded(rate, 0)
    with pytest.raises(ValueError, match="32 bytes"):
        Sample(0.5, b"short")
    assert Sample.seeded(1e-9, 0).rate == 2.0**-16


def test_samples_of_several_rates_are_nested():
    whole = Sample.seeded(1.0, 4)
    small, large = whole.at(0.1).chosen(5, 3000), whole.at(0.4).chosen(5, 3000)
    assert 0 < small.sum() < large.sum()
    assert not (small & ~large).any()
    assert whole.chosen(0, 100).all()
    assert np.array_equal(whole.sampling_keys(5, 3000) < whole.at(0.1).threshold, small)


SCHEMA = Schema.of(
    {"x": {"lower": -1, "upper": 1, "missing": "drop-row"}, "level": {"levels": ["a", "b"], "unknown": "zero"}}
)
M = SCHEMA.n_columns
TRANSFORM = Transform.nearest(np.eye(M) + 0.3)
KEYS = Sample.seeded(1.0, 5)


def table(n: int) -> pa.Table:
    rng = np.random.default_rng(n)
    x = rng.uniform(-2, 2, n)
    x[::7] = np.nan
    return pa.Table.from_pandas(pd.DataFrame({"x": x, "level": rng.choice(["a", "b", "c"], n)}), preserve_index=False)


class Counted:
    """A table in batches, and how often it was read."""

    def __init__(self, n: int, size: int = 700):
        self.batches, self.readings = table(n).to_batches(max_chunksize=size), 0

    def __iter__(self):
        self.readings += 1
        return iter(self.batches)


def answers(rows, sample):
    sums = rows.mapped(TRANSFORM, 0.5, sample)
    return [sums.high, sums.low, sums.n, *rows.counts([TRANSFORM], [np.array([0.2, 0.9])], sample)]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def in_order(monkeypatch):
    """Iterables are taken for sources that promise their order."""
    monkeypatch.setattr(TableIterator, "ordered", True)


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize("rate", [None, 0.3, 0.01])
def test_a_table_that_fits_is_read_once(rate):
    source = Counted(5000)
    rows, sample = TableRows(source, SCHEMA), None if rate is None else KEYS.at(rate)
    first = rows.gram(cache=KEYS)
    assert same(answers(rows, sample), answers(TableRows(table(5000), SCHEMA), sample))
    assert source.readings == 1
    assert np.array_equal(first.floats(), TableRows(table(5000), SCHEMA).gram().floats())


@pytest.mark.usefixtures("in_order")
def test_a_table_that_does_not_fit_is_read_again_but_for_its_sample(monkeypatch):
    monkeypatch.setattr(sampling, "CACHE_BYTES", 4 * M * 600)
    data = table(5000)
    source = Counted(5000)
    rows = TableRows(source, SCHEMA)
    rows.gram(cache=KEYS)
    sample = KEYS.at(0.02)
    expected = answers(TableRows(data, SCHEMA), sample)
    assert same(answers(rows, sample), expected)
    assert source.readings == 1
    for larger in (None, KEYS.at(0.9), Sample.seeded(0.02, 6)):  # all rows, more than were cached, another release's
        before = source.readings
        answers(rows, larger)
        assert source.readings == before + 2  # one a question


def test_memory_is_bounded_and_cached_rows_are_a_sample(monkeypatch):
    monkeypatch.setattr(sampling, "CACHE_BYTES", 4 * M * 600)
    cache = RowCache(KEYS, M)
    aggregate_batches(iter(table(20_000).to_batches(max_chunksize=900)), SCHEMA, Gram(), cache=cache, threads=1)
    assert 150 <= cache._rows <= 600
    assert sum(len(rows) for _, rows in cache.blocks) == cache._rows
    assert cache._limit < 2**16
    assert all((keys < cache._limit).all() for keys, _ in cache.blocks)
    sample = KEYS.at(cache._limit / 2**16)
    again = TableRows(table(20_000), SCHEMA).aggregate(Gram(), sample)
    assert sum(len(rows) for rows in cache.find(sample)) == again.n
    assert cache.find(KEYS.at((cache._limit + 1) / 2**16)) is None


def test_a_source_without_an_order_is_not_cached():
    """Its readings have sampling keys of their own; whether rows fit must not decide whether passes share them."""
    ordered, other = (TableRows(data, SCHEMA) for data in (table(50), pa.dataset.dataset(table(50))))
    for rows in (ordered, other):
        rows.gram(cache=KEYS)
    assert ordered._cache is not None
    assert other._cache is None
    ordered.gram()
    assert ordered._cache is None  # another release does not read the rows of this one
