"""Coverage and loss of generalised linear models from one release (glm_protocol.md).

GAUSSMIX_DATA=... python -m experiments.glm_study --out experiments/results
"""

from __future__ import annotations

import argparse
import functools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

import gaussmix as gm
from experiments import Floats
from experiments import study_tables as tables
from experiments.parallel import Rows, run_all
from gaussmix.baselines import ObjectivePerturbation
from gaussmix.report.demo import SCHEMA, make_patients

EPSILONS, DELTA = (1.0, 3.0), 1e-6
RELEASES, RELEASES_PER_JOB, PERTURBED = 60, 5, 5
MANY_EVENTS = 60  # of a level whose rate ratio should be identified
LARGEST_ERROR = 5.0  # standard error of maximum likelihood over half of a range beyond which it does not exist


@dataclass(frozen=True, eq=False)
class Case:
    """A table with its schema, the response, its family and the columns that are not predictors."""

    frame: pd.DataFrame
    schema: Mapping[str, Any]
    response: str
    family: str
    without: tuple[str, ...] = ()
    exposure: str | None = None

    @property
    def predictors(self) -> list[str]:
        """All other columns."""
        taken = (self.response, self.exposure, *self.without)
        return [name for name in self.schema if name not in taken]


def _union() -> Case:
    frame = tables._csv("nlswork/nlswork.csv")
    for name in ("race", "ind_code", "occ_code"):
        frame[name] = tables._codes(frame[name])
    schema = {**tables._nlswork().schema, "union": "boolean"}
    return Case(tables._table(frame, schema, "union").frame, schema, "union", "logit")


def _rand() -> Case:
    from statsmodels.datasets import randhie

    frame = randhie.load_pandas().data
    schema: dict[str, Any] = {
        "mdvis": [0.0, 100.0],
        "lncoins": [0.0, 5.0],
        "idp": "boolean",
        "lpi": [0.0, 8.0],
        "fmde": [0.0, 10.0],
        "physlm": [0.0, 1.0],
        "disea": [0.0, 60.0],
        "hlthg": "boolean",
        "hlthf": "boolean",
        "hlthp": "boolean",
    }
    return Case(tables._table(frame, schema, "mdvis").frame, schema, "mdvis", "poisson")


def _of(table: tables.StudyTable, *rest: Any, **options: Any) -> Case:
    return Case(table.frame, table.schema, *rest, **options)


CASES = {
    "demo": lambda: Case(make_patients().to_pandas(), SCHEMA, "readmitted", "logit"),
    "union": _union,
    "nass_cds": lambda: _of(tables._nass_cds(), "dead", "logit", ("weight", "injSeverity")),
    "rwm5yr": lambda: _of(tables._rwm5yr(), "docvis", "poisson", ("hospvis",)),
    "whi": lambda: _of(tables._health_insurance(), "whi", "logit"),
    "morekids": lambda: _of(tables._fertility(), "morekids", "logit"),
    "hotel": lambda: _of(tables._hotel_rates(), "is_repeated_guest", "logit"),
    "ohlsson": lambda: _of(tables._ohlsson(), "antskad", "poisson", ("skadkost",), exposure="duration"),
    "rand": _rand,
}
"""Development half first (demo to rwm5yr), then the held-out half."""


@functools.cache
def load(name: str) -> Case:
    """Return a case; it is kept for further releases."""
    return CASES[name]()


def design(coded: pd.DataFrame, names: list[str]) -> Floats:
    """Return the columns of coefficients by their names."""
    found = []
    for name in names:
        column, _, level = name.partition("=")
        if name == "(intercept)":
            found.append(np.ones(len(coded)))
        else:
            found.append((coded[column].astype(str) == level if level else coded[column]).to_numpy(float))
    return np.column_stack(found)


def maximum_likelihood(
    X: Floats, y: Floats, family: str, exposure: Floats | float = 1.0, weights: Floats | float = 1.0
) -> tuple[Floats, Floats]:
    """Return coefficients and standard errors by Newton's method with halving, with weights of rows."""
    scale = np.maximum(np.abs(X).max(axis=0), 1e-12)
    Z, theta = X / scale, np.zeros(X.shape[1])
    mean = float(np.sum(y) / np.sum(np.broadcast_to(exposure, y.shape)))
    theta[0] = math.log(mean / (1 - mean) if family == "logit" else mean)

    def state(theta: Floats) -> tuple[float, Floats]:
        eta = Z @ theta
        area = np.logaddexp(0.0, eta) if family == "logit" else exposure * np.exp(eta)
        return float(np.sum(weights * (area - y * eta))), eta

    value, eta = state(theta)
    for _ in range(60):
        mu = special.expit(eta) if family == "logit" else exposure * np.exp(eta)
        weight = weights * (mu * (1 - mu) if family == "logit" else mu)
        H = Z.T @ (Z * weight[:, np.newaxis]) + 1e-9 * np.eye(Z.shape[1])
        step = np.linalg.solve(H, Z.T @ (weights * (y - mu)))
        length = 1.0
        while True:
            new, eta_new = state(theta + length * step)
            if new <= value + 1e-9 * abs(value) or length < 1e-4:
                break
            length /= 2
        theta, eta, fall = theta + length * step, eta_new, value - new
        value = new
        if abs(fall) < 1e-9 * abs(value):
            break
    return theta / scale, np.sqrt(np.diagonal(np.linalg.inv(H))) / scale


def loss(case: Case, y: Floats, mean: Floats) -> float:
    """Return the mean log-loss, or the mean of μ - y log μ."""
    if case.family == "logit":
        p = np.clip(mean, 1e-12, 1 - 1e-12)
        return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p)))
    mu = np.maximum(mean, 1e-12)
    return float(np.mean(mu - y * np.log(mu)))


def perturbed(case: Case, coded: pd.DataFrame, y: Floats, epsilon: float, seed: int) -> float:
    """Return the loss of objective perturbation on columns within [-1, 1]."""
    columns = []
    for name in case.predictors:
        declared = case.schema[name]
        levels = declared["levels"] if isinstance(declared, dict) else declared
        if declared == "boolean":
            columns.append(np.where(coded[name], 1.0, -1.0))
        elif isinstance(levels[0], str):
            columns += [(coded[name] == level).to_numpy(float) for level in levels]
        else:
            low, high = levels
            columns.append(np.clip((2 * coded[name].to_numpy(float) - low - high) / (high - low), -1, 1))
    X = np.column_stack(columns)
    model = ObjectivePerturbation(
        epsilon=epsilon, delta=DELTA, bounds_X=(-1, 1), classes=(False, True), random_state=seed
    )
    return loss(case, y, model.fit(X, y > 0.5).predict_proba(X)[:, 1])


def drawn(name: str, epsilon: float, first: int, count: int) -> Rows:
    """All coefficients and losses of some releases of one table."""
    warnings.simplefilter("ignore")
    case, rows = load(name), list[dict[str, Any]]()
    for seed in range(first, first + count):
        release = gm.release(case.frame, schema=dict(case.schema), epsilon=epsilon, delta=DELTA, random_state=seed)
        options = {} if case.exposure is None else {"exposure": case.exposure}
        model = release.fit(case.family, case.response, case.predictors, **options)
        summary, coded = model.summary(), release.topcode(case.frame)
        kept = [key for key in summary.params if key not in summary.left_out or math.isnan(summary.params[key])]
        least_squares = [summary._problem.names[i] for i in summary._fit.kept]
        kept = [key for key in kept if key in least_squares]
        y = coded[case.response].to_numpy(float)
        exposure = 1.0 if case.exposure is None else coded[case.exposure].to_numpy(float)
        X = design(coded, kept)
        beta, error = maximum_likelihood(X, y, case.family, exposure)
        weighted, _ = maximum_likelihood(X, y, case.family, exposure, release.weights(case.frame))
        half = np.ptp(X, axis=0) / 2
        ends = summary.conf_int()
        for j, key in enumerate(kept):
            if key == "(intercept)":
                continue
            own = summary.params[key]
            noise = math.sqrt(summary.noise_share[key]) * summary.bse[key]
            rows.append(
                {
                    "table": name, "epsilon": epsilon, "seed": seed, "term": key, "kind": "coefficient",
                    "exists": bool(error[j] * half[j] < LARGEST_ERROR),
                    "identified": not math.isnan(own),
                    "held": bool(ends[key][0] <= weighted[j] <= ends[key][1]),
                    "held_unweighted": bool(ends[key][0] <= beta[j] <= ends[key][1]),
                    "held_without": bool(abs(own - weighted[j]) <= 1.96 * noise),
                    "length": (ends[key][1] - ends[key][0]) / (2 * 1.96 * error[j]),
                    "error": (own - weighted[j]) / noise,
                    "assumed": summary.distribution_se[key] / noise,
                }
            )  # fmt: skip
        rows += [
            {"table": name, "epsilon": epsilon, "seed": seed, "term": key, "kind": "left out"}
            for key in summary.params
            if key not in kept
        ]
        eta = X @ beta
        truth = special.expit(eta) if case.family == "logit" else exposure * np.exp(eta)
        constant = np.sum(y) / np.sum(np.broadcast_to(exposure, y.shape)) * np.broadcast_to(exposure, y.shape)
        losses = {
            "maximum likelihood": loss(case, y, truth),
            "constant": loss(case, y, constant),
            "model": loss(case, y, model.predict(case.frame)),
        }
        if case.exposure is None:
            predictor = release.predictor(case.response, case.predictors, family=case.family)
            losses["predictor"] = loss(case, y, predictor.predict(case.frame))
        if case.family == "logit" and seed < PERTURBED:
            losses["objective perturbation"] = perturbed(case, coded, y, epsilon, seed)
        rows += [
            {"table": name, "epsilon": epsilon, "seed": seed, "term": key, "kind": "loss", "loss": value}
            for key, value in losses.items()
        ]
    return rows


def coverage(results: pd.DataFrame) -> pd.DataFrame:
    """Return one row per table, budget and coefficient."""
    own = results[results["kind"] == "coefficient"]
    found = own[own["identified"].astype(bool) & own["exists"].astype(bool)]
    grouped = found.groupby(["table", "epsilon", "term"], sort=False)
    every = results[results["kind"] != "loss"].groupby(["table", "epsilon", "term"], sort=False).size()
    return pd.DataFrame(
        {
            "releases": every,
            "identified": grouped.size() / every,
            "held": grouped["held"].mean(),
            "held_unweighted": grouped["held_unweighted"].mean(),
            "held_without_distribution": grouped["held_without"].mean(),
            "length_over_ml": grouped["length"].median(),
            "bias_over_noise": grouped["error"].mean(),
            "spread_over_noise": grouped["error"].std(),
            "distribution_over_noise": grouped["assumed"].median(),
        }
    ).reset_index()


def by_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of the protocol, one row per table and budget."""
    rows = []
    for (name, epsilon), own in table.groupby(["table", "epsilon"], sort=False):
        count = own["releases"] * own["identified"].fillna(0.0)
        told = own[own["identified"] >= 0.5]
        rows.append(
            {
                "table": name,
                "epsilon": epsilon,
                "releases": int(own["releases"].max()),
                "coefficients": len(own),
                "identified": count.sum() / own["releases"].sum(),
                "held": (own["held"].fillna(0.0) * count).sum() / count.sum(),
                "least": told["held"].min(),
                "unweighted": (own["held_unweighted"].fillna(0.0) * count).sum() / count.sum(),
                "unweighted_least": told["held_unweighted"].min(),
                "held_without": (own["held_without_distribution"].fillna(0.0) * count).sum() / count.sum(),
                "length_over_ml": told["length_over_ml"].median(),
                "distribution_over_noise": told["distribution_over_noise"].median(),
            }
        )
    return pd.DataFrame(rows)


def frequent_levels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share identified and held of rate ratios of levels with many events, one row per budget."""
    case = load("ohlsson")
    own = table[(table["table"] == "ohlsson") & table["term"].str.contains("=")]
    events = [
        case.frame.loc[case.frame[column] == level, case.response].sum()
        for column, level in own["term"].str.split("=").tolist()
    ]
    own = own[np.array(events) >= MANY_EVENTS].fillna({"identified": 0.0, "held": 0.0})
    grouped = own.assign(held=own["held"] * own["identified"]).groupby("epsilon", sort=False)
    found = grouped.agg(levels=("term", "size"), identified=("identified", "mean"), held=("held", "mean"))
    return found.assign(held=found["held"] / found["identified"]).reset_index()


def losses(results: pd.DataFrame) -> pd.DataFrame:
    """Return mean losses, one column per method."""
    own = results[results["kind"] == "loss"]
    return own.pivot_table(index=["table", "epsilon"], columns="term", values="loss", sort=False).reset_index()


SIMULATED = 20_000  # rows of a simulated table


def simulated(kind: str, seed: int) -> tuple[pd.DataFrame, dict[str, Any], str, str, dict[str, float]]:
    """Return rows of a known population: the table, its schema, family, response and true slopes."""
    if kind == "logit":
        frame = make_patients(SIMULATED, seed=10_000 + seed).to_pandas()
        truth = {"age": 0.04, "bmi": 0.0, "smoker": 1.0, "region=south": 0.0, "region=west": 0.0, "income": 0.0}
        return frame, dict(SCHEMA), "logit", "readmitted", truth
    rng = np.random.default_rng(20_000 + seed)
    x, group = rng.normal(0, 1, SIMULATED).clip(-4, 4), rng.choice(list("abc"), SIMULATED, p=[0.5, 0.3, 0.2])
    size = np.clip(rng.gamma(2.0, 1.0, SIMULATED), 0, 12)
    rate = np.exp(0.3 * x + 0.4 * (group == "b") - 0.3 * (group == "c") + 0.1 * size)
    counts = rng.poisson(rate * (rng.gamma(2.0, 0.5, SIMULATED) if kind == "overdispersed" else 1.0))
    frame = pd.DataFrame({"x": x, "group": group, "size": size, "y": np.minimum(counts, 60).astype(float)})
    schema: dict[str, Any] = {"x": [-4, 4], "group": {"levels": list("abc")}, "size": [0, 12], "y": [0, 60]}
    return frame, schema, "poisson", "y", {"x": 0.3, "group=b": 0.4, "group=c": -0.3, "size": 0.1}


def population(kind: str, first: int, count: int) -> Rows:
    """Whether intervals for the population hold the coefficients that rows were drawn with; nothing is top-coded."""
    warnings.simplefilter("ignore")
    rows = list[dict[str, Any]]()
    for seed in range(first, first + count):
        frame, schema, family, response, truth = simulated(kind, seed)
        release = gm.release(frame, schema=schema, epsilon=1.0, delta=DELTA, random_state=seed, topcode=None)
        predictors = [name for name in schema if any(term.split("=")[0] == name for term in truth)]
        ends = release.fit(family, response, predictors).summary(estimand="population").conf_int()
        rows += [
            {"kind": kind, "seed": seed, "term": term, "held": bool(ends[term][0] <= value <= ends[term][1])}
            for term, value in truth.items()
        ]
    return rows


def main() -> None:
    """Write coverage per coefficient and mean losses, and print the figures per table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--folder", type=Path, help="where the results of single jobs are kept")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--population", action="store_true", help="intervals for the population, simulated")
    chosen = parser.parse_args()
    if chosen.population:
        kinds = ("logit", "poisson", "overdispersed")
        drawn_rows = run_all(
            population,
            [(kind, first, 10) for kind in kinds for first in range(0, chosen.releases, 10)],
            folder=chosen.folder,
            processes=chosen.processes,
        )
        held = drawn_rows.groupby(["kind", "term"], sort=False)["held"].mean().reset_index()
        print(held.round(3).to_string(index=False))
        print(held.groupby("kind", sort=False)["held"].mean().round(3).to_string())
        if chosen.out is not None:
            held.to_csv(chosen.out / "glm_population.csv", index=False, float_format="%.4g")
        return
    jobs = [
        (name, epsilon, first, RELEASES_PER_JOB)
        for first in range(0, chosen.releases, RELEASES_PER_JOB)
        for name in chosen.tables
        for epsilon in chosen.epsilons
    ]
    results = run_all(drawn, jobs, folder=chosen.folder, processes=chosen.processes)
    found, means = coverage(results), losses(results)
    print(by_table(found).round(3).to_string(index=False))
    if "ohlsson" in chosen.tables:
        print(frequent_levels(found).round(3).to_string(index=False))
    print(means.round(4).to_string(index=False))
    if chosen.out is not None:
        found.to_csv(chosen.out / "glm.csv", index=False, float_format="%.4g")
        means.to_csv(chosen.out / "glm_loss.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
