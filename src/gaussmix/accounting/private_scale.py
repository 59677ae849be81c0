r"""The joint account of a sketch whose noise is reduced by a private bound on the smallest eigenvalue.

In units of the row bound, C = 1, the mechanism releases v = λ_min - η(τ - z), z ~ N(0, 1), and then a sketch with
noise variance σ² = max(γ - max(v, 0), 0). The eigenvalue has sensitivity exactly 1. The release is
(ε, δ)-differentially private with δ(ε) the larger of

.. math::
    \text{remove: } & \mathrm{E}\bigl[\delta_{rem}(\varepsilon - \tfrac1{2\eta^2} - \tfrac z\eta;\ \tfrac1\gamma)\bigr]
        + \mathrm{E}\bigl[1_{z>\tau}\,\delta_{rem}(\varepsilon - \tfrac1{2\eta^2} - \tfrac z\eta;\
        \tfrac1{\gamma - \eta(z-\tau)})\bigr] \\
    \text{add: } & \mathrm{E}\bigl[\delta_{add}(\varepsilon - \tfrac1{2\eta^2} - \tfrac z\eta;\ \tfrac1{1+\gamma})\bigr]
        + \mathrm{E}\bigl[1_{z>\tau}\,\delta_{add}(\varepsilon - \max(0, \tfrac1{2\eta^2} - \tfrac z\eta);\
        \tfrac1{1 + \gamma - \eta(z-\tau)})\bigr]

where each δ is 1 once its leverage reaches 1. The first terms are the composition of a Gaussian release and a sketch.
The second terms cover the event that v exceeds λ_min: the leverage then grows only with the excess of v. The proof is
in docs/privacy.md.

>>> f"{private_scale_delta(1.0, sketch_size=250, gamma=82.5, eta=8.78, tau=0.0):.3g}"
'9.96e-07'
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize, stats

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.divergence import (
    Bounded,
    ChiSquareLoss,
    composite_rule,
    hockey_stick,
    hockey_stick_composed,
)
from gaussmix.errors import ArgumentError

__all__ = ["private_scale_delta", "private_scale_terms"]


_NEGLIGIBLE = 1e-13  # relative to the first term: the tail of z that is charged instead of integrated
_ORDER, _CHECK_ORDER = 16, 12
_ROUNDING = 1e-10
_LEAST_EXCESS = 1e-9  # for a γ this close to 1, δ is set to 1


def private_scale_delta(
    epsilon: float, *, sketch_size: int, gamma: float, eta: float, tau: float, sensitivity: float = 1.0
) -> float:
    """Return δ at ε of a sketch with a private scale bound, rounded up by the numerical error.

    Parameters
    ----------
    epsilon : float
        Any real number.
    sketch_size : int
        Number of rows of the sketch.
    gamma : float
        Target for (σ² + λ_min)/C², above 1.
    eta : float
        Standard deviation of the noise on λ_min/C².
    tau : float
        Safety margin on λ_min/C² in standard deviations, at least 0.
    sensitivity : float
        Sensitivity of the *computed* λ_min/C²: 1 plus twice the bound on its numerical error.
    """
    epsilon = check.real(epsilon=epsilon)
    k = check.sketch_rows(sketch_size=sketch_size)
    gamma, eta = check.positive(finite=True, gamma=gamma), check.positive(finite=True, eta=eta)
    if gamma <= 1:
        raise ArgumentError(f"gamma must be > 1 with a private scale bound, got {gamma!r}.")
    if check.real(tau=tau) < 0 or np.isinf(tau):
        raise ArgumentError(f"tau must be a finite number ≥ 0, got {tau!r}.")
    if not check.positive(finite=True, sensitivity=sensitivity) >= 1:
        raise ArgumentError(f"sensitivity must be a finite number ≥ 1, got {sensitivity!r}.")
    if np.isinf(epsilon):
        return 0.0 if epsilon > 0 else 1.0
    if gamma - 1 < _LEAST_EXCESS:
        return 1.0
    pairs = private_scale_terms(epsilon, k, gamma, eta, tau, sensitivity)
    return min(max(sum(float(term.upper) for term in pair) for pair in pairs), 1.0)


def private_scale_terms(
    epsilon: float, k: int, gamma: float, eta: float, tau: float, sensitivity: float = 1.0
) -> tuple[tuple[Bounded, Bounded], tuple[Bounded, Bounded]]:
    """Return both terms of both directions: ((remove, its remainder), (add, its remainder))."""
    mu = sensitivity / eta
    remove = hockey_stick_composed(epsilon, (ChiSquareLoss.removal(k, odds=1 / (gamma - 1)),), mu=mu)
    add = hockey_stick_composed(epsilon, (ChiSquareLoss.addition(k, odds=1 / gamma),), mu=mu)

    def shifted_remove(q: Floats) -> Floats:
        return epsilon - mu**2 / 2 - mu * (tau + q)

    backwards = (sensitivity - 1) / eta  # rounding may also decrease the computed eigenvalue of the larger table

    def shifted_add(q: Floats) -> Floats:
        return epsilon - np.maximum(backwards**2 / 2 + backwards * (tau + q), mu**2 / 2 - mu * (tau + q))

    remove_rest = _remainder(
        shifted_remove,
        lambda q: ChiSquareLoss.removal(k, odds=1 / (gamma - 1 - eta * q)),
        tau,
        until=(gamma - 1) / eta,
        tolerance=_NEGLIGIBLE * float(remove.value),
        kinks=(),
    )
    add_rest = _remainder(
        shifted_add,
        lambda q: ChiSquareLoss.addition(k, odds=1 / (gamma - eta * q)),
        tau,
        until=gamma / eta,
        tolerance=_NEGLIGIBLE * float(add.value),
        kinks=((mu - backwards) / 2 - tau,),
    )
    return (remove, remove_rest), (add, add_rest)


def _remainder(
    epsilon_left: Callable[[Floats], Floats],
    loss: Callable[[Floats], ChiSquareLoss],
    tau: float,
    *,
    until: float,
    tolerance: float,
    kinks: tuple[float, ...],
) -> Bounded:
    """Return E[1{q > 0} δ(ε(q); loss(q))], q = z - τ, with δ = 1 from ``until`` on, where the leverage reaches 1."""
    # δ is set to 1 slightly earlier, where the leverage is still below 1, which rounds towards privacy.
    last = until * (1 - 1e-6)
    cut = float(stats.norm.isf(max(tolerance, 1e-300))) - tau
    end = min(last, max(cut, 0.0))
    charged = float(stats.norm.sf(tau + end))
    if end <= 0:
        return Bounded(np.asarray(charged), np.asarray(_ROUNDING * charged))

    def edge(q: Floats) -> Floats:  # 0 where s₀ = 0: a kink like a power k/2 + 1
        at = loss(q)
        return epsilon_left(q) - at.mean + at.slope * at.k

    def turn(q: Floats) -> Floats:  # 0 where ε is the mean loss: the curve falls within one standard deviation
        return epsilon_left(q) - loss(q).mean

    graded = [(point, 0.0) for point in kinks]
    graded += [(point, 0.0) for point in _roots(edge, end)]
    graded += [(point, _width(turn, loss, point, end)) for point in _roots(turn, end)]
    if end == last:
        graded.append((until, 0.0))
    ends: list[Floats] = [np.linspace(0, end, max(2, int(np.ceil(2 * end)) + 1))]
    for point, finest in graded:
        steps = np.asarray(end * 0.25 ** np.arange(1, 12), float)
        steps = steps[steps > finest / 4]
        ends += [np.array([point]), point - steps, point + steps]
    mesh = np.unique(np.clip(np.concatenate(ends), 0, end))

    def integral(order: int) -> float:
        q, weights = composite_rule(mesh, order)
        return float((weights * stats.norm.pdf(tau + q)) @ hockey_stick(epsilon_left(q), loss(q)))

    value = integral(_ORDER)
    error = abs(value - integral(_CHECK_ORDER)) + _ROUNDING * (value + charged)
    return Bounded(np.asarray(value + charged), np.asarray(error))


def _width(
    turn: Callable[[Floats], Floats], loss: Callable[[Floats], ChiSquareLoss], point: float, end: float
) -> float:
    """Return the distance in q over which ε changes by one standard deviation of the loss."""
    at, left, right = loss(np.asarray(point)), max(point - 1e-6 * end, 0.0), min(point + 1e-6 * end, end)
    speed = abs(float(turn(np.asarray(right)) - turn(np.asarray(left)))) / (right - left)
    return float(np.abs(at.slope) * np.sqrt(2 * at.k)) / max(speed, 1e-300)


def _roots(function: Callable[[Floats], Floats], end: float) -> list[float]:
    """Return the sign changes of a function of q on [0, end], found on a grid and refined."""
    grid = np.linspace(0, end, 129)
    signs = np.sign(function(grid))
    brackets = [(grid[i], grid[i + 1]) for i in np.flatnonzero(signs[:-1] * signs[1:] < 0)]
    return [float(optimize.brentq(lambda q: float(function(np.asarray(q))), *bracket)) for bracket in brackets]
