"""LogisticRegression by default, in passes, on the features of Figures 3 and 5.

    python -m experiments.dp_sgd                 # once: features (needs torch)
    python -m experiments.logistic_in_passes

The same protocol, features and budgets as :mod:`experiments.logistic`, whose heads read the rows once: no intercept, a
declared norm, the number of rows public. ``LogisticMixing, passes`` is the default, the linear discriminant of a
release in four passes. The rows ``LogisticMixing, steps`` of the results are of version 0.2.0, whose private Newton
steps did not require an intercept. A fit takes a third of a second: 50 trials of the head's noise.
``experiments.reproduce --draw figure3 figure5`` draws both beside the others.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from experiments.data_files import CACHE, RESULTS
from experiments.logistic import TRIALS_A_JOB, folder, head_table, summarise, test_error
from experiments.network_features import EPSILONS, NETWORK_SHARE
from experiments.parallel import Rows, forget, run_all
from gaussmix import BudgetWarning, LogisticRegression

HEADS = ("LogisticMixing, passes",)
TRIALS = 50
SETS = ("fashion", "cifar100", "cifar10", "mnist")
FILE = "figures_3_and_5_passes.csv"


def trials(name: str, epsilon: float, method: str, first: int, count: int, cache: Path) -> Rows:
    """Test errors of one head in some trials."""
    warnings.filterwarnings("ignore", message="n_rows=.* is too small")
    warnings.simplefilter("ignore", BudgetWarning)  # a total of 31.6 is part of the protocol
    table = head_table(name, epsilon, cache, largest_norm=False)
    rows: Rows = []
    for trial in range(first, first + count):
        head = LogisticRegression(
            epsilon=(1 - NETWORK_SHARE) * epsilon,
            delta=table.delta,
            data_norm=1.0,
            fit_intercept=False,
            classes=(-1, 1),
            n_rows=len(table.y),
            random_state=np.random.default_rng([trial, list(HEADS).index(method), round(1000 * epsilon), 35]),
        ).fit(table.X, table.y)
        error = test_error(head.coef_[0], table.X_test, table.y_test)
        rows.append({"set": name, "epsilon": epsilon, "method": method, "error": error})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and write one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS.tolist())
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--fresh", action="store_true", help="forget the trials of an earlier version")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    kept = folder(options.sets, options.epsilons, options.cache) / "in_passes"
    if options.fresh:
        forget(kept, prefixes=options.sets)
    jobs = [
        (name, epsilon, method, first, min(TRIALS_A_JOB, options.trials - first), options.cache)
        for name in options.sets
        for epsilon in options.epsilons
        for method in HEADS
        for first in range(0, options.trials, TRIALS_A_JOB)
    ]
    table = summarise(run_all(trials, jobs, folder=kept, processes=options.processes))
    options.results.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.results / FILE, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
