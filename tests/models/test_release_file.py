"""The file of a release: any tool reads it, no change of it goes unseen, no claim in it is believed."""

from __future__ import annotations

import copy
import json
import math
import random
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.accounting.discrete import lattice_delta
from gaussmix.releases.file import FORMAT, METADATA_KEY, _checked, _contents, release_id
from release_files import assert_no_mutated_file_is_believed, forged, metadata_of, remade, rewritten


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def private(table) -> gm.Release:
    return gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, passes=1, random_state=0)


@pytest.fixture
def path(private, tmp_path) -> Path:
    private.save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_file_round_trip_and_any_tool(private, tmp_path):
    path = tmp_path / "patients.parquet"
    private.save(path)
    back = gm.load(path)
    assert np.array_equal(back.statistic.passes[0].matrix, private.statistic.passes[0].matrix)
    assert back.statistic.passes[0].mu == private.statistic.passes[0].mu
    assert back.certificate == private.certificate
    assert back.schema == private.schema
    assert back.predictor("cost").coef == private.predictor("cost").coef
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_size < 50_000
    assert path.read_bytes() == private.to_bytes()
    assert release_id(path) == private.certificate.release
    assert metadata_of(path)["sha256"] == private.fingerprint == back.fingerprint
    frame = pd.read_parquet(path)
    moment = frame[frame["block"] == "G"].drop(columns="block").to_numpy()
    assert np.array_equal(moment, private.second_moment)
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["certificate"].update(epsilon=0.1), "was edited or is damaged: its checksum does not match"),
        (lambda m: m["passes"][0].update(mu=9.0), "was edited"),
        (lambda m: m["certificate"]["schema"]["columns"]["age"].update(upper=200), "was edited"),
        (lambda m: m.pop("sha256"), "was edited"),
        (lambda m: m.update(format=FORMAT + 1), "has format 2, and this version of gaussmix reads format 1"),
        (lambda m: m.update(format=0), "has format 0, and this version of gaussmix reads format 1"),
        (lambda m: m.update(format="one"), "is not a gaussmix release"),
        (lambda m: m.update(format=True), "is not a gaussmix release"),
    ],
)
def test_a_file_edited_by_hand_is_refused(path, change, words):
    rewritten(path, change)
    with pytest.raises(gm.DamagedError, match=words):
        gm.load(path)


def account(m):
    return m["certificate"]["account"]


# Not well-formed: no claim could be computed anew.
MALFORMED = {
    "epsilon is no number": lambda m: m["certificate"].update(epsilon=math.nan),
    "negative epsilon": lambda m: m["certificate"].update(epsilon=-5),
    "unknown relation": lambda m: m["certificate"].update(neighbours="friends"),
    "account": lambda m: m["certificate"].update(account=[]),
    "conditions": lambda m: m["certificate"].update(conditions="void: x"),
    "condition": lambda m: m["certificate"].update(conditions=[{"void": "no", "text": "x"}]),
    "certificate": lambda m: m.update(certificate=[]),
    "no passes": lambda m: m.pop("passes"),
    "noise in letters": lambda m: m["passes"][0].update(mu="7"),
    "noise is true": lambda m: m["passes"][0].update(mu=True),
    "schema is a path": lambda m: m["certificate"].update(schema="schema.json"),
    "no columns": lambda m: m["certificate"].update(schema={}),
    "another column": lambda m: m["certificate"]["schema"]["columns"].update(extra=[0, 1]),
    "name of the release": lambda m: m["certificate"].update(release="../x"),
    "no account": lambda m: m["certificate"].pop("account"),
    "no conditions": lambda m: m["certificate"].pop("conditions"),
    "unknown mechanism": lambda m: account(m).update(mechanism="SheffetMixing"),
    "parameters of another mechanism": lambda m: account(m).update(mechanism="AdaSSP"),
    "no mu": lambda m: account(m).pop("mu"),
    "mu in letters": lambda m: account(m).update(mu="large"),
    "unknown key": lambda m: m.update(added=1),
    "unknown key of the certificate": lambda m: m["certificate"].update(added=1),
    "unknown key of the account": lambda m: account(m).update(added=1),
    "no unit": lambda m: m["certificate"].pop("privacy_unit"),
    "no ledger": lambda m: m["certificate"].pop("ledger"),
    "no entry": lambda m: m["certificate"].pop("entry"),
    "no name of the release": lambda m: m["certificate"].pop("release"),
    "empty name of the release": lambda m: m["certificate"].update(release=""),
    "account without its analysis": lambda m: m["certificate"].update(account={"mechanism": "none"}),
    "bound of a row under another name": lambda m: m["certificate"]["schema"].update(row_norm=1.0),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_file_is_refused(path, what):
    forged(path, MALFORMED[what])
    with pytest.raises(gm.DamagedError, match="was edited or is damaged"):
        gm.load(path)


# A checksum that fits makes no claim true. Every number that the guarantee rests on, changed by itself and together.
def claimed(m, **values):
    m["certificate"].update(values)
    account(m).update(values)


def raised(m, factor=2.0):
    account(m)["mu"] *= factor
    account(m)["noise_mu"] = [mu * factor for mu in account(m)["noise_mu"]]
    m["passes"][0]["mu"] *= factor


NO_NOISE = {"mechanism": "none", "analysis": "none"}
CLAIMS = {
    "epsilon": lambda m: m["certificate"].update(epsilon=2.9),
    "epsilon, both": lambda m: claimed(m, epsilon=2.9),
    "delta": lambda m: m["certificate"].update(delta=9e-7),
    "delta, both": lambda m: claimed(m, delta=9e-7),
    "neighbours": lambda m: m["certificate"].update(neighbours="replace-one"),
    "relation, both": lambda m: claimed(m, neighbours="replace-one"),
    "mu of the account": lambda m: account(m).update(mu=account(m)["mu"] / 2),
    "mu, all": raised,
    "void taken out": lambda m: m["certificate"].update(conditions=[]),
    "void made a condition": lambda m: m["certificate"]["conditions"][0].update(void=False),
    "no protection, finite epsilon": lambda m: m["certificate"].update(account=NO_NOISE),
    "infinite epsilon, no word of it": lambda m: (
        m["certificate"].update(account=NO_NOISE, epsilon=math.inf, conditions=[]),
    ),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_forged_claim_is_refused(path, what):
    forged(path, CLAIMS[what])
    with pytest.raises(gm.NotPrivateError, match="was edited or is damaged"):
        gm.load(path)


def test_a_weaker_claim_is_true(path):
    forged(path, lambda m: claimed(m, epsilon=3.5))
    assert gm.load(path).certificate.epsilon == 3.5


@pytest.mark.parametrize("key", [b'"epsilon"', b'"certificate"', b'"mu"', b'"upper"'])
def test_a_key_that_occurs_twice_is_refused(path, key):
    """Readers differ in which of two values they take: the checksum would be that of the last."""
    table = pq.read_table(path)
    text = table.schema.metadata[METADATA_KEY]
    twice = text.replace(key, key + b": 0.1, " + key, 1)
    assert json.loads(twice) == json.loads(text)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: twice}), path)
    with pytest.raises(gm.DamagedError, match="is damaged"):
        gm.load(path)
    with pytest.raises(gm.DamagedError, match="is damaged"):
        release_id(path)


# ------------------------------------------------------------------------------------------------------------- fuzz
@pytest.mark.slow
def test_five_hundred_mutated_files(path):
    assert_no_mutated_file_is_believed(path)


def test_five_hundred_forged_metadata(path):
    """Numbers in the metadata changed at random, the checksum remade: no claim that is less than true is accepted."""
    rng = random.Random(1)
    original, names, blocks = _contents(path.read_bytes(), path)
    gm.Release(*_checked(copy.deepcopy(original), names, blocks))
    accepted = 0
    for _ in range(500):
        stored = copy.deepcopy(original)
        for _ in range(rng.choice([1, 1, 2, 3])):
            change_a_number(stored, rng)
        try:
            found = gm.Release(*_checked(remade(stored, blocks), names, blocks))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
        accepted += 1
        certificate = found.certificate
        if math.isinf(certificate.epsilon):
            assert not certificate.is_private
            continue
        account = certificate.account
        spent = lattice_delta(certificate.epsilon, mu=account.mu, slack=account.slack)
        assert spent <= certificate.delta * (1 + 1e-10)
        assert math.hypot(*account.noise_mu) <= account.mu * (1 + 1e-15)
        assert found.statistic.passes[0].mu == account.noise_mu[0]
    assert accepted < 250


def change_a_number(stored, rng):
    certificate = stored["certificate"]
    parameters = certificate["account"]
    places = [(stored["passes"][0], key) for key in ("mu", "rate")]
    places += [(certificate, key) for key in ("epsilon", "delta", "neighbours", "conditions", "schema")]
    places += [(parameters, key) for key in parameters]
    holder, key = rng.choice(places)
    old = holder.get(key)
    values = [0, 1, -1, 0.5, 1e300, math.inf, math.nan, None, "x", [], {}, True, 2**70]
    if isinstance(old, int | float):
        values += [old * factor for factor in (0.5, 0.999999, 1.000001, 2)] * 3
    holder[key] = rng.choice(values)


def test_a_file_that_unpacks_to_gigabytes_is_refused_by_its_counts(tmp_path):
    """A million rows of one repeated number in a few kilobytes, more columns than rows, other types, no row groups."""
    path = tmp_path / "x.parquet"
    metadata = {METADATA_KEY: b"{}"}
    for table in (
        pa.table({"a": np.zeros(10**6)}),
        pa.table({"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros(2)}),
        pa.table({"a": np.zeros(1, np.float32)}),
        pa.table({"a": [[0.0]]}),
        pa.table({"block": ["G"] * 10**6, "a": np.zeros(10**6)}),
        pa.table({"block": ["G", "G", "G"], "a": np.zeros(3), "b": np.zeros(3)}),
        pa.table({"block": [1], "a": np.zeros(1)}),
        pa.table({"a": np.zeros(0)}),
    ):
        pq.write_table(table.replace_schema_metadata(metadata), path)
        read = pq.ParquetFile.read
        try:
            pq.ParquetFile.read = lambda *_, **__: pytest.fail("unpacked before its counts were checked")
            with pytest.raises(gm.DamagedError, match="is not a gaussmix release"):
                gm.load(path)
        finally:
            pq.ParquetFile.read = read
    path.write_bytes(b"PAR1" + b"\0" * 100 + (2**31).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(gm.DamagedError, match="is not a gaussmix release"):
        gm.load(path)


NO_RELEASE = r"is not a gaussmix release\. Make one from a table first: `gaussmix release TABLE "


def test_other_files_are_refused(private, tmp_path):
    path = tmp_path / "x.parquet"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        gm.load(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(gm.DamagedError, match=NO_RELEASE):
        gm.load(path)
    tables = [{"a": [1]}, {"a": [1.0]}, {"a": [1.0, 2.0], "b": [1.0, 2.0]}, {"a": ["x"], "b": [1.0]}]
    for frame in map(pd.DataFrame, tables):  # as pandas writes them, with metadata of its own, and without any
        for table in (pa.Table.from_pandas(frame), pa.table(frame.to_dict("list"))):
            pq.write_table(table, path)
            with pytest.raises(gm.DamagedError, match=NO_RELEASE):
                gm.load(path)
    path.unlink()
    private.save(path)
    content = path.read_bytes()
    for length in (0, 2, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(gm.DamagedError, match="is not a gaussmix release, or it is damaged"):
            gm.load(path)
    path.write_bytes(content)
    rewritten(path, lambda m: None, frame=lambda t: t.set_column(1, "age", pa.array(np.zeros(t.num_rows))))
    with pytest.raises(ValueError, match="checksum"):
        gm.load(path)


def test_a_failed_write_leaves_nothing(private, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        private.save(path, force=True)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    with pytest.raises(FileNotFoundError, match="Create it first"):
        private.save(tmp_path / "nowhere" / "x.parquet")


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.JSON", "x.feather", "x.moments"])
def test_a_name_that_promises_another_format_is_refused(private, tmp_path, name):
    with pytest.raises(gm.errors.OutputError, match=r"suffix for a Parquet file .* a name that ends in \.parquet\."):
        private.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x", "x.pq", "x.csv.parquet", "x.PARQUET", "x.release", "2024.05"])
def test_a_name_that_promises_none_is_taken(private, tmp_path, name):
    private.save(tmp_path / name)
    assert gm.load(tmp_path / name).fingerprint == private.fingerprint


def test_a_file_is_replaced_by_force_only(private, tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"old")
    with pytest.raises(gm.errors.OutputExistsError, match="exists already"):
        private.save(path)
    assert path.read_bytes() == b"old"
    private.save(path, force=True)
    assert gm.load(path).fingerprint == private.fingerprint


def test_an_open_release_is_for_its_owner_only(table, tmp_path):
    gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6).save(tmp_path / "open.parquet")
    assert stat.S_IMODE((tmp_path / "open.parquet").stat().st_mode) == 0o600
    assert not gm.load(tmp_path / "open.parquet").certificate.is_private
