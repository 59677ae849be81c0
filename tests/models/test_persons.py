"""Releases whose unit is a person: what no account can hide, and what a release does not say of persons' rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gaussmix as gm
from gaussmix.accounting.discrete import lattice_account
from gaussmix.data.contributions import PrivacyUnit
from gaussmix.releases.certificate import PERSONS_APART
from gaussmix.releases.preconditioning import accounts_for, releases_of

SCHEMA = {"x": [-1, 1], "z": [-1, 1], "y": [-1, 1], "level": ["a", "b", "c"], "sick": "boolean"}
UNIT = PrivacyUnit("who", 4)


def table(n=20_000):
    rng = np.random.default_rng(0)
    z, level = rng.uniform(-1, 1, n), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    x = 0.5 * z + rng.uniform(-0.5, 0.5, n)
    y = np.clip(0.5 * x + 0.1 * (level == "b") + rng.uniform(-0.3, 0.3, n), -1, 1)
    return {"who": np.arange(n) // 4, "x": x, "z": z, "y": y, "level": level, "sick": rng.random(n) < 0.3}


@pytest.fixture(scope="module")
def persons():
    return gm.release(
        table(), schema=SCHEMA, epsilon=20, delta=1e-6, privacy_unit=gm.PrivacyUnit("who", 4, "sample"), random_state=0
    )


@pytest.mark.parametrize("passes", [1, 4])
@pytest.mark.parametrize("own", [False, True])
def test_an_account_has_room_for_persons(passes, own):
    """An account for rows has one count, persons need two."""
    shares, coordinates = releases_of(passes, 5, persons=own)
    account = lattice_account(1.0, 1e-6, shares=shares, coordinates=coordinates)
    assert accounts_for(account, passes, 5)
    assert accounts_for(account, passes, 5, persons=True) == (own or passes == 1)


def test_rows_are_not_believed_to_be_persons(persons):
    rows = gm.release(table(2000), schema=SCHEMA, epsilon=1, delta=1e-6, random_state=0)
    unit = {"privacy_unit": UNIT, "conditions": (*rows.certificate.conditions, PERSONS_APART)}
    with pytest.raises(gm.NotPrivateError, match="privacy unit of the release does not match"):
        gm.Release(rows.statistic, replace(rows.certificate, **unit))
    with pytest.raises(gm.NotPrivateError, match="passes of the release do not match"):
        gm.Release(replace(rows.statistic, unit=UNIT), replace(rows.certificate, **unit))
    with pytest.raises(gm.NotPrivateError, match="privacy unit of the release does not match"):
        gm.Release(replace(persons.statistic, unit=PrivacyUnit("who", 3)), persons.certificate)


def test_what_takes_rows_to_be_independent_is_refused(persons):
    with pytest.raises(gm.ArgumentError, match="An analysis of variance assumes independent rows"):
        persons.anova("y", "level")
    model = persons.iv("y", ["x"], instruments=["z"])
    assert model.params["x"] == pytest.approx(0.5, abs=0.05)
    with pytest.raises(gm.ArgumentError, match="a privacy unit may have several rows"):
        model.summary(estimand="population")


def test_tables_are_of_the_table_as_bounded(persons):
    data, found = table(), persons.describe()
    rows = {(row["term"], row["statistic"]): row["estimate"] for row in found.rows()}
    assert "Contributions are bounded" in str(found)
    cross = persons.crosstab("level", "sick")
    assert cross.estimates.sum() == pytest.approx(rows["(rows)", "count"])
    assert np.isnan(cross.independence.p_value)  # rows of a person are not independent
    assert rows["x", "mean"] == pytest.approx(data["x"].mean(), abs=0.01)
    assert rows["level=b", "share"] == pytest.approx(0.3, abs=0.01)
    means = {row["level"]: row["mean"] for row in persons.means("y", "level").rows()}
    assert means["b"] == pytest.approx(data["y"][data["level"] == "b"].mean(), abs=0.02)
    assert len(persons.synthetic(50, seed=0)) == 50


def test_what_was_shortened_is_told_by_the_histogram_where_no_entry_counts_rows(persons):
    """The intercept's entry is a sum of weights, or of rows that are counted another way."""
    rng = np.random.default_rng(1)
    weighted = gm.release(
        table(5000) | {"w": rng.uniform(0, 8, 5000)},
        schema={"x": [-1, 1], "y": [-1, 1], "w": [0, 8]},
        weight="w",
        epsilon=3,
        delta=1e-6,
        random_state=0,
    )
    for release in (persons, weighted):
        shortened = release.statistic.clipping_loss
        assert np.isnan(shortened.weight)
        assert np.isnan(shortened.std_error)
        assert shortened.expected == 1 - release.statistic.passes[-1].request.kept_weight
