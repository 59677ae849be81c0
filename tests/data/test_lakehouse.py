"""Delta Lake, Iceberg and Hudi: superseded rows lie beside current ones and must never be counted."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
from gaussmix.data.gram import Gram
from gaussmix.data.rows import TableRows
from gaussmix.data.schema import Schema
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError, DataError

SCHEMA = Schema.of({"age": [0, 100], "cost": [0, 10]})
OLD = pa.table({"age": np.linspace(0, 100, 50), "cost": np.linspace(0, 10, 50)})
NEW = pa.table({"age": np.linspace(20, 60, 40), "cost": np.linspace(1, 9, 40)})


def delta(folder):
    deltalake = pytest.importorskip("deltalake")
    path = str(folder / "delta")
    deltalake.write_deltalake(path, OLD)
    deltalake.write_deltalake(path, NEW, mode="overwrite")
    return deltalake.DeltaTable(path)


def iceberg(folder):
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.memory import InMemoryCatalog

    catalog = InMemoryCatalog("test", warehouse=str(folder))
    catalog.create_namespace("health")
    table = catalog.create_table("health.patients", NEW.schema)
    table.append(OLD)
    table.overwrite(NEW)
    return table


def gram(data):
    """Return the exact Gram matrix of a table."""
    sums = TableRows(data, SCHEMA).aggregate(Gram())
    return sums.n, np.asarray(sums.high).tolist(), np.asarray(sums.low).tolist()


def test_a_delta_lake_directory_is_refused(tmp_path):
    """Read as plain Parquet it would have 90 rows, 50 of them superseded."""
    delta(tmp_path)
    for path in (tmp_path / "delta", tmp_path, f"{tmp_path}/delta/*.parquet", f"{tmp_path}/**/*.parquet"):
        with pytest.raises(ArgumentError, match=r"is a Delta Lake table.*Pass deltalake\.DeltaTable"):
            gm.release(path, SCHEMA, epsilon=1.0, delta=1e-6)


def test_a_partition_of_a_delta_lake_table_is_refused(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    table = OLD.append_column("year", pa.array([2024, 2025] * 25))
    deltalake.write_deltalake(str(tmp_path / "delta"), table, partition_by=["year"])
    with pytest.raises(ArgumentError, match="is a Delta Lake table"):
        open_table(tmp_path / "delta" / "year=2024").schema()


@pytest.mark.parametrize("mark", [".hoodie", "_hudi"])
def test_iceberg_and_hudi_directories_are_refused(tmp_path, mark):
    iceberg(tmp_path)
    for path in (tmp_path, f"{tmp_path}/health/patients/data"):
        with pytest.raises(ArgumentError, match="is an Iceberg table"):
            open_table(path).schema()
    folder = tmp_path / "hudi"
    (folder / mark).mkdir(parents=True)
    pq.write_table(NEW, folder / "a.parquet")
    with pytest.raises(ArgumentError, match=r"is a Hudi table.*Pass a Spark data frame"):
        open_table(folder).schema()


def test_a_dataset_of_the_files_is_refused(tmp_path):
    delta(tmp_path)
    with pytest.raises(ArgumentError, match="is a Delta Lake table"):
        open_table(ds.dataset(tmp_path / "delta"))


def test_directories_with_similar_names_are_read(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.json").write_text("{}")
    pq.write_table(NEW, tmp_path / "rows.parquet")
    assert open_table(tmp_path).n_rows == 40


@pytest.mark.parametrize("make", [delta, iceberg, lambda folder: iceberg(folder).scan()])
def test_current_rows_are_read_from_the_object(tmp_path, make):
    assert gram(make(tmp_path)) == gram(NEW)
    assert open_table(make(tmp_path / "again")).schema().names == ["age", "cost"]


@pytest.mark.parametrize("make", [delta, lambda folder: delta(folder).to_pyarrow_dataset(), iceberg])
def test_a_release_from_the_object_equals_that_from_its_rows(tmp_path, make):
    found = gm.release(make(tmp_path), SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    wanted = gm.release(NEW, SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    pairs = zip(found.statistic.passes, wanted.statistic.passes, strict=True)
    assert all(np.array_equal(one.matrix, other.matrix) for one, other in pairs)


def test_a_version_written_later_is_not_read(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    lake, berg = delta(tmp_path), iceberg(tmp_path / "berg")
    sources = [TableRows(lake, SCHEMA), TableRows(berg, SCHEMA)]
    first = [source.aggregate(Gram()).n for source in sources]
    deltalake.write_deltalake(str(tmp_path / "delta"), OLD, mode="append")
    lake.update_incremental()
    berg.append(OLD)
    assert [source.aggregate(Gram()).n for source in sources] == first == [40, 40]


def test_two_versions_of_one_table_are_refused(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    table = delta(tmp_path)
    before = deltalake.DeltaTable(table.table_uri, version=0)
    with pytest.raises(DataError, match="double-counted"):
        gram([table, before])


def test_a_scan_with_a_limit_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="may return different rows each time it is read"):
        open_table(iceberg(tmp_path).scan(limit=3))


def test_a_filtered_scan_has_its_columns_and_rows(tmp_path):
    table = iceberg(tmp_path)
    kept = open_table(table.scan(row_filter="age < 40", selected_fields=("age",)))
    assert kept.schema().names == ["age"]
    assert sum(batch.num_rows for batch in kept.batches(["age"])) == int((NEW["age"].to_numpy() < 40).sum())
    with pytest.raises(DataError, match="Column 'cost' is not in the Iceberg table"):
        list(kept.batches(["cost"]))


def test_a_table_that_deltalake_cannot_read_is_an_error_without_values():
    class DeltaTable:
        def to_pyarrow_dataset(self):
            raise RuntimeError("patient 4711")

    DeltaTable.__module__ = "deltalake.table"
    with pytest.raises(DataError, match="cannot read the Delta Lake table") as caught:
        open_table(DeltaTable())
    assert "4711" not in str(caught.value)
