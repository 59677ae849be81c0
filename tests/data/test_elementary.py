"""Functions that terms are made of: against slow references, and the same bits wherever a number stands."""

import mpmath
import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.special import eval_legendre

from gaussmix.data.terms import hour_of_day, legendre, logarithm, splines

Z = np.linspace(-1, 1, 801)


def test_logarithm_is_within_two_units_of_the_last_place():
    rng = np.random.default_rng(0)
    near = 1 + rng.normal(size=300) * 10.0 ** rng.uniform(-15, -1, 300)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 300)), near, [1.0, 5e-324, 1.7e308, 2.0**0.5, 0.5**0.5]])
    with mpmath.workdps(40):
        for value, found in zip(x.tolist(), logarithm(x).tolist(), strict=True):
            assert abs(mpmath.log(mpmath.mpf(value)) - found) <= 2 * np.spacing(abs(found))


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 12])
def test_legendre_polynomials_are_scipys_and_stay_within_one(degree):
    found = legendre(degree, Z)
    np.testing.assert_allclose(found, eval_legendre(degree, Z), atol=1e-13)
    assert np.abs(found).max() == found[-1] == 1


@pytest.mark.parametrize("size", [3, 4, 9])
def test_splines_are_scipys_and_their_squares_stay_below_one(size):
    knots = np.r_[[-1.0] * 3, np.linspace(-1, 1, size - 1), [1.0] * 3]
    found = splines(size, Z)
    np.testing.assert_allclose(found, BSpline.design_matrix(Z, knots, 3).toarray()[:, 1:], atol=1e-11)
    assert 1 - 1e-11 < (found**2).sum(axis=1).max() < 1 - 2.0**-41


def test_hours():
    assert hour_of_day(np.array([0.0, 0.5, -0.25, 3.75])).tolist() == [0.0, 12.0, 18.0, 18.0]


@pytest.mark.parametrize("function", [logarithm, lambda x: legendre(5, x / 9 - 1), lambda x: splines(5, x / 9 - 1)])
def test_a_number_gives_the_same_bits_wherever_it_stands(function):
    """In every lane of a vector, in its remainder, alone, and in arrays that are not contiguous."""
    x = np.random.default_rng(1).uniform(0.01, 18, 67)
    whole = function(x)
    for start in range(5):
        for stop in (start + 1, start + 3, start + 8, 66):
            np.testing.assert_array_equal(function(x[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(function(np.repeat(x, 3)[::3]), whole)
    np.testing.assert_array_equal(function(x[::-1]), whole[::-1])
