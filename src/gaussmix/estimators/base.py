"""What linear estimators share: an estimator is a schema, prepared, drawn and solved in one order.

``fit`` reads as the pipeline: shapes → declared schema → prepared mechanism → arrays → moments → draw → coefficients.
Until all is prepared no value is looked at. Only what is derived from the draw becomes an attribute.

Arrays that callers give to estimators, checked by scikit-learn, with errors that quote no cell.

scikit-learn, NumPy, pandas and Arrow put values into their messages (``could not convert string to float: 'alice'``,
``got 1D array instead: array=[...]``). Messages leave the machine. Shapes and types are checked here, before a cell is
looked at, with messages of our own; any error about cells becomes one sentence that is the same for every table.

>>> without_values(float, "alice")
Traceback (most recent call last):
    ...
gaussmix.errors.DataError: X and y must be numeric, finite and of equal length: ...

An estimator is a schema: a vector X, the targets, and an intercept, from what the caller declares.

>>> schema = regression_schema(3, 1, data_norm=None, bounds_X=(-1, 1), bounds_y=(0, 10), fit_intercept=True)
>>> schema.names
('X[0]', 'X[1]', 'X[2]', 'y', '(intercept)')

Problems of an estimator's release under the names of its features.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import scipy.sparse
import sklearn
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

from gaussmix import _validation as check
from gaussmix._types import Floats, Rows
from gaussmix.data.columns import Boolean, Column, Numeric, Vector
from gaussmix.data.moments import Moments
from gaussmix.data.rows import ArrayRows, RowSource, SummedRows
from gaussmix.data.schema import Schema
from gaussmix.errors import ArgumentError, DataError, DataTypeError, DeclarationError, GaussmixError
from gaussmix.models.design import Problem, Response
from gaussmix.models.linear import feature_indices
from gaussmix.releases.certificate import Certificate, Condition

__all__ = [
    "FEATURES",
    "LABELS_PUBLIC",
    "Bounds",
    "LinearClassifier",
    "LinearRegressor",
    "PreparedDraw",
    "Weighting",
    "check_moments",
    "checked",
    "classification_schema",
    "features_and_targets",
    "forget_names",
    "in_arrays",
    "named",
    "one_by_one",
    "read_classes",
    "regression_schema",
    "rows_of_arrays",
    "target_names",
    "without_values",
]


T = TypeVar("T")

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])

_NOT_NUMERIC = (
    "X and y must be numeric, finite and of equal length: each value of either argument must be a string of digits or "
    "a real number. Encode categories and dates and replace NaN and infinity, or use gaussmix.release with a schema."
)


def checked(estimator: Any, X: Any, *y: Any, reset: bool = True, **options: Any) -> Any:
    """Equivalent to scikit-learn's ``validate_data``, with errors that quote no cell."""
    return without_values(_checked, estimator, X, *y, reset=reset, **options)


def _checked(estimator: Any, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
    if is_polars_dataframe(X) and not hasattr(X, "__dataframe__") and sklearn_version < (1, 9):
        X = _Named(X)
    _check_shapes(X, *y, least=options.get("ensure_min_samples", 1))
    if y and not options.get("multi_output") and getattr(y[0], "shape", (1,))[1:] not in ((), (1,)):
        raise DataError("y must be one-dimensional.")
    found = check_X_y(X, *y, **options) if y else check_array(X, **options)
    try:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
    except (TypeError, ValueError) as error:  # about names and numbers of columns: all cells are numbers by now
        raise (DataTypeError if isinstance(error, TypeError) else DataError)(str(error)) from None
    return found


def _check_shapes(X: Any, *y: Any, least: int) -> None:
    """Reject what is wrong whatever the cells hold."""
    if any(scipy.sparse.issparse(array) for array in (X, *y)):
        raise DataTypeError("X and y must be dense, got a sparse matrix: use its toarray() method.")
    if y and y[0] is None:
        raise DataError("fit requires y to be passed, but the target y is None.")
    if any(getattr(getattr(array, "dtype", None), "kind", "") == "c" for array in (X, *y)):
        raise DataError("Complex data not supported: X and y must be real.")
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) != 2:
        raise DataError(f"X must have the shape (rows, features), got {len(shape)} dimension(s). Reshape your data.")
    if shape[1] < 1:
        raise DataError(f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    if shape[0] < least:
        raise DataError(f"X has {shape[0]} sample(s) while a minimum of {least} is required.")


def one_by_one(labels: Any) -> Any:
    """Labels of a list as they are: NumPy would find one type for all of them, and one row would change the others.

    >>> one_by_one([0, "1"]).tolist()
    [0, '1']
    """
    if not isinstance(labels, Sequence) or isinstance(labels, str | bytes):
        return labels
    found = np.empty(len(labels), dtype=object)
    for place, label in enumerate(labels):
        found[place] = label
    return found


class _Named:
    """A polars 2 frame with its names in the form that scikit-learn read before 1.9: an interchange object."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.shape = frame.shape

    def __len__(self) -> int:
        return len(self._frame)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._frame.to_numpy(), dtype=dtype)

    def __dataframe__(self, *_: Any, **__: Any) -> _Named:
        return self

    def column_names(self) -> list[str]:
        return list(self._frame.columns)


def without_values(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return the result of a function; replace errors that are not ours by one that is chained to nothing."""
    try:
        return function(*arguments, **options)
    except MemoryError:
        raise
    except GaussmixError as error:
        problem: Exception = error.with_traceback(None)
    except TypeError:
        problem = DataTypeError(_NOT_NUMERIC)
    except Exception:
        problem = DataError(_NOT_NUMERIC)
    problem.__cause__ = problem.__context__ = None
    raise problem  # outside of the handler: nothing is chained to it


Bounds = tuple[ArrayLike, ArrayLike]
Weighting = Literal["balanced", "paper"]

FEATURES = "X"
"""Name of the vector of features."""

INTERCEPT_OF_NORM = 0.5
"""Value of the constant column, in units of ``data_norm``, where features are bounded by norm alone."""


def target_names(n_targets: int) -> tuple[str, ...]:
    """``("y",)``, or ``("y0", "y1", …)``."""
    return ("y",) if n_targets == 1 else tuple(f"y{i}" for i in range(n_targets))


def regression_schema(
    n_features: int,
    n_targets: int,
    *,
    data_norm: float | None,
    bounds_X: Bounds | None,
    bounds_y: Bounds | None,
    fit_intercept: bool,
    weighting: Weighting = "balanced",
) -> Schema:
    r"""The schema of a linear regression.

    With an intercept, bounded features and targets are centred; without one nothing is, and bounds are widened to
    ±max(\|lower\|, \|upper\|), so that no intercept comes in through the centres.

    The weight of the q targets is ``"balanced"``,

    .. math:: w^2 = C_X^2\,\bigl(\sqrt{1 + 8/q} - 1\bigr)/4,

    which minimises (C_X² + q w²)²(1/w² + 1/C_X²), the variance of the noise in xᵀ(y - xθ) for a θ that takes rows of
    norm C_X to targets of size 1; or the ``"paper"``'s: targets enter in the units of the features.
    """
    if bounds_y is None:
        raise DeclarationError(
            "bounds_y=(lower, upper) must be declared. It must be fixed before the data are seen: "
            "a bound taken from the data is not private."
        )
    lower, upper = _per_column(bounds_y, n_targets, "bounds_y")
    if not fit_intercept:
        lower, upper = _symmetric(lower, upper)
    features, intercept = _features(n_features, data_norm, bounds_X, fit_intercept)
    if weighting == "balanced":
        weights = [_balanced_weight(features, intercept, n_targets)] * n_targets
    elif features.bounded:
        weights = [1.0] * n_targets
    else:
        weights = [(high - low) / 2 / (features.norm or 1.0) for low, high in zip(lower, upper, strict=True)]
    targets = {
        name: Numeric(low, high, weight=weight)
        for name, low, high, weight in zip(target_names(n_targets), lower, upper, weights, strict=True)
    }
    return Schema({FEATURES: features, **targets}, intercept)


def classification_schema(
    n_features: int,
    *,
    data_norm: float | None,
    bounds_X: Bounds | None,
    fit_intercept: bool,
    weighting: Weighting = "balanced",
) -> Schema:
    """The schema of a classification with two classes, as true and false; weights as for targets in [-1, 1]."""
    features, intercept = _features(n_features, data_norm, bounds_X, fit_intercept)
    if weighting == "balanced":
        weight = _balanced_weight(features, intercept, 1)
    else:
        weight = 1.0 if features.bounded else 1 / (features.norm or 1.0)
    columns: dict[str, Column] = {FEATURES: features, **{name: Boolean(weight=weight) for name in target_names(1)}}
    return Schema(columns, intercept)


def _features(
    n_features: int, data_norm: float | None, bounds_X: Bounds | None, fit_intercept: bool
) -> tuple[Vector, float]:
    """The vector X and the value of the constant column."""
    if data_norm is None and bounds_X is None:
        raise DeclarationError(
            "Declare bounds_X or data_norm. They must be fixed before the data are seen: "
            "a bound taken from the data is not private."
        )
    if data_norm is not None:
        data_norm = check.positive(finite=True, data_norm=data_norm)
    if bounds_X is None:
        return Vector(n_features, norm=data_norm), INTERCEPT_OF_NORM if fit_intercept else 0.0
    lower, upper = _per_column(bounds_X, n_features, "bounds_X")
    if not fit_intercept:
        lower, upper = _symmetric(lower, upper)
    return Vector(n_features, lower=lower, upper=upper, norm=data_norm), 1.0 if fit_intercept else 0.0


def _balanced_weight(features: Vector, intercept: float, n_targets: int) -> float:
    square = float(features.squared_norm) + intercept**2
    return math.sqrt(square * (math.sqrt(1 + 8 / n_targets) - 1) / 4)


def _per_column(bounds: Bounds, columns: int, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lower and upper bounds, one each a column, from scalars or one value a column; pairs by column are refused."""
    if _looks_like_pairs(bounds, columns):
        raise DeclarationError(
            f"{name} must be (lower, upper), each a scalar or one value per column, and what was given can be read as "
            "one pair per column. Say which bounds are which: (np.array([all lower]), np.array([all upper]))."
        )
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise DeclarationError(f"{name} must be a pair (lower, upper), got {bounds!r}.") from None
    try:
        lows = np.broadcast_to(check.numbers(lower=lower), columns)
        highs = np.broadcast_to(check.numbers(upper=upper), columns)
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{name} must be a pair (lower, upper) of numbers, each a scalar or one per column ({columns}), "
            f"got {bounds!r}."
        ) from None
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            way = (
                "Swap them: the smaller bound comes first" if low > high else "A constant column carries no information"
            )
            raise DeclarationError(
                f"{name} must be a pair (lower, upper), finite with lower < upper, got ({low!r}, {high!r}). {way}."
            )
    return tuple(lows.tolist()), tuple(highs.tolist())


def _looks_like_pairs(bounds: object, columns: int) -> bool:
    """Whether bounds could be one (lower, upper) for each column, and would then mean something else.

    ``[(0, 1), (10, 20)]`` could be either, of two columns. Two arrays, ``(np.array([0, 1]), np.array([10, 20]))``, are
    taken for what they are.
    """
    nested = isinstance(bounds, list | tuple) and all(isinstance(pair, list | tuple) for pair in bounds)
    try:
        pairs = np.asarray(bounds if nested or isinstance(bounds, np.ndarray) else (), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    if pairs.shape != (columns, 2) or not np.all(pairs[:, 0] < pairs[:, 1]):
        return False
    return columns != 2 or bool(pairs[0, 1] != pairs[1, 0])  # else both ways to read it are the same


def _symmetric(lower: tuple[float, ...], upper: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    widest = tuple(max(abs(low), abs(high)) for low, high in zip(lower, upper, strict=True))
    return tuple(-bound for bound in widest), widest


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
        raise ArgumentError("The targets of these moments must be numbers. Use gaussmix.release instead.")
    return X.size, len(targets)


def check_moments(moments: Moments, schema: Schema, n_features: int, *, n_rows: int | None) -> None:
    """Refuse moments that are not what the estimator declares. Errors here are for the curator."""
    if moments.unit is not None:
        raise ArgumentError("Moments of privacy units are not supported by estimators. Use gaussmix.release instead.")
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


def named(estimator: Any, problem: Problem) -> Problem:
    """A problem with ``feature_names_in_``, or x0, x1, …, in place of the entries of the vector."""
    entries = {f"{FEATURES}[{i}]": f"x{i}" for i in range(estimator.n_features_in_)}
    if hasattr(estimator, "feature_names_in_"):
        entries = dict(zip(entries, (str(name) for name in estimator.feature_names_in_), strict=True))
    return replace(problem, names=tuple(entries.get(name, name) for name in problem.names))
