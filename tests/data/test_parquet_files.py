"""Parquet and Arrow: damaged, encrypted and odd files are errors, and memory follows batches."""

import base64
import concurrent.futures.thread
import gc
import json
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from encoded_rows import plain_rows
from gaussmix.data.moments import Moments
from gaussmix.data.readers import ahead
from gaussmix.data.schema import Schema
from gaussmix.data.table import open_table

SCHEMA = {"x": [0, 1], "s": {"levels": ["a", "b"]}}
TABLE = pa.table({"x": [0.5, 0.25], "s": ["a", "b"], "other": [1.0, 2.0]})

READ = """
import sys
from gaussmix.data.moments import Moments
from gaussmix.data.table import open_table
path = sys.argv[1]
open_table(path).n_rows
try:
    open_table(path).schema()
    Moments.of(path, {"x": [0, 1], "s": {"levels": ["a", "b"]}})
except (ValueError, TypeError, OSError) as error:
    assert not type(error).__module__.startswith("pyarrow")
    print("refused", error)
else:
    print("accepted")
"""


def read_apart(path):
    """In a process of its own, which must not abort."""
    found = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


class Keys(pe.KmsClient):
    """Keys that wrap nothing, for the test."""

    def __init__(self, configuration):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key, master):
        return base64.b64encode(key)

    def unwrap_key(self, wrapped, master):
        return base64.b64decode(wrapped)


@pytest.mark.slow
@pytest.mark.parametrize("plaintext_footer", [True, False])
@pytest.mark.parametrize("secret", ["x", "other"])
def test_encrypted_columns(tmp_path, plaintext_footer, secret):
    """A column that is encrypted and asked for cannot be read; one that is not asked for does no harm."""
    factory = pe.CryptoFactory(Keys)
    configuration = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": [secret]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    path = tmp_path / "t.parquet"
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)
    answer = read_apart(path)
    assert answer.startswith("accepted" if plaintext_footer and secret == "other" else "refused")


def test_damaged_footers(tmp_path):
    """Every byte of the footer, statistics included."""
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    script = (
        READ.split("path = sys.argv[1]")[0]
        + "import pathlib\nfor path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
    )
    script += "".join("    " + line + "\n" for line in READ.split("path = sys.argv[1]\n")[1].splitlines())
    folder = tmp_path / "damaged"
    folder.mkdir()
    for place in range(len(whole) - 8 - footer, len(whole) - 8):
        damaged = bytearray(whole)
        damaged[place] = 0 if damaged[place] else 0xFF
        (folder / f"{place:06d}.parquet").write_bytes(damaged)
    found = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) == len(list(folder.iterdir()))


def test_a_page_that_claims_to_be_large(tmp_path):
    """Its header, in Thrift's compact form, says 2 GB: an error at once, and without 2 GB."""
    path = tmp_path / "t.parquet"
    numbers = pa.table({"a": np.random.default_rng(0).random(100), "s": ["x"] * 100})
    pq.write_table(numbers, path, compression="none", use_dictionary=False, write_statistics=False)
    start = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    whole = path.read_bytes()
    assert whole[start : start + 3] == b"\x15\x00\x15"  # type of the page, then its size, then its compressed size
    sizes = whole.index(b"\x15", start + 5)
    path.write_bytes(whole[: start + 3] + b"\xea\xff\xff\xff\x0f\x15\xea\xff\xff\xff\x0f" + whole[sizes + 3 :])
    script = READ.replace('"x": [0, 1], "s": {"levels": ["a", "b"]}', '"a": [0, 1]')
    script += MEMORY.splitlines()[1] + "\n" + MEMORY.splitlines()[-1]
    found = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("refused")
    assert int(found.stdout.split()[-1]) / 1024 < 600


def dictionary(indices, values=("a", "b")):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values), safe=False)


@pytest.mark.parametrize("index", [2, 100, -1])
def test_indices_beyond_the_dictionary(index):
    broken = pa.table({"x": [0.5, 0.5], "s": dictionary([0, index])})
    for data in (
        broken,
        broken.to_batches()[0],
        broken.to_reader(),
        {"x": np.zeros(2), "s": broken["s"]},
        ds.dataset(broken),
    ):
        with pytest.raises(ValueError, match="cannot be read"):
            Moments.of(data, SCHEMA)
    with pytest.raises(ValueError, match="dictionary indices beyond the end of its dictionary"):
        plain_rows(Schema.of(SCHEMA), broken)


def test_text_that_is_not_text():
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(ValueError, match="cannot be read"):
        Moments.of(pa.table({"x": [0.5], "s": damaged}), SCHEMA)


@pytest.mark.parametrize("rule", ["error", "drop-row", "level"])
def test_views_of_text(rule):
    schema = {"x": [0, 1], "s": {"levels": ["a", "b"], "missing": rule}}
    values = ["a", "b"] if rule == "error" else ["a", None]
    plain, views = (
        pa.table({"x": [0.5, 0.1], "s": pa.array(values, kind)}) for kind in (pa.string(), pa.string_view())
    )
    coded = plain.set_column(1, "s", dictionary([0, 1] if rule == "error" else [0, None]))
    coded_views = pa.DictionaryArray.from_arrays(coded["s"].chunk(0).indices, pa.array(["a", "b"], pa.string_view()))
    expected = Moments.of(plain, schema).gram()
    for data in (views, coded, coded.set_column(1, "s", coded_views), views.to_reader()):
        np.testing.assert_array_equal(Moments.of(data, schema).gram(), expected)


def test_damaged_streams_are_refused():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    whole = sink.getvalue().to_pybytes()
    with pytest.raises(ValueError, match="cannot be read"):
        Moments.of(pa.ipc.open_stream(whole[: len(whole) - 60]), SCHEMA)


MEMORY = r"""
import json, re, sys
from gaussmix.data.moments import Moments
Moments.of(sys.argv[1], json.loads(sys.argv[2]))
print(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])  # ru_maxrss may be the parent's
"""


def peak(path, schema=None):
    declared = json.dumps(schema or {"a": [0, 9], "s": {"levels": ["x", "y"], "unknown": "other"}})
    command = [sys.executable, "-c", MEMORY, str(path), declared]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(answer.stdout) / 1024


def test_memory_follows_batches_and_not_row_groups(tmp_path):
    """Few values in one row group: few MB of file are 240 MB of numbers and 150 MB of text."""
    n, rng = 30_000_000, np.random.default_rng(0)
    text = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 2, n), pa.int8()), pa.array(["x", "y"]))
    table = pa.table({"a": pa.array(rng.integers(0, 2, n).astype(float)), "s": text.cast(pa.string())})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=n)
    pq.write_table(table.slice(0, 1000), tmp_path / "small.parquet")
    assert pq.ParquetFile(tmp_path / "large.parquet").num_row_groups == 1
    assert peak(tmp_path / "large.parquet") - peak(tmp_path / "small.parquet") < 100


def test_memory_follows_the_declared_size_of_vectors(tmp_path):
    """320 MB of equal numbers in a small file, whose one row group would take 850 MB if it were read whole."""
    values = pa.DictionaryArray.from_arrays(np.zeros(40_000_000, np.int8), pa.array([0.5])).dictionary_decode()
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 1000)})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=40_000)
    pq.write_table(table.slice(0, 1000), tmp_path / "small.parquet")
    assert (tmp_path / "large.parquet").stat().st_size < 2**20
    schema = {"v": {"size": 1000, "norm": 1.0}}
    assert peak(tmp_path / "large.parquet", schema) - peak(tmp_path / "small.parquet", schema) < 400


def test_a_long_text_is_in_memory_once(tmp_path):
    """A text of 512 kB in each of 1,000 rows is a file of 512 kB."""
    text = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int8), pa.array(["x" * 2**19]))
    table = pa.table({"a": np.zeros(1000), "s": text})
    pq.write_table(table, tmp_path / "long.parquet", store_schema=False)
    pq.write_table(table.slice(0, 1), tmp_path / "short.parquet", store_schema=False)
    assert open_table(tmp_path / "long.parquet").schema().field("s").type == pa.string()
    assert peak(tmp_path / "long.parquet") - peak(tmp_path / "short.parquet") < 100


def test_metadata_is_known_without_rows(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    assert open_table(path).n_rows == 2
    assert open_table(path).schema().names == ["x", "s", "other"]


def test_what_was_abandoned_may_be_collected_while_a_task_is_submitted(monkeypatch):
    """A pool takes tasks under a lock of all pools, in whose thread the garbage collector may run."""
    closed = threading.Event()
    threads = []

    def decoded():
        threads.append(threading.get_ident())
        try:
            yield 1
            yield 2
        finally:
            threads.append(threading.get_ident())
            closed.set()

    found = ahead(decoded())
    assert next(found) == 1

    def abandon():
        with concurrent.futures.thread._global_shutdown_lock:  # as within submit
            found.close()

    other = threading.Thread(target=abandon, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()
    assert closed.wait(10)
    assert threads[0] == threads[1]


def test_what_was_abandoned_may_be_collected_in_the_thread_that_reads_ahead(monkeypatch):
    """An error keeps its frames in a cycle, which the garbage collector finds in whatever thread it runs."""
    abandoned, collected, faults = threading.Event(), threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", faults.append)

    def decoded():
        yield 1
        abandoned.wait(10)
        gc.collect()
        collected.set()
        yield 2

    gc.disable()
    try:
        found = ahead(decoded())
        assert next(found) == 1
        cycle = [found]
        cycle.append(cycle)
        del found, cycle
        abandoned.set()
        assert collected.wait(10)
    finally:
        gc.enable()
    assert faults == []
