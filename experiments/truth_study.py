"""Coverage, length and power of the default intervals on real tables.

    export GAUSSMIX_DATA=...
    python -m experiments.truth_study --releases 100 --out experiments/results/truth.csv
    python -m experiments.truth_study --report --out experiments/results/truth.csv

The protocol is truth_protocol.md. Each release is one job, whose rows are stored in ``experiments/cache/truth``: a run
that was stopped continues where it was, and more releases or tables can be added later. After a change of the library,
pass ``--fresh``. The file of results has one line for each coefficient, descriptive statistic and coded column.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gaussmix as gm
from experiments import Floats
from experiments.data_files import CACHE, RESULTS
from experiments.parallel import Rows, forget, run_all
from experiments.study_tables import CONFIRMATION, DEVELOPMENT, HELD_OUT, TABLES, StudyTable, load

EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-6
LEAST_ROWS = 200  # of a level, or of the rarer value of a boolean
LARGE_T = 5.0
LEAST_KEPT = 20  # releases that keep a coefficient whose coverage counts as the least
WORSE = 0.05  # difference of coverage from which a response is listed among the failures
Z = 1.959964


def _quantile(probability: float) -> Callable[[Floats], float]:
    """Return the function that gives the smallest value with at least this share of the rows at or below it."""
    return lambda values: float(np.quantile(values, probability, method="inverted_cdf"))


STATISTICS: dict[str, Callable[[Floats], float]] = {
    "mean": lambda values: float(np.mean(values)),
    "share": lambda values: float(np.mean(values)),
    "std": lambda values: float(np.std(values, ddof=1)),
    "q25": _quantile(0.25),
    "median": _quantile(0.5),
    "q75": _quantile(0.75),
}
"""Statistics of `Release.describe` that are compared with the declared table."""


# ---------------------------------------------------------------------------------------------------------------
# Least squares
def column(frame: pd.DataFrame, term: str) -> Floats:
    """Return the column of a term: a number, a boolean, or the indicator of a level, "region=south"."""
    if term in frame:
        return np.asarray(frame[term], dtype=np.float64)
    name, level = term.split("=", 1)
    return np.asarray(frame[name].astype(str) == level, dtype=np.float64)


def least_squares(
    frame: pd.DataFrame, response: str, terms: list[str], weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the coefficients of the terms and their standard errors. Equivalent to ``statsmodels`` OLS or WLS."""
    X, y = np.column_stack([column(frame, term) for term in terms]), column(frame, response)
    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    X, y = X - np.average(X, axis=0, weights=root**2), y - np.average(y, weights=root**2)  # the intercept
    X, y = X * root[:, np.newaxis], y * root
    scale = np.sqrt(np.mean(X * X, axis=0))
    scale[scale == 0] = 1.0
    inverse = np.linalg.pinv((X / scale).T @ (X / scale), hermitian=True)
    coefficients = inverse @ ((X / scale).T @ y)
    residuals = y - (X / scale) @ coefficients
    variance = residuals @ residuals / (len(y) - len(terms) - 1)
    return coefficients / scale, np.sqrt(variance * np.diagonal(inverse)) / scale


def frequent(table: StudyTable, term: str) -> bool:
    """Return whether a term is a number, or has enough rows."""
    if term in table.numeric:
        return True
    values = column(table.frame, term)
    return bool(min(values.sum(), len(values) - values.sum()) >= LEAST_ROWS)


# ---------------------------------------------------------------------------------------------------------------
# One release
def measure(name: str, epsilon: float, seed: int) -> Rows:
    """Make one release of a table and compare it with the rows."""
    table = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed voids the guarantee; the table is released again and again
        release = gm.release(table.frame, schema=dict(table.schema), epsilon=epsilon, delta=DELTA, random_state=seed)
        rows = [*_coefficients(table, release), *_coded(table, release), *_described(table, release)]
    return [{"table": name, "epsilon": epsilon, "seed": seed} | row for row in rows]


def _coefficients(table: StudyTable, release: gm.Release) -> Iterator[dict[str, object]]:
    declared, coded = table.clamped(), release.topcode(table.clamped())
    weights = release.weights(table.frame)
    yield {"kind": "weights", "term": "", "changed": float(np.mean(weights < 1)), "width": float(1 - weights.mean())}
    for response in table.responses:
        model = release.ols(response)
        params, intervals = dict(model.params), dict(model.conf_int())
        terms = [term for term in params if term != "(intercept)"]
        kept = [term for term in terms if math.isfinite(params[term])]
        truth, error = least_squares(coded, response, terms)
        plain, plain_error = least_squares(declared, response, terms)
        of_kept, plain_kept = (
            dict(zip(kept, least_squares(coded, response, kept, own)[0], strict=True)) if kept else {}
            for own in (weights, None)
        )
        for i, term in enumerate(terms):
            if not frequent(table, term):
                continue
            low, high = intervals[term] if term in of_kept else (math.nan, math.nan)
            yield {
                "kind": "coefficient",
                "response": response,
                "term": term,
                "kept": term in of_kept,
                "covered": _holds(low, high, of_kept.get(term, math.nan)),
                "covered_plain": _holds(low, high, plain_kept.get(term, math.nan)),
                "covered_all": _holds(low, high, float(truth[i])),
                "length": (high - low) / (2 * Z * error[i]),
                "t": float(truth[i] / error[i]),
                "found": bool(low * np.sign(truth[i]) > 0 and high * np.sign(truth[i]) > 0),
                "moved": float(abs(truth[i] - plain[i]) / plain_error[i]),
                "weighted": abs(of_kept.get(term, math.nan) - plain_kept.get(term, math.nan)) / error[i],
            }


def _holds(low: float, high: float, value: float) -> bool | None:
    """Return whether an interval holds a value; None if there is no interval."""
    return None if math.isnan(low) or math.isnan(value) else bool(low <= value <= high)


def _coded(table: StudyTable, release: gm.Release) -> Iterator[dict[str, object]]:
    declared, coded = table.clamped(), release.topcode(table.clamped())
    for name in table.numeric:
        changed = float(np.mean(declared[name] != coded[name]))
        yield {"kind": "coded", "term": name, "changed": changed, "low": coded[name].min(), "high": coded[name].max()}


def _described(table: StudyTable, release: gm.Release) -> Iterator[dict[str, object]]:
    """Compare the means, shares, standard deviations and quartiles of `describe` with the declared table."""
    declared, n = table.clamped(), len(table.frame)
    mu = gm.accounting.gaussian_mu(epsilon=release.certificate.epsilon, delta=DELTA)
    for row in _records(release.describe()):
        term, statistic = str(row["term"]).removesuffix("=true"), str(row["statistic"])
        if statistic not in STATISTICS or not frequent(table, term):
            continue
        truth = STATISTICS[statistic](column(declared, term))
        half = float(np.diff(table.schema[term])[0]) / 2 if term in table.numeric else 1.0
        low, high = float(row["conf.low"]), float(row["conf.high"])
        yield {
            "kind": statistic,
            "term": term,
            "covered": _holds(low, high, truth),
            "over_sum": float(row["std.error"]) / (half / (mu * n)) if statistic in ("mean", "share") else math.nan,
            "width": high - low,
        }


def _records(result: Any) -> list[dict[str, Any]]:
    frame = result.to_frame()
    return [dict(row) for row in (frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame)).to_dict("records")]


# ---------------------------------------------------------------------------------------------------------------
# Yardstick
def resample(name: str, seed: int) -> Rows:
    """Fit least squares to rows drawn with replacement, and compare its intervals with the declared table."""
    table = load(name)
    declared, rng = table.clamped(), np.random.default_rng(seed)
    drawn = declared.iloc[rng.integers(len(declared), size=len(declared))]
    rows: Rows = []
    for response in table.responses:
        terms = _terms(table, response)
        truth, error = least_squares(declared, response, terms)
        found, found_error = least_squares(drawn, response, terms)
        for i, term in enumerate(terms):
            if frequent(table, term):
                rows.append(
                    {"table": name, "epsilon": math.inf, "seed": seed, "kind": "coefficient", "response": response}
                    | {"term": term, "kept": True, "covered": bool(abs(found[i] - truth[i]) <= Z * found_error[i])}
                    | {
                        "covered_plain": None,
                        "covered_all": None,
                        "length": float(found_error[i] / error[i]),
                        "t": float(truth[i] / error[i]),
                    }
                    | {"found": bool(found[i] * np.sign(truth[i]) > Z * found_error[i]), "moved": 0.0, "weighted": 0.0}
                )
    return rows


def _terms(table: StudyTable, response: str) -> list[str]:
    """Return the predictors of a response, of each category all levels with rows but the most frequent one."""
    terms: list[str] = []
    for name in table.schema:
        if name == response:
            continue
        if name in table.numeric or table.schema[name] == "boolean":
            terms.append(name)
        else:
            levels = table.frame[name].value_counts().index  # in order of frequency
            terms += [f"{name}={level}" for level in levels[1:]]
    return terms


# ---------------------------------------------------------------------------------------------------------------
# Results
KEYS = ["table", "epsilon", "kind", "response", "term"]


def aggregate(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each statistic, over all releases."""
    rows = rows.assign(response=rows["response"].fillna(""))
    for name in ("covered", "covered_plain", "covered_all", "kept", "found"):
        rows[name] = rows[name].astype(float)
    for name in ("over_sum", "width", "changed"):
        rows[name] = rows.get(name, math.nan)
    groups = rows.groupby(KEYS, sort=False)
    found = groups.agg(
        releases=("seed", "nunique"),
        kept=("kept", "mean"),
        covered=("covered", "mean"),
        covered_plain=("covered_plain", "mean"),
        covered_all=("covered_all", "mean"),
        length=("length", "median"),
        found=("found", "mean"),
        t=("t", "median"),
        moved=("moved", "median"),
        weighted=("weighted", "median"),
        over_sum=("over_sum", "median"),
        width=("width", "median"),
        changed=("changed", "mean"),
        most_changed=("changed", "max"),
    )
    return found.reset_index()


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each response and ε: the figures of the protocol."""
    lines = []
    for (name, response, epsilon), group in results[results["kind"] == "coefficient"].groupby(
        ["table", "response", "epsilon"], sort=False
    ):
        weight = group["kept"] * group["releases"]
        certain = group[weight >= LEAST_KEPT]
        strong = group[group["t"].abs() > LARGE_T]
        own = results[(results["table"] == name) & (results["epsilon"] == epsilon)]
        coded, weights = own[own["kind"] == "coded"], own[own["kind"] == "weights"]
        lines.append(
            {
                "table": name,
                "response": response,
                "epsilon": epsilon,
                "releases": group["releases"].max(),
                "coverage": _weighted(group["covered"], weight),
                "least": certain["covered"].min(),
                "coverage_plain": _weighted(group["covered_plain"], weight),
                "least_plain": certain["covered_plain"].min(),
                "coverage_all": _weighted(group["covered_all"], weight),
                "length": group["length"].median(),
                "kept": group["kept"].mean(),
                "power": strong["found"].mean(),
                "coded": coded["changed"].mean(),
                "most_coded": coded["changed"].max(),
                "moved": group["moved"].median(),
                "most_moved": group["moved"].max(),
                "below_one": weights["changed"].mean(),
                "weighted": group["weighted"].median(),
                "most_weighted": group["weighted"].max(),
            }
        )
    return pd.DataFrame(lines)


def _weighted(shares: pd.Series, weight: pd.Series) -> float:
    """Return the mean over all intervals of all releases; NaN if there are none."""
    given = shares.notna() & (weight > 0)
    return float(np.average(shares[given], weights=weight[given])) if given.any() else math.nan


def page_tables(results: pd.DataFrame) -> dict[str, str]:
    """Return the tables of docs/inference.md, in Markdown: three numbers of a cell are for the three ε."""
    lines = summarise(results)
    lines = lines[lines["epsilon"].isin(EPSILONS)]
    columns = ["coverage", "coverage_plain", "length", "power", "kept"]
    rows = []
    for title, names in (("development", DEVELOPMENT), ("held out", HELD_OUT), ("confirmation", CONFIRMATION)):
        group = lines[lines["table"].isin(names)].groupby("epsilon")
        means = group[columns].mean().assign(length=np.exp(group["length"].agg(lambda values: np.log(values).mean())))
        cells = [_cell(means[name], digits) for name, digits in zip(columns, (3, 3, 1, 2, 2), strict=True)]
        rows.append(f"| {len(names)} {title} | {' | '.join(cells)} |")
    found = {"all": "\n".join(rows)}
    # Responses whose unweighted coefficients are covered clearly less often than the stated ones at some ε.
    lines = lines.assign(difference=lines["coverage"] - lines["coverage_plain"])
    groups = [own for _, own in lines.groupby(["table", "response"]) if own["difference"].max() >= WORSE]
    rows = []
    for own in sorted(groups, key=lambda own: own["coverage_plain"].min()):
        name, response = own["table"].iloc[0].replace("_", " "), own["response"].iloc[0]
        own = own.set_index("epsilon")
        cells = [_cell(own[column], 2) for column in ("coverage", "coverage_plain", "least_plain")]
        rows.append(f"| {name}, {response} | {' | '.join(cells)} |")
    found["failures"] = "\n".join(rows)
    # What top-coding and row weights change, at ε = 1: shares of rows, and coefficients in standard errors.
    rows = []
    for name, own in results[results["epsilon"] == 1].groupby("table", sort=False):
        group, coded = own[own["kind"] == "coefficient"], own[own["kind"] == "coded"]["changed"]
        shares = f"{100 * coded.mean():.1f} ({100 * coded.max():.1f})" if coded.max() > 0 else "0"
        moves = [f"{moved.median():.1f} ({moved.max():.1f})" for moved in (group["moved"], group["weighted"])]
        length = math.exp(np.log(group["length"].dropna()).mean())
        rows.append(f"| {str(name).replace('_', ' ')} | {shares} | {' | '.join(moves)} | {length:.1f} |")
    return found | {"changes": "\n".join(rows)}


def _cell(values: pd.Series, digits: int) -> str:
    """Return the numbers at the three ε; shares have no zero before the point."""
    shown = [f"{values[epsilon]:.{digits}f}" for epsilon in EPSILONS]
    return ", ".join(number.removeprefix("0") if digits > 1 else number for number in shown)


def report(results: pd.DataFrame) -> None:
    """Print the tables for the documentation."""
    pd.set_option("display.width", 220, "display.max_rows", None, "display.max_columns", None)
    for table in page_tables(results).values():
        print(table, end="\n\n")
    lines = summarise(results)
    for title, names in (("Development", DEVELOPMENT), ("Held out", HELD_OUT), ("Confirmation", CONFIRMATION)):
        half = lines[lines["table"].isin(names)]
        if half.empty:
            continue
        print(f"\n{title}: coefficients (ε = inf: least squares on rows drawn with replacement)")
        print(half.sort_values(["table", "response", "epsilon"]).round(3).to_string(index=False))
        geometric = lambda values: math.exp(np.log(values).mean())  # noqa: E731
        means = half.groupby("epsilon").agg(
            coverage=("coverage", "mean"),
            coverage_plain=("coverage_plain", "mean"),
            below_93=("coverage", lambda values: int((values < 0.93).sum())),
            least=("least", "mean"),
            length=("length", geometric),
            kept=("kept", "mean"),
            power=("power", "mean"),
            coded=("coded", "mean"),
            most_coded=("most_coded", "max"),
            moved=("moved", "median"),
        )
        print(f"\n{title}: means over responses (length: geometric)")
        print(means.round(3).to_string())
        described = results[results["table"].isin(names) & ~results["kind"].isin(["coefficient", "coded", "weights"])]
        if not described.empty:
            table = described.groupby(["kind", "epsilon"]).agg(
                statistics=("term", "size"),
                coverage=("covered", "mean"),
                least=("covered", "min"),
                over_sum=("over_sum", "median"),
            )
            print(f"\n{title}: statistics of the declared table")
            print(table.round(3).to_string())
            weak = described[described["covered"] < 0.9].sort_values("covered")
            print(
                weak[["table", "epsilon", "kind", "term", "covered", "over_sum"]]
                .head(20)
                .round(3)
                .to_string(index=False)
            )


def main() -> None:
    """Run, save and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--epsilon", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--releases", type=int, default=100)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=RESULTS / "truth.csv")
    parser.add_argument("--cache", type=Path, default=CACHE / "truth")
    parser.add_argument("--report", action="store_true", help="print the tables of an earlier run")
    parser.add_argument("--fresh", action="store_true", help="forget releases of an earlier version of the library")
    arguments = parser.parse_args()
    if arguments.report:
        report(pd.read_csv(arguments.out, keep_default_na=True))
        return
    if arguments.fresh:
        forget(arguments.cache / "releases", arguments.tables)
    seeds = range(arguments.releases)
    jobs = [(name, epsilon, seed) for name in arguments.tables for epsilon in arguments.epsilon for seed in seeds]
    released = run_all(measure, jobs, folder=arguments.cache / "releases", processes=arguments.processes)
    again = [(name, seed) for name in arguments.tables for seed in seeds]
    drawn = run_all(resample, again, folder=arguments.cache / "resampled", processes=arguments.processes)
    results = aggregate(pd.concat([released, drawn], ignore_index=True))
    if arguments.out.exists():  # lines of other tables and budgets stay
        earlier = pd.read_csv(arguments.out)
        renewed = set(map(tuple, results[["table", "epsilon"]].drop_duplicates().to_numpy()))
        stays = [pair not in renewed for pair in map(tuple, earlier[["table", "epsilon"]].to_numpy())]
        results = pd.concat([earlier[stays], results], ignore_index=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results.to_csv(arguments.out, index=False, float_format="%.4g")
    report(results)


if __name__ == "__main__":
    main()
