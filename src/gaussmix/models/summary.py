r"""Confidence intervals, tests and summary tables from a release: post-processing, which costs no privacy.

Symbols: W = RᵀR/k estimates G + σ²I; W_xx, w_xy, w_yy are its blocks for features x and response y (a column, or a
combination c of columns, whose noise has variance σ²|c|²), M = W_xx - σ²I, ω(θ) = w_yy - 2θᵀw_xy + θᵀW_xxθ.

Three targets:

``"ridge"``
    θ = (G_xx + σ²I)⁻¹ G_xy of this table. Rows of the sketch are independent normal, so that ordinary least squares on
    them has exact Student-t intervals with k - d degrees of freedom.
``"table"``
    θ = G_xx⁻¹ G_xy, the least-squares coefficients of this table: errors in variables with known variance. Under θ the
    score g = w_xy - Mθ has mean 0 and covariance V/k, V = W_xx ω + σ⁴θθᵀ (a Wishart's), and

    .. math:: T(\theta) = k\, g^\top V^{-1} g

    is nearly chi-square with d degrees of freedom: M is never inverted, and intervals hold where directions are weak.
    One coefficient: the least T over the others against one degree of freedom (Anderson and Rubin's idea). The set may
    be unbounded; then the coefficient is not identified at this budget.
``"population"``
    The coefficients of a linear model that the n rows were drawn from: s² M/n is added to the covariance of g, with s²
    the residual variance. n must be declared public.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import optimize, stats

from gaussmix import _validation as check

__all__ = ["Problem", "Summary", "Target", "summarise"]

Floats = NDArray[np.float64]
Target = Literal["ridge", "table", "population"]

TARGETS = ("ridge", "table", "population")
NOT_IDENTIFIED = "not identified at this budget"
_FAR = 1e4  # standard errors from the estimate at which a set that still goes on is taken to be unbounded


@dataclass(frozen=True)
class Problem:
    """One regression in encoded units, and how to report it.

    Attributes
    ----------
    W_xx, w_xy, w_yy : array (d, d), array (d,), float
        Blocks of RᵀR / k.
    response_noise : float
        Variance of the noise in the response.
    noise_variance : float
        σ² of the noise in every feature.
    sketch_size : int
        Rows k of the sketch; 0 for a second moment without noise.
    names : tuple of str
        Of the features.
    to_user : array (d, d), offset : array (d,)
        Coefficients in the user's units are ``to_user @ theta + offset``.
    groups : dict of str to tuple of int
        Features that belong together: levels of a category.
    total : float
        Sum of squares of the response about its mean (about 0 without an intercept), in encoded units, noise removed.
    response_name : str
        For the heading.
    surrogate : bool
        Whether coefficients are those of the quadratic surrogate of a logistic model.
    """

    W_xx: Floats
    w_xy: Floats
    w_yy: float
    response_noise: float
    noise_variance: float
    sketch_size: int
    names: tuple[str, ...]
    to_user: Floats
    offset: Floats
    groups: dict[str, tuple[int, ...]]
    total: float
    response_name: str
    surrogate: bool = False

    @cached_property
    def debiased(self) -> Floats:
        """W_xx - σ²I."""
        return self.W_xx - self.noise_variance * np.eye(len(self.W_xx))

    @cached_property
    def positive(self) -> Floats:
        """The same with its eigenvalues raised to at least a millionth of the largest."""
        values, vectors = scipy.linalg.eigh(self.debiased)
        return np.asarray((vectors * np.maximum(values, 1e-6 * max(values[-1], 1e-300))) @ vectors.T)

    def to_theta(self, coefficients: Floats) -> Floats:
        """Coefficients in the user's units back in encoded units."""
        return np.asarray(scipy.linalg.solve(self.to_user, coefficients - self.offset))

    def omega(self, theta: Floats) -> float:
        """ω(θ): the residual of the sketch, squared, a row."""
        return float(self.w_yy - 2 * theta @ self.w_xy + theta @ self.W_xx @ theta)

    def residual(self, theta: Floats) -> float:
        """Residual sum of squares of the table: ω less the noise, σ²|θ|² and the response's own."""
        return self.omega(theta) - self.noise_variance * float(theta @ theta) - self.response_noise

    @property
    def strength(self) -> float:
        """s: standard deviations by which the weakest direction stands above the noise floor."""
        if self.noise_variance == 0:
            return math.inf
        weakest = float(scipy.linalg.eigvalsh(self.W_xx)[0])
        return (1 - self.noise_variance / weakest) * math.sqrt(self.sketch_size / 2)


# ---------------------------------------------------------------------------------------------------------------
# The score test
@dataclass(frozen=True)
class _Score:
    """T(θ) and its gradient in coordinates φ with θ = start + scale φ, where T is about |φ|² near its root."""

    problem: Problem
    n: int | None
    start: Floats
    scale: Floats

    def value(self, theta: Floats) -> tuple[float, Floats]:
        """T(θ) and its gradient in θ."""
        p, sigma2 = self.problem, self.problem.noise_variance
        g = p.w_xy - p.debiased @ theta
        residual_of_sketch = p.w_xy - p.W_xx @ theta
        omega = max(p.omega(theta), 1e-300)
        V = W_term = np.zeros_like(p.W_xx)
        if p.sketch_size:
            V = (p.W_xx * omega + sigma2**2 * np.outer(theta, theta)) / p.sketch_size
            W_term = p.W_xx / p.sketch_size
        if self.n is not None:
            s2 = max(p.residual(theta), 1e-12 * omega) / max(self.n - len(theta), 1)
            V = V + s2 * p.positive
            W_term = W_term + p.positive / max(self.n - len(theta), 1)
        u = scipy.linalg.solve(V, g, assume_a="pos")
        gradient = -2 * p.debiased @ u + 2 * float(u @ W_term @ u) * residual_of_sketch
        if self.n is not None:
            gradient = gradient + 2 * sigma2 * float(u @ p.positive @ u) / max(self.n - len(theta), 1) * theta
        if p.sketch_size:
            gradient = gradient - 2 * sigma2**2 / p.sketch_size * float(u @ theta) * u
        return float(g @ u), gradient

    def profile(self, fixed: dict[int, float], warm: Floats | None = None) -> tuple[float, Floats]:
        """Least T with some combinations of coefficients held: θ_user[i] = b for each i: b."""
        p = self.problem
        rows = p.to_user[list(fixed)]
        target = np.array([b - p.offset[i] for i, b in fixed.items()])
        # θ = particular + free directions that leave the fixed ones alone, in coordinates scaled by the covariance.
        A = rows @ self.scale
        particular = self.start if warm is None else warm
        shift, *_ = np.linalg.lstsq(A, target - rows @ particular, rcond=None)
        particular = particular + self.scale @ shift
        free = scipy.linalg.null_space(A)
        if free.shape[1] == 0:
            return self.value(particular)[0], particular
        directions = self.scale @ free

        def objective(phi: Floats) -> tuple[float, Floats]:
            value, gradient = self.value(particular + directions @ phi)
            return value, directions.T @ gradient

        found = optimize.minimize(
            objective, np.zeros(free.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-4, "maxiter": 200}
        )
        return float(min(found.fun, objective(np.zeros(free.shape[1]))[0])), particular + directions @ found.x


def _covariance(problem: Problem, theta: Floats, n: int | None) -> tuple[Floats, Floats]:
    """Covariances of the errors-in-variables estimate: from the noise, and from sampling."""
    d, k, sigma2 = len(theta), problem.sketch_size, problem.noise_variance
    inverse = scipy.linalg.pinvh(problem.debiased)
    noise = np.zeros((d, d))
    if k:
        V = problem.W_xx * problem.omega(theta) + sigma2**2 * np.outer(theta, theta)
        noise = inverse @ V @ inverse / max(k - d, 1)
    sampling = np.zeros((d, d))
    if n is not None:
        s2 = max(problem.residual(theta), 0.0) / max(n - d, 1)
        sampling = s2 * scipy.linalg.pinvh(problem.positive)
    return noise, sampling


# ---------------------------------------------------------------------------------------------------------------
# Summaries
@dataclass(frozen=True)
class Summary:
    """Coefficients with standard errors, tests and intervals, in the manner of statsmodels.

    Attributes
    ----------
    target : {"ridge", "table", "population"}
        Which coefficients the intervals are for.
    names : tuple of str
    params, bse, tvalues, pvalues : arrays (d,)
        In the user's units. ``bse`` is a Wald standard error; for ``"table"`` and ``"population"`` p-values and
        intervals come from the score test and need not agree with it where directions are weak.
    noise_share : array (d,)
        Share of each squared standard error that is privacy noise; the rest is sampling.
    strength : float
        Standard deviations by which the weakest direction stands above the noise; Wald is fair above 12.
    r_squared : float
    """

    target: Target
    response_name: str
    names: tuple[str, ...]
    params: Floats
    bse: Floats
    pvalues: Floats
    noise_share: Floats
    strength: float
    r_squared: float
    _problem: Problem = field(repr=False)
    _score: _Score | None = field(repr=False)
    _covariance: Floats = field(repr=False)

    @property
    def tvalues(self) -> Floats:
        """Coefficients over standard errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.params / self.bse

    def cov_params(self) -> Floats:
        """Covariance of the coefficients in the user's units (Wald)."""
        return self._covariance

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals of level 1 - alpha, shape (d, 2); infinite ends where a coefficient is not identified."""
        alpha = check.in_interval(0, 1, alpha=alpha)
        d = len(self.params)
        if self._score is None:
            df = max(self._problem.sketch_size - d, 1)
            half = stats.t.isf(alpha / 2, df) * self.bse
            return np.column_stack([self.params - half, self.params + half])
        critical = float(stats.chi2.isf(alpha, 1))
        return np.array([_invert(self._score, i, self.params[i], self.bse[i], critical) for i in range(d)])

    def f_test(self, names: str | Sequence[str]) -> float:
        """p-value of the hypothesis that all named coefficients (or all levels of a column) are 0."""
        if isinstance(names, str):
            names = [names]
        indices: list[int] = []
        for name in names:
            if name in self._problem.groups:
                indices += self._problem.groups[name]
            elif name in self.names:
                indices.append(self.names.index(name))
            else:
                raise ValueError(f"{name!r} is no coefficient of this model; it has {', '.join(self.names)}.")
        if self._score is None:
            block = np.ix_(indices, indices)
            wald = self.params[indices] @ scipy.linalg.pinvh(self._covariance[block]) @ self.params[indices]
            df = max(self._problem.sketch_size - len(self.params), 1)
            return float(stats.f.sf(wald / len(indices), len(indices), df))
        value, _ = self._score.profile(dict.fromkeys(indices, 0.0))
        return float(stats.chi2.sf(value, len(indices)))

    def _rows(self, alpha: float) -> list[list[str]]:
        found = []
        for i, (low, high) in enumerate(self.conf_int(alpha)):
            known = math.isfinite(low) and math.isfinite(high)
            ends = [f"{low:.4g}", f"{high:.4g}"] if known else [NOT_IDENTIFIED, ""]
            share = f"{100 * self.noise_share[i]:.0f} %" if math.isfinite(self.noise_share[i]) else ""
            p = "<1e-4" if self.pvalues[i] < 1e-4 else f"{self.pvalues[i]:.3g}"
            numbers = [f"{self.params[i]:.4g}", f"{self.bse[i]:.3g}", p]
            found.append([self.names[i], *(numbers if known else ["", "", p]), *ends, share])
        return found

    def _heading(self, alpha: float) -> list[str]:
        return ["", "coef", "std err", "p", f"[{alpha / 2:g}", f"{1 - alpha / 2:g}]", "privacy noise"]

    def _notes(self, unidentified: bool) -> list[str]:
        words = {
            "ridge": "the coefficients that a ridge with the noise's penalty gives on this table (exact t)",
            "table": "the least-squares coefficients of this table (score test)",
            "population": "the coefficients of the population that the rows were drawn from (score test)",
        }
        notes = [
            f"Intervals are for {words[self.target]}.",
            f"R² = {self.r_squared:.3f}. The weakest direction is {self.strength:.1f} standard deviations above noise.",
        ]
        if self._problem.surrogate:
            notes[1:] = [
                "Coefficients are those of the quadratic surrogate, not of a logistic fit: trust signs and ratios."
            ]
        if unidentified:
            notes.append("Not identified: explain with fewer columns, merge rare levels, or spend a larger ε.")
        return notes

    def as_text(self, alpha: float = 0.05) -> str:
        """The table as text."""
        rows = [self._heading(alpha), *self._rows(alpha)]
        notes = self._notes(any(NOT_IDENTIFIED in row for row in rows))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        rule = "-" * len(lines[0])
        return "\n".join([f"{self.response_name}: {self.target}", rule, lines[0], rule, *lines[1:], rule, *notes])

    def as_html(self, alpha: float = 0.05) -> str:
        """The table as HTML."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self._heading(alpha))
        rows = self._rows(alpha)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        unidentified = any(NOT_IDENTIFIED in row for row in rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes(unidentified))
        caption = html.escape(f"{self.response_name}: {self.target}")
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def as_latex(self, alpha: float = 0.05) -> str:
        """The table as a LaTeX tabular."""
        heading = [_latex(cell) for cell in self._heading(alpha)]
        rows = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in self._rows(alpha)]
        columns = "l" + "r" * (len(heading) - 1)
        top = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", " & ".join(heading) + r" \\", r"\hline"]
        return "\n".join([*top, *rows, r"\hline", r"\end{tabular}"])

    def __str__(self) -> str:
        return self.as_text()


def _latex(text: str) -> str:
    for character in "&%_#$":
        text = text.replace(character, "\\" + character)
    return text


def _invert(score: _Score, index: int, estimate: float, bse: float, critical: float) -> tuple[float, float]:
    """Ends of {b : least T with the coefficient at b ≤ critical}; infinite where the set does not end."""
    if not (math.isfinite(bse) and math.isfinite(estimate)):
        return -math.inf, math.inf
    if bse == 0:
        return estimate, estimate
    ends = []
    for side in (-1.0, 1.0):

        def excess(step: float, side: float = side) -> float:
            return score.profile({index: estimate + side * step * bse})[0] - critical

        step = math.sqrt(critical)
        low, high = 0.0, step
        while excess(high) <= 0:
            low, high = high, 2 * high
            if high > _FAR:
                return -math.inf, math.inf
        # A set may go on beyond a gap: then it is unbounded all the same.
        if excess(_FAR) <= 0:
            return -math.inf, math.inf
        ends.append(estimate + side * bse * optimize.brentq(excess, low, high, xtol=1e-4, rtol=1e-6))
    return ends[0], ends[1]


def summarise(problem: Problem, *, target: Target = "table", n: int | None = None, pvalues: bool = True) -> Summary:
    """The summary of one regression.

    Parameters
    ----------
    problem : Problem
    target : {"ridge", "table", "population"}
    n : int, optional
        Rows of the table, declared public; needed for ``"population"``.
    pvalues : bool
        Whether to compute p-values, each of which is a search.
    """
    check.choice(TARGETS, target=target)
    if target == "population":
        if n is None:
            raise ValueError('target="population" needs n=, the number of rows, which must be public.')
        n = check.positive_integer(n=n)
    d, k = len(problem.w_xy), problem.sketch_size
    if target == "ridge":
        theta = scipy.linalg.solve(problem.W_xx, problem.w_xy, assume_a="pos")
        scale = problem.omega(theta) / max(k - d, 1) if k else 0.0
        noise, sampling, score = scale * np.linalg.inv(problem.W_xx), np.zeros((d, d)), None
    else:
        theta = scipy.linalg.pinvh(problem.debiased) @ problem.w_xy
        noise, sampling = _covariance(problem, theta, n if target == "population" else None)
        root = _root(noise + sampling)
        score = _Score(problem, n if target == "population" else None, theta, root)
    T = problem.to_user
    covariance = T @ (noise + sampling) @ T.T
    params = T @ theta + problem.offset
    variance = np.maximum(np.diagonal(covariance), 0.0)
    bse = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.diagonal(T @ noise @ T.T) / variance
    p = np.full(d, np.nan)
    if score is None and k:
        p = 2 * stats.t.sf(np.abs(params / bse), max(k - d, 1))
    elif score is not None and pvalues and (k or n):
        p = np.array([stats.chi2.sf(score.profile({i: 0.0})[0], 1) for i in range(d)])
    explained = 1 - problem.residual(theta) / problem.total if problem.total > 0 else math.nan
    return Summary(
        target=target,
        response_name=problem.response_name,
        names=problem.names,
        params=params,
        bse=bse,
        pvalues=p,
        noise_share=share,
        strength=problem.strength,
        r_squared=explained,
        _problem=problem,
        _score=score,
        _covariance=covariance,
    )


def _root(covariance: Floats) -> Floats:
    """A square root with no zero direction, for scaling a search."""
    values, vectors = scipy.linalg.eigh(covariance)
    floor = 1e-12 * max(float(np.abs(values).max()), 1e-300)
    return np.asarray(vectors * np.sqrt(np.maximum(np.abs(values), floor)))
