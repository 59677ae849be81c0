"""What a fit in one pass is made of, and readings by compiled functions and by numpy: python -m benchmarks.readings.

Every part over the product AᵀA of the same array: processor time, one thread. Readings are those of a first pass, of a
later pass, whose rows are mapped and clipped, and of a histogram of two metrics; compiled functions serve up to 512
columns. Noise is that of one pass; what a fit takes besides is the choice of a ridge.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks import record
from gaussmix import LinearRegression
from gaussmix._types import Floats
from gaussmix.data import kernels
from gaussmix.data.rows import ArrayRows
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import Transform
from gaussmix.mechanism.noise import symmetric_noise
from gaussmix.releases.preconditioning import bin_edges

SIZES = ((1_000_000, 20), (200_000, 100), (200_000, 18), (64_516, 62), (31_746, 126), (21_052, 190), (15_748, 254))
READINGS = ("first pass", "later pass", "histogram")
BY_NUMPY, REST = ", by numpy", "rest of the fit"
REPEATS = 5


def learned(rows: ArrayRows, n: int) -> tuple[list[Transform], list[Floats], Transform, float]:
    """What later passes ask for: two metrics and their bins for a histogram, one transform and its clip."""
    values, vectors = np.linalg.eigh(rows.gram().floats() / n)
    rotation, values = Transform.nearest(vectors.T), np.maximum(values, 1e-6)
    metrics = [Transform(rotation.integers, rotation.scales * values ** (-power / 2)) for power in (0.75, 1.0)]
    edges = [bin_edges(float(np.sum(values ** (1 - power)))) for power in (0.75, 1.0)]
    return metrics, edges, metrics[1].triangular(), float(edges[1][8])


def parts(n: int, d: int) -> dict[str, float]:
    """Milliseconds of AᵀA, of every reading by both ways, of the noise, and of a fit in one pass."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (n, d))
    y = A @ rng.standard_normal(d) / d
    rows = ArrayRows(A, y, Schema.of({"X": {"size": d, "lower": -1, "upper": 1}, "y": [-1, 1]}), threads=1)
    metrics, edges, triangle, clip = learned(rows, n)
    read: dict[str, Callable[[], object]] = {
        "first pass": rows.gram,
        "later pass": lambda: rows.mapped(triangle, clip),
        "histogram": lambda: rows.counts(metrics, edges),
    }
    slowly = patch.object(kernels, "serves", lambda columns: False)
    model = LinearRegression(epsilon=1.0, delta=1e-6, bounds_X=(-1, 1), bounds_y=(-1, 1), passes=1)
    contenders: dict[str, Callable[[], object]] = {
        "AᵀA": lambda: A.T @ A,
        **read,
        **{f"{name}{BY_NUMPY}": slowly(call) for name, call in read.items()},
        "noise": lambda: symmetric_noise(d + 2, diagonal=1e12, off_diagonal=7e11, rng=None),
        "fit in one pass": lambda: model.fit(A, y),
    }
    times = record.best_in_turns(contenders, REPEATS, time.process_time)
    times[REST] = times["fit in one pass"] - times["first pass"] - times["noise"]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    readings = [heading for name in READINGS for heading in (name, f"{name}{BY_NUMPY}")]
    headings = (*readings, "noise", REST, "fit in one pass")
    table = Table(title="Over AᵀA, one thread, processor time", title_justify="left")
    for heading in ("rows", "columns", "AᵀA, ms", *headings):
        table.add_column(heading, justify="right")
    measured: list[record.Measurement] = []
    for rows, d in SIZES:
        n = rows // options.part
        times = parts(n, d)
        gram = times.pop("AᵀA")
        table.add_row(f"{n:,}", str(d), f"{gram:.1f}", *(f"{times[name] / gram:.2f}" for name in headings))
        for name in headings:
            case = f"{n:,} × {d}, {name}"
            # What is left over is a difference of two numbers, too uncertain to be compared.
            measure = f"{'share' if name == REST else record.RATIO} to AᵀA"
            measured += [(case, "cpu ms", times[name]), (case, measure, times[name] / gram)]
    Console(width=200).print(table)
    record.append(options.csv, "readings", measured)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
