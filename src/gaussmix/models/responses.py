"""A column with classes as a response of least squares, and what turns its coefficients into log odds."""

from __future__ import annotations

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Column
from gaussmix.data.schema import Schema
from gaussmix.data.terms import Block
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import Label, column_of
from gaussmix.models.discriminant import Discriminant, estimate_discriminant
from gaussmix.models.odds import DISCRIMINANT
from gaussmix.models.problem import Response
from gaussmix.models.transcript import Transcript

__all__ = ["discriminant_of", "labels_of", "place_of", "two_classes"]

OTHERS = "all others"
"""The class that one level is held against."""


def discriminant_of(statistic: Transcript, response: Response, features: list[int], theta: Floats) -> Discriminant:
    """Class shares and R² of coefficients that predict."""
    schema, a = statistic.schema, response.vector.copy()
    a[features] -= theta
    constant = schema.units.one if schema.intercept else None
    left = statistic.residual(features, response.vector)
    return estimate_discriminant(statistic.predictive, constant, response.vector, a, residual=left)


def labels_of(column: Categorical) -> tuple[Label, ...]:
    """Values of the encoded columns of a category: its levels, or words where there are columns for others too."""
    return column.levels if len(column.labels) == len(column.levels) else column.labels


def place_of(column: Column | Block, level: object, target: str) -> tuple[int, tuple[Label, ...]]:
    """Which level of a category, or of false and true, is meant, by its value or its words; and all levels."""
    if not isinstance(column, Categorical | Boolean):
        raise ArgumentError(f"Column {target!r} is no category, so that it has no level to choose: leave it out.")
    labels = (False, True) if isinstance(column, Boolean) else labels_of(column)
    found = [k for k, own in enumerate(labels) if level in (own, str(own)) or _word(own) == _word(level)]
    if not found:
        raise ArgumentError(f"{level!r} is no class of {target!r}; it has {', '.join(map(str, labels))}.")
    return found[0], labels


def _word(level: object) -> object:
    """``"true"`` and ``"false"`` for Python's, as names of encoded columns have them."""
    return str(level).lower() if isinstance(level, bool | np.bool_) else level


def _vector(schema: Schema, entries: dict[int, float]) -> Floats:
    """Return a combination of encoded columns from its entries that are not 0."""
    vector = np.zeros(schema.n_columns)
    vector[list(entries)] = list(entries.values())
    return vector


def two_classes(schema: Schema, target: str, level: object = None) -> tuple[Response, tuple[Label, Label]]:
    """A column with two values, or one level against all others, as the response -1 and 1; and the two values."""
    column, indices = column_of(schema, target), schema.groups[target]
    if isinstance(column, Boolean):
        second = level is None or place_of(column, level, target)[0] == 1
        classes: tuple[Label, Label] = (not second, second)
        vector = _vector(schema, {indices[0]: (1 if second else -1) / column.weight})
    elif level is not None:
        chosen, labels = place_of(column, level, target)
        classes = (OTHERS, labels[chosen])
        signs = np.where(np.arange(len(indices)) == chosen, 1.0, -1.0)
        vector = _vector(schema, dict(zip(indices, signs / column.weight, strict=True)))
    elif isinstance(column, Categorical) and len(indices) == 2:
        labels = labels_of(column)
        classes = (labels[0], labels[1])
        vector = _vector(schema, {indices[0]: -1 / column.weight, indices[1]: 1 / column.weight})
    elif isinstance(column, Categorical):
        raise ArgumentError(f"Column {target!r} has more than two levels: choose one of them as the level.")
    else:
        raise ArgumentError(
            f"Column {target!r} must be a boolean or a category to be classified; numbers are explained by regress."
        )
    return Response(f"{target} = {classes[1]}", vector, 0.5, 0.5, DISCRIMINANT), classes
