"""No message of an estimator holds a value of the table: neither its own, nor one that is chained to it."""

from __future__ import annotations

import datetime
import decimal
import fractions
import traceback
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import gaussmix as gm
from gaussmix.errors import DataError

SECRET = "alice-hiv+"
NUMBER = 8675309.25  # a value that a repr of an array would show
SHOWN = ("alice", "hiv", "8675309")

DECLARED = {"bounds_X": (-1, 1), "random_state": 0}
REGRESSORS = [
    gm.LinearRegression(**DECLARED, bounds_y=(-1, 1)),
    gm.baselines.AdaSSP(**DECLARED, bounds_y=(-1, 1)),
    gm.baselines.SheffetMixing(**DECLARED, bounds_y=(-1, 1)),
    gm.baselines.Ridge(bounds_X=(-1, 1), bounds_y=(-1, 1)),
    gm.baselines.Constant(),
]
CLASSIFIERS = [
    gm.LogisticRegression(**DECLARED),
    gm.LogisticRegression(**DECLARED, classes=(0, 1)),
    gm.baselines.ObjectivePerturbation(**DECLARED),
]


class Hostile:
    """An object whose every conversion quotes it."""

    def __float__(self):
        raise ValueError(f"no float: {SECRET}")

    def __array__(self, *_, **__):
        raise TypeError(f"no array: {SECRET}")

    def __repr__(self):
        return SECRET


class Unsortable(Hostile):
    """The same, and not to be compared either."""

    def __eq__(self, other):
        raise RuntimeError(f"no comparison: {SECRET}")

    __hash__ = None  # type: ignore[assignment]


def good_x(n=40):
    return np.linspace(-1, 1, 2 * n).reshape(n, 2)


def good_y(n=40):
    return np.arange(n) % 2


def column(value, n=40):
    found = np.empty((n, 2), dtype=object)
    found[:] = 0.5
    found[3, 1] = value
    return found


CELLS = {
    "text": SECRET,
    "bytes": SECRET.encode(),
    "list": [SECRET, NUMBER],
    "dictionary": {SECRET: NUMBER},
    "hostile": Hostile(),
    "unsortable": Unsortable(),
    "complex": complex(NUMBER, 1),
    "date": datetime.datetime(8675, 3, 9),
    "decimal": decimal.Decimal("NaN8675309"),
    "fraction": fractions.Fraction(8675309, 1) ** 60,
    "integer": int("8675309" * 60),
    "none": None,
}
TABLES = {
    **{f"cell {name}": (lambda value=value: column(value)) for name, value in CELLS.items()},
    "strings": lambda: np.full((40, 2), SECRET),
    "frame": lambda: pd.DataFrame({"a": [SECRET] * 40, "b": 1.0}),
    "category": lambda: pd.DataFrame({"a": pd.Categorical([SECRET, "b"] * 20), "b": 1.0}),
    "arrow strings": lambda: pd.DataFrame({"a": pd.array([SECRET] * 40, dtype="string[pyarrow]"), "b": 1.0}),
    "nullable": lambda: pd.DataFrame({"a": pd.array([NUMBER, None] * 20, dtype="Float64"), "b": SECRET}),
    "period": lambda: pd.DataFrame({"a": pd.period_range("8675", periods=40, freq="D"), "b": 1.0}),
    "polars": lambda: pl.DataFrame({"a": [SECRET] * 40, "b": 1.0}),
    "arrow": lambda: pa.table({"a": [SECRET] * 40, "b": [1.0] * 40}),
    "one-dimensional": lambda: np.full(40, NUMBER),
    "one row": lambda: np.full((1, 2), NUMBER),
    "scalar": lambda: NUMBER,
    "word": lambda: SECRET,
    "three-dimensional": lambda: np.full((40, 2, 2), NUMBER),
    "no columns": lambda: np.empty((40, 0)),
    "complex": lambda: np.full((40, 2), complex(NUMBER, NUMBER)),
    "sparse": lambda: scipy.sparse.csr_array(np.full((40, 2), NUMBER)),
    "ragged": lambda: [[NUMBER, SECRET]] * 39 + [[NUMBER]],
    "structured": lambda: np.full(40, (NUMBER, SECRET), dtype=[("a", float), ("b", "U10")]),
    "dates": lambda: np.full((40, 2), np.datetime64("8675-03-09")),
    "infinite": lambda: np.full((40, 2), np.inf),
    "missing": lambda: np.full((40, 2), np.nan),
    "huge": lambda: np.full((40, 2), NUMBER, dtype=np.longdouble) * np.longdouble("1e4000"),
    "short": lambda: np.full((39, 2), NUMBER),
    "nothing": lambda: None,
    "generator": lambda: (SECRET for _ in range(40)),
    "hostile": Hostile,
}
LABELS = {
    **{f"cell {name}": (lambda value=value: column(value)[:, 1]) for name, value in CELLS.items()},
    "strings": lambda: np.full(40, SECRET),
    "two strings": lambda: np.array([SECRET, "bob"] * 20),
    "three strings": lambda: np.array([SECRET, "bob", "carol", "dave"] * 10),
    "mixed": lambda: np.array([SECRET, 1] * 20, dtype=object),
    "series": lambda: pd.Series([SECRET, None] * 20),
    "category": lambda: pd.Series(pd.Categorical([SECRET, "b", "c", "d"] * 10)),
    "sets": lambda: [{SECRET}] * 40,
    "lists": lambda: [[SECRET], [NUMBER, SECRET]] * 20,
    "continuous": lambda: np.linspace(0, NUMBER, 40),
    "table": lambda: np.full((40, 3), SECRET),
    "complex": lambda: np.full(40, complex(NUMBER, 2)),
    "word": lambda: SECRET,
    "scalar": lambda: NUMBER,
    "short": lambda: np.full(39, NUMBER),
    "sparse": lambda: scipy.sparse.csr_array(np.full((40, 1), NUMBER)),
    "infinite": lambda: np.full(40, np.inf),
    "none": lambda: None,
    "hostile": Hostile,
}


def everything_said(error: BaseException) -> str:
    """All messages that a traceback would show, those of chained errors too."""
    return "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(error.__cause__)


def assert_silent(call):
    """What the call says, in an error of whatever kind or in a warning, quotes no cell."""
    found = None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            found = error
    words = "" if found is None else everything_said(found)
    assert not any(secret in words for secret in SHOWN), words
    assert found is None or isinstance(found, ValueError | TypeError), words
    assert found is None or (found.__cause__ is None and found.__context__ is None), words
    for warning in said:
        assert not any(secret in str(warning.message) for secret in SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("table", TABLES)
def test_features(model, table):
    assert_silent(lambda: model.fit(TABLES[table](), good_y()))
    model.fit(good_x(), good_y())
    assert_silent(lambda: model.predict(TABLES[table]()))
    assert_silent(lambda: model.score(TABLES[table](), good_y()))


@pytest.mark.slow
@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("labels", LABELS)
def test_targets(model, labels):
    assert_silent(lambda: model.fit(good_x(), LABELS[labels]()))
    model.fit(good_x(), good_y())
    assert_silent(lambda: model.score(good_x(), LABELS[labels]()))


def test_the_test_sees_what_it_looks_for():
    with pytest.raises(ValueError, match="alice") as caught:
        np.asarray(column(SECRET), dtype=float)
    assert any(secret in everything_said(caught.value) for secret in SHOWN)
    with pytest.raises(AssertionError):
        assert_silent(lambda: float(SECRET))


def test_words_that_remain_help():
    with pytest.raises(DataError, match="X and y must be numeric"):
        REGRESSORS[0].fit(column(SECRET), good_y())
    with pytest.raises(DataError, match="Reshape your data"):
        REGRESSORS[0].fit(np.zeros(40), good_y())
    with pytest.raises(DataError, match="y must be one-dimensional"):
        CLASSIFIERS[0].fit(good_x(), np.zeros((40, 2)))
    with pytest.raises(TypeError, match="all input features have string names"):
        REGRESSORS[0].fit(pd.DataFrame(good_x(), columns=["a", 1]), good_y())
    fitted = REGRESSORS[0].fit(pd.DataFrame(good_x(), columns=["a", "b"]), good_y())
    with pytest.raises(DataError, match="unseen at fit time:\n- c"):
        fitted.predict(pd.DataFrame(good_x(), columns=["a", "c"]))
    with pytest.raises(DataError, match="labels that are not in the declared classes"):
        CLASSIFIERS[1].fit(good_x(), np.array([SECRET, "bob"] * 20))


@pytest.mark.parametrize("model", [gm.LogisticRegression, gm.baselines.ObjectivePerturbation])
def test_no_label_changes_how_others_are_read(model):
    """NumPy would read all of a list as text where one of it is."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    estimator = model(classes=("0", "1"), bounds_X=(-1, 1), epsilon=1.0, delta=1e-6)
    for last in (1, "1", b"1"):
        with pytest.raises(DataError, match="labels that are not in the declared classes"):
            estimator.fit(X, [0, 1] * 19 + [0, last])
    assert estimator.fit(X, ["0", "1"] * 20).classes_.tolist() == ["0", "1"]


def test_no_warning_tells_how_many_labels_there_are():
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    for classes in (("c0", "c1"), None):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(DataError):
                gm.LogisticRegression(classes=classes, bounds_X=(-1, 1)).fit(
                    X, np.array([f"c{i % 40}" for i in range(60)])
                )
        assert not warned
