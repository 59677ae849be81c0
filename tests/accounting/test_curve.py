"""The curve of one release: never below the exact one, and close to it."""

from __future__ import annotations

import numpy as np
import pytest

from gaussmix.accounting.accounts import AdaSSPAccount, NonPrivate
from gaussmix.accounting.curve import curve_of
from gaussmix.accounting.discrete import lattice_account, lattice_delta
from gaussmix.accounting.numerics import log_excess, smallest_or_infinity

SHAPE = {"shares": ["0.4", "0.6"], "coordinates": [400, 400]}


@pytest.mark.parametrize(
    ("epsilon", "delta", "neighbours"),
    [(0.1, 1e-6, "add-remove"), (1.0, 1e-9, "add-remove"), (12.0, 1e-5, "add-remove"), (1.0, 1e-6, "replace-one")],
)
def test_curve_is_never_below_the_exact_one_and_close_to_it(epsilon, delta, neighbours):
    account = lattice_account(epsilon, delta, neighbours=neighbours, **SHAPE)

    def exact(delta):
        return smallest_or_infinity(lambda at: log_excess(lattice_delta(at, mu=account.mu, slack=account.slack), delta))

    curve = curve_of(account)
    places = np.linspace(0, len(curve.delta) - 1, 12).astype(int)
    expected = np.array([exact(float(curve.delta[place])) for place in places])
    excess = curve.epsilon[places] - expected
    assert np.all(excess >= -1e-9 * (1 + expected))
    assert np.all(excess <= 0.02 * expected[0])
    assert curve.certified_delta <= delta


def test_curve_of_an_account_goes_through_its_own_pair():
    curve = curve_of(lattice_account(1.0, 3.3e-7, **SHAPE))
    (place,) = np.flatnonzero(curve.delta == 3.3e-7)
    assert curve.epsilon[place] <= 1.0
    assert curve.certified_delta <= 3.3e-7
    assert np.all(np.diff(curve.epsilon) <= 0)
    assert (curve.delta[0], curve.delta[-1]) == (1e-12, 0.1)


def test_other_accounts_have_no_curve():
    assert curve_of(NonPrivate()) is None
    assert curve_of(AdaSSPAccount(noise=7.4, ridge=0.0, rho=0.05, analysis="exact")) is None


def test_a_delta_that_discretisation_does_not_reach_has_an_infinite_epsilon():
    """(1 + e^ε)·slack grows with ε: for a weak budget no ε gives a small δ."""
    curve = curve_of(lattice_account(40.0, 1e-3, **SHAPE))
    assert np.all(np.isinf(curve.epsilon[curve.delta <= 1e-5]))
    assert np.all(curve.epsilon[curve.delta >= 1e-3] <= 40.0)
