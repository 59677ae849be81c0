"""What is planned against what is lost: R² that privacy costs on the shared tables.

    export GAUSSMIX_DATA=...
    python -m experiments.planning_check --draws 3

A plan sees the schema, the number of training rows, the budget and the R² of least squares. What is really lost: R² of
least squares on the 20 % of rows that are held out, less that of a model from a release of the other 80 %; mean over
draws, each with its own split. Predictions of both are clipped to the target's bounds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments.passes_tables import Encoded, load
from gaussmix.report.plan import Planner

CHOSEN_ON = ("boston", "wine", "bike", "diabetes", "cps1988", "cps2024", "diamonds", "health", "fertility")
"""Tables that were looked at when the simulated ones were chosen."""

OTHERS = ("communities",)
EPSILONS, DELTA = (0.3, 1.0, 3.0), 1e-6


def declared(table: Encoded) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Columns and schema of an encoded table: numbers in [-1, 1], Booleans, levels."""
    columns: dict[str, np.ndarray] = {}
    schema: dict[str, Any] = {}
    for source in np.unique(table.sources)[:-1]:
        own = np.flatnonzero(table.sources == source)
        name, values = table.names[own[0]].split("=")[0], table.rows[:, own]
        if len(own) > 1:
            levels = [table.names[index] for index in own]
            columns[name], schema[name] = np.array(levels)[values.argmax(axis=1)], {"levels": levels}
        elif set(np.unique(values)) <= {-1.0, 1.0}:
            columns[name], schema[name] = values[:, 0] > 0, "boolean"
        else:
            columns[name], schema[name] = values[:, 0], [-1, 1]
    return columns, schema


def check(name: str, draws: int) -> list[dict[str, object]]:
    """One line for every ε."""
    table = load(name)
    columns, schema = declared(table)
    target, x = table.names[table.target], np.delete(np.arange(table.rows.shape[1]), table.target)
    n = int(0.8 * len(table.rows))
    plain: list[float] = []
    lost: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    for draw in range(draws):
        order = np.random.default_rng([draw, 7]).permutation(len(table.rows))
        train, test = order[:n], order[n:]
        y = table.rows[test, table.target]
        theta = np.linalg.lstsq(table.rows[train][:, x], table.rows[train, table.target], rcond=1e-12)[0]
        plain.append(1 - np.mean((y - np.clip(table.rows[test][:, x] @ theta, -1, 1)) ** 2) / np.var(y))
        rows = {column: values[train] for column, values in columns.items()}
        new = {column: values[test] for column, values in columns.items() if column != target}
        for epsilon in EPSILONS:
            release = gm.release(rows, schema=schema, epsilon=epsilon, delta=DELTA, random_state=draw)
            predicted = release.ols(target).predict(new)
            predicted = 2 * predicted - 1 if schema[target] == "boolean" else predicted
            lost[epsilon].append(plain[-1] - 1 + np.mean((y - predicted) ** 2) / np.var(y))
    r2 = float(np.clip(np.mean(plain), 0.01, 0.99))
    found: list[dict[str, object]] = []
    for epsilon in EPSILONS:
        plan = Planner(schema, delta=DELTA, response=target, r2=r2).expect(n_rows=n, epsilon=epsilon)
        planned = {expected.name: expected.lost_r2 for expected in plan.scenarios}
        found.append({"table": name, "rows": n, "columns": plan.columns, "R²": r2, "ε": epsilon} | planned)
        found[-1]["lost"] = float(np.mean(lost[epsilon]))
    return found


def main() -> None:
    """Print a table in Markdown, and how often a plan was too hopeful."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN_ON, *OTHERS])
    parser.add_argument("--draws", type=int, default=3)
    arguments = parser.parse_args()
    print("| table | rows | columns | R² | ε | best case | typical | adverse | lost |\n|" + "---|" * 9)
    lines = []
    for name in arguments.tables:
        for line in check(name, arguments.draws):
            lines.append(line)
            numbers = " | ".join(f"{line[key]:.4f}" for key in ("best case", "typical", "adverse", "lost"))
            print(
                f"| {name} | {line['rows']:,} | {line['columns']} | {line['R²']:.2f} | {line['ε']:g} | {numbers} |",
                flush=True,
            )
    results = pd.DataFrame(lines)
    for kind in ("best case", "typical", "adverse"):
        worse = (results["lost"] > results[kind].clip(lower=0.001)).sum()
        print(f"\nlost more than planned as {kind} (and more than 0.001): {worse} of {len(results)}")
    matters = results[results["lost"] > 0.001]
    print(f"lost over planned as typical, geometric mean where more than 0.001 is lost: {_ratio(matters):.2f}")


def _ratio(results: pd.DataFrame) -> float:
    return float(np.exp(np.log(results["lost"] / results["typical"].clip(lower=0.0001)).mean()))


if __name__ == "__main__":
    main()
