"""Nothing that leaves the mechanism is a function of the rows but what it draws.

Every subject runs twice, on two tables with nothing in common but the schema: other values, and another number of rows.
What the mechanism draws in the first run is given out again in the second, in the places where noise is added. All else
must then be equal: every attribute that can be reached, public or not, properties, representations, pickles, files,
ledgers, pages, labels and records, output of commands, warnings, log records of every level, what is printed, what
errors say, and what progress bars say.

`Moments` and other sums over rows are sensitive by declaration, as the table itself is: they are not looked at here.
"""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.progress import Progress
from sklearn.base import clone

import gaussmix as gm
from gaussmix import baselines
from gaussmix.cli import main
from gaussmix.ledger import Ledger
from gaussmix.ledger import ledger as ledgers
from gaussmix.mechanism import adassp, mixing, objective_perturbation, passes, proposing, sheffet
from gaussmix.mechanism.preparation import prepare
from gaussmix.models.steps import Likelihood
from gaussmix.reporting.label import as_svg
from gaussmix.reporting.page import render
from gaussmix.reporting.registry import record_of
from gaussmix.tables import kept
from gaussmix.tables.rows import rows_of
from walker import assert_alike, watched

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
        found = [watched(subject, tables[0])]
        state["replayed"] = 0
        found.append(watched(subject, tables[1]))
        assert drawn, "nothing was drawn: the test watches the wrong places"
        assert state["replayed"] == len(drawn)
        return found

    return twice


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
        "design": rng.uniform(0.5, 1 + seed, n),
    }


TABLES = table_of(400, 1), table_of(733, 2)
BUDGET = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0}


def results_of(release: gm.Release) -> list[Any]:
    """Models and tables that readers make of a release."""
    linear = release.regress("age", on=["cost", "smoker", "region"])
    odds, several = release.classify("smoker", on=["age"]), release.classify("region", on=["age", "smoker"])
    found = [release, release.certificate, linear, linear.summary(), odds, release.second_moment, release.pca()]
    found += [several, several.summary(), rates_of(release), as_svg(release)]
    found += [release.corr(), pickle.loads(pickle.dumps(release)), release.to_bytes()]
    if release.certificate.unit is None:
        found += [release.describe(), release.crosstab("smoker", "region")]
    return found


def rates_of(release: gm.Release) -> Any:
    """Or the refusal: a sketch of few rows hides the mean that they divide by."""
    try:
        found = release.rates("age", on=["smoker"])
    except gm.GaussmixError as error:
        return str(error)
    return [found, found.rate_ratios()]


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


def test_weights_terms_and_kept_tails(runs):
    schema = gm.Schema.of(
        {"age": [0, 100], "cost": gm.Numeric(0, 5_000, missing="drop-row"), "smoker": gm.Boolean(), "design": [0, 3]},
        terms=["poly(age, 2)", "age:smoker"],
    )

    def subject(table):
        private = gm.release(table, schema=schema, weight="design", keep_tails=True, **BUDGET)
        return [private, private.regress("cost").summary(), private.to_bytes()]

    one, other = runs(subject, TABLES)
    assert_alike(one, other)


def anew(place: Path) -> Path:
    """A folder with nothing in it, of the same name in both runs: paths are compared too."""
    if place.exists():
        shutil.rmtree(place)
    place.mkdir()
    return place


def files_in(place: Path) -> list[Any]:
    """Name, rights and bytes of every file."""
    return [(path.name, path.stat().st_mode, path.read_bytes()) for path in sorted(place.iterdir())]


def test_files_and_ledgers(runs, tmp_path):
    def subject(table):
        place = anew(tmp_path / "place")
        ledger = Ledger(place / "budget.ledger", epsilon=2.0, delta=1e-5)
        release = gm.release(table, schema=SCHEMA, ledger=ledger, share=0.5, out=place / "a.parquet", random_state=0)
        return [release, ledger.entries(), str(ledger), files_in(place), render(release)]

    one, other = runs(subject, TABLES)
    assert_alike(one, other)


def test_commands(runs, tmp_path):
    """Exit codes, standard output, standard error, and files."""

    def subject(table):
        place = anew(tmp_path / "place")
        pq.write_table(pa.table(table), place / "rows.parquet")
        source, schema, release = (str(place / name) for name in ("rows.parquet", "schema.json", "a.release.parquet"))
        Path(schema).write_text(json.dumps(SCHEMA.to_dict()))
        whole = ["release", source, "-s", schema, "--epsilon", "2", "--delta", "1e-5", "-o", release]
        later = [
            ["regress", release, "age", "--json"],
            ["regress", release, "age", "--on", "smoker"],
            ["classify", release, "smoker", "--on", "age", "--odds"],
            ["rates", release, "age", "--on", "smoker"],
            ["describe", release],
            ["verify", release],
            ["report", release, "-o", str(place / "page.html"), "--label", str(place / "label.svg")],
        ]
        found = []
        for words in [whole, *later]:
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, done.output
            found.append((done.stdout, done.stderr))
        (place / "rows.parquet").unlink()
        return [found, files_in(place), record_of(gm.load(release))]

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
        gm.LinearMixing(bounds_y=(-1, 1), rows_per_group=2, **BOUNDS),
        baselines.AdaSSP(bounds_y=(-1, 1), **BOUNDS),
        baselines.SheffetMixing(bounds_y=(-1, 1), **BOUNDS),
        baselines.ObjectivePerturbation(classes=(False, True), **BOUNDS),
    ],
    ids=lambda model: (
        f"{type(model).__name__}-{getattr(model, 'variant', '')}-{getattr(model, 'steps', '')}"
        f"{'-groups' * bool(getattr(model, 'rows_per_group', None))}"
    ),
)
def test_estimators(model, runs):
    def subject(table):
        X, y = table
        grouped = {"groups": np.arange(len(X)) // 3} if getattr(model, "rows_per_group", None) else {}
        fitted = clone(model).fit(X, y > 0 if hasattr(model, "classes") else y, **grouped)
        results = [fitted, fitted.predict(arrays_of(5, 20)[0]), pickle.loads(pickle.dumps(fitted))]
        return [*results, fitted.summary()] if hasattr(fitted, "summary") else results

    one, other = runs(subject, (arrays_of(1), arrays_of(2, 611)))
    assert_alike(one, other)


def test_proposals(runs, tmp_path):
    kinds = {"age": "number", "cost": "number", "region": "category"}

    def subject(table):
        place = anew(tmp_path / "place")
        ledger = Ledger(place / "budget.ledger", epsilon=4.0, delta=1e-5)
        charged = gm.propose(table, kinds, ledger=ledger, share=0.5, out=place / "schema.json", random_state=0)
        return [gm.propose(table, kinds, epsilon=2.0, delta=1e-5, random_state=0), charged, files_in(place)]

    one, other = runs(subject, TABLES)
    assert_alike(one, other)


# ---------------------------------------------------------------------------------------------------------------
# What errors say
def spoilt(name: str, value: Any) -> list[dict[str, Any]]:
    """Both tables with one bad value each, in rows of their own."""
    found = []
    for table, place in zip(TABLES, (7, 500), strict=True):
        column = list(table[name])
        column[place] = value(place) if callable(value) else value
        found.append({**table, name: column})
    return found


def message_of(act: Callable[[], Any]) -> list[str]:
    """Class and words of an error, and of those that it is chained to."""
    with pytest.raises(gm.GaussmixError) as caught:
        act()
    found, error = [], caught.value
    while error is not None:
        found.append(f"{type(error).__name__}: {error} {error.__dict__}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age", float("nan")),
        ("age", float("inf")),
        ("age", lambda place: f"about {place}"),
        ("region", lambda place: f"village {place}"),
        ("region", None),
        ("smoker", lambda place: place),
    ],
    ids=[
        "missing number",
        "infinite number",
        "text for a number",
        "unknown level",
        "no level",
        "neither true nor false",
    ],
)
@pytest.mark.parametrize("passes", [1, 4])
def test_errors_of_releases_say_the_same(name, value, passes):
    """Which column, what it may hold, what to do: neither the value, nor the row, nor how many there are."""
    one, other = (
        message_of(lambda table=table: gm.release(table, schema=SCHEMA, passes=passes, **BUDGET))
        for table in spoilt(name, value)
    )
    assert one == other
    assert name in one[0]


def test_errors_of_estimators_and_counts_say_the_same():
    found = []
    for (X, y), place in zip((arrays_of(1), arrays_of(2, 611)), (7, 500), strict=True):
        X[place, 1] = np.nan
        with pytest.raises(ValueError, match="NaN") as caught:
            gm.LinearMixing(bounds_y=(-1, 1), **BOUNDS).fit(X, y)
        labels = np.where(y > 0, "yes", "no").astype(object)
        labels[place] = f"perhaps {place}"
        logistic = gm.LogisticMixing(classes=("no", "yes"), **BOUNDS)
        unknown = message_of(lambda X=X, labels=labels, model=logistic: model.fit(np.nan_to_num(X), labels))
        found.append([str(caught.value), unknown])
    assert found[0] == found[1]
    one, other = (
        message_of(lambda table=table: gm.release(table, schema=SCHEMA, expect_rows=50, **BUDGET)) for table in TABLES
    )
    assert one == other


# ---------------------------------------------------------------------------------------------------------------
# What progress bars say
@pytest.fixture
def told(monkeypatch):
    """All that bars are given: texts, totals, steps."""
    found: list[Any] = []

    def through(name: str) -> None:
        honest = getattr(Progress, name)

        def telling(self, *given, **named):
            found.append((name, given, named))
            return honest(self, *given, **named)

        monkeypatch.setattr(Progress, name, telling)

    for name in ("add_task", "update", "advance", "reset"):
        through(name)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    return found


def test_progress_says_the_same_of_tables_of_one_size(told, monkeypatch, tmp_path):
    """How many rows there are is on the curator's screen; nothing else of them is. Files, passes, steps and noise."""
    monkeypatch.setattr(kept, "KEPT_BYTES", 0)  # else no later pass reads the file
    monkeypatch.setattr(passes, "_MANY_COLUMNS", 3)  # else the noise is drawn at once
    schema = gm.Schema.of({"age": [0, 100], "cost": [0, 5_000], "smoker": gm.Boolean()})
    said = []
    for seed in (1, 2):
        told.clear()
        table = {name: np.nan_to_num(table_of(400, seed)[name]) for name in ("age", "cost", "smoker")}
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        with prepare(schema, passes=4, likelihood=Likelihood("smoker", 3), **BUDGET) as prepared:
            prepared.draw(rows_of(tmp_path / "rows.parquet", schema, progress=True), progress=True)
        said.append(list(told))
    assert said[0] == said[1]
    texts = [given[0] for name, given, _ in said[0] if name == "add_task"]
    later = [f"Pass {number} of 4{words}" for number in (2, 3, 4) for words in (", lengths of rows", "")]
    steps = [f"Step {number} of 3" for number in (1, 2, 3)]
    assert [text for text in texts if text != "Drawing noise"] == ["Reading", *later, *steps]
    assert texts.count("Drawing noise") == 4
    assert sum(name == "update" for name, _, _ in said[0]) >= 4
    assert sum(given[1] for name, given, _ in said[0] if name == "advance") == 400 * (1 + len(later) + len(steps))
