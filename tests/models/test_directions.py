"""The weakest direction by name."""

from __future__ import annotations

import numpy as np
import pytest

from gaussmix.data.schema import Schema
from gaussmix.models.design import Problem, Response
from gaussmix.models.results import LeastIdentified, least_identified_contrast
from gaussmix.releases.noisy import NoisyMoment

SCHEMA = Schema.of({"age": [0, 100], "height": [0, 2], "job": ["none", "paid", "unpaid", "own"], "y": [0, 1]})


def problem(shares, *, noise=20.0, correlation=0.0, reference=None):
    rng = np.random.default_rng(0)
    n = 5000
    job = rng.choice(4, n, p=shares)
    x = rng.uniform(-1, 1, n)
    other = correlation * x + (1 - correlation) * rng.uniform(-1, 1, n)
    A = np.column_stack([x, other, *[(job == i) * 1.0 for i in range(4)], rng.uniform(-1, 1, n), np.ones(n)])
    noisy = NoisyMoment(A.T @ A, shape=noise * np.eye(8))
    vector = np.zeros(8)
    vector[6] = 1.0
    names = [name for name in SCHEMA.names if name not in ("y", "(intercept)")]
    return Problem.of(noisy, SCHEMA, Response("y", vector, 0.5, 0.5), names, reference=reference)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("reference", ["none", "own"])
def test_a_rare_level_is_named_with_its_rows(place, reference):
    """Whether or not it is the one that the others are measured from."""
    shares = np.full(4, 0.332)
    shares[place] = 0.004
    p = problem(shares, reference={"job": reference})
    found = least_identified_contrast(p)
    level = ("none", "paid", "unpaid", "own")[place]
    assert found.names == (f"job={level}",)
    assert found.rows == pytest.approx(20, abs=8)
    assert found.std_error == pytest.approx(20 * np.sqrt(2))
    assert str(found) == f"job={level}, about {found.rows:.0f} rows, SE 28"
    assert found.signal_to_noise == p.signal_to_noise < 1


def test_columns_that_go_together_are_named_together():
    found = least_identified_contrast(problem([0.25] * 4, correlation=0.97))
    assert set(found.names) == {"age", "height"}
    assert found.rows is None
    assert str(found) in ("age with height", "height with age")


def test_strength_is_the_least_over_directions():
    p = problem([0.4, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(1)
    u = rng.standard_normal((len(p.names), 5000))
    N = p.noisy.shape[:-1, :-1]
    ratios = np.sum(u * (p.moment @ u), axis=0) / (np.sqrt(2) * np.sum(u * (N @ u), axis=0))
    assert p.signal_to_noise <= ratios.min()
    weakest = p.directions[1][:, 0]
    assert weakest @ p.moment @ weakest / (np.sqrt(2) * weakest @ N @ weakest) == pytest.approx(p.signal_to_noise)


def test_negative_counts_are_shown_as_none():
    assert str(LeastIdentified(("a=b",), -1.0, -16.0, 30.0)) == "a=b, about 0 rows, SE 30"
    assert str(LeastIdentified(("a=b",), 0.2, 0.014, 0.046)) == "a=b, about 0.01 rows after clipping, SE 0.05"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (10.3, "10"),
        (9.6, "10"),
        (123.4, "123"),
        (1.2, "1"),
        (0.97, "1"),
        (0.2, "0.2"),
        (0.00003, "0.00003"),
        (0.0, "0"),
    ],
)
def test_shortened_rows_are_told_without_powers_of_ten(rows, words):
    assert str(LeastIdentified(("a=b",), 2.0, rows, 0.23)) == f"a=b, about {words} rows after clipping, SE 0.2"
