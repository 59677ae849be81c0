"""Kinds of columns: declared, checked, immutable; their squared norms are what their entries can reach."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from declared_schemas import columns
from encoded_rows import plain_rows
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import Schema
from gaussmix.errors import DeclarationError, GaussmixError


def squared_norm(column):
    """By the definition: what the squares of the entries add up to at most."""
    square = Fraction(1)
    if isinstance(column, Vector) and column.bounded:
        square = Fraction(column.size)
        if column.norm is not None:
            square = min(square, Fraction(column.norm) ** 2)
    return square * Fraction(column.weight) ** 2


@pytest.mark.slow
@settings(max_examples=200)
@given(columns)
def test_squared_norm(column):
    assert column.squared_norm == squared_norm(column)


def test_a_boolean_is_the_number_with_bounds_zero_and_one():
    assert Boolean(weight=3).interval == Numeric(0, 1).interval == (0.5, 0.5)
    assert Boolean(weight=3).squared_norm == Numeric(0, 1, weight=3).squared_norm


def test_a_norm_beyond_the_box_makes_no_difference():
    box = Vector(4, lower=-1, upper=1)
    assert Vector(4, lower=-1, upper=1, norm=2.0).squared_norm == box.squared_norm == 4
    assert Vector(4, lower=-1, upper=1, norm=5.0).squared_norm == 4
    assert Vector(4, lower=-1, upper=1, norm=1.5).squared_norm == Fraction(9, 4)
    assert Vector(4, norm=1e50, weight=0.5).squared_norm == Fraction(1, 4)


def test_intervals_of_a_vector():
    assert Vector(2, norm=7.0).intervals == ((0.0, 7.0),) * 2
    assert Vector(2, lower=0, upper=(4, 10)).intervals == ((2.0, 2.0), (5.0, 5.0))
    assert Vector(3, lower=-1, upper=1, norm=0.1).intervals == ((0.0, 1.0),) * 3


def test_equal_vectors_are_declared_alike():
    """One bound for all, or the same one for each: one text, one fingerprint."""
    for same in (
        Vector(3, lower=-1, upper=2),
        Vector(3, lower=[-1, -1, -1], upper=(2.0, 2.0, 2.0)),
        Vector(np.int64(3), lower=np.full(3, -1), upper=np.float32(2)),
    ):
        assert same == Vector(3, lower=-1.0, upper=2.0)
        assert Schema({"v": same}).fingerprint == Schema({"v": Vector(3, lower=-1, upper=2)}).fingerprint
    assert Vector(1, lower=[-0.0], upper=1) == Vector(1, lower=0, upper=1)
    assert Vector(2, lower=0, upper=1) != Vector(2, lower=0, upper=1, norm=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lower and upper, or norm, must be declared. Declare values without looking at the data"),
        ({"lower": 0}, "lower and upper must be declared together"),
        ({"upper": 0, "norm": 1}, "lower and upper must be declared together"),
        ({"norm": 0.0}, "norm must be a finite number > 0"),
        ({"norm": -1.0}, "norm must be a finite number > 0"),
        ({"norm": math.inf}, "norm must be a finite number > 0"),
        ({"norm": math.nan}, "norm must be a real number, got nan"),
        ({"norm": "1"}, "norm must be a real number, got '1' of type str"),
        ({"norm": 1e91}, r"norm must lie between 2\*\*-300 and 2\*\*300"),
        ({"norm": 1e-91}, r"norm must lie between 2\*\*-300 and 2\*\*300"),
        ({"lower": (0.0,), "upper": 1.0}, r"lower must be one number or one per entry \(2\), got shape \(1,\)"),
        ({"lower": 0.0, "upper": (1.0, 2.0, 3.0)}, r"upper must be one number or one per entry \(2\)"),
        ({"lower": [[0.0, 0.0]], "upper": 1.0}, r"lower must be one number or one per entry \(2\)"),
        ({"lower": 0.0, "upper": (1.0, 0.0)}, "finite with lower < upper"),
        ({"lower": (0.0, 1.0), "upper": 1.0}, "Omit constant columns"),
        ({"lower": 0.0, "upper": (1.0, math.inf)}, "finite with lower < upper"),
        ({"lower": (0.0, math.nan), "upper": 1.0}, "."),
        ({"lower": ("0", "0"), "upper": 1.0}, "."),
        ({"lower": 0.0, "upper": 1e300}, "finite with lower < upper"),
        ({"norm": 1, "weight": 0}, "weight must be a finite number > 0"),
        ({"norm": 1, "weight": 1e40}, r"weight must lie between 2\*\*-100 and 2\*\*100"),
        ({"norm": 1, "missing": "lower"}, "missing must be one of 'error', 'drop-row', got 'lower'"),
    ],
)
def test_wrong_vectors(options, message):
    with pytest.raises(GaussmixError, match=message):
        Vector(2, **options)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_wrong_sizes(size):
    with pytest.raises(GaussmixError, match="size must be an integer"):
        Vector(size, norm=1.0)


def test_columns_cannot_be_changed():
    for column in (Numeric(0, 1), Boolean(), Categorical(["a"]), Vector(2, norm=1)):
        with pytest.raises(AttributeError):
            column.weight = 2.0
        assert hash(column) == hash(type(column)(**{f: getattr(column, f) for f in column.__dataclass_fields__}))


def test_extreme_scales_neither_overflow_nor_vanish():
    for column in (Vector(2, norm=2.0**300, weight=2.0**100), Vector(2, norm=2.0**-300, weight=2.0**-100)):
        w = column.weight
        schema = Schema({"v": column, "z": Numeric(0, 1, weight=w)}, intercept=w if w < 1 else w / 2**10)
        assert math.isfinite(schema.row_norm)
        scale = schema.units.scales
        assert np.isfinite(scale).all()
        assert (scale > 0).all()
        rows = plain_rows(schema, pa.table({"v": pa.array([[column.norm, 0.0]], pa.list_(pa.float64(), 2)), "z": [1]}))
        assert rows[0, 0] == pytest.approx(column.weight, rel=1e-15)


def test_levels_have_names():
    column = Categorical([False, True], missing="level", unknown="other")
    assert column.labels == ("false", "true", "(missing)", "(other)")
    assert column.arrow_type == pa.bool_()


def test_a_number_without_bounds():
    with pytest.raises(DeclarationError, match="lower is not declared"):
        Numeric(None, 1)
