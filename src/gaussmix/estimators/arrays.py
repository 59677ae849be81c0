"""Arrays that callers give to estimators, checked by scikit-learn, with errors that quote no cell.

scikit-learn, NumPy, pandas and Arrow put values into their messages (``could not convert string to float: 'alice'``,
``got 1D array instead: array=[...]``). Messages leave the machine, so that none of theirs is passed on: what is known
to name shapes, types or columns only is written anew here, and all else becomes one sentence.

>>> without_values(float, "alice")
Traceback (most recent call last):
    ...
gaussmix.errors.DataError: A cell of X or y is no number: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import sklearn
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from gaussmix.errors import DataError, DataTypeError, GaussmixError

__all__ = ["checked", "one_by_one", "without_values"]

T = TypeVar("T")

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])

_NO_NUMBER = (
    "A cell of X or y is no number: each value of either argument must be a string of digits or a real number. Encode "
    "categories and dates first, or use gaussmix.release with a schema."
)
_SHAPE = r"\([\d, ]*\)"
_LABELS = r"continuous-multioutput|continuous|multiclass-multioutput|multilabel-indicator|multilabel-sequences|unknown"

# What scikit-learn says where it names shapes, types and columns, and how it is said here. Groups hold no cells.
_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"Expected 2D array, got (1D|scalar) (?:array|data)",
        r"Expected 2D array, got \1 array instead. Reshape your data: X has the shape (rows, features).",
    ),
    (r"Expected 2-dimensional container", "Reshape your data: X has the shape (rows, features)."),
    (r"Complex data not supported", "Complex data not supported: X and y hold real numbers."),
    (r"Input (X|y)?\s*contains NaN", "Input contains NaN: fill missing values in, or drop their rows."),
    (r"Input (X|y)?\s*contains infinity", "Input contains infinity or a value too large: replace such values."),
    (r"(?:Sparse data was passed|A sparse matrix was passed)", "Sparse data was passed: use its toarray() method."),
    (
        rf"Found array with (\d+) (sample|feature)\(s\) \(shape=({_SHAPE})\) while a minimum of (\d+) is required",
        r"Found array with \1 \2(s) (shape=\3) while a minimum of \4 is required.",
    ),
    (r"Found array with dim (\d+)", r"Found array with dim \1: X has the shape (rows, features)."),
    (
        r"Found input variables with inconsistent numbers of samples",
        "Found input variables with inconsistent numbers of samples: X and y must have as many rows as each other.",
    ),
    (
        r"X has (\d+) features?, but (\w+) is expecting (\d+) features? as input",
        r"X has \1 features, but \2 is expecting \3 features as input.",
    ),
    (rf"y should be a 1d array, got an array of shape ({_SHAPE})", r"y should be a 1d array, got one of shape \1."),
    (r".*requires y to be passed, but the target y is None", "fit requires y to be passed, but the target y is None."),
    (rf"Unknown label type: \(?'?({_LABELS})", r"Unknown label type: \1. A classifier needs two labels."),
    (
        r"Feature names are only supported if all input features have string names",
        "Feature names are only supported if all input features have string names: rename the columns.",
    ),
    (
        r"(The feature names should match those that were passed during fit\.(?:.|\n)*)",  # names of columns
        r"\1",
    ),
    (r".*inhomogeneous shape", "The rows of X or y have different lengths: X has the shape (rows, features)."),
)


def checked(estimator: Any, *arrays: Any, **options: Any) -> Any:
    """scikit-learn's ``validate_data`` with errors that quote no cell."""
    return without_values(_validated, estimator, *arrays, **options)


def _validated(estimator: Any, X: Any, *others: Any, **options: Any) -> Any:
    if is_polars_dataframe(X) and not hasattr(X, "__dataframe__") and sklearn_version < (1, 9):
        X = _Named(X)
    return validate_data(estimator, X, *others, **options)


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
    """The result of a function; its errors in words of ours, and chained to nothing that quotes a cell."""
    try:
        return function(*arguments, **options)
    except MemoryError:
        raise
    except GaussmixError as error:
        problem: Exception = error.with_traceback(None)
    except Exception as error:
        problem = _described(error)
    problem.__cause__ = problem.__context__ = None
    raise problem  # outside of the handler: nothing is chained to it


def _described(error: Exception) -> DataError:
    kind = DataTypeError if isinstance(error, TypeError) else DataError
    text = str(error)
    for pattern, words in _KNOWN:
        found = re.match(pattern, text)
        if found:
            return kind(found.expand(words))
    return kind(_NO_NUMBER)
