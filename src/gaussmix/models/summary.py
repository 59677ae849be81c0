"""Coefficients with standard errors, tests and intervals, in the manner of statsmodels, from a release alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg
from scipy import stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models import rendering
from gaussmix.models.problem import Problem
from gaussmix.models.score import Score, invert, score_of, wald_covariance

__all__ = ["ESTIMANDS", "Estimand", "Summary", "summarise"]

Estimand = Literal["ridge", "table", "population"]
ESTIMANDS: tuple[Estimand, ...] = ("ridge", "table", "population")


@dataclass(frozen=True)
class Summary:
    """The summary of one regression. What is labelled has the coefficients' names as keys, in order.

    Attributes
    ----------
    estimand : {"ridge", "table", "population"}
        Which coefficients the intervals are for.
    response_name : str
        What is explained.
    params, bse, pvalues : dict of str to float
        In the user's units. ``bse`` is a Wald standard error; for ``"table"`` and ``"population"`` p-values and
        intervals come from the score test and need not agree with it where directions are weak.
    noise_share : dict of str to float
        Share of each squared standard error that is privacy noise; the rest is sampling.
    strength : float
        Standard deviations by which the weakest direction stands above the noise; Wald is fair above 12.
    rsquared : float
        Within [0, 1]: noise can take the plain value out of it.
    noise_dominates : bool
        Whether it did, or the response's variance drowned in noise: then ``rsquared`` says nothing.
    nobs : float
        Rows in the table, as the release shows them: noisy. NaN without an intercept column.
    """

    estimand: Estimand
    response_name: str
    params: dict[str, float]
    bse: dict[str, float]
    pvalues: dict[str, float]
    noise_share: dict[str, float]
    strength: float
    rsquared: float
    noise_dominates: bool
    nobs: float
    surrogate: bool
    _problem: Problem = field(repr=False)
    _score: Score | None = field(repr=False)
    _covariance: Floats = field(repr=False)

    @property
    def tvalues(self) -> dict[str, float]:
        """Coefficients over standard errors."""
        return {name: value / self.bse[name] if self.bse[name] else math.inf for name, value in self.params.items()}

    def cov_params(self) -> Floats:
        """Covariance of the coefficients in the user's units (Wald)."""
        return self._covariance

    def conf_int(self, alpha: float = 0.05) -> dict[str, tuple[float, float]]:
        """Intervals of level 1 - alpha; infinite ends where a coefficient is not identified."""
        alpha = check.in_interval(0, 1, alpha=alpha)
        if self._score is None:
            t = float(stats.t.isf(alpha / 2, self._degrees_of_freedom))
            return {name: (b - t * self.bse[name], b + t * self.bse[name]) for name, b in self.params.items()}
        critical = float(stats.chi2.isf(alpha, 1))
        return {
            name: invert(self._score, index, value, self.bse[name], critical)
            for index, (name, value) in enumerate(self.params.items())
        }

    def test(self, name: str, value: float) -> float:
        """p-value of the hypothesis that one coefficient has a value, by the test that the intervals invert."""
        index = self._indices([name])[0]
        if self._score is None:
            t = (self.params[name] - value) / self.bse[name]
            return float(2 * stats.t.sf(abs(t), self._degrees_of_freedom))
        return float(stats.chi2.sf(self._score.profile({index: value})[0], 1))

    def f_test(self, names: str | Sequence[str]) -> float:
        """p-value of the hypothesis that all named coefficients (or all levels of a column) are 0."""
        indices = self._indices([names] if isinstance(names, str) else names)
        if self._score is None:
            params, block = np.array(list(self.params.values()))[indices], np.ix_(indices, indices)
            wald = params @ scipy.linalg.pinvh(self._covariance[block]) @ params
            return float(stats.f.sf(wald / len(indices), len(indices), self._degrees_of_freedom))
        value, _ = self._score.profile(dict.fromkeys(indices, 0.0))
        return float(stats.chi2.sf(value, len(indices)))

    @property
    def _degrees_of_freedom(self) -> int:
        return max(self._problem.sketch_size - len(self.params), 1)

    def _indices(self, names: Sequence[str]) -> list[int]:
        """Indices of coefficients, or of all coefficients of a column."""
        found: list[int] = []
        order = list(self.params)
        for name in names:
            if name in self._problem.groups:
                found += self._problem.groups[name]
            elif name in self.params:
                found.append(order.index(name))
            else:
                raise ArgumentError(f"{name!r} is no coefficient of this model; it has {', '.join(order)}.")
        return found

    def as_text(self, alpha: float = 0.05) -> str:
        """The table as text."""
        return rendering.as_text(self, alpha)

    def as_html(self, alpha: float = 0.05) -> str:
        """The table as HTML."""
        return rendering.as_html(self, alpha)

    def as_latex(self, alpha: float = 0.05) -> str:
        """The table as a LaTeX tabular."""
        return rendering.as_latex(self, alpha)

    def __str__(self) -> str:
        return self.as_text()


def summarise(
    problem: Problem, *, estimand: Estimand = "table", n_rows: int | None = None, pvalues: bool = True
) -> Summary:
    """The summary of one regression.

    Parameters
    ----------
    problem : Problem
    estimand : {"ridge", "table", "population"}
    n_rows : int, optional
        Rows of the table, declared public; needed for ``"population"``.
    pvalues : bool
        Whether to compute p-values, each of which is a search.
    """
    check.choice(ESTIMANDS, estimand=estimand)
    rows = _rows_of_sample(estimand, n_rows)
    d, k = len(problem.w_xy), problem.sketch_size
    score = None
    if estimand == "ridge":
        theta = scipy.linalg.solve(problem.W_xx, problem.w_xy, assume_a="pos")
        scale = problem.omega(theta) / max(k - d, 1) if k else 0.0
        noise, sampling = scale * np.linalg.inv(problem.W_xx), np.zeros((d, d))
    else:
        theta = scipy.linalg.pinvh(problem.debiased) @ problem.w_xy
        noise, sampling = wald_covariance(problem, theta, rows)
        score = score_of(problem, theta, noise + sampling, rows)
    T = problem.to_user
    covariance, params = T @ (noise + sampling) @ T.T, T @ theta + problem.offset
    variance = np.maximum(np.diagonal(covariance), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.diagonal(T @ noise @ T.T) / variance
        p = np.full(d, np.nan)
        if score is None and k:
            p = 2 * stats.t.sf(np.abs(params / np.sqrt(variance)), max(k - d, 1))
        elif score is not None and pvalues and (k or rows):
            p = np.array([stats.chi2.sf(score.profile({i: 0.0})[0], 1) for i in range(d)])
    explained, dominates = _explained(problem, theta)
    return Summary(
        estimand=estimand,
        response_name=problem.response_name,
        params=_labelled(problem.names, params),
        bse=_labelled(problem.names, np.sqrt(variance)),
        pvalues=_labelled(problem.names, p),
        noise_share=_labelled(problem.names, share),
        strength=problem.strength,
        rsquared=explained,
        noise_dominates=dominates,
        nobs=problem.nobs,
        surrogate=problem.surrogate,
        _problem=problem,
        _score=score,
        _covariance=covariance,
    )


def _rows_of_sample(estimand: Estimand, n_rows: int | None) -> int | None:
    """How many rows the population was sampled by, where that matters."""
    if estimand != "population":
        return None
    if n_rows is None:
        raise ArgumentError('estimand="population" needs n_rows=, the number of rows, which must be public.')
    return check.positive_integer(n_rows=n_rows)


def _explained(problem: Problem, theta: Floats) -> tuple[float, bool]:
    """R² within [0, 1], and whether noise took it out of there: then it says nothing."""
    if not problem.total > 0:
        return 0.0, True
    plain = 1 - problem.residual(theta) / problem.total
    within = min(max(plain, 0.0), 1.0)
    return within, not abs(plain - within) <= 1e-9  # rounding alone may leave [0, 1]


def _labelled(names: Sequence[str], values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
