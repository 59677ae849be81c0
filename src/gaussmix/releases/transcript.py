r"""What leaves the mechanism: one noisy Gram matrix for each pass.

**Private**: everything here is a function of noisy outputs and of declared quantities.

A pass is G plus symmetric Gaussian noise: standard deviation C²/(√2 μ) off the diagonal, √2 times that on it. A release
holds the outputs of one or several passes, each in its own metric, z = E r shortened to ‖z‖² ≤ clip
(:mod:`gaussmix.releases.preconditioning`). Pooled by inverse variance they estimate G with noise B·GOE·Bᵀ, of shape
N = BBᵀ.

Detect passes of a release that agree better than the noise they are said to have allows.

Post-processing: every function here reads released matrices and public parameters.

Pass p released M = A + N: A is a sum over the rows in units of the clip, N is symmetric noise of standard deviation 1/μ
on the diagonal and 1/(√2 μ) off it. Rotated by an orthogonal matrix U, UᵀNU has the same distribution: the entries
μ(UᵀNU)_ii and √2 μ(UᵀNU)_ij, i < j, are independent standard normal numbers.

Given everything that came before the pass (rows, samples, earlier outputs, and what was chosen in their light), A is
fixed and N is independent of it. Choose a rotation U and a set of k entries as functions of earlier outputs. Map the
earlier passes G_1, …, G_(p-1) into the metric of this pass, E G_q Eᵀ, and let D be what a projection onto their span
leaves of M, all of it in these entries. Then ‖D‖², in the units above, has a noncentral chi-square distribution with
k - (p - 1) degrees of freedom, whatever the rows are: clipping, sampling and the noise of earlier passes change its
noncentrality and nothing else. Its lower tail is below that of the central distribution, so

.. math:: P\bigl(F(\|D\|^2) < \alpha\bigr) \le \alpha

with F the distribution function of the central one. As this holds given everything before the pass, it also holds for
the sum over all passes, with the sum of their degrees of freedom.

Passes of one table without the noise, or with much less of it, are nearly in the span of each other, and are detected.
The test is one-sided, since rows that are clipped or sampled differently make any difference larger. A release of one
pass has nothing to be compared with.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Vector
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.errors import ArgumentError
from gaussmix.releases.noisy import ClippingLoss, NoisyMoment
from gaussmix.releases.preconditioning import (
    BINS,
    SCHEDULES,
    NoisyGram,
    PassRequest,
    Pool,
    State,
    StepOutput,
    as_released,
    first_state,
    rows_in,
    run_passes,
)
from gaussmix.releases.shrinkage import RidgeFit, Shrinkage

__all__ = ["FALSE_ALARM_RATE", "PassOutput", "Transcript", "noise_p_value", "start"]


@dataclass(frozen=True, eq=False)
class PassOutput:
    """One pass: what was asked of the rows, and the noisy answer.

    Attributes
    ----------
    matrix : array (m, m)
        Σ z̄ z̄ᵀ in units of the clip (rows, or persons, of norm at most 1), with noise 1/(√2 μ) off the diagonal. In the
        first pass, of persons who count as j rows, rows have norm at most 1 and the noise is j times that.
    mu : float
        Sensitivity of one row, or person, over the noise, as the account has it; infinite for a pass without noise.
    request : PassRequest or None
        Transform and clip; None for the first pass, in the declared metric.
    rate : float
        Share of the rows that were read, each with this probability.
    counted_rate : float
        The same of the histogram before it, which read the rows of one sample in all passes.
    """

    matrix: Floats
    mu: float
    request: PassRequest | None = None
    rate: float = 1.0
    counted_rate: float = 1.0


def start(schema: Schema, matrix: Floats, mu: Sequence[float], unit: PrivacyUnit | None = None) -> State:
    """What is known after the first pass of a table; ``mu`` are the budgets of all releases, that of the pass first.

    Where rows have weights, the intercept's sum of squares is that of the weights: it does not count rows. Where the
    unit is a person who counts as j rows, the first pass has j times the noise.
    """
    entry = float(schema.in_units(schema.intercept)) / 2.0**FRACTION_BITS
    counts = bool(schema.intercept) and schema.weight is None
    at = schema.groups[INTERCEPT][0] if counts else None
    first = mu[0] / (1 if unit is None else unit.max_contributions)
    return first_state(matrix, (first, *mu[1:]), intercept=at, intercept_energy=entry**2 if counts else 1.0)


@dataclass(frozen=True, eq=False)
class Transcript:
    """The passes of a release, and what they say of the table together.

    Attributes
    ----------
    passes : tuple of PassOutput
        In the order in which they were drawn.
    schema : Schema
        How rows were encoded: declared.
    steps : tuple of StepOutput
        Steps on the likelihood of one column, drawn after the passes.
    unit : PrivacyUnit or None
        The unit of privacy, declared; None for one row.
    void : str
        Why the release guarantees nothing; empty if it does.
    """

    passes: tuple[PassOutput, ...]
    schema: Schema
    steps: tuple[StepOutput, ...] = ()
    unit: PrivacyUnit | None = None
    void: str = ""

    def check(self) -> None:
        """Refuse numbers that no mechanism drew: other shapes, infinite or asymmetric matrices, rates beyond (0, 1]."""
        m = self.schema.n_columns
        for number, output in enumerate(self.passes):
            M = output.matrix
            if M.shape != (m, m) or not np.isfinite(M).all() or np.any(M != M.T):
                raise ArgumentError("A pass must be a finite, symmetric matrix of the encoded columns.")
            check.positive(finite=len(self.passes) > 1, mu=output.mu)
            if not (0 < check.real(rate=output.rate) <= 1 and 0 < check.real(rate=output.counted_rate) <= 1):
                raise ArgumentError("rate must lie in (0, 1].")
            if (output.request is None) != (number == 0):
                raise ArgumentError("Only the first pass is in the declared metric.")
            if output.request is not None:
                output.request.check(m, mu=output.mu * output.rate)
        if not self.passes:
            raise ArgumentError("A release has at least one pass.")
        if self.steps and self.unit is not None:
            raise ArgumentError("Steps on a likelihood are for rows, and this release has a unit.")
        for step in self.steps:
            step.check(self.schema)
        if len({step.request.target for step in self.steps}) > 1:
            raise ArgumentError("All steps of a release are on the likelihood of one column.")

    @cached_property
    def _states(self) -> tuple[State, ...]:
        """What is known after each pass."""
        first = self.passes[0]
        known = start(self.schema, first.matrix / first.rate, [first.mu * first.rate], self.unit)

        def request_of(number: int, state: State) -> PassRequest:
            request = self.passes[number].request
            if request is None:
                raise ArgumentError("Only the first pass is in the declared metric.")
            return request

        def output_of(number: int, request: PassRequest) -> Floats:
            return self.passes[number].matrix / self.passes[number].rate

        return run_passes(known, len(self.passes), request_of, output_of)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """After each pass: it and all before it, pooled by inverse variance, for rows divided by C."""
        return tuple(state.pool for state in self._states)

    @property
    def pool(self) -> Pool:
        """All passes, pooled by inverse variance, for rows divided by C."""
        return self.pools[-1]

    @cached_property
    def noise_p_value(self) -> float:
        """P-value of the hypothesis that the noise is as large as the passes say (gaussmix.releases.transcript)."""
        return noise_p_value(self.passes, self.pools)

    @property
    def exact(self) -> bool:
        """Whether the release has no noise: that of an infinite ε, which is not private."""
        return math.isinf(self.passes[0].mu)

    @property
    def rows(self) -> float:
        """The number of rows as the passes show it, noisy; at least 10."""
        return rows_in(self._states[-1])

    def steps_serve(self, target: str, features: Sequence[int]) -> bool:
        """Whether steps were made on the likelihood of a column on exactly these encoded columns."""
        others = set(range(self.schema.n_columns)) - set(self.schema.groups.get(target, ()))
        return bool(self.steps) and self.steps[0].request.target == target and set(features) == others

    @property
    def pooled(self) -> NoisyGram:
        """The pooled estimate of the Gram matrix and its noise, in the units of encoded rows."""
        return self.pool.current.times(self.schema.row_norm**2)

    @property
    def last(self) -> NoisyGram:
        """The last pass alone, whose noise is exactly as stated given all before it; in the units of encoded rows."""
        return self.pool.members[-1].times(self.schema.row_norm**2)

    @property
    def second_moment(self) -> Floats:
        """The pooled estimate of the Gram matrix; it need not be positive."""
        return self.pooled.matrix

    @property
    def noisy(self) -> NoisyMoment:
        """The last pass and the distribution of its noise, for inference: exact given all before it."""
        last = self.last
        return NoisyMoment(last.matrix, last.shape, self.clipping_loss, self.unit is None, self.void)

    @property
    def predictive(self) -> NoisyMoment:
        """The pool and the law of its noise, for what predicts: less noise, of a law that is nearly as stated."""
        pooled = self.pooled
        return NoisyMoment(pooled.matrix, pooled.shape, independent=self.unit is None)

    @property
    def column_noise(self) -> Floats:
        """N_jj for every encoded column: √2 of it is the standard deviation of its sum of squares."""
        return np.diagonal(self.pooled.shape)

    @property
    def lost(self) -> float:
        """Share of Σ‖z‖² that the last pass is expected to have clipped away."""
        request = self.passes[-1].request
        return 0.0 if request is None else request.lost

    @cached_property
    def clipping_loss(self) -> ClippingLoss | None:
        r"""What the last pass lost by shortening rows; None where it was in the declared metric, which shortens none.

        1 - Σf/n̂: the pass released Σf, the weights of all rows, in its intercept's entry, with noise √2 N_ii; n̂ is the
        mean total of the histograms before the passes, BINS counts each, so that its noise is √(BINS/histograms)/πμ_q
        beside that of a sample at rate π, whose variance is n(1 - π)/π. Beside it, what the last histogram expects,
        which is all where the intercept's entry shows no weights: where there is none, where rows have weights of
        their own, and where the unit is a person, whose rows are counted another way.
        """
        output = self.passes[-1]
        if output.request is None or output.request.metric.declared:
            return None
        expected = 1 - output.request.kept_weight
        if not self.schema.intercept or self.schema.weight is not None or self.unit is not None:
            return ClippingLoss(math.nan, math.nan, expected)
        at, n = self.schema.groups[INTERCEPT][0], output.request.rows
        released = as_released(output.request, output.matrix / output.rate)
        energy = start(self.schema, self.passes[0].matrix, [1.0]).intercept_energy
        kept, noise = released.matrix[at, at] / energy, math.sqrt(2) * released.shape[at, at] / energy
        shares = SCHEDULES[len(self.passes)].shares()
        rate = output.counted_rate
        mu_q = output.mu * math.sqrt(shares[-2] / shares[-1]) * rate
        counted = math.sqrt(BINS / (len(self.passes) - 1) / mu_q**2 + n * (1 - rate) / rate)
        return ClippingLoss(float(1 - kept / n), float(math.hypot(noise, counted * kept / n) / n), expected)

    @cached_property
    def _shrinkage(self) -> Shrinkage:
        if len(self.passes) == 1:
            return Shrinkage(self.pool, seed=self._seed, one_row=self._one_row, caution=1.0, reference=1.0)
        return Shrinkage(self.pool, seed=self._seed, one_row=self._one_row)

    @property
    def _seed(self) -> int:
        """A seed from the numbers that were drawn: one release gives one fit, on every processor."""
        digest = hashlib.sha256()
        for output in self.passes:
            digest.update(np.ascontiguousarray(output.matrix, dtype="<f8").tobytes())
        return int.from_bytes(digest.digest()[:16], "little")

    @property
    def _one_row(self) -> Floats:
        """Energy of one row in each column, the largest that its bounds allow, in the units of the pool.

        A joint norm says little of one entry: most are far smaller, and one row of that size would be most of what
        such a column holds. There it is the energy of an average row.
        """
        largest = 1 / self.schema.row_norm**2
        average = np.clip(np.diagonal(self.pool.matrix) / self.rows, 0.0, largest)
        sources = (self.schema.columns.get(column.source or INTERCEPT) for column in self.schema.encoded)
        jointly = [isinstance(source, Vector) and not source.bounded for source in sources]
        return np.where(jointly, average, largest)

    def solve(self, features: Sequence[int], responses: Floats) -> Floats:
        """θ of every response, a combination of encoded columns (m, q), on some of the encoded columns: (d, q).

        A ridge that predicts best under the noise (:mod:`gaussmix.releases.shrinkage`); without noise least squares, of
        least norm where it is not unique.
        """
        if self.exact:
            M, x = self.second_moment, np.asarray(features)
            return np.asarray(scipy.linalg.pinvh(M[np.ix_(x, x)]) @ M[x] @ responses)
        return np.column_stack([self._fit(features, response).coef for response in responses.T])

    def residual(self, features: Sequence[int], response: Floats) -> float:
        """Sum of squares that :meth:`solve` leaves of a response, without the optimism of coefficients on own noise."""
        if self.exact:
            a = np.array(response)
            a[np.asarray(features)] -= self.solve(features, response[:, np.newaxis])[:, 0]
            return float(a @ self.second_moment @ a)
        return self._fit(features, response).residual * self.schema.row_norm**2

    def _fit(self, features: Sequence[int], response: Floats) -> RidgeFit:
        constant = self.schema.groups.get(INTERCEPT, ())
        at = constant[0] if constant and constant[0] in features else None
        return self._shrinkage.fit(np.asarray(features), response, intercept=at)


FALSE_ALARM_RATE = 1e-12
"""Largest probability of refusing a release whose noise is as large as it says.

To be exact, beside the account's slack: the distance in total variation between discrete and Gaussian noise."""

LARGEST_VARIANCES = (3.0, math.inf)
"""Which entries are used: those that earlier passes predict with at most this variance, in units of the noise.

All entries detect passes without any noise in small tables; the accurate ones detect noise of a fifth in large tables,
where the noise of earlier passes dominates the others."""

_ROUNDING = 2.0**-50  # of a matrix: what float64 loses of the differences


def noise_p_value(passes: Sequence[PassOutput], pools: Sequence[Pool]) -> float:
    """Return the p-value of the hypothesis that every pass after the first has at least the noise it says.

    ``pools`` are those after each pass. The p-value is the least over single passes, all passes together, and both sets
    of entries, corrected for the number of tests (Bonferroni).
    """
    pairs = zip(passes[1:], pools[:-1], strict=True)  # a pass, and the pool of those before it
    found = [_statistics(output, output.request, before) for output, before in pairs if output.request is not None]
    tests: list[tuple[float, int]] = []
    for of_passes in zip(*found, strict=True):
        used = [(statistic, freedom) for statistic, freedom in of_passes if freedom > 0]
        if len(used) > 1:
            used.append((sum(statistic for statistic, _ in used), sum(freedom for _, freedom in used)))
        tests += used
    return min([1.0, *(len(tests) * float(special.chdtr(freedom, statistic)) for statistic, freedom in tests)])


def _statistics(output: PassOutput, request: PassRequest, before: Pool) -> list[tuple[float, int]]:
    """Return ‖D‖² and its degrees of freedom for each set of entries; NaN, which refutes nothing, if it overflows."""
    m = len(output.matrix)
    # Whitened by W = E/√s, s = clip/(√2 μ), the noise of this pass has unit scale. U diagonalises that of the pool,
    # W B Bᵀ Wᵀ = U diag(d) Uᵀ, so that the pool predicts entry (i, j) with variance d_i d_j.
    whiten = request.metric.transform.matrix / math.sqrt(request.clip / (math.sqrt(2) * request.mu))
    factor = whiten @ before.current.factor
    d, U = np.linalg.eigh(factor @ factor.T)
    above = np.triu_indices(m)
    variance = d[above[0]] * d[above[1]]
    weight = np.where(above[0] == above[1], math.sqrt(0.5), 1.0)

    def entries(matrix: Floats, basis: Floats) -> Floats:
        return np.asarray((basis.T @ matrix @ basis)[above] * weight)

    with np.errstate(over="ignore", invalid="ignore"):
        seen = entries(output.matrix * (math.sqrt(2) * output.mu), U)
        predicted = np.column_stack([entries(member.matrix, whiten.T @ U) for member in before.members])
        return [_distance(seen[used], predicted[used]) for used in (variance <= limit for limit in LARGEST_VARIANCES)]


def _distance(seen: Floats, predicted: Floats) -> tuple[float, int]:
    """Return the squared distance of a vector from the span of others, rounding errors added, and its freedom."""
    freedom = len(seen) - predicted.shape[1]
    if freedom <= 0:
        return math.nan, 0
    span, _ = np.linalg.qr(predicted)
    distance = np.linalg.norm(seen - span @ (span.T @ seen)) + _ROUNDING * np.linalg.norm(seen)
    return float(distance**2), freedom
