"""Nothing that leaves the mechanism is a function of the rows but what it draws.

Every subject runs twice, on two tables with nothing in common but the schema: other values, and another number of rows.
What the mechanism draws in the first run is given out again in the second, in the places where noise is added. All else
must then be equal: every attribute that can be reached, public or not, properties, representations, pickles, files,
warnings, log records, what is printed, and what progress bars say.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import pickle
import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from sklearn.base import clone

import gaussmix as gm
from gaussmix import baselines
from gaussmix.ledger import Ledger
from gaussmix.ledger import ledger as ledgers
from gaussmix.mechanism import adassp, mixing, objective_perturbation, passes, proposing, sheffet
from gaussmix.reporting.page import render

BOUNDARY: list[tuple[Any, str]] = [
    (passes._Draw, "matrix"),
    (passes._Draw, "histograms"),
    (passes._Draw, "vector"),
    (passes._Draw, "counts"),
    (proposing._Draw, "_noisy"),
    (proposing._Draw, "levels"),
    (mixing, "draw_sketch"),
    (mixing, "_private_eigenvalue"),
    (sheffet, "draw_sketch"),
    (adassp, "_noisy_eigenvalue"),
    (adassp, "to_grid"),
    (objective_perturbation, "to_grid"),
]
"""Where noise is added: what these return is private."""


# ---------------------------------------------------------------------------------------------------------------
# Two runs with the same draws
class Clock(datetime):
    """Stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 1, tzinfo=tz)


@pytest.fixture
def runs(monkeypatch):
    """The first run of a subject records what is drawn, the second gives it out again."""
    drawn: list[Any] = []
    state = {"replayed": None}

    def through(place: Any, name: str) -> None:
        honest = getattr(place, name)

        def drawing(*args: Any, **kwargs: Any) -> Any:
            found = honest(*args, **kwargs)  # also the second time, so that whatever it does besides is done
            if state["replayed"] is None:
                drawn.append((name, found))
                return found
            recorded, value = drawn[state["replayed"]]
            assert recorded == name, "another order of draws"
            state["replayed"] += 1
            return value

        monkeypatch.setattr(place, name, drawing)

    for place, name in BOUNDARY:
        through(place, name)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    for module in (mixing, ledgers):
        monkeypatch.setattr(module, "datetime", Clock)

    def twice(subject: Callable[[Any], Any], tables: tuple[Any, Any]) -> list[Any]:
        found = [_watched(subject, tables[0])]
        state["replayed"] = 0
        found.append(_watched(subject, tables[1]))
        assert drawn, "nothing was drawn: the test watches the wrong places"
        assert state["replayed"] == len(drawn)
        return found

    return twice


def _watched(subject: Callable[[Any], Any], table: Any) -> Any:
    """Everything that can be seen of a run."""
    records: list[str] = []
    handler = logging.Handler(level=0)
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned, _printed() as printed:
            warnings.simplefilter("always")
            found = everything(subject(table))
    finally:
        logging.getLogger().removeHandler(handler)
    return {"seen": found, "warned": [str(one.message) for one in warned], "logged": records, "printed": printed}


@contextmanager
def _printed() -> Iterator[list[str]]:
    out, texts = io.StringIO(), list[str]()
    with redirect_stdout(out), redirect_stderr(out):
        yield texts
    texts.append(out.getvalue())


# ---------------------------------------------------------------------------------------------------------------
# All that can be reached
_CHANCE = re.compile(r" at 0x[0-9a-f]+|sk-container-id-\d+|sk-estimator-id-\d+")
"""Addresses in memory, and scikit-learn's numbers of what it has shown."""


def everything(thing: Any, known: set[int] | None = None) -> Any:
    """A value that is equal for equal things: attributes, properties, representations and pickles, all the way down."""
    known = set() if known is None else known
    if thing is None or isinstance(thing, str | bytes | bool | int | float | complex | np.generic | type):
        return repr(thing)
    if isinstance(thing, np.ndarray):
        return (thing.dtype.str, thing.shape, thing.tobytes() if thing.dtype != object else repr(thing.tolist()))
    if isinstance(thing, Path) or callable(thing) or isinstance(thing, np.random.Generator):
        return type(thing).__name__
    if id(thing) in known:
        return "above"
    known = known | {id(thing)}
    if isinstance(thing, Mapping):
        return [(everything(key, known), everything(value, known)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset):
        return [everything(value, known) for value in (sorted(thing, key=repr) if isinstance(thing, set) else thing)]
    if not type(thing).__module__.startswith("gaussmix"):
        return (type(thing).__name__, str(thing))
    found = (
        {name: everything(value, known) for name, value in vars(thing).items()} if hasattr(thing, "__dict__") else {}
    )
    for name in dir(type(thing)):
        if isinstance(getattr(type(thing), name, None), property | cached_property) or name in getattr(
            type(thing), "__slots__", ()
        ):
            try:
                found[name] = everything(getattr(thing, name), known)
            except Exception as error:
                found[name] = (type(error).__name__, str(error))
    shown = [repr(thing), str(thing), thing._repr_html_() if hasattr(thing, "_repr_html_") else ""]
    return (type(thing).__name__, sorted(found.items()), [_CHANCE.sub("", text) for text in shown])


def assert_alike(one: Any, other: Any, where: str = "") -> None:
    """Equal, or an error that says where they are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_alike(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            name = a[0] if isinstance(a, tuple) and a and isinstance(a[0], str) else i
            assert_alike(a, b, f"{where}.{name}")
    else:
        assert one == other, f"{where} depends on the rows"


# ---------------------------------------------------------------------------------------------------------------
# Subjects
SCHEMA = gm.Schema.of(
    {
        "age": [0, 100],
        "cost": gm.Numeric(0, 5_000, missing="indicator"),
        "smoker": gm.Boolean(),
        "region": ["north", "south", "west"],
    }
)


def table_of(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    cost = rng.uniform(-100, 7_000, n)
    cost[rng.random(n) < 0.2 * seed] = np.nan
    return {
        "age": rng.uniform(0, 50 * seed, n),
        "cost": cost,
        "smoker": rng.random(n) < 0.2 * seed,
        "region": np.array(["north", "south", "west"])[rng.integers(0, 4 - seed, n)],
        "who": rng.integers(0, n // 2 * seed, n),
    }


TABLES = table_of(400, 1), table_of(733, 2)
BUDGET = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0}


def results_of(release: gm.Release) -> list[Any]:
    """Models and tables that readers make of a release."""
    linear = release.regress("age", on=["cost", "smoker", "region"])
    odds = release.classify("smoker", on=["age"])
    found = [release, release.certificate, linear, linear.summary(), odds, release.second_moment, release.pca()]
    found += [release.corr(), pickle.loads(pickle.dumps(release)), release.to_bytes()]
    if release.certificate.unit is None:
        found += [release.describe(), release.crosstab("smoker", "region")]
    return found


@pytest.mark.parametrize(
    "options",
    [{"passes": 4}, {"passes": 1}, {"sketch_size": 40}, {"passes": 4, "unit": "who", "rows_per_unit": 2}],
    ids=str,
)
def test_releases(options, runs):
    one, other = runs(
        lambda table: results_of(gm.release(table, schema=SCHEMA, progress=True, **options, **BUDGET)), TABLES
    )
    assert_alike(one, other)


def test_files_and_ledgers(runs, tmp_path):
    places = iter([tmp_path / "one", tmp_path / "other"])

    def subject(table):
        place = next(places)
        place.mkdir()
        ledger = Ledger(place / "budget.ledger", epsilon=2.0, delta=1e-5)
        release = gm.release(table, schema=SCHEMA, ledger=ledger, share=0.5, out=place / "a.parquet", random_state=0)
        files, written = sorted(path.name for path in place.iterdir()), place / "a.parquet"
        entries = [dataclasses.replace(entry, file=None) for entry in ledger.entries()]
        return [release, files, written.read_bytes(), written.stat().st_mode, entries, render(release)]

    one, other = runs(subject, TABLES)
    assert_alike(one, other)


def arrays_of(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, seed, (n, 2))
    return X, np.clip(X @ [seed, -0.5] + rng.normal(0, 0.1, n), -1, 1)


BOUNDS = {"bounds_X": (-1, 1), "epsilon": 2.0, "delta": 1e-5, "random_state": 0}


@pytest.mark.parametrize(
    "model",
    [
        gm.LinearMixing(bounds_y=(-1, 1), **BOUNDS),
        gm.LinearMixing(bounds_y=(-1, 1), variant="paper", **BOUNDS),
        gm.LogisticMixing(classes=(False, True), **BOUNDS),
        gm.LogisticMixing(classes=(False, True), steps=3, **BOUNDS),
        baselines.AdaSSP(bounds_y=(-1, 1), **BOUNDS),
        baselines.SheffetMixing(bounds_y=(-1, 1), **BOUNDS),
        baselines.ObjectivePerturbation(classes=(False, True), **BOUNDS),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'variant', '')}-{getattr(model, 'steps', '')}",
)
def test_estimators(model, runs):
    def subject(table):
        X, y = table
        fitted = clone(model).fit(X, y > 0 if hasattr(model, "classes") else y)
        results = [fitted, fitted.predict(arrays_of(5, 20)[0]), pickle.loads(pickle.dumps(fitted))]
        return [*results, fitted.summary()] if hasattr(fitted, "summary") else results

    one, other = runs(subject, (arrays_of(1), arrays_of(2, 611)))
    assert_alike(one, other)


def test_proposals(runs):
    def subject(table):
        return gm.propose(
            table, {"age": "number", "cost": "number", "region": "category"}, epsilon=2.0, delta=1e-5, random_state=0
        )

    one, other = runs(subject, TABLES)
    assert_alike(one, other)


def test_the_walk_has_eyes():
    """It sees what hides in private attributes, in a property, in a representation."""

    class Leaky(gm.Release):
        pass

    private = gm.release(TABLES[0], schema=SCHEMA, passes=1, **BUDGET)
    leaks = []
    for secret in (1, 2):
        leaky = Leaky(private.statistic, private.certificate)
        Leaky.__module__ = "gaussmix.leaky"
        object.__setattr__(leaky, "_rows", secret)
        leaks.append(everything(leaky))
    with pytest.raises(AssertionError, match=r"_rows.* depends on the rows"):
        assert_alike(*leaks)


def test_progress_says_the_same_of_tables_of_one_size(monkeypatch):
    """Texts and totals; how many rows there are is on the curator's screen."""
    told: list[Any] = []

    def add_task(self, description, start=True, total=100.0, **fields):
        told.append((description, total))
        return honest(self, description, start=start, total=total, **fields)

    honest = Progress.add_task
    monkeypatch.setattr(Progress, "add_task", add_task)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    said = []
    for seed in (1, 2):
        told.clear()
        gm.release(table_of(400, seed), schema=SCHEMA, passes=4, progress=True, **BUDGET)
        said.append(list(told))
    assert said[0] == said[1]
