"""The shared tables as encoded rows: declared bounds are the range, rounded outward to two digits.

Bounds taken from the data are **not private**; they stand for what a curator would have declared. Numbers are mapped to
[-1, 1], yes and no are -1 and 1, a category has one column a level, and the intercept comes last.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from experiments.data_files import read
from experiments.datasets import bike, boston, tecator

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Encoded:
    """A table of encoded rows, entries at most 1: intercept last, the declared target before it."""

    rows: Floats
    names: tuple[str, ...]
    sources: NDArray[np.intp]  # number of the source column of each encoded column
    squared_norm: float  # C²: one for every source column
    numeric: bool

    @property
    def intercept(self) -> int:
        """Its column."""
        return int(self.rows.shape[1]) - 1

    @property
    def target(self) -> int:
        """Column of the declared target."""
        return int(self.rows.shape[1]) - 2

    @property
    def references(self) -> list[int]:
        """First level of every category: left out where coefficients must be identified."""
        return [
            int(np.flatnonzero(self.sources == k)[0]) for k in np.unique(self.sources) if np.sum(self.sources == k) > 1
        ]


def outward(low: float, high: float) -> tuple[float, float]:
    """Bounds rounded outward to two significant digits of the larger."""
    unit = 10.0 ** (math.floor(math.log10(max(abs(low), abs(high), 1e-12))) - 1)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


def encode(table: pd.DataFrame, target: str, *, numeric: bool) -> Encoded:
    """Columns in their order, then the target, then the intercept."""
    columns, names, sources = [], [], []
    order = [name for name in table.columns if name != target] + [target]
    for number, name in enumerate(order):
        values = table[name]
        if values.dtype.kind in "biuf":
            low, high = outward(float(values.min()), float(values.max()))
            columns.append((2 * values.to_numpy(float) - low - high) / (high - low))
            names.append(name)
            sources.append(number)
            continue
        levels = sorted(values.unique())
        if len(levels) == 2:
            columns.append(np.where(values == levels[1], 1.0, -1.0))
            names.append(name)
            sources.append(number)
            continue
        for level in levels:
            columns.append((values == level).to_numpy(float))
            names.append(f"{name}={level}")
            sources.append(number)
    columns.append(np.ones(len(table)))
    return Encoded(np.column_stack(columns), (*names, "1"), np.array([*sources, len(order)]), len(order) + 1.0, numeric)


def _csv(path: str, **options: object) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(read(path)), **options).drop(columns="rownames", errors="ignore")


def _numeric(X: Floats, y: Floats) -> Encoded:
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y)
    return encode(frame.loc[:, frame.nunique() > 1], "y", numeric=True)


def _communities() -> Encoded:
    names = [
        line.split()[1]
        for line in read("communities/communities.names").decode(errors="replace").splitlines()
        if line.startswith("@attribute")
    ]
    table = pd.read_csv(io.BytesIO(read("communities/communities.data")), names=names, na_values="?")
    table = table.drop(columns=["state", "county", "community", "communityname", "fold"])
    table["OtherPerCap"] = table["OtherPerCap"].fillna(0.0)
    return encode(table.dropna(axis=1).astype(float), "ViolentCrimesPerPop", numeric=True)


def _cps1988() -> Encoded:
    table = _csv("cps1988/cps1988.csv")
    table["experience2"] = table["experience"] ** 2
    table["log_wage"] = np.log(table.pop("wage"))
    return encode(table, "log_wage", numeric=False)


def _cps2024() -> Encoded:
    table = _csv("cps2024/cps2024.csv")[["educ_years", "experience", "experience_sq", "female", "log_wage"]]
    return encode(table, "log_wage", numeric=False)


def _diamonds() -> Encoded:
    table = _csv("diamonds/diamonds.csv")
    table["log_price"] = np.log(table.pop("price"))
    return encode(table, "log_price", numeric=False)


def _health() -> Encoded:
    return encode(_csv("health_insurance/health_insurance.csv").drop(columns="wght"), "whrswk", numeric=False)


TABLES: dict[str, Callable[[], Encoded]] = {
    "boston": lambda: _numeric(*boston(np.random.default_rng(0))),
    "wine": lambda: encode(_csv("wine_red/winequality-red.csv"), "quality", numeric=True),
    "bike": lambda: _numeric(*bike(np.random.default_rng(0))),
    "communities": _communities,
    "tecator": lambda: _numeric(*tecator(np.random.default_rng(0))),
    "diabetes": lambda: _numeric(*load_diabetes(return_X_y=True, scaled=False)),
    "cps1988": _cps1988,
    "cps2024": _cps2024,
    "diamonds": _diamonds,
    "health": _health,
    "fertility": lambda: encode(_csv("fertility/fertility.csv"), "work", numeric=False),
}

NUMERIC = ("boston", "wine", "bike", "communities", "tecator", "diabetes")
MIXED = ("cps1988", "cps2024", "diamonds", "health", "fertility")


# ---------------------------------------------------------------------------------------------------------------
# Synthetic designs: for choices, so that the shared tables can judge them
def _synthetic(kind: str, n: int, seed: int) -> Encoded:
    rng = np.random.default_rng(seed)
    if kind == "collinear":  # numbers that use a part of their range, condition number 10⁵, no rare levels
        latent = rng.standard_normal((n, 4))
        X = latent @ rng.standard_normal((4, 12)) + 0.05 * rng.standard_normal((n, 12))
        y = X @ rng.standard_normal(12) + rng.standard_normal(n)
        frame = pd.DataFrame(X).add_prefix("x")
    elif kind == "levels":  # two categories with levels down to a few rows, three numbers
        frame = pd.DataFrame(rng.standard_normal((n, 3))).add_prefix("x")
        y = frame.to_numpy() @ np.array([1.0, -0.5, 0.2])
        for name, count in (("a", 40), ("b", 25)):
            p = 1.0 / np.arange(1, count + 1) ** 1.5
            level = rng.choice(count, size=n, p=p / p.sum())
            y = y + rng.standard_normal(count)[level]
            frame[name] = [f"l{k:02d}" for k in level]
        y = y + rng.standard_normal(n)
    elif kind == "zeros":  # zero-inflated heavy columns that carry signal, and levels
        frame = pd.DataFrame(rng.standard_normal((n, 4))).add_prefix("x")
        heavy = (rng.random((n, 3)) < 0.04) * np.exp(1.0 + rng.standard_normal((n, 3)))
        frame[["h0", "h1", "h2"]] = heavy
        level = rng.choice(12, size=n, p=np.r_[0.5, np.full(11, 0.5 / 11)])
        frame["c"] = [f"l{k:02d}" for k in level]
        y = (
            frame.iloc[:, :4].to_numpy() @ rng.standard_normal(4)
            + heavy.sum(axis=1) * 0.3
            + 0.5 * rng.standard_normal(12)[level]
        )
        y = y + rng.standard_normal(n)
    elif kind == "heavy":  # lognormal features
        X = np.exp(rng.standard_normal((n, 8)))
        y = X @ rng.standard_normal(8) * 0.3 + rng.standard_normal(n)
        frame = pd.DataFrame(X).add_prefix("x")
    else:  # no signal
        frame, y = pd.DataFrame(rng.standard_normal((n, 8))).add_prefix("x"), rng.standard_normal(n)
    return encode(frame.assign(y=y), "y", numeric=kind != "levels")


SYNTHETIC = {
    f"{kind}-{n}": functools.partial(_synthetic, kind, n, 11)
    for kind in ("collinear", "levels", "zeros", "heavy", "nothing")
    for n in (1_000, 5_000, 30_000)
}


@functools.cache
def load(name: str) -> Encoded:
    """A table by name."""
    return (TABLES | SYNTHETIC)[name]()
