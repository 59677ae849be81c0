"""Levels are counted where their rows are whole: rare ones far out in a learned metric are not lost without a word."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import gaussmix as gm
from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.models.descriptive import _indicators, _lengths, counted_early, counted_in, pass_that_counts, whole_in

SCHEMA = {"x": [0, 1], "z": [0, 1], "y": [0, 2], "kind": ["a", "b", "rare"], "flag": "boolean", "half": "boolean"}


def table(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0.3, 0.7, (2, n))
    kind = rng.choice(["a", "b", "rare"], n, p=[0.6, 0.395, 0.005])
    flag = rng.random(n) < 0.004
    y = np.clip(x + 0.2 * (kind == "b") + rng.normal(0, 0.1, n), 0, 2)
    return {"x": x, "z": z, "y": y, "kind": kind, "flag": flag, "half": rng.random(n) < 0.5}


@pytest.fixture(scope="module")
def private():
    return gm.release(table(), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0)


def encoded(private, rows):
    """Rows as the passes have them, divided by C."""
    schema = private.schema
    plan = BlockEncoder.of(schema)
    block = encode_batch(pa.RecordBatch.from_pydict({name: pa.array(rows[name]) for name in SCHEMA}), schema, plan)
    plan.finish(block)
    return block / 2.0**20


def test_no_row_of_a_level_is_shorter_than_the_bound(private):
    """‖Tr‖² ≥ 1/uᵀA⁻¹u, for every row and every pass; of the first one nothing is shortened."""
    rows = table()
    r = encoded(private, rows)
    for name, values in (("kind", rows["kind"]), ("flag", rows["flag"])):
        indicators = _indicators(private.schema, name) * private.schema.row_norm
        own = r @ indicators.T
        levels = SCHEMA["kind"] if name == "kind" else [False, True]
        np.testing.assert_allclose(own, np.array([values == level for level in levels]).T, atol=1e-4)
        for output in private.statistic.passes[1:]:
            request = output.request
            squares = np.sum((r @ request.metric.transform.matrix.T) ** 2, axis=1)
            bounds = _lengths(request, indicators) - request.metric.mean
            for k, level in enumerate(levels):
                assert squares[values == level].min() >= bounds[k] * (1 - 1e-3)


def test_rare_levels_are_counted_in_an_earlier_pass(private):
    statistic = private.statistic
    assert 0 in whole_in(statistic, "kind")
    assert counted_early(statistic, ["kind"])
    assert counted_early(statistic, ["flag"])
    assert not counted_early(statistic, ["half"])
    assert pass_that_counts(statistic, ["half", "kind"]) == pass_that_counts(statistic, ["kind"])
    assert counted_in(statistic, ["half"]) is not None
    text = str(private.describe())
    assert "Levels of kind, flag are counted in an earlier pass" in text
    assert "kind, half are counted in an earlier pass" in str(private.crosstab("kind", "half"))


@pytest.mark.slow
def test_shares_of_rare_levels_are_held():
    """In the last pass the rare level has a tenth of its rows, and an interval that does not know it."""
    rows = table()
    held, last = [], []
    for seed in range(12):
        private = gm.release(rows, schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=seed)
        found = private.describe(["kind", "flag"]).columns
        for term, low, high in zip(found["term"], found["conf.low"], found["conf.high"], strict=True):
            if "=" in term:
                name, level = term.split("=")
                share = np.mean(np.char.lower(np.array(rows[name]).astype(str)) == level)
                held.append(low <= share <= high)
        schema = private.schema
        index = schema.groups["kind"][2]
        last.append(private.statistic.noisy.moment[index, index] * schema.encoded[index].scale ** 2)
        cross = private.crosstab("kind", "half")
        true = np.array([[np.sum((rows["kind"] == a) & (rows["half"] == b)) for b in (False, True)] for a in "ab"])
        ends = cross.conf_int(1e-4)[:2]
        assert np.all((ends[..., 0] <= true) & (true <= ends[..., 1]))
    assert np.mean(last) < 0.5 * np.sum(rows["kind"] == "rare")
    assert len(held) == 12 * 4
    assert np.mean(held) > 0.8


def test_one_pass_counts_in_what_it_has():
    private = gm.release(table(2000), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0, passes=1)
    assert pass_that_counts(private.statistic, ["kind"]) == 0
    assert not counted_early(private.statistic, ["kind"])
    np.testing.assert_array_equal(counted_in(private.statistic, ["kind"]).moment, private.statistic.noisy.moment)
