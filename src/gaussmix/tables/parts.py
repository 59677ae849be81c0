"""What a release holds: columns of the table, terms that are derived from them, and how both are read in raw units.

Every entry t of a term is a number within [-1, 1] that is a function of one row's clipped values, and is written as
weight·t. At most one entry of a term's block is not 0, or (splines) their squares add up to less than 1, so that a
term adds weight² to the squared norm of a row, as a column does.

In raw units a term is a sum of such entries, its own and those of the terms that it needs: with x = c + h z,

    x² = c² + h²/3 + 2ch·P₁(z) + (2h²/3)·P₂(z),    x·y = (c + h z)(c' + h' z').

`gaussmix.tables.units.raw_map` collects these sums. They are triangular, so that coefficients can be mapped both ways.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.polynomial import legendre as legendre_series

from gaussmix.errors import DeclarationError
from gaussmix.tables.columns import Boolean, Categorical, Column, Numeric, Vector
from gaussmix.tables.elementary import logarithm
from gaussmix.tables.terms import Base, Hour, Log, Power, Product, Spline, Term, bases_of

__all__ = [
    "Block",
    "EncodedColumn",
    "Entry",
    "Part",
    "encoded_of",
    "entries_of",
    "first_of",
    "interval_of",
    "missing_name",
    "part_of",
]

Kind = Literal["numeric", "boolean", "level", "entry", "intercept", "term", "basis"]
Atom = tuple[str, int]
Key = frozenset[Atom]


@dataclass(frozen=True)
class EncodedColumn:
    """One column of the encoded row.

    Attributes
    ----------
    name : str
        ``"age"``, ``"sex=female"``, ``"scores[3]"``, ``"age^2"``, ``"age:sex=female"``, ``"(intercept)"``.
    source : str or None
        Part of the release that it belongs to: a column of the table or a term; None for the intercept.
    kind : {"numeric", "boolean", "level", "entry", "intercept", "term", "basis"}
        ``"term"`` is within [-1, 1] times the weight, ``"basis"`` (splines) and ``"level"`` within [0, 1] times it.
    centre, scale : float
        The entry is ``(x - centre) / scale`` with x in the user's units: the clipped number, 0 or 1 for a level or
        a Boolean, 1 for the intercept, t for a term.
    levels : tuple of (str, str)
        The column and the label of every level that the entry is about.
    key : frozenset of (str, int)
        The factors that the entry is the product of.
    """

    name: str
    source: str | None
    kind: Kind
    centre: float
    scale: float
    levels: tuple[tuple[str, str], ...] = ()
    key: Key = frozenset()


@dataclass(frozen=True)
class Block:
    """Entries of a term, or the column that says where a number is missing.

    Attributes
    ----------
    weight : float
        Share of the row's norm.
    term : Term or None
        None for the column of missing values: where it is not 0, all entries of the parts that are made of this number
        alone are 0, of which one has its weight at least, and no two numbers share such a part; so all these columns
        together add nothing to the largest norm of a row.
    """

    weight: float
    term: Term | None

    @property
    def squared_norm(self) -> Fraction:
        """What it adds to the largest squared norm of a row."""
        return Fraction(self.weight) ** 2 if self.term is not None else Fraction(0)


Part = Numeric | Boolean | Categorical | Vector | Block


def missing_name(name: str) -> str:
    """Of the column that says where a number is missing."""
    return f"{name}=(missing)"


def part_of(term: Term, columns: Mapping[str, Column], weight: float) -> Part:
    """What a term is in a release; a logarithm or an hour is a number with bounds of its own."""
    _check(term, columns)
    if isinstance(term, Log | Hour):
        lower, upper = _bounds(term, columns)
        return Numeric(lower, upper, weight=weight)
    return Block(weight, term)


def _check(term: Term, columns: Mapping[str, Column]) -> None:
    for name in bases_of(term):
        if name not in columns:
            raise DeclarationError(f"Term {term.text!r}: column {name!r} is not declared. Declare it with its bounds.")
        if isinstance(columns[name], Vector):
            raise DeclarationError(f"Term {term.text!r}: column {name!r} is a vector, of which no terms are made.")
    if isinstance(term, Product):
        if len(set(bases_of(term))) < len(bases_of(term)):
            raise DeclarationError(f"Term {term.text!r}: a column occurs twice. Write poly(…, 2) for a square.")
        for factor in term.factors:
            _check(factor, columns)
    elif not isinstance(term, Base):
        (name,) = bases_of(term)
        column = columns[name]
        if not isinstance(column, Numeric):
            raise DeclarationError(f"Term {term.text!r}: column {name!r} is no number.")
        if isinstance(term, Power | Spline):
            _check(term.of, columns)
        if isinstance(term, Log) and not column.lower > 0:
            raise DeclarationError(
                f"Term {term.text!r}: the logarithm needs a positive lower bound, and {name!r} has {column.lower:g}. "
                "Declare the smallest value that is told apart; what is below is read as it."
            )
        if isinstance(term, Hour) and column.origin is None:
            raise DeclarationError(f"Term {term.text!r}: column {name!r} is no time. Declare an origin for it.")


def _bounds(term: Base | Log | Hour, columns: Mapping[str, Column]) -> tuple[float, float]:
    column = columns[bases_of(term)[0]]
    if not isinstance(column, Numeric):  # a Boolean
        return 0.0, 1.0
    if isinstance(term, Hour):
        return 0.0, 24.0
    if isinstance(term, Log):
        low, high = logarithm(np.array([column.lower, column.upper])).tolist()
        return low, high
    return column.lower, column.upper


def interval_of(term: Base | Log | Hour, columns: Mapping[str, Column]) -> tuple[float, float]:
    """Centre and half range of a number."""
    lower, upper = _bounds(term, columns)
    return lower / 2 + upper / 2, upper / 2 - lower / 2


# ---------------------------------------------------------------------------------------------------------------
# Entries
@dataclass(frozen=True)
class Entry:
    """One entry t of a term: its name, its factors, its levels, and its raw value as a sum of entries."""

    name: str
    key: Key
    kind: Kind
    levels: tuple[tuple[str, str], ...]
    raw: Mapping[Key, float]


def entries_of(term: Term, columns: Mapping[str, Column]) -> list[Entry]:
    """Return the entries of a term, in the order of the encoded row."""
    if isinstance(term, Product):
        own = [entries_of(factor, columns)[first_of(factor, columns) :] for factor in term.factors]
        return [_times(chosen) for chosen in itertools.product(*own)]
    if isinstance(term, Spline):
        keys = [frozenset({(term.text, i)}) for i in range(term.size)]
        return [Entry(f"{term.text}[{i + 1}]", key, "basis", (), {key: 1.0}) for i, key in enumerate(keys)]
    if isinstance(term, Power):
        return [Entry(term.text, _power_key(term.of, term.degree), "term", (), _power(term, columns))]
    if isinstance(term, Base) and isinstance(column := columns[term.name], Categorical):
        found = []
        for i, label in enumerate(column.labels):
            key = frozenset({(term.text, i)})
            found.append(Entry(f"{term.name}={label}", key, "level", ((term.name, label),), {key: 1.0}))
        return found
    centre, half = interval_of(term, columns)
    key = _power_key(term, 1)
    name = term.name if isinstance(term, Base) else term.text
    return [Entry(name, key, "term", (), {frozenset(): centre, key: half})]


def first_of(factor: Term, columns: Mapping[str, Column]) -> int:
    """The first entry of a factor that products are made with.

    Levels add up to 1, so that products with all of them would add up to the other factors, which the release has: a
    direction in which rows have nothing and noise has all. The first level is left out, unless unknown values are 0 in
    all levels.
    """
    column = columns[factor.name] if isinstance(factor, Base) else None
    return int(isinstance(column, Categorical) and column.unknown != "zero" and len(column.labels) > 1)


def _power_key(of: Base | Log | Hour, degree: int) -> Key:
    return frozenset({(of.text if degree == 1 else Power(of, degree).text, 0)})


def _power(term: Power, columns: Mapping[str, Column]) -> dict[Key, float]:
    """xᵈ = (c + h z)ᵈ in Legendre polynomials of z."""
    centre, half = interval_of(term.of, columns)
    power = np.polynomial.Polynomial([centre, half]) ** term.degree
    series = legendre_series.poly2leg(power.coef)
    return {frozenset(): float(series[0])} | {
        _power_key(term.of, j): float(series[j]) for j in range(1, term.degree + 1)
    }


def _times(entries: tuple[Entry, ...]) -> Entry:
    raw: dict[Key, float] = {frozenset(): 1.0}
    for entry in entries:
        product: dict[Key, float] = {}
        for (left, a), (right, b) in itertools.product(raw.items(), entry.raw.items()):
            product[left | right] = product.get(left | right, 0.0) + a * b
        raw = product
    kinds = {entry.kind for entry in entries}
    kind: Kind = "term" if "term" in kinds else "basis" if "basis" in kinds else "level"
    key: Key = frozenset().union(*(entry.key for entry in entries))
    levels = tuple(level for entry in entries for level in entry.levels)
    return Entry(":".join(entry.name for entry in entries), key, kind, levels, raw)


def encoded_of(name: str, part: Part, columns: Mapping[str, Column]) -> list[EncodedColumn]:
    """The encoded columns of one part of a release."""
    if isinstance(part, Block):
        if part.term is None:
            return [EncodedColumn(name, name, "level", 0.0, 1 / part.weight, (), frozenset({(name, 0)}))]
        entries = entries_of(part.term, columns)
        return [EncodedColumn(own.name, name, own.kind, 0.0, 1 / part.weight, own.levels, own.key) for own in entries]
    own = Base(name).text if name in columns else name
    if isinstance(part, Categorical):
        return [
            EncodedColumn(
                f"{name}={label}", name, "level", 0.0, 1 / part.weight, ((name, label),), frozenset({(own, i)})
            )
            for i, label in enumerate(part.labels)
        ]
    if isinstance(part, Vector):
        return [
            EncodedColumn(f"{name}[{i}]", name, "entry", centre, half / part.weight, (), frozenset({(own, i)}))
            for i, (centre, half) in enumerate(part.intervals)
        ]
    centre, half = part.interval
    kind: Kind = "boolean" if isinstance(part, Boolean) else "numeric"
    return [EncodedColumn(name, name, kind, centre, half / part.weight, (), frozenset({(own, 0)}))]
