r"""From a privacy budget to the noise that meets it.

Calibration sees no data: a :class:`Calibration` is a function of (ε, δ), the sketch size and the chosen analysis.
Every search ends on a value that was itself checked, so that accounting for the result never exceeds the budget.

>>> c = calibrate(1.0, 1e-6, sketch_size=250)
>>> round(c.gamma, 2), c.epsilon_spent <= 1.0, c.delta_spent <= 1e-6
(52.83, True, True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize, stats

from gaussmix import _validation as check
from gaussmix import accounting
from gaussmix.accounting import GAMMA_MAX, RELATIONS, NothingSafeError, Relation, log_excess, smallest_safe
from gaussmix.divergence import ChiSquareLoss, composite_rule, hockey_stick
from gaussmix.private_scale import private_scale_delta, private_scale_terms

__all__ = ["Calibration", "calibrate", "eigenvalue_error_bound"]

ScaleBound = Literal["none", "private"]
CalibrationAnalysis = Literal["exact", "renyi", "paper"]

_LEAST_COMPOSED_DELTA = 1e-140
_MARGIN = 1e-10  # of δ, left over so that inverting the account, rounded up, still gives at most ε


@dataclass(frozen=True)
class Calibration:
    """Parameters of the mechanism that meet a budget, and what they spend of it.

    Attributes
    ----------
    epsilon, delta : float
        The budget asked for.
    sketch_size : int
        Rows k of the sketch.
    gamma : float
        Target for (σ² + λ)/C²: with no scale bound σ² = γC².
    scale : {"none", "private"}
        Whether the noise is lowered by a private bound on the smallest eigenvalue.
    analysis : {"exact", "renyi", "paper"}
        What the calibration rests on.
    relation : {"zero-out", "replace-one"}
        The neighbouring relation that the budget is for.
    eta, tau : float or None
        Noise scale and safety margin of the private λ_min/C²; None without one.
    eigenvalue_error : float
        Public bound, in units of C², on the numerical error of λ_min, charged to its sensitivity.
    epsilon_spent, delta_spent : float
        ε at the budget's δ, and δ at the budget's ε, by the same analysis, rounded up.
    delta_split : tuple of (str, float)
        What δ is spent on, by name.
    """

    epsilon: float
    delta: float
    sketch_size: int
    gamma: float
    scale: ScaleBound
    analysis: CalibrationAnalysis
    relation: Relation
    eta: float | None
    tau: float | None
    eigenvalue_error: float
    epsilon_spent: float
    delta_spent: float
    delta_split: tuple[tuple[str, float], ...]


def calibrate(
    epsilon: float,
    delta: float,
    *,
    sketch_size: int,
    scale: ScaleBound = "none",
    analysis: CalibrationAnalysis = "exact",
    relation: Relation = "zero-out",
    eigenvalue_error: float = 0.0,
) -> Calibration:
    """Least noise for an (ε, δ) budget.

    Parameters
    ----------
    epsilon : float
        Finite and above 0.
    delta : float
        In (0, 1).
    sketch_size : int
        Rows k of the sketch.
    scale : {"none", "private"}
        ``"none"``: noise of variance γC², for every table. ``"private"``: λ_min is released with noise and lowers the
        noise of the sketch; γ, η and τ are chosen together for the least γ + ητ. It pays only for tables whose
        smallest eigenvalue is far above ητC².
    analysis : {"exact", "renyi", "paper"}
        ``"exact"``: the exact curve, or the joint account of :mod:`gaussmix.private_scale`. ``"renyi"``: Lemma 1 and
        Proposition 1 of arXiv:2505.24603v2. ``"paper"``: Theorem 1 with η = γ/√k, which is always ``"private"``.
    relation : {"zero-out", "replace-one"}
        Replace-one needs ``scale="none"`` and ``analysis="exact"``.
    eigenvalue_error : float
        With ``scale="private"``: bound e on the numerical error of λ_min/C² (:func:`eigenvalue_error_bound`). One row
        moves the computed value by at most 1 + 2e.

    Returns
    -------
    Calibration
        Accounting for it gives back at most the budget.

    Examples
    --------
    >>> private = calibrate(1.0, 1e-6, sketch_size=250, scale="private")
    >>> private.gamma + private.eta * private.tau < 82.6
    True
    >>> paper = calibrate(1.0, 1e-6, sketch_size=250, scale="private", analysis="paper")
    >>> round(paper.gamma, 2), round(paper.gamma + paper.eta * paper.tau, 1)
    (144.95, 195.0)
    """
    epsilon = check.positive(finite=True, epsilon=epsilon)
    delta = check.in_interval(0, 1, delta=delta)
    k = check.positive_integer(sketch_size=sketch_size)
    check.choice(("none", "private"), scale=scale)
    check.choice(("exact", "renyi", "paper"), analysis=analysis)
    check.choice(RELATIONS, relation=relation)
    error = check.in_interval(0, np.finfo(float).max, closed=True, eigenvalue_error=eigenvalue_error)
    if relation != "zero-out" and (scale, analysis) != ("none", "exact"):
        raise ValueError("relation='replace-one' needs scale='none' and analysis='exact'.")
    if delta < _LEAST_COMPOSED_DELTA and (scale, analysis, relation) not in (
        ("none", "exact", "zero-out"),
        ("none", "renyi", "zero-out"),
        ("private", "paper", "zero-out"),
    ):
        raise ValueError(
            f"delta must be at least {_LEAST_COMPOSED_DELTA:g} for scale='private' and relation='replace-one', whose "
            f"quadratures are not exact below, got {delta!r}."
        )
    methods: dict[tuple[str, str], Callable[[], Calibration]] = {
        ("none", "exact"): lambda: _noise_alone(epsilon, delta, k, "exact", relation),
        ("none", "renyi"): lambda: _noise_alone(epsilon, delta, k, "renyi", relation),
        ("private", "exact"): lambda: _private_scale(epsilon, delta, k, error),
        ("private", "paper"): lambda: _theorem1(epsilon, delta, k, error),
    }
    if (scale, analysis) not in methods:
        raise ValueError(
            f"analysis={analysis!r} is not offered with scale={scale!r}: 'renyi' needs scale='none', "
            "'paper' needs scale='private', 'exact' takes both."
        )
    return methods[scale, analysis]()


def eigenvalue_error_bound(columns: int, *, n_max: int = 2**40) -> float:
    """Bound e on the error of a symmetric solver's λ_min of a Gram matrix of up to ``n_max`` rows, in units of C².

    Ten times columns · u · n_max, u = 2⁻⁵³: the norm of the matrix is at most n_max C², and backward stable solvers err
    by a small multiple of u times it.
    """
    return 10 * check.positive_integer(columns=columns) * 2.0**-53 * check.positive_integer(n_max=n_max)


@functools.lru_cache(maxsize=1024)
def _noise_alone(
    epsilon: float, delta: float, k: int, analysis: Literal["exact", "renyi"], relation: Relation
) -> Calibration:
    def excess(gamma: float) -> float:
        if analysis == "renyi":  # both ways round, so that rounding in one of them is not an excess in the other
            over = float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi")) - epsilon
            spent = accounting.delta(epsilon, sketch_size=k, gamma=gamma, analysis="renyi")
            return over if over > 0 else max(over, log_excess(spent, delta))
        spent = accounting.delta(epsilon, sketch_size=k, gamma=gamma, relation=relation)
        return log_excess(spent, delta * (1 - _MARGIN))

    floor = 1e-6 if analysis == "exact" else 1 + 1e-9
    about = min(float(np.sqrt(2 * k * np.log(1 / delta))) / epsilon, GAMMA_MAX / 2)  # to leading order
    low = about / 8 if about / 8 > floor and excess(about / 8) > 0 else floor

    def reached(rows: int) -> float:
        return float(accounting.epsilon(delta, sketch_size=rows, gamma=GAMMA_MAX, relation=relation, analysis=analysis))

    gamma = _least(excess, low, max(2.0, 1.5 * about), lambda: _unmet(epsilon, delta, k, reached))
    spent = accounting.delta(epsilon, sketch_size=k, gamma=gamma, relation=relation, analysis=analysis)
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
        epsilon_spent=_epsilon_spent(epsilon, delta, k, gamma, analysis, relation),
        delta_spent=spent,
        delta_split=(("sketch", spent),),
    )


def _epsilon_spent(
    epsilon: float, delta: float, k: int, gamma: float, analysis: Literal["exact", "renyi"], relation: Relation
) -> float:
    """ε at the budget's δ: the calibration just met it, so the search need not look far."""
    if analysis == "renyi":
        return float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi"))

    def excess(at: float) -> float:
        return log_excess(accounting.delta(at, sketch_size=k, gamma=gamma, relation=relation), delta)

    near = epsilon * (1 - 1e-6)
    if excess(near) <= 0:  # γ is at its floor: the budget is more than is needed
        return float(accounting.epsilon(delta, sketch_size=k, gamma=gamma, relation=relation))
    return smallest_safe(excess, near, epsilon, limit=epsilon)


@functools.lru_cache(maxsize=1024)
def _theorem1(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Line 1 of Algorithm 2: the smallest γ > 5/2 whose ε̃ with η = γ/√k is within the budget, τ = √(2 log(3/δ)).

    The noise on λ_min is raised by 1 + 2e, so that its ratio to the sensitivity of the computed λ_min is Theorem 1's.
    """

    def spent(gamma: float) -> float:
        return accounting.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=gamma / np.sqrt(k))

    unmet = functools.partial(_unmet, epsilon, delta, k, functools.partial(_theorem1_reaches, delta))
    gamma = _least(lambda g: spent(g) - epsilon, float(np.nextafter(2.5, 3)), 5.0, unmet)
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


def _theorem1_reaches(delta: float, k: int) -> float:
    """ε of Theorem 1 at the largest γ, which the joint account improves on."""
    return accounting.theorem1_epsilon(delta, sketch_size=k, gamma=GAMMA_MAX, eta=GAMMA_MAX / np.sqrt(k))


@functools.lru_cache(maxsize=1024)
def _private_scale(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Least γ + ητ under the joint account: a draft of the account steers the search, the account itself ends it."""
    sensitivity = 1 + 2 * error
    draft_gamma, eta, tau = _draft_private_scale(epsilon, delta, k, sensitivity)

    def spent(gamma: float) -> float:
        return private_scale_delta(epsilon, sketch_size=k, gamma=gamma, eta=eta, tau=tau, sensitivity=sensitivity)

    gamma = _least(
        lambda g: log_excess(spent(g), delta * (1 - _MARGIN)),
        max(draft_gamma * (1 - 1e-4), 1 + 1e-9),
        draft_gamma * (1 + 1e-4),
        functools.partial(_unmet, epsilon, delta, k, functools.partial(_theorem1_reaches, delta)),
        rtol=1e-9,
    )
    pairs = private_scale_terms(epsilon, k, gamma, eta, tau, sensitivity)
    terms = max(pairs, key=lambda pair: sum(float(t.upper) for t in pair))
    names = ("sketch and eigenvalue", "eigenvalue exceeded")
    split = tuple((name, float(term.upper)) for name, term in zip(names, terms, strict=True))
    return Calibration(
        epsilon=epsilon,
        delta=delta,
        sketch_size=k,
        gamma=gamma,
        scale="private",
        analysis="exact",
        relation="zero-out",
        eta=eta,
        tau=tau,
        eigenvalue_error=error,
        epsilon_spent=epsilon,
        delta_spent=sum(part for _, part in split),
        delta_split=split,
    )


def _draft_private_scale(epsilon: float, delta: float, k: int, sensitivity: float) -> tuple[float, float, float]:
    """γ, η, τ near the optimum, from a light rule for the remove direction. Nothing here needs to be safe."""
    alone = _least(
        lambda g: log_excess(accounting.delta(epsilon, sketch_size=k, gamma=g, scale="larger"), delta),
        1 + 1e-9,
        3.0,
        functools.partial(_unmet, epsilon, delta, k, functools.partial(_theorem1_reaches, delta)),
        rtol=1e-3,
    )
    top = float(stats.norm.isf(1e-4 * delta))
    bulk, bulk_weights = composite_rule(np.linspace(-4, top, 20), 6)

    def log_room(parameters: np.ndarray) -> float:
        gamma, eta, tau = 1 + np.exp(parameters[0]), np.exp(parameters[1]), parameters[2]
        reach = min(max(top, tau + 1), tau + 0.999 * (gamma - 1) / eta)
        tail, tail_weights = composite_rule(np.linspace(tau, reach, 14), 6)
        odds = 1 / (gamma - 1 - np.concatenate([np.zeros_like(bulk), eta * (tail - tau)]))
        z, weights = np.concatenate([bulk, tail]), np.concatenate([bulk_weights, tail_weights])
        mu = sensitivity / eta
        curve = hockey_stick(epsilon - mu**2 / 2 - mu * z, ChiSquareLoss.removal(k, odds=odds))
        spent = (weights * stats.norm.pdf(z)) @ curve + stats.norm.sf(reach)
        return -log_excess(float(spent), delta)

    # Starting point: η/γ fell like k^-0.28 over k from 5 to 10⁴ and hardly moved with ε.
    start = np.array([np.log(alone * (1 + 3 * k**-0.35)), np.log(0.8 * alone * k**-0.28), 0.05])
    found = optimize.minimize(
        lambda p: (1 + np.exp(p[0]) + np.exp(p[1]) * p[2]) / alone,
        start,
        method="SLSQP",
        bounds=[(start[0] - 5, start[0] + 5), (start[1] - 5, start[1] + 5), (0.0, 6.0)],
        constraints=[{"type": "ineq", "fun": log_room}],
        options={"ftol": 1e-6, "maxiter": 30},
    )
    return float(1 + np.exp(found.x[0])), float(np.exp(found.x[1])), float(found.x[2])


def _least(
    excess: Callable[[float], float],
    low: float,
    high: float,
    unmet: Callable[[], str],
    *,
    rtol: float = 1e-13,
) -> float:
    """Smallest safe γ from ``low`` on; ``unmet`` says what budget could be met if there is none."""
    try:
        return float(smallest_safe(excess, low, high, limit=GAMMA_MAX, log=True, rtol=rtol))
    except NothingSafeError:
        raise NothingSafeError(unmet()) from None


def _unmet(epsilon: float, delta: float, k: int, reached: Callable[[int], float]) -> str:
    """The message for a budget out of reach; ``reached(k)`` is the ε of a sketch of k rows at the largest γ."""
    message = (
        f"No noise with gamma up to {GAMMA_MAX:g} meets epsilon={epsilon!r}, delta={delta!r} with sketch_size={k}. "
        f"With this delta and sketch_size the least epsilon is {reached(k):.3g}; "
    )
    if reached(1) > epsilon:
        return message + "no sketch_size meets this epsilon and delta."
    low, high = 1, k
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) <= epsilon else (low, middle)
    return message + f"with this epsilon and delta the largest sketch_size is {low}."
