"""From tables, moments and ledgers to releases: declared first, then read, then recorded, then drawn."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.rows import SummedRows, rows_of


def test_budget_and_schema_are_declared_before_anything_is_read():
    def unread():
        raise AssertionError("the rows were read")
        yield

    for arguments, words in [
        ({"schema": SCHEMA}, "A budget is required"),
        ({"schema": SCHEMA, "epsilon": 1.0}, "A budget is required: .* delta is missing"),
        (
            {"schema": SCHEMA, "epsilon": 1.0, "budget": gm.Budget(1.0, 1e-6)},
            "Pass either the budget or the two numbers",
        ),
        ({"epsilon": 1.0, "delta": 1e-6}, "schema is required: bounds of numbers"),
        ({"schema": SCHEMA, "epsilon": -1.0, "delta": 1e-6}, "epsilon must be"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 0.0}, "delta must lie"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "random_state": "x"}, "random_state must be None"),
        ({"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "topcode": {"z": (0, 1)}}, "topcode: 'z' must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            gm.release(unread(), **arguments)


def test_standard_errors_allow_for_what_clipping_removes():
    """η = √2 μ Σ(‖z‖² - c)₊/c from the last pass, a quarter of it, at most a half."""
    rng = np.random.default_rng(3)
    table = {"cost": np.minimum(rng.exponential(1.0, 20_000) ** 2, 500.0), "age": rng.uniform(0, 1, 20_000)}
    schema = {"cost": [0, 500], "age": [0, 1]}
    statistic = gm.release(table, schema, epsilon=1.0, delta=1e-6, topcode=None, random_state=1).statistic
    last = statistic.passes[-1]
    removed = last.request.lost / (1 - last.request.lost) * np.trace(last.matrix)
    assert statistic.clipping_bias == pytest.approx(min(0.25 * np.sqrt(2) * last.mu * removed, 0.5))
    assert statistic.clipping_bias > 0
    assert statistic.noisy.clipping_bias == statistic.clipping_bias
    assert gm.release(table, schema, epsilon=1.0, delta=1e-6, passes=1, random_state=1).statistic.clipping_bias == 0


def test_replace_one_costs_more_noise():
    table = patients(500)
    one, other = (
        gm.release(table, schema=SCHEMA, budget=gm.Budget(1.0, 1e-6, neighbours=neighbours), passes=1)
        for neighbours in ("add-remove", "replace-one")
    )
    assert other.statistic.passes[0].mu < one.statistic.passes[0].mu
    assert other.certificate.neighbours == "replace-one"


def test_a_row_counted_twice_is_protected_half_as_well():
    """Why merging a part twice is refused: the certificate's ε = 1 would be 2.1."""
    gamma = gm.calibrate(1.0, 1e-6, sketch_size=250).gamma
    assert gm.accounting.epsilon(1e-6, sketch_size=250, gamma=gamma / 2) == pytest.approx(2.12, abs=0.01)


def test_releases_from_a_ledger(tmp_path):
    table = patients(500)
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, releases=2)
    first = gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger, note="first"))
    assert (first.certificate.epsilon, first.certificate.delta) == (1.0, 1e-6)
    assert ledger.remaining().releases_left == 1
    second = gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))  # what is left
    assert first.certificate.account.mu == second.certificate.account.mu
    with pytest.raises(ValueError, match="exceeds the remaining budget"):
        gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))
    assert len(ledger.entries()) == 2
    with pytest.raises(ValueError, match="epsilon and delta cannot be combined with a ledger"):
        gm.release(table, schema=SCHEMA, budget=gm.Budget(1.0, 1e-6, ledger=ledger))


def test_infinite_epsilon_is_marked():
    release = gm.release(patients(200), schema=SCHEMA, epsilon=math.inf, delta=1e-6)
    assert not release.certificate.is_private


def test_estimators_spend_from_a_ledger(tmp_path):
    table = patients(500)
    X, y = table[["age", "bmi"]], table["cost"]
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, releases=2)
    declared = {"bounds_X": (0, 100), "bounds_y": (0, 20), "ledger": ledger}
    model = gm.LinearRegression(**declared).fit(X, y)
    assert model.privacy_.account.mu == ledger.entries()[0].mu
    assert ledger.remaining().releases_left == 1
    gm.LogisticRegression(bounds_X=(0, 100), ledger=ledger).fit(X, table["smoker"])  # what is left
    with pytest.raises(ValueError, match="exceeds the remaining budget"):
        gm.LinearRegression(**declared).fit(X, y)
    assert [entry.note for entry in ledger.entries()] == ["LinearRegression", "LogisticRegression"]


def test_every_claim_is_verified_once(tmp_path, monkeypatch):
    """An account, a certificate and a release are verified when they are made, and again only from a file."""
    calls = Counter()

    def counted(kind):
        honest, name = kind.verify, kind.__name__

        def verify(self):
            calls[name, id(self)] += 1
            made.append(self)  # so that no other object has its id
            honest(self)

        monkeypatch.setattr(kind, "verify", verify)

    made = []
    for kind in (LatticeAccount, gm.Certificate, gm.Release):
        counted(kind)
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6, releases=2)
    out = tmp_path / "patients.release.parquet"
    gm.release(patients(500), SCHEMA, budget=gm.Budget(ledger=ledger), out=out)
    assert Counter(name for name, _ in calls) == {"LatticeAccount": 2, "Certificate": 1, "Release": 1}
    assert set(calls.values()) == {1}
    calls.clear()
    gm.load(out)
    assert Counter(name for name, _ in calls) == {"LatticeAccount": 1, "Certificate": 1, "Release": 1}
    assert set(calls.values()) == {1}


def test_a_ledger_decides_the_relation(tmp_path):
    table = patients(500)
    ledger = gm.Ledger(tmp_path / "patients.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="as in the ledger, got"):
        gm.release(table, schema=SCHEMA, budget=gm.Budget(neighbours="replace-one", ledger=ledger))
    first = gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))
    assert any("all of its releases together" in condition.text for condition in first.certificate.conditions)
    with pytest.raises(ValueError, match="exceeds the remaining budget"):
        gm.release(table, schema=SCHEMA, budget=gm.Budget(ledger=ledger))
    assert len(ledger.entries()) == 1


def test_a_vector_and_arrays_make_the_same_release():
    """An estimator is a schema: what it releases of arrays is what the curator releases of the same table."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (500, 3)), rng.uniform(0, 1, 500)
    X[::7] *= 1e200
    schema = gm.Schema({"X": gm.Vector(3, norm=2.0), "y": gm.Numeric(0, 1)})
    by_table, by_arrays = (
        gm.release(data, epsilon=1.0, delta=1e-6, passes=1, random_state=0, **options)
        for data, options in (
            ({"X": X, "y": y}, {"schema": schema}),
            (gm.Moments.of_arrays([(X, y)], schema), {}),
        )
    )
    assert np.array_equal(by_table.second_moment, by_arrays.second_moment)
    assert by_table.schema == by_arrays.schema == schema
    assert np.isfinite(by_table.second_moment).all()


def test_moments_of_another_schema_are_refused():
    from gaussmix.mechanism.release import prepare

    sums = gm.Moments.of({"x": [1.0]}, {"x": [0, 1]})
    prepared = prepare(gm.Schema.of({"x": [0, 2]}), gm.Budget(1.0, 1e-6), random_state=0)
    with pytest.raises(ValueError, match="different schema from the one that was passed"):
        prepared.draw(SummedRows(sums))
    assert prepared.draw(rows_of({"x": [1.0]}, {"x": [0, 2]})).certificate.epsilon == 1.0  # nothing was lost


@pytest.mark.parametrize("budget", [gm.Budget(1.0, 1e-6), gm.Budget(math.inf, 1e-6), "ledger"], ids=str)
def test_one_preparation_is_one_release(tmp_path, budget):
    from gaussmix.mechanism.release import prepare

    ledger = gm.Ledger(tmp_path / "rows.ledger", epsilon=1.0, delta=1e-6)
    budget = gm.Budget(ledger=ledger) if budget == "ledger" else budget
    sums = gm.Moments.of({"x": [1.0]}, {"x": [0, 1]})
    prepared = prepare(sums.schema, budget, out=tmp_path / "r.parquet")
    prepared.draw(SummedRows(sums))
    written, entries = (tmp_path / "r.parquet").read_bytes(), ledger.entries()
    with pytest.raises(gm.ArgumentError, match="Prepare another one, which costs new budget"):
        prepared.draw(SummedRows(sums))
    assert (tmp_path / "r.parquet").read_bytes() == written
    assert ledger.entries() == entries
