"""Unusual tables on the default path of a release: errors before a charge, odd columns, forged files."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import gaussmix as gm
from gaussmix.data import contributions
from gaussmix.data.marginals import NONE_OF_THESE
from gaussmix.data.rows import rows_of
from gaussmix.mechanism import release
from gaussmix.releases import file as release_file

BUDGET = {"epsilon": 5.0, "delta": 1e-6}


def ledger_at(path, **more):
    return gm.Ledger(path / "rows.ledger", epsilon=1.0, delta=1e-6, releases=2, **more)


def test_a_negative_weight_is_found_before_anything_is_charged(tmp_path):
    """The marginals are read under a schema without weights, which would take a negative one as 0."""
    rng, ledger = np.random.default_rng(0), ledger_at(tmp_path)
    data = pd.DataFrame({"x": rng.uniform(0, 1, 500), "w": rng.uniform(0, 8, 500)})
    data.loc[17, "w"] = -0.5
    with pytest.raises(gm.DataError, match="negative"):
        gm.release(data, {"x": [0, 1], "w": [0, 8]}, weight="w", budget=gm.Budget(ledger=ledger))
    assert not ledger.entries()


class _SmallDisk:
    """Stands for a disk that has room for one grouping of the rows, but not for another one beside it."""

    room, used = 3_500_000, 0

    def __init__(self, max_size):
        self._file, self._own = tempfile.TemporaryFile(), 0  # noqa: SIM115 - closed by close
        self.seek, self.readinto = self._file.seek, self._file.readinto

    def write(self, content):
        if _SmallDisk.used + len(content) > self.room:
            raise OSError(28, "No space left on device")
        _SmallDisk.used += len(content)
        self._own += len(content)
        self._file.write(content)

    def close(self):
        _SmallDisk.used -= self._own
        self._own = 0
        self._file.close()


def test_a_full_disk_that_costs_no_budget_is_not_charged(tmp_path, monkeypatch):
    """Rows are grouped by unit again after the charge: the first grouping has given back its room."""
    monkeypatch.setattr(contributions, "MEMORY", 2**12)
    monkeypatch.setattr(contributions.tempfile, "SpooledTemporaryFile", _SmallDisk)
    rng, ledger, n = np.random.default_rng(0), ledger_at(tmp_path, privacy_unit="who"), 60_000
    data = pd.DataFrame({"x": rng.uniform(0, 1, n), "z": rng.uniform(0, 1, n), "who": rng.integers(0, n // 2, n)})
    message = ""
    try:
        gm.release(
            data, {"x": [0, 1], "z": [0, 1]}, privacy_unit=gm.PrivacyUnit("who", 3), budget=gm.Budget(ledger=ledger)
        )
    except gm.OutputError as error:
        message = str(error)
    assert "No budget was spent" not in message or not ledger.entries()


def test_a_category_of_one_level_is_counted_under_its_own_name():
    """It has one encoded column, as a boolean one has."""
    data = pd.DataFrame({"answer": ["yes"] * 900 + ["no"] * 100})
    schema = {"answer": {"levels": ["yes"], "unknown": "zero"}}
    marginals = gm.release(data, schema, **BUDGET, random_state=0).statistic.marginals
    (cells,) = marginals.plan.cells.columns
    counts = dict(zip(cells.labels, marginals.by_column["answer"], strict=True))
    assert counts["yes"] > 700
    assert counts[NONE_OF_THESE] < 300


def test_a_category_of_one_level_can_be_released():
    data = pd.DataFrame({"x": np.linspace(0, 1, 500), "answer": "yes"})
    gm.release(data, {"x": [0, 1], "answer": ["yes"]}, **BUDGET, random_state=0)


def test_marginals_without_noise_are_refused():
    """As passes without their noise are."""
    rng, n = np.random.default_rng(0), 3000
    data = pd.DataFrame({"c": rng.choice(["a", "b", "c"], n), "ill": rng.uniform(size=n) < 0.2})
    private = gm.release(data, {"c": ["a", "b", "c"], "ill": "boolean"}, epsilon=1.0, delta=1e-6)
    noisy = private.statistic.marginals
    exact = rows_of(data, noisy.plan.schema).aggregate(noisy.plan.query)
    sums, squares = (values.astype(float) / 2.0**40 for values in (exact.sums, exact.squares))
    forged = replace(noisy, counts=exact.counts / 2.0**20, sums=sums, squares=squares)
    content = release_file.as_bytes(replace(private.statistic, marginals=forged), private.certificate)
    with pytest.raises(gm.NotPrivateError):
        gm.Release.from_bytes(content)


def test_a_dask_table_that_changes_after_the_marginals_is_refused():
    """All schemas under which a table is read share the number of its rows."""
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    data, readings = pd.DataFrame({"x": np.linspace(0, 1, 3000)}), []

    def part(_):
        readings.append(1)
        return data[:2000] if len(readings) == 1 else data

    with dask.config.set(scheduler="synchronous"), pytest.raises(gm.DataError, match="changed between two passes"):
        gm.release(frames.from_map(part, [0], meta=data[:0]), {"x": [0, 1]}, **BUDGET, random_state=0)


def test_a_column_that_is_called_like_an_indicator_is_none():
    """``age=(missing)`` is a column of the user's: no age is missing."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"age": rng.uniform(0, 9, 2000), "age=(missing)": rng.uniform(size=2000) < 0.1})
    schema = {"age": [0, 9], "age=(missing)": "boolean"}
    marginals = gm.release(data, schema, **BUDGET, random_state=0).statistic.marginals
    cells = marginals.plan.cells.columns[0]
    assert cells.missing is None


@pytest.mark.parametrize("tables", ["ab", [1], [([1], "a")], [("a",)], [("a", "a")], [("a", "c")]])
def test_malformed_tables_are_refused(tables):
    data = pd.DataFrame({"a": ["x", "y"] * 50, "b": [True, False] * 50})
    with pytest.raises(gm.GaussmixError, match="tables"):
        gm.release(data, {"a": ["x", "y"], "b": "boolean"}, **BUDGET, tables=tables)


def test_declared_tables_are_released_or_refused():
    """Where a budget is too small for several passes, a release without tables has one pass."""
    data = pd.DataFrame({"a": ["x", "y"] * 500, "b": [True, False] * 500})
    try:
        private = gm.release(
            data, {"a": ["x", "y"], "b": "boolean"}, epsilon=1e-4, delta=1e-6, tables=[("a", "b")], random_state=0
        )
    except gm.GaussmixError:
        return
    assert private.statistic.marginals is not None


class _Unread:
    """A table that must not be read."""

    def __iter__(self):
        raise AssertionError("rows were read")


def test_a_category_with_thousands_of_levels_is_refused_before_rows_are_read(tmp_path):
    ledger = ledger_at(tmp_path)
    schema = {"code": [f"c{i}" for i in range(5000)], "cost": [0, 100]}
    words = r"5,002 columns.* 50,050,012 noisy sums: about 30 minutes and 11\.2 GiB .*Merge levels or drop columns"
    with pytest.raises(gm.DeclarationError, match=words):
        gm.release(_Unread(), schema, budget=gm.Budget(ledger=ledger), out=tmp_path / "wide.parquet")
    assert not ledger.entries()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.ledger"}


def test_wide_tables_are_refused_by_memory_too(monkeypatch):
    schema = {f"x{i}": [0, 1] for i in range(99)}
    monkeypatch.setattr(release, "_memory", lambda: 3_000_000)
    with pytest.raises(gm.DeclarationError, match=r"100 columns.* in 4 passes .*, or set passes=1\. Nothing was spent"):
        gm.release(_Unread(), schema, **BUDGET)
    with pytest.raises(AssertionError, match="rows were read"):
        gm.release(_Unread(), schema, passes=1, **BUDGET)
    monkeypatch.setattr(release, "_memory", lambda: 1_000_000)
    with pytest.raises(gm.DeclarationError, match=r"in 1 pass .*drop columns\. Nothing was spent"):
        gm.release(_Unread(), schema, passes=1, **BUDGET)
