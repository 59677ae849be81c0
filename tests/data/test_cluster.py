"""Real engines: a local Dask cluster with two workers and local Spark with two threads, to the last bit."""

from __future__ import annotations

import os
import shutil
import sys
import time

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.counts import FineGrid, OneRowEach, count_columns, count_finely
from gaussmix.data.engines import ClusterTable, _computed
from gaussmix.data.rows import TableRows, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import PartialSchema
from gaussmix.data.source import ReadOptions
from gaussmix.data.table import open_table
from gaussmix.data.transforms import Transform

SECRET = "secret"  # no message may hold it


def is_clustered(data):
    return isinstance(open_table(data), ClusterTable)


def gram_on_cluster(data, schema, **options):
    return rows_of(data, schema, ReadOptions(**options)).gram()


def collected_gram(data, schema):
    return TableRows(data, gm.Schema.of(schema)).gram()


@pytest.fixture(scope="module")
def table():
    return patients(30_000)


@pytest.fixture(scope="module")
def gram(table):
    return gm.Moments.of(table, SCHEMA).gram()


def test_local_tables_are_not_clustered(table):
    assert not is_clustered(table)
    assert not is_clustered((np.zeros((2, 2)), ["a", "b"]))


# -------------------------------------------------------------------------------------------------------------- Dask
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_frames_and_arrays(table, gram):
    dd = pytest.importorskip("dask.dataframe")
    import dask.array as da

    frame = dd.from_pandas(table, npartitions=7)
    assert is_clustered(frame)
    assert np.array_equal(gram_on_cluster(frame, SCHEMA).floats(), gram)
    empty = dd.concat([frame, frame[frame["age"] > 1000]])  # partitions without rows
    assert np.array_equal(gram_on_cluster(empty, SCHEMA).floats(), gram)
    X = np.random.default_rng(0).normal(size=(1000, 2))
    schema = {"a": [0, 1], "b": [-3, 3]}
    array = (da.from_array(X, chunks=(300, 1)), ["a", "b"])
    assert is_clustered(array)
    assert np.array_equal(gram_on_cluster(array, schema).floats(), gm.Moments.of((X, ["a", "b"]), schema).gram())
    with pytest.raises(ValueError, match="'weight' is not in the table"):
        gram_on_cluster(frame, {"weight": [0, 1]})


def spoilt(part):
    raise ValueError(f"could not convert {SECRET!r}")


@pytest.mark.filterwarnings("ignore")
def test_errors_of_dask_quote_no_value(table):
    dd = pytest.importorskip("dask.dataframe")
    import dask.array as da

    frame = dd.from_pandas(table, npartitions=3)
    broken = frame.map_partitions(spoilt, meta=table)
    for read in (collected_gram, gram_on_cluster):
        with pytest.raises(gm.errors.DataError, match=r"failed\. Run it") as caught:
            read(broken, SCHEMA)
        assert SECRET not in repr((caught.value, caught.value.__cause__, caught.value.__context__))
        with pytest.raises(gm.errors.DataError, match="'sex' has values that are not among its declared levels"):
            read(frame, {**SCHEMA, "sex": ["f"]})
    with pytest.raises(gm.errors.DataError, match="array must be two-dimensional"):
        gram_on_cluster((da.zeros(5), ["a"]), {"a": [0, 1]})


@pytest.mark.filterwarnings("ignore")
def test_a_partition_of_a_dask_frame_is_read_by_itself():
    """Partitions put together have one type: a missing value in one would round the integers of another."""
    dd = pytest.importorskip("dask.dataframe")
    import dask
    import pandas as pd
    from dask.delayed import delayed

    large = 2**53 + 1
    parts = [pd.DataFrame({"a": [large, 3]}), pd.DataFrame({"a": [0.5, None]})]
    schema = {"a": {"lower": 0, "upper": 2**54, "missing": "drop-row"}, "k": {"levels": [1, 2], "unknown": "zero"}}
    for part, labels in zip(parts, ([1, 2], [2, 1]), strict=True):
        part["k"] = pd.Series(labels, dtype=object)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_delayed([delayed(part) for part in parts], meta=parts[1], verify_meta=False)
        expected = gm.Moments.of(iter(parts), schema).gram()
        assert np.array_equal(collected_gram(frame, schema).floats(), expected)
        assert np.array_equal(gram_on_cluster(frame, schema).floats(), expected)


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
        quick = dd.from_pandas(table, npartitions=40)
        frame = quick.map_partitions(slowly)
        future = client.submit(lambda: None)
        future.result()
        victim = next(iter(cluster.workers.values()))
        import threading

        killer = threading.Timer(1.5, victim.process.process.kill)
        killer.start()
        found = gram_on_cluster(frame, SCHEMA)
        killer.join()
        assert np.array_equal(found.floats(), gram)
        release = gm.release(quick, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    local = gm.release(table, schema=SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.array_equal(release.second_moment, local.second_moment)


def slowly(part):
    time.sleep(0.1)
    return part


# ------------------------------------------------------------------------------------------------------------- Spark
@pytest.fixture(scope="module")
def spark():
    """Local Spark whose tasks may fail twice."""
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: install default-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "3000")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark_frame(spark, table, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("spark") / "table.parquet")
    table.to_parquet(path)
    return spark.read.parquet(path)


@pytest.mark.filterwarnings("ignore")
def test_spark_frames(spark_frame, gram):
    assert is_clustered(spark_frame)
    assert np.array_equal(gram_on_cluster(spark_frame.repartition(5), SCHEMA).floats(), gram)
    many = gram_on_cluster(spark_frame.repartition(70), SCHEMA)
    assert np.array_equal(many.floats(), gram)
    with_empty = gram_on_cluster(spark_frame.repartition(5, "sex"), SCHEMA)  # partitions without rows
    assert np.array_equal(with_empty.floats(), gram)
    with pytest.raises(ValueError, match="'weight' is not in the table"):
        gram_on_cluster(spark_frame, {"weight": [0, 1]})


@pytest.mark.filterwarnings("ignore")
def test_spark_frames_in_passes(spark_frame, table):
    """Mapped sums and histograms are those of the local table; every pass has coins of its own."""
    options = ReadOptions(expected_rows=len(table))
    rows, local = rows_of(spark_frame.repartition(5), SCHEMA, options), rows_of(table, SCHEMA)
    m = rows.schema.n_columns
    transform = Transform.nearest(np.linalg.qr(np.random.default_rng(0).standard_normal((m, m)))[0] * 7.0)
    found, expected = (of.mapped(transform, 20.0) for of in (rows, local))
    assert np.array_equal(found.high, expected.high)
    assert np.array_equal(found.low, expected.low)
    question = ([transform], [np.geomspace(1, 100, 9)])
    assert np.array_equal(rows.counts(*question)[0], local.counts(*question)[0])
    first, second = (rows.mapped(transform, 20.0, Sample.seeded(0.1, 0)) for _ in range(2))
    assert 0.09 * len(table) < first.n < 0.11 * len(table)
    assert not np.array_equal(first.low, second.low)


@pytest.mark.filterwarnings("ignore")
def test_persisted_spark_frames_are_read_once(spark, spark_frame, table, tmp_path):
    """Stored batches have the rows of the table, and are deleted after the release."""
    frame = spark_frame.repartition(5).mapInArrow(marking(str(tmp_path)), spark_frame.schema)
    options = ReadOptions(row_by_row=True, persist=True)
    rows, local = rows_of(frame, SCHEMA, options), rows_of(table, SCHEMA)
    transform = Transform.nearest(np.eye(rows.schema.n_columns))
    for question in (lambda source: source.gram(), lambda source: source.mapped(transform, 2.0)):
        found, expected = question(rows), question(local)
        assert np.array_equal(found.high, expected.high)
        assert np.array_equal(found.low, expected.low)
    assert sorted(mark.stat().st_size for mark in tmp_path.iterdir()) == [1] * 5
    assert cached_partitions(spark) == 5
    rows.close()
    assert not cached_partitions(spark)
    release = gm.release(frame, SCHEMA, epsilon=1.0, delta=1e-6, reading=options)
    assert len(release.statistic.passes) == 4
    assert sorted(mark.stat().st_size for mark in tmp_path.iterdir()) == [2] * 5
    assert not cached_partitions(spark)


def cached_partitions(spark):
    return sum(stored.numCachedPartitions() for stored in spark.sparkContext._jsc.sc().getRDDStorageInfo())


def marking(folder):
    """A function that passes rows on and notes how often each partition was read."""

    def pass_on(batches):
        from pyspark import TaskContext

        with open(os.path.join(folder, str(TaskContext.get().partitionId())), "a") as mark:
            mark.write("x")
        yield from batches

    return pass_on


@pytest.mark.filterwarnings("ignore")
def test_lost_stored_rows_are_computed_again(spark_frame, gram):
    options = ReadOptions(persist=True)
    rows = rows_of(spark_frame.repartition(5), SCHEMA, options)
    rows.gram()
    for stored in rows._table._stored.values():
        stored.unpersist()
    assert np.array_equal(rows.gram().floats(), gram)
    rows.close()


@pytest.mark.filterwarnings("ignore")
def test_stored_values_are_batches_of_many_rows(spark_frame):
    """A value for each row made persist slower than no persist."""
    rows = rows_of(spark_frame, SCHEMA, ReadOptions(persist=True))
    rows.gram()
    (stored,) = rows._table._stored.values()
    assert stored.count() <= 15  # of 30,000 rows, in batches of 3000
    rows.close()


@pytest.mark.filterwarnings("ignore")
def test_stored_rows_are_deleted_after_an_error(spark, spark_frame):
    frame = spark_frame.repartition(5)
    for schema, expected, message in (
        (SCHEMA, 7, "does not have expected_rows=7"),
        ({**SCHEMA, "sex": ["f"]}, None, "not among its declared levels"),
    ):
        options = ReadOptions(persist=True, expected_rows=expected)
        with pytest.raises(gm.errors.DataError, match=message):
            gm.release(frame, schema, epsilon=1.0, delta=1e-6, reading=options)
        assert not cached_partitions(spark)


@pytest.mark.filterwarnings("ignore")
def test_each_release_has_stored_rows_of_its_own(spark, spark_frame, gram):
    """Spark stores equal plans once: the release that ended first deleted the rows of the other one."""
    first, second = (rows_of(spark_frame.repartition(5, "sex"), SCHEMA, ReadOptions(persist=True)) for _ in range(2))
    for rows in (first, second):  # also of partitions without rows
        assert np.array_equal(rows.gram().floats(), gram)
    assert cached_partitions(spark) == 10
    first.close()
    assert cached_partitions(spark) == 5
    assert np.array_equal(second.gram().floats(), gram)
    second.close()
    assert not cached_partitions(spark)


def test_stored_rows_that_cannot_be_deleted_are_a_warning(spark_frame):
    """The release that they were stored for has been drawn."""

    class Broken:
        def unpersist(self, blocking):
            raise RuntimeError(SECRET)

    rows = rows_of(spark_frame, SCHEMA, ReadOptions(persist=True))
    rows._table._stored["columns",] = Broken()
    with pytest.warns(UserWarning, match="could not delete the rows stored for persist=True") as caught:
        rows.close()
    assert SECRET not in str(caught[0].message)


@pytest.mark.filterwarnings("ignore")
def test_persist_is_for_releases_and_moments(spark_frame, gram):
    options = ReadOptions(persist=True)
    assert np.array_equal(gm.Moments.of(spark_frame, SCHEMA, reading=options).gram(), gram)
    for run in (
        lambda: gm.propose_bounds(spark_frame, {"age": "number"}, epsilon=1.0, delta=1e-6, reading=options),
        lambda: gm.per_unit(spark_frame, unit="sex", rows=gm.count(), reading=options),
    ):
        with pytest.raises(gm.errors.ArgumentError, match="persist has an effect only on releases and moments"):
            run()


@pytest.mark.filterwarnings("ignore")
def test_moments_are_computed_on_workers(spark_frame, table, gram, monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    for frame in (spark_frame, dd.from_pandas(table, npartitions=3)):
        monkeypatch.setattr(type(open_table(frame)), "read", None)
        assert np.array_equal(gm.Moments.of(frame, SCHEMA).gram(), gram)


@pytest.mark.filterwarnings("ignore")
def test_proposed_bounds_count_on_workers(spark_frame, table, monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    columns = PartialSchema.of({"age": "number", "sex": "category"})
    grids = {"age": FineGrid(0.0, 1.0, 128)}
    expected = count_columns(open_table(table), columns)
    finely = count_finely(open_table(table), columns, grids)
    for frame in (spark_frame.repartition(5, "sex"), dd.from_pandas(table, npartitions=3)):
        monkeypatch.setattr(type(open_table(frame)), "read", None)
        opened = open_table(frame)
        found = count_columns(opened, columns)
        assert np.array_equal(found.bins["age"], expected.bins["age"])
        assert found.keys == expected.keys
        assert np.array_equal(count_finely(opened, columns, grids)["age"], finely["age"])
        assert opened.readings == 2
        one = count_columns(open_table(frame), columns, OneRowEach("region", lambda: bytes(32)))
        assert one.bins["age"].sum() == sum(one.keys["sex"].values()) == 3
        found = gm.propose_bounds(frame, {"age": "number", "sex": "category"}, epsilon=1.0, delta=1e-6)
        assert found.schema.columns["sex"].levels == ("f", "m")


@pytest.mark.filterwarnings("ignore")
def test_vectors_of_spark_frames(spark):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.uniform(0, 1, 300)
    X[::7] *= 1e200
    schema = gm.Schema({"X": gm.Vector(3, norm=1.5), "y": gm.Numeric(0, 1)})
    rows = [(x, float(value)) for x, value in zip(X.tolist(), y, strict=True)]
    frame = spark.createDataFrame(rows, "X array<double>, y double").repartition(3)
    assert np.array_equal(
        gram_on_cluster(frame, schema, row_by_row=True).floats(), gm.Moments.of_arrays([(X, y)], schema).gram()
    )


@pytest.mark.filterwarnings("ignore")
def test_errors_of_spark_quote_no_value(spark, spark_frame):
    with pytest.raises(gm.errors.DataError, match=r"^Column 'sex' has values that are not among its declared levels"):
        gram_on_cluster(spark_frame, {**SCHEMA, "sex": ["f"]})
    texts = spark.createDataFrame([("1",), (SECRET,)], "s string")
    broken = texts.selectExpr(f"if(s = '{SECRET}', raise_error(s), 1.0) as a")
    for frame in (broken, spark.createDataFrame([(1.0, 2.0)], "a double, A double")):  # names that Spark confuses
        with pytest.raises(gm.errors.DataError, match="The Spark data frame failed") as caught:
            gram_on_cluster(frame, {"a": [0, 1]}, row_by_row=True)
        assert SECRET not in repr((caught.value, caught.value.__cause__, caught.value.__context__))


@pytest.mark.filterwarnings("ignore")
def test_spark_runs_one_job(spark, spark_frame, gram):
    """A job a partition would compute what was lost in between a second time, perhaps with other rows."""
    context = spark.sparkContext
    context.setJobGroup("moments", "one job")
    found = gram_on_cluster(spark_frame.repartition(20), SCHEMA)
    jobs = context.statusTracker().getJobIdsForGroup("moments")
    stages = [stage for job in jobs for stage in context.statusTracker().getJobInfo(job).stageIds]
    results = [context.statusTracker().getStageInfo(stage) for stage in stages]
    assert np.array_equal(found.floats(), gram)
    assert sum(info is not None and info.numTasks == 20 and info.numCompletedTasks == 20 for info in results) == 1


@pytest.mark.filterwarnings("ignore")
def test_a_spark_task_that_is_run_again_counts_once(spark_frame, gram, tmp_path):
    """Workers die after all of their rows were added up, each partition's first time."""
    frame = spark_frame.repartition(6).mapInArrow(dying_once(str(tmp_path)), spark_frame.schema)
    found = gram_on_cluster(frame, SCHEMA, row_by_row=True)
    assert len(list(tmp_path.iterdir())) == 6  # every one died
    assert np.array_equal(found.floats(), gram)


def dying_once(folder):
    """A function that passes rows on and then ends its process; the second time it does not."""

    def pass_on(batches):
        from pyspark import TaskContext

        yield from batches
        mark = os.path.join(folder, str(TaskContext.get().partitionId()))
        if not os.path.exists(mark):
            with open(mark, "w"):
                pass
            os._exit(1)

    return pass_on


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "spoil", [lambda rows: rows * 2, lambda rows: rows[1:], lambda rows: rows[:-1]], ids=["twice", "first", "last"]
)
def test_a_partition_that_comes_twice_or_not_at_all_is_refused(spark_frame, monkeypatch, spoil):
    from pyspark import RDD

    collect = RDD.collect
    monkeypatch.setattr(RDD, "collect", lambda self: spoil(collect(self)))
    with pytest.raises(gm.errors.DataError, match="Spark returned a partition twice or not at all"):
        gram_on_cluster(spark_frame.repartition(3), SCHEMA)


@pytest.mark.filterwarnings("ignore")
def test_spark_plans_that_work_row_by_row_are_read(spark, spark_frame, tmp_path):
    from pyspark.sql import functions

    spark.sparkContext.setCheckpointDir(str(tmp_path))
    spark_frame.createOrReplaceTempView("patients")
    for frame in (
        spark_frame.where("age > 30").select("age", (functions.col("age") * 2).alias("rand")),
        spark.sql("select age from patients where sex = 'f'"),
        spark_frame.repartition(3).dropna(),
    ):
        assert gram_on_cluster(frame, {"age": [0, 120]}).n > 0
    for frame in (
        spark_frame.limit(100).checkpoint(),
        spark_frame.groupBy("sex").agg(functions.max("age").alias("age")).localCheckpoint(),
        spark.createDataFrame([(30.0,)], "age double"),
    ):  # what made these rows is not shown
        with pytest.raises(gm.errors.ArgumentError, match="contains LogicalRDD"):
            gram_on_cluster(frame, {"age": [0, 120]})
        assert gram_on_cluster(frame, {"age": [0, 120]}, row_by_row=True).n > 0


@pytest.mark.filterwarnings("ignore")
def test_spark_plans_whose_rows_are_not_fixed_are_rejected(spark_frame):
    """After the loss of an executor a cached limit() may hold other rows, some of them counted twice."""
    from pyspark.sql import functions

    many = [functions.lit(1).alias(f"c{number}") for number in range(60)]
    for frame, found in (
        (spark_frame.limit(100).cache(), "GlobalLimit"),
        (spark_frame.sample(0.5, seed=1), "Sample"),
        (spark_frame.dropDuplicates(["sex"]), "Deduplicate"),
        (spark_frame.where(functions.rand() > 0.5), r"rand\(\)"),
        (spark_frame.select("age", *many, functions.uuid().alias("u")), r"uuid\(\)"),  # Spark shows 25 columns
        (spark_frame.withColumn("i", functions.monotonically_increasing_id()), r"monotonically_increasing_id\(\)"),
    ):
        for options in ({}, {"row_by_row": True}):
            with pytest.raises(gm.errors.ArgumentError, match=f"contains {found}, so Spark may return different rows"):
                gram_on_cluster(frame, {"age": [0, 120]}, **options)
        with pytest.raises(gm.errors.ArgumentError, match=f"contains {found}"):
            collected_gram(frame, {"age": [0, 120]})


@pytest.mark.filterwarnings("ignore")
def test_spark_plans_that_combine_rows_need_a_declaration(spark, spark_frame):
    from pyspark.sql import functions

    spark_frame.createOrReplaceTempView("everyone")
    for frame, found in (
        (spark_frame.union(spark_frame), "Union"),
        (spark_frame.groupBy("sex").agg(functions.max("age").alias("age")), "Aggregate"),
        (spark_frame.join(spark_frame.select("sex"), "sex"), "Join"),
        (spark_frame.selectExpr("avg(age) over (partition by sex) as age"), "Window"),
        (spark_frame.select(functions.explode(functions.array("age", "age")).alias("age")), "Generate"),
        (spark.sql("select age from everyone where 1 in (select age from everyone)"), "a subquery or a second scan"),
        (spark.sql("select (select max(age) from everyone) as age from everyone"), "Aggregate|a subquery"),
        (spark.sql("select age from everyone where exists (select 1 from everyone where age = 30)"), "a subquery"),
        (spark_frame.select(functions.udf(lambda age: age, "double")("age").alias("age")), "a function in Python"),
        (spark.createDataFrame(spark_frame.rdd.flatMap(lambda row: [(row["age"],)] * 5), "age double"), "LogicalRDD"),
        (spark.read.parquet(spark_frame.inputFiles()[0], spark_frame.inputFiles()[0]), "the same path twice"),
    ):
        with pytest.raises(gm.errors.ArgumentError, match=f"contains ({found}).*so one stored row may change several"):
            gram_on_cluster(frame, {"age": [0, 120]})
    kept = spark_frame.groupBy("sex").agg(functions.max("age").alias("age"))
    assert gram_on_cluster(kept, {"age": [0, 120]}, row_by_row=True).n == 2


@pytest.mark.filterwarnings("ignore")
def test_rows_that_change_between_passes_stop_the_release(spark, spark_frame):
    """As many rows as before, but others: a function in Python that no plan shows."""
    from pyspark.sql import functions

    drifting = functions.udf(lambda age: age + time.monotonic() % 1, "double")
    frame = spark_frame.select(drifting("age").alias("age"), "sex")
    options = ReadOptions(row_by_row=True)
    with pytest.raises(gm.errors.DataError, match="The table changed between two passes"):
        gm.release(frame, {"age": [0, 120], "sex": ["f", "m"]}, epsilon=1.0, delta=1e-6, reading=options)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("ModuleNotFoundError: No module named 'gaussmix'", "a worker lacks gaussmix"),
        (
            "Total size of serialized results of 3 tasks is bigger than spark.driver.maxResultSize",
            "use fewer partitions",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver",
            "PYSPARK_PYTHON",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        ("division by zero", "Run it separately for the details"),
    ],
)
def test_causes_of_failed_jobs_are_named_without_values(words, cause):
    def fail():
        raise RuntimeError(f"{words} {SECRET}")

    with pytest.raises(gm.errors.DataError, match=cause) as caught:
        _computed(fail, "The Spark data frame")
    assert SECRET not in repr((caught.value, caught.value.__cause__, caught.value.__context__))


@pytest.mark.filterwarnings("ignore")
def test_features_of_units_on_spark(spark, tmp_path):
    """One row for each unit, in any partitions; -0.0 and 0.0 are one unit."""
    rng = np.random.default_rng(0)
    rows = [
        (float(unit * sign), float(day), float(cost))
        for unit, sign, day, cost in zip(
            rng.integers(0, 40, 900),
            rng.choice([-1.0, 1.0], 900),
            rng.integers(0, 9, 900),
            rng.integers(0, 99, 900),
            strict=True,
        )
    ]
    frame = spark.createDataFrame(rows, "unit double, day double, cost double").repartition(6)
    frame.write.mode("overwrite").parquet(str(tmp_path / "rows"))
    frame = spark.read.parquet(str(tmp_path / "rows")).repartition(6)
    features = {"visits": gm.count(), "mean": gm.mean("cost", bounds=(0, 99)), "last": gm.last("cost", by="day")}
    found = gm.per_unit(frame, unit="unit", **features)
    columns = dict(zip(["unit", "day", "cost"], map(np.array, zip(*rows, strict=True)), strict=True))
    wanted = gm.per_unit(columns, unit="unit", **features).to_arrow()
    assert sorted(map(tuple, found.collect())) == sorted(tuple(row.values()) for row in wanted.to_pylist())
    assert gram_on_cluster(found, {"visits": [0, 99]}).n == wanted.num_rows


# ------------------------------------------------------------------------------------------------------ privacy units
UNIT_SCHEMA = {"day": [0, 9], "cost": [0, 99]}


def unit_table(kind=float):
    """900 rows of 40 units; some ids of floats are -0.0."""
    rng = np.random.default_rng(1)
    units = (rng.integers(0, 40, 900) * rng.choice([-1, 1], 900)).astype(kind)
    if kind is float:
        units[units == 0] *= rng.choice([-1.0, 1.0], (units == 0).sum())
    return {"unit": units, "day": rng.integers(0, 9, 900).astype(float), "cost": rng.integers(0, 99, 900).astype(float)}


def unit_results(data, unit, key=bytes(range(32)), **options):
    """All statistics of a release with a privacy unit, under a fixed key."""
    rows = rows_of(data, UNIT_SCHEMA, ReadOptions(**options), unit=unit, new_key=lambda: key)
    m = rows.schema.n_columns
    transform = Transform.nearest(np.linalg.qr(np.random.default_rng(0).standard_normal((m, m)))[0] * 7.0)
    gram = rows.gram()
    sums = rows.mapped(transform, 20.0), rows.mapped(transform, 20.0, Sample.seeded(0.3, 0))
    counts = rows.counts([transform], [np.geomspace(1, 100, 9)])[0]
    arrays = [gram.floats(), *(array for own in sums for array in (own.high, own.low)), counts]
    return [*map(np.asarray, arrays), np.array(rows.unit_counts())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bounding", ["scale", "sample"])
@pytest.mark.parametrize("kind", [float, int])
def test_privacy_units_on_dask_give_the_same_bits(bounding, kind):
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    table, unit = unit_table(kind), gm.PrivacyUnit("unit", 7, bounding)
    frame = dd.from_pandas(pd.DataFrame(table), npartitions=5)
    for found, wanted in zip(unit_results(frame, unit), unit_results(table, unit), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bounding", ["scale", "sample"])
def test_privacy_units_on_spark_give_the_same_bits(spark, bounding):
    import pandas as pd

    table, unit = unit_table(), gm.PrivacyUnit("unit", 7, bounding)
    frame = spark.createDataFrame(pd.DataFrame(table)).repartition(5)
    expected = unit_results(table, unit)
    for persist in (False, True):
        found = unit_results(frame, unit, row_by_row=True, persist=persist)
        assert all(map(np.array_equal, found, expected))


@pytest.mark.filterwarnings("ignore")
def test_a_release_with_privacy_units_on_dask():
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame(unit_table(int)), npartitions=3)
    unit = gm.PrivacyUnit("unit", 3)
    release = gm.release(frame, UNIT_SCHEMA, epsilon=1.0, delta=1e-6, privacy_unit=unit)
    assert release.certificate.privacy_unit == unit
    with pytest.raises(gm.errors.ArgumentError, match="sorted_by_unit has no effect on Dask and Spark"):
        rows_of(frame, UNIT_SCHEMA, ReadOptions(sorted_by_unit=True), unit=unit, new_key=lambda: bytes(32))
    missing = dd.from_pandas(pd.DataFrame(unit_table(int)).assign(unit=None).astype({"unit": object}), npartitions=2)
    with pytest.raises(gm.errors.DataError, match="has missing values"):
        rows_of(missing, UNIT_SCHEMA, unit=unit, new_key=lambda: bytes(32)).gram()


@pytest.mark.filterwarnings("ignore")
def test_fractional_ids_are_refused_on_dask_as_elsewhere():
    """Truncated, 1.2 and 1.7 were one unit."""
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = pd.DataFrame({"unit": [1.2, 1.7, 2.0], "day": [1.0, 2.0, 3.0], "cost": [1.0, 2.0, 3.0]})
    for data in (frame, dd.from_pandas(frame, npartitions=1)):
        with pytest.raises(gm.errors.DataError, match="has fractional numbers"):
            rows_of(data, UNIT_SCHEMA, unit=gm.PrivacyUnit("unit", 1), new_key=lambda: bytes(32)).gram()
