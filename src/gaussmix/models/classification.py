r"""Linear discriminants from second moments: slopes on the scale of log odds, from least squares on a 0/1 response.

Let b₀ + xb be least squares of an indicator, π₁ its mean, π₀ = 1 - π₁, v its residual variance and R² = 1 - v/(π₀π₁).
The total covariance of x is the one within classes plus π₀π₁ΔΔᵀ, Δ = μ₁ - μ₀, so that Fisher's discriminant S⁻¹Δ, S
the covariance within classes, is b times a number:

.. math:: \beta = \frac{b}{\pi_0\pi_1(1 - R^2)} = \frac b v ,\qquad
    \beta_0 = \log\frac{\pi_1}{\pi_0} - \frac{(\mu_0 + \mu_1)^\top\beta}{2}
            = \frac{b_0 - 1/2}{v} + h(\pi_1),\quad h(\pi) = \log\frac{\pi}{1 - \pi} + \frac{1 - 2\pi}{2\pi(1 - \pi)} .

β₀ + xβ are the log odds where x is normal within classes with one covariance, and near them where R² is small. In the
form of :mod:`gaussmix.models.families`, β_j = (b_j + e_j)/v with e = 0 but for the intercept, where e = h(π₁)v - 1/2.
The noise E moves b_j by w_jᵀ(Ea)_x, a = (-θ, 1), and v by aᵀEa/(4n) - v dn/n.

Several classes from second moments: softmax scores by the linear discriminant with one covariance.

Let ŷ_k(x) be least squares of the indicator of class k, π the shares and R the residual covariance of the indicators.
The covariance of x within classes is W = T - DΠ⁻¹Dᵀ, T the total one, D that of x with the indicators, Π = diag(π), so
that with B = T⁻¹D and Q = (R + ππᵀ)⁻¹

.. math:: W^{-1}(\mu_k - \mu) = B Q e_k ,\qquad (\mu_j - \mu)^\top W^{-1}(\mu_k - \mu) = Q_{jk} - [j = k]/\pi_k ,

and the scores of the discriminant are, up to a number that all classes share,

.. math:: s_k(x) = (Q\,\hat y(x))_k + h_k ,\qquad h_k = \log\pi_k + \frac1{2\pi_k} - \frac{Q_{kk}}2 .

The log odds of k against r are least squares of one combination of indicators, c = Q(e_k - e_r): divided by its size
c̄ = c v with v = 1/(cᵀRc) they are b/v, v the residual variance of c̄ᵀy, as for two classes
(:mod:`gaussmix.models.classification`). Intervals take c̄ as known, and have the noise of b and v.

Private Newton steps on the likelihood of two classes, from a release's start and in its metric; every function here
reads declared constants and noisy outputs, never rows. The start is the discriminant of the release's passes, θ₀. Rows
are mapped by E, which makes the second moments of all columns but the label's about 1, as between passes, so that the
Hessian Σ p(1 - p) z zᵀ of the likelihood is near n v I, v the mean of p(1 - p). A step asks for the sum of (y - p) z,
each no longer than

.. math:: b = \kappa \sqrt{v\,d} ,\quad \kappa = \max(1.2, \min(0.03x, 3), 0.1\sqrt x),\; x = \hat n\mu/d ,

d columns, and for the sum of p(1 - p). With noise of deviation σ = b/μ_t in each of the d numbers of g,

.. math:: \theta_{t+1} = \theta_t + c\,\frac{E^\top g}{\hat n v} ,\quad
    c = \frac{\tau^2}{\tau^2 + \sigma^2} ,\; \tau^2 = \max(0, \|g\|^2/d - \sigma^2) ,

as much of it as stands out of its noise. The v that g is divided by is released with it; that in b is the one before,
at first that of the discriminant. Noise in the coefficients costs about κ²d²/(2μ_t²n²) in the log-loss, d times less
than that of a Gram matrix: hence the likelihood is within reach where the release is good, and steps are worth their
budget from x of about 20 on (docs/inference.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Unpack

import numpy as np
import scipy.linalg
from scipy import special

from gaussmix._types import Floats, Rows
from gaussmix.data.columns import Boolean, Categorical, Column
from gaussmix.data.schema import Schema
from gaussmix.data.terms import Block
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Collapse, Label, Problem, Reference, Response, column_of, part_name
from gaussmix.models.families import Family, Scale
from gaussmix.models.inference import LeastSquares
from gaussmix.models.linear import feature_indices, linear_values
from gaussmix.models.results import (
    Asked,
    FittedClasses,
    FittedModel,
    ResultTable,
    Summary,
    ratio_table,
    summarise,
)
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import NoisyMoment
from gaussmix.releases.preconditioning import FLOOR, StepOutput, StepRequest, clean, label_of
from gaussmix.releases.transcript import Transcript

__all__ = [
    "DISCRIMINANT",
    "WORTH_STEPS",
    "ClassificationModel",
    "Contrast",
    "Discriminant",
    "MulticlassModel",
    "Softmax",
    "class_forms",
    "contrast_family",
    "discriminant_of",
    "discriminant_scale",
    "estimate_discriminant",
    "estimate_softmax",
    "fit_classes",
    "fit_classification",
    "labels_of",
    "likelihood_coefficients",
    "place_of",
    "plan_step",
    "quadratic_covariance",
    "shift",
    "two_classes",
]


_LEAST_LEFT = 1e-9  # share of the variance that is never explained: a table that is separated has no finite odds


@dataclass(frozen=True)
class Discriminant:
    """What turns least squares on a 0/1 response into log odds.

    Attributes
    ----------
    share : float
        π₁, of the second class.
    explained : float
        R² of the coefficients that are turned.
    centred : bool
        Whether there is an intercept; without one classes are taken to lie opposite to each other, equally frequent.
    """

    share: float
    explained: float
    centred: bool = True

    @property
    def factor(self) -> float:
        """1/v, v = π₀π₁(1 - R²)."""
        return 1 / (self.share * (1 - self.share) * (1 - self.explained))

    def intercept(self, b0: float) -> float:
        """β₀ from the intercept of the 0/1 response."""
        return (b0 - 0.5) * self.factor + shift(self.share) if self.centred else 0.0


def shift(share: float) -> float:
    """h(π) = log(π/(1 - π)) + (1 - 2π)/(2π(1 - π))."""
    return math.log(share / (1 - share)) + (1 - 2 * share) / (2 * share * (1 - share))


def quadratic_covariance(noisy: NoisyMoment, U: Floats) -> Floats:
    """Covariance of uᵀMu over the columns u of U: 2(uᵀNu')²."""
    return np.asarray(2 * (U.T @ noisy.shape @ U) ** 2)


def class_forms(intercept: Floats | None, response: Floats) -> Floats:
    """Combinations of columns, one a column, whose squares add up to rows: of the classes, or without an intercept all.

    With y = ±1 the rows of the classes are Σ((1 - y)/2)² and Σ((1 + y)/2)².
    """
    if intercept is None:
        return response[:, np.newaxis]
    return np.column_stack([(intercept - response) / 2, (intercept + response) / 2])


def estimate_discriminant(
    noisy: NoisyMoment, intercept: Floats | None, response: Floats, a: Floats, *, residual: float
) -> Discriminant:
    """π₁ and R² from a release, noise taken out, shrunk where it dominates.

    With s the standard deviation that noise gives a number, π₁ is replaced by its mean under a normal law of deviation
    s that is cut to (0, 1): noise alone makes classes equally frequent. R², cut likewise, is also multiplied by
    R⁴/(R⁴ + s²): noise alone explains nothing.

    Parameters
    ----------
    noisy : NoisyMoment
    intercept : array (m,) or None
        The combination of columns that is 1 in every row.
    response : array (m,)
        The one that is -1 and 1.
    a : array (m,)
        The residual of the response: Σ(a·r)² has the noise of ``residual``.
    residual : float
        What is known of it: aᵀMa, but for the optimism of coefficients that were fitted to the noise of M.
    """
    forms = np.column_stack([class_forms(intercept, response), a])
    values = np.sum(forms * (noisy.moment @ forms), axis=0)
    covariance = quadratic_covariance(noisy, forms)
    n, share = max(float(values[:-1].sum()), 1.0), 0.5
    to_share = np.zeros(len(values))
    if intercept is not None:
        to_share = np.array([-values[1], values[0], 0.0]) / n**2
        share = _within_unit(float(values[1]) / n, _std_error(covariance, to_share), least=0.5 / n)
    whole = share * (1 - share)
    left = residual / (4 * n * whole)
    to_left = np.append(np.full(len(values) - 1, -left / n), 1 / (4 * n * whole))
    to_left -= left * (1 - 2 * share) / whole * to_share  # d log(π₀π₁) = (1 - 2π₁) dπ₁/(π₀π₁)
    return Discriminant(share, _explained(1 - left, _std_error(covariance, to_left)), intercept is not None)


def _explained(plain: float, std_error: float) -> float:
    """R² within [0, 1), shrunk towards 0 by its noise."""
    within = 1 - _within_unit(1 - plain, std_error, least=_LEAST_LEFT, most=1.0)
    return within**3 / (within**2 + std_error**2) if within else 0.0


def _within_unit(value: float, std_error: float, *, least: float, most: float | None = None) -> float:
    """Mean of N(value, std_error²) cut to (0, 1); the value itself without noise, between ``least`` and 1 less it."""
    most = 1 - least if most is None else most
    if std_error <= 1e-12:
        return min(max(value, least), most)
    low, high = -value / std_error, (1 - value) / std_error
    # The ratio of a difference of densities to one of tails: logarithms, for values far outside.
    if low > 0:
        mass = special.log_ndtr(-low) + np.log1p(-np.exp(special.log_ndtr(-high) - special.log_ndtr(-low)))
    else:
        mass = special.log_ndtr(high) + np.log1p(-np.exp(special.log_ndtr(low) - special.log_ndtr(high)))
    densities = np.exp(-(low**2) / 2 - mass) - np.exp(-(high**2) / 2 - mass)
    mean = value + std_error * float(densities) / math.sqrt(2 * math.pi)
    return min(max(mean, least), most)


def _std_error(covariance: Floats, gradient: Floats) -> float:
    return math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))


@dataclass(frozen=True)
class Contrast:
    """Two of several classes: their response is half a combination of indicators.

    Attributes
    ----------
    moved : float
        What the intercept is moved by: taken as known.
    spread : float
        Largest difference of the combination's values, for the sampling error of v.
    """

    moved: float
    spread: float


def discriminant_scale(problem: Problem, fit: LeastSquares, *, contrast: Contrast | None = None) -> Scale:
    """Return v and e of a response that is ±1 in encoded units and 0/1 in original ones.

    ``contrast`` is for two of several classes. Noise moves b_j by w_jᵀ(Ea)_x, w_j the row of ``to_user @ inverse``.
    Sampling, for populations: v has variance v(1 - 4v)/n at most, π₁ has π₀π₁/n, uncorrelated with b.
    """
    noisy, d = problem.noisy, len(problem.names)
    a, response = fit.a, np.eye(d + 1)[-1]
    of_classes = problem.intercept and contrast is None
    if of_classes or not problem.intercept:
        forms = class_forms(problem.one if problem.intercept else None, response)
    else:
        forms = problem.one[:, np.newaxis]
    values = np.sum(forms * (noisy.moment @ forms), axis=0)
    n = max(float(values.sum()), 1.0)
    share = min(max(float(values[-1]) / n, 0.5 / n), 1 - 0.5 / n) if of_classes else 0.5
    v, moved = fit.residual / (4 * n), shift(share) if contrast is None else contrast.moved
    fitted = (fit.residual - float(a @ noisy.moment @ a)) / (4 * n)
    to_v = np.append(np.full(forms.shape[1], -v / n), 1 / (4 * n))
    to_share = np.array([-share, 1 - share, 0.0]) / n if of_classes else np.zeros_like(to_v)
    steep = 1 / (share * (1 - share)) - (share**-2 + (1 - share) ** -2) / 2  # h'
    gradients = np.array([to_v, moved * to_v + v * steep * to_share])
    both, U = np.outer([1, moved], [1, moved]), np.column_stack([forms, a])
    noise = gradients @ quadratic_covariance(noisy, U) @ gradients.T + 2 * fitted**2 / d * both
    w = np.column_stack([problem.to_user @ fit.inverse, np.zeros(d)])
    with_b = 2 * (w @ noisy.shape @ U) * (a @ noisy.shape @ U) @ gradients.T
    sampling = np.zeros((2, 2))
    if fit.n_rows is not None:
        largest = 1 - 4 * v if contrast is None else contrast.spread**2 - v
        sampling = max(v * largest, 0.0) / fit.n_rows * both
        sampling[1, 1] += (v * steep) ** 2 * share * (1 - share) / fit.n_rows * of_classes
    first = np.arange(d) == (0 if problem.intercept else -1)
    places = np.zeros((1 + d, 2))  # of v and of the intercept's e
    places[0, 0], places[1:, 1] = 1.0, first
    return Scale(
        v,
        np.where(first, moved * v - 0.5, 0.0),
        places @ noise @ places.T,
        places @ sampling @ places.T,
        with_b @ places.T,
    )


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
        "They equal logistic coefficients if predictors are normal within classes; strong effects of boolean "
        "columns or levels differ from maximum likelihood by more than these intervals show.",
    ),
    unidentified="the residual variance is less than three standard errors above 0",
    ratio="odds ratio",
    scale=discriminant_scale,
)
"""Log odds of two classes by Fisher's discriminant."""


def contrast_family(contrast: Contrast) -> Family:
    """Return the discriminant of two of several classes."""
    return replace(DISCRIMINANT, scale=partial(discriminant_scale, contrast=contrast))


OTHERS = "all others"
"""The class that one level is held against."""


def discriminant_of(statistic: Transcript, response: Response, features: list[int], theta: Floats) -> Discriminant:
    """Class shares and R² of coefficients that predict."""
    schema, a = statistic.schema, response.vector.copy()
    a[features] -= theta
    constant = schema.units.one if schema.intercept else None
    left = statistic.residual(features, response.vector)
    return estimate_discriminant(statistic.predictive, constant, response.vector, a, residual=left)


def labels_of(column: Categorical) -> tuple[Label, ...]:
    """Values of the encoded columns of a category: its levels, or words where there are columns for others too."""
    return column.levels if len(column.labels) == len(column.levels) else column.labels


def place_of(column: Column | Block, level: object, response: str) -> tuple[int, tuple[Label, ...]]:
    """Which level of a category, or of false and true, is meant, by its value or its words; and all levels."""
    if not isinstance(column, Categorical | Boolean):
        raise ArgumentError(f"Column {response!r} is not a category: leave level= out.")
    labels = (False, True) if isinstance(column, Boolean) else labels_of(column)
    found = [k for k, own in enumerate(labels) if level in (own, str(own)) or _word(own) == _word(level)]
    if not found:
        raise ArgumentError(f"{level!r} is not a level of {response!r}; it has {', '.join(map(str, labels))}.")
    return found[0], labels


def _word(level: object) -> object:
    """``"true"`` and ``"false"`` for Python's, as names of encoded columns have them."""
    return str(level).lower() if isinstance(level, bool | np.bool_) else level


def _vector(schema: Schema, entries: dict[int, float]) -> Floats:
    """Return a combination of encoded columns from its entries that are not 0."""
    vector = np.zeros(schema.n_columns)
    vector[list(entries)] = list(entries.values())
    return vector


def two_classes(schema: Schema, response: str, level: object = None) -> tuple[Response, tuple[Label, Label]]:
    """A column with two values, or one level against all others, as the response -1 and 1; and the two values."""
    column, indices = column_of(schema, response), schema.groups[response]
    if isinstance(column, Boolean):
        second = level is None or place_of(column, level, response)[0] == 1
        classes: tuple[Label, Label] = (not second, second)
        vector = _vector(schema, {indices[0]: (1 if second else -1) / column.weight})
    elif level is not None:
        chosen, labels = place_of(column, level, response)
        classes = (OTHERS, labels[chosen])
        signs = np.where(np.arange(len(indices)) == chosen, 1.0, -1.0)
        vector = _vector(schema, dict(zip(indices, signs / column.weight, strict=True)))
    elif isinstance(column, Categorical) and len(indices) == 2:
        labels = labels_of(column)
        classes = (labels[0], labels[1])
        vector = _vector(schema, {indices[0]: -1 / column.weight, indices[1]: 1 / column.weight})
    elif isinstance(column, Categorical):
        raise ArgumentError(f"Column {response!r} has more than two levels: choose one as level=, or use mnlogit.")
    else:
        raise ArgumentError(f"Column {response!r} must be boolean or a category for logit; use ols for numbers.")
    return Response(f"{response} = {classes[1]}", vector, 0.5, 0.5, DISCRIMINANT), classes


_MOST_EXPLAINED = 1 - 1e-9


@dataclass(frozen=True, eq=False)
class Softmax:
    """What turns least squares of indicators into scores of classes.

    Attributes
    ----------
    shares : array (K,)
        π.
    residual : array (K, K)
        R, of rank K - 1: indicators add up to one.
    """

    shares: Floats
    residual: Floats

    @property
    def scaling(self) -> Floats:
        """Q = (R + ππᵀ)⁻¹."""
        whole = self.residual + np.outer(self.shares, self.shares)
        return np.asarray(scipy.linalg.solve(whole, np.eye(len(whole)), assume_a="pos"))

    @property
    def offsets(self) -> Floats:
        """What scores are moved by, h."""
        return np.asarray(np.log(self.shares) + 1 / (2 * self.shares) - np.diagonal(self.scaling) / 2)

    def contrast(self, k: int, r: int) -> Floats:
        """Which combination of indicators has the log odds of k against r, but for a constant: c = Q(e_k - e_r)."""
        return np.asarray(self.scaling[:, k] - self.scaling[:, r])


def estimate_softmax(
    statistic: Transcript, constant: Floats, indicators: Floats, features: list[int], coefficients: Floats
) -> Softmax:
    """π and R from a release, noise taken out, shrunk where it dominates.

    Shares and what is explained of every indicator are estimated as for two classes, each against all others. The
    explained covariance, of the coefficients that predict, has its canonical R² cut to [0, 1), and is multiplied by one
    number, at most 1, so that it explains no more than that of all indicators together: noise alone may make it
    negative, and never large.

    Parameters
    ----------
    statistic : Transcript
    constant : array (m,)
        The combination of encoded columns that is 1 in every row.
    indicators : array (m, K)
    features : list of int
    coefficients : array (d, K)
        Of every indicator on the features.
    """
    left = indicators.copy()
    left[features] -= coefficients
    own = [
        estimate_discriminant(
            statistic.predictive,
            constant,
            2 * indicators[:, k] - constant,
            2 * left[:, k],
            residual=4 * statistic.residual(features, indicators[:, k]),
        )
        for k in range(indicators.shape[1])
    ]
    shares = np.array([one.share for one in own])
    shares = shares / shares.sum()
    moment = statistic.predictive.moment
    rows = max(float(constant @ moment @ constant), 1.0)
    whole = np.diag(shares) - np.outer(shares, shares)
    explained = whole - left.T @ moment @ left / rows
    sizes = np.diagonal(whole)
    asked = float(sizes @ np.array([one.explained for one in own]))
    values, U = scipy.linalg.eigh(whole)
    values, U = values[1:], U[:, 1:]  # the first is 0: indicators add up to one
    roots = np.sqrt(np.maximum(values, 1e-300))
    F = (U / roots).T @ (explained + explained.T) @ (U / roots) / 2
    f, V = scipy.linalg.eigh(F)
    f, frame = np.maximum(f, 0.0), U * roots @ V
    found = float(f @ np.sum(frame**2, axis=0))
    f = f * min(asked / found, 1.0) if found > 0 else f
    return Softmax(shares, np.asarray((frame * (1 - np.minimum(f, _MOST_EXPLAINED))) @ frame.T))


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassModel(FittedClasses):
    """Log odds of every class against the first, linear in other columns, fitted from a release.

    :meth:`summary` has the coefficients of every class against one of them: the first, or the one that
    ``reference={"species": "setosa"}`` names. Intervals take the combination of indicators that belongs to two classes
    as known; those of intercepts also take the shares of the classes as known.

    Attributes
    ----------
    response : str
        The response column.
    classes : tuple
        Its levels.
    coef : dict of class to dict of str to float
        Of every class but the first, in the user's units, as of :class:`gaussmix.models.linear.RegressionModel`.
    intercept : dict of class to float
    softmax : Softmax
        Shares and residual covariance behind them.
    certificate : Certificate or None
        What was spent on the release.
    """

    response: str
    classes: tuple[Label, ...]
    coef: dict[Label, dict[str, float]]
    intercept: dict[Label, float]
    softmax: Softmax
    statistic: Transcript
    certificate: Certificate | None = None

    @property
    def _width(self) -> int:
        return len(next(iter(self.coef.values())))

    def decision_function(self, data: Any) -> Floats:
        """Log odds of every class against the first, shape (rows, classes)."""
        schema = self.statistic.schema
        found = [linear_values(schema, self.coef[name], self.intercept[name], data) for name in self.classes[1:]]
        return np.column_stack([np.zeros(len(found[0])), *found])

    def predict_proba(self, data: Any) -> Floats:
        """Probabilities of all classes, shape (rows, classes)."""
        return np.asarray(special.softmax(self.decision_function(data), axis=1))

    def predict(self, data: Any) -> Rows:
        """The likeliest class."""
        return np.asarray(np.array(self.classes)[np.argmax(self.decision_function(data), axis=1)])

    def _summarise(self, **options: Unpack[Asked]) -> dict[Label, Summary]:
        schema, others = self.statistic.schema, dict(options["reference"] or {})
        r, _ = place_of(schema.columns[self.response], others.pop(self.response, self.classes[0]), self.response)
        indicators, found = indicators_of(schema, self.response), {}
        for k, name in enumerate(self.classes):
            if k == r:
                continue
            c = self.softmax.contrast(k, r)
            v = 1 / float(c[k] - c[r])
            words = f"{self.response} = {name} against {self.classes[r]}"
            moved = float(self.softmax.offsets[k] - self.softmax.offsets[r])
            family = contrast_family(Contrast(moved, float(np.ptp(v * c))))
            response = Response(words, 2 * v * indicators @ c, 0.5, 0.5, family)
            names = next(iter(self.coef.values()))
            problem = Problem.of(
                self.statistic.noisy, schema, response, names, collapse=options["collapse"], reference=others or None
            )
            found[name] = summarise(problem, estimand=options["estimand"], n_rows=options["n_rows"])
        return found

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> dict[Label, ResultTable]:
        """Exp of the coefficients of every class against one of them, with intervals; options of :meth:`summary`."""
        return {name: ratio_table(own, alpha) for name, own in self.summary(**options).items()}


def indicators_of(schema: Schema, response: str) -> Floats:
    """Which combination of encoded columns is 1 in rows of each class and 0 in others, shape (m, K)."""
    return np.eye(schema.n_columns)[:, list(schema.groups[response])] / schema.columns[response].weight


def fit_classes(statistic: Transcript, response: str, predictors: Sequence[str] | None) -> MulticlassModel:
    """Scores of the levels of a category on other columns, from least squares on their indicators."""
    schema = statistic.schema
    response = part_name(schema, response)
    column = column_of(schema, response)
    if not isinstance(column, Categorical) or len(column.labels) < 3:
        raise ArgumentError(
            f"mnlogit needs a category with more than two levels: {response!r} is not declared as one. Use logit for "
            "two classes, ols for numbers."
        )
    if not schema.intercept:
        raise ArgumentError("mnlogit needs a release with an intercept column.")
    classes, indicators = labels_of(column), indicators_of(schema, response)
    features = feature_indices(schema, [response], predictors)
    coefficients = statistic.solve(features, indicators)
    softmax = estimate_softmax(statistic, schema.units.one, indicators, features, coefficients)
    coef, intercept = {}, {}
    for k, name in enumerate(classes[1:], 1):
        coef[name], shifted = schema.units.coefficients(features, coefficients @ softmax.contrast(k, 0))
        intercept[name] = shifted + float(softmax.offsets[k] - softmax.offsets[0])
    return MulticlassModel(response, classes, coef, intercept, softmax, statistic)


WORTH_STEPS = 20.0
"""x = nμ/d below which the budget is better spent on the release alone."""

LEAST_WEIGHT = 0.01
"""Least mean of p(1 - p): where classes are separated no step is longer for it."""

_RANGE = 1e-13
_LEAST_MARGIN = 2.0**-60  # stands for coefficients that are all zero


def plan_step(transcript: Transcript, response: str, mu: float) -> StepRequest:
    """The next step of a release; ``mu`` is the budget of its gradient."""
    if transcript.steps:
        last = transcript.steps[-1]
        metric, theta, weight = last.request.metric, _advanced(transcript, last), _weight(transcript, last)
    else:
        metric = _metric(transcript, label_of(transcript.schema, response))
        theta, weight = _start(transcript, response)
    d = len(metric)
    x = transcript.rows * mu / d
    kappa = max(1.2, min(0.03 * x, 3.0), 0.1 * math.sqrt(x))
    if not theta.any():
        theta[np.flatnonzero(metric.any(axis=0))[0]] = _LEAST_MARGIN
    return StepRequest(response, Transform.nearest(np.vstack([metric, theta])), kappa**2 * weight * d)


def likelihood_coefficients(transcript: Transcript) -> Floats:
    """θ after the last step, on all encoded columns in their own units; 0 on the label's."""
    return _advanced(transcript, transcript.steps[-1]) / transcript.schema.row_norm


def _advanced(transcript: Transcript, step: StepOutput) -> Floats:
    """θ after a step, of rows divided by C."""
    root, metric = math.sqrt(step.request.clip), step.request.metric
    g, sigma2 = root * step.gradient, step.request.clip / step.mu**2
    tau2 = max(float(np.mean(g**2)) - sigma2, 0.0)
    length = tau2 / (tau2 + sigma2) / (transcript.rows * _weight(transcript, step))
    return np.asarray(step.request.coefficients + length * (metric.T @ g))


def _weight(transcript: Transcript, step: StepOutput) -> float:
    """The mean of p(1 - p)."""
    return min(max(step.weight / (4 * transcript.rows), LEAST_WEIGHT), 0.25)


def _start(transcript: Transcript, response: str) -> tuple[Floats, float]:
    """The discriminant's θ, of rows divided by C, and its residual variance, which is about the mean of p(1 - p)."""
    schema = transcript.schema
    coded, _ = two_classes(schema, response)
    features = feature_indices(schema, [response], None)
    b = transcript.solve(features, coded.vector[:, np.newaxis])[:, 0]
    own = discriminant_of(transcript, coded, features, b)
    theta = np.zeros(schema.n_columns)
    theta[features] = own.factor * coded.scale * b
    if schema.intercept:
        theta += own.intercept(coded.centre) * schema.units.one
    return theta * schema.row_norm, min(max(1 / own.factor, LEAST_WEIGHT), 0.25)


def _metric(transcript: Transcript, label: int) -> Floats:
    """E, shape (m - 1, m), which does not read the label: E G Eᵀ/n is about the identity."""
    m = transcript.schema.n_columns
    others = np.delete(np.arange(m), label)
    raised = clean(transcript.pool.current).raised(FLOOR * 2 * math.sqrt(m))[np.ix_(others, others)] / transcript.rows
    h, V = scipy.linalg.eigh((raised + raised.T) / 2)
    metric = np.zeros((m - 1, m))
    metric[:, others] = (V / np.sqrt(np.maximum(h, h[-1] * _RANGE))).T
    return metric


@dataclass(frozen=True, repr=False)
class ClassificationModel(FittedModel):
    """Log odds of a column with two values, linear in others, fitted from a release.

    Coefficients of :meth:`summary` are those of the discriminant. Where features are normal within classes, with one
    covariance, they are the coefficients of logistic regression; docs/inference.md has how far they are from it on real
    tables.

    Attributes
    ----------
    response : str
        The response column.
    classes : tuple
        Its two values, or ``"all others"`` and one level; coefficients are for the second.
    coef, intercept
        As in :class:`gaussmix.models.linear.RegressionModel`, for the log odds.
    likelihood : bool
        Whether the coefficients are those of private steps on the likelihood. Intervals and odds
        ratios are the discriminant's all the same.
    level : object or None
        The level that is held against all others, if one is.
    certificate : Certificate or None
        What was spent on the release.
    """

    response: str
    classes: tuple[Label, Label]
    coef: dict[str, float]
    intercept: float
    statistic: Transcript = field(compare=False)
    likelihood: bool = False
    level: object = None
    certificate: Certificate | None = field(default=None, compare=False)

    @property
    def _width(self) -> int:
        return len(self.coef)

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Exp of the discriminant coefficients: term, odds.ratio, conf.low, conf.high, p.value.

        Factors by which features multiply the odds of the second class: per unit of a number, for true against false,
        for a level against the reference level. Options as in :meth:`summary`, which says what they are intervals of.
        """
        return ratio_table(self.summary(**options), alpha)

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """The regression of the response ±1 as an inference problem, 0/1 in the user's units."""
        schema = self.statistic.schema
        response, _ = two_classes(schema, self.response, self.level)
        return Problem.of(self.statistic.noisy, schema, response, self.coef, collapse=collapse, reference=reference)

    def decision_function(self, data: Any) -> Floats:
        """Log odds of the second class."""
        return linear_values(self.statistic.schema, self.coef, self.intercept, data)

    def predict_proba(self, data: Any) -> Floats:
        """Probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(data))
        return np.column_stack([1 - second, second])

    def predict(self, data: Any) -> Rows:
        """The likelier class."""
        return np.asarray(np.array(self.classes)[(self.decision_function(data) > 0).astype(int)])


def fit_classification(
    statistic: Transcript, response: str, predictors: Sequence[str] | None, level: object = None
) -> ClassificationModel:
    """Log odds of a column with two values, or of one level, on other columns, from least squares on a response ±1."""
    schema = statistic.schema
    response = part_name(schema, response)
    coded, classes = two_classes(schema, response, level)
    features = feature_indices(schema, [response], predictors)
    if statistic.steps_serve(response, features):
        sign = 1 if classes[1] else -1  # steps are on the log odds of true
        coef, intercept = schema.units.coefficients(features, sign * likelihood_coefficients(statistic)[features])
        return ClassificationModel(response, classes, coef, intercept, statistic, likelihood=True, level=level)
    theta = statistic.solve(features, coded.vector[:, np.newaxis])[:, 0]
    coef, intercept = schema.units.coefficients(features, theta, scale=coded.scale)
    own = discriminant_of(statistic, coded, features, theta)
    coef = {name: own.factor * value for name, value in coef.items()}
    intercept = own.factor * intercept + own.intercept(coded.centre)
    return ClassificationModel(response, classes, coef, intercept, statistic, level=level)
