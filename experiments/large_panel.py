"""Memory and processor time of a release whose unit is a person, and of features per person, from a large table.

    python -m experiments.large_panel --rows 20000000 --persons 2000000

Rows of a person are all over the file; seven columns, four passes. The table is written to a temporary folder (1.2 GB
for 20 million rows). It is made, released and reduced to one row per person by a process each, so that their peaks of
memory are separate.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gaussmix as gm

NUMBERS = [f"x{i}" for i in range(5)]
SCHEMA = {**{name: [0, 1] for name in NUMBERS}, "b": "boolean", "y": [0, 1]}
CHUNK = 1_000_000


def write(path: Path, rows: int, persons: int) -> None:
    """A table whose rows belong to persons at random."""
    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        x = rng.uniform(0, 1, (n, len(NUMBERS)))
        columns = {"who": rng.integers(0, persons, n), **dict(zip(NUMBERS, x.T, strict=True)), "b": rng.random(n) < 0.3}
        table = pa.table({**columns, "y": x[:, :3] @ [0.1, 0.2, 0.3] + rng.uniform(0, 0.1, n)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def released(path: Path) -> None:
    """Release the table."""
    gm.release(path, schema=SCHEMA, epsilon=1.0, delta=1e-9, privacy_unit=gm.PrivacyUnit("who", 12))


def reduced(path: Path) -> None:
    """Compute one row of features for each person."""
    gm.per_unit(
        path, unit="who", n=gm.count(), b=gm.any("b"), x=gm.mean("x0", bounds=(0, 1)), last=gm.last("y", by="x1")
    )


def measured(work: Callable[[Path], None], path: Path) -> None:
    """Print processor time and the largest memory of this process."""
    start = time.process_time()
    work(path)
    spent, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{work.__name__}: {peak:.0f} MiB at most, {spent:.0f} s of one processor", flush=True)


def main() -> None:
    """Run every step in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--persons", type=int, default=2_000_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        steps: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(write, (path, chosen.rows, chosen.persons))]
        steps += [(measured, (work, path)) for work in (released, reduced)]
        for function, arguments in steps:
            process = get_context("spawn").Process(target=function, args=arguments)
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
