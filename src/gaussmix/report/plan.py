r"""Expected accuracy of a release, simulated from public quantities before any data is read.

Three tables that match the declared schema are simulated and released in passes, with simulated noise of the scale
that the budget requires. Models from these releases are compared with least squares on the same rows. The results are
functions of the schema, a declared number of rows and the budget. Nothing here sees or protects data: noise is
floating-point and from fixed seeds. Rounding differs between processors and changes simulated losses by up to a fifth.

All columns follow one Gaussian copula: column j has the latent value :math:`g_j = \sqrt\rho f + \sqrt{1-\rho}\,e_j`,
where f is common to all columns, and its value is a fixed function of g_j. The scenarios are

==========  =====================================  ======  ===  =====================  ============
scenario    numeric columns                        spread  ρ    level of rank r        share true
==========  =====================================  ======  ===  =====================  ============
best case   uniform over the bounds                0.29    0    equal frequencies      0.5
typical     lower bound + lognormal, σ = 0.75      0.1     0.5  frequency ∝ 1/r²       0.1
adverse     lower bound + lognormal, σ = 1         0.025   0.9  frequency ∝ 1/r³       0.05
==========  =====================================  ======  ===  =====================  ============

Spread is the standard deviation of a column over its declared range.

>>> schema = {"age": [0, 100], "income": [0, 500], "smoker": "boolean", "cost": [0, 30]}
>>> plan = Planner(schema, delta=1e-6).expect(n_rows=20_000, epsilon=1.0)
>>> plan.response, plan.useful, [expected.name for expected in plan.scenarios]
('cost', True, ['best case', 'typical', 'adverse'])
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount, lattice_account
from gaussmix.accounting.parameters import LARGEST_EPSILON, Neighbours
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.data.encode import BlockEncoder
from gaussmix.data.marginals import has_marginals
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.data.terms import Numbers, TermValues
from gaussmix.errors import ArgumentError, BudgetUnmetError
from gaussmix.ledger.budget import warn_if_weak
from gaussmix.releases.marginals import MarginalPlan
from gaussmix.releases.preconditioning import (
    AUTOMATIC_PASSES,
    NoisyGram,
    PassRequest,
    State,
    budgets_of,
    goe,
    plan_histogram,
    plan_pass,
    rates_of,
    releases_of,
    run_passes,
)
from gaussmix.releases.transcript import PassOutput, Transcript, start

__all__ = [
    "LARGEST_EPSILON",
    "RATE_RATIO",
    "SCENARIOS",
    "USEFUL",
    "Expectation",
    "Plan",
    "Planner",
    "Scenario",
    "SimulatedTable",
    "Trial",
    "numeric_schema",
    "response_of",
    "simulate",
]

USEFUL = 0.1
"""Largest relative loss of R² of a useful release."""

RATE_RATIO = 1.5
"""Rate ratio per standard deviation of a predictor that a useful release of a count distinguishes from 1."""

SIMULATED_ROWS = 20_000
DRAWS = 3
"""Number of simulated releases of every simulated table."""

MOST_COLUMNS = 500
"""Maximum number of encoded columns, for which planning takes up to a minute."""

MOST_ROWS, LEAST_EPSILON = 10**12, 1e-3
"""Limits of the searches; the largest ε is :data:`LARGEST_EPSILON`."""

_SEED = 1
_PRECISION = 1.1  # of the searches
_SIGNAL = 5.0  # μn/m^1.5 at which a release becomes useful (docs/preconditioning.md): start of the searches
_INTERVAL = 1.96  # standard errors on either side of a 95 % interval


# ---------------------------------------------------------------------------------------------------------------
# Simulated tables
@dataclass(frozen=True)
class Scenario:
    """Parameters of a simulated table, as in the table above."""

    name: str
    spread: float
    skew: float  # σ of the lognormal distribution; 0 for a uniform one
    correlation: float  # ρ
    rarity: float  # the level of rank r has frequency ∝ r^-rarity
    true: float  # share of rows in which a Boolean is true


TYPICAL = Scenario("typical", 0.1, 0.75, 0.5, 2.0, 0.1)
SCENARIOS = (
    Scenario("best case", 0.29, 0.0, 0.0, 0.0, 0.5),
    TYPICAL,
    Scenario("adverse", 0.025, 1.0, 0.9, 3.0, 0.05),
)


@dataclass(frozen=True, eq=False)
class SimulatedTable:
    """Encoded rows of a simulated table, of norm at most 1 and read-only."""

    rows: Floats
    response: int  # encoded column of the response; all others are predictors
    limit: float  # largest absolute value of the response; predictions are clamped to it

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
        raise ArgumentError("The schema must declare a response and at least one predictor, but it has one column.")
    if response is None:
        for kind in (Numeric, Boolean):
            found = [name for name, part in schema.parts.items() if isinstance(part, kind)]
            if found:
                return found[-1]
        raise ArgumentError("The schema must declare a numeric or boolean column as the response.")
    if response not in schema.parts:
        near = difflib.get_close_matches(response, schema.parts, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise ArgumentError(
            f"Column {response!r} is not in the schema. {meant}The columns are {', '.join(schema.parts)}."
        )
    if not isinstance(schema.parts[response], Numeric | Boolean):
        raise ArgumentError(f"response must be a numeric or boolean column, got {response!r}.")
    return response


@lru_cache(maxsize=len(SCENARIOS))  # a search uses the same tables repeatedly
def simulate(
    schema: Schema, scenario: Scenario, *, response: str, r2: float, rows: int, mean: float | None = None
) -> SimulatedTable:
    r"""Return simulated rows of one scenario whose response is linear in all other columns.

    Let s be the standardised sum of all standardised encoded features times normal coefficients, with the sign that
    makes s skewed to the right. In units of half its range, the response is

    .. math:: y = a + b\,(\sqrt{R^2}\,s + \sqrt{1 - R^2}\,e), \quad b = 2\,\mathrm{spread}

    clamped to its bounds, where a is three standard deviations above the lower bound, or the middle if that is lower. A
    Boolean response is true with probability :math:`p + \sqrt{p(1-p)}\sqrt{R^2}\,s`. With a ``mean`` the response is a
    Poisson count of that mean, whose rate is multiplied by `RATE_RATIO` for every standard deviation of s.
    """
    rng = np.random.default_rng(_SEED)
    common = rng.normal(size=(rows, 1))
    encoder, (at,) = BlockEncoder.of(schema), schema.groups[response]
    block = np.zeros((rows, schema.n_columns))
    entries = {}
    for name, column in schema.columns.items():
        own = rng.normal(size=(rows, column.size if isinstance(column, Vector) else 1))
        latent = math.sqrt(scenario.correlation) * common + math.sqrt(1 - scenario.correlation) * own
        entries[name] = _entries(column, latent, scenario)
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
    b = 2 * min(scenario.spread, 0.25)
    y = np.clip(min(3 * b - 1, 0.0) + b * (explained + rest), -1.0, 1.0)
    if isinstance(schema.parts[response], Boolean):
        p = scenario.true
        y = np.where(rng.random(rows) < p + math.sqrt(p * (1 - p)) * explained, 1.0, -1.0)
    if mean is not None:
        centre, half_range = cast(Numeric, schema.parts[response]).interval
        effect = math.log(RATE_RATIO) * np.clip(score, -3.0, 3.0)
        counts = rng.poisson(mean * np.exp(effect) / np.mean(np.exp(effect)))
        y = np.clip((counts - centre) / half_range, -1.0, 1.0)
    block[:, at] = y * encoder.limits[at]
    if schema.intercept:
        block[:, schema.groups[INTERCEPT][0]] = encoder.intercept
    encoder.finish(block)
    block /= 2.0**FRACTION_BITS
    block.flags.writeable = False
    return SimulatedTable(block, at, float(encoder.limits[at]) / 2.0**FRACTION_BITS)


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


def _entries(column: Column, latent: Floats, scenario: Scenario) -> Floats:
    """Return the entries of a column, at most 1 in absolute value, from its latent normal values."""
    if isinstance(column, Categorical):
        frequencies = np.arange(1.0, len(column.labels) + 1) ** -scenario.rarity
        limits = np.cumsum(frequencies) / frequencies.sum()
        level = np.searchsorted(limits[:-1], special.ndtr(latent[:, 0]))
        return np.asarray(np.eye(len(limits))[level])
    if isinstance(column, Boolean):
        return np.where(special.ndtr(latent) > 1 - scenario.true, 1.0, -1.0)
    if not scenario.skew:
        return np.asarray(2 * special.ndtr(latent) - 1)
    deviation = math.sqrt(math.expm1(scenario.skew**2) * math.exp(scenario.skew**2))
    return np.minimum(2 * scenario.spread / deviation * np.exp(scenario.skew * latent) - 1, 1.0)


def _standardised(values: Floats) -> Floats:
    """Standardise columns to mean 0 and variance 1; constant columns become 0."""
    centred = values - values.mean(axis=0)
    deviations = centred.std(axis=0)
    return np.asarray(centred / np.where(deviations > 0, deviations, 1.0))


# ---------------------------------------------------------------------------------------------------------------
# Simulated releases
@dataclass(frozen=True, eq=False)
class Trial:
    """A table of n rows, represented by N simulated rows with weights n/N."""

    schema: Schema
    table: SimulatedTable  # on which models are evaluated
    rows: Floats
    weight: float
    gram: Floats  # of all n rows

    @classmethod
    def of(cls, schema: Schema, table: SimulatedTable, n: int) -> Trial:
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

    def errors(self, noise: NoisyGram) -> tuple[float, float, float]:
        r"""Return medians over coefficients: standard error over sampling error, and half widths of 95 % intervals.

        Half widths are for a change across the range of a predictor, and for one of a standard deviation, in ranges of
        the response.

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
            return math.inf, math.inf, math.inf
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
        half = _INTERVAL * np.sqrt(privacy + sampling)
        across = half * self._reach(x) / self._reach([y])
        deviations = np.maximum(np.std(self.rows[:, x], axis=0), 1e-300)  # a constant column's error is infinite
        per_deviation = half * deviations / (2 * self.table.limit)
        ratio, across, per_deviation = (np.median(values[shown]) for values in (ratio, across, per_deviation))
        return float(ratio), float(across), float(per_deviation)

    def _reach(self, columns: list[int]) -> Floats:
        """Return the range of an entry in row units: twice its weight, or its weight for a level."""
        found = []
        for index in columns:
            encoded = self.schema.encoded[index]
            weight = 1.0 if encoded.source is None else self.schema.parts[encoded.source].weight
            found.append(weight if encoded.kind in ("level", "basis") else 2 * weight)
        return np.array(found)


# ---------------------------------------------------------------------------------------------------------------
# Plans
@dataclass(frozen=True)
class Expectation:
    """Expected accuracy of a release of one simulated table.

    Standard errors and intervals do not include clipping bias: a table with more clipping may have narrower intervals.

    Attributes
    ----------
    lost_r2 : float
        R² of least squares minus R² of the release, on new rows.
    error_ratio : float
        Median over coefficients of the standard error (privacy and sampling) divided by the sampling standard error.
        Infinite if half of the coefficients are not identified.
    interval : float
        Median over coefficients of the half width of a 95 % interval for the effect of a column across its declared
        range, or of a level against the first, in units of the range of the response.
    useful : bool
        Whether privacy and sampling together lose less than a tenth of the R² with unlimited rows; for a count, whether
        `RATE_RATIO` per standard deviation of a predictor is significantly different from 1.
    rate_interval : float or None
        For a count: median over coefficients of the half width of a 95 % interval of a log rate ratio per standard
        deviation of a predictor.
    """

    name: str
    lost_r2: float
    r2: float
    error_ratio: float
    interval: float
    useful: bool
    rate_interval: float | None = None


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
    scenarios: tuple[Expectation, ...]
    max_contributions: int = 1

    @property
    def useful(self) -> bool:
        """Whether the release is useful in the typical scenario."""
        return self["typical"].useful

    def __getitem__(self, name: str) -> Expectation:
        """Return the `Expectation` of a scenario by its name."""
        named = {expected.name: expected for expected in self.scenarios}
        return named[check.choice(named, name=name)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with scenarios by name and None for infinity."""
        found = {
            own.name: {key: None if value == math.inf else value for key, value in asdict(own).items()}
            for own in self.scenarios
        }
        return {**asdict(self), "scenarios": found}


class Planner:
    """A regression to plan, for any number of rows and any ε.

    Parameters
    ----------
    schema : Schema, mapping or path
        As in :func:`gaussmix.release`.
    delta, passes, neighbours
        As in :func:`gaussmix.release`.
    response : str, optional
        Numeric or Boolean response; all other columns are predictors. Default: the last numeric column, or else the
        last Boolean.
    r2 : float
        Assumed R² of the regression without privacy.
    mean : float, optional
        Expected mean of a response that is a count, such as visits: how rare events are decides whether rate ratios are
        identified.
    max_contributions : int
        Contribution bound j. Every privacy unit is assumed to have j identical rows, the worst case: n rows are then
        worth n/j.
    """

    def __init__(
        self,
        schema: Schema | Mapping[str, Any] | str | os.PathLike[str],
        *,
        delta: float,
        response: str | None = None,
        r2: float = 0.4,
        mean: float | None = None,
        passes: int | Literal["auto"] = "auto",
        neighbours: Neighbours = "add-remove",
        max_contributions: int = 1,
    ) -> None:
        self.schema = Schema.of(schema)
        _check_columns(self.schema.n_columns)
        self.response = response_of(self.schema, response)
        self.delta, self.r2, self.mean = delta, check.in_interval(0, 1, r2=r2), mean
        if mean is not None:
            if not self.may_be_count:
                raise ArgumentError("mean requires a numeric response with a declared lower bound of 0.")
            check.in_interval(0, cast(Numeric, self.schema.parts[self.response]).upper, mean=mean)
        self.passes = AUTOMATIC_PASSES if passes == "auto" else check.positive_integer(passes=passes)
        self.neighbours: Neighbours = neighbours
        self.max_contributions = check.positive_integer(max_contributions=max_contributions)

    @property
    def may_be_count(self) -> bool:
        """Whether the response is a number whose declared lower bound is 0."""
        part = self.schema.parts[self.response]
        return isinstance(part, Numeric) and part.lower == 0

    def expect(self, *, n_rows: int, epsilon: float) -> Plan:
        """Return the expected loss of R², standard errors and intervals of a release of ``n_rows`` rows."""
        n, account = check.positive_integer(n_rows=n_rows), self._account(epsilon)
        warn_if_weak(account.epsilon, account.delta)
        return Plan(
            n_rows=n,
            columns=self.schema.n_columns,
            response=self.response,
            epsilon=account.epsilon,
            delta=account.delta,
            neighbours=self.neighbours,
            passes=self.passes,
            r2=self.r2,
            scenarios=tuple(self._expectation(scenario, n, account) for scenario in SCENARIOS),
            max_contributions=self.max_contributions,
        )

    def rows_needed(self, *, epsilon: float) -> int | None:
        """Return the number of rows, to 10 %, at which a release is useful in the typical scenario; None above 10¹²."""
        account = self._account(epsilon)
        warn_if_weak(account.epsilon, account.delta)
        guess = self._signal_needed / account.mu
        found = _least(
            lambda n: self._expectation(TYPICAL, math.ceil(n), account).useful, guess, low=2.0, high=MOST_ROWS
        )
        return None if found is None else math.ceil(found)

    def least_epsilon(self, *, n_rows: int) -> float | None:
        """Return the smallest ε, to 10 %, at which a release is useful in the typical scenario; None above 20."""
        n = check.positive_integer(n_rows=n_rows)
        self._account(1.0)  # reject invalid arguments before the search
        guess = self._signal_needed / n * math.sqrt(2 * math.log(1 / self.delta))

        def useful(epsilon: float) -> bool:
            return self._expectation(TYPICAL, n, self._account(epsilon)).useful

        return _least(useful, guess, low=LEAST_EPSILON, high=LARGEST_EPSILON)

    @property
    def _signal_needed(self) -> float:
        """About the product μn of a release that is just useful."""
        return float(self.max_contributions * _SIGNAL * self.schema.n_columns**1.5)

    def _account(self, epsilon: float) -> LatticeAccount:
        marginals = MarginalPlan(self.schema).coordinates if self._has_marginals else None
        shares, coordinates = releases_of(self.passes, self.schema.n_columns, marginals=marginals)
        account = lattice_account(
            epsilon, self.delta, shares=shares, coordinates=coordinates, neighbours=self.neighbours
        )
        if account.row_bits < FRACTION_BITS:
            raise BudgetUnmetError(f"epsilon={epsilon!r} is too small for a release. Increase epsilon or delta.")
        return account

    @property
    def _has_marginals(self) -> bool:
        return self.passes > 1 and has_marginals(self.schema)

    def _expectation(self, scenario: Scenario, n: int, account: LatticeAccount) -> Expectation:
        """Return the mean R² and median errors over several draws; n rows belong to n/j privacy units."""
        m, n = self.schema.n_columns, max(n // self.max_contributions, 1)
        rows = max(min(SIMULATED_ROWS, 500_000 // m), 8 * m)
        table = simulate(self.schema, scenario, response=self.response, r2=self.r2, rows=rows, mean=self.mean)
        trial = Trial.of(self.schema, table, n)
        # μ of all releases except the count. The Gram matrix of a share π of the rows, divided by π, has noise 1/π
        # times as large.
        parts = budgets_of(account, marginals=self._has_marginals).in_turn
        rates = rates_of(account, n, m, marginals=self._has_marginals)
        mu = [part * rate for part, rate in zip(parts, rates, strict=True)]
        found = []
        for draw in range(DRAWS):
            drawn = trial.draw(mu, np.random.default_rng(draw))
            found.append((trial.r2_of(drawn), *trial.errors(drawn.pool.current)))
        r2 = float(np.mean([draw[0] for draw in found]))
        _, error_ratio, interval, per_deviation = np.median(found, axis=0).tolist()
        lost, useful, rate = max(trial.least_squares_r2 - r2, 0.0), table.r2 - r2 < USEFUL * table.r2, None
        if self.mean is not None:  # a log rate ratio is a slope over the mean
            rate = per_deviation * cast(Numeric, self.schema.parts[self.response]).upper / self.mean
            useful = rate < math.log(RATE_RATIO)
        return Expectation(scenario.name, lost, r2, error_ratio, interval, useful, rate)


def numeric_schema(features: int) -> Schema:
    """Return a schema of ``features`` numeric columns and a numeric response "y"."""
    d = check.positive_integer(features=features)
    _check_columns(d + 2)
    return Schema.of({**{f"x{i + 1}": [-1, 1] for i in range(d)}, "y": [-1, 1]})


def _check_columns(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise ArgumentError(
            f"Planning supports at most {MOST_COLUMNS:,} columns after encoding (one per level or term), got "
            f"{columns:,}. Declare only the columns of one model, or fewer levels."
        )


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
