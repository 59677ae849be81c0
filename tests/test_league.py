"""The comparison with other methods: gradient descent and noisy sums are what they say, and reports count rightly."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pandas as pd
import pytest
from scipy.stats import chi2, t

from experiments import field, field_intervals, league_opendp
from experiments.noisy_sums import Noise, fit, noisy_sums
from gaussmix.accounting import gaussian_mu


def test_gradient_descent_without_noise_is_least_squares():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, (500, 2)), np.ones(500)])
    y = X @ [0.3, -0.2, 0.1] + rng.normal(0, 0.01, 500)
    theta = field.gradient_descent(X, y, 1e12, rng, steps=2_000, clip=1e3, rate=2.0)
    assert theta == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], abs=1e-6)


def test_the_noise_is_that_of_gaussian_dp():
    """One step from 0 on rows of zeros is noise alone: clip/μ a coordinate, √steps more in each of several."""
    X, y = np.zeros((10, 10_000)), np.zeros(10)
    for steps in (1, 4):
        theta = field.gradient_descent(X, y, 0.5, np.random.default_rng(0), steps=steps, clip=3.0, rate=1.0)
        own = theta * np.sqrt(10_000) * 10 / steps  # the noises of all steps add up: √steps of them, √steps large
        assert np.std(own) == pytest.approx(3.0 / 0.5, rel=0.03)


def test_no_row_moves_a_gradient_by_more_than_the_clip():
    X, y = np.full((1, 3), 50.0), np.array([100.0])
    rng = np.random.default_rng(0)
    theta = field.gradient_descent(X, y, 1e12, rng, steps=1, clip=0.3, rate=1.0)
    assert np.linalg.norm(theta * np.sqrt(3)) == pytest.approx(0.3)


def test_the_report_has_the_best_setting_of_each_budget():
    methods = ["least squares", "passes", "LinearMixing", "AdaSSP", "DP-GD 10 1.0 0.5", "DP-GD 40 1.0 0.5"]
    methods += ["noisy sums", "as published", "diffprivlib", "mean"]
    rows = [
        {"table": "t", "split": 0, "draw": 0, "method": name, "epsilon": 1.0, "r2": 0.1 * i}
        for i, name in enumerate(methods)
    ]
    last = field.report(pd.DataFrame(rows)).splitlines()[-1]
    assert last == "| t | 1 | 0.000 | 0.100 | 0.200 | 0.300 | 0.500 | 0.600 | 0.700 | 0.800 | 0.900 |"


# ---------------------------------------------------------------------------------------------------------------
# Noisy sums
FALSE_ALARM = 1e-6  # chance that correct noise fails one case


def chi2_pvalue(q, freedom):
    return 2 * min(chi2.cdf(q, freedom), chi2.sf(q, freedom))


@pytest.mark.parametrize("published", [False, True])
def test_noisy_sums_have_the_noise_they_state(published):
    """Diagonal σ_xx, beside it σ_xx/√2, Xᵀy σ_xy, yᵀy σ_yy; 10 % more or less would be seen in each."""
    k, draws, rng = 6, 2_000, np.random.default_rng(0)
    noise = Noise.of(1.0, 1e-6, squared_norm=4.0, columns=k, published=published)
    gram = rng.uniform(-50, 50, (k + 1, k + 1))
    gram = gram + gram.T
    found = [noisy_sums(gram, noise, rng) for _ in range(draws)]
    A = np.array([A for A, _, _ in found]) - gram[:k, :k]
    b = np.array([b for _, b, _ in found]) - gram[:k, k]
    c = np.array([c for _, _, c in found]) - gram[k, k]
    assert np.array_equal(A, A.transpose(0, 2, 1))
    beside = A[:, *np.triu_indices(k, 1)]
    cases = [
        (np.diagonal(A, axis1=1, axis2=2), noise.xx),
        (beside, noise.xx / np.sqrt(2)),
        (b, noise.xy),
        (c, noise.yy),
    ]
    for values, sigma in cases:
        q = np.sum((values / sigma) ** 2)
        assert chi2_pvalue(q, values.size) > FALSE_ALARM
        assert chi2_pvalue(q * 1.1**2, values.size) < FALSE_ALARM
        assert chi2_pvalue(q / 1.1**2, values.size) < FALSE_ALARM


def test_the_exact_noise_spends_the_budget_and_the_published_noise_is_the_formula():
    exact = Noise.of(1.0, 1e-6, squared_norm=4.0, columns=9, published=False)
    spent = np.sqrt((4 / exact.xx) ** 2 + (2 / exact.xy) ** 2 + (1 / exact.yy) ** 2)  # a row that reaches all bounds
    assert spent == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-12)
    published = Noise.of(1.0, 1e-6, squared_norm=4.0, columns=9, published=True)
    each = np.sqrt(2 * np.log(1.25 / (1e-6 / 3)))
    assert (published.xx, published.xy, published.yy) == pytest.approx((9 * each / 0.4, 3 * each / 0.4, each / 0.2))


def _sums(n=20_000):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    y = X @ [0.1, 0.3, -0.2] + rng.normal(0, 0.1, n)
    Z = np.column_stack([X, y])
    return X, y, Z.T @ Z


def test_noisy_sums_without_noise_are_least_squares_with_its_errors():
    X, y, gram = _sums()
    found = fit(gram, len(y), Noise(0.0, 0.0, 0.0), np.random.default_rng(0))
    theta, rss, *_ = np.linalg.lstsq(X, y, rcond=None)
    errors = np.sqrt(rss[0] / (len(y) - 3) * np.diagonal(np.linalg.inv(X.T @ X)))
    assert found.coef == pytest.approx(theta, rel=1e-9)
    assert found.errors == pytest.approx(errors, rel=1e-6)
    assert np.diff(found.intervals()).ravel() == pytest.approx(2 * t.ppf(0.975, len(y) - 3) * errors, rel=1e-6)
    assert not found.raised


def test_errors_of_noisy_sums_are_those_of_their_draws():
    """Noise on Xᵀy alone: the variance over draws is (A⁻²)_ii σ², what is stated beyond sampling."""
    _, y, gram = _sums()
    noise, rng, draws = Noise(0.0, 200.0, 0.0), np.random.default_rng(2), 2_500
    coefs = np.array([fit(gram, len(y), noise, rng).coef for _ in range(draws)])
    inverse = np.linalg.inv(gram[:3, :3])
    wanted = 200.0 * np.sqrt(np.sum(inverse**2, axis=1))
    for q in np.sum(((coefs - inverse @ gram[:3, 3]) / wanted) ** 2, axis=0):
        assert chi2_pvalue(q, draws) > FALSE_ALARM
        assert chi2_pvalue(q * 1.1**2, draws) < FALSE_ALARM
    exact = fit(gram, len(y), Noise(0.0, 0.0, 0.0), rng)
    assert exact.errors.max() < wanted.min() / 5  # so that sampling is no part of what is stated
    assert fit(gram, len(y), noise, rng).errors == pytest.approx(wanted, rel=0.05)


def test_a_matrix_that_is_not_positive_is_raised():
    _, y, gram = _sums()
    assert fit(gram, len(y), Noise(1e6, 0.0, 0.0), np.random.default_rng(0)).raised


# ---------------------------------------------------------------------------------------------------------------
# Intervals, and one feature
@pytest.fixture(scope="module")
def rare():
    return field_intervals.load("rare")


def test_encoded_rows_give_the_tables_own_coefficients(rare):
    names, Z, scales, squared_norm = field_intervals.encoded(rare)
    theta, *_ = np.linalg.lstsq(Z[:, :-1], Z[:, -1], rcond=None)
    found, wanted = dict(zip(names, theta * scales, strict=True)), rare.fitted[0]
    assert [found[at] for at in rare.counted] == pytest.approx([wanted[at] for at in rare.counted])
    assert np.abs(Z).max() <= 1
    assert np.sum(Z[:, :-1] ** 2, axis=1).max() <= squared_norm == pytest.approx(5.0)


def test_the_study_of_intervals_has_every_method_and_counts_what_they_hold(rare):
    draws = pd.DataFrame(field_intervals.of_table("rare", 1.0, 2))
    found = field_intervals.by_coefficient(draws)
    assert len(found) == 5 * len(rare.counted)
    assert (found["releases"] == 2).all()
    truth = rare.fitted[0]["age"]
    key = {"table": "rare", "epsilon": 1.0, "method": "noisy sums", "coefficient": "age", "raised": False}
    ends = [(truth - 1, truth + 1), (truth + 1, truth + 2), (-np.inf, np.inf), (truth - 2, truth)]
    own = [key | {"release": i, "low": low, "high": high} for i, (low, high) in enumerate(ends)]
    [row] = field_intervals.by_coefficient(pd.DataFrame(own)).to_dict("records")
    assert (row["held"], row["finite"], row["held_not_raised"]) == (0.75, 0.75, 0.75)
    error = rare.fitted[1][list(rare.design).index("age")]
    assert row["length"] == pytest.approx(2 / (2 * 1.959964 * error))
    assert field_intervals.report(found).count("\n") == 1 + 5


def test_one_feature_by_opendp_and_by_its_medians_is_the_line(monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 4_000)
    y = 0.4 * x + 0.1 + rng.normal(0, 0.02, 4_000)
    assert league_opendp.theil_sen(x, y, rng) == pytest.approx((0.4, 0.1), abs=0.01)
    monkeypatch.setattr("opendp.mod.GLOBAL_FEATURES", set())  # other tests keep theirs
    dp.enable_features(*league_opendp.FEATURES)
    assert league_opendp.by_opendp(x, y, 10.0, 1_000) == pytest.approx((0.4, 0.1), abs=0.02)
