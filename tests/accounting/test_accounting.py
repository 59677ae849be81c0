"""The public accounts: published numbers, inverses, composition, simulation, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from gaussmix import accounting
from gaussmix.accounting.mixing import directions
from gaussmix.accounting.numerics import log_excess, smallest_safe

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accounting.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["epsilon"], ids=lambda row: f"{row['analysis']}-{row['gamma']:g}")
def test_epsilon_has_the_published_values(row):
    found = accounting.epsilon(
        GOLDEN["delta"],
        sketch_size=GOLDEN["sketch_size"],
        gamma=row["gamma"],
        bound_holds_for="larger",
        analysis=row["analysis"],
    )
    assert found == pytest.approx(row["epsilon"], rel=row["rel"])


@settings(max_examples=60)
@given(
    k=st.integers(1, 10**5),
    log_gamma=st.floats(0.1, 15),
    log_delta=st.floats(-60, -0.7),
    holds=st.sampled_from(["both", "larger"]),
)
def test_epsilon_inverts_delta_from_above(k, log_gamma, log_delta, holds):
    gamma, delta = math.exp(log_gamma), math.exp(log_delta)
    epsilon = accounting.epsilon(delta, sketch_size=k, gamma=gamma, bound_holds_for=holds)
    assert accounting.delta(epsilon, sketch_size=k, gamma=gamma, bound_holds_for=holds) <= delta
    if epsilon > 1e-6:
        less = epsilon * (1 - 1e-6)
        assert accounting.delta(less, sketch_size=k, gamma=gamma, bound_holds_for=holds) > delta


@settings(max_examples=60)
@given(k=st.integers(1, 10**5), log_gamma=st.floats(0.1, 15), log_delta=st.floats(-60, -0.7))
def test_exact_is_at_most_every_published_bound(k, log_gamma, log_delta):
    gamma, delta = math.exp(log_gamma), math.exp(log_delta)
    exact, renyi, tcdp = (
        accounting.epsilon(delta, sketch_size=k, gamma=gamma, bound_holds_for="larger", analysis=analysis)
        for analysis in ("exact", "renyi", "tcdp")
    )
    assert exact <= renyi * (1 + 1e-9) <= tcdp * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("k", [1, 57, 2500])
@pytest.mark.parametrize("gamma", [1.01, 2.0, 50.0, 1e4, 1e8])
def test_rdp_against_60_digits(k, gamma):
    for order in (1 + 1e-6, 1 + (gamma - 1) / 3, gamma - (gamma - 1) / 1e3):
        found = accounting.rdp(order, sketch_size=k, gamma=gamma)
        assert found == pytest.approx(float(reference.rdp(order, k, gamma)), rel=1e-11)
    assert accounting.rdp(gamma, sketch_size=k, gamma=gamma) == math.inf


@pytest.mark.parametrize(("k", "gamma", "delta"), [(150, 100, 1e-8), (57, 5, 1e-5), (10, 1e8, 1e-12), (2500, 40, 1e-3)])
def test_renyi_epsilon_against_40_digits(k, gamma, delta):
    found = accounting.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi")
    assert found == pytest.approx(float(reference.renyi_epsilon(delta, k, gamma)), rel=1e-9)
    assert accounting.delta(found, sketch_size=k, gamma=gamma, analysis="renyi") == pytest.approx(delta, rel=1e-6)


def test_renyi_conversion_is_clipped_at_zero():
    assert accounting.epsilon(0.01, sketch_size=57, gamma=1000, analysis="renyi") == 0.0


def test_tcdp_says_nothing_below_five_halves():
    assert accounting.epsilon(1e-6, sketch_size=57, gamma=2.5, analysis="tcdp") == math.inf


def test_tcdp_uses_the_second_case_outside_the_regime_of_the_first():
    # k = 150, δ = 1e-8 needs k ≥ 12.5 log(1/δ) = 230 for the short formula, which is then below the Rényi value.
    rho = 150 / (2 * 3.0**2)
    short = rho + 2 * math.sqrt(rho * math.log(1e8))
    renyi = accounting.epsilon(1e-8, sketch_size=150, gamma=3.0, analysis="renyi")
    assert short < renyi < accounting.epsilon(1e-8, sketch_size=150, gamma=3.0, analysis="tcdp")


def test_theorem_1_is_charged_exactly_where_its_gaussian_bound_fails():
    delta, k, gamma = 1 / 404**2, 57, 3.07
    eta = gamma / math.sqrt(k)
    classical = math.sqrt(2 * math.log(3.75 / delta)) / eta
    exact = accounting.gaussian_epsilon(delta / 3, mu=1 / eta)
    assert classical < exact  # the printed bound is too small here
    sketch = accounting.epsilon(delta / 3, sketch_size=k, gamma=gamma, analysis="renyi")
    assert accounting.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=eta) == pytest.approx(exact + sketch)
    assert exact + sketch == pytest.approx(32.7, abs=0.1)


@pytest.mark.parametrize(("k", "gamma"), [(1, 1.05), (250, 1.001), (10_000, 2.0)])
def test_sheffets_formula_is_not_believed_where_it_fails(k, gamma):
    formula = 2 / gamma * (math.sqrt(2 * k * math.log(4e6)) + math.log(4e6))
    exact = accounting.epsilon(1e-6, sketch_size=k, gamma=gamma, bound_holds_for="larger")
    assert formula < exact
    assert accounting.epsilon(1e-6, sketch_size=k, gamma=gamma, analysis="sheffet") == exact


@pytest.mark.parametrize(
    ("epsilon", "k", "gamma"),
    [(5.436850302254053e-10, 13, 931968327011.3672), (9.768321675511929e-11, 22, 719739888172.6578), (0.3, 57, 60.0)],
)
def test_renyi_delta_is_rounded_up(epsilon, k, gamma):
    """The minimiser must not profit from rounding: never below the minimum over orders at 60 digits."""
    found = accounting.delta(epsilon, sketch_size=k, gamma=gamma, analysis="renyi")
    exact = reference.renyi_delta(epsilon, k, gamma)
    assert exact <= found <= exact * (1 + 1e-6)


# -------------------------------------------------------------------------------------------------- composition
def test_wide_gaussians_are_resolved_where_they_turn():
    """μ = 1000 beside a strong sketch: the curve turns at ε = μ²/2 over a width of μ."""
    found = accounting.delta(851880.3492356576, sketch_size=50, gamma=1e-4, mu=1000.0)
    assert found == pytest.approx(0.0300209, rel=1e-5)  # mpmath
    curve = accounting.delta(np.linspace(8.3e5, 9e5, 100), sketch_size=50, gamma=1e-4, mu=1000.0)
    assert np.all(np.diff(curve) < 0)


def test_two_sketches_are_one_of_twice_the_rows():
    """The loss of two independent releases is the sum of theirs: degrees of freedom add."""
    rng = np.random.default_rng(0)
    k, gamma, epsilon, draws = 40, 20.0, 0.7, 400_000
    t = 1 / (1 + gamma)
    losses = k * np.log1p(-t) + t / (2 * (1 - t)) * (rng.chisquare(k, draws) + rng.chisquare(k, draws))
    hits = np.maximum(-np.expm1(epsilon - losses), 0)
    formula = accounting.delta(epsilon, sketch_size=2 * k, gamma=gamma)
    assert abs(hits.mean() - formula) < 5 * hits.std() / math.sqrt(draws)
    assert abs(
        hits.mean() - accounting.delta(epsilon, sketch_size=int(2.2 * k), gamma=gamma)
    ) > 5 * hits.std() / math.sqrt(draws)


def test_composition_with_gaussians_lies_between_the_parts_and_their_sum():
    sketch = accounting.epsilon(1e-7, sketch_size=250, gamma=60)
    gauss = accounting.gaussian_epsilon(1e-7, mu=0.2)
    both = accounting.epsilon(2e-7, sketch_size=250, gamma=60, mu=0.2)
    assert max(sketch, gauss) < both < sketch + gauss
    assert accounting.delta(both, sketch_size=250, gamma=60, mu=0.2) <= 2e-7


def test_gaussians_compose_by_the_root_of_the_sum_of_squares():
    one = accounting.delta(1.0, sketch_size=30, gamma=20, mu=math.hypot(0.3, 0.4))
    assert one == accounting.delta(1.0, sketch_size=30, gamma=20, mu=0.5)
    assert accounting.delta(0.5, sketch_size=30, gamma=math.inf, mu=0.5) == accounting.gaussian_delta(0.5, mu=0.5)


@pytest.mark.parametrize("k", [57, 250, 2500])
def test_replacing_a_row_costs_less_than_group_privacy(k):
    """1.17 to 1.37 times the γ of add-remove in place of the group bound's 2."""
    ratios = {57: (1.17, 1.20), 250: (1.27, 1.29), 2500: (1.36, 1.37)}
    gamma = 60.0 if k == 57 else 150.0
    epsilon = accounting.epsilon(1e-6, sketch_size=k, gamma=gamma)
    low, high = ratios[k]
    assert accounting.delta(epsilon, sketch_size=k, gamma=gamma * (low - 0.01), neighbours="replace-one") > 1e-6
    assert accounting.delta(epsilon, sketch_size=k, gamma=gamma * (high + 0.01), neighbours="replace-one") < 1e-6


def test_replace_one_with_a_bound_for_one_table_is_the_worse_of_both_orders():
    one_sided = accounting.delta(1.0, sketch_size=20, gamma=15, bound_holds_for="larger", neighbours="replace-one")
    assert one_sided > accounting.delta(1.0, sketch_size=20, gamma=15, neighbours="replace-one")
    assert one_sided < accounting.delta(1.0, sketch_size=20, gamma=14, neighbours="replace-one")


@pytest.mark.slow
def test_privacy_loss_distribution_is_pessimistic_and_composes_with_dp_sgd():
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.pld import privacy_loss_distribution as pld

    ours = accounting.privacy_loss_distribution(sketch_size=150, gamma=100)
    exact = accounting.epsilon(1e-8, sketch_size=150, gamma=100)
    assert exact <= ours.get_epsilon_for_delta(1e-8) <= exact + 1e-6
    ten = accounting.epsilon(1e-8, sketch_size=1500, gamma=100)
    assert ten <= ours.self_compose(10).get_epsilon_for_delta(1e-8) <= ten + 1e-5

    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.1)), 1000)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event)
    sgd = accountant.get_epsilon(1e-8)
    steps = pld.from_gaussian_mechanism(1.1, value_discretization_interval=1e-4, sampling_prob=0.01).self_compose(1000)
    assert steps.get_epsilon_for_delta(1e-8) == pytest.approx(sgd, rel=1e-6)
    together = ours.compose(steps).get_epsilon_for_delta(1e-8)
    assert max(exact, sgd) < together < exact + sgd


def test_the_edge_of_a_bracket_and_of_the_curve_are_found():
    for k in (1, 5, 1000):
        delta = accounting.delta(1.0, sketch_size=k, gamma=8.0)
        found = smallest_safe(
            lambda g, k=k, d=delta: log_excess(accounting.delta(1.0, sketch_size=k, gamma=g), d),
            1.0,
            2.0,
            limit=1e6,
            log=True,
        )
        assert found == pytest.approx(8.0, rel=1e-12)
    almost = accounting.delta(0.0, sketch_size=1, gamma=50.0) * (1 - 1e-15)
    assert 0 < accounting.epsilon(almost, sketch_size=1, gamma=50.0) < 1e-14


@pytest.mark.parametrize("interval", [1e-3, 2e-2])
@pytest.mark.parametrize("extra", [{"mu": 0.3}, {"neighbours": "replace-one"}, {"bound_holds_for": "larger"}])
def test_privacy_loss_distribution_of_other_accounts(extra, interval):
    pytest.importorskip("dp_accounting")
    ours = accounting.privacy_loss_distribution(sketch_size=60, gamma=30, interval=interval, **extra)
    exact = accounting.epsilon(1e-6, sketch_size=60, gamma=30, **extra)
    assert exact <= ours.get_epsilon_for_delta(1e-6) <= exact + interval


# --------------------------------------------------------------------------------------------------- simulation
FALSE_ALARM_SIGMAS = 5.5  # chance below 4e-8 that one correct comparison fails


def log_density(sketches: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Log density of k × m matrices with independent N(0, covariance) rows, up to a constant."""
    inverse, (_, log_det) = np.linalg.inv(covariance), np.linalg.slogdet(covariance)
    k = sketches.shape[1]
    return -0.5 * np.einsum("nkm,ml,nkl->n", sketches, inverse, sketches) - 0.5 * k * log_det


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_full_matrix_mechanism_has_the_curve_of_its_leverage(seed):
    """S A + σ Ξ itself, both directions: the curve at the row's leverage, and not at one 10 % smaller."""
    rng = np.random.default_rng(seed)
    n, m, k, sigma, draws = 6, 3, int(rng.integers(2, 8)), rng.uniform(0.5, 2), 150_000
    table = rng.uniform(-1, 1, (n, m))
    without = table.copy()
    without[0] = 0
    covariances = [a.T @ a + sigma**2 * np.eye(m) for a in (table, without)]
    t = table[0] @ np.linalg.solve(covariances[0], table[0])
    for direction, (true, other) in {"remove": (0, 1), "add": (1, 0)}.items():
        a = (table, without)[true]
        sketches = rng.standard_normal((draws, k, n)) @ a + sigma * rng.standard_normal((draws, k, m))
        losses = log_density(sketches, covariances[true]) - log_density(sketches, covariances[other])
        caught = False
        for epsilon in (-0.5, 0.0, 0.3, 1.0):
            hits = np.maximum(-np.expm1(epsilon - losses), 0)
            error = max(hits.std() / math.sqrt(draws), 1e-12)
            z = abs(hits.mean() - one_direction(epsilon, k, t, direction)) / error
            assert z < FALSE_ALARM_SIGMAS, (direction, epsilon)
            caught |= abs(hits.mean() - one_direction(epsilon, k, 0.9 * t, direction)) / error > FALSE_ALARM_SIGMAS
        assert caught


def one_direction(epsilon: float, k: int, t: float, direction: str) -> float:
    (remove,), (add,) = directions(k, 1 / t - 1, "both", "add-remove")
    from gaussmix.accounting.divergence import hockey_stick

    return float(hockey_stick(epsilon, remove if direction == "remove" else add))


@pytest.mark.parametrize("seed", range(4))
def test_no_replaced_row_exceeds_the_replace_one_curve(seed):
    """The pencil of two covariances, simulated through its two eigenvalues; attained by orthogonal rows."""
    rng = np.random.default_rng(seed)
    m, k, gamma, draws = 3, 5, 4.0, 200_000
    rest = rng.uniform(-0.3, 0.3, (4, m))
    base = rest.T @ rest + gamma * np.eye(m)
    rows = rng.standard_normal((2, m))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if seed == 0:  # the worst case
        base, rows = gamma * np.eye(m), np.eye(2, m)
    covariances = [base + np.outer(r, r) for r in rows]
    factor = np.linalg.cholesky(covariances[0])
    sketches = rng.standard_normal((draws, k, m)) @ factor.T
    losses = log_density(sketches, covariances[0]) - log_density(sketches, covariances[1])
    for epsilon in (-0.3, 0.0, 0.5):
        hits = np.maximum(-np.expm1(epsilon - losses), 0)
        error = hits.std() / math.sqrt(draws)
        bound = accounting.delta(epsilon, sketch_size=k, gamma=gamma, neighbours="replace-one")
        assert hits.mean() < bound + FALSE_ALARM_SIGMAS * error
        if seed == 0:
            assert abs(hits.mean() - bound) < FALSE_ALARM_SIGMAS * error
            too_small = accounting.delta(epsilon, sketch_size=k, gamma=1.1 * gamma, neighbours="replace-one")
            assert hits.mean() > too_small + FALSE_ALARM_SIGMAS * error


# --------------------------------------------------------------------------------------- limits, arrays, bad input
def test_limits():
    inf = math.inf
    assert accounting.epsilon(0.0, sketch_size=5, gamma=3) == inf
    assert accounting.epsilon(1.0, sketch_size=5, gamma=3) == 0.0
    assert accounting.epsilon(1e-6, sketch_size=5, gamma=inf) == 0.0
    assert accounting.delta(0.1, sketch_size=5, gamma=inf) == 0.0
    assert accounting.delta(inf, sketch_size=5, gamma=3) == 0.0
    assert accounting.delta(-inf, sketch_size=5, gamma=3) == 1.0
    assert accounting.delta(inf, sketch_size=5, gamma=3, mu=0.1) == 0.0
    assert accounting.gaussian_epsilon(0.0, mu=1.0) == inf
    assert accounting.gaussian_epsilon(0.5, mu=0.0) == 0.0
    assert accounting.theorem1_epsilon(0.5, sketch_size=5, gamma=inf, eta=inf) == 0.0
    assert accounting.epsilon(1e-5, sketch_size=10**9, gamma=1e-6) == inf  # above 1e9
    assert accounting.delta(1.0, sketch_size=5, gamma=1e-50) == 1.0
    assert accounting.delta([], sketch_size=[], gamma=2.0).shape == (0,)
    assert accounting.delta(0.0, sketch_size=5, gamma=2.0, mu=1e-310) >= accounting.delta(0.0, sketch_size=5, gamma=2.0)
    assert 0 < accounting.gaussian_delta(194.07578687296456, mu=4.998329637486598) < 1e-280
    for analysis in ("renyi", "tcdp", "sheffet"):
        assert accounting.epsilon(0.0, sketch_size=5, gamma=3, analysis=analysis) == inf
        assert accounting.epsilon(1e-6, sketch_size=5, gamma=inf, analysis=analysis) == 0.0


def test_arrays_broadcast():
    deltas = accounting.delta([0.1, 1.0], sketch_size=[[5], [50]], gamma=20.0)
    assert deltas.shape == (2, 2)
    assert deltas[1, 0] == accounting.delta(0.1, sketch_size=50, gamma=20.0)
    composed = accounting.delta([0.1, 1.0], sketch_size=[[5], [50]], gamma=20.0, mu=0.1)
    assert composed[1, 1] == pytest.approx(accounting.delta(1.0, sketch_size=50, gamma=20.0, mu=0.1), rel=1e-12)
    assert np.all(composed > deltas)
    assert accounting.epsilon([1e-3, 1e-6], sketch_size=5, gamma=20.0).shape == (2,)


NAN = math.nan
BAD = [
    (lambda: accounting.delta(NAN, sketch_size=5, gamma=3), ValueError, "epsilon must not contain nan"),
    (lambda: accounting.delta("1", sketch_size=5, gamma=3), TypeError, "epsilon must be a real number or an array"),
    (lambda: accounting.delta(1j, sketch_size=5, gamma=3), TypeError, "epsilon must be a real number"),
    (lambda: accounting.delta(1.0, sketch_size=2.5, gamma=3), TypeError, "sketch_size must be an integer"),
    (lambda: accounting.delta(1.0, sketch_size=math.inf, gamma=3), TypeError, "sketch_size must be an integer"),
    (lambda: accounting.delta(1.0, sketch_size=True, gamma=3), TypeError, "sketch_size must be an integer"),
    (lambda: accounting.delta(1.0, sketch_size=0, gamma=3), ValueError, "sketch_size must be an integer ≥ 1"),
    (lambda: accounting.delta(1.0, sketch_size=5, gamma=0), ValueError, "gamma must be a number > 0"),
    (lambda: accounting.delta(1.0, sketch_size=5, gamma=NAN), ValueError, "gamma must not contain nan"),
    (
        lambda: accounting.delta(1.0, sketch_size=5, gamma=1.0, bound_holds_for="larger"),
        ValueError,
        "gamma must be > 1",
    ),
    (
        lambda: accounting.delta(1.0, sketch_size=5, gamma=3, bound_holds_for="all"),
        ValueError,
        "bound_holds_for must be one of 'both'",
    ),
    (lambda: accounting.delta(1.0, sketch_size=5, gamma=3, neighbours="swap"), ValueError, "neighbours must be one of"),
    (lambda: accounting.delta(1.0, sketch_size=5, gamma=3, mu=-1), ValueError, "mu must be a finite number ≥ 0"),
    (lambda: accounting.delta([1, 2], sketch_size=[1, 2, 3], gamma=3), ValueError, "arrays of the same shape"),
    (lambda: accounting.epsilon(-0.1, sketch_size=5, gamma=3), ValueError, r"delta must lie in \[0, 1\]"),
    (lambda: accounting.epsilon(1.1, sketch_size=5, gamma=3), ValueError, r"delta must lie in \[0, 1\]"),
    (lambda: accounting.epsilon(NAN, sketch_size=5, gamma=3), ValueError, "delta must not contain nan"),
    (lambda: accounting.epsilon(0.1, sketch_size=5, gamma=3, analysis="zcdp"), ValueError, "analysis must be one of"),
    (
        lambda: accounting.epsilon(0.1, sketch_size=5, gamma=3, analysis="renyi", neighbours="replace-one"),
        ValueError,
        "Use analysis='exact'",
    ),
    (lambda: accounting.rdp(1.0, sketch_size=5, gamma=3), ValueError, "order must be a number > 1"),
    (lambda: accounting.gaussian_delta(1.0, mu=-1.0), ValueError, "mu must be a finite number ≥ 0"),
    (lambda: accounting.gaussian_mu(0.0, 1e-6), ValueError, "epsilon must be a finite number > 0"),
    (lambda: accounting.gaussian_mu(1e-12, 1e-300), ValueError, "Increase epsilon or delta"),
    (
        lambda: accounting.privacy_loss_distribution(sketch_size=5, gamma=1e-6, interval=1e-9),
        ValueError,
        "Choose a larger interval",
    ),
    (lambda: accounting.gaussian_mu(1.0, 1.0), ValueError, r"delta must lie in \(0, 1\)"),
    (lambda: accounting.theorem1_epsilon(0.1, sketch_size=5, gamma=3, eta=0.0), ValueError, "eta must be a number > 0"),
    (
        lambda: smallest_safe(lambda x: 1.0, 0.1, 1.0, limit=10.0),
        ValueError,
        "The budget cannot be met: the search reached its limit, 10",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_bad_input_says_the_argument_and_the_rule(call, error, words):
    with pytest.raises(error, match=words):
        call()
