"""Directed arithmetic, against slow computations with more digits, and the same under threads."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import pytest

from gaussmix.accounting.gaussian import gaussian_delta, gaussian_delta_up, gaussian_mu
from gaussmix.accounting.numerics import exp_up, normal_tail_up

BUDGETS = [(0.01, 1e-12), (0.1, 1e-9), (1.0, 1e-6), (1.0, 1e-30), (3.0, 1e-5), (20.0, 0.5), (1e-6, 0.3), (600.0, 1e-5)]


def integrated_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """∫ (φ(x - μ) - e^ε φ(x))₊ dx by quadrature, at 90 digits."""
    with mpmath.workdps(90):
        eps, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        start = eps / m + m / 2  # where the loss is ε
        ends = [start + step for step in (0, 1, 2, 4, 8, 16, 40)]
        if start < m:
            ends = sorted({*ends, *(m + step for step in (0, 1, 2, 4, 8, 16, 40))})
        return mpmath.quad(lambda x: mpmath.npdf(x, m) - mpmath.exp(eps) * mpmath.npdf(x), ends)


@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (0.3, 1 - 1e-12), (400.0, 1 - 1e-10)])
def test_mu_is_the_largest_of_48_bits_that_meets_the_budget(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    step = math.ldexp(1.0, math.frexp(mu)[1] - 48)
    assert mu == round(mu / step) * step
    assert gaussian_delta_up(epsilon, mu) <= delta < gaussian_delta_up(epsilon, mu + step)


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 0.25), (0.1, 0.02), (3.0, 4.0), (1e-3, 0.5), (8.0, 1.7)])
def test_delta_is_the_next_double_above_the_integral(epsilon, mu):
    exact, found = integrated_delta(epsilon, mu), gaussian_delta_up(epsilon, mu)
    assert mpmath.mpf(math.nextafter(found, 0.0)) < exact <= mpmath.mpf(found)
    assert found <= gaussian_delta(epsilon, mu=mu) <= found * (1 + 1e-9)


@pytest.mark.parametrize("x", [-700.0, -1.0, 0.0, 1e-9, 1.0, 64.0, 700.0])
def test_exponentials_are_just_above(x):
    with mpmath.workdps(120):
        exact = mpmath.exp(mpmath.mpf(x))
        found = mpmath.mpf(exp_up(x).numerator) / exp_up(x).denominator
        assert exact < found <= exact * (1 + mpmath.mpf(10) ** -29)


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(5), Fraction(-2), Fraction(39), Fraction(64)])
def test_normal_tails_are_just_above(x):
    with mpmath.workdps(120):
        exact = mpmath.ncdf(-mpmath.mpf(x.numerator) / x.denominator)
        found = mpmath.mpf(normal_tail_up(x).numerator) / normal_tail_up(x).denominator
        assert exact < found <= exact * (1 + mpmath.mpf(10) ** -29)


def test_threads_and_the_global_precision_of_mpmath_change_nothing():
    gaussian_delta_up.cache_clear()
    points = [(1.0 + i / 64, 0.25 + i / 512) for i in range(64)]
    alone = [gaussian_delta_up(*point) for point in points]
    gaussian_delta_up.cache_clear()
    with mpmath.workdps(5), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda point: gaussian_delta_up(*point), points)) == alone
        assert mpmath.mp.dps == 5
