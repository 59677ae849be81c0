"""Every algorithm and every baseline of the paper has the distribution of its naive version.

Two-sample Kolmogorov-Smirnov tests with fixed seeds, 3,000 draws each. ALARM is the chance that one comparison of a
correct library fails; about a hundred are made. Each is repeated with σ a tenth too large, which must be noticed at the
same level; where θ is nearly normal, a test of the spread and twice the draws are needed for that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import naive_paper as naive
from gaussmix import accounting, baselines, calibrate, paper

ALARM = 1e-5
DRAWS = 3_000
C = 2.0


def table(n: int, m: int, seed: int, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    A = scale * rng.uniform(-1, 1, (n, m)) @ np.diag(np.linspace(0.5, 1.0, m))
    return A * np.minimum(1, C / np.linalg.norm(A, axis=1))[:, np.newaxis]


def summaries(W: np.ndarray) -> list[float]:
    """Numbers that together see every part of a second moment."""
    u = np.linspace(1, 2, len(W))
    return [W[0, 0], W[0, -1], W[-1, -1], u @ W @ u, np.trace(W @ W)]


def compared(ours: list, theirs: list) -> float:
    """The least p-value over the coordinates, times their number (Bonferroni)."""
    ours, theirs = np.array(ours), np.array(theirs)
    pairs = zip(ours.T, theirs.T, strict=True)
    return min(1.0, min(stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs) * ours.shape[1])


def compared_with_spread(ours: list, theirs: list) -> float:
    """The same with a test of the spread beside each, which sees a tenth in the scale of a normal distribution.

    Levene's test about the median holds for any distribution. Kolmogorov's distance between N(0, 1) and N(0, 1.1²) is
    0.02: it would take ten times the draws.
    """
    ours, theirs = np.array(ours), np.array(theirs)
    pairs = list(zip(ours.T, theirs.T, strict=True))
    spread = min(stats.levene(a, b, center="median").pvalue for a, b in pairs) * len(pairs)
    return min(1.0, 2 * compared(ours, theirs), 2 * spread)


def shown(record_property, name: str, **pvalues: float) -> None:
    for key, value in pvalues.items():
        record_property(f"{name}: {key}", f"{value:.3g}")


# ---------------------------------------------------------------------------------------------------------------
# GaussMix
def in_blocks(A: np.ndarray):
    yield A[:5]
    yield A[5:6]
    yield A[6:6]
    yield A[6:]


@pytest.mark.slow
@pytest.mark.parametrize("k", [12, 2])
@pytest.mark.parametrize("method", ["gram", "explicit"])
@pytest.mark.parametrize("blocks", [False, True], ids=["array", "blocks"])
def test_second_moment_of_gauss_mix(k, method, blocks, record_property):
    A, sigma, rng = table(40, 3, 1), 5.0, np.random.default_rng([k, blocks, len(method)])
    assert np.linalg.norm(A, axis=1).max() <= C

    def ours() -> list[float]:
        source = in_blocks(A) if blocks else A
        return summaries(paper.gauss_mix(source, k, sigma, row_norm=C, method=method, rng=rng).noisy_second_moment)

    def theirs(noise: float = 1.0) -> list[float]:
        M = naive.gauss_mix(A, k, sigma, rng, noise)
        return summaries(M.T @ M / k)

    found = [ours() for _ in range(DRAWS)]
    right = compared(found, [theirs() for _ in range(DRAWS)])
    wrong = compared(found, [theirs(1.1) for _ in range(DRAWS)])
    shown(record_property, f"k = {k}, {method}", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gram", "explicit"])
def test_sampled_rows_are_those_of_gauss_mix(method, record_property):
    """Entries of one row, and products of two, which a rotation that is not uniform would change."""
    A, k, sigma, rng = table(40, 3, 2), 6, 5.0, np.random.default_rng(3)

    def seen(M: np.ndarray) -> list[float]:
        assert M.shape == (k, 3)
        return [M[0, 0], M[-1, 2], M[0] @ M[1], M[1, 0] * M[-1, 0], M[0] @ M[0]]

    def ours() -> list[float]:
        return seen(paper.gauss_mix(A, k, sigma, row_norm=C, method=method, rng=rng).sample_rows(rng))

    found = [ours() for _ in range(DRAWS)]
    right = compared(found, [seen(naive.gauss_mix(A, k, sigma, rng)) for _ in range(DRAWS)])
    wrong = compared(found, [seen(naive.gauss_mix(A, k, sigma, rng, 1.1)) for _ in range(DRAWS)])
    shown(record_property, method, right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


# ---------------------------------------------------------------------------------------------------------------
# Algorithm 1, with C = 2 so that mistakes of units are seen
CASES = {  # γ, τ, η, and the scale of a table of 200 rows, whose λ_min/C² is about 10 at scale 1.5
    "first branch": (3.0, 4.0, 1.0, 0.4),
    "noise is lowered": (20.0, 1.0, 3.0, 1.5),
    "noise is full": (20.0, 2.0, 3.0, 0.2),
    "noise is gone": (3.0, 0.5, 2.0, 2.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["gram", "explicit"])
def test_algorithm_1(case, method, record_property):
    gamma, tau, eta, scale = CASES[case]
    A, k, rng = table(200, 3, 4, scale), 15, np.random.default_rng(5)
    lambda_min = np.linalg.eigvalsh(A.T @ A)[0] / C**2

    def ours() -> list[float]:
        sketch = paper.modified_gauss_mix(A, C, k, gamma, tau, eta, n_max=200, method=method, rng=rng)
        assert (sketch.certificate.v is None) == (gamma <= tau)
        return [round(sketch.sigma**2, 9), *summaries(sketch.noisy_second_moment)]

    def theirs(noise: float = 1.0) -> list[float]:
        M, sigma2 = naive.modified_gauss_mix(A, C, k, gamma, tau, eta, rng, noise)
        return [round(sigma2, 9), *summaries(M.T @ M / k)]

    found = [ours() for _ in range(DRAWS)]
    right = compared(found, [theirs() for _ in range(DRAWS)])
    shown(record_property, f"{case}, {method}", right=right)
    assert right > ALARM
    variances = np.array(found)[:, 0] / C**2
    if case == "noise is gone":
        assert lambda_min > 10
        assert np.mean(variances == 0) > 0.9
        return
    wrong = compared(found, [theirs(1.1) for _ in range(DRAWS)])
    shown(record_property, f"{case}, {method}", wrong=wrong)
    assert wrong < ALARM
    assert (variances.std() > 1) == (case == "noise is lowered")


@pytest.mark.slow
def test_the_private_eigenvalue_is_normal():
    """v is exactly λ_min/C² - e - η(τ - z), rounded down to the grid."""
    A, gamma, tau, eta, rng = table(200, 3, 4, 1.5), 20.0, 1.0, 3.0, np.random.default_rng(6)
    exact = np.linalg.eigvalsh(A.T @ A)[0] / C**2
    sketches = [paper.modified_gauss_mix(A, C, 3, gamma, tau, eta, n_max=200, rng=rng) for _ in range(DRAWS)]
    z = np.array([(sketch.certificate.v - exact) / eta + tau for sketch in sketches])
    assert stats.kstest(z, "norm").pvalue > ALARM
    energy = np.sum((z - z.mean()) ** 2)  # chi-square with DRAWS - 1 degrees of freedom
    assert min(stats.chi2.cdf(energy, DRAWS - 1), stats.chi2.sf(energy, DRAWS - 1)) > ALARM
    assert stats.chi2.sf(energy * 1.1**2, DRAWS - 1) < ALARM  # a tenth more noise would be seen


# ---------------------------------------------------------------------------------------------------------------
# Algorithm 2
def regression(n: int, d: int, seed: int):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.clip(X @ np.linspace(1.0, 0.5, d) + rng.uniform(-0.2, 0.2, n), -2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("analysis", "epsilon"), [("paper", 3.0), ("paper", 12.0), ("exact", 3.0)])
def test_coefficients_of_linear_mixing(analysis, epsilon, record_property):
    n, d, delta, C_X, C_Y = 300, 2, 1e-4, 1.5, 2.0
    (X, y), k, rng = regression(n, d, 7), math.ceil(2.5 * math.log(1e10)), np.random.default_rng(8)
    if analysis == "paper":
        gamma = naive.linear_mixing_gamma(epsilon, delta, k)
        parameters = {"gamma": gamma, "tau": math.sqrt(2 * math.log(3 / delta)), "eta": gamma / math.sqrt(k)}
    else:
        found = calibrate(epsilon, delta, sketch_size=k, scale="private")
        parameters = {"gamma": found.gamma, "tau": found.tau, "eta": found.eta}
    model = paper.LinearMixing(
        epsilon=epsilon, delta=delta, data_norm=C_X, bounds_y=(-C_Y, C_Y), analysis=analysis, n_max=n, random_state=rng
    )
    used = model.fit(X, y).certificate_
    assert (used.k, used.row_norm) == (k, 2.5)
    assert {name: getattr(used, name) for name in parameters} == pytest.approx(parameters, rel=1e-6)
    ours = [model.fit(X, y).coef_ for _ in range(DRAWS)]
    theirs = [naive.linear_mixing(X, y, C_X, C_Y, k, **parameters, rng=rng) for _ in range(DRAWS)]
    planted = [naive.linear_mixing(X, y, C_X, C_Y, k, **parameters, rng=rng, noise=1.1) for _ in range(DRAWS)]
    right, wrong = compared(ours, theirs), compared(ours, planted)
    shown(record_property, f"{analysis}, ε = {epsilon:g}", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("Q", [6.0, 2.0])
def test_coefficients_of_logistic_mixing(Q, record_property):
    n, d, epsilon, delta, C_X = 400, 2, 3.0, 1e-4, 1.5
    (X, y), k, rng = regression(n, d, 9), 40, np.random.default_rng([10, int(Q)])
    labels, signs = np.where(y > 0, "yes", "no"), np.where(y > 0, 1.0, -1.0)
    gamma = naive.linear_mixing_gamma(epsilon, delta, k)
    parameters = {"gamma": gamma, "tau": math.sqrt(2 * math.log(3 / delta)), "eta": gamma / math.sqrt(k)}
    model = paper.LogisticMixing(
        epsilon=epsilon,
        delta=delta,
        data_norm=C_X,
        surrogate_radius=Q,
        sketch_size=k,
        n_max=n,
        classes=("no", "yes"),
        random_state=rng,
    )
    scale = naive.surrogate_scale(Q)
    ours = [model.fit(X, labels).coef_[0] for _ in range(DRAWS)]
    theirs = [scale * naive.linear_mixing(X, signs, C_X, 1.0, k, **parameters, rng=rng) for _ in range(DRAWS)]
    planted = [
        scale * naive.linear_mixing(X, signs, C_X, 1.0, k, **parameters, rng=rng, noise=1.1) for _ in range(DRAWS)
    ]
    right, wrong = compared(ours, theirs), compared(ours, planted)
    shown(record_property, f"Q = {Q:g}", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


@pytest.mark.slow
def test_stacked_sketches_are_one_of_all_rows(record_property):
    A, sigma, rng = table(40, 3, 11), 5.0, np.random.default_rng(12)
    ks = (4, 2, 6)

    def ours() -> list[float]:
        sketches = [paper.gauss_mix(A, k, sigma, row_norm=C, rng=rng) for k in ks]
        return summaries(paper.stack(sketches).noisy_second_moment)

    def theirs(noise: float = 1.0) -> list[float]:
        M = naive.gauss_mix(A, sum(ks), sigma, rng, noise)
        return summaries(M.T @ M / sum(ks))

    found = [ours() for _ in range(DRAWS)]
    right = compared(found, [theirs() for _ in range(DRAWS)])
    wrong = compared(found, [theirs(1.1) for _ in range(DRAWS)])
    shown(record_property, "stack", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


# ---------------------------------------------------------------------------------------------------------------
# Baselines
BOUNDS = {"data_norm": 1.5, "bounds_y": (-2.0, 2.0), "fit_intercept": False}
MORE_DRAWS = 2 * DRAWS  # where θ is nearly normal


@pytest.mark.slow
@pytest.mark.parametrize("analysis", ["printed", "exact"])
def test_coefficients_of_adassp(analysis, record_property):
    epsilon, delta, rho, C_X, C_Y = 3.0, 1e-4, 0.05, 1.5, 2.0
    (X, y), rng = regression(300, 2, 13), np.random.default_rng([14, len(analysis)])
    joint = {"scale": math.sqrt(3) / accounting.gaussian_mu(epsilon, delta), "off_diagonal": math.sqrt(0.5)}
    options = joint if analysis == "exact" else {}
    model = baselines.AdaSSP(epsilon=epsilon, delta=delta, rho=rho, analysis=analysis, random_state=rng, **BOUNDS)
    ours = [model.fit(X, y).coef_ for _ in range(MORE_DRAWS)]
    theirs = [naive.adassp(X, y, C_X, C_Y, epsilon, delta, rho, rng, **options) for _ in range(MORE_DRAWS)]
    planted = [naive.adassp(X, y, C_X, C_Y, epsilon, delta, rho, rng, 1.1, **options) for _ in range(MORE_DRAWS)]
    right, wrong = compared_with_spread(ours, theirs), compared_with_spread(ours, planted)
    shown(record_property, f"AdaSSP, {analysis}", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("analysis", ["sheffet", "renyi"])
@pytest.mark.parametrize("noise", ["always", "sometimes"])
def test_coefficients_of_sheffets_algorithm(analysis, noise, record_property):
    """Where the test of λ_min decides either way, the share of sketches without noise is compared as well."""
    delta, k, C_X, C_Y, draws = 1e-4, 25, 1.5, 2.0, MORE_DRAWS if noise == "always" else DRAWS
    epsilon = 3.0 if noise == "always" else 20.0
    (X, y), rng = regression(300, 2, 15), np.random.default_rng([16, len(analysis), len(noise)])
    found = naive.sheffet_gamma if analysis == "sheffet" else naive.sheffet_renyi_gamma
    gamma = found(epsilon, delta, k)
    if noise == "sometimes":  # enough rows to bring λ_min to the threshold, and a scale for the rest
        threshold = gamma + 4 * math.log(1 / delta) / epsilon
        X, y = np.tile(X, (40, 1)), np.tile(y, 40) + 0.3 * rng.uniform(-1, 1, 40 * len(y))
        A = np.column_stack([X, np.clip(y, -2, 2)])
        shrink = math.sqrt(threshold * 6.25 / np.linalg.eigvalsh(A.T @ A)[0])
        assert shrink < 1
        X, y = shrink * X, shrink * np.clip(y, -2, 2)
    model = baselines.SheffetMixing(
        epsilon=epsilon, delta=delta, analysis=analysis, sketch_size=k, random_state=rng, **BOUNDS
    )
    account = model.fit(X, y).privacy_.account
    assert account.gamma == pytest.approx(gamma, rel=1e-6)
    ours = [model.fit(X, y).coef_ for _ in range(draws)]
    theirs = [naive.sheffet(X, y, C_X, C_Y, k, gamma, epsilon, delta, rng) for _ in range(draws)]
    planted = [naive.sheffet(X, y, C_X, C_Y, k, gamma, epsilon, delta, rng, 1.1)[0] for _ in range(draws)]
    noisy = np.mean([drawn for _, drawn in theirs])
    right = compared_with_spread(ours, [theta for theta, _ in theirs])
    wrong = compared_with_spread(ours, planted)
    shown(record_property, f"Sheffet, {analysis}, noise {noise}", right=right, wrong=wrong, noisy=noisy)
    assert right > ALARM
    assert noisy == 1 if noise == "always" else 0.2 < noisy < 0.8
    if noise == "always":
        assert wrong < ALARM
    else:  # draws without noise must be missed if all sketches had it
        always = [naive.sheffet(X, y, C_X, C_Y, k, 10 * gamma, epsilon, delta, rng)[0] for _ in range(draws)]
        assert compared(ours, always) < ALARM


@pytest.mark.slow
def test_coefficients_of_objective_perturbation(record_property):
    epsilon, delta, C_X = 3.0, 1e-4, 1.5
    (X, y), rng = regression(300, 2, 17), np.random.default_rng(18)
    labels = np.where(y > 0, 1.0, -1.0)
    model = baselines.ObjectivePerturbation(
        epsilon=epsilon, delta=delta, data_norm=C_X, fit_intercept=False, classes=(-1, 1), random_state=rng
    )
    ours = [model.fit(X, labels).coef_[0] for _ in range(MORE_DRAWS)]
    theirs = [naive.objective_perturbation(X, labels, C_X, epsilon, delta, rng) for _ in range(MORE_DRAWS)]
    planted = [naive.objective_perturbation(X, labels, C_X, epsilon, delta, rng, 1.1) for _ in range(MORE_DRAWS)]
    right, wrong = compared_with_spread(ours, theirs), compared_with_spread(ours, planted)
    shown(record_property, "objective perturbation", right=right, wrong=wrong)
    assert right > ALARM
    assert wrong < ALARM
