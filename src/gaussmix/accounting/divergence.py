r"""Hockey-stick divergences of chi-square and Gaussian privacy losses.

A privacy loss L(o) = log dP/dQ(o), as a random variable under P, determines the privacy curve:

.. math:: \delta(\varepsilon) = \mathrm{E}_P\bigl[(1 - e^{\varepsilon - L})_+\bigr].

One row of leverage t changes the sketch from k draws of N(0, 1) to k draws of N(0, 1 - t) (docs/privacy.md), so
its loss is affine in a chi-square variable s with k degrees of freedom. Written around its mean, which is a
Kullback-Leibler divergence and is computed without cancellation,

.. math:: L = \text{mean} + \text{slope}\,(s - k).

Losses of several releases add up, so δ of a composition is the expectation over s of the curve of the other losses.
Expectations are computed over y = √s, whose density has width O(1) for every k, by composite Gauss-Legendre rules with
panel ends at every kink and boundary layer. The textbook formula, a difference of two chi-square tails, is not used
because it cancels for small leverages.

>>> f"{hockey_stick(1.0, ChiSquareLoss.removal(250, odds=1 / 52.83)):.3g}"
'9.99e-07'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from gaussmix._types import Floats

__all__ = [
    "Bounded",
    "ChiSquareLoss",
    "composite_rule",
    "gaussian_hockey_stick",
    "hockey_stick",
    "hockey_stick_composed",
    "log1p_deficit",
]


# Offsets from the mode of the chi density, whose log has second derivative -(k - 1)/y² - 1: at most -1 to the
# right of the mode and -2 to its left.
_BULK = (-7.0, 9.5)  # the density outside is below e^-45 of its mode: negligible in double precision
_EVERYTHING = (-19.0, 27.0)  # the density outside is below e^-360 of its mode
_LEFT_OUT = 1e-150  # bound on the mass outside
_PLAIN_ORDER = 12  # Gauss points per panel for one loss, whose integrand is known in advance
_ORDER, _CHECK_ORDER = 16, 12  # the rule, and a coarser one whose distance from it bounds the error
_SMALLEST_MU = 1e-12  # a smaller μ is rounded up to this one
_ROUNDING = 1e-10  # generous bound on the relative error of one expectation in double precision
_ROWS_AT_A_TIME = 2048  # curves evaluated together: limits the memory, does not affect the result
_EXPECTATIONS_AT_A_TIME = 64


class Bounded(NamedTuple):
    """A computed divergence and a bound on its numerical error. Accounts use `upper`."""

    value: Floats
    error: Floats

    @property
    def upper(self) -> Floats:
        """The value plus its error bound, at most 1."""
        return np.minimum(self.value + self.error, 1.0)


@dataclass(frozen=True)
class ChiSquareLoss:
    """The privacy loss ``mean + slope * (s - k)`` with s chi-square with k degrees of freedom.

    ``k``, ``slope`` and ``mean`` broadcast against each other. Leverage t is given as odds u = t / (1 - t), the
    leverage of the row relative to the table without it.
    """

    k: Floats
    slope: Floats
    mean: Floats

    @classmethod
    def removal(cls, k: ArrayLike, *, odds: ArrayLike) -> ChiSquareLoss:
        """Return the loss if the true table contains the row: s under N(0, 1)ᵏ against N(0, 1 - t)ᵏ."""
        k, odds = np.asarray(k, float), np.asarray(odds, float)
        return cls(k, odds / 2, k / 2 * log1p_deficit(odds))

    @classmethod
    def addition(cls, k: ArrayLike, *, odds: ArrayLike) -> ChiSquareLoss:
        """Return the loss if the true table lacks the row: s / (1 - t) under N(0, 1 - t)ᵏ against N(0, 1)ᵏ."""
        k, odds = np.asarray(k, float), np.asarray(odds, float)
        leverage = odds / (1 + odds)
        return cls(k, -leverage / 2, k / 2 * log1p_deficit(-leverage))

    def at_offset(self, offset: Floats) -> Floats:
        """Return the loss at y = √(k - 1) + offset."""
        mode = np.sqrt(self.k - 1)
        return self.mean + self.slope * (offset * (2 * mode + offset) - 1)


def log1p_deficit(x: ArrayLike) -> Floats:
    """Return ``x - log(1 + x)`` to full relative precision for x > -1 (infinite at -1).

    With z = x / (2 + x), log(1 + x) = 2 artanh z and x - 2z = xz, so that the first-order terms drop out exactly.
    """
    x = np.asarray(x, float)
    z = x / (2 + x)
    z2 = z * z
    series = 1 / 3 + z2 * (1 / 5 + z2 * (1 / 7 + z2 * (1 / 9 + z2 * (1 / 11 + z2 * (1 / 13 + z2 / 15)))))
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(np.abs(x) < 0.1, x * z - 2 * z * z2 * series, x - np.log1p(x)))


def gaussian_hockey_stick(epsilon: ArrayLike, mu: ArrayLike) -> Floats:
    r"""Return the exact δ(ε) of a Gaussian release with sensitivity / noise = mu (Balle and Wang, arXiv:1805.06530v2).

    .. math:: \delta(\varepsilon) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)

    for every real ε. With mu = 0 nothing is released and δ = (1 - e^ε)₊.
    """
    epsilon, mu = np.broadcast_arrays(np.asarray(epsilon, float), np.asarray(mu, float))
    nothing = 0.0 - np.expm1(np.minimum(epsilon, 0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        # e^ε φ(high) = φ(low): with Mills' ratio R the difference is φ(low)(R(low) - R(high)), and for small mu,
        # where that cancels, φ(low) ∫ (1 - x R(x)) dx over [low, high], since R' = x R - 1.
        # Beyond these limits one of the two events is certain to 16 digits.
        x = np.clip(low, _FAR_BELOW, _FAR_ABOVE)
        density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
        difference = _mills(x) - _mills(x + mu)
        if np.any(mu < 0.5):
            nodes, weights = _legendre(8)
            at = x[..., None] + mu[..., None] * nodes
            difference = np.where(mu < 0.5, mu * ((1 - at * _mills(at)) @ weights), difference)
        delta = np.where(low <= _FAR_BELOW, -np.expm1(epsilon + special.log_ndtr(-high)), density * difference)
    delta = np.where(low >= _FAR_ABOVE, 0.0, np.clip(delta, nothing, 1.0))
    return np.where(mu == 0, nothing, delta)


_FAR_BELOW, _FAR_ABOVE = -36.0, 38.0  # erfcx overflows below, the density underflows above


def _mills(x: Floats) -> Floats:
    """Return Mills' ratio (1 - Φ(x)) / φ(x)."""
    return np.asarray(np.sqrt(np.pi / 2) * special.erfcx(x / np.sqrt(2)))


def hockey_stick(epsilon: ArrayLike, loss: ChiSquareLoss) -> Floats:
    r"""Return the exact δ(ε) of one chi-square loss for every real ε; broadcasts over ε and the loss.

    With s₀ the point where the loss equals ε,

    .. math:: \delta = \int f_k(s)\,\bigl(1 - e^{-|\text{slope}|\,|s - s_0|}\bigr)\,ds

    over s > s₀ for a removal, where it is 1 - e^ε if s₀ ≤ 0, and over 0 < s < s₀ for an addition, where it is 0
    if s₀ ≤ 0.
    """
    epsilon = np.asarray(epsilon, float)
    arrays = np.broadcast_arrays(epsilon, loss.k, loss.slope, loss.mean)
    flat = [np.ravel(a) for a in arrays]
    parts = [
        _hockey_stick_rows(*(a[start : start + _ROWS_AT_A_TIME] for a in flat))
        for start in range(0, flat[0].size, _ROWS_AT_A_TIME)
    ]
    return np.concatenate(parts).reshape(arrays[0].shape) if parts else np.zeros(arrays[0].shape)


def _hockey_stick_rows(epsilon: Floats, k: Floats, slope: Floats, mean: Floats) -> Floats:
    towards = np.sign(slope)  # +1: losses above ε lie at s > s₀; -1: at s < s₀
    excess = (epsilon - mean) / slope + 1  # s₀ - (k - 1)
    never = excess + (k - 1) <= 0
    excess = np.where(never, 0.0, excess)
    s0 = np.maximum(excess + (k - 1), np.finfo(float).tiny)
    mode, y0 = np.sqrt(k - 1), np.sqrt(s0)
    edge = excess / (mode + y0)  # y₀ - mode, to full precision
    # Start where the density starts to matter; y₀ itself where that is later.
    start = np.where(towards > 0, np.maximum(edge, _BULK[0]), np.minimum(edge, _BULK[1]))
    start = np.maximum(start, -mode)
    reach = np.where(towards > 0, np.maximum(start, 0) + _BULK[1], np.maximum(np.minimum(start, 0) + _BULK[0], -mode))
    length = np.abs(reach - start)
    # Three scales meet at the start: the density's width, its decay, and the layer in which the loss exceeds ε by 1.
    layer = 1 / (np.abs(slope) * (np.sqrt(s0 + 1 / np.abs(slope)) + y0))
    decay = 2 / np.maximum(np.abs((k - 1) / np.maximum(mode + start, 1e-9) - (mode + start)), 1e-9)
    scale = np.minimum(np.minimum(layer, decay), 2.0)
    doublings = int(np.ceil(np.log2(2.0 / scale.min()))) + 1
    graded = np.minimum(scale[:, None] * (2.0 ** np.arange(doublings + 1) - 1), 2.0)
    graded = np.minimum(graded, length[:, None])
    rest = graded[:, -1:] + (length[:, None] - graded[:, -1:]) * np.arange(1, 9) / 8
    distance, weights = composite_rule(np.concatenate([graded, rest], axis=1), _PLAIN_ORDER)

    offset = start[:, None] + towards[:, None] * distance
    beyond = np.abs(start - edge)[:, None] + distance  # |y - y₀|
    exceeds = np.abs(slope)[:, None] * beyond * (2 * y0[:, None] + towards[:, None] * beyond)
    integrand = _chi_density(offset, k[:, None]) * -np.expm1(-exceeds)
    delta = np.einsum("ij,ij->i", weights, integrand)
    certain = 0.0 - np.expm1(np.minimum(epsilon, 0))  # lower bound of any δ at negative ε
    return np.where(never, np.where(towards > 0, certain, 0.0), np.clip(delta, certain, 1.0))


def hockey_stick_composed(epsilon: ArrayLike, losses: tuple[ChiSquareLoss, ...], *, mu: float = 0.0) -> Bounded:
    """Return δ(ε) of one or two scalar chi-square losses composed with one Gaussian loss, and a bound on its error.

    The error bound is the distance to a coarser rule on the same panels, plus the truncated mass, plus rounding.
    """
    epsilon = np.asarray(epsilon, float)
    first, *others = losses
    if not others and mu == 0:
        value = hockey_stick(epsilon, first)
        return Bounded(value, _ROUNDING * value)
    mu = max(mu, _SMALLEST_MU) if mu else 0.0
    # Where the curve of the remaining losses bends, and over which distance: a Gaussian's at 0 if narrow, else at μ²/2.
    gaussian_turns = ((0.0, mu),) if mu <= 1 else ((0.0, 1.0), (mu**2 / 2, mu))
    if not others:
        return _expectation(lambda left: _exactly(gaussian_hockey_stick(left, mu)), epsilon, first, gaussian_turns)
    (second,) = others
    if mu == 0:
        # The curve of the second loss has its kink where its own s₀ is 0.
        kink = float(second.mean - second.slope * second.k)
        return _expectation(lambda left: _exactly(hockey_stick(left, second)), epsilon, first, ((kink, 1.0),))
    return _expectation(lambda left: hockey_stick_composed(left, (second,), mu=mu), epsilon, first, gaussian_turns)


def _exactly(value: Floats) -> Bounded:
    return Bounded(value, _ROUNDING * value)


def _expectation(
    curve: Callable[[Floats], Bounded],
    epsilon: Floats,
    loss: ChiSquareLoss,
    turns: tuple[tuple[float, float], ...],
) -> Bounded:
    """Return E[curve(ε - L)] over one scalar chi-square loss L for each ε.

    ``turns`` are pairs (centre, width): ``curve(e)`` changes over distances of ``width`` near e = centre, so panels are
    refined towards it.
    """
    parts = np.array_split(epsilon.ravel(), max(1, epsilon.size // _EXPECTATIONS_AT_A_TIME))
    rows = [_expectation_rows(curve, part, loss, turns) for part in parts]
    value, error = (np.concatenate(part).reshape(epsilon.shape) for part in zip(*rows, strict=True))
    return Bounded(value, error)


def _expectation_rows(
    curve: Callable[[Floats], Bounded],
    epsilon: Floats,
    loss: ChiSquareLoss,
    turns: tuple[tuple[float, float], ...],
) -> Bounded:
    mode = float(np.sqrt(loss.k - 1))
    low, high = max(_EVERYTHING[0], -mode), _EVERYTHING[1]
    evenly = np.append(np.arange(low, high, 1.0), high)
    meshes = [np.broadcast_to(evenly, (epsilon.size, evenly.size))]
    meshes += [_graded_mesh(epsilon - centre, loss, width) for centre, width in turns]
    ends = np.sort(np.clip(np.concatenate(meshes, axis=1), low, high), axis=1)
    ends = ends[:, np.concatenate([[True], np.any(np.diff(ends, axis=1) > 0, axis=0)])]

    def integral(order: int) -> tuple[Floats, Floats]:
        offset, weights = composite_rule(ends, order)
        mass = weights * _chi_density(offset, loss.k)
        value, error = curve(epsilon[:, None] - loss.at_offset(offset))
        return np.einsum("ij,ij->i", mass, value), np.einsum("ij,ij->i", mass, error)

    value, inherited = integral(_ORDER)
    coarse, _ = integral(_CHECK_ORDER)
    return Bounded(value, np.abs(value - coarse) + inherited + _LEFT_OUT + _ROUNDING * value)


def _graded_mesh(losses: Floats, loss: ChiSquareLoss, width: float) -> Floats:
    """Return offsets refined around the points where L takes the given values, over a change of L by ``width``."""
    k, slope, mean = (float(a) for a in (loss.k, loss.slope, loss.mean))
    mode, reach = np.sqrt(k - 1), width / abs(slope)
    excess = (losses - mean) / slope + 1
    s0 = np.maximum(excess + (k - 1), 0.0)
    middle = np.where(s0 > 0, excess / np.maximum(mode + np.sqrt(s0), 1e-300), -mode)[:, None]
    scale = np.minimum(1.0, reach / (np.sqrt(s0 + reach) + np.sqrt(s0)))[:, None]
    doublings = max(int(np.ceil(np.log2(1 / scale.min()))), 0) + 1
    steps = scale * np.concatenate(
        [0.25 ** np.arange(15, 0, -1), np.arange(1, 41, 2), 40 * 2.0 ** np.arange(doublings)]
    )
    return np.concatenate([middle, middle - steps, middle + steps], axis=1)


def _chi_density(offset: Floats, k: ArrayLike) -> Floats:
    """Return the density of y = √s at √(k - 1) + offset.

    With m = k - 1 the log density is m log y - y²/2 + constant, which is -m (r - log(1 + r)) - offset²/2 below its
    value at the mode, r = offset / √m.
    """
    m = np.asarray(k, float) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(m > 0, offset / np.sqrt(m), 0.0)
    r = np.maximum(r, -1.0)
    with np.errstate(divide="ignore"):
        # The plain difference loses √m |offset| units in the last place, which matters only if m is huge.
        drop = m * (r - np.log1p(r) if np.all(m < 1e5) else log1p_deficit(r))
    drop = np.where(m > 0, drop, 0.0)
    return np.asarray(np.exp(-drop - offset * offset / 2 - _log_chi_mass(np.asarray(k, float))))


def _log_chi_mass(k: Floats) -> Floats:
    """Return the log of the integral over y > 0 of the chi density divided by its value at the mode.

    log(2^(a-1) Γ(a)) + (m - m log m)/2 with a = k/2, m = k - 1. Stirling's leading terms are cancelled analytically.
    """
    a = k / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        stirling_tail = np.where(
            a < 10,
            special.gammaln(a) - ((a - 0.5) * np.log(a) - a + 0.5 * np.log(2 * np.pi)),
            (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * a**2)) / a**2) / a**2) / a**2) / a,
        )
        return np.asarray(0.5 * np.log(np.pi) - 0.5 + stirling_tail - special.xlog1py(a - 0.5, -0.5 / a))


@cache
def _legendre(order: int) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


def composite_rule(ends: Floats, order: int) -> tuple[Floats, Floats]:
    """Return nodes and weights of a composite Gauss rule with panel ends along the last axis of ``ends``."""
    nodes, weights = _legendre(order)
    width = np.diff(ends, axis=-1)[..., None]
    points = ends[..., :-1, None] + width * nodes
    shape = (*ends.shape[:-1], -1)
    return points.reshape(shape), (width * weights).reshape(shape)
