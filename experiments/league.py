"""The league: private linear regression by the methods that people would use instead, on the same tables and budget.

    make league
    python -m experiments.league --splits 3 --out experiments/results/league.csv
    python -m experiments.league --report

The protocol is league_protocol.md. Each split of a table is one job, and each synthetic set is another; their rows are
stored in ``experiments/cache/league``, so that a run that was stopped continues where it was. After a change of the
library, pass ``--fresh``. ``--report`` writes the tables and the picture of docs/league.md from the file of results.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pandas as pd
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import gaussmix as gm
from experiments import Floats
from experiments.data_files import CACHE, RESULTS
from experiments.league_opendp import FEATURES, theil_sen_line
from experiments.noisy_sums import Noise
from experiments.noisy_sums import fit as fit_noisy_sums
from experiments.parallel import Rows, forget, run_all
from experiments.study_tables import StudyTable, load
from experiments.truth_study import LEAST_ROWS, Z, least_squares
from gaussmix.accounting import gaussian_mu
from gaussmix.mechanism.release import Passes

TABLES = {  # and the predictor of methods that have one only
    "air_quality": "nox",
    "bike": "temp",
    "boston": "rm",
    "cps1988_log": "education",
    "cps2024_log": "educ_years",
    "diamonds": "carat",
    "fertility": "age",
    "hotel_rates": "historical_adr",
    "wine": "alcohol",
}
CLASSES = {"cps1988_log": "parttime", "fertility": "morekids", "hotel_rates": "is_repeated_guest"}
"""Boolean responses, for logistic methods."""
EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-6
AIM = ("cps2024_log", "fertility")  # tables on which fits are known to finish
BIAS = ("hotel_rates", 0, 1000.0, "mst")  # what is left of the error of synthetic rows without noise
PENALTY_SHARE = 0.3  # of ε, in the calibration of objective perturbation of 2023
BINS = 32  # of a number, for synthetic rows
SETTINGS = tuple(
    itertools.product((10, 40, 160), (0.3, 1.0), (0.5, 2.0))
)  # of gradient descent: steps, clip, step size
DIFFPRIVLIB, SYNTHETIC = Path(".venv-field/bin/python"), Path(".venv-synth/bin/python")


# ---------------------------------------------------------------------------------------------------------------
# Tables
@dataclass(frozen=True, eq=False)
class Encoding:
    """Encoded columns of the predictors of a table: numbers in [-1, 1], booleans and levels 0 or 1."""

    names: list[str]
    lower: Floats  # -1 for numbers, 0 for others
    n_sources: int  # the largest squared norm of a row

    @classmethod
    def of(cls, table: StudyTable) -> Encoding:
        """Leave out the response and the first level of every category."""
        names: list[str] = []
        predictors = [name for name in table.schema if name != table.responses[0]]
        for name in predictors:
            declared = table.schema[name]
            categorical = declared != "boolean" and name not in table.numeric
            names += [f"{name}={level}" for level in declared[1:]] if categorical else [name]
        lower = np.array([-1.0 if name in table.numeric else 0.0 for name in names])
        return cls(names, lower, len(predictors))

    def encode(self, table: StudyTable, frame: pd.DataFrame) -> tuple[Floats, Floats]:
        """Return X and y."""
        columns = [_encoded(table, frame, name) for name in self.names]
        return np.column_stack(columns), _encoded(table, frame, table.responses[0])


def _encoded(table: StudyTable, frame: pd.DataFrame, name: str) -> Floats:
    if name in table.numeric:
        low, high = (float(end) for end in table.schema[name])
        return np.asarray(2 * (frame[name].clip(low, high) - low) / (high - low) - 1, dtype=np.float64)
    if name in frame:
        return np.asarray(frame[name], dtype=np.float64)
    source, level = name.split("=", 1)
    return np.asarray(frame[source] == level, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Split:
    """One split of a table, as frames and as encoded arrays, with the raw fit."""

    name: str
    table: StudyTable
    encoding: Encoding
    train: pd.DataFrame
    test: pd.DataFrame
    number: int

    @classmethod
    def of(cls, name: str, number: int, response: str | None = None) -> Split:
        """Train on 80 % of the rows; by default the response is the first one of the table."""
        table = load(name)
        if response is not None:
            table = dataclasses.replace(table, responses=(response,))
        order = np.random.default_rng([number, 32]).permutation(len(table.frame))
        n = int(0.8 * len(order))
        train, test = (table.frame.iloc[rows].reset_index(drop=True) for rows in (order[:n], order[n:]))
        return cls(name, table, Encoding.of(table), train, test, number)

    @functools.cached_property
    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """X and y of the training rows, X and y of the test rows."""
        return (*self.encoding.encode(self.table, self.train), *self.encoding.encode(self.table, self.test))

    @functools.cached_property
    def raw(self) -> tuple[Floats, Floats, float]:
        """Slopes of least squares on encoded training rows, their standard errors, and the intercept."""
        X, y, *_ = self.arrays
        return ordinary(X, y)

    @functools.cached_property
    def counted(self) -> Floats:
        """Which encoded columns are numbers, or have enough rows of both values."""
        X, *_ = self.arrays
        ones = X.sum(axis=0)
        return np.asarray((self.encoding.lower < 0) | (np.minimum(ones, len(X) - ones) >= LEAST_ROWS))

    def r2(self, guess: Floats | float) -> float:
        """R² on the test rows, of encoded predictions."""
        y = self.arrays[3]
        return 1 - float(np.mean((y - np.clip(guess, -1, 1)) ** 2) / np.var(y))

    def compare(self, coef: Floats, intervals: Floats | None = None) -> dict[str, float]:
        """Compare encoded slopes and their intervals, (columns, 2), with the raw fit."""
        truth, errors, _ = self.raw
        use = self.counted
        found = {"error": float(np.median(np.abs(coef - truth)[use] / errors[use]))}
        if intervals is None:
            return found
        low, high = intervals[use].T
        finite = np.isfinite(high - low)
        held = (low <= truth[use]) & (truth[use] <= high)
        lengths = (high - low) / (2 * Z * errors[use])
        return found | _interval_figures(held[finite], lengths[finite], float(finite.mean()))


def _interval_figures(held: Floats, lengths: Floats, identified: float) -> dict[str, float]:
    return {
        "coverage": float(np.mean(held)) if len(held) else math.nan,
        "length": float(np.median(lengths)) if len(lengths) else math.nan,
        "identified": identified,
    }


def ordinary(X: Floats, y: Floats) -> tuple[Floats, Floats, float]:
    """Return slopes, their standard errors and the intercept of least squares; collinear columns share a slope."""
    means, mean = X.mean(axis=0), float(y.mean())
    A, b = X - means, y - mean
    scale = np.sqrt(np.mean(A * A, axis=0))
    scale[scale == 0] = 1.0
    inverse = np.linalg.pinv((A / scale).T @ (A / scale), hermitian=True)
    slopes = inverse @ ((A / scale).T @ b)
    variance = np.sum((b - (A / scale) @ slopes) ** 2) / (len(y) - X.shape[1] - 1)
    slopes = slopes / scale
    return slopes, np.sqrt(variance * np.diagonal(inverse)) / scale, mean - float(means @ slopes)


# ---------------------------------------------------------------------------------------------------------------
# Methods: each yields a name and its figures on one split
Figures = Iterator[tuple[str, dict[str, float]]]


def by_release(split: Split, epsilon: float) -> Figures:
    """Releases of the table, with defaults and with one pass."""
    response = split.table.responses[0]
    choices: tuple[tuple[Passes, str], ...] = (("auto", ""), (1, ", one pass"))
    for passes, suffix in choices:
        release = gm.release(
            split.train,
            schema=dict(split.table.schema),
            epsilon=epsilon,
            delta=DELTA,
            passes=passes,
            random_state=split.number,
        )
        if passes == "auto":
            predictor = release.predictor(response)
            slopes = np.array([_contrast(predictor.coef, split, name) for name in split.encoding.names])
            yield "gaussmix predictor", {"r2": _r2(split, predictor.predict(split.test))} | split.compare(slopes)
        model = release.ols(response)
        yield f"gaussmix ols{suffix}", {"r2": _r2(split, model.predict(split.test))} | _intervals(split, release, model)


def _r2(split: Split, guess: Floats) -> float:
    low, high = (float(end) for end in split.table.schema[split.table.responses[0]])
    return split.r2(2 * (guess - low) / (high - low) - 1)


def _contrast(coef: dict[str, float], split: Split, name: str) -> float:
    """Return a coefficient per encoded unit, of a level against the first one."""
    low, high = (float(end) for end in split.table.schema[split.table.responses[0]])
    if name in split.table.numeric:
        lower, upper = (float(end) for end in split.table.schema[name])
        return coef[name] * (upper - lower) / (high - low)
    if name in split.table.schema:
        return 2 * coef.get(name, coef.get(f"{name}=true", math.nan)) / (high - low)
    source = name.split("=", 1)[0]
    return 2 * (coef[name] - coef[f"{source}={split.table.schema[source][0]}"]) / (high - low)


def _intervals(split: Split, release: gm.Release, model: gm.models.linear.RegressionModel) -> dict[str, float]:
    """Compare a model with the raw fit and with the fit that it states, both with the model's own reference levels."""
    table, response = split.table, split.table.responses[0]
    params, ends = dict(model.params), dict(model.conf_int())
    own = StudyTable(split.train, table.schema, table.responses)
    terms = [term for term in params if term != "(intercept)"]
    kept = [term for term in terms if math.isfinite(params[term])]
    truth, errors = (dict(zip(terms, part, strict=True)) for part in least_squares(own.clamped(), response, terms))
    counted = [term for term in terms if _frequent(split, term)]
    if not kept:
        return _interval_figures(np.array([]), np.array([]), 0.0)
    coded = least_squares(release.topcode(own.clamped()), response, kept, release.weights(split.train))[0]
    stated = dict(zip(kept, coded, strict=True))
    use = [term for term in counted if term in stated]
    held = np.array([ends[term][0] <= truth[term] <= ends[term][1] for term in use])
    held_own = [ends[term][0] <= stated[term] <= ends[term][1] for term in use]
    lengths = np.array([(ends[term][1] - ends[term][0]) / (2 * Z * errors[term]) for term in use])
    error = [abs(params[term] - truth[term]) / errors[term] for term in use]
    figures = _interval_figures(held, lengths, len(use) / len(counted))
    return figures | {"error": float(np.median(error)), "own_coverage": float(np.mean(held_own))}


def _frequent(split: Split, term: str) -> bool:
    if term in split.table.numeric:
        return True
    values = _encoded(split.table, split.train, term)
    return bool(min(values.sum(), len(values) - values.sum()) >= LEAST_ROWS)


def by_estimators(split: Split, epsilon: float) -> Figures:
    """Estimators and baselines of the library on encoded arrays."""
    X, y, Z_test, _ = split.arrays
    norm = math.sqrt(split.encoding.n_sources)
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "bounds_y": (-1.0, 1.0), "random_state": split.number}
    bounded = budget | {"bounds_X": (-1.0, 1.0), "data_norm": norm}
    models: dict[str, Any] = {
        "gaussmix LinearRegression": gm.LinearRegression(**bounded),
        "LinearMixing": gm.paper.LinearMixing(**budget, data_norm=norm, analysis="exact"),
        "AdaSSP": gm.baselines.AdaSSP(**bounded),
        "Sheffet": gm.baselines.SheffetMixing(**bounded, analysis="renyi"),
    }
    for name, model in models.items():
        model.fit(X, y)
        slopes, ends = model.coef_, None
        if name == "gaussmix LinearRegression":
            ends = np.array(list(model.conf_int().values()))[[key != "(intercept)" for key in model.params]]
        yield name, {"r2": split.r2(Z_test @ slopes + model.intercept_)} | split.compare(slopes, ends)


def by_binagg(split: Split, epsilon: float) -> Figures:
    """BinAgg as its code is, as its theorem is, and as its authors run it, with bounds from the rows."""
    X, y, Z_test, _ = split.arrays
    low, high = X.min(axis=0), X.max(axis=0)
    declared = {"bounds_X": (split.encoding.lower, np.ones(X.shape[1])), "bounds_y": (-1.0, 1.0)}
    ranges = {"bounds_X": (low, np.maximum(high, low + 1e-6)), "bounds_y": (y.min(), y.max())}
    choices: dict[str, dict[str, Any]] = {
        "BinAgg": declared | {"correction": "code"},
        "BinAgg, theorem": declared | {"correction": "theorem"},
        "BinAgg, bounds from the rows (not private)": ranges | {"correction": "code"},
    }
    for name, options in choices.items():
        model = gm.baselines.BinAgg(epsilon=epsilon, delta=DELTA, random_state=split.number, **options).fit(X, y)
        guess = Z_test @ model.coef_ + model.intercept_
        yield name, {"r2": split.r2(guess)} | split.compare(model.coef_, model.conf_int()[:-1])


def gradient_descent(
    X: Floats, y: Floats, mu: float, rng: np.random.Generator, *, steps: int, clip: float, rate: float
) -> Floats:
    """Return θ after full gradient steps with noise clip·√steps/μ; rows are divided by √d, as are the coefficients."""
    n, d = X.shape
    A, theta = X / math.sqrt(d), np.zeros(d)
    noise = clip * math.sqrt(steps) / mu
    norms_of_rows = np.linalg.norm(A, axis=1)
    for _ in range(steps):
        residual = A @ theta - y
        norms = np.abs(residual) * norms_of_rows
        weights = residual * np.minimum(1.0, clip / np.maximum(norms, 1e-300))
        theta -= rate * (A.T @ weights + noise * rng.standard_normal(d)) / n
    return np.asarray(theta / math.sqrt(d))


def by_other_methods(split: Split, epsilon: float) -> Figures:
    """Gradient descent, noisy sums, OpenDP's line, the mean and the raw fit."""
    X, y, Z_test, _ = split.arrays
    mu, rng = gaussian_mu(epsilon, DELTA), np.random.default_rng([split.number, int(1000 * epsilon)])
    A, B = (np.column_stack([part, np.ones(len(part))]) for part in (X, Z_test))
    for steps, clip, rate in SETTINGS:
        theta = gradient_descent(A, y, mu, rng, steps=steps, clip=clip, rate=rate)
        yield f"DP-GD {steps} {clip} {rate}", {"r2": split.r2(B @ theta)} | split.compare(theta[:-1])
    rows = np.column_stack([A, y])
    noise = Noise.of(epsilon, DELTA, squared_norm=split.encoding.n_sources + 1, columns=A.shape[1], published=False)
    fitted = fit_noisy_sums(rows.T @ rows, len(y), noise, rng)
    ends = fitted.intervals()[:-1]
    yield "noisy sums", {"r2": split.r2(B @ fitted.coef)} | split.compare(fitted.coef[:-1], ends)
    at = split.encoding.names.index(TABLES[split.name])
    slope, intercept = theil_sen_line(X[:, at], y, epsilon, 1_000)
    yield "OpenDP, one predictor", {"r2": split.r2(slope * Z_test[:, at] + intercept)}
    yield "mean", {"r2": split.r2(float(y.mean()) + rng.standard_normal() / (mu * len(y)))}
    slopes, errors, constant = split.raw
    ends = np.column_stack([slopes - Z * errors, slopes + Z * errors])
    yield "least squares", {"r2": split.r2(Z_test @ slopes + constant)} | split.compare(slopes, ends)


def by_diffprivlib(split: Split) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Linear regression of diffprivlib at every ε, in an environment of its own."""
    X, y, Z_test, _ = split.arrays
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        np.savez(given, X=X, y=y, Z=Z_test, epsilons=np.array(EPSILONS), seed=split.number)
        subprocess.run([DIFFPRIVLIB, Path(__file__).with_name("league_diffprivlib.py"), given, found], check=True)
        guesses = np.load(found)
    for epsilon, guess in zip(EPSILONS, guesses, strict=True):
        yield "diffprivlib", epsilon, {"r2": split.r2(guess)}


METHODS: tuple[Callable[[Split, float], Figures], ...] = (by_release, by_estimators, by_binagg, by_other_methods)


def trial(name: str, number: int) -> Rows:
    """Every fast method on one split of a table."""
    warnings.simplefilter("ignore")
    dp.enable_features(*FEATURES)
    split, found = Split.of(name, number), []
    for epsilon, method in itertools.product(EPSILONS, METHODS):
        began = time.perf_counter()
        for called, figures in method(split, epsilon):
            seconds, began = time.perf_counter() - began, time.perf_counter()
            found.append((called, epsilon, figures | {"seconds": seconds}))
    if DIFFPRIVLIB.exists():
        found += list(by_diffprivlib(split))
    key = {"table": name, "split": number}
    return [key | {"epsilon": epsilon, "method": called} | figures for called, epsilon, figures in found]


# ---------------------------------------------------------------------------------------------------------------
# Classification
def classify(name: str, number: int) -> Rows:
    """Logistic methods on one split of a table with a boolean response: log loss and area under the curve."""
    warnings.simplefilter("ignore")
    response = CLASSES[name]
    split, found = Split.of(name, number, response), []
    _, y, _, truth = split.arrays
    norm = math.sqrt(split.encoding.n_sources)
    for epsilon in EPSILONS:
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": number}
        bounded = budget | {"bounds_X": (-1.0, 1.0), "data_norm": norm, "classes": (0.0, 1.0)}
        mixing = gm.paper.LogisticMixing(**budget, data_norm=norm, classes=(0.0, 1.0), analysis="exact")
        schema, mu = dict(split.table.schema), gaussian_mu(epsilon, DELTA)
        release = gm.release(split.train, schema=schema, epsilon=epsilon, delta=DELTA, random_state=number)
        noise = np.random.default_rng([number, int(1000 * epsilon)]).standard_normal() / (mu * len(y))
        guesses: dict[str, Floats] = {
            "gaussmix logit": np.asarray(release.logit(response).predict(split.test)),
            "gaussmix LogisticRegression": _probabilities(gm.LogisticRegression(**bounded), split),
            "objective perturbation": _probabilities(gm.baselines.ObjectivePerturbation(**bounded), split),
            "objective perturbation, 2023": _probabilities(
                gm.baselines.ObjectivePerturbation(**bounded, penalty_share=PENALTY_SHARE), split
            ),
            "LogisticMixing": _probabilities(mixing, split),
            "mean": np.full(len(truth), y.mean() + noise),
            "maximum likelihood": _probabilities(
                LogisticRegression(C=1e8, solver="newton-cholesky", tol=1e-8, max_iter=500), split
            ),
        }
        for method, guess in guesses.items():
            p = np.clip(guess, 1e-6, 1 - 1e-6)
            loss = -float(np.mean(truth * np.log(p) + (1 - truth) * np.log(1 - p)))
            found.append({"epsilon": epsilon, "method": method, "log_loss": loss, "auc": roc_auc_score(truth, p)})
    return [{"table": name, "split": number, "response": response} | row for row in found]


def _probabilities(model: Any, split: Split) -> Floats:
    X, y, Z_test, _ = split.arrays
    return np.asarray(model.fit(X, y).predict_proba(Z_test)[:, 1])


# ---------------------------------------------------------------------------------------------------------------
# Synthetic rows
def discretised(table: StudyTable, frame: pd.DataFrame) -> pd.DataFrame:
    """Return codes: bins of numbers, 0 and 1, positions of levels."""
    codes = {}
    for name, declared in table.schema.items():
        if name in table.numeric:
            low, high = (float(end) for end in declared)
            scaled = (frame[name].clip(low, high) - low) / (high - low)
            codes[name] = np.minimum((BINS * scaled).astype(int), BINS - 1)
        elif declared == "boolean":
            codes[name] = frame[name].astype(int)
        else:
            codes[name] = frame[name].map({level: i for i, level in enumerate(declared)})
    return pd.DataFrame(codes)


def decoded(table: StudyTable, codes: pd.DataFrame) -> pd.DataFrame:
    """Return rows from codes: midpoints of bins, booleans, levels."""
    columns = {}
    for name, declared in table.schema.items():
        if name in table.numeric:
            low, high = (float(end) for end in declared)
            columns[name] = low + (codes[name] + 0.5) / BINS * (high - low)
        elif declared == "boolean":
            columns[name] = codes[name].astype(bool)
        else:
            columns[name] = codes[name].map(dict(enumerate(declared)))
    return pd.DataFrame(columns)


def regress_decoded(split: Split, rows: pd.DataFrame) -> dict[str, float]:
    """Least squares on decoded rows, with intervals that take them for rows of the table."""
    slopes, errors, constant = ordinary(*split.encoding.encode(split.table, rows))
    ends = np.column_stack([slopes - Z * errors, slopes + Z * errors])
    return {"r2": split.r2(split.arrays[2] @ slopes + constant)} | split.compare(slopes, ends)


def synthetic_trial(name: str, number: int, epsilon: float, kind: str) -> Rows:
    """Least squares on synthetic rows; ``kind`` is "mst", "aim", or "none" for rows that are only discretised."""
    split = Split.of(name, number)
    began, codes = time.perf_counter(), discretised(split.table, split.train)
    if kind != "none":
        with tempfile.TemporaryDirectory() as folder:
            given, found = Path(folder) / "given.csv", Path(folder) / "found.csv"
            codes.to_csv(given, index=False)
            script = Path(__file__).with_name("league_synthetic.py")
            arguments = [kind, str(epsilon), str(DELTA), str(number)]
            subprocess.run([SYNTHETIC, script, given, found, *arguments], check=True, capture_output=True)
            codes = pd.read_csv(found)
    figures = regress_decoded(split, decoded(split.table, codes))
    method = {"mst": "MST", "aim": "AIM", "none": "discretised, not private"}[kind]
    key = {"table": name, "split": number, "epsilon": epsilon, "method": method}
    return [key | figures | {"seconds": time.perf_counter() - began}]


# ---------------------------------------------------------------------------------------------------------------
# Results
OURS, TRIVIAL, RAW = "gaussmix predictor", "mean", "least squares"
LINEAR = (
    RAW,
    OURS,
    "gaussmix ols",
    "gaussmix ols, one pass",
    "gaussmix LinearRegression",
    "LinearMixing",
    "AdaSSP",
    "Sheffet",
    "BinAgg",
    "BinAgg, theorem",
    "DP-GD",
    "noisy sums",
    "diffprivlib",
    "OpenDP, one predictor",
    "MST",
    "AIM",
    TRIVIAL,
)
"""Methods that are compared, in their order."""
IN_THE_FILE = ("gaussmix ols, one pass", "Sheffet", "BinAgg, theorem")
"""Methods that the page's table of predictions leaves to the file."""
WITH_INTERVALS = ("gaussmix ols", "BinAgg", "BinAgg, theorem", "noisy sums", "MST", "AIM")
LOGISTIC = (
    "maximum likelihood",
    "gaussmix logit",
    "gaussmix LogisticRegression",
    "objective perturbation",
    "objective perturbation, 2023",
    "LogisticMixing",
    TRIVIAL,
)
VISIBLE = 0.002  # of R², a difference that counts as a loss
LEAST_COVERAGE = 0.9
SAME_SPLITS = (
    ("raw_r2", "r2", RAW),
    ("predictor_r2", "r2", OURS),
    ("predictor_error", "error", OURS),
    ("ols_error", "error", "gaussmix ols"),
)
"""Figures with which a method is compared on the splits that it was run on."""


def averages(results: pd.DataFrame) -> pd.DataFrame:
    """Return means over splits, by table, ε and method; of lengths and errors medians.

    The figures of gaussmix on the splits of each method are columns of their own, because splits differ by more than
    methods do, and methods that generate synthetic rows have one split only.
    """
    keys = ["table", "epsilon", "split"]
    by_split = results.set_index(keys)
    for name, column, method in SAME_SPLITS:
        results = results.join(by_split.loc[by_split["method"] == method, column].rename(name), on=keys)
    results = results.assign(lost=1 - results["r2"] / results["raw_r2"])  # of the raw fit on the same split
    numbers = ["r2", "lost", "coverage", "own_coverage", "length", "identified", "error", "log_loss", "auc"]
    groups = results.groupby(["table", "epsilon", "method"])
    means = groups[[*numbers, "predictor_r2"]].mean()
    medians = groups[["length", "error", "predictor_error", "ols_error"]].median()
    means = means.assign(**dict(medians.items())).reset_index()
    means["method"] = means["method"].str.replace("DP-GD .*", "DP-GD", regex=True)
    return means


def with_best_settings(results: pd.DataFrame) -> pd.DataFrame:
    """Keep one setting of gradient descent for each table and ε: the one with the best mean R² on the test rows."""
    tuned = results["method"].str.startswith("DP-GD ")
    means = results[tuned].groupby(["table", "epsilon", "method"])["r2"].mean()
    best = set(means.groupby(level=["table", "epsilon"]).idxmax())
    keys = results[["table", "epsilon", "method"]].itertuples(index=False, name=None)
    return results[~tuned | np.array([key in best for key in keys])]


def number(value: float, digits: int = 3) -> str:
    """Return a number as the page shows it; an empty cell if there is none."""
    if math.isnan(value):
        return ""
    if abs(value) >= 1000:
        return "> 1000" if value > 0 else "< −1000"
    shown = f"{value:.{digits if abs(value) < 10 else 0}f}"
    return shown.replace("-", "−") if float(shown) else f"{0:.{digits}f}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of the page."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def predictions(means: pd.DataFrame, epsilon: float) -> str:
    """R² of most methods on all tables."""
    wide = means[means["epsilon"] == epsilon].pivot(index="method", columns="table", values="r2")
    rows = [
        [name, *(number(wide.loc[name].get(table, math.nan)) for table in TABLES)]
        for name in LINEAR
        if name in wide.index and name not in IN_THE_FILE
    ]
    return markdown([f"ε = {epsilon:g}", *TABLES], rows)


def rivals(group: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of private methods other than gaussmix, in the order of LINEAR."""
    names = [name for name in LINEAR if not name.startswith("gaussmix") and name != RAW]
    found = group.set_index("method")
    return found.loc[[name for name in names if name in found.index]]


def lost_predictions(means: pd.DataFrame) -> str:
    """Where a private rival predicts better than the default on the same splits."""
    rows = []
    for (table, epsilon), group in means.groupby(["table", "epsilon"]):
        for name, row in rivals(group).iterrows():
            if row["r2"] > row["predictor_r2"] + VISIBLE:
                rows.append([table, f"{epsilon:g}", number(row["predictor_r2"]), str(name), number(row["r2"])])
    return markdown(["table", "ε", OURS, "rival", "its R²"], rows)


def by_budget(values: pd.Series, digits: int) -> str:
    """Return the values at the three ε in one cell, a dash where there is none."""
    found = [number(values.get(epsilon, math.nan), digits) or "–" for epsilon in EPSILONS]
    if len(set(found)) == 1:  # the same at all ε
        return found[0].replace("–", "")
    return ", ".join(found)


def lost_intervals(means: pd.DataFrame) -> str:
    """Tables on which intervals of a release or of the estimator contain the raw fit too rarely at some ε."""
    rows = []
    for table, group in means.groupby("table"):
        own = group.set_index(["method", "epsilon"])
        raw = [own["coverage"].get(name) for name in ("gaussmix ols", "gaussmix LinearRegression")]
        if min(values.min() for values in raw) < LEAST_COVERAGE:
            stated = own.loc["gaussmix ols", "own_coverage"]
            rows.append([str(table), *(by_budget(values, 2) for values in (raw[0], stated, raw[1]))])
    return markdown(["table", "`ols`: raw fit", "`ols`: own estimand", "`LinearRegression`: raw fit"], rows)


def lost_coefficients(means: pd.DataFrame) -> str:
    """Where a private rival's coefficients are nearer to the raw fit than those of `ols` on the same splits."""
    rows = []
    for (table, epsilon), group in means.groupby(["table", "epsilon"]):
        found = rivals(group)
        better = found[found["error"] < found["ols_error"]]
        # One line for the rivals that were run on the same splits.
        for own, same in better.groupby(["ols_error", "predictor_error"], sort=False):
            names = "; ".join(f"{name} {number(error, 2)}" for name, error in same["error"].items())
            rows.append([table, f"{epsilon:g}", *(number(value, 2) for value in own), names])
    return markdown(["table", "ε", "`ols`", "`predictor`", "rivals with a smaller error than `ols`"], rows)


def interval_table(means: pd.DataFrame) -> str:
    """Coverage of the raw fit and length at ε = 1, of every method with intervals."""
    rows = []
    for table, group in means[means["epsilon"] == 1.0].groupby("table"):
        own = group.set_index("method")
        cells = [number(own.loc["gaussmix ols", "own_coverage"], 2)]
        for name in WITH_INTERVALS:
            figures = own.loc[name] if name in own.index else pd.Series({"coverage": math.nan, "length": math.nan})
            shown = f"{number(figures['coverage'], 2)} ({number(figures['length'], 1)})"
            cells.append("" if math.isnan(figures["coverage"]) else shown)
        rows.append([str(table), *cells])
    return markdown(["ε = 1", "gaussmix ols: own estimand", *WITH_INTERVALS], rows)


def logistic_table(means: pd.DataFrame) -> str:
    """Log loss of logistic methods."""
    rows = []
    for table, response in CLASSES.items():
        loss = means[(means["table"] == table)].set_index(["method", "epsilon"])["log_loss"]
        rows.append([f"{table}, {response}", *(by_budget(loss[name], 3) for name in LOGISTIC)])
    return markdown(["table, response", *LOGISTIC], rows)


def blocks(results: pd.DataFrame) -> dict[str, str]:
    """Return the tables of the page by the name of their place."""
    linear = results["log_loss"].isna()
    means = averages(results[linear & results["epsilon"].isin(EPSILONS)])
    return {
        "lost predictions": lost_predictions(means),
        "lost intervals": lost_intervals(means),
        "lost coefficients": lost_coefficients(means),
        "classification": logistic_table(averages(results[~linear])),
        "prediction": predictions(means, 1.0),
        "intervals": interval_table(means),
    }


def write_page(results: pd.DataFrame, page: Path) -> None:
    """Replace the tables of docs/league.md, each between a pair of comments, and draw its picture."""
    text = page.read_text(encoding="utf-8")
    for name, table in blocks(results).items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        text = text[: text.index(begin) + len(begin)] + table + "\n" + text[text.index(end) :]
    page.write_text(text, encoding="utf-8")
    linear = results["log_loss"].isna() & results["epsilon"].isin(EPSILONS)
    draw(averages(results[linear]), page.parent / "figures" / "league.png")


COLOURS = {
    OURS: "#0b5fa5",
    "gaussmix ols": "#0b5fa5",
    "AdaSSP": "#e08214",
    "DP-GD": "#1b9e77",
    "BinAgg": "#c51b7d",
    "LinearMixing": "#8073ac",
    "noisy sums": "#a6761d",
    "MST": "#666666",
}


def draw(means: pd.DataFrame, path: Path) -> None:
    """Draw the loss of R² against the raw fit at ε = 1, and coverage against length of intervals at all ε."""
    figure = Figure(figsize=(11, 4.6))
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    own = means[means["epsilon"] == 1.0].pivot(index="table", columns="method", values="lost").loc[list(TABLES)]
    places = np.arange(len(TABLES))[::-1]
    for name in (OURS, "DP-GD", "AdaSSP", "MST", "LinearMixing", "BinAgg"):
        left.scatter(own[name].clip(3e-4, 3.0), places, s=46, color=COLOURS[name], label=name, zorder=3, alpha=0.9)
    left.axvline(1.0, color="black", linewidth=1, linestyle=":")
    left.text(0.94, -0.8, "mean of y", fontsize=8, ha="right")
    left.set(xscale="log", xlim=(2.2e-4, 4), ylim=(-0.95, len(TABLES) - 0.2), yticks=places)
    left.set_yticklabels(TABLES)
    left.set_xlabel("share of the raw fit's R² that is lost (borders: ≤ 0.0003 or a gain, ≥ 3)")
    left.set_title("Prediction, ε = 1", fontsize=11, loc="left", pad=26)
    left.grid(axis="x", alpha=0.3)
    left.legend(
        fontsize=7.5,
        handletextpad=0.1,
        loc="lower center",
        bbox_to_anchor=(0.42, 0.985),
        ncols=6,
        frameon=False,
        columnspacing=0.9,
    )
    for name in ("BinAgg", "noisy sums", "MST", "gaussmix ols"):
        part = means[(means["method"] == name) & means["coverage"].notna()]
        lengths = part["length"].clip(upper=1e4)
        right.scatter(lengths, part["coverage"], s=34, color=COLOURS[name], label=f"{name}, raw fit", alpha=0.85)
        if name == "gaussmix ols":
            style = {"facecolors": "none", "edgecolors": COLOURS[name]}
            right.scatter(lengths, part["own_coverage"], s=40, label=f"{name}, own estimand", **style)
    right.axhline(0.95, color="black", linewidth=1, linestyle=":")
    right.set(
        xscale="log", ylim=(-0.02, 1.04), xlabel="length / length of least squares' interval (≥ 10⁴ at the border)"
    )
    right.set_ylabel("coverage")
    right.set_title("95 % intervals, ε = 0.3, 1 and 3", fontsize=11, loc="left", pad=26)
    right.grid(alpha=0.3)
    right.legend(fontsize=8, loc="lower right", framealpha=0.95)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run and save, or report what was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--synthetic-splits", type=int, default=1)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=RESULTS / "league.csv")
    parser.add_argument("--page", type=Path, default=Path(__file__).parents[1] / "docs" / "league.md")
    parser.add_argument("--cache", type=Path, default=CACHE / "league")
    parser.add_argument("--report", action="store_true", help="write the tables and the picture of an earlier run")
    parser.add_argument("--fresh", action="store_true", help="forget fits of an earlier version of the library")
    arguments = parser.parse_args()
    if arguments.fresh:
        for part in ("splits", "classes"):
            forget(arguments.cache / part, arguments.tables)
    if not arguments.report:
        run(arguments).to_csv(arguments.out, index=False, float_format="%.5g", lineterminator="\n")
    write_page(pd.read_csv(arguments.out), arguments.page)


def run(arguments: argparse.Namespace) -> pd.DataFrame:
    """Run every job that has no result yet, and return all results."""
    folder, numbers = arguments.cache, range(arguments.splits)
    jobs = list(itertools.product(arguments.tables, numbers))
    results = [run_all(trial, jobs, folder=folder / "splits", processes=arguments.processes)]
    jobs = [(name, number) for name, number in jobs if name in CLASSES]
    results.append(run_all(classify, jobs, folder=folder / "classes", processes=arguments.processes))
    synthetic = itertools.product(arguments.tables, range(arguments.synthetic_splits), EPSILONS, ("mst", "aim", "none"))
    drawn = [
        job for job in synthetic if job[3] == "none" or (SYNTHETIC.exists() and (job[3] == "mst" or job[0] in AIM))
    ]
    if SYNTHETIC.exists() and BIAS[0] in arguments.tables and arguments.synthetic_splits:
        drawn.append(BIAS)
    results.append(run_all(synthetic_trial, drawn, folder=folder / "synthetic", processes=arguments.processes))
    found = pd.concat(results, ignore_index=True).sort_values(["table", "epsilon", "split"], kind="stable")
    return with_best_settings(found)


if __name__ == "__main__":
    main()
