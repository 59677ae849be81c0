r"""Intervals of discriminant coefficients and of odds ratios, from a release alone.

β_j = (b_j + e_j)/v (:mod:`gaussmix.models.discriminant`, :mod:`gaussmix.models.families`): b least squares on the 0/1
response, v its residual variance; e = 0 but for the intercept, where e = h(π₁)v - 1/2.

The noise's covariances: with w_j the weights of b_j's score, E the noise and a = (-θ, 1), b_j moves by w_jᵀ(Ea)_x, v by
aᵀEa/(4n) - v dn/n; entries of E have covariance N_ik N_jl + N_il N_jk. Sampling, for populations: v has variance
v(1 - 4v)/n at most, π₁ has π₀π₁/n; taken to be uncorrelated with b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.schema import INTERCEPT
from gaussmix.models import rendering
from gaussmix.models.discriminant import class_forms, quadratic_covariance, shift
from gaussmix.models.families import Family, Scale
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.problem import Problem
from gaussmix.models.results import Summary
from gaussmix.models.score import Score

__all__ = ["DISCRIMINANT", "Contrast", "OddsRatios", "contrast_family", "scale_of"]


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

    def __repr__(self) -> str:
        return f"OddsRatios({rendering.void_mark(*self.about)}{self.response_name!r}, {len(self.estimates)} features)"

    def __str__(self) -> str:
        cells = [["", "odds ratio", f"[{self.alpha / 2:g}", f"{1 - self.alpha / 2:g}]"]]
        for name, (low, high) in self.intervals.items():
            numbers = [f"{self.estimates[name]:.4g}", f"{low:.4g}", f"{high:.4g}"]
            cells.append([name, *(numbers if math.isfinite(high) else ["", rendering.NOT_IDENTIFIED, ""])])
        return rendering.in_columns(f"{self.response_name}: odds ratios", cells, self.about)


def discriminant_scale(
    problem: Problem, b: Floats, score: Score | None, largest: float, *, contrast: Contrast | None = None
) -> Scale:
    """V and e of the regression of a response that is ±1 in encoded units and 0/1 in the user's.

    ``contrast`` is for two of several classes.
    """
    response = np.eye(len(problem.names) + 1)[-1]
    intercept = problem.one if INTERCEPT in problem.names else None
    if score is None:  # no noise
        return scale_of(problem.noisy, problem.to_theta(b), intercept, response, contrast=contrast)
    intercept = None if intercept is None else intercept / np.array([*problem.bounds(largest), 1.0])
    return scale_of(score.noisy, score.pilot.theta, intercept, response, score, contrast=contrast)


DISCRIMINANT = Family(
    name="discriminant",
    link="logit",
    intervals_are_for=MappingProxyType(
        {
            "table": "the discriminant coefficients of this table, on the scale of log odds",
            "population": "the discriminant coefficients, on the scale of log odds, of the population behind the rows",
        }
    ),
    notes=(
        "They are the logistic ones where features are normal within classes; strong columns that are true or "
        "false, or levels, differ from maximum likelihood by more than these intervals say.",
    ),
    ratio="odds ratio",
    scale=discriminant_scale,
)
"""Log odds of two classes by Fisher's discriminant."""


def contrast_family(contrast: Contrast) -> Family:
    """Return the discriminant of two of several classes."""
    return replace(DISCRIMINANT, scale=partial(discriminant_scale, contrast=contrast))


def scale_of(
    noisy: NoisyMoment,
    theta: Floats,
    intercept: Floats | None,
    response: Floats,
    score: Score | None = None,
    *,
    contrast: Contrast | None = None,
) -> Scale:
    """V, and e of the intercept, of the response ±1 at the coefficients θ, with their errors if coefficients have any.

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
    first = np.arange(d) == (0 if intercept is not None else -1)
    known = Scale.known(v, np.where(first, moved * v - 0.5, 0.0), first)
    if score is None:
        return known
    to_v = np.append(np.full(forms.shape[1], -v / n), 1 / (4 * n))
    to_share = np.array([-share, 1 - share, 0.0]) / n if of_classes else np.zeros_like(to_v)
    steep = 1 / (share * (1 - share)) - (share**-2 + (1 - share) ** -2) / 2  # h'
    gradients = np.array([to_v, moved * to_v + v * steep * to_share])
    U = np.column_stack([forms, a])
    noise = gradients @ quadratic_covariance(noisy, U) @ gradients.T
    noise += 2 * (spent / (4 * n)) ** 2 / d * np.outer([1, moved], [1, moved])
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.vstack([score.weights.columns / score.slope, np.zeros(d)])
    with_b = 2 * (w.T @ noisy.shape @ U) * (a @ noisy.shape @ U) @ gradients.T
    sampling = np.zeros((2, 2))
    if score.n_rows is not None:
        largest = 1 - 4 * v if contrast is None else contrast.spread**2 - v
        of_v, of_share = max(v * largest, 0.0) / score.n_rows, share * (1 - share) / score.n_rows
        sampling = of_v * np.outer([1, moved], [1, moved])
        sampling[1, 1] += (v * steep) ** 2 * of_share * of_classes
    places = np.zeros((1 + d, 2))  # of v and of the intercept's e
    places[0, 0], places[1:, 1] = 1.0, first
    return replace(
        known, noise=places @ noise @ places.T, sampling=places @ sampling @ places.T, with_b=with_b @ places.T
    )


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else (math.inf if value > 0 else 0.0)
