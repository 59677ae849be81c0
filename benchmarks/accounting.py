"""Time of one calibration, and of one δ: python -m benchmarks.accounting [--csv FILE].

Calibrations are remembered by the package; here every run forgets them first, so that what is timed is the work. The
yardstick is scipy's incomplete gamma function on 100,000 numbers, which a textbook's curve would be made of.
"""

from __future__ import annotations

import argparse
import functools
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import gammaincc

from benchmarks import record
from gaussmix import accounting, calibrate

BUDGETS = [(1.0, 1e-6, 250), (0.1, 1e-8, 57), (5.0, 1e-5, 10_000)]
WAYS: dict[str, dict[str, Any]] = {
    "none, exact": {},
    "none, renyi": {"analysis": "renyi"},
    "none, replace-one": {"neighbours": "replace-one"},
    "private, exact": {"scale": "private"},
    "private, paper": {"scale": "private", "analysis": "paper"},
}
REPEATS = 3


def forget() -> None:
    """Empty every cache of the package, wherever it is kept."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper) and found.__module__.startswith("gaussmix"):
            found.cache_clear()


def best_of(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Shortest of several runs, in milliseconds; the first run warms up. Nothing is remembered from run to run."""
    times = []
    for _ in range(repeats + 1):
        forget()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    cases = [f"ε={epsilon:g} δ={delta:g} k={k}" for epsilon, delta, k in BUDGETS]
    table = Table(title=f"One calibration, best of {REPEATS}, milliseconds", title_justify="left")
    for heading in ("calibration", *cases):
        table.add_column(heading, justify="left" if heading == "calibration" else "right")
    measured: list[record.Measurement] = []
    for way, how in WAYS.items():
        times = [best_of(functools.partial(calibrate, e, d, sketch_size=k, **how)) for e, d, k in BUDGETS]
        measured += [(f"{way}, {case}", "ms", taken) for case, taken in zip(cases, times, strict=True)]
        table.add_row(way, *(f"{taken:.1f}" for taken in times))
    one_delta = best_of(lambda: accounting.delta(1.0, sketch_size=250, gamma=53.0))
    Console().print(table)
    print(f"one δ: {one_delta:.2f} ms")
    measured.append(("one δ", "ms", one_delta))
    points = np.linspace(100.0, 150.0, 100_000)
    yardstick = best_of(lambda: gammaincc(125.0, points))
    measured += [(case, f"{record.RATIO} to gammaincc", taken / yardstick) for case, _, taken in measured]
    record.append(options.csv, "accounting", measured)


if __name__ == "__main__":
    main()
