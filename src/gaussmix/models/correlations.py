"""Correlations of all columns with each other, plain or with others held fixed, from a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy import stats

from gaussmix import _validation as check
from gaussmix._text import plain
from gaussmix._types import Floats
from gaussmix.data.units import unweighted_units
from gaussmix.errors import ArgumentError
from gaussmix.models.coding import Coding
from gaussmix.models.describe import chosen_columns, notes_of
from gaussmix.models.rendering import void_mark
from gaussmix.models.residuals import residuals
from gaussmix.models.results import Frame, ResultTable, as_frame, columns_of

if TYPE_CHECKING:
    from gaussmix.models.release import Release

__all__ = ["Correlations", "correlations"]


@dataclass(frozen=True, eq=False)
class Correlations:
    """A matrix of correlations.

    Attributes
    ----------
    names : tuple of str
        Of the encoded columns: levels are 0/1 columns of their own.
    values, deviations : arrays (p, p)
        Correlations, and standard deviations of their noise; NaN where a column's variance drowns in it.
    given : tuple of str
        Columns that are held fixed.
    """

    names: tuple[str, ...]
    values: Floats
    deviations: Floats
    given: tuple[str, ...] = ()
    _about: tuple[str, ...] = field(default=(), repr=False)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Intervals, shape (p, p, 2), within [-1, 1] (:mod:`gaussmix.models.residuals`)."""
        half = float(stats.norm.isf(check.in_interval(0, 1, alpha=alpha) / 2)) * self.deviations
        return np.clip(np.stack([self.values - half, self.values + half], axis=-1), -1.0, 1.0)

    def to_frame(self, frame: Frame | None = None) -> Any:
        """The matrix, names first."""
        columns = {name: self.values[:, place] for place, name in enumerate(self.names)}
        return as_frame(pa.table({"term": list(self.names), **columns}), frame)

    def pairs(self, alpha: float = 0.05) -> ResultTable:
        """One row a pair, with its interval."""
        ends = self.conf_int(alpha)
        rows = [
            (one, two, float(self.values[i, j]), float(self.deviations[i, j]), *ends[i, j].tolist())
            for i, one in enumerate(self.names)
            for j, two in enumerate(self.names)
            if i < j
        ]
        names = ("term", "with", "estimate", "std.error", "conf.low", "conf.high")
        return ResultTable(self._title, columns_of(names, rows), self._about)

    @property
    def _title(self) -> str:
        return "correlations" + (f" given {', '.join(self.given)}" if self.given else "")

    def as_text(self) -> str:
        """The matrix to two digits."""
        cells = [[f"{value:.2f}" if np.isfinite(value) else "" for value in row] for row in self.values]
        rows = [[name, *row] for name, row in zip(self.names, cells, strict=True)]
        return str(ResultTable(self._title, columns_of(("", *self.names), rows), self._about))

    def _repr_html_(self) -> str:
        return self.pairs().as_html()

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        given = f", given {', '.join(self.given)}" if self.given else ""
        return plain(f"Correlations({void_mark(*self._about)}{len(self.names)} columns{given})")


def correlations(release: Release, on: Sequence[str] | None, given: Sequence[str]) -> Correlations:
    """The matrix of :meth:`gaussmix.Release.corr`."""
    schema = release.schema
    fixed = chosen_columns(schema, given)
    chosen = [name for name in chosen_columns(schema, on) if on is not None or name not in fixed]
    if both := [name for name in chosen if name in fixed]:
        raise ArgumentError(f"Column {both[0]!r} cannot be held fixed and be correlated with others.")
    if not chosen:
        raise ArgumentError("There is nothing left to correlate: hold fewer columns fixed.")
    indices = [index for name in chosen for index in schema.groups[name]]
    held = Coding.of(schema, fixed).rows if fixed else unweighted_units(schema).one[np.newaxis]
    found = residuals(release.statistic.noisy, unweighted_units(schema).rows(indices), held)
    names = tuple(schema.names[i] for i in indices)
    return Correlations(names, *found.correlations(), given=tuple(fixed), _about=notes_of(release))
