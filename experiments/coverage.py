"""Coverage of the confidence intervals, their width, and false positives.

    python -m experiments.coverage --releases 2000

A coefficient is covered if the score test (exact t for "ridge") does not reject its true value, which is what it means
to be in the interval. The truth is the table's own coefficient, so nothing but the release is drawn again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

from gaussmix.accounting import delta as exact_delta
from gaussmix.calibration import calibrate
from gaussmix.inference import Problem, summarise
from gaussmix.sampling import factor, wishart_factor

LEVEL = 0.95


def gram_of_uniform_table(n: int, d: int, *, effect: bool = True) -> tuple[np.ndarray, np.ndarray, float]:
    """Gram matrix of (intercept, x, y) with x in [-1, 1], its coefficients, and C² with weights 1; y in [-1, 1]."""
    rng = np.random.default_rng([n, d])
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, d))])
    theta = np.concatenate([[0.1], rng.uniform(-0.5, 0.5, d) / np.sqrt(d)])
    if not effect:
        theta[1] = 0.0
    y = X @ theta + rng.uniform(-0.3, 0.3, n)
    if not effect:  # take the table's own chance correlation out, so that the hypothesis is exactly true
        rest = np.delete(X, 1, axis=1)
        x = X[:, 1] - rest @ np.linalg.lstsq(rest, X[:, 1], rcond=None)[0]
        y = y - x * (x @ y) / (x @ x)
    A = np.column_stack([X, y])
    return A.T @ A, np.linalg.solve((X.T @ X), X.T @ y), d + 2.0


def problem(W: np.ndarray, sigma2: float, k: int) -> Problem:
    """Features first, response last."""
    d = len(W) - 1
    return Problem(
        W_xx=W[:d, :d],
        w_xy=W[:d, d],
        w_yy=float(W[d, d]),
        response_noise=sigma2,
        noise_variance=sigma2,
        sketch_size=k,
        names=tuple(f"x{i}" for i in range(d)),
        to_user=np.eye(d),
        offset=np.zeros(d),
        groups={},
        total=1.0,
        response_name="y",
    )


def one_setting(job: tuple[str, np.ndarray, float, int, int, int]) -> dict[str, float]:
    """Coverage of both targets for one Gram matrix (features first, response last) and σ²."""
    name, G, sigma2, k, releases, seed = job
    rng = np.random.default_rng(seed)
    d = len(G) - 1
    truth = {
        "table": np.linalg.solve(G[:d, :d], G[:d, d]),
        "ridge": np.linalg.solve(G[:d, :d] + sigma2 * np.eye(d), G[:d, d]),
    }
    L = factor(G, sigma2)
    covered: dict[str, list[bool]] = {"table": [], "ridge": []}
    errors = []
    critical = float(stats.chi2.isf(1 - LEVEL, 1))
    for i in range(releases):
        R = wishart_factor(L, k, rng)
        p = problem(R.T @ R / k, sigma2, k)
        ridge = summarise(p, target="ridge")
        low, high = ridge.conf_int(1 - LEVEL).T
        j = i % d  # one coefficient a release for the slow test, all of them in turn
        covered["ridge"].append(bool(low[j] <= truth["ridge"][j] <= high[j]))
        table = summarise(p, target="table", pvalues=False)
        covered["table"].append(table._score.profile({j: truth["table"][j]})[0] <= critical)
        errors.append(np.median(table.bse[1:]) if d > 1 else table.bse[0])
    return {"name": name, "ridge": np.mean(covered["ridge"]), "table": np.mean(covered["table"]),
            "bse": float(np.median(errors)), "releases": releases}  # fmt: skip


def settings(releases: int) -> list[tuple[str, np.ndarray, float, int, int, int]]:
    """Ordinary tables with the default sketch, and weak directions with small ones."""
    jobs = []
    k = 10**6
    for n, d, epsilon in [(20_000, 5, 1.0), (20_000, 5, 0.3), (100_000, 20, 1.0), (5_000, 5, 1.0)]:
        G, _, C2 = gram_of_uniform_table(n, d)
        sigma2 = calibrate(epsilon, 1e-6, sketch_size=k).gamma * C2
        jobs.append((f"n={n:,} d={d} ε={epsilon:g}", G, sigma2, k, releases, len(jobs)))
    for d in (1, 3, 6):  # a weak direction with a large coefficient along it
        for strength, theta in [(0.05, 5.0), (0.1, 5.0), (0.3, 20.0)]:
            for k_small in (60, 350, 2000):
                values = np.concatenate([[strength], np.full(d - 1, 5.0)])
                G_xx = np.diag(values)
                coefficient = np.concatenate([[theta], np.full(d - 1, 0.5)])
                y = G_xx @ coefficient
                G = np.block([[G_xx, y[:, None]], [y[None], np.array([[coefficient @ y + 1.0]])]])
                name = f"weak: d={d} g={strength:g}σ² θ={theta:g} k={k_small}"
                jobs.append((name, G, 1.0, k_small, releases, len(jobs)))
    return jobs


def false_positives(releases: int) -> float:
    """Share of releases whose test at 5 % rejects a coefficient that is exactly 0."""
    G, _, C2 = gram_of_uniform_table(20_000, 5, effect=False)
    k = 10**6
    sigma2 = calibrate(1.0, 1e-6, sketch_size=k).gamma * C2
    assert exact_delta(1.0, sketch_size=k, gamma=sigma2 / C2) <= 1e-6
    L, rng = factor(G, sigma2), np.random.default_rng(1)
    rejected = 0
    for _ in range(releases):
        R = wishart_factor(L, k, rng)
        s = summarise(problem(R.T @ R / k, sigma2, k), target="table", pvalues=False)
        rejected += stats.chi2.sf(s._score.profile({1: 0.0})[0], 1) < 0.05
    return rejected / releases


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=2000)
    arguments = parser.parse_args()
    table = Table(title=f"Coverage of {LEVEL:.0%} intervals, {arguments.releases} releases each", title_justify="left")
    for heading in ("setting", "ridge (exact t)", "table (score)", "median std err (x in [-1, 1])"):
        table.add_column(heading, justify="left" if heading == "setting" else "right")
    jobs = settings(arguments.releases)
    with multiprocessing.Pool() as pool:
        stream = pool.imap(one_setting, jobs)
        for row in track(stream, total=len(jobs), console=Console(stderr=True)):
            table.add_row(row["name"], f"{row['ridge']:.3f}", f"{row['table']:.3f}", f"{row['bse']:.4f}")
    Console(width=110).print(table)
    print(f"false positives at 5 %: {false_positives(arguments.releases):.4f}")


if __name__ == "__main__":
    main()
