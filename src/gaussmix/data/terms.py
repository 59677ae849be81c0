"""Terms: columns derived from the columns of a table, their syntax, their values and their place in a release.

>>> [term.text for term in parse_terms("poly(experience, 2):sex", ["experience", "sex"])]
['experience:sex', 'experience^2:sex']

A term is written as in a formula: ``log(wage)``, ``poly(experience, 2)`` (the column and its square), ``spline(age,
4)``, ``hour(time)``, ``age:sex``; ``C(sex)`` is ``sex``, whose levels are declared. Names with other characters than
letters are quoted in backticks. Nothing is evaluated. A term includes the terms that it needs (:func:`needs_of`):
``poly(age, 2)`` is ``age`` and ``age^2``, ``age:sex`` needs both of its columns.

Values of terms are **sensitive**. Each is a function of one row's clamped values and of declared bounds only. Where a
number is missing and has an indicator, all entries of its terms are 0. Only +, -, ×, ÷, comparisons and exact
operations on exponents are used, elementwise and never fused, so that a number gives the same bits in any array and on
every IEEE machine; NumPy's logarithm does not guarantee this.

>>> x = np.linspace(-1, 1, 5)
>>> legendre(2, x).tolist()
[1.0, -0.125, -0.5, -0.125, 1.0]
>>> float(logarithm(np.array([8.0]))[0]) / 3 == 0.6931471805599453
True

Every entry t of a term lies in [-1, 1] and is encoded as weight·t. At most one entry of a term's block is not 0, or
(splines) their squares add up to less than 1, so a term adds weight² to the squared norm of a row, as a column does.

In original units a term is a sum of such entries, its own and those of the terms that it needs: with x = c + h z,

    x² = c² + h²/3 + 2ch·P₁(z) + (2h²/3)·P₂(z),    x·y = (c + h z)(c' + h' z').

`gaussmix.data.units.raw_map` collects these sums. They are triangular, so coefficients can be mapped both ways.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.polynomial import legendre as legendre_series
from numpy.typing import NDArray

from gaussmix._types import Floats
from gaussmix.data.columns import Boolean, Categorical, Column, Numeric, Vector, checked_weight
from gaussmix.errors import ArgumentError, ArgumentTypeError, DeclarationError

MOST_FACTORS = 4

LARGEST_DEGREE = 12
LARGEST_SPLINE = 100
HOW_TO_WRITE = 'Write "log(wage)", "poly(age, 2)", "spline(age, 4)", "hour(time)" or "age:sex".'
_TOKEN = re.compile(r"\s*(?:`([^`]+)`|([():,^])|([^`():,^]+))")
_PLAIN = re.compile(r"[^`():,^~+*/|\s](?:[^`():,^~+*/|]*[^`():,^~+*/|\s])?")


class _Written:
    @property
    def text(self) -> str:
        """The term as text."""
        match self:
            case Base(name):
                return name if _PLAIN.fullmatch(name) else f"`{name}`"
            case Log(of) | Hour(of):
                return f"{type(self).__name__.lower()}({of.text})"
            case Power(of, degree):
                return f"{of.text}^{degree}"
            case Spline(of, size):
                return f"spline({of.text}, {size})"
            case Product(factors):
                return ":".join(factor.text for factor in factors)
        raise TypeError(f"{type(self).__name__} is not a term.")


@dataclass(frozen=True)
class Base(_Written):
    """A column of the table."""

    name: str


@dataclass(frozen=True)
class Log(_Written):
    """The natural logarithm of a number whose declared lower bound is positive."""

    of: Base


@dataclass(frozen=True)
class Hour(_Written):
    """Hours since midnight of a time."""

    of: Base


@dataclass(frozen=True)
class Power(_Written):
    """A power of a number, of degree 2 or more, encoded as the Legendre polynomial of that degree."""

    of: Base | Log | Hour
    degree: int


@dataclass(frozen=True)
class Spline(_Written):
    """Cubic B-splines of a number, with knots that cut its declared interval into equal parts."""

    of: Base | Log | Hour
    size: int


@dataclass(frozen=True)
class Product(_Written):
    """The products of all entries of its factors."""

    factors: tuple[Base | Log | Hour | Power | Spline, ...]

    def __post_init__(self) -> None:
        if len(self.factors) > MOST_FACTORS:
            raise DeclarationError(f"A product must have at most {MOST_FACTORS} factors, got {len(self.factors)}.")


Factor = Base | Log | Hour | Power | Spline
Term = Factor | Product


def bases_of(term: Term) -> tuple[str, ...]:
    """Return the columns of the table in a term."""
    if isinstance(term, Base):
        return (term.name,)
    if isinstance(term, Product):
        return tuple(name for factor in term.factors for name in bases_of(factor))
    return bases_of(term.of)


def needs_of(term: Term) -> tuple[Term, ...]:
    """Return the terms that a model with this term must contain, itself last.

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
    """Return the terms that a text stands for, several for a polynomial; ``columns`` are names as they stand."""
    if text in columns:
        return (Base(text),)
    return _Reader(text, columns).terms()


class _Reader:
    """A parser of one term."""

    def __init__(self, text: str, columns: Collection[str] = ()) -> None:
        self.text, self.columns, self.tokens, self.at = text, columns, [], 0
        position, text = 0, text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.wrong()
            self.tokens.append((found.lastindex, found[found.lastindex or 0].strip()))
            position = found.end()

    tokens: list[tuple[int | None, str]]

    def wrong(self, why: str = "") -> DeclarationError:
        return DeclarationError(f"{self.text!r} is not a valid term{why}. {HOW_TO_WRITE}")

    def take(self, mark: str) -> bool:
        """Consume a token if it comes next, and return whether it did."""
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
        """Parse a name, a function of a name, or a power; a polynomial gives several factors."""
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
        if function == "C":  # as in patsy and formulaic: levels are declared, so that the column is one already
            self.check_levels(inner)
            found: tuple[Factor, ...] = (inner,)
        elif function in ("log", "hour"):
            if not isinstance(inner, Base):
                raise self.wrong(f": the argument of {function} must be a column")
            found = (Log(inner) if function == "log" else Hour(inner),)
        elif function in ("poly", "spline"):
            if not self.take(","):
                raise self.wrong(f": {function} requires a number as its second argument")
            if function == "poly":
                degree = self.integer(1, LARGEST_DEGREE)
                found = (inner, *(Power(inner, power) for power in range(2, degree + 1)))
            else:
                found = (Spline(inner, self.integer(3, LARGEST_SPLINE)),)
        else:
            raise self.wrong(f": unknown function {function!r}")
        if not self.take(")"):
            raise self.wrong()
        return found

    def check_levels(self, inner: Factor) -> None:
        """Reject a number as a factor: its levels are not known, and it would have one slope."""
        declared = (
            self.columns.get(inner.name) if isinstance(inner, Base) and isinstance(self.columns, Mapping) else None
        )
        if isinstance(declared, Numeric):
            raise DeclarationError(
                f"{self.text}: {inner.text} is declared as a number. Declare its levels before the release to use C()."
            )

    def number_in(self, found: tuple[Factor, ...]) -> Base | Log | Hour:
        if len(found) != 1 or not isinstance(found[0], Base | Log | Hour):
            raise self.wrong(": the argument of poly and spline must be a column, its logarithm or its hour")
        return found[0]

    def integer(self, least: int, most: int) -> int:
        kind, word = self.tokens[self.at] if self.at < len(self.tokens) else (None, "")
        self.at += 1
        if kind != 3 or not re.fullmatch(r"[0-9]{1,4}", word) or not least <= int(word) <= most:
            raise self.wrong(f": its second argument must be an integer from {least} to {most}")
        return int(word)


_LN2_HIGH = 0.693147180369123816490  # 32 bits: times an exponent it is exact
_LN2_LOW = 1.90821492927058770002e-10
_ODD = tuple(1 / (2 * k + 1) for k in range(11, 0, -1))  # of the series of artanh, the last term first
_SPLINE_DEGREE = 3
_WITHIN = 1 - 2.0**-40  # more than rounding can add to the squares of splines


def to_unit(x: Floats, centre: float, half_range: float) -> Floats:
    """Return (x - centre) / half range, clamped to [-1, 1]."""
    return np.clip((x - centre) / half_range, -1.0, 1.0)


def logarithm(x: Floats) -> Floats:
    r"""Return the natural logarithm of positive, finite numbers, within two units of the last place.

    With x = m 2ᵉ, m in [√½, √2) and f = (m - 1)/(m + 1),

    .. math:: \log x = e \log 2 + 2 f \sum_{k \ge 0} \frac{f^{2k}}{2k + 1} , \qquad |f| < 0.172 ;

    the terms from k = 12 on are below 2⁻⁶⁴ of the sum.
    """
    m, e = np.frexp(x)
    low = m < math.sqrt(0.5)
    m, e = np.where(low, 2 * m, m), np.where(low, e - 1, e).astype(np.float64)
    f = (m - 1) / (m + 1)
    s = f * f
    series = np.zeros_like(s)
    for coefficient in _ODD:
        series = (series + coefficient) * s
    return np.asarray(e * _LN2_HIGH + (2 * f + (2 * f * series + e * _LN2_LOW)))


_FARTHEST = 40.0  # e⁻⁴⁰ is less than the unit of any score that is not clipped
_LOG2 = math.log(2.0)
_TAYLOR = tuple(1 / math.factorial(k) for k in range(14))  # |x| ≤ log(2)/2: the next term is below 2⁻⁵⁷


def exponential(x: Floats) -> Floats:
    """Return eˣ, x clamped to ±40, with relative error 10⁻¹⁴."""
    x = np.clip(x, -_FARTHEST, _FARTHEST)
    whole = np.rint(x / _LOG2)
    rest = x - whole * _LOG2
    value = np.full_like(rest, _TAYLOR[-1])
    for coefficient in _TAYLOR[-2::-1]:
        value = value * rest
        value = value + coefficient
    return np.asarray(np.ldexp(value, whole.astype(np.int32)))


_HART_ABOVE = (
    3.52624965998911e-02, 0.700383064443688, 6.37396220353165, 33.912866078383, 112.079291497871, 221.213596169931,
    220.206867912376,
)  # fmt: skip
_HART_BELOW = (
    8.83883476483184e-02, 1.75566716318264, 16.064177579207, 86.7807322029461, 296.564248779674, 637.333633378831,
    793.826512519948, 440.413735824752,
)  # fmt: skip
_HART_END = 7.0710678


def normal_probability(x: Floats) -> Floats:
    """Return Φ(x), x clamped to ±7.07, with absolute error 10⁻¹³ (Hart's rational function, West 2005)."""
    x = np.clip(x, -_HART_END, _HART_END)
    size = np.abs(x)
    above, below = np.zeros_like(size), np.zeros_like(size)
    for coefficient in _HART_ABOVE:
        above = above * size
        above = above + coefficient
    for coefficient in _HART_BELOW:
        below = below * size
        below = below + coefficient
    square = size * size
    tail = exponential(-0.5 * square) * above / below
    return np.where(x > 0, 1 - tail, tail)


def legendre(degree: int, z: Floats) -> Floats:
    """Return the Legendre polynomial P_degree at z in [-1, 1], orthogonal to all lower degrees on the interval.

    (j + 1) P_{j+1} = (2j + 1) z P_j - j P_{j-1}.
    """
    before, now = np.ones_like(z), z
    for j in range(1, degree):
        before, now = now, ((2 * j + 1) * z * now - j * before) / (j + 1)
    return np.clip(now, -1.0, 1.0)


def splines(size: int, z: Floats) -> Floats:
    """Return cubic B-splines at z in [-1, 1] except the first, shape (n, size). Their squares add up to less than 1.

    Knots cut the interval into ``size - 2`` equal parts. The functions are not negative and add up to 1 with the one
    that is left out, which the intercept stands for.
    """
    parts, p = size - _SPLINE_DEGREE + 1, _SPLINE_DEGREE
    inner = [-1 + 2 * i / parts for i in range(parts + 1)]
    knots = [-1.0] * p + inner + [1.0] * p
    last = np.minimum((z + 1) * (parts / 2), parts - 1)
    cell = np.maximum(np.floor(last), 0.0)  # 0 to parts - 1; 1 belongs to the last one
    basis = [(cell == i - p).astype(np.float64) for i in range(len(knots) - 1)]
    for degree in range(1, p + 1):
        basis = [
            _ramp(z, knots[i], knots[i + degree]) * basis[i]
            + _ramp(-z, -knots[i + degree + 1], -knots[i + 1]) * basis[i + 1]
            for i in range(len(basis) - 1)
        ]
    return np.asarray(np.clip(np.stack(basis[1:], axis=1), 0.0, 1.0) * _WITHIN)


def _ramp(z: Floats, start: float, end: float) -> Floats:
    """Return a linear ramp from 0 at the start to 1 at the end; 0 if both coincide."""
    return np.asarray((z - start) / (end - start)) if end > start else np.zeros_like(z)


def hour_of_day(days: Floats) -> Floats:
    """Return hours since midnight, from 0 to 24, of a time in days."""
    return np.asarray((days - np.floor(days)) * 24)


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
    """Entries of a term, or a missing-value indicator.

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
        """Contribution to the largest squared norm of a row."""
        return Fraction(self.weight) ** 2 if self.term is not None else Fraction(0)


Part = Numeric | Boolean | Categorical | Vector | Block


def missing_name(name: str) -> str:
    """Return the name of the missing-value indicator of a column."""
    return f"{name}=(missing)"


def part_of(term: Term, columns: Mapping[str, Column], weight: float) -> Part:
    """Return the part of a release for a term; a logarithm or an hour is a number with its own bounds."""
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
            raise DeclarationError(
                f"Term {term.text!r}: column {name!r} is a vector; terms of vectors are not supported."
            )
    if isinstance(term, Product):
        if len(set(bases_of(term))) < len(bases_of(term)):
            raise DeclarationError(f"Term {term.text!r}: a column occurs twice. Write poly(…, 2) for its square.")
        for factor in term.factors:
            _check(factor, columns)
    elif not isinstance(term, Base):
        (name,) = bases_of(term)
        column = columns[name]
        if not isinstance(column, Numeric):
            raise DeclarationError(f"Term {term.text!r}: column {name!r} must be numeric.")
        if isinstance(term, Power | Spline):
            _check(term.of, columns)
        if isinstance(term, Log) and not column.lower > 0:
            raise DeclarationError(
                f"Term {term.text!r}: the lower bound of {name!r} must be positive, got {column.lower:g}. "
                "Declare a positive lower bound; smaller values are clamped to it."
            )
        if isinstance(term, Hour) and column.origin is None:
            raise DeclarationError(f"Term {term.text!r}: column {name!r} must be a time. Declare an origin for it.")


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
    """Return centre and half range of a number."""
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
    """Return the index of the first entry of a factor that is used in products.

    Levels add up to 1, so that products with all of them would add up to the other factors, which the release has: a
    direction in which rows have nothing and noise has all. The first level is left out, unless unknown values are 0 in
    all levels.
    """
    column = columns[factor.name] if isinstance(factor, Base) else None
    return int(isinstance(column, Categorical) and column.unknown != "zero" and len(column.labels) > 1)


def _power_key(of: Base | Log | Hour, degree: int) -> Key:
    return frozenset({(of.text if degree == 1 else Power(of, degree).text, 0)})


def _power(term: Power, columns: Mapping[str, Column]) -> dict[Key, float]:
    """Return xᵈ = (c + h z)ᵈ in Legendre polynomials of z."""
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
    """Return the encoded columns of one part of a release."""
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


@dataclass(frozen=True, repr=False)
class Numbers:
    """Clamped values of a column, and the mask of missing values if the column has an indicator."""

    values: Floats
    absent: NDArray[np.bool_] | None = None


class TermValues:
    """Entries of terms for one block of rows.

    ``numbers`` returns a number or a Boolean of a name in original units, clamped to its bounds; ``levels`` a category
    as zeros and ones, shape (n, labels).
    """

    def __init__(
        self, columns: Mapping[str, Column], numbers: Callable[[str], Numbers], levels: Callable[[str], Floats]
    ) -> None:
        self._columns, self._read_numbers, self._levels = columns, numbers, levels
        self._numbers: dict[str, Numbers] = {}
        self._known: dict[Term, Floats] = {}

    def write(self, out: Floats, name: str, part: Part, multiplier: Floats, limits: Floats) -> None:
        """Write a part of a release that is not a column of the table, scaled and clamped to its limits."""
        half_range = part.interval[1] if isinstance(part, Numeric) else 1.0  # multipliers are for original units
        np.clip(self.entries(name, part) * (multiplier * half_range), -limits, limits, out=out)

    def entries(self, name: str, part: Part) -> Floats:
        """Return entries within [-1, 1], shape (n, entries)."""
        if not isinstance(part, Block):  # a logarithm or an hour
            return self._units(*parse_terms(name, ()))
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
            for factor in term.factors:  # all products of an entry of each factor, row by row
                right = self._units(factor)[:, first_of(factor, self._columns) :]
                found = (found[:, :, np.newaxis] * right[:, np.newaxis, :]).reshape(
                    len(right), found.shape[1] * right.shape[1]
                )
            return found
        if isinstance(term, Base) and isinstance(self._columns[term.name], Categorical):
            return self._levels(term.name)
        own = self._number(bases_of(term)[0])
        number = term.of if isinstance(term, Power | Spline) else term
        values = own.values
        if isinstance(number, Log):
            values = logarithm(values)
        elif isinstance(number, Hour):
            values = hour_of_day(values)
        z = to_unit(values, *interval_of(number, self._columns))
        if isinstance(term, Spline):
            found = splines(term.size, z)
        else:
            found = (legendre(term.degree, z) if isinstance(term, Power) else z)[:, np.newaxis]
        return found if own.absent is None else np.where(own.absent[:, np.newaxis], 0.0, found)


def name_of(term: Term) -> str:
    """Return the name of a term as a part of a release."""
    return term.name if isinstance(term, Base) else term.text


def read_terms(declared: Mapping[str, float] | Sequence[str], columns: Mapping[str, Column]) -> dict[str, float]:
    """Return names and weights of all terms, each after the terms it needs. Plain columns are not terms."""
    if isinstance(declared, str) or not isinstance(declared, Mapping | Sequence):
        raise ArgumentTypeError(f"terms must be a list of terms, got {type(declared).__name__}.")
    found: dict[str, float] = {}
    given = declared if isinstance(declared, Mapping) else dict.fromkeys(declared, 1.0)
    for text, weight in given.items():
        if not isinstance(text, str):
            raise ArgumentTypeError(f"A term must be a string, got {type(text).__name__}.")
        own = checked_weight(weight)
        for term in parse_terms(text, columns):
            for needed in needs_of(term):
                part_of(needed, columns, own)
                if not isinstance(needed, Base) and _same(needed, found, columns) is None:
                    found[name_of(needed)] = own
    return found


def parts_of(
    columns: Mapping[str, Column], terms: Mapping[str, float], only_in_terms: Sequence[str], weight: str | None
) -> dict[str, Part]:
    """Return all parts of a release by name."""
    derived = {name: term for name in terms for term in parse_terms(name, ())}
    used = {name for term in derived.values() for name in bases_of(term)}
    for name in only_in_terms:
        if name not in columns or name not in used or name == weight:
            raise DeclarationError(f"only_in_terms: {name!r} must be a column used in a term.")
    if weight in used:
        raise DeclarationError(f"weight: {weight!r} cannot also be used in terms.")
    found: dict[str, Part] = {
        name: column for name, column in columns.items() if name != weight and name not in only_in_terms
    }
    for name, term in derived.items():
        lacking = [name_of(needed) for needed in needs_of(term) if isinstance(needed, Base)]
        lacking = [base for base in lacking if base in only_in_terms]
        if lacking:
            raise DeclarationError(
                f"only_in_terms: term {name!r} requires column {lacking[0]!r} itself in the release. Remove "
                f"{lacking[0]!r} from only_in_terms."
            )
        _refuse_taken(name, columns, "a term")
        found[name] = part_of(term, columns, terms[name])
    if not found:
        raise DeclarationError(
            "At least one column must be released, but all columns are weights or used only in terms. Declare another "
            "column, or remove one from only_in_terms."
        )
    # Where numbers are missing: a column each, of the largest weight among the parts that are the number's alone. Parts
    # of several numbers do not count: where both are missing, both columns would take the place of one product.
    bases = {name: bases_of(derived[name]) if name in derived else (name,) for name in found}
    missing: dict[str, Part] = {}
    for name, column in columns.items():
        if isinstance(column, Numeric) and column.missing == "indicator":
            own = [part.weight for other, part in found.items() if bases[other] == (name,)]
            if not own:
                raise DeclarationError(
                    f'Column {name!r}: missing="indicator" requires that the release contains the column, or a term '
                    "of this column alone."
                )
            _refuse_taken(missing_name(name), columns, "the indicator of missing values")
            missing[missing_name(name)] = Block(max(own), None)
    return found | missing


def _refuse_taken(name: str, columns: Mapping[str, Column], what: str) -> None:
    """Reject the name of a column, also of a weight or a column used only in terms: parts are found by name."""
    if name in columns:
        raise DeclarationError(f"A column and {what} would both have the name {name!r}. Rename the column.")


def resolved(text: str, parts: Mapping[str, Part], columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the parts that a column or a term stands for."""
    if text in parts:
        return (text,)
    found = []
    for term in parse_terms(text, columns):
        name = _same(term, parts, columns)
        if name is None:
            raise ArgumentError(_absent(text, term, parts, columns))
        found.append(name)
    return tuple(found)


def _same(term: Term, names: Mapping[str, object], columns: Mapping[str, Column]) -> str | None:
    """Return the name of a term, for any order of the factors of a product."""
    if name_of(term) in names:
        return name_of(term)
    if isinstance(term, Product):
        for name in names:
            other = () if name in columns else parse_terms(name, ()) if ":" in name else ()
            if other and isinstance(other[0], Product) and set(other[0].factors) == set(term.factors):
                return name
    return None


def _absent(text: str, term: Term, parts: Mapping[str, Part], columns: Mapping[str, Column]) -> str:
    if isinstance(term, Base) and term.name not in columns:
        close = difflib.get_close_matches(text, parts, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        return (
            f"Column {text!r} is not in the release.{meant} The release has {', '.join(parts)}; columns that were not "
            "released need a new release."
        )
    if isinstance(term, Base):
        return f"Column {text!r} is used only inside terms (or as a weight) and is not itself released."
    return (
        f"Term {text!r} is not in the release: {name_of(term)!r} must be declared in the schema's terms before the "
        f"release is made. The release has {', '.join(parts)}."
    )
