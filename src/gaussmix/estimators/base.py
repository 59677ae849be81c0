"""Base classes of linear estimators: declared bounds, the resulting schema, and coefficients in original units.

An estimator defines a schema: a vector ``X``, targets ``y`` and an intercept. ``fit`` checks the shapes of X and y, the
schema and all other declarations before it reads values. All fitted attributes are computed from the release alone.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.accounting.parameters import frames_to_the_caller
from gaussmix.data.arrays import check_classes, read_features, read_targets, shape_of, without_values
from gaussmix.data.columns import Boolean, Numeric, Vector
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.moments import Moments
from gaussmix.data.rows import ArrayRows, RowSource, SummedRows
from gaussmix.data.schema import INTERCEPT, Schema
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.ledger import Budget, Ledger
from gaussmix.mechanism.release import Passes, Prepared, prepare
from gaussmix.models.design import Problem
from gaussmix.models.families import Family
from gaussmix.models.glm import complete_options, fit_glm, summary_of
from gaussmix.models.release import Release
from gaussmix.models.results import Estimand, Named, Summary
from gaussmix.releases.certificate import Certificate, Condition
from gaussmix.releases.declared import MODEL_SHARE, DeclaredModel

__all__ = [
    "FEATURES",
    "LABEL",
    "LABELS_PUBLIC",
    "Bounds",
    "Draw",
    "LinearClassifier",
    "LinearRegressor",
    "Private",
    "Released",
    "Weighting",
    "coefficients",
    "default_summary",
    "encoded_columns",
    "glm_summary",
    "moments_shape",
    "named",
    "summed_rows",
    "target_names",
]

Bounds = tuple[ArrayLike, ArrayLike]
Draw = Callable[[RowSource], tuple[Floats, Certificate]]
Weighting = Literal["balanced", "paper"]

FEATURES, LABEL = "X", "y"
"""Names of the vector of features and of the label of two classes."""

GROUPS = "groups"
"""Name of the privacy unit of an estimator, in certificates and ledgers."""

INTERCEPT_OF_NORM = 0.5
"""Value of the constant column, in units of ``data_norm``, if features are bounded by their norm alone."""

LABELS_PUBLIC = Condition(False, "the two labels were taken from the table and are assumed to be public.")

_BEFORE_THE_DATA = "Declare it before looking at the data: a bound computed from the data is not private."
_OTHER_ROWS = (
    "n_rows does not match the number of rows of the table. Correct it if the number is public, or omit n_rows."
)
_FEW_ROWS = "The table has fewer rows than features, so no regression is identified. Use fewer features."


def target_names(n_targets: int) -> tuple[str, ...]:
    """Return ``("y",)``, or ``("y0", "y1", …)`` for several targets."""
    return (LABEL,) if n_targets == 1 else tuple(f"y{i}" for i in range(n_targets))


# Parameters are fields of dataclasses, which write the constructors that scikit-learn expects: they store, and do
# nothing else.
@dataclass(kw_only=True, eq=False, repr=False)
class _Declared(BaseEstimator):
    """Declared bounds on features, and how targets are weighted against them."""

    data_norm: float | None = None
    bounds_X: Bounds | None = None
    fit_intercept: bool = True

    _weighting: ClassVar[Weighting] = "paper"

    def _features(self, n_features: int) -> tuple[Vector, float]:
        """Return the vector X and the value of the constant column."""
        if self.data_norm is None and self.bounds_X is None:
            raise DeclarationError(f"bounds_X or data_norm is required. {_BEFORE_THE_DATA}")
        norm = None if self.data_norm is None else check.positive(finite=True, data_norm=self.data_norm)
        if self.bounds_X is None:
            return Vector(n_features, norm=norm), INTERCEPT_OF_NORM if self.fit_intercept else 0.0
        lower, upper = _per_column(self.bounds_X, n_features, "bounds_X", centred=self.fit_intercept)
        return Vector(n_features, lower=lower, upper=upper, norm=norm), 1.0 if self.fit_intercept else 0.0

    def _weight(self, features: Vector, intercept: float, half_range: float, n_targets: int) -> float:
        r"""Return the weight of each of q targets relative to the features.

        ``"balanced"`` is

        .. math:: w^2 = C_X^2\,\bigl(\sqrt{1 + 8/q} - 1\bigr)/4,

        which minimises (C_X² + q w²)²(1/w² + 1/C_X²), the variance of the noise in xᵀ(y - xθ) for a θ that takes rows
        of norm C_X to targets of size 1. With ``"paper"``, targets enter in the units of the features.
        """
        if self._weighting == "balanced":
            square = float(features.squared_norm) + intercept**2
            return math.sqrt(square * (math.sqrt(1 + 8 / n_targets) - 1) / 4)
        return 1.0 if features.bounded else half_range / (features.norm or 1.0)


def _per_column(
    bounds: Bounds, columns: int, name: str, *, centred: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return lower and upper bounds of each column, from scalars or one value per column.

    Without an intercept nothing is ``centred``: bounds are widened to ±max(|lower|, |upper|), so that no intercept
    comes in through the centres.
    """
    if _looks_like_pairs(bounds, columns):
        raise DeclarationError(
            f"{name} is ambiguous: it can be read as (lower, upper) or as one pair per column. Pass arrays: "
            "(np.array([all lower bounds]), np.array([all upper bounds]))."
        )
    try:
        lower, upper = bounds
        lows, highs = (np.broadcast_to(check.numbers(bound=bound), columns).tolist() for bound in (lower, upper))
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{name} must be a pair (lower, upper) of numbers, each a scalar or one per column ({columns}), "
            f"got {bounds!r}."
        ) from None
    for low, high in zip(lows, highs, strict=True):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            remedy = "The smaller bound comes first" if low > high else "A constant column carries no information"
            raise DeclarationError(
                f"{name} must be a pair (lower, upper), finite with lower < upper, got ({low!r}, {high!r}). {remedy}."
            )
    if not centred:
        highs = [max(abs(low), abs(high)) for low, high in zip(lows, highs, strict=True)]
        lows = [-high for high in highs]
    return tuple(lows), tuple(highs)


def _looks_like_pairs(bounds: object, columns: int) -> bool:
    """Return whether bounds could also be one (lower, upper) per column, with another meaning.

    For two columns ``[(0, 1), (10, 20)]`` could be either. Two arrays, ``(np.array([0, 1]), np.array([10, 20]))``, are
    lower and upper bounds.
    """
    nested = isinstance(bounds, list | tuple) and all(isinstance(pair, list | tuple) for pair in bounds)
    try:
        pairs = np.asarray(bounds if nested or isinstance(bounds, np.ndarray) else (), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    if pairs.shape != (columns, 2) or not np.all(pairs[:, 0] < pairs[:, 1]):
        return False
    return columns != 2 or bool(pairs[0, 1] != pairs[1, 0])  # otherwise both readings are the same


@dataclass(kw_only=True, eq=False, repr=False)
class Private(BaseEstimator):
    """The budget of a private estimator, and the source of its noise."""

    epsilon: float = 1.0
    delta: float = 1e-6
    random_state: int | np.random.Generator | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegressor(MultiOutputMixin, RegressorMixin, _Declared, ABC):
    """A linear model of bounded rows. Subclasses define `_prepare`."""

    bounds_y: Bounds | None = None

    @abstractmethod
    def _prepare(self, schema: Schema) -> Draw:
        """Check everything declared; return a function that reads rows and draws.

        Its results are θ of every target on features and intercept in encoded units, (p, targets), and the certificate.
        """

    def schema(self, n_features: int, n_targets: int = 1) -> Schema:
        """Return how rows are encoded under the declared bounds: a vector ``X`` and targets ``y``.

        With an intercept, bounded features and targets are centred. Without one, bounds are widened to be symmetric.
        """
        if self.bounds_y is None:
            raise DeclarationError(f"bounds_y=(lower, upper) is required. {_BEFORE_THE_DATA}")
        lower, upper = _per_column(self.bounds_y, n_targets, "bounds_y", centred=self.fit_intercept)
        features, intercept = self._features(n_features)
        targets = {
            name: Numeric(low, high, weight=self._weight(features, intercept, (high - low) / 2, n_targets))
            for name, low, high in zip(target_names(n_targets), lower, upper, strict=True)
        }
        return Schema({FEATURES: features, **targets}, intercept)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (rows, features) and y (rows,) or (rows, targets)."""
        n_features, shape = shape_of(X, y)
        schema = self.schema(n_features, *shape)
        draw = self._prepare(schema)
        rows, targets = read_targets(self, X, y, several=True, finite=False)  # NaN is found where rows are encoded
        theta, self.privacy_ = draw(_array_rows(self, rows, targets, schema))
        return self._fit_theta(schema, theta, shape)

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to sums over the rows of a table, computed once for many fits. Each fit spends its own budget.

        Parameters
        ----------
        moments : Moments
            Of rows encoded by :meth:`schema`: ``Moments.of_arrays(blocks, model.schema(n_features))``. With one target
            ``coef_`` has the shape (features,).
        """
        n_features, n_targets = moments_shape(moments)
        schema = self.schema(n_features, n_targets)
        draw = self._prepare(schema)
        theta, self.privacy_ = draw(summed_rows(self, moments, schema))
        return self._fit_theta(schema, theta, () if n_targets == 1 else (n_targets,))

    def _fit_theta(self, schema: Schema, theta: Floats, shape: tuple[int, ...]) -> Self:
        """Set the coefficients; ``shape`` is () for one target."""
        coef, intercept = coefficients(schema, theta)
        self.coef_: Floats = coef if shape else coef[0]
        self.intercept_: Floats | float = intercept if shape else float(intercept[0])
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return predicted targets, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        return np.asarray(read_features(self, X) @ self.coef_.T + self.intercept_)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predictions, as scikit-learn does. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = isinstance(self, Private)  # noise exceeds the signal of very small tables
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(ClassifierMixin, _Declared):
    """A classifier with two classes and linear log odds."""

    classes: ArrayLike | None = None

    def schema(self, n_features: int) -> Schema:
        """Return how rows are encoded: a vector ``X`` and the label ``y``, true for the second class.

        The weight of the label is that of a target in [-1, 1].
        """
        features, intercept = self._features(n_features)
        return Schema({FEATURES: features, LABEL: Boolean(weight=self._weight(features, intercept, 1.0, 1))}, intercept)

    def _schema_of(self, X: ArrayLike, y: ArrayLike) -> Schema:
        """Return the schema from the shape of X alone; check declared classes."""
        check_classes(self.classes)
        return self.schema(shape_of(X, y)[0])

    @property
    def _conditions(self) -> tuple[Condition, ...]:
        """Conditions of the certificate about the labels."""
        return () if self.classes is not None else (LABELS_PUBLIC,)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return log odds of the second class, shape (rows,)."""
        check_is_fitted(self)
        return np.asarray(read_features(self, X) @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> Rows:
        """Return predicted labels, shape (rows,)."""
        log_odds = self.decision_function(X)
        return np.asarray(self.classes_[(log_odds > 0).astype(int)])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of the predicted labels. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # noise exceeds the signal of very small tables
        return tags


_RESULTS = frozenset(name for name, value in vars(Named).items() if isinstance(value, property))
_displayed: ContextVar[bool] = ContextVar("_displayed", default=False)


@dataclass(kw_only=True, eq=False, repr=False)
class Released(Private):
    """An estimator that is fitted from one release of (X, y)."""

    passes: Passes = "auto"
    n_rows: int | None = None
    max_contributions: int | None = None
    ledger: Ledger | None = None

    # scikit-learn reads every attribute to list names, and to display an estimator in a notebook. Both would compute
    # the summary, of which the properties of `Named` are parts, and show none of it.
    def __dir__(self) -> list[str]:
        names = list(object.__dir__(self))
        return [name for name in names if name not in _RESULTS] if _displayed.get() else names

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        displayed = _displayed.set(True)
        try:
            return dict(super()._repr_mimebundle_(**options))
        finally:
            _displayed.reset(displayed)

    def _prepare_release(
        self,
        schema: Schema,
        groups: ArrayLike | None = None,
        *,
        conditions: Sequence[Condition] = (),
        models: Sequence[DeclaredModel] = (),
        model_share: float = MODEL_SHARE,
    ) -> Prepared:
        """Prepare the release; a ledger's budget replaces the estimator's own."""
        if groups is None and self.max_contributions is not None:
            raise ArgumentError("max_contributions requires groups in fit: the privacy unit of each row.")
        if groups is not None and self.max_contributions is None:
            raise DeclarationError(
                "max_contributions must be declared with groups: the maximum number of rows counted per privacy unit. "
                "Declare it before looking at the data."
            )
        name = type(self).__name__
        budget = Budget(self.epsilon, self.delta) if self.ledger is None else Budget(ledger=self.ledger, note=name)
        prepared = prepare(
            schema,
            budget,
            passes=self.passes,
            n_rows=self.n_rows,
            random_state=self.random_state,
            made_by=name,
            conditions=conditions,
            models=models,
            model_share=model_share,
            unit=None if self.max_contributions is None else PrivacyUnit(GROUPS, self.max_contributions),
        )
        if self.n_rows is not None and prepared.account is not None:
            _warn_if_noise_dominates(schema, prepared.account, self.n_rows)
        return prepared

    def _draw(self, prepared: Prepared, X: ArrayLike, rows: Rows, targets: Rows, groups: ArrayLike | None) -> Release:
        """Draw the release of arrays; ``X`` as passed by the caller identifies the table in a second fit."""
        source = _array_rows(self, rows, targets, prepared.schema)
        origins = () if isinstance(X, list | tuple) else (X,)
        if groups is None:
            return prepared.draw(source, origins=origins)
        columns = targets.reshape(len(targets), -1).T
        table = {FEATURES: rows, **dict(zip(target_names(len(columns)), columns, strict=True)), GROUPS: groups}
        if len(groups) != len(rows):  # type: ignore[arg-type]
            raise DataError("groups must have as many values as X has rows.")
        with closing(prepared.rows(table)) as units:
            return prepared.draw(units, origins=origins)


def _warn_if_noise_dominates(schema: Schema, account: LatticeAccount, n_rows: int) -> None:
    """Warn if a declared number of rows is too small for any signal to exceed the noise.

    n rows of norm at most C_X have an average eigenvalue of at most n C_X²/d. Directions below the edge of the noise,
    2 s √m, cannot be distinguished from it.
    """
    features = len(schema.groups[FEATURES])
    columns = features + bool(schema.intercept)
    signal = n_rows * (schema.norm_of([FEATURES], intercept=True) / schema.row_norm) ** 2 / columns
    entry = 1 / math.sqrt(2 * sum(mu**2 for mu in account.noise_mu))  # the whole budget in one pass
    if signal < 2 * entry * math.sqrt(schema.n_columns):
        warnings.warn(
            f"n_rows={n_rows} is too small for {features} features at epsilon={account.epsilon:g}: the privacy noise "
            "exceeds the average signal of the features, however large their values within the bounds. Use more rows, "
            "fewer features or a larger epsilon.",
            UserWarning,
            stacklevel=frames_to_the_caller(),
        )


# ----------------------------------------------------------------------------------------------------------------------
# Rows of arrays and of moments. Errors here depend on the rows: they are for the curator.
def _array_rows(estimator: Any, X: Rows, y: Rows, schema: Schema) -> RowSource:
    n_rows = getattr(estimator, "n_rows", None)
    if n_rows is not None and check.positive_integer(n_rows=n_rows) != len(X):
        raise DataError(_OTHER_ROWS)
    if len(X) < X.shape[1]:
        raise DataError(_FEW_ROWS)
    return ArrayRows(X, y, schema)


def moments_shape(moments: Moments) -> tuple[int, int]:
    """Return the number of features and of targets of moments of a regression."""
    X, *targets = moments.schema.columns.values()
    names = (FEATURES, *target_names(len(targets)))
    if tuple(moments.schema.columns) != names or not targets or not isinstance(X, Vector):
        raise ArgumentError(
            "moments must be built from arrays X and y (Moments.of_arrays), got moments of a table. Use "
            "gaussmix.release."
        )
    if not all(isinstance(target, Numeric | Boolean) for target in targets):
        raise ArgumentError(
            "The targets y of the moments must be numeric or boolean. For other targets use gaussmix.release."
        )
    return X.size, len(targets)


def summed_rows(estimator: Any, moments: Moments, schema: Schema) -> RowSource:
    """Return moments as rows after checking that they match the estimator; discard names of an earlier table."""
    if moments.unit is not None:
        raise ArgumentError("Estimators do not support moments with a privacy unit. Use gaussmix.release.")
    if moments.schema != schema:
        raise ArgumentError(
            "The moments were built with different bounds from those of the estimator. Build them with "
            "Moments.of_arrays(blocks, estimator.schema(n_features, n_targets))."
        )
    n_features, n_rows = len(schema.groups[FEATURES]), getattr(estimator, "n_rows", None)
    if n_rows is not None and not moments.rows_between(check.positive_integer(n_rows=n_rows), n_rows):
        raise DataError(_OTHER_ROWS)
    if not moments.rows_between(n_features):
        raise DataError(_FEW_ROWS)
    estimator.n_features_in_ = n_features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return SummedRows(moments)


# ----------------------------------------------------------------------------------------------------------------------
# Results
def encoded_columns(schema: Schema) -> tuple[list[int], list[int]]:
    """Return the encoded columns of features and intercept, and those of the targets."""
    features = [*schema.groups[FEATURES], *schema.groups.get(INTERCEPT, ())]
    return features, [schema.groups[name][0] for name in schema.columns if name != FEATURES]


_SUMMARIES: WeakKeyDictionary[BaseEstimator, tuple[Release, Summary]] = WeakKeyDictionary()


def default_summary(estimator: Any) -> Summary:
    """Return ``estimator.summary()``, computed once per fit: each property of `Named` is a part of it."""
    check_is_fitted(estimator)
    known = _SUMMARIES.get(estimator)
    if known is None or known[0] is not estimator.release_:
        known = _SUMMARIES[estimator] = (estimator.release_, estimator.summary())
    return known[1]


def coefficients(schema: Schema, theta: Floats, scale: float | None = None) -> tuple[Floats, Floats]:
    """Return coefficients (targets, features) and intercepts (targets,) in the user's units, from θ in encoded ones.

    With ``scale`` the response has no unit of its own: θ is multiplied by it, and not centred.
    """
    features, targets = encoded_columns(schema)
    units, coefs, intercepts = schema.units, [], []
    for target, column in zip(targets, theta.T, strict=True):
        size, centre = (float(units.scales[target]), float(units.centres[target])) if scale is None else (scale, 0.0)
        coef, intercept = units.coefficients(features, column, centre=centre, scale=size)
        coefs.append(list(coef.values()))
        intercepts.append(intercept)
    return np.array(coefs), np.array(intercepts)


def named(estimator: Any, problem: Problem) -> Problem:
    """Return a problem with ``feature_names_in_``, or x0, x1, …, as names of the entries of the vector."""
    entries = {f"{FEATURES}[{i}]": f"x{i}" for i in range(estimator.n_features_in_)}
    if hasattr(estimator, "feature_names_in_"):
        entries = dict(zip(entries, (str(name) for name in estimator.feature_names_in_), strict=True))
    return replace(problem, names=tuple(entries.get(name, name) for name in problem.names))


def glm_summary(estimator: Any, family: Family, estimand: Estimand, n_rows: int | None) -> Summary:
    """Return the summary of a generalised linear model of the target ``y`` on the vector ``X``, with their names."""
    model = fit_glm(estimator.release_.statistic, family, LABEL, [FEATURES])
    options = complete_options({"estimand": estimand, "n_rows": n_rows if estimand == "population" else None})
    found, own = model._fit(options)
    found = replace(found, problems=tuple(named(estimator, problem) for problem in found.problems))
    return summary_of(found, 0, np.ones(1), options, declared=own.declared, cov_type=own.cov_type)
