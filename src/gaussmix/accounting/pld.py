"""Export to dp_accounting, for composition with mechanisms of other libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from gaussmix import _validation as check
from gaussmix.accounting.divergence import ChiSquareLoss, gaussian_hockey_stick, hockey_stick
from gaussmix.accounting.mixing import check_model, directions, gammas
from gaussmix.accounting.parameters import ROUNDING, BoundHoldsFor, Neighbours
from gaussmix.errors import ArgumentError, MissingPackageError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["privacy_loss_distribution"]

_GRID_MAX = 20_000_000


def privacy_loss_distribution(
    *,
    sketch_size: int,
    gamma: float,
    bound_holds_for: BoundHoldsFor = "both",
    neighbours: Neighbours = "add-remove",
    mu: float = 0.0,
    interval: float = 1e-4,
    tail: float = 1e-15,
) -> PrivacyLossDistribution:
    """Return the privacy curve as a pessimistic privacy loss distribution of ``dp_accounting``.

    It composes with DP-SGD or any other non-adaptive mechanism with the same ``interval``. Requires the extra
    ``gaussmix[accounting]``.

    Parameters
    ----------
    sketch_size, gamma, bound_holds_for, relation, mu
        As in :func:`~gaussmix.accounting.delta`.
    interval : float
        Discretisation interval of the loss. The ε of the result is too large by an amount of second order in it.
    tail : float
        Probability of losses beyond the grid, which are treated as infinite.
    """
    try:
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise MissingPackageError(
            'privacy_loss_distribution requires dp-accounting: pip install "gaussmix[accounting]".'
        ) from error
    k = check.sketch_rows(sketch_size=sketch_size)
    g = check.positive(finite=True, gamma=gamma)
    gammas(g, bound_holds_for, "exact")
    check_model(bound_holds_for, neighbours, mu, "exact")
    interval, tail = check.positive(finite=True, interval=interval), check.in_interval(0, 0.5, tail=tail)

    def pmf(curve: Callable[[Any], Any], low: float, high: float) -> Any:
        first, last = int(np.floor(low / interval)), int(np.ceil(high / interval))
        if last - first > _GRID_MAX:
            raise ArgumentError(
                f"interval={interval!r} needs a grid of {last - first} points, but at most {_GRID_MAX} are supported. "
                "Choose a larger interval."
            )
        deltas = np.minimum(curve(np.arange(first, last + 1) * interval) * (1 + ROUNDING), 1.0)
        deltas = np.maximum.accumulate(deltas[::-1])[::-1]  # rounding may break monotonicity
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas).to_dense_pmf()

    pmfs = []
    for losses in directions(k, g, bound_holds_for, neighbours):
        parts = [pmf(functools.partial(hockey_stick, loss=loss), *_loss_range(loss, tail)) for loss in losses]
        if mu > 0:
            reach = stats.norm.isf(tail) * mu
            parts.append(pmf(lambda e: gaussian_hockey_stick(e, mu), mu**2 / 2 - reach, mu**2 / 2 + reach))
        pmfs.append(functools.reduce(lambda a, b: a.compose(b), parts))
    return pld.PrivacyLossDistribution(*pmfs)


def _loss_range(loss: ChiSquareLoss, tail: float) -> tuple[float, float]:
    """Return an interval that a loss leaves on each side with probability ``tail``."""
    ends = stats.chi2.ppf(tail, loss.k), stats.chi2.isf(tail, loss.k)
    low, high = sorted(float(loss.mean + loss.slope * (s - loss.k)) for s in ends)
    return low, high
