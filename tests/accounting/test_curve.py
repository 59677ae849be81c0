"""The curve of one release: never below the exact one, and close to it."""

from __future__ import annotations

import numpy as np
import pytest

import gaussmix as gm
from gaussmix import accounting
from gaussmix.accounting.accounts import AdaSSPAccount, NonPrivate
from gaussmix.accounting.curve import curve_of, privacy_curve


@pytest.mark.slow
@pytest.mark.parametrize(
    ("neighbours", "k", "gamma"),
    [
        ("add-remove", 1_000_000, 3000.0),
        ("add-remove", 250, 53.0),
        ("add-remove", 250, 2.0),
        ("add-remove", 5, 0.1),
        ("replace-one", 250, 53.0),
    ],
)
def test_curve_is_never_below_the_exact_one_and_close_to_it(neighbours, k, gamma):
    deltas = np.array([1e-12, 1.7e-12, 3.3e-9, 1e-6, 2e-4, 0.03, 0.1])
    epsilon = accounting.epsilon(1e-6, sketch_size=k, gamma=gamma, neighbours=neighbours)
    curve = privacy_curve(deltas, epsilon=epsilon, sketch_size=k, gamma=gamma, neighbours=neighbours)
    exact = accounting.epsilon(deltas, sketch_size=k, gamma=gamma, neighbours=neighbours)
    slack = curve.epsilon - exact
    assert np.all(slack >= -1e-9 * (1 + exact))
    assert np.all(slack <= 0.02 * exact[0])
    assert curve.certified_delta <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_curve_of_an_account_goes_through_its_own_pair(neighbours):
    account = gm.calibrate(1.0, 3.3e-7, sketch_size=250, neighbours=neighbours)
    curve = curve_of(account)
    (place,) = np.flatnonzero(curve.delta == 3.3e-7)
    assert curve.epsilon[place] <= 1.0
    assert curve.certified_delta <= 3.3e-7
    assert np.all(np.diff(curve.epsilon) <= 0)
    assert (curve.delta[0], curve.delta[-1]) == (1e-12, 0.1)


def test_other_accounts_have_no_curve():
    private_scale = gm.calibrate(1.0, 1e-6, sketch_size=250, scale="private")
    assert curve_of(private_scale) is None
    assert curve_of(NonPrivate()) is None
    assert curve_of(AdaSSPAccount(noise=7.4, ridge=0.0, rho=0.05, analysis="exact")) is None


def test_noise_that_protects_nothing_has_an_infinite_curve():
    curve = privacy_curve([1e-6, 1e-3], epsilon=1.0, sketch_size=5, gamma=1e-20)
    assert np.all(np.isinf(curve.epsilon))
    assert curve.certified_delta == 1.0
