"""Every subject is attacked, and known faults are caught: an audit that cannot find a fault proves nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import audit
from audit import fitted, ledgers, likelihoods, persons, proposals, releases
from audit.picture import draw_audits
from audit.running import attack
from audit.subject import CORNER, Neighbours, Subject, repeated
from gaussmix.accounting import gaussian_epsilon
from gaussmix.accounting.gaussian import gaussian_mu
from gaussmix.estimators import LinearMixing
from gaussmix.ledger import ledger as ledger_module
from gaussmix.ledger import plans, reservation, store
from gaussmix.mechanism import adassp, lattice, mixing, passes, proposing
from gaussmix.mechanism.sampling import secure_generator
from gaussmix.tables import arrow, fused, gradients, person_tallies, tallies
from gaussmix.tables import persons as person_rows
from gaussmix.tables.columns import Numeric, Vector
from gaussmix.tables.rows import ArrayRows
from gaussmix.tables.schema import Schema

LOOSE = {"epsilon": 2.0, "delta": 0.2, "processes": 1, "progress": False}
"""A claim that few runs can refute."""


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """The same noise in every run of the tests, and faster; the secure one is attacked in one test below."""
    rng = np.random.default_rng(0)
    for module in (releases, ledgers, fitted, proposals):
        monkeypatch.setattr(module, "secure_generator", lambda: rng)


# ---------------------------------------------------------------------------------------------------------------
# Claims
SOME, FEW, LEAST = (1.0, 0.2, 200), (0.5, 0.2, 60), (0.25, 0.2, 24)
"""ε, δ and runs of a claim: what costs more is run less, and claims less."""

CLAIMS = {
    "release": SOME,
    "replace-one": SOME,
    "weights": SOME,
    "passes": LEAST,
    "replace-in-passes": LEAST,
    "tails": LEAST,
    "yes-and-no": LEAST,
    "persons": SOME,
    "persons-kept": SOME,
    "person-passes": LEAST,
    "ledger": SOME,
    "ledger-sketches": SOME,
    "sketch": SOME,
    "replace-in-sketch": SOME,
    "modified": SOME,
    "linear": LEAST,
    "linear-persons": LEAST,
    "logistic": LEAST,
    "steps": LEAST,
    "proposed-levels": FEW,
    "proposed-bounds": FEW,
    "adassp": SOME,
    "adassp-printed": SOME,
    "sheffet": SOME,
    "sheffet-renyi": SOME,
    "objective-perturbation": FEW,
}


def claim(name: str) -> dict[str, Any]:
    """Arguments of `audit.run`."""
    epsilon, delta, runs = CLAIMS[name]
    return {"epsilon": epsilon, "delta": delta, "runs": runs, "processes": 1, "progress": False}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_hold(name):
    epsilon, delta, runs = CLAIMS[name]
    found = audit.run(name, **claim(name))
    assert found.holds, str(found)
    assert found.points[0].claimed == epsilon
    # Power: tables that can be told apart in every run would break the claim, and clearly.
    (most,) = attack(np.ones((runs, 1)), np.zeros((runs, 1)), [delta], confidence=found.confidence)
    assert most > 1.5 * epsilon


def test_every_subject_is_attacked_above():
    assert set(CLAIMS) == set(audit.SUBJECTS)


@pytest.mark.parametrize(
    "name", ["release", "ledger", "replace-in-sketch", "linear", "logistic", "steps", "adassp", "proposed-levels"]
)
@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_claimed_curves_go_through_the_claim(name):
    subject = audit.SUBJECTS[name](1.0, 1e-3)
    assert subject.claimed(1e-3) == pytest.approx(1.0, rel=1e-2)
    assert 0 < subject.claimed(0.05) < subject.claimed(0.01) < 0.7


@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_passes_over_yes_and_no_stay_in_the_declared_metric():
    subject, rng = releases.YesAndNo(*LEAST[:2]), np.random.default_rng(0)
    rows = subject.neighbours.rows(present=True)
    drawn = passes.draw_passes(rows, rows.moments(), subject.account, rng)
    assert [output.request.metric.declared for output in drawn.passes[1:]] == [True] * 3


def test_the_plain_release_is_tight():
    """The likelihood ratio is known, so that most of the claimed ε is shown."""
    assert audit.run("release", runs=4_000, **LOOSE).share > 0.75


def test_the_secure_noise_is_attacked_too(monkeypatch):
    monkeypatch.setattr(releases, "secure_generator", secure_generator)
    found = audit.run("release", runs=1_500, confidence=1 - 1e-6, **LOOSE)
    assert found.holds
    assert found.share > 0.05


@pytest.mark.parametrize(
    "kind", [releases.OnePass, releases.ReplaceOne, releases.Weighted, persons.Persons, ledgers.Shares]
)
def test_the_likelihood_ratio_has_the_law_that_is_claimed(kind):
    """N(±μ²/2, μ²): neighbours that use the whole budget, no less and no more."""
    subject = kind(1.0, 1e-3)
    accounts = subject.accounts if kind is ledgers.Shares else [subject.account]
    mu = math.hypot(*(account.mu for account in accounts))
    assert subject.claimed(1e-3) == pytest.approx(1.0, rel=1e-2)
    assert subject.claimed(0.1) == pytest.approx(gaussian_epsilon(0.1, mu=mu), rel=1e-6)
    found = [
        (subject.observe(present=present, runs=1_200)[:, 0] - sign * mu**2 / 2) / mu
        for present, sign in ((True, 1), (False, -1))
    ]
    for seen in found:
        assert stats.kstest(seen, "norm").pvalue > 1e-4
    # Noise a tenth too small makes the deviation 0.9: seven standard errors of 2,400 runs.
    assert np.std(found) == pytest.approx(1.0, abs=4.5 / np.sqrt(2 * np.size(found)))


def test_ratios_against_densities():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 2))
    absent, present = A.T @ A, A.T @ A + np.outer([1.0, 2.0], [1.0, 2.0])
    W = stats.wishart(5, absent).rvs(random_state=0)
    exact = stats.wishart(5, present).logpdf(W) - stats.wishart(5, absent).logpdf(W)
    assert likelihoods.wishart_ratio(W, absent, present, k=5) == pytest.approx(exact)
    M = rng.standard_normal((2, 2))
    M = M + M.T
    logs = [
        sum(
            stats.norm(mean[i, j], 2.0 if i == j else 2.0 / math.sqrt(2)).logpdf(M[i, j])
            for i, j in ((0, 0), (0, 1), (1, 1))
        )
        for mean in (absent, present)
    ]
    assert likelihoods.symmetric_ratio(M, absent, present, mu=0.5) == pytest.approx(logs[1] - logs[0])


@pytest.mark.filterwarnings("ignore::gaussmix.errors.BudgetWarning")
def test_objective_perturbation_has_the_density_that_is_attacked():
    """One coefficient's law against the integral of the density over the other."""
    subject = fitted.Perturbed(4.0, 0.1)
    seen = subject.observe(present=False, runs=200)
    model = fitted.ObjectivePerturbation(epsilon=4.0, delta=0.1, bounds_X=(-1, 1), classes=(-1.0, 1.0))
    model.fit(*subject.neighbours.arrays(present=False))
    grids = [np.linspace(*(seen[:, j].mean() + seen[:, j].std() * np.array([-6, 6])), 81) for j in (1, 2)]
    logs = np.array(
        [[subject._log_density(np.array([a, b]), model, present=False) for b in grids[1]] for a in grids[0]]
    )
    density = np.exp(logs - logs.max()).sum(axis=1)
    law = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert stats.kstest(seen[:, 1], lambda x: np.interp(x, grids[0], law / law[-1])).pvalue > 1e-4


# ---------------------------------------------------------------------------------------------------------------
# Faults
def less_noise(monkeypatch, module, part):
    """A part of the noise where it is drawn."""
    for name in ("diagonal_sigma", "off_diagonal_sigma"):
        if hasattr(module, name):
            honest = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *given, honest=honest, **rows: part * honest(*given, **rows))


def test_noise_a_fifth_too_small_is_caught(monkeypatch):
    less_noise(monkeypatch, passes, 0.8)
    assert not audit.run("release", runs=4_000, **LOOSE).holds


@pytest.mark.parametrize("name", ["sketch", "replace-in-sketch"])
def test_gamma_without_the_row_norm_is_caught(name, monkeypatch):
    """Noise of variance γ where γC² is needed, C² = 2."""
    honest = mixing.factor
    monkeypatch.setattr(mixing, "factor", lambda gram, sigma2: honest(gram, sigma2 / 2))
    assert not audit.run(name, runs=2_000, **LOOSE).holds


def test_weights_that_are_not_divided_by_the_largest_are_caught(monkeypatch):
    """Rows of weight 4 are twice as long as they may be, and their squares four times."""
    honest = arrow._roots_of_weights
    monkeypatch.setattr(fused, "serves", lambda columns: False)
    monkeypatch.setattr(arrow, "_roots_of_weights", lambda schema, arrays: 2 * honest(schema, arrays))
    assert not audit.run("weights", **claim("weights")).holds


def test_a_ledger_that_forgets_what_was_spent_is_caught(monkeypatch):
    """Each of four releases takes all of the budget: twice μ."""
    monkeypatch.setattr(plans, "part_of", lambda reserved, share: reservation.part_of(reserved, Fraction(1)))
    monkeypatch.setattr(ledger_module, "room_left", lambda reserved, entries: reservation.room_left(reserved, []))
    monkeypatch.setattr(ledgers.Shares, "shares", ("1/4",) * 4)
    assert not audit.run("ledger", runs=600, **LOOSE | {"epsilon": 1.0}).holds


def test_sketches_beside_which_gaussian_releases_are_forgotten_are_caught(monkeypatch):
    """γ of the sketch rows alone, and a release in the limit that has all of μ besides; nobody checks it anew."""
    monkeypatch.setattr(store, "account_holds", lambda reserved: True)
    honest = reservation.reserved_gamma
    monkeypatch.setattr(reservation, "reserved_gamma", lambda *budget, mu, **given: honest(*budget, mu=0.0, **given))
    monkeypatch.setattr(ledgers, "gaussian_mu", lambda *budget: 2 * gaussian_mu(*budget))
    assert not audit.run("ledger-sketches", runs=2_000, **LOOSE | {"epsilon": 1.0}).holds


class Eigenvalue(releases.Modified):
    """The bound of the eigenvalue alone, which is published: less than all, and quick."""

    def observe(self, *, present: bool, runs: int) -> np.ndarray:
        moments, found = self.neighbours.rows(present=present).moments(), self.calibration
        noisy = (found, found.eta, found.tau, releases.secure_generator(), mixing.largest_table(None))
        return np.array([[mixing._private_eigenvalue(moments, *noisy)] for _ in range(runs)])


def test_the_published_noise_of_the_eigenvalue_is_caught(monkeypatch):
    """The square root of what is accounted, which is much less where η is large: here 3.2 for 10.5."""

    def published(moments, calibration, eta, tau, rng, n_max):
        lower = max(mixing.smallest_eigenvalue(moments.gram()) - calibration.eigenvalue_error, 0.0)
        return lower - eta * tau + math.sqrt(eta) * rng.standard_normal()

    monkeypatch.setattr(mixing, "_private_eigenvalue", published)
    found = audit.run(Eigenvalue, runs=30_000, epsilon=0.2, delta=0.01, processes=1, progress=False)
    assert found.share > 1.3, str(found)


def test_a_bound_of_the_eigenvalue_without_noise_is_caught(monkeypatch):
    """ModifiedGaussMix publishes it."""

    def exact(moments, calibration, eta, tau, rng, n_max):
        return mixing.smallest_eigenvalue(moments.gram()) - eta * tau

    monkeypatch.setattr(mixing, "_private_eigenvalue", exact)
    assert not audit.run("modified", **claim("modified")).holds


def test_adassps_slip_is_caught(monkeypatch):
    """λ_min with noise 9/(ε²√L), an operator too far to the left."""

    def slipped(gram, columns, sensitivity, noise, n_max, rng):
        std = 9 / (5.0**2 * math.sqrt(math.log(6 / 0.2))) * sensitivity
        return mixing.smallest_eigenvalue(gram) + std * rng.standard_normal()

    monkeypatch.setattr(adassp, "_noisy_eigenvalue", slipped)
    assert not audit.run("adassp", runs=2_400, **LOOSE | {"epsilon": 5.0}).holds


def test_rows_that_are_not_shortened_are_caught(monkeypatch):
    monkeypatch.setattr(fused, "serves", lambda columns: False)
    monkeypatch.setattr(tallies, "shorten", lambda *rows: None)
    assert not audit.run("passes", runs=60, **LOOSE | {"epsilon": 1.0}).holds


def test_declared_bounds_that_rows_exceed_are_caught(monkeypatch):
    """In the declared metric no row is longer than the clip, if the clip is right."""
    plan = passes.plan_pass

    def short(*given, **options):
        found = plan(*given, **options)
        return dataclasses.replace(found, clip=found.clip / 10)

    monkeypatch.setattr(passes, "plan_pass", short)
    monkeypatch.setattr(fused, "serves", lambda columns: False)
    monkeypatch.setattr(tallies, "shorten", lambda *rows: None)
    assert not audit.run("yes-and-no", **claim("yes-and-no")).holds


@pytest.mark.parametrize(("name", "runs"), [("persons", 200), ("person-passes", 24), ("linear-persons", 60)])
def test_persons_who_are_not_bounded_are_caught(name, runs, monkeypatch):
    """Each row is as short as it must be: their number is what tells."""
    monkeypatch.setattr(fused, "serves", lambda columns: False)  # which refuses sums as large as these
    monkeypatch.setattr(person_tallies, "shorten_together", lambda *rows: None)
    assert not audit.run(name, **claim(name) | {"runs": runs}).holds


def test_persons_whose_rows_are_all_kept_are_caught(monkeypatch):
    """Kept rows are short enough together: that they are shortened besides is not relied on."""
    monkeypatch.setattr(fused, "serves", lambda columns: False)
    monkeypatch.setattr(person_tallies, "shorten_together", lambda *rows: None)
    assert audit.run("persons-kept", **claim("persons-kept")).holds
    monkeypatch.setattr(person_rows, "kept", lambda block, unit, key: block)
    assert not audit.run("persons-kept", **claim("persons-kept")).holds


def test_half_the_noise_of_a_replaced_row_is_caught(monkeypatch):
    less_noise(monkeypatch, passes, 0.5)
    assert audit.run("replace-one", runs=600, **LOOSE | {"epsilon": 0.5}).share > 1.2


@pytest.mark.parametrize("name", ["logistic", "tails", "replace-in-passes"])
def test_a_tenth_of_the_noise_of_passes_is_caught(name, monkeypatch):
    less_noise(monkeypatch, passes, 0.1)
    assert not audit.run(name, **claim(name)).holds


class FromTheRows(LinearMixing):
    """Coefficients of the rows, beside a release that is as it should be."""

    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ = np.linalg.lstsq(X, y)[0]
        return self


def test_coefficients_of_the_rows_are_caught(monkeypatch):
    monkeypatch.setattr(fitted, "LinearMixing", FromTheRows)
    assert not audit.run("linear", **claim("linear")).holds


def test_gradients_that_are_not_shortened_are_caught(monkeypatch):
    monkeypatch.setattr(gradients, "shorten", lambda *rows: None)
    assert not audit.run("steps", runs=40, **LOOSE | {"epsilon": 0.5}).holds


@pytest.mark.parametrize("name", ["proposed-levels", "proposed-bounds"])
def test_a_tenth_of_the_noise_of_a_proposal_is_caught(name, monkeypatch):
    less_noise(monkeypatch, proposing, 0.1)
    assert not audit.run(name, **LOOSE | {"epsilon": 0.25, "runs": 60}).holds


def test_an_eigenvalue_without_noise_is_caught(monkeypatch):
    monkeypatch.setattr(adassp, "_noisy_eigenvalue", lambda gram, *noise: mixing.smallest_eigenvalue(gram))
    assert not audit.run("adassp-printed", **claim("adassp-printed")).holds


class Quiet(np.random.Generator):
    """A hundredth of the noise, of two laws."""

    def laplace(self, scale):
        return super().laplace(scale=scale) / 100

    def standard_normal(self, size=None):
        return super().standard_normal(size) / 100


@pytest.mark.parametrize("name", ["sheffet", "sheffet-renyi"])
def test_a_test_of_the_eigenvalue_with_hardly_any_noise_is_caught(name, monkeypatch):
    quiet = Quiet(np.random.PCG64(0))
    monkeypatch.setattr(fitted, "secure_generator", lambda: quiet)
    assert not audit.run(name, **claim(name)).holds


def test_an_objective_with_hardly_any_noise_is_caught(monkeypatch):
    """Its constants are large: a tenth of the noise would be within the claim."""
    quiet = Quiet(np.random.PCG64(0))
    monkeypatch.setattr(fitted, "secure_generator", lambda: quiet)
    assert not audit.run("objective-perturbation", **claim("objective-perturbation")).holds


def test_histograms_without_noise_are_caught(monkeypatch):
    """The release tells the number of rows that they counted."""
    monkeypatch.setattr(passes._Draw, "histograms", lambda self, found, mu: [counts.astype(float) for counts in found])
    assert not audit.run("passes", **claim("passes")).holds


class BoundFromTheData(Subject):
    """The largest number that is there, declared as the bound."""

    words = "a bound taken from the data"
    neighbours = Neighbours(repeated(20, (0.1, 0.1)), CORNER, "rows in the middle, and one more at a corner")

    def observe(self, *, present: bool, runs: int) -> np.ndarray:
        X, y = self.neighbours.arrays(present=present)
        bound = float(np.abs(X).max())
        schema = Schema({"X": Vector(1, lower=-bound, upper=bound), "y": Numeric(-1, 1)}, intercept=0.0)
        rows, rng = ArrayRows(X, y, schema, threads=1), secure_generator()
        account = releases.OnePass(self.epsilon, self.delta).account
        drawn = [passes.draw_passes(rows, rows.moments(), account, rng) for _ in range(runs)]
        return np.array([[float(one.passes[0].matrix[0, 0]), float(one.schema.columns["X"].upper)] for one in drawn])


def test_a_bound_taken_from_the_data_is_caught():
    assert not audit.run(BoundFromTheData, runs=60, **LOOSE | {"epsilon": 1.0}).holds


# ---------------------------------------------------------------------------------------------------------------
# Results
def test_results_can_be_saved_and_drawn(tmp_path):
    found = audit.run("sketch", runs=100, **LOOSE)
    plain = json.loads(found.to_json())
    assert plain["subject"] == "sketch"
    assert plain["points"][0] == {"delta": 0.2, "claimed": 2.0, "shown": found.points[0].shown}
    draw_audits(tmp_path / "audit.png", [found])
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_a_claimed_curve_is_there_to_be_drawn():
    found = audit.run("sketch", runs=20, processes=1, progress=False)
    deltas, claimed = np.array(found.curve).T
    assert (deltas[0], deltas[-1]) == pytest.approx((1e-3, 0.1))
    assert len(deltas) == 30
    for point in found.points[1:]:
        assert np.interp(math.log(point.delta), np.log(deltas), claimed) == pytest.approx(point.claimed, rel=1e-2)
    assert "curve" not in found.as_plain()
    assert audit.run("modified", runs=20, processes=1, progress=False).curve == ()


def test_processes_change_nothing_but_the_time():
    found = audit.run("sketch", runs=600, **LOOSE | {"processes": 2})
    assert found.holds
    assert found.runs == 600


def test_the_sampler_is_remembered_by_count_and_scale():
    one, other = (lattice._opendp_mechanism(3, sigma) for sigma in (5.0, 7.0))
    assert lattice._opendp_mechanism(3, 5.0) is one is not other
