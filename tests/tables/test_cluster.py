"""Real engines: a local Dask cluster with two workers and local Spark with two threads, to the last bit."""

from __future__ import annotations

import os
import shutil
import sys
import time

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.cluster import is_clustered, moments_on_cluster
from tables import SCHEMA, patients


@pytest.fixture(scope="module")
def table():
    return patients(30_000)


@pytest.fixture(scope="module")
def gram(table):
    return gm.Moments.from_(table, SCHEMA).gram()


def test_local_tables_are_not_clustered(table):
    assert not is_clustered(table)
    assert not is_clustered((np.zeros((2, 2)), ["a", "b"]))


# -------------------------------------------------------------------------------------------------------------- Dask
@pytest.mark.filterwarnings("ignore")
def test_dask_frames_and_arrays(table, gram):
    dd = pytest.importorskip("dask.dataframe")
    import dask.array as da

    frame = dd.from_pandas(table, npartitions=7)
    assert is_clustered(frame)
    assert np.array_equal(moments_on_cluster(frame, SCHEMA).gram(), gram)
    empty = dd.concat([frame, frame[frame["age"] > 1000]])  # partitions without rows
    assert np.array_equal(moments_on_cluster(empty, SCHEMA).gram(), gram)
    X = np.random.default_rng(0).normal(size=(1000, 2))
    schema = {"a": [0, 1], "b": [-3, 3]}
    array = (da.from_array(X, chunks=(300, 1)), ["a", "b"])
    assert is_clustered(array)
    assert np.array_equal(moments_on_cluster(array, schema).gram(), gm.Moments.from_((X, ["a", "b"]), schema).gram())
    with pytest.raises(ValueError, match="'weight' is not in the table"):
        moments_on_cluster(frame, {"weight": [0, 1]})


@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_killed_in_mid_run_loses_nothing(table, gram):
    pytest.importorskip("distributed")
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.worker.daemon": False})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        frame = dd.from_pandas(table, npartitions=40).map_partitions(slowly)
        future = client.submit(lambda: None)
        future.result()
        victim = next(iter(cluster.workers.values()))
        import threading

        killer = threading.Timer(1.5, victim.process.process.kill)
        killer.start()
        found = moments_on_cluster(frame, SCHEMA)
        killer.join()
        assert np.array_equal(found.gram(), gram)
        assert len(found.parts) == 40
        release = gm.release(frame, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    local = gm.release(table, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.array_equal(release.factor, local.factor)


def slowly(part):
    time.sleep(0.1)
    return part


# ------------------------------------------------------------------------------------------------------------- Spark
@pytest.mark.filterwarnings("ignore")
def test_spark_frames(table, gram, tmp_path):
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: install default-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "3000")
        .getOrCreate()
    )
    try:
        path = str(tmp_path / "table.parquet")
        table.to_parquet(path)
        frame = session.read.parquet(path)
        assert is_clustered(frame)
        assert np.array_equal(moments_on_cluster(frame.repartition(5), SCHEMA).gram(), gram)
        many = moments_on_cluster(frame.repartition(70), SCHEMA)  # two levels of the tree
        assert np.array_equal(many.gram(), gram)
        assert len(many.parts) == 70
        with pytest.raises(ValueError, match="'weight' is not in the table"):
            moments_on_cluster(frame, {"weight": [0, 1]})
    finally:
        session.stop()
