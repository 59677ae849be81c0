"""LinearRegression as it is by default, in passes, on the sets of Figures 2 and 4.

    GAUSSMIX_DATA=... python -m experiments.linear_in_passes

The same protocol and the same splits as :mod:`experiments.linear`, whose methods read the rows once; this one reads
them four times and learns their shape. 250 trials, on the three sets of 512 columns, where a fit takes seconds, the
first ten; there all methods of :mod:`experiments.linear` are fitted to the same ten tables, in a second file.
``experiments.reproduce --draw figure2 figure4`` draws it beside the others.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from experiments import linear
from experiments.data_files import CACHE, RESULTS
from experiments.datasets import LINEAR
from experiments.linear import EPSILONS, SYNTHETIC, TRIALS, TRIALS_A_JOB, split_table, summarise
from experiments.paper_table import DECLARED
from experiments.parallel import Rows, forget, run_all
from gaussmix import BudgetWarning, LinearRegression

METHOD = "LinearMixing, passes"
WIDE_TRIALS = 10
FILE, FOLDER = "figures_2_and_4_passes.csv", "linear_in_passes"
WIDE_FILE, WIDE_FOLDER = "figures_2_and_4_wide.csv", "linear_wide"


def trials(name: str, first: int, count: int) -> Rows:
    """Test errors of every ε in some trials."""
    # Budgets that are hopeless, and that protect nobody, are part of the protocol.
    warnings.filterwarnings("ignore", message="n_rows=.* is too small")
    warnings.simplefilter("ignore", BudgetWarning)
    rows: Rows = []
    for trial in range(first, first + count):
        X, y, X_test, y_test = split_table(name, np.random.default_rng([trial, 2505]))
        for number, epsilon in enumerate(EPSILONS):
            rng = np.random.default_rng([trial, number, 77])
            budget = {"epsilon": epsilon, "delta": 1 / len(y) ** 2, "n_rows": len(y), "random_state": rng}
            fitted = LinearRegression(**DECLARED, **budget).fit(X, y)
            mse = float(np.mean((y_test - fitted.predict(X_test)) ** 2))
            rows.append({"set": name, "method": METHOD, "epsilon": epsilon, "mse": mse})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and write one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(LINEAR), choices=list(LINEAR))
    parser.add_argument("--trials", type=int, default=TRIALS, help="on sets of few columns")
    parser.add_argument("--wide-trials", type=int, default=WIDE_TRIALS)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--fresh", action="store_true", help="forget the trials of an earlier version")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    folder, wide_folder = options.cache / FOLDER, options.cache / WIDE_FOLDER
    if options.fresh:
        forget(folder, prefixes=options.sets)
        forget(wide_folder, prefixes=options.sets)
    jobs = [
        (name, first, min(TRIALS_A_JOB, count - first))
        for name in options.sets
        for count in [options.wide_trials if name in SYNTHETIC else options.trials]
        for first in range(0, count, TRIALS_A_JOB)
    ]
    options.results.mkdir(parents=True, exist_ok=True)
    table = summarise(run_all(trials, jobs, folder=folder, processes=options.processes))
    table.to_csv(options.results / FILE, index=False, float_format="%.6g")
    if wide := [job for job in jobs if job[0] in SYNTHETIC]:
        others = summarise(run_all(linear.trials, wide, folder=wide_folder, processes=options.processes))
        others.to_csv(options.results / WIDE_FILE, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
