"""The release in passes against the single pass, exact AdaSSP, the mean and least squares.

    export GAUSSMIX_DATA=...
    python -m experiments.passes_study accuracy --splits 5 --draws 10 --out experiments/results/passes_accuracy.csv
    python -m experiments.passes_study errors --draws 10 --out experiments/results/passes_errors.csv
    python -m experiments.passes_study report --results experiments/results/passes_accuracy.csv

The protocol is in ``passes_protocol.md``, written before the run. Rows go through the integer transforms and exact
clipping of the package; noise is drawn as floats, which differ from the lattice's by 2⁻⁴⁰ of the row norm.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.parallel import run_all
from experiments.passes_tables import MIXED, NUMERIC, Encoded, load
from gaussmix import baselines
from gaussmix.accounting import gaussian_mu
from gaussmix.accounting.discrete import split_mu
from gaussmix.data.gram import MappedGram, NormCounts, Query
from gaussmix.data.transforms import ROW_UNIT
from gaussmix.releases.preconditioning import (
    PassRequest,
    Pool,
    Schedule,
    State,
    first_state,
    goe,
    plan_histogram,
    plan_pass,
    update_state,
)
from gaussmix.releases.shrinkage import Shrinkage

Floats = NDArray[np.float64]
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
CONSTANT = 1e-4  # columns with less variance than that in the test rows (entries in [-1, 1]) are no targets
FLOOR = 1e-3  # excesses below it count as it: nobody can tell them apart
ALL_COLUMNS_AT = 1.0  # ε at which every column is a target; elsewhere the declared one alone
MOST_TARGETS = 12  # of the columns, evenly spaced, the declared target among them
SIMULATED = 200  # draws of the noise for a standard error
SOLVERS: dict[str, dict[str, float]] = {"passes": {}, "single": {"reference": 1.0, "caution": 1.0}}


# ---------------------------------------------------------------------------------------------------------------
# Releases
@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows as the package has them: integers in units of 2⁻²⁰ of C."""

    integers: Floats
    intercept: int
    intercept_energy: float
    unit: float  # 1/C²: what an entry of 1 contributes to the Gram matrix in units of C²

    @classmethod
    def of(cls, rows: Floats, squared_norm: float, intercept: int) -> Rows:
        """Encoded rows, rounded towards zero."""
        value = math.floor(ROW_UNIT / math.sqrt(squared_norm))
        return cls(np.trunc(rows * value), intercept, (value / ROW_UNIT) ** 2, 1 / squared_norm)

    def gram(self) -> Floats:
        """Without noise, C = 1."""
        return (self.integers.T @ self.integers) / ROW_UNIT**2


def noisy(gram: Floats, mu: float, rng: np.random.Generator) -> Floats:
    """Σ z zᵀ of rows of norm at most 1, with its noise."""
    return gram + goe(len(gram), rng) / (math.sqrt(2) * mu)


def answer(rows: Rows, query: Query[Any]) -> Any:
    """What the table answers, computed as a release computes it."""
    aggregator = query.aggregator(rows.integers.shape[1])
    aggregator.add(rows.integers)
    return aggregator.result()


def in_passes(
    rows: Rows, mu: float, rng: np.random.Generator, schedule: Schedule | None = None
) -> tuple[State, list[PassRequest]]:
    """The whole release; the only uses of the rows are the noisy ones."""
    schedule = schedule or Schedule()
    mus = split_mu(mu, schedule.shares())
    state = first_state(
        noisy(rows.gram(), mus[0], rng), mus, intercept=rows.intercept, intercept_energy=rows.intercept_energy
    )
    requests = []
    while not state.done:
        asked = plan_histogram(state)
        found = answer(rows, NormCounts([metric.transform for metric in asked.metrics], asked.edges)).counts
        counts = tuple(count + asked.noise * rng.standard_normal(len(count)) for count in found)
        request = plan_pass(state, asked, counts)
        sums = answer(rows, MappedGram(request.metric.transform, request.clip))
        state = update_state(state, request, noisy(sums.high + sums.low / 2.0**40, request.mu, rng))
        requests.append(request)
    return state, requests


def single_pass(rows: Rows, mu: float, rng: np.random.Generator) -> State:
    """The whole budget in the declared metric."""
    return first_state(
        noisy(rows.gram(), mu, rng), (mu,), intercept=rows.intercept, intercept_energy=rows.intercept_energy
    )


# ---------------------------------------------------------------------------------------------------------------
# Accuracy
def least_squares(A: Floats, features: NDArray[np.intp], target: int) -> Floats:
    """With a ridge of one."""
    X = A[:, features]
    return np.asarray(np.linalg.solve(X.T @ X + np.eye(len(features)), X.T @ A[:, target]))


def split(table: Encoded, seed: int) -> tuple[Floats, Floats]:
    """80/20."""
    order = np.random.default_rng([seed, 7]).permutation(len(table.rows))
    n = int(0.8 * len(order))
    return table.rows[order[:n]], table.rows[order[n:]]


def targets_of(table: Encoded) -> list[int]:
    """One column for every source column, the most variable level of a category; at most `MOST_TARGETS`."""
    found = []
    for source in np.unique(table.sources)[:-1]:
        columns = np.flatnonzero(table.sources == source)
        found.append(int(columns[np.argmax(np.var(table.rows[:, columns], axis=0))]))
    kept = np.unique(np.linspace(0, len(found) - 1, MOST_TARGETS).round().astype(int))  # the declared target is last
    return [found[k] for k in kept]


def adassp(
    train: Floats, test: Floats, table: Encoded, epsilon: float, delta: float, rng: np.random.Generator
) -> Floats:
    """Predictions of exact AdaSSP for the declared target."""
    x = np.arange(table.target)
    model = baselines.AdaSSP(
        epsilon=epsilon, delta=delta, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), n_rows=len(train), random_state=rng
    )
    return np.asarray(model.fit(train[:, x], train[:, table.target]).predict(test[:, x]))


def accuracy(name: str, number: int, draws: int, epsilons: tuple[float, ...]) -> list[dict[str, object]]:
    """Excess of every method on one split of a table, over all draws and ε."""
    warnings.simplefilter("ignore")
    table = load(name)
    train, test = split(table, number)
    rows, delta = Rows.of(train, table.squared_norm, table.intercept), 1 / len(train) ** 2
    found: list[dict[str, object]] = []

    def add(
        method: str, epsilon: float, draw: int, target: int, mse: float, base: float, var: float, **more: object
    ) -> None:
        found.append(
            {"table": name, "split": number, "draw": draw, "method": method, "epsilon": epsilon, "target": target}
            | {"declared": target == table.target, "excess": (mse - base) / var, "r2": 1 - mse / var}
            | more
        )

    columns = {}
    for target in targets_of(table):
        x = np.flatnonzero(
            (np.arange(table.rows.shape[1]) == table.intercept) | (table.sources != table.sources[target])
        )
        y = test[:, target]
        base = float(np.mean((y - test[:, x] @ least_squares(train, x, target)) ** 2))
        if np.var(y) > CONSTANT:
            columns[target] = x, y, base, float(np.var(y))
    for epsilon in epsilons:
        mu = gaussian_mu(epsilon, delta)
        for draw in range(draws):
            rng = np.random.default_rng([number, draw, int(1000 * epsilon)])
            state, requests = in_passes(rows, mu, rng)
            trail = " ".join(f"{r.metric.power:g}:{r.clip / r.metric.mean:.1f}:{r.lost:.2f}" for r in requests)
            for method, known in (("passes", state), ("single", single_pass(rows, mu, rng))):
                solver = Shrinkage(known.pool, seed=0, one_row=rows.unit, **SOLVERS[method])
                for target, (x, y, base, var) in columns.items():
                    if target != table.target and epsilon != ALL_COLUMNS_AT:
                        continue
                    fit = solver.fit(x, np.eye(table.rows.shape[1])[target], intercept=table.intercept)
                    low = -1.0 if test[:, target].min() < 0 else 0.0
                    mse = float(np.mean((y - np.clip(test[:, x] @ fit.coef, low, 1.0)) ** 2))
                    add(method, epsilon, draw, target, mse, base, var, strength=fit.strength, trail=trail)
            x, y, base, var = columns[table.target]
            add("least squares", epsilon, draw, table.target, base, base, var)
            private_mean = train[:, table.target].mean() + 1 / (mu * len(train)) * rng.standard_normal()
            add("mean", epsilon, draw, table.target, float(np.mean((y - np.clip(private_mean, -1, 1)) ** 2)), base, var)
            if table.numeric:
                guess = np.clip(adassp(train, test, table, epsilon, delta, rng), -1, 1)
                add("adassp", epsilon, draw, table.target, float(np.mean((y - guess) ** 2)), base, var)
    return found


# ---------------------------------------------------------------------------------------------------------------
# Standard errors
def standard_errors(name: str, draw: int, epsilon: float, delta: float) -> list[dict[str, object]]:
    """Standard errors (privacy and sampling) over those of least squares, by simulation of the pooled noise.

    θ̂ - θ ≈ (X'X)⁻¹ (E a)_x, a = (-θ, 1), with E drawn from the pool's noise; all rows of the table.
    """
    table = load(name)
    rows = Rows.of(table.rows, table.squared_norm, table.intercept)
    rng, mu = np.random.default_rng([draw, 99]), gaussian_mu(epsilon, delta)
    G = rows.gram() / rows.unit
    x = np.setdiff1d(np.arange(len(G)), [table.target, *table.references])
    theta = np.linalg.solve(G[np.ix_(x, x)], G[x, table.target])
    a = np.zeros(len(G))
    a[x], a[table.target] = -theta, 1.0
    residual = float(np.mean((table.rows @ a) ** 2)) * len(table.rows) / (len(table.rows) - len(x))
    bread = np.linalg.inv(G[np.ix_(x, x)])
    sampling = residual * np.diagonal(bread)
    state, requests = in_passes(rows, mu, rng)
    pools = {
        "pool": state.pool,
        "last pass": Pool.of(state.pool.members[-1]),
        "single": single_pass(rows, mu, rng).pool,
    }
    matrices = {method: pool.current.matrix for method, pool in pools.items()}
    draws = {method: [pool.noise(rng) for _ in range(SIMULATED)] for method, pool in pools.items()}
    before = Pool.of(state.pool.members[-2])
    *_, previous, _, last = Schedule().shares()
    weight = float(last / (last + previous))  # fixed before any noise
    matrices["last two"] = weight * matrices["last pass"] + (1 - weight) * before.current.matrix
    draws["last two"] = [weight * noise + (1 - weight) * before.noise(rng) for noise in draws["last pass"]]
    found = []
    for method, matrix in matrices.items():
        noise = np.array([bread @ (drawn @ a)[x] / rows.unit for drawn in draws[method]])
        ratio = np.sqrt(1 + np.mean(noise**2, axis=0) / sampling)[x != table.intercept]
        actual = bread @ ((matrix / rows.unit - G) @ a)[x]  # noise and clipping together
        z = np.abs(actual / np.sqrt(np.mean(noise**2, axis=0)))[x != table.intercept]
        found.append(
            {"table": name, "draw": draw, "method": method, "median": np.median(ratio), "largest": ratio.max()}
            | {"clipped": " ".join(f"{r.metric.power:g}:{r.clip / r.metric.mean:.1f}:{r.lost:.3f}" for r in requests)}
            | {"covered": float(np.mean(z < 1.96))}
        )
    return found


# ---------------------------------------------------------------------------------------------------------------
# Command
def _geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values.clip(lower=FLOOR)).mean()))


def report(results: pd.DataFrame) -> None:
    """The figures that are asked for."""
    pd.set_option("display.width", 200)
    declared = results[results["declared"]]
    mean = declared.groupby(["table", "method", "epsilon"])["excess"].mean().unstack()
    print("declared target, mean excess\n", mean.round(4).to_string())
    r2 = declared.groupby(["table", "method", "epsilon"])["r2"].mean().unstack()
    print("declared target, mean R²\n", r2.round(3).to_string())
    floored = mean.clip(lower=FLOOR)
    numeric = [name for name in NUMERIC if name in mean.index.get_level_values(0)]
    if numeric:
        ratio = floored.xs("passes", level=1).loc[numeric] / floored.xs("adassp", level=1).loc[numeric]
        print(
            "numeric: passes / exact AdaSSP\n",
            ratio.round(3).to_string(),
            "\ngeometric",
            ratio.apply(_geometric).round(3).to_dict(),
        )
    mixed = [name for name in MIXED if name in mean.index.get_level_values(0)]
    if mixed:
        ratio = floored.xs("passes", level=1).loc[mixed] / floored.xs("single", level=1).loc[mixed]
        print(
            "mixed: passes / single\n",
            ratio.round(3).to_string(),
            "\ngeometric",
            ratio.apply(_geometric).round(3).to_dict(),
        )
    every = results[results["method"].isin(["passes", "single"]) & (results["epsilon"] == ALL_COLUMNS_AT)]
    every = every.groupby(["table", "method", "epsilon"])["excess"].mean().unstack()
    ratio = every.xs("passes", level=1).clip(lower=FLOOR) / every.xs("single", level=1).clip(lower=FLOOR)
    print("all columns as targets: passes / single\n", ratio.round(3).to_string())
    if numeric:
        print("geometric, numeric", ratio.loc[numeric].apply(_geometric).round(3).to_dict())
    worst = (r2.xs("passes", level=1) - r2.xs("mean", level=1)).round(3)
    print("R² less the private mean's\n", worst.to_string())


def main() -> None:
    """Run, save and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "errors", "report"))
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--results", nargs="*", type=Path, default=[], help="files of earlier runs, for report")
    arguments = parser.parse_args()
    if arguments.what == "report":
        results = pd.concat([pd.read_csv(path) for path in arguments.results], ignore_index=True)
        report(results)
    elif arguments.what == "accuracy":
        names, splits = arguments.tables or [*NUMERIC, *MIXED], range(arguments.splits)
        trials = [(name, split, arguments.draws, tuple(arguments.epsilons)) for name in names for split in splits]
        results = run_all(accuracy, trials, processes=arguments.processes)
        report(results)
    else:
        draws = [(name, draw, 1.0, 1e-9) for name in arguments.tables or MIXED for draw in range(arguments.draws)]
        results = run_all(standard_errors, draws, processes=arguments.processes)
        print(results.groupby(["table", "method"])[["median", "largest", "covered"]].mean().round(3).to_string())
        print(results.groupby("table")["clipped"].first().to_string())
    if arguments.out:
        results.to_csv(arguments.out, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
