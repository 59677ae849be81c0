r"""Slopes of log E[y | x] from second moments: rate ratios of counts, from least squares and means of groups.

Let E[y | x, d] = exp(β₀ + β_d + xᵀβ), d the level of a category and x, given d, normal with means m_d and one
covariance Σ. By Stein's lemma the covariance of x and y within levels is Σβ E[y], and the mean of y in level d is
exp(β₀ + β_d + m_dᵀβ + βᵀΣβ/2). With b least squares of y on x and the levels, ȳ the mean of y, ȳ_d that of level d and
r the level that others are measured from (b_r = β_r = 0), where ȳ_d - ȳ_r = b_d + (m_d - m_r)ᵀb,

.. math:: \beta = \frac b{\bar y} ,\qquad
    \beta_d = \frac{b_d}{\bar y} + c\Bigl(\frac{\bar y_d}{\bar y}\Bigr) - c\Bigl(\frac{\bar y_r}{\bar y}\Bigr) ,\qquad
    \beta_0 = \frac{b_0}{\bar y} + \log\bar y - 1 + c\Bigl(\frac{\bar y_r}{\bar y}\Bigr)
            - \frac{b^\top\Sigma b}{2\bar y^2} ,\qquad c(t) = \log t - t + 1 .

Exact, whatever the law of y about its mean; a single 0/1 column has the ratio of its two means. With several categories
each has its own c, and the intercept all of them: no longer exact, but right to first order in what they share. Numbers
that are not normal within levels have the first-order value. All are β_j = (b_j + e_j)/v with v = ȳ, and their
distribution is that of :mod:`gaussmix.models.families`.

The noise's covariances: means and sums of squares move with the noise E by sums of forms uᵀEt, and

.. math:: \mathrm{Cov}(u^\top E t, s^\top E w) = (u^\top N s)(t^\top N w) + (u^\top N w)(t^\top N s) :

ȳ by 1ᵀE(y - ȳ)/n, ȳ_d by dᵀE(y - ȳ_d)/n_d, b_j by w_jᵀ(Ea)_x, and bᵀΣb, what numbers explain beyond levels, by
(a_dᵀEa_d - aᵀEa - bᵀΣb·1ᵀE1)/n, a and a_d what all features and levels alone leave of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Unpack

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.columns import Numeric
from gaussmix.data.schema import Schema
from gaussmix.data.terms import Block
from gaussmix.errors import ArgumentError
from gaussmix.models.design import (
    ENOUGH,
    Coding,
    Collapse,
    Problem,
    Reference,
    Response,
    is_marked,
    part_name,
    sources_of,
)
from gaussmix.models.families import Family, Registration, Scale
from gaussmix.models.inference import Flags, LeastSquares, residuals
from gaussmix.models.linear import feature_indices, linear_values
from gaussmix.models.results import Asked, FittedModel, ResultTable, ratio_table
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.transcript import Transcript

__all__ = [
    "POISSON",
    "REGISTRATION",
    "Design",
    "Errors",
    "PoissonModel",
    "fit_poisson",
    "form_covariance",
    "poisson_scale",
]


@dataclass(frozen=True, eq=False)
class Design:
    """Features and response in the user's units, as combinations of the m columns of a problem's second moment.

    Attributes
    ----------
    features : array (d, m)
        The constant first.
    response : array (m,)
    baselines : array (g, m)
        Of every category, and every true/false: 1 in rows that have none of its levels among the features.
    group : array of int (d,)
        Which of them a level is measured from; -1 for a number and the constant.
    """

    features: Floats
    response: Floats
    baselines: Floats
    group: Floats

    @classmethod
    def of(cls, coding: Coding, centre: float, scale: float, left_out: Sequence[int] = ()) -> Design:
        """From the coding of a problem with an intercept, and the units of the response.

        Levels and true/false are known by their declared kinds. Levels that were left out belong to the baseline.
        """
        d = len(coding.names)
        units = coding.units.with_response("response", centre, scale)
        rows = units.rows(range(d + 1))
        features, of_y = rows[:d], rows[d]
        baselines: list[Floats] = []
        group = np.full(d, -1)
        for indices in coding.groups.values():
            own = [i for i in indices if i not in left_out]
            if own and coding.columns[own[0]].kind in ("level", "boolean"):
                group[own] = len(baselines)
                baselines.append(units.one - features[own].sum(axis=0))
        return cls(features, of_y, np.array(baselines).reshape(-1, d + 1), group)

    @property
    def numbers(self) -> Flags:
        """Which features are numbers."""
        found = np.asarray(self.group < 0)
        found[0] = False
        return found


@dataclass(frozen=True, eq=False)
class Errors:
    """How coefficients move with the noise E: b_j by w_jᵀEa.

    Attributes
    ----------
    w : array (m, d)
    a : array (m,)
        What the model leaves of the response, in encoded units.
    covariance : array (d, d)
        Of b.
    """

    w: Floats
    a: Floats
    covariance: Floats

    @classmethod
    def of(cls, problem: Problem, fit: LeastSquares) -> Errors:
        """Return the errors of least squares in original units."""
        w = problem.to_user @ fit.inverse
        covariance = problem.to_user @ fit.noise @ problem.to_user.T
        return cls(np.vstack([w.T, np.zeros(len(w))]), fit.a, covariance)


def form_covariance(noisy: NoisyMoment, left: tuple[Floats, Floats], right: tuple[Floats, Floats]) -> Floats:
    """Covariances of uᵀEt over pairs (u, t), rows of ``left``, with those of ``right``."""
    (U, T), (S, W), Q = left, right, noisy.shape
    return np.asarray((U @ Q @ S.T) * (T @ Q @ W.T) + (U @ Q @ W.T) * (T @ Q @ S.T))


def poisson_scale(
    noisy: NoisyMoment, design: Design, b: Floats, errors: Errors | None = None, *, response: str
) -> Scale:
    """Return ȳ and e of coefficients b in original units, with their errors where those of b are given.

    e is NaN, and the coefficient not identified, where rows or total of a level, or of its reference level, are less
    than five standard errors from 0.
    """
    one, y, d = design.features[0], design.response, len(b)
    groups = np.vstack([design.features[design.group >= 0], design.baselines])
    rows, means, told = _means(noisy, np.vstack([one, groups]), one, y)
    if not told[0]:
        raise ArgumentError(
            f"poisson divides by the mean of {response!r}, whose estimate is less than {ENOUGH:g} standard errors "
            "above 0: spend a larger ε, or declare a smaller upper bound for it."
        )
    n, mean = rows[0], means[0]
    forms = [np.vstack([one, groups]), (y - np.outer(means, one)) / rows[:, np.newaxis]]
    # Which of the forms belong to levels and to what they are measured from.
    levels = np.flatnonzero(design.group >= 0)
    own = 1 + np.arange(len(levels))
    base = 1 + len(levels) + np.arange(len(design.baselines))
    from_ = base[design.group[levels]]
    shift = np.log(means / mean) - means / mean + 1  # c
    added, to = np.zeros(d), np.zeros((1 + d, len(means)))
    added[levels] = mean * (shift[own] - shift[from_])
    to[0, 0] = 1.0
    to[1 + levels, 0] = np.log(means[own] / means[from_])
    to[1 + levels, own] = mean / means[own] - 1
    to[1 + levels, from_] = 1 - mean / means[from_]
    explained, of_explained, to_explained = _explained(noisy, design, b, errors, n)
    added[0] = mean * (np.log(mean) - 1 + shift[base].sum()) - explained / (2 * mean)
    to[1, 0] = np.log(mean) + np.log(means[base] / mean).sum() + explained / (2 * mean**2)
    to[1, base] = mean / means[base] - 1
    unknown = np.zeros(d, dtype=bool)
    unknown[levels] = ~(told[own] & told[from_])
    unknown[0] = not told[base].all()
    added = np.where(unknown, np.nan, added)
    nothing = np.zeros((1 + d, 1 + d))
    if errors is None:
        return Scale(mean, added, nothing, nothing, np.zeros((d, 1 + d)))
    to = np.column_stack([to, np.outer(np.arange(1 + d) == 1, -to_explained / (2 * mean))])
    pairs = (np.vstack([forms[0], of_explained[0]]), np.vstack([forms[1], of_explained[1]]))
    noise = to @ form_covariance(noisy, pairs, pairs) @ to.T
    with_b = form_covariance(noisy, (errors.w.T, np.tile(errors.a, (d, 1))), pairs) @ to.T
    return Scale(mean, added, noise, nothing, with_b)


def _means(noisy: NoisyMoment, groups: Floats, one: Floats, y: Floats) -> tuple[Floats, Floats, Flags]:
    """Rows and mean of y of all groups, and whether rows and total are told from 0; 1 and ȳ where they are not."""
    rows, totals = groups @ noisy.moment @ one, groups @ noisy.moment @ y
    told = np.ones(len(groups), dtype=bool)
    for values, t in ((rows, one), (totals, y)):
        pairs = (groups, np.tile(t, (len(groups), 1)))
        std_error = np.sqrt(np.diagonal(form_covariance(noisy, pairs, pairs)))
        told &= (values > 0) & (values >= ENOUGH * std_error)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(told, totals / rows, totals[0] / rows[0])
    return np.where(told, rows, 1.0), means, told


def _explained(
    noisy: NoisyMoment, design: Design, b: Floats, errors: Errors | None, n: float
) -> tuple[float, tuple[Floats, Floats], Floats]:
    """bᵀΣb of the numbers, the forms that it moves by, and how.

    Coefficients that were fitted to noise explain tr(Σ Cov b) too much; that is taken off.
    """
    numbers, one = design.numbers, design.features[0]
    left = residuals(noisy, np.vstack([design.features[numbers], design.response]), design.features[~numbers])
    C, own = left.moment[:-1, :-1] / n, b[numbers]
    spent = 0.0 if errors is None else float(np.sum(C * errors.covariance[np.ix_(numbers, numbers)]))
    found = max(float(own @ C @ own) - spent, 0.0) if numbers.any() else 0.0
    if errors is None or not numbers.any():
        nothing = np.empty((0, len(one)))
        return found, (nothing, nothing), np.empty(0)
    scale = design.response[-1]
    vectors = np.vstack([left.vectors[-1], scale * errors.a, one])
    return found, (vectors, vectors), np.array([1.0, -1.0, -found]) / n


def _scale(problem: Problem, fit: LeastSquares) -> Scale:
    """Return v and e of a problem that was made from a schema."""
    if problem.coding is None:
        raise ArgumentError("poisson needs the coding of its predictors.")
    design = Design.of(problem.coding, float(problem.offset[0]), problem.scale, fit.left_out)
    b = problem.to_user @ fit.theta + problem.offset
    return poisson_scale(problem.noisy, design, b, Errors.of(problem, fit), response=problem.response_name)


POISSON = Family(
    name="poisson",
    link="log",
    intervals_are_for=MappingProxyType({"table": "the method-of-moments log-linear coefficients of this table"}),
    refusal="poisson has intervals for the table only: the sampling error of counts is not a function of second "
    'moments. Leave n_rows out and use estimand="table".',
    notes=(
        "They equal the coefficients of Poisson regression if numeric predictors are normal within levels; strong "
        "effects of skewed predictors differ from maximum likelihood by more than these intervals show.",
    ),
    clipping_note="For skewed counts clipping biases rate ratios; passes=1 avoids clipping.",
    unidentified="rows or total of the level, of its reference level or of the table are not clearly above 0",
    ratio="rate ratio",
    scale=_scale,
)
"""Logarithms of means by moments."""


@dataclass(frozen=True, repr=False)
class PoissonModel(FittedModel):
    """The logarithm of a number's mean, linear in other columns, fitted from a release by moments.

    Coefficients are those of Poisson regression where numbers are normal within levels.
    ``"table"`` is the only estimand of :meth:`summary`.

    Attributes
    ----------
    response : str
        A count, or another number from 0 up.
    coef : dict of str to float
        As in :class:`gaussmix.models.linear.RegressionModel`, for the logarithm of the mean; levels of a category are
        measured from its first.
    intercept : float
    certificate : Certificate or None
        What was spent on the release.
    """

    response: str
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    certificate: Certificate | None = field(default=None, compare=False)

    @property
    def _width(self) -> int:
        return len(self.coef)

    def rate_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Factors by which features multiply the mean: term, rate.ratio, conf.low, conf.high, p.value.

        Exp of :meth:`summary`, whose options it takes: per unit of a number, for true against false, for a level
        against the reference level. A p-value is below α exactly where the interval of level 1 - α excludes 1. NaN
        where a coefficient is not identified.
        """
        return ratio_table(self.summary(**options), alpha)

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Least squares of the response as an inference problem."""
        statistic, response = self.statistic, _count(self.statistic.schema, self.response)
        return Problem.of(
            statistic.noisy, statistic.schema, response, list(self.coef), collapse=collapse, reference=reference
        )

    def predict(self, data: Any) -> Floats:
        """Means for a table with the model's columns, clipped to the response's declared bounds.

        Values are clipped as when the release was made.
        """
        schema = self.statistic.schema
        response = schema.columns[self.response]
        with np.errstate(over="ignore"):
            found = np.exp(linear_values(schema, self.coef, self.intercept, data))
        return np.clip(found, *((response.lower, response.upper) if isinstance(response, Numeric) else (0.0, np.inf)))


def fit_poisson(statistic: Transcript, response: str, predictors: Sequence[str] | None) -> PoissonModel:
    """The logarithm of a number's mean on other columns, from least squares and means of levels.

    Coefficients that predict are made from those of :meth:`Release.ols`; a level whose mean is not told from 0 has
    the first-order value, b/ȳ.
    """
    schema = statistic.schema
    response = part_name(schema, response)
    coded = _count(schema, response)
    features = feature_indices(schema, [response], predictors)
    _check_features(schema, features)
    theta = statistic.solve(features, coded.vector[:, np.newaxis])[:, 0]
    slopes, constant = schema.units.coefficients(features, theta, centre=coded.centre, scale=coded.scale)
    coding = Coding.of(schema, sources_of(schema, list(slopes)), noisy=statistic.noisy)
    b = np.array([slopes[column.name] for column in coding.columns[1:]])
    for source, (name, _) in coding.references.items():
        b[[index - 1 for index in coding.groups[source]]] -= slopes[name]
        constant += slopes[name]
    noisy = statistic.predictive.mapped(np.vstack([coding.rows, coded.vector]))
    design = Design.of(coding, coded.centre, coded.scale)
    scale = poisson_scale(noisy, design, np.append(constant, b), response=response)
    intercept, *found = ((np.append(constant, b) + np.nan_to_num(scale.added)) / scale.v).tolist()
    return PoissonModel(response, dict(zip(coding.names[1:], found, strict=True)), intercept, statistic)


def _count(schema: Schema, response: str) -> Response:
    """A number from 0 up as a response."""
    column = schema.columns.get(response)
    if not schema.intercept:
        raise ArgumentError("poisson needs a release with an intercept column.")
    if not isinstance(column, Numeric) or is_marked(schema, response):
        raise ArgumentError(
            "poisson needs a count, or another number with a lower bound of 0 or above and no missing values: "
            f"{response!r} is not declared as one. Use logit for boolean columns and levels, ols for other numbers."
        )
    if column.lower < 0:
        raise ArgumentError(
            f"poisson needs a response with a lower bound of 0 or above: {response!r} is declared from "
            f"{column.lower:g}. Use ols; or declare a lower bound of 0 in another release if no value is below it."
        )
    return Response.of(schema, response, POISSON)


def _check_features(schema: Schema, features: list[int]) -> None:
    """Refuse terms: least squares has a square, or a product, wherever the logarithm of the mean is a straight line."""
    sources = dict.fromkeys(schema.encoded[index].source for index in features)
    refused = [name for name in sources if name and (isinstance(schema.parts[name], Block) or is_marked(schema, name))]
    if refused:
        raise ArgumentError(
            f"poisson takes columns as predictors, no powers, products or splines, and no columns with missing values: "
            f"leave {', '.join(map(repr, refused))} out of predictors=."
        )


REGISTRATION = Registration(
    POISSON,
    fit_poisson,
    help="""Rate ratios of the column RESPONSE of a release, a count or another number from 0 up, by moments.

    Near Poisson regression where numbers are normal within levels; intervals are for the table.
    """,
)
