r"""The exact privacy curve of Gaussian mixing for both neighbouring relations. The proof is in docs/privacy.md."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from gaussmix._types import Floats
from gaussmix.accounting.arguments import EPSILON_MAX, ROUNDING, BoundHoldsFor, Relation
from gaussmix.accounting.divergence import ChiSquareLoss, gaussian_hockey_stick, hockey_stick, hockey_stick_composed
from gaussmix.accounting.search import log_excess, smallest_or_infinity

__all__ = ["Direction", "directions", "exact_delta", "exact_epsilon"]

Direction = tuple[ChiSquareLoss, ...]

_ODDS_MAX = 1e12  # for a leverage this close to 1, δ is set to 1


def exact_delta(
    epsilon: Floats, k: Floats, gamma: Floats, bound_holds_for: BoundHoldsFor, relation: Relation, mu: float
) -> Floats:
    """Return δ at every point, rounded up. The arguments must be checked and of the same shape."""
    finite = np.clip(epsilon, -EPSILON_MAX, EPSILON_MAX)
    if relation == "zero-out" and mu == 0:
        values = _alone(finite, k, gamma, bound_holds_for)
    else:
        values = np.empty(epsilon.shape)
        for pair in set(zip(k.flat, gamma.flat, strict=True)):
            here = (k == pair[0]) & (gamma == pair[1])
            values[here] = _composed(finite[here], *pair, bound_holds_for, relation, mu)
    return np.where(np.isposinf(epsilon), 0.0, values)


def _alone(epsilon: Floats, k: Floats, gamma: Floats, bound_holds_for: BoundHoldsFor) -> Floats:
    """Return δ of one sketch for zero-out neighbours."""
    with np.errstate(divide="ignore"):
        odds = _odds(np.where(np.isinf(gamma), 1.0, gamma), bound_holds_for)
    computed = np.minimum(odds, _ODDS_MAX)
    remove, add = ChiSquareLoss.removal(k, odds=computed), ChiSquareLoss.addition(k, odds=computed)
    both = ChiSquareLoss(k, np.stack([remove.slope, add.slope]), np.stack([remove.mean, add.mean]))
    larger = np.where(odds > _ODDS_MAX, 1.0, np.max(hockey_stick(epsilon, both), axis=0))
    nothing = 0.0 - np.expm1(np.minimum(epsilon, 0))
    return np.where(np.isinf(gamma), nothing, np.minimum(larger * (1 + ROUNDING), 1.0))


def _composed(
    epsilon: Floats, k: float, gamma: float, bound_holds_for: BoundHoldsFor, relation: Relation, mu: float
) -> Floats:
    if np.isinf(gamma):
        return np.minimum(gaussian_hockey_stick(epsilon, mu) * (1 + ROUNDING), 1.0)
    curves = [
        hockey_stick_composed(epsilon, losses, mu=mu).upper
        for losses in directions(k, gamma, bound_holds_for, relation)
    ]
    return np.asarray(np.max(curves, axis=0))


def directions(k: float, gamma: float, bound_holds_for: BoundHoldsFor, relation: Relation) -> list[Direction]:
    """Return the dominating pairs of the mechanism, one per direction, each as a tuple of losses that add up.

    Replacing a row is the composition of a removal and an addition (docs/privacy.md): the pencil of the two covariances
    has at most two eigenvalues other than 1. Without a scale bound the pair is symmetric.
    """
    own, other = _odds(gamma, bound_holds_for), 1 / gamma
    if relation == "zero-out":
        return [(ChiSquareLoss.removal(k, odds=own),), (ChiSquareLoss.addition(k, odds=own),)]
    pairs: list[Direction] = [(ChiSquareLoss.addition(k, odds=other), ChiSquareLoss.removal(k, odds=own))]
    if bound_holds_for == "larger":
        pairs.append((ChiSquareLoss.addition(k, odds=own), ChiSquareLoss.removal(k, odds=other)))
    return pairs


Gamma = TypeVar("Gamma", float, Floats)


def _odds(gamma: Gamma, bound_holds_for: BoundHoldsFor) -> Gamma:
    """Return t / (1 - t) of the leverage t: 1/γ for t = 1/(1 + γ), 1/(γ - 1) for t = 1/γ."""
    return 1 / gamma if bound_holds_for == "both" else 1 / (gamma - 1)


def exact_epsilon(
    delta: float, k: float, gamma: float, bound_holds_for: BoundHoldsFor, relation: Relation, mu: float
) -> float:
    """Return the smallest ε ≥ 0 at which the exact δ is at most ``delta``, rounded up."""
    sizes, gammas = np.asarray(float(k)), np.asarray(float(gamma))

    def excess(epsilon: float) -> float:
        spent = exact_delta(np.asarray(float(epsilon)), sizes, gammas, bound_holds_for, relation, mu)
        return log_excess(float(spent), delta)

    return smallest_or_infinity(excess)
