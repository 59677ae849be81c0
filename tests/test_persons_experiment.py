"""The panel experiment: its least squares are statsmodels', and persons are its unit where it says so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from experiments import persons as experiment


@pytest.fixture
def panel(monkeypatch):
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(300), rng.integers(1, 8, 300))
    n = len(who)
    table = pd.DataFrame(
        {
            "idcode": who,
            "age": rng.uniform(14, 46, n).round(),
            "grade": rng.integers(0, 19, n),
            "union": rng.random(n) < 0.3,
            "south": rng.random(n) < 0.4,
            "tenure": rng.uniform(0, 26, n),
        }
    )
    wage = 1 + 0.03 * table["age"] - 4e-4 * table["age"] ** 2 + 0.05 * table["grade"] + 0.1 * table["union"]
    table["ln_wage"] = wage + rng.normal(0, 0.2, 300)[who] + rng.normal(0, 0.1, n)
    monkeypatch.setattr(experiment, "women", lambda: table)
    return table


def test_least_squares_and_clustered_errors_are_those_of_statsmodels(panel):
    theta, errors = experiment.least_squares(panel)
    formula = "ln_wage ~ age + I(age**2) + grade + union + south + tenure"
    fit = smf.ols(formula, panel.astype({"union": float, "south": float})).fit(
        cov_type="cluster", cov_kwds={"groups": panel["idcode"], "use_correction": False}
    )
    names = ["age", "I(age ** 2)", "grade", "union", "south", "tenure", "Intercept"]
    np.testing.assert_allclose(theta, fit.params[names])
    np.testing.assert_allclose(errors, fit.bse[names], rtol=1e-6)


@pytest.mark.slow
def test_every_method_is_run_and_reported(panel):
    results = experiment.run(1)
    assert list(results["method"].unique()) == list(experiment.methods(1.0))
    assert (results["lost_r2"] > -1e-12).all()
    assert len(experiment.report(results).splitlines()) == 2 + 8


def test_group_privacy_gives_what_is_asked():
    """15 rows at (ε/15, δ′) are one at (ε, δ): δ′ Σ exp(iε/15) ≤ δ."""
    few = experiment.methods(3.0)["group"]
    total = few["delta"] * sum(np.exp(i * few["epsilon"]) for i in range(experiment.MOST))
    assert total <= experiment.DELTA
