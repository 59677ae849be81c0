"""Figures 1 to 5 of arXiv:2505.24603v2: configuration to table to figure.

    GAUSSMIX_DATA=... python experiments/reproduce.py figure1 figure2 figure3 figure4 figure5

Tables go to ``experiments/results``, figures to ``docs/figures``. Trials that are done are kept in
``experiments/cache``: a run that was stopped goes on where it was; after a change of the code start with ``--fresh``.
Figures 3 and 5 need the features that ``experiments/dp_sgd.py`` (``make networks``) puts there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # two processes, one thread each

import numpy as np
import pandas as pd

import figures
import linear
import logistic
from files import CACHE, RESULTS
from gaussmix import accounting
from gaussmix.accounting import smallest_safe
from jobs import forget

SETS = {
    "figure2": ("communities", "tecator", "gaussian", "mlp"),
    "figure4": ("wine", "uniform", "boston", "bike"),
    "figure3": ("fashion", "cifar100"),
    "figure5": ("cifar10", "mnist"),
}
FIGURES = ("figure1", "figure2", "figure3", "figure4", "figure5")
FIGURE_1 = {"sketch_size": 150, "delta": 1e-8}
ANALYSES = ("sheffet", "tcdp", "renyi", "exact")


def figure1(results: Path, out: Path, *, points: int) -> None:
    """ε of each analysis on the paper's grid of γ, and γ for a grid of ε, at leverage 1/γ."""
    gammas = np.geomspace((4 / 3) ** 2, 1e7, points)
    table = pd.DataFrame({"gamma": gammas})
    epsilons = np.geomspace(0.05, 30, points)
    required = pd.DataFrame({"epsilon": epsilons})
    for analysis in ANALYSES:
        table[analysis] = accounting.epsilon(
            FIGURE_1["delta"], sketch_size=FIGURE_1["sketch_size"], gamma=gammas, scale="larger", analysis=analysis
        )
        required[analysis] = [gamma_for(float(epsilon), analysis) for epsilon in epsilons]
    results.mkdir(parents=True, exist_ok=True)
    table.to_csv(results / "figure1.csv", index=False, float_format="%.8g")
    required.to_csv(results / "figure1_gamma.csv", index=False, float_format="%.8g")
    figures.analyses(table, required, out / "figure1", **FIGURE_1)


def gamma_for(epsilon: float, analysis: str) -> float:
    """Least γ for which an analysis proves ε."""

    def excess(gamma: float) -> float:
        found = accounting.epsilon(
            FIGURE_1["delta"], sketch_size=FIGURE_1["sketch_size"], gamma=gamma, scale="larger", analysis=analysis
        )
        return float(found) - epsilon

    return smallest_safe(excess, 1 + 1e-6, 1e3, limit=1e7, rtol=1e-7)


def main(arguments: list[str] | None = None) -> None:
    """Compute what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", choices=FIGURES, default=list(FIGURES), metavar="figure1 … figure5")
    parser.add_argument("--trials", type=int, default=linear.TRIALS)
    parser.add_argument("--epsilons", nargs="*", type=float, help="Figures 3 and 5: only these ε")
    parser.add_argument("--largest-norm", action="store_true", help="Figures 3 and 5: the paper's scaling, NOT PRIVATE")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--fresh", action="store_true", help="forget the trials of an earlier version of the code")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    chosen = parser.parse_args(arguments)
    if chosen.fresh:
        for folder in [*linear.FOLDERS, *(path.name for path in chosen.cache.glob(f"{logistic.FOLDER}*"))]:
            forget(chosen.cache / folder)
    common = {"processes": chosen.processes, "cache": chosen.cache, "results": chosen.results}
    for name in chosen.figures:
        if name == "figure1":
            figure1(chosen.results, chosen.out, points=25)
        elif name in ("figure2", "figure4"):
            linear.run(name, SETS[name], count=chosen.trials, **common)
            figures.linear(pd.read_csv(chosen.results / f"{name}.csv"), SETS[name], chosen.out / name)
        else:
            epsilons = chosen.epsilons or logistic.EPSILONS.tolist()
            largest_norm = chosen.largest_norm
            file = f"{name}_largest_norm" if largest_norm else name
            logistic.run(file, SETS[name], count=chosen.trials, epsilons=epsilons, largest_norm=largest_norm, **common)
            table = pd.read_csv(chosen.results / f"{file}.csv")
            figures.logistic(table, SETS[name], chosen.out / file, largest_norm=largest_norm)


if __name__ == "__main__":
    main()
