"""Schema: declared, public, exact to write and read; every row within C; each rule for bad values row-local."""

import decimal
import itertools
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussmix.moments import accumulate
from gaussmix.schema import Boolean, Categorical, Numeric, Schema, describe_columns

PROPERTY = settings(derandomize=True, deadline=None, max_examples=80)
TABLE = Schema.from_(
    {
        "age": [0, 100],
        "sex": {"levels": ["female", "male"], "weight": 2},
        "smoker": "boolean",
        "income": {"lower": -1e3, "upper": 1e5, "weight": 0.5, "missing": "lower"},
        "region": {"levels": [1, 2, 3], "missing": "level", "unknown": "other"},
    }
)

weights = st.floats(0.01, 100)
numerics = st.builds(
    lambda low, width, weight, missing: Numeric(low, low + width, weight=weight, missing=missing),
    st.floats(-1e6, 1e6),
    st.floats(1e-2, 1e6),
    weights,
    st.sampled_from(["error", "drop-row", "lower"]),
)
booleans = st.builds(Boolean, weight=weights, missing=st.sampled_from(["error", "drop-row", "lower"]))
categoricals = st.builds(
    Categorical,
    st.one_of(
        st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3, unique=True),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3, unique=True),
        st.sampled_from([[True], [False, True]]),
    ),
    weight=weights,
    missing=st.sampled_from(["error", "drop-row", "level"]),
    unknown=st.sampled_from(["error", "zero", "other"]),
)
schemas = st.builds(
    lambda columns, intercept, row_norm: Schema(
        {f"c{i}": column for i, column in enumerate(columns)}, intercept=intercept, row_norm=row_norm
    ),
    st.lists(st.one_of(numerics, booleans, categoricals), min_size=1, max_size=4),
    st.one_of(st.just(0.0), weights),
    st.one_of(st.none(), weights),
)


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def corners(column):
    """Values at which a column's part of the row is longest, in each of its encoded columns."""
    if isinstance(column, Numeric):
        return pa.array([column.lower, column.upper, -1e308, 1e308])
    if isinstance(column, Boolean):
        return pa.array([False, True])
    absent = [None] if column.missing == "level" else []
    return pa.array([*column.levels, *absent], type=column.arrow_type)


def corner_rows(schema):
    choices = [corners(column) for column in schema.columns.values()]
    indices = list(zip(*itertools.product(*(range(len(choice)) for choice in choices)), strict=True))
    return pa.table(
        {name: choice.take(pa.array(i)) for name, choice, i in zip(schema.columns, choices, indices, strict=True)}
    )


def squared_norm(row):
    return sum(Fraction(value) ** 2 for value in row)


# -- C ----------------------------------------------------------------------------------------------------------
@PROPERTY
@given(schemas)
def test_norm_is_the_longest_row_over_the_corners(schema):
    implied = Schema(schema.columns, intercept=schema.intercept).norm
    longest = max(squared_norm(row) for row in schema.encode(corner_rows(schema)).tolist())
    assert longest <= Fraction(implied) ** 2  # exactly
    assert math.sqrt(longest) >= implied * (1 - 1e-15)
    assert schema.norm == (implied if schema.row_norm is None else min(implied, schema.row_norm))


@PROPERTY
@given(schemas)
def test_no_row_that_is_summed_is_longer_than_one(schema):
    rows = schema.row_encoder.encode(schema.encode(corner_rows(schema)))
    assert all(squared_norm(row) <= 1 for row in rows.tolist())


def test_norm_counts_one_level_per_categorical_column():
    assert TABLE.norm**2 == pytest.approx(1 + 4 + 1 + 0.25 + 1 + 1)


# -- encoding ---------------------------------------------------------------------------------------------------
def test_names_order_and_groups():
    assert TABLE.names == (
        "age", "sex=female", "sex=male", "smoker", "income", "region=1", "region=2", "region=3", "region=(missing)",
        "region=(other)", "(intercept)",
    )  # fmt: skip
    assert TABLE.n_columns == 11
    assert dict(TABLE.groups) == {
        "age": (0,), "sex": (1, 2), "smoker": (3,), "income": (4,), "region": (5, 6, 7, 8, 9), "(intercept)": (10,),
    }  # fmt: skip
    assert [c.kind for c in TABLE.encoded][:4] == ["numeric", "level", "level", "boolean"]
    assert TABLE.encoded[-1].source is None
    assert Schema({"a": [0, 1]}, intercept=0).names == ("a",)


def test_encoded_values():
    rows = TABLE.encode(
        batch(
            age=[50, 200, -1],
            sex=["male", "female", "male"],
            smoker=[True, False, True],
            income=[None, 1e5, np.nan],
            region=[2, None, 9],
        )
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


@PROPERTY
@given(schemas, st.integers(0, 2**32 - 1))
def test_decode_map_inverts_the_encoding(schema, seed):
    """A linear function of the encoded row is the same function of the user's values."""
    rng = np.random.default_rng(seed)
    table, indicators = {}, []
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            codes = rng.integers(len(column.levels), size=5)
            table[name] = pa.array([column.levels[i] for i in codes], type=column.arrow_type)
            indicators += [(codes == j).astype(float) for j in range(len(column.labels))]
        elif isinstance(column, Boolean):
            values = rng.random(5) < 0.5
            table[name] = pa.array(values)
            indicators.append(values.astype(float))
        else:
            values = rng.uniform(column.lower, column.upper, 5)
            table[name] = pa.array(values)
            indicators.append(values)
    if schema.intercept:
        indicators.append(np.ones(5))
    centre, scale = schema.decode_map()
    encoded = schema.encode(pa.table(table))
    np.testing.assert_allclose(encoded * scale + centre, np.column_stack(indicators), rtol=1e-9, atol=1e-9 * 1e6)
    np.testing.assert_allclose(encoded, (np.column_stack(indicators) - centre) / scale, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 5, 10], pa.int8()),
        pa.array([0, 5, 10], pa.uint64()),
        pa.array([0, 5, 10], pa.float16()),
        pa.array([0, 5, 10], pa.float32()),
        pa.array([decimal.Decimal(v) for v in ("0.00", "5.00", "10.00")]),
        pa.array([0, 5, 10]).dictionary_encode(),
        pa.chunked_array([[0], [5, 10]]),
    ],
    ids=lambda values: str(values.type),
)
def test_every_numeric_type(values):
    assert Schema({"a": [0, 10]}, intercept=0).encode(pa.table({"a": values})).tolist() == [[-1], [0], [1]]


def test_single_precision_is_mapped_in_double_precision():
    encoded = Schema({"a": [1e6, 1e6 + 2]}, intercept=0).encode(batch(a=pa.array([1e6 + 0.125], pa.float32())))
    assert encoded.item() == -0.875
    encoded = Schema({"a": [-3, 4]}, intercept=0).encode(batch(a=pa.array([0.1], pa.float32())))
    assert encoded.item() == pytest.approx((float(np.float32(0.1)) - 0.5) / 3.5, rel=1e-15)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.float64()], ids=str)
def test_a_boolean_is_a_number_between_zero_and_one(kind):
    schema = Schema({"a": Boolean(weight=3, missing="lower")}, intercept=0)
    values = pa.array([0, 1, None], pa.int64()).cast(kind)
    assert schema.encode(batch(a=values)).tolist() == [[-3], [3], [-3]]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_text_type(kind):
    schema = Schema({"a": Categorical(["x", "y"], missing="level", unknown="zero")}, intercept=0)
    values = pa.array(["y", None, "z", "x"]).cast(kind)
    assert schema.encode(batch(a=values)).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_every_integer_type(kind):
    schema = Schema({"a": Categorical([-1, 1, 2**40], missing="level", unknown="other")}, intercept=0)
    values = [1, None, 2**64 - 1 if kind == pa.uint64() else 7]
    codes = schema.encode(batch(a=pa.array(values, kind))).argmax(axis=1)
    assert codes.tolist() == [1, 3, 4]


def test_a_dictionary_may_hold_levels_that_no_row_has_and_nulls():
    schema = Schema({"a": Categorical(["x"], missing="level")}, intercept=0)
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 2]), pa.array(["x", "unused", None]))
    assert schema.encode(batch(a=coded)).tolist() == [[1, 0], [0, 1]]


def test_a_dictionary_without_values():
    schema = Schema({"a": Categorical(["x"], missing="level")}, intercept=0)
    coded = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert schema.encode(batch(a=coded)).tolist() == [[0, 1], [0, 1]]


def test_chunks_with_different_dictionaries():
    chunks = [pa.array(["x", "y"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()]
    encoded = Schema({"a": {"levels": ["x", "y"]}}, intercept=0).encode(pa.table({"a": pa.chunked_array(chunks)}))
    assert encoded.tolist() == [[1, 0], [0, 1], [0, 1]]


def test_rows_of_any_slice_and_of_no_length():
    whole = batch(a=[0.0, 1.0, 2.0], b=["x", "y", "x"])
    schema = Schema.from_({"b": {"levels": ["x", "y"]}, "a": [0, 2]})
    np.testing.assert_array_equal(schema.encode(whole.slice(1, 2)), schema.encode(whole)[1:])
    assert schema.encode(whole.slice(0, 0)).shape == (0, 4)
    assert schema.encode(pa.Table.from_batches([], schema=whole.schema)).shape == (0, 4)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_missing_numbers(bad):
    rows = batch(a=pa.array([1.0, bad, 0.0]), b=[1, 2, 3])

    def encoded(rule):
        return Schema({"a": Numeric(0, 1, missing=rule), "b": [0, 3]}, intercept=0).encode(rows)

    assert encoded("lower")[:, 0].tolist() == [1, -1, -1]
    np.testing.assert_allclose(encoded("drop-row"), [[1, -1 / 3], [-1, 1]], rtol=1e-15)
    with pytest.raises(ValueError, match=r"Column 'a' has missing, NaN or infinite values. Declare missing="):
        encoded("error")


@pytest.mark.parametrize("column", [Numeric(0, 1), Boolean(), Categorical(["x"])])
def test_a_column_without_any_value_is_missing(column):
    with pytest.raises(ValueError, match="Column 'a' has missing"):
        Schema({"a": column}).encode(batch(a=pa.nulls(3)))
    kept = Schema({"a": type(column)(**(_fields(column) | {"missing": "drop-row"}))})
    assert len(kept.encode(batch(a=pa.nulls(3)))) == 0


def _fields(column):
    return {name: getattr(column, name) for name in column.__dataclass_fields__}


def test_huge_values_are_clipped_even_where_their_sum_overflows():
    encoded = Schema({"a": [0, 1]}, intercept=0).encode(batch(a=[1.7e308, 1.7e308, -1.7e308, 0.5]))
    assert encoded.ravel().tolist() == [1, 1, -1, 0]


@PROPERTY
@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=20), st.data())
def test_every_row_is_encoded_by_itself(values, data):
    schema = Schema(
        {"a": Numeric(-1, 1, missing="lower"), "b": Categorical(["x"], missing="level", unknown="zero")}, row_norm=1.0
    )
    labels = data.draw(st.lists(st.sampled_from(["x", "y", None]), min_size=len(values), max_size=len(values)))
    rows = batch(a=pa.array(values, pa.float64()), b=pa.array(labels, pa.string()))
    together = schema.encode(rows)
    alone = [schema.encode(rows.slice(i, 1)) for i in range(len(values))]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_levels_missing_and_unknown():
    rows = batch(a=["x", "q", None])
    with pytest.raises(ValueError, match="Column 'a' has missing"):
        Schema({"a": Categorical(["x"], unknown="zero")}).encode(rows)
    with pytest.raises(
        ValueError, match=r"Column 'a' has values that are not among its levels. Add the levels, or"
    ) as e:
        Schema({"a": Categorical(["x"], missing="level")}).encode(rows)
    assert "q" not in str(e.value).replace("unknown", "").split("'a'")[1]
    dropped = Schema({"a": Categorical(["x"], missing="drop-row", unknown="other")}, intercept=0)
    assert dropped.encode(rows).tolist() == [[1, 0], [0, 1]]


def test_blocks_reuse_one_buffer_and_serve_accumulate():
    rng = np.random.default_rng(0)
    parts = [batch(a=rng.uniform(-2, 2, n), b=rng.uniform(-2, 2, n)) for n in (7, 50, 3)]
    schema = Schema.from_({"a": [-1, 1], "b": [-2, 2]})
    separate = accumulate(((schema.encode(part), None) for part in parts), schema.row_encoder)
    np.testing.assert_array_equal(accumulate(schema.blocks(parts), schema.row_encoder).gram(), separate.gram())
    blocks = schema.blocks(parts[1:])
    assert np.shares_memory(next(blocks)[0], next(blocks)[0])
    rows = np.concatenate([schema.encode(part) for part in parts]) / schema.norm
    np.testing.assert_allclose(separate.gram(), rows.T @ rows, rtol=1e-5, atol=1e-4)


def test_blocks_are_bounded_however_many_levels_there_are():
    schema = Schema({"a": Categorical(range(5000))})
    sizes = [len(block) for block, _ in schema.blocks([batch(a=np.arange(3000) % 5000)])]
    assert sum(sizes) == 3000
    assert max(sizes) == 1024


# -- wrong tables -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ([0, 1], ["1"], r"'a' must hold numbers, but its type is string. Cast it to a number, or declare it as cat"),
        ([0, 1], np.array(["2020-01-01"], "M8[s]"), "'a' must hold numbers, .* such as days since a fixed date"),
        ([0, 1], [[1.0]], "'a' must hold numbers, .* leave the column out"),
        ("boolean", ["yes"], r"'a' must hold true and false \(or 1 and 0\), but its type is string"),
        ({"levels": ["1"]}, [1], "'a' has the type int64, but its levels are strings. Cast the column to strings, or"),
        ({"levels": [1]}, ["1"], "'a' has the type string, but its levels are integers"),
        ({"levels": [1]}, [1.0], "'a' has the type double, but its levels are integers"),
        ({"levels": [1]}, [True], "'a' has the type bool, but its levels are integers"),
        ({"levels": [True]}, [1], "'a' has the type int64, but its levels are booleans"),
        ({"levels": ["x"]}, pa.array([1]).dictionary_encode(), "'a' has the type int64, but its levels are strings"),
    ],
)
def test_wrong_types(column, values, message):
    with pytest.raises(TypeError, match=message):
        Schema({"a": column}).encode(batch(a=values))


def test_columns_must_be_there_once():
    with pytest.raises(ValueError, match="Column 'a' is not in the table"):
        Schema({"a": [0, 1]}).encode(batch(b=[1]))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="Column 'a' is in the table twice"):
        Schema({"a": [0, 1]}).encode(twice)


# -- declaring --------------------------------------------------------------------------------------------------
@PROPERTY
@given(schemas)
def test_written_and_read_back_exactly(schema):
    again = Schema.from_(json.loads(schema.to_json()))
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.fingerprint == schema.fingerprint
    assert again.to_dict() == schema.to_dict()
    assert again.norm == schema.norm
    copy = pickle.loads(pickle.dumps(schema))
    assert copy == schema
    assert Schema.from_(schema) is schema


def test_files(tmp_path):
    (tmp_path / "s.json").write_text(TABLE.to_json(), encoding="utf-8")
    assert Schema.from_(tmp_path / "s.json") == TABLE
    (tmp_path / "s.toml").write_text(
        """
        intercept = 0.5
        row_norm = 2
        [columns]
        age = [0, 100]
        smoker = "boolean"
        sex = {levels = ["f", "m"], unknown = "other"}
        """
    )
    assert Schema.from_(str(tmp_path / "s.toml")) == Schema(
        {"age": Numeric(0, 100), "smoker": Boolean(), "sex": Categorical(["f", "m"], unknown="other")},
        intercept=0.5,
        row_norm=2.0,
    )


def test_what_distinguishes_schemas():
    different = [
        Schema({"a": [0, 1], "b": [0, 1]}),
        Schema({"b": [0, 1], "a": [0, 1]}),
        Schema({"a": [0, 1], "b": [0, 2]}),
        Schema({"a": [0, 1], "b": [0, 1]}, intercept=0),
        Schema({"a": [0, 1], "b": [0, 1]}, row_norm=1),
        Schema({"a": {"levels": [1, 0]}}),
        Schema({"a": {"levels": [True, False]}}),
        Schema({"a": {"levels": ["1", "0"]}}),
    ]
    assert len(set(different)) == len({schema.fingerprint for schema in different}) == len(different)
    assert Schema({"a": [-0.0, 1]}) == Schema({"a": [0, 1]})
    assert different[0] != "a schema"


def test_fingerprint_is_stable():
    assert Schema({"a": [0, 1]}).fingerprint == "52b3f5794eca4f2282f6717232ead8188dcf7fd5aa832fd16a019ab7ccf326e7"


def test_a_schema_cannot_be_changed():
    with pytest.raises(TypeError):
        TABLE.columns["age"] = Numeric(0, 1)
    with pytest.raises(AttributeError):
        TABLE.intercept = 0.0


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, "columns must not be empty"),
        ({"columns": {}}, "columns must not be empty"),
        ({"a": [1, 0]}, "Column 'a': lower and upper must be finite with lower < upper, got 1.0 and 0.0"),
        ({"a": [1, 1]}, "A constant column carries no information"),
        ({"a": [0, math.inf]}, "lower and upper must be finite"),
        ({"a": [math.nan, 1]}, "lower must be a real number, got nan"),
        ({"a": [None, 1]}, "Column 'a': lower is not declared. Fill in a bound. It must be fixed before the data"),
        ({"a": {"lower": 0}}, "Column 'a': upper is not declared"),
        ({"a": {}}, "Column 'a': lower is not declared"),
        ({"a": ["0", 1]}, "lower must be a real number, got '0' of type str"),
        ({"a": [0, 1, 2]}, r"Column 'a': a list must be \[lower, upper\], got 3 entries"),
        ({"a": 3}, "Column 'a': a column cannot be declared by int. Declare a number by"),
        ({"a": "number"}, "Column 'a': a column cannot be declared by str"),
        ({"a": {"type": "float"}}, "type must be one of 'numeric', 'categorical', 'boolean', got 'float'"),
        ({"a": {"type": "unsupported"}}, "Column 'a': its type cannot be encoded. Cast it"),
        ({"a": {"lower": 0, "upper": 1, "wieght": 2}}, "unknown key 'wieght' in a numeric column; it may have lower"),
        ({"a": {"levels": None}}, "Column 'a': levels are not declared. Fill in the list"),
        ({"a": {"levels": []}}, "levels must not be empty"),
        ({"a": {"levels": "xy"}}, "levels must be a list of strings, of integers or of booleans, got str"),
        ({"a": {"levels": ["x", "x"]}}, "levels must differ from each other"),
        ({"a": {"levels": ["x", 1]}}, "all strings, all integers or all booleans, got int, str"),
        ({"a": {"levels": [0.5]}}, "Fractions are no levels"),
        ({"a": {"levels": [2**63]}}, "must fit into 64 bits"),
        ({"a": {"levels": ["\ud800"]}}, "levels must be valid Unicode text"),
        ({"a": {"levels": ["x"], "missing": "lower"}}, "missing must be one of 'error', 'drop-row', 'level', got"),
        ({"a": {"levels": ["x"], "unknown": "drop"}}, "unknown must be one of 'error', 'zero', 'other'"),
        ({"a": {"lower": 0, "upper": 1, "missing": "level"}}, "missing must be one of 'error', 'drop-row', 'lower'"),
        ({"a": {"type": "boolean", "missing": "level"}}, "missing must be one of 'error', 'drop-row', 'lower'"),
        ({"a": {"lower": 0, "upper": 1, "weight": 0}}, "weight must be a finite number > 0"),
        ({"a": {"type": "boolean", "weight": 1e40}}, r"weight must lie between 2\*\*-100 and 2\*\*100"),
        ({1: [0, 1]}, "A column's name must be a string, not empty, got 1"),
        ({"": [0, 1]}, "A column's name must be a string, not empty"),
        ({"\ud800": [0, 1]}, "A column's name must be valid Unicode text"),
        ({"columns": {"a": [0, 1]}, "norm": 1}, "Unknown key 'norm' in a schema; it may have columns, intercept, row"),
        ({"columns": {"a": [0, 1]}, "intercept": -1}, "intercept must be 0 or a finite number > 0, got -1.0"),
        ({"columns": {"a": [0, 1]}, "row_norm": 0}, "row_norm must be a finite number > 0"),
        ({"columns": {"a": [0, 1]}, "row_norm": 1e40}, r"row_norm must lie between 2\*\*-100 and 2\*\*100"),
        ({"columns": ["a"]}, "columns must map names to columns, got list"),
        ({"(intercept)": [0, 1]}, r"A column cannot be called '\(intercept\)'"),
        ({"a=x": [0, 1], "a": {"levels": ["x"]}}, "Two encoded columns would be called 'a=x'"),
        ({"a": {"levels": ["(other)"], "unknown": "other"}}, r"Two encoded columns would be called 'a=\(other\)'"),
    ],
)
def test_wrong_declarations(declared, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Schema.from_(declared)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.yaml", "a: 1", "must end in .toml or .json"),
        ("s.json", "{", "s.json is not a valid JSON file"),
        ("s.toml", "a = [", "s.toml is not a valid TOML file"),
        ("s.json", "[1]", "must hold one object"),
        ("s.json", '{"a": [0, 1], "a": [0, 2]}', "not a valid JSON file: a key occurs twice"),
        ("s.toml", "a = [0, 1]\na = [0, 2]", "not a valid TOML file"),
    ],
)
def test_wrong_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises((TypeError, ValueError), match=message):
        Schema.from_(tmp_path / name)


# -- the template -----------------------------------------------------------------------------------------------
def test_template_has_names_and_types_only():
    source = pa.schema(
        {
            "age": pa.int32(),
            "cost": pa.decimal128(9, 2),
            "sex": pa.dictionary(pa.int8(), pa.string()),
            "smoker": pa.bool_(),
            "born": pa.timestamp("us"),
        }
    )
    template = describe_columns(source)
    bounds = {"type": "numeric", "lower": None, "upper": None}
    assert template["columns"] == {
        "age": bounds,
        "cost": bounds,
        "sex": {"type": "categorical", "levels": None},
        "smoker": {"type": "boolean"},
        "born": {"type": "unsupported", "arrow_type": "timestamp[us]"},
    }
    again = json.loads(json.dumps(template))
    with pytest.raises(ValueError, match="Column 'age': lower is not declared"):
        Schema.from_(again)
    again["columns"] |= {"age": [0, 120], "cost": [0, 9], "sex": {"levels": ["f", "m"]}}
    with pytest.raises(ValueError, match="Column 'born': its type cannot be encoded"):
        Schema.from_(again)
    del again["columns"]["born"]
    assert Schema.from_(again).names == ("age", "cost", "sex=f", "sex=m", "smoker", "(intercept)")


def test_text_types_leave_nothing_to_guess():
    assert dict(TABLE.text_types) == {
        "age": pa.float64(),
        "sex": pa.string(),
        "smoker": pa.bool_(),
        "income": pa.float64(),
        "region": pa.int64(),
    }


def test_the_name_of_the_intercept_is_taken():
    with pytest.raises(ValueError, match="the name of the constant column"):
        Schema.from_({"(intercept)": {"levels": ["a", "b"]}})


def test_booleans_in_numbers_must_be_zero_and_one():
    schema = Schema.from_({"sex": "boolean"})
    good = pa.RecordBatch.from_pydict({"sex": [0, 1, 1]})
    assert schema.encode(good)[:, 0].tolist() == [-1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="holds numbers other than 0 and 1"):
        schema.encode(pa.RecordBatch.from_pydict({"sex": [1, 2, 2]}))
