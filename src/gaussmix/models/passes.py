r"""The rule of a release in passes: which pass comes next, computed from what has come out so far.

Post-processing: every function here reads declared constants and noisy outputs, never rows. A pass is a public triple,
(transform, clip, μ). Rows are mapped by the transform, shortened to the clip (:mod:`gaussmix.data.transforms`), and
their Gram matrix is released with noise for a sensitivity of clip (the mechanism's ``lattice``). All μ are fixed in
advance (:class:`gaussmix.models.schedules.Schedule`), so that the whole costs √Σμ² however the rest is chosen.

Why passes: one pass in the declared metric sees a direction in which rows have second moment λ with relative error
C²/(nλμ). In a metric that makes all second moments near 1, the largest norm that matters is about √m, and the relative
error is m/(nμ) in every direction, whatever the bounds and the condition number. The metric is learned from earlier,
cheaper passes. Expect an excess over the residual variance of about κ²/(2x²), x = μn/m^1.5, for every target.

    state = first_state(matrix, mus, intercept=..., intercept_energy=...)
    while not state.done:
        request = plan_histogram(state)                       # transforms and edges
        counts = ...                                          # noisy, from the rows
        request = plan_pass(state, request, counts)           # transform, clip
        matrix = ...                                          # noisy, from the rows
        state = absorb(state, request, matrix)
    state.pool                                                # what models are fitted from

The rule and its reasons: docs/passes.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError
from gaussmix.models.pooling import Cleaned, NoisyGram, Pool, clean
from gaussmix.models.tails import bin_edges, read_tail

__all__ = [
    "HistogramRequest",
    "PassRequest",
    "State",
    "absorb",
    "as_released",
    "first_state",
    "plan_histogram",
    "plan_pass",
    "rows_in",
    "whitenings",
]


POWERS = (0.75, 1.0)
"""Strengths γ of whitening that are considered: 1 is full, less spares rare levels."""

FLOOR = 0.25
"""Part of the noise's edge 2√m that is added to every eigenvalue before whitening."""

LOST_WEIGHT = 0.05
"""What clipping costs: excess risk per share of ‖z‖² mass lost (noiseless clipped fits: 0.03 to 0.05, linear)."""

LAST_LOST_WEIGHT = 0.075
"""The same in the last pass, from which intervals are computed: it clips less than prediction alone would ask for."""

TAILS_LOST_WEIGHT = 30.0
"""The same where tails are to be kept: of rows that the histogram shows hardly one is shortened."""

MOST_LOST = 0.30
"""No clip surely loses more of the mass: beyond it whitening and clipping feed each other on rare levels.

Judged on what the histogram shows: where noise hides the tail, an assumed heavy one would push the clip up and waste
the pass."""

WHOLE_TIE = 1.2
"""How many times the least expected loss a pass in the declared metric may have and still be the next one.

It shortens no row, and nothing of its loss is read off a noisy histogram. It is near the least where columns use their
range and rows are about as long as the bounds allow: tables of yes and no."""

LARGEST_RESCALING = 20.0

_RANGE = 1e-13


# ---------------------------------------------------------------------------------------------------------------
# State
@dataclass(frozen=True)
class Persons:
    """Noisy number of persons, of their rows, and the declared j: as how many rows one person counts at most."""

    number: float
    rows: float
    most: int


@dataclass(frozen=True, eq=False)
class State:
    """What is known between two passes: noisy outputs and declared constants.

    Attributes
    ----------
    pool : Pool
        All passes so far.
    mu : tuple of float
        Budgets of what is still to come: histogram, pass, histogram, pass, ….
    intercept : int or None
        Column of the intercept.
    intercept_energy : float
        Squared value of the intercept in an encoded row (C = 1).
    rows, histograms : float or None, int
        Mean number of rows in the histograms so far, noisy, and how many they were.
    persons : Persons or None
        Where the unit is a person: histograms count persons by Σ‖z‖², metrics and clips are for all rows of one.
    """

    pool: Pool
    mu: tuple[float, ...]
    intercept: int | None
    intercept_energy: float
    rows: float | None = None
    histograms: int = 0
    persons: Persons | None = None

    @property
    def done(self) -> bool:
        """Whether the last pass has been taken in."""
        return not self.mu


def first_state(
    matrix: Floats, mu: tuple[float, ...], *, intercept: int | None, intercept_energy: float = 1.0
) -> State:
    """After the pass in the declared metric: rows of norm at most 1, noise 1/(√2 μ) off the diagonal."""
    pool = Pool.of(NoisyGram.isotropic(matrix, scale=1 / (math.sqrt(2) * mu[0])))
    return State(pool, tuple(mu[1:]), intercept, intercept_energy)


def rows_in(state: State) -> float:
    """Noisy number of rows, or of persons, not below 10."""
    if state.persons is not None:
        return max(state.persons.number, 10.0)
    if state.rows is not None:
        return state.rows
    M, N = state.pool.matrix, state.pool.shape
    if state.intercept is None:
        energy, noise = np.trace(M), math.sqrt(2) * np.linalg.norm(np.diagonal(N))
        return float(max(energy, 10 * noise, 10.0))
    i = state.intercept
    return float(max(M[i, i] / state.intercept_energy, 10.0))


def _counted(state: State, counts: tuple[Floats, ...]) -> float:
    """Noisy number of rows, not below 10: the mean over all histograms, each with the same noise. Or of persons."""
    if state.persons is not None:
        return rows_in(state)
    total = float(np.mean([count.sum() for count in counts]))
    if state.rows is not None:
        total = (state.histograms * state.rows + total) / (state.histograms + 1)
    return max(total, 10.0)


# ---------------------------------------------------------------------------------------------------------------
# Metric
@dataclass(frozen=True, eq=False)
class Metric:
    """A candidate transform z = E r, and what is expected of it.

    Attributes
    ----------
    power : float
        γ; 0 is the declared metric.
    transform : Transform
    mean : float
        Estimate of the mean ‖z‖².
    cost : float
        (Σ_i w_i/λ_i)²/m³ relative to full whitening, which has 1: see `whitenings`.
    """

    power: float
    transform: Transform
    mean: float
    cost: float

    @property
    def declared(self) -> bool:
        """Whether it is that of the declared bounds, in which no row is shortened."""
        return self.power == 0


def whitenings(cleaned: Cleaned, rows: float, powers: tuple[float, ...]) -> tuple[Metric, ...]:
    r"""Metrics :math:`N = (S/\hat n)^\gamma` for several γ, S the cleaned pool raised by a part of its noise.

    γ = 0 is the declared metric itself, without the rotation.

    With S/n̂ = V diag(λ) Vᵀ and w = λ^γ, the transform is diag(w)^(-½) Vᵀ: one product with Vᵀ serves all of them. γ = 1
    makes all second moments 1; then a level of frequency p has norm² 1/p. A smaller γ gives it p^(-γ), at the price of
    larger noise in weak directions.

    Noise of scale s in that metric gives coefficients an excess risk of s²(aᵀNa) tr(G⁻¹N)/n over a residual variance
    of aᵀGa/n. Averaged over directions a this is :math:`(s/n)^2 (\sum_i w_i/\lambda_i)^2/m`, m for full whitening
    in units of (s/n)²: their ratio is `Metric.cost`.
    """
    S = cleaned.raised(FLOOR * 2 * math.sqrt(len(cleaned.values)))
    h, V = np.linalg.eigh((S + S.T) / 2)
    eigenvalues = np.maximum(h, h[-1] * _RANGE) / rows
    rotation = Transform.nearest(V.T)
    metrics = []
    for power in powers:
        w = eigenvalues**power
        transform = rotation.times(1 / np.sqrt(w)) if power else Transform.nearest(np.eye(len(w)))
        E = transform.matrix
        mean = float(np.sum((E @ cleaned.matrix) * E)) / rows
        metrics.append(Metric(power, transform, max(mean, 1e-12), float(np.mean(w / eigenvalues)) ** 2))
    return tuple(metrics)


# ---------------------------------------------------------------------------------------------------------------
# Histogram
@dataclass(frozen=True, eq=False)
class HistogramRequest:
    """Counts to be released: for every metric, rows by ‖z‖², as many as :mod:`gaussmix.models.tails` has bins.

    A row is in one bin of each, so that J metrics have joint sensitivity √J. ``declared`` is the metric of the declared
    bounds, in which no row is longer than they allow: nothing is counted for it.
    """

    metrics: tuple[Metric, ...]
    edges: tuple[Floats, ...]
    noise: float
    declared: Metric


def plan_histogram(state: State, *, powers: tuple[float, ...] = POWERS) -> HistogramRequest:
    """Metrics from the pool, and edges of their histograms."""
    cleaned, rows = clean(state.pool.current), rows_in(state)
    *metrics, declared = whitenings(cleaned, rows, (*powers, 0.0))
    noise = math.sqrt(len(powers)) / state.mu[0]
    edges = tuple(bin_edges(metric.mean) for metric in metrics)
    return HistogramRequest(tuple(metrics), edges, noise, declared)


# ---------------------------------------------------------------------------------------------------------------
# Pass
@dataclass(frozen=True, eq=False)
class PassRequest:
    r"""A pass: everything that decides what is computed from the rows, and none of it from rows.

    Release Σ z̄ z̄ᵀ with z̄ = E r shortened to ‖z̄‖² ≤ clip, in units of clip, with noise of scale 1/(√2 μ).

    Attributes
    ----------
    metric : Metric
    clip : float
    mu : float
    rows : float
        Noisy number of rows.
    kept_weight : float
        Expected mean weight of a row after clipping.
    lost : float
        Expected share of ‖z‖² mass lost.
    """

    metric: Metric
    clip: float
    mu: float
    rows: float
    kept_weight: float
    lost: float

    def check(self, m: int, *, mu: float) -> None:
        """Refuse what no rule planned for a table of m columns and a pass of budget μ."""
        if self.metric.transform.integers.shape != (m, m) or self.mu != mu:
            raise ArgumentError("A pass was not planned for these columns, or not for its noise.")
        check.positive(finite=True, clip=self.clip)
        if self.metric.declared and not (self.clip >= 1 and self.metric.transform == Transform.nearest(np.eye(m))):
            raise ArgumentError("A pass in the declared metric maps no row and shortens none.")
        check.positive(finite=True, rows=self.rows)
        check.in_interval(0, 1, closed=True, kept_weight=self.kept_weight)
        check.in_interval(0, 1, closed=True, lost=self.lost)


def plan_pass(
    state: State, request: HistogramRequest, counts: tuple[Floats, ...], *, keep_tails: bool = False
) -> PassRequest:
    r"""Choose metric and clip by the least of

    .. math:: \mathrm{cost}\cdot\frac{\kappa^2}{2x^2} + v\,\mathrm{lost}(c), \quad
        \kappa = c/m,\; x = \mu_p \hat n/m^{1.5}

    what noise costs (theory) and what clipping costs (measured, for predictions). No more than `MOST_LOST` is surely
    lost. At the optimum lost(c) falls like the square of the standard error: the bias vanishes beside the noise. The
    declared metric, with the largest norm as its clip, loses nothing, and wins a near tie (`WHOLE_TIE`).
    """  # noqa: D400
    last_weight = TAILS_LOST_WEIGHT if keep_tails else LAST_LOST_WEIGHT
    lost_weight = last_weight if len(state.mu) == 2 else LOST_WEIGHT
    rows, mu, m = _counted(state, counts), state.mu[1], len(state.pool.matrix)
    most, total = (1, rows) if state.persons is None else (state.persons.most, max(state.persons.rows, 10.0))
    x = mu * rows / m**1.5
    plans: list[tuple[float, PassRequest]] = []
    for metric, edges, count in zip(request.metrics, request.edges, counts, strict=True):
        largest = most * metric.transform.largest_squared_norm
        tail = read_tail(count, edges, noise=request.noise, rows=rows, largest=largest)
        loss = _noise_loss(metric, tail.edges, m, x) + lost_weight * tail.lost
        loss = loss + 10.0 * np.maximum(tail.surely_lost - MOST_LOST, 0.0)
        i = int(np.argmin(loss))
        plan = PassRequest(metric, float(tail.edges[i]), mu, total, float(tail.kept_weight[i]), float(tail.lost[i]))
        plans.append((float(loss[i]), plan))
    least, best = min(plans, key=lambda found: found[0])
    whole = most * request.declared.transform.largest_squared_norm
    if _noise_loss(request.declared, np.array(whole), m, x) <= WHOLE_TIE * least:
        return PassRequest(request.declared, whole, mu, total, kept_weight=1.0, lost=0.0)
    return replace(best, metric=replace(best.metric, transform=best.metric.transform.triangular()))


def _noise_loss(metric: Metric, clips: Floats, m: int, x: float) -> Floats:
    """What noise for a clip costs, in units of the residual variance: cost·κ²/(2x²)."""
    return np.asarray(metric.cost * (clips / m) ** 2 / (2 * x * x))


def as_released(request: PassRequest, matrix: Floats) -> NoisyGram:
    """A pass back in encoded units: Σ f r rᵀ with the weights f ≤ 1 of shortened rows."""
    scale = request.clip / (math.sqrt(2) * request.mu)
    return NoisyGram.in_metric(matrix * request.clip, transform=request.metric.transform.matrix, scale=scale)


def absorb(state: State, request: PassRequest, matrix: Floats) -> State:
    """Take in a pass: back to encoded units, clip weights brought to mean one, pooled.

    ``matrix`` is the noisy Σ z̄ z̄ᵀ/clip. A clipped pass estimates Σ f r rᵀ with weights f ≤ 1; it is multiplied by
    n̂ over the released Σ f (the intercept's entry), or, without an intercept, by what the histogram expects. In the
    declared metric all f are 1.
    """
    release = as_released(request, matrix)
    if request.metric.declared:
        weight = 1.0
    elif state.intercept is None:
        weight = 1 / max(request.kept_weight, 1 / LARGEST_RESCALING)
    else:
        i = state.intercept
        weight = request.rows / max(release.matrix[i, i] / state.intercept_energy, 1e-9)
    release = release.times(min(max(weight, 1.0), LARGEST_RESCALING))
    histograms = state.histograms + 1
    return replace(state, pool=state.pool.add(release), mu=state.mu[2:], rows=request.rows, histograms=histograms)
