"""The account on the lattice: its one constant re-derived, its roundings, and the whole of it against mpmath."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import asdict, replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from gaussmix.accounting import gaussian_delta, gaussian_mu
from gaussmix.accounting.accounts import Account
from gaussmix.accounting.discrete import (
    LARGEST_SIGMA,
    LEAST_SIGMA,
    TOTAL_VARIATION,
    LatticeAccount,
    account_within,
    diagonal_sigma,
    lattice_account,
    lattice_delta,
    off_diagonal_sigma,
    slack_delta,
    split_mu,
    total_slack,
)
from gaussmix.accounting.numerics import round_up
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError, NotPrivateError

TAYLOR_FROM = 20.0


# ---------------------------------------------------------------------------------------------------------------
# The constant 0.021 (gaussmix.accounting.discrete)
def distance(sigma: float) -> float:
    """σ² times the total variation between rounded and discrete Gaussian, in float64 (error below 1e-12)."""
    k = np.arange(int(14 * sigma) + 4)
    rounded = special.ndtr(-(k - 0.5) / sigma) - special.ndtr(-(k + 0.5) / sigma)
    discrete = np.exp(-(k**2) / (2 * sigma**2))
    both_signs = np.where(k > 0, 2, 1)
    discrete /= np.sum(both_signs * discrete)
    return float(sigma**2 / 2 * np.sum(both_signs * np.abs(rounded - discrete)))


def distance_mp(sigma: float) -> mp.mpf:
    """The same at 40 digits."""
    with mp.workdps(40):
        s = mp.mpf(sigma)
        top = int(16 * sigma) + 6
        weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * s * s)) for k in range(top)]
        total = weights[0] + 2 * mp.fsum(weights[1:])
        terms = []
        for k, weight in enumerate(weights):
            rounded = (
                mp.erfc((k - mp.mpf(1) / 2) / (s * mp.sqrt(2))) - mp.erfc((k + mp.mpf(1) / 2) / (s * mp.sqrt(2)))
            ) / 2
            terms.append((1 if k == 0 else 2) * abs(rounded - weight / total))
        return s * s / 2 * mp.fsum(terms)


def absolute_moment(order: int) -> float:
    """A_j = ∫|φ^(j)|: that of a derivative of the standard normal density."""
    hermite = np.polynomial.hermite_e.HermiteE.basis(order)
    edges = [-40.0, *np.sort(hermite.roots().real), 40.0]
    pieces = [
        integrate.quad(lambda z: hermite(z) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi), low, high)[0]
        for low, high in itertools.pairwise(edges)
    ]
    return float(np.sum(np.abs(pieces)))


A = {order: absolute_moment(order) for order in range(2, 8)}


def theta(sigma: float) -> tuple[float, float]:
    """Z - 1 = 2 Σ exp(-2π²σ²j²) and |dZ/dσ| for Z = Σ f(k), by Poisson's summation."""
    j = np.arange(1, 6)
    terms = 2 * np.exp(-2 * math.pi**2 * sigma**2 * j**2)
    return float(terms.sum()), float(np.sum(4 * math.pi**2 * sigma * j**2 * terms))


def taylor_bound(sigma: float) -> float:
    """Bound of `distance`, decreasing in σ from about 2 on."""
    above_one, _ = theta(sigma)
    return A[2] / 48 + A[3] / (96 * sigma) + (A[4] / sigma**2 + A[5] / sigma**3) / 3840 + sigma**2 * above_one / 2


def slope_bound(low: float, high: float) -> float:
    """Bound of |d distance / dσ| for low ≤ σ ≤ high, given that the distance is at most 0.03 there."""
    above_one, above_one_slope = theta(low)
    of_tv = (
        (A[4] / low**3 + A[5] / (2 * low**4)) / 48
        + (A[6] / low**5 + A[7] / low**6) / 3840
        + (above_one * (A[2] / low + A[3] / (2 * low**2)) + above_one_slope * (1 + above_one)) / 2
    )
    return 2 * 0.03 / low + high**2 * of_tv


def test_distance_is_below_0_021_from_20_on():
    assert taylor_bound(TAYLOR_FROM) < 0.021
    assert all(distance(s) <= taylor_bound(s) for s in (5.0, 20.0, 100.0))
    assert A[2] / 48 == pytest.approx(0.0201642, abs=1e-6)  # the limit: E|z² - 1|/48


def test_distance_is_below_0_021_from_0_74_to_20():
    """A walk whose every step is short enough that the bound cannot be crossed within it."""
    sigma, steps = LEAST_SIGMA, 0
    while sigma < TAYLOR_FROM:
        margin = 0.021 - distance(sigma) - 1e-11  # float64's error charged
        assert margin > 0
        ahead = sigma + margin / slope_bound(sigma, 1.05 * sigma)
        sigma, steps = min(ahead, 1.05 * sigma), steps + 1
    assert steps > 500


def test_the_slope_bound_bounds_slopes():
    for s in np.geomspace(LEAST_SIGMA, TAYLOR_FROM, 200):
        slope = (distance(s + 1e-4) - distance(s)) / 1e-4
        assert abs(slope) <= slope_bound(s, s + 1e-4)


@pytest.mark.parametrize("sigma", [0.74, 0.75, 1.0, 1.5, 2.5, 7.0, 20.0, 60.0])
def test_distance_agrees_with_40_digits(sigma):
    assert distance(sigma) == pytest.approx(float(distance_mp(sigma)), abs=1e-11)
    assert distance_mp(sigma) / mp.mpf(sigma) ** 2 <= float(TOTAL_VARIATION) / sigma**2


def test_the_bound_fails_below():
    assert distance_mp(0.735) > 0.021


# ---------------------------------------------------------------------------------------------------------------
# Roundings
positive = st.floats(1e-8, 1e4)


@given(mu=positive, parts=st.lists(st.integers(1, 1000), min_size=1, max_size=8))
@settings(max_examples=200)
def test_parts_of_mu_never_exceed_the_whole_and_waste_nothing(mu, parts):
    shares = [Fraction(part, sum(parts)) for part in parts]
    found = split_mu(mu, shares)
    assert sum(Fraction(part) ** 2 for part in found) <= Fraction(mu) ** 2
    for part, share in zip(found, shares, strict=True):
        assert Fraction(math.nextafter(part, math.inf)) ** 2 > share * Fraction(mu) ** 2


@given(mu=positive, bits=st.integers(10, 60))
@settings(max_examples=200)
def test_noise_is_rounded_up_by_less_than_a_digit(mu, bits):
    on, off = diagonal_sigma(mu, bits), off_diagonal_sigma(mu, bits)
    assert Fraction(on) * Fraction(mu) >= 2**bits > Fraction(math.nextafter(on, 0)) * Fraction(mu)
    assert 2 * (Fraction(off) * Fraction(mu)) ** 2 >= 4**bits
    assert 2 * (Fraction(math.nextafter(off, 0)) * Fraction(mu)) ** 2 < 4**bits


@given(
    mu=st.floats(1e-4, 1e2), bits=st.integers(30, 50), row=st.lists(st.integers(-2000, 2000), min_size=1, max_size=6)
)
def test_one_row_costs_at_most_mu(mu, bits, row):
    """Σ Δ²/σ² over the entries of rrᵀ, ‖r‖ at most 2^(bits/2) units, in exact arithmetic."""
    norm2 = sum(Fraction(value) ** 2 for value in row)
    on, off = Fraction(diagonal_sigma(mu, bits)), Fraction(off_diagonal_sigma(mu, bits))
    scale = Fraction(2) ** bits / max(norm2, 1)  # rrᵀ has squared norm 2^bits in lattice units
    cost = sum((Fraction(a) * a * scale / on) ** 2 for a in row)
    cost += sum((Fraction(a) * b * scale / off) ** 2 for i, a in enumerate(row) for b in row[:i])
    assert cost <= Fraction(mu) ** 2
    assert cost >= Fraction(mu) ** 2 * Fraction(999_999, 1_000_000) * (norm2 > 0)  # and no less: nothing is wasted


def test_shares_above_one_are_refused():
    with pytest.raises(ValueError, match="sum to at most 1"):
        split_mu(1.0, ["0.5", "0.500001"])
    with pytest.raises(ValueError, match="sum to at most 1"):
        split_mu(1.0, [0.1] * 10)  # the binary 0.1 is more than a tenth
    assert len(split_mu(1.0, ["0.1"] * 10)) == 10
    for share in ("much", "1/0", math.nan, math.inf):
        with pytest.raises(ArgumentError, match="A share must be a number such as"):
            split_mu(1.0, [share])
    for share in (True, None, b"1"):
        with pytest.raises(ArgumentTypeError, match="A share must be a string, a Fraction or a number"):
            split_mu(1.0, [share])


# ---------------------------------------------------------------------------------------------------------------
# The account
@pytest.mark.parametrize("m", [1, 2, 5, 100])
def test_slack_of_a_matrix_is_that_of_its_coordinates(m):
    mu, bits = 0.3, 12
    on, off = diagonal_sigma(mu, bits), off_diagonal_sigma(mu, bits)
    by_coordinate = 0.021 * (m / on**2 + m * (m - 1) / 2 / off**2)
    assert float(total_slack([mu], bits, [m**2])) == pytest.approx(by_coordinate, rel=1e-12)
    assert float(total_slack([mu], bits, [m**2])) == pytest.approx(0.021 * m**2 * mu**2 / 4**bits, rel=1e-12)


def test_known_slack():
    """ε = 20, m = 500 on 40 bits: 1.6e-11 of δ (notes of the design), more than a thousandth of δ = 1e-9."""
    mu = gaussian_mu(20.0, 1e-9)
    eta = float(total_slack([mu], 40, [500**2]))
    assert (1 + math.exp(20)) * eta == pytest.approx(1.6e-11, rel=0.05)
    assert lattice_account(20.0, 1e-9, shares=["1"], coordinates=[500**2]).bits > 40


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-5), (1.0, 1e-9), (10.0, 1e-12), (20.0, 1e-9)])
def test_the_account_stays_within_its_budget(epsilon, delta, neighbours):
    shares, coordinates = ["0.07", "0.02", "0.13", "0.78"], [101**2, 24, 101**2, 101**2]
    account = lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, neighbours=neighbours)
    slack = sum(
        (1 + mp.exp(epsilon)) * mp.mpf("0.021") * count * mp.mpf(part) ** 2 / mp.mpf(4) ** account.bits
        for count, part in zip(coordinates, account.noise_mu, strict=True)
    )
    assert slack <= delta / 1000
    assert gaussian_delta(epsilon, mu=account.mu) + slack <= delta
    assert account.spent_delta <= delta
    assert account.spent_delta >= 0.998 * delta
    factor = 2 if neighbours == "replace-one" else 1
    used = factor * sum(Fraction(part) ** 2 for part in account.noise_mu)
    assert Fraction(account.mu) ** 2 * Fraction(999_999, 1_000_000) <= used <= Fraction(account.mu) ** 2
    sigmas = [f(part, account.bits) for f in (diagonal_sigma, off_diagonal_sigma) for part in account.noise_mu]
    assert LEAST_SIGMA <= min(sigmas) <= max(sigmas) < LARGEST_SIGMA


def test_usual_budgets_use_the_natural_lattice():
    account = lattice_account(1.0, 1e-9, shares=["1"], coordinates=[500**2])
    assert (account.bits, account.row_bits, account.refinement) == (40, 20, 0)


def test_large_epsilon_refines_and_tiny_epsilon_coarsens():
    fine = lattice_account(20.0, 1e-9, shares=["1"], coordinates=[500**2])
    assert fine.row_bits == 20
    assert fine.refinement == fine.bits - 40 > 0
    coarse = lattice_account(1e-7, 1e-12, shares=["1"], coordinates=[100])
    assert coarse.bits < 40
    assert coarse.refinement in (0, 1)
    assert 2 * coarse.row_bits + coarse.refinement == coarse.bits
    assert diagonal_sigma(coarse.noise_mu[0], coarse.bits) < LARGEST_SIGMA


# ---------------------------------------------------------------------------------------------------------------
# A value that computes anew what it claims
ACCOUNT = lattice_account(1.0, 1e-9, shares=["0.3", "0.1", "0.6"], coordinates=[400, 24, 400])
REPLACED = lattice_account(1.0, 1e-9, shares=["1"], coordinates=[400], neighbours="replace-one")


@pytest.mark.parametrize("account", [ACCOUNT, REPLACED])
def test_an_account_survives_json_and_pickle(account):
    stored = json.loads(json.dumps(asdict(account)))
    assert isinstance(stored["noise_mu"], list)
    assert LatticeAccount(**stored) == account == pickle.loads(pickle.dumps(account))
    assert hash(LatticeAccount(**stored)) == hash(account)
    assert isinstance(account, Account)
    assert account.analysis == "exact"


def test_numbers_of_other_types_become_plain():
    account = replace(ACCOUNT, epsilon=1, bits=np.int64(40), coordinates=[np.int32(400), 24, 400])
    assert account == ACCOUNT
    assert [type(value) for value in (account.epsilon, account.bits, account.coordinates[0])] == [float, int, int]


below = lambda x: math.nextafter(x, 0.0)  # noqa: E731


@pytest.mark.parametrize(
    "change",
    [
        {"mu": ACCOUNT.mu * (1 - 1e-12)},  # the parts exceed it
        {"mu": ACCOUNT.mu * 1.001},  # δ is exceeded
        {"noise_mu": (*ACCOUNT.noise_mu[:2], ACCOUNT.noise_mu[2] * (1 + 1e-12))},
        {"noise_mu": (*ACCOUNT.noise_mu, 1e-6), "coordinates": (400, 24, 400, 1)},
        {"slack": below(ACCOUNT.slack)},
        {"slack": 1e-9},
        {"bits": 39},
        {"bits": 60},  # beyond 2**57 steps
        {"coordinates": (400, 25, 400)},
        {"epsilon": 0.999},
        {"delta": 0.99e-9},
        {"neighbours": "replace-one"},
    ],
)
def test_claims_that_are_not_true_are_refused(change):
    with pytest.raises(NotPrivateError):
        replace(ACCOUNT, **change)


def test_noise_below_the_proved_bound_is_refused_whatever_slack_is_claimed():
    def coarse(mu):  # off the diagonal σ = 4/(√2 μ)
        return LatticeAccount(1.0, 0.999, "add-remove", mu, (mu,), 2, 0.02, (1,))

    assert coarse(3.8).spent_delta < 0.999  # σ = 0.744
    with pytest.raises(NotPrivateError, match="discretisation with bits=2 costs more"):
        coarse(3.83)  # σ = 0.738


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": "1"}, ArgumentTypeError, "epsilon must be a real number"),
        ({"epsilon": 0.0}, ArgumentError, "epsilon must be a finite number > 0"),
        ({"epsilon": 701.0}, ArgumentError, "epsilon=701 is too large"),
        ({"delta": 1.0}, ArgumentError, "delta must lie in"),
        ({"mu": True}, ArgumentTypeError, "mu must be a real number"),
        ({"mu": math.nan}, ArgumentError, "mu must be a real number, got nan"),
        ({"slack": -1e-30}, ArgumentError, "slack must be a finite number ≥ 0"),
        ({"bits": 40.0}, ArgumentTypeError, "bits must be an integer"),
        ({"bits": 101}, ArgumentError, "bits must be from 2 to 100, got 101"),
        ({"noise_mu": 0.1}, ArgumentTypeError, "noise_mu must be a tuple or a list, got float"),
        ({"noise_mu": (0.1, "a", 0.1)}, ArgumentTypeError, "noise_mu must be a real number"),
        ({"noise_mu": (0.1,)}, ArgumentError, "one entry for each release"),
        ({"noise_mu": (), "coordinates": ()}, ArgumentError, "one entry for each release"),
        ({"coordinates": "abc"}, ArgumentTypeError, "coordinates must be a tuple or a list, got str"),
        ({"coordinates": (400, 0, 400)}, ArgumentError, "coordinates must be an integer ≥ 1, got 0"),
        ({"neighbours": "add"}, ArgumentError, "neighbours must be one of"),
    ],
)
def test_values_that_make_no_sense(change, error, words):
    with pytest.raises(error, match=words):
        replace(ACCOUNT, **change)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 3.0, 20.0])
def test_gives_is_the_curve_of_these_releases_alone(epsilon):
    spent = lattice_delta(epsilon, mu=ACCOUNT.mu, slack=ACCOUNT.slack)
    assert ACCOUNT.gives(epsilon, spent)
    assert not ACCOUNT.gives(epsilon, spent * (1 - 1e-9))


def test_only_the_budget_of_the_account_holds():
    assert ACCOUNT.holds(1.0, 1e-9, "add-remove")
    for claim in (
        (1.0, 1e-9, "replace-one"),
        (0.99, 1e-9, "add-remove"),
        (1.01, 1e-9, "add-remove"),
        (1.0, 1e-8, "add-remove"),
    ):
        assert not ACCOUNT.holds(*claim)
    small = replace(ACCOUNT, mu=ACCOUNT.mu / 2, noise_mu=[part / 2 for part in ACCOUNT.noise_mu])  # as from a ledger
    assert small.gives(0.5, 1e-9)
    assert not small.holds(0.5, 1e-9, "add-remove")


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 0.001, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("mu", [1e-4, 0.2, 3.0])
def test_hit_rate_is_the_power_curve_rounded_up(mu, alpha):
    account = account_within(9.0, 0.9, mu=mu, allowed=1e-9, shares=["1"], coordinates=[400], neighbours="add-remove")
    with mp.workdps(60):
        level = mp.mpf(alpha) + mp.mpf(account.slack)
        quantile = mp.findroot(lambda x: mp.log(mp.ncdf(x) / level), stats.norm.ppf(float(level)))
        exact = mp.ncdf(account.mu + quantile) + mp.mpf(account.slack)
    assert min(exact, 1) <= account.attack_power(alpha) <= exact * (1 + mp.mpf(10) ** -9)
    assert alpha < account.attack_power(alpha) <= 1


def test_hit_rate_on_a_coarse_lattice_is_an_upper_bound():
    """The best test between two shifted discrete Gaussians, thresholds summed out exactly."""
    mu, bits = 1.0, 2
    account = LatticeAccount(3.0, 0.5, "add-remove", mu, (mu,), bits, round_up(total_slack([mu], bits, [1])), (1,))
    sigma, z = diagonal_sigma(mu, bits), np.arange(-60, 61)
    without, present = (np.exp(-((z - centre) ** 2) / (2 * sigma**2)) for centre in (0, 2**bits))
    without, present = without / without.sum(), present / present.sum()
    for threshold in range(-8, 20):
        alpha, power = without[z >= threshold].sum(), present[z >= threshold].sum()
        assert power <= account.attack_power(alpha)
        assert account.attack_power(alpha) - power < 0.03
    for alpha in (0.0, 1.0, -0.1):
        with pytest.raises(ArgumentError, match="false_positive_rate must lie in"):
            account.attack_power(alpha)


@pytest.mark.parametrize("allowed", [1e-12, 1e-22, 1e-30])
def test_the_slack_recorded_is_within_what_is_allowed(allowed):
    account = account_within(
        1.0, 1e-9, mu=0.1, allowed=allowed, shares=["1"], coordinates=[400], neighbours="add-remove"
    )
    assert slack_delta(1.0, account.slack) <= allowed
    assert slack_delta(1.0, account.slack) >= (1 + math.e) * account.slack
    assert account.bits == 40 or slack_delta(1.0, 4 * account.slack) > allowed  # refined no further than needed


def test_impossible_requests_are_refused():
    with pytest.raises(BudgetUnmetError, match="epsilon=30 is too large"):
        lattice_account(30.0, 1e-30, shares=["1"], coordinates=[500**2])
    with pytest.raises(BudgetUnmetError, match="epsilon=701 is too large"):
        lattice_delta(701.0, mu=1.0, slack=1e-300)
    with pytest.raises(ValueError, match="one entry for each release"):
        lattice_account(1.0, 1e-9, shares=["1"], coordinates=[4, 4])


def test_slack_raises_delta():
    plain = gaussian_delta(1.0, mu=0.2)
    assert lattice_delta(1.0, mu=0.2, slack=1e-12) == pytest.approx(plain + (1 + math.e) * 1e-12, rel=1e-9)
    assert lattice_delta(1.0, mu=0.2, slack=1.0) == 1.0


def test_account_covers_two_adaptive_releases_summed_out_exactly():
    """Two counts on a coarse lattice; the second is released negated if the first output is odd."""
    epsilon, sigma = 1.0, 0.8
    z = np.arange(-40, 41)

    def law(centre: int) -> np.ndarray:
        weights = np.exp(-((z - centre) ** 2) / (2 * sigma**2))
        return weights / weights.sum()

    odd = (z % 2 == 1)[:, None]
    joint = [law(c)[:, None] * np.where(odd, law(-c)[None], law(c)[None]) for c in (0, 1)]
    exact = max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in (joint, joint[::-1]))
    account = lattice_delta(epsilon, mu=math.sqrt(2) / sigma, slack=2 * 0.021 / sigma**2)
    assert 0.5 * account < exact <= account
