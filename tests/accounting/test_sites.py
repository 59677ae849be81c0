"""Shares of noise, sums of discrete Gaussians, and the two guarantees of a joint release."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest

import gaussmix as gm
from gaussmix.accounting.discrete import lattice_account, lattice_delta
from gaussmix.accounting.sites import Sites, joint_account, log_ratio_bound

RELEASE = {"shares": ["0.1", "0.9"], "coordinates": [50, 21**2]}


def discrete_gaussian(variance, reach):
    """Probabilities of a discrete Gaussian on -reach, …, reach, with 60 digits."""
    weights = {z: mpmath.exp(-mpmath.mpf(z * z) / (2 * variance)) for z in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def convolved(a, b):
    found = {}
    for x, p in a.items():
        for y, q in b.items():
            found[x + y] = found.get(x + y, 0) + p * q
    return found


@pytest.mark.parametrize("sigma", [0.75, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("number", [2, 3, 5])
def test_the_sum_of_discrete_gaussians_is_within_the_bound(sigma, number):
    """By convolution with 60 digits, at every point that has noticeable mass; for two the bound is not idle."""
    with mpmath.workdps(60):
        variance, reach = mpmath.mpf(sigma) ** 2, 20
        share = discrete_gaussian(variance, reach)
        total = share
        for _ in range(number - 1):
            total = convolved(total, share)
        whole = discrete_gaussian(number * variance, number * reach)
        # Far out the truncation of the shares shows: compare where the mass is above 10⁻²⁵.
        ratios = [abs(mpmath.log(total[z] / whole[z])) for z in whole if whole[z] > mpmath.mpf(10) ** -25]
        bound = float(log_ratio_bound(sigma, number))
        worst = float(max(ratios))
        assert worst <= bound
        assert number > 2 or worst >= bound / 3
        variation = float(mpmath.fsum(abs(total[z] - whole[z]) for z in whole) / 2)
        assert variation <= bound


def test_the_bound_is_the_printed_sum():
    sigma, number = 1.1, 4
    with mpmath.workdps(40):
        exact = 5 * sum(mpmath.exp(-2 * mpmath.pi**2 * mpmath.mpf(sigma) ** 2 * j / (j + 1)) for j in range(1, number))
        assert 1 <= float(log_ratio_bound(sigma, number) / Fraction(str(exact))) < 1.001


@pytest.mark.parametrize(("k", "t", "s"), [(3, 1, 1), (5, 2, 1), (2, 1, 1), (10, 4, 1), (4, 1, 2)])
def test_the_noise_of_all_but_t_sites_gives_the_budget(k, t, s):
    sites = Sites(k, t, s)
    account = joint_account(1.0, 1e-6, sites, **RELEASE)
    central = lattice_account(1.0, 1e-6, **RELEASE)
    assert sites.mu(account) <= central.mu
    assert math.isclose(sites.mu(account), central.mu, rel_tol=1e-12)
    for mu, alone in zip(account.noise_mu, central.noise_mu, strict=True):
        assert math.isclose(alone / mu, sites.price, rel_tol=1e-12)
        # In exact rationals: (k - t) shares have at least the noise of a curator, for s times the sensitivity.
        sigma = Fraction(2) ** account.bits / Fraction(mu)
        honest = (k - t) * Fraction(sites.share(float(sigma))) ** 2
        assert honest * Fraction(alone) ** 2 >= s**2 * Fraction(4) ** account.bits * (1 - Fraction(1, 10**15))
    assert sites.delta(account) <= 1e-6
    assert lattice_delta(1.0, mu=sites.mu(account), slack=account.slack) <= 1e-6
    outside = sites.outsider_epsilon(account)
    assert outside < 1.0
    assert lattice_delta(outside, mu=s * account.mu, slack=account.slack) <= 1e-6


def test_noise_for_all_sites_instead_of_all_but_t_is_refused():
    """Shares of σ²/k of a curator's σ², the planted fault: a certificate with it cannot be built."""
    central = lattice_account(1.0, 1e-6, **RELEASE)
    with pytest.raises(gm.NotPrivateError, match="noise of 2 of 3 sites"):
        Sites(3, 1).verify(replace(central, slack=1e-12))


def test_slack_of_the_sum_is_accounted():
    sites = Sites(3, 1)
    account = joint_account(1.0, 1e-6, sites, **RELEASE)
    with pytest.raises(gm.NotPrivateError, match="slack"):
        sites.verify(replace(account, slack=account.slack / 1.2))


@pytest.mark.parametrize(("k", "t"), [(3, 2), (3, 0), (2, 0), (2, 2), (5, 3), (1, 1), (51, 1), (4, 2), (3, True)])
def test_half_of_the_sites_cannot_be_tolerated(k, t):
    with pytest.raises(gm.ArgumentError):
        Sites(k, t)


@pytest.mark.parametrize("s", [0, 4])
def test_a_person_is_at_one_to_k_sites(s):
    with pytest.raises(gm.ArgumentError, match="sites_per_unit"):
        Sites(3, 1, s)


def test_too_small_shares_are_refused():
    with pytest.raises(gm.ArgumentError, match="sigma"):
        log_ratio_bound(0.5, 3)
