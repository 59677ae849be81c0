"""The same rows twice are refused, however they come; other rows in reused memory addresses are not."""

import gc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gaussmix.tables.moments import Moments
from gaussmix.tables.once import Seen
from gaussmix.tables.sources import DuckDBQuery

SCHEMA = {"a": [0, 1], "b": [0, 1]}
ARRAY = np.full((3, 2), 0.5)
BATCH = pa.record_batch({"a": [0.5], "b": [0.5]})
LIST = [0.5, 0.5]
TABLE = pa.table({"a": np.linspace(0, 1, 9), "b": np.linspace(0, 1, 9)})
FRAME = pd.DataFrame({"a": np.linspace(0, 1, 9), "b": np.linspace(0, 1, 9)})
POLARS = pl.DataFrame({"a": np.linspace(0, 1, 9), "b": np.linspace(0, 1, 9)})


def again(item, times=2):
    yield from (item for _ in range(times))


def fresh(times=2):
    fixed = ARRAY.copy()
    fixed.flags.writeable = False  # nobody can have filled it anew
    for _ in range(times):
        yield (fixed, ["a", "b"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [(ARRAY, ["a", "b"]), (ARRAY, ["a", "b"])],
        lambda: [(ARRAY, ["a", "b"]), (ARRAY, ["b", "a"])],
        lambda: [(ARRAY, ["a", "b"]), (ARRAY[:], ["a", "b"])],
        lambda: [(ARRAY, ["a", "b"]), [(ARRAY, ["a", "b"])]],
        lambda: [{"a": LIST, "b": LIST}, {"a": LIST, "b": LIST}],
        lambda: [{"a": ARRAY[:, 0], "b": ARRAY[:, 1]}, {"a": ARRAY[:, 0], "b": ARRAY[:, 1]}],
        lambda: [BATCH, BATCH],
        lambda: again(BATCH),
        lambda: again(pd.DataFrame({"a": [0.5], "b": [0.5]})),
        lambda: again(pl.DataFrame({"a": [0.5], "b": [0.5]})),
        lambda: again({"a": LIST, "b": LIST}),
        lambda: again((ARRAY, ["a", "b"])),
        lambda: iter([BATCH, BATCH.slice(0), BATCH]),
        fresh,
        lambda: [TABLE, TABLE.slice(0)],
        lambda: [TABLE, TABLE.select(["b", "a"])],
        lambda: [TABLE.to_batches()[0], TABLE],
        lambda: [{"a": TABLE["a"], "b": TABLE["b"]}, {"a": TABLE["a"], "b": TABLE["b"]}],
        lambda: [FRAME, FRAME[:]],
        lambda: [{"a": FRAME["a"], "b": FRAME["b"]}, {"a": FRAME["a"], "b": FRAME["b"]}],
        lambda: [POLARS, POLARS.clone()],
    ],
)
def test_the_same_rows_twice(make):
    with pytest.raises(ValueError, match="A table comes twice: its rows would be counted twice"):
        Moments.of(make(), SCHEMA)


@pytest.mark.parametrize("table", [TABLE, FRAME, POLARS], ids=["arrow", "pandas", "polars"])
def test_parts_of_a_table_are_other_rows(table):
    parts = [table[:4], table[4:]]
    assert np.array_equal(Moments.of(parts, SCHEMA).gram(), Moments.of(table, SCHEMA).gram())
    Moments.of([table, table[:0], table[9:]], SCHEMA)  # no rows come as often as one likes


def test_nulls_lie_nowhere():
    parts = [pa.table({"a": pa.nulls(3)}) for _ in range(2)]
    assert Moments.of(parts, {"a": {"lower": 0, "upper": 1, "missing": "lower"}}).rows_between(6, 6)


def test_a_file_and_a_dataset_of_it(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"is the same file as .* would be counted twice"):
        Moments.of([tmp_path / "t.parquet", ds.dataset(tmp_path)], SCHEMA)
    halves = [ds.dataset(tmp_path).filter(half) for half in (ds.field("a") < 0.5, ds.field("a") >= 0.5)]
    assert np.array_equal(Moments.of(halves, SCHEMA).gram(), Moments.of(TABLE, SCHEMA).gram())


def test_the_same_query_twice(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 0.5 as a, 0.5 as b")
    (tmp_path / "link.duckdb").symlink_to(path)
    for other in (DuckDBQuery(path, "from t"), DuckDBQuery(path, " from t;"), (tmp_path / "link.duckdb", "from t")):
        with pytest.raises(ValueError, match=r"A query on .*\.duckdb comes twice"):
            Moments.of([DuckDBQuery(path, "from t"), other], SCHEMA)


@pytest.mark.parametrize(
    "make",
    [
        lambda i: pa.record_batch({"a": [0.5], "b": [0.5]}),
        lambda i: (np.full((3, 2), 0.5), ["a", "b"]),
        lambda i: {"a": [0.5], "b": [0.5]},
        lambda i: pd.DataFrame({"a": [0.5], "b": [0.5]}),
        lambda i: (ARRAY[i % 3 : i % 3 + 1].copy(), ["a", "b"]),
    ],
)
def test_new_tables_at_old_addresses(make):
    """What was let go may leave its address, and its id, to the next table."""
    Moments.of((make(i) for i in range(300)), SCHEMA)


def test_a_column_may_serve_two_tables():
    one, two, shared = [0.1], [0.2], [0.5]
    Moments.of([{"a": one, "b": shared}, {"a": two, "b": shared}], SCHEMA)
    Moments.of([(ARRAY[:1], ["a", "b"]), (ARRAY[1:], ["a", "b"])], SCHEMA)  # parts of one array


def test_a_long_stream_is_not_held():
    seen = Seen()
    for _ in range(100):
        seen.table({"a": [0.5], "b": [0.5]}, ["a", "b"])
    gc.collect()
    assert len(seen._held) < 3
    for _ in range(3000):
        seen.table(np.zeros(1), ["a"])
    assert len(seen._tables) < 1100
