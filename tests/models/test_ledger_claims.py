"""A certificate of a release through a ledger claims what the ledger reserves, no less and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.accounting.gaussian import gaussian_delta
from gaussmix.baselines import AdaSSP
from gaussmix.ledger.store import fingerprint
from gaussmix.releases.certificate import LEDGER_BUDGET, Certificate
from release_files import forged

SCHEMA = {"a": [0, 1], "b": [0, 1]}
RNG = np.random.default_rng(0)
TABLE = {"a": RNG.uniform(0, 1, 300), "b": RNG.uniform(0, 1, 300), "who": np.arange(300) // 3}
LEAST = 0.4754  # ε that the noise of one of four releases gives alone


def released(path, **options):
    ledger = gm.Ledger(path, epsilon=1.0, delta=1e-6, releases=4, **options)
    unit = {"privacy_unit": gm.PrivacyUnit("who", 3)} if "privacy_unit" in options else {}
    return gm.release(TABLE, schema=SCHEMA, budget=gm.Budget(ledger=ledger), **unit)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    return released(tmp_path_factory.mktemp("rows") / "x.ledger")


@pytest.fixture(scope="module")
def persons(tmp_path_factory):
    return released(tmp_path_factory.mktemp("persons") / "x.ledger", privacy_unit="who")


@pytest.fixture(scope="module")
def proposed(tmp_path_factory):
    ledger = gm.Ledger(tmp_path_factory.mktemp("counts") / "x.ledger", epsilon=1.0, delta=1e-6, releases=4)
    return gm.propose_bounds({"s": ["a", "b"] * 5000}, {"s": "category"}, budget=gm.Budget(ledger=ledger)).certificate


def of_another(certificate, **changes):
    """The certificate with another reservation, whose hash fits."""
    reserved = replace(certificate.reservation, **changes)
    return replace(certificate, reservation=reserved, ledger=fingerprint(reserved))


# ---------------------------------------------------------------------------------------------------------------
# What is claimed
@pytest.mark.parametrize("kind", ["private", "persons", "proposed"])
def test_a_smaller_budget_is_refused(kind, request):
    found = request.getfixturevalue(kind)
    certificate = getattr(found, "certificate", found)
    assert (certificate.epsilon, certificate.delta) == (1.0, 1e-6)
    for change in ({"epsilon": LEAST}, {"epsilon": 0.9999}, {"delta": 1e-7}, {"epsilon": 1.0001}):
        with pytest.raises(gm.NotPrivateError, match="claims epsilon="):
            replace(certificate, **change)


def test_the_smaller_budget_is_what_this_noise_would_give_alone(private):
    """Which is why the noise of one release cannot refute the claim: only the ledger's budget can."""
    account = private.certificate.account
    assert gaussian_delta(LEAST, mu=account.mu) + (1 + math.e) * account.slack <= 1e-6


def test_a_smaller_budget_in_the_account_too_is_refused(private, proposed):
    for certificate in (private.certificate, proposed):
        account = replace(certificate.account, epsilon=LEAST)
        with pytest.raises(gm.NotPrivateError, match="differ in budget, neighbours or privacy unit"):
            replace(certificate, epsilon=LEAST, account=account)


def test_another_relation_is_refused(private):
    certificate, account = private.certificate, private.certificate.account
    flipped = replace(account, neighbours="replace-one", mu=account.mu * 1.4143)
    with pytest.raises(gm.NotPrivateError, match="claims epsilon="):
        replace(certificate, neighbours="replace-one")
    with pytest.raises(gm.NotPrivateError, match="differ in budget, neighbours or privacy unit"):
        replace(certificate, neighbours="replace-one", account=flipped)


def test_another_unit_is_refused(private, persons):
    with pytest.raises(gm.NotPrivateError, match="differ in budget, neighbours or privacy unit"):
        replace(persons.certificate, privacy_unit=replace(persons.certificate.privacy_unit, column="household"))
    with pytest.raises(gm.NotPrivateError, match="differ in budget, neighbours or privacy unit"):
        replace(persons.certificate, privacy_unit=None)
    with pytest.raises(gm.NotPrivateError, match="differ in budget, neighbours or privacy unit"):
        replace(
            private.certificate,
            privacy_unit=persons.certificate.privacy_unit,
            conditions=persons.certificate.conditions,
        )


# ---------------------------------------------------------------------------------------------------------------
# What the ledger reserves
@pytest.mark.parametrize("kind", ["private", "persons", "proposed"])
def test_the_reservation_is_that_of_the_ledger(kind, request):
    found = request.getfixturevalue(kind)
    certificate = getattr(found, "certificate", found)
    assert certificate.ledger == fingerprint(certificate.reservation)
    assert certificate.covers_ledger
    assert certificate.entry == 1
    stored = json.loads(json.dumps(certificate.to_dict()))
    assert stored["reservation"] == asdict(certificate.reservation)
    assert Certificate.from_dict(stored) == certificate


def test_a_ledger_shows_its_own_reservation(tmp_path):
    private = released(tmp_path / "x.ledger")
    ledger = gm.Ledger.open(tmp_path / "x.ledger")
    assert private.certificate.reservation == ledger.reservation
    assert private.certificate.ledger == ledger.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": LEAST},
        {"delta": 2e-6},
        {"mu": 0.3},
        {"mu": 0.1},
        {"delta_slack": 0.0},
        {"neighbours": "replace-one"},
        {"releases": 1},
        {"privacy_unit": "who"},
        {"identity": "0" * 32},
        {"delta_reserved": 1e-6},
    ],
)
def test_an_edited_reservation_is_refused(private, change):
    reserved = replace(private.certificate.reservation, **change)
    with pytest.raises(gm.NotPrivateError, match="does not match the fingerprint of the ledger"):
        replace(private.certificate, reservation=reserved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": LEAST}, "differ in budget, neighbours or privacy unit"),
        ({"delta": 2e-6}, "differ in budget, neighbours or privacy unit"),
        ({"neighbours": "replace-one"}, "differ in budget, neighbours or privacy unit"),
        ({"privacy_unit": "who"}, "differ in budget, neighbours or privacy unit"),
        ({"mu": 0.3}, "reserves more than its"),
        ({"delta_slack": 9e-7, "delta_reserved": 9.1e-7}, "reserves more than its"),
        ({"delta_reserved": 2e-6}, "reserves more than its"),
        ({"mu": 0.1}, "exceeds the budget of its ledger: it needs mu="),
        ({"delta_slack": 1e-30}, "exceeds the budget of its ledger: it needs delta_slack="),
    ],
)
def test_a_reservation_that_contradicts_the_release_is_refused_whatever_its_hash(private, change, words):
    with pytest.raises(gm.NotPrivateError, match=words):
        of_another(private.certificate, **change)


def test_thresholds_are_part_of_what_a_release_takes(proposed):
    taken = proposed.account.threshold_delta
    assert taken <= proposed.reservation.delta_slack
    with pytest.raises(gm.NotPrivateError, match="exceeds the budget of its ledger: it needs delta_slack="):
        of_another(proposed, delta_slack=taken * 0.999)


@pytest.mark.parametrize(
    "change",
    [
        {"reservation": None},
        {"ledger": "", "entry": 0},
        {"ledger": "", "entry": 0, "reservation": None},
        {"conditions": ()},
        {"conditions": (), "reservation": None},
        {"conditions": (), "ledger": "", "entry": 0},
    ],
)
def test_a_part_of_the_ledger_cannot_be_left_out(private, change):
    with pytest.raises(gm.NotPrivateError, match="all or none of the ledger's condition, fingerprint and budget"):
        replace(private.certificate, **change)


def test_a_release_without_a_ledger_cannot_claim_one(private):
    alone = gm.release(TABLE, schema=SCHEMA, epsilon=1.0, delta=1e-6).certificate
    assert (alone.reservation, alone.ledger, alone.entry, alone.covers_ledger) == (None, "", 0, False)
    assert alone.to_dict()["reservation"] is None
    ledger = {name: getattr(private.certificate, name) for name in ("ledger", "entry", "reservation")}
    with pytest.raises(gm.NotPrivateError, match="all or none of the ledger's condition, fingerprint and budget"):
        replace(alone, **ledger)
    baseline = AdaSSP(epsilon=1.0, delta=1e-6, data_norm=1.0, bounds_y=(-1, 1)).fit(np.zeros((9, 2)), np.zeros(9))
    with pytest.raises(gm.NotPrivateError, match="cannot record releases by this mechanism"):
        replace(baseline.privacy_, conditions=(LEDGER_BUDGET,), **ledger)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 1},
        {"mu": "0.2"},
        {"releases": 4.0},
        {"privacy_unit": None},
        {"identity": 3},
        {"releases": 0},
        {"mu": math.nan},
        {"delta": 1.5},
        {"neighbours": "add"},
    ],
)
def test_values_that_no_ledger_holds_are_refused(private, change):
    with pytest.raises((gm.ArgumentError, gm.ArgumentTypeError)):
        of_another(private.certificate, **change)
    with pytest.raises(gm.ArgumentTypeError, match="reservation must be"):
        replace(private.certificate, reservation=asdict(private.certificate.reservation))


# ---------------------------------------------------------------------------------------------------------------
# In a file
def written(private, tmp_path, change):
    path = tmp_path / "x.release.parquet"
    private.save(path)
    gm.load(path)
    forged(path, lambda stored: change(stored["certificate"]))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(epsilon=LEAST),
        lambda c: (c.update(epsilon=LEAST), c["account"].update(epsilon=LEAST)),
        lambda c: (c.update(epsilon=LEAST), c["account"].update(epsilon=LEAST), c["reservation"].update(epsilon=LEAST)),
        lambda c: c.update(neighbours="replace-one"),
        lambda c: (c.update(neighbours="replace-one"), c["account"].update(neighbours="replace-one", mu=0.2)),
        lambda c: c["reservation"].update(mu=0.1),
        lambda c: c["reservation"].update(releases=1),
        lambda c: c.update(reservation=None),
        lambda c: c.update(reservation=None, ledger="", entry=0),
        lambda c: c.update(conditions=[]),
    ],
)
def test_an_edited_file_whose_checksum_fits_is_refused(private, tmp_path, change):
    with pytest.raises(gm.NotPrivateError, match="was edited or is damaged"):
        gm.load(written(private, tmp_path, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(reservation=3),
        lambda c: c.pop("reservation"),
        lambda c: c["reservation"].pop("mu"),
        lambda c: c["reservation"].pop("privacy_unit"),
        lambda c: c["reservation"].update(colour="red"),
        lambda c: c["reservation"].update(epsilon="1"),
        lambda c: c["reservation"].update(mu=[1]),
    ],
)
def test_a_reservation_of_another_shape_is_damage(private, tmp_path, change):
    with pytest.raises(gm.DamagedError, match="was edited or is damaged"):
        gm.load(written(private, tmp_path, change))
