r"""Instrumental variables: two-stage least squares from the second moments of a release.

Let x be the features, some of them endogenous, and z the instruments, which include the exogenous features and the
constant. The estimate is

.. math:: \theta = (M_{xz} M_{zz}^{-1} M_{zx})^{-1} M_{xz} M_{zz}^{-1} M_{zy} = W M_{zy} .

With a = (-θ, 1) on (x, y), the noise E changes the score (Ma)_z by (Ea)_z, whose covariance is V = N_zz aᵀNa +
(Na)_z(Na)_zᵀ. The covariance of θ is W V Wᵀ. For a population, s²M_zz is added to V, where s² is the residual variance.

Instruments that the release does not identify are left out by the rule of :mod:`gaussmix.models.inference`, together
with the exogenous features among them. The first stage must also exceed the noise: with F = M_zz⁻¹ M_zx, let u be the
least-identified direction of FᵀM_zx relative to N_xx. Then uᵀFᵀM_zx u must be at least three standard errors above 0.
If it is not, no coefficient is identified, because leaving out an endogenous feature would change the structural
equation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Numeric
from gaussmix.errors import ArgumentError
from gaussmix.models.design import Coding, Collapse, Problem, Reference, Response, column_of
from gaussmix.models.families import Family
from gaussmix.models.inference import SIGNAL, Coefficients, LeastSquares, identified_columns
from gaussmix.models.linear import clipped, encoded_coefficients, linear_values
from gaussmix.models.results import Asked, FittedModel, Summary, covariance_type, sample_size
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import NoisyMoment

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["InstrumentalModel", "fit_instruments", "two_stage"]

TWO_STAGE = Family(
    name="two-stage",
    link="identity",
    intervals_are_for=MappingProxyType(
        {
            "table": "the two-stage least-squares coefficients of this table",
            "population": "the two-stage least-squares coefficients of the population that the rows were drawn from",
        }
    ),
    remedy="use stronger instruments or a larger ε.",
    has_rsquared=True,
    predicts_mean=False,
)
"""Two-stage least squares. Each model adds its own notes."""


@dataclass(frozen=True, eq=False, repr=False)
class InstrumentalModel(FittedModel):
    """Two-stage least squares of one column on others, from a release.

    ``rsquared`` is that of the structural equation, 1 - residual over total sum of squares, or 0 if this is negative.

    Attributes
    ----------
    response : str
    endogenous : tuple of str
        Features that are not instruments.
    excluded : tuple of str
        Instruments that are not features.
    columns : tuple of str
        Encoded columns of the features.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    endogenous: tuple[str, ...]
    excluded: tuple[str, ...]
    columns: tuple[str, ...]
    release: Release
    instruments: tuple[str, ...]
    certificate: Certificate | None

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return least squares of the same features as an inference problem."""
        schema, noisy = self.release.schema, self.release.statistic.noisy
        response = Response.of(schema, self.response, TWO_STAGE)
        return Problem.of(noisy, schema, response, self.columns, collapse=collapse, reference=reference)

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        covariance_type(options)
        collapse, reference = dict(options["collapse"] or {}), dict(options["reference"] or {})
        problem = self.problem(collapse=collapse, reference=reference)
        schema, noisy = self.release.schema, self.release.statistic.noisy
        given = Coding.of(
            schema,
            self.instruments,
            collapse={name: own for name, own in collapse.items() if name in self.instruments},
            reference={name: own for name, own in reference.items() if name in self.instruments},
            noisy=noisy,
        )
        rows = {
            name: row for own in (given, problem.coding) if own for name, row in zip(own.names, own.rows, strict=True)
        }
        names = list(rows)  # the instruments first
        own = noisy.mapped(np.vstack([*rows.values(), Response.of(schema, self.response).vector]))
        x, z = [names.index(name) for name in problem.names], list(range(len(given.names)))
        fit, first_stage = two_stage(own, x, z, sample_size(problem, options["estimand"], options["n_rows"]))
        why = "too little signal" if first_stage >= SIGNAL else "the first stage is weak"
        left_out = {problem.names[j]: why for j in fit.left_out}
        words = (
            f"Endogenous: {', '.join(self.endogenous) or 'none'}; "
            f"excluded instruments: {', '.join(self.excluded) or 'none'}.",
            f"First-stage signal: {first_stage:.3g} standard errors above 0"
            + ("." if first_stage >= SIGNAL else f", weak (below {SIGNAL:g})."),
        )
        coefficients = Coefficients.of(fit, problem.to_user, problem.offset)
        family = replace(TWO_STAGE, notes=words[: 1 + bool(self.endogenous and noisy.has_noise)])
        return Summary.of(problem, fit, coefficients, estimand=options["estimand"], family=family, left_out=left_out)

    def predict(self, data: Any) -> Floats:
        """Return the values of the structural equation for a table, clamped to the declared bounds of the response."""
        schema, own = self.release.schema, self._table
        coef, intercept = encoded_coefficients(schema, own._problem, own._fit.theta)
        return clipped(schema, self.response, linear_values(schema, coef, intercept, data))


def two_stage(
    noisy: NoisyMoment, x: Sequence[int], z: Sequence[int], rows: float | None = None
) -> tuple[LeastSquares, float]:
    """Return two-stage least squares of the last column on columns ``x`` with instruments ``z``, the constant first.

    The second value is the strength of the first stage, in standard errors. ``rows`` is the sample size of a
    population.
    """
    last, d, M, N = len(noisy.moment) - 1, len(x), noisy.moment, noisy.shape
    kept_z = [z[i] for i in identified_columns(noisy.mapped(np.eye(last + 1)[[*z, last]]), intercept=True)[0]]
    kept = [j for j, column in enumerate(x) if column in kept_z or column not in z]
    own, zz = [x[j] for j in kept], np.ix_(kept_z, kept_z)
    theta, W, signal = np.zeros(d), np.zeros((d, len(kept_z))), 0.0
    if own and len(kept_z) >= len(own):
        first = scipy.linalg.solve(M[zz], M[np.ix_(kept_z, own)])
        staged = first.T @ M[np.ix_(kept_z, own)]
        signal = _first_stage(staged, first, N, own, kept_z) if noisy.has_noise else math.inf
    if signal >= SIGNAL:
        W[kept] = scipy.linalg.solve(staged, first.T)
        theta = W @ M[kept_z, last]
    else:
        kept = []
    a = np.zeros(last + 1)
    a[x], a[last] = -theta, 1.0
    turned, residual = (N @ a)[kept_z], float(a @ M @ a)
    V = (1 + noisy.clipping_bias**2) * (N[zz] * float(a @ N @ a) + np.outer(turned, turned))
    variance = 0.0 if rows is None else max(residual, 0.0) / max(rows - len(kept), 1.0)
    left_out = tuple(j for j in range(d) if j not in kept)
    noise, sampling = W @ V @ W.T, variance * W @ M[zz] @ W.T
    fit = LeastSquares(
        tuple(kept), left_out, theta, np.zeros((d, d)), noise, sampling, residual, residual, signal, rows
    )
    return fit, signal


def _first_stage(staged: Floats, first: Floats, N: Floats, x: Sequence[int], z: Sequence[int]) -> float:
    """Return uᵀFᵀM_zx u over its standard error for the least-identified direction u."""
    N_xx = N[np.ix_(x, x)]
    scale = 1 / np.sqrt(np.diagonal(N_xx))
    both = np.outer(scale, scale)
    metric = N_xx * both + 1e-13 * np.eye(len(x))
    _, vectors = scipy.linalg.eigh((staged + staged.T) / 2 * both, metric, subset_by_index=(0, 0))
    u = scale * vectors[:, 0]
    f = first @ u
    variance = float(f @ N[np.ix_(z, z)] @ f) * float(u @ N_xx @ u) + float(f @ N[np.ix_(z, x)] @ u) ** 2
    return float(u @ staged @ u) / math.sqrt(variance)


def fit_instruments(
    release: Release, response: str | list[str], predictors: Sequence[str] | None, instruments: Sequence[str]
) -> InstrumentalModel:
    """Return the model of :meth:`gaussmix.Release.iv`."""
    schema = release.schema
    if not isinstance(response, str):
        raise ArgumentError(f"response must be one column, got {response!r}.")
    if predictors is None or isinstance(predictors, str) or isinstance(instruments, str):
        raise ArgumentError(
            "predictors and instruments must be lists of columns, got "
            f"{type(predictors).__name__} and {type(instruments).__name__}."
        )
    if not isinstance(column_of(schema, response), Numeric | Boolean):
        raise ArgumentError(f"response must be a numeric or boolean column, got {response!r}.")
    for name in (*predictors, *instruments):
        column_of(schema, name)
        if name == response:
            raise ArgumentError(f"Column {response!r} is the response and cannot also be a predictor or an instrument.")
    if not schema.intercept:
        raise ArgumentError("iv requires a release with an intercept.")
    noisy = release.statistic.noisy
    features, given = Coding.of(schema, predictors, noisy=noisy), Coding.of(schema, instruments, noisy=noisy)
    if len(given.names) < len(features.names):
        raise ArgumentError(
            "There must be at least as many instruments as predictors. List exogenous predictors among the instruments."
        )
    endogenous = tuple(name for name in features.names if name not in given.names)
    excluded = tuple(name for name in given.names if name not in features.names)
    columns = tuple(own.name for own in schema.encoded if own.source in predictors)
    return InstrumentalModel(response, endogenous, excluded, columns, release, tuple(instruments), release.certificate)
