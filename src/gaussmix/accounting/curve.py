"""The curve ε(δ) of one release: exact points, and chords between them that never lie below the curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gaussmix import _validation as check
from gaussmix._types import Floats
from gaussmix.accounting import mixing
from gaussmix.accounting.accounts import Account
from gaussmix.accounting.calibration import Calibration
from gaussmix.accounting.discrete import LatticeAccount, lattice_delta
from gaussmix.accounting.gaussian import gaussian_epsilon
from gaussmix.accounting.parameters import Neighbours

__all__ = ["DELTA_MAX", "DELTA_MIN", "PrivacyCurve", "curve_of", "lattice_curve", "privacy_curve"]

DELTA_MIN, DELTA_MAX = 1e-12, 1e-1
_STEPS = (1, 1.1, 1.25, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9)  # about 10^(i/20)
_KNOTS: dict[Neighbours, int] = {"add-remove": 201, "replace-one": 61}  # under 0.5 s, and about 2 s


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


def privacy_curve(
    deltas: ArrayLike, *, epsilon: float, sketch_size: int, gamma: float, neighbours: Neighbours = "add-remove"
) -> PrivacyCurve:
    r"""Return ε at many δ, interpolated between exact points and never below the exact value.

    δ is a supremum of P(S) - e^ε Q(S) and hence convex and decreasing in e^ε, so e^ε is convex in δ: a chord between
    two exact points (δ, e^ε) lies above the curve.

    Parameters
    ----------
    deltas : array
        In [10⁻¹², 1].
    epsilon : float
        Certified ε, used as one of the exact points.
    sketch_size, gamma, relation
        As in :func:`~gaussmix.accounting.delta`.

    Examples
    --------
    >>> curve = privacy_curve([1e-8, 1e-6], epsilon=1.0, sketch_size=250, gamma=52.84)
    >>> curve.epsilon.round(3).tolist()
    [1.254, 1.0]
    """
    asked = check.numbers(deltas=deltas)
    largest = mixing.epsilon(DELTA_MIN, sketch_size=sketch_size, gamma=gamma, neighbours=neighbours)
    if not math.isfinite(largest):
        return PrivacyCurve(asked, np.full(asked.shape, np.inf), 1.0)
    knots = np.unique([*np.linspace(0.0, largest, _KNOTS[neighbours]), epsilon])
    exact = np.asarray(mixing.delta(knots, sketch_size=sketch_size, gamma=gamma, neighbours=neighbours))
    certified = float(exact[np.searchsorted(knots, epsilon)])
    return PrivacyCurve(asked, _chords(asked, exact, knots), certified)


def lattice_curve(deltas: ArrayLike, account: LatticeAccount) -> PrivacyCurve:
    """Return ε at many δ of Gaussian releases with discrete noise, interpolated as in :func:`privacy_curve`."""
    asked = check.numbers(deltas=deltas)

    def delta(epsilon: float) -> float:
        return lattice_delta(epsilon, mu=account.mu, total_slack=account.slack)

    largest = gaussian_epsilon(DELTA_MIN / 2, mu=account.mu)
    knots = np.unique([*np.linspace(0.0, min(largest, 700.0), _KNOTS["add-remove"]), account.epsilon])
    exact = np.minimum.accumulate([delta(float(knot)) for knot in knots])  # δ(ε) also holds at every larger ε
    found = np.where(asked < exact[-1], np.inf, _chords(asked, exact, knots))
    return PrivacyCurve(asked, found, delta(account.epsilon))


def _chords(deltas: Floats, exact: Floats, knots: Floats) -> Floats:
    """Interpolate e^ε linearly in δ, in logarithms. ``exact`` decreases as ``knots`` increase from 0."""
    exact = np.minimum.accumulate(exact)  # rounding may break monotonicity
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


def curve_of(account: Account) -> PrivacyCurve | None:
    """Return the curve of Gaussian releases or of a sketch without scale bound; None for other accounts."""
    if not isinstance(account, LatticeAccount) and not (isinstance(account, Calibration) and account.scale == "none"):
        return None
    grid = [step * 10.0**power for power in range(-12, -1) for step in _STEPS] + [DELTA_MAX]
    if DELTA_MIN <= account.delta <= DELTA_MAX and not np.isclose(grid, account.delta, rtol=1e-9, atol=0).any():
        grid.append(account.delta)
    deltas = [float(f"{delta:.12g}") for delta in sorted(grid)]
    if isinstance(account, LatticeAccount):
        return lattice_curve(deltas, account)
    return privacy_curve(
        deltas,
        epsilon=account.epsilon,
        sketch_size=account.sketch_size,
        gamma=account.gamma,
        neighbours=account.neighbours,
    )
