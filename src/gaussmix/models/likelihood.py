r"""Likelihood equations of generalised linear models from one release: post-processing, which costs no privacy.

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
is worth. Both have the released second moments, so that dependence among three and more columns is in neither. A
quarter of the sampling covariance H⁻¹ V H⁻¹/n, n the released number of rows, is therefore added to them: the
distribution has a standard error of at least half (`ALLOWANCE`) of the sampling standard error. It is not added if all
predictors are levels of one column, whose distribution is known.

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix._types import Floats
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding, Collapse, Problem, Reference, Response, sources_of
from gaussmix.models.families import LOGISTIC_MEAN, Family, Mean
from gaussmix.models.inference import Coefficients, Flags, LeastSquares, identified_columns, on_columns
from gaussmix.models.predictor_distribution import POINTS, PredictorDistribution
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "ALLOWANCE",
    "FEWER_POINTS",
    "MANY_COLUMNS",
    "Fit",
    "Model",
    "Rows",
    "Solution",
    "dispersion",
    "drawn_rows",
    "fit_model",
    "mean_of",
    "model_sampling",
    "null_coefficients",
    "solve",
    "solve_noisy",
    "solve_posterior",
]

LEAST_KEPT = 0.8
"""Share of a coefficient that the prior must leave for it to be identified."""

LEAST_DRAWN = 16
"""Number of drawn rows that a level needs at least."""

ALLOWANCE = 0.5
"""Least standard error for the assumed distribution, in standard errors of sampling: experiments/glm_protocol.md."""

FEWER_POINTS, MANY_COLUMNS = 4096, 128
"""Number of rows on which distributions are compared, and which models with many encoded columns use throughout."""

_TOLERANCE = 1e-13  # of the decrease of the objective, per row: Newton's method converges quadratically, far below it
_STEPS = 60
_FLAT = 1e-10  # relative size below which a direction of the noise counts as this large
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

    means, slopes = inverse, weights  # of all classes, shapes (rows, c) and (rows, c, q)

    def turns(self, eta: Floats, along: Floats) -> Floats:
        """Return Σ_l along_l ∂²mean_c/∂η_l∂η_m, shape (rows, c, q), for a direction (q,)."""
        return np.asarray((self.own.second(eta) * along)[:, :, np.newaxis])


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

    def means(self, eta: Floats) -> Floats:
        return np.asarray(special.softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1))

    def slopes(self, eta: Floats) -> Floats:
        p = self.means(eta)
        return np.asarray((p[:, :, np.newaxis] * (np.eye(p.shape[1]) - p[:, np.newaxis]))[:, :, 1:])

    def turns(self, eta: Floats, along: Floats) -> Floats:
        # ∂p_c/∂η along a direction v is p_c(v_c - Σ p v), v = 0 for the first class.
        p, slopes = self.means(eta), self.slopes(eta)
        v = np.append(0.0, along)
        beyond = v - (p @ v)[:, np.newaxis]
        own = (p * beyond)[:, np.newaxis, 1:]
        return np.asarray(slopes * beyond[:, :, np.newaxis] - p[:, :, np.newaxis] * own)


def mean_of(family: Family) -> _OneMean | _Softmax:
    """Return the mean of a family as a function of one or several linear predictors."""
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


def solve_posterior(rows: Rows, wanted: Floats, mean: Mean, *, noise: Floats, prior: Floats, start: Floats) -> Solution:
    r"""Return the mode of θ given a noisy m = Σ x y with covariance Σ = ``noise``, (d, d), and a normal prior.

    With m(θ) = E[x h(xᵀθ)] and v = Σ⁻¹(m - m(θ)) it is the minimum of

    .. math:: F(\theta) = \tfrac12 (m - m(\theta))^\top \Sigma^{-1} (m - m(\theta))
              + \tfrac12 \sum_j \theta_j^2/\mathrm{prior}_j^2 ,\qquad
              \nabla^2 F = H\Sigma^{-1}H + \Lambda - \mathrm E[h''(x^\top\theta)\,(x^\top v)\,x x^\top]

    by Newton's method with halving; where the last term makes the matrix indefinite it is left out. F falls at every
    step, so that Σ θ_j²/prior_j² is at most 2F(start): θ is finite also where noisy moments are those of no
    distribution. `solve_noisy` has the same equation for each coefficient alone, which takes a level's own rows as
    information about a contrast of levels; here information is that of the contrast. An infinite prior has no penalty.
    """
    X, w, precision = rows.X, rows.weights, prior**-2.0
    unit = 1 / np.sqrt(np.maximum(np.diagonal(noise), 1e-300))
    P = scipy.linalg.inv(noise * np.outer(unit, unit) + _FLAT * np.eye(len(noise))) * np.outer(unit, unit)

    def objective(theta: Floats) -> tuple[float, Floats, Floats]:
        eta = X @ theta
        left = wanted - (w * mean.inverse(eta)) @ X
        return float(left @ P @ left + precision @ theta**2) / 2, left, eta

    theta, converged = start, False
    value, left, eta = objective(theta)
    for _ in range(_STEPS):
        H = X.T @ (X * (w * mean.derivative(eta))[:, np.newaxis])
        v = P @ left
        gradient, whole = precision * theta - H @ v, H @ P @ H + np.diag(precision)
        bend = X.T @ (X * (w * mean.second(eta) * (X @ v))[:, np.newaxis])
        step = -_newton_step(whole, bend, gradient)
        fall, length = -float(gradient @ step), 1.0
        while True:
            new, left_new, eta_new = objective(theta + length * step)
            if new <= value - 1e-4 * length * fall or fall < 1e-9 or length < 1e-6:
                break
            length /= 2
        theta, value, left, eta = theta + length * step, new, left_new, eta_new
        if fall < _TOLERANCE * (1 + value):
            converged = True
            break
    return Solution(theta[np.newaxis], X.T @ (X * (w * mean.derivative(eta))[:, np.newaxis]), converged)


def _newton_step(whole: Floats, bend: Floats, gradient: Floats) -> Floats:
    """Return (whole - bend)⁻¹ gradient, or without ``bend`` if that is not clearly positive definite."""
    unit = 1 / np.sqrt(np.maximum(np.diagonal(whole), 1e-300))
    scaled = whole * np.outer(unit, unit) + _FLAT * np.eye(len(whole))
    full = scaled - bend * np.outer(unit, unit)
    if scipy.linalg.eigvalsh(full, subset_by_index=[0, 0])[0] < 1e-8:
        full = scaled
    return np.asarray(unit * scipy.linalg.solve(full, unit * gradient, assume_a="pos"))


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
    booleans : bool
        Whether entries of vectors that appear to have two values are drawn as booleans.
    points : int
        Number of rows drawn.
    """

    statistic: Transcript
    family: Family
    columns: tuple[str, ...]
    responses: tuple[Response, ...]
    exposure: str | None = None
    booleans: bool = False
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
            booleans=self.booleans,
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
    distances : array (q d, q d)
        Part of ``assumed`` from the distances to the solutions under other distributions.
    inverse : array (q d, q d)
        H⁻¹.
    unknown : array (q, d)
        Which coefficients the prior determines.
    prior : array (d,)
        Standard deviations of θ a priori; infinite for the intercept.
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
    distances: Floats
    inverse: Floats
    unknown: Flags
    prior: Floats
    converged: bool
    log_likelihood: float
    null_log_likelihood: float

    @property
    def eta(self) -> Floats:
        """Linear predictors of the drawn rows, shape (rows, q)."""
        return self.rows.X @ self.theta.T

    def gain(self, mean: float) -> tuple[float, float]:
        r"""Return the estimated log-likelihood per row in excess of that of a constant, and its standard error.

        ``mean`` is the mean response m from counts and sums, which no norm clipping biases and which have less noise.
        With μ = h(η), weights w of the drawn rows and the constant η₀ of m the excess is

        .. math:: \sum w\,(\mu\eta - a(\eta)) + (m - \sum w\mu)\,\bar\eta - m\eta_0 + \sum w\,a(\eta_0)
                  - \operatorname{tr}\bigl(H (\operatorname{Cov}(\hat\theta)^{-1} + \Lambda)^{-1}\bigr) ,

        a the antiderivative of h. The trace is by how much the noise in θ̂ makes the first terms too large on average:
        half of it is lost on the table, half is seen as gained. Λ is the precision of the prior, which limits moves
        where classes are nearly separated; 0 for counts, for which a mean that is too large has no bounded loss. The
        standard error is that of Σ xy along θ, the mean aside. Coefficients that are not identified count as 0, as in
        predictions. NaN for several classes and unknown constants.
        """
        own, w, X = self.family.mean, self.rows.weights, self.rows.X
        if own is None or self.unknown[0, 0]:
            return math.nan, math.nan
        theta = np.where(self.unknown, 0.0, self.theta)[0]
        eta = X @ theta
        mu, whole, averages = own.inverse(eta), float(w.sum()), w @ X / w.sum()
        constant = np.atleast_1d(own.link(np.array([mean / whole])))
        likelihood = float(w @ (mu * eta - own.area(eta))) + (mean - float(w @ mu)) * float(averages @ theta)
        null = mean * float(constant[0]) - whole * float(own.area(constant)[0])
        H = self.rows.moments(mean_of(self.family).weights(eta[:, np.newaxis]))
        along = theta.copy()
        along[0] = -float(averages[1:] @ theta[1:]) / averages[0]  # the mean of y has no part
        error = math.sqrt(max(float(along @ H @ self.noise @ H @ along), 0.0))
        root = 1 / self.prior if self.family.of_classes else np.zeros(len(self.prior))
        inner = np.eye(len(root)) + self.noise * np.outer(root, root)
        limited = self.noise - (self.noise * root) @ scipy.linalg.solve(
            inner, root[:, np.newaxis] * self.noise, assume_a="pos"
        )
        return likelihood - null - float(np.sum(H * limited)), error

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
        bends = self.rows.weights @ mean_of(self.family).bends(self.eta, along, across)
        return np.asarray(bends / variances)


def fit_model(
    model: Model, *, collapse: Collapse | None = None, reference: Reference | None = None, n_rows: float | None = None
) -> Fit:
    """Solve a model; ``n_rows`` is the sample size for the population."""
    options: dict[str, Any] = {"collapse": collapse, "reference": reference}
    problems = tuple(model.problem(k, **options) for k in range(len(model.responses)))
    distribution, *others = model.distributions()
    linear = _Linear.of(model, problems[0], model.problem(**options, exposure=True))
    if linear is None:
        return _unidentified(model, problems, distribution, n_rows)
    rows, found, share, cross = _solved(model, linear, distribution)
    q, H = len(found.theta), found.hessian
    unknown = (share < LEAST_KEPT) | (np.count_nonzero(rows.X, axis=0) < LEAST_DRAWN)
    unknown[:, 0] = False
    if model.family.mean is not None and not _is_a_mean(model.family, rows, linear.b @ cross.T):
        unknown[:] = True
    # The prior is not in the sensitivities. Coefficients that are not identified are taken as fixed.
    known = np.flatnonzero(~unknown.ravel())
    inverse, at = np.zeros_like(H), np.ix_(known, known)
    # Where the response is separated H may be singular: standard errors are then large and not infinite.
    energy = np.tile(rows.weights @ rows.X**2, q)[known]
    unit = 1 / np.sqrt(energy)
    scaled = H[at] * np.outer(unit, unit) + _SINGULAR * np.eye(len(known))
    inverse[at] = np.outer(unit, unit) * scipy.linalg.inv(scaled) if len(known) else scaled
    J = inverse @ np.kron(np.eye(q), cross)
    sampling = np.zeros_like(H)
    if n_rows is not None:
        sampling = _model_sampling(model, rows, found.theta, inverse, n_rows)
    few = [replace(own, points=min(FEWER_POINTS, own.points)) for own in (distribution, *others)] if others else []
    same, *moved = (_solved(model, linear, own)[1].theta.ravel() for own in few or [distribution])
    plain = [on_columns(own.noisy, linear.own_kept, linear.own_left_out, linear.signal, n_rows) for own in problems]
    wanted = linear.b @ cross.T
    distances = sum((np.outer(own - same, own - same) for own in moved), np.zeros_like(H))
    allowance = np.zeros_like(H)
    if distribution.has_assumptions:
        n = max(problems[0].nobs, 1.0)
        allowance = ALLOWANCE**2 * _model_sampling(model, rows, found.theta, inverse, n)
    return Fit(
        family=model.family,
        problems=problems,
        least_squares=tuple(plain),
        kept=linear.own_kept,
        rows=rows,
        theta=found.theta,
        noise=J @ linear.covariance.reshape(len(J.T), len(J.T)) @ J.T,
        sampling=sampling,
        assumed=distances + allowance,
        distances=distances,
        inverse=inverse,
        unknown=unknown,
        prior=linear.prior,
        converged=found.converged,
        log_likelihood=_log_likelihood(model.family, rows, wanted, found.theta),
        null_log_likelihood=_log_likelihood(model.family, rows, wanted, null_coefficients(model.family, rows, wanted)),
    )


def _unidentified(
    model: Model, problems: tuple[Problem, ...], distribution: PredictorDistribution, n_rows: float | None
) -> Fit:
    """Return a fit without a known coefficient: its constant is 0 and unknown."""
    left_out, q = list(range(len(problems[0].names))), len(problems)
    rows = drawn_rows(model, distribution, distribution.rows @ _coding(model, problems[0]).rows[:1].T)
    theta, zeros = np.zeros((q, 1)), np.zeros((q, q))
    level = _log_likelihood(model.family, rows, theta, theta)
    notes = model.family.notes
    if model.exposure is not None:
        notes = (
            *notes,
            f"No coefficient is identified: noise dominates the constant or the exposure {model.exposure}.",
        )
    return Fit(
        family=replace(model.family, notes=notes),
        problems=problems,
        least_squares=tuple(on_columns(own.noisy, [], left_out, n_rows=n_rows) for own in problems),
        kept=[0],
        rows=rows,
        theta=theta,
        noise=zeros,
        sampling=zeros,
        assumed=zeros,
        distances=zeros,
        inverse=zeros,
        unknown=np.ones((q, 1), dtype=bool),
        prior=np.full(1, np.inf),
        converged=True,
        log_likelihood=level,
        null_log_likelihood=level,
    )


def model_sampling(model: Model, fit: Fit, n_rows: float) -> Floats:
    """Return the covariance from sampling n_rows independent rows whose variance is the family's."""
    return _model_sampling(model, fit.rows, fit.theta, fit.inverse, n_rows)


def _model_sampling(model: Model, rows: Rows, theta: Floats, inverse: Floats, n_rows: float) -> Floats:
    V = rows.moments(mean_of(model.family).variances(rows.X @ theta.T))
    return np.asarray(dispersion(model, rows, theta) * (inverse @ V @ inverse) / n_rows)


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
    def of(cls, model: Model, narrow: Problem, wide: Problem) -> _Linear | None:
        """Return least squares of a model, from its regressions without and with the exposure.

        None if noise hides the constant or the exposure.
        """
        coding, own_coding = _coding(model, wide), _coding(model, narrow)
        kept, _, signal = identified_columns(wide.noisy, intercept=True, needs=wide.to_user.T != 0)
        if 0 not in kept or (model.exposure is not None and wide.names.index(model.exposure) not in kept):
            return None
        rows, vectors = coding.rows[kept], np.array([own.vector for own in model.responses])
        theta, covariance = _several_responses(model.statistic.noisy.mapped(np.vstack([rows, vectors])), len(kept))
        scales = np.array([own.scale for own in model.responses])
        b = theta * scales[:, np.newaxis]
        b[:, 0] += np.array([own.centre for own in model.responses]) * coding.units.scales[0]
        own_kept = [i for i, name in enumerate(narrow.names) if wide.names.index(name) in kept]
        weights = np.array([model.schema.parts[own].weight if own else 0.0 for own in own_coding.sources])[own_kept]
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


def _coding(model: Model, problem: Problem) -> Coding:
    if problem.coding is None or not problem.intercept:
        raise ArgumentError(f"{model.family.name} requires a release with an intercept.")
    return problem.coding


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


def drawn_rows(model: Model, distribution: PredictorDistribution, X: Floats) -> Rows:
    """Return the drawn rows of features X, weighted by their exposure."""
    n = distribution.points
    weights = np.full(n, 1 / n)
    if model.exposure is not None:
        column, own = model.schema.columns[model.exposure], list(model.schema.groups[model.exposure])
        values = model.schema.units.decode(distribution.rows[:, own], own)[:, 0]
        weights = weights * np.clip(values, column.lower, column.upper)  # type: ignore[union-attr]
    return Rows(X, weights)


def _solved(
    model: Model, linear: _Linear, distribution: PredictorDistribution
) -> tuple[Rows, Solution, Floats, Floats]:
    """Solve a model on the rows of a distribution. Returns the rows, the solution, `solve_noisy`'s share, E[x zᵀ]."""
    Z = distribution.rows @ linear.rows.T
    rows, q = drawn_rows(model, distribution, Z[:, linear.places]), len(linear.b)
    cross = rows.X.T @ Z / distribution.points
    noise = np.array([np.sum((cross @ linear.covariance[k, :, k]) * cross, axis=1) for k in range(q)])
    wanted = linear.b @ cross.T
    found, share = solve_noisy(
        rows,
        wanted,
        mean_of(model.family),
        noise=noise,
        prior=np.tile(linear.prior, (q, 1)),
        start=null_coefficients(model.family, rows, wanted),
    )
    return rows, found, share, cross


def null_coefficients(family: Family, rows: Rows, wanted: Floats) -> Floats:
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


def _is_a_mean(family: Family, rows: Rows, wanted: Floats) -> bool:
    """Return whether a family has the noisy mean response; if not, no θ solves the equation of the constant."""
    mean = float(wanted[0, 0] / rows.X[0, 0] / rows.weights.sum())
    return mean > 0 and (mean < 1 or not family.of_classes)


def _log_likelihood(family: Family, rows: Rows, wanted: Floats, theta: Floats) -> float:
    """Return the mean of yη - area(η); y enters through Σ xy alone."""
    return float(np.sum(theta * wanted) - rows.weights @ mean_of(family).area(rows.X @ theta.T))


def dispersion(model: Model, rows: Rows, theta: Floats) -> float:
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
