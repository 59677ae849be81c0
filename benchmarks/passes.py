"""How a release grows with rows, columns and passes: python -m benchmarks.passes [--part 20] [--csv FILE].

Releases of an array, reading, noise and all, over the product AᵀA of the same array: processor time, one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import gaussmix as gm
from benchmarks import record

SIZES = ((50_000, 20), (200_000, 20), (800_000, 20), (200_000, 5), (200_000, 60))
PASSES = (1, 2, 3, 4)
REPEATS = 3


def against_gram(n: int, d: int) -> dict[int, tuple[float, float]]:
    """Milliseconds of a release and of AᵀA, by the number of passes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    columns = {f"x{i}": X[:, i] for i in range(d)}
    schema = {name: [-1, 1] for name in columns}
    contenders: dict[str, Callable[[], object]] = {"gram": lambda: X.T @ X}
    for passes in PASSES:
        contenders[str(passes)] = lambda passes=passes: gm.release(  # type: ignore[misc]
            columns, schema=schema, epsilon=1.0, delta=1e-6, passes=passes
        )
    times = record.best_in_turns(contenders, REPEATS, time.process_time)
    return {passes: (times[str(passes)], times["gram"]) for passes in PASSES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    table = Table(title="Release over AᵀA, one thread, processor time", title_justify="left")
    for heading in ("rows", "columns", *(f"{passes} pass{'es' * (passes > 1)}" for passes in PASSES)):
        table.add_column(heading, justify="right")
    measured: list[record.Measurement] = []
    for rows, d in SIZES:
        n = rows // options.part
        found = against_gram(n, d)
        table.add_row(f"{n:,}", str(d), *(f"{ours / gram:.1f}" for ours, gram in found.values()))
        for passes, (ours, gram) in found.items():
            case = f"{n:,} × {d}, {passes} passes"
            measured += [(case, "cpu ms", ours), (case, f"{record.RATIO} to AᵀA", ours / gram)]
    Console().print(table)
    record.append(options.csv, "passes", measured)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
