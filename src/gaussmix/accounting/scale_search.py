"""The γ, η and τ of a private scale bound, chosen together for the least noise under the joint account."""

from __future__ import annotations

import functools

import numpy as np
from scipy import optimize, stats

from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.claims import MARGIN, scale_delta
from gaussmix.accounting.divergence import ChiSquareLoss, composite_rule, hockey_stick
from gaussmix.accounting.mixing import delta as mixing_delta
from gaussmix.accounting.private_scale import private_scale_terms
from gaussmix.accounting.published import theorem1_reach
from gaussmix.accounting.search import least_safe_gamma, log_excess, unmet_budget

__all__ = ["private_scale"]


@functools.lru_cache(maxsize=1024)
def private_scale(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Least γ + ητ under the joint account: a draft of the account steers the search, the account itself ends it."""
    sensitivity = 1 + 2 * error
    draft_gamma, eta, tau = _draft_private_scale(epsilon, delta, k, sensitivity)

    def spent(gamma: float) -> float:
        return scale_delta(epsilon, k, gamma, eta, tau, sensitivity)

    gamma = least_safe_gamma(
        lambda g: log_excess(spent(g), delta * (1 - MARGIN)),
        max(draft_gamma * (1 - 1e-4), 1 + 1e-9),
        draft_gamma * (1 + 1e-4),
        functools.partial(unmet_budget, epsilon, delta, k, functools.partial(theorem1_reach, delta)),
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
    alone = least_safe_gamma(
        lambda g: log_excess(mixing_delta(epsilon, sketch_size=k, gamma=g, bound_holds_for="larger"), delta),
        1 + 1e-9,
        3.0,
        functools.partial(unmet_budget, epsilon, delta, k, functools.partial(theorem1_reach, delta)),
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
