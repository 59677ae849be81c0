"""Coverage of generalised linear models where predictors depend on each other in a way that correlations do not show.

    python -m experiments.budget_food BudgetFood.csv --out experiments/results/budget_food.csv

BudgetFood (R package Ecdat, 23,971 complete rows of Spanish households) was used for nothing else in this project. The
size of a household rises and falls with the age of its head. The file is that of the Python package pydataset:
``pydataset.data("BudgetFood").to_csv("BudgetFood.csv", index=False)``.

Held is the share of 95 % intervals that contain maximum likelihood on the top-coded table with the weights of the
release, which is the estimand of the first line of a summary. ε = 1.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments.glm_study import design, maximum_likelihood
from experiments.parallel import Rows

EPSILON, DELTA, RELEASES = 1.0, 1e-6, 20
SCHEMA: dict[str, Any] = {
    "wfood": [0, 1],  # share of food in the expenditure
    "log_totexp": [9, 17],  # logarithm of the expenditure in pesetas
    "age": [16, 100],
    "size": [1, 20],
    "town": ["1", "2", "3", "4", "5"],
    "woman": "boolean",  # the head of the household
}
MODELS = {
    "logit": "woman ~ wfood + log_totexp + age + size + town",
    "poisson": "size ~ wfood + log_totexp + age + town + woman",
}


def read(path: Path) -> pd.DataFrame:
    """Return the complete rows with the columns of the schema."""
    frame = pd.read_csv(path).dropna()
    frame["log_totexp"] = np.log(frame["totexp"])
    return frame.assign(town=frame["town"].astype(int).astype(str), woman=frame["sex"] == "woman")[list(SCHEMA)]


def drawn(frame: pd.DataFrame, declared: bool, seed: int) -> Rows:
    """Return the coefficients of both models of one release."""
    models = [gm.DeclaredModel(formula, family) for family, formula in MODELS.items()] if declared else []
    release = gm.release(frame, SCHEMA, epsilon=EPSILON, delta=DELTA, models=models, random_state=seed)
    coded, weights, rows = release.topcode(frame), release.weights(frame), list[dict[str, Any]]()
    for family, formula in MODELS.items():
        summary = release.fit(family, formula).summary()
        names, ends = list(summary.params), summary.conf_int()
        y = coded[formula.partition(" ~ ")[0]].to_numpy(float)
        beta, error = maximum_likelihood(design(coded, names), y, family, weights=weights)
        for name, value, own_error in zip(names, beta, error, strict=True):
            low, high = ends[name]
            rows.append(
                {
                    "family": family, "declared": declared, "term": name,
                    "held": bool(low <= value <= high),
                    "difference": (summary.params[name] - value) / summary.bse[name],
                    "length": (high - low) / (2 * 1.96 * own_error),
                }
            )  # fmt: skip
    return rows


def by_term(rows: Rows) -> pd.DataFrame:
    """Return one row per coefficient: releases, coverage, mean difference in standard errors, median length."""
    grouped = pd.DataFrame(rows).groupby(["family", "declared", "term"], sort=False)
    found = grouped.agg(
        releases=("held", "size"), held=("held", "mean"), difference=("difference", "mean"), length=("length", "median")
    )
    return found.reset_index()


def main() -> None:
    """Print the table, and write it with --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    frame = read(options.csv)
    found = by_term(
        [row for declared in (False, True) for seed in range(options.releases) for row in drawn(frame, declared, seed)]
    )
    print(found.round(3).to_string(index=False))
    if options.out is not None:
        found.round(6).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
