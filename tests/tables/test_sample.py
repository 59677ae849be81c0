"""Sampling keys of positions: the same however positions are asked for, independent of each other, secret."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from randomgen import ChaCha
from scipy import stats

from gaussmix.tables.sample import Sample

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
        with pytest.raises(ValueError, match="rate must be"):
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
