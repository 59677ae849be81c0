"""The plan against what happens to a table of the kind that it imagines."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.reporting.planning import expect, least_useful_epsilon


@pytest.mark.parametrize(("n", "d", "epsilon"), [(20_000, 5, 1.0), (50_000, 10, 0.5)])
def test_expected_standard_errors_are_those_of_a_release(n, d, epsilon):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    theta = np.full(d, math.sqrt(0.4 * 0.25 * 3 / d))
    y = X @ theta + rng.standard_normal(n) * math.sqrt(0.6 * 0.25)
    names = [f"x{i}" for i in range(d)]
    schema = {name: [-1, 1] for name in [*names, "y"]}
    release = gm.release((np.column_stack([X, y]), [*names, "y"]), schema=schema, epsilon=epsilon, delta=1e-6)
    errors = release.regress("y").summary().bse
    found = np.median([errors[name] for name in names])
    planned = expect(rows=n, features=d, epsilon=epsilon, delta=1e-6)
    assert found == pytest.approx(planned.standard_error, rel=0.25)


def test_more_of_everything_helps():
    base = {"rows": 10_000, "features": 10, "epsilon": 1.0, "delta": 1e-6}
    error = expect(**base).standard_error
    assert expect(**{**base, "rows": 20_000}).standard_error < error
    assert expect(**{**base, "epsilon": 2.0}).standard_error < error
    assert expect(**{**base, "features": 20}).standard_error > error


def test_least_useful_epsilon_is_where_usefulness_begins():
    arguments = {"rows": 5_000, "features": 10, "delta": 1e-6}
    found = least_useful_epsilon(**arguments)
    assert expect(epsilon=found, **arguments).useful
    assert not expect(epsilon=found / 1.05, **arguments).useful
    assert least_useful_epsilon(rows=3, features=200, delta=1e-12) == math.inf


def test_bad_input():
    with pytest.raises(ValueError, match=r"r2 must lie in \(0, 1\)"):
        expect(rows=10, features=2, epsilon=1.0, delta=1e-6, r2=1.0)
    with pytest.raises(ValueError, match="rows must be an integer ≥ 1"):
        expect(rows=0, features=2, epsilon=1.0, delta=1e-6)
