"""Moments: handed around, merged once, written and read; rows of any table counted once and each by itself."""

import copy
import hashlib
import json
import pickle
import stat
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import gaussmix as gm
from array_tables import SCHEMAS, Y, arrays, same_bits
from encoded_rows import plain_rows
from example_tables import SCHEMA, patients
from gaussmix.data.columns import Vector
from gaussmix.data.moments import _MAGIC, Moments
from gaussmix.data.schema import Schema


# -- a value that is handed around -------------------------------------------------------------------------------
def test_a_part_is_merged_once():
    schema = SCHEMAS["norm"]
    a, b = (Moments.of_arrays([arrays(schema, 10, seed=seed)], schema) for seed in range(2))
    assert a.parts != b.parts
    assert {len(bytes.fromhex(part)) for part in (a + b).parts} == {16}
    for again in (a, b, a + b, pickle.loads(pickle.dumps(a)), copy.deepcopy(b)):
        with pytest.raises(ValueError, match="cannot be merged twice"):
            (a + b) + again


def test_other_encodings_are_not_merged():
    X, y = arrays(SCHEMAS["norm"], 10)
    a = Moments.of_arrays([(X, y)], SCHEMAS["norm"])
    with pytest.raises(ValueError, match="different schemas"):
        a + Moments.of_arrays([(X, y)], Schema({"X": Vector(3, norm=2.6), "y": Y}, intercept=0))
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError):
        a - a


def test_repr_shows_no_numbers_and_pickle_keeps_the_bits():
    schema = SCHEMAS["bounds"]
    sums = Moments.of_arrays([arrays(schema, 12_345)], schema)
    assert repr(sums) == str(sums) == "Moments(5 columns, 1 parts, sensitive: no numbers shown)"
    for back in (pickle.loads(pickle.dumps(sums)), Moments.from_bytes(sums.to_bytes())):
        assert same_bits(sums, back)
        assert back.schema == schema
        assert back.parts == sums.parts
        assert back.row_norm == sums.row_norm == schema.row_norm


def test_rows_are_counted_for_the_curator():
    sums = Moments.of({"x": [1.0, 2.0, 3.0]}, {"x": [0, 5]})
    assert sums.rows_between(3, 3)
    assert sums.rows_between(1)
    assert not sums.rows_between(4)
    assert not sums.rows_between(1, 2)
    sums.expected_rows(3)
    with pytest.raises(ValueError, match="does not have expected_rows=4"):
        sums.expected_rows(4)


# -- files -------------------------------------------------------------------------------------------------------
def test_sites_add_their_sums_to_the_last_bit(tmp_path):
    table = patients(3000)
    whole = Moments.of(table, SCHEMA)
    parts = [Moments.of(table.iloc[i::3], SCHEMA) for i in range(3)]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.moments")
    assert stat.S_IMODE((tmp_path / "0.moments").stat().st_mode) == 0o600
    assert b"as sensitive as the rows" in (tmp_path / "0.moments").read_bytes()
    loaded = [Moments.load(tmp_path / f"{i}.moments") for i in range(3)]
    merged = loaded[2] + loaded[0] + loaded[1]
    assert same_bits(merged, whole)
    with pytest.raises(ValueError, match="merged twice"):
        merged + Moments.load(tmp_path / "1.moments")
    with pytest.raises(ValueError, match="different schemas"):
        merged + Moments.of(table, {**SCHEMA, "age": [0, 120]})
    release = gm.release(merged, epsilon=1.0, delta=1e-6, random_state=0)
    local = gm.release(table, schema=SCHEMA, epsilon=1, delta=1e-6, passes=1, random_state=0)
    assert np.array_equal(release.second_moment, local.second_moment)


def test_sums_by_arrays_and_by_tables_are_merged(tmp_path):
    """One site has arrays, the other a file: one schema, one kind of moments."""
    schema = SCHEMAS["norm, intercept"]
    X, y = arrays(schema, 1000)
    table = pa.table({"X": pa.FixedSizeListArray.from_arrays(pa.array(X[500:].ravel()), 3), "y": y[500:, 0]})
    Moments.of(table, schema).save(tmp_path / "site.moments")
    merged = Moments.of_arrays([(X[:500], y[:500])], schema) + Moments.load(tmp_path / "site.moments")
    assert same_bits(merged, Moments.of_arrays([(X, y)], schema))


def test_a_name_that_promises_another_format_is_refused(tmp_path):
    with pytest.raises(
        gm.errors.OutputError, match=r"has the wrong suffix for a file of moments\. .* that ends in \.moments"
    ):
        Moments.of(patients(100), SCHEMA).save(tmp_path / "site.parquet")
    assert not list(tmp_path.iterdir())


def test_damaged_moments_are_refused(tmp_path):
    path = tmp_path / "site.moments"
    Moments.of(patients(100), SCHEMA).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged\. Build it again"):
        Moments.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a file of moments"):
        Moments.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Moments.load(tmp_path / "none")


def forged(path, **changes):
    """A file of moments with other numbers and a checksum that fits."""
    text, body = parts_of(path)
    body = changes.pop("body", lambda b: b)(body)
    write_forged(path, json.dumps({**json.loads(text), **changes}).encode(), body)


def parts_of(path):
    """The JSON header and the numbers of a file of moments."""
    content = path.read_bytes()[len(_MAGIC) + 32 :]
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


def write_forged(path, text, body):
    content = len(text).to_bytes(8, "little") + text + body
    path.write_bytes(_MAGIC + hashlib.sha256(content).digest() + content)


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": []},
        {"parts": "abc"},
        {"n": -5},
        {"n": 1},
        {"n": 100.0},
        {"fingerprint": "0"},
        {"schema": "schema.json"},
        {"schema": [1]},
        {"format": "1"},
        {"format": True},
        {"unit": "person"},
        {"unit": {}},
        {"added": 1},
        {"body": lambda b: b[:-8]},
        {"body": lambda b: (-np.frombuffer(b, "<i8")).tobytes()},
    ],
    ids=[
        "no id", "a word", "negative", "too few", "a float", "fingerprint", "a path", "a list", "format as text",
        "format is true", "unit as text", "empty unit", "unknown key", "short", "negative sums",
    ],
)  # fmt: skip
def test_forged_moments_are_refused(tmp_path, changes):
    path = tmp_path / "site.moments"
    Moments.of(patients(100), SCHEMA).save(path)
    forged(path, **changes)
    with pytest.raises(gm.DamagedError, match="damaged"):
        Moments.load(path)


@pytest.mark.parametrize("key", [b'"n"', b'"upper"'])
def test_a_key_that_occurs_twice_is_refused(tmp_path, key):
    path = tmp_path / "site.moments"
    Moments.of(patients(100), SCHEMA).save(path)
    text, body = parts_of(path)
    twice = text.replace(key, key + b": 1, " + key, 1)
    assert json.loads(twice) == json.loads(text)
    write_forged(path, twice, body)
    with pytest.raises(gm.DamagedError, match="is damaged"):
        Moments.load(path)


@pytest.mark.parametrize("number", [-1, 0, 2, 3])
def test_another_format_is_refused(tmp_path, number):
    path = tmp_path / "site.moments"
    Moments.of(patients(100), SCHEMA).save(path)
    forged(path, format=number)
    with pytest.raises(gm.DamagedError, match=f"has format {number}, and this version of gaussmix reads format 1"):
        Moments.load(path)


# -- rows counted once, each by itself ---------------------------------------------------------------------------
@pytest.mark.parametrize("max_row_norm", [None, 1.2])
def test_batches_encoded_in_place_have_the_moments_of_their_rows(max_row_norm):
    """Against the rows themselves, shortened one by one and neither rounded nor summed up by the library."""
    table = patients(5000)
    schema = Schema.of({"columns": SCHEMA, "max_row_norm": max_row_norm})
    rows = plain_rows(schema, pa.Table.from_pandas(table))
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows * np.minimum(1, schema.row_norm / lengths)[:, None] / schema.row_norm
    found = Moments.of(table, schema).gram()
    assert np.abs(found - rows.T @ rows).max() < 1e-5 * np.abs(found).max()
    one = Moments.of(table.iloc[:1], schema).gram()
    assert np.trace(one) <= 1  # the norm of one row, exactly


def test_no_file_is_counted_twice_under_any_name(tmp_path, monkeypatch):
    folder = tmp_path / "x" / "y"
    folder.mkdir(parents=True)
    table = patients(300)
    table.to_parquet(folder / "a.parquet")
    once = Moments.of(folder / "a.parquet", SCHEMA).gram()
    assert np.array_equal(Moments.of(str(tmp_path / "**" / "**" / "*.parquet"), SCHEMA).gram(), once)
    monkeypatch.chdir(folder)
    for twice in (
        ["a.parquet", "./a.parquet"],
        ["a.parquet", "a.parquet"],
        ["a.parquet", "*.parquet"],
        ["a.parquet", "."],
    ):
        with pytest.raises(ValueError, match="double-counted"):
            Moments.of(twice, SCHEMA)
    (folder / "b.parquet").symlink_to(folder / "a.parquet")
    with pytest.raises(ValueError, match="same file as"):
        Moments.of(folder, SCHEMA)
    with pytest.raises(ValueError, match="Duplicate input table"):
        Moments.of([table, table], SCHEMA)


def test_a_generator_may_reuse_its_buffer():
    schema = {name: [0, 1] for name in "abcd"}

    def batches():
        buffer = {name: np.zeros(65536) for name in "abcd"}
        for i in range(20):
            for values in buffer.values():
                values.fill(i / 20)
            yield dict(buffer)

    whole = {name: np.repeat(np.arange(20) / 20, 65536) for name in "abcd"}
    assert np.array_equal(Moments.of(batches(), schema).gram(), Moments.of(whole, schema).gram())


def test_the_scale_of_one_decimal_does_not_change_another():
    schema = {"columns": {"a": [-1, 1]}, "intercept": 0}
    value, n = Decimal("0.99999904632568359375"), 3000
    with_row = Moments.of({"a": [value] * n + [Decimal(1).scaleb(-21)]}, schema).gram()
    without = Moments.of({"a": [value] * n}, schema).gram()
    assert abs(with_row - without).max() < 1e-11
