"""Everything declared is looked at before a value of X or y is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from example_models import LOGISTIC, PRIVATE, model_name


class Unread:
    """The shape of an array, without values to look at."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise AssertionError("the rows were read")


WRONG = [({"epsilon": -1.0}, "epsilon must be"), ({"delta": 2.0}, "delta must"), ({"bounds_X": None}, "bounds_X")]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_what_is_declared_is_checked_before_rows_are(model, wrong, said):
    asked = clone(model).set_params(**wrong)
    with pytest.raises(ValueError, match=said):
        asked.fit(Unread(50, 2), Unread(50))
    X, y = np.zeros((50, 2)), np.full(50, np.nan)
    for table in (X, X.tolist()):
        with pytest.raises(ValueError, match=said):
            asked.fit(table, y)


@pytest.mark.parametrize("model", PRIVATE, ids=model_name)
def test_rows_are_read_once_all_is_prepared(model):
    """The other way round: the test above would see a row that is read."""
    with pytest.raises(ValueError, match="must be numeric"):
        clone(model).fit(Unread(50, 2), np.ones(50))


@pytest.mark.parametrize("model", LOGISTIC, ids=model_name)
def test_declared_classes_are_checked_before_rows_are(model):
    with pytest.raises(ValueError, match="two different labels"):
        clone(model).set_params(classes=("a", "a")).fit(Unread(50, 2), Unread(50))
