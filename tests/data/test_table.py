"""Sources: the same rows from everything that holds a table; only the columns asked for; errors without values."""

import array
import gc
import gzip
import io
import subprocess
import sys
import warnings

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import gaussmix as gm
from gaussmix.data import table as table_module
from gaussmix.data.check import check_table
from gaussmix.data.engines import DuckDBQuery
from gaussmix.data.gram import Gram, aggregate_batches
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema
from gaussmix.data.source import CsvOptions, ReadOptions, Seen, Table, row_digests, with_progress
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentError, DataError, MissingFileError, OutputError

SECRET = "secret"  # no message may hold it
COLUMNS = ["b", "s", "a"]
N = 1000
TYPES = {"a": pa.float64(), "b": pa.int64(), "s": pa.string()}


def batches(data, columns, *, types=TYPES, csv=None, batch_rows=None):
    return open_table(data, ReadOptions(csv=csv)).batches(columns, types=types, batch_rows=batch_rows)


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": rng.uniform(-1, 1, n),
            "unused": [SECRET] * n,
            "b": rng.integers(0, 10, n),
            "s": [("x", "y", "z")[i] for i in rng.integers(0, 3, n)],
        }
    )


TABLE = make_table()
SCHEMA = Schema.of({"b": [0, 10], "s": {"levels": ["x", "y", "z"]}, "a": [-1, 1]})


class OnlyStream:
    """An object that nothing is known of but Arrow's protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self):
        return self.table.schema.__arrow_c_schema__()


def structured():
    columns = {name: TABLE[name].to_numpy() for name in ("a", "b")} | {"s": np.array(TABLE["s"].to_pylist(), "U1")}
    array = np.empty(N, dtype=[(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        array[name] = values
    return array


def duckdb_file(folder):
    path = folder / "table.duckdb"
    if not path.exists():
        with duckdb.connect(str(path)) as connection:
            connection.register("source", TABLE)
            connection.execute("create table people as select * from source")
    return path


def parquet_file(folder):
    pq.write_table(TABLE, folder / "t.parquet", row_group_size=300)
    return folder / "t.parquet"


def csv_file(folder, name="t.csv"):
    pa.csv.write_csv(TABLE, folder / name)
    return folder / name


def gzipped(folder):
    with gzip.open(folder / "t.csv.gz", "wb") as file:
        pa.csv.write_csv(TABLE, file)
    return folder / "t.csv.gz"


def tab_separated(folder):
    TABLE.to_pandas().to_csv(folder / "t.tsv", sep="\t", index=False)
    return folder / "t.tsv"


def several(folder, write, suffix):
    """Three parts, whose sorted order is that of the rows."""
    (folder / "parts" / "deep").mkdir(parents=True)
    for name, start, stop in (("p1", 500, N), ("p0", 100, 500), ("deep/p2", 0, 100)):
        write(TABLE.slice(start, stop - start), folder / "parts" / f"{name}{suffix}")
    (folder / "parts" / "_SUCCESS").write_text("")
    (folder / "parts" / ".hidden.parquet").write_text(SECRET)
    return folder / "parts"


SOURCES = {
    "dictionary of arrays": lambda _: {name: TABLE[name].to_numpy(zero_copy_only=False) for name in TABLE.column_names},
    "dictionary of lists": lambda _: TABLE.to_pydict(),
    "structured array": lambda _: structured(),
    "object array": lambda _: (
        np.column_stack([np.array(TABLE[name].to_pylist(), object) for name in COLUMNS]),
        COLUMNS,
    ),
    "pandas": lambda _: TABLE.to_pandas(),
    "pandas, index": lambda _: TABLE.to_pandas().set_index(np.arange(N)[::-1] * 3),
    "pandas, categories": lambda _: TABLE.to_pandas().astype({"s": "category"}),
    "pandas, objects": lambda _: TABLE.to_pandas().astype({"s": object}),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars, categories": lambda _: pl.from_arrow(TABLE).with_columns(pl.col("s").cast(pl.Categorical)),
    "polars, lazy": lambda _: pl.from_arrow(TABLE).lazy(),
    "polars, lazy file": lambda folder: pl.scan_parquet(parquet_file(folder)),
    "narwhals": lambda _: nw.from_native(pl.from_arrow(TABLE)),
    "narwhals, lazy": lambda _: nw.from_native(pl.from_arrow(TABLE).lazy()),
    "Arrow table": lambda _: TABLE,
    "Arrow table, chunks": lambda _: pa.concat_tables([TABLE.slice(0, 17), TABLE.slice(17)]),
    "Arrow table, dictionary": lambda _: TABLE.set_column(3, "s", TABLE["s"].dictionary_encode()),
    "Arrow batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "Arrow reader": lambda _: TABLE.to_reader(max_chunksize=333),
    "Arrow dataset": lambda folder: ds.dataset(parquet_file(folder)),
    "Arrow dataset, memory": lambda _: ds.dataset(TABLE),
    "Arrow stream": lambda _: OnlyStream(TABLE),
    "list of frames": lambda _: [TABLE.slice(0, 10), TABLE.slice(10, 90).to_pandas(), pl.from_arrow(TABLE.slice(100))],
    "generator": lambda _: iter(TABLE.to_batches(max_chunksize=7)),
    "Parquet": parquet_file,
    "Parquet, str": lambda folder: str(parquet_file(folder)),
    "Parquet directory": lambda folder: several(folder, pq.write_table, ".parquet"),
    "Parquet glob": lambda folder: f"{several(folder, pq.write_table, '.parquet')}/**/*p[012].parquet",
    "list of paths": lambda folder: sorted(several(folder, pq.write_table, ".pq").rglob("*p?.pq")),
    "CSV": csv_file,
    "CSV, compressed": gzipped,
    "TSV": tab_separated,
    "CSV directory": lambda folder: several(folder, pa.csv.write_csv, ".csv"),
    "DuckDB relation": lambda _: duckdb.from_arrow(TABLE),
    "narwhals, DuckDB": lambda _: nw.from_native(duckdb.from_arrow(TABLE)),
    "DuckDB query": lambda folder: DuckDBQuery(duckdb_file(folder), "select * from people"),
    "DuckDB pair": lambda folder: (str(duckdb_file(folder)), "from people"),
}
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())


def plain(found):
    """The rows of all batches as Python values."""
    return [row for batch in found for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


EXPECTED = list(zip(*(TABLE[name].to_pylist() for name in COLUMNS), strict=True))


# -- the same rows ----------------------------------------------------------------------------------------------
@every_source
@pytest.mark.parametrize("batch_rows", [64, 2**16])
def test_every_source_has_the_same_rows(make, batch_rows, tmp_path):
    found = list(batches(make(tmp_path), COLUMNS, batch_rows=batch_rows))
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
    assert all(batch.schema.names == COLUMNS for batch in found)
    assert all(0 < batch.num_rows <= batch_rows for batch in found)
    assert plain(found) == EXPECTED


@every_source
def test_every_source_gives_the_same_bits(make, tmp_path):
    def gram(data, **options):
        found = batches(data, list(SCHEMA.columns), types=SCHEMA.text_types, **options)
        sums = aggregate_batches(found, SCHEMA, Gram())
        return sums.high, sums.low, sums.n

    for found, expected in zip(gram(make(tmp_path), batch_rows=99), gram(TABLE), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_named_arrays(order):
    array = np.array(np.arange(6.0).reshape(3, 2), order=order)
    assert plain(batches((array, ["a", "b"]), ["b", "a"], batch_rows=2)) == [(1, 0), (3, 2), (5, 4)]


@every_source
def test_schema_without_rows(make, tmp_path):
    data = make(tmp_path)
    if isinstance(data, list) or type(data).__name__ == "list_iterator":
        with pytest.raises(TypeError, match="cannot be determined without reading rows"):
            open_table(data).schema()
        return
    found = open_table(data).schema()
    assert set(COLUMNS) <= set(found.names)
    assert pa.types.is_floating(found.field("a").type) or isinstance(data, tuple)


# -- only what is needed ----------------------------------------------------------------------------------------
def test_columns_not_asked_for_are_not_read(tmp_path):
    """A file whose other column is destroyed can still be read."""
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE.select(["a", "unused"]), path, compression="none", use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(0).column(1)
    damage(path, chunk.data_page_offset, chunk.total_compressed_size)
    assert len(plain(batches(path, ["a"]))) == N
    with pytest.raises(ValueError, match=r"Column 'unused' of .*t.parquet cannot be read: the file is corrupt"):
        list(batches(path, ["a", "unused"]))


def test_lazy_frames_see_the_projection():
    def fail(frame):
        raise AssertionError("read a column that was not asked for")

    spoilt = pl.col("other").map_batches(fail, return_dtype=pl.Float64)
    frame = pl.LazyFrame({"a": [1.0], "other": [2.0]}).with_columns(spoilt)
    assert plain(batches(frame, ["a"])) == [(1.0,)]


def test_iterables_are_read_one_part_at_a_time():
    read = []

    def parts():
        for i in range(4):
            read.append(i)
            yield TABLE.slice(i, 1)

    found = batches(parts(), COLUMNS)
    next(found)
    assert read == [0]


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "polars", "duckdb", "dask"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np, pyarrow as pa
from gaussmix.data.engines import DuckDBQuery
from gaussmix.data.table import open_table
for table in ({"a": np.zeros(3)}, pa.table({"a": [1]})):
    assert len(list(open_table(table).batches(["a"]))) == 1
try:
    list(open_table(DuckDBQuery("x.duckdb", "select 1")).batches(["a"]))
except ImportError as error:
    assert 'pip install "gaussmix[duckdb]"' in str(error)
else:
    raise AssertionError
"""


def test_optional_libraries_need_not_be_there():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


MEMORY = r"""
import re, sys
from gaussmix.data.table import open_table
for batch in open_table(sys.argv[1]).batches(["a", "b"]):
    pass
print(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])  # ru_maxrss may be the parent's
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """One row group of 128 MB, most of which must never be in memory at once."""
    rng = np.random.default_rng(0)

    def peak(n, name):
        table = pa.table({"a": rng.standard_normal(n), "b": rng.standard_normal(n)})
        pq.write_table(table, tmp_path / name, row_group_size=n)
        command = [sys.executable, "-c", MEMORY, str(tmp_path / name)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024

    assert peak(8 * 2**20, "large.parquet") - peak(2**10, "small.parquet") < 64


def test_batches_of_wide_rows_are_shorter():
    """16 MiB of what is declared, whatever the rows hold; what the caller asks for is what the caller gets."""
    types = {"v": pa.list_(pa.float64(), 2**16), "x": pa.float64()}
    table = {"v": np.zeros((130, 2**16), np.int8), "x": np.zeros(130)}
    assert [batch.num_rows for batch in batches(table, ["x", "v"], types=types)] == [31, 31, 31, 31, 6]
    assert [batch.num_rows for batch in batches(table, ["x", "v"], types=types, batch_rows=100)] == [100, 30]
    assert [batch.num_rows for batch in batches(table, ["x"], types=types)] == [130]


# -- bad input --------------------------------------------------------------------------------------------------
def damage(path, start, length):
    content = bytearray(path.read_bytes())
    content[start : start + length] = b"\xff" * length
    path.write_bytes(content)


def fails(error, message, data, columns=("a",), **options):
    """Fails with these words, before or while it is read; no value and no error of a library is shown."""
    with pytest.raises(error, match=message) as caught:
        list(batches(data, list(columns), **options))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@every_source
def test_missing_columns(make, tmp_path):
    cure = "Correct the name in the schema or privacy unit, or add the column."
    fails(ValueError, f"Column 'absent' is not in .*{cure}", make(tmp_path), ["a", "absent"])


def test_a_misspelt_column_is_suggested_and_the_columns_are_listed(tmp_path):
    message = "Did you mean 'occupation'\\? Correct the name .* The table has age, occupation\\."
    (tmp_path / "t.csv").write_text("age,occupation\n1,2\n", encoding="utf-8")
    types = {"age": pa.float64(), "ocupation": pa.float64()}
    for data in (tmp_path / "t.csv", pa.table({"age": [1], "occupation": [2]})):
        fails(ValueError, message, data, list(types), types=types)
    wide = pa.table({f"x{i}": [1] for i in range(40)})
    fails(ValueError, "The table has x0, x1, .*, x29 and 10 more", wide, ["x0", "other"])


def test_the_first_row_of_a_file_without_a_header_is_not_listed(tmp_path):
    (tmp_path / "t.csv").write_text(f"{SECRET},{SECRET}1\n1,2\n", encoding="utf-8")
    types = {"age": pa.float64(), "occupation": pa.float64()}
    fails(ValueError, "Column 'age' is not in .* or add the column", tmp_path / "t.csv", list(types), types=types)


def test_a_name_that_differs_by_capitals():
    fails(ValueError, "Column 'A' is not in .* differs only in case: use", TABLE, ["A"])


@pytest.mark.parametrize("columns", [[], ["a", "a"]])
def test_columns_asked_for(columns):
    fails(ValueError, "columns must contain at least one name and no duplicates", TABLE, columns)


def test_batch_rows():
    fails(ValueError, "batch_rows must be an integer ≥ 1, got 0", TABLE, batch_rows=0)


def test_not_a_table():
    fails(TypeError, "data must be a path of files, .* a NumPy array with names, .*; got int", 3)
    fails(TypeError, "A NumPy array must come with column names", np.zeros((2, 2)))
    fails(ValueError, r"In \(array, names\), array must be two-dimensional, with one name", (np.zeros((2, 2)), ["a"]))
    fails(ValueError, "must have the same length", {"a": np.zeros(2), "b": np.zeros(3)})
    fails(ValueError, "Column 'a' of a dictionary must be a one-dimensional array, or two-", {"a": np.zeros((2, 2, 2))})


TWICE = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([3.0])], names=["a", "a", "b"])


def twice_parquet(folder):
    pq.write_table(TWICE, folder / "t.parquet")
    return folder / "t.parquet"


def twice_csv(folder):
    (folder / "t.csv").write_text("a,a,b\n1,2,3\n")
    return folder / "t.csv"


@pytest.mark.parametrize(
    "make",
    [
        lambda _: TWICE,
        lambda _: TWICE.to_reader(),
        lambda _: (np.zeros((1, 3)), ["a", "a", "b"]),
        lambda _: pd.DataFrame(np.zeros((1, 3)), columns=["a", "a", "b"]),
        twice_parquet,
        twice_csv,
    ],
    ids=["table", "reader", "array", "pandas", "parquet", "csv"],
)
def test_duplicate_names(make, tmp_path):
    fails(ValueError, "Column 'a' occurs twice in", make(tmp_path))
    with pytest.raises(ValueError, match="Column 'a' occurs twice in"):
        open_table(make(tmp_path)).schema()


@pytest.mark.parametrize("keep", [1, 4, 200, -1, -9])
def test_truncated_parquet(tmp_path, keep):
    path = parquet_file(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    fails(ValueError, r"t.parquet cannot be read: it is truncated, corrupt or in another format", path)
    with pytest.raises(ValueError, match=r"t.parquet cannot be read"):
        open_table(path).schema()
    assert open_table(path).n_rows is None


def test_damaged_page_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, write_page_checksum=True, use_dictionary=False, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    damage(path, chunk.data_page_offset + chunk.total_compressed_size - 64, 8)
    fails(ValueError, r"Column 'a' of .*t.parquet cannot be read: the file is corrupt", path, ["b", "a"])


def test_types_that_change_among_files(tmp_path):
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "p0.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "p1.parquet")  # still numbers
    assert plain(batches(tmp_path, ["a"])) == [(1.0,), (1,)]
    pq.write_table(pa.table({"a": pa.nulls(1)}), tmp_path / "p2.parquet")  # nothing at all
    pq.write_table(pa.table({"a": [SECRET]}), tmp_path / "p3.parquet")
    fails(TypeError, r"Column 'a' changes its type from numbers to text in .*p3.parquet", tmp_path)
    fails(TypeError, "Column 'a' changes its type from text to bool", [pa.table({"a": [v]}) for v in (SECRET, True)])


def test_a_column_that_appears_late_in_the_files(tmp_path):
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "p0.parquet")
    pq.write_table(pa.table({"b": [1.0]}), tmp_path / "p1.parquet")
    fails(ValueError, r"Column 'a' is not in .*p1.parquet", tmp_path)


def test_csv_type_that_changes_in_mid_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b,a\n" + "0,1.5\n" * 1_000_000 + f"0,{SECRET}\n")
    fails(ValueError, r"Column 'a' of .*t.csv must hold numbers", path)


def test_csv_errors_have_the_same_words_when_arrow_has_one_thread(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b,a\n" + "0,1.5\n" * 1_000_000 + f"0,{SECRET}\n")
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        fails(ValueError, r"Column 'a' of .*t.csv must hold numbers", path)
    finally:
        pa.set_cpu_count(threads)


def test_csv_declared_types(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('code,flag,n\n007,1,1\n,true,\n"a\nb",false,2.5\n')
    types = {"code": pa.string(), "flag": pa.bool_(), "n": pa.float64(), "not asked for": pa.string()}
    options = CsvOptions(quoted_newlines=True)
    assert plain(batches(path, ["code", "flag", "n"], types=types, csv=options)) == [
        ("007", True, 1.0),
        (None, True, None),
        ("a\nb", False, 2.5),
    ]


@pytest.mark.parametrize("line", [SECRET, f"1,2,{SECRET}"], ids=["short", "long"])
@pytest.mark.parametrize("before", [1, 2_000_000])
def test_ragged_csv(tmp_path, line, before):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * before + line + "\n")
    fails(ValueError, r"t.csv has lines with too many or too few fields", path)


def test_truncated_csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"a,b,c\n1,2,3\n1,{SECRET}")
    fails(ValueError, r"t.csv has lines with too many or too few", path, ["a", "b"])
    whole = gzipped(tmp_path)
    whole.write_bytes(whole.read_bytes()[:-500])
    fails(ValueError, r"t.csv.gz cannot be read: it is truncated", whole)


def test_csv_that_is_not_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,s\n1,\xff\xfe\n")
    message = r"Column 's' of .*t.csv is not in the encoding UTF-8. Convert the file."
    fails(ValueError, message, tmp_path / "t.csv", ["s"], types={"s": pa.string()})


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_empty_file(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    fails(ValueError, f"{name} is empty", tmp_path / name)
    with pytest.raises(ValueError, match="is empty"):
        open_table(tmp_path / name).schema()


@pytest.mark.parametrize("make", [lambda _: TABLE.slice(0, 0), lambda _: [], lambda _: TABLE.slice(0, 0).to_pandas()])
def test_no_rows(make, tmp_path):
    fails(ValueError, "The table has no rows", make(tmp_path))


def test_files_without_rows(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    fails(ValueError, "The table has no rows", tmp_path / "t.csv")
    (tmp_path / "u.csv").write_text("a,b\n1,2\n")  # one part may be empty
    assert plain(batches(tmp_path, ["a"])) == [(1,)]


def test_no_matching_files(tmp_path):
    fails(MissingFileError, "No file matches '.*x-[*].parquet'", f"{tmp_path}/x-*.parquet")
    fails(MissingFileError, "contains no Parquet, Arrow or CSV file", tmp_path)
    fails(MissingFileError, "The file '.*absent.parquet' does not exist", tmp_path / "absent.parquet")
    (tmp_path / "t.xlsx").write_text("")
    fails(
        ArgumentError,
        r"t.xlsx must end in one of .parquet, .pq, .arrow, .arrows, .feather, .ipc, .csv, .tsv",
        tmp_path / "t.xlsx",
    )


def test_names_that_are_not_utf8(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a\xff,b\n1,2\n")
    fails(ValueError, r"t.csv has a column name that is not valid UTF-8", tmp_path / "t.csv", ["b"])
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"né": [1.0], "a": [1.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace("né".encode(), b"n\xff\xfe"))
    fails(ValueError, r"t.parquet has a column name that is not valid UTF-8", path)
    with pytest.raises(ValueError, match="not valid UTF-8"):
        open_table(path).schema()


def test_mixed_python_objects():
    mixed = pd.DataFrame({"b": [1.0, 2.0], "a": [1, SECRET]})
    fails(TypeError, "Column 'a' of the DataFrame holds Python objects that are not numbers", mixed, ["b", "a"])
    fails(TypeError, "Column 'a' of the arrays holds Python objects that are not", {"a": np.array([1, SECRET], object)})


def test_types_are_never_guessed(tmp_path):
    fails(TypeError, "holds Python objects, which have no common type", {"a": [1.0]}, types=None)
    fails(TypeError, "holds Python objects, which cannot be read as date32", {"a": [1.0]}, types={"a": pa.date32()})
    fails(TypeError, r"Column 'a' of .*t.csv has no declared type", csv_file(tmp_path), types={"b": pa.int64()})


def test_engines_that_fail_on_the_way():
    lazy = pl.LazyFrame({"a": ["1", SECRET]}).with_columns(pl.col("a").cast(pl.Float64))
    fails(ValueError, "the LazyFrame failed. Run it separately", lazy)
    neighbours = duckdb.sql(
        f"select case when i < 9000 then '1' else '{SECRET}' end::double as a from range(9999) t(i)"
    )
    fails(ValueError, "the DuckDBPyRelation failed", neighbours, batch_rows=100)


def test_duckdb(tmp_path):
    path = duckdb_file(tmp_path)
    fails(ValueError, r"The query on .*table.duckdb is not valid", DuckDBQuery(path, "select nothing from people"))
    fails(ValueError, "is not valid", DuckDBQuery(path, "selec"))
    fails(ValueError, r"failed\. Run it", DuckDBQuery(path, "select unused::double as a from people"), batch_rows=10)
    fails(MissingFileError, "does not exist", DuckDBQuery(tmp_path / "absent.duckdb", "select 1"))
    (tmp_path / "bad.duckdb").write_text(SECRET * 1000)
    fails(ValueError, "cannot be opened as a DuckDB file", DuckDBQuery(tmp_path / "bad.duckdb", "select 1"))
    assert plain(batches((path, 'select 1 as "q""uoted name"'), ['q"uoted name'])) == [(1,)]
    before = path.read_bytes()
    fails(ValueError, r"failed\. Run it", DuckDBQuery(path, "drop table people"))
    assert path.read_bytes() == before


def test_names_that_a_pivot_makes_of_rows_are_not_quoted(tmp_path):
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create table t as from (values ('{SECRET}', 1.0), ('bob', 2.0)) v(name, x)")
    near = SECRET[: len(SECRET) // 2 + 1]
    query = DuckDBQuery(path, f'from (pivot t on name using sum(x)) select sum("{near}") as a')
    fails(ValueError, "it uses an unknown column or function", query)


def test_batches_of_duckdb_are_checked():
    """Text that is none is refused here, not where it is read."""
    offsets, content = np.array([0, 3, 6, 7], np.int32), b"a\xff\xfeSECb"
    bad = pa.StringArray.from_buffers(3, pa.py_buffer(offsets), pa.py_buffer(content))
    fails(ValueError, "cannot be read|failed", duckdb.arrow(pa.table({"a": bad})), types={"a": pa.string()})


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_times_with_a_zone_are_typed(zone):
    """pandas' own objects have no room for all of them, and its errors quote them."""
    last = pd.Timestamp.max.tz_localize("UTC")
    times = pd.Series([pd.Timestamp("2020-01-05 23:30", tz="UTC"), last]).astype("datetime64[ns, UTC]")
    table = pd.DataFrame({"a": times.dt.tz_convert(zone)})
    found = pa.Table.from_batches(batches(table, ["a"]))["a"]
    assert found.cast(pa.int64()).to_pylist() == [1578267000000000000, last.value]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_become_text_that_can_be_filtered(kind):
    (batch,) = batches(pa.table({"a": pa.array(["x", None, "y"]).cast(kind)}), ["a"])
    assert batch.filter(batch.column(0).is_valid()).num_rows == 2


@pytest.mark.parametrize("wrap", [lambda neighbours: neighbours, nw.from_native])
def test_duckdb_does_not_tell_names_apart_by_case(wrap):
    """It read the first of them, whichever was asked for."""
    for name in ("a", "A"):
        fails(
            ValueError,
            "differs from that of another column only in case",
            wrap(duckdb.sql('select 1 as a, 2 as "A"')),
            [name],
        )
    assert plain(batches(wrap(duckdb.sql('select 1 as a, 2 as b, 3 as "B"')), ["a"])) == [(1,)]


# -- rows known in advance, progress ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (parquet_file, N),
        (lambda _: TABLE, N),
        (lambda _: TABLE.to_pandas(), N),
        (lambda _: pl.from_arrow(TABLE), N),
        (lambda _: (np.zeros((5, 1)), ["a"]), 5),
        (lambda _: np.zeros(5, dtype=[("a", float)]), 5),
        (csv_file, None),
        (lambda _: iter([]), None),
        (lambda folder: folder / "absent.parquet", None),
        (lambda _: pl.from_arrow(TABLE).lazy(), None),
    ],
)
def test_number_of_rows(make, rows, tmp_path):
    assert open_table(make(tmp_path)).n_rows == rows


@pytest.mark.parametrize("total", [None, N])
def test_progress_on_a_terminal(total):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    found = list(with_progress(batches(TABLE, COLUMNS, batch_rows=100), total, console=console))
    assert plain(found) == EXPECTED
    assert "Reading" in screen.getvalue()
    assert "rows" in screen.getvalue()


def test_progress_is_silent_elsewhere(capfd):
    screen = io.StringIO()
    assert plain(with_progress(batches(TABLE, COLUMNS), N, console=Console(file=screen))) == EXPECTED
    assert screen.getvalue() == ""
    list(with_progress(batches(TABLE, COLUMNS)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("call", [Moments.of, check_table])
def test_a_table_that_is_refused_leaves_its_connection_free(call):
    """Even while the error, and with it every frame that it went through, is kept."""
    connection = duckdb.connect()
    connection.execute("create table t as select 'x' as a, i as b from range(200000) r(i)")
    gc.disable()
    try:
        with pytest.raises(TypeError, match="Column 'a' must hold numbers") as caught:
            call(connection.sql("select a, b from t"), {"b": [0, 1], "a": [0, 1]})
        call(connection.sql("select a, b from t"), {"b": [0, 1]})
    finally:
        gc.enable()
    assert caught.value.__traceback__ is not None


def test_an_abandoned_read_leaves_nothing_behind(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (parquet_file, csv_file, lambda folder: DuckDBQuery(duckdb_file(folder), "from people")):
            found = batches(make(tmp_path), COLUMNS, batch_rows=10)
            next(found)
            del found
        with duckdb.connect(str(duckdb_file(tmp_path))):  # no lock is left
            pass


# -- the same rows twice ------------------------------------------------------------------------------------------
BOUNDED = {"a": [0, 1], "b": [0, 1]}
ARRAY = np.full((3, 2), 0.5)
BATCH = pa.record_batch({"a": [0.5], "b": [0.5]})
COLUMN = [0.5, 0.5]
HALVES = pa.table({"a": np.linspace(0, 1, 9), "b": np.linspace(0, 1, 9)})


def again(item, times=2):
    yield from (item for _ in range(times))


@pytest.mark.parametrize(
    "make",
    [
        lambda: [(ARRAY, ["a", "b"]), (ARRAY, ["a", "b"])],
        lambda: [(ARRAY, ["a", "b"]), [(ARRAY, ["b", "a"])]],
        lambda: [{"a": COLUMN, "b": COLUMN}] * 2,
        lambda: [BATCH, BATCH],
        lambda: [BATCH, again(BATCH, 1)],
        lambda: again(BATCH),
        lambda: again(pd.DataFrame({"a": [0.5], "b": [0.5]})),
        lambda: again(pl.DataFrame({"a": [0.5], "b": [0.5]})),
        lambda: iter([BATCH, BATCH.slice(0), BATCH]),
    ],
)
def test_the_same_object_twice_is_refused(make):
    with pytest.raises(ValueError, match="Duplicate input table: rows would be double-counted"):
        Moments.of(make(), BOUNDED)


@pytest.mark.parametrize(
    "table", [HALVES, HALVES.to_pandas(), pl.from_arrow(HALVES)], ids=["arrow", "pandas", "polars"]
)
def test_parts_of_a_table_are_other_rows(table):
    parts = [table[:4], table[4:]]
    assert np.array_equal(Moments.of(parts, BOUNDED).gram(), Moments.of(table, BOUNDED).gram())


def test_a_file_and_a_dataset_of_it_are_refused(tmp_path):
    pq.write_table(HALVES, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"is the same file as .* would be double-counted"):
        Moments.of([tmp_path / "t.parquet", ds.dataset(tmp_path)], BOUNDED)
    halves = [ds.dataset(tmp_path).filter(half) for half in (ds.field("a") < 0.5, ds.field("a") >= 0.5)]
    assert np.array_equal(Moments.of(halves, BOUNDED).gram(), Moments.of(HALVES, BOUNDED).gram())


def test_the_same_query_twice_is_refused(tmp_path):
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 0.5 as a, 0.5 as b")
    (tmp_path / "link.duckdb").symlink_to(path)
    for other in (DuckDBQuery(path, "from t"), DuckDBQuery(path, " from t;"), (tmp_path / "link.duckdb", "from t")):
        with pytest.raises(ValueError, match=r"Duplicate query on .*\.duckdb"):
            Moments.of([DuckDBQuery(path, "from t"), other], BOUNDED)


@pytest.mark.parametrize(
    "make",
    [
        lambda i: pa.record_batch({"a": [0.5], "b": [0.5]}),
        lambda i: (np.full((3, 2), 0.5), ["a", "b"]),
        lambda i: (ARRAY, ["a", "b"]),  # filled again, for all that is known
        lambda i: {"a": [0.5], "b": [0.5]},
        lambda i: pd.DataFrame({"a": [0.5], "b": [0.5]}),
    ],
)
def test_a_generator_may_yield_new_objects_with_old_ids(make):
    """An object that is freed may leave its id to the next one."""
    Moments.of((make(i) for i in range(300)), BOUNDED)


def test_a_long_stream_is_not_held():
    seen = Seen()
    for _ in range(100):
        for table in ({"a": [0.5], "b": [0.5]}, np.zeros(1)):
            seen.add(open_table(table), streamed=True)
        del table
    gc.collect()
    assert not seen.listed
    assert not seen.streamed


# -- the table object -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "ordered", "computed", "single_use"),
    [
        (parquet_file, True, False, None),
        (lambda _: {"a": np.zeros(2)}, True, False, None),
        (lambda _: TABLE, True, False, None),
        (lambda _: nw.from_native(TABLE.to_pandas()), True, False, None),
        (lambda _: ds.dataset(TABLE), False, False, None),
        (lambda _: pl.from_arrow(TABLE).lazy(), False, True, None),
        (lambda _: nw.from_native(duckdb.from_arrow(TABLE)), False, True, None),
        (lambda folder: (duckdb_file(folder), "from people"), False, True, None),
        (lambda _: TABLE.to_reader(), False, True, "The RecordBatchReader"),
        (lambda _: OnlyStream(TABLE), False, True, "The OnlyStream"),
        (lambda _: [TABLE, TABLE.to_pandas()], True, False, None),
        (lambda _: [TABLE, TABLE.to_reader()], False, True, "The RecordBatchReader"),
        (lambda _: again(TABLE), False, True, "The generator"),
        (lambda _: {1: TABLE}.values(), False, True, None),
    ],
)
def test_what_is_known_of_a_table_before_it_is_read(make, ordered, computed, single_use, tmp_path):
    table = open_table(make(tmp_path))
    assert (table.ordered, table.computed, table.single_use) == (ordered, computed, single_use)
    assert open_table(table) is table


def test_paths_of_a_table_are_those_of_all_of_its_parts(tmp_path):
    parquet, database, pattern = parquet_file(tmp_path), duckdb_file(tmp_path), str(tmp_path / "*.csv")
    nested = [parquet, [pattern, (database, "from people"), TABLE], ds.dataset(parquet)]
    assert open_table(nested).paths == (parquet, pattern, database, str(parquet))
    for out in (parquet, tmp_path / "new.csv", database):
        with pytest.raises(OutputError, match="is one of the inputs or lies in an input directory"):
            gm.release(nested, schema=BOUNDED, epsilon=1.0, delta=1e-6, out=out, force=True)
    with pytest.raises(OutputError, match="is one of the inputs or lies in an input directory"):
        gm.propose_bounds([tmp_path / "*.json"], {"a": "number"}, epsilon=1.0, delta=1e-6, out=tmp_path / "new.json")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"csv": {}}, "csv must be CsvOptions or None, got dict"),
        ({"expected_rows": 0}, "expected_rows must be an integer ≥ 1"),
        ({"progress": 1}, "progress must be True or False"),
        ({"row_by_row": None}, "row_by_row must be True or False"),
        ({"sorted_by_unit": "yes"}, "sorted_by_unit must be True or False"),
        ({"persist": 1}, "persist must be True or False"),
    ],
)
def test_read_options_are_checked(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        gm.ReadOptions(**wrong)


class Doubles(Table):
    """A new kind of table, as a contributor would add it."""

    def read(self, request):
        yield pa.record_batch({"a": pa.array(self._data, pa.float64())}).select(request.columns)

    def arrow_schema(self):
        return pa.schema({"a": pa.float64()})


def test_a_new_kind_of_table_needs_one_class_and_one_line(monkeypatch):
    values, schema = array.array("d", [0.1, 0.5, 0.9]), {"a": [0, 1]}
    known = table_module.kind_of
    monkeypatch.setattr(table_module, "kind_of", lambda data: Doubles if isinstance(data, array.array) else known(data))
    expected = Moments.of({"a": np.array(values)}, schema)
    assert np.array_equal(Moments.of(values, schema).gram(), expected.gram())
    assert check_table([values], schema, reading=ReadOptions(expected_rows=3)).rows == 3
    assert open_table(values).schema().names == ["a"]
    with pytest.raises(ValueError, match="Duplicate input table"):
        Moments.of([values, values], schema)
    budget = {"schema": schema, "epsilon": 1.0, "delta": 1e-6, "random_state": 0, "passes": 1}
    found, same = (gm.release(table, **budget).second_moment for table in (values, expected))
    assert np.array_equal(found, same)


# ------------------------------------------------------------------------------------------------------------ digests
def test_digests_tell_rows_apart_and_ignore_their_order():
    key = bytes(range(32))
    table = pa.record_batch(
        {
            "number": [1.5, None, 3.0, 0.0],
            "text": ["a", "b", None, "a"],
            "level": pa.array(["x", "y", "x", None]).dictionary_encode(),
            "vector": [[1.0, 2.0], [2.0, 1.0], None, []],
            "day": pa.array([1, 2, None, 4], type=pa.date32()),
            "flag": [True, False, None, True],
        }
    )
    found = row_digests(table, key)
    assert len(set(found.tolist())) == 4
    order = [2, 0, 3, 1]
    assert row_digests(table.take(pa.array(order)), key).tolist() == found[order].tolist()
    assert not set(found.tolist()) & set(row_digests(table, bytes(32)).tolist())
    for name in table.schema.names:  # two values of one column change places: other rows
        place = table.schema.names.index(name)
        swapped = table.set_column(place, name, table.column(place).take(pa.array([1, 0, 2, 3])))
        assert int(row_digests(swapped, key).sum()) != int(found.sum())


def test_digests_of_texts_do_not_depend_on_their_encoding():
    key, texts = bytes(32), pa.array(["a", None, "b", "a"])
    wanted = row_digests(pa.record_batch({"t": texts}), key).tolist()
    for other in (texts.dictionary_encode(), texts.cast(pa.large_string())):
        assert row_digests(pa.record_batch({"t": other}), key).tolist() == wanted


def test_a_query_that_returns_other_rows_is_an_error():
    """As many as before."""
    import polars as pl

    calls = []

    def drifting(frame):
        calls.append(1)
        return frame.with_columns(pl.col("a") + len(calls))

    frame = pl.LazyFrame({"a": [1.0, 2.0, 3.0]}).map_batches(drifting)
    table = open_table(frame)
    list(table.batches(["a"], examine_plan=True))
    with pytest.raises(DataError, match="The table changed between two passes"):
        list(table.batches(["a"], examine_plan=True))
