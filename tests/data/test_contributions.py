"""Rows of a privacy unit, brought together: the same bits from every source, in every order, in bounded memory."""

from __future__ import annotations

import collections
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import gaussmix as gm
from encoded_rows import exact_gram, summed_rows
from gaussmix.data import contributions
from gaussmix.data.contributions import PrivacyUnit, UnitBlock, one_row_each, siphash, truncated, unit_ids, unit_texts
from gaussmix.data.counts import OneRowEach, count_columns
from gaussmix.data.gram import LIMB_BITS
from gaussmix.data.rows import UnitRows
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import PartialSchema, Schema
from gaussmix.data.source import ReadOptions
from gaussmix.data.table import open_table
from gaussmix.data.transforms import Transform, clip_norms

SCHEMA = Schema.of({"a": [0, 1], "b": ["x", "y"], "c": {"lower": -1, "upper": 1, "missing": "drop-row"}})
KEY = bytes(range(32))
SHORTEN, KEEP = PrivacyUnit("who", 3), PrivacyUnit("who", 3, "sample")
LIMIT = 2**40


def table(n=300, persons=40, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.uniform(-1.2, 1.2, n)
    c[rng.random(n) < 0.1] = np.nan
    return {"who": rng.integers(0, persons, n), "a": rng.uniform(-0.2, 1.2, n), "b": rng.choice(["x", "y"], n), "c": c}


def answers(data, unit=SHORTEN, key=KEY, **words):
    """Everything that a release asks, in one tuple that can be compared."""
    rows = UnitRows(data, SCHEMA, unit, key=key, **words)
    gram = rows.gram()
    transform = Transform.nearest(np.vander([0.3, -0.5, 0.7, 1.1, 0.2], 5) + np.eye(5))
    mapped = rows.mapped(transform, clip=0.8)
    counts = rows.counts(
        [transform, Transform(transform.integers, transform.scales * np.arange(1.0, 6.0))],
        [np.array([0.5, 1.0, 2.0, 4.0])] * 2,
    )
    sampled = rows.mapped(transform, clip=0.8, sample=Sample.seeded(0.4, 1))
    found = [
        *(part.tolist() for sums in (gram, mapped, sampled) for part in (sums.high, sums.low)),
        [count.tolist() for count in counts],
        rows.unit_counts(),
    ]
    rows.close()
    return found


# ---------------------------------------------------------------------------------------------------------------
# Names of persons
def test_siphash_has_the_authors_values():
    """Of the first 8, 16 and 56 bytes 0, 1, 2, …, under the key 0, 1, …, 15."""
    key, message = bytes(range(16)), np.frombuffer(bytes(range(56)), dtype="<u8").astype(np.uint64)
    for words, value in ((1, 0x93F5F5799A932462), (2, 0x3F2ACC7F57C29BDB), (7, 0xB78DBFAF3A8D83BD)):
        assert siphash(np.tile(message[:words], (3, 1)), key).tolist() == [value] * 3


def test_a_person_is_the_text_of_the_value():
    whole = pa.array([17, -3, 2**40])
    same = [
        whole,
        whole.cast(pa.float64()),
        whole.cast(pa.string()),
        whole.cast(pa.string()).dictionary_encode(),
        whole.cast(pa.decimal128(20, 0)),
        pa.concat_arrays([pa.array(["no"]), whole.cast(pa.string())]).slice(1),
    ]
    for array in same:
        assert np.array_equal(unit_ids("who", array, KEY), unit_ids("who", whole, KEY))
    texts = ["17", "017", " 17", "17.0", "1" * 8, "1" * 9, "1" * 7 + "\0"]
    assert len(np.unique(unit_ids("who", pa.array(texts), KEY), axis=0)) == len(texts)
    assert not np.array_equal(unit_ids("who", whole, KEY), unit_ids("who", whole, bytes(32)))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array(["secret", None]), "has missing values"),
        (pa.array(["secret", ""]), "has missing values"),
        (pa.array([4711.0, float("nan")]), "has missing values"),
        (pa.nulls(2), "has missing values"),
        (pa.array([4711.5, 1.0]), "has fractional numbers"),
        (pa.array([float("inf"), 1.0]), "has fractional numbers"),
        (pa.array([True, False]), "type is bool"),
        (pa.array([4711, 1], pa.timestamp("s")), "type is timestamp"),
    ],
)
def test_what_names_nobody_is_refused_without_its_value(values, words):
    with pytest.raises(gm.DataError, match=words) as caught:
        unit_ids("who", values, KEY)
    assert "secret" not in str(caught.value)
    assert "4711" not in str(caught.value)
    assert caught.value.__context__ is None


def test_texts_are_read_one_by_one():
    assert unit_texts("who", pa.array([1.0, -0.0, 2.0**52])).to_pylist() == ["1", "0", str(2**52)]


# ---------------------------------------------------------------------------------------------------------------
# Bounds
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    scale=st.sampled_from([1.0, 2.0**19, 2.0**26, 2.0**60, 2.0**700]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_persons_are_shortened_in_integers(sizes, scale, seed):
    rng = np.random.default_rng(seed)
    rows = np.trunc(rng.standard_normal((sum(sizes), 3)) * scale)
    starts = np.cumsum(sizes) - sizes
    found = rows.copy()
    clip_norms(found, float(LIMIT), starts)
    for start, size in zip(starts, sizes, strict=True):
        before, after = rows[start : start + size], found[start : start + size]
        exact, total = (sum(int(value) ** 2 for value in part.ravel()) for part in (before, after))
        assert total <= LIMIT
        if exact <= LIMIT:
            assert np.array_equal(before, after)
        else:
            assert total >= LIMIT * 0.9999
            factor = np.sqrt(LIMIT) / np.sqrt(float(np.sum((before / scale) ** 2))) / scale
            np.testing.assert_allclose(after, before * factor, rtol=1e-6, atol=2.0)
        alone = before.copy()
        clip_norms(alone, float(LIMIT), np.array([0]))
        assert np.array_equal(alone, after)  # no person sees another


@pytest.mark.parametrize("unit", [SHORTEN, KEEP], ids=lambda unit: unit.contribution_bounding)
def test_the_gram_matrix_is_that_of_bounded_persons(unit):
    """Against sums in Python's integers over one person after the other."""
    data = table(seed=4)
    frame = pd.DataFrame(data).dropna()
    rows = UnitRows(data, SCHEMA, unit, key=KEY)
    sums = rows.gram()
    found = (sums.high.astype(object) << LIMB_BITS) + sums.low.astype(object)
    assert rows.unit_counts() == (frame["who"].nunique(), int(frame.groupby("who").size().clip(upper=3).sum()))
    total = np.zeros((5, 5), dtype=object)
    for _, own in frame.groupby("who"):
        encoded = summed_rows(SCHEMA, pa.Table.from_pandas(own))
        squares = np.trace(exact_gram(encoded))
        if squares > 3 * LIMIT:
            encoded = np.trunc(encoded * 2**20 * (np.sqrt(3 * LIMIT) * (1 - 2.0**-32) / np.sqrt(squares))) / 2**20
        total += exact_gram(encoded)
    assert np.array_equal(found, total) == (unit.contribution_bounding == "scale")


def test_kept_rows_are_chosen_by_person_row_and_copy():
    """Uniformly, the same in every order, another choice for another key or person: 3 of 9 rows, two of them equal."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-50, 50, (9, 2)).astype(np.int32)
    rows[8] = rows[7]
    names = np.repeat(np.column_stack([np.arange(3000), np.ones(3000)]).astype(np.uint64), 9, axis=0)
    orders = [np.tile(np.arange(9), 3000), np.argsort(rng.random((3000, 9)), axis=1).ravel()]
    first, second = (
        np.sort(
            np.ascontiguousarray(truncated(UnitBlock.of(names, rows[order]), KEEP, KEY).rows)
            .view("i4,i4")
            .reshape(-1, 3)
        )
        for order in orders
    )
    assert np.array_equal(first, second)
    chosen = np.array([np.count_nonzero(first == row) for row in rows[:8].view("i4,i4").ravel()])
    expected = np.array([1000.0] * 7 + [2000.0])
    assert np.abs(chosen / expected - 1).max() < 5 * np.sqrt(2 / 3 / 1000)
    one = UnitBlock.of(np.zeros((9, 2), dtype=np.uint64), rows)
    assert any(
        not np.array_equal(truncated(one, KEEP, bytes([k]) * 32).rows, truncated(one, KEEP, KEY).rows) for k in range(5)
    )


# ---------------------------------------------------------------------------------------------------------------
# Sources
@pytest.mark.parametrize("unit", [SHORTEN, KEEP], ids=lambda unit: unit.contribution_bounding)
def test_every_source_gives_the_same_bits(tmp_path, unit, monkeypatch):
    frame = pd.DataFrame(table())
    expected = answers(frame, unit)
    frame.to_csv(tmp_path / "table.csv", index=False)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(arrow, tmp_path / "table.parquet", row_group_size=70)
    ordered = frame.sort_values("who", kind="stable")
    sources = [
        (table(), {}),
        (arrow, {}),
        (tmp_path / "table.csv", {}),
        (tmp_path / "table.parquet", {}),
        (iter(arrow.to_batches(max_chunksize=37)), {}),
        ([frame[:100], frame[100:]], {}),
        (frame.assign(who=frame["who"].astype(str)), {}),
        (frame.assign(who=frame["who"].astype(float)), {}),
        (frame.sample(frac=1, random_state=1), {}),
        (ordered, {"options": ReadOptions(sorted_by_unit=True)}),
        ([ordered[:101], ordered[101:107], ordered[107:]], {"options": ReadOptions(sorted_by_unit=True)}),
        ([ordered[i : i + 9] for i in range(0, len(ordered), 9)], {"options": ReadOptions(sorted_by_unit=True)}),
    ]
    for data, words in sources:
        assert answers(data, unit, **words) == expected
    monkeypatch.setattr(contributions, "MEMORY", 1000)
    assert answers(frame, unit) == expected


@given(seed=st.integers(0, 1000), unit=st.sampled_from([SHORTEN, KEEP]))
@settings(max_examples=8)
def test_the_order_of_rows_does_not_matter(seed, unit):
    data, order = table(90, 12, seed), np.random.default_rng(seed).permutation(90)
    assert answers(data, unit) == answers({name: values[order] for name, values in data.items()}, unit)


# ---------------------------------------------------------------------------------------------------------------
# Sorted tables, temporary files
def test_a_person_who_reappears_is_refused_and_not_named():
    data = pd.DataFrame(table()).assign(who=lambda frame: 4711 + frame["who"] // 20)
    ordered = data.sort_values("who", kind="stable")
    for broken in (data, pd.concat([ordered, ordered[:1]]), pd.concat([ordered[-1:], ordered])):
        with pytest.raises(gm.DataError, match="are not adjacent") as caught:
            UnitRows(broken, SCHEMA, SHORTEN, options=ReadOptions(sorted_by_unit=True), key=KEY).gram()
        assert "47" not in str(caught.value)


def test_a_table_that_comes_once_has_one_pass():
    data = pd.DataFrame(table()).sort_values("who")
    words = {"schema": SCHEMA, "epsilon": 1, "delta": 1e-6, "privacy_unit": gm.PrivacyUnit("who", 3), "random_state": 0}
    assert len(gm.release(iter([data]), reading=gm.ReadOptions(sorted_by_unit=True), **words).statistic.passes) == 1
    assert len(gm.release(iter([data]), **words).statistic.passes) == 1
    assert len(gm.release([data], **words).statistic.passes) == 4


@pytest.mark.parametrize("is_sorted", [False, True])
def test_a_unit_that_is_not_in_the_table_is_missed_as_a_declared_column_is(is_sorted):
    with pytest.raises(gm.DataError) as declared:
        gm.release({"a": [0.5]}, schema={"a": [0, 1], "who": [0, 1]}, epsilon=1.0, delta=1e-6)
    options = {"privacy_unit": gm.PrivacyUnit("who", 2), "reading": ReadOptions(sorted_by_unit=is_sorted)}
    with pytest.raises(gm.DataError) as unit:
        gm.release({"a": [0.5]}, schema={"a": [0, 1]}, epsilon=1.0, delta=1e-6, **options)
    assert str(unit.value) == str(declared.value)
    assert "Column 'who' is not in the arrays. Correct the name in the schema or privacy unit" in (str(unit.value))


def test_a_missing_unit_is_an_error_even_of_a_row_that_is_dropped():
    data = pd.DataFrame(table()).assign(who=lambda frame: frame["who"].astype(float))
    data.loc[data["c"].isna().idxmax(), "who"] = np.nan
    with pytest.raises(gm.DataError, match="has missing values"):
        UnitRows(data, SCHEMA, SHORTEN, key=KEY).gram()


def test_temporary_files_are_nobodys_and_gone(monkeypatch):
    """They have no name, mode 0600, and end with the rows, also when reading fails."""
    made = []
    original = contributions.tempfile.SpooledTemporaryFile

    def noted(**words):
        made.append(original(**words))
        return made[-1]

    monkeypatch.setattr(contributions, "MEMORY", 1000)
    monkeypatch.setattr(contributions.tempfile, "SpooledTemporaryFile", noted)
    rows = UnitRows(table(), SCHEMA, SHORTEN, key=KEY)
    rows.gram()
    scattered, grouped = made
    assert scattered.closed
    status = os.fstat(grouped.fileno())
    assert status.st_mode & 0o777 == 0o600
    assert status.st_nlink == 0
    rows.close()
    assert grouped.closed
    with pytest.raises(gm.DataError):
        UnitRows([table(), {**table(), "b": np.array(["z"] * 300)}], SCHEMA, SHORTEN, key=KEY).gram()
    assert all(file.closed for file in made)


def test_threads_that_share_a_table_read_it_in_turn(monkeypatch):
    """Names, starts and rows of a block lie in one file: two readers would have those of two blocks."""
    monkeypatch.setattr(contributions, "MEMORY", 2**12)
    rows = UnitRows(table(3_000, 400), SCHEMA, SHORTEN, key=KEY)
    alone = rows.gram().low.tolist()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: rows.gram().low.tolist(), range(24)))
    finally:
        sys.setswitchinterval(interval)
        rows.close()
    assert all(one == alone for one in found)


def test_a_full_disk_quotes_nothing(monkeypatch):
    def full(self, content):
        raise OSError(28, "No space left on device: 4711")

    monkeypatch.setattr(contributions, "MEMORY", 1000)
    monkeypatch.setattr(contributions.tempfile.SpooledTemporaryFile, "write", full)
    with pytest.raises(gm.OutputError, match="not enough disk space") as caught:
        UnitRows(table(), SCHEMA, SHORTEN, key=KEY).gram()
    assert "4711" not in str(caught.value)


def test_nothing_shows_a_person():
    rows = UnitRows(table(), SCHEMA, SHORTEN, key=KEY)
    rows.gram()
    assert repr(rows) == "UnitRows(5 columns, sensitive: no numbers shown)"
    assert "array" not in repr(UnitBlock.of(np.zeros((1, 2), dtype=np.uint64), np.zeros((1, 2), dtype=np.int32)))


# ---------------------------------------------------------------------------------------------------------------
# One row of each unit
def visits(sizes, batch_rows=7):
    """Batches of rows, their units in turn, with the position of each row."""
    units = [unit for copy in range(max(sizes)) for unit, size in enumerate(sizes) if copy < size]
    table = pa.table({"unit": units, "row": range(len(units)), "text": [f"t{u}" for u in units]})
    return units, table.to_batches(max_chunksize=batch_rows)


@pytest.mark.parametrize("reservoir", [0, 10, 2**18])
def test_one_row_of_each_unit_is_kept(monkeypatch, reservoir):
    monkeypatch.setattr(contributions, "_RESERVOIR", reservoir)
    units, batches = visits([1, 5, 30, 2, 1])
    (found,) = one_row_each(batches, "unit", KEY)
    assert found.schema.names == ["row", "text"]
    rows = found.column("row").to_pylist()
    assert sorted(units[row] for row in rows) == [0, 1, 2, 3, 4]
    assert found.column("text").to_pylist() == [f"t{units[row]}" for row in rows]
    monkeypatch.undo()
    (again,) = one_row_each(visits([1, 5, 30, 2, 1], 3)[1], "unit", KEY)
    assert again == found


def test_rows_of_a_unit_are_kept_with_equal_probability_whatever_other_units_there_are():
    """With equal rows, too; a unit of three rows, beside others."""
    for sizes in ([3], [3, 4, 1, 9]):
        units, batches = visits(sizes)
        places = [place for place, unit in enumerate(units) if unit == 0]
        counts = collections.Counter()
        for number in range(600):
            (found,) = one_row_each(batches, "unit", hashlib.sha256(b"%d" % number).digest())
            counts.update(set(found.column("row").to_pylist()) & {*places})
        assert stats.chisquare([counts[place] for place in places]).pvalue > 1e-4
        biased = [1.5 * counts[places[0]], *(counts[place] for place in places[1:])]  # would be seen
        assert stats.chisquare(biased).pvalue < 1e-4


def test_files_with_other_types_are_sampled_together():
    parts = [
        pa.record_batch({"unit": pa.array([1, 2], pa.int32()), "x": pa.array([1, 2], pa.int32())}),
        pa.record_batch({"unit": pa.array(["3", "1"]), "x": pa.array([3.5, None])}),
        pa.record_batch({"unit": pa.array([4.0]), "x": pa.nulls(1)}),
    ]
    found = list(one_row_each(parts, "unit", KEY))
    assert sum(rows.num_rows for rows in found) == 4
    assert any(3.5 in rows.column("x").to_pylist() for rows in found)


def test_rows_of_a_file_are_read_with_its_own_types():
    """A file of floats changes no integer beyond 2⁵³, and no message quotes one."""
    codes = [2**53 + 1, 2**53 + 1, 3]
    parts = [
        pa.table({"unit": ["a", "b", "c"], "code": pa.array(codes, pa.int64())}),
        pa.table({"unit": ["d"], "code": pa.array([1.0])}),
        pa.table({"unit": ["e"], "code": pa.array([2**63 + 5], pa.uint64())}),
    ]
    schema, each = PartialSchema.of({"code": "codes"}), OneRowEach("unit", lambda: KEY)
    counts = count_columns(open_table(parts), schema, each).keys["code"]
    assert counts == count_columns(open_table(parts), schema).keys["code"] == {2**53 + 1: 2, 3: 1, 1: 1}
