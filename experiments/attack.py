r"""The best attack there is on a release in passes: ``python -m experiments.attack --runs 100000``.

Neighbours are fixed: a small table, and the same with one more row. The attacker knows both, sees *everything* that the
mechanism draws (counts, histograms and passes, also what is not published) and computes the likelihood ratio. Given all
that came before, each output is an exact sum S plus independent noise of known scale σ a coordinate; the further row
changes S by Δ, which the attacker computes for whatever transform, edges and clip were asked. With E = output - S,

.. math:: \Lambda = \sum \frac{E\,\Delta}{\sigma^2} - \frac{\Delta^2}{2\sigma^2}

By Neyman and Pearson no test of the two tables does better than a threshold on Λ. The runs are halved: the threshold
is chosen on one half, and the other half gives a lower confidence bound (Clopper and Pearson, 95 % each) on
:math:`\varepsilon = \log((P_1 - \delta)/P_0)` at the claimed δ, in both directions.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from experiments import Floats
from experiments.parallel import Rows, run_all
from gaussmix.accounting.discrete import LatticeAccount, lattice_account
from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.rows import ArrayRows
from gaussmix.data.schema import Schema
from gaussmix.mechanism import passes as mechanism
from gaussmix.mechanism.noise import secure_generator
from gaussmix.releases.preconditioning import releases_of

SCHEMA = Schema({"X": Vector(1, lower=-1, upper=1), "y": Numeric(-1, 1)})
DELTA = 1e-3
ROWS = 200
CHUNK = 500


def neighbours(kind: str) -> tuple[Floats, Floats]:
    """A table, and one further row for it: at a corner of the bounds, or where the other rows are not."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.1, 0.1, ROWS)
    table = np.column_stack([x, 0.5 * x + rng.uniform(-0.02, 0.02, ROWS)])
    return table, np.array([{"corner": (1.0, -1.0), "typical": (0.05, 0.02)}[kind]])


def rows_of(table: Floats) -> ArrayRows:
    """X and y of a table."""
    return ArrayRows(table[:, :1], table[:, 1], SCHEMA, threads=1)


def account_of(passes: int, epsilon: float) -> LatticeAccount:
    """The account of a release of these columns."""
    shares, coordinates = releases_of(passes, SCHEMA.n_columns)
    return lattice_account(epsilon, DELTA, shares=shares, coordinates=coordinates)


class _Seen(mechanism._Draw):
    """Keeps every output beside its exact sum and its noise's scale."""

    log: ClassVar[list[tuple[Floats, Floats]]] = []

    def matrix(self, sums: Any, mu: float, *, most: int = 1) -> Floats:
        found = sums()
        out = super().matrix(lambda: found, mu, most=most)
        exact = found.high + found.low / 2.0**40
        upper = np.triu_indices(len(out))
        sigma = most * np.where(upper[0] == upper[1], 1 / mu, 1 / (math.sqrt(2) * mu))
        self.log.append((out[upper] - exact[upper], sigma))
        return out

    def vector(self, sums: Any, mu: float, *, most: int = 1, unit_bits: int = 0) -> Floats:
        found = sums()
        out = super().vector(lambda: found, mu, most=most, unit_bits=unit_bits)
        self.log.append((out - found, np.full(len(out), most / mu)))
        return out


class _Asked:
    """Rows that remember the answers of one further row to every question."""

    def __init__(self, table: Floats, row: Floats) -> None:
        self.rows, self.one = rows_of(table), rows_of(row)
        self.schema, self.unit, self.changes = SCHEMA, None, [self._upper(self.one.gram())]

    @staticmethod
    def _upper(sums: Any) -> Floats:
        exact = sums.high + sums.low / 2.0**40
        return np.asarray(exact[np.triu_indices(len(exact))])

    def mapped(self, *question: Any, **options: Any) -> Any:
        self.changes.append(self._upper(self.one.mapped(*question, **options)))
        return self.rows.mapped(*question, **options)

    def counts(self, *question: Any, **options: Any) -> Any:
        self.changes.append(np.concatenate(self.one.counts(*question, **options)).astype(float))
        return self.rows.counts(*question, **options)


def losses(passes: int, epsilon: float, kind: str, present: bool, chunk: int) -> Rows:
    """Λ of some releases, of the larger table or of the smaller."""
    table, row = neighbours(kind)
    held = np.concatenate([table, row]) if present else table
    found: Rows = []
    account, rng = account_of(passes, epsilon), secure_generator()
    sums = rows_of(held).gram()
    mechanism._Draw, kept = _Seen, mechanism._Draw  # type: ignore[misc]
    try:
        for _ in range(CHUNK):
            _Seen.log = []
            rows = _Asked(held, row)
            mechanism.draw_passes(rows, lambda: sums, account, rng)  # type: ignore[arg-type]
            changes = rows.changes if passes == 1 else [rows.changes[0], np.ones(1), *rows.changes[1:]]
            total = 0.0
            for (noise, sigma), change in zip(_Seen.log, changes, strict=True):
                step = change / sigma
                error = noise / sigma + (step if present else 0.0)  # from the sum of the smaller table
                total += float(error @ step - step @ step / 2)
            found.append({"present": present, "chunk": chunk, "loss": total})
    finally:
        mechanism._Draw = kept  # type: ignore[misc]
    return found


def lower_bound(present: Floats, absent: Floats) -> float:
    """ε that the runs show with confidence, at δ: threshold from one half, bounds from the other."""
    best = 0.0
    for a, b in ((present, absent), (-absent, -present)):
        half = len(a) // 2
        thresholds = np.quantile(a[:half], np.linspace(0.01, 0.999, 200))
        shown = [_shown(np.sum(a[:half] > t), np.sum(b[:half] > t), half) for t in thresholds]
        t = thresholds[int(np.argmax(shown))]
        best = max(best, _shown(np.sum(a[half:] > t), np.sum(b[half:] > t), len(a) - half))
    return best


def _shown(hits: float, alarms: float, runs: int) -> float:
    power = stats.beta.ppf(0.05, hits, runs - hits + 1) if hits else 0.0
    alarm = stats.beta.ppf(0.95, alarms + 1, runs - alarms) if alarms < runs else 1.0
    return math.log((power - DELTA) / alarm) if power > DELTA else 0.0


def main() -> None:
    """Attack releases of one pass and of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000, help="releases of each table")
    parser.add_argument("--passes", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--rows", nargs="*", default=["corner", "typical"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = []
    for passes in options.passes:
        for kind in options.rows:
            chunks = range(options.runs // CHUNK)
            jobs = [(passes, options.epsilon, kind, there, chunk) for there in (True, False) for chunk in chunks]
            found = run_all(losses, jobs)
            present, absent = (found.loc[found["present"] == there, "loss"].to_numpy() for there in (True, False))
            shown = lower_bound(present, absent)
            results.append((passes, kind, options.epsilon, DELTA, len(present), shown, shown / options.epsilon))
            print(f"passes {passes}, {kind} row: ε ≥ {shown:.3f} of {options.epsilon:g} claimed, N = {len(present):,}")
    if options.out is not None:
        with options.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["passes", "row", "epsilon", "delta", "runs", "lower_bound", "share"])
            writer.writerows(results)


if __name__ == "__main__":
    main()
