"""Which columns and terms a release holds, in which order and with which weights; and how users name them.

A term brings along the terms that it needs (:func:`gaussmix.tables.terms.needs_of`): ``poly(age, 2)`` is ``age`` and
``age^2``, ``age:sex`` needs both of its columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from gaussmix.errors import ArgumentError, ArgumentTypeError, DeclarationError
from gaussmix.tables.columns import NOT_FROM_DATA, Column, Numeric, checked_weight
from gaussmix.tables.parts import Block, Part, missing_name, part_of
from gaussmix.tables.terms import Base, Product, Term, bases_of, needs_of, parse_terms

__all__ = ["check_weight", "name_of", "parts_of", "read_terms", "resolved"]


def name_of(term: Term) -> str:
    """Of the part of a release that a term is."""
    return term.name if isinstance(term, Base) else term.text


def read_terms(declared: Mapping[str, float] | Sequence[str], columns: Mapping[str, Column]) -> dict[str, float]:
    """Names and weights of all terms, each after those that it needs; columns as they stand are none."""
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


def check_weight(weight: str | None, columns: Mapping[str, Column]) -> None:
    """The column of weights must have a declared upper bound, and none below 0."""
    column = None if weight is None else columns.get(weight)
    if weight is not None and (
        not isinstance(column, Numeric) or column.lower != 0 or column.missing == "indicator" or column.origin
    ):
        raise DeclarationError(
            f"weight: {weight!r} must be a numeric column with bounds [0, largest weight], and no indicator of missing "
            f"values. {NOT_FROM_DATA}"
        )


def parts_of(
    columns: Mapping[str, Column], terms: Mapping[str, float], only_in_terms: Sequence[str], weight: str | None
) -> dict[str, Part]:
    """All parts of a release, by name."""
    derived = {name: term for name in terms for term in parse_terms(name, ())}
    used = {name for term in derived.values() for name in bases_of(term)}
    for name in only_in_terms:
        if name not in columns or name not in used or name == weight:
            raise DeclarationError(f"only_in_terms: {name!r} is no column that a term is made of.")
    if weight in used:
        raise DeclarationError(f"weight: terms are made of {weight!r}, which multiplies the rows.")
    found: dict[str, Part] = {
        name: column for name, column in columns.items() if name != weight and name not in only_in_terms
    }
    for name, term in derived.items():
        lacking = [name_of(needed) for needed in needs_of(term) if isinstance(needed, Base)]
        lacking = [base for base in lacking if base in only_in_terms]
        if lacking:
            raise DeclarationError(
                f"only_in_terms: {name!r} needs {lacking[0]!r} in the release. Take it out of only_in_terms."
            )
        _refuse_taken(name, columns, "a term")
        found[name] = part_of(term, columns, terms[name])
    if not found:
        raise DeclarationError("columns must hold one that is released: all are used as weights or in terms only.")
    return found | _missing_parts(columns, derived, found)


def _missing_parts(
    columns: Mapping[str, Column], derived: Mapping[str, Term], parts: Mapping[str, Part]
) -> dict[str, Part]:
    """Where numbers are missing: a column each, of the largest weight among the parts that are the number's alone.

    Parts of several numbers do not count: where both are missing, both columns would take the place of one product.
    """
    found: dict[str, Part] = {}
    for name, column in columns.items():
        if isinstance(column, Numeric) and column.missing == "indicator":
            own = [part.weight for other, part in parts.items() if _bases(other, derived) == (name,)]
            if not own:
                raise DeclarationError(f"Column {name!r}: missing numbers need a part of its own in the release.")
            _refuse_taken(missing_name(name), columns, "the indicator of missing values")
            found[missing_name(name)] = Block(max(own), None)
    return found


def _refuse_taken(name: str, columns: Mapping[str, Column], what: str) -> None:
    """Also columns that are weights or in terms only: a part is read by its name."""
    if name in columns:
        raise DeclarationError(f"A column and {what} would both be called {name!r}. Rename the column.")


def _bases(name: str, derived: Mapping[str, Term]) -> tuple[str, ...]:
    return bases_of(derived[name]) if name in derived else (name,)


def resolved(text: str, parts: Mapping[str, Part], columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Parts that a column or a term stands for."""
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
    """The name of a term, in whatever order the factors of a product come."""
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
        meant = f"did you mean {close[0]!r}? It" if close else "it"
        return f"Column {text!r} is not in the release; {meant} has {', '.join(parts)}."
    if isinstance(term, Base):
        return f"Column {text!r} is in no release of this schema by itself: only terms or weights are made of it."
    return (
        f"Term {text!r} is not in the release, and cannot be had from it afterwards: {name_of(term)!r} would have to "
        f"be among the schema's terms before the release is made. It has {', '.join(parts)}."
    )
