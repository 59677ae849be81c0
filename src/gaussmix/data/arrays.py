"""Arrays X and y as scikit-learn users pass them, with errors that quote no value.

scikit-learn, NumPy, pandas and Arrow quote values in their messages (``could not convert string to float: 'alice'``),
and messages may leave the machine. Shapes and types are therefore checked first, with messages of our own. Every error
about values is replaced by one message, the same for every table.

>>> without_values(float, "alice")
Traceback (most recent call last):
    ...
gaussmix.errors.DataError: X and y must be numeric, finite and of equal length: ...
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import sklearn
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_X_y, validate_data

from gaussmix._types import Rows
from gaussmix.errors import DataError, DataTypeError, DeclarationError, GaussmixError

__all__ = ["check_classes", "read_classes", "read_features", "read_targets", "shape_of", "without_values"]

T = TypeVar("T")

_SKLEARN_VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
_NOT_NUMERIC = (
    "X and y must be numeric, finite and of equal length: each value of either argument must be a string of digits or "
    "a real number. Encode categories and dates and replace NaN and infinity, or use gaussmix.release with a schema."
)


def without_values(function: Callable[..., T], *arguments: Any, message: str = _NOT_NUMERIC, **options: Any) -> T:
    """Return the result of a function; replace errors of other libraries by one that quotes no value."""
    try:
        return function(*arguments, **options)
    except MemoryError:
        raise
    except GaussmixError as error:
        problem: Exception = error.with_traceback(None)
    except TypeError:
        problem = DataTypeError(message)
    except Exception:
        problem = DataError(message)
    problem.__cause__ = problem.__context__ = None
    raise problem  # outside of the handler, so that no other error is chained to it


def shape_of(X: ArrayLike, y: ArrayLike) -> tuple[int, tuple[int, ...]]:
    """Return the number of features, and () for one target or (n_targets,), without reading values."""
    return without_values(_checked_shapes, X, y)


def read_features(estimator: Any, X: ArrayLike) -> Rows:
    """Return the features of rows to predict, with the columns that the estimator was fitted to."""
    return np.asarray(without_values(_checked, estimator, X, reset=False))


def read_targets(
    estimator: Any, X: ArrayLike, y: ArrayLike, *, several: bool = False, finite: bool = True
) -> tuple[Rows, Rows]:
    """Return features and targets; ``finite=False`` leaves the search for NaN and infinity to the caller."""
    rows, targets = without_values(
        _checked, estimator, X, y, multi_output=several, y_numeric=True, ensure_all_finite=finite
    )
    return rows, targets


def read_classes(
    estimator: Any, X: ArrayLike, y: ArrayLike, declared: ArrayLike | None, *, finite: bool = True
) -> tuple[Rows, Rows, Rows]:
    """Return features, which rows belong to the second class, and the two classes."""
    given = y if declared is None else _one_by_one(y)
    rows, labels = without_values(_checked, estimator, X, given, ensure_all_finite=finite)
    second, classes = without_values(_second_class, labels, declared)
    return rows, second, classes


def check_classes(declared: ArrayLike | None) -> None:
    """Reject declared classes that are not two different labels, before a row is read."""
    message = "classes must be two different labels."
    if declared is not None and not without_values(_are_two_labels, declared, message=message):
        raise DeclarationError(message)


def _are_two_labels(declared: ArrayLike) -> bool:
    classes = np.asarray(declared)
    return classes.shape == (2,) and bool(classes[0] != classes[1])


# ----------------------------------------------------------------------------------------------------------------------
def _checked(estimator: Any, X: Any, *y: Any, reset: bool = True, multi_output: bool = False, **options: Any) -> Any:
    """Equivalent to scikit-learn's ``validate_data``."""
    if is_polars_dataframe(X) and not hasattr(X, "__dataframe__") and _SKLEARN_VERSION < (1, 9):
        X = _Named(X)
    _checked_shapes(X, *y, least=2 if y else 1)
    if y and not multi_output and getattr(y[0], "shape", (1,))[1:] not in ((), (1,)):
        raise DataError(f"y must be one-dimensional, got the shape (rows, {', '.join(map(str, y[0].shape[1:]))}).")
    options["dtype"] = [np.float64, np.float32]
    found = check_X_y(X, *y, multi_output=multi_output, **options) if y else check_array(X, **options)
    try:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
    except (TypeError, ValueError) as error:  # about names and numbers of columns: all values are numbers by now
        raise (DataTypeError if isinstance(error, TypeError) else DataError)(str(error)) from None
    return found


def _checked_shapes(X: Any, *y: Any, least: int = 0) -> tuple[int, tuple[int, ...]]:
    """Check shapes and types without reading values; return the number of features and the shape of a row of y."""
    if any(scipy.sparse.issparse(array) for array in (X, *y)):
        raise DataTypeError("X and y must be dense, got a sparse matrix: use its toarray() method.")
    if y and y[0] is None:
        raise DataError("fit requires y to be passed, but the target y is None.")
    if any(getattr(getattr(array, "dtype", None), "kind", "") == "c" for array in (X, *y)):
        raise DataError("Complex data not supported: X and y must be real.")
    shape, *others = (array.shape if hasattr(array, "shape") else np.asarray(array).shape for array in (X, *y))
    if len(shape) != 2:
        raise DataError(f"X must have the shape (rows, features), got {len(shape)} dimension(s). Reshape your data.")
    if shape[1] < 1:
        raise DataError(f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    if shape[0] < least:
        raise DataError(f"X has {shape[0]} sample(s) while a minimum of {least} is required.")
    targets = others[0][1:] if others else ()
    if len(targets) > 1 or 0 in targets:
        found = ", ".join(map(str, targets))
        raise DataError(f"y must have the shape (rows,) or (rows, targets), got (rows, {found}).")
    return shape[1], targets


def _one_by_one(labels: Any) -> Any:
    """Return labels without a common type: if NumPy inferred one, one row would change how others are read."""
    if not isinstance(labels, Sequence) or isinstance(labels, str | bytes):
        return labels
    found = np.empty(len(labels), dtype=object)
    for place, label in enumerate(labels):
        found[place] = label
    return found


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
        raise DataError("y has labels that are not in the declared classes. Correct y or classes.")
    return np.asarray(labels == classes[1]), classes


class _Named:
    """A polars 2 frame whose names scikit-learn before 1.9 can read: an interchange object."""

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
