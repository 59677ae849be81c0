"""Schemas of others: what is read, what is written, and what is said to be lost."""

from __future__ import annotations

import json

import pytest
import yaml

from gaussmix.errors import ArgumentTypeError, DeclarationError
from gaussmix.tables.interchange import Declaration, read_schema, written
from gaussmix.tables.schema import Schema
from gaussmix.tables.undeclared import Undeclared

OURS = {
    "age": {"type": "numeric", "lower": 0.0, "upper": 110.0},
    "smoker": {"type": "boolean"},
    "sex": {"type": "categorical", "levels": ["f", "m"]},
    "region": {"type": "categorical", "levels": [1, 2, 3]},
}


@pytest.mark.parametrize("kind", ["frictionless", "csvw-eo", "smartnoise"])
def test_a_schema_comes_back_from_every_format(tmp_path, kind):
    text, losses = written(Declaration(OURS), kind)
    assert losses == ()
    file = tmp_path / ("s.yaml" if kind == "smartnoise" else "s.json")
    file.write_text(text, encoding="utf-8")
    back = read_schema(file)
    assert back.losses == ()
    assert Schema.of({"columns": back.columns}) == Schema.of({"columns": OURS})
    ours, _ = written(back, "gaussmix")
    assert Schema.of(json.loads(ours)) == Schema.of({"columns": OURS})


def read(tmp_path, content, name="s.json"):
    file = tmp_path / name
    file.write_text(json.dumps(content) if name.endswith("json") else yaml.safe_dump(content), encoding="utf-8")
    return read_schema(file)


def test_frictionless_with_what_it_cannot_say(tmp_path):
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 110}},
        {"name": "job", "type": "string", "constraints": {"enum": ["a", "b"], "pattern": "."}},
        {"name": "free"},
        {"name": "born", "type": "date"},
        {"name": "open", "type": "number", "constraints": {"minimum": 0}},
    ]
    found = read(tmp_path, {"resources": [{"name": "t", "schema": {"fields": fields}}]})
    assert found.columns["age"] == {"type": "numeric", "lower": 0.0, "upper": 110.0}
    assert found.columns["job"]["levels"] == ["a", "b"]
    assert found.columns["free"] == {"type": "categorical", "levels": None, "unknown": "other"}
    assert found.columns["open"] == {"type": "numeric", "lower": 0.0, "upper": None}
    assert found.losses == ("pattern of 'job'", "the type 'date' of 'born', which cannot be encoded")
    with pytest.raises(DeclarationError, match="not declared"):
        Schema.of({"columns": {k: v for k, v in found.columns.items() if k != "born"}})
    left_open = Undeclared.of({"columns": {k: v for k, v in found.columns.items() if k != "born"}})
    assert left_open.names == ["open", "free"]  # what is not known can be proposed


def test_csvw_eo_has_the_unit_of_privacy(tmp_path):
    table = {
        "@type": "csvw:Table",
        "csvw-eo:privacyUnit": "penguin_id",
        "maxContributions": 3,
        "maxLength": 1000,
        "tableSchema": {
            "columns": [
                {"name": "penguin_id", "datatype": "string", "privacyId": True},
                {"name": "species", "datatype": "string", "keyValues": ["Adelie", "Gentoo"], "exhaustiveKeys": True},
                {"name": "island", "datatype": "string", "keyValues": ["Biscoe"]},
                {"name": "mass", "datatype": "double", "lowerBound": 2000, "upperBound": 7000},
                {"name": "year", "datatype": {"base": "integer", "minimum": 2000, "maximum": 2030}},
            ]
        },
    }
    found = read(tmp_path, table)
    assert (found.unit, found.rows_per_unit) == ("penguin_id", 3)
    assert "penguin_id" not in found.columns
    assert "unknown" not in found.columns["species"]
    assert found.columns["island"]["unknown"] == "other"  # others may occur
    assert found.columns["year"] == {"type": "numeric", "lower": 2000.0, "upper": 2030.0}
    assert found.losses == ("maxLength of the table",)
    text, losses = written(found, "gaussmix")
    assert "penguin_id" not in text
    assert losses[-1].startswith("the unit of privacy, 'penguin_id', at most 3 rows each")
    again = json.loads(written(found, "csvw-eo")[0])
    assert (again["privacyUnit"], again["maxContributions"]) == ("penguin_id", 3)
    noise = yaml.safe_load(written(found, "smartnoise")[0])[""]["Schema"]["Table"]
    assert (noise["row_privacy"], noise["max_ids"], noise["penguin_id"]["private_id"]) == (False, 3, True)


def test_smartnoise_with_one_table(tmp_path):
    table = {
        "row_privacy": False,
        "max_ids": 2,
        "rows": 1000,
        "pid": {"type": "int", "private_id": True},
        "age": {"type": "int", "lower": 0, "upper": 100},
        "income": {"type": "float"},
        "job": {"type": "string", "cardinality": 9},
        "when": {"type": "datetime"},
    }
    found = read(tmp_path, {"": {"PUMS": {"PUMS": table}}}, "s.yaml")
    assert (found.unit, found.rows_per_unit) == ("pid", 2)
    assert found.columns["age"] == {"type": "numeric", "lower": 0.0, "upper": 100.0}
    assert found.columns["income"]["upper"] is None
    assert found.columns["job"]["levels"] is None
    assert found.losses == ("rows of the table", "the type 'datetime' of 'when', which cannot be encoded")
    rows = read(tmp_path, {"": {"PUMS": {"PUMS": {**table, "row_privacy": True}}}}, "s.yaml")
    assert rows.unit is None
    with pytest.raises(DeclarationError, match="one table, found 2"):
        read(tmp_path, {"": {"PUMS": {"A": {}, "B": {}}}}, "s.yaml")


def test_what_has_no_words_is_said_or_refused():
    declared = Declaration(
        {"a": {"type": "numeric", "lower": 0, "upper": 1, "weight": 2.0, "missing": "drop-row"}},
        rest={"intercept": 0.5, "max_row_norm": None},
    )
    assert written(declared, "csvw-eo")[1] == ("intercept = 0.5", "the weight of 'a'", "missing='drop-row' of 'a'")
    vector = Declaration({"v": {"type": "vector", "size": 3, "norm": 1.0}})
    for kind in ("frictionless", "csvw-eo", "smartnoise"):
        with pytest.raises(DeclarationError, match="Column 'v': a vector column has no place"):
            written(vector, kind)
    other = Declaration({"j": {"type": "categorical", "levels": ["a"], "unknown": "other"}})
    with pytest.raises(DeclarationError, match="an enum allows no other value"):
        written(other, "frictionless")
    assert written(other, "csvw-eo")[1] == ()
    with pytest.raises(DeclarationError, match="rename it"):
        written(Declaration({"row_privacy": {"type": "boolean"}}), "smartnoise")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"fields": [{"type": "number"}]}, "must have a name"),
        ({"fields": [3]}, "list of fields"),
        ({"resources": []}, "one table"),
        ({"tableSchema": {}}, "list of columns"),
        ({"tableSchema": {"columns": [{"name": "a", "datatype": "double", "lowerBound": "0"}]}}, "must be a number"),
        ({"tableSchema": {"columns": []}, "maxContributions": 0}, "maxContributions must be"),
        ({"columns": 3}, "columns must map"),
    ],
)
def test_what_is_no_schema_is_refused(tmp_path, content, words):
    with pytest.raises((DeclarationError, ArgumentTypeError), match=words):
        read(tmp_path, content)


def test_no_valid_yaml_is_said_without_its_content(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("a: [secret", encoding="utf-8")
    with pytest.raises(DeclarationError, match=r"is not a valid YAML file\.$"):
        read_schema(file)
