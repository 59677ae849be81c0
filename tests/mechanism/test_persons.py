"""A release whose unit is a person: what all rows of one can change in it, computed exactly."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest

import gaussmix as gm
from gaussmix import baselines
from gaussmix.accounting.discrete import diagonal_sigma, lattice_account, off_diagonal_sigma
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.data.moments import Moments
from gaussmix.data.rows import UnitRows, rows_of
from gaussmix.data.sampling import Sample
from gaussmix.data.schema import Schema, declared_schema
from gaussmix.errors import ArgumentError
from gaussmix.mechanism.passes import draw_passes
from gaussmix.mechanism.release import prepare
from gaussmix.releases import preconditioning
from gaussmix.releases.preconditioning import releases_of
from scripted_noise import Script, spent

SCHEMA = Schema.of({"x": [-1, 1], "level": ["a", "b", "c"], "y": [-1, 1]})
M, J = SCHEMA.n_columns, 4
UNITS = [PrivacyUnit("who", J, "scale"), PrivacyUnit("who", J, "sample")]
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def table(n=400, persons=120, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0.3, 0.05, n), -1, 1)
    level = rng.choice(["a", "b", "c"], n, p=[0.7, 0.25, 0.05])
    y = np.clip(0.5 * x + rng.normal(0, 0.1, n), -1, 1)
    return {"who": rng.integers(0, persons, n), "x": x, "level": level, "y": y}


def with_person(rows, added):
    """The rows of somebody new, in the midst of the others."""
    who, x, level, y = (np.array(part) for part in zip(*((-1, *row) for row in added), strict=True))
    new = {"who": who, "x": x, "level": level, "y": y}
    return {name: np.concatenate([rows[name][:50], new[name], rows[name][50:]]) for name in rows}


def account_of(passes, neighbours="add-remove", epsilon=1.0):
    shares, coordinates = releases_of(passes, M, persons=True)
    return lattice_account(epsilon, 1e-6, shares=shares, coordinates=coordinates, neighbours=neighbours)


def drawn(data, unit, account, schema=SCHEMA, keys=None):
    rows = UnitRows(data, schema, unit, key=bytes(32))
    return draw_passes(rows, functools.partial(rows.gram, cache=keys), account, np.random.default_rng(0), keys=keys)


CORNER = (1.0, "c", -1.0)
PERSONS = {
    "one row": [CORNER],
    "as many equal rows as count": [CORNER] * J,
    "more equal rows than count": [CORNER] * (7 * J),
    "rows in all corners": [(x, level, y) for x in (-1.0, 1.0) for level in "abc" for y in (-1.0, 1.0)],
    "beyond the bounds": [(1e300, "b", -1e300), (-1e300, "a", 0.0)] * 9,
    "like everybody": [(0.3, "a", 0.15)] * 3,
}
ORDER = [1, 0, 0, 2, 3, 4, 5, 6, 7]  # the first pass, the counts of persons and of rows, then histograms and passes


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.contribution_bounding)
@pytest.mark.parametrize("person", PERSONS)
@pytest.mark.parametrize("passes", [1, 4])
def test_what_one_person_can_change_is_what_the_account_has(monkeypatch, passes, person, unit):
    """Neighbours are asked the same, since all before is the same; what they answer differs by at most μ in all."""
    account, rows = account_of(passes), table()
    with monkeypatch.context() as patch:
        first = Script(patch)
        drawn(rows, unit, account)
    with monkeypatch.context() as patch:
        second = Script(patch, outputs=first.given)
        drawn(with_person(rows, PERSONS[person]), unit, account)
    assert all(np.array_equal(a, b) for a, b in zip(first.sigmas, second.sigmas, strict=True))
    used = dict.fromkeys(range(len(account.noise_mu)), Fraction(0))
    for place, *answer in zip([0] if passes == 1 else ORDER, second.sums, first.sums, first.sigmas, strict=True):
        used[place] += spent(*([part] for part in answer))
    for place, square in used.items():
        assert square <= Fraction(account.noise_mu[place]) ** 2
    assert sum(used.values()) <= Fraction(account.mu) ** 2
    if "equal rows" in person:  # every bound is met, but for the rounding of rows and of σ: no noise is too small
        for place, square in used.items():
            assert square >= Fraction(account.noise_mu[place]) ** 2 * Fraction(999, 1000)


def both(monkeypatch, rows, added, **how):
    """What the table and the one with a person more answer to the same questions."""
    with monkeypatch.context() as patch:
        first = Script(patch)
        found = drawn(rows, **how)
    with monkeypatch.context() as patch:
        second = Script(patch, outputs=first.given)
        drawn(added, **how)
    return found, second.sums, first.sums, first.sigmas


def test_what_one_person_can_change_in_samples(monkeypatch):
    """A unit with a large sampling key is in no sample; the keys of other units do not change."""
    account, rows, members = account_of(4, epsilon=30.0), table(), []
    monkeypatch.setattr(preconditioning, "SAMPLE_ROWS", 0.4 * 120 * account.mu / M**1.5)
    monkeypatch.setattr(preconditioning, "HISTOGRAM_ROWS", 0.2 * 120 * account.mu)
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    added = with_person(rows, [CORNER] * (2 * J))
    for seed in range(12):
        keys = Sample.seeded(1.0, seed)
        found, *answers = both(monkeypatch, rows, added, unit=UNITS[0], account=account, keys=keys)
        assert 0.1 < found.passes[1].rate < 0.5
        used = [spent(*([part] for part in answer)) for answer in zip(*answers, strict=True)]
        for place, square in zip(ORDER[3:], used[3:], strict=True):
            assert square <= Fraction(account.noise_mu[place]) ** 2
        assert sum(used) <= Fraction(account.mu) ** 2
        members.append(tuple(square > 0 for square in used[3:]))
    nowhere, in_passes, everywhere = (False,) * 5 + (True,), (False, True) * 3, (True,) * 6
    assert set(members) == {nowhere, in_passes, everywhere}  # whoever is in a histogram is in the pass after it


WEIGHTED = Schema.of({"x": [-1, 1], "level": ["a", "b", "c"], "y": [-1, 1], "w": [0, 8]}, weight="w")


@pytest.mark.parametrize("weight", [8.0, 1e300, 1.0])
def test_weights_are_of_rows_that_are_bounded_together(monkeypatch, weight):
    """A weight makes a row shorter than its bound, never longer."""
    unit, weights = UNITS[0], np.full(400, 2.0)
    rows = table() | {"w": weights}
    added = with_person(table(), [CORNER] * (3 * J)) | {"w": np.insert(weights, [50] * (3 * J), weight)}
    shares, coordinates = releases_of(4, WEIGHTED.n_columns, persons=True)
    account = lattice_account(1.0, 1e-6, shares=shares, coordinates=coordinates)
    _, *answers = both(monkeypatch, rows, added, unit=unit, account=account, schema=WEIGHTED)
    used = spent(*answers)
    assert Fraction(account.mu) ** 2 * Fraction(1, 100) < used <= Fraction(account.mu) ** 2


def test_terms_and_weights_are_those_of_rows():
    """Everybody with one row: the same sums to the last bit, rows without a weight left out."""
    rng = np.random.default_rng(0)
    data = {"who": np.arange(3000), **{name: rng.uniform(1, 9, 3000) for name in ("a", "y", "w")}}
    data["w"][::7] = np.nan
    data["a"][::11] = 400.0
    declared = {"a": [1, 10], "y": [1, 10], "w": {"lower": 0, "upper": 9, "missing": "drop-row"}}
    schema = declared_schema(declared, formula="log(y) ~ poly(a, 2)", weight="w")
    by_person = UnitRows(data, schema, PrivacyUnit("who", 1), key=bytes(32)).gram()
    by_row = rows_of(data, schema).gram()
    assert by_person.n == by_row.n < 3000
    assert np.array_equal(by_person.high, by_row.high)
    assert np.array_equal(by_person.low, by_row.low)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.contribution_bounding)
def test_one_person_for_another(monkeypatch, unit):
    account, outcomes = account_of(4, "replace-one"), []
    for rows in ([CORNER] * 9, [(-1.0, "b", -1.0)] * 2):
        with monkeypatch.context() as patch:
            script = Script(patch, outputs=outcomes[0].given if outcomes else None)
            drawn(with_person(table(), rows), unit, account)
            outcomes.append(script)
    used = spent(outcomes[1].sums, outcomes[0].sums, outcomes[0].sigmas)
    assert Fraction(account.mu) ** 2 / 4 < used <= Fraction(account.mu) ** 2


def test_the_first_pass_has_j_times_the_noise():
    """What a transcript says of its noise is what was drawn: within five standard errors, of which a tenth is more."""
    account, unit = account_of(1), UNITS[0]
    found = [
        gm.release(table(), schema=SCHEMA, passes=1, random_state=seed, privacy_unit=gm.PrivacyUnit("who", J), **BUDGET)
        for seed in range(200)
    ]
    gram = UnitRows(table(), SCHEMA, unit, key=bytes(32)).gram().floats()
    shape = found[0].statistic.pool.current.shape
    noise = np.array([release.statistic.passes[0].matrix - gram for release in found])
    above = noise[:, *np.triu_indices(M, 1)].ravel() / shape[0, 0]
    assert shape[0, 0] == pytest.approx(J / np.sqrt(2) / account.noise_mu[0])
    allowed = 5 * np.sqrt(2 / len(above))
    assert allowed < 1 - 0.9**2  # noise a tenth too small would be seen
    assert abs((above**2).mean() - 1) < allowed


def test_many_rows_of_few_persons_give_their_regression():
    """The release of both kinds is near least squares, and says how many rows there are."""
    rng = np.random.default_rng(3)
    n, persons = 60_000, 8_000
    x, noise = rng.uniform(-1, 1, n), rng.uniform(-0.3, 0.3, n)
    data = {"who": rng.integers(0, persons, n), "x": x, "y": 0.5 * x + noise}
    for bound in ("scale", "sample"):
        private = gm.release(
            data,
            schema={"x": [-1, 1], "y": [-1, 1]},
            privacy_unit=gm.PrivacyUnit("who", 12, bound),
            random_state=1,
            **BUDGET,
        )
        assert private.ols("y").params["x"] == pytest.approx(0.5, abs=0.02)
        assert private.ols("y").summary().nobs == pytest.approx(n, rel=0.05)


def test_samples_are_of_persons(monkeypatch):
    """A large table's middle passes read a part of the persons, whole, and come to the same."""
    monkeypatch.setattr(preconditioning, "LEAST_ROWS", 1)
    monkeypatch.setattr(preconditioning, "HISTOGRAM_ROWS", 5_000)
    rng = np.random.default_rng(5)
    n = 60_000
    x = rng.uniform(-1, 1, n)
    data = {"who": np.arange(n) // 2, "x": x, "y": np.clip(0.5 * x + rng.normal(0, 0.1, n), -1, 1)}
    private = gm.release(
        data,
        schema={"x": [-1, 1], "y": [-1, 1]},
        epsilon=8.0,
        delta=1e-6,
        privacy_unit=gm.PrivacyUnit("who", 2),
        random_state=0,
    )
    rates = [output.rate for output in private.statistic.passes]
    assert rates[0] == rates[-1] == 1.0
    assert 0 < rates[1] == rates[2] <= 0.25
    assert private.ols("y").params["x"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"privacy_unit": "who"}, "privacy_unit must be a PrivacyUnit, got str"),
        ({"reading": gm.ReadOptions(sorted_by_unit=True)}, "sorted_by_unit requires"),
        ({"privacy_unit": gm.PrivacyUnit("x", 3)}, "cannot be released or used as a weight"),
        ({"schema": WEIGHTED, "privacy_unit": gm.PrivacyUnit("w", 3)}, "or used as a weight"),
        ({"privacy_unit": gm.PrivacyUnit("who", 3), "epsilon": float("inf")}, "requires a finite epsilon"),
        ({"privacy_unit": gm.PrivacyUnit("who", 4096), "epsilon": 0.01}, "Decrease max_contributions"),
        ({"privacy_unit": gm.PrivacyUnit("whom", 3)}, "'whom' is not in"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(gm.GaussmixError, match=words):
        gm.release(table(), **{"schema": SCHEMA, **BUDGET, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("who", 0), "max_contributions must be"),
        (("who", 5000), "from 1 to 4,096"),
        (("who", 3, "drop"), "contribution_bounding"),
        ((3, 3), "name of a column"),
    ],
)
def test_a_privacy_unit_is_checked_when_it_is_declared(arguments, words):
    with pytest.raises(gm.GaussmixError, match=words):
        gm.PrivacyUnit(*arguments)


def test_rows_of_another_unit_are_refused():
    rows = UnitRows(table(), SCHEMA, UNITS[0], key=bytes(32))
    with pytest.raises(gm.DeclarationError, match="different privacy unit"):
        prepare(SCHEMA, gm.Budget(**BUDGET)).draw(rows)


def test_a_ledger_has_one_unit(tmp_path):
    persons = gm.Ledger(tmp_path / "persons.ledger", **BUDGET, releases=2, privacy_unit="who")
    rows = gm.Ledger(tmp_path / "rows.ledger", **BUDGET)
    assert "privacy_unit='who'" in repr(persons)
    assert gm.Ledger.open(persons.path).reservation.privacy_unit == "who"
    with pytest.raises(gm.ArgumentError, match=r"the privacy unit 'who', but the release is for row-level privacy"):
        gm.release(table(), schema=SCHEMA, budget=gm.Budget(ledger=persons))
    with pytest.raises(gm.ArgumentError, match=r"row-level privacy, but the release is for the privacy unit 'who'"):
        gm.release(table(), schema=SCHEMA, budget=gm.Budget(ledger=rows), privacy_unit=gm.PrivacyUnit("who", 3))
    with pytest.raises(gm.ArgumentError, match="Use a ledger with the privacy unit of the release"):
        persons.spend(mu=0.01)
    assert not persons.entries()
    assert not rows.entries()
    for j in (2, 5):  # how many rows count may differ: each release's μ is for a person
        private = gm.release(
            table(), schema=SCHEMA, budget=gm.Budget(ledger=persons), privacy_unit=gm.PrivacyUnit("who", j)
        )
        assert private.certificate.privacy_unit == PrivacyUnit("who", j)
        assert private.certificate.is_private


def test_bounds_are_not_proposed_from_a_ledger_of_persons(tmp_path):
    """A row is in one bin of each column, a person with many rows is not."""
    persons = gm.Ledger(tmp_path / "persons.ledger", **BUDGET, privacy_unit="who")
    unread = iter([])
    with pytest.raises(gm.ArgumentError, match=r"the privacy unit 'who', but the release is for row-level privacy"):
        gm.propose_bounds(unread, {"x": "number"}, budget=gm.Budget(ledger=persons))
    account = persons.lattice_account(shares=["1"], coordinates=[9])
    with pytest.raises(gm.ArgumentError, match="Use a ledger with the privacy unit of the release"):
        persons.spend_account(account, failures=1e-12)
    assert not persons.entries()


def test_the_certificate_says_whose_rows_are_protected(tmp_path):
    for bound, words in (("sample", "at most 12 rows sampled"), ("scale", "contributions scaled to at most 12 rows")):
        private = gm.release(table(), schema=SCHEMA, privacy_unit=gm.PrivacyUnit("who", 12, bound), **BUDGET)
        private.save(tmp_path / f"{bound}.parquet")
        again = gm.load(tmp_path / f"{bound}.parquet")
        assert again.certificate == private.certificate
        assert again.fingerprint == private.fingerprint
        assert f"all rows with the same who ({words})" in str(again.certificate)
        assert np.array_equal(again.second_moment, private.second_moment)
    plain = gm.release(table(), schema=SCHEMA, **BUDGET).certificate
    assert "privacy unit: one row\n" in str(plain)
    assert plain.to_dict()["privacy_unit"] is None


def test_populations_need_independent_rows():
    private = gm.release(table(), schema=SCHEMA, privacy_unit=gm.PrivacyUnit("who", 3), random_state=0, **BUDGET)
    with pytest.raises(gm.ArgumentError, match="a privacy unit may have several rows"):
        private.ols("y").summary(estimand="population", n_rows=400)


def test_moments_of_persons(tmp_path):
    """Sites build them with their own keys; what is added has one unit."""
    unit = {"privacy_unit": gm.PrivacyUnit("who", J)}
    one, two = (gm.Moments.of(table(seed=seed), SCHEMA, **unit) for seed in (0, 1))
    one.save(tmp_path / "one.moments")
    total = gm.Moments.load(tmp_path / "one.moments") + two
    private = gm.release(total, **BUDGET)
    assert private.certificate.privacy_unit == PrivacyUnit("who", J)
    assert "share no unit" in str(private.certificate)
    with pytest.raises(gm.DataError, match="different privacy units"):
        _ = one + gm.Moments.of(table(), SCHEMA)
    with pytest.raises(gm.DeclarationError, match="different privacy unit"):
        gm.release(total, **BUDGET, privacy_unit=gm.PrivacyUnit("who", J + 1))


# ---------------------------------------------------------------------------------------------------------------
# What attackers found
@pytest.mark.parametrize("number", [np.uint8(129), np.int8(12), np.int16(300), np.int64(3)], ids=repr)
def test_small_integers_of_numpy_do_not_overflow(number):
    """np.uint8(129)**2 is 1: the noise off the diagonal was 128 times too small."""
    unit = PrivacyUnit("who", number)
    assert type(unit.max_contributions) is int
    for sigma in (diagonal_sigma, off_diagonal_sigma):
        assert sigma(0.1, 20, rows=number) == sigma(0.1, 20, rows=int(number))
    table = {"who": np.arange(9), "a": np.linspace(0, 1, 9)}
    private = gm.release(
        table, schema={"a": [0, 1]}, epsilon=1, delta=1e-6, privacy_unit=gm.PrivacyUnit("who", number), passes=1
    )
    assert private.to_bytes()
    assert Moments.of(table, {"a": [0, 1]}, privacy_unit=gm.PrivacyUnit("who", number)).to_bytes()


@pytest.mark.parametrize("kind", [baselines.AdaSSP, baselines.SheffetMixing, gm.LinearRegression])
def test_moments_of_persons_are_not_taken_for_rows(kind):
    """One row changes those of its person: with 100 rows e1 and one more e2 by 1.4, not 1."""
    model = kind(epsilon=1.0, delta=1e-6, data_norm=1.0, bounds_y=(-1, 1))
    table = {"X": np.full((9, 2), 0.1), "y": np.zeros(9), "who": np.arange(9)}
    moments = Moments.of(table, model.schema(2), privacy_unit=gm.PrivacyUnit("who", 3))
    with pytest.raises(ArgumentError, match="moments with a privacy unit"):
        model.fit_moments(moments)


def test_a_sorted_table_of_dropped_rows_is_a_release_of_nobody():
    table = {"who": np.arange(5), "a": np.full(5, np.nan), "b": np.ones(5)}
    schema = {"a": {"lower": 0, "upper": 1, "missing": "drop-row"}, "b": [0, 1]}
    budget = {"epsilon": 1.0, "delta": 1e-6, "privacy_unit": gm.PrivacyUnit("who", 2), "random_state": 0}
    sorted_, other = (
        gm.release(table, schema=schema, reading=gm.ReadOptions(sorted_by_unit=way), **budget) for way in (True, False)
    )
    np.testing.assert_array_equal(sorted_.second_moment, other.second_moment)


def test_one_sampled_row_of_each_unit_gives_intervals_for_a_population():
    """The population is that of units, each with one of its rows at random: coverage of its coefficient, 60 tables."""
    held = {"population": 0, "table": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        persons = 3000
        sizes = rng.integers(1, 6, persons)
        who = np.repeat(np.arange(persons), sizes)
        level = rng.normal(0, 0.3, persons)[who]  # the rows of a unit are dependent
        x = np.clip(0.5 * level + rng.normal(0, 0.3, len(who)), -1.5, 1.5)
        y = np.clip(0.8 * x + level + rng.normal(0, 0.1, len(who)), -3, 3)
        data = {"who": who, "x": x, "y": y}
        private = gm.release(
            data,
            {"x": [-1.5, 1.5], "y": [-3, 3]},
            epsilon=50.0,
            delta=1e-6,
            random_state=seed,
            topcode=None,
            passes=1,
            privacy_unit=gm.PrivacyUnit("who", 1, "sample"),
        )
        truth = 0.8 + 0.5 * 0.09 / (0.25 * 0.09 + 0.09)  # x also stands for the level
        for estimand in held:
            low, high = private.ols("y", ["x"]).summary(estimand=estimand, n_rows=persons).conf_int()["x"]
            held[estimand] += low <= truth <= high
    assert held["population"] >= 52  # of 60; fewer than 52 have a probability below 0.5 % at 95 % coverage
    assert held["table"] <= 45  # those of the table are too short for the population
    assert "one row of each who, chosen at random" in str(private.ols("y", ["x"]).summary())


def test_scaled_units_have_no_intervals_for_a_population():
    data = {"who": np.arange(2000) % 700, "x": np.linspace(0, 1, 2000), "y": np.linspace(1, 0, 2000)}
    private = gm.release(
        data, {"x": [0, 1], "y": [0, 1]}, epsilon=5.0, delta=1e-6, passes=1, privacy_unit=gm.PrivacyUnit("who", 1)
    )
    with pytest.raises(gm.ArgumentError, match="may have several rows"):
        private.ols("y", ["x"]).summary(estimand="population", n_rows=2000)
