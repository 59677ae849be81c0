"""Verification of (ε, δ) claims for Gaussian mixing.

>>> mixing = {"sketch_size": 250, "gamma": 52.84}
>>> holds(1.0, 1e-6, **mixing), holds(1.0, 1e-7, **mixing)
(True, False)

Claims are checked against the exact account whichever analysis they were made with, since the other analyses give
larger ε. The exception is Theorem 1, which is checked by Theorem 1: it also covers parameters beyond the range of the
quadratures of the joint account.
"""

from __future__ import annotations

import functools
import math

from gaussmix.accounting.arguments import ROUNDING, Relation
from gaussmix.accounting.mixing import delta as exact_delta
from gaussmix.accounting.private_scale import private_scale_delta
from gaussmix.accounting.published import theorem1_epsilon

__all__ = ["LEAST_COMPOSED_DELTA", "MARGIN", "holds", "mixing_delta", "scale_delta"]

LEAST_COMPOSED_DELTA = 1e-140  # double integrals underflow below it
MARGIN = 1e-10  # share of δ left unused, so that inverting the account, rounded up, still gives at most ε
_SLACK = ROUNDING / 2  # tolerates rounding differences between processors; smaller than the rounding of every account


def holds(
    epsilon: float,
    delta: float,
    *,
    sketch_size: int,
    gamma: float,
    relation: Relation = "zero-out",
    mu: float = 0.0,
    eta: float | None = None,
    tau: float | None = None,
    eigenvalue_error: float = 0.0,
    theorem1: bool = False,
) -> bool:
    """Return whether a sketch is (ε, δ)-differentially private.

    Parameters
    ----------
    epsilon, delta : float
        The claim.
    sketch_size, gamma, relation, mu
        As in :func:`gaussmix.accounting.delta`.
    eta, tau, eigenvalue_error : optional
        Parameters of a private scale bound (:func:`gaussmix.calibrate`).
    theorem1 : bool
        Check a private scale bound by Theorem 1 of arXiv:2505.24603v2 instead of the joint account.
    """
    allowed = delta * (1 + _SLACK)
    if eta is None or tau is None:
        if delta < LEAST_COMPOSED_DELTA and (mu > 0 or relation != "zero-out"):
            return False
        return mixing_delta(epsilon, sketch_size, gamma, relation, mu) <= allowed
    if relation != "zero-out" or mu > 0 or gamma <= (5 / 2 if theorem1 else 1):
        return False
    if theorem1:
        return tau >= math.sqrt(2 * math.log(3 / delta)) * (1 - 1e-15) and (
            _theorem1(delta, sketch_size, gamma, eta / (1 + 2 * eigenvalue_error)) <= epsilon * (1 + _SLACK)
        )
    if delta < LEAST_COMPOSED_DELTA:
        return False
    return scale_delta(epsilon, sketch_size, gamma, eta, tau, 1 + 2 * eigenvalue_error) <= allowed


@functools.lru_cache(maxsize=4096)
def mixing_delta(epsilon: float, k: int, gamma: float, relation: Relation, mu: float = 0.0) -> float:
    """Return :func:`gaussmix.accounting.delta` at one point, cached."""
    return float(exact_delta(epsilon, sketch_size=k, gamma=gamma, relation=relation, mu=mu))


@functools.lru_cache(maxsize=4096)
def scale_delta(epsilon: float, k: int, gamma: float, eta: float, tau: float, sensitivity: float) -> float:
    """Return :func:`gaussmix.accounting.private_scale_delta` at one point, cached."""
    return private_scale_delta(epsilon, sketch_size=k, gamma=gamma, eta=eta, tau=tau, sensitivity=sensitivity)


@functools.lru_cache(maxsize=4096)
def _theorem1(delta: float, k: int, gamma: float, eta: float) -> float:
    return theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=eta)
