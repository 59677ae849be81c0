"""Steps on a likelihood: what one row can change in them, exactly; what is asked; what no certificate can hide."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import gaussmix as gm
from gaussmix.accounting.discrete import lattice_account
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema
from gaussmix.mechanism import passes as mechanism
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.release import prepare
from gaussmix.models.newton_steps import likelihood_coefficients
from gaussmix.releases.preconditioning import STEPS, Likelihood, budgets_of, releases_of, schedule_of

SCHEMA = Schema.of({"x": [-1, 1], "sick": "boolean", "level": ["a", "b", "c"]})
M, LABEL = SCHEMA.n_columns, SCHEMA.groups["sick"][0]


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    x, level = rng.uniform(-1, 1, n), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    return {"x": x, "sick": rng.random(n) < 1 / (1 + np.exp(1 - 3 * x - (level == "b"))), "level": level}


def with_row(rows, x, sick, level):
    return {name: np.append(rows[name], value) for name, value in (("x", x), ("sick", sick), ("level", level))}


def account_of(steps=3, passes=4, epsilon=3.0):
    shares, coordinates = releases_of(schedule_of(passes), M, steps=steps)
    return lattice_account(epsilon, 1e-6, shares=shares, coordinates=coordinates)


class Script:
    """Stands where noise is drawn: records exact vectors and their σ, and gives the outputs of another run."""

    def __init__(self, monkeypatch, outputs=None):
        self.sums, self.sigmas, self.outputs, self.given = [], [], outputs, []
        self.own, self.rng = mechanism.discrete_gaussian, np.random.default_rng(5)
        monkeypatch.setattr(mechanism, "discrete_gaussian", self.noise)
        monkeypatch.setattr(mechanism, "add_noise", self.add)

    def noise(self, count, *, sigma, rng):
        self.sigmas.append(sigma)
        return self.own(count, sigma=sigma, rng=self.rng)

    def add(self, exact, noise):
        if exact.ndim == 1:
            self.sums.append(exact)
        out = exact + noise.astype(object) if self.outputs is None else self.outputs[len(self.given)]
        self.given.append(out)
        return out


def drawn(data, account, steps):
    rows, rng = rows_of(data, SCHEMA), np.random.default_rng(0)
    return draw_passes(rows, rows.moments(), account, rng, likelihood=Likelihood("sick", steps))


ROWS = {"at a corner": (1.0, False, "c"), "in the middle": (0.3, True, "a"), "beyond the bounds": (-1e300, True, "b")}


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_one_row_can_change_is_what_the_account_has(monkeypatch, passes, row):
    """Neighbours are asked the same; their answers differ by at most μ_t/σ in every step, in whole numbers."""
    account, rows, steps = account_of(passes=passes), table(), 3
    with monkeypatch.context() as patch:
        first = Script(patch)
        drawn(rows, account, steps)
    with monkeypatch.context() as patch:
        second = Script(patch, outputs=first.given)
        drawn(with_row(rows, *row), account, steps)
    assert first.sigmas == second.sigmas
    used = []
    for a, b, sigma in zip(first.sums, second.sums, first.sigmas, strict=True):
        used.append(sum((int(p) - int(q)) ** 2 for p, q in zip(a, b, strict=True)) / Fraction(sigma) ** 2)
    of_steps, budgets = used[-2 * steps :], budgets_of(account, steps).steps
    for number, (gradient_mu, weight_mu) in enumerate(budgets):
        assert 0 < of_steps[2 * number] <= Fraction(weight_mu) ** 2
        assert 0 < of_steps[2 * number + 1] <= Fraction(gradient_mu) ** 2
    if row == ROWS["at a corner"]:  # a surprising row is as long as the clip
        assert of_steps[1] >= Fraction(budgets[0][0]) ** 2 * Fraction(999, 1000)


def test_requests_are_functions_of_earlier_outputs(monkeypatch):
    account = account_of()
    with monkeypatch.context() as patch:
        first = Script(patch)
        one = drawn(table(), account, 3)
    with monkeypatch.context() as patch:
        Script(patch, outputs=first.given)
        other = drawn(table(500, seed=7), account, 3)
    for a, b in zip(one.steps, other.steps, strict=True):
        assert a.request.transform == b.request.transform
        assert a.request.clip == b.request.clip
        assert np.array_equal(a.gradient, b.gradient)


@pytest.mark.parametrize("steps", STEPS)
def test_the_account_has_every_step(steps):
    account = account_of(steps)
    budgets = budgets_of(account, steps)
    passes, of_steps = budgets.passes, budgets.steps
    assert len(passes) == len(account_of(0).noise_mu)
    assert len(of_steps) == steps
    assert sum(Fraction(part) ** 2 for part in account.noise_mu) <= Fraction(account.mu) ** 2
    share = sum(gradient**2 + weight**2 for gradient, weight in of_steps) / account.mu**2
    assert share == pytest.approx(0.4)
    assert account.coordinates[-2:] == (M - 1, 1)
    plain = account_of(0)
    assert np.sqrt(0.6) * np.array(plain.noise_mu) == pytest.approx(passes)


def test_steps_reach_the_likelihood():
    """With a budget so large that noise is nothing, six steps leave a tenth of the discriminant's distance or less."""
    rows = table(20_000)
    prepared = prepare(SCHEMA, gm.Budget(30.0, 1e-6), random_state=0, likelihood=Likelihood("sick", 6))
    transcript = prepared.draw(rows_of(rows, SCHEMA)).statistic
    features = np.delete(np.arange(M), LABEL)
    encoded = np.column_stack([rows["x"], *(rows["level"] == level for level in "abc"), np.ones(20_000)])
    best = LogisticRegression(C=1e9, tol=1e-10, fit_intercept=False, max_iter=1000).fit(encoded, rows["sick"])

    def far(theta):
        return float(np.mean((encoded @ (theta[features] - best.coef_[0])) ** 2))

    start = far(transcript.steps[0].request.coefficients / SCHEMA.row_norm)
    assert far(likelihood_coefficients(transcript)) < 0.1 * start
    assert start > 1e-4


@pytest.fixture(scope="module")
def private():
    return prepare(SCHEMA, gm.Budget(5.0, 1e-6), random_state=0, likelihood=Likelihood("sick", 4)).draw(
        rows_of(table(), SCHEMA)
    )


def test_a_release_with_steps_is_saved_and_read(private, tmp_path):
    private.save(tmp_path / "steps.parquet")
    again = gm.load(tmp_path / "steps.parquet")
    assert again.fingerprint == private.fingerprint
    model = again.predictor("sick", family="logit")
    assert model.coef == private.predictor("sick", family="logit").coef
    theta = likelihood_coefficients(again.statistic)
    features = [i for name, own in again.schema.groups.items() if name != "sick" for i in own]
    assert model.coef == again.schema.units.coefficients(features, theta[features])[0]
    well = again.predictor("sick", family="logit", level=False)
    assert well.intercept == -model.intercept
    assert well.coef == {name: -value for name, value in model.coef.items()}
    assert again.logit("sick").params == private.logit("sick").params
    assert again.predictor("x").coef == private.predictor("x").coef


def test_no_release_can_be_made_with_other_steps(private):
    statistic, certificate = private.statistic, private.certificate
    for number, step in enumerate(statistic.steps):
        for values in ({"mu": step.mu / 2}, {"weight_mu": step.weight_mu * 2}):
            steps = list(statistic.steps)
            steps[number] = replace(step, **values)
            with pytest.raises(gm.NotPrivateError, match="noise of a step does not match"):
                gm.Release(replace(statistic, steps=tuple(steps)), certificate)
    for steps in ((), statistic.steps[:3]):
        with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
            gm.Release(replace(statistic, steps=steps), certificate)
    account = replace(certificate.account, neighbours="replace-one", mu=certificate.account.mu * 1.5, epsilon=20.0)
    other = replace(certificate, account=account, neighbours="replace-one", epsilon=20.0)
    with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
        gm.Release(statistic, other)


def test_malformed_steps_are_refused(private):
    step = private.statistic.steps[0]
    for values in (
        {"gradient": step.gradient[:-1]},
        {"gradient": step.gradient * np.nan},
        {"weight": np.inf},
        {"request": replace(step.request, target="x")},
        {"request": replace(step.request, clip=-1.0)},
        {"request": replace(step.request, transform=private.statistic.passes[1].request.metric.transform)},
    ):
        with pytest.raises(gm.ArgumentError):
            gm.Release(replace(private.statistic, steps=(replace(step, **values),) * 4), private.certificate)


def test_what_steps_are_refused_for(tmp_path):
    asked = Likelihood("sick", 4)
    with pytest.raises(gm.ArgumentError, match="must be a boolean column"):
        prepare(SCHEMA, gm.Budget(1.0, 1e-6), likelihood=Likelihood("x", 4))
    with pytest.raises(gm.ArgumentError, match="twice its bound"):
        prepare(SCHEMA, gm.Budget(1.0, 1e-6, neighbours="replace-one"), likelihood=asked)
    ledger = gm.Ledger(tmp_path / "other.ledger", epsilon=1.0, delta=1e-6, neighbours="replace-one")
    with pytest.raises(gm.ArgumentError, match="twice its bound"):
        prepare(SCHEMA, gm.Budget(ledger=ledger), likelihood=asked)
    with pytest.raises(gm.ArgumentError, match="steps must be one of"):
        prepare(SCHEMA, gm.Budget(1.0, 1e-6), likelihood=Likelihood("sick", 5))
    moments = rows_of(table(), SCHEMA).moments()
    with pytest.raises(gm.ArgumentError, match="allow one pass only"):
        prepare(SCHEMA, gm.Budget(1.0, 1e-6), likelihood=asked).draw(rows_of(moments))


def test_a_ledger_is_charged_for_steps_too(tmp_path):
    ledger = gm.Ledger(tmp_path / "sick.ledger", epsilon=3.0, delta=1e-6, releases=2)
    release = prepare(SCHEMA, gm.Budget(ledger=ledger), random_state=0, likelihood=Likelihood("sick", 4)).draw(
        rows_of(table(), SCHEMA)
    )
    (entry,) = ledger.entries()
    assert entry.mu == release.certificate.account.mu
    assert len(release.statistic.steps) == 4
