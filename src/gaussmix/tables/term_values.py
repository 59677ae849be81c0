"""Values of terms, from the clipped values of the columns that they are made of. The result is **sensitive**.

Each value is a function of one row, of declared bounds and of nothing else; the arithmetic is elementwise, so that a
row gives the same bits in every block, order and source. Where a number is missing and has a column that says so, all
entries of its terms are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.tables.columns import Categorical, Column, Numeric
from gaussmix.tables.elementary import hour_of_day, legendre, logarithm, splines, to_unit
from gaussmix.tables.parts import Block, Part, first_of, interval_of, missing_name
from gaussmix.tables.terms import Base, Hour, Log, Power, Product, Spline, Term, bases_of, parse_terms

__all__ = ["Numbers", "TermValues"]


@dataclass(frozen=True, repr=False)
class Numbers:
    """Values of a column within its bounds; and where one is missing, if a column of its own says so."""

    values: Floats
    absent: NDArray[np.bool_] | None = None


class TermValues:
    """Entries of terms for one block of rows.

    Parameters
    ----------
    columns : mapping of str to column
    numbers : function of a name
        A number or a Boolean in the user's units, clipped to its bounds.
    levels : function of a name
        A category as zeros and ones, shape (n, labels).
    """

    def __init__(
        self, columns: Mapping[str, Column], numbers: Callable[[str], Numbers], levels: Callable[[str], Floats]
    ) -> None:
        self._columns, self._read_numbers, self._levels = columns, numbers, levels
        self._numbers: dict[str, Numbers] = {}
        self._known: dict[Term, Floats] = {}

    def write(self, out: Floats, name: str, part: Part, multiplier: Floats, limits: Floats) -> None:
        """Write a part of a release that is no column of the table, scaled and clipped to its limits."""
        np.clip(self.entries(name, part) * (multiplier * _unit_scale(part)), -limits, limits, out=out)

    def entries(self, name: str, part: Part) -> Floats:
        """Entries within [-1, 1], shape (n, entries)."""
        if not isinstance(part, Block):  # a logarithm or an hour
            (term,) = parse_terms(name, ())
            return self._units(term)
        if part.term is None:
            absent = self._number(name.removesuffix(missing_name(""))).absent
            return np.asarray(absent, dtype=np.float64)[:, np.newaxis]
        return self._units(part.term)

    def _number(self, name: str) -> Numbers:
        if name not in self._numbers:
            self._numbers[name] = self._read_numbers(name)
        return self._numbers[name]

    def _units(self, term: Term) -> Floats:
        if term not in self._known:
            self._known[term] = self._computed(term)
        return self._known[term]

    def _computed(self, term: Term) -> Floats:
        if isinstance(term, Product):
            found = np.ones((1, 1))
            for factor in term.factors:
                found = _rowwise_products(found, self._units(factor)[:, first_of(factor, self._columns) :])
            return found
        if isinstance(term, Base) and isinstance(self._columns[term.name], Categorical):
            return self._levels(term.name)
        own = self._number(bases_of(term)[0])
        number = term.of if isinstance(term, Power | Spline) else term
        z = self._scaled(number, own.values)
        if isinstance(term, Spline):
            found = splines(term.size, z)
        else:
            found = (legendre(term.degree, z) if isinstance(term, Power) else z)[:, np.newaxis]
        if own.absent is not None:
            found = np.where(own.absent[:, np.newaxis], 0.0, found)
        return found

    def _scaled(self, number: Base | Log | Hour, values: Floats) -> Floats:
        if isinstance(number, Log):
            values = logarithm(values)
        elif isinstance(number, Hour):
            values = hour_of_day(values)
        return to_unit(values, *interval_of(number, self._columns))


def _unit_scale(part: Part) -> float:
    """What a multiplier of the user's units is times, for entries within [-1, 1]."""
    return part.interval[1] if isinstance(part, Numeric) else 1.0


def _rowwise_products(left: Floats, right: Floats) -> Floats:
    """All products of an entry on the left with one on the right, row by row."""
    return (left[:, :, np.newaxis] * right[:, np.newaxis, :]).reshape(len(right), left.shape[1] * right.shape[1])
