"""Speed of a private fit, as ratios within one run: python -m benchmarks.speed [--threads 1 2] [--csv FILE].

Contenders alternate in one process after a warm-up, and each is given its best of several runs. Yardsticks: the faster
of ``A.T @ A`` and BLAS ``dsyrk`` on the same array; the paper's explicit sketch S·A with the same generator; and
scikit-learn's LinearRegression. A fit is the whole of it: reading, noise and solving. ``--cpu`` takes processor time,
not the clock's, on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.linalg.blas import dsyrk
from sklearn.linear_model import LinearRegression

import gaussmix as gm
from benchmarks import record
from benchmarks.readings import learned
from gaussmix.data.rows import ArrayRows
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.mechanism.noise import secure_generator
from gaussmix.paper.mixing import draw_rows

LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
CHILD, CPU = "GAUSSMIX_SPEED_CHILD", "GAUSSMIX_SPEED_CPU"
SKETCH, SKLEARN = "explicit sketch, k = 2.5 d", "LinearRegression"
PRODUCT = "faster product"  # of A.T @ A and dsyrk


def best(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Shortest time of each in milliseconds, taken in turns."""
    return record.best_in_turns(contenders, repeats, time.process_time if os.environ.get(CPU) else time.perf_counter)


class Results:
    """A printed table, and the same numbers for a file."""

    def __init__(self, threads: str) -> None:
        self.threads = threads
        self.measured: list[record.Measurement] = []
        self.table = Table(title=f"{threads} thread(s)", title_justify="left")
        for heading in ("fit", "yardstick", "fit, ms", "yardstick, ms", "ratio", "asked"):
            self.table.add_column(heading, justify="left" if heading in ("fit", "yardstick") else "right")

    def add(self, fit: str, yardstick: str, ours: float, theirs: float, asked: str) -> None:
        """A fit's time against a yardstick's."""
        ratio = f"{ours / theirs:.2f}" if ours > theirs else f"1 / {theirs / ours:.1f}"
        self.table.add_row(fit, yardstick, f"{ours:.0f}", f"{theirs:.0f}", ratio, asked)
        case = f"{fit}, against {yardstick}, {self.threads} thread(s)"
        self.measured += [(case, "fit ms", ours), (case, "yardstick ms", theirs), (case, record.RATIO, ours / theirs)]


def against_gram(results: Results, n: int, d: int, declared: dict[str, Any], asked: tuple[str, str]) -> None:
    """Fits in one pass and in four against the faster of two products of the same array."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = A @ rng.standard_normal(d) / d
    one, four = (gm.LinearRegression(epsilon=1.0, bounds_y=(-1, 1), passes=passes, **declared) for passes in (1, 4))
    yardsticks: dict[str, Callable[[], object]] = {"A.T @ A": lambda: A.T @ A, "dsyrk": lambda: dsyrk(1.0, A.T)}
    times = best({"one pass": lambda: one.fit(A, y), "four passes": lambda: four.fit(A, y), **yardsticks}, repeats=5)
    yardstick = min(times[name] for name in yardsticks)
    for name, limit in zip(("one pass", "four passes"), asked, strict=True):
        results.add(f"{next(iter(declared))}, {n:,} × {d}, {name}", PRODUCT, times[name], yardstick, limit)


def against_other_fits(results: Results, n: int, d: int) -> None:
    """A fit against the explicit sketch and least squares."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = A @ rng.standard_normal(d) / d
    part, generator = np.column_stack([A, y])[: n // 10], secure_generator()
    model = gm.LinearRegression(epsilon=1.0, data_norm=1.0, bounds_y=(-1, 1), fit_intercept=False, passes=1)
    pieces = np.array_split(part, -(-len(part) // 2**10))
    contenders: dict[str, Callable[[], object]] = {
        "fit": lambda: model.fit(A, y),
        SKETCH: lambda: draw_rows(iter(pieces), part.shape[1], int(2.5 * d), 1.0, generator),
        SKLEARN: lambda: LinearRegression().fit(A, y),
    }
    times = best(contenders, repeats=3)
    times[SKETCH] *= 10  # a tenth of the rows was sketched; its cost is linear in them
    for name, asked in ((SKETCH, "≤ 1 / 7"), (SKLEARN, "≤ 1 / 3")):
        results.add(f"data_norm, {n:,} × {d}", name, times["fit"], times[name], asked)


def readings(make: Callable[[], ArrayRows], early: Sample | None, histograms: Sample | None) -> Callable[[], object]:
    """All that a release in four passes reads: three histograms of two metrics, and four Gram matrices.

    Passes between the first and the last read the sample ``early``, histograms theirs; None is every row.
    """
    metrics, edges, triangle, clip = learned(make(), make().gram().n)

    def read() -> None:
        rows = make()  # it keeps sampling keys
        rows.gram()
        for sample in (early, early, None):
            rows.counts(metrics, edges, histograms)
            rows.mapped(triangle, clip, sample)

    return read


def passes(
    results: Results, n: int, d: int, declared: dict[str, Any], rates: tuple[float, float], asked: tuple[str, str]
) -> None:
    """Readings of a release in one pass, and in four, against the faster of two products of the same array."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = A @ rng.standard_normal(d) / d
    schema = Schema.of({"X": {"size": d, **declared}, "y": [-1, 1]})
    whole = Sample.secure(1.0)
    early, histograms = (None if rate == 1 else whole.at(rate) for rate in rates)
    contenders = {
        "one": lambda: ArrayRows(A, y, schema).gram(),
        "four": readings(lambda: ArrayRows(A, y, schema), early, histograms),
        "A.T @ A": lambda: A.T @ A,
        "dsyrk": lambda: dsyrk(1.0, A.T),
    }
    times = best(contenders, repeats=5)
    one, four = times.pop("one"), times.pop("four")
    results.add(f"one reading, {n:,} × {d}", PRODUCT, one, min(times.values()), asked[0])
    read = f"readings of four passes, {n:,} × {d}, rates {rates[0]:g} and {rates[1]:g}"
    results.add(read, PRODUCT, four, min(times.values()), asked[1])


def measure(csv: Path | None, part: int) -> None:
    """All comparisons, under the limits of this process, with one row in ``part``."""
    results = Results(os.environ[LIMITS[0]])
    wide, long = 200_000 // part, 1_000_000 // part
    passes(results, wide, 100, {"norm": 1.0}, (1.0, 0.5), ("≤ 1.3", "≤ 15"))  # rates at ε = 1, δ = 10⁻⁶
    passes(results, long, 20, {"lower": -1, "upper": 1}, (0.1, 0.1), ("≤ 2", "≤ 6"))
    against_gram(results, wide, 100, {"data_norm": 1.0}, ("≤ 1.8", "≤ 15"))
    against_gram(results, long, 20, {"bounds_X": (-1, 1)}, ("≤ 4", "≤ 6"))
    against_other_fits(results, wide, 100)
    Console(width=110).print(results.table)
    record.append(csv, "speed", results.measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="*", default=["1", "2"])
    parser.add_argument("--cpu", action="store_true", help="processor time instead of the clock's")
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    if os.environ.get(CHILD):
        measure(options.csv, options.part)
        return
    for threads in options.threads:  # BLAS reads its limit when it is loaded
        environment = {**os.environ, CHILD: "1", **dict.fromkeys(LIMITS, threads)} | ({CPU: "1"} if options.cpu else {})
        subprocess.run([sys.executable, "-m", "benchmarks.speed", *sys.argv[1:]], env=environment, check=True)


if __name__ == "__main__":
    main()
