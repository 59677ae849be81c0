"""δ(ε) and ε(δ) of the Gaussian mixing mechanism, by the exact curve and by published bounds.

>>> round(epsilon(1e-8, sketch_size=150, gamma=100, bound_holds_for="larger"), 4)
0.5146

The mechanism releases k = ``sketch_size`` rows drawn from N(0, G + σ²I), where G is the Gram matrix of rows of norm at
most C. ``gamma`` is (σ² + λ)/C², where λ is a lower bound on the smallest eigenvalue of G (the scale bound). The
leverage of a row in the larger table is at most

- 1/(1 + γ) with ``bound_holds_for="both"``: λ = 0, or a public λ that bounds both neighbours;
- 1/γ with ``bound_holds_for="larger"``: λ bounds the larger neighbour only (Lemma 1 of arXiv:2505.24603v2).

For non-adaptive composition of releases of the same rows, sketch sizes add up and the μ² of Gaussian releases add up:
pass the sum of the sketch sizes and ``mu=math.hypot(mu1, mu2, ...)``.

Every δ and ε is rounded up by a bound on its numerical error. The exact curve, for both neighbouring relations, is
proved in docs/privacy.md. The published analyses (Rényi DP, tCDP, Sheffet 2019 and Theorem 1) are corrected where they
fail, and are for add-remove neighbours at leverage 1/γ. Notation and lemma numbers follow arXiv:2505.24603v2
(docs/glossary.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.divergence import (
    ChiSquareLoss,
    gaussian_hockey_stick,
    hockey_stick,
    hockey_stick_composed,
    log1p_deficit,
)
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.accounting.numerics import log_excess, smallest_or_infinity
from gaussmix.accounting.parameters import (
    ANALYSES,
    BOUND_HOLDS_FOR,
    EPSILON_MAX,
    NEIGHBOURS,
    ROUNDING,
    Analysis,
    BoundHoldsFor,
    Neighbours,
    shaped,
)
from gaussmix.errors import ArgumentError

__all__ = [
    "Direction",
    "delta",
    "directions",
    "epsilon",
    "exact_delta",
    "exact_epsilon",
    "rdp",
    "renyi_delta",
    "renyi_epsilon",
    "sheffet_epsilon",
    "tcdp_epsilon",
    "theorem1_epsilon",
]


Direction = tuple[ChiSquareLoss, ...]

_ODDS_MAX = 1e12  # for a leverage this close to 1, δ is set to 1


def check_model(bound_holds_for: BoundHoldsFor, neighbours: Neighbours, mu: float, analysis: str) -> None:
    check.choice(BOUND_HOLDS_FOR, bound_holds_for=bound_holds_for)
    check.choice(NEIGHBOURS, neighbours=neighbours)
    if check.real(mu=mu) < 0 or np.isinf(mu):
        raise ArgumentError(f"mu must be a finite number ≥ 0, got {mu!r}.")
    if analysis != "exact" and (neighbours != "add-remove" or mu != 0):
        raise ArgumentError(
            f"analysis={analysis!r} requires neighbours='add-remove' and mu=0, got {neighbours!r} and mu={mu!r}. "
            "Use analysis='exact'."
        )


def sketch_sizes(sketch_size: ArrayLike) -> Floats:
    k = check.numbers(whole=True, sketch_size=sketch_size)
    if np.any(k < 1):
        raise ArgumentError(f"sketch_size must be an integer ≥ 1, got {int(np.min(k))}.")
    if np.any(k > check.SKETCH_SIZE_MAX):
        raise ArgumentError(
            f"sketch_size must be at most 2**40, got {int(np.max(k))}. Floating-point random numbers are too coarse "
            "for the guarantee to hold with a larger sketch."
        )
    return k


def gammas(gamma: ArrayLike, bound_holds_for: BoundHoldsFor, analysis: str) -> Floats:
    g = check.numbers(gamma=gamma)
    if analysis in ("renyi", "tcdp", "sheffet") or bound_holds_for == "larger":
        if np.any(g <= 1):
            raise ArgumentError(
                f"gamma must be > 1, got {float(np.min(g))!r}: with bound_holds_for='larger' or an analysis other than "
                "'exact', the leverage is 1/gamma and must be below 1."
            )
    elif np.any(g <= 0):
        raise ArgumentError(f"gamma must be a number > 0, got {float(np.min(g))!r}.")
    return g


def exact_delta(
    epsilon: Floats, k: Floats, gamma: Floats, bound_holds_for: BoundHoldsFor, neighbours: Neighbours, mu: float
) -> Floats:
    """Return δ at every point, rounded up. The arguments must be checked and of the same shape."""
    finite = np.clip(epsilon, -EPSILON_MAX, EPSILON_MAX)
    if neighbours == "add-remove" and mu == 0:
        values = _alone(finite, k, gamma, bound_holds_for)
    else:
        values = np.empty(epsilon.shape)
        for pair in set(zip(k.flat, gamma.flat, strict=True)):
            here = (k == pair[0]) & (gamma == pair[1])
            values[here] = _composed(finite[here], *pair, bound_holds_for, neighbours, mu)
    return np.where(np.isposinf(epsilon), 0.0, values)


def _alone(epsilon: Floats, k: Floats, gamma: Floats, bound_holds_for: BoundHoldsFor) -> Floats:
    """Return δ of one sketch for add-remove neighbours."""
    with np.errstate(divide="ignore"):
        odds = _odds(np.where(np.isinf(gamma), 1.0, gamma), bound_holds_for)
    computed = np.minimum(odds, _ODDS_MAX)
    remove, add = ChiSquareLoss.removal(k, odds=computed), ChiSquareLoss.addition(k, odds=computed)
    both = ChiSquareLoss(k, np.stack([remove.slope, add.slope]), np.stack([remove.mean, add.mean]))
    larger = np.where(odds > _ODDS_MAX, 1.0, np.max(hockey_stick(epsilon, both), axis=0))
    nothing = 0.0 - np.expm1(np.minimum(epsilon, 0))
    return np.where(np.isinf(gamma), nothing, np.minimum(larger * (1 + ROUNDING), 1.0))


def _composed(
    epsilon: Floats, k: float, gamma: float, bound_holds_for: BoundHoldsFor, neighbours: Neighbours, mu: float
) -> Floats:
    if np.isinf(gamma):
        return np.minimum(gaussian_hockey_stick(epsilon, mu) * (1 + ROUNDING), 1.0)
    curves = [
        hockey_stick_composed(epsilon, losses, mu=mu).upper
        for losses in directions(k, gamma, bound_holds_for, neighbours)
    ]
    return np.asarray(np.max(curves, axis=0))


def directions(k: float, gamma: float, bound_holds_for: BoundHoldsFor, neighbours: Neighbours) -> list[Direction]:
    """Return the dominating pairs of the mechanism, one per direction, each as a tuple of losses that add up.

    Replacing a row is the composition of a removal and an addition (docs/privacy.md): the pencil of the two covariances
    has at most two eigenvalues other than 1. Without a scale bound the pair is symmetric.
    """
    own, other = _odds(gamma, bound_holds_for), 1 / gamma
    if neighbours == "add-remove":
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
    delta: float, k: float, gamma: float, bound_holds_for: BoundHoldsFor, neighbours: Neighbours, mu: float
) -> float:
    """Return the smallest ε ≥ 0 at which the exact δ is at most ``delta``, rounded up."""
    sizes, gammas = np.asarray(float(k)), np.asarray(float(gamma))

    def excess(epsilon: float) -> float:
        spent = exact_delta(np.asarray(float(epsilon)), sizes, gammas, bound_holds_for, neighbours, mu)
        return log_excess(float(spent), delta)

    return smallest_or_infinity(excess)


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
        raise ArgumentError(f"order must be a number > 1, got {float(np.min(orders))!r}.")
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
    return max(formula, exact_epsilon(delta, k, gamma, "larger", "add-remove", 0.0))


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


@overload
def delta(
    epsilon: float,
    *,
    sketch_size: int,
    gamma: float,
    bound_holds_for: BoundHoldsFor = ...,
    neighbours: Neighbours = ...,
    mu: float = ...,
    analysis: Literal["exact", "renyi"] = ...,
) -> float: ...


@overload
def delta(
    epsilon: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = ...,
    neighbours: Neighbours = ...,
    mu: float = ...,
    analysis: Literal["exact", "renyi"] = ...,
) -> float | Floats: ...


def delta(
    epsilon: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = "both",
    neighbours: Neighbours = "add-remove",
    mu: float = 0.0,
    analysis: Literal["exact", "renyi"] = "exact",
) -> float | Floats:
    r"""Return the smallest δ for which the mechanism is (ε, δ)-differentially private, rounded up.

    With t the leverage, F̄ the upper tail of a chi-square with k degrees of freedom and F = 1 - F̄, it is the larger
    of

    .. math::
        \text{remove: } & \bar F(c) - e^\varepsilon \bar F\bigl(\tfrac{c}{1-t}\bigr), \quad
            c = \max\bigl(0, \tfrac{2(1-t)}{t}(\varepsilon - \tfrac k2 \log(1-t))\bigr) \\
        \text{add: } & F\bigl(\tfrac{c'}{1-t}\bigr) - e^\varepsilon F(c'), \quad
            c' = \max\bigl(0, \tfrac{2(1-t)}{t}(-\varepsilon - \tfrac k2 \log(1-t))\bigr)

    The chi-square form is known (arXiv:2309.01243). The differences above cancel for large γ, so they are computed as
    integrals of positive functions.

    Parameters
    ----------
    epsilon : float or array
        Any real number; composition needs negative ε.
    sketch_size, gamma : int, float or arrays
        k ≥ 1 and γ > 0 (γ > 1 with ``bound_holds_for="larger"``); γ = ∞ gives (1 - e^ε)₊.
    bound_holds_for : {"both", "larger"}
        The neighbour for which the scale bound holds; ``"both"`` if there is no scale bound.
    neighbours : {"add-remove", "replace-one"}
        Neighbours differ by adding or removing a row, or by replacing one.
    mu : float
        √(Σμ²) of Gaussian releases of the same rows, μ = sensitivity / noise under ``neighbours``.
    analysis : {"exact", "renyi"}
        ``"renyi"``: Lemma 1 with Proposition 1 solved for δ, at leverage 1/γ for either bound.

    Returns
    -------
    float or array
        With the common shape of the arguments. The relative error is at most 2e-10 when ``mu`` is 0. A value takes
        milliseconds, or seconds with both ``mu`` and replace-one.

    Examples
    --------
    >>> f"{delta(1.0, sketch_size=250, gamma=52.84):.3g}"
    '9.96e-07'
    >>> f"{delta(1.0, sketch_size=250, gamma=52.84, neighbours='replace-one'):.3g}"
    '5.34e-05'
    """
    check.choice(("exact", "renyi"), analysis=analysis)
    check_model(bound_holds_for, neighbours, mu, analysis)
    eps, k, g = check.broadcastable(
        epsilon=check.numbers(epsilon=epsilon),
        sketch_size=sketch_sizes(sketch_size),
        gamma=gammas(gamma, bound_holds_for, analysis),
    )
    if analysis == "renyi":
        return shaped([renyi_delta(*point) for point in zip(eps.flat, k.flat, g.flat, strict=True)], eps.shape)
    return shaped(exact_delta(eps, k, g, bound_holds_for, neighbours, mu), eps.shape)


@overload
def epsilon(
    delta: float,
    *,
    sketch_size: int,
    gamma: float,
    bound_holds_for: BoundHoldsFor = ...,
    neighbours: Neighbours = ...,
    mu: float = ...,
    analysis: Analysis = ...,
) -> float: ...


@overload
def epsilon(
    delta: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = ...,
    neighbours: Neighbours = ...,
    mu: float = ...,
    analysis: Analysis = ...,
) -> float | Floats: ...


def epsilon(
    delta: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = "both",
    neighbours: Neighbours = "add-remove",
    mu: float = 0.0,
    analysis: Analysis = "exact",
) -> float | Floats:
    r"""Return the smallest ε ≥ 0 for which the analysis proves (ε, δ)-differential privacy, rounded up.

    ``"exact"`` inverts :func:`delta`. The published analyses are for add-remove at leverage 1/γ, so they hold
    for either value of ``bound_holds_for``:

    - ``"renyi"``: Lemma 1 and Proposition 1 of arXiv:2505.24603v2 (γ > 1),
      :math:`\min_\alpha \varphi(\alpha) + \log(1 - 1/\alpha) - \log(\alpha\delta)/(\alpha - 1)`, not below 0;
    - ``"tcdp"``: Corollary 1, (k/2γ², 2γ/5)-tCDP, by Proposition 2; infinite for γ ≤ 5/2, where it does not apply;
    - ``"sheffet"``: Theorem 2 of Sheffet (2019),
      :math:`\tfrac2\gamma(\sqrt{2k\log(4/\delta)} + \log(4/\delta))`, or the exact value where that is larger: the
      formula fails for large ε.

    Parameters are as in :func:`delta`; δ = 0 gives ∞, δ = 1 and γ = ∞ give 0.

    Examples
    --------
    >>> [round(epsilon(1e-8, sketch_size=150, gamma=100, bound_holds_for="larger", analysis=a), 3) for a in ANALYSES]
    [0.515, 0.557, 0.772, 1.938]
    """
    check.choice(ANALYSES, analysis=analysis)
    check_model(bound_holds_for, neighbours, mu, analysis)
    deltas = check.numbers(delta=delta)
    wrong = deltas[(deltas < 0) | (deltas > 1)]
    if wrong.size:
        raise ArgumentError(f"delta must lie in [0, 1], got {float(wrong[0])!r}.")
    deltas, k, g = check.broadcastable(
        delta=deltas, sketch_size=sketch_sizes(sketch_size), gamma=gammas(gamma, bound_holds_for, analysis)
    )
    published = {"renyi": renyi_epsilon, "tcdp": tcdp_epsilon, "sheffet": sheffet_epsilon}

    def one(target: float, k: float, gamma: float) -> float:
        if target == 0 and (mu > 0 or not np.isinf(gamma)):
            return np.inf
        if target == 1 or (np.isinf(gamma) and mu == 0):
            return 0.0
        if analysis != "exact":
            return published[analysis](target, k, gamma)
        return exact_epsilon(target, k, gamma, bound_holds_for, neighbours, mu)

    return shaped([one(*point) for point in zip(deltas.flat, k.flat, g.flat, strict=True)], deltas.shape)
