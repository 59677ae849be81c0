"""The same table from every engine, lost workers, and the cost of Spark: python -m benchmarks.engines bits.

``bits`` compares every sum of a release in four passes, with and without privacy units, between a file, Dask, Spark,
DuckDB and a database through ADBC. ``faults`` kills executors and workers while they read, lets tasks fail or run
twice, and compares the sums with those of a file. ``speed`` measures processor time of the whole process tree,
``memory`` the memory of the driver for 300 columns in 200 partitions, and ``wide`` the time of a release of 20,000 rows
and 1,000 columns.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gaussmix as gm
from gaussmix._types import Integers
from gaussmix.data.rows import rows_of
from gaussmix.data.source import ReadOptions
from gaussmix.data.transforms import Transform
from gaussmix.releases.marginals import MarginalPlan
from gaussmix.releases.preconditioning import bin_edges

NUMBERS = 20
SCHEMA: dict[str, Any] = {
    **{f"x{i:02d}": [-5, 5] for i in range(NUMBERS)},
    "flag": "boolean",
    "kind": ["a", "b", "c"],
    "y": [-15, 15],
}
UNIT = gm.PrivacyUnit("unit", 8)
FAULTS = ("worker killed", "task retried", "speculative task", "executor killed")
"""The first is of Dask, the others of Spark."""

_BLOCK = 250_000
Sums = list[Integers]


# ---------------------------------------------------------------------------------------------------------------
# Tables
def write_rows(path: Path, rows: int) -> None:
    """Write 24 columns: 21 numbers, a boolean, a category and a privacy unit of about five rows."""
    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, _BLOCK):
        n = min(_BLOCK, rows - start)
        x = rng.standard_normal((n, NUMBERS))
        x[:, 5:] += x[:, :1]
        columns: dict[str, Any] = {f"x{i:02d}": x[:, i] for i in range(NUMBERS)}
        columns["flag"] = rng.random(n) < 0.3
        columns["kind"] = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
        columns["unit"] = rng.integers(0, max(rows // 5, 1), n)
        columns["y"] = x[:, :5].sum(axis=1) + rng.standard_normal(n)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


@contextmanager
def spark_session(master: str = "local[2]", **settings: str) -> Iterator[Any]:
    """Start Spark with this interpreter on its workers."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def sqlite_copy(path: Path, folder: Path) -> Path:
    """Copy a table into a SQLite database through ADBC."""
    from adbc_driver_sqlite import dbapi

    found = folder / "rows.sqlite"
    with dbapi.connect(str(found)) as connection, connection.cursor() as cursor:
        for number, batch in enumerate(pq.ParquetFile(path).iter_batches(2**16)):
            flag = batch.schema.get_field_index("flag")
            batch = batch.set_column(flag, "flag", batch["flag"].cast(pa.int64()))
            cursor.adbc_ingest("t", pa.Table.from_batches([batch]), mode="append" if number else "create")
        connection.commit()
    return found


@contextmanager
def engines(path: Path, folder: Path) -> Iterator[dict[str, tuple[Any, ReadOptions]]]:
    """Yield the same table from every engine."""
    import dask.dataframe as dd
    import duckdb
    from adbc_driver_sqlite import dbapi

    database = str(sqlite_copy(path, folder))
    with spark_session(spark_sql_shuffle_partitions="8") as spark:
        yield {
            "file": (path, ReadOptions()),
            "Dask": (dd.read_parquet(path, split_row_groups=True), ReadOptions()),
            "Spark": (spark.read.parquet(str(path)), ReadOptions()),
            "Spark, persisted": (spark.read.parquet(str(path)), ReadOptions(persist=True)),
            "Spark, 40 partitions": (spark.read.parquet(str(path)).repartition(40), ReadOptions()),
            "DuckDB": (duckdb.sql(f"FROM '{path}'"), ReadOptions()),
            "ADBC (SQLite)": (
                gm.Query(lambda: dbapi.connect(database), "SELECT * FROM t"),
                ReadOptions(row_by_row=True),
            ),
        }


# ---------------------------------------------------------------------------------------------------------------
# Same bits
def requests(path: Path) -> list[tuple[Transform, float]]:
    """Return transforms and clips of the later passes of a release of the file."""
    private = gm.release(path, SCHEMA, epsilon=1.0, delta=1e-6)
    later = [output.request for output in private.statistic.passes[1:]]
    return [(request.metric.transform, request.clip) for request in later if request is not None]


def sums_of(data: Any, options: ReadOptions, asked: list[tuple[Transform, float]], unit: gm.PrivacyUnit | None) -> Sums:
    """Return every exact sum of a release: marginals, first pass, and histogram and matrix of later passes."""
    schema = gm.Schema.of(SCHEMA)
    plan = MarginalPlan(schema, (), 1 if unit is None else unit.max_contributions, "add-remove")
    rows = rows_of(data, schema, options, unit=unit, new_key=lambda: bytes(32))
    counted = rows.recoded(plan.schema).aggregate(plan.query)
    first = rows.gram()
    found = [counted.counts, counted.sums, counted.squares, first.high, first.low, np.array([first.n])]
    for transform, clip in asked:
        found += rows.counts([transform], [bin_edges(clip / 8)])
        sums = rows.mapped(transform, clip)
        found += [sums.high, sums.low]
    if unit is not None:
        found.append(np.array(rows.unit_counts()))
    return found


def compare_bits(rows: int) -> bool:
    """Print whether all engines give the bits of a file."""
    same = True
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.parquet"
        write_rows(path, rows)
        asked = requests(path)
        with engines(path, Path(name)) as tables:
            for unit in (None, UNIT):
                wanted: Sums = []
                for engine, (data, options) in tables.items():
                    start = time.time()
                    found = sums_of(data, options, asked, unit)
                    wanted = wanted or found
                    equal = all(map(np.array_equal, found, wanted))
                    same &= equal and len(found) == len(wanted)
                    words = "units" if unit else "rows"
                    print(f"{engine:22} {words:6} {len(found)} sums, {'same' if equal else 'OTHER'} bits, "
                          f"{time.time() - start:.0f} s", flush=True)  # fmt: skip
    return same


# ---------------------------------------------------------------------------------------------------------------
# Lost workers
def retried(folder: str, *, sleep: float = 0.0) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return a function that passes rows on; the first time in each partition it then dies, or sleeps."""

    def pass_on(batches: Any) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        mark = os.path.join(folder, str(context.partitionId()))
        first = not os.path.exists(mark)
        with open(mark, "a") as attempts:
            attempts.write("x")
        yield from batches
        if first and sleep and context.partitionId() == 0:
            time.sleep(sleep)
        if first and not sleep:
            os._exit(1)

    return pass_on


def slowly(folder: str) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return a function that passes rows on slowly, and says when it has begun."""

    def pass_on(batches: Any) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        with open(os.path.join(folder, str(context.partitionId())), "a"):
            pass
        time.sleep(0.4)
        yield from batches

    return pass_on


@contextmanager
def standalone_cluster() -> Iterator[str]:
    """Start a master and two workers with one executor each, under different addresses as speculation needs."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def start(kind: str, *arguments: str) -> None:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_WORKER_DIR": folder}
            process = subprocess.Popen(command, env=environment, **quiet)
            stack.callback(process.wait)
            stack.callback(process.kill)

        port = 20_000 + os.getpid() % 10_000
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        time.sleep(6)
        for number in (1, 2):
            place = ["--host", f"127.0.0.{number}", "--webui-port", "0"]
            start("worker.Worker", *place, "-c", "1", "-m", "1g", f"spark://127.0.0.1:{port}")
        time.sleep(6)
        yield f"spark://127.0.0.1:{port}"


def executors(application: str) -> list[int]:
    """Return the processes of an application's executors on this machine."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and application.encode() in command:
            found.append(int(name))
    return found


def kill_when_begun(application: str, folder: str, after: float) -> threading.Thread:
    """Kill one executor some time after the first partition has begun."""

    def kill() -> None:
        while not os.listdir(folder):
            time.sleep(0.02)
        time.sleep(after)
        for process in executors(application)[:1]:
            os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


class Tally:
    """Counts how often sums were exact, refused or wrong."""

    def __init__(self, name: str, wanted: Any) -> None:
        self.name, self._wanted, self.counts = name, wanted, {"exact": 0, "refused": 0, "wrong": 0}
        self.struck = 0

    def run(self, data: Any, **options: Any) -> None:
        """Add up one table."""
        try:
            found = rows_of(data, SCHEMA, ReadOptions(**options)).gram()
            same = np.array_equal(found.high, self._wanted.high) and np.array_equal(found.low, self._wanted.low)
            self.counts["exact" if same and found.n == self._wanted.n else "wrong"] += 1
        except gm.errors.DataError:
            self.counts["refused"] += 1

    def show(self) -> None:
        """Print the counts."""
        print(f"{self.name:38} {self.counts}, {self.struck} runs with a fault", flush=True)


def inject_faults(rows: int, runs: int, faults: Sequence[str]) -> bool:
    """Print how often sums were exact, refused or wrong."""
    tallies = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.parquet"
        write_rows(path, rows)
        wanted = rows_of(path, SCHEMA).gram()
        if FAULTS[0] in faults:
            tallies.append(_dask_faults(path, Tally("Dask: worker killed", wanted), runs))
        kinds = [fault for fault in FAULTS[1:] if fault in faults]
        if not kinds:
            return not tallies[0].counts["wrong"]
        with (
            standalone_cluster() as master,
            spark_session(
                master,
                spark_driver_host="127.0.0.1",
                spark_executor_memory="512m",
                spark_task_maxFailures="8",
                spark_speculation="true",
                spark_speculation_interval="100ms",
                spark_speculation_multiplier="1.2",
                spark_speculation_quantile="0.5",
                spark_speculation_minTaskRuntime="200ms",
                spark_deploy_maxExecutorRetries="-1",
            ) as spark,
        ):
            application = spark.sparkContext.applicationId
            frame = spark.read.parquet(str(path)).repartition(6)
            for kind in kinds:
                tally = Tally(f"Spark: {kind}", wanted)
                for number in range(runs):
                    with tempfile.TemporaryDirectory() as folder:
                        if kind == FAULTS[1]:
                            tally.run(frame.mapInArrow(retried(folder), frame.schema), row_by_row=True)
                            tally.struck += len(os.listdir(folder)) == 6
                        elif kind == FAULTS[2]:
                            tally.run(frame.mapInArrow(retried(folder, sleep=10.0), frame.schema), row_by_row=True)
                            tally.struck += any(mark.stat().st_size > 1 for mark in Path(folder).iterdir())
                        else:
                            before = set(executors(application))
                            thread = kill_when_begun(application, folder, 0.1 * (number % 10))
                            tally.run(frame.mapInArrow(slowly(folder), frame.schema), row_by_row=True)
                            thread.join(10)
                            tally.struck += bool(before - set(executors(application)))
                    print(tally.name, tally.counts, tally.struck, flush=True)
                tallies.append(tally)
                tally.show()
    return not any(tally.counts["wrong"] for tally in tallies)


def _dask_faults(path: Path, tally: Tally, runs: int) -> Tally:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    def slow(frame: Any) -> Any:
        time.sleep(0.2)
        return frame

    frame = dd.read_parquet(path, split_row_groups=True).repartition(npartitions=6)
    frame = frame.map_partitions(slow, meta=frame._meta)
    while tally.struck < runs:
        with (
            LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            while tally.struck < runs and len(processes := list(client.run(os.getpid).values())) > 1:
                delay = 0.2 + 0.1 * (tally.struck % 10)
                timer = threading.Timer(delay, os.kill, (processes[0], signal.SIGKILL))
                timer.start()
                tally.run(frame)
                timer.join()
                tally.struck += 1
                print(tally.name, tally.counts, flush=True)
    tally.show()
    return tally


# ---------------------------------------------------------------------------------------------------------------
# Cost
def tree_seconds() -> float:
    """Return the processor time of this process and all that descend from it."""
    tick, children, own = os.sysconf("SC_CLK_TCK"), dict[int, list[int]](), dict[int, float]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        own[int(name)] = sum(map(int, fields[11:15])) / tick
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += own.get(process, 0.0)
        waiting += children.get(process, [])
    return total


def _emptied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def measure_speed(rows: int) -> None:
    """Print the processor time of a default release from a file and from Spark.

    Also that of three jobs in which Spark passes the rows to a function that only counts them.
    """
    with tempfile.TemporaryDirectory() as name, spark_session(spark_driver_memory="2g") as spark:
        path = Path(name) / "rows.parquet"
        write_rows(path, rows)
        spark.range(10).count()
        frame, persist = spark.read.parquet(str(path)), ReadOptions(persist=True)
        runs: list[tuple[str, Any, ReadOptions | None]] = [
            ("file", path, None),
            ("Spark", frame, None),
            ("Spark again", frame, None),
        ]
        runs += [("Spark, persisted", frame, persist), ("file again", path, None)]
        for engine, data, reading in runs:
            spark.sparkContext.setJobGroup(engine, engine)
            start, before = time.time(), tree_seconds()
            gm.release(data, SCHEMA, epsilon=1.0, delta=1e-6, reading=reading)
            jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(engine))
            seconds = tree_seconds() - before
            print(f"{engine:16} {seconds:.1f} s of processor, {time.time() - start:.0f} s, {jobs} jobs", flush=True)
        before = tree_seconds()
        for _ in range(3):
            frame.select(*SCHEMA).mapInArrow(_emptied, "rows long").collect()
        print(f"counting in three jobs {tree_seconds() - before:.1f} s of processor", flush=True)


def measure_memory(columns: int, partitions: int) -> None:
    """Print what a release adds to the memory of the Python process of the driver, and the size of all results."""
    names = [f"c{i}" for i in range(columns)]
    schema = {name: [0, 1] for name in names}
    # A result set of all partial sums, 16 m² bytes each, would be refused by the driver.
    with spark_session(spark_driver_maxResultSize="150m", spark_driver_memory="1g") as spark:
        frame = spark.range(20_000, numPartitions=partitions).selectExpr(
            *[f"(id * {2 * i + 1}) % 997 / 997 as c{i}" for i in range(columns)]
        )
        before = _peak()
        gm.release(frame, schema, epsilon=1.0, delta=1e-6, passes=1)
        all_sums = 16 * (columns + 1) ** 2 * partitions / 2**20
        print(f"partial sums {all_sums:.0f} MiB; driver (Python) {before:.0f} MiB before, {_peak():.0f} MiB at most")


def measure_wide(rows: int, columns: int) -> None:
    """Print the time of a default release of a table with many columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns))
    x[:, 1:] += 0.5 * x[:, :1]
    schema = {f"x{i}": [-6, 6] for i in range(columns)}
    start, before = time.time(), tree_seconds()
    gm.release((x, list(schema)), schema, epsilon=1.0, delta=1e-6)
    print(f"{rows} x {columns}: {time.time() - start:.0f} s, {tree_seconds() - before:.0f} s of processor")


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bits", "faults", "speed", "memory", "wide"])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=20, help="runs of each fault")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="default: all of them")
    parser.add_argument("--columns", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=200)
    options = parser.parse_args()
    if options.what == "bits":
        sys.exit(not compare_bits(options.rows))
    if options.what == "faults":
        sys.exit(not inject_faults(options.rows, options.runs, options.fault or FAULTS))
    if options.what == "speed":
        measure_speed(options.rows)
    elif options.what == "wide":
        measure_wide(20_000, 1_000)
    else:
        measure_memory(options.columns, options.partitions)


if __name__ == "__main__":
    main()
