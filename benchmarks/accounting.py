"""Time of one calibration, and the figures of the accounting, printed as a table. Run: make bench."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from gaussmix import accounting
from gaussmix.calibration import _noise_alone, calibrate

BUDGETS = [(1.0, 1e-6, 250), (0.1, 1e-8, 57), (5.0, 1e-5, 10_000)]


def best_of(function: Callable[[], object], repeats: int = 7) -> float:
    """Shortest of several runs, in milliseconds; the first run warms up. Nothing is remembered from run to run."""
    times = []
    for _ in range(repeats + 1):
        _noise_alone.cache_clear()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def main() -> None:
    ways = {
        "none, exact": {},
        "none, renyi": {"analysis": "renyi"},
        "none, replace-one": {"relation": "replace-one"},
        "private, exact": {"scale": "private"},
        "private, paper": {"scale": "private", "analysis": "paper"},
    }
    table = Table(title="One calibration, best of 7, milliseconds", title_justify="left")
    for heading in ("calibration", *(f"ε={e:g} δ={d:g} k={k}" for e, d, k in BUDGETS)):
        table.add_column(heading, justify="left" if heading == "calibration" else "right")
    for name, options in ways.items():
        cells = [
            f"{best_of(lambda e=e, d=d, k=k, o=options: calibrate(e, d, sketch_size=k, **o)):.1f}"
            for e, d, k in BUDGETS
        ]
        table.add_row(name, *cells)
    Console().print(table)
    print(f"one δ: {best_of(lambda: accounting.delta(1.0, sketch_size=250, gamma=53.0)):.2f} ms")


if __name__ == "__main__":
    main()
