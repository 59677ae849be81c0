"""Merged levels and reference levels: what a table with these levels would give."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.schema import Schema
from gaussmix.models.design import Coding
from gaussmix.releases.noisy import NoisyMoment


@pytest.fixture(scope="module")
def table():
    return patients(3000)


@pytest.fixture(scope="module")
def nonprivate_release(table):
    return gm.release(table, schema=SCHEMA, epsilon=math.inf, delta=1e-6)


def test_merged_levels_are_those_of_a_table_that_has_them_merged(table, nonprivate_release):
    merged = table.assign(region=table["region"].replace({"south": "other", "west": "other"}))
    schema = {**SCHEMA, "region": {"levels": ["north", "other"]}}
    wanted = gm.release(merged, schema=schema, epsilon=math.inf, delta=1e-6).ols("cost").summary()
    found = nonprivate_release.ols("cost").summary(collapse={"region": {"other": ["south", "west"]}})
    assert list(found.params) == list(wanted.params)
    assert list(found.params.values()) == pytest.approx(list(wanted.params.values()), rel=1e-4)
    assert found.rsquared == pytest.approx(wanted.rsquared, rel=1e-6)


def test_a_merged_level_can_be_the_first_one(nonprivate_release):
    problem = nonprivate_release.ols("cost").problem(collapse={"region": {"else": ["north", "west"]}})
    assert [name for name in problem.names if name.startswith("region")] == ["region=south"]
    assert problem.coding.references["region"][0] == "region=else"
    assert set(problem.counts) == {"sex=m", "region=south"}


def test_levels_are_measured_from_the_reference(nonprivate_release):
    first = nonprivate_release.ols("cost").summary().params
    other = nonprivate_release.ols("cost").summary(reference={"region": "west", "sex": "m"}).params
    assert other["region=south"] == pytest.approx(first["region=south"] - first["region=west"], abs=1e-6)
    assert other["region=north"] == pytest.approx(-first["region=west"], abs=1e-6)
    assert other["sex=f"] == pytest.approx(-first["sex=m"], abs=1e-6)
    assert other["age"] == pytest.approx(first["age"], rel=1e-6)
    shifted = first["(intercept)"] + first["region=west"] + first["sex=m"]
    assert other["(intercept)"] == pytest.approx(shifted, rel=1e-6)


def test_true_and_false_and_numbers_can_be_merged():
    schema = Schema.of({"a": {"levels": [1, 2, 3]}, "b": {"levels": [False, True], "missing": "level"}})
    coding = Coding.of(
        schema, ["a", "b"], collapse={"a": {"low": [1, 2]}, "b": {"no": [False, "(missing)"]}}, reference={"a": 3}
    )
    assert coding.names == ("(intercept)", "a=low", "b=true")
    assert coding.references["b"][0] == "b=no"
    assert coding.groups == {"a": (1,), "b": (2,)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"collapse": {"weight": {"x": ["a"]}}}, "must name predictors of the model, got 'weight'"),
        ({"collapse": {"cost": {"x": ["a"]}}}, "must name predictors of the model, got 'cost'"),
        ({"collapse": {"age": {"x": ["a"]}}}, "require a categorical column, got 'age'"),
        (
            {"collapse": {"region": {"x": ["east"]}}},
            "'east' is not a level of 'region'; the levels are north, south, west",
        ),
        ({"collapse": {"region": {"x": "south"}}}, "must be a nonempty list"),
        ({"collapse": {"region": {"x": []}}}, "must be a nonempty list"),
        ({"collapse": {"region": {"x": ["south"], "y": ["south"]}}}, "collapsed twice"),
        ({"collapse": {"region": {"north": ["south", "west"]}}}, "'north' is already a level of 'region'"),
        ({"reference": {"region": "east"}}, "'east' is not a level of 'region'"),
        ({"reference": {"age": "old"}}, "require a categorical column, got 'age'"),
    ],
)
def test_bad_codings(nonprivate_release, options, words):
    with pytest.raises(ValueError, match=words):
        nonprivate_release.ols("cost").summary(**options)


def test_a_reference_needs_an_intercept(table):
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=math.inf, delta=1e-6)
    with pytest.raises(ValueError, match="reference requires a release with an intercept"):
        bare.ols("cost").summary(reference={"region": "west"})
    assert "region=north" in bare.ols("cost").summary().params


def counted(counts, noise=1.0):
    """A second moment of a category with so many rows a level."""
    schema = Schema.of({"job": [f"l{i}" for i in range(len(counts))], "x": [0, 1]})
    G = np.diag([*counts, 10.0, sum(counts)]).astype(float)
    return NoisyMoment(G, shape=noise * np.eye(len(G))), schema


@pytest.mark.parametrize(
    ("counts", "options", "wanted"),
    [
        ([300, 1000, 500], {}, "l0"),  # the first level, unless it has less than a quarter of the largest
        ([249, 1000, 500], {}, "l1"),
        ([249, 1000, 500], {"reference": {"job": "l0"}}, "l0"),
        ([240, 1000, 500], {"collapse": {"job": {"small": ["l0", "l2"]}}}, "small"),
        ([100, 1000, 100], {"collapse": {"job": {"small": ["l0", "l2"]}}}, "l1"),
        ([-5, 3, 1], {}, "l1"),  # noise may make a count negative
    ],
)
def test_the_default_reference_is_the_first_level_unless_it_is_rare(counts, options, wanted):
    noisy, schema = counted(counts)
    coding = Coding.of(schema, ["job", "x"], noisy=noisy, **options)
    assert coding.references["job"][0] == f"job={wanted}"
    assert f"job={wanted}" not in coding.names


def test_products_are_measured_from_the_first_level(table):
    rare = table.assign(sex=np.where(np.arange(len(table)) < 100, "f", "m"))
    schema = Schema.of(SCHEMA, terms=["age:sex"])
    private = gm.release(rare, schema=schema, epsilon=5.0, delta=1e-6, random_state=0)
    assert private.ols("cost ~ age*sex").summary().references == ("sex=f",)
    assert private.ols("cost ~ age + sex").summary().references == ("sex=m",)
    assert "Reference levels: sex=m." in str(private.ols("cost ~ age + sex").summary())


def test_counts_are_the_releases_own(table):
    release = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    counts = release.ols("cost", ["region"]).problem().counts
    assert list(counts) == ["region=south", "region=west"]
    for label, (count, std_error) in counts.items():
        assert abs(count - (table["region"] == label.removeprefix("region=")).sum()) < 6 * std_error
        assert std_error > 0
