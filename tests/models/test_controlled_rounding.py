"""Rounded cross-tables: every cell, margin and total is next to what it was."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gaussmix.models.controlled_rounding import rounded

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 6))
CELLS = hnp.arrays(np.float64, SHAPES, elements=st.floats(0, 1e5, allow_nan=False, width=32))


def beside(whole, exact):
    return np.all(np.abs(whole - exact) < 1 + 1e-6)


@given(CELLS)
@settings(max_examples=50)
def test_cells_margins_and_total_are_beside_what_they_were(cells):
    whole = rounded(cells)
    assert whole.dtype == np.int64
    assert (whole >= 0).all()
    assert beside(whole, cells)
    assert beside(whole.sum(axis=0), cells.sum(axis=0))
    assert beside(whole.sum(axis=1), cells.sum(axis=1))
    assert beside(whole.sum(), cells.sum())


@given(hnp.arrays(np.int64, SHAPES, elements=st.integers(0, 10**6)))
@settings(max_examples=50)
def test_integers_stay_as_they_are(cells):
    assert np.array_equal(rounded(cells.astype(float)), cells)


def test_plain_rounding_would_not_add_up():
    cells = np.full((3, 3), 1 / 3)
    assert np.round(cells).sum() == 0
    whole = rounded(cells)
    assert whole.sum(axis=0).tolist() == whole.sum(axis=1).tolist() == [1, 1, 1]
