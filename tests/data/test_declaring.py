"""Short forms of columns: what they mean, what they may not be, and back without loss."""

import json
import math

import pytest
from hypothesis import given, settings

import gaussmix as gm
from declared_schemas import columns
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import PartialSchema, Schema, parse_column


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ([0, 100], Numeric(0, 100)),
        ((0, 100), Numeric(0, 100)),
        ({"lower": 0, "upper": 9, "weight": 2, "missing": "drop-row"}, Numeric(0, 9, weight=2, missing="drop-row")),
        (["a", "b"], Categorical(["a", "b"])),
        ([False, True], Categorical([False, True])),
        ({"levels": [1, 2]}, Categorical([1, 2])),
        ("boolean", Boolean()),
        ({"type": "boolean", "weight": 3}, Boolean(weight=3)),
        ({"size": 8, "norm": 1.0}, Vector(8, norm=1.0)),
        ({"size": 2, "lower": 0, "upper": [1, 2], "weight": 0.5}, Vector(2, lower=0, upper=[1, 2], weight=0.5)),
        ({"type": "vector", "size": 2, "lower": 0, "upper": 1, "norm": None}, Vector(2, lower=0, upper=1)),
        (Numeric(0, 1), Numeric(0, 1)),
    ],
)
def test_short_forms(declared, column):
    assert parse_column(declared) == column


@pytest.mark.slow
@settings(max_examples=200)
@given(columns)
def test_written_and_read_back_exactly(column):
    assert parse_column(json.loads(json.dumps(Schema({"a": column}).to_dict()["columns"]["a"]))) == column


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ([1, 0], r"Column 'a': lower must be less than upper, got lower=1.0 and upper=0.0. Swap them"),
        ([1, 1], "Omit constant columns"),
        ([0, math.inf], "lower and upper must be finite"),
        ([math.nan, 1], "lower must be a real number, got nan"),
        ([None, 1], "Column 'a': lower is not declared. Fill in a bound. Declare values without looking at the data"),
        ({"lower": 0}, "Column 'a': upper is not declared"),
        ({}, "Column 'a': lower and upper are not declared"),
        (["0", 1], "bounds must be numbers, without quotes"),
        ([0, 1, 2], r"Column 'a': a list must be two numbers \[lower, upper\].*, got 3 entries"),
        (3, "Column 'a': a column cannot be declared by an object of type int. Declare a numeric column by"),
        ("number", r"Column 'a': 'number' does not declare a column: a number needs bounds: \[lower, upper\]"),
        ("number?", r"its type 'number\?' was guessed from the rows. Confirm it by removing the question mark"),
        ("Numeric", "a number needs bounds"),
        ("category?", r"its type 'category\?' was guessed from the rows"),
        ("bool", 'a column of true and false is declared by "boolean"'),
        ("date", "a date needs bounds"),
        ("vector", "a vector needs its size"),
        ("x", "'x' does not declare a column. Declare a numeric column by"),
        ({"type": "float"}, "type must be one of 'numeric', 'boolean', 'categorical', 'vector', 'date', got 'float'"),
        ({"type": ["numeric"]}, "type must be one of"),
        ({"type": "unsupported"}, "Column 'a': its type is not supported. Cast it"),
        ({"lower": 0, "upper": 1, "wieght": 2}, "unknown key 'wieght' in a numeric column; allowed keys are lower"),
        ({"levels": None}, "Column 'a': levels must be declared: list every level"),
        ({"levels": []}, "levels must not be empty"),
        ({"levels": "xy"}, "levels must be a list of strings, of integers or of booleans, got str"),
        ({"levels": ["x", "x"]}, "levels must not contain duplicates, got 'x' twice"),
        ({"levels": ["x", 1]}, "all strings, all integers or all booleans, got int, str"),
        ({"levels": [0.5]}, "For fractional values"),
        ({"levels": [1, 1.0]}, "levels must not contain duplicates, got 1 twice"),
        (["16", "60.5"], r"Column 'a': bounds must be numbers, without quotes. .* declare {\"levels\": \[\"16\""),
        ({"levels": [2**63]}, "must fit into 64 bits"),
        ({"levels": ["\ud800"]}, "levels must be valid Unicode text"),
        ({"levels": ["x"], "missing": "lower"}, "missing must be one of 'error', 'drop-row', 'level', got"),
        ({"levels": ["x"], "unknown": "drop"}, "unknown must be one of 'error', 'zero', 'other'"),
        ({"lower": 0, "upper": 1, "missing": "level"}, "missing must be one of 'error', 'drop-row', 'lower'"),
        ({"type": "boolean", "missing": "level"}, "missing must be one of 'error', 'drop-row', 'lower'"),
        ({"lower": 0, "upper": 1, "weight": 0}, "weight must be a finite number > 0"),
        ({"type": "boolean", "weight": 1e40}, r"weight must lie between 2\*\*-100 and 2\*\*100"),
        ({"size": 2}, "Column 'a': lower and upper, or norm, must be declared"),
        ({"size": None, "norm": 1}, "Column 'a': size must be an integer"),
        ({"type": "vector", "norm": 1}, "Column 'a': size must be an integer"),
        ({"size": 2, "norm": 1, "levels": ["a"]}, "unknown key 'size' in a categorical column"),
        ({"size": 2, "norm": 1, "missing": "lower"}, "missing must be one of 'error', 'drop-row', got 'lower'"),
        ({"size": 2, "lower": 0}, "Column 'a': lower and upper must be declared together"),
    ],
)
def test_wrong_declarations(declared, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Schema.of({"a": declared})


@pytest.mark.parametrize("read", [Schema.of, PartialSchema.of], ids=["declared", "open"])
@pytest.mark.parametrize("key", ["column", "Columns", "colums"])
def test_a_misspelt_key_of_the_columns_is_named(read, key):
    with pytest.raises(gm.DeclarationError, match=f"Unknown key '{key}' in a schema: the key is \"columns\""):
        read({key: {"age": {"lower": 0, "upper": None}, "sex": ["f", "m"]}, "intercept": 1.0})


def test_a_column_may_have_nearly_the_name_of_the_key():
    assert Schema.of({"column": {"lower": 0, "upper": 1}, "Columns": [0, 1]}).names[:2] == ("column", "Columns")
