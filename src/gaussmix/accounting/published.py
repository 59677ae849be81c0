r"""Published analyses of Gaussian mixing: Rényi DP, tCDP, Sheffet (2019) and Theorem 1, corrected where they fail.

They are for zero-out neighbours at leverage 1/γ. Lemma numbers follow arXiv:2505.24603v2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.arguments import GAMMA_MAX, ROUNDING, gammas, shaped, sketch_sizes
from gaussmix.accounting.divergence import log1p_deficit
from gaussmix.accounting.exact import exact_epsilon
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.errors import ArgumentError

__all__ = [
    "rdp",
    "renyi_delta",
    "renyi_epsilon",
    "sheffet_epsilon",
    "tcdp_epsilon",
    "theorem1_epsilon",
    "theorem1_reach",
]


@overload
def rdp(order: float, *, sketch_size: int, gamma: float) -> float: ...


@overload
def rdp(order: ArrayLike, *, sketch_size: ArrayLike, gamma: ArrayLike) -> float | Floats: ...


def rdp(order: ArrayLike, *, sketch_size: ArrayLike, gamma: ArrayLike) -> float | Floats:
    r"""Return the Rényi divergence bound of Gaussian mixing at an order (Lemma 1 of arXiv:2505.24603v2).

    .. math:: \varphi(\alpha; k, \gamma) = \frac{k}{2(\alpha - 1)}
              \bigl[\alpha \log(1 - 1/\gamma) - \log(1 - \alpha/\gamma)\bigr]

    for 1 < α < γ; infinite for α ≥ γ.

    Examples
    --------
    >>> rdp(2.0, sketch_size=150, gamma=1e8) > 0
    True
    """
    orders = check.numbers(order=order)
    if np.any(orders <= 1):
        raise ArgumentError("order must be a number > 1.")
    orders, k, g = check.broadcastable(
        order=orders, sketch_size=sketch_sizes(sketch_size), gamma=gammas(gamma, "larger", "renyi")
    )
    with np.errstate(invalid="ignore"):
        return shaped(np.where(orders < g, _phi(orders - 1, k, g), np.inf), orders.shape)


def _phi(order_minus_1: ArrayLike, k: ArrayLike, gamma: ArrayLike) -> Floats:
    """Return φ(α; k, γ) as a function of α - 1.

    Both logarithms of Lemma 1 are about -α/γ and cancel to second order: at γ = 1e8 the plain formula is negative. With
    u = 1/(γ - 1), log(1 - 1/γ) = -log(1 + u) and log(1 - α/γ) = log(1 - 1/γ) + log(1 - (α - 1)u), and
    φ = (k/2) [h(u) + h(-(α-1)u)/(α-1)] with h(x) = x - log(1 + x): two positive terms.
    """
    a, k, gamma = np.asarray(order_minus_1, float), np.asarray(k, float), np.asarray(gamma, float)
    u = 1 / (gamma - 1)
    return np.asarray(k / 2 * (log1p_deficit(u) + log1p_deficit(-np.minimum(a * u, 1.0)) / a))


def _minimise_over_orders(objective: Callable[[Any], Any], gamma: float) -> float:
    """Return the smallest value found over 1 < α < γ. Every α gives a valid bound, so any result is safe."""
    logits = np.linspace(-45, 25, 281)

    def at(logit: Any) -> Any:
        return objective((gamma - 1) / (1 + np.exp(-logit)))

    values = at(logits)
    best = int(np.argmin(values))
    bracket = (logits[max(best - 1, 0)], logits[min(best + 1, logits.size - 1)])
    refined = optimize.minimize_scalar(at, bounds=bracket, method="bounded", options={"xatol": 1e-10})
    return float(min(refined.fun, values[best]))


def renyi_epsilon(delta: float, k: float, gamma: float) -> float:
    """Return ε by Lemma 1 and Proposition 1; a negative minimum, possible for large γ, is replaced by 0."""

    def objective(a: Any) -> Any:
        gain, loss = np.log1p(1 / a) + np.log1p(a) / a, _phi(a, k, gamma) - np.log(delta) / a
        return loss - gain + ROUNDING * (loss + gain)

    return max(_minimise_over_orders(objective, gamma), 0.0)


def renyi_delta(epsilon: float, k: float, gamma: float) -> float:
    """Return δ by Proposition 1 solved for δ: log δ = (α - 1)(φ - ε + log(1 - 1/α)) - log α."""
    if np.isinf(gamma) or np.isinf(epsilon):
        return float(0.0 - np.expm1(min(epsilon, 0.0)))

    def objective(a: Any) -> Any:
        gain, loss = (
            a * (max(epsilon, 0.0) + np.log1p(1 / a)) + np.log1p(a),
            a * (_phi(a, k, gamma) + max(-epsilon, 0.0)),
        )
        return loss - gain + ROUNDING * (loss + gain)

    return float(np.exp(min(_minimise_over_orders(objective, gamma), 0.0)))


def tcdp_epsilon(delta: float, k: float, gamma: float) -> float:
    """Return ε by Corollary 1 (ρ = k/2γ², w = 2γ/5, for γ > 5/2) and both cases of Proposition 2."""
    if gamma <= 5 / 2:
        return np.inf
    rho, w, log_delta = k / (2 * gamma**2), 2 * gamma / 5, np.log(1 / delta)
    if log_delta <= (w - 1) ** 2 * rho:
        return float(rho + 2 * np.sqrt(rho * log_delta))
    return float(rho * w + log_delta / (w - 1))


def sheffet_epsilon(delta: float, k: float, gamma: float) -> float:
    """Return ε by Theorem 2 of Sheffet (2019), as quoted in arXiv:2505.24603v2, but never below the exact value."""
    log_delta = np.log(4 / delta)
    formula = float(2 / gamma * (np.sqrt(2 * k * log_delta) + log_delta))
    return max(formula, exact_epsilon(delta, k, gamma, "larger", "zero-out", 0.0))


def theorem1_epsilon(delta: float, *, sketch_size: int, gamma: float, eta: float) -> float:
    r"""Return ε of ModifiedGaussMix (Theorem 1 of arXiv:2505.24603v2), corrected where its Gaussian bound fails.

    .. math:: \tilde\varepsilon = \frac{\sqrt{2\log(3.75/\delta)}}{\eta} + \min_\alpha \Bigl\{\varphi(\alpha; k, \gamma)
              + \frac{\log(3/\delta) + (\alpha-1)\log(1 - 1/\alpha) - \log\alpha}{\alpha - 1}\Bigr\}

    A third of δ is for the release of λ_min, a third for the sketch, and a third for the event λ̃ > λ_min. The first
    term is proved for values below 1 and fails from about 9 on; where the exact Gaussian ε is larger, that is used.

    Examples
    --------
    >>> round(theorem1_epsilon(1e-6, sketch_size=250, gamma=144.95, eta=144.95 / 250**0.5), 3)
    1.0
    """
    delta = check.in_interval(0, 1, delta=delta)
    k, gamma = check.sketch_rows(sketch_size=sketch_size), float(gammas(gamma, "larger", "renyi"))
    eta = check.positive(eta=eta)
    if np.isinf(gamma) and np.isinf(eta):
        return 0.0
    eigenvalue = max(np.sqrt(2 * np.log(3.75 / delta)) / eta, gaussian_epsilon(delta / 3, mu=1 / eta))
    sketch = 0.0 if np.isinf(gamma) else renyi_epsilon(delta / 3, k, gamma)
    return float(eigenvalue + sketch)


def theorem1_reach(delta: float, k: int) -> float:
    """Return ε of Theorem 1 at the largest γ; the joint account gives a smaller ε."""
    return theorem1_epsilon(delta, sketch_size=k, gamma=GAMMA_MAX, eta=GAMMA_MAX / np.sqrt(k))
