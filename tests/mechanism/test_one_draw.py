"""Every prepared mechanism serves one draw, of rows of the schema that it was prepared for."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from gaussmix import baselines
from gaussmix.baselines.adassp import PreparedAdaSSP
from gaussmix.baselines.objective_perturbation import PreparedObjectivePerturbation
from gaussmix.baselines.sheffet import PreparedSheffet
from gaussmix.data.rows import ArrayRows
from gaussmix.data.schema import Schema
from gaussmix.ledger import Budget
from gaussmix.mechanism.release import prepare

SCHEMA = Schema.of({"X": {"size": 2, "norm": 1.0}, "y": [-1, 1]})
OTHER = Schema.of({"X": {"size": 2, "norm": 2.0}, "y": [-1, 1]})
X, Y = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2)), np.linspace(-1, 1, 200)
BUDGET = {"epsilon": 4.0, "delta": 1e-6}


def rng():
    return np.random.default_rng(0)


PREPARED = {
    "release": lambda: prepare(SCHEMA, Budget(**BUDGET), random_state=0),
    "AdaSSP": lambda: PreparedAdaSSP.of(SCHEMA, **BUDGET, rho=0.05, analysis="exact", n_rows=None, rng=rng()),
    "Sheffet": lambda: PreparedSheffet.of(SCHEMA, **BUDGET, sketch_size=50, analysis="renyi", n_rows=None, rng=rng()),
}


@pytest.mark.parametrize("name", PREPARED)
def test_one_draw_of_the_schema_that_was_prepared(name):
    prepared = PREPARED[name]()
    with pytest.raises(gm.DeclarationError, match="different schema"):
        prepared.draw(ArrayRows(X, Y, OTHER))
    prepared.draw(ArrayRows(X, Y, SCHEMA))
    for own in (prepared, replace(prepared)):
        with pytest.raises(gm.ArgumentError, match="This prepared release was already drawn"):
            own.draw(ArrayRows(X, Y, SCHEMA))


def test_one_draw_of_objective_perturbation():
    prepared = PreparedObjectivePerturbation.of(SCHEMA, **BUDGET, conditions=(), rng=rng())
    with pytest.raises(gm.DataError):
        prepared.draw(np.zeros((4, 3)), np.ones(4, bool))
    prepared.draw(X, Y > 0)
    with pytest.raises(gm.ArgumentError, match="This prepared release was already drawn"):
        prepared.draw(X, Y > 0)


@pytest.mark.parametrize("model", [baselines.AdaSSP, baselines.SheffetMixing, baselines.ObjectivePerturbation])
def test_a_weak_budget_is_warned_of_once_all_is_prepared(model):
    """Not where a later argument is refused."""
    options = {"epsilon": 30.0, "bounds_X": (-1, 1), "random_state": 0}
    options |= {} if model is baselines.ObjectivePerturbation else {"bounds_y": (-1, 1)}
    y = Y > 0 if model is baselines.ObjectivePerturbation else Y
    with pytest.warns(gm.BudgetWarning, match="epsilon=30"):
        model(**options).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(gm.ArgumentError, match="random_state"):
            model(**{**options, "random_state": "x"}).fit(X, y)
