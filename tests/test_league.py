"""The comparison with other methods: gradient descent and noisy sums are what they say, and reports count rightly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pandas as pd
import pytest
from scipy.stats import chi2, t

from experiments import league, league_opendp
from experiments.noisy_sums import Noise, fit, noisy_sums
from experiments.study_tables import StudyTable
from gaussmix.accounting import gaussian_mu

ROOT = Path(__file__).parents[1]


def test_gradient_descent_without_noise_is_least_squares():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, (500, 2)), np.ones(500)])
    y = X @ [0.3, -0.2, 0.1] + rng.normal(0, 0.01, 500)
    theta = league.gradient_descent(X, y, 1e12, rng, steps=2_000, clip=1e3, rate=2.0)
    assert theta == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], abs=1e-6)


def test_the_noise_is_that_of_gaussian_dp():
    """One step from 0 on rows of zeros is noise alone: clip/μ a coordinate, √steps more in each of several."""
    X, y = np.zeros((10, 10_000)), np.zeros(10)
    for steps in (1, 4):
        theta = league.gradient_descent(X, y, 0.5, np.random.default_rng(0), steps=steps, clip=3.0, rate=1.0)
        own = theta * np.sqrt(10_000) * 10 / steps  # the noises of all steps add up: √steps of them, √steps large
        assert np.std(own) == pytest.approx(3.0 / 0.5, rel=0.03)


def test_no_row_moves_a_gradient_by_more_than_the_clip():
    X, y = np.full((1, 3), 50.0), np.array([100.0])
    rng = np.random.default_rng(0)
    theta = league.gradient_descent(X, y, 1e12, rng, steps=1, clip=0.3, rate=1.0)
    assert np.linalg.norm(theta * np.sqrt(3)) == pytest.approx(0.3)


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
# The league
@pytest.fixture
def small(monkeypatch):
    """A table of two numbers, a boolean and a category of three levels, with a known line."""
    rng, n = np.random.default_rng(5), 4_000
    frame = pd.DataFrame({"age": rng.uniform(20, 80, n), "member": rng.random(n) < 0.4})
    frame["city"] = rng.choice(["a", "b", "c"], n)
    frame["cost"] = 0.5 * frame["age"] + 4 * frame["member"] + 6 * (frame["city"] == "c") + rng.normal(0, 3, n)
    schema = {"age": [0.0, 100.0], "member": "boolean", "city": ["a", "b", "c"], "cost": [0.0, 100.0]}
    table = StudyTable(frame, schema, ("cost",))
    monkeypatch.setattr(league, "load", lambda name: table)
    monkeypatch.setattr(league, "TABLES", {"small": "age"})
    return league.Split.of("small", 0)


def test_encoded_rows_and_the_raw_fit(small):
    X, y, *_ = small.arrays
    assert small.encoding.names == ["age", "member", "city=b", "city=c"]
    assert np.abs(X).max() <= 1
    assert np.sum(X**2, axis=1).max() <= small.encoding.n_sources == 3
    slopes, errors, intercept = small.raw
    A = np.column_stack([X, np.ones(len(X))])
    theta, rss, *_ = np.linalg.lstsq(A, y, rcond=None)
    assert [*slopes, intercept] == pytest.approx(theta)
    assert errors == pytest.approx(np.sqrt(rss[0] / (len(y) - 5) * np.diagonal(np.linalg.inv(A.T @ A)))[:4])
    assert slopes == pytest.approx([0.5, 0.08, 0.0, 0.12], abs=0.01)


def test_figures_count_what_intervals_contain(small):
    truth, errors, _ = small.raw
    ends = np.column_stack([truth - 2 * errors, truth + 2 * errors])
    ends[0] += 3 * errors[0]
    ends[1] = -np.inf, np.inf
    found = small.compare(truth + [1, -2, 3, 0] * errors, ends)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["identified"] == 0.75
    assert found["length"] == pytest.approx(2 / 1.959964)
    assert found["error"] == pytest.approx(1.5)


def test_discretised_rows_are_decoded_to_midpoints(small):
    codes = league.discretised(small.table, small.train)
    assert codes.max().tolist() <= [31, 1, 2, 31]
    rows = league.decoded(small.table, codes)
    assert np.abs(rows["age"] - small.train["age"]).max() <= 100 / 64
    assert rows[["member", "city"]].equals(small.train[["member", "city"]])
    assert small.raw[0] == pytest.approx(league.ordinary(*small.encoding.encode(small.table, rows))[0], abs=0.01)


def test_every_method_runs_and_recovers_the_line_at_a_large_budget(small, monkeypatch):
    monkeypatch.setattr("opendp.mod.GLOBAL_FEATURES", set())  # other tests keep theirs
    monkeypatch.setattr(league, "DIFFPRIVLIB", Path("missing"))
    monkeypatch.setattr(league, "EPSILONS", (30.0,))
    rows = {row["method"]: row for row in league.trial("small", 0)}
    assert {*rows} >= {*league.LINEAR} - {"DP-GD", "diffprivlib", "MST", "AIM"}
    for name in ("gaussmix predictor", "gaussmix ols", "gaussmix LinearRegression", "AdaSSP", "noisy sums"):
        assert rows[name]["r2"] == pytest.approx(rows["least squares"]["r2"], abs=0.01)
    assert rows["gaussmix ols"]["identified"] == 1
    assert rows["least squares"] | {"error": 0.0, "coverage": 1.0} == rows["least squares"]
    [synthetic] = league.synthetic_trial("small", 0, 1.0, "none")
    assert synthetic["r2"] == pytest.approx(rows["least squares"]["r2"], abs=0.01)


def test_logistic_methods_run(small, monkeypatch):
    monkeypatch.setattr(league, "CLASSES", {"small": "member"})
    monkeypatch.setattr(league, "EPSILONS", (30.0,))
    rows = {row["method"]: row for row in league.classify("small", 0)}
    assert {*rows} == {*league.LOGISTIC}
    best = rows["maximum likelihood"]["log_loss"]
    assert rows["gaussmix logit"]["log_loss"] == pytest.approx(best, abs=0.01)
    assert rows["mean"]["log_loss"] > best


NO_FIGURES = dict.fromkeys(["coverage", "own_coverage", "length", "identified", "error", "log_loss", "auc"], np.nan)


def test_losses_are_found():
    values = {"least squares": 0.5, "gaussmix predictor": 0.3, "AdaSSP": 0.301, "DP-GD 1": 0.2, "DP-GD 2": 0.4}
    rows = [{"table": "t", "split": 0, "epsilon": 1.0, "method": name, "r2": r2} for name, r2 in values.items()]
    rows.append(rows[0] | {"method": "gaussmix ols"})
    kept = league.with_best_settings(pd.DataFrame(rows).assign(**NO_FIGURES))
    assert len(kept) == 5
    means = league.averages(kept)
    assert league.lost_predictions(means).splitlines()[2:] == ["| t | 1 | 0.300 | DP-GD | 0.400 |"]


def test_a_rival_is_compared_on_its_own_splits():
    """AIM and MST have the first of two splits only: against means over both splits, MST would be listed as well."""
    figures = {  # R² and error in the two splits
        "least squares": [(0.5, 0.0), (0.1, 0.0)],
        "gaussmix predictor": [(0.4, 1.0), (0.1, 5.0)],
        "gaussmix ols": [(0.4, 2.0), (0.1, 6.0)],
        "AdaSSP": [(0.1, 3.0), (0.2, 4.0)],
        "MST": [(0.3, 2.5)],
        "AIM": [(0.45, 1.5)],
    }
    rows = [
        {"table": "t", "split": split, "epsilon": 1.0, "method": name} | NO_FIGURES | {"r2": r2, "error": error}
        for name, splits in figures.items()
        for split, (r2, error) in enumerate(splits)
    ]
    means = league.averages(pd.DataFrame(rows))
    assert league.lost_predictions(means).splitlines()[2:] == ["| t | 1 | 0.400 | AIM | 0.450 |"]
    assert league.lost_coefficients(means).splitlines()[2:] == [
        "| t | 1 | 4.00 | 3.00 | AdaSSP 3.50 |",
        "| t | 1 | 2.00 | 1.00 | AIM 1.50 |",
    ]


def test_the_page_has_the_numbers_of_the_file():
    page = (ROOT / "docs" / "league.md").read_text(encoding="utf-8")
    for name, table in league.blocks(pd.read_csv(ROOT / "experiments" / "results" / "league.csv")).items():
        assert f"<!-- begin {name} -->\n{table}\n<!-- end {name} -->" in page


def test_one_predictor_by_opendp_is_the_line(monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 4_000)
    y = 0.4 * x + 0.1 + rng.normal(0, 0.02, 4_000)
    monkeypatch.setattr("opendp.mod.GLOBAL_FEATURES", set())  # other tests keep theirs
    dp.enable_features(*league_opendp.FEATURES)
    assert league_opendp.theil_sen_line(x, y, 10.0, 1_000) == pytest.approx((0.4, 0.1), abs=0.02)
