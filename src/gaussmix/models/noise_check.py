r"""Detect passes of a release that agree better than the noise they are said to have allows.

Post-processing: every function here reads released matrices and public parameters.

Pass p released M = A + N: A is a sum over the rows in units of the clip, N is symmetric noise of standard deviation 1/μ
on the diagonal and 1/(√2 μ) off it. Rotated by an orthogonal matrix U, UᵀNU has the same distribution: the entries
μ(UᵀNU)_ii and √2 μ(UᵀNU)_ij, i < j, are independent standard normal numbers.

Given everything that came before the pass (rows, samples, earlier outputs, and what was chosen in their light), A is
fixed and N is independent of it. Choose a rotation U and a set of k entries as functions of earlier outputs. Map the
earlier passes G_1, …, G_(p-1) into the metric of this pass, E G_q Eᵀ, and let D be what a projection onto their span
leaves of M, all of it in these entries. Then ‖D‖², in the units above, has a noncentral chi-square distribution with
k - (p - 1) degrees of freedom, whatever the rows are: clipping, sampling and the noise of earlier passes change its
noncentrality and nothing else. Its lower tail is below that of the central distribution, so

.. math:: P\bigl(F(\|D\|^2) < \alpha\bigr) \le \alpha

with F the distribution function of the central one. As this holds given everything before the pass, it also holds for
the sum over all passes, with the sum of their degrees of freedom.

Passes of one table without the noise, or with much less of it, are nearly in the span of each other, and are detected.
The test is one-sided, since rows that are clipped or sampled differently make any difference larger. A release of one
pass has nothing to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from gaussmix._types import Floats
from gaussmix.models.passes import PassRequest
from gaussmix.models.pooling import Pool

if TYPE_CHECKING:
    from gaussmix.models.transcript import PassOutput

__all__ = ["FALSE_ALARM_RATE", "noise_p_value"]

FALSE_ALARM_RATE = 1e-12
"""Largest probability of refusing a release whose noise is as large as it says.

To be exact, beside the account's slack: the distance in total variation between discrete and Gaussian noise."""

LARGEST_VARIANCES = (3.0, math.inf)
"""Which entries are used: those that earlier passes predict with at most this variance, in units of the noise.

All entries detect passes without any noise in small tables; the accurate ones detect noise of a fifth in large tables,
where the noise of earlier passes dominates the others."""

_ROUNDING = 2.0**-50  # of a matrix: what float64 loses of the differences


def noise_p_value(passes: Sequence[PassOutput], pools: Sequence[Pool]) -> float:
    """Return the p-value of the hypothesis that every pass after the first has at least the noise it says.

    ``pools`` are those after each pass. The p-value is the least over single passes, all passes together, and both sets
    of entries, corrected for the number of tests (Bonferroni).
    """
    pairs = zip(passes[1:], pools[:-1], strict=True)  # a pass, and the pool of those before it
    found = [_statistics(output, output.request, before) for output, before in pairs if output.request is not None]
    tests: list[tuple[float, int]] = []
    for of_passes in zip(*found, strict=True):
        used = [(statistic, freedom) for statistic, freedom in of_passes if freedom > 0]
        if len(used) > 1:
            used.append((sum(statistic for statistic, _ in used), sum(freedom for _, freedom in used)))
        tests += used
    return min([1.0, *(len(tests) * float(special.chdtr(freedom, statistic)) for statistic, freedom in tests)])


def _statistics(output: PassOutput, request: PassRequest, before: Pool) -> list[tuple[float, int]]:
    """Return ‖D‖² and its degrees of freedom for each set of entries; NaN, which refutes nothing, if it overflows."""
    m = len(output.matrix)
    # Whitened by W = E/√s, s = clip/(√2 μ), the noise of this pass has unit scale. U diagonalises that of the pool,
    # W B Bᵀ Wᵀ = U diag(d) Uᵀ, so that the pool predicts entry (i, j) with variance d_i d_j.
    whiten = request.metric.transform.matrix / math.sqrt(request.clip / (math.sqrt(2) * request.mu))
    factor = whiten @ before.current.factor
    d, U = np.linalg.eigh(factor @ factor.T)
    above = np.triu_indices(m)
    variance = d[above[0]] * d[above[1]]
    weight = np.where(above[0] == above[1], math.sqrt(0.5), 1.0)

    def entries(matrix: Floats, basis: Floats) -> Floats:
        return np.asarray((basis.T @ matrix @ basis)[above] * weight)

    with np.errstate(over="ignore", invalid="ignore"):
        seen = entries(output.matrix * (math.sqrt(2) * output.mu), U)
        predicted = np.column_stack([entries(member.matrix, whiten.T @ U) for member in before.members])
        return [_distance(seen[used], predicted[used]) for used in (variance <= limit for limit in LARGEST_VARIANCES)]


def _distance(seen: Floats, predicted: Floats) -> tuple[float, int]:
    """Return the squared distance of a vector from the span of others, rounding errors added, and its freedom."""
    freedom = len(seen) - predicted.shape[1]
    if freedom <= 0:
        return math.nan, 0
    span, _ = np.linalg.qr(predicted)
    distance = np.linalg.norm(seen - span @ (span.T @ seen)) + _ROUNDING * np.linalg.norm(seen)
    return float(distance**2), freedom
