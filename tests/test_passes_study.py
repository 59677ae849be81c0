"""The study of passes runs: every method on a small simulated table, and the figures from what was kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import passes_study


def test_every_method_is_scored_on_the_same_rows(capsys):
    results = pd.DataFrame(passes_study.accuracy("nothing-1000", 0, 1, (1.0, 3.0)))
    declared = results[results["declared"]]
    assert set(declared["method"]) == {"passes", "single", "adassp", "mean", "least squares"}
    base = declared["r2"] + declared["excess"]  # R² of least squares: the same for all methods
    assert np.ptp(base) < 1e-9
    others = results[~results["declared"]]
    assert set(others["epsilon"]) == {1.0}
    assert set(others["method"]) == {"passes", "single"}
    passes_study.report(results)
    assert "R² less the private mean's" in capsys.readouterr().out


def test_standard_errors_of_a_single_pass_are_those_of_its_noise():
    """δ̂ = (X'X)⁻¹(Ea)_x in closed form for isotropic noise, within five standard errors of 200 draws."""
    found = {row["method"]: row for row in passes_study.standard_errors("nothing-1000", 0, 1.0, 1e-9)}
    assert set(found) == {"pool", "last pass", "last two", "single"}
    table = passes_study.load("nothing-1000")
    x = np.setdiff1d(np.arange(table.rows.shape[1]), [table.target])
    X, y = table.rows[:, x], table.rows[:, table.target]
    theta, *_ = np.linalg.lstsq(X, y, rcond=None)
    bread = np.linalg.inv(X.T @ X)
    scale = table.squared_norm / (np.sqrt(2) * passes_study.gaussian_mu(1.0, 1e-9))
    middle = (theta @ theta + 1) * np.eye(len(x)) + np.outer(theta, theta)
    variance = scale**2 * np.diagonal(bread @ middle @ bread)
    sampling = np.sum((y - X @ theta) ** 2) / (len(y) - len(x)) * np.diagonal(bread)
    ratio = np.sqrt(1 + variance / sampling)[x != table.intercept]
    assert found["single"]["median"] == pytest.approx(np.median(ratio), rel=5 / np.sqrt(400))
