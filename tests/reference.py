"""Slow, independent computations that the tests compare the library with.

Nothing here imports gaussmix. mpmath at 60 digits for the exact curve, quadrature at 30 for compositions.
"""

from __future__ import annotations

from typing import Literal

import mpmath as mp

DIGITS = 60


def chi_square_tails(k: int, x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Lower and upper tail of a chi-square by the power series or the continued fraction, whichever converges."""
    if x <= 0:
        return mp.mpf(0), mp.mpf(1)
    a, x = mp.mpf(k) / 2, x / 2
    front = mp.exp(a * mp.log(x) - x - mp.loggamma(a))
    tolerance = mp.mpf(10) ** (-mp.mp.dps - 15)
    if x < a + 1:
        term = total = 1 / a
        n = 0
        while term > total * tolerance:
            n += 1
            term *= x / (a + n)
            total += term
        return front * total, 1 - front * total
    b, c = x + 1 - a, mp.mpf(10) ** 300
    d = 1 / b
    fraction, i, change = d, 0, mp.mpf(0)
    while abs(change - 1) > tolerance:  # Lentz
        i += 1
        numerator, b = -i * (i - a), b + 2
        d, c = 1 / (numerator * d + b), b + numerator / c
        change = d * c
        fraction *= change
    return 1 - front * fraction, front * fraction


def leverage(gamma: float, scale: str) -> mp.mpf:
    return 1 / (1 + mp.mpf(gamma)) if scale == "none" else 1 / mp.mpf(gamma)


def delta_one_direction(epsilon: float, k: int, t: mp.mpf, direction: Literal["remove", "add"]) -> mp.mpf:
    """The printed difference of chi-square tails; digits make up for its cancellation."""
    epsilon, half = mp.mpf(epsilon), mp.mpf(k) / 2
    sign = 1 if direction == "remove" else -1
    c = 2 * (1 - t) / t * (sign * epsilon - half * mp.log(1 - t))
    if direction == "remove":
        if c <= 0:
            return 1 - mp.exp(epsilon)
        return chi_square_tails(k, c)[1] - mp.exp(epsilon) * chi_square_tails(k, c / (1 - t))[1]
    if c <= 0:
        return mp.mpf(0)
    return chi_square_tails(k, c / (1 - t))[0] - mp.exp(epsilon) * chi_square_tails(k, c)[0]


def delta(epsilon: float, k: int, gamma: float, scale: str) -> mp.mpf:
    with mp.workdps(DIGITS):
        t = leverage(gamma, scale)
        return max(delta_one_direction(epsilon, k, t, "remove"), delta_one_direction(epsilon, k, t, "add"))


def gaussian_delta(epsilon: mp.mpf, mu: mp.mpf) -> mp.mpf:
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def _chi_panels(k: int, around: mp.mpf, width: mp.mpf) -> list[mp.mpf]:
    middle = mp.sqrt(k)
    points = {mp.mpf(0)} | {middle + x for x in range(-15, 28)} | {around + width * x for x in range(-40, 41, 2)}
    return sorted(x for x in points if 0 <= x <= middle + 27)


def _chi_density(k: int, y: mp.mpf) -> mp.mpf:
    half = mp.mpf(k) / 2
    return 2 * y * mp.exp((half - 1) * mp.log(y * y / 2) - y * y / 2 - mp.loggamma(half)) / 2


def composed_delta(epsilon: float, k: int, gamma: float, mu: float, direction: Literal["remove", "add"]) -> mp.mpf:
    """One sketch (scale "none") beside one Gaussian: the Gaussian's curve averaged over the sketch's loss."""
    with mp.workdps(30):
        t, e, m = leverage(gamma, "none"), mp.mpf(epsilon), mp.mpf(mu)
        log_term = mp.mpf(k) / 2 * mp.log(1 - t)

        def loss(s: mp.mpf) -> mp.mpf:
            return log_term + s * t / (2 * (1 - t)) if direction == "remove" else -log_term - t * s / 2

        crossing = (e - log_term) * 2 * (1 - t) / t if direction == "remove" else (-e - log_term) * 2 / t
        y0 = mp.sqrt(max(crossing, 0))
        panels = _chi_panels(k, y0, m / (t * (y0 + 1)))
        return mp.quad(lambda y: _chi_density(k, y) * gaussian_delta(e - loss(y * y), m), panels, maxdegree=6)


def replace_one_delta(epsilon: float, k: int, gamma: float) -> mp.mpf:
    """E[δ_remove(ε + (k/2) log(1 - t) + tY/2)], Y chi-square, t = 1/(1 + γ)."""
    with mp.workdps(25):
        t, e = leverage(gamma, "none"), mp.mpf(epsilon)
        kink = mp.sqrt(max(-2 * e / t, 0))
        panels = _chi_panels(k, kink, mp.mpf("0.01"))[::2]

        def integrand(y: mp.mpf) -> mp.mpf:
            shifted = e + mp.mpf(k) / 2 * mp.log(1 - t) + t * y * y / 2
            return _chi_density(k, y) * delta_one_direction(shifted, k, t, "remove")

        return mp.quad(integrand, sorted({*panels, kink}), maxdegree=5)


def rdp(order: float, k: int, gamma: float) -> mp.mpf:
    """Lemma 1 as printed."""
    with mp.workdps(DIGITS):
        a, g = mp.mpf(order), mp.mpf(gamma)
        return k / (2 * (a - 1)) * (a * mp.log(1 - 1 / g) - mp.log(1 - a / g))


def renyi_epsilon(delta: float, k: int, gamma: float) -> mp.mpf:
    """Lemma 1 and Proposition 1, minimised by golden section over log((α - 1)/(γ - α)) at 40 digits."""
    with mp.workdps(40):
        g, d = mp.mpf(gamma), mp.mpf(delta)

        def objective(x: mp.mpf) -> mp.mpf:
            a = 1 + (g - 1) / (1 + mp.exp(-x))
            phi = mp.mpf(k) / (2 * (a - 1)) * (a * mp.log(1 - 1 / g) - mp.log(1 - a / g))
            return phi + mp.log(1 - 1 / a) - mp.log(a * d) / (a - 1)

        grid = [mp.mpf(x) / 4 for x in range(-140, 100)]
        best = min(grid, key=objective)
        low, high = best - mp.mpf(1) / 4, best + mp.mpf(1) / 4
        ratio = (mp.sqrt(5) - 1) / 2
        for _ in range(90):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, right) if objective(left) < objective(right) else (left, high)
        return max(objective((low + high) / 2), mp.mpf(0))


def renyi_delta(epsilon: float, k: int, gamma: float) -> float:
    """Proposition 1 solved for δ, minimised over orders at 60 digits."""
    with mp.workdps(DIGITS):
        g, e = mp.mpf(gamma), mp.mpf(epsilon)

        def log_delta(x: mp.mpf) -> mp.mpf:
            a = 1 + (g - 1) / (1 + mp.exp(-x))
            phi = mp.mpf(k) / (2 * (a - 1)) * (a * mp.log(1 - 1 / g) - mp.log(1 - a / g))
            return (a - 1) * (phi - e + mp.log(1 - 1 / a)) - mp.log(a)

        best = min((mp.mpf(x) / 4 for x in range(-180, 100)), key=log_delta)
        low, high = best - mp.mpf(1) / 4, best + mp.mpf(1) / 4
        ratio = (mp.sqrt(5) - 1) / 2
        for _ in range(90):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, right) if log_delta(left) < log_delta(right) else (left, high)
        return float(mp.exp(min(log_delta((low + high) / 2), mp.mpf(0))))
