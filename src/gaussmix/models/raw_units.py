r"""Coefficients of terms in raw units: of x and x², where the release has Legendre polynomials of x about its middle.

With x what encoded columns are by their centres and scales, and raw features A x + b (:attr:`Schema.raw_map`), a model
is γ₀ + γᵀx = β₀ + βᵀ(A x + b) for

.. math:: \beta = A^{-\top}\gamma , \qquad \beta_0 = \gamma_0 - b^\top\beta ,

linear, so that intervals go the same way. A is restricted to the features of a model: it must have the lower terms of
each of its terms, or the map would leave the model. Without terms A = I and b = 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import scipy.linalg

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.tables.columns import Numeric
from gaussmix.tables.parts import Block, missing_name
from gaussmix.tables.releasing import name_of
from gaussmix.tables.schema import Schema
from gaussmix.tables.terms import bases_of, needs_of, parse_terms

__all__ = [
    "columns_behind",
    "from_raw",
    "is_marked",
    "needed_parts",
    "parts_without",
    "sub_schema",
    "to_raw",
    "to_raw_of",
]


def to_raw(schema: Schema, indices: Sequence[int], gamma: Floats, constant: float) -> tuple[Floats, float]:
    """β and β₀ of γ on some encoded columns, and γ₀."""
    if not schema.terms:
        return gamma, constant
    A, b = _restricted(schema, indices)
    beta = scipy.linalg.solve(A.T, gamma)
    return beta, constant - float(b @ beta)


def from_raw(schema: Schema, indices: Sequence[int], beta: Floats, constant: float) -> tuple[Floats, float]:
    """γ and γ₀ of β on some encoded columns, and β₀."""
    if not schema.terms:
        return beta, constant
    A, b = _restricted(schema, indices)
    return A.T @ beta, constant + float(b @ beta)


def to_raw_of(schema: Schema, rows: Floats) -> Floats:
    """The map of (γ₀, γ) to (β₀, β), shape (d, d), of features that are sums of encoded columns; the intercept first.

    ``rows``, shape (d, m), says which. Columns of one feature are alike: levels that are taken as one.
    """
    d = len(rows)
    if not schema.terms:
        return np.eye(d)
    A, b = schema.raw_map
    first = [int(np.flatnonzero(row)[0]) for row in rows[1:]]
    back = np.linalg.inv((rows[1:] @ A)[:, first].T)
    found = np.eye(d)
    found[1:, 1:] = back
    found[0, 1:] = -(rows[1:] @ b) @ back
    return found


def _restricted(schema: Schema, indices: Sequence[int]) -> tuple[Floats, Floats]:
    A, b = schema.raw_map
    own = list(indices)
    return A[np.ix_(own, own)], b[own]


# ---------------------------------------------------------------------------------------------------------------
# Which parts go together
def columns_behind(schema: Schema, part: str) -> tuple[str, ...]:
    """Columns of the table that a part of a release is made of."""
    if part in schema.columns:
        return (part,)
    if isinstance(found := schema.parts[part], Block) and found.term is None:
        return (part.removesuffix(missing_name("")),)
    return tuple(name for term in parse_terms(part, ()) for name in bases_of(term))


def needed_parts(schema: Schema, chosen: Sequence[str]) -> list[str]:
    """The parts of a model, and where the numbers in them are missing; a term without its lower ones is an error."""
    for part in chosen:
        for term in () if part in schema.columns else parse_terms(part, ()) if part in schema.terms else ():
            lacking = [name for need in needs_of(term) for name in schema.resolve(name_of(need)) if name not in chosen]
            if lacking:
                raise ArgumentError(
                    f"Term {part!r} needs {', '.join(map(repr, lacking))} in the model as well: "
                    "write poly(…) for powers, a*b for products."
                )
    marks = [missing_name(name) for part in chosen for name in columns_behind(schema, part)]
    return list(dict.fromkeys([*chosen, *(mark for mark in marks if mark in schema.parts)]))


def parts_without(schema: Schema, targets: Collection[str]) -> list[str]:
    """All parts that share no column of the table with the targets."""
    taken = {name for target in targets for name in columns_behind(schema, target)}
    return [part for part in schema.parts if not taken & set(columns_behind(schema, part))]


def is_marked(schema: Schema, part: str) -> bool:
    """Whether values of a part may be missing, with a column that says so."""
    columns = (schema.columns[name] for name in columns_behind(schema, part))
    return any(isinstance(column, Numeric) and column.missing == "indicator" for column in columns)


def sub_schema(schema: Schema, parts: Collection[str]) -> Schema:
    """Of some parts alone, and without weights: what predictions read."""
    if not schema.terms and len(schema.parts) == len(schema.columns):
        return Schema({name: column for name, column in schema.columns.items() if name in parts}, intercept=0.0)
    behind = {name for part in parts for name in columns_behind(schema, part)}
    terms = {name: weight for name, weight in schema.terms.items() if name in parts}
    columns = {name: column for name, column in schema.columns.items() if name in behind}
    hidden = [name for name in columns if name not in parts]
    return Schema(columns, schema.intercept if terms else 0.0, None, terms, hidden)
