r"""From the scores of an attack to a lower bound on ε with a stated confidence.

A mechanism is (ε, δ)-private only if every test of two neighbouring tables has P₁ ≤ e^ε P₀ + δ, where P₁ is its true
positive rate (it reports the row where the row is present) and P₀ its false positive rate, and the same with the tables
exchanged. Repeated runs give a lower confidence limit p₁ of P₁ and an upper limit p₀ of P₀ (Clopper and Pearson), hence

.. math:: \varepsilon \ge \log\frac{p_1 - \delta}{p_0}

A test is a threshold on a score. Score, sign and threshold are selected on one half of the runs and evaluated on the
other half, so that the selection costs no confidence. Both directions and all δ share the failure probability equally
(Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special
from sklearn.tree import DecisionTreeClassifier

from gaussmix._types import Floats

Scores = tuple[Floats, Floats]
"""Scores of runs with the row present and of as many with the row absent, shape (runs, scores) each."""

_THRESHOLDS = 400  # candidate thresholds of one score
_TRAINING = 100_000  # runs that train the classifier at most: accuracy does not improve with more


def shared_confidence(confidence: float, audits: int) -> float:
    """Return the confidence that each of several audits needs for all of them to hold jointly (Bonferroni).

    >>> round(shared_confidence(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - confidence) / audits


def lower_bounds(present: Floats, absent: Floats, deltas: Sequence[float], *, confidence: float) -> list[float]:
    """Return a lower bound on ε at every δ; all of them hold jointly with the given confidence.

    ``present`` and ``absent`` are what an attacker computes from each run, shape (runs, scores). If there are several
    scores, a classifier adds one more.
    """
    half = len(present) // 2
    selection, evaluation = (present[:half], absent[:half]), (present[half : 2 * half], absent[half : 2 * half])
    if present.shape[1] > 1:
        selection, evaluation = _add_classifier(selection, evaluation)
    return holdout_bounds(selection, evaluation, deltas, confidence=confidence)


def holdout_bounds(selection: Scores, evaluation: Scores, deltas: Sequence[float], *, confidence: float) -> list[float]:
    """Return the bounds of `lower_bounds` for a test selected on some runs and evaluated on others."""
    failure = (1 - confidence) / (4 * len(deltas))  # two directions with two limits each
    directions = (selection, evaluation), (selection[::-1], evaluation[::-1])
    return [max(_one_direction(*direction, delta, failure) for direction in directions) for delta in deltas]


def epsilon_bound(positives: Floats, false_positives: Floats, runs: int, *, delta: float, failure: float) -> Floats:
    """Return the lower bound on ε of a test, 0 if it has none.

    The test is positive in ``positives`` of ``runs`` runs with the row present and in ``false_positives`` of as many
    with the row absent. Each of the two confidence limits fails with probability ``failure``.
    """
    hits, alarms = np.asarray(positives, dtype=float), np.asarray(false_positives, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(hits > 0, special.betaincinv(hits, runs - hits + 1, failure), 0.0)
        level = np.where(alarms < runs, special.betaincinv(alarms + 1, runs - alarms, 1 - failure), 1.0)
        epsilon = np.log((power - delta) / level)
    return np.where(power > delta, np.maximum(epsilon, 0.0), 0.0)


def _one_direction(selection: Scores, evaluation: Scores, delta: float, failure: float) -> float:
    """Return the bound of the best threshold on a score or its negative; the first of a pair has the positives."""
    best = (-math.inf, 0, 0.0, 0.0)
    for j in range(selection[0].shape[1]):
        for sign in (1.0, -1.0):
            positive, negative = (np.sort(sign * scores[:, j]) for scores in selection)
            thresholds = _thresholds(positive, negative)
            hits, alarms = (_count_above(scores, thresholds) for scores in (positive, negative))
            epsilon = epsilon_bound(hits, alarms, len(positive), delta=delta, failure=failure)
            # With few runs every bound may be 0: then take the test with the largest difference of the two rates.
            value = np.where(epsilon > 0, 1 + epsilon, (hits - alarms) / len(positive))
            ties = np.flatnonzero(value == value.max())
            i = int(ties[len(ties) // 2])  # the middle of the best thresholds
            if value[i] > best[0]:  # of equal scores the first, which is the likelihood ratio
                best = (float(value[i]), j, sign, float(thresholds[i]))
    _, j, sign, threshold = best
    hits, alarms = (np.array([np.count_nonzero(sign * scores[:, j] > threshold)]) for scores in evaluation)
    return float(epsilon_bound(hits, alarms, len(evaluation[0]), delta=delta, failure=failure)[0])


def _thresholds(positive: Floats, negative: Floats) -> Floats:
    """Return midpoints of all scores or, of many scores, quantiles of both samples that are dense in the tails."""
    if len(positive) + len(negative) <= _THRESHOLDS:
        scores = np.unique(np.concatenate([positive, negative]))
        return np.concatenate([scores[:1], (scores[1:] + scores[:-1]) / 2])
    tail = np.geomspace(1 / len(positive), 0.5, _THRESHOLDS // 4)
    levels = np.concatenate([tail, 1 - tail])
    return np.unique(np.concatenate([np.quantile(positive, levels), np.quantile(negative, levels)]))


def _count_above(scores: Floats, thresholds: Floats) -> Floats:
    """Return how many of the sorted scores exceed each threshold."""
    return np.asarray(len(scores) - np.searchsorted(scores, thresholds, side="right"), dtype=float)


def _add_classifier(selection: Scores, evaluation: Scores) -> tuple[Scores, Scores]:
    """Add the prediction of a decision tree as a score, and drop the runs it was trained on."""
    runs = min(len(selection[0]) // 2, _TRAINING)
    rows = np.concatenate([scores[:runs] for scores in selection])
    tree = DecisionTreeClassifier(max_depth=8, min_samples_leaf=max(runs // 50, 5), random_state=0)
    tree.fit(rows, np.repeat([True, False], runs))
    present, absent, *rest = (
        np.column_stack([scores, tree.predict_proba(scores)[:, 1]]) for scores in (*selection, *evaluation)
    )
    return (present[runs:], absent[runs:]), (rest[0], rest[1])
