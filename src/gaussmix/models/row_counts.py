r"""How many rows a table has, as a release shows it.

A release in passes shows it twice, with independent noise: in the intercept's entry of the first pass, and in the
totals of its histograms, whose mean goes with the last pass. The first has the standard deviation C²/(μ₁w₀²). Each of J
histograms has B bins a metric with noise √2/μ_q for two metrics, so that its mean total has √B/μ_q, all J of them
√(B/J)/μ_q; where they read a sample at rate π, that over π, and n(1 - π)/π for the sample itself, which is the same for
all. The two are averaged by inverse variance. Later passes do not show it: their clip weights are brought to mean one.
Nor do releases whose unit is a person: nobody counts for more than so many rows, whatever the number that they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaussmix.accounting.discrete import LatticeAccount
from gaussmix.data.schema import INTERCEPT
from gaussmix.errors import ArgumentError
from gaussmix.models.schedules import budgets_of
from gaussmix.models.tails import BINS
from gaussmix.models.transcript import Transcript

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["RowCount", "row_count"]


@dataclass(frozen=True)
class RowCount:
    """A noisy number of rows.

    Attributes
    ----------
    rows, deviation : float
    apart : bool
        Whether its noise is independent of that of the moments that intervals come from.
    """

    rows: float
    deviation: float
    apart: bool


def row_count(release: Release) -> RowCount:
    """The number of rows with the standard deviation of its noise."""
    schema, statistic = release.schema, release.statistic
    if release.certificate.unit is not None:
        raise ArgumentError(
            "In this release rows are bounded by person: it does not show how many there are. Shares, means and "
            "correlations do not need it."
        )
    if not schema.intercept:
        raise ArgumentError("This release has no intercept column: it does not show how many rows there are.")
    (index,) = schema.groups[INTERCEPT]
    unit = schema.units.one
    if not isinstance(statistic, Transcript) or len(statistic.passes) == 1:
        return RowCount(*statistic.noisy.quadratic(unit), apart=False)
    first, last = statistic.passes[0], statistic.passes[-1]
    account = release.certificate.account
    if last.request is None or not isinstance(account, LatticeAccount):
        raise ArgumentError("The passes of this release do not show how many rows there are.")
    in_row = (schema.row_norm * unit[index]) ** 2
    entry, noise = float(first.matrix[index, index]) * in_row / first.rate, in_row / (first.mu * first.rate)
    counted, rate = last.request.rows, last.counted_rate
    of_passes, _ = budgets_of(account, len(statistic.steps))
    mus = of_passes[2::2]  # a count, the first pass, then a histogram and a pass in turn
    variance = sum(BINS / (mu * rate) ** 2 for mu in mus) / len(mus) ** 2 + counted * (1 - rate) / rate
    weight = noise**2 / (noise**2 + variance)
    return RowCount(weight * counted + (1 - weight) * entry, math.sqrt(1 / (1 / variance + 1 / noise**2)), apart=True)
