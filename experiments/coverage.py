"""Coverage of the confidence intervals, their width, and false positives.

    python -m experiments.coverage --releases 2000

A coefficient is covered if the score test does not reject its true value, which is what it means to be in the
interval. The truth is the table's own coefficient, so nothing but the release is drawn again.
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
from gaussmix.models.design import Problem
from gaussmix.models.inference import score_of
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import goe

LEVEL, DELTA = 0.95, 1e-6
REACH = 1e6  # no coefficient is bounded, to speak of
ORDINARY = [(20_000, 5, 1.0), (20_000, 5, 0.3), (100_000, 20, 1.0), (5_000, 5, 1.0)]  # rows, features, ε
WEAK = [  # features, strength of the weak direction, coefficient along it, standard deviation of the noise
    (d, strength, theta, noise)
    for d, (strength, theta), noise in itertools.product(
        (1, 3, 6), ((0.05, 5.0), (0.1, 5.0), (0.3, 20.0)), (0.13, 0.05, 0.02)
    )
]

BOUNDED = [  # signal of the weak columns, their coefficients in units of the bounds, noise in a metric
    (weak, at, metric)
    for weak, at, metric in itertools.product((0.0, 1.0, 3.0, 6.0, 12.0), (0.0, 0.7, 1.0, 2.0), (False, True))
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


def problem(noisy: NoisyMoment, reach: float = REACH) -> Problem:
    """Features first, response last."""
    d = len(noisy.moment) - 1
    return Problem(
        noisy=noisy,
        names=tuple(f"x{i}" for i in range(d)),
        to_user=np.eye(d),
        offset=np.zeros(d),
        groups={},
        reach=np.full(d, reach),
        total=1.0,
        nobs=float("nan"),
        response_name="y",
    )


def accepts(noisy: NoisyMoment, *, coefficient: int, value: float) -> tuple[bool, Floats]:
    """Whether the score test accepts a value of one of the table's coefficients, and all standard errors."""
    score = score_of(problem(noisy), None, 1.0)
    noise, _ = score.covariance()
    return bool(score.p(np.array([value]), [coefficient])[0] >= 1 - LEVEL), np.sqrt(np.diagonal(noise))


def shares(name: str, G: Floats, noise: float, releases: int, seed: int) -> Rows:
    """Coverage for one Gram matrix (features first, response last) and one size of the noise."""
    rng = np.random.default_rng(seed)
    d = len(G) - 1
    table = np.linalg.solve(G[:d, :d], G[:d, d])
    in_table, errors = [], []
    for i in range(releases):
        j = i % d  # one coefficient per release, all of them in turn
        accepted, bse = accepts(drawn(G, noise, rng), coefficient=j, value=table[j])
        in_table.append(accepted)
        errors.append(np.median(bse[1:]) if d > 1 else bse[0])
    return [{"name": name, "table": np.mean(in_table), "bse": float(np.median(errors))}]


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


def bounded_nuisances(weak: float, at: float, metric: bool, releases: int, seed: int) -> Rows:
    """Coverage with Gaussian noise, three strong columns and three weak ones with coefficients ``at`` their bounds.

    In units of the noise's standard deviation: sums of squares 60, 50, 40 and ``weak`` times 1, 2/3, 4/3, correlations
    0.3. ``metric``: noise that differs between directions.
    """
    rng = np.random.default_rng(seed)
    strength = np.sqrt(np.array([60.0, 50.0, 40.0, weak, weak * 2 / 3, weak * 4 / 3]))
    theta = np.array([0.5, -0.3, 0.2, at, -at, at])
    G_xx = (0.3 + 0.7 * np.eye(6)) * np.outer(strength, strength)
    y = G_xx @ theta
    G = np.block([[G_xx, y[:, None]], [y[None], np.array([[theta @ y + 30.0]])]])
    B = np.eye(7)
    if metric:
        B = np.linalg.qr(rng.standard_normal((7, 7)))[0] * np.geomspace(0.5, 1.5, 7)
    accepted, ends = [], []
    for _ in range(releases):
        noisy = NoisyMoment(G + B @ goe(7, rng) @ B.T, shape=B @ B.T)
        score = score_of(problem(noisy, reach=1.0), None, 1.0)
        accepted.append(score.p(theta) >= 1 - LEVEL)
        ends.append(score.p_at_infinity < 1 - LEVEL)
    inside, ended = np.mean(accepted, axis=0), np.mean(ends, axis=0)
    name = f"weak {weak:g} sd, coefficients at {at:g} of bounds{', in a metric' if metric else ''}"
    return [
        {
            "name": name,
            "strong": float(inside[:3].min()),
            "weak": float(inside[3:].min()),
            "strong_ends": float(ended[:3].min()),
            "weak_ends": float(ended[3:].min()),
        }
    ]


def false_positives(releases: int) -> Rows:
    """Share of releases whose test at 5 % rejects a coefficient that is exactly 0."""
    G, _, C2 = gram_of_uniform_table(20_000, 5, effect=False)
    noise, rng = entry_noise(1.0, C2), np.random.default_rng(1)
    rejected = sum(not accepts(drawn(G, noise, rng), coefficient=1, value=0.0)[0] for _ in range(releases))
    return [{"share": rejected / releases}]


def bounded(releases: int, *, processes: int | None = None) -> pd.DataFrame:
    """Least coverage of strong and of weak coefficients where nuisances are bounded by assumption."""
    jobs = [(*setting, releases, seed) for seed, setting in enumerate(BOUNDED, start=100)]
    return run_all(bounded_nuisances, jobs, processes=processes)


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
    for heading in ("setting", "table (score)", "median std err (x in [-1, 1])"):
        table.add_column(heading, justify="left" if heading == "setting" else "right")
    for row in coverage(options.releases, processes=options.processes).itertuples():
        table.add_row(row.name, f"{row.table:.3f}", f"{row.bse:.4f}")
    nuisances = Table(title="Bounded nuisances: least coverage, and share of intervals that end", title_justify="left")
    for heading in ("setting", "strong", "weak", "strong end", "weak end"):
        nuisances.add_column(heading, justify="left" if heading == "setting" else "right")
    for row in bounded(options.releases, processes=options.processes).itertuples():
        shares_of = (row.strong, row.weak, row.strong_ends, row.weak_ends)
        nuisances.add_row(row.name, *(f"{share:.3f}" for share in shares_of))
    rejected = run_all(false_positives, [(options.releases,)], processes=options.processes)
    Console(width=110).print(table)
    Console(width=110).print(nuisances)
    print(f"false positives at 5 %: {rejected['share'].item():.4f}")


if __name__ == "__main__":
    main()
