"""One line for each measured number in a CSV file, with the machine, the commit and the date it was measured at.

Measures that begin with ``ratio`` are times over that of a yardstick in the same run, less is better: these are
compared between commits and machines (:mod:`benchmarks.compare`).
"""

from __future__ import annotations

import csv
import datetime
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

Measurement = tuple[str, str, float]  # what was run, what was measured (with its unit), and the number

RATIO = "ratio"
"""How the measures begin that are compared."""


def best_in_turns(
    contenders: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Shortest time of each in milliseconds; they take turns, and the first turn warms up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, call in contenders.items():
            start = clock()
            call()
            if turn:
                times[name].append(1e3 * (clock() - start))
    return {name: min(values) for name, values in times.items()}


def append(path: Path | None, benchmark: str, measurements: Iterable[Measurement]) -> None:
    """Add measurements to a file, which gets a heading if it is new; with no file do nothing."""
    if path is None:
        return
    where = {"date": _now(), "commit": _commit(), "cpu": _cpu(), "cores": os.cpu_count(), "benchmark": benchmark}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*where, "case", "measure", "value"])
        if new:
            writer.writeheader()
        writer.writerows(
            {**where, "case": case, "measure": measure, "value": f"{value:.4g}"}
            for case, measure, value in measurements
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _commit() -> str:
    """The checked-out commit, marked where files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _cpu() -> str:
    """The processor's model; Linux keeps it in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
