"""Log-loss of private logistic regression on rows that were not used, beside objective perturbation and the share.

    GAUSSMIX_DATA=... python -m experiments.log_loss --out experiments/results/log_loss.csv

Protocol. Eight tables with a boolean response: the six of :mod:`experiments.glm_study`, CPS 1988 (`parttime`) and bike
(`busy`, more rentals than the median). Each draw takes four fifths of the rows at random for fitting; the mean log-loss
is over the other fifth, with probabilities within [10⁻⁶, 1 - 10⁻⁶]. ε = 0.3, 1 and 3, δ = 10⁻⁶; every method has the
whole budget, and defaults otherwise. The number of rows is not declared.

The release (`gm.release` of all columns) gives the predictor, `Release.predictor(family="logit")`, and the model,
`Release.logit`. Estimators of arrays have numbers mapped to [-1, 1] by their declared bounds, booleans and levels as 0
and 1, and `data_norm`, the square root of the number of predictors, as at most one level of a category is 1. Objective
perturbation has the calibrations of 2012 and of 2023, the latter with 0.1 and with 0.3 of ε for the penalty; the better
of both by the mean loss of a cell is counted, in its favour. The share of the fitted rows and maximum likelihood
(scikit-learn, C = 10⁸) are not private.

``--arrays`` runs the estimators of arrays and the share only, with the same draws, and writes the same columns without
those of the release and of maximum likelihood. In ``log_loss.csv`` the columns of ``LogisticRegression`` are of such a
run with 15 draws (column ``LogisticRegression, draws``).
"""

from __future__ import annotations

import argparse
import functools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from sklearn.linear_model import LogisticRegression

import gaussmix as gm
from experiments import Floats
from experiments import study_tables as tables
from experiments.glm_study import CASES, Case
from experiments.parallel import Rows, run_all
from gaussmix.baselines import ObjectivePerturbation

EPSILONS, DELTA, DRAWS, DRAWS_PER_JOB = (0.3, 1.0, 3.0), 1e-6, 45, 5
SHARES = (0.1, 0.3)
TABLES = ("demo", "union", "nass_cds", "whi", "morekids", "hotel", "parttime", "busy")
OURS = ("predictor", "logit", "LogisticRegression")
RIVALS = ("objective perturbation, 2012", "objective perturbation, 2023", "share")


def _busy() -> Case:
    table = tables._bike()
    frame = table.frame.assign(busy=table.frame["cnt"] > table.frame["cnt"].median()).drop(columns="cnt")
    schema = {name: own for name, own in table.schema.items() if name != "cnt"} | {"busy": "boolean"}
    return Case(frame, schema, "busy", "logit")


def _parttime() -> Case:
    table = tables._cps1988(dollars=False)
    return Case(table.frame, table.schema, "parttime", "logit")


@functools.cache
def load(name: str) -> Case:
    """Return a table; it is kept for further draws."""
    return {"busy": _busy, "parttime": _parttime, **CASES}[name]()


def encode(case: Case, frame: pd.DataFrame) -> Floats:
    """Return the predictors as arrays."""
    columns = []
    for name in case.predictors:
        declared = case.schema[name]
        if declared == "boolean":
            columns.append(frame[name].to_numpy(float))
            continue
        values = declared["levels"] if isinstance(declared, dict) else declared
        if isinstance(values[0], str):
            columns += [(frame[name].astype(str) == level).to_numpy(float) for level in values[1:]]
        else:
            low, high = values
            columns.append(np.clip((2 * frame[name].to_numpy(float) - low - high) / (high - low), -1, 1))
    return np.column_stack(columns)


def log_loss(y: Floats, probabilities: Floats) -> float:
    """Return the mean log-loss of probabilities of the second class."""
    p = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return -float(np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def trial(name: str, epsilon: float, first: int, count: int, arrays: bool = False) -> Rows:
    """All methods on some draws of one table, or those of ``arrays`` only."""
    warnings.simplefilter("ignore")  # budgets at which nothing is identified are part of the study
    case, rows = load(name), list[dict[str, object]]()
    X, y = encode(case, case.frame), case.frame[case.response].to_numpy(float)
    for seed in range(first, first + count):
        order = np.random.default_rng([seed, 29]).permutation(len(y))
        fitted, held_out = np.split(order, [len(y) * 4 // 5])
        truth, test = y[held_out], case.frame.iloc[held_out]
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
        declared = budget | {
            "bounds_X": (-1.0, 1.0), "data_norm": math.sqrt(len(case.predictors)), "classes": (0.0, 1.0)
        }  # fmt: skip
        models: dict[str, Any] = {
            "LogisticRegression": gm.LogisticRegression(**declared),
            "objective perturbation, 2012": ObjectivePerturbation(**declared),
        }
        models |= {
            f"objective perturbation, 2023, q = {share}": ObjectivePerturbation(**declared, penalty_share=share)
            for share in SHARES
        }
        losses = {"share": log_loss(truth, np.full(len(truth), y[fitted].mean()))}
        if not arrays:
            release = gm.release(case.frame.iloc[fitted].reset_index(drop=True), schema=dict(case.schema), **budget)
            predictor = release.predictor(case.response, case.predictors, family="logit")
            losses["predictor"] = log_loss(truth, predictor.predict(test))
            losses["logit"] = log_loss(truth, release.logit(case.response, case.predictors).predict(test))
            models["maximum likelihood"] = LogisticRegression(C=1e8, solver="newton-cholesky", tol=1e-8, max_iter=500)
        for method, model in models.items():
            model.fit(X[fitted], y[fitted])
            eta = X[held_out] @ np.ravel(model.coef_) + np.ravel(model.intercept_)
            losses[method] = log_loss(truth, special.expit(eta))
        key = {"table": name, "epsilon": epsilon, "seed": seed}
        rows += [key | {"method": method, "loss": value} for method, value in losses.items()]
    return rows


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Return means by table, ε and method, with standard errors of the difference to the best rival."""
    means = results.groupby(["table", "epsilon", "method"], sort=False)["loss"].mean().unstack("method")
    both = [name for name in means.columns if "2023" in name]
    chosen = means[both].idxmin(axis=1)
    means["objective perturbation, 2023"] = means[both].min(axis=1)
    wide = results.pivot(index=["table", "epsilon", "seed"], columns="method", values="loss")
    for cell in means.index:
        rival = str(means.loc[cell, list(RIVALS)].astype(float).idxmin())
        own = wide.loc[cell]
        for method in (own_ for own_ in OURS if own_ in own):
            behind = own[method] - own[chosen[cell] if "2023" in rival else rival]
            means.loc[cell, f"{method}, behind"] = behind.mean()
            means.loc[cell, f"{method}, standard error"] = behind.std() / math.sqrt(len(behind))
        means.loc[cell, "draws"] = len(own)
    return means.drop(columns=both).reset_index()


def main() -> None:
    """Write the means, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=TABLES, choices=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--arrays", action="store_true", help="estimators of arrays only")
    parser.add_argument("--folder", type=Path, help="where the results of single jobs are kept")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    jobs = [
        (name, epsilon, first, DRAWS_PER_JOB, chosen.arrays)
        for first in range(0, chosen.draws, DRAWS_PER_JOB)
        for name in chosen.tables
        for epsilon in chosen.epsilons
    ]
    found = summarise(run_all(trial, jobs, folder=chosen.folder, processes=chosen.processes))
    print(found.round(4).to_string(index=False))
    if chosen.out is not None:
        found.to_csv(chosen.out, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
