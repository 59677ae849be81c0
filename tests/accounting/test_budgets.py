"""Weak budgets are named in words, once, where the caller can see them."""

from __future__ import annotations

import math
import warnings

import pytest

import gaussmix as gm
from gaussmix.ledger.budget import warn_if_weak

TABLE, SCHEMA = {"x": [0.5, 0.25]}, {"x": [0, 1]}


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (1.0, 0.1, ("one row in 10",)),
        (100.0, 1e-6, ("e^100",)),
        (1.0, 1e-50, ("holds for a delta of 1e-40",)),
        (21.0, 0.01, ("epsilon=21 gives no meaningful", "one row in 100")),
        (20.0, 0.0099, ()),
        (1.0, 1e-40, ()),
        (math.inf, 1e-6, ()),  # its certificate has words of its own
    ],
)
def test_weak_points(epsilon, delta, words):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_if_weak(epsilon, delta)
    assert len(said) == bool(words)
    assert all(word in str(said[0].message) for word in words)
    assert all(str(warning.message).count("=") == len(words) for warning in said)  # one sentence for each weakness


def test_a_release_warns_once_at_the_callers_line():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gm.release(TABLE, schema=SCHEMA, epsilon=25.0, delta=0.02, random_state=0)
    (warning,) = said
    assert warning.category is gm.BudgetWarning
    assert warning.filename == __file__


def test_a_warning_comes_before_anything_is_read():
    def touched():
        pytest.fail("a row was read")
        yield

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(gm.BudgetWarning, match="no meaningful worst-case guarantee"):
            gm.release(touched(), schema=SCHEMA, epsilon=25.0, delta=1e-6)
