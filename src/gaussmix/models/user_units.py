"""Columns of a release in the user's units: numbers as they are, levels and true/false as 0 and 1, and a constant.

With entries (x - centre)/scale, x_j = scale_j·entry_j + centre_j·1: a linear map of the encoded row, under which the
law of the noise keeps its form (:mod:`gaussmix.models.noisy`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.fits import column_of
from gaussmix.tables.columns import Boolean, Categorical
from gaussmix.tables.schema import INTERCEPT, Schema

__all__ = ["NONE_OF_THESE", "constant_row", "kinds_of", "unit_rows"]

NONE_OF_THESE = "(none of these)"
"""Rows whose value is no level, where ``unknown="zero"`` lets them be."""


def constant_row(schema: Schema) -> Floats:
    """The combination of encoded columns that is 1 in every row, shape (m,)."""
    if schema.weight is not None:
        raise ArgumentError("Rows of this release are weighted: counts and means are for rows of equal weight.")
    if not schema.intercept:
        raise ArgumentError("This release has no intercept column, which means and counts are measured by.")
    (index,) = schema.groups[INTERCEPT]
    row = np.zeros(schema.n_columns)
    row[index] = schema.encoded[index].scale
    return row


def unit_rows(schema: Schema, indices: Sequence[int]) -> Floats:
    """Combinations of encoded columns that are some of them in the user's units, shape (number, m)."""
    centres, scales = schema.decode_map
    rows = np.outer(centres[list(indices)], constant_row(schema))
    rows[np.arange(len(indices)), list(indices)] += scales[list(indices)]
    return rows


def kinds_of(schema: Schema, name: str) -> tuple[tuple[str, ...], Floats]:
    """Levels of a category, or false and true; and what each is in the user's units, shape (levels, entries)."""
    column, entries = column_of(schema, name), len(schema.groups[name])
    if isinstance(column, Boolean):
        return ("false", "true"), np.array([[0.0], [1.0]])
    if not isinstance(column, Categorical):
        raise ArgumentError(f"Column {name!r} has no levels to count: name a categorical or a boolean column.")
    if column.unknown == "zero":
        return (*column.labels, NONE_OF_THESE), np.vstack([np.eye(entries), np.zeros(entries)])
    return column.labels, np.eye(entries)
