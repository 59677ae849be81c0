"""What is computed from a sketch, and its file."""

from __future__ import annotations

import json
import math
import pickle
import random
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import make_golden
from fuzz_releases import mutated
from gaussmix import ArgumentError, DamagedError, GaussmixError, NotPrivateError, paper
from gaussmix.paper.rows import Table
from gaussmix.paper.sketch import FORMAT, METADATA_KEY, _digest
from make_golden import GOLDEN

NAMES = ("a", "b", "c", "y")


def table(n: int = 20_000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, 3))
    return np.column_stack([X, X @ [0.5, -0.3, 0.1] + rng.uniform(-0.1, 0.1, n)])


A = table()


def sketch_of(k: int = 400, sigma: float = 10.0, **options) -> paper.Sketch:
    return paper.gauss_mix(A, k, sigma, **{"row_norm": 1.0, "columns": NAMES, "rng": 0, **options})


@pytest.fixture(scope="module")
def sketch() -> paper.Sketch:
    return sketch_of()


# ---------------------------------------------------------------------------------------------------------------
# Inner products and least squares
def test_inner_products(sketch):
    W = sketch.rows.T @ sketch.rows / 400
    assert sketch.noisy_second_moment == pytest.approx(W)
    assert sketch.second_moment == pytest.approx(W - 100 * np.eye(4))
    assert sketch.inner("a", "a") == pytest.approx(W[0, 0] - 100)
    assert sketch.inner("a", "a", noisy=True) == pytest.approx(W[0, 0])
    assert sketch.inner("a", "y") == pytest.approx(W[0, 3])
    assert sketch.inner("a", ["y", "a"]) == pytest.approx([W[0, 3], W[0, 0] - 100])
    assert sketch.inner(["b", "c"], "c") == pytest.approx([W[1, 2], W[2, 2] - 100])
    overlap = sketch.inner(["a", "b"], ["b", "y", "a"])
    assert overlap == pytest.approx(np.array([[W[0, 1], W[0, 3], W[0, 0] - 100], [W[1, 1] - 100, W[1, 3], W[1, 0]]]))
    exact = A.T @ A
    large = sketch_of(k=10**6)
    assert large.second_moment == pytest.approx(exact, rel=0.02, abs=5)
    assert large.inner(["a", "b"], NAMES) == pytest.approx(exact[:2], rel=0.02, abs=5)


def test_least_squares_as_published_is_a_ridge(sketch):
    rows = sketch.sample_rows(1)
    assert rows.shape == (400, 4)
    assert sketch.lstsq("y") == pytest.approx(np.linalg.lstsq(rows[:, :3], rows[:, 3], rcond=None)[0], rel=1e-9)
    some = np.linalg.lstsq(rows[:, [2, 0]], rows[:, 1], rcond=None)[0]
    assert sketch.lstsq("b", ["c", "a"]) == pytest.approx(some, rel=1e-9)
    explicit = sketch_of(method="explicit")
    assert explicit.sample_rows() is explicit.rows
    X, y = A[:, :3], A[:, 3]
    ridge = np.linalg.solve(X.T @ X + 100 * np.eye(3), X.T @ y)
    assert sketch_of(k=10**8).lstsq("y") == pytest.approx(ridge, abs=1e-3)


def test_debiased_least_squares_is_near_that_of_the_table():
    """σ² is as large as the signal: the published solution is half of it, the debiased one is not."""
    sigma = math.sqrt(np.linalg.eigvalsh(A[:, :3].T @ A[:, :3])[0])
    exact = np.linalg.lstsq(A[:, :3], A[:, 3], rcond=None)[0]
    large = sketch_of(k=10**7, sigma=sigma)
    assert large.lstsq("y") == pytest.approx(exact / 2, rel=0.05)
    assert large.lstsq("y", debiased=True) == pytest.approx(exact, rel=0.05)
    small = sketch_of(k=4, sigma=sigma)  # q is near 1: nothing is subtracted
    q = 1 - (1 - math.sqrt(3 / 4)) ** 2
    values, vectors = np.linalg.eigh(small.noisy_second_moment[:3, :3])
    values = np.maximum(values, 0.25 * q * sigma**2 / 2)
    expected = vectors @ (vectors.T @ small.noisy_second_moment[:3, 3] / values)
    assert small.lstsq("y", debiased=True) == pytest.approx(expected, rel=1e-9)
    exactly = paper.gauss_mix(A, 50, 0.0, row_norm=1.0, scale_bound=10.0, columns=NAMES, rng=0)
    assert np.array_equal(exactly.lstsq("y", debiased=True), exactly.lstsq("y"))


def test_debiased_eigenvalues_have_a_floor():
    """An empty table: what is left of the noise after subtracting it may be negative, and is raised."""
    for seed in range(300):
        empty = paper.gauss_mix(np.zeros((1, 2)), 50, 3.0, row_norm=1.0, rng=seed)
        q = 1 - (1 - math.sqrt(1 / 50)) ** 2
        left = empty.noisy_second_moment[0, 0] - (1 - 1.25 * q) * 9
        floor = 0.125 * q * 9
        expected = empty.noisy_second_moment[0, 1] / max(left, floor)
        assert empty.lstsq("x1", debiased=True) == pytest.approx([expected], rel=1e-9)


def test_sampled_rows_keep_the_second_moment(sketch):
    rows = sketch.sample_rows(0)
    assert rows.T @ rows / 400 == pytest.approx(sketch.noisy_second_moment, rel=1e-9)
    assert not np.array_equal(rows, sketch.sample_rows(1))
    few = sketch_of(k=2, method="gram")
    assert few.sample_rows() is few.rows


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.inner("A", "yy"), "'A' is not in the sketch. Its columns"),
        (lambda s: s.inner("a", ["b", "yy"]), "'yy' is not in the sketch. Did you mean 'y'"),
        (lambda s: s.lstsq("y", []), "at least one column"),
        (lambda s: s.lstsq("y", ["a", "y"]), "without the response"),
        (lambda s: s.lstsq("y", ["a", "a"]), "without duplicates"),
        (lambda s: s.lstsq("y", "a"), "at least one column"),
        (lambda s: s.lstsq(["y"]), "name of one column"),
        (lambda s: s.lstsq("z"), "'z' is not in the sketch"),
    ],
)
def test_wrong_names(call, words, sketch):
    with pytest.raises(GaussmixError, match=words):
        call(sketch)


def test_sketches_are_frozen(sketch):
    with pytest.raises(FrozenInstanceError):
        sketch.rows = None
    with pytest.raises(ValueError, match="read-only"):
        sketch.rows[0, 0] = 1.0
    assert repr(sketch) == "Sketch(k=400, sigma=10, columns=('a', 'b', 'c', 'y'))"
    assert np.array_equal(pickle.loads(pickle.dumps(sketch)).lstsq("y"), sketch.lstsq("y"))
    for wrong in (
        {"rows": sketch.rows[:, :3]},
        {"rows": sketch.rows * np.nan},
        {"columns": ("a", "b")},
        {"method": "explicit"},
        {"rows": np.empty((0, 4))},
    ):
        with pytest.raises(ArgumentError, match="rows must"):
            replace(sketch, **wrong)


# ---------------------------------------------------------------------------------------------------------------
# Several sketches of one table
def test_stacks_and_averages():
    sketches = [sketch_of(k=k, rng=seed, method=method) for seed, (k, method) in
                enumerate([(50, "gram"), (60, "explicit"), (3, "explicit")])]  # fmt: skip
    together = paper.stack(sketches)
    moments = sum(sketch.k * sketch.noisy_second_moment for sketch in sketches) / 113
    assert together.noisy_second_moment == pytest.approx(moments)
    assert (together.k, together.method, together.columns) == (113, "gram", NAMES)
    assert together.sample_rows(0).shape == (113, 4)
    explicit = paper.stack(sketches[1:])
    assert np.array_equal(explicit.rows, np.vstack([sketches[1].rows, sketches[2].rows]))
    mean = np.mean([sketch.lstsq("y") for sketch in sketches], axis=0)
    assert paper.average(sketches, "y") == pytest.approx(mean)
    assert paper.average(sketches[:2], "a", ["b"], debiased=True).shape == (1,)


@pytest.mark.slow
def test_the_stack_is_more_accurate_than_the_average(monkeypatch):
    """Variances are as 1/(qk - d - 1) to 1/(q(k - d - 1)): here 53 to 15."""
    X, y = A[:, :3], A[:, 3]
    ridge = np.linalg.solve(X.T @ X + 100 * np.eye(3), X.T @ y)
    errors = []
    gram = Table.open(A).gram(1.0)
    monkeypatch.setattr(Table, "gram", lambda *_, **__: gram)  # 2,400 sketches of one table
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sketches = [sketch_of(k=7, rng=rng) for _ in range(8)]
        found = paper.stack(sketches).lstsq("y"), paper.average(sketches, "y")
        errors.append([np.sum((theta - ridge) ** 2) for theta in found])
    stacked, averaged = np.mean(errors, axis=0)
    assert 2 < averaged / stacked < 7


def test_sketches_that_cannot_be_of_one_table_are_refused(sketch):
    other = {
        "sigma": sketch_of(sigma=11.0, rng=1),
        "row_norm": sketch_of(row_norm=2.0, rng=1),
        "scale_bound": sketch_of(scale_bound=3.0, rng=1),
        "neighbours": sketch_of(neighbours="replace-one", rng=1),
        "columns": sketch_of(columns=("a", "b", "c", "z"), rng=1),
    }
    for name, wrong in other.items():
        with pytest.raises(ArgumentError, match=name):
            paper.stack([sketch, wrong])
    with pytest.raises(ArgumentError, match="passed twice"):
        paper.stack([sketch, sketch_of(rng=1), sketch_of()])
    with pytest.raises(ArgumentError, match="passed twice"):
        paper.average([sketch, sketch], "y")
    private = paper.modified_gauss_mix(A, 1.0, 400, 100.0, 0.5, 9.0, columns=NAMES, rng=0)
    with pytest.raises(ArgumentError, match="Algorithm 1"):
        paper.stack([private])
    for wrong in ([], [1]):
        with pytest.raises(TypeError, match="sequence of at least one"):
            paper.stack(wrong)


# ---------------------------------------------------------------------------------------------------------------
# The file
SKETCHES = {
    "gram": lambda: sketch_of(),
    "explicit": lambda: sketch_of(k=5, method="explicit", neighbours="replace-one"),
    "few rows": lambda: sketch_of(k=2),
    "scale bound": lambda: sketch_of(scale_bound=50.0),
    "algorithm 1": lambda: paper.modified_gauss_mix(A, 1.0, 60, 200.0, 0.5, 9.0, columns=NAMES, n_max=10**6, rng=0),
    "first branch": lambda: paper.modified_gauss_mix(A, 1.0, 60, 3.0, 4.0, 9.0, columns=NAMES, rng=0),
    "algorithm 2": lambda: (
        paper.LinearMixing(data_norm=1.0, bounds_y=(-1, 1), random_state=0).fit(A[:, :3], A[:, 3]).sketch_
    ),
    "stack": lambda: paper.stack([sketch_of(k=k, rng=k) for k in (10, 20)]),
    "secure": lambda: sketch_of(rng=None),
}


@pytest.mark.parametrize("kind", SKETCHES)
def test_round_trip(kind, tmp_path):
    sketch, path = SKETCHES[kind](), tmp_path / "x.parquet"
    sketch.save(path)
    back = paper.Sketch.load(path)
    assert np.array_equal(back.rows, sketch.rows)
    assert (back.columns, back.method, back.certificate) == (sketch.columns, sketch.method, sketch.certificate)
    assert str(back.certificate) == str(sketch.certificate)
    assert back.epsilon(1e-5) == sketch.epsilon(1e-5)
    frame = pd.read_parquet(path)
    assert np.array_equal(frame[list(sketch.columns)].to_numpy(), sketch.rows)
    with pytest.raises(OSError, match="exists already"):
        sketch.save(path)
    sketch.save(path, force=True)
    with pytest.raises(OSError, match=r"ends in \.parquet"):
        sketch.save(tmp_path / "x.csv")


@pytest.fixture
def path(tmp_path):
    sketch = SKETCHES["algorithm 1"]()
    sketch.save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def forged(path, change, *, checksum: bool = True, rows=lambda table: table) -> None:
    """Rewrite metadata or numbers, with a checksum that fits or as it was."""
    table = pq.read_table(path)
    stored = json.loads(table.schema.metadata[METADATA_KEY])
    table = rows(table)
    change(stored)
    if checksum:
        stored.pop("sha256", None)
        numbers = np.column_stack([column.to_numpy() for column in table.columns])
        stored["sha256"] = _digest(stored, tuple(table.column_names), numbers)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(stored).encode()}), path)


EDITS = {
    "more privacy": lambda stored: stored["certificate"].update(gamma=400.0),
    "less noise": lambda stored: stored["certificate"].update(sigma=1.0),
    "another bound": lambda stored: stored["certificate"].update(v=99.0),
    "no numerical error": lambda stored: stored["certificate"].update(eigenvalue_error=0.0),
    "no bound on rows": lambda stored: stored["certificate"].update(n_max=None, eigenvalue_error=0.0),
    "a budget": lambda stored: stored["certificate"].update(budget=[0.01, 1e-9]),
}
DAMAGE = {
    "fewer rows": lambda stored: stored["certificate"].update(k=2),
    "a key too many": lambda stored: stored["certificate"].update(note="hello"),
    "a key too few": lambda stored: stored["certificate"].pop("v"),
    "another key": lambda stored: stored.update(note="hello"),
    "no certificate": lambda stored: stored.pop("certificate"),
    "a certificate of text": lambda stored: stored.update(certificate="yes"),
    "a number of text": lambda stored: stored["certificate"].update(k="60"),
    "a list for a number": lambda stored: stored["certificate"].update(eta=[1.0]),
    "a budget of one": lambda stored: stored["certificate"].update(budget=[1.0]),
    "assumptions of text": lambda stored: stored["certificate"].update(assumptions="none"),
    "another generator": lambda stored: stored["certificate"].update(generator="dice"),
    "another method": lambda stored: stored.update(method="magic"),
    "a factor called rows": lambda stored: stored.update(method="explicit"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_claims_that_are_not_true_are_refused(edit, path):
    forged(path, EDITS[edit])
    with pytest.raises(NotPrivateError, match="edited or is damaged"):
        paper.Sketch.load(path)


@pytest.mark.parametrize("edit", DAMAGE)
def test_edited_files_are_refused(edit, path):
    forged(path, DAMAGE[edit])
    with pytest.raises(DamagedError, match="edited or is damaged"):
        paper.Sketch.load(path)


def test_edits_without_a_new_checksum_are_found(path):
    honest = path.read_bytes()
    forged(path, lambda stored: stored["certificate"].update(version="9"), checksum=False)
    with pytest.raises(DamagedError, match="checksum"):
        paper.Sketch.load(path)
    path.write_bytes(honest)
    forged(path, lambda stored: None, checksum=False, rows=lambda t: t.rename_columns(["b", "a", "c", "y"]))
    with pytest.raises(DamagedError, match="checksum"):
        paper.Sketch.load(path)
    path.write_bytes(honest)

    def nudged(t):
        column = t.column(0).to_numpy().copy()
        column[0] = np.nextafter(column[0], np.inf)
        return t.set_column(0, "a", pa.array(column))

    forged(path, lambda stored: None, checksum=False, rows=nudged)
    with pytest.raises(DamagedError, match="checksum"):
        paper.Sketch.load(path)


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        paper.Sketch.load(tmp_path / "nothing.parquet")
    forged(path, lambda stored: stored.update(format=FORMAT + 1))
    with pytest.raises(DamagedError, match=f"format {FORMAT + 1}"):
        paper.Sketch.load(path)
    for content in (b"", b"PAR1", b"hello, world", b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match="not a sketch"):
            paper.Sketch.load(path)
    foreign = {
        "no metadata": pa.table({"a": [1.0]}),
        "text": pa.table({"a": ["x"]}),
        "nulls": pa.table({"a": [1.0, None]}).replace_schema_metadata({METADATA_KEY: b'{"format": 1}'}),
        "no JSON": pa.table({"a": [1.0]}).replace_schema_metadata({METADATA_KEY: b"{"}),
        "a list": pa.table({"a": [1.0]}).replace_schema_metadata({METADATA_KEY: b"[]"}),
        "a key twice": pa.table({"a": [1.0]}).replace_schema_metadata({METADATA_KEY: b'{"format": 1, "format": 1}'}),
    }
    for table in foreign.values():
        pq.write_table(table, path)
        with pytest.raises(DamagedError):
            paper.Sketch.load(path)


def test_no_mutated_file_is_believed(path):
    honest, content, rng = paper.Sketch.load(path), path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(300):
        path.write_bytes(mutated(content, rng))
        try:
            found = paper.Sketch.load(path)
        except (DamagedError, NotPrivateError):
            refused += 1
        else:
            assert found.certificate == honest.certificate
            assert np.array_equal(found.rows, honest.rows)
    assert refused > 200


def test_golden_sketch():
    """A file that an earlier version wrote is read with its numbers; the same seed still draws them."""
    found = paper.Sketch.load(GOLDEN / "paper.parquet")
    assert found.columns == ("age", "smoker", "cost")
    certificate = found.certificate
    assert (certificate.algorithm, certificate.k, certificate.analysis) == ("ModifiedGaussMix", 60, "exact")
    assert (certificate.gamma, certificate.eta, certificate.tau) == (40.0, 6.0, 0.5)
    assert certificate.v == 14.360252380371094
    assert found.lstsq("cost") == pytest.approx([0.5592120686524289, 0.2189524591527166], rel=1e-9)
    assert found.epsilon(1e-6) == pytest.approx(1.3576602357813787, rel=1e-9)
    again = make_golden.paper_sketch()
    assert again.certificate.v == pytest.approx(certificate.v, abs=1e-4)
    assert again.rows == pytest.approx(found.rows, abs=1e-4)
