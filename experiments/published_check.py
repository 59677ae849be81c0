"""Does our emulation of the published code do what the code does? Its numbers against the code's own.

    GAUSSMIX_DATA=... python -m experiments.published_check

``results/published_reference.csv`` holds what the authors' code gave (commit 746a96b, executed unchanged but for its
list of sets): 250 trials on Boston, Wine and Bike, on the split of ``np.random.seed(50)`` and one permutation. Here:

- ``replayed``: our formulas with explicit sketches and the code's own random stream; this must give the same means.
- ``emulated``: our formulas with sketches drawn through their Gram matrix, as in Figures 2 and 4, more trials, and the
  replay's λ̃ for AdaSSP. z is the difference to the code's mean in joint standard errors; of 72
  one in a hundred should exceed 2.576, so the bound for all of them together is given too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from experiments.data_files import CACHE, RESULTS
from experiments.linear import EPSILONS, real_table, split
from experiments.parallel import Rows, forget, run_all
from experiments.published import PublishedCode

REFERENCE = RESULTS / "published_reference.csv"
PUBLISHED_TRIALS, TRIALS = 250, 2_000
COVERAGE = 0.99


def check(name: str, trials: int, emulated_trials: int) -> Rows:
    """Test errors of the replay and of the emulation on the published split."""
    stream = np.random.RandomState(50)
    X, y, X_test, y_test = split(*real_table(name), stream)
    rows: Rows = []
    for epsilon in EPSILONS:
        code = PublishedCode(X, y, epsilon=epsilon, delta=1 / len(y) ** 2)
        eigenvalue = code.adassp_eigenvalue(stream)
        rng = np.random.default_rng(round(1e4 * epsilon))
        drawn = [("replayed", code.replayed_trial(stream, eigenvalue)) for _ in range(trials)]
        drawn += [("emulated", code.one_trial(rng, eigenvalue)) for _ in range(emulated_trials)]
        for how, found in drawn:
            for method, theta in found.items():
                mse = float(np.mean((y_test - X_test @ theta) ** 2))
                rows.append({"set": name, "epsilon": round(epsilon, 9), "method": method, "how": how, "mse": mse})
    return rows


def compare(reference: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """The code's means, the replay's and the emulation's, the last with its distance in joint standard errors."""
    groups = ours.groupby(["set", "epsilon", "method", "how"])["mse"]
    means = groups.mean().unstack()
    error = (groups.std() / np.sqrt(groups.size())).unstack()["emulated"].rename("error")
    table = reference.assign(epsilon=reference["epsilon"].round(9))
    table = table.merge(means.join(error).reset_index(), on=["set", "epsilon", "method"])
    table["z"] = (table["emulated"] - table["mse"]) / np.hypot(table["ci95"] / 1.96, table.pop("error"))
    return table[["set", "epsilon", "method", "mse", "ci95", "replayed", "emulated", "z"]]


def main() -> None:
    """Run, compare and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "published_check.csv")
    arguments = parser.parse_args()
    forget(CACHE / "published_check")
    jobs = [(name, PUBLISHED_TRIALS, TRIALS) for name in ("bike", "wine", "boston")]
    table = compare(pd.read_csv(REFERENCE), run_all(check, jobs, folder=CACHE / "published_check"))
    table.to_csv(arguments.out, index=False, float_format="%.8g")
    single = stats.norm.isf((1 - COVERAGE) / 2)
    together = stats.norm.isf((1 - COVERAGE ** (1 / len(table))) / 2)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.5g}"))
    print(
        f"Replayed: largest relative difference {(table['replayed'] / table['mse'] - 1).abs().max():.1e} over "
        f"{len(table)} means. Emulated: {(table['z'].abs() <= single).sum()} within {single:.3f} joint standard "
        f"errors; largest {table['z'].abs().max():.2f}; bound for all together at {COVERAGE:.0%}: {together:.2f}."
    )


if __name__ == "__main__":
    main()
