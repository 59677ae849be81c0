"""Several releases of the same rows without a ledger: one warning in Python, one line on the command line."""

from __future__ import annotations

import gc
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import gaussmix as gm
from gaussmix.cli import main
from gaussmix.data.moments import Moments
from gaussmix.mechanism import release

SCHEMA = {"x": [0, 1]}
BUDGET = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "passes": 1}


def values():
    return np.random.default_rng(0).random(500)


def repeated(call):
    """How often it is said that the rows were released before."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    told = [str(warning.message) for warning in found if "already released" in str(warning.message)]
    assert all("add up" in words and "ledger=" in words for words in told)
    return len(told)


TABLES = {
    "dictionary": lambda: {"x": values()},
    "named array": lambda: (values()[:, np.newaxis], ["x"]),
    "pandas": lambda: pd.DataFrame({"x": values()}),
    "polars": lambda: pl.DataFrame({"x": values()}),
    "lazy": lambda: pl.DataFrame({"x": values()}).lazy(),
    "Arrow": lambda: pa.table({"x": values()}),
    "list": lambda: [pa.table({"x": values()}), pa.table({"x": values()})],
    "moments": lambda: Moments.of({"x": values()}, SCHEMA),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_second_release_of_the_same_object_gives_one_warning(kind):
    table = TABLES[kind]()
    assert repeated(lambda: gm.release(table, **BUDGET)) == 0
    assert repeated(lambda: gm.release(table, **BUDGET)) == 1
    assert (
        repeated(lambda: gm.release(TABLES[kind](), **BUDGET)) == 0
    )  # equal rows in another object: content is unread


def test_a_second_release_of_the_same_file_gives_one_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "b.parquet"):
        pd.DataFrame({"x": values()}).to_parquet(name)
    Path("link.parquet").symlink_to("a.parquet")
    assert repeated(lambda: gm.release("a.parquet", **BUDGET)) == 0
    for same in (Path("a.parquet"), tmp_path / "a.parquet", "link.parquet", ["b.parquet", "a.parquet"], "?.parquet"):
        assert repeated(lambda same=same: gm.release(same, **BUDGET)) == 1
    assert repeated(lambda: gm.propose_bounds("a.parquet", {"x": "number"}, epsilon=1.0, delta=1e-6)) == 1


def test_nothing_is_said_with_a_ledger_a_seed_or_an_infinite_epsilon(tmp_path):
    table = {"x": values()}
    for _ in range(2):
        assert repeated(lambda: gm.release(table, **BUDGET, random_state=0)) == 0
        assert repeated(lambda: gm.release(table, **(BUDGET | {"epsilon": np.inf}))) == 0
    ledger = gm.Ledger(tmp_path / "l.ledger", epsilon=1.0, delta=1e-6, releases=2)
    for _ in range(2):
        assert repeated(lambda: gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))) == 0
    assert repeated(lambda: gm.release(table, **BUDGET)) == 1  # beside what the ledger accounts for


def test_a_release_that_fails_is_no_earlier_release():
    table = {"x": np.array([0.5, np.nan])}
    with pytest.raises(ValueError, match="missing"):
        gm.release(table, **BUDGET)
    table["x"][1] = 0.5
    assert repeated(lambda: gm.release(table, **BUDGET)) == 0


def test_estimators_recognise_their_features():
    X, y = np.random.default_rng(0).random((500, 2)), values()
    options = {"epsilon": 1.0, "delta": 1e-6, "bounds_X": (0, 1), "passes": 1}
    assert repeated(lambda: gm.LinearRegression(**options, bounds_y=(0, 1)).fit(X, y)) == 0
    assert repeated(lambda: gm.LinearRegression(**options, bounds_y=(0, 1)).fit(X, y)) == 1
    assert repeated(lambda: gm.LogisticRegression(**options, classes=[False, True]).fit(X, y > 0.5)) == 1
    assert repeated(lambda: gm.LinearRegression(**options, bounds_y=(0, 1)).fit(X.copy(), y)) == 0


def test_tables_are_not_kept_alive():
    table = pd.DataFrame({"x": values()})
    gm.release(table, **BUDGET)
    key = id(table)
    assert key in release._objects
    del table
    gc.collect()
    assert key not in release._objects


def test_commands_say_that_budgets_add_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": values()}).to_parquet("t.parquet")
    Path("s.json").write_text(json.dumps({"columns": SCHEMA}))
    Path("open.json").write_text(json.dumps({"columns": {"x": "number"}}))

    def run(*arguments):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        # Without the library's warning: commands have processes of their own.
        return [
            line
            for line in result.stderr.splitlines()
            if line.startswith("Privacy losses of several releases of the same rows add up")
        ]

    budget = ("-e", "1", "-d", "1e-6")
    (line,) = run("release", "t.parquet", "-s", "s.json", *budget, "-o", "a.parquet")
    assert "gaussmix ledger create" in line
    assert "--ledger" in line
    assert len(run("bounds", "t.parquet", "-s", "open.json", *budget, "-o", "found.json")) == 1
    run("ledger", "create", "l.ledger", *budget)
    assert run("release", "t.parquet", "-s", "s.json", "--ledger", "l.ledger", "-o", "b.parquet") == []
