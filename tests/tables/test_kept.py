"""Rows that are cached from one reading: the same results as from reading again, in bounded memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

from gaussmix.tables import asking
from gaussmix.tables import kept as module
from gaussmix.tables.asking import Source
from gaussmix.tables.kept import RowCache
from gaussmix.tables.rows import TableRows
from gaussmix.tables.sample import Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Gram
from gaussmix.tables.transforms import Transform

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
    monkeypatch.setattr(asking, "_keeps_order", lambda data: True)


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize("rate", [None, 0.3, 0.01])
def test_a_table_that_fits_is_read_once(rate):
    source = Counted(5000)
    rows, sample = TableRows(source, SCHEMA), None if rate is None else KEYS.at(rate)
    first = rows.moments(cache=KEYS)
    assert same(answers(rows, sample), answers(TableRows(table(5000), SCHEMA), sample))
    assert source.readings == 1
    assert np.array_equal(first.gram(), TableRows(table(5000), SCHEMA).moments().gram())


@pytest.mark.usefixtures("in_order")
def test_a_table_that_does_not_fit_is_read_again_but_for_its_sample(monkeypatch):
    monkeypatch.setattr(module, "CACHE_BYTES", 8 * M * 600)
    data = table(5000)
    source = Counted(5000)
    rows = TableRows(source, SCHEMA)
    rows.moments(cache=KEYS)
    sample = KEYS.at(0.02)
    expected = answers(TableRows(data, SCHEMA), sample)
    assert same(answers(rows, sample), expected)
    assert source.readings == 1
    for larger in (None, KEYS.at(0.9), Sample.seeded(0.02, 6)):  # all rows, more than were cached, another release's
        before = source.readings
        answers(rows, larger)
        assert source.readings == before + 2  # one a question


def test_memory_is_bounded_and_cached_rows_are_a_sample(monkeypatch):
    monkeypatch.setattr(module, "CACHE_BYTES", 8 * M * 600)
    cache = RowCache(KEYS, SCHEMA)
    source = Source(table(20_000).to_batches(max_chunksize=900))
    source.aggregate(Gram(), SCHEMA, cache=cache)
    assert 150 <= cache._rows <= 600
    assert sum(len(rows) for _, rows in cache._blocks) == cache._rows
    assert cache._limit < 2**16
    assert all((keys < cache._limit).all() for keys, _ in cache._blocks)
    sample = KEYS.at(cache._limit / 2**16)
    again = TableRows(table(20_000), SCHEMA).moments(sample).sums()
    assert sum(len(rows) for rows in cache.find(sample)) == again.n
    assert cache.find(KEYS.at((cache._limit + 1) / 2**16)) is None


def test_a_source_without_an_order_is_not_cached():
    """Its readings have sampling keys of their own; whether rows fit must not decide whether passes share them."""
    ordered, other = (TableRows(data, SCHEMA) for data in (table(50), pa.dataset.dataset(table(50))))
    for rows in (ordered, other):
        rows.moments(cache=KEYS)
    assert ordered._cache is not None
    assert other._cache is None
    ordered.moments()
    assert ordered._cache is None  # another release does not read the rows of this one
