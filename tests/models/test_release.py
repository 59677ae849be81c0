"""One release, any number of models, one file."""

from __future__ import annotations

import json
import math
import stat

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import gaussmix as gm
from gaussmix.releases import FORMAT, METADATA_KEY
from tables import SCHEMA, patients


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def private(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)


@pytest.fixture(scope="module")
def open_table(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def design(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    parts = []
    for name in columns:
        spec = SCHEMA[name]
        if isinstance(spec, dict):
            parts += [(table[name] == level).astype(float).rename(f"{name}={level}") for level in spec["levels"][1:]]
        else:
            parts.append(table[name].astype(float))
    return pd.concat(parts, axis=1)


@pytest.mark.parametrize(
    ("target", "on"), [("cost", ["age", "bmi", "smoker"]), ("age", ["cost"]), ("smoker", ["cost", "bmi"])]
)
def test_without_noise_every_model_is_least_squares_in_the_users_units(open_table, table, target, on):
    model = open_table.regress(target, on=on)
    exact = LinearRegression().fit(design(table, on), table[target].astype(float))
    assert [model.coef[name] for name in on] == pytest.approx(list(exact.coef_), rel=1e-3)
    assert model.intercept == pytest.approx(exact.intercept_, rel=1e-3, abs=1e-4)
    assert model.predict(table) == pytest.approx(exact.predict(design(table, on)), abs=1e-3)


def test_levels_differ_by_what_dummies_would_show(open_table, table):
    model = open_table.regress("cost")
    others = ["age", "bmi", "sex", "region", "smoker"]
    exact = LinearRegression().fit(design(table, others), table["cost"])
    dummies = dict(zip(design(table, others).columns, exact.coef_, strict=True))
    assert model.coef["sex=m"] - model.coef["sex=f"] == pytest.approx(dummies["sex=m"], abs=1e-3)
    assert model.coef["region=west"] - model.coef["region=north"] == pytest.approx(dummies["region=west"], abs=1e-3)
    assert model.predict(table) == pytest.approx(exact.predict(design(table, others)), abs=1e-3)


def test_one_private_release_serves_many_models(private):
    full = private.regress("cost")
    assert full.coef["age"] == pytest.approx(0.05, abs=0.01)
    assert full.coef["smoker"] == pytest.approx(3, abs=0.4)
    assert full.coef["sex=m"] - full.coef["sex=f"] == pytest.approx(0.5, abs=0.4)
    several = private.regress(["cost", "bmi"], on=["age", "smoker"])
    assert set(several) == {"cost", "bmi"}
    assert several["cost"].coef == private.regress("cost", on=["age", "smoker"]).coef
    assert set(private.regress(["cost", "bmi"])["cost"].coef) == set(full.coef) - {"bmi"}


def test_classification_of_booleans_and_of_two_levels(open_table, private, table):
    logistic = LogisticRegression(C=1e6, max_iter=1000).fit(design(table, ["cost", "age"]), table["smoker"])
    for release, slack in ((open_table, 0.01), (private, 0.05)):
        model = release.classify("smoker", on=["cost", "age"])
        accuracy = np.mean(model.predict(table) == table["smoker"])
        assert accuracy > logistic.score(design(table, ["cost", "age"]), table["smoker"]) - slack - 0.02
    assert np.all((model.predict_proba(table) > 0.5) == model.predict(table))
    sex = open_table.classify("sex", on=["cost", "age", "bmi", "smoker"])
    assert sex.classes == ("f", "m")
    assert sex.coef["cost"] > 0


def test_second_moment_pca_and_rows(private, open_table, table):
    exact = open_table.second_moment()
    assert np.abs(private.second_moment() - exact).max() < 8 * private.entry_noise
    variances, components, names = open_table.pca(["age", "bmi"])
    centred = np.column_stack([(table["age"] - 50) / 50, (table["bmi"] - 30) / 20])
    centred = centred - centred.mean(axis=0)
    assert variances == pytest.approx(np.linalg.eigvalsh(centred.T @ centred)[::-1], rel=1e-3)
    assert components @ components.T == pytest.approx(np.eye(2), abs=1e-12)
    assert names == ("age", "bmi")
    small = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, sketch_size=50, random_state=0)
    rows = small.rows(0)
    assert rows.shape == (50, small.factor.shape[1])
    assert rows.T @ rows == pytest.approx(small.factor.T @ small.factor)


def test_certificate_is_public_and_complete(private):
    certificate = private.certificate
    assert certificate.row_norm == pytest.approx(math.sqrt(7))  # six columns and the intercept
    assert certificate.bounds == gm.Schema.from_(SCHEMA).to_dict()
    assert certificate.parameters["sketch_size"] == 10**6
    assert certificate.time.endswith("+00:00")
    assert private.noise_variance == pytest.approx(certificate.parameters["gamma"] * 7)
    assert "20000" not in json.dumps(certificate.as_dict()).replace("_", "")


# --------------------------------------------------------------------------------------------------------- the file
def test_file_round_trip_and_any_tool(private, tmp_path):
    path = tmp_path / "patients.parquet"
    private.save(path)
    back = gm.load(path)
    assert np.array_equal(back.factor, private.factor)
    assert back.certificate == private.certificate
    assert back.schema == private.schema
    assert back.regress("cost").coef == private.regress("cost").coef
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_size < 50_000
    frame = pd.read_parquet(path)  # ordinary least squares on the rows of the file
    names = ["age", "bmi", "(intercept)"]
    theta = np.linalg.lstsq(frame[names].to_numpy(), frame["cost"].to_numpy(), rcond=None)[0]
    published = private.regress("cost", on=["age", "bmi"], method="published")
    assert published.coef["age"] == pytest.approx(theta[0] * 10 / 50)
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


def rewritten(path, change, *, frame=None):
    table = pq.read_table(path)
    metadata = json.loads(table.schema.metadata[METADATA_KEY])
    change(metadata)
    table = table if frame is None else frame(table)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["certificate"].update(epsilon=0.1), "was edited or is damaged: its checksum does not fit"),
        (lambda m: m.update(noise_variance=0.0), "was edited"),
        (lambda m: m["schema"]["columns"]["age"].update(upper=200), "was edited"),
        (lambda m: m.pop("sha256"), "was edited"),
        (lambda m: m.update(format=FORMAT + 1), "update gaussmix"),
        (lambda m: m.update(format="one"), "is not a release"),
    ],
)
def test_a_file_edited_by_hand_is_refused(private, tmp_path, change, words):
    path = tmp_path / "x.parquet"
    private.save(path)
    rewritten(path, change)
    with pytest.raises(ValueError, match=words):
        gm.load(path)


def forged(path, change):
    """The file with other metadata and a checksum that fits."""
    from gaussmix.releases import _digest

    table = pq.read_table(path)
    metadata = json.loads(table.schema.metadata[METADATA_KEY])
    metadata.pop("sha256")
    change(metadata)
    factor = np.column_stack([column.to_numpy() for column in table.columns])
    metadata["sha256"] = _digest(metadata, factor)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["certificate"].update(epsilon=math.nan),
        lambda m: m["certificate"].update(epsilon=-5),
        lambda m: m["certificate"].update(relation="friends"),
        lambda m: m["certificate"].update(parameters=[]),
        lambda m: m["certificate"].update(conditions="void: x"),
        lambda m: m["certificate"].update(row_norm=1e-3),
        lambda m: m.update(certificate=[]),
        lambda m: m.update(sketch_size=math.inf),
        lambda m: m.update(sketch_size=1),
        lambda m: m.update(sketch_size="7"),
        lambda m: m.update(schema="schema.json"),
    ],
)
def test_a_forged_file_is_refused(private, tmp_path, change):
    path = tmp_path / "x.parquet"
    private.save(path)
    forged(path, change)
    with pytest.raises(ValueError, match="was edited or is damaged"):
        gm.load(path)


def test_other_files_are_refused(private, tmp_path):
    path = tmp_path / "x.parquet"
    with pytest.raises(FileNotFoundError, match="There is no file"):
        gm.load(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a release"):
        gm.load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match="is not a release"):
        gm.load(path)
    private.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is not a release"):
        gm.load(path)
    private.save(path)
    rewritten(path, lambda m: None, frame=lambda t: t.set_column(0, "age", pa.array(np.zeros(t.num_rows))))
    with pytest.raises(ValueError, match="checksum"):
        gm.load(path)


def test_a_failed_write_leaves_nothing(private, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        private.save(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    with pytest.raises(FileNotFoundError, match="make it first"):
        private.save(tmp_path / "nowhere" / "x.parquet")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.regress("weight"), "'weight' is not in the release; it has age"),
        (lambda r: r.regress("cost", on=["weight"]), "'weight' is not in the release"),
        (lambda r: r.regress("cost", on=["cost"]), "cannot explain itself"),
        (lambda r: r.regress("cost", on=["age", "age"]), "names a column twice"),
        (lambda r: r.regress("sex"), "is categorical: use classify"),
        (lambda r: r.classify("region"), "boolean or have two levels"),
        (lambda r: r.classify("age"), "boolean or have two levels"),
        (lambda r: r.regress("cost", method="best"), "method must be one of"),
        (lambda r: r.pca(["weight"]), "'weight' is not in the release"),
    ],
)
def test_bad_questions(private, call, words):
    with pytest.raises(ValueError, match=words):
        call(private)


def test_an_open_release_is_for_its_owner_only(open_table, tmp_path):
    open_table.save(tmp_path / "open.parquet")
    assert stat.S_IMODE((tmp_path / "open.parquet").stat().st_mode) == 0o600
    assert not gm.load(tmp_path / "open.parquet").certificate.is_private


def test_incomplete_rows_are_not_predicted(table):
    schema = {**SCHEMA, "age": {"lower": 0, "upper": 100, "missing": "drop-row"}}
    model = gm.release(table, schema=schema, epsilon=3.0, delta=1e-6, random_state=0).regress("cost", on=["age"])
    with pytest.raises(ValueError, match="cannot be predicted"):
        model.predict({"age": [50.0, math.nan]})


def test_a_string_is_no_list(private):
    with pytest.raises(TypeError, match=r"write on=\['age'\]"):
        private.regress("cost", on="age")
