"""Merged levels and reference levels: what a table with these levels would give; proposals from noisy counts."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest

import gaussmix as gm
from example_tables import SCHEMA, patients
from gaussmix.data.schema import Schema
from gaussmix.models.design import Coding, counts_of_levels, suggest_collapses
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
    assert problem.references["region"] == "region=else"
    assert problem.counts["region=else"][0] + problem.counts["region=south"][0] == pytest.approx(3000, rel=1e-5)


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
        ({"collapse": {"weight": {"x": ["a"]}}}, "'weight' is not a predictor of this model"),
        ({"collapse": {"cost": {"x": ["a"]}}}, "'cost' is not a predictor of this model"),
        ({"collapse": {"age": {"x": ["a"]}}}, "'age' has no levels to collapse"),
        (
            {"collapse": {"region": {"x": ["east"]}}},
            "'east' is not a level of 'region'; the levels are north, south, west",
        ),
        ({"collapse": {"region": {"x": "south"}}}, "in a list"),
        ({"collapse": {"region": {"x": []}}}, "in a list"),
        ({"collapse": {"region": {"x": ["south"], "y": ["south"]}}}, "collapsed twice"),
        ({"collapse": {"region": {"north": ["south", "west"]}}}, "choose another name"),
        ({"reference": {"region": "east"}}, "'east' is not a level of 'region'"),
        ({"reference": {"age": "old"}}, "'age' has no levels"),
    ],
)
def test_bad_codings(nonprivate_release, options, words):
    with pytest.raises(ValueError, match=words):
        nonprivate_release.ols("cost").summary(**options)


def test_a_reference_needs_an_intercept(table):
    bare = gm.release(table, schema={"columns": SCHEMA, "intercept": 0.0}, epsilon=math.inf, delta=1e-6)
    with pytest.raises(ValueError, match="reference needs a release with an intercept"):
        bare.ols("cost").summary(reference={"region": "west"})
    assert "region=north" in bare.ols("cost").summary().params


def rare(counts, scale):
    """A second moment with so many rows a level, and noise of standard deviation √2·scale in each count."""
    schema = Schema.of({"job": [f"l{i}" for i in range(len(counts))], "x": [0, 1]})
    G = np.diag([*counts, 10.0, sum(counts)]).astype(float)
    return NoisyMoment(G, shape=scale * np.eye(len(G))), schema


@pytest.mark.parametrize(
    ("counts", "wanted"),  # a level is rare below 5 √2 · 10 = 71 rows
    [
        ([1000, 500, 3, 20], ["l2", "l3"]),  # 23 rows together are still rare: no frequent level joins them
        ([3, 1000, 20], ["l0", "l2"]),
        ([1000, 500, 300], None),
        ([1000, 500, 3], None),  # one rare level would be merged with a frequent one
        ([1000, 3], None),
        ([3, 4, 5], None),  # no level would be left to compare with
    ],
)
def test_only_levels_with_small_noisy_counts_are_proposed_to_be_merged(counts, wanted):
    noisy, schema = rare(counts, 10.0)
    found = suggest_collapses(noisy, schema)
    assert found == ({} if wanted is None else {"job": {"other": wanted}})
    names = Coding.of(
        schema, ["job"], collapse=found, reference={"job": "l0" if "l0" not in (wanted or []) else "l1"}
    ).names
    assert ("job=other" in names) == (wanted is not None)
    assert suggest_collapses(noisy, schema, at_least=1e-9) == {}


def test_merged_levels_are_not_called_like_a_frequent_level():
    schema = Schema.of({"job": ["other", "a", "b"], "x": [0, 1]})
    G = np.diag([1000.0, 3.0, 4.0, 10.0, 1007.0])
    noisy = NoisyMoment(G, shape=10 * np.eye(len(G)))
    assert suggest_collapses(noisy, schema) == {"job": {"other levels": ["a", "b"]}}


def test_summaries_print_a_collapse_that_can_be_given_back(table):
    """Two levels with three rows each: proposed by release and summary, taken by it, and then no longer there."""
    place = np.arange(len(table))
    islands = np.where(place < 3, "island", np.where(place < 6, "islet", table["region"]))
    schema = {**SCHEMA, "region": {"levels": ["north", "south", "west", "island", "islet"]}}
    release = gm.release(table.assign(region=islands), schema=schema, epsilon=1.0, delta=1e-6, random_state=0)
    proposed = release.suggest_collapses()
    assert proposed == {"region": {"other": ["island", "islet"]}}
    assert release.suggest_collapses(at_least=1e-9) == {}
    summary = release.ols("cost").summary()
    assert summary.suggested_collapses == proposed
    text = str(summary)
    assert "noisy counts after norm clipping below 5 standard errors" in text
    given = ast.literal_eval(text[text.index("collapse=") + len("collapse=") : text.index("}}") + 2])
    merged = release.ols("cost").summary(collapse=given)
    assert "region=other" in merged.params
    assert not {"region=island", "region=islet"} & set(merged.params)
    assert merged.suggested_collapses == {}
    assert "consider collapsing" not in str(merged)
    # Levels of a column that is no predictor are not collapsed.
    assert release.ols("cost", predictors=["age"]).summary().suggested_collapses == {}
    with pytest.raises(gm.ArgumentError, match="at_least must be"):
        release.suggest_collapses(at_least=0)


def test_a_single_rare_level_is_not_merged_with_a_frequent_one(table):
    sex = np.where(np.arange(len(table)) < 4, "x", table["sex"])
    schema = {**SCHEMA, "sex": {"levels": ["f", "m", "x"]}}
    release = gm.release(table.assign(sex=sex), schema=schema, epsilon=1.0, delta=1e-6, random_state=0)
    assert release.suggest_collapses() == {}
    assert "consider collapsing" not in str(release.ols("cost").summary())


def test_counts_are_the_releases_own(table):
    release = gm.release(table, schema=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0)
    counts = counts_of_levels(release.statistic.noisy, release.schema, "region")
    for label, (count, deviation) in counts.items():
        assert abs(count - (table["region"] == label).sum()) < 6 * deviation
        assert deviation > 0
    with pytest.raises(ValueError, match="has no levels to count"):
        counts_of_levels(release.statistic.noisy, release.schema, "age")
