"""Large tables: memory and speed of a release from Parquet, against column sums by DuckDB and polars.

    python -m benchmarks.tables                                               # two small tables in a folder for once
    python -m benchmarks.tables --rows 2000000 20000000 --folder FOLDER       # large ones, which stay there (4 GB)
    python -m benchmarks.tables --dask --rows 4000000 --folder FOLDER         # two Dask workers against one process

Each task has a process of its own, for its peak of memory. With ``--csv FILE`` the measurements are added to a file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import record
from benchmarks.record import RATIO

COLUMNS = [f"x{i}" for i in range(20)] + ["y"]
SCHEMA = {name: [-4, 4] for name in COLUMNS}
ROW_GROUP = 2**18
SMALL = (200_000, 1_000_000)
PARTS = 16  # files for Dask


def write(path: Path, rows: int, seed: int) -> Path:
    """A table of numbers in full precision, which Parquet cannot compress; one that is there is kept."""
    if path.exists():
        return path
    rng = np.random.default_rng(seed)
    schema = pa.schema([(name, pa.float64()) for name in COLUMNS])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with pq.ParquetWriter(unfinished, schema) as writer:
        console = Console(stderr=True)
        for start in track(range(0, rows, ROW_GROUP), description=path.name, console=console):
            block = rng.standard_normal((min(ROW_GROUP, rows - start), len(COLUMNS)))
            writer.write_table(pa.Table.from_arrays(list(block.T.copy()), schema=schema))
    return unfinished.rename(path)


# ---------------------------------------------------------------------------------------------------------------
# Tasks, each imported and run in a process of its own
def release(path: str) -> object:
    """What is measured: a release in one pass."""
    import gaussmix as gm

    return gm.release(path, schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1)


def in_passes(path: str) -> object:
    """The same in four passes."""
    import gaussmix as gm

    return gm.release(path, schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=4)


def duckdb_sums(path: str) -> object:
    """Column sums by DuckDB."""
    import duckdb

    sums = ", ".join(f"sum({name})" for name in COLUMNS)
    return duckdb.execute(f"SELECT {sums} FROM '{path}'").fetchall()


def polars_sums(path: str) -> object:
    """Column sums by polars."""
    import polars

    return polars.scan_parquet(path).select(polars.all().sum()).collect()


TASKS: dict[str, Callable[[str], object]] = {
    "duckdb": duckdb_sums,
    "polars": polars_sums,
    "release": release,
    "in passes": in_passes,
}


def best_time(call: Callable[[], object], runs: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the shortest of several runs."""
    times = []
    for _ in range(runs):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def peak_memory() -> float:
    """Of this process since it was started, in MiB; ``getrusage`` counts its parent's too. Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def task(name: str, path: str) -> None:
    """In the process of a task: its seconds and its peak of memory in MiB, printed."""
    seconds = best_time(lambda: TASKS[name](path))
    print(
        json.dumps(
            {"s": seconds, "cpu s": best_time(lambda: TASKS[name](path), 2, time.process_time)}
            | {"peak MiB": peak_memory()}
        )
    )


def measured(name: str, path: Path) -> dict[str, float]:
    """The same, seen from outside."""
    command = [sys.executable, "-m", "benchmarks.tables", "--task", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---------------------------------------------------------------------------------------------------------------
# Comparisons
def against_scans(folder: Path, sizes: list[int]) -> list[record.Measurement]:
    """A release against two column sums of the same file."""
    table = Table(title="Parquet, 21 columns of float64", title_justify="left")
    for heading in ("rows", "task", "seconds", "rows/s", "of the faster scan", "cpu s", "of one pass", "peak MiB"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    found: list[record.Measurement] = []
    for seed, rows in enumerate(sizes):
        path = write(folder / f"{rows}.parquet", rows, seed)
        results = {name: measured(name, path) for name in TASKS}
        fastest = min(results["duckdb"]["s"], results["polars"]["s"])
        for name, result in results.items():
            cells = [f"{result['s']:.2f}", f"{rows / result['s']:,.0f}", f"{fastest / result['s']:.2f}"]
            cells += [f"{result['cpu s']:.2f}", f"{result['cpu s'] / results['release']['cpu s']:.2f}"]
            table.add_row(f"{rows:,}", name, *cells, f"{result['peak MiB']:.0f}")
            found += [(f"{name}, {rows:,} rows", measure, value) for measure, value in result.items()]
        ours = {name: results[name] for name in ("release", "in passes")}
        found += [(f"{name}, {rows:,} rows", f"{RATIO} to a scan", of["s"] / fastest) for name, of in ours.items()]
        cpu = ours["in passes"]["cpu s"] / ours["release"]["cpu s"]
        found.append((f"in passes, {rows:,} rows", f"{RATIO} of cpu to one pass", cpu))
    Console().print(table)
    return found


def against_dask(folder: Path, rows: int) -> list[record.Measurement]:
    """Moments by two Dask workers of one thread against one process."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    import gaussmix as gm
    from gaussmix.data.rows import rows_of

    parts = folder / f"{rows}_parts"
    for i in range(PARTS):
        write(parts / f"{i:02}.parquet", rows // PARTS, 100 + i)
    files = str(parts / "*.parquet")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        on_cluster, local = rows_of(dd.read_parquet(files), SCHEMA).gram(), gm.Moments.of(files, SCHEMA)
        times = {
            "dask": best_time(lambda: rows_of(dd.read_parquet(files), SCHEMA).gram()),
            "one process": best_time(lambda: gm.Moments.of(files, SCHEMA)),
        }
    print({name: round(value, 2) for name, value in times.items()}, f"ratio {times['dask'] / times['one process']:.2f}")
    print("the same bits:", bool(np.array_equal(on_cluster.floats(), local.gram())))
    return [(f"{name}, {rows:,} rows", "s", value) for name, value in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", type=int, default=list(SMALL))
    parser.add_argument("--folder", type=Path, help="where the tables are made and stay")
    parser.add_argument("--dask", action="store_true", help="compare Dask with one process instead")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    parser.add_argument("--task", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        task(*options.task)
        return
    with tempfile.TemporaryDirectory() as for_once:
        folder = options.folder or Path(for_once)
        if options.dask:
            found = [row for rows in options.rows for row in against_dask(folder, rows)]
        else:
            found = against_scans(folder, options.rows)
    record.append(options.csv, "tables", found)


if __name__ == "__main__":
    main()
