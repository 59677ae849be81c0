"""The rule of passes: what it plans, that it never fails, that one row costs what is accounted, and that it pays."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from gaussmix.accounting.discrete import lattice_account
from gaussmix.data.gram import NormCounts
from gaussmix.data.transforms import ROW_UNIT, clip_norms, to_units
from gaussmix.releases import preconditioning
from gaussmix.releases.preconditioning import (
    BINS,
    LOST_WEIGHT,
    NoisyGram,
    Pool,
    Schedule,
    State,
    bin_edges,
    clean,
    first_state,
    goe,
    plan_histogram,
    plan_pass,
    read_tail,
    releases_of,
    update_state,
    whitenings,
)


def skewed_table(n: int, seed: int) -> np.ndarray:
    """Integer rows: correlated columns that use a part of their range, target, intercept last."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n, 2))
    X = np.clip((latent @ rng.standard_normal((2, 5)) + 0.2 * rng.standard_normal((n, 5))) / 12, -1, 1)
    y = np.clip(X @ rng.standard_normal(5) / 3 + 0.02 * rng.standard_normal(n), -1, 1)
    rows = np.c_[X, y, np.ones(n)]
    return np.trunc(rows / math.sqrt(rows.shape[1]) * ROW_UNIT * (1 - 1e-9))


def gram(rows: np.ndarray) -> np.ndarray:
    return rows.T @ rows / ROW_UNIT**2


def norm_counts(asked, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """The histograms that a plan asks for, without noise."""
    aggregator = NormCounts([metric.transform for metric in asked.metrics], asked.edges).aggregator(rows.shape[1])
    aggregator.add(rows)
    return tuple(counts.astype(float) for counts in aggregator.result().counts)


def clipped(request, rows: np.ndarray) -> np.ndarray:
    """What a pass sums the products of, in units of 2⁻²⁰."""
    z = np.trunc(request.metric.transform.product(rows) * to_units(request.metric.transform, request.clip))
    clip_norms(z, ROW_UNIT**2)
    return z


def run(rows: np.ndarray, mu: float, rng: np.random.Generator, schedule: Schedule | None = None):
    """All passes with simulated noise; the transcript of what was asked and answered."""
    shares = (schedule or Schedule()).shares()
    mus = tuple(mu * math.sqrt(share) for share in shares)
    m = rows.shape[1]
    matrix = gram(rows) + goe(m, rng) / (math.sqrt(2) * mus[0])
    state = first_state(matrix, mus, intercept=m - 1, intercept_energy=1 / m)
    transcript: list[tuple] = [(matrix,)]
    while not state.done:
        asked = plan_histogram(state)
        counts = tuple(exact + asked.noise * rng.standard_normal(BINS) for exact in norm_counts(asked, rows))
        request = plan_pass(state, asked, counts)
        matrix = gram(clipped(request, rows)) + goe(m, rng) / (math.sqrt(2) * request.mu)
        state = update_state(state, request, matrix)
        transcript.append((asked, counts, request, matrix))
    return state, transcript


def test_a_pass_has_the_lengths_of_a_metric_that_was_counted_and_half_its_products():
    """Noise is the same in all directions: only EᵀE decides its law."""
    _, transcript = run(skewed_table(4_000, 1), 2.0, np.random.default_rng(1))
    for asked, _, request, _ in transcript[1:]:
        E = request.metric.transform.matrix
        (counted,) = (metric.transform.matrix for metric in asked.metrics if metric.power == request.metric.power)
        assert np.allclose(E.T @ E, counted.T @ counted, rtol=1e-7, atol=1e-7 * np.abs(counted.T @ counted).max())
        assert (np.tril(E, -1) == 0).all()


def yes_no_table(n: int, seed: int) -> np.ndarray:
    """Integer rows that are all as long as the bounds allow: five columns of yes and no, and the intercept."""
    rng = np.random.default_rng(seed)
    share = np.array([0.5, 0.4, 0.3, 0.5, 0.35])
    rows = np.c_[np.where(rng.random((n, 5)) < share, 1.0, -1.0), np.ones(n)]
    return np.trunc(rows / math.sqrt(6) * ROW_UNIT * (1 - 1e-9))


def test_a_table_that_uses_its_bounds_stays_in_the_declared_metric():
    """No row is shortened there, no weight is brought to one, and whatever learned metric is no better."""
    rows = yes_no_table(20_000, 0)
    state, transcript = run(rows, 0.5, np.random.default_rng(2))
    for _, _, request, matrix in transcript[1:]:
        assert request.metric.declared
        assert (request.lost, request.kept_weight) == (0.0, 1.0)
        assert request.metric.transform.matrix == pytest.approx(np.eye(6), abs=1e-9)
        assert request.clip == pytest.approx(1.0, abs=1e-5)
        exact = gram(clipped(request, rows))
        assert exact == pytest.approx(gram(rows), rel=1e-5, abs=1.0)
        assert matrix == pytest.approx(exact, abs=6 / request.mu)
    assert len(transcript) == 4
    assert state.pool.members[-1].matrix == pytest.approx(gram(rows), abs=6 / transcript[-1][2].mu)


def test_a_table_that_uses_a_part_of_its_bounds_does_not():
    _, transcript = run(skewed_table(20_000, 0), 0.5, np.random.default_rng(2))
    assert not any(request.metric.declared for _, _, request, _ in transcript[1:])


# ---------------------------------------------------------------------------------------------------------------
# Budget and sensitivity
@pytest.mark.parametrize("passes", [("1",), ("0.3", "0.7"), ("0.05", "0.10", "0.20", "0.65")])
def test_shares_use_the_whole_budget_and_no_more(passes):
    schedule = Schedule(passes=passes)
    assert sum(schedule.shares()) == 1
    assert len(schedule.shares()) == 2 * len(passes) - 1
    shares, coordinates = releases_of(len(passes), 10)
    assert sum(shares) == 1
    assert len(shares) == len(coordinates) == 2 * len(passes) - (len(passes) == 1)  # one more, a count, with passes
    assert schedule.shares()[-1] >= Fraction(schedule.histogram)


def test_the_account_takes_a_schedule():
    shares, coordinates = releases_of(4, 30)
    account = lattice_account(1.0, 1e-9, shares=shares, coordinates=coordinates)
    assert len(account.noise_mu) == 8
    assert account.spent_delta <= 1e-9


@pytest.mark.parametrize("make", [skewed_table, yes_no_table])
def test_one_row_costs_at_most_mu_in_every_release_of_a_transcript(make):
    """Given what was asked, remove a row: exact change of every answer over its noise, squares added up."""
    rows, mu = make(400, 0), 0.7
    _, transcript = run(rows, mu, np.random.default_rng(1))
    for gone in range(0, 400, 7):
        row = rows[gone : gone + 1]
        change = gram(row)
        spent = 2 * (mu * math.sqrt(Schedule().shares()[0])) ** 2 * np.sum(change**2) / 2
        for asked, _, request, _ in transcript[1:]:
            spent += sum(np.sum(counts**2) for counts in norm_counts(asked, row)) / asked.noise**2
            shortened = clipped(request, row)
            assert sum(int(entry) ** 2 for entry in shortened[0]) <= 2**40
            spent += request.mu**2 * np.sum(gram(shortened) ** 2)
        assert spent <= mu**2 * (1 + 1e-9)


def test_requests_are_functions_of_earlier_answers_alone():
    """Replay the noisy answers without the rows: the same requests, bit for bit."""
    rows = skewed_table(400, 0)
    _, transcript = run(rows, 0.7, np.random.default_rng(1))
    mus = tuple(0.7 * math.sqrt(share) for share in Schedule().shares())
    state = first_state(transcript[0][0], mus, intercept=6, intercept_energy=1 / 7)
    for asked, counts, request, matrix in transcript[1:]:
        again = plan_histogram(state)
        for one, other in zip(again.metrics, asked.metrics, strict=True):
            assert (one.transform.integers == other.transform.integers).all()
        planned = plan_pass(state, again, counts)
        assert (planned.clip, planned.metric.power, planned.rows) == (request.clip, request.metric.power, request.rows)
        state = update_state(state, planned, matrix)


@pytest.mark.parametrize("seed", range(20))
def test_no_answer_makes_the_rule_fail(seed):
    """Answers of any size and sign, as noise alone might give: plans stay finite, nothing is raised."""
    rng = np.random.default_rng(seed)
    m, size = int(rng.integers(2, 30)), 10.0 ** rng.uniform(-6, 12)
    mus = tuple(10.0 ** rng.uniform(-3, 1) for _ in range(7))
    state = first_state(size * goe(m, rng), mus, intercept=m - 1 if seed % 2 else None, intercept_energy=1 / m)
    while not state.done:
        asked = plan_histogram(state)
        counts = tuple(size * rng.standard_normal(BINS) for _ in asked.metrics)
        request = plan_pass(state, asked, counts)
        assert math.isfinite(request.clip)
        assert request.clip > 0
        state = update_state(state, request, 10.0 ** rng.uniform(-6, 12) * goe(m, rng))
        assert np.isfinite(state.pool.current.matrix).all()
        assert np.isfinite(state.pool.current.shape).all()


# ---------------------------------------------------------------------------------------------------------------
# Metric, histogram, clip
def test_full_whitening_of_a_known_table_makes_all_second_moments_one():
    rows = skewed_table(5_000, 3)
    cleaned = clean(NoisyGram.isotropic(gram(rows), scale=1e-9))
    (metric,) = whitenings(cleaned, 5_000, (1.0,))
    z = metric.transform.product(rows) * metric.transform.scales
    assert np.allclose(z.T @ z / 5_000, np.eye(7), atol=1e-3)
    assert metric.mean == pytest.approx(7.0, rel=1e-3)
    assert metric.cost == pytest.approx(1.0)
    assert whitenings(cleaned, 5_000, (0.75,))[0].cost > 1.0


def pareto_counts(n: int, slope: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    norms = (1 - (np.arange(n) + 0.5) / n) ** (-1 / slope)
    return np.histogram(norms, bins=np.r_[0, edges, np.inf])[0].astype(float), norms


def test_a_histogram_without_noise_gives_back_the_tail():
    edges = bin_edges(2.0)
    counts, norms = pareto_counts(100_000, 3.0, edges)
    tail = read_tail(counts, edges, noise=1e-9, rows=1e5, largest=1e6)
    exact_beyond = [(norms > edge).sum() for edge in tail.edges]
    assert np.allclose(tail.beyond[:-1], exact_beyond[:-1])
    exact_lost = np.array([np.maximum(norms - edge, 0).sum() for edge in tail.edges]) / norms.sum()
    assert np.allclose(tail.lost, exact_lost, atol=0.06)
    exact_kept = [np.minimum(1, edge / norms).mean() for edge in tail.edges]
    assert np.allclose(tail.kept_weight, exact_kept, atol=0.08)
    assert (np.diff(tail.lost) <= 0).all()
    assert tail.lost[-1] == 0


def test_a_tail_that_noise_hides_is_assumed_and_bounded():
    edges, noise = bin_edges(2.0), 30.0
    counts, norms = pareto_counts(2_000, 3.0, edges)
    resolved = 0
    for seed in range(50):
        noisy = counts + noise * np.random.default_rng(seed).standard_normal(BINS)
        tail = read_tail(noisy, edges, noise=noise, rows=2e3, largest=1e6)
        assert (np.diff(tail.beyond) <= 1e-9).all()
        assert (tail.beyond >= 0).all()
        assert (tail.beyond[:-1] > 0).any()
        for lost in (tail.lost, tail.surely_lost):
            assert ((lost >= 0) & (lost <= 1)).all()  # false for NaN
            assert (np.diff(lost) <= 1e-12).all()
        resolved += bool((tail.surely_lost <= tail.lost + 1e-9).all())
    assert resolved >= 45  # three standard errors at twenty edges
    assert norms.max() < 1e6


def test_noise_alone_makes_no_heavy_tail():
    """All rows within four times the mean, 2,000 histograms: noise in far bins is not taken for rows there."""
    edges = bin_edges(1.0)
    norms = np.random.default_rng(0).gamma(6.0, 1 / 6, 100_000)
    counts = np.bincount(np.searchsorted(edges, norms), minlength=BINS).astype(float)
    rng, at = np.random.default_rng(1), int(np.searchsorted(edges, 8.0))
    heavy = 0
    for _ in range(2_000):
        tail = read_tail(counts + 40.0 * rng.standard_normal(BINS), edges, noise=40.0, rows=1e5, largest=1e6)
        heavy += tail.lost[at] > 0.05
    assert heavy <= 60  # one standard error, in place of three, makes it 286


@pytest.mark.parametrize("seed", range(30))
def test_any_counts_give_finite_tails(seed):
    rng = np.random.default_rng(seed)
    counts = 10.0 ** rng.uniform(-3, 6) * rng.standard_normal(BINS) * (rng.random(BINS) < 0.5)
    tail = read_tail(
        counts, bin_edges(3.0), noise=10.0 ** rng.uniform(-3, 4), rows=10.0 ** rng.uniform(1, 6), largest=500.0
    )
    for values in (tail.beyond, tail.lost, tail.surely_lost, tail.kept_weight):
        assert np.isfinite(values).all()
        assert (values >= 0).all()


def test_bins_beyond_the_public_maximum_are_not_read():
    edges = bin_edges(2.0)
    counts = np.zeros(BINS)
    counts[:4], counts[-3:] = 100.0, 1e6
    tail = read_tail(counts, edges, noise=1.0, rows=400.0, largest=9.0)
    assert tail.edges[-1] == 9.0
    assert tail.beyond.max() < 500


def planned(rows: np.ndarray, mu: float, norms_noise: float) -> float:
    m = rows.shape[1]
    pool = Pool.of(NoisyGram.isotropic(gram(rows), scale=1e-9))
    state = State(pool, (norms_noise, mu), m - 1, 1 / m, float(len(rows)))
    asked = plan_histogram(state)
    counts = norm_counts(asked, rows)
    return plan_pass(state, asked, counts).lost


def test_rows_are_the_mean_over_all_histograms():
    rows = skewed_table(400, 0)
    _, transcript = run(rows, 0.7, np.random.default_rng(1))
    totals = [np.mean([count.sum() for count in counts]) for _, counts, _, _ in transcript[1:]]
    for step, (_, _, request, _) in enumerate(transcript[1:]):
        assert request.rows == pytest.approx(np.mean(totals[: step + 1]))


def test_the_last_pass_clips_less(monkeypatch):
    """The same state and counts, asked as the last pass and as one before it: never more is lost, sometimes less."""
    rows = skewed_table(4_000, 5)
    m = rows.shape[1]
    pool = Pool.of(NoisyGram.isotropic(gram(rows), scale=1e-9))
    lost = []
    for mu in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        last = State(pool, (10.0, mu), m - 1, 1 / m, 4_000.0, 1)
        earlier = State(pool, (10.0, mu, 10.0, mu), m - 1, 1 / m, 4_000.0, 1)
        asked = plan_histogram(last)
        counts = norm_counts(asked, rows)
        lost.append([plan_pass(state, asked, counts).lost for state in (last, earlier)])
        monkeypatch.setattr(preconditioning, "LAST_LOST_WEIGHT", LOST_WEIGHT)
        assert plan_pass(last, asked, counts).clip == plan_pass(earlier, asked, counts).clip
        monkeypatch.undo()
    assert all(one <= other for one, other in lost)
    assert any(one < other for one, other in lost)


def test_the_clip_rises_with_the_budget_until_nothing_is_lost():
    rows = skewed_table(4_000, 5)
    lost = [planned(rows, mu, 10.0) for mu in (0.01, 0.1, 1.0, 10.0, 1000.0)]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] <= 0.3
    assert lost[-1] < 1e-3


# ---------------------------------------------------------------------------------------------------------------
# What it is for
def test_passes_beat_the_single_pass_on_a_skewed_table():
    """Relative error of the second moment in its own metric, mean of 5 releases: at least 10 times smaller."""
    rows, mu = skewed_table(4_000, 7), 0.5
    G = gram(rows)
    root = np.linalg.cholesky(np.linalg.inv(G))

    def error(M: np.ndarray) -> float:
        return float(np.linalg.norm(root.T @ (M - G) @ root))

    passes, single = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        state, _ = run(rows, mu, rng)
        passes.append(error(state.pool.current.matrix))
        single.append(error(G + goe(7, rng) / (math.sqrt(2) * mu)))
    assert np.mean(passes) < 0.1 * np.mean(single)


def test_rescaling_brings_clip_weights_to_mean_one():
    rows = skewed_table(4_000, 7)
    m = rows.shape[1]
    pool = Pool.of(NoisyGram.isotropic(gram(rows), scale=1e-3))
    state = State(pool, (10.0, 50.0), m - 1, 1 / m, 4_000.0)
    asked = plan_histogram(state)
    counts = norm_counts(asked, rows)
    request = plan_pass(state, asked, counts)
    tight = type(request)(request.metric, request.metric.mean / 4, 50.0, 4_000.0, request.kept_weight, request.lost)
    shortened = clipped(tight, rows)
    assert np.mean(np.linalg.norm(shortened, axis=1) > 0.99 * ROW_UNIT) > 0.5  # most rows are clipped
    absorbed = update_state(state, tight, gram(shortened)).pool.members[-1]
    assert absorbed.matrix[m - 1, m - 1] * m == pytest.approx(4_000, rel=1e-6)
