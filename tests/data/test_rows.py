"""Passes over rows: sums over single rows, the same bits for every source, block, thread and order."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from array_tables import SCHEMAS, arrays
from declared_schemas import vector_array
from encoded_rows import exact_gram, summed_rows
from example_tables import SCHEMA, patients
from gaussmix.data.columns import Vector
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.encode import EXACT_ROWS, encode_arrays
from gaussmix.data.gram import Gram, Query
from gaussmix.data.moments import Moments
from gaussmix.data.rows import ArrayRows, ClusterRows, SummedRows, TableRows, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.data.source import ReadOptions
from gaussmix.data.transforms import Transform

every_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())


def transform_of(m: int, seed: int = 0, spread: float = 1e4, k: int | None = None) -> Transform:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((max(m, k or m), m)))[0]
    return Transform.nearest(Q[: k or m] * np.geomspace(1, spread, k or m)[:, None])


def question(m: int, seed: int = 0) -> dict:
    """Two transforms that share their integers, a triangular one, and a histogram for each."""
    first = transform_of(m, seed)
    second = Transform(first.integers, first.scales * np.geomspace(1, 0.1, m))
    triangular = Transform.nearest(np.triu(transform_of(m, seed + 1).matrix) + np.eye(m))
    edges = [np.geomspace(1e-3, 1e6, 12), np.geomspace(1e-4, 10, 7), np.geomspace(1e-2, 1e4, 5)]
    return {"transforms": [first, second, triangular], "edges": edges}


def answers(rows, sample=None, *, seed: int = 0, clip: float = 3.0) -> list[np.ndarray]:
    """Everything that passes ask, as arrays."""
    asked = question(rows.schema.n_columns, seed)
    unit = rows.unit
    sums = rows.aggregate(Gram() if unit is None else Gram(unit.max_contributions), sample)
    found = [sums.high, sums.low, np.array(sums.n)]
    for transform in asked["transforms"]:
        sums = rows.mapped(transform, clip, sample)
        found += [sums.high, sums.low, np.array(sums.n)]
    return found + rows.counts(asked["transforms"], asked["edges"], sample)


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def as_integers(sums) -> np.ndarray:
    return sums.high.astype(object) * 2**40 + sums.low.astype(object)


# -- against rows taken one by one in Python's integers -----------------------------------------------------------
def exact_clipped(row: np.ndarray, transform: Transform, clip: float) -> list[int]:
    """One row: an exact product, one rounded multiplication an entry, and shortened in fractions if too long."""
    factors = transform.scales * (2.0**20 / math.sqrt(clip))
    product = [sum(int(a) * int(b) for a, b in zip(row, line, strict=True)) for line in transform.integers]
    z = [math.trunc(float(p) * float(f)) for p, f in zip(product, factors, strict=True)]
    squares = sum(v * v for v in z)
    if squares <= 2**40:
        return z
    if squares >= 2**53:  # brought near by a power of two first
        largest = max(abs(v) for v in z)
        step = 26 - math.ceil(math.log2(len(z)) / 2) - math.frexp(float(largest))[1]
        z = [math.trunc(math.ldexp(float(v), step)) for v in z]
        squares = sum(v * v for v in z)
    shrink = 2.0**20 * (1 - 2.0**-32) / math.sqrt(squares)
    return [math.trunc(v * shrink) for v in z]


@pytest.mark.parametrize("clip", [1e-8, 0.7, 30.0, 1e9])
def test_mapped_sums_are_those_of_rows_one_by_one(clip):
    schema = SCHEMAS["bounds, norm"]
    X, Y = arrays(schema, 60)
    whole = np.ldexp(encode_arrays(schema, X, Y), 20)
    transform = transform_of(schema.n_columns)
    rows = [exact_clipped(row, transform, clip) for row in whole]
    assert all(sum(v * v for v in row) <= 2**40 for row in rows)
    expected = np.array(rows, dtype=object).T @ np.array(rows, dtype=object)
    sums = ArrayRows(X, Y, schema).mapped(transform, clip)
    assert np.array_equal(as_integers(sums), expected)
    assert sums.n == 60


def test_counts_are_those_of_real_norms():
    schema = SCHEMAS["bounds"]
    X, Y = arrays(schema, 3000)
    asked = question(schema.n_columns)
    encoded = encode_arrays(schema, X, Y)
    counts = ArrayRows(X, Y, schema).counts(**asked)
    for transform, edges, found in zip(asked["transforms"], asked["edges"], counts, strict=True):
        norms = np.sum((encoded @ transform.matrix.T) ** 2, axis=1)
        expected = np.bincount(np.searchsorted(edges, norms), minlength=len(edges) + 1)
        near = sum(int((np.abs(norms / edge - 1) < 1e-3).sum()) for edge in edges)
        assert found.sum() == 3000
        assert np.abs(found - expected).sum() <= 2 * near
        assert near < 60


@pytest.mark.slow
@every_schema
def test_a_table_is_the_sum_of_its_rows(schema):
    X, Y = arrays(schema, 40)
    X[3], Y[3] = 0, 0
    single = [ArrayRows(X[i : i + 1], Y[i : i + 1], schema) for i in range(40)]
    whole = ArrayRows(X, Y, schema)
    for transform in question(schema.n_columns)["transforms"]:
        parts = [as_integers(rows.mapped(transform, 3.0)) for rows in single]
        assert np.array_equal(functools.reduce(operator.add, parts), as_integers(whole.mapped(transform, 3.0)))
    asked = question(schema.n_columns)
    for found, *parts in zip(whole.counts(**asked), *(rows.counts(**asked) for rows in single), strict=True):
        assert np.array_equal(found, np.sum(parts, axis=0))


def test_narrow_rows_fill_blocks_without_rounding():
    """Rows at exactly the clip: 2¹² of them are 2⁵² units."""
    schema = Schema({"X": Vector(1, norm=1.0)}, intercept=0)
    n = 3 * EXACT_ROWS + 5
    table = pa.table({"X": vector_array(np.ones((n, 1)))})
    transform = Transform(np.array([[2.0**32]]), np.array([2.0**-52]))  # maps the longest row to 1
    for rows in (ArrayRows(np.ones((n, 1)), None, schema), TableRows(table, schema)):
        assert as_integers(rows.mapped(transform, 1.0))[0, 0] == n * 2**40
        assert as_integers(rows.mapped(transform, 0.25))[0, 0] <= n * 2**40
        assert rows.counts([transform], [np.array([0.5, 1.0, 2.0])])[0].tolist() == [0, n, 0, 0]


# -- blind to how rows arrive ------------------------------------------------------------------------------------
@pytest.mark.slow
@every_schema
@settings(max_examples=12)
@given(
    cuts=st.lists(st.integers(0, 9000), max_size=5),
    threads=st.sampled_from([1, 2, 3]),
    size=st.sampled_from([1.0, 1e-300, 1e200]),
    clip=st.sampled_from([1e-6, 2.0, 1e6]),
    rate=st.sampled_from([None, 0.05, 0.6]),
    seed=st.integers(0, 3),
)
def test_arrays_tables_blocks_and_threads_give_the_same_bits(schema, cuts, threads, size, clip, rate, seed):
    X, Y = arrays(schema, 9000, seed=seed)
    X[::7] *= size
    sample = None if rate is None else Sample.seeded(rate, seed)
    expected = answers(ArrayRows(X, Y, schema, threads=1), sample, seed=seed, clip=clip)
    assert same(
        answers(ArrayRows(np.asfortranarray(X), Y, schema, threads=threads), sample, seed=seed, clip=clip), expected
    )
    names = [name for name in schema.columns if name != "X"]
    table = pa.table({"X": vector_array(X), **dict(zip(names, np.asarray(Y, float).T, strict=True))})
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise([0, *sorted(cuts), 9000]) if a < b]
    for source in (table, parts):
        assert same(answers(TableRows(source, schema), sample, seed=seed, clip=clip), expected)


def test_order_of_rows_leaves_no_trace():
    schema = SCHEMAS["norm"]
    X, Y = arrays(schema, 5000)
    order = np.random.default_rng(0).permutation(5000)
    assert same(answers(ArrayRows(X, Y, schema)), answers(ArrayRows(X[order], Y[order], schema)))


def test_a_row_changes_the_sums_by_itself_alone_and_one_bin_of_each_histogram_by_one():
    schema = SCHEMAS["bounds, norm"]
    X, Y = arrays(schema, 6000)
    asked = question(schema.n_columns)
    for i in (0, 4095, 5999):
        rest = ArrayRows(np.delete(X, i, axis=0), np.delete(Y, i, axis=0), schema)
        whole, alone = ArrayRows(X, Y, schema), ArrayRows(X[i : i + 1], Y[i : i + 1], schema)
        for transform in asked["transforms"]:
            change = as_integers(whole.mapped(transform, 1.0)) - as_integers(rest.mapped(transform, 1.0))
            assert np.array_equal(change, as_integers(alone.mapped(transform, 1.0)))
            assert sum(int(v) ** 2 for v in change.ravel()) <= 2**80  # the Frobenius norm is at most 2⁴⁰ units
        for with_row, without in zip(whole.counts(**asked), rest.counts(**asked), strict=True):
            assert sorted(with_row - without) == [0] * (len(with_row) - 1) + [1]


def test_a_thousand_columns():
    schema = Schema({"X": Vector(1000, norm=30.0)}, intercept=1.0)
    X = np.random.default_rng(0).standard_normal((70, 1000)) * np.geomspace(1e-3, 1, 1000)
    transform = transform_of(1001, spread=1e6)
    whole = ArrayRows(X, None, schema).mapped(transform, 200.0)
    parts = [ArrayRows(X[a:b], None, schema).mapped(transform, 200.0) for a, b in ((0, 1), (1, 64), (64, 70))]
    total = functools.reduce(operator.add, parts)
    assert np.array_equal(total.high, whole.high)
    assert np.array_equal(total.low, whole.low)


# -- every source ------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore")
def test_every_source_answers_alike(tmp_path):
    table = patients(5000)
    expected = answers(rows_of(table, SCHEMA))
    encoded = summed_rows(Schema.of(SCHEMA), pa.Table.from_pandas(table))
    assert np.array_equal(expected[0].astype(object) * 2**40 + expected[1].astype(object), exact_gram(encoded))
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_table(arrow, tmp_path / "a.parquet", row_group_size=700)
    for i in range(3):
        pq.write_table(arrow.slice(2000 * i, 2000), tmp_path / f"part{i}.parquet")
    table.to_csv(tmp_path / "a.csv", index=False)
    sources = {
        "arrow": arrow,
        "list": [arrow.slice(0, 1234), arrow.slice(1234)],
        "dataset": pyarrow.dataset.dataset(tmp_path / "a.parquet"),
        "parquet": tmp_path / "a.parquet",
        "parts": str(tmp_path / "part*.parquet"),
        "csv": tmp_path / "a.csv",
        "dict": {name: table[name].to_numpy() for name in table},
    }
    sample = Sample.seeded(0.2, 1)
    sampled = answers(rows_of(table, SCHEMA), sample)
    for name, source in sources.items():
        rows = rows_of(source, SCHEMA)
        rows.check_again()
        assert same(answers(rows), expected), name
        if name != "dataset":  # its order is not promised: fresh sampling keys for every pass
            assert same(answers(rows, sample), sampled), name


def test_lazy_frames_and_queries(tmp_path):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    table = patients(3000)
    expected = answers(rows_of(table, SCHEMA))
    connection = duckdb.connect(str(tmp_path / "a.duckdb"))
    connection.register("t", table)
    connection.execute("CREATE TABLE patients AS SELECT * FROM t")
    neighbours = connection.sql("SELECT * FROM patients")
    assert same(answers(rows_of(neighbours, SCHEMA)), expected)
    assert same(answers(rows_of(polars.from_pandas(table).lazy(), SCHEMA)), expected)
    connection.close()
    query = rows_of((str(tmp_path / "a.duckdb"), "SELECT * FROM patients"), SCHEMA)
    query.check_again()
    assert same(answers(query), expected)
    sample, m = Sample.seeded(0.3, 0), Schema.of(SCHEMA).n_columns
    first, second = (query.mapped(transform_of(m), 5.0, sample) for _ in range(2))
    assert not np.array_equal(first.low, second.low)  # fresh sampling keys: the order is not promised


def test_a_sample_is_of_positions_before_rows_are_dropped():
    table = pd.DataFrame({"a": np.linspace(0, 1, 4000)})
    table.loc[::3, "a"] = np.nan
    schema = Schema.of({"a": {"lower": 0, "upper": 1, "missing": "drop-row"}})
    sample = Sample.seeded(0.25, 2)
    kept = table[sample.chosen(0, 4000)]
    assert same(answers(rows_of(table, schema), sample), answers(rows_of(kept, schema)))


def test_samples_of_arrays_are_those_of_their_sampling_keys():
    """Of several rates and keys, one after the other, from the same arrays."""
    schema = SCHEMAS["norm"]
    X, Y = arrays(schema, 9000)
    rows = ArrayRows(X, Y, schema)
    for sample in (Sample.seeded(0.1, 2), Sample.seeded(0.5, 2), Sample.seeded(0.3, 1), Sample.seeded(0.1, 2)):
        chosen = sample.positions(9000)
        assert same(answers(rows, sample), answers(ArrayRows(X[chosen], Y[chosen], schema)))


# -- what cannot be read twice, and what changes -----------------------------------------------------------------
def test_what_can_be_read_once_serves_one_pass():
    arrow = pa.Table.from_pandas(patients(500), preserve_index=False)
    once = {
        "generator": lambda: (batch for batch in arrow.to_batches()),
        "reader": arrow.to_reader,
        "a reader in a list": lambda: [arrow.to_reader()],
        "a stream": lambda: Stream(arrow),
    }
    m = Schema.of(SCHEMA).n_columns
    expected = Moments.of(arrow, SCHEMA).gram()
    for name, make in once.items():
        rows = rows_of(make(), SCHEMA)
        with pytest.raises(ValueError, match="only once"):
            rows.check_again()
        assert np.array_equal(rows.gram().floats(), expected), name
        with pytest.raises(ValueError, match="passes=1"):
            rows.mapped(transform_of(m), 1.0)


class Stream:
    """Known only to export a stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_moments_serve_one_pass():
    moments = Moments.of(patients(300), SCHEMA)
    rows = rows_of(moments)
    assert isinstance(rows, SummedRows)
    assert rows.gram() is moments.sums()
    with pytest.raises(ValueError, match=r"only one pass\. Set passes=1"):
        rows.check_again()
    with pytest.raises(ValueError, match="support only one pass"):
        rows.counts(**question(moments.n_columns))
    with pytest.raises(ValueError, match="support only one pass"):
        rows.aggregate(Gram(), Sample.seeded(0.5, 0))


def test_a_table_that_changes_between_passes_is_refused(tmp_path):
    table = patients(400)
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False)
    rows = rows_of(path, SCHEMA)
    rows.gram()
    rows.aggregate(Gram(), Sample.seeded(0.5, 0))
    table.iloc[:-1].to_csv(path, index=False)
    with pytest.raises(ValueError, match="changed between two passes") as raised:
        rows.gram()
    assert not any(character.isdigit() for character in str(raised.value))
    growing = Growing(pa.Table.from_pandas(table, preserve_index=False))
    rows = rows_of(growing, SCHEMA)
    rows.gram()
    with pytest.raises(ValueError, match="changed between two passes"):
        rows.aggregate(Gram(), Sample.seeded(0.01, 0))


class Growing:
    """A table of batches that has a row more each time."""

    def __init__(self, table):
        self.table, self.rows = table, 100

    def __iter__(self):
        self.rows += 1
        return iter(self.table.slice(0, self.rows).to_batches())


def test_a_file_that_is_rewritten_with_as_many_rows_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pandas(patients(400)), path)
    rows = rows_of(path, SCHEMA)
    rows.gram()
    pq.write_table(pa.Table.from_pandas(patients(400, seed=1)), path)
    with pytest.raises(ValueError, match="changed between two passes"):
        rows.gram()


def test_expected_rows_are_checked_in_the_first_pass():
    table = patients(300)
    rows_of(table, SCHEMA, ReadOptions(expected_rows=300)).aggregate(Gram(), Sample.seeded(0.1, 0))
    with pytest.raises(ValueError, match="does not have expected_rows"):
        rows_of(table, SCHEMA, ReadOptions(expected_rows=299)).aggregate(Gram(), Sample.seeded(0.1, 0))


def test_nothing_is_shown_of_rows():
    assert repr(rows_of(patients(300), SCHEMA)) == "TableRows(10 columns, sensitive: no numbers shown)"


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_bad_clips_are_refused(clip):
    with pytest.raises(ValueError, match="clip must be"):
        rows_of(patients(10), SCHEMA).mapped(transform_of(10), clip)


@pytest.mark.parametrize("edges", [[], [0.0, 1.0], [2.0, 1.0], [1.0, 1.0], [math.nan], [1.0, math.inf]])
def test_bad_edges_are_refused(edges):
    with pytest.raises(ValueError, match="edges must"):
        rows_of(patients(10), SCHEMA).counts([transform_of(10)], [np.array(edges)])


def test_transforms_of_other_rows_are_refused():
    rows = rows_of(patients(10), SCHEMA)
    with pytest.raises(ValueError, match="must have 10 columns"):
        rows.mapped(transform_of(4), 1.0)
    with pytest.raises(ValueError, match="must have 10 columns"):
        rows.counts([transform_of(4)], [np.array([1.0])])
    with pytest.raises(ValueError, match="transforms must not be empty"):
        rows.counts([], [])


# -- a new query -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sums:
    total: np.ndarray
    n: int

    def __add__(self, other):
        return Sums(self.total + other.total, self.n + other.n)


class RowSums(Query):
    """Σ r, and how many rows or privacy units there are: what a module that adds a query has to write."""

    def _start(self, m):
        self.set_up(m)
        self.total, self.n = np.zeros(m, dtype=np.int64), 0

    def _add(self, rows, starts=None):
        self.total += rows.sum(axis=0).astype(np.int64)
        self.n += len(rows) if starts is None else len(starts)

    def result(self):
        return Sums(self.total, self.n)


def test_a_new_query_is_answered_by_every_source():
    X = np.random.default_rng(0).uniform(-1, 1, (30_000, 2))
    vector = Schema.of({"X": {"size": 2, "lower": -1, "upper": 1}})
    names = Schema.of({"a": [-1, 1], "b": [-1, 1]})
    expected = (encode_arrays(vector, X) * 2**20).sum(axis=0).astype(int).tolist()
    table = {"a": X[:, 0], "b": X[:, 1], "who": np.arange(len(X)) // 3}
    unit = rows_of(table, names, unit=PrivacyUnit("who", 3), new_key=lambda: bytes(32))
    for source, n in ((ArrayRows(X, None, vector), 30_000), (rows_of(table, names), 30_000), (unit, 10_000)):
        found = source.aggregate(RowSums())
        assert (found.total.tolist(), found.n) == (expected, n)
        half = source.aggregate(RowSums(), Sample.seeded(0.5, 1))
        assert 0.45 * n < half.n < 0.55 * n  # ten standard errors or more
    unit.close()


# -- clusters ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask():
    dd = pytest.importorskip("dask.dataframe")
    table = patients(3000)
    frame = dd.from_pandas(table, npartitions=5)
    rows = rows_of(frame, SCHEMA, ReadOptions(expected_rows=3000))
    assert isinstance(rows, ClusterRows)
    rows.check_again()
    assert same(answers(rows), answers(rows_of(table, SCHEMA)))
    sample = Sample.seeded(0.3, 0)
    sums = rows.mapped(transform_of(10), 5.0, sample)
    reading = sample.fresh(5)  # one for the moments, four for questions before
    parts = [part.compute() for part in frame.partitions]
    chosen = pd.concat([part[reading.part(i).chosen(0, len(part))] for i, part in enumerate(parts)])
    expected = rows_of(chosen, SCHEMA).mapped(transform_of(10), 5.0)
    assert np.array_equal(sums.high, expected.high)
    assert np.array_equal(sums.low, expected.low)
    with pytest.raises(ValueError, match="does not have expected_rows"):
        rows_of(frame, SCHEMA, ReadOptions(expected_rows=2999)).gram()


@pytest.mark.filterwarnings("ignore")
def test_a_persisted_dask_table_is_computed_once():
    dd = pytest.importorskip("dask.dataframe")
    computed = []

    def noted(part):
        computed.append(len(part))
        return part

    frame = dd.from_pandas(patients(1000), npartitions=4).map_partitions(noted, meta=patients(1)).persist()
    before = len(computed)
    rows = rows_of(frame, SCHEMA)
    answers(rows)
    assert len(computed) == before


@pytest.mark.filterwarnings("ignore")
def test_a_dask_table_that_changes_is_refused():
    dd = pytest.importorskip("dask.dataframe")
    reads = itertools.count()

    def shrinking(part):
        return part.iloc[next(reads) :]

    rows = rows_of(dd.from_pandas(patients(100), npartitions=1).map_partitions(shrinking, meta=patients(1)), SCHEMA)
    rows.gram()
    with pytest.raises(ValueError, match="changed between two passes"):
        rows.mapped(transform_of(10), 1.0)


def test_another_release_from_the_same_arrays_does_not_change_which_rows_are_read():
    """Two threads may draw from one table: what the other one keeps is not what this one asked for."""
    schema = Schema({"X": Vector(size=2, norm=1.0)}, intercept=1.0)
    X, one, other = np.full((4000, 2), 0.5), Sample.seeded(0.5, 1), Sample.seeded(0.01, 2)

    class Interrupted(ArrayRows):
        def __setattr__(self, name, value):
            super().__setattr__(
                name, (other.key, other.sampling_keys(0, 4000), {}) if name == "_keys" and value else value
            )

    rows = Interrupted(X, None, schema)
    assert rows.aggregate(Gram(), one).n == len(one.positions(4000))
