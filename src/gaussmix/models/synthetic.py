r"""Rows that nobody has: within the declared bounds and levels, with the second moments that a release shows.

Columns are drawn one after the other, categories and booleans first, each given those before it by its least-squares
regression on them in the release's cleaned moments:

- a level with the probability that the regression of its indicator gives: linear in the row so far, and so the second
  moments of the indicators come out right, wherever the probabilities lie within [0, 1];
- a number from a Beta law on its declared range, with the regression's value for its mean and the residual variance for
  its variance. Means near the end of the range leave room for less variance only: then it is as large as can be.

What is beyond [0, 1], or beyond the range, is moved to its end, and levels are made to add up to 1: there, and only
there, second moments are missed. **Only second moments are right**: means, variances, correlations, and so linear
regressions and cross-tables of pairs. Shapes, tails, interactions, all that is no relation of two columns, are made up.

Everything is post-processing of a release, and costs no privacy. No row is anybody's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Boolean, Categorical, Column, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.design import is_marked
from gaussmix.models.rendering import guarantee_of
from gaussmix.releases.counts import kinds_of
from gaussmix.releases.preconditioning import clean

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["MARK", "synthetic_rows"]

MARK = "gaussmix.synthetic"
"""Key of the metadata that says what the rows are."""

_LEAST = 1e-9
_RANGE = 1e-8  # directions of the features that are smaller count nothing


def synthetic_rows(release: Release, n: int, seed: int | np.random.Generator | None = None) -> pa.Table:
    """The table of :meth:`gaussmix.Release.synthetic`."""
    n, schema, rng = check.positive_integer(n=n), release.schema, np.random.default_rng(seed)
    if schema.terms or schema.weight is not None or any(is_marked(schema, name) for name in schema.columns):
        raise ArgumentError("Synthetic rows are for schemas without terms, weights and indicators of missing values.")
    if not schema.intercept:
        raise ArgumentError("Synthetic rows need a release with an intercept column, which holds the row count.")
    (constant,) = schema.groups[INTERCEPT]
    done, entries = [constant], {constant: schema.units.encode(np.ones((n, 1)), [constant])[:, 0]}
    G = _positive_moment(release)
    G = G / max(float(G[constant, constant]) * float(schema.units.one[constant]) ** 2, 1.0)
    found: dict[str, pa.Array] = {}
    order = sorted(schema.columns, key=lambda name: not isinstance(schema.columns[name], Categorical | Boolean))
    for name in order:
        column, indices = schema.columns[name], list(schema.groups[name])
        theta, left = _regressions(G, done, indices)
        means = np.column_stack([entries[index] for index in done]) @ theta
        if isinstance(column, Categorical | Boolean):
            drawn, values = _levels(schema, name, means, rng)
        elif isinstance(column, Vector):
            drawn, values = _vector(schema, column, indices, means, left, rng)
        else:
            drawn = _beta(means, left, np.array([column.weight]), rng)
            values = pa.array(np.clip(schema.units.decode(drawn, indices)[:, 0], column.lower, column.upper))
        found[name] = values
        for place, index in enumerate(indices):
            entries[index] = drawn[:, place]
        done += indices
    table = pa.table({name: found[name] for name in schema.columns})
    return table.replace_schema_metadata({MARK: json.dumps(_statement(release), ensure_ascii=False)})


def _statement(release: Release) -> dict[str, Any]:
    return {
        **guarantee_of([release.certificate.void_words]),
        "what": "Synthetic rows drawn from a differentially private release. No row is anybody's.",
        "right": "Second moments only: means, variances, correlations, linear regressions, cross-tables of pairs.",
        "release": release.fingerprint,
        "epsilon": release.certificate.epsilon,
        "delta": release.certificate.delta,
    }


def _positive_moment(release: Release) -> Floats:
    """The release's Gram matrix in encoded units, noise taken out of it, with no negative direction."""
    statistic = release.statistic
    return statistic.second_moment if statistic.exact else clean(statistic.pooled).matrix


def _regressions(G: Floats, features: list[int], targets: list[int]) -> tuple[Floats, Floats]:
    """θ of targets on features, shape (features, targets), and the variances that are left."""
    M, cross = G[np.ix_(features, features)], G[np.ix_(features, targets)]
    unit = 1 / np.sqrt(np.maximum(np.diagonal(M), 1e-300))
    values, vectors = scipy.linalg.eigh(M * np.outer(unit, unit))
    inverse = np.where(values > _RANGE * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    half = unit[:, np.newaxis] * vectors
    theta = (half * inverse) @ (half.T @ cross)
    left = np.diagonal(G)[targets] - np.sum(theta * cross, axis=0)
    return np.asarray(theta), np.maximum(left, 0.0)


def _levels(schema: Schema, name: str, means: Floats, rng: np.random.Generator) -> tuple[Floats, pa.Array]:
    """Levels with the probabilities that regressions give, as entries and as values."""
    column = schema.columns[name]
    labels, kinds = kinds_of(schema, name)
    own = schema.units.decode(means, list(schema.groups[name]))
    if isinstance(column, Boolean):
        chances = np.column_stack([1 - own[:, 0], own[:, 0]])
    else:
        chances = own if len(labels) == own.shape[1] else np.column_stack([own, 1 - own.sum(axis=1)])
    chances = np.maximum(chances, 0.0)
    total = chances.sum(axis=1, keepdims=True)
    chances = np.where(total > 0, chances / np.where(total > 0, total, 1.0), 1 / len(labels))
    picked = np.minimum((rng.random((len(own), 1)) > np.cumsum(chances, axis=1)).sum(axis=1), len(labels) - 1)
    return schema.units.encode(kinds[picked], list(schema.groups[name])), _values(column, picked)


def _values(column: Column, picked: Integers) -> pa.Array:
    """Levels by their numbers; what is no level is missing, or text of its own where levels are text."""
    if not isinstance(column, Categorical):
        return pa.array(picked.astype(bool))
    text = isinstance(column.levels[0], str)
    extra: list[Any] = [None] * (column.missing == "level") + ["(other)" if text else None]
    return pa.array([*column.levels, *extra], type=column.arrow_type).take(pa.array(picked))


def _beta(means: Floats, left: Floats, ends: Floats, rng: np.random.Generator) -> Floats:
    """Numbers within ± ends with given means and, as far as there is room, given variances."""
    share = np.clip((means / ends + 1) / 2, _LEAST, 1 - _LEAST)  # on [0, 1]
    room = share * (1 - share)
    variance = np.clip(left / (2 * ends) ** 2, _LEAST * room, (1 - 1e-6) * room)
    strength = room / variance - 1
    return np.asarray((2 * rng.beta(share * strength, (1 - share) * strength) - 1) * ends)


def _vector(
    schema: Schema, column: Vector, indices: list[int], means: Floats, left: Floats, rng: np.random.Generator
) -> tuple[Floats, pa.Array]:
    """Entries one by one, then shortened to the norm that was declared."""
    drawn = _beta(means, left, np.full(len(indices), column.weight), rng)
    most = float(column.squared_norm) ** 0.5
    length = np.linalg.norm(drawn, axis=1, keepdims=True)
    drawn = drawn * np.minimum(1.0, most / np.maximum(length, 1e-300))
    values = pa.array(schema.units.decode(drawn, indices).ravel())
    return drawn, pa.FixedSizeListArray.from_arrays(values, column.size)
