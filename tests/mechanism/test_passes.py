"""A release in passes: what the rows can change in it, computed exactly, and how it is drawn."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.accounting.discrete import lattice_account
from gaussmix.data.rows import rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.release import prepare
from gaussmix.releases import preconditioning
from gaussmix.releases.preconditioning import BINS, POWERS, releases_of
from scripted_noise import Script, spent

SCHEMA = Schema.of({"x": [-1, 1], "level": ["a", "b", "c"], "y": [-1, 1]})
M = SCHEMA.n_columns


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0.3, 0.05, n), -1, 1)
    level = rng.choice(["a", "b", "c"], n, p=[0.7, 0.25, 0.05])
    return {"x": x, "level": level, "y": np.clip(0.5 * x + rng.normal(0, 0.1, n), -1, 1)}


def with_row(rows, x, level, y):
    return {"x": np.append(rows["x"], x), "level": np.append(rows["level"], level), "y": np.append(rows["y"], y)}


def account_of(passes=4, epsilon=1.0, neighbours="add-remove"):
    shares, coordinates = releases_of(passes, M)
    return lattice_account(epsilon, 1e-6, shares=shares, coordinates=coordinates, neighbours=neighbours)


def drawn(data, account, rng):
    rows = rows_of(data, SCHEMA)
    return draw_passes(rows, rows.gram, account, rng)


ROWS = {
    "at a corner": (1.0, "c", -1.0),
    "in the middle": (0.3, "a", 0.15),
    "beyond the bounds": (1e300, "b", -1e300),
    "almost nothing": (0.0, "a", 0.0),
}


@pytest.mark.parametrize("passes", [1, 2, 3, 4])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_one_row_can_change_is_what_the_account_has(monkeypatch, passes, row):
    """Neighbours are asked the same, since all before is the same; what they answer differs by at most μ in all."""
    account, rows = account_of(passes), table(500)
    with monkeypatch.context() as patch:
        first = Script(patch)
        drawn(rows, account, np.random.default_rng(0))
    with monkeypatch.context() as patch:
        second = Script(patch, outputs=first.given)
        drawn(with_row(rows, *row), account, np.random.default_rng(0))
    assert all(np.array_equal(a, b) for a, b in zip(first.sigmas, second.sigmas, strict=True))
    each = [spent([a], [b], [s]) for a, b, s in zip(second.sums, first.sums, first.sigmas, strict=True)]
    order = [0] if passes == 1 else [1, 0, *range(2, 2 * passes)]  # the first pass is drawn before the count
    for used, place in zip(each, order, strict=True):
        assert used <= Fraction(account.noise_mu[place]) ** 2
    assert sum(each) <= Fraction(account.mu) ** 2
    if row == ROWS["at a corner"]:  # every bound is met, but for the rounding of rows and of σ: no noise is too small
        for used, place in zip(each, order, strict=True):
            assert used >= Fraction(account.noise_mu[place]) ** 2 * Fraction(999, 1000)


def test_a_later_pass_in_the_declared_metric_has_the_noise_that_its_rows_need(monkeypatch):
    """A table of yes and no, whose rows are all as long as the bounds allow: each bound is met, and none exceeded."""
    schema = Schema.of(dict.fromkeys("abc", "boolean"))
    rng = np.random.default_rng(1)
    rows = {name: rng.random(2_000) < 0.5 for name in "abc"}
    more = {name: np.append(column, True) for name, column in rows.items()}
    shares, coordinates = releases_of(4, schema.n_columns)
    account = lattice_account(1.0, 1e-6, shares=shares, coordinates=coordinates)
    scripts = []
    for data in (rows, more):
        with monkeypatch.context() as patch:
            scripts.append(Script(patch, outputs=scripts[0].given if scripts else None))
            found = rows_of(data, schema)
            transcript = draw_passes(found, found.gram, account, np.random.default_rng(0))
    assert all(output.request.metric.declared for output in transcript.passes[1:])
    assert transcript.clipping_loss is None
    first, second = scripts
    each = [spent([a], [b], [s]) for a, b, s in zip(second.sums, first.sums, first.sigmas, strict=True)]
    for used, place in zip(each, [1, 0, *range(2, 8)], strict=True):
        assert Fraction(999, 1000) <= used / Fraction(account.noise_mu[place]) ** 2 <= 1


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_one_row_for_another(monkeypatch, neighbours):
    account, rows = account_of(4, neighbours=neighbours), table(300)
    outcomes = []
    for extra in (ROWS["at a corner"], (-1.0, "b", -1.0)):
        with monkeypatch.context() as patch:
            script = Script(patch, outputs=outcomes[0].given if outcomes else None)
            drawn(with_row(rows, *extra), account, np.random.default_rng(0))
            outcomes.append(script)
    used = spent(outcomes[1].sums, outcomes[0].sums, outcomes[0].sigmas)
    assert used > 0
    if neighbours == "replace-one":
        assert used <= Fraction(account.mu) ** 2


def test_requests_are_functions_of_earlier_outputs(monkeypatch):
    """Another table with the same outputs is asked exactly the same."""
    account = account_of(4)
    with monkeypatch.context() as patch:
        first = Script(patch)
        one = drawn(table(400), account, np.random.default_rng(0))
    with monkeypatch.context() as patch:
        Script(patch, outputs=first.given)
        other = drawn(table(900, seed=7), account, np.random.default_rng(0))
    for a, b in zip(one.passes, other.passes, strict=True):
        assert np.array_equal(a.matrix, b.matrix)
        assert a.rate == b.rate
        if a.request is not None:
            assert np.array_equal(a.request.metric.transform.integers, b.request.metric.transform.integers)
            assert np.array_equal(a.request.metric.transform.scales, b.request.metric.transform.scales)
            assert (a.request.clip, a.request.rows) == (b.request.clip, b.request.rows)


def test_noise_has_the_accounts_scale():
    """400 draws of one pass, by seed: mean G, and variances 1/μ² and 1/(2μ²) within five standard errors."""
    account, rows = account_of(1), table(50)
    gram = rows_of(rows, SCHEMA).gram().floats()
    mu = account.noise_mu[0]
    noise = (
        np.array([drawn(rows, account, np.random.default_rng(seed)).passes[0].matrix - gram for seed in range(400)])
        * mu
    )
    diagonal = np.diagonal(noise, axis1=1, axis2=2).ravel()
    above = noise[:, *np.triu_indices(M, 1)].ravel()
    for values, variance in ((diagonal, 1.0), (above, 0.5)):
        assert abs(values.mean()) < 5 * np.sqrt(variance / len(values))
        assert abs((values**2).mean() / variance - 1) < 5 * np.sqrt(2 / len(values))


def test_shares_are_of_the_whole_budget():
    for passes in (1, 2, 3, 4):
        shares, coordinates = releases_of(passes, M)
        assert sum(shares) == 1
        assert len(shares) == len(coordinates) == (1 if passes == 1 else 2 * passes)
        assert coordinates[0 if passes == 1 else 1] == M * M
        assert passes == 1 or coordinates[2] == len(POWERS) * BINS
    with pytest.raises(gm.ArgumentError, match="passes must be one of 1, 2, 3, 4"):
        releases_of(5, M)


def test_large_tables_are_sampled_in_between(monkeypatch):
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    account, rows = account_of(4, epsilon=10.0), rows_of(table(60_000), SCHEMA)
    asked = []
    for name in ("mapped", "counts"):
        original = getattr(type(rows), name)

        def spy(self, *arguments, sample=None, original=original, name=name, **words):
            asked.append((name, None if sample is None else sample.rate))
            return original(self, *arguments, sample=sample, **words)

        monkeypatch.setattr(type(rows), name, spy)
    found = draw_passes(rows, rows.gram, account, np.random.default_rng(1))
    rate = found.passes[1].rate
    assert 0 < rate <= 0.25
    assert rate == pytest.approx(20_000 / account.mu / 60_000, rel=1e-2)  # more than the Gram matrix needs
    assert [output.rate for output in found.passes] == [1.0, rate, rate, 1.0]
    assert asked == [
        ("counts", rate), ("mapped", rate), ("counts", rate), ("mapped", rate), ("counts", rate), ("mapped", None)
    ]  # fmt: skip
    gram = rows.gram().floats()
    assert np.abs(found.pool.current.matrix - gram).max() < 0.05 * np.abs(gram).max()


def test_histograms_of_wide_tables_read_fewer_rows_than_passes(monkeypatch):
    """As sampling keys of one release, so that the smaller sample is a part of the larger one."""
    monkeypatch.setattr(preconditioning, "HISTOGRAM_ROWS", 1000)
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    account, rows = account_of(4, epsilon=10.0), rows_of(table(20_000), SCHEMA)
    asked = []
    original = type(rows).aggregate

    def spy(self, query, sample, describe):
        asked.append(sample)
        return original(self, query, sample, describe)

    monkeypatch.setattr(type(rows), "aggregate", spy)
    keys = Sample.seeded(1.0, 3)
    found = draw_passes(rows, functools.partial(rows.gram, cache=keys), account, np.random.default_rng(1), keys=keys)
    rates = [None if sample is None else sample.rate for sample in asked]
    histogram, early = rates[0], rates[1]
    assert rates == [histogram, early, histogram, early, histogram, None]
    assert histogram == pytest.approx(1000 / account.mu / 20_000, rel=2e-2)
    assert histogram < early == found.passes[1].rate
    assert {sample.key for sample in asked if sample is not None} == {keys.key}
    assert found.passes[-1].request.rows == pytest.approx(20_000, rel=0.1)


def test_seeds_repeat_and_void():
    data = table(2000)
    one, two, other = (gm.release(data, schema=SCHEMA, epsilon=1, delta=1e-6, random_state=seed) for seed in (3, 3, 4))
    assert not one.certificate.is_private
    assert one.second_moment.tolist() == two.second_moment.tolist()
    assert one.second_moment.tolist() != other.second_moment.tolist()
    secure = gm.release(data, schema=SCHEMA, epsilon=1, delta=1e-6)
    assert secure.certificate.is_private
    assert secure.certificate.account.holds(1.0, 1e-6, "add-remove")


def test_a_table_that_can_be_read_once():
    data = table(500)
    batches = [data]
    private = gm.release(iter(batches), schema=SCHEMA, epsilon=1, delta=1e-6, random_state=0)
    assert len(private.statistic.passes) == 1
    assert len(gm.release(gm.Moments.of(data, SCHEMA), epsilon=1, delta=1e-6, random_state=0).statistic.passes) == 1
    with pytest.raises(gm.GaussmixError, match="passes=1"):
        gm.release(iter(batches), schema=SCHEMA, epsilon=1, delta=1e-6, passes=4)
    with pytest.raises(gm.GaussmixError, match="passes=1"):
        gm.release(gm.Moments.of(data, SCHEMA), epsilon=1, delta=1e-6, passes=2)


def test_budgets_too_small_for_the_lattice():
    with pytest.raises(gm.BudgetUnmetError, match="too small"):
        prepare(SCHEMA, gm.Budget(1e-7, 1e-9))
    assert len(prepare(SCHEMA, gm.Budget(3e-4, 1e-5)).account.noise_mu) in (1, 8)
