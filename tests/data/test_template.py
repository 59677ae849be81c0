"""The template of a schema: names and types only, refused until bounds and levels are filled in."""

import json

import pyarrow as pa
import pytest

from gaussmix.data.schema import Schema, describe_columns


def test_template_has_names_and_types_only():
    source = pa.schema(
        {
            "age": pa.int32(),
            "cost": pa.decimal128(9, 2),
            "sex": pa.dictionary(pa.int8(), pa.string()),
            "smoker": pa.bool_(),
            "born": pa.timestamp("us"),
            "photo": pa.binary(),
        }
    )
    template = describe_columns(source)
    bounds = {"type": "numeric", "lower": None, "upper": None}
    assert template["columns"] == {
        "age": bounds,
        "cost": bounds,
        "sex": {"type": "categorical", "levels": None},
        "smoker": {"type": "boolean"},
        "born": {"type": "date", "lower": None, "upper": None},
        "photo": {"type": "unsupported", "arrow_type": "binary"},
    }
    again = json.loads(json.dumps(template))
    with pytest.raises(ValueError, match="Column 'age': lower and upper are not declared"):
        Schema.of(again)
    again["columns"] |= {"age": [0, 120], "cost": [0, 9], "sex": {"levels": ["f", "m"]}}
    with pytest.raises(ValueError, match="2 columns are not declared correctly"):
        Schema.of(again)
    again["columns"]["born"] = {"type": "date", "lower": "1900-01-01", "upper": "2030-01-01"}
    with pytest.raises(ValueError, match="Column 'photo': its type is not supported"):
        Schema.of(again)
    del again["columns"]["photo"]
    assert Schema.of(again).names == ("age", "cost", "sex=f", "sex=m", "smoker", "born", "(intercept)")


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int8()], ids=str)
def test_vectors_of_a_size_wait_for_their_bounds(kind):
    template = describe_columns(pa.schema({"v": pa.list_(kind, 3)}))
    assert template["columns"] == {"v": {"type": "vector", "size": 3, "norm": None}}
    with pytest.raises(ValueError, match="Column 'v': lower and upper, or norm, must be declared"):
        Schema.of(template)
    template["columns"]["v"]["norm"] = 1.0
    assert Schema.of(template).names == ("v[0]", "v[1]", "v[2]", "(intercept)")


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.string(), 3), pa.binary()], ids=str)
def test_what_has_no_declared_size_or_no_numbers_is_not_guessed(kind):
    template = describe_columns(pa.schema({"v": kind}))
    assert template["columns"] == {"v": {"type": "unsupported", "arrow_type": str(kind)}}
