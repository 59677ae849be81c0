"""Generalised linear models of a release: responses, fitted models with intervals, and predictors.

The method is described in :mod:`gaussmix.models.likelihood`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.data.terms import Block, Part
from gaussmix.errors import ArgumentError
from gaussmix.models import rendering
from gaussmix.models.design import (
    Collapse,
    Label,
    Problem,
    Reference,
    Response,
    column_of,
    is_marked,
    part_name,
    sources_of,
)
from gaussmix.models.discriminant import discriminant_of
from gaussmix.models.families import MNLOGIT, Family
from gaussmix.models.inference import SIGNAL, Coefficients, critical_value
from gaussmix.models.likelihood import (
    MANY_COLUMNS,
    Fit,
    Model,
    Rows,
    fit_model,
    mean_of,
    null_coefficients,
    solve,
    solve_posterior,
)
from gaussmix.models.linear import Prediction, Predictor, feature_indices, features_of
from gaussmix.models.predictor_distribution import POINTS, quantiles_of, two_valued
from gaussmix.models.results import (
    Asked,
    CovType,
    FittedClasses,
    FittedModel,
    ResultTable,
    Summary,
    covariance_type,
    left_out_columns,
    ratio_table,
    sample_size,
)
from gaussmix.releases.certificate import Certificate
from gaussmix.releases.counts import RowCounts, kinds_of
from gaussmix.releases.declared import ModelOutput
from gaussmix.releases.noisy import Fitted
from gaussmix.releases.transcript import Transcript

__all__ = [
    "GeneralizedLinearModel",
    "MultinomialModel",
    "are_vectors",
    "class_response",
    "complete_options",
    "count_response",
    "fit_glm",
    "fit_glm_predictor",
    "fit_multinomial",
    "mean_of_response",
    "predictor_coefficients",
    "released_share",
    "summary_of",
]

_ROWS_AT_ONCE = 4096

PRIOR_OF_PREDICTIONS = 2.0
"""Standard deviation of the prior, in place of 3, for coefficients that predict."""


# ---------------------------------------------------------------------------------------------------------------
# Responses
OTHERS = "all others"
"""The class with which one level of a category is compared."""


def labels_of(column: Categorical) -> tuple[Label, ...]:
    """Return the values of the encoded columns of a category: its levels, or labels if there are more of them."""
    return column.levels if len(column.labels) == len(column.levels) else column.labels


def place_of(column: Part, level: object, response: str) -> tuple[int, tuple[Label, ...]]:
    """Return the place of a level of a category, or of false and true, by its value or its label; and all levels."""
    if not isinstance(column, Categorical | Boolean):
        raise ArgumentError(f"level requires a boolean or categorical response, but {response!r} is neither.")
    labels = (False, True) if isinstance(column, Boolean) else labels_of(column)
    found = [k for k, own in enumerate(labels) if level in (own, str(own)) or _word(own) == _word(level)]
    if not found:
        raise ArgumentError(f"{level!r} is not a level of {response!r}; the levels are {', '.join(map(str, labels))}.")
    return found[0], labels


def _word(level: object) -> object:
    """Return ``"true"`` and ``"false"`` for Python's, as in the names of encoded columns."""
    return str(level).lower() if isinstance(level, bool | np.bool_) else level


def class_response(
    schema: Schema, response: str, level: object, family: Family
) -> tuple[Response, tuple[Label, Label]]:
    """Return a column with two values, or one level against all others, as a response of 0 and 1; and both values."""
    column, own = column_of(schema, response), np.eye(schema.n_columns)[list(schema.groups[response])]
    scale = float(schema.units.scales[schema.groups[response][0]])
    if isinstance(column, Boolean):
        second = level is None or place_of(column, level, response)[0] == 1
        classes: tuple[Label, Label] = (not second, second)
        vector, centre = own[0] if second else -own[0], 0.5
    elif isinstance(column, Categorical) and (level is not None or len(own) == 2):
        chosen, labels = (1, labels_of(column)) if level is None else place_of(column, level, response)
        vector, centre, classes = own[chosen], 0.0, (labels[0] if level is None else OTHERS, labels[chosen])
    elif isinstance(column, Categorical):
        raise ArgumentError(f"Column {response!r} has more than two levels: choose one with level=, or use mnlogit.")
    else:
        raise ArgumentError(
            f"response must be a boolean or categorical column for {family.name}, got {response!r}. Use ols or poisson "
            "for numbers."
        )
    return Response(f"{response}={_word(classes[1])}", vector, centre, scale, family), classes


def count_response(schema: Schema, response: str, family: Family) -> Response:
    """Return a number from 0 up as a response."""
    column = schema.parts[response]
    if not isinstance(column, Numeric) or is_marked(schema, response):
        raise ArgumentError(
            f"response must be a numeric column without a missing-value indicator for {family.name}, got "
            f"{response!r}. Use logit for boolean and categorical columns, ols for other numbers."
        )
    if column.lower < 0:
        raise ArgumentError(
            f"response must have a lower bound of 0 or above for {family.name}, got {response!r} with the lower bound "
            f"{column.lower:g}. Use ols, or declare a lower bound of 0 in a new release if no value is below it."
        )
    return Response.of(schema, response, family)


def _exposure(schema: Schema, exposure: str | None, response: str, columns: Sequence[str]) -> str | None:
    if exposure is None:
        return None
    name = part_name(schema, exposure)
    column = schema.columns.get(name)
    if not isinstance(column, Numeric) or column.lower < 0 or is_marked(schema, name):
        raise ArgumentError(
            f"exposure must be a numeric column with a lower bound of 0 or above and no missing values, got {name!r}."
        )
    if name == response or name in columns:
        raise ArgumentError(f"exposure {name!r} must not also be the response or a predictor.")
    return name


# ---------------------------------------------------------------------------------------------------------------
# Fitted models
LARGE = 1 / 3
"""Coefficients whose assumed distribution adds more than this share of the noise's standard error are named."""


@dataclass(frozen=True, repr=False)
class GeneralizedLinearModel(FittedModel):
    """A generalised linear model of one column on others, from a release (:mod:`gaussmix.models.glm`).

    Attributes
    ----------
    response : str
    columns : tuple of str
        Encoded columns of the predictors.
    family : Family
    level : object or None
        The level that is compared with all others, if one is.
    exposure : str or None
        The column that multiplies the mean.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    columns: tuple[str, ...]
    statistic: Transcript = field(compare=False)
    family: Family
    level: object = None
    exposure: str | None = None
    certificate: Certificate | None = field(default=None, compare=False)

    @property
    def _width(self) -> int:
        return len(self.columns)

    @cached_property
    def _model(self) -> Model:
        schema = self.statistic.schema
        if self.family.of_classes:
            response = class_response(schema, self.response, self.level, self.family)[0]
        else:
            response = count_response(schema, self.response, self.family)
        return Model(self.statistic, self.family, self.columns, (response,), self.exposure)

    @property
    def classes(self) -> tuple[Label, Label]:
        """The two classes of the response; the mean is the probability of the second."""
        return class_response(self.statistic.schema, self.response, self.level, self.family)[1]

    def problem(self, *, collapse: Collapse | None = None, reference: Reference | None = None) -> Problem:
        """Return least squares of the response as an inference problem."""
        return self._model.problem(collapse=collapse, reference=reference)

    @cached_property
    def _output(self) -> ModelOutput | None:
        """The outputs of the declared model that this is; None if there are none to use."""
        from gaussmix.models.declared import find_output  # which imports this module

        return find_output(self)

    @cached_property
    def _solution(self) -> Fit:
        from gaussmix.models.declared import declared_fit  # which imports this module

        return fit_model(self._model) if self._output is None else declared_fit(self, self._output)

    def _fit(self, options: Asked) -> tuple[Fit, Summary]:
        from gaussmix.models.declared import declared_summary, with_note  # which imports this module

        own, unit = self.problem(collapse=options["collapse"], reference=options["reference"]), self.statistic.unit
        output = None if options["collapse"] or options["reference"] else self._output
        cov_type = covariance_type(options, declared=output is not None, unit=unit is not None)
        rows = sample_size(own, options["estimand"], options["n_rows"], cov_type)
        if output is not None:
            return declared_summary(self, output, options, rows, cov_type, self._mean)
        default = rows is None and not options["collapse"] and not options["reference"]
        found = (
            self._solution
            if default
            else fit_model(self._model, collapse=options["collapse"], reference=options["reference"], n_rows=rows)
        )
        return found, with_note(self, summary_of(found, 0, np.ones(1), options, mean=self._mean))

    def _summarise(self, **options: Unpack[Asked]) -> Summary:
        return self._fit(options)[1]

    # -- ratios and effects ------------------------------------------------------------------------------------------
    def _ratios(self, name: str, alpha: float, options: Asked) -> ResultTable:
        if self.family.ratio != name:
            raise ArgumentError(f"The family {self.family.name!r} has no {name}s. Use tidy or get_margeff.")
        return ratio_table(self.summary(**options), alpha)

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return odds ratios exp(β) with intervals: term, odds.ratio, conf.low, conf.high, p.value.

        They are factors by which the odds are multiplied: per unit of a number, for true versus false, for a level
        versus the reference level. Options as in :meth:`summary`.
        """
        return self._ratios("odds ratio", alpha, options)

    def rate_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return rate ratios exp(β) with intervals: term, rate.ratio, conf.low, conf.high, p.value."""
        return self._ratios("rate ratio", alpha, options)

    def get_margeff(self, *, dummy: bool = False, alpha: float = 0.05, **options: Unpack[Asked]) -> ResultTable:
        """Return average marginal effects on the mean with intervals, as `get_margeff` of statsmodels.

        The effect of a coefficient is its β times the mean of h'(η). Averages are over the assumed distribution of the
        predictors.

        Parameters
        ----------
        dummy : bool
            Whether booleans and levels have the change of the mean from 0 to 1 instead of the derivative.
        alpha : float
            Intervals have level 1 - alpha.
        **options
            As in :meth:`summary`.
        """
        _check_for_margins(self.statistic.schema, self.columns)
        found, summary = self._fit(complete_options(options))
        known = summary._coefficients.known
        return margins_tables(found, np.ones((1, 1)), known, [summary], dummy=dummy, alpha=alpha)[0]

    # -- predictions -------------------------------------------------------------------------------------------------
    def get_prediction(self, data: Any, **options: Unpack[Asked]) -> Prediction:
        """Return predicted means for the rows of a table with ``conf_int()``, with statsmodels' names.

        Intervals are those of the linear predictor, mapped to the mean. With an exposure the table must contain it.
        """
        own, mean, schema = self.summary(**options), self.family.mean, self.statistic.schema
        if own._problem.coding is None or mean is None:
            raise ArgumentError("get_prediction requires a model fitted from a release.")
        features = features_of(schema, own._problem.coding, data)
        exposure = np.ones(len(features))
        if self.exposure is not None:
            alone = Problem.of(self.statistic.noisy, schema, Response.of(schema, self.response), [self.exposure])
            if alone.coding is not None:
                exposure = features_of(schema, alone.coding, data)[:, 1]
        return Prediction.of_link(own._coefficients, features, mean.inverse, mean.derivative, exposure)

    def predict(self, data: Any) -> Floats:
        """Return predicted means, probabilities of the second class for logit and probit, for the rows of a table.

        They are computed from ``params``; coefficients that are not identified count as 0. If the model does not beat
        the mean of the response at this budget, the mean is returned with a warning. For prediction at small budgets
        see :meth:`gaussmix.Release.predictor`.
        """
        found = self.get_prediction(data)
        if not self._table.noise_dominates:
            return found.predicted_mean
        warnings.warn(f"{rendering.NO_BETTER} The mean is predicted.", UserWarning, stacklevel=2)
        rate = self._mean
        if self.exposure is not None:
            rate /= mean_of_response(self.statistic, Response.of(self.statistic.schema, self.exposure))
        return np.broadcast_to(found.exposure * rate, found.predicted_mean.shape).copy()

    @cached_property
    def _mean(self) -> float:
        """The mean response: the share of the second class, or the mean of a count."""
        mean = released_share if self.family.of_classes else mean_of_response
        return mean(self.statistic, self._model.responses[0])

    # -- goodness of fit ---------------------------------------------------------------------------------------------
    @property
    def deviance(self) -> float:
        """Twice the log-likelihood of a saturated model less that of the model, of all rows, estimated.

        NaN if the family's equation is not that of its likelihood, with an exposure, for counts without cells, and
        where noise makes it negative.
        """
        return self._deviance(self._solution.log_likelihood)

    @property
    def null_deviance(self) -> float:
        """The deviance of the model with a constant alone."""
        return self._deviance(self._solution.null_log_likelihood)

    @property
    def prsquared(self) -> float:
        """Pseudo-R²: 1 - deviance/null deviance, McFadden's for logit; at least 0."""
        whole = self.null_deviance
        return max(1 - self.deviance / whole, 0.0) if whole > 0 else math.nan

    def _deviance(self, log_likelihood: float) -> float:
        mean = self.family.mean
        if mean is None or not mean.is_canonical or self.exposure is not None:
            return math.nan
        saturated = 0.0
        if not self.family.of_classes:
            schema = self.statistic.schema
            column, (index,) = schema.parts[self.response], schema.groups[self.response]
            if self.statistic.marginals is None or not isinstance(column, Numeric):
                return math.nan
            values = quantiles_of(self.statistic, index)((np.arange(POINTS) + 0.5) / POINTS)
            values = np.clip(values, column.lower, column.upper)
            saturated = float(np.mean(mean.saturated(values)))
        found = 2 * self.nobs * (saturated - log_likelihood)
        return found if found >= 0 and not self._solution.unknown[0, 0] else math.nan


def complete_options(options: Asked) -> Asked:
    """Return all options of ``summary``, defaults included."""
    default: Asked = {"estimand": "table", "n_rows": None, "collapse": None, "reference": None, "cov_type": None}
    return {**default, **options}


def summary_of(
    found: Fit,
    place: int,
    weights: Floats,
    options: Asked,
    response: str | None = None,
    *,
    declared: str = "",
    cov_type: CovType = "nonrobust",
    absent: Sequence[Label] = (),
    mean: float = math.nan,
) -> Summary:
    """Return the summary of a combination of the linear predictors of a fit.

    ``declared`` says what the release has for the model because it was declared. With ``absent`` classes of the
    response, nothing is identified. ``mean`` is the mean response, with which a model of one predictor is compared.
    """
    problem, fit = found.problems[place], found.least_squares[place]
    if response is not None:
        problem = replace(problem, response_name=response)
    own = found.coefficients(weights)
    if absent:
        own = own.without(np.ones(len(problem.names), dtype=bool))
    left_out, stands_for = left_out_columns(problem, fit)
    if absent:
        few = f"the count of class {' and of class '.join(map(str, absent))} is not significantly above zero"
        left_out, stands_for = dict.fromkeys(problem.names, few), {}
    for name, known in zip(problem.names, own.known, strict=True):
        if not known and name not in left_out:
            left_out[name] = "too few events among its rows, or the model nearly separates the response"
    family = replace(found.family, notes=(*found.family.notes, *_warnings(found, problem, own)))
    return Summary.of(
        problem,
        fit,
        own,
        estimand=options["estimand"],
        family=family,
        left_out=left_out,
        stands_for=stands_for,
        declared=declared,
        cov_type=cov_type,
        noise_dominates=None if math.isnan(mean) else not np.greater(*found.gain(mean)),
    )


def _warnings(found: Fit, problem: Problem, own: Coefficients) -> list[str]:
    """Return notes about where the method is doubtful."""
    notes = [] if found.converged else ["Newton's method did not converge: the response is nearly separated."]
    if own.assumed is None:
        return notes
    assumed, noise = (np.sqrt(np.maximum(np.diagonal(own_), 0.0)) for own_ in (own.assumed, own.noise + own.sampling))
    known = own.known & (np.array(problem.names) != INTERCEPT)
    for factor, words in (
        (1.0, "depend strongly on the assumed distribution of the predictors"),
        (LARGE, "depend on the assumed distribution of the predictors"),
    ):
        most = math.inf if factor == 1.0 else 1.0
        names = [name for name, a, s, k in zip(problem.names, assumed, noise, known, strict=True)
                 if k and s > 0 and factor * s < a <= most * s]  # fmt: skip
        if names:
            which = "All coefficients" if 3 < len(names) == known.sum() else f"Coefficients of {', '.join(names)}"
            notes.append(
                f"{which} {words}: this assumption adds more than "
                f"{'the' if factor == 1.0 else 'a third of the'} standard error of the noise."
            )
    return notes


def _check_for_margins(schema: Schema, columns: Sequence[str]) -> None:
    """Reject models in which a number has several coefficients."""
    if schema.units.raw is not None and any(
        isinstance(schema.parts[own], Block) for own in sources_of(schema, columns)
    ):
        raise ArgumentError("get_margeff is not available for models with powers, products or splines.")


def margins_tables(
    found: Fit, contrasts: Floats, known: NDArray[np.bool_], summaries: Sequence[Summary], *, dummy: bool, alpha: float
) -> list[ResultTable]:
    r"""Return average marginal effects on the mean of every class, one table per summary, with the delta method.

    θ are the coefficients of ``contrasts`` of the linear predictors. With g_c and H_c the gradient and the Hessian in η
    of the mean of class c, the effect E[g_c]ᵀβ_j moves by E[g_c]ᵀdβ_j + E[β_jᵀH_c dθ x]. ``known`` says which
    coefficients are identified. The notes are those of all summaries.
    """
    alpha = check.in_interval(0, 1, alpha=alpha)
    problem, mean, X, w, T = found.problems[0], mean_of(found.family), found.rows.X, found.rows.weights, found.to_user
    theta, every = contrasts @ found.theta, np.kron(contrasts, np.eye(X.shape[1]))
    covariance = every @ (found.noise + found.sampling + found.assumed) @ every.T
    eta = X @ theta.T
    slope = np.einsum("n,ncq->cq", w, mean.slopes(eta))
    found_rows: list[list[tuple[object, ...]]] = [[] for _ in summaries]
    for place, name in enumerate(problem.names):
        if name == INTERCEPT:
            continue
        if place not in found.kept or not known[place]:
            for rows in found_rows:
                rows.append((name, *[math.nan] * 5))
            continue
        at = found.kept.index(place)
        kind = problem.coding.columns[place].kind if problem.coding is not None else ""
        if dummy and kind in ("level", "boolean"):
            effects, gradients = np.zeros(len(slope)), np.zeros((*slope.shape, X.shape[1]))
            for value, sign in ((1.0, 1), (0.0, -1)):
                moved = X.copy()
                moved[:, _group_of(found, place)] = _reference_entries(found, place)
                moved[:, at] = _entry(problem, place, value)
                own = moved @ theta.T
                effects += sign * (w @ mean.means(own))
                gradients += sign * np.einsum("n,ncq,nd->cqd", w, mean.slopes(own), moved, optimize=True)
        else:
            beta = theta @ T[place]
            effects = slope @ beta
            turned = np.einsum("n,ncq,nd->cqd", w, mean.turns(eta, beta), X, optimize=True)
            gradients = slope[:, :, np.newaxis] * T[place] + turned
        for rows, effect, gradient in zip(found_rows, effects.tolist(), gradients, strict=True):
            error = math.sqrt(max(float(gradient.ravel() @ covariance @ gradient.ravel()), 0.0))
            half = critical_value(alpha) * error
            p = float(2 * special.ndtr(-abs(effect) / error)) if error > 0 else (0.0 if effect else 1.0)
            rows.append((name, effect, error, p, effect - half, effect + half))
    names = ("term", "dy/dx", "std.error", "p.value", "conf.low", "conf.high")
    notes, tables = tuple(dict.fromkeys(note for own in summaries for note in rendering.notes(own))), []
    for rows, summary in zip(found_rows, summaries, strict=True):
        columns = {name: tuple(row[k] for row in rows) for k, name in enumerate(names)}
        title = f"{summary.response_name}: average marginal effects, {100 * (1 - alpha):g} % intervals"
        tables.append(ResultTable(title, columns, notes))
    return tables


def _entry(problem: Problem, place: int, value: float) -> float:
    units = problem.coding.units if problem.coding is not None else None
    return (value - units.centres[place]) / units.scales[place] if units is not None else value


def _group_of(found: Fit, place: int) -> list[int]:
    """Return the features kept that are levels of the same column as a feature."""
    problem = found.problems[0]
    return [found.kept.index(i) for own in problem.groups.values() if place in own for i in own if i in found.kept]


def _reference_entries(found: Fit, place: int) -> list[float]:
    return [_entry(found.problems[0], found.kept[at], 0.0) for at in _group_of(found, place)]


@dataclass(frozen=True, eq=False, repr=False)
class MultinomialModel(FittedClasses):
    """Log odds of every class against one of them, linear in other columns, from a release.

    :meth:`summary` has the coefficients of every class against the first, or against the one that
    ``reference={"species": "setosa"}`` names.

    Attributes
    ----------
    response : str
    classes : tuple
        The levels of the response.
    columns : tuple of str
        Encoded columns of the predictors.
    certificate : Certificate or None
        The certificate of the release.
    """

    response: str
    classes: tuple[Label, ...]
    columns: tuple[str, ...]
    statistic: Transcript
    certificate: Certificate | None = None

    @property
    def _width(self) -> int:
        return len(self.columns)

    @cached_property
    def _model(self) -> Model:
        schema = self.statistic.schema
        responses = [class_response(schema, self.response, level, MNLOGIT)[0] for level in self.classes[1:]]
        return Model(self.statistic, MNLOGIT, self.columns, tuple(responses))

    @cached_property
    def _solution(self) -> Fit:
        return fit_model(self._model)

    def _solved(self, options: Asked) -> tuple[Fit, int, Asked]:
        """Return the model with these options, the place of the reference class, and the options without it."""
        others, column = dict(options["reference"] or {}), self.statistic.schema.columns[self.response]
        r, _ = place_of(column, others.pop(self.response, self.classes[int(np.argmax(self._present))]), self.response)
        covariance_type(options)
        own: Asked = {**options, "reference": others}
        problem = self._model.problem(collapse=own["collapse"], reference=others)
        rows = sample_size(problem, own["estimand"], own["n_rows"])
        default = rows is None and not own["collapse"] and not others
        fit = self._solution if default else fit_model(
            self._model, collapse=own["collapse"], reference=others, n_rows=rows
        )  # fmt: skip
        return fit, r, own

    def _contrasts(self, r: int) -> Floats:
        """Return the log odds of every class against the class r as combinations of the linear predictors."""
        scores = np.vstack([np.zeros(len(self.classes) - 1), np.eye(len(self.classes) - 1)])
        return np.asarray(scores - scores[r])

    def _summarise(self, **options: Unpack[Asked]) -> dict[Label, Summary]:
        fit, r, own = self._solved(options)
        contrasts, present, found = self._contrasts(r), self._present, dict[Label, Summary]()
        for k, name in enumerate(self.classes):
            if k == r:
                continue
            words = f"{self.response}={_word(name)} against {_word(self.classes[r])}"
            absent = [self.classes[i] for i in (k, r) if not present[i]]
            found[name] = summary_of(fit, max(k - 1, 0), contrasts[k], own, words, absent=absent)
        return found

    @cached_property
    def _present(self) -> NDArray[np.bool_]:
        """Which classes have significantly more than zero rows."""
        counts = RowCounts(self.statistic).of(self.response)
        return np.asarray(counts.values > SIGNAL * counts.std_errors)

    @property
    def _present_places(self) -> list[int]:
        """The places of the classes that have rows. The first of them is the default reference."""
        if not self._present.any():
            raise ArgumentError(
                "No class has a count that is significantly above zero at this budget. Use a larger epsilon or more "
                "rows."
            )
        return np.flatnonzero(self._present).tolist()

    @property
    def deviance(self) -> float:
        """Twice the negative log-likelihood of all rows. NaN where it would be negative or noise hides a class."""
        return self._deviance(self._solution.log_likelihood)

    @property
    def null_deviance(self) -> float:
        """The deviance of the model with a constant of each class alone."""
        return self._deviance(self._solution.null_log_likelihood)

    @property
    def prsquared(self) -> float:
        """McFadden's pseudo-R²: 1 - deviance/null deviance; at least 0."""
        whole = self.null_deviance
        return max(1 - self.deviance / whole, 0.0) if whole > 0 else math.nan

    def _deviance(self, log_likelihood: float) -> float:
        found = -2 * self.nobs * log_likelihood
        return found if found >= 0 and self._present.all() else math.nan

    def odds_ratios(self, alpha: float = 0.05, **options: Unpack[Asked]) -> dict[Label, ResultTable]:
        """Return odds ratios of every class against one of them, with intervals; options of :meth:`summary`."""
        return {name: ratio_table(own, alpha) for name, own in self.summary(**options).items()}

    def get_margeff(
        self, *, dummy: bool = False, alpha: float = 0.05, **options: Unpack[Asked]
    ) -> dict[Label, ResultTable]:
        """Return average marginal effects on the probability of every class; options as for models of two classes.

        The effects of one predictor add up to 0 over classes. A predictor whose coefficient is not identified for one
        class has none, and neither has a class whose count is not significantly above zero.
        """
        _check_for_margins(self.statistic.schema, self.columns)
        fit, _, own = self._solved(complete_options(options))
        first, *others = self._present_places
        contrasts, known = self._contrasts(first), np.full(len(fit.problems[0].names), bool(others))
        for k in others:
            known &= fit.coefficients(contrasts[k]).known
        summaries = [
            summary_of(fit, max(k - 1, 0), contrasts[k], own, f"{self.response}={_word(self.classes[k])}")
            for k in (first, *others)
        ]
        tables = margins_tables(fit, contrasts[others], known, summaries, dummy=dummy, alpha=alpha)
        return {self.classes[k]: table for k, table in zip((first, *others), tables, strict=True)}

    def get_prediction(self, data: Any, **options: Unpack[Asked]) -> dict[Label, Prediction]:
        """Return the probability of every class for the rows of a table, with ``conf_int()``.

        Intervals are those of the log odds of the class against all others, mapped to the probability. A class whose
        count is not significantly above zero has probability 0, without an interval.
        """
        fit, features, eta = self._log_odds(data, complete_options(options))
        first, *others = self._present_places
        contrasts, n = self._contrasts(first), len(features)
        known = [fit.coefficients(contrasts[k]).known for k in others]
        found = {}
        for k, name in enumerate(self.classes):
            if not self._present[k] or not all(own[0] for own in known) or not others:
                p, unknown = special.softmax(eta, axis=1)[:, k], np.full(n, np.nan)
                found[name] = Prediction(p, unknown, special.logit(p), unknown, special.expit)
                continue
            T = np.kron(contrasts[others], fit.to_user) * np.concatenate(known)[:, np.newaxis]
            covariance = T @ (fit.noise + fit.sampling + fit.assumed) @ T.T
            rest = eta.copy()
            rest[:, k] = -np.inf
            linear, error = eta[:, k] - special.logsumexp(rest, axis=1), np.empty(n)
            moves = (np.arange(len(self.classes)) == k) - special.softmax(rest, axis=1)
            for own in (slice(start, start + _ROWS_AT_ONCE) for start in range(0, n, _ROWS_AT_ONCE)):
                along = (moves[own][:, others, np.newaxis] * features[own][:, np.newaxis]).reshape(-1, len(T))
                error[own] = np.sqrt(np.maximum(np.sum((along @ covariance) * along, axis=1), 0.0))
            p = special.expit(linear)
            found[name] = Prediction(p, p * (1 - p) * error, linear, error, special.expit)
        return found

    def _log_odds(self, data: Any, options: Asked) -> tuple[Fit, Floats, Floats]:
        """Return the model, the features of the rows of a table, and log odds of all classes; -∞ for absent ones."""
        fit, _, _ = self._solved(options)
        first, *others = self._present_places
        if (coding := fit.problems[0].coding) is None:
            raise ArgumentError("Predictions require a model fitted from a release.")
        features, contrasts = features_of(self.statistic.schema, coding, data), self._contrasts(first)
        eta = np.full((len(features), len(self.classes)), -np.inf)
        eta[:, first] = 0.0
        for k in others:
            eta[:, k] = features @ np.nan_to_num(fit.coefficients(contrasts[k]).estimate)
        return fit, features, eta

    def predict(self, data: Any) -> Floats:
        """Return probabilities of all classes, shape (rows, classes); coefficients not identified count as 0.

        The probability of a class whose count is not significantly above zero is 0.
        """
        _, _, eta = self._log_odds(data, complete_options({}))
        return np.asarray(special.softmax(eta, axis=1))


def fit_glm(
    statistic: Transcript,
    family: Family,
    response: str,
    predictors: Sequence[str] | None,
    *,
    level: object = None,
    exposure: str | None = None,
) -> GeneralizedLinearModel:
    """Return a generalised linear model of a column on other columns."""
    schema = statistic.schema
    response = part_name(schema, response)
    responses = [response, *([] if exposure is None else [part_name(schema, exposure)])]
    features = feature_indices(schema, responses if predictors is None else [response], predictors)
    columns = tuple(schema.names[i] for i in features if schema.encoded[i].source is not None)
    if not schema.intercept:
        raise ArgumentError(f"{family.name} requires a release with an intercept.")
    found = GeneralizedLinearModel(
        response, columns, statistic, family, level, _exposure(schema, exposure, response, columns)
    )
    found._model  # noqa: B018 - rejects responses that do not suit the family
    return found


def fit_multinomial(statistic: Transcript, response: str, predictors: Sequence[str] | None) -> MultinomialModel:
    """Return the model of the levels of a category on other columns."""
    schema = statistic.schema
    response = part_name(schema, response)
    column = column_of(schema, response)
    if not isinstance(column, Categorical) or len(column.labels) < 3:
        raise ArgumentError(
            f"response must be a categorical column with more than two levels for mnlogit, got {response!r}. Use logit "
            "for two classes, ols for numbers."
        )
    if not schema.intercept:
        raise ArgumentError("mnlogit requires a release with an intercept.")
    features = feature_indices(schema, [response], predictors)
    columns = tuple(schema.names[i] for i in features if schema.encoded[i].source is not None)
    return MultinomialModel(response, labels_of(column), columns, statistic)


# ---------------------------------------------------------------------------------------------------------------
# Predictors
_NODES = 64


def fit_glm_predictor(
    statistic: Transcript, family: Family, response: str, predictors: Sequence[str] | None, level: object = None
) -> Predictor:
    """Return coefficients that predict, from the ridge regression that is tuned for prediction under the noise.

    The equation is the same, with the ridge's coefficients in place of b, all levels as features, and a prior with
    standard deviation `PRIOR_OF_PREDICTIONS`. Entries of vectors that have two values are drawn as booleans
    (:func:`~gaussmix.models.predictor_distribution.two_valued`). A vector without such entries, or with very many
    entries, is taken as normal (`_along_the_fit`).
    """
    schema, mean = statistic.schema, family.mean
    response = part_name(schema, response)
    if mean is None:
        raise ArgumentError(f"family must be logit, probit or poisson for predictor, got {family.name!r}.")
    own = (
        class_response(schema, response, level, family)[0]
        if family.of_classes
        else count_response(schema, response, family)
    )
    features = feature_indices(schema, [response], predictors)
    theta = _declared_predictor(statistic, family, response, predictors, level, features)
    if theta is None:
        theta = predictor_coefficients(statistic, family, own, features)
    coef, intercept = schema.units.coefficients(features, theta)
    return Predictor(response, coef, intercept, schema, family)


def _declared_predictor(
    statistic: Transcript,
    family: Family,
    response: str,
    predictors: Sequence[str] | None,
    level: object,
    features: Sequence[int],
) -> Floats | None:
    """Return θ on encoded columns after the steps of a declared model; None if the model was not declared."""
    from gaussmix.models.declared import find_output, predictive_coefficients  # which imports this module

    if not statistic.models:
        return None
    fitted = fit_glm(statistic, family, response, predictors, level=level)
    output = find_output(fitted)
    return None if output is None else predictive_coefficients(fitted, output)[list(features)]


def are_vectors(schema: Schema, features: Sequence[int]) -> bool:
    """Return whether all features but the constant are entries of vectors."""
    sources = {schema.encoded[i].source for i in features} - {None}
    return all(isinstance(schema.parts[name or ""], Vector) for name in sources)


def _are_normal(statistic: Transcript, features: Sequence[int]) -> bool:
    """Return whether all features are taken as normal: entries of vectors, none of which has two values, or many."""
    schema = statistic.schema
    if not are_vectors(schema, features):
        return False
    names = sorted({name for i in features if (name := schema.encoded[i].source)})
    return len(features) > MANY_COLUMNS or not two_valued(statistic, names)


def predictor_coefficients(statistic: Transcript, family: Family, own: Response, features: Sequence[int]) -> Floats:
    """Return θ on encoded columns from the ridge regression alone."""
    b = statistic.solve(features, own.vector[:, np.newaxis])[:, 0]
    if not statistic.schema.intercept or _are_normal(statistic, features):
        return _along_the_fit(statistic, family, own, features, b)
    return _penalised(statistic, family, own, features, b)


def _penalised(statistic: Transcript, family: Family, own: Response, features: Sequence[int], b: Floats) -> Floats:
    """Return θ on encoded columns by the equation on drawn rows, with the released share of a class."""
    schema, noisy, x, mean = statistic.schema, statistic.predictive, list(features), family.mean
    if mean is None:
        raise ArgumentError(f"family must have one linear predictor, got {family.name!r}.")
    names = tuple(schema.names[i] for i in x if schema.encoded[i].source is not None)
    X = Model(statistic, family, names, (own,), booleans=True).distributions()[0].rows[:, x]
    rows, n = Rows(X, np.full(len(X), 1 / len(X))), max(float(schema.units.one @ noisy.moment @ schema.units.one), 1.0)
    fitted = X @ b * own.scale + own.centre
    if family.of_classes and noisy.has_noise:
        fitted += released_share(statistic, own) - fitted.mean()
    wanted = fitted @ X / len(X)
    at = x.index(schema.groups[INTERCEPT][0])
    order = [at, *(i for i in range(len(x)) if i != at)]  # the intercept first
    start = null_coefficients(family, Rows(X[:, order], rows.weights), wanted[np.newaxis, order])[0][np.argsort(order)]
    if not noisy.has_noise:
        penalty = 1e-10 * np.maximum(np.mean(X**2, axis=0), 1e-10)
        found = solve(rows, wanted[np.newaxis], mean_of(family), penalty=penalty[np.newaxis], start=start[np.newaxis])
        return np.asarray(found.theta[0])
    a = own.vector.copy()
    a[x] -= b
    Na = noisy.shape @ a
    noise = (own.scale / n) ** 2 * (noisy.shape[np.ix_(x, x)] * float(a @ Na) + np.outer(Na[x], Na[x]))
    weights = np.array([schema.parts[name].weight if (name := schema.encoded[i].source) else 0.0 for i in x])
    with np.errstate(divide="ignore"):
        prior = PRIOR_OF_PREDICTIONS / weights
    return np.asarray(solve_posterior(rows, wanted, mean, noise=noise, prior=prior, start=start).theta[0])


def released_share(statistic: Transcript, own: Response) -> float:
    """Return the share of rows of a class, from counts of rows and from the passes (:func:`_combined`).

    It is at least its standard error, which stands for a share that noise hides, and at most 1 minus it.
    """
    schema = statistic.schema
    source = schema.encoded[int(np.flatnonzero(own.vector)[0])].source or ""
    group, kinds = list(schema.groups[source]), kinds_of(schema, source)[1]
    entries = (kinds - schema.units.centres[group]) / schema.units.scales[group]
    events = own.centre + own.scale * (entries @ own.vector[group])  # 1 for the level that is the class, else 0
    counts = RowCounts(statistic).of(source)
    rows = max(float(counts.values.sum()), 1.0)
    share, error = _combined(statistic, own, counts.mapped(events[np.newaxis]), rows)
    least = float(np.clip(error, 1 / rows, 0.5))
    return float(np.clip(share, least, 1 - least))


def mean_of_response(statistic: Transcript, own: Response) -> float:
    """Return the mean of a number, from its sum and from the passes (:func:`_combined`), within its bounds.

    It is at least its standard error, which stands for a mean that noise hides. Numbers computed from other columns,
    such as logarithms, have no sum of their own.
    """
    schema = statistic.schema
    name = schema.encoded[int(np.flatnonzero(own.vector)[0])].source or ""
    column, total, rows = schema.parts[name], None, 1.0
    if name in schema.columns:
        counts = RowCounts(statistic)
        total, rows = counts.totals([name]), max(counts.rows[0], schema.weight_bound)
    mean, error = _combined(statistic, own, total, rows)
    lower, upper = (column.lower, column.upper) if isinstance(column, Numeric) else (0.0, math.inf)
    return min(max(mean, error, lower, 1e-9), upper)


def _combined(statistic: Transcript, own: Response, total: Fitted | None, rows: float) -> tuple[float, float]:
    """Return the mean of a response from its noisy total over all rows and from the passes, and its standard error.

    The passes have less noise, but norm clipping takes more from rare values than from others. As in a random-effects
    mean (DerSimonian and Laird), a difference from the total beyond the noise of both counts as an error of the
    passes, so that the total decides where clipping does.
    """
    noisy, one = statistic.predictive, statistic.schema.units.one
    y = own.centre * one + own.scale * own.vector
    n = max(float(one @ noisy.moment @ one), 1.0)
    mean, N = float(one @ noisy.moment @ y) / n, noisy.shape
    variance = (float(one @ N @ one) * float(y @ N @ y) + float(one @ N @ y) ** 2) / n**2
    if total is None:
        return mean, math.sqrt(variance)
    counted, error = float(total.values[0]) / rows, float(total.std_errors[0]) / rows
    between = max((counted - mean) ** 2 - error**2 - variance, 0.0)
    weights = np.array([1 / max(error**2, 1e-300), 1 / max(variance + between, 1e-300)])
    return float(weights @ [counted, mean] / weights.sum()), float(weights.sum() ** -0.5)


def _along_the_fit(statistic: Transcript, family: Family, own: Response, features: Sequence[int], b: Floats) -> Floats:
    r"""Return θ on encoded columns where predictors are normal, within classes with one covariance.

    By Stein's lemma θ is then b times a number, but for the intercept: the equation has two unknowns, and its
    expectations are over s, the fitted value. With R² the share of the response's variance that is explained, s has the
    variance R² Var(y), which is also its covariance with y. For logit it is Fisher's discriminant.
    """
    schema, noisy = statistic.schema, statistic.predictive
    if family.of_classes:
        signed = replace(own, vector=own.vector * (own.scale / 0.5), scale=0.5)
        found = discriminant_of(statistic, signed, list(features), b * (own.scale / 0.5))
        pi, explained = found.share, found.explained
        whole = pi * (1 - pi)
        centres, shares = np.array([pi - pi * explained, pi + (1 - pi) * explained]), np.array([1 - pi, pi])
        deviation = math.sqrt(whole * explained * (1 - explained))
    else:
        one, vector = schema.units.one, own.centre * schema.units.one + own.scale * own.vector
        n = max(float(one @ noisy.moment @ one), 1.0)
        mean, square = float(one @ noisy.moment @ vector) / n, float(vector @ noisy.moment @ vector) / n
        left = statistic.residual(features, own.vector) * own.scale**2 / n
        centres, shares = np.array([max(mean, 1e-12)]), np.ones(1)
        deviation = math.sqrt(max(square - mean**2 - left, 0.0))
    z, w = np.polynomial.hermite_e.hermegauss(_NODES)
    s = (centres[:, np.newaxis] + deviation * z).ravel()
    weights = (shares[:, np.newaxis] * (w / w.sum())).ravel()
    middle = float(weights @ s)
    X = np.column_stack([np.ones(len(s)), s - middle])
    wanted = (weights * s) @ X
    rows = Rows(X, weights)
    start = null_coefficients(family, rows, wanted[np.newaxis])
    if deviation == 0 and len(np.unique(centres)) == 1:  # nothing is explained: b is 0 but for the intercept
        intercept, slope = float(start[0, 0]), 0.0
    else:
        solved = solve(rows, wanted[np.newaxis], mean_of(family), penalty=np.full((1, 2), 1e-12), start=start)
        intercept, slope = solved.theta[0].tolist()
    theta = slope * own.scale * b
    if schema.intercept:
        theta[list(features).index(schema.groups[INTERCEPT][0])] += (
            intercept + slope * (own.centre - middle)
        ) / schema.rounded_intercept
    return np.asarray(theta)
