"""No claim is violated, and planted faults are detected: an audit that cannot find a fault proves nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from scipy import stats

import audit
from audit import neighbours, subjects
from audit.bounds import lower_bounds
from audit.neighbours import CORNER, Neighbours, repeat
from audit.runner import plot
from audit.subjects import SUBJECTS, Subject
from gaussmix.accounting import gaussian_epsilon
from gaussmix.accounting.sites import Sites
from gaussmix.baselines import adassp
from gaussmix.data import encode, gram, kernels, scores
from gaussmix.data.columns import Numeric, Vector
from gaussmix.data.rows import ArrayRows
from gaussmix.data.schema import Schema
from gaussmix.estimators import LinearRegression
from gaussmix.ledger import composition, ledger
from gaussmix.ledger import ledger as ledger_module
from gaussmix.mechanism import bounds, noise, passes
from gaussmix.mechanism.noise import secure_generator
from gaussmix.paper import mixing

LOOSE = {"epsilon": 2.0, "delta": 0.2}
"""A budget for which few runs can refute the claim."""


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """Use the same noise in every run of the tests, which is faster too; one test below uses the secure generator."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(subjects, "secure_generator", lambda: rng)


# ---------------------------------------------------------------------------------------------------------------
# Claims
FAST, MEDIUM, SLOW = (1.0, 0.2, 200), (0.5, 0.2, 60), (0.25, 0.2, 24)
"""ε, δ and number of runs: with fewer runs only violations of a smaller ε can be found."""

CLAIMS = (
    dict.fromkeys(subjects.FAST, FAST)
    | dict.fromkeys(subjects.EXPENSIVE, SLOW)
    | dict.fromkeys(["proposed-levels", "proposed-bounds", "objective-perturbation"], MEDIUM)
)


def claim(name: str) -> dict[str, Any]:
    """Arguments of `audit.run`."""
    return dict(zip(("epsilon", "delta", "runs"), CLAIMS[name], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_claims_hold(name):
    epsilon, delta, runs = CLAIMS[name]
    found = audit.run(name, **claim(name))
    assert found.holds, str(found)
    assert found.points[0].claimed == epsilon
    # Power: tables that are distinguished in every run would clearly violate the claim.
    (most,) = lower_bounds(np.ones((runs, 1)), np.zeros((runs, 1)), [delta], confidence=found.confidence)
    assert most > 1.5 * epsilon


@pytest.mark.parametrize(
    "name",
    ["release", "ledger", "sketch-replace-one", "linear", "logistic", "declared-model", "adassp", "proposed-levels"],
)
@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_claimed_curves_go_through_the_claim(name):
    subject = SUBJECTS[name](epsilon=1.0, delta=1e-3)
    assert subject.claimed(1e-3) == pytest.approx(1.0, rel=1e-2)
    assert 0 < subject.claimed(0.05) < subject.claimed(0.01) < 0.7


@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_passes_over_binary_columns_stay_in_the_declared_metric():
    subject, rng = SUBJECTS["passes-binary"](epsilon=0.25, delta=0.2), np.random.default_rng(0)
    rows = subject.neighbours.rows(present=True)
    drawn = passes.draw_passes(rows, rows.gram, *subject.accounts, rng)
    assert [output.request.metric.declared for output in drawn.passes[1:]] == [True] * 3


@pytest.mark.slow
def test_the_bound_of_a_release_is_tight():
    """The likelihood ratio is known: 4,000 runs prove most of the claimed ε."""
    assert audit.run("release", runs=4_000, **LOOSE).tightness > 0.75


def test_the_claim_holds_with_the_secure_generator(monkeypatch):
    monkeypatch.setattr(subjects, "secure_generator", secure_generator)
    found = audit.run("release", runs=1_500, confidence=1 - 1e-6, **LOOSE)
    assert found.holds
    assert found.tightness > 0.05


@pytest.mark.parametrize("name", ["release", "replace-one", "weights", "units", "ledger"])
def test_the_likelihood_ratio_has_the_claimed_distribution(name):
    """N(±μ²/2, μ²): the neighbours use the whole budget, no less and no more."""
    subject = SUBJECTS[name](epsilon=1.0, delta=1e-3)
    mu = math.hypot(*(account.mu for account in subject.accounts))
    assert subject.claimed(1e-3) == pytest.approx(1.0, rel=1e-2)
    assert subject.claimed(0.1) == pytest.approx(gaussian_epsilon(0.1, mu=mu), rel=1e-6)
    found = [
        (subject.observe(present=present, runs=1_200)[:, 0] - sign * mu**2 / 2) / mu
        for present, sign in ((True, 1), (False, -1))
    ]
    for seen in found:
        assert stats.kstest(seen, "norm").pvalue > 1e-4
    # If the noise is 10 % too small, the standard deviation is 0.9: off by seven standard errors of 2,400 runs.
    assert np.std(found) == pytest.approx(1.0, abs=4.5 / np.sqrt(2 * np.size(found)))


def test_ratios_against_densities():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 2))
    absent, present = A.T @ A, A.T @ A + np.outer([1.0, 2.0], [1.0, 2.0])
    W = stats.wishart(5, absent).rvs(random_state=0)
    exact = stats.wishart(5, present).logpdf(W) - stats.wishart(5, absent).logpdf(W)
    assert neighbours.wishart_ratio(W, absent, present, k=5) == pytest.approx(exact)
    M = rng.standard_normal((2, 2))
    M = M + M.T
    logs = [
        sum(
            stats.norm(mean[i, j], 2.0 if i == j else 2.0 / math.sqrt(2)).logpdf(M[i, j])
            for i, j in ((0, 0), (0, 1), (1, 1))
        )
        for mean in (absent, present)
    ]
    assert neighbours.symmetric_ratio(M, absent, present, mu=0.5) == pytest.approx(logs[1] - logs[0])


@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_objective_perturbation_has_the_density_of_the_attack():
    """The distribution of one coefficient against the integral of the density over the other."""
    subject = SUBJECTS["objective-perturbation"](epsilon=4.0, delta=0.1)
    seen = subject.observe(present=False, runs=200)
    model = subjects.ObjectivePerturbation(epsilon=4.0, delta=0.1, bounds_X=(-1, 1), classes=(-1.0, 1.0))
    account = model.fit(*subject.neighbours.arrays(present=False)).privacy_.account
    grids = [np.linspace(*(seen[:, j].mean() + seen[:, j].std() * np.array([-6, 6])), 81) for j in (1, 2)]
    logs = np.array(
        [[subject.log_density(np.array([a, b]), account, present=False) for b in grids[1]] for a in grids[0]]
    )
    density = np.exp(logs - logs.max()).sum(axis=1)
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert stats.kstest(seen[:, 1], lambda x: np.interp(x, grids[0], cdf / cdf[-1])).pvalue > 1e-4


# ---------------------------------------------------------------------------------------------------------------
# Planted faults
def less_noise(monkeypatch, module, part):
    """Multiply the noise by ``part`` where it is drawn."""
    for name in ("diagonal_sigma", "off_diagonal_sigma"):
        if hasattr(module, name):
            honest = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *given, honest=honest, **rows: part * honest(*given, **rows))


@pytest.mark.slow
def test_noise_a_fifth_too_small_is_detected(monkeypatch):
    less_noise(monkeypatch, passes, 0.8)
    assert not audit.run("release", runs=4_000, **LOOSE).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sketch", "sketch-replace-one"])
def test_gamma_without_the_row_norm_is_detected(name, monkeypatch):
    """Noise of variance γ where γC² is needed, C² = 2."""
    honest = mixing.covariance_factor
    monkeypatch.setattr(mixing, "covariance_factor", lambda gram, sigma2: honest(gram, sigma2 / 2))
    assert not audit.run(name, runs=2_000, **LOOSE).holds


def test_weights_not_divided_by_their_bound_are_detected(monkeypatch):
    """Rows of weight 4 then have twice the allowed norm."""
    honest = encode._roots_of_weights
    monkeypatch.setattr(kernels, "serves", lambda columns: False)
    monkeypatch.setattr(encode, "_roots_of_weights", lambda schema, arrays: 2 * honest(schema, arrays))
    assert not audit.run("weights", **claim("weights")).holds


def test_a_ledger_that_ignores_earlier_releases_is_detected(monkeypatch):
    """Each of four releases takes the whole budget: together twice μ."""
    monkeypatch.setattr(ledger, "part_of", lambda reserved, share: composition.part_of(reserved, Fraction(1)))
    monkeypatch.setattr(ledger_module, "room_left", lambda reserved, entries: composition.room_left(reserved, []))
    four = partial(SUBJECTS["ledger"], shares=("1/4",) * 4)
    assert not audit.run(four, runs=600, **LOOSE | {"epsilon": 1.0}).holds


class EigenvalueBound(subjects.FittedMixing):
    """The published bound on the eigenvalue alone: less than Algorithm 1 publishes, but fast."""

    def scores(self, *, present):
        gram, found = self.neighbours.rows(present=present).gram().floats(), self.calibration
        rng = subjects.secure_generator()
        while True:
            yield [mixing.draw_eigenvalue(gram, found.gamma, found.eta, found.tau, found.eigenvalue_error, rng)]


@pytest.mark.slow
def test_the_eigenvalue_noise_of_the_published_code_is_detected(monkeypatch):
    """Noise √η instead of η, much less if η is large: here 3.2 instead of 10.5."""

    def published(gram, gamma, eta, tau, error, rng):
        return max(np.linalg.eigvalsh(gram)[0] - error, 0.0) - eta * tau + math.sqrt(eta) * rng.standard_normal()

    monkeypatch.setattr(mixing, "draw_eigenvalue", published)
    found = audit.run(partial(EigenvalueBound, "eigenvalue bound"), runs=30_000, epsilon=0.2, delta=0.01)
    assert found.tightness > 1.3, str(found)


@pytest.mark.parametrize("name", ["modified", "modified-paper"])
def test_an_eigenvalue_bound_without_noise_is_detected(name, monkeypatch):
    def exact(gram, gamma, eta, tau, error, rng):
        return float(np.linalg.eigvalsh(gram)[0]) - eta * tau

    monkeypatch.setattr(mixing, "draw_eigenvalue", exact)
    assert not audit.run(name, **claim(name)).holds


@pytest.mark.slow
def test_the_operator_slip_in_adassp_is_detected(monkeypatch):
    """λ_min with noise 9/(ε²√L), as in the published code."""

    def slipped(gram, columns, sensitivity, noise, n_rows, rng):
        std = 9 / (5.0**2 * math.sqrt(math.log(6 / 0.2))) * sensitivity
        return float(np.linalg.eigvalsh(gram)[0]) + std * rng.standard_normal()

    monkeypatch.setattr(adassp, "_noisy_eigenvalue", slipped)
    assert not audit.run("adassp", runs=2_400, **LOOSE | {"epsilon": 5.0}).holds


@pytest.mark.slow
def test_missing_norm_clipping_is_detected(monkeypatch):
    monkeypatch.setattr(kernels, "serves", lambda columns: False)
    monkeypatch.setattr(gram, "clip_norms", lambda *rows: None)
    assert not audit.run("passes", runs=60, **LOOSE | {"epsilon": 1.0}).holds


def test_rows_beyond_the_clipping_norm_are_detected(monkeypatch):
    """In the declared metric no row is clipped if the clipping norm is right."""
    plan = passes.plan_pass

    def short(*given, **options):
        found = plan(*given, **options)
        return dataclasses.replace(found, clip=found.clip / 10)

    monkeypatch.setattr(passes, "plan_pass", short)
    monkeypatch.setattr(kernels, "serves", lambda columns: False)
    monkeypatch.setattr(gram, "clip_norms", lambda *rows: None)
    assert not audit.run("passes-binary", **claim("passes-binary")).holds


@pytest.mark.parametrize(("name", "runs"), [("units", 200), ("units-passes", 24), ("linear-units", 60)])
def test_a_missing_contribution_bound_is_detected(name, runs, monkeypatch):
    """Each row is within its norm, but the unit has 20 of them."""
    monkeypatch.setattr(kernels, "serves", lambda columns: False)  # its sums would overflow
    monkeypatch.setattr(gram, "clip_norms", lambda *rows: None)
    assert not audit.run(name, **claim(name) | {"runs": runs}).holds


def test_missing_truncation_of_a_unit_is_detected(monkeypatch):
    """The rows that are kept need no clipping: the claim holds without it."""
    monkeypatch.setattr(kernels, "serves", lambda columns: False)
    monkeypatch.setattr(gram, "clip_norms", lambda *rows: None)
    assert audit.run("units-truncated", **claim("units-truncated")).holds
    monkeypatch.setattr("gaussmix.data.contributions.truncated", lambda block, unit, key: block)
    assert not audit.run("units-truncated", **claim("units-truncated")).holds


def test_half_the_noise_of_replace_one_is_detected(monkeypatch):
    less_noise(monkeypatch, passes, 0.5)
    assert audit.run("replace-one", runs=600, **LOOSE | {"epsilon": 0.5}).tightness > 1.2


@pytest.mark.parametrize("name", ["logistic", "top-coded", "passes-replace-one"])
def test_a_tenth_of_the_noise_in_passes_is_detected(name, monkeypatch):
    less_noise(monkeypatch, passes, 0.1)
    assert not audit.run(name, **claim(name)).holds


class FromTheRows(LinearRegression):
    """A correct release with coefficients computed from the rows."""

    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ = np.linalg.lstsq(X, y)[0]
        return self


@pytest.mark.slow
def test_coefficients_computed_from_the_rows_are_detected():
    estimator = partial(FromTheRows, bounds_X=(-1, 1), bounds_y=(-1, 1))
    subject = partial(subjects.FittedEstimator, "LinearRegression", subjects.LINE, estimator)
    assert not audit.run(subject, **claim("linear")).holds


@pytest.mark.slow
def test_a_tenth_of_the_noise_of_declared_models_is_detected(monkeypatch):
    less_noise(monkeypatch, passes, 0.1)
    assert not audit.run("declared-model", runs=100, **LOOSE | {"epsilon": 0.5}).holds


def test_scores_that_are_not_clipped_stop_a_release(monkeypatch):
    monkeypatch.setattr(scores, "clip_norms", lambda *rows: None)
    with pytest.raises(RuntimeError, match="exceeds its norm bound"):
        audit.run("declared-model", runs=4, **LOOSE)


@pytest.mark.parametrize("name", ["proposed-levels", "proposed-bounds"])
def test_a_tenth_of_the_noise_of_a_proposal_is_detected(name, monkeypatch):
    less_noise(monkeypatch, bounds, 0.1)
    assert not audit.run(name, **LOOSE | {"epsilon": 0.25, "runs": 60}).holds


def test_an_eigenvalue_of_adassp_without_noise_is_detected(monkeypatch):
    monkeypatch.setattr(adassp, "_noisy_eigenvalue", lambda gram, *noise: float(np.linalg.eigvalsh(gram)[0]))
    assert not audit.run("adassp-printed", **claim("adassp-printed")).holds


class Quiet(np.random.Generator):
    """A hundredth of Laplace and Gaussian noise."""

    def laplace(self, scale):
        return super().laplace(scale=scale) / 100

    def standard_normal(self, size=None):
        return super().standard_normal(size) / 100


@pytest.mark.parametrize("name", ["sheffet", "sheffet-renyi"])
def test_a_hundredth_of_the_noise_of_sheffet_is_detected(name, monkeypatch):
    quiet = Quiet(np.random.PCG64(0))
    monkeypatch.setattr(subjects, "secure_generator", lambda: quiet)
    assert not audit.run(name, **claim(name)).holds


def test_a_hundredth_of_the_noise_of_an_objective_is_detected(monkeypatch):
    """Its constants are conservative: a tenth of the noise would not violate the claim."""
    quiet = Quiet(np.random.PCG64(0))
    monkeypatch.setattr(subjects, "secure_generator", lambda: quiet)
    assert not audit.run("objective-perturbation", **claim("objective-perturbation")).holds


@pytest.mark.slow
def test_histograms_without_noise_are_detected(monkeypatch):
    """The release publishes the estimated number of rows, which comes from them."""
    monkeypatch.setattr(passes._Draw, "histograms", lambda self, found, *_: [c.astype(float) for c in found()])
    assert not audit.run("passes", **claim("passes")).holds


JOINT = partial(subjects.JointRelease, "joint release", subjects.ZEROS)


class NoiseForAll(Sites):
    """The planted fault: each site draws a k-th of the variance that a curator would draw, not a (k - t)-th."""

    def share(self, sigma):
        return super().share(sigma) / self.price


def standard_ratios(sites):
    """What colluding sites see as a likelihood ratio, N(±μ²/2, μ²) by the claim, brought to N(0, 1)."""
    subject = JOINT(sites=sites, epsilon=1.0, delta=1e-3)
    # The ratio of the published noise is smaller by the same factor in all entries.
    mu, scale = sites.mu(subject.account), (sites.number - sites.colluding) / sites.number
    found = [subject.observe(present=present, runs=1_200)[:, 0] / scale for present in (True, False)]
    return [(seen - sign * mu**2 / 2) / mu for seen, sign in zip(found, (1, -1), strict=True)]


@pytest.mark.parametrize(("k", "t"), [(3, 1), (2, 1), (5, 2)])
def test_the_view_of_colluding_sites_has_the_claimed_distribution(k, t):
    """The guarantee against t sites is attained and not exceeded. Noise for k instead of k - t sites has too small a
    standard deviation."""
    for seen in standard_ratios(Sites(k, t)):
        assert stats.kstest(seen, "norm").pvalue > 1e-4
        assert np.std(seen) == pytest.approx(1.0, abs=4.5 / np.sqrt(2 * np.size(seen)))
    planted = standard_ratios(NoiseForAll(k, t))
    assert stats.kstest(np.concatenate(planted), "norm").pvalue < 1e-4
    for seen in planted:
        assert np.std(seen) < 1.0 - 4.5 / np.sqrt(2 * np.size(seen))


class Repeated(subjects.JointRelease):
    """An attacker who lets a run fail after its opening and asks again: the site stored its noise, or draws anew."""

    stored = True

    def scores(self, *, present):
        views = super().scores(present=present)
        while True:
            first = next(views)[0]
            yield [first + (first if self.stored else next(views)[0])]


class Redrawn(Repeated):
    stored = False


LOOSER = {"epsilon": 1.0, "delta": 0.1, "runs": 1500}


def test_noise_for_all_sites_instead_of_the_honest_ones_is_detected():
    assert audit.run(partial(JOINT, sites=Sites(2, 1)), **LOOSER).holds
    assert not audit.run(partial(JOINT, sites=NoiseForAll(2, 1)), **LOOSER).holds


def test_new_noise_for_a_repeated_question_is_detected():
    """What sites do instead, storing their noisy sums, is in tests/mechanism/test_sites.py."""
    make = [partial(kind, "repeated", subjects.ZEROS, sites=Sites(3, 1)) for kind in (Repeated, Redrawn)]
    assert audit.run(make[0], **LOOSER).holds
    assert not audit.run(make[1], **LOOSER).holds


def test_more_colluding_sites_than_tolerated_are_outside_of_the_claim():
    """One honest site of five: its share of the noise alone is a third of what the claim needs."""
    assert not audit.run(partial(JOINT, sites=Sites(5, 2), honest=1), **LOOSER).holds


class BoundFromTheData(Subject):
    """A release that declares the largest value of the data as the bound."""

    def scores(self, *, present):
        X, y = self.neighbours.arrays(present=present)
        bound = float(np.abs(X).max())
        schema = Schema({"X": Vector(1, lower=-bound, upper=bound), "y": Numeric(-1, 1)}, intercept=0.0)
        rows, rng = ArrayRows(X, y, schema, threads=1), secure_generator()
        (account,) = SUBJECTS["release"](**self.budget).accounts
        while True:
            drawn = passes.draw_passes(rows, rows.gram, account, rng)
            yield [float(drawn.passes[0].matrix[0, 0]), float(drawn.schema.columns["X"].upper)]


def test_a_bound_from_the_data_is_detected():
    subject = partial(BoundFromTheData, "a bound from the data", Neighbours(repeat(20, (0.1, 0.1)), CORNER))
    assert not audit.run(subject, runs=60, **LOOSE | {"epsilon": 1.0}).holds


# ---------------------------------------------------------------------------------------------------------------
# Results
def test_results_as_json_and_as_a_figure(tmp_path):
    found = audit.run("sketch", runs=100, **LOOSE)
    fields = json.loads(json.dumps(found.to_dict()))
    assert fields["subject"] == "sketch"
    assert fields["points"][0] == {"delta": 0.2, "claimed": 2.0, "lower_bound": found.points[0].lower_bound}
    plot(tmp_path / "audit.png", [found])
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_a_claimed_curve_passes_through_the_points():
    found = audit.run("sketch", runs=20)
    deltas, claimed = np.array(found.curve).T
    assert (deltas[0], deltas[-1]) == pytest.approx((1e-3, 0.1))
    assert len(deltas) == 30
    for point in found.points[1:]:
        assert np.interp(math.log(point.delta), np.log(deltas), claimed) == pytest.approx(point.claimed, rel=1e-2)
    assert "curve" not in found.to_dict()
    assert audit.run("modified", runs=20).curve == ()


def test_processes_share_the_runs():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = audit.run("sketch", runs=600, **LOOSE, pool=pool)
    assert found.holds
    assert found.runs == 600


def test_the_sampler_is_remembered_by_count_and_scale():
    one, other = (noise._opendp_mechanism(3, sigma) for sigma in (5.0, 7.0))
    assert noise._opendp_mechanism(3, 5.0) is one is not other
