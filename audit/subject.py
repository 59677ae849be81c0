"""What can be attacked: a mechanism with its claim, two neighbouring tables, and what is seen of each run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gaussmix._types import Floats
from gaussmix.tables.columns import Numeric, Vector
from gaussmix.tables.rows import ArrayRows, RowSource
from gaussmix.tables.schema import Schema

__all__ = ["CORNER", "OPPOSITE", "SCHEMA", "Neighbours", "Subject", "repeated"]

CORNER, OPPOSITE = (1.0, 1.0), (1.0, -1.0)
"""Rows at corners of the bounds: as long as a row can be, and at a right angle where there is no intercept."""

SCHEMA = Schema({"X": Vector(1, lower=-1, upper=1), "y": Numeric(-1, 1)}, intercept=0.0)
"""One feature and a target, without an intercept."""


@dataclass(frozen=True)
class Neighbours:
    """Two tables of one feature x and a target y, both declared to lie in [-1, 1].

    Attributes
    ----------
    common : array (n, 2)
        Rows of both.
    row : tuple of float
        The row that one of them has besides.
    instead : tuple of float or None
        The row that the other has in its place.
    intercept : bool
    words : str
        For the reader.
    """

    common: Floats
    row: tuple[float, float]
    words: str
    instead: tuple[float, float] | None = None
    intercept: bool = False

    @property
    def schema(self) -> Schema:
        """Of both."""
        return Schema(SCHEMA.columns, intercept=1.0) if self.intercept else SCHEMA

    def arrays(self, *, present: bool) -> tuple[Floats, Floats]:
        """X and y of one of the two tables."""
        extra = self.row if present else self.instead
        rows = self.common if extra is None else np.concatenate([self.common, [extra]])
        return rows[:, :1], rows[:, 1]

    def rows(self, *, present: bool, schema: Schema | None = None) -> RowSource:
        """One of the two tables."""
        return ArrayRows(*self.arrays(present=present), schema or self.schema, threads=1)

    def grams(self, schema: Schema | None = None) -> tuple[Floats, Floats]:
        """Exact Gram matrices of the table without the row and of that with it, rows divided by C."""
        absent, present = (self.rows(present=there, schema=schema).moments().gram() for there in (False, True))
        return absent, present


class Subject(ABC):
    """A mechanism under attack.

    Parameters
    ----------
    epsilon, delta : float
        The budget it is asked to keep.
    """

    words: ClassVar[str]
    neighbours: Neighbours

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta

    def claimed(self, delta: float) -> float | None:
        """ε that is claimed at another δ; None where the claim is one point."""
        return None

    @abstractmethod
    def observe(self, *, present: bool, runs: int) -> Floats:
        """What an attacker computes from each run, shape (runs, k).

        The first column is the logarithm of the likelihood ratio of everything that the others come from, or the
        nearest to it that is known; the others are for a classifier.
        """


def repeated(count: int, *rows: tuple[float, float]) -> Floats:
    """Some rows, each so many times."""
    return np.repeat(np.array(rows, dtype=float).reshape(-1, 2), count, axis=0)
