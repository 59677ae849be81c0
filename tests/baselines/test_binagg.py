"""BinAgg: no neighbour exceeds the claims of its bins and sums, its noise, its estimate and its intervals."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import special, stats

import gaussmix as gm
from example_models import BOUNDS, linear_table
from gaussmix import baselines
from gaussmix.accounting import gaussian_mu
from gaussmix.accounting.accounts import BinAggAccount, binning_epsilon
from gaussmix.baselines import binagg
from gaussmix.baselines.binagg import BinSums, PreparedBinAgg, estimate, privtree, with_enough_bins
from gaussmix.data.schema import Schema

FALSE_ALARM = 1e-6
SCHEMA = Schema.of({"X": {"size": 3, "lower": [-1, 0, 5], "upper": [1, 10, 6]}, "y": [-2, 2]})


def log_probabilities(counts, laplace_scale):
    """Log probabilities of dividing, and of not dividing, the boxes of a path with these counts, by definition."""
    decay = laplace_scale * math.log(2)
    biased = np.maximum(counts - np.arange(len(counts)) * decay, -decay)
    noise = stats.laplace(scale=laplace_scale)
    return noise.logsf(-biased), noise.logcdf(-biased)


def path_loss(counts, laplace_scale):
    """Largest log ratio of the probabilities of a tree with and without one row, whose path has these counts."""
    largest = 0.0
    (divided, left), (divided_more, left_more) = (log_probabilities(counts + k, laplace_scale) for k in (0, 1))
    for end in range(len(counts)):
        loss = (divided_more - divided)[:end].sum() + left_more[end] - left[end]
        largest = max(largest, abs(loss))
    return max(largest, (divided_more - divided).sum())


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, 3.75])
def test_no_neighbour_exceeds_the_epsilon_of_the_bins(epsilon):
    """Exact, over paths of constant and of falling counts. With half of the noise the claim is exceeded."""
    rng, largest = np.random.default_rng(0), {1.0: 0.0, 0.5: 0.0}
    for part in largest:
        scale = part * 3 / epsilon
        for length in (1, 4, 20):
            decay = scale * math.log(2)
            paths = [np.full(length, float(c)) for c in range(min(int(length * decay) + 3, 100))]
            paths += [np.full(length, np.floor(share * length * decay)) for share in np.linspace(0, 1.2, 30)]
            for _ in range(20):
                paths.append(np.sort(rng.integers(0, 2 + int(1.5 * length * decay), length))[::-1].astype(float))
            largest[part] = max(largest[part], *(path_loss(counts, scale) for counts in paths))
    assert largest[1.0] <= epsilon
    assert largest[0.5] > epsilon


def test_the_two_terms_of_the_proof_are_within_the_cap():
    u = np.linspace(1e-9, 1.25, 10_001)
    assert np.all(u + np.expm1(u) <= 3 * u)
    assert np.all(u - 2 * np.expm1(-u) <= 3 * u)


def test_pure_privacy_of_the_bins_is_within_their_share_of_gaussian_privacy():
    """The trade-off function of ε-DP is nowhere below that of the Gaussian; with 1 % more ε it is."""
    alpha = np.linspace(1e-6, 1 - 1e-6, 20_001)
    for mu in (0.05, 0.5, 3.0):
        epsilon = binning_epsilon(mu)
        gaussian = special.ndtr(special.ndtri(1 - alpha) - mu / math.sqrt(28))
        for factor, private in ((1.0, True), (1.01, False)):
            pure = np.maximum(1 - math.exp(factor * epsilon) * alpha, math.exp(-factor * epsilon) * (1 - alpha))
            assert bool(np.all(pure >= gaussian - 1e-12)) is private
    assert binning_epsilon(100.0) == 3.75


@pytest.mark.parametrize("part", [1.0, 0.9])
def test_boxes_are_divided_with_the_stated_noise(part):
    """A box with as many rows as the scale of the noise stays whole with probability e⁻¹/2; 10 % less noise shows."""
    X, draws, rng = np.zeros((40, 1)), 20_000, np.random.default_rng(0)
    whole = sum(len(privtree(X, part * 40.0, rng)) == 1 for _ in range(draws))
    plausible = stats.binomtest(whole, draws, math.exp(-1) / 2).pvalue > FALSE_ALARM
    assert plausible == (part == 1.0)


def test_every_row_is_in_one_box_that_contains_it():
    X = np.random.default_rng(0).choice([-1.0, -0.5, 0.0, 0.25, 1.0], (3_000, 3))  # borders of boxes
    boxes = privtree(X, 5.0, np.random.default_rng(1))
    assert len(boxes) > 50
    assert np.array_equal(np.sort(np.concatenate([box.rows for box in boxes])), np.arange(3_000))
    for box in boxes:
        assert np.all((box.lower <= X[box.rows]) & (X[box.rows] <= box.upper))


def test_there_are_enough_bins_whatever_the_rows():
    X = np.zeros((5, 6))
    boxes = with_enough_bins(privtree(X, 1e6, np.random.default_rng(3)), X)
    assert len(boxes) >= 8


def sums_of(X, y, seed, epsilon=1.0):
    prepared = PreparedBinAgg.of(SCHEMA, epsilon=epsilon, delta=1e-6, rng=np.random.default_rng(seed))
    sums, certificate = prepared.draw(X, y)
    return sums, certificate.account


class NoLaplace:
    """A generator that divides no box, and draws no noise."""

    def laplace(self, scale):
        return -math.inf

    def standard_normal(self, shape):
        return np.zeros(shape)

    bit_generator = None


def test_one_row_changes_the_sums_by_no_more_than_their_sensitivity(monkeypatch):
    """In units of the noise, for given boxes: counts, sums of features and of responses each spend at most their μ."""
    monkeypatch.setattr(binagg, "certify", lambda *_, **__: None)
    rng, largest = np.random.default_rng(0), np.zeros(3)
    account = BinAggAccount(1.0, 3 / binning_epsilon(1.0))
    corners = np.array(np.meshgrid([-1, 1], [0, 10], [5, 6])).T.reshape(-1, 3)
    more = np.vstack([corners, rng.uniform([-1, 0, 5], [1, 10, 6], (20, 3)), [[-7.0, 99.0, 0.0]]])  # one is clamped
    X, y = rng.uniform([-1, 0, 5], [1, 10, 6], (50, 3)), rng.uniform(-2, 2, 50)

    def exact(X, y):
        prepared = PreparedBinAgg(SCHEMA, 1.0, 1e-6, account, NoLaplace(), (-np.ones(3), np.ones(3)))
        return prepared.draw(X, y)[0]

    each, absent = account.mu_of_each_sum, exact(X, y)
    for row in more:
        present = exact(np.vstack([X, row]), np.append(y, rng.choice([-2.0, 2.0, 50.0])))
        scales = 1 / each, np.sqrt(absent.variances_x), 1 / each
        for i, (name, scale) in enumerate(zip(("counts", "sums_x", "sums_y"), scales, strict=True)):
            change = np.linalg.norm((getattr(present, name) - getattr(absent, name)) / scale)
            largest[i] = max(largest[i], change)
    assert np.all(largest <= each * (1 + 1e-5))  # of the grid of the output
    assert largest == pytest.approx(each, rel=1e-5)  # and corners of the box reach it
    assert each**2 * 3 + account.mu**2 / 28 <= account.mu**2


def test_sums_have_their_noise():
    """Counts, sums of features and of responses of an empty table; 10 % less noise would show in each."""
    found = [sums_of(np.zeros((0, 3)), np.zeros(0), seed) for seed in range(1_500)]
    each = 3 * gaussian_mu(1.0, 1e-6) / math.sqrt(28)
    cases = [
        np.concatenate([sums.counts for sums, _ in found]) * each,
        np.concatenate([(sums.sums_x / np.sqrt(sums.variances_x)).ravel() for sums, _ in found]),
        np.concatenate([sums.sums_y.ravel() for sums, _ in found]) * each,
    ]
    for values in cases:
        energy = np.sum(values**2)
        assert FALSE_ALARM < stats.chi2.cdf(energy, values.size) < 1 - FALSE_ALARM
        assert stats.chi2.cdf(0.9**2 * energy, values.size) < FALSE_ALARM
    sums = found[0][0]
    assert np.all((sums.variances_x >= 3 * 0.25 / each**2) & (sums.variances_x <= 3 / each**2 * (1 + 1e-9)))


def test_the_account_holds_and_less_noise_does_not():
    account = sums_of(np.zeros((9, 3)), np.zeros(9), 0)[1]
    assert account.holds(1.0, 1e-6, "add-remove")
    assert not account.holds(1.0, 1e-6, "replace-one")
    for less in ({"mu": 1.01 * account.mu}, {"laplace_scale": 0.999 * account.laplace_scale}):
        assert not dataclasses.replace(account, **less).holds(1.0, 1e-6, "add-remove")


def test_without_noise_it_is_weighted_least_squares_on_the_means_of_bins():
    rng = np.random.default_rng(0)
    counts, means = rng.integers(5, 50, 30).astype(float), rng.uniform(-1, 1, (30, 2))
    y = means @ [0.4, -0.2] + 0.1 + rng.normal(0, 0.01, 30)
    sums = BinSums(counts, counts[:, None] * means, np.zeros((30, 2)), (counts * y)[:, None])
    beta, covariance = estimate(sums, 1.0)
    design, root = np.column_stack([means, np.ones(30)]), np.sqrt(counts)
    wanted, *_ = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)
    assert beta[:, 0] == pytest.approx(wanted)
    residuals = counts[:, None] * design * (y - design @ wanted)[:, None]
    bread = np.linalg.inv((design.T * counts) @ design)
    assert covariance[0] == pytest.approx(30 / 27 * bread @ residuals.T @ residuals @ bread)  # HC1
    assert np.isinf(estimate(dataclasses.replace(sums, counts=np.ones(30)), 1.0)[1]).all()  # all bins dropped


def test_the_correction_of_the_published_code_is_divided_by_the_number_of_bins():
    rng = np.random.default_rng(1)
    counts, S, T = rng.uniform(5, 50, 8), rng.normal(0, 9, (8, 2)), rng.normal(0, 9, (8, 1))
    D = rng.uniform(1, 2, (8, 2))
    sums = BinSums(counts, S, D, T)
    for correction, divisor in (("theorem", 1), ("code", 8)):
        A = sum(np.outer(s, s) / c - np.diag(d) / c / divisor for s, d, c in zip(S, D, counts, strict=True))
        b = sum(s * t / c for s, t, c in zip(S, T[:, 0], counts, strict=True))
        assert estimate(sums, 0.0, correction)[0][:, 0] == pytest.approx(np.linalg.solve(A, b))
    with pytest.raises(gm.ArgumentError, match="correction must be one of 'theorem', 'code'"):
        baselines.BinAgg(**BOUNDS, correction="none").fit(S, T[:, 0])


def test_intervals_cover_the_population_where_the_budget_suffices():
    """95 % intervals of 3 slopes and an intercept over 150 tables of 20,000 rows: between 0.90 and 0.99."""
    held = []
    for seed in range(150):
        X, y, coef = linear_table(20_000, d=3, seed=seed)
        y = y + np.random.default_rng(1_000 + seed).normal(0, 1.0, len(y))
        model = baselines.BinAgg(
            epsilon=8.0, bounds_X=([-1, 0, 5], [1, 10, 6]), bounds_y=(-20, 20), random_state=seed
        ).fit(X, y)
        low, high = model.conf_int().T
        truth = np.append(coef, 4.0)
        held.append((low <= truth) & (truth <= high))
    assert 0.90 <= np.mean(held) <= 0.99


def test_without_an_intercept_bins_are_within_the_declared_bounds():
    rng = np.random.default_rng(0)
    X = rng.uniform([2, -4], [8, -1], (3_000, 2))
    schema = baselines.BinAgg(bounds_X=([2, -4], [8, -1]), bounds_y=(-1, 1), fit_intercept=False)
    lower, upper = schema._corners(schema.schema(2))
    assert (lower.tolist(), upper.tolist()) == ([0.25, -1.0], [1.0, -0.25])
    y = X @ [0.1, 0.2] + rng.normal(0, 0.01, 3_000)
    found = schema.set_params(epsilon=60.0, random_state=0).fit(X, y)
    assert found.coef_ == pytest.approx([0.1, 0.2], abs=0.02)
    assert found.intercept_ == 0


def test_several_targets_and_refusals():
    X, y, _ = linear_table(5_000)
    model = baselines.BinAgg(**BOUNDS, epsilon=8.0, random_state=0).fit(X, np.column_stack([y, -y]))
    assert model.coef_.shape == (2, 4)
    assert model.covariance_.shape == (2, 5, 5)
    low, high = model.conf_int(0.1, output=1).T
    assert (low + high) / 2 == pytest.approx([*model.coef_[1], model.intercept_[1]])
    assert baselines.BinAgg(**BOUNDS, fit_intercept=False, random_state=0).fit(X, y).conf_int().shape == (4, 2)
    with pytest.raises(gm.ArgumentError, match="cannot be fitted to moments"):
        model.fit_moments(gm.Moments.of_arrays([(X, y)], model.schema(4)))
    with pytest.raises(gm.ArgumentError, match="alpha must lie in"):
        model.conf_int(1.5)
