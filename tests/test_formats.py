"""Files of every format that was ever written are read: those of tests/golden, which docs/formats.md lists."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gaussmix as gm
from gaussmix.ledger import records
from gaussmix.models import release_file
from gaussmix.models.signatures import SUFFIX, check_signature
from gaussmix.tables import moments
from gaussmix.tables.interchange import read_schema
from gaussmix.tables.unit import Unit

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[1] / "docs" / "formats.md"

# By the versions that wrote them: format, ε, and the checksum over everything in the file where it is still the same.
RELEASES = {
    "release_format_1.parquet": (1, 3.0, ""),
    "open_format_1.parquet": (1, np.inf, ""),
    "ledger_format_1.parquet": (1, 1.0, ""),
    "release_format_2.parquet": (2, 3.0, ""),
    "open_format_2.parquet": (2, np.inf, ""),
    "ledger_format_2.parquet": (2, 1.0, ""),
    "release_format_3.parquet": (3, 3.0, "c62d994a7c2a548de82a8e85ebdcc5c488f03cdc21512d6dae25f6f967e31265"),
    "sketch_format_3.parquet": (3, 3.0, "0af6c0e7b66ce033715121a860bee9b57c3e27f14e701fbd3d98defa5498ffcc"),
    "steps_format_3.parquet": (3, 3.0, "c3b3c7a86f4a08899368a87342ef36db2813e7ab3f462e05c1af60f7624630a4"),
    "ledger_format_3.parquet": (3, 1.0, "16d877961153ade129684bda1a7b24664eca51623bddd4a746fa19e72c566aea"),
    "release_format_4.parquet": (4, 3.0, "d95b2799f1cfc29f7dd87c801f74d2d0d136dc918d4f03f4f59909f72f3554b7"),
}
# Format, head (format 1 had none), notes, and what was left: sketch rows, μ.
LEDGERS = {
    "format1.ledger": (1, "", ["first", "second"], 750, 0.08660254037844388),
    "format2.ledger": (
        2,
        "1e72cafcd54ac02e2294613d25b52c11f7659a475f7c4f73c0e35fa4383f4a27",
        ["first", "", "third"],
        850,
        None,
    ),
    "format3.ledger": (
        3,
        "3acf498b3366c96c34a8e2bbd2567e225a95f35f80bf2259e008dd9061beb556",
        [""],
        0,
        0.2049820452674491,
    ),
    "format4.ledger": (
        4,
        "211a8105f76d841f7305d411b9bab3b8ceb77bea843edd46ee4c80d54bf4ddea",
        [""],
        0,
        0.5288445837405309,
    ),
}
MOMENTS = {"format1.moments": 1, "format2.moments": 2, "format3.moments": 3}

SCHEMA = {
    "age": [0, 100],
    "sex": {"levels": ["f", "m"], "unknown": "other"},
    "smoker": "boolean",
    "cost": {"lower": 0, "upper": 20, "missing": "lower"},
}
# What others have no words for, and is an error by default.
PLAIN = {"sex": ["f", "m"], "cost": [0, 20]}
SCHEMAS = {
    "schema.json": {},
    "schema.toml": {},
    "csvw_eo.json": {"cost": [0, 20]},
    "frictionless.json": PLAIN,
    "smartnoise.yaml": PLAIN,
}


def rows(n: int = 400) -> pa.Table:
    """The rows of format2.moments and, with persons, of format3.moments, from whole numbers alone."""
    i = np.arange(n)
    return pa.table(
        {
            "age": (37 * i) % 120,
            "sex": pa.array([("f", "m", "x")[j % 3] for j in i]),
            "smoker": i % 4 == 0,
            "cost": ((13 * i) % 23) / 2,
            "person": pa.array([f"p{j % 80}" for j in i]),
        }
    )


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_read(name):
    version, epsilon, checksum = RELEASES[name]
    stored = json.loads(pq.read_schema(GOLDEN / name).metadata[release_file.METADATA_KEY])
    assert stored["format"] == version
    found = gm.load(GOLDEN / name)
    assert found.certificate.epsilon == epsilon
    assert found.certificate.unit == (Unit("person", 5) if version == 4 else None)
    if checksum:  # and written now, it is the same
        assert stored["sha256"] == found.fingerprint == checksum
    else:
        assert len(found.fingerprint) == len(stored["sha256"]) == 64
    target = "y" if "steps" in name else "cost"
    model = found.classify(target) if "steps" in name else found.regress(target)
    assert np.all(np.isfinite(list(model.coef.values())))


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_is_read_and_rewritten_in_the_newest_format(name, tmp_path):
    version, head, notes, sketch_rows, mu = LEDGERS[name]
    path = tmp_path / name
    shutil.copyfile(GOLDEN / name, path)
    path.chmod(0o600)
    assert user_version(path) == version
    ledger = gm.Ledger.open(path)
    assert user_version(path) == records.FORMAT
    assert [entry.note for entry in ledger.entries()] == notes
    assert ledger.reservation.unit == ("person" if version == 4 else "")
    assert ledger.remaining().sketch_rows == sketch_rows
    if mu is not None:
        assert ledger.remaining().mu == pytest.approx(mu, rel=1e-12)
    if head:
        assert ledger.head == head


def user_version(path: Path) -> int:
    connection = sqlite3.connect(path)
    ((version,),) = connection.execute("PRAGMA user_version")
    connection.close()
    return int(version)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_are_read(name):
    content = (GOLDEN / name).read_bytes()
    assert b'"format": %d' % MOMENTS[name] in content
    found = gm.Moments.load(GOLDEN / name)
    assert found.rows_between(400, 400)
    assert found.unit == (Unit("person", 5) if name == "format3.moments" else None)
    if name != "format1.moments":  # tests/tables/test_moments.py has its rows
        persons = {"unit": "person", "rows_per_unit": 5} if name == "format3.moments" else {}
        assert np.array_equal(found.gram(), gm.Moments.of(rows(), SCHEMA, **persons).gram())


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_read(name):
    if name.endswith(".yaml"):
        pytest.importorskip("yaml")
    found = read_schema(GOLDEN / "schemas" / name)
    assert found.losses == ()
    columns = {**SCHEMA, **SCHEMAS[name]}
    assert gm.Schema.of(found.columns).fingerprint == gm.Schema.of(columns).fingerprint


def test_a_signature_is_checked(tmp_path):
    pytest.importorskip("cryptography")
    name = "release_format_3.parquet"
    check_signature((GOLDEN / name).read_bytes(), GOLDEN / name, GOLDEN / "signer.pem")
    for file in (name, f"{name}{SUFFIX}"):
        shutil.copyfile(GOLDEN / file, tmp_path / file)
    (tmp_path / name).write_bytes((GOLDEN / name).read_bytes() + b" ")
    with pytest.raises(gm.DamagedError, match="is not what was signed"):
        check_signature((tmp_path / name).read_bytes(), tmp_path / name, GOLDEN / "signer.pem")


def test_every_format_has_a_file_and_a_place_on_the_page():
    """A new format without a golden file, or a golden file that nothing reads, fails here."""
    assert {version for version, *_ in RELEASES.values()} == set(range(1, release_file.FORMAT_OF_PERSONS + 1))
    assert {version for version, *_ in LEDGERS.values()} == set(range(1, records.FORMAT + 1))
    assert set(MOMENTS.values()) == set(range(1, moments._WITH_UNIT + 1))
    signed = {"signer.pem", "release_format_3.parquet.sig"}
    read = {*RELEASES, *LEDGERS, *MOMENTS, *SCHEMAS, *signed}
    kept = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert read == {path.name for path in kept if path.parent != GOLDEN or path.suffix != ".json"}
    assert read <= set(re.findall(r"`([\w.]+)`", PAGE.read_text(encoding="utf-8")))
