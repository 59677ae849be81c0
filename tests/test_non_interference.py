"""Nothing that leaves the mechanism is a function of the rows but what it draws.

Every subject runs twice, on two tables with nothing in common but the schema: other values, and another number of rows.
What the mechanism draws in the first run is given out again in the second, in the places where noise is added. All else
must then be equal: every attribute that can be reached, public or not, properties, representations, pickles, files,
ledgers, pages, labels and records, output of commands, warnings, log records of every level, what is printed, what
errors say, and what progress bars say.

`Moments` and other sums over rows are sensitive by declaration, as the table itself is: they are not looked at here.
So is what ``gaussmix check`` shows, which is for the curator alone.
"""

from __future__ import annotations

import itertools
import json
import pickle
import shlex
import shutil
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.progress import Progress
from sklearn.base import clone

import gaussmix as gm
from gaussmix import baselines
from gaussmix.baselines import adassp, objective_perturbation, sheffet
from gaussmix.cli import main
from gaussmix.data import sampling
from gaussmix.data.rows import rows_of
from gaussmix.ledger import Ledger
from gaussmix.ledger import ledger as ledgers
from gaussmix.mechanism import bounds, passes, release
from gaussmix.mechanism.release import prepare
from gaussmix.paper import mixing as paper_mixing
from gaussmix.releases import preconditioning
from gaussmix.report.label import as_svg
from gaussmix.report.page import render
from gaussmix.report.registry import record_of
from walker import assert_alike, watched

BOUNDARY: list[tuple[Any, str]] = [
    (passes._Draw, "matrix"),
    (passes._Draw, "histograms"),
    (passes._Draw, "vector"),
    (bounds._Draw, "_noisy"),
    (bounds._Draw, "levels"),
    (sheffet, "draw_factor"),
    (adassp, "_noisy_eigenvalue"),
    (adassp, "to_grid"),
    (objective_perturbation, "to_grid"),
    (paper_mixing, "draw_eigenvalue"),
    (paper_mixing, "draw_factor"),
    (paper_mixing, "draw_rows"),
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
def compared(monkeypatch):
    """The first run of a subject records what is drawn, the second gives it out again; all else must be equal."""
    drawn: list[Any] = []
    state = {"replayed": None}

    def through(place: Any, name: str) -> None:
        honest = getattr(place, name)

        def release(*args: Any, **kwargs: Any) -> Any:
            found = honest(*args, **kwargs)  # also the second time, so that whatever it does besides is done
            if state["replayed"] is None:
                drawn.append((name, found))
                return found
            recorded, value = drawn[state["replayed"]]
            assert recorded == name, "another order of draws"
            state["replayed"] += 1
            return value

        monkeypatch.setattr(place, name, release)

    for place, name in BOUNDARY:
        through(place, name)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(state["names"])))
    for module in (release, ledgers):
        monkeypatch.setattr(module, "datetime", Clock)

    def run(subject: Callable[[Any], Any], table: Any) -> Any:
        release._places.clear()  # what was released before in this process is no property of the rows
        release._objects.clear()
        state["names"] = itertools.count(7)
        return watched(subject, table)

    def twice(subject: Callable[[Any], Any], tables: tuple[Any, Any]) -> None:
        one = run(subject, tables[0])
        state["replayed"] = 0
        other = run(subject, tables[1])
        assert drawn, "nothing was drawn: the test watches the wrong places"
        assert state["replayed"] == len(drawn)
        assert_alike(one, other)

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
        "code": rng.integers(0, 2 * seed, n),
    }


TABLES = table_of(400, 1), table_of(733, 2)
BUDGET = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0}
REPLACE_ONE = gm.Budget(2.0, 1e-5, neighbours="replace-one")
PERSONS = {"privacy_unit": gm.PrivacyUnit("who", 2)}


def results_of(release: gm.Release) -> list[Any]:
    """Models and tables that readers make of a release."""
    linear = release.ols("age", predictors=["cost", "smoker", "region"])
    odds, several = release.logit("smoker", predictors=["age"]), release.mnlogit("region", predictors=["age", "smoker"])
    found = [release, release.certificate, linear, linear.summary(), odds, release.second_moment, release.pca()]
    found += [several, several.summary(), as_svg(release)]
    found += [unless_refused(lambda: release.poisson("age", predictors=["smoker"]))]
    found += [unless_refused(lambda: release.poisson("age", predictors=["smoker"]).rate_ratios())]
    found += [release.corr(), pickle.loads(pickle.dumps(release)), release.to_bytes()]
    if release.certificate.privacy_unit is None:
        found += [release.describe(), release.crosstab("smoker", "region")]
    return found


def unless_refused(ask: Callable[[], Any]) -> Any:
    """An answer, or why there is none: a unit may forbid it."""
    try:
        return ask()
    except gm.GaussmixError as error:
        return f"refused: {error}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"passes": 4}, {"passes": 1}, {"passes": 4, **PERSONS}],
    ids=str,
)
def test_releases(options, compared):
    compared(
        lambda table: results_of(
            gm.release(table, schema=SCHEMA, reading=gm.ReadOptions(progress=True), **options, **BUDGET)
        ),
        TABLES,
    )


EVERY_KIND = gm.Schema.of(
    {
        "age": [0, 100],
        "scan": gm.Vector(3, norm=2.0, missing="drop-row"),
        "day": gm.Date("2020-01-01", "2021-01-01", missing="lower"),
        "smoker": gm.Boolean(missing="lower"),
        "region": gm.Categorical(["north", "south"], unknown="other"),
        "county": gm.Categorical(["kent", "essex"], unknown="zero", missing="level"),
    },
    max_row_norm=2.0,
)


def table_of_every_kind(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    scan, day = rng.normal(0, seed, (n, 3)), np.datetime64("2020-01-01") + rng.integers(-100, 300 * seed, n)
    scan[rng.random(n) < 0.1 * seed, 1], day[rng.random(n) < 0.1 * seed] = np.nan, "NaT"
    smoker = np.array([True, False, None])[rng.integers(0, 1 + seed, n)]
    county = np.array(["kent", None, "essex", "fife"])[rng.integers(0, 2 * seed, n)]
    return table_of(n, seed) | {"scan": scan, "day": day, "smoker": smoker, "county": county}


def described(release: gm.Release) -> list[Any]:
    """What else readers make of a release."""
    new = {"scan": np.zeros((2, 3)), "day": np.array(["2020-02-01", "NaT"], "M8[D]"), "county": ["kent", None]}
    asked: list[Callable[[], Any]] = [
        lambda: release.synthetic(50, seed=1),
        lambda: release.synthetic(5, seed=1, frame="pandas").to_dict(),
        lambda: release.predictor("age"),
        lambda: release.means("age", by="region"),
        lambda: release.anova("age", by="region"),
        lambda: release.corr(given=["smoker", "county"]),
        lambda: release.describe(["day", "county"]),
        lambda: release.ols(["age", "day"]),
        lambda: release.iv("age", predictors=["smoker"], instruments=["day", "county"]),
        lambda: release.ols("age", predictors=["scan", "county"]).summary(estimand="population"),
        lambda: release.ols("age", predictors=["scan", "day", "county"]).get_prediction(new),
        lambda: release.logit("smoker", predictors=["age"]).odds_ratios(),
    ]
    return [release, release.to_bytes(), *map(unless_refused, asked)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"passes": 2, "budget": REPLACE_ONE},
        {"passes": 3, "topcode": None},
        {"passes": 1, "budget": REPLACE_ONE, **PERSONS},
        {"privacy_unit": gm.PrivacyUnit("who", 2, "sample")},
        {"passes": 1, "budget": REPLACE_ONE},
    ],
    ids=str,
)
def test_columns_of_every_kind(options, compared):
    def subject(table):
        """Keys and coins, which a seed of its own gives either run, are not to be seen either."""
        seeded = {"budget": gm.Budget(2.0, 1e-5)} | options | {"random_state": len(table["age"])}
        found = described(gm.release(table, schema=EVERY_KIND, reading=gm.ReadOptions(progress=True), **seeded))
        assert any(isinstance(result, str) for result in found) == (
            "privacy_unit" in options
        )  # else all answers are words
        return found

    compared(subject, (table_of_every_kind(500, 1), table_of_every_kind(811, 2)))


def pieces(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: values[i : i + 150] for name, values in table.items()} for i in range(0, len(table["age"]), 150)]


def written(table: dict[str, Any], path: Path) -> Path:
    rows = pa.table(table)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(rows, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), rows.schema) as file:
            file.write_table(rows)
    elif path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=150)
    else:
        with duckdb.connect(str(path)) as connection:
            connection.from_arrow(rows).create("rows")
    return path


def by_person(table: dict[str, Any]) -> dict[str, Any]:
    order = np.argsort(table["who"], kind="stable")
    return {name: values[order] for name, values in table.items()}


SOURCES: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "an iterator": lambda table, _: iter(pieces(table)),
    "a list": lambda table, _: pieces(table),
    "moments": lambda table, _: gm.Moments.of(table, SCHEMA),
    "moments of persons": lambda table, _: gm.Moments.of(table, SCHEMA, **PERSONS),
    "CSV": lambda table, place: written(table, place / "rows.csv"),
    "Arrow": lambda table, place: written(table, place / "rows.arrow"),
    "Parquet": lambda table, place: written(table, place / "rows.parquet"),
    "DuckDB": lambda table, place: (written(table, place / "rows.duckdb"), "SELECT * FROM rows WHERE age > 10"),
    "polars": lambda table, _: pl.LazyFrame(table).filter(pl.col("age") > 10),
}
READ_AS = {"CSV": gm.CsvOptions(na_values=("nan",))}


@pytest.mark.parametrize("source", SOURCES)
def test_sources(source, compared, tmp_path):
    def subject(table):
        data = SOURCES[source](table, anew(tmp_path / "place"))
        private = gm.release(
            data, schema=SCHEMA, reading=gm.ReadOptions(csv=READ_AS.get(source), progress=True), **BUDGET
        )
        return [private, private.to_bytes()]

    compared(subject, TABLES)


DECLARED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a formula": lambda table: {"data": table, "formula": "age ~ poly(cost, 2)*smoker + region"},
    "no intercept": lambda table: {"data": table, "schema": gm.Schema(SCHEMA.columns, intercept=0)},
    "a number of rows": lambda table: {"data": table, "reading": gm.ReadOptions(expected_rows=len(table["age"]))},
    "sorted": lambda table: {"data": by_person(table), "reading": gm.ReadOptions(sorted_by_unit=True), **PERSONS},
}


@pytest.mark.parametrize("declared", DECLARED)
def test_declarations(declared, compared):
    def subject(table):
        private = gm.release(**{"schema": SCHEMA} | DECLARED[declared](table), **BUDGET)
        return [private, private.ols("age").summary(), private.to_bytes()]

    compared(subject, TABLES)


@pytest.mark.parametrize("unit", [{}, PERSONS], ids=["rows", "persons"])
def test_samples(unit, compared, monkeypatch):
    """Of few rows of small tables; coins of either run are its own, and not to be seen."""
    for name, rows in (("SAMPLE_ROWS", 1), ("HISTOGRAM_ROWS", 20), ("LEAST_ROWS", 1)):
        monkeypatch.setattr(preconditioning, name, rows)

    def subject(table):
        private = gm.release(table, schema=SCHEMA, **unit, **BUDGET | {"random_state": len(table["age"])})
        assert 0 < private.statistic.passes[1].rate < 0.5
        return [private, private.ols("age").summary(), private.to_bytes()]

    compared(subject, TABLES)


def test_weights_terms_and_kept_tails(compared):
    schema = gm.Schema.of(
        {"age": [0, 100], "cost": gm.Numeric(0, 5_000, missing="drop-row"), "smoker": gm.Boolean(), "design": [0, 3]},
        terms=["poly(age, 2)", "age:smoker"],
    )

    def subject(table):
        private = gm.release(table, schema=schema, weight="design", **BUDGET)
        return [private, private.ols("cost").summary(), private.to_bytes()]

    compared(subject, TABLES)


def anew(place: Path) -> Path:
    """A folder with nothing in it, of the same name in both runs: paths are compared too."""
    if place.exists():
        shutil.rmtree(place)
    place.mkdir()
    return place


def files_in(place: Path) -> list[Any]:
    """Name, rights and bytes of every file."""
    return [(path.name, path.stat().st_mode, path.read_bytes()) for path in sorted(place.iterdir())]


def test_files_and_ledgers(compared, tmp_path):
    def subject(table):
        place = anew(tmp_path / "place")
        ledger = Ledger(place / "budget.ledger", epsilon=2.0, delta=1e-5)
        release = gm.release(
            table, schema=SCHEMA, budget=gm.Budget(ledger=ledger, share=0.5), out=place / "a.parquet", random_state=0
        )
        return [release, ledger.entries(), str(ledger), files_in(place), render(release)]

    compared(subject, TABLES)


COMMANDS = """
schema rows.parquet
schema rows.csv -o template.json
ledger create rows.ledger -e 6 -d 1e-5 --releases 3
ledger create persons.ledger -e 3 -d 1e-5 --privacy-unit who --json
bounds rows.parquet -s open.json --ledger rows.ledger --note bounds -o proposed.json --json
bounds rows.csv -s open.json -e 2 -d 1e-5 --neighbours replace-one --most-levels 2 -o once.json
moments rows.parquet -s schema.json -o rows.moments --json
release rows.moments -e 2 -d 1e-5 -o sums.parquet
release rows.arrow -s few.json -e 2 -d 1e-5 --passes 2 --no-topcode -o few.parquet
release rows.parquet -s schema.json --epsilon 2 --delta 1e-5 -o a.parquet
release rows.csv -s schema.json --na-value nan --ledger rows.ledger --note costs -o charged.parquet --json
release rows.parquet -s schema.json --ledger persons.ledger --privacy-unit who --max-contributions 2 -o persons.parquet
release rows.parquet -s schema.json -e 2 -d 1e-5 --passes 1 --neighbours replace-one -o replaced.parquet
release rows.duckdb --query "FROM rows" -s schema.json -e 2 -d 1e-5 --formula "age ~ cost*smoker" -o terms.parquet
ledger show rows.ledger
ledger show persons.ledger --json
ledger verify rows.ledger
ledger export rows.ledger
ols a.parquet age --json
ols a.parquet age --predictors smoker
logit a.parquet smoker --predictors age --odds
poisson a.parquet age --predictors smoker
describe a.parquet
describe persons.parquet --json
corr charged.parquet
corr a.parquet --given smoker --csv
crosstab a.parquet smoker region
synthetic few.parquet 30 --seed 1 -o made.csv
synthetic few.parquet 30 --seed 1 -o made.parquet
export a.parquet matrices.csv
sign a.parquet --key private.pem
verify a.parquet --key public.pem
verify replaced.parquet --json
report a.parquet -o page.html --label label.svg
report persons.parquet -o persons.html --registry record.yaml --title Costs --response age --alpha 0.1 --json
"""
OPEN = {"age": "number", "cost": {"lower": 0, "upper": None}, "region": "category", "code": "codes"}


@pytest.mark.slow
def test_commands(compared, tmp_path, monkeypatch):
    """Exit codes, standard output, standard error, and files."""
    monkeypatch.setattr("os.urandom", bytes)  # names of moments, which their command prints

    def subject(table):
        monkeypatch.chdir(tmp_path)
        place = anew(tmp_path / "place")
        monkeypatch.chdir(place)
        sources = [written(table, place / f"rows.{kind}") for kind in ("parquet", "arrow", "csv", "duckdb")]
        few = {"age": [0, 100], "smoker": "boolean", "code": {"levels": [0, 1], "unknown": "other"}}
        for name, content in (("schema", SCHEMA.to_dict()), ("few", few), ("open", OPEN)):
            (place / f"{name}.json").write_text(json.dumps(content))
        write_keys(place)
        found = [(words, *invoked(words)) for words in COMMANDS.strip().splitlines()]
        for sensitive in [*sources, place / "rows.moments"]:
            sensitive.unlink()
        return [found, files_in(place), record_of(gm.load(place / "a.parquet"))]

    compared(subject, TABLES)


def invoked(words: str) -> tuple[str, str]:
    done = CliRunner().invoke(main, shlex.split(words))
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.stdout, done.stderr


def write_keys(place: Path) -> None:
    """The same pair every time."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    private = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    (place / "private.pem").write_bytes(private)
    public = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    (place / "public.pem").write_bytes(public)


def arrays_of(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, seed, (n, 2))
    return X, np.clip(X @ [seed, -0.5] + rng.normal(0, 0.1, n), -1, 1)


BOUNDS = {"bounds_X": (-1, 1), "epsilon": 2.0, "delta": 1e-5, "random_state": 0}


NORM = {"data_norm": 1.5, "epsilon": 2.0, "delta": 1e-5, "random_state": 0}
BOUNDED, CLASSES = BOUNDS | {"bounds_y": (-1, 1)}, BOUNDS | {"classes": (False, True)}
MODELS = {
    "linear": gm.LinearRegression(**BOUNDED),
    "linear, a norm": gm.LinearRegression(**BOUNDED | {"bounds_X": None, "data_norm": 1.0}),
    "linear, no intercept": gm.LinearRegression(fit_intercept=False, **BOUNDED),
    "linear, persons": gm.LinearRegression(max_contributions=2, **BOUNDED),
    "logistic": gm.LogisticRegression(**CLASSES),
    "logistic, steps": gm.LogisticRegression(model_share=0.4, **CLASSES),
    "logistic, persons": gm.LogisticRegression(max_contributions=2, **CLASSES),
    "AdaSSP": baselines.AdaSSP(**BOUNDED),
    "AdaSSP, printed": baselines.AdaSSP(analysis="printed", **BOUNDED),
    "Sheffet": baselines.SheffetMixing(**BOUNDED),
    "Sheffet, Renyi": baselines.SheffetMixing(analysis="renyi", **BOUNDED),
    "objective perturbation": baselines.ObjectivePerturbation(**CLASSES),
    "Algorithm 2": gm.paper.LinearMixing(**NORM, bounds_y=(-1, 1)),
    "Algorithm 2, exact": gm.paper.LinearMixing(**NORM, bounds_y=(-1, 1), analysis="exact", fit_intercept=True),
    "Algorithm 2, logistic": gm.paper.LogisticMixing(**NORM, classes=(False, True)),
}
ARRAYS = arrays_of(1), arrays_of(2, 611)


def shown_by(fitted: Any, **asked: Any) -> list[Any]:
    """A model, what its pickle holds, and what readers ask of it."""
    found = [fitted, vars(pickle.loads(pickle.dumps(fitted))), fitted.predict(arrays_of(5, 20)[0])]
    found += [fitted.summary(**asked)] if hasattr(fitted, "summary") else []
    return [*found, unless_refused(fitted.odds_ratios)] if hasattr(fitted, "odds_ratios") else found


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_estimators(model, compared):
    def subject(table):
        X, y = table
        grouped = {"groups": np.arange(len(X)) // 3} if getattr(model, "max_contributions", None) else {}
        return shown_by(clone(model).fit(X, y > 0 if hasattr(model, "classes") else y, **grouped))

    compared(subject, ARRAYS)


def test_sketches_of_the_paper(compared, tmp_path):
    """Methods, relations, blocks, Algorithm 1, stacks, and the files of all of them."""

    def subject(table):
        A, place = np.column_stack(table), anew(tmp_path / "place")
        options = {"row_norm": 1.2, "rng": 0}
        found = [gm.paper.gauss_mix(A, k, 4.0, **options) for k in (2, 30)]
        found += [
            gm.paper.gauss_mix(A, 30, 4.0, **options | {"rng": 1}),
            gm.paper.gauss_mix(iter([A]), 5, 3.0, **options),
        ]
        found += [
            gm.paper.gauss_mix(A, 9, 3.0, neighbours="replace-one", scale_bound=9.0, method="explicit", **options)
        ]
        found += [gm.paper.modified_gauss_mix(A, 1.2, 9, 20.0, tau, 4.0, rng=0) for tau in (0.5, 30.0)]
        found += [gm.paper.stack(found[1:3])]
        for i, sketch in enumerate(found):
            sketch.save(place / f"{i}.parquet")
        shown = [(str(sketch.certificate), sketch.epsilon(1e-5), sketch.lstsq("x2", ["x0"])) for sketch in found]
        return [found, shown, files_in(place), gm.paper.average(found[1:3], "x2"), found[0].sample_rows(1)]

    compared(subject, ARRAYS)


@pytest.mark.parametrize("name", ["linear", "linear, no intercept", "AdaSSP", "Sheffet"])
def test_several_targets(name, compared):
    def subject(table):
        X, y = table
        return shown_by(clone(MODELS[name]).fit(X, np.column_stack([y, -y / 2])), output=1)

    compared(subject, ARRAYS)


@pytest.mark.parametrize("name", ["linear", "logistic", "AdaSSP", "Sheffet"])
def test_fits_of_moments(name, compared):
    def subject(table):
        (X, y), model = table, clone(MODELS[name])
        targets = (y > 0).astype(float) if hasattr(model, "classes") else y
        return vars(model.fit_moments(gm.Moments.of_arrays([(X, targets)], model.schema(2))))

    compared(subject, ARRAYS)


def test_estimators_with_a_ledger(compared, tmp_path):
    def subject(table):
        (X, y), place = table, anew(tmp_path / "place")
        ledger = Ledger(place / "budget.ledger", epsilon=2.0, delta=1e-5, releases=2)
        given = {"bounds_X": (-1, 1), "ledger": ledger, "random_state": 0}
        linear = gm.LinearRegression(bounds_y=(-1, 1), **given).fit(X, y)
        steps = gm.LogisticRegression(classes=(False, True), model_share=0.4, **given).fit(X, y > 0)
        return [linear, vars(steps), ledger, ledger.entries(), ledger.remaining(), files_in(place)]

    compared(subject, ARRAYS)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_proposals(neighbours, compared, tmp_path):
    """Of tables, of what can be read only once, and of files; with a ledger and without."""

    def subject(table):
        place = anew(tmp_path / "place")
        ledger = Ledger(place / "budget.ledger", epsilon=4.0, delta=1e-5, neighbours=neighbours)
        charged = gm.propose_bounds(
            table, OPEN, budget=gm.Budget(ledger=ledger, share=0.5), out=place / "schema.json", random_state=0
        )
        files, csv = files_in(place), written(table, place / "rows.csv")
        budget = {"budget": gm.Budget(4.0, 1e-5, neighbours=neighbours), "random_state": 0}
        once = gm.propose_bounds(iter(pieces(table)), OPEN, most_levels=2, tail=0.1, **budget)
        read = gm.propose_bounds(csv, OPEN, reading=gm.ReadOptions(csv=gm.CsvOptions(na_values=("nan",))), **budget)
        return [charged, files, gm.propose_bounds(table, OPEN, **budget), once, read, read.to_bytes()]

    compared(subject, TABLES)


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


LINES = {
    "text for a number": lambda place: f"about {place},1,true,north,{place},1,0",
    "an empty field": lambda place: f",{place},true,north,{place},1,0",
    "too many fields": lambda place: f"{place},1,true,north,{place},1,0,{place}",
    "too few fields": lambda place: f"{place},1",
    "an open quote": lambda place: f'{place},1,true,"north{place},{place},1,0',
    "not UTF-8": lambda place: f"{place},1,true,m\xfcrren{place},{place},1,0",
    "an unknown level": lambda place: f"{place},1,true,village {place},{place},1,0",
    "nobody's": lambda place: f"{place},1,true,north,,1,0",
}


@pytest.mark.parametrize("line", LINES)
def test_errors_of_files_say_the_same(line, tmp_path):
    """Each table is written with one bad line, by row and by person."""
    options = {"schema": SCHEMA, "reading": gm.ReadOptions(csv=READ_AS["CSV"]), **BUDGET}
    units = [{}, PERSONS] if line != "nobody's" else [PERSONS]
    found = []
    for table, place in zip(TABLES, (7, 500), strict=True):
        lines = written(table, tmp_path / "rows.csv").read_bytes().splitlines()
        lines[place] = LINES[line](place).encode("latin-1")
        (tmp_path / "rows.csv").write_bytes(b"\n".join(lines))
        found.append(
            [message_of(lambda unit=unit: gm.release(tmp_path / "rows.csv", **options, **unit)) for unit in units]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("day", None), ("scan", [np.inf, 0.0, 0.0]), ("scan", [1.0, 1.0]), ("who", None)],
    ids=["no date", "infinite entry", "short vector", "nobody's"],
)
def test_errors_of_other_kinds_say_the_same(name, value):
    schema, found = {"scan": gm.Vector(3, norm=2.0), "day": gm.Date("2020-01-01", "2021-01-01")}, []
    for n, place in ((500, 7), (811, 600)):
        table = {"scan": [[place, 0.0, 0.0]] * n, "day": [date(2020, 7, 1)] * n, "who": list(range(n))}
        table[name] = [*table[name][:place], value, *table[name][place + 1 :]]
        rows = pa.table(table)
        found.append(message_of(lambda rows=rows: gm.release(rows, schema=schema, **PERSONS, **BUDGET)))
    assert found[0] == found[1]
    assert name in found[0][0]


def test_errors_of_tables_that_are_not_sorted_say_the_same():
    one, other = (
        message_of(
            lambda table=table: gm.release(
                table, schema=SCHEMA, reading=gm.ReadOptions(sorted_by_unit=True), **PERSONS, **BUDGET
            )
        )
        for table in TABLES
    )
    assert one == other


def test_errors_of_estimators_and_counts_say_the_same():
    found = []
    for (X, y), place in zip((arrays_of(1), arrays_of(2, 611)), (7, 500), strict=True):
        X[place, 1] = np.nan
        with pytest.raises(ValueError, match="NaN") as caught:
            gm.LinearRegression(bounds_y=(-1, 1), **BOUNDS).fit(X, y)
        labels = np.where(y > 0, "yes", "no").astype(object)
        labels[place] = f"perhaps {place}"
        logistic = gm.LogisticRegression(classes=("no", "yes"), **BOUNDS)
        unknown = message_of(lambda X=X, labels=labels, model=logistic: model.fit(np.nan_to_num(X), labels))
        found.append([str(caught.value), unknown])
    assert found[0] == found[1]
    one, other = (
        message_of(
            lambda table=table: gm.release(table, schema=SCHEMA, reading=gm.ReadOptions(expected_rows=50), **BUDGET)
        )
        for table in TABLES
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
    monkeypatch.setattr(sampling, "CACHE_BYTES", 0)  # else no later pass reads the file
    monkeypatch.setattr(passes, "_MANY_COLUMNS", 3)  # else the noise is drawn at once
    schema = gm.Schema.of({"age": [0, 100], "cost": [0, 5_000], "smoker": gm.Boolean()})
    said = []
    for seed in (1, 2):
        told.clear()
        table = {name: np.nan_to_num(table_of(400, seed)[name]) for name in ("age", "cost", "smoker")}
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        with prepare(
            schema, gm.Budget(2.0, 1e-5), passes=4, models=["smoker ~ age + cost"], random_state=0
        ) as prepared:
            prepared.draw(rows_of(tmp_path / "rows.parquet", schema, gm.ReadOptions(progress=True)), progress=True)
        said.append(list(told))
    assert said[0] == said[1]
    texts = [given[0] for name, given, _ in said[0] if name == "add_task"]
    later = [f"Pass {number} of 4{words}" for number in (2, 3, 4) for words in (", row norms", "")]
    steps = ["Model logit: smoker ~ age + cost"] * 3
    assert [text for text in texts if text != "Drawing noise"] == ["Reading", *later, *steps]
    assert texts.count("Drawing noise") == 4
    assert sum(name == "update" for name, _, _ in said[0]) >= 4
    assert sum(given[1] for name, given, _ in said[0] if name == "advance") == 400 * (1 + len(later) + len(steps))
