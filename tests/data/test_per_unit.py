"""One row for each privacy unit: features against pandas, engines against one machine, and the privacy statement."""

from __future__ import annotations

import gc
import itertools
import os
import stat
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.per_unit import parse_feature
from gaussmix.errors import ArgumentError, ArgumentTypeError, DataError, DataTypeError

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
        (lambda: gm.mean("age", bounds=(3, 1)), ArgumentError, "bounds must be increasing"),
        (lambda: gm.mean("age", bounds=3), ArgumentTypeError, "bounds must be a pair"),
        (lambda: gm.mean(3, bounds=(0, 1)), ArgumentTypeError, "column must be the name of a column"),
        (lambda: parse_feature("age"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=median(age)"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=last(age)"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=__import__('os').getcwd()"), ArgumentError, "must be written as name=function"),
        (lambda: parse_feature("age=mean(age, bounds=(2, 1))"), ArgumentError, "bounds must be increasing"),
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
