"""Declared models against undeclared ones: coverage of maximum likelihood, loss, and robust standard errors.

GAUSSMIX_DATA=... python -m experiments.declared_study --out experiments/results

``declared.csv``: the tables of :mod:`experiments.glm_study`, each released with and without the declaration of its
model, δ = 10⁻⁶, default ``model_share``. Held is the share of 95 % intervals that contain maximum likelihood on the
coded table, of coefficients that it and the release identify.

``declared_population.csv``: rows drawn from known populations with unequal variances (20,000 rows, or 4,000 units of
five rows with dependent errors), ε = 1 and 3, nothing top-coded. Held is the share of 95 % intervals for the population
that contain the coefficients that rows were drawn with.

``declared_cluster.csv``: nlswork, wage equations with the person as privacy unit: clustered standard errors of
statsmodels over those of the release without its privacy noise.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

import gaussmix as gm
from experiments import study_tables as tables
from experiments.glm_study import LARGEST_ERROR, Case, design, load, loss, maximum_likelihood
from experiments.parallel import Rows, run_all
from gaussmix.models.results import CovType

EPSILONS, DELTA = (1.0, 3.0), 1e-6
RELEASES, RELEASES_PER_JOB = 100, 5
TABLES = ("whi", "ohlsson", "nass_cds", "hotel")
SIMULATED = 20_000


def formula_of(case: Case) -> gm.DeclaredModel:
    """Return the model of a case as a declaration."""
    return gm.DeclaredModel(f"{case.response} ~ {' + '.join(case.predictors)}", case.family, case.exposure)


def drawn(name: str, epsilon: float, first: int, count: int) -> Rows:
    """Coefficients and losses of some releases of one table, with and without the declaration."""
    warnings.simplefilter("ignore")
    case, rows = load(name), list[dict[str, Any]]()
    options = {} if case.exposure is None else {"exposure": case.exposure}
    for seed in range(first, first + count):
        for declared in (False, True):
            release = gm.release(
                case.frame,
                schema=dict(case.schema),
                epsilon=epsilon,
                delta=DELTA,
                random_state=seed,
                models=[formula_of(case)] if declared else [],
            )
            model = release.fit(case.family, case.response, case.predictors, **options)
            summary, coded = model.summary(), release.topcode(case.frame)
            kept = [summary._problem.names[i] for i in summary._fit.kept]
            y = coded[case.response].to_numpy(float)
            exposure = 1.0 if case.exposure is None else coded[case.exposure].to_numpy(float)
            X = design(coded, kept)
            beta, error = maximum_likelihood(X, y, case.family, exposure)
            half, ends = np.ptp(X, axis=0) / 2, summary.conf_int()
            base = {"table": name, "epsilon": epsilon, "declared": declared, "seed": seed}
            for j, key in enumerate(kept):
                if key == "(intercept)" or error[j] * half[j] >= LARGEST_ERROR:
                    continue
                rows.append(
                    {
                        **base, "term": key,
                        "identified": not math.isnan(summary.params[key]),
                        "held": bool(ends[key][0] <= beta[j] <= ends[key][1]),
                        "length": (ends[key][1] - ends[key][0]) / (2 * 1.96 * error[j]),
                    }
                )  # fmt: skip
            eta = X @ beta
            truth = special.expit(eta) if case.family == "logit" else exposure * np.exp(eta)
            best = loss(case, y, truth)
            rows.append({**base, "term": "loss", "model": loss(case, y, model.predict(case.frame)) - best})
            if case.exposure is None:
                predictor = release.predictor(case.response, case.predictors, family=case.family)
                rows[-1]["predictor"] = loss(case, y, predictor.predict(case.frame)) - best
    return rows


def by_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return one row per table, budget and declaration."""
    found = []
    for key, own in results.groupby(["table", "epsilon", "declared"], sort=False):
        coefficients = own[own["term"] != "loss"]
        known = coefficients[coefficients["identified"].astype(bool)]
        held = known["held"].astype(float)
        per = held.groupby(known["term"]).agg(["mean", "size"])
        often = per[per["size"] >= own["seed"].nunique() / 2]
        found.append(
            {
                **dict(zip(("table", "epsilon", "declared"), key, strict=True)),
                "releases": own["seed"].nunique(),
                "coefficients": coefficients["term"].nunique(),
                "identified": coefficients["identified"].astype(float).mean(),
                "held": held.mean(),
                "least": often["mean"].min(),
                "least_term": often["mean"].idxmin(),
                "below_85": int((often["mean"] < 0.85).sum()),
                "length_over_ml": known["length"].replace(np.inf, np.nan).median(),
                "excess_loss": own.loc[own["term"] == "loss", "model"].mean(),
                "excess_loss_median": own.loc[own["term"] == "loss", "model"].median(),
                "predictor_excess_loss": own.loc[own["term"] == "loss", "predictor"].mean(),
            }
        )  # fmt: skip
    return pd.DataFrame(found)


# ---------------------------------------------------------------------------------------------------------------
# Populations with unequal variances
KINDS = ("ols", "logit", "poisson", "ols, units", "logit, units")
TRUTH = {"x": 0.3, "group=b": 0.4, "group=c": -0.3, "size": 0.1}


def simulated(kind: str, seed: int) -> tuple[pd.DataFrame, dict[str, Any], gm.DeclaredModel]:
    """Return rows of a population whose mean is the model's and whose variance is not."""
    rng = np.random.default_rng(30_000 + seed)
    n = SIMULATED
    x, group = rng.normal(0, 1, n).clip(-4, 4), rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    size = np.clip(rng.gamma(2.0, 1.0, n), 0, 12)
    schema: dict[str, Any] = {"x": [-4, 4], "group": {"levels": list("abc")}, "size": [0, 12]}
    frame = pd.DataFrame({"x": x, "group": group, "size": size})
    if kind.endswith("units"):
        frame["who"] = np.arange(n) // 5
        frame["x"] = np.repeat(rng.normal(0, 1, n // 5).clip(-4, 4), 5)
        frame["group"] = np.repeat(rng.choice(list("abc"), n // 5, p=[0.5, 0.3, 0.2]), 5)
    index = 0.3 * frame["x"] + 0.4 * (frame["group"] == "b") - 0.3 * (frame["group"] == "c") + 0.1 * frame["size"]
    eta = index.to_numpy(float)
    if kind == "ols":
        frame["y"] = np.clip(eta + rng.normal(0, 1, n) * (0.3 + 0.7 * np.abs(frame["x"])), -12, 12)
        schema["y"] = [-12, 12]
        return frame, schema, gm.DeclaredModel("y ~ x + group + size", "ols")
    if kind == "ols, units":
        frame["y"] = np.clip(eta + rng.normal(0, 0.5, n) + np.repeat(rng.normal(0, 1, n // 5), 5), -12, 12)
        schema["y"] = [-12, 12]
        return frame, schema, gm.DeclaredModel("y ~ x + group + size", "ols")
    if kind.startswith("logit"):  # rows of a unit share their uniform number, so that responses are dependent
        uniform = rng.uniform(size=n) if kind == "logit" else np.repeat(rng.uniform(size=n // 5), 5)
        frame["y"] = uniform < special.expit(eta)
        schema["y"] = "boolean"
        return frame, schema, gm.DeclaredModel("y ~ x + group + size", "logit")
    frame["y"] = np.minimum(rng.poisson(np.exp(eta) * rng.gamma(1.0, 1.0, n)), 60).astype(float)
    schema["y"] = [0, 60]
    return frame, schema, gm.DeclaredModel("y ~ x + group + size", "poisson")


def population(kind: str, epsilon: float, first: int, count: int) -> Rows:
    """Whether robust and other intervals hold the coefficients of the population."""
    warnings.simplefilter("ignore")
    rows = list[dict[str, Any]]()
    for seed in range(first, first + count):
        frame, schema, model = simulated(kind, seed)
        unit = gm.PrivacyUnit("who", 5) if "who" in frame else None
        release = gm.release(
            frame, schema=schema, epsilon=epsilon, delta=DELTA, random_state=seed, topcode=None, models=[model],
            privacy_unit=unit,
        )  # fmt: skip
        fitted = release.ols(model.formula) if model.family == "ols" else release.fit(str(model.family), model.formula)
        types: tuple[CovType, ...] = ("cluster",) if unit else ("robust", "nonrobust")
        for cov_type in types:
            own = fitted.summary(estimand="population", cov_type=cov_type)
            ends = own.conf_int()
            rows += [
                {
                    "kind": kind, "epsilon": epsilon, "seed": seed, "cov_type": cov_type, "term": term,
                    "held": bool(ends[term][0] <= value <= ends[term][1]),
                    "noise_share": own.noise_share[term],
                }
                for term, value in TRUTH.items()
            ]  # fmt: skip
    return rows


# ---------------------------------------------------------------------------------------------------------------
# Clustered standard errors
def clustered(epsilon: float, first: int, count: int) -> Rows:
    """Standard errors of a release of persons over statsmodels' for the same coefficients."""
    import statsmodels.api as sm

    warnings.simplefilter("ignore")
    frame = tables._csv("nlswork/nlswork.csv")
    schema: dict[str, Any] = {
        "ln_wage": [0.0, 5.3], "age": [14, 46], "grade": [0, 18], "ttl_exp": [0, 29], "tenure": [0, 26],
        "collgrad": "boolean", "south": "boolean", "union": "boolean",
    }  # fmt: skip
    frame = frame[["idcode", *schema]].dropna()
    for name in ("collgrad", "south", "union"):
        frame[name] = frame[name].astype(bool)
    models = {
        "ols": "ln_wage ~ age + grade + ttl_exp + tenure + collgrad + south",
        "logit": "union ~ age + grade + ttl_exp + tenure + collgrad + south",
    }
    rows = list[dict[str, Any]]()
    for seed in range(first, first + count):
        release = gm.release(
            frame, schema=schema, epsilon=epsilon, delta=DELTA, random_state=seed, topcode=None,
            privacy_unit=gm.PrivacyUnit("idcode", 12), models=[gm.DeclaredModel(f, k) for k, f in models.items()],
        )  # fmt: skip
        for family, formula in models.items():
            fitted = release.ols(formula) if family == "ols" else release.logit(formula)
            own = fitted.summary(estimand="population")
            names = [name for name in own.params if name != "(intercept)"]
            X = np.column_stack([np.ones(len(frame)), *(frame[name].to_numpy(float) for name in names)])
            y = frame[formula.split(" ~ ")[0]].to_numpy(float)
            groups = {"groups": frame["idcode"]}
            fit = sm.OLS(y, X) if family == "ols" else sm.Logit(y, X)
            quiet = {} if family == "ols" else {"disp": 0}
            theirs = fit.fit(cov_type="cluster", cov_kwds=groups, **quiet).bse[1:]
            plain = fit.fit(**quiet).bse[1:]
            sampling = np.sqrt(np.diagonal(own._coefficients.sampling))[1:]
            rows += [
                {
                    "family": family, "epsilon": epsilon, "seed": seed, "term": name, "ratio": s / t,
                    "nonrobust_ratio": p / t, "total_ratio": own.bse[name] / t,
                }
                for name, s, t, p in zip(names, sampling, theirs, plain, strict=True)
            ]  # fmt: skip
    return rows


def main() -> None:
    """Run what was asked for, print and write tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=["tables", "population", "cluster"])
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--folder", type=Path, help="where the results of single jobs are kept")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    run = {"folder": chosen.folder, "processes": chosen.processes}
    starts = range(0, chosen.releases, RELEASES_PER_JOB)
    found: dict[str, pd.DataFrame] = {}
    if "tables" in chosen.parts:
        jobs = [(name, e, first, RELEASES_PER_JOB) for first in starts for name in chosen.tables for e in EPSILONS]
        found["declared"] = by_table(run_all(drawn, jobs, **run)).sort_values(["table", "epsilon", "declared"])
    if "population" in chosen.parts:
        jobs = [(kind, e, first, RELEASES_PER_JOB) for first in starts for kind in KINDS for e in EPSILONS]
        own = run_all(population, jobs, **run)
        keys = ["kind", "epsilon", "cov_type"]
        terms = own.groupby([*keys, "term"], sort=False)["held"].mean().groupby(keys, sort=False)
        found["declared_population"] = pd.DataFrame(
            {
                "tables": own.groupby(keys, sort=False)["seed"].nunique(),
                "held": own.groupby(keys, sort=False)["held"].mean(),
                "least": terms.min(),
                "noise_share": own.groupby(keys, sort=False)["noise_share"].median(),
            }
        ).reset_index()
    if "cluster" in chosen.parts:
        own = run_all(clustered, [(e, first, RELEASES_PER_JOB) for first in starts for e in EPSILONS], **run)
        keys = ["family", "epsilon", "term"]
        columns = ["ratio", "nonrobust_ratio", "total_ratio"]
        found["declared_cluster"] = own.groupby(keys, sort=False)[columns].median().reset_index()
    for name, table in found.items():
        print(table.round(4).to_string(index=False))
        if chosen.out is not None:
            table.to_csv(chosen.out / f"{name}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
