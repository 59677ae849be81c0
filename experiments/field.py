"""Accuracy beside the field: what others' libraries and methods predict on the same splits, with the same budget.

    make field
    python -m experiments.field --splits 3 --draws 3 --out experiments/results/field.csv
    python -m experiments.field --report experiments/results/field.csv

Tables, bounds, splits and least squares are those of ``passes_protocol.md``; the declared target alone, δ = 1/n².

- ``passes``: one release for all targets, and its solver. ``LinearRegression``: a release of features and target alone.
- ``AdaSSP``: exact noise.
- ``DP-GD``: full gradients, clipped row by row, noise by Gaussian DP. The best of 12 settings *on the test rows*, which
  is not private: no way of choosing one could do better.
- ``diffprivlib``: its LinearRegression (functional mechanism) with the same bounds. Pure ε: it has no use for δ. The
  first level of a category is left out for it: it has no ridge, and all levels together leave a direction open.
- ``noisy sums``: what dp-statsmodels does, emulated with exact noise (:mod:`experiments.noisy_sums`),
  for it is not on the package index; ``as published`` with the noise that it publishes. The first level of a category
  is left out for both.
- ``mean``: a private mean. Without noise: ``least squares``.

Intervals: :mod:`experiments.field_intervals`. OpenDP, which has one feature: :mod:`experiments.league_opendp`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import Floats
from experiments.noisy_sums import Noise, fit
from experiments.parallel import run_all
from experiments.passes_study import Rows, adassp, in_passes, least_squares, split
from experiments.passes_tables import Encoded, load
from gaussmix import LinearRegression
from gaussmix.accounting import gaussian_mu
from gaussmix.releases.shrinkage import Shrinkage

TABLES = ("boston", "wine", "bike", "diabetes", "cps1988", "cps2024", "diamonds", "health")
EPSILONS = (0.3, 1.0, 3.0, 10.0)
PYTHON = Path(".venv-field/bin/python")
SETTINGS = tuple(itertools.product((10, 40, 160), (0.3, 1.0), (0.5, 2.0)))  # steps, clip, step size


def gradient_descent(
    X: Floats, y: Floats, mu: float, rng: np.random.Generator, *, steps: int, clip: float, rate: float
) -> Floats:
    """θ after so many steps with noise clip·√steps/μ each; rows are divided by √d, so that gradients are comparable."""
    n, d = X.shape
    A, theta = X / math.sqrt(d), np.zeros(d)
    noise = clip * math.sqrt(steps) / mu
    for _ in range(steps):
        residual = A @ theta - y
        norms = np.abs(residual) * np.linalg.norm(A, axis=1)
        weights = residual * np.minimum(1.0, clip / np.maximum(norms, 1e-300))
        theta -= rate * (A.T @ weights + noise * rng.standard_normal(d)) / n
    return np.asarray(theta / math.sqrt(d))


def by_diffprivlib(train: Floats, test: Floats, table: Encoded, epsilons: tuple[float, ...], draws: int) -> Floats:
    """Predictions, shape (ε, draws, rows), by an environment of its own; without the first level of a category."""
    x, target = np.setdiff1d(np.arange(table.target), table.references), table.target
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        np.savez(given, X=train[:, x], y=train[:, target], Z=test[:, x], epsilons=np.array(epsilons), draws=draws)
        subprocess.run([PYTHON, Path(__file__).with_name("league_diffprivlib.py"), given, found], check=True)
        return np.asarray(np.load(found), dtype=np.float64)


def trial(name: str, number: int, draws: int) -> list[dict[str, object]]:
    """Every method on one split of a table."""
    warnings.simplefilter("ignore")
    table = load(name)
    train, test = split(table, number)
    rows, delta = Rows.of(train, table.squared_norm, table.intercept), 1 / len(train) ** 2
    x, target = np.array([*range(table.target), table.intercept]), table.target
    y, var = test[:, target], float(np.var(test[:, target]))
    guesses = by_diffprivlib(train, test, table, EPSILONS, draws)
    found: list[dict[str, object]] = []

    def add(method: str, epsilon: float, draw: int, guess: Floats | float) -> None:
        r2 = 1 - float(np.mean((y - np.clip(guess, -1, 1)) ** 2)) / var
        found.append({"table": name, "split": number, "draw": draw, "method": method, "epsilon": epsilon, "r2": r2})

    kept = np.setdiff1d(x, table.references)
    sums = train[:, [*kept, target]].T @ train[:, [*kept, target]]
    best = test[:, x] @ least_squares(train, x, target)
    for (i, epsilon), draw in itertools.product(enumerate(EPSILONS), range(draws)):
        mu, rng = gaussian_mu(epsilon, delta), np.random.default_rng([number, draw, int(1000 * epsilon)])
        state, _ = in_passes(rows, mu, rng)
        fitted = Shrinkage(state.pool, seed=0, one_row=rows.unit).fit(
            x, np.eye(len(state.pool.matrix))[target], intercept=table.intercept
        )
        add("passes", epsilon, draw, test[:, x] @ fitted.coef)
        model = LinearRegression(epsilon=epsilon, delta=delta, bounds_X=(-1, 1), bounds_y=(-1, 1), random_state=draw)
        add("LinearMixing", epsilon, draw, model.fit(train[:, x[:-1]], train[:, target]).predict(test[:, x[:-1]]))
        add("AdaSSP", epsilon, draw, adassp(train, test, table, epsilon, delta, rng))
        for steps, clip, rate in SETTINGS:
            theta = gradient_descent(train[:, x], train[:, target], mu, rng, steps=steps, clip=clip, rate=rate)
            add(f"DP-GD {steps} {clip} {rate}", epsilon, draw, test[:, x] @ theta)
        for method, published in (("noisy sums", False), ("as published", True)):
            noise = Noise.of(
                epsilon, delta, squared_norm=table.squared_norm - 1, columns=len(kept), published=published
            )
            own = np.random.default_rng([number, draw, int(1000 * epsilon), 1]) if published else rng
            add(method, epsilon, draw, test[:, kept] @ fit(sums, len(train), noise, own).coef)
        add("diffprivlib", epsilon, draw, guesses[i, draw])
        add("mean", epsilon, draw, train[:, target].mean() + rng.standard_normal() / (mu * len(train)))
        add("least squares", epsilon, draw, best)
    return found


def report(results: pd.DataFrame) -> str:
    """Mean R² by table and method, for every ε."""
    mean = results.groupby(["table", "epsilon", "method"])["r2"].mean().unstack()
    settings = [name for name in mean if str(name).startswith("DP-GD ")]
    mean = mean.assign(**{"DP-GD": mean[settings].max(axis=1)}).drop(columns=settings)
    order = ["least squares", "passes", "LinearMixing", "AdaSSP", "DP-GD", "noisy sums", "as published"]
    order += ["diffprivlib", "mean"]
    lines = ["| table | ε | " + " | ".join(order) + " |", "|---|---|" + "---|" * len(order)]
    for (table, epsilon), row in mean[order].iterrows():
        lines.append(f"| {table} | {epsilon:g} | " + " | ".join(f"{row[name]:.3f}" for name in order) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, or report what was run."""
    parser = argparse.ArgumentParser(description="Accuracy beside other libraries and methods.")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    if chosen.report is not None:
        print(report(pd.read_csv(chosen.report)))
        return
    trials = [(name, number, chosen.draws) for name in chosen.tables for number in range(chosen.splits)]
    results = run_all(trial, trials, processes=chosen.processes)
    if chosen.out is not None:
        results.to_csv(chosen.out, index=False, float_format="%.6g", lineterminator="\n")
    print(report(results))


if __name__ == "__main__":
    main()
