"""Arrays X and y that callers give to estimators, checked by scikit-learn, with errors that quote no value."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_X_y, validate_data

from gaussmix._types import Rows
from gaussmix.errors import DataError, DataTypeError, DeclarationError
from gaussmix.paper.rows import without_values

__all__ = ["NOT_NUMERIC", "check_classes", "checked", "read_classes"]

NOT_NUMERIC = (
    "X and y must be numeric, finite and of equal length: each value of either argument must be a string of digits or "
    "a real number, and neither NaN nor infinite."
)


def checked(estimator: Any, X: Any, *y: Any, reset: bool = True, **options: Any) -> Any:
    """Equivalent to scikit-learn's ``validate_data``, with errors that quote no value."""
    return without_values(_checked, estimator, X, *y, message=NOT_NUMERIC, reset=reset, **options)


def _checked(estimator: Any, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
    _check_shapes(X, *y, least=options.get("ensure_min_samples", 1))
    options = {"dtype": [np.float64, np.float32], **options}
    found = check_X_y(X, *y, **options) if y else check_array(X, **options)
    try:
        validate_data(estimator, X, skip_check_array=True, reset=reset)
    except (TypeError, ValueError) as error:  # about names and numbers of columns, which are public
        raise (DataTypeError if isinstance(error, TypeError) else DataError)(str(error)) from None
    return found


def _check_shapes(X: Any, *y: Any, least: int) -> None:
    """Reject what is wrong whatever the values are."""
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
    if y and getattr(y[0], "shape", (1,))[1:] not in ((), (1,)):
        raise DataError("y must be one-dimensional.")


# ----------------------------------------------------------------------------------------------------------------------
# Two classes
def check_classes(declared: ArrayLike | None) -> None:
    """Refuse declared classes that are not two labels, before a row is read."""
    classes = np.asarray(declared)
    if declared is not None and (classes.shape != (2,) or classes[0] == classes[1]):
        raise DeclarationError("classes must be two different labels.")


def read_classes(estimator: Any, X: Any, y: Any, declared: ArrayLike | None) -> tuple[Rows, Rows, Rows]:
    """Return checked features, which rows are of the second class, and the two classes."""
    rows, labels = checked(estimator, X, y if declared is None else _one_by_one(y), ensure_min_samples=2)
    second, classes = without_values(_second_class, labels, declared, message=NOT_NUMERIC)
    return rows, second, classes


def _one_by_one(labels: Any) -> Any:
    """Keep the labels of a list as they are: NumPy would find one type for all, and one row would change the others."""
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
        raise DataError("y has labels that are not in the declared classes.")
    return np.asarray(labels == classes[1]), classes
