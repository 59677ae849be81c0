"""Speed of a private fit, as ratios within one run: python benchmarks/speed.py [--threads 1 2].

Contenders alternate in one process after a warm-up, and each is given its best of several runs. Yardsticks: the faster
of ``A.T @ A`` and BLAS ``dsyrk`` on the same array; the paper's explicit sketch S·A with the same generator; and
scikit-learn's LinearRegression.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

REPEATS = 9


def best(contenders: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """Shortest time of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def measure() -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from scipy.linalg.blas import dsyrk
    from sklearn.linear_model import LinearRegression

    from gaussmix import LinearMixing
    from gaussmix.sampling import explicit_sketch, secure_generator

    rng = np.random.default_rng(0)
    table = Table(title=f"{os.environ['OPENBLAS_NUM_THREADS']} thread(s)", title_justify="left")
    for heading in ("fit", "yardstick", "fit, ms", "yardstick, ms", "ratio", "asked"):
        table.add_column(heading, justify="left" if heading in ("fit", "yardstick") else "right")

    def gram_row(n: int, d: int, declared: dict[str, object], words: str, asked: str) -> None:
        A = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
        y = A @ rng.standard_normal(d) / d
        model = LinearMixing(epsilon=1.0, bounds_y=(-1, 1), **declared)
        times = best({"fit": lambda: model.fit(A, y), "matmul": lambda: A.T @ A, "dsyrk": lambda: dsyrk(1.0, A.T)})
        yardstick = min(times["matmul"], times["dsyrk"])
        name = "A.T @ A" if times["matmul"] < times["dsyrk"] else "dsyrk"
        row = [f"{1e3 * times['fit']:.0f}", f"{1e3 * yardstick:.0f}", f"{times['fit'] / yardstick:.2f}"]
        table.add_row(f"{words}, {n:,} × {d}", name, *row, asked)

    gram_row(200_000, 100, {"data_norm": 1.0}, "data_norm", "≤ 1.8")
    gram_row(200_000, 200, {"data_norm": 1.0}, "data_norm", "≤ 1.5")
    gram_row(1_000_000, 20, {"bounds_X": (-1, 1)}, "bounds_X", "≤ 4")

    n, d = 200_000, 100
    A = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = A @ rng.standard_normal(d) / d
    Ay = np.column_stack([A, y])
    model = LinearMixing(epsilon=1.0, data_norm=1.0, bounds_y=(-1, 1), fit_intercept=False)
    generator = secure_generator()
    slow = {
        "explicit sketch, k = 2.5 d": lambda: explicit_sketch([Ay[:20_000]], int(2.5 * d), 1.0, generator),
        "LinearRegression": lambda: LinearRegression().fit(A, y),
    }
    times = best({"fit": lambda: model.fit(A, y), **slow}, repeats=3)
    times["explicit sketch, k = 2.5 d"] *= 10  # a tenth of the rows was sketched; its cost is linear in them
    for name, asked in (("explicit sketch, k = 2.5 d", "≥ 7"), ("LinearRegression", "≥ 3")):
        row = [f"{1e3 * times['fit']:.0f}", f"{1e3 * times[name]:.0f}", f"1 / {times[name] / times['fit']:.1f}"]
        table.add_row(f"data_norm, {n:,} × {d}", name, *row, asked)
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="*", default=["1", "2"])
    for threads in parser.parse_args().threads:  # BLAS reads its limit when it is loaded
        limits = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "GAUSSMIX_SPEED_CHILD": "1"}
        subprocess.run([sys.executable, __file__], env={**os.environ, **limits}, check=True)


if __name__ == "__main__":
    if os.environ.get("GAUSSMIX_SPEED_CHILD"):
        measure()
    else:
        main()
