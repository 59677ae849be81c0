"""Calibration of Gaussian mixing with a finite sketch: the smallest noise that meets a privacy budget.

A :class:`Calibration` is a function of (ε, δ), the sketch size and the analysis. Every search returns a value that was
itself checked, so the account of the result never exceeds the budget.

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
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix.accounting import mixing
from gaussmix.accounting.divergence import ChiSquareLoss, composite_rule, hockey_stick
from gaussmix.accounting.numerics import log_excess, smallest_safe
from gaussmix.accounting.parameters import GAMMA_MAX, NEIGHBOURS, ROUNDING, Neighbours
from gaussmix.accounting.private_scale import private_scale_delta, private_scale_terms
from gaussmix.errors import ArgumentError, BudgetUnmetError, NotPrivateError

__all__ = [
    "LEAST_COMPOSED_DELTA",
    "Calibration",
    "CalibrationAnalysis",
    "ScaleBound",
    "calibrate",
    "eigenvalue_error_bound",
    "least_gamma",
    "scale_delta",
]

LEAST_COMPOSED_DELTA = 1e-140  # double integrals underflow below it
_MARGIN = 1e-10  # share of δ left unused, so that inverting the account, rounded up, still gives at most ε
_SLACK = 1 + ROUNDING / 2  # tolerates rounding differences between processors; below the rounding of every account
_LEAST_EPSILON = 1e-12  # ε = 0 would hold for large γ, but is not a valid budget
_LEAST_DELTA = {"add-remove": 1e-300, "replace-one": LEAST_COMPOSED_DELTA}

ScaleBound = Literal["none", "private"]
CalibrationAnalysis = Literal["exact", "renyi", "paper"]
_AVAILABLE = (("none", "exact"), ("none", "renyi"), ("private", "exact"), ("private", "paper"))


@functools.lru_cache(maxsize=4096)  # searches and the verification of their results need the same points
def _delta(
    epsilon: float,
    k: int,
    gamma: float,
    neighbours: Neighbours = "add-remove",
    analysis: Literal["exact", "renyi"] = "exact",
) -> float:
    """Return :func:`gaussmix.accounting.delta` at one point."""
    return mixing.delta(epsilon, sketch_size=k, gamma=gamma, neighbours=neighbours, analysis=analysis)


@functools.lru_cache(maxsize=4096)
def scale_delta(epsilon: float, k: int, gamma: float, eta: float, tau: float, sensitivity: float) -> float:
    """Return :func:`gaussmix.accounting.private_scale_delta` at one point, cached."""
    return private_scale_delta(epsilon, sketch_size=k, gamma=gamma, eta=eta, tau=tau, sensitivity=sensitivity)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Parameters of Gaussian mixing that meet a budget.

    Raises
    ------
    NotPrivateError
        If the parameters do not meet the budget by the exact account.

    Attributes
    ----------
    epsilon, delta : float
        Requested budget.
    sketch_size : int
        Number of rows k of the sketch.
    gamma : float
        Target for (σ² + λ)/C²; without a scale bound σ² = γC².
    scale : {"none", "private"}
        Whether a private lower bound on the smallest eigenvalue reduces the noise.
    analysis : {"exact", "renyi", "paper"}
        Analysis used for the calibration.
    neighbours : {"add-remove", "replace-one"}
        Neighbouring relation.
    eta, tau : float or None
        Noise scale and safety margin of the private λ_min/C²; None with ``scale="none"``.
    eigenvalue_error : float
        Public bound on the numerical error of λ_min in units of C², included in its sensitivity.
    epsilon_spent, delta_spent : float
        ε at the budget's δ, and δ at the budget's ε, by the same analysis, rounded up.
    delta_split : tuple of (str, float)
        Parts of δ by name.
    """

    epsilon: float
    delta: float
    sketch_size: int
    gamma: float
    scale: ScaleBound
    analysis: CalibrationAnalysis
    neighbours: Neighbours
    eta: float | None = None
    tau: float | None = None
    eigenvalue_error: float = 0.0
    epsilon_spent: float
    delta_spent: float
    delta_split: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        self.verify()

    def verify(self) -> None:
        """Recompute the claims (ε, δ spent) and (ε spent, δ), and check that neither exceeds the budget.

        Raises
        ------
        NotPrivateError
            If a claim does not hold.
        """
        self._check_arguments()
        parts = math.fsum(part for _, part in self.delta_split)
        if (
            self.epsilon_spent > self.epsilon
            or self.delta_spent > self.delta
            or not math.isclose(parts, self.delta_spent, rel_tol=1e-9)
            or not self._gives(self.epsilon, self.delta_spent)
            or not self._gives(self.epsilon_spent, self.delta)
        ):
            raise NotPrivateError(
                f"gamma={self.gamma!r} with sketch_size={self.sketch_size} does not give the claimed "
                f"epsilon={self.epsilon!r} and delta={self.delta!r}: the noise is too small. To compute the epsilon of "
                "a chosen gamma, use calibrate(delta=..., sketch_size=..., gamma=...)."
            )

    def _gives(self, epsilon: float, delta: float) -> bool:
        """Return whether the parameters give (ε, δ).

        They are checked by the exact account, whichever analysis they come from: other analyses give larger ε. Theorem
        1 is checked by itself, since it covers parameters beyond the range of the quadratures of the joint account.
        """
        k, gamma, neighbours = self.sketch_size, self.gamma, self.neighbours
        if self.eta is None or self.tau is None:
            if delta < LEAST_COMPOSED_DELTA and neighbours != "add-remove":
                return False
            return _delta(epsilon, k, gamma, neighbours) <= delta * _SLACK
        sensitivity = 1 + 2 * self.eigenvalue_error
        if neighbours != "add-remove":
            return False
        if self.analysis == "paper":
            if gamma <= 5 / 2 or self.tau < math.sqrt(2 * math.log(3 / delta)) * (1 - 1e-15):
                return False
            spent = mixing.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=self.eta / sensitivity)
            return spent <= epsilon * _SLACK
        if gamma <= 1 or delta < LEAST_COMPOSED_DELTA:
            return False
        return scale_delta(epsilon, k, gamma, self.eta, self.tau, sensitivity) <= delta * _SLACK

    def _check_arguments(self) -> None:
        check.positive(finite=True, epsilon=self.epsilon)
        check.in_interval(0, 1, delta=self.delta)
        check.sketch_rows(sketch_size=self.sketch_size)
        check.positive(finite=True, gamma=self.gamma)
        check.choice(("none", "private"), scale=self.scale)
        check.choice(("exact", "renyi", "paper"), analysis=self.analysis)
        check.choice(NEIGHBOURS, neighbours=self.neighbours)
        check.nonnegative(epsilon_spent=self.epsilon_spent)
        check.nonnegative(delta_spent=self.delta_spent)
        check.nonnegative(eigenvalue_error=self.eigenvalue_error)
        for _, part in self.delta_split:
            check.nonnegative(delta_split=part)
        private = self.scale == "private"
        if (self.eta is None) == private or (self.tau is None) == private:
            raise ArgumentError(
                "eta and tau are required with scale='private' and must be None with scale='none', "
                f"got eta={self.eta!r}, tau={self.tau!r} and scale={self.scale!r}."
            )
        if private:
            check.positive(finite=True, eta=self.eta)
            check.nonnegative(tau=self.tau)
        if (self.scale, self.analysis) not in _AVAILABLE:
            raise ArgumentError(f"analysis={self.analysis!r} is not available with scale={self.scale!r}.")


def eigenvalue_error_bound(columns: int, *, n_max: int = 2**40) -> float:
    """Return a bound e on the numerical error of λ_min of a Gram matrix of up to ``n_max`` rows, in units of C².

    It is 10 · columns · u · n_max with u = 2⁻⁵³: the norm of the matrix is at most n_max C², and the error of a
    backward stable solver is a small multiple of u times the norm.
    """
    return 10 * check.positive_integer(columns=columns) * 2.0**-53 * check.positive_integer(n_max=n_max)


def calibrate(
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    sketch_size: int,
    gamma: float | None = None,
    scale: ScaleBound = "none",
    analysis: CalibrationAnalysis = "exact",
    neighbours: Neighbours = "add-remove",
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
    neighbours : {"add-remove", "replace-one"}
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
            raise ArgumentError("If gamma is given, analysis must be 'exact' or 'renyi', got 'paper'.")
        return _cost(k, gamma, epsilon, delta, analysis, neighbours)
    if epsilon is None or delta is None:
        raise ArgumentError("Pass either epsilon and delta, or gamma and one of epsilon and delta.")
    epsilon = check.positive(finite=True, epsilon=epsilon)
    delta = check.in_interval(0, 1, delta=delta)
    check.choice(("none", "private"), scale=scale)
    check.choice(("exact", "renyi", "paper"), analysis=analysis)
    check.choice(NEIGHBOURS, neighbours=neighbours)
    error = check.in_interval(0, np.finfo(float).max, closed=True, eigenvalue_error=eigenvalue_error)
    if neighbours != "add-remove" and (scale, analysis) != ("none", "exact"):
        raise ArgumentError(
            f"neighbours='replace-one' requires scale='none' and analysis='exact', got {scale!r} and {analysis!r}."
        )
    if (scale, analysis) not in _AVAILABLE:
        raise ArgumentError(
            f"analysis={analysis!r} is not available with scale={scale!r}. 'renyi' requires scale='none', "
            "'paper' requires scale='private', 'exact' supports both."
        )
    if delta < LEAST_COMPOSED_DELTA and ((scale, analysis) == ("private", "exact") or neighbours != "add-remove"):
        raise ArgumentError(
            f"delta must be at least {LEAST_COMPOSED_DELTA:g} with scale='private' or neighbours='replace-one', got "
            f"{delta!r}. The numerical integrals underflow for a smaller delta."
        )
    try:
        if scale == "none":
            return _noise_alone(epsilon, delta, k, "renyi" if analysis == "renyi" else "exact", neighbours)
        return (_private_scale if analysis == "exact" else _theorem1)(epsilon, delta, k, error)
    except BudgetUnmetError:
        raise BudgetUnmetError(_unmet_budget(epsilon, delta, k, scale, analysis, neighbours)) from None


def _unmet_budget(
    epsilon: float, delta: float, k: int, scale: ScaleBound, analysis: CalibrationAnalysis, neighbours: Neighbours
) -> str:
    """Return the message for a budget that cannot be met, with the smallest ε or the largest sketch that could."""

    def reached(rows: int) -> float:
        """Return ε at the largest γ; with a private scale bound by Theorem 1, which the joint account improves on."""
        if scale == "private" or analysis == "paper":
            return mixing.theorem1_epsilon(delta, sketch_size=rows, gamma=GAMMA_MAX, eta=GAMMA_MAX / np.sqrt(rows))
        return mixing.epsilon(delta, sketch_size=rows, gamma=GAMMA_MAX, neighbours=neighbours, analysis=analysis)

    message = (
        f"epsilon={epsilon!r} and delta={delta!r} cannot be met with sketch_size={k} and gamma up to {GAMMA_MAX:g}. "
        f"With this delta and sketch_size the smallest epsilon is {reached(k):.3g}; "
    )
    if reached(1) > epsilon:
        return message + "no sketch_size meets this epsilon and delta."
    low, high = 1, k
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) <= epsilon else (low, middle)
    return message + f"with this epsilon and delta the largest sketch_size is {low}."


_smallest_gamma = functools.partial(smallest_safe, limit=GAMMA_MAX, log=True)


# ----------------------------------------------------------------------------------------------------------------------
# Noise alone
@functools.lru_cache(maxsize=1024)
def _noise_alone(
    epsilon: float, delta: float, k: int, analysis: Literal["exact", "renyi"], neighbours: Neighbours
) -> Calibration:
    def excess(gamma: float) -> float:
        if analysis == "renyi":  # check both ε(δ) and δ(ε), whose rounding differs
            over = mixing.epsilon(delta, sketch_size=k, gamma=gamma, analysis="renyi") - epsilon
            return over if over > 0 else max(over, log_excess(_delta(epsilon, k, gamma, analysis="renyi"), delta))
        return log_excess(_delta(epsilon, k, gamma, neighbours), delta * (1 - _MARGIN))

    floor = 1e-6 if analysis == "exact" else 1 + 1e-9
    about = min(float(np.sqrt(2 * k * np.log(1 / delta))) / epsilon, GAMMA_MAX / 2)  # to leading order
    low = about / 8 if about / 8 > floor and excess(about / 8) > 0 else floor
    gamma = _smallest_gamma(excess, low, max(2.0, 1.5 * about))
    epsilon_spent = _epsilon_spent(epsilon, delta, k, gamma, analysis, neighbours)
    return _of_noise(epsilon, delta, k, gamma, analysis, neighbours, epsilon_spent)


def _epsilon_spent(
    epsilon: float, delta: float, k: int, gamma: float, analysis: Literal["exact", "renyi"], neighbours: Neighbours
) -> float:
    """Return ε at the budget's δ, searching near ε since the calibration just meets the budget."""

    def excess(at: float) -> float:
        return log_excess(_delta(at, k, gamma, neighbours), delta)

    near = epsilon * (1 - 1e-6)
    if analysis == "renyi" or excess(near) <= 0:  # γ is at its lower limit: the budget is not exhausted
        return mixing.epsilon(delta, sketch_size=k, gamma=gamma, neighbours=neighbours, analysis=analysis)
    return smallest_safe(excess, near, epsilon, limit=epsilon)


def _cost(
    k: int,
    gamma: float,
    epsilon: float | None,
    delta: float | None,
    analysis: Literal["exact", "renyi"],
    neighbours: Neighbours,
) -> Calibration:
    """Return the calibration of a given γ: ε at a given δ, or δ at a given ε."""
    check.choice(NEIGHBOURS, neighbours=neighbours)
    gamma = check.positive(finite=True, gamma=gamma)
    if (epsilon is None) == (delta is None):
        raise ArgumentError("If gamma is given, exactly one of epsilon and delta must be given; the other is computed.")
    if epsilon is None:
        delta = check.in_interval(0, 1, delta=delta)
        found = mixing.epsilon(delta, sketch_size=k, gamma=gamma, neighbours=neighbours, analysis=analysis)
        epsilon = max(found, _LEAST_EPSILON)
    else:
        epsilon = check.positive(finite=True, epsilon=epsilon)
        delta = max(_delta(epsilon, k, gamma, neighbours, analysis), _LEAST_DELTA[neighbours])
    if math.isinf(epsilon) or delta == 1:
        raise ArgumentError(
            f"gamma={gamma!r} with sketch_size={k} gives no guarantee: epsilon is infinite or delta is 1. Choose a "
            "larger gamma."
        )
    return _of_noise(epsilon, delta, k, gamma, analysis, neighbours, epsilon)


def _of_noise(
    epsilon: float,
    delta: float,
    k: int,
    gamma: float,
    analysis: Literal["exact", "renyi"],
    neighbours: Neighbours,
    epsilon_spent: float,
) -> Calibration:
    """Return the calibration of noise alone, without a scale bound."""
    spent = min(_delta(epsilon, k, gamma, neighbours, analysis), delta)
    return Calibration(
        epsilon=epsilon,
        delta=delta,
        sketch_size=k,
        gamma=gamma,
        scale="none",
        analysis=analysis,
        neighbours=neighbours,
        epsilon_spent=epsilon_spent,
        delta_spent=spent,
        delta_split=(("sketch", spent),),
    )


def least_gamma(epsilon: float, delta: float, *, sketch_size: int) -> float:
    """Return the smallest γ whose exact δ at leverage 1/γ (``bound_holds_for="larger"``) is at most ``delta``."""

    def excess(gamma: float) -> float:
        spent = mixing.delta(epsilon, sketch_size=sketch_size, gamma=gamma, bound_holds_for="larger")
        return log_excess(spent, delta)

    return _smallest_gamma(excess, 1 + 1e-9, 3.0)


# ----------------------------------------------------------------------------------------------------------------------
# A private scale bound
@functools.lru_cache(maxsize=1024)
def _theorem1(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Return line 1 of Algorithm 2: the smallest γ > 5/2 with ε̃ ≤ ε for η = γ/√k, and τ = √(2 log(3/δ)).

    The noise on λ_min is multiplied by 1 + 2e, so that its ratio to the sensitivity of the computed λ_min is that of
    Theorem 1.
    """

    def spent(gamma: float) -> float:
        return mixing.theorem1_epsilon(delta, sketch_size=k, gamma=gamma, eta=gamma / np.sqrt(k))

    gamma = _smallest_gamma(lambda g: spent(g) - epsilon, math.nextafter(2.5, 3), 5.0)
    return Calibration(
        epsilon=epsilon,
        delta=delta,
        sketch_size=k,
        gamma=gamma,
        scale="private",
        analysis="paper",
        neighbours="add-remove",
        eta=gamma / float(np.sqrt(k)) * (1 + 2 * error),
        tau=float(np.sqrt(2 * np.log(3 / delta))),
        eigenvalue_error=error,
        epsilon_spent=spent(gamma),
        delta_spent=delta,
        delta_split=(("eigenvalue", delta / 3), ("sketch", delta / 3), ("eigenvalue exceeded", delta / 3)),
    )


_ETA_STEPS = 64  # per factor of 2: half a step costs less than 10⁻⁵ of γ
_TAU_STEPS = 64


@functools.lru_cache(maxsize=1024)
def _private_scale(epsilon: float, delta: float, k: int, error: float) -> Calibration:
    """Return the calibration with the smallest γ + ητ: an approximation guides the search, the account ends it."""
    sensitivity = 1 + 2 * error
    draft_gamma, eta, tau = _draft_private_scale(epsilon, delta, k, sensitivity)
    gamma = _smallest_gamma(
        lambda g: log_excess(scale_delta(epsilon, k, g, eta, tau, sensitivity), delta * (1 - _MARGIN)),
        max(draft_gamma * (1 - 1e-4), 1 + 1e-9),
        draft_gamma * (1 + 1e-4),
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
        neighbours="add-remove",
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
    alone = _smallest_gamma(
        lambda g: log_excess(mixing.delta(epsilon, sketch_size=k, gamma=g, bound_holds_for="larger"), delta),
        1 + 1e-9,
        3.0,
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
        return _smallest_gamma(lambda g: log_excess(spent(g, eta, tau), delta), alone, 2 * alone, rtol=1e-9)

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
        raise BudgetUnmetError(
            "The budget cannot be met with a private scale bound. Increase epsilon or delta, or use scale='none'."
        )
    return gamma_at(*best), *_on_grid(*best)


def _on_grid(i: int, j: int) -> tuple[float, float]:
    """Return η = 2^(i/64), rounded to a multiple of 2^-30, and τ = j/64."""
    return round(2 ** (i / _ETA_STEPS) * 2**30) / 2**30, j / _TAU_STEPS
