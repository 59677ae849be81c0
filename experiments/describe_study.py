"""How often the intervals of descriptive tables hold what they are about, over many releases.

    python -m experiments.describe_study --releases 500 --out experiments/results/describe_coverage.csv

The demonstration's table and CPS 1988, ε = 1, δ = 10⁻⁶, four passes. Every interval is held against two truths: that of
the table, and that of the table with its rows shortened as the last pass shortens them, which is what the noise's law
is about. The second needs the rows, and is known to this study alone. ``--clip`` is that of the
releases.
"""

from __future__ import annotations

import argparse
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import gaussmix as gm
from experiments import Floats
from experiments.data_files import read
from experiments.parallel import Rows, run_all
from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.data.schema import Schema
from gaussmix.models.release import Release
from gaussmix.releases.preconditioning import CLIPS, Clip
from gaussmix.report import demo

EPSILON, DELTA = 1.0, 1e-6
CPS_SCHEMA: dict[str, Any] = {
    "education": [0, 20],
    "experience": [-4, 64],
    "ethnicity": {"levels": ["afam", "cauc"]},
    "smsa": {"levels": ["no", "yes"]},
    "region": {"levels": ["midwest", "northeast", "south", "west"]},
    "parttime": {"levels": ["no", "yes"]},
    "log_wage": [3, 10],
}
PAIRS = {
    "demo": [("smoker", "region"), ("readmitted", "smoker")],
    "cps1988": [("ethnicity", "region"), ("parttime", "smsa")],
}
GROUPS = {
    "demo": [("cost", "region"), ("age", "readmitted"), ("income", "smoker")],
    "cps1988": [("log_wage", "region"), ("education", "ethnicity"), ("experience", "parttime")],
}
CORRELATED = {"demo": ["age", "bmi", "income", "pressure", "cost"], "cps1988": ["education", "experience", "log_wage"]}


def table_of(name: str) -> tuple[pa.Table, dict[str, Any]]:
    """A table and what is declared of it."""
    if name == "demo":
        return demo.make_patients(), demo.SCHEMA
    frame = pd.read_csv(io.BytesIO(read("cps1988/cps1988.csv")))
    frame["log_wage"] = np.log(frame["wage"])
    return pa.Table.from_pandas(frame[list(CPS_SCHEMA)], preserve_index=False), CPS_SCHEMA


def encoded(table: pa.Table, schema: Schema) -> Floats:
    """Encoded rows, divided by C."""
    plan = BlockEncoder.plain(schema)
    parts = [encode_batch(batch, schema, plan) for batch in table.select(list(schema.columns)).to_batches()]
    return np.concatenate(parts) / schema.row_norm


def weights_of(release: Release, rows: Floats) -> Floats:
    """What the last pass leaves of every row."""
    request = release.statistic.passes[-1].request
    if request is None:
        return np.ones(len(rows))
    length = np.sum((rows @ request.metric.transform.matrix.T) ** 2, axis=1)
    return np.asarray(np.minimum(1.0, request.clip / np.maximum(length, 1e-300)))


def in_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are, a column of 0 and 1 for every level, false and true among them."""
    found = {}
    for name in frame:
        if frame[name].dtype.kind in "iuf":
            found[name] = frame[name].to_numpy(float)
        else:
            labels = frame[name].map(lambda value: str(value).lower() if isinstance(value, bool) else str(value))
            found |= {f"{name}={level}": (labels == level).to_numpy(float) for level in sorted(labels.unique())}
    return pd.DataFrame(found)


def truths(columns: pd.DataFrame, name: str, weights: Floats) -> dict[tuple[str, str], float]:
    """Every number that the tables estimate, from weighted rows."""
    rows, w, Z = len(columns), weights / weights.sum(), columns.to_numpy()
    moments = pd.DataFrame(Z.T @ (w[:, np.newaxis] * Z), columns.columns, columns.columns)
    means = pd.Series(w @ Z, columns.columns)
    spread = moments - np.outer(means, means)
    found: dict[tuple[str, str], float] = {("describe", "(rows) count"): float(rows)}
    for term in columns:
        if "=" in term:
            found["describe", f"{term} share"] = float(means[term])
        else:
            found["describe", f"{term} mean"] = float(means[term])
            found["describe", f"{term} std"] = float(np.sqrt(spread.loc[term, term] * rows / (rows - 1)))
    for one, two in PAIRS[name]:
        for a, b in itertools.product(_levels(columns, one), _levels(columns, two)):
            found["crosstab", f"{a} {b}"] = float(rows * moments.loc[a, b])
    for target, by in GROUPS[name]:
        for level in _levels(columns, by):
            found["means", f"{target} {level}"] = float(moments.loc[target, level] / means[level])
    for one, two in itertools.combinations(CORRELATED[name], 2):
        r = spread.loc[one, two] / np.sqrt(spread.loc[one, one] * spread.loc[two, two])
        found["corr", f"{one} {two}"] = float(r)
    return found


def _levels(columns: pd.DataFrame, name: str) -> list[str]:
    return [term for term in columns if term.startswith(f"{name}=")]


def intervals(release: Release, name: str) -> dict[tuple[str, str], tuple[float, float]]:
    """The same from a release."""
    found = {
        ("describe", f"{row['term']} {row['statistic']}"): (row["conf.low"], row["conf.high"])
        for row in release.describe().rows()
    }
    for one, two in PAIRS[name]:
        for row in release.crosstab(one, two).table().rows():
            found["crosstab", f"{one}={row[one]} {two}={row[two]}"] = (row["conf.low"], row["conf.high"])
    for target, by in GROUPS[name]:
        for row in release.means(target, by=by).rows():
            found["means", f"{target} {by}={row[by]}"] = (row["conf.low"], row["conf.high"])
    for row in release.corr(CORRELATED[name]).pairs().rows():
        found["corr", f"{row['term']} {row['with']}"] = (row["conf.low"], row["conf.high"])
    return found


def coverage(name: str, first: int, releases: int, clip: Clip = "prediction") -> Rows:
    """One row an interval: whether it holds both truths."""
    table, declared = table_of(name)
    schema, frame = Schema.of(declared), table.to_pandas()
    columns = in_units(frame)
    rows, plain = encoded(table, schema), truths(columns, name, np.ones(len(frame)))
    found: Rows = []
    for seed in range(first, first + releases):
        release = gm.release(table, schema=schema, epsilon=EPSILON, delta=DELTA, clip=clip, random_state=seed)
        shortened = truths(columns, name, weights_of(release, rows))
        for (kind, what), (low, high) in intervals(release, name).items():
            own, other = plain[kind, what], shortened[kind, what]
            found.append(
                {
                    "table": name,
                    "kind": kind,
                    "what": what,
                    "seed": seed,
                    "truth": own,
                    "length": high - low,
                    "holds_table": bool(low <= own <= high),
                    "holds_shortened": bool(low <= other <= high),
                }
            )
    return found


def shares(found: pd.DataFrame) -> pd.DataFrame:
    """How often every interval holds, over all releases."""
    return (
        found.groupby(["table", "kind", "what"], sort=False)
        .agg(
            releases=("seed", "size"),
            truth=("truth", "first"),
            length=("length", "median"),
            holds_table=("holds_table", "mean"),
            holds_shortened=("holds_shortened", "mean"),
        )
        .reset_index()
    )


def main() -> None:
    """Run the study and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--clip", choices=CLIPS, default="prediction")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/describe_coverage.csv"))
    options = parser.parse_args()
    step = min(25, options.releases)
    firsts = range(0, options.releases, step)
    jobs = [(name, first, step, options.clip) for name in ("demo", "cps1988") for first in firsts]
    found = run_all(coverage, jobs, processes=options.processes)
    own = shares(found)
    own.to_csv(options.out, index=False, float_format="%.6g")
    print(own.groupby(["table", "kind"])[["holds_table", "holds_shortened"]].agg(["mean", "min", "max"]).round(3))


if __name__ == "__main__":
    main()
