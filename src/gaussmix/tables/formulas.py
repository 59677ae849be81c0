"""Formulas: which column is explained, by which columns and terms. Only read, never evaluated.

>>> read_formula("log(wage) ~ poly(experience, 2) + ethnicity*smsa")
Formula(target='log(wage)', on=('poly(experience, 2)', 'ethnicity', 'smsa', 'ethnicity:smsa'))

formulaic's parser takes formulas apart, as R and patsy have them; what the terms mean is
:mod:`gaussmix.tables.terms`'s to say, and nothing in a formula is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gaussmix.errors import ArgumentError, ArgumentTypeError, DeclarationError, MissingPackageError
from gaussmix.tables.releasing import name_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.terms import Base, bases_of, needs_of, parse_terms

__all__ = ["Formula", "declared_schema", "is_formula", "read_formula", "response_and_predictors", "schema_of_formula"]


@dataclass(frozen=True)
class Formula:
    """A target, and what explains it; None for all others."""

    target: str
    on: tuple[str, ...] | None


def is_formula(text: object) -> bool:
    """Whether a text is a formula, and not the name of a column."""
    return isinstance(text, str) and "~" in text


def read_formula(text: str) -> Formula:
    """Take a formula apart.

    Parameters
    ----------
    text : str
        ``"target ~ a + b:c"``: one target, and terms joined by ``+``, ``:`` and ``*``; ``"target ~ ."`` is all others.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"formula must be a string, got {type(text).__name__}.")
    left, tilde, right = text.partition("~")
    if not tilde or "~" in right:
        raise ArgumentError(f"formula must have the form 'target ~ a + b', got {text!r}.")
    target = _terms(left, text)
    if len(target) != 1:
        raise ArgumentError(f"formula must explain one column, got {text!r}.")
    if right.strip() == ".":
        return Formula(target[0], None)
    on = _terms(right, text)
    if not on:
        raise ArgumentError(f"formula must name what explains the target, got {text!r}.")
    return Formula(target[0], on)


def _terms(side: str, whole: str) -> tuple[str, ...]:
    """Texts of the terms of one side, without the intercept, which has to be there."""
    try:
        from formulaic.errors import FormulaParsingError
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise MissingPackageError(
            'Formulas need the package formulaic: pip install "gaussmix[formulas]". Or name the columns in on= and '
            "the terms in the schema."
        ) from None
    try:
        found: Any = DefaultFormulaParser().get_terms(side)
    except (FormulaParsingError, SyntaxError, ValueError, TypeError, RecursionError):
        found = None
    terms = list(found) if isinstance(found, Iterable) and not hasattr(found, "lhs") else [found]
    if not all(hasattr(term, "factors") for term in terms):
        raise ArgumentError(f"formula cannot be read: {whole!r}. Join columns and terms by +, : and *.")
    texts = [":".join(_text(factor) for factor in term.factors) for term in terms]
    if "1" not in texts:
        raise ArgumentError(f"formula leaves the intercept out, which every model of a release has: {whole!r}.")
    return tuple(text for text in texts if text != "1")


def _text(factor: Any) -> str:
    """A name as it is quoted in terms, or what is written about it."""
    return Base(factor.expr).text if factor.eval_method.name == "LOOKUP" else str(factor.expr)


def schema_of_formula(schema: Schema, formula: str) -> Schema:
    """The columns and terms of a formula, from declared columns: what is not in it is not in the release.

    Columns that only terms are made of are read, and not released themselves.
    """
    read = read_formula(formula)
    if read.on is None:
        raise DeclarationError("formula: name what explains the target, for these are the release's columns.")
    texts = (read.target, *read.on)
    terms = [term for text in texts for term in parse_terms(text, schema.columns)]
    released = {name_of(need) for term in terms for need in needs_of(term) if isinstance(need, Base)}
    used = {name for term in terms for name in bases_of(term)}
    absent = [name for name in used if name not in schema.columns]
    if absent:
        raise DeclarationError(
            f"formula: column {min(absent)!r} is not declared. Declare it in the schema, with its bounds or levels."
        )
    columns = {name: column for name, column in schema.columns.items() if name in used or name == schema.weight}
    own = {name_of(need): 1.0 for term in terms for need in needs_of(term) if not isinstance(need, Base)}
    weights = {name: schema.terms.get(name, weight) for name, weight in own.items()}
    hidden = tuple(name for name in columns if name not in released and name != schema.weight)
    return replace(schema, columns=columns, terms=weights, only_in_terms=hidden)


def declared_schema(
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str],
    *,
    formula: str | None = None,
    weight: str | None = None,
) -> Schema:
    """A schema, with the column that weighs its rows, cut to the columns and terms of a formula."""
    declared = Schema.of(schema) if weight is None else Schema.of(schema, weight=weight)
    return declared if formula is None else schema_of_formula(declared, formula)


def response_and_predictors(target: str, on: Sequence[str] | None) -> tuple[str, Sequence[str] | None]:
    """Return the response and the predictors of a model, from a formula where one is given."""
    if not is_formula(target):
        return target, on
    if on is not None:
        raise ArgumentError("A formula says what explains its target: leave on= out.")
    formula = read_formula(target)
    return formula.target, formula.on
