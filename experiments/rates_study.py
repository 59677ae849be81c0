"""Rate ratios by moments: how far formulas are from maximum likelihood, and how often intervals hold.

    GAUSSMIX_DATA=... python -m experiments.rates_study formulas
    python -m experiments.rates_study coverage --releases 40

``formulas``: tables with counts, no noise. Differences from Poisson's maximum likelihood (statsmodels) on the log
scale, per standard deviation of a number and for a level: root mean square and largest. ``b/mean`` is Stein's formula
for all columns; ``fitted means`` compares, for levels, least squares' means with the other columns at theirs; ``here``
is :mod:`gaussmix.models.rates`. ``gamma`` is ``here`` with numbers of gamma laws, from their least value on, in place
of normal ones.

``coverage``: visits to doctors of the RAND experiment, ε = 1, δ = 10⁻⁶: how often 95 % intervals hold the values that
the table without noise has, and maximum likelihood, in four passes, which shorten rows far out, and in one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pandas as pd
import statsmodels.api as sm  # type: ignore[import-untyped]

import gaussmix as gm
from experiments import Floats
from experiments.passes_tables import _csv
from experiments.skewed_counts import SCHEMA, visits


def tables() -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Name, table and count; levels are categories, the first of which others are measured from."""
    rand = visits()
    yield "visits", rand.assign(health=pd.Categorical(rand.health, SCHEMA["health"])), "visits"
    bike = _csv("bike/bike_train.csv")
    hour = pd.to_datetime(bike.datetime).dt.hour
    common = bike[["temp", "humidity", "windspeed"]].assign(
        workingday=bike.workingday == 1,
        season=pd.Categorical(bike.season.astype(str)),
        weather=pd.Categorical(bike.weather.clip(upper=3).astype(str)),
    )
    yield "bikes", common.assign(count=bike["count"]), "count"
    yield "bikes, hours in six blocks", common.assign(count=bike["count"], hour=_levels(hour // 4)), "count"
    yield "bikes, casual", common.assign(count=bike.casual), "count"
    health = _csv("health_insurance/health_insurance.csv")
    own = health[["whrswk", "experience", "husby"]].assign(
        hispanic=health.hispanic == "yes", **{name: _levels(health[name]) for name in ("education", "race", "region")}
    )
    yield "children of 6 to 18", own.assign(count=health.kids618), "count"
    yield "children below 6", own.assign(count=health.kidslt6), "count"
    work = _csv("nlswork/nlswork.csv").dropna(subset=["wks_ue", "tenure", "grade", "age", "msp", "south"])
    yield (
        "weeks unemployed",
        work[["age", "grade", "ttl_exp", "tenure"]].assign(
            race=_levels(work.race), msp=work.msp == 1, south=work.south == 1, count=work.wks_ue
        ),
        "count",
    )
    for law in ("normal", "skewed"):
        for words, size in (("small", 0.15), ("large", 0.5)):
            yield f"made, {law}, {words} slopes", made(law, size), "count"


def _levels(values: pd.Series) -> pd.Series:
    return pd.Series(pd.Categorical(values.astype(str)), index=values.index)


def made(law: str, size: float, n: int = 40_000) -> pd.DataFrame:
    """Two numbers whose means move with levels, true or false, three levels; counts with twice Poisson's variance."""
    rng = np.random.default_rng(1)
    level = rng.integers(0, 3, n)
    d = rng.random(n) < 0.2 + 0.2 * (level == 1)
    z = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n)
    if law == "skewed":
        z = np.exp(0.6 * z)
        z = (z - z.mean(axis=0)) / z.std(axis=0)
    x = z + np.outer(level == 2, [0.7, 0]) + np.outer(d, [0, -0.5])
    log_mean = 0.5 + size * (x @ [1, -0.6] + d + np.select([level == 1, level == 2], [1, -1], 0))
    count = rng.poisson(np.exp(log_mean) * rng.gamma(2, 0.5, n))
    return pd.DataFrame({"count": count, "x1": x[:, 0], "x2": x[:, 1], "d": d, "level": _levels(pd.Series(level))})


def design(table: pd.DataFrame, target: str) -> tuple[Floats, list[str], list[str]]:
    """Features, their names and the columns that they are of; a level's name has an equals sign."""
    found, names, sources = [], [], []
    for column in table.columns.drop(target):
        values = table[column]
        if isinstance(values.dtype, pd.CategoricalDtype):
            for level in values.cat.categories[1:]:
                found.append((values == level).to_numpy(float))
                names.append(f"{column}={level}")
                sources.append(column)
        else:
            found.append(values.to_numpy(float))
            names.append(column if values.dtype != bool else f"{column}=true")
            sources.append(column)
    return np.column_stack(found), names, sources


def estimates(X: Floats, y: Floats, names: list[str], sources: list[str]) -> dict[str, Floats]:
    """Log rate ratios of all formulas, and of maximum likelihood."""
    b = np.linalg.lstsq(np.column_stack([np.ones(len(y)), X]), y, rcond=None)[0][1:]
    mean, means, owner = y.mean(), X.mean(axis=0), np.array(sources)
    found = {name: np.array(b / mean) for name in ("b/mean", "fitted means", "here", "gamma")}
    for j, name in enumerate(names):
        own = owner == owner[j]
        if "=" in name:
            base = mean - means[own] @ b[own]
            t, r = (y[rows].mean() / mean for rows in (X[:, j] == 1, X[:, own].sum(axis=1) == 0))
            found["fitted means"][j] = np.log(max(base + b[j], 1e-9) / max(base, 1e-9))
            found["here"][j] += np.log(t / r) - (t - r)
            found["gamma"][j] = found["here"][j]
        else:
            spread = X[:, j].var() / (means[j] - X[:, j].min())
            found["gamma"][j] /= 1 + spread * b[j] / mean
    likelihood = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit()
    return found | {"likelihood": likelihood.params[1:]}


def formulas() -> None:
    """Print a row a table."""
    shown = {}
    for name, table, target in tables():
        X, names, sources = design(table, target)
        found = estimates(X, table[target].to_numpy(float), names, sources)
        step = np.where(["=" in name for name in names], 1.0, X.std(axis=0))
        truth = found.pop("likelihood")
        shown[name] = {
            formula: f"{np.sqrt(np.mean(off**2)):.3f} ({np.abs(off).max():.2f})"
            for formula, off in ((formula, (values - truth) * step) for formula, values in found.items())
        }
        print(pd.DataFrame({"likelihood": truth * step, "here": found["here"] * step}, index=names).round(3))
    print(pd.DataFrame(shown).T.to_string())


def coverage(releases: int) -> None:
    """Print shares of intervals that hold the table's values and maximum likelihood, and median lengths."""
    table = visits()
    X, names, sources = design(table.assign(health=pd.Categorical(table.health, SCHEMA["health"])), "visits")
    found = estimates(X, table["visits"].to_numpy(float), names, sources)
    terms = [name.removesuffix("=true") for name in names]
    shown = {"likelihood": found["likelihood"], "here": found["here"]}
    for passes in (4, 1):
        ends = []
        for seed in range(releases):
            private = gm.release(table, schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=passes, random_state=5000 + seed)
            own = private.poisson("visits").summary().conf_int()
            ends.append([own[name] for name in terms])
        low, high = np.moveaxis(np.array(ends), 2, 0)
        for truth in ("here", "likelihood"):
            held = (low <= found[truth]) & (found[truth] <= high)
            shown[f"{truth} held, {passes}"] = held.mean(axis=0)
        shown[f"length, {passes}"] = np.median(high - low, axis=0)
    print(pd.DataFrame(shown, index=terms).round(4).to_string())


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["formulas", "coverage"])
    parser.add_argument("--releases", type=int, default=40)
    chosen = parser.parse_args()
    formulas() if chosen.part == "formulas" else coverage(chosen.releases)


if __name__ == "__main__":
    main()
