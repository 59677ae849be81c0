"""Terms, weights, dates and columns of missing values: each row by itself, and the same bits from every source."""

import datetime
import itertools
import zoneinfo

import dask
import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encoded_rows import exact_gram, plain_rows, squared_lengths, summed_rows
from gaussmix.data import terms
from gaussmix.data.check import check_table
from gaussmix.data.columns import Numeric
from gaussmix.data.moments import Moments
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Date, Schema
from gaussmix.data.terms import Block
from gaussmix.errors import DataError, DeclarationError

DECLARED = {
    "wage": {"lower": 1, "upper": 5000, "missing": "indicator", "weight": 2.0},
    "age": {"lower": 18, "upper": 90, "missing": "drop-row"},
    "sex": {"levels": ["f", "m"], "unknown": "other", "missing": "level"},
    "smsa": {"type": "boolean", "missing": "lower"},
    "day": {"type": "date", "lower": "2020-01-01", "upper": "2020-12-31", "missing": "lower"},
    "w": {"lower": 0, "upper": 12.5, "missing": "lower"},
}
TERMS = ["poly(wage, 3)", "log(wage):sex", "spline(age, 5)", "age:smsa", "hour(day)", "spline(day, 4):smsa", "sex:smsa"]
SCHEMA = Schema.of(DECLARED, terms=TERMS, weight="w")
N = 83  # a prime: blocks end anywhere


def rows():
    rng = np.random.default_rng(5)
    start = datetime.datetime(2020, 1, 1)
    some = rng.random((4, N)) < 0.1
    return pa.table(
        {
            "wage": pa.array(np.exp(rng.normal(5, 3, N)), mask=some[0]),
            "age": pa.array(rng.normal(50, 25, N), mask=some[1]),
            "sex": pa.array(rng.choice(["f", "m", "?"], N).tolist(), mask=some[2]),
            "smsa": pa.array(rng.random(N) < 0.5),
            "day": pa.array(
                [start + datetime.timedelta(seconds=int(s)) for s in rng.integers(-(10**7), 4 * 10**7, N)],
                pa.timestamp("us"),
                mask=some[3],
            ),
            "w": pa.array(rng.exponential(4, N)),
        }
    )


def sums(data, schema=SCHEMA, **options):
    found = Moments.of(data, schema, **options)
    return found.sums().high.astype(object) * 2**40 + found.sums().low


@pytest.fixture(scope="module")
def table():
    return rows()


@pytest.fixture(scope="module")
def whole(table):
    return sums(table)


def test_a_table_is_the_sum_of_its_rows(table, whole):
    single = sum(sums(table.slice(i, 1)) for i in range(N) if table["age"][i].is_valid)
    assert np.array_equal(whole, single)
    assert np.array_equal(whole, exact_gram(summed_rows(SCHEMA, table)))


@pytest.mark.parametrize(
    "source", ["pieces", "reversed", "pandas", "polars", "lazy", "parquet", "csv", "duckdb", "objects", "nanoseconds"]
)
def test_every_source_gives_the_same_bits(table, whole, source, tmp_path):
    if source == "pieces":
        data = [table.slice(start, 7) for start in range(0, N, 7)]
    elif source == "reversed":
        data = table.take(list(range(N))[::-1])
    elif source == "pandas":
        data = table.to_pandas()
    elif source in ("polars", "lazy"):
        data = pl.from_arrow(table).lazy() if source == "lazy" else pl.from_arrow(table)
    elif source == "parquet":
        data = tmp_path / "t.parquet"
        pq.write_table(table, data, row_group_size=10)
    elif source == "csv":
        data = tmp_path / "t.csv"
        table.to_pandas().to_csv(data, index=False)
    elif source == "duckdb":
        data = duckdb.from_arrow(table)
    elif source == "objects":
        data = {name: table[name].to_pylist() for name in table.column_names}
    else:
        data = table.set_column(4, "day", table["day"].cast(pa.timestamp("ns")))
    assert np.array_equal(sums(data), whole)


def test_a_cluster_gives_the_same_bits(table, whole):
    frame = dask.dataframe.from_pandas(table.to_pandas(), npartitions=3)
    with dask.config.set(scheduler="synchronous"):
        found = rows_of(frame, SCHEMA).gram()
    assert np.array_equal(found.high.astype(object) * 2**40 + found.low, whole)


# -- weights -----------------------------------------------------------------------------------------------------
def test_weights_multiply_rows_by_their_roots(table):
    plain = Schema.of({name: column for name, column in DECLARED.items() if name != "w"}, terms=TERMS)
    keep = table["age"].is_valid().to_numpy()
    roots = np.sqrt(np.minimum(table["w"].to_numpy()[keep], 12.5) / 12.5)
    found, expected = plain_rows(SCHEMA, table), plain_rows(plain, table) * roots[:, np.newaxis]
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert found.max() <= 2
    assert SCHEMA.weight_bound == 12.5
    assert "w" not in SCHEMA.parts


def test_rows_with_a_bound_of_their_own_are_shortened_before_they_are_weighed():
    schema = Schema.of({"v": {"size": 2, "norm": 1.0}, "w": [0, 4]}, weight="w", intercept=0.0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([30.0, 40.0, 0.3, 0.4]), 2)
    found = summed_rows(schema, pa.table({"v": vectors, "w": [1.0, 4.0]}))
    np.testing.assert_allclose(found, [[0.3, 0.4], [0.3, 0.4]], atol=3e-6)


@pytest.mark.parametrize("value", [-1.0, -1e-300, float("nan"), None, float("inf"), -float("inf")])
def test_negative_weights_are_no_weights(value):
    data = {"x": [0.2, 0.4], "w": [1.0, value]}
    declared = {"x": [0, 1], "w": {"lower": 0, "upper": 2}}
    with pytest.raises(DataError, match="negative, missing, NaN or infinite values"):
        Moments.of(data, Schema.of(declared, weight="w"))
    alone = sums({"x": [0.2], "w": [1.0]}, Schema.of(declared, weight="w"))
    for rule in ("drop-row", "lower"):
        schema = Schema.of(declared | {"w": {"lower": 0, "upper": 2, "missing": rule}}, weight="w")
        assert np.array_equal(sums(data, schema), alone)
    assert check_table(data, Schema.of(declared, weight="w")).columns["w"].refused


@pytest.mark.parametrize("column", [[1, 2], "boolean", {"lower": 0, "upper": 1, "missing": "indicator"}])
def test_weights_are_declared_from_zero(column):
    with pytest.raises(DeclarationError, match=r"bounds \[0, largest weight\]"):
        Schema.of({"x": [0, 1], "w": column}, weight="w")
    with pytest.raises(DeclarationError, match="'w' cannot also be used in terms"):
        Schema.of({"x": [0, 1], "w": [0, 1]}, weight="w", terms=["x:w"])


# -- missing values ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weight", [1.0, 0.4, 3.0])
@pytest.mark.parametrize("hidden", [False, True])
def test_the_column_of_missing_values_makes_no_row_longer(weight, hidden):
    """C is that of the same schema without it; a missing value is 0 in every term of it."""

    def declared(missing):
        return {"x": {"lower": 1, "upper": 9, "missing": missing, "weight": weight}, "s": ["a", "b"]}

    terms = ["log(x)", "spline(x, 4)"] if hidden else ["poly(x, 3)", "log(x)", "spline(x, 4)", "x:s"]
    more = {"terms": terms, "only_in_terms": ["x"] if hidden else []}
    marked, plain = (Schema.of(declared(rule), **more) for rule in ("indicator", "error"))
    assert marked.row_norm == plain.row_norm
    assert marked.n_columns == plain.n_columns + 1
    values = [None, float("nan"), float("inf"), 1.0, 9.0, 5.0, 100.0]
    table = pa.table({"x": values, "s": ["a", "b", "a", "b", "a", "b", "a"]})
    rows = summed_rows(marked, table)
    assert max(squared_lengths(rows)) <= 2**40
    at = marked.names.index("x=(missing)")
    assert np.array_equal(rows[:, at] > 0, [True] * 3 + [False] * 4)
    own = [i for i, name in enumerate(marked.names) if "x" in name and i != at]
    assert not rows[:3, own].any()
    assert rows[3:, own].any(axis=1).all()
    assert rows[0, at] == marked.in_units(max(weight, 1.0) if not hidden else 1.0) / 2**20


# -- dates ---------------------------------------------------------------------------------------------------------
def test_dates_are_days_since_their_origin():
    column = Date("2020-01-01", "2020-03-01")
    assert column == Numeric(0, 60, origin="2020-01-01")
    assert Date("2020-01-01", "2020-03-01", origin=datetime.date(2019, 12, 31)).lower == 1
    schema = Schema.of({"t": {"type": "date", "lower": "2020-01-01", "upper": "2020-03-01"}}, intercept=0.0)
    assert schema == Schema.of(schema.to_dict())
    noon = datetime.datetime(2020, 1, 31, 12)
    days = [datetime.datetime(1066, 10, 14), datetime.datetime(2020, 1, 31), noon, datetime.datetime(9999, 1, 1)]
    expected = [-1.0, 0.0, 0.5 / 30, 1.0]
    assert plain_rows(schema, pa.table({"t": pa.array(days, pa.timestamp("s"))}))[:, 0].tolist() == expected
    zoned = pa.array([datetime.datetime(2020, 1, 31, 12)], pa.timestamp("ms", tz="Europe/Berlin"))
    assert plain_rows(schema, pa.table({"t": zoned}))[:, 0].tolist() == [0.5 / 30]
    for kind in (pa.date32(), pa.date64()):
        assert plain_rows(schema, pa.table({"t": pa.array(days[:2], kind)}))[:, 0].tolist() == expected[:2]
    with pytest.raises(DataError, match="must hold dates or times"):
        Moments.of({"t": np.array([1.0])}, schema)
    with pytest.raises(DeclarationError, match="origin must be a date"):
        Numeric(0, 1, origin="yesterday")


def test_one_field_that_is_no_date_is_refused_alone_and_among_others(tmp_path):
    schema = Schema.of({"t": Date("2020-01-01", "2021-01-01")})
    for fields in (["2020-05-01", "1/2/2020"], ["1/2/2020"], ["2020-05-01", "2020-05-01T10:00:00Z"]):
        path = tmp_path / "t.csv"
        path.write_text("t\n" + "\n".join(fields) + "\n")
        with pytest.raises(DataError, match="Column 't'"):
            Moments.of(path, schema)


def test_frames_of_pandas_keep_missing_times():
    frame = pd.DataFrame({"t": pd.to_datetime(["2020-02-01", None])})
    schema = Schema.of({"t": {"type": "date", "lower": "2020-01-01", "upper": "2021-01-01", "missing": "indicator"}})
    assert schema.names == ("t", "t=(missing)", "(intercept)")
    assert Moments.of(frame, schema).gram()[1, 1] == pytest.approx(0.5, abs=1e-5)  # in units of C² = 2


# ---------------------------------------------------------------------------------------------------------------
# What an attacker of the encoding tried
HALF = {"lower": 0, "upper": 1, "missing": "indicator", "weight": 0.5}


@pytest.mark.parametrize("terms", [["x:y"], {"x:y": 4.0}, ["x:y:z"], {"poly(x, 2):y": 3.0}])
def test_no_number_that_is_missing_makes_a_row_too_long(terms):
    """Two indicators in the place of one product: the row was 20 % too long, and five factors made it five times."""
    schema = Schema.of({"x": HALF, "y": HALF, "z": HALF}, terms=terms)
    values = [None, 0.0, 0.5, 1.0]
    table = pa.table(
        {
            name: pa.array(column, pa.float64())
            for name, column in zip("xyz", zip(*itertools.product(values, repeat=3), strict=True), strict=True)
        }
    )
    assert np.sum(plain_rows(schema, table) ** 2, axis=1).max() <= schema.row_norm**2 * (1 + 1e-12)
    assert max(squared_lengths(summed_rows(schema, table))) <= 2**40


def test_longer_rows_than_was_proved_would_be_shortened(monkeypatch):
    """The norm holds by construction: an indicator of too large a weight, as it was, changes no sensitivity."""
    wrong = {f"{name}=(missing)": Block(4.0, None) for name in "xy"}
    monkeypatch.setattr("gaussmix.data.schema.parts_of", lambda *declared: terms.parts_of(*declared) | wrong)
    schema = Schema.of({"x": HALF, "y": HALF}, terms={"x:y": 4.0})
    table = pa.table({name: pa.array([None, 1.0], pa.float64()) for name in "xy"})
    assert np.sum(plain_rows(schema, table) ** 2, axis=1).max() > schema.row_norm**2 * 1.1
    assert max(squared_lengths(summed_rows(schema, table))) <= 2**40


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"x": HALF, "x=(missing)": [0, 1]}, {}),
        ({"x": HALF, "x=(missing)": [0, 1]}, {"weight": "x=(missing)"}),
        ({"b": [0, 1], "a": ["p", "q"], "b:a": [0, 1]}, {"terms": ["b : a"], "weight": "b:a"}),
        ({"x": [1, 2], "log(x)": [0, 1]}, {"terms": ["poly( log( x ), 2)"], "weight": "log(x)"}),
    ],
)
def test_no_column_takes_the_place_of_a_part(columns, options):
    with pytest.raises(DeclarationError):
        Schema.of(columns, **options)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32()], ids=str)
def test_a_bound_in_the_place_of_a_missing_number_is_of_no_type(kind):
    schema = Schema.of({"x": {"lower": 0.3, "upper": 2e5, "missing": "lower"}}, terms=["poly(x, 2)"])
    typed = pa.array([None, np.float16(0.5)] if kind == pa.float16() else [None, 0.5], kind)
    other = pa.array([None, 0.5], pa.float64())
    assert sums({"x": typed}, schema).tolist() == sums({"x": other}, schema).tolist()


def test_a_batch_of_dropped_rows_adds_nothing():
    schema = Schema.of(
        {"x": {"lower": 0, "upper": 1, "missing": "drop-row"}, "g": ["a", "b"]}, terms=["x:g", "spline(x, 4)"]
    )
    batches = [pa.record_batch({"x": pa.array(x, pa.float64()), "g": ["a"]}) for x in ([None], [0.5])]
    assert sums(pa.Table.from_batches(batches), schema).tolist() == sums(batches[1], schema).tolist()


def test_the_hour_that_comes_twice_is_read_as_it_is_meant():
    schema = Schema.of({"t": {"type": "date", "lower": "2020-10-24", "upper": "2020-10-26"}}, terms=["hour(t)"])
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    times = [datetime.datetime(2020, 10, 25, 2, 30, fold=fold, tzinfo=zone) for fold in (0, 1)]
    typed = pa.array([time.astimezone(datetime.UTC) for time in times], pa.timestamp("us", "UTC"))
    assert sums({"t": times}, schema).tolist() == sums(pa.table({"t": typed}), schema).tolist()


def test_products_have_few_factors():
    with pytest.raises(DeclarationError, match="at most 4 factors"):
        Schema.of({name: [0, 1] for name in "abcde"}, terms=["a:b:c:d:e"])
