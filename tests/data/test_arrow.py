"""Columns of Arrow tables as encoded entries: every type, every rule for bad values row-local, vectors of any list."""

import decimal
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from array_tables import same_bits
from declared_schemas import vector_array
from encoded_rows import plain_rows, summed_rows
from gaussmix.data import gram
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.gram import Gram, aggregate_batches
from gaussmix.data.moments import Moments
from gaussmix.data.schema import Schema
from gaussmix.data.table import open_table

PROPERTY = settings(max_examples=80)
TABLE = Schema.of(
    {
        "age": [0, 100],
        "sex": {"levels": ["female", "male"], "weight": 2},
        "smoker": "boolean",
        "income": {"lower": -1e3, "upper": 1e5, "weight": 0.5, "missing": "lower"},
        "region": {"levels": [1, 2, 3], "missing": "level", "unknown": "other"},
    }
)


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


# -- values -----------------------------------------------------------------------------------------------------
def test_encoded_values():
    rows = plain_rows(
        TABLE,
        batch(
            age=[50, 200, -1],
            sex=["male", "female", "male"],
            smoker=[True, False, True],
            income=[None, 1e5, np.nan],
            region=[2, None, 9],
        ),
    )
    np.testing.assert_array_equal(
        rows,
        [
            [0, 0, 2, 1, -0.5, 0, 1, 0, 0, 0, 1],
            [1, 2, 0, -1, 0.5, 0, 0, 0, 1, 0, 1],
            [-1, 0, 2, 1, -0.5, 0, 0, 0, 0, 1, 1],
        ],
    )
    assert rows.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 5, 10], pa.int8()),
        pa.array([0, 5, 10], pa.uint64()),
        pa.array(np.array([0, 5, 10], np.float16)),
        pa.array([0, 5, 10], pa.float32()),
        pa.array([decimal.Decimal(v) for v in ("0.00", "5.00", "10.00")]),
        pa.array([0, 5, 10]).dictionary_encode(),
        pa.chunked_array([[0], [5, 10]]),
    ],
    ids=lambda values: str(values.type),
)
def test_every_numeric_type(values):
    assert plain_rows(Schema({"a": [0, 10]}, intercept=0), pa.table({"a": values})).tolist() == [[-1], [0], [1]]


def test_single_precision_is_mapped_in_double_precision():
    encoded = plain_rows(Schema({"a": [1e6, 1e6 + 2]}, intercept=0), batch(a=pa.array([1e6 + 0.125], pa.float32())))
    assert encoded.item() == -0.875
    encoded = plain_rows(Schema({"a": [-3, 4]}, intercept=0), batch(a=pa.array([0.1], pa.float32())))
    assert encoded.item() == pytest.approx((float(np.float32(0.1)) - 0.5) / 3.5, rel=1e-15)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.float64()], ids=str)
def test_a_boolean_is_a_number_between_zero_and_one(kind):
    schema = Schema({"a": Boolean(weight=3, missing="lower")}, intercept=0)
    values = pa.array([0, 1, None], pa.int64()).cast(kind)
    assert plain_rows(schema, batch(a=values)).tolist() == [[-3], [3], [-3]]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_text_type(kind):
    schema = Schema({"a": Categorical(["x", "y"], missing="level", unknown="zero")}, intercept=0)
    values = pa.array(["y", None, "z", "x"]).cast(kind)
    (read,) = open_table(batch(a=values)).batches(["a"])
    assert plain_rows(schema, read).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_every_integer_type(kind):
    schema = Schema({"a": Categorical([-1, 1, 2**40], missing="level", unknown="other")}, intercept=0)
    values = [1, None, 2**64 - 1 if kind == pa.uint64() else 7]
    codes = plain_rows(schema, batch(a=pa.array(values, kind))).argmax(axis=1)
    assert codes.tolist() == [1, 3, 4]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("coded", [False, True])
def test_whole_floating_point_numbers_are_integer_levels(kind, coded):
    schema = Schema({"a": Categorical([0, 1, 2], missing="level", unknown="other")}, intercept=0)
    values = pa.array(np.array([1, -0.0, 1.5, 3, math.nan, math.inf, 2], kind.to_pandas_dtype()))
    values = pa.concat_arrays([values, pa.array([None], kind)])
    if coded:
        values = pa.DictionaryArray.from_arrays(pa.array([*range(7), None]), values.slice(0, 7))
    codes = plain_rows(schema, batch(a=values)).argmax(axis=1)
    assert codes.tolist() == [1, 0, 4, 4, 3, 3, 2, 3]  # NaN and infinite values are missing, as for numbers


def test_floating_point_numbers_at_the_ends_of_the_integers():
    schema = Schema({"a": Categorical([-(2**63), 2**53, 2**53 + 1], unknown="other")}, intercept=0)
    values = [-(2.0**63), 2.0**53, 2.0**63, -(2.0**64), 1e300]
    assert plain_rows(schema, batch(a=values)).argmax(axis=1).tolist() == [0, 1, 3, 3, 3]


def test_an_undeclared_whole_or_fractional_number_is_an_unknown_level():
    for value in (3.0, 1.5):
        with pytest.raises(ValueError, match="values that are not among its declared levels"):
            plain_rows(Schema({"a": Categorical([1, 2])}), batch(a=[1.0, value]))


@pytest.mark.parametrize("missing", ["drop-row", "level"])
def test_codes_give_the_same_bits_as_integers_as_floats_and_from_csv(tmp_path, missing):
    codes = [1, 6, 2, None, 3, 6, 9]
    schema = Schema({"a": Categorical(range(1, 7), missing=missing, unknown="zero"), "b": [0, 1]})
    b = np.linspace(0, 1, len(codes))
    reference = Moments.of(pa.table({"a": pa.array(codes, pa.int64()), "b": b}), schema)
    floats = pa.array(codes, pa.float64())
    assert same_bits(reference, Moments.of(pa.table({"a": floats, "b": b}), schema))
    assert same_bits(reference, Moments.of({"a": floats.to_numpy(zero_copy_only=False), "b": b}, schema))
    pq.write_table(pa.table({"a": floats, "b": b}), tmp_path / "rows.parquet")
    assert same_bits(reference, Moments.of(tmp_path / "rows.parquet", schema))
    for name, write in {"float": "{:.1f}", "integer": "{}"}.items():
        lines = [f"{'' if a is None else write.format(a)},{x!r}" for a, x in zip(codes, b.tolist(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b", *lines]) + "\n")
        assert same_bits(reference, Moments.of(tmp_path / f"{name}.csv", schema))


def test_a_dictionary_may_hold_levels_that_no_row_has_and_nulls():
    schema = Schema({"a": Categorical(["x"], missing="level")}, intercept=0)
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 2]), pa.array(["x", "unused", None]))
    assert plain_rows(schema, batch(a=coded)).tolist() == [[1, 0], [0, 1]]


def test_a_dictionary_without_values():
    schema = Schema({"a": Categorical(["x"], missing="level")}, intercept=0)
    coded = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert plain_rows(schema, batch(a=coded)).tolist() == [[0, 1], [0, 1]]


def test_chunks_with_different_dictionaries():
    chunks = [pa.array(["x", "y"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()]
    encoded = plain_rows(Schema({"a": {"levels": ["x", "y"]}}, intercept=0), pa.table({"a": pa.chunked_array(chunks)}))
    assert encoded.tolist() == [[1, 0], [0, 1], [0, 1]]


def test_rows_of_any_slice_and_of_no_length():
    whole = batch(a=[0.0, 1.0, 2.0], b=["x", "y", "x"])
    schema = Schema.of({"b": {"levels": ["x", "y"]}, "a": [0, 2]})
    np.testing.assert_array_equal(plain_rows(schema, whole.slice(1, 2)), plain_rows(schema, whole)[1:])
    assert plain_rows(schema, whole.slice(0, 0)).shape == (0, 4)
    assert plain_rows(schema, pa.Table.from_batches([], schema=whole.schema)).shape == (0, 4)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_missing_numbers(bad):
    rows = batch(a=pa.array([1.0, bad, 0.0]), b=[1, 2, 3])

    def encoded(rule):
        return plain_rows(Schema({"a": Numeric(0, 1, missing=rule), "b": [0, 3]}, intercept=0), rows)

    assert encoded("lower")[:, 0].tolist() == [1, -1, -1]
    np.testing.assert_allclose(encoded("drop-row"), [[1, -1 / 3], [-1, 1]], rtol=1e-15)
    with pytest.raises(ValueError, match=r"Column 'a' has missing, NaN or infinite values. Declare missing="):
        encoded("error")


@pytest.mark.parametrize("column", [Numeric(0, 1), Boolean(), Categorical(["x"])])
def test_a_column_without_any_value_is_missing(column):
    with pytest.raises(ValueError, match="Column 'a' has missing"):
        plain_rows(Schema({"a": column}), batch(a=pa.nulls(3)))
    kept = Schema({"a": type(column)(**(_fields(column) | {"missing": "drop-row"}))})
    assert len(plain_rows(kept, batch(a=pa.nulls(3)))) == 0


def _fields(column):
    return {name: getattr(column, name) for name in column.__dataclass_fields__}


def test_huge_values_are_clipped_even_where_their_sum_overflows():
    encoded = plain_rows(Schema({"a": [0, 1]}, intercept=0), batch(a=[1.7e308, 1.7e308, -1.7e308, 0.5]))
    assert encoded.ravel().tolist() == [1, 1, -1, 0]


@PROPERTY
@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=20), st.data())
def test_every_row_is_encoded_by_itself(values, data):
    schema = Schema(
        {"a": Numeric(-1, 1, missing="lower"), "b": Categorical(["x"], missing="level", unknown="zero")},
        max_row_norm=1.0,
    )
    labels = data.draw(st.lists(st.sampled_from(["x", "y", None]), min_size=len(values), max_size=len(values)))
    rows = batch(a=pa.array(values, pa.float64()), b=pa.array(labels, pa.string()))
    together = plain_rows(schema, rows)
    alone = [plain_rows(schema, rows.slice(i, 1)) for i in range(len(values))]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_levels_missing_and_unknown():
    rows = batch(a=["x", "q", None])
    with pytest.raises(ValueError, match="Column 'a' has missing"):
        plain_rows(Schema({"a": Categorical(["x"], unknown="zero")}), rows)
    with pytest.raises(
        ValueError, match=r"Column 'a' has values that are not among its declared levels. Add the levels, or"
    ) as e:
        plain_rows(Schema({"a": Categorical(["x"], missing="level")}), rows)
    assert "q" not in str(e.value).replace("unknown", "").split("'a'")[1]
    dropped = Schema({"a": Categorical(["x"], missing="drop-row", unknown="other")}, intercept=0)
    assert plain_rows(dropped, rows).tolist() == [[1, 0], [0, 1]]


def test_batches_add_up_as_separate_tables():
    rng = np.random.default_rng(0)
    parts = [batch(a=rng.uniform(-2, 2, n), b=rng.uniform(-2, 2, n)) for n in (7, 50, 3)]
    schema = Schema.of({"a": [-1, 1], "b": [-2, 2]})
    separate = sum((Moments.of(part, schema) for part in parts), Moments.empty(schema))
    sums = aggregate_batches(iter(parts), schema, Gram())
    np.testing.assert_array_equal(sums.high, separate.sums().high)
    np.testing.assert_array_equal(sums.low, separate.sums().low)
    rows = np.concatenate([plain_rows(schema, part) for part in parts]) / schema.row_norm
    np.testing.assert_allclose(separate.gram(), rows.T @ rows, rtol=1e-5, atol=1e-4)


def test_blocks_are_bounded_however_many_levels_there_are(monkeypatch):
    """And all of them are written to one buffer."""
    blocks, encode = [], gram.encode_batch
    monkeypatch.setattr(
        gram, "encode_batch", lambda *given, **more: blocks.append(encode(*given, **more)) or blocks[-1]
    )
    schema = Schema({"a": Categorical(range(5000))})
    aggregate_batches([batch(a=np.arange(3000) % 5000)], schema, Gram(), threads=1)
    assert [len(block) for block in blocks] == [1024, 1024, 952]
    assert np.shares_memory(blocks[0], blocks[1])


# -- wrong tables -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ([0, 1], ["1"], r"'a' must hold numbers, but its type is text. Convert it to numbers, or declare it as cat"),
        ([0, 1], np.array(["2020-01-01"], "M8[s]"), "'a' must hold numbers, .* Declare it as a date with an origin"),
        ([0, 1], [[1.0]], "'a' must hold numbers, .* omit the column"),
        ("boolean", ["yes"], r"'a' must hold true and false \(or 1 and 0\), but its type is text"),
        ({"levels": ["1"]}, [1], "'a' has the type int64, but its levels are strings. Cast the column to strings, or"),
        ({"levels": [1]}, ["1"], "'a' has the type string, but its levels are integers"),
        ({"levels": ["1"]}, [1.0], "'a' has the type double, but its levels are strings"),
        ({"levels": [1]}, [True], "'a' has the type bool, but its levels are integers"),
        ({"levels": [True]}, [1], "'a' has the type int64, but its levels are booleans"),
        ({"levels": ["x"]}, pa.array([1]).dictionary_encode(), "'a' has the type int64, but its levels are strings"),
    ],
)
def test_wrong_types(column, values, message):
    with pytest.raises(TypeError, match=message):
        plain_rows(Schema({"a": column}), batch(a=values))


def test_columns_must_be_there_once():
    with pytest.raises(ValueError, match="Column 'a' is not in the table"):
        plain_rows(Schema({"a": [0, 1]}), batch(b=[1]))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="Column 'a' occurs twice in the table"):
        plain_rows(Schema({"a": [0, 1]}), twice)


def test_booleans_in_numbers_must_be_zero_and_one():
    schema = Schema.of({"sex": "boolean"})
    good = pa.RecordBatch.from_pydict({"sex": [0, 1, 1]})
    assert plain_rows(schema, good)[:, 0].tolist() == [-1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="holds numbers other than 0 and 1"):
        plain_rows(schema, pa.RecordBatch.from_pydict({"sex": [1, 2, 2]}))


# -- vectors ----------------------------------------------------------------------------------------------------
VECTORS = {
    "norm": Vector(3, norm=2.0, weight=0.5),
    "bounds": Vector(3, lower=-1, upper=(1, 2, 3)),
    "bounds and norm": Vector(3, lower=-1, upper=(1, 2, 3), norm=1.0, weight=3.0),
}
every_vector = pytest.mark.parametrize("column", VECTORS.values(), ids=VECTORS.keys())
LISTS = {
    "list": pa.list_(pa.float64()),
    "large_list": pa.large_list(pa.float64()),
    "fixed_size_list": pa.list_(pa.float64(), 3),
    "list, single": pa.list_(pa.float32()),
    "fixed_size_list, single": pa.list_(pa.float32(), 3),
}
every_list = pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS.keys())


def entries(n=200, seed=0):
    """Whole numbers and quarters, which every type holds, some far beyond the norm."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-8, 9, (n, 3)) / 4
    found[::9] *= 2.0**90
    return found


def with_rule(column, rule):
    return Vector(**({name: getattr(column, name) for name in column.__dataclass_fields__} | {"missing": rule}))


@every_vector
def test_every_kind_of_list_gives_the_same_bits(column):
    values = entries()
    schema = Schema({"v": column, "a": [0, 1]})
    a = np.linspace(0, 1, len(values))
    reference = Moments.of_arrays([(values, a)], schema)
    for kind in LISTS.values():
        array = pa.array(values.tolist(), kind)
        assert same_bits(reference, Moments.of(pa.table({"v": array, "a": a}), schema))
        chunks = pa.chunked_array([array.slice(0, 17), array.slice(17)])
        assert same_bits(reference, Moments.of(pa.table({"v": chunks, "a": a}), schema))
        longer = pa.concat_arrays([array.slice(0, 5), array, array.slice(0, 3)])  # offsets that do not begin at 0
        assert same_bits(reference, Moments.of({"v": longer.slice(5, len(values)), "a": a}, schema))
    for version in (values, np.asfortranarray(values), values.astype(np.float32), values.astype(">f8")):
        assert same_bits(reference, Moments.of({"v": version, "a": a}, schema))


def test_entries_of_every_numeric_type():
    schema = Schema({"v": Vector(2, lower=0, upper=10)}, intercept=0)
    for kind in (pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2)):
        plain = pa.array([0, 5, 10, 10], pa.int64()).cast(pa.float64()).cast(kind)
        array = pa.FixedSizeListArray.from_arrays(plain, 2)
        assert plain_rows(schema, pa.table({"v": array})).tolist() == [[-1, 0], [1, 1]]
    truths = pa.array([[True, False]], pa.list_(pa.bool_()))
    assert plain_rows(Schema({"v": Vector(2, lower=0, upper=1)}, intercept=0), pa.table({"v": truths})).tolist() == [
        [1, -1]
    ]


@every_list
@every_vector
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_missing_entries(kind, column, bad):
    """A vector of which an entry is missing is missing; its neighbours are as they were."""
    good = entries(6).tolist()
    values = [list(row) for row in good]
    values[2][1] = bad
    values[5][2] = bad
    rows = pa.table({"v": pa.array(values, kind), "a": np.arange(6) / 6})
    with pytest.raises(ValueError, match="Column 'v' has missing, NaN or infinite values") as error:
        summed_rows(Schema({"v": column, "a": [0, 1]}), rows)
    assert '"drop-row"' in str(error.value)
    assert '"lower"' not in str(error.value)
    dropping = Schema({"v": with_rule(column, "drop-row"), "a": [0, 1]})
    kept = [0, 1, 3, 4]
    expected = pa.table({"v": pa.array([good[i] for i in kept], kind), "a": np.array(kept) / 6})
    assert np.array_equal(summed_rows(dropping, rows), summed_rows(dropping, expected))


@every_list
@every_vector
def test_missing_vectors(kind, column):
    good = entries(5).tolist()
    values = [good[0], None, good[2], None, good[4]]
    rows = pa.table({"v": pa.array(values, kind), "a": np.arange(5) / 5})
    with pytest.raises(ValueError, match="Column 'v' has missing"):
        summed_rows(Schema({"v": column, "a": [0, 1]}), rows)
    dropping = Schema({"v": with_rule(column, "drop-row"), "a": [0, 1]})
    expected = pa.table({"v": pa.array(good[::2], kind), "a": np.arange(0, 5, 2) / 5})
    assert np.array_equal(summed_rows(dropping, rows), summed_rows(dropping, expected))
    both = pa.table({"v": pa.array([[math.nan, 0, 0], None, *good[2:]], kind), "a": np.arange(5) / 5})
    rest = pa.table({"v": pa.array(good[2:], kind), "a": np.arange(2, 5) / 5})
    assert np.array_equal(summed_rows(dropping, both), summed_rows(dropping, rest))


def test_what_lies_under_a_missing_vector_is_not_read():
    """A fixed-size list keeps room for a missing row, with any numbers in it."""
    hidden = pa.array([1.0, 1.0, math.nan, 7.0, 0.5, 0.5])
    array = pa.FixedSizeListArray.from_arrays(hidden, 2, mask=pa.array([False, True, False]))
    assert array.null_count == 1
    schema = Schema({"v": Vector(2, lower=0, upper=1, missing="drop-row")}, intercept=0)
    assert plain_rows(schema, pa.table({"v": array})).tolist() == [[1, 1], [0, 0]]
    offsets = pa.array([0, 2, 4, 6], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, hidden, mask=pa.array([False, True, False]))
    assert plain_rows(schema, pa.table({"v": lists})).tolist() == [[1, 1], [0, 0]]


def test_a_missing_number_drops_the_vector_and_the_other_way_round():
    schema = Schema({"v": Vector(1, norm=1, missing="drop-row"), "a": Numeric(-1, 1, missing="drop-row")}, intercept=0)
    rows = pa.table({"v": pa.array([[0.5], None, [1.0], [0.25]]), "a": pa.array([None, 1.0, -1.0, math.nan])})
    assert plain_rows(schema, rows).tolist() == [[1.0, -1.0]]
    kept = Schema({"v": Vector(1, norm=1), "a": Numeric(-1, 1, missing="drop-row")}, intercept=0)
    rows = pa.table({"v": pa.array([None, [0.5]]), "a": pa.array([None, 1.0])})
    assert plain_rows(kept, rows).tolist() == [[0.5, 1.0]]  # the vector of a row that is dropped may be missing


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0], [1.0, 2.0]], [[1.0] * 4, [1.0] * 2], [[]], [[1.0] * 6]])
@pytest.mark.parametrize("rule", ["error", "drop-row"])
@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float64())], ids=str)
def test_wrong_sizes(values, rule, kind):
    """Also where the sizes add up."""
    with pytest.raises(ValueError, match="Column 'v' must hold vectors of the declared size 3"):
        summed_rows(Schema({"v": Vector(3, norm=1, missing=rule)}), pa.table({"v": pa.array(values, kind)}))


@pytest.mark.parametrize("size", [1, 2, 4, 6])
@pytest.mark.parametrize("rule", ["error", "drop-row"])
def test_wrong_fixed_sizes(size, rule):
    schema = Schema({"v": Vector(3, norm=1, missing=rule)})
    for data in (pa.table({"v": vector_array(np.zeros((6, size)))}), {"v": np.zeros((6, size))}):
        with pytest.raises(ValueError, match="Column 'v' must hold vectors of the declared size 3"):
            Moments.of(data, schema)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1.0]), "Column 'v' must hold vectors of 2 numbers, but its type is double"),
        (pa.array(["ab"]), "Column 'v' must hold vectors of 2 numbers, but its type is string"),
        (pa.array([["a", "b"]]), "Column 'v' must hold numbers, but its type is text"),
        (pa.array([[[1.0], [2.0]]]), "Column 'v' must hold numbers, but its type is list"),
        (pa.array([{"a": 1.0}]), "Column 'v' must hold vectors of 2 numbers, but its type is struct"),
    ],
)
@pytest.mark.parametrize("rule", ["error", "drop-row"])
def test_what_is_no_vector(values, message, rule):
    with pytest.raises(TypeError, match=message):
        summed_rows(Schema({"v": Vector(2, norm=1, missing=rule)}), pa.table({"v": values}))


@pytest.mark.parametrize("rule", ["error", "drop-row"])
def test_a_column_of_vectors_without_any_value(rule):
    schema = Schema({"v": Vector(2, norm=1, missing=rule)})
    for values in (pa.nulls(3), pa.nulls(3, pa.list_(pa.float64())), pa.nulls(3, pa.list_(pa.float64(), 2))):
        if rule == "drop-row":
            assert len(plain_rows(schema, pa.table({"v": values}))) == 0
        else:
            with pytest.raises(ValueError, match="Column 'v' has missing"):
                plain_rows(schema, pa.table({"v": values}))


def test_huge_entries_are_clipped_or_shortened():
    huge = pa.table({"v": vector_array([[1.7e308, -1.7e308], [1e308, 1.0]])})
    bounded = Schema({"v": Vector(2, lower=0, upper=1)}, intercept=0)
    assert plain_rows(bounded, huge).tolist() == [[1, -1], [1, 1]]
    norm = Schema({"v": Vector(2, norm=1e-80)}, intercept=0)
    rows = summed_rows(norm, huge)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_weights_scale_the_entries_and_their_share_of_the_row():
    values = entries(50)[1:9]
    light, heavy = (
        Schema({"v": Vector(3, norm=10.0, weight=weight), "z": Numeric(0, 1)}, intercept=0) for weight in (1.0, 4.0)
    )
    rows = pa.table({"v": vector_array(values), "z": np.linspace(0, 1, 8)})
    one, four = plain_rows(light, rows), plain_rows(heavy, rows)
    np.testing.assert_allclose(four[:, :3], 4 * one[:, :3], rtol=1e-15)
    np.testing.assert_array_equal(four[:, 3], one[:, 3])
    np.testing.assert_allclose(one[:, :3], values / 10, rtol=1e-15)
    assert heavy.row_norm == math.sqrt(17)


def test_vectors_of_frames_files_and_queries(tmp_path):
    """Whatever holds lists of numbers, to the last bit."""
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.parquet as pq

    values = entries(3000)
    schema = Schema({"v": VECTORS["norm"], "a": [0, 1]})
    a = np.linspace(0, 1, len(values))
    reference = Moments.of_arrays([(values, a)], schema)
    table = pa.table({"v": vector_array(values), "a": a})
    lists = table.set_column(0, "v", pa.array(values.tolist(), pa.list_(pa.float64())))
    pq.write_table(table, tmp_path / "fixed.parquet", row_group_size=500)
    pq.write_table(table, tmp_path / "plain.parquet", store_schema=False)
    connection = duckdb.connect()
    connection.register("source", lists)
    found = {
        "polars, arrays": pl.from_arrow(table),
        "polars, lists": pl.from_arrow(lists),
        "polars, lazy": pl.from_arrow(table).lazy(),
        "pandas": pd.DataFrame(
            {"v": pd.Series(table["v"].combine_chunks(), dtype=pd.ArrowDtype(table["v"].type)), "a": a}
        ),
        "Parquet": tmp_path / "fixed.parquet",
        "Parquet, lists": tmp_path / "plain.parquet",
        "DuckDB, lists": connection.sql("select a, v from source"),
        "DuckDB, arrays": connection.sql("select v::double[3] as v, a from source"),
        "reader": table.to_reader(max_chunksize=77),
        "parts of both kinds": [table.slice(0, 100), lists.slice(100)],
    }
    for name, data in found.items():
        assert same_bits(reference, Moments.of(data, schema)), name


def test_vectors_have_no_place_in_text_and_objects(tmp_path):
    schema = Schema({"v": Vector(2, norm=1)})
    path = tmp_path / "t.csv"
    path.write_text("v,a\n1,2\n")
    with pytest.raises(TypeError, match=r"Column 'v' of .*t.csv is declared as a vector, which a CSV file cannot hold"):
        Moments.of(path, schema)
    for values in ([[1.0, 2.0]], np.array([[1.0], [2.0]], dtype=object)):
        with pytest.raises(TypeError, match=r"Column 'v' .* Convert the column to a typed array"):
            Moments.of({"v": values}, schema)


def test_masked_entries_are_missing():
    values = np.ma.masked_array([[0.5, 0.5], [0.1, 0.1]], [[False, True], [False, False]])
    with pytest.raises(ValueError, match="Column 'v' has missing"):
        Moments.of({"v": values}, Schema({"v": Vector(2, norm=1)}))
    dropping = Schema({"v": Vector(2, norm=1, missing="drop-row")})
    assert same_bits(Moments.of({"v": values}, dropping), Moments.of({"v": np.array([[0.1, 0.1]])}, dropping))
