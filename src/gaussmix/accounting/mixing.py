r"""δ(ε) and ε(δ) of the Gaussian mixing mechanism, by the exact curve and by published bounds.

>>> round(epsilon(1e-8, sketch_size=150, gamma=100, bound_holds_for="larger"), 4)
0.5146

The mechanism releases k = ``sketch_size`` rows drawn from N(0, G + σ²I), where G is the Gram matrix of rows of norm at
most C. ``gamma`` is (σ² + λ)/C², where λ is a lower bound on the smallest eigenvalue of G (the scale bound). The
leverage of a row in the larger table is at most

- 1/(1 + γ) with ``bound_holds_for="both"``: λ = 0, or a public λ that bounds both neighbours;
- 1/γ with ``bound_holds_for="larger"``: λ bounds the larger neighbour only (Lemma 1 of arXiv:2505.24603v2).

For non-adaptive composition of releases of the same rows, sketch sizes add up and the μ² of Gaussian releases add up:
pass the sum of the sketch sizes and ``mu=math.hypot(mu1, mu2, ...)``.

Every δ and ε is rounded up by a bound on its numerical error. Notation and lemma numbers follow arXiv:2505.24603v2; see
docs/notation.md. The exact curve is proved in docs/privacy.md.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting.arguments import (
    ANALYSES,
    Analysis,
    BoundHoldsFor,
    Relation,
    check_model,
    gammas,
    shaped,
    sketch_sizes,
)
from gaussmix.accounting.exact import exact_delta, exact_epsilon
from gaussmix.accounting.published import renyi_delta, renyi_epsilon, sheffet_epsilon, tcdp_epsilon
from gaussmix.errors import ArgumentError

__all__ = ["delta", "epsilon"]


@overload
def delta(
    epsilon: float,
    *,
    sketch_size: int,
    gamma: float,
    bound_holds_for: BoundHoldsFor = ...,
    relation: Relation = ...,
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
    relation: Relation = ...,
    mu: float = ...,
    analysis: Literal["exact", "renyi"] = ...,
) -> float | Floats: ...


def delta(
    epsilon: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = "both",
    relation: Relation = "zero-out",
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
    relation : {"zero-out", "replace-one"}
        Neighbours differ by adding or removing a row, or by replacing one.
    mu : float
        √(Σμ²) of Gaussian releases of the same rows, μ = sensitivity / noise under ``relation``.
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
    >>> f"{delta(1.0, sketch_size=250, gamma=52.84, relation='replace-one'):.3g}"
    '5.34e-05'
    """
    check.choice(("exact", "renyi"), analysis=analysis)
    check_model(bound_holds_for, relation, mu, analysis)
    eps, k, g = check.broadcastable(
        epsilon=check.numbers(epsilon=epsilon),
        sketch_size=sketch_sizes(sketch_size),
        gamma=gammas(gamma, bound_holds_for, analysis),
    )
    if analysis == "renyi":
        return shaped([renyi_delta(*point) for point in zip(eps.flat, k.flat, g.flat, strict=True)], eps.shape)
    return shaped(exact_delta(eps, k, g, bound_holds_for, relation, mu), eps.shape)


@overload
def epsilon(
    delta: float,
    *,
    sketch_size: int,
    gamma: float,
    bound_holds_for: BoundHoldsFor = ...,
    relation: Relation = ...,
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
    relation: Relation = ...,
    mu: float = ...,
    analysis: Analysis = ...,
) -> float | Floats: ...


def epsilon(
    delta: ArrayLike,
    *,
    sketch_size: ArrayLike,
    gamma: ArrayLike,
    bound_holds_for: BoundHoldsFor = "both",
    relation: Relation = "zero-out",
    mu: float = 0.0,
    analysis: Analysis = "exact",
) -> float | Floats:
    r"""Return the smallest ε ≥ 0 for which the analysis proves (ε, δ)-differential privacy, rounded up.

    ``"exact"`` inverts :func:`delta`. The published analyses are for zero-out neighbours at leverage 1/γ, so they hold
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
    check_model(bound_holds_for, relation, mu, analysis)
    deltas = check.numbers(delta=delta)
    if np.any((deltas < 0) | (deltas > 1)):
        raise ArgumentError("delta must lie in [0, 1].")
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
        return exact_epsilon(target, k, gamma, bound_holds_for, relation, mu)

    return shaped([one(*point) for point in zip(deltas.flat, k.flat, g.flat, strict=True)], deltas.shape)
