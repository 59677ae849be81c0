"""Terms: what may be derived from the columns of a table, how it is written, and what it needs beside it.

>>> [term.text for term in parse_terms("poly(experience, 2):sex", ["experience", "sex"])]
['experience:sex', 'experience^2:sex']

A term is written as in a formula: ``log(wage)``, ``poly(experience, 2)`` (the column and its square), ``spline(age,
4)``, ``hour(time)``, ``age:sex``. Names with other characters than letters go into backticks. Nothing is evaluated.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from gaussmix.errors import DeclarationError

__all__ = ["Base", "Hour", "Log", "Power", "Product", "Spline", "Term", "bases_of", "needs_of", "parse_terms"]

MOST_FACTORS = 4

LARGEST_DEGREE = 12
LARGEST_SPLINE = 100
HOW_TO_WRITE = 'Write "log(wage)", "poly(age, 2)", "spline(age, 4)", "hour(time)" or "age:sex".'
_TOKEN = re.compile(r"\s*(?:`([^`]+)`|([():,^])|([^`():,^]+))")
_PLAIN = re.compile(r"[^`():,^~+*/|\s](?:[^`():,^~+*/|]*[^`():,^~+*/|\s])?")


@dataclass(frozen=True)
class Base:
    """A column of the table."""

    name: str

    @property
    def text(self) -> str:
        """How it is written."""
        return self.name if _PLAIN.fullmatch(self.name) else f"`{self.name}`"


@dataclass(frozen=True)
class Log:
    """The natural logarithm of a number whose declared lower bound is positive."""

    of: Base

    @property
    def text(self) -> str:
        """How it is written."""
        return f"log({self.of.text})"


@dataclass(frozen=True)
class Hour:
    """Hours since midnight of a time."""

    of: Base

    @property
    def text(self) -> str:
        """How it is written."""
        return f"hour({self.of.text})"


@dataclass(frozen=True)
class Power:
    """A power of a number, of degree 2 or more, encoded as the Legendre polynomial of that degree."""

    of: Base | Log | Hour
    degree: int

    @property
    def text(self) -> str:
        """How it is written."""
        return f"{self.of.text}^{self.degree}"


@dataclass(frozen=True)
class Spline:
    """Cubic B-splines of a number, with knots that cut its declared interval into equal parts."""

    of: Base | Log | Hour
    size: int

    @property
    def text(self) -> str:
        """How it is written."""
        return f"spline({self.of.text}, {self.size})"


@dataclass(frozen=True)
class Product:
    """The products of all entries of its factors."""

    factors: tuple[Base | Log | Hour | Power | Spline, ...]

    def __post_init__(self) -> None:
        if len(self.factors) > MOST_FACTORS:
            raise DeclarationError(f"A product has at most {MOST_FACTORS} factors: it needs all products of fewer.")

    @cached_property
    def text(self) -> str:
        """How it is written."""
        return ":".join(factor.text for factor in self.factors)


Factor = Base | Log | Hour | Power | Spline
Term = Factor | Product


def bases_of(term: Term) -> tuple[str, ...]:
    """Columns of the table that a term is made of."""
    if isinstance(term, Base):
        return (term.name,)
    if isinstance(term, Product):
        return tuple(name for factor in term.factors for name in bases_of(factor))
    return bases_of(term.of)


def needs_of(term: Term) -> tuple[Term, ...]:
    """The terms that a model with this one has to have as well, itself last.

    A square is encoded about the middle of its column's interval, so that x² in the user's units needs x; a product
    needs all products of fewer factors.
    """
    if isinstance(term, Power):
        return (term.of, *(Power(term.of, degree) for degree in range(2, term.degree + 1)))
    if not isinstance(term, Product):
        return (term,)
    found: list[Term] = []
    for size in range(1, len(term.factors) + 1):
        for chosen in itertools.combinations(term.factors, size):
            lower = itertools.product(*map(needs_of, chosen))
            found += [_product([factor for factor in own if not isinstance(factor, Product)]) for own in lower]
    return tuple(found)


def _product(factors: Sequence[Factor]) -> Term:
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def parse_terms(text: str, columns: Collection[str]) -> tuple[Term, ...]:
    """The terms that a text stands for; several for a polynomial.

    Parameters
    ----------
    text : str
    columns : collection of str
        Names that are columns as they stand, whatever characters they have.
    """
    if text in columns:
        return (Base(text),)
    return _Reader(text).terms()


class _Reader:
    """Reads one term from its text."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, [], 0
        position, text = 0, text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.wrong()
            self.tokens.append((found.lastindex, found[found.lastindex or 0].strip()))
            position = found.end()

    tokens: list[tuple[int | None, str]]

    def wrong(self, why: str = "") -> DeclarationError:
        return DeclarationError(f"{self.text!r} is no term{why}. {HOW_TO_WRITE}")

    def take(self, mark: str) -> bool:
        """Whether a mark comes next; it is then behind us."""
        if self.at < len(self.tokens) and self.tokens[self.at] == (2, mark):
            self.at += 1
            return True
        return False

    def terms(self) -> tuple[Term, ...]:
        factors = [self.factor()]
        while self.take(":"):
            factors.append(self.factor())
        if self.at < len(self.tokens):
            raise self.wrong()
        return tuple(_product(chosen) for chosen in itertools.product(*factors))

    def factor(self) -> tuple[Factor, ...]:
        """A name, a function of one, or a power; several for a polynomial."""
        if self.at == len(self.tokens) or self.tokens[self.at][0] == 2:
            raise self.wrong()
        kind, word = self.tokens[self.at]
        self.at += 1
        found = self.call(word) if kind == 3 and self.take("(") else (Base(word),)
        if self.take("^"):
            return (Power(self.number_in(found), self.integer(2, LARGEST_DEGREE)),)
        return found

    def call(self, function: str) -> tuple[Factor, ...]:
        inner = self.number_in(self.factor())
        if function in ("log", "hour"):
            if not isinstance(inner, Base):
                raise self.wrong(f": {function} is of a column")
            found: tuple[Factor, ...] = (Log(inner) if function == "log" else Hour(inner),)
        elif function in ("poly", "spline"):
            if not self.take(","):
                raise self.wrong(f": {function} needs a number after a comma")
            if function == "poly":
                degree = self.integer(1, LARGEST_DEGREE)
                found = (inner, *(Power(inner, power) for power in range(2, degree + 1)))
            else:
                found = (Spline(inner, self.integer(3, LARGEST_SPLINE)),)
        else:
            raise self.wrong(f": there is no function {function!r}")
        if not self.take(")"):
            raise self.wrong()
        return found

    def number_in(self, found: tuple[Factor, ...]) -> Base | Log | Hour:
        if len(found) != 1 or not isinstance(found[0], Base | Log | Hour):
            raise self.wrong(": polynomials and splines are of a column, its logarithm or its hour")
        return found[0]

    def integer(self, least: int, most: int) -> int:
        kind, word = self.tokens[self.at] if self.at < len(self.tokens) else (None, "")
        self.at += 1
        if kind != 3 or not re.fullmatch(r"[0-9]{1,4}", word) or not least <= int(word) <= most:
            raise self.wrong(f": its number must be an integer from {least} to {most}")
        return int(word)
