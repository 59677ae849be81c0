"""The curve ε(δ) of one release: exact points, and chords between them that never lie below the curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaussmix._types import Floats
from gaussmix.accounting.accounts import Account
from gaussmix.accounting.discrete import LatticeAccount, lattice_delta
from gaussmix.accounting.gaussian import gaussian_epsilon

__all__ = ["DELTA_MAX", "DELTA_MIN", "PrivacyCurve", "curve_of"]

DELTA_MIN, DELTA_MAX = 1e-12, 1e-1
_STEPS = (1, 1.1, 1.25, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9)  # about 10^(i/20)
_KNOTS = 201


@dataclass(frozen=True)
class PrivacyCurve:
    """ε of one release at many δ, never below the exact value.

    Attributes
    ----------
    delta, epsilon : arrays
        δ from 10⁻¹² to 10⁻¹, and ε at each.
    certified_delta : float
        δ at the requested ε.
    """

    delta: Floats
    epsilon: Floats
    certified_delta: float


def curve_of(account: Account) -> PrivacyCurve | None:
    """Return the curve of Gaussian releases with discrete noise; None for other accounts.

    δ is a supremum of P(S) - e^ε Q(S) and hence convex and decreasing in e^ε, so e^ε is convex in δ: a chord between
    two exact points (δ, e^ε) lies above the curve.

    Examples
    --------
    >>> from gaussmix.accounting.discrete import lattice_account
    >>> curve = curve_of(lattice_account(1.0, 1e-6, shares=["1"], coordinates=[400]))
    >>> float(curve.epsilon[curve.delta == 1e-8].round(3)[0])
    1.22
    """
    if not isinstance(account, LatticeAccount):
        return None
    grid = [step * 10.0**power for power in range(-12, -1) for step in _STEPS] + [DELTA_MAX]
    if DELTA_MIN <= account.delta <= DELTA_MAX and not np.isclose(grid, account.delta, rtol=1e-9, atol=0).any():
        grid.append(account.delta)
    deltas = np.array([float(f"{delta:.12g}") for delta in sorted(grid)])

    def delta(epsilon: float) -> float:
        return lattice_delta(epsilon, mu=account.mu, slack=account.slack)

    largest = gaussian_epsilon(DELTA_MIN / 2, mu=account.mu)
    knots = np.unique([*np.linspace(0.0, min(largest, 700.0), _KNOTS), account.epsilon])
    exact = np.minimum.accumulate([delta(float(knot)) for knot in knots])  # δ(ε) also holds at every larger ε
    found = np.where(deltas < exact[-1], np.inf, _chords(deltas, exact, knots))
    return PrivacyCurve(deltas, found, delta(account.epsilon))


def _chords(deltas: Floats, exact: Floats, knots: Floats) -> Floats:
    """Interpolate e^ε linearly in δ, in logarithms. ``exact`` decreases as ``knots`` increase from 0."""
    found = np.empty(deltas.shape)
    for i, target in enumerate(deltas):
        j = int(np.argmax(exact <= target)) if exact[-1] <= target else len(knots) - 1
        if j == 0 or exact[j - 1] == exact[j]:
            found[i] = knots[j]
            continue
        w = (target - exact[j]) / (exact[j - 1] - exact[j])  # weight of the lower ε
        with np.errstate(divide="ignore"):
            found[i] = np.logaddexp(np.log(w) + knots[j - 1], np.log1p(-w) + knots[j])
    return found
