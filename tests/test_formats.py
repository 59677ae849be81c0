"""Golden files, one of every kind that gaussmix reads, are read with the numbers that they were written with.

`tests/make_golden.py` writes them, and docs/development.md lists them.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
import make_golden
from gaussmix.data import moments
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.ledger import store
from gaussmix.releases import file as release_file
from gaussmix.releases.file import SUFFIX, check_signature
from make_golden import GOLDEN, SCHEMA

PAGE = Path(__file__).parents[1] / "docs" / "development.md"

# Numbers of passes and declared models, ε, and of the second moment of the target: itself, and the intercept.
RELEASES = {
    "passes.parquet": (3, 0, 3.0, 551.7708044525504, -1171.1073071030255),
    "unit.parquet": (3, 0, 3.0, 378.99633431367727, -336.53749139580464),
    "ledger.parquet": (1, 0, 1.0, 552.2623437525864, -1168.565233616696),
    "models.parquet": (3, 3, 3.0, 594.2132726860399, -1259.2521445285063),
    "not_private.parquet": (1, 0, np.inf, 547.6273754241869, -1160.8955641783864),
}
LEDGERS = {"two_entries.ledger": "1156a3186027aa827ef14b149ed83ddbf36dc77fbf25a91e18f7f969a39c98f8"}
MOMENTS = {"rows.moments": None, "unit.moments": PrivacyUnit("person", 5)}
SKETCHES = ("paper.parquet",)  # read in tests/paper/test_sketch.py
SIGNED, KEY = "passes.parquet", "signer.pem"

SCHEMAS = ("schema.json", "schema.toml")


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_read(name):
    passes, models, epsilon, square, product = RELEASES[name]
    stored = json.loads(pq.read_schema(GOLDEN / name).metadata[release_file.METADATA_KEY])
    assert stored["format"] == release_file.FORMAT
    found = gm.load(GOLDEN / name)
    certificate, target = found.certificate, "cost"
    assert certificate.epsilon == epsilon
    assert certificate.privacy_unit == (
        PrivacyUnit("person", 5) if name in ("unit.parquet", "models.parquet") else None
    )
    assert certificate.entry == (name == "ledger.parquet")
    assert not certificate.is_private  # noise from a seed, or none
    assert stored["sha256"] == found.fingerprint
    assert re.fullmatch("[0-9a-f]{64}", found.fingerprint)
    assert (len(found.statistic.passes), len(found.statistic.models)) == (passes, models)
    (at, intercept) = (found.schema.groups[column][0] for column in (target, "(intercept)"))
    assert found.second_moment[at, [at, intercept]] == pytest.approx([square, product], rel=1e-9)
    fitted = [found.ols(target), *([found.logit("smoker ~ age")] if models else [])]
    assert all(np.isfinite(list(model.params.values())).all() for model in fitted)


def test_a_release_without_noise_has_the_coefficients_of_its_rows():
    rows = make_golden.rows(4000)
    age, smoker = np.clip(rows["age"].to_numpy(), 0, 100), rows["smoker"].to_numpy().astype(float)
    X = np.column_stack([age, smoker, np.ones(len(age))])
    slopes = np.linalg.lstsq(X, rows["cost"].to_numpy(), rcond=None)[0][:2]
    found = gm.load(GOLDEN / "not_private.parquet").ols("cost", predictors=["age", "smoker"]).params
    assert list(found.values())[1:] == pytest.approx(slopes, rel=1e-4)  # entries of rows are rounded to 2^-20


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_is_read_and_left_as_it_is(name, tmp_path):
    path = tmp_path / name
    shutil.copyfile(GOLDEN / name, path)
    ledger = gm.Ledger.open(path)
    assert path.read_bytes() == (GOLDEN / name).read_bytes()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (store.FORMAT,)
    connection.close()
    assert ledger.head == LEDGERS[name]
    assert {name: getattr(ledger.reservation, name) for name in make_golden.LEDGER} == make_golden.LEDGER
    first, second = ledger.entries()
    assert (first.note, second.note) == ("first", "second")
    assert (second.mu, second.delta_slack) == (0.05, 1e-12)
    assert ledger.remaining().mu == pytest.approx(0.198790439615278, rel=1e-12)
    certificate = gm.load(GOLDEN / "ledger.parquet").certificate
    assert (certificate.ledger, certificate.release) == (ledger.fingerprint, first.release)
    assert certificate.account.mu == pytest.approx(first.mu, rel=1e-12)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_are_read(name):
    assert b'"format": %d' % moments.FORMAT in (GOLDEN / name).read_bytes()
    found = gm.Moments.load(GOLDEN / name)
    assert found.rows_between(400, 400)
    assert found.unit == MOMENTS[name]
    unit = {} if found.unit is None else make_golden.UNIT
    assert np.array_equal(found.gram(), gm.Moments.of(make_golden.rows(), SCHEMA, **unit).gram())


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_read(name):
    assert gm.Schema.of(GOLDEN / "schemas" / name).fingerprint == gm.Schema.of(SCHEMA).fingerprint


def test_a_signature_is_checked(tmp_path):
    pytest.importorskip("cryptography")
    check_signature((GOLDEN / SIGNED).read_bytes(), GOLDEN / SIGNED, GOLDEN / KEY)
    for file in (SIGNED, f"{SIGNED}{SUFFIX}"):
        shutil.copyfile(GOLDEN / file, tmp_path / file)
    (tmp_path / SIGNED).write_bytes((GOLDEN / SIGNED).read_bytes() + b" ")
    with pytest.raises(gm.DamagedError, match="does not match its signature"):
        check_signature((tmp_path / SIGNED).read_bytes(), tmp_path / SIGNED, GOLDEN / KEY)


def test_golden_files_are_reproducible(tmp_path):
    """Two runs of the script write the same bytes."""
    pytest.importorskip("cryptography")
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        make_golden.write_all(folder)
    written = {path.name for path in (tmp_path / "one").iterdir()}
    assert written == {*RELEASES, *SKETCHES, *LEDGERS, *MOMENTS, KEY, f"{SIGNED}{SUFFIX}", "accounting.json"}
    for name in written:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_every_golden_file_is_read_and_listed():
    """A golden file that nothing reads, or that docs/development.md does not list, fails here."""
    read = {*RELEASES, *SKETCHES, *LEDGERS, *MOMENTS, *SCHEMAS, KEY, f"{SIGNED}{SUFFIX}"}
    kept = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert read == {path.name for path in kept if path.parent != GOLDEN or path.suffix != ".json"}
    assert read <= set(re.findall(r"`([\w.]+)`", PAGE.read_text(encoding="utf-8")))
