"""Schema: declared, public, exact to write and read; C is the longest row that its columns allow."""

import json
import math
import pickle
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gaussmix as gm
from declared_schemas import corner_rows, schemas, vector_array
from encoded_rows import plain_rows
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import Schema, _terms, stored_schema

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


def squared_norm(row):
    return sum(Fraction(value) ** 2 for value in row)


def with_boxes(schema):
    """Without norms: corners of boxes are exact, where points of a sphere are rounded."""
    columns = {
        name: Vector(column.size, lower=-1.0, upper=column.intervals[0][1], weight=column.weight)
        if isinstance(column, Vector) and column.norm is not None
        else column
        for name, column in schema.columns.items()
    }
    return Schema(columns, intercept=schema.intercept, max_row_norm=schema.max_row_norm)


# -- C ----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@PROPERTY
@given(schemas.map(with_boxes))
def test_row_norm_is_the_longest_row_over_the_corners(schema):
    """For vectors with a norm see test_encoder, in integers."""
    implied = Schema(schema.columns, intercept=schema.intercept).row_norm
    longest = max(squared_norm(row) for row in plain_rows(schema, corner_rows(schema)).tolist())
    assert longest <= Fraction(implied) ** 2  # exactly
    assert math.sqrt(longest) >= implied * (1 - 1e-15)
    assert schema.row_norm == (implied if schema.max_row_norm is None else min(implied, schema.max_row_norm))


@PROPERTY
@given(schemas)
def test_row_norm_is_rounded_up_from_the_exact_root(schema):
    exact = sum(column.squared_norm for column in schema.columns.values()) + Fraction(schema.intercept) ** 2
    implied = Schema(schema.columns, intercept=schema.intercept).row_norm
    assert Fraction(math.nextafter(implied, 0)) ** 2 < exact <= Fraction(implied) ** 2
    assert schema.norm_of(schema.columns, intercept=True) == implied
    names = list(schema.columns)[:2]
    part = sum(schema.columns[name].squared_norm for name in names)
    assert Fraction(math.nextafter(schema.norm_of(names), 0)) ** 2 < part <= Fraction(schema.norm_of(names)) ** 2


def test_row_norm_counts_one_level_per_categorical_column():
    assert TABLE.row_norm**2 == pytest.approx(1 + 4 + 1 + 0.25 + 1 + 1)


def test_row_norm_counts_a_vector_by_its_norm():
    assert Schema({"v": Vector(9, norm=7.0)}, intercept=0).row_norm == 1
    assert Schema({"v": Vector(9, lower=0, upper=1)}, intercept=0).row_norm == 3
    assert Schema({"v": Vector(9, lower=0, upper=1, norm=0.5, weight=4)}, intercept=0).row_norm == 2


# -- the encoded row --------------------------------------------------------------------------------------------
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
    vectors = Schema({"v": Vector(2, norm=1), "a": [0, 1], "w": Vector(1, norm=1)})
    assert vectors.names == ("v[0]", "v[1]", "a", "w[0]", "(intercept)")
    assert dict(vectors.groups) == {"v": (0, 1), "a": (2,), "w": (3,), "(intercept)": (4,)}
    assert [c.kind for c in vectors.encoded] == ["entry", "entry", "numeric", "entry", "intercept"]


@PROPERTY
@given(schemas, st.integers(0, 2**32 - 1))
def test_decoding_inverts_the_encoding(schema, seed):
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
        elif isinstance(column, Vector):
            centre, half_range = np.array(column.intervals).T
            values = centre + half_range * rng.uniform(-1, 1, (5, column.size))
            table[name] = vector_array(values)
            indicators += list(values.T)
        else:
            values = rng.uniform(column.lower, column.upper, 5)
            table[name] = pa.array(values)
            indicators.append(values)
    if schema.intercept:
        indicators.append(np.ones(5))
    centre, scale = schema.units.centres, schema.units.scales
    scale = np.where([column.kind == "intercept" for column in schema.encoded], 1 / (schema.intercept or 1), scale)
    encoded = plain_rows(schema, pa.table(table))
    np.testing.assert_allclose(encoded * scale + centre, np.column_stack(indicators), rtol=1e-9, atol=1e-9 * 1e6)
    np.testing.assert_allclose(encoded, (np.column_stack(indicators) - centre) / scale, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@PROPERTY
@given(schemas)
def test_the_scale_of_the_intercept_is_that_of_its_rounded_entry(schema):
    if schema.intercept and schema.in_units(schema.intercept):
        scale = schema.units.scales
        assert scale[-1] == 1 / schema.rounded_intercept
        assert 0 <= schema.intercept - schema.rounded_intercept <= 2**-20 * schema.row_norm * (1 + 1e-9)  # in floats


def test_text_types_leave_nothing_to_guess():
    assert dict(TABLE.text_types) == {
        "age": pa.float64(),
        "sex": pa.string(),
        "smoker": pa.bool_(),
        "income": pa.float64(),
        "region": pa.float64(),  # codes may be written as 1.0
    }
    assert Schema.of({"a": {"levels": [1, 2**53]}}).text_types["a"] == pa.int64()  # which doubles do not distinguish
    assert dict(Schema({"v": Vector(3, norm=1)}).text_types) == {"v": pa.list_(pa.float64(), 3)}


# -- declaring --------------------------------------------------------------------------------------------------
@PROPERTY
@given(schemas)
def test_written_and_read_back_exactly(schema):
    again = Schema.of(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.fingerprint == schema.fingerprint
    assert again.to_dict() == schema.to_dict()
    assert again.row_norm == schema.row_norm
    copy = pickle.loads(pickle.dumps(schema))
    assert copy == schema
    assert Schema.of(schema) is schema


def test_files(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(TABLE.to_dict()), encoding="utf-8")
    assert Schema.of(tmp_path / "s.json") == TABLE
    (tmp_path / "s.toml").write_text(
        """
        intercept = 0.5
        max_row_norm = 2
        [columns]
        age = [0, 100]
        smoker = "boolean"
        sex = {levels = ["f", "m"], unknown = "other"}
        """
    )
    assert Schema.of(str(tmp_path / "s.toml")) == Schema(
        {"age": Numeric(0, 100), "smoker": Boolean(), "sex": Categorical(["f", "m"], unknown="other")},
        intercept=0.5,
        max_row_norm=2.0,
    )


def test_what_distinguishes_schemas():
    different = [
        Schema({"a": [0, 1], "b": [0, 1]}),
        Schema({"b": [0, 1], "a": [0, 1]}),
        Schema({"a": [0, 1], "b": [0, 2]}),
        Schema({"a": [0, 1], "b": [0, 1]}, intercept=0),
        Schema({"a": [0, 1], "b": [0, 1]}, max_row_norm=1),
        Schema({"a": {"levels": [1, 0]}}),
        Schema({"a": {"levels": [True, False]}}),
        Schema({"a": {"levels": ["1", "0"]}}),
        Schema({"a": Vector(2, norm=1)}),
        Schema({"a": Vector(3, norm=1)}),
        Schema({"a": Vector(2, norm=2)}),
        Schema({"a": Vector(2, norm=1, weight=2)}),
        Schema({"a": Vector(2, norm=1, missing="drop-row")}),
        Schema({"a": Vector(2, lower=-1, upper=1, norm=1)}),
        Schema({"a": Vector(2, lower=-1, upper=1)}),
        Schema({"a": Vector(2, lower=-1, upper=(1, 2))}),
    ]
    assert len(set(different)) == len({schema.fingerprint for schema in different}) == len(different)
    assert Schema({"a": [-0.0, 1]}) == Schema({"a": [0, 1]})
    assert different[0] != "a schema"


def test_fingerprint_is_stable():
    assert Schema({"a": [0, 1]}).fingerprint == "fc7da6081717eb0533e9682dd9c04e0833009434ac3c1c29ce4f767e0a413e25"


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
        ({1: [0, 1]}, "A column name must be a nonempty string, got 1"),
        ({"": [0, 1]}, "A column name must be a nonempty string"),
        ({"\ud800": [0, 1]}, "A column's name must be valid Unicode text"),
        (
            {"columns": {"a": [0, 1]}, "norm": 1},
            "Unknown key 'norm' in a schema; allowed keys are columns, intercept, max",
        ),
        ({"columns": {"a": [0, 1]}, "intercept": -1}, r"intercept must be 0 or lie between 2\*\*-100 and .* got -1\.0"),
        (
            {"columns": {"a": {"lower": 0, "upper": 1, "weight": 1e7}}, "intercept": 1},
            "intercept must be at least 2\\*\\*-20 times the row norm bound .* Declare a larger intercept, intercept=0",
        ),
        ({"columns": {"a": [0, 1]}, "max_row_norm": 0}, "max_row_norm must be a finite number > 0"),
        ({"columns": {"a": [0, 1]}, "max_row_norm": 1e40}, r"max_row_norm must lie between 2\*\*-100 and 2\*\*100"),
        ({"columns": ["a"]}, "columns must be a mapping of names to column declarations, got list"),
        ({"(intercept)": [0, 1]}, r"The column name '\(intercept\)' is reserved"),
        ({"(intercept)": {"levels": ["a", "b"]}}, "reserved for the intercept"),
        ({"a=x": [0, 1], "a": {"levels": ["x"]}}, "Two columns of the release would have the name 'a=x'"),
        (
            {"a": {"levels": ["(other)"], "unknown": "other"}},
            r"Two columns of the release would have the name 'a=\(other\)'",
        ),
        ({"v": {"size": 2, "norm": 1}, "v[1]": [0, 1]}, r"Two columns of the release would have the name 'v\[1\]'"),
    ],
)
def test_wrong_declarations(declared, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Schema.of(declared)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.yaml", "a: 1", "must end in .toml or .json"),
        ("s.json", "{", "s.json is not a valid JSON file"),
        ("s.toml", "a = [", "s.toml is not a valid TOML file"),
        ("s.json", "[1]", "must contain one object"),
        ("s.json", '{"a": [0, 1], "a": [0, 2]}', "not a valid JSON file: a key occurs twice"),
        ("s.toml", "a = [0, 1]\na = [0, 2]", "not a valid TOML file"),
    ],
)
def test_wrong_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises((TypeError, ValueError), match=message):
        Schema.of(tmp_path / name)


def test_a_stored_schema_is_an_object_and_never_a_path():
    schema = Schema({"a": [0, 1]}, max_row_norm=0.5)
    assert stored_schema(schema.to_dict()) == schema
    with pytest.raises(ValueError, match="Unknown key 'row_norm'"):
        stored_schema({"columns": {"a": [0, 1]}, "row_norm": 0.5})
    with pytest.raises(TypeError, match="must be a JSON object"):
        stored_schema("schema.json")


@pytest.mark.parametrize("side", ["a", " a + b ", "b+a", "a + a + c", "größe + x_1"])
def test_sums_of_columns_are_read_without_formulaic(side, monkeypatch):
    from formulaic.parser import DefaultFormulaParser

    parsed = [str(term) for term in DefaultFormulaParser().get_terms(side) if str(term) != "1"]
    monkeypatch.setitem(sys.modules, "formulaic.parser", None)
    assert list(_terms(side, side)) == parsed
    with pytest.raises(gm.MissingPackageError, match="formulaic"):
        _terms("a*b", "y ~ a*b")


def test_a_schema_file_that_does_not_exist_is_named():
    with pytest.raises(gm.errors.MissingFileError, match=r"The file none\.json does not exist"):
        Schema.of("none.json")
