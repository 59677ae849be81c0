r"""Families of models: how coefficients come from least squares, and what is printed about them.

A `Family` is a value. Linear regression is one (`LINEAR`); the discriminant (:mod:`gaussmix.models.classification`),
rates (:mod:`gaussmix.models.rates`) and two-stage least squares (:mod:`gaussmix.models.instruments`) are others.
Summaries, tables, rendering and commands read the family and have no branches of their own.

A family with a link has the coefficients β_j = (b_j + e_j)/v: b least squares, v and e_j further functions of the
release's matrix (`Scale`). With v a residual variance they are log odds, with v a mean log rates. (b, v, e) is about
normal, and so is β by the delta method: it moves by

.. math:: \mathrm d\beta_j = (\mathrm db_j + \mathrm de_j - \beta_j\,\mathrm dv)/v .

Where v is not at least three standard errors above 0 nothing is identified.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.models import FAMILIES
from gaussmix.models.inference import SIGNAL, Coefficients, LeastSquares

if TYPE_CHECKING:
    from gaussmix.models.design import Problem
    from gaussmix.models.results import FittedModel
    from gaussmix.releases.transcript import Transcript

__all__ = ["LINEAR", "Family", "Registration", "Scale", "on_scale", "registration"]


@dataclass(frozen=True, eq=False)
class Scale:
    """v, what coefficients are moved by before they are divided by it, and their errors.

    Attributes
    ----------
    v : float
    added : array (d,)
        e; NaN where it is not identified.
    noise, sampling : arrays (1 + d, 1 + d)
        Covariances of v and e.
    with_b : array (d, 1 + d)
        Covariances that noise gives them with the coefficients b.
    """

    v: float
    added: Floats
    noise: Floats
    sampling: Floats
    with_b: Floats


ScaleOf = Callable[["Problem", LeastSquares], Scale]
"""A problem and its least squares to v and e."""


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
    unidentified : str
        Why a coefficient is not identified although its column is.
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
    scale : callable or None
        v and e of β = (b + e)/v; None where coefficients are those of least squares.
    """

    name: str
    link: str
    intervals_are_for: Mapping[str, str]
    refusal: str = ""
    notes: tuple[str, ...] = ()
    clipping_note: str = ""
    unidentified: str = ""
    remedy: str = "use fewer predictors, collapse sparse levels (collapse=), or spend a larger ε."
    ratio: str = ""
    is_linear: bool = False
    has_rsquared: bool = False
    predicts_mean: bool = True
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
            "table": "the least-squares coefficients of this table",
            "population": "the coefficients of the population that the rows were drawn from",
        }
    ),
    is_linear=True,
    has_rsquared=True,
)


def on_scale(b: Coefficients, scale: Scale, clipping_bias: float) -> Coefficients:
    """Return the distribution of β = (b + e)/v by the delta method; ``clipping_bias`` is in the noise of b already."""
    d, v = len(b.estimate), scale.v
    unknown = ~b.known | np.isnan(scale.added)
    if not v > 0 or v < SIGNAL * np.sqrt(scale.noise[0, 0]):
        return b.without(np.ones(d, dtype=bool))
    beta = (np.nan_to_num(b.estimate) + np.nan_to_num(scale.added)) / v
    to_beta = np.column_stack([np.eye(d), -beta, np.eye(d)]) / v
    more = 1 + clipping_bias**2
    joint = np.block([[np.nan_to_num(b.noise), more * scale.with_b], [more * scale.with_b.T, more * scale.noise]])
    sampling = scipy.linalg.block_diag(np.nan_to_num(b.sampling), scale.sampling)
    return Coefficients(beta, to_beta @ joint @ to_beta.T, to_beta @ sampling @ to_beta.T).without(unknown)
