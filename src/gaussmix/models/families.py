r"""Families of models: how coefficients come from least squares, what is printed about them, and their intervals.

A `Family` is a value. Linear regression is one (`LINEAR`); the discriminant (:mod:`gaussmix.models.classification`),
rates (:mod:`gaussmix.models.rates`) and two-stage least squares (:mod:`gaussmix.models.instruments`) are others.
Summaries, tables, rendering and commands read the family and have no branches of their own.

A family with a link has the coefficients β_j = (b_j + e_j)/v: b least squares, v and e_j further functions of the
release's matrix (`Scale`). With v a residual variance they are log odds, with v a mean log rates. An interval of
b_j comes from the score test. A value β is accepted where 0 is among the values that b_j + e_j - βv can have: with
half-length H of b_j's interval on the side of βv, deviations s, and z the normal quantile,

.. math:: (\hat b_j + u)^2 \le H^2 + z^2\,\mathrm{Var}(u) + 2 H z\,\mathrm{Cov}(\hat b_j, u)/s_{b_j} ,\qquad
    u = \hat e_j - \beta\hat v ,

a quadratic in β (Zou and Donner's way to combine intervals, in Fieller's form: nothing is divided by a noisy v). Where
e_j = 0, a slope is accepted to be 0 exactly where b_j is. Where v is not told from 0 nothing is identified.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.models import FAMILIES

if TYPE_CHECKING:
    from gaussmix.models.design import Problem
    from gaussmix.models.inference import Score
    from gaussmix.models.results import FittedModel, Summary
    from gaussmix.releases.transcript import Transcript

__all__ = ["LINEAR", "Family", "RatioTests", "Registration", "Scale", "on_scale", "registration", "without_noise"]

Flags = NDArray[np.bool_]

_LEAST_P = 1e-12
"""p-values below it are given as 0."""


@dataclass(frozen=True, eq=False)
class Scale:
    """v, what coefficients are moved by before they are divided by it, and their errors.

    Attributes
    ----------
    v : float
    added : array (d,)
        e.
    moved : array of bool (d,)
        Which coefficients have an e at all; that of the others is 0, whatever the noise.
    noise, sampling : arrays (1 + d, 1 + d)
        Covariances of v and e.
    with_b : array (d, 1 + d)
        Covariances that noise gives them with the coefficients b.
    unknown : array of bool (d,)
        Coefficients whose e is not told from noise: they are not identified.
    """

    v: float
    added: Floats
    moved: Flags
    noise: Floats
    sampling: Floats
    with_b: Floats
    unknown: Flags

    @classmethod
    def known(cls, v: float, added: Floats, moved: Flags) -> Scale:
        """Without errors."""
        d = len(added)
        nothing = np.zeros((1 + d, 1 + d))
        return cls(v, added, moved, nothing, nothing, np.zeros((d, 1 + d)), np.zeros(d, dtype=bool))


ScaleOf = Callable[["Problem", Floats, "Score | None", float], Scale]
"""Problem, least squares b in the user's units, its tests (None without noise) and ``max_effect``, to v and e."""


@dataclass(frozen=True)
class Family:
    """One kind of regression: what its coefficients are and how they come from least squares.

    Attributes
    ----------
    name : str
    link : str
        What is linear in the predictors: ``"identity"``, ``"logit"`` or ``"log"`` of the mean.
    intervals_are_for : mapping of estimand to str
        What intervals are for, by estimand; an estimand that is not here is refused.
    refusal : str
        The message then.
    notes : tuple of str
        How to read the coefficients: printed below every table.
    clipping_note : str
        Printed below tables of a release whose rows were clipped.
    remedy : str
        What helps where coefficients are not identified.
    ratio : str
        What exp(β) is called: ``"odds ratio"``, ``"rate ratio"``; empty where it has no meaning.
    prints_rsquared, has_rsquared, has_sigma : bool
        Whether R² is printed below the table, and whether R² and the residual standard deviation are in ``glance``.
    scale : callable or None
        v and e of β = (b + e)/v; None where coefficients are those of least squares.
    """

    name: str
    link: str
    intervals_are_for: Mapping[str, str]
    refusal: str = ""
    notes: tuple[str, ...] = ()
    clipping_note: str = ""
    remedy: str = "use fewer predictors, collapse sparse levels (collapse=), or spend a larger ε."
    ratio: str = ""
    prints_rsquared: bool = False
    has_rsquared: bool = False
    has_sigma: bool = False
    scale: ScaleOf | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Registration:
    """How a family is fitted by name: ``release.fit(name, ...)``, and the command of that name.

    Attributes
    ----------
    family : Family
    fit : callable
        The numbers of a release, the response and the predictors (None for all others), to a fitted model.
    help : str
        Help of the command.
    """

    family: Family
    fit: Callable[[Transcript, str, Sequence[str] | None], FittedModel]
    help: str


def registration(name: str) -> Registration:
    """Return the registration of a family that ``gaussmix.models.FAMILIES`` names."""
    check.choice(tuple(FAMILIES), family=name)
    found: Registration = importlib.import_module(FAMILIES[name]).REGISTRATION
    return found


LINEAR = Family(
    name="linear",
    link="identity",
    intervals_are_for=MappingProxyType(
        {
            "table": "the least-squares coefficients of this table (score test)",
            "population": "the coefficients of the population that the rows were drawn from (score test)",
        }
    ),
    prints_rsquared=True,
    has_rsquared=True,
    has_sigma=True,
)


@dataclass(frozen=True, eq=False)
class RatioTests:
    """Tests of β in place of those of b: what a summary asks of a :class:`~gaussmix.models.inference.Score`."""

    b: Score
    scale: Scale
    std_error: Floats
    covariance: Floats

    @property
    def estimate(self) -> Floats:
        """β."""
        return np.asarray((self.b.estimate + self.scale.added) / self.scale.v)

    def intervals(self, level: float | Floats) -> Floats:
        """Ends of the accepted values at 1 - level, or a level each, shape (d, 2); infinite where they do not end."""
        z, v = stats.norm.isf(np.asarray(level) / 2), self.scale.v
        own = self.b.intervals(level)
        middle = self.b.estimate + self.scale.added
        S, C = self.scale.noise + self.scale.sampling, self.scale.with_b
        with_v, of_e, with_e = S[0, 1:], np.diagonal(S)[1:], np.diagonal(C[:, 1:])
        found = np.empty_like(own)
        for column, side in enumerate((-1.0, 1.0)):
            H = np.abs(own[:, column] - self.b.estimate)
            with np.errstate(divide="ignore", invalid="ignore"):
                stretch = np.where(self.std_error > 0, H / self.std_error, z)  # z, but for the interval's asymmetry
                # accepted: β²A - 2βB + D ≤ 0
                A = v**2 - z**2 * S[0, 0]
                B = middle * v - z * stretch * C[:, 0] - z**2 * with_v
                D = middle**2 - H**2 - z**2 * of_e - 2 * z * stretch * with_e
                end = (B + side * np.sqrt(np.maximum(B**2 - A * D, 0.0))) / A
            found[:, column] = np.where(np.isfinite(H) & (A > 0) & (v > 0), end, side * np.inf)
        unbounded = ~np.isfinite(found).all(axis=1)
        found[unbounded | self.scale.unknown] = (-np.inf, np.inf)
        return found

    def p_of_hull(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values that are below a level exactly where the interval of that level leaves the value out."""
        chosen = np.arange(len(self.scale.moved))[index]
        slopes = ~self.scale.moved[chosen] & (np.asarray(values) == 0)
        found = np.empty(len(chosen))
        found[slopes] = self.b.p_of_hull(np.zeros(int(slopes.sum())), chosen[slopes].tolist())
        if not slopes.all():
            found[~slopes] = self._p(chosen[~slopes], np.asarray(values, dtype=np.float64)[~slopes])
        return found

    def _p(self, index: Floats, values: Floats) -> Floats:
        """Levels at which intervals of some coefficients end at a value each, by bisection of their logarithms."""
        levels = np.full(len(self.scale.moved), 0.5)

        def accepted(logarithms: Floats) -> Flags:
            levels[index] = np.exp(logarithms)
            left, right = self.intervals(levels)[index].T
            return np.asarray((left <= values) & (values <= right))

        low, high = np.full(len(index), math.log(_LEAST_P)), np.zeros(len(index))
        out = ~accepted(low)
        for _ in range(30):
            half = (low + high) / 2
            inside = accepted(half)
            low, high = np.where(inside, half, low), np.where(inside, high, half)
        return np.where(out, 0.0, np.exp(low))

    def joint(self, index: Sequence[int], values: Floats) -> float:
        """p-value of values of several coefficients at once: of b at the estimated v; Wald's where some have an e.

        1 where one of them is not identified.
        """
        own = list(index)
        if self.scale.unknown[own].any():
            return 1.0
        if len(own) == 1:
            return float(self.p_of_hull(values, own)[0])
        if not self.scale.moved[own].any():
            return self.b.joint(own, values * self.scale.v)
        distance = self.estimate[own] - values
        wald = distance @ scipy.linalg.pinvh(self.covariance[np.ix_(own, own)]) @ distance
        return float(stats.chi2.sf(wald, len(own)))


def without_noise(own: Summary, scale: Scale) -> Summary:
    """The summary of β of a table without noise: from that of b."""
    values = (np.array(list(own.params.values())) + scale.added) / scale.v
    return replace(own, params=dict(zip(own.params, values.tolist(), strict=True)))


def on_scale(own: Summary, score: Score, scale: Scale) -> Summary:
    """The summary of β, from that of b, its tests and the scale."""
    names = list(own.params)
    noise, sampling = score.covariance()
    std_error = np.sqrt(np.maximum(np.diagonal(noise + sampling), 0.0))
    beta = (score.estimate + scale.added) / scale.v
    with np.errstate(divide="ignore", invalid="ignore"):
        to_beta = np.column_stack([np.eye(len(names)), -beta, np.eye(len(names))]) / scale.v
        noise = to_beta @ np.block([[noise, scale.with_b], [scale.with_b.T, scale.noise]]) @ to_beta.T
        sampling = to_beta @ scipy.linalg.block_diag(sampling, scale.sampling) @ to_beta.T
        variance = np.maximum(np.diagonal(noise + sampling), 0.0)
        share = np.clip(np.diagonal(noise) / variance, 0.0, 1.0)

    tests = RatioTests(score, scale, std_error, noise + sampling)

    def labelled(values: Floats) -> dict[str, float]:
        return dict(zip(names, values.tolist(), strict=True))

    return replace(
        own,
        params=labelled(beta),
        bse=labelled(np.sqrt(variance)),
        pvalues=labelled(tests.p_of_hull(np.zeros(len(names)))),
        noise_share=labelled(share),
        _score=tests,
        _covariance=tests.covariance,
    )
