"""The weights that norm clipping gives to rows: those of the exact sums, for rows, row weights and privacy units."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import gaussmix as gm
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.encode import BlockEncoder, encode_batch
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import FRACTION_BITS, Schema
from gaussmix.data.table import open_table
from gaussmix.mechanism.noise import exact_integers
from gaussmix.models.rendering import WITH_WEIGHTS, as_plain

N = 20_000
SCHEMA = {"x": [-10, 10], "copy": [-10, 10], "y": [-10, 10], "g": ["a", "b"], "w": [0, 4]}
BUDGET = {"epsilon": 3.0, "delta": 1e-6}
FALSE_ALARM = 1e-3


def odd_rows(seed=0):
    """Return a table with nearly equal columns that 30 odd rows tell apart, with a slope of their own."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(N)
    copy = x + 0.05 * rng.standard_normal(N)
    y = x + 0.5 * rng.standard_normal(N)
    copy[:30] += 4 * rng.choice([-1, 1], 30)
    y[:30] = x[:30] + 2 * (copy[:30] - x[:30])
    g = np.where(rng.random(N) < 0.01, "b", "a")
    return pd.DataFrame({"x": x, "copy": copy, "y": y, "g": g, "w": rng.uniform(0.5, 4, N), "id": np.arange(N) // 3})


def release(frame, names=("x", "copy", "y", "g"), seed=0, weight=None, **options):
    schema = Schema.of({name: SCHEMA[name] for name in names}, weight=weight)
    return gm.release(frame, schema=schema, random_state=seed, **(BUDGET | options))


def gram(private, frame, weights):
    """Return Σ f r rᵀ of the encoded rows in units of the clip, by a plain product."""
    schema, request = private.schema, private.statistic.passes[-1].request
    plan = BlockEncoder.of(schema)
    (batch,) = open_table(frame).batches(list(schema.columns), types=schema.text_types)
    rows = encode_batch(batch, schema, plan)
    plan.finish(rows)
    z = request.metric.transform.product(rows) * request.metric.transform.scales / np.sqrt(request.clip)
    return z.T @ (z * weights[:, np.newaxis])


@pytest.mark.parametrize("unit", [None, PrivacyUnit("id", 2), PrivacyUnit("id", 3, "sample")])
@pytest.mark.parametrize("weight", [None, "w"])
def test_they_are_the_weights_of_the_exact_sums(unit, weight):
    frame = odd_rows()
    if unit is not None and weight is not None:
        frame["w"] = frame["w"].to_numpy()[frame["id"]]
    names = ("x", "copy", "y", "g", "w") if weight else ("x", "copy", "y", "g")
    private = release(frame, names, weight=weight, privacy_unit=unit)
    request = private.statistic.passes[-1].request
    assert not request.metric.declared
    rows = rows_of(frame, private.schema, unit=unit, new_key=lambda: bytes(32))
    exact = rows.mapped(request.metric.transform, request.clip)
    sums = exact_integers(exact.high, exact.low, refinement=0).astype(float)
    weights = private.weights(frame)
    assert weights.min() < 0.9
    assert weights.max() == 1.0
    expected = sums / 2.0 ** (2 * FRACTION_BITS)
    np.testing.assert_allclose(gram(private, frame, weights), expected, atol=1e-4 * np.abs(expected).max())
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(gram(private, frame, weights**1.1), expected, atol=1e-4 * np.abs(expected).max())


def test_a_weight_depends_on_its_row_alone():
    frame = odd_rows()
    private = release(frame)
    weights = private.weights(frame)
    order = np.random.default_rng(1).permutation(N)
    np.testing.assert_array_equal(private.weights(frame.iloc[order]), weights[order])
    np.testing.assert_array_equal(private.weights(frame.iloc[:7]), weights[:7])
    np.testing.assert_array_equal(gm.Release.from_bytes(private.to_bytes()).weights(frame), weights)


@pytest.mark.parametrize("passes", [1, 4])
def test_rows_beyond_a_declared_norm_are_scaled_first(passes):
    frame = odd_rows()
    columns = {name: SCHEMA[name] for name in ("x", "copy", "y")}
    options = BUDGET | {"random_state": 0, "passes": passes, "topcode": None}
    plain, scaled = (
        gm.release(frame, schema=Schema.of({"columns": columns, **more}), **options)
        for more in ({}, {"max_row_norm": 1.01})
    )
    encoded = np.column_stack([frame[name] / 10 for name in columns] + [np.ones(N)])
    declared = np.minimum(1, 1.01**2 / np.sum(encoded**2, axis=1))
    assert "rows beyond their declared norm" in scaled.ols("y").summary().row_weights
    assert "declared norm" not in plain.ols("y").summary().row_weights
    weights = scaled.weights(frame)
    if passes == 1:
        np.testing.assert_allclose(weights, declared, rtol=1e-4)
    else:
        inside = np.isclose(weights, declared, rtol=1e-4)
        assert 0.9 < inside.mean() < 1
        assert (weights[~inside] < declared[~inside]).all()


def test_rows_that_the_schema_drops_have_weight_zero():
    frame = odd_rows()
    schema = {"x": gm.Numeric(-10, 10, missing="drop-row"), "copy": [-10, 10], "y": [-10, 10]}
    private = gm.release(frame, schema=schema, random_state=0, **BUDGET)
    weights = private.weights(frame)
    holes = frame.assign(x=frame["x"].where(np.arange(N) % 5 > 0))
    np.testing.assert_array_equal(private.weights(holes), np.where(np.arange(N) % 5 > 0, weights, 0.0))


def test_sampled_rows_of_units_cannot_be_weighted():
    frame = odd_rows()
    private = release(frame, privacy_unit=PrivacyUnit("id", 2, "sample"))
    with pytest.raises(gm.errors.ArgumentError, match="the sample is secret"):
        private.weights(frame)
    assert "at most 2 rows of each id, chosen at random" in str(private.ols("y").summary())


def test_units_of_one_pass_are_scaled_to_their_bound():
    frame = odd_rows()
    private = release(frame, privacy_unit=PrivacyUnit("id", 1), passes=1)
    weights = private.weights(frame)
    np.testing.assert_array_equal(weights[0:-2:3], weights[2::3])
    assert weights.min() < 1
    assert "rows of id values with many rows weighted below 1" in str(private.ols("y").summary())
    assert (release(frame, passes=1).weights(frame) == 1).all()


def test_intervals_are_for_weighted_least_squares():
    """60 releases: standardised distances from WLS are a chi-square; those from OLS are not, so the test has power."""
    frame = odd_rows()
    to_weighted, to_plain = [], []
    for seed in range(60):
        private = release(frame, ("x", "copy", "y"), seed)
        summary = private.ols("y").summary()
        assert summary.left_out == {}
        coded = private.topcode(frame)
        X = sm.add_constant(coded[["x", "copy"]])
        weighted = sm.WLS(coded["y"], X, weights=private.weights(frame)).fit().params
        plain = sm.OLS(coded["y"], X).fit().params
        error = summary.bse["copy"] / np.sqrt(1 + private.statistic.clipping_bias**2)
        to_weighted.append((summary.params["copy"] - weighted["copy"]) / error)
        to_plain.append((summary.params["copy"] - plain["copy"]) / error)
    energy = np.sum(np.square(to_weighted))
    assert FALSE_ALARM / 2 < stats.chi2.cdf(energy, 60) < 1 - FALSE_ALARM / 2
    assert stats.chi2.sf(np.sum(np.square(to_plain)), 60) < FALSE_ALARM


def test_the_first_line_says_so_in_every_form():
    private = release(odd_rows())
    summary = private.ols("y").summary()
    loss = private.statistic.clipping_loss
    assert loss.low <= 1 - private.weights(odd_rows()).mean() <= loss.high
    words = f"high-leverage rows weighted below 1 (Release.weights; removed: {loss})"
    first = f"Estimated on the table with {words}"
    assert str(summary).splitlines()[1].startswith(first)  # after the line about the seed
    assert f"Intervals are for the least-squares coefficients of this table{WITH_WEIGHTS}." in str(summary)
    assert "Release.weights" in WITH_WEIGHTS
    assert first in summary.as_html()
    assert first.replace("%", r"\%") in summary.as_latex()
    assert json.loads(json.dumps(as_plain(summary)))["estimated_on"].startswith(first)
    assert first in str(private.ols("y").summary(estimand="population"))
    assert first in str(private.logit("g").summary())


@pytest.mark.parametrize("booleans", [True, False])
def test_where_every_row_has_weight_one_nothing_is_said(booleans):
    """One pass clips no row, and neither do passes of booleans, which stay in the declared metric."""
    frame, schema, options = odd_rows(), {"x": [-10, 10], "y": [-10, 10]}, {"passes": 1}
    if booleans:
        frame = pd.DataFrame({name: np.random.default_rng(i).random(N) < 0.5 for i, name in enumerate("xyz")})
        schema, options = dict.fromkeys("xyz", "boolean"), {}
    private = gm.release(frame, schema=schema, random_state=0, **BUDGET, **options)
    summary = private.ols("y").summary()
    assert "Release.weights" not in str(summary)
    assert summary.row_weights == ""
    assert as_plain(summary)["estimated_on"] is None
    assert (private.weights(frame) == 1).all()
