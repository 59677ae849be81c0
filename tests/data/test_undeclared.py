"""Kinds without bounds, public grids, and the counts of single columns."""

from __future__ import annotations

import json
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gaussmix.data.counts import (
    COARSE_BINS,
    FINE_BINS,
    FineGrid,
    coarse_bins,
    coarse_interval,
    count_columns,
    count_finely,
)
from gaussmix.data.schema import PartialSchema, Schema, describe_columns
from gaussmix.data.table import open_table
from gaussmix.errors import ArgumentTypeError, DataTypeError, DeclarationError


def test_a_template_and_short_words_mean_the_same(tmp_path):
    template = describe_columns(pa.schema({"age": pa.int64(), "sex": pa.string(), "smoker": pa.bool_()}))
    found = PartialSchema.of(template)
    short = PartialSchema.of({"age": "number", "sex": "category", "smoker": "boolean"})
    assert (found.names, found.text_types, found.order) == (short.names, short.text_types, short.order)
    file = tmp_path / "open.json"
    file.write_text(json.dumps(template), encoding="utf-8")
    assert PartialSchema.of(file).names == ["age", "sex"]
    assert list(found.declared) == ["smoker"]
    schema = found.schema({"age": (0.0, 99.0)}, {"sex": ("f", "m")})
    assert list(schema.columns) == ["age", "sex", "smoker"]
    assert schema.columns["sex"].unknown == "other"


def test_options_are_kept_and_one_bound_may_be_declared():
    found = PartialSchema.of(
        {
            "columns": {
                "cost": {"lower": 0, "upper": None, "missing": "drop-row", "weight": 2},
                "job": {"levels": None, "unknown": "zero", "missing": "level"},
                "zip": "codes",
            },
            "intercept": 0.5,
        }
    )
    schema = found.schema({"cost": (0.0, 8.0)}, {"job": ("a",), "zip": (4, 7)})
    assert schema.intercept == 0.5
    assert (schema.columns["cost"].missing, schema.columns["cost"].weight) == ("drop-row", 2.0)
    assert schema.columns["job"].labels == ("a", "(missing)")
    assert schema.columns["zip"].levels == (4, 7)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "columns must map names"),
        ({"a": [0, 1]}, "there are no bounds or levels to estimate"),
        ({"a": "number", "b": {"levels": None, "unknown": "error"}}, "Column 'b': unknown must be \"other\""),
        ({"a": {"lower": None, "upper": None, "colour": 1}}, "Column 'a': unknown key 'colour'"),
        ({"a": {"levels": None, "missing": "lower"}}, "Column 'a': missing must be one of"),
        ({"a": {"lower": "x", "upper": None}}, "Column 'a': lower must be a real number"),
        ({"a": "number", "v": {"size": 3, "norm": None}}, "Column 'v': lower and upper, or norm"),
        ({"a": "category", "a=(other)": "number"}, "Two columns of the release would have the name 'a=\\(other\\)'"),
        ({"columns": {"a": "number"}, "intercept": -1}, "intercept must be 0 or lie between"),
    ],
)
def test_what_cannot_be_is_said_before_a_row_is_read(declared, words):
    with pytest.raises((DeclarationError, ArgumentTypeError, ValueError), match=words):
        PartialSchema.of(declared)


def test_a_whole_schema_leaves_nothing_to_propose():
    with pytest.raises(DeclarationError, match="there are no bounds or levels to estimate"):
        PartialSchema.of(Schema.of({"a": [0, 1]}))


def test_the_coarse_grid_covers_the_doubles_and_each_value_is_in_its_bin():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [
            rng.standard_normal(2000) * 10.0 ** rng.integers(-300, 300, 2000),
            [0.0, -0.0, 1e-300, -1e300, 1.0, 2.0, -2.0, 0.5, 2.0**-998, -(2.0**999)],
        ]
    )
    for value, index in zip(values, coarse_bins(values), strict=True):
        lower, upper = coarse_interval(int(index))
        assert lower <= value <= upper
        assert value == 0 or abs(value) < max(abs(lower), abs(upper))  # the end away from zero is open
        assert abs(index - COARSE_BINS // 2) <= 1 or max(abs(lower), abs(upper)) <= 2 * abs(value)
    ends = coarse_bins(np.array([5e-324, -5e-324, sys.float_info.max, -sys.float_info.max]))
    assert ends.tolist() == [COARSE_BINS // 2 + 1, COARSE_BINS // 2 - 1, COARSE_BINS - 1, 0]


def test_fine_grids_are_dyadic_and_cover():
    rng = np.random.default_rng(1)
    for _ in range(300):
        first, last = sorted(rng.choice(COARSE_BINS, 2, replace=False).tolist())
        lower, upper = coarse_interval(first)[0], coarse_interval(last)[1]
        grid = FineGrid.between(lower, upper)
        assert 64 <= grid.bins <= FINE_BINS
        lost = grid.step * 1e-9  # what is so much smaller than a bin is lost in a double
        assert grid.edge(0) <= lower + lost
        assert grid.edge(grid.bins) >= upper - lost
        assert np.frexp(grid.step)[0] == 0.5
        assert Fraction(grid.start) % Fraction(grid.step) == 0
        values = np.array([lower, upper, lower / 2 + upper / 2, -1e308, 1e308])
        places = grid.bins_of(values)
        assert places.min() >= 0
        assert places.max() < grid.bins


TABLE = {
    "x": [1.0, 3.0, -5.0, 0.0, float("nan"), float("inf"), 1e200],
    "job": ["a", "b", "a", None, "a", "(other)", "b"],
    "code": [1, 2, 1, 1, 1, 2, 3],
}
KINDS = {"x": "number", "job": "category", "code": "codes"}


def counted(data):
    return count_columns(open_table(data), PartialSchema.of(KINDS))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: pd.DataFrame(TABLE),
        lambda: pl.DataFrame(TABLE, nan_to_null=False),
        lambda: pa.table(TABLE),
        lambda: pa.table(TABLE).set_column(1, "job", pa.array(TABLE["job"]).dictionary_encode()),
        lambda: iter(pa.table(TABLE).to_batches(max_chunksize=2)),
        lambda: pa.table({**TABLE, "code": pa.array(TABLE["code"], pa.float64())}),
    ],
)
def test_every_source_counts_alike_and_every_row_once(make):
    found = counted(make())
    assert found.keys == {"job": Counter({"a": 3, "b": 2}), "code": Counter({1: 4, 2: 2, 3: 1})}
    bins = found.bins["x"]
    assert bins.sum() == 5  # missing, NaN and infinite count for nothing
    assert bins[coarse_bins(np.array([1.0, 3.0, -5.0, 0.0, 1e200]))].tolist() == [1] * 5
    assert "sensitive" not in repr(found).lower() or "1" not in repr(found)


def test_csv_is_read_by_the_declared_kind(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,job,code\n1,007,7\n2.5,7,7\n", encoding="utf-8")
    found = counted(file)
    assert found.keys == {"job": Counter({"007": 1, "7": 1}), "code": Counter({7: 2})}
    fine = count_finely(open_table(file), PartialSchema.of(KINDS), {"x": FineGrid(0.0, 1.0, 4)})
    assert fine["x"].tolist() == [0, 1, 1, 0]


def test_another_type_is_refused_without_a_value():
    with pytest.raises(DataTypeError, match="Column 'job' has the type int64, but its levels are strings"):
        counted(pa.table({**TABLE, "job": list(range(7))}))
    with pytest.raises(DataTypeError, match="Column 'x' must hold numbers"):
        counted(pa.table({**TABLE, "x": ["secret"] * 7}))


def test_a_type_that_rows_decided_is_refused():
    """Of a CSV file one text among numbers makes a column categorical: whoever publishes that publishes the row."""
    template = describe_columns(pa.schema({"age": pa.int64(), "smoker": pa.bool_()}), guessed=True)
    assert [entry["type"] for entry in template["columns"].values()] == ["numeric?", "boolean?"]
    for name in ("age", "smoker"):
        with pytest.raises(
            DeclarationError, match=f"Column '{name}': its type '.*' was guessed .* removing the question"
        ):
            PartialSchema.of({"columns": {name: template["columns"][name], "cost": "number"}})
    filled = {"age": {"type": "numeric?", "lower": 0, "upper": 99}}
    with pytest.raises(
        DeclarationError, match=r"Column 'age': its type 'numeric\?' was guessed .* removing the question"
    ):
        Schema.of(filled)
    with pytest.raises(DeclarationError, match=r"Column 'age': its type 'boolean\?' was guessed"):
        Schema.of({"age": "boolean?"})
    assert Schema.of({"age": filled["age"] | {"type": "numeric"}}).columns["age"].upper == 99


@pytest.mark.parametrize("kind", ["codes", "category"])
def test_no_level_is_taken_before_any_is_found(kind):
    assert not any(name.startswith("w=") and name != "w=(other)" for name in PartialSchema.of({"w": kind}).taken)
