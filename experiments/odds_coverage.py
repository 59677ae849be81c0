"""How often intervals of odds ratios hold the discriminant's values, and those of maximum likelihood, all columns.

    GAUSSMIX_DATA=... python -m experiments.odds_coverage --out experiments/results/odds_coverage.csv

Protocol, fixed before the first run: health insurance (whi), fertility (morekids) and the demonstration's table
(readmitted, 100,000 rows); all other columns as features; numbers within their range, rounded outward to two digits,
which stands for declared bounds; ε = 1, δ = 10⁻⁹, 40 releases, intervals of 95 % for the table. Maximum likelihood is
Newton's method on the rows, clipped alike, without a penalty to speak of.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments import Floats
from experiments.parallel import Rows, run_all
from experiments.passes_tables import _csv, outward
from gaussmix import Release, release
from gaussmix.baselines.objective_perturbation import minimise
from gaussmix.models.results import Summary
from gaussmix.report.demo import SCHEMA, make_patients

RELEASES, RELEASES_A_JOB = 40, 8
TABLES = {"whi": "whi", "morekids": "morekids", "demo": "readmitted"}


def load(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table whose yes and no are true and false, and its schema."""
    if name == "demo":
        return make_patients().to_pandas(), dict(SCHEMA)
    table = _csv("health_insurance/health_insurance.csv") if name == "whi" else _csv("fertility/fertility.csv")
    table = table.drop(columns="wght", errors="ignore")
    schema: dict[str, Any] = {}
    for column, values in table.items():
        if set(values.unique()) <= {"yes", "no"}:
            table[column], schema[str(column)] = values == "yes", "boolean"
        elif values.dtype.kind in "iuf":
            schema[str(column)] = list(outward(float(values.min()), float(values.max())))
        else:
            schema[str(column)] = {"levels": sorted(values.unique())}
    return table, schema


def design(table: pd.DataFrame, names: list[str]) -> Floats:
    """Columns of a summary's coefficients, by their names."""
    found = []
    for name in names:
        column, _, level = name.partition("=")
        if name == "(intercept)":
            found.append(np.ones(len(table)))
        else:
            found.append((table[column] == level if level else table[column]).to_numpy(float))
    return np.column_stack(found)


def likelihood(X: Floats, y: Floats) -> Floats:
    """Maximum likelihood, columns scaled to deviation 1."""
    scale = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    theta = minimise(X / scale, np.where(y, 1.0, -1.0), np.zeros(X.shape[1]), 1e-6, tolerance=1e-6 * math.sqrt(len(X)))
    return np.asarray(theta / scale)


def _summary(private: Release, target: str) -> Summary:
    """Of two classes."""
    found = private.logit(target).summary()
    if not isinstance(found, Summary):
        raise TypeError(f"{target} has more than two classes.")
    return found


def covered(name: str, first: int, count: int) -> Rows:
    """Both values and the interval of every coefficient in some releases."""
    table, schema = load(name)
    target = TABLES[name]
    exact = _summary(release(table, schema=schema, epsilon=math.inf, delta=1e-9), target).params
    names = [key for key in exact if key != "(intercept)"]
    best = likelihood(design(table, list(exact)), table[target].to_numpy(bool))
    of_likelihood = dict(zip(exact, best.tolist(), strict=True))
    rows: Rows = []
    for seed in range(first, first + count):
        private = release(table, schema=schema, epsilon=1.0, delta=1e-9, random_state=seed)
        intervals = _summary(private, target).conf_int()
        for key in names:
            low, high = intervals[key]
            rows.append({"table": name, "column": key, "likelihood": of_likelihood[key], "discriminant": exact[key],
                         "length": high - low, "holds_discriminant": bool(low <= exact[key] <= high),
                         "holds_likelihood": bool(low <= of_likelihood[key] <= high)})  # fmt: skip
    return rows


def main() -> None:
    """Write one row a coefficient, and print means a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--folder", type=Path, help="where the results of single jobs are kept")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    jobs = [(name, first, RELEASES_A_JOB) for first in range(0, chosen.releases, RELEASES_A_JOB) for name in TABLES]
    drawn = run_all(covered, jobs, folder=chosen.folder, processes=chosen.processes)
    drawn["identified"] = np.isfinite(drawn["length"])
    drawn["length"] = drawn["length"].where(drawn["identified"])
    table = drawn.groupby(["table", "column"], sort=False).mean().reset_index()
    print(table.round(4).to_string())
    print(table.groupby("table")[["holds_discriminant", "holds_likelihood", "identified"]].mean().round(3))
    if chosen.out is not None:
        table.to_csv(chosen.out, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
