"""Compiled functions and numpy give the same bits, whatever the rows are; without a library everything works."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussmix.errors import DataError
from gaussmix.tables import kernels
from gaussmix.tables.columns import Numeric, Vector
from gaussmix.tables.encoder import ArrayEncoder
from gaussmix.tables.rows import ArrayRows
from gaussmix.tables.scaling import Scaling
from gaussmix.tables.schema import Schema
from gaussmix.tables.transforms import Transform

compiled = pytest.mark.skipif(kernels.library() is None, reason="no C compiler when the package was installed")

EDGES = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e-310,
    1.0,
    -1.0,
    math.nextafter(1, 2),
    2.5,
    -3e7,
    1e154,
    -1e200,
    1.7e308,
    -1.7e308,
]
VALUES = st.one_of(st.sampled_from(EDGES), st.floats(-2, 2), st.floats(allow_nan=False, allow_infinity=False))
SCHEMAS = {
    "bounds": lambda d: Schema({"X": Vector(d, lower=-1.0, upper=2.0), "y": Numeric(-1, 1)}, intercept=1.0),
    "norm": lambda d: Schema({"X": Vector(d, norm=1.5), "y": Numeric(-3, 1), "u": Numeric(0, 1)}, intercept=0.5),
    "both": lambda d: Schema({"X": Vector(d, lower=-1.0, upper=1.0, norm=1.0)}, intercept=0.0),
    "huge": lambda d: Schema({"X": Vector(d, lower=-1e90, upper=1e90), "y": Numeric(-1e-90, 1e-90)}),
}


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Signs of zeros too."""
    return one.tobytes() == other.tobytes()


def encoded(schema: Schema, X: np.ndarray, Y: np.ndarray, patch: pytest.MonkeyPatch, *, by_numpy: bool) -> np.ndarray:
    plan = ArrayEncoder(schema)
    rows = np.full((len(X), plan.m), np.nan)
    with patch.context() as context, np.errstate(over="ignore", invalid="ignore"):
        if by_numpy:
            context.setattr(kernels, "library", lambda: None)
        plan.encode_whole(X, Y, rows)
    return rows


@compiled
@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(SCHEMAS)),
    d=st.sampled_from([1, 3, 8, 17, 70]),
    layout=st.sampled_from(["rows", "every second", "backwards", "float32", "columns"]),
    values=st.lists(VALUES, min_size=1, max_size=40),
    seed=st.integers(0, 100),
)
def test_rows_are_encoded_to_the_same_bits(name, d, layout, values, seed):
    schema = SCHEMAS[name](d)
    rng = np.random.default_rng(seed)
    targets = len(schema.columns) - 1
    table = rng.choice(np.array(values), (9, d + targets)) * rng.choice([1.0, 1e-9, 0.3], (9, 1))
    X, Y = table[:, :d], table[:, d:]
    if layout == "every second":
        X, Y = np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2, axis=0)[::2]
    elif layout == "backwards":
        X, Y = X[::-1], Y[::-1, ::-1]
    elif layout == "columns":
        X = np.asfortranarray(X)
    elif layout == "float32":
        X = np.clip(X, -3e38, 3e38).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        one, other = (encoded(schema, X, Y, patch, by_numpy=by_numpy) for by_numpy in (False, True))
    assert same_bits(one, other)
    assert (np.trunc(one) == one).all()
    assert all(sum(int(entry) ** 2 for entry in row) <= 2**40 for row in one)


@compiled
@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["first", "last", "target"])
def test_what_is_not_finite_is_refused_by_both(name, bad, where):
    schema = SCHEMAS[name](19)
    targets = len(schema.columns) - 1
    X, Y = np.full((7, 19), 0.1), np.full((7, targets), 0.1)
    if where == "target" and not targets:
        return
    {"first": X[0], "last": X[-1], "target": Y[3]}[where][-1] = bad
    for by_numpy in (False, True):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(DataError, match="NaN or infinite"):
            encoded(schema, X, Y, patch, by_numpy=by_numpy)


@compiled
@settings(max_examples=60)
@given(
    k=st.sampled_from([1, 7, 8, 9, 30, 65]),
    size=st.sampled_from([1e-30, 2.0**-40, 1e-9, 1.0, 1e100, 1e200]),
    seed=st.integers(0, 100),
)
def test_products_are_scaled_to_the_same_bits(k, size, seed):
    rng = np.random.default_rng(seed)
    products = np.trunc(rng.choice([0.0, -0.0, 1.0, -7.0, 2.0**52, -(2.0**31)], (50, k)) * rng.uniform(0, 1, (50, k)))
    factors = rng.uniform(0.1, 2, k) * size
    one, other, scratch = products.copy(), products.copy(), np.empty_like(products)
    squares, norms = Scaling(factors, 50).apply(one), Scaling(factors, 50).norms(products, scratch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "library", lambda: None)
        by_numpy = Scaling(factors, 50)
        expected, also = by_numpy.norms(products, scratch), by_numpy.apply(other)
    assert same_bits(one, other)
    assert same_bits(norms, squares)
    assert np.array_equal(expected, also)
    exact = [sum(int(entry) ** 2 for entry in row) for row in one]
    for computed in (squares, expected):
        for found, wanted in zip(computed, exact, strict=True):
            assert found == wanted if wanted < 2**53 else found >= 2.0**53


def test_answers_do_not_depend_on_the_library(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (9000, 12))
    schema = SCHEMAS["both"](12)
    transform = Transform.nearest(rng.standard_normal((schema.n_columns, schema.n_columns)))

    def answers() -> list[np.ndarray]:
        rows = ArrayRows(X, None, schema, threads=1)
        sums = [rows.moments().sums(), rows.mapped(transform, 0.7)]
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
from gaussmix.tables import fused, kernels
from gaussmix.tables.moments import Moments
from gaussmix.tables.rows import rows_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.transforms import Transform
rng = np.random.default_rng(0)
table = {"a": rng.normal(size=9000), "b": rng.choice(["x", "y"], 9000), "c": rng.normal(size=9000)}
columns = {"a": [-2, 2], "b": {"levels": ["x", "y"]}, "c": [-1, 1]}
schema = Schema.of({"columns": columns, "max_row_norm": 1.5})
rows = rows_of(table, schema)
transform = Transform.nearest(np.tril(rng.normal(size=(5, 5))))
found = [rows.moments().gram(), rows.mapped(transform, 0.7).low, *rows.counts([transform], [np.array([0.3, 1.0])])]
X, Y = rng.normal(size=(9000, 6)), rng.normal(size=9000)
found.append(Moments.of_arrays([(X, Y)], Schema.of({"X": {"size": 6, "norm": 2.0}, "y": [-1, 1]})).gram())
digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()
print(any("_kernels" in name for name in loaded), kernels.library() is None, fused.serves(5), digest)
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
