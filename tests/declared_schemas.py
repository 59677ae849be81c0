"""Schemas of all kinds of columns, and rows in the corners of what they allow, for property tests."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.schema import Schema

weights = st.floats(0.01, 100)
bounds = st.builds(lambda low, width: (low, low + width), st.floats(-1e6, 1e6), st.floats(1e-2, 1e6))
numerics = st.builds(
    lambda pair, weight, missing: Numeric(*pair, weight=weight, missing=missing),
    bounds,
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


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """Bounded by one pair for all, by one pair each, by a norm, or by both."""
    size = draw(st.integers(1, 4))
    norm = draw(st.floats(0.1, 1e3))  # smaller ones can be refused beside large weights of other columns
    options = {"weight": draw(weights), "missing": draw(st.sampled_from(["error", "drop-row"]))}
    kind = draw(st.sampled_from(["norm", "bounds", "bounds each", "bounds and norm"]))
    if kind == "norm":
        return Vector(size, norm=norm, **options)
    pairs = [draw(bounds) for _ in range(1 if kind == "bounds" else size)]
    lower, upper = ([pair[i] for pair in pairs] if kind != "bounds" else pairs[0][i] for i in range(2))
    return Vector(size, lower=lower, upper=upper, norm=norm if kind == "bounds and norm" else None, **options)


KINDS = {Numeric: numerics, Boolean: booleans, Categorical: categoricals, Vector: vectors()}
columns = st.one_of(*KINDS.values())
schemas = st.builds(
    lambda found, intercept, max_row_norm: Schema(
        {f"c{i}": column for i, column in enumerate(found)}, intercept=intercept, max_row_norm=max_row_norm
    ),
    st.lists(columns, min_size=1, max_size=4),
    st.one_of(st.just(0.0), weights),
    st.one_of(st.none(), weights),
)


def vector_array(rows: np.ndarray) -> pa.FixedSizeListArray:
    """An Arrow column of vectors from an array of shape (rows, size)."""
    rows = np.asarray(rows, dtype=np.float64)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def corners(column: Column) -> pa.Array:
    """Values at which a column's part of the row is longest, in each of its encoded columns."""
    if isinstance(column, Numeric):
        return pa.array([column.lower, column.upper, -1e308, 1e308])
    if isinstance(column, Boolean):
        return pa.array([False, True])
    if isinstance(column, Vector):
        return vector_array(_vector_corners(column))
    absent = [None] if column.missing == "level" else []
    return pa.array([*column.levels, *absent], type=column.arrow_type)


def _vector_corners(column: Vector) -> np.ndarray:
    """Corners of the box, and points of its diagonals or axes that are as long as the norm allows; and beyond."""
    centre, half_range = np.array(column.intervals).T
    signs = np.array([np.ones(column.size), -np.ones(column.size), (-1.0) ** np.arange(column.size)])
    huge = 1e308 * signs[:2]
    if not column.bounded:
        return np.vstack([column.norm * np.eye(column.size), -column.norm * np.eye(column.size)[:1], huge])
    lower, upper = np.broadcast_to(column.lower, column.size), np.broadcast_to(column.upper, column.size)
    box = np.where(signs > 0, upper, lower)
    within = 1.0 if column.norm is None else min(1.0, column.norm / np.sqrt(column.size))
    return np.vstack([box, centre + half_range * within * signs[:1], huge])


def corner_rows(schema: Schema) -> pa.Table:
    """Every combination of the columns' corners."""
    choices = [corners(column) for column in schema.columns.values()]
    indices = list(zip(*itertools.product(*(range(len(choice)) for choice in choices)), strict=True))
    return pa.table(
        {name: choice.take(pa.array(i)) for name, choice, i in zip(schema.columns, choices, indices, strict=True)}
    )
