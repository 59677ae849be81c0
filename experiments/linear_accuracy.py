"""Accuracy of private linear regression: every method, the paper's protocol, one table.

    python -m experiments.linear_accuracy --splits 3 --draws 10 --out experiments/results/linear_accuracy.csv

Protocol: that of ``linear.py`` at other ε. Score: (test MSE - OLS) / (test MSE of zero - OLS),
averaged over ε; 0 is least squares without privacy, 1 is predicting zero.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from experiments.datasets import LINEAR
from experiments.linear import MEAN, METHODS, SYNTHETIC, split_table
from experiments.paper_table import DECLARED
from experiments.parallel import Rows, run_all
from experiments.summed import SummedTable
from gaussmix import baselines

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
OURS, YARDSTICK = "LinearMixing, exact", "AdaSSP, exact"


def one_split(name: str, split: int, draws: int) -> Rows:
    """Scores of every method and ε on one split."""
    warnings.filterwarnings("ignore", message="n_rows=.* is too small")  # hopeless budgets are part of the protocol
    X, y, X_test, y_test = split_table(name, np.random.default_rng([split, 7]))
    table = SummedTable(X, y)
    ols = np.mean((y_test - table.fit(baselines.Ridge(**DECLARED)).predict(X_test)) ** 2)
    zero = np.mean(y_test**2)
    mean = np.mean((y_test - y.mean()) ** 2)
    rows: Rows = [
        {"set": name, "split": split, "draw": 0, "method": MEAN, "epsilon": epsilon,
         "score": (mean - ols) / (zero - ols)}
        for epsilon in EPSILONS
    ]  # fmt: skip
    for number, (method, make) in enumerate(METHODS.items()):
        for epsilon in EPSILONS:
            for draw in range(draws):
                rng = np.random.default_rng([split, number, draw, int(1000 * epsilon)])
                model = make(epsilon=epsilon, delta=1 / len(y) ** 2, n_rows=len(y), random_state=rng)
                error = np.mean((y_test - table.fit(model).predict(X_test)) ** 2)
                score = (error - ols) / (zero - ols)
                rows.append(
                    {"set": name, "split": split, "draw": draw, "method": method, "epsilon": epsilon, "score": score}
                )
    return rows


def summary(results: pd.DataFrame) -> Table:
    """Mean score per set and method, and its ratio to AdaSSP with exact accounting."""
    scores = results.groupby(["method", "set"])["score"].mean().unstack()
    scores = scores[[name for name in LINEAR if name in scores]]
    real = [name for name in scores if name not in SYNTHETIC]
    table = Table(title="Mean over ε of (test MSE - OLS) / (MSE of zero - OLS)", title_justify="left")
    for heading in ("method", *scores.columns, "geometric mean of ratio, real sets"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in [MEAN, *METHODS]:
        ratio = scores.loc[method, real] / scores.loc[YARDSTICK, real]
        mean = f"{np.exp(np.log(ratio).mean()):.3f}" if real and (ratio > 0).all() else ""
        table.add_row(method, *(f"{value:.3f}" for value in scores.loc[method]), mean)
    ratio = scores.loc[OURS] / scores.loc[YARDSTICK]
    table.add_row(f"ratio: {OURS} / {YARDSTICK}", *(f"{value:.3f}" for value in ratio), "")
    return table


def by_epsilon(results: pd.DataFrame) -> Table:
    """The two methods that matter, ε by ε: losses show."""
    scores = results[results["method"].isin([OURS, YARDSTICK])]
    scores = scores.groupby(["set", "method", "epsilon"])["score"].mean().unstack()
    table = Table(title="The same by ε", title_justify="left")
    for heading in ("set", "method", *(f"ε = {epsilon:g}" for epsilon in scores.columns)):
        table.add_column(heading, justify="left" if heading in ("set", "method") else "right")
    for name, method in scores.index:
        table.add_row(name, method, *(f"{value:.3f}" for value in scores.loc[name, method]))
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run, save and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sets", nargs="*", default=list(LINEAR), choices=list(LINEAR))
    parser.add_argument("--out", type=Path, help="CSV file for every single score")
    parser.add_argument("--processes", type=int)
    options = parser.parse_args(arguments)
    jobs = [(name, split, options.draws) for name in options.sets for split in range(options.splits)]
    results = run_all(one_split, jobs, processes=options.processes)
    results = results.sort_values(["set", "split", "method", "epsilon", "draw"], ignore_index=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        results.round(6).to_csv(options.out, index=False)
    for table in (summary(results), by_epsilon(results)):
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
