r"""Generalised linear models from one release, near maximum likelihood: post-processing, which costs no privacy.

The likelihood equation of a canonical model sees the response through Σ xy alone, which a release has. With b least
squares of y on x it is

.. math:: \mathrm E[x\,(h(x^\top\theta) - x^\top b)] = 0 ,

and only the distribution of x is missing. The expectation is taken over rows drawn from a distribution with the
release's second moments (:mod:`gaussmix.models.predictor_distribution`). Where that is the table's own, θ is the
table's maximum likelihood exactly. Elsewhere an error of the distribution counts times the curvature of h, because b
and not Σ xy enters. The problem is convex and is solved by Newton's method.

**Standard errors.** θ moves with the noise in b by θ - θ̂ ≈ J(b - b̂),

.. math:: J = H^{-1} M ,\qquad H = \mathrm E[h'(x^\top\theta)\,x x^\top] ,\qquad M = \mathrm E[x x^\top] ,

so that b's covariance (:mod:`gaussmix.models.inference`) becomes J Cov(b) Jᵀ. For a population H⁻¹ V H⁻¹/n is added,
V = E[x xᵀ Var(y | x)]. Two other distributions with about the same second moments, one with normal in place of counted
shapes and one in which numbers come before levels and the response has no part, give θ₁ and θ₂. Their distances
Σ (θ_k - θ̂)(θ_k - θ̂)ᵀ are added to the covariance and printed as a column of their own: what the assumed distribution
is worth.

**Curvature.** A level with few events has a mean within some standard errors of 0, and its log odds are far from
normal. Let b move along the direction in which θ_j does, t standard errors: θ_j moves by s_j t + θ''_j t²/2, where with
v_j the move of θ at t = 1

.. math:: \theta''_j = -e_j^\top H^{-1}\,\mathrm E[h''(x^\top\theta)\,(x^\top v_j)^2 x] = -\kappa_j s_j^2 .

log(1 + κ_j s_j t)/κ_j has the same two derivatives. It is exact for the log rate of one level (κ = 1). Intervals and
p-values take it in place of s_j t. A lower end of -∞ says that the mean is not significantly above 0.

**Existence.** A noisy mean of a level may lie below 0, where no θ has it. A normal prior with standard deviation 3 for
the move of η over half of a column's range keeps θ finite: the penalty on θ_j is Var(score_j)/(9 H_jj), H at the
solution. A coefficient is not identified if, at the mean of the response, the prior would take more than a fifth of it.
This does not depend on the noise in the coefficient itself, which would select those that are far from 0 by chance.

**Exposure.** With a mean e·h(xᵀθ), e the exposure of a row, least squares is on x and e, and e is drawn with x:
E[x(e·h(xᵀθ) - xᵀb - ce)] = 0.

**Several classes.** θ has one column per class but the first, h is the softmax, and b has one column per class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.terms import Block, Part
from gaussmix.errors import ArgumentError
from gaussmix.models import rendering
from gaussmix.models.design import (
    Collapse,
    Label,
    Problem,
    Reference,
    Response,
    column_of,
    is_marked,
    part_name,
    sources_of,
)
from gaussmix.models.families import LOGISTIC_MEAN, LOGIT, MNLOGIT, Family, Mean
from gaussmix.models.inference import Coefficients, Flags, LeastSquares, identified_columns, on_columns
from gaussmix.models.linear import Prediction, Predictor, feature_indices, features_of
from gaussmix.models.newton_steps import discriminant_of, likelihood_coefficients
from gaussmix.models.predictor_distribution import POINTS, PredictorDistribution, quantiles_of
from gaussmix.models.results import (
    Asked,
    FittedClasses,
    FittedModel,
    ResultTable,
    Summary,
    left_out_columns,
    ratio_table,
    sample_size,
)
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

PRIOR_OF_PREDICTIONS = 1.0
"""Standard deviation of the prior, in place of 3, for coefficients that predict."""

LEAST_KEPT = 0.8
"""Share of a coefficient that the prior must leave for it to be identified."""

LEAST_DRAWN = 16
"""Number of drawn rows that a level needs at least."""

FEWER_POINTS, MANY_COLUMNS = 4096, 128
"""Number of rows on which distributions are compared, and which models with many encoded columns use throughout."""

_TOLERANCE = 1e-13  # of the decrease of the objective, per row: Newton's method converges quadratically, far below it
_STEPS = 60
_SINGULAR = 1e-9  # curvature below which a direction is separated


# ---------------------------------------------------------------------------------------------------------------
# The equation
class _OneMean:
    """A family of one linear predictor; η and means have the shape (rows, 1)."""

    def __init__(self, mean: Mean) -> None:
        self.own = mean

    def area(self, eta: Floats) -> Floats:
        return self.own.area(eta[:, 0])

    def inverse(self, eta: Floats) -> Floats:
        return self.own.inverse(eta)

    def weights(self, eta: Floats) -> Floats:
        """∂mean_k/∂η_l, shape (rows, q, q)."""
        return self.own.derivative(eta)[:, :, np.newaxis]

    def variances(self, eta: Floats) -> Floats:
        """Covariances of the responses, shape (rows, q, q)."""
        return self.own.variance(self.own.inverse(eta))[:, :, np.newaxis]

    def bends(self, eta: Floats, along: Floats, across: Floats) -> Floats:
        """Return Σ ∂²mean_k/∂η_l∂η_m along_l along_m across_k, shape (rows, j), for directions (rows, q, j)."""
        return self.own.second(eta) * along[:, 0] ** 2 * across[:, 0]


class _Softmax:
    """Several classes: η of every class but the first, whose η is 0."""

    def area(self, eta: Floats) -> Floats:
        return np.asarray(special.logsumexp(np.column_stack([np.zeros(len(eta)), eta]), axis=1))

    def inverse(self, eta: Floats) -> Floats:
        return np.asarray(np.exp(eta - self.area(eta)[:, np.newaxis]))

    def weights(self, eta: Floats) -> Floats:
        p = self.inverse(eta)
        return p[:, :, np.newaxis] * np.eye(p.shape[1]) - p[:, :, np.newaxis] * p[:, np.newaxis]

    variances = weights

    def bends(self, eta: Floats, along: Floats, across: Floats) -> Floats:
        # The third derivative of logsumexp is the third cumulant of the classes' values.
        p = self.inverse(eta)[:, :, np.newaxis]
        a, c = (np.sum(p * own, axis=1, keepdims=True) for own in (along, across))
        rest = 1 - p[:, :, 0].sum(axis=1, keepdims=True)  # the first class, whose values are 0
        return np.asarray(np.sum(p * (along - a) ** 2 * (across - c), axis=1) - rest * a[:, 0] ** 2 * c[:, 0])


def _mean_of(family: Family) -> _OneMean | _Softmax:
    return _Softmax() if family.mean is None else _OneMean(family.mean)


@dataclass(frozen=True, eq=False)
class Rows:
    """Drawn rows of a model.

    Attributes
    ----------
    X : array (rows, d)
        Features.
    weights : array (rows,)
        Exposure times the weight of a row; they add up to the mean exposure.
    """

    X: Floats
    weights: Floats

    def moments(self, W: Floats) -> Floats:
        """Return Σ w (x xᵀ) ⊗ W for W of shape (rows, q, q), as a matrix (q d, q d), classes first."""
        q, d = W.shape[1], self.X.shape[1]
        found = np.empty((q, d, q, d))
        for k in range(q):
            for m in range(k, q):
                block = self.X.T @ (self.X * (self.weights * W[:, k, m])[:, np.newaxis])
                found[k, :, m], found[m, :, k] = block, block
        return found.reshape(q * d, q * d)


@dataclass(frozen=True, eq=False)
class Solution:
    """θ, shape (q, d), the Hessian without penalty (q d, q d), and whether Newton's method converged."""

    theta: Floats
    hessian: Floats
    converged: bool


def solve(rows: Rows, wanted: Floats, mean: _OneMean | _Softmax, *, penalty: Floats, start: Floats) -> Solution:
    """Solve Σ w x(h(xᵀθ)) + penalty·θ = wanted, the minimum of a convex function, by Newton's method with halving.

    ``wanted`` is Σ x y, shape (q, d), as are ``penalty`` and ``start``.
    """
    X, w, (q, d) = rows.X, rows.weights, wanted.shape

    def objective(theta: Floats) -> tuple[float, Floats]:
        eta = X @ theta.T
        return float(w @ mean.area(eta) - np.sum(theta * wanted) + np.sum(penalty * theta**2) / 2), eta

    theta, converged = start, False
    value, eta = objective(theta)
    H = rows.moments(mean.weights(eta))
    for _ in range(_STEPS):
        gradient = (mean.inverse(eta) * w[:, np.newaxis]).T @ X - wanted + penalty * theta
        whole = H + np.diag(penalty.ravel())
        unit = 1 / np.sqrt(np.maximum(np.diagonal(whole), 1e-300))
        scaled = whole * np.outer(unit, unit) + 1e-12 * np.eye(q * d)
        step = -(unit * scipy.linalg.solve(scaled, unit * gradient.ravel(), assume_a="pos")).reshape(q, d)
        fall = -float(np.sum(gradient * step))
        length = 1.0
        while True:
            new, eta_new = objective(theta + length * step)
            # Near the minimum differences of the objective are rounding errors: the full step is taken there.
            if new <= value - 1e-4 * length * fall or fall < 1e-9 or length < 1e-6:
                break
            length /= 2
        theta, value, eta = theta + length * step, new, eta_new
        H = rows.moments(mean.weights(eta))
        if fall < _TOLERANCE:
            converged = True
            break
    return Solution(theta, H, converged)


def solve_noisy(
    rows: Rows, wanted: Floats, mean: _OneMean | _Softmax, *, noise: Floats, prior: Floats, start: Floats
) -> tuple[Solution, Floats]:
    """Solve for the posterior mode, with scores that have the variances ``noise`` and the prior of θ.

    Also returns the share of each coefficient that the prior would leave at the start.


    The mode has H_jj (score_j)/noise_j = θ_j/prior_j² in each coordinate, so that the penalty on θ_j is
    noise_j/(H_jj prior_j²), H at the solution. An infinite prior has no penalty.
    """
    square = rows.moments(np.ones((len(rows.X), 1, 1)))
    energy = np.maximum(np.tile(np.diagonal(square), (len(wanted), 1)), 1e-300)
    first = np.diagonal(rows.moments(mean.weights(rows.X @ start.T))).reshape(wanted.shape)
    h, theta = np.maximum(first, 1e-12 * energy), start
    for _ in range(6):
        penalty = noise / (np.maximum(h, 1e-3 * first) * prior**2) + 1e-10 * energy
        penalty[energy <= 1e-300] = 1.0  # a level that no row drew
        found = solve(rows, wanted, mean, penalty=penalty, start=theta)
        theta, new = found.theta, np.diagonal(found.hessian).reshape(wanted.shape)
        moved = np.abs(np.log(np.maximum(new, 1e-9 * energy) / np.maximum(h, 1e-9 * energy)))
        if not noise.any() or moved.max() < 0.05:
            break
        h = np.sqrt(h * np.maximum(new, 1e-12 * energy))
    information = np.maximum(first, 0.0) ** 2
    return found, information / np.maximum(information + noise / prior**2, 1e-300)


# ---------------------------------------------------------------------------------------------------------------
# From a release
@dataclass(frozen=True, eq=False)
class Model:
    """A model to be solved: its predictors, its responses and its family.

    Attributes
    ----------
    statistic : Transcript
    family : Family
    columns : tuple of str
        Encoded columns of the predictors.
    responses : tuple of Response
        The response, or the indicators of all classes but the first.
    exposure : str or None
        Column that multiplies the mean.
    points : int
        Number of rows drawn.
    """

    statistic: Transcript
    family: Family
    columns: tuple[str, ...]
    responses: tuple[Response, ...]
    exposure: str | None = None
    points: int = POINTS

    @property
    def schema(self) -> Schema:
        """The schema of the release."""
        return self.statistic.schema

    def problem(
        self,
        place: int = 0,
        *,
        collapse: Collapse | None = None,
        reference: Reference | None = None,
        exposure: bool = False,
    ) -> Problem:
        """Return least squares of one response, with the exposure among the features or without it."""
        columns = (*self.columns, self.exposure) if exposure and self.exposure is not None else self.columns
        noisy, response = self.statistic.noisy, self.responses[place]
        return Problem.of(noisy, self.schema, response, columns, collapse=collapse, reference=reference)

    def distributions(self) -> list[PredictorDistribution]:
        """Return the distribution of the predictors and, after it, those that show what it is worth."""
        units, exposure = self.schema.units, () if self.exposure is None else (self.exposure,)
        sources = sources_of(self.schema, (*self.columns, *exposure))
        indicators = np.array([own.centre * units.one + own.scale * own.vector for own in self.responses])
        own = PredictorDistribution(
            self.statistic,
            tuple(name for name in self.schema.parts if name in sources),
            indicators if self.family.of_classes else indicators[:0],
            shaped=self.statistic.marginals is not None,
            exposure=self.exposure,
            points=self.points if len(self.columns) <= MANY_COLUMNS else min(FEWER_POINTS, self.points),
        )
        if not own.drawn[1]:  # levels alone: shapes of numbers do not matter
            return [own]
        return [own, replace(own, shaped=not own.shaped), replace(own, response=indicators[:0], numbers_first=True)]


@dataclass(frozen=True, eq=False)
class Fit:
    """A model that was solved, in encoded units of the features kept.

    Attributes
    ----------
    problems, least_squares : tuple of Problem, tuple of LeastSquares
        Of every response.
    kept : list of int
        Features of the model that are identified by least squares.
    rows : Rows
        Drawn rows of the features kept.
    theta : array (q, d)
    noise, sampling, assumed : array (q d, q d)
        Covariances, classes first.
    inverse : array (q d, q d)
        H⁻¹.
    unknown : array (q, d)
        Which coefficients the prior determines.
    converged : bool
    log_likelihood, null_log_likelihood : float
        Mean over rows of yη - area(η), of the model and of a constant.
    """

    family: Family
    problems: tuple[Problem, ...]
    least_squares: tuple[LeastSquares, ...]
    kept: list[int]
    rows: Rows
    theta: Floats
    noise: Floats
    sampling: Floats
    assumed: Floats
    inverse: Floats
    unknown: Flags
    converged: bool
    log_likelihood: float
    null_log_likelihood: float

    @property
    def eta(self) -> Floats:
        """Linear predictors of the drawn rows, shape (rows, q)."""
        return self.rows.X @ self.theta.T

    @property
    def to_user(self) -> Floats:
        """The map of θ on the features kept to coefficients in original units, shape (names, kept)."""
        return (self.problems[0].to_user / self.problems[0].scale)[:, self.kept]

    def coefficients(self, weights: Floats) -> Coefficients:
        """Return the coefficients of a combination of linear predictors, in original units."""
        T: Floats = np.asarray(np.kron(weights, self.to_user), dtype=np.float64)
        noise, sampling, assumed = (T @ matrix @ T.T for matrix in (self.noise, self.sampling, self.assumed))
        unknown = np.ones(len(T), dtype=bool)
        unknown[self.kept] = self.unknown[weights != 0].any(axis=0)
        # In original units a coefficient is made of its own entry and those of higher-order terms.
        mixed = (self.to_user != 0) @ self.unknown[weights != 0].any(axis=0)
        mixed[0] = False
        own = Coefficients(T @ self.theta.ravel(), noise, sampling, assumed, self._curvature(T))
        return own.without(unknown | mixed)

    def _curvature(self, T: Floats) -> Floats:
        """Return κ of the coefficients T θ."""
        q, d = self.theta.shape
        variances = np.maximum(np.sum((T @ self.noise) * T, axis=1), 1e-300)
        moves = (T @ self.noise / np.sqrt(variances)[:, np.newaxis]).reshape(len(T), q, d)  # v_j
        turned = (T @ self.inverse).reshape(len(T), q, d)
        along, across = (np.einsum("nd,jkd->nkj", self.rows.X, own) for own in (moves, turned))
        bends = self.rows.weights @ _mean_of(self.family).bends(self.eta, along, across)
        return np.asarray(bends / variances)


def fit_model(
    model: Model, *, collapse: Collapse | None = None, reference: Reference | None = None, n_rows: float | None = None
) -> Fit:
    """Solve a model; ``n_rows`` is the sample size for the population."""
    options: dict[str, Any] = {"collapse": collapse, "reference": reference}
    problems = tuple(model.problem(k, **options) for k in range(len(model.responses)))
    linear = _Linear.of(model, problems[0], model.problem(**options, exposure=True))
    distribution, *others = model.distributions()
    rows, found, share, cross = _solved(model, linear, distribution)
    q, H = len(found.theta), found.hessian
    unknown = (share < LEAST_KEPT) | (np.count_nonzero(rows.X, axis=0) < LEAST_DRAWN)
    unknown[:, 0] = False
    # The prior is not in the sensitivities. Coefficients that are not identified are taken as fixed.
    known = np.flatnonzero(~unknown.ravel())
    inverse, at = np.zeros_like(H), np.ix_(known, known)
    # Where the response is separated H may be singular: standard errors are then large and not infinite.
    energy = np.tile(rows.weights @ rows.X**2, q)[known]
    unit = 1 / np.sqrt(energy)
    scaled = H[at] * np.outer(unit, unit) + _SINGULAR * np.eye(len(known))
    inverse[at] = np.outer(unit, unit) * scipy.linalg.inv(scaled)
    J = inverse @ np.kron(np.eye(q), cross)
    sampling = np.zeros_like(H)
    if n_rows is not None:
        V = rows.moments(_mean_of(model.family).variances(rows.X @ found.theta.T))
        sampling = _dispersion(model, rows, found.theta) * (inverse @ V @ inverse) / n_rows
    few = [replace(own, points=min(FEWER_POINTS, own.points)) for own in (distribution, *others)] if others else []
    same, *moved = (_solved(model, linear, own)[1].theta.ravel() for own in few or [distribution])
    plain = [on_columns(own.noisy, linear.own_kept, linear.own_left_out, linear.signal, n_rows) for own in problems]
    wanted = linear.b @ cross.T
    return Fit(
        family=model.family,
        problems=problems,
        least_squares=tuple(plain),
        kept=linear.own_kept,
        rows=rows,
        theta=found.theta,
        noise=J @ linear.covariance.reshape(len(J.T), len(J.T)) @ J.T,
        sampling=sampling,
        assumed=sum((np.outer(own - same, own - same) for own in moved), np.zeros_like(H)),
        inverse=inverse,
        unknown=unknown,
        converged=found.converged,
        log_likelihood=_log_likelihood(model.family, rows, wanted, found.theta),
        null_log_likelihood=_log_likelihood(model.family, rows, wanted, _start(model.family, rows, wanted)),
    )


@dataclass(frozen=True, eq=False)
class _Linear:
    """Least squares of all responses on the features kept, with the exposure among them.

    Attributes
    ----------
    rows : array (z, m)
        The features kept as combinations of encoded columns.
    b : array (q, z)
        Coefficients in units of the responses, their centres in the intercept's.
    covariance : array (q, z, q, z)
    places : list of int
        Places of the model's own features, those without the exposure.
    own_kept, own_left_out : list of int
        Features of the model.
    prior : array (d,)
        Standard deviations of θ a priori; infinite for the intercept.
    """

    rows: Floats
    b: Floats
    covariance: Floats
    places: list[int]
    own_kept: list[int]
    own_left_out: list[int]
    signal: float
    prior: Floats

    @classmethod
    def of(cls, model: Model, narrow: Problem, wide: Problem) -> _Linear:
        """Return least squares of a model, from its regressions without and with the exposure."""
        if wide.coding is None or narrow.coding is None or not wide.intercept:
            raise ArgumentError(f"{model.family.name} requires a release with an intercept column.")
        kept, _, signal = identified_columns(wide.noisy, intercept=True, needs=wide.to_user.T != 0)
        if model.exposure is not None and wide.names.index(model.exposure) not in kept:
            raise ArgumentError(f"The exposure {model.exposure!r} is not identified at this budget.")
        rows, vectors = wide.coding.rows[kept], np.array([own.vector for own in model.responses])
        theta, covariance = _several_responses(model.statistic.noisy.mapped(np.vstack([rows, vectors])), len(kept))
        scales = np.array([own.scale for own in model.responses])
        b = theta * scales[:, np.newaxis]
        b[:, 0] += np.array([own.centre for own in model.responses]) * wide.coding.units.scales[0]
        own_kept = [i for i, name in enumerate(narrow.names) if wide.names.index(name) in kept]
        weights = np.array([model.schema.parts[own].weight if own else 0.0 for own in narrow.coding.sources])[own_kept]
        with np.errstate(divide="ignore"):
            prior = (LOGISTIC_MEAN if model.family.mean is None else model.family.mean).unit / weights
        return cls(
            rows=rows,
            b=b,
            covariance=covariance * np.multiply.outer(scales, scales)[:, np.newaxis, :, np.newaxis],
            places=[kept.index(wide.names.index(narrow.names[i])) for i in own_kept],
            own_kept=own_kept,
            own_left_out=[i for i in range(len(narrow.names)) if i not in own_kept],
            signal=signal,
            prior=prior,
        )


def _several_responses(noisy: NoisyMoment, z: int) -> tuple[Floats, Floats]:
    """Return least squares of the columns from z on the first z, shape (q, z), and its covariance (q, z, q, z).

    The scores (Ea)_x and (Ea')_x of two responses have the covariance N_xx (aᵀNa') + (Na')_x (Na)_xᵀ.
    """
    inverse = scipy.linalg.inv(noisy.moment[:z, :z])
    inverse = (inverse + inverse.T) / 2
    theta = noisy.moment[z:, :z] @ inverse
    A = np.hstack([-theta, np.eye(len(theta))])
    NA = A @ noisy.shape
    scores = np.einsum("kl,ij->kilj", NA @ A.T, noisy.shape[:z, :z]) + np.einsum("li,kj->kilj", NA[:, :z], NA[:, :z])
    covariance = np.einsum("ai,kilj,jb->kalb", inverse, scores, inverse, optimize=True)
    return theta, (1 + noisy.clipping_bias**2) * covariance


def _solved(
    model: Model, linear: _Linear, distribution: PredictorDistribution
) -> tuple[Rows, Solution, Floats, Floats]:
    """Solve a model on the rows of a distribution. Returns the rows, the solution, `solve_noisy`'s share, E[x zᵀ]."""
    R, n = distribution.rows, distribution.points
    Z = R @ linear.rows.T
    X, weights = Z[:, linear.places], np.full(n, 1 / n)
    if model.exposure is not None:
        column, own = model.schema.columns[model.exposure], list(model.schema.groups[model.exposure])
        values = model.schema.units.decode(R[:, own], own)[:, 0]
        weights = weights * np.clip(values, column.lower, column.upper)  # type: ignore[union-attr]
    rows, cross, q = Rows(X, weights), X.T @ Z / n, len(linear.b)
    noise = np.array([np.sum((cross @ linear.covariance[k, :, k]) * cross, axis=1) for k in range(q)])
    wanted = linear.b @ cross.T
    found, share = solve_noisy(
        rows,
        wanted,
        _mean_of(model.family),
        noise=noise,
        prior=np.tile(linear.prior, (q, 1)),
        start=_start(model.family, rows, wanted),
    )
    return rows, found, share, cross


def _start(family: Family, rows: Rows, wanted: Floats) -> Floats:
    """Return θ of the model with a constant alone, for the mean response over the mean exposure."""
    constant = rows.X[0, 0]
    mean = np.maximum(wanted[:, 0] / constant / rows.weights.sum(), 1e-4)
    theta = np.zeros_like(wanted)
    if family.mean is None:
        first = max(1 - mean.sum(), 1e-4)
        theta[:, 0] = np.log(mean / first) / constant
    else:
        theta[:, 0] = family.mean.link(np.minimum(mean, 1 - 1e-4) if family.of_classes else mean) / constant
    return theta


def _log_likelihood(family: Family, rows: Rows, wanted: Floats, theta: Floats) -> float:
    """Return the mean of yη - area(η); y enters through Σ xy alone."""
    return float(np.sum(theta * wanted) - rows.weights @ _mean_of(family).area(rows.X @ theta.T))


def _dispersion(model: Model, rows: Rows, theta: Floats) -> float:
    """Return E(y - μ)² over E Var(y | x): 1 for classes, at least 1 for counts.

    Under the model E[yμ] = E[μ²], so that E(y - μ)² is E[y²] - E[μ²].
    """
    mean = model.family.mean
    if model.family.of_classes or mean is None:
        return 1.0
    response, units, noisy = model.responses[0], model.schema.units, model.statistic.noisy
    u = response.centre * units.one + response.scale * response.vector
    square = float(u @ noisy.moment @ u) / max(float(units.one @ noisy.moment @ units.one), 1.0)
    mu = rows.weights * len(rows.X) * mean.inverse(rows.X @ theta[0])
    return max((square - float(np.mean(mu**2))) / max(float(np.mean(mean.variance(mu))), 1e-300), 1.0)


# ---------------------------------------------------------------------------------------------------------------
# Responses
OTHERS = "all others"
"""The class with which one level of a category is compared."""


def labels_of(column: Categorical) -> tuple[Label, ...]:
    """Return the values of the encoded columns of a category: its levels, or labels if there are more of them."""
    return column.levels if len(column.labels) == len(column.levels) else column.labels


def place_of(column: Part, level: object, response: str) -> tuple[int, tuple[Label, ...]]:
    """Return the place of a level of a category, or of false and true, by its value or its label; and all levels."""
    if not isinstance(column, Categorical | Boolean):
        raise ArgumentError(f"level requires a boolean or categorical response, but {response!r} is neither.")
    labels = (False, True) if isinstance(column, Boolean) else labels_of(column)
    found = [k for k, own in enumerate(labels) if level in (own, str(own)) or _word(own) == _word(level)]
    if not found:
        raise ArgumentError(f"{level!r} is not a level of {response!r}; it has {', '.join(map(str, labels))}.")
    return found[0], labels


def _word(level: object) -> object:
    """Return ``"true"`` and ``"false"`` for Python's, as in the names of encoded columns."""
    return str(level).lower() if isinstance(level, bool | np.bool_) else level


def class_response(
    schema: Schema, response: str, level: object, family: Family
) -> tuple[Response, tuple[Label, Label]]:
    """Return a column with two values, or one level against all others, as a response of 0 and 1; and both values."""
    column, own = column_of(schema, response), np.eye(schema.n_columns)[list(schema.groups[response])]
    scale = float(schema.units.scales[schema.groups[response][0]])
    if isinstance(column, Boolean):
        second = level is None or place_of(column, level, response)[0] == 1
        classes: tuple[Label, Label] = (not second, second)
        vector, centre = own[0] if second else -own[0], 0.5
    elif isinstance(column, Categorical) and (level is not None or len(own) == 2):
        chosen, labels = (1, labels_of(column)) if level is None else place_of(column, level, response)
        vector, centre, classes = own[chosen], 0.0, (labels[0] if level is None else OTHERS, labels[chosen])
    elif isinstance(column, Categorical):
        raise ArgumentError(f"Column {response!r} has more than two levels: choose one as level=, or use mnlogit.")
    else:
        raise ArgumentError(
            f"Column {response!r} must be boolean or a category for {family.name}; use ols or poisson for numbers."
        )
    return Response(f"{response} = {classes[1]}", vector, centre, scale, family), classes


def count_response(schema: Schema, response: str, family: Family) -> Response:
    """Return a number from 0 up as a response."""
    column = schema.parts[response]
    if not isinstance(column, Numeric) or is_marked(schema, response):
        raise ArgumentError(
            f"{family.name} needs a count, or another number with a lower bound of 0 or above and no missing values: "
            f"{response!r} is not declared as one. Use logit for boolean columns and levels, ols for other numbers."
        )
    if column.lower < 0:
        raise ArgumentError(
            f"{family.name} needs a response with a lower bound of 0 or above: {response!r} is declared from "
            f"{column.lower:g}. Use ols; or declare a lower bound of 0 in another release if no value is below it."
        )
    return Response.of(schema, response, family)


def _exposure(schema: Schema, exposure: str | None, response: str, columns: Sequence[str]) -> str | None:
    if exposure is None:
        return None
    name = part_name(schema, exposure)
    column = schema.columns.get(name)
    if not isinstance(column, Numeric) or column.lower < 0 or is_marked(schema, name):
        raise ArgumentError(
            f"exposure must be a numeric column with a lower bound of 0 or above and no missing values, got {name!r}."
        )
    if name == response or name in columns:
        raise ArgumentError(f"exposure {name!r} must not also be the response or a predictor.")
    return name


# ---------------------------------------------------------------------------------------------------------------
# Fitted models
LARGE = 0.5
"""Coefficients whose assumed distribution adds more than this share of the noise's standard error are named."""


@dataclass(frozen=True, repr=False)
class GeneralizedLinearModel(FittedModel):
    """A generalised linear model of one column on others, from a release (:mod:`gaussmix.models.glm`).

    Attributes
    ----------
    response : str
    columns : tuple of str
        Encoded columns of the predictors.
    family : Family
    level : object or None
        The level that is compared with all others, if one is.
    exposure : str or None
        The column that multiplies the mean.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    columns: tuple[str, ...]
    statistic: Transcript = field(compare=False)
    family: Family
    level: object = None
    exposure: str | None = None
    certificate: Certificate | None = field(default=None, compare=False)

    @property
    def _width(self) -> int:
        return len(self.columns)

    @cached_property
    def _model(self) -> Model:
        schema = self.statistic.schema
        if self.family.of_classes:
            response = class_response(schema, self.response, self.level, self.family)[0]
        else:
            response = count_response(schema, self.response, self.family)
        return Model(self.statistic, self.family, self.columns, (response,), self.exposure)

    @property
    def classes(self) -> tuple[Label, Label]:
        """The two classes of the response; the mean is the probability of the second."""
        return class_response(self.statistic.schema, self.response, self.level, self.family)[1]

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return least squares of the response as an inference problem."""
        return self._model.problem(collapse=collapse, reference=reference)

    @cached_property
    def _solution(self) -> Fit:
        return fit_model(self._model)

    def _fit(self, options: Asked) -> tuple[Fit, Summary]:
        own = self.problem(collapse=options["collapse"], reference=options["reference"])
        rows = sample_size(own, options["estimand"], options["n_rows"])
        default = rows is None and not options["collapse"] and not options["reference"]
        found = (
            self._solution
            if default
            else fit_model(self._model, collapse=options["collapse"], reference=options["reference"], n_rows=rows)
        )
        return found, summary_of(found, 0, np.ones(1), options)

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        return self._fit(options)[1]

    # -- ratios and effects ------------------------------------------------------------------------------------------
    def _ratios(self, name: str, alpha: float, options: Asked) -> ResultTable:
        if self.family.ratio != name:
            raise ArgumentError(f"The family {self.family.name!r} has no {name}s. Use tidy or get_margeff.")
        return ratio_table(self.summary(**options), alpha)

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return odds ratios exp(β) with intervals: term, odds.ratio, conf.low, conf.high, p.value.

        They are factors by which the odds are multiplied: per unit of a number, for true versus false, for a level
        versus the reference level. Options as in :meth:`summary`.
        """
        return self._ratios("odds ratio", alpha, options)

    def rate_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return rate ratios exp(β) with intervals: term, rate.ratio, conf.low, conf.high, p.value."""
        return self._ratios("rate ratio", alpha, options)

    def get_margeff(self, *, dummy: bool = False, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return average marginal effects on the mean with intervals, as `get_margeff` of statsmodels.

        The effect of a coefficient is its β times the mean of h'(η). Averages are over the assumed distribution of the
        predictors.

        Parameters
        ----------
        dummy : bool
            Whether booleans and levels have the change of the mean from 0 to 1 instead of the derivative.
        alpha : float
            Intervals have level 1 - alpha.
        **options
            As in :meth:`summary`.
        """
        if self.statistic.schema.units.raw is not None and any(
            isinstance(self.statistic.schema.parts[name], Block)
            for name in sources_of(self.statistic.schema, self.columns)
        ):
            raise ArgumentError("get_margeff requires a model without powers, products and splines.")
        asked = _complete(options)
        found, summary = self._fit(asked)
        return margins_table(found, summary, self.family, dummy=dummy, alpha=check.in_interval(0, 1, alpha=alpha))

    # -- predictions -------------------------------------------------------------------------------------------------
    def get_prediction(self, data: Any, **options: Unpack[Asked]) -> Prediction:
        """Return predicted means for the rows of a table with ``conf_int()``, with statsmodels' names.

        Intervals are those of the linear predictor, mapped to the mean. With an exposure the table must contain it.
        """
        own, mean, schema = self.summary(**options), self.family.mean, self.statistic.schema
        if own._problem.coding is None or mean is None:
            raise ArgumentError("get_prediction requires a model fitted from a release.")
        features = features_of(schema, own._problem.coding, data)
        exposure = np.ones(len(features))
        if self.exposure is not None:
            alone = Problem.of(self.statistic.noisy, schema, Response.of(schema, self.response), [self.exposure])
            if alone.coding is not None:
                exposure = features_of(schema, alone.coding, data)[:, 1]
        return Prediction.of_link(own._coefficients, features, mean.inverse, mean.derivative, exposure)

    def predict(self, data: Any) -> Floats:
        """Return predicted means, probabilities of the second class for logit and probit, for the rows of a table.

        They are computed from ``params``; coefficients that are not identified count as 0. For prediction at small
        budgets see :meth:`Release.predictor`.
        """
        return self.get_prediction(data).predicted_mean

    # -- goodness of fit ---------------------------------------------------------------------------------------------
    @property
    def deviance(self) -> float:
        """Twice the log-likelihood of a saturated model less that of the model, of all rows, estimated.

        NaN if the family's equation is not that of its likelihood, with an exposure, and for counts without cells.
        """
        return self._deviance(self._solution.log_likelihood)

    @property
    def null_deviance(self) -> float:
        """The deviance of the model with a constant alone."""
        return self._deviance(self._solution.null_log_likelihood)

    @property
    def prsquared(self) -> float:
        """Pseudo-R²: 1 - deviance/null deviance, McFadden's for logit; at least 0."""
        whole = self.null_deviance
        return max(1 - self.deviance / whole, 0.0) if whole > 0 else math.nan

    def _deviance(self, log_likelihood: float) -> float:
        mean = self.family.mean
        if mean is None or not mean.is_canonical or self.exposure is not None:
            return math.nan
        saturated = 0.0
        if not self.family.of_classes:
            schema = self.statistic.schema
            column, (index,) = schema.parts[self.response], schema.groups[self.response]
            if self.statistic.marginals is None or not isinstance(column, Numeric):
                return math.nan
            values = quantiles_of(self.statistic, index)((np.arange(POINTS) + 0.5) / POINTS)
            values = np.clip(values, column.lower, column.upper)
            saturated = float(np.mean(mean.saturated(values)))
        return 2 * self.nobs * (saturated - log_likelihood)


def _complete(options: Asked) -> Asked:
    return {"estimand": "table", "n_rows": None, "collapse": None, "reference": None, **options}


def summary_of(found: Fit, place: int, weights: Floats, options: Asked, response: str | None = None) -> Summary:
    """Return the summary of a combination of the linear predictors of a fit."""
    problem, fit = found.problems[place], found.least_squares[place]
    if response is not None:
        problem = replace(problem, response_name=response)
    own = found.coefficients(weights)
    left_out, stands_for = left_out_columns(problem, fit)
    for name, known in zip(problem.names, own.known, strict=True):
        if not known and name not in left_out:
            left_out[name] = "too few events for its rows, or the model nearly separates the response"
    family = replace(found.family, notes=(*found.family.notes, *_warnings(found, problem, own)))
    return Summary.of(
        problem, fit, own, estimand=options["estimand"], family=family, left_out=left_out, stands_for=stands_for
    )


def _warnings(found: Fit, problem: Problem, own: Coefficients) -> list[str]:
    """Return notes about where the method is doubtful."""
    notes = [] if found.converged else ["Newton's method did not converge: the response is nearly separated."]
    if own.assumed is None:
        return notes
    assumed, noise = (np.sqrt(np.maximum(np.diagonal(own_), 0.0)) for own_ in (own.assumed, own.noise + own.sampling))
    known = own.known & (np.array(problem.names) != INTERCEPT)
    for factor, words in (
        (1.0, "depend on a distribution that the release does not show"),
        (LARGE, "depend on the shapes of the numbers"),
    ):
        most = math.inf if factor == 1.0 else 1.0
        names = [name for name, a, s, k in zip(problem.names, assumed, noise, known, strict=True)
                 if k and s > 0 and factor * s < a <= most * s]  # fmt: skip
        if names:
            notes.append(
                f"Coefficients of {', '.join(names)} {words}: the assumed distribution adds more than "
                f"{'the' if factor == 1.0 else 'half of the'} standard error of the noise."
            )
    return notes


def margins_table(found: Fit, summary: Summary, family: Family, *, dummy: bool, alpha: float) -> ResultTable:
    r"""Return average marginal effects, with the delta method: E[h'(η)]β_j moves by E[h']dβ_j + β_j E[h'' xᵀ]dθ."""
    mean, problem, T = family.mean, found.problems[0], found.to_user
    if mean is None:
        raise ArgumentError("Marginal effects of several classes are not implemented.")
    own, X, eta = summary._coefficients, found.rows.X, found.eta[:, 0]
    beta = T @ found.theta[0]
    weights, rows = found.rows.weights, []
    covariance = found.noise + found.sampling + found.assumed
    for place, name in enumerate(problem.names):
        if name == INTERCEPT:
            continue
        if place not in found.kept or not own.known[place]:
            rows.append((name, *[math.nan] * 5))
            continue
        at = found.kept.index(place)
        kind = problem.coding.columns[place].kind if problem.coding is not None else ""
        if dummy and kind in ("level", "boolean"):
            ends = []
            for value in (1.0, 0.0):
                moved = X.copy()
                moved[:, _group_of(found, place)] = _reference_entries(found, place)
                moved[:, at] = _entry(problem, place, value)
                ends.append((moved, mean.derivative(moved @ found.theta[0]), mean.inverse(moved @ found.theta[0])))
            effect = float(weights @ (ends[0][2] - ends[1][2]))
            gradient = (weights * ends[0][1]) @ ends[0][0] - (weights * ends[1][1]) @ ends[1][0]
        else:
            slope = float(weights @ mean.derivative(eta))
            effect = slope * float(beta[place])
            gradient = slope * T[place] + float(beta[place]) * ((weights * mean.second(eta)) @ X)
        error = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
        half = -float(special.ndtri(alpha / 2)) * error
        p = float(2 * special.ndtr(-abs(effect) / error)) if error > 0 else (0.0 if effect else 1.0)
        rows.append((name, effect, error, p, effect - half, effect + half))
    names = ("term", "dy/dx", "std.error", "p.value", "conf.low", "conf.high")
    columns = {name: tuple(row[k] for row in rows) for k, name in enumerate(names)}
    title = f"{summary.response_name}: average marginal effects, {100 * (1 - alpha):g} % intervals"
    return ResultTable(title, columns, tuple(rendering.notes(summary)))


def _entry(problem: Problem, place: int, value: float) -> float:
    units = problem.coding.units if problem.coding is not None else None
    return (value - units.centres[place]) / units.scales[place] if units is not None else value


def _group_of(found: Fit, place: int) -> list[int]:
    """Return the features kept that are levels of the same column as a feature."""
    problem = found.problems[0]
    return [found.kept.index(i) for own in problem.groups.values() if place in own for i in own if i in found.kept]


def _reference_entries(found: Fit, place: int) -> list[float]:
    return [_entry(found.problems[0], found.kept[at], 0.0) for at in _group_of(found, place)]


@dataclass(frozen=True, eq=False, repr=False)
class MultinomialModel(FittedClasses):
    """Log odds of every class against one of them, linear in other columns, from a release.

    :meth:`summary` has the coefficients of every class against the first, or against the one that
    ``reference={"species": "setosa"}`` names.

    Attributes
    ----------
    response : str
    classes : tuple
        The levels of the response.
    columns : tuple of str
        Encoded columns of the predictors.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    classes: tuple[Label, ...]
    columns: tuple[str, ...]
    statistic: Transcript
    certificate: Certificate | None = None

    @property
    def _width(self) -> int:
        return len(self.columns)

    @cached_property
    def _model(self) -> Model:
        schema = self.statistic.schema
        responses = [class_response(schema, self.response, level, MNLOGIT)[0] for level in self.classes[1:]]
        return Model(self.statistic, MNLOGIT, self.columns, tuple(responses))

    @cached_property
    def _solution(self) -> Fit:
        return fit_model(self._model)

    def _summarise(self, **options: Unpack[Asked]) -> dict[Label, Summary]:
        others = dict(options["reference"] or {})
        column = self.statistic.schema.columns[self.response]
        r, _ = place_of(column, others.pop(self.response, self.classes[0]), self.response)
        own: Asked = {**options, "reference": others}
        problem = self._model.problem(collapse=own["collapse"], reference=others)
        rows = sample_size(problem, own["estimand"], own["n_rows"])
        default = rows is None and not own["collapse"] and not others
        fit = self._solution if default else fit_model(
            self._model, collapse=own["collapse"], reference=others, n_rows=rows
        )  # fmt: skip
        scores = np.vstack([np.zeros(len(self.classes) - 1), np.eye(len(self.classes) - 1)])
        return {
            name: summary_of(
                fit, max(k - 1, 0), scores[k] - scores[r], own, f"{self.response} = {name} against {self.classes[r]}"
            )
            for k, name in enumerate(self.classes)
            if k != r
        }

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> dict[Label, ResultTable]:
        """Return odds ratios of every class against one of them, with intervals; options of :meth:`summary`."""
        return {name: ratio_table(own, alpha) for name, own in self.summary(**options).items()}

    def predict(self, data: Any) -> Floats:
        """Return probabilities of all classes, shape (rows, classes); coefficients not identified count as 0."""
        found, eta = self.summary(reference={self.response: self.classes[0]}), []
        for own in found.values():
            if own._problem.coding is not None:
                features = features_of(self.statistic.schema, own._problem.coding, data)
                eta.append(features @ np.nan_to_num(own._coefficients.estimate))
        return np.asarray(special.softmax(np.column_stack([np.zeros(len(eta[0])), *eta]), axis=1))


def fit_glm(
    statistic: Transcript,
    family: Family,
    response: str,
    predictors: Sequence[str] | None,
    *,
    level: object = None,
    exposure: str | None = None,
) -> GeneralizedLinearModel:
    """Return a generalised linear model of a column on other columns."""
    schema = statistic.schema
    response = part_name(schema, response)
    responses = [response, *([] if exposure is None else [part_name(schema, exposure)])]
    features = feature_indices(schema, responses if predictors is None else [response], predictors)
    columns = tuple(schema.names[i] for i in features if schema.encoded[i].source is not None)
    if not schema.intercept:
        raise ArgumentError(f"{family.name} requires a release with an intercept column.")
    found = GeneralizedLinearModel(
        response, columns, statistic, family, level, _exposure(schema, exposure, response, columns)
    )
    found._model  # noqa: B018 - rejects responses that do not suit the family
    return found


def fit_multinomial(statistic: Transcript, response: str, predictors: Sequence[str] | None) -> MultinomialModel:
    """Return the model of the levels of a category on other columns."""
    schema = statistic.schema
    response = part_name(schema, response)
    column = column_of(schema, response)
    if not isinstance(column, Categorical) or len(column.labels) < 3:
        raise ArgumentError(
            f"mnlogit needs a category with more than two levels: {response!r} is not declared as one. Use logit for "
            "two classes, ols for numbers."
        )
    if not schema.intercept:
        raise ArgumentError("mnlogit requires a release with an intercept column.")
    features = feature_indices(schema, [response], predictors)
    columns = tuple(schema.names[i] for i in features if schema.encoded[i].source is not None)
    return MultinomialModel(response, labels_of(column), columns, statistic)


# ---------------------------------------------------------------------------------------------------------------
# Predictors
_NODES = 64


def fit_glm_predictor(
    statistic: Transcript, family: Family, response: str, predictors: Sequence[str] | None, level: object = None
) -> Predictor:
    """Return coefficients that predict, from the ridge regression that is tuned for prediction under the noise.

    The equation is the same, with the ridge's coefficients in place of b, all levels as features, and a prior with
    standard deviation `PRIOR_OF_PREDICTIONS`. A vector of numbers alone is taken as normal (`_along_the_fit`).
    """
    schema, mean = statistic.schema, family.mean
    response = part_name(schema, response)
    if mean is None:
        raise ArgumentError("predictor is for families of one linear predictor.")
    own = (
        class_response(schema, response, level, family)[0]
        if family.of_classes
        else count_response(schema, response, family)
    )
    features = feature_indices(schema, [response], predictors)
    sources = {schema.encoded[i].source for i in features} - {None}
    if family is LOGIT and statistic.steps_serve(response, features):
        theta = likelihood_coefficients(statistic)[features] * (1 if own.vector.sum() > 0 else -1)
    else:
        b = statistic.solve(features, own.vector[:, np.newaxis])[:, 0]
        if all(isinstance(schema.parts[name or ""], Vector) for name in sources) or not schema.intercept:
            theta = _along_the_fit(statistic, family, own, features, b)
        else:
            theta = _penalised(statistic, family, own, features, b)
    coef, intercept = schema.units.coefficients(features, theta)
    return Predictor(response, coef, intercept, schema, family)


def _penalised(statistic: Transcript, family: Family, own: Response, features: Sequence[int], b: Floats) -> Floats:
    """Return θ on encoded columns by the equation on drawn rows."""
    schema, noisy, x = statistic.schema, statistic.predictive, list(features)
    names = tuple(schema.names[i] for i in x if schema.encoded[i].source is not None)
    distribution = Model(statistic, family, names, (own,)).distributions()[0]
    R = distribution.rows
    X, one = R[:, x], schema.units.one
    rows = Rows(X, np.full(len(X), 1 / len(X)))
    wanted = ((X @ b * own.scale + own.centre) @ X / len(X))[np.newaxis]
    a = own.vector.copy()
    a[x] -= b
    Na, n = noisy.shape @ a, max(float(one @ noisy.moment @ one), 1.0)
    noise = (own.scale / n) ** 2 * (np.diagonal(noisy.shape)[x] * float(a @ Na) + Na[x] ** 2)
    weights = np.array([schema.parts[name].weight if (name := schema.encoded[i].source) else 0.0 for i in x])
    with np.errstate(divide="ignore"):
        prior = PRIOR_OF_PREDICTIONS / weights[np.newaxis]
    at = x.index(schema.groups[INTERCEPT][0])
    order = [at, *(i for i in range(len(x)) if i != at)]  # the intercept first
    back = np.argsort(order)
    found, _ = solve_noisy(
        Rows(X[:, order], rows.weights),
        wanted[:, order],
        _mean_of(family),
        noise=noise[np.newaxis][:, order],
        prior=prior[:, order],
        start=_start(family, Rows(X[:, order], rows.weights), wanted[:, order]),
    )
    return np.asarray(found.theta[0][back])


def _along_the_fit(statistic: Transcript, family: Family, own: Response, features: Sequence[int], b: Floats) -> Floats:
    r"""Return θ on encoded columns where predictors are normal, within classes with one covariance.

    By Stein's lemma θ is then b times a number, but for the intercept: the equation has two unknowns, and its
    expectations are over s, the fitted value. With R² the share of the response's variance that is explained, s has the
    variance R² Var(y), which is also its covariance with y. For logit it is Fisher's discriminant.
    """
    schema, noisy = statistic.schema, statistic.predictive
    if family.of_classes:
        signed = replace(own, vector=own.vector * (own.scale / 0.5), scale=0.5)
        found = discriminant_of(statistic, signed, list(features), b * (own.scale / 0.5))
        pi, explained = found.share, found.explained
        whole = pi * (1 - pi)
        centres, shares = np.array([pi - pi * explained, pi + (1 - pi) * explained]), np.array([1 - pi, pi])
        deviation = math.sqrt(whole * explained * (1 - explained))
    else:
        one, vector = schema.units.one, own.centre * schema.units.one + own.scale * own.vector
        n = max(float(one @ noisy.moment @ one), 1.0)
        mean, square = float(one @ noisy.moment @ vector) / n, float(vector @ noisy.moment @ vector) / n
        left = statistic.residual(features, own.vector) * own.scale**2 / n
        centres, shares = np.array([max(mean, 1e-12)]), np.ones(1)
        deviation = math.sqrt(max(square - mean**2 - left, 0.0))
    z, w = np.polynomial.hermite_e.hermegauss(_NODES)
    s = (centres[:, np.newaxis] + deviation * z).ravel()
    weights = (shares[:, np.newaxis] * (w / w.sum())).ravel()
    middle = float(weights @ s)
    X = np.column_stack([np.ones(len(s)), s - middle])
    wanted = (weights * s) @ X
    rows = Rows(X, weights)
    start = _start(family, rows, wanted[np.newaxis])
    if deviation == 0 and len(np.unique(centres)) == 1:  # nothing is explained: b is 0 but for the intercept
        intercept, slope = float(start[0, 0]), 0.0
    else:
        solved = solve(rows, wanted[np.newaxis], _mean_of(family), penalty=np.full((1, 2), 1e-12), start=start)
        intercept, slope = solved.theta[0].tolist()
    theta = slope * own.scale * b
    if schema.intercept:
        theta[list(features).index(schema.groups[INTERCEPT][0])] += (
            intercept + slope * (own.centre - middle)
        ) / schema.rounded_intercept
    return np.asarray(theta)
