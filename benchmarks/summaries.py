"""What is computed from a release: python -m benchmarks.summaries [--part 20] [--csv FILE].

Models, summaries, tables and the page of releases with few and with many columns, over one symmetric eigenvalue problem
of order 300: processor time, one thread. Rows play no part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import gaussmix as gm
from benchmarks import record
from gaussmix.report.page import render

ROWS = 20_000
COLUMNS = (10, 40)
REPEATS = 3


def made(columns: int, rows: int) -> gm.Release:
    """A release with numbers, one Boolean and one category."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, columns - 2))
    table: dict[str, Any] = {f"x{i}": X[:, i] for i in range(columns - 2)}
    table |= {"yes": rng.random(rows) < 0.4, "level": rng.choice(["a", "b", "c"], rows)}
    table["y"] = np.clip(X.sum(axis=1) / columns + table["yes"] + rng.normal(0, 0.3, rows), -4, 4)
    schema = {f"x{i}": [-1, 1] for i in range(columns - 2)}
    return gm.release(
        table, schema=schema | {"yes": "boolean", "level": ["a", "b", "c"], "y": [-4, 4]}, epsilon=3.0, delta=1e-6
    )


def tasks(private: gm.Release) -> dict[str, Callable[[], object]]:
    """What a reader asks for, each of a release of its own: nothing is remembered in between."""
    some = [name for name in private.schema.columns if name not in ("y", "yes")][:8]

    def loaded() -> gm.Release:
        return gm.Release(private.statistic, private.certificate)

    return {
        "ols": lambda: loaded().ols("y"),
        "summary": lambda: loaded().ols("y").summary().conf_int(),
        "population": lambda: loaded().ols("y").summary(estimand="population").conf_int(),
        "odds ratios": lambda: loaded().logit("yes", predictors=some).odds_ratios(),
        "describe": lambda: loaded().describe(),
        "page": lambda: render(loaded(), response="y"),
        "file": lambda: loaded().to_bytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    table = Table(title="From a release, one thread, processor time", title_justify="left")
    for heading in ("columns", "task", "ms", "over one eigh"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    measured: list[record.Measurement] = []
    A = np.random.default_rng(0).standard_normal((300, 300))
    for columns in COLUMNS:
        contenders: dict[str, Callable[[], object]] = {"eigh": lambda: np.linalg.eigh(A + A.T)}
        contenders |= tasks(made(columns, ROWS // options.part))
        times = record.best_in_turns(contenders, REPEATS, time.process_time)
        yardstick = times.pop("eigh")
        for name, taken in times.items():
            case = f"{name}, {columns} columns"
            table.add_row(str(columns), name, f"{taken:.1f}", f"{taken / yardstick:.2f}")
            measured += [(case, "cpu ms", taken), (case, f"{record.RATIO} to eigh", taken / yardstick)]
    Console().print(table)
    record.append(options.csv, "summaries", measured)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
