"""Objective perturbation: its noise, its minimum, its least ε."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from example_models import FEATURE_BOUNDS, linear_table
from gaussmix import baselines


def test_it_has_its_noise():
    """On rows that are all zero the minimum is -b/Δ: coefficients are the noise itself, and 10 % less would show."""
    d, epsilon, delta, data_norm = 1000, 2.0, 1e-6, 1.0
    model = baselines.ObjectivePerturbation(
        epsilon=epsilon, delta=delta, data_norm=data_norm, fit_intercept=False, random_state=0
    ).fit(np.zeros((4, d)), [0, 1, 0, 1])
    sigma = data_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    energy = np.sum((model.coef_ * data_norm**2 / (2 * epsilon) / sigma) ** 2)
    assert 1e-6 < stats.chi2.cdf(energy, d) < 1 - 1e-6
    assert stats.chi2.cdf(0.9**2 * energy, d) < 1e-4


def test_it_solves_its_objective():
    X, y, _ = linear_table(3000)
    labels = y > np.median(y)
    exact = LogisticRegression(C=1e8, max_iter=2000, tol=1e-10).fit(X, labels)
    found = baselines.ObjectivePerturbation(epsilon=math.inf, bounds_X=FEATURE_BOUNDS).fit(X, labels)
    assert found.coef_ == pytest.approx(exact.coef_, rel=1e-2)
    private = baselines.ObjectivePerturbation(epsilon=10.0, bounds_X=FEATURE_BOUNDS, random_state=0).fit(X, labels)
    assert private.privacy_.account.penalty == pytest.approx(5 / (2 * 10.0))  # C_X² = 4 features + intercept
    assert private.score(X, labels) > 0.8


def test_least_epsilon():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="epsilon must be at least 1e-05"):
        baselines.ObjectivePerturbation(bounds_X=(0, 1), epsilon=1e-8).fit(rng.uniform(size=(9, 2)), [0, 1, 1] * 3)
