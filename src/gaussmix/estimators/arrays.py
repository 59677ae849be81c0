"""Arrays that callers give to estimators, checked by scikit-learn, with errors that quote no cell.

scikit-learn, NumPy, pandas and Arrow put values into their messages (``could not convert string to float: 'alice'``,
``got 1D array instead: array=[...]``). Messages leave the machine. Shapes and types are checked here, before a cell is
looked at, with messages of our own; any error about cells becomes one sentence that is the same for every table.

>>> without_values(float, "alice")
Traceback (most recent call last):
    ...
gaussmix.errors.DataError: X and y must be numeric, finite and of equal length: ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import sklearn
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_X_y, validate_data

from gaussmix.errors import DataError, DataTypeError, GaussmixError

__all__ = ["checked", "one_by_one", "without_values"]

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
