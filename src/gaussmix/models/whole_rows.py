r"""Which pass counts levels whole: rare ones lie far out in a learned metric, and their rows are shortened there.

In a pass z = T r, A = TᵀT, every row of a level is long, whatever its other entries: with u·r = 1 in these rows,

.. math:: \|z\|^2 = r^\top A\, r \ge \frac{(u \cdot r)^2}{u^\top A^{-1} u} = \frac{1}{u^\top A^{-1} u}

(Cauchy and Schwarz). The rest of a row adds about the mean of ‖z‖². Where both together are more than the clip, rows of
the level are shortened, a level of few rows to almost nothing: its share in that pass is not the table's, and neither
are those of the other levels of its column. Levels are therefore counted in the latest pass in which rows of all of
them are whole; in the declared metric, that of the first pass, all rows are. The rule reads what was asked, no row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gaussmix._types import Floats
from gaussmix.data.schema import Schema
from gaussmix.data.units import unweighted_units
from gaussmix.models.coding import kinds_of
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.passes import PassRequest
from gaussmix.models.transcript import Transcript

__all__ = ["counted_early", "counted_in", "moment_of_pass", "pass_that_counts", "whole_in"]


def pass_that_counts(statistic: Transcript, names: Sequence[str]) -> int:
    """Number of the latest pass in which rows of every level of some columns are whole; 0 is the first."""
    return max(frozenset.intersection(*(whole_in(statistic, name) for name in names)))  # the first is in all of them


def counted_early(statistic: Transcript, names: Sequence[str]) -> bool:
    """Whether that is not the last pass."""
    return pass_that_counts(statistic, names) < len(statistic.passes) - 1


def counted_in(statistic: Transcript, names: Sequence[str]) -> NoisyMoment:
    """The moment in which levels of some columns are counted: of the latest pass that has their rows whole."""
    return moment_of_pass(statistic, pass_that_counts(statistic, names))


def moment_of_pass(transcript: Transcript, number: int) -> NoisyMoment:
    """A pass and the law of its noise, exact given all before it; 0 is the first."""
    if number == len(transcript.passes) - 1:
        return transcript.noisy
    own = transcript.pool.members[number].times(transcript.schema.row_norm**2)
    return NoisyMoment(own.matrix, own.shape, independent=transcript.unit is None)


def whole_in(transcript: Transcript, name: str) -> frozenset[int]:
    """Numbers of the passes in which rows of every level of a column are whole."""
    levels = _indicators(transcript.schema, name) * transcript.schema.row_norm
    return frozenset(
        number
        for number, output in enumerate(transcript.passes)
        if output.request is None
        or output.request.metric.declared
        or _lengths(output.request, levels).max() <= output.request.clip
    )


def _indicators(schema: Schema, name: str) -> Floats:
    """Combinations of encoded columns that are 1 in rows of a level and 0 in others, shape (levels, m)."""
    _, kinds = kinds_of(schema, name)
    units = unweighted_units(schema)
    levels = units.rows(schema.groups[name])
    nothing = units.one - levels.sum(axis=0)
    return np.array([kind @ levels if kind.any() else nothing for kind in kinds])


def _lengths(request: PassRequest, levels: Floats) -> Floats:
    """About ‖z‖² of a row of each level."""
    seen = np.linalg.solve(request.metric.transform.matrix.T, levels.T)  # T⁻ᵀu, whose square is uᵀA⁻¹u
    return np.asarray(1 / np.sum(seen**2, axis=0) + request.metric.mean)
