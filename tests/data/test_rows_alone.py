"""No row changes how another is read: the Gram matrix of a table is, exactly, the sum of those of its rows.

And a table is refused if and only if one of its rows alone is. For every source and every kind of column in memory.
"""

import datetime
import itertools
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema
from gaussmix.data.source import CsvOptions, ReadOptions
from gaussmix.errors import GaussmixError

RULES = {
    "x": {"lower": -10, "upper": 1e6, "missing": "lower"},
    "y": {"lower": 0, "upper": 1, "missing": "drop-row"},
    "flag": {"type": "boolean", "missing": "lower"},
    "text": {"levels": ["a", "1", " a", "True"], "unknown": "other", "missing": "level"},
    "code": {"levels": [0, 1, 2**53, 2**53 + 1, 2**63 - 1], "unknown": "zero", "missing": "level"},
    "truth": {"levels": [False, True], "unknown": "zero", "missing": "level"},
}
SCALARS = {
    "float": 0.9,
    "one": 1,
    "zero": 0,
    "half": np.float16(0.9),
    "single": np.float32(0.1),
    "long": np.longdouble("0.1"),
    "long, huge": np.longdouble("1e4000"),
    "int8": np.int8(-3),
    "uint64": np.uint64(2**64 - 1),
    "odd": 2**53 + 1,
    "even": 2**53,
    "int64": 2**63 - 1,
    "huge": 10**400,
    "negative": -(10**400),
    "decimal": Decimal("0.10000000000000000000000000001"),
    "decimal, scale": Decimal("123456.5"),
    "decimal, huge": Decimal("1e999"),
    "decimal, nan": Decimal("nan"),
    "decimal, signal": Decimal("sNaN"),
    "decimal, inf": Decimal("inf"),
    "fraction": Fraction(1, 3),
    "true": True,
    "numpy false": np.bool_(False),
    "text": "a",
    "number as text": "1",
    "numpy text": np.str_("a"),
    "empty": "",
    "surrogate": "\ud800",
    "bytes": b"a",
    "none": None,
    "nan": float("nan"),
    "half nan": np.float16("nan"),
    "inf": float("inf"),
    "pandas NA": pd.NA,
    "pandas NaT": pd.NaT,
    "numpy NaT": np.datetime64("NaT", "us"),
    "masked": np.ma.masked,
    "date": datetime.date(2020, 1, 1),
    "timestamp": pd.Timestamp("2020-01-01"),
    "complex": 1j,
    "list": [1.0],
    "array": np.array(1.0),
    "object": object(),
}
GOOD = {"x": 0.5, "y": 0.5, "flag": True, "text": "a", "code": 1, "truth": False}


def outcome(data, schema, **options):
    """The exact sums, or None where the table is refused; any other error is a fault."""
    try:
        found = Moments.of(data, schema, **options)
    except GaussmixError:
        return None
    return found.sums().high, found.sums().low


def check(make, rows, schema, *, known=None, **options):
    """Whole against the sum over rows; ``known`` keeps what rows alone give, by identity."""
    known = {} if known is None else known
    for row in rows:
        if id(row) not in known:
            known[id(row)] = row, outcome(make([row]), schema, **options)  # the row is kept, and so is its id
    alone = [known[id(row)][1] for row in rows]
    whole = outcome(make(rows), schema, **options)
    if any(part is None for part in alone):
        assert whole is None
        return
    assert whole is not None
    unit = 2**40
    left = whole[0].astype(object) * unit + whole[1]
    right = sum(high.astype(object) * unit + low for high, low in alone)
    assert np.array_equal(left, right)


def objects(values):
    """An object array, whatever the values are."""
    array = np.empty(len(values), dtype=object)
    array[:] = [None] * len(values)
    for i, value in enumerate(values):
        array[i] = value
    return array


OBJECT_KINDS = {
    "list": lambda name, values: {name: list(values)},
    "tuple": lambda name, values: {name: tuple(values)},
    "object array": lambda name, values: {name: objects(values)},
    "2-D object array": lambda name, values: (objects(values)[:, np.newaxis], [name]),
    "structured": lambda name, values: np.array([(value,) for value in objects(values)], dtype=[(name, object)]),
    "list of dictionaries": lambda name, values: [{name: [value]} for value in values],
    "pandas": lambda name, values: pd.DataFrame({name: pd.Series(objects(values), dtype=object)}),
    "pandas series": lambda name, values: {name: pd.Series(objects(values), dtype=object)},
    "polars": lambda name, values: pl.DataFrame({name: pl.Series(name, list(values), dtype=pl.Object)}),
    "polars, lazy": lambda name, values: pl.DataFrame({name: pl.Series(name, list(values), dtype=pl.Object)}).lazy(),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize("kind", OBJECT_KINDS)
def test_pairs_of_objects(kind, column):
    """Every scalar beside a good one and a half-precision one: two rows are enough for a type to be guessed wrong."""
    schema, known = Schema.of({column: RULES[column]}), {}
    for value in SCALARS.values():
        for beside in (GOOD[column], SCALARS["half"], SCALARS["one"]):
            if known.get(id(beside), (None, True))[1] is not None:  # one that is refused alone tells nothing
                check(lambda rows: OBJECT_KINDS[kind](column, rows), [beside, value], schema, known=known)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(SCALARS)), min_size=1, max_size=6), st.sampled_from(sorted(OBJECT_KINDS)))
def test_mixtures_of_objects(names, kind):
    for column in RULES:
        schema = Schema.of({column: RULES[column]})
        check(lambda rows: OBJECT_KINDS[kind](column, rows), [SCALARS[name] for name in names], schema)  # noqa: B023


def test_one_integer_does_not_truncate_the_others():
    halves, schema = [np.float16(0.9)] * 2000, Schema.of({"x": [0, 1]})
    with_one, without = (Moments.of({"x": values}, schema).gram() for values in ([*halves, 1], halves))
    np.testing.assert_array_equal(with_one - without, Moments.of({"x": [1]}, schema).gram())


# -- columns with a type -----------------------------------------------------------------------------------------
NUMBERS = [0.0, 0.9, 1.0, 0.1, -0.0, 5e-324, 2.5, 1e30, float("inf"), float("nan"), -7.0]
INTEGERS = [0, 1, 2, -1, 127, 100]
BIG = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
TEXTS = ["a", "1", " a", "", "True", "ä", "a\0", "x" * 40]
TRUTHS = [True, False]

ARROW_TYPES = {
    **{str(kind): (kind, NUMBERS) for kind in (pa.float16(), pa.float32(), pa.float64())},
    **{str(kind): (kind, INTEGERS) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): (kind, INTEGERS[:3]) for kind in (pa.uint8(), pa.uint16(), pa.uint32())},
    "big": (pa.int64(), BIG),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1, 2**53 + 1, 2**63]),
    "bool": (pa.bool_(), TRUTHS),
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "string_view": (pa.string_view(), TEXTS),
    "binary": (pa.binary(), [b"a", b"1"]),
    "null": (pa.null(), []),
    "decimal128": (pa.decimal128(38, 20), [Decimal("0.1"), Decimal("123456.00000000000000000001"), Decimal(1)]),
    "decimal256": (pa.decimal256(76, 40), [Decimal("0.1"), Decimal("1e-40"), Decimal(0)]),
    "date": (pa.date32(), [datetime.date(2020, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [datetime.datetime(2020, 1, 1)]),
    "list": (pa.list_(pa.float64()), [[1.0], []]),
}


def arrow(kind, values):
    if kind == pa.float16():
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, type=kind)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize("name", ARROW_TYPES)
def test_arrow_columns(name, column, tmp_path):
    kind, values = ARROW_TYPES[name]
    values = [*values, None]
    schema = Schema.of({column: RULES[column]})

    def table(rows):
        return pa.table({column: arrow(kind, rows)})

    def dictionary(rows):
        plain = arrow(kind, rows)
        known = pa.concat_arrays([arrow(kind, values), arrow(kind, values)])  # values twice, and a missing one
        index = pa.array([len(values) * (i % 2) + position(row) for i, row in enumerate(rows)], pa.int8())
        assert plain.type == known.type
        return pa.table({column: pa.DictionaryArray.from_arrays(index, known)})

    def position(row):
        return next(i for i, value in enumerate(values) if value is row or (value == row and type(value) is type(row)))

    def stream(rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table(rows).schema) as writer:
            writer.write_table(table(rows), max_chunksize=2)
        return pa.ipc.open_stream(sink.getvalue())

    numbers = itertools.count()

    def parquet(rows):
        path = tmp_path / f"{next(numbers)}.parquet"
        pq.write_table(table(rows), path, row_group_size=2)
        return path

    check(table, values, schema)
    check(lambda rows: {column: arrow(kind, rows)}, values, schema)
    check(lambda rows: {column: pa.chunked_array([arrow(kind, [row]) for row in rows], type=kind)}, values, schema)
    check(lambda rows: [table([row]) for row in rows], values, schema)
    check(stream, values, schema)
    if name not in ("null", "list"):
        check(dictionary, values, schema)
    if name == "string_view" and int(pa.__version__.split(".")[0]) < 21:
        pytest.skip("the rest needs pyarrow 21, which writes string_view to Parquet")
    if name != "null":
        check(parquet, values, schema)
        check(lambda rows: ds.dataset(parquet(rows)), values, schema)


NUMPY_TYPES = {
    **dict.fromkeys(("f2", "f4", "f8", "g", ">f8", ">f4"), NUMBERS),
    **dict.fromkeys(("i1", "i2", "i4", "i8", ">i4"), INTEGERS),
    **dict.fromkeys(("u1", "u8"), INTEGERS[:3]),
    "?": TRUTHS,
    "U40": TEXTS,
    "T": TEXTS,
    "S4": [b"a", b"1"],
    "M8[us]": [np.datetime64("2020-01-01", "us"), np.datetime64("NaT", "us")],
    "c16": [1j, 1.0],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_columns(dtype, column):
    schema, values = Schema.of({column: RULES[column]}), NUMPY_TYPES[dtype]
    kind = np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype)

    def array(rows):
        return np.array(rows, dtype=kind)

    check(lambda rows: {column: array(rows)}, values, schema)
    check(lambda rows: (array(rows)[:, np.newaxis], [column]), values, schema)
    if dtype != "T":
        check(lambda rows: np.array([(row,) for row in array(rows)], dtype=[(column, kind)]), values, schema)
        masks = {id(value): i % 2 == 0 for i, value in enumerate(values)}
        check(lambda rows: {column: np.ma.masked_array(array(rows), [masks[id(r)] for r in rows])}, values, schema)


PANDAS_TYPES = {
    "float64": NUMBERS,
    "float16": NUMBERS,
    "longdouble": NUMBERS,
    "Float64": [*NUMBERS, None],
    "Int64": [*BIG, None],
    "boolean": [*TRUTHS, None],
    "string": [*TEXTS, None],
    "str": [*TEXTS, None],
    "category": [*TEXTS, None],
    "Sparse[float64]": NUMBERS,
    "datetime64[us]": [datetime.datetime(2020, 1, 1), None],
    "double[pyarrow]": [0.5, 1.0, None],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize("dtype", PANDAS_TYPES)
def test_pandas_columns(dtype, column):
    """Rows are cut from one frame: its types are its maker's."""
    schema, values = Schema.of({column: RULES[column]}), PANDAS_TYPES[dtype]
    frame = pd.DataFrame({column: pd.Series(values, dtype=np.longdouble if dtype == "longdouble" else dtype)})
    check(lambda rows: frame.iloc[rows], list(range(len(frame))), schema)
    check(lambda rows: {column: frame[column].iloc[rows]}, list(range(len(frame))), schema)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="categories of float16 need pandas 3")
@pytest.mark.parametrize("column", RULES)
def test_pandas_categories_of_objects(column):
    values = [np.float16(0.9), 1, "a", True, None, 0.5]
    for size in (2, 3, 6):
        for chosen in itertools.combinations(values, size):
            frame = pd.DataFrame({column: pd.Categorical(pd.Series(objects(chosen), dtype=object))})
            check(lambda rows: frame.iloc[rows], list(range(len(frame))), Schema.of({column: RULES[column]}))  # noqa: B023


POLARS_TYPES = {
    pl.Float64: NUMBERS,
    pl.Float32: NUMBERS,
    pl.Int64: BIG,
    pl.Int128: [0, 1, 2**100],
    pl.Boolean: TRUTHS,
    pl.String: TEXTS,
    pl.Categorical: TEXTS,
    pl.Enum(TEXTS): TEXTS,
    pl.Decimal(38, 10): [Decimal("0.1"), Decimal(1)],
    pl.Null: [],
    pl.Binary: [b"a"],
    pl.List(pl.Float64): [[1.0]],
}


@pytest.mark.slow
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize("dtype", POLARS_TYPES, ids=str)
def test_polars_columns(dtype, column):
    schema, values = Schema.of({column: RULES[column]}), [*POLARS_TYPES[dtype], None]
    frame = pl.DataFrame({column: pl.Series(values, dtype=dtype, strict=False)})
    check(lambda rows: frame[rows], list(range(len(frame))), schema)
    check(lambda rows: frame[rows].lazy(), list(range(len(frame))), schema)


@pytest.mark.slow
@pytest.mark.parametrize("column", RULES)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("double", ["0.1", "1", "1e300", "null"]),
        ("decimal(38, 10)", ["0.1", "1", "123456.5"]),
        ("hugeint", ["0", "1", "9007199254740993", "170141183460469231731687303715884105727"]),
        ("boolean", ["true", "false", "null"]),
        ("varchar", ["'a'", "'1'", "null", "''"]),
        ("enum('a', '1')", ["'a'", "'1'", "null"]),
        ("date", ["'2020-01-01'"]),
    ],
)
def test_duckdb_columns(kind, values, column):
    def neighbours(rows):
        lines = ", ".join(f"(({value})::{kind})" for value in rows)
        return duckdb.sql(f"select {column} from (values {lines}) t({column})")

    check(neighbours, values, Schema.of({column: RULES[column]}))


# -- vectors -----------------------------------------------------------------------------------------------------
VECTOR_RULES = {
    "norm": {"v": {"size": 2, "norm": 1.0}},
    "norm, drop-row": {"v": {"size": 2, "norm": 1.0, "missing": "drop-row"}},
    "bounds": {"v": {"size": 2, "lower": -1, "upper": [1, 5], "missing": "drop-row"}},
    "bounds and norm": {"v": {"size": 2, "lower": -1, "upper": [1, 5], "norm": 0.5, "weight": 3.0}},
    "bound of the row": {"columns": {"v": {"size": 2, "norm": 1.0}, "u": [0, 1]}, "max_row_norm": 2.0**-12},
}
PAIRS = [
    [0.0, 0.0], [0.1, -0.7], [0.6, 0.8], [1.0, 1.0], [3.0, 1e10], [1e200, -1e200], [1.7e308, 1.0], [5e-324, 1.0],
    [float("nan"), 0.0], [0.0, float("inf")], [0.0, None], None, [1.0], [1.0, 2.0, 3.0], [],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", VECTOR_RULES)
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 2)], ids=str
)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_vectors(kind, rule):
    """Every vector beside every other, in one batch, in chunks and in tables of their own."""
    schema, known = Schema.of(VECTOR_RULES[rule]), {"table": {}, "chunks": {}, "parts": {}}
    fixed = pa.types.is_fixed_size_list(kind)
    values = [(pair,) for pair in PAIRS if not fixed or pair is None or len(pair) == 2]

    def table(rows):
        arrays = {"v": pa.array([row[0] for row in rows], kind)}
        return pa.table(arrays | ({"u": np.full(len(rows), 0.25)} if "u" in schema.columns else {}))

    for pair in itertools.product(values, repeat=2):
        check(table, pair, schema, known=known["table"])
        check(lambda rows: pa.concat_tables([table([row]) for row in rows]), pair, schema, known=known["chunks"])
        check(lambda rows: [table([row]) for row in rows], pair, schema, known=known["parts"])
    fine = [row for row in values if known["table"][id(row)][1] is not None]
    assert len(fine) >= 6
    check(table, fine * 3, schema, known=known["table"])


@pytest.mark.slow
@pytest.mark.parametrize("rule", VECTOR_RULES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", ">f8", "i1", "i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_vectors_as_arrays(dtype, order, rule):
    schema = Schema.of(VECTOR_RULES[rule])
    numbers = [0, 1] if dtype == "?" else [0, 1, 2, 100, -7]
    if np.dtype(dtype).kind == "f":
        numbers += [0.1, 6e4, float("nan"), float("inf")]
    values = list(itertools.product(numbers, repeat=2))
    fine = [row for row in values if np.isfinite(row).all()]

    def arrays(rows):
        found = {"v": np.array(rows, dtype=dtype, order=order)}
        return found | ({"u": np.full(len(rows), 0.25)} if "u" in schema.columns else {})

    known = {}
    check(arrays, values, schema, known=known)
    check(arrays, fine, schema, known=known)
    masks = {id(row): [i % 3 == 0, i % 5 == 0] for i, row in enumerate(fine)}
    check(
        lambda rows: arrays(rows) | {"v": np.ma.masked_array(arrays(rows)["v"], [masks[id(row)] for row in rows])},
        fine,
        schema,
    )


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=8), st.sampled_from(sorted(VECTOR_RULES)))
def test_mixtures_of_vectors(rows, rule):
    schema = Schema.of(VECTOR_RULES[rule])

    def arrays(some):
        return {"v": np.array(some)} | ({"u": np.full(len(some), 0.25)} if "u" in schema.columns else {})

    check(arrays, rows, schema)


# -- CSV ---------------------------------------------------------------------------------------------------------
FIELDS = [
    "0.9", "1", "0", "", "NA", "nan", " 1", "1 ", "1e400", "-1e-400", "9007199254740993", "9223372036854775808",
    "0x10", "true", "True", "a", " a", '"a"', '"1"', '""', '"a""b"', 'a"b', '"a', 'a"', '"', '"a"b', "'a'", "a\0",
    "ä", "\ufeff", "#", "1_000", "inf", "\\N",
]  # fmt: skip


def written(folder, suffix, lines):
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}{suffix}"
    separator = "\t" if suffix == ".tsv" else ","
    path.write_bytes("".join(separator.join(line) + "\n" for line in lines).encode())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("column", ["x", "flag", "text", "code"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    "options",
    [CsvOptions(), CsvOptions(quoting=True), CsvOptions(quoting=False), CsvOptions(na_values=("NA", "1")),
     CsvOptions(skip_initial_space=True)],
    ids=["default", "quoting", "no quoting", "na_values", "spaces"],
)  # fmt: skip
def test_csv_fields(tmp_path, suffix, column, options):
    """Each field beside a good row before and after it, in a read column and in one that is not read."""
    schema, good = Schema.of({column: RULES[column]}), {"text": "a"}.get(column, "1")

    def make(rows):
        return written(tmp_path / "t", suffix, [("other", column, "another"), *rows])

    first, known = ("u", good, "v"), {}
    for field in FIELDS:
        check(make, [first, ("u", field, "v"), first], schema, known=known, reading=ReadOptions(csv=options))
        check(make, [first, (field, good, "v")], schema, known=known, reading=ReadOptions(csv=options))


@pytest.mark.parametrize("field", FIELDS)
def test_csv_of_one_column(tmp_path, field):
    def make(rows):
        return written(tmp_path / "t", ".csv", [("text",), *rows])

    check(make, [("a",), (field,), ("a",), (field,)], Schema.of({"text": RULES["text"]}))


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=2), min_size=1, max_size=5))
def test_csv_mixtures(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("mixture")
    schema = Schema.of({"text": RULES["text"]})
    check(lambda some: written(folder, ".csv", [("text", "other"), *some]), rows, schema)
