r"""From the scores of an attack to a lower bound on ε that holds with confidence.

A mechanism is (ε, δ)-private only if every test of two neighbouring tables has P₁ ≤ e^ε P₀ + δ, P₁ the probability that
it accuses where the row is there and P₀ where it is not; and the same with the tables exchanged. Runs give a lower
limit p₁ of P₁ and an upper limit p₀ of P₀ (Clopper and Pearson), hence

.. math:: \varepsilon \ge \log\frac{p_1 - \delta}{p_0}

A test here is a threshold on a score. Score, threshold and direction are chosen on one half of the runs and tested on
the other, so that the choice costs no confidence; two directions and several δ share what may fail (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from gaussmix._types import Floats

__all__ = ["epsilon_shown", "lower_bounds", "shared_confidence"]

_THRESHOLDS = 400  # all together


def epsilon_shown(hits: Floats, alarms: Floats, runs: int, *, delta: float, failing: float) -> Floats:
    """The ε that so many accusations show, 0 where they show none.

    Parameters
    ----------
    hits, alarms : array
        Accusations among ``runs`` runs with the row and ``runs`` runs without it.
    delta : float
    failing : float
        Probability with which either of the two limits may be wrong.
    """
    hits, alarms = np.asarray(hits, dtype=float), np.asarray(alarms, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(hits > 0, special.betaincinv(hits, runs - hits + 1, failing), 0.0)
        alarm = np.where(alarms < runs, special.betaincinv(alarms + 1, runs - alarms, 1 - failing), 1.0)
        shown = np.log((power - delta) / alarm)
    return np.where(power > delta, np.maximum(shown, 0.0), 0.0)


def lower_bounds(
    chosen_on: tuple[Floats, Floats], tested_on: tuple[Floats, Floats], deltas: Sequence[float], *, confidence: float
) -> list[float]:
    """A lower bound on ε at every δ, all of them true together with the given confidence.

    Parameters
    ----------
    chosen_on, tested_on : pair of arrays (runs, scores)
        Scores of runs with the row and of as many without it.
    deltas : sequence of float
    confidence : float
    """
    failing = (1 - confidence) / (4 * len(deltas))  # two directions, two limits
    ways = (chosen_on, tested_on), (chosen_on[::-1], tested_on[::-1])
    return [max(_one_way(*way, delta, failing) for way in ways) for delta in deltas]


def shared_confidence(confidence: float, audits: int) -> float:
    """Of each of several audits, so that all of them hold together: they share what may fail (Bonferroni).

    >>> round(shared_confidence(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - confidence) / audits


def _one_way(chosen_on: tuple[Floats, ...], tested_on: tuple[Floats, ...], delta: float, failing: float) -> float:
    """Accuse where a score, or its negative, exceeds a threshold; the first of a pair are runs to be accused."""
    best = (-math.inf, 0, 0.0, 0.0)
    for j in range(chosen_on[0].shape[1]):
        for sign in (1.0, -1.0):
            guilty, innocent = (np.sort(sign * scores[:, j]) for scores in chosen_on)
            thresholds = _thresholds(guilty, innocent)
            hits, alarms = (_exceeding(scores, thresholds) for scores in (guilty, innocent))
            shown = epsilon_shown(hits, alarms, len(guilty), delta=delta, failing=failing)
            worth = np.where(shown > 0, 1 + shown, (hits - alarms) / len(guilty))  # few runs may show nothing yet
            ties = np.flatnonzero(worth == worth.max())
            i = int(ties[len(ties) // 2])  # as far from both as can be
            if worth[i] > best[0]:  # else the score that was before, likelihood ratios first
                best = (float(worth[i]), j, sign, float(thresholds[i]))
    _, j, sign, threshold = best
    hits, alarms = (np.array([np.count_nonzero(sign * scores[:, j] > threshold)]) for scores in tested_on)
    return float(epsilon_shown(hits, alarms, len(tested_on[0]), delta=delta, failing=failing)[0])


def _thresholds(guilty: Floats, innocent: Floats) -> Floats:
    """Between any two scores; of many, quantiles of both, dense towards the ends."""
    if len(guilty) + len(innocent) <= _THRESHOLDS:
        scores = np.unique(np.concatenate([guilty, innocent]))
        return np.concatenate([scores[:1], (scores[1:] + scores[:-1]) / 2])
    tail = np.geomspace(1 / len(guilty), 0.5, _THRESHOLDS // 4)
    levels = np.concatenate([tail, 1 - tail])
    return np.unique(np.concatenate([np.quantile(guilty, levels), np.quantile(innocent, levels)]))


def _exceeding(scores: Floats, thresholds: Floats) -> Floats:
    """How many of the sorted scores are beyond each threshold."""
    return np.asarray(len(scores) - np.searchsorted(scores, thresholds, side="right"), dtype=float)
