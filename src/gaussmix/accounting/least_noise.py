r"""Calibration of the noise of Gaussian mixing to a privacy budget.

A :class:`~gaussmix.accounting.calibration.Calibration` is a function of (ε, δ), the sketch size and the analysis. Every
search returns a value that was itself checked, so the account of the result never exceeds the budget.

>>> c = calibrate(1.0, 1e-6, sketch_size=250)
>>> round(c.gamma, 2), c.epsilon_spent <= 1.0, c.delta_spent <= 1e-6
(52.83, True, True)

The cost of a given noise:

>>> round(calibrate(delta=1e-6, sketch_size=250, gamma=30.0).epsilon, 2)
1.84
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from gaussmix import _validation as check
from gaussmix.accounting import mixing as accounting
from gaussmix.accounting.arguments import GAMMA_MAX, RELATIONS, BoundHoldsFor, Relation
from gaussmix.accounting.calibration import Calibration, CalibrationAnalysis, ScaleBound
from gaussmix.accounting.claims import LEAST_COMPOSED_DELTA, MARGIN, mixing_delta
from gaussmix.accounting.published import theorem1_epsilon, theorem1_reach
from gaussmix.accounting.scale_search import private_scale
from gaussmix.accounting.search import least_safe_gamma, log_excess, smallest_safe, unmet_budget
from gaussmix.errors import ArgumentError

__all__ = ["calibrate", "least_gamma"]

_LEAST_EPSILON = 1e-12  # ε = 0 would hold for large γ, but is not a valid budget
_LEAST_DELTA = {"zero-out": 1e-300, "replace-one": LEAST_COMPOSED_DELTA}


def calibrate(
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    sketch_size: int,
    gamma: float | None = None,
    scale: ScaleBound = "none",
    analysis: CalibrationAnalysis = "exact",
    relation: Relation = "zero-out",
    eigenvalue_error: float = 0.0,
) -> Calibration:
    """Return the smallest noise that meets an (ε, δ) budget or, with ``gamma``, the cost of a given noise.

    Parameters
    ----------
    epsilon : float
        Finite and above 0. If omitted, ``gamma`` and ``delta`` are required and the smallest ε is computed.
    delta : float
        In (0, 1). If omitted, ``gamma`` and ``epsilon`` are required and the smallest δ is computed.
    sketch_size : int
        Number of rows k of the sketch, at most 2⁴⁰.
    gamma : float, optional
        Noise variance σ² = γC², given in place of one of ε and δ. Requires ``scale="none"``.
    scale : {"none", "private"}
        ``"none"``: noise variance γC² for every table. ``"private"``: a noisy λ_min is released and reduces the noise
        of the sketch; γ, η and τ are chosen to minimise γ + ητ. This helps only if the smallest eigenvalue is far above
        ητC².
    analysis : {"exact", "renyi", "paper"}
        ``"exact"``: the exact curve, or the joint account of :mod:`gaussmix.accounting.private_scale`. ``"renyi"``:
        Lemma 1 and Proposition 1 of arXiv:2505.24603v2. ``"paper"``: Theorem 1 with η = γ/√k; requires
        ``scale="private"``.
    relation : {"zero-out", "replace-one"}
        Replace-one requires ``scale="none"`` and ``analysis="exact"``.
    eigenvalue_error : float
        With ``scale="private"``: bound e on the numerical error of λ_min/C² (`eigenvalue_error_bound`). One row
        changes the computed value by at most 1 + 2e.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> private = calibrate(1.0, 1e-6, sketch_size=250, scale="private")
    >>> private.gamma + private.eta * private.tau < 82.6
    True
    >>> paper = calibrate(1.0, 1e-6, sketch_size=250, scale="private", analysis="paper")
    >>> round(paper.gamma, 2), round(paper.gamma + paper.eta * paper.tau, 1)
    (144.95, 195.0)
    """
    k = check.sketch_rows(sketch_size=sketch_size)
    if gamma is not None:
        check.choice(("none",), scale=scale)
        if analysis == "paper":
            raise ArgumentError("analysis must be 'exact' or 'renyi' with gamma, got 'paper'.")
        return _cost(k, gamma, epsilon, delta, analysis, relation)
    if epsilon is None or delta is None:
        raise ArgumentError("epsilon and delta are required, or gamma and one of them.")
    epsilon = check.positive(finite=True, epsilon=epsilon)
    delta = check.in_interval(0, 1, delta=delta)
    check.choice(("none", "private"), scale=scale)
    check.choice(("exact", "renyi", "paper"), analysis=analysis)
    check.choice(RELATIONS, relation=relation)
    error = check.in_interval(0, np.finfo(float).max, closed=True, eigenvalue_error=eigenvalue_error)
    if relation != "zero-out" and (scale, analysis) != ("none", "exact"):
        raise ArgumentError(
            f"relation='replace-one' requires scale='none' and analysis='exact', got {scale!r} and {analysis!r}."
        )
    if delta < LEAST_COMPOSED_DELTA and (scale, analysis, relation) not in (
        ("none", "exact", "zero-out"),
        ("none", "renyi", "zero-out"),
        ("private", "paper", "zero-out"),
    ):
        raise ArgumentError(
            f"delta must be at least {LEAST_COMPOSED_DELTA:g} with scale='private' or relation='replace-one', got "
            f"{delta!r}. The numerical integrals of these accounts underflow below it."
        )
    methods: dict[tuple[str, str], Callable[[], Calibration]] = {
        ("none", "exact"): lambda: _noise_alone(epsilon, delta, k, "exact", relation),
        ("none", "renyi"): lambda: _noise_alone(epsilon, delta, k, "renyi", relation),
        ("private", "exact"): lambda: private_scale(epsilon, delta, k, error),
        ("private", "paper"): lambda: _theorem1(epsilon, delta, k, error),
    }
    if (scale, analysis) not in methods:
        raise ArgumentError(
            f"analysis={analysis!r} is not available with scale={scale!r}. 'renyi' requires scale='none', "
            "'paper' requires scale='private', 'exact' supports both."
        )
    return methods[scale, analysis]()


@functools.lru_cache(maxsize=1024)
def _noise_alone(
    epsilon: float, delta: float, k: int, analysis: Literal["exact", "renyi"], relation: Relation
) -> Calibration:
    def excess(gamma: float) -> float:
        if analysis == "renyi":  # check both ε(δ) and δ(ε), whose rounding differs
            over = float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi")) - epsilon
            spent = accounting.delta(epsilon, sketch_size=k, gamma=gamma, analysis="renyi")
            return over if over > 0 else max(over, log_excess(spent, delta))
        return log_excess(mixing_delta(epsilon, k, gamma, relation), delta * (1 - MARGIN))

    floor = 1e-6 if analysis == "exact" else 1 + 1e-9
    about = min(float(np.sqrt(2 * k * np.log(1 / delta))) / epsilon, GAMMA_MAX / 2)  # to leading order
    low = about / 8 if about / 8 > floor and excess(about / 8) > 0 else floor

    def reached(rows: int) -> float:
        return float(accounting.epsilon(delta, sketch_size=rows, gamma=GAMMA_MAX, relation=relation, analysis=analysis))

    gamma = least_safe_gamma(excess, low, max(2.0, 1.5 * about), lambda: unmet_budget(epsilon, delta, k, reached))
    spent = _delta_spent(epsilon, k, gamma, analysis, relation)
    return _without_scale_bound(
        epsilon,
        delta,
        k,
        gamma,
        analysis,
        relation,
        _epsilon_spent(epsilon, delta, k, gamma, analysis, relation),
        spent,
    )


def _without_scale_bound(
    epsilon: float,
    delta: float,
    k: int,
    gamma: float,
    analysis: Literal["exact", "renyi"],
    relation: Relation,
    epsilon_spent: float,
    delta_spent: float,
) -> Calibration:
    return Calibration(
        epsilon=epsilon,
        delta=delta,
        sketch_size=k,
        gamma=gamma,
        scale="none",
        analysis=analysis,
        relation=relation,
        eta=None,
        tau=None,
        eigenvalue_error=0.0,
        epsilon_spent=epsilon_spent,
        delta_spent=delta_spent,
        delta_split=(("sketch", delta_spent),),
    )


def _cost(
    k: int,
    gamma: float,
    epsilon: float | None,
    delta: float | None,
    analysis: Literal["exact", "renyi"],
    relation: Relation,
) -> Calibration:
    """Return the calibration of a given γ: ε at a given δ, or δ at a given ε."""
    check.choice(RELATIONS, relation=relation)
    gamma = check.positive(finite=True, gamma=gamma)
    if (epsilon is None) == (delta is None):
        raise ArgumentError("With gamma, exactly one of epsilon and delta must be given; the other is computed.")
    if epsilon is None:
        delta = check.in_interval(0, 1, delta=delta)
        found = accounting.epsilon(delta, sketch_size=k, gamma=gamma, relation=relation, analysis=analysis)
        epsilon = max(float(found), _LEAST_EPSILON)
    else:
        epsilon = check.positive(finite=True, epsilon=epsilon)
        delta = max(_delta_spent(epsilon, k, gamma, analysis, relation), _LEAST_DELTA[relation])
    if math.isinf(epsilon) or delta == 1:
        raise ArgumentError(
            f"gamma={gamma!r} with sketch_size={k} gives no guarantee: epsilon is infinite or delta is 1. "
            "Increase gamma."
        )
    spent = min(_delta_spent(epsilon, k, gamma, analysis, relation), delta)
    return _without_scale_bound(epsilon, delta, k, gamma, analysis, relation, epsilon, spent)


def _delta_spent(
    epsilon: float, k: int, gamma: float, analysis: Literal["exact", "renyi"], relation: Relation
) -> float:
    if analysis == "exact":
        return mixing_delta(epsilon, k, gamma, relation)
    return float(accounting.delta(epsilon, sketch_size=k, gamma=gamma, relation=relation, analysis=analysis))


def _epsilon_spent(
    epsilon: float, delta: float, k: int, gamma: float, analysis: Literal["exact", "renyi"], relation: Relation
) -> float:
    """Return ε at the budget's δ, searching near ε since the calibration just meets the budget."""
    if analysis == "renyi":
        return float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi"))

    def excess(at: float) -> float:
        return log_excess(mixing_delta(at, k, gamma, relation), delta)

    near = epsilon * (1 - 1e-6)
    if excess(near) <= 0:  # γ is at its lower limit: the budget is not exhausted
        return float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, relation=relation))
    return smallest_safe(excess, near, epsilon, limit=epsilon)


@functools.lru_cache(maxsize=1024)
def _theorem1(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Return line 1 of Algorithm 2: the smallest γ > 5/2 with ε̃ ≤ ε for η = γ/√k, and τ = √(2 log(3/δ)).

    The noise on λ_min is multiplied by 1 + 2e, so that its ratio to the sensitivity of the computed λ_min is that of
    Theorem 1.
    """

    def spent(gamma: float) -> float:
        return theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=gamma / np.sqrt(k))

    unmet = functools.partial(unmet_budget, epsilon, delta, k, functools.partial(theorem1_reach, delta))
    gamma = least_safe_gamma(lambda g: spent(g) - epsilon, float(np.nextafter(2.5, 3)), 5.0, unmet)
    return Calibration(
        epsilon=epsilon,
        delta=delta,
        sketch_size=k,
        gamma=gamma,
        scale="private",
        analysis="paper",
        relation="zero-out",
        eta=gamma / float(np.sqrt(k)) * (1 + 2 * error),
        tau=float(np.sqrt(2 * np.log(3 / delta))),
        eigenvalue_error=error,
        epsilon_spent=spent(gamma),
        delta_spent=delta,
        delta_split=(("eigenvalue", delta / 3), ("sketch", delta / 3), ("eigenvalue exceeded", delta / 3)),
    )


@functools.lru_cache(maxsize=1024)
def least_gamma(
    epsilon: float,
    delta: float,
    *,
    sketch_size: int,
    bound_holds_for: BoundHoldsFor = "both",
    relation: Relation = "zero-out",
    mu: float = 0.0,
) -> float:
    """Return the smallest γ whose exact δ, composed with Gaussian releases of ``mu``, is at most ``delta``."""

    def excess(gamma: float, mu: float = mu) -> float:
        spent = accounting.delta(
            epsilon, sketch_size=sketch_size, gamma=gamma, bound_holds_for=bound_holds_for, relation=relation, mu=mu
        )
        return log_excess(spent, delta)

    low, high = 1e-6 if bound_holds_for == "both" else 1 + 1e-9, 3.0
    if mu > 0:  # start near the result, at the smaller γ without mu, since the integrals with mu are slow
        low = smallest_safe(lambda gamma: excess(gamma, 0.0), low, high, limit=GAMMA_MAX, log=True)
        high = 1.2 * low
    return smallest_safe(excess, low, high, limit=GAMMA_MAX, log=True, rtol=1e-13 if mu == 0 else 1e-10)
