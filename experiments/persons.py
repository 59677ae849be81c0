"""Persons with several rows: a wage regression from a panel of 4,132 women, protected by row and by woman.

    python -m experiments.persons --draws 20 --out experiments/results/persons.csv
    python -m experiments.persons --report experiments/results/persons.csv

ln_wage on poly(age, 2), grade, union, south and tenure, complete cases of
nlswork. ``row``: one row is protected, which a woman with 15 of them has no use for. ``group``: the same release at
ε/15 and the δ that makes (ε, δ) for 15 rows, by group privacy. ``sample`` and ``scale``: a woman is the unit. Errors
are against least squares on all rows, in its standard errors, clustered by woman; and R² lost on the same rows.
"""

from __future__ import annotations

import argparse
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments import Floats
from experiments.data_files import read

EPSILONS, DELTA, MOST = (1.0, 3.0), 1e-6, 15
SCHEMA = {
    "age": [14, 46],
    "grade": [0, 18],
    "union": "boolean",
    "south": "boolean",
    "tenure": [0, 26],
    "ln_wage": [0, 5.5],
}
FORMULA = "ln_wage ~ poly(age, 2) + grade + union + south + tenure"
FEATURES = ["age", "age^2", "grade", "union", "south", "tenure"]


def women() -> pd.DataFrame:
    """Complete cases, one row a woman and year."""
    table = pd.read_csv(io.BytesIO(read("nlswork/nlswork.csv")))
    wanted = table[["idcode", "age", "grade", "union", "south", "tenure", "ln_wage"]].dropna()
    return wanted.assign(union=wanted["union"] > 0, south=wanted["south"] > 0)


def methods(epsilon: float) -> dict[str, dict[str, Any]]:
    """Arguments of a release, by name."""
    budget = {"epsilon": epsilon, "delta": DELTA}
    few = {"epsilon": epsilon / MOST, "delta": DELTA / (MOST * math.exp(epsilon * (MOST - 1) / MOST))}
    found: dict[str, dict[str, Any]] = {"row": budget, "group": few}
    for j in (3, 6, 15):
        found[f"keep {j}"] = {**budget, "privacy_unit": gm.PrivacyUnit("idcode", j, "sample")}
        found[f"shorten {j}"] = {**budget, "privacy_unit": gm.PrivacyUnit("idcode", j, "scale")}
    return found


def design(table: pd.DataFrame) -> tuple[Floats, Floats]:
    """Features with an intercept, and the target."""
    columns = table.assign(**{"age^2": table["age"] ** 2})[FEATURES]
    X = np.column_stack([columns.to_numpy(dtype=float), np.ones(len(table))])
    return X, table["ln_wage"].to_numpy(dtype=float)


def least_squares(table: pd.DataFrame) -> tuple[Floats, Floats]:
    """Coefficients, and standard errors clustered by woman."""
    X, y = design(table)
    theta, *_ = np.linalg.lstsq(X, y, rcond=None)
    scores = pd.DataFrame(X * (y - X @ theta)[:, np.newaxis]).groupby(table["idcode"].to_numpy()).sum().to_numpy()
    bread = np.linalg.inv(X.T @ X)
    return np.asarray(theta, dtype=np.float64), np.asarray(np.sqrt(np.diagonal(bread @ scores.T @ scores @ bread)))


def run(draws: int) -> pd.DataFrame:
    """All methods, all budgets."""
    table = women()
    X, y = design(table)
    theta, errors = least_squares(table)
    total, best = float(np.sum((y - y.mean()) ** 2)), float(np.sum((y - X @ theta) ** 2))
    rows = []
    for epsilon in EPSILONS:
        for name, arguments in methods(epsilon).items():
            for draw in range(draws):
                private = gm.release(table, schema=SCHEMA, formula=FORMULA, random_state=draw, **arguments)
                model, predictor = private.ols(FORMULA), private.predictor(FORMULA)
                found = np.array([*(predictor.coef[feature] for feature in FEATURES), predictor.intercept])
                params = np.array([model.params[feature] for feature in FEATURES])
                lost = (float(np.sum((y - X @ found) ** 2)) - best) / total
                off = np.abs(params - theta[:-1]) / errors[:-1]
                rows.append(
                    {"epsilon": epsilon, "method": name, "draw": draw, "lost_r2": lost}
                    | dict(zip(FEATURES, off, strict=True))
                )
    return pd.DataFrame(rows)


def report(results: pd.DataFrame) -> str:
    """R² lost, mean over draws, and the median error over draws and coefficients, in clustered standard errors."""
    results = results.assign(error=results[FEATURES].median(axis=1))
    lines = ["| method | R² lost, ε = 1 | ε = 3 | error, ε = 1 | ε = 3 |", "|---|---|---|---|---|"]
    for name in results["method"].unique():
        own = results[results["method"] == name].groupby("epsilon")
        lost, error = own["lost_r2"].mean(), own["error"].median()
        lines.append(f"| {name} | {lost[1]:.4f} | {lost[3]:.4f} | {error[1]:.1f} | {error[3]:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Run, or report what was run."""
    parser = argparse.ArgumentParser(description="Person-level release of nlswork.")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    results = run(chosen.draws) if chosen.report is None else pd.read_csv(chosen.report)
    if chosen.out is not None:
        results.to_csv(chosen.out, index=False, float_format="%.6g", lineterminator="\n")
    print(report(results))


if __name__ == "__main__":
    main()
