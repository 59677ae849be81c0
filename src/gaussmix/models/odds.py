r"""Intervals of discriminant coefficients and of odds ratios, from a release alone.

β_j = (b_j + e_j)/v (:mod:`gaussmix.models.discriminant`): b least squares on the 0/1 response, v its residual variance;
e = 0 but for the intercept, where e = h(π₁)v - 1/2. An interval of b_j comes from the score test. A value β is accepted
where 0 is among the values that b_j + e_j - βv can have: with half-length H of b_j's interval on the side of βv,
deviations s of v and e, and z the normal quantile,

.. math:: (\hat b_j + u)^2 \le H^2 + z^2\,\mathrm{Var}(u) + 2 H z\,\mathrm{Cov}(\hat b_j, u)/s_{b_j} ,\qquad
    u = \hat e_j - \beta\hat v ,

a quadratic in β (Zou and Donner's way to combine intervals, in Fieller's form: nothing is divided by a noisy v). Slopes
are accepted to be 0 exactly where b_j is. Where v is not told from 0 nothing is identified.

The noise's covariances: with w_j the weights of b_j's score, E the noise and a = (-θ, 1), b_j moves by w_jᵀ(Ea)_x, v by
aᵀEa/(4n) - v dn/n; entries of E have covariance α(Q_ik Q_jl + Q_il Q_jk). Sampling, for populations: v has variance
v(1 - 4v)/n at most, π₁ has π₀π₁/n; taken to be uncorrelated with b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg
from scipy import stats

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models import rendering
from gaussmix.models.discriminant import class_forms, quadratic_covariance, shift
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.problem import Problem
from gaussmix.models.score import Score
from gaussmix.models.summary import LARGEST, Estimand, Summary, summarise
from gaussmix.tables.schema import INTERCEPT

__all__ = ["Contrast", "DiscriminantTests", "OddsRatios", "Scale", "discriminant_summary"]

_LEAST_P = 1e-12
"""p-values below it are given as 0."""


@dataclass(frozen=True)
class Contrast:
    """Two of several classes (:mod:`gaussmix.models.softmax`): their response is half a combination of indicators.

    Attributes
    ----------
    moved : float
        What the intercept is moved by: taken as known.
    spread : float
        Largest difference of the combination's values, for the sampling error of v.
    """

    moved: float
    spread: float


@dataclass(frozen=True, eq=False)
class Scale:
    """v, what the intercept is moved by, and their errors.

    Attributes
    ----------
    v, moved : float
        v and h(π₁).
    noise, sampling : arrays (2, 2)
        Covariances of v and of the intercept's e.
    with_b : array (d, 2)
        Covariances that noise gives them with the coefficients b.
    """

    v: float
    moved: float
    noise: Floats
    sampling: Floats
    with_b: Floats


@dataclass(frozen=True, eq=False)
class DiscriminantTests:
    """Tests of β in place of those of b: what a summary asks of a :class:`~gaussmix.models.score.Score`."""

    b: Score
    scale: Scale
    constant: Floats
    deviation: Floats

    @property
    def estimate(self) -> Floats:
        """β."""
        return np.asarray((self.b.estimate - 0.5 * self.constant) / self.scale.v + self.scale.moved * self.constant)

    def intervals(self, level: float) -> Floats:
        """Ends of the accepted values at 1 - level, shape (d, 2); infinite where they do not end."""
        z, v = float(stats.norm.isf(level / 2)), self.scale.v
        own = self.b.intervals(level)
        middle = self.b.estimate + self.constant * (self.scale.moved * v - 0.5)
        found = np.empty_like(own)
        S, C = self.scale.noise + self.scale.sampling, self.scale.with_b
        for column, side in enumerate((-1.0, 1.0)):
            H = np.abs(own[:, column] - self.b.estimate)
            with np.errstate(divide="ignore", invalid="ignore"):
                stretch = np.where(self.deviation > 0, H / self.deviation, z)  # z, but for the interval's asymmetry
                # accepted: β²A - 2βB + D ≤ 0
                A = v**2 - z**2 * S[0, 0]
                B = middle * v - z * stretch * C[:, 0] - z**2 * self.constant * S[0, 1]
                D = middle**2 - H**2 - self.constant * (z**2 * S[1, 1] + 2 * z * stretch * C[:, 1])
                end = (B + side * np.sqrt(np.maximum(B**2 - A * D, 0.0))) / A
            found[:, column] = np.where(np.isfinite(H) & (A > 0) & (v > 0), end, side * np.inf)
        unbounded = ~np.isfinite(found).all(axis=1)
        found[unbounded] = (-np.inf, np.inf)
        return found

    def p_of_hull(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values that are below a level exactly where the interval of that level leaves the value out."""
        chosen = np.arange(len(self.constant))[index]
        slopes = ~self.constant[chosen].astype(bool) & (np.asarray(values) == 0)
        found = np.empty(len(chosen))
        found[slopes] = self.b.p_of_hull(np.zeros(int(slopes.sum())), chosen[slopes].tolist())
        for place in np.flatnonzero(~slopes).tolist():
            found[place] = self._p(int(chosen[place]), float(values[place]))
        return found

    def _p(self, index: int, value: float) -> float:
        """The level at which an interval ends at a value, by bisection of its logarithm."""
        low, high = math.log(_LEAST_P), 0.0
        if not self._accepted(index, value, _LEAST_P):
            return 0.0
        for _ in range(30):
            half = (low + high) / 2
            low, high = (half, high) if self._accepted(index, value, math.exp(half)) else (low, half)
        return math.exp(low)

    def _accepted(self, index: int, value: float, level: float) -> bool:
        left, right = self.intervals(level)[index]
        return bool(left <= value <= right)

    def joint(self, index: Sequence[int], values: Floats) -> float:
        """p-value of values of several coefficients at once: of b at the estimated v."""
        constant = self.constant[list(index)]
        return self.b.joint(index, values * self.scale.v + constant * (0.5 - self.scale.moved * self.scale.v))


@dataclass(frozen=True)
class OddsRatios:
    """exp(β) by name, with intervals: the factor by which a feature multiplies the odds of the second class.

    Per unit of a number, for true against false, for a level against the one that its category is measured from.

    Attributes
    ----------
    response_name : str
        The class whose odds they are.
    estimates : dict of str to float
    intervals : dict of str to (float, float)
        Of level 1 - alpha; (0, inf) where a coefficient is not identified.
    alpha : float
    about : tuple of str
        What they are intervals of.
    """

    response_name: str
    estimates: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    alpha: float
    about: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, summary: Summary, alpha: float = 0.05) -> OddsRatios:
        """From coefficients on the scale of log odds."""
        ends = {name: ends for name, ends in summary.conf_int(alpha).items() if name != INTERCEPT}
        return cls(
            summary.response_name,
            {name: _exp(summary.params[name]) for name in ends},
            {name: (_exp(low), _exp(high)) for name, (low, high) in ends.items()},
            alpha,
            tuple(rendering.notes(summary, unidentified=not np.isfinite(list(ends.values())).all())),
        )

    def as_plain(self) -> dict[str, Any]:
        """Plain values, for JSON; None where a coefficient is not identified."""
        return {
            name: {"odds_ratio": value, "interval": list(ends)} if math.isfinite(ends[1]) else None
            for (name, value), ends in zip(self.estimates.items(), self.intervals.values(), strict=True)
        }

    def __str__(self) -> str:
        cells = [["", "odds ratio", f"[{self.alpha / 2:g}", f"{1 - self.alpha / 2:g}]"]]
        for name, (low, high) in self.intervals.items():
            numbers = [f"{self.estimates[name]:.4g}", f"{low:.4g}", f"{high:.4g}"]
            cells.append([name, *(numbers if math.isfinite(high) else ["", rendering.NOT_IDENTIFIED, ""])])
        return rendering.in_columns(f"{self.response_name}: odds ratios", cells, self.about)


def discriminant_summary(
    problem: Problem,
    *,
    estimand: Estimand = "table",
    n_rows: int | None = None,
    largest: float = LARGEST,
    contrast: Contrast | None = None,
) -> Summary:
    """The summary of β, from the regression of a response that is ±1 in encoded units and 0/1 in the user's.

    Parameters as in :func:`gaussmix.models.summary.summarise`; there is no ``"ridge"`` on this scale. ``contrast`` is
    for two of several classes.
    """
    if estimand == "ridge":
        raise ArgumentError(
            'estimand="ridge" is not on the scale of log odds: use "table" or "population", or variant="paper".'
        )
    own = summarise(problem, estimand=estimand, n_rows=n_rows, largest=largest)
    names, b = problem.names, np.array(list(own.params.values()))
    constant = np.array([float(name == INTERCEPT) for name in names])
    response = np.eye(len(names) + 1)[-1]
    intercept = constant_of(problem) if constant.any() else None
    if not isinstance(own._score, Score):  # no noise
        scale = scale_of(problem.noisy, problem.to_theta(b), intercept, response, contrast=contrast)
        params = (b - 0.5 * constant) / scale.v + scale.moved * constant
        return replace(own, params=dict(zip(names, params.tolist(), strict=True)), discriminant=True)
    score, units = own._score, np.array([*problem.bounds(largest), 1.0])
    intercept = None if intercept is None else intercept / units
    scale = scale_of(score.noisy, score.pilot.theta, intercept, response, score, contrast=contrast)
    noise, sampling = score.covariance()
    tests = DiscriminantTests(score, scale, constant, np.sqrt(np.maximum(np.diagonal(noise + sampling), 0.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        to_beta = np.column_stack([np.eye(len(names)), -tests.estimate, constant]) / scale.v
        noise = to_beta @ np.block([[noise, scale.with_b], [scale.with_b.T, scale.noise]]) @ to_beta.T
        sampling = to_beta @ scipy.linalg.block_diag(sampling, scale.sampling) @ to_beta.T
        variance = np.maximum(np.diagonal(noise + sampling), 0.0)
        share = np.clip(np.diagonal(noise) / variance, 0.0, 1.0)

    def labelled(values: Floats) -> dict[str, float]:
        return dict(zip(names, values.tolist(), strict=True))

    return replace(
        own,
        params=labelled(tests.estimate),
        bse=labelled(np.sqrt(variance)),
        pvalues=labelled(tests.p_of_hull(np.zeros(len(names)))),
        noise_share=labelled(share),
        discriminant=True,
        _score=tests,
        _covariance=noise + sampling,
    )


def constant_of(problem: Problem) -> Floats:
    """The combination of a problem's columns that is 1 in every row: its intercept, which comes first."""
    found = np.zeros(len(problem.names) + 1)
    found[0] = 0.5 / problem.to_user[0, 0]
    return found


def scale_of(
    noisy: NoisyMoment,
    theta: Floats,
    intercept: Floats | None,
    response: Floats,
    score: Score | None = None,
    *,
    contrast: Contrast | None = None,
) -> Scale:
    """V and h(π₁) of the response ±1 at the coefficients θ, with their errors if coefficients have any.

    Fitted coefficients leave less of the noisy M than the table's own do, by tr(G⁻¹V) on average; that is added.
    """
    a, d = np.append(-theta, 1.0), len(theta)
    of_classes = intercept is not None and contrast is None
    forms = class_forms(intercept, response) if intercept is None or of_classes else intercept[:, np.newaxis]
    values = np.sum(forms * (noisy.moment @ forms), axis=0)
    n, rss = max(float(values.sum()), 1.0), float(a @ noisy.moment @ a)
    share = min(max(float(values[-1]) / n, 0.5 / n), 1 - 0.5 / n) if of_classes else 0.5
    spent = 0.0 if score is None else max(float(np.sum(noisy.moment[:d, :d] * score.pilot.covariance)), 0.0)
    v, moved = (rss + spent) / (4 * n), shift(share) if contrast is None else contrast.moved
    if score is None:
        return Scale(v, moved, np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((d, 2)))
    to_v = np.append(np.full(forms.shape[1], -v / n), 1 / (4 * n))
    to_share = np.array([-share, 1 - share, 0.0]) / n if of_classes else np.zeros_like(to_v)
    steep = 1 / (share * (1 - share)) - (share**-2 + (1 - share) ** -2) / 2  # h'
    gradients = np.array([to_v, moved * to_v + v * steep * to_share])
    U = np.column_stack([forms, a])
    noise = gradients @ quadratic_covariance(noisy, U) @ gradients.T
    noise += 2 * (spent / (4 * n)) ** 2 / d * np.outer([1, moved], [1, moved])
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.vstack([score.weights.columns / score.slope, np.zeros(d)])
    with_b = 2 * noisy.alpha * (w.T @ noisy.spread @ U) * (a @ noisy.spread @ U) @ gradients.T
    sampling = np.zeros((2, 2))
    if score.n_rows is not None:
        largest = 1 - 4 * v if contrast is None else contrast.spread**2 - v
        of_v, of_share = max(v * largest, 0.0) / score.n_rows, share * (1 - share) / score.n_rows
        sampling = of_v * np.outer([1, moved], [1, moved])
        sampling[1, 1] += (v * steep) ** 2 * of_share * of_classes
    return Scale(v, moved, noise, sampling, with_b)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else (math.inf if value > 0 else 0.0)
