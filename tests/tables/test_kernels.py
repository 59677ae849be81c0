"""The compiled library is optional: without it every result has the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gaussmix.tables import kernels
from gaussmix.tables.columns import Vector
from gaussmix.tables.rows import ArrayRows
from gaussmix.tables.schema import Schema
from gaussmix.tables.transforms import Transform

compiled = pytest.mark.skipif(kernels.library() is None, reason="no C compiler when the package was installed")

SCHEMA = Schema({"X": Vector(12, lower=-1.0, upper=1.0, norm=1.0)}, intercept=0.0)


def test_answers_do_not_depend_on_the_library(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (9000, 12))
    transform = Transform.nearest(rng.standard_normal((SCHEMA.n_columns, SCHEMA.n_columns)))

    def answers() -> list[np.ndarray]:
        rows = ArrayRows(X, None, SCHEMA, threads=1)
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
