"""Trials of private linear regression for Figures 2 and 4: every method on every set, one summary.

    GAUSSMIX_DATA=... python experiments/reproduce.py figure2 figure4

Protocol (that of arXiv:2505.24603v2, fixed before any result was seen): no intercept, rows divided by the largest
training norm and targets by the largest training value (**not private**: this compares mechanisms, not preprocessing),
``data_norm=1``, ``bounds_y=(-1, 1)``, ε = logspace(-1.2, 1.5, 6), δ = 1/n², 250 trials. A trial is a fresh 80/20 split
(fresh rows, for synthetic sets) and fresh noise; all methods and ε share the split. Methods named ``published:`` are
the published code with its mistakes (:mod:`published`), and not private.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from datasets import LINEAR, Table
from gaussmix import LinearMixing, baselines
from gaussmix.encoding import RowEncoder
from gaussmix.moments import Moments, accumulate
from gaussmix.sampling import explicit_sketch
from jobs import Rows, run_all
from published import PublishedCode

EPSILONS = np.logspace(-1.2, 1.5, 6)
TRIALS, TRIALS_A_JOB = 250, 10
FOLDERS = ("linear", "published", "explicit")
SYNTHETIC = ("gaussian", "mlp", "uniform")
DECLARED = {"data_norm": 1.0, "bounds_y": (-1, 1), "fit_intercept": False}
METHODS = {
    "LinearMixing, exact": lambda **budget: LinearMixing(**DECLARED, **budget),
    "LinearMixing, paper": lambda **budget: LinearMixing(variant="paper", **DECLARED, **budget),
    "AdaSSP, exact": lambda **budget: baselines.AdaSSP(**DECLARED, **budget),
    "AdaSSP, printed": lambda **budget: baselines.AdaSSP(accounting="printed", **DECLARED, **budget),
    "Sheffet, Rényi": lambda **budget: baselines.SheffetMixing(analysis="renyi", **DECLARED, **budget),
    "Sheffet, printed": lambda **budget: baselines.SheffetMixing(**DECLARED, **budget),
}
RIDGE, MEAN, ZERO = "ridge (not private)", "mean of y (not private)", "zero"


@functools.cache
def real_table(name: str) -> Table:
    """A table that is the same in every trial."""
    return LINEAR[name](np.random.default_rng(0))


def split_table(name: str, rng: np.random.Generator) -> tuple[NDArray[np.float64], ...]:
    """Scaled training and test rows: X, y, X_test, y_test."""
    X, y = LINEAR[name](rng) if name in SYNTHETIC else real_table(name)
    order = rng.permutation(len(y))
    X, y, n = X[order], y[order], int(0.8 * len(y))
    X, y = X / np.linalg.norm(X[:n], axis=1).max(), y / np.abs(y[:n]).max()
    return X[:n], y[:n], X[n:], y[n:]


class Summed:
    """A training table, summed up once for each way of encoding its rows."""

    def __init__(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        self.X, self.y = X, y
        self._moments: dict[RowEncoder, Moments] = {}

    def fit(self, model):
        """Fit a model from the sums."""
        encoder = model.encoder(self.X.shape[1])
        if encoder not in self._moments:
            self._moments[encoder] = accumulate([(self.X, self.y)], encoder)
        return model.fit_moments(self._moments[encoder])


def trials(name: str, first: int, count: int) -> Rows:
    """Test errors of every method and ε in some trials."""
    warnings.filterwarnings("ignore", message="n_rows=.* is too small")  # hopeless budgets are part of the protocol
    rows: Rows = []
    for trial in range(first, first + count):
        X, y, X_test, y_test = split_table(name, np.random.default_rng([trial, 2505]))
        table, delta = Summed(X, y), 1 / len(y) ** 2

        def add(method: str, epsilon: float, prediction: NDArray[np.float64] | float, seconds: float = 0.0) -> None:
            mse = float(np.mean((y_test - prediction) ** 2))  # noqa: B023 (called in this turn of the loop alone)
            rows.append({"set": name, "method": method, "epsilon": epsilon, "mse": mse, "seconds": seconds})

        add(RIDGE, np.inf, table.fit(baselines.Ridge(**DECLARED)).predict(X_test))
        add(MEAN, np.inf, float(y.mean()))
        add(ZERO, 0.0, 0.0)
        for number, epsilon in enumerate(EPSILONS):
            for position, (method, make) in enumerate(METHODS.items()):
                rng = np.random.default_rng([trial, number, position])
                model = make(epsilon=epsilon, delta=delta, n_rows=len(y), random_state=rng)
                start = time.perf_counter()
                table.fit(model)
                add(method, epsilon, model.predict(X_test), time.perf_counter() - start)
    return rows


def published_trials(name: str, first: int, count: int) -> Rows:
    """Test errors of the published code in the same trials; AdaSSP's λ̃ is drawn for each."""
    rows: Rows = []
    for trial in range(first, first + count):
        X, y, X_test, y_test = split_table(name, np.random.default_rng([trial, 2505]))
        for number, epsilon in enumerate(EPSILONS):
            code = PublishedCode(X, y, epsilon=epsilon, delta=1 / len(y) ** 2)
            rng = np.random.default_rng([trial, number, 99])
            for method, theta in code.one_trial(rng, code.adassp_eigenvalue(rng)).items():
                mse = float(np.mean((y_test - X_test @ theta) ** 2))
                rows.append({"set": name, "method": f"published: {method}", "epsilon": epsilon, "mse": mse})
    return rows


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean test error with the half width of its 95 % interval, and the median time of a fit."""
    results = results.assign(seconds=results["seconds"].fillna(0.0) if "seconds" in results else 0.0)
    groups = results.groupby(["set", "method", "epsilon"], sort=False)
    table = groups.agg(trials=("mse", "size"), mse=("mse", "mean"), median=("mse", "median"), std=("mse", "std"))
    table.insert(2, "ci95", 1.96 * table.pop("std") / np.sqrt(table["trials"]))
    table["fit_ms"] = 1e3 * groups["seconds"].median()
    return table.reset_index()


def explicit_times(name: str) -> Rows:
    """Seconds of one explicit sketch k x n times n x (d + 1), against one fit through the Gram matrix.

    The sketch of the exact variant has 10⁶ rows: a thousand of them are measured.
    """
    X, y, *_ = split_table(name, np.random.default_rng([0, 2505]))
    A, n, d = np.column_stack([X, y]), *X.shape
    k = max(int(np.ceil(2.5 * max(d, np.log(1e10)))), d + 1)
    rng = np.random.default_rng(0)
    rows: Rows = []
    for what, measured, wanted in (("paper", k, k), ("exact", 1000, 10**6)):
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            explicit_sketch([A], measured, 1.0, rng)
            taken.append(time.perf_counter() - start)
        seconds = float(np.median(taken)) * wanted / measured
        rows.append({"set": name, "n": n, "d": d, "variant": what, "sketch_size": wanted, "explicit_s": seconds})
    return rows


def run(figure: str, sets: Sequence[str], *, count: int, processes: int | None, cache: Path, results: Path) -> None:
    """All trials of some sets; writes ``figure.csv`` and, for the time of a sketch, ``figure_times.csv``."""
    size = min(TRIALS_A_JOB, count)
    largest_first = sorted(sets, key=lambda name: name not in SYNTHETIC)
    jobs = [(name, first, min(size, count - first)) for name in largest_first for first in range(0, count, size)]
    start = time.perf_counter()
    private = run_all(trials, jobs, folder=cache / "linear", processes=processes)
    seconds = time.perf_counter() - start
    code = run_all(published_trials, jobs, folder=cache / "published", processes=processes)
    table = summarise(pd.concat([private, code]))
    times = run_all(explicit_times, [(name,) for name in sets], folder=cache / "explicit", processes=1)
    fits = private[private["method"].isin(METHODS)].groupby(["set", "method"])["seconds"].median()
    times["gram_s"] = [float(fits[row.set, f"LinearMixing, {row.variant}"]) for row in times.itertuples()]
    times["ratio"] = times["explicit_s"] / times["gram_s"]
    results.mkdir(parents=True, exist_ok=True)
    table.to_csv(results / f"{figure}.csv", index=False, float_format="%.6g")
    times.to_csv(results / f"{figure}_times.csv", index=False, float_format="%.4g")
    releases = count * len(EPSILONS)
    paper = releases * 3 * times[times["variant"] == "paper"]["explicit_s"].sum()  # LinearMixing and both Sheffets
    exact = releases * times[times["variant"] == "exact"]["explicit_s"].sum()
    print(
        f"{figure}: {len(private):,} errors in {seconds:,.0f} s. By explicit sketches the three methods with the "
        f"paper's k alone would take {paper / 3600:,.1f} hours of one core, and that with k = 10⁶ "
        f"{exact / 3600:,.0f} hours."
    )
