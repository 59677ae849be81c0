"""Releases whose unit is a person under attack: neighbours differ by all rows of one."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

import numpy as np

from audit.releases import CLOUD, Limit
from audit.subject import CORNER, OPPOSITE, Neighbours, repeated
from gaussmix._types import Floats, Integers
from gaussmix.tables.persons import PersonRows, persons_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.unit import Unit

__all__ = ["KEPT", "UNIT", "KeptPersons", "PersonNeighbours", "PersonPasses", "Persons"]

UNIT, KEPT = Unit("who", rows=3), Unit("who", rows=3, bound="keep")

_ROWS_OF_ONE = 20
"""More than are counted."""


@dataclass(frozen=True)
class PersonNeighbours(Neighbours):
    """Two tables of which one has a person with 20 equal rows besides. All others have one row each.

    Attributes
    ----------
    unit : Unit
        How rows of a person are bounded.
    """

    unit: Unit = UNIT

    def arrays(self, *, present: bool) -> tuple[Floats, Floats]:
        """X and y of one of the two tables."""
        rows = np.concatenate([self.common, repeated(_ROWS_OF_ONE if present else 0, self.row)])
        return rows[:, :1], rows[:, 1]

    def who(self, *, present: bool) -> Integers:
        """Whose each row is."""
        others = len(self.common)
        return np.minimum(np.arange(others + present * _ROWS_OF_ONE), others)

    def rows(self, *, present: bool, schema: Schema | None = None) -> PersonRows:
        """One of the two tables."""
        X, y = self.arrays(present=present)
        table = {self.unit.column: self.who(present=present), "X": X, "y": y}
        return persons_of(table, schema or self.schema, self.unit, key=os.urandom(32))


class Persons(Limit):
    """A Gram matrix in which nobody weighs more than three rows."""

    words = "the limit in one pass, the unit a person"
    unit = UNIT
    neighbours = PersonNeighbours(
        repeated(3, (0.0, 0.0)), CORNER, "three persons of zeros, and one more with 20 rows at a corner", intercept=True
    )


class KeptPersons(Limit):
    """The same where three rows of a person are read, chosen by a keyed hash, and no others."""

    words = "the limit in one pass, three rows of a person kept"
    unit = KEPT
    neighbours = dataclasses.replace(Persons.neighbours, unit=KEPT)


class PersonPasses(Limit):
    """Four passes: rows of a person are shortened together in a learned metric, histograms count persons."""

    words = "the limit in four passes, the unit a person"
    unit = UNIT
    passes = 4
    neighbours = PersonNeighbours(
        CLOUD.common, OPPOSITE, "200 persons near a line, and one more with 20 rows at a far corner", intercept=True
    )
