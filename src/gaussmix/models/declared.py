r"""Declared models: private Newton steps on the likelihood and sandwich covariances, planned and read from a release.

Every function here reads declared constants and noisy outputs, never rows.

**Start.** θ₀ and the Hessian per row, H(θ) = E[h'(xᵀθ) x xᵀ], are those of the release's own solution
(:mod:`gaussmix.models.likelihood`), on the columns that it identifies. Scores are mapped by E = H(θ₀)^(-½), so that
their second moments are about 1 in every direction and ‖s‖² is about d. A linear model has θ̂ of the release, and
E = (s² M/n)^(-½), s² the residual variance.

If noise hides the model, so that the passes give no such start, rows are asked for scores of the constant alone
(`Plan.public`): the budget is spent by then. These outputs are not used.

**Clip.** A noisy histogram of ‖s‖² gives an estimate of what clipping at c removes, L(c) = Σ(‖s‖ - √c)₊. The clip
minimises c/μ² + (3L/2)²: the variance of one entry of Σ s̄, and more than the square of its bias if all of L points
one way, as it does where scores have a long tail in one direction.

**Steps.** With g = Σ s̄ plus noise of standard deviation √c/μ in each entry, n̂ the noisy number of rows,

.. math:: \theta_{t+1} = \theta_t + (\hat n H(\theta_t))^{-1} E^{-1} g .

In place of this linear equation the likelihood equation of drawn rows, with the mean score moved by E⁻¹g/n̂, is solved
as in :mod:`gaussmix.models.likelihood`: the same to first order, and it holds farther away. The first step is
multiplied by τ²/(τ² + c/μ²), τ² = max(0, ‖g‖²/d - c/μ²), as much as stands out of its noise; for prediction the second
too. With a privacy unit the noise of a step may exceed that of θ₀ in some directions, and each θ is θ₀ + V(θ - θ₀), V
the weight with the least error if θ₀ has `_START` times its stated covariance. (For rows this made coverage worse where
the response is nearly separated.) Since H is that of an assumed distribution, a part of the distance to
the maximum likelihood remains. The second sum shows by how much the first step changed the score along its direction;
the last step is corrected by that (a secant step). If steps of lengths ℓ₁ and ℓ₂ (in the norm of H, less their noise)
were taken, about ℓ₂/ℓ₁ times the last one remains, which is added to the covariance in place of the difference between
assumed distributions.

**Covariance.** The estimate has the covariance (1 + B²)(c/μ²)(n̂H)⁻¹(EᵀE)⁻¹(n̂H)⁻¹ from noise, B = min(μL/4√c, ½) the
allowance for clipping (:meth:`gaussmix.releases.transcript.Transcript.clipping_bias`). For the population

.. math:: \frac{n}{n - d}\,(\hat n H)^{-1} E^{-1} W E^{-\top} (\hat n H)^{-1}

is added, W the released Σ s̄ s̄ᵀ divided by the share of Σ‖s‖² that clipping left: the sandwich (HC1), whatever the
variance of the response is. Where noise dominates W, it is shrunk to a multiple of the model's n̂EHEᵀ (`_middle`). With
a privacy unit s is the sum over the rows of a unit, and the covariance is robust to any dependence within units
(cluster-robust).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Numeric
from gaussmix.data.schema import INTERCEPT, Schema, response_and_predictors
from gaussmix.data.transforms import Transform
from gaussmix.errors import ArgumentError
from gaussmix.models import FAMILIES
from gaussmix.models.design import Problem, Response, column_of, part_name, sources_of
from gaussmix.models.families import OF_STEPS, Family, Mean, family_of
from gaussmix.models.glm import GeneralizedLinearModel, are_vectors, fit_glm, predictor_coefficients, summary_of
from gaussmix.models.inference import SIGNAL, Coefficients, Flags, LeastSquares, least_squares, on_columns
from gaussmix.models.likelihood import (
    LEAST_DRAWN,
    LEAST_KEPT,
    Fit,
    Model,
    Rows,
    dispersion,
    drawn_rows,
    fit_model,
    mean_of,
    model_sampling,
    null_coefficients,
    solve_noisy,
)
from gaussmix.models.linear import RegressionModel, fit_regressions
from gaussmix.models.results import (
    Asked,
    CovType,
    Summary,
    covariance_type,
    left_out_columns,
    sample_size,
    summarise,
)
from gaussmix.releases.counts import RowCounts, level_counts
from gaussmix.releases.declared import LINEAR_NAME, MOST_MODELS, DeclaredModel, ModelBudget, ModelOutput
from gaussmix.releases.preconditioning import read_tail
from gaussmix.releases.transcript import ALIGNMENT, LARGEST_BIAS, Transcript

__all__ = [
    "Plan",
    "Scan",
    "declared_fit",
    "declared_summary",
    "find_output",
    "model_budget",
    "predictive_coefficients",
    "sandwich_summary",
    "scans_of",
    "with_note",
]

_RANGE = 1e-7  # least eigenvalue of the Hessian relative to the largest
_LEAST_MARGIN = 2.0**-60  # stands for coefficients that are all zero
_ALIGNED = 1.5  # weight of what clipping removes against noise: all of it may point one way
_DIFFERENT = 3.0  # standard errors by which the tail of ‖s‖² must differ from the simulated one
_HIDDEN = 0.4  # excess, in units of √clip, of rows that the noise of a count hides
_FARTHEST, _TIMES = 3.0, 5  # standard deviations of the prior that a coefficient may be away, and attempts
_START = 4.0  # by which the covariance of the start is multiplied where steps are weighed against it
_MOST_CURVED = 4.0  # largest factor by which the curvature along the first step is corrected
_ROUNDS, _MOST = 5, 8.0  # of raking, and the largest factor of a round
_COUNTS = 64  # simulated counts of a Poisson model
_LEAST_DISPERSION = 0.1  # least eigenvalue of the middle of the sandwich relative to the model's
_MOST_SINGULAR = 1e12  # largest condition number of E
_FLOOR = 0.5  # of the mean curvature over d: least eigenvalue of H for which scores are mapped to unit moments


# ---------------------------------------------------------------------------------------------------------------
# Declarations
def model_budget(schema: Schema, models: Sequence[DeclaredModel | str], share: float) -> ModelBudget | None:
    """Check declared models against a schema; return them with their families, or None without models."""
    if isinstance(models, str | DeclaredModel):
        models = [models]
    if not models:
        return None
    if len(models) > MOST_MODELS:
        raise ArgumentError(f"At most {MOST_MODELS} models can be declared, got {len(models)}.")
    named = [_with_family(schema, DeclaredModel.of(model)) for model in models]
    if len(set(named)) < len(named):
        twice = next(model for k, model in enumerate(named) if model in named[:k])
        raise ArgumentError(f"models must not contain duplicates, got {twice.formula!r} twice.")
    sizes = [_Resolved(Transcript((), schema), model).size for model in named]
    found = ModelBudget(tuple(named), tuple(sizes), share)
    found.fraction  # noqa: B018 - rejects shares outside (0, 1)
    return found


def _with_family(schema: Schema, model: DeclaredModel) -> DeclaredModel:
    if model.family is not None:
        if model.family not in (LINEAR_NAME, *FAMILIES):
            options = ", ".join((LINEAR_NAME, *FAMILIES))
            raise ArgumentError(f"family of a declared model must be one of {options}, got {model.family!r}.")
        return model
    response, _ = response_and_predictors(model.formula, None)
    numeric = isinstance(column_of(schema, response), Numeric)
    return replace(model, family=LINEAR_NAME if numeric else "logit")


@dataclass(frozen=True, eq=False)
class _Resolved:
    """A declared model on the columns of a release."""

    statistic: Transcript
    model: DeclaredModel

    @cached_property
    def fitted(self) -> GeneralizedLinearModel | RegressionModel:
        """The model as the release computes it without steps."""
        response, predictors = response_and_predictors(self.model.formula, None)
        if not self.statistic.schema.intercept:
            raise ArgumentError("Declared models require a release with an intercept.")
        if self.model.is_linear:
            if self.model.exposure is not None or self.model.level is not None:
                raise ArgumentError(
                    f"exposure and level cannot be given for a declared model of family {LINEAR_NAME!r}. Omit them."
                )
            (found,) = fit_regressions(self.statistic, [response], predictors, None).values()
            return found
        family = family_of(self.model.family or "")
        options = {"level": self.model.level, "exposure": self.model.exposure}
        return fit_glm(self.statistic, family, response, predictors, **options)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """Number of encoded columns of the predictors, the constant included."""
        return len(self.fitted.columns) + 1

    @property
    def response(self) -> Response:
        """The response; that of a linear model in encoded units."""
        if isinstance(self.fitted, RegressionModel):
            return replace(Response.of(self.statistic.schema, self.fitted.response), centre=0.0, scale=1.0)
        return self.fitted._model.responses[0]

    @property
    def family(self) -> Family | None:
        """The family; None for a linear model."""
        return None if isinstance(self.fitted, RegressionModel) else self.fitted.family

    def problem(self) -> Problem:
        """Return least squares of the response."""
        return self.fitted.problem()


def find_output(fitted: GeneralizedLinearModel | RegressionModel) -> ModelOutput | None:
    """Return the outputs of the declared model that a model of a release is; None if there are none to use."""
    output = _declared_as(fitted)
    return output if output is not None and _is_readable(fitted, output) else None


def with_note(fitted: GeneralizedLinearModel | RegressionModel, summary: Summary) -> Summary:
    """Return the summary of a model without steps, with a note if it was declared and its outputs are of no use."""
    output = _declared_as(fitted)
    if output is None or _is_readable(fitted, output):
        return summary
    return replace(summary, family=replace(summary.family, notes=(*summary.family.notes, _NOT_USED)))


_NOT_USED = "The outputs of the declared model are not used, because noise dominates its signal at this budget."
_FAILURES = (ArithmeticError, LookupError, ValueError)  # errors of the library and of linear algebra among them


def _is_readable(fitted: GeneralizedLinearModel | RegressionModel, output: ModelOutput) -> bool:
    """Return whether a model was planned from the passes, and its outputs give finite coefficients and covariances."""
    if _is_public(fitted.statistic, output):
        return False
    rows = max(fitted.statistic.rows, 1.0)
    try:
        with np.errstate(all="ignore"):
            if isinstance(fitted, RegressionModel):
                found = [_sandwich(fitted, output, fitted.problem(), rows).sampling]
            else:
                fit = declared_fit(fitted, output, rows)
                found = [fit.theta, fit.noise, fit.sampling, fit.assumed, predictive_coefficients(fitted, output)]
    except _FAILURES:
        return False
    return all(np.isfinite(own).all() for own in found)


def _is_public(statistic: Transcript, planned: Plan | ModelOutput) -> bool:
    """Return whether a plan, or that of outputs, is `Plan.public`."""
    return planned.metric == Plan.public(statistic, planned.model).metric


def _declared_as(fitted: GeneralizedLinearModel | RegressionModel) -> ModelOutput | None:
    for output in fitted.statistic.models:
        own = _Resolved(fitted.statistic, output.model)
        if type(own.fitted) is type(fitted) and _same(own.fitted, fitted):
            return output
    return None


def _same(one: GeneralizedLinearModel | RegressionModel, other: GeneralizedLinearModel | RegressionModel) -> bool:
    if one.response != other.response or {*one.columns} != {*other.columns}:
        return False
    if isinstance(one, RegressionModel) or isinstance(other, RegressionModel):
        return True
    same = one.family.name == other.family.name and one.exposure == other.exposure
    return same and np.array_equal(one._model.responses[0].vector, other._model.responses[0].vector)


# ---------------------------------------------------------------------------------------------------------------
# Planning
@dataclass(frozen=True, eq=False)
class Scan:
    """What is asked of the rows: the public parameters of their scores."""

    metric: Transform
    linear: Transform
    mean: Callable[[Floats], Floats] | None
    response: float
    exposure: float


@dataclass(frozen=True, eq=False)
class Plan:
    """A declared model while its outputs are drawn.

    Attributes
    ----------
    features : array (d, m)
        The features kept as sums of encoded columns.
    theta : array (d,)
    metric : Transform
    drawn : _Drawn or None
        Simulated scores, for the clip; None for linear models.
    begun : Fit or None
        The release's own solution, if it was solved already.
    """

    statistic: Transcript
    model: DeclaredModel
    features: Floats
    theta: Floats
    metric: Transform
    drawn: _Drawn | None = None
    begun: Fit | None = None

    @classmethod
    def of(cls, statistic: Transcript, model: DeclaredModel) -> Plan:
        """Return the plan of a model from the passes; `public` if they give none."""
        return _valid(lambda: cls._from_passes(statistic, model)) or cls.public(statistic, model)

    @classmethod
    def public(cls, statistic: Transcript, model: DeclaredModel) -> Plan:
        """Return a plan from the schema alone: the constant with θ = 0, in units of its entry."""
        schema = statistic.schema
        features = np.eye(schema.n_columns)[list(schema.groups[INTERCEPT])]
        metric = Transform.nearest(schema.row_norm * features / schema.rounded_intercept)
        return cls(statistic, model, features, np.zeros(1), metric)

    @classmethod
    def _from_passes(cls, statistic: Transcript, model: DeclaredModel) -> Plan:
        own, C = _Resolved(statistic, model), statistic.schema.row_norm
        if isinstance(own.fitted, RegressionModel):
            problem = own.problem()
            fit, n = _least_squares(problem), max(statistic.rows, 1.0)
            kept = list(fit.kept)
            variance = max(fit.residual / n, 1e-12 * max(float(problem.noisy.moment[-1, -1]) / n, 1e-12))
            H = variance * problem.noisy.moment[np.ix_(kept, kept)] / n
            features = _coding(problem)[kept]
            E = _whitening(H, variance, _spans(statistic.schema, features))
            return cls(statistic, model, features, fit.theta[kept], Transform.nearest(C * (E @ features)))
        features, theta, begun = _start(own.fitted)
        rows, shares = _rows(own.fitted._model, features)
        curvatures = mean_of(own.fitted.family).weights(rows.X @ theta[:, np.newaxis])
        spans = _spans(statistic.schema, features)
        E = _whitening(rows.moments(curvatures), float(rows.weights @ curvatures[:, 0, 0]), spans)
        phi = dispersion(own.fitted._model, rows, theta[np.newaxis])
        drawn = _Drawn.of(own.fitted.family, rows, shares, theta, E, phi)
        return cls(statistic, model, features, theta, Transform.nearest(C * (E @ features)), drawn, begun)

    @property
    def size(self) -> int:
        """The number of features, d."""
        return len(self.theta)

    def scan(self) -> Scan:
        """Return the parameters of the scores at θ."""
        schema, own = self.statistic.schema, _Resolved(self.statistic, self.model)
        response = own.response
        coefficients = self.features.T @ self.theta
        if not coefficients.any():
            coefficients[schema.groups[INTERCEPT][0]] = _LEAST_MARGIN
        rows, centre = [coefficients, response.scale * response.vector], 0.0
        if self.model.exposure is not None:
            (index,) = schema.groups[part_name(schema, self.model.exposure)]
            rows.append(np.eye(schema.n_columns)[index] * schema.units.scales[index])
            centre = float(schema.units.centres[index])
        linear = Transform.nearest(schema.row_norm * np.array(rows))
        mean = None if own.family is None or own.family.mean is None else own.family.mean.by_row
        return Scan(self.metric, linear, mean, response.centre, centre)

    def expected(self) -> float:
        """Return the expected ‖s‖² of a row or, with a privacy unit, of a unit of independent rows."""
        most = 1.0 if self.statistic.unit is None else float(self.statistic.unit.max_contributions)
        return self.size * math.sqrt(most)

    def clip(self, counts: Floats, edges: Floats, *, noise: float, mu: float) -> tuple[float, float, float]:
        """Return the clip, L in units of √clip, and the share of Σ‖s‖² that clipping removes.

        ``counts`` are those of a histogram with ``edges`` and the given noise; ``mu`` is the part of the last sum.
        """
        rows = max(float(counts.sum()), 10.0)
        largest = 4 * float(edges[-1])
        classes = not self.model.is_linear and family_of(str(self.model.family)).of_classes
        if self.statistic.unit is None and classes:  # |y - μ| ≤ 1
            largest = min(largest, self.metric.largest_squared_norm)
        tail = read_tail(counts, edges, noise=noise, rows=rows, largest=largest)
        beyond = tail.beyond
        if self.drawn is not None and self.statistic.unit is None:
            seen = np.append(np.cumsum(counts[: len(beyond)][::-1])[::-1][1:], 0.0)
            errors = noise * np.sqrt(np.arange(len(beyond) - 1, -1, -1))
            simulated = rows * self.drawn.beyond(tail.edges)
            near = np.logical_and.accumulate((np.abs(seen - simulated) <= _DIFFERENT * errors + 1)[::-1])[::-1]
            beyond = np.where(near, np.minimum(beyond, simulated), beyond)
        root = np.sqrt(tail.edges)
        removed = np.append(np.cumsum(((beyond[:-1] + beyond[1:]) / 2 * np.diff(root))[::-1])[::-1], 0.0)
        mass = np.append(np.cumsum(((beyond[:-1] + beyond[1:]) / 2 * np.diff(tail.edges))[::-1])[::-1], 0.0)
        lost = mass / max(tail.edges[0] * rows / 2 + mass[0], 1e-300)
        if self.model.is_linear:
            loss = (tail.edges / (mu * rows)) ** 2 + (lost / 2) ** 2
        else:
            loss = tail.edges / mu**2 + (_ALIGNED * removed) ** 2
        i = int(np.argmin(loss))
        hidden = _HIDDEN * noise if i < len(root) - 1 else 0.0
        return float(tail.edges[i]), float(removed[i] / root[i]) + hidden, min(float(lost[i]), 1.0)

    def advanced(self, total: Floats, clip: float, mu: float) -> Plan:
        """Return the plan after the first step; the same plan if there is none, or if its outputs are not used."""
        if _is_public(self.statistic, self):
            return self
        return _valid(lambda: self._moved(total, clip, mu)) or self

    def _moved(self, total: Floats, clip: float, mu: float) -> Plan:
        newton = _Newton.of(self)
        theta, _ = newton.step(self.theta, total, clip, mu, shrink=True)
        return replace(self, theta=newton.pooled(theta, newton.weight(self.theta, clip, mu)))


def _valid(planned: Callable[[], Plan]) -> Plan | None:
    """Return a plan that rows can be read with and outputs can be read from; None if there is none.

    The budget is spent when a model is planned, and noise may give any passes: whatever fails, a plan must follow.
    """
    try:
        with np.errstate(all="ignore"):
            plan = planned()
            E, scan = _on_features(plan), plan.scan()
            regular = np.linalg.cond(E) < _MOST_SINGULAR  # False for NaN
    except _FAILURES:
        return None
    read = np.array_equal(scan.metric.integers.any(axis=0), plan.features.any(axis=0))
    return plan if regular and read and np.isfinite(plan.theta).all() else None


def _start(fitted: GeneralizedLinearModel) -> tuple[Floats, Floats, Fit | None]:
    """Return features as sums of encoded columns, the constant first, θ₀, and the solution that it is of.

    A vector has no counted shapes, and estimators fit all of its entries: they start from the ridge regression.
    """
    model, schema = fitted._model, fitted.statistic.schema
    indices = [schema.names.index(name) for name in fitted.columns]
    if not are_vectors(schema, indices):
        found = fit_model(model)
        if found.unknown.all():
            raise ArgumentError(
                "No coefficient is identified at this budget. Use a larger epsilon, more rows or fewer predictors."
            )
        return _coding(found.problems[0])[found.kept], found.theta[0], found
    indices = [*schema.groups[INTERCEPT], *indices]
    features = np.eye(schema.n_columns)[indices]
    return features, predictor_coefficients(fitted.statistic, model.family, model.responses[0], indices), None


def _rows(model: Model, features: Floats) -> tuple[Rows, Floats]:
    """Return drawn rows of features, with weights that give levels the counts of the marginals, and their shares.

    In the passes, from which rows are drawn, rows of rare levels are clipped and count less; scores are of all rows.
    """
    statistic, schema = model.statistic, model.schema
    distribution = model.distributions()[0]
    rows = drawn_rows(model, distribution, distribution.rows @ features.T)
    factors, R = np.ones(distribution.points), distribution.rows
    if statistic.marginals is None or statistic.unit is not None:
        return rows, factors / len(factors)
    known = []
    for source in sources_of(schema, model.columns):
        column = schema.columns.get(source)
        if isinstance(column, Categorical | Boolean):
            counts = np.array([*level_counts(statistic, source).values()])
            own = R[:, list(schema.groups[source])]
            level = (own[:, 0] > 0).astype(int) if isinstance(column, Boolean) else np.argmax(own, axis=1)
            some = own.any(axis=1)
            values, errors = counts[: level.max() + 1].T
            known.append((level, some, np.where(values > SIGNAL * errors, values / counts[:, 0].sum(), np.nan)))
    for _ in range(_ROUNDS if known else 0):
        for level, some, wanted in known:
            shares = np.bincount(level[some], factors[some], minlength=len(wanted)) / factors.sum()
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.clip(np.nan_to_num(wanted / shares, nan=1.0, posinf=1.0), 1 / _MOST, _MOST)
            factors[some] *= ratio[level[some]]
    return Rows(rows.X, rows.weights * factors / factors.mean()), factors / factors.sum()


def _whitening(H: Floats, curvature: float, spans: Floats) -> Floats:
    """Return E = (H + λ)^(-½) with λ = `_FLOOR` times the mean curvature over d, on features of unit span.

    Without λ the few rows of a rare level would have scores far beyond any clip.
    """
    unit = H / np.outer(spans, spans)
    h, V = scipy.linalg.eigh((unit + unit.T) / 2)
    floor = _FLOOR * curvature / len(H)
    return np.asarray((V / np.sqrt(np.maximum(h, 0.0) + floor)).T / spans)


def _spans(schema: Schema, features: Floats) -> Floats:
    """Return the largest entry of each feature in an encoded row."""
    sources = [schema.encoded[int(np.flatnonzero(row)[0])].source for row in features]
    return np.array([schema.parts[name].weight if name else schema.rounded_intercept for name in sources])


@dataclass(frozen=True, eq=False)
class _Drawn:
    """‖s‖² of drawn rows under the model, with their probabilities, increasing."""

    squares: Floats
    above: Floats  # share of the rows at this value or above

    @classmethod
    def of(cls, family: Family, rows: Rows, weights: Floats, theta: Floats, E: Floats, phi: float) -> _Drawn:
        """Simulate scores: both classes of a class, counts up to `_COUNTS` with the dispersion φ = E(y - μ)²/E[μ].

        Counts are Poisson variables with gamma-distributed rates (negative binomial), variance μ + aμ².
        """
        size = np.sum((rows.X @ E.T) ** 2, axis=1)
        mu = rows.weights / weights * mean_of(family).inverse(rows.X @ theta[:, np.newaxis])[:, 0]
        if family.of_classes:
            squares, shares = [(1 - mu) ** 2 * size, mu**2 * size], [mu, 1 - mu]
        else:
            mu = np.maximum(mu, 1e-12)
            r = float(weights @ mu**2) / max((phi - 1) * float(weights @ mu), 1e-6)  # 1/a
            squares, shares = [], []
            for k in range(_COUNTS):
                binomial = math.lgamma(k + r) - math.lgamma(r) - math.lgamma(k + 1)
                shares.append(np.exp(binomial - r * np.log1p(mu / r) + k * np.log(mu / (r + mu))))
                squares.append((k - mu) ** 2 * size)
        value, share = np.concatenate(squares), np.concatenate([weights * own for own in shares])
        order = np.argsort(value)
        return cls(value[order], np.append(np.cumsum(share[order][::-1])[::-1], 0.0))

    def beyond(self, edges: Floats) -> Floats:
        """Return the share of rows beyond each edge."""
        return self.above[np.searchsorted(self.squares, edges, side="right")]


def _coding(problem: Problem) -> Floats:
    """Return the features of a problem as sums of encoded columns."""
    if problem.coding is None:
        raise ArgumentError("Declared models require a release with an intercept.")
    return problem.coding.rows


def _least_squares(problem: Problem) -> LeastSquares:
    return least_squares(problem.noisy, intercept=problem.intercept, needs=problem.to_user.T != 0)


# ---------------------------------------------------------------------------------------------------------------
# Steps
@dataclass(frozen=True, eq=False)
class _Newton:
    """What a step needs: drawn rows of the features, E on the features, the prior of θ, and the number of rows.

    ``start`` has θ₀ and its covariances from noise and from the assumed distribution; None where they are not known.
    """

    family: Family
    rows: Rows
    E: Floats
    prior: Floats
    n: float
    start: tuple[Floats, Floats, Floats] | None

    @classmethod
    def of(cls, plan: Plan) -> _Newton:
        own = _Resolved(plan.statistic, plan.model)
        model, schema = own.fitted._model, plan.statistic.schema  # type: ignore[union-attr]
        (rows, _), E = _rows(model, plan.features), _on_features(plan)
        sources = [schema.encoded[int(np.flatnonzero(row)[0])].source for row in plan.features]
        weights = np.array([schema.parts[name].weight if name else 0.0 for name in sources])
        with np.errstate(divide="ignore"):
            prior = _mean(own).unit / weights
        return cls(model.family, rows, E, prior, _number_of_rows(plan.statistic), _start_of(plan, own, prior))

    def hessian(self, theta: Floats) -> Floats:
        """H(θ), per row."""
        return self.rows.moments(mean_of(self.family).weights(self.rows.X @ theta[:, np.newaxis]))

    def noise(self, clip: float, mu: float) -> Floats:
        """Covariance of the mean score, E⁻¹g/n̂, from noise."""
        back = scipy.linalg.inv(self.E) / self.n
        return np.asarray(clip / mu**2 * (back @ back.T))

    def inverse(self, theta: Floats, known: Flags) -> Floats:
        """Return H(θ)⁻¹ on the coefficients that are determined, 0 elsewhere."""
        H, at = self.hessian(theta), np.ix_(known, known)
        unit = 1 / np.sqrt(np.maximum(np.diagonal(H)[known], 1e-300))
        found = np.zeros_like(H)
        found[at] = np.outer(unit, unit) * scipy.linalg.inv(H[at] * np.outer(unit, unit) + 1e-9 * np.eye(known.sum()))
        return found

    def step(
        self, theta: Floats, total: Floats, clip: float, mu: float, *, shrink: bool = False
    ) -> tuple[Floats, Flags]:
        """Return θ after one step in full, and which coefficients the data determine.

        With ``shrink`` the step is multiplied by τ²/(τ² + σ²), as much of the sum as stands out of its noise.
        """
        g, sigma2 = math.sqrt(clip) * total, clip / mu**2
        tau2 = max(float(np.mean(g**2)) - sigma2, 0.0)
        length = tau2 / (tau2 + sigma2) if shrink else 1.0
        wanted = (self._means(theta) + length * scipy.linalg.solve(self.E, g) / self.n)[np.newaxis]
        noise, start = np.diagonal(self.noise(clip, mu)).copy(), null_coefficients(self.family, self.rows, wanted)
        family, prior = mean_of(self.family), self.prior[np.newaxis]
        found, share = solve_noisy(self.rows, wanted, family, noise=noise[np.newaxis], prior=prior, start=start)
        for _ in range(_TIMES):  # the mean of a level may be below 0, where no θ has it: its prior then counts more
            far = np.abs(found.theta[0]) > _FARTHEST * self.prior
            if not far.any():
                break
            noise[far] *= 10
            found, _ = solve_noisy(self.rows, wanted, family, noise=noise[np.newaxis], prior=prior, start=start)
        known = (share[0] >= LEAST_KEPT) & (np.count_nonzero(self.rows.X, axis=0) >= LEAST_DRAWN)
        known[0] = True
        return found.theta[0], known

    def weight(self, at: Floats, clip: float, mu: float) -> Floats:
        """Return the weight W of a step from ``at`` against the start: θ₀ + W(θ - θ₀) has about the least error.

        The start has `_START` times its stated covariance here, because its distribution is assumed.
        """
        if self.start is None:
            return np.eye(len(at))
        _, noise, assumed = self.start
        every = np.ones(len(at), dtype=bool)
        inverse = self.inverse(at, every)
        own, before = inverse @ self.noise(clip, mu) @ inverse, _START * (noise + assumed)
        unit = 1 / np.sqrt(np.maximum(np.diagonal(before), 1e-300))
        scale = np.outer(unit, unit)
        whole = (own + before) * scale + 1e-12 * np.eye(len(at))
        return np.asarray((scipy.linalg.solve(whole, before * scale, assume_a="sym").T / unit[:, np.newaxis]) * unit)

    def pooled(self, theta: Floats, W: Floats) -> Floats:
        """Return θ₀ + W(θ - θ₀)."""
        return theta if self.start is None else np.asarray(self.start[0] + W @ (theta - self.start[0]))

    def last(self, plans: Sequence[Plan], output: ModelOutput, *, shrink: bool = False) -> tuple[Floats, Flags]:
        """Return θ after the last step in full, corrected along the first, and the coefficients that data determine.

        Both sums together show by how much Σ s changed along the first move Δ; ρ is that over what the drawn rows
        predict, 1 but for noise if their distribution is the table's. The part of the last move along Δ is divided by
        ρ, as much of it as stands out of its noise (a secant step).
        """
        first, last = (plan.theta for plan in plans)
        theta, known = self.step(last, output.totals[1], output.clip, output.vector_mu[1], shrink=shrink)
        move, along, root = (theta - last) * known, (last - first) * known, math.sqrt(output.clip)
        H = self.n * self.hessian(last)
        predicted = self.n * float(along @ (self._means(last) - self._means(first)))
        if predicted <= 0:
            return theta, known
        back = scipy.linalg.solve(self.E.T, along)  # Δᵀ E⁻¹
        seen = root * float(back @ (output.totals[0] - output.totals[1]))
        error = root * float(np.linalg.norm(back)) * math.hypot(*(1 / mu for mu in output.vector_mu))
        excess, variance = seen / predicted - 1, (error / predicted) ** 2
        rho = 1 + excess * max(excess**2 - variance, 0.0) / max(excess**2, 1e-300)
        part = float(along @ H @ move) / max(float(along @ H @ along), 1e-300)
        return theta + (1 / min(max(rho, 1 / _MOST_CURVED), _MOST_CURVED) - 1) * part * along, known

    def _means(self, theta: Floats) -> Floats:
        """E[x h(xᵀθ)]."""
        mu = mean_of(self.family).inverse(self.rows.X @ theta[:, np.newaxis])[:, 0]
        return np.asarray((self.rows.weights * mu) @ self.rows.X)


def _on_features(plan: Plan) -> Floats:
    """Return E as a matrix (d, d) of the features, which are disjoint sums of encoded columns."""
    square = np.sum(plan.features**2, axis=1)
    return np.asarray(plan.metric.matrix @ plan.features.T / (plan.statistic.schema.row_norm * square))


def _mean(own: _Resolved) -> Mean:
    if own.family is None or own.family.mean is None:
        raise ArgumentError("A linear model has no Newton steps.")
    return own.family.mean


def _number_of_rows(statistic: Transcript) -> float:
    """Return the noisy number of rows or, with row weights, the sum of weights over the largest."""
    if statistic.marginals is not None and statistic.unit is None:
        return max(RowCounts(statistic).rows[0] / statistic.schema.weight_bound, 1.0)
    if statistic.schema.weight is None:
        return max(statistic.rows, 1.0)
    one = statistic.schema.units.one
    return max(float(one @ statistic.predictive.moment @ one), 1.0)


# ---------------------------------------------------------------------------------------------------------------
# Reading
def declared_fit(fitted: GeneralizedLinearModel, output: ModelOutput, n_rows: float | None = None) -> Fit:
    """Return the solution of a declared model after its last step; ``n_rows`` is that of the population."""
    statistic, problem = fitted.statistic, fitted.problem()
    kept, plans = _plans(statistic, output, problem)
    first, last = plans
    newton = _Newton.of(last)
    mu, clip = output.vector_mu[-1], output.clip
    full, known = newton.last(plans, output)
    W = newton.weight(last.theta, clip, mu)
    theta, rest = newton.pooled(full, W), np.eye(len(full)) - W
    inverse = newton.inverse(theta, known)
    bias = min(ALIGNMENT * output.excess * mu, LARGEST_BIAS)
    noise = (1 + bias**2) * (W @ inverse @ newton.noise(clip, mu) @ inverse @ W.T)
    before = np.zeros_like(noise)
    if newton.start is not None:
        noise = noise + rest @ newton.start[1] @ rest.T
        before = rest @ newton.start[2] @ rest.T
    moves = np.array([last.theta - first.theta, theta - last.theta]) * known
    remains = _remaining(
        newton.n * newton.hessian(theta),
        moves,
        [float(np.sum(newton.noise(clip, part) * inverse)) * newton.n for part in output.vector_mu],
    )
    sampling = np.zeros_like(noise)
    if n_rows is not None:
        H = newton.n * newton.hessian(theta)
        sampling = _sampling(output, newton.E, H, inverse / newton.n, n_rows)
    unknown = ~known[np.newaxis]
    rows, mean = newton.rows, mean_of(fitted.family)
    wanted = (mean.inverse(rows.X @ theta[:, np.newaxis]) * rows.weights[:, np.newaxis]).T @ rows.X
    null = null_coefficients(fitted.family, rows, wanted)

    def likelihood(at: Floats) -> float:
        return float(np.sum(at * wanted) - rows.weights @ mean.area(rows.X @ at.T))

    left_out = [i for i in range(len(problem.names)) if i not in kept]
    return Fit(
        family=fitted.family,
        problems=(problem,),
        least_squares=(on_columns(problem.noisy, kept, left_out, _least_squares(problem).signal, n_rows),),
        kept=kept,
        rows=rows,
        theta=theta[np.newaxis],
        noise=noise,
        sampling=sampling,
        assumed=before + remains,
        distances=before + remains,
        inverse=inverse,
        unknown=unknown,
        prior=newton.prior,
        converged=True,
        log_likelihood=likelihood(theta[np.newaxis]),
        null_log_likelihood=likelihood(null),
    )


def scans_of(statistic: Transcript, output: ModelOutput) -> list[Scan]:
    """Return what was asked of the rows for a declared model, for replay."""
    _, plans = _plans(statistic, output, _Resolved(statistic, output.model).problem())
    return [replace(plan.scan(), linear=linear) for plan, linear in zip(plans, output.linear, strict=True)]


def predictive_coefficients(fitted: GeneralizedLinearModel, output: ModelOutput) -> Floats:
    """Return θ on all encoded columns after the steps, for prediction: the last step is shrunk too."""
    _, plans = _plans(fitted.statistic, output, fitted.problem())
    newton, at = _Newton.of(plans[-1]), plans[-1].theta
    theta, _ = newton.last(plans, output, shrink=newton.start is None)
    theta = newton.pooled(theta, newton.weight(at, output.clip, output.vector_mu[-1]))
    return np.asarray(plans[-1].features.T @ theta)


def _plans(statistic: Transcript, output: ModelOutput, problem: Problem) -> tuple[list[int], list[Plan]]:
    """Return the features that have scores, and the plans of all scans, as they were drawn."""
    coding, used = _coding(problem), np.asarray(output.metric.integers.any(axis=0))
    kept = [i for i, row in enumerate(coding) if used[row != 0].all()]
    features, C = coding[kept], statistic.schema.row_norm
    if len(kept) != len(output.metric.integers):
        raise ArgumentError("The columns of a declared model do not match its outputs.")
    square = np.sum(features**2, axis=1)
    thetas = [features @ own.matrix[0] / (C * square) for own in output.linear]
    return kept, [Plan(statistic, output.model, features, theta, output.metric) for theta in thetas]


def _start_of(plan: Plan, own: _Resolved, prior: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return θ₀ and its covariances from noise and from the assumed distribution; None without a privacy unit."""
    if plan.statistic.unit is None:
        return None
    begun = plan.begun
    if begun is None and not isinstance(own.fitted, RegressionModel):
        _, _, begun = _start(own.fitted)
    if begun is None or not np.array_equal(_coding(begun.problems[0])[begun.kept], plan.features):
        return None
    unknown = np.where(begun.unknown[0], np.where(np.isfinite(prior), prior, 1.0) ** 2, 0.0)
    return begun.theta[0], begun.noise + np.diag(unknown), begun.distances


def _remaining(H: Floats, moves: Floats, noise: Sequence[float]) -> Floats:
    """Return the covariance that stands for the distance that remains after the last of two moves.

    ``noise`` is the expected square of each move, in the norm of H, from the noise of its sum.
    """
    one, two = (float(move @ H @ move) for move in moves)
    left = max(two - sum(noise), 0.0)
    share = min(left / max(one - noise[0], left, 1e-300), 1.0)
    return np.asarray(share * left / max(two, 1e-300) * np.outer(moves[1], moves[1]))


def _sampling(output: ModelOutput, E: Floats, H: Floats, inverse: Floats, n_rows: float) -> Floats:
    """Return the sandwich covariance, H the Hessian of all rows and ``inverse`` its inverse."""
    half = inverse @ scipy.linalg.inv(E)
    return np.asarray(n_rows / max(n_rows - len(E), 1.0) * (half @ _middle(output, E @ H @ E.T) @ half.T))


def _middle(output: ModelOutput, expected: Floats) -> Floats:
    r"""Return Σ s sᵀ in the metric of scores, positive definite, with noise shrunk and clipping undone on average.

    ``expected`` is W₀ = E H Eᵀ, what it would be if the variance of the response were the model's. In the basis in
    which W₀ is the identity, U = W₀^(-½) W W₀^(-½) is ψ I for a constant dispersion ψ, estimated by inverse variance.
    Entry (i, j) has noise of variance v_ij; its deviation from ψ I is multiplied by τ²/(τ² + v_ij), τ = ψ/2.
    """
    W = output.clip * output.squares / (1 - min(output.lost, 0.5))
    s = output.clip / (math.sqrt(2) * output.squares_mu)
    h, V = scipy.linalg.eigh((expected + expected.T) / 2)
    h = np.maximum(h, h[-1] * _RANGE)
    U = (V.T @ W @ V) / np.sqrt(np.outer(h, h))
    v = s**2 * (1 + np.eye(len(h))) / np.outer(h, h)
    precision = 1 / np.diagonal(v)
    psi = max(float(np.sum(np.diagonal(U) * precision) / np.sum(precision)), _LEAST_DISPERSION)
    identity = psi * np.eye(len(h))
    shrunk = identity + (U - identity) * (psi / 2) ** 2 / ((psi / 2) ** 2 + v)
    u, Q = scipy.linalg.eigh((shrunk + shrunk.T) / 2)
    root = (V * np.sqrt(h)) @ Q
    return np.asarray((root * np.maximum(u, _LEAST_DISPERSION * psi)) @ root.T)


# ---------------------------------------------------------------------------------------------------------------
# Summaries
def declared_summary(
    fitted: GeneralizedLinearModel,
    output: ModelOutput,
    options: Asked,
    n_rows: float | None,
    cov_type: CovType,
    mean: float,
) -> tuple[Fit, Summary]:
    """Return the solution and the summary of a declared generalised linear model with a mean response."""
    found = declared_fit(fitted, output, n_rows if cov_type != "nonrobust" else None)
    if n_rows is not None and cov_type == "nonrobust":
        found = replace(found, sampling=model_sampling(fitted._model, found, n_rows))
    unit, mu = fitted.statistic.unit, output.vector_mu[-1]
    # Scores are those of all rows with equal weights, unless rows are sampled or scaled before.
    weighted = ["rows beyond their declared norm weighted below 1"] * fitted.statistic.schema.scales_rows
    if unit is not None and unit.contribution_bounding == "sample":
        weighted.append(f"at most {unit.max_contributions} rows of each {unit.column}, chosen at random")
    (problem,), (fit,) = found.problems, found.least_squares
    noisy = replace(problem.noisy, weighted="; ".join(weighted), clipping_loss=None)
    notes = [OF_STEPS, *_clipped(output, mu)]
    found = replace(
        found,
        problems=(replace(problem, noisy=noisy),),
        least_squares=(replace(fit, n_rows=n_rows),),
        family=replace(found.family, notes=(*notes, *found.family.notes[1:])),
    )
    words = "two private Newton steps on the likelihood"
    return found, summary_of(found, 0, np.ones(1), options, declared=words, cov_type=cov_type, mean=mean)


def _clipped(output: ModelOutput, mu: float) -> list[str]:
    """Return sentences about clipped scores."""
    larger = math.sqrt(1 + min(ALIGNMENT * output.excess * mu, LARGEST_BIAS) ** 2) - 1
    words = f"Clipping removed an estimated {100 * output.lost:.2g} % of the squared norms of scores"
    return [f"{words}; standard errors are {100 * larger:.0f} % larger to allow for it."] if output.lost > 0 else []


def sandwich_summary(fitted: RegressionModel, options: Asked) -> Summary:
    """Return the summary of a linear model, for the population with its sandwich covariance if it was declared."""
    problem = fitted.problem(collapse=options["collapse"], reference=options["reference"])
    output = None if options["collapse"] or options["reference"] else find_output(fitted)
    unit = fitted.statistic.unit is not None
    cov_type = covariance_type(options, declared=output is not None, unit=unit)
    if output is None or options["estimand"] == "table":
        return with_note(fitted, summarise(problem, estimand=options["estimand"], n_rows=options["n_rows"]))
    rows = sample_size(problem, options["estimand"], options["n_rows"], cov_type)
    if cov_type == "nonrobust" or rows is None:
        return summarise(problem, estimand=options["estimand"], n_rows=options["n_rows"])
    fit = _sandwich(fitted, output, problem, rows)
    own = Coefficients.of(fit, problem.to_user, problem.offset)
    reasons, stands_for = left_out_columns(problem, fit)
    return Summary.of(
        problem,
        fit,
        own,
        estimand=options["estimand"],
        left_out=reasons,
        stands_for=stands_for,
        declared="sandwich covariance of its scores",
        cov_type=cov_type,
    )


def _sandwich(fitted: RegressionModel, output: ModelOutput, problem: Problem, rows: float) -> LeastSquares:
    """Return least squares with the sandwich covariance from sampling."""
    kept, (plan,) = _plans(fitted.statistic, output, problem)
    left_out = [i for i in range(len(problem.names)) if i not in kept]
    fit = on_columns(problem.noisy, kept, left_out, _least_squares(problem).signal, rows)
    E, at = _on_features(plan), np.ix_(kept, kept)
    sampling = np.zeros_like(fit.inverse)
    # Per unit of the residual variance M is the Hessian and its own inverse's.
    H = max(fit.residual / rows, 1e-300) * problem.noisy.moment[at]
    sampling[at] = _sampling(output, E, H, fit.inverse[at], rows)
    return replace(fit, sampling=sampling)
