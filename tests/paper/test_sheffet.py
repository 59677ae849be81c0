"""Sheffet's algorithm: what its test decides, and how often it may be wrong."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from gaussmix import Moments, Numeric, Schema, Vector
from gaussmix.accounting.accounts import SheffetAccount
from gaussmix.baselines.sheffet import PreparedSheffet
from gaussmix.data.rows import SummedRows
from gaussmix.mechanism.release import OneDraw

FALSE_ALARM = 1e-6
SCHEMA = Schema({"X": Vector(2, norm=2.0), "y": Numeric(-1, 1, weight=0.5)}, intercept=0.0)


def axes(rows: int) -> Moments:
    X = np.tile(np.array([[2.0, 0.0], [0.0, 2.0]]), (rows // 2, 1))
    return Moments.of_arrays([(X, np.tile([1.0, 1.0, -1.0, -1.0], rows // 4))], SCHEMA)


def prepared(*, epsilon=4.0, delta=1e-6, sketch_size=50, **replaced) -> PreparedSheffet:
    plan = PreparedSheffet.of(
        SCHEMA,
        epsilon=epsilon,
        delta=delta,
        sketch_size=sketch_size,
        analysis="sheffet",
        n_rows=None,
        rng=np.random.default_rng(0),
    )
    return dataclasses.replace(plan, account=dataclasses.replace(plan.account, **replaced))


@pytest.mark.parametrize(("rows", "noise_free"), [(20, False), (20_000, True)])
def test_the_test_decides_about_noise(rows, noise_free):
    plan = prepared()
    sketch = plan.draw(SummedRows(axes(rows)))
    expected = 0.0 if noise_free else plan.account.gamma * SCHEMA.row_norm**2
    assert sketch.noise_variance == pytest.approx(expected)


@pytest.mark.slow
def test_the_margin_grows_with_the_noise_of_the_test(monkeypatch):
    """λ_min just below γ: noise is left out with probability at most δ/2, whatever the solver's error bound is."""
    monkeypatch.setattr("gaussmix.baselines.adassp.eigenvalue_error_bound", lambda columns, n_max: 0.5)
    moments = axes(200)
    delta, epsilon, draws = 0.1, 2.0, 4000
    gamma = float(np.linalg.eigvalsh(moments.gram())[0]) - 0.5
    plan = prepared(epsilon=epsilon, delta=delta, sketch_size=5, gamma=gamma)
    drawn = (dataclasses.replace(plan, _once=OneDraw()).draw(SummedRows(moments)) for _ in range(draws))
    free = sum(sketch.noise_variance == 0 for sketch in drawn)
    assert stats.binomtest(free, draws, delta / 2, alternative="greater").pvalue > FALSE_ALARM
    without = int(draws * 0.5 * delta ** (1 / 2))  # what a margin that does not grow would give
    assert stats.binomtest(without, draws, delta / 2, alternative="greater").pvalue < FALSE_ALARM


def test_the_account_is_that_of_the_published_algorithm():
    account = prepared(epsilon=2.0, delta=1e-5).account
    assert account == SheffetAccount(
        50,
        4 / 2.0 * (math.sqrt(2 * 50 * math.log(8e5)) + 2 * math.log(8e5)),
        margin=4 * math.log(1e5) / 2.0,
        laplace_scale=2.0,
        analysis="sheffet",
    )
    assert account.holds(2.0, 1e-5, "add-remove")
    assert not account.holds(2.0, 1e-5, "replace-one")
    assert not dataclasses.replace(account, gamma=5.0).holds(2.0, 1e-5, "add-remove")
    assert not dataclasses.replace(account, laplace_scale=1.9).holds(2.0, 1e-5, "add-remove")
