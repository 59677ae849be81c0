"""One row for each privacy unit: features against pandas, engines against one machine, and the privacy statement."""

from __future__ import annotations

import gc
import itertools
import os
import stat
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.moments import Moments
from gaussmix.data.per_unit import parse_feature
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError
from gaussmix.releases.certificate import ROW_BY_ROW
from gaussmix.report.statement import in_plain_words

FEATURES = {
    "visits": gm.count(),
    "bp": gm.mean("pressure", bounds=(60, 220)),
    "total": gm.sum("cost", bounds=(0, 1000)),
    "least": gm.min("cost"),
    "most": gm.max("cost"),
    "ever": gm.any("smoker"),
    "always": gm.all("smoker"),
    "age": gm.last("age", by="day"),
    "entry": gm.first("age", by="day"),
}


def events(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "patient": rng.integers(0, 300, n),
            "day": rng.integers(0, 50, n),
            "pressure": rng.normal(130, 40, n),
            "cost": rng.exponential(10, n),
            "smoker": rng.random(n) < 0.3,
            "age": rng.integers(20, 90, n).astype(float),
        }
    )
    frame.loc[rng.random(n) < 0.1, "cost"] = np.nan
    return frame


def by_hand(frame):
    """The same features, one patient after the other."""
    found = {}
    for patient, rows in frame.groupby("patient"):
        known = rows.dropna(subset=["age", "day"])
        cost = rows["cost"].dropna()
        found[str(patient)] = {
            "visits": len(rows),
            "bp": rows["pressure"].clip(60, 220).mean(),
            "total": cost.sum() if len(cost) else None,
            "least": cost.min() if len(cost) else None,
            "most": cost.max() if len(cost) else None,
            "ever": rows["smoker"].any(),
            "always": rows["smoker"].all(),
            "age": known.sort_values(["day", "age"])["age"].iloc[-1],
            "entry": known.sort_values(["day", "age"])["age"].iloc[0],
        }
    return found


def collected(table):
    return {row.pop("patient"): row for row in table.to_pylist()}


def test_features_are_those_of_each_unit():
    frame = events()
    found, wanted = collected(gm.per_unit(frame, unit="patient", **FEATURES).to_arrow()), by_hand(frame)
    assert found.keys() == wanted.keys()
    for patient, row in wanted.items():
        for name, value in row.items():
            assert found[patient][name] == pytest.approx(value, rel=1e-12), (patient, name)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), patient=st.integers(0, 300))
def test_a_unit_with_all_of_its_rows_changes_one_row(seed, patient):
    """The privacy statement: row-level privacy of features is unit-level privacy of rows."""
    frame = events(400, seed)
    rest = frame[frame["patient"] != patient].sample(frac=1, random_state=seed)  # in another order
    more = collected(gm.per_unit(frame, unit="patient", **FEATURES).to_arrow())
    less = collected(gm.per_unit(rest, unit="patient", **FEATURES).to_arrow())
    more.pop(str(patient), None)
    assert more == less


def test_files_frames_and_csv_give_the_same(tmp_path):
    frame = events(1000)
    frame.to_parquet(tmp_path / "events.parquet")
    frame.iloc[:400].to_csv(tmp_path / "a.csv", index=False)
    frame.iloc[400:].to_csv(tmp_path / "b.csv", index=False)
    whole = {"visits": gm.count(), "most": gm.max("cost"), "ever": gm.any("smoker")}
    wanted = collected(gm.per_unit(frame, unit="patient", **whole).to_arrow())
    for data in (tmp_path / "events.parquet", f"{tmp_path}/*.csv", pa.Table.from_pandas(frame)):
        assert collected(gm.per_unit(data, unit="patient", **whole).to_arrow()) == wanted


def test_missing_values_are_left_out_of_means_and_sums():
    rows = {"patient": ["a", "a", "a", "b"], "cost": [10.0, None, None, None]}
    bounded = {"m": gm.mean("cost", bounds=(5, 20)), "s": gm.sum("cost", bounds=(5, 20))}
    found = collected(gm.per_unit(rows, unit="patient", **bounded).to_arrow())
    assert found == {"a": {"m": 10.0, "s": 10.0}, "b": {"m": None, "s": None}}


def test_a_release_of_features():
    table = gm.per_unit(events(20_000), unit="patient", visits=gm.count(), bp=gm.mean("pressure", bounds=(60, 220)))
    release = gm.release(table, {"visits": [0, 200], "bp": [60, 220]}, epsilon=1.0, delta=1e-6)
    assert release.certificate.epsilon == 1.0


def test_a_join_with_a_table_of_persons():
    persons = pd.DataFrame({"patient": [1, 2, 999], "region": ["north", "south", "south"]})
    frame = events(2000)
    found = collected(
        gm.per_unit(frame, unit="patient", join=persons, visits=gm.count(), most=gm.max("cost")).to_arrow()
    )
    assert found.keys() == {"1", "2", "999"}
    assert found["999"] == {"region": "south", "visits": 0, "most": None}
    assert found["1"]["visits"] == (frame["patient"] == 1).sum()
    twice = pd.concat([persons, persons.iloc[:1]])
    with pytest.raises(DataError, match="join has several rows with the same patient"):
        gm.per_unit(frame, unit="patient", join=twice, visits=gm.count())
    with pytest.raises(ArgumentError, match="both have region"):
        gm.per_unit(frame, unit="patient", join=persons, region=gm.count())


NUMBERS = [pa.decimal128(10, 2), pa.decimal256(50, 4), pa.float64(), pa.float32(), pa.int32(), pa.null()]


@pytest.mark.parametrize(("first", "second"), itertools.permutations(NUMBERS, 2), ids=str)
def test_types_of_numbers_may_differ_between_files(first, second):
    """DuckDB would read the bytes of one type as values of another."""

    def part(units, kind):
        numbers = pa.array([None if pa.types.is_null(kind) else Decimal(unit) for unit in units])
        column = pa.nulls(len(units)) if pa.types.is_null(kind) else numbers.cast(kind)
        return pa.table({"u": [f"{unit}" for unit in units], "v": column, "w": column})

    units = [*range(3), *range(5, 300)]
    parts = [part(units[:3], first), part(units[3:], second)]
    columns = {"v": (0, 400)}
    wanted = {
        f"{unit}": None if pa.types.is_null(kind) else float(unit)
        for kind, own in ((first, units[:3]), (second, units[3:]))
        for unit in own
    }
    table = gm.per_unit(parts, unit="u", m=gm.mean("v", bounds=(0, 400)), most=gm.max("v"), last=gm.last("v", by="w"))
    found = table.to_arrow()
    for name in ("m", "most", "last"):
        got = dict(zip(found["u"].to_pylist(), found[name].to_pylist(), strict=True))
        assert got == {unit: value if value is None else pytest.approx(value) for unit, value in wanted.items()}
    deviations = gm.within(parts, unit="u", columns=columns).to_arrow()
    assert deviations["v"].to_pylist() == [0.0] * sum(value is not None for value in wanted.values())


def test_other_types_that_differ_between_parts_are_refused():
    stamps = [pa.table({"u": ["a"], "v": pa.nulls(1)}), pa.table({"u": ["b"], "v": pa.array([7], pa.timestamp("s"))})]
    assert gm.per_unit(stamps[::-1], unit="u", m=gm.max("v")).to_arrow().num_rows == 2
    with pytest.raises(DataTypeError, match="Column 'v' must have the same type in all parts"):
        gm.per_unit(stamps, unit="u", m=gm.max("v"))


def test_the_temporary_file_is_private_and_removed():
    table = gm.per_unit(events(100), unit="patient", visits=gm.count())
    path = Path(table.paths[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    del table
    gc.collect()
    assert not path.exists()


def test_errors_quote_no_value():
    frame = events(100).assign(name="secret")
    frame.loc[50, "patient"] = np.nan
    with pytest.raises(DataError, match="Privacy-unit column 'patient' has missing values"):
        gm.per_unit(frame, unit="patient", visits=gm.count())
    with pytest.raises(DataError, match="Features cannot be computed") as caught:
        gm.per_unit(events(100).assign(name="secret"), unit="patient", name=gm.mean("name", bounds=(0, 1)))
    assert "secret" not in repr((caught.value, caught.value.__cause__, caught.value.__context__))
    with pytest.raises(DataError, match="Column 'weight' is not in"):
        gm.per_unit(events(100), unit="patient", weight=gm.max("weight"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gm.per_unit(events(10), unit="patient"), ArgumentError, "At least one feature"),
        (lambda: gm.per_unit(events(10), unit="patient", patient=gm.count()), ArgumentError, "cannot have the name"),
        (lambda: gm.per_unit(events(10), unit="patient", age="last"), TypeError, "age must be a Feature"),
        (lambda: gm.mean("age", bounds=(3, 1)), ArgumentError, r"bounds must be \(lower, upper\) with lower < upper"),
        (
            lambda: gm.sum("age", bounds=(-1e-320, 1e-310)),
            ArgumentError,
            "bounds must be finite, and one of them at least",
        ),
        (lambda: gm.mean("age", bounds=(0, np.inf)), ArgumentError, "bounds must be finite"),
        (lambda: gm.mean("age", bounds=3), ArgumentTypeError, "bounds must be a pair"),
        (lambda: gm.mean(3, bounds=(0, 1)), ArgumentTypeError, "column must be the name of a column"),
        (lambda: parse_feature("age"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=median(age)"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=last(age)"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=__import__('os').getcwd()"), ArgumentError, "must be written as name=function"),
        (
            lambda: parse_feature("age=mean(age, bounds=(2, 1))"),
            ArgumentError,
            r"bounds must be \(lower, upper\) with lower < upper",
        ),
    ],
)
def test_wrong_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_names_with_quotes_are_quoted():
    frame = pd.DataFrame({'i"d': [1, 1], 'x"); drop': [1.0, 3.0]})
    found = gm.per_unit(frame, unit='i"d', **{'y"': gm.mean('x"); drop', bounds=(0, 9))})
    assert found.to_arrow().to_pylist() == [{'i"d': "1", 'y"': 2.0}]


def test_names_that_differ_in_case_are_different_columns():
    """DuckDB ignores case: the join was by ID, so that a unit had three rows."""
    visits = pa.table({"id": ["a", "a", "b"], "V": [1.0, 2.0, 3.0], "v": [10.0, 20.0, 30.0]})
    found = gm.per_unit(visits, unit="id", V=gm.max("V"), v=gm.max("v"))
    assert found.to_arrow().sort_by("id").to_pylist() == [
        {"id": "a", "V": 2.0, "v": 20.0},
        {"id": "b", "V": 3.0, "v": 30.0},
    ]
    persons = pa.table({"ID": ["r1", "r2"], "id": ["a", "a"]})
    with pytest.raises(DataError, match="join has several rows with the same id"):
        gm.per_unit(visits, unit="id", join=persons, n=gm.count())


def test_sums_do_not_depend_on_the_order_of_rows():
    values = np.array([1e17, -1e17, 1.0, 3.0, -5e16, 5e16])
    bounds = (-1e17, 1e17)
    found = {
        tuple(
            gm.per_unit(
                {"id": np.zeros(6, dtype=int), "x": values[order]},
                unit="id",
                s=gm.sum("x", bounds=bounds),
                m=gm.mean("x", bounds=bounds),
            )
            .to_arrow()
            .to_pylist()[0]
            .values()
        )
        for order in map(list, itertools.permutations(range(6)))
    }
    assert len(found) == 1


def test_an_empty_id_is_missing():
    with pytest.raises(DataError, match="has missing values"):
        gm.per_unit({"id": np.array(["a", ""]), "x": np.zeros(2)}, unit="id", n=gm.count())


def test_what_spills_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    seen = []
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *words, config: seen.append(config) or connect(*words, config=config))
    gm.per_unit(events(50), unit="patient", visits=gm.count())
    (config,) = seen
    assert Path(config["temp_directory"]).parent == tmp_path
    assert not Path(config["temp_directory"]).exists()  # removed after use


def test_csv_files_order_by_dates_only(tmp_path):
    (tmp_path / "a.csv").write_text("id,day,when,x\n1,9,2026-01-09,1\n1,10,2026-01-10,2\n")
    found = gm.per_unit(tmp_path / "a.csv", unit="id", x=gm.last("x", by="when"))
    assert found.to_arrow().to_pylist() == [{"id": "1", "x": 2.0}]
    with pytest.raises((DataError, DataTypeError)):  # as text 9 would come after 10
        gm.per_unit(tmp_path / "a.csv", unit="id", x=gm.last("x", by="day"))


def test_the_command_writes_what_the_function_returns(tmp_path):
    frame = events(500)
    frame.to_parquet(tmp_path / "events.parquet")
    out = tmp_path / "patients.parquet"
    words = ["per-unit", str(tmp_path / "events.parquet"), "--unit", "patient", "-o", str(out)]
    words += ["--feature", "visits=count()", "--feature", "age=last(age, by=day)"]
    assert CliRunner().invoke(main, words).exit_code == 0
    wanted = gm.per_unit(frame, unit="patient", visits=gm.count(), age=gm.last("age", by="day"))
    assert collected(pa.parquet.read_table(out)) == collected(wanted.to_arrow())
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
    assert CliRunner().invoke(main, words).exit_code != 0  # an existing file is not replaced


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same():
    dd = pytest.importorskip("dask.dataframe")
    frame = events(1000)
    whole = {"visits": gm.count(), "most": gm.max("cost"), "age": gm.last("age", by="day")}
    wanted = collected(gm.per_unit(frame, unit="patient", **whole).to_arrow())
    for data in (frame, frame.astype({"patient": float})):
        found = gm.per_unit(dd.from_pandas(data, npartitions=5), unit="patient", **whole).compute()
        assert collected(pa.Table.from_pandas(found, preserve_index=False)) == wanted


# ---------------------------------------------------------------------------------------------------------------
# What the release of features says
SCHEMA = {"visits": [0, 40], "bp": [60, 220]}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def features(**more):
    chosen = {name: FEATURES[name] for name in ("visits", "bp")}
    return gm.per_unit(events(), unit="patient", **chosen, **more)


def test_the_unit_is_the_person_in_certificate_ledger_and_file(tmp_path):
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=3, privacy_unit="patient")
    out = tmp_path / "r.parquet"
    private = gm.release(features(), SCHEMA, budget=gm.Budget(ledger=ledger), out=out)
    for certificate in (private.certificate, gm.load(out).certificate):
        assert certificate.privacy_unit == gm.PrivacyUnit("patient", 1, "unique")
        assert "all rows with the same patient (one row each)" in str(certificate)
        assert "one privacy unit added or removed" in str(certificate)
    words = " ".join(in_plain_words(private.certificate))
    assert "one privacy unit changes" in words
    # The same ledger covers rows with the same unit, and no release with row-level privacy.
    frame = events()[["patient", "pressure"]]
    gm.release(
        frame, {"pressure": [60, 220]}, budget=gm.Budget(ledger=ledger), privacy_unit=gm.PrivacyUnit("patient", 5)
    )
    with pytest.raises(ArgumentError, match="row-level privacy"):
        gm.release(frame, {"pressure": [60, 220]}, budget=gm.Budget(ledger=ledger))
    rows = gm.Ledger(tmp_path / "rows.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(ArgumentError, match="ledger is for row-level privacy"):
        gm.release(features(), SCHEMA, budget=gm.Budget(ledger=rows))


def test_noise_and_intervals_are_those_of_a_release_of_rows():
    table = features()
    own = gm.release(table, SCHEMA, random_state=0, **BUDGET)
    rows = gm.release(table.to_arrow(), SCHEMA, random_state=0, **BUDGET)
    assert rows.certificate.privacy_unit is None
    assert (own.statistic.last.matrix == rows.statistic.last.matrix).all()
    for estimand in ("table", "population"):
        ours, theirs = (
            private.ols("bp", ["visits"]).summary(estimand=estimand, n_rows=300).conf_int() for private in (own, rows)
        )
        assert ours == theirs
    assert own.describe().as_text() == rows.describe().as_text()
    assert gm.propose_bounds(table, {"bp": "number"}, **BUDGET).certificate.privacy_unit.column == "patient"


def test_unique_cannot_be_claimed_for_other_tables():
    unit = gm.PrivacyUnit("patient", 1, "unique")
    frame = events()
    for data in (frame, features().to_arrow(), [features()]):
        with pytest.raises(ArgumentError, match="only for releases of tables made by per_unit"):
            gm.release(data, {"bp": [60, 220]}, privacy_unit=unit, **BUDGET)
    with pytest.raises(ArgumentError, match="only for releases of tables made by per_unit"):
        Moments.of(frame, {"age": [0, 99]}, privacy_unit=unit)
    with pytest.raises(ArgumentError, match="max_contributions must be 1"):
        gm.PrivacyUnit("patient", 2, "unique")
    with pytest.raises(gm.DeclarationError, match="'patient' is the privacy unit"):
        gm.release(features(), {"bp": [60, 220], "patient": [0, 300]}, **BUDGET)


def test_a_query_behind_the_features_is_a_condition():
    frame = events()
    relation = duckdb.sql("SELECT patient, pressure FROM frame")
    table = gm.per_unit(relation, unit="patient", bp=FEATURES["bp"])
    assert ROW_BY_ROW in gm.release(table, {"bp": [60, 220]}, **BUDGET).certificate.conditions
    assert ROW_BY_ROW not in gm.release(features(), SCHEMA, **BUDGET).certificate.conditions
    assert len(frame) == 4000


def test_a_query_to_join_is_examined_like_any_other():
    frame, database = events(), duckdb.connect()
    persons = pd.DataFrame({"patient": np.arange(300), "age": 50.0})
    database.register("persons", persons)
    bp, join = FEATURES["bp"], database.sql("SELECT patient, max(age) OVER () AS age FROM persons")
    with pytest.raises(ArgumentError, match="contains WINDOW, so one stored row may change several rows"):
        gm.per_unit(frame, unit="patient", join=join, bp=bp)
    declared = gm.ReadOptions(row_by_row=True)
    for data, other in ((frame, join), (duckdb.sql("FROM frame"), persons)):
        table = gm.per_unit(data, unit="patient", join=other, bp=bp, reading=declared)
        assert ROW_BY_ROW in gm.release(table, {"bp": [60, 220]}, **BUDGET).certificate.conditions
    with pytest.raises(ArgumentError, match="row_by_row has no effect"):
        gm.per_unit(frame, unit="patient", join=persons, bp=bp, reading=declared)
    deviations = gm.within(persons, unit="patient", columns={"age": (0, 99)})
    with pytest.raises(ArgumentError, match="functions of several rows with the same patient"):
        gm.per_unit(frame, unit="age", join=deviations, visits=gm.count())


# ---------------------------------------------------------------------------------------------------------------
# Deviations from the means of units
BOUNDS = {"y": (-3.0, 3.0), "x": (0.0, 1.0), "z": (0, 1)}


def panel(persons=120, seed=1):
    """One to eight rows of each person, whose level is related to x; some values missing or out of bounds."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(persons), rng.integers(1, 9, persons))
    rng.shuffle(who)
    level = rng.normal(0, 0.5, persons)[who]
    x, z = np.clip(0.5 + level / 4 + rng.normal(0, 0.2, len(who)), -0.1, 1.1), rng.random(len(who)) < 0.4
    y = 0.7 * x - 0.3 * z + level + rng.normal(0, 0.2, len(who))
    frame = pd.DataFrame({"who": who, "y": y, "x": x, "z": z})
    frame.loc[rng.random(len(who)) < 0.05, "x"] = np.nan
    return frame


def test_least_squares_on_deviations_is_that_with_an_indicator_for_every_unit():
    """The exact sums of a release in which no contribution is bounded, against statsmodels with one dummy per unit."""
    frame = panel()
    table = gm.within(frame, unit="who", columns=BOUNDS)
    assert table.bounds == {"y": (-6.0, 6.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0)}
    clamped = frame.dropna().assign(x=lambda f: f["x"].clip(0, 1), z=lambda f: f["z"].astype(float))
    exact = smf.ols("y ~ x + z + C(who)", clamped).fit().params[["x", "z"]]
    schema = gm.Schema.of(table.bounds)
    G = Moments.of(table, schema, privacy_unit=gm.PrivacyUnit("who", 8)).gram()
    centre = schema.names.index("(intercept)")
    assert np.abs(np.delete(G[centre], centre)).max() < 1e-3  # deviations add up to 0, but for rounding
    at = {name: schema.names.index(name) for name in BOUNDS}
    own = np.linalg.solve(G[np.ix_([at["x"], at["z"]], [at["x"], at["z"]])], G[[at["x"], at["z"]], at["y"]])
    np.testing.assert_allclose(own * 6.0, exact, atol=2e-5)  # y is in units of 6, x and z of 1


def test_a_release_of_deviations_gives_the_fixed_effects_estimate():
    frame = panel(persons=2000)
    table = gm.within(frame, unit="who", columns=BOUNDS)
    clamped = frame.dropna().assign(x=lambda f: f["x"].clip(0, 1), z=lambda f: f["z"].astype(float))
    centred = clamped[["x", "z", "y"]] - clamped.groupby("who")[["x", "z", "y"]].transform("mean")
    exact = np.linalg.lstsq(centred[["x", "z"]], centred["y"])[0]
    pooled = np.linalg.lstsq(clamped[["x", "z"]] - clamped[["x", "z"]].mean(), clamped["y"])[0]
    unit = gm.PrivacyUnit("who", 8)
    private = gm.release(table, table.bounds, epsilon=60.0, delta=1e-3, privacy_unit=unit, passes=1, random_state=0)
    found = private.ols("y", ["x", "z"])
    assert abs(found.params["x"] - exact[0]) < 4 * found.bse["x"] < abs(pooled[0] - exact[0])
    assert abs(found.params["z"] - exact[1]) < 4 * found.bse["z"]


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 119))
def test_deviations_are_functions_of_the_rows_of_their_unit(seed, removed):
    """Without one unit, in another order, the deviations of all other units have the same bits."""
    frame = panel()
    rest = frame[frame["who"] != removed].sample(frac=1, random_state=seed)
    columns = ["who", *BOUNDS]

    def rows(data):
        found = gm.within(data, unit="who", columns=BOUNDS).to_arrow().to_pandas()[columns]
        return found[found["who"] != str(removed)].sort_values(columns).to_numpy().tolist()

    assert rows(frame) == rows(rest)


def test_deviations_are_released_with_their_unit_only(tmp_path):
    table = gm.within(panel(), unit="who", columns=BOUNDS)
    for wrong in ({}, {"privacy_unit": gm.PrivacyUnit("household", 3)}):
        for data in (table, [table]):
            with pytest.raises(ArgumentError, match=r'functions of several rows .*privacy_unit=gm\.PrivacyUnit\("who"'):
                gm.release(data, table.bounds, **BUDGET, **wrong)
    with pytest.raises(ArgumentError, match="functions of several rows"):
        Moments.of(table, table.bounds)
    with pytest.raises(ArgumentError, match="functions of several rows"):
        gm.propose_bounds(table, {"x": "number"}, **BUDGET)
    with pytest.raises(ArgumentError, match="functions of several rows"):
        gm.per_unit(table, unit="x", n=gm.count())
    for data in (iter([table]), iter([[table]]), [iter([[table]])], dict.fromkeys([(table,)]).keys()):
        with pytest.raises(ArgumentError, match="Pass it by itself"):
            gm.release(data, table.bounds, **BUDGET)
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, privacy_unit="who")
    budget = gm.Budget(ledger=ledger)
    private = gm.release(table, table.bounds, budget=budget, privacy_unit=gm.PrivacyUnit("who", 4))
    assert "all rows with the same who" in str(private.certificate)
    with pytest.raises(ArgumentError, match="may have several rows"):
        private.ols("y").summary(estimand="population", n_rows=400)


def test_wrong_declarations_of_deviations_are_refused():
    for columns in ({}, {"who": (0, 1)}):
        with pytest.raises(ArgumentError, match="columns must not be empty and must not contain the privacy unit"):
            gm.within(panel(), unit="who", columns=columns)
    with pytest.raises(ArgumentTypeError, match="bounds"):
        gm.within(panel(), unit="who", columns={"x": None})
    with pytest.raises(ArgumentError, match="lower < upper"):
        gm.within(panel(), unit="who", columns={"x": (1, 0)})
    with pytest.raises(DataError, match="'nobody'"):
        gm.within(panel(), unit="nobody", columns=BOUNDS)
