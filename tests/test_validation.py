"""One wording for every check of an argument: its name, the rule, what was given; cut where that is long."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from gaussmix import _validation as check
from gaussmix.errors import ArgumentError, ArgumentTypeError, GaussmixError

LONG = int("9" * 400)
NO_NUMBERS = ["1", None, [1.0], 1 + 2j, True, np.True_, np.array([1.0]), Decimal("1")]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check.real(x=math.nan), "x must be a real number, got nan."),
        (lambda: check.real(x=10**400), "x must be smaller than 1.8e308 in absolute value, got "),
        (lambda: check.positive(gamma=0.0), "gamma must be a number > 0, got 0.0."),
        (lambda: check.positive(gamma=-math.inf), "gamma must be a number > 0, got -inf."),
        (lambda: check.positive(finite=True, gamma=math.inf), "gamma must be a finite number > 0, got inf."),
        (lambda: check.positive(finite=True, gamma=-2), "gamma must be a finite number > 0, got -2."),
        (lambda: check.nonnegative(tau=-1e-300), "tau must be a finite number ≥ 0, got -1e-300."),
        (lambda: check.nonnegative(tau=math.inf), "tau must be a finite number ≥ 0, got inf."),
        (lambda: check.in_interval(0, 1, delta=0), "delta must lie in (0, 1), got 0."),
        (lambda: check.in_interval(0, 1, delta=1.0), "delta must lie in (0, 1), got 1.0."),
        (lambda: check.in_interval(0, 1, closed=True, r2=1.5), "r2 must lie in [0, 1], got 1.5."),
        (lambda: check.positive_integer(n_rows=0), "n_rows must be an integer ≥ 1, got 0."),
        (lambda: check.positive_integer(n_rows=2**63), "n_rows must be less than 2**63, got 9223372036854775808."),
        (lambda: check.sketch_rows(sketch_size=2**40 + 1), "sketch_size must be at most 2**40, got 1099511627777. "),
        (lambda: check.sketch_rows(sketch_size=0), "sketch_size must be an integer ≥ 1, got 0."),
        (lambda: check.choice(("a", "b"), mode="c"), "mode must be one of 'a', 'b', got 'c'."),
        (lambda: check.choice(("a", "b"), mode=None), "mode must be one of 'a', 'b', got None."),
        (lambda: check.choice(("a", "b"), mode=["a"]), "mode must be one of 'a', 'b', got ['a']."),
        (lambda: check.text(note="\ud800"), "note must be valid Unicode text (UTF-8)."),
        (lambda: check.numbers(gamma=[1.0, math.nan]), "gamma must not contain nan."),
        (
            lambda: check.broadcastable(a=np.zeros(2), b=np.zeros(3)),
            "Arguments must be scalars or arrays of the same shape, got shapes a (2,), b (3,).",
        ),
    ],
)
def test_values_that_an_argument_may_not_have(call, words):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(words)
    assert isinstance(caught.value, ValueError | GaussmixError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (check.real, "a real number"),
        (check.positive, "a real number"),
        (check.nonnegative, "a real number"),
        (lambda **named: check.in_interval(0, 1, **named), "a real number"),
        (check.positive_integer, "an integer ≥ 1"),
        (check.sketch_rows, "an integer ≥ 1"),
    ],
)
def test_types_that_an_argument_may_not_have(function, rule, value):
    with pytest.raises(ArgumentTypeError) as caught:
        function(x=value)
    assert str(caught.value) == f"x must be {rule}, got {value!r} of type {type(value).__name__}."
    assert isinstance(caught.value, TypeError)


def test_a_float_is_no_integer():
    with pytest.raises(ArgumentTypeError, match=r"k must be an integer ≥ 1, got 3\.0 of type float"):
        check.positive_integer(k=3.0)


@pytest.mark.parametrize("value", [b"note", 3, None])
def test_text_is_a_string(value):
    with pytest.raises(ArgumentTypeError, match="note must be a string, got "):
        check.text(note=value)
    assert check.text(note="naïve ✓") == "naïve ✓"


@pytest.mark.parametrize(
    ("value", "whole"), [("1", False), ([1.0], True), ([True], False), ([None], False), (1j, False)]
)
def test_arrays_of_other_things(value, whole):
    with pytest.raises(ArgumentTypeError, match="gamma must be a"):
        check.numbers(whole=whole, gamma=value)


def test_what_passes_comes_back_as_a_plain_number():
    for value in (2, 2.0, np.float32(2), np.int64(2), Fraction(4, 2)):
        for function in (check.real, check.positive, check.nonnegative):
            found = function(x=value)
            assert type(found) is float
            assert found == 2.0
    assert check.real(x=-math.inf) == -math.inf
    assert check.positive(x=math.inf) == math.inf
    assert check.nonnegative(x=0) == 0.0
    assert check.in_interval(0, 1, closed=True, x=1) == 1.0
    for function in (check.positive_integer, check.sketch_rows):
        assert type(function(k=np.uint8(7))) is int
    assert check.sketch_rows(k=2**40) == 2**40
    assert check.positive_integer(k=2**63 - 1) == 2**63 - 1
    assert check.choice(("a", "b"), mode="b") == "b"


def test_numbers_are_float_arrays():
    assert check.numbers(x=[1, 2]).dtype == np.float64
    assert check.numbers(whole=True, x=np.array([3], np.uint8)).tolist() == [3.0]
    assert check.numbers(x=[]).shape == (0,)
    assert check.numbers(x=2).shape == ()
    a, b = check.broadcastable(a=np.zeros(()), b=np.zeros(3))
    assert a.shape == b.shape == (3,)


@pytest.mark.parametrize("function", [check.real, check.positive, check.nonnegative, check.positive_integer])
@pytest.mark.parametrize("value", [LONG, 10**9000, "x" * 10_000, ["y"] * 5000], ids=["400", "9000", "text", "list"])
def test_a_long_value_is_cut(function, value):
    """Also one that Python refuses to write out: an integer of thousands of digits."""
    with pytest.raises(GaussmixError) as caught:
        function(x=value)
    assert len(str(caught.value)) < 200
