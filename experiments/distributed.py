"""Distributed sketching on CPS 1988: q workers with k sketch rows each, in processes of their own.

    GAUSSMIX_DATA=... python -m experiments.distributed --workers 8 --rows 50 --repeats 400

Two settings from the paper's applications:

- **one table** (distributed sketching, Bartan and Pilanci): a curator holds the table and gives each worker an
  independent sketch of all of it. A worker solves least squares on its k rows and returns d coefficients, which are
  averaged; or the sketches are stacked. Every row of the table is in all q sketches: the account is that of qk rows.
- **split rows** (coded federated learning): each worker holds rows of its own, reads them from a file of its own,
  sketches them in its own process and sends the sketch. The aggregator stacks the sketches, adds them, or averages the
  coefficients. A row is in one sketch: the account is that of k rows, or of jk rows if j workers hold the row.

Noise is calibrated to (ε, δ) by the exact curve, and for one table also by Lemma 1 and by Sheffet's theorem. The
accuracy, the mean over repeats of L(θ)/L(θ*) - 1 on the whole table (computed from the rows: **not private**), goes to
``distributed.csv``; ε by each analysis for everybody who holds sketches goes to ``distributed_account.csv``. The study
draws from seeds, so that it can be repeated; leave them out for anything that is released.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from experiments import Floats
from experiments.data_files import RESULTS, read
from gaussmix import accounting, paper
from gaussmix.accounting import Analysis
from gaussmix.accounting.numerics import smallest_safe

COLUMNS = ("intercept", "education", "experience", "experience²", "ethnicity", "smsa", "parttime", "log_wage")
RESPONSE, D = COLUMNS[-1], len(COLUMNS) - 1
ROW_NORM = math.sqrt(len(COLUMNS))  # every entry is between -1 and 1
DELTA = 1e-6
ANALYSES: tuple[Analysis, ...] = ("exact", "renyi", "sheffet")
FILE, ACCOUNT_FILE = "distributed.csv", "distributed_account.csv"


def encode(table: pd.DataFrame) -> Floats:
    """Map rows to [-1, 1] by bounds that are declared: no row, and no other worker, has a say in them."""

    def between(values: Any, low: float, high: float) -> Floats:
        return np.clip(2 * (np.asarray(values, float) - low) / (high - low) - 1, -1, 1)

    experience = between(table["experience"], -5, 65)
    two_valued = [np.where(table[name] == value, 1.0, -1.0) for name, value in
                  (("ethnicity", "afam"), ("smsa", "yes"), ("parttime", "yes"))]  # fmt: skip
    wage = between(np.log(table["wage"]), 3, 10)
    education = between(table["education"], 0, 20)
    return np.column_stack([np.ones(len(table)), education, experience, experience**2, *two_valued, wage])


# ---------------------------------------------------------------------------------------------------------------
# The account
def epsilon(rows: int, gamma: float, analysis: Analysis = "exact") -> float:
    """ε of sketch rows that see a person's row, with noise of variance γC²."""
    return accounting.epsilon(DELTA, sketch_size=rows, gamma=gamma, analysis=analysis)


def noise(budget: float, rows: int, analysis: Analysis = "exact") -> float:
    """σ, the least noise for which an analysis proves the budget for this many rows."""
    gamma = smallest_safe(lambda g: epsilon(rows, g, analysis) - budget, 1 + 1e-6, 1e3, limit=1e9, rtol=1e-9)
    return ROW_NORM * math.sqrt(gamma)


def account(workers: int, rows: int, sigma: float) -> pd.DataFrame:
    """ε by each analysis of what one worker, a coalition and a reader of everything hold, for one σ."""
    holders = {"one worker": 1, "two workers": 2, "half of the workers": workers // 2, "all, and the result": workers}
    gamma = (sigma / ROW_NORM) ** 2
    return pd.DataFrame(
        [
            {"holder": holder, "sketch_rows": count * rows}
            | {analysis: epsilon(count * rows, gamma, analysis) for analysis in ANALYSES}
            for holder, count in holders.items()
        ]
    )


# ---------------------------------------------------------------------------------------------------------------
# What runs on a worker
def solve(sketches: Sequence[paper.Sketch]) -> tuple[int, list[Floats]]:
    """One table: coefficients from the sketches that the curator gave, and the process that found them."""
    return os.getpid(), [sketch.lstsq(RESPONSE) for sketch in sketches]


def sketch_part(path: str, rows: int, sigma: float, seeds: Sequence[Any]) -> tuple[int, list[paper.Sketch]]:
    """Split rows: read the worker's own file and sketch it, once for each seed; None is the secure generator."""
    A = encode(pd.read_csv(path))
    return os.getpid(), [
        paper.gauss_mix(
            A,
            rows,
            sigma,
            row_norm=ROW_NORM,
            columns=COLUMNS,
            method="explicit",
            rng=None if seed is None else np.random.default_rng(seed),
        )
        for seed in seeds
    ]


@contextmanager
def processes(count: int) -> Iterator[tuple[Client, list[str]]]:
    """Start workers, one process each, and give their addresses."""
    cluster = LocalCluster(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        yield client, sorted(client.scheduler_info(n_workers=-1)["workers"])


def each_worker(
    client: Client, addresses: Sequence[str], function: Callable[..., Any], tasks: Sequence[Any]
) -> list[Any]:
    """Run one task on every worker, and on no other, and return their results; no two share a process."""
    futures = [
        client.submit(function, *task, workers=[address], allow_other_workers=False, pure=False)
        for address, task in zip(addresses, tasks, strict=True)
    ]
    found = client.gather(futures)
    if len({process for process, _ in found} | {os.getpid()}) != len(tasks) + 1:
        raise RuntimeError("Workers must be processes of their own.")
    return [result for _, result in found]


# ---------------------------------------------------------------------------------------------------------------
# The study
def one_table(
    A: Floats, client: Client, addresses: Sequence[str], rows: int, sigma: float, repeats: int, seed: int
) -> dict[str, list[Floats]]:
    """Coefficients from independent sketches of the whole table, stacked and averaged."""
    q = len(addresses)
    drawn = [[_sketch(A, rows, sigma, [seed, repeat, worker]) for worker in range(q)] for repeat in range(repeats)]
    tasks = [([sketches[worker] for sketches in drawn],) for worker in range(q)]
    solved = each_worker(client, addresses, solve, tasks)
    return {
        "stacked": [paper.stack(sketches).lstsq(RESPONSE) for sketches in drawn],
        "averaged": [np.mean(thetas, axis=0) for thetas in zip(*solved, strict=True)],
    }


def one_curator(A: Floats, rows: int, sigma: float, repeats: int, seed: int) -> list[Floats]:
    """Coefficients from one sketch of the whole table."""
    return [_sketch(A, rows, sigma, [seed, repeat, 99]).lstsq(RESPONSE) for repeat in range(repeats)]


def _sketch(A: Floats, rows: int, sigma: float, seed: Sequence[int]) -> paper.Sketch:
    rng = np.random.default_rng(seed)
    return paper.gauss_mix(A, rows, sigma, row_norm=ROW_NORM, columns=COLUMNS, rng=rng)


def split_rows(
    parts: Sequence[Path], client: Client, addresses: Sequence[str], rows: int, sigma: float, repeats: int, seed: int
) -> dict[str, list[Floats]]:
    """Coefficients from sketches that workers drew of rows of their own: stacked, added and averaged."""
    tasks = [
        (str(part), rows, sigma, [[seed, repeat, worker] for repeat in range(repeats)])
        for worker, part in enumerate(parts)
    ]
    drawn = list(zip(*each_worker(client, addresses, sketch_part, tasks), strict=True))
    added = [np.sum([sketch.rows for sketch in sketches], axis=0) for sketches in drawn]
    return {
        "stacked": [paper.stack(sketches).lstsq(RESPONSE) for sketches in drawn],
        "added": [np.linalg.lstsq(M[:, :-1], M[:, -1], rcond=None)[0] for M in added],
        "averaged": [paper.average(sketches, RESPONSE) for sketches in drawn],
    }


def write_parts(table: pd.DataFrame, count: int, folder: Path) -> list[Path]:
    """Deal the rows out to files, one for each worker."""
    order = np.random.default_rng(0).permutation(len(table))
    paths = []
    for worker, rows in enumerate(np.array_split(order, count)):
        paths.append(folder / f"part{worker}.csv")
        table.iloc[rows].to_csv(paths[-1], index=False)
    return paths


def study(workers: int, rows: int, budgets: Sequence[float], repeats: int, seed: int = 0) -> pd.DataFrame:
    """Accuracy of every way to combine sketches at every ε."""
    table = pd.read_csv(io.BytesIO(read("cps1988/cps1988.csv")))
    A = encode(table)
    gram, total = A.T @ A, workers * rows
    best: Floats = np.asarray(np.linalg.solve(gram[:-1, :-1], gram[:-1, -1]), dtype=float)
    lines: list[dict[str, object]] = []

    def risk(theta: Floats) -> float:
        residual = np.append(-theta, 1.0)
        return float(residual @ gram @ residual)

    def add(setting: str, combined: str, analysis: str, budget: float, sigma: float, thetas: list[Floats]) -> None:
        excess = np.array([risk(theta) / risk(best) - 1 for theta in thetas])
        lines.append(
            {"setting": setting, "combined": combined, "analysis": analysis, "epsilon": budget, "sigma": sigma,
             "repeats": len(excess), "excess": excess.mean(), "se": excess.std(ddof=1) / math.sqrt(len(excess))}
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder, processes(workers) as (client, addresses):
        parts = write_parts(table, workers, Path(folder))
        for budget in budgets:
            for analysis in ANALYSES:
                sigma = noise(budget, total, analysis)
                if analysis == "exact":
                    add("one curator", "-", analysis, budget, sigma, one_curator(A, total, sigma, repeats, seed))
                for combined, thetas in one_table(A, client, addresses, rows, sigma, repeats, seed).items():
                    add("one table", combined, analysis, budget, sigma, thetas)
            for holders in (1, 2):
                sigma = noise(budget, holders * rows)
                setting = "split rows" if holders == 1 else "split rows, each held by at most two"
                for combined, thetas in split_rows(parts, client, addresses, rows, sigma, repeats, seed).items():
                    add(setting, combined, "exact", budget, sigma, thetas)
    return pd.DataFrame(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the study and write two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8, help="q")
    parser.add_argument("--rows", type=int, default=50, help="k, sketch rows of each worker")
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.3, 1.0, 3.0])
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    held = account(options.workers, options.rows, noise(1.0, options.workers * options.rows))
    held.to_csv(options.results / ACCOUNT_FILE, index=False, float_format="%.4g")
    found = study(options.workers, options.rows, options.epsilons, options.repeats)
    found.to_csv(options.results / FILE, index=False, float_format="%.5g")
    print(held.to_string(index=False), found.to_string(index=False), sep="\n\n")


if __name__ == "__main__":
    main()
