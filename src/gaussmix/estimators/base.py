"""What linear estimators share: an estimator is a schema, prepared, drawn and solved in one order.

``fit`` reads as the pipeline: shapes → declared schema → prepared mechanism → arrays → moments → draw → coefficients.
Until all is prepared no value is looked at. Only what is derived from the draw becomes an attribute.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.errors import ArgumentError, DataError, DeclarationError
from gaussmix.estimators.arrays import checked, one_by_one, without_values
from gaussmix.estimators.declared import (
    FEATURES,
    Bounds,
    Weighting,
    classification_schema,
    regression_schema,
    target_names,
)
from gaussmix.models.certificate import Certificate, Condition
from gaussmix.models.fits import feature_indices
from gaussmix.models.problem import Response
from gaussmix.tables.columns import Boolean, Numeric, Vector
from gaussmix.tables.moments import Moments
from gaussmix.tables.rows import ArrayRows, RowSource, SummedRows
from gaussmix.tables.schema import Schema

__all__ = [
    "LABELS_PUBLIC",
    "LinearClassifier",
    "LinearRegressor",
    "PreparedDraw",
    "check_moments",
    "features_and_targets",
    "forget_names",
    "in_arrays",
    "read_classes",
    "rows_of_arrays",
]

OTHER_ROWS = (
    "n_rows is declared as public, but the table has another number of rows. Declare what is public anyway, "
    "or leave n_rows out."
)
FEW_ROWS = "There are fewer rows than features: no regression is identified. Declare fewer features."
LABELS_PUBLIC = Condition(False, "the two labels were taken from the table and are taken to be public.")

Drawn = TypeVar("Drawn", covariant=True)


class PreparedDraw(Protocol[Drawn]):
    """A mechanism for which all is ready but the rows."""

    def draw(self, rows: RowSource) -> Drawn:
        """What leaves the mechanism."""


D = TypeVar("D")


class LinearRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC, Generic[D]):
    """A linear model of bounded rows; what is drawn, and how θ comes from it, is the method's own."""

    data_norm: float | None
    bounds_X: Bounds | None
    bounds_y: Bounds | None
    fit_intercept: bool
    n_rows: int | None = None

    @abstractmethod
    def _prepare(self, schema: Schema) -> PreparedDraw[D]:
        """Everything that is settled before a row is read."""

    @abstractmethod
    def _solve(self, drawn: D, schema: Schema) -> tuple[Floats, Certificate]:
        """θ of every target on features and intercept in encoded units, (p, targets), and what was spent on it."""

    def _weighting(self) -> Weighting:
        """How targets are weighed against features."""
        return "paper"

    def schema(self, n_features: int, n_targets: int = 1) -> Schema:
        """How rows are encoded under the declared bounds: a vector ``X`` and targets ``y``."""
        return regression_schema(
            n_features,
            n_targets,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            bounds_y=self.bounds_y,
            fit_intercept=self.fit_intercept,
            weighting=self._weighting(),
        )

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit to X (rows, features) and y (rows,) or (rows, targets)."""
        schema, single = self._schema_of(X, y)
        prepared = self._prepare(schema)
        rows, targets = self._arrays(X, y)
        return self._fit_drawn(
            prepared.draw(rows_of_arrays(rows, targets, schema, n_rows=self.n_rows)), schema, single=single
        )

    def _schema_of(self, X: ArrayLike, y: ArrayLike) -> tuple[Schema, bool]:
        """From the shapes of X and y alone; and whether y is one vector."""
        n_features, n_targets = shape_of(X, y, lambda: self._arrays(X, y))
        return self.schema(n_features, n_targets or 1), n_targets is None

    def _arrays(self, X: ArrayLike, y: ArrayLike) -> tuple[Rows, Rows]:
        """Features and targets, checked."""
        rows, targets = checked(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,  # looked for once, where rows are encoded
            ensure_min_samples=2,
            multi_output=True,
            y_numeric=True,
        )
        return rows, targets

    def fit_moments(self, moments: Moments) -> Any:
        """Fit to a table that is summed up already: one pass over the rows, many fits. Each spends its own budget.

        Parameters
        ----------
        moments : Moments
            Of rows encoded by :meth:`schema`: ``Moments.of_arrays(blocks, model.schema(n_features))``. One target gives
            ``coef_`` of shape (features,).
        """
        n_features, n_targets = features_and_targets(moments.schema)
        schema = self.schema(n_features, n_targets)
        prepared = self._prepare(schema)
        check_moments(moments, schema, n_features, n_rows=self.n_rows)
        self._fit_drawn(prepared.draw(SummedRows(moments)), schema, single=n_targets == 1)
        forget_names(self, n_features)
        return self

    def _fit_drawn(self, drawn: D, schema: Schema, *, single: bool) -> Any:
        """Fit from what left the mechanism alone."""
        theta, self.privacy_ = self._solve(drawn, schema)
        targets = [name for name in schema.columns if name != FEATURES]
        coef, intercept = in_arrays(schema, targets, theta)
        self.coef_ = coef[0] if single else coef
        self.intercept_ = float(intercept[0]) if single else intercept
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Predicted targets, shape (rows,) or (rows, targets)."""
        check_is_fitted(self)
        rows: Floats = checked(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of the predictions, as scikit-learn has it. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = hasattr(self, "epsilon")  # noise exceeds the signal of very small tables
        return tags


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """What classifiers with linear log odds share, once they have ``coef_``, ``intercept_`` and ``classes_``."""

    data_norm: float | None
    bounds_X: Bounds | None
    classes: ArrayLike | None
    fit_intercept: bool
    coef_: Floats
    intercept_: Floats
    classes_: Rows

    def _weighting(self) -> Weighting:
        """How the label is weighed against the features."""
        return "paper"

    def schema(self, n_features: int) -> Schema:
        """How rows are encoded under the declared bounds: a vector ``X`` and the label ``y``, true for the second."""
        return classification_schema(
            n_features,
            data_norm=self.data_norm,
            bounds_X=self.bounds_X,
            fit_intercept=self.fit_intercept,
            weighting=self._weighting(),
        )

    def _schema_of(self, X: ArrayLike, y: ArrayLike) -> Schema:
        """From the shape of X alone; classes are looked at where they are declared."""
        without_values(_check_classes, self.classes)
        n_features, _ = shape_of(X, y, lambda: read_classes(self, X, y, self.classes)[:2])
        return self.schema(n_features)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log odds of the second class."""
        check_is_fitted(self)
        rows: Floats = checked(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(rows @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of both classes, shape (rows, 2)."""
        second = special.expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> Rows:
        """Predicted labels."""
        log_odds = self.decision_function(X)
        return np.asarray(self.classes_[(log_odds > 0).astype(int)])

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of labels that are predicted. **Not private**: it is computed from the rows."""
        return float(without_values(super().score, X, y, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # on tables as small as scikit-learn's checks, noise exceeds the signal
        return tags


def in_arrays(schema: Schema, targets: list[str], theta: Floats, scale: float | None = None) -> tuple[Floats, Floats]:
    """Coefficients (targets, features) and intercepts (targets,) in the user's units, from θ in encoded ones.

    With ``scale`` the response has no unit of its own: θ is multiplied by it, and not centred.
    """
    features = feature_indices(schema, targets, None)
    coefs, intercepts = [], []
    for target, column in zip(targets, theta.T, strict=True):
        own = Response.of(schema, target)
        size, centre = (own.scale, own.centre) if scale is None else (scale, 0.0)
        coef, intercept = schema.units.coefficients(features, column, centre=centre, scale=size)
        coefs.append(list(coef.values()))
        intercepts.append(intercept)
    return np.array(coefs), np.array(intercepts)


def shape_of(X: ArrayLike, y: ArrayLike, read: Callable[[], tuple[Rows, Rows]]) -> tuple[int, int | None]:
    """Features, and targets: None for one vector. No value is looked at, unless the shapes are not those of a table.

    Then ``read`` has the words for what is wrong with them.
    """
    try:
        (_, n_features), (_, *targets) = np.shape(X), np.shape(y)
    except Exception:  # of whatever library the arrays are; it may quote cells
        n_features, targets = 0, []
    if n_features < 1 or len(targets) > 1 or 0 in targets:
        rows, found = read()
        n_features, targets = rows.shape[1], list(found.shape[1:])
    return n_features, targets[0] if targets else None


def rows_of_arrays(X: Rows, y: Rows, schema: Schema, *, n_rows: int | None) -> RowSource:
    """The rows of a table in memory. Errors here are for the curator."""
    if n_rows is not None and check.positive_integer(n_rows=n_rows) != len(X):
        raise DataError(OTHER_ROWS)
    if len(X) < X.shape[1]:
        raise DataError(FEW_ROWS)
    return ArrayRows(X, y, schema)


def features_and_targets(schema: Schema) -> tuple[int, int]:
    """How many of each, for moments of a regression."""
    X, *targets = schema.columns.values()
    names = (FEATURES, *target_names(len(targets)))
    if tuple(schema.columns) != names or not targets or not isinstance(X, Vector):
        raise ArgumentError("These moments are of a whole table, not of features and targets: use gaussmix.release.")
    if not all(isinstance(target, Numeric | Boolean) for target in targets):
        raise ArgumentError("These moments have targets that are no numbers: use gaussmix.release.")
    return X.size, len(targets)


def check_moments(moments: Moments, schema: Schema, n_features: int, *, n_rows: int | None) -> None:
    """Refuse moments that are not what the estimator declares. Errors here are for the curator."""
    if moments.unit is not None:
        raise ArgumentError(
            "In these moments rows are bounded by person, so that one row changes others: use gaussmix.release."
        )
    if moments.schema != schema:
        raise ArgumentError(
            "These moments are of rows encoded under other bounds than the estimator declares: build them with "
            "Moments.of_arrays(blocks, estimator.schema(n_features, n_targets))."
        )
    if n_rows is not None and not moments.rows_between(check.positive_integer(n_rows=n_rows), n_rows):
        raise DataError(OTHER_ROWS)
    if not moments.rows_between(n_features):
        raise DataError(FEW_ROWS)


def forget_names(estimator: Any, n_features: int) -> None:
    """Moments have no column names."""
    estimator.n_features_in_ = n_features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def read_classes(estimator: Any, X: ArrayLike, y: ArrayLike, declared: ArrayLike | None) -> tuple[Rows, Rows, Rows]:
    """Checked features, which rows are of the second class, and the two classes."""
    read = y if declared is None else one_by_one(y)
    rows, labels = checked(
        estimator, X, read, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2
    )
    second, classes = without_values(_second_class, labels, declared)
    return rows, second, classes


def _check_classes(declared: ArrayLike | None) -> None:
    """Refuse what are not two labels, before a row is read."""
    classes = np.asarray(declared)
    if declared is not None and (classes.shape != (2,) or classes[0] == classes[1]):
        raise DeclarationError("classes must be two different labels.")


def _second_class(labels: Rows, declared: ArrayLike | None) -> tuple[Rows, Rows]:
    if declared is None:
        with warnings.catch_warnings(action="ignore"):  # it would tell how many labels there are
            kind = type_of_target(labels)
        if kind == "multiclass":
            raise DataError("Only binary classification is supported. The type of the target is multiclass.")
        if kind != "binary":
            raise DataError(f"Unknown label type: {kind}. y must have two classes.")
    classes = np.unique(labels) if declared is None else np.asarray(declared)
    if len(classes) < 2:
        raise DataError("y must have two classes, got one class only: declare classes=(first, second).")
    if not np.isin(labels, classes).all():
        raise DataError("y has labels that are not in the declared classes.")
    return np.asarray(labels == classes[1]), classes
