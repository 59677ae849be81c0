"""Noisy counts of undeclared keys: what a threshold costs, against exact sums and exact curves."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special

from gaussmix.accounting.gaussian import gaussian_delta
from gaussmix.accounting.thresholds import (
    CountsAccount,
    counts_account,
    key_failure,
    releases_of_counts,
)
from gaussmix.errors import ArgumentError, NotPrivateError


def discrete_tails(sigma):
    """P(Z ≥ m) of the discrete Gaussian for m = 0, 1, …, by summing it up."""
    with mpmath.workdps(30):
        law = [mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for z in range(301)]
        whole = 2 * sum(law) - law[0]
        return [tail / whole for tail in list(itertools.accumulate(law[::-1]))[::-1]]


@pytest.mark.parametrize("sigma", [0.75, 1.0, 3.3, 20.0])
@pytest.mark.parametrize("bits", [0, 1, 2])
def test_a_single_key_shows_no_more_often_than_is_said(sigma, bits):
    tails = discrete_tails(sigma)
    for threshold in range(2**bits + 1, 2**bits + 60):
        exact = tails[threshold - 2**bits]
        said = key_failure(threshold, sigma=sigma, bits=bits)
        assert exact <= said
        if sigma == 20.0 and bits == 2:
            assert said <= exact * math.exp(3 * (threshold - 2**bits) / sigma**2 + 0.1)  # and hardly more often
    assert key_failure(2**bits, sigma=sigma, bits=bits) == 1.0  # a threshold of one row hides nothing


def hockey_stick(epsilon, mu, p):
    """Gaussian of μ beside an event that has the probability p with the row and none without: both directions."""
    with_row, without = gaussian_excess(epsilon - math.log1p(-p), mu), gaussian_excess(epsilon + math.log1p(-p), mu)
    return p + (1 - p) * with_row, without


def gaussian_excess(epsilon, mu):
    """E[(1 - e^(ε - L))₊], by the formula of Balle and Wang written out."""
    if mu == 0:
        return max(1 - math.exp(epsilon), 0.0)
    return float(special.ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("keys", [1, 2, 5])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.2), (1.0, 1e-2), (3.0, 1e-6)])
def test_new_keys_in_any_number_of_columns_stay_within_the_budget(epsilon, delta, keys):
    """The exact curves of a row that brings s new keys, beside J - s old ones."""
    account = counts_account(epsilon, delta, keys=keys)
    each = Fraction(account.threshold_delta) / keys
    worst = 0.0
    for new in range(keys + 1):
        mu = account.mu * math.sqrt((keys - new) / keys)
        p = -math.expm1(new * math.log1p(-float(each)))
        worst = max(worst, *hockey_stick(epsilon, mu, p))
    assert worst <= delta
    assert worst >= (1 - 1 / 5) * delta * 0.99  # the noise uses what the threshold leaves


def test_shares_are_one_a_column_and_a_refinement_halves_them():
    shares, coordinates = releases_of_counts([4001, 4001], 1, [129, 129])
    assert shares == [Fraction(1, 6), Fraction(1, 6), Fraction(1, 3), Fraction(1, 6), Fraction(1, 6)]
    assert sum(shares) == 1
    assert coordinates == [4001, 4001, 2, 129, 129]
    with pytest.raises(ArgumentError, match="At least one column"):
        releases_of_counts([], 0, [])


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_account_computes_its_claim_anew(neighbours):
    account = counts_account(1.0, 1e-6, grids=[4001], keys=3, neighbours=neighbours)
    assert account.holds(1.0, 1e-6, neighbours)
    assert not account.holds(1.0, 0.9e-6, neighbours)
    assert not account.holds(1.0, 1e-6, "add-remove" if neighbours == "replace-one" else "replace-one")
    sides = 2 if neighbours == "replace-one" else 1
    sigma = 1 / account.lattice.noise_mu[1]
    away = (account.threshold_in_rows - 1) / sigma
    assert 3 * sides * special.ndtr(-away) == pytest.approx(account.threshold_delta, rel=1e-6)
    assert account.threshold_delta == pytest.approx(1e-6 / 5, rel=1e-6)
    whole = gaussian_delta(1.0, mu=account.mu) + account.threshold_delta
    assert whole == pytest.approx(1e-6, rel=2e-3)
    for changes in (
        {"threshold": account.threshold - 2 ** (account.lattice.bits - 4)},
        {"threshold_delta": account.threshold_delta / 2},
        {"delta": 0.9e-6},
        {"epsilon": 0.9},
    ):
        with pytest.raises(NotPrivateError):
            replace(account, **changes)
    for changes in ({"keyed": (9,)}, {"keyed": (1, 1)}, {"threshold": 1.5}):
        with pytest.raises(ArgumentError):
            replace(account, **changes)


def test_it_is_read_back_from_a_file():
    account = counts_account(1.0, 1e-6, grids=[4001], keys=1, refined=[129])
    assert CountsAccount(**json.loads(json.dumps(asdict(account)))) == account


def test_without_keys_all_of_delta_is_for_noise():
    account = counts_account(1.0, 1e-6, grids=[4001])
    assert (account.keyed, account.threshold, account.threshold_delta) == ((), 0, 0.0)
    assert gaussian_delta(1.0, mu=account.mu) == pytest.approx(1e-6, rel=2e-3)
    assert np.isclose(account.mu, account.lattice.noise_mu[0])
