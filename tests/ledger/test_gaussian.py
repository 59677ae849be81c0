"""Ledgers in μ: what they reserve, what a release takes, and adversaries who choose μ after what they have seen."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, interpolate, stats

from gaussmix import BudgetExceededError, Ledger, accounting
from gaussmix.accounting.discrete import diagonal_sigma, lattice_account, lattice_delta, total_slack
from gaussmix.accounting.divergence import gaussian_hockey_stick
from gaussmix.accounting.gaussian import gaussian_delta_up
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetUnmetError
from gaussmix.ledger.composition import Entry, checked_budget, part_of, reserve, room_left

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RELEASE = {"shares": ["0.1", "0.02", "0.88"], "coordinates": [30**2, 24, 30**2]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.ledger"


# ---------------------------------------------------------------------------------------------------------------
# What is reserved
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)])
def test_mu_is_the_largest_that_meets_the_budget(path, epsilon, delta, neighbours):
    reserved = Ledger(path, epsilon=epsilon, delta=delta, neighbours=neighbours).reservation
    assert reserved.releases == 1
    assert reserved.delta_slack == pytest.approx(delta / 1000, rel=1e-15)
    spent = Fraction(gaussian_delta_up(epsilon, reserved.mu)) + Fraction(reserved.delta_slack)
    assert spent <= Fraction(reserved.delta_reserved) <= Fraction(delta)
    assert accounting.gaussian_delta(epsilon, mu=reserved.mu * (1 + 1e-9)) > delta - reserved.delta_slack


def test_mu_and_failure_delta_may_be_chosen(path):
    reserved = Ledger(path, **BUDGET, mu=0.1, delta_slack=1e-7, releases=3).reservation
    assert (reserved.mu, reserved.delta_slack, reserved.releases) == (0.1, 1e-7, 3)
    assert reserved.delta_reserved < 1.1e-7  # less than the budget: what is left of it is lost


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"mu": 0.24}, BudgetUnmetError, r"mu must be at most 0\.2366.* epsilon=1\.0 and delta=1e-06 .* got 0\.24"),
        ({"mu": 0.0}, ArgumentError, r"mu must be a finite number > 0, got 0\.0"),
        ({"delta_slack": 1e-6}, ArgumentError, "delta_slack must be less than delta=1e-06"),
        ({"releases": 0}, ArgumentError, "releases must be an integer ≥ 1, got 0"),
        ({"releases": True}, ArgumentTypeError, "releases must be an integer ≥ 1, got True"),
    ],
)
def test_bad_budget(path, change, error, words):
    with pytest.raises(error, match=words):
        Ledger(path, **BUDGET, **change)
    assert list(path.parent.iterdir()) == []


def test_reopening(path):
    ledger = Ledger(path, **BUDGET, releases=4)
    again = Ledger(path, **BUDGET, releases=4)
    assert again.reservation == ledger.reservation == Ledger.open(path).reservation
    assert eval(repr(ledger)).reservation == ledger.reservation
    with pytest.raises(ArgumentError, match="releases is 4, not 1"):
        Ledger(path, **BUDGET)
    with pytest.raises(ArgumentError, match=r"mu is 0\.23.*, not 0\.1"):
        Ledger(path, **BUDGET, mu=0.1, releases=4)


def test_another_machines_last_digits_of_mu_are_no_other_arguments(path, monkeypatch):
    ledger = Ledger(path, **BUDGET)
    nearby = ledger.reservation.mu * (1 - 1e-12)
    monkeypatch.setattr("gaussmix.ledger.composition.gaussian_mu", lambda epsilon, delta: nearby)
    assert Ledger(path, **BUDGET).reservation == ledger.reservation
    with pytest.raises(ArgumentError, match="created with other arguments"):
        Ledger(path, **BUDGET, mu=nearby)  # asked for by name


# ---------------------------------------------------------------------------------------------------------------
# What a release takes
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("releases", [1, 2, 3, 7, 10])
def test_the_planned_number_of_releases_fits_and_no_more(path, releases, neighbours):
    ledger = Ledger(path, **BUDGET, neighbours=neighbours, releases=releases)
    for number in range(releases):
        room = ledger.remaining()
        assert room.releases_left == releases - number
        account = ledger.lattice_account(**RELEASE)
        assert ledger.remaining() == room  # spends nothing by itself
        assert (account.epsilon, account.delta, account.neighbours) == (1.0, 1e-6, neighbours)
        assert account.mu**2 * releases == pytest.approx(ledger.reservation.mu**2, rel=1e-14)
        assert account.holds(1.0, 1e-6, neighbours)
        entry = ledger.spend_account(account, note=f"n{number}", file="x.parquet")
        assert (entry.mu, entry.note) == (account.mu, f"n{number}")
        assert entry.file.endswith("x.parquet")
        assert (
            (1 + math.e) * account.slack <= entry.delta_slack <= part_of(ledger.reservation, Fraction(1, releases))[1]
        )
        assert entry.delta_slack == pytest.approx((1 + math.e) * account.slack, rel=1e-12)
    assert ledger.remaining().releases_left == 0
    with pytest.raises(BudgetExceededError, match=r"0 more releases of the planned size\. Nothing was recorded"):
        ledger.lattice_account(**RELEASE)
    with pytest.raises(BudgetExceededError, match="The release exceeds the remaining budget: it needs mu="):
        ledger.spend_account(account)
    assert len(ledger.entries()) == releases


def test_one_release_through_a_ledger_has_the_noise_of_one_without(path):
    through = Ledger(path, **BUDGET).lattice_account(**RELEASE)
    alone = lattice_account(1.0, 1e-6, **RELEASE)
    assert through.mu == pytest.approx(alone.mu, rel=1e-12)
    assert through.noise_mu == pytest.approx(alone.noise_mu, rel=1e-12)
    assert (through.bits, through.coordinates) == (alone.bits, alone.coordinates)


def test_a_release_may_take_another_share(path):
    ledger = Ledger(path, **BUDGET, releases=2)
    mu = ledger.reservation.mu
    small = ledger.lattice_account(**RELEASE, share="0.1")
    assert small.mu == pytest.approx(mu * math.sqrt(0.1), rel=1e-14)
    ledger.spend_account(small)
    assert ledger.remaining().releases_left == 1
    ledger.spend_account(ledger.lattice_account(**RELEASE))
    with pytest.raises(BudgetExceededError, match=r"It needs 0\.5 of the ledger's mu²; 0\.4 remains\. Further models"):
        ledger.lattice_account(**RELEASE)
    ledger.spend_account(ledger.lattice_account(**RELEASE, share=Fraction(2, 5)))
    assert ledger.remaining().mu < 1e-7
    for share, error, words in [
        ("0", ArgumentError, r"share must lie in \(0, 1\], got '0'"),
        (1.0001, ArgumentError, r"share must lie in \(0, 1\]"),
        ("all", ArgumentError, "A share must be a number such as"),
        (True, ArgumentTypeError, "A share must be a string, a Fraction or a number, got bool"),
    ]:
        with pytest.raises(error, match=words):
            ledger.lattice_account(**RELEASE, share=share)


@settings(max_examples=60)
@given(st.lists(st.fractions(0, 1).filter(bool), min_size=1, max_size=12), st.integers(1, 40))
def test_shares_that_add_up_to_one_fit_and_the_budget_is_never_exceeded(shares, releases):
    """On the arithmetic alone: parts are rounded down, so that any shares that fit as fractions fit as doubles."""
    total = sum(shares)
    reserved = reserve(checked_budget(**BUDGET, **NOTHING, releases=releases, privacy_unit=""))
    entries = []
    for share in shares:
        mu, failure = part_of(reserved, share / max(total, 1))
        entries.append(Entry(1, None, mu, failure, ""))
        room_left(reserved, entries)
    assert sum(Fraction(entry.mu) ** 2 for entry in entries) <= Fraction(reserved.mu) ** 2
    assert sum(Fraction(entry.delta_slack) for entry in entries) <= Fraction(reserved.delta_slack)


NOTHING = {"mu": None, "delta_slack": None, "neighbours": "add-remove"}


def test_the_lattice_is_refined_where_delta_0_is_small_and_the_release_refused_where_there_is_none(path, tmp_path):
    scarce = Ledger(path, **BUDGET, delta_slack=1e-25)
    account = scarce.lattice_account(**RELEASE)
    assert account.bits > 40
    assert scarce.spend_account(account).delta_slack <= 1e-25
    without = Ledger(tmp_path / "without", **BUDGET, delta_slack=0.0)
    assert without.remaining().releases_left == 0
    with pytest.raises(BudgetExceededError, match="needs delta_slack"):
        without.lattice_account(**RELEASE)
    with pytest.raises(BudgetUnmetError, match="reserved for discretisation, 1e-60, is too small"):
        Ledger(tmp_path / "none", **BUDGET, delta_slack=1e-60).lattice_account(**RELEASE)


def test_accounts_made_elsewhere_cost_what_they_are(path):
    """A standing account's slack counts by the ledger's ε, its μ as it is; other neighbours are refused."""
    ledger = Ledger(path, epsilon=3.0, delta=1e-6, releases=2)
    alone = lattice_account(0.5, 1e-7, **RELEASE)
    entry = ledger.spend_account(alone)
    assert entry.mu == alone.mu
    assert entry.delta_slack == pytest.approx((1 + math.exp(3)) * alone.slack, rel=1e-12)
    other = lattice_account(0.5, 1e-7, **RELEASE, neighbours="replace-one")
    with pytest.raises(ArgumentError, match="must be 'add-remove', as in the ledger, got 'replace-one'"):
        ledger.spend_account(other)
    slack = replace(alone, delta=2e-7, slack=1e-9)
    with pytest.raises(BudgetExceededError, match=r"it needs delta_slack=2.*e-08, but 9.*e-10 remains"):
        ledger.spend_account(slack)
    assert len(ledger.entries()) == 1


def test_room_in_words(path):
    ledger = Ledger(path, **BUDGET, releases=2)
    assert str(ledger.remaining()).endswith(": 2 more releases of the planned size")
    ledger.spend_account(ledger.lattice_account(**RELEASE))
    assert str(ledger.remaining()).endswith(": 1 more release of the planned size")


# ---------------------------------------------------------------------------------------------------------------
# Adversaries who choose μ on the way. δ of a transcript is E[δ of what follows, at ε less the loss so far], over the
# loss L ~ N(μ₁²/2, μ₁²) of the first release under the first table; the direction does not matter, the pair being
# symmetric.
EPSILON = 1.0


def after_first(first, second, epsilon=EPSILON):
    """δ of a release of μ = ``first`` followed by one of μ = ``second(loss)``, by quadrature in the loss."""

    def integrand(z):
        loss = first**2 / 2 + first * z
        mu = second(loss)
        rest = gaussian_hockey_stick(epsilon - loss, mu) if mu > 0 else max(-math.expm1(epsilon - loss), 0.0)
        return float(rest) * stats.norm.pdf(z)

    turns = [
        (loss - first**2 / 2) / first for loss in (0.0, first**2 / 2, epsilon / 2, epsilon)
    ]  # where choices change
    return integrate.quad(integrand, -10, 14, points=sorted(turns), limit=400, epsabs=0, epsrel=1e-8)[0]


STRATEGIES = {
    "spend all": lambda loss, left: left,
    "stop when ahead": lambda loss, left: 0.0 if loss > 0 else left,
    "stop when behind": lambda loss, left: left if loss > 0 else 0.0,
    "only near the edge": lambda loss, left: left if loss > EPSILON / 2 else left / 3,
    "stop past the edge": lambda loss, left: 0.0 if loss > EPSILON else left,
    "by the loss": lambda loss, left: left * min(max(loss / EPSILON, 0.0), 1.0),
    "against the loss": lambda loss, left: left * (1 - min(max(loss / EPSILON, 0.0), 1.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_in_two_rounds_exceeds_the_claim(path, strategy, share):
    reserved = Ledger(path, epsilon=EPSILON, delta=1e-4).reservation
    first, left = part_of(reserved, Fraction(share))[0], part_of(reserved, 1 - Fraction(share))[0]
    reached = after_first(first, lambda loss: STRATEGIES[strategy](loss, left))
    claim = accounting.gaussian_delta(EPSILON, mu=reserved.mu)
    assert reached <= claim * (1 + 1e-7)  # quadrature
    if strategy == "spend all":
        assert reached == pytest.approx(claim, rel=1e-7)  # and it is reached: the check has power
    else:
        assert reached < claim


def test_a_cap_on_the_average_would_not_do():
    """Power: Σμ² ≤ μ² on average but not surely, more where the first loss was large, exceeds δ by far."""
    mu = accounting.gaussian_mu(EPSILON, 1e-4)
    first = mu / math.sqrt(2)
    half = first**2 / 2  # loss is above it half of the time
    reached = after_first(first, lambda loss: math.sqrt(2) * first if loss > half else 0.0)
    assert reached > 1.5 * 1e-4


def test_no_adversary_exceeds_delta_through_the_ledger(path):
    """Four rounds; in each the adversary sees all losses so far and takes the best share that the ledger lets pass."""
    ledger = Ledger(path, epsilon=EPSILON, delta=1e-4, releases=4)
    reserved = ledger.reservation
    unit = part_of(reserved, Fraction(1, 4))[0]
    grid = np.linspace(-3, 4, 1401)
    z, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def then(mu, value):
        log_value = interpolate.PchipInterpolator(grid, np.log(np.maximum(value, 1e-300)))
        losses = mu**2 / 2 + mu * z
        return np.exp(log_value(np.clip(np.subtract.outer(grid, losses), grid[0], grid[-1]))) @ weights

    stop = np.maximum(-np.expm1(np.minimum(grid, 0)), 1e-300)
    values = {0: stop}  # by quarters of μ² that are left
    for left in range(1, 5):
        moves = [np.maximum(gaussian_hockey_stick(grid, unit * math.sqrt(left)), 1e-300)]
        moves += [then(unit * math.sqrt(used), values[left - used]) for used in range(1, left)]
        values[left] = np.max([stop, *moves], axis=0)
    (reached,) = values[4][np.isclose(grid, EPSILON)]
    claim = accounting.gaussian_delta(EPSILON, mu=reserved.mu)
    assert reached == pytest.approx(claim, rel=1e-4)
    assert reached <= claim * (1 + 1e-4)  # interpolation
    for used in (1, 1, 2):  # the same moves, through the file
        ledger.spend(mu=part_of(reserved, Fraction(used, 4))[0])
    with pytest.raises(BudgetExceededError):
        ledger.spend(mu=unit)


@pytest.mark.parametrize("strategy", ["all", "stop when large", "stop when small", "spread"])
def test_adaptive_discrete_noise_is_within_the_claim_summed_out_exactly(strategy):
    """Counts on a coarse lattice: the second release's σ depends on the first output; every output is summed over."""
    mu, bits = 1.2, 2
    first = mu * math.sqrt(0.5)

    def second(output):
        large = output >= 2 ** (bits - 1)
        spent = {"all": True, "stop when large": not large, "stop when small": large, "spread": True}[strategy]
        return first * (0.6 if strategy == "spread" and output % 2 else 1.0) if spent else None

    reach = np.arange(-80, 85)

    def law(mu_i, centre):
        sigma = diagonal_sigma(mu_i, bits)
        weights = np.exp(-((reach - centre) ** 2) / (2 * sigma**2))
        return weights / weights.sum()

    def transcript(centre):
        rows = []
        for output, probability in zip(reach, law(first, centre), strict=True):
            mu_2 = second(output)
            rows.append(probability * (law(mu_2, centre) if mu_2 else np.eye(1, len(reach))[0]))
        return np.array(rows)

    without, present = transcript(0), transcript(2**bits)
    slack = 2 * float(total_slack([first], bits, [1]))  # the most on any path
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        claim = lattice_delta(epsilon, mu=mu, slack=slack)
        reached = max(
            np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((present, without), (without, present))
        )
        assert reached <= claim
        if strategy == "all":
            assert reached > 0.9 * (claim - (1 + math.exp(epsilon)) * slack)
