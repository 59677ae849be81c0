"""Calibration of γ, η and τ of a private scale bound under the joint account."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import stats

from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.claims import MARGIN, scale_delta
from gaussmix.accounting.divergence import ChiSquareLoss, composite_rule, hockey_stick
from gaussmix.accounting.mixing import delta as mixing_delta
from gaussmix.accounting.private_scale import private_scale_terms
from gaussmix.accounting.published import theorem1_reach
from gaussmix.accounting.search import least_safe_gamma, log_excess, unmet_budget
from gaussmix.errors import BudgetUnmetError

__all__ = ["private_scale"]

_ETA_STEPS = 64  # per factor of 2: half a step costs less than 10⁻⁵ of γ
_TAU_STEPS = 64


@functools.lru_cache(maxsize=1024)
def private_scale(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Return the calibration with the smallest γ + ητ: an approximation guides the search, the account ends it."""
    sensitivity = 1 + 2 * error
    draft_gamma, eta, tau = _draft_private_scale(epsilon, delta, k, sensitivity)

    def spent(gamma: float) -> float:
        return scale_delta(epsilon, k, gamma, eta, tau, sensitivity)

    gamma = least_safe_gamma(
        lambda g: log_excess(spent(g), delta * (1 - MARGIN)),
        max(draft_gamma * (1 - 1e-4), 1 + 1e-9),
        draft_gamma * (1 + 1e-4),
        functools.partial(unmet_budget, epsilon, delta, k, functools.partial(theorem1_reach, delta)),
        rtol=1e-12,
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
    """Return approximately optimal γ, η, τ from a coarse quadrature of the remove direction; checked by the caller.

    η and τ are searched on public grids from coarse to fine. Neighbouring grid points differ in γ + ητ by far more than
    rounding, so the search ends at the same point on every processor.
    """
    unmet = functools.partial(unmet_budget, epsilon, delta, k, functools.partial(theorem1_reach, delta))
    alone = least_safe_gamma(
        lambda g: log_excess(mixing_delta(epsilon, sketch_size=k, gamma=g, bound_holds_for="larger"), delta),
        1 + 1e-9,
        3.0,
        unmet,
        rtol=1e-3,
    )
    top = float(stats.norm.isf(1e-4 * delta))
    bulk, bulk_weights = composite_rule(np.linspace(-4, top, 20), 6)

    def spent(gamma: float, eta: float, tau: float) -> float:
        reach = min(max(top, tau + 1), tau + 0.999 * (gamma - 1) / eta)
        tail, tail_weights = composite_rule(np.linspace(tau, reach, 14), 6)
        odds = 1 / (gamma - 1 - np.concatenate([np.zeros_like(bulk), eta * (tail - tau)]))
        z, weights = np.concatenate([bulk, tail]), np.concatenate([bulk_weights, tail_weights])
        mu = sensitivity / eta
        curve = hockey_stick(epsilon - mu**2 / 2 - mu * z, ChiSquareLoss.removal(k, odds=odds))
        return float((weights * stats.norm.pdf(z)) @ curve + stats.norm.sf(reach))

    @functools.cache
    def gamma_at(i: int, j: int) -> float:
        eta, tau = _on_grid(i, j)
        return least_safe_gamma(
            lambda g: log_excess(spent(g, eta, tau), delta), alone, 2 * alone, lambda: "", rtol=1e-9
        )

    def noise(point: tuple[int, int]) -> float:
        eta, tau = _on_grid(*point)
        try:
            return gamma_at(*point) + eta * tau
        except BudgetUnmetError:  # with this η
            return math.inf

    # Starting point: η/γ fell like k^-0.28 over k from 5 to 10⁴ and hardly moved with ε.
    best = (round(_ETA_STEPS * math.log2(0.8 * alone * k**-0.28)), 0)
    least = noise(best)
    for step in (64, 16, 4, 1):
        moved = True
        while moved:
            i, j = best
            around = [(i - step, j), (i + step, j), (i, j + step), (i, max(j - step, 0))]
            found = min(around, key=noise)
            moved = noise(found) < least * (1 - 1e-9)
            if moved:
                best, least = found, noise(found)
    if math.isinf(least):
        raise BudgetUnmetError(unmet())
    return gamma_at(*best), *_on_grid(*best)


def _on_grid(i: int, j: int) -> tuple[float, float]:
    """Return η = 2^(i/64), rounded to a multiple of 2^-30, and τ = j/64."""
    return round(2 ** (i / _ETA_STEPS) * 2**30) / 2**30, j / _TAU_STEPS
