"""What the page computes from: the numbers of a release and its declared columns, in plain values for JSON.

**Private**: all of it is in the release's file, or a function of it. Matrices go as base64 of little-endian float64,
lower triangles row by row, so that a browser has the same bits. Intervals, tables and predictions need the moment that
intervals come from and the law of its noise (:mod:`gaussmix.models.noisy`): the last pass, or the sketch; and earlier
passes where levels are counted in them (:mod:`gaussmix.models.whole_rows`).
"""

from __future__ import annotations

import base64
import itertools
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from gaussmix._types import Floats
from gaussmix.errors import ArgumentError
from gaussmix.models.fits import part_name
from gaussmix.models.noisy import NoisyMoment
from gaussmix.models.raw_units import columns_behind, is_marked, needed_parts, parts_without
from gaussmix.models.release import Release
from gaussmix.models.row_counts import row_count
from gaussmix.models.transcript import Statistic, Transcript
from gaussmix.models.user_units import constant_row
from gaussmix.models.whole_rows import moment_of_pass, whole_in
from gaussmix.tables.columns import Boolean, Categorical, Numeric, Vector
from gaussmix.tables.parts import Part
from gaussmix.tables.releasing import name_of
from gaussmix.tables.schema import INTERCEPT, Schema
from gaussmix.tables.terms import needs_of, parse_terms

__all__ = ["embedded_release", "first_response", "needs_of_part"]


def first_response(schema: Schema, response: str | None = None) -> str | None:
    """Return the response that the page opens with: the one named, or the first numeric column.

    Without numeric columns it is the first Boolean, then the first category with two levels; None where no column can
    be a response.
    """
    plain = {name: part for name, part in schema.parts.items() if not is_marked(schema, name)}
    numbers = [name for name, part in plain.items() if isinstance(part, Numeric)]
    booleans = [name for name, part in plain.items() if isinstance(part, Boolean)]
    classes = [name for name, part in plain.items() if isinstance(part, Categorical) and len(part.labels) == 2]
    possible = [name for name in (*numbers, *booleans, *classes) if schema.intercept or parts_without(schema, [name])]
    if response is None:
        return possible[0] if possible else None
    name = part_name(schema, response)
    if name not in possible:
        raise ArgumentError(
            f"response must be a numeric or Boolean column without an indicator of missing values, or a category with "
            f"two levels, got {response!r}."
        )
    return name


def embedded_release(release: Release) -> dict[str, Any]:
    """The release as the page's own functions read it."""
    schema, noisy = release.schema, release.statistic.noisy
    (constant,) = schema.groups.get(INTERCEPT, (None,))
    shortened, whole = noisy.shortened, _whole(release)
    return {
        "noisy": _noisy(noisy),
        "encoded": [
            {
                "name": column.name,
                "source": column.source,
                "kind": column.kind,
                "centre": column.centre,
                "scale": column.scale,
                "levels": [list(level) for level in column.levels],
            }
            for column in schema.encoded
        ],
        "parts": [_part(schema, name, part) | {"whole": whole.get(name)} for name, part in schema.parts.items()],
        "last": len(release.statistic.passes) - 1 if isinstance(release.statistic, Transcript) else 0,
        "earlier": _earlier(release.statistic, whole),
        "raw": _raw(schema),
        "intercept": constant,
        "weighted": schema.weight is not None,
        "weight_bound": schema.weight_bound,
        "proposed": release.propose_merges(),
        "shortened": None if shortened is None else str(shortened),
        **_counted(release),
    }


def _whole(release: Release) -> dict[str, list[int]]:
    """Passes in which rows of all levels of a column are whole, for columns whose levels can be counted."""
    schema, statistic = release.schema, release.statistic
    if not schema.intercept or schema.weight is not None:
        return {}
    names = [name for name, part in schema.parts.items() if isinstance(part, Boolean | Categorical)]
    return {name: sorted(whole_in(statistic, name)) if isinstance(statistic, Transcript) else [0] for name in names}


def _earlier(statistic: Statistic, whole: dict[str, list[int]]) -> dict[str, Any]:
    """Passes but the last in which a column's levels, or those of two, are counted, by number."""
    if not isinstance(statistic, Transcript):
        return {}
    sets = [set(passes) for passes in whole.values()]
    chosen = {max(one & other) for one, other in itertools.product(sets, repeat=2)} - {len(statistic.passes) - 1}
    return {str(number): _noisy(moment_of_pass(statistic, number)) for number in sorted(chosen)}


def _noisy(noisy: NoisyMoment) -> dict[str, Any]:
    """A spread that is the shape, and a shape that is a number times the identity, are not written twice."""
    shape = noisy.shape
    isotropic = bool(np.array_equal(shape, shape[0, 0] * np.eye(len(shape))))
    return {
        "size": len(noisy.moment),
        "moment": _triangle(noisy.moment),
        "spread": None if np.array_equal(noisy.spread, shape) else _triangle(noisy.spread),
        "shape": float(shape[0, 0]) if isotropic else _triangle(shape),
        "alpha": noisy.alpha,
        "degrees": None if math.isinf(noisy.degrees) else noisy.degrees,
        "independent": noisy.independent,
    }


def _triangle(matrix: Floats) -> str:
    lower = matrix[np.tril_indices(len(matrix))]
    return base64.b64encode(np.ascontiguousarray(lower, dtype="<f8").tobytes()).decode()


def _part(schema: Schema, name: str, part: Part) -> dict[str, Any]:
    kind, more = _kind(part)
    return {
        "name": name,
        "kind": kind,
        "weight": part.weight,
        "indices": list(schema.groups[name]),
        "columns": list(columns_behind(schema, name)),
        "needs": needs_of_part(schema, name),
        "marked": is_marked(schema, name),
        "own": name in schema.columns,
        **more,
    }


def needs_of_part(schema: Schema, name: str) -> list[str]:
    """Other parts that a model with a part has as well: lower terms, and where its numbers are missing."""
    terms = parse_terms(name, ()) if name in schema.terms else ()
    lower = [own for term in terms for need in needs_of(term) for own in schema.resolve(name_of(need))]
    return [other for other in needed_parts(schema, list(dict.fromkeys([*lower, name]))) if other != name]


def _kind(part: Part) -> tuple[str, dict[str, Any]]:
    if isinstance(part, Numeric):
        return "numeric", {"lower": part.lower, "upper": part.upper, "origin": part.origin}
    if isinstance(part, Boolean):
        return "boolean", {}
    if isinstance(part, Categorical):
        return "categorical", {"labels": list(part.labels), "unknown": part.unknown}
    if isinstance(part, Vector):
        return "vector", {}
    return ("missing" if part.term is None else "term"), {}


def _raw(schema: Schema) -> dict[str, Any] | None:
    """Rows of A that are not the identity's, and b (:attr:`Schema.raw_map`); None without terms."""
    if not schema.terms:
        return None
    A, b = schema.raw_map
    changed = np.flatnonzero((np.eye(len(A)) != A).any(axis=1)).tolist()
    rows = [[i, [[k, float(A[i, k])] for k in np.flatnonzero(A[i]).tolist()]] for i in changed]
    return {"rows": rows, "b": b.tolist()}


def _counted(release: Release) -> dict[str, Any]:
    """The noisy number of rows, and why there are no tables or no counts where there are none."""
    nothing: dict[str, Any] = {"rows": None, "no_tables": None, "no_counts": None}
    try:
        constant_row(release.schema)
    except ArgumentError as error:
        return nothing | {"no_tables": str(error)}
    try:
        return nothing | {"rows": asdict(row_count(release))}
    except ArgumentError as error:
        return nothing | {"no_counts": str(error)}
