r"""Synthetic rows: drawn from a release, within the declared bounds and levels. Post-processing, at no privacy cost.

**Distributions of single columns** come from the marginals: levels from noisy shares; numbers from noisy cells, uniform
within a cell, cells at the ends that do not stand out from the noise taken as empty. Without marginals a number has the
Beta distribution with the mean and variance of the first pass.

**Relations of pairs** follow the correlations of the release, which are of coded values (:attr:`Release.thresholds`).
Levels are drawn one column after the other, each with the probabilities of its least-squares regression on those before
it, scaled to the shares. Numbers are drawn together: normal scores z = B c + e with c the indicators of levels and e
normal, each mapped through its rank to the quantile function of its column. The map changes correlations. B and Cov(e)
are therefore corrected by the difference between the correlations that result and those wanted, a few times.

What is not right: anything about three columns at once, interactions, shapes of conditional distributions, and values
within cells. Where the regression of a number on all other columns differs from that of the release, a warning says so.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats, Integers
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.design import is_marked
from gaussmix.models.predictor_distribution import quantiles_of
from gaussmix.models.rendering import guarantee_of
from gaussmix.releases.counts import RowCounts, kinds_of
from gaussmix.releases.noisy import Fitted
from gaussmix.releases.preconditioning import clean

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["MARK", "synthetic_rows"]

MARK = "gaussmix.synthetic"
"""Key of the metadata that says what the rows are."""

PILOT_ROWS = 4000
"""Number of rows that are drawn at least, since ranks and correlations of few rows vary."""

CORRECTIONS = 6
"""Number of times that the correlations of normal scores are corrected."""

FAR = 0.1
"""A warning is given where a regression on synthetic rows adds this share of the response's variance to the error."""

_RANGE = 1e-8  # directions of the features that are smaller are left out

Quantiles = Callable[[Floats], Floats]
"""Map of ranks in (0, 1) to values of a column."""


def synthetic_rows(release: Release, n: int, seed: int | np.random.Generator | None = None) -> pa.Table:
    """The table of :meth:`gaussmix.Release.synthetic`."""
    n, schema, rng = check.positive_integer(n=n), release.schema, np.random.default_rng(seed)
    names = [name for name in schema.columns if name != schema.weight]
    if any(is_marked(schema, name) or name not in schema.groups for name in names):
        raise ArgumentError(
            "synthetic does not support columns with missing-value indicators or columns used only in terms."
        )
    if not schema.intercept:
        raise ArgumentError(
            "synthetic requires a release with an intercept, because it needs the noisy number of rows."
        )
    classes = [name for name in names if isinstance(schema.columns[name], Categorical | Boolean)]
    numbers = [name for name in names if name not in classes]
    means, covariance = _means_and_covariance(release)
    size, counts = max(n, PILOT_ROWS), RowCounts(release.statistic)

    entries, found = _draw_levels(schema, classes, means, covariance, counts, size, rng)
    done = [index for name in classes for index in schema.groups[name]]
    indices = [index for name in numbers for index in schema.groups[name]]
    if indices:
        quantiles = [q for name in numbers for q in _quantiles_of(release, name)]
        limits = np.array([_coded_range(schema, index) for index in indices])
        wanted = _correlations(covariance[np.ix_(done + indices, done + indices)])
        values, reached = _draw_numbers(entries, wanted, quantiles, limits, rng)
        _warn_if_far(wanted, reached, [schema.names[index] for index in indices])
        for name in numbers:
            own = values[:, [indices.index(index) for index in schema.groups[name]]]
            is_vector = isinstance(schema.columns[name], Vector)
            found[name] = _vector(schema, name, own) if is_vector else pa.array(own[:, 0])
    table = pa.table({name: found[name] for name in names}).slice(0, n)
    return table.replace_schema_metadata({MARK: json.dumps(_statement(release), ensure_ascii=False)})


def _statement(release: Release) -> dict[str, Any]:
    single = "distributions of single columns (up to noise and the width of cells)"
    right = "approximate correlations of pairs of columns, with values coded to the thresholds of the models"
    return {
        **guarantee_of([release.certificate.void_words]),
        "what": "Synthetic rows drawn from a differentially private release. No row is that of a real person.",
        "right": f"{single if release.statistic.marginals is not None else 'means and variances'}; {right}.",
        "not right": (
            "Relations between three or more columns, interactions, conditional distributions, joint tails of two "
            "columns."
        ),
        "release": release.fingerprint,
        "epsilon": release.certificate.epsilon,
        "delta": release.certificate.delta,
    }


def _means_and_covariance(release: Release) -> tuple[Floats, Floats]:
    """Return means and covariance of encoded columns, without negative directions."""
    statistic = release.statistic
    G = statistic.second_moment if statistic.exact else clean(statistic.pooled).matrix
    (constant,) = release.schema.groups[INTERCEPT]
    rows = max(float(G[constant, constant]), 1e-300)
    means = G[constant] / rows  # over the intercept's entry w₀
    one = release.schema.rounded_intercept
    return means * one, (G / rows - np.outer(means, means)) * one**2


def _correlations(covariance: Floats) -> Floats:
    unit = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    inverse = np.where(unit > 0, 1 / np.where(unit > 0, unit, 1.0), 0.0)
    found = covariance * np.outer(inverse, inverse)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


# ---------------------------------------------------------------------------------------------------------------
# Levels
def _draw_levels(
    schema: Schema,
    classes: list[str],
    means: Floats,
    covariance: Floats,
    counts: RowCounts,
    size: int,
    rng: np.random.Generator,
) -> tuple[Floats, dict[str, pa.Array]]:
    """Return encoded entries of all categories and booleans, shape (size, entries), and their values."""
    entries, done = np.empty((size, 0)), list[int]()
    found: dict[str, pa.Array] = {}
    for name in classes:
        own, (labels, kinds) = list(schema.groups[name]), kinds_of(schema, name)
        theta = _solved(covariance[np.ix_(done, done)], covariance[np.ix_(done, own)])
        predicted = schema.units.decode(means[own] + (entries - means[done]) @ theta, own)
        if isinstance(schema.columns[name], Boolean):
            predicted = np.column_stack([1 - predicted, predicted])
        elif len(labels) > predicted.shape[1]:
            predicted = np.column_stack([predicted, 1 - predicted.sum(axis=1)])
        picked = _picked(predicted, _shares(counts.of(name)), rng)
        found[name] = _values(schema.columns[name], picked)
        entries, done = np.hstack([entries, schema.units.encode(kinds[picked], own)]), done + own
    return entries, found


def _shares(counts: Fitted) -> Floats:
    kept = np.maximum(counts.values, 0.0)
    return kept / kept.sum() if kept.sum() > 0 else np.full(len(kept), 1 / len(kept))


def _picked(chances: Floats, shares: Floats, rng: np.random.Generator) -> Integers:
    """Return levels drawn with probabilities that are scaled to given shares on average."""
    chances = np.clip(chances, 1e-6, None)
    for _ in range(20):
        chances = chances * (shares / np.maximum(chances.mean(axis=0), 1e-300))
        chances = chances / chances.sum(axis=1, keepdims=True)
    picked = (rng.random((len(chances), 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    return np.asarray(np.minimum(picked, chances.shape[1] - 1))


def _values(column: Column, picked: Integers) -> pa.Array:
    """Return levels by their numbers; what is no level is missing, or text of its own where levels are text."""
    if not isinstance(column, Categorical):
        return pa.array(picked.astype(bool))
    text = isinstance(column.levels[0], str)
    extra: list[Any] = [None] * (column.missing == "level") + ["(other)" if text else None]
    return pa.array([*column.levels, *extra], type=column.arrow_type).take(pa.array(picked))


# ---------------------------------------------------------------------------------------------------------------
# Numbers
def _draw_numbers(
    entries: Floats, wanted: Floats, quantiles: list[Quantiles], limits: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return values of all numbers, and the correlations of levels and coded numbers that they have."""
    size, k = len(entries), entries.shape[1]
    noise = rng.standard_normal((size, len(quantiles)))
    spread = entries.std(axis=0)
    levels = (entries - entries.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    scores, values, reached = wanted.copy(), np.empty(0), wanted
    for _ in range(CORRECTIONS):
        B = _solved(levels.T @ levels / size, scores[:k, k:])  # a level that was never drawn has no correlation
        left = scores[k:, k:] - scores[k:, :k] @ B
        roots, vectors = scipy.linalg.eigh((left + left.T) / 2)
        z = levels @ B + noise @ (vectors * np.sqrt(np.maximum(roots, 0.0))).T
        ranks = (np.argsort(np.argsort(z, axis=0), axis=0) + 0.5) / size
        values = np.column_stack([own(rank) for own, rank in zip(quantiles, ranks.T, strict=True)])
        reached = _correlations(np.cov(np.hstack([levels, np.clip(values, *limits.T)]), rowvar=False))
        scores[:, k:] = np.clip(scores[:, k:] + wanted[:, k:] - reached[:, k:], -0.999, 0.999)
        scores[k:, :k] = scores[:k, k:].T
        np.fill_diagonal(scores, 1.0)
    return values, reached


def _solved(M: Floats, cross: Floats) -> Floats:
    """Return θ of targets on features from their second moments, shape (features, targets)."""
    if not len(M):
        return np.zeros(cross.shape)
    values, vectors = scipy.linalg.eigh(M)
    inverse = np.where(values > _RANGE * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    return np.asarray((vectors * inverse) @ (vectors.T @ cross))


def _coded_range(schema: Schema, index: int) -> tuple[float, float]:
    column = schema.columns[schema.encoded[index].source or ""]
    return (column.lower, column.upper) if isinstance(column, Numeric) else (-math.inf, math.inf)


def _quantiles_of(release: Release, name: str) -> list[Quantiles]:
    """Return the quantile function of a number, or of every entry of a vector."""
    return [quantiles_of(release.statistic, index) for index in release.schema.groups[name]]


def _vector(schema: Schema, name: str, values: Floats) -> pa.Array:
    """Return vectors, scaled to the declared norm."""
    column, own = schema.columns[name], list(schema.groups[name])
    encoded = schema.units.encode(values, own)
    length = np.linalg.norm(encoded, axis=1, keepdims=True)
    encoded = encoded * np.minimum(1.0, math.sqrt(column.squared_norm) / np.maximum(length, 1e-300))
    return pa.FixedSizeListArray.from_arrays(pa.array(schema.units.decode(encoded, own).ravel()), len(own))


def _warn_if_far(wanted: Floats, reached: Floats, names: list[str]) -> None:
    """Warn of numbers whose regression on all other columns is not that of the release."""
    far = []
    for place, name in enumerate(names, len(wanted) - len(names)):
        others = [i for i in range(len(wanted)) if i != place]
        M = wanted[np.ix_(others, others)]
        ridge = 1e-3 * np.eye(len(others))
        own, other = (np.linalg.solve(R[np.ix_(others, others)] + ridge, R[others, place]) for R in (wanted, reached))
        if (own - other) @ M @ (own - other) > FAR:
            far.append(name)
    if far:
        warnings.warn(
            f"Regressions of {', '.join(far)} fitted to synthetic rows differ from those of the release. Use the "
            "release's own models (Release.ols).",
            UserWarning,
            stacklevel=4,
        )
