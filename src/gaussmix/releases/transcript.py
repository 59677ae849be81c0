r"""The outputs of the mechanism, one noisy Gram matrix per pass, and a test of their noise.

**Private**: everything here is a function of noisy outputs and of declared quantities.

A pass is G plus symmetric Gaussian noise: standard deviation C²/(√2 μ) off the diagonal, √2 times that on it. A release
holds the outputs of one or several passes, each in its own metric, z = E r clipped to ‖z‖² ≤ clip
(:mod:`gaussmix.releases.preconditioning`). Pooled by inverse variance they estimate G with noise B·GOE·Bᵀ, of shape
N = BBᵀ.

`Transcript.noise_p_value` detects passes that agree better than their stated noise allows. Pass p released M = A + N: A
is a sum over the rows in units of the clip, N is symmetric noise of standard deviation 1/μ on the diagonal and 1/(√2 μ)
off it. Rotated by an orthogonal matrix U, UᵀNU has the same distribution: the entries μ(UᵀNU)_ii and √2 μ(UᵀNU)_ij,
i < j, are independent standard normal numbers.

Given everything before the pass (rows, samples, earlier outputs, and choices based on them), A is fixed and N is
independent of it. Choose a rotation U and a set of k entries as functions of earlier outputs. Map the earlier passes
G_1, …, G_(p-1) into the metric of this pass, E G_q Eᵀ, and let D be the residual of M after projection onto their span,
all of it in these entries. Then ‖D‖², in the units above, has a noncentral chi-square distribution with k - (p - 1)
degrees of freedom, whatever the rows are: clipping, sampling and the noise of earlier passes change only its
noncentrality. Its lower tail is below that of the central distribution, so

.. math:: P\bigl(F(\|D\|^2) < \alpha\bigr) \le \alpha

with F the distribution function of the central one. As this holds given everything before the pass, it also holds for
the sum over all passes, with the sum of their degrees of freedom.

Passes of one table with no noise, or with much less than stated, lie nearly in each other's span and are detected. The
test is one-sided, because rows that are clipped or sampled differently only increase the distance. A release of one
pass cannot be tested.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._text import six_digits
from gaussmix._types import Floats
from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.schema import FRACTION_BITS, INTERCEPT, Schema
from gaussmix.errors import ArgumentError
from gaussmix.releases.declared import ModelOutput
from gaussmix.releases.marginals import Marginals
from gaussmix.releases.noisy import NORMAL_95, ClippingLoss, Fitted, NoisyMoment, fieller, share_words
from gaussmix.releases.preconditioning import (
    BINS,
    SHARES,
    NoisyGram,
    PassRequest,
    Pool,
    State,
    as_released,
    first_state,
    rows_in,
    run_passes,
)
from gaussmix.releases.shrinkage import RidgeFit, Shrinkage

ALIGNMENT, LARGEST_BIAS = 0.25, 0.5
"""Constants of the allowance for the bias from norm clipping (`Transcript.clipping_bias`)."""

__all__ = ["FALSE_ALARM_RATE", "PassOutput", "Transcript", "start"]


@dataclass(frozen=True, eq=False)
class PassOutput:
    """One pass: its public parameters and its noisy output.

    Attributes
    ----------
    matrix : array (m, m)
        Σ z̄ z̄ᵀ in units of the clip (norm at most 1 per row or privacy unit), with noise 1/(√2 μ) off the diagonal. In
        the first pass of units with contribution bound j, rows have norm at most 1 and the noise is j times that.
    mu : float
        Sensitivity over noise for one row or privacy unit, as in the account; infinite for a pass without noise.
    request : PassRequest or None
        Transform and clip; None for the first pass, in the declared metric.
    rate : float
        Probability with which each row was sampled.
    counted_rate : float
        The same for the histogram before it, which uses the same sample in all passes.
    """

    matrix: Floats
    mu: float
    request: PassRequest | None = None
    rate: float = 1.0
    counted_rate: float = 1.0


def start(schema: Schema, matrix: Floats, mu: Sequence[float], unit: PrivacyUnit | None = None) -> State:
    """Return the state after the first pass; ``mu`` are the budgets of all releases, that of the pass first.

    With row weights the intercept's sum of squares is that of the weights and does not count rows. With a privacy unit
    and contribution bound j the first pass has j times the noise.
    """
    entry = float(schema.in_units(schema.intercept)) / 2.0**FRACTION_BITS
    counts = bool(schema.intercept) and schema.weight is None
    at = schema.groups[INTERCEPT][0] if counts else None
    first = mu[0] / (1 if unit is None else unit.max_contributions)
    return first_state(matrix, (first, *mu[1:]), intercept=at, intercept_energy=entry**2 if counts else 1.0)


@dataclass(frozen=True, eq=False)
class Transcript:
    """The passes of a release and their pooled estimates.

    Attributes
    ----------
    passes : tuple of PassOutput
        In the order in which they were drawn.
    schema : Schema
        The encoding of rows in the passes: the declared one, with numbers coded to thresholds if they are top-coded.
    models : tuple of ModelOutput
        Outputs of declared models, drawn after the passes.
    unit : PrivacyUnit or None
        The declared privacy unit; None for row-level privacy.
    void : str
        Why the release has no privacy guarantee; empty if it has one.
    marginals : Marginals or None
        Marginals of the declared table, drawn before the passes.
    declared : Schema or None
        The declared schema, if it is another one than ``schema``.
    model_share : float
        Share of μ² for declared models; 0 without them.
    """

    passes: tuple[PassOutput, ...]
    schema: Schema
    models: tuple[ModelOutput, ...] = ()
    unit: PrivacyUnit | None = None
    void: str = ""
    marginals: Marginals | None = None
    declared: Schema | None = None
    model_share: float = 0.0

    @cached_property
    def coded(self) -> dict[str, str]:
        """How numbers are top-coded, in words, by column.

        "wage coded to at most 1,880 (0.2 to 1.1 % of the rows, 95 % interval)".
        """
        if self.declared is None:
            return {}
        found = {}
        for name, (lower, upper) in self.schema.thresholds_within(self.declared).items():
            column, ends = cast(Numeric, self.declared.columns[name]), []
            for end, bound, above in ((lower, column.lower, False), (upper, column.upper, True)):
                if end != bound:
                    ends.append(f"at {'most' if above else 'least'} {six_digits(end)}")
                    if self.marginals is not None:
                        _, _, low, high = self.marginals.share_beyond(name, end, above=above)
                        ends[-1] += f" ({share_words(low, high, of='rows')})"
            found[name] = f"{name} coded to {' and '.join(ends)}"
        return found

    @cached_property
    def weighted(self) -> str:
        """How rows are weighted in the last pass, in words; empty if no row can have a weight below 1.

        A clipped row z counts clip/‖z‖² times, so that models are weighted least squares, exactly. The weights are a
        function of the row and of the release (:meth:`gaussmix.Release.weights`).
        """
        request, found = self.passes[-1].request, ["rows beyond their declared norm"] * self.schema.scales_rows
        # The bound on ‖z‖² has a margin for rounding: a clip that was chosen as the bound removes nothing.
        if request is not None and not request.metric.declared:
            bound = request.metric.transform.largest_squared_norm * (1 - 1e-6)
            found += ["high-leverage rows"] * (self.unit is not None or request.clip < bound)
        if self.unit is not None and self.unit.contribution_bounding == "scale":
            found.append(f"rows of {self.unit.column} values with many rows")
        removed = f"; removed: {self.clipping_loss}" if "high-leverage rows" in found else ""
        words = f"{' and '.join(found)} weighted below 1 (Release.weights{removed})" if found else ""
        if self.unit is None or self.unit.contribution_bounding == "scale":
            return words
        most = self.unit.max_contributions
        sampled = f"{f'at most {most} rows' if most > 1 else 'one row'} of each {self.unit.column}, chosen at random"
        return "; ".join(filter(None, [sampled, words]))

    @property
    def independent_rows(self) -> bool:
        """Whether at most one row of each privacy unit was read, so that rows are independent if the units are.

        Where one row of each unit is sampled, the population is that of units, each with one of its rows at random.
        """
        return self.unit is None or self.unit.one_row_each

    def check(self) -> None:
        """Reject matrices of the wrong shape, not finite or not symmetric, and rates outside (0, 1]."""
        m = self.schema.n_columns
        for number, output in enumerate(self.passes):
            M = output.matrix
            if M.shape != (m, m) or not np.isfinite(M).all() or np.any(M != M.T):
                raise ArgumentError(
                    "The output of a pass must be a finite symmetric matrix, one row per encoded column."
                )
            check.positive(finite=len(self.passes) > 1, mu=output.mu)
            if not (0 < check.real(rate=output.rate) <= 1 and 0 < check.real(rate=output.counted_rate) <= 1):
                raise ArgumentError(
                    f"rate and counted_rate must lie in (0, 1], got {output.rate!r} and {output.counted_rate!r}."
                )
            if (output.request is None) != (number == 0):
                raise ArgumentError(
                    "The first pass must have no preconditioning parameters, and every later pass must have them."
                )
            if output.request is not None:
                output.request.check(m, mu=output.mu * output.rate)
        if not self.passes:
            raise ArgumentError("A release must have at least one pass.")
        for declared in self.models:
            declared.check(m)
        if bool(self.models) != (self.model_share > 0):
            raise ArgumentError(
                f"model_share must be > 0 with declared models and 0 without them, got {self.model_share!r}."
            )
        if self.marginals is not None:
            self.marginals.check()

    @cached_property
    def _states(self) -> tuple[State, ...]:
        """The state after each pass."""
        first = self.passes[0]
        known = start(self.schema, first.matrix / first.rate, [first.mu * first.rate], self.unit)
        return run_passes(
            known,
            len(self.passes),
            request_of=lambda p, _: cast(PassRequest, self.passes[p].request),
            output_of=lambda p, _: self.passes[p].matrix / self.passes[p].rate,
        )

    @property
    def pool(self) -> Pool:
        """All passes, pooled by inverse variance, for rows divided by C."""
        return self._states[-1].pool

    @cached_property
    def noise_p_value(self) -> float:
        """P-value of the hypothesis that every pass after the first has at least its stated noise.

        It is the minimum over single passes, all passes together, and both sets of entries, with a Bonferroni
        correction (see the module's docstring).
        """
        pairs = zip(self.passes[1:], self._states[:-1], strict=True)  # a pass, and the state before it
        found = [_statistics(output, output.request, state.pool) for output, state in pairs if output.request]
        tests: list[tuple[float, int]] = []
        for of_passes in zip(*found, strict=True):
            used = [(statistic, freedom) for statistic, freedom in of_passes if freedom > 0]
            if len(used) > 1:
                used.append((sum(statistic for statistic, _ in used), sum(freedom for _, freedom in used)))
            tests += used
        return min([1.0, *(len(tests) * float(special.chdtr(freedom, statistic)) for statistic, freedom in tests)])

    @property
    def exact(self) -> bool:
        """Whether the release has no noise (ε = ∞, not private)."""
        return math.isinf(self.passes[0].mu)

    @property
    def rows(self) -> float:
        """Noisy number of rows, at least 10."""
        return rows_in(self._states[-1])

    @property
    def pooled(self) -> NoisyGram:
        """The pooled estimate of the Gram matrix and its noise, in the units of encoded rows."""
        return self.pool.current.times(self.schema.row_norm**2)

    @property
    def last(self) -> NoisyGram:
        """The last pass alone, in the units of encoded rows; its noise is exact given the earlier passes."""
        return self.pool.members[-1].times(self.schema.row_norm**2)

    @property
    def second_moment(self) -> Floats:
        """The pooled estimate of the Gram matrix, not necessarily positive semidefinite."""
        return self.pooled.matrix

    @property
    def noisy(self) -> NoisyMoment:
        """The last pass and the distribution of its noise, for inference; exact given the earlier passes."""
        last = self.last
        return NoisyMoment(
            last.matrix,
            last.shape,
            self.clipping_loss,
            self.independent_rows,
            self.void,
            self.clipping_bias,
            self.coded,
            self.weighted,
            # All heavy tails are top-coded, so that the last histogram misses little.
            self.clipping_bias < LARGEST_BIAS
            and self.marginals is not None
            and self.marginals.thresholds().keys() <= self.coded.keys(),
        )

    @property
    def predictive(self) -> NoisyMoment:
        """The pool and the approximate distribution of its noise, for prediction: less noise than the last pass."""
        pooled = self.pooled
        return NoisyMoment(pooled.matrix, pooled.shape, independent=self.independent_rows)

    @property
    def column_noise(self) -> Floats:
        """N_jj for every encoded column; the standard error of its sum of squares is √2 N_jj."""
        return np.diagonal(self.pooled.shape)

    @property
    def clipping_bias(self) -> float:
        """B: allowance for the distance of the unweighted coefficients, in standard errors of the privacy noise.

        Clipped rows have weights below 1, and intervals are for the weighted coefficients. Clipping at c removes
        Σ(‖z‖² - c)₊ = ρ of the squared norms. Unweighted coefficients differ by at most φη standard errors, where
        η = √2 μρ/c and φ ≤ (1 + |κ|)/(2√(1 + κ²)) whatever the rows are; κ is the cosine of the coefficient's score
        and the residual in the metric. The allowance is B = min(η/4, 1/2), chosen on tables (docs/inference.md): on
        most tables intervals hold the unweighted coefficients too, but where few rows tell nearly collinear columns
        apart the difference is many standard errors, and the last histogram cannot show it reliably.
        """
        output = self.passes[-1]
        lost = 0.0 if output.request is None else min(output.request.lost, 0.5)
        if not lost:
            return 0.0
        # In units of the clip the trace is Σ‖z‖² less what was clipped.
        removed = lost / (1 - lost) * max(float(np.trace(output.matrix)), 0.0)
        return min(ALIGNMENT * math.sqrt(2) * output.mu * removed, LARGEST_BIAS)

    @cached_property
    def clipping_loss(self) -> ClippingLoss | None:
        """Row weight removed by norm clipping in the last pass; None if it was in the declared metric.

        The estimate is 1 - Σf/n̂. The pass released Σf, the weights of all rows, in its intercept's entry, with noise √2
        N_ii; n̂ is the mean total of the histograms before the passes, BINS counts each, with noise
        √(BINS/histograms)/πμ_q plus that of a sample at rate π, of variance n(1 - π)/π; or that of the marginals, if it
        has less noise. The interval is Fieller's. The last histogram's estimate is the only one if the intercept's
        entry does not show the weights: without an intercept, with row weights, and with a privacy unit.
        """
        output = self.passes[-1]
        if output.request is None or output.request.metric.declared:
            return None
        expected = 1 - output.request.kept_weight
        if not self.schema.intercept or self.schema.weight is not None or self.unit is not None:
            return ClippingLoss(*(math.nan,) * 4, expected)
        at, n = self.schema.groups[INTERCEPT][0], output.request.rows
        released = as_released(output.request, output.matrix / output.rate)
        energy = start(self.schema, self.passes[0].matrix, [1.0]).intercept_energy
        kept, noise = released.matrix[at, at] / energy, math.sqrt(2) * released.shape[at, at] / energy
        shares = SHARES[len(self.passes)]
        rate = output.counted_rate
        mu_q = output.mu * math.sqrt(shares[-2] / shares[-1]) * rate
        counted = math.sqrt(BINS / (len(self.passes) - 1) / mu_q**2 + n * (1 - rate) / rate)
        if self.marginals is not None and self.marginals.total[1] < counted**2:
            n, counted = self.marginals.total[0], math.sqrt(self.marginals.total[1])
        _, _, low, high = fieller(Fitted(np.array([kept, n]), np.diag([noise**2, counted**2])), NORMAL_95)
        low, high = (min(max(1 - end, 0.0), 1.0) for end in (min(high, 1.0), low))
        return ClippingLoss(float(1 - kept / n), float(math.hypot(noise, counted * kept / n) / n), low, high, expected)

    @cached_property
    def _shrinkage(self) -> Shrinkage:
        """The solver, seeded with the drawn matrices, so that a release gives the same fit on every processor."""
        drawn = b"".join(np.ascontiguousarray(output.matrix, dtype="<f8").tobytes() for output in self.passes)
        seed = int.from_bytes(hashlib.sha256(drawn).digest()[:16], "little")
        # The largest energy of one row in each column follows from its bounds. A joint norm bound is loose for a
        # single entry, so the energy of an average row is used there.
        largest = 1 / self.schema.row_norm**2
        average = np.clip(np.diagonal(self.pool.current.matrix) / self.rows, 0.0, largest)
        sources = (self.schema.columns.get(column.source or INTERCEPT) for column in self.schema.encoded)
        jointly = [isinstance(source, Vector) and not source.bounded for source in sources]
        one_row = np.where(jointly, average, largest)
        return Shrinkage(self.pool, seed=seed, one_row=one_row, reference=1.0 if len(self.passes) == 1 else 0.5)

    def solve(self, features: Sequence[int], responses: Floats) -> Floats:
        """Return θ of responses (combinations of encoded columns, (m, q)) on some encoded columns: (d, q).

        A ridge tuned for prediction under the noise (:mod:`gaussmix.releases.shrinkage`). Without noise equivalent to
        `numpy.linalg.lstsq`: the minimum-norm least-squares solution.
        """
        if self.exact:
            M, x = self.second_moment, np.asarray(features)
            return np.asarray(scipy.linalg.pinvh(M[np.ix_(x, x)]) @ M[x] @ responses)
        return np.column_stack([self._fit(features, response).coef for response in responses.T])

    def residual(self, features: Sequence[int], response: Floats) -> float:
        """Return the residual sum of squares of :meth:`solve`, without optimism bias."""
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
"""Significance level of the noise test, up to the total-variation distance between discrete and Gaussian noise."""

LARGEST_VARIANCES = (3.0, math.inf)
"""Entries are used if earlier passes predict them with at most this variance, in units of the noise.

All entries detect missing noise in small tables; the accurate ones detect a fifth of the stated noise in large tables,
where the noise of earlier passes dominates the other entries."""

_ROUNDING = 2.0**-50  # relative rounding error of float64 differences


def _statistics(output: PassOutput, request: PassRequest, before: Pool) -> list[tuple[float, int]]:
    """Return ‖D‖² and its degrees of freedom for each set of entries; NaN, which rejects nothing, on overflow."""
    m = len(output.matrix)
    # Whitened by W = E/√s, s = clip/(√2 μ), the noise of this pass has unit scale. U diagonalises the noise of the
    # pool, W B Bᵀ Wᵀ = U diag(d) Uᵀ, so that the pool predicts entry (i, j) with variance d_i d_j.
    whiten = request.metric.transform.matrix / math.sqrt(request.clip / (math.sqrt(2) * request.mu))
    factor = whiten @ before.current.factor
    d, U = np.linalg.eigh(factor @ factor.T)
    above = np.triu_indices(m)
    variance = d[above[0]] * d[above[1]]
    weight = np.where(above[0] == above[1], math.sqrt(0.5), 1.0)
    outputs = [(output.matrix * (math.sqrt(2) * output.mu), U)]
    outputs += [(member.matrix, whiten.T @ U) for member in before.members]
    with np.errstate(over="ignore", invalid="ignore"):
        seen, *earlier = ((basis.T @ matrix @ basis)[above] * weight for matrix, basis in outputs)
        predicted, found = np.column_stack(earlier), list[tuple[float, int]]()
        for limit in LARGEST_VARIANCES:
            used = variance <= limit
            own, freedom = seen[used], int(used.sum()) - predicted.shape[1]
            if freedom <= 0:
                found.append((math.nan, 0))
                continue
            span, _ = np.linalg.qr(predicted[used])
            distance = np.linalg.norm(own - span @ (span.T @ own)) + _ROUNDING * np.linalg.norm(own)
            found.append((float(distance**2), freedom))
        return found
