"""Large tables: memory and speed of a release from Parquet, against column sums by DuckDB and polars.

python benchmarks/tables.py make FOLDER      # writes 2 and 20 million rows × 21 columns, and 16 files of the first
python benchmarks/tables.py run FOLDER       # releases them, one process each, and prints the table
python benchmarks/tables.py dask FOLDER      # two single-thread Dask workers against one process
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table

COLUMNS = [f"x{i}" for i in range(20)] + ["y"]
SCHEMA = {name: [-4, 4] for name in COLUMNS}
ROW_GROUP = 2**18


def write(path: Path, rows: int, seed: int) -> None:
    """A table of numbers in full precision, which Parquet cannot compress."""
    rng = np.random.default_rng(seed)
    schema = pa.schema([(name, pa.float64()) for name in COLUMNS])
    with pq.ParquetWriter(path, schema) as writer:
        for start in track(range(0, rows, ROW_GROUP), description=path.name):
            block = rng.standard_normal((min(ROW_GROUP, rows - start), len(COLUMNS)))
            writer.write_table(pa.Table.from_arrays(list(block.T.copy()), schema=schema))


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "2m.parquet", 2_000_000, 0)
    write(folder / "20m.parquet", 20_000_000, 1)
    (folder / "parts").mkdir(exist_ok=True)
    for i in range(16):
        write(folder / "parts" / f"{i:02}.parquet", 250_000, 100 + i)


def measured(what: str, path: str) -> dict[str, float]:
    """Run one task in a process of its own: seconds of the second run, and peak memory."""
    done = subprocess.run([sys.executable, __file__, what, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def task(what: str, path: str) -> None:
    if what == "release":
        import gaussmix as gm

        def call() -> object:
            return gm.release(path, schema=SCHEMA, epsilon=1.0, delta=1e-6)

    elif what == "duckdb":
        import duckdb

        def call() -> object:
            sums = ", ".join(f"sum({name})" for name in COLUMNS)
            return duckdb.sql(f"SELECT {sums} FROM '{path}'").fetchall()

    else:
        import polars

        def call() -> object:
            return polars.scan_parquet(path).select(polars.all().sum()).collect()

    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    print(json.dumps({"seconds": best, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def run(folder: Path) -> None:
    table = Table(title="Parquet, 21 columns of float64", title_justify="left")
    for heading in ("rows", "task", "seconds", "rows/s", "of the faster scan", "peak MiB"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    peaks = []
    for name, rows in (("2m", 2_000_000), ("20m", 20_000_000)):
        results = {what: measured(what, str(folder / f"{name}.parquet")) for what in ("duckdb", "polars", "release")}
        fastest = min(results["duckdb"]["seconds"], results["polars"]["seconds"])
        peaks.append(results["release"]["peak"])
        for what, result in results.items():
            cells = [f"{result['seconds']:.2f}", f"{rows / result['seconds']:,.0f}"]
            table.add_row(f"{rows:,}", what, *cells, f"{fastest / result['seconds']:.2f}", f"{result['peak']:.0f}")
    Console().print(table)
    print(f"peak memory of the release, 20 million rows over 2 million: {peaks[1] / peaks[0]:.2f}")


def dask(folder: Path) -> None:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    import gaussmix as gm
    from gaussmix.cluster import moments_on_cluster

    files = str(folder / "parts" / "*.parquet")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        times: dict[str, list[float]] = {"dask": [], "one process": []}
        for _ in range(4):
            start = time.perf_counter()
            on_cluster = moments_on_cluster(dd.read_parquet(files), SCHEMA)
            times["dask"].append(time.perf_counter() - start)
            start = time.perf_counter()
            local = gm.Moments.from_(files, SCHEMA)
            times["one process"].append(time.perf_counter() - start)
    best = {name: min(values[1:]) for name, values in times.items()}
    print({name: round(value, 2) for name, value in best.items()}, f"ratio {best['dask'] / best['one process']:.2f}")
    print("the same bits:", bool(np.array_equal(on_cluster.gram(), local.gram())))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    action, where = sys.argv[1], sys.argv[2]
    if action in ("make", "run", "dask"):
        {"make": make, "run": run, "dask": dask}[action](Path(where))
    else:
        task(action, where)
