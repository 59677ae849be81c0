"""AdaSSP: the least noise that its budget asks for."""

from __future__ import annotations

import math

import pytest

import gaussmix as gm
from example_models import BOUNDS, linear_table
from gaussmix import baselines
from gaussmix.accounting.gaussian import gaussian_delta_up


def test_no_less_noise_than_the_budget_asks_for():
    X, y, _ = linear_table(200)
    noise = baselines.AdaSSP(**BOUNDS, random_state=0).fit(X, y).privacy_.account.noise
    assert gaussian_delta_up(1.0, math.sqrt(3) / noise) <= 1e-6 * (1 + 1e-14)  # of the quotient
    assert gm.accounting.gaussian_delta(1.0, mu=math.sqrt(3) / (0.99 * noise)) > 1e-6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"analysis": "best"}, "analysis must be one of 'exact', 'printed'"),
        ({"rho": 1.5}, "rho must lie in"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"epsilon": -1.0}, "epsilon must be"),
    ],
)
def test_bad_arguments(arguments, words):
    X, y, _ = linear_table(50)
    with pytest.raises(gm.ArgumentError, match=words):
        baselines.AdaSSP(**BOUNDS, **arguments).fit(X, y)
