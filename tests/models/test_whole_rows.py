"""Rare levels, whose rows later passes clip, are counted with all their rows."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.releases.counts import first_pass, level_counts

SCHEMA = {"x": [0, 1], "z": [0, 1], "y": [0, 2], "kind": ["a", "b", "rare"], "flag": "boolean", "half": "boolean"}


def table(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0.3, 0.7, (2, n))
    kind = rng.choice(["a", "b", "rare"], n, p=[0.6, 0.395, 0.005])
    flag = rng.random(n) < 0.004
    y = np.clip(x + 0.2 * (kind == "b") + rng.normal(0, 0.1, n), 0, 2)
    return {"x": x, "z": z, "y": y, "kind": kind, "flag": flag, "half": rng.random(n) < 0.5}


def test_rare_levels_are_counted_where_nothing_is_clipped():
    """In the last pass the rare level has a fraction of its rows; shares, counts and cross-tables have them all."""
    rows = table()
    true = {label: int(np.sum(rows["kind"] == label)) for label in SCHEMA["kind"]}
    pairs = np.array(
        [[np.sum((rows["kind"] == a) & (rows["half"] == b)) for b in (False, True)] for a in SCHEMA["kind"]]
    )
    last, z, cells = [], [], []
    for seed in range(20):
        private = gm.release(rows, schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=seed)
        counts = level_counts(private.statistic, "kind")
        z += [(count - true[label]) / error for label, (count, error) in counts.items()]
        found = private.crosstab("kind", "half")
        cells += ((found.estimates - pairs) / found.std_errors).ravel().tolist()
        index = private.schema.groups["kind"][2]
        last.append(private.statistic.noisy.moment[index, index] * private.schema.encoded[index].scale ** 2)
    assert np.mean(last) < 0.5 * true["rare"]
    assert 0.6 < np.std(z) < 1.45  # at least 40 degrees of freedom, 1e-4 on either side
    assert 0.7 < np.std(cells) < 1.35
    assert abs(np.mean(cells)) < 0.6


def test_one_pass_counts_in_what_it_has():
    private = gm.release(table(2000), schema=SCHEMA, epsilon=2.0, delta=1e-6, random_state=0, passes=1)
    np.testing.assert_array_equal(first_pass(private.statistic).moment, private.statistic.noisy.moment)
    assert set(level_counts(private.statistic, "kind")) == set(SCHEMA["kind"])
    with pytest.raises(gm.ArgumentError, match="cross-tables require a categorical"):
        level_counts(private.statistic, "x")
