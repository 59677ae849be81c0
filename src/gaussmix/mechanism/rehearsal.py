"""A release of no rows, drawn and thrown away before a budget is charged: what would fail, fails here.

It runs what the real draw runs, at the same sizes, and tells how large the file will be. BLAS takes its buffers in it
and keeps them: OpenBLAS, where it gets none, waits without end or ends the process, and no error can be caught then, so
that room is looked for first.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import TypeVar

import numpy as np

from gaussmix.mechanism.drawing import Noise, draw
from gaussmix.mechanism.mixing import open_release
from gaussmix.models.release import Release
from gaussmix.models.steps import Likelihood
from gaussmix.models.transcript import Transcript
from gaussmix.tables.rows import RowSource
from gaussmix.tables.sample import Sample
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Question, Summable
from gaussmix.tables.transforms import Transform
from gaussmix.tables.unit import Unit

__all__ = ["rehearse", "room_in_memory"]

_BLAS_BUFFERS = 2**28
"""Bytes: 32 to 64 MB for each of NumPy's and SciPy's libraries, and their threads' stacks."""

_MATRICES = 16
"""More matrices than a draw and a file hold at once."""


A = TypeVar("A", bound=Summable)


class _NoRows(RowSource):
    """A table without rows, which can be read as often as one likes."""

    def __init__(self, schema: Schema, unit: Unit | None) -> None:
        self.schema, self.unit = schema, unit

    def _ask(self, question: Question[A], sample: Sample | None, describe: str) -> A:
        return question.tally(self.schema.n_columns).answer()

    def count(self) -> int:
        """None at all."""
        return 0

    def people(self) -> tuple[int, int]:
        """Nobody, with no rows."""
        return 0, 0

    def check_again(self) -> None:
        """It can be read again."""


def rehearse(
    account: Noise | None, schema: Schema, likelihood: Likelihood | None = None, unit: Unit | None = None
) -> Release:
    """A release of no rows. Its noise has a known seed: nothing of it may be kept but its size.

    Raises
    ------
    MemoryError
        If there is no room in memory for the draw.
    """
    room_in_memory(schema.n_columns)
    nothing = _NoRows(schema, unit)
    moments = nothing.moments()
    if account is None:
        return open_release(moments)
    rng = np.random.default_rng(0)
    return _in_learned_metrics(draw(nothing, moments, account, rng, made_by="rehearsal", likelihood=likelihood), rng)


def _in_learned_metrics(release: Release, rng: np.random.Generator) -> Release:
    """The same with other transforms after the first pass: a metric that stays the declared one takes no room."""
    statistic = release.statistic
    if not isinstance(statistic, Transcript):
        return release
    m, passes = statistic.schema.n_columns, []
    for output in statistic.passes:
        if output.request is None:
            passes.append(output)
            continue
        learned = Transform.nearest(np.triu(rng.standard_normal((m, m))) + 4 * np.eye(m))
        metric = replace(output.request.metric, power=1.0, transform=learned)
        passes.append(replace(output, request=replace(output.request, metric=metric)))
    return replace(release, statistic=replace(statistic, passes=tuple(passes)))


def room_in_memory(columns: int) -> None:
    """Refuse with MemoryError where the matrices of a draw and the buffers of BLAS would not fit."""
    try:
        mmap.mmap(-1, _BLAS_BUFFERS + _MATRICES * 8 * columns**2).close()
    except (OSError, OverflowError, ValueError):
        raise MemoryError(
            "There is not enough memory to draw the release. Nothing was spent: close other programs, or raise "
            "the limit of the process."
        ) from None
