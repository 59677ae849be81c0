"""Intervals beside the field: how often they hold the table's own coefficients, and how long they are.

    export GAUSSMIX_DATA=...
    python -m experiments.field_intervals --releases 100 --out experiments/results/field_intervals.csv
    python -m experiments.field_intervals --report experiments/results/field_intervals.csv

Protocol, written before the run:

- **Tables.** CPS 1988, CPS 2024, diamonds, health insurance, fertility; declared bounds are the range rounded outward,
  columns of two values are boolean, other texts have their levels in alphabetical order. ε = 1 and 3, δ = 10⁻⁹. Release
  number s has the seed s, and no release is left out.
- **Wanted.** Least squares on the table itself: no row shortened, nothing drawn anew. Coefficients that are counted are
  those of columns and levels with at least 200 rows, without the intercept. Intervals have a level of 95 %.
- **Methods.** ``passes``: four passes without top-coding and ``summary(estimand="table")``. ``one pass``: the same with
  ``passes=1``.
  ``passes, population``: the first release with ``estimand="population"``, whose intervals have sampling error in
  them, as those of the next two methods have. ``noisy sums``: :mod:`experiments.noisy_sums`, an
  emulation of dp-statsmodels, with exact noise. ``noisy sums, published``: with the noise that it publishes. Both have
  the same bounds, the first level of a category left out.
- **Counted.** The share of intervals that end, the share of intervals that hold the coefficient (one that does not end
  holds everything), the median length of those that end over the length of ordinary least squares' sampling intervals,
  and for noisy sums the share of releases whose matrix had to be made positive: nothing in its output says so but a
  warning. For noisy sums also the share that holds among the releases whose matrix was not.
- **Seen before.** The first four releases, to see that all of it runs: they are among those reported, and nothing was
  changed after them.
"""

from __future__ import annotations

import argparse
import functools
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from experiments import Floats
from experiments.data_files import read
from experiments.noisy_sums import Noise, fit
from experiments.passes_tables import outward
from gaussmix.data.rows import RowSource, rows_of
from gaussmix.data.schema import Schema
from gaussmix.ledger import Budget
from gaussmix.mechanism.release import prepare

TABLES = ("cps1988", "cps2024", "diamonds", "health_insurance", "fertility")
EPSILONS = (1.0, 3.0)
DELTA = 1e-9
AT_LEAST = 200  # rows of a level that counts
RELEASED: dict[str, dict[str, Any]] = {"passes": {}, "one pass": {"passes": 1}}
KEYS = ["table", "epsilon", "method", "coefficient"]
QUANTILE = 1.959964
Ends = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Table:
    """A table with its target and declared bounds."""

    frame: pd.DataFrame
    target: str
    schema: Schema

    @classmethod
    def of(cls, frame: pd.DataFrame, target: str) -> Table:
        """Columns of two values become true and false, other texts levels; bounds are rounded outward."""
        frame = frame.copy()
        declared: dict[str, Any] = {}
        for name in frame:
            values = frame[name]
            if values.nunique() == 2:
                frame[name] = values == sorted(values.unique())[1]
                declared[name] = "boolean"
            elif values.dtype.kind in "iuf":
                declared[name] = list(outward(float(values.min()), float(values.max())))
            else:
                declared[name] = {"levels": sorted(values.unique())}
        return cls(frame, target, Schema.of(declared))

    @functools.cached_property
    def design(self) -> pd.DataFrame:
        """Features in the user's units, the first level of every category left out."""
        parts: list[pd.Series] = [pd.Series(1.0, index=self.frame.index, name="(intercept)")]
        for name in self.frame.columns.drop(self.target):
            values, levels = self.frame[name], getattr(self.schema.columns[name], "levels", (None,))
            parts += [(values == level).astype(float).rename(f"{name}={level}") for level in levels[1:]]
            if levels == (None,):
                parts.append(values.astype(float))
        return pd.concat(parts, axis=1)

    @functools.cached_property
    def fitted(self) -> tuple[pd.Series, Floats]:
        """Coefficients of least squares, and their standard errors."""
        X = self.design.to_numpy()
        theta, *_ = np.linalg.lstsq(X, self.frame[self.target].to_numpy(float), rcond=None)
        s2 = np.sum(self.residuals(theta) ** 2) / (len(X) - X.shape[1])
        return pd.Series(theta, self.design.columns), np.sqrt(s2 * np.diagonal(np.linalg.inv(X.T @ X)))

    def residuals(self, theta: Floats) -> Floats:
        """Of the target."""
        return np.asarray(self.frame[self.target].to_numpy(float) - self.design.to_numpy() @ theta)

    @property
    def counted(self) -> list[str]:
        """Coefficients of columns and levels that have rows enough."""
        X, found = self.design, []
        for name in X.columns.drop("(intercept)"):
            ones = X[name].sum() if set(X[name].unique()) <= {0.0, 1.0} else math.inf
            if min(ones, len(X) - ones if math.isfinite(ones) else ones) >= AT_LEAST:
                found.append(name)
        return found


def _rare() -> Table:
    """Two numbers, true and false, and a category of four levels, the last one with 5 of 30,000 rows."""
    rng, n = np.random.default_rng(5), 30_000
    age, hours, female = rng.uniform(17, 90, n), rng.normal(40, 12, n).clip(1, 99), rng.random(n) < 0.48
    work = rng.choice(["private", "public", "self"], n, p=[0.72, 0.16, 0.12]).astype(object)
    work[rng.choice(n, 5, replace=False)] = "unpaid"
    effect = {"private": 0.0, "public": 2.0, "self": -1.0, "unpaid": -8.0}
    income = 8 + 0.15 * age + 0.3 * hours - 3.0 * female + np.vectorize(effect.get)(work) + rng.normal(0, 6, n)
    frame = pd.DataFrame({"age": age, "hours": hours, "female": female, "work": work, "income": income.clip(0, 80)})
    return Table.of(frame, "income")


@functools.cache
def load(name: str) -> Table:
    """A table by name; ``rare`` is a made one for tests."""
    if name == "rare":
        return _rare()
    frame = pd.read_csv(io.BytesIO(read(f"{name}/{name}.csv"))).drop(columns="rownames", errors="ignore")
    if name == "cps1988":
        frame = frame.assign(experience2=frame["experience"] ** 2, log_wage=np.log(frame["wage"])).drop(columns="wage")
    elif name == "cps2024":
        frame = frame[["educ_years", "experience", "experience_sq", "female", "log_wage"]]
    elif name == "diamonds":
        frame = frame.assign(log_price=np.log(frame["price"])).drop(columns="price")
    elif name == "health_insurance":
        frame = frame.drop(columns="wght")
    targets = {"diamonds": "log_price", "health_insurance": "whrswk", "fertility": "work"}
    return Table.of(frame, targets.get(name, "log_wage"))


def encoded(table: Table) -> tuple[list[str], Floats, Floats, float]:
    """Names, rows (target last), units of a coefficient, a row's squared norm without the target; no first levels."""
    names, columns, scales = [], [], []
    for column in table.schema.encoded:
        if column.source == table.target or (column.source is not None and column.name not in table.design):
            continue
        values = table.design[column.name].to_numpy()
        one = column.source is None or column.kind == "level"
        columns.append(values if one else (values - column.centre) / column.scale)
        scales.append(1.0 if one else column.scale)
        names.append(column.name)
    target = next(column for column in table.schema.encoded if column.source == table.target)
    columns.append((table.frame[table.target].to_numpy(float) - target.centre) / target.scale)
    squared_norm = table.schema.row_norm**2 - 1.0
    return names, np.column_stack(columns), target.scale / np.array(scales), squared_norm


def by_releases(table: Table, rows: RowSource, epsilon: float, number: int) -> Iterator[tuple[str, Ends]]:
    """Intervals of releases in passes, tails kept, and one pass."""
    for method, how in RELEASED.items():
        with prepare(table.schema, Budget(epsilon, DELTA), random_state=number, **how) as prepared:
            model = prepared.draw(rows).ols(table.target)
        yield method, model.summary(estimand="table").conf_int()
        if method == "passes":
            yield "passes, population", model.summary(estimand="population").conf_int()


def of_table(name: str, epsilon: float, releases: int) -> list[dict[str, object]]:
    """All intervals of the counted coefficients."""
    table = load(name)
    rows = rows_of(pa.Table.from_pandas(table.frame, preserve_index=False), table.schema)
    names, Z, scales, squared_norm = encoded(table)
    gram, found = Z.T @ Z, []

    def add(method: str, number: int, ends: Ends, *, raised: bool = False) -> None:
        for at in table.counted:
            key = dict(zip(KEYS, (name, epsilon, method, at), strict=True))
            low, high = ends[at]
            found.append(key | {"release": number, "low": low, "high": high, "raised": raised})

    for number in range(releases):
        for method, ends in by_releases(table, rows, epsilon, number):
            add(method, number, ends)
        for method, published in (("noisy sums", False), ("noisy sums, published", True)):
            noise = Noise.of(epsilon, DELTA, squared_norm=squared_norm, columns=len(names), published=published)
            result = fit(gram, len(Z), noise, np.random.default_rng([number, 9]))
            low, high = result.intervals().T * scales
            pairs = zip(low.tolist(), high.tolist(), strict=True)
            add(method, number, dict(zip(names, pairs, strict=True)), raised=result.raised)
    return found


def by_coefficient(draws: pd.DataFrame) -> pd.DataFrame:
    """Shares and lengths of the intervals of one table, as fractions of its own coefficients' errors."""
    parts = []
    for name, own in draws.groupby("table", sort=False):
        truth, errors = load(str(name)).fitted
        true, error = own["coefficient"].map(truth), own["coefficient"].map(pd.Series(errors, truth.index))
        finite = np.isfinite(own["low"]) & np.isfinite(own["high"])
        held = (own["low"] <= true) & (true <= own["high"])
        length = ((own["high"] - own["low"]) / (2 * QUANTILE * error)).where(finite)
        parts.append(own.assign(finite=finite, held=held, length=length, held_not_raised=held.where(~own["raised"])))
    return (
        pd.concat(parts)
        .groupby(KEYS, sort=False, as_index=False)
        .agg(
            releases=("release", "nunique"),
            finite=("finite", "mean"),
            held=("held", "mean"),
            length=("length", "median"),
            raised=("raised", "mean"),
            held_not_raised=("held_not_raised", lambda values: float(values.astype(float).mean())),
        )
    )


def report(found: pd.DataFrame) -> str:
    """One line a table, ε and method: means over coefficients, the least coverage of one, the median length."""
    rows = found.groupby(KEYS[:3], sort=False).agg(
        coefficients=("held", "size"),
        identified=("finite", "mean"),
        held=("held", "mean"),
        least=("held", "min"),
        length=("length", "median"),
        raised=("raised", "max"),
        not_raised=("held_not_raised", "mean"),
    )
    lines = [
        "| table | ε | method | coefficients | identified | held (least) | length | made positive | held where not |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (table, epsilon, method), row in rows.iterrows():
        sums = str(method).startswith("noisy sums")
        more = f"{row.raised:.2f} | {row.not_raised:.3f}" if sums else " | "
        lines.append(
            f"| {table} | {epsilon:g} | {method} | {row.coefficients:.0f} | "
            f"{row.identified * row.coefficients:.1f} | {row.held:.3f} ({row.least:.3f}) | {row.length:.3g} | {more} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, or report what was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--releases", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    if chosen.report is not None:
        print(report(pd.read_csv(chosen.report)))
        return
    with threadpool_limits(1):
        draws = [row for name in chosen.tables for at in EPSILONS for row in of_table(name, at, chosen.releases)]
    found = by_coefficient(pd.DataFrame(draws))
    if chosen.out is not None:
        found.to_csv(chosen.out, index=False, float_format="%.4g", lineterminator="\n")
    print(report(found))


if __name__ == "__main__":
    main()
