"""What a release says it lost by shortening rows: true but for its noise, in every form of a summary."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

import gaussmix as gm
from gaussmix.data.schema import Schema
from gaussmix.models.linear import RegressionModel
from gaussmix.models.rendering import as_plain

FALSE_ALARM = 1e-3
SCHEMA = Schema.of({"x": [-50, 50], "u": [-50, 50], "y": [-50, 50]})


def heavy(n=8_000):
    """One row in fifty is far out in any metric: enough of them for a histogram to see."""
    rng = np.random.default_rng(0)
    x, u, e = rng.standard_normal((3, n)) * np.where(rng.random(n) < 0.02, 8.0, 1.0)
    return {"x": x, "u": u, "y": 0.5 * x - 0.2 * u + e}


def release(seed, schema=SCHEMA):
    return gm.release(heavy(), schema=schema, epsilon=1.0, delta=1e-6, topcode=None, random_state=seed)


@pytest.fixture(scope="module")
def private():
    return release(0)


def kept_weight(request):
    """Mean weight of the rows themselves, mapped by the released transform."""
    rows, columns = heavy(), np.ones((4, 8_000))
    columns[:3] = [rows[name] / 50 for name in ("x", "u", "y")]
    squares = np.sum((request.metric.transform.matrix @ columns / SCHEMA.row_norm) ** 2, axis=0)
    return np.mean(np.minimum(1.0, request.clip / squares))


def test_it_is_what_the_rows_lost_but_for_noise_of_the_stated_size():
    """40 releases: chi-square of the differences; a deviation half or twice as large would be seen."""
    z, lost, held = [], [], 0
    for seed in range(40):
        statistic = release(seed).statistic
        weight = 1 - kept_weight(statistic.passes[-1].request)
        lost.append(weight)
        held += statistic.clipping_loss.low <= weight <= statistic.clipping_loss.high
        z.append((statistic.clipping_loss.weight - weight) / statistic.clipping_loss.std_error)
    assert np.median(lost) > 0.005
    assert held >= 33  # at least 95 % up to chance
    energy = float(np.sum(np.square(z)))
    assert FALSE_ALARM < stats.chi2.cdf(energy, 40) < 1 - FALSE_ALARM
    assert stats.chi2.sf(4 * energy, 40) < FALSE_ALARM
    assert stats.chi2.cdf(energy / 4, 40) < FALSE_ALARM


def test_summaries_say_it_in_every_form(private):
    summary, words = private.ols("y").summary(), str(private.statistic.clipping_loss)
    assert summary.clipping_loss == private.statistic.clipping_loss
    assert f"high-leverage rows weighted below 1 (Release.weights; removed: {words})." in str(summary)
    assert str(summary).count("of the row weight") == 1
    assert words in summary.as_html()
    plain = json.loads(json.dumps(as_plain(summary)))["clipping_loss"]
    assert plain == asdict(summary.clipping_loss)
    assert words in str(private.ols("y").summary(estimand="population"))


def test_a_small_table_does_not_state_a_share():
    """The number of 80 rows is not known at this budget, and nor is the share of their weight."""
    rows = {name: values[:80] for name, values in heavy().items()}
    for seed in range(5):
        small = gm.release(rows, schema=SCHEMA, epsilon=0.5, delta=1e-6, topcode=None, random_state=seed)
        text = str(small.ols("y").summary())
        assert "removed: a share of the row weight not known at this budget)" in text
        assert "0 % of the row weight" not in text


def test_without_an_intercept_it_is_what_the_histogram_expects():
    bare = release(0, Schema(SCHEMA.columns, intercept=0.0)).statistic
    assert bare.clipping_loss.expected == 1 - bare.passes[-1].request.kept_weight
    assert np.isnan([bare.clipping_loss.weight, bare.clipping_loss.std_error]).all()
    assert "SE" not in str(bare.clipping_loss)
    plain = as_plain(bare_summary := RegressionModel("y", ("x", "u"), bare).summary())
    unknown = dict.fromkeys(("weight", "std_error", "low", "high"))
    assert plain["clipping_loss"] == {**unknown, "expected": bare.clipping_loss.expected}
    assert str(bare.clipping_loss) in str(bare_summary)


def test_weights_of_rows_are_not_taken_for_rows():
    schema = Schema.of({**SCHEMA.columns, "w": [0, 4]}, weight="w")
    table = heavy() | {"w": np.full(8_000, 1.0)}
    found = gm.release(table, schema=schema, epsilon=1.0, delta=1e-6, random_state=0).statistic.clipping_loss
    assert np.isnan([found.weight, found.std_error]).all()
    assert 0 <= found.expected < 0.2


def test_where_no_row_is_shortened_nothing_is_said():
    single = gm.release(heavy(2000), schema=SCHEMA, epsilon=1.0, delta=1e-6, passes=1, random_state=0)
    summary = single.ols("y").summary()
    assert summary.clipping_loss is None
    assert "row weight" not in str(summary)
    assert as_plain(summary)["clipping_loss"] is None
