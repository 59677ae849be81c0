"""Intervals of releases of real tables: how many end, and how often they hold what they are about.

    export GAUSSMIX_DATA=...
    python -m experiments.inference_study run --releases 200 --draws /tmp/draws.csv
    python -m experiments.inference_study report --draws /tmp/draws.csv --out experiments/results/inference.csv

Protocol, written before the run:

- **Tables.** CPS 1988 (log wage on all columns and experience²), CPS 2024 (log wage on education, experience, its
  square, sex), diamonds (log price), health insurance (hours a week, without the survey weight), fertility (weeks).
  Declared bounds are the range rounded outward to two digits, so that bounds clip no value; columns of two values are
  boolean, other texts have their levels in alphabetical order. ``rare`` is a made table of 30,000 rows, one level of
  which has 5.
- **Releases.** ``gaussmix.release`` as it is, ε = 1, δ = 10⁻⁹; release number s of a table has the seed s. Intervals
  come from the last pass, whose law given the passes before it is known exactly: with ``--redraws`` its noise is drawn
  again, as floats, so many times less one for each release.
- **Intervals.** 95 %, of ``ols(target).summary()``, all columns at once; the first level of each category is the
  reference level.
- **Counted.** All coefficients but the intercept, of columns and levels with at least 200 rows (of true and false, the
  rarer one). A coefficient that is not identified is counted as an interval that holds everything.
- **table.** (i) least squares on the columns kept and on the rows as clipped in the last pass; (ii) least squares on
  all columns of the table itself.
- **population.** (iii) ``estimand="population"``: for every release n rows are drawn from the table with replacement,
  the response is xβ + e with β the table's own coefficients and e a residual of the table drawn by itself, its sign
  turned by a coin. The response's declared bounds are so wide that none is clipped.

Each release is appended to the file of draws as it is made: a run that was stopped goes on where it was.
``--lost-weight`` is for studies of the clip's rule: another weight of lost mass in the last pass. ``--clip inference``
makes releases with that option, whose weight is then that of the file of draws.
"""

from __future__ import annotations

import argparse
import functools
import io
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

import gaussmix as gm
from experiments import Floats
from experiments.data_files import read
from experiments.passes_tables import outward
from gaussmix.data.rows import RowSource, rows_of
from gaussmix.data.schema import Schema
from gaussmix.mechanism.release import prepare
from gaussmix.models.inference import on_columns
from gaussmix.models.linear import RegressionModel
from gaussmix.models.results import Estimand, Summary
from gaussmix.releases import preconditioning
from gaussmix.releases.preconditioning import CLIPS, Clip, PassRequest, goe
from gaussmix.releases.transcript import PassOutput, Transcript

EPSILON, DELTA = 1.0, 1e-9
AT_LEAST = 200  # rows of a level that counts
DESIGNS = ("table", "population")
TABLES = ("cps1988", "cps2024", "diamonds", "health_insurance", "fertility", "rare")
COLUMNS = [
    "table",
    "design",
    "lost_weight",
    "release",
    "draw",
    "coefficient",
    "low",
    "high",
    "clipped",
    "whole",
    "error",
    "lost",
]


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

    @property
    def reference(self) -> dict[str, object]:
        """The first level of every category."""
        return {name: own.levels[0] for name, own in self.schema.columns.items() if isinstance(own, gm.Categorical)}

    def drawn(self, rng: np.random.Generator) -> Table:
        """Rows from the linear model of the table, with symmetric errors."""
        theta = self.fitted[0].to_numpy()
        middle, errors = self.design.to_numpy() @ theta, self.residuals(theta)
        n, most = len(errors), np.abs(errors).max()
        own = rng.integers(n, size=n)
        response = middle[own] + rng.choice([-1.0, 1.0], n) * errors[rng.integers(n, size=n)]
        frame = self.frame.iloc[own].assign(**{self.target: response}).reset_index(drop=True)
        wide = gm.Numeric(*outward(middle.min() - most, middle.max() + most))
        return Table(frame, self.target, Schema({**self.schema.columns, self.target: wide}))


# ---------------------------------------------------------------------------------------------------------------
# Tables
def _csv(path: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(read(path))).drop(columns="rownames", errors="ignore")


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
    """A table by name."""
    if name == "rare":
        return _rare()
    frame = _csv(f"{name}/{name}.csv")
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


# ---------------------------------------------------------------------------------------------------------------
# Releases
def shortened_sums(statistic: Transcript, rows: RowSource) -> Floats:
    """Σ z̄ z̄ᵀ of the last pass without its noise, in units of its clip."""
    request = statistic.passes[-1].request
    if request is None:
        raise TypeError("A release in several passes is asked for.")
    sums = rows.mapped(request.metric.transform, request.clip)
    return np.asarray(sums.high + sums.low / 2.0**40)


def as_shortened(
    model: RegressionModel, summary: Summary, sums: Floats, request: PassRequest, reference: dict[str, object]
) -> dict[str, float]:
    """Least squares on the columns that a summary keeps and the rows as clipped in the last pass, without noise."""
    back, schema = np.linalg.inv(request.metric.transform.matrix), model.statistic.schema
    gram = request.clip * back @ sums @ back.T
    exact = Transcript((PassOutput((gram + gram.T) / 2, np.inf),), schema)
    problem = replace(model, statistic=exact).problem(reference=reference)
    theta = on_columns(problem.noisy, list(summary._fit.kept), []).theta
    return dict(zip(problem.names, (problem.to_user @ theta + problem.offset).tolist(), strict=True))


def one_release(
    name: str, design: str, number: int, redraws: int, file: Path | None = None, *, clip: Clip = "prediction"
) -> list[dict[str, Any]]:
    """Intervals of one release, which is kept in a file, and what they should hold."""
    table = load(name)
    truth, errors = table.fitted
    counted, error = table.counted, dict(zip(truth.index, errors.tolist(), strict=True))
    estimand: Estimand = "table" if design == "table" else "population"
    if estimand == "population":
        table = table.drawn(np.random.default_rng([number, 7]))
    rows = rows_of(pa.Table.from_pandas(table.frame, preserve_index=False), table.schema)
    if file is not None and file.exists():
        private = gm.load(file)
    else:
        with prepare(table.schema, gm.Budget(EPSILON, DELTA), clip=clip, random_state=number, out=file) as prepared:
            private = prepared.draw(rows)
    statistic = private.statistic
    if (last := statistic.passes[-1]).request is None:
        raise TypeError("A release in several passes is asked for.")
    names = [column.name for column in table.schema.encoded if column.source not in (None, table.target)]
    model, reference = RegressionModel(table.target, tuple(names), statistic), table.reference
    sums = shortened_sums(statistic, rows)
    rng, found = np.random.default_rng([number, 8]), []
    for draw in range(redraws):
        summary = model.summary(estimand=estimand, reference=reference)
        clipped = as_shortened(model, summary, sums, last.request, reference)
        unknown = (-math.inf, math.inf)
        ends = {name: unknown if math.isnan(pair[0]) else pair for name, pair in summary.conf_int().items()}
        found += [
            dict(
                zip(
                    COLUMNS[4:],
                    (draw, at, *ends[at], clipped[at], truth[at], error[at], statistic.lost),
                    strict=True,
                )
            )
            for at in counted
        ]
        noisy = sums + goe(len(sums), rng) / (math.sqrt(2) * last.mu)
        again = Transcript((*statistic.passes[:-1], replace(last, matrix=noisy)), statistic.schema)
        model = replace(model, statistic=again)
    return found


def run(
    names: list[str],
    designs: list[str],
    releases: int,
    draws: Path,
    *,
    redraws: int,
    lost_weight: float,
    clip: Clip = "prediction",
    keep: Path | None = None,
) -> None:
    """All releases that the file of draws does not have yet, one number after the other."""
    if clip == "inference":
        lost_weight = preconditioning.TAILS_LOST_WEIGHT
    else:
        preconditioning.LAST_LOST_WEIGHT = lost_weight
    keys = COLUMNS[:4]
    done = set(pd.read_csv(draws)[keys].itertuples(index=False, name=None)) if draws.exists() else set()
    for number in range(releases):
        for name in names:
            for design in designs:
                key = (name, design, lost_weight, number)
                if key in done:
                    continue
                file = None if keep is None else keep / f"{'-'.join(map(str, key))}.parquet"
                found = one_release(name, design, number, redraws, file, clip=clip)
                rows = [dict(zip(keys, key, strict=True)) | row for row in found]
                pd.DataFrame(rows, columns=COLUMNS).to_csv(
                    draws, mode="a", header=not draws.exists(), index=False, float_format="%.8g"
                )


def report(draws: pd.DataFrame) -> pd.DataFrame:
    """By coefficient: how many intervals ended, how many held what they should, and their length."""
    finite = np.isfinite(draws["high"]) & np.isfinite(draws["low"])
    length = (draws["high"] - draws["low"]).where(finite) / (2 * 1.959964 * draws["error"])
    inside = {
        f"holds_{kind}": ((draws["low"] <= draws[kind]) & (draws[kind] <= draws["high"])).where(draws[kind].notna())
        for kind in ("clipped", "whole")
    }
    found = draws.assign(finite=finite, length=length, **inside)
    return found.groupby([*COLUMNS[:3], "coefficient"], sort=False).agg(
        releases=("release", "nunique"),
        draws=("draw", "size"),
        finite=("finite", "mean"),
        holds_clipped=("holds_clipped", "mean"),
        holds_whole=("holds_whole", "mean"),
        length=("length", "median"),
        lost=("lost", "mean"),
    )


def by_table(found: pd.DataFrame) -> pd.DataFrame:
    """Means over coefficients, and the least coverage of one."""
    return found.groupby(COLUMNS[:3], sort=False).agg(
        releases=("releases", "min"),
        draws=("draws", "min"),
        coefficients=("finite", "size"),
        finite=("finite", "mean"),
        holds_clipped=("holds_clipped", "mean"),
        least_clipped=("holds_clipped", "min"),
        holds_whole=("holds_whole", "mean"),
        least_whole=("holds_whole", "min"),
        length=("length", "median"),
        lost=("lost", "mean"),
    )


def main() -> None:
    """Run, or print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--draws", type=Path, required=True, help="file of all intervals, appended to")
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--designs", nargs="*", default=list(DESIGNS[:2]), choices=DESIGNS)
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--redraws", type=int, default=1, help="draws of the last pass's noise a release")
    parser.add_argument("--lost-weight", type=float, default=preconditioning.LAST_LOST_WEIGHT)
    parser.add_argument("--clip", choices=CLIPS, default="prediction")
    parser.add_argument("--keep", type=Path, help="folder of releases, which are drawn only once")
    parser.add_argument("--out", type=Path, help="file for the figures by coefficient")
    options = parser.parse_args()
    if options.what == "run":
        with threadpool_limits(1):
            run(
                options.tables,
                options.designs,
                options.releases,
                options.draws,
                redraws=options.redraws,
                lost_weight=options.lost_weight,
                clip=options.clip,
                keep=options.keep,
            )
    found = report(pd.read_csv(options.draws))
    print(by_table(found).round(3).to_string())
    if options.out:
        found.to_csv(options.out, float_format="%.4g")


if __name__ == "__main__":
    main()
