"""How often a release reads its table: the table of docs/engines.md, counted."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data import sampling
from gaussmix.data.engines import DaskTable
from gaussmix.data.rows import rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.source import Table
from gaussmix.data.transforms import Transform
from gaussmix.releases import preconditioning

ROWS = 4000
BUDGET = {"epsilon": 3.0, "delta": 1e-6}


@pytest.fixture
def readings(monkeypatch):
    """The number of readings of all tables; of Dask and Spark, of jobs."""
    count = [0]

    def counted(function):
        def read(*arguments, **options):
            count[0] += 1
            return function(*arguments, **options)

        return read

    monkeypatch.setattr(Table, "_checked", counted(Table._checked))
    monkeypatch.setattr(DaskTable, "sum_partitions", counted_jobs := counted(DaskTable.sum_partitions))
    assert counted_jobs is DaskTable.sum_partitions
    return count


@pytest.fixture
def sampled(monkeypatch):
    """Make passes between the first and the last read samples of a small table."""
    for name, value in (("LEAST_ROWS", 400), ("SAMPLE_ROWS", 1), ("HISTOGRAM_ROWS", 10)):
        monkeypatch.setattr(preconditioning, name, value)


def tables(tmp_path, kinds=("file", "frame", "duckdb", "lazy", "dask")):
    table = patients(ROWS)
    table.to_parquet(tmp_path / "rows.parquet")
    if "file" in kinds:
        yield "file", tmp_path / "rows.parquet"
    if "frame" in kinds:
        yield "frame", table
    if "duckdb" in kinds:
        duckdb = pytest.importorskip("duckdb")
        yield "duckdb", duckdb.sql(f"FROM '{tmp_path / 'rows.parquet'}'")
    if "lazy" in kinds:
        yield "lazy", pytest.importorskip("polars").scan_parquet(tmp_path / "rows.parquet")
    if "dask" in kinds:
        dd = pytest.importorskip("dask.dataframe")
        yield "dask", dd.from_pandas(table, npartitions=3)


def read_by(readings, kind, data, **options):
    """Count the readings of one release; a partition of Dask is read as a table of its own too."""
    readings[0] = 0
    private = gm.release(data, SCHEMA, **{**BUDGET, **options})
    return private, readings[0] / (1 + 3 * (kind == "dask"))


@pytest.mark.filterwarnings("ignore")
def test_a_table_is_read_twice_if_it_fits_into_the_cache_and_once_for_one_pass(tmp_path, readings):
    for kind, data in tables(tmp_path):
        assert read_by(readings, kind, data)[1] == 2
        assert read_by(readings, kind, data, passes=1)[1] == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("sampled")
def test_a_table_is_read_three_times_if_its_samples_fit(tmp_path, readings, monkeypatch):
    monkeypatch.setattr(sampling, "CACHE_BYTES", 4 * 9 * 2000)  # half of the table
    for kind, data in tables(tmp_path):
        private, number = read_by(readings, kind, data)
        assert [output.rate < 0.5 for output in private.statistic.passes] == [False, True, True, False]
        assert number == 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("sampled")
def test_a_table_is_read_five_times_if_only_the_sample_of_histograms_fits(tmp_path, readings, monkeypatch):
    monkeypatch.setattr(preconditioning, "SAMPLE_ROWS", 35)  # about 1,500 rows
    monkeypatch.setattr(sampling, "CACHE_BYTES", 4 * 9 * 1000)
    for kind, data in tables(tmp_path):
        private, number = read_by(readings, kind, data)
        assert [output.rate < 0.5 for output in private.statistic.passes] == [False, True, True, False]
        assert number == 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("sampled")
def test_a_table_is_read_eight_times_if_nothing_fits(tmp_path, readings, monkeypatch):
    monkeypatch.setattr(sampling, "CACHE_BYTES", 0)
    for kind, data in tables(tmp_path, ("file", "duckdb", "dask")):
        assert read_by(readings, kind, data)[1] == 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("sampled")
def test_privacy_units_are_read_once_from_files_and_three_times_by_engines(tmp_path, readings, monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    table = patients(ROWS).assign(who=np.arange(ROWS) // 2)
    unit, options = gm.PrivacyUnit("who", 2), {}
    readings[0] = 0
    gm.release(table, SCHEMA, **BUDGET, privacy_unit=unit)
    assert readings[0] == 2  # marginals have another encoding
    for most, number in ((4 * 9 * 3000, 3), (0, 8)):
        monkeypatch.setattr(sampling, "CACHE_BYTES", most)
        readings[0] = 0
        gm.release(dd.from_pandas(table, npartitions=1), SCHEMA, **BUDGET, privacy_unit=unit, **options)
        assert readings[0] == 2 * number  # a job, and its one partition


# ---------------------------------------------------------------------------------------------------- cached rows
KEYS = Sample.seeded(1.0, 3)


def statistics(rows, sample):
    m = rows.schema.n_columns
    transform = Transform.nearest(np.linalg.qr(np.random.default_rng(0).standard_normal((m, m)))[0] * 3.0)
    sums = rows.mapped(transform, 4.0, sample)
    return sums.high, sums.low, rows.counts([transform], [np.geomspace(0.1, 9, 7)], sample)[0], np.array(sums.n)


@pytest.mark.filterwarnings("ignore")
def test_cached_rows_of_a_cluster_give_the_same_bits(tmp_path, readings):
    """All rows as from a file; a sample is one and the same for all questions, and a part of the larger one."""
    table = patients(ROWS)
    (_, data), wanted = *tables(tmp_path, ("dask",)), statistics(rows_of(table, SCHEMA), None)
    rows = rows_of(data, SCHEMA)
    rows.gram(cache=KEYS, limit=1.0)
    before = readings[0]
    assert all(map(np.array_equal, statistics(rows, None), wanted))
    smaller, larger = (statistics(rows, KEYS.at(rate)) for rate in (0.1, 0.3))
    assert 0.07 * ROWS < smaller[-1] < 0.13 * ROWS
    assert 0.26 * ROWS < larger[-1] < 0.34 * ROWS
    assert all(map(np.array_equal, statistics(rows, KEYS.at(0.1)), smaller))
    assert readings[0] == before
    limited = rows_of(data, SCHEMA)
    limited.gram(cache=KEYS, limit=0.2)
    before = readings[0]
    statistics(limited, KEYS.at(0.2))
    assert readings[0] == before
    for other in (KEYS.at(0.21), None, Sample.seeded(0.1, 4)):  # more than was cached; another release
        before = readings[0]
        statistics(limited, other)
        assert readings[0] > before


@pytest.mark.filterwarnings("ignore")
def test_cached_units_of_a_cluster_give_the_same_bits(readings):
    dd = pytest.importorskip("dask.dataframe")
    table = patients(ROWS).assign(who=np.arange(ROWS) // 3)
    unit = gm.PrivacyUnit("who", 2)
    found = []
    for data in (table, dd.from_pandas(table, npartitions=4)):
        rows = rows_of(data, SCHEMA, unit=unit, new_key=lambda: bytes(32))
        rows.gram(cache=KEYS, limit=0.3)
        before = readings[0]
        found.append(statistics(rows, KEYS.at(0.25)))
        assert readings[0] == before
    assert all(map(np.array_equal, *found))


def test_what_is_cached_of_a_computed_table_does_not_depend_on_its_number_of_rows(tmp_path, monkeypatch):
    """Passes of a source without an order share a sample if it was cached: a row must not decide that."""
    monkeypatch.setattr(sampling, "CACHE_BYTES", 4 * 9 * 100)  # far less than what is cached below
    for kind, data in tables(tmp_path, ("duckdb", "dask")):
        rows = rows_of(data, SCHEMA)
        rows.gram(cache=KEYS)
        assert rows._cache is None, kind
        rows.gram(cache=KEYS, limit=0.5)
        assert sum(len(block) for block in rows._cache.find(KEYS.at(0.5))) > 0.4 * ROWS
