r"""Families of models as values: the mean as a function of the linear predictor, and words about coefficients.

A `Family` with a `Mean` is a generalised linear model (:mod:`gaussmix.models.likelihood`). `LINEAR` and two-stage least
squares (:mod:`gaussmix.models.instruments`) have none: their coefficients are those of least squares. Summaries,
tables, rendering, commands and the page read the value and have no branches of their own.

To add a family, define its `Mean` and its `Family` here and list its name in ``gaussmix.models.FAMILIES``. Then it can
also be declared before a release (:mod:`gaussmix.models.declared`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.terms import exponential, normal_probability
from gaussmix.models import FAMILIES

__all__ = [
    "DISTRIBUTION_COLUMN",
    "LINEAR",
    "LOGIT",
    "MNLOGIT",
    "OF_DISTRIBUTION",
    "OF_STEPS",
    "POISSON",
    "PROBIT",
    "Family",
    "Mean",
    "family_of",
]

_LARGEST = 50.0  # linear predictors of the log link are cut here: exp(50) is above every mean

Function = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Mean:
    r"""The mean μ = h(η) of a response as a function of the linear predictor, and its variance.

    Attributes
    ----------
    link : callable
        η of a mean: the inverse of h.
    inverse : callable
        h.
    derivative, second : callable
        h' and h''.
    area : callable
        An antiderivative of h: convex, since h increases. Σ area(η) - yη is minimal where Σ x(h(η) - y) = 0.
    variance : callable
        Variance of the response of a mean.
    is_canonical : bool
        Whether Σ x(h(η) - y) = 0 is the likelihood equation; ``area`` is then the cumulant function, and yη - area(η)
        the log-likelihood of a response up to a function of y.
    saturated : callable
        Largest log-likelihood of a response y, up to the same function of y.
    by_row : callable
        h again, made of operations that give the same bits on every processor, for scores of rows
        (:mod:`gaussmix.data.scores`). A function of a module, so that it can be sent to workers.
    unit : float
        How far η moves over half of a predictor's range a priori, in standard deviations: 3 on the scale of logits.
    """

    link: Function
    inverse: Function
    derivative: Function
    second: Function
    area: Function
    variance: Function
    saturated: Function
    by_row: Function
    is_canonical: bool = True
    unit: float = 3.0


@dataclass(frozen=True)
class Family:
    """One kind of regression: what its coefficients are.

    Attributes
    ----------
    name : str
    link : str
        What is linear in the predictors: ``"identity"``, or a function of the mean.
    intervals_are_for : mapping of estimand to str
        What intervals are for, by estimand: an entry for each of ``ESTIMANDS``.
    notes : tuple of str
        How to read the coefficients: printed below every table.
    remedy : str
        What helps where coefficients are not identified.
    ratio : str
        What exp(β) is called: ``"odds ratio"``, ``"rate ratio"``; empty where it has no meaning.
    is_linear : bool
        Whether the model is linear with the likelihood of normal errors: R² is printed, and AIC is defined.
    has_rsquared : bool
        Whether R² and the residual standard error are in ``glance``.
    predicts_mean : bool
        Whether the model is compared with the mean of the response.
    of_classes : bool
        Whether the response is a class and not a number.
    mean : Mean or None
        The mean of the response; None where coefficients are those of least squares.
    help : str
        First line of the help of the command.
    """

    name: str
    link: str
    intervals_are_for: Mapping[str, str]
    notes: tuple[str, ...] = ()
    remedy: str = "use fewer predictors, collapse sparse levels (collapse=), or spend a larger ε."
    ratio: str = ""
    is_linear: bool = False
    has_rsquared: bool = False
    predicts_mean: bool = True
    of_classes: bool = False
    mean: Mean | None = field(default=None, repr=False)
    help: str = ""


LINEAR = Family(
    name="linear",
    link="identity",
    intervals_are_for=MappingProxyType(
        {
            "table": "the least-squares coefficients of this table",
            "population": "the coefficients of the population that the rows were drawn from",
        }
    ),
    is_linear=True,
    has_rsquared=True,
)


def _maximum_likelihood(what: str) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "table": f"the {what} coefficients of this table",
            "population": f"the {what} coefficients of the population that the rows were drawn from",
        }
    )


OF_DISTRIBUTION = (
    "They are computed from the least-squares fit of the release, assuming a distribution of the predictors with the "
    "second moments of the release."
)

OF_STEPS = (
    "They are computed by two private Newton steps on the likelihood of all rows, from the release's own estimate."
)

DISTRIBUTION_COLUMN = {
    OF_DISTRIBUTION: (
        ' The column "distribution" is the standard error that this assumption adds: at least half of the sampling '
        "standard error."
    ),
    OF_STEPS: ' The column "distribution" is the change that a third step would make, taken as a standard error.',
}
"""What the column of a summary is, by the note that it belongs to. Other tables have no such column."""


def _logistic_second(eta: Floats) -> Floats:
    p = special.expit(eta)
    return np.asarray(p * (1 - p) * (1 - 2 * p))


def _density(eta: Floats) -> Floats:
    return np.asarray(np.exp(-(eta**2) / 2) / math.sqrt(2 * math.pi))


def _exp(eta: Floats) -> Floats:
    return np.asarray(np.exp(np.minimum(eta, _LARGEST)))


def _none(y: Floats) -> Floats:
    return np.zeros_like(y)


def _logistic_by_row(eta: Floats) -> Floats:
    return np.asarray(1 / (1 + exponential(-eta)))


LOGISTIC_MEAN = Mean(
    link=special.logit,
    inverse=special.expit,
    derivative=lambda eta: special.expit(eta) * special.expit(-eta),
    second=_logistic_second,
    area=lambda eta: np.logaddexp(0.0, eta),
    variance=lambda mu: mu * (1 - mu),
    saturated=_none,
    by_row=_logistic_by_row,
)

LOGIT = Family(
    name="logit",
    link="log odds",
    intervals_are_for=_maximum_likelihood("maximum-likelihood logistic"),
    notes=(OF_DISTRIBUTION,),
    ratio="odds ratio",
    of_classes=True,
    mean=LOGISTIC_MEAN,
    help=(
        "Fit a logistic regression of the boolean column RESPONSE, or of one --level, by approximate maximum "
        "likelihood."
    ),
)

PROBIT = Family(
    name="probit",
    link="normal quantile",
    intervals_are_for=_maximum_likelihood("probit"),
    notes=(
        OF_DISTRIBUTION,
        "The coefficients solve Σ x(Φ(xβ) - y) = 0, which estimates the parameter of the probit model but is not its "
        "likelihood equation.",
    ),
    of_classes=True,
    mean=Mean(
        link=special.ndtri,
        inverse=special.ndtr,
        derivative=_density,
        second=lambda eta: -eta * _density(eta),
        area=lambda eta: eta * special.ndtr(eta) + _density(eta),
        variance=lambda mu: mu * (1 - mu),
        saturated=_none,
        by_row=normal_probability,
        is_canonical=False,
        unit=3.0 / 1.7,
    ),
    help="Fit a probit regression of the boolean column RESPONSE, or of one --level.",
)

POISSON = Family(
    name="poisson",
    link="log mean",
    intervals_are_for=_maximum_likelihood("maximum-likelihood Poisson"),
    notes=(OF_DISTRIBUTION,),
    ratio="rate ratio",
    mean=Mean(
        link=np.log,
        inverse=_exp,
        derivative=_exp,
        second=_exp,
        area=_exp,
        variance=lambda mu: mu,
        saturated=lambda y: special.xlogy(y, y) - y,
        by_row=exponential,
    ),
    help="Fit a Poisson regression of RESPONSE, a count or another number ≥ 0, by approximate maximum likelihood.",
)

MNLOGIT = Family(
    name="mnlogit",
    link="log odds",
    intervals_are_for=_maximum_likelihood("maximum-likelihood multinomial logistic"),
    notes=(OF_DISTRIBUTION,),
    ratio="odds ratio",
    of_classes=True,
)
"""Several classes: the softmax of several linear predictors, which has no `Mean` of one."""


def family_of(name: str) -> Family:
    """Return a family that ``gaussmix.models.FAMILIES`` names."""
    check.choice(FAMILIES, family=name)
    return {own.name: own for own in (LOGIT, PROBIT, POISSON)}[name]
