"""Adaptive preconditioning: plan each pass of a release from the noisy outputs of the earlier passes.

Post-processing: every function here reads declared constants and noisy outputs, never rows.

A pass is a public triple (transform, clip, μ). Rows are mapped by the transform, their norm is clipped
(:mod:`gaussmix.data.transforms`), and their Gram matrix is released with noise for the sensitivity ``clip``. All μ are
fixed in advance (:class:`Schedule`), so a release costs √Σμ² however transforms and clips are chosen.

In the declared metric, a direction in which rows have second moment λ is estimated with relative error C²/(nλμ). In a
metric in which all second moments are near 1, the norm that matters is about √m, and the relative error is m/(nμ) in
every direction, whatever the bounds and the condition number. The preconditioner is estimated from earlier, cheaper
passes. The expected excess over the residual variance is about κ²/(2x²), x = μn/m^1.5, for every target. ::

    state = first_state(matrix, mus, intercept=..., intercept_energy=...)
    while not state.done:
        request = plan_histogram(state)                       # transforms and edges
        counts = ...                                          # noisy, from the rows
        request = plan_pass(state, request, counts)           # transform, clip
        matrix = ...                                          # noisy, from the rows
        state = update_state(state, request, matrix)
    state.pool                                                # input of the models

docs/preconditioning.md gives the rule and its reasons. The module also holds the schedule of the budget.

A noisy second moment is M = G + B·W·Bᵀ with B known and W a symmetric Gaussian matrix of unit scale (variance 1 off the
diagonal, 2 on it: "GOE"). The distribution depends on the *shape* N = BBᵀ only. For a pass with transform E and noise
scale s, B = √s·E⁻¹, so B⁻¹ is known without inversion and pooling needs no factorisation that could fail. Passes are
pooled by inverse variance:

>>> first = NoisyGram.isotropic(np.diag([5.0, 3.0]), scale=1.0)
>>> second = NoisyGram.isotropic(np.diag([6.0, 4.0]), scale=1.0)
>>> Pool.of(first).add(second).current.matrix.round(12).tolist()
[[5.5, 0.0], [0.0, 3.5]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy import optimize

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError
from gaussmix.releases.declared import ModelBudget

__all__ = [
    "AUTOMATIC_PASSES",
    "BINS",
    "MARGINAL_SHARES",
    "SHARES",
    "Budgets",
    "Cleaned",
    "HistogramRequest",
    "NoisyGram",
    "PassRequest",
    "Pool",
    "Schedule",
    "State",
    "Tail",
    "accounts_for",
    "as_released",
    "bin_edges",
    "budgets_of",
    "clean",
    "first_state",
    "goe",
    "has_several_passes",
    "plan_histogram",
    "plan_pass",
    "rates_of",
    "read_tail",
    "releases_of",
    "rows_in",
    "run_passes",
    "update_state",
    "whitenings",
]


RESOLVED = 3.0
"""Number of standard errors by which a tail count must exceed zero to be significant."""

LEAST_SLOPE = 2.0
"""Tail counts below the noise are assumed to fall at least like this power of ‖z‖²."""

_EXPONENTS = np.concatenate([np.arange(-2, 2.6, 0.5), np.arange(3.0, 13.0)])

BINS = len(_EXPONENTS) + 1
"""Number of bins of one histogram."""


def bin_edges(mean: float) -> Floats:
    """Return bin edges of ‖z‖²: from mean/4 by factors of √2 to 8·mean, then by factors of 2 to 4,096·mean."""
    return np.asarray(mean * 2.0**_EXPONENTS)


@dataclass(frozen=True, eq=False)
class Tail:
    """The tail of ‖z‖², estimated from a noisy histogram.

    Attributes
    ----------
    edges : array (J,)
        Candidates for the clip; the last is the public maximum or the last edge.
    beyond : array (J,)
        Estimated number of rows beyond each edge, decreasing.
    lost : array (J,)
        Estimated share of Σ‖z‖² removed by clipping there.
    surely_lost : array (J,)
        The same from counts less `RESOLVED` standard errors: a lower bound without assumptions.
    kept_weight : array (J,)
        Estimated mean weight min(1, clip/‖z‖²) of a row.
    """

    edges: Floats
    beyond: Floats
    lost: Floats
    surely_lost: Floats
    kept_weight: Floats


def read_tail(counts: Floats, edges: Floats, *, noise: float, rows: float, largest: float) -> Tail:
    """Return monotone tail counts, extrapolated by a power law where they are not significant.

    The count beyond an edge is a sum of noisy counts, made monotone and nonnegative. Below `RESOLVED` standard errors
    the tail is assumed to continue with the last estimated slope, at least `LEAST_SLOPE`, and never to exceed the count
    or one standard error. (A few rows that noise alone puts at a thousand times the mean would be most of the mass.)
    Bins beyond ``largest``, which are empty, are dropped.
    """
    inside = edges < largest * 0.999
    grid = np.append(edges[inside], largest)
    cut = counts[: len(grid)]
    beyond = np.append(np.cumsum(cut[::-1])[::-1][1:], 0.0)
    beyond = np.maximum(optimize.isotonic_regression(beyond, increasing=False).x, 0.0)
    errors = noise * np.sqrt(np.maximum(np.arange(len(grid) - 1, -1, -1), 1))
    beyond = np.minimum(beyond, rows)
    sure = np.maximum.accumulate(np.maximum(beyond - RESOLVED * errors, 0.0)[::-1])[::-1]  # errors fall with the edge
    for j in range(1, len(grid)):
        if beyond[j] < RESOLVED * errors[j]:
            slope = LEAST_SLOPE
            if j >= 2:
                fall = math.log(max(beyond[j - 2], 1e-9) / max(beyond[j - 1], 1e-9))
                slope = min(max(fall / math.log(grid[j - 1] / grid[j - 2]), LEAST_SLOPE), 12.0)
            continued = beyond[j - 1] * (grid[j - 1] / grid[j]) ** slope
            beyond[j] = min(continued, max(beyond[j], errors[j]))
    beyond = np.minimum.accumulate(beyond)
    beyond[-1] = 0.0
    lost, surely_lost = (_lost(counts_beyond, grid, rows) for counts_beyond in (beyond, sure))
    inner = np.maximum(-np.diff(np.append(rows, beyond)), 0.0)
    middle = np.append(grid[0] * 0.7, np.sqrt(grid[:-1] * grid[1:]))
    kept = np.minimum(1.0, grid[:, np.newaxis] / middle[np.newaxis]) @ inner / max(inner.sum(), 1.0)
    return Tail(grid, beyond, lost, surely_lost, np.minimum(kept, 1.0))  # a product and a sum round differently


def _lost(beyond: Floats, grid: Floats, rows: float) -> Floats:
    """Return the share of Σ‖z‖² beyond each edge: the integral of the tail count from there on.

    Between edges the count falls by a power law, or linearly where it falls to zero.
    """
    ratio = grid[1:] / grid[:-1]
    line = (beyond[:-1] + beyond[1:]) / 2 * np.diff(grid)
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = np.log(beyond[:-1] / beyond[1:]) / np.log(ratio) - 1
        curve = beyond[:-1] * grid[:-1] * -np.expm1(-steep * np.log(ratio)) / steep
    parts = np.where((beyond[1:] > 0) & (np.abs(steep) > 1e-6), curve, line)
    mass = np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    total = grid[0] * (rows + beyond[0]) / 2 + mass[0]
    return np.asarray(np.minimum(mass / max(total, 1e-9), 1.0))


_EIGENVALUE_RANGE = 1e-13
"""Relative size below which eigenvalues of float64 matrices are rounding errors."""


@dataclass(frozen=True, eq=False)
class NoisyGram:
    """A second moment with noise B·GOE·Bᵀ.

    Attributes
    ----------
    matrix : array (m, m)
        M, symmetric, in encoded units.
    factor : array (m, m)
        B.
    inverse : array (m, m)
        B⁻¹.
    """

    matrix: Floats
    factor: Floats
    inverse: Floats

    @classmethod
    def isotropic(cls, matrix: Floats, *, scale: float) -> NoisyGram:
        """Return a moment with noise of standard deviation ``scale`` off the diagonal and √2 times that on it."""
        root, identity = math.sqrt(scale), np.eye(len(matrix))
        return cls(matrix, root * identity, identity / root if root else np.diag(np.full(len(matrix), np.inf)))

    def times(self, weight: float) -> NoisyGram:
        """Multiply matrix and noise by a number."""
        root = math.sqrt(weight)
        return NoisyGram(weight * self.matrix, root * self.factor, self.inverse / root)

    @property
    def shape(self) -> Floats:
        """N = BBᵀ."""
        return np.asarray(self.factor @ self.factor.T)


@dataclass(frozen=True, eq=False)
class _Step:
    """One pooling step: in the basis V both shapes are diagonal; ``weights`` are those of the earlier pool."""

    basis: Floats  # V: Vᵀ N_new V = I, Vᵀ N_old V = diag(d)
    back: Floats  # V⁻¹
    weights: Floats

    def combine(self, old: Floats, new: Floats) -> Floats:
        V, W = self.basis, self.back
        mixed = self.weights * (V.T @ old @ V) + (1 - self.weights) * (V.T @ new @ V)
        pooled = W.T @ mixed @ W
        return np.asarray((pooled + pooled.T) / 2)


@dataclass(frozen=True, eq=False)
class Pool:
    """Releases of one table, pooled one after the other.

    For two releases of shapes N_a, N_b, take the basis in which N_b = I and N_a = diag(d). Entry (i, j) has variance
    d_i d_j in a and 1 in b, so inverse-variance weights are 1/(1 + d_i d_j) and d_i d_j/(1 + d_i d_j), and its
    precision is 1 + 1/(d_i d_j). The pooled shape is the rank-one fit ν_i ν_j of the inverse precisions on the log
    scale: of the form BBᵀ again, and exact where one of the two is much better in all entries, or where the two are
    proportional.

    Given the weights the pool is linear in its members, and so is its noise (:meth:`noise`).

    Attributes
    ----------
    current : NoisyGram
        Pooled matrix and the fitted shape of its noise.
    members : tuple of NoisyGram
        The pooled releases.
    """

    current: NoisyGram
    members: tuple[NoisyGram, ...]
    _steps: tuple[_Step, ...] = ()

    @classmethod
    def of(cls, release: NoisyGram) -> Pool:
        """Return a pool of one release."""
        return cls(release, (release,))

    def add(self, release: NoisyGram) -> Pool:
        """Return the pool with one more release.

        The basis comes from a singular value decomposition of B_b⁻¹B_a, which cannot fail as a Cholesky factorisation
        can; ratios below float64 precision are raised to it.
        """
        relative = release.inverse @ self.current.factor  # B_b⁻¹ B_a; its Gram matrix is N_a in the metric of b
        U, roots, _ = scipy.linalg.svd(relative)
        d = np.maximum(roots, roots[0] * _EIGENVALUE_RANGE) ** 2
        products = d[:, np.newaxis] * d[np.newaxis]
        back = U.T @ release.factor.T
        step = _Step(release.inverse.T @ U, back, 1 / (1 + products))
        log_precision = np.log1p(1 / products)
        fit = log_precision.mean(axis=1) - log_precision.mean() / 2
        nu = np.exp(-fit / 2)  # square roots of ν
        pooled = NoisyGram(
            step.combine(self.current.matrix, release.matrix), back.T * nu, (U.T @ release.inverse) / nu[:, np.newaxis]
        )
        return Pool(pooled, (*self.members, release), (*self._steps, step))

    def noise(self, rng: np.random.Generator) -> Floats:
        """Draw the pooled noise, shape (m, m), by pooling simulated noise of the members."""
        draws = [member.factor @ goe(len(member.matrix), rng) @ member.factor.T for member in self.members]
        total = draws[0]
        for step, draw in zip(self._steps, draws[1:], strict=True):
            total = step.combine(total, draw)
        return np.asarray((total + total.T) / 2)


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A second moment with shrunken eigenvalues: G ≈ F·diag(values)·Fᵀ.

    ``frame`` F = B·U maps the eigenbasis of B⁻¹MB⁻ᵀ to encoded units; ``values`` are increasing and nonnegative, in
    units of the release's noise, and ``scale`` is that of the noise of the cleaned matrix in the same units.
    """

    values: Floats
    frame: Floats
    scale: float = 1.0

    @cached_property
    def matrix(self) -> Floats:
        """The cleaned second moment, positive semidefinite."""
        return np.asarray((self.frame * self.values) @ self.frame.T)


def clean(release: NoisyGram, *, matrix: Floats | None = None, scale: float = 1.0) -> Cleaned:
    r"""Shrink the eigenvalues in the metric in which the noise is isotropic.

    With :math:`B^{-1} M B^{-\top} = U\,\mathrm{diag}(h)\,U^\top` and noise of scale s in it,

    .. math:: \xi_i = h_i - 2 s^2 \sum_j \frac{h_i - h_j}{(h_i - h_j)^2 + s^2}

    made monotone and nonnegative: the rotation-invariant estimator for additive Gaussian noise (Bun, Allez, Bouchaud
    and Potters, arXiv:1502.06736), with a kernel of width s.

    Parameters
    ----------
    release : NoisyGram
    matrix : array, optional
        Another matrix with noise of the same shape, to be used instead of the release's own.
    scale : float
        s: scale of that matrix's noise in units of the release's.
    """
    moment = release.inverse @ (release.matrix if matrix is None else matrix) @ release.inverse.T
    h, U = np.linalg.eigh((moment + moment.T) / 2)
    gap = h[:, np.newaxis] - h[np.newaxis]
    xi = h - 2 * scale**2 * np.sum(gap / (gap**2 + scale**2), axis=1)
    return Cleaned(np.maximum(optimize.isotonic_regression(xi).x, 0.0), release.factor @ U, scale)


def goe(m: int, rng: np.random.Generator) -> Floats:
    """Draw a symmetric Gaussian matrix, standard deviation 1 off the diagonal and √2 on it. For simulation only."""
    noise = rng.standard_normal((m, m))
    return np.asarray((noise + noise.T) / math.sqrt(2))


POWERS = (0.75, 1.0)
"""Candidate exponents γ of whitening: 1 is full whitening, smaller values clip rare levels less."""

FLOOR = 0.25
"""Fraction of the noise's spectral edge 2√m that is added to every eigenvalue before whitening."""

LOST_WEIGHT = 0.05
"""Cost of clipping: excess risk per share of ‖z‖² mass lost (noiseless clipped fits: 0.03 to 0.05, linear)."""

LAST_LOST_WEIGHT = 0.075
"""The same in the last pass, which intervals are computed from: it clips less than is optimal for prediction."""

EARLY_SIGNAL = 30.0
"""With ``State.for_inference`` the cost of clipping in early passes is x over this, between `LOST_WEIGHT` and 1."""

MOST_LOST = 0.30
"""Upper limit for `Tail.surely_lost`: beyond it whitening and clipping amplify each other on rare levels.

Only significant counts are used: an extrapolated heavy tail would raise the clip and waste the pass."""

WHOLE_TIE = 1.2
"""A pass in the declared metric is chosen if its expected loss is at most this multiple of the least one.

It clips no row, and its loss does not depend on a noisy histogram. Its loss is near the least if the norms of rows are
near the declared bound, as in tables of booleans."""

LARGEST_RESCALING = 20.0

_RANGE = 1e-13


# ---------------------------------------------------------------------------------------------------------------
# State
@dataclass(frozen=True)
class Persons:
    """Noisy number of privacy units and of their rows, and the declared contribution bound j."""

    number: float
    rows: float
    most: int


@dataclass(frozen=True, eq=False)
class State:
    """The state between two passes: noisy outputs and declared constants.

    Attributes
    ----------
    pool : Pool
        All passes so far.
    mu : tuple of float
        Budgets of the remaining releases: histogram, pass, histogram, pass, ….
    intercept : int or None
        Column of the intercept.
    intercept_energy : float
        Squared value of the intercept in an encoded row (C = 1).
    rows, histograms : float or None, int
        Mean number of rows in the histograms so far, noisy, and the number of histograms.
    persons : Persons or None
        With a privacy unit: histograms count units by Σ‖z‖², and metrics and clips are for all rows of a unit.
    for_inference : bool
        Whether early passes clip less where the budget allows, so that no direction that clipped rows need is lost.
    """

    pool: Pool
    mu: tuple[float, ...]
    intercept: int | None
    intercept_energy: float
    rows: float | None = None
    histograms: int = 0
    persons: Persons | None = None
    for_inference: bool = False

    @property
    def done(self) -> bool:
        """Whether all passes have been absorbed."""
        return not self.mu


def first_state(
    matrix: Floats, mu: tuple[float, ...], *, intercept: int | None, intercept_energy: float = 1.0
) -> State:
    """Return the state after the pass in the declared metric: row norm at most 1, noise 1/(√2 μ) off the diagonal."""
    pool = Pool.of(NoisyGram.isotropic(matrix, scale=1 / (math.sqrt(2) * mu[0])))
    return State(pool, tuple(mu[1:]), intercept, intercept_energy)


def rows_in(state: State, counts: Sequence[Floats] = ()) -> float:
    """Return the noisy number of rows, or of privacy units, at least 10.

    It is the mean over all histograms so far, ``counts`` of the next ones among them.
    """
    if state.persons is not None:
        return max(state.persons.number, 10.0)
    if counts:
        total = float(np.mean([count.sum() for count in counts]))
        if state.rows is not None:
            total = (state.histograms * state.rows + total) / (state.histograms + 1)
        return max(total, 10.0)
    if state.rows is not None:
        return state.rows
    M, N = state.pool.current.matrix, state.pool.current.shape
    if state.intercept is None:
        energy, noise = np.trace(M), math.sqrt(2) * np.linalg.norm(np.diagonal(N))
        return float(max(energy, 10 * noise, 10.0))
    i = state.intercept
    return float(max(M[i, i] / state.intercept_energy, 10.0))


# ---------------------------------------------------------------------------------------------------------------
# Metric
@dataclass(frozen=True, eq=False)
class Metric:
    """A candidate transform z = E r and its expected properties.

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
        """Whether it is the metric of the declared bounds, in which no row is clipped."""
        return self.power == 0


def whitenings(cleaned: Cleaned, rows: float, powers: tuple[float, ...]) -> tuple[Metric, ...]:
    r"""Return metrics :math:`N = (S/\hat n)^\gamma` for several γ, S the cleaned pool plus a part of its noise.

    γ = 0 is the declared metric itself, without the rotation.

    With S/n̂ = V diag(λ) Vᵀ and w = λ^γ, the transform is diag(w)^(-½) Vᵀ: one product with Vᵀ serves all of them. γ = 1
    makes all second moments 1; then a level of frequency p has norm² 1/p. A smaller γ gives it p^(-γ), at the price of
    larger noise in weak directions.

    Noise of scale s in that metric gives coefficients an excess risk of s²(aᵀNa) tr(G⁻¹N)/n over a residual variance
    of aᵀGa/n. Averaged over directions a this is :math:`(s/n)^2 (\sum_i w_i/\lambda_i)^2/m`, m for full whitening
    in units of (s/n)²: their ratio is `Metric.cost`.
    """
    raised = cleaned.values + FLOOR * 2 * math.sqrt(len(cleaned.values))
    S = (cleaned.frame * raised) @ cleaned.frame.T
    h, V = np.linalg.eigh((S + S.T) / 2)
    eigenvalues = np.maximum(h, h[-1] * _RANGE) / rows
    rotation = Transform.nearest(V.T)
    metrics = []
    for power in powers:
        w = eigenvalues**power
        transform = Transform.nearest(np.eye(len(w)))
        if power:  # all of them have the same integers, and hence one product
            transform = Transform(rotation.integers, rotation.scales * (1 / np.sqrt(w)))
        E = transform.matrix
        mean = float(np.sum((E @ cleaned.matrix) * E)) / rows
        metrics.append(Metric(power, transform, max(mean, 1e-12), float(np.mean(w / eigenvalues)) ** 2))
    return tuple(metrics)


# ---------------------------------------------------------------------------------------------------------------
# Histogram
@dataclass(frozen=True, eq=False)
class HistogramRequest:
    """Histograms to be released: for every metric, counts of rows by ‖z‖² in `BINS` bins.

    A row falls into one bin of each, so J metrics have joint sensitivity √J. ``declared`` is the metric of the declared
    bounds; it needs no histogram.
    """

    metrics: tuple[Metric, ...]
    edges: tuple[Floats, ...]
    noise: float
    declared: Metric


def plan_histogram(state: State) -> HistogramRequest:
    """Return metrics from the pool and the edges of their histograms."""
    cleaned, rows = clean(state.pool.current), rows_in(state)
    *metrics, declared = whitenings(cleaned, rows, (*POWERS, 0.0))
    noise = math.sqrt(len(POWERS)) / state.mu[0]
    return HistogramRequest(tuple(metrics), tuple(bin_edges(metric.mean) for metric in metrics), noise, declared)


# ---------------------------------------------------------------------------------------------------------------
# Pass
@dataclass(frozen=True, eq=False)
class PassRequest:
    """The public parameters of a pass, computed without access to the rows.

    Release Σ z̄ z̄ᵀ with z̄ = E r clipped to ‖z̄‖² ≤ clip, in units of clip, with noise of scale 1/(√2 μ).

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
        """Reject a request that could not have been planned for m columns and the budget μ."""
        if self.metric.transform.integers.shape != (m, m) or self.mu != mu:
            raise ArgumentError("The parameters of a pass do not match its columns or its noise.")
        check.positive(finite=True, clip=self.clip)
        if self.metric.declared and not (self.clip >= 1 and self.metric.transform == Transform.nearest(np.eye(m))):
            raise ArgumentError("A pass without a preconditioner must not transform or clip rows.")
        check.positive(finite=True, rows=self.rows)
        check.in_interval(0, 1, closed=True, kept_weight=self.kept_weight)
        check.in_interval(0, 1, closed=True, lost=self.lost)


def plan_pass(state: State, request: HistogramRequest, counts: tuple[Floats, ...]) -> PassRequest:
    r"""Choose the metric and clip with the least expected loss.

    .. math:: \mathrm{cost}\cdot\frac{\kappa^2}{2x^2} + v\,\mathrm{lost}(c), \quad
        \kappa = c/m,\; x = \mu_p \hat n/m^{1.5}

    is the loss from noise (theory) plus the loss from clipping (measured, for predictions), subject to
    `Tail.surely_lost` ≤ `MOST_LOST`. At the optimum lost(c) falls like the square of the standard error, so the bias
    vanishes relative to the noise. The declared metric, clipped at the largest norm, loses nothing and wins near ties
    (`WHOLE_TIE`).
    """
    rows, mu, m = rows_in(state, counts), state.mu[1], len(state.pool.current.matrix)
    most, total = (1, rows) if state.persons is None else (state.persons.most, max(state.persons.rows, 10.0))
    x = mu * rows / m**1.5
    precision = 2 * x * x
    lost_weight = LAST_LOST_WEIGHT
    if len(state.mu) > 2:
        lost_weight = min(max(x / EARLY_SIGNAL, LOST_WEIGHT), 1.0) if state.for_inference else LOST_WEIGHT
    plans: list[tuple[float, PassRequest]] = []
    for metric, edges, count in zip(request.metrics, request.edges, counts, strict=True):
        largest = most * metric.transform.largest_squared_norm
        tail = read_tail(count, edges, noise=request.noise, rows=rows, largest=largest)
        loss = metric.cost * (tail.edges / m) ** 2 / precision + lost_weight * tail.lost
        loss = loss + 10.0 * np.maximum(tail.surely_lost - MOST_LOST, 0.0)
        i = int(np.argmin(loss))
        plan = PassRequest(metric, float(tail.edges[i]), mu, total, float(tail.kept_weight[i]), float(tail.lost[i]))
        plans.append((float(loss[i]), plan))
    least, best = min(plans, key=lambda found: found[0])
    whole = most * request.declared.transform.largest_squared_norm
    if request.declared.cost * np.square(whole / m) / precision <= WHOLE_TIE * least:
        return PassRequest(request.declared, whole, mu, total, kept_weight=1.0, lost=0.0)
    return replace(best, metric=replace(best.metric, transform=best.metric.transform.triangular()))


def as_released(request: PassRequest, matrix: Floats) -> NoisyGram:
    """Map a pass back to encoded units: Σ f r rᵀ with the weights f ≤ 1 of clipped rows."""
    E, root = request.metric.transform.matrix, math.sqrt(request.clip / (math.sqrt(2) * request.mu))
    back: Floats = np.asarray(np.linalg.inv(E), dtype=np.float64)
    moment = back @ (matrix * request.clip) @ back.T
    return NoisyGram((moment + moment.T) / 2, root * back, E / root)


def update_state(state: State, request: PassRequest, matrix: Floats) -> State:
    """Map a pass to encoded units, normalise its clip weights to mean one, and pool it.

    ``matrix`` is the noisy Σ z̄ z̄ᵀ/clip. A clipped pass estimates Σ f r rᵀ with weights f ≤ 1; it is multiplied by
    n̂ over the released Σ f (the intercept's entry) or, without an intercept, by the histogram's estimate. In the
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


def run_passes(
    state: State,
    passes: int,
    request_of: Callable[[int, State], PassRequest],
    output_of: Callable[[int, PassRequest], Floats],
) -> tuple[State, ...]:
    """Run the passes after the first, and return the state after each pass, including the first.

    Drawing, replay of a transcript and simulation are this loop with other functions.

    Parameters
    ----------
    state : State
        What is known after the first pass.
    passes : int
        Number of passes, the first included.
    request_of : function
        Returns what pass 1, 2, … asks of the rows, from what is known before it.
    output_of : function
        Returns the noisy matrix of that pass for all rows: divided by the rate of its sample.
    """
    states = [state]
    for number in range(1, passes):
        request = request_of(number, states[-1])
        states.append(update_state(states[-1], request, output_of(number, request)))
    return tuple(states)


AUTOMATIC_PASSES = 4
"""Default number of passes."""

COUNT_SHARE = Fraction(1, 200)
"""Share of μ² for the noisy count of rows (or of units and their rows) if there are several passes."""

SAMPLE_ROWS = 200
"""Sample size for the Gram matrix of a pass, in units of m^1.5/μ."""

HISTOGRAM_ROWS = 20_000
"""Sample size of a histogram in units of 1/μ: for two metrics and 2 % of μ², a bin's noise is 1/2,000 of it."""

LEAST_ROWS = 100_000
"""Smallest sample: it is read quickly, and tails contain only a small part of it."""

LARGEST_RATE = 0.5
"""If a sample would be a larger share than this, all rows are read."""

MARGINAL_SHARES = (Fraction(1, 20), Fraction(1, 20))
"""Shares of μ² for the marginals of a table: counts on public cells, and sums with sums of squares."""

_LAST_DIGITS = 1 - Fraction(1, 10**9)  # tolerance: parts of μ are rounded down


@dataclass(frozen=True)
class Schedule:
    """Shares of μ²: one for every pass, one for the histogram before every pass but the first.

    >>> Schedule().shares()[0], sum(Schedule().shares()) <= 1
    (Fraction(47, 1000), True)
    """

    passes: tuple[str, ...] = ("0.05", "0.10", "0.20", "0.65")
    histogram: str = "0.02"

    def shares(self) -> tuple[Fraction, ...]:
        """Return the shares in the order of use: pass, then histogram and pass in turn. Their sum is 1."""
        q = Fraction(self.histogram)
        rest = 1 - q * (len(self.passes) - 1)
        weights = [Fraction(share) for share in self.passes]
        first, *later = [rest * weight / sum(weights) for weight in weights]
        return (first, *(share for weight in later for share in (q, weight)))


SHARES = {
    1: Schedule(("1",)).shares(),
    2: Schedule(("0.25", "0.75")).shares(),
    3: Schedule(("0.10", "0.25", "0.65")).shares(),
    4: Schedule().shares(),
}
"""Shares of the schedules by the number of passes."""


def releases_of(
    passes: int,
    m: int,
    *,
    models: ModelBudget | None = None,
    persons: bool = False,
    marginals: tuple[int, int] | None = None,
) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """Return the share of μ² and the number of coordinates (`lattice_account`) of each release.

    With several passes the first is preceded by a count of rows, or by counts of privacy units and of their rows.
    Declared ``models`` follow the passes. ``marginals``, the numbers of their cells and of their sums, come last in the
    account, although they are drawn before everything else.
    """
    if passes not in SHARES:
        raise ArgumentError(f"passes must be one of {', '.join(map(str, SHARES))}, got {passes!r}.")
    shares, coordinates = SHARES[passes], (m * m, *(len(POWERS) * BINS, m * m) * (passes - 1))
    if passes > 1:
        shares = (COUNT_SHARE, *(share * (1 - COUNT_SHARE) for share in shares))
        coordinates = (1 + persons, *coordinates)
    if models is not None:
        parts, sizes = models.releases(BINS)
        shares = (*(share * (1 - models.fraction) for share in shares), *parts)
        coordinates = (*coordinates, *sizes)
    if marginals is None:
        return shares, coordinates
    rest = 1 - sum(MARGINAL_SHARES)
    return (*(share * rest for share in shares), *MARGINAL_SHARES), (*coordinates, *marginals)


@dataclass(frozen=True)
class Budgets:
    """The parts of an account's μ.

    Attributes
    ----------
    count : float or None
        Count of rows, or of privacy units and of their rows; None for a release in one pass.
    passes, histograms : tuple of float
        One part for each pass, and one for the histogram before each pass but the first.
    models : tuple of tuple of float
        Releases of each declared model (:mod:`gaussmix.releases.declared`).
    marginals : (float, float) or None
        Counts, and sums with sums of squares.
    """

    count: float | None
    passes: tuple[float, ...]
    histograms: tuple[float, ...]
    models: tuple[tuple[float, ...], ...]
    marginals: tuple[float, float] | None

    @property
    def in_turn(self) -> tuple[float, ...]:
        """The first pass, then histogram and pass in turn."""
        return (self.passes[0], *(part for pair in zip(self.histograms, self.passes[1:], strict=True) for part in pair))


def has_several_passes(account: LatticeAccount, models: ModelBudget | None) -> bool:
    """Return whether an account is of more than one pass. One pass has one part of μ, and no marginals."""
    return len(account.noise_mu) > 1 + (0 if models is None else len(models.releases(BINS)[0]))


def budgets_of(account: LatticeAccount, models: ModelBudget | None = None, *, marginals: bool = False) -> Budgets:
    """Return the parts of an account's μ, in the order of `releases_of`: each of them once."""
    parts = account.noise_mu
    *_, counts, sums = (math.nan, *parts)
    rest = parts[:-2] if marginals else parts
    first = len(rest) - (0 if models is None else len(models.releases(BINS)[0]))
    if first < 1 or (first > 1 and first % 2):
        raise ArgumentError(
            "The number of parts of the account does not match its passes, declared models and marginals."
        )
    count, own = (None, rest[:1]) if first == 1 else (rest[0], rest[1:first])
    found = () if models is None else models.split(rest[first:])
    return Budgets(count, own[::2], own[1::2], found, (counts, sums) if marginals else None)


def rates_of(
    account: LatticeAccount, rows: float, m: int, *, models: ModelBudget | None = None, marginals: bool = False
) -> list[float]:
    """Return the sampling rate of each release of a pass: 1 for the first and last pass, at most 1 for the others.

    A histogram only chooses metric and clip, and reads no more rows than that needs. Passes between the first and the
    last read at least the same rows, so no scan is made for histograms alone. ``rows`` is noisy or simulated, all else
    is public. With a privacy unit, units take the place of rows.
    """
    passes = len(budgets_of(account, models, marginals=marginals).passes)
    if passes == 1:
        return [1.0]
    mu = account.mu if models is None else account.mu * math.sqrt(1 - models.fraction)
    needed = (max(SAMPLE_ROWS * m**1.5, HISTOGRAM_ROWS), HISTOGRAM_ROWS)
    early, histogram = (max(number / mu, LEAST_ROWS) / max(rows, 1.0) for number in needed)
    early, histogram = (rate if rate <= LARGEST_RATE else 1.0 for rate in (early, histogram))
    return [1.0, *[histogram, early] * (passes - 2), histogram, 1.0]


def accounts_for(
    account: LatticeAccount,
    passes: int,
    m: int,
    *,
    models: ModelBudget | None = None,
    persons: bool = False,
    marginals: tuple[int, int] | None = None,
) -> bool:
    """Return whether an account covers every release of these passes over m columns, with its share and coordinates.

    Counts and histograms are not published, but later requests depend on them, so an account in which they cost almost
    nothing would claim too much.
    """
    # Shares are compared with the constants of this module, not with each other: a file does not show the noise of
    # counts and histograms, so an account in which their parts are near 0 would be consistent with all published
    # passes. Changing the shares therefore changes the file format (docs/development.md).
    shares, coordinates = releases_of(passes, m, models=models, persons=persons, marginals=marginals)
    squares = [Fraction(part) ** 2 for part in account.noise_mu]
    if len(squares) != len(shares):
        return False
    least = sum(squares) * _LAST_DIGITS
    return all(square >= share * least for square, share in zip(squares, shares, strict=True)) and all(
        counted >= count for counted, count in zip(account.coordinates, coordinates, strict=True)
    )
