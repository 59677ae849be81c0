"""Tables at URLs: the same rows as from local files, each file once, and no credentials in messages."""

from __future__ import annotations

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fsspec.implementations.local import LocalFileSystem

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.moments import Moments
from gaussmix.data.remote import without_password
from gaussmix.data.table import open_table

SCHEMA = {"x": [0, 1], "g": ["a", "b"]}


@pytest.fixture
def store():
    """Files in fsspec's memory: five thousand rows in two Parquet files, an Arrow file and a compressed CSV file."""
    memory = fsspec.filesystem("memory")
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.uniform(0, 1, 5000), "g": rng.choice(["a", "b"], 5000)})
    for name, part in (("a", table.slice(0, 2000)), ("b", table.slice(2000))):
        with memory.open(f"/bucket/visits/{name}.parquet", "wb") as file:
            pq.write_table(part, file)
    with memory.open("/bucket/visits.arrow", "wb") as file:
        pa.feather.write_feather(table, file)
    with memory.open("/bucket/visits.csv.gz", "wb") as file, pa.CompressedOutputStream(file, "gzip") as packed:
        pa.csv.write_csv(table, packed)
    memory.pipe("/bucket/visits/_SUCCESS", b"")
    yield memory, table
    memory.rm("/bucket", recursive=True)


def gram(data):
    return Moments.of(data, SCHEMA).gram()


@pytest.mark.parametrize(
    "url",
    [
        "memory://bucket/visits",
        "memory://bucket/visits/",
        "memory://bucket/visits/*.parquet",
        "memory://bucket/**/*.parquet",
        ["memory://bucket/visits/b.parquet", "memory://bucket/visits/a.parquet"],
        "memory://bucket/visits.arrow",
        "memory://bucket/visits.csv.gz",
    ],
    ids=str,
)
def test_a_url_has_the_rows_of_the_table(store, url):
    assert (gram(url) == gram(store[1])).all()


def test_a_release_in_passes_reads_a_url_again(store):
    private = gm.release("memory://bucket/visits", SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    local = gm.release(store[1], SCHEMA, epsilon=1.0, delta=1e-6, random_state=0)
    assert all(
        (a.matrix == b.matrix).all() for a, b in zip(private.statistic.passes, local.statistic.passes, strict=True)
    )
    assert len(private.statistic.passes) == 4
    assert open_table("memory://bucket/visits").n_rows == 5000


@pytest.mark.parametrize(
    "again", ["memory://bucket/visits/a.parquet", "memory:///bucket/visits/a.parquet", "memory://bucket/visits/a*"]
)
def test_a_file_is_counted_once_whatever_its_url(store, again):
    with pytest.raises(gm.DataError, match=r"same file as .*rows would be double-counted"):
        gram(["memory://bucket/visits/a.parquet", again])


@pytest.mark.parametrize("scheme", ["file://", "FILE://", "file://localhost", "local://"])
def test_a_local_file_and_its_url_are_one_file(tmp_path, store, scheme):
    path, link = tmp_path / "a b.parquet", tmp_path / "link.parquet"
    pq.write_table(store[1], path)
    link.symlink_to(path)
    url = f"{scheme}{tmp_path}/a%20b.parquet"
    assert (gram(url) == gram(store[1])).all()
    for again in (path, link, f"local://{path}", f"file://{link}"):
        with pytest.raises(gm.DataError, match="same file as"):
            gram([url, again])
    before = path.read_bytes()
    with pytest.raises(gm.GaussmixError, match="input"):
        gm.release(url, SCHEMA, epsilon=1.0, delta=1e-6, out=path, force=True)
    assert path.read_bytes() == before
    with pytest.raises(gm.ArgumentError, match="must have an absolute path"):
        gram(f"{scheme.removesuffix('localhost')}data/a.parquet")


@pytest.mark.parametrize("url", ["dir://a.parquet::memory://bucket/visits", "simplecache://a::memory://bucket/visits"])
def test_several_urls_in_one_are_refused(store, url):
    with pytest.raises(gm.ArgumentError, match="consists of several URLs"):
        gram(["memory://bucket/visits/a.parquet", url])


def test_other_schemes_of_local_files_are_refused(store, tmp_path):
    class Mounted(LocalFileSystem):
        protocol = "mounted"

    fsspec.register_implementation("mounted", Mounted, clobber=True)
    pq.write_table(store[1], tmp_path / "a.parquet")
    with pytest.raises(gm.ArgumentError, match="URL of a local file"):
        gram(f"mounted://{tmp_path}/a.parquet")


def test_a_file_that_is_written_again_between_passes_is_an_error(store):
    memory, table = store
    reader = open_table("memory://bucket/visits")
    list(reader.batches(["x"]))
    with memory.open("/bucket/visits/b.parquet", "wb") as file:
        pq.write_table(table.slice(2000), file)  # the same rows, written again
    with pytest.raises(gm.DataError, match="changed"):
        list(reader.batches(["x"]))


@pytest.mark.parametrize(("mark", "kind"), [("_delta_log/0.json", "Delta"), ("metadata/v1.metadata.json", "Iceberg")])
def test_tables_with_versions_are_refused(store, mark, kind):
    store[0].pipe(f"/bucket/visits/{mark}", b"{}")
    for url in ("memory://bucket/visits", "memory://bucket/visits/a.parquet", "memory://bucket/visits/*.parquet"):
        with pytest.raises(gm.ArgumentError, match=kind):
            gram(url)


def test_errors_name_the_url_and_the_remedy(store):
    with pytest.raises(gm.MissingFileError, match=r"memory://bucket/none\.parquet.*does not exist"):
        gram("memory://bucket/none.parquet")
    with pytest.raises(gm.MissingFileError, match="No file of a supported format"):
        gram("memory://bucket/visits/*.json")
    with pytest.raises(gm.ArgumentError, match="unknown scheme"):
        gram("nowhere://bucket/a.parquet")
    store[0].pipe("/bucket/visits/c.parquet", b"not a table")
    with pytest.raises(gm.DataError, match=r"memory://bucket/visits/c\.parquet"):
        gram("memory://bucket/visits")


def test_messages_hold_no_credentials():
    url = "s3://key:secret@bucket/a.parquet?endpoint_override=127.0.0.1:9&scheme=http&region=x"
    assert without_password(url) == "s3://bucket/a.parquet"
    with pytest.raises(gm.DataError, match=r"^s3://bucket/a\.parquet cannot be read\. Check the address") as error:
        gram(url)
    assert "secret" not in str(error.value)
    with pytest.raises(gm.ArgumentError, match=r"^s3://bucket/a\.parquet is not a valid URL"):
        gram(url + "&unknown=1")


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:SE/CRET@bucket/x.parquet",
        "s3://KEY:SE?CRET@bucket/x.parquet",
        "s3://KEY:SE#CRET@bucket/x.parquet",
        "ftp://u:SE@CRET@127.0.0.1:1/x.parquet",
        "memory://bucket/x.parquet#token=SECRET",
        "memory://bucket/x.parquet?token=SE@CRET",
    ],
)
def test_messages_hold_no_part_of_a_credential(url):
    with pytest.raises(gm.GaussmixError) as error:
        gram(url)
    assert not any(word in str(error.value) for word in ("KEY", "SE", "CRET"))


def test_files_of_a_directory_are_named_without_credentials(store):
    store[0].pipe("/key:secret@bucket/visits/c.parquet", b"not a table")
    with pytest.raises(gm.DataError, match=r"memory://bucket/visits/c\.parquet") as error:
        gram("memory://key:secret@bucket/visits")
    assert "secret" not in str(error.value)
    store[0].rm("/key:secret@bucket", recursive=True)


def test_commands_take_urls_and_write_local_files(store, tmp_path):
    schema, out = tmp_path / "schema.json", tmp_path / "r.parquet"
    schema.write_text('{"x": [0, 1], "g": ["a", "b"]}', encoding="utf-8")
    arguments = ["release", "memory://bucket/visits", "-s", str(schema), "-e", "1", "-d", "1e-6", "-o"]
    result = CliRunner().invoke(main, [*arguments, str(out)])
    assert result.exit_code == 0, result.output
    assert gm.load(out).certificate.epsilon == 1
    result = CliRunner().invoke(main, [*arguments, "s3://bucket/r.parquet"])
    assert "outputs must be local files" in result.output
