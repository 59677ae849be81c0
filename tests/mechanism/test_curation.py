"""From tables, moments and ledgers to releases; sites that add their sums."""

from __future__ import annotations

import math
import stat

import numpy as np
import pytest

import gaussmix as gm
from tables import SCHEMA, patients


def test_budget_and_schema_are_declared_before_anything_is_read():
    def unread():
        raise AssertionError("the rows were read")
        yield

    for arguments, words in [
        ({"schema": SCHEMA}, "Give epsilon and delta"),
        ({"schema": SCHEMA, "epsilon": 1.0}, "Give epsilon and delta"),
        ({"epsilon": 1.0, "delta": 1e-6}, "schema must be declared"),
        ({"schema": SCHEMA, "epsilon": -1.0, "delta": 1e-6}, "epsilon must be"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 0.0}, "delta must lie"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "sketch_size": 3}, "at least the number of encoded columns"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "sketch_size": "big"}, "sketch_size must be one of 'auto'"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "random_state": "x"}, "random_state must be None"),
    ]:
        with pytest.raises(ValueError, match=words):
            gm.release(unread(), **arguments)


def test_replace_one_costs_more_noise():
    table = patients(500)
    one, other = (
        gm.release(table, schema=SCHEMA, epsilon=1.0, delta=1e-6, sketch_size=250, relation=relation)
        for relation in ("zero-out", "replace-one")
    )
    assert 1.25 < other.noise_variance / one.noise_variance < 1.3
    assert other.certificate.relation == "replace-one"


def test_sites_add_their_sums_to_the_last_bit(tmp_path):
    table = patients(3000)
    whole = gm.Moments.from_(table, SCHEMA)
    parts = [gm.Moments.from_(table.iloc[i::3], SCHEMA) for i in range(3)]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.moments")
    assert stat.S_IMODE((tmp_path / "0.moments").stat().st_mode) == 0o600
    assert b"as sensitive as the rows" in (tmp_path / "0.moments").read_bytes()
    loaded = [gm.Moments.load(tmp_path / f"{i}.moments") for i in range(3)]
    merged = loaded[2] + loaded[0] + loaded[1]
    assert np.array_equal(merged.gram(), whole.gram())
    with pytest.raises(ValueError, match="merged twice"):
        merged + gm.Moments.load(tmp_path / "1.moments")
    with pytest.raises(ValueError, match="differently encoded"):
        merged + gm.Moments.from_(table, {**SCHEMA, "age": [0, 120]})
    release = gm.release(merged, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.array_equal(
        release.factor, gm.release(table, schema=SCHEMA, epsilon=1, delta=1e-6, random_state=0).factor
    )


def test_damaged_moments_are_refused(tmp_path):
    path = tmp_path / "site.moments"
    gm.Moments.from_(patients(100), SCHEMA).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged: build it again"):
        gm.Moments.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a file of moments"):
        gm.Moments.load(path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        gm.Moments.load(tmp_path / "none")


def test_a_row_counted_twice_is_protected_half_as_well():
    """Why merging a part twice is refused: the certificate's ε = 1 would be 2.1."""
    gamma = gm.calibrate(1.0, 1e-6, sketch_size=250).gamma
    assert gm.accounting.epsilon(1e-6, sketch_size=250, gamma=gamma / 2) == pytest.approx(2.12, abs=0.01)


def test_releases_from_a_ledger(tmp_path):
    table = patients(500)
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, sketch_rows=1000)
    first = gm.release(table, schema=SCHEMA, ledger=ledger, sketch_size=600, note="first")
    assert (first.certificate.epsilon, first.certificate.delta) == (1.0, 1e-6)
    assert ledger.remaining().sketch_rows == 400
    second = gm.release(table, schema=SCHEMA, ledger=ledger)  # what is left
    assert second.sketch_size == 400
    assert first.noise_variance == second.noise_variance
    with pytest.raises(ValueError, match=r"does not fit|at least"):
        gm.release(table, schema=SCHEMA, ledger=ledger)
    assert len(ledger.entries()) == 2
    with pytest.raises(ValueError, match="leave epsilon and delta out"):
        gm.release(table, schema=SCHEMA, ledger=ledger, epsilon=1.0, delta=1e-6)


def test_infinite_epsilon_is_marked():
    release = gm.release(patients(200), schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    assert not release.certificate.is_private


def test_estimators_spend_from_a_ledger(tmp_path):
    table = patients(500)
    X, y = table[["age", "bmi"]], table["cost"]
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, sketch_rows=1000)
    declared = {"bounds_X": (0, 100), "bounds_y": (0, 20), "ledger": ledger, "sketch_size": 800}
    model = gm.LinearMixing(**declared).fit(X, y)
    assert model.privacy_.parameters["gamma"] == ledger.remaining().gamma
    assert ledger.remaining().sketch_rows == 200
    with pytest.raises(ValueError, match="does not fit"):
        gm.LinearMixing(**declared).fit(X, y)
    gm.LogisticMixing(bounds_X=(0, 100), ledger=ledger).fit(X, table["smoker"])  # what is left
    assert [entry.note for entry in ledger.entries()] == ["LinearMixing", "LogisticMixing"]
    with pytest.raises(ValueError, match="variant='exact'"):
        gm.LinearMixing(**{**declared, "variant": "paper"}).fit(X, y)


@pytest.mark.parametrize("row_norm", [None, 1.2])
def test_batches_encoded_in_place_have_the_moments_of_their_rows(row_norm):
    """Against the rows themselves, shortened one by one and neither rounded nor summed up by the library."""
    table = patients(5000)
    schema = gm.Schema.from_({"columns": SCHEMA, "row_norm": row_norm})
    import pyarrow as pa

    rows = schema.encode(pa.Table.from_pandas(table))
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows * np.minimum(1, schema.norm / lengths)[:, None] / schema.norm
    found = gm.Moments.from_(table, schema).gram()
    assert np.abs(found - rows.T @ rows).max() < 1e-5 * np.abs(found).max()
    one = gm.Moments.from_(table.iloc[:1], schema).gram()
    assert np.trace(one) <= 1  # the norm of one row, exactly


# ------------------------------------------------------------------------------- rows counted once, each by itself
def test_no_file_is_counted_twice_under_any_name(tmp_path, monkeypatch):
    folder = tmp_path / "x" / "y"
    folder.mkdir(parents=True)
    table = patients(300)
    table.to_parquet(folder / "a.parquet")
    once = gm.Moments.from_(folder / "a.parquet", SCHEMA).gram()
    assert np.array_equal(gm.Moments.from_(str(tmp_path / "**" / "**" / "*.parquet"), SCHEMA).gram(), once)
    monkeypatch.chdir(folder)
    for twice in (
        ["a.parquet", "./a.parquet"],
        ["a.parquet", "a.parquet"],
        ["a.parquet", "*.parquet"],
        ["a.parquet", "."],
    ):
        with pytest.raises(ValueError, match="counted twice"):
            gm.Moments.from_(twice, SCHEMA)
    (folder / "b.parquet").symlink_to(folder / "a.parquet")
    with pytest.raises(ValueError, match="same file as"):
        gm.Moments.from_(folder, SCHEMA)
    with pytest.raises(ValueError, match="in the list twice"):
        gm.Moments.from_([table, table], SCHEMA)


def test_a_generator_may_reuse_its_buffer():
    schema = {name: [0, 1] for name in "abcd"}

    def batches():
        buffer = {name: np.zeros(65536) for name in "abcd"}
        for i in range(20):
            for values in buffer.values():
                values.fill(i / 20)
            yield dict(buffer)

    whole = {name: np.repeat(np.arange(20) / 20, 65536) for name in "abcd"}
    assert np.array_equal(gm.Moments.from_(batches(), schema).gram(), gm.Moments.from_(whole, schema).gram())


def test_the_scale_of_one_decimal_does_not_change_another():
    from decimal import Decimal

    schema = {"columns": {"a": [-1, 1]}, "intercept": 0}
    value, n = Decimal("0.99999904632568359375"), 3000
    with_row = gm.Moments.from_({"a": [value] * n + [Decimal(1).scaleb(-21)]}, schema).gram()
    without = gm.Moments.from_({"a": [value] * n}, schema).gram()
    assert abs(with_row - without).max() < 1e-11


def forged(path, **changes):
    """A file of moments with other numbers and a checksum that fits."""
    import hashlib
    import json

    from gaussmix.moments import _MAGIC

    content = path.read_bytes()[len(_MAGIC) + 32 :]
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    body = changes.pop("body", lambda b: b)(body)
    text = json.dumps({**header, **changes}).encode()
    content = len(text).to_bytes(8, "little") + text + body
    path.write_bytes(_MAGIC + hashlib.sha256(content).digest() + content)


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": []},
        {"parts": "abc"},
        {"n": -5},
        {"n": 1},
        {"fingerprint": "0"},
        {"schema": "schema.json"},
        {"body": lambda b: b[:-8]},
        {"body": lambda b: (-np.frombuffer(b, "<i8")).tobytes()},
    ],
    ids=["no id", "a word", "negative", "too few", "fingerprint", "a path", "short", "negative sums"],
)
def test_forged_moments_are_refused(tmp_path, changes):
    path = tmp_path / "site.moments"
    gm.Moments.from_(patients(100), SCHEMA).save(path)
    forged(path, **changes)
    with pytest.raises(ValueError, match="damaged"):
        gm.Moments.load(path)


def test_moments_of_a_newer_format_say_so(tmp_path):
    path = tmp_path / "site.moments"
    gm.Moments.from_(patients(100), SCHEMA).save(path)
    forged(path, format=99)
    with pytest.raises(ValueError, match="newer version"):
        gm.Moments.load(path)


def test_a_ledger_decides_the_relation_and_small_rests_are_not_burnt(tmp_path):
    table = patients(500)
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, sketch_rows=502)
    with pytest.raises(ValueError, match="leave relation out"):
        gm.release(table, schema=SCHEMA, ledger=ledger, relation="replace-one")
    first = gm.release(table, schema=SCHEMA, ledger=ledger, sketch_size=500)
    assert any("all of its releases together" in words for words in first.certificate.conditions)
    with pytest.raises(ValueError, match="does not fit"):
        gm.release(table, schema=SCHEMA, ledger=ledger)  # two rows are left, and the table has ten columns
    assert len(ledger.entries()) == 1
