r"""Instrumental variables from a release: two-stage least squares is a computation on second moments.

Features x, some of them endogenous; instruments z, the exogenous features and the constant among them.

.. math:: \theta = (M_{xz} M_{zz}^{-1} M_{zx})^{-1} M_{xz} M_{zz}^{-1} M_{zy} = W M_{zy} .

With a = (-θ, 1) on (x, y) the score (Ma)_z moves with the noise by (Ea)_z, whose covariance is
α[Q_zz aᵀQa + (Qa)_z(Qa)_zᵀ]; θ has W · Wᵀ of it, and of s²M_zz for a population, s² the residual variance (Wald).

With weak instruments Wald intervals fail. Where one feature is endogenous its interval is Anderson and Rubin's instead:
with C and Ũ the moments of (x, y, excluded instruments) after the exogenous features are taken out
(:mod:`gaussmix.models.inference`), a value β is accepted where g = C_zy - βC_zx, with
V = α[Ũ_zz bᵀŨb + (Ũb)_z(Ũb)_zᵀ] + s²(β)C_zz, b = (-β, 1), has gᵀV⁻¹g below its chi-square quantile: nothing is divided
by a noisy first stage. For the table's own coefficients, where there is no sampling, that is right with one excluded
instrument only: with more of them g is not 0 at any β.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import scipy.linalg
from scipy import optimize, stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Numeric
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.descriptive import row_count
from gaussmix.models.design import Coding, Collapse, Problem, Reference, Response, column_of
from gaussmix.models.families import Family
from gaussmix.models.inference import Residuals, residuals
from gaussmix.models.linear import clipped, linear_values
from gaussmix.models.results import MAX_EFFECT, Asked, FittedModel, Summary, labelled, share_explained
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.noisy import NoisyMoment

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["AndersonRubin", "InstrumentalModel", "StageTests", "fit_instruments", "two_stage"]

TWO_STAGE = Family(
    name="two-stage",
    link="identity",
    intervals_are_for=MappingProxyType(
        {
            "table": "what two-stage least squares gives on this table",
            "population": "what two-stage least squares estimates of the population that the rows were drawn from",
        }
    ),
    remedy="name stronger instruments, or spend a larger ε.",
    has_rsquared=True,
    has_sigma=True,
)
"""Two-stage least squares; every model adds notes of its own."""

_WEAK = 10.0
"""First-stage statistic below which instruments are called weak."""


@dataclass(frozen=True, eq=False)
class AndersonRubin:
    """Tests of the coefficient of one endogenous feature: x, y, then the excluded instruments in ``left``."""

    left: Residuals
    rows: float | None

    def statistic(self, value: float) -> float:
        """gᵀV⁻¹g, chi-square with one degree of freedom an instrument at the true value."""
        return self._square(np.array([-value, 1.0]))

    def _square(self, b: Floats) -> float:
        C, U = self.left.moment, self.left.shape
        g, turn = C[2:, :2] @ b, U[2:, :2] @ b
        V = U[2:, 2:] * float(b @ U[:2, :2] @ b) + np.outer(turn, turn)
        if self.rows is not None:
            V = V + max(float(b @ C[:2, :2] @ b), 0.0) / self.rows * C[2:, 2:]
        return float(g @ scipy.linalg.pinvh(V) @ g)

    def _beyond(self, distance: float, middle: float, side: float, most: float) -> float:
        return self.statistic(middle + side * distance) - most

    @property
    def first_stage(self) -> float:
        """The statistic of no relation between instruments and feature, per instrument: below 10 they are weak."""
        return self._square(np.array([1.0, 0.0])) / self.instruments

    @property
    def instruments(self) -> int:
        """Excluded instruments."""
        return len(self.left.moment) - 2

    def interval(self, middle: float, std_error: float, alpha: float) -> tuple[float, float]:
        """Ends of the accepted values about the estimate; infinite where they do not end, NaN where there are none."""
        most = float(stats.chi2.isf(alpha, self.instruments))
        if self._square(np.array([1.0, 0.0])) <= most:
            return -math.inf, math.inf
        if self.statistic(middle) > most:
            return math.nan, math.nan
        ends = []
        for side in (-1.0, 1.0):
            step = max(std_error, 1e-12 * max(abs(middle), 1e-300))
            while self.statistic(middle + side * step) <= most and step < 1e12 * max(std_error, 1e-300):
                step *= 2
            ends.append(optimize.brentq(self._beyond, 0.0, step, args=(middle, side, most), xtol=1e-9 * step))
        return middle - ends[0], middle + ends[1]


@dataclass(frozen=True, eq=False)
class StageTests:
    """Tests of all coefficients: Wald's, and Anderson and Rubin's of the one at ``place``, where there is one."""

    estimate: Floats
    covariance: Floats
    place: int
    special: AndersonRubin | None

    @property
    def std_errors(self) -> Floats:
        """Wald's standard errors."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    def intervals(self, level: float | Floats) -> Floats:
        """Ends of the accepted values at 1 - level, or a level each, shape (d, 2)."""
        levels = np.broadcast_to(np.asarray(level, float), self.estimate.shape)
        half = stats.norm.isf(levels / 2) * self.std_errors
        found = np.column_stack([self.estimate - half, self.estimate + half])
        if self.special is not None:
            middle, std_error = float(self.estimate[self.place]), float(self.std_errors[self.place])
            found[self.place] = self.special.interval(middle, std_error, float(levels[self.place]))
        return found

    def p_of_hull(self, values: Floats, index: Sequence[int] | slice = slice(None)) -> Floats:
        """p-values of values of some coefficients."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.estimate[index] - values) / self.std_errors[index]
        found = np.asarray(2 * stats.norm.sf(np.abs(t)))
        if self.special is not None:
            for at, place in enumerate(np.arange(len(self.estimate))[index]):
                if place == self.place:
                    found[at] = stats.chi2.sf(self.special.statistic(float(values[at])), self.special.instruments)
        return found

    def joint(self, index: Sequence[int], values: Floats) -> float:
        """p-value of values of several coefficients at once; of several it is Wald's."""
        own = list(index)
        if len(own) == 1:
            return float(self.p_of_hull(values, own)[0])
        left = self.estimate[own] - values
        square = float(left @ scipy.linalg.pinvh(self.covariance[np.ix_(own, own)]) @ left)
        return float(stats.chi2.sf(square, len(own)))


@dataclass(frozen=True, eq=False, repr=False)
class InstrumentalModel(FittedModel):
    """Two-stage least squares of one column on others, from a release.

    ``rsquared`` is that of the structural equation, 1 - residuals'/total squares; where it is negative it is 0.

    Attributes
    ----------
    response : str
    endogenous : tuple of str
        Features that are no instruments.
    excluded : tuple of str
        Instruments that are no features.
    coef : dict of str to float
        By encoded column, in the user's units.
    intercept : float
    certificate : Certificate or None
        What was spent on the release.
    """

    response: str
    endogenous: tuple[str, ...]
    excluded: tuple[str, ...]
    coef: dict[str, float]
    intercept: float
    release: Release
    explained: Coding
    given: Coding
    certificate: Certificate | None

    @property
    def _response(self) -> Response:
        return Response.of(self.release.schema, self.response)

    @property
    def test(self) -> AndersonRubin | None:
        """Of the one endogenous feature in the table, where there is one and the test is right."""
        return self._test(None)

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return least squares of the same features as an inference problem."""
        encoded = [column.name for column in self.explained.columns]
        schema, noisy = self.release.schema, self.release.statistic.noisy
        return Problem.of(noisy, schema, self._response, encoded, collapse=collapse, reference=reference)

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        """One endogenous feature has Anderson and Rubin's interval and p-value where they are right, others Wald's."""
        estimand, n_rows = options["estimand"], options["n_rows"]
        check.choice(tuple(TWO_STAGE.intervals_are_for), estimand=estimand)
        if options["collapse"] or options["reference"] or options["max_effect"] != MAX_EFFECT:
            raise ArgumentError("Two-stage least squares has no max_effect=, collapse= or reference=: leave them out.")
        noisy, rows = self.release.statistic.noisy, None
        if estimand == "population":
            noisy.check_independent('estimand="population"', instead='estimand="table"')
            rows = row_count(self.release).rows if n_rows is None else float(check.positive_integer(n_rows=n_rows))
        params, noise, sampling = _solved(self.release, self.response, self.explained, self.given, rows)
        names, special = self.explained.names, self._test(rows)
        place = names.index(self.endogenous[0]) if special is not None else -1
        tests = StageTests(params, noise + sampling, place, special)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.diagonal(noise) / np.maximum(np.diagonal(noise + sampling), 0.0)
        problem = self.problem()
        theta = problem.to_theta(np.array([self.intercept, *self.coef.values()]))
        rsquared, dominates = share_explained(problem, theta)
        return Summary(
            estimand=estimand,
            response_name=self.response,
            params=labelled(names, params),
            bse=labelled(names, tests.std_errors),
            pvalues=labelled(names, tests.p_of_hull(np.zeros(len(names)))),
            noise_share=labelled(names, share),
            bound_dependent=dict.fromkeys(names, False),
            max_effect=math.inf,
            n_rows=rows,
            signal_to_noise=problem.signal_to_noise,
            rsquared=rsquared,
            noise_dominates=dominates,
            nobs=problem.nobs,
            nobs_se=problem.nobs_se,
            least_identified=None,
            family=replace(TWO_STAGE, notes=self._words(special)),
            _problem=problem,
            _score=tests,
            _covariance=noise + sampling,
        )

    def predict(self, data: Any) -> Floats:
        """The structural equation's values for a table with the features, clipped to the response's declared bounds."""
        schema = self.release.schema
        return clipped(schema, self.response, linear_values(schema, self.coef, self.intercept, data))

    def _test(self, rows: float | None) -> AndersonRubin | None:
        """Of the table's own coefficients it is right with one excluded instrument only, and where there is noise.

        The coefficient must be one of the release's own, up to a factor: no higher term may contain the feature.
        """
        schema, noisy = self.release.schema, self.release.statistic.noisy
        if len(self.endogenous) != 1 or (rows is None and (len(self.excluded) != 1 or not noisy.has_noise)):
            return None
        unit = self.explained.units.alone(self.explained.names.index(self.endogenous[0]))
        if unit is None:
            return None
        held = [name for name in self.given.names if name not in self.excluded]
        x, y, z = (_centred(schema, names) for names in (self.endogenous, [self.response], self.excluded))
        combinations = np.vstack([unit * x, y, z])  # x in original units, but for lower terms, which are held
        return AndersonRubin(residuals(noisy, combinations, _centred(schema, held)), rows)

    def _words(self, special: AndersonRubin | None) -> tuple[str, ...]:
        found = f"Endogenous: {', '.join(self.endogenous) or 'none'}; excluded: {', '.join(self.excluded) or 'none'}."
        if special is None:
            return found, "Intervals are Wald's: they fail where instruments are weak."
        weak = ": weak" if special.first_stage < _WEAK else ""
        return found, (
            f"The interval of {self.endogenous[0]} is Anderson and Rubin's, the others are Wald's. "
            f"First stage {special.first_stage:.3g} per instrument{weak}."
        )


def two_stage(noisy: NoisyMoment, X: Floats, Z: Floats, y: Floats, rows: float | None) -> tuple[Floats, Floats, Floats]:
    """θ with its covariances from noise and from sampling, of combinations X (d, m), Z (q, m) and y (m,)."""
    d, q = len(X), len(Z)
    own = noisy.mapped(np.vstack([X, Z, y]))
    M, Q = own.moment, own.shape
    x, z = slice(0, d), slice(d, d + q)
    first = scipy.linalg.lstsq(M[z, z], M[z, x])[0]
    W = scipy.linalg.lstsq(first.T @ M[z, x], first.T)[0]
    theta = W @ M[z, -1]
    a = np.concatenate([-theta, np.zeros(q), [1.0]])
    seen = (Q @ a)[z]
    noise = Q[z, z] * float(a @ Q @ a) + np.outer(seen, seen)
    sampling = np.zeros((q, q)) if rows is None else max(float(a @ M @ a), 0.0) / max(rows - d, 1.0) * M[z, z]
    return theta, W @ noise @ W.T, W @ sampling @ W.T


def fit_instruments(
    release: Release, response: str | list[str], predictors: Sequence[str] | None, instruments: Sequence[str]
) -> InstrumentalModel:
    """The model of :meth:`gaussmix.Release.ols` with ``instruments``."""
    schema = release.schema
    if not isinstance(response, str):
        raise ArgumentError(f"iv needs one response, got {response!r}.")
    if predictors is None or isinstance(predictors, str) or isinstance(instruments, str):
        raise ArgumentError("iv needs a list of predictors and a list of instruments.")
    if not isinstance(column_of(schema, response), Numeric | Boolean):
        raise ArgumentError(f"Column {response!r} must be numeric or boolean to be a response.")
    for name in (*predictors, *instruments):
        column_of(schema, name)
        if name == response:
            raise ArgumentError(f"Column {response!r} is the response and cannot also be a predictor or an instrument.")
    outside = [name for name in instruments if name not in predictors]
    inside = [name for name in predictors if name not in instruments]
    explained, given = Coding.of(schema, predictors), Coding.of(schema, instruments)
    if len(given.names) < len(explained.names):
        raise ArgumentError(
            "There are fewer instruments than predictors. Exogenous predictors must be among the instruments."
        )
    endogenous = [name for name, source in zip(explained.names, explained.sources, strict=True) if source in inside]
    excluded = [name for name, source in zip(given.names, given.sources, strict=True) if source in outside]
    params, _, _ = _solved(release, response, explained, given, None)
    intercept, *slopes = params.tolist()
    coef = dict(zip(explained.names[1:], slopes, strict=True))
    return InstrumentalModel(
        response, tuple(endogenous), tuple(excluded), coef, intercept, release, explained, given, release.certificate
    )


def _solved(
    release: Release, response: str, explained: Coding, given: Coding, rows: float | None
) -> tuple[Floats, Floats, Floats]:
    """Coefficients in the user's units, with their covariances from noise and from sampling."""
    schema, y = release.schema, _centred(release.schema, [response])[0]
    X, Z = _centred(schema, explained.names), _centred(schema, given.names)
    theta, noise, sampling = two_stage(release.statistic.noisy, X, Z, y, rows)
    back = explained.units.centred_matrix()
    params = back @ theta
    params[0] += Response.of(schema, response).centre
    return params, back @ noise @ back.T, back @ sampling @ back.T


def _centred(schema: Schema, names: Sequence[str]) -> Floats:
    """Encoded columns in the user's units about their centres, the constant first, as combinations."""
    units = unweighted_units(schema)
    own = units.deviations([schema.names.index(name) for name in names if name != INTERCEPT])
    return np.vstack([units.one, own]) if INTERCEPT in names else own
