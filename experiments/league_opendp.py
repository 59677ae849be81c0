"""One feature beside OpenDP's linear regression, a private Theil-Sen: it has no other one, and none for two features.

    python -m experiments.league_opendp --splits 3 --draws 3 --out experiments/results/field_opendp.csv

Protocol, written before the run. R² on held-out fifths, splits as in ``passes_protocol.md``; log wage on education (CPS
1988 and 2024) and log price on carat (diamonds), entries in [-1, 1] by the declared bounds. ``LinearRegression``: with
δ = 1/n². ``OpenDP``: ``dp.sklearn.linear_model.LinearRegression`` with as many candidates as by default, 100, and with
1,000, at the least scale that its own map says is ε-private. It has no use for δ, so that it does more than is asked.
Its noise has no seed. ``least squares``, and ``Theil-Sen``, medians over pairs as OpenDP takes them: without noise.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pandas as pd
from opendp.extras.sklearn.linear_model import LinearRegression

import gaussmix as gm
from experiments import Floats
from experiments.parallel import run_all
from experiments.passes_study import split
from experiments.passes_tables import load

REGRESSORS = {"cps1988": "education", "cps2024": "educ_years", "diamonds": "carat"}
FEATURES = ("contrib", "honest-but-curious", "idealized-numerics")  # of OpenDP, which its regression asks for
EPSILONS = (0.3, 1.0, 3.0, 10.0)
CUTS = np.array([-0.5, 0.5])  # where OpenDP takes medians: a quarter and three quarters of the bounds


def by_opendp(x: Floats, y: Floats, epsilon: float, candidates: int) -> tuple[float, float]:
    """Slope and intercept, with the least noise that is ε-private by OpenDP's own map."""

    def measurement(scale: float) -> dp.Measurement:
        return LinearRegression(
            dp.max_divergence(), x_bounds=[(-1.0, 1.0)], y_bounds=(-1.0, 1.0), scale=scale, candidates_count=candidates
        ).measurement

    private = measurement(2 / epsilon * (1 + 1e-9))  # two medians, each of them (1/scale)-private; its map rounds up
    if not private.check(1, epsilon):
        raise ValueError("This scale is not enough for epsilon: OpenDP's own map says so.")
    slope, intercept = private(np.stack([x, y], axis=1))
    return float(slope), float(intercept)


def theil_sen(x: Floats, y: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Slope and intercept of the line through the medians of predictions by pairs, without noise."""
    first, second = np.array_split(rng.permutation(len(x) // 2 * 2), 2)
    first, second = first[x[first] != x[second]], second[x[first] != x[second]]
    slopes = (y[second] - y[first]) / (x[second] - x[first])
    low, high = (np.median(y[first] + slopes * (cut - x[first])) for cut in CUTS)
    slope = (high - low) / (CUTS[1] - CUTS[0])
    return float(slope), float((low + high) / 2)


def trial(name: str, number: int, draws: int) -> list[dict[str, object]]:
    """Every method on one split of a table."""
    dp.enable_features(*FEATURES)
    warnings.simplefilter("ignore", RuntimeWarning)  # pairs with one x, which OpenDP drops after it has divided by 0
    table = load(name)
    train, test = split(table, number)
    at = table.names.index(REGRESSORS[name])
    x, y, Z, truth = train[:, at], train[:, table.target], test[:, at], test[:, table.target]
    found: list[dict[str, object]] = []

    def add(method: str, epsilon: float, draw: int, line: tuple[float, float]) -> None:
        guess = np.clip(line[0] * Z + line[1], -1, 1)
        r2 = 1 - float(np.mean((truth - guess) ** 2) / np.var(truth))
        found.append({"table": name, "split": number, "draw": draw, "method": method, "epsilon": epsilon, "r2": r2})

    slope, intercept = np.polyfit(x, y, 1)
    for epsilon in EPSILONS:
        for draw in range(draws):
            mixing = gm.LinearRegression(
                epsilon=epsilon, delta=1 / len(x) ** 2, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=draw
            ).fit(x[:, np.newaxis], y)
            add("LinearMixing", epsilon, draw, (float(mixing.coef_[0]), float(mixing.intercept_)))
            for candidates in (100, 1_000):
                add(f"OpenDP, {candidates}", epsilon, draw, by_opendp(x, y, epsilon, candidates))
            add("Theil-Sen", epsilon, draw, theil_sen(x, y, np.random.default_rng([number, draw])))
            add("least squares", epsilon, draw, (float(slope), float(intercept)))
    return found


def report(results: pd.DataFrame) -> str:
    """Mean R² by table and method, for every ε."""
    mean = results.groupby(["table", "epsilon", "method"])["r2"].mean().unstack()
    order = ["least squares", "LinearMixing", "Theil-Sen", "OpenDP, 100", "OpenDP, 1000"]
    lines = ["| table | ε | " + " | ".join(order) + " |", "|---|---|" + "---|" * len(order)]
    for (table, epsilon), row in mean[order].iterrows():
        lines.append(f"| {table} | {epsilon:g} | " + " | ".join(f"{row[name]:.3f}" for name in order) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, and report."""
    parser = argparse.ArgumentParser(description="Accuracy with one feature beside OpenDP.")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    jobs = [(name, number, chosen.draws) for name in REGRESSORS for number in range(chosen.splits)]
    results = run_all(trial, jobs, processes=1)
    if chosen.out is not None:
        results.to_csv(chosen.out, index=False, float_format="%.6g", lineterminator="\n")
    print(report(results))


if __name__ == "__main__":
    main()
