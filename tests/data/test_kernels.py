"""Compiled functions and numpy give the same answers, bit for bit, whatever the rows are."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussmix.data import gram, kernels
from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.encode import encode_arrays
from gaussmix.data.gram import Gram, MappedGram, NormCounts, aggregate_arrays, aggregate_rows
from gaussmix.data.rows import ArrayRows
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import Transform
from gaussmix.errors import DataError

compiled = pytest.mark.skipif(not kernels.serves(1), reason="no compiled functions, or no AVX2")

SCHEMAS = {
    "bounds": lambda d: Schema({"X": Vector(d, lower=-1.0, upper=2.0), "y": Numeric(-1, 1)}, intercept=1.0),
    "norm": lambda d: Schema({"X": Vector(d, norm=1.5), "y": Numeric(-3, 1), "u": Numeric(0, 1)}, intercept=0.5),
    "both": lambda d: Schema({"X": Vector(d, lower=-1.0, upper=1.0, norm=1.0)}, intercept=0.0),
    "huge": lambda d: Schema({"X": Vector(d, lower=-1e90, upper=1e90), "y": Numeric(-1e-90, 1e-90)}),
}
EDGES = [0.0, -0.0, 5e-324, 1e-310, 1.0, -1.0, math.nextafter(1, 2), 2.5, -3e7, 1e154, -1e200, 1.7e308, -1.7e308]
VALUES = st.one_of(st.sampled_from(EDGES), st.floats(-2, 2), st.floats(allow_nan=False, allow_infinity=False))


def without(patch: pytest.MonkeyPatch) -> None:
    """As on a machine without a compiler."""
    patch.setattr(kernels, "library", lambda: None)


def parts(answer: Any) -> list[np.ndarray]:
    """What an answer is made of."""
    return answer.counts if hasattr(answer, "counts") else [answer.high, answer.low]


def queries(m: int, seed: int, clip: float, shape: str) -> list[Any]:
    matrix = np.random.default_rng(seed).standard_normal((m, m))
    matrix = {"full": matrix, "upper": np.triu(matrix) + np.eye(m), "lower": np.tril(matrix) + np.eye(m)}[shape]
    first = Transform.nearest(matrix)
    second = Transform(first.integers, first.scales * np.linspace(0.5, 2, m))
    edges = [clip * np.geomspace(0.01, 3, 7), clip * np.array([1e-6, 0.5])]
    return [Gram(), MappedGram(first, clip), NormCounts([first, second], edges)]


@compiled
@settings(max_examples=50)
@given(
    name=st.sampled_from(sorted(SCHEMAS)),
    d=st.sampled_from([1, 3, 7, 8, 17, 70]),
    shape=st.sampled_from(["full", "upper", "lower"]),
    clip=st.sampled_from([1e-30, 1e-3, 0.3, 2.0, 1e30]),  # from all rows far beyond it to all rounded to zero
    layout=st.sampled_from(["rows", "part of wider rows", "backwards", "every second", "columns", "float32", "chosen"]),
    values=st.lists(VALUES, min_size=1, max_size=40),
    seed=st.integers(0, 100),
)
def test_answers_are_the_same_bits(name, d, shape, clip, layout, values, seed):
    schema = SCHEMAS[name](d)
    rng = np.random.default_rng(seed)
    n, targets = 70, len(schema.columns) - 1  # one block and a part of one
    table = rng.choice(np.array(values), (n, d + targets)) * rng.choice([1.0, 1e-9, 0.3, 0.0], (n, 1))
    X, Y, chosen = table[:, :d], table[:, d:], None
    if layout == "rows":
        X, Y = X.copy(), Y.copy()
    elif layout == "backwards":
        X, Y = X[::-1], Y[::-1, ::-1]
    elif layout == "every second":
        X, Y = np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2, axis=0)[::2]
    elif layout == "columns":
        X = np.asfortranarray(X)
    elif layout == "float32":
        X = np.clip(X, -3e38, 3e38).astype(np.float32)
    elif layout == "chosen":
        chosen = np.sort(rng.choice(n, 41, replace=False))
    for query in queries(schema.n_columns, seed, clip, shape):
        found = aggregate_arrays([(X, Y)], schema, query, chosen=chosen, threads=1)
        with pytest.MonkeyPatch.context() as patch:
            without(patch)
            expected = aggregate_arrays([(X, Y)], schema, query, chosen=chosen, threads=1)
        for one, other in zip(parts(found), parts(expected), strict=True):
            assert np.array_equal(one, other)
        assert found.n == expected.n == (n if chosen is None else 41)


@compiled
@pytest.mark.parametrize("columns", [1, 5, 24, 100, 192, 300, 512])
def test_whole_rows_are_added_up_to_the_same_bits(columns):
    """Several blocks of 2¹² rows, some mapped far beyond the clip, some to nothing."""
    rng = np.random.default_rng(columns)
    rows = np.trunc(rng.standard_normal((40_000 if columns < 10 else 4_500, columns)) / (4 * np.sqrt(columns)) * 2**20)
    rows = np.clip(rows, -(2**20 / np.sqrt(columns)), 2**20 / np.sqrt(columns)) // 1
    rows[::50] = 0
    blocks = [rows[:1_000], np.asfortranarray(rows[1_000:])]
    for clip in (1e-18, 0.05, 5.0):
        for query in queries(columns, 1, clip, "upper"):
            found = aggregate_rows(blocks, query, columns, threads=1)
            with pytest.MonkeyPatch.context() as patch:
                without(patch)
                expected = aggregate_rows(blocks, query, columns, threads=1)
            assert all(np.array_equal(*pair) for pair in zip(parts(found), parts(expected), strict=True))
            assert found.n == len(rows)


@pytest.mark.parametrize("by_numpy", [False, True])
@pytest.mark.parametrize("clip", [1e-18, 0.05, 5.0])
def test_privacy_units_of_one_row_are_rows(clip, by_numpy, monkeypatch):
    """Some rows are far beyond the clip, some are zero."""
    if by_numpy:
        without(monkeypatch)
    rng = np.random.default_rng(4)
    rows = np.trunc(rng.standard_normal((5_000, 9)) / 16 * 2**20)
    rows *= np.trunc(np.minimum(1, 2**20 / np.linalg.norm(rows, axis=1)))[:, np.newaxis]
    rows[::50] = 0
    for query in queries(9, 1, clip, "full"):
        by_row, by_unit = query.aggregator(9), query.aggregator(9)
        by_row.add(rows)
        for part in (rows[:4_096], rows[4_096:]):
            by_unit.add(part.copy(), np.arange(len(part)))
        found, expected = by_unit.result(), by_row.result()
        assert all(np.array_equal(*pair) for pair in zip(parts(found), parts(expected), strict=True))
        assert found.n == expected.n == 5_000


def test_sums_are_those_of_the_encoded_rows():
    """In Python's integers."""
    rng = np.random.default_rng(2)
    schema = SCHEMAS["norm"](9)
    X, Y = rng.uniform(-1, 1, (150, 9)), rng.uniform(-4, 2, (150, 2))
    sums = aggregate_arrays([(X, Y)], schema, Gram(), threads=1)
    rows = (encode_arrays(schema, X, Y) * 2**20).astype(int).astype(object)
    exact = rows.T @ rows
    assert (exact == (sums.high.astype(object) << 40) + sums.low.astype(object)).all()


@pytest.mark.parametrize("by_numpy", [False, True])
def test_limbs_are_carried_before_they_are_full(by_numpy, monkeypatch):
    """After every second block of 2¹² rows in place of 2¹⁰: the same sums."""
    if by_numpy:
        without(monkeypatch)
    rows = np.full((70_000, 3), -604_000.0)
    rows[:, 1] = 605_000.0
    found = []
    for most in (gram.FLUSHES_PER_CARRY, 2):
        monkeypatch.setattr(gram, "FLUSHES_PER_CARRY", most)
        aggregator = Gram().aggregator(3)
        for part in (rows[:5_000], rows[5_000:]):
            aggregator.add(part)
        assert aggregator.high.any() == (most == 2)
        found.append(aggregator.result())
    exact = 70_000 * np.outer([int(entry) for entry in rows[0]], [int(entry) for entry in rows[0]])
    for sums in found:
        assert ((sums.high.astype(object) << 40) + sums.low.astype(object) == exact.astype(object)).all()
        assert sums.n == 70_000


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_whole_rows_that_are_not_finite_are_a_fault_that_is_found(bad):
    rows = np.zeros((10, 3))
    rows[4, 1] = bad

    def summed() -> None:
        aggregator = Gram().aggregator(3)
        aggregator.add(rows)
        aggregator.result()  # numpy finds it here, where sums become integers

    with np.errstate(invalid="ignore"), pytest.raises(RuntimeError, match="not finite"):
        summed()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("by_numpy", [False, True])
def test_what_is_not_finite_is_refused(name, bad, by_numpy, monkeypatch):
    if by_numpy:
        without(monkeypatch)
    schema = SCHEMAS[name](19)
    for where in range(19 + len(schema.columns) - 1):
        table = np.full((300, 19 + len(schema.columns) - 1), 0.1)
        table[211, where] = bad
        for query in queries(schema.n_columns, 0, 1.0, "full"):
            with pytest.raises(DataError, match="NaN or infinite"):
                aggregate_arrays([(table[:, :19], table[:, 19:])], schema, query, threads=1)


@compiled
def test_a_row_longer_than_its_clip_is_a_fault_that_is_found(monkeypatch):
    monkeypatch.setattr(kernels, "SHRINK", 1.01)
    rows = ArrayRows(np.full((10, 2), 0.7), None, SCHEMAS["both"](2), threads=1)
    with pytest.raises(RuntimeError, match="exceeds its norm bound"):
        rows.mapped(Transform.nearest(np.eye(2)), 0.2)


@compiled
def test_a_whole_row_that_is_too_long_is_a_fault_that_is_found():
    """What no encoder gives: the sensitivity of the first pass rests on it."""
    rows = np.zeros((100, 3))
    rows[70] = 2.0**20, 0.0, 0.0
    Gram().aggregator(3).add(rows)
    rows[70, 2] = 1.0
    with pytest.raises(RuntimeError, match="exceeds its norm bound"):
        Gram().aggregator(3).add(rows)


@compiled
def test_arrays_of_another_layout_and_wide_rows_go_another_way(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (200, 4))
    taken, honest = [], kernels.gram
    monkeypatch.setattr(
        kernels, "gram", lambda rows, *arrays: taken.append(rows.structure.rows) or honest(rows, *arrays)
    )
    X = X.astype(np.float32)
    found = [
        ArrayRows(same, None, SCHEMAS["both"](4)).gram()
        for same in (X.astype(float), np.asfortranarray(X, dtype=float), X)
    ]
    assert all(np.array_equal(one.low, found[0].low) for one in found)
    assert [encoded is None for encoded in taken] == [True, False, False]
    assert kernels.serves(kernels.MOST_COLUMNS)
    assert not kernels.serves(kernels.MOST_COLUMNS + 1)


@pytest.mark.parametrize("by_numpy", [False, True])
def test_a_row_that_clipping_leaves_too_long_is_refused(by_numpy, monkeypatch):
    """What cannot be, with a factor that is too large: encoded rows are measured again after rounding."""
    monkeypatch.setattr(kernels, "SHRINK", 1.01)
    monkeypatch.setattr("gaussmix.data.encode.SHRINK", 1.01)
    if by_numpy:
        monkeypatch.setattr(kernels, "serves", lambda columns: False)
    rows = ArrayRows(np.full((5, 3), 9.0), np.zeros(5), Schema.of({"X": {"size": 3, "norm": 1.0}, "y": [-1, 1]}))
    with pytest.raises(RuntimeError, match="exceeds its norm bound"):
        rows.gram()


# ---------------------------------------------------------------------------------------------------------------
# Without the library
def test_answers_do_not_depend_on_the_library(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (9000, 12))
    schema = SCHEMAS["both"](12)
    transform = Transform.nearest(rng.standard_normal((schema.n_columns, schema.n_columns)))

    def answers() -> list[np.ndarray]:
        rows = ArrayRows(X, None, schema, threads=1)
        sums = [rows.gram(), rows.mapped(transform, 0.7)]
        counts = rows.counts([transform], [np.array([0.3, 1.0, 4.0])])
        return [part for one in sums for part in (one.high, one.low)] + counts

    found = answers()
    monkeypatch.setattr(kernels, "library", lambda: None)
    assert all(np.array_equal(a, b) for a, b in zip(found, answers(), strict=True))


PURE = """
import ctypes, hashlib
loaded = []
class Watched(ctypes.CDLL):
    def __init__(self, name, *rest, **options):
        loaded.append(str(name))
        super().__init__(name, *rest, **options)
ctypes.CDLL = Watched
import numpy as np
from gaussmix.data import kernels
from gaussmix.data.moments import Moments
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.data.transforms import Transform
rng = np.random.default_rng(0)
table = {"a": rng.normal(size=9000), "b": rng.choice(["x", "y"], 9000), "c": rng.normal(size=9000)}
columns = {"a": [-2, 2], "b": {"levels": ["x", "y"]}, "c": [-1, 1]}
schema = Schema.of({"columns": columns, "max_row_norm": 1.5})
rows = rows_of(table, schema)
transform = Transform.nearest(np.tril(rng.normal(size=(5, 5))))
found = [rows.gram().floats(), rows.mapped(transform, 0.7).low, *rows.counts([transform], [np.array([0.3, 1.0])])]
X, Y = rng.normal(size=(9000, 6)), rng.normal(size=9000)
found.append(Moments.of_arrays([(X, Y)], Schema.of({"X": {"size": 6, "norm": 2.0}, "y": [-1, 1]})).gram())
digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()
print(any("_kernels" in name for name in loaded), kernels.library() is None, kernels.serves(5), digest)
"""


@compiled
def test_the_library_can_be_switched_off_at_run_time():
    def run(pure):
        environment = {**os.environ, "GAUSSMIX_PURE": pure}
        command = [sys.executable, "-c", PURE]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    (*with_library, bits), (*without, same) = run("0"), run("1")
    assert with_library[:2] == ["True", "False"]
    assert without == ["False", "True", "False"]
    assert same == bits


def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(kernels, "_VERSION", -1)
    assert kernels.library.__wrapped__() is None
