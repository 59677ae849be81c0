"""Coverage of the confidence intervals, their width, and false positives.

    python -m experiments.coverage --releases 2000

The truth is least squares of the table on the columns that a release keeps, so nothing but the release is drawn again.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from experiments import Floats
from experiments.parallel import Rows, run_all
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.models.inference import least_squares
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

LEVEL, Z, DELTA = 0.95, 1.959964, 1e-6
ORDINARY = [(20_000, 5, 1.0), (20_000, 5, 0.3), (100_000, 20, 1.0), (5_000, 5, 1.0)]  # rows, features, ε
WEAK = [  # features, strength of the weak direction, coefficient along it, standard deviation of the noise
    (d, strength, theta, noise)
    for d, (strength, theta), noise in itertools.product(
        (1, 3, 6), ((0.05, 5.0), (0.1, 5.0), (0.3, 20.0)), (0.13, 0.05, 0.02)
    )
]


def gram_of_uniform_table(n: int, d: int, *, effect: bool = True) -> tuple[Floats, Floats, float]:
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


def drawn(G: Floats, noise: float, rng: np.random.Generator) -> NoisyMoment:
    """A Gram matrix with noise of a standard deviation off the diagonal, √2 times that on it."""
    return NoisyMoment(G + noise * goe(len(G), rng), shape=noise * np.eye(len(G)))


def shares(name: str, G: Floats, noise: float, releases: int, seed: int) -> Rows:
    """Coverage of the columns kept, and how many are, for one Gram matrix (response last) and one size of the noise."""
    rng = np.random.default_rng(seed)
    d = len(G) - 1
    covered, kept, errors = [], [], []
    for _ in range(releases):
        fit = least_squares(drawn(G, noise, rng), intercept=False)
        own = list(fit.kept)
        kept.append(len(own) / d)
        if not own:
            continue
        std_error = np.sqrt(np.diagonal(fit.noise))[own]
        truth = np.linalg.solve(G[np.ix_(own, own)], G[own, d])
        covered.append(np.mean(np.abs(fit.theta[own] - truth) <= Z * std_error))
        errors.append(float(np.median(std_error)))
    return [{"name": name, "table": np.mean(covered), "kept": np.mean(kept), "bse": float(np.median(errors))}]


def entry_noise(epsilon: float, C2: float) -> float:
    """Standard deviation of an entry off the diagonal in a release of one pass."""
    return float(C2 / (np.sqrt(2) * gaussian_mu(epsilon, DELTA)))


def ordinary_tables(n: int, d: int, epsilon: float, releases: int, seed: int) -> Rows:
    """Coverage on a table of uniform features, released in one pass."""
    G, _, C2 = gram_of_uniform_table(n, d)
    return shares(f"n={n:,} d={d} ε={epsilon:g}", G, entry_noise(epsilon, C2), releases, seed)


def weak_directions(d: int, strength: float, theta: float, noise: float, releases: int, seed: int) -> Rows:
    """Coverage with a large coefficient along a weak direction."""
    G_xx = np.diag(np.concatenate([[strength], np.full(d - 1, 5.0)]))
    coefficient = np.concatenate([[theta], np.full(d - 1, 0.5)])
    y = G_xx @ coefficient
    G = np.block([[G_xx, y[:, None]], [y[None], np.array([[coefficient @ y + 1.0]])]])
    return shares(f"weak: d={d} g={strength:g} θ={theta:g} noise={noise:g}", G, noise, releases, seed)


def false_positives(releases: int) -> Rows:
    """Share of releases whose test at 5 % rejects a coefficient that is exactly 0."""
    G, _, C2 = gram_of_uniform_table(20_000, 5, effect=False)
    noise, rng = entry_noise(1.0, C2), np.random.default_rng(1)
    fits = [least_squares(drawn(G, noise, rng), intercept=False) for _ in range(releases)]
    rejected = [abs(fit.theta[1]) > Z * np.sqrt(fit.noise[1, 1]) for fit in fits]
    return [{"share": float(np.mean(rejected))}]


def coverage(releases: int, *, processes: int | None = None) -> pd.DataFrame:
    """Coverage in all settings; a setting's number is its seed."""
    ordinary = [(*table, releases, seed) for seed, table in enumerate(ORDINARY)]
    weak = [(*table, releases, seed) for seed, table in enumerate(WEAK, start=len(ORDINARY))]
    found = run_all(ordinary_tables, ordinary, processes=processes), run_all(weak_directions, weak, processes=processes)
    return pd.concat(found, ignore_index=True)


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=2000)
    parser.add_argument("--processes", type=int)
    options = parser.parse_args(arguments)
    table = Table(title=f"Coverage of {LEVEL:.0%} intervals, {options.releases} releases each", title_justify="left")
    for heading in ("setting", "coverage", "columns kept", "median std err (x in [-1, 1])"):
        table.add_column(heading, justify="left" if heading == "setting" else "right")
    for row in coverage(options.releases, processes=options.processes).itertuples():
        table.add_row(row.name, f"{row.table:.3f}", f"{row.kept:.2f}", f"{row.bse:.4f}")
    rejected = run_all(false_positives, [(options.releases,)], processes=options.processes)
    Console(width=110).print(table)
    print(f"false positives at 5 %: {rejected['share'].item():.4f}")


if __name__ == "__main__":
    main()
