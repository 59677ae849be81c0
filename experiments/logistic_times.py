"""How long LogisticMixing takes as printed, with an explicit sketch, and drawn through the Gram matrix.

    python -m experiments.logistic_times

Both draws are timed in turn, on one thread, on made features of the shapes of Figures 3 and 5 with their tuned k: the
time of a sketch depends on the shape and on nothing else. Objective perturbation, whose time depends on the features,
was timed beside LogisticMixing through the Gram matrix when the heads were fitted (``figure3_times.csv``,
``figure5_times.csv``); :func:`ratios` combines the two. Calibration, which sees no data and is remembered, is counted
nowhere, nor is it in the paper.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from experiments.data_files import RESULTS
from experiments.network_features import EPSILONS, NETWORK_SHARE, D, total_delta
from gaussmix import calibrate, paper
from gaussmix.accounting.calibration import eigenvalue_error_bound
from gaussmix.paper.sketch import METHODS

SHAPES = {"fashion": (12_000, 576), "cifar100": (1_000, 960), "cifar10": (10_000, 960), "mnist": (11_982, 832)}
FILE = "figures_3_and_5_sketch_times.csv"
REPEATS = 9
PAPER, LBFGS = "LogisticMixing, paper", "objective perturbation, L-BFGS"


def sketch_times(name: str, n: int, k: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of Algorithm 1 and least squares, by either draw."""
    rng = np.random.default_rng(0)
    X = np.maximum(rng.standard_normal((n, D)), 0)
    A = np.column_stack([X / np.linalg.norm(X, axis=1, keepdims=True), rng.choice([-1.0, 1.0], n)])
    share = 1 - NETWORK_SHARE
    calibration = calibrate(
        share * float(EPSILONS[-1]),
        share * total_delta(n),
        sketch_size=k,
        scale="private",
        analysis="paper",
        eigenvalue_error=eigenvalue_error_bound(D + 1, n_max=n),
    )
    taken: dict[str, list[float]] = {method: [] for method in METHODS}
    for repeat in range(repeats + 1):
        for method in METHODS:
            start = time.perf_counter()
            sketch = paper.modified_gauss_mix(
                A, math.sqrt(2), calibration=calibration, n_max=n, method=method, rng=repeat
            )
            sketch.lstsq(sketch.columns[-1])
            taken[method].append(time.perf_counter() - start)
    gram, explicit = (1e3 * float(np.median(taken[method][1:])) for method in ("gram", "explicit"))
    return {"set": name, "n": n, "d": D, "k": k, "gram_ms": gram, "explicit_ms": explicit, "ratio": explicit / gram}


def ratios(fits: pd.DataFrame, sketches: pd.DataFrame) -> dict[str, str]:
    """What the figures print: time of objective perturbation over that of LogisticMixing, for each set."""
    if not len(fits) or not len(sketches):
        return {}
    fitted = fits.pivot_table(index="set", columns="method", values="fit_ms")
    slower = sketches.set_index("set")["ratio"]
    found = {}
    for name in fitted.index.intersection(slower.index):
        by_gram = fitted.loc[name, LBFGS] / fitted.loc[name, PAPER]
        found[name] = (
            "run time of objective perturbation (L-BFGS) over that of LogisticMixing:\n"
            f"{by_gram / slower[name]:.2g} with the explicit sketch as printed, {by_gram:.2g} through the Gram matrix"
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    """Time both draws and write one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        table = pd.DataFrame([sketch_times(name, *shape, options.repeats) for name, shape in SHAPES.items()])
    options.results.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.results / FILE, index=False, float_format="%.4g")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
