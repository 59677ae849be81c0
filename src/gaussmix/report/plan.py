r"""Expected accuracy of a release, simulated from public quantities before any data is read.

Tables that match the declared schema are simulated in three scenarios (:mod:`gaussmix.report.plan`) and released
in passes with simulated noise of the scale required by the budget. Models from these releases are compared with least
squares on the same rows. The results are functions of the schema, a declared number of rows and the budget. Seeds are
fixed, but rounding differs between processors and changes simulated losses by up to a fifth.

At most 20,000 rows are simulated; they represent larger tables by weighting (:mod:`gaussmix.report.plan`).

>>> schema = {"age": [0, 100], "income": [0, 500], "smoker": "boolean", "cost": [0, 30]}
>>> plan = expect(schema, n_rows=20_000, epsilon=1.0, delta=1e-6)
>>> plan.response, plan.useful, [table.name for table in plan.tables]
('cost', True, ['even', 'usual', 'hard'])

Simulated releases of simulated tables, and the accuracy of models from them.

This module never sees data and does not protect any: noise is floating-point and from known seeds. N rows are simulated
for a table of n rows; sums and counts are multiplied by n/N before noise is added.

Simulated tables for planning, generated from a declared schema alone.

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

>>> table = imagine(Schema.of({"age": [0, 100], "cost": [0, 9]}), KINDS[1], response="cost", r2=0.4, rows=20_000)
>>> table.rows.shape, round(table.r2, 2)
((20000, 3), 0.39)
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount, lattice_account
from gaussmix.accounting.parameters import LARGEST_EPSILON, Neighbours, warn_if_weak
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.encode import BlockEncoder
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.data.terms import Numbers, TermValues
from gaussmix.errors import ArgumentError, BudgetUnmetError
from gaussmix.releases.preconditioning import (
    AUTOMATIC_PASSES,
    NoisyGram,
    PassRequest,
    State,
    goe,
    plan_histogram,
    plan_pass,
    rates_of,
    releases_of,
    run_passes,
    schedule_of,
)
from gaussmix.releases.transcript import PassOutput, Transcript, start

__all__ = [
    "KINDS",
    "Expectation",
    "Imagined",
    "Kind",
    "Plan",
    "Trial",
    "expect",
    "imagine",
    "least_squares",
    "least_useful_epsilon",
    "numbers_only",
    "response_of",
    "rows_needed",
]


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
    response : int
        Encoded column of the response; all others are predictors.
    limit : float
        Largest absolute value of the response; predictions are clamped to it.
    """

    rows: Floats
    response: int
    limit: float

    @property
    def features(self) -> list[int]:
        """All other encoded columns."""
        return [index for index in range(self.rows.shape[1]) if index != self.response]

    @cached_property
    def r2(self) -> float:
        """R² of least squares on all simulated rows. It is below the requested R² because values are clamped."""
        return self.explained(least_squares(self.rows.T @ self.rows, self.features, self.response))

    def explained(self, theta: Floats) -> float:
        """Return R² of clamped predictions on all simulated rows, given coefficients of the features."""
        y = self.rows[:, self.response]
        predicted = np.clip(self.rows[:, self.features] @ theta, -self.limit, self.limit)
        return float(1 - np.mean((y - predicted) ** 2) / np.var(y))


def least_squares(gram: Floats, features: list[int], response: int) -> Floats:
    """Return the minimum-norm least-squares coefficients from a Gram matrix."""
    inverse = scipy.linalg.pinvh(gram[np.ix_(features, features)])
    return np.asarray(inverse @ gram[features, response])


def response_of(schema: Schema, response: str | None = None) -> str:
    """Return the response: the named column, or the last numeric column, or else the last Boolean."""
    if len(schema.parts) < 2:
        raise ArgumentError("The schema must declare a response and at least one predictor, got one column.")
    if response is None:
        for kind in (Numeric, Boolean):
            found = [name for name, part in schema.parts.items() if isinstance(part, kind)]
            if found:
                return found[-1]
        raise ArgumentError("The schema must declare a numeric or Boolean column as the response.")
    if response not in schema.parts:
        raise ArgumentError(f"Column {response!r} is not in the schema. Its columns are {', '.join(schema.parts)}.")
    if not isinstance(schema.parts[response], Numeric | Boolean):
        raise ArgumentError(f"response must be a numeric or Boolean column, got {response!r}.")
    return response


@lru_cache(maxsize=len(KINDS))  # a search uses the same tables repeatedly
def imagine(schema: Schema, kind: Kind, *, response: str, r2: float, rows: int) -> Imagined:
    r"""Return simulated rows of one scenario whose response is linear in all other columns.

    Let s be the standardised sum of all standardised encoded features times normal coefficients, with the sign that
    makes s skewed to the right. In units of half its range, the response is

    .. math:: y = a + b\,(\sqrt{R^2}\,s + \sqrt{1 - R^2}\,e), \quad b = 2\,\mathrm{spread}

    clamped to its bounds, where a is three standard deviations above the lower bound, or the middle if that is lower. A
    Boolean response is true with a probability that is linear in s.
    """
    rng = np.random.default_rng(_SEED)
    common = rng.normal(size=(rows, 1))
    encoder, (at,) = BlockEncoder.of(schema), schema.groups[response]
    block = np.zeros((rows, schema.n_columns))
    entries = {}
    for name, column in schema.columns.items():
        own = rng.normal(size=(rows, column.size if isinstance(column, Vector) else 1))
        latent = math.sqrt(kind.correlation) * common + math.sqrt(1 - kind.correlation) * own
        entries[name] = _entries(column, latent, kind)
        if name != response and name in schema.parts:
            block[:, list(schema.groups[name])] = entries[name] * _reach(schema, encoder, name)
    terms = TermValues(schema.columns, lambda name: _numbers(schema.columns[name], entries[name]), entries.__getitem__)
    for name in schema.terms:
        if name != response:
            block[:, list(schema.groups[name])] = terms.entries(name, schema.parts[name]) * _reach(
                schema, encoder, name
            )
    score = _standardised(_standardised(block) @ rng.normal(size=schema.n_columns))
    score = score if np.mean(score**3) >= 0 else -score  # the long tail points away from the nearer bound
    explained, rest = math.sqrt(r2) * score, math.sqrt(1 - r2) * rng.normal(size=rows)
    y = _number(explained + rest, kind)
    if isinstance(schema.parts[response], Boolean):
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


_INTERVAL = 1.96  # standard errors on either side of a 95 % interval


@dataclass(frozen=True, eq=False)
class Trial:
    """A simulated table of n rows, represented by N of them with weights.

    Attributes
    ----------
    table : Imagined
        Simulated rows on which models are evaluated. The first n of them, or all, are the table.
    rows : array (N, m)
    weight : float
        n/N.
    gram : array (m, m)
        Gram matrix of all n rows.
    """

    schema: Schema
    table: Imagined
    rows: Floats
    weight: float
    gram: Floats

    @classmethod
    def of(cls, schema: Schema, table: Imagined, n: int) -> Trial:
        """Return a table of n rows, represented by the first n simulated rows or by all of them."""
        rows = table.rows[:n]
        weight = n / len(rows)
        return cls(schema, table, rows, weight, weight * (rows.T @ rows))

    @property
    def least_squares_r2(self) -> float:
        """R² of least squares without privacy, on new rows."""
        return self.table.explained(least_squares(self.gram, self.table.features, self.table.response))

    def r2_of(self, drawn: Transcript) -> float:
        """Return R² of a model from the release, on new rows."""
        response = np.zeros((len(self.gram), 1))
        response[self.table.response] = 1.0
        return self.table.explained(drawn.solve(self.table.features, response)[:, 0])

    def draw(self, mu: Sequence[float], rng: np.random.Generator) -> Transcript:
        """Simulate all passes. ``mu`` is for the first pass, then for a histogram and a pass alternately."""
        m = len(self.gram)
        outputs = [PassOutput(self.gram + goe(m, rng) / (math.sqrt(2) * mu[0]), mu[0])]
        state = start(self.schema, outputs[0].matrix, mu)

        def request_of(number: int, known: State) -> PassRequest:
            asked, counts = plan_histogram(known), []
            for metric, edges in zip(asked.metrics, asked.edges, strict=True):
                _, squares = self._mapped(metric.transform.matrix)
                found = self.weight * np.bincount(np.searchsorted(edges, squares), minlength=len(edges) + 1)
                counts.append(found + rng.normal(scale=asked.noise, size=len(found)))
            return plan_pass(known, asked, tuple(counts))

        def output_of(number: int, request: PassRequest) -> Floats:
            z, squares = self._mapped(request.metric.transform.matrix)
            z /= np.sqrt(np.maximum(squares, request.clip))[:, np.newaxis]  # z̄ in units of the clip's root
            matrix = self.weight * (z.T @ z) + goe(m, rng) / (math.sqrt(2) * request.mu)
            outputs.append(PassOutput(matrix, request.mu, request))
            return matrix

        run_passes(state, len(mu) // 2 + 1, request_of, output_of)
        return Transcript(tuple(outputs), self.schema)

    def _mapped(self, transform: Floats) -> tuple[Floats, Floats]:
        """Return the transformed rows and their squared norms."""
        z = self.rows @ transform.T
        return z, np.einsum("ij,ij->i", z, z)

    def errors(self, noise: NoisyGram) -> tuple[float, float]:
        r"""Return medians over coefficients of the standard error over the sampling error, and of interval half widths.

        A Gram matrix with noise E = B·GOE·Bᵀ, N = BBᵀ, gives θ̂ - θ ≈ G⁻¹(E a)_x with a = (-θ, 1), and

        .. math:: \mathrm{Cov}\,(E a) = (a^\top N a)\,N + N a a^\top N .

        Directions with a signal below the spectral edge 2√d of the noise are not identified. Coefficients with more
        than half of their variance in such directions have infinite errors. Reference levels, empty levels and clipping
        bias are not included.
        """
        y, at = self.table.response, self.schema.groups.get(INTERCEPT, ())
        columns = self.schema.parts.items()
        first = {self.schema.groups[name][0] for name, column in columns if isinstance(column, Categorical)}
        x = [i for i in self.table.features if not (at and i in first) and self.gram[i, i] > 0]
        n = self.weight * len(self.rows)
        if len(x) <= len(at) or n <= len(x):
            return math.inf, math.inf
        R = scipy.linalg.qr(noise.factor[x].T, mode="r")[0][: len(x)]  # RᵀR = N_xx
        seen = scipy.linalg.solve_triangular(R, self.gram[np.ix_(x, x)], trans="T")
        values, U = scipy.linalg.eigh(scipy.linalg.solve_triangular(R, seen.T, trans="T"))
        directions = scipy.linalg.solve_triangular(R, U)  # G⁻¹ = Σ v vᵀ/value
        parts = directions**2 / np.maximum(values, 1e-12 * values[-1])
        hidden = parts @ (values <= 2 * math.sqrt(len(x))) > parts.sum(axis=1) / 2
        bread = (directions / np.maximum(values, 1e-12 * values[-1])) @ directions.T
        a = np.zeros(len(self.gram))
        a[x], a[y] = -bread @ self.gram[x, y], 1.0
        sampling = np.diagonal(bread) * max(float(a @ self.gram @ a), 0.0) / (n - len(x))
        N, Na = noise.shape[np.ix_(x, x)], noise.shape @ a
        privacy = np.diagonal(bread @ ((a @ Na) * N + np.outer(Na[x], Na[x])) @ bread)
        privacy = np.where(hidden, math.inf, privacy)
        shown = np.array([i not in at for i in x])
        ratio = np.sqrt(1 + privacy / np.maximum(sampling, 1e-300))
        half = _INTERVAL * np.sqrt(privacy + sampling) * self._reach(x) / self._reach([y])
        return float(np.median(ratio[shown])), float(np.median(half[shown]))

    def _reach(self, columns: list[int]) -> Floats:
        """Return the range of an entry in row units: twice its weight, or its weight for a level."""
        found = []
        for index in columns:
            encoded = self.schema.encoded[index]
            weight = 1.0 if encoded.source is None else self.schema.parts[encoded.source].weight
            found.append(weight if encoded.kind in ("level", "basis") else 2 * weight)
        return np.array(found)


USEFUL = 0.1
"""Largest relative loss of R² of a useful release."""

IMAGINED_ROWS = 20_000
DRAWS = 3
"""Number of simulated releases of every simulated table."""

MOST_COLUMNS = 500
"""Maximum number of encoded columns, for which planning takes up to a minute."""

MOST_ROWS, MOST_EPSILON, LEAST_EPSILON = 10**12, LARGEST_EPSILON, 1e-3
"""Limits of the searches."""

_PRECISION = 1.1
_SIGNAL = 5.0  # μn/m^1.5 at which a release becomes useful (docs/passes.md): start of the searches

Passes = int | Literal["auto"]
SchemaLike = Schema | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Expectation:
    """Expected accuracy of a release of one simulated table.

    Attributes
    ----------
    name : {"even", "usual", "hard"}
        Scenario.
    lost_r2 : float
        Loss of R² on new rows due to privacy: R² of least squares minus R² of the release. If it exceeds the R² of
        least squares, the release predicts worse than the mean.
    r2 : float
        R² on new rows of a model from the release.
    error_ratio : float
        Median over coefficients of the standard error (privacy and sampling) divided by the sampling standard error.
        Infinite if half of the coefficients are not identified. Clipping bias is not included.
    interval : float
        Median over coefficients of the half width of a 95 % interval (privacy and sampling) for the effect of a column
        across its declared range, or of a level against the first, in units of the range of the response. Clipping bias
        is not included, so a scenario with more clipping may have a narrower interval.
    useful : bool
        Whether privacy and sampling together lose less than a tenth of the R² with unlimited rows.
    """

    name: str
    lost_r2: float
    r2: float
    error_ratio: float
    interval: float
    useful: bool


@dataclass(frozen=True)
class Plan:
    """Expected accuracy of a release: one `Expectation` for each scenario, from favourable to adverse."""

    n_rows: int
    columns: int
    response: str
    epsilon: float
    delta: float
    neighbours: Neighbours
    passes: int
    r2: float
    tables: tuple[Expectation, ...]
    max_contributions: int = 1

    @property
    def useful(self) -> bool:
        """Whether the release is useful in the usual scenario."""
        return self["usual"].useful

    def __getitem__(self, name: str) -> Expectation:
        """Return the `Expectation` of a scenario by its name."""
        check.choice([table.name for table in self.tables], name=name)
        return next(table for table in self.tables if table.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with tables by name and None for infinity."""
        tables = {
            table.name: {key: None if value == math.inf else value for key, value in asdict(table).items()}
            for table in self.tables
        }
        return {**asdict(self), "tables": tables}


def expect(
    schema: SchemaLike,
    *,
    n_rows: int,
    epsilon: float,
    delta: float,
    response: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    neighbours: Neighbours = "add-remove",
    max_contributions: int = 1,
) -> Plan:
    """Return the expected loss of R², standard errors and intervals of a release.

    Parameters
    ----------
    schema : Schema, mapping or path
        As in :func:`gaussmix.release`.
    n_rows : int
        Declared number of rows.
    epsilon, delta, passes, relation
        As in :func:`gaussmix.release`.
    response : str, optional
        Numeric or Boolean response; all other columns are predictors. Default: the last numeric column, or else the
        last Boolean.
    r2 : float
        Assumed R² of the regression without privacy.
    max_contributions : int
        Contribution bound j. Every privacy unit is assumed to have j identical rows, the worst case: n rows are then
        worth n/j.
    """
    task = _Task.of(schema, response, r2, max_contributions)
    n, account = check.positive_integer(n_rows=n_rows), task.account(epsilon, delta, passes, neighbours)
    warn_if_weak(account.epsilon, account.delta)
    tables = tuple(task.expectation(kind, n, account) for kind in range(len(KINDS)))
    return Plan(
        n_rows=n,
        columns=task.schema.n_columns,
        response=task.response,
        epsilon=account.epsilon,
        delta=account.delta,
        neighbours=neighbours,
        passes=_number_of_passes(passes),
        r2=task.r2,
        tables=tables,
        max_contributions=task.max_contributions,
    )


def rows_needed(
    schema: SchemaLike,
    *,
    epsilon: float,
    delta: float,
    response: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    neighbours: Neighbours = "add-remove",
    max_contributions: int = 1,
) -> int | None:
    """Return the number of rows, to 10 %, from which a release is useful in the usual scenario; None above 10¹².

    Parameters are as in :func:`expect`.
    """
    task = _Task.of(schema, response, r2, max_contributions)
    account = task.account(epsilon, delta, passes, neighbours)
    warn_if_weak(account.epsilon, account.delta)
    guess = max_contributions * _SIGNAL * task.schema.n_columns**1.5 / account.mu
    found = _least(lambda n: task.is_useful(math.ceil(n), account), guess, low=2.0, high=MOST_ROWS)
    return None if found is None else math.ceil(found)


def least_useful_epsilon(
    schema: SchemaLike,
    *,
    n_rows: int,
    delta: float,
    response: str | None = None,
    r2: float = 0.4,
    passes: Passes = "auto",
    neighbours: Neighbours = "add-remove",
    max_contributions: int = 1,
) -> float | None:
    """Return the smallest ε, to 10 %, at which a release is useful in the usual scenario; None above 20.

    Parameters are as in :func:`expect`.
    """
    task, n = _Task.of(schema, response, r2, max_contributions), check.positive_integer(n_rows=n_rows)
    task.account(1.0, delta, passes, neighbours)  # reject invalid arguments before the search

    def useful(epsilon: float) -> bool:
        return task.is_useful(n, task.account(epsilon, delta, passes, neighbours))

    guess = max_contributions * _SIGNAL * task.schema.n_columns**1.5 / n * math.sqrt(2 * math.log(1 / delta))
    return _least(useful, guess, low=LEAST_EPSILON, high=MOST_EPSILON)


def numbers_only(features: int) -> Schema:
    """Return a schema of ``features`` numeric columns and a numeric response "y"."""
    d = check.positive_integer(features=features)
    _check_columns(d + 2)
    return Schema.of({**{f"x{i + 1}": [-1, 1] for i in range(d)}, "y": [-1, 1]})


def _least(useful: Callable[[float], bool], guess: float, *, low: float, high: float) -> float | None:
    """Return the smallest argument, to 10 %, that passes a monotone test between two limits; it was itself tested."""
    top = min(max(guess, low), high)
    while not useful(top):
        if top >= high:
            return None
        low, top = top, min(2 * top, high)
    bottom = max(low, top / 2)
    while bottom > low and useful(bottom):
        top, bottom = bottom, max(low, bottom / 2)
    while top / bottom > _PRECISION:
        middle = math.sqrt(top * bottom)
        top, bottom = (middle, bottom) if useful(middle) else (top, middle)
    return top


# ---------------------------------------------------------------------------------------------------------------
# Simulated releases
def _number_of_passes(passes: Passes) -> int:
    return AUTOMATIC_PASSES if passes == "auto" else check.positive_integer(passes=passes)


def _check_columns(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise ArgumentError(
            f"Planning supports at most {MOST_COLUMNS:,} encoded columns, got {columns:,}. Declare only the columns of "
            "one model, or fewer levels."
        )


def _budgets(account: LatticeAccount, m: int, n: int) -> list[float]:
    """Return μ of all releases except the count, multiplied by the sampling rate of the rows.

    The Gram matrix of a share π of the rows, divided by π, has noise 1/π times as large.
    """
    mu = account.noise_mu if len(account.noise_mu) == 1 else account.noise_mu[1:]
    return [part * rate for part, rate in zip(mu, rates_of(account, n, m), strict=True)]


@dataclass(frozen=True)
class _Task:
    """A regression to plan: schema, response, R² and contribution bound."""

    schema: Schema
    response: str
    r2: float
    max_contributions: int = 1

    @classmethod
    def of(cls, schema: SchemaLike, response: str | None, r2: float, max_contributions: int = 1) -> _Task:
        found = Schema.of(schema)
        _check_columns(found.n_columns)
        most = check.positive_integer(max_contributions=max_contributions)
        return cls(found, response_of(found, response), check.in_interval(0, 1, r2=r2), most)

    def account(self, epsilon: float, delta: float, passes: Passes, neighbours: Neighbours) -> LatticeAccount:
        """Return the account of a release."""
        shares, coordinates = releases_of(schedule_of(_number_of_passes(passes)), self.schema.n_columns)
        account = lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, neighbours=neighbours)
        if account.row_bits < FRACTION_BITS:
            raise BudgetUnmetError(f"epsilon={epsilon!r} is too small for a release. Increase epsilon or delta.")
        return account

    def table(self, kind: int) -> Imagined:
        """Return a simulated table of 20,000 rows, or fewer if it has many columns."""
        m = self.schema.n_columns
        rows = max(min(IMAGINED_ROWS, 500_000 // m), 8 * m)
        return imagine(self.schema, KINDS[kind], response=self.response, r2=self.r2, rows=rows)

    def is_useful(self, n: int, account: LatticeAccount) -> bool:
        """Return whether a release is useful in the usual scenario."""
        (usual,) = (index for index, kind in enumerate(KINDS) if kind.name == "usual")
        return self.expectation(usual, n, account).useful

    def expectation(self, kind: int, n: int, account: LatticeAccount) -> Expectation:
        """Return the mean R² and median errors over several draws; n rows belong to n/j privacy units."""
        n = max(n // self.max_contributions, 1)
        trial = Trial.of(self.schema, self.table(kind), n)
        found, mu = [], _budgets(account, self.schema.n_columns, n)
        for draw in range(DRAWS):
            drawn = trial.draw(mu, np.random.default_rng(draw))
            found.append((trial.r2_of(drawn), *trial.errors(drawn.pool.current)))
        r2 = float(np.mean([draw[0] for draw in found]))
        _, error_ratio, interval = np.median(found, axis=0).tolist()
        lost = max(trial.least_squares_r2 - r2, 0.0)
        useful = trial.table.r2 - r2 < USEFUL * trial.table.r2
        return Expectation(KINDS[kind].name, lost, r2, error_ratio, interval, useful)
