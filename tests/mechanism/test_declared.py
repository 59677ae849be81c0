"""Declared models: what one row or unit can change in their outputs, exactly, and what no certificate can hide."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.accounting.discrete import lattice_account
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.rows import rows_of
from gaussmix.data.schema import Schema, declared_schema
from gaussmix.data.scores import ScoreNorms, ScoreSums
from gaussmix.mechanism import passes as mechanism
from gaussmix.mechanism.passes import draw_passes, score_map_of
from gaussmix.mechanism.release import prepare
from gaussmix.models.declared import Plan, model_budget
from gaussmix.models.release import Release
from gaussmix.releases.declared import DeclaredModel, ModelBudget
from gaussmix.releases.preconditioning import accounts_for, bin_edges, budgets_of, releases_of

SCHEMA = Schema.of({"x": [-1, 1], "sick": "boolean", "level": ["a", "b", "c"], "visits": [0, 20], "time": [0, 2]})
MODELS = (
    DeclaredModel("sick ~ x + level"),
    DeclaredModel("visits ~ x + level", "poisson", "time"),
    DeclaredModel("sick ~ x", "probit"),
    DeclaredModel("x ~ level + visits"),
)
UNIT = PrivacyUnit("who", 3)


def table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x, level = rng.uniform(-1, 1, n), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    time = rng.uniform(0.2, 2, n)
    return {
        "x": x,
        "sick": rng.random(n) < 1 / (1 + np.exp(1 - 3 * x - (level == "b"))),
        "level": level,
        "visits": np.minimum(rng.poisson(time * np.exp(0.5 * x)), 20).astype(float),
        "time": time,
        "who": np.sort(rng.integers(0, n // 3, n)),
    }


def with_rows(rows, *added):
    names = ("x", "sick", "level", "visits", "time", "who")
    return {name: np.append(rows[name], [row[k] for row in added]) for k, name in enumerate(names)}


def budget_of(models=MODELS, share=0.4):
    found = model_budget(SCHEMA, models, share)
    assert found is not None
    return found


def account_of(models, passes=4, epsilon=3.0, neighbours="add-remove", persons=False):
    shares, coordinates = releases_of(passes, SCHEMA.n_columns, models=models, persons=persons)
    return lattice_account(epsilon, 1e-6, shares=shares, coordinates=coordinates, neighbours=neighbours)


class Script:
    """Stands where noise is drawn: records exact sums and their σ, and gives the outputs of another run."""

    def __init__(self, monkeypatch, outputs=None):
        self.sums, self.sigmas, self.outputs, self.given = [], [], outputs, []
        self.own, self.symmetric, self.rng = mechanism.discrete_gaussian, mechanism.symmetric_noise, None
        self.rng = np.random.default_rng(5)
        monkeypatch.setattr(mechanism, "discrete_gaussian", self.noise)
        monkeypatch.setattr(mechanism, "symmetric_noise", self.matrix_noise)
        monkeypatch.setattr(mechanism, "add_noise", self.add)

    def noise(self, count, *, sigma, rng):
        self.sigmas.append((sigma, sigma))
        return self.own(count, sigma=sigma, rng=self.rng)

    def matrix_noise(self, m, *, diagonal, off_diagonal, rng, progress):
        self.sigmas.append((diagonal, off_diagonal))
        return self.symmetric(m, diagonal=diagonal, off_diagonal=off_diagonal, rng=self.rng, progress=progress)

    def add(self, exact, noise):
        self.sums.append(exact)
        out = exact + noise.astype(object) if self.outputs is None else self.outputs[len(self.given)]
        self.given.append(out)
        return out

    def used(self, other):
        """(change/σ)² of every output, as an exact number; a symmetric entry counts once."""
        found = []
        for a, b, (sigma, off) in zip(self.sums, other.sums, self.sigmas, strict=True):
            change = np.asarray(a - b, dtype=object)
            if change.ndim == 1:
                found.append(sum(int(entry) ** 2 for entry in change) / Fraction(sigma) ** 2)
                continue
            own = sum(int(entry) ** 2 for entry in np.diagonal(change)) / Fraction(sigma) ** 2
            above = sum(int(entry) ** 2 for entry in change[np.triu_indices(len(change), 1)])
            found.append(own + above / Fraction(off) ** 2)
        return found


def drawn(data, account, models, unit=None):
    rows, rng = rows_of(data, SCHEMA, unit=unit, new_key=lambda: bytes(32)), np.random.default_rng(0)
    return draw_passes(rows, rows.gram, account, rng, models=models)


ROWS = {
    "at a corner": (1.0, False, "c", 20.0, 2.0, 10**9),
    "in the middle": (0.3, True, "a", 1.0, 1.0, 10**9),
    "beyond the bounds": (-1e300, True, "b", 1e300, -5.0, 10**9),
}
CASES = [("add-remove", None), ("replace-one", None), ("add-remove", UNIT), ("replace-one", UNIT)]


@pytest.mark.parametrize(("neighbours", "unit"), CASES)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_one_row_or_unit_can_change_is_what_the_account_has(monkeypatch, neighbours, unit, row):
    """Neighbours are asked the same; their answers differ by at most their parts of μ, in whole numbers."""
    models = budget_of()
    account = account_of(models, neighbours=neighbours, persons=unit is not None)
    added = [row] * (7 if unit is not None else 1)
    smaller = table()
    first_data = with_rows(smaller, *[ROWS["in the middle"]] * len(added)) if neighbours == "replace-one" else smaller
    with monkeypatch.context() as patch:
        first = Script(patch)
        one = drawn(first_data, account, models, unit)
    with monkeypatch.context() as patch:
        second = Script(patch, outputs=first.given)
        two = drawn(with_rows(smaller, *added), account, models, unit)
    assert first.sigmas == second.sigmas
    for a, b in zip(one.models, two.models, strict=True):  # requests are functions of earlier outputs
        assert (a.metric, a.linear, a.clip) == (b.metric, b.linear, b.clip)
    parts = [part for own in budgets_of(account, models).models for part in own]
    used = second.used(first)[-len(parts) :]
    factor = 2 if neighbours == "replace-one" else 1  # the account's μ² has twice the parts'
    for change, part in zip(used, parts, strict=True):
        assert change <= factor * Fraction(part) ** 2
    if (row, neighbours) == (ROWS["at a corner"], "add-remove"):
        assert max(used) > 0
    noise, lattice = second.sigmas[-len(parts) :], 2.0**account.bits
    names = [name for own in budgets_of(account, models).models for name in ("bins", *["sum"] * (len(own) - 2), "gram")]
    for (sigma, off), part, name in zip(noise, parts, names, strict=True):  # 1/μ, in units of the lattice
        opposite = math.sqrt(2) if name == "sum" and neighbours == "replace-one" else 1.0
        assert sigma * part == pytest.approx(opposite * lattice, rel=1e-9)
        assert off == pytest.approx(sigma / math.sqrt(2) if name == "gram" else sigma, rel=1e-9)


def test_opposite_scores_use_the_whole_part_of_replace_one():
    """Two rows with opposite scores beyond the clip change a sum by 2√clip, which its noise was drawn for."""
    private = gm.release(
        table(), SCHEMA, budget=gm.Budget(3.0, 1e-6, neighbours="replace-one"), models=MODELS[:1], random_state=0
    )
    (output,) = private.statistic.models
    for part, own in zip(output.mu[1:-1], output.vector_mu, strict=True):
        assert 2 * Fraction(own) ** 2 <= Fraction(part) ** 2
        assert own == pytest.approx(part / np.sqrt(2))


def random_pairs(count, seed):
    """Yield random score maps with random clips, and random rows or units."""
    rng = np.random.default_rng(seed)
    transcript = drawn(table(), account_of(budget_of()), budget_of())
    plans = [Plan.of(transcript, model) for model in budget_of().models]
    for _ in range(count):
        plan = plans[rng.integers(len(plans))]
        plan = replace(plan, theta=plan.theta + rng.normal(0, rng.choice([0.1, 3.0, 100.0]), plan.size))
        clip = float(plan.size * 10.0 ** rng.uniform(-4, 4))
        rows = rng.normal(0, 1, (int(rng.choice([1, 1, 2, 9, 200])), SCHEMA.n_columns))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.choice([1.0, 1.0, 1e3], (len(rows), 1))
        constant = SCHEMA.groups["(intercept)"][0]
        if rng.random() < 0.7:
            rows[:, constant] = 0.0
            rows *= 0.8
            rows[:, constant] = SCHEMA.in_units(SCHEMA.intercept) / 2.0**20
        rows = np.trunc(rows * 2.0**20 * 0.999)
        yield score_map_of(SCHEMA, plan.scan()), clip, rows


def answers_of(maps, clip, rows, starts):
    """Whole numbers: the sum of scores, its squares, and the counts of bins of one row or of one unit."""
    sums = ScoreSums(maps, clip).aggregator(SCHEMA.n_columns)
    sums.add(rows.copy(), starts)
    found = sums.result()
    squares = [int(h) * 2**40 + int(low) for pair in zip(found.squares.high, found.squares.low, strict=True)
               for h, low in zip(*pair, strict=True)]  # fmt: skip
    bins = ScoreNorms(maps, bin_edges(float(maps.size))).aggregator(SCHEMA.n_columns)
    bins.add(rows.copy(), starts)
    return [int(entry) for entry in found.total], squares, [int(count) for count in bins.result().counts[0]]


def squared_distance(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def replayed(count, seed):
    """Check in exact integers by what outputs change if a row or a unit is added, or replaced by another one."""
    largest, farthest = 0, 0
    for maps, clip, rows in random_pairs(count, seed):
        opposite = rows.copy()
        opposite[:, np.arange(rows.shape[1]) != SCHEMA.groups["(intercept)"][0]] *= -1
        for own, at in (([rows[:1], opposite[:1], rows[-1:]], None), ([rows, opposite, rows[::-1][:1]], np.array([0]))):
            found = [answers_of(maps, clip, each, at) for each in own]
            for total, squares, counts in found:
                norm = sum(entry**2 for entry in total)
                assert norm <= 2**40
                assert sum(entry**2 for entry in squares) == norm**2  # s sᵀ of one row or unit
                assert min(counts) >= 0
                assert sum(counts) <= 1
                largest = max(largest, norm)
            for other in found[1:]:
                total, squares, counts = (squared_distance(a, b) for a, b in zip(found[0], other, strict=True))
                assert total <= 4 * 2**40
                assert squares <= 2 * 2**80
                assert counts <= 2
                farthest = max(farthest, total)
    assert largest > 0.99 * 2**40
    assert farthest > 3.9 * 2**40


def test_sensitivities_of_random_rows_and_units():
    replayed(150, seed=1)


@pytest.mark.slow
def test_sensitivities_of_many_random_rows_and_units():
    replayed(2500, seed=2)


def test_the_account_has_every_output():
    models = budget_of()
    account = account_of(models)
    budgets = budgets_of(account, models)
    parts = (budgets.count, *budgets.in_turn)
    assert len(parts) == len(account_of(None).noise_mu)
    assert [len(own) for own in budgets.models] == [4, 4, 4, 2]
    assert sum(Fraction(part) ** 2 for part in account.noise_mu) <= Fraction(account.mu) ** 2
    share = sum(part**2 for own in budgets.models for part in own) / account.mu**2
    assert share == pytest.approx(0.4)
    assert np.sqrt(0.6) * np.array(account_of(None).noise_mu) == pytest.approx(parts)
    assert accounts_for(account, 4, SCHEMA.n_columns, models=models)
    for other in (
        replace(models, share=0.5),
        ModelBudget(models.models[:3], models.sizes[:3], 0.4),
        replace(models, sizes=(9, *models.sizes[1:])),
        None,
    ):
        assert not accounts_for(account, 4, SCHEMA.n_columns, models=other)


@pytest.mark.parametrize("passes", [1, 2, 4, "auto"])
@pytest.mark.parametrize("unit", [None, UNIT], ids=["rows", "units"])
def test_every_part_of_the_account_is_used_once(monkeypatch, passes, unit):
    """One pass has no marginals: parts of models must not be spent on them."""
    spent, inside = list[float](), list[bool]()

    def recording(own):
        def recorded(self, *given, **options):
            if not inside:  # histograms are counts too
                spent.append(given[-1])
            inside.append(True)
            try:
                return own(self, *given, **options)
            finally:
                inside.pop()

        return recorded

    for name in ("matrix", "vector", "histograms"):
        monkeypatch.setattr(mechanism._Draw, name, recording(getattr(mechanism._Draw, name)))
    private = gm.release(
        table(), SCHEMA, epsilon=3.0, delta=1e-6, passes=passes, privacy_unit=unit, models=MODELS, random_state=0
    )
    parts, marginals = list(private.certificate.account.noise_mu), private.statistic.marginals
    assert (marginals is None) == (passes == 1)
    if marginals is not None:
        del parts[-2:], spent[:2]
    if passes != 1:  # the count of rows follows the first pass; units and their rows are counted with half of μ² each
        counts = [spent.pop(1) for _ in range(1 if unit is None else 2)] if spent[0] != parts[0] else [spent.pop(0)]
        assert sum(part**2 for part in counts) == pytest.approx(parts.pop(0) ** 2)
    assert spent == parts
    assert Release.from_bytes(private.to_bytes()).fingerprint == private.fingerprint


def test_an_account_with_other_parts_is_refused():
    models = budget_of()
    account = account_of(models, passes=1)
    assert budgets_of(account, models).passes == account.noise_mu[:1]
    for options in ({"marginals": True}, {"models": budget_of(MODELS[:2])}):
        with pytest.raises(gm.GaussmixError, match="parts"):
            budgets_of(account, **{"models": models} | options)


@pytest.fixture(scope="module", params=[None, UNIT], ids=["rows", "units"])
def private(request):
    return gm.release(
        table(4000), SCHEMA, epsilon=5.0, delta=1e-6, privacy_unit=request.param, models=MODELS, random_state=0
    )


def test_a_release_with_models_is_saved_and_read(private, tmp_path):
    private.save(tmp_path / "models.parquet")
    again = gm.load(tmp_path / "models.parquet")
    assert again.fingerprint == private.fingerprint
    for own, other in zip(again.statistic.models, private.statistic.models, strict=True):
        assert own.model == other.model
        assert np.array_equal(own.squares, other.squares)
        assert own.metric == other.metric
    assert again.logit("sick ~ x + level").params == private.logit("sick ~ x + level").params
    words = str(again.certificate)
    assert all(model.formula in words for model in MODELS)


def test_no_release_can_be_made_with_other_models(private):
    statistic, certificate = private.statistic, private.certificate
    first, *others = statistic.models
    for values in ({"mu": (first.mu[0] / 2, *first.mu[1:])}, {"vector_mu": tuple(2 * mu for mu in first.vector_mu)}):
        with pytest.raises(gm.NotPrivateError, match="noise of a declared model does not match"):
            gm.Release(replace(statistic, models=(replace(first, **values), *others)), certificate)
    for models in (tuple(others), statistic.models[:2], (*statistic.models[1:], first)):
        with pytest.raises(gm.NotPrivateError, match="do not match"):
            gm.Release(replace(statistic, models=models), certificate)
    with pytest.raises(gm.NotPrivateError, match="do not match"):
        gm.Release(replace(statistic, model_share=0.2), certificate)
    with pytest.raises(gm.ArgumentError, match="model_share must be > 0 with declared models"):
        gm.Release(replace(statistic, models=()), certificate)


def test_malformed_outputs_are_refused(private):
    first, *others = private.statistic.models
    for values in (
        {"totals": (first.totals[0][:-1], first.totals[1])},
        {"totals": (first.totals[0] * np.nan, first.totals[1])},
        {"squares": first.squares[:-1]},
        {"squares": first.squares + np.triu(np.ones_like(first.squares), 1)},
        {"clip": -1.0},
        {"lost": 2.0},
        {"linear": first.linear[:1]},
        {"metric": private.statistic.passes[1].request.metric.transform},
    ):
        models = (replace(first, **values), *others)
        with pytest.raises(gm.ArgumentError):
            gm.Release(replace(private.statistic, models=models), private.certificate)


def test_what_models_are_refused_for(tmp_path):
    def asked(*models, schema=SCHEMA, **options):
        return prepare(schema, gm.Budget(1.0, 1e-6), models=models, **options)

    with pytest.raises(gm.ArgumentError, match="must be a formula"):
        asked("sick")
    with pytest.raises(gm.ArgumentError, match="family of a declared model must be one of ols, logit"):
        asked(DeclaredModel("sick ~ x", "gamma"))
    with pytest.raises(gm.ArgumentError, match="more than two levels"):
        asked("level ~ x")
    with pytest.raises(gm.ArgumentError, match="models must not contain duplicates"):
        asked("sick ~ x", "sick ~ x")
    with pytest.raises(gm.ArgumentError, match="model_share must lie in"):
        asked("sick ~ x", model_share=1.0)
    with pytest.raises(gm.ArgumentError, match="intercept"):
        asked("sick ~ x", schema=Schema.of({"x": [-1, 1], "sick": "boolean"}, intercept=0))
    with pytest.raises(gm.ArgumentError, match="finite epsilon"):
        prepare(SCHEMA, gm.Budget(np.inf, 1e-6), models=["sick ~ x"])
    moments = gm.Moments.of(table(), SCHEMA)
    with pytest.raises(gm.ArgumentError, match="only one pass"):
        prepare(SCHEMA, gm.Budget(1.0, 1e-6), models=["sick ~ x"]).draw(rows_of(moments))


def test_a_ledger_is_charged_for_models_too(tmp_path):
    ledger = gm.Ledger(tmp_path / "sick.ledger", epsilon=3.0, delta=1e-6, releases=2)
    release = gm.release(table(), SCHEMA, budget=gm.Budget(ledger=ledger), models=MODELS[:1], random_state=0)
    (entry,) = ledger.entries()
    assert entry.mu == release.certificate.account.mu
    assert len(release.statistic.models) == 1


def test_weighted_rows_have_weighted_scores():
    """Integer weights are copies of rows: the same sums, up to rounding, once weights are scaled back."""
    rng = np.random.default_rng(3)
    rows = {name: column for name, column in table(800).items() if name != "who"}
    weights = rng.integers(1, 5, 800).astype(float)
    declared = {"x": [-1, 1], "sick": "boolean", "level": ["a", "b", "c"], "visits": [0, 20], "time": [0, 2]}
    schema = declared_schema({**declared, "w": [0, 4]}, weight="w")
    copies = {name: np.repeat(column, weights.astype(int)) for name, column in rows.items()}
    transcript = drawn(table(), account_of(budget_of()), budget_of())
    plan = Plan.of(transcript, MODELS[1])
    scan, clip = plan.scan(), 1e6
    found = rows_of({**rows, "w": weights}, schema).aggregate(ScoreSums(score_map_of(schema, scan), clip))
    plain = rows_of(copies, SCHEMA).aggregate(ScoreSums(score_map_of(SCHEMA, scan), clip))
    assert 4 * found.total / 2**20 == pytest.approx(plain.total / 2**20, abs=0.05)
