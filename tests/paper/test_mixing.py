"""Tables, arguments and clipping of GaussMix and Algorithm 1."""

from __future__ import annotations

import math
import traceback

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from gaussmix import ArgumentError, DataError, GaussmixError, paper
from gaussmix.mechanism.noise import public_grid
from gaussmix.paper.rows import UNIT, Table, clip_rows

RNG = np.random.default_rng(0)
A = RNG.uniform(-0.5, 0.5, (3000, 3))
NAMES = ("a", "b", "c")


def sketch_of(table, **options):
    return paper.gauss_mix(table, **{"k": 20, "sigma": 2.0, "row_norm": 1.0, "rng": 5, **options})


# ---------------------------------------------------------------------------------------------------------------
# Tables
TABLES = {
    "list": A.tolist(),
    "fortran": np.asfortranarray(A),
    "pandas": pd.DataFrame(A, columns=NAMES),
    "polars": pl.DataFrame(A, schema=list(NAMES)),
    "arrow": pa.table({name: A[:, j] for j, name in enumerate(NAMES)}),
    "more columns": pd.DataFrame(A[:, ::-1], columns=NAMES[::-1]).assign(text="x"),
    "blocks": [A[:1], A[1:1], A[1:2000], A[2000:]],
    "frames": [pd.DataFrame(A[:700], columns=NAMES), pl.DataFrame(A[700:], schema=list(NAMES))],
}


@pytest.mark.parametrize("method", ["gram", "explicit"])
@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_sketch(kind, method):
    expected = sketch_of(A, method=method, columns=NAMES)
    found = sketch_of(TABLES[kind], method=method, columns=NAMES)
    assert found.columns == NAMES
    atol = 0 if method == "gram" else 2 * public_grid(2.0)  # sums of S·A depend on the order in their last digits
    assert np.abs(found.rows - expected.rows).max() <= atol
    streamed = sketch_of(iter([A[:100], A[100:]]), method=method, columns=NAMES)
    assert np.abs(streamed.rows - expected.rows).max() <= atol


def test_names_of_columns():
    assert sketch_of(A).columns == ("x0", "x1", "x2")
    assert sketch_of(TABLES["pandas"]).columns == NAMES
    assert sketch_of(TABLES["polars"], columns=["c", "a"]).columns == ("c", "a")
    with pytest.raises(ArgumentError, match="3 names, one per column, got 2"):
        sketch_of(A, columns=["a", "b"])
    for wrong in ((), ("a", "b", "a"), "abc", ("a", "b", 3)):
        with pytest.raises((ArgumentError, TypeError), match="columns"):
            sketch_of(A, columns=wrong)


def test_float32_integers_and_booleans_are_numbers():
    halves = np.round(A * 2) / 2
    expected = sketch_of(halves)
    assert np.array_equal(sketch_of(halves.astype(np.float32)).rows, expected.rows)
    assert np.array_equal(sketch_of(np.round(A * 2).astype(int), row_norm=2.0, sigma=4.0).rows, 2 * expected.rows)
    assert sketch_of(A > 0).k == 20


def test_an_empty_table_is_noise():
    sketch = sketch_of(np.empty((0, 3)), k=5_000)
    assert sketch.noisy_second_moment == pytest.approx(4 * np.eye(3), abs=0.5)
    assert np.array_equal(sketch_of(np.zeros((7, 3)), k=5_000).rows, sketch.rows)  # zero rows add nothing


# ---------------------------------------------------------------------------------------------------------------
# Clipping
def test_rows_longer_than_the_norm_are_scaled_back_as_a_whole():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [-6e200, 8e200], [0.0, 0.0], [0.0, -9.0], [5e-324, 0.0]])
    found = clip_rows(rows, 1.0) / UNIT
    expected = [[0.6, 0.8], [0.3, 0.4], [-0.6, 0.8], [0.0, 0.0], [0.0, -1.0], [0.0, 0.0]]
    assert found == pytest.approx(np.array(expected), abs=2 / UNIT)
    assert np.all(np.linalg.norm(found, axis=1) <= 1)


@pytest.mark.parametrize("row_norm", [1e-100, 0.3, 1.0, 7.0, 1e100])
def test_no_row_is_longer_than_the_norm_and_none_sees_another(row_norm):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((4000, 7)) * np.exp(rng.uniform(-3, 3, (4000, 1))) * row_norm
    rows[:1000] *= row_norm / np.linalg.norm(rows[:1000], axis=1, keepdims=True)  # exactly at the bound
    whole = clip_rows(rows, row_norm)
    assert np.array_equal(whole, np.trunc(whole))
    assert np.einsum("ij,ij->i", whole.astype(object), whole.astype(object)).max() <= 2**40
    assert np.array_equal(whole, np.concatenate([clip_rows(rows[i : i + 1], row_norm) for i in range(len(rows))]))
    short = np.linalg.norm(rows, axis=1) < row_norm * 0.999
    assert np.abs(whole[short] / UNIT - rows[short] / row_norm).max() <= 1 / UNIT


def test_one_row_moves_the_gram_matrix_by_its_own_product_exactly():
    table = np.random.default_rng(2).uniform(-1, 1, (9000, 4))
    with_row, without = (Table.open(rows).gram(1.0) for rows in (table, table[1:]))
    row = clip_rows(table[:1], 1.0)
    assert np.array_equal((with_row - without) * 2**40, row.T @ row)
    shuffled = np.random.default_rng(3).permutation(table)
    assert np.array_equal(Table.open([shuffled[:11], shuffled[11:]]).gram(1.0), with_row)


def test_large_gram_matrices_carry():
    table = np.ones((300_000, 1))
    assert Table.open(table).gram(1.0) == 300_000.0


def test_clipping_keeps_the_sensitivity_whatever_the_rows():
    """One row of any size moves the second moment that is drawn from by at most C²."""
    huge = np.vstack([A, [[1e300, -1e300, 1e300]]])
    difference = Table.open(huge).gram(1.0) - Table.open(A).gram(1.0)
    assert np.linalg.norm(difference) <= 1.0


# ---------------------------------------------------------------------------------------------------------------
# What leaves
def test_everything_that_leaves_lies_on_the_public_grid():
    for method in ("gram", "explicit"):
        sketch = sketch_of(A, row_norm=3.0, method=method)
        assert np.array_equal(np.round(sketch.rows / public_grid(2.0)), sketch.rows / public_grid(2.0))
        private = paper.modified_gauss_mix(A, 3.0, 20, 30.0, 0.5, 5.0, method=method, rng=1)
        grid = public_grid(3.0 * math.sqrt(30.0))
        assert np.array_equal(np.round(private.rows / grid), private.rows / grid)
        steps = private.certificate.v / public_grid(math.sqrt(30.0))
        assert steps == round(steps)
    promised = sketch_of(A, sigma=0.0, scale_bound=100.0)
    assert np.array_equal(np.round(promised.rows / public_grid(10.0)), promised.rows / public_grid(10.0))


def possible(output: float, scale: float) -> bool:
    """Whether some double z near output / scale gives fl(z · scale) = output."""
    z = output / scale
    for _ in range(4):
        z = np.nextafter(z, -np.inf)
    for _ in range(9):
        if z * scale == output:
            return True
        z = np.nextafter(z, np.inf)
    return False


def test_unrounded_outputs_would_tell_neighbours_apart_and_rounded_ones_do_not():
    """m = 1: z·L in doubles. Some products have no preimage under the neighbouring table's L; grid points always do."""
    rng = np.random.default_rng(0)
    gamma = 3.7
    scales = [math.sqrt(1.0 + gamma), math.sqrt(gamma)]  # with and without one row
    outputs = rng.standard_normal(4000) * scales[0]
    impossible = sum(not possible(x, scales[1]) for x in outputs)
    assert impossible > 20  # each of them betrays the row
    grid = public_grid(math.sqrt(gamma))
    cells = np.round(outputs / grid)
    for cell in cells[:500]:  # each cell of the grid has preimages under both
        for scale in scales:
            low, high = (cell - 0.5) * grid / scale, (cell + 0.5) * grid / scale
            assert high > low
            assert np.round((low + high) / 2 * scale / grid) == cell


def test_sketches_may_have_fewer_rows_than_columns():
    wide = np.random.default_rng(4).uniform(-0.1, 0.1, (500, 30))
    for k in (1, 7):
        sketch = sketch_of(wide, k=k)
        assert (sketch.rows.shape, sketch.method) == ((k, 30), "explicit")
        assert sketch_of(wide, k=k, method="gram").rows.shape == (k, 30)
        assert sketch.inner("x0", "x1") == pytest.approx(sketch.second_moment[0, 1])
    assert sketch.lstsq("x0", ["x1", "x2"]).shape == (2,)
    with pytest.raises(ArgumentError, match="k ≥ 29, the number of predictors"):
        sketch.lstsq("x0")
    assert sketch_of(wide, k=30).method == "gram"
    assert paper.modified_gauss_mix(wide, 1.0, 7, 30.0, 0.5, 5.0, rng=0).rows.shape == (7, 30)


def test_secure_sketches_differ():
    first, second = (paper.gauss_mix(A, 5, 2.0, row_norm=1.0) for _ in range(2))
    assert not np.array_equal(first.rows, second.rows)
    assert np.array_equal(sketch_of(A).rows, sketch_of(A).rows)
    assert not np.array_equal(sketch_of(A).rows, sketch_of(A, rng=6).rows)


# ---------------------------------------------------------------------------------------------------------------
# Wrong arguments
class Untouched(np.random.Generator):
    """A generator that must not be asked."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def standard_normal(self, *_, **__):
        raise AssertionError("noise was drawn")

    chisquare = standard_normal


WRONG = {
    "k": [0, -1, 1.5, True, 2**41],
    "sigma": [-1.0, math.nan, math.inf, "1", 0.0, 1e7],
    "row_norm": [0.0, -1.0, math.inf, 1e-200, 1e200],
    "scale_bound": [-1.0, math.inf],
    "neighbours": ["add-or-remove", None],
    "method": ["fast", 3],
    "rng": [-1, 1.5, "0", np.random.RandomState(0)],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_arguments_of_gauss_mix(name, value):
    with pytest.raises(GaussmixError, match=name if name != "sigma" or value != 1e7 else "row_norm²"):
        sketch_of(A, **{"rng": Untouched(), name: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 0}, "k must"),
        ({"gamma": 1.0}, "gamma must be a number > 1"),
        ({"gamma": 2.5, "analysis": "paper"}, "gamma must be a number > 2.5"),
        ({"gamma": None}, "Pass either a calibration, or k, gamma, tau and eta"),
        ({"tau": -0.1}, "tau must"),
        ({"eta": 0.0}, "eta must"),
        ({"C": 0.0}, "C must"),
        ({"analysis": "renyi"}, "analysis must"),
        ({"n_max": 0}, "n_max must"),
        ({"n_max": 2999}, "more than n_max=2999"),
        ({"method": "fast"}, "method must"),
        ({"A": iter([A]), "method": "explicit"}, "reads the rows twice"),
        ({"rng": "x"}, "rng must"),
    ],
)
def test_wrong_arguments_of_modified_gauss_mix(change, words):
    arguments = {"A": A, "C": 1.0, "k": 20, "gamma": 30.0, "tau": 0.5, "eta": 5.0, "rng": Untouched(), **change}
    with pytest.raises(GaussmixError, match=words):
        paper.modified_gauss_mix(**arguments)


def test_wrong_calibrations():
    from gaussmix import calibrate

    with pytest.raises(ArgumentError, match="scale='private'"):
        paper.modified_gauss_mix(A, 1.0, calibration=calibrate(1.0, 1e-6, sketch_size=20), rng=Untouched())
    private = calibrate(1.0, 1e-6, sketch_size=20, scale="private", analysis="paper", eigenvalue_error=0.1)
    with pytest.raises(ArgumentError, match="calibration cannot be combined with"):
        paper.modified_gauss_mix(A, 1.0, 20, calibration=private, rng=Untouched())


SECRET, NUMBER = "alice-hiv+", 8675309.25


class Hostile:
    """An object whose every conversion quotes it."""

    def __array__(self, *_, **__):
        raise TypeError(f"no array: {SECRET}")

    def __repr__(self):
        return SECRET


BAD = {
    "text": lambda: np.full((4, 3), SECRET),
    "objects": lambda: np.full((4, 3), NUMBER, dtype=object),
    "nan": lambda: np.array([[NUMBER, np.nan, 1.0]]),
    "infinite": lambda: [[NUMBER, np.inf, 1.0]],
    "long double": lambda: np.full((4, 3), np.longdouble("1e4000")),
    "complex": lambda: np.full((4, 3), 1j * NUMBER),
    "dates": lambda: np.full((4, 3), np.datetime64("8675-03-09")),
    "one-dimensional": lambda: np.full(4, NUMBER),
    "three-dimensional": lambda: np.full((4, 3, 2), NUMBER),
    "no columns": lambda: np.empty((4, 0)),
    "scalar": lambda: NUMBER,
    "word": lambda: SECRET,
    "none": lambda: None,
    "empty list": list,
    "at least one block": lambda: iter(()),
    "ragged": lambda: [[NUMBER, 1.0, 2.0], [NUMBER]],
    "sparse": lambda: scipy.sparse.csr_array(np.full((4, 3), NUMBER)),
    "frame of text": lambda: pd.DataFrame({"a": [SECRET], "b": [1.0]}),
    "frame with a missing value": lambda: pd.DataFrame({"a": [NUMBER, None], "b": [1.0, 2.0]}),
    "lazy frame": lambda: pl.LazyFrame({"a": [NUMBER]}),
    "hostile": Hostile,
    "hostile rows": lambda: [Hostile(), Hostile()],
    "later block of text": lambda: iter([np.full((4, 3), 0.5), np.full((4, 3), SECRET)]),
    "later block with nan": lambda: iter([np.full((4, 3), 0.5), np.full((4, 3), np.nan)]),
    "later block with other columns": lambda: [np.full((4, 3), NUMBER), np.full((4, 2), NUMBER)],
    "later frame with other columns": lambda: [pd.DataFrame({"a": [NUMBER]}), pd.DataFrame({"b": [NUMBER]})],
    "later hostile block": lambda: iter([np.full((4, 3), 0.5), Hostile()]),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("modified", [False, True])
def test_bad_tables_are_refused_before_noise_and_without_quoting_them(kind, modified):
    def release(table):
        if modified:
            return paper.modified_gauss_mix(table, 1.0, 20, 30.0, 0.5, 5.0, rng=Untouched())
        return sketch_of(table, rng=Untouched())

    with pytest.raises(GaussmixError) as caught:
        release(BAD[kind]())
    said = "".join(traceback.format_exception(caught.value))
    assert not any(secret in said for secret in ("alice", "hiv", "8675309", "8675-03"))
    assert caught.value.__context__ is None


def test_bad_tables_say_what_is_wrong():
    with pytest.raises(DataError, match="NaN or infinite"):
        sketch_of([[math.nan, 1.0]])
    with pytest.raises(DataError, match="toarray"):
        sketch_of(scipy.sparse.eye_array(3))
    with pytest.raises(DataError, match="same columns"):
        sketch_of(TABLES["pandas"], columns=("a", "z"))
