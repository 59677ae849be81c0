"""Fits of one array by other estimators: python -m benchmarks.peers [--part 20] [--csv FILE].

LinearRegression in one pass and in four, exact AdaSSP of this library, scikit-learn's least squares (not private) and
diffprivlib's LinearRegression, over AᵀA of the same array: processor time, one thread. diffprivlib has an environment
of its own, ``.venv-field`` (``make bench`` makes it); without it, it is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import gaussmix as gm
from benchmarks import record
from gaussmix.baselines import AdaSSP

SIZES = ((100_000, 10), (100_000, 40))
REPEATS = 3
PYTHON = Path(__file__).parents[1] / ".venv-field" / "bin" / "python"
GRAM, DIFFPRIVLIB = "AᵀA", "diffprivlib"


def by_diffprivlib(X: np.ndarray, y: np.ndarray) -> float:
    """Milliseconds of a fit, in the environment that has it."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given.npz"
        np.savez(given, X=X, y=y)
        command: list[str | Path] = [PYTHON, Path(__file__).with_name("peers_diffprivlib.py"), given, str(REPEATS)]
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def times_of(n: int, d: int) -> dict[str, float]:
    """Milliseconds of every fit, and of AᵀA."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    y = np.clip(X @ rng.standard_normal(d) / d, -1, 1)
    declared: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds_X": (-1, 1), "bounds_y": (-1, 1)}
    models = {
        "LinearMixing, one pass": gm.LinearRegression(passes=1, **declared),
        "LinearMixing, four passes": gm.LinearRegression(passes=4, **declared),
        "AdaSSP": AdaSSP(**declared),
        "scikit-learn, not private": LinearRegression(),
    }
    contenders: dict[str, Callable[[], object]] = {GRAM: lambda: X.T @ X}
    contenders |= {name: lambda model=model: model.fit(X, y) for name, model in models.items()}  # type: ignore[misc]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = record.best_in_turns(contenders, REPEATS, time.process_time)
    return found | ({DIFFPRIVLIB: by_diffprivlib(X, y)} if PYTHON.exists() else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="one row in so many, to try it")
    parser.add_argument("--csv", type=Path, help="file to add the measurements to")
    options = parser.parse_args()
    table = Table(title="Fits over AᵀA, one thread, processor time", title_justify="left")
    for heading in ("rows", "columns", "fit", "ms", "ratio"):
        table.add_column(heading, justify="left" if heading == "fit" else "right")
    measured: list[record.Measurement] = []
    for rows, d in SIZES:
        n = rows // options.part
        found = times_of(n, d)
        for name in (name for name in found if name != GRAM):
            ratio = found[name] / found[GRAM]
            table.add_row(f"{n:,}", str(d), name, f"{found[name]:.0f}", f"{ratio:.1f}")
            measured += [(f"{name}, {n:,} × {d}", "cpu ms", found[name])]
            measured += [(f"{name}, {n:,} × {d}", f"{record.RATIO} to {GRAM}", ratio)]
    Console().print(table)
    record.append(options.csv, "peers", measured)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
