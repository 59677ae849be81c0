"""Trials of private linear regression for Figures 2 and 4: the paper's methods on every set, one summary.

    GAUSSMIX_DATA=... python -m experiments.reproduce figure2 figure4

Protocol (that of arXiv:2505.24603v2): no intercept, rows divided by the largest
training norm and targets by the largest training value (**not private**: this compares mechanisms, not preprocessing),
``data_norm=1``, ``bounds_y=(-1, 1)``, ε = logspace(-1.2, 1.5, 6), δ = 1/n², 250 trials. A trial is a fresh 80/20 split
(fresh rows, for synthetic sets) and fresh noise; all methods and ε share the split. The figures have the four methods
of the paper, drawn from a Gram matrix that is added up once a trial (:mod:`experiments.paper_table`), with the error on
test rows and the risk on training rows, which Theorem 3 is about. Methods named ``published:`` are the published code
with its mistakes (:mod:`experiments.published`), and not private. AdaSSP has ρ = 0.05, which is better for it than the
published 10⁻¹⁰. ``METHODS`` has the library's own estimators too, for other studies. The rule behind ``LinearMixing,
exact`` was first noticed on these tables (version 0.2.0).
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments import Floats
from experiments.datasets import LINEAR, Table
from experiments.paper_table import DECLARED, Fit, PaperTable
from experiments.parallel import Rows, run_all
from experiments.published import PublishedCode
from experiments.sketches import LARGE_SKETCH, explicit_sketch
from experiments.summed import Regressor, SummedTable
from gaussmix import LinearRegression, baselines
from gaussmix.paper import LinearMixing
from gaussmix.paper.estimators import paper_sketch_size

Split = tuple[Floats, Floats, Floats, Floats]

EPSILONS = np.logspace(-1.2, 1.5, 6)
TRIALS, TRIALS_A_JOB = 250, 10
FOLDERS = ("paper_methods", "published", "sketch_times")
SYNTHETIC = ("gaussian", "mlp", "uniform")
Method = Callable[[PaperTable, float, float, np.random.Generator], Fit]
PAPER_METHODS: dict[str, Method] = {
    "LinearMixing, paper": PaperTable.linear_mixing,
    "AdaSSP, printed": functools.partial(PaperTable.adassp, analysis="printed"),
    "Sheffet, Rényi": functools.partial(PaperTable.sheffet, analysis="renyi"),
    "Sheffet, printed": functools.partial(PaperTable.sheffet, analysis="sheffet"),
    "AdaSSP, exact": functools.partial(PaperTable.adassp, analysis="exact"),  # not in the paper: what AdaSSP can do
}
METHODS: dict[str, Callable[..., Regressor | LinearMixing]] = {  # labels are those of the recorded results
    "LinearMixing, exact": lambda **budget: LinearRegression(passes=1, **DECLARED, **budget),
    "LinearMixing, paper": lambda n_rows, **budget: LinearMixing(n_max=n_rows, **DECLARED, **budget),
    "AdaSSP, exact": lambda **budget: baselines.AdaSSP(**DECLARED, **budget),
    "AdaSSP, printed": lambda **budget: baselines.AdaSSP(analysis="printed", **DECLARED, **budget),
    "Sheffet, Rényi": lambda **budget: baselines.SheffetMixing(analysis="renyi", **DECLARED, **budget),
    "Sheffet, printed": lambda **budget: baselines.SheffetMixing(**DECLARED, **budget),
}
RIDGE, MEAN, ZERO = "ridge (not private)", "mean of y (not private)", "zero"


@functools.cache
def real_table(name: str) -> Table:
    """A table that is the same in every trial."""
    return LINEAR[name](np.random.default_rng(0))


def split_table(name: str, rng: np.random.Generator) -> Split:
    """Scaled training and test rows of a set, which for synthetic sets are new."""
    return split(*(LINEAR[name](rng) if name in SYNTHETIC else real_table(name)), rng)


def split(X: Floats, y: Floats, rng: np.random.Generator | np.random.RandomState) -> Split:
    """Scaled training and test rows: X, y, X_test, y_test."""
    order = rng.permutation(len(y))
    X, y, n = X[order], y[order], int(0.8 * len(y))
    X, y = X / np.linalg.norm(X[:n], axis=1).max(), y / np.abs(y[:n]).max()
    return X[:n], y[:n], X[n:], y[n:]


def trials(name: str, first: int, count: int) -> Rows:
    """Test errors of every method and ε in some trials."""
    warnings.filterwarnings("ignore", message="n_rows=.* is too small")  # hopeless budgets are part of the protocol
    return [row for trial in range(first, first + count) for row in one_trial(name, trial)]


def one_trial(name: str, trial: int) -> Rows:
    """Test errors of every method and ε on one split."""
    X, y, X_test, y_test = split_table(name, np.random.default_rng([trial, 2505]))
    table, delta = SummedTable(X, y), 1 / len(y) ** 2
    rows: Rows = []

    def add(method: str, epsilon: float, prediction: Floats | float) -> None:
        mse = float(np.mean((y_test - prediction) ** 2))
        rows.append({"set": name, "method": method, "epsilon": epsilon, "mse": mse})

    add(RIDGE, np.inf, table.fit(baselines.Ridge(**DECLARED)).predict(X_test))
    add(MEAN, np.inf, float(y.mean()))
    add(ZERO, 0.0, 0.0)
    for number, epsilon in enumerate(EPSILONS):
        for position, (method, make) in enumerate(METHODS.items()):
            rng = np.random.default_rng([trial, number, position])
            model = make(epsilon=epsilon, delta=delta, n_rows=len(y), random_state=rng)
            add(method, epsilon, table.fit(model).predict(X_test))
    return rows


def paper_trials(name: str, first: int, count: int) -> Rows:
    """Test errors and training risks of the paper's methods at every ε in some trials."""
    return [row for trial in range(first, first + count) for row in one_paper_trial(name, trial)]


def one_paper_trial(name: str, trial: int) -> Rows:
    """The paper's methods on one split."""
    X, y, X_test, y_test = split_table(name, np.random.default_rng([trial, 2505]))
    table, delta = PaperTable(X, y), 1 / len(y) ** 2
    rows: Rows = []

    def add(method: str, epsilon: float, fit: Fit) -> None:
        mse, train = float(np.mean((y_test - X_test @ fit.theta) ** 2)), table.risk(fit.theta)
        row = {"set": name, "method": method, "epsilon": epsilon, "mse": mse, "train": train}
        if math.isfinite(fit.expected):
            row |= {"expected": fit.expected, "limit": fit.limit, "best_limit": fit.best_limit}
            row |= {"held": float(train <= fit.limit), "best_held": float(train <= fit.best_limit)}
        rows.append(row)

    add(RIDGE, np.inf, table.ridge())
    add(ZERO, 0.0, Fit(np.zeros(table.d)))
    mse = float(np.mean((y_test - y.mean()) ** 2))
    rows.append({"set": name, "method": MEAN, "epsilon": np.inf, "mse": mse, "train": float(y.var())})
    for number, epsilon in enumerate(EPSILONS):
        for position, (method, draw) in enumerate(PAPER_METHODS.items()):
            add(method, epsilon, draw(table, epsilon, delta, np.random.default_rng([trial, number, position, 3])))
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
    """Mean and median test error, the mean with the half width of its 95 % interval; training risk where there is one.

    ``train`` is the mean training risk, ``expected`` its mean by the exact distribution of Theorem 3; ``limit`` is the
    theorem's bound for probability 0.95, averaged over trials, and ``held`` the share of trials within it.
    ``paired_ci95`` belongs to the difference in test error from LinearMixing on the same tables.
    """
    groups = results.groupby(["set", "method", "epsilon"], sort=False)
    table = groups.agg(trials=("mse", "size"), mse=("mse", "mean"), median=("mse", "median"), std=("mse", "std"))
    table.insert(2, "ci95", 1.96 * table.pop("std") / np.sqrt(table["trials"]))
    if "train" in results:
        table["train"] = groups["train"].mean()
        table["train_ci95"] = 1.96 * groups["train"].std() / np.sqrt(table["trials"])
        table = table.join(groups[["expected", "limit", "held", "best_limit", "best_held"]].mean())
        table["paired_ci95"] = 1.96 * _differences(results).std() / np.sqrt(table["trials"])
    return table.reset_index()


def _differences(results: pd.DataFrame) -> Any:
    """Differences in test error from LinearMixing in the same trial, grouped as the results are."""
    keys = ["set", "epsilon", "trial"]
    numbered = results.assign(trial=results.groupby(["set", "method", "epsilon"]).cumcount())
    ours = numbered[numbered["method"] == "LinearMixing, paper"].set_index(keys)["mse"].rename("ours")
    joined = numbered.join(ours, on=keys)
    joined["difference"] = joined["mse"] - joined["ours"]
    return joined.groupby(["set", "method", "epsilon"], sort=False)["difference"]


def sketch_times(name: str) -> Rows:
    """Seconds of one explicit sketch k x n times n x (d + 1), against fits through the Gram matrix at ε = 1.

    ``fit_s`` is a whole fit to the rows, ``refit_s`` one from their sums, both without the calibration, which sees no
    data and is remembered; ``adassp_s`` is a whole fit of AdaSSP with the same accounting as the variant. The sketch of
    the exact variant has 10⁶ rows: a thousand of them are measured.
    """
    X, y, *_ = split_table(name, np.random.default_rng([0, 2505]))
    common: dict[str, Any] = {**DECLARED, "epsilon": 1.0, "delta": 1 / len(y) ** 2, "random_state": 0}
    variants = (
        ("paper", LinearMixing(**common), baselines.AdaSSP(analysis="printed", **common), 1),
        ("exact", LinearRegression(passes=1, **common), baselines.AdaSSP(**common), 1000),
    )
    return [{"set": name, **_fit_times(X, y, *variant)} for variant in variants]


def _fit_times(
    X: Floats, y: Floats, variant: str, model: Regressor | LinearMixing, adassp: baselines.AdaSSP, part: int
) -> dict[str, object]:
    """Times of one variant; one in ``part`` rows of its explicit sketch is drawn."""
    k = paper_sketch_size(X.shape[1]) if variant == "paper" else LARGE_SKETCH
    table, A, rng = SummedTable(X, y), np.column_stack([X, y]), np.random.default_rng(0)
    table.fit(model)  # sums the rows up
    return {
        "n": len(X),
        "d": X.shape[1],
        "variant": variant,
        "sketch_size": k,
        "explicit_s": part * _median_seconds(lambda: explicit_sketch(A, k // part, rng)),
        "fit_s": _median_seconds(lambda: model.fit(X, y)),
        "refit_s": _median_seconds(lambda: table.fit(model)),
        "adassp_s": _median_seconds(lambda: adassp.fit(X, y)),
    }


def _median_seconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def run(figure: str, sets: Sequence[str], *, count: int, processes: int | None, cache: Path, results: Path) -> None:
    """All trials of some sets; writes ``figure.csv``, ``figure_code.csv`` and the times of sketches."""
    size = min(TRIALS_A_JOB, count)
    largest_first = sorted(sets, key=lambda name: name not in SYNTHETIC)
    jobs = [(name, first, min(size, count - first)) for name in largest_first for first in range(0, count, size)]
    start = time.perf_counter()
    private = run_all(paper_trials, jobs, folder=cache / "paper_methods", processes=processes)
    seconds = time.perf_counter() - start
    code = run_all(published_trials, jobs, folder=cache / "published", processes=processes)
    times = run_all(sketch_times, [(name,) for name in sets], folder=cache / "sketch_times", processes=1)
    times["ratio"] = times["explicit_s"] / times["fit_s"]
    results.mkdir(parents=True, exist_ok=True)
    summarise(private).to_csv(results / f"{figure}.csv", index=False, float_format="%.6g")
    summarise(code).to_csv(results / f"{figure}_code.csv", index=False, float_format="%.6g")
    times.to_csv(results / f"{figure}_times.csv", index=False, float_format="%.4g")
    print(f"{figure}: {len(private):,} fits in {seconds:,.0f} s.")
