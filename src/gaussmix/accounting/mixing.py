r"""Privacy of the Gaussian mixing mechanism: exact, Rényi and earlier bounds.

Pure functions of public parameters: nothing in this module sees data.

>>> round(epsilon(1e-8, sketch_size=150, gamma=100, scale="larger"), 4)
0.5146

The mechanism releases k = ``sketch_size`` rows drawn from N(0, G + σ²I), G the Gram matrix of rows of norm at most
C. ``gamma`` is (σ² + λ)/C², λ a lower bound on the smallest eigenvalue of G (the scale bound). A row's leverage
in the larger table is then at most

- 1/(1 + γ) with ``scale="none"``: λ = 0, or a public λ that bounds both neighbours;
- 1/γ with ``scale="larger"``: λ bounds the larger neighbour only (Lemma 1 of arXiv:2505.24603v2).

Releases of the same rows that are fixed in advance compose: sketches of leverage at most t add their rows, Gaussian
releases add their μ². Pass the sum of the sketch sizes and ``mu=math.hypot(mu1, mu2, ...)``.

Numerical errors are bounded and charged: every δ and ε here is rounded up. Notation and lemma numbers follow
arXiv:2505.24603v2; see docs/notation.md. The exact curve is proved in docs/privacy.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from gaussmix import _validation as check
from gaussmix.divergence import (
    ChiSquareLoss,
    gaussian_hockey_stick,
    hockey_stick,
    hockey_stick_composed,
    log1p_deficit,
)

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "NothingSafeError",
    "delta",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "log_excess",
    "privacy_loss_distribution",
    "rdp",
    "smallest_safe",
    "theorem1_epsilon",
]

Scale = Literal["none", "larger"]
Relation = Literal["zero-out", "replace-one"]
Analysis = Literal["exact", "renyi", "tcdp", "sheffet"]
Direction = tuple[ChiSquareLoss, ...]

SCALES: tuple[Scale, ...] = ("none", "larger")
RELATIONS: tuple[Relation, ...] = ("zero-out", "replace-one")
ANALYSES: tuple[Analysis, ...] = ("exact", "renyi", "tcdp", "sheffet")
ROUNDING = 1e-10  # charged on top of every exact δ; measured errors are below 1e-11 (tests/test_divergence.py)
EPSILON_MAX = 1e9  # a larger ε is answered by ∞
_ODDS_MAX = 1e12  # a leverage this close to 1 hides nothing: δ is taken to be 1
_GRID_MAX = 20_000_000


# ---------------------------------------------------------------------------------------------------------------
# The exact curve
def delta(
    epsilon: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    scale: Scale = "none",
    relation: Relation = "zero-out",
    mu: float = 0.0,
    analysis: Literal["exact", "renyi"] = "exact",
) -> Any:
    r"""Smallest δ for which the mechanism is (ε, δ)-differentially private, rounded up.

    With t the leverage, F̄ the upper tail of a chi-square with k degrees of freedom and F = 1 - F̄, it is the larger
    of

    .. math::
        \text{remove: } & \bar F(c) - e^\varepsilon \bar F\bigl(\tfrac{c}{1-t}\bigr), \quad
            c = \max\bigl(0, \tfrac{2(1-t)}{t}(\varepsilon - \tfrac k2 \log(1-t))\bigr) \\
        \text{add: } & F\bigl(\tfrac{c'}{1-t}\bigr) - e^\varepsilon F(c'), \quad
            c' = \max\bigl(0, \tfrac{2(1-t)}{t}(-\varepsilon - \tfrac k2 \log(1-t))\bigr)

    The chi-square form is known (arXiv:2309.01243). The printed differences cancel for large γ; they are computed
    as integrals of positive functions.

    Parameters
    ----------
    epsilon : float or array
        Any real number: composition needs negative ε too.
    sketch_size, gamma : int, float or arrays
        k ≥ 1 and γ > 0 (γ > 1 with ``scale="larger"``); γ = ∞ gives (1 - e^ε)₊.
    scale : {"none", "larger"}
        Which neighbour the scale bound holds for.
    relation : {"zero-out", "replace-one"}
        Neighbours differ by a row set to zero (added, removed), or by a row replaced by another.
    mu : float
        √(Σμ²) of Gaussian releases of the same rows, μ = sensitivity / noise under ``relation``.
    analysis : {"exact", "renyi"}
        ``"renyi"``: Lemma 1 with Proposition 1 solved for δ, leverage 1/γ whatever the scale.

    Returns
    -------
    float or array
        Of the common shape of the arguments. At most 2e-10 (relative) above the true value when ``mu`` is 0.
        Milliseconds a value; seconds with both ``mu`` and replace-one.

    Examples
    --------
    >>> f"{delta(1.0, sketch_size=250, gamma=52.84):.3g}"
    '9.96e-07'
    >>> f"{delta(1.0, sketch_size=250, gamma=52.84, relation='replace-one'):.3g}"
    '5.34e-05'
    """
    check.choice(("exact", "renyi"), analysis=analysis)
    _check_model(scale, relation, mu, analysis)
    eps = check.numbers(epsilon=epsilon)
    eps, k, g = check.broadcastable(
        epsilon=eps, sketch_size=_sketch_size(sketch_size), gamma=_gamma(gamma, scale, analysis)
    )
    if analysis == "renyi":
        return _shaped([_renyi_delta(*point) for point in zip(eps.flat, k.flat, g.flat, strict=True)], eps.shape)
    finite_eps = np.clip(eps, -EPSILON_MAX, EPSILON_MAX)
    if relation == "zero-out" and mu == 0:
        with np.errstate(divide="ignore"):
            odds = _odds(np.where(np.isinf(g), 1.0, g), scale)
        computed = np.minimum(odds, _ODDS_MAX)
        remove, add = ChiSquareLoss.removal(k, odds=computed), ChiSquareLoss.addition(k, odds=computed)
        both = ChiSquareLoss(k, np.stack([remove.slope, add.slope]), np.stack([remove.mean, add.mean]))
        larger = np.where(odds > _ODDS_MAX, 1.0, np.max(hockey_stick(finite_eps, both), axis=0))
        nothing = 0.0 - np.expm1(np.minimum(eps, 0))
        exact = np.where(np.isinf(g), nothing, np.minimum(larger * (1 + ROUNDING), 1.0))
        return _shaped(np.where(np.isposinf(eps), 0.0, exact), eps.shape)
    values = np.empty(eps.shape)
    for pair in set(zip(k.flat, g.flat, strict=True)):
        here = (k == pair[0]) & (g == pair[1])
        values[here] = _composed_delta(finite_eps[here], *pair, scale, relation, mu)
    return _shaped(np.where(np.isposinf(eps), 0.0, values), eps.shape)


def _composed_delta(
    epsilon: NDArray[np.float64], k: float, gamma: float, scale: Scale, relation: Relation, mu: float
) -> NDArray[np.float64]:
    if np.isinf(gamma):
        return np.minimum(gaussian_hockey_stick(epsilon, mu) * (1 + ROUNDING), 1.0)
    curves = [hockey_stick_composed(epsilon, losses, mu=mu).upper for losses in directions(k, gamma, scale, relation)]
    return np.asarray(np.max(curves, axis=0))


def directions(k: float, gamma: float, scale: Scale, relation: Relation) -> list[Direction]:
    """The dominating pairs of the mechanism, one per direction, each as the losses that add up in it.

    Replacing a row is one removal and one addition side by side (docs/privacy.md): the pencil of the two covariances
    has at most two eigenvalues other than 1. With noise alone the pair is symmetric.
    """
    own, other = _odds(gamma, scale), 1 / gamma
    if relation == "zero-out":
        return [(ChiSquareLoss.removal(k, odds=own),), (ChiSquareLoss.addition(k, odds=own),)]
    pairs: list[Direction] = [(ChiSquareLoss.addition(k, odds=other), ChiSquareLoss.removal(k, odds=own))]
    if scale == "larger":
        pairs.append((ChiSquareLoss.addition(k, odds=own), ChiSquareLoss.removal(k, odds=other)))
    return pairs


def _odds(gamma: Any, scale: Scale) -> Any:
    """Leverage t as t / (1 - t): 1/γ for t = 1/(1 + γ), 1/(γ - 1) for t = 1/γ."""
    return 1 / gamma if scale == "none" else 1 / (gamma - 1)


def epsilon(
    delta: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    scale: Scale = "none",
    relation: Relation = "zero-out",
    mu: float = 0.0,
    analysis: Analysis = "exact",
) -> Any:
    r"""Smallest ε ≥ 0 for which the analysis shows (ε, δ)-differential privacy, rounded up.

    ``"exact"`` inverts :func:`delta`. The published analyses are of zero-out neighbours at leverage 1/γ, and so hold
    for both scales:

    - ``"renyi"``: Lemma 1 and Proposition 1 of arXiv:2505.24603v2 (γ > 1),
      :math:`\min_\alpha \varphi(\alpha) + \log(1 - 1/\alpha) - \log(\alpha\delta)/(\alpha - 1)`, not below 0;
    - ``"tcdp"``: Corollary 1, (k/2γ², 2γ/5)-tCDP, by Proposition 2; infinite for γ ≤ 5/2, where it says nothing;
    - ``"sheffet"``: Theorem 2 of Sheffet (2019),
      :math:`\tfrac2\gamma(\sqrt{2k\log(4/\delta)} + \log(4/\delta))`, or the exact value where that is larger: the
      formula fails for large ε.

    Parameters are those of :func:`delta`; δ = 0 gives ∞, δ = 1 and γ = ∞ give 0.

    Examples
    --------
    >>> [round(epsilon(1e-8, sketch_size=150, gamma=100, scale="larger", analysis=a), 3) for a in ANALYSES]
    [0.515, 0.557, 0.772, 1.938]
    """
    check.choice(ANALYSES, analysis=analysis)
    _check_model(scale, relation, mu, analysis)
    deltas = check.numbers(delta=delta)
    if np.any((deltas < 0) | (deltas > 1)):
        raise ValueError("delta must lie in [0, 1].")
    deltas, k, g = check.broadcastable(
        delta=deltas, sketch_size=_sketch_size(sketch_size), gamma=_gamma(gamma, scale, analysis)
    )
    published = {"renyi": _renyi_epsilon, "tcdp": _tcdp_epsilon, "sheffet": _sheffet_epsilon}

    def one(target: float, k: float, gamma: float) -> float:
        if target == 0 and (mu > 0 or not np.isinf(gamma)):
            return np.inf
        if target == 1 or (np.isinf(gamma) and mu == 0):
            return 0.0
        if analysis != "exact":
            return published[analysis](target, k, gamma)
        return _exact_epsilon(target, int(k), gamma, scale, relation, mu)

    return _shaped([one(*point) for point in zip(deltas.flat, k.flat, g.flat, strict=True)], deltas.shape)


def _exact_epsilon(target: float, k: int, gamma: float, scale: Scale, relation: Relation, mu: float) -> float:
    def excess(eps: float) -> float:
        spent = delta(eps, sketch_size=k, gamma=gamma, scale=scale, relation=relation, mu=mu)
        return log_excess(spent, target)

    return _or_infinity(excess)


def _or_infinity(excess: Callable[[float], float]) -> float:
    """Smallest safe ε, or ∞ if it is above :data:`EPSILON_MAX`."""
    try:
        return smallest_safe(excess, 0.0, 1.0, limit=EPSILON_MAX)
    except NothingSafeError:
        return np.inf


# ---------------------------------------------------------------------------------------------------------------
# Published analyses
def rdp(order: ArrayLike, *, sketch_size: ArrayLike, gamma: ArrayLike) -> Any:
    r"""Rényi DP of Gaussian mixing (Lemma 1 of arXiv:2505.24603v2).

    .. math:: \varphi(\alpha; k, \gamma) = \frac{k}{2(\alpha - 1)}
              \bigl[\alpha \log(1 - 1/\gamma) - \log(1 - \alpha/\gamma)\bigr]

    for 1 < α < γ; infinite for α ≥ γ.

    Examples
    --------
    >>> float(rdp(2.0, sketch_size=150, gamma=1e8)) > 0
    True
    """
    orders = check.numbers(order=order)
    if np.any(orders <= 1):
        raise ValueError("order must be a number > 1.")
    orders, k, g = check.broadcastable(
        order=orders, sketch_size=_sketch_size(sketch_size), gamma=_gamma(gamma, "larger", "renyi")
    )
    with np.errstate(invalid="ignore"):
        return _shaped(np.where(orders < g, _phi(orders - 1, k, g), np.inf), orders.shape)


def _phi(order_minus_1: ArrayLike, k: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """φ(α; k, γ) as a function of α - 1.

    Both logarithms of Lemma 1 are about -α/γ and cancel to second order: at γ = 1e8 the plain formula is negative. With
    u = 1/(γ - 1), log(1 - 1/γ) = -log(1 + u) and log(1 - α/γ) = log(1 - 1/γ) + log(1 - (α - 1)u), and
    φ = (k/2) [h(u) + h(-(α-1)u)/(α-1)] with h(x) = x - log(1 + x): two positive terms.
    """
    a, k, gamma = np.asarray(order_minus_1, float), np.asarray(k, float), np.asarray(gamma, float)
    u = 1 / (gamma - 1)
    return np.asarray(k / 2 * (log1p_deficit(u) + log1p_deficit(-np.minimum(a * u, 1.0)) / a))


def _minimise_over_orders(objective: Callable[[Any], Any], gamma: float) -> float:
    """Least value over 1 < α < γ; any α is valid, so what is found is safe."""
    logits = np.linspace(-45, 25, 281)

    def at(logit: Any) -> Any:
        return objective((gamma - 1) / (1 + np.exp(-logit)))

    values = at(logits)
    best = int(np.argmin(values))
    bracket = (logits[max(best - 1, 0)], logits[min(best + 1, logits.size - 1)])
    refined = optimize.minimize_scalar(at, bounds=bracket, method="bounded", options={"xatol": 1e-10})
    return float(min(refined.fun, values[best]))


def _renyi_epsilon(delta: float, k: float, gamma: float) -> float:
    """Lemma 1 with Proposition 1; the minimum may be negative for large γ and is then 0."""

    def objective(a: Any) -> Any:
        gain, loss = np.log1p(1 / a) + np.log1p(a) / a, _phi(a, k, gamma) - np.log(delta) / a
        return loss - gain + ROUNDING * (loss + gain)

    return max(_minimise_over_orders(objective, gamma), 0.0)


def _renyi_delta(epsilon: float, k: float, gamma: float) -> float:
    """Proposition 1 solved for δ: log δ = (α - 1)(φ - ε + log(1 - 1/α)) - log α."""
    if np.isinf(gamma) or np.isinf(epsilon):
        return float(0.0 - np.expm1(min(epsilon, 0.0)))

    def objective(a: Any) -> Any:
        gain, loss = (
            a * (max(epsilon, 0.0) + np.log1p(1 / a)) + np.log1p(a),
            a * (_phi(a, k, gamma) + max(-epsilon, 0.0)),
        )
        return loss - gain + ROUNDING * (loss + gain)

    return float(np.exp(min(_minimise_over_orders(objective, gamma), 0.0)))


def _tcdp_epsilon(delta: float, k: float, gamma: float) -> float:
    """Corollary 1 (ρ = k/2γ², w = 2γ/5, for γ > 5/2) with both cases of Proposition 2."""
    if gamma <= 5 / 2:
        return np.inf
    rho, w, log_delta = k / (2 * gamma**2), 2 * gamma / 5, np.log(1 / delta)
    if log_delta <= (w - 1) ** 2 * rho:
        return float(rho + 2 * np.sqrt(rho * log_delta))
    return float(rho * w + log_delta / (w - 1))


def _sheffet_epsilon(delta: float, k: float, gamma: float) -> float:
    """Theorem 2 of Sheffet (2019), as section 3 of arXiv:2505.24603v2 quotes it, but never below the exact value."""
    log_delta = np.log(4 / delta)
    formula = float(2 / gamma * (np.sqrt(2 * k * log_delta) + log_delta))
    return max(formula, _exact_epsilon(delta, int(k), gamma, "larger", "zero-out", 0.0))


def theorem1_epsilon(delta: float, *, sketch_size: int, gamma: float, eta: float) -> float:
    r"""ε of ModifiedGaussMix (Theorem 1 of arXiv:2505.24603v2), corrected where its Gaussian bound fails.

    .. math:: \tilde\varepsilon = \frac{\sqrt{2\log(3.75/\delta)}}{\eta} + \min_\alpha \Bigl\{\varphi(\alpha; k, \gamma)
              + \frac{\log(3/\delta) + (\alpha-1)\log(1 - 1/\alpha) - \log\alpha}{\alpha - 1}\Bigr\}

    A third of δ goes to the release of λ_min, a third to the sketch, a third to λ̃ > λ_min. The first term is proved for
    values below 1 and fails from about 9: where the exact Gaussian curve asks for more, that is charged.

    Examples
    --------
    >>> round(theorem1_epsilon(1e-6, sketch_size=250, gamma=144.95, eta=144.95 / 250**0.5), 3)
    1.0
    """
    delta = check.in_interval(0, 1, delta=delta)
    k, gamma = check.positive_integer(sketch_size=sketch_size), float(_gamma(gamma, "larger", "renyi"))
    eta = check.positive(eta=eta)
    if np.isinf(gamma) and np.isinf(eta):
        return 0.0
    eigenvalue = max(np.sqrt(2 * np.log(3.75 / delta)) / eta, gaussian_epsilon(delta / 3, mu=1 / eta))
    sketch = 0.0 if np.isinf(gamma) else _renyi_epsilon(delta / 3, k, gamma)
    return float(eigenvalue + sketch)


# ---------------------------------------------------------------------------------------------------------------
# The Gaussian mechanism
def gaussian_delta(epsilon: ArrayLike, *, mu: ArrayLike) -> Any:
    """Exact δ of Gaussian releases with √Σ(sensitivity/noise)² = mu, rounded up (Balle and Wang 2018)."""
    eps, mus = check.broadcastable(epsilon=check.numbers(epsilon=epsilon), mu=check.numbers(mu=mu))
    if np.any(mus < 0) or np.any(np.isinf(mus)):
        raise ValueError("mu must be a finite number ≥ 0.")
    exact = gaussian_hockey_stick(np.clip(eps, -EPSILON_MAX, EPSILON_MAX), mus)
    return _shaped(np.where(np.isposinf(eps), 0.0, np.minimum(exact * (1 + ROUNDING), 1.0)), eps.shape)


def gaussian_epsilon(delta: float, *, mu: float) -> float:
    """Smallest ε ≥ 0 of Gaussian releases at δ, rounded up.

    >>> round(gaussian_epsilon(1e-6, mu=0.3), 4)
    1.2917
    """
    delta, mu = check.in_interval(0, 1, closed=True, delta=delta), check.real(mu=mu)
    if mu == 0 or delta == 1:
        return 0.0
    if delta == 0:
        return np.inf
    return _or_infinity(lambda e: log_excess(gaussian_delta(e, mu=mu), delta))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ = sensitivity / noise that is (ε, δ)-differentially private, rounded down.

    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    epsilon = check.positive(finite=True, epsilon=epsilon)
    delta = check.in_interval(0, 1, delta=delta)
    try:
        noise = smallest_safe(
            lambda s: log_excess(gaussian_delta(epsilon, mu=1 / s), delta), 1e-9, 1.0, limit=GAMMA_MAX, log=True
        )
    except NothingSafeError:
        raise NothingSafeError(
            f"No noise up to {GAMMA_MAX:g} times the sensitivity meets epsilon={epsilon!r}, delta={delta!r}; "
            "ask for a larger epsilon or delta."
        ) from None
    return 1 / noise


# ---------------------------------------------------------------------------------------------------------------
# Searches that end on the private side
GAMMA_MAX = 1e12


class NothingSafeError(ValueError):
    """No value within the limits of a search is private."""


def smallest_safe(
    excess: Callable[[float], float],
    low: float,
    high: float,
    *,
    limit: float,
    log: bool = False,
    rtol: float = 1e-13,
) -> float:
    """Smallest argument at which a decreasing function is ≤ 0, rounded up: the value returned was itself checked.

    Raises
    ------
    NothingSafeError
        If there is none up to ``limit``.
    """
    if excess(low) <= 0:
        return low
    while excess(high) > 0:
        if high >= limit:
            raise NothingSafeError(f"no value up to {limit:g} is private")
        low, high = high, min(high * 4, limit)
    to, back = (np.log, np.exp) if log else (float, float)

    ends = {to(low): low, to(high): high}  # exp(log(x)) may be another number than x

    def inside(x: float) -> float:
        return ends.get(x, min(max(float(back(x)), low), high))

    root = inside(optimize.brentq(lambda x: excess(inside(x)), to(low), to(high), xtol=1e-18, rtol=rtol, maxiter=1000))
    step = max(rtol * abs(root), 1e-18)
    while excess(root) > 0:
        root, step = min(root + step, high), 2 * step
    return root


def log_excess(spent: float, allowed: float) -> float:
    """log(spent / allowed), finite, and positive whenever more is spent than allowed, be it by the last digit."""
    ratio = float(np.log(max(spent, 1e-320)) - np.log(max(allowed, 1e-320)))
    return max(ratio, 1e-300) if spent > allowed else min(ratio, 0.0)


# ---------------------------------------------------------------------------------------------------------------
# Composition with other libraries' mechanisms
def privacy_loss_distribution(
    *,
    sketch_size: int,
    gamma: float,
    scale: Scale = "none",
    relation: Relation = "zero-out",
    mu: float = 0.0,
    interval: float = 1e-4,
    tail: float = 1e-15,
) -> PrivacyLossDistribution:
    """Export the curve as a pessimistic ``dp_accounting`` privacy loss distribution.

    Compose it with DP-SGD or any other mechanism that is fixed in advance; both must have the same ``interval``.
    Needs the extra ``gaussmix[accounting]``.

    Parameters
    ----------
    sketch_size, gamma, scale, relation, mu
        As in :func:`delta`.
    interval : float
        Discretisation of the loss; the ε of the result is too large by an amount of second order in it.
    tail : float
        Probability of losses beyond the grid, which become infinite.
    """
    try:
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise ImportError(
            "privacy_loss_distribution needs dp-accounting: pip install 'gaussmix[accounting]'."
        ) from error
    k = check.positive_integer(sketch_size=sketch_size)
    g = check.positive(finite=True, gamma=gamma)
    _gamma(g, scale, "exact")
    _check_model(scale, relation, mu, "exact")
    interval, tail = check.positive(finite=True, interval=interval), check.in_interval(0, 0.5, tail=tail)

    def pmf(curve: Callable[[Any], Any], low: float, high: float) -> Any:
        first, last = int(np.floor(low / interval)), int(np.ceil(high / interval))
        if last - first > _GRID_MAX:
            raise ValueError(
                f"interval={interval!r} needs a grid of {last - first} losses, and {_GRID_MAX} is the most: "
                "choose a larger one."
            )
        deltas = np.minimum(curve(np.arange(first, last + 1) * interval) * (1 + ROUNDING), 1.0)
        deltas = np.maximum.accumulate(deltas[::-1])[::-1]  # the last digits may be out of order
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas).to_dense_pmf()

    pmfs = []
    for losses in directions(k, g, scale, relation):
        parts = [pmf(functools.partial(hockey_stick, loss=loss), *_loss_range(loss, tail)) for loss in losses]
        if mu > 0:
            reach = stats.norm.isf(tail) * mu
            parts.append(pmf(lambda e: gaussian_hockey_stick(e, mu), mu**2 / 2 - reach, mu**2 / 2 + reach))
        pmfs.append(functools.reduce(lambda a, b: a.compose(b), parts))
    return pld.PrivacyLossDistribution(*pmfs)


def _loss_range(loss: ChiSquareLoss, tail: float) -> tuple[float, float]:
    """An interval that a loss leaves on either side with probability ``tail``."""
    ends = stats.chi2.ppf(tail, loss.k), stats.chi2.isf(tail, loss.k)
    low, high = sorted(float(loss.mean + loss.slope * (s - loss.k)) for s in ends)
    return low, high


# ---------------------------------------------------------------------------------------------------------------
# Arguments
def _check_model(scale: Scale, relation: Relation, mu: float, analysis: str) -> None:
    check.choice(SCALES, scale=scale)
    check.choice(RELATIONS, relation=relation)
    if check.real(mu=mu) < 0 or np.isinf(mu):
        raise ValueError(f"mu must be a finite number ≥ 0, got {mu!r}.")
    if analysis != "exact" and (relation != "zero-out" or mu != 0):
        raise ValueError(
            f"analysis={analysis!r} is a bound for one release and zero-out neighbours; use analysis='exact'."
        )


def _sketch_size(sketch_size: ArrayLike) -> NDArray[np.float64]:
    k = check.numbers(whole=True, sketch_size=sketch_size)
    if np.any(k < 1):
        raise ValueError("sketch_size must be an integer ≥ 1.")
    return k


def _gamma(gamma: ArrayLike, scale: Scale, analysis: str) -> NDArray[np.float64]:
    g = check.numbers(gamma=gamma)
    if analysis in ("renyi", "tcdp", "sheffet") or scale == "larger":
        if np.any(g <= 1):
            raise ValueError(
                "gamma must be > 1 where its leverage is 1/gamma (scale='larger', or the published analyses); "
                "with scale='none' and analysis='exact' any gamma > 0 will do."
            )
    elif np.any(g <= 0):
        raise ValueError("gamma must be a number > 0.")
    return g


def _shaped(values: Any, shape: tuple[int, ...]) -> Any:
    """A float for scalars, an array otherwise."""
    array = np.asarray(values, float).reshape(shape)
    return float(array) if array.ndim == 0 else array
