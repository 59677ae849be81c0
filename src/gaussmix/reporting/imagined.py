r"""Simulated tables for planning, generated from a declared schema alone.

The seed is fixed, so the same schema gives the same tables. All columns follow one Gaussian copula: column j has the
latent value :math:`g_j = \sqrt\rho f + \sqrt{1-\rho}\,e_j`, where f is common to all columns, and its value is a fixed
function of g_j. There are three scenarios, from favourable to adverse:

=======  =====================================  ======  ===  =====================  ============
table    numeric columns                        spread  ρ    level of rank r        share true
=======  =====================================  ======  ===  =====================  ============
even     uniform over the bounds                0.29    0    equal frequencies      0.5
usual    lower bound + lognormal, σ = 0.75      0.1     0.5  frequency ∝ 1/r²       0.1
hard     lower bound + lognormal, σ = 1         0.025   0.9  frequency ∝ 1/r³       0.05
=======  =====================================  ======  ===  =====================  ============

Spread is the standard deviation of a column over its declared range. The choice of these values is described in
docs/planning.md.

>>> table = imagine(Schema.of({"age": [0, 100], "cost": [0, 9]}), KINDS[1], target="cost", r2=0.4, rows=20_000)
>>> table.rows.shape, round(table.r2, 2)
((20000, 3), 0.39)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.tables.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.tables.encoder import BlockEncoder
from gaussmix.tables.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.tables.term_values import Numbers, TermValues

__all__ = ["KINDS", "Imagined", "Kind", "imagine", "least_squares", "target_of"]

_SEED = 1


@dataclass(frozen=True)
class Kind:
    """Parameters of a simulated scenario.

    Attributes
    ----------
    name : str
    spread : float
        Standard deviation of a numeric column over its range.
    skew : float
        σ of the lognormal distribution of numeric columns above their lower bound; 0 for a uniform distribution.
    correlation : float
        Correlation ρ between the latent values of any two columns.
    rarity : float
        The level of rank r has frequency ∝ r^-rarity.
    true : float
        Share of rows in which a Boolean is true.
    """

    name: str
    spread: float
    skew: float
    correlation: float
    rarity: float
    true: float


KINDS = (
    Kind("even", 0.29, 0.0, 0.0, 0.0, 0.5),
    Kind("usual", 0.1, 0.75, 0.5, 2.0, 0.1),
    Kind("hard", 0.025, 1.0, 0.9, 3.0, 0.05),
)
"""Scenarios from favourable to adverse."""


@dataclass(frozen=True, eq=False)
class Imagined:
    """Encoded rows of a simulated table.

    Attributes
    ----------
    rows : array (N, m)
        Rows of norm at most 1, read-only.
    target : int
        Encoded column of the response; all others are predictors.
    limit : float
        Largest absolute value of the response; predictions are clamped to it.
    """

    rows: Floats
    target: int
    limit: float

    @property
    def features(self) -> list[int]:
        """All other encoded columns."""
        return [index for index in range(self.rows.shape[1]) if index != self.target]

    @cached_property
    def r2(self) -> float:
        """R² of least squares on all simulated rows. It is below the requested R² because values are clamped."""
        return self.explained(least_squares(self.rows.T @ self.rows, self.features, self.target))

    def explained(self, theta: Floats) -> float:
        """Return R² of clamped predictions on all simulated rows, given coefficients of the features."""
        y = self.rows[:, self.target]
        predicted = np.clip(self.rows[:, self.features] @ theta, -self.limit, self.limit)
        return float(1 - np.mean((y - predicted) ** 2) / np.var(y))


def least_squares(gram: Floats, features: list[int], target: int) -> Floats:
    """Return the minimum-norm least-squares coefficients from a Gram matrix."""
    inverse = scipy.linalg.pinvh(gram[np.ix_(features, features)])
    return np.asarray(inverse @ gram[features, target])


def target_of(schema: Schema, target: str | None = None) -> str:
    """Return the response: the named column, or the last numeric column, or else the last Boolean."""
    if len(schema.parts) < 2:
        raise ArgumentError("The schema must declare a response and at least one predictor, got one column.")
    if target is None:
        for kind in (Numeric, Boolean):
            found = [name for name, part in schema.parts.items() if isinstance(part, kind)]
            if found:
                return found[-1]
        raise ArgumentError("The schema must declare a numeric or Boolean column as the response.")
    if target not in schema.parts:
        raise ArgumentError(f"Column {target!r} is not in the schema. Its columns are {', '.join(schema.parts)}.")
    if not isinstance(schema.parts[target], Numeric | Boolean):
        raise ArgumentError(f"target must be a numeric or Boolean column, got {target!r}.")
    return target


@lru_cache(maxsize=len(KINDS))  # a search uses the same tables repeatedly
def imagine(schema: Schema, kind: Kind, *, target: str, r2: float, rows: int) -> Imagined:
    r"""Return simulated rows of one scenario whose response is linear in all other columns.

    Let s be the standardised sum of all standardised encoded features times normal coefficients, with the sign that
    makes s skewed to the right. In units of half its range, the response is

    .. math:: y = a + b\,(\sqrt{R^2}\,s + \sqrt{1 - R^2}\,e), \quad b = 2\,\mathrm{spread}

    clamped to its bounds, where a is three standard deviations above the lower bound, or the middle if that is lower. A
    Boolean response is true with a probability that is linear in s.
    """
    rng = np.random.default_rng(_SEED)
    common = rng.normal(size=(rows, 1))
    encoder, (at,) = BlockEncoder.of(schema), schema.groups[target]
    block = np.zeros((rows, schema.n_columns))
    entries = {}
    for name, column in schema.columns.items():
        own = rng.normal(size=(rows, column.size if isinstance(column, Vector) else 1))
        latent = math.sqrt(kind.correlation) * common + math.sqrt(1 - kind.correlation) * own
        entries[name] = _entries(column, latent, kind)
        if name != target and name in schema.parts:
            block[:, list(schema.groups[name])] = entries[name] * _reach(schema, encoder, name)
    terms = TermValues(schema.columns, lambda name: _numbers(schema.columns[name], entries[name]), entries.__getitem__)
    for name in schema.terms:
        if name != target:
            block[:, list(schema.groups[name])] = terms.entries(name, schema.parts[name]) * _reach(
                schema, encoder, name
            )
    score = _standardised(_standardised(block) @ rng.normal(size=schema.n_columns))
    score = score if np.mean(score**3) >= 0 else -score  # the long tail points away from the nearer bound
    explained, rest = math.sqrt(r2) * score, math.sqrt(1 - r2) * rng.normal(size=rows)
    y = _number(explained + rest, kind)
    if isinstance(schema.parts[target], Boolean):
        y = _boolean(explained, kind, rng)
    block[:, at] = y * encoder.limits[at]
    if schema.intercept:
        block[:, schema.groups[INTERCEPT][0]] = encoder.intercept
    encoder.finish(block)
    block /= 2.0**FRACTION_BITS
    block.flags.writeable = False
    return Imagined(block, at, float(encoder.limits[at]) / 2.0**FRACTION_BITS)


def _reach(schema: Schema, encoder: BlockEncoder, name: str) -> float:
    """Return the largest entry of a column in row units; for vectors, the entry of a constant vector of their norm."""
    column, index = schema.parts[name], schema.groups[name][0]
    if not isinstance(column, Vector):
        return float(encoder.limits[index])
    return math.sqrt(schema.squared_in_units(column.squared_norm) / column.size)


def _numbers(column: Column, entries: Floats) -> Numbers:
    """Return a numeric column in original units from its encoded entries."""
    centre, half_range = column.interval if isinstance(column, Numeric | Boolean) else (0.0, 1.0)
    lower = column.lower if isinstance(column, Numeric) else 0.0
    return Numbers(np.maximum(centre + half_range * entries[:, 0], lower))


def _entries(column: Column, latent: Floats, kind: Kind) -> Floats:
    """Return the entries of a column, at most 1 in absolute value, from its latent normal values."""
    if isinstance(column, Categorical):
        frequencies = np.arange(1.0, len(column.labels) + 1) ** -kind.rarity
        limits = np.cumsum(frequencies) / frequencies.sum()
        level = np.searchsorted(limits[:-1], special.ndtr(latent[:, 0]))
        return np.asarray(np.eye(len(limits))[level])
    if isinstance(column, Boolean):
        return np.where(special.ndtr(latent) > 1 - kind.true, 1.0, -1.0)
    if not kind.skew:
        return np.asarray(2 * special.ndtr(latent) - 1)
    deviation = math.sqrt(math.expm1(kind.skew**2) * math.exp(kind.skew**2))
    return np.minimum(2 * kind.spread / deviation * np.exp(kind.skew * latent) - 1, 1.0)


def _standardised(values: Floats) -> Floats:
    """Standardise columns to mean 0 and variance 1; constant columns become 0."""
    centred = values - values.mean(axis=0)
    deviations = centred.std(axis=0)
    return np.asarray(centred / np.where(deviations > 0, deviations, 1.0))


def _number(standardised: Floats, kind: Kind) -> Floats:
    deviation = 2 * min(kind.spread, 0.25)
    return np.clip(min(3 * deviation - 1, 0.0) + deviation * standardised, -1.0, 1.0)


def _boolean(explained: Floats, kind: Kind, rng: np.random.Generator) -> Floats:
    """Return ±1, positive with probability p + √(p(1 - p)) √R² s."""
    p = kind.true
    chance = p + math.sqrt(p * (1 - p)) * explained
    return np.where(rng.random(len(explained)) < chance, 1.0, -1.0)
